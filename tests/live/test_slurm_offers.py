"""Offers and budgets on a real Slurm: rejected jobs keep nobody from starting."""

from collections.abc import Iterator

import pytest
from promising import SITE, Live, live_cluster
from testbed.waiting import eventually

NODES = 4
HELD = SITE.replace("offer = 20", "offer = 45")
TOO_SOON = ("--time=10", "--deadline=now+30seconds")

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run four nodes with our filter and daemon."""
    with live_cluster(HELD, fast=1, slow=3) as running:
        yield running


def state(live: Live, job: int) -> str:
    """Return the state of a job."""
    return live.cluster.run(["squeue", "-h", "-o", "%T", "-j", str(job)]).stdout.strip()


def test_best_effort_jobs_start_beside_any_number_of_rejected_jobs(live: Live) -> None:
    """Nothing is reserved for offers on an idle cluster, not of an array that Slurm refuses."""
    for nodes in (1, 2, 3, 4):
        reply = live.submit(f"-N{nodes}", *TOO_SOON)
        assert not reply.job
        assert "not reserved: submit within 45 s" in reply.text
    reply = live.submit("--array=1-50000", *TOO_SOON)
    assert (reply.job, reply.offer) == (0, "")
    assert "task 50000; task ids must be below" in reply.text
    live.polled()
    assert live.reservations() == {}
    wide = live.submit("-N4", "--time=20", user="bob", script="sleep 600")
    eventually(lambda: state(live, wide.job) == "RUNNING", 30, "a best-effort job starts")
    live.polled()
    assert state(live, wide.job) == "RUNNING"


def test_what_a_rejection_names_can_be_submitted(live: Live) -> None:
    """After any number of offers that nobody took."""
    for _ in range(12):
        assert not live.submit("-n1", *TOO_SOON).job
    reply = live.submit("-n1", *TOO_SOON)
    assert "not reserved" in reply.text
    live.polled()
    assert live.submit("-n1", "--time=10", reply.offer).promised


def test_whoever_cancels_and_submits_again_has_the_machine_for_a_while_only(live: Live) -> None:
    """Behind bob's job alice's is planned on all nodes, cancelled, and planned again."""
    busy = live.submit("-N4", "--time=20", user="bob", script="sleep 600")
    eventually(lambda: state(live, busy.job) == "RUNNING", 60, "bob's job runs")
    live.polled()
    accepted, text = 0, ""
    while accepted < 12:
        reply = live.submit("-N4", "--time=600", "--deadline=now+30hours")
        if not reply.promised:
            text = reply.text
            break
        accepted += 1
        live.polled()
        live.cluster.run(["scancel", str(reply.job)], user="alice")
        live.polled()
    assert "came to nothing in the last hour" in text
    assert accepted <= 6
    assert live.submit("-N4", "--time=60", "--deadline=now+30hours", user="carol").promised
