"""A disk that takes its time, or none, and a database that is removed or exchanged."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from running import ANN, NOW, Running, answer_of, until

from rtsched.adapters.live import Marks
from rtsched.adapters.wire import ACCEPT, REJECT, MessageKind, Tag
from rtsched.daemon import store
from rtsched.daemon.store import Store
from rtsched.errors import StoreError
from rtsched.model.actions import Admit, Notify
from rtsched.model.jobs import Jobs


def without_menus(running: Running) -> None:
    """Have rejected jobs offered a later deadline alone: what is held is written down."""
    policy = running.daemon.policy
    settings = msgspec.structs.replace(policy.live.daemon, menu_ms=0)
    live = msgspec.structs.replace(policy.live, daemon=settings)
    running.daemon.policy = replace(policy, live=live)


class SlowDisk:
    """Keeps a commit waiting once it is written, and the database locked, until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, point: str) -> None:
        """Wait where the disk is asked."""
        if point == "written":
            self.begun.set()
            assert self.go_on.wait(120.0)


async def test_a_slow_commit_keeps_nobody_waiting(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile who is promised nothing is answered; who would be is judged on what came of it."""
    disk = SlowDisk()
    await running.start()
    without_menus(running)
    monkeypatch.setattr(store, "passing", disk)
    first = running.asked(nodes=4, hours=0.6)
    await asyncio.to_thread(disk.begun.wait, 30.0)
    assert running.states() == [], "nothing is so before it is written down"
    second = running.asked(nodes=4, hours=0.6)
    _, third = await asyncio.to_thread(answer_of, running.asked(nodes=40))
    assert third[Tag.VERDICT] == REJECT
    disk.go_on.set()
    _, fields = await asyncio.to_thread(answer_of, first)
    assert fields[Tag.VERDICT] == ACCEPT
    _, fields = await asyncio.to_thread(answer_of, second)
    assert fields[Tag.VERDICT] == REJECT
    assert "Feasible" in str(fields[Tag.MESSAGE])
    assert sorted(running.states()) == ["offered", "provisional"]


async def test_a_filter_does_not_wait_for_the_disk_longer_than_it_can(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is held for the next cycle; what was being written down for it goes back."""
    disk = SlowDisk()
    await running.start()
    await asyncio.to_thread(answer_of, running.asked(hours=0.1))  # kernels are compiled
    monkeypatch.setattr(store, "passing", disk)
    line = running.asked(nodes=4, hours=0.6, timeout_ms=2000)
    _, fields = await asyncio.to_thread(answer_of, line)
    assert disk.begun.is_set()
    assert "held for a moment" in str(fields[Tag.MESSAGE])
    monkeypatch.undo()
    disk.go_on.set()
    await until(lambda: bool(running.store.counts().get("lapsed")))
    await until(lambda: running.states() == [])
    assert running.daemon.site.unused == {}
    _, fields = await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
    assert fields[Tag.VERDICT] == ACCEPT


async def test_submissions_at_once_share_no_nodes(running: Running) -> None:
    """Each is judged on a site that holds what was promised just before."""
    await running.start()
    lines = [running.asked(nodes=4, hours=1.1) for _ in range(3)]
    answers = [await asyncio.to_thread(answer_of, line) for line in lines]
    verdicts = sorted(int(fields[Tag.VERDICT]) for _, fields in answers)
    assert verdicts == [ACCEPT, ACCEPT, REJECT], "in whichever order they are judged"
    assert sorted(running.states()) == ["offered", "provisional", "provisional"]
    plan = running.daemon.site.snapshot.plan
    starts, ends = sorted(plan.entries.start), sorted(plan.entries.end)
    assert all(end <= start for end, start in zip(ends[:-1], starts[1:], strict=True))


async def test_what_cannot_be_written_down_is_not_promised(running: Running) -> None:
    """The filter is answered with an error, and the next submission is judged as before."""
    commit = running.store.commit

    def fail(*arguments: object) -> None:
        del arguments
        raise StoreError(running.store.path, "database or disk is full")

    await running.start()
    running.store.commit = fail
    kind, fields = await asyncio.to_thread(answer_of, running.asked())
    assert kind is MessageKind.ERROR
    assert "full" in str(fields[Tag.MESSAGE])
    assert running.states() == []
    running.store.commit = commit
    _, fields = await asyncio.to_thread(answer_of, running.asked())
    assert fields[Tag.VERDICT] == ACCEPT
    assert running.states() == ["provisional"]


async def test_a_held_job_is_promised_nothing_that_is_not_written_down(running: Running) -> None:
    """It stays held while the database fails, and admins are told; it is promised later."""
    commit = running.store.commit

    def fail(*arguments: object) -> None:
        del arguments
        raise StoreError(running.store.path, "database or disk is full")

    def asked_for() -> list[type]:
        kinds = [type(action) for action in running.system.applied]
        running.system.applied.clear()
        return [kind for kind in kinds if kind in {Admit, Notify}]

    yes = np.ones(1, np.bool_)
    job = Jobs.build(
        1, id=[1], submit=[NOW], wall_time=[60.0], deadline=[NOW + 3600.0], user=["ann"]
    )
    running.show(queued=job, marks=Marks.build(1, job=[1], uid=[ANN], deferred=yes, held=yes))
    running.store.commit = fail
    await running.daemon.cycle()
    assert running.states() == []
    assert asked_for() == []
    assert any("full" in problem for problem in running.daemon.problems())
    running.store.commit = commit
    await running.daemon.cycle()
    assert running.states() == ["firm"]
    assert asked_for() == [Admit, Notify]
    assert running.daemon.problems() == ()
    assert len(running.store.open_promises()) == 1


async def test_a_promise_under_way_is_told_before_the_daemon_ends(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be on the disk, and its user would have been told of a failure."""
    monkeypatch.setattr("rtsched.daemon.app.LAST_ANSWERS", 30.0)
    disk = SlowDisk()
    closed = running.server.close

    def close() -> None:
        closed()
        asyncio.get_running_loop().call_later(0.1, disk.go_on.set)

    alive = asyncio.create_task(running.daemon.run([(running.server, None)]))
    await until(running.server.path.exists)
    monkeypatch.setattr(store, "passing", disk)
    monkeypatch.setattr(running.server, "close", close)
    answer = asyncio.create_task(asyncio.to_thread(answer_of, running.asked()))
    await asyncio.to_thread(disk.begun.wait, 30.0)
    running.daemon.stop()
    await alive
    _, fields = await answer
    assert fields[Tag.VERDICT] == ACCEPT
    assert [record.state for record in running.store.open_promises()] == ["provisional"]


TOKEN = "0123456789abcdef" * 2


def remove(path: Path) -> None:
    """Remove the database."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()


async def test_a_database_that_is_removed_is_made_again_with_all_promises(running: Running) -> None:
    """What comes in between is promised nothing, and admins read what happened."""
    await running.start()
    await asyncio.to_thread(answer_of, running.asked())
    remove(running.store.path)
    kind, fields = await asyncio.to_thread(answer_of, running.asked())
    assert kind == MessageKind.ERROR
    assert "was removed while the daemon ran" in str(fields[Tag.MESSAGE])
    await running.daemon.cycle()
    await asyncio.to_thread(answer_of, running.asked())
    (problem,) = running.daemon.problems()
    assert "it was made again" in problem
    text = running.daemon.metrics.text()
    assert not text or "rtsched_database_renewals_total 1.0" in text
    known = {record.token for record in running.daemon.site.promises.values()}
    assert len(known) == 2
    running.close()
    with Store(running.store.path) as store:
        assert {record.token for record in store.load().promises} == known


async def test_while_the_directory_is_gone_nothing_is_promised(running: Running) -> None:
    """Admins read what to do; once it is back everything is as it was."""
    place = running.path / "store"
    place.mkdir()
    running.daemon.store = Store(place / "rtsched.db")
    await running.start()
    place.rename(running.path / "away")
    await running.daemon.cycle()
    (problem,) = running.daemon.problems()
    assert "cannot be made again; nothing is promised until it is there" in problem
    assert (await asyncio.to_thread(answer_of, running.asked()))[0] == MessageKind.ERROR
    (running.path / "away").rename(place)
    await running.daemon.cycle()
    assert not running.daemon.problems()
    assert (await asyncio.to_thread(answer_of, running.asked()))[0] == MessageKind.ANSWER
    running.daemon.store.close()


@pytest.mark.parametrize("hours", [2.0, 0.1])
async def test_promises_that_the_database_does_not_know_are_given_again(
    running: Running, hours: float
) -> None:
    """By the tokens that waiting jobs carry; one that cannot be kept any more is told so."""
    job = Jobs.build(
        1, id=[7], submit=[NOW - 60.0], wall_time=[1800.0], deadline=[NOW + hours * 3600.0]
    )
    marks = Marks.build(1, job=[7], uid=[ANN], token=[TOKEN])
    running.show(queued=job, marks=marks)
    await running.start()
    (problem,) = running.daemon.problems()
    assert problem.startswith("1 waiting job had a promise that the database does not know (7)")
    told = [
        text for each in running.system.applied if isinstance(each, Notify) for text in each.text
    ]
    promised = hours > 0.5
    assert ("promised again" in told[0]) == promised
    found = [(r.id, r.token, r.state) for r in running.daemon.site.promises.values()]
    assert found == ([(7, TOKEN, "firm")] if promised else [])
    await running.daemon.cycle()
    assert [r.token for r in running.daemon.site.promises.values()] == [TOKEN] * promised
    assert running.store.known([TOKEN]) == ({TOKEN} if hours > 0.5 else set())


async def test_promises_that_were_closed_are_known(running: Running) -> None:
    """A job whose promise is void still carries its token."""
    running.show(
        queued=Jobs.build(1, id=[7], submit=[NOW], wall_time=[60.0], deadline=[NOW + 7200.0]),
        marks=Marks.build(1, job=[7], uid=[ANN], token=[TOKEN], held=np.array([False])),
    )
    running.store.known = lambda tokens: set(tokens)
    await running.start()
    assert not running.daemon.problems()
    assert not running.daemon.site.promises
