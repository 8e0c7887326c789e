"""The least deadline later than the asked one with which a new task would be admitted.

Acceptance is not monotone in the deadline, so there is nothing to bisect. But the outcome of
the test depends on the deadline only through a few comparisons: how many nodes the new task
needs when it comes up, and in EDF order what it comes before. While a test runs it notes the
least later deadline at which one of these could come out differently; if it rejects, it rejects
every deadline up to there, and the search goes on from there. Nothing accepted is jumped over.
In the queue orders that next test only replays the plan from the step that changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import DEADLINE, LOW, least_deadline
from rtsched_plugins.kernels.admission_events import DeadlineSearch, Prepared, on_grid
from rtsched_plugins.kernels.admission_fast import NO_SEARCH, run

GUESSES: int = 16
"""Tests spent on finding some acceptable deadline once the budget is used up."""


class Offer(NamedTuple):
    """A counter-offer."""

    deadline: float
    """Seconds; the test accepts it. +inf: none was found."""
    exact: bool
    """Whether nothing between the asked deadline and this one is accepted either."""
    tests: int
    """Admission tests that it took."""


@compiled
def _tested(
    question: Prepared, deadline: float, now: float, base: float, resolution: float, max_tests: int
) -> tuple[float, float, int]:
    """Return the deadline that tests from one on accept (or inf), the next to try, and how many.

    Tests may go on, from where a later deadline makes a difference, up to `max_tests`.
    """
    question.rows.real[len(question.queue), DEADLINE] = deadline
    trace = run(question, True, now, DeadlineSearch(True, base, resolution, max_tests))
    return (trace.deadline if trace.accepted else math.inf), trace.next_deadline, trace.tests


@compiled
def _unhurried(question: Prepared, now: float) -> float:
    """Return the finish with as few nodes as allowed and all the time there is, or inf.

    Raised past the last finite deadline of the waiting tasks, which matters in EDF order.
    """
    rows, new = question.rows, len(question.queue)
    rows.real[new, DEADLINE] = math.inf
    trace = run(question, True, now, NO_SEARCH)
    if not trace.accepted:
        return math.inf
    last = 0.0
    for i in range(new):
        if rows.real[i, DEADLINE] < math.inf:
            last = max(last, rows.real[i, DEADLINE])
    need = least_deadline(rows, new, rows.whole[new, LOW], trace.start[new])
    return max(need, float(np.nextafter(last, math.inf)))


@compiled
def _some_later(
    question: Prepared,
    now: float,
    base: float,
    resolution: float,
    asked: float,
    deadline: float,
    left: int,
) -> tuple[float, int]:
    """Return a good acceptable deadline at or after `deadline`, by guesses; inf if none.

    With it, how many tests were made; at least two, and then no more than `left`.
    """
    late, tests, found = _unhurried(question, now), 1, math.inf
    if late < math.inf:
        late = on_grid(max(late, deadline), base, resolution)
        found, _, made = _tested(question, late, now, base, resolution, 1)
        tests += made
    step = max(1.0, 1e-3 * (deadline - asked), resolution)
    while tests < left and deadline < found:
        better, following, made = _tested(question, deadline, now, base, resolution, 1)
        tests += made
        if better < math.inf:
            return min(found, better), tests
        deadline = on_grid(max(following, deadline + step), base, resolution)
        step *= 4.0
    return found, tests


@compiled
def least_later(
    question: Prepared, now: float, base: float, resolution: float, max_tests: int
) -> Offer:
    """Return the least acceptable deadline of the new task at or after the one it asks for.

    Parameters
    ----------
    question : Prepared
        The test, with the new task in its last row; the deadline of that row is written to.
    now : float
        Seconds, >= 0: nothing starts before.
    base, resolution : float
        Only deadlines base + k resolution are offered, seconds; with resolution 0 any is. With
        times relative to t0, base = -(t0 mod 1) makes the absolute deadlines whole seconds.
    max_tests : int
        Budget. Once it is used up a later deadline that was tested and accepted is offered,
        found with at most `GUESSES` more tests, and flagged as not exact. In the queue orders a
        further test takes a fraction of the first, so that 400 cost about as much as 100 do in
        cost order.
    """
    new, tests = len(question.queue), 0
    asked = deadline = on_grid(question.rows.real[new, DEADLINE], base, resolution)
    while tests < max_tests:
        found, following, made = _tested(
            question, deadline, now, base, resolution, max_tests - tests
        )
        tests += made
        if found < math.inf or following == math.inf:
            return Offer(found, True, tests)
        deadline = on_grid(following, base, resolution)
    left = max_tests + GUESSES - tests
    found, made = _some_later(question, now, base, resolution, asked, deadline, left)
    return Offer(found, False, tests + made)
