"""Decisions of plug-ins, folded as they come in and written out row by row when read.

A plug-in that puts a job off says so again at every decision. Equal findings of one job are one
record with a count, so that what is kept grows with what was said, not with how often.
"""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.core.chain import Judgement
    from rtsched.core.config import Mode
    from rtsched.model.verdicts import Finding, Reason

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
