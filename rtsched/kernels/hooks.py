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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.compiling import COMPILING, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


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
