"""Promises on disk: what the daemon must know again after a kill or a power cut.

One SQLite file (write-ahead log) holds every promise, the plan behind the open ones, the plug-ins'
states and a journal of recent verdicts. A commit is one transaction: after a crash it is there as a
whole or not at all. The schema grows by numbered files in `migrations/`; its number stands in
`PRAGMA user_version`.

What can wait (states, journal, deleting what is old) has a connection of its own and lets the
commits in between: those wait for `AT_ONCE` rows at the most, and never for the disk to take more
than their own. Questions have one too; no commit waits for them. A start reads what is open,
however much was closed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from rtsched.daemon.database import (
    RESTORE,
    FileOnDisk,
    check,
    connect,
    copied,
    hold,
    is_damage,
    prepare,
    sentence,
    set_aside,
)
from rtsched.daemon.failpoints import passing
from rtsched.daemon.promises import (
    OPEN,
    OUTCOMES,
    JournalEntry,
    Promise,
    PromiseState,
    StoredState,
    decode_schedule,
    encode_schedule,
)
from rtsched.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rtsched.daemon.database import WriterEpoch
    from rtsched.model.cluster import Nodes
    from rtsched.model.schedule import Schedule

    Unused = Mapping[tuple[int, PromiseState], tuple[float, ...]]

JOURNAL_ROWS = 20_000
LONGEST_TEXT = 2000

AT_ONCE = 100
"""Rows of the journal and old records that are written or deleted in one transaction."""

PAUSE = 0.005
"""Seconds between two of those, for the commits that wait."""

FORGOTTEN = 20_000
"""Old records that one call deletes at the most; the next call goes on."""

LOG_PAGES = 20_000
"""Pages of the write-ahead log at which a commit itself moves them into the file, if nobody did."""

_FIELDS = Promise.__struct_encode_fields__
_COLUMNS = ", ".join(_FIELDS)
_UPSERT = (
    f"INSERT INTO records ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))}) "  # noqa: S608
    "ON CONFLICT (token) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _FIELDS if name != "token")
)
_ALL = f"SELECT {_COLUMNS} FROM records "  # noqa: S608
_IDS = 500
"""Ids that one statement names at most."""
SHOWN = 10_000
"""Closed records that are returned at once."""

LEARNT_FROM = 2000
"""Likely promises that came to their end, the latest ones, from which a daemon that starts
learns."""

COUNTED_APART = "likely "
"""What stands before the states of likely promises where records are counted."""

_ENDED = f"odds IS NOT NULL AND standing IN {OUTCOMES}"  # as in the index's condition
_IS_OPEN = "standing IN ('offered', 'provisional', 'firm')"  # as in the indexes' conditions
_FORGET = (
    "DELETE FROM records WHERE token IN (SELECT token FROM records "  # noqa: S608
    f"WHERE changed_at < ? AND NOT {_IS_OPEN} ORDER BY changed_at LIMIT ?)"
)
_NOTE = (
    "INSERT INTO journal (time, uid, job, name, verdict, codes, text, offer, token) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


__all__ = [
    "JOURNAL_ROWS",
    "OPEN",
    "JournalEntry",
    "Promise",
    "PromiseState",
    "Store",
    "StoredState",
]


class Store:
    """The database of one daemon; safe to use from several threads.

    Parameters
    ----------
    path : str or Path
        The file; made if missing, in a directory that must exist.
    synchronous : {"full", "normal"}
        `full`: a commit that returned survives a power cut. `normal`: it survives a kill of the
        daemon, and a power cut may take the last ones (SQLite manual, PRAGMA synchronous).
    writer : WriterEpoch, optional
        Take the file over from the daemons of other hosts that share it.

    Raises
    ------
    StoreError
        If the file cannot be used: in use by another daemon, damaged, of a newer release, no room,
        no permission. Every method raises it; a commit that failed has changed nothing.

    Attributes
    ----------
    checked : bool
        Whether all of the file was checked when it was opened; a large one waits for `check`.
    """

    def __init__(
        self,
        path: str | Path,
        synchronous: Literal["full", "normal"] = "full",
        writer: WriterEpoch | None = None,
    ) -> None:
        self.path = Path(path)
        self._lock, self._tidying, self._asking = RLock(), RLock(), RLock()
        self._notes: list[JournalEntry] = []
        self._noting = Lock()  # held for no more than a list takes: `note` is called on the loop
        self._nodes: Nodes | None = None
        self._names: list[str] | None = None
        self._unused: Unused = {}
        self._writer = writer
        shared = writer is not None
        if shared:  # with a rollback journal readers and writers have to take turns
            self._asking = self._lock
        self._synchronous = synchronous
        self._file: FileOnDisk | None = None
        self._held = hold(self.path, writer.host if writer is not None else "")
        try:
            with self._exclusive():
                self._base = connect(self.path)
                # A reader of all of a shared file would keep commits out for that long.
                self.checked = prepare(self._base, self.path, synchronous, shared) or shared
                if writer is not None:
                    writer.take(self._base)
                self._connect_others(shared)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left of the journal, and let go of the file."""
        with self._tidying, self._asking, self._lock:
            if hasattr(self, "_side"):
                with suppress(StoreError):  # the journal is worth no error at the end
                    self.flush()
            for name in ("_asked", "_side", "_base"):
                if hasattr(self, name):
                    with suppress(sqlite3.Error):
                        getattr(self, name).close()
            if self._file is not None:
                self._file.close()
                self._file = None
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def _connect_others(self, shared: bool) -> None:
        """Have connections for questions and for what can wait beside the one of commits."""
        self._base.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        self._asked, self._side = connect(self.path), connect(self.path)
        self._asked.execute("PRAGMA query_only = ON")
        if shared:
            self._side.execute("PRAGMA journal_mode = TRUNCATE")
        else:
            self._side.execute("PRAGMA synchronous = NORMAL")
            self._file = FileOnDisk(self.path)
        self._side.execute("PRAGMA wal_autocheckpoint = 0")

    def damage(self) -> str:
        """Return what was done to the file while it was open; empty: it is as it was left.

        Of a file that several hosts share that is not known.
        """
        with self._lock:
            return self._file.damage() if self._file is not None else ""

    def renew(self, suffix: str) -> bool:
        """Make a new file in place of a damaged one; return whether it has all of the old one.

        If not, it is empty, and what was known is to be committed again. What is left of the old
        one is kept as `FILE.SUFFIX`.

        Raises
        ------
        StoreError
            If no file can be made there; then everything is as it was.
        """
        with self._tidying, self._asking, self._exclusive():
            old, old_file = (self._asked, self._side, self._base), self._file
            try:
                set_aside(self.path, suffix)
                whole = copied(self._base, self.path)
                held = hold(self.path) if self._lost_lock() else self._held
                base = connect(self.path)
                prepare(base, self.path, self._synchronous)
            except OSError as error:
                raise StoreError(self.path, f"cannot be made again ({error.strerror})") from error
            if held != self._held and self._held is not None:
                os.close(self._held)
            self._base, self._held = base, held
            self._nodes = self._names = None
            self._unused = self._unused if whole else {}
            self._connect_others(shared=False)
            for each in old:
                with suppress(sqlite3.Error):
                    each.close()
            if old_file is not None:
                old_file.close()
            return whole

    def _lost_lock(self) -> bool:
        """Return whether the file by which other daemons are kept away is another one now."""
        try:
            found = os.stat(f"{self.path}.lock")
        except OSError:
            return True
        return self._held is None or found.st_ino != os.fstat(self._held).st_ino

    def confirm(self) -> None:
        """Do nothing where this daemon may write.

        Raises
        ------
        StoreError
            If a daemon on another host took the file over.
        """
        if self._writer is not None:
            with self._exclusive():
                self._writer.check(self._base, self.path)

    def commit(
        self,
        promises: Sequence[Promise],
        plan: Schedule | None,
        version: int,
        nodes: Nodes | None = None,
        unused: Unused | None = None,
    ) -> None:
        """Write promises, new or changed, and the plan with its version, in one transaction.

        With it go the nodes that the plan's rows mean, and what users left unused (`Site.unused`),
        where they are other ones than at the last commit. What is None stays as it is there.
        """
        latest = {promise.token: promise for promise in promises}.values()
        with self._transaction() as base:
            base.executemany(_UPSERT, [msgspec.structs.astuple(promise) for promise in latest])
            if plan is None:
                base.execute("UPDATE plan SET version = ?", (version,))
            else:
                base.execute(
                    "UPDATE plan SET version = ?, plan = ?", (version, encode_schedule(plan))
                )
            names = self._write_nodes(base, nodes)
            self._write_unused(base, unused)
        if nodes is not None:
            self._nodes, self._names = nodes, names
        if unused is not None:
            self._unused = unused
        if any(promise.state == "provisional" for promise in promises):
            passing("committed")

    def _write_nodes(self, base: sqlite3.Connection, nodes: Nodes | None) -> list[str] | None:
        """Write the nodes' names if they are others; return those that are there now."""
        if nodes is None or nodes is self._nodes:
            return self._names
        names = [name or "" for name in nodes.texts("name")]
        if names != self._names:
            base.execute("UPDATE plan SET nodes = ?", (msgspec.json.encode(names).decode(),))
        return names

    def _write_unused(self, base: sqlite3.Connection, unused: Unused | None) -> None:
        if unused is None or unused is self._unused:
            return
        known = self._unused
        base.executemany(
            "INSERT INTO unused VALUES (?, ?, ?) "
            "ON CONFLICT (uid, standing) DO UPDATE SET times = excluded.times",
            [
                (*key, msgspec.json.encode(times).decode())
                for key, times in unused.items()
                if known.get(key) != times
            ],
        )
        gone = [key for key in known if key not in unused]
        base.executemany("DELETE FROM unused WHERE uid = ? AND standing = ?", gone)

    def load(self) -> StoredState:
        """Return all that a daemon needs to go on."""
        with self._exclusive():
            base, promises = self._base, self.open_promises()
            version, plan, nodes = base.execute("SELECT version, plan, nodes FROM plan").fetchone()
            states = dict(base.execute("SELECT name, state FROM states"))
            unused = {
                (uid, state): msgspec.json.decode(times, type=tuple[float, ...])
                for uid, state, times in base.execute("SELECT * FROM unused")
            }
            counted = sum(
                number
                for name, number in self.counts().items()
                if name.removeprefix(COUNTED_APART) in OPEN
            )
        if counted != len(promises):
            found = f"{counted} open promises and offers are counted, {len(promises)} are there"
            raise StoreError(self.path, f"is damaged ({found}); {RESTORE}")
        schedule = None if plan is None else decode_schedule(plan)
        names = None if nodes is None else msgspec.json.decode(nodes, type=tuple[str, ...])
        self._unused = unused
        outcomes = self._latest_likely_outcomes()
        return StoredState(promises, schedule, version, states, names, unused, outcomes)

    def check(self) -> None:
        """Read all of the file and check it; takes as long as it is large, and nothing waits.

        Raises
        ------
        StoreError
            If it is damaged.
        """
        with self._with_sentences(), closing(connect(self.path)) as base:
            check(base, self.path)

    def open_promises(self) -> tuple[Promise, ...]:
        """Return offers and promises that are open, oldest first."""
        return self._records(f"WHERE {_IS_OPEN} ORDER BY made_at, token")

    def known(self, tokens: Collection[str]) -> set[str]:
        """Return those of some tokens of which there are records, open or closed."""
        marks = ", ".join("?" * min(len(tokens), AT_ONCE))
        found: set[str] = set()
        with self._reading() as base:
            for first in range(0, len(tokens), AT_ONCE):
                some = list(tokens)[first : first + AT_ONCE]
                given = [*some, *[""] * (min(len(tokens), AT_ONCE) - len(some))]
                text = f"SELECT token FROM records WHERE token IN ({marks})"  # noqa: S608
                found.update(token for (token,) in base.execute(text, given))
        return found

    def find(self, job: int) -> tuple[Promise, ...]:
        """Return the promises of one job id, latest first."""
        return self._records("WHERE id = ? ORDER BY made_at DESC, token", job)

    def latest(self, jobs: Sequence[int]) -> dict[int, Promise]:
        """Return the latest promise of each of some job ids that has any."""
        found: dict[int, Promise] = {}
        for at in range(0, len(jobs), _IDS):
            some = jobs[at : at + _IDS]
            where = f"WHERE id IN ({','.join('?' * len(some))}) ORDER BY made_at, token DESC"
            found |= {promise.id: promise for promise in self._records(where, *some)}
        return found

    def closed_since(self, time: float) -> tuple[Promise, ...]:
        """Return promises that were closed after `time`, s since the epoch; earliest first.

        They are no more than `SHOWN`.
        """
        where = f"WHERE NOT {_IS_OPEN} AND changed_at > ? ORDER BY changed_at LIMIT {SHOWN}"
        return self._records(where, time)

    def counts(self) -> dict[str, int]:
        """Return how many promises are in each state; it costs the same however many there are.

        Those of likely promises are counted apart, as `likely firm` and so on.
        """
        with self._reading() as base:
            return dict(base.execute("SELECT standing, number FROM counts WHERE number > 0"))

    def likely_outcomes(self) -> tuple[tuple[float, bool, int], ...]:
        """Return stated odds, whether they were kept, and how many likely promises that is.

        Of those that came to their end: kept, missed or broken. Odds are rounded to 0.1 %.
        """
        text = (
            "SELECT round(odds, 3) AS stated, standing = 'kept' AS good, count(*) FROM records "  # noqa: S608
            f"WHERE {_ENDED} GROUP BY stated, good ORDER BY stated, good"
        )
        with self._reading() as base:
            return tuple((odds, bool(good), number) for odds, good, number in base.execute(text))

    def _latest_likely_outcomes(self) -> tuple[tuple[float, bool], ...]:
        """Return stated odds of the latest promises that came to their end, earliest first."""
        text = (
            "SELECT odds, standing = 'kept' FROM records "  # noqa: S608
            f"WHERE {_ENDED} ORDER BY changed_at DESC, token LIMIT {LEARNT_FROM}"
        )
        with self._reading() as base:
            rows = base.execute(text).fetchall()
        return tuple((odds, bool(kept)) for odds, kept in reversed(rows))

    def tidy(self, before: float) -> None:
        """Do what can wait: write the journal, and delete promises closed before then.

        What was committed since the last time is moved from the log into the file proper.
        """
        self.flush()
        self.forget(before)
        with self._tidying, self._with_sentences():
            self._side.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def forget(self, before: float) -> int:
        """Delete promises closed before then, the oldest first; return how many.

        They are no more than `FORGOTTEN`.
        """
        gone = 0
        with self._tidying:
            while gone < FORGOTTEN:
                with self._transaction(self._side) as base:
                    number = base.execute(_FORGET, (before, AT_ONCE)).rowcount
                gone += number
                if number < AT_ONCE:
                    break
                time.sleep(PAUSE)
        return gone

    def save_states(self, states: Mapping[str, bytes]) -> None:
        """Write these plug-ins' states; those of others stay."""
        with self._tidying, self._transaction(self._side) as base:
            base.executemany(
                "INSERT INTO states VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET state = excluded.state",
                list(states.items()),
            )

    def note(self, decision: JournalEntry) -> None:
        """Add a verdict to the journal: at once in memory, on disk at the next `flush`.

        It waits for no disk, so an event loop may call it.
        """
        with self._noting:
            self._notes.append(decision)
            del self._notes[:-JOURNAL_ROWS]

    def flush(self) -> None:
        """Write the journal's new rows; the oldest give way to them."""
        with self._tidying:
            while self._flush_some():
                time.sleep(PAUSE)

    def _flush_some(self) -> bool:
        """Write some of the journal's new rows; return whether there are more."""
        with self._lock:  # so that `journal` finds each row in memory or on the disk
            with self._noting:
                notes, self._notes = self._notes[:AT_ONCE], self._notes[AT_ONCE:]
            if not notes:
                return False
            try:
                with self._transaction(self._side) as base:
                    base.executemany(_NOTE, map(_noted, notes))
                    base.execute(
                        "DELETE FROM journal WHERE number <= (SELECT max(number) FROM journal) - ?",
                        (JOURNAL_ROWS,),
                    )
            except BaseException:
                with self._noting:
                    self._notes[:0] = notes
                raise
            return bool(self._notes)

    def journal(
        self,
        uid: int | None = None,
        limit: int = 100,
        job: str | None = None,
        token: str | None = None,
    ) -> tuple[JournalEntry, ...]:
        """Return verdicts, latest first: of one user, one job, one admission, or all."""
        given = {"uid = ?": uid, "job = ?": job, "token <> '' AND token = ?": token}
        asked = {text: value for text, value in given.items() if value is not None}
        where = f"WHERE {' AND '.join(asked)} " if asked else ""
        text = (
            "SELECT time, uid, job, name, verdict, codes, text, offer, token FROM journal "  # noqa: S608
            f"{where}ORDER BY number DESC LIMIT ?"
        )
        with self._reading() as base:
            try:
                with self._lock:  # what is in memory now is not on the disk as it is now
                    base.execute("BEGIN")
                    base.execute("SELECT 1 FROM journal LIMIT 1").fetchone()
                    with self._noting:
                        notes = self._notes[::-1]
                rows = base.execute(text, [*asked.values(), limit]).fetchall()
            finally:
                if base.in_transaction:
                    base.execute("ROLLBACK")
        fresh = [
            note
            for note in notes
            if (uid is None or note.uid == uid)
            and (job is None or note.job == job)
            and (token is None or note.token == token)
        ]
        return tuple([*fresh, *map(_entry, rows)][:limit])

    def _records(self, which: str, *values: object) -> tuple[Promise, ...]:
        with self._reading() as base:
            return tuple(Promise(*row) for row in base.execute(_ALL + which, values))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Give the database for reading, to one thread at a time.

        No commit waits for that, but where other hosts share the file.
        """
        with self._asking, self._with_sentences():
            yield self._asked

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Let one thread in; an error of the database becomes a sentence."""
        with self._lock, self._with_sentences():
            yield

    @contextmanager
    def _with_sentences(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if self._file is not None and is_damage(error):
                self._file.corrupt = "is damaged"
            raise StoreError(self.path, sentence(error)) from error

    @contextmanager
    def _transaction(self, base: sqlite3.Connection | None = None) -> Iterator[sqlite3.Connection]:
        """Give the database for writing: all of the block, or nothing of it."""
        with self._exclusive():
            if problem := self.damage():
                raise StoreError(self.path, f"{problem}; it is made again within a few seconds")
            base = self._base if base is None else base
            base.execute("BEGIN IMMEDIATE")
            try:
                if self._writer is not None:
                    self._writer.check(base, self.path)
                passing("begun")
                yield base
                passing("written")
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:
                    with suppress(sqlite3.Error):
                        base.execute("ROLLBACK")
                raise


def _noted(note: JournalEntry) -> tuple[Any, ...]:
    codes = msgspec.json.encode(note.codes).decode()
    job, name, text = (_storable(part) for part in (note.job, note.name, note.text))
    return (note.time, note.uid, job, name, note.verdict, codes, text, note.offer, note.token)


def _storable(text: str) -> str:
    """Return a user's text cut to a length that a journal can hold, with what is no text out."""
    return text[:LONGEST_TEXT].encode("utf-8", "replace").decode()


def _entry(row: tuple[Any, ...]) -> JournalEntry:
    time, uid, job, name, verdict, codes, text, offer, token = row
    reasons = msgspec.json.decode(codes, type=tuple[str, ...])
    return JournalEntry(time, uid, job, name, verdict, reasons, text, offer, token)
