"""What an installation on the head node does to hosts that have none of its files."""

import json
from collections.abc import Iterator

import pytest
from testbed import Cluster, Sandbox, SlurmOptions
from testbed.images import SUITES
from testbed.services import Services, wait_for

PROLOG = "/usr/libexec/rtsched/task_prolog.sh"
CONF = "/etc/slurm/slurm.conf"
SITE = {"/etc/rtsched/site.toml": 'planner = "mcdf"\n\n[[plugin]]\nname = "mcdf"\n'}
ENDED = ("COMPLETED", "FAILED")
OPTIONS = SlurmOptions(
    fast=1,
    slow=2,
    apart=("slow1", "slow2"),
    job_submit=("rtsched",),
    settings={
        "JobSubmitPlugins": "",
        "AccountingStoreFlags": "job_comment",
        # The hosts share one network: a second slurmctld has an address of its own.
        "CommunicationParameters": "NoCtldInAddrAny",
    },
)


@pytest.fixture(params=SUITES)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a node beside the controller, and two on hosts of their own, with nothing of ours."""
    with Cluster(request.param, OPTIONS, files=SITE) as running:
        yield running


def run(cluster: Cluster, words: str, user: str = "root") -> tuple[int, str]:
    """Return exit status and both outputs of a command on the head node, in one line."""
    done = cluster.run(words.split(), user=user, check=False, timeout=120)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def reconfigure(cluster: Cluster) -> None:
    """Copy slurm.conf to all hosts, and have all daemons read it."""
    cluster.copy_conf()
    cluster.run(["scontrol", "reconfigure"])
    cluster.wait_nodes(cluster.slurm.nodes)


def end_of_a_job(cluster: Cluster, node: str) -> str:
    """Run a job on a node; return what became of it."""
    job = cluster.sbatch(["-w", node, "--time=1"], script="true")
    return cluster.wait_job(job, *ENDED)


def about_nodes(cluster: Cluster) -> dict[str, str]:
    """Return what `check --nodes` says of the nodes, by state."""
    words = ["rtsched", "slurm", "check", "--nodes", "--json"]
    found = json.loads(cluster.run(words, check=False, timeout=120).stdout)
    ours = ("task_prolog", "not tested")
    return {x["state"]: x["what"] for x in found if any(word in x["what"] for word in ours)}


def copy_prolog(cluster: Cluster, host: Sandbox) -> None:
    """Put the TaskProlog of the head node on another host, as an admin would."""
    text = cluster.path(PROLOG).read_text()
    host.run(["install", "-D", "-m", "755", "/dev/stdin", PROLOG], input=text)


def test_what_an_installation_leaves_running(cluster: Cluster) -> None:
    """By default jobs run on all nodes; a TaskProlog goes in only when all nodes have the file."""
    status, reply = run(cluster, "rtsched slurm install --apply")
    assert status == 0, reply
    assert "TaskProlog" not in cluster.path(CONF).read_text()
    reconfigure(cluster)
    assert [end_of_a_job(cluster, node) for node in cluster.slurm.nodes] == ["COMPLETED"] * 3
    before = cluster.path(CONF).read_text()
    # A full cluster answers as well.
    cluster.wait_job(cluster.sbatch(["-N3", "--exclusive"], script="sleep 300"), "RUNNING")
    status, reply = run(cluster, "rtsched slurm install --task-prolog --apply")
    assert status == 2
    assert f"2 of the nodes cannot run {PROLOG}: slow1 (it does not exist), slow2" in reply
    assert cluster.path(CONF).read_text() == before
    assert about_nodes(cluster)["good"] == f"1 nodes can run {PROLOG}"
    status, reply = run(cluster, "rtsched slurm check --nodes", user="alice")
    assert (status, "run this as root" in reply) == (3, True)
    # A drained node is not asked, and the others have it now.
    cluster.run(["scontrol", "update", "NodeName=slow2", "State=DRAIN", "Reason=test"])
    copy_prolog(cluster, cluster.hosts["slow1"])
    status, reply = run(cluster, "rtsched slurm install --task-prolog --apply")
    assert status == 0, reply
    assert "not tested, because they accept no jobs now: slow2 (drained)" in reply
    cluster.run(["scancel", "--user=alice"])
    cluster.run(["scontrol", "update", "NodeName=slow2", "State=RESUME"])
    reconfigure(cluster)
    found = about_nodes(cluster)
    assert "2 nodes can run" in found["good"]
    assert "slow2 (steps fail there)" in found["wrong"]
    ends = [end_of_a_job(cluster, node) for node in cluster.slurm.nodes]
    assert ends == ["COMPLETED", "COMPLETED", "FAILED"]
    copy_prolog(cluster, cluster.hosts["slow2"])
    assert end_of_a_job(cluster, "slow2") == "COMPLETED"
    assert about_nodes(cluster) == {"good": f"3 nodes can run {PROLOG}"}
    # One that does not answer, though slurmctld does not know yet.
    cluster.node("slow2").kill()
    found = about_nodes(cluster)
    assert "2 nodes can run" in found["good"]
    assert "slow2 (" in found["wrong"]
    # It stays until it is taken out.
    assert "nothing to change" in run(cluster, "rtsched slurm install --apply")[1]
    assert "-TaskProlog" in run(cluster, "rtsched slurm install --no-task-prolog")[1]


def test_a_plugin_directory_that_other_hosts_lack(cluster: Cluster) -> None:
    """Slurm itself: with such a PluginDir, slurmd ends at the reconfigure, and so do all commands.

    That is why no installation of ours touches it.
    """
    login = cluster.add_host("login")
    cluster.run(["mkdir", "/opt/plugins"])
    conf = cluster.path(CONF)
    conf.write_text(conf.read_text().replace("PluginDir=", "PluginDir=/opt/plugins:"))
    cluster.copy_conf()
    cluster.run(["scontrol", "reconfigure"])
    done = login.run(["sinfo"], check=False)
    assert (done.returncode, "fatal: Unable to process configuration" in done.stderr) == (1, True)
    node = cluster.node("slow1")
    wait_for("slurmd ends", lambda: not node.services.alive("slurmd-slow1"))


def test_a_backup_controller_needs_the_filter(cluster: Cluster) -> None:
    """A backup's slurmctld ends at its start without the plug-in; `check` says so beforehand."""
    backup = cluster.add_host("backup")
    address = backup.address
    with cluster.path("/etc/hosts").open("a") as file:
        file.write(f"{address} backup\n")
    conf = cluster.path(CONF)
    conf.write_text(conf.read_text() + f"SlurmctldHost=backup({address})\n")
    run(cluster, "rtsched slurm install --apply")
    assert "slurmctld runs on head, backup" in run(cluster, "rtsched slurm check")[1]
    cluster.copy_conf()
    services = Services(backup)
    services.start("slurmctld", ["slurmctld", "-D"], user="slurm")
    wait_for("slurmctld ends", lambda: not services.alive("slurmctld"))
    assert "failed to initialize job_submit plugin" in services.log_tail("slurmctld")
    plugin = cluster.path("/usr/lib/rtsched/slurm/job_submit_rtsched.so").read_bytes()
    backup.path("/usr/lib/rtsched/slurm/job_submit_rtsched.so").write_bytes(plugin)
    services.start("slurmctld", ["slurmctld", "-D"], user="slurm")
    log = backup.path("/var/log/slurm/slurmctld.log")
    wait_for("slurmctld stands by", lambda: "running in background mode" in log.read_text())
    assert services.alive("slurmctld")
