"""The compiled form of a hook, for replays that ask a state-dependent plug-in a million times.

A plug-in may offer, besides a hook's Python form, the kernel that this form calls. A simulated
system then calls the kernel from its own compiled loop, at the same instants, with the same
arrays; both forms must answer alike (the conformance test compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.kernels.compiling import COMPILING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


class JobColumns(NamedTuple):
    """The columns that compiled hooks see; all of one length, times relative to the origin."""

    submit: NDArray[np.float64]
    wall_time: NDArray[np.float64]
    deadline: NDArray[np.float64]
    nice: NDArray[np.float64]
    size: NDArray[np.int32]
    association: NDArray[np.int32]
    partition: NDArray[np.int32]
    qos: NDArray[np.int32]


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
        [_strided(types.float64)] * 4 + [_strided(types.int32)] * 4, JobColumns
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

        compiled: Callable[..., Any] = numba.njit(form.signature, cache=True)(kernel)
        return compiled

    return decorate
