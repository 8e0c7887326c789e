"""A placer of rows: the form in which a replay's compiled loop asks who places waiting jobs.

It keeps what it must remember in arrays of its own, is told of each event, and says on which nodes
each waiting job is to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rtsched.kernels.compiling import numba

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Nodes: TypeAlias = NDArray[np.int32]


class RowPlacer(NamedTuple):
    """A plug-in's compiled observing and placing, prepared for the jobs of a workload.

    Attributes
    ----------
    prepared : named tuple
        What its kernels know and remember, with arrays that are contiguous and that they change;
        its type says which kernels are called (`places_rows`).
    node_sets : tuple of int32[k]
        The node sets that it may answer, most wanted node first.
    """

    prepared: Any
    node_sets: tuple[Nodes, ...]


_OBSERVE: dict[type, Callable[..., None]] = {}
_PLACE: dict[type, Callable[..., None]] = {}


def places_rows(prepared: type, observe: Callable[..., None], place: Callable[..., None]) -> None:
    """Name the kernels of placers that are prepared as named tuples of this type.

    Both are in the subset of Python that numba compiles.
    `observe(prepared, time, kind, row, nodes)` is told of one event: its time in seconds since the
    epoch, its `EventKind`, the job as a row of the workload, and if it is about a start the nodes
    on which the job runs (int32[k]; none if it has ended meanwhile).
    `place(prepared, now, rows, out)` is asked at `now`, seconds since the epoch, about all jobs
    that wait (int64[k], rows of the workload, ascending) and fills in the node set of each, its
    place in `RowPlacer.node_sets`, in `out` (int64[k]); -1: no opinion.
    """
    _OBSERVE[prepared], _PLACE[prepared] = observe, place


def kernels_of(prepared: type) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return both kernels of placers that are prepared so; KeyError: there are none."""
    return _OBSERVE[prepared], _PLACE[prepared]


def observe_row(prepared: Any, *event: Any) -> None:
    """Tell a placer that was prepared so of an event; in compiled code too."""
    _OBSERVE[type(prepared)](prepared, *event)


def place_rows(prepared: Any, *question: Any) -> None:
    """Ask a placer that was prepared so; in compiled code too."""
    _PLACE[type(prepared)](prepared, *question)


if numba is not None:

    @numba.extending.overload(observe_row, strict=False)  # type: ignore[untyped-decorator]
    def _observe_row(prepared: Any, *_: Any) -> Callable[..., None]:
        return _OBSERVE[prepared.instance_class]

    @numba.extending.overload(place_rows, strict=False)  # type: ignore[untyped-decorator]
    def _place_rows(prepared: Any, *_: Any) -> Callable[..., None]:
        return _PLACE[prepared.instance_class]
