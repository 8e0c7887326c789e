"""Who runs where and when: the plan, and what runs now; and the promises behind the plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Self

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.table import Column, Table, read_only

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Entries(Table):
    """One row per job of a schedule. Times are seconds since the epoch."""

    job = Column(np.int64, -1, "Job id.")
    start = Column(np.float64, np.nan, "When it starts or started.")
    end = Column(np.float64, np.nan, "When it ends at the latest, by its requested run time.")
    size = Column(np.int32, 0, "Nodes it takes.")


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
    """

    entries: Entries
    indptr: NDArray[np.int64]
    nodes: NDArray[np.int32]
    fractions: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.indptr.shape != (len(self.entries) + 1,):
            raise ShapeError(f"{len(self.entries)} entries with node offsets {self.indptr.shape}")
        if len(self.fractions) not in {0, len(self.nodes)}:
            raise ShapeError(f"{len(self.fractions)} fractions for {len(self.nodes)} nodes")
        for array in (self.indptr, self.nodes, self.fractions):
            read_only(array)

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
    ) -> Self:
        """Return a schedule; sizes follow from the node offsets."""
        size = np.diff(indptr).astype(np.int32)
        entries = Entries.build(len(size), job=job, start=start, end=end, size=size)
        return cls(entries, indptr, nodes, np.empty(0) if fractions is None else fractions)

    def __len__(self) -> int:
        return len(self.entries)

    def nodes_of(self, row: int) -> NDArray[np.int32]:
        """Return the nodes of one entry."""
        return self.nodes[self.indptr[row] : self.indptr[row + 1]]


_EMPTY = Schedule(Entries.build(0), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))


class Standing(IntEnum):
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
    standing = Column(np.int8, Standing.FIRM, "A `Standing`.")
