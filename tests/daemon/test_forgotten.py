"""Promised jobs that the batch system has forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scene import T0, Scene

from rtsched.adapters.live import Ended, Ending, Sight
from rtsched.daemon.forgotten import recalled
from rtsched.daemon.merging import GONE
from rtsched.daemon.working import settle
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR = 3600.0


def after_an_absence(scene: Scene, known: Ended | None) -> tuple[list[tuple[int, ...]], Sight]:
    """Have a look that shows no job; return what accounting was asked for, and the look."""
    asked = []

    async def ended(jobs: Sequence[int]) -> Ended:
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
    """One that does not answer costs the end of the job, and nothing else."""
    scene = Scene()
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    asked, sight = after_an_absence(scene, None)
    assert asked == [(7,)]
    assert not len(sight.ended)


def test_accounting_is_not_asked_for_what_a_look_shows() -> None:
    """Jobs that wait, run or ended, and those that never appeared, cost no question."""
    scene = Scene()
    scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR)
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).ruling.token
    scene.look(T0 + 1, queued=((7, token),))
    ended = Ended.build(1, job=[7], ending=np.array([Ending.FAILED], np.int8))

    async def nobody(_: Sequence[int]) -> Ended:
        raise AssertionError

    sight = Sight(T0 + 2, scene.cluster, ended=ended)
    assert asyncio.run(recalled(scene.site, sight, nobody)) is sight
