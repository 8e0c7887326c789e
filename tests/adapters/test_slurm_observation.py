"""From Slurm's rows to jobs, dependencies, allocations, marks and what ended."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import job_rows, printed

from rtsched.adapters.live import CompletionStatus
from rtsched.adapters.slurm.accounts import accounts_of
from rtsched.adapters.slurm.completions import completions_in, find_completions
from rtsched.adapters.slurm.facts import Sharing, SlurmFacts, partitions_of, requeue_delay_of
from rtsched.adapters.slurm.layout import (
    ClusterLayout,
    blocked_of,
    foreign,
    layout_of,
    periodic_of,
    released_late,
)
from rtsched.adapters.slurm.observation import (
    NEVER_SATISFIED,
    NOT_LAUNCHED,
    NOT_PLANNED,
    allocations_of,
    completions_of,
    edges_of,
    jobs_of,
    marks_of,
    token_of,
)
from rtsched.adapters.slurm.requirements import Dependency, dependency_of, refused_dependency
from rtsched.adapters.slurm.rows import JobRows, ReservationRow, node_rows, parts
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.resources import allowed_nodes

NOW = 1_800_000_000.0

NODES = "".join(
    f"NodeName=n{i} CPUEfctv={4 + 4 * (i < 2)} RealMemory=1000 State=IDLE Partitions=all "
    f"ActiveFeatures={'fast' if i < 2 else 'slow'}\n"
    for i in range(6)
)
PARTITIONS = (
    "PartitionName=all Default=YES DefaultTime=00:10:00 MaxTime=1-00:00:00 Nodes=n[0-5] State=UP "
    "MinNodes=0 MaxNodes=UNLIMITED\nPartitionName=few MinNodes=2 MaxNodes=4\n"
)


def machine(reserved: set[str] | None = None, shown: str = NODES, **speeds: float) -> ClusterLayout:
    """Return a machine of two fast nodes and four slow ones."""
    said, default = partitions_of(PARTITIONS)
    settings = SlurmSettings(speeds=speeds)
    return layout_of(node_rows(shown), said, default, reserved or set(), settings)


def facts() -> SlurmFacts:
    """Return facts with a margin of 20 s."""
    known = machine()
    return SlurmFacts(
        margin=20.0, completing=10.0, partitions=known.partitions, default="all", parts=known.parts
    )


def rows(*jobs: dict[str, str]) -> JobRows:
    """Return jobs of the partition `all`, numbered from 1, without dependency or resources."""
    plain = {"partition": "all", "dependency": "(null)", "tres-per-job": "N/A", "numcpus": "1"}
    plain |= {
        "minmemory": "0",
        "timelimit": "10:00",
        "tres": "node=1",
        "maxnodes": "1",
        "admin_comment": "(null)",
    }
    return job_rows(
        printed(*({**plain, "jobid": str(at + 1), **job} for at, job in enumerate(jobs)))
    )


def test_nodes_and_partitions() -> None:
    """Nodes have their features; speeds go by name first, then by feature."""
    known = machine(fast=2.0, n1=3.0)
    assert known.cluster.nodes.speed.tolist() == [2.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    assert known.cluster.pace.tolist() == [1.0] * 6, "limits count by the clock"
    assert (known.cluster.nodes.state == NodeState.UP).all()
    assert known.cluster.nodes.texts("features") == ["fast"] * 2 + ["slow"] * 4
    fast, _ = known.parts.asked("all", "--constraint=fast --partition=all")
    assert (known.partitions["all"].cores, fast.cores, fast.nodes) == (4, 8, 2)
    assert (known.partitions["all"].default_s, known.partitions["all"].longest_s) == (600, 86400)
    whole, few = known.partitions["all"], known.partitions["few"]
    assert (whole.min_nodes, whole.max_nodes, few.min_nodes, few.max_nodes) == (0, math.inf, 2, 4)
    assert whole.cpu_memory == (1000 << 20) // 8
    assert known.rows_of("n[4-5],gone").tolist() == [4, 5]


def test_waiting_running_and_over() -> None:
    """States sort the jobs; those that wait or run come by submission."""
    found = rows(
        {"state": "PENDING", "submittime": "200"},
        {"state": "RUNNING"},
        {"state": "COMPLETING"},
        {"state": "PENDING", "submittime": "100"},
        {"state": "TIMEOUT"},
        {"state": "REQUEUE_HOLD", "submittime": "100"},
        {"state": "SUSPENDED"},
        {"state": "A_NEW_STATE"},
    )
    queued, running, over = (found.id[which].tolist() for which in parts(found))
    assert (queued, running, over) == ([4, 6, 1], [2, 3, 7], [5, 8])


def waiting(**job: str) -> Any:
    """Return one waiting job."""
    found = rows(job)
    found.extra[0] = job.get("extra", "")
    return jobs_of(found, np.array([0]), facts())


def test_a_job_of_one_node_may_use_the_nodes_of_all_its_partitions() -> None:
    """A larger one those of the first: Slurm spreads no job over several partitions."""
    said, default = partitions_of("PartitionName=a Nodes=n[0-1]\nPartitionName=b Nodes=n[4-5]\n")
    shown = NODES.replace("Partitions=all", "Partitions=a", 2).replace(
        "Partitions=all", "Partitions=b"
    )
    cluster = layout_of(node_rows(shown), said, default, set(), SlurmSettings()).cluster
    plain = {"deadline": "N/A"}
    found = rows(
        plain | {"partition": "b,a"},
        plain | {"partition": "b,a", "tres": "node=2", "maxnodes": "2"},
        plain | {"partition": "a"},
    )
    jobs = jobs_of(found, np.arange(3), facts())
    code, masks = allowed_nodes(jobs, cluster)
    every = [np.arange(6).tolist(), *(np.flatnonzero(mask).tolist() for mask in masks)]
    assert [every[at + 1] for at in code.tolist()] == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5], [0, 1]]


def test_shapes() -> None:
    """A range of nodes and a deadline make a moldable job; without a wish it is a rigid one."""
    request = {"tres": "node=2", "maxnodes": "4", "timelimit": "10:00"}
    jobs = waiting(**request)
    assert (jobs.kind[0], jobs.size_min[0], jobs.size_max[0]) == (Kind.MOLDABLE, 2, 4)
    jobs = waiting(**request, deadline="N/A")
    assert (jobs.kind[0], jobs.size[0], jobs.wall_time[0]) == (Kind.RIGID, 2, 620.0)
    jobs = waiting(numcpus="9", deadline="N/A", timelimit="UNLIMITED")
    assert (jobs.size[0], jobs.wall_time[0]) == (3, math.inf)


@pytest.mark.parametrize(
    "job",
    [
        {"jobarrayid": "1_[2-9]", "tres": "node=2", "maxnodes": "2"},
        {"licenses": "x:1"},
        {"feature": "fast*2"},
        {"reservation": "mine"},
        {"timelimit": "UNLIMITED"},
        {"comment": "rtsched:nonsense"},
    ],
)
def test_what_can_be_promised_nothing_has_no_deadline(job: dict[str, str]) -> None:
    """It keeps the form of any other job."""
    jobs = waiting(**job)
    assert jobs.deadline[0] == np.inf
    assert jobs.kind[0] == Kind.RIGID


@pytest.mark.parametrize(
    "changed",
    [{"up": False}, {"longest_s": 60.0}, {"memory": 1 << 20}],
    ids=["closed", "shorter", "smaller"],
)
def test_a_deadline_outlives_what_an_admin_does_to_the_partition(changed: dict[str, Any]) -> None:
    """Nothing new is promised there, yet nobody took away the deadlines of those who wait."""
    known = replace(facts(), parts=None)
    known.partitions["all"] = replace(known.partitions["all"], **changed)
    load = "rtsched:sigma=4,cms=1,cps=100"
    found = rows(
        {"minmemory": "500M"},
        {"comment": load, "tres": "node=1", "maxnodes": "4"},
        {"minmemory": "500M", "admin_comment": "rtsched:parked", "prioritylong": "0"},
    )
    jobs = jobs_of(found, np.arange(3), known)
    assert np.isfinite(jobs.deadline).tolist() == [True, True, False]
    assert jobs.kind[1] == Kind.DIVISIBLE


def test_our_reservation_is_none_of_the_user_s() -> None:
    """A job that the daemon has bound still has its deadline."""
    assert waiting(reservation="rtsched_1").deadline[0] == 1795335074.0


def test_allocations() -> None:
    """Nodes are busy for the limit and the margins; of what is late, for a while from now."""
    start = str(int(NOW) - 100)
    found = rows(
        {"nodelist": "n[0-1]", "starttime": start, "timelimit": "10:00", "state": "RUNNING"},
        {"nodelist": "n2", "starttime": start, "timelimit": "1:00", "state": "RUNNING"},
        {"nodelist": "n3", "endtime": str(int(NOW) - 3), "state": "COMPLETING"},
        {"nodelist": "n4", "starttime": start, "timelimit": "UNLIMITED", "state": "RUNNING"},
    )
    known = allocations_of(found, np.arange(4), machine(), facts(), NOW)
    assert known.nodes.tolist() == [0, 1, 2, 3, 4]
    assert known.entries.end.tolist() == [NOW + 520, NOW + 20, NOW + 7, math.inf]


def test_allocations_on_shared_nodes() -> None:
    """A job ends at its limit until that is over, and then by the margins."""
    found = rows(
        *(
            {"nodelist": "n0", "starttime": str(int(NOW) - past), "timelimit": "1:00"}
            | {"state": "RUNNING"}
            for past in (50, 70, 100)
        )
    )
    shared = replace(facts(), sharing=Sharing(("cpu",)))
    known = allocations_of(found, np.arange(3), machine(), shared, NOW)
    assert known.entries.end.tolist() == [NOW + 10, NOW + 10, NOW + 20]


def test_who_has_whole_nodes() -> None:
    """Waiting or running, by Exclusive."""
    shared = replace(facts(), sharing=Sharing(("cpu",)))
    found = rows(*({"exclusive": word} for word in ("NO", "NODE", "USER", "MCS", "(null)")))
    which, alone = np.arange(5), [False, True, True, True, False]
    assert jobs_of(found, which, shared).exclusive.tolist() == alone
    assert jobs_of(found, which, shared, np.ones(5, np.int32)).exclusive.tolist() == alone


def test_who_has_whole_nodes_before_26_05() -> None:
    """Of a job that runs, OverSubscribe=NO does not say so: Slurm shows it of all."""
    words = ("OK", "YES", "NO", "USER", "MCS")
    shown = [
        {"exclusive": word, "state": state} for state in ("PENDING", "RUNNING") for word in words
    ]
    found = job_rows(printed(*shown), (25, 11)).exclusive
    assert found == ["NO", "NO", "NODE", "USER", "MCS", "NO", "NO", "", "USER", "MCS"]


def test_tokens() -> None:
    """Only our mark with a token counts; a job that its user holds was not deferred by us."""
    marks = ["rtsched:T0k-en_", "rtsched:unjudged", "rtsched:parked", "x rtsched:abc", "", "rt:a"]
    assert list(map(token_of, marks)) == ["T0k-en_", "unjudged", "", "", "", ""]
    found = rows(
        {"admin_comment": "rtsched:parked", "prioritylong": "0", "reason": "JobHeldAdmin"},
        {"admin_comment": "rtsched:abc"},
        {"admin_comment": "rtsched:unjudged", "prioritylong": "0", "reason": "JobHeldUser"},
    )
    known = marks_of(found, np.arange(3), facts())
    assert known.deferred.tolist() == [True, False, False]
    assert known.held.tolist() == [True, False, True]
    assert known.texts("token") == [None, "abc", "unjudged"]


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        ("launch failed requeued held", NOT_LAUNCHED),  # pyslurm, squeue
        ("launch_failed_requeued_held", NOT_LAUNCHED),  # scontrol
        ("JobHoldMaxRequeue", NOT_LAUNCHED),
        ("DependencyNeverSatisfied", NEVER_SATISFIED),
        ("Dependency", None),
        ("JobHeldAdmin", None),
        ("JobHeldUser", None),
        ("Resources", None),
        ("", None),
    ],
)
def test_who_holds_a_job(reason: str, problem: str | None) -> None:
    """Slurm itself holds a job that it could not launch: that is no doing of anybody's."""
    known = marks_of(rows({"prioritylong": "0", "reason": reason}), np.arange(1), facts())
    assert known.held.tolist() == [True]
    assert known.texts("problem") == [problem]


@pytest.mark.parametrize("reason", ["InvalidQOS", "InvalidAccount"])
def test_what_slurm_will_not_start(reason: str) -> None:
    """A job whose QOS or account was taken away keeps no promise, and Slurm's reason is named."""
    known = marks_of(rows({"reason": reason}), np.arange(1), facts())
    (problem,) = known.texts("problem")
    assert problem is not None
    assert reason in problem


@pytest.mark.parametrize("changed", [{"feature": "fast*2"}, {"reservation": "course"}])
def test_a_promised_job_that_was_changed_into_what_cannot_be_planned(
    changed: dict[str, str],
) -> None:
    """The reason is what is the matter now, not that its deadline was removed, which it was not."""
    ours = {"admin_comment": "rtsched:abc"}
    found = rows(ours | changed, changed, ours, ours | changed | {"deadline": "N/A"})
    jobs = jobs_of(found, np.arange(4), facts())
    known = marks_of(found, np.arange(4), facts(), jobs)
    first, *others = known.texts("problem")
    assert first.startswith(NOT_PLANNED)
    assert not any(others)


def test_a_job_that_was_suspended_ends_as_slurm_says() -> None:
    """Slurm moves its end by the time for which it was suspended."""
    runs = {"state": "RUNNING", "starttime": str(int(NOW)), "timelimit": "10:00", "nodelist": "n1"}
    found = rows(runs | {"endtime": str(int(NOW) + 900)}, runs | {"state": "SUSPENDED"})
    ends = allocations_of(found, np.arange(2), machine(), facts(), NOW + 1).entries.end
    assert ends.tolist() == [NOW + 920, NOW + 620]
    assert marks_of(found, np.arange(2), facts()).suspended.tolist() == [False, True]


def test_limits_of_accounts_qos_and_partitions() -> None:
    """Slurm's reason names them; any other reason is none."""
    limits = ["QOSGrpCpuLimit", "AssocGrpNodeLimit", "PartitionTimeLimit", "PartitionNodeLimit"]
    reasons = (*limits, "PartitionDown", "Resources", "(null)")
    found = rows(*({"reason": reason} for reason in reasons))
    marks = marks_of(found, np.arange(len(reasons)), facts())
    assert marks.texts("limit") == [*limits, None, None, None]


def test_endings() -> None:
    """How a job ended, and whether it ran at all."""
    states = ["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "DEADLINE", "CANCELLED", "PREEMPTED"]
    found = rows(*({"state": state, "starttime": "5", "endtime": "9"} for state in states))
    found.nodes[0] = "n1"
    known = completions_of(found, np.arange(len(states)))
    failed = CompletionStatus.FAILED
    assert known.status.tolist() == [
        CompletionStatus.COMPLETED,
        failed,
        CompletionStatus.OWN_LIMIT,
        CompletionStatus.NODE_LOST,
        CompletionStatus.DEADLINE,
        failed,
        failed,
    ]
    assert known.start[0] == 5.0
    assert np.isnan(known.start[1])


def test_the_partition_of_a_job_was_removed() -> None:
    """Slurm fails it as if a node had failed, whether it ran or not."""
    ends = {"state": "NODE_FAIL", "reason": "PartitionDown", "starttime": "5", "endtime": "9"}
    ran = ends | {"nodelist": "n1"}
    found = rows(ran, ends, ran | {"reason": "None"})
    known = completions_of(found, np.arange(3))
    gone = CompletionStatus.PARTITION_GONE
    assert known.status.tolist() == [gone, gone, CompletionStatus.NODE_LOST]
    assert np.isnan(known.start).tolist() == [False, True, False]


def test_with_which_exit_code_a_job_failed() -> None:
    """None where a signal or somebody else ended it; one that never ran is not queued again."""
    ends = [("FAILED", "75:0"), ("FAILED", "0:9"), ("CANCELLED", "75:0"), ("OUT_OF_MEMORY", "0:0")]
    plain = {"starttime": "5", "endtime": "9", "nodelist": "n1", "restartcnt": "2"}
    found = rows(*({**plain, "state": state, "exit_code": code} for state, code in ends))
    known = completions_of(found, np.arange(len(ends)))
    assert known.exit_code.tolist() == [75, -1, -1, -1]
    assert known.requeues.tolist() == [True] * 4
    assert known.restarts.tolist() == [2] * 4
    for changed in ({"requeue": "0"}, {"nodelist": ""}):
        (row,) = [{**plain, "state": "FAILED", "exit_code": "75:0", **changed}]
        assert not completions_of(rows(row), np.arange(1)).requeues.any()


@pytest.mark.parametrize(
    ("config", "delay"),
    [
        ({}, 121.0),
        ({"AuthInfo": "cred_expire=60", "SchedulerParameters": "bf_continue"}, 61.0),
        ({"AuthInfo": "cred_expire=60", "SchedulerParameters": "x,requeue_delay=3"}, 4.0),
        ({"AuthInfo": "(null)", "SchedulerParameters": "(null)"}, 121.0),
    ],
)
def test_how_long_slurm_puts_off_what_it_queues_again(config: dict[str, str], delay: float) -> None:
    """As the controller's settings say."""
    assert requeue_delay_of(config) == delay


def test_what_accounting_knows_of_a_job() -> None:
    """It has an end; a job that is still alive there, or a damaged line, is left out."""
    shown = (
        "7|COMPLETED|100|200\n8|CANCELLED by 1000|Unknown|300\n9|RUNNING|100|Unknown\n"
        "10|TIMEOUT|100|250\n12|DEADLINE|None|400\n11|COMPLETED|1\nx|COMPLETED|1|2\n||\n\n"
    )
    known = completions_in(shown)
    assert known.job.tolist() == [7, 8, 10, 12]
    assert known.end.tolist() == [200.0, 300.0, 250.0, 400.0]
    ends = [
        CompletionStatus.COMPLETED,
        CompletionStatus.FAILED,
        CompletionStatus.OWN_LIMIT,
        CompletionStatus.DEADLINE,
    ]
    assert known.status.tolist() == ends
    assert np.isnan(known.start).tolist() == [False, True, False, True]
    assert len(completions_in("")) == 0


@pytest.mark.parametrize(
    ("status", "upcoming", "lost"),
    [(0, "9", [9, 12]), (0, "13", []), (1, "1", []), (0, "many", [])],
)
def test_jobs_that_the_controller_lost(status: int, upcoming: str, lost: list[int]) -> None:
    """Accounting shows them as pending or not at all, and their numbers are still to be given."""
    config = f"MessageTimeout          = 10 sec\nNEXT_JOB_ID             = {upcoming}\n"
    known = CompletedProcess((), 0, "7|COMPLETED|100|200\n9|PENDING|Unknown|Unknown\n", "")
    said = {"sacct": known, "scontrol": CompletedProcess((), status, config, "")}
    commands: Any = SimpleNamespace(run=lambda name, *_: said[name])
    found = find_completions(commands, [7, 8, 9, 12])
    assert found.job.tolist() == [7, *lost]
    assert found.status.tolist()[1:] == [CompletionStatus.FORGOTTEN] * len(lost)


@given(st.text())
def test_any_words_of_accounting(shown: str) -> None:
    """Whatever sacct prints, nothing of it stops a poll."""
    assert len(completions_in(shown)) >= 0


def test_reservations_of_others() -> None:
    """They set their nodes aside from start to end; recurring ones are periodic work."""
    reservations = [
        ReservationRow("now", NOW - 5, NOW + 5, ("n0",), (), ()),
        ReservationRow("soon", NOW + 50, NOW + 60, ("n1",), (), ("MAINT",)),
        ReservationRow("far", NOW + 5000, NOW + 6000, ("n2",), (), ()),
        ReservationRow("over", NOW - 50, NOW - 5, ("n3",), (), ()),
        ReservationRow("rtsched_1", NOW, NOW + 5, ("n4",), (), ()),
        ReservationRow("rtsched_maint", NOW, NOW + 5, ("n5", "n6"), (), ()),
        ReservationRow("again", NOW + 55, NOW + 90, ("n1", "n0"), (), ()),
        ReservationRow("floats", NOW + 60, NOW + 90, ("n3",), (), ("TIME_FLOAT",)),
        ReservationRow("licenses", NOW, NOW + 5, (), (), ()),
        ReservationRow("daily", NOW - 100, NOW + 500, ("n4", "n5"), (), ("DAILY",)),
    ]
    single, recurring = foreign(reservations, NOW)
    blocked = blocked_of(single, machine().row)
    rows = zip(blocked.node.tolist(), blocked.start.tolist(), blocked.end.tolist(), strict=True)
    assert list(rows) == [
        (0, NOW - 5, NOW + 5),
        (0, NOW + 55, NOW + 90),
        (1, NOW + 50, NOW + 90),
        (2, NOW + 5000, NOW + 6000),
        (3, 0, np.inf),
        (5, NOW, NOW + 5),
    ]
    periodic = periodic_of(recurring, machine().row, NOW)
    assert periodic.node.tolist() == [4, 5]
    assert (periodic.exec_time[0], periodic.period[0], periodic.left[0]) == (600, 86400, 500)
    assert len(periodic_of([], {}, NOW)) == 0


def test_nodes_in_maintenance() -> None:
    """They are back when its reservation ends; one of which no reservation is known is drained."""
    shown = NODES.replace("State=IDLE", "State=IDLE+MAINTENANCE+RESERVED")
    known = machine({"n1", "n2"}, shown)
    state = known.cluster.nodes.state
    assert np.flatnonzero(state == NodeState.UP).tolist() == [1, 2]
    assert np.flatnonzero(state == NodeState.DRAINED).tolist() == [0, 3, 4, 5]
    assert released_late(node_rows(shown), known).tolist() == [0, 3, 4, 5], "it ends as one looks"
    shown = NODES.replace("State=IDLE", "State=IDLE+DRAIN+MAINTENANCE")
    known = machine({"n1"}, shown)
    assert (known.cluster.nodes.state == NodeState.DRAINED).all()
    assert not len(released_late(node_rows(shown), known))
    shown = NODES.replace("State=IDLE", "State=DOWN*+MAINTENANCE")
    assert (machine({"n1"}, shown).cluster.nodes.state == NodeState.DOWN).all()


@pytest.mark.parametrize("day", ["2026-10-20T12:00", "2026-03-20T02:30", "2026-07-01T12:00"])
def test_daily_work_follows_the_local_clock(day: str, berlin: None) -> None:
    """Slurm starts it at the same local time; the models' period holds before and after a change.

    Promises are planned by it: no occurrence of the next two weeks is outside.
    """
    first = datetime.fromisoformat(day)
    start = first.timestamp()
    daily = ReservationRow("d", start, start + 1800, ("n4",), (), ("DAILY",))
    (row,) = [periodic_of([daily], machine().row, start - 600)]
    for number in range(14):
        true = (first + timedelta(days=number)).timestamp()
        released = row.phase[0] + number * row.period[0]
        assert released <= true
        assert true + 1800 <= released + row.exec_time[0] <= true + 1800 + 3600
    assert row.exec_time[0] == (1800 if "07" in day else 5400)
    hourly = replace(daily, flags=("HOURLY",))
    assert periodic_of([hourly], machine().row, start).exec_time.tolist() == [1800]


def test_accounts() -> None:
    """The tree follows the indentation; users know their accounts."""
    shown = (
        "root|||0\n root|root|1|5\n physics||2|100\n  physics|ann|3|90\n  physics|bob|parent|10\n"
    )
    accounts, known = accounts_of(shown + "nonsense\n")
    assert accounts.texts("name") == ["root", "root", "physics", "ann", "bob"]
    assert accounts.parent.tolist() == [-1, 0, 0, 2, 2]
    assert accounts.shares.tolist() == [1.0, 1.0, 2.0, 3.0, 1.0]
    assert known[("physics", "bob")] == 4
    assert accounts.is_user.tolist() == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("text", "jobs", "singleton"),
    [
        ("", (), False),
        ("afterok:12:13,afterany:14_*", (12, 13, 14), False),
        ("afterok:1?afterok:2", (1, 2), False),
        ("singleton", (), True),
        ("Singleton,AfterOK:7", (7,), True),
        ("after:7,singleton", (7,), True),
        ("afterok:7+5", (7,), False),
        ("aftercorr:9_*(unfulfilled)", (9,), False),
        ("afterok:5(failed)?afterok:6(unfulfilled)", (5, 6), False),
        ("afternotok:5_3(unfulfilled),singleton(unfulfilled)", (5,), True),
        ("afterok:5_[1-3,7],afterany:6", (5, 6), False),
        ("afterok:5:5:4", (5, 4), False),
    ],
)
def test_what_is_planned_with(text: str, jobs: tuple[int, ...], singleton: bool) -> None:
    """All jobs that are named count, of alternatives too; Slurm shows what is left of them."""
    assert dependency_of(text) == Dependency(jobs, singleton)


@pytest.mark.parametrize(
    ("text", "jobs", "problem"),
    [
        ("12", (), "cannot plan with the dependency '12'; use after, afterany, "),
        ("expand:3,afterok:4", (4,), "cannot plan with the dependency 'expand:3'; use after, "),
        ("afterburstbuffer:3", (), "cannot plan with the dependency 'afterburstbuffer:3'; use "),
        ("after:7+5", (7,), "cannot plan with a delay after a start ('after:7+5'); leave the "),
    ],
)
def test_what_cannot_be_planned_with(text: str, jobs: tuple[int, ...], problem: str) -> None:
    """It says what would do."""
    found = dependency_of(text)
    assert found.jobs == jobs
    assert found.problem.startswith(problem)


@pytest.mark.parametrize(
    ("text", "unknown", "says"),
    [
        ("afterok:9", "9", "--dependency=afterok names job 9, which Slurm does not know: "),
        ("afterany:7,AfterNotOk:8:12_3", "12_3", "--dependency=afternotok names job 12_3, which"),
        ("afterok:9?afterany:7", "9,7", "names job 9, which"),
        ("afterany:9,after:8,aftercorr:7", "9,8,7", ""),
        ("afterok:9", "8", ""),
        ("afterok:9_[1,3]", "9", "names job 9, which"),
        ("singleton", "9", ""),
    ],
)
def test_jobs_that_slurm_does_not_know(text: str, unknown: str, says: str) -> None:
    """It refuses a job that waits for their success or failure: it cannot be known any more."""
    found = refused_dependency(text, frozenset(unknown.split(",")))
    assert says in found
    assert bool(says) == bool(found)


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    """Whatever a user writes is planned with as a whole, or there is a problem."""
    found = dependency_of(text)
    assert found.problem or not text or found.jobs or found.singleton


NIGHT = {
    "state": "PENDING",
    "partition": "all",
    "username": "ann",
    "userid": "1000",
    "name": "night",
    "dependency": "(null)",
    "deadline": "1900000000",
    "admin_comment": "(null)",
    "hetjobid": "N/A",
    "comment": "(null)",
    "tres": "node=1",
}
ONE = NIGHT | {"dependency": "singleton(unfulfilled)"}
RUNS = {"state": "RUNNING", "deadline": "N/A"}


@pytest.mark.parametrize(
    ("jobs", "edges"),
    [
        ([NIGHT, ONE], [(1, 2)]),
        ([ONE, NIGHT], []),
        ([ONE, NIGHT | RUNS], [(2, 1)]),
        ([NIGHT | {"name": "day"}, NIGHT | {"userid": "1001"}, ONE], []),
        ([NIGHT | {"state": "COMPLETED"}, ONE], []),
        ([ONE, ONE, ONE], [(1, 2), (1, 3), (2, 3)]),
        ([NIGHT, ONE | {"dependency": "afterok:1(unfulfilled),singleton(unfulfilled)"}], [(1, 2)]),
        ([NIGHT, ONE | {"deadline": "N/A"}], []),
        ([NIGHT, ONE | {"deadline": "N/A", "admin_comment": "rtsched:parked"}], [(1, 2)]),
        ([NIGHT | {"hetjobid": "1"}, ONE | {"hetjobid": "1"}], []),
        ([NIGHT | {"name": "(null)"}, ONE | {"name": "(null)"}], []),
    ],
)
def test_whom_a_singleton_waits_for(
    jobs: list[dict[str, str]], edges: list[tuple[int, int]]
) -> None:
    """Jobs of its user and name that run, or that were submitted before it."""
    # Of jobs that ask for nothing nobody needs to know, and there may be many.
    numbered = [job | {"jobid": str(at), "jobarrayid": str(at)} for at, job in enumerate(jobs, 1)]
    rows = job_rows(printed(*numbered))
    queued, running, _ = parts(rows)
    found = edges_of(rows, queued, np.concatenate([queued, running]))
    assert list(zip(found.before.tolist(), found.after.tolist(), strict=True)) == edges
