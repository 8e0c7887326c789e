"""Decisions of plug-ins, kept as they come in, and reasons why a job was rejected, or waited.

A plug-in that puts a job off says so again at every decision. Equal findings of one job are one
record with a count, so that what is kept grows with what was said, not with how often.

A job waits for nodes, for the jobs ahead of it, for its own earliest start, or for its place in a
plan. What it met at its submission and who passed it follow from the starts and ends of all jobs;
what a plug-in said of it stands in the decisions.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtsched.model.log import FinalState
from rtsched.model.verdicts import Verdict
from rtsched.text import similar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.core.chain import Judgement
    from rtsched.core.config import Mode
    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Finding, Reason
    from rtsched.replay.results import Results

    Rows = NDArray[np.int64]
    Place = tuple[int, int]
    Record = tuple[Place, dict[str, object]]

T = TypeVar("T", bound=np.generic)

_FIELDS = (
    ("batch", np.int64),
    ("row", np.int64),
    ("code", np.int8),
    ("offer", np.float64),
    ("times", np.int64),
    ("first", np.float64),
    ("last", np.float64),
)
_BLOCK = 1 << 12


class Decisions:
    """All findings of a replay, in the order in which they were first made.

    What a plug-in finds of a job for a reason is folded into its last finding of that job for the
    same reason, if verdict, numbers and counter-offer are equal.

    Iterating gives one mapping per record: `job` (row of the workload), `plugin`, `mode`,
    `verdict`, `reason` (code), `text`, `numbers`, `offer_s` (epoch seconds or None), `times` (how
    often it was found), `first_s` and `last_s` (when; None: before the run).
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[object, ...], _Stream] = {}
        self._batches = 0

    def add(
        self, judgement: Judgement, rows: Rows, now: float | NDArray[np.float64] = np.nan
    ) -> None:
        """Keep the findings of a judgement on the jobs in these rows of the workload.

        Parameters
        ----------
        judgement : Judgement
            Who said what.
        rows : int64[n]
            The workload's rows that it is about.
        now : float or float64[n]
            When it was made, epoch seconds; nan: before the run, for good. For each row its own:
            judgements on one job each, in this order.
        """
        one_each = isinstance(now, np.ndarray)
        time = np.broadcast_to(now, len(rows))
        for answer in judgement.answers:
            if answer.value is None:
                continue
            for finding in answer.value.findings:
                at = finding.rows
                if not len(at):
                    continue
                key = (answer.plugin, answer.mode, finding.reason, *finding.numbers)
                stream = self._streams.get(key)
                if stream is None:
                    stream = _Stream(answer.plugin, answer.mode, finding)
                    self._streams[key] = stream
                code, offer = answer.value.code[at], answer.value.offer[at]
                batch = self._batches + (at if one_each else np.zeros_like(at))
                stream.add(batch, rows[at], code, offer, finding, time[at])
                self._batches += not one_each
            self._batches += len(rows) if one_each else 0

    def __len__(self) -> int:
        return sum(len(stream.records) for stream in self._streams.values())

    def __iter__(self) -> Iterator[dict[str, object]]:
        streams = (stream.mappings() for stream in self._streams.values())
        for _, record in heapq.merge(*streams, key=itemgetter(0)):
            yield record

    def reasons(self, n: int) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """Return per job the code of the enforced finding that decided its rejection or wait.

        The first one that turned it away, else the first that put it off.

        Returns
        -------
        (int32[n], tuple of str)
            Codes into the names of reasons; -1 where there is none.
        """
        enforced = [stream for stream in self._streams.values() if stream.mode == "enforce"]
        if not enforced:
            return np.broadcast_to(np.int32(-1), n), ()
        names = tuple(dict.fromkeys(stream.reason.code for stream in enforced))
        codes = np.full(n, -1, np.int32)
        for verdict in (Verdict.DEFER, Verdict.REJECT):
            found = [stream.records[stream.records["code"] == verdict] for stream in enforced]
            rows, batch = (np.concatenate([part[k] for part in found]) for k in ("row", "batch"))
            name = np.repeat(
                [names.index(stream.reason.code) for stream in enforced], [*map(len, found)]
            )
            backwards = np.argsort(-batch, kind="stable")
            codes[rows[backwards]] = name[backwards]  # what is written last stands
        return codes, names


class _Stream:
    """What one plug-in found for one reason: a growing array, a record per job and run of equals.

    Attributes
    ----------
    plugin : str
        Who found it.
    mode : Mode
        How much it counted.
    reason : Reason
        Why.
    """

    def __init__(self, plugin: str, mode: Mode, finding: Finding) -> None:
        self.plugin = plugin
        self.mode = mode
        self.reason: Reason = finding.reason
        self._names = tuple(finding.numbers)
        self._room = np.empty(0, [*_FIELDS, ("numbers", np.float64, (len(self._names),))])
        self._used = 0
        self._latest = np.empty(0, np.int64)
        """Per row of the workload 1 more than the place of its last record; 0: none."""

    @property
    def records(self) -> NDArray[np.void]:
        """Return the records in the order in which they were first found."""
        return self._room[: self._used]

    def add(
        self,
        batch: Rows,
        rows: Rows,
        code: NDArray[np.int8],
        offer: NDArray[np.float64],
        finding: Finding,
        now: NDArray[np.float64],
    ) -> None:
        """Count what was found of these rows before and is equal; keep the rest."""
        numbers = np.empty((len(rows), len(self._names)))
        for column, values in enumerate(finding.numbers.values()):
            numbers[:, column] = values
        self._latest = _grown(self._latest, int(rows.max()) + 1)
        at = self._latest[rows] - 1
        fresh = at < 0
        if not fresh.all():
            old = self.records[at]  # where there is none, the last of all
            same = (old["numbers"] == numbers) | (np.isnan(old["numbers"]) & np.isnan(numbers))
            equal = ~fresh & (old["code"] == code) & (old["offer"] == offer) & same.all(axis=1)
            again, fresh = at[equal], ~equal
            np.add.at(self._room["times"], again, 1)
            self._room["last"][again] = now[equal]
        kept = int(np.count_nonzero(fresh))
        if not kept:
            return
        self._room = _grown(self._room, self._used + kept)
        new = self._room[self._used : self._used + kept]
        new["batch"], new["row"], new["code"] = batch[fresh], rows[fresh], code[fresh]
        new["offer"], new["numbers"] = offer[fresh], numbers[fresh]
        new["times"], new["first"], new["last"] = 1, now[fresh], now[fresh]
        self._latest[rows[fresh]] = np.arange(self._used, self._used + kept) + 1
        self._used += kept

    def mappings(self) -> Iterator[Record]:
        """Yield each record's place in the order of all findings, and what people read of it."""
        for place, record in enumerate(self._plain()):
            batch, row, code, offer, times, first, last, values = record
            numbers = dict(zip(self._names, values, strict=True))
            yield (
                (batch, place),
                {
                    "job": row,
                    "plugin": self.plugin,
                    "mode": self.mode,
                    "verdict": Verdict(code).name.lower(),
                    "reason": self.reason.code,
                    "text": self.reason.text(numbers),
                    "numbers": numbers,
                    "offer_s": _known(offer),
                    "times": times,
                    "first_s": _known(first),
                    "last_s": _known(last),
                },
            )

    def _plain(self) -> Iterator[tuple[Any, ...]]:
        """Yield the records as tuples of Python's own numbers, quicker than one by one."""
        for begin in range(0, self._used, _BLOCK):
            block = self.records[begin : begin + _BLOCK]
            yield from zip(*(block[name].tolist() for name in block.dtype.names or ()), strict=True)


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _grown(array: NDArray[T], min_length: int) -> NDArray[T]:
    """Return an array of at least this length: the same one, or a copy with room to grow."""
    if len(array) >= min_length:
        return array
    grown = np.zeros(max(min_length, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown


_NUMBERED = re.compile(r"(?:^|#)([0-9]{1,18})(?:[._][0-9]+)*$")
_MOST_COMPARED = 20_000
"""Names that are compared letter by letter with one that is not there."""


@dataclass(frozen=True)
class Met:
    """What a job met at its submission.

    Attributes
    ----------
    machine, busy : int
        Nodes of the machine; nodes taken by running jobs.
    running : int
        Jobs that ran.
    running_work : float
        Node-seconds that the running ones still took.
    waiting : int
        Jobs that were submitted earlier and waited.
    waiting_work : float
        Node-seconds that the waiting ones asked for; without a time limit, what they took.
    shared : bool
        Whether jobs share nodes, so that none counts as taken.
    """

    machine: int
    busy: int
    running: int
    running_work: float
    waiting: int
    waiting_work: float
    shared: bool = False

    @property
    def free(self) -> int:
        """Return the nodes that no job held; where they are shared, all may take another job."""
        return self.machine if self.shared else self.machine - self.busy


@dataclass(frozen=True)
class Why:
    """One job under one policy.

    Attributes
    ----------
    row : int
        Its row of the workload.
    fate : FinalState
        What became of it.
    submit, begin, deadline, start, end, promise, offer : float
        Seconds since the epoch; nan or an infinity where there is none.
    asked, given : int
        Nodes.
    met : Met
        The machine and the queue at its submission.
    ahead : int64[k]
        Rows that waited at its submission and started before it, largest first.
    overtook : int64[k]
        Rows that were submitted after it and started before it, largest first.
    overtook_work : float
        Node-seconds that those had used by its start.
    made_way : int64[k]
        Rows whose end at its very start freed nodes, largest first.
    decisions : sequence of mapping
        What plug-ins said of it, in order.
    whole, served : float
        Node-seconds from its start to its end, and those in which its nodes served it; nan: it did
        not end.
    ran_on : bool
        Whether it was rejected, and run all the same.
    """

    row: int
    fate: FinalState
    submit: float
    begin: float
    deadline: float
    start: float
    end: float
    promise: float
    offer: float
    asked: int
    given: int
    met: Met
    ahead: NDArray[np.int64]
    overtook: NDArray[np.int64]
    overtook_work: float
    made_way: NDArray[np.int64]
    decisions: Sequence[Mapping[str, object]] = field(default=())
    whole: float = np.nan
    served: float = np.nan
    ran_on: bool = False

    @property
    def wait(self) -> float:
        """Return the seconds from submission to start; nan if it never started."""
        return self.start - self.submit

    @property
    def lateness(self) -> float:
        """Return the seconds from its deadline to its end: negative in time, nan where unknown."""
        return self.end - self.deadline if np.isfinite(self.deadline) else np.nan


def explain(
    jobs: Jobs,
    results: Results,
    row: int,
    machine: int,
    decisions: Sequence[Mapping[str, object]] = (),
    *,
    shared: bool = False,
) -> Why:
    """Return why the job in `row` fared as it did.

    Parameters
    ----------
    jobs : Jobs
        The workload, in order of (submit, id).
    results : Results
        Row by row what a policy made of it.
    row : int
        The job.
    machine : int
        Nodes of the machine.
    decisions : sequence of mapping
        The plug-ins' findings on this job.
    shared : bool
        Whether jobs share nodes.
    """
    submit, start, end = float(jobs.submit[row]), results.start, results.end
    own_start = float(start[row])
    until = own_start if np.isfinite(own_start) else np.inf
    earlier = np.arange(len(jobs)) < row
    entered = results.fate != FinalState.REJECTED
    waited = earlier & entered & ~(start <= submit)
    overtook = ~earlier & entered & (start < until)
    overtook[row] = False
    if results.fate[row] == FinalState.REJECTED:
        overtook[:] = False
    passed = np.flatnonzero(overtook)
    serving = results.serving()
    used = serving[passed] * (np.minimum(end[passed], until) - start[passed])
    made_way = np.flatnonzero(end == own_start)
    return Why(
        row=row,
        fate=FinalState(int(results.fate[row])),
        submit=submit,
        begin=float(jobs.begin[row]),
        deadline=float(jobs.deadline[row]),
        start=own_start,
        end=float(end[row]),
        promise=float(results.promise[row]),
        offer=float(results.offer[row]),
        ran_on=bool(results.ran_on[row]),
        asked=int(jobs.size[row]),
        given=int(results.size[row]),
        met=_met(jobs, results, submit, earlier, waited, machine, shared),
        ahead=_largest_first(results, np.flatnonzero(waited & (start < until))),
        overtook=_largest_first(results, passed),
        overtook_work=float(np.nansum(used)),
        whole=float(results.size[row] * (end[row] - own_start)),
        served=float(results.served()[row]),
        made_way=_largest_first(results, made_way),
        decisions=decisions,
    )


def _met(
    jobs: Jobs,
    results: Results,
    submit: float,
    earlier: NDArray[np.bool_],
    waited: NDArray[np.bool_],
    machine: int,
    shared: bool,
) -> Met:
    begun = (results.start < submit) | (earlier & (results.start == submit))
    running = np.flatnonzero(begun & (results.end > submit))
    waiting = np.flatnonzero(waited)
    asked, took = jobs.wall_time[waiting], (results.end - results.start)[waiting]
    work = jobs.size[waiting] * np.where(np.isfinite(asked), asked, took)
    return Met(
        machine=machine,
        busy=int(results.size[running].sum()),
        running=len(running),
        running_work=float((results.serving()[running] * (results.end[running] - submit)).sum()),
        waiting=len(waiting),
        waiting_work=float(np.nansum(work)),
        shared=shared,
    )


def _largest_first(results: Results, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return rows by the node-seconds they took, ties by row."""
    work = results.size[rows] * (results.end[rows] - results.start[rows])
    return rows[np.argsort(-np.nan_to_num(work), kind="stable")].astype(np.int64)


def find(jobs: Jobs, name: str) -> list[int]:
    """Return the rows whose label, or else whose id, is `name`."""
    if name in (table := jobs.names("label")):
        rows = np.flatnonzero(jobs.label == table.index(name))
        return [int(row) for row in rows]
    if name.lstrip("-").isdecimal() and abs(int(name)) < 1 << 62:
        return [int(row) for row in np.flatnonzero(jobs.id == int(name))]
    return []


def close_matches(jobs: Jobs, name: str, max_count: int = 3) -> list[str]:
    """Return names of jobs that look like `name`, best first: those that `find` would find."""
    shown = list(dict.fromkeys(jobs.labels()))
    alike = [each for each in shown if each.startswith(name) or each.partition("_")[0] == name]
    if (number := _number(name)) is not None:
        numbered = [(abs(n - number), each) for each in shown if (n := _number(each)) is not None]
        alike += [each for _, each in nsmallest(max_count, numbered, key=itemgetter(0))]
    elif not alike and len(shown) <= _MOST_COMPARED:
        alike = similar(name, shown, max_count)
    return list(dict.fromkeys(alike))[:max_count]


def _number(name: str) -> int | None:
    """Return the number in a batch system's name of a job: 12 in `12`, `12_3`, `host#12.0`."""
    match = _NUMBERED.search(name)
    return int(match[1]) if match else None
