"""Synthetic logs: the same for the same settings, and distributed as their models say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.config import schema
from rtsched.errors import ConfigError
from rtsched.kernels.dlt import exec_time
from rtsched.kernels.loads import Load
from rtsched.logs.readers import read_logs
from rtsched.logs.swf import write
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.log import Log, Outcomes
from rtsched.replay import synth
from rtsched.replay.settings import WorkloadOptions, header_settings
from rtsched.replay.synth import GENERATORS, ROUND_REQUESTS, Lublin, PapersMcdf, Poisson, repeat
from rtsched.replay.workload import prepare


def columns(log):
    """Return all numbers of a log, for comparison."""
    tables = (log.jobs, log.outcomes)
    return [table.column(name) for table in tables for name in table.columns()]


@pytest.mark.parametrize("name", GENERATORS)
def test_equal_settings_give_equal_logs(name):
    """The seed decides, and only the seed."""
    make = GENERATORS[name]
    first, again, other = make(jobs=300).log(), make(jobs=300).log(), make(jobs=300, seed=1).log()
    assert all(
        np.array_equal(a, b, equal_nan=True)
        for a, b in zip(columns(first), columns(again), strict=True)
    )
    assert not np.array_equal(first.jobs.submit, other.jobs.submit)


@settings(max_examples=30)
@given(
    name=st.sampled_from(sorted(GENERATORS)),
    jobs=st.integers(1, 60),
    nodes=st.integers(1, 700),
    seed=st.integers(0, 2**40),
)
def test_every_job_can_be_replayed(name, jobs, nodes, seed):
    """Whatever the settings, nothing has to be dropped and nothing to be sorted."""
    log = GENERATORS[name](jobs=jobs, nodes=nodes, seed=seed).log()
    work = prepare(log, WorkloadOptions())
    assert len(work.jobs) == jobs
    assert len(work.cluster) == nodes
    assert not work.skipped.count
    assert np.array_equal(work.jobs.wall_time, log.jobs.wall_time)
    assert np.array_equal(work.jobs.id, np.arange(1, jobs + 1))


@pytest.mark.parametrize("name", GENERATORS)
def test_every_setting_is_described(name):
    """The schema has a description of each, for `--help` and the reference."""
    make = GENERATORS[name]
    entry = schema(make)["$defs"][make.__name__]["properties"]
    assert all(value.get("description") for value in entry.values())
    assert make.__doc__


# --- papers-mcdf ---


@pytest.mark.parametrize("preset", ["equal10", "one100"])
@pytest.mark.parametrize("setup", [0.0, 20.0])
def test_papers_tasks_are_distributed_as_the_source_says(preset, setup):
    """Truncated normal sizes (mean 128.8), deadlines in U[E(n*), E(1)], bursts of 5.5 tasks."""
    log = PapersMcdf(preset=preset, setup=setup, jobs=20_000, seed=3).log()
    jobs, (cms, cps) = log.jobs, PapersMcdf(preset=preset).costs()
    assert (jobs.kind == Kind.DIVISIBLE).all()
    assert jobs.sigma.min() > 0.1
    assert jobs.sigma.mean() == pytest.approx(128.8, rel=0.02)
    most = 2 * setup + jobs.sigma * (cms + cps)
    assert jobs.wall_time == pytest.approx(most)
    relative = jobs.deadline - jobs.submit
    least = np.array(
        [
            min(exec_time(n, Load(sigma, cms, cps, setup, setup)) for n in range(1, 17))
            for sigma in jobs.sigma[:300]
        ]
    )
    assert (relative[:300] >= least - 1e-9).all()
    cut = most[:300] > least + 1.0  # with set-up times one node is the best for a small load
    place = (relative[:300] - least)[cut] / (most[:300] - least)[cut]
    assert place.max() <= 1 + 1e-9
    assert place.mean() == pytest.approx(0.5, abs=0.06)
    assert len(jobs) / len(np.unique(jobs.submit)) == pytest.approx(5.5, rel=0.03)


def test_papers_load_is_nominal_only_when_normalised():
    """Offered load is sum(E_min)/time; read literally it is 5.5 times the nominal one."""
    for mode, factor in (("literal", 5.5), ("normalised", 1.0)):
        log = PapersMcdf(preset="one100", mode=mode, load=0.4, jobs=30_000).log()
        least = log.jobs.sigma * exec_time(16, Load(1.0, 1.0, 100.0))
        offered = least.sum() / (log.jobs.submit[-1] - log.jobs.submit[0])
        assert offered == pytest.approx(0.4 * factor, rel=0.05)


@pytest.mark.parametrize("setup", [0.0, 15.0])
def test_papers_tasks_survive_swf_by_the_rules_in_its_header(tmp_path, setup):
    """SWF carries E(1) and a header line; both give sizes and deadlines back."""
    made = PapersMcdf(preset="equal10", setup=setup, jobs=200, seed=11)
    log, path = made.log(), tmp_path / "tasks.swf"
    write(path, log.jobs, log.outcomes, cluster=log.cluster, header=made.header())
    proposed = header_settings(path.read_text("utf-8").splitlines())
    work = prepare(read_logs([path]), WorkloadOptions(**proposed))
    jobs = work.jobs
    assert jobs.kind.tolist() == log.jobs.kind.tolist()
    assert jobs.sigma == pytest.approx(log.jobs.sigma, abs=0.001 / 20)  # SWF's milliseconds
    for name in ("cms", "cps", "setup_link", "setup_node", "size_min", "size_max"):
        assert np.array_equal(jobs.column(name), log.jobs.column(name))
    assert jobs.submit == pytest.approx(log.jobs.submit, abs=0.001)
    relative = log.jobs.deadline - log.jobs.submit
    assert jobs.deadline - jobs.submit == pytest.approx(relative, abs=0.002)


def test_impossible_costs_are_refused():
    """Loads that compute in no time have no node count."""
    with pytest.raises(ConfigError, match="cps > 0"):
        PapersMcdf(cps=0.0).log()


# --- Lublin and Feitelson ---


def test_lublin_sizes_follow_the_two_stage_model():
    """Serial share, powers of two, mean of the two uniform stages."""
    model, n = synth.BATCH, 200_000
    size = synth.sizes(model, n, 128, np.random.default_rng(1))
    exponent = np.log2(size)
    assert (size == 1).mean() == pytest.approx(model.serial, abs=0.01)
    assert size.max() == 128
    assert np.isin(exponent, np.arange(8)).mean() > model.serial + model.power_of_two
    stages = (1.2 + 5.0) / 2 * 0.875 + (5.0 + 7.0) / 2 * 0.125
    assert exponent[size > 1].mean() == pytest.approx(stages, abs=0.06)


def test_lublin_sizes_fit_any_machine():
    """Upper stages move with the machine; no job is wider than it."""
    for nodes in (1, 2, 3, 100, 1000):
        for model in synth.MODELS.values():
            size = synth.sizes(model, 5000, nodes, np.random.default_rng(nodes))
            assert size.min() == 1
            assert size.max() <= nodes


def test_lublin_run_times_are_hyper_gamma_and_longer_for_wide_jobs():
    """ln(run) has the mixture's mean; the mixture moves with the size."""
    model, random = synth.BATCH, np.random.default_rng(2)
    for width in (1, 128):
        run = synth.run_times(model, np.full(100_000, width, np.int32), random)
        mix = model.mix_slope * width + model.mix_start
        mean = mix * math.prod(model.run_first) + (1 - mix) * math.prod(model.run_second)
        assert run.max() <= math.exp(12)
        assert run.min() >= 1
        # Rounding down and the cut at e^12 take a little off.
        assert np.log(run).mean() == pytest.approx(mean, rel=0.06)
    assert mean > 6


def test_lublin_daily_cycle_is_the_gamma_distribution_over_half_hours():
    """Rates have mean 1; batch jobs come in the afternoon, hardly before dawn."""
    for model in synth.MODELS.values():
        rates = synth.daily_cycle(model)
        assert rates.mean() == pytest.approx(1.0)
        hours = rates.reshape(24, 2).mean(axis=1)
        assert 11 <= int(hours.argmax()) <= 16
        assert 2 <= int(hours.argmin()) <= 6
    steps = np.linspace(0, 30, 200_001)[1:] - 0.5 * 30 / 200_000
    shape, scale = synth.ALL.cycle
    density = steps ** (shape - 1) * np.exp(-steps / scale)
    density /= math.gamma(shape) * scale**shape
    total = float(density.sum() * 30 / 200_000)
    assert synth._gamma_cdf(30.0, shape, scale) == pytest.approx(total, abs=1e-6)


def test_lublin_arrivals_follow_the_cycle():
    """Arrivals ascend, and the share of each hour is that of its rate."""
    model = synth.ALL
    times = np.concatenate(
        [synth.arrivals(model, 10_000, np.random.default_rng(seed)) for seed in range(20)]
    )
    found = np.bincount((times % 86400 // 3600).astype(int), minlength=24) / len(times)
    expected = synth.daily_cycle(model).reshape(24, 2).sum(axis=1) / 48
    assert found == pytest.approx(expected, abs=0.006)
    assert (np.diff(synth.arrivals(model, 5000, np.random.default_rng(0))) >= 0).all()


def test_lublin_both_kinds_stand_side_by_side_in_their_queues():
    """Each kind has its queue; requests are what people ask for and never below the run time."""
    log = Lublin(kind="both", jobs=3000, nodes=128).log()
    queues = log.jobs.texts("partition")
    assert set(queues) == {"batch", "interactive"}
    assert (np.diff(log.jobs.submit) >= 0).all()
    assert (log.jobs.wall_time >= log.outcomes.run_time).all()
    assert np.isin(log.jobs.wall_time, ROUND_REQUESTS).mean() > 0.95


# --- what batch generators share ---


@pytest.mark.parametrize("made", [Lublin(load=0.7), Poisson(load=0.7)])
def test_offered_load_is_the_one_asked_for(made):
    """Sum of size times run time over nodes and span."""
    log = made.log()
    span = log.jobs.submit[-1] - log.jobs.submit[0]
    work = float((log.jobs.size * log.outcomes.run_time).sum())
    assert work / (made.nodes * span) == pytest.approx(0.7, rel=0.02)


def test_requests_over_estimate_as_stated():
    """Uniform between 1 and 1 + f times the run time; 0 is exact."""
    ratio = [
        (log.jobs.wall_time / log.outcomes.run_time)
        for f in (0.0, 2.0)
        for log in [Poisson(overestimate=f, round_requests=False, median_run=1e4).log()]
    ]
    assert (ratio[0] == 1).all()
    assert ratio[1].mean() == pytest.approx(2.0, rel=0.02)


def test_users_have_zipf_weights_and_one_account_each():
    """User k has 1/k of the first one's jobs."""
    log = Poisson(jobs=50_000, users=10, accounts=3).log()
    count = np.bincount(log.jobs.user)
    assert count[0] / count[4] == pytest.approx(5.0, rel=0.1)
    pairs = set(zip(log.jobs.user.tolist(), log.jobs.account.tolist(), strict=True))
    assert len(pairs) == 10
    assert not Poisson(users=0).log().jobs.names("user")


# --- repetition ---


def test_a_log_is_repeated_end_to_end():
    """Each round is the log again, later by one period; the last may be cut short."""
    jobs = Jobs.build(
        3, id=[5, 6, 9], submit=[100.0, 110, 130], user=["a", "b", "a"], size=[1, 2, 3]
    )
    outcomes = Outcomes.build(3, start=[101.0, 111, 131], run_time=[7.0, 8, 9])
    made = repeat(Log(jobs, outcomes, ("x",), "swf"), 7)
    assert made.jobs.submit.tolist() == [100, 110, 130, 145, 155, 175, 190]
    assert made.outcomes.start.tolist() == [101, 111, 131, 146, 156, 176, 191]
    assert made.jobs.id.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert made.jobs.texts("user") == ["a", "b", "a", "a", "b", "a", "a"]
    assert made.jobs.size.tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert made.jobs.deadline.strides == (0,)


def test_an_empty_log_cannot_be_repeated():
    """One sentence."""
    with pytest.raises(ConfigError, match="no job to repeat"):
        repeat(Log(Jobs.build(0), Outcomes.build(0), ("x",), "swf"), 5)
