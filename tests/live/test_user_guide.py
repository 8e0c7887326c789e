"""The user guide: its commands, run on a cluster that keeps promises."""

import re
from pathlib import Path

import pytest
from guide import blocks
from testbed import Cluster, SlurmOptions

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "slurm" / "user.md"
WAITING = "Dependencies"
SITE = """
planner = "{planner}"

[[plugin]]
name = "{planner}"

[daemon]
cycle = 1.0
"""

# A busy test machine is slow.
FILES = {"/etc/rtsched/submit.conf": "timeout_ms = 5000\n"}

EXPECTED = {
    "Ask for a deadline": "sbatch: rtsched: promised to end by",
    "When it is rejected": "the earliest deadline now: ",
    "A range of nodes": "on 2 nodes",
    "A divisible load": "sbatch: rtsched: promised to end by",
    WAITING: "sbatch: rtsched: promised to end by",
    "All keys of rtsched:": "rtsched: sigma='many' must be a number",
    "Check status": "promised",
    "Changing a promised job": "its time limit cannot be changed",
}


@pytest.mark.parametrize("planner", ["portfolio", "spare"])
def test_users_see_what_the_guide_says(planner):
    """Each command does what is said around it; under `spare` those of chains."""
    chosen = [b for b in blocks(GUIDE) if b.section == WAITING or planner == "portfolio"]
    if planner == "spare":
        chosen.insert(0, next(block for block in blocks(GUIDE) if "job.sh <<" in block.text))
    replies: dict[str, str] = {}
    with Cluster("forky", SlurmOptions(job_submit=("rtsched",)), files=FILES) as cluster:
        cluster.start_daemon(SITE.format(planner=planner))
        for block in chosen:
            words = ["sh", "-eu", "-c", block.text]
            done = cluster.run(words, user=block.user, check=False, timeout=60)
            text = done.stdout + done.stderr
            assert (done.returncode != 0) == block.fails, f"{block.text}\n{text}"
            replies[block.section] = replies.get(block.section, "") + text
        if planner == "portfolio":
            rejected = replies["When it is rejected"]
            assert re.search(r"(--deadline=\S+)\), (?:not )?reserved", rejected)
    for section, text in replies.items():
        assert EXPECTED[section] in text, text
    sections = {WAITING, "Ask for a deadline"} if planner == "spare" else set(EXPECTED)
    assert set(replies) == sections


def test_an_offer_is_taken_by_submitting_the_job_with_it():
    """The option that a rejection names is all that has to change."""
    slurm = SlurmOptions(fast=1, slow=3, job_submit=("rtsched",))
    with Cluster("forky", slurm, files=FILES) as cluster:
        cluster.start_daemon(SITE.format(planner="portfolio"))
        words = ["sbatch", "-N4", "--time=60", "--output=/dev/null", "--wrap=true"]
        done = cluster.run([*words, "--deadline=now+3610seconds"], user="alice", check=False)
        offer = re.search(r"(--deadline=\S+)\), (?:not )?reserved", done.stderr)
        assert offer, done.stderr
        assert "promised" in cluster.run([*words, offer[1]], user="alice").stderr
