"""Columns of a log: they grow, and take the least memory that holds their values exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.logs.gather import Columns, compact, number_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = st.integers(-(2**52), 2**52) | st.integers(-300, 300) | st.just(-1)


@given(blocks=st.lists(st.lists(NUMBERS, min_size=1, max_size=40), min_size=1, max_size=8))
def test_a_column_holds_what_was_appended(blocks: list[list[int]]) -> None:
    """Whatever types the blocks have, nothing is lost, and taken columns are exactly as long."""
    columns = Columns()
    for block in blocks:
        columns.append(len(block), {"number": compact(np.array(block, np.float64))})
    expected = [number for block in blocks for number in block]
    assert columns.rows == len(expected)
    assert columns.look("number").tolist() == expected
    taken = columns.take("number")
    assert taken.tolist() == expected
    assert taken.base is None or len(taken.base) == len(expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], np.int8),
        ([-1, 127], np.int8),
        ([-129], np.int16),
        ([32768], np.int32),
        ([2.0**31], np.int64),
        ([2.0**52], np.int64),
    ],
)
def test_whole_numbers_are_of_the_smallest_type(values: list[float], kind: type[np.int8]) -> None:
    """Most columns of a log are small codes or -1 throughout."""
    found = compact(np.array(values, np.float64))
    assert found.dtype == kind
    assert found.tolist() == values


@given(st.lists(st.integers(-128, 127) | st.sampled_from([-1, 126, 127]), min_size=1))
def test_codes_do_not_depend_on_the_type_of_numbers(values: list[int]) -> None:
    """Numbers of one byte give the codes and names that wide ones give."""
    wide: NDArray[np.int64] = np.array(values, np.int64)
    expected, found = (
        number_codes(wide, {3: "three"}),
        number_codes(wide.astype(np.int8), {3: "three"}),
    )
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found[1] == expected[1]
    assert found[0].tolist() == expected[0].tolist()
    named = [found[1][code] if code >= 0 else None for code in found[0].tolist()]
    assert named == [
        None if value < 0 else "three" if value == 3 else str(value) for value in values
    ]
