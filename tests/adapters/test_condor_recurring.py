"""Work that recurs on slots."""

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import numpy as np
import pytest
from condor_views import NOW, ad, plan_of, view_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.pool_state import Slots
from rtsched.adapters.condor.reserving import their_turn
from rtsched.adapters.condor.settings import Recurring
from rtsched.adapters.condor.slots import periodic_of
from rtsched.adapters.recurring import occurrences

SLOTS = Slots.build(4, name=["s1", "s2", "s3", "s3"], machine=["a", "a", "b", "b"])


def recurring(after: float, every: float, length: float, *slots: str) -> Recurring:
    """Return work of which an occurrence begins so long after now."""
    first = datetime.fromtimestamp(NOW + after).isoformat()
    return Recurring(slots=list(slots), first=first, every_s=every, length_s=length)


def test_whole_days_are_counted_by_the_local_clock(berlin: None) -> None:
    """As cron counts them; with a zone in `first`, and for other periods, by seconds."""
    work = Recurring(slots=["s1"], first="2026-10-20T12:00", every_s=86400.0, length_s=1800.0)
    for day in range(1, 20):
        noon = datetime(2026, 10, 20, 12).timestamp() + day * 86400.0
        noon = datetime.fromtimestamp(noon + 1800).replace(hour=12, minute=0).timestamp()
        row = periodic_of([work], SLOTS, noon + 60)
        assert row.left.tolist() == [1740.0]
        released = row.phase[0] + np.arange(14) * 86400.0
        true = [(datetime.fromtimestamp(noon) + timedelta(days=k)).timestamp() for k in range(14)]
        assert (released <= true).all()
        assert (np.array(true) + 1800 <= released + row.exec_time[0]).all()
    fixed = replace_struct(work, first="2026-10-20T12:00+02:00")
    assert not fixed.by_local_clock
    assert fixed.begins(10) - fixed.begins(0) == 864000.0
    assert work.begins(10) - work.begins(0) == 864000.0 + 3600.0


@given(st.integers(-5000, 0), st.integers(10, 900), st.integers(1, 9))
def test_the_present_or_the_next_occurrence(after: int, every: int, part: int) -> None:
    """An occurrence that goes on counts with what is left of it, else the next one."""
    length = every * part / 10
    row = periodic_of([recurring(after, every, length, "s2")], SLOTS, NOW)
    start, left = row.phase[0], row.left[0]
    assert row.node.tolist() == [1]
    assert start + length > NOW >= start - every
    periods = (start - NOW - after) / every
    assert periods == round(periods) >= 0
    assert left == pytest.approx(max(start + length - NOW, 0) if start <= NOW else 0)


def test_before_the_first_one_there_is_none() -> None:
    """Work that begins tomorrow did not go on yesterday."""
    assert periodic_of([recurring(500, 100, 10, "s1")], SLOTS, NOW).phase[0] == NOW + 500


def test_machines_and_slots() -> None:
    """A machine names all its slots, a partitionable slot all its rows; of two the first counts."""
    both = [recurring(50, 100, 10, "a"), recurring(20, 100, 10, "s3", "s1")]
    found = occurrences(periodic_of(both, SLOTS, NOW), 4)
    assert (found - NOW).tolist() == [20, 50, 20, 20]
    assert np.isinf(occurrences(periodic_of([], SLOTS, NOW), 4)).all()


def test_a_promised_job_waits_for_what_is_planned_before_it() -> None:
    """A slot that is free now, and needed before the planned start, is no place to start on."""
    view = view_of(ad(1, rtadmission="tok", rtdeadline=NOW + 5000.0))
    work = periodic_of([recurring(50, 1000, 10, "s1")], view.slots, NOW)
    later = replace(view, observation=replace(view.observation, periodic=work))
    job, closed = job_id(1, 0), np.ones(4, np.bool_)
    assert their_turn(plan_of((job, 100, [0])), view, closed, NOW).tolist() == [True]
    assert their_turn(plan_of((job, 100, [0])), later, closed, NOW).tolist() == [False]
    assert their_turn(plan_of((job, 100, [1])), later, closed, NOW).tolist() == [True]
    assert their_turn(plan_of((job, 10, [0]), length=30.0), later, closed, NOW).tolist() == [True]


@pytest.mark.parametrize(
    "wrong",
    [{"first": "tomorrow"}, {"length_s": 100.0}, {"slots": []}, {"every_s": -1.0}, {"more": 1}],
)
def test_what_makes_no_sense(wrong: dict[str, object]) -> None:
    """A table that makes no sense is refused when it is read."""
    table = {"slots": ["s1"], "first": "2026-01-01T00:00", "every_s": 100.0, "length_s": 10.0}
    msgspec.convert(table, Recurring)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(table | wrong, Recurring)
