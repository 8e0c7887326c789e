"""Daemons of several controllers over one database: who may write, who is active."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from rtsched.adapters.slurm.installed import controllers, own_name
from rtsched.adapters.slurm.setup import controller_findings
from rtsched.adapters.slurm.slurm_conf import settings, with_host
from rtsched.adapters.wire import MessageKind, frame
from rtsched.daemon import questions
from rtsched.daemon.database import WriterEpoch
from rtsched.daemon.promises import Promise, PromisedJobs
from rtsched.daemon.settings import LiveSite
from rtsched.daemon.standby import (
    SILENT,
    Heartbeat,
    Heartbeats,
    SharedSocketServer,
    Standby,
    unseen,
)
from rtsched.daemon.start import policy_of
from rtsched.daemon.store import Store
from rtsched.errors import ConfigError, StoreError


def record(token: str) -> Promise:
    """Return a firm promise."""
    return Promise(token, 1, 1001, "ann", 5e9, 1e9, "firm", 1e9, "", b"", float("inf"))


def tokens(store: Store) -> set[str]:
    """Return the tokens of all open promises."""
    return {each.token for each in store.open_promises()}


# --- the database ---------------------------------------------------------------------------------


def test_who_was_superseded_can_write_nothing(tmp_path: Path) -> None:
    """Promises, states, journal, old records: all are refused, and what was there stays."""
    claims = [WriterEpoch("one"), WriterEpoch("two")]
    with Store(tmp_path / "db", "full", claims[0]) as old:
        old.commit([record("a")], None, 1)
        with Store(tmp_path / "db", "full", claims[1]) as new:
            writes: list[Callable[[], Any]] = [
                lambda: old.commit([record("b")], None, 2),
                lambda: old.save_states({"x": b"y"}),
                lambda: old.forget(2e9),
                old.confirm,
            ]
            for write in writes:
                with pytest.raises(StoreError, match="taken over by the daemon on two"):
                    write()
            assert claims[0].lost_to == "two"
            assert claims[1].lost_to == ""
            assert tokens(new) == {"a"}
            assert new.load().version == 1
            assert "x" not in new.load().states
            new.commit([record("c")], None, 2)
            new.confirm()
    with Store(tmp_path / "db", "full", WriterEpoch("one")) as again:
        assert tokens(again) == {"a", "c"}


def test_a_journal_that_cannot_be_read_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another host has the file a question fails; later ones, and commits, do not."""
    monkeypatch.setattr("rtsched.daemon.database.BUSY_SECONDS", 0.05)
    with Store(tmp_path / "db", "full", WriterEpoch("one")) as store:
        other = sqlite3.connect(tmp_path / "db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked"):
            store.journal()
        other.execute("ROLLBACK")
        other.close()
        assert store.journal() == ()
        assert tokens(store) == set()
        store.commit([record("a")], None, 1)


def test_what_was_committed_before_is_there_after(tmp_path: Path) -> None:
    """However commits and takeovers mix, those that returned stand, and no others do."""
    chance, written = Random(1), set[str]()  # noqa: S311
    stores = [Store(tmp_path / "db", "normal", WriterEpoch(f"h{k}")) for k in range(2)]
    holder = 1
    for step in range(200):
        if chance.random() < 0.1:
            holder = chance.randrange(2)
            stores[holder].close()
            stores[holder] = Store(tmp_path / "db", "normal", WriterEpoch(f"h{holder}"))
        who = chance.randrange(2)
        try:
            stores[who].commit([record(f"{step}")], None, step)
        except StoreError:
            assert who != holder
        else:
            assert who == holder
            written.add(f"{step}")
        assert tokens(stores[holder]) == written
    for store in stores:
        store.close()


def test_two_daemons_of_one_host_do_not_share_it(tmp_path: Path) -> None:
    """On one host the file is held by one daemon, as without standby."""
    with (
        Store(tmp_path / "db", "full", WriterEpoch("one")),
        pytest.raises(StoreError, match="another daemon uses it"),
    ):
        Store(tmp_path / "db", "full", WriterEpoch("one"))


def test_a_shared_database_has_no_write_ahead_log(tmp_path: Path) -> None:
    """One that had a log has none once it is shared, and has one again when it is not."""
    path = tmp_path / "db"
    modes = []
    for claim in (None, WriterEpoch("one"), None):
        with Store(path, "full", claim) as store:
            store.commit([record("a")], None, 1)
            base = sqlite3.connect(path)
            modes.append(base.execute("PRAGMA journal_mode").fetchone()[0] == "wal")
            base.close()
            assert Path(f"{path}-wal").exists() is (claim is None)
    assert modes == [True, False, True]


# --- who else is there ----------------------------------------------------------------------------


def test_the_roster_tells_who_is_active(tmp_path: Path) -> None:
    """A daemon that writes is there; one that wrote nothing for a while is silent."""
    now = [0.0]
    one = Heartbeats(tmp_path / "db", "one", ["two", "three"], lambda: now[0])
    two = Heartbeats(tmp_path / "db", "two", ["one", "three"])
    one.read()
    assert (one.active(), one.covered()) == ("", False)
    assert [peer.state for peer in one.shown()] == ["silent", "silent"]
    assert "no daemon of two has written" in unseen(one.shown())[0]
    two.write("active", "in control")
    one.read()
    assert (one.active(), one.covered()) == ("two", True)
    two.write("active", "standby")
    one.read()
    assert (one.active(), one.covered()) == ("two", False)
    now[0] += SILENT + 0.1
    one.read()
    assert (one.active(), one.covered()) == ("", False)
    assert one.shown()[0].state == "silent"
    assert one.shown()[0].seen is not None
    assert "two does not respond" in unseen(one.shown())[0]


def test_damaged_files_of_others_are_passed_over(tmp_path: Path) -> None:
    """What another host wrote is data: nonsense counts as nothing."""
    heartbeats = Heartbeats(tmp_path / "db", "one", ["two"])
    for text in (b"", b"{", b'{"state": 1}', b"\xff", b"[]"):
        (tmp_path / "db.on-two").write_bytes(text)
        heartbeats.read()
        assert heartbeats.active() == ""


class Switch:
    """A controller that has control when it is told so; it counts how often it is asked."""

    host, peers = "one", ("two",)

    def __init__(self) -> None:
        self.state, self.asked = "standby", 0

    def control(self) -> Any:
        """Return what it was told."""
        self.asked += 1
        return self.state


async def until(claim: Callable[[], bool]) -> None:
    """Wait until it is so."""
    while not claim():
        await asyncio.sleep(0.01)


async def test_a_controller_on_standby_is_left_alone(tmp_path: Path) -> None:
    """While another daemon is active beside its controller, the own one is asked nothing."""
    controller, stop = Switch(), asyncio.Event()
    two = Heartbeats(tmp_path / "db", "two", ["one"])
    two.write("active", "in control")
    standby = Standby(tmp_path / "db", controller, "slurm")
    waiting = asyncio.create_task(standby.until_in_control(stop))
    own = tmp_path / "db.on-one"
    await until(own.exists)
    assert controller.asked == 0
    two.write("active", "down")
    await until(lambda: controller.asked > 0)
    assert not waiting.done()
    controller.state = "in control"
    assert await waiting
    assert msgspec.json.decode(own.read_bytes(), type=Heartbeat).state == "standby"


async def test_the_filter_that_asks_is_a_hint(tmp_path: Path) -> None:
    """Who is asked by the filter looks at once whether its controller has control."""
    controller, stop = Switch(), asyncio.Event()
    controller.state = "in control"
    Heartbeats(tmp_path / "db", "two", ["one"]).write("active", "in control")
    standby = Standby(tmp_path / "db", controller, "slurm")
    waiting = asyncio.create_task(standby.until_in_control(stop))
    await until((tmp_path / "db.on-one").exists)
    answer = await standby.answer_filter(None, b"", None)
    assert b"on standby" in answer
    assert await waiting


async def test_a_list_of_promised_jobs_does_not_outlive_control(tmp_path: Path) -> None:
    """What it left for its controller's filter is gone before that has control once more."""
    controller, stop = Switch(), asyncio.Event()
    left = PromisedJobs(tmp_path / "promised_jobs")
    left.path.write_text("rtsched-promised-jobs 1 7\nend\n")
    standby = Standby(tmp_path / "db", controller, "slurm", left.forget)
    controller.state = "down"  # perhaps for a moment, and no other daemon is known
    waiting = asyncio.create_task(standby.until_in_control(stop))
    await until(lambda: controller.asked > 0)
    assert left.path.exists()
    controller.state = "standby"
    await until(lambda: not left.path.exists())
    controller.state = "in control"
    assert await waiting


async def test_a_filter_that_asks_during_the_question_is_no_less_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control may have come after the controller began to answer: it is asked again at once."""
    monkeypatch.setattr("rtsched.daemon.standby.SOON", 1000.0)
    asked, go_on = threading.Event(), threading.Event()

    class Slow(Switch):
        def control(self) -> Any:
            state = super().control()
            asked.set()
            assert go_on.wait(120.0)
            return state

    controller, stop = Slow(), asyncio.Event()
    standby = Standby(tmp_path / "db", controller, "slurm")
    waiting = asyncio.create_task(standby.until_in_control(stop))
    await asyncio.to_thread(asked.wait, 30.0)
    controller.state = "in control"
    await standby.answer_filter(None, b"", None)
    go_on.set()
    assert await waiting


async def test_it_ends_when_told_to(tmp_path: Path) -> None:
    """A daemon on standby stops at once."""
    stop = asyncio.Event()
    standby = Standby(tmp_path / "db", Switch(), "slurm")
    waiting = asyncio.create_task(standby.until_in_control(stop))
    await until((tmp_path / "db.on-one").exists)
    stop.set()
    assert await waiting is False


async def test_questions_on_standby(tmp_path: Path) -> None:
    """Status is answered; for all else users are told where to ask."""
    standby = Standby(tmp_path / "db", Switch(), "slurm")
    Heartbeats(tmp_path / "db", "two", ["one"]).write("active", "in control")
    standby.heartbeats.read()
    asked = (b'{"ask": "status"}', b'{"ask": "plan"}', b"nonsense")
    status, plan, nonsense = [await standby.answer_query(None, each, None) for each in asked]
    found = msgspec.json.decode(status[status.index(b"{") :])["report"]
    report = msgspec.convert(found, questions.StatusReport)
    assert (report.mode, report.peers[0].host, report.problems) == ("standby", "two", ())
    assert b"the active daemon is on two" in plan
    assert b"not a question" in nonsense


async def test_a_server_stays_open_while_who_answers_changes(tmp_path: Path) -> None:
    """A daemon that becomes active, and one that is superseded, refuse no connection."""

    def says(text: bytes) -> Any:
        async def answer(kind: MessageKind, payload: bytes, client: object) -> bytes:
            return text

        return answer

    async def asked(path: Path) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(frame(MessageKind.QUERY, b"{}"))
        answer = await reader.read()
        writer.close()
        return answer

    server = SharedSocketServer(tmp_path / "sock", (MessageKind.QUERY,), says(b"standby"))
    await server.listen()
    assert await asked(server.path) == b"standby"
    server.active = says(b"active")
    assert await asked(server.path) == b"standby"
    await server.listen()
    assert await asked(server.path) == b"active"
    server.close()
    assert await asked(server.path) == b"standby"
    server.leave()
    assert not server.path.exists()


# --- what an admin is told ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "standby", "memory", "state"),
    [
        (("one",), False, "/var/lib/rtsched/sizes", []),
        (("one", "two"), False, "/var/lib/rtsched/sizes", ["note"]),
        (("one",), True, "/shared/sizes", ["note"]),
        (("one", "two"), True, "/var/lib/rtsched/sizes", ["wrong"]),
        (("one", "two"), True, "/shared/sizes", ["good"]),
        (("one", "two"), True, "", ["good"]),
    ],
)
def test_check_looks_at_the_controllers(
    hosts: tuple[str, ...], standby: bool, memory: str, state: list[str]
) -> None:
    """Setting, controllers and the place of what is remembered have to fit."""
    # One finding says what each host needs, filter and daemon.
    found = list(controller_findings(hosts, standby, Path("/shared/rtsched.db"), memory))
    assert [each.state for each in found] == state
    for each in found:
        if len(hosts) > 1 and each.state != "wrong":
            assert "slurmctld runs on one, two" in each.what
            assert "job_submit_rtsched.so" in each.what
        assert each.remedy or each.state == "good"


def test_standby_is_for_slurm() -> None:
    """On HTCondor it is refused, by `rtsched check` too."""
    plugin = b'planner = "mcdf"\n[[plugin]]\nname = "mcdf"\n'
    daemon = b'[daemon]\nsystem = "condor"\nstandby = true\n'
    with pytest.raises(ConfigError, match="standby: is for Slurm"):
        policy_of(msgspec.toml.decode(plugin + daemon, type=LiveSite))


# --- slurm.conf -----------------------------------------------------------------------------------

CONF = """\
ClusterName=c
SlurmctldHost=head.site.org(10.0.0.1)
slurmctldhost=head2(10.0.0.2) SlurmctldPort=6817
SlurmctldAddr=10.0.0.9
Include more.conf
NodeName=head[1-3] CPUs=4
"""


def test_a_slurm_conf_of_one_controller(tmp_path: Path) -> None:
    """Others' lines are left out, whatever else stands in them; included files are put in."""
    # So is the address that the controllers share: whoever has control would answer there.
    path = tmp_path / "slurm.conf"
    path.write_text(CONF)
    (tmp_path / "more.conf").write_text("SlurmctldHost=head3\nAuthType=auth/munge\n")
    assert controllers(path) == ["head.site.org", "head2", "head3"]
    assert own_name(path, "head") == "head.site.org"
    assert own_name(path, "head2.site.org") == "head2"
    with pytest.raises(ConfigError, match="names no SlurmctldHost other"):
        own_name(path, "other")
    for host in controllers(path):
        (tmp_path / "one.conf").write_text(with_host(path, host))
        found = settings(tmp_path / "one.conf")
        assert controllers(tmp_path / "one.conf") == [host]
        assert "slurmctldaddr" not in found
        assert found["slurmctldport"][0].value == "6817"
        assert found["authtype"][0].value == "auth/munge"
    assert "NodeName=head[1-3]" in with_host(path, "head3")
