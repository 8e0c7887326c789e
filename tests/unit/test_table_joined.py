"""Tables put together, and compared."""

from __future__ import annotations

import pickle

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


@given(parts=st.lists(users, max_size=40), read=st.sets(st.integers(0, 40)))
def test_rows_added_bit_by_bit_are_those_of_the_parts(
    parts: list[list[str | None]], read: set[int]
) -> None:
    """A view of many tables is what they joined are, whenever its columns are read."""
    whole, added = table([]), []
    for k, part in enumerate(parts):
        added.append(table(part).replace(submit=np.full(len(part), float(k))))
        whole = whole.with_rows(added[-1])
        last = whole.take(np.arange(len(whole))[-1:])
        if k in read:
            assert last.texts("user") == Jobs.joined(added).texts("user")[-1:]
            assert whole.equals(Jobs.joined(added))
        assert last.id.tolist() == Jobs.joined(added).id.tolist()[-1:]
    assert pickle.loads(pickle.dumps(whole)).equals(Jobs.joined(added))  # noqa: S301 - our own
    assert whole.take(np.arange(len(whole))).names("user") == whole.names("user")


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


def test_names_of_rows_that_are_gone_are_let_go() -> None:
    """A few rows of a long table bring their own names to a join, not those of all its rows."""
    long = table([f"user{k}" for k in range(1000)])
    few = long.take([3, 500, 999]).replace_text("qos", [-1, -1, -1], [str(k) for k in range(99)])
    for whole in (Jobs.joined([few, table(["ann"])]), Jobs.joined([table(["ann"]), few])):
        assert sorted(whole.names("user")) == ["ann", "user3", "user500", "user999"]
        assert sorted(filter(None, whole.texts("user"))) == ["ann", "user3", "user500", "user999"]
        assert whole.names("qos") == ()


def test_rows_come_and_go() -> None:
    """However many rows came and went, the table of names is no longer than some of those left."""
    rows = table(["first"])
    for k in range(500):
        rows = Jobs.joined([rows.take(slice_of(rows, 5)), table([f"user{k}", None])])
        assert len(rows.names("user")) < 40
    assert rows.texts("user")[-4:] == ["user498", None, "user499", None]


def slice_of(rows: Jobs, last: int) -> list[int]:
    """Return the numbers of the last rows."""
    return list(range(len(rows)))[-last:]


class Counted(str):
    """A text that counts how often one of its kind is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        Counted.looked_up += 1
        return super().__hash__()

    __eq__ = str.__eq__


def test_one_row_more_looks_at_no_other_name() -> None:
    """To add a row to many costs look-ups of its own texts, not of those that are there."""
    rows = table([Counted(f"user{k}") for k in range(5000)])
    rows = Jobs.joined([rows, table(["ann"])])
    Counted.looked_up = 0
    for k in range(100):
        rows = Jobs.joined([rows, table([Counted(f"new{k}")])])
    assert Counted.looked_up <= 5 * 100
    assert len(set(rows.texts("user"))) == 5101


@given(steps=st.lists(st.tuples(st.integers(0, 20), users.filter(bool)), min_size=1, max_size=12))
def test_tables_that_grow_out_of_one_another(
    steps: list[tuple[int, list[str | None]]],
) -> None:
    """Several tables may grow out of the same one: what one adds is not in the others."""
    grown, expected = [table(["ann"])], [["ann"]]
    for which, texts in steps:
        base = which % len(grown)
        grown.append(Jobs.joined([grown[base], table(texts)]))
        expected.append([*expected[base], *texts])
    for one, texts in zip(grown, expected, strict=True):
        assert one.texts("user") == texts
        names = one.names("user")
        assert sorted(names) == sorted({text for text in texts if text is not None})
