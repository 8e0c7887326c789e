"""States as bytes: there and back, other versions and damage refused."""

import contextlib
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst
from numpy.typing import NDArray

from rtsched.errors import RtschedError
from rtsched.model.state import State, decode_state, encode_state


class Usage(State, frozen=True):
    """What was spent by whom."""

    spent: NDArray[np.float64]
    as_of: float
    names: tuple[str, ...] = ()


class NewUsage(State, frozen=True):
    """The same in another unit."""

    version: ClassVar[int] = 2
    spent: NDArray[np.float64]
    as_of: float


class Odd(State, frozen=True):
    """Holds what cannot be stored."""

    thing: Any


arrays = nst.arrays(
    st.sampled_from([np.float64, np.int32, np.bool_]), nst.array_shapes(min_dims=0, min_side=0)
)


@given(arrays, st.floats(allow_nan=False), st.lists(st.text(max_size=3)))
def test_a_state_comes_back(spent: NDArray[Any], as_of: float, names: list[str]) -> None:
    """Arrays keep dtype, shape and every bit, numbers and texts their value."""
    back = decode_state(encode_state(Usage(spent, as_of, tuple(names))), Usage)
    assert back.spent.dtype == spent.dtype
    assert back.spent.shape == spent.shape
    assert back.spent.tobytes() == spent.tobytes()
    assert (back.as_of, back.names) == (as_of, tuple(names))


def test_another_version_is_refused() -> None:
    """A field that changed its meaning is not read by its old one; what to do is said."""
    stored = encode_state(Usage(np.zeros(1), 0.0))
    with pytest.raises(RtschedError, match="version 1, this plug-in wants 2; delete it"):
        decode_state(stored, NewUsage)


@given(st.binary(max_size=40))
def test_rubbish_is_refused(data: bytes) -> None:
    """Whatever stands in the database, the error says that the state is damaged."""
    with pytest.raises(RtschedError, match=r"damaged|version"):
        decode_state(data, Usage)


@given(st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """A byte changed in a stored state never comes out as another exception."""
    stored = bytearray(encode_state(Usage(np.arange(3.0), 5.0)))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RtschedError):
        decode_state(bytes(stored), Usage)


def test_what_is_no_data_cannot_be_stored() -> None:
    """Objects and functions do not belong in a state."""
    for thing in (print, np.array([None]), object()):
        with pytest.raises((NotImplementedError, TypeError), match=r"cannot hold|unsupported"):
            encode_state(Odd(thing))
