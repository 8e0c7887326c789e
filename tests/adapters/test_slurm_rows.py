"""What Slurm's commands print, and users' texts in it."""

import math
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import job_rows, printed

from rtsched.adapters.slurm.commands import extras
from rtsched.adapters.slurm.route import shown_text
from rtsched.adapters.slurm.rows import (
    MOST_TASKS,
    JobRows,
    extra_in,
    last_task_in,
    node_rows,
    reservation_rows,
    tasks_in,
)
from rtsched.model.cluster import NodeState


def test_a_job() -> None:
    """Every column has its meaning; what is not said is empty, nan or 0."""
    rows = job_rows(printed({}, {"jobid": "13", "timelimit": "UNLIMITED"}))
    assert rows.id.tolist() == [12, 13]
    assert rows.limit.tolist() == [86520.0, math.inf]
    assert (rows.min_nodes[0], rows.max_nodes[0], rows.cpus[0], rows.memory[0]) == (2, 4, 8, 4096)
    assert (rows.user[0], rows.comment[0], rows.features[0]) == ("ann", "", "")
    assert np.isnan(rows.start[0])
    assert (rows.tres_job, rows.tres_node) == (["gres/gpu:1"] * 2, [""] * 2)
    assert rows.priority[0] == 4294901760
    assert {field.name for field in fields(JobRows)} == set(vars(rows))


def test_an_array_and_a_part() -> None:
    """Arrays and heterogeneous jobs are told apart."""
    labels = ("12_[1-9]", "13", "12_3", "7_[0-20:5,30%2]")
    rows = job_rows(printed(*({"jobarrayid": each} for each in labels)))
    assert rows.array.tolist() == [12, -1, 12, 7]
    assert rows.tasks.tolist() == [9, 0, 1, 6]
    assert rows.parallel.tolist() == [0, 0, 0, 2]
    rows = job_rows(printed({}, {"hetjobid": "12"}))
    assert rows.het.tolist() == [-1, 12]


@pytest.mark.parametrize(
    ("text", "tasks", "parallel", "last"),
    [
        ("1-5", 5, 0, 5),
        ("[1-5]", 5, 0, 5),
        ("[1-5:2]%2", 3, 2, 5),
        ("0-6:2]", 4, 0, 6),
        ("1-3, 5", 4, 0, 5),
        (" 3-+4,,", 2, 0, 4),
        ("1-4%2,20", 5, 2, 20),
        ("007-009%x", 3, 0, 9),
        ("7%-1", 1, 0, 7),
        ("1-4294967296", MOST_TASKS, 0, 4294967296),
    ],
)
def test_tasks_as_slurm_reads_them(text: str, tasks: int, parallel: int, last: int) -> None:
    """Brackets, blanks, signs and a limit behind any of the ranges."""
    assert (*tasks_in(text), last_task_in(text)) == (tasks, parallel, last)


@pytest.mark.parametrize(
    "text", ["x", "1-", "5-1", "1-5:0", "1;2", "0x3", "1-2-3", "1-9,x", f"0-{'9' * 20}", "9" * 9999]
)
def test_no_tasks_for_slurm(text: str) -> None:
    """What Slurm cannot read names no last task."""
    assert last_task_in(text) == -1


@given(st.text())
def test_any_text_for_tasks(text: str) -> None:
    """Whatever stands there, counts are in range."""
    tasks, parallel = tasks_in(text)
    assert 0 <= tasks <= MOST_TASKS
    assert 0 <= parallel <= MOST_TASKS


def test_extra_of_a_job() -> None:
    """Extra is the last such line; a comment that looks like it loses."""
    text = "JobId=4 JobName=x\n   Comment=a\n   Extra=false\n   Extra=true words\n   StdErr=\n"
    assert extra_in(text) == "true words"
    assert extra_in("JobId=4 JobName=x\n   Comment=a\n") == ""


def test_a_forged_record_in_a_dump() -> None:
    """A job whose record occurs twice is left out of the dump, to be asked for by itself."""
    dump = (
        b"JobId=4 JobName=x\n   Comment=\n\nJobId=5 JobName=y\n   Extra=forged\n\n"
        b"JobId=5 JobName=y\n   Extra=real\n\nJobId=6 JobName=z\n   Extra=six\n\n"
    )
    assert extras([dump]) == {4: "", 6: "six"}


@given(st.text("\r\n JobId=4Extra", max_size=200), st.lists(st.integers(0, 400), max_size=9))
def test_a_dump_in_pieces(comment: str, cuts: list[int]) -> None:
    """Where a dump is cut is no matter."""
    records = [f"JobId={job} JobName=x\n   Comment={comment}\n   Extra=é{job}\n" for job in (4, 5)]
    dump = "\n".join(records).encode()
    places = [0, *sorted(min(cut, len(dump)) for cut in cuts), len(dump)]
    assert extras(dump[a:b] for a, b in pairwise(places)) == extras([dump])


@pytest.mark.parametrize(
    ("state", "meant"),
    [
        ("IDLE", NodeState.UP),
        ("MIXED+PLANNED", NodeState.UP),
        ("ALLOCATED+RESERVED", NodeState.UP),
        ("ALLOCATED+COMPLETING", NodeState.UP),
        ("IDLE+DRAIN", NodeState.DRAINED),
        ("ALLOCATED+DRAIN", NodeState.DRAINED),
        ("IDLE+MAINTENANCE", NodeState.UP),
        ("IDLE+MAINTENANCE+DRAIN", NodeState.DRAINED),
        ("DOWN", NodeState.DOWN),
        ("DOWN*+DRAIN", NodeState.DOWN),
        ("IDLE+NOT_RESPONDING", NodeState.DOWN),
        ("UNKNOWN", NodeState.UP),
        ("UNKNOWN*", NodeState.DOWN),
        ("IDLE+POWERED_DOWN", NodeState.DRAINED),
        ("IDLE+REBOOT_REQUESTED", NodeState.DRAINED),
    ],
)
def test_node_states(state: str, meant: NodeState) -> None:
    """Only nodes that take jobs are up."""
    (row,) = node_rows(f"NodeName=n1 CPUTot=8 RealMemory=100 State={state} Partitions=a,b \n")
    assert row.state == meant
    assert row.maintenance == ("MAINTENANCE" in state)
    assert row.partitions == ("a", "b")


def test_an_admin_s_text_in_a_node() -> None:
    """Of what occurs twice, the first counts: texts come last."""
    (row,) = node_rows("NodeName=n1 CPUEfctv=3 CPUTot=4 State=IDLE Reason=x State=DOWN CPUTot=1\n")
    assert (row.state, row.cores) == (NodeState.UP, 3)


def test_what_a_node_keeps_for_the_system() -> None:
    """No job gets it, nor counts a unit of a generic resource as less than it is."""
    (row,) = node_rows(
        "NodeName=n1 CPUEfctv=6 CPUTot=8 RealMemory=100 MemSpecLimit=40 Gres=gpu:a:2,disk:3K\n"
    )
    assert (row.cores, row.memory >> 20, dict(row.gres)["gres/disk"]) == (6, 60, 3 << 10)


def test_reservations() -> None:
    """Times, nodes, users and flags."""
    (row,) = reservation_rows(
        "ReservationName=rtsched_1 StartTime=1795316967 EndTime=1795317367 Duration=00:06:40 "
        "Nodes=slow[5-6] NodeCnt=2 Flags=OVERLAP,SPEC_NODES Users=alice Groups=(null) "
        "State=ACTIVE MaxStartDelay=(null)\n"
    )
    assert (row.start, row.end, row.nodes) == (1795316967.0, 1795317367.0, ("slow5", "slow6"))
    assert (row.users, row.active) == (("alice",), True)


def test_no_reservations() -> None:
    """Slurm's sentence that there are none is no reservation."""
    assert reservation_rows("No reservations in the system\n") == []


def test_a_name_that_is_no_text_hides_no_job():
    """A job whose name pyslurm cannot decode is seen with a mark in its place."""

    class Job:
        @property
        def name(self):
            return b"a\xff".decode()

        comment = None

    assert shown_text(Job(), "name") == "\N{REPLACEMENT CHARACTER}"
    assert shown_text(Job(), "comment") == ""
