"""Programs that people submit with, from their packages, on HTCondor: docs/recipes.md."""

import re
import time
from collections.abc import Iterator

import pytest
from recipes import HOME, followed, status
from testbed import Pool, PoolOptions, fragments
from testbed.waiting import wait_for

SITE = """
planner = "portfolio"

[[plugin]]
name = "portfolio"

[daemon]
system = "condor"
cycle = 1.0
"""
# A busy test machine is slow.
FILES = {"/etc/rtsched/submit.conf": "timeout_ms = 5000\n"}

REJECTED = re.compile(r"rtsched: rejected: deadline too soon: .* Feasible: ", re.DOTALL)
"""What every tool shows of a rejection."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Run a pool that keeps promises, with the tools; a DAG is on its way there."""
    options = PoolOptions(fast=4, slow=4, library=True, config=fragments())
    with Pool("forky", options, files=FILES, tools=True) as running:
        running.start_daemon(SITE, timeout=120)
        followed(running, "DAGMan")
        yield running


def promised(pool: Pool, constraint: str) -> list[str]:
    """Return the messages of jobs that have left the queue, each of which was promised."""
    words = ["condor_history", "-constraint", constraint, "-af", "RtMessage"]
    found = pool.run(words).stdout.splitlines()
    assert found
    assert all(text.startswith("rtsched: promised to end by ") for text in found), found
    return found


@pytest.mark.parametrize("section", ["Dask on HTCondor", "parsl on HTCondor"])
def test_python_libraries(pool: Pool, section: str) -> None:
    """They read the job's number beside the promise, run, and show why a job was rejected."""
    asked = [
        "condor_q",
        "-af",
        "JobStatus",
        "-constraint",
        "JobUniverse == 5 && DAGManJobId =?= undefined",
    ]
    ended, rejected = followed(pool, section)
    assert {"Dask on HTCondor": "sum 285"}.get(section, "[0, 1, 4, 9]") in ended
    assert REJECTED.search(rejected)
    wait_for("its jobs have left", lambda: not pool.run([*asked, "-allusers"]).stdout.strip(), 60)
    assert promised(pool, "JobUniverse == 5 && DAGManJobId =?= undefined && RtRunTime == 600")


def test_dagman(pool: Pool) -> None:
    """Splices, retries and DAGs within end by one deadline; each node was promised it."""
    log = pool.path(f"{HOME}/steps.dag.dagman.out")
    wait_for("the DAG's end", lambda: "EXITING WITH STATUS" in log.read_text(), 120)
    text = log.read_text()
    assert "EXITING WITH STATUS 0" in text
    assert "rtsched: promised to end by" in text
    assert len(promised(pool, "DAGManJobId =!= undefined && JobUniverse == 5")) == 3
    steps = pool.path(f"{HOME}/step.log").read_text()
    assert steps.count("rtsched: promised to end by") == 3


def test_a_rejected_node_of_a_dag(pool: Pool) -> None:
    """Its log says why; from the rescue DAG the rest is run by a later deadline."""
    files = {
        "late.dag": "JOB only late.sub\nRETRY only 2\n",
        "late.sub": "include : late.inc\nexecutable = /bin/true\n+RtRunTime = 600\n"
        "+RtDeadline = $(by)\nqueue\n",
        "late.inc": f"by = {time.time() + 480:.0f}\n",
    }
    pool.write({f"{HOME}/{name}": text for name, text in files.items()})
    words = ["condor_submit_dag", "late.dag"]
    pool.run(words, user="alice", cwd=HOME)
    log = pool.path(f"{HOME}/late.dag.dagman.out")
    wait_for("its end", lambda: log.exists() and "EXITING WITH STATUS 1" in log.read_text(), 90)
    assert re.search(rf"Failed to submit job only: .*{REJECTED.pattern}", log.read_text())
    pool.write({f"{HOME}/late.inc": f"by = {time.time() + 7200:.0f}\n"})
    pool.run(words, user="alice", cwd=HOME)
    wait_for("its end", lambda: "EXITING WITH STATUS 0" in log.read_text(), 90)


def test_what_a_program_reads_of_its_jobs(pool: Pool) -> None:
    """The number of condor_submit's output alone, and what is promised, by the page's program."""
    lines = ["executable = /bin/sleep", "arguments = 60", "+RtRunTime = 600"]
    pool.write({f"{HOME}/one.sub": "\n".join([*lines, "+RtDeadline = time() + 7200", "queue", ""])})
    reply = pool.run(["condor_submit", "-terse", "one.sub"], user="alice", cwd=HOME).stdout
    job = re.fullmatch(r"(\d+\.0) - \1\n", reply)
    assert job, reply
    wait_for("the job is seen", lambda: job[1] in {p["job"] for p in status(pool)["promises"]})
    (shown,) = followed(pool, "")
    line = next(line for line in shown.splitlines() if line.split()[:1] == [job[1]])
    assert "rtsched: promised to end by" in line
    pool.run(["condor_rm", job[1]], user="alice")
