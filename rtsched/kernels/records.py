"""Records that compiled code and plain Python read alike, and heaps of (time, row) in them.

The first of a heap is who is due next, ties by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.compiling import part

if TYPE_CHECKING:
    from numpy.typing import NDArray


def record_type(*fields: tuple[str, str]) -> np.dtype[Any]:
    """Return an aligned record type whose rows have attributes.

    A field must not be named like an attribute of numpy's own records, such as `size`.
    """
    return np.dtype((np.record, np.dtype(list(fields), align=True)))


@part
def push(heap: NDArray[Any], count: int, time: float, row: int) -> None:
    """Add (time, row) to a binary heap of `count` entries."""
    at = count
    while at > 0:
        up = (at - 1) >> 1
        if heap[up].time < time or (heap[up].time == time and heap[up].row < row):
            break
        heap[at] = heap[up]
        at = up
    heap[at].time = time
    heap[at].row = row


@part
def sift(heap: NDArray[Any], count: int, at: int, time: float, row: int) -> None:
    """Put (time, row) at place `at` of a heap of `count` entries, or further down."""
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and (
            heap[child + 1].time < heap[child].time
            or (heap[child + 1].time == heap[child].time and heap[child + 1].row < heap[child].row)
        ):
            child += 1
        if time < heap[child].time or (time == heap[child].time and row < heap[child].row):
            break
        heap[at] = heap[child]
        at = child
    heap[at].time = time
    heap[at].row = row


@part
def pop(heap: NDArray[Any], count: int) -> int:
    """Remove the first entry of a heap of `count` entries and return its row."""
    row = heap[0].row
    last = count - 1
    if last > 0:
        sift(heap, last, 0, heap[last].time, heap[last].row)
    return int(row)
