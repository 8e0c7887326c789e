"""Run times drawn from the past: how much each level of likeness counts, and what is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates import run_times as module
from rtsched.estimates.run_times import BROAD, HALF, POINTS, RECENT, UNLIMITED, RunTimes, draw
from rtsched.testing import make_jobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

HOUR = 3600.0


def learnt(jobs: Jobs, *run_time: float) -> RunTimes:
    """Return what is known after these jobs."""
    known = RunTimes()
    known.learn(jobs, np.array(run_time))
    return known


def drawn(
    distribution: NDArray[np.float64], elapsed: list[float], latest: list[float], count: int = 50
) -> NDArray[np.float64]:
    """Return run times of jobs of one user."""
    user = np.zeros(len(elapsed), np.int32)
    job = np.arange(len(elapsed))
    return draw(distribution, np.array(elapsed), np.array(latest), job, user, count, 1)


def test_no_history() -> None:
    """Every share of the requested time is equally likely."""
    found = RunTimes().distributions(make_jobs(1, wall_time=6400.0))
    assert found.tolist() == [[100.0 * (k + 0.5) for k in range(POINTS)]]


def test_no_history_and_no_limit() -> None:
    """Nothing is known: anything up to a day."""
    found = RunTimes().distributions(make_jobs(1, wall_time=np.inf))[0]
    assert found[0] < 0.01 * UNLIMITED
    assert found[-1] > 0.99 * UNLIMITED


def test_no_jobs() -> None:
    """No rows, but points."""
    assert RunTimes().distributions(make_jobs(0)).shape == (0, POINTS)


def test_one_job_of_the_same_user() -> None:
    """It takes a half, though it is on five levels; the rest stays as wide as before."""
    jobs = make_jobs(1, user="ann", wall_time=HOUR)
    found = learnt(jobs, 0.25 * HOUR).distributions(jobs)[0]
    same = np.isclose(found, 0.25 * HOUR).sum() / POINTS
    assert same == pytest.approx(0.5, abs=1.5 / POINTS)
    assert found[0] < 0.05 * HOUR
    assert found[-1] > 0.95 * HOUR


def test_one_job_of_another_user() -> None:
    """Only the two levels of everybody know of it."""
    ann, ben = (make_jobs(1, user=name, wall_time=HOUR) for name in ("ann", "ben"))
    found = learnt(ann, 0.25 * HOUR).distributions(ben)[0]
    left = (HALF / (1 + HALF)) ** 2
    same = np.isclose(found, 0.25 * HOUR).sum() / POINTS
    assert same == pytest.approx(1 - left, abs=1.5 / POINTS)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 20])
@pytest.mark.parametrize("names", [{}, {"name": "model", "account": "lab"}])
def test_a_few_equal_jobs_are_no_certainty(count: int, names: dict[str, str]) -> None:
    """The next one is longer than `n` others with odds of 1 in `n` + 1, on however many levels.

    They took no time, so that nearly all that is left to any time is longer.
    """
    jobs = make_jobs(count, user="ann", wall_time=HOUR, **names)
    found = learnt(jobs, *[1.0] * count).distributions(jobs)[0]
    longer = (found > 0.02 * HOUR).mean()
    assert longer >= 1 / (count + 1) - 2 / POINTS
    assert longer <= 0.55


@pytest.mark.parametrize("users", [1, 2, 5, 20])
def test_many_jobs_of_few_users_are_no_certainty_for_another(users: int) -> None:
    """However many there are: the next user is unlike all with odds of 1 in their number + 1."""
    names = [f"user-{number % users}" for number in range(BROAD)]
    known = learnt(make_jobs(BROAD, user=names, account="lab", wall_time=HOUR), *[1.0] * BROAD)
    found = known.distributions(make_jobs(2, user=["new", "user-0"], account="lab"))
    longer = (found > 0.02 * HOUR).mean(axis=1)
    assert longer[0] == pytest.approx(1 / (users + 1), abs=2 / POINTS)
    assert longer[1] <= 2 / POINTS


def test_a_second_is_no_truth() -> None:
    """A requested time of one second is a level apart from that of any requested time."""
    jobs = make_jobs(1, user="ann", wall_time=1.0)
    levels = learnt(jobs, 1.0)._past
    assert [len(past) for past in levels.values()] == [1] * 5


def test_names_are_closest() -> None:
    """Jobs of the same name outweigh as many others of their user."""
    jobs = make_jobs(40, user="ann", wall_time=HOUR, name=["long"] * 20 + ["short"] * 20)
    run_time = np.repeat([0.9 * HOUR, 0.1 * HOUR], 20)
    found = learnt(jobs, *run_time).distributions(jobs.take([0, 39]))
    assert (found[0] > 0.5 * HOUR).mean() > 0.6
    assert (found[1] < 0.5 * HOUR).mean() > 0.6


def test_times_scale_with_what_is_requested() -> None:
    """A user's jobs take the same share of another requested time."""
    known = learnt(make_jobs(60, user="ann", wall_time=HOUR), *[0.5 * HOUR] * 60)
    found = known.distributions(make_jobs(1, user="ann", wall_time=10 * HOUR))[0]
    assert np.median(found) == pytest.approx(5 * HOUR)


def test_jobs_without_limit_keep_to_their_like() -> None:
    """Their seconds are not taken for shares, nor the other way round."""
    known = learnt(make_jobs(60, user="ann", wall_time=np.inf), *[500.0] * 60)
    assert np.median(known.distributions(make_jobs(1, user="ann", wall_time=np.inf))) == 500.0
    found = known.distributions(make_jobs(1, user="ann", wall_time=HOUR))
    assert found.max() <= HOUR


@pytest.mark.parametrize("run_time", [0.0, -5.0, np.nan, np.inf])
def test_jobs_that_did_not_run(run_time: float) -> None:
    """They teach nothing."""
    jobs = make_jobs(1, wall_time=HOUR)
    found = learnt(jobs, run_time).distributions(jobs)
    assert found.tolist() == RunTimes().distributions(jobs).tolist()


@pytest.mark.parametrize("wall_time", [0.0, -HOUR, np.nan, 1e-300, 1e300, np.inf])
def test_absurd_requested_times(wall_time: float) -> None:
    """They are learnt from and estimated: positive, finite seconds, ascending."""
    jobs = make_jobs(1, user="ann", wall_time=wall_time)
    for known in (RunTimes(), learnt(jobs, 100.0)):
        found = known.distributions(jobs)[0]
        assert np.isfinite(found).all()
        assert (found >= 1.0).all()
        assert (np.diff(found) >= 0.0).all()


def test_unknown_users_are_of_one_job_each() -> None:
    """A log that names none is no log of a single user: 99 jobs say what the next one needs."""
    sizes = np.arange(1, 101, dtype=np.int32)
    wall = np.geomspace(60.0, 30 * HOUR, 100)
    known = learnt(make_jobs(99, size=sizes[:99], wall_time=wall[:99]), *(0.5 * wall[:99]))
    found = known.distributions(make_jobs(1, size=sizes[99:], wall_time=wall[99:]))
    within = np.abs(found - 0.5 * wall[99]) < 0.01 * wall[99]
    assert within.mean() >= 0.95
    named = learnt(
        make_jobs(99, size=sizes[:99], wall_time=wall[:99], user="ann"), *(0.5 * wall[:99])
    )
    found = named.distributions(make_jobs(1, size=sizes[99:], wall_time=wall[99:], user="ben"))
    within = np.abs(found - 0.5 * wall[99]) < 0.01 * wall[99]
    assert within.mean() <= 0.6


def test_what_is_remembered_is_bounded() -> None:
    """Of each level the latest jobs alone."""
    n = BROAD + 50
    known = learnt(make_jobs(n, user="ann", wall_time=HOUR), *np.linspace(1.0, HOUR, n))
    lengths = {
        key[0]: len(past)  # type: ignore[index]
        for key, past in known._past.items()
    }
    assert lengths["user"] == RECENT
    assert lengths[None] == BROAD


def test_levels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ever new users the last ones are known; ann's, who comes again and again, are not lost.

    Of each user 3 levels are kept, and 2 of everybody; of 20 levels at least ann's and 5 others'.
    """
    monkeypatch.setattr(module, "LEVELS_KEPT", 20)
    known = RunTimes()
    for number in range(200):
        users = ["ann", f"user-{number}"]
        known.learn(make_jobs(2, user=users, wall_time=HOUR), np.array([0.25 * HOUR, 60.0]))
    assert len(known._past) <= 22
    ann, last, first = (
        np.median(known.distributions(make_jobs(1, user=name, wall_time=HOUR)))
        for name in ("ann", "user-199", "user-0")
    )
    assert ann == pytest.approx(0.25 * HOUR, rel=0.1)
    users = {key[1] for key in known._past if key[0] is not None}  # type: ignore[index]
    assert {"ann", "user-199"} <= users
    assert "user-0" not in users
    assert np.isfinite([last, first]).all()


@given(
    elapsed=st.lists(st.floats(0.0, 1e7), min_size=1, max_size=5),
    wall_time=st.floats(1.0, 1e6) | st.just(np.inf),
)
def test_draws_are_above_what_has_passed(elapsed: list[float], wall_time: float) -> None:
    """However long a job has run already."""
    n = len(elapsed)
    found = drawn(
        RunTimes().distributions(make_jobs(n, wall_time=wall_time)), elapsed, [wall_time] * n
    )
    assert np.isfinite(found).all()
    assert (found > np.array(elapsed)).all()


def test_draws_follow_the_distribution() -> None:
    """A waiting job's times are those of its distribution, and a running one's the rest of them."""
    distribution = RunTimes().distributions(make_jobs(2, wall_time=HOUR))
    found = drawn(distribution, [0.0, 0.5 * HOUR], [HOUR, HOUR], 4000)
    assert np.quantile(found[:, 0], [0.1, 0.5, 0.9]) == pytest.approx(
        [0.1 * HOUR, 0.5 * HOUR, 0.9 * HOUR], abs=0.03 * HOUR
    )
    assert np.median(found[:, 1]) == pytest.approx(0.75 * HOUR, abs=0.03 * HOUR)


def test_a_job_that_runs_longer_than_any_before() -> None:
    """It may take up to its requested time."""
    distribution = np.full((1, POINTS), 10.0)
    found = drawn(distribution, [100.0], [1100.0], 1000)
    assert found.min() >= 101.0
    assert found.max() <= 1100.0
    assert np.median(found) == pytest.approx(600.0, abs=60.0)


@pytest.mark.parametrize("left", [1, 3, 7])
def test_a_job_that_runs_longer_than_nearly_all_before(left: int) -> None:
    """It ends with one of those that are longer, or, as likely, after the last of them."""
    distribution = np.full((1, POINTS), 10.0)
    distribution[0, -left:] = np.linspace(200.0, 300.0, left)
    found = drawn(distribution, [100.0], [1100.0], 4000)
    last = distribution[0, -1]
    assert found.min() >= 101.0
    assert found.max() <= 1100.0
    assert (found > last).mean() == pytest.approx(1 / (left + 1), abs=0.03)
    assert np.median(found[found > last]) == pytest.approx((last + 1100.0) / 2, abs=60.0)


def kin(**columns: Any) -> list[list[float]]:
    """Return distributions of jobs after one of ann's in account `a`."""
    known = learnt(make_jobs(1, user="ann", account="a", wall_time=HOUR), 60.0)
    found: list[list[float]] = known.distributions(make_jobs(1, wall_time=HOUR, **columns)).tolist()
    return found


def test_accounts_are_alike() -> None:
    """A new user of a known account is not like one of an unknown account."""
    same, other = kin(user="new", account="a")[0], kin(user="new", account="b")[0]
    assert np.isclose(same, 60.0).sum() > np.isclose(other, 60.0).sum() > 0
