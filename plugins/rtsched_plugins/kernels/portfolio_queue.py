"""A queue that gives the first task that fits: a tree of least node counts over its places."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.no_refcount import no_refcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[np.int64]

GONE: int = 2**62
"""The node count of a place that holds no task any more."""


@compiled
def queue_tree(counts: Integers) -> Integers:
    """Return a tree over the places 0..n-1 with these node counts.

    A heap-ordered binary tree in one array: row 1 is the root, rows 2k and 2k + 1 are below row k,
    the second half are the places. Each row holds the least count of the places below it.
    """
    half = 1
    while half < len(counts):
        half *= 2
    tree = np.full(2 * half, GONE)
    tree[half : half + len(counts)] = counts
    for row in range(half - 1, 0, -1):
        tree[row] = min(tree[2 * row], tree[2 * row + 1])
    return tree


@no_refcount
def recount(tree: Integers, place: int, count: int) -> None:
    """Give a place another node count."""
    row = len(tree) // 2 + place
    tree[row] = count
    row //= 2
    while row > 0:
        least = min(tree[2 * row], tree[2 * row + 1])
        if tree[row] == least:
            break
        tree[row] = least
        row //= 2


@no_refcount
def first_within(tree: Integers, available: int) -> int:
    """Return the first place with a count of at most `available`, -1 if there is none."""
    if tree[1] > available:
        return -1
    row, half = 1, len(tree) // 2
    while row < half:
        row = 2 * row if tree[2 * row] <= available else 2 * row + 1
    return row - half
