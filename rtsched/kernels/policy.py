"""Policies: the compiled part of a plug-in, which a replay's loop calls without a stop.

A replay that asks a plug-in a million times spends most of its time between compiled calls. So a
plug-in may have, besides a hook's Python form, kernels for it. What they know and remember about
the jobs of one workload is a named tuple of numbers, arrays and further such tuples: the policy.
Its type says which kernels are called (`policy_kernels`). Both forms must answer alike; the
conformance test compares them.

A plug-in that orders or places jobs offers it by a method that it declares,
`Capabilities(compiled_policy=self.METHOD)`:

    def METHOD(self, jobs: Jobs, accounts: Accounts, cluster: Cluster, origin: float)

The answer is the policy as it is before the first event, or None where there is none for this run.
`jobs` are all jobs of the run; kernels are called about rows of them. The codes in `association`,
`partition` and `qos` are those of `jobs`, so look-up tables are made from its names.

Arrays are contiguous. Those that kernels change are writable; an interrupted replay goes on with
what they had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import numba

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


ABSTAIN, ADMIT, REJECT = 0, 1, 3
"""What `admit` may say; as in `rtsched.api.Verdict`."""


class JobColumns(NamedTuple):
    """Columns of all jobs that policies want most; times relative to the origin."""

    submit: NDArray[np.float64]
    wall_time: NDArray[np.float64]
    deadline: NDArray[np.float64]
    nice: NDArray[np.float64]
    billed: NDArray[np.float64]
    size: NDArray[np.int32]
    association: NDArray[np.int32]
    partition: NDArray[np.int32]
    qos: NDArray[np.int32]


def job_columns(jobs: Any, origin: float = 0.0) -> JobColumns:
    """Return the columns of `jobs` (a `Jobs`) for kernels, not copied where that can be.

    All are contiguous and not to be written to, so that one compiled form fits.
    """
    columns = {name: getattr(jobs, name) for name in JobColumns._fields}
    columns |= {name: columns[name] - origin for name in ("submit", "deadline")}
    arrays = JobColumns._make(map(np.ascontiguousarray, columns.values()))
    for array in arrays:
        array.flags.writeable = False
    return arrays


class RowPlan(NamedTuple):
    """What a policy says of jobs: a plan of those that it was asked about, in their order."""

    code: int
    """`ADMIT`; `REJECT`: for good; `ABSTAIN`: the planner itself is asked."""
    start: Floats
    """float64[n], seconds since the epoch. Counts if it is admitted, as all but `failed`."""
    end: Floats
    """float64[n], seconds since the epoch."""
    indptr: Integers
    """int64[n + 1]: job i has the nodes `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]
    """int32[k]"""
    failed: int
    """Which of the jobs would be late, the new one the last; -1: none, or it was not tried."""


class RowRejection(NamedTuple):
    """What is said to a job that a policy rejects."""

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


def _no_rejection(
    _policy: Any, _rows: Integers, _new: int, _now: float, _held_until: Floats
) -> RowRejection:
    return RowRejection(np.nan, np.inf)


class Kernels(NamedTuple):
    """The kernels of a policy; None: it has no such one."""

    rank: Callable[..., int] | None = None
    observe: Callable[..., None] | None = None
    place: Callable[..., None] | None = None
    admit: Callable[..., RowPlan] | None = None
    reject: Callable[..., RowRejection] = _no_rejection


_KERNELS: dict[type, Kernels] = {}


def policy_kernels(kind: type, **kernels: Callable[..., Any]) -> None:
    """Name the kernels of policies of this type, a `NamedTuple`.

    All are in the subset of Python that numba compiles. Jobs are rows of the workload. Times of the
    first three are seconds relative to the origin, those of the last two since the epoch.

    `rank(policy, now, rows, out)`: fill in the priorities (float64[k]) of the jobs that wait
    (int64[k]), higher is sooner; return on how many it has no opinion.

    `observe(policy, time, kind, row, size, nodes)`: one event, an `EventKind`. `nodes` (int32[m])
    are, for a policy that places jobs, those on which a job that started runs; none if it has ended
    meanwhile.

    `place(policy, now, rows, out)`: fill in the node set (int64[k]) of each job that waits
    (int64[k], ascending), its row of the policy's field `node_sets`, a `Ragged` of int32, most
    wanted node first; -1: no opinion.

    `admit(policy, rows, begun, new, now, held_until) -> RowPlan`: plan jobs that were planned
    (int64[n]) to start at `begun` (float64[n]), and a new one, the last of the answer; -1: there is
    none, and only a better plan is admitted. `now` and `held_until` as in `ReplayPlanner.judge`.

    `reject(policy, rows, new, now, held_until) -> RowRejection`: what is said to a job that `admit`
    did not admit. Default: nothing.

    Raises
    ------
    TypeError
        If there is no such kernel.
    """
    _KERNELS[kind] = Kernels(**kernels)


def kernels_of(policy: Any) -> Kernels:
    """Return the kernels of a policy, or of policies of one type; none of what is no policy."""
    return _KERNELS.get(policy if isinstance(policy, type) else type(policy), Kernels())


def changing(policy: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of a policy that kernels may change."""
    if isinstance(policy, np.ndarray):
        if policy.flags.writeable:
            yield policy
    elif isinstance(policy, tuple):
        for field in policy:
            yield from changing(field)


_OWN = {"_nrt": True, "error_model": "python", "forceinline": False}
"""How kernels are compiled, however the loop is that calls them."""


def _caller(name: str) -> Callable[..., Any]:
    """Return a function that calls the policy's kernel of that name; in compiled code too."""

    def call(policy: Any, *arguments: Any) -> Any:
        return getattr(kernels_of(policy), name)(policy, *arguments)

    if numba is not None:

        @numba.extending.overload(call, jit_options=_OWN, strict=False)  # type: ignore[untyped-decorator]
        def _chosen(policy: Any, *_: Any) -> Callable[..., Any] | None:
            kernel: Callable[..., Any] | None = getattr(kernels_of(policy.instance_class), name)
            return kernel

    return call


rank, observe, place, admit, reject = map(_caller, Kernels._fields)
"""Call a policy's kernel; see `policy_kernels`."""
