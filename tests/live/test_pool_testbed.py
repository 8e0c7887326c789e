"""The testbed's HTCondor: pools start, run jobs as their owners, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed import Pool, PoolOptions, SubmitError
from testbed.images import SUITES

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
