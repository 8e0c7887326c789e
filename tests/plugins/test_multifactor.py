"""Multifactor priority: values worked out by hand, and a plain model of usage and Fair Tree."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind
from rtsched.testing import make_cluster, make_events, make_jobs, make_snapshot
from rtsched.testing.strategies import account_tables
from rtsched_plugins.kernels import usage as at
from rtsched_plugins.kernels.multifactor import factor
from rtsched_plugins.multifactor import Multifactor, Tree, Usage, begin, lay_out

START, END = EventKind.STARTED, EventKind.ENDED
DAY = 86400.0
WEEK = 7 * DAY

DOCUMENTED = Accounts.build(
    11,
    name=["A", "D", "B", "C", "E", "F", "user1", "user2", "user3", "user4", "user5"],
    parent=[-1, -1, 0, 0, 1, 1, 2, 3, 3, 4, 5],
    shares=[40.0, 60.0, 30.0, 10.0, 25.0, 35.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    usage=[0.0] * 6 + [200.0, 250.0, 0.0, 250.0, 0.0],
)
"""The tree of the manual's classic_fair_share page; the machine had 1000 node-seconds to give."""


def plugin(**config: Any) -> Multifactor:
    """Return the plug-in with these settings."""
    return Multifactor(Multifactor.Config(**config))


def terms(plug: Multifactor, jobs: Any, snapshot: Any) -> Any:
    """Return the plug-in's answer, checked as the chain checks it."""
    chain = Chain([Member("multifactor", plug)])
    answer = chain.fair_share(jobs, snapshot).answers[0]
    assert not answer.error
    return answer.value


def shares_of(accounts: Accounts, users: list[int], now: float = 0.0, **config: Any) -> Any:
    """Return the fair-share factors of one job per row of `users`."""
    jobs = make_jobs(association=np.array(users, np.int32), submit=now)
    snapshot = make_snapshot(jobs, now=now, accounts=accounts)
    return terms(plugin(**config), jobs, snapshot).values["fair_share"]


def test_classic_gives_the_manuals_factors() -> None:
    """The worked example of Slurm's manual, where 300 of 1000 node-seconds were not used."""
    plug, cluster = plugin(algorithm="classic"), make_cluster()
    charges = begin(DOCUMENTED, cluster)[: at.KEPT].copy()
    charges[at.CLOSED, 0] = 1000.0
    jobs = make_jobs(association=np.arange(6, 11, dtype=np.int32))
    states = {"multifactor": Usage(charges)}
    snapshot = make_snapshot(jobs, cluster, accounts=DOCUMENTED, states=states)
    factors = terms(plug, jobs, snapshot).values["fair_share"]
    manual = [0.408479, 0.022097, 0.125000, 0.500000, 0.749154]
    assert factors == pytest.approx(manual, abs=5e-5)  # it rounds .1458333 before the power


def test_classic_is_one_half_where_usage_equals_share() -> None:
    """F = 2^(-U/S): two users at one half each, both with their share used; damped by 2."""
    accounts = Accounts.build(2, name=["a", "b"], usage=[500.0, 500.0])
    assert shares_of(accounts, [0, 1], algorithm="classic").tolist() == [0.5, 0.5]
    damped = shares_of(accounts, [0, 1], algorithm="classic", damping=2.0)
    assert damped == pytest.approx([2**-0.5] * 2)


def test_nobody_is_behind_on_an_unused_machine() -> None:
    """Without usage everybody's factor is 1, whatever the algorithm."""
    idle = DOCUMENTED.replace(usage=np.zeros(11))
    for algorithm in ("classic", "fair-tree"):
        assert shares_of(idle, [6, 8, 10], algorithm=algorithm).tolist() == [1.0] * 3


def test_fair_tree_ranks_the_documented_tree() -> None:
    """By hand: A has level .4/(450/700), D .6/(250/700), so D's users come first; F before E;
    in A, B has .75/(200/450), C .25/(250/450); in C user3 is idle. Order 5 4 1 3 2.
    """  # noqa: D205
    factors = shares_of(DOCUMENTED, [6, 7, 8, 9, 10])
    assert factors.tolist() == [3 / 5, 1 / 5, 2 / 5, 4 / 5, 5 / 5]


def test_fair_tree_ties() -> None:
    """Users and accounts of equal level: shared ranks, merged accounts, a user beside them.

    u (row 2) and the accounts P, Q are equal (1 share, 10 of 30 used each): u comes first and P's
    and Q's users are ranked together. p1, q1 used 4 of 10, p2, q2 used 6: two pairs. The first
    pair shares u's rank, the second has three users ahead.
    """
    accounts = Accounts.build(
        7,
        name=["P", "Q", "u", "p1", "p2", "q1", "q2"],
        parent=[-1, -1, -1, 0, 0, 1, 1],
        usage=[0.0, 0.0, 10.0, 4.0, 6.0, 4.0, 6.0],
    )
    factors = shares_of(accounts, [2, 3, 4, 5, 6])
    assert factors.tolist() == [1.0, 1.0, 2 / 5, 1.0, 2 / 5]


def test_a_root_row_stands_for_the_machine() -> None:
    """Slurm's dumps hang all accounts below `root`; that changes no factor."""
    below = Accounts.build(
        12,
        name=["root", *DOCUMENTED.texts("name")],
        parent=np.concatenate(([-1], DOCUMENTED.parent + 1)).astype(np.int32),
        shares=np.concatenate(([1.0], DOCUMENTED.shares)),
        usage=np.concatenate(([0.0], DOCUMENTED.usage)),
    )
    for algorithm in ("classic", "fair-tree"):
        plain = shares_of(DOCUMENTED, [6, 7, 8, 9, 10], algorithm=algorithm)
        rooted = shares_of(below, [7, 8, 9, 10, 11], algorithm=algorithm)
        assert rooted == pytest.approx(plain, rel=1e-12)


def reference_ranks(accounts: Accounts) -> dict[int, float]:
    """Return Fair Tree's factors by plain recursion over sorted, merged lists of children."""
    tree = Tree.of(accounts)
    usage = [int(value) for value in tree.summed(np.concatenate(([0.0], accounts.usage)))]
    shares = [1, *(int(value) for value in accounts.shares)]
    below = {row: np.flatnonzero(tree.parent[1:] == row) + 1 for row in range(len(usage))}
    users, given, ranks = int(tree.leaf[1:].sum()), 0, {}

    def level(row: int) -> float | Fraction:
        above = int(tree.parent[row])
        if not usage[row]:
            return math.inf
        share = Fraction(shares[row], sum(shares[sibling] for sibling in below[above]))
        return share / Fraction(usage[row], usage[above])

    def visit(rows: list[int], ahead: int | None) -> None:
        nonlocal given
        for value in sorted({level(row) for row in rows}, reverse=True):
            group = [row for row in rows if level(row) == value]
            ahead = given if ahead is None else ahead
            for row in (row for row in group if tree.leaf[row]):
                ranks[row - 1] = (users - ahead) / users
                given += 1
            inner = [child for row in group if not tree.leaf[row] for child in below[row]]
            if inner:
                visit(inner, ahead)
            ahead = None

    if len(accounts):
        visit(below[0].tolist(), None)
    return ranks


@given(account_tables(12).filter(len))
@settings(deadline=None, max_examples=150)
def test_fair_tree_equals_plain_recursion(accounts: Accounts) -> None:
    """The sorted, level by level ranking is the manual's depth-first visit."""
    expected = reference_ranks(accounts)
    users = sorted(expected)
    assert shares_of(accounts, users).tolist() == [expected[user] for user in users]


def used(charges: Any, row: int, instant: float, accounts: Accounts, **config: Any) -> float:
    """Return the node-seconds that a row of `charges` had used when `instant`'s period began."""
    plug = plugin(**config)
    params, tables = lay_out(plug.config, plug.weights, make_jobs(0), accounts, make_cluster())
    state = np.zeros((at.LINES, charges.shape[1]))
    state[: at.KEPT] = charges
    period = at.period_of(instant, params)
    scaled = at.used(row, period, params, tables, state)
    return float(scaled * math.exp(-params[at.DECAY] * (period - charges[at.REFERENCE, 0])))


def charged(
    events: list[tuple[float, EventKind, int]], sizes: list[int], accounts: Accounts, **config: Any
) -> Any:
    """Return the charges after events about jobs of user 0."""
    jobs = make_jobs(size=np.array(sizes, np.int32), association=0)
    snapshot = make_snapshot(accounts=accounts)
    state = plugin(**config).rtsched_observe(make_events(jobs, events), snapshot, None)
    assert state is not None
    return state.charges


ONE = Accounts.build(1, name=["ann"])


def test_usage_halves_in_a_half_life() -> None:
    """100 nodes for one period, and nothing after: half is left a half-life later."""
    charges = charged([(0.0, START, 0), (300.0, END, 0)], [100], ONE)
    assert used(charges, 1, 300.0, ONE) == pytest.approx(30_000.0)
    assert used(charges, 1, 300.0 + WEEK, ONE) == pytest.approx(15_000.0)
    assert used(charges, 1, 300.0 + 3 * WEEK, ONE) == pytest.approx(3_750.0)


def test_usage_without_decay_is_the_area() -> None:
    """With a half-life of 0 usage is nodes times seconds, periods or not."""
    charges = charged(
        [(10.0, START, 0), (100.0, START, 1), (940.0, END, 0)], [4, 2], ONE, decay_half_life=0.0
    )
    assert used(charges, 1, 3000.0, ONE, decay_half_life=0.0) == 4 * 930 + 2 * 2900


def test_usage_changes_once_a_period() -> None:
    """What a running job uses counts from the next period on."""
    charges = charged([(100.0, START, 0)], [10], ONE)
    assert used(charges, 1, 299.0, ONE) == 0.0
    assert used(charges, 1, 300.0, ONE) == used(charges, 1, 599.0, ONE) == pytest.approx(2000.0)
    decay = 2 ** (-300 / WEEK)
    assert used(charges, 1, 600.0, ONE) == pytest.approx(2000.0 * decay + 3000.0)


def test_usage_is_charged_up_the_tree() -> None:
    """A user's nodes count for the account and for the machine, and for nobody else."""
    events = make_events(make_jobs(1, size=3, association=7), [(0.0, START, 0), (100.0, END, 0)])
    idle = DOCUMENTED.replace(usage=np.zeros(11))
    state = plugin().rtsched_observe(events, make_snapshot(accounts=idle), None)
    assert state is not None
    paid = [row for row in range(12) if used(state.charges, row, 300.0, idle) == 300.0]
    assert paid == [0, 1, 4, 8]  # the machine, A, C, user2
    assert used(state.charges, 2, 300.0, idle) == 0.0


def test_usage_begins_where_the_accounts_say() -> None:
    """`Accounts.usage` is in core-seconds; nodes of 4 cores make it node-seconds."""
    accounts = Accounts.build(2, name=["a", "b"], usage=[400.0, 0.0])
    state = begin(accounts, make_cluster(2, cores=4))
    assert state[at.CLOSED].tolist() == [100.0, 100.0, 0.0]


def test_accounts_that_are_added_begin_at_nothing() -> None:
    """A state made for fewer accounts serves on; the new one is idle and comes first."""
    charges = charged([(0.0, START, 0), (300.0, END, 0)], [100], ONE)
    more = Accounts.build(2, name=["ann", "bob"], usage=[0.0, 7.0])
    jobs = make_jobs(association=np.array([0, 1], np.int32), submit=600.0)
    states = {"multifactor": Usage(charges)}
    snapshot = make_snapshot(jobs, now=600.0, accounts=more, states=states)
    assert terms(plugin(), jobs, snapshot).values["fair_share"].tolist() == [0.5, 1.0]


spans = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(1, 5000), st.integers(1, 50)),
    min_size=1,
    max_size=5,
)


@given(spans, st.integers(0, 5000), st.sampled_from([0.0, 60.0, 3600.0, WEEK]))
@settings(deadline=None, max_examples=100)
def test_usage_equals_a_sum_over_periods(
    runs: list[tuple[int, int, int]], later: int, half_life: float
) -> None:
    """Skipping idle and steady periods is exact: U_k = W_(k-1) + D U_(k-1), period by period."""
    events = [(float(start), START, row) for row, (start, _, _) in enumerate(runs)]
    events += [(float(start + span), END, row) for row, (start, span, _) in enumerate(runs)]
    events.sort(key=lambda event: event[0])
    now = events[-1][0] + later
    decay = 2 ** (-60 / half_life) if half_life else 1.0
    expected = 0.0
    for period in range(int(now // 60)):
        overlaps = (
            size * max(0, min(start + span, 60 * (period + 1)) - max(start, 60 * period))
            for start, span, size in runs
        )
        expected = expected * decay + sum(overlaps)
    config = {"calc_period": 60, "decay_half_life": half_life}
    charges = charged(events, [size for *_, size in runs], ONE, **config)
    assert used(charges, 1, now, ONE, **config) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.integers(0, 3000), st.integers(0, 3000), st.sampled_from([1.0, 3600.0, WEEK]))
@settings(deadline=None)
def test_decay_twice_equals_decay_once(first: int, second: int, half_life: float) -> None:
    """G grows over two spans as over both, as far as it is told apart."""
    plug = plugin(decay_half_life=half_life, calc_period=1)
    params, tables = lay_out(plug.config, plug.weights, make_jobs(0), ONE, make_cluster())
    if params[at.DECAY] * (first + second) < at.MOST:
        twice = at.growth(first, params, tables) * at.growth(second, params, tables)
        assert twice == pytest.approx(at.growth(first + second, params, tables), rel=1e-11)


def test_the_reference_moves_on() -> None:
    """After thousands of half-lives of work usage is still finite, and the old is forgotten."""
    jobs = make_jobs(2, size=10, association=np.array([0, 1], np.int32))
    events = [(0.0, START, 0), (300.0, END, 0)]
    for day in range(1, 40):
        events += [(day * DAY, START, 1), (day * DAY + 600.0, END, 1)]
    accounts = Accounts.build(2, name=["ann", "bob"])
    config = {"decay_half_life": 600.0, "algorithm": "classic"}
    snapshot = make_snapshot(jobs, accounts=accounts, now=40 * DAY)
    state = plugin(**config).rtsched_observe(make_events(jobs, events), snapshot, None)
    assert state is not None
    assert np.isfinite(state.charges[: at.REFERENCE]).all()
    snapshot = replace(snapshot, states={"multifactor": state}, now=39 * DAY + 600.0)
    factors = terms(plugin(**config), jobs, snapshot).values["fair_share"]
    assert factors.tolist() == [1.0, 0.25]  # bob used all of the machine, his share is a half


def test_a_constant_load_comes_to_its_limit() -> None:
    """One node for ever: U tends to P/(1 - D), and asking after a long time overflows nothing."""
    charges = charged([(0.0, START, 0)], [1], ONE, decay_half_life=300.0)
    assert used(charges, 1, 1e5, ONE, decay_half_life=300.0) == pytest.approx(600.0)
    jobs = make_jobs(1, association=0)
    states = {"multifactor": Usage(charges)}
    for now in (1e6, 1e9):
        snapshot = make_snapshot(jobs, accounts=ONE, states=states, now=now)
        for algorithm in ("classic", "fair-tree"):
            plug = plugin(decay_half_life=300.0, algorithm=algorithm)
            expected = 0.5 if algorithm == "classic" else 1.0
            assert terms(plug, jobs, snapshot).values["fair_share"].tolist() == [expected]


def test_factors_and_their_sum() -> None:
    """Each factor by hand, then 1000 age + 10000 fair share + ... - nice."""
    jobs = make_jobs(
        submit=[0.0, DAY, DAY, 0.0],
        begin=[-np.inf, -np.inf, 3 * DAY, 5 * DAY],
        size=[1, 16, 4, 99],
        partition=["short", "long", None, "other"],
        qos=["high", None, "normal", "high"],
        nice=[0.0, 10.0, -5.0, 0.0],
    )
    plug = plugin(
        partition_priority={"short": 4, "long": 2},
        qos_priority={"high": 10, "normal": 5},
        weight_qos=100.0,
    )
    answer = terms(plug, jobs, make_snapshot(jobs, now=4 * DAY))
    assert answer.values["age"] == pytest.approx([4 / 7, 3 / 7, 1 / 7, 0.0])
    assert answer.values["job_size"].tolist() == [1 / 16, 1.0, 4 / 16, 1.0]
    assert answer.values["partition"].tolist() == [1.0, 0.5, 0.25, 0.25]
    assert answer.values["qos"].tolist() == [1.0, 0.0, 0.5, 1.0]
    assert answer.values["fair_share"].tolist() == [0.0] * 4  # no association
    assert answer.total() == pytest.approx(
        [
            1000 * (4 / 7 + 1 / 16 + 1.0) + 100,
            1000 * (3 / 7 + 1.0 + 0.5) - 10,
            1000 * (1 / 7 + 0.25 + 0.25) + 50 + 5,
            1000 * (1.0 + 0.25) + 100,
        ]
    )


def test_age_counts_fully_after_the_longest_wait() -> None:
    """The age factor stops at 1."""
    jobs = make_jobs(submit=[0.0])
    answer = terms(plugin(max_age=DAY), jobs, make_snapshot(jobs, now=9 * DAY))
    assert answer.values["age"].tolist() == [1.0]


def test_small_jobs_favoured() -> None:
    """One node counts 1, and every node more a sixteenth less."""
    jobs = make_jobs(size=[1, 2, 16, 40])
    answer = terms(plugin(favor_small=True), jobs, make_snapshot(jobs))
    assert answer.values["job_size"].tolist() == [1.0, 15 / 16, 1 / 16, 0.0]


def test_size_relative_to_time() -> None:
    """The whole machine for a minute counts 1; without a time limit a job counts 0."""
    jobs = make_jobs(size=[16, 16, 8, 8], wall_time=[60.0, 600.0, 30.0, np.inf])
    answer = terms(plugin(small_relative_to_time=True), jobs, make_snapshot(jobs))
    assert answer.values["job_size"].tolist() == [1.0, 0.1, 0.5, 0.0]


def test_association_priority_is_inherited() -> None:
    """An account's priority holds for its users unless they have their own."""
    plug = plugin(association_priority={"A": 10, "user2": 40}, weight_association=1.0)
    jobs = make_jobs(association=np.array([6, 7, 9, -1], np.int32))
    answer = terms(plug, jobs, make_snapshot(jobs, accounts=DOCUMENTED))
    assert answer.values["association"].tolist() == [0.25, 1.0, 0.0, 0.0]


def test_events_of_others_change_nothing() -> None:
    """Arrivals, and jobs that nobody is charged for, leave no state."""
    jobs = make_jobs(2, association=np.array([0, -1], np.int32))
    events = make_events(jobs, [(0.0, EventKind.ARRIVED, 0), (5.0, START, 1)])
    assert plugin().rtsched_observe(events, make_snapshot(accounts=ONE), None) is None


def test_factors_are_kept_for_a_period() -> None:
    """The kernels work a factor out once a period, from what was used when it began."""
    plug = plugin(algorithm="classic")
    params, tables = lay_out(plug.config, plug.weights, make_jobs(0), ONE, make_cluster())
    state = begin(ONE, make_cluster())
    at.charge_nodes(0, 10.0, 4.0, params, tables, state)
    assert factor(0, 0.0, params, tables, state) == 1.0
    at.charge_nodes(0, 20.0, 4.0, params, tables, state)
    assert factor(0, 0.0, params, tables, state) == 1.0
    assert factor(0, 1.0, params, tables, state) == 0.5


@given(
    account_tables(12).filter(len),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 11), st.integers(-3, 4)), max_size=30),
)
@settings(deadline=None, max_examples=150)
def test_ranks_kept_from_period_to_period_are_those_worked_out_anew(
    accounts: Accounts, charges: list[tuple[int, int, int]]
) -> None:
    """Whatever is charged in between, nothing is left over from an earlier period's ranks."""
    plug = plugin()
    params, tables = lay_out(plug.config, plug.weights, make_jobs(0), accounts, make_cluster())
    users = np.flatnonzero(Tree.of(accounts).leaf[1:]).tolist()
    state, now = begin(accounts, make_cluster()), 0.0
    for later, user, nodes in charges:
        now += later
        at.charge_nodes(users[user % len(users)], now, float(nodes), params, tables, state)
        anew, period = state.copy(), at.period_of(now, params)
        anew[at.FRESH] = np.nan
        kept = [factor(user, period, params, tables, state) for user in users]
        assert kept == [factor(user, period, params, tables, anew) for user in users]


WITHOUT = """
import json
import numpy as np
from test_multifactor import DOCUMENTED, plugin, terms, make_jobs, make_snapshot, make_events
from test_multifactor import START, END, Accounts
from dataclasses import replace
jobs = make_jobs(40, size=np.arange(1, 41), association=6 + np.arange(40, dtype=np.int32) % 5)
events = [(float(i * 977), START, i) for i in range(40)]
events += [(float(i * 977 + 40_000), END, i) for i in range(40)]
events = make_events(jobs, sorted(events))
out = []
for algorithm in ("classic", "fair-tree"):
    plug = plugin(algorithm=algorithm)
    snapshot = make_snapshot(jobs, accounts=DOCUMENTED, now=90_000.0)
    state = plug.rtsched_observe(events, snapshot, None)
    snapshot = replace(snapshot, states={"multifactor": state})
    out += terms(plug, jobs, snapshot).total().tolist()
print(json.dumps(out))
"""


def test_kernels_without_the_compiler_give_the_same() -> None:
    """The plain source of the kernels is the reference of their compiled form."""
    answers = []
    for compile_them in ("0", "1"):
        environment = {**os.environ, "RTSCHED_COMPILE": compile_them}
        environment["PYTHONPATH"] = os.path.dirname(__file__)
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        answers.append(json.loads(done.stdout))
    assert answers[0] == pytest.approx(answers[1], rel=1e-14)
