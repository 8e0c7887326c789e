"""Promises rest on what is free when a job is submitted, though the last poll was long ago."""

import random
from collections.abc import Iterator

import pytest
from gpu_nodes import SHARED
from promising import PROMISED, SITE, UNPROMISED, Live, live_cluster
from racing import DEADLINE, Races, race
from testbed.waiting import attempts, eventually

NODES = 6
SELDOM = SITE.replace("cycle = 1", "cycle = 40")
"""The daemon polls when it gives a promise, and else so seldom that a test is over before."""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run six nodes with filter and daemon."""
    with live_cluster(
        SELDOM,
        fast=0,
        slow=NODES,
        hardware={"slow": "CPUs=4 RealMemory=1000"},
        settings={"SchedulerParameters": "bf_interval=5", "ReturnToService": "1"},
    ) as running:
        yield running


def with_site(live: Live, site: str) -> None:
    """Start the daemon anew, when no job is left: its first poll sees an empty cluster."""
    live.cancel_all()
    live.cluster.stop_daemon()
    live.cluster.start_daemon(site)
    live.wait_usable(NODES)


def take(live: Live, count: int, *options: str, first: int = 1) -> list[int]:
    """Have bob's jobs start on so many nodes from slow`first` on, unseen by the daemon."""
    before = live.daemon_status()
    jobs = [
        live.cluster.sbatch(
            [*options, f"--nodelist=slow{k}", "--time=10"], user="bob", script="sleep 590"
        )
        for k in range(first, first + count)
    ]
    eventually(lambda: all(live.cluster.job(job)["JobState"] == "RUNNING" for job in jobs), 20)
    after = live.daemon_status()
    assert before is not None
    assert after is not None
    assert before.looked == after.looked, "a poll came between; this shows nothing"
    assert after.running == 0
    return jobs


def asked(live: Live, size: int) -> str:
    """Ask for a promise without slack; return what the user reads."""
    reply = live.submit(f"-N{size}", "--time=1", DEADLINE, script="sleep 3")
    assert UNPROMISED not in reply.text
    return reply.text


def test_no_promise_on_nodes_that_were_just_taken(live: Live) -> None:
    """All are rejected at once, with an offer that can be taken; nobody's job is stopped."""
    with_site(live, SELDOM)
    jobs = take(live, 3, "-N1", "--exclusive", "--no-requeue")
    jobs += take(live, 3, "-N1", "--exclusive", first=4)
    first = live.submit("-N2", "--time=1", DEADLINE)
    texts = [first.text, *(asked(live, 2) for _ in range(3))]
    assert all("rejected" in text and "0 of 6 nodes are free" in text for text in texts), texts
    live.polled()
    taken = live.submit("-N2", "--time=1", first.offer or live.replies[-1].offer)
    assert taken.promised or live.replies[-2].promised, taken.text
    live.polled()
    shown = [live.cluster.job(job) for job in jobs]
    assert {(job["JobState"], job["Restarts"]) for job in shown} == {("RUNNING", "0")}
    assert not [each for each in live.kept() if each.state == "broken"]


def test_what_is_left_is_promised(live: Live) -> None:
    """Four of six nodes were taken: two are promised, start at once, and no third is."""
    with_site(live, SELDOM)
    take(live, 4, "-N1", "--exclusive")
    reply = live.submit("-N2", "--time=1", DEADLINE, script="sleep 3")
    assert reply.promised, reply.text
    assert PROMISED not in asked(live, 1)
    live.wait_state(reply.job, "kept", seconds=60)


def test_jobs_that_wait_for_idle_nodes_come_after_a_promised_one(live: Live) -> None:
    """Slurm starts batch jobs every 3 s. Until then the promise has its place in the queue only.

    The daemon dies when it has answered, so nothing is reserved.
    """
    for _ in attempts(60, "a promise between two passes of Slurm's scheduler"):
        live.cancel_all()
        live.cluster.stop_daemon()
        live.cluster.start_daemon(SELDOM, env={"RTSCHED_FAILPOINT": "answered"})
        live.wait_usable(NODES)
        take(live, 1, "-N1", "--exclusive")  # a pass has just been
        waiting = [
            live.cluster.sbatch(["-N1", "--exclusive", "--time=10"], user="bob", script="sleep 590")
            for _ in range(NODES - 1)
        ]
        reply = live.submit("-N2", "--time=1", DEADLINE, script="sleep 3")
        waited = [job for job in waiting if live.cluster.job(job)["JobState"] == "PENDING"]
        if reply.promised and len(waited) == len(waiting):
            break
    assert reply.promised, reply.text
    eventually(lambda: live.cluster.job(reply.job)["JobState"] != "PENDING", 30)
    assert live.cluster.job(reply.job)["JobState"] in {"RUNNING", "COMPLETING", "COMPLETED"}
    left = [job for job in waiting if live.cluster.job(job)["JobState"] == "PENDING"]
    assert len(left) >= 2
    assert not live.cluster.services.alive("rtsched")


def test_on_shared_nodes_a_promise_without_slack_waits_for_a_poll(live: Live) -> None:
    """What is left of nodes is not known, so the next poll decides, and comes at once."""
    with_site(live, SELDOM + SHARED)
    take(live, NODES, "-n1", "--mem=100")
    idle = live.submit("-n2", "-N1", "--mem=100", "--time=1", DEADLINE, script="sleep 3")
    assert "held for a moment" in idle.text, idle.text
    live.wait_state(idle.job, "firm", "kept", seconds=20)
    hour = "--deadline=now+1hour"
    slack = live.submit("-n2", "-N1", "--mem=100", "--time=1", hour, script="sleep 3")
    assert slack.promised, slack.text


def test_some_races(live: Live) -> None:
    """No promise breaks by a stale state; `benchmarks/live_races.py` runs hundreds."""
    with_site(live, SITE)
    races, rng = Races(), random.Random(7)  # noqa: S311
    for _ in range(3):
        race(live, races, rng, NODES, submissions=4)
    assert not races.stale, races.stale
    assert races.requeued == 0
    assert races.outcomes["unjudged"] < len(races.seconds)
    live.cancel_all()
