"""What may fail on a real Slurm: no promise is lost, none is invented, and sbatch never hangs."""

import shutil
from collections.abc import Iterator

import pytest
from alike import Faults
from promising import BOUND, SITE, SUBMIT_CONF, UNPROMISED, Live, burst, in_minutes, live_cluster
from testbed.waiting import eventually

from rtsched.daemon.reconcile import LOST

BURST = 10_000
SHORT = ("-N1", "--time=2")
SETTINGS = "timeout_ms = 500\nbreaker_ms = 300\n"  # the machine may be busy


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run eight nodes with filter and daemon."""
    files = {SUBMIT_CONF: SETTINGS}
    with live_cluster(files=files, fast=2, slow=6) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins with a daemon that answers, without jobs."""
    if not live.cluster.services.alive("slurmctld"):
        live.cluster.start_slurmctld()
    if not live.cluster.services.alive("rtsched"):
        live.cluster.start_daemon(SITE)
    live.replies.clear()
    yield
    live.cancel_all()


class TestFaults(Faults):
    """What may fail beside either system."""

    test_the_process_that_talks_to_slurm_fails = Faults.process_that_polls_fails
    unbroken = ("firm",)

    def promised(self, live: Live) -> list[int]:
        """Return two jobs of all nodes."""
        running = live.promise("-N8", "--time=2", in_minutes(180), script="sleep 15")
        waiting = live.promise("-N8", "--time=2", in_minutes(180), script="true")
        live.wait_state(waiting, "firm")
        return [running, waiting]

    def first(self, live: Live) -> int:
        """Return a job that runs longer than a fault lasts."""
        job = live.promise(*SHORT, in_minutes(60), script="sleep 110")
        live.wait_state(job, "firm")
        return job


def test_without_a_socket(live: Live) -> None:
    """Without the daemon or its socket a job is let in without a promise, at once."""
    live.cluster.stop_daemon()
    replies = [live.submit(*SHORT, in_minutes(60)) for _ in range(3)]
    assert all(UNPROMISED in each.text for each in replies)
    assert live.slowest(replies) < BOUND
    live.cluster.start_daemon()
    eventually(lambda: live.submit(*SHORT, in_minutes(60)).promised)


def test_a_controller_that_restarts(live: Live) -> None:
    """Reconfigured, killed, gone for a while and back: promises and reservations are the same."""
    cluster = live.cluster
    job = live.promise("-N8", "--time=2", in_minutes(60), script="sleep 25")
    waiting = live.promise("-N8", "--time=2", in_minutes(60), script="sleep 1")
    live.wait_state(waiting, "firm")
    guard = f"rtsched_{waiting}"
    eventually(lambda: guard in live.reservations())
    cluster.run(["scontrol", "reconfigure"])
    eventually(lambda: live.promise("-N1", "--time=2", in_minutes(90), script="true"))
    cluster.kill_slurmctld()
    try:
        eventually(lambda: live.ask("status")["problems"])
    finally:
        cluster.start_slurmctld()
    eventually(lambda: not live.ask("status")["problems"])
    assert live.state(job) in {"firm", "kept"}
    assert live.state(waiting) == "firm"
    assert guard in live.reservations()
    assert live.wait_state(waiting, "kept", seconds=90)


def test_a_controller_that_lost_a_job(live: Live) -> None:
    """It was killed before it saved the job: the promise is closed, its nodes are given back."""
    cluster = live.cluster
    running = live.promise("-N8", "--time=2", in_minutes(60), script="sleep 20")
    live.wait_state(running, "firm")
    cluster.wait_job(running, "RUNNING")
    cluster.stop_slurmctld()
    states, saved = cluster.path("/var/spool/slurmctld"), cluster.path("/var/spool/saved")
    cluster.box.run(["cp", "-a", "/var/spool/slurmctld", "/var/spool/saved"])
    cluster.start_slurmctld()
    job = live.promise("-N8", "--time=2", in_minutes(60), script="sleep 1")
    live.wait_state(job, "firm")
    eventually(lambda: f"rtsched_{job}" in live.reservations())
    cluster.kill_slurmctld()
    shutil.rmtree(states)
    saved.rename(states)
    cluster.start_slurmctld()
    live.wait_state(job, "unknown", seconds=60)
    (why,) = (each.why for each in live.kept() if each.id == job)
    assert why == LOST
    assert live.wait_state(running, "kept", seconds=90)
    assert live.promise("-N8", "--time=2", in_minutes(60), script="true") == job


def test_a_controller_that_restarts_is_left_alone(live: Live) -> None:
    """It shows no highest node count of jobs that waited before; that is set once, not for ever."""
    cluster = live.cluster
    live.promise("-N8", "--time=10", in_minutes(60), script="sleep 500")
    waiting = live.promise("-N8", "--time=2", in_minutes(60))
    eventually(lambda: f"rtsched_{waiting}" in live.reservations())
    cluster.restart_slurmctld()

    def updates() -> int:
        log = cluster.services.log_tail("slurmctld", 10_000)
        return log.count(f"_slurm_rpc_update_job: complete JobId={waiting} ")

    def quiet() -> bool:
        before = updates()
        live.polled()
        return updates() == before

    eventually(quiet)
    assert cluster.run(["squeue", "-h", "-j", str(waiting), "-o", "%T"]).stdout.strip() == "PENDING"


def test_reservations_that_come_back(live: Live) -> None:
    """A controller with an older state has reservations of closed promises: they are deleted."""
    cluster, states = live.cluster, "/var/spool/slurmctld"
    running = live.promise("-N8", "--time=2", in_minutes(60), script="sleep 100")
    over = live.promise("-N8", "--time=2", in_minutes(60))
    guard = f"rtsched_{over}"
    eventually(lambda: guard in live.reservations())
    cluster.stop_slurmctld()  # it saves all that it knows
    cluster.run(["cp", "-a", f"{states}/resv_state", f"{states}/resv_state.older"])
    cluster.start_slurmctld()
    cluster.run(["scancel", str(over)])
    live.wait_state(over, "withdrawn")
    eventually(lambda: guard not in live.reservations())
    cluster.stop_slurmctld()
    cluster.run(["mv", f"{states}/resv_state.older", f"{states}/resv_state"])
    cluster.start_slurmctld()
    log = cluster.services.log_tail("slurmctld", 1000).rpartition("slurmctld version")[2]
    assert f"Recovered state of reservation {guard}" in log
    eventually(lambda: guard not in live.reservations())
    assert live.state(running) == "firm"


def test_a_job_that_slurm_cannot_launch(testbed: None) -> None:
    """Slurm holds it: its promise is void, and its user reads that nobody else did that."""
    prolog = "/etc/slurm/prolog.sh"
    files = {SUBMIT_CONF: SETTINGS, prolog: "#!/bin/sh\nexit 1\n"}
    with live_cluster(fast=1, slow=1, settings={"Prolog": prolog}, files=files) as live:
        cluster = live.cluster
        cluster.path(prolog).chmod(0o755)
        job = live.promise(*SHORT, in_minutes(60))
        live.wait_state(job, "void")
        (why,) = (each.why for each in live.kept() if each.id == job)
        assert why == "Slurm could not launch it, and holds it"
        reply = f"the promise is void: {why}"
        eventually(lambda: reply in cluster.run(["scontrol", "show", "job", str(job)]).stdout)


def test_partitions_that_change(testbed: None) -> None:
    """One is removed, and the longest time limit of another lowered: no promise stays for ever."""
    conf, all_nodes = "/etc/slurm/slurm.conf", "Nodes=ALL Default=YES State=UP"
    gone = "PartitionName=other Nodes=ALL State=UP"
    partitions = f"PartitionName=all {all_nodes}\n{gone}"
    with live_cluster(files={SUBMIT_CONF: SETTINGS}, fast=1, slow=1, partitions=partitions) as live:
        runs = live.promise("-N2", "--time=2", "--partition=other", in_minutes(60))
        waits = live.promise("-N2", "--time=2", "--partition=other", in_minutes(60))
        long = live.promise("-N1", "--time=10", in_minutes(90))
        for job in (runs, waits, long):
            live.wait_state(job, "firm")
        text = live.cluster.path(conf).read_text()
        text = text.replace(gone, "").replace(all_nodes, f"{all_nodes} MaxTime=5")
        live.cluster.path(conf).write_text(text)
        live.cluster.run(["scontrol", "reconfigure"])
        for job in (runs, waits):
            live.wait_state(job, "missed")
        live.wait_state(long, "broken", seconds=90)
        whys = {each.id: each.why for each in live.kept()}
    assert whys[runs] == whys[waits] == "the job was ended as its partition was removed"
    assert whys[long] == (
        "the job did not start at 2 planned starts, since it waits for a limit of its account, "
        "QOS or partition (PartitionTimeLimit)"
    )


def test_without_the_accounting_daemon(live: Live) -> None:
    """Without slurmdbd promises are given and kept."""
    live.cluster.stop_slurmdbd()
    try:
        job = live.promise(*SHORT, in_minutes(60), script="true")
        live.wait_state(job, "kept")
    finally:
        live.cluster.start_slurmdbd()


def test_an_end_that_accounting_cannot_tell_yet_is_asked_for_again(testbed: None) -> None:
    """A promise whose job Slurm has forgotten stays open, and is seen, until slurmdbd is back."""
    with live_cluster(fast=1, slow=1, settings={"MinJobAge": "2"}) as live:
        cluster = live.cluster
        job = live.promise(*SHORT, in_minutes(60), script="sleep 8")
        other = live.promise(*SHORT, in_minutes(60), user="bob")
        live.wait_state(job, "firm")
        live.wait_state(other, "firm")
        cluster.stop_daemon()
        cluster.run(["scancel", str(other)])
        eventually(lambda: not cluster.job(job) and not cluster.job(other), 90)
        cluster.stop_slurmdbd()
        cluster.start_daemon()
        problems = eventually(lambda: live.ask("status", user="root")["problems"])
        assert any("sacct" in each and "2 promised jobs" in each for each in problems)
        assert {live.state(job), live.state(other)} == {"firm"}
        log = cluster.services.log_tail("rtsched", 200)
        assert "ends_not_known" in log
        metrics = live.ask("status", "--metrics", user="root")["metrics"]
        assert "rtsched_completion_lookup_failures_total 1.0" in metrics
        cluster.start_slurmdbd()
        live.wait_state(job, "kept", seconds=60)
        live.wait_state(other, "withdrawn")
        eventually(lambda: not live.ask("status", user="root")["problems"])


def test_a_burst(live: Live) -> None:
    """Ten thousand jobs at once are all in the queue; squeue and promises go on meanwhile."""
    first = live.promise(*SHORT, in_minutes(60), script="sleep 60")
    live.wait_state(first, "firm")
    found = burst(live, BURST)
    assert found["wrong"] == []
    assert found["refused"] == 0
    assert found["squeue slowest ms"] < 1000 * BOUND
    assert eventually(lambda: live.submit(*SHORT, in_minutes(60)).promised)
    assert live.state(first) in {"firm", "kept"}
