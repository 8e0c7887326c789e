"""A Slurm with many nodes and jobs on which nothing starts, and submissions as fast as it goes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import Cluster, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed import Box

USERS = ("alice", "bob", "carol", "dave")
PROGRAM = Path(__file__).resolve().parents[2] / "contrib" / "slurm" / "bench_submit.c"
SETTINGS = {
    "SlurmdTimeout": "0",
    "SchedulerType": "sched/builtin",
    "SchedulerParameters": "defer,sched_min_interval=2000000000",
    "MinJobAge": "2",
}
"""Nothing is started, so that all stays as large as it is."""

PATIENT = "timeout_ms = 4000\nbreaker_failures = 1000\n"
"""submit.conf while promises are made for later: none is to be missing."""

LUA = """\
function slurm_job_submit(job, part, uid) return slurm.SUCCESS end
function slurm_job_modify(job, rec, part, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


def cluster(nodes: int, filters: tuple[str, ...]) -> Cluster:
    """Return a cluster, not up yet: two emulated nodes, of which one answers for `nodes` more."""
    line = f"NodeName=big[1-{nodes}] NodeHostname=head NodeAddr=127.0.0.1 Port=18001"
    options = SlurmOptions(
        fast=1,
        slow=1,
        lines=f"{line} CPUs=4 RealMemory=1000" if nodes else "",
        partitions="PartitionName=all Nodes=ALL Default=YES State=UP",
        job_submit=filters,
        job_submit_lua=LUA,
        settings=SETTINGS,
    )
    return Cluster("forky", options)


def install(running: Cluster) -> None:
    """Compile the program that submits."""
    source = "/tmp/bench_submit.c"  # noqa: S108
    running.path(source).write_text(PROGRAM.read_text())
    running.run(["gcc", "-O2", "-o", "/usr/bin/bench_submit", source, "-lslurm"])


def submit(
    running: Cluster, clients: int, jobs: int, *, user: str = "alice", **options: int
) -> dict[str, Any]:
    """Have clients submit so many jobs each; return what it took."""
    words = [f"{name}={value}" for name, value in options.items()]
    command = ["bench_submit", str(clients), str(jobs), *words]
    found: dict[str, Any] = json.loads(running.run(command, user=user, timeout=900).stdout)
    return found


def fill(running: Cluster, jobs: int) -> None:
    """Submit best-effort jobs of several users that wait."""
    for user in USERS:
        submit(running, 2, jobs // len(USERS) // 2, user=user, nodes=2, minutes=60, begin=90_000)


def empty(running: Cluster) -> None:
    """Remove the files of so many jobs, which takes longer than a cluster may take to end."""
    running.stop_daemon()
    running.kill_slurmctld()
    running.run(["rm", "-rf", "/var/spool/slurmctld"], timeout=900)


def filter_settings(running: Cluster, text: str) -> None:
    """Write submit.conf, and wait until the filter has read it."""
    running.path("/etc/rtsched/submit.conf").write_text(text)
    time.sleep(1.2)
    submit(running, 1, 1)


def log_lines(running: Box, event: str) -> list[Mapping[str, Any]]:
    """Return the daemon's log lines about an event."""
    text = running.path(running.services.log_file("rtsched")).read_text(errors="replace")
    lines = (line for line in text.splitlines() if f'"{event}"' in line)
    return [json.loads(line) for line in lines if line.startswith("{")]


def at_share(values: list[float], share: float) -> float:
    """Return the least value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values: list[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum."""
    return {"p50": at_share(values, 0.5), "p99": at_share(values, 0.99), "max": max(values)}
