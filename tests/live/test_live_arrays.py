"""Job arrays with one promise, on a real Slurm."""

from collections.abc import Iterator

import pytest
from promising import Live, in_minutes, live_cluster
from testbed.waiting import eventually

CORES = 4

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run four nodes of four cores."""
    with live_cluster(
        fast=0,
        slow=4,
        hardware={"slow": f"CPUs={CORES} RealMemory=4000"},
        settings={
            "DefMemPerCPU": "500",
            "SelectTypeParameters": "CR_Core_Memory",
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "ReturnToService": "1",
        },
    ) as running:
        yield running


def test_one_promise_for_all_tasks(live: Live) -> None:
    """Its tasks run in rounds on whole nodes beside a flood, and all have ended in time."""
    others = [
        live.cluster.sbatch(["-n1", "--time=1"], user="bob", script="sleep 15") for _ in range(60)
    ]
    eventually(lambda: live.cluster.job(others[0])["JobState"] == "RUNNING", 60)
    live.polled()
    array = live.promise("--array=1-24", "-n1", "--time=1", in_minutes(6), script="sleep 4")
    assert len([each for each in live.kept() if each.state in {"firm", "provisional"}]) == 1
    name = f"rtsched_{array}"
    kept = eventually(lambda: live.reservations().get(name), 60, "its nodes are reserved")
    live.wait_state(array, "kept", seconds=300)
    tasks = live.ended_tasks(array, 24)
    assert {task.state for task in tasks} == {"COMPLETED"}
    assert max(task.end for task in tasks) <= live.deadline_of(array)
    assert {task.node for task in tasks} <= set(live.names_in(kept["Nodes"]))
    together = [
        sum(each.start <= task.start < each.end and each.node == task.node for each in tasks)
        for task in tasks
    ]
    assert max(together) == CORES
    eventually(lambda: name not in live.reservations(), 30, "its nodes are free again")


def test_too_many_tasks(live: Live) -> None:
    """It is rejected with the earliest deadline, and with how many tasks would make it."""
    reply = live.submit("--array=1-400", "-n1", "--time=1", in_minutes(4))
    assert not reply.job
    assert "of its 400 tasks would be accepted with the same deadline" in reply.text
    assert reply.offer


def test_tasks_that_fail_or_are_cancelled(live: Live) -> None:
    """The promise was to run them in time: that some failed, or were cancelled, breaks nothing."""
    script = "sleep 3; exit $((SLURM_ARRAY_TASK_ID % 2))"
    array = live.promise("--array=1-48", "-n1", "--time=1", in_minutes(9), script=script)
    live.polled()
    live.cluster.run(["scancel", f"{array}_[41-48]"], user="alice")
    live.wait_state(array, "kept", seconds=300)
    states = [task.state for task in live.ended_tasks(array, 40)]
    assert states.count("FAILED") == 20
    for name in (str(array), f"{array}_3"):
        assert "(kept, given" in live.command("rtsched", "explain", name)


def test_a_daemon_that_is_started_anew(live: Live) -> None:
    """The reservation stays while tasks wait, and the promise is kept."""
    array = live.promise("--array=1-40%8", "-n1", "--time=1", in_minutes(9), script="sleep 3")
    eventually(lambda: live.cluster.job(array).get("JobState") == "RUNNING", 60, "tasks run")
    live.cluster.kill_daemon()
    live.cluster.restart_daemon()
    live.polled()
    assert f"rtsched_{array}" in live.reservations() or live.state(array) == "kept"
    live.wait_state(array, "kept", seconds=300)
    tasks = live.ended_tasks(array, 40)
    assert max(task.end for task in tasks) <= live.deadline_of(array)
