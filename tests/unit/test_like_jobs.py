"""Jobs that ask for the same."""

from __future__ import annotations

from rtsched.model.jobs import Jobs, alike_but_for_deadlines


def test_what_they_ask_for_tells_jobs_apart_and_not_when_or_who_they_are() -> None:
    """Jobs 0, 2 and 5 are of one user, size and time; the others differ in one each."""
    jobs = Jobs.build(
        6,
        id=range(6),
        submit=range(6),
        deadline=[10, 20, 30, 40, 50, 60],
        size=[1, 2, 1, 1, 1, 1],
        wall_time=[5, 5, 5, 6, 5, 5],
        user=["a", "a", "a", "a", None, "a"],
        name=["x", "y", "z", "x", "y", "z"],
    )
    found = alike_but_for_deadlines(jobs).tolist()
    assert found[0] == found[2] == found[5]
    assert len(set(found)) == 4
    assert alike_but_for_deadlines(Jobs.build(2)).tolist() == [0, 0]
