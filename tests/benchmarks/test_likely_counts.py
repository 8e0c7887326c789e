"""What the odds benchmark counts: blocks of promises, and who ended in time."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import likely


def test_blocks_are_consecutive_and_full():
    """Of 1,100 promises two blocks are full; the last 100 are in none."""
    kept = np.ones(1100, np.bool_)
    kept[:50] = kept[500:540] = kept[1000:] = False
    assert likely.blocks(kept).tolist() == [0.9, 0.92]
    assert len(likely.blocks(kept[:499])) == 0


def test_a_block_holds_from_92_per_cent_on():
    """The worst is shown beside; without a full block there is neither."""
    assert likely.of_blocks([0.92, 0.918, 1.0, 0.95]) == ("91.8 %", "3 of 4")
    assert likely.of_blocks([]) == ("", "")


def test_promises_change_places_among_themselves():
    """The earliest deadline gets the first of their places; of equal ones the first stays ahead."""
    place = likely.in_deadline_order(np.array([3.0, 7.0, 9.0]), np.array([50.0, 40.0, 40.0]))
    assert place.tolist() == [9.0, 3.0, 7.0]


def test_in_time_is_a_second_after_the_deadline_at_the_latest():
    """A job without an end is not in time."""
    end = np.array([10.0, 11.0, 11.5, np.nan])
    assert likely.ends_by(end, np.full(4, 10.0)).tolist() == [True, True, False, False]
