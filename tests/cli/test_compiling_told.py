"""While numba compiles, who watches a bar is told so."""

import numpy as np
import pytest

from rtsched.cli.common import compiling_told

numba = pytest.importorskip("numba")


def test_compiling_is_told_once_however_many_functions_it_takes() -> None:
    """One function calls another: begun and ended once; compiled, it says nothing more."""

    @numba.njit
    def twice(x: float) -> float:
        return 2.0 * x

    @numba.njit
    def total(values: np.ndarray) -> float:
        found = 0.0
        for value in values:
            found += twice(value)
        return found

    told: list[bool] = []
    with compiling_told(told.append):
        assert total(np.array([1.0, 2.5])) == 7.0
        assert told == [True, False]
        assert total(np.array([1.0])) == 2.0
    assert told == [True, False]


def test_nothing_is_told_afterwards() -> None:
    """The listener is gone when the step has ended."""

    @numba.njit
    def half(x: float) -> float:
        return x / 2.0

    told: list[bool] = []
    with compiling_told(told.append):
        pass
    assert half(3.0) == 1.5
    assert told == []
