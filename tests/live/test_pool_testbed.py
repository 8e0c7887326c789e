"""The testbed's HTCondor: pools start, run jobs as their owners, and leave nothing behind."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from testbed import Pool, PoolOptions, SubmitError, TestbedError, fragments
from testbed.condor_images import stack
from testbed.images import SUITES
from testbed.waiting import wait_for

SMALL = PoolOptions(fast=1, slow=1)
WHO = ["executable = /bin/sh", "arguments = \"-c 'id -un;pwd;hostname'\"", "output = out"]


def mounts() -> str:
    """Return what this process sees mounted."""
    return Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("suite", SUITES)
def test_a_job_runs_as_its_owner(suite: str) -> None:
    """On both releases alice's job runs as alice, at home, and the history knows it."""
    with Pool(suite, SMALL, software=False) as running:
        ad = running.wait_job(running.submit(WHO, user="alice"))
        assert running.path("/home/alice/out").read_text().split() == [
            "alice",
            "/home/alice",
            "head",
        ]
        assert (ad["Owner"], ad["ExitCode"]) == ("alice", 0)


def test_thirty_slots_and_their_kinds() -> None:
    """Five fast and 25 slow slots of one machine are known, with their attributes."""
    with Pool("forky", software=False) as running:
        slots = running.slots()
        assert list(slots) == running.options.slots
        kinds = [(slot["RtClass"], slot["RtSpeed"], slot["Cpus"]) for slot in slots.values()]
        assert kinds == 5 * [("fast", 2.0, 1)] + 25 * [("slow", 1.0, 1)]


def test_what_a_refused_user_reads() -> None:
    """A submission that HTCondor refuses raises, with condor_submit's text."""
    options = PoolOptions(
        fast=1,
        slow=0,
        config={
            "50-refuse.conf": "SUBMIT_REQUIREMENT_NAMES = NO\nSUBMIT_REQUIREMENT_NO = false\n"
            'SUBMIT_REQUIREMENT_NO_REASON = "not this one"\n'
        },
    )
    with (
        Pool("forky", options, software=False) as running,
        pytest.raises(SubmitError, match="not this one"),
    ):
        running.submit()


def test_nothing_is_left() -> None:
    """After a teardown no process, mount or directory is there that was not before."""
    before = mounts()
    with Pool("forky", SMALL, software=False) as running:
        pid, directory = running.box.pid, running.box.directory
        running.wait_job(running.submit(["arguments = 100"]), 0, "Running")
        assert mounts() == before
    assert not Path(f"/proc/{pid}").exists()
    assert directory is not None
    assert not directory.exists()


ASK = """
import htcondor2
ads = htcondor2.Schedd().query(projection=["ClusterId", "RtDeadline"])
slots = htcondor2.Collector().query(htcondor2.AdType.Startd)
print([(ad["ClusterId"], ad["RtDeadline"]) for ad in ads], len(slots))
"""


@pytest.mark.parametrize("suite", SUITES)
def test_our_software_is_there(suite: str) -> None:
    """Our wheel is installed, and the bindings fit the daemons: rtsched is known to them."""
    with Pool(suite, SMALL) as running:
        assert running.run(["rtsched", "--version"], user="alice").stdout.startswith("rtsched")
        job = running.submit(["hold = true", "+RtDeadline = 7"])
        reply = running.run(["python", "-c", ASK], user="rtsched").stdout
        assert reply == f"[({job}, 7)] 2\n"


@pytest.mark.parametrize("suite", SUITES)
def test_our_library_is_there(suite: str) -> None:
    """The ClassAd library is compiled and loaded; rtsched may write what others may not."""
    options = PoolOptions(fast=1, slow=0, library=True, config=fragments())
    with Pool(suite, options, software=False) as running:
        assert running.path("/usr/lib/rtsched/librtsched_classad.so").exists()
        shown = running.run(["condor_status", "-af", 'rtschedDelay("a slot", 3.5)'])
        assert shown.stdout == "3.5\n"
        job = running.submit(["hold = true"], user="alice")
        edit = ["condor_qedit", str(job), "RtNodeSet", '"a"']
        assert running.run(edit, user="alice", check=False).returncode != 0
        running.run(edit, user="rtsched")
        assert running.job(job)["RtNodeSet"] == "a"


def test_start_is_quick() -> None:
    """With its layers made, a pool of 30 slots is up in less than 15 seconds."""
    stack("forky").ready()
    began = time.monotonic()
    with Pool("forky", software=False):
        assert time.monotonic() - began < 15


def test_two_at_the_same_time() -> None:
    """A second pool, on the same ports, knows nothing of the first one's jobs."""
    with Pool("forky", SMALL, software=False) as one, Pool("forky", SMALL, software=False) as other:
        one.submit(["hold = true"])
        assert one.run(["condor_q", "-allusers", "-af", "ClusterId"]).stdout == "1\n"
        assert other.run(["condor_q", "-allusers", "-af", "ClusterId"]).stdout == ""


def test_what_a_start_says_when_it_fails() -> None:
    """A master that refuses its configuration ends the start, with its own words."""
    options = PoolOptions(fast=1, slow=0, config={"90-wrong.conf": "this is no setting\n"})
    with pytest.raises(TestbedError, match=r"90-wrong\.conf"):
        Pool("forky", options, software=False).start()


def test_up_run_down() -> None:
    """A person's pool outlives the command that made it, until `down`."""
    name = f"test-pool-{os.getpid()}"

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        whole = [Path(__file__).parents[1] / "testbed" / "cluster", "--name", name, *words]
        return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120)

    try:
        assert "condor_status" in command("up", "--system", "condor", "--bare").stdout
        slots = command("run", "--user", "carol", "--", "condor_status", "-af", "RtClass")
        assert slots.stdout.split() == 5 * ["fast"] + 25 * ["slow"]
    finally:
        assert command("down").stdout == "The cluster is down.\n"


def test_daemons_die_and_come_back() -> None:
    """Collector, negotiator, schedd and startd are killed, stopped and started; jobs stay."""
    with Pool("forky", SMALL, software=False) as running:
        job = running.submit(["hold = true"])
        for name in ("collector", "negotiator", "schedd", "startd"):
            daemon = running.daemon(name)
            first = daemon.pid
            daemon.kill()
            second = daemon.pid
            daemon.stop()
            assert daemon.pid == 0
            daemon.start()
            assert 0 not in {first, second, daemon.pid}
            assert len({first, second, daemon.pid}) == 3
        running.wait_ready()
        assert running.job(job)["JobStatus"] == 5


def test_a_machine_dies() -> None:
    """A killed startd takes its job's processes with it; the job runs again on another machine."""
    options = PoolOptions(fast=0, slow=2, startds=True)
    with Pool("forky", options, software=False) as running:
        job = running.submit(["arguments = 300", "job_lease_duration = 20"])
        host = running.wait_job(job, 0, "Running")["RemoteHost"]
        wait_for("it sleeps", lambda: "sleep 300" in running.run(["ps", "ax"]).stdout)
        machine = host.removeprefix("slot1@").removesuffix(".testbed")
        running.daemon(f"startd_{machine}").kill(stay=True)
        assert "sleep 300" not in running.run(["ps", "ax"]).stdout
        other = f"slot1@slow{3 - int(machine[-1])}.testbed"
        wait_for("it runs elsewhere", lambda: running.job(job).get("RemoteHost") == other, 120)
        wait_for("its ad goes", lambda: host not in running.slots(), 90)
        running.daemon(f"startd_{machine}").start()
        assert host in running.slots()


def test_the_machine_room_goes_dark() -> None:
    """Master and all are killed and started again: the queue is what it was."""
    with Pool("forky", SMALL, software=False) as running:
        job = running.submit(["arguments = 300"])
        running.wait_job(job, 0, "Running")
        running.kill_master()
        left = running.run(["ps", "ax"]).stdout
        assert "condor" not in left
        assert "sleep 300" not in left
        running.start_master()
        running.wait_job(job, 0, "Running")
        running.stop_master()


@pytest.mark.parametrize("suite", SUITES)
def test_parallel_jobs(suite: str) -> None:
    """A job of the parallel universe runs on three slots at once."""
    options = PoolOptions(fast=2, slow=2, parallel=True)
    lines = ["universe = parallel", "machine_count = 3"]
    with Pool(suite, options, software=False) as running:
        ad = running.wait_job(running.submit(lines))
        assert len(ad["AllRemoteHosts"].split(",")) == 3


def test_partitionable_slots() -> None:
    """Jobs get slots of their own size out of partitionable ones."""
    options = PoolOptions(partitionable=(4, 2))
    with Pool("forky", options, software=False) as running:
        assert [slot["Cpus"] for slot in running.slots().values()] == [4, 4]
        job = running.submit(["arguments = 300", "request_cpus = 3"])
        host = running.wait_job(job, 0, "Running")["RemoteHost"]
        assert host in {"slot1_1@head.testbed", "slot2_1@head.testbed"}
        wait_for("its slot is known", lambda: host in running.slots())
        assert running.slots()[host]["Cpus"] == 3
