"""Promises on disk: what the daemon must know again after a kill or a power cut.

One SQLite file (write-ahead log) holds every promise, the plan behind the open ones, the plug-ins'
states and a journal of recent verdicts. A commit is one transaction: after a crash it is there as a
whole or not at all. The schema grows by numbered files in `migrations/`; its number stands in
`PRAGMA user_version`.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from rtsched.daemon.codec import decode_schedule, encode_schedule
from rtsched.daemon.database import connect, hold, prepare, sentence
from rtsched.daemon.failpoints import passing
from rtsched.daemon.records import OPEN, Decision, Kept, Record, Standing
from rtsched.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rtsched.model.schedule import Schedule

JOURNAL_ROWS = 20_000
LONGEST_TEXT = 2000

_FIELDS = Record.__struct_fields__
_COLUMNS = ", ".join(_FIELDS)
_UPSERT = (
    f"INSERT INTO records ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))}) "  # noqa: S608
    "ON CONFLICT (token) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _FIELDS if name != "token")
)
_ALL = f"SELECT {_COLUMNS} FROM records "  # noqa: S608
_IS_OPEN = "standing IN ('offered', 'provisional', 'firm')"
_NOTE = (
    "INSERT INTO journal (time, uid, job, name, verdict, codes, text, offer, token) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


__all__ = ["JOURNAL_ROWS", "OPEN", "Decision", "Kept", "Record", "Standing", "Store"]


class Store:
    """The database of one daemon; safe to use from several threads.

    Parameters
    ----------
    path : str or Path
        The file; made if missing, in a directory that must exist.
    synchronous : {"full", "normal"}
        `full`: a commit that returned survives a power cut. `normal`: it survives a kill of the
        daemon, and a power cut may take the last ones (SQLite manual, PRAGMA synchronous).

    Raises
    ------
    StoreError
        If the file cannot be used: in use by another daemon, damaged, of a newer release, no room,
        no permission. Every method raises it; a commit that failed has changed nothing.
    """

    def __init__(self, path: str | Path, synchronous: Literal["full", "normal"] = "full") -> None:
        self.path = Path(path)
        self._lock = RLock()
        self._notes: list[Decision] = []
        self._held = hold(self.path)
        try:
            with self._told():
                self._base = connect(self.path)
                prepare(self._base, self.path, synchronous)
                self._counts = self._count_all()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left of the journal, and let go of the file."""
        with self._lock:
            if hasattr(self, "_base"):
                with suppress(StoreError):  # the journal is worth no error at the end
                    self.flush()
                with suppress(sqlite3.Error):
                    self._base.close()
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def commit(self, records: Sequence[Record], plan: Schedule | None, version: int) -> None:
        """Write records, new or changed, and the plan with its version, in one transaction.

        A `plan` of None leaves the plan that is there.
        """
        latest = list({record.token: record for record in records}.values())
        rows = [msgspec.structs.astuple(record) for record in latest]
        with self._transaction() as base:
            before = [self._standing(record.token) for record in latest]
            base.executemany(_UPSERT, rows)
            if plan is None:
                base.execute("UPDATE plan SET version = ?", (version,))
            else:
                base.execute(
                    "UPDATE plan SET version = ?, plan = ?", (version, encode_schedule(plan))
                )
        self._count(before, latest)
        if any(record.standing == "provisional" for record in records):
            passing("committed")

    def load(self) -> Kept:
        """Return all that a daemon needs to go on."""
        with self._told():
            version, plan = self._base.execute("SELECT version, plan FROM plan").fetchone()
            states = dict(self._base.execute("SELECT name, state FROM states"))
        schedule = None if plan is None else decode_schedule(plan)
        return Kept(self.open_records(), schedule, version, states)

    def open_records(self) -> tuple[Record, ...]:
        """Return offers and promises that are open, oldest first."""
        return self._records(f"WHERE {_IS_OPEN} ORDER BY made_at, token")

    def history(self, since: float = -math.inf) -> tuple[Record, ...]:
        """Return the records that were closed since then, oldest first."""
        return self._records(
            f"WHERE NOT {_IS_OPEN} AND changed_at >= ? ORDER BY changed_at, token", since
        )

    def find(self, job: int) -> tuple[Record, ...]:
        """Return the records of one job id, latest first."""
        return self._records("WHERE id = ? ORDER BY made_at DESC, token", job)

    def counts(self) -> dict[str, int]:
        """Return how many records stand how; it costs nothing, however many there are."""
        with self._lock:
            return {standing: number for standing, number in self._counts.items() if number}

    def _standing(self, token: str) -> str:
        """Return how a record stands in the database; empty if there is none."""
        found = self._base.execute("SELECT standing FROM records WHERE token = ?", (token,))
        row = found.fetchone()
        return "" if row is None else str(row[0])

    def _count(self, before: Sequence[str], records: Sequence[Record]) -> None:
        with self._lock:
            self._counts.subtract(filter(None, before))
            self._counts.update(record.standing for record in records)

    def _count_all(self) -> Counter[str]:
        counted = self._base.execute("SELECT standing, count(*) FROM records GROUP BY 1")
        return Counter(dict(counted))

    def forget(self, before: float) -> int:
        """Delete records closed before then; return how many."""
        text = f"DELETE FROM records WHERE changed_at < ? AND NOT {_IS_OPEN}"  # noqa: S608
        with self._transaction() as base:
            gone = base.execute(text, (before,)).rowcount
        with self._told():
            self._counts = self._count_all()
        return gone

    def save_states(self, states: Mapping[str, bytes]) -> None:
        """Write these plug-ins' states; those of others stay."""
        with self._transaction() as base:
            base.executemany(
                "INSERT INTO states VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET state = excluded.state",
                list(states.items()),
            )

    def note(self, decision: Decision) -> None:
        """Add a verdict to the journal: at once in memory, on disk at the next `flush`."""
        with self._lock:
            self._notes.append(decision)
            del self._notes[:-JOURNAL_ROWS]

    def flush(self) -> None:
        """Write the journal's new rows; the oldest give way to them."""
        with self._lock:
            if not self._notes:
                return
            rows = [_noted(note) for note in self._notes]
            with self._transaction() as base:
                base.executemany(_NOTE, rows)
                base.execute(
                    "DELETE FROM journal WHERE number <= (SELECT max(number) FROM journal) - ?",
                    (JOURNAL_ROWS,),
                )
            del self._notes[:]

    def journal(
        self,
        uid: int | None = None,
        limit: int = 100,
        job: str | None = None,
        token: str | None = None,
    ) -> tuple[Decision, ...]:
        """Return verdicts, latest first: of one user, one job, one admission, or all."""
        given = {"uid = ?": uid, "job = ?": job, "token <> '' AND token = ?": token}
        asked = {text: value for text, value in given.items() if value is not None}
        where = f"WHERE {' AND '.join(asked)} " if asked else ""
        text = (
            "SELECT time, uid, job, name, verdict, codes, text, offer, token FROM journal "  # noqa: S608
            f"{where}ORDER BY number DESC LIMIT ?"
        )
        with self._told():
            rows = self._base.execute(text, [*asked.values(), limit]).fetchall()
            fresh = [
                note
                for note in reversed(self._notes)
                if (uid is None or note.uid == uid)
                and (job is None or note.job == job)
                and (token is None or note.token == token)
            ]
        return tuple([*fresh, *map(_decision, rows)][:limit])

    def _records(self, which: str, *values: object) -> tuple[Record, ...]:
        with self._told():
            return tuple(Record(*row) for row in self._base.execute(_ALL + which, values))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Let one thread in; an error of the database becomes a sentence."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise StoreError(self.path, sentence(error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the database for writing: all of the block, or nothing of it."""
        with self._told():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    with suppress(sqlite3.Error):
                        self._base.execute("ROLLBACK")
                raise


def _noted(note: Decision) -> tuple[Any, ...]:
    codes = msgspec.json.encode(note.codes).decode()
    job, name, text = (_storable(part) for part in (note.job, note.name, note.text))
    return (note.time, note.uid, job, name, note.verdict, codes, text, note.offer, note.token)


def _storable(text: str) -> str:
    """Return a user's text cut to a length that a journal can hold, with what is no text out."""
    return text[:LONGEST_TEXT].encode("utf-8", "replace").decode()


def _decision(row: tuple[Any, ...]) -> Decision:
    time, uid, job, name, verdict, codes, text, offer, token = row
    reasons = msgspec.json.decode(codes, type=tuple[str, ...])
    return Decision(time, uid, job, name, verdict, reasons, text, offer, token)
