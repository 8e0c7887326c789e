"""A long history costs nothing: with a million closed promises all takes as with none."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event, current_thread

import pytest
from test_store import NOW, plan, record

import rtsched.daemon.store
from rtsched.daemon.database import CHECKED_AT_ONCE, connect
from rtsched.daemon.store import AT_ONCE, FORGOTTEN, JournalEntry, Store
from rtsched.errors import StoreError

CLOSED = 1_000_000
_FILL = """
INSERT INTO records
WITH RECURSIVE k(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM k WHERE n < ?)
SELECT printf('%09d', n), n, 1000, 'ann', ?, ?, iif(n % 4, 'kept', 'missed'), ? + n, '',
    zeroblob(90), 9e999, '', NULL
FROM k
"""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database of a million closed promises; one of them is closed every second."""
    path = tmp_path_factory.mktemp("long") / "rtsched.db"
    Store(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("PRAGMA synchronous = OFF")
        triggers = dict(base.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        base.execute("BEGIN")
        for name in triggers:
            base.execute(f"DROP TRIGGER {name}")
        base.execute(_FILL, (CLOSED - 1, NOW, NOW, NOW))
        base.execute("INSERT INTO counts SELECT standing, count(*) FROM records GROUP BY 1")
        for text in triggers.values():
            base.execute(text)
        base.execute("COMMIT")
    return path


class Work:
    """Counts the steps of the database's virtual machine, which are the same on any computer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        monkeypatch.setattr(rtsched.daemon.store, "connect", self._connect)

    def _connect(self, path: Path) -> sqlite3.Connection:
        base = connect(path)
        base.set_progress_handler(self._count, 1)
        return base

    def _count(self) -> int:
        self.steps += 1
        return 0

    def taken(self) -> int:
        """Return the steps since the last call."""
        steps, self.steps = self.steps, 0
        return steps


def course(path: Path, work: Work) -> dict[str, int]:
    """Return the steps of all that a daemon does with its database, by what that is."""
    taken = {}
    with Store(path) as store:
        store.load()
        taken["start"] = work.taken()
        for number in range(3):
            store.commit([record(f"t{number}", made_at=NOW + number)], plan(), number + 1)
        store.commit([record("t0", state="kept", changed_at=NOW + 2 * CLOSED)], plan(), 4)
        taken["commits"] = work.taken()
        store.counts()
        taken["counts"] = work.taken()
        store.find(5)
        store.journal(uid=1000)
        taken["questions"] = work.taken()
        store.note(JournalEntry(NOW, 1000, "7", "sim", "admit", (), ""))
        store.save_states({"ste": b"x" * 1000})
        store.tidy(NOW)
        taken["tidying"] = work.taken()
    return taken


def test_work_does_not_grow(long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start, commits, counts, questions and tidying cost as much as in a new database."""
    work = Work(monkeypatch)
    Store(tmp_path / "new.db").close()
    work.taken()
    few, many = course(tmp_path / "new.db", work), course(long, work)
    assert many.keys() == few.keys()
    for what, steps in many.items():
        assert steps <= 1.2 * few[what] + 50, (what, many, few)


def test_a_start_reads_little(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is large is not read as a whole before it is used."""
    assert long.stat().st_size > CHECKED_AT_ONCE

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])

    before = read()
    with Store(long) as store:
        store.load()
        assert store.counts()["kept"] >= CLOSED // 2
        assert read() - before < 2**20
        assert not store.checked


def test_old_records_go_by_and_by(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are old, no transaction deletes more than some, and no call more than many."""
    deleted = []

    class Counting(sqlite3.Connection):
        def execute(self, text: str, *values: object) -> sqlite3.Cursor:
            done = super().execute(text, *values)
            if text.startswith("DELETE FROM records"):
                deleted.append(done.rowcount)
            return done

    monkeypatch.setattr(
        rtsched.daemon.store,
        "connect",
        lambda path: sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=Counting
        ),
    )
    monkeypatch.setattr(rtsched.daemon.store, "PAUSE", 0.0)
    with Store(long) as store:
        before = sum(store.counts().values())
        assert store.forget(NOW + 250.5) == 251
        assert deleted == [AT_ONCE, AT_ONCE, 51]
        assert store.forget(NOW + 10 * FORGOTTEN) == FORGOTTEN
        assert max(deleted) == AT_ONCE
        assert sum(store.counts().values()) == before - 251 - FORGOTTEN
        (oldest, *_) = store.find(251 + FORGOTTEN)
        assert oldest.changed_at == NOW + 251 + FORGOTTEN
        assert store.find(250 + FORGOTTEN) == ()


def test_damage_in_a_large_file(long: Path, tmp_path: Path) -> None:
    """It does not keep a daemon from what is open, and a check beside it finds it."""
    path = tmp_path / "damaged.db"
    with Store(long) as store:
        store.commit([record("open")], plan(), 9)
    path.write_bytes(long.read_bytes())
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xa5" * 20_000)
    with Store(path) as store:
        assert "open" in {each.token for each in store.load().promises}
        with pytest.raises(StoreError, match=r"is damaged .*; restore a backup"):
            store.check()
        store.commit([record("open", state="kept")], None, 10)


@pytest.mark.parametrize(
    "question",
    [lambda store: store.journal(uid=1000), lambda store: store.find(7)],
    ids=["journal", "find"],
)
def test_no_commit_waits_for_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: Callable[[Store], object]
) -> None:
    """A question that takes long lets commits and the journal go on; it sees what was there."""
    asking, go_on = Event(), Event()
    steps = 0

    def halted() -> int:
        nonlocal steps
        if current_thread().name.startswith("question"):
            steps += 1
            if steps == 40:  # it has begun: the rows are read now
                asking.set()
                go_on.wait(120.0)
        return 0

    def watched(path: Path) -> sqlite3.Connection:
        base = connect(path)
        base.set_progress_handler(halted, 1)
        return base

    with Store(tmp_path / "rtsched.db") as store:
        for k in range(50):
            store.note(JournalEntry(NOW, 1000, str(k), "sim", "admit", (), ""))
            store.commit([record(f"t{k}", state="kept")], None, k)
        store.flush()
    monkeypatch.setattr(rtsched.daemon.store, "connect", watched)
    with Store(tmp_path / "rtsched.db") as store, ThreadPoolExecutor(1, "question") as other:
        store.note(JournalEntry(NOW, 1000, "new", "sim", "admit", (), ""))
        before = store.journal(uid=1000)
        answer = other.submit(lambda: question(store))
        try:
            assert asking.wait(120.0)
            store.commit([record("during")], plan(), 100)
            store.note(JournalEntry(NOW, 1000, "during", "sim", "admit", (), ""))
            store.tidy(NOW - 1)
        finally:
            go_on.set()
        found = answer.result()
        if isinstance(found, tuple) and found and isinstance(found[0], JournalEntry):
            assert found == before
        assert len(store.journal(uid=1000)) == len(before) + 1
