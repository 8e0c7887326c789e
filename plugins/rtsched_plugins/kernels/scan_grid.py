"""Hyper-grids for positional scans: sides, cells of an irregular network, time of steps, traffic.

A grid may have more cells than nodes; the cells left over are virtual nodes of no power. Neighbours
on the grid that no link joins talk over the links between them: a step there takes as many times
longer as there are hops.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments. The printed proof of
the best dimension drops a factor 2; it holds by Σ(n_i - 1) >= Σ ceil(log2 n_i) >= ceil(log2 Π n_i).
"""

from __future__ import annotations

from collections import deque
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

    Floats = NDArray[np.float64]


def best_dimension(nodes: int) -> int:
    """Return the dimension of the grid of least steps: ceil(log2 n), and 1 for one node."""
    return max((nodes - 1).bit_length(), 1)


def sides(nodes: int, dimension: int = 0) -> tuple[int, ...]:
    """Return the grid of `dimension` axes with room for all nodes and the fewest steps.

    Parameters
    ----------
    nodes : int
        At least 1.
    dimension : int
        Axes; 0, or more than the best dimension, stands for the best.
    """
    best = best_dimension(nodes)
    axes = best if dimension <= 0 else min(dimension, best)
    side = round(nodes ** (1 / axes))
    side += side**axes < nodes
    shorter = 0
    while (side - 1) ** (shorter + 1) * side ** (axes - shorter - 1) >= nodes:
        shorter += 1
    return (side - 1,) * shorter + (side,) * (axes - shorter)


def neighbours(nodes: int, link: NDArray[np.int32], bandwidth: Floats) -> list[list[int]]:
    """Return for each node those that a link joins to it, lowest first; bandwidth 0 is no link."""
    near: list[set[int]] = [set() for _ in range(nodes)]
    for a, b in link[bandwidth > 0].tolist():
        near[a].add(b)
        near[b].add(a)
    return [sorted(others) for others in near]


def walk(near: Sequence[Sequence[int]]) -> Ints:
    """Return the nodes of a graph in an order in which linked ones are close to each other.

    Breadth first, each part of the graph from its node with the fewest links; of equal ones the
    lowest comes first (Cuthill and McKee, 1969).
    """
    degree = [len(others) for others in near]
    seen, order = [False] * len(near), list[int]()
    for root in sorted(range(len(near)), key=lambda node: (degree[node], node)):
        waiting = deque([] if seen[root] else [root])
        seen[root] = True
        while waiting:
            node = waiting.popleft()
            order.append(node)
            fresh = [other for other in near[node] if not seen[other]]
            for other in sorted(fresh, key=lambda one: (degree[one], one)):
                seen[other] = True
                waiting.append(other)
    return np.array(order, np.int64)


def hops(near: Sequence[Sequence[int]], source: int, target: int) -> float:
    """Return how many links are between two nodes, inf if none leads there."""
    reached, ring, count = {source}, [source], 0
    while ring:
        if target in reached:
            return count
        ring = [other for node in ring for other in near[node] if other not in reached]
        ring = list(dict.fromkeys(ring))
        reached.update(ring)
        count += 1
    return inf


def hops_along(
    shape: Sequence[int], cell: Ints, near: Sequence[Sequence[int]]
) -> tuple[float, ...]:
    """Return per axis the most hops between two nodes in neighbouring cells, at least 1.

    Parameters
    ----------
    shape : sequence of int
        Sides of the grid.
    cell : int64[n]
        Each node's cell.
    near : sequence of sequences of int
        For each node those that a link joins to it.

    Returns
    -------
    tuple of float
        inf where no link leads from a node to its neighbour on the grid.
    """
    held = np.full(prod(shape), -1, np.int64)
    held[cell] = np.arange(len(cell))
    grid, most = held.reshape(shape), []
    for axis in range(len(shape)):
        along = np.moveaxis(grid, axis, 0)
        one, other = along[:-1].ravel(), along[1:].ravel()
        real = (one >= 0) & (other >= 0)
        far = 1.0
        for a, b in zip(one[real].tolist(), other[real].tolist(), strict=True):
            far = max(far, 1.0 if b in near[a] else hops(near, a, b))
        most.append(far)
    return tuple(most)


def overhead(
    shape: Sequence[int], comm: float, comp: float, far: Sequence[float] | None = None
) -> float:
    """Return the seconds that one run's steps take, 2 Σ (n_i - 1)(p h_i + q).

    Parameters
    ----------
    shape : sequence of int
        Sides of the grid.
    comm, comp : float
        Time of one communication and one computing step (paper: p, q).
    far : sequence of float, optional
        Hops between neighbours per axis (h); 1 where all links are there.
    """
    by = (1.0,) * len(shape) if far is None else far
    return sum(2 * (n - 1) * (comm * h + comp) for n, h in zip(shape, by, strict=True))


@compiled
def traffic(shape: Ints, src: Ints, dst: Ints, amount: Floats) -> Floats:
    """Return what passes each link of the grid.

    What moves goes along axis 0 first, then along axis 1, and so on.

    Parameters
    ----------
    shape : int64[d]
        Sides of the grid.
    src, dst : int64[k]
        Cells that something moves from and to.
    amount : float64[k]
        How much, bytes or packets.

    Returns
    -------
    float64[d, n]
        Entry [a, c] is the link from cell c to the next one on axis a.
    """
    cells = 1
    for side in shape:
        cells *= side
    passing = np.zeros((len(shape), cells))
    for i in range(len(src)):
        at, stride = src[i], cells
        for axis in range(len(shape)):
            stride //= shape[axis]
            way = dst[i] // stride % shape[axis] - at // stride % shape[axis]
            first = at + min(way, 0) * stride
            for place in range(abs(way)):
                passing[axis, first + place * stride] += amount[i]
            at += way * stride
    return passing


def link_costs(
    shape: Sequence[int], cell: Ints, link: NDArray[np.int32], bandwidth: Floats, usual: float
) -> Floats:
    """Return float64[d, n]: the seconds that each link, as in `traffic`, needs per byte.

    A link that the network has not takes as many times the usual bandwidth's as there are hops on
    its axis; so does one to a virtual node, which nothing passes but on its way.

    Parameters
    ----------
    shape : sequence of int
        Sides of the grid.
    cell : int64[n]
        Each node's cell.
    link, bandwidth : int32[m, 2], float64[m]
        The network's links and their bytes per second.
    usual : float
        Bytes per second where nothing is known; 0: moving takes no time.
    """
    costs = np.zeros((len(shape), prod(shape)))
    if usual > 0:
        costs += 1.0 / usual
        if len(link):
            near = neighbours(len(cell), link, bandwidth)
            costs *= np.array(hops_along(shape, cell, near))[:, None]
    a, b = cell[link[:, 0]], cell[link[:, 1]]
    low, high = np.minimum(a, b), np.maximum(a, b)
    there = bandwidth > 0
    for axis, side in enumerate(shape):
        stride = prod(shape[axis + 1 :])
        mine = there & (high - low == stride) & (low // stride % side < side - 1)
        costs[axis, low[mine]] = 1.0 / bandwidth[mine]
    return costs


@compiled
def busiest(passing: Floats, costs: Floats) -> float:
    """Return the seconds that the busiest link needs for what passes it; both are float64[d, n]."""
    most = 0.0
    for axis in range(len(passing)):
        for cell in range(passing.shape[1]):
            if passing[axis, cell] > 0.0:
                most = max(most, passing[axis, cell] * costs[axis, cell])
    return most
