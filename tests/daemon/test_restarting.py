"""Promised jobs that fail in time with an exit code that the site names, and begin again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import BOB, T0, Scene
from test_replanning import RUN, overlaps, promised, start_of, told

from rtsched.adapters.live import CompletionStatus
from rtsched.daemon.restarting import NO_ROOM, NOT_QUEUED, POLLS
from rtsched.daemon.settings import DaemonSettings, LiveSite
from rtsched.daemon.site import Step
from rtsched.daemon.start import policy_of
from rtsched.errors import ConfigError
from rtsched.model.actions import Restart
from rtsched.model.state import EventKind

TEMPFAIL = 75
DELAY = 121.0


PLANNERS = pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])


def site(nodes: int = 2, **more: Any) -> Scene:
    """Return a site that starts jobs again which fail with 75."""
    return Scene(nodes=nodes, restart_exit_codes=[TEMPFAIL], **more)


def running(scene: Scene, job: int, deadline: float, nodes: tuple[int, ...] = (0,)) -> str:
    """Have a job promised its deadline and started; return its token."""
    _, token = promised(scene, job, size=len(nodes), wall_time=RUN, deadline=deadline)
    scene.poll(T0 + 1, ((job, token),))
    scene.poll(T0 + 2, (), ((job, token, T0 + 2, T0 + 2 + RUN, nodes),))
    return token


def restarts(settled: Step) -> list[int]:
    """Return the jobs that are to be queued again."""
    found = [each.job.tolist() for each in settled.actions if isinstance(each, Restart)]
    return found[0] if found else []


@PLANNERS
def test_it_begins_again_within_its_promise(planner: str) -> None:
    """It is planned for when the batch system lets it start; its user is told when that is sure."""
    scene = site(planner=planner)
    token = running(scene, 7, T0 + 3 * RUN)
    failed = ((7, T0 + 60, TEMPFAIL),)
    settled = scene.poll(T0 + 61, failed=failed, requeue_delay=DELAY)
    assert not settled.changed
    assert restarts(settled) == [7]
    assert not told(settled), "the batch system may still say no"
    assert start_of(scene, 7) == T0 + 61 + DELAY
    late = {"begin": T0 + 62 + DELAY}
    settled = scene.poll(T0 + 62, ((7, token),), requeue_delay=DELAY, changed=late)
    assert not restarts(settled)
    assert "restarts, planned to start at" in told(settled)[7]
    assert "lost" not in told(settled)[7]
    assert start_of(scene, 7) == T0 + 61 + DELAY
    assert not told(scene.poll(T0 + 63, ((7, token),), changed=late)), "once"
    assert start_of(scene, 7) == T0 + 61 + DELAY
    began = T0 + 61 + DELAY
    scene.poll(began, (), ((7, token, began, began + RUN, (0,)),))
    completions = ((7, began + RUN, CompletionStatus.COMPLETED),)
    (record,) = scene.poll(began + RUN + 1, completions=completions).changed
    assert record.state == "kept"


def test_its_nodes_are_promised_to_nobody_else_meanwhile() -> None:
    """From the poll that showed its failure on."""
    scene = site(nodes=1)
    running(scene, 7, T0 + 2 * RUN)
    scene.poll(T0 + 61, failed=((7, T0 + 60, TEMPFAIL),), requeue_delay=DELAY)
    judged = scene.submit(T0 + 61, uid=BOB, wall_time=RUN, deadline=T0 + 1.8 * RUN, size=1)
    assert judged.verdict == "reject"


def test_where_all_of_its_run_does_not_fit_it_is_closed() -> None:
    """The time that the batch system puts it off counts."""
    scene = site()
    running(scene, 7, T0 + 60 + RUN + DELAY)
    settled = scene.poll(T0 + 61, failed=((7, T0 + 60, TEMPFAIL),), requeue_delay=DELAY)
    (record,) = settled.changed
    assert (record.state, restarts(settled)) == ("withdrawn", [])
    assert record.why == f"the job failed with exit code 75 before its deadline, and {NO_ROOM}"
    assert not scene.site.promises
    assert not scene.poll(T0 + 62, failed=((7, T0 + 60, TEMPFAIL),)).changed


def test_nobody_s_promise_breaks_for_it() -> None:
    """The only node is promised to another job for all of the time that is left."""
    scene = site(nodes=1)
    token = running(scene, 7, T0 + 2.4 * RUN)
    queued = (promised(scene, 8, size=1, wall_time=RUN, deadline=T0 + 2.2 * RUN),)
    run = ((7, token, T0 + 2, T0 + 2 + RUN, (0,)),)
    scene.poll(T0 + 3, queued, run)
    settled = scene.poll(T0 + 0.5 * RUN, queued, failed=((7, T0 + 0.5 * RUN - 1, TEMPFAIL),))
    assert [(r.id, r.state) for r in settled.changed] == [(7, "withdrawn")]
    assert set(scene.site.promises) == {8}


@pytest.mark.parametrize(
    ("code", "before", "end"),
    [
        (1, 0, T0 + 60),
        (-1, 0, T0 + 60),
        (TEMPFAIL, 1, T0 + 60),
        (TEMPFAIL, 0, T0 + 3 * RUN + 60),
        (TEMPFAIL, 0, np.nan),
    ],
    ids=["another code", "cancelled", "started again before", "too late", "end not known"],
)
def test_any_other_end_closes_the_promise(code: int, before: int, end: float) -> None:
    """As if the setting were not there."""
    states = []
    for scene in (site(), Scene(nodes=2)):
        running(scene, 7, T0 + 3 * RUN)
        now = np.nanmax([end, T0 + 60]) + 1
        settled = scene.poll(now, failed=((7, end, code),), restarts=before)
        assert not restarts(settled)
        (record,) = settled.changed
        states.append((record.state, record.why))
    assert states[0] == states[1]


def test_a_site_that_names_no_codes_starts_nothing_again() -> None:
    """The default."""
    scene = Scene(nodes=2)
    running(scene, 7, T0 + 3 * RUN)
    settled = scene.poll(T0 + 61, failed=((7, T0 + 60, TEMPFAIL),))
    assert not restarts(settled)
    assert [r.state for r in settled.changed] == ["withdrawn"]


def test_a_batch_system_that_does_not_queue_it_again() -> None:
    """It is asked some times, with one and the same plan; then the promise is closed."""
    scene = site()
    running(scene, 7, T0 + 9 * RUN)
    failed = ((7, T0 + 60, TEMPFAIL),)
    for poll in range(POLLS):
        settled = scene.poll(T0 + 61 + poll, failed=failed, requeue_delay=DELAY)
        assert restarts(settled) == [7]
        assert start_of(scene, 7) == T0 + 61 + DELAY
        assert EventKind.REJECTED not in settled.events.rows.kind.tolist()
    settled = scene.poll(T0 + 61 + POLLS, failed=failed, requeue_delay=DELAY)
    (record,) = settled.changed
    assert (record.state, restarts(settled)) == ("withdrawn", [])
    assert record.why.endswith(NOT_QUEUED)
    assert not len(scene.site.snapshot.plan)
    assert not scene.site.restarting


def test_a_job_that_nobody_saw_before_it_failed() -> None:
    """It was submitted, ran and failed between two polls."""
    scene = site()
    judged = scene.submit(T0, size=1, wall_time=RUN, deadline=T0 + 3 * RUN)
    token = judged.reply.token
    scene.poll(T0 + 3, ((7, token),))
    settled = scene.poll(T0 + 5, failed=((7, T0 + 4, TEMPFAIL),), requeue_delay=DELAY)
    assert restarts(settled) == [7]
    assert scene.site.promises[7].state == "firm"
    assert start_of(scene, 7) == T0 + 5 + DELAY


def test_a_job_that_the_batch_system_queues_again_by_itself() -> None:
    """As Slurm's RequeueExit and HTCondor's max_retries have it: promised and planned as before."""
    scene = Scene(nodes=1)
    token = running(scene, 7, T0 + 3 * RUN)
    settled = scene.poll(T0 + 61, ((7, token),), changed={"begin": T0 + 60 + DELAY})
    assert not settled.changed
    assert scene.site.promises[7].state == "firm"
    assert "the job restarts" in told(settled)[7]
    assert np.isfinite(start_of(scene, 7))


def test_htcondor_has_its_own() -> None:
    """There the setting is refused, and the answer names what jobs can say."""
    live = LiveSite(daemon=DaemonSettings(system="condor", restart_exit_codes=[TEMPFAIL]))
    with pytest.raises(ConfigError, match=r"restart_exit_codes: is for Slurm.*max_retries"):
        policy_of(live)


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.floats(1.0, 4.0)), min_size=2, max_size=6
    ),
    at=st.sampled_from([30.0, 90.0, 250.0]),
    delay=st.sampled_from([0.0, DELAY]),
    data=st.data(),
)
def test_no_promise_breaks_and_no_node_is_planned_twice(
    jobs: list[tuple[int, int, float]], at: float, delay: float, data: st.DataObject
) -> None:
    """Whichever of the jobs that run fail at a time."""
    scene = site(nodes=5)
    queued = scene.submit_all(jobs)
    scene.poll(T0 + 1, queued)
    plan, tokens = scene.site.snapshot.plan, dict(queued)
    mine = np.isin(plan.entries.job, list(tokens))  # not an offer that is held
    first = np.flatnonzero(mine & (plan.entries.start <= T0 + 1)).tolist()
    runs = tuple(
        (
            int(plan.entries.job[row]),
            tokens[int(plan.entries.job[row])],
            float(plan.entries.start[row]),
            float(plan.entries.end[row]),
            tuple(plan.nodes_of(row).tolist()),
        )
        for row in first
        if plan.entries.end[row] > T0 + at
    )
    over = {int(plan.entries.job[row]) for row in first} - {run[0] for run in runs}
    queued = tuple(each for each in queued if each[0] not in {r[0] for r in runs} | over)
    done = tuple((job, T0 + 90.0, CompletionStatus.COMPLETED) for job in over)
    fail = data.draw(st.sets(st.sampled_from([run[0] for run in runs]))) if runs else set()
    left = tuple(run for run in runs if run[0] not in fail)
    failed = tuple((job, T0 + at, TEMPFAIL) for job in sorted(fail))
    scene.poll(T0 + at - 1, queued, runs, done)
    safe = set(scene.site.promises) - fail
    settled = scene.poll(T0 + at, queued, left, done, failed=failed, requeue_delay=delay)
    lost = {r.id for r in settled.changed}
    assert not overlaps(scene.site.snapshot.plan)
    again = set(restarts(settled))
    assert again == fail & set(scene.site.promises)
    assert not {r.id for r in settled.changed if r.state == "broken"} & again
    assert again | lost >= fail
    entries = scene.site.snapshot.plan.entries
    for job in again:
        row = entries.job.tolist().index(job)
        assert entries.start[row] >= T0 + at + delay - 1e-6
        assert entries.end[row] <= scene.site.promises[job].deadline + 1e-3
    assert safe >= lost - fail
