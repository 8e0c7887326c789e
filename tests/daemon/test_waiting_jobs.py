"""Promises to jobs that wait for others, while these start late, end early, fail or lose nodes."""

import numpy as np
import pytest
from scene import T0, Scene

from rtsched.adapters.live import CompletionStatus
from rtsched.model.jobs import Jobs

PLANNERS = pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])
EDGE = ((7, 8),)


def chained(planner: str, nodes: int = 2, deadline: float = 3600.0) -> tuple[Scene, str, str]:
    """Return a site where job 8 is promised a deadline behind job 7, and both tokens."""
    scene = Scene(nodes=nodes, planner=planner)
    first = scene.submit(size=1, wall_time=600.0, deadline=T0 + 3600).reply.token
    scene.poll(T0 + 1, queued=((7, first),))
    judged = scene.submit(T0 + 1, size=1, wall_time=600.0, deadline=T0 + deadline, after=7)
    assert judged.verdict == "admit"
    scene.poll(T0 + 2, queued=((7, first), (8, judged.reply.token)), edges=EDGE)
    return scene, first, judged.reply.token


def starts(scene: Scene) -> dict[int, float]:
    """Return the planned starts, seconds after the beginning."""
    return {job: start for job, (start, _) in scene.planned().items()}


@PLANNERS
def test_a_job_moves_with_one_that_starts_late(planner: str) -> None:
    """Job 7 began 30 s late, on the other of two nodes: job 8 stays behind its present limit."""
    scene, first, second = chained(planner)
    plan = scene.site.snapshot.plan
    (node,) = plan.nodes_of(plan.entries.job.tolist().index(8)).tolist()
    late = (7, first, T0 + 30, T0 + 630, (1 - node,))
    settled = scene.poll(T0 + 31, queued=((8, second),), running=(late,), edges=EDGE)
    assert not settled.changed
    assert starts(scene) == {8: 630}


@pytest.mark.parametrize("planner", ["mcdf", "edf"])
def test_a_job_starts_early_when_the_one_before_has_ended(planner: str) -> None:
    """Nothing is waited for any more, and the planner has a better plan."""
    scene, first, second = chained(planner)
    scene.poll(T0 + 3, ((8, second),), ((7, first, T0 + 3, T0 + 603, (0,)),), edges=EDGE)
    over = ((7, T0 + 60, CompletionStatus.COMPLETED),)
    scene.poll(T0 + 60, queued=((8, second),), completions=over)
    assert starts(scene) == {8: 60}


@PLANNERS
def test_both_are_planned_anew_in_order(planner: str) -> None:
    """All nodes but one are lost before either starts."""
    scene, first, second = chained(planner)
    waiting = ((7, first), (8, second))
    down = tuple(sorted(set(scene.site.snapshot.plan.nodes_of(0).tolist())))
    settled = scene.poll(T0 + 3, queued=waiting, edges=EDGE, down=down)
    assert not settled.changed
    plan = starts(scene)
    assert plan[8] >= plan[7] + 600


@PLANNERS
def test_a_promise_that_cannot_wait_so_long_breaks(planner: str) -> None:
    """Job 7 runs for longer than the deadline of job 8 allows: at risk, until there is no hope."""
    scene, first, second = chained(planner, deadline=1250.0)
    late = (7, first, T0 + 100, T0 + 700, (0,))
    settled = scene.poll(T0 + 101, queued=((8, second),), running=(late,), edges=EDGE)
    assert not settled.changed
    assert scene.site.at_risk.keys() == {8}
    settled = scene.poll(T0 + 652, queued=((8, second),), running=(late,), edges=EDGE)
    assert [(record.id, record.state) for record in settled.changed] == [(8, "broken")]


@PLANNERS
def test_behind_a_job_that_may_end_at_any_time_nothing_is_promised(planner: str) -> None:
    """Job 7 waits without a deadline; the reason says what would help."""
    scene = Scene(planner=planner)
    scene.poll(T0 + 1, queued=((7, ""),))
    judged = scene.submit(T0 + 1, size=1, wall_time=600.0, deadline=T0 + 3600, after=7)
    assert judged.verdict == "reject"
    assert "waits for job 7, whose end cannot be predicted" in judged.reply.text
    if planner != "spare":
        assert judged.codes == ("mcdf.waits",)
        assert judged.reply.text.endswith("give it a deadline too")


@PLANNERS
def test_a_dependency_that_is_never_satisfied_ends_the_promise(planner: str) -> None:
    """Job 7 failed, and Slurm will not start job 8: its promise ends, with the reason."""
    scene, _, second = chained(planner)
    over = ((7, T0 + 60, CompletionStatus.FAILED),)
    why = "a job that it waits for did not end as its dependency asks"
    settled = scene.poll(T0 + 61, queued=((8, second),), completions=over, problems={8: why})
    closed = {record.id: (record.state, record.why) for record in settled.changed}
    assert closed[8] == ("void", why)
    assert starts(scene) == {}


@pytest.mark.parametrize("planner", ["mcdf", "edf"])
def test_a_singleton_is_evaluated_when_all_jobs_of_its_name_are_known(planner: str) -> None:
    """It is promised a start behind their ends, and moves when one more of them starts."""
    scene = Scene(planner=planner)
    waits = scene.submit(wall_time=600.0, deadline=T0 + 3600, singleton=True)
    assert (waits.codes, waits.reply.deferred) == (("submit.singleton",), True)
    assert "until it has been evaluated with the other jobs of its name" in waits.reply.text
    assert scene.submit(wall_time=600.0, singleton=True).verdict == "pass", "no deadline"
    one = Jobs.build(1, id=[8], submit=[T0], wall_time=[600.0], deadline=[T0 + 3600])
    first = (7, "", T0 - 100, T0 + 500, (0,))
    scene.poll(T0 + 1, running=(first,), deferred=one, edges=((7, 8),), singleton=(8,))
    assert starts(scene) == {8: 500}
    token = scene.site.promises[8].token
    more, links = (9, "", T0 + 2, T0 + 902, (1,)), ((7, 8), (9, 8))
    shown = {"queued": ((8, token),), "running": (first, more), "edges": links}
    assert not scene.poll(T0 + 3, **shown, singleton=(8,)).changed
    assert starts(scene) == {8: 902}
    (record,) = scene.poll(T0 + 4, **{**shown, "edges": (*links, (6, 8))}).changed
    assert record.why == "its dependencies were changed", "of any other job"


def test_behind_a_job_that_is_being_cancelled_nothing_is_judged_yet(scene: Scene) -> None:
    """It was rejected, and is gone in the next poll: it is no reason to reject another one."""
    both = Jobs.build(2, id=[7, 8], submit=[T0, T0], wall_time=[600.0] * 2)
    both = both.replace(deadline=np.array([T0 + 100, T0 + 3600]))
    scene.poll(T0 + 1, deferred=both, edges=((7, 8),), singleton=(8,))
    assert (list(scene.site.waiting), list(scene.site.promises)) == ([7], [])
    scene.poll(T0 + 2, deferred=both.take([1]), singleton=(8,))
    assert starts(scene) == {8: 2}
