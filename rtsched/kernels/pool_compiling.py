"""Compile the parts of a pool's event loop: without reference counting, inlined into the loop.

A pool is a tuple of two dozen arrays. Handing it from function to function would count references
and copy the tuple at each call, several times the cost of the work itself. The loop allocates
nothing, so neither is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from rtsched.kernels.compiling import numba

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

OPTIONS: dict[str, Any] = {"cache": True, "_nrt": False, "error_model": "numpy"}
"""How the loop and its parts are compiled."""


def part(kernel: F) -> F:
    """Return `kernel` compiled as a part of the loop that calls it, or as it is without numba."""
    if numba is None:
        return kernel
    return cast("F", numba.njit(forceinline=True, **OPTIONS)(kernel))


def outline(kernel: F) -> F:
    """Return `kernel` compiled as a function of its own, for what is called rarely."""
    if numba is None:
        return kernel
    return cast("F", numba.njit(**OPTIONS)(kernel))
