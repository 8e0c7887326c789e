"""Jobs that got into the queue without a verdict say nothing about the load of requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scene import BOB, T0, Scene

from rtsched.core.cycle import observe
from rtsched.model.jobs import Jobs
from rtsched_plugins.portfolio import Portfolio

if TYPE_CHECKING:
    from rtsched.daemon.site import Step


def procs(n: int) -> Jobs:
    """Return so many jobs that ask for deadlines, as one cluster of an access point has them."""
    many = np.full(n, T0)
    return Jobs.build(
        n, id=np.arange(100, 100 + n), submit=many, wall_time=3600.0, deadline=many + 20000.0
    )


def test_five_hundred_procs_without_a_promise_do_not_overload_the_pool() -> None:
    """Another user's small request is promised as on a pool without them, there or removed."""
    for removed in (False, True):
        scene = Scene(planner="portfolio", plugin=Portfolio(Portfolio.Config()), nodes=16)
        take_in(scene, scene.poll(T0 + 2, deferred=procs(500)))
        if removed:
            take_in(scene, scene.poll(T0 + 3))
        judged = scene.submit(T0 + 5, uid=BOB, size=4, wall_time=3600.0, deadline=T0 + 864000.0)
        assert judged.verdict == "admit"


def test_promised_jobs_that_were_removed_are_no_load() -> None:
    """What nobody wants any more rejects nobody; others that came stay."""
    scene = Scene(planner="portfolio", plugin=Portfolio(Portfolio.Config()), nodes=16)
    tokens = [
        scene.submit(T0, size=1, wall_time=60.0, deadline=T0 + 90000.0 + k).reply.token
        for k in range(3)
    ]
    queued = tuple((7 + k, token) for k, token in enumerate(tokens))
    take_in(scene, scene.poll(T0 + 2, queued=queued))
    assert scene.site.snapshot.states["portfolio"].job.tolist() == [7, 8, 9]
    take_in(
        scene, scene.poll(T0 + 4, queued=queued[:1], running=((8, tokens[1], T0, T0 + 60, (0,)),))
    )
    assert scene.site.snapshot.states["portfolio"].job.tolist() == [7, 8]


def take_in(scene: Scene, settled: Step) -> None:
    """Let plug-ins see what happened, as a cycle does."""
    snapshot, _ = observe(settled.site.snapshot, scene.chains.chain, settled.events)
    scene.site = replace(settled.site, snapshot=snapshot)


def test_a_promised_job_arrives_with_its_deadline() -> None:
    """It is what the load is made of."""
    scene = Scene()
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + 900.0).reply.token
    settled = scene.poll(T0 + 2, queued=((9, token),))
    assert settled.events.jobs.deadline.tolist() == [T0 + 900.0]
