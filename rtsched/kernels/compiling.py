"""Compile kernels where numba is installed; run the same source plainly where it is not.

Numba is an optional dependency: a head node's minimal install does without it. A kernel is
therefore written in the subset of Python that numba compiles and stays the readable reference
of its own compiled form: `plain(kernel)` returns it, and tests compare the two.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

numba: Any = None
if os.environ.get("RTSCHED_COMPILE", "1") != "0":
    with contextlib.suppress(ImportError):
        numba = importlib.import_module("numba")

COMPILING: bool = numba is not None
"""Whether kernels are compiled in this process (`RTSCHED_COMPILE=0` turns it off)."""


def compiled(kernel: F) -> F:
    """Return `kernel` compiled by numba, cached on disk, or as it is without numba."""
    if numba is None:
        return kernel
    return cast("F", numba.njit(cache=True)(kernel))


def plain(kernel: F) -> F:
    """Return the uncompiled source function of a kernel (the kernel itself without numba)."""
    return cast("F", getattr(kernel, "py_func", kernel))
