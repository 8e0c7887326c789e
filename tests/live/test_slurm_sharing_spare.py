"""The planner `spare` on nodes that jobs share, on a real Slurm."""

from collections.abc import Iterator

import pytest
from gpu_nodes import SHARED, gpu_cluster
from promising import SITE, Live, in_minutes
from test_slurm_sharing import flood, seconds_of
from testbed.waiting import eventually

SPARE = SITE.replace('"mcdf"', '"spare"')

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run one node with GPUs and two with more memory, which jobs share."""
    with gpu_cluster(SPARE + SHARED, {"fast": 1, "slow": 2}, {"fast": "a"}) as running:
        yield running


def test_promises_beside_floods(live: Live) -> None:
    """Cores, memory and GPUs are there at each planned start; an array gets no promise."""
    others = flood(live, 30, "-n1") + flood(live, 6, "-n1", "--mem=7000")
    others += flood(live, 6, "-n1", "--gres=gpu:1")
    eventually(lambda: live.cluster.job(others[0])["JobState"] == "RUNNING", 60)
    live.polled()
    wishes = (("-n4", "-N1", "--gres=gpu:a:3"), ("-n1", "--mem=12000"), ("-n12",))
    jobs = [live.promise(*each, "--time=1", in_minutes(8), script="sleep 4") for each in wishes]
    reply = live.submit("--array=1-4", "-n1", "--time=1", in_minutes(8))
    assert not reply.job
    assert "is an array; this planner gives arrays no promise" in reply.text
    for job in jobs:
        live.wait_state(job, "kept", seconds=200)
        assert seconds_of(live, job, "End") <= live.deadline_of(job)


def test_a_recurring_reservation_keeps_its_time(live: Live) -> None:
    """A node is the site's in 4 minutes: 1 minute fits before, and 10 minutes do not."""
    words = ["starttime=now+4minutes", "duration=30", "nodes=slow2", "flags=daily", "users=root"]
    live.cluster.run(["scontrol", "create", "reservation", "reservationname=nightly", *words])
    try:
        live.polled()
        long = live.submit("-n1", "-w", "slow2", "--time=10", in_minutes(20), script="sleep 1")
        assert not long.job
        assert "and 1 periodic job; 0 of 1 node would be free together in time" in long.text
        short = live.promise("-n1", "-w", "slow2", "--time=1", in_minutes(3), script="sleep 1")
        live.wait_state(short, "kept", seconds=120)
    finally:
        live.cluster.run(["scontrol", "delete", "reservationname=nightly"])


def test_a_graph_beside_a_flood(live: Live) -> None:
    """The second job of a graph, with GPUs, starts after the first one; others run beside."""
    flood(live, 30, "-n1")
    flood(live, 6, "-n1", "--gres=gpu:1")
    live.polled()
    words = "-n1", "--time=1", "--extra=rtsched:dag=night", in_minutes(12)
    first = live.promise(*words, script="sleep 8")
    after = f"--dependency=afterok:{first}"
    second = live.promise(*words, after, "--gres=gpu:a:2", script="sleep 2")
    for job in (first, second):
        live.wait_state(job, "kept", seconds=300)
    assert seconds_of(live, first, "End") <= seconds_of(live, second, "Start")
