"""Programs that people submit with, from their packages, on Slurm: docs/recipes.md."""

import re
from collections.abc import Iterator

import pytest
from recipes import PROFILE, followed, status
from testbed import Cluster, SlurmOptions
from testbed.waiting import wait_for

SITE = """
planner = "portfolio"

[[plugin]]
name = "portfolio"

[daemon]
cycle = 1.0
"""
# A busy test machine is slow.
FILES = {"/etc/rtsched/submit.conf": "timeout_ms = 5000\n"} | PROFILE

REJECTED = re.compile(
    r"sbatch: error: rtsched: rejected: deadline too soon: .* Feasible: ", re.DOTALL
)
"""What every tool shows of a rejection."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster that keeps promises, with the tools."""
    slurm = SlurmOptions(fast=4, slow=4, job_submit=("rtsched",))
    with Cluster("forky", slurm, files=FILES, tools=True) as running:
        running.start_daemon(SITE)
        yield running


def jobs(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return what Slurm's accounting says of alice's jobs, by id."""
    fields = ["jobid", "state", "admincomment", "comment"]
    asked = ["sacct", "-X", "-n", "-P", "-u", "alice", "-o", ",".join(fields)]
    lines = cluster.run(asked).stdout.splitlines()
    rows = [dict(zip(fields, line.split("|"), strict=True)) for line in lines]
    return {row["jobid"]: row for row in rows}


def new_jobs(cluster: Cluster, before: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """Return the jobs since then, when they have ended; each was promised its deadline."""
    found: list[dict[str, str]] = []

    def ended() -> bool:
        found[:] = [row for name, row in jobs(cluster).items() if name not in before]
        return all(row["state"] not in {"PENDING", "RUNNING"} for row in found)

    wait_for("the end of all jobs", ended, 60)
    assert found
    for row in found:
        assert re.match(
            r"rtsched:[\w-]+ promised to end by \d{4}-\d\d-\d\d .*; planned to start at \d{4}-",
            row["admincomment"],
        ), row
    return found


def test_snakemake(cluster: Cluster) -> None:
    """A workflow ends; its rules' names are in the comments. A rejection is its jobs' error."""
    before = jobs(cluster)
    ended, rejected = followed(cluster, "Snakemake")
    assert "4 of 4 steps (100%) done" in ended
    assert cluster.path("/home/alice/total").exists() is False, "removed by the second run"
    found = new_jobs(cluster, before)
    assert {row["state"] for row in found} == {"COMPLETED"}
    assert {row["comment"] for row in found} == {
        "rule_total",
        *(f"rule_part_wildcards_{n}" for n in range(3)),
    }
    assert "SLURM sbatch failed" in rejected
    assert REJECTED.search(rejected)


@pytest.mark.parametrize("section", ["Dask on Slurm", "submitit", "parsl on Slurm"])
def test_python_libraries(cluster: Cluster, section: str) -> None:
    """They read the job's number beside the promise, run, and show why a job was rejected."""
    before = jobs(cluster)
    ended, rejected = followed(cluster, section)
    results = {"Dask on Slurm": "sum 285", "submitit": "49\n[0, 1, 4, 9]"}
    assert results.get(section, "[0, 1, 4, 9]") in ended
    assert new_jobs(cluster, before)
    assert REJECTED.search(rejected)


def test_what_a_program_reads_of_its_jobs(cluster: Cluster) -> None:
    """The numbers of sbatch's output alone, and what is promised, by the page's program."""
    words = ["sbatch", "--parsable", "--output=/dev/null", "--time=10", "--wrap=sleep 60"]
    promised = cluster.run([*words, "--deadline=now+2hours"], user="alice").stdout.strip()
    assert promised.isdigit()
    cluster.wait_job(int(promised), "RUNNING")
    wait_for("the job is seen", lambda: promised in {p["job"] for p in status(cluster)["promises"]})
    (lines,) = followed(cluster, "")
    line = next(line for line in lines.splitlines() if line.split()[:1] == [promised])
    assert "firm" in line
    assert "rtsched: promised to end by" in line
    cluster.run(["scancel", promised], user="alice")
