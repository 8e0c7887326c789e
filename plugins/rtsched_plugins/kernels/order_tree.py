"""Tasks in order of cost derivative, with "the first that fits" in logarithmic time.

A treap of tasks 0..n-1 held in two arrays of n + 1 rows, so that a task's record shares a cache
line; row n is nil, and its left link is the root. The order is by cost derivative, largest
first, then arrival, rank and index. Each node knows the least size in its subtree. Priorities
are a hash of the index, so that a run is reproducible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEFT, RIGHT, PRIORITY, LEAST, SIZE, RANK = range(6)
"""Columns of `OrderTree.link`; LEAST is the least size in the subtree."""

DERIVATIVE, ARRIVAL = range(2)
"""Columns of `OrderTree.key`."""

NO_SIZE: int = 2**62
DEEPEST: int = 512  # a path; a million tasks make one of about 50


class OrderTree(NamedTuple):
    """A tree; all functions but `copy_tree` change it in place."""

    link: NDArray[np.int64]
    """int64[n + 1, 6]."""
    key: NDArray[np.float64]
    """float64[n + 1, 2]."""
    path: NDArray[np.int64]
    """Scratch."""


@compiled
def empty_tree(n: int) -> OrderTree:
    """Return a tree with room for tasks 0..n-1 that holds none yet."""
    link = np.full((n + 1, 6), n)
    for i in range(n + 1):
        mixed = ((i + 1) * 0x9E3779B1) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 0x45D9F3B) & 0xFFFFFFFF
        link[i, PRIORITY] = mixed ^ (mixed >> 13)
        link[i, LEAST] = NO_SIZE
    return OrderTree(link, np.zeros((n + 1, 2)), np.empty(DEEPEST, np.int64))


@compiled
def copy_tree(tree: OrderTree) -> OrderTree:
    """Return a copy that may be changed without changing `tree`."""
    return OrderTree(tree.link.copy(), tree.key.copy(), np.empty(DEEPEST, np.int64))


@compiled
def set_keys(
    tree: OrderTree, i: int, size: int, derivative: float, arrival: float, rank: int
) -> None:
    """Set the size and the keys of task `i`, which must not be in the tree."""
    tree.link[i, SIZE] = size
    tree.link[i, RANK] = rank
    tree.key[i, DERIVATIVE] = derivative
    tree.key[i, ARRIVAL] = arrival


@compiled
def comes_before(tree: OrderTree, i: int, derivative: float, other: int) -> bool:
    """Return whether task `i`, if it had this cost derivative, would come before `other`."""
    if derivative != tree.key[other, DERIVATIVE]:
        return bool(derivative > tree.key[other, DERIVATIVE])
    if tree.key[i, ARRIVAL] != tree.key[other, ARRIVAL]:
        return bool(tree.key[i, ARRIVAL] < tree.key[other, ARRIVAL])
    if tree.link[i, RANK] != tree.link[other, RANK]:
        return bool(tree.link[i, RANK] < tree.link[other, RANK])
    return i < other


@compiled
def _descend(tree: OrderTree, i: int) -> int:
    """Write the rows from nil (above the root) to the one above i's place into the path.

    Returns the path's length.
    """
    link, path = tree.link, tree.path
    nil = len(link) - 1
    path[0] = nil
    depth = 1
    node = link[nil, LEFT]
    while node != nil and node != i:
        path[depth] = node
        depth += 1
        before = comes_before(tree, i, tree.key[i, DERIVATIVE], node)
        node = link[node, LEFT] if before else link[node, RIGHT]
    return depth


@compiled
def _relink(link: NDArray[np.int64], above: int, old: int, new: int) -> None:
    if link[above, LEFT] == old:
        link[above, LEFT] = new
    else:
        link[above, RIGHT] = new


@compiled
def _measure(link: NDArray[np.int64], node: int) -> None:
    below = min(link[link[node, LEFT], LEAST], link[link[node, RIGHT], LEAST])
    link[node, LEAST] = min(link[node, SIZE], below)


@compiled
def insert(tree: OrderTree, i: int) -> None:
    """Add task `i` by its keys."""
    link, path = tree.link, tree.path
    nil = len(link) - 1
    depth = _descend(tree, i)
    above = path[depth - 1]
    link[i, LEFT] = nil
    link[i, RIGHT] = nil
    if above == nil or comes_before(tree, i, tree.key[i, DERIVATIVE], above):
        link[above, LEFT] = i
    else:
        link[above, RIGHT] = i
    while above != nil and link[above, PRIORITY] < link[i, PRIORITY]:
        if link[above, LEFT] == i:
            link[above, LEFT] = link[i, RIGHT]
            link[i, RIGHT] = above
        else:
            link[above, RIGHT] = link[i, LEFT]
            link[i, LEFT] = above
        _measure(link, above)
        depth -= 1
        _relink(link, path[depth - 1], above, i)
        above = path[depth - 1]
    _measure(link, i)
    for k in range(1, depth):
        link[path[k], LEAST] = min(link[path[k], LEAST], link[i, SIZE])


@compiled
def build(tree: OrderTree, order: NDArray[np.int64]) -> None:
    """Fill an empty tree with tasks that are in order already, in linear time."""
    link, path = tree.link, tree.path
    nil = len(link) - 1
    path[0] = nil
    depth = 1
    for i in order:
        below = nil
        while depth > 1 and link[path[depth - 1], PRIORITY] < link[i, PRIORITY]:
            depth -= 1
            below = path[depth]
            _measure(link, below)
        link[i, LEFT] = below
        link[i, RIGHT] = nil
        if depth == 1:
            link[nil, LEFT] = i
        else:
            link[path[depth - 1], RIGHT] = i
        path[depth] = i
        depth += 1
    for k in range(depth - 1, 0, -1):
        _measure(link, path[k])


@compiled
def _remove(tree: OrderTree, i: int, depth: int) -> None:
    """Remove task `i`, to which the first `depth` rows of the path lead."""
    link, path = tree.link, tree.path
    nil = len(link) - 1
    while link[i, LEFT] != nil and link[i, RIGHT] != nil:
        low, high = link[i, LEFT], link[i, RIGHT]
        if link[low, PRIORITY] > link[high, PRIORITY]:
            child = low
            link[i, LEFT] = link[low, RIGHT]
            link[low, RIGHT] = i
        else:
            child = high
            link[i, RIGHT] = link[high, LEFT]
            link[high, LEFT] = i
        _relink(link, path[depth - 1], i, child)
        path[depth] = child
        depth += 1
    only = link[i, RIGHT] if link[i, LEFT] == nil else link[i, LEFT]
    _relink(link, path[depth - 1], i, only)
    for k in range(depth - 1, 0, -1):
        _measure(link, path[k])


@compiled
def erase(tree: OrderTree, i: int) -> None:
    """Remove task `i`; its keys must be those it was inserted with."""
    _remove(tree, i, _descend(tree, i))


@compiled
def take_first(tree: OrderTree, available: int) -> int:
    """Remove and return the first task whose size is at most `available`; n if there is none."""
    link, path = tree.link, tree.path
    nil = len(link) - 1
    node = link[nil, LEFT]
    if link[node, LEAST] > available:
        return nil
    path[0] = nil
    depth = 1
    while True:
        if link[link[node, LEFT], LEAST] <= available:
            path[depth] = node
            node = link[node, LEFT]
        elif link[node, SIZE] <= available:
            _remove(tree, node, depth)
            return int(node)
        else:
            path[depth] = node
            node = link[node, RIGHT]
        depth += 1
