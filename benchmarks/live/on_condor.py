"""HTCondor: how a job is submitted, how its history is read, how a pool is set up."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import workload_driver
from measure import CANCELLED, DATABASE, MET, OWN_LIMIT, Row
from stream import HOUR, Extent, recurring
from testbed import Pool, PoolOptions
from workload_driver import FAVOURED, Live, Reply, Setup

from rtsched.adapters.condor.ids import cluster_of, job_id, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stream import Demand, Work

FRAGMENTS = Path(__file__).parents[2] / "rtsched" / "adapters" / "condor" / "config"

SETTINGS = {
    "UNUSED_CLAIM_TIMEOUT": "5",
    "JOB_DEFAULT_LEASE_DURATION": "20",
    "JOB_DEFAULT_REQUESTDISK": "1",  # kB; else a pool on a disk with less than 30 GB runs no job
}
"""As a pool with jobs of minutes would be set, with and without rtsched: slots that the dedicated
scheduler has no use for are free soon, and a job whose machine is gone runs again soon."""

OVERRUN = 5
COMPLETING = 5
SITE = f"""
[condor]
overrun_s = {OVERRUN}
completing_s = {COMPLETING}
"""
CONFIG = f"RTSCHED_OVERRUN = {OVERRUN}\n"

SITE_FILE = "/etc/rtsched/site.toml"
POLICY = f"""
[policy.pool]
description = "this pool by itself"
[policy.pool.system]
loop = "negotiator"
[policy.pool.system.negotiator]
interval = 5
cycle_delay = 2
claim_worklife = 0
factors = {{ {FAVOURED} = 1, DedicatedScheduler = 1 }}
"""
"""What PoolOptions, and `favour`, set."""

PLAY = "/usr/libexec/play"
BODY = """#!/bin/sh
# Sleeps as long as a job takes here: play KIND PART SECONDS LEAST [SIGMA CMS CPS SHARE CHUNK]
speed=$(sed -n 's/^RtSpeed = //p' "$_CONDOR_MACHINE_AD")
exec sleep "$(awk -v kind="$1" -v part="$2" -v t="$3" -v least="$4" -v sigma="$5" -v cms="$6" \\
    -v cps="$7" -v n="${_CONDOR_NPROCS:-1}" -v speed="${speed:-1}" \\
    -v share="${RTSCHED_FRACTION:-$8}" -v from="${RTSCHED_FROM:--}" -v chunk="$9" 'BEGIN {
    if (kind == "moldable") t *= least / n
    if (from == "-") from = chunk * share
    if (kind == "divisible") t = sigma * (from * cms + share * (cms + cps))
    print part * t / speed
}')"
"""
"""A chunk of a load waits until those before it were sent, is sent itself, and computes."""

ATTRIBUTES = (
    *("ClusterId", "ProcId", "GlobalJobId", "Owner", "User", "QDate", "JobStatus", "LastJobStatus"),
    *("JobStartDate", "JobCurrentStartDate", "CompletionDate", "EnteredCurrentStatus", "ExitCode"),
    *("JobUniverse", "RequestCpus", "RequestMemory", "RequestGPUs", "MinHosts", "MaxHosts"),
    *("NumJobStarts", "LastRemoteHost"),
    *("RemoteHost", "AllRemoteHosts", "RemoteWallClockTime", "CommittedTime", "RemoveReason"),
    *("LastVacateReason", "VacateReason", "JobBatchName", "DAGNodeName", "JobPrio", "AcctGroup"),
    *("RtDeadline", "RtRunTime", "RtSigma", "RtCms", "RtCps", "RtAdmission", "RtNodeSet"),
    *("RtFraction", "RtLimit", "RtWhy", "RtPlannedStart", "RtHosts", "RtAfter"),
)
SLOT_ATTRIBUTES = ("Name", "Machine", "Cpus", "Memory", "State", "Activity", "RtClass", "RtSpeed")
SURPLUS = "rtsched: "
"""How the reason begins for which chunks that were not needed were removed."""
OVER = "rtsched: run time of"
RUNNING, REMOVED, COMPLETED = 2, 3, 4
"""JobStatus."""
SCHEDULER = 7
"""JobUniverse of DAGMan itself."""


def submit_file(work: Work, begun: float, before: int = 0, deadline: str = "") -> str:
    """Return what condor_submit is told, where the stream began at `begun` (since the epoch)."""
    name = f"{work.name}-again" if deadline else work.name
    lines = [
        f"executable = {PLAY}",
        f"batch_name = {name}",
        f"My.RtRunTime = {60 * work.minutes:g}",
    ]
    lines += [f'arguments = "{_arguments(work)}"']
    lines += [] if work.demand is None else _amounts(work.demand)
    if math.isfinite(work.deadline):
        asked = f"+RtDeadline={math.floor(begun + work.at + work.deadline)}"
        lines.append(deadline or asked)
    if work.load is not None:
        lines += [f"My.RtSigma = {work.load.sigma}", f"My.RtCms = {work.load.cms}"]
        lines += [f"My.RtCps = {work.load.cps}", f"My.RtMinNodes = {work.least}"]
    elif work.most > 1:
        lines += ["universe = parallel", f"machine_count = {work.least}"]
        lines += [f"My.MaxHosts = {work.most}", 'My.ParallelShutdownPolicy = "WAIT_FOR_ALL"']
    if work.linear:
        lines.append('My.RtSpeedup = "linear"')
    if work.kind == "chain":
        lines.append(f'My.RtDag = "{work.name.rpartition("-")[0]}"')
    if before:
        lines.append(f'My.RtAfter = "{name_of(before)}"')
    count = work.most if work.load is not None else work.jobs
    return "\n".join([*lines, f"queue {count}", ""])


def _amounts(demand: Demand) -> list[str]:
    """Return the lines of a submit file for what a job takes of its slot."""
    lines = [f"request_cpus = {demand.cores}", f"request_memory = {1024 * demand.gigabytes}"]
    return [*lines, f"request_gpus = {demand.gpus}"] if demand.gpus else lines


def _arguments(work: Work) -> str:
    """Return the words of the job's body."""
    words = [work.kind, f"{work.part * work.slow:.6g}", f"{60 * work.minutes:g}", str(work.least)]
    if work.load is not None:
        words += [f"{value:g}" for value in (work.load.sigma, work.load.cms, work.load.cps)]
        words += [f"{1 / work.most:.6g}", "$(Process)"]
    return shlex.join(words) if work.load is None else " ".join(words)


class Condor(Live):
    """A pool of HTCondor."""

    name: ClassVar[str] = "condor"
    command: ClassVar[str] = "condor_submit"
    margins: ClassVar[tuple[float, float]] = (30.0, 30.0)
    """20 s to start (two intervals of the negotiator, and 10), `OVERRUN` and `COMPLETING`."""
    full: ClassVar[Extent] = Extent(
        300, 5.5, (1.5, 2, 3), (1.3, 2.5), 75, (1, 2, 3, 4, 6), 26_000, part=(0.75, 0.92)
    )
    reduced: ClassVar[Extent] = Extent(
        36, 2.4, (0.5,), (1.2, 2.4), 48, (1, 2, 3, 4), 8_000, (0.5, 0.5, 1), (0.6, 0.8)
    )
    """A run time counts from before the job's start, so jobs of half a minute take less of it."""
    planners: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "edf": ("several", "several", "rigid", "moldable", "divisible"),
        "mcdf": ("several", "several", "rigid", "moldable", "divisible"),
        "spare": ("several", "rigid", "chain"),
    }
    wide: ClassVar[bool] = False
    slow: ClassVar[float] = 2.0
    workload: ClassVar[str] = ""
    pool: ClassVar[str] = POLICY
    recurs_alone: ClassVar[bool] = False
    recovery: ClassVar[float] = 75.0
    """CLASSAD_LIFETIME or the lease, and twice the time that a start may take."""
    patience: ClassVar[str] = "timeout_ms = 500\n"
    """submit.conf: the daemon shares two processors with a hundred others here."""
    box: Pool

    @classmethod
    @contextmanager
    def up(cls, setup: Setup) -> Iterator[Self]:
        """Bring a pool up."""
        files = {"/etc/rtsched/submit.conf": cls.patience, PLAY: BODY}
        with Pool("forky", cls.options(setup), software=setup.steered, files=files) as running:
            running.path(PLAY).chmod(0o755)
            for user, factor in setup.factors.items():
                _set_factor(running, f"{user}@testbed", factor)
            if setup.steered:
                running.start_daemon(site(setup.site), timeout=300)
            yield cls(running, setup)

    @classmethod
    def options(cls, setup: Setup) -> PoolOptions:
        """Return how the pool is set up."""
        names = ("50-rtsched.conf", "51-rtsched-execute.conf") if setup.steered else ()
        config = {name: (FRAGMENTS / name).read_text() for name in names}
        return PoolOptions(
            startds=setup.single,
            parallel=True,
            settings=SETTINGS | dict(setup.settings),
            config=config | ({"60-site.conf": CONFIG} if setup.steered else {}),
            library=setup.steered,
        )

    def favour(self) -> None:
        """Give the user of the deadlines, and all parallel jobs, the best factor."""
        for submitter in (f"{FAVOURED}@testbed", "DedicatedScheduler@head.testbed"):
            _set_factor(self.box, submitter, 1.0)

    def submit(self, work: Work, begun: float, before: int = 0, deadline: str = "") -> Reply:
        """Run condor_submit, or where the pool itself has to mind the order condor_submit_dag."""
        text = submit_file(work, begun, before, deadline)
        if work.kind == "chain" and not self.setup.steered:
            return self._in_a_dag(work, text)
        at, clock = time.time(), time.perf_counter()
        done = self.box.run(["condor_submit"], user=work.user, input=text, check=False)
        seconds = time.perf_counter() - clock
        reply = " ".join((done.stdout + done.stderr).split())
        found = re.search(r"submitted to cluster (\d+)", done.stdout)
        jobs = tuple(job_id(int(found[1]), proc) for proc in range(work.jobs)) if found else ()
        offer = re.search(r"\+RtDeadline ?= ?\d+", reply)
        return Reply(work, at, jobs, reply, seconds, "" if jobs or not offer else offer[0])

    def _in_a_dag(self, work: Work, text: str) -> Reply:
        """Write a node of a graph; submit the graph with its last node."""
        home = f"/home/{work.user}"
        self.box.path(f"{home}/{work.name}.sub").write_text(text)
        at, clock, done = time.time(), time.perf_counter(), None
        if work.before:
            lines = [f"JOB {name} {name}.sub" for name in (work.before, work.name)]
            lines.append(f"PARENT {work.before} CHILD {work.name}\n")
            self.box.path(f"{home}/{work.name}.dag").write_text("\n".join(lines))
            words = ["condor_submit_dag", "-suppress_notification", f"{work.name}.dag"]
            done = self.box.run(words, user=work.user, cwd=home)
        reply = done.stdout if done else "written"
        return Reply(work, at, (node_id(work.name),), reply, time.perf_counter() - clock)

    def cancel(self, jobs: Sequence[int]) -> None:
        """Run condor_rm."""
        clusters = sorted({str(cluster_of(job)) for job in jobs})
        if clusters:
            self.box.run(["condor_rm", *clusters])

    def empty(self, users: Sequence[str]) -> None:
        """Run condor_rm for each user."""
        self.box.run(["condor_rm", *users], check=False)

    def waiting(self) -> list[str]:
        """Return the owner of each idle job."""
        words = ["condor_q", "-allusers", "-constraint", "JobStatus == 1", "-af", "Owner"]
        return self.box.run(words).stdout.split()

    def busy(self) -> bool:
        """Whether condor_q shows any job."""
        return bool(self.box.run(["condor_q", "-allusers", "-af", "ClusterId"]).stdout.split())

    def kill_under(self, user: str, spared: Sequence[str]) -> str:
        """Kill a startd that runs one of the user's jobs; empty if there is none."""
        words = ["condor_q", user, "-constraint", "JobStatus == 2", "-json"]
        words += ["-attributes", "JobCurrentStartDate,NumJobStarts,RemoteHost,AllRemoteHosts"]
        ads = json.loads(self.box.run(words).stdout or "[]")
        first = [ad for ad in ads if ad.get("NumJobStarts", 1) < 2]
        for ad in sorted(first, key=lambda ad: -ad.get("JobCurrentStartDate", 0)):
            names = [host.partition("@")[2].partition(".")[0] for host in hosts_of(ad)]
            fresh = [name for name in names if name not in spared]
            if fresh:
                self.box.daemon(f"startd_{fresh[0]}").kill(stay=True)
                return fresh[0]
        return ""

    def revive(self, node: str) -> None:
        """Start a startd again, and wait until the collector has heard of it."""
        self.box.daemon(f"startd_{node}").start()

    def accounting(self) -> str:
        """Return the history and the queue as JSON."""
        ads = []
        for words in (["condor_history"], ["condor_q", "-allusers"]):
            asked = [*words, "-json", "-attributes", ",".join(ATTRIBUTES)]
            ads += json.loads(self.box.run(asked, timeout=120).stdout or "[]")
        return json.dumps(ads)

    @staticmethod
    def rows(accounting: str) -> list[Row]:
        """Return the rows of such ads; chunks that were not needed are left out."""
        ads = json.loads(accounting)
        slots = [ad for ad in ads if ad["JobUniverse"] != SCHEDULER]
        return [_row(ad) for ad in slots if not _is_surplus(ad)]

    @staticmethod
    def named(job: int) -> str:
        """Return a job's name, such as 12.0."""
        return name_of(job)

    def recur(self, extent: Extent, begun: float) -> None:
        """Tell the daemon which slots are needed when; HTCondor itself has no such thing."""
        if self.setup.steered:
            self.box.stop_daemon()
            path = self.box.path(SITE_FILE)
            lines = [path.read_text()]
            for work in recurring(extent):
                slots = [self.box.options.slots[row] for row in work.rows]
                first = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(begun + work.after))
                lines += ["[[condor.recurring]]", f"slots = {json.dumps(slots)}"]
                lines += [f'first = "{first}Z"', f"every_s = {HOUR}"]
                lines.append(f"length_s = {60 * work.minutes}")
            self.box.start_daemon("\n".join([*lines, ""]), timeout=300)

    def lateness(self, rows: Sequence[Row], extent: Extent, begun: float) -> list[float]:
        """Return for how long jobs had the slots of each occurrence, at the most."""
        late = []
        for work in recurring(extent):
            start, end = begun + work.after, begun + work.after + 60 * work.minutes
            slots = {self.box.options.slots[row] for row in work.rows}
            there = [row for row in rows if slots.intersection(row.on) and row.end > start]
            late.append(max([0.0, *(min(row.end, end) - max(row.start, start) for row in there)]))
        return late

    def machine(self) -> str:
        """Return what condor_status shows of the slots."""
        words = ["condor_status", "-long", "-attributes", ",".join(SLOT_ATTRIBUTES)]
        return self.box.run(words).stdout

    def save(self, directory: Path) -> None:
        """Keep the daemons' logs, the table of slots and the job queue."""
        directory.mkdir(parents=True, exist_ok=True)
        logs = [f"/var/log/condor/{name}Log" for name in ("Sched", "Negotiator", "Match", "Start")]
        logs += ["/var/log/testbed/rtsched.log", DATABASE, f"{DATABASE}-wal", "/run/rtsched/slots"]
        for name, text in workload_driver.texts(self, logs):
            (directory / name).write_bytes(text)
        done = self.box.run(["condor_q", "-allusers", "-long"], check=False, timeout=120)
        (directory / "queue.txt").write_text(done.stdout)


def site(text: str) -> str:
    """Return a site.toml with the settings of these pools."""
    before, _, ours = text.partition("[condor]\n")
    head, mark, daemon = before.partition("[daemon]")
    return f'{head}{SITE}{ours}\n{mark}\nsystem = "condor"{daemon}'


def hosts_of(ad: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the slots of a job: those that it has, else those that it had."""
    for name in ("AllRemoteHosts", "RemoteHost", "LastRemoteHost"):
        if isinstance(ad.get(name), str):
            return tuple(ad[name].split(","))
    return ()


def _set_factor(pool: Pool, submitter: str, factor: float) -> None:
    pool.run(["condor_userprio", "-setfactor", submitter, f"{factor:g}"])


def _is_surplus(ad: Mapping[str, Any]) -> bool:
    """Whether it is a chunk of a load that needed fewer of them."""
    removed = ad["JobStatus"] == REMOVED and not ad.get("NumJobStarts")
    return removed and "RtSigma" in ad and str(ad.get("RemoveReason", "")).startswith(SURPLUS)


def node_id(name: str) -> int:
    """Return a number for a node of a graph, d12-1, whose job only DAGMan knows."""
    return -int("".join(filter(str.isdigit, name)))


def _row(ad: Mapping[str, Any]) -> Row:
    status, proc, hosts = ad["JobStatus"], ad["ProcId"], hosts_of(ad)
    whole, node = "RtSigma" in ad, ad.get("DAGNodeName")
    killed = status == REMOVED and ad.get("LastJobStatus") == RUNNING
    ran = killed or status in {RUNNING, COMPLETED}
    end = ad["CompletionDate"] if ad.get("CompletionDate", 0) > 0 else ad["EnteredCurrentStatus"]
    planned = ad.get("RtNodeSet")
    return Row(
        job=node_id(node) if node else job_id(ad["ClusterId"], 0 if whole else proc),
        name=node or ad.get("JobBatchName") or "",
        user=ad["Owner"],
        submit=float(ad["QDate"]),
        start=float(ad.get("JobCurrentStartDate", math.nan)) if ran else math.nan,
        end=float(end) if status in {REMOVED, COMPLETED} else math.nan,
        nodes=len(hosts) or 1,
        state=_state(ad),
        comment=str(ad.get("RtWhy", "")),
        part=proc if whole else 0,
        runs=max(1, ad.get("NumJobStarts", 0)),
        on=hosts if ran else (),
        planned=tuple(planned.split(",")) if isinstance(planned, str) else (),
    )


def _state(ad: Mapping[str, Any]) -> str:
    """Return what became of a job, in the words that all systems share."""
    reasons = (ad.get(name) for name in ("RemoveReason", "VacateReason", "LastVacateReason"))
    if any(str(reason).startswith(OVER) for reason in reasons):
        return OWN_LIMIT
    if ad["JobStatus"] == COMPLETED:
        return MET if ad.get("ExitCode") == 0 else "FAILED"
    return CANCELLED if ad["JobStatus"] == REMOVED else "PENDING"
