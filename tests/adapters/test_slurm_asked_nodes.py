"""Jobs that name nodes, exclude nodes, or want several features: on live Slurm."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slurm_printed import job_rows, printed

from rtsched.adapters.live import Observation, Submission, SubmitReply
from rtsched.adapters.slurm.commands import only_waiting, promised_priority, rank_of
from rtsched.adapters.slurm.facts import Sharing, SlurmFacts, partitions_of, unchecked_features
from rtsched.adapters.slurm.last_applied import AppliedFile, LastApplied, SlurmState, applied
from rtsched.adapters.slurm.layout import ClusterLayout, layout_of
from rtsched.adapters.slurm.observation import NOT_FITTING, jobs_of, marks_of
from rtsched.adapters.slurm.requirements import node_list_in, with_node_list
from rtsched.adapters.slurm.reserving import reserve_changes
from rtsched.adapters.slurm.rows import JobRows, node_rows
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.steering import restoring
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.logs.node_requests import MOST_KEPT, NodeSets
from rtsched.model.cluster import Nodes
from rtsched.model.jobs import Kind
from rtsched.model.resources import allowed_nodes
from rtsched.model.schedule import Schedule

NOW = 1_800_000_000.0
FEATURES = ("a,b", "a,b", "a", "b,c", "c", "c")
CORES = (8, 4, 4, 4, 4, 2)
PARTITIONS = (
    "PartitionName=all Default=YES MaxTime=1-00:00:00 State=UP PriorityTier=1\n"
    "PartitionName=top MaxTime=1-00:00:00 State=UP PriorityTier=9\n"
)
TRANSLATOR = SlurmTranslator()
ADMISSION = "t1"


def machine(features: tuple[str, ...] = FEATURES, *, shared: bool = False) -> ClusterLayout:
    """Return six nodes; the last one is in partition `top` too."""
    text = "".join(
        f"NodeName=n{i} CPUEfctv={CORES[i]} RealMemory=1000 State=IDLE ActiveFeatures={some} "
        f"Partitions=all{',top' * (i == 5)}\n"
        for i, some in enumerate(features)
    )
    said, default = partitions_of(PARTITIONS)
    sharing = Sharing(("cpu",)) if shared else None
    return layout_of(node_rows(text), said, default, set(), SlurmSettings(), 1, sharing)


def facts(layout: ClusterLayout | None = None, *, shared: bool = False) -> SlurmFacts:
    """Return what a poll finds out, as the daemon gets it from another process."""
    known = layout or machine(shared=shared)
    sharing = Sharing(("cpu",)) if shared else Sharing()
    parts = deepcopy(known.parts)
    return SlurmFacts(
        margin=20.0,
        partitions=known.partitions,
        default=known.default,
        users={1000: "ann"},
        sharing=sharing,
        parts=parts,
        features=known.features,
    )


def described(known: SlurmFacts | None = None, **fields: Any) -> Submission:
    """Return the submission of a job of ann's with a deadline in a day and a limit of 10 min."""
    asked: dict[int, str | int] = {
        Tag.USER_ID: 1000,
        Tag.DEADLINE: int(NOW) + 80000,
        Tag.TIME_LIMIT: 10,
    }
    asked |= {Tag[name.upper()]: value for name, value in fields.items()}
    return TRANSLATOR.describe(asked, known or facts(), NOW)


def nodes_of(submission: Submission, layout: ClusterLayout | None = None) -> str:
    """Return the nodes that the job may use, as digits; `-`: all."""
    cluster = (layout or machine()).cluster
    (code,), masks = allowed_nodes(submission.jobs, cluster)
    return "".join(map(str, np.flatnonzero(masks[code]))) if code >= 0 else "-"


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({}, "-"),
        ({"features": "a"}, "012"),
        ({"features": "a&b"}, "01"),
        ({"features": "a,b"}, "01"),
        ({"features": "a|c"}, "012345"),
        ({"features": "(a|c)&b"}, "013"),
        ({"exc_nodes": "n1,n[3-4]"}, "025"),
        ({"features": "a", "exc_nodes": "n0"}, "12"),
        ({"req_nodes": "n[1-2]", "min_nodes": 2}, "12"),
        ({"req_nodes": "n[1-3]", "min_nodes": 2, "max_nodes": 2}, "123"),
        ({"req_nodes": "n4,n3,n4", "min_nodes": 2}, "34"),
        ({"features": "c", "partition": "top"}, "5"),
    ],
)
def test_what_a_job_may_use(fields: dict[str, Any], nodes: str) -> None:
    """Of its partition; the request stands beside it."""
    asked = described(**fields)
    assert (asked.problem, nodes_of(asked)) == ("", nodes if nodes != "012345" else "-")
    assert asked.jobs.texts("partition") == [fields.get("partition", "all")]


LINES = (
    "NodeName=n0 CPUEfctv=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=8000 "
    "Gres=gpu:a:4 TmpDisk=100",
    "NodeName=n1 CPUEfctv=4 Sockets=2 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=8000 "
    "Gres=gpu:a:2(S:0-1)",
    "NodeName=n2 CPUEfctv=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000 "
    "Gres=gpu:b:2,shard:8",
    "NodeName=n3 CPUEfctv=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=2000",
)


def different_nodes(*, shared: bool = False) -> SlurmFacts:
    """Return four nodes, each of another kind."""
    features = ("x", "x", "y", "y")
    text = "\n".join(
        f"{line} State=IDLE ActiveFeatures={some} Partitions=all"
        for line, some in zip(LINES, features, strict=True)
    )
    said, default = partitions_of(PARTITIONS.splitlines()[0])
    resources = ("cpu", "mem", "gres/gpu", "gres/gpu:a")
    sharing = Sharing(resources) if shared else Sharing()
    rows = node_rows(text)
    layout = layout_of(rows, said, default, set(), SlurmSettings(), 1, sharing)
    known = facts(layout)
    return replace(known, sharing=sharing)


def digits(submission: Submission, known: SlurmFacts) -> str:
    """Return the nodes that a job may use, as digits, and how many it wants."""
    request = submission.jobs.texts("node_request")[0]
    sets = known.parts.cluster.node_sets
    mask = sets[request] if request else np.ones(4, np.bool_)
    return f"{''.join(map(str, np.flatnonzero(mask)))}x{int(submission.jobs.size[0])}"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"num_tasks": 1, "cpus_per_task": 2, "tres_per_task": "cpu=2"}, "0123x1"),
        ({"num_tasks": 1, "cpus_per_task": 4, "tres_per_task": "cpu=4"}, "012x1"),
        ({"min_nodes": 2, "max_nodes": 2, "num_tasks": 8}, "012x2"),
        ({"tres_per_node": "gres/gpu:2"}, "012x1"),
        ({"tres_per_node": "gres/gpu:a:2"}, "01x1"),
        ({"tres_per_node": "gres/shard:4"}, "2x1"),
        ({"tres_per_job": "gres/gpu:4"}, "012x2"),
        ({"tres_per_job": "gres/gpu:4", "min_nodes": 1, "max_nodes": 1}, "0x1"),
        ({"num_tasks": 4, "tres_per_task": "gres/gpu:1"}, "012x2"),
        ({"num_tasks": 4, "tres_per_task": "gres/gpu:1,cpu=2", "cpus_per_task": 2}, "012x2"),
        ({"tres_per_node": "gres/gpu:2", "cpus_per_tres": "gres/gpu:4"}, "0x1"),
        ({"tres_per_node": "gres/gpu:1", "mem_per_tres": "gres/gpu:2000"}, "01x1"),
        ({"tres_per_node": "gres/gpu:2", "ntasks_per_tres": 3}, "0x1"),
        ({"num_tasks": 4, "ntasks_per_tres": 2, "min_nodes": 1, "max_nodes": 1}, "012x1"),
        ({"num_tasks": 4, "threads_per_core": 1}, "0123x2"),
        ({"num_tasks": 4, "threads_per_core": 2}, "0x1"),
        ({"num_tasks": 8, "min_nodes": 1, "max_nodes": 1, "ntasks_per_core": 2}, "0x1"),
        ({"num_tasks": 4, "min_nodes": 1, "max_nodes": 1, "ntasks_per_core": 1}, "012x1"),
        ({"num_tasks": 4, "min_nodes": 1, "max_nodes": 1, "ntasks_per_socket": 2}, "01x1"),
        ({"sockets_per_node": 2}, "01x1"),
        ({"cores_per_socket": 3}, "2x1"),
        ({"sockets_per_node": 1, "cores_per_socket": 1, "threads_per_core": 1}, "0123x1"),
        ({"pn_min_memory": 4000}, "01x1"),
        ({"mem_per_cpu": 1000}, "013x1"),
        ({"pn_min_tmp_disk": 50}, "0x1"),
        ({"features": "[x|y]"}, "0123x1"),
        ({"features": "[x|y]", "min_nodes": 2, "max_nodes": 2}, "01x2"),
        ({"features": "[x|y]", "min_nodes": 2, "max_nodes": 2, "num_tasks": 8}, "01x2"),
        ({"num_tasks": 40, "overcommit": 1}, "0123x1"),
        ({"req_switch": 1}, "0123x1"),
        ({"contiguous": 1}, "0123x1"),
        ({"contiguous": 1, "min_nodes": 2, "max_nodes": 2}, "01x2"),
        ({"contiguous": 1, "min_nodes": 2, "max_nodes": 2, "features": "y"}, "23x2"),
    ],
)
def test_whole_nodes_that_have_enough(fields: dict[str, Any], found: str) -> None:
    """Of everything that a job wants of each of its nodes, or as many nodes as hold it."""
    # A poll shows the same job: what is not in squeue is in its admin comment.
    known = different_nodes()
    asked = described(known, **fields)
    assert (asked.problem, digits(asked, known)) == ("", found)
    reply = SubmitReply(rejected=False, token=ADMISSION, size=int(asked.jobs.size[0]))
    mark = str(TRANSLATOR.answer(asked, reply, known)[Tag.ADMIN_COMMENT])
    size = str(int(asked.jobs.size[0]))
    listed = TRANSLATOR.answer(asked, reply, known).get(Tag.REQ_NODES, "(null)")
    shown = {
        "reqnodes": str(listed),
        "admin_comment": mark,
        "feature": str(fields.get("features", "(null)")),
        "tres": f"cpu=1,node={size}",
        "maxnodes": size,
        "tres-per-node": str(fields.get("tres_per_node", "N/A")),
        "tres-per-task": str(fields.get("tres_per_task", "N/A")),
    }
    there = seen(known, shown)
    assert there.texts("node_request") == asked.jobs.texts("node_request")
    assert (np.isfinite(there.deadline[0]), there.size[0]) == (True, asked.jobs.size[0])


THREADS = "CPUTot=16 CPUEfctv=12 ThreadsPerCore=2"
SYSTEM = "NodeName=n0 State=IDLE Partitions=all CPUTot=8 CPUEfctv=6 Sockets=2 RealMemory=8000 "


@pytest.mark.parametrize(
    ("kept", "fields", "fits"),
    [
        ("CPUEfctv=7 CPUSpecList=7", {"cores_per_socket": 4}, True),
        ("CPUEfctv=7 CPUSpecList=7", {"cores_per_socket": 4, "sockets_per_node": 2}, False),
        ("CPUEfctv=7 CPUSpecList=7", {"cores_per_socket": 3, "sockets_per_node": 2}, True),
        ("CPUEfctv=7 CPUSpecList=7", {"ntasks_per_socket": 4, "num_tasks": 7}, True),
        ("CPUEfctv=7 CPUSpecList=7", {"ntasks_per_socket": 3, "num_tasks": 7}, False),
        ("CPUSpecList=3,7", {"cores_per_socket": 4}, False),
        ("CPUSpecList=0-1", {"cores_per_socket": 4}, True),
        ("CPUSpecList=0-1", {"cores_per_socket": 3, "sockets_per_node": 2}, False),
        ("CPUSpecList=0-1", {"cores_per_socket": 2, "sockets_per_node": 2}, True),
        ("CPUSpecList=0-1", {"ntasks_per_socket": 3, "num_tasks": 6}, False),
        ("CPUSpecList=0-1", {"ntasks_per_socket": 2, "num_tasks": 4}, True),
        (f"{THREADS} CPUSpecList=6-7,14-15", {"cores_per_socket": 4}, False),
        (f"{THREADS} CPUSpecList=0-3", {"cores_per_socket": 4}, True),
    ],
)
def test_cores_that_a_node_keeps_for_the_system(
    kept: str, fields: dict[str, Any], *, fits: bool
) -> None:
    """Each socket has those that are left there, as Slurm counts them."""
    said, default = partitions_of(PARTITIONS.splitlines()[0])
    rows = node_rows(f"{kept} {SYSTEM}")
    known = facts(layout_of(rows, said, default, set(), SlurmSettings()))
    problem = described(known, min_nodes=1, max_nodes=1, **fields).problem
    assert ("no node of partition all has" in problem) != fits


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tres_per_node": "gres/gpu:z:1"}, "no node of partition all has gres/gpu:z"),
        ({"tres_per_node": "gres/gpu:5"}, "requests 5 gres/gpu per node; no node of partition al"),
        ({"num_tasks": 1, "cpus_per_task": 9}, "requests 9 processors per node; no node of part"),
        (
            {"threads_per_core": 4, "submit_line": "sbatch --hint=multithread x"},
            "no node of partition all has what --hint asks for",
        ),
        ({"threads_per_core": 4}, "what --threads-per-core or --hint or -B asks for"),
        ({"sockets_per_node": 3, "submit_line": "sbatch -B3"}, "has what -B asks for"),
        ({"tres_per_node": "gres/gpu:a:4", "features": "y"}, "no node of partition all has gres"),
        (
            {"contiguous": 1, "min_nodes": 5},
            "does not have that many consecutive nodes; leave --co",
        ),
        (
            {"contiguous": 1, "min_nodes": 3, "exc_nodes": "n1"},
            "its partition does not have that many consecutive nodes",
        ),
        ({"other": "threads-per-core"}, "cannot plan with --threads-per-core or --hint or -B;"),
        (
            {"other": "nodes-list,bb"},
            "a list of node counts; ask for one of them, such as --nodes=",
        ),
        ({"other": "core-spec,bb"}, "and --bb; leave it out"),
        ({"tres_per_socket": "gres/gpu:1"}, "--gpus-per-socket; write --gpus-per-node"),
    ],
)
def test_what_no_node_has(fields: dict[str, Any], says: str) -> None:
    """One clear sentence names what it is; the option is the one that its user wrote."""
    assert says in described(different_nodes(), **fields).problem


def test_what_slurm_ignores() -> None:
    """--core-spec, unless the site allows it; --switches and --segment where it knows of none."""
    known = different_nodes()
    assert (
        "cannot plan with --core-spec or --thread-spec"
        in described(known, other="core-spec").problem
    )
    assert not described(replace(known, core_spec=False), other="core-spec").problem
    apart = {"req_switch": 1, "min_nodes": 2}
    assert not described(known, **apart).problem
    switched = replace(known, switches=True)
    assert "cannot plan with --switches on several nodes" in described(switched, **apart).problem
    assert not described(switched, req_switch=1).problem
    assert not described(known, other="segment", min_nodes=2).problem
    assert "cannot plan with --segment" in described(switched, other="segment").problem


@pytest.mark.parametrize(
    ("fields", "cpus", "exclusive"),
    [
        ({"num_tasks": 3}, 4, False),
        ({"num_tasks": 3, "threads_per_core": 1}, 6, False),
        ({"num_tasks": 3, "threads_per_core": 2}, 4, False),
        ({"num_tasks": 3, "ntasks_per_core": 1}, 6, False),
        ({"num_tasks": 2, "ntasks_per_socket": 2}, 2, False),
        ({"num_tasks": 2, "ntasks_per_socket": 1}, 2, True),
        ({"num_tasks": 2, "sockets_per_node": 2}, 2, True),
    ],
)
def test_shared_nodes_in_whole_cores(fields: dict[str, Any], cpus: int, exclusive: bool) -> None:
    """A job takes whole cores, and one that lies on several sockets is planned without others."""
    known = different_nodes(shared=True)
    one = {"min_nodes": 1, "max_nodes": 1, "pn_min_memory": 100, "features": "x"}
    asked = described(known, **one, **fields)
    jobs = asked.jobs
    names = jobs.names("demand")
    assert (asked.problem, jobs.demand[0, names.index("cpu")]) == ("", cpus)
    assert bool(jobs.exclusive[0]) is exclusive
    nodes = ("n0",)
    reply = SubmitReply(rejected=False, token=ADMISSION, size=1, nodes=nodes, start=NOW + 9)
    mark = str(TRANSLATOR.answer(asked, reply, known)[Tag.ADMIN_COMMENT])
    shown = {
        "admin_comment": mark,
        "feature": "x",
        "minmemory": "100M",
        "tres": f"cpu={fields['num_tasks']},mem=100M,node=1",
        "prioritylong": str(promised_priority(NOW + 9)),
    }
    there = seen(known, shown)
    assert there.demand[0, there.names("demand").index("cpu")] == cpus
    assert bool(there.exclusive[0]) is exclusive
    assert there.texts("node_request") == jobs.texts("node_request")


def test_sizes_follow_from_those_nodes() -> None:
    """Processors become nodes by the smallest that it may use, and loads spread over no more."""
    assert described(num_tasks=8).jobs.size[0] == 4
    assert described(num_tasks=8, exc_nodes="n5").jobs.size[0] == 2
    assert described(num_tasks=8, req_nodes="n0", min_nodes=1).jobs.size[0] == 1
    load = described(features="c", extra="rtsched:sigma=4,cms=1,cps=100").jobs
    assert (load.kind[0], load.size_max[0]) == (Kind.DIVISIBLE, 3)
    moldable = described(features="a", min_nodes=1, max_nodes=3).jobs
    assert (moldable.kind[0], moldable.size_max[0]) == (Kind.MOLDABLE, 3)
    assert machine(shared=True).parts.asked("all", "--exclude=n5 --partition=all")[0].above == ""
    assert machine(shared=True).parts.asked("all", "--exclude=n1 --partition=all")[0].above == "top"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"features": "a*2"}, "cannot plan with the constraint 'a*2': it counts nodes or cannot"),
        ({"features": "[a*1&c*1]"}, "it counts nodes or cannot be read; combine features with"),
        ({"features": "gone"}, "no node in partition 'all' matches --constraint=gone"),
        ({"features": "a&c"}, "no node in partition 'all' matches --constraint=a&c"),
        ({"req_nodes": "x1"}, "its --nodelist or --exclude names nodes that this cluster does n"),
        ({"exc_nodes": "n[1"}, "its --nodelist or --exclude names nodes that this cluster does n"),
        (
            {"req_nodes": "n0", "partition": "top"},
            "no node in partition 'top' matches --nodelist=n0",
        ),
        (
            {"req_nodes": "n[1-2]", "min_nodes": 3, "max_nodes": 3},
            "asks for 3 nodes and names 2 of them; name as many as it asks for, or none",
        ),
        ({"req_nodes": "n[1-2]", "min_nodes": 1, "max_nodes": 3}, "asks for 3 nodes and names 2"),
        (
            {"features": "a&b", "min_nodes": 3},
            "asks for 3 nodes; in partition 'all' 2 match --constraint=a&b",
        ),
        ({"features": "a&b", "num_tasks": 1, "pn_min_cpus": 9}, "requests 9 processors per node"),
    ],
)
def test_what_gets_no_promise(fields: dict[str, Any], says: str) -> None:
    """Each problem is one clear sentence; without a deadline there is none."""
    assert says in described(**fields).problem
    assert not described(**fields, deadline=0).problem


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"features": "gone|a"}, "no node has the feature 'gone' of --constraint; leave it out"),
        ({"features": "a|gone"}, "no node has the feature 'gone' of --constraint"),
        ({"features": "a|(b&gone)"}, "no node has the feature 'gone' of --constraint"),
        ({"features": "[a|gone]"}, "no node has the feature 'gone' of --constraint"),
        ({"features": "[a|gone]", "min_nodes": 2}, "no node has the feature 'gone' of --constr"),
        ({"features": "A|a"}, "no node has the feature 'A' of --constraint"),
        ({"features": "a | c"}, "no node has the feature 'a ' of --constraint; leave spac"),
        ({"prefer": "gone"}, "no node has the feature 'gone' of --prefer; leave it out"),
        ({"prefer": "a|gone", "features": "a"}, "no node has the feature 'gone' of --prefer"),
        ({"prefer": "((a))"}, "cannot read --prefer='((a))': parentheses and brackets cannot be"),
        ({"features": "((a|b))&c"}, "cannot read --constraint='((a|b))&c': parentheses and brack"),
        ({"features": "([a|b])"}, "parentheses and brackets cannot be nested in parentheses, and"),
        ({"features": "[a|b]&[b|c]"}, "and only one pair of brackets is allowed"),
        ({"features": "[a&b]"}, "cannot plan with the constraint '[a&b]': it counts nodes or"),
    ],
)
def test_what_slurm_refuses_of_features(fields: dict[str, Any], says: str) -> None:
    """Though there are nodes for it: a promise would be followed by Slurm's own refusal."""
    assert says in described(**fields).problem
    assert not described(**fields, deadline=0).problem


@pytest.mark.parametrize(
    "fields",
    [
        {"features": "[a|(b&c)]|b"},
        {"features": "a&[b|c]"},
        {"features": "[a]"},
        {"features": "(a|b)&(b|c)"},
        {"prefer": "a|c"},
        {"prefer": "[a*1&c*2]"},
        {"features": "a|off"},
    ],
)
def test_what_slurm_accepts_of_features(fields: dict[str, Any]) -> None:
    """A node need not have a feature just now."""
    known = facts()
    assert not described(replace(known, features=known.features | {"off"}), **fields).problem


def test_sites_may_let_features_be_unknown() -> None:
    """Slurm then takes what no node has; and a job that is queued keeps its promise."""
    known = replace(facts(), unchecked=frozenset({"constraint"}))
    assert not described(known, features="gone|a").problem
    assert "of --prefer" in described(known, prefer="gone").problem
    assert unchecked_features({"SchedulerParameters": "bf_x=1,ignore_prefer_validation"}) == {
        "prefer"
    }
    assert unchecked_features({"SchedulerParameters": "(null)"}) == frozenset()
    there = seen(facts(), {"feature": "gone|a", "admin_comment": "rtsched:abc"})
    assert np.isfinite(there.deadline[0])


def test_a_site_without_features_says_so() -> None:
    """No expression can be met there."""
    bare = facts(machine(("",) * 6))
    assert "no node has the features 'a'" in described(bare, features="a").problem
    assert not described(bare, exc_nodes="n1").problem


def rows(*jobs: dict[str, str]) -> JobRows:
    """Return waiting jobs of one node of the partition `all`, numbered from 1."""
    plain = {
        "partition": "all",
        "dependency": "(null)",
        "tres-per-job": "N/A",
        "numcpus": "1",
        "minmemory": "0",
        "timelimit": "10:00",
        "tres": "cpu=1,node=1",
        "maxnodes": "1",
        "prioritylong": "1000",
        "deadline": str(int(NOW) + 80000),
    }
    each = ({**plain, "jobid": str(at + 1), **job} for at, job in enumerate(jobs))
    return job_rows(printed(*each))


def seen(known: SlurmFacts, job: dict[str, str]) -> Any:
    """Return a job as a poll shows it."""
    return jobs_of(rows(job), np.array([0]), known)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"features": "a&b"}, {"feature": "a&b"}),
        ({"features": "a"}, {"feature": "a"}),
        ({"exc_nodes": "n2,n1"}, {"excnodes": "n[1-2]"}),
        ({"exc_nodes": "n1"}, {"excnodes": "n1,n1"}),
        ({"req_nodes": "n2", "features": "a|b"}, {"reqnodes": "n2", "feature": "a|b"}),
    ],
)
def test_a_queued_job_asks_for_the_same(fields: dict[str, Any], shown: dict[str, str]) -> None:
    """However Slurm writes its lists: else the promise would be void."""
    asked, there = described(**fields).jobs, seen(facts(), shown)
    assert there.texts("node_request") == asked.texts("node_request") != [None]
    assert there.texts("partition") == asked.texts("partition")


def test_nodes_that_change_under_a_promise() -> None:
    """It stays the job that it was; the machine's node sets are others."""
    asked = described(features="a&b")
    assert nodes_of(asked) == "01"
    fewer = machine(("a", "a,b", "a", "b", "b", "b"))
    assert nodes_of(asked, fewer) == "1"
    none = machine(("a",) * 6)
    assert nodes_of(asked, none) == ""
    there = seen(facts(none), {"feature": "a&b", "numcpus": "8", "admin_comment": "rtsched:abc"})
    assert there.texts("node_request") == asked.jobs.texts("node_request")
    assert (np.isfinite(there.deadline[0]), there.size[0]) == (True, 4)
    parked = {"feature": "a&b", "admin_comment": "rtsched:parked", "prioritylong": "0"}
    assert np.isinf(seen(facts(none), parked).deadline[0])
    listed = described(req_nodes="n[0-1]", min_nodes=2)
    gone = NodeSets(Nodes.build(1, name=["n0"]), {"all": np.ones(1, np.bool_)})
    assert not gone[listed.jobs.texts("node_request")[0]].any()


def test_node_sets_take_bounded_room() -> None:
    """Users may write any number of requests."""
    sets = NodeSets(Nodes.build(1, name=["n0"]), {})
    for number in range(2 * MOST_KEPT + 1):
        assert not sets[f"--nodelist=x{number} --partition=all"].any()
        assert len(sets) <= MOST_KEPT
    assert len(deepcopy(sets)) == 0
    assert len(list(sets)) == len(sets) > 0


@pytest.mark.parametrize(
    ("excluded", "sizing", "binding"),
    [
        ("", "", ""),
        ("n1", "n1,n1", "n1,n1,n1"),
        ("n1,n1", "n1", "n1,n1,n1"),
        ("n1,n1,n1", "n1", "n1,n1"),
        ("n1,n2", "n[1-2]", "n[1-2],n1,n1"),
    ],
)
def test_an_update_of_waiting_jobs_only_keeps_what_they_exclude(
    excluded: str, sizing: str, binding: str
) -> None:
    """The list is the same, written otherwise: Slurm takes that of no running job."""
    # Sizing comes before binding, so each writes it in a way of its own.
    found = rows({"excnodes": excluded, "maxnodes": "2"})
    view = state(found, facts())
    assert only_waiting(found, 0) == f"ExcNodeList={sizing}"
    changes = sorted(asked_of(view, (1, 0.0, (3,))), key=rank_of)
    size, bind = (each for each in changes if {"set", "bind"} & set(each.text.split()))
    assert f"ExcNodeList={sizing}" in size.command.words
    assert f"ExcNodeList={binding}" in bind.command.words
    applied(view, size.command)
    applied(view, bind.command)
    assert view.rows.excluded == [binding]


def state(found: JobRows, known: SlurmFacts) -> SlurmState:
    """Return what a poll showed of these jobs."""
    shared = bool(known.sharing.resources)
    cluster = machine(shared=shared).cluster
    which = np.arange(len(found))
    observation = Observation(
        NOW, cluster, jobs_of(found, which, known), marks=marks_of(found, which, known)
    )
    return SlurmState(found, observation, known, cluster.nodes.names("name"), [], NOW)


def asked_of(view: SlurmState, *entries: tuple[int, float, tuple[int, ...]]) -> list[Any]:
    """Return what a plan of (job, start after now, nodes), each for 620 s, asks for."""
    offsets = np.cumsum([0, *(len(nodes) for *_, nodes in entries)])
    start = NOW + np.array([start for _, start, _ in entries])
    nodes = np.array([node for *_, some in entries for node in some], np.int32)
    plan = Schedule.build([job for job, *_ in entries], start, start + 620.0, offsets, nodes)
    return reserve_changes(plan, view, SlurmSettings(), LastApplied())


def test_where_jobs_share_nodes_a_job_gets_its_own_list_back() -> None:
    """It is in the admin comment, which users cannot write, after the admission."""
    known = facts(shared=True)
    asked = described(known, req_nodes="n[1-3]", min_nodes=2, max_nodes=2)
    reply = SubmitReply(
        False, "yes", token=ADMISSION, promise=NOW, start=NOW, end=NOW + 620, size=2
    )
    fields = TRANSLATOR.answer(asked, replace(reply, nodes=("n1", "n2")), known)
    assert fields[Tag.REQ_NODES] == "n[1-2]"
    assert fields[Tag.PREFER] == ""  # Slurm refuses a job whose nodes lack what it prefers
    assert fields[Tag.ADMIN_COMMENT] == "rtsched:t1 --nodelist=n[1-3]"
    later = TRANSLATOR.answer(asked, SubmitReply(False, "later", deferred=True), known)
    assert later[Tag.ADMIN_COMMENT] == "rtsched:parked --nodelist=n[1-3]"
    given = {
        "tres": "cpu=2,node=2",
        "maxnodes": "2",
        "prioritylong": str(promised_priority(NOW)),
        "reqnodes": "n[1-2]",
    }
    for mark in ("rtsched:t1 --nodelist=n[1-3]", "rtsched:parked --nodelist=n[1-3]"):
        view = state(rows(given | {"admin_comment": mark}), known)
        assert view.observation.queued.texts("node_request") == asked.jobs.texts("node_request")
        assert asked_of(view, (1, 0.0, (1, 2))) == []
        back, _ = asked_of(view)
        assert back.command.words[3] == "ReqNodeList=n[1-3]"
        restored = restoring(view.rows, [], AppliedFile(), basic=False)
        assert next(iter(restored)).command.words[3:] == back.command.words[3:]
    exact = rows(given | {"admin_comment": "rtsched:t1 --nodelist=n[1-2]"})
    assert [each.command.words[1] for each in restoring(exact, [], AppliedFile(), basic=False)] == [
        "release"
    ]
    assert node_list_in(with_node_list("rtsched:t1", "--constraint=a --partition=all")) == ""


@pytest.mark.parametrize("feature", ["b", ""])
def test_slurm_holds_a_job_whose_nodes_have_not_what_it_wants_any_more(feature: str) -> None:
    """Nobody else does: it is planned on others, or gets its own list back, and Slurm tries it."""
    known, mark = facts(shared=True), {"admin_comment": "rtsched:t1", "reqnodes": "n4"}
    lost = mark | {"feature": feature, "reason": "BadConstraints", "prioritylong": "0"}
    view = state(rows(lost, lost | {"feature": "", "reqnodes": ""}), known)
    assert view.observation.marks.held.tolist() == [False, True]
    assert view.observation.marks.texts("problem") == [None, NOT_FITTING]
    moved = [each.command.words[3] for each in asked_of(view, (1, 0.0, (3,)))]
    assert moved == ["ReqNodeList=n3", f"Priority={promised_priority(NOW)}"]
    back, release = asked_of(view)
    assert (back.command.words[3], release.command.words[1]) == ("ReqNodeList=", "release")
    applied(view, back.command)
    assert asked_of(view) == []


def test_whole_nodes_keep_the_user_s_list() -> None:
    """Nothing of it is changed there."""
    asked = described(req_nodes="n[1-3]", min_nodes=2, max_nodes=2)
    reply = SubmitReply(
        False, "yes", token=ADMISSION, promise=NOW, start=NOW, end=NOW + 620, size=2
    )
    assert Tag.REQ_NODES not in TRANSLATOR.answer(asked, reply, facts())
    given = {"tres": "cpu=2,node=2", "maxnodes": "2", "reqnodes": "n[1-3]"}
    view = state(rows(given | {"admin_comment": "rtsched:t1 --nodelist=n[1-3]"}), facts())
    assert view.observation.queued.texts("node_request") == asked.jobs.texts("node_request")
    changes = asked_of(view, (1, 0.0, (1, 2)))
    assert not [each for each in changes if "ReqNodeList" in " ".join(each.command.words)]
    assert math.isfinite(view.observation.queued.deadline[0])


@pytest.mark.parametrize("shared", [False, True])
def test_memory_per_processor_of_whole_nodes(shared: bool) -> None:
    """A job that is alone on its nodes has it for all processors, whether others share theirs."""
    known = facts(shared=shared)
    least = 1000 // max(CORES)
    for asked, fits in ((least, True), (1000 // min(CORES) + 1, False)):
        job = described(known, num_tasks=1, mem_per_cpu=asked, shared=0)
        assert ("and gets all processors of its nodes" in job.problem) != fits
