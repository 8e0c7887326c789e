"""Promises with odds on a real Slurm: accepted, rejected with odds and a later deadline, kept."""

import re
import time
from collections.abc import Iterator

import pytest
from promising import PROLOG, QUICK, SITE, SUBMIT_CONF, Live, Reply, in_minutes, without_jobs
from testbed import Cluster, SlurmOptions
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
ODDS = "--extra=rtsched:odds=95"
PATIENT = SITE.replace("[daemon]", "[daemon]\nmenu_ms = 1500")  # the machine may be busy
NO_ESTIMATE = "no odds can be stated"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run eight nodes with filter and daemon."""
    options = SlurmOptions(
        fast=2,
        slow=6,
        job_submit=("rtsched",),
        settings={
            "TaskProlog": PROLOG,
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "PriorityWeightPartition": "1000",
        },
    )
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}) as cluster:
        cluster.start_daemon(PATIENT + LIKELY)
        yield Live(cluster)


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins without jobs, and with a daemon that may use all nodes."""
    yield from without_jobs(live, 8)


def submitted(live: Live, *args: str, script: str = "sleep 5") -> Reply:
    """Submit a job that asks for odds, as soon as there are estimates."""
    for _ in attempts(60, "starts are estimated"):
        reply = live.submit(ODDS, *args, script=script)
        if NO_ESTIMATE not in reply.text:
            return reply
        time.sleep(0.5)
    raise AssertionError(reply.text)


def present_odds(live: Live, job: int) -> float:
    """Return the odds that a promise has now; 0: they are not known."""
    return float(live.ask("explain", str(job), "--live")["promise"]["odds_now"] or 0.0)


def test_accepted_when_the_queue_is_short_and_kept(live: Live) -> None:
    """The user reads odds; nothing is planned or reserved; the deadline is ours, not Slurm's."""
    reply = submitted(live, "-N2", "--time=2", in_minutes(240))
    assert reply.job, reply.text
    odds = re.search(r"likely to end by [\d: -]+ \+0000: odds (\d[\d.]*) %", reply.text)
    assert odds, reply.text
    assert "not guaranteed" in reply.text
    assert 95 <= float(odds[1]) < 100
    job = live.cluster.job(reply.job)
    assert job.get("Deadline", "N/A") == "N/A"
    assert live.tokens()[reply.job].startswith("rtsched:likely-")
    shown = eventually(lambda: live.ask("explain", str(reply.job), "--live")["promise"])
    assert shown["odds"] >= 0.95
    assert not live.ask("plan", user="root")["entries"]
    assert not live.reservations()
    assert live.wait_state(reply.job, "kept", seconds=90) == "kept"
    report = live.ask("status")
    assert report["standings"]["likely kept"] >= 1
    assert "kept" not in report["standings"]


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


def test_a_deadline_that_the_time_limit_does_not_allow(live: Live) -> None:
    """Slurm itself refuses a deadline before the time limit: odds are about the real run time.

    Users with a past get such deadlines; without one the limit counts, so either verdict is right,
    and Slurm's own refusal is not.
    """
    reply = submitted(live, "-N1", "--time=30", in_minutes(9))
    assert "likely to end by" in reply.text or "odds of ending" in reply.text, reply.text
    assert "deadline invalid" not in reply.text.lower()


def test_rejected_with_odds_and_a_later_deadline_when_the_queue_is_long(live: Live) -> None:
    """Beside a guaranteed promise, which stays as it is."""
    guaranteed = live.promise("-N2", "--time=2", in_minutes(90), script="sleep 5")
    for _ in range(24):
        live.cluster.sbatch(["-N1", "--exclusive", "--time=20"], user="bob", script="sleep 1200")
    live.polled()
    before = live.ask("plan", user="root")["entries"]
    refused: Reply | None = None
    for _ in attempts(60, "the estimates know the queue"):
        refused = submitted(live, "-N8", "--time=2", in_minutes(3))
        if not refused.job:
            break
        live.cluster.run(["scancel", str(refused.job)])
    assert refused is not None
    assert re.search(r"odds of ending by this deadline are \d[\d.]* %, 95 % were", refused.text)
    later = re.search(r"With odds of [\d.]+ %: .* \(--deadline=uts(\d+)\), not res", refused.text)
    assert later, refused.text
    assert float(later[1]) > time.time() + 180
    entries = live.ask("plan", user="root")["entries"]
    after = [entry for entry in entries if entry["standing"] != "offered"]
    assert {entry["job"] for entry in after} <= {entry["job"] for entry in before}
    assert live.state(guaranteed) in {"firm", "kept"}
    menu = live.ask("take")["choices"]
    assert {each["kind"] for each in menu} & {"likely-later", "later"}
    assert all(each["odds"] is None or not each["held"] for each in menu)


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


def test_a_guaranteed_promise_is_untouched(live: Live) -> None:
    """Its start, nodes and deadline are the same before and after likely ones were sold."""
    all_nodes = ["-N8", "--exclusive", "--time=1"]
    live.cluster.wait_job(live.cluster.sbatch(all_nodes, user="bob", script="sleep 45"), "RUNNING")
    live.polled()
    guaranteed = live.promise("-N4", "--time=2", in_minutes(20), script="true")
    live.polled()

    def planned() -> list[tuple[object, ...]]:
        entries = live.ask("plan", user="root")["entries"]
        return [(e["job"], e["start"], e["end"], e["nodes"], e["deadline"]) for e in entries]

    before = planned()
    assert [entry[0] for entry in before] == [str(guaranteed)]
    likely = [submitted(live, "-N1", "--time=1", in_minutes(240)) for _ in range(3)]
    assert all(reply.job for reply in likely), likely
    live.polled()
    assert planned() == before
    for job in (guaranteed, *(reply.job for reply in likely)):
        live.wait_state(job, "kept", seconds=150)


def test_it_survives_a_restart_and_can_be_cancelled(live: Live) -> None:
    """The daemon that comes back knows it; the user gives it up, and the job goes on."""
    reply = submitted(live, "-N1", "--time=3", in_minutes(240), script="sleep 100")
    live.wait_state(reply.job, "firm")
    odds = live.ask("explain", str(reply.job), "--live")["promise"]["odds"]
    live.cluster.stop_daemon()
    live.cluster.start_daemon()
    live.wait_usable(8)
    promise = live.ask("explain", str(reply.job), "--live")["promise"]
    assert (promise["standing"], promise["odds"]) == ("firm", odds)
    known = eventually(lambda: present_odds(live, reply.job), 60, "its odds are estimated")
    assert 0.5 * odds < known < 1.0
    live.cluster.run(["rtsched", "cancel", str(reply.job)], user="alice")
    assert live.state(reply.job) == "withdrawn"
    assert live.cluster.job(reply.job)["JobState"] in {"RUNNING", "PENDING"}


def test_what_cannot_have_odds_is_rejected_in_a_sentence(live: Live) -> None:
    """Odds without a deadline, too low ones, an array, and a user's change of the job."""
    assert "rtsched:odds asks for a deadline" in live.submit(ODDS, "--time=1").text
    low = live.submit("--extra=rtsched:odds=50", "--time=1", in_minutes(9))
    assert "the lowest here are 80 %" in low.text
    array = submitted(live, "--array=1-4", "--time=1", in_minutes(9))
    assert "an array or a divisible load gets no promise with odds" in array.text
    wrong = live.submit("--extra=rtsched:odds=200", "--time=1", in_minutes(9))
    assert "must be a percentage above 0 and below 100" in wrong.text
    reply = submitted(live, "-N1", "--time=3", in_minutes(240), script="sleep 100")
    live.wait_state(reply.job, "firm")
    change = live.command("scontrol", "update", f"jobid={reply.job}", "timelimit=1")
    assert "cannot be changed" in change
