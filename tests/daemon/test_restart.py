"""What a daemon that was killed knows when it starts again, and answers unheard."""

import asyncio
import shutil
from os import SEEK_END
from pathlib import Path

import pytest
from running import ANN, Running, answer_of, until
from scene import T0, Scene

from rtsched.adapters.wire import ACCEPT, REJECT, MessageKind, Tag
from rtsched.daemon.promises import JournalEntry, StoredState, encode_jobs
from rtsched.daemon.recovery import ReportedState, recovered
from rtsched.daemon.settings import DaemonSettings
from rtsched.daemon.store import Store
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.state import encode_state


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


async def test_a_plan_keeps_its_nodes(places: tuple[Path, Path]) -> None:
    """Nodes that came in front, and a kill right after: the plan means the same machines."""
    running = Running(places[0])
    await running.start()
    for nodes in (1, 2):
        await asyncio.to_thread(answer_of, running.asked(nodes))
    names = ["a0", "a1", "n0", "n1", "n2", "n3"]
    running.now += 1
    cluster = Cluster(Nodes.build(len(names), name=names))
    running.show(time=running.now, cluster=cluster)
    await running.daemon.cycle()
    before = planned(running)
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


async def test_a_large_database_is_checked_beside_the_work(
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
    alive = asyncio.create_task(running.daemon.run([]))
    async with asyncio.timeout(60.0):
        while not running.daemon.status.problems:
            running.daemon._wake.set()
            await asyncio.sleep(0.01)
    running.daemon._stop.set()
    await alive
    (problem,) = running.daemon.status.problems
    assert "rtsched.db: is damaged" in problem
    assert "restore a backup" in problem
    running.close()


async def test_an_answer_that_is_read_is_a_promise(running: Running) -> None:
    """Who reads the answer and hangs up then has the promise."""
    await running.start()
    kind, fields = await asyncio.to_thread(answer_of, running.asked())
    assert (kind, fields[Tag.VERDICT]) == (MessageKind.ANSWER, ACCEPT)
    await until(lambda: not running.server.open)
    assert running.states() == ["provisional"]


@pytest.mark.parametrize("occupied", [False, True], ids=["promise", "offer"])
async def test_a_filter_that_hangs_up_while_it_is_judged(running: Running, occupied: bool) -> None:
    """Nothing is promised or offered: the filter has told its user that nobody answered."""
    await running.start()
    before = []
    if occupied:
        await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
        before = ["provisional"]
    line = running.asked(nodes=4, hours=0.6)
    running.judging = line.close
    await until(lambda: running.server.refused > 0 or len(running.states()) > len(before))
    assert running.states() == before
    assert len(running.store.open_promises()) == len(before)
    assert running.daemon.site.unused == {}
    assert len(running.store.journal()) == len(before)


async def test_a_filter_that_hangs_up_during_the_commit(running: Running) -> None:
    """The promise is written down, nobody reads of it: it is withdrawn at once, and not counted."""
    commit = running.store.commit

    def slowly(*arguments: object) -> None:
        commit(*arguments)
        line.close()

    await running.start()
    line = running.asked()
    running.store.commit = slowly
    await until(lambda: bool(running.store.counts().get("lapsed")))
    await until(lambda: running.states() == [])  # it is so once it is on the disk
    assert not len(running.daemon.site.snapshot.plan)
    assert running.daemon.site.unused == {}


async def test_a_filter_that_hangs_up_before_it_reads(running: Running) -> None:
    """An answer that lies unread in a closed socket was told to nobody."""
    await running.start()
    line = running.asked()
    await until(lambda: bool(running.states()))
    line.close()
    await until(lambda: bool(running.store.counts().get("lapsed")))
    await until(lambda: running.states() == [])  # it is so once it is on the disk
    assert running.daemon.site.unused == {}


async def test_twenty_answers_that_came_too_late_lock_nobody_out(running: Running) -> None:
    """A daemon that is slow for a while costs its users no promises of the next hour."""
    await running.start()
    for _ in range(20):
        line = running.asked()
        await until(lambda: bool(running.states()))
        line.close()
        await until(lambda: not running.states())
    running.now += 120.0
    running.show(time=running.now)
    await running.daemon.cycle()
    _, fields = await asyncio.to_thread(answer_of, running.asked())
    assert fields[Tag.VERDICT] == ACCEPT, fields
    assert running.daemon.site.unused_by(ANN, running.now, "provisional") == []
