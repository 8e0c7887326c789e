"""Small logs of every kind that can be replayed, made up, the same at each run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

SHIPPED = Path(__file__).parents[1] / "examples" / "logs"
START = np.datetime64("2026-03-02T00:00:00")
STATES = "COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"
SLURM_CONF = """ClusterName=fence
SelectType=select/cons_tres
GresTypes=gpu
PreemptType=preempt/qos
PreemptMode=REQUEUE
NodeName=n[01-08] CPUs=8 RealMemory=32000 Feature=old
NodeName=n[09-16] CPUs=16 RealMemory=64000 Gres=gpu:4 Feature=new
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=gpu Nodes=n[09-16] MaxTime=INFINITE State=UP PriorityTier=2
"""
QOS = """Name|Priority|Preempt|PreemptMode|GrpTRES|MaxTRESPU|MaxJobsPU
normal|10||cluster|||
low|0||requeue|node=8||4
high|100|low|cluster|||
"""
ASSOCIATIONS = """Cluster|Account|User|Share|GrpJobs|GrpTRES|MaxJobs
fence|root||1|||
fence|a0||3||node=12|
fence|a1||1|6||
"""
OUTAGES = """NodeName|TimeStart|TimeEnd|State
n03|2026-03-02T03:00:00|2026-03-02T09:00:00|DOWN
n11|2026-03-02T06:00:00|2026-03-02T07:30:00|DRAIN
n[05-06]|2026-03-03T00:00:00|2026-03-03T06:00:00|DOWN*
"""
RESERVATIONS = """Name|TimeStart|TimeEnd|NodeName|Flags|TRES
maint|2026-03-02T12:00:00|2026-03-02T16:00:00|n[01-04]|MAINT|cpu=32
course|2026-03-03T08:00:00|2026-03-03T10:00:00|n[09-10]||cpu=32
"""
PERIODIC = """[[workload.periodic]]
name = "forecast"
nodes = 2
duration = 900
period = 14400
deadline = 3600
"""


class Case(NamedTuple):
    """A log, and how it is replayed."""

    log: Path
    options: tuple[str | Path, ...] = ()


def cases(directory: Path) -> Mapping[str, Case]:
    """Write logs and the files beside them into a directory, and return them by name."""
    files = {
        "slurm.conf": SLURM_CONF,
        "qos.txt": QOS,
        "assoc.txt": ASSOCIATIONS,
        "outages.txt": OUTAGES,
        "reservations.txt": RESERVATIONS,
        "periodic.toml": PERIODIC,
        "sacct.txt": sacct(250, seed=1),
        "gpus.txt": sacct(250, seed=2, gpus=True),
        "arrays.txt": sacct(120, seed=3, arrays=True),
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    at = {name: directory / name for name in files}
    machine = "--cluster", at["slurm.conf"], "--timezone", "UTC"
    synth = (sys.executable, "-m", "rtsched", "synth")
    lublin, divisible = directory / "lublin.swf", directory / "divisible.swf"
    busy = "--jobs", "300", "--nodes", "32", "--load", "0.95"
    loads = "--jobs", "200", "--nodes", "16", "--load", "0.7", "--setup", "2"
    for made in (("lublin", *busy, "-o", lublin), ("papers-mcdf", *loads, "-o", divisible)):
        subprocess.run([*synth, *made], check=True, capture_output=True)
    cores, nodes = ("--unit", "core"), ("--unit", "node")
    amounts = (*machine, "--unit", "resources")
    return {
        "shipped": Case(SHIPPED / "cluster.swf.gz"),
        "whole nodes": Case(lublin),
        "true run times": Case(lublin, ("--deadline-rule", "run_time:3")),
        "half with deadlines": Case(lublin, ("--deadline-fraction", "0.5")),
        "unequal nodes": Case(lublin, ("--speeds", "25%=2")),
        "moldable": Case(lublin, ("--jobs-are", "moldable:0.5-2", "--deadline-rule", "uniform")),
        "divisible": Case(divisible),
        "cores": Case(at["sacct.txt"], (*machine, *cores)),
        "limits": Case(
            at["sacct.txt"],
            (*machine, *nodes, "--qos", at["qos.txt"], "--associations", at["assoc.txt"]),
        ),
        "preemption": Case(
            at["sacct.txt"], (*machine, *nodes, "--qos", at["qos.txt"], "--preempt-type", "qos")
        ),
        "resources": Case(at["sacct.txt"], amounts),
        "gpus": Case(at["gpus.txt"], amounts),
        "arrays": Case(at["arrays.txt"], (*machine, *nodes)),
        "tasks of arrays": Case(at["arrays.txt"], (*machine, *nodes, "--arrays", "tasks")),
        "failures": Case(at["sacct.txt"], (*machine, *nodes, "--outages", at["outages.txt"])),
        "reservations": Case(
            at["sacct.txt"], (*machine, *nodes, "--reservations", at["reservations.txt"])
        ),
        "periodic work": Case(lublin, ("--config", at["periodic.toml"])),
        "htcondor": Case(SHIPPED / "condor-history.txt.gz"),
        "sacct --json": Case(SHIPPED / "slurm-sacct.json.gz"),
    }


def sacct(jobs: int, seed: int, gpus: bool = False, arrays: bool = False) -> str:
    """Return what `sacct -P` prints of so many jobs, or arrays of up to eight tasks."""
    random = np.random.default_rng(seed)
    names = (
        "JobID JobName User Account Partition QOS Submit Start End TimelimitRaw NNodes ReqCPUS "
        "ReqMem ReqTRES State ExitCode Constraints"
    )
    lines = ["|".join(names.split())]
    at = 0
    for job in range(100, 100 + jobs):
        at += int(random.exponential(500.0))
        limit = int(random.choice([10, 30, 60, 240, 720]))
        nodes = int(random.choice([1, 1, 1, 2, 4, 6]))
        cpus = nodes * int(random.choice([1, 2, 4, 8]))
        user = int(random.zipf(1.7)) % 9
        gpu = int(random.integers(1, 5)) * nodes if gpus and random.random() < 0.5 else 0
        partition = "gpu" if gpu else "all"
        qos = str(random.choice(["normal", "low", "high"], p=[0.7, 0.2, 0.1]))
        tres = f"cpu={cpus},mem={nodes * 4000}M,node={nodes}" + f",gres/gpu={gpu}" * bool(gpu)
        tasks = int(random.integers(2, 9)) if arrays and random.random() < 0.6 else 0
        for task in range(max(tasks, 1)):
            wait, ran = int(random.exponential(1800.0)), int(random.beta(1.0, 1.5) * limit * 60) + 1
            state = str(random.choice(STATES))
            ran = limit * 60 if state == "TIMEOUT" else ran
            times = (START + np.timedelta64(s, "s") for s in (at, at + wait, at + wait + ran))
            row = [
                f"{job}_{task}" if tasks else job,
                f"job{user}",
                f"u{user}",
                f"a{user % 2}",
                partition,
                qos,
                *times,
                limit,
                nodes,
                cpus,
                "4000M",
                tres,
                state,
                "1:0" if state == "FAILED" else "0:0",
                "",
            ]
            lines.append("|".join(map(str, row)))
    return "\n".join(lines) + "\n"
