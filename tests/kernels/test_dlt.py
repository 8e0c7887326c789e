"""Divisible-load arithmetic: hand-derived values, properties and brute-force cross-checks."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import dlt_reference
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtsched.kernels import dlt
from rtsched.kernels.loads import Load

CASES = json.loads((Path(__file__).parents[1] / "data/cases/mcdf.json").read_text("utf-8"))["cases"]


def cases(kind: str) -> list[Any]:
    """Return the worked cases of one kind as test parameters."""
    return [pytest.param(c, id=c["case_id"]) for c in CASES if c["kind"] == kind]


def load_of(values: dict[str, Any]) -> Load:
    """Return the load of a worked case."""
    names = ("sigma_units", "cms_time_per_unit", "cps_time_per_unit")
    names += ("setup_link_time", "setup_node_time")
    return Load(*(float(values[name]) for name in names))


examples = settings(deadline=None, max_examples=80)
"""A first call compiles, so no example has a deadline."""

sizes = st.integers(1, 40)
loads = st.builds(
    Load,
    sigma=st.floats(0.1, 1e4),
    cms=st.one_of(st.just(0.0), st.floats(1e-9, 50.0)),
    cps=st.one_of(st.just(0.0), st.floats(0.01, 100.0)),
    setup_link=st.one_of(st.just(0.0), st.floats(1e-3, 50.0)),
    setup_node=st.one_of(st.just(0.0), st.floats(1e-3, 50.0)),
).filter(lambda load: load.sigma * (load.cms + load.cps) > 0.01)


def exact_time(n: int, load: Load) -> Fraction:
    """Return E(n) of the source's formula in rational arithmetic."""
    sigma, cms, cps, link, node = (Fraction(x) for x in load)
    whole = sigma * (cms + cps)
    if cms == 0:
        return link + node + whole / n + link * (n - 1) / 2
    beta = cps / (cms + cps)
    phi, rest = link / whole, 1 - beta**n
    return link + node + whole * ((1 - beta) / rest + phi * n / rest - phi / (1 - beta))


def node_ends(alpha: Any, load: Load) -> Any:
    """Return when each node ends if the chunks are sent one after the other from 0 on."""
    sent = np.cumsum(load.setup_link + alpha * load.sigma * load.cms)
    return sent + load.setup_node + alpha * load.sigma * load.cps


@pytest.mark.parametrize("case", cases("dlt"))
def test_worked_loads(case: dict[str, Any]) -> None:
    """Fractions, time, cost and fastest count are those of the worked cases."""
    n, expected, load = case["input"]["n_nodes"], case["expected"], load_of(case["input"])
    alpha = dlt.fractions(n, load)
    assert alpha == pytest.approx(expected["alphas"], rel=1e-6)
    assert bool((alpha > 0).all()) == expected["all_fractions_positive"]
    assert dlt.exec_time(n, load) == pytest.approx(expected["exec_time"], rel=1e-6)
    assert dlt_reference.cost(n, load) == pytest.approx(expected["cost_node_time"], rel=1e-6)
    assert dlt_reference.cost_derivative(n, load) == pytest.approx(
        expected["cost_derivative"], rel=1e-6
    )
    assert dlt.fastest_count(64, load) == expected["n_star_up_to_64"]


@pytest.mark.parametrize("case", cases("nmin"))
def test_worked_node_counts(case: dict[str, Any]) -> None:
    """The fewest nodes that meet a deadline are those of the worked cases."""
    given_, load = case["input"], load_of(case["input"])
    n = dlt_reference.least_count(float(given_["slack_time"]), given_["N_nodes"], load)
    assert (n or None) == case["expected"]["n_min"]


@pytest.mark.parametrize("case", cases("hetero"))
def test_worked_unequal_nodes(case: dict[str, Any]) -> None:
    """Unequal nodes and links get the fractions of the worked cases."""
    given_, expected = case["input"], case["expected"]
    names = ("cms_time_per_unit", "cps_time_per_unit", "setup_link_time", "setup_node_time")
    columns = [np.array(given_[name], float) for name in names]
    alpha, end = dlt.unequal_fractions(float(given_["sigma_units"]), *columns)
    assert alpha == pytest.approx(expected["alphas"], rel=1e-5)
    assert end == pytest.approx(expected["exec_time"], rel=1e-5)


@pytest.mark.parametrize("case", cases("avail"))
def test_worked_staggered_nodes(case: dict[str, Any]) -> None:
    """Nodes that become free one after the other are used as in the worked cases."""
    given_, expected = case["input"], case["expected"]
    found = dlt_reference.staggered(np.array(given_["release_times"], float), load_of(given_))
    assert found.end == pytest.approx(expected["finish_time"], rel=1e-5)
    assert len(found.alpha) == expected["nodes_used"]
    assert found.alpha == pytest.approx(expected["alphas"], rel=1e-5)
    assert found.send == pytest.approx(expected["send_starts"], rel=1e-5)


@pytest.mark.parametrize("case", cases("umr"))
def test_worked_rounds(case: dict[str, Any]) -> None:
    """Several rounds get the chunks of the worked cases."""
    given_, expected = case["input"], case["expected"]
    found = dlt.multi_round(given_["rounds"], given_["n_nodes"], load_of(given_))
    assert found.chunk == pytest.approx(expected["chunk_units_per_node_by_round"], rel=1e-5)
    assert found.makespan == pytest.approx(expected["makespan_time"], rel=1e-5)


def test_two_nodes_by_hand() -> None:
    """alpha_2 = alpha_1/2 - 0.01 and their sum is 1, so E = 25 + 2000 x 1.01/1.5."""
    load = Load(100.0, 10.0, 10.0, 20.0, 5.0)
    assert dlt.fractions(2, load) == pytest.approx([1.01 / 1.5, 0.49 / 1.5])
    assert dlt.exec_time(2, load) == pytest.approx(25 + 2000 * 1.01 / 1.5)


def test_free_links_share_equally() -> None:
    """With cms = 0 nothing delays a node: E = sigma cps/n, n_min = ceil(sigma cps/slack)."""
    load = Load(100.0, 0.0, 10.0)
    assert dlt.exec_time(8, load) == pytest.approx(125.0)
    assert dlt_reference.least_count(126.0, 64, load) == 8
    assert dlt_reference.least_count(125.0, 64, load) == 8
    assert dlt_reference.least_count(124.9, 64, load) == 9


def test_free_links_with_set_up() -> None:
    """With cms = 0, B = 1/n + phi (n-1)/2: least where 2 work = ST n (n-1), here n* = 4."""
    load = Load(10.0, 0.0, 10.0, 10.0)
    assert dlt.exec_time(4, load) == pytest.approx(10 + 100 / 4 + 10 * 3 / 2)
    assert dlt.fastest_count(64, load) == 4


def test_free_computing_gains_nothing_from_nodes() -> None:
    """With cps = 0 the load is only sent: E = sigma cms, and one node is enough."""
    load = Load(100.0, 2.0, 0.0)
    assert [dlt.exec_time(n, load) for n in (1, 2, 50)] == [200.0] * 3
    assert dlt.fastest_count(64, load) == 1
    assert dlt_reference.least_count(200.0, 64, load) == 1
    assert dlt_reference.least_count(199.0, 64, load) == 0


def test_sending_alone_exceeds_the_slack() -> None:
    """At slack <= sigma cms no count does, whatever the tolerance would forgive."""
    load = Load(100.0, 10.0, 10.0)
    assert dlt_reference.least_count(1000.0, 10**6, load) == 0
    assert dlt_reference.least_count(1001.0, 10**6, load) == 10
    assert dlt_reference.least_count(0.0, 16, load) == 0
    assert dlt_reference.least_count(math.inf, 16, load) == 1


@examples
@given(sizes, loads)
def test_time_agrees_with_rational_arithmetic(n: int, load: Load) -> None:
    """The floating-point form does not cancel, for no ratio of sending to computing."""
    assert dlt.exec_time(n, load) == pytest.approx(float(exact_time(n, load)), rel=1e-9)


@examples
@given(sizes, loads)
def test_all_nodes_end_together(n: int, load: Load) -> None:
    """The fractions sum to 1, and every node ends at E(n) when the sending is played through."""
    alpha = dlt.fractions(n, load)
    assert alpha.sum() == pytest.approx(1.0)
    ends, time = node_ends(alpha, load), dlt.exec_time(n, load)
    assert ends == pytest.approx(np.full(n, time), rel=1e-7)


@examples
@given(st.integers(2, 40), loads)
def test_a_node_helps_exactly_if_its_fraction_is_positive(n: int, load: Load) -> None:
    """E(n) < E(n-1) iff alpha_n > 0, away from rounding."""
    gain = exact_time(n - 1, load) - exact_time(n, load)
    if abs(gain) > 1e-9 * exact_time(n, load):
        assert (gain > 0) == (dlt.fractions(n, load)[-1] > 0)


@examples
@given(st.integers(1, 64), loads)
def test_fastest_count_is_the_argmin(limit: int, load: Load) -> None:
    """No count up to the limit is faster than n*, and up to n* every fraction is positive."""
    fastest = dlt.fastest_count(limit, load)
    times = [exact_time(n, load) for n in range(1, limit + 1)]
    assert 1 <= fastest <= limit
    assert times[fastest - 1] <= min(times) * (1 + Fraction(1, 10**10))
    alpha = dlt.fractions(fastest, load)
    assert (alpha > (-1e-12 if load.setup_link else -0.0)).all()


@examples
@given(sizes, loads)
def test_cost_and_its_derivative_rise(n: int, load: Load) -> None:
    """W rises in n (T5.3) and is convex: DC, its difference, does not fall."""
    assert dlt_reference.cost(n + 1, load) >= dlt_reference.cost(n, load) * (1 - 1e-12)
    if load.cms == 0 and load.setup_link == 0:
        assert dlt_reference.cost_derivative(n, load) == load.setup_node
    first, second = (
        dlt_reference.cost_derivative(n, load),
        dlt_reference.cost_derivative(n + 1, load),
    )
    assert second >= first - 1e-7 * dlt_reference.cost(n + 2, load)


@examples
@given(loads, st.floats(0.01, 3.0), st.integers(1, 64), st.integers(1, 5))
def test_no_smaller_count_would_do(load: Load, share: float, limit: int, low: int) -> None:
    """n_min is the first count that meets the deadline in a search from below."""
    slack = share * dlt.exec_time(1, load)
    high = dlt.fastest_count(limit, load)
    fits = [n for n in range(low, high + 1) if dlt.at_most(dlt.exec_time(n, load), slack)]
    if slack <= dlt.slack_floor(load):
        fits = []
    assert dlt_reference.least_count(slack, limit, load, low=low) == (fits[0] if fits else 0)


@examples
@given(sizes, loads)
def test_a_deadline_met_exactly_costs_no_extra_node(n: int, load: Load) -> None:
    """At slack = E(n), and rounding below it, n nodes are enough."""
    n = min(n, dlt.fastest_count(64, load))
    time = dlt.exec_time(n, load)
    if time > dlt.slack_floor(load):
        assert 1 <= dlt_reference.least_count(time, 64, load) <= n
        tight = dlt_reference.least_count(time - 1e-10 * max(1.0, time), 64, load)
        assert tight <= n


nodes = st.lists(
    st.tuples(st.floats(0, 5), st.floats(0.1, 50), st.floats(0, 5), st.floats(0, 5)),
    min_size=1,
    max_size=8,
).map(lambda rows: tuple(np.array(column) for column in zip(*rows, strict=True)))


@examples
@given(st.floats(1.0, 500.0), nodes)
def test_unequal_nodes_end_together(sigma: float, columns: tuple[Any, ...]) -> None:
    """Whatever their speeds, all nodes of a tree end at the time given, fractions sum to 1."""
    cms, cps, link, node = columns
    alpha, end = dlt.unequal_fractions(sigma, *columns)
    assert alpha.sum() == pytest.approx(1.0)
    ends = np.cumsum(link + alpha * sigma * cms) + node + alpha * sigma * cps
    assert ends == pytest.approx(np.full(len(alpha), end), rel=1e-6, abs=1e-6)
    kept = dlt_reference.worthwhile_nodes(sigma, *columns)
    alpha, _ = dlt.unequal_fractions(sigma, *(column[kept] for column in columns))
    assert (alpha > 0).all() or len(kept) == 1


@examples
@given(st.integers(1, 12), loads)
def test_equal_nodes_are_a_case_of_unequal_ones(n: int, load: Load) -> None:
    """A tree of equal nodes gives the closed form, and its shortest prefix is n_min."""
    columns = [np.full(n, x) for x in load[1:]]
    alpha, end = dlt.unequal_fractions(load.sigma, *columns)
    assert end == pytest.approx(dlt.exec_time(n, load), rel=1e-7)
    assert alpha == pytest.approx(dlt.fractions(n, load), rel=1e-6, abs=1e-9)
    fastest = dlt.fastest_count(n, load)
    between = dlt.exec_time(fastest, load) * 1.01
    least = dlt_reference.least_count(between, n, load)
    assert dlt_reference.least_prefix(between, load.sigma, *columns) == least


releases = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8).map(sorted).map(np.array)


@examples
@given(releases, loads)
def test_staggered_nodes_end_together_and_early(release: Any, load: Load) -> None:
    """Each node is sent to once it and the link are free; waiting for all is never better."""
    found = dlt_reference.staggered(release, load)
    n = len(found.alpha)
    assert (found.alpha > 0).all()
    assert found.alpha.sum() == pytest.approx(1.0)
    sent = found.send + load.setup_link + found.alpha * load.sigma * load.cms
    assert (found.send >= release[:n] - 1e-9).all()
    assert (found.send[1:] >= sent[:-1] - 1e-6 * max(1.0, found.end)).all()
    ends = sent + load.setup_node + found.alpha * load.sigma * load.cps
    assert ends == pytest.approx(np.full(n, found.end), rel=1e-6, abs=1e-6)
    together = min(
        release[k - 1] + dlt.exec_time(k, load)
        for k in range(1, len(release) + 1)
        if (dlt.fractions(k, load) > 0).all()
    )
    assert found.end <= together * (1 + 1e-9) + 1e-9


def test_one_round_is_a_chunk_each() -> None:
    """One round: n (ST + c cms) + SC + c cps with c = sigma/n."""
    found = dlt.multi_round(1, 4, Load(100.0, 0.5, 10.0, 1.0, 2.0))
    assert found.chunk == pytest.approx([25.0])
    assert found.makespan == pytest.approx(4 * (1 + 12.5) + 2 + 250)


@examples
@given(
    st.integers(2, 6), st.integers(1, 8), st.floats(10, 1e4), st.floats(0.1, 2), st.floats(5, 50)
)
def test_rounds_leave_no_gap(rounds: int, n: int, sigma: float, cms: float, cps: float) -> None:
    """Sending a round to all nodes takes as long as a node computes the one before."""
    load = Load(sigma, cms, cps, 0.1, 0.2)
    found = dlt.multi_round(rounds, n, load)
    assert n * found.chunk.sum() == pytest.approx(sigma)
    sending = n * (0.1 + found.chunk[1:] * cms)
    assert sending == pytest.approx(0.2 + found.chunk[:-1] * cps, rel=1e-6, abs=1e-6)
    table = dlt.chunk_table(rounds, n, load)
    time, count = dlt.rounds_time(n, dlt.chain_of(load), rounds)
    assert table.shape == (count, n)
    assert table.sum() == pytest.approx(sigma)
    assert time <= found.makespan * (1 + 1e-12) or not found.valid
    assert last_end(table, Load(sigma, cms, cps, 0.1, 0.2)) == pytest.approx(time, rel=1e-6)


def last_end(table: Any, load: Load) -> float:
    """Return when the last node ends if the chunks of a table are sent one after the other."""
    ends, clock = np.zeros(table.shape[1]), 0.0
    for row in table:
        for node, units in enumerate(row.tolist()):
            clock += load.setup_link + units * load.cms
            ends[node] = max(ends[node], clock) + load.setup_node + units * load.cps
    return float(ends.max())


@examples
@example(Load(1.0, 0.0625, 7.0, 1.0, 0.0), 7, 1)
@example(Load(3.0, 0.25, 7.0, 2.0, 0.0), 9, 1)
@given(loads, st.integers(2, 12), st.integers(1, 12))
def test_rounds_end_when_they_say(load: Load, rounds: int, n: int) -> None:
    """Played through chunk by chunk, a table ends after the stated run time: no gap was assumed.

    Where all chunks are nearly equal, each round's rounding error is cps / (n cms) times that of
    the one before. The table may then end sooner, and later by no more than 1e-5 of the run time.
    """
    chain = dlt.chain_of(load)
    time, count = dlt.rounds_time(n, chain, rounds)
    assert time <= dlt.exec_time(n, load)
    if count > 1 or (dlt.fractions(n, load) > 0).all():
        end = last_end(dlt.chunk_table(rounds, n, load), load)
        assert time * (1.0 - 1e-4) <= end <= time * (1.0 + 1e-5)


def test_two_rounds_on_one_node_by_hand() -> None:
    """With cms = cps = 10, 100 units: two chunks of 50 are sent and computed in 500 + 2 x 500 s."""
    assert dlt.chunk_table(2, 1, Load(100.0, 10.0, 10.0)).tolist() == [[50.0], [50.0]]
    chain = dlt.chain_of(Load(100.0, 10.0, 10.0))
    assert dlt.rounds_time(1, chain, 2) == (1500.0, 2)
    assert dlt.rounds_time(2, chain, 2)[1] == 1


@examples
@given(loads, st.integers(2, 12), st.integers(1, 20), st.integers(1, 6))
def test_fastest_count_in_rounds_is_the_argmin(
    load: Load, rounds: int, limit: int, low: int
) -> None:
    """No usable count from `low` to the limit is faster."""
    chain = dlt.chain_of(load)
    found = dlt.fastest_in_rounds(low, limit, chain, rounds)
    times = [
        dlt.rounds_time(n, chain, rounds)[0]
        for n in range(low, limit + 1)
        if dlt.rounds_time(n, chain, rounds)[1] > 1 or dlt.uses_all(n, chain)
    ]
    best = dlt.exec_time(dlt.fastest_count(limit, load), load)
    if found:
        best = dlt.rounds_time(found, chain, rounds)[0]
    assert best <= min(times, default=best) * (1 + 1e-9)
    assert found >= low or dlt.fastest_count(limit, load) < low


def test_rounds_without_send_time_are_one() -> None:
    """With cms = 0 there is nothing to overlap."""
    assert len(dlt.chunk_table(5, 4, Load(100.0, 0.0, 10.0))) == 1


@pytest.mark.parametrize(
    ("a", "b", "within"),
    [
        (1.0, 1.0, True),
        (1.0 + 0.9e-9, 1.0, True),
        (1.0 + 1.1e-9, 1.0, False),
        (0.9e-9, 0.0, True),
        (1.1e-9, 0.0, False),
        (1e6 + 0.9e-3, 1e6, True),
        (1e6 + 1.1e-3, 1e6, False),
        (np.inf, np.inf, True),
        (np.inf, 1e300, False),
    ],
)
def test_times_are_compared_to_a_billionth(a: float, b: float, within: bool) -> None:
    """Of the larger of the two, or of 1."""
    assert dlt.at_most(a, b) == within
