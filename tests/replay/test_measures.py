"""Measures: hand-derived values, properties, service-time error by steps, baselines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import workload_of

from rtsched.kernels.compiling import plain
from rtsched.kernels.service_error import service_error
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.log import Ending, FinalState, Outcomes
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay, with_baseline_waits
from rtsched.replay.measures import MEASURES, errors, fairness, is_late, logged, measure
from rtsched.replay.policies import presets
from rtsched.replay.results import Results, Workload
from rtsched.report.html import sentences
from rtsched.report.summary import summarise

EPOCH = 1_700_000_000.0


def workload(submit, *, nodes=4, accounts=None, outcomes=None, **columns):
    """Return a workload of jobs submitted at these times."""
    n = len(submit)
    jobs = Jobs.build(n, id=np.arange(n), submit=submit, **columns)
    return workload_of(
        jobs, np.ones(n), nodes, outcomes=Outcomes.build(n, **(outcomes or {})), accounts=accounts
    )


def users(shares, association, submit, **more):
    """Return a workload of users with these shares."""
    table = Accounts.build(
        len(shares), name=[f"u{k}" for k in range(len(shares))], shares=shares, is_user=True
    )
    return workload(submit, accounts=table, association=association, **more)


def close(value):
    """Return what equals `value` but for rounding."""
    return pytest.approx(value, rel=1e-9, abs=1e-6)


# --- times and counts ---


def test_waits_of_jobs_without_a_deadline():
    """Two of three jobs have none; one of them never starts."""
    work = workload([0.0, 10.0, 20.0], deadline=[50.0, np.inf, np.inf])
    results = Results.build(3, start=[0.0, 40.0, np.nan], end=[1.0, 41.0, np.nan])
    assert measure(work, results)["mean_best_effort_wait_s"] == 30.0
    assert measure(work, results, baseline_wait=5.0)["mean_baseline_wait_s"] == 5.0


def test_every_measure_by_hand():
    """Four jobs on 4 nodes: one waits, one is late, one is turned away, one is lost."""
    work = workload(
        EPOCH + np.array([0.0, 10, 20, 30]),
        size=[2, 4, 1, 1],
        wall_time=[100.0, 50, 10, 40],
        deadline=EPOCH + np.array([200.0, 140, 25, 99]),
    )
    results = Results.build(
        4,
        start=EPOCH + np.array([0.0, 100, np.nan, np.nan]),
        end=EPOCH + np.array([100.0, 150, np.nan, np.nan]),
        size=[2, 4, 0, 0],
        fate=np.array(
            [FinalState.FINISHED, FinalState.FINISHED, FinalState.REJECTED, FinalState.UNFINISHED],
            np.int8,
        ),
        promise=EPOCH + np.array([200.0, 140, np.inf, np.inf]),
    )
    found = measure(work, results)
    expected = {
        "jobs": 4,
        "finished": 2,
        "rejected": 1,
        "unfinished": 1,
        "reject_ratio": 0.25,
        "rejected_work_ratio": 10 / (200 + 200 + 10 + 40),
        "ran_on": 0,
        "promised_later": 0,
        "rejected_run_ratio": 1 / (2 + 4 + 1 + 1),  # each would run for a second
        "in_time": 1,
        "in_time_ratio": 0.25,
        "in_time_work_ratio": 2 / (2 + 4 + 1 + 1),
        "missed": 2,  # the second is 10 s late, the fourth never ended
        "miss_ratio": 0.5,
        "promises": 2,
        "promises_kept": 1,
        "promised_work_ratio": (200 + 200) / (200 + 200 + 10 + 40),
        "mean_wait_s": 45.0,
        "median_wait_s": 45.0,
        "p95_wait_s": 85.5,
        "max_wait_s": 90.0,
        "mean_response_s": (100 + 140) / 2,
        "mean_bounded_slowdown": (1 + 140 / 50) / 2,
        "utilisation": (200 + 200) / (4 * 150),
        "makespan_s": 150.0,
        "throughput_per_h": 2 * 3600 / 150,
        "mean_cost": (200 + 200) / 3600 / 2,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert all(value is None for name, value in found.items() if name not in expected)
    assert set(found) == set(MEASURES)


def test_the_waits_of_the_jobs_that_all_policies_started():
    """Given by who compares them; of one policy alone there is nothing to say."""
    work = workload([0.0, 10.0, 20.0])
    results = Results.build(3, start=[5.0, 40.0, 20.0], end=[6.0, 41.0, 21.0], size=1)
    common = np.array([True, False, True])
    assert measure(work, results, common=common)["mean_common_wait_s"] == 2.5
    assert measure(work, results)["mean_common_wait_s"] is None
    assert measure(work, results, common=~common & False)["mean_common_wait_s"] is None


def test_short_runs_count_as_ten_seconds_in_the_slowdown():
    """Slowdown is max(1, (wait + run)/max(run, 10)): 1 s after 9 s of waiting is no slowdown."""
    work = workload([0.0, 0.0])
    results = Results.build(2, start=[9.0, 40.0], end=[10.0, 42.0], size=1)
    assert measure(work, results)["mean_bounded_slowdown"] == pytest.approx((1 + 4.2) / 2)


def test_nothing_ran():
    """Where nothing ran times are None, counts are not."""
    work = workload([0.0, 1.0], deadline=[5.0, np.inf])
    results = Results.build(2, fate=np.full(2, FinalState.REJECTED, np.int8))
    found = measure(work, results)
    assert found["rejected"] == 2
    assert found["missed"] == 0
    assert found["mean_wait_s"] is None
    assert found["utilisation"] is None
    assert found["user_error_rms_node_s"] is None


def test_lateness_is_forgiven_as_far_as_admission_forgives_it():
    """1e-9 of the time to the deadline, and what epoch seconds cannot express."""
    submit = np.full(4, EPOCH)
    due = EPOCH + np.array([1e6, 1e6, 10.0, np.inf])
    end = due + np.array([0.9e-3, 1.2e-3, 4e-7, 0.0])
    assert is_late(end, due, submit).tolist() == [False, True, False, False]
    assert is_late(np.array([np.nan]), np.array([1.0]), np.array([0.0])).tolist() == [True]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 40))
def test_measures_do_not_depend_on_the_order_of_rows(seed, n):
    """A permutation of the rows changes nothing."""
    random = np.random.default_rng(seed)
    work, results = _random_replay(random, n)
    order = random.permutation(n)
    outcomes = work.outcomes.take(order)
    moved = replace(
        work, jobs=work.jobs.take(order), run_time=work.run_time[order], outcomes=outcomes
    )
    before, after = measure(work, results), measure(moved, results.take(order))
    for name in MEASURES:
        assert after[name] == (None if before[name] is None else close(before[name])), name


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), factor=st.sampled_from([0.5, 4.0]))
def test_measures_scale_with_time(seed, n, factor):
    """Times k-fold: seconds and node-seconds k-fold, ratios the same."""
    work, results = _random_replay(np.random.default_rng(seed), n)
    times = {name: work.jobs.column(name) * factor for name in ("submit", "deadline", "wall_time")}
    slow = replace(work, jobs=work.jobs.replace(**times))
    stretched = results.replace(start=results.start * factor, end=results.end * factor)
    before, after = measure(work, results), measure(slow, stretched)
    for name, entry in MEASURES.items():
        if name == "mean_bounded_slowdown":  # its 10 s do not scale
            continue
        power = {"s": 1, "node s": 1, "1/h": -1, "currency": 1}.get(entry.unit, 0)
        expected = None if before[name] is None else close(before[name] * factor**power)
        assert after[name] == expected, name


def test_shared_nodes_count_what_they_served():
    """Service in slices: an hour of one node within three; the price is 4 per node-hour."""
    work = replace(workload([0.0, 0.0]), price=4.0)
    results = Results.build(2, start=0.0, end=10800.0, size=1, service=[3600.0, np.nan])
    found = measure(work, results)
    assert found["utilisation"] == pytest.approx((1 + 3) / (len(work.cluster) * 3))
    assert found["mean_cost"] == pytest.approx(4 * (1 + 3) / 2)
    assert results.serving().tolist() == [1 / 3, 1.0]


# --- what the log records ---


def test_what_the_log_records():
    """Starts and ends of the log; a job killed at its deadline has missed it."""
    work = workload(
        [0.0, 0.0, 5.0],
        size=[1, 2, 1],
        deadline=[50.0, 60.0, np.inf],
        outcomes={
            "start": [10.0, 20.0, np.nan],
            "end": [40.0, 60.0, np.nan],
            "size": [1, 0, 0],
            "ending": np.array([Ending.COMPLETED, Ending.MISSED, Ending.CANCELLED], np.int8),
        },
    )
    found = logged(work)
    assert found["mean_wait_s"] == 15
    assert found["finished"] == 2
    assert found["missed"] == 1
    assert found["utilisation"] == pytest.approx((30 + 2 * 40) / (4 * 60))
    assert found["rejected"] is None
    assert found["promises"] is None


def test_a_log_without_starts_records_nothing():
    """A synthetic log says what was to be done, not what became of it."""
    found = logged(workload([0.0, 1.0], deadline=[3.0, 4.0], outcomes={"run_time": [1.0, 1.0]}))
    assert found.pop("jobs") == 2
    assert set(found.values()) == {None}


# --- service-time error ---


def test_errors_of_the_source_s_worked_example():
    """Shares 2 and 1, one server, slices A B A A B A: errors +1/3 +1/3 0 +1/3 +1/3 -1/3."""
    work = users([2.0, 1.0], [0, 1, 0, 0, 1, 0], np.zeros(6), nodes=1)
    start = np.arange(6.0)
    results = Results.build(6, start=start, end=start + 1, size=1)
    course = errors(work, results, "user", grid=start + 1, watched=np.arange(2)).error.course
    whose = [0, 1, 0, 0, 1, 0]
    found = [course[k, whose[k]] for k in range(6)]
    assert found == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3, 1 / 3, -1 / 3])
    final = errors(work, results, "user").error.final
    assert final == pytest.approx([-1 / 3, 1 / 3])


def test_a_lone_user_has_no_error():
    """Whatever the machine does, nobody else got the service."""
    work = users([3.0], [0, 0, 0], [0.0, 5.0, 90.0])
    results = Results.build(3, start=[1.0, 30.0, 90.0], end=[20.0, 60.0, 95.0], size=[2, 4, 1])
    error = errors(work, results, "user").error
    for values in (error.least, error.most, error.final):
        assert values == pytest.approx([0.0])


def test_a_user_who_waits_while_another_is_served():
    """Equal shares, 4 nodes: b waits 10 s for a, then each gets what is due; b is 20 behind."""
    work = users([1.0, 1.0], [0, 1], [0.0, 0.0])
    results = Results.build(2, start=[0.0, 10.0], end=[10.0, 30.0], size=[4, 4])
    error = errors(work, results, "user").error
    assert error.final == pytest.approx([20.0, -20.0])
    assert error.most[0] == pytest.approx(20.0)
    assert error.least[1] == pytest.approx(-20.0)
    found = fairness(work, results)
    assert found["user_error_min_node_s"] == pytest.approx(-20)
    assert found["user_error_max_node_s"] == pytest.approx(20)
    # Instants: a at 0 (twice) and 10, b at 0, 10 and 30: errors 0 0 20 0 -20 -20.
    assert found["user_error_rms_node_s"] == pytest.approx(np.sqrt(3 * 400 / 6))
    assert found["account_error_rms_node_s"] is None


def test_accounts_are_judged_by_their_own_shares():
    """Two users of one account have one error as an account."""
    table = Accounts.build(
        5,
        name=["x", "y", "ann", "bob", "cid"],
        parent=[-1, -1, 0, 0, 1],
        shares=[3.0, 1.0, 1.0, 1.0, 1.0],
        is_user=np.array([False, False, True, True, True]),
    )
    work = workload(np.zeros(3), accounts=table, association=[2, 3, 4], size=[2, 1, 1])
    results = Results.build(3, start=np.zeros(3), end=np.full(3, 8.0), size=[2, 1, 1])
    by_account = errors(work, results, "account")
    assert by_account.names == ("x", "y")
    assert by_account.error.final == pytest.approx([24 - 24, 8 - 8])
    by_user = errors(work, results, "user")
    assert by_user.names == ("ann", "bob", "cid")
    assert by_user.error.final == pytest.approx([16 - 12, 8 - 12, 8 - 8])


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 25), compiled=st.booleans())
def test_errors_agree_with_stepping_through_time(seed, n, compiled):
    """Second by second: everyone active is due their share of what is being served."""
    random = np.random.default_rng(seed)
    work, results = _random_replay(random, n)
    jobs, table = work.jobs, work.accounts
    times = (jobs.submit, results.start, results.end)
    last = int(np.nanmax(np.concatenate(times)))
    expected = _stepped(work, results, last)
    grid = np.arange(last + 1.0)
    if compiled:
        found = errors(work, results, "user", grid=grid, watched=np.arange(len(table)))
        if found is None:
            return
        error = found.error
        assert found.rows.tolist() == list(range(len(table)))
    else:
        let_in = results.fate != FinalState.REJECTED
        known = [let_in & np.isfinite(time) for time in (jobs.submit, results.start, results.end)]
        rows = [
            np.flatnonzero(mask)[np.argsort(time[mask], kind="stable")]
            for mask, time in zip(known, times, strict=True)
        ]
        error = plain(service_error)(
            *times,
            *rows,
            results.size,
            jobs.association,
            table.share(),
            grid,
            np.arange(len(table)),
        )
    assert error.course == pytest.approx(expected, abs=1e-6)
    # Served is what was due: at every instant errors add up to nothing.
    assert error.course.sum(axis=1) == pytest.approx(np.zeros(len(grid)), abs=1e-6)
    for user in np.flatnonzero(error.instants):
        mine = (jobs.association == user) & (results.fate != FinalState.REJECTED)
        own = np.concatenate([time[mine & np.isfinite(time)] for time in times]).astype(int)
        assert error.least[user] == pytest.approx(expected[own, user].min(), abs=1e-6)
        assert error.most[user] == pytest.approx(expected[own, user].max(), abs=1e-6)
        assert error.squares[user] == pytest.approx((expected[own, user] ** 2).sum(), abs=1e-4)


def test_every_measure_is_described():
    """Names carry their unit; definitions are sentences."""
    suffix = {"s": "_s", "node s": "_node_s", "1/h": "_per_h", "GPU h": "_gpu_h"}
    for name, entry in MEASURES.items():
        assert entry.definition.endswith(".")
        assert name.endswith(suffix.get(entry.unit, ""))
        assert entry.better in {-1, 0, 1}


def _random_replay(random: np.random.Generator, n: int) -> tuple[Workload, Results]:
    """Return jobs of three users in whole seconds; some rejected, lost or never started."""
    submit = np.sort(random.integers(0, 60, n)).astype(float)
    start = submit + random.integers(0, 30, n)
    end = start + random.integers(1, 40, n)
    fate = random.choice(
        [FinalState.FINISHED, FinalState.REJECTED, FinalState.UNFINISHED], n, p=[0.8, 0.1, 0.1]
    )
    start[fate == FinalState.REJECTED] = end[fate == FinalState.REJECTED] = np.nan
    end[fate == FinalState.UNFINISHED] = np.nan
    start[(fate == FinalState.UNFINISHED) & (random.random(n) < 0.5)] = np.nan
    size = random.integers(1, 5, n)
    work = users(
        [1.0, 2.0, 5.0],
        np.concatenate([[0, 1, 2], random.integers(0, 3, n)])[:n],
        submit,
        size=size,
        wall_time=end - start,
        deadline=np.where(random.random(n) < 0.5, submit + 45, np.inf),
    )
    wall_time = random.integers(1, 40, n).astype(float)
    work = replace(work, jobs=work.jobs.replace(wall_time=wall_time))
    results = Results.build(n, start=start, end=end, size=size, fate=fate.astype(np.int8))
    return work, results


def _stepped(work: Workload, results: Results, last: int) -> np.ndarray:
    """Return float64[last + 1, users]: errors at whole seconds, by the definition."""
    jobs, share = work.jobs, work.accounts.share()
    start, end = (np.nan_to_num(time, nan=np.inf) for time in (results.start, results.end))
    let_in = results.fate != FinalState.REJECTED
    error = np.zeros((last + 1, len(share)))
    for now in range(last):
        active, served = np.zeros(len(share), bool), np.zeros(len(share))
        for i in np.flatnonzero(let_in):
            if jobs.submit[i] <= now < end[i]:
                active[jobs.association[i]] = True
            if start[i] <= now < end[i]:
                served[jobs.association[i]] += results.size[i]
        due = served.sum() * share * active / max(share[active].sum(), 1e-9)
        error[now + 1] = error[now] + served - due
    return error


def four_jobs(node_count: int = 1) -> Workload:
    """Return jobs of one node each, of which the second cannot end in time behind the first."""
    jobs = Jobs.build(
        4,
        id=[1, 2, 3, 4],
        submit=[0.0, 0.0, 10.0, 20.0],
        size=1,
        wall_time=[100.0, 100.0, 50.0, 10.0],
        deadline=[100.0, 150.0, 1000.0, 115.0],
    )
    cluster = Cluster.uniform(node_count)
    return workload_of(jobs, jobs.wall_time, cluster)


def waits(work: Workload, *names: str) -> dict[str, float | None]:
    """Return `baseline_wait` by policy; the first is the baseline."""
    known = {name: presets()[name] for name in names}
    runs = [replay(work, name, policy) for name, policy in known.items()]
    return {run.policy: run.baseline_wait for run in with_baseline_waits(work, runs, known)}


@pytest.mark.parametrize("base", ["easy", "multifactor", "conservative"])
def test_the_baseline_alone_with_the_accepted_jobs(base: str) -> None:
    """First come first served, all start at 0, 100, 200, 250 s; jobs 1, 3, 4 at 0, 100, 150 s."""
    # They wait 0, 90 and 130 s then. By plan job 4 is before job 3: 0, 100 and 80 s.
    work, names = four_jobs(), (base, "edf-mn")
    alone, whole = (0 + 90 + 130) / 3, (0 + 100 + 190 + 230) / 4
    found = waits(work, *names, "edf-easy")
    assert found == pytest.approx({base: whole, "edf-mn": alone, "edf-easy": whole})
    known = {name: presets()[name] for name in names}
    runs = [replay(work, name, policy) for name, policy in known.items()]
    summary = summarise(work, with_baseline_waits(work, runs, known))
    measures = summary.measures("edf-mn")
    assert summary.measures(base)["mean_wait_s"] == pytest.approx(whole)
    assert measures["mean_wait_s"] == pytest.approx((0 + 100 + 80) / 3)
    assert measures["mean_baseline_wait_s"] == pytest.approx(alone)
    notes = (
        f"1m 00s, but 25.0 % of them are rejected; under {base} the others alone would wait 1m 13s."
    )
    assert any(sentence.endswith(notes) for sentence in sentences(summary))


def test_where_nothing_is_rejected_or_the_baseline_plans() -> None:
    """Nothing is known then, nor where rejected jobs run on."""
    assert waits(four_jobs(4), "easy", "edf-mn") == {"easy": None, "edf-mn": None}
    assert waits(four_jobs(), "edf-mn", "easy") == {"edf-mn": None, "easy": None}
    assert waits(four_jobs(), "easy", "portfolio-run") == {"easy": None, "portfolio-run": None}
    assert with_baseline_waits(four_jobs(), [], {}) == []


def test_all_that_are_left_out_never_start() -> None:
    """They are rejected at their submission, also where plug-ins are asked."""
    work, absent = four_jobs(), np.array([True, False, False, True])
    for name in ("easy", "multifactor", "rr", "sed"):
        results = replay(work, name, presets()[name], absent=absent).results
        assert np.array_equal(np.isnan(results.start), absent)
