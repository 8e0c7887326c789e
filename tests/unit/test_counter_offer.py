"""Counter-offers: the least deadline that would be accepted, checked by trying them all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from admission_states import State, admitted_ones, random_state, random_tasks
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtsched_plugins.kernels.admission import (
    BY_COST,
    BY_DEADLINE,
    MOLDABLE,
    Tasks,
    task_table,
)
from rtsched_plugins.kernels.admission_fast import admit, plan, prepare
from rtsched_plugins.kernels.counter_offer import counter_offer

seeds = st.integers(0, 2**32)


def accepts(state: State, waiting: Tasks, new: Tasks, deadline: float) -> bool:
    """Return whether the reference admits the new task with another deadline."""
    asked = new._replace(deadline=np.array([deadline]))
    both = Tasks(*(np.concatenate(pair) for pair in zip(waiting, asked, strict=True)))
    return state.planned(plan, both).accepted


def offer_case(seed: int) -> tuple[State, Tasks, Tasks, float]:
    """Return a state, its admitted tasks, a new one that asks for much, and a grid base."""
    rng = np.random.default_rng(seed)
    state = random_state(seed, most_nodes=9)
    waiting = admitted_ones(state, plan)
    new = random_tasks(rng, 1, 0.0)
    new.rank[0] = rng.choice([-1, 99])
    new.deadline[0] = rng.choice([0.0, 1.0, 3.0, 8.0, 20.5])
    return state, waiting, new, float(rng.choice([0.0, -0.3]))


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from([1.0, 0.25]))
def test_offers_are_the_least_on_the_grid(seed: int, resolution: float) -> None:
    """Trying every deadline of the grid finds none before the offered one."""
    state, waiting, new, base = offer_case(seed)
    prepared = state.prepared(waiting)
    offer = counter_offer(
        prepared, new, now=state.now, base=base, resolution=resolution, max_tests=10**6
    )
    first = math.ceil((new.deadline[0] - base) / resolution)
    grid = [base + (first + k) * resolution for k in range(int(250 / resolution))]
    tried = (deadline for deadline in grid if accepts(state, waiting, new, deadline))
    assert offer.exact
    assert offer.deadline == next(tried, math.inf)


@settings(deadline=None, max_examples=40)
@given(seeds)
@example(1878)  # by cost, one node fewer finds just as much room: a size that must not be passed
def test_exact_offers_are_the_least_of_all(seed: int) -> None:
    """Without a grid the offer is accepted, the float below it is not, nor is any sample."""
    state, waiting, new, _ = offer_case(seed)
    prepared = state.prepared(waiting)
    offer = counter_offer(prepared, new, now=state.now, resolution=0.0, max_tests=10**6)
    asked = float(new.deadline[0])
    samples = np.linspace(asked, min(offer.deadline, 130.0), 300, endpoint=False)
    assert offer.exact
    if offer.deadline == asked:
        assert accepts(state, waiting, new, asked)
        return
    assert not any(accepts(state, waiting, new, float(deadline)) for deadline in samples)
    if offer.deadline < math.inf:
        assert accepts(state, waiting, new, offer.deadline)
        assert not accepts(state, waiting, new, math.nextafter(offer.deadline, 0.0))


def gap() -> tuple[np.ndarray[Any, Any], Tasks, Tasks]:
    """Return a state in which EDF accepts deadlines in [20, 40) and from 45 on, not between.

    The waiting task needs both nodes for 20 of its 45 seconds. The new one halves its 40
    seconds on both: then it may go first. From 40 on one node will do, and keeps the other
    task waiting until 40; from 45 on it comes second, and both fit again.
    """
    waiting = task_table(1, size=2, wall=20.0, deadline=45.0, arrival=-1.0)
    return np.zeros(2), waiting, task_table(1, kind=MOLDABLE, size_max=2, wall=40.0, rank=1)


@pytest.mark.parametrize(("asked", "offered"), [(5, 20), (20, 20), (39, 39), (40, 45), (60, 60)])
def test_acceptance_has_gaps(asked: float, offered: float) -> None:
    """An offer is the least later deadline even where acceptance is not monotone."""
    free, waiting, new = gap()
    new.deadline[0] = asked
    prepared = prepare(free, waiting, BY_DEADLINE)
    assert admit(prepared, new).accepted == (asked == offered)
    assert counter_offer(prepared, new).deadline == offered


def test_offers_lie_on_whole_absolute_seconds() -> None:
    """With the clock at .25 of a second, offers are at .75 from now."""
    prepared = prepare(np.array([3.5]), task_table(0), BY_COST)
    new = task_table(1, wall=2.0, deadline=1.0)
    assert counter_offer(prepared, new, base=-0.25).deadline == 5.75
    assert counter_offer(prepared, new, base=-0.5).deadline == 5.5
    assert counter_offer(prepared, new, resolution=0.0).deadline == pytest.approx(5.5)


def test_no_offer_where_none_exists() -> None:
    """More nodes than there are: no deadline helps, and that is known at once."""
    prepared = prepare(np.zeros(3), task_table(0), BY_COST)
    offer = counter_offer(prepared, task_table(1, size=4, wall=1.0, deadline=9.0))
    assert offer == (math.inf, True, 1)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(0, 3))
def test_offers_within_a_budget_are_verified(seed: int, max_tests: int) -> None:
    """When the budget ends first, the offer is accepted all the same, at or after the least."""
    state, waiting, new, _ = offer_case(seed)
    prepared = state.prepared(waiting)
    best = counter_offer(prepared, new, now=state.now, max_tests=10**6)
    offer = counter_offer(prepared, new, now=state.now, max_tests=max_tests)
    assert offer.deadline >= best.deadline
    assert offer.exact <= (offer.deadline == best.deadline)
    if offer.deadline < math.inf:
        assert accepts(state, waiting, new, offer.deadline)
