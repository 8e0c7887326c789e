"""Amounts of several resources in one word: whether a demand exceeds a room is seen at once.

Each resource has a lane of some bits, the last of which, its guard, is 0. Amounts are rounded down
to what fits into their lane, so that a demand that fits into a room never packs to more than the
room does; the reverse need not hold. Only the first resources have lanes where there are many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.machine_compiling import part

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_LANES = 7
WORD = 63
"""Bits of a word that are used: all but the sign."""


class Lanes(NamedTuple):
    """How amounts of resources are packed."""

    shift: NDArray[np.int64]
    """int64[lanes]: how many of its lowest bits an amount loses."""
    bits: NDArray[np.int64]
    """int64[2]: bits of a lane, and the word of all guards."""


def lanes_for(capacity: NDArray[np.int64]) -> Lanes:
    """Return lanes for amounts up to those of nodes, int64[m, r]; greater ones pack to the most."""
    lanes = min(capacity.shape[1], MOST_LANES)
    bits = WORD // max(lanes, 1)
    most = capacity[:, :lanes].max(axis=0, initial=0).tolist()
    shift = [max(value.bit_length() - bits + 1, 0) for value in most]
    guards = sum(1 << (bits * lane + bits - 1) for lane in range(lanes))
    return Lanes(np.array(shift, np.int64), np.array([bits, guards], np.int64))


@part
def pack(lanes: Lanes, amounts: NDArray[np.int64], at: int) -> int:
    """Return a row of amounts as one word."""
    bits, word = lanes.bits[0], 0
    most = (1 << (bits - 1)) - 1
    for lane in range(len(lanes.shift)):
        value = min(max(amounts[at, lane], 0) >> lanes.shift[lane], most)
        word |= value << (bits * lane)
    return word


@part
def exceeds(lanes: Lanes, demand: int, room: int) -> bool:
    """Return whether a packed demand exceeds a packed room in some resource."""
    guards = lanes.bits[1]
    return bool((((room | guards) - demand) & guards) != guards)


@part
def most_of(lanes: Lanes, first: int, second: int) -> int:
    """Return the greater of each two packed amounts."""
    bits, word = lanes.bits[0], 0
    lane = (1 << (bits - 1)) - 1
    for at in range(len(lanes.shift)):
        mask = lane << (bits * at)
        word |= max(first & mask, second & mask)
    return word
