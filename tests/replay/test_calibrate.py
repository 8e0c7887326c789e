"""Calibration on arrays: intervals that hold the truth, refusals, and values worked by hand."""

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.calibrate import Estimate, Loads, Options, Records, Refused, RequestedTimes, Speeds
from rtsched.calibrate.intervals import independent, medians, requested_times, share, t_quantile
from rtsched.calibrate.loads import divisible_loads
from rtsched.calibrate.speeds import Design, Fit, node_speeds
from rtsched.errors import ConfigError
from rtsched.kernels.dlt import exec_time
from rtsched.kernels.loads import Load
from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.model.jobs import Jobs
from rtsched.model.log import Ending, Log, Outcomes

SEEDS = range(100)
SPEED = np.array([1.0, 0.9, 0.8, 0.6, 0.5, 0.3])


def noisy(rng, log_time, scatter, wild):
    """Return whole seconds: run times that scatter, a share of them wildly."""
    log_time = log_time + rng.normal(0, 1, len(log_time)) * scatter
    off = rng.random(len(log_time)) < wild
    log_time[off] += rng.choice([-3.0, 2.0], int(off.sum()))
    return np.maximum(np.round(np.exp(log_time)), 1.0)


def repeated(seed, classes=120, per=5, scatter=0.2, wild=0.05, speed=SPEED, unequal=False):
    """Return run times, classes and nodes of repeated jobs on nodes of known speed."""
    rng = np.random.default_rng(seed)
    job_class = np.repeat(np.arange(classes), per)
    node = rng.integers(0, len(speed), len(job_class))
    spread = rng.choice([0.05, 0.5], classes)[job_class] if unequal else scatter
    log_time = rng.normal(8, 1.5, classes)[job_class] - np.log(speed)[node]
    return noisy(rng, log_time, spread, wild), job_class, node


def loads(seed, costs, classes=40, per=8, scatter=0.05, wild=0.03, sizes=(1, 2, 4, 8, 16, 32)):
    """Return run times, sizes, classes and sigma of divisible loads of known costs."""
    rng = np.random.default_rng(seed)
    job_class = np.repeat(np.arange(classes), per)
    sigma = np.exp(rng.normal(np.log(100), 1, classes))[job_class]
    size = rng.choice(sizes, len(job_class))
    time = np.array([exec_time(int(n), Load(s, *costs)) for n, s in zip(size, sigma, strict=True)])
    return noisy(rng, np.log(time), scatter, wild), size, job_class, sigma


def holds(found, truth):
    """Return whether the interval holds the true value."""
    return found.low <= truth <= found.high


def assert_honest(hits):
    """Check the share of intervals that hold, per parameter (a column), over the seeds."""
    cover = np.mean(hits, axis=0)
    assert ((cover >= 0.90) & (cover <= 0.99)).all(), cover


@pytest.mark.parametrize(
    "how",
    [{}, {"wild": 0.0}, {"per": 2, "classes": 250}, {"classes": 3, "per": 60}, {"scatter": 0.02}],
    ids=str,
)
def test_speed_intervals_hold_the_truth(how):
    """Few or many classes, outliers, little scatter: 90 to 99 % of 100 seeds, for each node."""
    hits = []
    for seed in SEEDS:
        found = node_speeds(*repeated(seed, **how))
        pool = found.node[found.fastest]
        truth = SPEED / np.exp(np.log(SPEED[pool]).mean())
        by_node = dict(zip(found.node.tolist(), found.speed, strict=True))
        hits.append([holds(by_node[node], truth[node]) for node in range(1, 6)])
    assert_honest(hits)


def test_speed_intervals_allow_for_unequal_scatter():
    """Half the classes scatter ten times as much: 90 to 99 % over all nodes."""
    hits = []
    for seed in SEEDS:
        found = node_speeds(*repeated(seed, unequal=True, classes=200))
        truth = SPEED[found.node] / np.exp(np.log(SPEED[found.node[found.fastest]]).mean())
        hits.append([holds(*pair) for pair in zip(found.speed[1:], truth[1:], strict=True)])
    assert 0.90 <= np.mean(hits) <= 0.99


def test_speeds_of_equal_nodes_hold_the_truth():
    """The best of many equal nodes is not taken for a faster one."""
    hits = []
    for seed in SEEDS:
        found = node_speeds(*repeated(seed, classes=150, speed=np.ones(20)))
        hits.append(np.mean([holds(each, 1.0) for each in found.speed]))
    assert 0.90 <= np.mean(hits) <= 0.99


@pytest.mark.parametrize("costs", [(1.0, 100.0, 5.0, 20.0), (10.0, 10.0, 20.0, 60.0)], ids=str)
@pytest.mark.parametrize("known", [False, True])
def test_load_intervals_hold_the_truth(costs, known):
    """Send and compute times, set-ups: 90 to 99 % of 100 seeds, with sigma known or not."""
    cms, cps, link, node = costs
    unit = 1.0 if known else cms + cps
    truth = (cms / unit, cps / unit, link, node)
    hits = []
    for seed in SEEDS:
        run_time, size, job_class, sigma = loads(seed, costs)
        found = divisible_loads(run_time, size, job_class, sigma if known else None)
        parts = (found.cms, found.cps, found.setup_link, found.setup_node)
        hits.append([holds(part, value) for part, value in zip(parts, truth, strict=True)])
    assert_honest(hits)


def test_load_intervals_hold_without_setup():
    """The ratio alone, where the user says that there is no set-up."""
    hits = []
    for seed in SEEDS:
        run_time, size, job_class, _ = loads(seed, (1.0, 100.0, 0.0, 0.0), sizes=(1, 2, 4))
        found = divisible_loads(run_time, size, job_class, setup=False)
        hits.append([holds(found.ratio, 1 / 101)])
        assert found.setup_link == found.setup_node == Estimate(0.0, 0.0, 0.0)
    assert_honest(hits)


@pytest.mark.parametrize("alike", [0.0, 0.3])
def test_request_intervals_hold_the_truth(alike):
    """Quantiles and the share at the limit, for independent jobs and for users with habits."""
    parts, hits = (0.05, 0.25, 0.5, 0.75, 0.9), []
    normal = NormalDist(-1.2, 0.8)
    for seed in range(300):  # one fit takes a millisecond
        rng = np.random.default_rng(seed)
        user = rng.integers(0, 80, 2000)
        habit = np.sqrt(alike) * rng.normal(0, 1, 80)[user]
        ratio = np.exp(-1.2 + 0.8 * (habit + np.sqrt(1 - alike) * rng.normal(0, 1, 2000)))
        found = requested_times(
            3600 * np.minimum(ratio, 1), np.full(2000, 3600.0), ratio > 1, user, parts
        )
        hits.append(
            [holds(found.at_limit, 1 - normal.cdf(0))]
            + [holds(found.quantiles[part], np.exp(normal.inv_cdf(part))) for part in parts]
        )
    assert_honest(hits)


def test_speeds_by_hand():
    """Two nodes, one twice as fast in each of three classes: exactly a half, and no scatter."""
    time = np.array([100.0, 200.0, 1000.0, 2000.0, 10000.0, 20000.0])
    found = node_speeds(time, np.array([0, 0, 1, 1, 2, 2]), np.array([5, 2] * 3))
    assert isinstance(found, Speeds)
    assert found.node.tolist() == [5, 2]
    assert found.fastest.tolist() == [True, False]
    assert found.speed[0] == Estimate(1.0, 1.0, 1.0)
    assert found.speed[1].value == pytest.approx(0.5)
    assert found.jobs.tolist() == [3, 3]
    assert (found.classes, found.outliers) == (3, 0)


def test_a_wild_job_is_set_aside():
    """One hung job among many is counted, and moves nothing."""
    run_time, job_class, node = repeated(1, wild=0.0, scatter=0.05)
    calm = node_speeds(run_time, job_class, node)
    run_time[7] *= 50
    hung = node_speeds(run_time, job_class, node)
    assert hung.outliers == calm.outliers + 1
    for before, after in zip(calm.speed, hung.speed, strict=True):
        assert after.value == pytest.approx(before.value, rel=0.02)


def test_disconnected_nodes_compare_within_their_part_only():
    """Classes that never cross give two parts, each with a fastest node of its own."""
    job_class = np.repeat(np.arange(20), 6)
    node = np.where(job_class < 12, np.arange(120) % 2, 2 + np.arange(120) % 2)
    time = np.exp(job_class / 7.0) * 1000 / np.array([1.0, 0.5, 0.4, 0.1])[node]
    found = node_speeds(time, job_class, node)
    assert found.component.tolist() == [0, 0, 1, 1]
    assert found.node.tolist() == [0, 1, 2, 3]
    assert [each.value for each in found.speed] == pytest.approx([1.0, 0.5, 1.0, 0.25], rel=1e-3)


@pytest.mark.parametrize(
    ("job_class", "node", "words"),
    [
        ([], [], "does not say on which node"),
        ([0, 1, 2, 3], [0, 1, 0, 1], "no job repeats"),
        ([0, 0, 0, 1, 1, 1], [0] * 6, "ran on one node"),
        ([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1], "no node has three repeated jobs"),
        ([0, 0, 1, 1], [0, 1, 0, 1], "no node has three repeated jobs"),
    ],
)
def test_speeds_that_the_log_cannot_tell_are_refused(job_class, node, words):
    """Each with its own reason."""
    found = node_speeds(
        np.full(len(node), 100.0), np.array(job_class, np.int64), np.array(node, np.int64)
    )
    assert isinstance(found, Refused)
    assert words in found.reason


def test_too_many_nodes_are_to_be_pooled():
    """A speed for each of thousands of nodes is refused with what to do."""
    node = np.tile(np.arange(1200), 3)
    found = node_speeds(np.full(3600, 60.0), np.zeros(3600, np.int64), node)
    assert isinstance(found, Refused)
    assert "--group" in found.reason


@pytest.mark.parametrize(
    ("how", "known", "words"),
    [
        ({"sizes": (4,)}, False, "no job was repeated on another number"),
        ({"sizes": (4,)}, True, "all jobs ran on 4 nodes"),
        ({"classes": 2, "per": 3}, False, "repeated on other numbers of nodes"),
        ({"sizes": (1, 2)}, False, "do not tell sending, computing and set-up apart"),
        ({"classes": 1, "per": 100}, False, "do not tell sending, computing and set-up apart"),
        ({"scatter": 1.5, "classes": 60}, False, "factor of two"),
    ],
    ids=str,
)
def test_loads_that_the_log_cannot_tell_are_refused(how, known, words):
    """One size, two sizes with set-up, one load, too much scatter."""
    run_time, size, job_class, sigma = loads(3, (1.0, 100.0, 5.0, 20.0), **how)
    found = divisible_loads(run_time, size, job_class, sigma if known else None)
    assert isinstance(found, Refused), found
    assert words in found.reason


def test_jobs_that_do_not_get_faster_are_no_divisible_loads():
    """Run times that do not depend on the number of nodes are refused, not fitted."""
    rng = np.random.default_rng(0)
    job_class = np.repeat(np.arange(40), 8)
    time = np.exp(rng.normal(6, 1, 40)[job_class] + 0.05 * rng.normal(0, 1, 320))
    for setup in (True, False):
        found = divisible_loads(time, rng.choice([1, 2, 4, 8], 320), job_class, setup=setup)
        assert isinstance(found, Refused), found


def test_loads_without_scatter_are_found_exactly():
    """Run times that are E(n) to the second give back the costs they were made with."""
    run_time, size, job_class, sigma = loads(0, (2.0, 200.0, 30.0, 50.0), scatter=0.0, wild=0.0)
    found = divisible_loads(run_time, size, job_class, sigma)
    assert isinstance(found, Loads)
    assert found.cms.value == pytest.approx(2.0, rel=2e-3)
    assert found.cps.value == pytest.approx(200.0, rel=2e-3)
    assert found.setup_link.value == pytest.approx(30.0, rel=2e-2)
    assert found.setup_node.value == pytest.approx(50.0, rel=2e-2)


def test_margins_beyond_what_was_killed_are_refused():
    """With one job in five killed, nobody knows what 90 % need."""
    ratio = np.linspace(0.1, 1.0, 100)
    killed = np.arange(100) >= 80
    found = requested_times(ratio * 60, np.full(100, 60.0), killed, np.arange(100), (0.6, 0.9))
    assert isinstance(found, RequestedTimes)
    assert found.at_limit.value == 0.2
    assert found.quantiles[0.5].value == pytest.approx(ratio[49])
    assert found.quantiles[0.6].value == pytest.approx(ratio[59])
    assert "20.0% of the jobs were killed" in found.quantiles[0.9].reason


def test_a_few_jobs_tell_nothing_of_requested_times():
    """Neither none nor a dozen."""
    for n, words in ((0, "no requested times"), (12, "only 12 jobs")):
        found = requested_times(
            np.ones(n), np.ones(n), np.zeros(n, bool), np.zeros(n, np.int64), (0.9,)
        )
        assert isinstance(found, Refused)
        assert words in found.reason


def test_a_share_between_users_counts_users():
    """Jobs that agree within each user are worth as many draws as there are users."""
    user = np.repeat(np.arange(50), 40)
    assert independent(user % 5 == 0, user) == pytest.approx(50, rel=0.05)
    assert independent(np.arange(2000) % 5 == 0, user) == 2000


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (7, 2.3646),
        (30, 2.0423),
        (1000, 1.9623),
    ],
)
def test_quantiles_of_t(freedom, quantile):
    """As in the printed tables."""
    assert t_quantile(freedom) == pytest.approx(quantile, abs=2e-4)


def test_wilson_by_hand():
    """Two of ten: 0.0567 to 0.5098 (Newcombe, 1998, the method without correction)."""
    found = share(0.2, 10)
    assert (found.low, found.high) == pytest.approx((0.0567, 0.5098), abs=1e-4)


def test_medians_by_group():
    """Odd, even and single groups."""
    values, group = np.array([5.0, 1.0, 2.0, 9.0, 4.0, 7.0]), np.array([0, 0, 0, 1, 1, 2])
    assert medians(values, group).tolist() == [2.0, 6.5, 7.0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(2, 8))
def test_the_two_way_fit_is_that_of_the_full_table(seed, nodes, classes):
    """Effects, leverage and covariance equal those of plain least squares on all columns."""
    rng = np.random.default_rng(seed)
    job_class, node = rng.integers(0, classes, 40), rng.integers(0, nodes, 40)
    design = Design.of(job_class, node, np.ones(40, bool))
    if len(design.node_code) < 2 or design.components().max() > 0:
        return
    y = rng.normal(0, 1, len(design.rows))
    fit = Fit.of(y, design)
    job, place = design.job_class[design.cell], design.node[design.cell]
    table = np.hstack([np.eye(len(design.class_code))[job], np.eye(len(design.node_code))[place]])
    inverse = np.linalg.pinv(table.T @ table)
    hat = np.einsum("nk,kl,nl->n", table, inverse, table)
    residual = y - table @ (inverse @ (table.T @ y))
    np.testing.assert_allclose(fit.residual, residual, atol=1e-9)
    np.testing.assert_allclose(fit.free, np.maximum(1 - hat, 1e-6), atol=1e-8)
    bread = table @ inverse
    full = bread.T @ (bread * (residual**2 / np.maximum(1 - hat, 1e-6))[:, None])
    contrast = np.zeros(table.shape[1])
    contrast[[-1, -2]] = 1, -1
    short = contrast[-len(design.node_code) :]
    assert short @ fit.covariance @ short == pytest.approx(contrast @ full @ contrast, abs=1e-8)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 10))
def test_speeds_do_not_depend_on_unit_or_order(seed, factor):
    """Other units of time and another order of jobs give the same speeds."""
    run_time, job_class, node = repeated(seed, classes=20)
    base = node_speeds(run_time, job_class, node)
    order = np.random.default_rng(seed).permutation(len(node))
    again = node_speeds(run_time[order] * 8, job_class[order], node[order])
    assert again.node.tolist() == base.node.tolist()
    for one, other in zip(base.speed, again.speed, strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-6)


@pytest.mark.parametrize("within", [0.0, 1.0, -0.5, 95.0])
def test_a_share_that_is_none_is_refused(within):
    """Shares are between 0 and 1."""
    with pytest.raises(ConfigError, match="--within"):
        Options(within=(within,))


def assert_sound(*found):
    """Check that estimates are numbers between the ends of their intervals."""
    for each in found:
        assert np.isfinite(each.value)
        assert each.low <= each.value <= each.high


rows = st.lists(
    st.tuples(
        st.sampled_from([1.0, 2.0, 7.0, 60.0, 61.0, 3600.0, 86400.0, 1e7]),
        st.integers(0, 4),
        st.integers(0, 3),
        st.sampled_from([1, 2, 3, 16, 1000]),
        st.sampled_from([0.01, 1.0, 5.0, 1e6]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(rows, st.booleans(), st.booleans())
def test_any_log_is_estimated_or_refused(rows, known, setup):
    """Logs without sense give sound numbers or a reason, never an error or a warning."""
    columns = np.array(rows, np.float64).reshape(len(rows), 5).T
    time, (job_class, node, size) = columns[0], columns[1:4].astype(np.int64)
    speeds = node_speeds(time, job_class, node)
    if isinstance(speeds, Speeds):
        assert_sound(*speeds.speed)
    costs = divisible_loads(time, size, job_class, columns[4] if known else None, setup=setup)
    if isinstance(costs, Loads):
        assert_sound(costs.cms, costs.cps, costs.ratio, costs.setup_link, costs.setup_node)
    asked = requested_times(time, columns[4] * 60, node == 0, job_class, (0.9,))
    if isinstance(asked, RequestedTimes):
        told = [each for each in asked.quantiles.values() if isinstance(each, Estimate)]
        assert_sound(asked.at_limit, *told)


def a_log():
    """Return six jobs: on slots, on a list of nodes, of unknown place, failed and running."""
    return Log(
        Jobs.build(6, id=np.arange(6), size=2, user=["ann"] * 6, name=["a", "b", None] * 2),
        Outcomes.build(
            6,
            run_time=[60.0, 60.0, 60.0, 60.0, 0.0, 60.0],
            size=[1, 4, 0, 1, 1, 1],
            ending=[
                Ending.COMPLETED,
                Ending.COMPLETED,
                Ending.COMPLETED,
                Ending.TIMEOUT,
                Ending.COMPLETED,
                Ending.RUNNING,
            ],
            nodes=["slot1_2@fast1", "fast[1-2],slow7", "fast[1", "slot1@own@vm", "fast1", "fast1"],
        ),
        ("made up",),
        "condor-history",
    )


def test_where_jobs_ran():
    """Slots belong to hosts, lists are counted, damaged lists and idle or running jobs are not."""
    found = Records.of(a_log())
    assert [found.places[code] if code >= 0 else None for code in found.place] == [
        "fast1",
        None,
        None,
        "*@own@vm",
    ]
    assert found.nodes.tolist() == [1, 3, 0, 1]
    assert found.size.tolist() == [1, 4, 2, 1]
    assert found.done.tolist() == [True, True, True, False]
    assert found.killed.tolist() == [False, False, False, True]


def test_groups_of_nodes():
    """The first pattern that fits counts; a job on nodes of two groups is of none."""
    found = Records.of(a_log(), ("fast*", "*"))
    assert found.place.tolist() == [0, -1, -1, 1]
    assert Records.of(a_log(), ("*",)).place.tolist() == [0, 0, -1, 0]


@pytest.mark.parametrize(
    ("name", "known"),
    [("sacct_26.05.txt", "j0"), ("sacct_26.05.json", "j0"), ("history_25.14.json", "/bin/sh")],
)
def test_names_are_read_where_they_are_asked_for(name, known):
    """A replay does not pay for them, and a delimiter in one does no harm to it."""
    path = Path(__file__).parents[1] / "data" / "logs" / name
    plain = read_logs([path], ReadOptions(timezone="UTC"))
    full = read_logs([path], ReadOptions(timezone="UTC", details=True))
    assert plain.jobs.names("name") == ()
    assert known in full.jobs.names("name")
    assert np.isnan(plain.outcomes.input_bytes).all()
    assert (full.outcomes.input_bytes > 0).any() == name.startswith("history")
