"""From a submit request and its comment to a job, and from a verdict to the filter."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtsched.adapters.live import FeasibilityRequest, SubmitReply, dag_key
from rtsched.adapters.slurm.commands import TOP_NICE, promised_factor
from rtsched.adapters.slurm.comments import KEYS, NOTHING, options_in, parts_of
from rtsched.adapters.slurm.facts import (
    Partition,
    SlurmFacts,
    config_of,
    federation_in,
    margin_of,
    seconds,
)
from rtsched.adapters.slurm.observation import is_admitted, is_deferred, token_of
from rtsched.adapters.slurm.requirements import node_list_in
from rtsched.adapters.slurm.reserving import has_shape
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.steering import LARGEST_FACTOR
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.cli.chunk import variables
from rtsched.kernels.dlt import exec_time
from rtsched.kernels.loads import Load
from rtsched.model.jobs import Jobs, Kind

NOW = 1_800_000_000.0
FACTS = SlurmFacts(
    margin=20.0,
    completing=10.0,
    partitions={
        "all": Partition("all", 600.0, 86400.0, True, 30, 4, 1000 << 20, 250 << 20),
        "few": Partition("few", 600.0, 86400.0, nodes=9, cores=4, min_nodes=2, max_nodes=4),
        "open": Partition("open", nodes=3, cores=4),
        "one": Partition("one", 600.0, 86400.0, nodes=3, cores=4, max_nodes=1),
    },
    default="all",
    longest=86400.0,
    associations={("physics", "ann"): 4},
    home={"ann": "physics"},
    users={1000: "ann"},
)
TRANSLATOR = SlurmTranslator()


def described(**fields: Any) -> Any:
    """Return the submission of a job of ann's with a deadline in a day."""
    asked: dict[int, str | int] = {Tag.USER_ID: 1000, Tag.DEADLINE: int(NOW) + 80000}
    asked |= {Tag[name.upper()]: value for name, value in fields.items()}
    return TRANSLATOR.describe({tag: v for tag, v in asked.items() if v is not None}, FACTS, NOW)


def test_a_rigid_job() -> None:
    """Its wall time is its limit and the margin; who is charged follows from the user."""
    asked = described(time_limit=30, min_nodes=4, max_nodes=4, num_tasks=4)
    jobs = asked.jobs
    assert not asked.problem
    assert (asked.uid, jobs.texts("user"), jobs.texts("account")) == (1000, ["ann"], ["physics"])
    assert (jobs.kind[0], jobs.size[0], jobs.wall_time[0]) == (Kind.RIGID, 4, 1820.0)
    assert (jobs.association[0], jobs.texts("partition")) == (4, ["all"])
    assert jobs.deadline[0] == NOW + 80000


@pytest.mark.parametrize(
    ("named", "enforced", "account"),
    [
        (None, False, "physics"),
        (None, True, "physics"),
        ("arts", False, "arts"),
        ("Arts", False, "arts"),
        ("Arts", True, "arts"),
        ("Chem", False, "physics"),  # not one of hers: Slurm charges her default account
        ("Chem", True, "Chem"),  # Slurm refuses it
    ],
)
def test_the_account_that_slurm_charges(named: str | None, enforced: bool, account: str) -> None:
    """It is the one that is named, in any case of letters, if the user has it."""
    known = {("arts", "ann"): 7, ("physics", "ann"): 4, ("chem", "bob"): 5}
    facts = replace(FACTS, associations=known, enforced=enforced)
    fields = {Tag.USER_ID: 1000, Tag.TIME_LIMIT: 30, Tag.DEADLINE: int(NOW) + 80000}
    fields |= {} if named is None else {Tag.ACCOUNT: named}
    jobs = TRANSLATOR.describe(fields, facts, NOW).jobs
    assert jobs.texts("account") == [account]
    assert jobs.association.tolist() == [known.get((account, "ann"), -1)]


def test_an_account_of_a_user_without_any() -> None:
    """Slurm keeps the name as it is where it refuses no job for it."""
    fields = {Tag.USER_ID: 1001, Tag.TIME_LIMIT: 30, Tag.ACCOUNT: "Chem"}
    facts = replace(FACTS, users={1001: "bob"})
    assert TRANSLATOR.describe(fields, facts, NOW).jobs.texts("account") == ["Chem"]


def test_a_question_is_described_as_a_submission_would_be() -> None:
    """`rtsched feasible` asks about the same job that sbatch would make."""

    def asked(**given: Any) -> Any:
        question = FeasibilityRequest(1000, NOW + 80000.0, time_s=1800.0, **given)
        return TRANSLATOR.describe(TRANSLATOR.fields_of(question), FACTS, NOW)

    plain = asked(nodes=4, tasks=4)
    assert (plain.problem, plain.jobs.size[0], plain.jobs.wall_time[0]) == ("", 4, 1820.0)
    assert asked(tasks=9).jobs.size[0] == 3
    assert asked(tasks=3, cpus_per_task=4).jobs.size[0] == 3
    assert "requests 4000 MiB of memory per node" in asked(memory=4000 << 20).problem
    assert "no node of partition all has gres/gpu" in asked(gpus=1).problem
    assert (asked(array="1-9%4").jobs.kind[0], asked(array="1-9").jobs.tasks[0]) == (Kind.ARRAY, 9)
    unclear = ({"constraint": "a*2"}, {"nodelist": "n1"}, {"exclude": "n2"})
    assert all("not known yet" in asked(**each).problem for each in unclear)


def test_limits_that_are_not_given() -> None:
    """The partition's default counts, else its longest; without any there is no promise."""
    assert described(time_limit=None).jobs.wall_time[0] == 620.0
    assert "no time limit" in described(partition="open").problem
    assert "no time limit" in described(time_limit=-1, partition="open").problem


def test_processors_become_nodes() -> None:
    """A job that asks for processors gets as many nodes as they need on the smallest ones."""
    assert described(num_tasks=9).jobs.size[0] == 3
    assert described(num_tasks=3, cpus_per_task=4).jobs.size[0] == 3
    assert described(num_tasks=6, ntasks_per_node=2).jobs.size[0] == 3


def test_a_moldable_job() -> None:
    """A range of nodes makes it moldable; each size keeps at least the margin."""
    jobs = described(time_limit=60, min_nodes=2, max_nodes=8).jobs
    assert (jobs.kind[0], jobs.size_min[0], jobs.size_max[0]) == (Kind.MOLDABLE, 2, 8)
    for size in range(2, 9):
        planned = jobs.wall_time[0] * jobs.size[0] / size
        assert planned >= 3600.0 * 2 / size + FACTS.wide_margin - 1e-6
    rigid = described(time_limit=60, min_nodes=2, max_nodes=8, extra="rtsched:speedup=none").jobs
    assert (rigid.kind[0], rigid.size[0]) == (Kind.RIGID, 2)


def test_a_divisible_job() -> None:
    """The load says how long it takes; the margin is part of the computation's set-up."""
    asked = described(
        min_nodes=1, max_nodes=16, extra="rtsched:sigma=400,cms=1,cps=100,setup_node=5"
    )
    jobs = asked.jobs
    assert not asked.problem
    assert (jobs.kind[0], jobs.size_min[0], jobs.size_max[0]) == (Kind.DIVISIBLE, 1, 16)
    assert (jobs.sigma[0], jobs.setup_node[0]) == (400.0, 85.0)
    assert jobs.wall_time[0] == pytest.approx(exec_time(1, Load(400.0, 1.0, 100.0, 0.0, 85.0)))


def test_a_load_spreads_over_no_more_nodes_than_the_partition_lets_it() -> None:
    """Without --nodes it takes any number from MinNodes to MaxNodes."""
    load = "rtsched:sigma=4,cms=1,cps=100"
    asked = described(partition="few", extra=load)
    sizes = asked.jobs.size_min[0], asked.jobs.size_max[0]
    assert (asked.problem, *sizes) == ("", 2, 4)


def test_a_load_takes_enough_nodes_for_the_longest_limit() -> None:
    """The partition's longest limit says how few nodes will do; one too heavy is refused."""
    jobs = described(min_nodes=1, max_nodes=16, extra="rtsched:sigma=2000,cms=0.1,cps=100").jobs
    assert jobs.size_min[0] == 3
    times = [exec_time(n, Load(2000.0, 0.1, 100.0, 0.0, 80.0)) for n in (2, 3)]
    assert times[1] <= 86400.0 + FACTS.wide_margin < times[0]
    heavy = described(min_nodes=1, max_nodes=16, extra="rtsched:sigma=90000,cms=1,cps=100")
    assert "takes longer than" in heavy.problem


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"array_inx": "1-10", "min_nodes": 2, "max_nodes": 2}, "tasks of several nodes"),
        ({"array_inx": "1-10", "extra": "rtsched:sigma=4,cms=1,cps=1"}, "of divisible loads"),
        (
            {"het_job_offset": 0, "min_nodes": 1, "max_nodes": 3},
            "give each --nodes with one number",
        ),
        ({"het_job_offset": 1, "req_nodes": "n1"}, "leave --nodelist out"),
        ({"het_job_offset": 0, "extra": "rtsched:sigma=4,cms=1,cps=1"}, "is a divisible load"),
        ({"reservation": "mine"}, "in a reservation"),
        ({"licenses": "x:1"}, "licences"),
        ({"tres_per_node": "gres/gpu:1"}, "no node of partition all has gres/gpu"),
        ({"partition": "none"}, "there is no partition 'none'"),
        ({"pn_min_memory": 4000}, "requests 4000 MiB of memory per node"),
        ({"mem_per_cpu": 300, "num_tasks": 1}, "requests 300 MiB per processor"),
        ({"pn_min_cpus": 5}, "requests 5 processors per node"),
        ({"ntasks_per_node": 3, "cpus_per_task": 2}, "requests 6 processors per node"),
        ({"pn_min_tmp_disk": 1}, "no node of partition all has what --tmp asks for"),
        ({"max_nodes": 3, "min_nodes": 3, "partition": "one"}, "one accepts jobs of 1 to 1 nodes"),
        ({"partition": "few", "min_nodes": 5}, "partition few accepts jobs of 2 to 4 nodes"),
        ({"partition": "few", "min_nodes": 2, "max_nodes": 5}, "of 2 to 4 nodes"),
        ({"partition": "few", "min_nodes": 1}, "partition few accepts jobs of 2 to 4 nodes"),
        ({"priority": 0}, "leave --hold out"),
        ({"cron": 1}, "a cron job (scrontab)"),
        ({"time_limit": 2000}, "exceeds the 1440 min"),
        ({"deadline": int(NOW) - 5}, "deadline is before its earliest start"),
        (
            {"deadline": int(NOW) + 100, "begin_time": int(NOW) + 200},
            "deadline is before its earliest start",
        ),
        ({"comment": "rtsched:sigma=x"}, "must be a number"),
    ],
)
def test_what_gets_no_promise(fields: dict[str, Any], says: str) -> None:
    """Each problem is one clear sentence."""
    assert says in described(**fields).problem


@pytest.mark.parametrize(
    ("federation", "given", "says"),
    [
        ("", {}, ""),
        ("", {"clusters": "here", "other": "clusters"}, ""),
        ("", {"clusters": "here,there", "other": "clusters"}, "several or other clusters"),
        ("", {"clusters": "there", "other": "contiguous,clusters"}, "several or other clusters"),
        ("", {"other": "clusters"}, "several or other clusters"),  # an older submit filter
        ("", {"clusters": "here", "other": "contiguous,clusters"}, "plan with --contiguous"),
        ("fed", {}, "another cluster of the federation fed may run it"),
        ("fed", {"clusters": "here", "other": "clusters"}, ""),
        ("fed", {"clusters": "there,here", "other": "clusters"}, "several or other clusters"),
        ("fed", {"deadline": None}, ""),
    ],
)
def test_clusters(federation: str, given: dict[str, Any], says: str) -> None:
    """A promise is for a job that no other cluster may run."""
    asked = {Tag.USER_ID: 1000, Tag.TIME_LIMIT: 10, Tag.DEADLINE: int(NOW) + 80000}
    fields = asked | {Tag[name.upper()]: value for name, value in given.items()}
    facts = replace(FACTS, cluster="here", federation=federation)
    sent = {tag: value for tag, value in fields.items() if value is not None}
    problem = TRANSLATOR.describe(sent, facts, NOW).problem
    assert says in problem
    assert bool(says) == bool(problem)


def test_the_federation_that_scontrol_shows() -> None:
    """Its name, where there is one."""
    shown = "Federation: fed\nSelf:       here:127.0.0.1:6817 ID:1 FedState:ACTIVE Features:\n"
    assert federation_in(shown) == "fed"
    for none in ("There are no federations.\n", ""):
        assert federation_in(none) == ""


def test_jobs_that_want_nothing_have_no_problem() -> None:
    """An array without a deadline is none of our business."""
    assert not described(deadline=None, array_inx="1-10", licenses="x").problem
    assert not described(deadline=None, priority=0, cron=1, pn_min_tmp_disk=5).problem


def test_dependencies() -> None:
    """The jobs that it waits for come before it."""
    asked = described(dependency="afterok:12:13,afterany:14_*", extra="rtsched:dag=x")
    assert asked.edges.before.tolist() == [12, 13, 14]
    assert set(asked.edges.after.tolist()) == {-1}
    assert asked.jobs.dag[0] > 0


def test_dependencies_on_jobs_that_slurm_does_not_know() -> None:
    """They are satisfied, or refused; in a federation another cluster may know them."""
    words = {"dependency": "afterok:12,afterany:13:14", "unknown_jobs": "13"}
    asked = described(**words)
    assert (asked.edges.before.tolist(), asked.problem) == ([12, 14], "")
    words["unknown_jobs"] = "12,14"
    assert described(**words).problem.startswith("--dependency=afterok names job 12, which Slurm d")
    assert not described(**words, deadline=None).problem
    joint = replace(FACTS, federation="all", cluster="here")
    fields = {Tag.DEADLINE: int(NOW) + 80000, Tag.CLUSTERS: "here", Tag.OTHER: "clusters"}
    fields |= {Tag[name.upper()]: value for name, value in words.items()}
    assert not TRANSLATOR.describe(fields, joint, NOW).problem


def test_a_singleton_waits_held_until_all_jobs_of_its_name_are_known() -> None:
    """With whole nodes it keeps them; an array's tasks would wait for each other."""
    asked = described(dependency="singleton", name="night")
    assert (asked.singleton, asked.edges.before.tolist(), asked.problem) == (True, [], "")
    fields = TRANSLATOR.answer(asked, SubmitReply(False, "held", deferred=True), FACTS)
    assert (fields[Tag.PRIORITY], fields[Tag.SHARED]) == (0, 0)
    array = described(dependency="singleton", array_inx="1-9")
    assert array.problem.endswith("an array with --dependency=singleton; use --array=...%1")


def test_a_rejection() -> None:
    """Only the verdict and the text are sent."""
    reply = SubmitReply(True, "no room")
    answer = TRANSLATOR.answer(described(time_limit=30), reply, FACTS)
    assert answer == {Tag.VERDICT: REJECT, Tag.MESSAGE: "no room"}


def test_an_admission_without_a_promise() -> None:
    """The job passes as it is."""
    assert TRANSLATOR.answer(described(), SubmitReply(False), FACTS) == {Tag.VERDICT: ACCEPT}


def test_a_job_that_runs_without_the_promise_it_asked_for_has_no_deadline_in_slurm() -> None:
    """Slurm would cancel it then. Its admin comment keeps it, and what else a plan may change."""
    asked = described(time_limit=30, extra="rtsched:else=run")
    assert (asked.problem, asked.otherwise) == ("", "run")
    answer = TRANSLATOR.answer(asked, SubmitReply(False, "no room", unpromised=True), FACTS)
    mark = f"rtsched:unpromised --deadline=uts{NOW + 80000:.0f}"
    assert answer == {
        Tag.VERDICT: ACCEPT,
        Tag.MESSAGE: "no room",
        Tag.DEADLINE: 0,
        Tag.ADMIN_COMMENT: mark,
        Tag.SHARED: 0,
    }
    assert (token_of(mark), is_deferred(mark), is_admitted(mark)) == ("", False, True)
    odds = described(time_limit=30, extra="rtsched:else=run,odds=95")
    answer = TRANSLATOR.answer(odds, SubmitReply(False, unpromised=True), FACTS)
    assert answer == {Tag.VERDICT: ACCEPT, Tag.DEADLINE: 0}, "it is evaluated once"
    assert "else='wait' must be reject or run" in described(extra="rtsched:else=wait").problem


PROMISE = SubmitReply(
    False,
    "ok",
    token="T0ken-1",  # noqa: S106 -- no secret
    promise=NOW + 7000.9,
    start=NOW + 100,
    end=NOW + 1920,
    size=4,
)


def test_a_promise() -> None:
    """The job is marked, gets whole nodes and its planned size, and learns its deadline."""
    answer = TRANSLATOR.answer(described(time_limit=30, min_nodes=4), PROMISE, FACTS)
    assert answer == {
        Tag.VERDICT: ACCEPT,
        Tag.MESSAGE: "ok",
        Tag.ADMIN_COMMENT: "rtsched:T0ken-1",
        Tag.MIN_NODES: 4,
        Tag.MAX_NODES: 4,
        Tag.SHARED: 0,
        Tag.SITE_FACTOR: promised_factor(NOW + 80000.0, basic=False),
        Tag.ENV: f"RTSCHED_DEADLINE={int(NOW) + 7000}",
    }


@pytest.mark.parametrize("array", ["", "1-3%1"])
def test_a_promised_job_is_before_all_others_from_its_submission_on(array: str) -> None:
    """Jobs that wait for nodes which are idle still would start there before the next poll."""
    asked = described(time_limit=30, min_nodes=1, array_inx=array or None)

    def place(reply: SubmitReply, facts: SlurmFacts, settings: SlurmSettings) -> list[Any]:
        fields = SlurmTranslator(settings).answer(asked, reply, facts)
        return [fields.get(tag) for tag in (Tag.SITE_FACTOR, Tag.NICE)]

    first, unchanged = promised_factor(NOW + 80000.0, basic=False), SlurmSettings()
    assert first > LARGEST_FACTOR
    assert place(PROMISE, FACTS, unchanged) == [first, None]
    assert place(PROMISE, replace(FACTS, basic=True), unchanged) == [None, -TOP_NICE]
    assert place(PROMISE, FACTS, SlurmSettings(promised_first=False)) == [None, None]
    assert place(replace(PROMISE, likely=True), FACTS, unchanged) == [None, None]
    deferred = SubmitReply(False, "held", deferred=True)
    assert place(deferred, FACTS, unchanged) == [None, None]


@pytest.mark.parametrize("nodes", ["", "n[1-3]"])
def test_the_admin_comment_says_what_was_promised(nodes: str) -> None:
    """It follows what the adapter reads, which reads the same; the user's comment stays."""
    asked = described(time_limit=30, min_nodes=3, req_nodes=nodes or None, comment="rule_a")
    bare = str(TRANSLATOR.answer(asked, PROMISE, FACTS)[Tag.ADMIN_COMMENT])
    reply = replace(PROMISE, note="rtsched: promised to end by 2026-11-27 16:00:52 +0100")
    fields = TRANSLATOR.answer(asked, reply, FACTS)
    mark = str(fields[Tag.ADMIN_COMMENT])
    assert mark == f"{bare} promised to end by 2026-11-27 16:00:52 +0100"
    assert (token_of(mark), node_list_in(mark)) == (token_of(bare), node_list_in(bare))
    assert is_admitted(mark)
    assert not is_deferred(mark)
    assert Tag.COMMENT not in fields


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ({"time_limit": 30, "min_nodes": 2, "max_nodes": 4}, "--nodes=2-4 --time=30"),
        ({"time_limit": 30, "time_min": 10}, "--time=30"),
        ({"time_limit": 30, "min_nodes": 2}, ""),
        ({"extra": "rtsched:sigma=4,cms=1,cps=1"}, "--nodes=1-1 --time="),
        (
            {"extra": "rtsched:sigma=4,cms=1,cps=1", "min_nodes": 2, "time_limit": 9},
            "--nodes=2-2 --time=9",
        ),
    ],
)
def test_the_admin_comment_keeps_what_a_plan_changes(asked: dict[str, Any], shape: str) -> None:
    """Node count and time limit, as they were asked for: Slurm shows only the planned ones."""
    fields = TRANSLATOR.answer(described(**asked), PROMISE, FACTS)
    mark = str(fields[Tag.ADMIN_COMMENT])
    assert mark.startswith(f"rtsched:T0ken-1 {shape}".rstrip())
    assert has_shape(mark) == bool(shape)


@pytest.mark.parametrize(
    ("nodes", "record"),
    [(2, "fractions=0.500000000:"), (70, "fractions=1429e-5:"), (200, "nodes=200 mine")],
)
def test_slurm_takes_the_comment_of_a_divisible_job(nodes: int, record: str) -> None:
    """Of at most 1,024 bytes; the record of a promise on very many nodes has no lists of them."""
    asked = described(extra="rtsched:sigma=4,cms=1,cps=1", comment="mine")
    names = tuple(f"n{k:03}" for k in range(nodes))
    reply = replace(PROMISE, size=nodes, nodes=names, shares=(1.0 / nodes,) * nodes)
    comment = str(TRANSLATOR.answer(asked, reply, FACTS)[Tag.COMMENT])
    assert len(comment.encode()) <= 1024
    assert record in comment
    assert comment.endswith("mine")
    assert parts_of(comment).own == "mine"
    told = variables(f"Comment={comment}", {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": names[1]})
    assert told["NODES"] == str(nodes)
    assert ("ON" in told) == ("FRACTION" in told) == (nodes < 200)
    if nodes < 200:
        assert told["ON"].split(":") == list(names)
        assert float(told["FRACTION"]) == pytest.approx(1.0 / nodes, rel=1e-3)


@given(st.integers(1, 600), st.integers(1, 8), st.integers(0, 8), st.integers(0, 8))
def test_a_moldable_job_keeps_its_margin(minutes: int, least: int, more: int, extra: int) -> None:
    """At any size its new limit holds its work, and ends within the plan by the margin."""
    most = least + more
    size = min(least + extra, most)
    asked = described(time_limit=minutes, min_nodes=least, max_nodes=most)
    if asked.jobs.kind[0] != Kind.MOLDABLE:
        return
    duration = float(asked.jobs.wall_time[0]) * least / size
    reply = replace(PROMISE, start=NOW, end=NOW + duration, size=size)
    limit = TRANSLATOR.answer(asked, reply, FACTS)[Tag.TIME_LIMIT]
    assert isinstance(limit, int)
    assert limit * 60.0 >= minutes * 60.0 * least / size - 1e-6
    assert limit * 60.0 + FACTS.margin <= duration + 1e-6


@example({Tag.USER_ID: 0, Tag.OTHER: "\x1f", Tag.DEADLINE: 1})
@example({Tag.USER_ID: 0, Tag.TRES_PER_JOB: "\ud7a4", Tag.DEADLINE: 1})
@given(st.dictionaries(st.sampled_from(list(Tag)), st.integers(-(2**62), 2**62) | st.text()))
def test_any_request(fields: dict[int, int | str]) -> None:
    """Whatever a request holds, it is described, if only by what is wrong with it."""
    asked = TRANSLATOR.describe(fields, FACTS, NOW)
    assert len(asked.jobs) == 1
    assert asked.problem.isprintable()
    assert asked.jobs.size[0] >= 1
    assert TRANSLATOR.protected(fields).isprintable()


def test_before_the_first_poll() -> None:
    """Without facts a job is described with what it says itself."""
    asked = TRANSLATOR.describe({Tag.DEADLINE: int(NOW) + 500}, None, NOW)
    assert "partition" in asked.problem


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({Tag.TIME_LIMIT: 5}, "its time limit"),
        ({Tag.PREFER: "slow"}, "its preferred features"),
        ({Tag.MIN_NODES: 5, Tag.MAX_NODES: 5}, "its node count"),
        ({Tag.COMMENT: "rtsched:sigma=5"}, "its rtsched: word"),
        ({Tag.COMMENT: "hello"}, ""),
        ({Tag.PRIORITY: 0}, "its priority or hold"),
        ({Tag.PRIORITY: -1}, ""),
        ({Tag.NAME: "x", Tag.JOB_ID: 4, Tag.NICE: 5}, ""),
    ],
)
def test_what_a_promise_rests_on(fields: dict[int, int | str], says: str) -> None:
    """A change of it is named; another is nobody's business."""
    assert TRANSLATOR.protected(fields) == says


@pytest.mark.parametrize(
    ("minutes", "kind", "says"),
    [
        (9, Kind.RIGID, ""),
        (10, Kind.RIGID, ""),
        (11, Kind.RIGID, "its time limit"),
        (-1, Kind.RIGID, "its time limit"),
        (0, Kind.RIGID, "its time limit"),
        (9, Kind.ARRAY, ""),
        (9, Kind.MOLDABLE, "its time limit"),  # by its plan, not by its user
    ],
)
def test_a_change_to_a_shorter_time_limit(minutes: int, kind: Kind, says: str) -> None:
    """It breaks no promise, so Slurm may allow it; anything else with it is protected as before."""
    promised, facts = Jobs.build(1, kind=kind, wall_time=620.0), SlurmFacts(margin=20.0)
    fields: dict[int, int | str] = {Tag.TIME_LIMIT: minutes}
    assert TRANSLATOR.protected(fields, promised, facts) == says
    assert TRANSLATOR.protected({**fields, Tag.QOS: "high"}, promised, facts).endswith("its QOS")
    assert TRANSLATOR.protected(fields, None, facts) == "its time limit"


def test_margins() -> None:
    """They are read from the configuration; an OverTimeLimit without end cannot be planned."""
    config = config_of(
        "Configuration data\nKillWait                = 30 sec\nOverTimeLimit           = 2 min\n"
        "CompleteWait            = 0 sec\nSLURM_VERSION           = 26.05.5\n"
    )
    assert margin_of(config, 5.0, 10.0) == 165.0
    assert margin_of({**config, "OverTimeLimit": "UNLIMITED"}, 5.0, 10.0) == 45.0
    assert seconds({}, "KillWait") == 0.0
    assert math.isinf(seconds({"x": "UNLIMITED"}, "x"))
    assert np.isfinite(margin_of({}, 0.0, 0.0))


@pytest.mark.parametrize("words", ["sigma=1", "sigma=1,cms=1", "sigma=1,cps=1", "cms=1,cps=1"])
def test_a_load_that_is_not_whole(words: str) -> None:
    """It is told what is missing, whatever else the request says."""
    for more in ({}, {"max_nodes": 9}, {"time_limit": 5}, {"min_nodes": 2, "max_nodes": 4}):
        asked = described(extra=f"rtsched:{words}", **more)
        assert asked.problem.startswith("rtsched: sigma, cms and cps describe")


def test_a_shorter_time_limit() -> None:
    """The job gets the limit that was planned of those that its user allows, and no range."""
    asked = described(time_limit=360, time_min=60)
    assert (asked.limits, asked.jobs.wall_time[0]) == ((3600.0, 21600.0), 21620.0)
    reply = SubmitReply(False, "yes", token="t1", size=1, limit=7140.0)  # noqa: S106
    answer = TRANSLATOR.answer(asked, reply, FACTS)
    assert (answer[Tag.TIME_LIMIT], answer[Tag.TIME_MIN]) == (119, 0)
    for fields in ({"time_limit": 60}, {"time_limit": 60, "time_min": 60}):
        assert described(**fields).limits == (math.inf, math.inf)


def test_an_array_that_slurm_would_refuse_is_refused_with_a_reason() -> None:
    """Task ids must be below MaxArraySize; nothing is promised or offered to such an array."""
    facts = replace(FACTS, array_size=1001)

    def problem(array: str, deadline: int | None = int(NOW) + 9000) -> str:
        asked = {Tag.USER_ID: 1000, Tag.ARRAY_INX: array, Tag.DEADLINE: deadline}
        given = {tag: value for tag, value in asked.items() if value is not None}
        return TRANSLATOR.describe(given, facts, NOW).problem

    assert problem("1-50000") == "--array names task 50000; task ids must be below 1001 here"
    assert problem("0-8,1001%2").startswith("--array names task 1001;")
    assert problem("0-1000:10%4") == problem("7") == ""
    assert problem("1-4294967296").startswith("--array names task 4294967296; task ids must be")
    assert problem("1-x") == "cannot read --array='1-x'; write 1-100, 1,3,5 or 0-15:4%2"
    assert problem("1-50000", deadline=None) == problem("1-x", deadline=None) == ""


def test_a_divisible_load() -> None:
    """Words of ours are found anywhere between white space, in either text."""
    spec = options_in("please rtsched:sigma=400,cms=1,cps=100\tsoon", "rtsched:setup_link=0.5")
    assert not spec.problem
    assert spec.divisible
    assert spec.numbers == {"sigma": 400.0, "cms": 1.0, "cps": 100.0, "setup_link": 0.5}


def test_a_load_in_rounds() -> None:
    """A job takes its load at once unless it says that it takes it in rounds."""
    assert options_in("rtsched:sigma=400,cms=1,cps=100").rounds == 1
    assert options_in("rtsched:sigma=400,cms=1,cps=100,rounds=8").rounds == 8
    assert options_in("rtsched:sigma=400,cms=1,cps=100,rounds=64").rounds == 64


def test_a_graph_and_its_key() -> None:
    """A graph's key is the same whenever asked for, and another for another user."""
    spec = options_in("rtsched:dag=night.run_7,message_time=2.5,checkpoint=yes,speedup=none")
    assert options_in("rtsched:odds=97.5,notify=kept").odds == pytest.approx(0.975)
    assert math.isnan(spec.odds)
    assert options_in("rtsched:notify=kept+broken").notify == "broken+kept"
    assert (spec.dag, spec.checkpoint, spec.speedup) == ("night.run_7", True, "none")
    assert dag_key("ann", "x") == dag_key("ann", "x") != dag_key("bob", "x")
    assert 0 <= dag_key("ann", "x") < 1 << 63


@pytest.mark.parametrize("text", ["", "nothing", "xrtsched:sigma=1", "rtsched:promise nodes=4"])
def test_texts_without_words(text: str) -> None:
    """Text that only looks like ours says nothing; neither does the daemon's own record."""
    assert options_in(text) is NOTHING


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rtsched:speed=2", "'speed=2' is unknown"),
        ("rtsched:sigma", "'sigma' is unknown"),
        ("rtsched:sigma=-1,cms=1,cps=1", "sigma='-1' must be a number"),
        ("rtsched:sigma=nan,cms=1,cps=1", "sigma='nan' must be a number"),
        ("rtsched:sigma=1e400,cms=1,cps=1", "sigma='1e400' must be a number"),
        ("rtsched:sigma=0,cms=1,cps=1", "sigma='0' must be above 0"),
        ("rtsched:sigma=1 rtsched:sigma=2", "sigma is given twice"),
        ("rtsched:sigma=1,cms=1", "give all"),
        ("rtsched:setup_node=1", "need sigma"),
        ("rtsched:rounds=2", "rounds need sigma"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=0", "rounds='0' must be a whole number from 1 to 64"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=65", "must be a whole number from 1 to 64"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=2.5", "must be a whole number from 1 to 64"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=yes", "must be a whole number from 1 to 64"),
        ("rtsched:dag=a/b", "must be 1 to 64 letters"),
        ("rtsched:dag=" + "x" * 65, "must be 1 to 64 letters"),
        ("rtsched:checkpoint=maybe", "must be yes or no"),
        ("rtsched:notify=always", "must be none, or some of promised, moved"),
        ("rtsched:odds=0", "odds='0' must be a percentage above 0 and below 100"),
        ("rtsched:odds=100", "must be a percentage above 0"),
        ("rtsched:odds=95%", "must be a percentage above 0"),
        ("rtsched:odds=95,odds=90", "odds is given twice"),
        ("rtsched:message_time=1", "needs dag"),
        ("rtsched:dag=a\x07", "control characters"),
        ("rtsched:sigma=1,cms=1,cps=1,speedup=linear", "cannot be combined with"),
    ],
)
def test_mistakes(text: str, says: str) -> None:
    """Each mistake is one clear sentence."""
    problem = options_in(text).problem
    assert says in problem
    assert problem.startswith("rtsched:")
    assert problem.isprintable()


@given(st.text(), st.text())
def test_any_text(before: str, after: str) -> None:
    """Whatever users write, there is a spec; what is wrong is said in printable words."""
    spec = options_in(before + " rtsched:" + after)
    assert spec.problem.isprintable()
    assert all(math.isfinite(value) and value >= 0 for value in spec.numbers.values())


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30), max_size=4))
def test_any_values(pairs: dict[str, str]) -> None:
    """Values of any form are either taken or complained of."""
    text = ",".join(f"{key}={value}" for key, value in pairs.items())
    spec = options_in(f"rtsched:{text}")
    assert spec.problem or all(key in KEYS for key in spec.numbers)
