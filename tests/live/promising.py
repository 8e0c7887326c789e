"""A cluster whose users get promises: what they read, and what is written down."""

import json
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from testbed import Box, Cluster, SlurmOptions, TestbedError
from testbed.waiting import NOTED, QuietClock, attempts, eventually

from rtsched.daemon.query_client import SOCKET, ask
from rtsched.daemon.questions import Status, StatusReport
from rtsched.errors import AdapterError

PROGRAM = Path(__file__).with_name("submit.c")
SUBMIT_CONF = "/etc/rtsched/submit.conf"
QUICK = "timeout_ms = 2000\nbreaker_ms = 300\n"  # the machine may be busy
PROLOG = "/usr/libexec/rtsched/task_prolog.sh"
PROMISED = "promised to end by"
OPEN = {"offered", "provisional", "firm"}
UNPROMISED = "accepted without a promise"
DEFERRED = "held for a moment"
BOUND = 3.0
"""Seconds of a quiet machine: nobody at the prompt waits longer, unless something hangs."""

SITE = """
planner = "mcdf"

[[plugin]]
name = "mcdf"

[daemon]
cycle = 1
patience = 10
lapse = 6
offer = 20
admins = ["carol"]
"""

OFTEN = """
[estimates]
refresh = 1
core_share = 1
draws = 16
"""
"""Starts are estimated after each poll."""


READ = "SELECT token, id, uid, deadline, standing, why FROM records"


class Task(NamedTuple):
    """A task of an array as accounting has it; times in seconds since the epoch."""

    state: str
    start: int
    end: int
    node: str


@dataclass(frozen=True)
class Reply:
    """What a user read at the prompt: the job id, 0 if there is none, and after how long.

    `seconds` are those of a clock, `quiet` those that a quiet machine would have needed.
    """

    job: int
    text: str
    seconds: float
    quiet: float

    @property
    def promised(self) -> bool:
        """Whether it is a promise."""
        return self.job != 0 and PROMISED in self.text

    @property
    def offer(self) -> str:
        """The deadline that was offered instead, as a job asks for it; empty: none."""
        found = re.search(r"\(((?:--deadline|\+RtDeadline)=[^ )]+)\)", self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class Kept:
    """A promise as it is written down."""

    token: str
    id: int
    uid: int
    deadline: float
    state: str
    why: str


@dataclass
class Watched:
    """A batch system with our daemon beside it, as its users see it.

    Attributes
    ----------
    box : Box
        The cluster or pool.
    replies : list of Reply
        All that users were told at the prompt.
    """

    box: Box
    replies: list[Reply] = field(default_factory=list)
    LOOK: ClassVar[tuple[str, ...]] = ()
    """A command by which a user looks at the queue."""

    def wish(self, due: float | str, *more: str, **options: Any) -> Reply:
        """Submit a job that asks for a deadline; return what its user read.

        Parameters
        ----------
        due : float or str
            The deadline: so many seconds from now, or as an offer names it.
        *more : str
            Options of sbatch, or lines of a submit file.
        **options
            `limit` seconds that it may run, `nodes` that it runs on, its `user`, and `seconds` for
            which it runs, by default a quarter of its limit.
        """
        raise NotImplementedError

    def fulfilled(self, due: float | str, *more: str, **options: Any) -> int:
        """Submit a job as `wish` does that must be promised its deadline; return its number."""
        return self.must_promise(lambda: self.wish(due, *more, **options))

    def name(self, job: int) -> str:
        """Return what users call a job."""
        return str(job)

    def status(self, job: int) -> str:
        """Return whether a job is idle, running, held, completed, ..."""
        raise NotImplementedError

    def ad(self, job: int) -> dict[str, Any]:
        """Return what the batch system tells of a job; {} when it has forgotten it."""
        raise NotImplementedError

    def wait_status(self, job: int, *words: str, seconds: float = 40) -> dict[str, Any]:
        """Wait until a job is one of that; return what the batch system tells of it."""
        eventually(
            lambda: self.status(job) in words,
            seconds,
            lambda: f"job {self.name(job)} {' or '.join(words)}; it is {self.status(job)}",
        )
        return self.ad(job)

    def planned(self) -> list[tuple[object, ...]]:
        """Return what is planned of each job."""
        entries = self.ask("plan", user="root")["entries"]
        return [(e["job"], e["start"], e["end"], e["nodes"], e["deadline"]) for e in entries]

    def tokens(self) -> dict[int, str]:
        """Return the admissions that jobs carry, by job id."""
        raise NotImplementedError

    def known_jobs(self) -> set[int]:
        """Return the jobs that the batch system knows, waiting, running or past."""
        raise NotImplementedError

    def command(self, *words: str, user: str = "alice") -> str:
        """Run a command; return its exit status and what its user reads."""
        done = self.box.run(list(words), user=user, check=False)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    def ask(self, *words: str, user: str = "alice") -> Any:
        """Return the JSON that `rtsched` prints; exit status 1 means that something is wrong."""
        done = self.box.run(["rtsched", *words, "--json"], user=user, check=False)
        if done.returncode > 1:
            raise TestbedError(done.stdout + done.stderr)
        return json.loads(done.stdout)

    def kept(self) -> list[Kept]:
        """Return what the database holds, closed promises and offers too."""
        return [Kept(*row) for row in self.box.database(READ)]

    def state(self, job: int) -> str:
        """Return how a job's promise stands; empty: it has none."""
        return next((kept.state for kept in self.kept() if kept.id == job), "")

    def wait_state(self, job: int, *states: str, seconds: float = 20) -> str:
        """Wait until a job's promise stands so; return how."""
        eventually(
            lambda: self.state(job) in states,
            seconds,
            lambda: f"job {job} {' or '.join(states)}; it is {self.state(job)!r}",
        )
        return self.state(job)

    def daemon_status(self) -> StatusReport | None:
        """Return the status that the daemon reports to root; None if it does not answer."""
        try:
            report: StatusReport = ask(Status(), str(self.box.path(SOCKET)))
        except AdapterError:  # the daemon may not be up yet, or the machine may stand still
            return None
        return report

    def daemon_time(self) -> float:
        """Return the daemon's clock; 0 if it does not answer."""
        return report.now if (report := self.daemon_status()) else 0.0

    def wait_usable(self, nodes: int) -> None:
        """Wait until the daemon may use so many nodes."""

        def usable() -> bool:
            return (report := self.daemon_status()) is not None and report.usable == nodes

        eventually(usable, 30, f"the daemon may use {nodes} nodes")

    def wait_clock(self, step: float) -> None:
        """Wait until the daemon's clock is so far from the true time."""

        def stepped() -> bool:
            return abs(self.daemon_time() - time.time() - step) < 60

        eventually(stepped, 20, "the daemon's clock steps")

    def child(self, *, estimates: bool = False) -> int:
        """Return the process of the daemon's that polls, or the one that estimates starts.

        The latter has the higher nice value. 0: it is not there.
        """
        daemon = self.box.services.pid("rtsched")
        reply = self.box.run(["ps", "-o", "pid=,ni=", "--ppid", str(daemon)], check=False).stdout
        own = int(self.box.run(["ps", "-o", "ni=", "-p", str(daemon)]).stdout)
        children = {int(nice): int(pid) for pid, nice in map(str.split, reply.splitlines())}
        return next((pid for nice, pid in children.items() if (nice > own) is estimates), 0)

    def polled(self) -> None:
        """Wait until the daemon has acted on what the batch system shows now.

        By the daemon's own clock: a poll that begins from now on, and the next one, which begins
        when all that the first one means is done.
        """
        since = eventually(self.daemon_time, 20, "the daemon answers")
        for what in ("the daemon polls", "the daemon has acted on a poll"):

            def began(since: float = since) -> float:
                report = self.daemon_status()
                looked = report.looked if report else None
                # A clock that was set back leaves a poll in the future behind.
                return looked if report and looked and since < looked <= report.now else 0.0

            since = eventually(began, 20, what)

    def must_promise(self, submit: Callable[[], Reply]) -> int:
        """Return the job of a submission that must be promised its deadline.

        Where a busy machine kept the daemon from answering in time, the user submits it again; and
        where other jobs may just have started, the next poll decides.
        """
        reply = submit()
        for _ in attempts(5, "the daemon answers in time") if UNPROMISED in reply.text else ():
            reply = submit()
            if UNPROMISED not in reply.text:
                break
        if reply.job and DEFERRED in reply.text:
            self.wait_state(reply.job, "firm", "kept")
        else:
            assert reply.promised, reply.text
        return reply.job

    def wait_promise(self) -> None:
        """Wait until a user has read one more promise, of those who submit meanwhile."""

        def read() -> int:
            return sum(each.promised for each in self.replies)

        before = read()
        eventually(lambda: read() > before, 20, "one more promise is read")

    def slowest(self, replies: Sequence[Reply] | None = None) -> float:
        """Return how long the slowest submission took, in seconds of a quiet machine."""
        slowest = max(each.quiet for each in (self.replies if replies is None else replies))
        NOTED.add("the slowest submission", slowest, BOUND)
        return slowest

    def takes(self, *words: str) -> float:
        """Return how long a command takes, in seconds of a quiet machine."""
        clock = QuietClock()
        self.box.run(list(words))
        taken = clock.now()
        NOTED.add(" ".join(words), taken, BOUND)
        return taken


@dataclass
class Live(Watched):
    """A running cluster with filter and daemon."""

    LOOK = ("squeue",)

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        assert isinstance(self.box, Cluster)
        return self.box

    def submit(self, *args: str, user: str = "alice", script: str = "sleep 30") -> Reply:
        """Submit a script; return what its user read."""
        begun, clock = time.monotonic(), QuietClock()
        done = self.cluster.run(
            ["sbatch", "--output=/dev/null", *args],
            user=user,
            input=f"#!/bin/sh\n{script}\n",
            check=False,
        )
        seconds = time.monotonic() - begun
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        job = int(found[1]) if found else 0
        reply = Reply(job, done.stdout + done.stderr, seconds, clock.now())
        self.replies.append(reply)
        return reply

    def promise(self, *args: str, user: str = "alice", script: str = "sleep 30") -> int:
        """Submit a script that must be promised its deadline; return its job id."""
        return self.must_promise(lambda: self.submit(*args, user=user, script=script))

    def wish(
        self, due: float | str, *more: str, limit: float = 120, nodes: int = 1, **options: Any
    ) -> Reply:
        """Submit a job that asks for a deadline; return what its user read."""
        asked = due if isinstance(due, str) else in_minutes(due / 60)
        script = f"sleep {options.pop('seconds', limit / 4):g}"
        words = (f"-N{nodes}", f"--time={limit / 60:.0f}", asked, *more)
        return self.submit(*words, script=script, **options)

    def status(self, job: int) -> str:
        """Return whether a job is idle, running, completed, ..."""
        state = self.cluster.job(job).get("JobState", "unknown")
        return {"PENDING": "idle", "CANCELLED": "removed"}.get(state, state.lower())

    def ad(self, job: int) -> dict[str, Any]:
        """Return what the controller tells of a job; {} when it has forgotten it."""
        return self.cluster.job(job)

    def began(self, job: int) -> float:
        """Return when a job that has ended began, seconds since the epoch."""
        return self.ran(job)[0]

    def remove(self, *jobs: int, user: str = "root") -> None:
        """Cancel jobs."""
        self.cluster.run(["scancel", *map(str, jobs)], user=user)

    def occupy(self, count: int, seconds: float, *, limit: float | None = None) -> list[int]:
        """Have so many best-effort jobs of bob's, and the daemon know of them; return them."""
        minutes = math.ceil((limit or seconds + 5) / 60)
        words = ["-N1", "--exclusive", f"--time={minutes}"]
        jobs = [
            self.cluster.sbatch(words, user="bob", script=f"sleep {seconds:g}")
            for _ in range(count)
        ]
        for job in jobs[: len(self.cluster.slurm.nodes)]:
            self.wait_status(job, "running", "completed")
        self.polled()
        return jobs

    def odds(self, percent: object) -> str:
        """Return the option that asks for odds."""
        return f"--extra=rtsched:odds={percent}"

    def several(self, count: int) -> str:
        """Return the option of an array of so many tasks."""
        return f"--array=1-{count}"

    def kept_free(self) -> Collection[str]:
        """Return the names of reservations."""
        return self.reservations()

    def hold_without_daemon(self) -> None:
        """Have the filter hold jobs while no daemon answers."""
        self.cluster.configure_filter(QUICK + "on_failure = hold\n")

    def reservations(self) -> dict[str, dict[str, str]]:
        """Return all reservations by name."""
        done = self.cluster.run(["scontrol", "-o", "show", "reservation"], check=False)
        rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in done.stdout.splitlines()]
        return {row["ReservationName"]: row for row in rows if "ReservationName" in row}

    def deadline_of(self, job: int) -> float:
        """Return what a job was promised, seconds since the epoch."""
        return next(each.deadline for each in self.kept() if each.id == job)

    def ran(self, job: int) -> tuple[int, int]:
        """Return start and end of a job, when accounting knows them, seconds since the epoch."""
        (task,) = self.ended_tasks(job, 1, seconds=30)
        return task.start, task.end

    def ended_tasks(self, array: int, count: int, *, seconds: float = 60) -> list[Task]:
        """Return the tasks of an array, when accounting knows how so many ended."""
        words = ["sacct", "-X", "-n", "-P", "-j", str(array), "-o", "State,Start,End,NodeList"]

        def found() -> list[Task]:
            lines = self.cluster.run(words, env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()
            rows = [line.split("|") for line in lines]
            rows = [row for row in rows if row[1].isdigit() and row[2].isdigit()]
            tasks = [Task(state, int(start), int(end), node) for state, start, end, node in rows]
            return tasks if len(tasks) >= count else []

        what = f"accounting knows {count} tasks of {array}"
        tasks: list[Task] = eventually(found, seconds, what)
        return tasks

    def names_in(self, nodes: str) -> list[str]:
        """Return the names in a node list; none of `(null)`."""
        if nodes == "(null)":
            return []
        return self.cluster.run(["scontrol", "show", "hostnames", nodes]).stdout.split()

    def tokens(self) -> dict[int, str]:
        """Return what stands in the admin comments of the jobs that the controller knows."""
        jobs = self.cluster.run(["scontrol", "-o", "show", "jobs"], check=False).stdout
        found = re.findall(r"^JobId=(\d+) .*?(?: AdminComment=(\S+))", jobs, re.MULTILINE)
        return {int(job): text for job, text in found}

    def known_jobs(self) -> set[int]:
        """Return the jobs that the controller knows, which are those of the last minutes."""
        shown = self.cluster.run(["scontrol", "-o", "show", "jobs"], check=False).stdout
        return {int(job) for job in re.findall(r"^JobId=(\d+) ", shown, re.MULTILINE)}

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait until their promises are closed."""
        users = ["alice", "bob", "carol", "dave"]
        self.cluster.run(["sh", "-c", "for u; do scancel -Q -u $u; done", "x", *users])

        def over() -> bool:
            return not self.cluster.run(["squeue", "-h"]).stdout.strip()

        eventually(over, 40, "all jobs are over")
        if self.cluster.services.alive("rtsched"):
            eventually(lambda: not [each for each in self.kept() if each.state in OPEN], 30)


@contextmanager
def live_cluster(
    site: str = SITE, suite: str = "forky", *, accounting: Sequence[str] = (), **options: Any
) -> Iterator[Live]:
    """Give a cluster with filter and daemon, made as `SlurmOptions` say; `files` are written too.

    `accounting` are commands of sacctmgr.
    """
    files = {SUBMIT_CONF: QUICK} | options.pop("files", {})
    slurm = SlurmOptions(**({"job_submit": ("rtsched",)} | options))
    with Cluster(suite, slurm, files=files) as cluster:
        for line in accounting:
            cluster.run(["sacctmgr", "--immediate", *line.split()])
        cluster.start_daemon(site)
        yield Live(cluster)


def without_jobs(live: Watched) -> Iterator[None]:
    """Let a test begin when the daemon may use all nodes, and cancel all jobs after it."""
    if isinstance(live, Live):
        live.wait_usable(len(live.cluster.slurm.nodes))
    yield
    live.cancel_all()


def in_minutes(minutes: float) -> str:
    """Return the option of sbatch that asks for a deadline so many minutes from now."""
    moment = time.gmtime(time.time() + 60 * minutes)
    return f"--deadline={time.strftime('%Y-%m-%dT%H:%M:%S', moment)}"


def lost_and_invented(
    live: Watched, promised: Sequence[Reply], before: Collection[str] | None = None
) -> list[str]:
    """Return what is wrong between what users read, what the jobs carry, and what is written down.

    A job whose user read a promise carries a token, and that promise is open or was kept. A job
    whose user read none has none. A promise that nobody was told of lapses: where `before` gives
    the tokens that were there before, all others must be among those that were read.
    """
    kept, tokens = {each.token: each for each in live.kept()}, live.tokens()
    by_job = {each.id: each.token for each in kept.values()}  # Slurm forgets jobs that are over
    wrong = []
    for reply in promised:
        token = tokens.get(reply.job, by_job.get(reply.job, "unjudged")).removeprefix("rtsched:")
        record = kept.get(token)
        if reply.promised and (record is None or record.state not in {"firm", "kept"}):
            wrong.append(f"lost: job {reply.job} with {token!r}: {record}")
        if reply.promised and record is not None and record.id != reply.job:
            wrong.append(f"mixed up: job {reply.job}: {record}")
        if reply.job and not reply.promised and token != "unjudged":  # noqa: S105
            wrong.append(f"invented: job {reply.job} with {token!r}: {reply.text}")
    if before is None:
        return wrong
    told = {reply.job for reply in promised if reply.promised}
    wrong += [
        f"invented: {each}"
        for each in kept.values()
        if each.token not in before
        and each.state in {"provisional", "firm", "kept"}
        and each.id not in told
    ]
    return wrong


def burst(live: Live, count: int, *, clients: int = 4) -> dict[str, Any]:
    """Submit jobs as fast as libslurm can, by so many clients at once; return what came of it.

    A tenth of them ask for a deadline. Meanwhile squeue is asked, and so is the daemon.
    """
    program = live.cluster.path("/tmp/submit.c")  # noqa: S108
    program.write_text(PROGRAM.read_text())
    live.cluster.run(["gcc", "-o", "/usr/bin/submit", "/tmp/submit.c", "-lslurm"])  # noqa: S108
    plain, wishes = str(count * 9 // 10 // clients), str(count // 10 // clients)
    script = f"submit {plain} none & submit {wishes} deadline; wait"
    before, begun = live.tokens(), time.monotonic()
    flood = [live.cluster.popen(["sh", "-c", script], user="bob") for _ in range(clients)]
    shown, looks = [], []
    while any(each.poll() is None for each in flood):
        at = time.monotonic()
        live.cluster.run(["squeue", "-h", "-u", "alice"])
        shown.append(time.monotonic() - at)
        at = time.monotonic()
        live.ask("status")
        looks.append(time.monotonic() - at)
        time.sleep(0.2)
    seconds = time.monotonic() - begun
    text = "".join(each.communicate()[0] for each in flood)
    there = int(live.cluster.run(["sh", "-c", "squeue -h -u bob | wc -l"]).stdout)
    new = [token for job, token in live.tokens().items() if job not in before]
    return {
        "submitted": text.count("job "),
        "refused": text.count("refused"),
        "seconds": seconds,
        "in the queue": there,
        "not judged in time": new.count("rtsched:unjudged"),
        "squeue slowest ms": 1000 * max(shown),
        "status slowest ms": 1000 * max(looks),
        "wrong": [] if there == text.count("job ") else ["jobs are missing in the queue"],
    }
