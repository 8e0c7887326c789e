"""Counts of things agree with their number."""

import math

import pytest

from rtsched.model.verdicts import Reason
from rtsched.text import counted, span


@pytest.mark.parametrize(
    ("words", "one", "many"),
    [
        (["job"], "1 job", "2,000 jobs"),
        (["job is", "jobs are"], "1 job is", "2,000 jobs are"),
        (["policy", "policies"], "1 policy", "2,000 policies"),
    ],
)
def test_counted(words: list[str], one: str, many: str) -> None:
    """One thing is called otherwise than several, or none."""
    assert counted(1, *words) == one
    assert counted(2000, *words) == many
    assert counted(0, *words) == many.replace("2,000", "0")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (59.9, "59 s"),
        (1810.0, "30 min 10 s"),
        (3605.0, "1 h"),
        (7199.0, "1 h 59 min"),
        (90000.0, "1 d 1 h"),
        (math.inf, "unlimited time"),
    ],
)
def test_spans_of_time(seconds: float, shown: str) -> None:
    """Two units at most, rounded down."""
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (59.1, "1 min"),
        (1810.0, "30 min 10 s"),
        (3605.0, "1 h 1 min"),
        (7199.0, "2 h"),
        (86399.5, "1 d"),
        (90001.0, "1 d 2 h"),
        (math.inf, "unlimited time"),
    ],
)
def test_spans_of_time_rounded_up(seconds: float, shown: str) -> None:
    """The time that something needs is never said to be less."""
    assert span(seconds, up=True) == shown


def test_numbers_in_a_reason() -> None:
    """Plain, as a span of time, as a count, with a plural of its own, or as Python formats it."""
    text = "{a}, {b:time}, {b:time up}, {c:existing promise}, {d:job is|jobs are}, {e:.1f}"
    numbers = {"a": 2.0, "b": 3605.0, "c": 1.0, "d": 2.0, "e": 0.25}
    said = Reason("test.words", text).text(numbers)
    assert said == "2, 1 h, 1 h 1 min, 1 existing promise, 2 jobs are, 0.2"
