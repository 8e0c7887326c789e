"""Delay classes: which delays there are, who may be mapped where, and what a migration costs."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.errors import ShapeError
from rtsched.kernels.delays import delay, migration_pause, slowest, slowness
from rtsched_plugins.kernels.delay_classes import (
    availability,
    choose_class,
    class_bounds,
    take,
    thresholds,
)

FACTORS = st.lists(st.integers(20, 200).map(lambda k: Fraction(k, 20)), min_size=1, max_size=12)


def test_slowness_is_relative_to_the_fastest() -> None:
    """Speeds 1/49 and 1/3 make delays that are whole numbers."""
    factors = slowness(np.array([1.0, 1 / 3, 1 / 49]))
    assert delay(factors, 2).tolist() == [2.0, 6.0, 98.0]
    assert slowness(np.array([8.0, 2.0])).tolist() == [1.0, 4.0]
    assert not len(slowness(np.empty(0)))
    with pytest.raises(ValueError, match="must be above 0"):
        slowness(np.array([1.0, 0.0]))


def test_classes_of_the_worked_example() -> None:
    """Machines of slowness 1 and 4 make the classes 1, 2, 3 and 4."""
    assert class_bounds(np.array([1.0] * 5 + [4.0] * 25)).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert class_bounds(np.array([1.0, 1.5, 4.0])).tolist() == [1.0, 1.5, 2.0, 3.0, 4.0]
    assert class_bounds(np.empty(0)).tolist() == []


def test_too_many_classes_are_refused() -> None:
    """A node that is ten million times slower is a mistake, not a class."""
    with pytest.raises(ShapeError, match="too many delay classes"):
        class_bounds(np.array([1.0, 1e7]))


@given(FACTORS)
def test_classes_are_the_multiples_of_the_factors(factors: list[Fraction]) -> None:
    """No class is missing, none is there twice: as rational numbers give them."""
    factors = [factor / min(factors) for factor in factors]
    exact = {k * a for a in factors for k in range(1, int(max(factors) / a) + 1)}
    found = class_bounds(slowness(np.array([float(1 / a) for a in factors])))
    assert found.tolist() == pytest.approx([float(value) for value in sorted(exact)], rel=1e-8)


@given(FACTORS, st.integers(1, 40))
def test_equal_delays_compare_as_equal(factors: list[Fraction], processes: int) -> None:
    """A product of the same value is the same number, however it came about."""
    for one in factors:
        for other in factors:
            if (processes * one / other).denominator == 1:
                count = int(processes * one / other)
                left = delay(np.array([float(one)]), processes)
                assert left == delay(np.array([float(other)]), count)


def test_threshold_is_the_least_delay_on_a_node() -> None:
    """Where nobody runs it is the slowest node's slowness."""
    found = thresholds(4, 9.0, np.array([0, 1, 1], np.int32), np.array([4.0, 4.0, 2.0]))
    assert found.tolist() == [4.0, 2.0, 9.0, 9.0]


def test_availability_counts_up_to_each_class() -> None:
    """A node between two classes counts for the slower one, beyond the last one for none."""
    found = availability(np.array([1.0, 1.2, 4.0, 5.0]), np.array([1.0, 2.0, 4.0]))
    assert found.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("available", "least", "most", "chosen"),
    [
        ([5, 5, 5, 30], 3, 30, 3),  # 1/5, 4/25 and 4/30: the widest
        ([0, 5, 5, 5], 3, 30, 1),  # 2/5 is the least
        ([0, 0, 0, 0], 1, 30, -1),
        ([5, 5, 5, 30], 31, 40, -1),
        ([2, 2, 2, 8], 1, 8, 0),  # 1/2 = 4/8: both leave none over, so the fastest
        ([2, 2, 2, 9], 1, 8, 0),  # 1/2 = 4/8: the latter leaves one over
        ([3, 4, 4, 4], 1, 2, 0),
        ([1, 0, 0, 8], 1, 8, 3),  # 4/8 is less than 1
    ],
)
def test_class_of_least_expected_delay(
    available: list[int], least: int, most: int, chosen: int
) -> None:
    """Ties: fewest nodes left over, then the fastest class."""
    assert choose_class(np.array(available), np.array([1.0, 2, 3, 4]), least, most) == chosen


@pytest.mark.parametrize(("slower", "chosen"), [(1e-13, 1), (1e-10, 0)])
def test_expected_delays_are_equal_to_a_trillionth(slower: float, chosen: int) -> None:
    """Of equal ones the class that leaves no node over is taken, else the faster one."""
    bounds = np.array([1.0, 1.0 + slower])
    assert choose_class(np.array([5, 4]), bounds, 4, 4) == chosen


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=1), st.integers(1, 9))
def test_taken_nodes_are_the_first_by_delay_and_index(
    nodes: list[tuple[bool, int]], count: int
) -> None:
    """As sorting all usable nodes would choose."""
    usable = np.array([flag for flag, _ in nodes])
    delays = np.array([float(value) for _, value in nodes])
    ranked = sorted(np.flatnonzero(usable).tolist(), key=lambda node: (delays[node], node))
    assert take(usable, delays, count).tolist() == sorted(ranked[:count])


def test_slowest_of_each_job() -> None:
    """A job without nodes is delayed by nothing."""
    nodes, indptr = np.array([0, 2, 1], np.int32), np.array([0, 2, 2, 3])
    assert slowest(np.array([1.0, 5.0, 3.0]), indptr, nodes).tolist() == [3.0, 1.0, 5.0]


def test_pause_of_a_migration() -> None:
    """10 s and 12.7 s per process; by size where it is known; once if all go at a time."""
    assert migration_pause("serial", 10) == pytest.approx(137.0)
    assert migration_pause("parallel", 10) == pytest.approx(22.7)
    assert migration_pause("none", 10) == 0.0
    assert migration_pause("serial", 0) == 0.0
    assert migration_pause("serial", 2, 1024 * 1000) == pytest.approx(10 + 2 * (0.4 + 1.2))
