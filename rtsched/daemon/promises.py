"""Promises and answers as the daemon writes them down, and the list that the filter reads."""

from __future__ import annotations

import math
import re
from bisect import bisect, insort
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import structlog

from rtsched.adapters.files import replace_file
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.errors import RtschedError
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Commitment, Entries, Promises, Schedule
from rtsched.model.snapshot import are_in, places
from rtsched.model.table import Amounts, Ragged, Table, Text, amounts_from, resource_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rtsched.daemon.site import Site

    _OfUsers: TypeAlias = "dict[int, tuple[Promise, ...]]"

PromiseState = Literal[
    "offered",
    "provisional",
    "firm",
    "kept",
    "missed",
    "broken",
    "withdrawn",
    "lapsed",
    "void",
    "own-limit",
    "unknown",
]
"""How a promise stands. Open: `offered` (a counter-offer that is held), `provisional` (made at
submission, the job not seen yet), `firm`. Closed: `kept`, `missed`, `broken` (we said before that
it would not be kept), `withdrawn` (by its user, or cancelled by an admin), `lapsed` (the job never
appeared in the queue, the offer ran out, or the submit filter did not wait for the answer), `void`
(its user changed what it rested on), `own-limit` (the job ran into its own limit), `unknown` (the
batch system has no record of how the job ended: neither kept nor withdrawn)."""

AT_RISK = "at-risk"
"""How a promise is shown that is open and whose job runs, or is planned, until after its deadline
at the latest. It is not written down: each poll may change it."""

OPEN: tuple[PromiseState, ...] = ("offered", "provisional", "firm")

OUTCOMES: tuple[PromiseState, ...] = ("kept", "missed", "broken")
"""How a promise came to its end; all other closed ones came to nothing."""


TOKEN = re.compile(r"[0-9a-f]{32}", re.ASCII)
"""How the token of a promise looks, as a job carries it."""


class Promise(msgspec.Struct, frozen=True):
    """One promise, or one counter-offer that is held for its user. Times: seconds since the epoch.

    Attributes
    ----------
    token : str
        The admission that its job carries; unique.
    id : int
        Job id; an own one (`FIRST_OWN_ID` and above) while the batch system has not numbered it.
    uid : int
        Whose it is.
    user : str
        The same as a name.
    deadline : float
        Finish by.
    made_at : float
        When it was given.
    state : str
        A `PromiseState`.
    changed_at : float
        When it came to stand so.
    why : str
        Why it stands so, in words; may be empty.
    job : bytes
        Its row of Jobs (`encode_jobs`).
    expires : float
        When an offer or a provisional promise ends by itself; else inf.
    notify : str
        Of what the job's user wants to be notified; empty: as for other jobs.
    odds : float or None
        Odds, 0 to 1, that were stated for a likely promise; None: it is a guaranteed one.
    """

    token: str
    id: int
    uid: int
    user: str
    deadline: float
    made_at: float
    state: PromiseState = msgspec.field(name="standing")  # as the database has it
    changed_at: float
    why: str
    job: bytes
    expires: float = math.inf
    notify: str = ""
    odds: float | None = None


def _age(promise: Promise) -> tuple[float, int]:
    """Return what orders promises by age, the oldest first."""
    return promise.made_at, promise.id


class OpenPromises(dict[int, Promise]):
    """Open promises and held offers by job id; never written to once it is made."""

    @cached_property
    def of_users(self) -> _OfUsers:
        """The same by uid, the oldest first."""
        found: dict[int, list[Promise]] = {}
        for promise in sorted(self.values(), key=_age):
            found.setdefault(promise.uid, []).append(promise)
        return {uid: tuple(promises) for uid, promises in found.items()}

    @cached_property
    def ledger(self) -> Promises:
        """These as planners know them, in order of their jobs' ids."""
        return _ledger_of(sorted(self.values(), key=lambda promise: promise.id))

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """The ids of all, in order of the promises here."""
        return np.fromiter(self, np.int64, len(self))

    @cached_property
    def offers(self) -> NDArray[np.int64]:
        """The ids of the held offers among them."""
        held = [job for job, promise in self.items() if promise.state == "offered"]
        return np.array(held, np.int64)

    def with_new(self, promise: Promise) -> OpenPromises:
        """Return these and one more, in place of one of the same job."""
        more = OpenPromises(self)
        more[promise.id] = promise
        if promise.id in self:
            return more

        def of_users(known: _OfUsers) -> _OfUsers:
            own = [*known.get(promise.uid, ())]
            insort(own, promise, key=_age)
            return {**known, promise.uid: tuple(own)}

        def ledger(known: Promises) -> Promises:
            grown = known.with_rows(_ledger_of([promise]))
            ascends = (grown.job[1:] > grown.job[:-1]).all()
            return grown if ascends else grown.take(np.argsort(grown.job))

        new = [promise.id] if promise.state == "offered" else []
        return self._passed_on(
            more,
            of_users=of_users,
            offers=lambda known: np.append(known, np.array(new, np.int64)),
            ledger=ledger,
        )

    def without(self, jobs: Iterable[int]) -> OpenPromises:
        """Return these without those of some jobs; the same ones, if there are none."""
        gone = self.keys() & jobs
        if not gone:
            return self
        left = OpenPromises(self)
        for job in gone:
            del left[job]
        ids, users = np.array(sorted(gone), np.int64), {self[job].uid for job in gone}

        def of_users(known: _OfUsers) -> _OfUsers:
            kept = {uid: tuple(one for one in known[uid] if one.id not in gone) for uid in users}
            return {uid: own for uid, own in (known | kept).items() if own}

        return self._passed_on(
            left,
            of_users=of_users,
            offers=lambda known: known[~are_in(known, ids)],
            ledger=lambda known: known.take(~are_in(known.job, ids)),
        )

    def _passed_on(self, to: OpenPromises, **follows: Callable[[Any], Any]) -> OpenPromises:
        """Return others that know what is known of these, each as it follows from that."""
        for name, follow in follows.items():
            if name in self.__dict__:
                to.__dict__[name] = follow(self.__dict__[name])
        return to


def _ledger_of(promises: Sequence[Promise]) -> Promises:
    firm = [p.state == "firm" for p in promises]
    return Promises.build(
        len(promises),
        job=[p.id for p in promises],
        deadline=[p.deadline for p in promises],
        made_at=[p.made_at for p in promises],
        commitment=np.where(firm, Commitment.FIRM, Commitment.PROVISIONAL),
    )


class JournalEntry(msgspec.Struct, frozen=True):
    """What was said to one submission, for `rtsched explain`.

    Attributes
    ----------
    time : float
        Seconds since the epoch.
    uid : int
        Who submitted.
    job : str
        What the batch system calls the job; empty: it was not numbered.
    name : str
        What its user calls it.
    verdict : str
        Such as `admit`, `reject`.
    codes : tuple of str
        Reason codes.
    text : str
        What its user was told.
    offer : float
        Counter-offer, seconds since the epoch; inf: none.
    token : str
        The admission, where a promise was given.
    """

    time: float
    uid: int
    job: str
    name: str
    verdict: str
    codes: tuple[str, ...]
    text: str
    offer: float = math.inf
    token: str = ""


class StoredState(msgspec.Struct, frozen=True):
    """What a daemon that starts finds.

    Attributes
    ----------
    promises : tuple of Promise
        The open ones, oldest first.
    plan : Schedule or None
        The plan of the last commit; its nodes are rows of the cluster of that time.
    version : int
        The ledger's version at that commit.
    states : mapping of str to bytes
        Plug-in name to its state (`encode_state`).
    nodes : tuple of str or None
        The names of the nodes that the plan's rows mean; None: a release that wrote schema 1 left
        them among the states.
    unused : mapping of (int, str) to tuple of float
        By uid and state, when offers and admissions lapsed that users did not take, seconds
        since the epoch.
    """

    promises: tuple[Promise, ...]
    plan: Schedule | None
    version: int
    states: dict[str, bytes]
    nodes: tuple[str, ...] | None = None
    unused: dict[tuple[int, PromiseState], tuple[float, ...]] = {}
    likely_outcomes: tuple[tuple[float, bool], ...] = ()


T = TypeVar("T", bound=Table)


class _Array(msgspec.Struct, array_like=True, frozen=True):
    """One array of one dimension."""

    dtype: str
    data: bytes

    @classmethod
    def of(cls, array: NDArray[Any]) -> _Array:
        """Return an array packed."""
        return cls(array.dtype.str, array.tobytes())

    def array(self) -> NDArray[Any]:
        """Return it, not writable."""
        return np.frombuffer(self.data, np.dtype(self.dtype))


class _Table(msgspec.Struct, array_like=True, frozen=True):
    """The columns of a table that say something, and the texts behind codes."""

    rows: int
    columns: dict[str, _Array]
    texts: dict[str, list[str | None]]


class _Schedule(msgspec.Struct, array_like=True, frozen=True):
    """A schedule; `nodes` are rows of the cluster of that time."""

    entries: _Table
    indptr: _Array
    nodes: _Array
    fractions: _Array
    node_start: _Array
    preemptive: bool


class _Change(msgspec.Struct, array_like=True, frozen=True):
    """What a schedule became: entries that stay as they are, and others."""

    first: _Array
    """int64[r]: the row at which each run of entries begins that stay, in their new order."""
    count: _Array
    """int64[r]: how many they are."""
    place: _Array
    """int64[k]: where the others stand now."""
    others: _Schedule


MOST_RUNS = 64
"""Runs of entries that stay, up to which it is worth looking for them in any schedule."""

_encoder = msgspec.msgpack.Encoder()


def encode_table(table: Table) -> bytes:
    """Return a table as bytes; a column that holds only missing values takes no room."""
    return _encoder.encode(_packed(table))


def decode_table(data: bytes, kind: type[T]) -> T:
    """Return the table in `data`; a column that this release does not have is left out.

    Raises
    ------
    RtschedError
        If it is no such table.
    """
    try:
        return _unpacked(msgspec.msgpack.decode(data, type=_Table), kind)
    except _DAMAGED as cause:
        raise _damaged(kind.__name__, cause) from cause


def encode_jobs(jobs: Jobs) -> bytes:
    """Return jobs as bytes."""
    return encode_table(jobs)


def decode_jobs(data: bytes) -> Jobs:
    """Return the jobs in `data`; RtschedError if there are none."""
    return decode_table(data, Jobs)


def encode_schedule(schedule: Schedule) -> bytes:
    """Return a schedule as bytes."""
    return _encoder.encode(_packed_schedule(schedule))


def decode_schedule(data: bytes) -> Schedule:
    """Return the schedule in `data`.

    Raises
    ------
    RtschedError
        If it is no schedule.
    """
    try:
        return _unpacked_schedule(msgspec.msgpack.decode(data, type=_Schedule))
    except _DAMAGED as cause:
        raise _damaged("schedule", cause) from cause


def _packed_schedule(schedule: Schedule) -> _Schedule:
    arrays = (schedule.indptr, schedule.nodes, schedule.fractions, schedule.node_start)
    indptr, nodes, fractions, starts = (_Array.of(array) for array in arrays)
    entries = _packed(schedule.entries)
    return _Schedule(entries, indptr, nodes, fractions, starts, schedule.preemptive)


def _unpacked_schedule(found: _Schedule) -> Schedule:
    entries = _unpacked(found.entries, Entries)
    indptr, nodes, fractions, starts = (
        packed.array() for packed in (found.indptr, found.nodes, found.fractions, found.node_start)
    )
    if len(indptr) and (indptr[-1] != len(nodes) or (np.diff(indptr) < 0).any()):
        raise ValueError("node offsets and nodes differ")
    return Schedule(entries, indptr, nodes, fractions, found.preemptive, starts)


def encode_change(before: Schedule, after: Schedule) -> bytes | None:
    """Return what made one schedule of another, as bytes; None: that is half of it or more."""
    row = _rows_before(before, after)
    stays = row >= 0
    if 2 * np.count_nonzero(stays) <= len(after):
        return None
    place, row = np.flatnonzero(~stays), row[stays]
    _, first, count = _runs(np.arange(len(row)), row)
    runs, others = (_Array.of(first), _Array.of(count)), _packed_schedule(after.take(place))
    return _encoder.encode(_Change(*runs, _Array.of(place), others))


def with_change(before: Schedule, data: bytes) -> Schedule:
    """Return the schedule that `encode_change` made the bytes of.

    Raises
    ------
    RtschedError
        If they tell no change of the one before.
    """
    try:
        found = msgspec.msgpack.decode(data, type=_Change)
        first, count, place = (each.array() for each in (found.first, found.count, found.place))
        others, kept = _unpacked_schedule(found.others), Ragged.counted(count)
        if (first < 0).any() or (first + count > len(before)).any() or (count < 1).any():
            raise ValueError("it keeps rows that are not there")
        row = np.full(len(kept.values) + len(others), -1, np.int64)
        row[place] = len(before) + np.arange(len(others))
        row[row < 0] = np.repeat(first, count) + kept.values
        return Schedule.joined([before, others]).take(row)
    except _DAMAGED as cause:
        raise _damaged("plan", cause) from cause


def _rows_before(before: Schedule, after: Schedule) -> NDArray[np.int64]:
    """Return for each entry its row in the schedule before, if it was the same there; else -1.

    As `Schedule.joined` makes entries: it gives all a size and what any of them has.
    """
    nowhere = np.full(len(after), -1, np.int64)
    had, optional = (
        [name for name in ("fractions", "node_start") if len(getattr(one, name))]
        for one in (before, after)
    )
    alike = len(before) and before.preemptive == after.preemptive and had == optional
    if not alike or (after.entries.size != after.ragged.lengths).any():
        return nowhere
    row, same = _rows_of(before.entries.job, after.entries.job)
    same &= before.ragged.lengths[row] == after.ragged.lengths
    for name in ("start", "end", "rounds"):
        same &= getattr(before.entries, name)[row] == getattr(after.entries, name)
    runs = _runs(np.flatnonzero(same), row[same])
    if len(runs[0]) > max(MOST_RUNS, len(after) // 8):
        return nowhere
    for now, then, count in zip(*runs, strict=True):
        first, last = after.indptr[now], after.indptr[now + count]
        moved = before.indptr[then] - first
        for name in ("nodes", *optional):
            old, new = getattr(before, name)[first + moved : last + moved], getattr(after, name)
            differ = first + np.flatnonzero(old != new[first:last])
            same[after.ragged.rows_at(differ)] = False
    return np.where(same, row, nowhere)


def _rows_of(
    before: NDArray[np.int64], after: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return `places` of ids of which most stand where they stood."""
    n = min(len(before), len(after))
    moved = np.flatnonzero(before[:n] != after[:n])
    first = int(moved[0]) if len(moved) else n
    row, known = np.arange(len(after)), np.ones(len(after), np.bool_)
    place, known[first:] = places(before[first:], after[first:])
    row[first:] = first + place if first < len(before) else 0
    return row, known


def _runs(
    now: NDArray[np.int64], then: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where runs of rows begin that follow each other then as now, and how many they are."""
    begins = np.flatnonzero(np.append(True, (np.diff(now) != 1) | (np.diff(then) != 1))[: len(now)])
    return now[begins], then[begins], np.diff(np.append(begins, len(now)))


_DAMAGED = (msgspec.MsgspecError, RtschedError, ValueError, TypeError, SyntaxError, IndexError)
"""What damaged bytes may raise: numpy reads a dtype as Python would."""


def _damaged(what: str, cause: Exception) -> RtschedError:
    return RtschedError(
        f"a stored {what} is damaged ({cause}); stop the daemon and restore a backup of its "
        "database"
    )


def _packed(table: Table) -> _Table:
    texts, n = {}, len(table)
    columns = {title: _Array.of(array) for title, array in resource_columns(table).items()}
    for name in table.given():
        column, array = table.columns()[name], table.column(name)
        if isinstance(column, Text):
            if (array >= 0).any():
                texts[name] = table.texts(name)
        elif not isinstance(column, Amounts):
            packed = _Array.of(array)
            if packed.data != column.nothing * n:
                columns[name] = packed
    return _Table(n, columns, texts)


def _unpacked(found: _Table, kind: type[T]) -> T:
    columns: dict[str, Any] = {name: packed.array() for name, packed in found.columns.items()}
    amounts, names = amounts_from(kind, columns)
    columns |= found.texts | amounts
    known = {k: v for k, v in columns.items() if k in kind.columns()}
    return kind.build(found.rows, names=names, **known)


log = structlog.get_logger(__name__)

LIST_FILE = "promised_jobs"
"""Its name, in the directory of the sockets."""

LIST_HEAD = "rtsched-promised-jobs 1"

MOST_LISTED = 262_144
"""Jobs on it; what is more than that is not read (`RTSCHED_MOST_PROMISED_JOBS`)."""


def lines_of(site: Site) -> str:
    """Return the lines that a poll settles: the first one, and those of jobs."""
    numbered = {promise.id for promise in site.all_promises() if promise.id < FIRST_OWN_ID}
    several = site.marks.take(site.marks.last >= 0)
    for job, last in zip(several.job.tolist(), several.last.tolist(), strict=True):
        if job in numbered:
            numbered.update(range(job, last + 1))
    return "\n".join([f"{LIST_HEAD} {site.newest}", *map(str, sorted(numbered)[-MOST_LISTED:]), ""])


class PromisedJobs:
    """Keeps the list of promised jobs that Slurm's submit filter reads while nobody answers it.

    The filter asks the daemon whether a user may change a job. While nobody answers, promised jobs
    must stay as they are, and all others belong to their users; slurmctld shows the filter nothing
    of a job by which it could tell them apart. So the daemon leaves a list:

        rtsched-promised-jobs 1 NEWEST
        JOB
        user UID
        end

    NEWEST is the highest job id that a poll has shown. There is a line for each job with a promise,
    for each component of one, and for each user who was promised something for a job that no poll
    has shown yet: any of her jobs above NEWEST may be that one. Jobs and users ascend. The file is
    replaced as a whole. A promise is on the list before its user reads of it.

    Parameters
    ----------
    path : Path
        The file; its directory must be writable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """Why the file is not as it should be; empty: it is."""
        self._jobs = f"{LIST_HEAD} 0\n"
        self._users: list[int] = []
        self._written = ""

    def update(self, jobs: str, site: Site) -> None:
        """Write the list, if it is another one than before.

        Parameters
        ----------
        jobs : str
            What `lines_of` returned for the last poll.
        site : Site
            After it, with what was promised since.
        """
        self._jobs = jobs
        waiting = (r for r in site.all_promises() if r.id >= FIRST_OWN_ID)
        self._users = sorted({promise.uid for promise in waiting if promise.state != "offered"})
        self._write()

    def add(self, uid: int) -> None:
        """Add a user who is about to be promised something."""
        if uid not in self._users:
            self._users.insert(bisect(self._users, uid), uid)
            self._write()

    def forget(self) -> None:
        """Remove the file: what stands in it is no longer known to be so.

        Without it the filter takes any job for one that may be promised something.
        """
        self._written = ""
        with suppress(OSError):
            self.path.unlink()

    def _write(self) -> None:
        text = "".join([self._jobs, *(f"user {uid}\n" for uid in self._users), "end\n"])
        if text == self._written:
            return
        try:
            replace_file(self.path, text, 0o644)
        except OSError as error:
            self._written = ""
            if not self.problem:
                log.error("promised_jobs_not_written", file=str(self.path), error=error.strerror)
            self.problem = (
                f"{self.path} cannot be written ({error.strerror}): when the daemon is down, the "
                "submit filter cannot know which jobs have a promise"
            )
        else:
            self._written, self.problem = text, ""
