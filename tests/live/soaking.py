"""A batch system under a steady stream of everything that happens on one, watched all the while.

Jobs with and without deadlines come at a rate; jobs are cancelled and changed, nodes fail and come
back, settings are taken in again, logs are rotated, the daemon reloads its site.toml. Meanwhile the
memory and the file descriptors of the daemon and of its child are read, and afterwards what they
logged.
"""

import json
import random
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from promised_pool import SITE as POOL_SITE
from promised_pool import LivePool, live_pool, within
from promising import OFTEN, QUICK, SITE, SUBMIT_CONF, Live, Reply, in_minutes
from testbed import Cluster, SlurmOptions
from testbed.condor_daemon import descendants
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of

LOG = "/var/log/testbed/rtsched.log"
CLIENTS = 4
QUEUE = 120
"""More jobs than these are not left in the queue: the oldest are cancelled."""

EXPLAINED = {
    "promise_changed": "a promise of a job whose node failed, or that ran into its limit",
    "change_not_made": "the job ended, or was cancelled, while it was to be changed",
    "cycle_failed": "the batch system did not answer while it took in its settings",
    "message_refused": "the client hung up: the machine was busy",
    "request_failed": "the client hung up, or the job was judged after its time",
    "ends_not_known": "the records of the batch system did not answer in time",
    "loop_blocked": "the machine was busy; how long questions wait is measured elsewhere",
    "no_such_user": "a user of the batch system is none of this machine",
}
"""What may be in the log as a warning or an error, and why."""


class Sample(NamedTuple):
    """What the daemon and its children use at a moment.

    Attributes
    ----------
    at : float
        Seconds since the start.
    daemon_kib, child_kib : int
        Resident memory.
    daemon_files, child_files : int
        Open file descriptors.
    """

    at: float
    daemon_kib: int
    child_kib: int
    daemon_files: int
    child_files: int


@dataclass
class Soak:
    """What a soak found.

    Attributes
    ----------
    samples : list of Sample
        In order of time.
    done : Counter of str
        How often each kind of thing was done.
    replies : list of Reply
        What users read at submission.
    explained, unexplained : Counter of str, list of str
        Events of the log above "info": how many of those that may be, and the lines of others.
    pids : set of tuple of int
        Process ids that the daemon had: more than one, and it was restarted.
    """

    samples: list[Sample] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    replies: list[Reply] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)

    def figures(self) -> dict[str, Any]:
        """Return what is to be told, with memory by quarters of the time."""
        found: dict[str, Any] = {
            "minutes": round(self.samples[-1].at / 60.0, 1),
            "submissions": len(self.replies),
            "promised": sum(each.promised for each in self.replies),
            **dict(self.done),
            "restarts of the daemon": len(self.pids) - 1,
        }
        for name in ("daemon_kib", "child_kib"):
            quarters = self.quarters(name)
            found[f"{name}, median of each quarter"] = quarters
            found[f"{name}, last quarter over second"] = quarters[3] / max(quarters[1], 1)
        for name in ("daemon_files", "child_files"):
            found[f"{name}, low of each quarter"] = self.quarters(name, low)
        found["explained log events"] = dict(self.explained)
        found["unexplained log lines"] = self.unexplained
        return found

    def quarters(self, name: str, of: Callable[[Sequence[float]], float] = median) -> list[float]:
        """Return the median, or something else, of a figure in each quarter of the time."""
        values = [getattr(sample, name) for sample in self.samples]
        size = max(1, len(values) // 4)
        return [of(values[at * size : (at + 1) * size or None]) for at in range(4)]


def low(values: Sequence[float]) -> float:
    """Return the lower quartile.

    Commands that just run have files open too; of a process that is just being replaced none are.
    """
    return sorted(values)[len(values) // 4]


@dataclass(frozen=True)
class Ground:
    """A batch system to soak: how a job is submitted, and what else happens to it.

    Attributes
    ----------
    live : Live or LivePool
        The batch system.
    submit : callable
        Submit a job: of this kind, "plain", "wish" or "hopeless".
    queue : callable
        Return the names of the jobs that wait or run, the oldest first.
    cancel, change : callable
        Cancel or change a job by its name.
    now_and_then : mapping of str to (float, callable)
        What happens each time that so many seconds have passed, by name.
    """

    live: Live | LivePool
    submit: Callable[[str], Reply]
    queue: Callable[[], list[str]]
    cancel: Callable[[Sequence[str]], object]
    change: Callable[[str], object]
    now_and_then: Mapping[str, tuple[float, Callable[[], object]]]


@contextmanager
def slurm_ground(hurry: float = 1.0, cycle: float = 1.0) -> Iterator[Ground]:
    """Give a cluster of eight nodes; with `hurry` 2 all happens twice as often."""
    options = SlurmOptions(fast=2, slow=6, job_submit=("rtsched",), settings={"MinJobAge": "30"})
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}) as cluster:
        live = Live(cluster)
        cluster.start_daemon(_every(cycle, SITE + OFTEN))
        wishes = {
            "plain": ("-N1", "--time=1"),
            "wish": ("-N1-2", "--time=2", in_minutes(24 * 60)),
        }
        away: list[str] = []

        def submit(kind: str) -> Reply:
            words = wishes.get(kind) or ("-N8", "--time=5", in_minutes(5.2))
            return live.submit(*words, script="sleep 1")

        def node() -> None:
            if away:
                cluster.node(away.pop()).start(wait=False)
                return
            away.append("slow6")
            cluster.node("slow6").kill()
            down = ("scontrol", "update", "nodename=slow6", "state=down", "reason=soak")
            eventually(lambda: _run(live, *down), 60)  # slurmctld may just read its settings

        def reconfigure() -> None:
            _run(live, "scontrol", "reconfigure")
            # until slurmctld runs again as it did, a signal to have its log rotated would end it
            eventually(lambda: _run(live, "scontrol", "show", "config"), 60)

        def rotate() -> None:
            log = "/var/log/slurm/slurmctld.log"
            cluster.run(["mv", log, f"{log}.1"])
            cluster.services.signal("slurmctld", "USR2")

        def queue() -> list[str]:
            words = ["squeue", "-h", "-o", "%A", "-S", "i"]
            return cluster.run(words, check=False).stdout.split()

        yield Ground(
            live,
            submit,
            queue,
            lambda jobs: _run(live, "scancel", "-Q", *jobs),
            lambda job: _run(live, "scontrol", "update", f"job={job}", "timelimit=1"),
            {
                "node fails or comes back": (20.0 / hurry, node),
                "reconfigure": (45.0 / hurry, reconfigure),
                "log rotation": (60.0 / hurry, rotate),
                "reload": (30.0 / hurry, lambda: cluster.services.signal("rtsched", "HUP")),
                "questions": (5.0 / hurry, lambda: _asked(live)),
            },
        )


@contextmanager
def condor_ground(hurry: float = 1.0, cycle: float = 1.0) -> Iterator[Ground]:
    """Give a pool of eight machines; with `hurry` 2 all happens twice as often."""
    small = {"MAX_DEFAULT_LOG": "100000", "MAX_HISTORY_LOG": "100000", "MAX_HISTORY_ROTATIONS": "3"}
    settings = {"NEGOTIATOR_INTERVAL": "5", "NEGOTIATOR_CYCLE_DELAY": "1"} | small
    with live_pool(
        _every(cycle, POOL_SITE + OFTEN), startds=True, slow=6, settings=settings
    ) as live:
        pool = live.pool
        away: list[str] = []

        def submit(kind: str) -> Reply:
            lines = {"plain": (), "wish": within(86400), "hopeless": within(22)}[kind]
            return live.submit(*lines, seconds=1)

        def node() -> None:
            if away:
                _run(live, "condor_on", "-daemon", away.pop())
                return
            away.append("startd_slow6")
            _run(live, "condor_off", "-fast", "-daemon", "startd_slow6")

        yield Ground(
            live,
            submit,
            lambda: [name_of(job) for job in sorted(live.ads())],
            lambda jobs: _run(live, "condor_rm", *jobs),
            lambda job: _run(live, "condor_qedit", job, "JobPrio", "5"),
            {
                "node fails or comes back": (30.0 / hurry, node),
                "reconfigure": (45.0 / hurry, lambda: _run(live, "condor_reconfig")),
                "reload": (30.0 / hurry, lambda: pool.services.signal("rtsched", "HUP")),
                "questions": (5.0 / hurry, lambda: _asked(live)),
            },
        )


GROUNDS = {"slurm": slurm_ground, "condor": condor_ground}


def _every(cycle: float, site: str) -> str:
    """Return a site.toml by which the daemon looks at the batch system each so many seconds."""
    return site.replace("cycle = 1\n", f"cycle = {cycle}\n")


def _run(live: Live | LivePool, *words: str) -> bool:
    """Run a command; return whether it succeeded, which it need not."""
    return live.box.run(list(words), check=False, timeout=60).returncode == 0


def _asked(live: Live | LivePool) -> None:
    for words in (("status",), ("plan",), ("explain", "--last", "5"), ("when",)):
        _run(live, "rtsched", *words, "--json")


def soak(ground: Ground, seconds: float, rate: float = 5.0, every: float = 5.0) -> Soak:
    """Let things happen for so long; return what the daemon used and said meanwhile.

    Parameters
    ----------
    ground : Ground
        Where.
    seconds : float
        How long.
    rate : float
        Submissions a second.
    every : float
        Seconds between two samples.
    """
    found, begun, lock = Soak(), time.monotonic(), threading.Lock()
    kinds = random.Random(1)  # noqa: S311
    due = deque(number / rate for number in range(int(seconds * rate)))
    errors: list[BaseException] = []

    def client() -> None:
        try:
            while True:
                with lock:
                    if not due:
                        return
                    at = due.popleft()
                    kind = kinds.choices(("plain", "wish", "hopeless"), (60, 35, 5))[0]
                time.sleep(max(0.0, begun + at - time.monotonic()))
                if time.monotonic() - begun > seconds:
                    return
                reply = ground.submit(kind)
                with lock:
                    found.replies.append(reply)
        except BaseException as error:
            errors.append(error)
            raise

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for each in clients:
        each.start()
    try:
        _happen(ground, found, begun, seconds, every)
    finally:
        due.clear()
        for each in clients:
            each.join()
    if errors:
        raise errors[0]
    _read_log(ground.live, found)
    return found


def _happen(ground: Ground, found: Soak, begun: float, seconds: float, every: float) -> None:
    chance = random.Random(2)  # noqa: S311
    next_at = {name: period for name, (period, _) in ground.now_and_then.items()}
    next_sample = 0.0
    while (at := time.monotonic() - begun) < seconds:
        if at >= next_sample:
            found.samples.append(sampled(ground.live, at))
            found.pids.add(ground.live.box.services.pid("rtsched"))
            next_sample = at + every
            jobs = ground.queue()
            surplus = jobs[: max(0, len(jobs) - QUEUE)]
            some = {*surplus, *chance.sample(jobs, min(2, len(jobs)))}
            if some:
                ground.cancel(sorted(some))
                found.done["cancelled"] += len(some)
            if jobs:
                ground.change(chance.choice(jobs))
                found.done["changed"] += 1
        for name, (period, what) in ground.now_and_then.items():
            if at >= next_at[name]:
                what()
                found.done[name] += 1
                next_at[name] = at + period
        time.sleep(0.2)


def sampled(live: Live | LivePool, at: float) -> Sample:
    """Return what the daemon and its children use now."""
    proc, daemon = live.box.path("/proc"), live.box.services.pid("rtsched")
    used = [_used(proc / str(pid)) for pid in (daemon, *descendants(proc, daemon))]
    children = used[1:]
    return Sample(
        at,
        used[0][0],
        sum(kib for kib, _ in children),
        used[0][1],
        sum(files for _, files in children),
    )


def _used(process: Any) -> tuple[int, int]:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
        return int(found[1]) if found else 0, len(list((process / "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0


def _read_log(live: Live | LivePool, found: Soak) -> None:
    for line in live.box.path(LOG).read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            found.unexplained.append(line)
            continue
        if event.get("level") in {"debug", "info"}:
            continue
        if event["event"] in EXPLAINED:
            found.explained[event["event"]] += 1
        else:
            found.unexplained.append(line)
