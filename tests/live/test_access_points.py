"""Three access points, one daemon: jobs of one number, and a schedd that dies and comes back."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from guide import ENV, Block, blocks, unpack
from promised_pool import EAGER, SITE, SITES_OWN, submit_file, within
from promising import QUICK, SUBMIT_CONF
from testbed import Pool, PoolOptions, fragments
from testbed.access_point import AccessPoint
from testbed.images import CHECKOUT
from testbed.waiting import eventually

GUIDE = CHECKOUT / "docs" / "condor" / "access_points.md"
TABLE = "/shared/slots"
THREE = SITE.replace('admins = ["carol"]', 'filters = ["condor", "root", "rtsched"]').replace(
    "[condor]",
    f"""[condor]
schedds = ["head.testbed", "submit2.testbed", "submit3.testbed"]
table = "{TABLE}"
query_timeout_s = 5""",
)
OTHERS = f"{QUICK}table = {TABLE}\nsocket = /run/rtsched/tunnel.sock\n"
HOME = "/home/rtsched"
"""Of the daemon's user in the testbed; in the guide it is /var/lib/rtsched."""
TOKENS = f"{HOME}/.condor/tokens.d"


class Reply(NamedTuple):
    """What a user read, the cluster's number (0: rejected), and how long it took, seconds."""

    text: str
    cluster: int
    seconds: float


class Three:
    """A pool with three access points, the first of which is the daemon's machine."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.others = [AccessPoint(pool, f"submit{number}") for number in (2, 3)]

    @property
    def places(self) -> list[Pool | AccessPoint]:
        """All access points."""
        return [self.pool, *self.others]

    def follow(self, found: list[Block]) -> None:
        """Run the blocks of the guide on the hosts that they are for."""
        every = {"daemon": [self.pool.box], "others": [each.host for each in self.others]}
        every["all"] = [*every["daemon"], *every["others"]]
        for block in found:
            for host in every[block.host]:
                host.run(["sh", "-eu", "-c", block.text], env=ENV, timeout=120)
            if block.host == "all":
                self._exchange()

    def _exchange(self) -> None:
        """Copy the certificates, as the guide says in words."""
        own = "/etc/rtsched/tunnel.crt"
        theirs = "".join(each.host.path(own).read_text() for each in self.others)
        self.pool.write({"/etc/rtsched/access-points.pem": theirs})
        for each in self.others:
            each.write("/etc/rtsched/daemon.pem", self.pool.path(own).read_text())

    def submit(self, at: int, *lines: str, seconds: float = 30, user: str = "alice") -> Reply:
        """Submit a job at an access point."""
        begun, text = time.monotonic(), submit_file(*lines, seconds=seconds)
        done = self.places[at].run(["condor_submit"], user=user, input=text, check=False)
        found = re.search(r"submitted to cluster (\d+)", done.stdout)
        reply = " ".join((done.stdout + done.stderr).split())
        return Reply(reply, int(found[1]) if found else 0, time.monotonic() - begun)

    def promise(self, at: int, *lines: str, seconds: float = 30) -> int:
        """Submit a job that must be promised its deadline; return its cluster."""
        reply = self.submit(at, *lines, seconds=seconds)

        def promised() -> bool:
            nonlocal reply
            if "promised" in reply.text:
                return True
            if reply.cluster:
                self.places[at].run(["condor_rm", str(reply.cluster)], user="alice")
            reply = self.submit(at, *lines, seconds=seconds)
            return False

        eventually(promised, 60, lambda: f"a promise at {at}: {reply.text}")
        return reply.cluster

    def rtsched(self, *words: str) -> str:
        """Return what a command of an admin prints."""
        done = self.pool.run(["rtsched", *words], check=False)
        return done.stdout + done.stderr

    def history(self, at: int, cluster: int) -> str:
        """Return how a job ended at its schedd; empty: it has not."""
        asked = ["condor_history", str(cluster), "-af", "JobStatus"]
        return self.places[at].run(asked, check=False).stdout.strip()

    def explain(self, name: str) -> str:
        """Return what is known of a job."""
        return self.rtsched("explain", name)

    def state(self, name: str) -> str:
        """Return how a job's promise stands."""
        report = json.loads(self.pool.run(["rtsched", "explain", name, "--json"]).stdout)
        return str(report["promise"]["standing"])


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    """Run a pool of six slots with three schedds; the guide's commands connect them."""
    options = PoolOptions(
        fast=2, slow=4, library=True, config=fragments() | SITES_OWN, settings=EAGER
    )
    files = {SUBMIT_CONF: f"{QUICK}table = {TABLE}\n"}
    with Pool("forky", options, files=files, shared="/shared") as pool:
        pool.run(["chown", "rtsched:", "/shared"])
        running = Three(pool)
        for host in (pool, *running.others):
            unpack(host, kernels=False)
        token = pool.run(
            shlex.split("condor_token_create -identity rtsched@testbed -authz READ -authz WRITE")
        ).stdout
        pool.write({f"{TOKENS}/pool": token})
        pool.run(["chown", "-R", "rtsched:", f"{HOME}/.condor"])
        pool.run(["chmod", "-R", "go=", f"{HOME}/.condor"])
        for each in running.others:
            each.write(SUBMIT_CONF, OTHERS)
            each.start()
            each.run(["condor_qusers", "-add", "rtsched@testbed"])
        pool.run(["condor_reconfig"])
        pool.start_daemon(THREE)
        running.follow(blocks(GUIDE))
        yield running


def test_jobs_of_one_number_are_three(three: Three) -> None:
    """Each schedd's first job is promised its deadline, while its user waits; each is kept."""
    clusters = [three.promise(at, *within(400), seconds=5) for at in range(3)]
    names = [
        f"{schedd}.testbed#{cluster}.0"
        for schedd, cluster in zip(("head", "submit2", "submit3"), clusters, strict=True)
    ]
    for name in names:
        eventually(lambda name=name: f"job {name}" in three.explain(name), 60)  # type: ignore[misc]
    for at, cluster in enumerate(clusters):
        eventually(lambda at=at, cluster=cluster: three.history(at, cluster) == "4", 120)  # type: ignore[misc]
    for name in names:
        eventually(lambda name=name: three.state(name) == "kept", 60)  # type: ignore[misc]
    assert "named with its access point, as in SCHEDD#12.0" in three.explain("1.0")


def test_what_cannot_be_promised_is_rejected_everywhere(three: Three) -> None:
    """With an offer, at an access point without the daemon, within the filter's limit."""
    reply = three.submit(1, *within(30, run_time=1800))
    assert (reply.cluster, "rejected" in reply.text) == (0, True), reply.text
    assert "+RtDeadline=" in reply.text


def test_a_daemon_that_hangs_holds_no_access_point_up(three: Three) -> None:
    """The schedd waits for `timeout_ms`, and then acts as its submit.conf says."""
    before = three.submit(2, *within(400), seconds=1)
    three.pool.services.signal("rtsched", "STOP")
    try:
        reply = three.submit(2, *within(400), seconds=1)
    finally:
        three.pool.services.signal("rtsched", "CONT")
    assert reply.cluster
    assert "without a promise" in reply.text
    assert reply.seconds < before.seconds + 10


def test_a_schedd_dies_and_comes_back(three: Three) -> None:
    """Its promise stands meanwhile, the others are served, and it is kept in the end."""
    lease = "job_lease_duration = 900"
    cluster = three.promise(1, *within(2400, run_time=900), lease, seconds=60)
    name = f"submit2.testbed#{cluster}.0"
    eventually(lambda: "has run" in three.explain(name), 60)
    three.others[0].stop()
    eventually(lambda: "submit2.testbed does not answer" in three.rtsched("status"), 60)
    meanwhile = three.promise(2, *within(400), seconds=2)
    eventually(lambda: three.history(2, meanwhile) == "4", 120)
    eventually(lambda: three.state(f"submit3.testbed#{meanwhile}.0") == "kept", 60)
    assert three.state(name) == "firm"
    three.others[0].start()
    eventually(lambda: "does not answer" not in three.rtsched("status"), 90)
    eventually(lambda: three.history(1, cluster) == "4", 300)
    eventually(lambda: three.state(name) == "kept", 90)


def test_strangers_are_not_let_in(three: Three) -> None:
    """Another certificate than those of the access points is refused before a question is read."""
    script = (
        "cd /tmp && openssl req -x509 -newkey ed25519 -nodes -days 1 -subj /CN=x -keyout x.pem "
        "-out x.crt 2>/dev/null && (sleep 1; echo question; sleep 2) | timeout 10 openssl s_client "
        "-connect 127.0.0.1:6822 -cert x.crt -key x.pem -quiet 2>&1"
    )
    done = three.pool.run(["sh", "-c", script], user="dave", check=False)
    assert "alert" in done.stdout
    assert three.pool.services.alive("rtsched")
