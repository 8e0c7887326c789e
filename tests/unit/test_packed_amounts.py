"""Packed amounts: a demand that fits is never said to exceed the room.

The functions are parts of compiled ones and are called as written here; compiled they are tested
with the passes that use them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.kernels import machine_sharing
from rtsched.kernels.machine_sharing import MOST_LANES, lanes_for


def written(name: str) -> Any:
    """Return a function as it is written."""
    function = getattr(machine_sharing, name)
    return getattr(function, "py_func", function)


pack, exceeds, most_of = written("pack"), written("exceeds"), written("most_of")
AMOUNTS = st.one_of(st.integers(0, 70), st.integers(0, 2**40), st.integers(0, 2**61))


def rows(*each: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return amounts, a row each."""
    return np.array(each, np.int64)


def test_each_resource_has_a_lane_of_its_own() -> None:
    """3 resources have 21 bits each; 256 GiB lose 18 of theirs, so that the guard stays 0."""
    lanes = lanes_for(rows([64, 256 << 30, 4]))
    assert lanes.shift.tolist() == [0, 19, 0]
    amounts = rows([64, 256 << 30, 4], [65, 1, 0], [1, 1, 5], [64, 200 << 30, 4])
    node, cores, gpus, fits = (pack(lanes, amounts, at) for at in range(4))
    assert node == 64 | (1 << 19) << 21 | 4 << 42
    assert exceeds(lanes, cores, node)
    assert exceeds(lanes, gpus, node)
    assert not exceeds(lanes, fits, node)
    assert exceeds(lanes, node, fits)


def test_amounts_below_0_and_above_any_node() -> None:
    """A node that has more taken than it has packs to 0, and a demand above all to the most."""
    lanes = lanes_for(rows([64]))
    amounts = rows([-5], [0], [2**62])
    below, nothing, much = (pack(lanes, amounts, at) for at in range(3))
    assert below == nothing == 0
    assert exceeds(lanes, much, pack(lanes, rows([64]), 0))


def test_without_resources_nothing_exceeds() -> None:
    """Of no resource there is always enough."""
    lanes = lanes_for(np.zeros((3, 0), np.int64))
    assert not exceeds(lanes, pack(lanes, np.zeros((1, 0), np.int64), 0), 0)


@given(data=st.data(), resources=st.integers(1, MOST_LANES + 3))
def test_what_fits_never_exceeds(data: st.DataObject, resources: int) -> None:
    """Neither the room itself nor the most of it and another room."""
    a_row = st.lists(AMOUNTS, min_size=resources, max_size=resources)
    capacity, room, other = (data.draw(a_row) for _ in range(3))
    demand = [data.draw(st.integers(0, amount)) for amount in room]
    lanes = lanes_for(rows(capacity))
    packed = [pack(lanes, rows(one), 0) for one in (demand, room, other)]
    assert not exceeds(lanes, packed[0], packed[1])
    most = most_of(lanes, packed[1], packed[2])
    assert not exceeds(lanes, packed[0], most)
    assert most == pack(lanes, np.maximum(rows(room), rows(other)), 0)
