"""The user guide: its commands, run on a cluster that keeps promises."""

import re
from pathlib import Path

import pytest
from guide import WAITING, use
from testbed import Cluster, SlurmOptions

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "slurm" / "user.md"
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
OFFER = re.compile(r"(--deadline=\S+)\), (?:not )?reserved")


@pytest.mark.parametrize("planner", ["portfolio", "spare"])
def test_users_see_what_the_guide_says(planner):
    """Each command does what is said around it; under `spare` those of chains."""
    with Cluster("forky", SlurmOptions(job_submit=("rtsched",)), files=FILES) as cluster:
        cluster.start_daemon(SITE.format(planner=planner))
        replies = use(cluster, GUIDE, planner, EXPECTED)
    assert planner == "spare" or OFFER.search(replies["When it is rejected"])


def test_an_offer_is_taken_by_submitting_the_job_with_it():
    """The option that a rejection names is all that has to change."""
    slurm = SlurmOptions(fast=1, slow=3, job_submit=("rtsched",))
    with Cluster("forky", slurm, files=FILES) as cluster:
        cluster.start_daemon(SITE.format(planner="portfolio"))
        words = ["sbatch", "-N4", "--time=60", "--output=/dev/null", "--wrap=true"]
        done = cluster.run([*words, "--deadline=now+3610seconds"], user="alice", check=False)
        offer = OFFER.search(done.stderr)
        assert offer, done.stderr
        assert "promised" in cluster.run([*words, offer[1]], user="alice").stderr
