"""Policies that promise nothing, on a real Slurm: fair share, mapping, balance of the queue."""

import re
from collections.abc import Iterator

import pytest
from promising import Live, in_minutes, live_cluster
from testbed.waiting import eventually

SITE = """
planner = "mcdf"

[[plugin]]
name = "mcdf"

[[plugin]]
name = "ste"
settings = { scale = 60.0 }

[[plugin]]
name = "sed"
settings = { migrate = false }

[[plugin]]
name = "psts"

[daemon]
cycle = 1

[slurm]
node_weights = true
speeds = { fast = 2.0, slow = 1.0 }
site_factor_step = 1
"""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run two fast and four slow nodes; the daemon may set node weights."""
    with live_cluster(SITE, fast=2, slow=4, admin_level="Admin") as running:
        yield running


def weights(live: Live) -> dict[str, int]:
    """Return the node weights."""
    shown = live.cluster.run(["scontrol", "-o", "show", "nodes"]).stdout
    found = re.findall(r"^NodeName=(\S+) .*?Weight=(\d+)", shown, re.MULTILINE)
    return {name: int(weight) for name, weight in found}


def test_users_with_less_service_come_first(live: Live) -> None:
    """Ste: while alice has all nodes, bob's waiting jobs get higher site factors than hers."""
    words = ["-N1", "--exclusive", "--time=2"]
    for _ in range(12):
        live.cluster.sbatch(words, user="alice", script="sleep 30")
    theirs = [live.cluster.sbatch(words, user="bob", script="sleep 30") for _ in range(4)]

    def factors() -> dict[str, list[int]]:
        shown = live.cluster.run(["sprio", "-h", "-o", "%i %u %S"]).stdout
        rows = [line.split() for line in shown.splitlines()]
        return {
            user: [int(factor) for _, name, factor in rows if name == user]
            for user in ("alice", "bob")
        }

    def ordered() -> bool:
        found = factors()
        return bool(found["alice"] and found["bob"]) and min(found["bob"]) > max(found["alice"])

    eventually(ordered, 30, lambda: str(factors()))
    assert {str(job) for job in theirs} <= set(
        live.cluster.run(["squeue", "-h", "-o", "%i"]).stdout.split()
    )


def test_fast_nodes_are_preferred_again_after_reconfigure(live: Live) -> None:
    """Sed: slow nodes get larger weights; what Slurm's reconfigure undoes is done again."""
    live.cluster.sbatch(["-N1", "--hold"], user="bob")

    def preferred() -> bool:
        found = weights(live)
        fast = [weight for name, weight in found.items() if name.startswith("fast")]
        slow = [weight for name, weight in found.items() if name.startswith("slow")]
        return max(fast) < min(slow)

    eventually(preferred, 20, lambda: str(weights(live)))
    live.cluster.run(["scontrol", "reconfigure"])
    live.polled()
    eventually(preferred, 20, lambda: str(weights(live)))


def test_moldable_jobs_get_a_size(live: Live) -> None:
    """Sed: a waiting best-effort job that left its node count open gets one within its range."""
    hog = live.cluster.sbatch(["-N6", "--exclusive", "--time=2"], user="carol", script="sleep 40")
    live.cluster.wait_job(hog, "RUNNING")
    job = live.cluster.sbatch(["-N1-4", "--exclusive", "--time=4"], user="bob", script="sleep 5")

    sizes = {str(size) for size in range(1, 5)} | {f"{size}-{size}" for size in range(1, 5)}

    def asked() -> str:
        return live.cluster.job(job).get("NumNodes", "")

    eventually(lambda: asked() in sizes, 30, asked)


def test_promises_hold_beside_them(live: Live) -> None:
    """With all policies at work a promised job starts on its nodes and ends in time."""
    for _ in range(10):
        live.cluster.sbatch(["-N1", "--exclusive", "--time=1"], user="bob", script="sleep 8")
    job = live.promise("-N3", "--time=1", in_minutes(6), script="sleep 2")
    live.wait_state(job, "kept", seconds=60)
