"""Rows of different length in one array."""

import numpy as np

from rtsched.api import Ragged, Schedule, offsets_of

ROWS = [[5, 6], [], [7], [8, 9, 5]]


def test_rows_lie_one_after_the_other() -> None:
    """Also where one is empty, or all are."""
    ragged = Ragged.of(ROWS)
    assert ragged.offsets.tolist() == [0, 2, 2, 3, 6]
    assert ragged.values.tolist() == [5, 6, 7, 8, 9, 5]
    assert ragged.values.dtype == np.int32
    assert ragged.lengths.tolist() == [2, 0, 1, 3]
    assert ragged.rows().tolist() == [0, 0, 2, 3, 3, 3]
    assert [ragged.row(i).tolist() for i in range(4)] == ROWS
    assert [part.tolist() for part in Ragged.of([])] == [[0], []]
    assert offsets_of([]).tolist() == [0]


def test_places_within_a_row_are_counted() -> None:
    """From 0 in each row."""
    assert Ragged.counted([2, 0, 3]).values.tolist() == [0, 1, 0, 1, 2]


def test_some_rows_are_taken_in_the_order_given() -> None:
    """One may be taken twice."""
    ragged = Ragged.of(ROWS)
    taken = ragged.take(np.array([3, 1, 0, 3]))
    assert [taken.row(i).tolist() for i in range(4)] == [[8, 9, 5], [], [5, 6], [8, 9, 5]]
    assert ragged.places(np.array([2, 0])).values.tolist() == [2, 0, 1]
    assert ragged.take(np.array([], np.int64)).offsets.tolist() == [0]


def test_a_schedule_has_its_nodes_so() -> None:
    """A value per entry becomes one per node."""
    schedule = Schedule.build(range(4), np.zeros(4), np.ones(4), *Ragged.of(ROWS))
    assert schedule.per_node(np.array([1, 2, 3, 4])).tolist() == [1, 1, 3, 4, 4, 4]
    assert schedule.take(np.array([3, 0])).nodes.tolist() == [8, 9, 5, 5, 6]
