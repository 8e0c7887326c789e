"""Combiners: strictest as an algebra, first opinions, weighted sums."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.core.combine import first_classes, first_opinion, strictest, weighted_sum
from rtsched.model.verdicts import (
    DelayClasses,
    Finding,
    Placement,
    Reason,
    Terms,
    Verdict,
    Verdicts,
)

N = 3
WHY = Reason("test.why", "because")
times = st.sampled_from([-np.inf, 0.0, 1.0, 2.0])
deadlines = st.sampled_from([np.inf, 1.0, 2.0])


@st.composite
def answers(draw) -> Verdicts:
    """Return verdicts that the chain's checks let pass."""
    code = np.array(draw(st.lists(st.sampled_from(Verdict), min_size=N, max_size=N)), np.int8)
    promise = np.array(draw(st.lists(deadlines, min_size=N, max_size=N)))
    offer = np.array(draw(st.lists(deadlines, min_size=N, max_size=N)))
    retry = np.array(draw(st.lists(times, min_size=N, max_size=N)))
    return Verdicts.build(
        code,
        retry_at=np.where(code == Verdict.DEFER, retry, -np.inf),
        promise=np.where(code == Verdict.ADMIT, promise, np.inf),
        offer=np.where(code == Verdict.REJECT, offer, np.inf),
        findings=(Finding.where(code > Verdict.ADMIT, WHY),),
    )


def content(verdicts: Verdicts) -> list[list[float]]:
    """Return everything that decides."""
    columns = (verdicts.code, verdicts.retry_at, verdicts.promise, verdicts.offer)
    return [column.tolist() for column in columns]


@given(answers(), answers())
def test_strictest_is_commutative(a: Verdicts, b: Verdicts) -> None:
    """Reordering admission plug-ins changes nothing."""
    assert content(strictest([a, b], N)) == content(strictest([b, a], N))


@given(answers(), answers(), answers())
def test_strictest_is_associative(a: Verdicts, b: Verdicts, c: Verdicts) -> None:
    """Grouping them changes nothing."""
    flat = content(strictest([a, b, c], N))
    assert content(strictest([strictest([a, b], N), c], N)) == flat
    assert content(strictest([a, strictest([b, c], N)], N)) == flat


@given(answers())
def test_strictest_of_one_is_that_one(a: Verdicts) -> None:
    """Saying it twice says no more; abstaining says nothing."""
    assert content(strictest([a], N)) == content(a)
    assert content(strictest([a, a], N)) == content(a)
    assert content(strictest([a, Verdicts.abstain(N)], N)) == content(a)


@given(answers(), answers())
def test_strictest_is_monotone(a: Verdicts, b: Verdicts) -> None:
    """A further plug-in never lets in what was kept out, nor widens a promise."""
    both = strictest([a, b], N)
    assert (both.code >= a.code).all()
    admitted = both.code == Verdict.ADMIT
    assert (both.promise[admitted] <= a.promise[admitted]).all()


@given(st.lists(answers(), max_size=4))
def test_strictest_keeps_all_findings(given_answers: list[Verdicts]) -> None:
    """Nobody's reasons are lost."""
    kept = strictest(given_answers, N).findings
    assert len(kept) == sum(len(given.findings) for given in given_answers)


def test_strictest_by_example() -> None:
    """The latest retry, the earliest promise, and an offer that suits everyone who rejected."""
    a = Verdicts.build(
        [2, 1, 3, 3],
        retry_at=[5, -np.inf, -np.inf, -np.inf],
        promise=[np.inf, 9, np.inf, np.inf],
        offer=[np.inf, np.inf, 7, 7],
    )
    b = Verdicts.build(
        [2, 1, 3, 3],
        retry_at=[8, -np.inf, -np.inf, -np.inf],
        promise=[np.inf, 6, np.inf, np.inf],
        offer=[np.inf, np.inf, 8, np.inf],
    )
    both = strictest([a, b], 4)
    assert both.retry_at[0] == 8
    assert both.promise[1] == 6
    assert both.offer[2:].tolist() == [8, np.inf]


def test_nobody_asked_means_no_opinion() -> None:
    """No answers are an abstention."""
    assert content(strictest([], N)) == content(Verdicts.abstain(N))


def placement(size: list[int], node_set: list[int], *sets: list[int], cuts=()) -> Placement:
    """Return a placement from lists."""
    return Placement(
        np.array(size, np.int32),
        np.array(node_set, np.int32),
        tuple(np.array(nodes, np.int32) for nodes in sets),
        tuple(np.array(cut, np.float64) for cut in cuts),
    )


def test_first_opinion_per_row() -> None:
    """Rows are taken from the first who has an opinion; codes follow the joined sets."""
    first = placement([2, 0, 0], [0, -1, -1], [3, 4])
    second = placement([1, 1, 0], [0, 1, -1], [0], [1, 2])
    both = first_opinion([first, second], 3)
    assert both.size.tolist() == [2, 1, 0]
    assert [both.node_sets[code].tolist() if code >= 0 else None for code in both.node_set] == [
        [3, 4],
        [1, 2],
        None,
    ]


def test_first_opinion_keeps_fractions_beside_their_sets() -> None:
    """Sets without fractions get empty ones where somebody divides a load."""
    plain = placement([1, 0], [0, -1], [3])
    divided = placement([0, 2], [-1, 0], [0, 1], cuts=([0.75, 0.25],))
    both = first_opinion([plain, divided], 2)
    assert [part.tolist() for part in both.fractions] == [[], [0.75, 0.25]]
    assert both.node_set.tolist() == [0, 1]


def test_first_opinion_of_nobody() -> None:
    """Without answers every row is open."""
    nobody = first_opinion([], 2)
    assert nobody.size.tolist() == [0, 0]
    assert nobody.node_set.tolist() == [-1, -1]


def test_first_classes_fill_up_rows() -> None:
    """The first factors hold; rows of nan are filled from the next."""
    assert first_classes([]) is None
    bounds = np.array([1.0])
    first = DelayClasses(np.array([1.0, 2.0]), bounds, np.array([[np.nan, np.nan], [3.0, 4.0]]))
    second = DelayClasses(np.array([9.0, 9.0]), bounds, np.array([[5.0, 6.0], [7.0, 8.0]]))
    both = first_classes([first, second])
    assert both is not None
    assert both.factor.tolist() == [1.0, 2.0]
    assert both.per_job is not None
    assert both.per_job.tolist() == [[5.0, 6.0], [3.0, 4.0]]


terms = st.lists(st.floats(0, 1), min_size=N, max_size=N).map(np.array)


@given(st.lists(st.tuples(st.floats(0, 10), terms), max_size=3))
def test_weighted_sum_is_linear(parts: list[tuple[float, np.ndarray]]) -> None:
    """Priority is the sum of weight times term, whoever gave it."""
    given_terms = [(weight, Terms({"x": values})) for weight, values in parts]
    expected = np.zeros(N)
    for weight, values in parts:
        expected += weight * values
    assert np.allclose(weighted_sum(given_terms, np.zeros(N, np.int32)), expected)


def test_weighted_sum_spreads_terms_per_account() -> None:
    """A job gets its account's terms and offset; one without an account gets none."""
    by_account = Terms(
        {"x": np.array([0.5, 1.0])}, {"x": 4.0}, per_account=True, offset=np.array([1.0, -1.0])
    )
    value = weighted_sum([(2.0, by_account)], np.array([1, -1, 0], np.int32))
    assert value.tolist() == [6.0, 0.0, 6.0]


def test_terms_add_up_alike_in_any_batch() -> None:
    """Rounding does not depend on how many jobs are asked about at once."""
    rng = np.random.default_rng(1)
    values = {f"t{k}": rng.uniform(size=5) for k in range(12)}
    weights = {name: 10.0 ** (k % 5) for k, name in enumerate(values)}
    together = Terms(values, weights).total()
    apart = [
        Terms({n: v[i : i + 1] for n, v in values.items()}, weights).total()[0] for i in range(5)
    ]
    assert together.tolist() == apart
