"""Ids: their places in a table, and which of them are in another one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.model.snapshot import are_in, places

IDS = (
    st.lists(st.integers(-3, 1 << 62), max_size=12)
    | st.lists(st.integers(0, 6), max_size=12)
    | st.lists(st.integers(0, 99), min_size=20, max_size=60, unique=True)
)


@given(ids=IDS, others=IDS, common=IDS)
def test_ids_among_others(ids: list[int], others: list[int], common: list[int]) -> None:
    """In any order, with whatever of them twice, whichever of both is the longer one."""
    one = np.array([*ids, *common], np.int64)
    other = [*common, *others]
    assert are_in(one, other).tolist() == [each in other for each in one.tolist()]
    assert are_in(np.sort(one), np.array(other, np.int64)).sum() == are_in(one, other).sum()


@given(ids=IDS, wanted=IDS)
def test_the_place_of_an_id_is_its_first(ids: list[int], wanted: list[int]) -> None:
    """Of an id that stands there several times."""
    place, known = places(np.array(ids, np.int64), np.array(wanted, np.int64))
    assert known.tolist() == [each in ids for each in wanted]
    found = [each for each, there in zip(wanted, known.tolist(), strict=True) if there]
    assert place[known].tolist() == [ids.index(each) for each in found]
