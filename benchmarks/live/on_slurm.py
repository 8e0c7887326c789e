"""Slurm: how a job is submitted, how accounting is read, how a cluster is set up."""

from __future__ import annotations

import math
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import workload_driver
from measure import DATABASE, Row
from stream import Extent, recurring
from testbed import Cluster, SlurmOptions
from workload_driver import FAVOURED, Live, Reply, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from stream import Demand, Recurring, Work

MARK = "\x1f"
COLUMNS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,ReqCPUS,NCPUS,NNodes,State,NodeList,SubmitLine,Extra,Comment"
)

SETTINGS = {
    "SchedulerParameters": (
        "bf_interval=5,bf_resolution=5,bf_continue,bf_max_job_test=2000,requeue_delay=20"
    ),
    "PriorityCalcPeriod": "0:05",
    "SlurmdTimeout": "20",
}
"""As a site with jobs of minutes would set Slurm, with and without rtsched."""

PROLOG = {"TaskProlog": "/usr/src/rtsched/contrib/slurm/task_prolog.sh"}

LICENSE = "tool"
"""What the licences are called that jobs take, where there are any."""

FILTER = "timeout_ms = 500\n"
"""submit.conf: the daemon shares two processors with a hundred others here."""

BODY = """#!/bin/sh
exec awk -v n="${{RTSCHED_NODES:-$SLURM_JOB_NUM_NODES}}" -v on="$SLURM_JOB_NODELIST" 'BEGIN {{
    {model}
    if ({slow} > 1 && on ~ /slow/) t *= {slow}
    system("sleep " {part} * t)
}}'
"""
MODELS = {
    "rigid": "t = {seconds}",
    "chain": "t = {seconds}",
    "array": "t = {seconds}",
    "moldable": "t = {seconds} * {least} / n",
    "divisible": (
        "b = {cps} / ({cms} + {cps}); t = {sigma} * ({cms} + {cps}) * (1 - b) / (1 - b ^ n)"
    ),
}
"""How long a job of each kind takes on n nodes, as awk says it."""


def arguments(work: Work, begun: float, before: int = 0, deadline: str = "") -> list[str]:
    """Return what sbatch is told, where the stream began at `begun` (since the epoch)."""
    nodes = str(work.least) if work.least == work.most else f"{work.least}-{work.most}"
    name = f"{work.name}-again" if deadline else work.name
    words = [f"--job-name={name}", f"--nodes={nodes}", f"--time={work.minutes}"]
    words += ["--exclusive"] if work.demand is None else _amounts(work.demand)
    if work.demand is not None and work.jobs * work.tasks > 1:
        words.append(f"--array=1-{work.jobs * work.tasks}")
    if math.isfinite(work.deadline):
        words.append(f"--deadline={deadline or moment(begun + work.at + work.deadline)}")
    if before:
        words.append(f"--dependency=afterok:{before}")
    extra = "speedup=linear" if work.linear else ""
    if work.load is not None:
        extra = f"sigma={work.load.sigma:g},cms={work.load.cms:g},cps={work.load.cps:g}"
    if work.kind == "chain":
        extra = f"dag={work.name.rpartition('-')[0]}"
    return [*words, f"--extra=rtsched:{extra}"] if extra else words


def _amounts(demand: Demand) -> list[str]:
    """Return the options of sbatch for what a job takes on each node."""
    words = [f"--ntasks-per-node={demand.cores}", f"--mem={demand.gigabytes}G"]
    words += [f"--gres=gpu:{demand.gpus}"] if demand.gpus else []
    return [*words, f"--licenses={LICENSE}:{demand.licenses}"] if demand.licenses else words


def body(work: Work) -> str:
    """Return its script."""
    given: dict[str, float] = {"seconds": work.minutes * 60, "least": work.least}
    if work.load is not None:
        given |= {"sigma": work.load.sigma, "cms": work.load.cms, "cps": work.load.cps}
    model = MODELS[work.kind].format(**given)
    return BODY.format(model=model, slow=work.slow, part=work.part)


def moment(at: float) -> str:
    """Return seconds since the epoch as sbatch reads it; the cluster's time zone is UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


class Slurm(Live):
    """A cluster of Slurm."""

    name: ClassVar[str] = "slurm"
    command: ClassVar[str] = "sbatch"
    margins: ClassVar[tuple[float, float]] = (20.0, 80.0)
    """5 s to start, 5 s KillWait, 10 s for nodes to complete; the daemon's defaults, and the
    testbed's KillWait. Where the size is open, the limit is rounded up to whole minutes."""
    full: ClassVar[Extent] = Extent(480, 14, (2, 3, 4), (1.3, 2.5), 90, (2, 3, 4, 6), 45_000)
    reduced: ClassVar[Extent] = Extent(65, 5, (1,), (1.3, 2.4), 45, (1, 2, 3, 4), 12_000)
    planners: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "edf": ("rigid", "moldable", "divisible"),
        "mcdf": ("rigid", "moldable", "divisible"),
        "spare": ("rigid", "rigid", "chain"),
    }
    wide: ClassVar[bool] = True
    slow: ClassVar[float] = 1.0
    recovery: ClassVar[float] = 60.0
    """SlurmdTimeout and a third of it between two pings, then requeue_delay, and 5 s to start."""
    workload: ClassVar[str] = 'unit = "node"'
    box: Cluster

    @classmethod
    @contextmanager
    def up(cls, setup: Setup) -> Iterator[Self]:
        """Bring a cluster up."""
        options = SlurmOptions(
            settings=SETTINGS | (PROLOG if setup.steered else {}) | dict(setup.settings),
            job_submit=("rtsched",) if setup.steered else (),
            admin_level="Admin" if setup.weights else "Operator",
        )
        files = {"/etc/rtsched/submit.conf": FILTER}
        with Cluster("forky", options, software=setup.steered, files=files) as running:
            if setup.steered:
                running.start_daemon(setup.site, timeout=300)
            yield cls(running, setup)

    def favour(self) -> None:
        """Give the user of the deadlines the largest share."""
        words = ["sacctmgr", "--immediate", "modify", "user", FAVOURED, "set", "fairshare=100"]
        self.box.run(words)

    def submit(self, work: Work, begun: float, before: int = 0, deadline: str = "") -> Reply:
        """Run sbatch."""
        words = ["sbatch", "--output=/dev/null", *arguments(work, begun, before, deadline)]
        at, clock = time.time(), time.perf_counter()
        done = self.box.run(words, user=work.user, input=body(work), check=False)
        seconds = time.perf_counter() - clock
        text = " ".join((done.stderr + done.stdout).split())
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        jobs = (int(found[1]),) if found else ()
        offer = re.search(r"--deadline=([^ )]+)\)", text)
        return Reply(work, at, jobs, text, seconds, offer[1] if offer else "")

    def cancel(self, jobs: Sequence[int]) -> None:
        """Run scancel."""
        if jobs:
            self.box.run(["scancel", *map(str, jobs)])

    def empty(self, users: Sequence[str]) -> None:
        """Run scancel for each user."""
        self.box.run(["scancel", *(f"--user={user}" for user in users)], check=False)

    def waiting(self) -> list[str]:
        """Return the user of each pending job."""
        return self.box.run(["squeue", "-h", "-t", "PD", "-o", "%u"]).stdout.split()

    def busy(self) -> bool:
        """Whether squeue shows any job."""
        return bool(self.box.run(["squeue", "-h", "-o", "%i"]).stdout.split())

    def kill_under(self, user: str, spared: Sequence[str]) -> str:
        """Kill a slurmd that runs one of the user's jobs; empty if there is none."""
        asked = ["squeue", "-h", "-t", "R", "-u", user, "--sort=-L"]
        found = self.box.run([*asked, "-O", "RestartCnt:8,NodeList:1000"]).stdout.splitlines()
        for nodes in (line.split()[1] for line in found if line.split()[0] == "0"):
            names = self.box.run(["scontrol", "show", "hostnames", nodes]).stdout.split()
            fresh = [name for name in names if name not in spared]
            if fresh:
                self.box.node(fresh[0]).kill()
                return fresh[0]
        return ""

    def revive(self, node: str) -> None:
        """Start a slurmd again, and wait until Slurm uses it."""
        self.box.node(node).start()

    def accounting(self) -> str:
        """Return what sacct prints, each requeued run on its own."""
        words = ["sacct", "-a", "-X", "-D", "-P", f"--delimiter={MARK}", "-S", "now-2hours"]
        text = self.box.run([*words, "-o", COLUMNS], env={"SLURM_TIME_FORMAT": "%s"}).stdout
        return text.replace(MARK, "\t")

    @staticmethod
    def rows(accounting: str) -> list[Row]:
        """Return the rows of what sacct printed."""
        lines = accounting.splitlines()
        names = lines[0].split("\t")
        return [_row(dict(zip(names, line.split("\t"), strict=True))) for line in lines[1:]]

    def machine(self) -> str:
        """Return the nodes' lines of slurm.conf."""
        return "NodeName=fast[1-5] CPUs=4\nNodeName=slow[1-25] CPUs=4\n"

    def save(self, directory: Path) -> None:
        """Keep the daemons' logs and what the controller still knows."""
        directory.mkdir(parents=True, exist_ok=True)
        logs = ("/var/log/slurm/slurmctld.log", "/var/log/testbed/rtsched.log")
        for name, text in workload_driver.texts(self, (*logs, DATABASE, f"{DATABASE}-wal")):
            (directory / name).write_bytes(text)
        for words in (["show", "job"], ["show", "res"], ["show", "node", "-o"]):
            done = self.box.run(["scontrol", *words], check=False)
            (directory / f"{words[1]}.txt").write_text(done.stdout)

    def recur(self, extent: Extent, begun: float) -> None:
        """Make the reservations, and submit their jobs."""
        for work in recurring(extent):
            self._reserve(work, begun)

    def _reserve(self, work: Recurring, begun: float) -> None:
        words = ["scontrol", "create", "reservation", f"ReservationName={work.name}"]
        words += [f"StartTime=uts{begun + work.after:.0f}", f"Duration={work.minutes}"]
        nodes = f"slow[{work.rows[0] - 4}-{work.rows[-1] - 4}]"
        self.box.run([*words, "Users=root", f"Nodes={nodes}", "Flags=HOURLY"])
        words = [f"--job-name=p-{work.name}", f"--reservation={work.name}"]
        words += [f"--time={work.minutes - 1}", f"--nodes={len(work.rows)}", "--exclusive"]
        self.box.sbatch(words, user="root", script=f"sleep {work.minutes * 60 - 80}")

    def lateness(self, rows: Sequence[Row], extent: Extent, begun: float) -> list[float]:
        """Return by how many seconds each recurring job started after its reservation did."""
        starts = {row.name: row.start for row in rows}
        due = {f"p-{work.name}": math.floor(begun + work.after) for work in recurring(extent)}
        late = [starts[name] - at for name, at in due.items()]
        return [math.inf if math.isnan(seconds) else seconds for seconds in late]


def _row(cells: Mapping[str, Any]) -> Row:
    return Row(
        job=int(cells["JobIDRaw"]),
        name=cells["JobName"],
        user=cells["User"],
        submit=_seconds(cells["Submit"]),
        start=_seconds(cells["Start"]),
        end=_seconds(cells["End"]),
        nodes=int(cells["NNodes"] or 0),
        state=cells["State"].split()[0],
        comment=cells["Comment"],
    )


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else math.nan
