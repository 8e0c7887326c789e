"""What the README claims first holds against a computation of its own."""

import gzip
import re
from pathlib import Path

import pytest
from plain_loops import Work, simulate

TOP = Path(__file__).resolve().parents[2]
README = (TOP / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def jobs() -> list[Work]:
    """Read the shipped log, line by line."""
    with gzip.open(TOP / "examples" / "logs" / "cluster.swf.gz", "rt") as file:
        rows = [line.split() for line in file if not line.startswith(";")]
    return [Work(float(r[1]), float(r[3]), float(r[8]), int(r[7])) for r in rows]


@pytest.mark.parametrize("policy", ["easy", "edf-easy"])
def test_what_a_queue_alone_ends_in_time(jobs: list[Work], policy: str) -> None:
    """By a plain EASY, in the order of submission or of deadlines: four times the limit."""
    due = [job.submit + 4 * job.wall for job in jobs]
    start = simulate(jobs, 128, "easy", due if policy == "edf-easy" else None)
    ends = [at + min(job.run, job.wall) for at, job in zip(start, jobs, strict=True)]
    in_time = [end <= by for end, by in zip(ends, due, strict=True)]
    count, share = sum(in_time), f"{100 * sum(in_time) / len(jobs):.1f} %"
    heading = re.search(r"^ +(as logged .*)$", README, re.MULTILINE)
    row = re.search(r"^ended in time +(.*)$", README, re.MULTILINE)
    column = re.split(r"  +", heading[1]).index(policy)
    assert re.split(r"  +", row[1])[column] == f"{count:,} ({share})"
    assert share in README.partition("*What if")[2].partition("\n\n")[0]
