"""Promised jobs that take what they ask for of nodes that others share, on a real Slurm."""

import re
from collections.abc import Iterator

import pytest
from gpu_nodes import SHARED, gpu_cluster
from promising import QUICK, SITE, SUBMIT_CONF, Live, in_minutes
from testbed.waiting import eventually

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run two nodes with GPUs and two with more memory, which jobs share."""
    with gpu_cluster(SITE + SHARED, {"fast": 2, "slow": 2}, {"fast": "a"}) as running:
        yield running


def flood(live: Live, count: int, *options: str) -> list[int]:
    """Submit so many best-effort jobs of bob's."""
    script = "sleep 12"
    words = [*options, "--time=1"]
    return [live.cluster.sbatch(words, user="bob", script=script) for _ in range(count)]


def amounts(live: Live, job: int) -> dict[str, str]:
    """Return what a job has, as Slurm tells it."""
    reply = live.cluster.job(job)["AllocTRES"]
    return dict(pair.split("=") for pair in reply.split(",") if "=" in pair)


def seconds_of(live: Live, job: int, field: str) -> int:
    """Return a time of a job, seconds since the epoch, from accounting."""
    words = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", field]

    def found() -> str:
        reply = live.cluster.run(words, env={"SLURM_TIME_FORMAT": "%s"}).stdout.strip()
        return reply if reply.isdigit() else ""

    return int(eventually(found, 30, f"accounting knows {field} of job {job}"))


def test_promises_beside_floods(live: Live) -> None:
    """Cores, memory and GPUs are there at each planned start; others run on beside."""
    others = flood(live, 40, "-n1") + flood(live, 8, "-n1", "--mem=7000")
    others += flood(live, 12, "-n1", "--gres=gpu:1")
    eventually(lambda: live.cluster.job(others[0])["JobState"] == "RUNNING", 60)
    live.polled()
    wishes = {
        "gpus": ("-n4", "-N1", "--gres=gpu:a:3"),
        "memory": ("-n1", "--mem=12000"),
        "tasks": ("-n12",),
    }
    jobs = {
        name: live.promise(*options, "--time=1", in_minutes(8), script="sleep 4")
        for name, options in wishes.items()
    }
    live.polled()
    shown = {name: live.cluster.job(job) for name, job in jobs.items()}
    for name, job in jobs.items():
        if shown[name]["JobState"] == "PENDING":
            assert int(shown[name]["Priority"]) > 3_000_000_000
            assert shown[name]["ReqNodeList"] != "(null)"
        live.wait_state(job, "kept", seconds=200)
    beside = [job for job in others if live.cluster.job(job).get("JobState") == "COMPLETED"]
    assert beside
    for job in jobs.values():
        assert seconds_of(live, job, "End") <= live.deadline_of(job)


def test_a_job_that_was_held_while_the_daemon_was_away_shares_its_node(live: Live) -> None:
    """It asks for no whole node, and gets what it asks for."""
    settings = live.cluster.path(SUBMIT_CONF)
    settings.write_text(QUICK + "on_failure = hold\nshare_nodes = true\n")
    live.cluster.stop_daemon()
    asks = "-n1", "--cpus-per-task=2", "--time=1", in_minutes(60)
    try:
        eventually(lambda: "held until" in live.submit(*asks).text)
        jobs = [live.submit(*asks, script="sleep 4").job for _ in range(2)]
        assert not any(map(live.cluster.has_whole_nodes, jobs))
    finally:
        settings.write_text(QUICK)
        live.cluster.start_daemon(SITE + SHARED)
    for job in jobs:
        live.wait_state(job, "kept", seconds=100)
        assert amounts(live, job)["cpu"] == "2"


def test_a_job_without_time_to_spare_has_its_nodes_reserved(live: Live) -> None:
    """Short jobs that go on coming do not put it off beyond its deadline."""
    others = flood(live, 60, "-n1")
    eventually(lambda: live.cluster.job(others[0])["JobState"] == "RUNNING", 60)
    live.polled()
    job = live.promise("-N1", "-n8", "--time=1", in_minutes(4), script="sleep 4")
    seen = eventually(
        lambda: live.reservations().get(f"rtsched_{job}") or live.state(job) == "kept",
        60,
        "its nodes are reserved, or it was quick",
    )
    assert seen
    live.wait_state(job, "kept", seconds=200)
    eventually(lambda: not live.reservations(), 30, "nothing is reserved any more")


def test_an_array_has_whole_nodes(live: Live) -> None:
    """A job that shares its node with a flood runs there first; both promises are kept."""
    others = flood(live, 60, "-n1")
    eventually(lambda: live.cluster.job(others[0])["JobState"] == "RUNNING", 60)
    live.polled()
    job = live.promise("-n4", "-w", "slow1", "--time=1", in_minutes(8), script="sleep 4")
    options = "--array=1-40", "-n1", "--mem=1800", "--time=1"
    array = live.promise(*options, in_minutes(7), script="sleep 4")
    kept = eventually(lambda: live.reservations().get(f"rtsched_{array}"), 60, "it is reserved")
    nodes = live.names_in(kept["Nodes"])
    live.wait_state(array, "kept", seconds=300)
    live.wait_state(job, "kept", seconds=100)
    tasks = live.ended_tasks(array, 40)
    assert {task.state for task in tasks} == {"COMPLETED"}
    assert max(task.end for task in tasks) <= live.deadline_of(array)
    assert {task.node for task in tasks} <= set(nodes)
    eventually(lambda: not live.reservations(), 30, "nothing is reserved any more")


def test_an_array_with_too_many_gpus(live: Live) -> None:
    """Eight tasks run at a time on two nodes of four GPUs: so many are offered."""
    asked = "-n1", "--gres=gpu:1", "--time=1"
    reply = live.submit("--array=1-400", *asked, in_minutes(4))
    assert not reply.job
    assert "of its 400 tasks would be accepted with the same deadline" in reply.text
    array = live.promise("--array=1-8", *asked, in_minutes(6), script="sleep 3")
    live.wait_state(array, "kept", seconds=200)
    assert {task.node for task in live.ended_tasks(array, 8)} <= {"fast1", "fast2"}


def test_several_nodes_get_the_same(live: Live) -> None:
    """Twelve tasks go six and six, whatever is free on the first node."""
    job = live.promise("-N2", "-n12", "--time=1", in_minutes(6), script="sleep 6")
    live.cluster.wait_job(job, "RUNNING")
    detail = live.cluster.run(["scontrol", "show", "job", "-d", str(job)]).stdout
    each = re.findall(r"Nodes=(\S+) CPU_IDs=(\S+)", detail)
    assert sum(len(live.names_in(nodes)) for nodes, _ in each) == 2
    assert {cpus for _, cpus in each} == {"0-5"}


def test_one_that_fits_nowhere_is_told(live: Live) -> None:
    """More GPUs or memory than a node has, and jobs of which nobody knows when they may start."""
    for options, text in (
        (("--gres=gpu:5",), "requests 5 gres/gpu per node; no node of partition all has more than"),
        (("--mem=20000",), "requests 20000 MiB of memory per node; no node of partition all has"),
        (("--dependency=after:1+5",), "cannot plan with a delay after a start ('after:1+5'); "),
    ):
        reply = live.submit("-n1", *options, "--time=1", in_minutes(6))
        assert not reply.job
        assert text in reply.text


def test_a_broken_promise_gives_the_job_back(live: Live) -> None:
    """A job that is not promised any more waits as any other: no nodes, no priority of ours."""
    busy = [
        live.cluster.sbatch(["-N1", "--exclusive", "--time=3"], user="bob", script="sleep 100")
        for _ in range(4)
    ]
    for job in busy:
        live.cluster.wait_job(job, "RUNNING")
    live.polled()
    job = live.promise("-n1", "--time=1", in_minutes(8), script="sleep 1")
    live.polled()
    assert int(live.cluster.job(job)["Priority"]) > 3_000_000_000
    live.cluster.run(["scontrol", "update", f"JobId={job}", in_minutes(2).strip("-")], user="root")
    live.wait_state(job, "void", "broken", seconds=60)
    live.polled()
    shown = live.cluster.job(job)
    assert int(shown["Priority"]) < 3_000_000_000
    assert shown["ReqNodeList"] == "(null)"
