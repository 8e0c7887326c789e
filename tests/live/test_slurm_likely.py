"""Promises with odds on a real Slurm: accepted, rejected with odds and a later deadline, kept."""

import re
from collections.abc import Iterator

import pytest
from alike import Likely
from promising import PROLOG, SITE, Live, in_minutes, live_cluster
from testbed.waiting import attempts, eventually

LIKELY = """
[likely]
share = 1
wait = 1.5

[estimates]
refresh = 1
core_share = 1
"""
JOB = "/home/alice/odds.sh"
SCRIPT = """#!/bin/sh
#SBATCH --nodes=8 --time=2 --output=/dev/null
sleep 2
"""
PATIENT = SITE.replace("[daemon]", "[daemon]\nmenu_ms = 1500")  # the machine may be busy

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run eight nodes with filter and daemon."""
    with live_cluster(
        PATIENT + LIKELY,
        fast=2,
        slow=6,
        settings={
            "TaskProlog": PROLOG,
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "PriorityWeightPartition": "1000",
        },
    ) as running:
        yield running


class TestLikely(Likely):
    """Promises with odds."""

    nodes, width, soon = 8, 8, 180.0

    def check_plain(self, live: Live, job: int) -> None:
        """Check that the deadline is ours, not Slurm's."""
        assert live.cluster.job(job).get("Deadline", "N/A") == "N/A"
        assert live.tokens()[job].startswith("rtsched:likely-")

    def test_a_deadline_that_the_time_limit_does_not_allow(self, live: Live) -> None:
        """Slurm itself refuses a deadline before the time limit: odds are about the real run time.

        Users with a past get such deadlines; without one the limit counts, so either verdict is
        right, and Slurm's own refusal is not.
        """
        reply = self.wish(live, 540, limit=1800, seconds=5)
        assert "likely to end by" in reply.text or "odds of ending" in reply.text, reply.text
        assert "deadline invalid" not in reply.text.lower()

    def test_a_job_is_not_changed(self, live: Live) -> None:
        """Odds without a deadline are refused, and later a user's change of the job."""
        text = live.submit(live.odds(95), "--time=1").text
        assert "rtsched:odds asks for a deadline" in text
        job = self.wish(live, 240 * 60, limit=180, seconds=100).job
        live.wait_state(job, "firm")
        change = live.command("scontrol", "update", f"jobid={job}", "timelimit=1")
        assert "cannot be changed" in change


def test_jobs_without_a_promise_exchange_places_by_deadline(live: Live) -> None:
    """The job without a deadline is second before and after."""
    blocker = live.cluster.sbatch(["-N8", "--time=30"], user="bob", script="sleep 600")
    live.cluster.wait_job(blocker, "RUNNING")
    live.polled()
    ask = ("-N8", "--time=2", "--extra=rtsched:else=run")
    late = live.submit(*ask, in_minutes(20), script="sleep 1").job
    other = live.cluster.sbatch(["-N8", "--time=2", "--nice=10"], user="bob", script="sleep 1")
    early = live.submit(*ask, in_minutes(10), "--nice=20", script="sleep 1").job
    assert late
    assert early

    def priorities() -> list[int]:
        return [int(live.cluster.job(job)["Priority"]) for job in (early, other, late)]

    eventually(lambda: priorities() == [11000, 10990, 10980], 60, "places are exchanged")
    live.polled()
    assert priorities() == [11000, 10990, 10980], "and stay so"
    live.cluster.run(["scancel", str(blocker)])
    for job in (early, other, late):
        live.cluster.wait_job(job, "COMPLETED")
    starts = [live.cluster.job(job)["StartTime"] for job in (early, other, late)]
    assert starts[0] == min(starts), "the last one may be promised its deadline meanwhile"


def test_the_menu_offers_odds_and_the_choice_is_kept(live: Live) -> None:
    """Bob's jobs end long before their limits: no guarantee, but odds that are taken and kept."""
    live.cluster.run(["sh", "-c", 'cat > "$1"', "sh", JOB], user="alice", input=SCRIPT)
    past = [
        live.cluster.sbatch(["-N1", "--exclusive", "--time=20"], user="bob", script="sleep 4")
        for _ in range(16)
    ]
    eventually(
        lambda: all(live.cluster.job(job)["JobState"] == "COMPLETED" for job in past), 120, "past"
    )
    choice, words = "", ["squeue", "-h", "-t", "R", "-u", "bob"]
    for _ in attempts(120, "the menu offers odds"):
        live.cluster.sbatch(["-N8", "--exclusive", "--time=20"], user="bob", script="sleep 30")
        eventually(lambda: live.cluster.run(words).stdout.strip(), 60, "bob's job runs")
        live.polled()
        reply = live.submit("-N8", "--time=2", in_minutes(6))
        assert not reply.job, reply.text
        found = re.search(r"`rtsched take (\d) job.sh`: with odds of [\d.]+ %, by ", reply.text)
        if found:
            choice = found[1]
            break
        live.cluster.run(["scancel", "-u", "bob"])
    taken = live.cluster.run(["rtsched", "take", choice, JOB], user="alice")
    assert "not guaranteed" in taken.stderr
    submitted = re.search(r"Submitted batch job (\d+)", taken.stdout)
    assert submitted
    assert "offered" not in {each.state for each in live.kept()}
    assert live.wait_state(int(submitted[1]), "kept", seconds=150) == "kept"
