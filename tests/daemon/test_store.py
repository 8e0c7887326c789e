"""Promises on disk: one transaction each, back after any crash, refused where they are unsafe."""

import contextlib
import math
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.daemon.database import migrations
from rtsched.daemon.promises import (
    decode_jobs,
    decode_schedule,
    encode_change,
    encode_jobs,
    encode_schedule,
    with_change,
)
from rtsched.daemon.store import JOURNAL_ROWS, OPEN, JournalEntry, Promise, Store
from rtsched.errors import RtschedError, StoreError
from rtsched.model.cluster import Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.testing.strategies import job_tables

SAMPLES = Path(__file__).parent.parent / "data" / "databases"
NOW = 1_795_000_000.0


def record(token: str = "t1", **changes: object) -> Promise:  # noqa: S107
    """Return a firm promise."""
    job = encode_jobs(Jobs.build(1, id=[7], user=["ann"], size=[3]))
    made = Promise(token, 7, 1000, "ann", NOW + 3600, NOW, "firm", NOW, "", job)
    return msgspec.structs.replace(made, **changes)


def plan(jobs: int = 3) -> Schedule:
    """Return a plan in which job k has k + 1 nodes."""
    sizes = np.arange(1, jobs + 1)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = np.arange(indptr[-1], dtype=np.int32)
    return Schedule.build(
        np.arange(jobs), NOW + sizes, NOW + 10.0 * sizes, indptr, nodes, np.ones(len(nodes))
    )


def same(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules are equal."""
    names = ("indptr", "nodes", "fractions", "node_start")
    arrays = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return arrays and one.entries.equals(other.entries) and one.preemptive == other.preemptive


@pytest.fixture
def path(tmp_path):
    """Return where a database goes."""
    return tmp_path / "rtsched.db"


def test_all_is_back(path):
    """What was committed is there in the next run: records, plan, version, states."""
    with Store(path) as store:
        store.commit([record(), record("t2", state="offered", expires=NOW + 60)], plan(), 4)
        store.save_states({"ste": b"one"})
        store.save_states({"ste": b"two", "psts": b""})
    with Store(path) as store:
        kept = store.load()
    assert kept.promises == (record(), record("t2", state="offered", expires=NOW + 60))
    assert kept.plan is not None
    assert same(kept.plan, plan())
    assert (kept.version, kept.states) == (4, {"ste": b"two", "psts": b""})


def test_a_new_database_is_empty_and_private(path):
    """A new file holds nothing, and nobody else may read it."""
    with Store(path) as store:
        kept = store.load()
        assert (kept.promises, kept.plan, kept.version, kept.states) == ((), None, 0, {})
        assert store.counts() == {}
        assert store.journal() == ()
        assert {file.stat().st_mode & 0o077 for file in path.parent.iterdir()} == {0}


def test_an_update_replaces(path):
    """A record of a known token replaces the old one, and None leaves the plan."""
    with Store(path) as store:
        store.commit([record()], plan(), 1)
        store.commit([record(id=8, state="kept", changed_at=NOW + 9)], None, 2)
        kept = store.load()
        assert kept.promises == ()
        assert kept.plan is not None
        assert kept.version == 2
        assert store.find(8) == (record(id=8, state="kept", changed_at=NOW + 9),)
        assert store.find(7) == ()


def test_nodes_and_quotas(path):
    """They are written with the commit that they come with, where they are others than before."""
    first, second = (Nodes.build(3, name=names) for names in (["a", "b", "c"], ["new", "b", "c"]))
    quotas = {(1, "offered"): (NOW, NOW + 1), (2, "provisional"): (NOW,)}
    with Store(path) as store:
        assert (store.load().nodes, store.load().unused) == (None, {})
        store.commit([record()], plan(), 1, first, quotas)
        store.commit([], plan(), 2)
        assert (store.load().nodes, store.load().unused) == (("a", "b", "c"), quotas)
        quotas = {(1, "offered"): (NOW + 1, NOW + 2)}
        store.commit([], plan(), 3, second, quotas)
    with Store(path) as store:
        assert (store.load().nodes, store.load().unused) == (("new", "b", "c"), quotas)
        store.commit([], plan(), 4, first, {})
        assert (store.load().nodes, store.load().unused) == (("a", "b", "c"), {})


def test_a_commit_that_failed_is_forgotten(path, monkeypatch):
    """Nodes and quotas of a commit that did not come through are written by the next one."""
    nodes, quotas = Nodes.build(1, name=["a"]), {(1, "offered"): (NOW,)}
    monkeypatch.setattr("rtsched.daemon.database.BUSY_SECONDS", 0.05)
    with Store(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another process has it locked"):
                store.commit([record()], plan(), 1, nodes, quotas)
        store.commit([record()], plan(), 1, nodes, quotas)
    with Store(path) as store:
        assert (store.load().nodes, store.load().unused) == (("a",), quotas)


def test_commits_move_nothing_into_the_file(path):
    """That takes syncs of its own, and is done beside them: what `tidy` moves is there."""
    with Store(path) as store:
        store.tidy(NOW)
        before = path.read_bytes()
        for version in range(30):
            other = plan(200)
            start = other.entries.start - version
            store.commit(
                [record()], replace(other, entries=other.entries.replace(start=start)), version
            )
        assert path.with_name("rtsched.db-wal").stat().st_size > 1000 * 4096
        assert path.read_bytes() == before
        store.tidy(NOW)
        shutil.copy(path, path.with_name("copy.db"))
        with Store(path.with_name("copy.db")) as copy:
            assert copy.load().version == 29
            assert copy.open_promises() == (record(),)


def test_counts_and_forgetting(path):
    """Closed records are counted, and deleted when they are old; open ones never."""
    with Store(path) as store:
        states = (*OPEN, "kept", "kept", "missed")
        store.commit([record(str(k), state=s) for k, s in enumerate(states)], None, 1)
        assert store.counts() == {"offered": 1, "provisional": 1, "firm": 1, "kept": 2, "missed": 1}
        store.commit([record("0", state="lapsed"), record("new")], None, 2)
        store.commit([record("0", state="lapsed", why="again")] * 2, None, 2)
        assert store.counts()["lapsed"] == 1
        assert store.counts()["firm"] == 2
        assert "offered" not in store.counts()
        assert store.forget(NOW) == 0
        assert store.forget(NOW + 1) == 4
        assert store.counts() == {"provisional": 1, "firm": 2}
    with Store(path) as store:
        assert store.counts() == {"provisional": 1, "firm": 2}


def test_the_journal(path):
    """Verdicts come latest first, by user and by job, from memory and from disk alike."""

    def said(k: int) -> JournalEntry:
        return JournalEntry(
            NOW + k, k % 2, str(k), "sim", "reject", ("a.b",), f"no {k}", NOW, f"t{k}"
        )

    with Store(path) as store:
        for k in range(6):
            store.note(said(k))
            if k == 2:
                store.flush()
        assert store.journal() == tuple(said(k) for k in (5, 4, 3, 2, 1, 0))
        assert store.journal(uid=1, limit=2) == (said(5), said(3))
        assert store.journal(job="1") == (said(1),)
        assert store.journal(uid=0, job="1") == ()
        for k in (1, 4):
            assert store.journal(token=f"t{k}") == (said(k),)
    with Store(path) as store:
        assert store.journal(limit=1) == (said(5),)


def test_the_journal_is_a_ring(path):
    """It keeps its latest rows only, and cuts what users wrote to a length."""
    with Store(path) as store:
        for part in range(3):
            for k in range(JOURNAL_ROWS // 2):
                store.note(JournalEntry(part, 0, str(k), "", "admit", (), ""))
            store.flush()
        assert len(store.journal(limit=10**9)) == JOURNAL_ROWS
        assert store.journal(limit=10**9)[-1].time == 1.0
        store.note(JournalEntry(9.0, 0, "", "\ud800" + "x" * 10**6, "admit", (), "\0'\"; DROP"))
        store.flush()
        (last,) = store.journal(limit=1)
        assert last.name.startswith("?xx")
        assert len(last.name) == 2000
        assert last.text == "\0'\"; DROP"


def test_a_verdict_waits_for_no_disk(path, monkeypatch):
    """While a commit waits for the disk the loop can note verdicts; a failing one loses none."""
    begun, go_on = threading.Event(), threading.Event()

    def slowly(point: str) -> None:
        if point == "written":
            begun.set()
            assert go_on.wait(120.0)

    def fail(point: str) -> None:
        if point == "written":
            raise StoreError(path, "database or disk is full")

    said = [JournalEntry(NOW + k, 0, str(k), "", "admit", (), "") for k in range(2)]
    with Store(path) as store:
        monkeypatch.setattr("rtsched.daemon.store.passing", slowly)
        writes = threading.Thread(target=store.commit, args=([record()], None, 1))
        writes.start()
        assert begun.wait(120.0)
        notes = threading.Thread(target=store.note, args=(said[0],), daemon=True)
        notes.start()
        notes.join(20.0)
        waited = notes.is_alive()
        go_on.set()
        writes.join()
        assert not waited
        monkeypatch.setattr("rtsched.daemon.store.passing", fail)
        with pytest.raises(StoreError, match="full"):
            store.flush()
        monkeypatch.undo()
        store.note(said[1])
        assert store.journal() == (said[1], said[0])


def test_one_daemon_at_a_time(path):
    """A second daemon on the same file is refused, until the first one is gone."""
    with Store(path), pytest.raises(StoreError, match="another daemon uses it"):
        Store(path)
    Store(path).close()


def test_sample_of_every_schema(tmp_path):
    """A database of each schema that was ever released opens, and what it holds is read."""
    migrations = Path("rtsched/daemon/migrations")
    here = Path(__file__).parent.parent.parent / migrations
    assert {f"schema-{int(f.stem)}.db" for f in here.glob("*.sql")} == {
        f.name for f in SAMPLES.iterdir()
    }
    for sample in SAMPLES.iterdir():
        path = Path(shutil.copy(sample, tmp_path))
        with Store(path) as store:
            kept = store.load()
            assert [each.token for each in kept.promises] == ["t1", "t2"]
            assert decode_jobs(kept.promises[0].job).texts("user") == ["ann"]
            assert kept.plan is not None
            assert same(kept.plan, plan())
            assert kept.states == {"ste": b"state"}
            assert store.journal()[0].codes == ("a.b",)
            assert store.counts() == {"firm": 1, "offered": 1, "kept": 1}
            if sample.stem != "schema-1":
                assert kept.nodes == ("n0", "n1", "n2", "n3", "n4", "n5")
                assert kept.unused == {(1000, "offered"): (NOW, NOW + 1.5)}


def test_numbers_of_schema_3_stay_apart_from_those_of_jobs(path):
    """Jobs of several access points have numbers where those of jobs without a number were."""
    shutil.copy(SAMPLES / "schema-3.db", path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE records SET id = ? WHERE token = 't2'", [(1 << 52) + 5])
        base.commit()
    with Store(path) as store:
        assert sorted(each.id for each in store.open_promises()) == [7, FIRST_OWN_ID + 5]


def schema(path):
    """Return the statements that a database's tables, indexes and triggers are made of, by name."""
    with closing(sqlite3.connect(path)) as base:
        return dict(base.execute("SELECT name, sql FROM sqlite_master"))


@pytest.mark.parametrize("number", [number for number, _ in migrations()])
def test_an_upgraded_database_is_as_a_new_one(path, number):
    """Each schema becomes exactly the newest one, and its copy stays unchanged."""
    sample = SAMPLES / f"schema-{number}.db"
    new = path.with_name("new.db")
    Store(new).close()
    shutil.copy(sample, path)
    Store(path).close()
    assert schema(path) == schema(new)
    copy = path.with_name(f"{path.name}.schema-{number}")
    assert copy.exists() == (number < migrations()[-1][0])
    if copy.exists():
        assert schema(copy) == schema(sample)
        assert copy.stat().st_mode & 0o077 == 0


def test_schema_1_before_it_had_an_index(path):
    """As it was made for an hour of its history: all is found without that index, too."""
    shutil.copy(SAMPLES / "schema-1.db", path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("DROP INDEX journal_by_token")
        base.execute("UPDATE journal SET token = 't1'")
        base.commit()
    with Store(path) as store:
        assert [each.token for each in store.load().promises] == ["t1", "t2"]
        assert store.journal(token="t1")[0].codes == ("a.b",)  # noqa: S106


@pytest.mark.parametrize(
    ("ours", "statement", "text"),
    [
        (True, "PRAGMA user_version = 999", r"has schema 999, .* restore"),
        (False, "CREATE TABLE books (title TEXT)", "another program"),
    ],
    ids=["a later release", "another program"],
)
def test_a_file_of_others_is_left_alone(path, ours, statement, text):
    """One of a later release, with a remedy, and the database of another program."""
    if ours:
        Store(path).close()
    with sqlite3.connect(path) as base:
        base.execute(statement)
    base.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=text):
        Store(path)
    assert path.read_bytes() == before


def test_an_upgrade(path, monkeypatch):
    """Later steps run once, on what is there, and what was before stays beside it."""
    last = migrations()[-1][0]
    later = [*migrations(), (last + 1, "ALTER TABLE journal ADD COLUMN mood TEXT;")]
    with Store(path) as store:
        store.commit([record()], plan(), 1)
    monkeypatch.setattr("rtsched.daemon.database.migrations", lambda: later)
    for _ in range(2):
        with Store(path) as store:
            assert store.open_promises() == (record(),)
    monkeypatch.undo()
    told = rf"schema {last + 1}, .*restore .*rtsched.db.schema-{last}"
    with pytest.raises(StoreError, match=told):
        Store(path)
    shutil.copy(f"{path}.schema-{last}", path)
    with Store(path) as store:
        assert store.open_promises() == (record(),)


def test_an_upgrade_that_fails(path, monkeypatch):
    """A step that fails half-way leaves the file as it was."""
    with Store(path) as store:
        store.commit([record()], plan(), 1)
    later = [*migrations(), (migrations()[-1][0] + 1, "DROP TABLE ledger; DELETE FROM nowhere;")]
    monkeypatch.setattr("rtsched.daemon.database.migrations", lambda: later)
    with pytest.raises(StoreError, match="nowhere"):
        Store(path)
    monkeypatch.undo()
    with Store(path) as store:
        assert store.load().version == 1


@pytest.mark.parametrize("where", [0, 100, 5000])
def test_a_damaged_file(path, where):
    """Damage anywhere is one sentence with a remedy, at opening."""
    with Store(path) as store:
        store.commit([record(str(k)) for k in range(500)], plan(300), 1)
    raw = bytearray(path.read_bytes())
    raw[where : where + 3000] = b"\xa5" * 3000
    path.write_bytes(raw)
    with pytest.raises(StoreError, match="restore a backup"):
        Store(path)


def test_a_missing_directory(tmp_path):
    """A path that cannot be is told with what must be there."""
    with pytest.raises(StoreError, match=r"none/a.db: cannot be opened .* directory must exist"):
        Store(tmp_path / "none" / "a.db")


def test_locked(path, monkeypatch):
    """A program that holds the file for long is an error, not a wait without end."""
    monkeypatch.setattr("rtsched.daemon.database.BUSY_SECONDS", 0.05)
    with Store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has it locked"):
            store.commit([record()], plan(), 1)
        other.execute("ROLLBACK")
        other.close()
        store.commit([record()], plan(), 1)
        assert store.open_promises() == (record(),)


def test_no_room(path):
    """With no room left nothing is half-applied; once there is room commits work again."""
    with Store(path) as store:
        store.commit([record()], plan(), 1)
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = (path.parent / "rtsched.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, old[1]))
        try:
            with pytest.raises(StoreError, match="free space"):
                store.commit([record("t2"), record(state="kept")], plan(2000), 2)
            store.note(JournalEntry(NOW, 0, "x" * 2000, "x" * 2000, "admit", (), "x" * 2000))
            kept = store.load()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert kept.promises == (record(),)
        assert kept.version == 1
        store.commit([record("t2")], plan(2000), 2)
        assert len(store.open_promises()) == 2
    with Store(path) as store:
        assert store.load().version == 2
        assert len(store.journal()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_a_full_file_system(tmp_path):
    """The same on a file system that is full indeed."""
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", tmp_path],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        with Store(tmp_path / "a.db") as store:
            store.commit([record()], plan(), 1)
            filler = tmp_path / "filler"
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(bytes(600_000))
            with pytest.raises(StoreError, match="free space"):
                store.commit([record("t2")], plan(60), 2)
            assert store.load().version == 1
            filler.unlink()
            store.commit([record("t2")], plan(60), 2)
        with Store(tmp_path / "a.db") as store:
            assert len(store.load().promises) == 2
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


WRITER = """
import sys
from rtsched.daemon.database import migrations
from rtsched.daemon.store import Store
sys.path.insert(0, {tests!r})
from test_store import plan, record
with Store({path!r}) as store:
    for k in range(10**9):
        store.commit([record(f"a{{k}}"), record(f"b{{k}}")], plan(), 2 * k + 2)
        print(k, flush=True)
"""


def test_killed_in_the_middle(path):
    """After kill -9 every commit that returned is there, and none by half."""
    for _ in range(3):
        path.unlink(missing_ok=True)
        code = WRITER.format(tests=str(Path(__file__).parent), path=str(path))
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        said = [child.stdout.readline() for _ in range(30)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout.readlines()
        child.stdout.close()
        child.wait()
        done = int([line for line in said if line.endswith("\n")][-1]) + 1
        with Store(path) as store:
            kept = store.load()
        assert kept.version == len(kept.promises)
        assert len(kept.promises) % 2 == 0
        assert done <= len(kept.promises) // 2 <= done + 1


@given(job_tables())
def test_jobs_as_bytes(jobs):
    """Jobs are the same after a stay on disk, and only the texts of their rows are kept."""
    assert decode_jobs(encode_jobs(jobs)).equals(jobs)
    half = jobs.take(np.arange(0, len(jobs), 2))
    assert decode_jobs(encode_jobs(half)).equals(half)


def test_schedules_as_bytes():
    """Schedules are the same after a stay on disk: divided, staggered, preemptive or empty."""
    whole = plan()
    staggered = Schedule(
        whole.entries, whole.indptr, whole.nodes, np.empty(0), True, np.arange(6.0)
    )
    for schedule in (whole, staggered, Schedule.empty()):
        assert same(decode_schedule(encode_schedule(schedule)), schedule)


@given(
    st.integers(0, 12),
    st.lists(st.integers(0, 11), unique=True, max_size=12),
    st.sets(st.tuples(st.integers(0, 11), st.sampled_from(["start", "end", "rounds", "nodes"]))),
    st.integers(0, 4),
    st.sampled_from(["", "fractions", "node_start", "preemptive"]),
)
def test_what_changed_of_a_schedule(jobs, order, others, more, extra):
    """From a schedule and what changed comes the new one: left out, moved, others, one more."""
    before = plan(jobs)
    if extra != "fractions":
        before = replace(before, fractions=np.empty(0))
    if extra == "node_start":
        before = replace(before, node_start=before.starts())
    before = replace(before, preemptive=extra == "preemptive")
    kept = before.take(np.array([row for row in order if row < jobs], np.int64))
    entries, nodes = kept.entries, kept.nodes.copy()
    for row, what in others:
        if row < len(kept) and what == "nodes":
            nodes[kept.indptr[row]] += 100
        elif row < len(kept):
            column = entries.column(what).copy()
            column[row] += 1
            entries = entries.replace(**{what: column})
    new = plan(more)
    new = replace(new, entries=new.entries.replace(job=100 + np.arange(more)))
    if extra != "fractions":
        new = replace(new, fractions=np.empty(0))
    after = Schedule.joined([replace(kept, entries=entries, nodes=nodes), new])
    change = encode_change(before, after)
    assert change is None or same(with_change(before, change), after)
    if not others and len(kept) > more:
        assert change is not None


def test_a_commit_writes_what_changed(path):
    """One more job is a small part of a long plan; the whole is written again now and then."""
    plans = [plan(60).take(np.arange(jobs)) for jobs in range(40, 61)]
    with Store(path) as store, closing(sqlite3.connect(path)) as base:
        sizes = []
        for version, some in enumerate(plans):
            store.commit([record()], some, version)
            sizes.append(base.execute("SELECT length(part) FROM plan_parts").fetchall())
            assert same(store.load().plan, some)
        store.commit([record()], plans[-1], 99)
        assert base.execute("SELECT length(part) FROM plan_parts").fetchall() == sizes[-1]
    whole = sizes[0][0][0]
    assert [len(parts) for parts in sizes[:3]] == [1, 2, 3]
    assert max(parts[1][0] for parts in sizes[1:3]) < whole / 5
    assert max(sum(size for (size,) in parts[1:]) for parts in sizes) <= max(sizes[-1][0][0], whole)
    with Store(path) as store:
        assert same(store.load().plan, plans[-1])


@given(st.binary(max_size=60), st.integers(0, 400), st.booleans())
def test_damaged_bytes(noise, at, cut):
    """Bytes that are no jobs or schedule are refused with one sentence, or are read as some."""
    for encoded, decode in (
        (encode_jobs(Jobs.build(1, id=[7], user=["ann"])), decode_jobs),
        (encode_schedule(plan()), decode_schedule),
        (encode_change(plan(8), plan(9)), lambda data: with_change(plan(8), data)),
    ):
        damaged = encoded[:at] + noise + (b"" if cut else encoded[at:])
        with contextlib.suppress(RtschedError):
            decode(damaged)


def test_infinity_is_kept(path):
    """A record without an end and a verdict without an offer have inf again."""
    with Store(path) as store:
        store.commit([record()], None, 1)
        store.note(JournalEntry(NOW, 0, "", "", "admit", (), ""))
        store.flush()
        assert store.open_promises()[0].expires == math.inf
        assert store.journal()[0].offer == math.inf


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def overwrite(path: Path) -> None:
    """Write over the beginning of a file."""
    with path.open("r+b") as file:
        file.write(b"x" * 9000)


def remove(path: Path) -> None:
    """Remove a database."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()


DAMAGES = {
    "removed": remove,
    "its log removed": lambda path: log_of(path).unlink(),
    "replaced": lambda path: shutil.copy(path, path.with_name("x")).rename(path),
    "truncated": lambda path: os.truncate(path, 100),
    "garbage": overwrite,
    "its log garbage": lambda path: overwrite(log_of(path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_removed_or_damaged_is_made_again(tmp_path: Path, damage: str) -> None:
    """Nothing goes into nowhere; what was known is in the new file, and the old one is kept."""
    path = tmp_path / "rtsched.db"
    with Store(path) as store:
        closed = record("t0", state="kept")
        store.commit([record(), closed], plan(), 1)
        store.tidy(NOW - 9e9)  # all of it is in the file proper
        store.commit([record("t2", id=8)], plan(), 2)
        assert not store.damage()
        DAMAGES[damage](path)
        with pytest.raises(StoreError, match="while the daemon ran"):
            store.commit([record("t3", id=9)], plan(), 3)
        whole = store.renew("damaged-1")
        store.commit([record(), record("t2", id=8)], plan(), 3)
        assert not store.damage()
        assert {r.token for r in store.open_promises()} == {"t1", "t2"}
        assert store.known(["t0", "t1", "t9"]) == ({"t0", "t1"} if whole else {"t1"})
        assert whole or damage not in {"removed", "its log removed", "replaced"}
        store.note(JournalEntry(NOW, 1, "", "", "admit", (), "", math.inf))
        store.tidy(NOW - 9e9)
        with pytest.raises(StoreError, match="another daemon"):
            Store(path)
    with Store(path) as store:
        assert {r.token for r in store.load().promises} == {"t1", "t2"}
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_directory_that_is_gone_keeps_the_store_as_it_was(tmp_path: Path) -> None:
    """It cannot be made again; once the directory is back nothing is lost."""
    place = tmp_path / "rtsched"
    place.mkdir()
    with Store(place / "rtsched.db") as store:
        store.commit([record()], plan(), 1)
        place.rename(tmp_path / "away")
        assert store.damage() == "was removed while the daemon ran"
        for _ in range(2):
            with pytest.raises(StoreError):
                store.renew("damaged-1")
        (tmp_path / "away").rename(place)
        assert not store.damage()
        store.commit([record("t2", id=8)], plan(), 2)
        assert len(store.open_promises()) == 2


def test_a_file_that_may_no_longer_be_read(tmp_path: Path) -> None:
    """As when somebody changes its owner; found by others than root only."""
    path = tmp_path / "rtsched.db"
    with Store(path) as store:
        path.chmod(0)
        expected = "" if os.geteuid() == 0 else "can no longer be read"
        assert store.damage().startswith(expected)
        assert bool(store.damage()) == bool(expected)
