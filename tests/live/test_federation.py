"""Jobs that name clusters, and a federation: promised is only what no other cluster may run."""

import json
from collections.abc import Iterator

import pytest
from promising import SITE, Live, in_minutes, live_cluster
from testbed import Cluster, Sandbox, SlurmOptions
from testbed.images import SUITES
from testbed.services import Services
from testbed.waiting import eventually, wait_for

OTHER = SlurmOptions(
    fast=0,
    slow=0,
    large=1,  # on a port of its own: the hosts share one network
    settings={"ClusterName": "other", "SlurmctldHost": "other(127.0.0.1)", "SlurmctldPort": "6827"},
)
ACCOUNTS = """
add cluster other
add account science cluster=other
add user alice account=science cluster=other
"""


@pytest.fixture(scope="module", params=SUITES)
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """Run a cluster with rtsched."""
    with live_cluster(SITE, request.param, fast=1, slow=1) as running:
        yield running


@pytest.fixture(scope="module")
def other(live: Live) -> Sandbox:
    """Start another cluster, without rtsched, in the same accounting database."""
    host = live.cluster.add_host("other")
    text = OTHER.slurm_conf().replace("NodeHostname=head", "NodeHostname=other")
    host.path("/etc/slurm/slurm.conf").write_text(text)
    for line in ACCOUNTS.strip().splitlines():
        live.cluster.run(["sacctmgr", "--immediate", *line.split()])
    services = Services(host)
    services.start(
        "slurmctld",
        ["slurmctld", "-D"],
        user="slurm",
        ready=lambda: "UP" in host.run(["scontrol", "ping"], check=False).stdout,
        timeout=60,
    )
    services.start("slurmd-large1", ["slurmd", "-D", "-N", "large1"])
    states = ["sinfo", "-h", "-o", "%T"]
    wait_for("its node is up", lambda: "idle" in host.run(states, check=False).stdout, 60)
    return host


def job_on(host: Sandbox | Cluster, job: int) -> str:
    """Return what `scontrol show job` says on a host."""
    return host.run(["scontrol", "-o", "show", "job", str(job)], check=False).stdout


def submitted(host: Sandbox, *words: str) -> int:
    """Submit a job on a host; return its number."""
    return int(host.run(words, user="alice").stdout.split()[-1])


def test_jobs_that_name_clusters(live: Live, other: Sandbox) -> None:
    """Their own cluster alone is planned for; what goes to another one is that one's business."""
    job = live.promise("-N1", "--time=1", "-M", "testbed", in_minutes(30), script="true")
    live.wait_state(job, "kept", seconds=60)
    before = len(live.kept())
    reply = live.submit("-N1", "--time=1", "-M", "other", in_minutes(30), script="true")
    assert (reply.job > 0, "rtsched" in reply.text) == (True, False)
    # sbatch asks both when it could start, and takes the one that does not refuse it
    reply = live.submit("-N1", "--time=1", "-M", "testbed,other", in_minutes(30), script="true")
    assert "on cluster other" in reply.text
    assert len(live.kept()) == before


def test_a_federation(live: Live, other: Sandbox) -> None:
    """A deadline needs --clusters with this cluster; a sibling of another's job is refused."""
    cluster = live.cluster
    words = ["add", "federation", "fed", "clusters=testbed,other"]
    cluster.run(["sacctmgr", "--immediate", *words])
    for host in (cluster, other):
        wait_for(
            "the clusters know each other",
            lambda host=host: (
                "Synced:Yes" in host.run(["scontrol", "show", "federation"], check=False).stdout
            ),
            60,
        )
    cluster.restart_daemon()  # or it knows within a minute
    live.polled()
    reply = live.submit("-N1", "--time=1", in_minutes(30))
    assert "another cluster of the federation fed may run it" in reply.text
    assert "--clusters=testbed" in reply.text
    reply = live.submit("-N1", "--time=1", script="true")
    assert reply.job >> 26 == 1  # of both clusters
    job = live.promise("-N1", "--time=1", "--clusters=testbed", in_minutes(30), script="true")
    assert "FedViableSiblings=testbed " in job_on(cluster, job)
    live.wait_state(job, "kept", seconds=60)
    words = ["sbatch", "--output=/dev/null", "-t1", in_minutes(30), "--wrap=true"]
    theirs = submitted(other, *words)
    eventually(lambda: "JobState=COMPLETED" in job_on(other, theirs), 60, "it has run there")
    assert "NodeList=large1 BatchHost=large1" in job_on(other, theirs)
    assert live.state(theirs) == ""
    waits = submitted(other, *words, "--begin=now+5minutes")
    eventually(
        lambda: "FedActiveSiblings=other " in job_on(other, waits), 20, "one sibling is left"
    )
    other.run(["scancel", str(waits)])
    checked = cluster.run(["rtsched", "slurm", "check", "--json"], check=False, timeout=120)
    found = {each["what"]: each["state"] for each in json.loads(checked.stdout)}
    assert [each for each in found if "is in the federation fed" in each]
