"""What a daemon that was killed at the worst instant knows when it starts again."""

from __future__ import annotations

import asyncio
import shutil
from os import SEEK_END
from typing import TYPE_CHECKING

import pytest
from running import ANN, Running, answer_of
from scene import T0, Scene

from rtsched.adapters.wire import REJECT, Tag
from rtsched.daemon.promises import JournalEntry, StoredState, encode_jobs
from rtsched.daemon.recovery import ReportedState, recovered
from rtsched.daemon.settings import DaemonSettings
from rtsched.daemon.store import Store
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.state import encode_state

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Give two directories, for the daemon that is killed and for the one that starts."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    return first, second


def killed(before: Running, place: Path) -> Running:
    """Return the daemon that starts after this one was killed now.

    What the operating system has of the files is copied; nothing is closed first.
    """
    shutil.copytree(before.path, place, ignore=shutil.ignore_patterns("*.sock", "*-shm"))
    after = Running(place, before.settings, before.now)
    before.close()
    return after


def planned(running: Running) -> dict[str, list[str]]:
    """Return on which nodes the promises are planned, by their tokens."""
    site = running.daemon.site
    names, plan = site.snapshot.cluster.nodes.texts("name"), site.snapshot.plan
    token = {job: record.token for job, record in site.promises.items()}
    return {
        token[job]: [str(names[row]) for row in plan.nodes_of(entry).tolist()]
        for entry, job in enumerate(plan.entries.job.tolist())
    }


def test_a_plan_keeps_its_nodes(places: tuple[Path, Path]) -> None:
    """Nodes that came in front, and a kill right after: the plan means the same machines."""

    async def course() -> dict[str, list[str]]:
        await running.start()
        for nodes in (1, 2):
            await asyncio.to_thread(answer_of, running.asked(nodes))
        names = ["a0", "a1", "n0", "n1", "n2", "n3"]
        running.now += 1
        cluster = Cluster(Nodes.build(len(names), name=names))
        running.show(time=running.now, cluster=cluster)
        await running.daemon.cycle()
        return planned(running)

    running = Running(places[0])
    before = asyncio.run(course())
    assert sorted(map(len, before.values())) == [1, 2]
    after = killed(running, places[1])
    assert planned(after) == before
    after.close()


def test_quotas_are_not_forgotten(places: tuple[Path, Path]) -> None:
    """Who left promises unused gets no more of them from a daemon that starts anew."""

    async def unused() -> None:
        await running.start()
        for _ in range(2):
            await asyncio.to_thread(answer_of, running.asked())
            running.now += running.settings.lapse + 1
            running.show(time=running.now)
            await running.daemon.cycle()

    async def asks(running: Running) -> int | str:
        await running.daemon.cycle()
        await running.server.listen()
        _, fields = await asyncio.to_thread(answer_of, running.asked())
        return fields[Tag.VERDICT]

    running = Running(places[0], DaemonSettings(unused_promises_per_hour=2))
    asyncio.run(unused())
    before = running.daemon.site.unused_by(ANN, running.now, "provisional")
    after = killed(running, places[1])
    after.show(time=after.now)
    assert len(before) == 2
    assert after.daemon.site.unused_by(ANN, after.now, "provisional") == before
    assert asyncio.run(asks(after)) == REJECT
    after.close()


def test_a_plan_of_the_first_schema_keeps_its_nodes() -> None:
    """There the names of the nodes were written among the states, not beside the plan."""
    scene = Scene(nodes=3)
    token = scene.submit(size=2, wall_time=600.0, deadline=T0 + 3600.0).reply.token
    told = ReportedState(
        T0, encode_jobs(Jobs.build(0)), encode_jobs(Jobs.build(0)), ["n0", "n1", "n2"]
    )
    states = {"rtsched:rtsched.daemon.memory.Told": encode_state(told)}
    records, plan = tuple(scene.site.promises.values()), scene.site.snapshot.plan
    scene.site = recovered(StoredState(records, plan, 1, states))
    scene.cluster = Cluster(Nodes.build(4, name=["a0", "n0", "n1", "n2"]))
    scene.poll(T0 + 1, queued=((7, token),))
    assert scene.site.snapshot.plan.nodes.tolist() == (plan.nodes + 1).tolist()


def test_a_large_database_is_checked_beside_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage where no open promise stands: the daemon starts, and says what is wrong."""
    monkeypatch.setattr("rtsched.daemon.database.CHECKED_AT_ONCE", 0)
    with Store(tmp_path / "rtsched.db") as store:
        for k in range(1000):
            store.note(JournalEntry(T0, ANN, str(k), "sim", "reject", (), "no room" * 20))
    with (tmp_path / "rtsched.db").open("r+b") as file:
        file.seek(-8192, SEEK_END)
        file.write(b"\xa5" * 4096)
    running = Running(tmp_path)

    async def course() -> None:
        alive = asyncio.create_task(running.daemon.run([]))
        async with asyncio.timeout(60.0):
            while not running.daemon.status.problems:
                running.daemon._wake.set()
                await asyncio.sleep(0.01)
        running.daemon._stop.set()
        await alive

    asyncio.run(course())
    (problem,) = running.daemon.status.problems
    assert "rtsched.db: is damaged" in problem
    assert "restore a backup" in problem
    running.close()
