"""Compile what neither allocates nor keeps an array, without counting references.

A compiled function counts itself among the users of each array that it is given, for as long as
it runs: an atomic operation or two per array. In the admission test, which calls small functions
with a dozen arrays at every step, that took more than half of the time. A function whose caller
holds the arrays meanwhile need not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from rtsched.kernels.compiling import numba, watched

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def no_refcount(kernel: F) -> F:
    """Return `kernel` as `compiled` does; it must not make arrays or lists, nor be given lists."""
    if numba is None:
        return kernel
    return cast("F", watched(numba.njit(cache=True, _nrt=False)(kernel)))
