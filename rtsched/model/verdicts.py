"""Answers of plug-ins: verdicts, priority terms, placements, delay classes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.table import read_only
from rtsched.text import counted, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from rtsched.model.schedule import Schedule


class Verdict(IntEnum):
    """What an admission plug-in says of one job; the strictest of all plug-ins wins."""

    ABSTAIN = 0
    """No opinion."""
    ADMIT = 1
    """Let it in; with a promise, if one is given."""
    DEFER = 2
    """Ask again, at `retry_at` or at the next cycle."""
    REJECT = 3
    """Final for this submission."""


_WORDS = re.compile(r"[A-Za-z][A-Za-z-]+( [A-Za-z-]+)*(\|[A-Za-z -]+)?")


class _Number:
    """A number of a reason's sentence, written as the sentence asks for."""

    def __init__(self, value: float) -> None:
        self.value = int(value) if float(value).is_integer() else round(float(value), 3)

    def __format__(self, how: str) -> str:
        if how in {"time", "time up"}:
            return span(self.value, up=how == "time up")
        if _WORDS.fullmatch(how):
            return counted(self.value, *how.split("|"))
        return format(self.value, how)


@dataclass(frozen=True)
class Reason:
    """Why: a stable dotted code, and a sentence with named numbers in it.

    The code labels metrics, anchors the documentation and is asserted in tests. In the sentence
    `{left}` is a number, `{left:time}` seconds as a span of time (`2 h 5 min`), rounded down, and
    `{needed:time up}` one rounded up, `{nodes:node}` a count of things (`1 node`, `2 nodes`), and
    `{jobs:job is|jobs are}` one with its own plural.
    """

    code: str
    template: str

    def text(self, numbers: Mapping[str, float]) -> str:
        """Return the sentence with its numbers; whole numbers are written without a point."""
        return self.template.format(**{name: _Number(value) for name, value in numbers.items()})


@dataclass(frozen=True)
class Finding:
    """One reason, the rows it holds for, and its numbers per row.

    Attributes
    ----------
    reason : Reason
        What was found.
    rows : int64[k]
        Positions in the answer this finding belongs to.
    numbers : mapping of str to float64[k]
        A value per row for every name in the reason's template.
    """

    reason: Reason
    rows: NDArray[np.int64]
    numbers: Mapping[str, NDArray[np.float64]]

    @classmethod
    def where(cls, mask: NDArray[np.bool_], reason: Reason, **numbers: ArrayLike) -> Finding:
        """Return a finding on the rows of `mask`, numbers given for all rows or as scalars."""
        rows = np.flatnonzero(mask).astype(np.int64)
        full = {name: np.broadcast_to(values, mask.shape) for name, values in numbers.items()}
        return cls(
            reason, rows, {name: values[rows].astype(np.float64) for name, values in full.items()}
        )

    def text(self, position: int) -> str:
        """Return the sentence of the finding's `position`-th row."""
        return self.reason.text({k: float(v[position]) for k, v in self.numbers.items()})

    def moved(self, rows: NDArray[np.int64]) -> Finding:
        """Return the finding with row `i` of the answer standing for row `rows[i]` of another."""
        return Finding(self.reason, rows[self.rows], self.numbers)


@dataclass(frozen=True)
class Verdicts:
    """An admission plug-in's answer on `n` jobs.

    Attributes
    ----------
    code : int8[n]
        A `Verdict` per job.
    retry_at : float64[n]
        Seconds since the epoch at which a deferred job is asked again; -inf: the next cycle.
    promise : float64[n]
        The deadline promised, seconds since the epoch; inf: no promise.
    offer : float64[n]
        Counter-offer: the least accepted deadline later than the asked one; inf: none.
    findings : tuple of Finding
        Reasons with their numbers.
    plan : Schedule or None
        The planner's new plan for all promised jobs that have not started, these included; None
        where no promise is made.
    """

    code: NDArray[np.int8]
    retry_at: NDArray[np.float64]
    promise: NDArray[np.float64]
    offer: NDArray[np.float64]
    findings: tuple[Finding, ...] = ()
    plan: Schedule | None = None

    def __post_init__(self) -> None:
        n = len(self.code)
        for name in ("retry_at", "promise", "offer"):
            if getattr(self, name).shape != (n,):
                raise ShapeError(f"verdicts on {n} jobs with {name}{getattr(self, name).shape}")
            object.__setattr__(self, name, read_only(getattr(self, name)))
        object.__setattr__(self, "code", read_only(self.code))

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def build(
        cls,
        code: ArrayLike,
        *,
        retry_at: ArrayLike = -np.inf,
        promise: ArrayLike = np.inf,
        offer: ArrayLike = np.inf,
        findings: Iterable[Finding] = (),
        plan: Schedule | None = None,
    ) -> Verdicts:
        """Return verdicts; scalars stand for all rows. Findings without rows are left out."""
        codes = np.asarray(code, np.int8)
        given = [np.asarray(values, np.float64) for values in (retry_at, promise, offer)]
        retry, promised, offered = (
            values if values.ndim else np.full(codes.shape, values) for values in given
        )
        about_some = tuple(finding for finding in findings if len(finding.rows))
        return cls(codes, retry, promised, offered, about_some, plan)

    @classmethod
    def abstain(cls, n: int) -> Verdicts:
        """Return no opinion on `n` jobs."""
        return cls.build(np.zeros(n, np.int8))

    @classmethod
    def reject_where(
        cls, mask: NDArray[np.bool_], reason: Reason, **numbers: ArrayLike
    ) -> Verdicts:
        """Return a rejection of the rows in `mask` and no opinion on the others."""
        code = np.where(mask, Verdict.REJECT, Verdict.ABSTAIN).astype(np.int8)
        return cls.build(code, findings=(Finding.where(mask, reason, **numbers),))


@dataclass(frozen=True)
class Terms:
    """A fair-share plug-in's answer: named terms in [0, 1], per job or per account.

    The plug-in's priority is the sum of `weights[name] * values[name]`; the chain weighs the
    plug-ins against each other. Terms are kept, so the breakdown that `explain` shows is free.

    Attributes
    ----------
    values : mapping of str to float64[n]
        One array per term, in [0, 1]; higher is sooner.
    weights : mapping of str to float
        The weight of each term (1 where a name is missing).
    per_account : bool
        Whether rows are rows of `Accounts` rather than jobs.
    offset : float64[n] or None
        Added unweighted, in the same unit as the weights (Slurm's site factor and nice).
    service_error : float64[accounts] or None
        For people to read: by how many node-seconds each row of `Accounts` was served above its
        share (paper STE: service-time error), negative: below.
    """

    values: Mapping[str, NDArray[np.float64]]
    weights: Mapping[str, float] = field(default_factory=dict)
    per_account: bool = False
    offset: NDArray[np.float64] | None = None
    service_error: NDArray[np.float64] | None = None

    def total(self) -> NDArray[np.float64]:
        """Return the weighted sum of the terms, per row."""
        total = np.zeros(1)  # added one by one: a batch of one rounds like any other
        for name, value in self.values.items():
            total = total + self.weights.get(name, 1.0) * value
        return total if self.offset is None else total + self.offset


@dataclass(frozen=True)
class Placement:
    """A partition plug-in's answer on `n` jobs: how many nodes, and which.

    Attributes
    ----------
    size : int32[n]
        Nodes to give; 0: no opinion.
    node_set : int32[n]
        Code of the node set to take them from; -1: no opinion.
    node_sets : tuple of int32 arrays
        Node rows, most wanted first. A job starts on the first `size` free ones of its set; a set
        leaves out the nodes that it may not use. An empty set: it waits for the next decision
        (time-shared machines; one of exclusive nodes starts it where it is free).
    fractions : tuple of float64 arrays
        Per node set the fraction of a divisible load for each node; () where nothing is divided.
    moves : Schedule or None
        New nodes for running jobs: migrations.
    """

    size: NDArray[np.int32]
    node_set: NDArray[np.int32]
    node_sets: tuple[NDArray[np.int32], ...] = ()
    fractions: tuple[NDArray[np.float64], ...] = ()
    moves: Schedule | None = None

    def __post_init__(self) -> None:
        if self.size.shape != self.node_set.shape:
            raise ShapeError(f"{len(self.size)} sizes for {len(self.node_set)} node sets")
        if self.fractions and len(self.fractions) != len(self.node_sets):
            raise ShapeError(f"{len(self.fractions)} fractions for {len(self.node_sets)} sets")

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def abstain(cls, n: int) -> Placement:
        """Return no opinion on `n` jobs."""
        return cls(np.zeros(n, np.int32), np.full(n, -1, np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """Return the rows of all parts one after the other; equal node sets become one."""
        codes: dict[tuple[bytes, bytes], int] = {}
        sets: list[NDArray[np.int32]] = []
        fractions: list[NDArray[np.float64]] = []
        node_set = []
        for part in parts:
            shares = part.fractions or (np.empty(0),) * len(part.node_sets)
            recoded = np.full(len(part.node_sets) + 1, -1, np.int32)  # the last serves code -1
            for old, (nodes, share) in enumerate(zip(part.node_sets, shares, strict=True)):
                new = codes.setdefault((nodes.tobytes(), share.tobytes()), len(codes))
                if new == len(sets):
                    sets.append(nodes)
                    fractions.append(share)
                recoded[old] = new
            node_set.append(recoded[part.node_set])
        divided = any(len(share) for share in fractions)
        return cls(
            np.concatenate([part.size for part in parts]),
            np.concatenate(node_set),
            tuple(sets),
            tuple(fractions) if divided else (),
        )


@dataclass(frozen=True)
class DelayClasses:
    """A delay-class plug-in's answer: how much slower each node would run a new process.

    Attributes
    ----------
    factor : float64[m]
        Delay factor per node, >= 1 for the fastest idle one (paper SED: d); inf: unusable.
    bounds : float64[c]
        The classes' delays, ascending (paper SED: δ-set).
    per_job : float64[n, m] or None
        Where a job sees other factors than the common ones; nan: the common one.
    """

    factor: NDArray[np.float64]
    bounds: NDArray[np.float64]
    per_job: NDArray[np.float64] | None = None
