"""Streams of the live experiment: what is submitted, how long it runs, how it is counted."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "live"))

import measure
import shares
from stream import Extent, Load, Work, deadline_stream, flood

EXTENT = Extent(600, 5, (1, 2), (1.5, 3.0), 30, (2, 4), 9000)
KINDS = ("rigid", "moldable", "divisible", "chain")


def slept(work: Work, nodes: int, on: str = "fast1") -> float:
    """Return for how long a job's body would sleep on so many nodes."""
    script = work.body().replace('system("sleep "', 'print (""')
    env = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": on, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_equal_seeds_give_equal_streams() -> None:
    """Both clusters are sent the same jobs."""
    assert deadline_stream(3, EXTENT, KINDS, "ann") == deadline_stream(3, EXTENT, KINDS, "ann")
    assert flood(4, 9000, ("ann",)) == flood(4, 9000, ("ann",))


def test_every_job_keeps_its_limit_and_could_meet_its_deadline() -> None:
    """On the fewest nodes no body sleeps longer than the limit, nor the limit beyond the deadline.

    A second job of a chain has its predecessor's time to wait for, too.
    """
    works = deadline_stream(3, EXTENT, KINDS, "ann")
    assert {work.kind for work in works} == set(KINDS)
    for work in works:
        assert 0 < slept(work, work.least) < 60 * work.minutes < work.deadline


def test_bodies_follow_their_models() -> None:
    """A moldable job is twice as fast on twice the nodes, a load follows E(sigma, n)."""
    moldable = Work("d0", "ann", 0.0, 2, 4, 2, 0.5, "moldable", 300.0)
    assert slept(moldable, 2) == pytest.approx(60.0, rel=1e-3)
    assert slept(moldable, 4) == pytest.approx(30.0, rel=1e-3)
    load = Load(100.0, 0.01, 2.0)
    divisible = Work("d1", "ann", 0.0, 2, 4, 2, 1.0, "divisible", 300.0, load)
    assert slept(divisible, 3) == pytest.approx(load.seconds(3), rel=1e-3)
    parallel = Work("b0", "ann", 0.0, 1, 4, 3, 0.3, "moldable", slow=3.0)
    assert slept(parallel, 2, "slow[1-2]") == pytest.approx(3 * slept(parallel, 2), rel=1e-3)


@pytest.mark.parametrize(
    ("state", "end", "fate"),
    [
        ("COMPLETED", 100.0, "met"),
        ("COMPLETED", 101.0, "missed"),
        ("TIMEOUT", 90.0, "own_limit"),
        ("DEADLINE", 100.0, "missed"),
        ("FAILED", 50.0, "missed"),
    ],
)
def test_what_became_of_a_job(state: str, end: float, fate: str) -> None:
    """Only a job that completed in time met its deadline; its own limit is counted apart."""
    row = measure.Row(1, "d0", "ann", 0.0, 10.0, end, 2, state, "")
    assert measure.fate(row, 100.0) == fate


def test_service_counts_what_lies_in_the_window() -> None:
    """Node-seconds before and after the run do not count, and of a requeued job all runs do."""
    runs = [
        measure.Row(1, "b0", "ann", 0.0, 0.0, 50.0, 2, "REQUEUED", ""),
        measure.Row(1, "b0", "ann", 0.0, 60.0, 200.0, 2, "COMPLETED", ""),
        measure.Row(2, "b1", "ann", 0.0, 20.0, 30.0, 1, "COMPLETED", ""),
    ]
    found = measure.best_effort(runs, 10.0, 100.0)
    assert found["best_effort_node_s"] == 2 * 40 + 2 * 40 + 10
    assert found["best_effort_useful_node_s"] == 2 * 40 + 10
    assert (found["best_effort_jobs"], found["requeued"]) == (1, 1)


def test_service_time_errors_follow_from_accounting() -> None:
    """Shares 1, 2, 3 of 30 nodes: whoever has 10 where 5 are due gains 5 node-seconds a second."""
    nan = math.nan
    rows = [
        measure.Row(1, "b0", "alice", 0.0, 0.0, 60.0, 10, "COMPLETED", ""),
        measure.Row(2, "b1", "bob", 0.0, 0.0, nan, 20, "RUNNING", ""),
        measure.Row(3, "b2", "carol", 0.0, nan, nan, 1, "PENDING", ""),
    ]
    found = shares.service(rows, 0.0, 60.0)
    assert found["error_node_s"]["10"] == {"alice": 50.0, "bob": 100.0, "carol": -150.0}
    assert found["served_node_s"] == {"alice": 600.0, "bob": 1200.0, "carol": 0.0}
    assert found["utilisation"] == 1.0
