"""Estimates: their process, ends of running jobs, and who is told that one ends late."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from estimating_site import KnownEstimator, known_process, waiting, with_estimates
from running import ANN, NOW, Running, answer_of, until
from scene import T0, Scene
from structlog.testing import capture_logs
from test_replanning import RUN, promised, told

from rtsched.adapters.live import Marks
from rtsched.daemon.estimating import MOST_WAITING, Estimating, first_waiting
from rtsched.daemon.estimating_process import EstimatesFile, running_ends
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Status
from rtsched.daemon.site import LikelyPromises, states
from rtsched.daemon.site_reader import MAY_END_LATE
from rtsched.estimates.estimator import Estimator
from rtsched.estimates.run_times import RunTimes
from rtsched.estimates.settings import EstimateSettings
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.limits import Association, LimitRules, LimitSet, SiteLimits
from rtsched.model.log import Log, Outcomes
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon whose estimator is known."""
    made = Running(tmp_path)
    with_estimates(made)
    yield made
    made.close()


def estimating_of(running: Running) -> Estimating:
    """Return the daemon's estimates."""
    found = running.daemon.estimating
    assert found is not None
    return found


@asynccontextmanager
async def estimating_in(running: Running) -> AsyncIterator[Estimating]:
    """Start a daemon with its estimates, and end these."""
    estimating = estimating_of(running)
    estimating.start()
    try:
        await running.start()
        yield estimating
    finally:
        await estimating.close()


async def test_estimates_come_after_a_poll(running: Running) -> None:
    """Each waiting job has one, and the metrics show how good they were."""
    running.show(**waiting("a", "b"))
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
    latest = estimating_of(running).latest
    assert latest.estimates.job.tolist() == [1, 2]
    assert latest.estimates.start.tolist() == [NOW + 600.0] * 2
    text = running.daemon.metrics.text()
    assert 'rtsched_estimate_coverage{interval="90",period="week"} 0.9' in text
    assert 'rtsched_estimate_error_seconds{period="day"} 600.0' in text
    assert "rtsched_estimate_cpu_seconds_total 0.0" not in text
    assert "rtsched_estimate_failures_total 0.0" in text


async def test_questions_are_answered_between_two_simulations(running: Running) -> None:
    """A refresh that goes on answers them; it ends only when one was asked."""
    running.show(**waiting("a"))
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
        running.now += 60.0
        running.show(time=running.now, **waiting("hang"))
        await running.daemon.cycle()
        before = estimating.latest
        one = Jobs.build(1, id=[9], size=[1])
        async with asyncio.timeout(120.0):
            while "hang" not in running.daemon.site.snapshot.queued.texts("name"):
                await running.daemon.cycle()
            while estimating.latest is before or estimating.latest.at == before.at:
                ends = await estimating.ends(one, 30.0)
                assert 0.0 < ends[0, 0] < 30.0, "the time that is left for it"
                found = await estimating.estimate(one, 30.0)
                assert found.start.tolist() == [found.start_low_80[0] + 300.0]


async def test_promises_given_since_the_estimate_wait_ahead(running: Running) -> None:
    """The known estimator adds 1,000 s for each of them to a part of the time that is left."""
    running.show(**waiting("a"))

    class Given(LikelyPromises):
        def given_since(self, at: float) -> Jobs:
            assert at == estimating_of(running).latest.at
            return Jobs.build(2, id=[7, 8], wall_time=600.0)

    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
        one = Jobs.build(1, id=[9], size=[1])
        before = await estimating.ends(one, 30.0)
        estimating.promised = Given
        after = await estimating.ends(one, 30.0)
        assert before[0, 0] < 30.0
        assert 2000.0 < after[0, 0] < 2030.0


async def test_a_killed_process_comes_back(running: Running) -> None:
    """Its death is one sentence; what was known stays, and submissions are answered meanwhile."""
    running.show(**waiting("a"))
    with capture_logs() as logs:
        async with estimating_in(running) as estimating:
            await until(lambda: np.isfinite(estimating.latest.at))
            first, before = estimating.pid, estimating.latest
            assert first is not None
            os.kill(first, signal.SIGKILL)
            assert await estimating.ends(Jobs.build(1, id=[9]), 5.0) is None
            assert estimating.latest.estimates is before.estimates
            assert "SIGKILL" in estimating.latest.failure
            line = running.asked()
            _, fields = await asyncio.to_thread(answer_of, line)
            assert fields
            async with asyncio.timeout(120.0):
                while estimating.latest.estimates is before.estimates:
                    await running.daemon.cycle()
            assert estimating.pid not in {None, first}
    said = [entry for entry in logs if entry["event"] == "not_estimated"]
    assert len(said) == 1
    assert "SIGKILL" in said[0]["error"]


@pytest.mark.parametrize(("name", "why"), [("fail", "no such luck"), ("die", "SIGKILL")])
async def test_a_failure_is_one_sentence(running: Running, name: str, why: str) -> None:
    """However often it fails, it is logged once, and counted; the daemon polls on."""
    running.show(**waiting(name))
    with capture_logs() as logs:
        async with estimating_in(running):
            counted = "rtsched_estimate_failures_total 2.0"
            await until(lambda: counted in running.daemon.metrics.text())
            await running.daemon.cycle()
    said = [entry["error"] for entry in logs if entry["event"] == "not_estimated"]
    assert len(said) == 1
    assert why in said[0]


def past_of_a_day(since: float, until: float) -> Log:
    """Return one job for each day that is asked for."""
    del since
    return Log(
        Jobs.build(1, id=[1], submit=[until - 100.0]),
        Outcomes.build(1, start=[until - 90.0], end=[until - 10.0]),
        (),
        "test",
    )


def no_past(since: float, until: float) -> Log:
    """Fail as a batch system without accounting does."""
    raise OSError(f"no records from {since:.0f} to {until:.0f}")


def test_the_past_is_read_and_kept(tmp_path: Path) -> None:
    """All days are learned, and a process that comes after knows them from the file."""
    file = tmp_path / "estimates.bin"
    process = known_process(past_of_a_day, file)
    latest = time.monotonic() + 120.0
    while process.report().past < 90 and time.monotonic() < latest:
        process.save(30.0)
    process.save(30.0)
    found = EstimatesFile(file).read(Estimator(EstimateSettings()))
    assert found is not None
    estimator, until_when = found
    assert isinstance(estimator, KnownEstimator)
    assert estimator.learned >= 90
    assert until_when > NOW / 2


@pytest.mark.parametrize("damage", [b"", b"x" * 100, b"rtsched estimates 1 0 0\npickle"])
def test_a_damaged_file_begins_anew(tmp_path: Path, damage: bytes) -> None:
    """One sentence, and nothing is read from it."""
    file = tmp_path / "estimates.bin"
    file.write_bytes(damage)
    with capture_logs() as logs:
        assert EstimatesFile(file).read(Estimator(EstimateSettings())) is None
    assert [entry["event"] for entry in logs] == ["estimates_file_not_read"]


async def test_without_records_ends_are_seen_in_polls(tmp_path: Path) -> None:
    """What vanishes from the polls was running until then."""
    running = Running(tmp_path)
    estimating = with_estimates(running, no_past)
    running.show(**waiting("a"))
    async with estimating_in(running):
        await until(lambda: np.isfinite(estimating.latest.at))
        assert "no records" in estimating.latest.problem
    running.close()


async def test_a_queue_that_is_too_long(running: Running) -> None:
    """The first of it is estimated, and it is known how many are left out."""
    names = [f"job-{number}" for number in range(MOST_WAITING + 5000)]
    running.show(**waiting(*names))
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
    latest = estimating_of(running).latest
    assert (len(latest.estimates), latest.left_out) == (MOST_WAITING, 5000)
    assert latest.row(MOST_WAITING + 1) is None
    assert latest.row(MOST_WAITING) is not None


async def test_held_jobs_are_not_simulated(running: Running) -> None:
    """Nor those that wait for one; what remains keeps its priorities."""
    shown = waiting("held", "b", "c", "d", held=("held",))
    shown["edges"] = Edges.build(2, before=[1, 2], after=[2, 3])
    shown["marks"] = shown["marks"].replace(priority=[0.0, 9.0, 8.0, 7.0])
    running.show(**shown)
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
    found = estimating_of(running).latest.estimates
    assert found.job.tolist() == [4]
    assert found.end_high_95.tolist() == [NOW + 600.0 + 1800.0 + 7.0]


@pytest.mark.parametrize("known", [True, False])
async def test_limits_are_handed_over(running: Running, known: bool) -> None:
    """Those of the last poll, if there are some."""
    users = Association("physics"), Association("physics", "ann", limits=LimitSet(user={"jobs": 1}))
    shown = waiting("limited")
    shown["queued"] = shown["queued"].replace_text("account", [0], ["physics"])
    running.show(limits=LimitRules(SiteLimits(None, users)) if known else None, **shown)
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
    (end,) = estimating_of(running).latest.estimates.end_high_95.tolist()
    assert end - (NOW + 600.0 + 1800.0) == (1.0 if known else -1.0)


async def test_an_empty_queue(running: Running) -> None:
    """Nothing is estimated, and that is no failure."""
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
    latest = estimating_of(running).latest
    assert (len(latest.estimates), latest.failure) == (0, "")


@pytest.mark.parametrize("step", [-86400.0, 86400.0])
async def test_a_clock_that_is_set(running: Running, step: float) -> None:
    """Estimates go on from the new time."""
    running.show(**waiting("a"))
    async with estimating_in(running) as estimating:
        await until(lambda: np.isfinite(estimating.latest.at))
        running.now += step
        running.show(time=running.now)
        async with asyncio.timeout(120.0):
            while estimating.latest.at != running.now:
                await running.daemon.cycle()
        assert estimating.latest.estimates.start.tolist() == [running.now + 600.0]


def test_too_many_jobs() -> None:
    """The first of the queue's order are estimated; it is known how many are left out."""
    queued = Jobs.build(5, id=np.arange(5))
    whole = Snapshot(0.0, Cluster.uniform(4), queued=queued)
    snapshot, order, left_out = first_waiting(whole, np.array([1.0, 5.0, 3.0, 4.0, 2.0]), 3)
    assert snapshot.queued.id.tolist() == [1, 2, 3]
    assert order.tolist() == [5.0, 3.0, 4.0]
    assert left_out == 2


def jobs(*ids: int) -> Jobs:
    """Return jobs of ann's of an hour."""
    n = len(ids)
    return Jobs.build(n, id=ids, user=["ann"] * n, wall_time=np.full(n, 3600.0))


def state(*elapsed: float) -> Snapshot:
    """Return a state in which a job runs for each of the given times."""
    n = len(elapsed)
    start = NOW - np.array(elapsed)
    nodes = np.arange(n, dtype=np.int32)
    runs = Schedule.build(np.arange(n), start, start + 3600.0, np.arange(n + 1), nodes)
    return Snapshot(NOW, Cluster.uniform(8), running=jobs(*range(n)), allocations=runs)


def test_ends_follow_the_past() -> None:
    """Most end when such jobs did; one that has run longer ends between now and its limit."""
    past = RunTimes()
    past.learn(jobs(*range(50)), np.full(50, 1200.0))
    found = running_ends(past, state(600.0, 3000.0, 4000.0))
    assert found.job.tolist() == [0, 1, 2]
    assert found.end[0] == NOW + 600.0
    assert NOW <= found.end_low_95[1] <= found.end_high_95[1] <= NOW + 600.0
    assert found.end_high_95[2] == NOW  # past its limit: any moment
    assert np.isnan(found.start).all()


def test_odds_are_of_those_with_a_deadline() -> None:
    """The share of the draws that end by then, and never all of them."""
    runs = state(0.0, 0.0, 0.0, 0.0)
    deadline = [np.inf, NOW - 1.0, NOW + 1800.0, NOW + 3600.0]
    found = running_ends(RunTimes(), replace(runs, running=runs.running.replace(deadline=deadline)))
    assert np.isnan(found.odds[0])
    assert found.odds[1] == 0.0
    assert 0.4 < found.odds[2] < 0.6
    assert 0.99 < found.odds[3] < 1.0


def test_without_a_past() -> None:
    """The interval is wide, and ends at the limit."""
    found = running_ends(RunTimes(), state(0.0))
    assert found.end_low_80[0] < NOW + 900.0
    assert NOW + 2700.0 < found.end_high_80[0] <= NOW + 3600.0
    assert len(running_ends(RunTimes(), state())) == 0


LEEWAY = 20.0


def poll(scene: Scene, now: float, token: str, end: float) -> dict[int, str]:
    """Poll a batch system that lets job 7 run until `end`; return what users are told."""
    shown = ((7, token, T0 + 2, end + LEEWAY, (0,)),)
    return told(scene.poll(now, (), shown, leeway=LEEWAY))


def test_who_may_end_late_is_told_once(scene: Scene) -> None:
    """Up to a second late counts as in time; what is in time again is told, too."""
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    scene.poll(T0 + 1, ((7, token),))
    assert not poll(scene, T0 + 2, token, deadline + 1)
    assert "the job may run until" in poll(scene, T0 + 3, token, deadline + 2)[7]
    assert not poll(scene, T0 + 4, token, deadline + 60)
    assert "by the promised" in poll(scene, T0 + 5, token, deadline)[7]
    assert not poll(scene, T0 + 6, token, deadline)
    assert scene.site.promises[7].state == "firm"


@pytest.mark.parametrize("late", [False, True])
def test_nobody_is_told_after_the_deadline(scene: Scene, late: bool) -> None:
    """Neither that a job is late, nor, of one that was said to be so, that it is in time.

    The promise is closed as missed when the job ends.
    """
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    scene.poll(T0 + 1, ((7, token),))
    if late:
        assert poll(scene, deadline - 1, token, deadline + 60)
    else:
        poll(scene, T0 + 2, token, deadline)
    assert not poll(scene, deadline + 5, token, deadline + 30 * (not late))


def test_a_suspended_job_is_at_risk(scene: Scene) -> None:
    """Nobody knows when it ends, whatever its limit says; it is in time again once it goes on."""
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    shown = ((7, token, T0 + 2, T0 + RUN, (0,)),)
    assert not told(scene.poll(T0 + 2, (), shown))
    assert "at risk: the job is suspended" in told(scene.poll(T0 + 3, (), shown, suspended=(7,)))[7]
    assert states(scene.site) == {"at-risk": 1}
    assert not told(scene.poll(T0 + 4, (), shown, suspended=(7,)))
    assert "after all" in told(scene.poll(T0 + 5, (), shown))[7]
    assert states(scene.site) == {"firm": 1}


def test_a_job_that_is_suspended_at_its_deadline_breaks_its_promise(scene: Scene) -> None:
    """Its user is informed then; the promise is not at risk for ever."""
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    shown = ((7, token, T0 + 2, deadline + RUN, (0,)),)
    scene.poll(deadline - 1, (), shown, suspended=(7,))
    assert states(scene.site) == {"at-risk": 1}
    settled = scene.poll(deadline + 5, (), shown, suspended=(7,))
    why = "the job was suspended at its deadline"
    assert [(r.state, r.why) for r in settled.changed] == [("broken", why)]
    assert "can no longer be kept" in told(settled)[7]


def test_best_effort_jobs_may_run_for_ever(scene: Scene) -> None:
    """They have no deadline to end by."""
    assert not poll(scene, T0 + 2, "", T0 + 1e9)


async def test_status_names_it(running: Running) -> None:
    """As long as its array, on fewer nodes than planned, may run until after the deadline."""
    await running.start()
    await asyncio.to_thread(answer_of, running.asked())
    (record,) = running.daemon.site.promises.values()
    job = running.daemon.site.row(record.id).replace(id=np.array([17]))
    marks = Marks.build(1, job=[17], uid=[ANN], token=[record.token], requeues=[True])
    node = np.zeros(1, np.int32)
    until = Schedule.build([17], [running.now], [record.deadline + 60], np.array([0, 1]), node)
    running.show(running=job, allocations=until, marks=marks)
    await running.daemon.cycle()
    status = await asyncio.to_thread(ask, Status(), str(running.users.path))
    (promise,) = status.promises
    assert (promise.state, promise.why) == ("at-risk", MAY_END_LATE)
    assert promise.late
    assert status.states == {"at-risk": 1}
    assert 'rtsched_promises{standing="at-risk"} 1.0' in running.daemon.metrics.text()
    assert 'rtsched_promises{standing="firm"} 0.0' in running.daemon.metrics.text()
