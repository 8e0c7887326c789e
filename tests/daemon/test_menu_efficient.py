"""Menus against all that could be had: each choice is admitted, none is dominated, none missing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from running import FACTS
from scene import ANN, BOB, T0, WORDS, Scene

from rtsched.adapters.live import Adjustable, Adjustment
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.daemon.admission import AdmissionResult
from rtsched.daemon.changed_requests import Search, amounts, efficient, left_out, most, one_by_one
from rtsched.daemon.likely import LikelyController, Odds, sold
from rtsched.daemon.menu import (
    MOST_CHOICES,
    MOST_HELD,
    Allowance,
    Choice,
    ChoiceKind,
    Menu,
    Request,
    with_menu,
    with_odds,
)
from rtsched.daemon.settings import LikelySettings
from rtsched.daemon.site import Site
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule

MINUTE = 60.0
TRANSLATOR = SlurmTranslator()
QUIET = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Asked:
    """Nodes, minutes, and by when, minutes from now."""

    nodes: int
    minutes: int
    by: float
    partition: str = "all"

    def fields(self, uid: int = ANN) -> dict[int, int | str]:
        """Return the request as the filter sends it."""
        return {
            Tag.USER_ID: uid,
            Tag.SUBMIT_UID: uid,
            Tag.MIN_NODES: self.nodes,
            Tag.MAX_NODES: self.nodes,
            Tag.TIME_LIMIT: self.minutes,
            Tag.DEADLINE: round(T0 + self.by * MINUTE),
            Tag.PARTITION: self.partition,
        }


class Machine:
    """A site of nodes that are busy for so many minutes, and what users are promised on it.

    The nodes but the `first` ones are in another partition; 0: there is none.
    """

    def __init__(self, until: Sequence[int], first: int = 0) -> None:
        self.scene = Scene(nodes=len(until))
        rows = [row for row, minutes in enumerate(until) if minutes]
        ids = np.arange(500, 500 + len(rows))
        ends = np.array([T0 + until[row] * MINUTE for row in rows])
        starts = np.full(len(rows), T0)
        snapshot = replace(
            self.scene.site.snapshot,
            running=Jobs.build(len(rows), id=ids, submit=starts, size=1, wall_time=ends - T0),
            allocations=Schedule.build(
                ids, starts, ends, np.arange(len(rows) + 1), np.array(rows, np.int32)
            ),
        )
        self.facts, self.odds = FACTS, Odds()
        if first:
            here = np.arange(len(until)) < first
            masks = {"all": here, "spare": ~here}
            snapshot = replace(snapshot, cluster=replace(snapshot.cluster, partitions=masks))
            both = {name: replace(FACTS.partitions["all"], name=name) for name in masks}
            self.facts = replace(FACTS, partitions=both)
        self.site: Site = replace(self.scene.site, snapshot=snapshot, facts=self.facts, seen=T0)
        self.after = self.site
        self.menu: Menu | None = None

    def judged(self, asked: Asked, uid: int = ANN, offer: float = 60.0) -> AdmissionResult:
        """Return what a submission comes to, without a menu."""
        chosen = msgspec.structs.replace(self.scene.settings, offer=offer)
        admission = replace(self.scene.admission, settings=chosen)
        return admission.judge(self.site, self.request(asked, uid).submission, T0)

    def request(self, asked: Asked, uid: int = ANN) -> Request:
        """Return a submission."""
        fields = asked.fields(uid)
        return Request(TRANSLATOR, fields, TRANSLATOR.describe(fields, self.facts, T0))

    def submit(self, asked: Asked, uid: int = ANN) -> AdmissionResult:
        """Submit a job; what it is promised or offered stands from now on."""
        request, admission = self.request(asked, uid), self.scene.admission
        judged = admission.judge(self.site, request.submission, T0)
        before = self.menu if uid == ANN else None
        likely = LikelyController(
            self.scene.chains, self.scene.settings, LikelySettings(share=1.0), WORDS
        )
        judged = with_menu(admission, self.site, judged, request, T0, Allowance(), before)
        judged = with_odds(judged, self.site, request, T0, likely, self.odds)
        self.site = judged.site
        self.menu = judged.menu if uid == ANN else self.menu
        return judged

    def sells(self, asked: Asked) -> bool:
        """Return whether so much may be sold with odds."""
        return sold(self.site, self.request(asked).submission.jobs, T0) <= 1.0

    def good(self, asked: Asked) -> bool:
        """Return whether a submission would be admitted by its own deadline."""
        return self.judged(asked, offer=0.0).verdict == "admit"


UNTIL = st.lists(st.sampled_from([0, 0, 5, 15, 30, 45, 60, 90, 240]), min_size=2, max_size=6)
ASKED = st.builds(Asked, st.integers(1, 6), st.integers(2, 40), st.integers(5, 90))
OTHERS = st.lists(ASKED, max_size=3)


BOBS = [Asked(1, 4, 74), Asked(5, 6, 32), Asked(3, 25, 87)]
"""Jobs of another user, of which the planner moves one before an offer."""


def rejected(until: list[int], others: list[Asked], asked: Asked) -> tuple[Machine, Menu]:
    """Return a machine, with promises of bob's, that rejected ann's job, and its menu."""
    assume(asked.nodes <= len(until))
    machine = Machine(until)
    for other in others:
        if other.nodes <= len(until) and machine.judged(other, BOB, 0.0).verdict == "admit":
            machine.submit(other, BOB)
    before = machine.site
    judged = machine.submit(asked)
    assume(judged.verdict == "reject" and machine.menu is not None)
    machine.site, machine.after = before, machine.site
    assert machine.menu is not None
    return machine, machine.menu


def wanted(asked: Asked, choice: Choice) -> Asked:
    """Return what a choice asks for."""
    nodes = choice.to.nodes or asked.nodes
    minutes = asked.minutes if choice.to.limit_s is None else int(choice.to.limit_s // MINUTE)
    return Asked(nodes, minutes, (choice.deadline - T0) / MINUTE)


def worse(asked: Asked, other: Asked) -> tuple[float, ...]:
    """Return what another request gives up: minutes, nodes, time limit, and node-minutes."""
    return (
        max(other.by - asked.by, 0),
        asked.nodes - other.nodes,
        max(asked.minutes - other.minutes, 0),
        max(asked.nodes * asked.minutes - other.nodes * other.minutes, 0),
    )


@QUIET
@example([0, 15, 30, 30, 45, 45], [Asked(2, 27, 42)], Asked(6, 18, 59))
@given(UNTIL, OTHERS, ASKED)
def test_no_choice_is_missing_or_dominated(
    until: list[int], others: list[Asked], asked: Asked
) -> None:
    """All requests that change one thing are judged: none that is admitted is better."""
    # Of few nodes all are tried. The search for a time limit is exact where less is never harder to
    # plan, which is not always so.
    machine, menu = rejected(until, others, asked)
    assert len(menu.choices) <= MOST_CHOICES
    chosen = {choice.kind: wanted(asked, choice) for choice in menu.choices}
    assert len(chosen) == len(menu.choices)
    for kind, one in chosen.items():
        assert machine.good(one), kind
    for one, other in permutations(chosen.values(), 2):
        a, b = worse(asked, one), worse(asked, other)
        assert any(x > y for x, y in zip(a, b, strict=True)), (one, other)
    sizes = [n for n in range(1, asked.nodes) if machine.good(replace(asked, nodes=n))]
    limits = [t for t in range(1, asked.minutes) if machine.good(replace(asked, minutes=t))]
    if sizes:
        assert chosen["smaller"].nodes == max(sizes)
        assert chosen["smaller"].by == asked.by
    if limits and limits == list(range(1, max(limits) + 1)):
        assert chosen["shorter"] == replace(asked, minutes=max(limits))
    elif not limits:
        assert "shorter" not in chosen
    if "later" in chosen and chosen["later"].by > asked.by + 2:  # it may be taken a minute later
        earlier = replace(asked, by=chosen["later"].by - 2)
        assert not machine.good(earlier)


@QUIET
@example([15, 0, 60, 5, 5, 45], BOBS, Asked(3, 40, 31), BOBS, 1)
@given(UNTIL, OTHERS, ASKED, st.lists(ASKED, max_size=6), st.integers(0, MOST_CHOICES))
def test_whichever_held_choice_is_taken_is_promised(
    until: list[int], others: list[Asked], asked: Asked, meanwhile: list[Asked], taken: int
) -> None:
    """Whatever others submit meanwhile: a choice that is reserved is promised its deadline."""
    machine, menu = rejected(until, others, asked)
    machine.site = machine.after
    held = [choice for choice in menu.choices if choice.promise >= 0 and choice.reserved]
    assert len({choice.promise for choice in held}) <= MOST_HELD
    assume(taken < len(held))
    for other in meanwhile:
        if other.nodes <= len(until):
            machine.submit(other, BOB)
    judged = machine.submit(wanted(asked, held[taken]))
    assert judged.verdict == "admit"
    assert not judged.site.of_user(ANN, "offered")
    assert judged.site.unused_by(ANN, T0, "offered") == []


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12))
def test_efficient_is_what_no_other_dominates(rows: list[tuple[int, int, int]]) -> None:
    """One by one: nothing kept is dominated, nothing left out is not; of equal ones one stays."""
    kept = efficient(np.array(rows, np.float64).reshape(len(rows), 3))

    def dominates(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    for at, row in enumerate(rows):
        beaten = any(dominates(other, row) for other in rows) or row in rows[:at]
        assert kept[at] != beaten


def searching(kind: ChoiceKind, guess: int = 0, **asked: Any) -> Search:
    """Return a search by halving."""
    whole = Adjustable(**asked)
    return most(amounts(whole)[kind], whole, guess)


@pytest.mark.parametrize(
    ("search", "good", "tried"),
    [
        (searching("smaller", nodes=8, limit_s=600.0), lambda to: to.nodes <= 3, [4, 2, 3, 3]),
        (searching("fewer-gpus", gpus=4), lambda to: to.gpus <= 1, [2, 1]),
        (searching("smaller", nodes=1), lambda _: True, []),
        (searching("fewer-gpus", 5, gpus=9), lambda to: to.gpus <= 5, [5, 6]),
        (searching("fewer-gpus", 5, gpus=9), lambda to: to.gpus <= 3, [5, 2, 3, 4]),
        (searching("fewer-gpus", 5, gpus=9), lambda to: to.gpus <= 8, [5, 6, 7, 8]),
        (searching("fewer-gpus", 9, gpus=9), lambda to: to.gpus <= 2, [4, 2, 3]),
    ],
)
def test_searches_halve(search, good, tried) -> None:
    """Each request is one between what is known to be good and what is not."""
    assert asked_by(search, good) == tried


def asked_by(search: Search, good: Callable[[Adjustment], bool]) -> list[int | None]:
    """Return of how many nodes, or GPUs, the requests are that a search has judged."""
    seen, to = [], next(search, None)
    while to is not None:
        seen.append(to.nodes or to.gpus)
        try:
            to = search.send(good(to))
        except StopIteration:
            break
    return seen


@pytest.mark.parametrize(
    ("nodes", "known", "good", "tried"),
    [
        (5, {2: False, 1: False}, {3, 4}, [4, 4]),
        (5, {2: False, 1: False}, {3}, [4, 3, 3]),
        (9, {4: True, 6: False, 5: False}, {7}, [8, 7, 7]),
        (9, {8: True}, {8}, []),
        (100, {50: True, 75: False}, set(), [99, 92, 85, 78, 71, 64, 57]),
    ],
)
def test_what_halving_left_out(nodes, known, good, tried):
    """From the top, all where they are few; of what is good the same node-hours then."""
    asked = Adjustable(nodes=nodes, limit_s=600.0)
    search = left_out(amounts(asked)["smaller"], asked, known)
    assert asked_by(search, lambda to: to.nodes in good) == tried


def test_a_time_limit_is_searched_to_the_next_minute_or_a_32nd() -> None:
    """An hour to the minute; four days to three hours."""
    for limit_s, tries, error in ((3600.0, 6, 60.0), (4 * 86400.0, 6, 3 * 3600.0)):
        search = searching("shorter", limit_s=limit_s)
        to, best, count = next(search), 0.0, 0
        while True:
            count += 1
            fits = (to.limit_s or 0.0) <= 0.7 * limit_s
            best = max(best, to.limit_s or 0.0) if fits else best
            try:
                to = search.send(fits)
            except StopIteration:
                break
        assert 0 <= 0.7 * limit_s - best <= error
        assert count <= tries


def test_others_are_tried_until_one_is_good() -> None:
    """And no more than some of them."""
    search = one_by_one([Adjustment(partition=f"p{k}") for k in range(9)])
    tried = [next(search).partition]
    tried += [search.send(False).partition for _ in range(3)]
    assert tried == ["p0", "p1", "p2", "p3"]
    with pytest.raises(StopIteration):
        search.send(False)


@QUIET
@given(UNTIL, OTHERS, ASKED, st.integers(1, 5), st.none() | st.integers(50, 99), st.integers(1, 90))
def test_nothing_shown_is_dominated_by_partitions_or_odds(
    until: list[int],
    others: list[Asked],
    asked: Asked,
    first: int,
    per_cent: int | None,
    later: int,
) -> None:
    """Against all that could be had: the other partition as it is, and the job with its odds."""
    # `first` nodes are in the partition that is asked for; the odds of the deadline are `per_cent`,
    # one so many minutes later has those that are asked for.
    first = min(first, len(until) - 1)
    assume(asked.nodes <= first)
    machine = Machine(until, first)
    for other in others:
        if other.nodes <= first and machine.judged(other, BOB, 0.0).verdict == "admit":
            machine.submit(other, BOB)
    known = Odds()
    if per_cent is not None:
        at = T0 + (asked.by + later) * MINUTE
        odds = per_cent / 100.0
        known = Odds(odds, at if per_cent < 95 else math.inf, odds)
    machine.odds, before = known, machine.site
    judged = machine.submit(asked)
    assume(judged.verdict == "reject")
    choices = machine.menu.choices if machine.menu is not None else ()
    machine.site = before
    rows = [given_up(asked, choice) for choice in choices]
    for one, other in permutations(rows, 2):
        assert not all(a <= b for a, b in zip(one, other, strict=True)), (one, other)
    kinds = {choice.kind: choice for choice in choices}
    assert len(kinds) == len(choices)
    fits = asked.nodes <= len(until) - first
    elsewhere = fits and machine.good(replace(asked, partition="spare"))
    had = kinds.get("partition")
    assert elsewhere == (had is not None and had.deadline <= T0 + asked.by * MINUTE)
    likely = per_cent is not None and per_cent >= 80 and machine.sells(asked)
    assert ("likely" in kinds) == likely
    if likely:
        assert kinds["likely"].odds <= per_cent / 100.0
    guaranteed = kinds["later"].deadline if "later" in kinds else math.inf
    sooner = known.offer < guaranteed and machine.sells(replace(asked, by=asked.by + later))
    assert ("likely-later" in kinds) == sooner


def given_up(asked: Asked, choice: Choice) -> tuple[float, ...]:
    """Return what a choice gives up of what was asked for, and of a guarantee."""
    elsewhere = choice.to.partition is not None
    uncertain = 0.0 if choice.odds is None else 1.0 - choice.odds
    return (*worse(asked, wanted(asked, choice)), float(elsewhere), uncertain)
