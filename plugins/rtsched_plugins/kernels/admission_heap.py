"""A heap of (instant, number) pairs in arrays, so that compiled code need not count references."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.no_refcount import no_refcount

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Heap(NamedTuple):
    """Pairs of which the earliest comes first; those of one instant in no particular order."""

    instant: NDArray[np.float64]
    """Seconds; the first is +inf while the heap is empty."""
    number: NDArray[np.int64]
    used: NDArray[np.int64]
    """int64[1], how many pairs there are."""


@compiled
def empty_heap(most: int) -> Heap:
    """Return a heap with room for `most` pairs."""
    instant = np.empty(most + 1)
    instant[0] = np.inf
    return Heap(instant, np.empty(most + 1, np.int64), np.zeros(1, np.int64))


@no_refcount
def push(heap: Heap, instant: float, number: int) -> None:
    """Add a pair."""
    place = heap.used[0]
    heap.used[0] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        if heap.instant[above] <= instant:
            break
        heap.instant[place], heap.number[place] = heap.instant[above], heap.number[above]
        place = above
    heap.instant[place], heap.number[place] = instant, number


@no_refcount
def pop(heap: Heap) -> int:
    """Remove the earliest pair, which there must be, and return its number."""
    first = heap.number[0]
    count = heap.used[0] - 1
    heap.used[0] = count
    instant, number = heap.instant[count], heap.number[count]
    place, below = 0, 1
    while below < count:
        if below + 1 < count and heap.instant[below + 1] < heap.instant[below]:
            below += 1
        if heap.instant[below] >= instant:
            break
        heap.instant[place], heap.number[place] = heap.instant[below], heap.number[below]
        place, below = below, 2 * below + 1
    heap.instant[place], heap.number[place] = instant, number
    if count == 0:
        heap.instant[0] = np.inf
    return int(first)
