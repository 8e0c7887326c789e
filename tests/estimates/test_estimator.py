"""The estimator: bad input gives wide intervals, never a wrong certainty."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.estimates.estimator import FEWEST, Estimator
from rtsched.estimates.run_times import POINTS
from rtsched.estimates.settings import EstimateSettings
from rtsched.estimates.tables import Estimates, odds_by
from rtsched.model.jobs import Jobs
from rtsched.model.log import Log, Outcomes
from rtsched.model.snapshot import Snapshot
from rtsched.model.units import DAY
from rtsched.testing import make_cluster, make_jobs, make_snapshot

NOW = 100 * DAY
BOUNDS = "start_low_95", "start_low_80", "start", "start_high_80", "start_high_95"


def made(seed: int = 0) -> Estimator:
    """Return an estimator that makes few simulations, however long they take."""
    return Estimator(EstimateSettings(draws=16, longest=1e9), seed=seed, answer_within=np.inf)


def log_of(jobs: Jobs, start: Any, run_time: Any) -> Log:
    """Return what ended."""
    begun, ran = np.asarray(start, np.float64), np.asarray(run_time, np.float64)
    outcomes = Outcomes.build(len(jobs), start=begun, end=begun + ran, run_time=ran)
    return Log(jobs, outcomes, (), "test")


def past(n: int = 200) -> Log:
    """Return jobs of the last ten days."""
    submit = NOW - np.linspace(10 * DAY, 3600.0, n)
    jobs = make_jobs(n, id=np.arange(1000, 1000 + n), submit=submit, user="ann", size=2)
    return log_of(jobs, submit, np.linspace(60.0, 3000.0, n))


def state(**columns: Any) -> Snapshot:
    """Return four nodes with a job that runs, and jobs that wait."""
    given: dict[str, Any] = {"id": np.arange(1, 7), "submit": NOW - 100.0, "size": 2, "user": "ann"}
    given |= columns
    running = make_jobs(1, id=[900], submit=[NOW - 600.0], size=2, user="ben")
    return make_snapshot(make_jobs(**given), make_cluster(4), NOW, running=running, nodes=[[0, 1]])


def assert_sound(found: Estimates, now: float = NOW) -> None:
    """Bounds ascend, nothing is before now, and nothing is not a number."""
    bounds = np.column_stack([found.column(name) for name in BOUNDS])
    assert not np.isnan(bounds).any()
    assert (bounds >= now).all()
    assert (bounds[:, 1:] >= bounds[:, :-1]).all()
    assert (found.end >= found.start).all()


def test_an_empty_queue() -> None:
    """No rows, and jobs that are not submitted are estimated all the same."""
    estimator = made()
    estimator.learn(past())
    assert len(estimator.refresh(make_snapshot(None, make_cluster(4), NOW))) == 0
    found = estimator.estimate(make_jobs(1, submit=[NOW]))
    assert_sound(found)


def test_before_the_first_refresh() -> None:
    """Nothing is known."""
    jobs = make_jobs(2)
    assert np.isnan(made().odds(jobs)).all()
    assert np.isnan(made().estimate(jobs).start).all()


def test_users_without_history() -> None:
    """Their end is anywhere up to the requested time: a wide interval."""
    found = made().refresh(state(user="new"))
    assert_sound(found)
    assert (found.end_high_80 - found.end_low_80 > 1800.0).all()


@pytest.mark.parametrize("wall_time", [np.inf, 1e300, 1e12, 1.0, 0.0])
def test_absurd_requested_times(wall_time: float) -> None:
    """They are estimated like others."""
    estimator = made()
    estimator.learn(past())
    found = estimator.refresh(state(wall_time=wall_time, user="new"))
    assert_sound(found)
    odds = estimator.odds(make_jobs(1, wall_time=wall_time, submit=[NOW], deadline=[NOW + 1.0]))
    assert (odds < 0.9).all()


def test_a_clock_that_steps_back() -> None:
    """Estimates go on from the new time, and the past is kept."""
    estimator = made()
    estimator.learn(past())
    estimator.refresh(state())
    for step in (-3600.0, -30 * DAY, 3600.0):
        snapshot = make_snapshot(make_jobs(3, submit=NOW + step - 1), make_cluster(2), NOW + step)
        assert_sound(estimator.refresh(snapshot), NOW + step)
    assert len(estimator.history.jobs) == 200


def test_an_end_in_the_far_future() -> None:
    """One record of a wrong clock does not make all others old."""
    estimator = made()
    estimator.learn(past())
    wrong = make_jobs(1, id=[5000], submit=[NOW + 9000 * DAY], user="ann")
    estimator.learn(log_of(wrong, [NOW + 9000 * DAY], [60.0]))
    estimator.refresh(state())
    assert len(estimator.history.jobs) == 200


def test_equal_seeds() -> None:
    """Give equal estimates."""
    tables = []
    for seed in (3, 3, 4):
        estimator = made(seed)
        estimator.learn(past())
        tables.append(estimator.refresh(state()))
    columns = [np.column_stack([table.column(name) for name in BOUNDS]) for table in tables]
    assert (columns[0] == columns[1]).all()
    assert (columns[0] != columns[2]).any()


def test_it_is_picklable() -> None:
    """What comes back estimates the same."""
    estimator = made()
    estimator.learn(past())
    estimator.refresh(state())
    copy = pickle.loads(pickle.dumps(estimator))  # noqa: S301 - our own
    one, two = (each.refresh(state()) for each in (estimator, copy))
    assert one.end_high_95.tolist() == two.end_high_95.tolist()


def array(state_at: float, label: str, *running: tuple[int, str, float]) -> Snapshot:
    """Return the waiting tasks of array 40 as one job, and tasks that run, with their starts."""
    ids, labels, start = zip(*running, strict=True) if running else ((), (), ())
    runs = make_jobs(len(ids), id=list(ids), label=list(labels), submit=list(start), user="ann")
    queued = make_jobs(1 if label else 0, id=[40][: bool(label)], label=[label][: bool(label)])
    nodes = [[k] for k in range(len(ids))]
    return make_snapshot(queued, make_cluster(4), state_at, running=runs, nodes=nodes)


def test_an_array_is_estimated_by_its_next_task() -> None:
    """The one that starts next after the estimate settles it, and its end is found in records.

    Task 3 ran before; task 4 starts 60 s after the first estimate, task 5 is in no poll.
    """
    estimator = made()
    estimator.learn(past())
    before = (41, "40_3", NOW - 50.0)
    estimator.refresh(array(NOW, "40_[4-5]", before))
    assert len(estimator._ends.remembered()) == 1
    estimator.refresh(array(NOW + 700.0, "40_[5]", before, (42, "40_4", NOW + 60.0)))
    assert len(estimator.record.rows) == 1
    assert estimator.record.rows[0, 0] == NOW + 60.0
    assert len(estimator._ends.remembered()) == 2
    names = ["40_3", "40_4", "40_5"]
    jobs = make_jobs(3, id=[41, 42, 40], label=names, submit=NOW - 100.0, user="ann")
    starts, ran = [NOW - 50.0, NOW + 60.0, NOW + 710.0], [900.0, 900.0, 5.0]
    estimator.refresh(array(NOW + 1000.0, ""))
    estimator.learn(log_of(jobs, starts, ran))
    assert estimator.record.rows[:, 0].tolist() == [NOW + 60.0, NOW + 710.0]
    assert len(estimator._ends.remembered()) == 0
    assert estimator._ends._jobs.sum() == 2


def test_an_array_that_is_cancelled() -> None:
    """Is waited for as long as other jobs are."""
    estimator = made()
    estimator.refresh(array(NOW, "40_[4-5%1]"))
    for later in (3600.0, 3.5 * 3600.0):
        assert len(estimator._starts.remembered()) == 1
        estimator.refresh(array(NOW + later, ""))
    assert len(estimator._starts.remembered()) == 0
    assert len(estimator.record.rows) == 0


def test_what_is_written_down() -> None:
    """Not what was drawn: a new process draws anew, and estimates the same."""
    estimator = made()
    estimator.learn(past())
    estimator.refresh(state())
    whole = len(pickle.dumps(estimator))
    estimator._drawn = None
    assert whole == len(pickle.dumps(estimator))


KNOWN = made()
KNOWN.learn(past())


@settings(deadline=None, max_examples=15)
@given(deadline=st.lists(st.floats(-DAY, 20 * DAY) | st.just(np.inf), min_size=2, max_size=4))
def test_odds_never_fall_as_the_deadline_grows(deadline: list[float]) -> None:
    """Of the same job; and they are never 1."""
    if KNOWN._drawn is None:
        KNOWN.refresh(state())
    at = np.sort(np.array(deadline)) + NOW
    odds = KNOWN.odds(make_jobs(len(at), submit=NOW, size=3, user="ann", deadline=at))
    assert (np.diff(odds) >= 0.0).all()
    assert ((odds >= 0.0) & (odds < 1.0)).all()


def test_odds_are_shares_of_the_run_times_that_are_equally_likely() -> None:
    """Of a job that starts at once, and of one that must wait for all others, which is later."""
    estimator = made()
    estimator.learn(past())
    idle = make_snapshot(None, make_cluster(4), NOW)
    estimator.refresh(idle)
    job = make_jobs(3, submit=NOW, user="ann", deadline=NOW + np.array([60.0, 1500.0, 2900.0]))
    run_time = estimator.history.run_times.distributions(job)[0]
    seen = estimator.odds(job)
    share = [(run_time <= left).mean() for left in (60.0, 1500.0, 2900.0)]
    assert seen == pytest.approx(share, abs=2e-3)
    limited = job.with_column("wall_time", np.full(3, 1500.0))
    assert (estimator.odds(limited)[1:] > 0.998).all()
    estimator.refresh(state(wall_time=3600.0))
    assert (estimator.odds(job)[1:] < seen[1:]).all()


def test_the_same_job_has_the_same_ends_until_the_next_refresh() -> None:
    """Though the second question leaves time for more simulations, and names another deadline."""
    estimator = Estimator(EstimateSettings(draws=64), answer_within=np.inf)
    estimator.learn(past())
    estimator.refresh(state(wall_time=3600.0))
    job = make_jobs(1, id=[7], submit=NOW, user="ann", deadline=[NOW + 900.0])
    first = estimator.ends(job, 0.0)
    assert first.shape == (1, FEWEST * POINTS)
    again = job.replace(id=[8], submit=[NOW + 5.0], deadline=[NOW + 9000.0])
    assert np.array_equal(estimator.ends(again), first)
    assert estimator.odds(again) == odds_by(first[0], NOW + 9000.0)
    assert estimator.ends(again.replace(size=[2])).shape == (1, 64 * POINTS)
    estimator.refresh(state(wall_time=3600.0))
    assert estimator.ends(job).shape == (1, 64 * POINTS)


def test_a_start_after_what_is_simulated_is_too_late_for_any_deadline() -> None:
    """However far away the deadline is."""
    estimator = Estimator(EstimateSettings(draws=8, horizon_days=0.01), answer_within=np.inf)
    estimator.learn(past())
    estimator.refresh(state(n=40, id=np.arange(40), size=4, wall_time=3600.0))
    odds = estimator.odds(make_jobs(1, submit=NOW, size=4, user="ann", deadline=[NOW + 99 * DAY]))
    assert odds.tolist() == [0.0]


def wide(count: int) -> Snapshot:
    """Return a state with so many jobs, at most six, that wait for three of the four nodes."""
    deadline = np.where(np.arange(count) == 4, np.inf, NOW + 7200.0)
    return state(id=np.arange(1, count + 1), size=3, wall_time=3600.0, deadline=deadline)


def test_a_question_between_two_refreshes_keeps_the_arrivals_of_the_last() -> None:
    """What is not submitted starts as it does once it waits, and does so however often it is asked.

    Those who are submitted after it matter: they start before it on nodes that are too few for it.
    """
    asked, waiting = made(), made()
    submit = np.linspace(NOW - 10 * DAY, NOW - 3600.0, 4000)
    often = make_jobs(len(submit), submit=submit, user="eve", size=2, wall_time=1800.0)
    for estimator in (asked, waiting):
        estimator.learn(log_of(often, submit, np.linspace(600.0, 1800.0, len(submit))))
    asked.refresh(wide(5))
    starts = waiting.refresh(wide(6)).take([5])
    job = make_jobs(1, submit=NOW, size=3, user="ann", wall_time=3600.0, deadline=[NOW + 7200.0])
    odds = asked.odds(job)
    assert 0.0 < odds[0] < 1.0
    assert starts.odds.tolist() == odds.tolist()
    for _ in range(2):
        found = asked.estimate(job)
        for name in BOUNDS:
            assert found.column(name).tolist() == starts.column(name).tolist()
        assert asked.odds(job).tolist() == odds.tolist()
    assert asked._drawn is not None
    for _, submitted, run_time in asked._drawn.arrivals:
        submitted[:], run_time[:] = NOW + 20 * DAY, 1.0
    assert asked.estimate(job).start[0] < starts.start[0]


def test_jobs_submitted_since_the_last_refresh_wait_ahead() -> None:
    """It ends as where the refresh knew of them; those that it knew are not counted twice."""
    before, after = made(), made()
    for estimator in (before, after):
        estimator.learn(past())
    before.refresh(wide(4))
    after.refresh(wide(6))
    job = make_jobs(1, submit=NOW, size=3, user="ann", wall_time=3600.0, deadline=[NOW + 7200.0])
    ends = after.ends(job)
    for since in (wide(6).queued.take([4, 5]), wide(6).queued):
        assert before.ends(job, since=since).tolist() == ends.tolist()
    assert after.ends(job, since=wide(6).queued).tolist() == ends.tolist()
    assert before.odds(job, wide(6).queued) == after.odds(job) < before.odds(job)


def test_equal_jobs_that_come_at_once_do_not_all_get_the_odds_of_the_first() -> None:
    """Jobs of three of the four nodes, one after the other within one refresh."""
    estimator = made()
    estimator.learn(past())
    estimator.refresh(wide(0))
    burst = wide(6).queued
    odds = [estimator.odds(burst.take([n]), burst.take(np.arange(n)))[0] for n in range(4)]
    assert (np.diff(odds) < 0).all()


def test_odds_of_waiting_jobs_are_of_those_with_a_deadline() -> None:
    """The first of the queue has the best ones, and none is certain."""
    estimator = made()
    estimator.learn(past())
    odds = estimator.refresh(wide(6), order=np.arange(6.0, 0.0, -1.0)).odds
    assert np.isnan(odds).tolist() == [False] * 4 + [True, False]
    assert (np.diff(odds[[0, 1, 2, 3, 5]]) <= 0.0).all()
    assert 0.0 <= odds[5] < odds[0] < 1.0
    assert np.isnan(estimator.refresh(state()).odds).all()


GPUS = "cpu", "gres/gpu", "gres/gpu:a", "gres/gpu:b"


def with_gpus(kind: str, count: int, **columns: Any) -> Jobs:
    """Return a job with so many GPUs of a type."""
    demand = [[1, count, *(count if name.endswith(f":{kind}") else 0 for name in GPUS[2:])]]
    return make_jobs(1, names={"demand": GPUS}, demand=demand, account="lab", **columns)


@pytest.mark.parametrize("known", [0, 1, 2, 5])
def test_gpus_of_a_type_that_are_busy(known: int) -> None:
    """Who wants those of the busy node waits for its job, though others are idle.

    Of that job's user nothing is known but a few jobs that were cancelled soon: it may be another
    such one, or may run up to its requested time.
    """
    capacity = [[8, 4, 4, 0], [8, 4, 0, 4]]
    cluster = make_cluster(2, names={"capacity": GPUS}, capacity=capacity)
    estimator = Estimator(EstimateSettings(draws=64, longest=1e9), answer_within=np.inf)
    if known:
        submit = np.full(known, NOW - 3000.0)
        ended = make_jobs(known, submit=submit, user="bob", account="lab", wall_time=600.0)
        estimator.learn(log_of(ended, submit, np.full(known, 12.0)))
    runs = with_gpus("a", 3, id=[900], submit=[NOW - 10.0], user="bob", wall_time=600.0)
    estimator.refresh(make_snapshot(None, cluster, NOW, running=runs, nodes=[[0]]))
    by = {"submit": NOW, "user": "alice", "wall_time": 120.0, "deadline": [NOW + 240.0]}
    busy, idle = (estimator.odds(with_gpus(kind, 4, **by))[0] for kind in "ab")
    assert idle > 0.99
    assert busy < 1.05 - 0.5 / (known + 1)
    found = estimator.estimate(with_gpus("a", 4, **by))
    assert found.start_high_95[0] > NOW + 590.0


@pytest.mark.slow
def test_a_hundred_thousand_waiting_jobs() -> None:
    """All have an estimate; those that start after what is simulated are said to."""
    n = 100_000
    queued = make_jobs(n, submit=NOW - 1.0, size=1, wall_time=600.0)
    estimator = Estimator(EstimateSettings(draws=8, longest=1.0, horizon_days=1.0))
    found = estimator.refresh(make_snapshot(queued, make_cluster(2000), NOW))
    assert len(found) == n
    assert_sound(found)


def test_a_running_job_whose_node_is_gone() -> None:
    """It takes no room: the first job that waits has the machine to itself."""
    seen = state(id=[1], submit=NOW - 100.0, size=4, user="ann")
    lost = make_snapshot(seen.queued, make_cluster(4), NOW, running=seen.running, nodes=[[]])
    found = made().refresh(lost)
    assert_sound(found)
    assert found.start[0] == NOW


def test_arrivals_are_simulated_as_far_as_they_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones delay nobody who has started: the estimates are those with all of them."""
    waiting = {"id": np.arange(1, 41), "submit": NOW - 100.0, "size": 2, "wall_time": 36000.0}

    def found() -> Estimates:
        estimator = made()
        estimator.learn(past())
        return estimator.refresh(state(**waiting))

    few = found()
    monkeypatch.setattr("rtsched.estimates.estimator.FIRST_COVERED", 14 * DAY)
    whole = found()
    assert few.start.max() > NOW + DAY / 2
    for name in Estimates.columns():
        assert np.array_equal(few.column(name), whole.column(name), equal_nan=True)
