"""The compiled form of a hook, for replays that ask a state-dependent plug-in a million times.

A plug-in may offer, besides a hook's Python form, the kernel that this form calls. A simulated
system then calls the kernel from its own compiled loop, at the same instants, with the same
arrays; both forms must answer alike (the conformance test compares them).

The plug-in offers it by a method that it declares, `Capabilities(compiled_hooks=self.METHOD)`:

    def METHOD(
        self, jobs: Jobs, accounts: Accounts, cluster: Cluster, origin: float
    ) -> Mapping[str, CompiledHook]

The answer maps `"fair_share"` and `"observe"` to a `CompiledHook` each, both with the same `state`
array, as it is before the first event. `jobs` are all jobs of the run, and the `rows` that a
kernel is called with are theirs. Times are seconds relative to `origin`; the codes in
`association`, `partition` and `qos` are those of `jobs`, so look-up tables are made from its
names. A plug-in that cannot answer this run in compiled form returns an empty mapping.

Two more forms are called once per question of a replay, about jobs as rows of its workload. They
are prepared as named tuples whose type says which kernel is called. A planner's test of rows
(`RowTest`) says whether a submission is accepted, and by which plan. A placer of rows (`RowPlacer`)
keeps what it must remember in arrays of its own, is told of each event, and says on which nodes
each waiting job is to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from rtsched.kernels.compiling import COMPILING, numba, watched

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.verdicts import Verdicts

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]

    Nodes: TypeAlias = NDArray[np.int32]


class JobColumns(NamedTuple):
    """The columns that compiled hooks see; all of one length, times relative to the origin."""

    submit: NDArray[np.float64]
    wall_time: NDArray[np.float64]
    deadline: NDArray[np.float64]
    nice: NDArray[np.float64]
    billed: NDArray[np.float64]
    size: NDArray[np.int32]
    association: NDArray[np.int32]
    partition: NDArray[np.int32]
    qos: NDArray[np.int32]


_RECORD = np.dtype(
    [(name, np.float64) for name in JobColumns._fields[:5]]
    + [(name, np.int32) for name in JobColumns._fields[5:]]
)
_TIMES = ("submit", "deadline")


def job_columns(jobs: Any, origin: float = 0.0) -> JobColumns:
    """Return the columns of `jobs` (a `Jobs`) as kernels take them, times relative to `origin`.

    They are fields of one record array, so that one compiled form fits whatever the arrays behind
    `jobs` look like. A table of fewer than two rows is padded.
    """
    records = np.zeros(max(len(jobs), 2), _RECORD)
    for name, values in job_arrays(jobs, origin)._asdict().items():
        records[name][: len(jobs)] = values
    records.flags.writeable = False
    return JobColumns(*(records[name] for name in JobColumns._fields))


def job_arrays(jobs: Any, origin: float = 0.0) -> JobColumns:
    """Return the same as the arrays behind `jobs`, of which only the times are copied.

    A compiled loop takes them one by one, whatever they look like; a kernel does not.
    """
    arrays: dict[str, NDArray[Any]] = {name: getattr(jobs, name) for name in JobColumns._fields}
    arrays |= {name: _relative(arrays[name], origin) for name in _TIMES}
    return JobColumns(**arrays)


def _relative(times: NDArray[np.float64], origin: float) -> NDArray[np.float64]:
    """Return times relative to `origin`; a column of one value stays one value in memory."""
    if len(times) and times.strides == (0,):
        return np.broadcast_to(times[0] - origin, times.shape)
    return times - origin


class CompiledHook(NamedTuple):
    """A kernel and what it is called with.

    Attributes
    ----------
    kernel : callable
        `FAIR_SHARE`: `kernel(now, rows, columns, params, tables, state, out) -> abstained`, which
        fills `out[i]` with the priority of job `rows[i]` and returns on how many rows it had no
        opinion; `OBSERVE`: `kernel(time, kind, row, size, columns, params, tables, state)`.
        Times are seconds relative to the origin; `kind` is an `EventKind`.
    params : float64[p]
        Settings.
    tables : float64[r, c]
        Look-up tables, not written to.
    state : float64[r, c]
        What the plug-in remembers; the same array for all hooks of one plug-in.
    """

    kernel: Callable[..., Any]
    params: NDArray[np.float64]
    tables: NDArray[np.float64]
    state: NDArray[np.float64]


if COMPILING:
    from numba import types

    def _strided(kind: object) -> object:
        return types.Array(kind, 1, "A", readonly=True)

    _COLUMNS = types.NamedTuple(
        [_strided(types.float64)] * 5 + [_strided(types.int32)] * 4, JobColumns
    )
    _LINE, _TABLE = types.float64[::1], types.float64[:, ::1]
    FAIR_SHARE: Any = types.FunctionType(
        types.int64(types.float64, types.int64[::1], _COLUMNS, _LINE, _TABLE, _TABLE, _LINE)
    )
    OBSERVE: Any = types.FunctionType(
        types.void(
            types.float64,
            types.int64,
            types.int64,
            types.int64,
            _COLUMNS,
            _LINE,
            _TABLE,
            _TABLE,
        )
    )
else:
    FAIR_SHARE = OBSERVE = None


def compiled_hook(form: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles a kernel as the compiled form `FAIR_SHARE` or `OBSERVE`."""

    def decorate(kernel: Callable[..., Any]) -> Callable[..., Any]:
        if form is None:
            return kernel
        import numba

        dispatcher = watched(numba.njit(cache=True)(kernel))
        dispatcher.compile(form.signature)
        dispatcher.disable_compile()
        compiled: Callable[..., Any] = dispatcher
        return compiled

    return decorate


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
