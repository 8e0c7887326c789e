"""The testbed itself: clusters start, are apart from each other, and leave nothing behind."""

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testbed import Cluster, Sandbox, SlurmOptions, SubmitError, TestbedError, unavailable
from testbed.images import SUITES, requirements
from testbed.layers import Layer
from testbed.slurm_source import has_pyslurm
from testbed.waiting import eventually, wait_for

from rtsched.logs.sacctmgr import SHOW_EVENTS, Outage, read_outages
from rtsched.model.cluster import NodeState

SMALL = SlurmOptions(fast=1, slow=1)
LUA = """
function slurm_job_submit(job, partitions, uid)
  if job.name == "refused" then slurm.log_user("not this one") return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


def mounts() -> str:
    """Return what this process sees mounted."""
    return Path("/proc/self/mountinfo").read_text()


def ended(pid: int) -> bool:
    """Return whether a process is gone."""
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("suite", SUITES)
def test_a_job_runs_and_is_accounted_for(suite: str) -> None:
    """On both releases a user's job runs on real nodes, and sacct knows it and its account."""
    with Cluster(suite, SMALL, software=False) as running:
        job = running.sbatch(["-N2", "--time=1"], user="alice", script="srun hostname")
        running.wait_job(job)
        asked = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "User,Account,NNodes,State"]
        wait_for(
            "sacct shows the job's end",
            lambda: running.run(asked).stdout.strip() == "alice|science|2|COMPLETED",
        )


def test_thirty_nodes_and_their_kinds(cluster: Cluster) -> None:
    """Five fast and 25 slow nodes take jobs; a feature selects among them."""
    states = cluster.run(["sinfo", "-h", "-o", "%D %f"]).stdout.split()
    assert sorted(zip(states[::2], states[1::2], strict=True)) == [("25", "slow"), ("5", "fast")]
    with pytest.raises(SubmitError, match="node configuration is not available"):
        cluster.sbatch(["-N6", "-C", "fast"])


def test_start_is_quick(cluster: Cluster) -> None:
    """With its layers made, 30 nodes with accounting are up in less than 15 seconds."""
    began = time.monotonic()
    with Cluster("forky"):
        assert time.monotonic() - began < 15


def test_shares_and_levels(cluster: Cluster) -> None:
    """Alice, bob and carol have shares 1, 2 and 3; rtsched is an Operator."""
    shares = cluster.run(["sshare", "-a", "-n", "-P", "-A", "science", "-o", "User,RawShares"])
    assert {"alice|1", "bob|2", "carol|3"} <= set(shares.stdout.split())
    level = cluster.run(["sacctmgr", "-n", "-P", "show", "user", "rtsched", "format=adminlevel"])
    assert level.stdout.strip() == "Operator"


def test_a_node_with_files_of_its_own() -> None:
    """A node on another host runs jobs and sees none of the head's files; so does a login node."""
    options = SlurmOptions(fast=1, slow=1, apart=("slow1",), database=False)
    with Cluster("forky", options, software=False) as running:
        running.write({"/usr/local/share/here": "x\n"})
        words = ["srun", "-N2", "sh", "-c", "hostname; ls /usr/local/share/here; true"]
        shown = running.run(words)
        assert sorted(shown.stdout.split()) == ["/usr/local/share/here", "head", "slow1"]
        assert "cannot access" in shown.stderr
        job = running.sbatch(["-w", "slow1"], script="sleep 100")
        running.wait_job(job, "RUNNING")
        running.node("slow1").kill()
        running.run(["scancel", str(job)])
        running.node("slow1").start()
        assert running.run(["srun", "-w", "slow1", "hostname"]).stdout == "slow1\n"
        login = running.add_host("login")
        assert "slow1" in login.run(["sinfo", "-h", "-N"]).stdout
        assert not login.path("/usr/local/share/here").exists()
    assert not login.alive


def test_two_at_the_same_time(cluster: Cluster) -> None:
    """A second cluster, on the same ports, knows nothing of the first one's jobs."""
    job = cluster.sbatch(["--hold"], user="bob")
    with Cluster("forky", SMALL, software=False) as other:
        assert other.run(["squeue", "-h"]).stdout == ""
        assert cluster.job(job)["JobState"] == "PENDING"
    cluster.run(["scancel", str(job)])


def test_nothing_is_left() -> None:
    """After a teardown no process, mount or directory is there that was not before."""
    before = mounts()
    with Cluster("forky", SMALL, software=False) as running:
        pid, directory = running.box.pid, running.box.directory
        running.sbatch(script="sleep 100")
        assert mounts() == before
    assert ended(pid)
    assert directory is not None
    assert not directory.exists()


OWNER = """
from testbed import Cluster, SlurmOptions
running = Cluster("forky", SlurmOptions(fast=1, slow=0), software=False)
running.start()
print(running.box.pid, running.box.directory, flush=True)
input()
"""


def test_a_killed_owner_leaves_nothing_running() -> None:
    """Kill -9 of the process that owns a cluster ends it, and its directory goes too."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert not ended(int(pid))
        owner.send_signal(signal.SIGKILL)
    wait_for("the cluster ends", lambda: ended(int(pid)), 10)
    wait_for("its directory goes", lambda: not Path(directory).exists(), 20)


def test_a_node_dies_and_comes_back(tmp_path: Path) -> None:
    """A killed node takes its job's processes with it; a stopped slurmd does not.

    Accounting has the outage, as a replay reads it.
    """
    options = SlurmOptions(fast=0, slow=2, settings={"SlurmdTimeout": "5"})
    with Cluster("forky", options, software=False) as running:
        job = running.sbatch(["-w", "slow1", "--no-requeue"], script="sleep 300")
        running.wait_job(job, "RUNNING")
        wait_for("the script runs", lambda: "sleep 300" in running.run(["ps", "ax"]).stdout)
        node = running.node("slow1")
        node.stop()
        assert "sleep 300" in running.run(["ps", "ax"]).stdout
        node.start()
        node.kill()
        assert "sleep 300" not in running.run(["ps", "ax"]).stdout
        running.wait_job(job, "NODE_FAIL")
        events = tmp_path / "events.txt"

        def outages(*, over: bool) -> list[Outage]:
            events.write_text(running.run(shlex.split(SHOW_EVENTS)).stdout)
            return [one for one in read_outages(events, "UTC") if math.isfinite(one.end) == over]

        (down,) = eventually(lambda: outages(over=False), 60, "accounting knows that it is down")
        wait_for("the outage takes a second", lambda: time.time() > down.start + 1)
        node.start()
        (outage,) = eventually(lambda: outages(over=True), 60, "accounting knows that it is back")
        assert (outage.node, outage.state, outage.start) == ("slow1", NodeState.DOWN, down.start)
        assert time.time() - 300 < outage.start < outage.end <= time.time() + 1


def test_daemons_restart(cluster: Cluster) -> None:
    """Controller and accounting daemon are stopped, killed and started; jobs stay."""
    job = cluster.sbatch(["--hold"])
    cluster.restart_slurmctld()
    cluster.kill_slurmctld()
    cluster.start_slurmctld()
    cluster.stop_slurmdbd()
    cluster.start_slurmdbd()
    assert cluster.job(job)["JobState"] == "PENDING"
    cluster.run(["scancel", str(job)])


def test_options_reach_slurm() -> None:
    """Settings, nodes that never answer, a site's Lua script, no database, more partitions."""
    options = SlurmOptions(
        fast=1,
        slow=0,
        down=2000,
        settings={"KillWait": "7", "MailProg": ""},
        partitions="PartitionName=a Nodes=fast1 Default=YES\nPartitionName=b Nodes=ALL",
        job_submit=("lua",),
        job_submit_lua=LUA,
        database=False,
    )
    files = {"/etc/rtsched/a-file": "text\n"}
    with Cluster("forky", options, files=files, software=False) as running:
        config = running.run(["scontrol", "show", "config"]).stdout
        assert re.search(r"KillWait\s+= 7 sec", config)
        assert re.search(r"AccountingStorageType\s+= \(null\)", config)
        assert "2000" in running.run(["sinfo", "-h", "-p", "b", "-t", "down", "-o", "%D"]).stdout
        with pytest.raises(SubmitError, match="not this one"):
            running.sbatch(["-J", "refused"])
        assert running.path("/etc/rtsched/a-file").read_text() == "text\n"


def test_our_software_is_there() -> None:
    """Our wheel is installed, pyslurm fits, the submit filter is loaded, our daemon answers."""
    options = SlurmOptions(fast=1, slow=1, job_submit=("rtsched",))
    with Cluster("forky", options) as running:
        assert running.run(["rtsched", "--version"], user="alice").stdout.startswith("rtsched")
        if has_pyslurm():
            count = "import pyslurm; print(len(pyslurm.Nodes.load()))"
            assert running.run(["python", "-c", count], user="rtsched").stdout == "2\n"
        config = running.run(["scontrol", "show", "config"]).stdout
        assert re.search(r"JobSubmitPlugins\s+= rtsched", config)
        running.start_daemon("")
        running.kill_daemon()
        running.start_daemon()
        running.stop_daemon()


def test_the_daemons_clock_steps() -> None:
    """The daemon's clock, and its child's, is set to another time while it runs."""
    with Cluster("forky", SMALL) as running:
        running.start_daemon("", stepping=True)
        running.step_clock(7 * 86400.0)
        running.restart_daemon()
        log = running.path("/var/log/testbed/rtsched.log").read_text().splitlines()
        dates = {re.findall(r'"timestamp":"(\d+-\d+-\d+)', line)[0] for line in log}
        assert len(dates) == 2


def test_what_a_start_says_when_it_fails() -> None:
    """A controller that refuses its settings ends the start, with its own words."""
    options = SlurmOptions(fast=1, slow=0, settings={"SelectType": "select/none_such"})
    with pytest.raises(TestbedError, match="none_such"):
        Cluster("forky", options, software=False).start()


class TestCommands:
    """Commands run inside as their users."""

    def test_who_and_where(self, cluster: Cluster) -> None:
        """A command has its user's ids, home and environment, and what is added."""
        script = 'id -u; id -G; pwd; echo "$HOME $USER $MORE"; cat'
        done = cluster.run(["sh", "-c", script], user="bob", env={"MORE": "x"}, input="in")
        assert done.stdout.split() == ["2002", "2002", "/home/bob", "/home/bob", "bob", "x", "in"]

    def test_failures_say_why(self, cluster: Cluster) -> None:
        """Exit statuses, time limits and unknown users are errors with the output."""
        with pytest.raises(TestbedError, match=r"exit status 3: sh -c(.|\n)*oops"):
            cluster.run(["sh", "-c", "echo oops >&2; exit 3"])
        with pytest.raises(TestbedError, match=r"took over 0\.2 s: sleep 60"):
            cluster.run(["sleep", "60"], timeout=0.2)
        assert "sleep 60" not in cluster.run(["ps", "ax"]).stdout
        with pytest.raises(TestbedError, match="no user nobody-here"):
            cluster.run(["true"], user="nobody-here")


def empty(_: Path, __: list[Path]) -> dict[str, object]:
    """Make a layer of nothing."""
    return {}


class TestLayers:
    """Layers are made once, completely or not at all."""

    def test_made_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A layer that failed is made again; one that is complete is not."""
        monkeypatch.setenv("RTSCHED_TESTBED", str(tmp_path))
        calls = []

        def make(directory: Path, below: list[Path]) -> dict[str, object]:
            calls.append(directory.name)
            (directory / "file").write_text("x")
            if len(calls) == 1:
                raise TestbedError("first time")
            return {"number": len(calls)}

        layer = Layer("one", "recipe", make)
        with pytest.raises(TestbedError, match="first time"):
            layer.ready()
        assert not layer.directory.exists()
        assert layer.ready() == layer.ready() == [layer.directory]
        assert len(calls) == 2

    def test_changed_recipes_make_new_ones(self) -> None:
        """Another recipe, of a layer or below it, is another directory."""
        layers = [Layer("one", recipe, empty) for recipe in ("a", "b")]
        assert layers[0].directory != layers[1].directory
        above = [Layer("two", "c", empty, layer) for layer in layers]
        assert above[0].directory != above[1].directory

    def test_requirements_are_of_others(self) -> None:
        """What a cluster needs is read from pyproject.toml, our own extras resolved."""
        found = requirements()
        assert not [word for word in found if word.startswith("rtsched")]
        assert [word for word in found if word.startswith("numba")]


def test_up_run_down() -> None:
    """A person's cluster outlives the command that made it, until `down`; all is safe to repeat."""
    name = f"test-{os.getpid()}"

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        whole = [Path(__file__).parents[1] / "testbed" / "cluster", "--name", name, *words]
        return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120)

    assert command("run", "--", "sinfo").returncode == 1
    try:
        assert "is up after" in command("up", "--bare").stdout
        assert "is up already" in command("up").stdout
        assert command("run", "--user", "carol", "--", "id", "-un").stdout == "carol\n"
        assert command("status").returncode == 0
    finally:
        assert command("down").stdout == "The cluster is down.\n"
    assert command("down").stdout == "No cluster is up.\n"


def test_where_none_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What this machine lacks is named: root, tools, or the means to install Debian."""
    monkeypatch.setenv("RTSCHED_TESTBED", str(tmp_path))
    with monkeypatch.context() as user:
        user.setattr(os, "geteuid", lambda: 1000)
        assert unavailable() == "needs root"
    with monkeypatch.context() as bare:
        bare.setattr(shutil, "which", lambda _: None)
        assert unavailable().startswith("needs unshare, nsenter")
    with monkeypatch.context() as other:
        other.setattr(shutil, "which", lambda tool: None if tool == "debootstrap" else tool)
        assert unavailable() == "needs debootstrap (Debian package debootstrap)"


def test_a_sandbox_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """What mount said is in the error, and nothing is left."""
    with pytest.raises(TestbedError, match=r"no sandbox can be made on this machine: .*mount"):
        Sandbox([tmp_path / "missing"], tmp_path / "boxes").start()
    assert not list((tmp_path / "boxes").iterdir())
