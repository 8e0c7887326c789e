"""Jobs that name several partitions."""

import pytest
from scene import T0, Scene

from rtsched.daemon.site import entry_of

HALVES = {"left": (0, 1), "right": (2, 3)}


@pytest.mark.parametrize(
    ("left_until", "right_until", "slack", "promised"),
    [
        (0.0, 0.0, 150.0, "left"),  # both are free: the one named first
        (0.0, 90.0, 250.0, "left"),
        (90.0, 0.0, 250.0, "right"),  # it would be in time in both, and starts here at once
        (90.0, 60.0, 250.0, "right"),  # sooner
        (90.0, 0.0, 150.0, "right"),  # in time here only
        (90.0, 60.0, 120.0, ""),
    ],
)
def test_the_promise_is_for_the_one_where_it_starts_first(
    left_until: float, right_until: float, slack: float, promised: str
) -> None:
    """One node of each partition is down; jobs of 100 s that end by `slack` after now."""
    scene = Scene()
    busy = ((8, left_until, 0), (9, right_until, 2))
    running = tuple((job, "", T0, T0 + until, (node,)) for job, until, node in busy if until)
    scene.poll(T0, partitions=HALVES, running=running, down=(1, 3))
    asked = {"size": 1, "wall_time": 100.0, "deadline": T0 + slack, "partition": "left"}
    result = scene.submit(T0, elsewhere=["right"], **asked)
    assert result.verdict == ("admit" if promised else "reject")
    if not promised:
        alone = scene.submit(T0, **asked)
        assert (result.reply.text, result.offer) == (alone.reply.text, alone.offer)
        return
    (job,) = result.site.promises
    assert result.site.row(job).texts("partition") == [promised]
    assert (result.submission is None) == (promised == "left")
    plan = result.site.snapshot.plan
    assert set(plan.nodes_of(entry_of(plan, job)).tolist()) <= set(HALVES[promised])
