"""Kernels that only some machines need are compiled only for these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from rtsched.kernels.compiling import ABSENT, COMPILING, only_with

if TYPE_CHECKING:
    from numpy.typing import NDArray


class State(NamedTuple):
    """A machine's state of two parts, of which one may be absent."""

    always: NDArray[np.int64]
    sometimes: NDArray[np.int64]


@only_with("sometimes", -1)
def kept(machine: Any, at: int) -> int:
    """Return what a part keeps at a place."""
    return int(machine.sometimes[at])


def read(machine: Any) -> int:
    """Return what the second part keeps, if the first says that there is one."""
    return kept(machine, 1) if machine.always[0] else 0


@pytest.mark.skipif(not COMPILING, reason="numba compiles nothing in this process")
def test_without_its_part_of_the_state_a_kernel_is_not_compiled() -> None:
    """Such a state has no array to read: compiling the kernel for it would fail."""
    import numba

    compiled = numba.njit(read)
    assert compiled(State(np.array([1]), np.array([5, 6]))) == 6
    assert compiled(State(np.array([0]), ABSENT)) == 0
    assert compiled(State(np.array([1]), ABSENT)) == -1


def test_python_calls_the_kernel_as_it_is() -> None:
    """The plain source stays the reference of its compiled form."""
    assert kept(State(np.array([1]), np.array([5, 6])), 0) == 5
