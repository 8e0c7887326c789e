"""The positional scan as loops: by hand, and equal to the scan over whole arrays."""

from __future__ import annotations

import numpy as np
import pytest

from rtsched_plugins.kernels.scan_rows import (
    FIRST,
    INDEX,
    MAJORITY,
    PROPORTIONAL,
    quotient,
    room_beside,
    tasks_placed,
)
from rtsched_plugins.kernels.scans import placed, room


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return an array of int64."""
    return np.array(values, np.int64)


def test_quotient() -> None:
    """It is exact where the product does not fit 64 bits; 0 where it is divided by 0."""
    assert quotient(7, 3, 2, False) == 10
    assert quotient(7, 3, 2, True) == 11
    assert quotient(7, 3, 0, True) == 0
    big = (1 << 51) - 1
    assert quotient(big, big, big, False) == big
    assert quotient(big, big - 1, big, True) == big - 1
    assert quotient(big, 3, 7, True) == -(-big * 3 // 7)


def test_room_beside_what_stays() -> None:
    """10 units on three nodes of which one is full: each of the others ends at 7."""
    assert room_beside(10, ints(4, 0, 9), ints(1, 1, 1)).tolist() == [3, 7, 0]
    assert room_beside(6, ints(0, 0), ints(2, 1)).tolist() == [4, 2]


def test_tasks_go_where_most_of_their_units_go() -> None:
    """Three tasks of 2 units on the first of two nodes: 3 units each, the second task is split.

    Its units go half to either node; of equal ones it goes to the lower, or where its first is.
    """
    where = (ints(2), ints(0, 0, 0), ints(2, 2, 2), ints(1, 1))
    assert tasks_placed(*where, MAJORITY, INDEX).tolist() == [0, 0, 1]
    assert tasks_placed(*where, FIRST, INDEX).tolist() == [0, 0, 1]
    where = (ints(2), ints(0, 0), ints(1, 5), ints(1, 1))
    assert tasks_placed(*where, MAJORITY, INDEX).tolist() == [0, 1]
    assert tasks_placed(*where, FIRST, INDEX).tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_equal_to_the_scan_of_arrays(seed: int) -> None:
    """On random grids, with work that stays and nodes without power, by every rule."""
    rng = np.random.default_rng(seed)
    for most in (3, 50, 10**7):
        shape = rng.integers(1, 6, rng.integers(1, 4))
        n, tasks = int(np.prod(shape)), int(rng.integers(1, 12))
        owner, units = rng.integers(0, n, tasks), rng.integers(1, most, tasks)
        fixed, power = rng.integers(0, most, n), rng.integers(0, 4, n)
        power[rng.integers(n)] = 1
        target = room(int(units.sum()), fixed, power)
        assert room_beside(int(units.sum()), fixed, power).tolist() == target.tolist()
        for rule, name in ((MAJORITY, "majority"), (FIRST, "first")):
            for leave, which in ((INDEX, "index"), (PROPORTIONAL, "proportional")):
                expected = placed(
                    shape.tolist(),
                    owner,
                    units,
                    target,
                    rule=name,
                    leave=which,  # type: ignore[arg-type]
                )
                found = tasks_placed(shape, owner, units, target, rule, leave)
                assert found.tolist() == expected.tolist()
