"""A daemon that has given many promises is no larger, and no slower, than one that gave few."""

from __future__ import annotations

from scene import T0, Scene

from rtsched.adapters.live import CompletionStatus
from rtsched.model.table import Text

MINUTE = 60.0


def names_held(scene: Scene) -> int:
    """Return how many texts stand in the tables of names of the site's jobs."""
    snapshot = scene.site.snapshot
    tables = (scene.site.requested, snapshot.queued, snapshot.running)
    texts = [name for name, column in tables[0].columns().items() if isinstance(column, Text)]
    return sum(len(table.names(name)) for table in tables for name in texts)


def lived(scene: Scene, jobs: range) -> None:
    """Have jobs with names of their own promised, shown, started and ended, a minute each."""
    for job in jobs:
        now = T0 + MINUTE * job
        token = scene.submit(
            now,
            size=1,
            wall_time=50.0,
            deadline=now + 3600.0,
            name=f"sim-{job}",
            account=f"project-{job}",
        ).reply.token
        kept = job - 1  # one is always there: the tables never begin anew
        scene.poll(
            now + 1, queued=((job, token),), completions=((kept, now, CompletionStatus.COMPLETED),)
        )


def test_names_of_closed_promises_are_let_go() -> None:
    """After hundreds of promises the tables of names are as long as after the first ones."""
    scene = Scene()
    lived(scene, range(1, 50))
    early = names_held(scene)
    lived(scene, range(50, 700))
    assert len(scene.site.promises) == 1
    assert names_held(scene) <= early + 50
