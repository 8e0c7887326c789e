"""Schedules: who runs where and when, the plan, and the promises behind the plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.table import Column, Ragged, Table, offsets_of, read_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

S = TypeVar("S", bound=np.generic)


class Entries(Table):
    """One row per job of a schedule. Times are seconds since the epoch."""

    job = Column(np.int64, -1, "Job id.")
    start = Column(np.float64, np.nan, "When it starts or started.")
    end = Column(np.float64, np.nan, "When it ends at the latest, by its requested run time.")
    size = Column(np.int32, 0, "Nodes it takes.")
    rounds = Column(
        np.int32, 1, "Divisible load: rounds in which each of its nodes takes its part."
    )


@dataclass(frozen=True)
class Schedule:
    """Entries, and per entry its nodes and the fraction of the load that each gets.

    Attributes
    ----------
    entries : Entries
        `n` rows.
    indptr : int64[n + 1]
        Entry `i` has the nodes `nodes[indptr[i]:indptr[i + 1]]`.
    nodes : int32[k]
        Rows of `Cluster.nodes`, in sending order for a divisible load.
    fractions : float64[k] or float64[0]
        Fraction of the load per node (paper: α); empty where no entry is divided.
    preemptive : bool
        Whether jobs share a node by turns: each runs some time between its start and its end.
    node_start : float64[k] or float64[0]
        From when an entry has each of its nodes, at or after its start; empty: all from its start.
    """

    entries: Entries
    indptr: NDArray[np.int64]
    nodes: NDArray[np.int32]
    fractions: NDArray[np.float64]
    preemptive: bool = False
    node_start: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.indptr.shape != (len(self.entries) + 1,):
            raise ShapeError(f"{len(self.entries)} entries with node offsets {self.indptr.shape}")
        if len(self.fractions) not in {0, len(self.nodes)}:
            raise ShapeError(f"{len(self.fractions)} fractions for {len(self.nodes)} nodes")
        if len(self.node_start) not in {0, len(self.nodes)}:
            raise ShapeError(f"{len(self.node_start)} starts of {len(self.nodes)} nodes")
        for name in ("indptr", "nodes", "fractions", "node_start"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @classmethod
    def empty(cls) -> Schedule:
        """Return a schedule of nothing."""
        return _EMPTY

    @classmethod
    def build(
        cls,
        job: ArrayLike,
        start: ArrayLike,
        end: ArrayLike,
        indptr: NDArray[np.int64],
        nodes: NDArray[np.int32],
        fractions: NDArray[np.float64] | None = None,
        node_start: NDArray[np.float64] | None = None,
        rounds: ArrayLike = 1,
    ) -> Self:
        """Return a schedule; sizes follow from the node offsets."""
        size = Ragged(indptr, nodes).lengths.astype(np.int32)
        entries = Entries.build(len(size), job=job, start=start, end=end, size=size, rounds=rounds)
        shares = np.empty(0) if fractions is None else fractions
        starts = np.empty(0) if node_start is None else node_start
        return cls(entries, indptr, nodes, shares, node_start=starts)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def ragged(self) -> Ragged:
        """Return the nodes, one row per entry."""
        return Ragged(self.indptr, self.nodes)

    def nodes_of(self, row: int) -> NDArray[np.int32]:
        """Return the nodes of one entry."""
        return self.ragged.row(row)

    def span_of(self, row: int) -> tuple[float, float]:
        """Return start and end of one entry, seconds since the epoch."""
        return float(self.entries.start[row]), float(self.entries.end[row])

    def per_node(self, values: NDArray[S]) -> NDArray[S]:
        """Return for each of the nodes the value of its entry."""
        return np.repeat(values, self.ragged.lengths)

    def shares(self) -> NDArray[np.float64]:
        """Return float64[k]: the fraction of the load on each node, equal where undivided."""
        if len(self.fractions):
            return self.fractions
        return self.per_node(1.0 / np.maximum(self.ragged.lengths, 1))

    def starts(self) -> NDArray[np.float64]:
        """Return float64[k]: from when each entry has each of its nodes."""
        if len(self.node_start):
            return self.node_start
        return self.per_node(self.entries.start)

    def rows(self) -> NDArray[np.int64]:
        """Return int64[k]: the row of the entry that has each of the nodes."""
        return self.ragged.rows()

    @cached_property
    def last_ends(self) -> NDArray[np.float64]:
        """Return float64[m]: the latest end of an entry on each node, epoch seconds; -inf: none.

        Of the nodes up to the highest one that an entry has.
        """
        ends = np.full(int(self.nodes.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(ends, self.nodes, self.per_node(self.entries.end))
        return read_only(ends)

    @cached_property
    def first_places(self) -> NDArray[np.int64]:
        """Return where in `nodes` each node that occurs there stands with its first entry.

        The first by (start, job).
        """
        job, start = self.entries.job, self.entries.start
        if len(self.node_start):
            latest_first = np.lexsort((job[self.rows()], self.node_start))[::-1]
        else:
            latest_first = self.ragged.places(np.lexsort((job, start))[::-1]).values
        first = np.full(int(self.nodes.max(initial=-1)) + 1, -1, np.int64)
        first[self.nodes[latest_first]] = latest_first  # the last of several stays
        return read_only(first[first >= 0])

    def first_entries(self, nodes: int) -> NDArray[np.int64]:
        """Return int64[nodes]: the entry that is first on each node, by (start, job); -1: none."""
        first = np.full(nodes, -1, np.int64)
        first[self.nodes[self.first_places]] = self.ragged.rows_at(self.first_places)
        return first

    def first_starts(self, nodes: int) -> NDArray[np.float64]:
        """Return float64[nodes]: the first planned start on each node, epoch seconds; inf: none."""
        first = np.full(nodes, np.inf)
        first[self.nodes[self.first_places]] = self.starts()[self.first_places]
        return first

    def first_everywhere(self) -> NDArray[np.bool_]:
        """Return bool[n]: which entries are first on all of their nodes."""
        count = np.bincount(self.ragged.rows_at(self.first_places), minlength=len(self))
        return np.equal(count, self.ragged.lengths)

    def take(self, rows: NDArray[np.int64]) -> Schedule:
        """Return the schedule of some of the entries, in the given order."""
        indptr, chosen = self.ragged.places(rows)
        fractions = self.fractions[chosen] if len(self.fractions) else self.fractions
        starts = self.node_start[chosen] if len(self.node_start) else self.node_start
        taken = self.entries.take(rows)
        return Schedule(taken, indptr, self.nodes[chosen], fractions, self.preemptive, starts)

    @classmethod
    def joined(cls, parts: Sequence[Schedule]) -> Schedule:
        """Return the entries of all parts in one schedule; undivided ones share equally."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls.empty()
        if len(parts) == 1:
            return parts[0]
        divided = any(len(part.fractions) for part in parts)
        staggered = any(len(part.node_start) for part in parts)
        whole = cls.build(
            np.concatenate([part.entries.job for part in parts]),
            np.concatenate([part.entries.start for part in parts]),
            np.concatenate([part.entries.end for part in parts]),
            offsets_of(np.concatenate([part.ragged.lengths for part in parts])),
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([part.shares() for part in parts]) if divided else None,
            np.concatenate([part.starts() for part in parts]) if staggered else None,
            np.concatenate([part.entries.rounds for part in parts]),
        )
        return replace(whole, preemptive=any(part.preemptive for part in parts))


_EMPTY = Schedule(Entries.build(0), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))


class Commitment(IntEnum):
    """How far a promise has come."""

    PROVISIONAL = 0
    """Made at submission; lapses unless the job appears."""
    FIRM = 1
    """The job is in the queue or runs."""


class Promises(Table):
    """One row per promise: this job will finish by this deadline."""

    job = Column(np.int64, -1, "Job id.")
    deadline = Column(np.float64, np.inf, "Finish by, seconds since the epoch.")
    made_at = Column(np.float64, np.nan, "When it was given, seconds since the epoch.")
    commitment = Column(np.int8, Commitment.FIRM, "A `Commitment`.")


class PlanRows(NamedTuple):
    """Entries of a plan; each has all its nodes from its start to its end."""

    row: NDArray[np.int64]
    """int64[n]: the jobs, as rows of the workload."""
    start: NDArray[np.float64]
    """float64[n], seconds since the epoch."""
    end: NDArray[np.float64]
    """float64[n], seconds since the epoch."""
    indptr: NDArray[np.int64]
    """int64[n + 1]: entry i has the nodes `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]
    """int32[k]: rows of `Cluster.nodes`."""

    def take(self, entries: NDArray[np.int64]) -> PlanRows:
        """Return some of the entries."""
        nodes = Ragged(self.indptr, self.nodes).take(entries)
        row, start, end = self.row[entries], self.start[entries], self.end[entries]
        return PlanRows(row, start, end, nodes.offsets, nodes.values)


NO_PLAN = PlanRows(
    np.empty(0, np.int64), np.empty(0), np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int32)
)
"""The plan of nobody."""
