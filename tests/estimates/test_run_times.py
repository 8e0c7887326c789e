"""Run times: what of the past is taken in, how much likeness counts, simple predictors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rtsched.estimates import run_times as module
from rtsched.estimates.run_times import (
    BROAD,
    HALF,
    NAMES,
    POINTS,
    RECENT,
    UNLIMITED,
    History,
    Predictors,
    RunTimes,
    draw,
)
from rtsched.model.jobs import Jobs
from rtsched.model.log import Log, Outcomes
from rtsched.testing import make_jobs

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
    return draw(distribution, np.array(elapsed), np.array(latest), job, user, range(count), 1)


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


def log_of(ids: list[int], end: list[float], run_time: float = 60.0, **columns: Any) -> Log:
    """Return jobs that ended."""
    ends = np.array(end)
    given = {"id": ids, "submit": ends - 100.0 - run_time, "user": "ann"} | columns
    jobs: Jobs = make_jobs(len(ids), **given)
    outcomes = Outcomes.build(len(ids), start=ends - run_time, end=ends)
    return Log(jobs, outcomes, (), "test")


def known(*logs: Log, since: float = -np.inf) -> History:
    """Return what is known after these logs."""
    found = History()
    for log in logs:
        found.learn(log, since)
    return found


def test_known_jobs_are_passed_over() -> None:
    """A job of two logs counts once; one that ran again counts again."""
    found = known(log_of([1, 2], [500.0, 600.0]), log_of([2, 3], [600.0, 700.0]))
    assert found.end.tolist() == [500.0, 600.0, 700.0]
    found.learn(log_of([2], [900.0]), -np.inf)
    assert len(found.jobs) == 4


def test_logs_out_of_order() -> None:
    """It is the same past, whichever day is read first."""
    first, second = log_of([1, 2], [500.0, 600.0], 200.0), log_of([3, 4], [900.0, 800.0])
    one, two = known(first, second), known(second, first)
    assert one.jobs.submit.tolist() == two.jobs.submit.tolist() == sorted(one.jobs.submit)
    assert one.run_time.tolist() == two.run_time.tolist()
    new = make_jobs(1, user="ann")
    assert one.run_times.distributions(new).tolist() == two.run_times.distributions(new).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        log_of([9], [1e6], 11 * HOUR),
        log_of([9], [1e6], 0.0),
        log_of([9], [1e6], -5.0),
        log_of([9], [np.nan]),
        log_of([9], [np.inf]),
        log_of([9], [1e6], submit=[1e6 + 1.0]),
        log_of([9], [1e6], submit=[np.nan]),
        log_of([9], [1e6], size=[0]),
    ],
)
def test_what_cannot_be(wrong: Log) -> None:
    """Absurd run times and clocks are left out."""
    assert len(known(wrong).jobs) == 0


def test_a_job_that_outlived_its_requested_time() -> None:
    """Up to ten hours, for a request of an hour, it is believed."""
    assert known(log_of([9], [1e6], 10 * HOUR)).run_time.tolist() == [10 * HOUR]


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many jobs the latest remain, in order of their submissions."""
    monkeypatch.setattr(module, "MOST", 10)
    found = known(log_of(list(range(50)), np.linspace(1e6, 1.0, 50).tolist()))
    assert len(found.jobs) == 10
    assert found.end.min() > 0.7e6
    assert (np.diff(found.jobs.submit) >= 0.0).all()


def test_what_is_known_to_be_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more of it than jobs; those that were dropped do not come back, in whatever order.

    The same log read once more changes nothing.
    """
    monkeypatch.setattr(module, "MOST", 10)
    logs = [log_of([day * 5 + k for k in range(5)], [1e6 + 100.0 * day] * 5) for day in range(9)]
    found = known(*logs[4:], *reversed(logs[:4]))
    again = known(*logs[4:], *reversed(logs[:4]), *logs)
    for each in (found, again):
        assert each.end.tolist() == [1e6 + 700.0] * 5 + [1e6 + 800.0] * 5
        assert len(each._known) <= 10
    found.learn(log_of([99], [1e6 + 900.0]), -np.inf)
    found.learn(logs[7], -np.inf)  # some of these were dropped for it
    assert found.end.tolist() == [1e6 + 700.0] * 4 + [1e6 + 800.0] * 5 + [1e6 + 900.0]
    assert len(found._known) <= 10


def test_old_jobs_are_forgotten() -> None:
    """Those before a time, whether they come late or grow old."""
    found = known(log_of([1, 2], [500.0, 5000.0]), since=1000.0)
    assert found.end.tolist() == [5000.0]
    found.forget(6000.0, np.inf)
    assert len(found.jobs) == 0


def test_ends_in_the_future() -> None:
    """A few are dropped; if all are, it is the present clock that is wrong."""
    found = known(log_of([1, 2, 3], [500.0, 600.0, 1e9]))
    found.forget(0.0, 1000.0)
    assert found.end.tolist() == [500.0, 600.0]
    found.forget(0.0, 100.0)
    assert len(found.jobs) == 2


def test_an_empty_log() -> None:
    """Nothing is learnt."""
    assert len(known(log_of([], [])).jobs) == 0


LONGEST = 1e6


def predictors() -> Predictors:
    """Return what is known after five jobs of ann and one of bob."""
    found = Predictors()
    users = ["ann", "ann", "bob", "ann", "ann", "ann"]
    jobs = make_jobs(6, wall_time=[1000.0, 1000.0, 1000.0, 400.0, 1000.0, np.inf])
    jobs = jobs.replace_text("user", [users.index(user) for user in users], users)
    found.learn(jobs, np.array([100.0, 200.0, 900.0, 160.0, np.nan, 60.0]))
    return found


def predicted(user: str, wall: float, elapsed: float = 0.0) -> list[float]:
    """Return what is predicted of a job."""
    job = make_jobs(1, wall_time=[wall]).replace_text("user", [0], [user])
    return predictors().run_times(job, np.array([elapsed]), LONGEST)[0].tolist()


def test_of_a_job_that_waits() -> None:
    """The median of 0.1, 0.2 and 0.4; the mean of 160 and 60. What did not run does not count."""
    assert len(NAMES) == 3
    assert predicted("ann", 1000.0) == [1000.0, 200.0, 110.0]
    assert predicted("ann", 90.0) == [90.0, 18.0, 90.0]
    assert predicted("ann", np.inf) == [LONGEST, 0.2 * LONGEST, 110.0]


def test_of_a_user_who_is_not_known() -> None:
    """All that is known is what is requested."""
    assert predicted("eve", 1000.0) == [1000.0] * 3


def test_of_a_job_that_runs_longer() -> None:
    """A prediction that has passed grows in steps, up to what is requested, and beyond now."""
    assert predicted("ann", 1000.0, 150.0) == [1000.0, 200.0, 110.0 + 60.0]
    assert predicted("ann", 1000.0, 230.0) == [1000.0, 200.0 + 60.0, 110.0 + 300.0]
    assert predicted("ann", 1000.0, 995.0) == [1000.0, 1000.0, 1000.0]
    assert predicted("ann", 1000.0, 2000.0) == [2001.0] * 3
