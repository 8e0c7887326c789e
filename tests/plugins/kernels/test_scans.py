"""Positional scans: exact arithmetic, recursion over grids, whole tasks, work that stays, rows."""

from fractions import Fraction
from math import ceil, floor, prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from rtsched_plugins.kernels.scans import (
    FIRST,
    INDEX,
    MAJORITY,
    MOST,
    PROPORTIONAL,
    Runs,
    at_home,
    balanced,
    edges,
    exchanged,
    loads,
    placed,
    quotient,
    room,
)

Grid = tuple[tuple[int, ...], list[int], list[int]]


LEAVE = (PROPORTIONAL, INDEX)
RULE = (MAJORITY, FIRST)


def runs_of(shape: tuple[int, ...], load: list[int], power: list[int], leave: int) -> Runs:
    """Return where every unit goes."""
    return balanced(np.array(shape), np.array(load), np.array(power), leave)


def ideal(shape: tuple[int, ...], total: int, power: list[int]) -> list[int]:
    """Return the exact load of each node after balancing, by the recursion of the one-line rule."""
    parts = np.array(power).reshape(shape[0], -1)
    shares = np.diff(edges(total, parts.sum(axis=1))).tolist()
    if len(shape) == 1:
        return list(shares)
    rows = zip(shares, parts.tolist(), strict=True)
    return [units for share, part in rows for units in ideal(shape[1:], share, part)]


@st.composite
def grids(draw: DrawFn, most: int = 40) -> Grid:
    """Return a shape of up to four axes, loads and powers, some of them 0."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    n = prod(shape)
    load = draw(st.lists(st.integers(0, most), min_size=n, max_size=n))
    power = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    assume(any(power))
    return shape, load, power


def line_by_unit(total: int, power: list[int]) -> list[int]:
    """Return each unit's place on a line, straight from λ_j <= k/W < λ_{j+1}."""
    strength = sum(power)
    places = []
    for unit in range(total):
        share = Fraction(unit, total)
        reached = [Fraction(sum(power[:j]), strength) for j in range(len(power) + 1)]
        places.append(next(j for j in range(len(power)) if reached[j] <= share < reached[j + 1]))
    return places


def by_unit(
    shape: tuple[int, ...], held: list[list[tuple[int, int]]], power: list[int]
) -> list[list[tuple[int, int]]]:
    """Balance units one by one with the proportional rule; a unit is (first node, its number)."""
    if len(shape) == 1:
        units = [unit for node in held for unit in node]
        after: list[list[tuple[int, int]]] = [[] for _ in held]
        if units:
            for unit, place in zip(units, line_by_unit(len(units), power), strict=True):
                after[place].append(unit)
        return after
    m, size = shape[0], prod(shape[1:])
    slices = [range(g * size, (g + 1) * size) for g in range(m)]
    total = [sum(len(held[c]) for c in part) for part in slices]
    strength = [sum(power[c] for c in part) for part in slices]
    work, all_power = sum(total), sum(strength)
    if not work:
        return held
    bound = [ceil(Fraction(work * sum(strength[:g]), all_power)) for g in range(m + 1)]
    excess = [total[g] - (bound[g + 1] - bound[g]) for g in range(m)]
    held, moving = [list(node) for node in held], []
    for g, part in enumerate(slices):
        before = 0
        for c in part:
            count = len(held[c])
            if excess[g] > 0:
                give = floor(Fraction(excess[g] * (before + count), total[g])) - floor(
                    Fraction(excess[g] * before, total[g])
                )
                moving += held[c][count - give :]
                del held[c][count - give :]
            before += count
    for g, part in enumerate(slices):
        deficit = max(-excess[g], 0)
        block, moving = moving[:deficit], moving[deficit:]
        if block:
            places = line_by_unit(deficit, [power[c] for c in part])
            for unit, place in zip(block, places, strict=True):
                held[part[place]].append(unit)
    after = []
    for part in slices:
        after += by_unit(shape[1:], [held[c] for c in part], [power[c] for c in part])
    return after


@given(st.integers(0, MOST), st.integers(1, MOST), st.data())
def test_quotients_are_exact(a: int, c: int, data: st.DataObject) -> None:
    """a·b/c is rounded down or up as with unbounded integers, however large a·b is."""
    b = data.draw(st.integers(0, c))
    assert quotient(a, b, c, False) == a * b // c
    assert quotient(a, b, c, True) == -(-a * b // c)
    assert quotient(a, b, 0, True) == 0


@settings(max_examples=60, deadline=None)
@given(grids())
def test_every_unit_goes_where_a_simulation_unit_by_unit_puts_it(grid: Grid) -> None:
    """The runs, spelled out unit by unit, are those of the literal recursion."""
    shape, load, power = grid
    runs = runs_of(shape, load, power, PROPORTIONAL)
    found: list[list[tuple[int, int]]] = [[] for _ in load]
    for src, first, units, dst in zip(*(column.tolist() for column in runs), strict=True):
        found[dst] += [(src, first + k) for k in range(units)]
    home = [[(node, k) for k in range(count)] for node, count in enumerate(load)]
    assert found == by_unit(shape, home, power)


@pytest.mark.parametrize("leave", LEAVE)
@settings(max_examples=100, deadline=None)
@given(grids(most=10**9))
def test_units_are_conserved_and_loads_ideal(leave: int, grid: Grid) -> None:
    """Nothing is lost, nodes without power end empty, loads are less than d off the ideal."""
    shape, load, power = grid
    runs = runs_of(shape, load, power, leave)
    after, total = loads(runs, len(load)), sum(load)
    sent = np.zeros(len(load), np.int64)
    np.add.at(sent, runs.src, runs.units)
    assert sent.tolist() == load
    assert (runs.units > 0).all()
    assert after.tolist() == ideal(shape, total, power)
    assert not after[np.array(power) == 0].any()
    for got, strength in zip(after.tolist(), power, strict=True):
        assert abs(got - Fraction(total * strength, sum(power))) < len(shape)


@settings(max_examples=100, deadline=None)
@given(grids())
def test_a_line_keeps_the_order(grid: Grid) -> None:
    """On a line units never overtake each other, whatever the rule."""
    _, load, power = grid
    runs = runs_of((len(load),), load, power, PROPORTIONAL)
    place = runs.src * 10**6 + runs.first
    assert (np.diff(place) > 0).all()
    assert (np.diff(runs.dst) >= 0).all()


@settings(max_examples=100, deadline=None)
@given(grids())
def test_by_index_the_units_outside_the_senders_interval_leave(grid: Grid) -> None:
    """What stays with a sender has neighbouring numbers, and as many as its target."""
    shape, load, power = grid
    runs = exchanged(1, shape[0], at_home(np.array(load)), np.array(power), INDEX)
    size = prod(shape[1:])
    total, powers = (np.array(each).reshape(shape[0], -1).sum(axis=1) for each in (load, power))
    target = np.diff(edges(int(total.sum()), powers))
    number = np.concatenate([[0], np.cumsum(load)])
    for g in np.flatnonzero(total > target).tolist():
        kept = (runs.src // size == g) & (runs.dst // size == g)
        begin = np.sort(number[runs.src[kept]] + runs.first[kept])
        assert runs.units[kept].sum() == target[g]
        if len(begin):
            order = np.argsort(number[runs.src[kept]] + runs.first[kept])
            assert (begin[1:] == begin[:-1] + runs.units[kept][order][:-1]).all()


@st.composite
def task_lists(draw: DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Return owners and units of tasks, and powers of a line, the first of them not 0."""
    n = draw(st.integers(1, 8))
    power = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    power[0] += 1
    rows = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(1, 12)), max_size=25))
    return [owner for owner, _ in rows], [units for _, units in rows], power


def owner_of_most(nodes: list[int], rule: int) -> int:
    """Return the node that owns the first, or most, of a task's units; the lowest of equals."""
    if rule == FIRST:
        return nodes[0]
    return min(set(nodes), key=lambda node: (-nodes.count(node), node))


@pytest.mark.parametrize("rule", RULE)
@settings(max_examples=150, deadline=None)
@given(task_lists())
def test_whole_tasks_follow_their_units(
    rule: int, tasks: tuple[list[int], list[int], list[int]]
) -> None:
    """Each task goes by its rule; loads stay within twice the largest task, order is kept."""
    owner, units, power = tasks
    rows = (np.array(owner, int), np.array(units, int), np.array(power))
    found = placed(np.array([len(power)]), *rows, rule, INDEX)
    order = sorted(range(len(owner)), key=lambda row: (owner[row], row))
    places = line_by_unit(sum(units), power) if units else []
    at = 0
    for row in order:
        assert found[row] == owner_of_most(places[at : at + units[row]], rule)
        at += units[row]
    held = np.bincount(found, units, minlength=len(power))
    exact = np.bincount(np.array(places, int), minlength=len(power))
    assert (np.abs(held - exact) < 2 * max(units, default=1)).all()
    assert (np.diff(found[order]) >= 0).all()


@settings(max_examples=80, deadline=None)
@given(grids(), st.data())
def test_whole_tasks_on_a_grid_go_to_a_node_that_has_most_of_their_units(
    grid: Grid, data: st.DataObject
) -> None:
    """The general rule equals a count unit by unit on any grid."""
    shape, load, power = grid
    owner, units = [], []
    for node, total in enumerate(load):
        while total:
            owner.append(node)
            units.append(data.draw(st.integers(1, total)))
            total -= units[-1]
    rows = (np.array(owner, int), np.array(units, int), np.array(power))
    found = placed(np.array(shape), *rows, MAJORITY, PROPORTIONAL)
    home = [[(node, k) for k in range(count)] for node, count in enumerate(load)]
    where = {unit: node for node, held in enumerate(by_unit(shape, home, power)) for unit in held}
    passed = [0] * len(load)
    for row, (node, count) in enumerate(zip(owner, units, strict=True)):
        own = [where[node, passed[node] + k] for k in range(count)]
        passed[node] += count
        assert found[row] == owner_of_most(own, MAJORITY)


@settings(max_examples=150, deadline=None)
@given(grids(most=1000), st.integers(0, 5000))
def test_work_that_stays_reduces_the_target(grid: Grid, movable: int) -> None:
    """All movable units find room; nodes that get any end together, the others are fuller."""
    _, fixed, power = grid
    given_room = room(movable, np.array(fixed), np.array(power))
    assert given_room.sum() == movable
    assert (given_room >= 0).all()
    assert not given_room[np.array(power) == 0].any()
    ends = [
        (Fraction(fixed[i] + int(given_room[i]), power[i]), Fraction(1, power[i]), given_room[i])
        for i in range(len(power))
        if power[i]
    ]
    filled = [(end, unit) for end, unit, got in ends if got]
    for end, unit in filled:
        for other, _, _ in ends:
            assert end <= other + 2 * unit + 2 * max(one for _, one, _ in ends)


def test_pinned_work_by_hand() -> None:
    """Of 30 units in all, 18 stay on the first of three equal nodes; the others get 6 each."""
    assert room(12, np.array([18, 0, 0]), np.array([1, 1, 1])).tolist() == [0, 6, 6]
    assert room(12, np.array([6, 0, 0]), np.array([1, 1, 1])).tolist() == [0, 6, 6]
    assert room(12, np.array([3, 0, 0]), np.array([1, 1, 1])).tolist() == [2, 5, 5]
    assert room(12, np.array([3, 0, 0]), np.array([3, 1, 1])).tolist() == [6, 3, 3]


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return an array of int64."""
    return np.array(values, np.int64)


def test_room_beside_what_stays() -> None:
    """10 units on three nodes of which one is full: each of the others ends at 7."""
    assert room(10, ints(4, 0, 9), ints(1, 1, 1)).tolist() == [3, 7, 0]
    assert room(6, ints(0, 0), ints(2, 1)).tolist() == [4, 2]


def test_tasks_go_where_most_of_their_units_go() -> None:
    """Three tasks of 2 units on the first of two nodes: 3 units each, the second task is split.

    Its units go half to either node; of equal ones it goes to the lower, or where its first is.
    """
    where = (ints(2), ints(0, 0, 0), ints(2, 2, 2), ints(1, 1))
    assert placed(*where, MAJORITY, INDEX).tolist() == [0, 0, 1]
    assert placed(*where, FIRST, INDEX).tolist() == [0, 0, 1]
    where = (ints(2), ints(0, 0), ints(1, 5), ints(1, 1))
    assert placed(*where, MAJORITY, INDEX).tolist() == [0, 1]
    assert placed(*where, FIRST, INDEX).tolist() == [0, 0]
