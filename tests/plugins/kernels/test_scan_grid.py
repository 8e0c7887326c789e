"""Grids of scans: sides, steps, irregular networks, traffic, and when a scan pays."""

from fractions import Fraction
from itertools import pairwise, product
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.errors import ShapeError
from rtsched_plugins.kernels.scan_grid import (
    best_dimension,
    busiest,
    hops,
    hops_along,
    link_costs,
    neighbours,
    overhead,
    sides,
    traffic,
    walk,
)
from rtsched_reproductions.psts import crossover, imbalance, slowest, speed_up, steps

NONE = np.empty((0, 2), np.int32)


def links(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Return links of bandwidth 1."""
    return np.array(pairs, np.int32).reshape(-1, 2), np.ones(len(pairs))


@given(st.integers(1, 400), st.integers(0, 8))
def test_sides_have_room_and_no_side_can_shrink(nodes: int, dimension: int) -> None:
    """There is room for all nodes; shortening any side would leave too little."""
    shape = sides(nodes, dimension)
    assert len(shape) == (min(dimension, best_dimension(nodes)) or best_dimension(nodes))
    assert prod(shape) >= nodes
    for axis, side in enumerate(shape):
        if side > 1:
            shorter = (*shape[:axis], side - 1, *shape[axis + 1 :])
            assert prod(shorter) < nodes


@given(st.integers(1, 60), st.integers(1, 3))
def test_no_other_grid_of_as_many_axes_has_fewer_steps(nodes: int, dimension: int) -> None:
    """All shapes with room for the nodes are tried."""
    axes = min(dimension, best_dimension(nodes))
    shapes = product(range(1, nodes + 1), repeat=axes)
    fewest = min(steps(shape) for shape in shapes if prod(shape) >= nodes)
    assert steps(sides(nodes, dimension)) == fewest


def test_overhead_counts_hops_of_missing_links() -> None:
    """3 x 6 nodes take 14 steps; two hops on the line make its communication twice as long."""
    assert steps((3, 6)) == 14
    assert overhead((3, 6), 1, 1) == 28
    assert overhead((3, 6), 3, 1) == 56
    assert overhead((3, 6), 3, 1, (1, 2)) == 4 * (3 + 1) + 10 * (6 + 1)


def test_a_chain_is_walked_from_its_end() -> None:
    """Nodes linked as 2-0-3-1 stand in that order, and all links are there."""
    near = neighbours(4, *links((2, 0), (0, 3), (3, 1)))
    order = walk(near)
    assert order.tolist() in ([2, 0, 3, 1], [1, 3, 0, 2])
    assert hops_along((4,), np.argsort(order), near) == (1.0,)


def test_a_star_has_two_hops_between_its_leaves() -> None:
    """The walk begins at a leaf; leaves talk over the middle."""
    near = neighbours(4, *links((0, 1), (0, 2), (0, 3)))
    assert hops(near, 1, 2) == 2
    assert hops(near, 1, 1) == 0
    order = walk(near)
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert hops_along((4,), np.argsort(order), near) == (2.0,)


def test_moving_to_nodes_that_no_link_joins_takes_for_ever() -> None:
    """Bandwidth 0 is no link; between the others, and where nothing moves, that is no matter."""
    link, _ = links((0, 1), (1, 2))
    near = neighbours(3, link, np.array([1.0, 0.0]))
    assert hops(near, 0, 2) == inf
    assert hops_along((3,), np.arange(3), near) == (inf,)
    costs = link_costs((3,), np.arange(3), link, np.array([2.0, 0.0]), 1.0)
    for to, seconds in ((0, 0.0), (1, 0.5), (2, inf)):
        passing = traffic(np.array([3]), np.array([0]), np.array([to]), np.ones(1))
        assert busiest(passing, costs) == seconds


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_traffic_is_what_passes_each_link(shape: list[int], data: st.DataObject) -> None:
    """Moves are followed link by link, axis 0 first."""
    n = prod(shape)
    cells = st.integers(0, n - 1)
    moves = data.draw(st.lists(st.tuples(cells, cells, st.integers(1, 9)), max_size=6))
    src, dst, amount = (np.array(column, int) for column in zip(*moves, strict=True)) if moves else (np.empty(0, int),) * 3  # fmt: skip  # noqa: E501
    found = traffic(np.array(shape), src, dst, amount.astype(float))
    expected = np.zeros((len(shape), *shape))
    for a, b, much in moves:
        at, to = list(np.unravel_index(a, shape)), np.unravel_index(b, shape)
        for axis in range(len(shape)):
            way = range(min(at[axis], to[axis]), max(at[axis], to[axis]))
            for place in way:
                expected[(axis, *at[:axis], place, *at[axis + 1 :])] += much
            at[axis] = to[axis]
    assert found.tolist() == expected.reshape(len(shape), -1).tolist()


def test_the_busiest_link_counts() -> None:
    """On a line of 3, 6 and 2 units pass the second link of speed 2; the first one is idle."""
    passing = traffic(np.array([3]), np.array([1, 2]), np.array([2, 1]), np.array([6.0, 2.0]))
    costs = link_costs((3,), np.arange(3), np.array([[0, 1], [2, 1]]), np.array([1.0, 2.0]), 0.0)
    assert costs[:, :2].tolist() == [[1.0, 0.5]]
    assert busiest(passing, costs) == 4.0
    for usual, longest in ((4.0, 2.0), (0.0, 0.0)):
        costs = link_costs((3,), np.arange(3), NONE, np.empty(0), usual)
        assert busiest(passing, costs) == longest


def test_a_missing_link_takes_its_hops() -> None:
    """Nodes 0-1-2-3 in a chain on a square: cells 1 and 3 are two hops apart."""
    link, bandwidth = links((0, 1), (1, 2), (2, 3))
    costs = link_costs((2, 2), np.arange(4), link, bandwidth, 1.0)
    assert costs[0, :2].tolist() == [2.0, 2.0]
    assert costs[1, ::2].tolist() == [1.0, 1.0]


def test_crossover_by_hand() -> None:
    """Loads 30 and 10 of equal nodes, steps of 1: I = .5, I* = .2, so a scan pays."""
    load, power = np.array([30, 10]), np.array([1, 1])
    assert imbalance(load, power) == Fraction(1, 2)
    assert crossover(overhead((2,), 1, 1), load, power) == Fraction(1, 5)
    assert speed_up(np.array([20, 20]), power, 4) == Fraction(40, 24)
    assert slowest(np.zeros(2, int), power) == imbalance(np.zeros(2, int), power) == 0


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), min_size=1, max_size=9))
def test_imbalance_is_exact(nodes: list[tuple[int, int]]) -> None:
    """It equals the same formula in fractions, and never is negative."""
    load, power = (np.array(column) for column in zip(*nodes, strict=True))
    total = sum(load.tolist())
    if total:
        mean = Fraction(total, sum(power.tolist()))
        expected = max(Fraction(int(a), int(b)) for a, b in nodes) / mean - 1
        assert imbalance(load, power) == expected >= 0


@given(st.integers(2, 64), st.floats(0, 10), st.floats(0, 10))
def test_more_axes_never_take_longer(nodes: int, comm: float, comp: float) -> None:
    """The overhead falls, or stays, from the line to the best dimension."""
    times = [overhead(sides(nodes, d), comm, comp) for d in range(1, best_dimension(nodes) + 1)]
    assert all(less <= more + 1e-9 for more, less in pairwise(times))


def test_what_makes_no_sense_is_refused() -> None:
    """Work on a node without power never ends; without work nothing pays."""
    with pytest.raises(ShapeError, match="without power"):
        slowest(np.array([1]), np.array([0]))
    with pytest.raises(ShapeError, match="no crossover"):
        crossover(1, np.array([0]), np.array([1]))
    with pytest.raises(ShapeError, match="no speed-up"):
        speed_up(np.array([0]), np.array([1]), 0)
