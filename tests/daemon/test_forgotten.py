"""Promised jobs that the batch system has forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scene import ANN, T0, WORDS, Scene

from rtsched.adapters.live import Ended, Ending, Sight, Submission
from rtsched.daemon.altered import STUCK
from rtsched.daemon.forgotten import recalled
from rtsched.daemon.merging import GONE, NOT_TAKEN
from rtsched.daemon.submits import Desk
from rtsched.daemon.working import settle
from rtsched.errors import AdapterError
from rtsched.model.jobs import Edges, Jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR = 3600.0


def after_an_absence(scene: Scene, known: Ended | None) -> tuple[list[tuple[int, ...]], Sight]:
    """Have a look that shows no job; return what accounting was asked for, and the look."""
    asked = []

    async def ended(jobs: Sequence[int], since: float) -> Ended:
        assert since == T0, "when the promise was made: the search may end there"
        asked.append(tuple(jobs))
        if known is None:
            raise AdapterError("sacct took too long")
        return known

    sight = Sight(T0 + 2 * HOUR, scene.cluster)
    return asked, asyncio.run(recalled(scene.site, sight, ended))


@pytest.mark.parametrize(
    ("end", "standing"), [(HOUR - 60, "kept"), (HOUR + 60, "missed"), (None, "withdrawn")]
)
def test_the_end_of_a_forgotten_job_is_asked_for(end: float | None, standing: str) -> None:
    """What accounting tells decides; without accounting the end is said to be unknown."""
    scene = Scene()
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    told = Ended.build(0) if end is None else Ended.build(1, job=[7], end=[T0 + end])
    asked, sight = after_an_absence(scene, told)
    assert asked == [(7,)]
    (record,) = settle(scene.site, sight, scene.rules, sight.time).changed
    assert (record.id, record.standing) == (7, standing)
    assert (record.why == GONE) == (end is None)


def test_a_look_goes_on_without_accounting() -> None:
    """One that does not answer is asked again; an hour after the deadline nobody asks any more."""
    scene = Scene()
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    asked, sight = after_an_absence(scene, None)
    assert asked == [(7,)]
    assert not len(sight.ended)
    later = replace(sight, time=T0 + 2 * HOUR - 1)
    settled = settle(scene.site, later, scene.rules, later.time)
    assert (settled.changed, list(settled.site.records)) == ((), [7])
    (record,) = settle(settled.site, sight, scene.rules, sight.time).changed
    assert (record.standing, record.why) == ("withdrawn", GONE)


def test_accounting_is_not_asked_for_what_a_look_shows() -> None:
    """Jobs that wait, run or ended, and those that never appeared, cost no question."""
    scene = Scene()
    scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR)
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    ended = Ended.build(1, job=[7], ending=np.array([Ending.FAILED], np.int8))

    async def nobody(jobs: Sequence[int], since: float) -> Ended:
        raise AssertionError(jobs, since)

    sight = Sight(T0 + 2, scene.cluster, ended=ended)
    assert asyncio.run(recalled(scene.site, sight, nobody)) is sight


def numbered(scene: Scene, job: int, now: float) -> str:
    """Submit a job of which the batch system tells the number; return its token."""
    one = Jobs.build(1, size=[1], wall_time=[60.0], deadline=[T0 + HOUR])
    submission = Submission(one, Edges.build(0), ANN, job=job)
    judged = Desk(scene.chains.of(one), scene.settings, WORDS).judge(
        scene.site, submission, "ann", now
    )
    scene.site = judged.site
    return judged.ruling.token


def test_a_held_job_is_promised_nothing_before_its_release() -> None:
    """Its promise would be void at the first look; it is judged later instead."""
    scene = Scene()
    one = Jobs.build(1, size=[1], wall_time=[60.0], deadline=[T0 + HOUR])
    desk = Desk(scene.chains.of(one), scene.settings, WORDS)
    submission = Submission(one, Edges.build(0), ANN, job=7, held=True)
    judged = desk.judge(scene.site, submission, "ann", T0)
    assert (judged.verdict, judged.codes, judged.ruling.parked) == ("defer", ("submit.held",), True)
    assert "when it is released" in judged.ruling.text
    assert judged.site is scene.site
    plain = replace(submission, jobs=one.replace(deadline=np.array([np.inf])))
    assert desk.judge(scene.site, plain, "ann", T0).verdict == "pass"


def test_a_job_that_was_not_taken_keeps_no_nodes() -> None:
    """A batch system that numbers jobs before it asks shows them in the next look, or never."""
    scene = Scene()
    token = numbered(scene, 7, T0)
    assert scene.look(T0 + 1).changed == (), "the look may have begun before the job was there"
    (record,) = scene.look(T0 + 3).changed
    assert (record.token, record.standing, record.why) == (token, "withdrawn", NOT_TAKEN)
    assert (len(scene.site.snapshot.plan), len(scene.site.numbers)) == (0, 0)
    assert scene.site.unused_by(ANN, T0 + 3, "provisional") == [T0 + 3]


def test_a_job_that_no_look_shows_is_asked_for_until_somebody_answers() -> None:
    """It may have run and ended: nobody knows yet that the batch system did not take it."""
    scene = Scene()
    numbered(scene, 7, T0)
    asked, sight = after_an_absence(scene, None)
    sight = replace(sight, time=T0 + 3)
    assert asked == [(7,)]
    settled = settle(scene.site, sight, scene.rules, sight.time)
    assert settled.changed == ()
    (record,) = settle(settled.site, replace(sight, unknown=()), scene.rules, T0 + 4).changed
    assert record.why == NOT_TAKEN


def test_a_transaction_that_is_refused_counts_once() -> None:
    """However many jobs it had, its user is not turned away for one mistake."""
    scene = Scene()
    for job in (7, 8, 9):
        numbered(scene, job, T0)
    assert len(scene.look(T0 + 3).changed) == 3
    assert scene.site.unused_by(ANN, T0 + 3, "provisional") == [T0 + 3]


def test_a_job_that_cannot_start_loses_its_promise() -> None:
    """Nodes are not kept for ever for a job that its own requirements keep off them."""
    scene = Scene()
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    settled = scene.look(T0 + 2, queued=((7, token),), stuck=(7,))
    assert [(r.standing, r.why) for r in settled.changed] == [("void", STUCK)]
    assert not len(scene.site.snapshot.plan)


def test_a_job_of_which_too_little_is_left_is_told_so() -> None:
    """Its promise is void; that its deadline is not seen any more is no deed of its user."""
    scene = Scene()
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    lacks = "it needs 3 procs and has 2"
    less = {"deadline": np.inf}
    settled = scene.look(T0 + 2, queued=((7, token),), problems={7: lacks}, changed=less)
    assert [(r.standing, r.why) for r in settled.changed] == [("void", lacks)]


def test_who_submits_jobs_that_cannot_start_is_promised_no_more_for_a_while() -> None:
    """Else the same requirements, submitted anew, would keep nodes from others for ever."""
    scene = Scene(unused_promises_per_hour=2)
    asked = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR}
    for now, jobs in ((T0, (7, 8)), (T0 + 10, (9,))):
        tokens = [scene.submit(now, **asked).ruling.token for _ in jobs]
        waiting = tuple(zip(jobs, tokens, strict=True))
        scene.look(now + 1, queued=waiting)
        scene.look(now + 2, queued=waiting, stuck=jobs)
    assert scene.site.unused_by(ANN, T0 + 12, "firm") == [T0 + 2, T0 + 12], "one a submission"
    assert scene.submit(T0 + 20, **asked).codes == ("submit.unused",)


def test_a_job_that_was_over_before_a_look_is_asked_for() -> None:
    """Its promise was kept, though nobody has seen it."""
    scene = Scene()
    token = numbered(scene, 7, T0)
    told = Ended.build(1, job=[7], end=[T0 + 2], token=[token])
    asked, sight = after_an_absence(scene, told)
    assert asked == [(7,)]
    (record,) = settle(scene.site, sight, scene.rules, sight.time).changed
    assert (record.id, record.standing) == (7, "kept")


def test_a_job_that_is_seen_is_not_asked_for() -> None:
    """It becomes firm as any other."""
    scene = Scene()
    token = numbered(scene, 7, T0)
    (record,) = scene.look(T0 + 3, queued=((7, token),)).changed
    assert (record.id, record.standing, scene.site.numbers) == (7, "firm", {})
