"""Jobs that exchange their places in a live queue."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.changes import exchanged, is_ordered, with_exchanged_places


def whole(values: list[int]) -> Any:
    """Return int64[n]."""
    return np.array(values, np.int64)


def test_places_are_exchanged_within_a_group() -> None:
    """By hand: priorities 9, 7 and 5 go by rank; the other group has one job."""
    found = exchanged(np.array([9.0, 5.0, 8.0, 7.0]), whole([0, 0, 1, 0]), whole([3, 1, 0, 4]))
    assert found.tolist() == [7.0, 9.0, 8.0, 5.0]


def test_equal_priorities_are_made_to_differ() -> None:
    """The order of submission would decide; where another job has the same, some do so still."""
    zeros, group = whole([0, 0, 0]), whole([0, 0, 0])
    rank = whole([3, 2, 1])
    nobody = whole([])
    assert with_exchanged_places(zeros, group, rank, nobody, nobody).tolist() == [0, 1, 2]
    below = with_exchanged_places(zeros, group, rank, whole([2]), whole([0]))
    assert below.tolist() == [0, 1, 1], "below the job with 2"
    same = with_exchanged_places(zeros, group, rank, whole([0]), whole([0]))
    assert same.tolist() == [-1, 0, 0], "the first would come before it in the place of the third"
    elsewhere = with_exchanged_places(zeros, group, rank, whole([0]), whole([1]))
    assert elsewhere.tolist() == [0, 1, 2]


def test_an_earlier_job_does_not_come_before_others_with_the_same_priority() -> None:
    """The first job takes the place of the third, behind the second, which has no deadline."""
    found = with_exchanged_places(
        whole([100, 50]), whole([0, 0]), whole([2, 1]), whole([50]), whole([0])
    )
    assert found.tolist() == [49, 100]


STAYS = 0
"""In place of a rank."""

JOBS = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 1), st.sampled_from([1, 2, 3, 4, STAYS])),
    max_size=12,
)


@given(JOBS)
def test_no_other_job_has_more_before_it(jobs: list[tuple[int, int, int]]) -> None:
    """Counted in the queue by priority and submission; the lower rank is not lower."""
    priority, group = whole([job[0] for job in jobs]), whole([job[1] for job in jobs])
    rank = whole([job[2] for job in jobs])
    moves = rank != STAYS
    after = priority.copy()
    after[moves] = with_exchanged_places(
        priority[moves], group[moves], rank[moves], priority[~moves], group[~moves]
    )

    def before(values: Any, row: int) -> int:
        first = (values > values[row]) | ((values == values[row]) & (np.arange(len(jobs)) < row))
        return int((first & moves & (group == group[row])).sum())

    for row in np.flatnonzero(~moves).tolist():
        assert before(after, row) <= before(priority, row)
    for at in np.flatnonzero(moves).tolist():
        for other in np.flatnonzero(moves & (group == group[at]) & (rank > rank[at])).tolist():
            assert after[at] >= after[other] - 1


def test_order_is_told_apart() -> None:
    """Where the wanted priorities are equal, any order will do; groups are apart."""
    assert is_ordered(whole([3, 2, 2]), whole([9, 4, 5]), whole([0, 0, 0]))
    assert not is_ordered(whole([3, 2]), whole([4, 4]), whole([0, 0]))
    assert is_ordered(whole([3, 2]), whole([4, 4]), whole([0, 1]))
    assert is_ordered(whole([]), whole([]), whole([]))
