"""A planner's test of rows: the form in which a replay's compiled loop asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from rtsched.kernels.compiling import numba

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.verdicts import Verdicts

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


F = TypeVar("F", bound=Callable[..., "RowPlan"])
G = TypeVar("G", bound=Callable[..., "RowRejection"])


class RowPlan(NamedTuple):
    """What a test of rows finds: a plan of the jobs that it was asked about, in their order."""

    accepted: bool
    start: Floats
    """float64[n], seconds since the epoch; meaningless if it was not accepted, as all below."""
    end: Floats
    """float64[n], seconds since the epoch."""
    indptr: Integers
    """int64[n + 1]: job i has the nodes `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]
    """int32[k]"""
    failed: int
    """If a new job was not accepted: which of the jobs would be late, the new one the last."""


class RowRejection(NamedTuple):
    """What is said to a job that a test of rows does not accept."""

    needed: float
    """Its least run time, seconds, if it would be late on an idle cluster; else nan."""
    offer: float
    """A later deadline that would be accepted, seconds since the epoch; inf: none is known."""


class RejectedRows(NamedTuple):
    """Jobs that a replay's loop rejected, in that order; one place per rejection."""

    row: Integers
    """int64[n]: rows of the workload."""
    at: Floats
    """float64[n]: when, seconds since the epoch."""
    failed: Integers
    """int64[n]: row of the promised job that would be late; -1: it would be late itself."""
    promised: Integers
    """int64[n]: promised jobs that waited."""
    free: Integers
    """int64[n]: nodes on which nothing ran."""
    needed: Floats
    """As `RowRejection.needed`, float64[n]."""
    offer: Floats
    """As `RowRejection.offer`, float64[n]."""


class RowTest(NamedTuple):
    """A planner's compiled test, prepared for the jobs of a workload.

    Attributes
    ----------
    prepared : named tuple
        What the test knows, with arrays that are contiguous; its type says which kernel is called
        (`plans_rows`).
    usable : int
        For how many nodes in service it was prepared; with others, the planner is asked.
    direct : bool[n]
        The jobs of the workload of which an accepted test decides; for others it is asked.
    final : bool[n] or None
        Those of them to whom, if they are not accepted, nothing is said beyond `RowRejection`;
        about others, or with None all, `ReplayPlanner.judge` is asked.
    verdicts : callable or None
        Returns why the loop rejected some of them, one row each, as `ReplayPlanner.judge` would.
    """

    prepared: Any
    usable: int
    direct: NDArray[np.bool_]
    final: NDArray[np.bool_] | None = None
    verdicts: Callable[[RejectedRows], Verdicts] | None = None


_KERNELS: dict[type, Callable[..., RowPlan]] = {}
_REJECTIONS: dict[type, Callable[..., RowRejection]] = {}


def plans_rows(prepared: type) -> Callable[[F], F]:
    """Return a decorator for the kernel of tests that are prepared as named tuples of this type.

    The kernel is in the subset of Python that numba compiles, and is called as
    `kernel(prepared, rows, begun, new, now, held_until) -> RowPlan`, about jobs that are planned
    (int64[n], rows of the workload) to start at `begun` (float64[n]), and about a new one, the last
    of the answer; -1: there is none, and only a better plan is accepted. `now` and `held_until` are
    as `ReplayPlanner.judge` is given them. All times are seconds since the epoch.
    """

    def registered(kernel: F) -> F:
        _KERNELS[prepared] = kernel
        return kernel

    return registered


def rejects_rows(prepared: type) -> Callable[[G], G]:
    """Return a decorator for the kernel that says why tests that are prepared so reject a job.

    It is called as `kernel(prepared, rows, new, now, held_until) -> RowRejection`, as that of
    `plans_rows` was, about a job that this did not accept.
    """

    def registered(kernel: G) -> G:
        _REJECTIONS[prepared] = kernel
        return kernel

    return registered


def kernel_of(prepared: type) -> Callable[..., RowPlan]:
    """Return the kernel of tests that are prepared so; KeyError: there is none."""
    return _KERNELS[prepared]


def planned_rows(prepared: Any, *question: Any) -> RowPlan:
    """Call the kernel of a test that was prepared so; in compiled code too."""
    return _KERNELS[type(prepared)](prepared, *question)


def rejected_row(prepared: Any, *question: Any) -> RowRejection:
    """Call the kernel that says why such a test rejects a job; in compiled code too."""
    return _REJECTIONS[type(prepared)](prepared, *question)


if numba is not None:

    @numba.extending.overload(planned_rows, strict=False)  # type: ignore[untyped-decorator]
    def _planned_rows(prepared: Any, *_: Any) -> Callable[..., RowPlan]:
        return _KERNELS[prepared.instance_class]

    @numba.extending.overload(rejected_row, strict=False)  # type: ignore[untyped-decorator]
    def _rejected_row(prepared: Any, *_: Any) -> Callable[..., RowRejection]:
        def nothing(_prepared: Any, _rows: Any, _new: Any, _now: Any, _held: Any) -> RowRejection:
            return RowRejection(np.nan, np.inf)

        return _REJECTIONS.get(prepared.instance_class, nothing)
