"""The user guide for HTCondor: its commands, run on a pool that keeps promises."""

import re
import time
from pathlib import Path

import pytest
from guide import WAITING, use
from testbed import Pool, PoolOptions, fragments
from testbed.waiting import wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "condor" / "user.md"
SITE = """
planner = "{planner}"

[[plugin]]
name = "{planner}"

[daemon]
system = "condor"
cycle = 1.0
"""
OPTIONS = {"library": True, "config": fragments()}

# A busy test machine is slow.
FILES = {"/etc/rtsched/submit.conf": "timeout_ms = 5000\n"}

EXPECTED = {
    "Ask for a deadline": "WARNING: QMGMT:0:rtsched: promised to end by",
    "Many jobs with one deadline": "rtsched: promised to end by",
    "When it is rejected": "the earliest deadline now: ",
    "A divisible load": "rtsched: promised to end by",
    "Parallel jobs": "planned to start now on 2 nodes",
    WAITING: "rtsched: promised to end by",
    "DAGMan": "submitted to cluster",
    "Jobs without a deadline": "3 job(s) submitted to cluster",
    "All attributes": "rtsched: RtSigma must be a number",
    "Check status": "promised",
    "Changing a promised job": 'Failed to set attribute "RtRunTime"',
}
OFFER = re.compile(r"\((\+RtDeadline=\d+)\), (?:not )?reserved")


def pieces(pool):
    """Return what the pieces of the divided load wrote, and how many there should be."""
    written = [path.read_text() for path in pool.path("/home/alice").glob("convert.*.out")]
    told = [text for text in written if text]
    return told, int(told[0].partition(" of ")[2].partition(":")[0]) if told else -1


@pytest.mark.parametrize("planner", ["portfolio", "spare"])
def test_users_see_what_the_guide_says(planner):
    """Each command does what is said around it; under `spare` those of chains."""
    with Pool("forky", PoolOptions(fast=4, slow=20, parallel=True, **OPTIONS), files=FILES) as pool:
        pool.start_daemon(SITE.format(planner=planner), timeout=120)
        replies = use(pool, GUIDE, planner, EXPECTED)
        if planner == "portfolio":
            assert OFFER.search(replies["When it is rejected"])
            wait_for("the load is done", lambda: len(pieces(pool)[0]) == pieces(pool)[1], 60)
            dag = pool.path("/home/alice/night.dag.dagman.out")
            wait_for("the DAG is done", lambda: "All jobs Completed" in dag.read_text(), 90)


def test_an_offer_is_taken_by_appending_it():
    """The line that a rejection names is all that has to change."""
    with Pool("forky", PoolOptions(fast=1, slow=1, **OPTIONS), files=FILES) as pool:
        pool.start_daemon(SITE.format(planner="portfolio"), timeout=120)
        lines = ["executable = /bin/sleep", "arguments = 1", "+RtRunTime = 60"]
        late = f"+RtDeadline = {time.time() + 65:.0f}"
        text = "\n".join([*lines, late, "queue", ""])
        pool.write({"/home/alice/job.sub": text})
        words = ["condor_submit", "job.sub"]
        done = pool.run(words, user="alice", check=False)
        offer = OFFER.search(done.stderr)
        assert offer, done.stderr
        done = pool.run([*words, "-append", offer[1]], user="alice")
        assert "promised to end by" in done.stderr
