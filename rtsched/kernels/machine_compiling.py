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

ABSENT: Any = None
"""A part of its state that a machine does not have (`only_with`)."""


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


def only_with(field: str, otherwise: Any = None) -> Callable[[F], F]:
    """Return a decorator for a kernel that only some machines need: those with a part of the state.

    For machines whose `field` is `ABSENT` it is not compiled; their loop never comes to call it,
    and has `otherwise` in its place. So the loop of machines that neither share nodes nor preempt
    is small, and loading it, which is most of the start of a replay, is quick.
    """

    def offered(kernel: F) -> F:
        if numba is None:
            return kernel

        def nothing(_machine: Any, *_: Any) -> Any:
            return otherwise

        def choose(machine: Any, *_: Any) -> Callable[..., Any]:
            part_of_state = machine.types[machine.fields.index(field)]
            return nothing if part_of_state == numba.types.none else kernel

        options = {**_OPTIONS, **_INSIDE, "cache": False}  # what calls it is kept on disk with it
        numba.extending.overload(kernel, jit_options=options, strict=False)(choose)
        return kernel

    return offered


def _compiled(kernel: F, **more: Any) -> F:
    if numba is None:
        return kernel
    return cast("F", watched(numba.njit(**_OPTIONS, **more)(kernel)))
