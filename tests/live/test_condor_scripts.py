"""The variant without native code on a real pool, with the daemon."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from testbed import Pool, PoolOptions
from testbed.condor import FRAGMENTS, HOST, fragments
from testbed.waiting import wait_for

SCRIPT = "/usr/libexec/rtsched/slots.sh"
SITE = """\
planner = "mcdf"

[[plugin]]
name = "mcdf"

[daemon]
system = "condor"
cycle = 1

[condor]
start_delay_s = 20
overrun_s = 5
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Run a pool of three static slots without the library, and the daemon."""
    config = {
        name: text.replace("RTSCHED_NATIVE = True", "RTSCHED_NATIVE = False")
        for name, text in fragments().items()
    }
    files = {"/etc/rtsched/site.toml": SITE, SCRIPT: (FRAGMENTS / "slots.sh").read_text()}
    with Pool("forky", PoolOptions(fast=1, slow=2, config=config), files=files) as running:
        running.run(["chmod", "755", SCRIPT])
        running.run(["usermod", "-aG", "condor", "rtsched"])
        running.start_daemon()
        wait_for("slots know", lambda: kept(running)[1][1] == "0", 60)
        yield running


def kept(pool: Pool) -> dict[int, list[str]]:
    """Return by slot from when how many CPUs are kept, and its delay, as it advertises them."""
    names = ("SlotID", "RtKeptFrom", "RtKeptCpus", "RtDelay")
    lines = pool.run(["condor_status", "-af", *names]).stdout.splitlines()
    return {int(words[0]): words[1:] for words in map(str.split, lines)}


def submit(pool: Pool, user: str, seconds: int, **wishes: int) -> tuple[int, str]:
    """Submit a job; return its number and what the user reads."""
    lines = [f"arguments = {seconds}", *(f"+{name} = {value}" for name, value in wishes.items())]
    text = "\n".join(["executable = /bin/sleep", *lines, "queue", ""])
    done = pool.run(["condor_submit", "-terse"], user=user, input=text)
    return int(done.stdout.split(".")[0]), done.stdout + done.stderr


def ad(pool: Pool, job: int) -> Mapping[str, Any]:
    """Return a job's ad."""
    return pool.job(job)


def test_a_wish_waits_and_is_judged(pool: Pool) -> None:
    """A job that wants a promise is deferred, judged, and runs, or goes with a reason."""
    now = int(time.time())
    job, reply = submit(pool, "alice", 3, RtDeadline=now + 300, RtRunTime=10)
    assert "rtsched: waits until it has been evaluated" in reply
    hopeless, _ = submit(pool, "bob", 60, RtDeadline=now + 30, RtRunTime=60)
    wait_for("a promise", lambda: "promised" in str(ad(pool, job).get("RtWhy")), 30)
    gone = pool.wait_job(hopeless, 0, "Removed")
    assert gone["RemoveReason"].startswith("rtsched: rejected: ")
    pool.wait_job(job)


def test_slots_learn_what_is_kept(pool: Pool) -> None:
    """What is planned reaches the slots: a job that would run into it waits, a short one starts."""
    assert {number: words[2] for number, words in kept(pool).items()} == {1: "1", 2: "2", 3: "2"}
    floods = [submit(pool, "bob", 25, RtRunTime=25)[0] for _ in range(3)]
    for job in floods:
        pool.wait_job(job, 0, "Running")
    promised, _ = submit(pool, "alice", 5, RtDeadline=int(time.time()) + 400, RtRunTime=30)
    wait_for("a kept slot", lambda: any(words[1] == "1" for words in kept(pool).values()), 60)
    (number,) = [number for number, words in kept(pool).items() if words[1] == "1"]
    long = [submit(pool, "carol", 300)[0] for _ in range(3)]
    pool.wait_job(promised, 0, "Running", timeout=120)
    assert ad(pool, promised)["RemoteHost"] == f"slot{number}@{HOST}"
    others = {f"slot{other}@{HOST}" for other in {1, 2, 3} - {number}}
    assert {ad(pool, job).get("RemoteHost") for job in long} - {None} <= others
    pool.wait_job(promised)
