"""Jobs with a deadline that limits of accounts and QOS never let run: who is told what."""

from dataclasses import replace
from typing import Any

import pytest

from rtsched.adapters.live import Submission, SubmitReply
from rtsched.adapters.slurm.accounts import limits_of
from rtsched.adapters.slurm.facts import (
    Partition,
    Sharing,
    SlurmFacts,
    keeps_limits,
    qos_of_partitions,
)
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.model.limits import BillingWeights

NOW = 1_800_000_000.0
COLUMNS = (
    "Name Flags GrpTRES GrpJobs MaxTRES MaxTRESPerNode MaxTRESMins MaxWall MaxTRESPU MinTRES "
    "GrpTRESMins GrpTRESRunMins GrpWall MaxTRESRunMinsPU MaxTRESRunMinsPA"
)
LIMITS: dict[str, dict[str, str]] = {
    "normal": {},
    "short": {"Flags": "DenyOnLimit", "MaxWall": "01:00:00"},
    "narrow": {"MaxTRES": "node=2", "MaxTRESPU": "cpu=7"},
    "fine": {"MaxTRESPerNode": "cpu=2", "MaxTRES": "mem=1000M", "MaxTRESMins": "cpu=120"},
    "none": {"GrpJobs": "0"},
    "part": {"MaxWall": "02:30:00"},
    "run": {"GrpTRESRunMins": "cpu=240", "GrpWall": "01:30:00"},
    "used": {"GrpTRESMins": "mem=6000,node=90"},
    "each": {"MaxTRESRunMinsPU": "cpu=100", "MaxTRESRunMinsPA": "cpu=80"},
    "large": {"MinTRES": "cpu=8,mem=2000"},
    "gpu": {"MinTRES": "gres/gpu=1,node=1"},
    "billed": {"MaxTRES": "billing=7", "MaxTRESMins": "billing=180"},
}
QOS = "".join(
    "|".join((name, *(limits.get(column, "") for column in COLUMNS.split()[1:]))) + "\n"
    for name, limits in {"Name": {one: one for one in COLUMNS.split()}, **LIMITS}.items()
)
ASSOCIATIONS = """\
Cluster|Account|User|GrpTRES|GrpSubmit|MaxWall|QOS|Def QOS
c|root||||||
c| physics||cpu=64|||normal|
c|  physics|ann|||1-00:00:00|short,normal,narrow,fine,run,used,each,large,gpu,billed|normal
c|  physics|bob||7||short|
c| arts||||||
c|  arts|ann||||normal,short|short
"""


def facts(*, sharing: bool = False) -> SlurmFacts:
    """Return a cluster of 30 nodes of 4 processors with these limits."""
    nodes = (({"cpu": 4, "mem": 1000 << 20}, 30),)
    parts = {
        "all": Partition("all", 600.0, 7 * 86400.0, True, 30, 4, hardware=nodes),
        "quick": Partition("quick", 600.0, 86400.0, True, 30, 4, hardware=nodes),
    }
    return SlurmFacts(
        margin=20.0,
        partitions=parts,
        default="all",
        home={"ann": "physics", "bob": "physics"},
        users={1000: "ann", 1001: "bob"},
        sharing=Sharing(("cpu", "mem")) if sharing else Sharing(),
        given=Sharing(("cpu", "mem")),
        limits=limits_of(QOS, ASSOCIATIONS, {"quick": "part"}),
        billing=BillingWeights({"quick": {"cpu": 0.375, "node": 0.5}}),
    )


def described(site: SlurmFacts, **fields: Any) -> Submission:
    """Return a job of ann's, on one node for half an hour unless said."""
    asked = {"user_id": 1000, "deadline": int(NOW) + 500000, "time_limit": 30, **fields}
    given = {Tag[name.upper()]: value for name, value in asked.items() if value is not None}
    return SlurmTranslator().describe(given, site, NOW)


def problem(*, sharing: bool = False, **fields: Any) -> str:
    """Return what is wrong with such a job."""
    return described(facts(sharing=sharing), **fields).problem


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"qos": "short", "time_limit": 61},
            "its time limit of 61 min exceeds MaxWall=01:00:00 of QOS short; use --time=60 or less",
        ),
        # The partition's QOS comes before the job's.
        (
            {"qos": "short", "partition": "quick", "time_limit": 151},
            "its time limit of 151 min exceeds MaxWall=02:30:00 of QOS part; use --time=150 or "
            "less",
        ),
        (
            {"time_limit": 1441},
            "its time limit of 1441 min exceeds MaxWall=1-00:00:00 of user ann of account physics; "
            "use --time=1440 or less",
        ),
        # Her default QOS in the other account.
        (
            {"account": "arts", "time_limit": 61},
            "its time limit of 61 min exceeds MaxWall=01:00:00 of QOS short; use --time=60 or less",
        ),
        # bob has one QOS only, and so that one.
        (
            {"user_id": 1001, "time_limit": 90},
            "its time limit of 90 min exceeds MaxWall=01:00:00 of QOS short; use --time=60 or less",
        ),
        # 17 whole nodes of 4 processors.
        (
            {"min_nodes": 17, "max_nodes": 17},
            "requests 68 processors in all; GrpTRES=cpu=64 of account physics allows 64 "
            "processors; request at most that, or use another account or QOS",
        ),
        (
            {"qos": "narrow", "min_nodes": 3},
            "requests 12 processors in all; MaxTRESPU=cpu=7 of QOS narrow allows 7 processors; "
            "request at most that, or use another account or QOS",
        ),
        (
            {"qos": "none"},
            "requests 1 job in all; GrpJobs=0 of QOS none allows 0 jobs; use another account or "
            "QOS",
        ),
        (
            {"qos": "fine"},
            "requests 4 processors per node; MaxTRESPerNode=cpu=2 of QOS fine allows 2 processors; "
            "request at most that, or use another account or QOS",
        ),
        # 4 processors for more than 60 min; one node for more than 90.
        (
            {"qos": "run", "time_limit": 61},
            "its 4 processors for 61 min exceed GrpTRESRunMins=cpu=240 of QOS run; use --time=60 "
            "or less",
        ),
        (
            {"qos": "run", "time_limit": 91},
            "its time limit of 91 min exceeds GrpWall=01:30:00 of QOS run; use --time=90 or less",
        ),
        (
            {"qos": "used", "time_limit": 31, "min_nodes": 3},
            "its 3 nodes for 31 min exceed GrpTRESMins=node=90 of QOS used; use --time=30 or less",
        ),
        (
            {"qos": "each", "time_limit": 26},
            "its 4 processors for 26 min exceed MaxTRESRunMinsPU=cpu=100 of QOS each; use "
            "--time=25 or less",
        ),
        (
            {"qos": "each", "time_limit": 21},
            "its 4 processors for 21 min exceed MaxTRESRunMinsPA=cpu=80 of QOS each; use "
            "--time=20 or less",
        ),
        (
            {"qos": "large"},
            "requests 4 processors in all; MinTRES=cpu=8 of QOS large asks for 8 processors; "
            "request at least that, or use another QOS",
        ),
        # In partition all a node is 4 units, in quick 1.5 for its processors and 0.5.
        (
            {"qos": "billed", "min_nodes": 2},
            "requests 8 billing units in all; MaxTRES=billing=7 of QOS billed allows 7 billing "
            "units; request at most that, or use another account or QOS",
        ),
        (
            {"qos": "billed", "partition": "quick", "min_nodes": 4},
            "requests 8 billing units in all; MaxTRES=billing=7 of QOS billed allows 7 billing "
            "units; request at most that, or use another account or QOS",
        ),
        (
            {"qos": "billed", "time_limit": 46},
            "its 4 billing units for 46 min exceed MaxTRESMins=billing=180 of QOS billed; use "
            "--time=45 or less",
        ),
        (
            {"user_id": 1001, "array_inx": "1-8"},
            "8 jobs would be submitted; GrpSubmit=7 of user bob of account physics allows 7; "
            "submit at most that, or use another account or QOS",
        ),
    ],
)
def test_whole_nodes(fields: dict[str, Any], said: str) -> None:
    """The sentence names the limit, its value and owner, and what would be accepted."""
    assert problem(**fields) == said


@pytest.mark.parametrize(
    "fields",
    [
        {"qos": "short", "time_limit": 60},
        {"qos": "short", "partition": "quick", "time_limit": 150},
        {"time_limit": 1440},
        {"user_id": 1001, "array_inx": "1-7"},
        {"min_nodes": 16, "max_nodes": 16},
        {"min_nodes": 10, "max_nodes": 20},  # it may run on 16
        {"qos": "run", "time_limit": 60},
        {"qos": "used", "time_limit": 30, "min_nodes": 3},
        {"qos": "each", "time_limit": 20},
        {"qos": "large", "min_nodes": 2},
        {"qos": "large", "min_nodes": 1, "max_nodes": 2},  # it may run on 2
        {"qos": "gpu"},  # GPUs come with whole nodes
    ],
)
def test_jobs_at_a_limit_may_run(fields: dict[str, Any]) -> None:
    """What is asked for is what is allowed."""
    assert problem(**fields) == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"qos": "narrow", "cpus_per_task": 3, "num_tasks": 2, "min_nodes": 2}, ""),
        ({"qos": "narrow", "num_tasks": 8}, "requests 8 processors in all; MaxTRESPU=cpu=7"),
        (
            {"qos": "narrow", "min_nodes": 3, "num_tasks": 3},
            "requests 3 nodes in all; MaxTRES=node=2 of QOS narrow allows 2 nodes",
        ),
        (
            {"qos": "fine", "min_nodes": 2, "num_tasks": 2, "pn_min_memory": 600},
            "requests 1200 MiB of memory in all; MaxTRES=mem=1000M of QOS fine allows 1000 MiB",
        ),
        # 2 processors for 70 min are 140 minutes.
        (
            {"qos": "fine", "num_tasks": 2, "time_limit": 70},
            "its 2 processors for 70 min exceed MaxTRESMins=cpu=120 of QOS fine; use --time=60 or "
            "less",
        ),
        # 600 MiB for more than 10 min.
        (
            {"qos": "used", "num_tasks": 1, "pn_min_memory": 600, "time_limit": 11},
            "its 600 MiB of memory for 11 min exceed GrpTRESMins=mem=6000M of QOS used; use "
            "--time=10 or less",
        ),
        (
            {"qos": "large", "num_tasks": 8, "min_nodes": 2, "pn_min_memory": 999},
            "requests 1998 MiB of memory in all; MinTRES=mem=2000M of QOS large asks for 2000 MiB",
        ),
        ({"qos": "large", "num_tasks": 8, "min_nodes": 2, "pn_min_memory": 1000}, ""),
        (
            {"qos": "gpu", "num_tasks": 1},
            "requests 0 gres/gpu in all; MinTRES=gres/gpu=1 of QOS gpu asks for 1 gres/gpu",
        ),
        (
            {"qos": "large", "num_tasks": 1, "array_inx": "1-9"},
            "requests 1 processor in all; MinTRES=cpu=8 of QOS large asks for 8 processors",
        ),
        # A task of an array counts by itself.
        ({"qos": "fine", "num_tasks": 2, "time_limit": 60, "array_inx": "1-9"}, ""),
        # An exclusive job has all processors of its node.
        ({"qos": "fine", "shared": 0}, "requests 4 processors per node; MaxTRESPerNode=cpu=2"),
    ],
)
def test_shared_nodes(fields: dict[str, Any], said: str) -> None:
    """A job counts with what it takes of its nodes."""
    fields = {"pn_min_memory": 100, **fields}
    assert problem(sharing=True, **fields)[: len(said) or None] == said


def test_a_load_is_spread_so_that_the_limit_holds_it() -> None:
    """600 units of 60 s each take 10 h on one node; MaxWall is 1 h: on 10 nodes at the least."""
    load = "rtsched:sigma=600,cms=0.0001,cps=60"
    asked = {"min_nodes": 1, "max_nodes": 16, "extra": load}
    spread = [described(facts(), time_limit=None, qos=qos, **asked) for qos in ("normal", "short")]
    assert [one.problem for one in spread] == ["", ""]
    assert [int(one.jobs.size_min[0]) for one in spread] == [1, 11]
    # The partition gives a job without a time limit 10 min; a load gets one from us.
    assert [int(one.jobs.size_max[0]) for one in spread] == [16, 16]
    few = load.replace("600", "60000")
    asked = problem(qos="short", min_nodes=1, max_nodes=16, extra=few)
    assert asked == "its load takes longer than MaxWall of its account or QOS allows on 16 nodes"


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"min_nodes": 10, "max_nodes": 20}, 16),  # GrpTRES=cpu=64, 4 on each node
        ({"min_nodes": 1, "max_nodes": 20, "qos": "narrow", "num_tasks": 1}, 1),  # cpu=7
        ({"min_nodes": 1, "max_nodes": 20, "extra": "rtsched:sigma=400,cms=1,cps=100"}, 16),
        ({"min_nodes": 1, "max_nodes": 20, "qos": "billed", "partition": "quick"}, 3),  # 2 each
        ({"array_inx": "1-100"}, 16),  # 4 tasks on a node
        ({"array_inx": "1-100%8"}, 2),
    ],
)
def test_a_range_of_nodes_ends_where_a_limit_does(fields: dict[str, Any], most: int) -> None:
    """No plan gives a job more nodes than its limits let it have by itself."""
    found = described(facts(), **fields)
    assert (found.problem, int(found.jobs.size_max[0])) == ("", most)


def with_licenses(name: str) -> SlurmFacts:
    """Return the cluster with eight licences, of which the account may have four."""
    account = ASSOCIATIONS.replace("cpu=64", f"cpu=64,{name}=4")
    sharing = Sharing(("cpu", "mem"), licenses={name: 8})
    return replace(facts(sharing=True), sharing=sharing, limits=limits_of(QOS, account, {}))


@pytest.mark.parametrize(
    ("licenses", "said"),
    [("matlab:3", ""), ("matlab:5", "requests 5 license/matlab in all; GrpTRES=license/matlab=4")],
)
def test_licences_of_a_job_are_for_all_its_nodes(licenses: str, said: str) -> None:
    """A job on one to three nodes has them once: no node takes some of its own."""
    shared = with_licenses("license/matlab")
    found = described(shared, min_nodes=2, max_nodes=3, pn_min_memory=100, licenses=licenses)
    assert found.problem[: len(said) or None] == said
    if not said:
        assert int(found.jobs.size_max[0]) == 3


def test_names_of_resources_have_no_case() -> None:
    """Slurm shows them as the admin wrote them, here and there."""
    shared = with_licenses("license/Matlab")
    said = described(shared, pn_min_memory=100, licenses="Matlab:5").problem
    assert said.startswith("requests 5 license/matlab in all; GrpTRES=license/matlab=4 of account")


def test_tasks_of_an_array_share_nodes_only_as_a_limit_lets_them() -> None:
    """Three of two processors run on a node of 8 at a time, but the QOS lets a user have 7."""
    whole = facts(sharing=True)
    nodes = (({"cpu": 8, "mem": 1000 << 20}, 30),)
    site = replace(whole, partitions={"all": replace(whole.partitions["all"], hardware=nodes)})
    asked = {"qos": "narrow", "num_tasks": 2, "pn_min_memory": 100}
    said = [described(site, array_inx=array, **asked).problem for array in ("1-9", "1-9%3")]
    assert said == [
        "4 of its tasks run on a node at a time, with 8 processors; MaxTRESPU=cpu=7 of QOS narrow "
        "allows 7 processors; use --array=...%3",
        "",
    ]


def test_a_time_limit_that_is_set_is_within_the_limit() -> None:
    """A moldable job's plan leaves room for margins on all sizes: its limit stays that of the QOS.

    20 s of margin at the end, and as much as 80 s on 16 nodes is 320 s more on 4.
    """
    minutes = []
    for qos in ("normal", "short"):
        submission = described(facts(), min_nodes=4, max_nodes=16, time_limit=60, qos=qos)
        end = NOW + float(submission.jobs.wall_time[0])
        reply = SubmitReply(False, token=str(1), promise=end, start=NOW, end=end, size=4)
        minutes.append(SlurmTranslator().answer(submission, reply, facts())[Tag.TIME_LIMIT])
    assert minutes == [65, 60]


def test_limits_count_only_where_slurm_keeps_to_them() -> None:
    """AccountingStorageEnforce says so; without it none is known."""
    for value, kept in {
        "": False,
        "none": False,
        "associations,qos": False,
        "associations,limits": True,
        "all": True,
        "associations,limits,qos,safe": True,
    }.items():
        assert keeps_limits({"AccountingStorageEnforce": value}) is kept
    without = replace(facts(), limits=limits_of("", "", {}))
    assert not described(without, time_limit=61, qos="short").problem


def test_partitions_tell_their_qos() -> None:
    """As `scontrol show partition` shows it."""
    said = {"a": {"qos": "N/A"}, "b": {"qos": "part"}, "c": {}}
    assert qos_of_partitions(said) == {"b": "part"}


def test_an_account_or_qos_that_no_poll_has_shown_is_named() -> None:
    """Where Slurm enforces them it may refuse the job after its user has read a promise."""
    known = replace(facts(), enforced=True, associations={("physics", "ann"): 0})

    def unverified(known: SlurmFacts = known, **fields: Any) -> str:
        return described(known, **fields).unverified

    assert unverified() == unverified(account="Physics", qos="NORMAL") == ""
    assert unverified(account="nosuch") == "account"
    assert unverified(qos="nosuch") == "QOS"
    assert unverified(replace(known, enforced=False), account="nosuch", qos="nosuch") == ""
