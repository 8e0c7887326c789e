"""Divisible loads that jobs take in several rounds, on a real Slurm."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from promising import PROLOG, QUICK, SUBMIT_CONF, Live, in_minutes
from testbed import Cluster, SlurmOptions
from testbed.waiting import eventually

SITE = """
planner = "portfolio"

[[plugin]]
name = "portfolio"

[daemon]
cycle = 1
patience = 10
lapse = 6
restart_exit_codes = [75]
"""
WORKER = """\
#!/bin/sh
# Takes the node's parts of a load of $1 units, $2 s to fetch and $3 s to compute one.
# It fetches each part while it computes the one before.
next() {
    part=$(rtsched chunk --next) || [ $? -eq 1 ] || exit 1
}
slow() {
    sleep "$(echo "$*" | awk '{ print $1 * ($4 - $3) * $2 }')"
}
next
[ -z "$part" ] || slow "$1" "$2" $part
while [ -n "$part" ]; do
    { slow "$1" "$3" $part && echo "$SLURMD_NODENAME $part" >>"$HOME/$SLURM_JOB_ID.done"; } &
    next
    [ -z "$part" ] || slow "$1" "$2" $part
    wait
done
"""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run three nodes; the planner may send loads in up to eight rounds, as it does by default."""
    settings = {
        "TaskProlog": PROLOG,
        "SchedulerParameters": "bf_interval=5,bf_continue,requeue_delay=3",
    }
    options = SlurmOptions(fast=1, slow=2, job_submit=("rtsched",), settings=settings)
    files = {SUBMIT_CONF: QUICK, "/usr/local/bin/worker.sh": WORKER}
    with Cluster("forky", options, files=files) as cluster:
        cluster.run(["chmod", "755", "/usr/local/bin/worker.sh"])
        cluster.start_daemon(SITE)
        yield Live(cluster)


def done(live: Live, job: int) -> list[tuple[str, str, str]]:
    """Return what a job computed, each part with its node, in the order of the load."""
    lines = live.cluster.path(f"/home/alice/{job}.done").read_text().splitlines()
    rows = [tuple(line.split()) for line in lines]
    return sorted(rows, key=lambda row: float(row[1]))


def is_whole(parts: list[tuple[str, str, str]]) -> bool:
    """Return whether parts are all of a load, each once."""
    ends = (parts[0][1], parts[-1][2]) == ("0", "1")
    return ends and all(one[2] == two[1] for one, two in pairwise(parts))


def seconds_of(live: Live, job: int) -> int:
    """Return how long a job ran."""
    words = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "ElapsedRaw"]
    return int(eventually(lambda: live.cluster.run(words).stdout.strip(), 30))


def test_sending_as_slow_as_computing(live: Live) -> None:
    """One node computes a part and is sent the next one meanwhile: 34 s instead of 60 s."""
    load = "--extra=rtsched:sigma=60,cms=0.5,cps=0.5"
    script = "env | grep ^RTSCHED_ >$HOME/$SLURM_JOB_ID.env; srun worker.sh 60 0.5 0.5"
    job = live.promise("-N1", f"{load},rounds=8", in_minutes(15), script=script)
    live.wait_state(job, "kept", seconds=150)
    assert live.cluster.job(job)["JobState"] == "COMPLETED"
    told = live.cluster.path(f"/home/alice/{job}.env").read_text()
    assert "RTSCHED_ROUNDS=" + ":".join(["0.125000000"] * 8) in told.splitlines()
    parts = done(live, job)
    assert [(float(start), float(end)) for _, start, end in parts] == [
        (k / 8, (k + 1) / 8) for k in range(8)
    ]
    assert 33 <= seconds_of(live, job) < 52


def test_tasks_of_two_nodes_take_a_load(live: Live) -> None:
    """Two tasks on each node share its parts; without TaskProlog's variables too.

    The job waits for its nodes, so that its record is one of the daemon's cycles.
    """
    live.promise("-N3", "--time=1", in_minutes(15), script="sleep 10")
    load = "--extra=rtsched:sigma=40,cms=0.1,cps=1,rounds=4"
    script = "srun --ntasks-per-node=2 sh -c 'unset RTSCHED_JOB; exec worker.sh 40 0.02 0.2'"
    job = live.promise("-N2-2", load, in_minutes(15), script=script)
    live.polled()
    record = eventually(lambda: "on" in (shown := live.cluster.job(job)) and shown, 30)
    assert record["JobState"] == "PENDING"
    told = live.ask("chunk", str(job))
    assert told["rounds"] == pytest.approx([float(share) for share in record["rounds"].split(":")])
    names = record["on"].split()[0].split(":")
    rounds = [float(share) for share in record["rounds"].split(":")]
    assert len(rounds) == 4
    assert rounds[1:] == pytest.approx([5 * share for share in rounds[:-1]], rel=1e-5)
    live.wait_state(job, "kept", seconds=120)
    assert live.cluster.job(job)["JobState"] == "COMPLETED"
    parts = done(live, job)
    assert is_whole(parts), parts
    assert [node for node, _, _ in parts] == [name for name in names for _ in range(4)]


def test_other_jobs_take_their_load_at_once(live: Live) -> None:
    """A job that does not say that it takes rounds gets a single part, and a script still ends."""
    load = "--extra=rtsched:sigma=10,cms=0.1,cps=0.1"
    job = live.promise("-N1", load, in_minutes(15), script="srun worker.sh 10 0.1 0.1")
    live.wait_state(job, "kept", seconds=90)
    assert [part[1:] for part in done(live, job)] == [("0", "1")]
    shown = live.cluster.job(job)
    assert "fractions" in shown
    assert "rounds" not in shown


def test_a_restarted_job_begins_anew(live: Live) -> None:
    """It dies after its second part; in its next run it is given all parts again."""
    script = (
        'test -n "$SLURM_RESTART_COUNT" || { rtsched chunk --next; rtsched chunk --next; exit 75; }'
        "; srun worker.sh 20 0.1 0.1"
    )
    load = "--extra=rtsched:sigma=20,cms=0.1,cps=0.1,rounds=4"
    job = live.promise("-N1", load, in_minutes(15), script=script)
    live.wait_state(job, "kept", seconds=120)
    assert live.cluster.job(job)["Restarts"] == "1"
    parts = done(live, job)
    assert len(parts) == 4
    assert is_whole(parts), parts


def test_a_question_counts_rounds(live: Live) -> None:
    """`rtsched feasible` is answered as a submission would be."""
    words = ["feasible", "--sigma", "2000", "--cms", "0.5", "--cps", "0.5"]
    at_once, rounds = (live.ask(*words, *more) for more in ([], ["--rounds", "8"]))
    assert at_once["end"] - at_once["start"] > 1990
    assert rounds["end"] - rounds["start"] < 1500
