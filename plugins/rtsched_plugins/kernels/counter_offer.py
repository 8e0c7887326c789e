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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched_plugins.kernels.admission_events import DeadlineSearch, Prepared, on_grid
from rtsched_plugins.kernels.admission_fast import run, with_new
from rtsched_plugins.kernels.admission_rows import DEADLINE, LOW, least_deadline

if TYPE_CHECKING:
    from rtsched_plugins.kernels.admission import Tasks

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


class _Search:
    """Tests of one new task under changing deadlines, counted."""

    def __init__(
        self, prepared: Prepared, new: Tasks, now: float, base: float, resolution: float
    ) -> None:
        self.state = with_new(prepared, new)
        self.new = len(prepared.queue)
        self.now = now
        self.base, self.resolution = float(base), float(resolution)
        self.tests = 0

    def up(self, deadline: float) -> float:
        """Return the first deadline that may be offered and is not before `deadline`."""
        return on_grid(deadline, self.base, self.resolution)

    def try_from(self, deadline: float, max_tests: int = 1) -> tuple[float, float]:
        """Return the deadline that tests from `deadline` up accept (or inf), and the next to try.

        Tests may go on, from where a later deadline makes a difference, up to `max_tests`.
        """
        self.state.rows.real[self.new, DEADLINE] = deadline
        search = DeadlineSearch(True, self.base, self.resolution, max_tests)
        trace = run(self.state, True, self.now, search)
        self.tests += trace.tests
        return (trace.deadline if trace.accepted else math.inf), trace.next_deadline

    def unhurried(self) -> float:
        """Return the finish with as few nodes as allowed and all the time there is, or inf.

        Raised past the last finite deadline of the waiting tasks, which matters in EDF order.
        """
        self.tests += 1
        self.state.rows.real[self.new, DEADLINE] = math.inf
        trace = run(self.state, True, self.now)
        if not trace.accepted:
            return math.inf
        rows = self.state.rows
        deadlines = rows.real[: self.new, DEADLINE]
        last = float(np.max(deadlines, initial=0.0, where=np.isfinite(deadlines)))
        need = least_deadline(rows, self.new, rows.whole[self.new, LOW], trace.start[self.new])
        return max(need, math.nextafter(last, math.inf))


def counter_offer(
    prepared: Prepared,
    new: Tasks,
    *,
    now: float = 0.0,
    base: float = 0.0,
    resolution: float = 1.0,
    max_tests: int = 100,
) -> Offer:
    """Return the least acceptable deadline of `new` at or after the one it asks for.

    Parameters
    ----------
    prepared : Prepared
        From `prepare`: the cluster and the waiting tasks.
    new : Tasks
        One task, with the deadline asked for.
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
    search = _Search(prepared, new, now, base, resolution)
    asked = deadline = search.up(float(new.deadline[0]))
    while search.tests < max_tests:
        found, following = search.try_from(deadline, max_tests - search.tests)
        if found < math.inf or following == math.inf:
            return Offer(found, True, search.tests)
        deadline = search.up(following)
    found = _some_later(search, asked, deadline, max_tests + GUESSES)
    return Offer(found, False, search.tests)


def _some_later(search: _Search, asked: float, deadline: float, max_tests: int) -> float:
    """Return a good acceptable deadline at or after `deadline`, by guesses; inf if none."""
    late = search.unhurried()
    found = math.inf
    if late < math.inf:
        found, _ = search.try_from(search.up(max(late, deadline)))
    step = max(1.0, 1e-3 * (deadline - asked), search.resolution)
    while search.tests < max_tests and deadline < found:
        better, following = search.try_from(deadline)
        if better < math.inf:
            return min(found, better)
        deadline = search.up(max(following, deadline + step))
        step *= 4.0
    return found
