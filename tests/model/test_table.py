"""Tables of columns: types, missing values, views, joins, and that nobody can write to them."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.errors import ShapeError
from rtsched.model.cluster import Cluster, Nodes, NodeState, Topology
from rtsched.model.jobs import Jobs, alike_but_for_deadlines
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Accounts, Snapshot
from rtsched.model.table import Column, Table, Text, differ, encode, offsets_of, read_only
from rtsched.testing import make_cluster, make_jobs, make_snapshot
from rtsched.testing.strategies import account_tables


class Pets(Table):
    """A table made up for these tests."""

    legs = Column(np.int32, -1, "Number of legs.")
    weight = Column(np.float64, np.nan, "Kilograms.")
    name = Text("What it is called.")


class OldPets(Pets):
    """Pets with one column more."""

    age = Column(np.float64, np.inf, "Years.")


PETS = Pets.build(3, legs=[4, 2, 0], name=["rex", None, "rex"])


def test_rows_become_columns() -> None:
    """Rows hold values of some columns in a given order; no rows are an empty table."""
    pets = Pets.of_rows(("name", "legs"), [("rex", 4), (None, 2), ("rex", 0)])
    assert pets.equals(Pets.build(3, legs=[4, 2, 0], name=["rex", None, "rex"]))
    assert len(Pets.of_rows(("name", "legs"), [])) == 0
    with pytest.raises(ShapeError, match="no column 'tail'"):
        Pets.of_rows(("tail",), [(1,)])


def test_where_parts_begin() -> None:
    """One place more than there are parts: the end."""
    assert offsets_of([2, 0, 3]).tolist() == [0, 2, 2, 5]
    assert offsets_of([]).tolist() == [0]


def test_columns_have_their_declared_type() -> None:
    """Whole numbers widen to floats; what is not given is missing, and costs nothing."""
    pets = Pets.build(2, legs=[4, 2], weight=[3, 4])
    assert pets.legs.dtype == np.int32
    assert pets.weight.dtype == np.float64
    assert PETS.weight.strides == (0,)
    assert np.isnan(PETS.weight).all()


def test_texts_become_codes() -> None:
    """Codes into a table of names in order of first appearance; -1 is missing."""
    assert PETS.name.tolist() == [0, -1, 0]
    assert PETS.names("name") == ("rex",)
    assert PETS.texts("name") == ["rex", None, "rex"]
    given_codes = Pets.build(2, name=[1, 0], names={"name": ("a", "b")})
    assert given_codes.texts("name") == ["b", "a"]


@given(st.lists(st.none() | st.text(max_size=3)))
def test_encoding_loses_nothing(texts: list[str | None]) -> None:
    """Codes and names give the texts back; names are distinct."""
    codes, names = encode(texts)
    assert [names[code] if code >= 0 else None for code in codes] == texts
    assert len(set(names)) == len(names)


NAMES = st.none() | st.sampled_from(["", "a", "b", "ab", "ba"])


@given(st.lists(st.tuples(NAMES, NAMES), max_size=8), st.lists(NAMES, max_size=60))
def test_texts_are_looked_at_once_each(
    pairs: list[tuple[str | None, str | None]], others: list[str | None]
) -> None:
    """What is asked of the names behind a column holds row by row, whatever other names it has."""
    rows = np.arange(len(pairs))
    one, other = (
        Jobs.build(len(pairs) + len(others), name=[*column, *others]).take(rows)
        for column in ([one for one, _ in pairs], [other for _, other in pairs])
    )
    begins = [(text or "")[:1] == "a" for text, _ in pairs]
    assert one.where("name", lambda text: (text or "")[:1] == "a").tolist() == begins
    assert differ(one, other, "name").tolist() == [a != b for a, b in pairs]
    firsts = [(a or "")[:1] != (b or "")[:1] for a, b in pairs]
    assert differ(one, other, "name", lambda text: (text or "")[:1]).tolist() == firsts


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"wings": [1]}, "Pets has no column 'wings'"),
        ({"legs": [1, 2]}, r"column 'legs' has shape \(2,\), expected \(1,\)"),
        ({"legs": [1.5]}, "column 'legs' holds int32, not float64"),
        ({"weight": ["heavy"]}, "column 'weight' holds float64"),
        ({"legs": [[1]]}, "has shape"),
    ],
)
def test_what_does_not_fit_is_refused(columns: dict[str, list[object]], complaint: str) -> None:
    """Unknown columns, wrong lengths, and types that would lose information."""
    with pytest.raises(ShapeError, match=complaint):
        Pets.build(1, **columns)


def test_scalars_stand_for_all_rows() -> None:
    """One value, many rows."""
    assert Pets.build(3, legs=4).legs.tolist() == [4, 4, 4]


def test_nobody_can_write() -> None:
    """Not to a column, not to a view, not through the array it was made from."""
    own = np.array([4, 2, 0], np.int32)
    pets = Pets.build(3, legs=own)
    for table in (pets, pets.take([0, 1]), pets.replace(weight=[1.0, 2.0, 3.0])):
        for name in Pets.columns():
            with pytest.raises(ValueError, match="read-only"):
                table.column(name)[:] = 0
    assert own.flags.writeable


def test_models_are_read_only_all_through() -> None:
    """Schedules, partitions and links can be written to no more than tables."""
    plan = Schedule.build([1], [0.0], [1.0], np.array([0, 2]), np.array([0, 1], np.int32))
    cluster = make_cluster(2, partitions={"a": [1]})
    wires = Topology((2,), np.array([[0, 1]], np.int32), np.ones(1))
    snapshot = Snapshot(0.0, cluster, allocations=plan)
    arrays = [plan.indptr, plan.nodes, plan.fractions, cluster.partitions["a"]]
    for array in [*arrays, wires.link, wires.bandwidth, snapshot.free_in]:
        assert not array.flags.writeable


def test_read_only_leaves_the_owner_his_array() -> None:
    """The result is a view; what is read-only already is returned as it is."""
    own = np.ones(2)
    view = read_only(own)
    assert own.flags.writeable
    assert read_only(view) is view


@given(st.lists(st.integers(0, 2), max_size=5), st.data())
def test_views_of_views(rows: list[int], data: st.DataObject) -> None:
    """Taking twice is taking once from the rows taken; texts come along."""
    once = PETS.take(rows)
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)) if rows else []
    twice = once.take(again)
    assert twice.legs.tolist() == [PETS.legs[rows[i]] for i in again]
    assert twice.texts("name") == [PETS.texts("name")[rows[i]] for i in again]
    assert len(twice) == len(again)


def test_a_mask_takes_rows() -> None:
    """Booleans choose where they are true."""
    assert PETS.take(PETS.legs > 0).legs.tolist() == [4, 2]


def test_replacing_columns() -> None:
    """The others are shared; text can get other codes and names."""
    heavier = PETS.replace(weight=[1.0, 2.0, 3.0])
    assert heavier.legs is PETS.legs
    assert heavier.texts("name") == PETS.texts("name")
    renamed = PETS.replace_text("name", [0, 1, -1], ["tom", "tim"])
    assert renamed.texts("name") == ["tom", "tim", None]
    assert PETS.replace(name=None).names("name") == ()
    with pytest.raises(ShapeError, match="no column 'wings'"):
        PETS.replace(wings=1)


def test_what_was_never_given_goes_nowhere() -> None:
    """A column is given once it has values, in whatever is made of a table; else it is missing.

    One value for all rows that is the missing one gives it none.
    """
    later = PETS.with_column("weight", [30.0, 4.0, 0.1])
    assert PETS.given() == PETS.take([2, 0]).given() == ["legs", "name"]
    assert later.given() == later.take([1]).given() == ["legs", "weight", "name"]
    assert PETS.replace(legs=None).given() == ["name"]
    joined = Pets.joined([PETS, later.take([0])])
    assert joined.given() == ["legs", "weight", "name"]
    assert np.isnan(joined.weight).tolist() == [True, True, True, False]
    assert Pets.joined([PETS.take([0]), PETS]).given() == ["legs", "name"]
    assert Pets.build(1, weight=np.nan, legs=4).given() == ["legs"]
    assert Pets.build(2, weight=[np.nan, 1.0], legs=None, name=[None, None]).given() == ["weight"]


@given(rows=st.lists(st.integers(0, 2), max_size=5))
def test_another_process_gets_the_same_rows(rows: list[int]) -> None:
    """Only the rows of a view travel, only columns that were given, and nobody can write there."""
    view = PETS.take(rows)
    view.weight  # noqa: B018 - a column that was read has not been given for that
    there = pickle.loads(pickle.dumps(view))  # noqa: S301 - our own
    assert there.equals(view)
    assert there.given() == ["legs", "name"]
    assert not any(there.column(name).flags.writeable for name in Pets.columns())
    long = Pets.build(10_000, legs=np.arange(10_000))
    assert len(pickle.dumps(long.take([5]))) < 1_000


def test_tables_inherit_columns() -> None:
    """A derived table has its base's columns first."""
    assert list(OldPets.columns()) == ["legs", "weight", "name", "age"]
    assert OldPets.build(1).age.tolist() == [np.inf]
    assert "age" not in Pets.columns()


def test_unknown_columns_are_told() -> None:
    """Of a table and of a view alike."""
    for table in (PETS, PETS.take([0])):
        with pytest.raises(ShapeError, match="Pets has no column 'wings'"):
            table.column("wings")


def test_labels_fall_back_on_ids() -> None:
    """A job without a name of its own is called by its id."""
    jobs = Jobs.build(2, id=[7, 8], label=["7_1", None])
    assert jobs.labels() == ["7_1", "8"]


@given(account_tables().filter(len))
def test_shares_sum_to_one(accounts: Accounts) -> None:
    """The users' parts of the machine are the machine."""
    leaves = np.isin(np.arange(len(accounts)), accounts.parent, invert=True)
    assert accounts.share()[leaves].sum() == pytest.approx(1.0)


def test_free_in_counts_running_jobs_and_states() -> None:
    """Free now, when the running job ends at the latest, at once if it is over, or never."""
    nodes = Nodes.build(4, state=np.array([0, 0, 0, NodeState.DOWN], np.int8))
    running = make_jobs(2, wall_time=[100.0, 10.0], submit=0.0)
    snapshot = make_snapshot(None, Cluster(nodes), 40.0, running=running, nodes=[[1], [2]])
    assert snapshot.free_in.tolist() == [0.0, 60.0, 0.0, np.inf]


def test_partitions_must_cover_every_node() -> None:
    """A mask of another length is a mistake."""
    with pytest.raises(ShapeError, match="partition 'a'"):
        Cluster(Nodes.build(3), {"a": np.ones(2, np.bool_)})
    with pytest.raises(ShapeError, match="node set 'b'"):
        Cluster(Nodes.build(3), node_sets={"b": np.ones(2, np.bool_)})


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


def test_what_they_ask_for_tells_jobs_apart_and_not_when_or_who_they_are() -> None:
    """Jobs 0, 2 and 5 are of one user, size and time; the others differ in one each."""
    jobs = Jobs.build(
        6,
        id=range(6),
        submit=range(6),
        deadline=[10, 20, 30, 40, 50, 60],
        size=[1, 2, 1, 1, 1, 1],
        wall_time=[5, 5, 5, 6, 5, 5],
        user=["a", "a", "a", "a", None, "a"],
        name=["x", "y", "z", "x", "y", "z"],
    )
    found = alike_but_for_deadlines(jobs).tolist()
    assert found[0] == found[2] == found[5]
    assert len(set(found)) == 4
    assert alike_but_for_deadlines(Jobs.build(2)).tolist() == [0, 0]
