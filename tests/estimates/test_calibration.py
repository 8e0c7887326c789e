"""Calibration by residuals of the past, thresholds on odds, checks of estimates."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates.calibration import (
    FEW_DAYS,
    LEVELS,
    MEDIAN,
    MEMORIES,
    Calibration,
    LikelyLevel,
    Open,
    Spread,
)
from rtsched.estimates.check import JobRuns, _PastLimits, check, replayed
from rtsched.estimates.record import ERROR_BY_LIMITS, SCORE, WIDTH, Record, judged
from rtsched.estimates.settings import EstimateSettings
from rtsched.estimates.tables import earliest_with, odds_by
from rtsched.kernels.machine_limits import HELD, USED
from rtsched.model.limits import Association, Limits, LimitSet, SiteLimits
from rtsched.model.table import Ragged
from rtsched.replay.results import Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import Lublin
from rtsched.replay.workload import prepare
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.testing import make_jobs, make_snapshot

NONE = np.zeros(0, np.int64), np.zeros(0)
DAY = 86400.0


def spread(n: int, median: float = 1000.0, width: float = 100.0) -> Spread:
    """Return equal spreads."""
    return Spread(np.full(n, median), np.full(n, width), np.full(n, width))


def opened(at: np.ndarray, quantiles: np.ndarray, by_limits: np.ndarray, first: int = 0) -> Open:
    """Return open estimates of jobs of one size, with equal spreads."""
    n = len(at)
    return Open(at, first + np.arange(n), np.ones(n), spread(n), quantiles, by_limits[:, None])


def settle(known: Calibration, outcome: np.ndarray, at: float = 0.0) -> np.ndarray:
    """Estimate, learn the outcomes, seconds from then on, and return the quantiles."""
    n = len(outcome)
    quantiles = known.quantiles(spread(n), np.ones(n), at)
    known.remember(opened(np.full(n, at), quantiles, outcome))
    known.settle(np.arange(n), at + outcome, NONE[0], at + outcome.max(initial=0.0))
    return quantiles


def known_of(residual: np.ndarray, days: int = FEW_DAYS + 1) -> Calibration:
    """Return what is known after estimates of so many days before now, 0, had these residuals."""
    known = Calibration()
    for day in range(-days, 0):
        settle(known, 1000.0 + 100.0 * residual, DAY * day)
    return known


def test_residuals_and_values_are_inverse() -> None:
    """On both sides of the median."""
    skew = Spread(np.full(3, 50.0), np.full(3, 10.0), np.full(3, 20.0))
    residual = np.array([-2.0, 0.0, 3.0])
    assert skew.value(residual).tolist() == [30.0, 50.0, 110.0]
    assert skew.residual(skew.value(residual)).tolist() == residual.tolist()


def test_nothing_known_is_wide() -> None:
    """A 95 % interval of four spreads to either side."""
    found = Calibration().quantiles(spread(1), np.ones(1), 0.0)[0]
    assert found[0] <= 1000.0 - 350.0
    assert found[-1] >= 1000.0 + 350.0


def covered(known: Calibration, random: np.random.Generator, days: range, off: float) -> np.ndarray:
    """Return of outcomes off by so many seconds which intervals cover them, bool[n, 3]."""
    within = []
    for step in range(4 * days.start, 4 * days.stop):
        outcome = 1000.0 + off * random.standard_t(4, 50)
        found = settle(known, outcome, DAY / 4 * step)
        within.append((outcome[:, None] >= found[:, :3]) & (outcome[:, None] <= found[:, :3:-1]))
    return np.concatenate(within)


def test_coverage() -> None:
    """Of exchangeable outcomes each interval covers its share, within half of the hundredths."""
    known, random = Calibration(), np.random.default_rng(1)
    covered(known, random, range(60), 80.0)
    found = covered(known, random, range(60, 120), 80.0)
    assert found.mean(axis=0) == pytest.approx([0.95, 0.9, 0.8], abs=0.01)


def test_a_change_in_the_middle() -> None:
    """When outcomes become five times as wild, intervals follow within twenty days."""
    known, random = Calibration(), np.random.default_rng(1)
    covered(known, random, range(60), 80.0)
    covered(known, random, range(60, 80), 400.0)
    assert 0.87 <= covered(known, random, range(80, 140), 400.0)[:, 1].mean() <= 0.95


@given(
    outcome=st.lists(st.floats(0.0, 1e7), max_size=80),
    median=st.floats(0.0, 1e6),
    width=st.floats(1.0, 1e5),
)
def test_quantiles_ascend(outcome: list[float], median: float, width: float) -> None:
    """Whatever was learnt."""
    known = Calibration()
    settle(known, np.array(outcome))
    found = known.quantiles(spread(1, median, width), np.ones(1), 1e7)[0]
    assert len(found) == len(LEVELS)
    assert (np.diff(found) >= 0.0).all()
    assert (found >= 0.0).all()


def test_late_jobs_count_at_once() -> None:
    """Open estimates whose time is over widen the intervals before their outcome is known."""
    known = known_of(np.zeros(50))
    before = known.quantiles(spread(1), np.ones(1), 0.0)[0, -1]
    n = 100
    known.remember(opened(np.zeros(n), np.zeros((n, 7)), np.ones(n)))
    after = known.quantiles(spread(1), np.ones(1), 5000.0)[0, -1]
    assert after > before + 1000.0


def test_recent_residuals_count_more() -> None:
    """By hand: of 50 residuals of 3 spreads on each of eight days, then as many of -1.

    Five days after, an old one counts at most e^-6/5 in the first memory, e^-6/20 in the second and
    e^-6/80 in the third: their shares are below a half, so that all medians are -1, and above 10 %,
    so that all upper bounds of 80 % are 3. With ten times as many of -1 they are below 10 %.
    """
    known = known_of(np.full(50, 3.0))
    for _ in range(FEW_DAYS + 1):
        settle(known, np.full(50, 900.0), MEMORIES[0])
    found = known.quantiles(spread(1), np.ones(1), MEMORIES[0])[0]
    assert found[[MEDIAN, 4]] == pytest.approx([900.0, 1300.0], abs=10.0)
    for _ in range(9 * (FEW_DAYS + 1)):
        settle(known, np.full(50, 900.0), MEMORIES[0])
    assert known.quantiles(spread(1), np.ones(1), MEMORIES[0])[0, 4] == pytest.approx(900.0, abs=10)


@pytest.mark.parametrize("jobs", [200, 10_000])
def test_many_residuals_of_few_days_are_little_knowledge(jobs: int) -> None:
    """By hand: of one day of seven, six parts in seven are as where nothing is known.

    There 2.5 % is 2.92 % of that, a sixth of the way from 4 spreads to 3, on the scale of bins. The
    day counts a little less, as it is one day ago: e^-1/80.
    """
    known = known_of(np.zeros(jobs), 1)
    found = known.quantiles(spread(1), np.ones(1), 0.0)[0]
    most = np.sinh(np.arcsinh(4.0) - (np.arcsinh(4.0) - np.arcsinh(3.0)) / 6)
    assert found[-1] == pytest.approx(1000.0 + 100.0 * most, abs=10.0)
    assert known_of(np.zeros(200)).quantiles(spread(1), np.ones(1), 0.0)[0, -1] < 1010.0


def test_spreads_are_no_less_than_a_quarter_of_the_mean_error() -> None:
    """By hand: off by 4 and by 8 hours, a quarter of 6; before, ten minutes."""
    known, draws = Calibration(), np.full((8, 1), 1000.0)
    assert known.spread(draws).above.tolist() == [600.0 + 200.0]
    settle(known, 1000.0 + 3600.0 * np.array([4.0, 8.0]))
    assert known.spread(draws).above.tolist() == [1.5 * 3600.0 + 200.0]
    settle(known, np.full(10_000, 1000.0), DAY)
    assert known.spread(draws).below.tolist() == [600.0 + 200.0]


def test_sizes_have_their_own_residuals() -> None:
    """Jobs of 1, 8 and 64 nodes are of three classes; of a class of few jobs all count."""
    known, n = Calibration(), 150
    size = np.repeat([1.0, 8.0, 64.0], 50)
    for day in range(-FEW_DAYS, 0):
        at = np.full(n, DAY * day)
        kept = opened(at, np.zeros((n, 7)), np.ones(n))._replace(size=size)
        known.remember(kept)
        known.settle(np.arange(n), at + 1000.0 + 100.0 * np.log2(size), NONE[0], DAY * day + 2000.0)
    found = known.quantiles(spread(3), np.array([1.0, 8.0, 64.0]), 0.0)[:, MEDIAN]
    assert found == pytest.approx([1000.0, 1300.0, 1600.0], abs=15.0)
    few = known_of(np.zeros(100))
    few.remember(opened(np.zeros(1), np.zeros((1, 7)), np.ones(1))._replace(size=np.full(1, 64.0)))
    few.settle(np.zeros(1, np.int64), np.full(1, 5000.0), NONE[0], 5000.0)
    assert few.quantiles(spread(1), np.full(1, 64.0), 0.0)[0, MEDIAN] == pytest.approx(1000, abs=10)


def test_a_clock_that_steps_back() -> None:
    """Estimates of the future are dropped."""
    known = Calibration()
    kept = opened(np.array([500.0]), np.zeros((1, 7)), np.ones(1))
    known.remember(kept)
    known.settle(*NONE, NONE[0], 100.0)
    assert len(known.remembered()) == 0


@given(jump=st.floats(-1e10, 1e10))
def test_a_clock_that_jumps_makes_no_interval_narrow(jump: float) -> None:
    """Neither by what is known already, nor by a few outcomes learnt thereafter.

    What it makes long ago is forgotten; little is known then, so that intervals are wide.
    """
    known = known_of(np.array([-2.0, -1.0, 0.0, 1.0, 2.0] * 20))
    before = known.quantiles(spread(1), np.ones(1), 0.0)[0]
    for _ in range(2):
        after = known.quantiles(spread(1), np.ones(1), jump)[0]
        assert np.isfinite(after).all()
        assert after[-1] - after[0] > 0.95 * (before[-1] - before[0])
        settle(known, np.full(5, 1000.0), jump)


def test_the_record_by_hand() -> None:
    """Two estimates: one within 80 %, one within 95 % alone."""
    quantiles = np.array([[10.0, 20.0, 30.0, 50.0, 70.0, 80.0, 90.0]] * 2)
    known = Calibration()
    kept = opened(np.zeros(2), quantiles, np.full(2, 100.0), first=1)
    known.remember(kept)
    settled = known.settle(np.array([1, 2]), np.array([60.0, 85.0]), NONE[0], 200.0)
    rows = judged(settled)
    assert rows[:, 1:4].tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    assert rows[:, WIDTH].tolist() == [60.0, 60.0]
    assert rows[:, SCORE].tolist() == [60.0, 60.0 + 20 * (85.0 - 80.0)]
    simple = settled._replace(value=np.array([60.0, 90.0]))
    assert judged(settled, [settled, simple])[:, ERROR_BY_LIMITS + 1 :].tolist() == [
        [60.0, 60.0, 60.0, 60.0],
        [60.0, 60.0, 160.0, 260.0],
    ]
    record = Record()
    record.add(settled, 200.0)
    found = record.accuracy(200.0)
    assert found.jobs.tolist() == [2, 2, 2]
    assert found.covered_80[0] == 0.5
    assert found.covered_95[0] == 1.0
    assert found.error[0] == (10.0 + 35.0) / 2
    assert found.error_by_limits[0] == (40.0 + 15.0) / 2
    later = record.accuracy(200.0 + 2 * 86400.0)
    assert later.jobs.tolist() == [0, 2, 2]
    assert np.isnan(later.error[0])
    assert quantiles[0, MEDIAN] == 50.0


def test_many_residuals_of_few_jobs_are_little_knowledge() -> None:
    """Two jobs that were estimated a hundred times leave the interval nearly as wide as none."""
    known, n = Calibration(), 200
    bounds = known.quantiles(spread(n), np.ones(n), 0.0)
    job = np.arange(n) % 2
    kept = opened(np.zeros(n), bounds, np.ones(n))._replace(job=job)
    known.remember(kept)
    known.settle(np.arange(2), np.full(2, 1000.0), NONE[0], 1e6)
    found = known.quantiles(spread(1), np.ones(1), 1e6)[0]
    assert found[0] <= 1000.0 - 350.0
    assert found[-1] >= 1000.0 + 350.0


def test_nothing_is_given_below_the_stated_odds_before_the_first_outcome():
    """It begins on the safe side."""
    assert LikelyLevel().threshold(0.95) == 0.95


def log_odds(odds: float) -> float:
    """Return them as the threshold moves."""
    return math.log(odds / (1 - odds))


def test_broken_promises_raise_it_and_kept_ones_lower_it():
    """The aim is 92 % where 90 are stated: broken ones count by it, kept ones by the rest to 1."""
    level = LikelyLevel(step=0.1).learnt([(0.9, True)])
    assert log_odds(level.threshold(0.9)) == pytest.approx(log_odds(0.9) - 0.008)
    level = level.learnt([(0.9, False)])
    assert log_odds(level.threshold(0.9)) == pytest.approx(log_odds(0.9) - 0.008 + 0.092)


def test_each_stated_odds_have_their_own():
    """Outcomes of others do not count; an order of outcomes is all that counts."""
    level = LikelyLevel().learnt([(0.8, True)])
    assert level.threshold(0.8) < 0.8
    assert level.threshold(0.95) == 0.95
    assert level.learnt([(0.8, False), (0.9, True)]) == LikelyLevel().learnt(
        [(0.8, True), (0.8, False), (0.9, True)]
    )


@pytest.mark.parametrize("stated", [0.2, 0.5, 0.8, 0.95, 0.99])
def test_it_stays_where_promises_are_still_given(stated):
    """It neither runs away nor stops all promises."""
    level = LikelyLevel(step=1.0).learnt([(stated, False)] * 500)
    assert level.threshold(stated) == pytest.approx(1 - (1 - stated) / 10)
    level = level.learnt([(stated, True)] * 2000)
    assert level.threshold(stated) == pytest.approx(min(stated, (1 - stated) / 2))


@given(st.floats(0, 1), st.floats(0.01, 0.999), st.lists(st.booleans(), max_size=60))
def test_calibrated_odds_reach_the_stated_ones_at_the_threshold(raw, stated, kept):
    """Above it they are more, below it less; and they grow with the raw ones."""
    level = LikelyLevel().learnt((stated, each) for each in kept)
    threshold = level.threshold(stated)
    assert 0 < threshold < 1
    assert level.calibrated(threshold, stated) == pytest.approx(stated, abs=1e-3)
    if abs(raw - threshold) > 1e-3:
        assert (level.calibrated(raw, stated) >= stated) == (raw >= threshold)
    assert level.calibrated(raw, stated) <= level.calibrated(min(raw + 0.1, 1.0), stated)


@pytest.mark.parametrize("odds", [-0.1, 1.1, float("nan")])
def test_odds_beyond_0_and_1_are_refused(odds):
    """They are no odds."""
    with pytest.raises(ValueError, match="within 0 and 1"):
        LikelyLevel().learnt([(odds, True)])


@pytest.mark.parametrize("stated", [0.8, 0.95])
@pytest.mark.parametrize(("power", "off"), [(0.5, 0.01), (1.0, 0.01), (3.0, 0.01)])
def test_the_stated_share_is_kept_though_raw_odds_are_wrong(stated, power, off):
    """A fifth of what may be broken is not used; none says so much that it cannot be reached."""
    rng = np.random.default_rng(1)
    level, kept = LikelyLevel(), []
    for raw in rng.random(60_000).tolist():
        if raw >= level.threshold(stated):
            kept.append(bool(rng.random() < raw**power))
            level = level.learnt([(stated, kept[-1])])
    assert len(kept) > 1000
    assert np.mean(kept[len(kept) // 3 :]) == pytest.approx(1 - 0.8 * (1 - stated), abs=off)


def test_nearly_every_block_holds_where_raw_odds_change_their_meaning():
    """They say far too much and far too little in turn: 92 % or more of each 500 are kept."""
    rng = np.random.default_rng(2)
    level, kept = LikelyLevel(), []
    for number, raw in enumerate(rng.random(200_000).tolist()):
        if raw >= level.threshold(0.95):
            power = 3.0 if number // 10_000 % 2 else 0.3
            kept.append(bool(rng.random() < raw**power))
            level = level.learnt([(0.95, kept[-1])])
    blocks = np.reshape(kept[: len(kept) // 500 * 500], (-1, 500)).mean(axis=1)
    assert len(blocks) > 30
    assert np.mean(blocks >= 0.92) > 0.95
    assert blocks.min() >= 0.9


HALF_LIFE = 1000.0
SYSTEM = ExclusiveSettings()


def workload(limits: LimitSet) -> Workload:
    """Return a log of four users of one account, each of whom has these limits."""
    log = Lublin(jobs=200, nodes=32, load=0.6, seed=5, users=4).log()
    jobs = log.jobs.replace_text("account", np.zeros(len(log.jobs), np.int32), ["physics"])
    users = [Association("physics", user, limits=limits) for user in jobs.names("user")]
    site = SiteLimits(None, (Association("physics"), *users), half_life=2 * DAY)
    options = WorkloadOptions(unit="node", deadline_rule="none")
    return prepare(replace(log, jobs=jobs), options, None, site)


def mean_error(of: Workload, course: JobRuns) -> float:
    """Return by how much the medians of starts are wrong, seconds."""
    settings = EstimateSettings(draws=8, longest=np.inf)
    return float(check(of, course, settings, SYSTEM, step=14400.0).rows[:, 4].mean())


@pytest.mark.parametrize(
    "limits",
    [
        LimitSet(user={"jobs": 1}),
        LimitSet(seconds={"GrpTRESMins": {"node": int(4 * DAY)}}),
    ],
    ids=["jobs", "used time"],
)
def test_limits_are_simulated_ahead(limits: LimitSet) -> None:
    """Who knows them is far less wrong than who does not: jobs wait for them, not for nodes."""
    limited = workload(limits)
    course = replayed(limited, SYSTEM)
    assert mean_error(limited, course) < 0.7 * mean_error(replace(limited, limits=None), course)


def past(half_life: float) -> _PastLimits:
    """Return a job of 3 cores from 0 to 1,000, one of 5 from 1,500 on, and one still to start.

    The first two count in group 0, the last one in both.
    """
    limits = Limits(
        things=("cpu", "cpu"),
        basis=np.array([USED, HELD]),
        asked=np.array([[3, 3], [5, 5], [7, 7]]),
        kind=np.array([0, 0, 1]),
        groups=Ragged.of([[0], [0, 1]], np.int64),
        most=np.full((3, 2), 1e9),
        half_life=np.full(2, half_life),
        names=("account physics", "user ann"),
    )
    start, end = np.array([0.0, 1500.0, 3000.0]), np.array([1000.0, 2500.0, 4000.0])
    return _PastLimits(limits, JobRuns(start, end, np.zeros(4, np.int64), np.zeros(0, np.int32)))


@pytest.mark.parametrize(
    ("half_life", "used"),
    [
        (np.inf, 3 * 1000.0 + 5 * 500.0),
        # a core that runs for ever has used HALF_LIFE / log(2) in the end
        (HALF_LIFE, (3 * (0.5 - 0.25) + 5 * (1 - 0.5**0.5)) * HALF_LIFE / np.log(2.0)),
    ],
)
def test_what_was_used_at_an_instant(half_life: float, used: float) -> None:
    """Amounts times seconds until then, at 2,000; rows are found by the jobs' ids."""
    asked = make_jobs(2, id=[2, 0], submit=0.0)
    found = past(half_life).of(asked, make_snapshot(None, None, 2000.0))
    assert found.kind.tolist() == [1, 0]
    assert found.asked[:, 0].tolist() == [7, 3]
    assert found.used is not None
    assert found.used[:, 0] == pytest.approx([used, 0.0])


@pytest.mark.parametrize(
    ("deadline", "odds"),
    [(9.0, 0.0), (10.0, 0.25), (29.0, 0.5), (math.inf, 0.5)],
)
def test_odds_are_the_share_that_has_ended(deadline: float, odds: float) -> None:
    """Of one more than are known; one that never ends is late for no deadline at all too."""
    assert odds_by(np.array([10.0, 20.0, math.inf]), deadline) == odds


def test_without_an_end_nothing_is_known() -> None:
    """No odds, and no deadline with them."""
    assert math.isnan(odds_by(np.zeros(0), 1.0))
    assert earliest_with(np.zeros(0), 0.5) == math.inf


@given(
    ends=st.lists(st.floats(0.0, 1e9) | st.just(math.inf), min_size=1, max_size=50).map(sorted),
    odds=st.floats(0.0, 1.0),
)
def test_the_earliest_deadline_with_odds_has_them(ends: list[float], odds: float) -> None:
    """And the end before it has not."""
    known = np.array(ends)
    at = earliest_with(known, odds)
    if math.isfinite(at):
        assert odds_by(known, at) >= odds - 1e-12
        before = known[known < at]
        assert not len(before) or odds_by(known, float(before[-1])) < odds
    else:
        assert odds_by(known, math.inf) < odds or not np.isfinite(known).any()
