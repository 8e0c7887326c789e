"""From a log to a workload: what is dropped, what is filled in, and in which units."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.core.config import convert, schema
from rtsched.errors import ConfigError, InputError
from rtsched.kernels.dlt import exec_time
from rtsched.kernels.loads import Load
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Ending, Log, Outcomes
from rtsched.model.preemption import SitePreemption
from rtsched.replay.machine import by_node
from rtsched.replay.rules import DeadlineRule, KindRule, draw
from rtsched.replay.settings import HEADER, WorkloadOptions, header_settings
from rtsched.replay.workload import prepare

RIGID = WorkloadOptions(deadline_rule="none")


def log(n=3, outcomes=None, cluster=4, edges=None, **columns):
    """Return a log of `n` jobs, one every 10 s, that ran 5 s each."""
    columns = {"id": np.arange(1, n + 1), "submit": 10.0 * np.arange(n), **columns}
    happened = {"run_time": np.full(n, 5.0), **(outcomes or {})}
    return Log(
        Jobs.build(n, **columns),
        Outcomes.build(n, **happened),
        ("site.log",),
        "swf",
        cluster=Cluster.uniform(cluster) if cluster else None,
        edges=edges or Edges.build(0),
    )


# --- normalisation ---


@pytest.mark.parametrize(
    ("reason", "columns", "outcomes"),
    [
        ("its submit time is missing or negative", {"submit": [-1.0, 1, 2]}, {}),
        ("its submit time is missing or negative", {"submit": [np.nan, 1, 2]}, {}),
        ("it starts before it is submitted", {"submit": [9.0, 20, 20]}, {"start": [8.0, 20, 20]}),
        ("it ends before it starts", {}, {"start": [4.0, 30, 30], "end": [3.0, 40, 40]}),
        ("it ends before it starts", {}, {"run_time": [-5.0, 1, 1]}),
        ("it never started", {}, {"run_time": [np.nan, 1, 1]}),
        ("it never started", {}, {"run_time": [0.0, 1, 1], "end": [9.0, 40, 40]}),
        ("how long it ran is not known", {}, {"run_time": [np.nan, 1, 1], "start": [3.0, 30, 30]}),
        ("it ran for no time", {}, {"run_time": [0.0, 1, 1]}),
        ("its run time is infinite", {}, {"run_time": [np.inf, 1, 1]}),
        ("it asks for no processors", {"size": [0, 1, 1]}, {}),
        ("it asks for more processors than the machine has", {"size": [5, 4, 1]}, {}),
        (
            "it had not started when the log was written",
            {},
            {"ending": np.array([Ending.PENDING, 1, 1], np.int8)},
        ),
    ],
)
def test_records_that_cannot_be_replayed_are_counted_by_reason(reason, columns, outcomes):
    """Each flaw drops its job, once, under one reason with its first place."""
    work = prepare(log(outcomes=outcomes, **columns), RIGID)
    assert work.jobs.id.tolist() == [2, 3]
    assert dict(work.skipped.count) == {reason: 1}
    assert work.skipped.first == {reason: "job 1"}


def test_a_job_that_asks_for_more_than_its_partition_has_is_left_out():
    """On whole nodes too; otherwise no policy would ever start it."""
    machine = Cluster.uniform(4)
    machine = replace(machine, partitions={"small": np.array([True, True, False, False])})
    read = log(4, cluster=None, size=[3, 2, 3, 5], partition=["small", "small", "large", "large"])
    work = prepare(read, RIGID, machine)
    assert work.jobs.id.tolist() == [2, 3]
    assert work.skipped.count == {"too few nodes have what it asks for": 2}
    assert work.promisable.promisable == 0  # no limits


def test_the_log_itself_is_left_as_it_was():
    """Preparing twice gives the same, and counts nothing twice."""
    read = log(size=[9, 1, 1])
    first, second = prepare(read, RIGID), prepare(read, RIGID)
    assert (
        first.skipped.count
        == second.skipped.count
        == {"it asks for more processors than the machine has": 1}
    )
    assert not read.skipped.count


def test_jobs_come_in_order_of_submission_then_number():
    """Rows are sorted, and what the log records stays with its job."""
    read = log(4, {"run_time": [1.0, 2, 3, 4]}, id=[4, 3, 2, 1], submit=[7.0, 7, 7, 2])
    work = prepare(read, RIGID)
    assert work.jobs.id.tolist() == [1, 2, 3, 4]
    assert work.run_time.tolist() == work.outcomes.run_time.tolist() == [4, 3, 2, 1]


def test_nothing_is_copied_where_nothing_must_change():
    """A log in order, with good times, shares its arrays with the workload."""
    read = log(wall_time=[9.0, 9, 9])
    work = prepare(read, RIGID)
    for name in ("submit", "wall_time", "id"):
        assert np.shares_memory(work.jobs.column(name), read.jobs.column(name))
    assert work.jobs.sigma.strides == (0,)
    assert work.jobs.deadline.strides == (0,)


def test_run_time_stands_in_for_requests_that_are_missing_or_too_short():
    """The requested time is max(requested, run), and both cases are said."""
    work = prepare(log(wall_time=[np.inf, 4.0, 9.0]), RIGID)
    assert work.jobs.wall_time.tolist() == [5, 5, 9]
    assert "1 of 3 jobs had no requested time; their run time is used." in work.assumptions
    assert any("1 of 3 jobs ran longer than requested" in text for text in work.assumptions)


def test_run_time_follows_from_start_and_end():
    """A log without run times has them by its instants."""
    outcomes = {"run_time": np.full(3, np.nan), "start": [1.0, 11, 21], "end": [3.0, 14, 25]}
    assert prepare(log(outcomes=outcomes), RIGID).run_time.tolist() == [2, 3, 4]


def test_allocated_size_stands_in_for_a_missing_request():
    """Size is what was requested, else what was given."""
    work = prepare(log(outcomes={"size": [3, 2, 2]}, size=[0, 1, 1]), RIGID)
    assert work.jobs.size.tolist() == [3, 1, 1]


def test_numbers_that_occur_twice_are_told_apart_and_keep_their_label():
    """The first job keeps its number; the others get new ones and are labelled as before."""
    work = prepare(log(4, id=[7, 7, 3, 7]), RIGID)
    assert len(set(work.jobs.id.tolist())) == 4
    assert work.jobs.id[[0, 2]].tolist() == [7, 3]
    assert work.jobs.labels() == ["7", "7", "3", "7"]


def test_dependencies_on_dropped_jobs_are_dropped_and_counted():
    """An edge needs both its jobs."""
    edges = Edges.build(2, before=[1, 2], after=[2, 3])
    work = prepare(log(outcomes={"run_time": [0.0, 1, 1]}, edges=edges), RIGID)
    assert work.edges.before.tolist() == [2]
    assert dict(work.skipped.count) == {"it ran for no time": 1}
    lost, notes = [line for line in work.assumptions if "depend" in line]
    assert lost == "1 dependency on or of jobs that are left out: nobody waits for them."
    assert notes.startswith("1 job waiting for others that they depend on")
    assert "Only machine 'exclusive' holds jobs back" in notes


def test_a_dependency_on_an_array_needs_one_of_its_tasks():
    """The key of an array is that of its first task, which may be left out; limits are told."""
    edges = Edges.build(2, before=[1, 9], after=[3, 3], whole_array=[True, True])
    some = log(outcomes={"run_time": [0.0, 1, 1]}, edges=edges, array=[1, 1, -1])
    work = prepare(some, RIGID)
    assert work.edges.before.tolist() == [1]
    assert dict(work.skipped.count) == {"it ran for no time": 1}
    lost = "1 dependency on or of jobs that are left out: nobody waits for them."
    assert lost in work.assumptions
    work = prepare(log(array=[1, 1, -1], array_limit=[1, 1, 0]), RIGID)
    assert any(line.startswith("2 tasks of arrays with a limit") for line in work.assumptions)


@pytest.mark.parametrize(
    ("tiers", "nodes", "first"),
    [
        ({"high": 10}, {}, 1),  # Slurm's default is 1; nodes of unknown partitions are all
        ({"high": 10}, {"high": [True, True, False, False], "low": [False, True, True, True]}, 1),
        ({"high": 10}, {"high": [True, False, False, False], "low": [False, True, True, True]}, 0),
        ({"high": 10, "low": 10}, {}, 0),
        ({"low": 2, "other": 9}, {}, 2),
    ],
)
def test_partitions_that_go_first_are_named(tiers, nodes, first):
    """Slurm looks at PriorityTier before any priority; no policy of a replay does."""
    masks = {name: np.array(mask) for name, mask in nodes.items()}
    machine = Cluster(Cluster.uniform(4).nodes, masks)
    read = log(partition=["high", "low", "low"])
    work = prepare(read, RIGID, machine, preemption=SitePreemption(tiers=tiers))
    (*_, last) = [line for line in work.assumptions if "PriorityTier" in line] or [""]
    assert last.startswith(f"{first} job" if first else "")
    assert bool(last) is bool(first)


def test_a_log_without_a_usable_job_is_refused():
    """The sentence names the file and the commonest reason."""
    with pytest.raises(InputError, match=r"site\.log: no job is left .*it ran for no time"):
        prepare(log(outcomes={"run_time": np.zeros(3)}), RIGID)


# --- the machine ---


def test_machine_is_the_peak_use_where_nothing_describes_it():
    """Ends come before starts at one instant; what is assumed is said."""
    outcomes = {"start": [0.0, 10, 20], "end": [10.0, 30, 40], "size": [5, 2, 4]}
    work = prepare(log(outcomes=outcomes, cluster=None, size=[5, 2, 4]), RIGID)
    assert len(work.cluster) == 6
    assert any(
        text.startswith("The log does not describe the machine: 6") for text in work.assumptions
    )


def test_nodes_become_cores_that_share_a_host():
    """A cluster of 30 nodes with 4 cores is 120 rows; memory is divided, partitions follow."""
    nodes = Nodes.build(30, name=[f"n{i}" for i in range(30)], cores=4, memory=np.full(30, 8 << 30))
    half = np.arange(30) < 15
    given = Cluster(nodes, {"debug": half})
    work = prepare(log(size=[100, 1, 1]), RIGID, given)
    assert len(work.cluster) == 120
    assert (work.cluster.nodes.cores == 1).all()
    assert work.cluster.nodes.memory[0] == 2 << 30
    assert work.cluster.nodes.texts("host")[:5] == ["n0"] * 4 + ["n1"]
    assert work.cluster.partitions["debug"].sum() == 60
    assert any("30 nodes are taken as 120 single cores" in text for text in work.assumptions)


def test_whole_nodes_are_given_where_the_unit_says_so():
    """Processors asked for are rounded up to nodes; -1 stays -1."""
    given = Cluster(Nodes.build(30, cores=4))
    options = WorkloadOptions(unit="node", deadline_rule="none")
    read = log(size=[1, 4, 5], size_min=[-1, 4, 5], outcomes={"size": [1, 4, 5]})
    work = prepare(read, options, given)
    assert len(work.cluster) == 30
    assert work.jobs.size.tolist() == work.outcomes.size.tolist() == [1, 1, 2]
    assert work.jobs.size_min.tolist() == [-1, 1, 2]


def test_drained_nodes_do_not_count():
    """A job that needs a drained node cannot be replayed."""
    nodes = Nodes.build(4, state=np.array([0, 0, 0, NodeState.DRAINED], np.int8))
    work = prepare(log(size=[4, 3, 1]), RIGID, Cluster(nodes))
    assert work.jobs.size.tolist() == [3, 1]


def test_speeds_by_name_and_by_share_of_the_machine():
    """The first entry that fits a node counts."""
    nodes = Nodes.build(8, name=[f"{'slow' if i < 2 else 'fast'}{i}" for i in range(8)])
    options = WorkloadOptions(deadline_rule="none", speeds={"slow*": 0.5, "50%": 2.0})
    work = prepare(log(), options, Cluster(nodes))
    assert work.cluster.nodes.speed.tolist() == [0.5, 0.5, 2, 2, 2, 2, 1, 1]
    numbered = WorkloadOptions(deadline_rule="none", speeds={"[01]": 3.0})
    assert prepare(log(), numbered).cluster.nodes.speed.tolist() == [3, 3, 1, 1]


def test_accounts_are_a_forest_of_users_within_accounts():
    """Each (account, user) has a row; shares are those given, 1 else."""
    read = log(
        5, user=["ann", "bob", "ann", None, "cid"], account=["phys", "phys", "chem", "chem", None]
    )
    shares = {"phys": 3.0, "phys/bob": 2.0, "*/ann": 4.0, "nobody": 1.0}
    work = prepare(read, WorkloadOptions(deadline_rule="none", shares=shares))
    table, charged = work.accounts, work.jobs.association.tolist()
    names = table.texts("name")
    assert [names[row] for row in charged] == ["ann", "bob", "ann", "chem", "cid"]
    above = [table.parent[row] for row in charged]
    assert [names[row] if row >= 0 else None for row in above] == [
        "phys", "phys", "chem", None, None,
    ]  # fmt: skip
    assert table.is_user[charged].tolist() == [True, True, True, False, True]
    assert [table.shares[row] for row in charged] == [4, 2, 4, 1, 1]
    assert table.shares[above[0]] == 3
    assert table.share()[charged[1]] == pytest.approx(3 / 5 * 2 / 6)  # phys, chem, cid at the top
    assert any("nobody" in text for text in work.assumptions)


def test_a_log_without_names_has_no_accounts():
    """Nobody is charged."""
    work = prepare(log(), RIGID)
    assert len(work.accounts) == 0
    assert (work.jobs.association == -1).all()


# --- rules ---


def test_slowdown_deadlines_and_the_log_s_own():
    """Submit + F times the requested time, where the log has none."""
    read = log(wall_time=[10.0, 20, 30], deadline=[np.inf, 77.0, np.inf])
    work = prepare(read, WorkloadOptions(deadline_rule="slowdown:2.5"))
    assert work.jobs.deadline.tolist() == [25, 77, 95]
    assert any(text.startswith("2 of 3 jobs got a deadline") for text in work.assumptions)


def test_deadlines_by_the_time_that_jobs_really_ran():
    """Submit + F times the run time, where the log has no deadline; the shortest ran for 10 s."""
    read = log(
        outcomes={"run_time": [3.0, 20.0, 30.0]}, wall_time=900.0, deadline=[np.inf, 77.0, np.inf]
    )
    work = prepare(read, WorkloadOptions(deadline_rule="run_time:1.5"))
    assert (work.jobs.deadline - work.jobs.submit).tolist() == [15.0, 67.0, 45.0]
    assert any("1.5 times the time for which each ran" in text for text in work.assumptions)


def test_each_job_may_have_a_factor_of_its_own():
    """Drawn from a range by seed and job id: all of it is used, evenly."""
    n = 4000
    for rule in ("run_time:2-8", "slowdown:2-8"):
        read = log(n, outcomes={"run_time": np.full(n, 50.0)}, wall_time=np.full(n, 50.0))
        work = prepare(read, WorkloadOptions(deadline_rule=rule))
        factor = (work.jobs.deadline - work.jobs.submit) / 50.0
        assert 2.0 <= factor.min() < 2.01
        assert 7.99 < factor.max() <= 8.0
        assert factor.mean() == pytest.approx(5.0, rel=0.03)
        again = prepare(read, WorkloadOptions(deadline_rule=rule, seed=1))
        assert not np.array_equal(again.jobs.deadline, work.jobs.deadline)
        assert any("2 to 8 times the " in text for text in work.assumptions)
    assert DeadlineRule.parse("run_time:2-8") == DeadlineRule("run_time", 8.0, 2.0)
    for text in ("run_time:8-2", "run_time:0.5-2", "uniform:2-8", "slowdown:2-"):
        with pytest.raises(ConfigError):
            DeadlineRule.parse(text)


def test_uniform_deadlines_lie_between_the_execution_times():
    """Divisible: U[E(n*), E(1)]; moldable: U[E(max), E(min)]; rigid: U[E, F E]."""
    n = 4000
    read = log(n, cluster=8, size=2, wall_time=np.full(n, 60.0))
    bounds = {
        "rigid": (60.0, 180.0),
        "moldable:0.5-2": (30.0, 120.0),
        "divisible:1:100": tuple(
            exec_time(k, Load(60.0 / exec_time(2, Load(1.0, 1.0, 100.0)), 1.0, 100.0))
            for k in (8, 1)
        ),
    }
    for kind, (low, high) in bounds.items():
        options = WorkloadOptions(deadline_rule="uniform:3", jobs_are=kind)
        work = prepare(read, options)
        relative = work.jobs.deadline - work.jobs.submit
        assert relative.min() >= low - 1e-6
        assert relative.max() <= high + 1e-6
        assert relative.mean() == pytest.approx((low + high) / 2, rel=0.03)
        assert relative.min() < low + 0.01 * (high - low)


@given(
    ids=st.lists(st.integers(0, 10**12), min_size=2, max_size=40, unique=True),
    seed=st.integers(0, 2**31),
    fraction=st.floats(0.05, 1.0),
    data=st.data(),
)
def test_deadlines_belong_to_seed_and_job_not_to_rows(ids, seed, fraction, data):
    """Leaving out jobs and permuting the others changes nobody's deadline."""
    rule = {"deadline_rule": "uniform", "deadline_fraction": fraction, "seed": seed}
    everyone = prepare(log(len(ids), id=ids, submit=np.zeros(len(ids))), WorkloadOptions(**rule))
    due = dict(zip(everyone.jobs.id.tolist(), everyone.jobs.deadline.tolist(), strict=True))
    some = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
    few = prepare(log(len(some), id=some, submit=np.zeros(len(some))), WorkloadOptions(**rule))
    assert few.jobs.deadline.tolist() == [due[key] for key in few.jobs.id.tolist()]


def test_a_fraction_of_the_jobs_gets_a_deadline():
    """The share is met, and nested: who has one at 30 % has one at 60 %."""
    read = log(20_000)
    few, more = (
        np.isfinite(prepare(read, WorkloadOptions(deadline_fraction=f)).jobs.deadline)
        for f in (0.3, 0.6)
    )
    assert few.mean() == pytest.approx(0.3, abs=0.02)
    assert more.mean() == pytest.approx(0.6, abs=0.02)
    assert not (few & ~more).any()


@pytest.mark.parametrize(
    ("options", "deadline", "said"),
    [
        (
            {"deadline_rule": "none", "deadline_fraction": 0.5},
            np.inf,
            "`deadline_fraction` has no effect: without a `deadline_rule` no job gets one.",
        ),
        (
            {"deadline_fraction": 0.5},
            900.0,
            "`deadline_fraction` has no effect: all jobs have one.",
        ),
        ({"deadline_fraction": 0.5}, np.inf, None),
        ({"deadline_rule": "none"}, np.inf, None),
        (
            {"preempt_mode": "cancel"},
            np.inf,
            "`preempt_mode` has no effect: no `preempt_type` says who preempts whom.",
        ),
        ({"preempt_mode": "off"}, np.inf, None),
    ],
)
def test_settings_without_effect_are_told(options, deadline, said):
    """They are no mistake, and change nothing."""
    notes = prepare(log(2, deadline=[deadline] * 2), WorkloadOptions(**options)).assumptions
    assert [sentence for sentence in notes if "no effect" in sentence] == ([said] if said else [])


def test_draws_are_uniform_and_streams_differ():
    """Consecutive ids give unrelated numbers in [0, 1)."""
    ids = np.arange(100_000)
    first, second, reseeded = draw(ids, 0, 1), draw(ids, 0, 2), draw(ids, 1, 1)
    for values in (first, second, reseeded):
        assert values.min() >= 0
        assert values.max() < 1
        assert np.histogram(values, 10, (0, 1))[0] == pytest.approx(10_000, rel=0.05)
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first, reseeded)[0, 1]) < 0.02


def test_moldable_sizes_are_multiples_within_the_machine():
    """Least sizes are rounded up, greatest down, but never below the requested one."""
    work = prepare(
        log(size=[1, 3, 4]), WorkloadOptions(jobs_are="moldable:0.5-1.5", deadline_rule="none")
    )
    assert work.jobs.kind.tolist() == [Kind.MOLDABLE] * 3
    assert work.jobs.size_min.tolist() == [1, 2, 2]
    assert work.jobs.size_max.tolist() == [1, 4, 4]


def test_divisible_loads_last_their_requested_time_on_the_requested_nodes():
    """E(size) = requested time, with set-up times too; jobs shorter than these stay rigid."""
    options = WorkloadOptions(jobs_are="divisible:2:7:1:3", deadline_rule="none")
    work = prepare(log(size=[1, 3, 2], wall_time=[50.0, 20, 5]), options)
    jobs = work.jobs
    assert jobs.kind.tolist() == [Kind.DIVISIBLE, Kind.DIVISIBLE, Kind.RIGID]
    for i in range(2):
        assert exec_time(jobs.size[i], Load(jobs.sigma[i], 2.0, 7.0, 1.0, 3.0)) == pytest.approx(
            jobs.wall_time[i]
        )
    assert jobs.size_max.tolist() == [4, 4, -1]
    assert any("1 job is too short" in text for text in work.assumptions)


def test_the_log_s_own_kinds_stay():
    """A rule speaks of jobs that the log leaves rigid."""
    kinds = np.array([Kind.RIGID, Kind.MOLDABLE, Kind.RIGID], np.int8)
    read = log(kind=kinds, size=[2, 2, 2], size_min=[-1, 1, -1], size_max=[-1, 3, -1])
    work = prepare(read, WorkloadOptions(jobs_are="divisible"))
    assert work.jobs.kind.tolist() == [Kind.DIVISIBLE, Kind.MOLDABLE, Kind.DIVISIBLE]
    assert work.jobs.size_max.tolist() == [4, 3, 4]


# --- settings ---


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"deadline_rule": "often"}, "workload.deadline_rule: 'often' is not a rule"),
        (
            {"deadline_rule": "slowdown:0.5"},
            "workload.deadline_rule: 'slowdown:0.5' leaves no time to run in",
        ),
        ({"jobs_are": "soft"}, "workload.jobs_are: 'soft' is not a rule"),
        ({"jobs_are": "moldable:2-3"}, "workload.jobs_are: 'moldable:2-3' excludes"),
        ({"jobs_are": "divisible:1:0"}, "workload.jobs_are: 'divisible:1:0' computes in no time"),
        ({"deadline_fraction": 1.5}, "workload.deadline_fraction: 1.5 is not between 0 and 1"),
        ({"shares": {"a": -1.0}}, "workload.shares.'a': -1.0 is not above 0"),
        ({"speeds": {"a": 0.0}}, "workload.speeds.'a': 0.0 is not above 0"),
        ({"speeds": {"200%": 2.0}}, "workload.speeds.'200%': is not a share"),
    ],
)
def test_wrong_settings_are_named_with_their_path(settings, sentence):
    """One sentence per mistake."""
    with pytest.raises(ConfigError) as caught:
        prepare(log(), WorkloadOptions(**settings))
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(sentence)


def test_a_configuration_file_is_checked_before_any_log_is_read():
    """Conversion finds texts that are no rule, each with its path."""
    problems: list[str] = []
    raw = {"deadline_rule": "often", "jobs_are": "soft", "deadline_fraction": 2, "unit": "rack"}
    assert convert(raw, WorkloadOptions, "workload", problems) is None
    assert sorted(problem.partition(":")[0] for problem in problems) == [
        f"workload.{name}" for name in sorted(raw)
    ]


@pytest.mark.parametrize("text", ["rigid", "moldable:0.25-3", "divisible:0.1:1e-1:2:3"])
def test_kind_rules_read_what_they_write(text):
    """A rule's text gives the rule back."""
    rule = KindRule.parse(text)
    assert KindRule.parse(rule.text()) == rule


def test_every_setting_is_described():
    """The schema has a description of each, for `--help` and the reference."""
    entry = schema(WorkloadOptions)["$defs"]["WorkloadOptions"]["properties"]
    assert all(value.get("description") for value in entry.values())
    assert DeadlineRule.parse(WorkloadOptions().deadline_rule) == DeadlineRule("slowdown", 4)


def test_an_swf_header_may_propose_settings():
    """The first line of that name counts; other lines are passed over."""
    lines = ["; Version: 2.2\n", f'; {HEADER}: {{ jobs_are = "divisible:1:9", seed = 3 }}\n', "1 2"]
    assert header_settings(lines) == {"jobs_are": "divisible:1:9", "seed": 3}
    assert header_settings(lines[:1]) == {}
    for bad in ("{ jobs_are", "3"):
        with pytest.raises(ConfigError, match=HEADER):
            header_settings([f"; {HEADER}: {bad}"])


def test_rows_of_one_host_become_one_node_where_jobs_have_nodes_to_themselves():
    """A cluster that is read by the processor is put together again by host."""
    hosts = ["a", "a", "b", "b", "b"]
    by_processor = Cluster(
        Nodes.build(5, name=hosts, host=hosts, memory=10),
        {"left": np.array([1, 1, 0, 0, 0], np.bool_)},
    )
    nodes = by_node(by_processor)
    assert nodes.nodes.texts("name") == ["a", "b"]
    assert nodes.nodes.cores.tolist() == [2, 3]
    assert nodes.nodes.memory.tolist() == [20, 30]
    assert nodes.partitions["left"].tolist() == [True, False]
    work = prepare(log(cluster=0, size=[1, 2, 3]), WorkloadOptions(unit="node"), by_processor)
    assert len(work.cluster) == 2


def test_jobs_that_still_run_end_when_the_log_was_written():
    """They held their nodes until then, so they are replayed, and that is said."""
    endings = np.array([Ending.RUNNING, Ending.COMPLETED, Ending.COMPLETED], np.int8)
    work = prepare(log(outcomes={"ending": endings, "end": [np.nan, 15, 25]}), RIGID)
    assert work.run_time.tolist() == [5.0, 5.0, 5.0]
    assert any(notes.startswith("1 job still ran") for notes in work.assumptions)


def test_jobs_that_still_run_count_for_the_size_of_the_machine():
    """They held their processors at the end of the log, beside each other."""
    ran = {"ending": np.full(3, Ending.RUNNING, np.int8), "start": [20, 21, 22], "end": np.nan}
    work = prepare(log(cluster=0, size=[1, 2, 3], outcomes=ran), RIGID)
    assert len(work.cluster) == 6
    assert work.outcomes.end.tolist() == [25.0, 26.0, 27.0]


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        (
            ["n[1-2]", "n4", "n1"],
            "1 of 3 jobs ran on nodes that the machine does not have, such as n4",
        ),
        (["n[1-2]", "n2", None], ""),
        (["slot1_1@n1", "n1,slot1@n2", "slot1@n9"], "such as slot1@n9;"),
    ],
)
def test_nodes_that_the_machine_has_not(lists, said):
    """The file of another machine, or of another time, is noticed; one without names is not."""
    outcomes = {"nodes": lists, "size": 1, "start": [0.0, 10, 20], "end": [5.0, 15, 25]}
    named = Cluster(Nodes.build(3, name=["n1", "n2", "n3"]))
    notes = prepare(log(cluster=0, size=1, outcomes=outcomes), RIGID, named).assumptions
    found = [sentence for sentence in notes if sentence.startswith("Log and machine do not fit")]
    assert len(found) == bool(said)
    assert all(said in sentence for sentence in found)
    assert "not fit" not in " ".join(prepare(log(size=1, outcomes=outcomes), RIGID).assumptions)
