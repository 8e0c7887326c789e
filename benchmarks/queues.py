"""Large queues, made up: a Slurm whose commands print files, and a pool whose schedd is a list.

What the batch systems themselves take is left out, but for the start of one process per command.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.condor.matching import MachineAd
from rtsched.adapters.condor.pool import Pool
from rtsched.adapters.condor.queue import CONSTRAINT, TO_PLACE
from rtsched.adapters.condor.schedd import Bindings, Schedd
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.system import CondorSystem, Observer
from rtsched.adapters.slurm.route import JobReader
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.system import SlurmSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.logs.classads import Record

FIRST_ID = 1_000_001
SUBMITTED = 1_790_000_000
"""When the first job was submitted, seconds since the epoch."""

TOKEN = "0123456789ab"  # noqa: S105 - in place of a random one, so that files can be written before
USERS, NODES, RUNNING = 200, 2_000, 1_000

_JOB = """\
JobId={job} JobName=job
   UserId=u{user}(61000) GroupId=users(100) MCS_label=N/A
   Priority=4294901000 Nice=0 Account=a1 QOS=normal
   JobState=PENDING Reason=Priority Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=02:00:00 TimeMin=N/A
   SubmitTime=1790000000 EligibleTime=1790000000
   AccrueTime=1790000000
   StartTime=Unknown EndTime=Unknown Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=1790000000 Scheduler=Main
   Partition=all AllocNode:Sid=login1:4711
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=
   NumNodes=2-2 NumCPUs=8 NumTasks=8 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=8,mem=32000M,node=2,billing=8
   AllocTRES=(null)
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=16000M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/home/u{user}/project/run.sh
   WorkDir=/home/u{user}/project
   Comment=a sweep over parameters
   Extra={extra}
   StdErr=/home/u{user}/project/slurm-{job}.out
   StdIn=/dev/null
   StdOut=/home/u{user}/project/slurm-{job}.out

"""


class MadeUpSlurm:
    """A Slurm of 2,000 nodes, of which half run a job each, and of jobs that wait.

    Parameters
    ----------
    directory : Path
        Where the commands and what they print are written.
    jobs : int
        How many jobs wait.
    """

    def __init__(self, directory: Path, jobs: int) -> None:
        self.directory, self._random = directory, np.random.default_rng(7)
        self._jobs = [self._job(FIRST_ID + at) for at in range(jobs)]
        self._jobs += [self._job(FIRST_ID + jobs + at, at) for at in range(RUNNING)]
        self._next = FIRST_ID + jobs + RUNNING
        for name, script in _scripts(directory).items():
            path = directory / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        texts = {"nodes": _nodes(), "partitions": _PARTITIONS, "config": _CONFIG, "shares": ""}
        for name, text in texts.items():
            (directory / f"{name}.txt").write_text(text)
        self.write()

    def write(self) -> None:
        """Write what squeue and scontrol print of the jobs as they are now."""
        columns = [word.split(":0") for word in JobReader(TOKEN).format.split(",")]
        form = "".join(f"{{{name}}}{suffix}" for name, suffix in columns) + "\n"
        with (self.directory / "jobs.txt").open("w") as file:
            file.writelines(form.format_map(job) for job in self._jobs)
        with (self.directory / "details.txt").open("w") as file:
            file.writelines(
                _JOB.format(job=job["jobid"], user=job["userid"][-3:], extra="")
                for job in self._jobs
            )

    def change(self, share: float) -> None:
        """Have a share of the jobs change: a third of it leave, as many come, others wait on."""
        count = int(share * len(self._jobs)) // 3
        pending = [at for at, job in enumerate(self._jobs) if job["state"] == "PENDING"]
        picked = self._random.permutation(pending)[: 3 * count]
        for at in picked[:count].tolist():
            self._jobs[at] |= {"reason": "Resources", "starttime": str(SUBMITTED + 2_000_000)}
        for at in picked[count : 2 * count].tolist():
            self._jobs[at] |= {"reason": "Dependency", "dependency": "afterok:1000001(unfulfilled)"}
        gone = set(picked[2 * count :].tolist())
        self._jobs = [job for at, job in enumerate(self._jobs) if at not in gone]
        self._jobs += [self._job(self._next + at) for at in range(len(gone))]
        self._next += len(gone)
        self.write()

    def age(self) -> None:
        """Have all priorities change, as Slurm's do every PriorityCalcPeriod."""
        for job in self._jobs:
            job["prioritylong"] = str(int(job["prioritylong"]) + int(self._random.integers(1, 99)))
        self.write()

    def _job(self, number: int, node: int = -1) -> dict[str, str]:
        """Return what squeue shows of a job; `node`: the one that it runs on, -1: it waits."""
        draw = self._random.integers
        nodes, user, run = int(draw(1, 9)), int(draw(USERS)), node >= 0
        nodes, minutes = 1 if run else nodes, int(draw(1, 48)) * 30
        submit = SUBMITTED + (number - FIRST_ID) * 3
        return _PLAIN | {
            "jobid": str(number),
            "userid": str(61_000 + user),
            "jobarrayid": f"{number}_[1-20]" if number % 50 == 0 else str(number),
            "username": f"u{user}",
            "account": f"a{user % 20}",
            "state": "RUNNING" if run else "PENDING",
            "reason": "None" if run else "Priority",
            "nodelist": f"node{node:04}" if run else "",
            "submittime": str(submit),
            "eligibletime": str(submit),
            "starttime": str(submit + 3600) if run else "N/A",
            "endtime": str(SUBMITTED + 10_000_000) if run else "N/A",
            "timelimit": f"{minutes // 60:02}:{minutes % 60:02}:00",
            "numcpus": str(4 * nodes),
            "prioritylong": str(1_000_000 + int(draw(500_000))),
            "tres": f"cpu={4 * nodes},mem={16 * nodes}G,node={nodes},billing={4 * nodes}",
            "maxnodes": str(nodes),
            "feature": "fast" if number % 10 == 0 else "(null)",
            "name": f"job{int(draw(5_000))}",
            "comment": "" if number % 2 else f"part {number % 1000} of a sweep over parameters",
        }


_PLAIN = {
    "partition": "all",
    "qos": "normal",
    "reservation": "(null)",
    "deadline": "N/A",
    "minmemory": "16G",
    "nice": "0",
    "exclusive": "NO",
    "oversubscribe": "OK",
    "dependency": "(null)",
    "reqnodes": "",
    "excnodes": "",
    "licenses": "(null)",
    "tres-per-node": "N/A",
    "tres-per-job": "N/A",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "hetjobid": "N/A",
    "exit_code": "0:0",
    "restartcnt": "0",
    "requeue": "1",
    "admin_comment": "(null)",
}

_PARTITIONS = (
    "PartitionName=all Default=YES DefaultTime=00:10:00 MaxTime=7-00:00:00 "
    "Nodes=node[0000-1999] State=UP MinNodes=0 MaxNodes=UNLIMITED PriorityTier=1\n"
)
_CONFIG = (
    "SLURM_VERSION           = 26.05.5\n"
    "PriorityType            = priority/multifactor\n"
    "SelectType              = select/cons_tres\n"
    "SelectTypeParameters    = CR_CORE_MEMORY\n"
    "SchedulerType           = sched/backfill\n"
)


def _nodes() -> str:
    return "".join(
        f"NodeName=node{at:04} CPUTot=4 CPUEfctv=4 RealMemory=64000 State=IDLE Weight=1 "
        f"ThreadsPerCore=1 Gres=(null) ActiveFeatures={'fast' if at < 500 else 'slow'} "
        "Partitions=all\n"
        for at in range(NODES)
    )


def _scripts(directory: Path) -> dict[str, str]:
    """Return the commands; scontrol is asked of single jobs by arguments or one by one."""
    squeue = f'[ "$1" = --version ] && echo "slurm 26.05.5" || exec cat {directory}/jobs.txt'
    shown = (
        'echo "JobId=$1 JobName=job"; echo "   Comment=a sweep"; echo "   Extra="; '
        'echo "   StdErr=/dev/null"; echo'
    )
    scontrol = f"""\
one() {{ {shown}; }}
case "$*" in
    *"show node") exec cat {directory}/nodes.txt ;;
    *"show partition") exec cat {directory}/partitions.txt ;;
    *"show config") exec cat {directory}/config.txt ;;
    *"show job") exec cat {directory}/details.txt ;;
    *"show job "*) one "${{4:-$3}}" ;;
    *"show "*) echo ;;
    *) while read -r word kind name; do
        case "$word $kind" in
            "show job") one "$name" ;;
            "show hostnames") echo "$name" ;;
            quit*) exit 0 ;;
        esac
    done ;;
esac"""
    return {"squeue": squeue, "scontrol": scontrol, "sshare": f"cat {directory}/shares.txt"}


def slurm(directory: str, share_nodes: bool) -> SlurmSystem:
    """Return a live system that polls a `MadeUpSlurm` in a directory."""
    secrets.token_hex = lambda nbytes=None: TOKEN  # noqa: ARG005
    return SlurmSystem(
        SlurmSettings(bin_dir=directory, route="commands", memory="", share_nodes=share_nodes)
    )


PROCS, SLOTS = 1_000, 500
"""Of a cluster, and of the pool."""

_AD = (
    "[ClusterId = {cluster}; ProcId = {proc}; JobStatus = 1; JobUniverse = 5; QDate = {submit}; "
    "TotalSubmitProcs = 1000; RequestCpus = 1; RequestMemory = 2000; JobPrio = {priority}; "
    'EnteredCurrentStatus = {submit}; User = "u{user}@pool"; Owner = "u{user}"; '
    'Cmd = "/home/u{user}/project/run.sh"; RtRunTime = {run_time}]\n'
)


class MadeUpCondor:
    """A pool of 500 slots, and clusters of procs that wait.

    Parameters
    ----------
    directory : Path
        Where the ads are written.
    procs : int
        How many procs wait.
    """

    def __init__(self, directory: Path, procs: int) -> None:
        self.directory, self._random = directory, np.random.default_rng(7)
        self._procs = np.arange(procs)
        self._priority = np.zeros(procs, np.int64)
        self._next = procs
        self.write()

    def write(self) -> None:
        """Write the ads of the procs as they are now."""
        with (self.directory / "procs.txt").open("w") as file:
            pairs = zip(self._procs.tolist(), self._priority.tolist(), strict=True)
            file.writelines(
                _AD.format(
                    cluster=1 + at // PROCS,
                    proc=at % PROCS,
                    submit=SUBMITTED + at // PROCS,
                    priority=priority,
                    user=at // PROCS % USERS,
                    run_time=600 * (1 + at // PROCS % 48),
                )
                for at, priority in pairs
            )

    def change(self, share: float) -> None:
        """Have a share of the procs change: a third of it leave, as many come, others change."""
        count = int(share * len(self._procs)) // 3
        picked = self._random.permutation(len(self._procs))[: 2 * count]
        self._priority[picked[:count]] += 1
        stay = np.ones(len(self._procs), np.bool_)
        stay[picked[count:]] = False
        new = self._next + np.arange(count)
        self._procs = np.concatenate([self._procs[stay], new])
        self._priority = np.concatenate([self._priority[stay], np.zeros(count, np.int64)])
        self._next += count
        self.write()

    def age(self) -> None:
        """Have the priorities of all procs change."""
        self._priority += 1
        self.write()


class _MadeUpPool(Pool):
    """Has a `_MadeUpSchedd`, and slots."""

    def __init__(self, directory: Path) -> None:
        super().__init__(CondorSettings())
        self.schedds = {0: _MadeUpSchedd(directory)}

    def configure(self) -> None:
        """There is nothing to read."""

    def collector_up(self) -> float:
        """Return seconds."""
        return 1e6

    def slots(self, attributes: Sequence[str]) -> list[Record]:
        """Return slots that nobody has."""
        del attributes
        plain: Record = {
            "slotid": 1,
            "state": "Unclaimed",
            "activity": "Idle",
            "cpus": 1,
            "memory": 4000,
        }
        plain |= {"totalslotcpus": 1, "totalslotmemory": 4000, "daemonstarttime": SUBMITTED}
        names = [f"slot1@host{at}" for at in range(SLOTS)]
        return [plain | {"name": name, "machine": name.partition("@")[2]} for name in names]

    def machines(self, slots: Sequence[str] = ()) -> dict[str, MachineAd]:
        """Return what slots say of themselves: nothing."""
        return {name: MachineAd((), {}) for name in slots}

    def submitters(self) -> list[Record]:
        """Return no accounting."""
        return []


class _MadeUpSchedd(Schedd):
    """Reads a `MadeUpCondor`, through the bindings' ads."""

    def __init__(self, directory: Path) -> None:
        super().__init__(Bindings(20.0))
        self._directory = directory

    def identity(self) -> tuple[str, str]:
        """Return name and version."""
        return "schedd", "25.14.1"

    def _job_ads(self, constraint: str, attributes: Sequence[str]) -> list[Any]:
        """Return ads of procs as the bindings make them of what a schedd sends.

        Of those that may be promised something there are none. Whether others are as expected is
        worked out once for all that have one text but for their numbers.
        """
        if TO_PLACE in constraint:
            return []
        make = self._bindings.classad.ClassAd
        with (self._directory / "procs.txt").open() as file:
            if attributes == ("ClusterId", "ProcId"):
                return [make(line[: line.index("; JobStatus")] + "]") for line in file]
            if constraint == CONSTRAINT:
                return list(map(make, file))
            holds, known = (
                self._bindings.classad.ExprTree(constraint),
                dict[tuple[str, str], bool](),
            )
            found = []
            for line in file:
                cluster, _, others = line.split("; ", 2)
                if (cluster, others) not in known:
                    known[cluster, others] = holds.eval(make(line)) is True
                if known[cluster, others]:
                    found.append(make(line))
            return found


def condor(directory: str) -> CondorSystem:
    """Return a live system that polls a `MadeUpCondor` in a directory."""
    settings = CondorSettings()
    system = CondorSystem(settings)
    system._observer = Observer(settings, _MadeUpPool(Path(directory)))
    return system
