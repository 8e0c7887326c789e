"""Two controllers, a daemon beside each: the promises follow the controller that has control."""

import time
from collections.abc import Iterator

import pytest
from promising import SITE, UNPROMISED, Live, eventually, in_minutes
from testbed import Cluster, SlurmOptions

SHARED = SITE + "standby = true\n"
SHORT = ("-N1", "--time=2")
LONG = "sleep 115"  # a job that ends while control goes to another host may stay COMPLETING
SETTINGS = "timeout_ms = 500\nbreaker_ms = 300\n"  # the machine may be busy


class Pair:
    """The two hosts, each as its users see it."""

    def __init__(self, cluster: Cluster) -> None:
        self.head, self.other = Live(cluster), Live(cluster.backup())

    def holder(self) -> tuple[int, str]:
        """Return the epoch, and the host that took the database over last."""
        ((epoch, host),) = self.head.cluster.database("SELECT epoch, host FROM holder")
        return epoch, host

    def wait_active(self, live: Live) -> None:
        """Wait until a host's daemon is the active one."""
        eventually(lambda: mode(live) == "live", 40, lambda: live.cluster.logs())

    def wait_standby(self) -> None:
        """Wait until the second host's daemon is on standby, and each knows how the other is.

        Where kernels are not compiled yet it begins much later than the first.
        """

        def known() -> bool:
            reports = self.head.daemon_status(), self.other.daemon_status()
            peers = [[each.state for each in report.peers] for report in reports if report]
            return peers == [["standby"], ["active"]]

        eventually(known, 40, self.other.cluster.logs)

    def reset(self) -> None:
        """Give control back to the first host, with a daemon on each."""
        for live in (self.other, self.head):
            live.cluster.services.signal("rtsched", "CONT")
            if not live.cluster.services.alive("rtsched"):
                live.cluster.start_daemon()
        if not self.head.cluster.services.alive("slurmctld"):
            self.head.cluster.take_back()
        elif not self.other.cluster.services.alive("slurmctld"):
            self.other.cluster.start_slurmctld()
        self.wait_active(self.head)


def mode(live: Live) -> str:
    """Return how a host's daemon is: live or standby; empty while it does not answer."""
    return report.mode if (report := live.daemon_status()) else ""


def saved(live: Live, job: int) -> None:
    """Wait until the controller has saved a job: what it has not, it loses when it is killed."""
    begun = time.time()
    live.cluster.run(["scontrol", "update", f"JobId={job}", "Comment=to be saved"])
    file = live.cluster.path("/var/spool/slurmctld/job_state")

    def written() -> bool:
        try:
            return file.stat().st_mtime > begun
        except FileNotFoundError:  # slurmctld takes the old file away before it puts the new one
            return False

    eventually(written, 30, "the controller saves its jobs")
    live.cluster.wait_saved()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Run four nodes, two controllers and two daemons."""
    options = SlurmOptions(fast=2, slow=2, job_submit=("rtsched",), backup=True)
    with Cluster("forky", options, files={"/etc/rtsched/submit.conf": SETTINGS}) as cluster:
        cluster.start_daemon(SHARED)
        cluster.backup().start_daemon()
        yield Pair(cluster)


@pytest.fixture(autouse=True)
def clean(pair: Pair) -> Iterator[None]:
    """Each test begins with control on the first host, without jobs."""
    pair.reset()
    yield
    pair.reset()
    pair.head.cancel_all()


def promised_twice(live: Live) -> list[str]:
    """Return the jobs that more than one reservation is held for on one node."""
    seen, twice = set[tuple[str, str]](), []
    for row in live.reservations().values():
        key = (row["Nodes"], row["StartTime"])
        twice += [row["ReservationName"]] if key in seen else []
        seen.add(key)
    return twice


def test_one_is_active_and_each_says_so(pair: Pair) -> None:
    """The daemon beside the controller with control is active, the other one names it."""
    pair.wait_active(pair.head)
    pair.wait_standby()
    status = pair.other.ask("status")
    assert status["mode"] == "standby"
    assert [(each["host"], each["state"]) for each in status["peers"]] == [("head", "active")]
    assert status["problems"] == []
    shown = pair.other.cluster.run(["rtsched", "status"], user="alice").stdout
    assert "on standby" in shown
    reply = pair.other.command("rtsched", "explain", "--last")
    assert "the active daemon is on head" in reply
    peers = pair.head.ask("status")["peers"]
    assert [(each["host"], each["state"]) for each in peers] == [("head2", "standby")]


def test_the_first_host_dies(pair: Pair) -> None:
    """Killed together, controller and daemon are followed by those of the second host."""
    running = pair.head.promise("-N1", "--time=2", in_minutes(60), script=LONG)
    waiting = pair.head.promise("-N4", "--time=2", in_minutes(60), script="sleep 1")
    for job in (running, waiting):
        pair.head.wait_state(job, "firm")
    eventually(lambda: pair.head.reservations())
    saved(pair.head, waiting)
    pair.head.cluster.kill_daemon()
    pair.head.cluster.kill_slurmctld()
    pair.wait_active(pair.other)
    assert pair.holder()[1] == "head2"
    assert {pair.other.state(job) for job in (running, waiting)} == {"firm"}
    new = pair.other.promise(*SHORT, in_minutes(60), script="sleep 1")
    pair.other.wait_state(new, "kept", seconds=40)
    assert promised_twice(pair.other) == []
    status = pair.other.ask("status")
    assert any("head does not respond" in each for each in status["problems"])
    pair.reset()
    assert {pair.head.state(job) for job in (running, waiting)} <= {"firm", "kept"}
    eventually(lambda: mode(pair.other) == "standby")
    assert pair.holder()[1] == "head"


def test_control_is_taken_and_given_back(pair: Pair) -> None:
    """`scontrol takeover` moves control while all live; the first daemon goes on standby."""
    job = pair.head.promise("-N4", "--time=2", in_minutes(60), script=LONG)
    pair.head.wait_state(job, "firm")
    pair.head.cluster.wait_job(job, "RUNNING")
    pair.other.cluster.run(["scontrol", "takeover"], timeout=60)
    pair.wait_active(pair.other)
    eventually(lambda: mode(pair.head) == "standby")
    assert pair.head.cluster.services.alive("rtsched")
    assert pair.other.promise(*SHORT, in_minutes(60), script="sleep 1")
    pair.head.cluster.take_back()
    pair.wait_active(pair.head)
    eventually(lambda: mode(pair.other) == "standby")
    assert pair.head.promise(*SHORT, in_minutes(60), script="sleep 1")
    assert pair.head.state(job) in {"firm", "kept"}


def test_one_that_stood_still_writes_nothing(pair: Pair) -> None:
    """A first host that is frozen and goes on finds that it has lost the database."""
    job = pair.head.promise(*SHORT, in_minutes(60), script=LONG)
    pair.head.wait_state(job, "firm")
    saved(pair.head, job)
    for name in ("rtsched", "slurmctld"):
        pair.head.cluster.services.signal(name, "STOP")
    try:
        pair.wait_active(pair.other)
        pair.other.polled()  # though whoever asks the first host waits for an answer in vain
        epoch, host = pair.holder()
        assert host == "head2"
        # A controller that goes on would believe to have control: what fences a host ends it.
        pair.head.cluster.services.stop("slurmctld", "KILL")
        told = pair.other.promise(*SHORT, in_minutes(60), script="sleep 1")
        pair.other.wait_state(told, "kept", seconds=40)
    finally:
        pair.head.cluster.services.stop("slurmctld", "KILL")
        pair.head.cluster.services.signal("rtsched", "CONT")
    eventually(lambda: mode(pair.head) == "standby")
    assert pair.holder() == (epoch, host)
    log = pair.head.cluster.services.log_tail("rtsched", 400)
    assert '"superseded"' in log
    assert pair.other.state(job) in {"firm", "kept"}, [
        (r.id, r.state, r.why) for r in pair.other.kept()
    ]


def test_the_active_daemon_alone_is_restarted(pair: Pair) -> None:
    """While its controller has control, nobody takes over from a daemon that is away."""
    epoch, _ = pair.holder()
    pair.head.cluster.kill_daemon()
    reply = pair.head.submit(*SHORT, in_minutes(60), script="sleep 1")
    assert reply.job
    assert UNPROMISED in reply.text
    pair.head.cluster.start_daemon()
    pair.wait_active(pair.head)
    assert pair.holder() == (epoch + 1, "head")
    assert mode(pair.other) == "standby"
