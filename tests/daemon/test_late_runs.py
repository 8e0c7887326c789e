"""Promised jobs that run and may end late: their users are told before the deadline, once."""

from __future__ import annotations

import asyncio

import numpy as np
from running import ANN, Running, answer_of
from scene import T0, Scene
from test_replanning import RUN, promised, told

from rtsched.adapters.live import Marks
from rtsched.daemon.ask import ask
from rtsched.daemon.reports import Status
from rtsched.daemon.site import states
from rtsched.daemon.site_reader import MAY_END_LATE
from rtsched.model.schedule import Schedule

LEEWAY = 20.0


def poll(scene: Scene, now: float, token: str, end: float) -> dict[int, str]:
    """Poll a batch system that lets job 7 run until `end`; return what users are told."""
    shown = ((7, token, T0 + 2, end + LEEWAY, (0,)),)
    return told(scene.poll(now, (), shown, leeway=LEEWAY))


def test_who_may_end_late_is_told_once() -> None:
    """Up to a second late counts as in time; what is in time again is told, too."""
    scene = Scene()
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    scene.poll(T0 + 1, ((7, token),))
    assert not poll(scene, T0 + 2, token, deadline + 1)
    assert "the job may run until" in poll(scene, T0 + 3, token, deadline + 2)[7]
    assert not poll(scene, T0 + 4, token, deadline + 60)
    assert "by the promised" in poll(scene, T0 + 5, token, deadline)[7]
    assert not poll(scene, T0 + 6, token, deadline)
    assert scene.site.promises[7].state == "firm"


def test_nobody_is_told_after_the_deadline() -> None:
    """Then the promise is closed as missed when the job ends."""
    scene = Scene()
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    scene.poll(T0 + 1, ((7, token),))
    poll(scene, T0 + 2, token, deadline)
    assert not poll(scene, deadline + 1, token, deadline + 30)


def test_who_is_late_is_not_said_to_be_in_time_after_the_deadline() -> None:
    """What ends soon may end before the deadline but for the leeway; that has passed though."""
    scene = Scene()
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    scene.poll(T0 + 1, ((7, token),))
    assert poll(scene, deadline - 1, token, deadline + 60)
    assert not poll(scene, deadline + 5, token, deadline)


def test_a_suspended_job_is_at_risk() -> None:
    """Nobody knows when it ends, whatever its limit says; it is in time again once it goes on."""
    scene = Scene()
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    shown = ((7, token, T0 + 2, T0 + RUN, (0,)),)
    assert not told(scene.poll(T0 + 2, (), shown))
    assert "at risk: the job is suspended" in told(scene.poll(T0 + 3, (), shown, suspended=(7,)))[7]
    assert states(scene.site) == {"at-risk": 1}
    assert not told(scene.poll(T0 + 4, (), shown, suspended=(7,)))
    assert "after all" in told(scene.poll(T0 + 5, (), shown))[7]
    assert states(scene.site) == {"firm": 1}


def test_a_job_that_is_suspended_at_its_deadline_breaks_its_promise() -> None:
    """Its user is informed then; the promise is not at risk for ever."""
    scene = Scene()
    deadline = T0 + 3 * RUN
    _, token = promised(scene, 7, wall_time=RUN, deadline=deadline)
    shown = ((7, token, T0 + 2, deadline + RUN, (0,)),)
    scene.poll(deadline - 1, (), shown, suspended=(7,))
    assert states(scene.site) == {"at-risk": 1}
    settled = scene.poll(deadline + 5, (), shown, suspended=(7,))
    why = "the job was suspended at its deadline"
    assert [(r.state, r.why) for r in settled.changed] == [("broken", why)]
    assert "can no longer be kept" in told(settled)[7]


def test_best_effort_jobs_may_run_for_ever() -> None:
    """They have no deadline to end by."""
    scene = Scene()
    assert not poll(scene, T0 + 2, "", T0 + 1e9)


def test_status_names_it(running: Running) -> None:
    """As long as its array, on fewer nodes than planned, may run until after the deadline."""

    async def course() -> None:
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

    asyncio.run(course())
