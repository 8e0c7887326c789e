"""Tables put together, and compared."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.model.jobs import Jobs

users = st.lists(st.sampled_from(["ann", "bob", "eve", None]), max_size=6)


def table(names: list[str | None]) -> Jobs:
    """Return jobs of these users."""
    n = len(names)
    return Jobs.build(n, id=np.arange(n), user=names, sigma=[np.nan] * n) if n else Jobs.build(0)


@given(first=users, second=users, third=users)
def test_joined_rows_are_those_of_the_parts(
    first: list[str | None], second: list[str | None], third: list[str | None]
) -> None:
    """Texts and numbers stand behind each other, whatever tables of names the parts have."""
    whole = Jobs.joined([table(first), table(second), table(third)])
    assert whole.texts("user") == [*first, *second, *third]
    assert whole.id.tolist() == [*range(len(first)), *range(len(second)), *range(len(third))]


@given(names=users)
def test_equal_rows_are_equal_whatever_the_codes(names: list[str | None]) -> None:
    """Two tables are equal if they say the same, though their names may be coded otherwise."""
    there = table(names)
    back = table(["zoe", *names]).take(np.arange(1, len(names) + 1))
    assert there.equals(back.replace(id=np.arange(len(names))))


def test_another_value_is_a_difference() -> None:
    """One cell that differs, or a row more, makes tables unequal."""
    one = table(["ann", "bob"])
    assert not one.equals(table(["ann", "eve"]))
    assert not one.equals(table(["ann"]))
    assert not one.equals(one.with_column("size", [1, 2]))
