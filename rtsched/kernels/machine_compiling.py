"""Compile the parts of a machine's event loop: without reference counting, inlined into the loop.

A machine's state is a tuple of two dozen arrays. Handing it from function to function would count
references and copy the tuple at each call, several times the cost of the work itself. The loop
allocates nothing, so neither is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from rtsched.kernels.compiling import numba, watched

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_OPTIONS: dict[str, Any] = {"cache": True, "_nrt": False, "error_model": "numpy"}
_INSIDE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""A part is called by compiled code only: making it callable otherwise is half the work."""


def part(kernel: F) -> F:
    """Return `kernel` compiled as a part of what calls it, or as it is without numba."""
    return _compiled(kernel, forceinline=True, **_INSIDE)


def inlined(kernel: F) -> F:
    """Return `kernel` as a part whose source is put where it is called, once; or as it is."""
    return _compiled(kernel, inline="always", **_INSIDE)


def outline(kernel: F) -> F:
    """Return `kernel` compiled as a function of its own, for what is long or called rarely."""
    return _compiled(kernel, **_INSIDE)


def entry(kernel: F) -> F:
    """Return `kernel` compiled to be called from Python."""
    return _compiled(kernel)


def _compiled(kernel: F, **more: Any) -> F:
    if numba is None:
        return kernel
    return cast("F", watched(numba.njit(**_OPTIONS, **more)(kernel)))
