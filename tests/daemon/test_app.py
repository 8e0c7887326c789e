"""The daemon's loop: outcomes of changes, lag, names, watchdog, growth, settings read anew."""

import asyncio
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import ANN, FACTS, NOW, Running, Shown, answer_of, until
from scene import T0, Scene
from structlog.testing import capture_logs

from rtsched.adapters import users
from rtsched.adapters.live import Change, CompletionStatus, Done, Marks, Observation, Outcome
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import ACCEPT, MessageKind, Tag
from rtsched.core.chain import Chain, Member
from rtsched.core.hookspecs import hookimpl
from rtsched.daemon import metrics
from rtsched.daemon.app import Daemon, PluginChains
from rtsched.daemon.chains import Chains
from rtsched.daemon.metrics import LoopLag, Metrics
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Status, StatusReport
from rtsched.daemon.settings import LiveSite
from rtsched.daemon.site_reader import SiteReader
from rtsched.daemon.store import Store
from rtsched.errors import ConfigError
from rtsched.model.actions import Action, Notify
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import Text
from rtsched.model.verdicts import Verdicts
from rtsched_plugins.mcdf import Mcdf


class Failing:
    """A batch system that shows four idle nodes, and does not take the first messages to users."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.told: list[tuple[int, str]] = []

    async def poll(self) -> Observation:
        """Show nothing but nodes."""
        return Observation(1.0, Scene().cluster)

    async def find_completions(self, jobs: Sequence[int], since: float) -> object:
        """Never be asked: no promise is open."""
        raise AssertionError(jobs)

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[list[Change], list[Done]]:
        """Take messages only, and those not at once."""
        assert not dry_run
        dones = []
        for action in (each for each in actions if isinstance(each, Notify)):
            for job, text in zip(action.job.tolist(), action.text, strict=True):
                self.told.append((job, text))
                self.failures -= 1
                outcome = "failed" if self.failures >= 0 else "done"
                dones.append(Done(Change("tell", job, text), outcome))
        return [done.change for done in dones], dones


class Clueless:
    """A planner that raises."""

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts | None:
        """Raise."""
        raise ZeroDivisionError("no idea")


def test_a_planner_that_fails_is_reported(tmp_path: Path) -> None:
    """`rtsched status` and the metrics say so; the cycle goes on to its end."""

    async def cycle() -> tuple[tuple[str, ...], str]:
        chains = [Chains(Chain([Member("bad", Clueless())], "bad"), ()) for _ in range(3)]
        policy = PluginChains(LiveSite(), *chains)
        with Store(tmp_path / "rtsched.db") as store:
            daemon = Daemon(
                policy, store, Failing(0), SlurmTranslator(), Metrics(), reread=lambda: policy
            )
            for _ in range(2):
                await daemon.cycle()
            return daemon.status.problems, daemon.metrics.text()

    problems, metrics = asyncio.run(cycle())
    assert problems == (
        "planner 'bad' failed: ZeroDivisionError: no idea; the plan is unchanged, the next cycle "
        "tries again",
    )
    assert "rtsched_planning_failures_total 2.0" in metrics


def test_a_user_who_could_not_be_told_is_told_in_the_next_cycle(tmp_path: Path) -> None:
    """A message that the batch system did not take is tried again until it does, and once."""

    async def cycles(system: Failing) -> None:
        chains = [Chains(Chain([Member("mcdf", Mcdf())], "mcdf"), ()) for _ in range(3)]
        policy = PluginChains(LiveSite(), *chains)
        with Store(tmp_path / "rtsched.db") as store:
            daemon = Daemon(
                policy, store, system, SlurmTranslator(), Metrics(), reread=lambda: policy
            )
            daemon._with_notices([Notify(np.array([7]), ("broken",))])
            for _ in range(4):
                await daemon.cycle()

    system = Failing(failures=2)
    asyncio.run(cycles(system))
    assert system.told == [(7, "broken")] * 3


class Unkept(Shown):
    """A batch system that cannot keep nodes at first."""

    outcome: Outcome = "failed"

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[list[Change], list[Done]]:
        """Take in all, and fail at what keeps nodes."""
        await super().apply(actions, dry_run)
        change = Change("reserve", -1, "write the table")
        return [change], [Done(change, self.outcome)]


def test_a_held_job_is_not_promised_before_its_nodes_are_kept(running: Running) -> None:
    """Which counts from when the batch system has done it, not from when it was to."""
    system = running.system = running.daemon.worker = Unkept()
    columns = {"wall_time": [600.0], "deadline": [NOW + 700]}
    jobs = Jobs.build(1, id=[1], submit=[NOW], size=[4], **columns)
    marks = Marks.build(1, job=[1], uid=[ANN], deferred=[True], held=[True])

    def cycle(seconds: float) -> str:
        running.now = NOW + seconds
        running.show(time=running.now - 0.5, queued=jobs, marks=marks, keeps_after=2.0)
        asyncio.run(running.daemon.cycle())
        return "".join(running.states())

    assert [cycle(seconds) for seconds in (1, 4, 7)] == [""] * 3
    system.outcome = "done"
    assert [cycle(seconds) for seconds in (10, 12)] == [""] * 2
    assert running.daemon.site.secured[1].since == NOW + 10
    assert cycle(13) == "firm"


async def blocked(seconds: float) -> tuple[list[float], LoopLag, list[str]]:
    """Return what is measured of a loop that is blocked once, the meter, and what is logged."""
    seen: list[float] = []
    meter = LoopLag(seen.append, 0.001)
    with capture_logs() as logged:
        meter.start()
        await until(lambda: len(seen) >= 3)
        time.sleep(seconds)
        count = len(seen)
        await until(lambda: len(seen) >= count + 3)
        meter.stop()
    return seen, meter, [line["event"] for line in logged]


async def test_a_blocked_loop_is_seen() -> None:
    """Some milliseconds are measured; so much that a filter gives up is said in the log."""
    seen, meter, logged = await blocked(metrics.LONG + 0.01)
    assert max(seen) >= metrics.LONG
    assert meter.longest() == max(seen)
    assert logged[0] == "loop_blocked"


async def test_the_longest_delay_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status is about the last minute or two."""
    _, meter, _ = await blocked(0.02)
    assert meter.longest() >= 0.015
    monkeypatch.setattr(metrics, "WINDOW", 0.0)
    meter.start()
    await until(lambda: meter.longest() < 0.015)
    meter.stop()


async def test_status_and_metrics_tell(tmp_path: Path) -> None:
    """The meter of a daemon feeds its metrics and its status."""
    running = Running(tmp_path)
    await running.start()
    running.daemon.lag.start()
    await asyncio.sleep(3 * metrics.EVERY)
    report = await asyncio.to_thread(ask, Status(metrics=True), str(running.users.path))
    running.daemon.lag.stop()
    assert report.lag_s == pytest.approx(running.daemon.lag.longest(), abs=1.0)
    assert 'rtsched_loop_lag_seconds_bucket{le="0.01"}' in report.metrics
    answer = SiteReader(running.daemon, 1001, everyone=False).report(Status())
    assert answer.lag_s is None  # it says nothing to others than admins
    running.close()


async def test_a_submission_by_a_user_whom_nobody_knows_yet(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not judged while the name service hangs, others are; then it has the right name."""
    go_on = threading.Event()

    def hang(uid: int) -> Any:
        assert go_on.wait(120.0)
        return pwd.struct_passwd(("ann", "", uid, uid, "", "/", ""))

    await running.start()
    _, fields = await asyncio.to_thread(answer_of, running.asked())
    assert fields[Tag.VERDICT] == ACCEPT
    running.show(facts=replace(FACTS, users={}))
    await running.daemon.cycle()
    users.forget_users()
    monkeypatch.setattr(users.pwd, "getpwuid", hang)
    kind, fields = await asyncio.to_thread(answer_of, running.asked())
    assert kind is MessageKind.ERROR
    assert "name service" in str(fields[Tag.MESSAGE])
    go_on.set()
    _, fields = await asyncio.to_thread(answer_of, running.asked())
    assert fields[Tag.VERDICT] == ACCEPT
    assert [r.user for r in running.daemon.site.promises.values()] == ["ann", "ann"]
    users.forget_users()


LIMIT = 1.0
"""Seconds after which systemd would take the daemon for hung."""
LONGEST = 120.0
"""Seconds that anything may take on a busy machine."""

SITE = """
[daemon]
run = "{place}/run"
database = "{place}/rtsched.db"
filters = ["root"]
filter_group = ""
metrics_port = 0
[slurm]
bin_dir = "{place}/none"
"""


class Manager:
    """The service manager's end of a daemon."""

    def __init__(self, place: Path, **variables: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(place / "notify"))
        (place / "run").mkdir()
        (place / "site.toml").write_text(SITE.format(place=place))
        command = Path(sys.executable).with_name("rtsched")
        self.log = (place / "log").open("w+")
        self.process = subprocess.Popen(
            [command, "serve", "--config", place / "site.toml"],
            env={**os.environ, "NOTIFY_SOCKET": str(place / "notify"), **variables},
            stdout=self.log,
            stderr=self.log,
        )

    def heard(self, seconds: float = LONGEST) -> str:
        """Return the next message; empty: none came."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(4096).decode()
        except TimeoutError:
            return ""

    def until(self, state: str) -> list[str]:
        """Return what was heard before a state was."""
        before = []
        deadline = time.monotonic() + LONGEST
        while (said := self.heard()) != state:
            assert said, Path(self.log.name).read_text()
            assert time.monotonic() < deadline
            before.append(said)
        return before

    def close(self) -> None:
        """End the daemon."""
        self.process.kill()
        self.process.wait()
        self.socket.close()
        self.log.close()


@pytest.fixture
def manager(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    """Run a daemon whose batch system does not answer."""
    running = Manager(tmp_path, **request.param)
    yield running
    running.close()


WATCHED = {"WATCHDOG_USEC": f"{LIMIT * 1e6:.0f}", "PYTHONFAULTHANDLER": "1"}


@pytest.mark.parametrize("manager", [WATCHED], indirect=True)
def test_a_loop_that_hangs_falls_silent(manager: Manager) -> None:
    """A daemon pings while it goes round; stopped it does not, and what it was at is written."""
    before = manager.until("READY=1")
    assert before
    assert all(said.startswith("EXTEND_TIMEOUT_USEC=") for said in before)
    for _ in range(3):
        assert manager.heard() == "WATCHDOG=1"
    manager.process.send_signal(signal.SIGSTOP)
    while manager.heard(2 * LIMIT):  # what was under way
        pass
    manager.process.send_signal(signal.SIGCONT)
    assert manager.heard() == "WATCHDOG=1"
    manager.process.send_signal(signal.SIGABRT)  # as systemd ends what hangs
    assert manager.process.wait(LONGEST) == -signal.SIGABRT
    assert "most recent call first" in Path(manager.log.name).read_text()


@pytest.mark.parametrize("manager", [WATCHED | {"WATCHDOG_PID": "1"}, {}], indirect=True)
def test_nobody_watches(manager: Manager) -> None:
    """Without a watchdog, or with another process's, nothing is sent but starts and stops."""
    manager.until("READY=1")
    assert manager.heard(2 * LIMIT) == ""
    manager.process.send_signal(signal.SIGTERM)
    assert manager.heard() == "STOPPING=1"
    assert manager.process.wait(LONGEST) == 0


MINUTE = 60.0


def names_held(scene: Scene) -> int:
    """Return how many texts stand in the tables of names of the site's jobs."""
    snapshot = scene.site.snapshot
    tables = (scene.site.requested, snapshot.queued, snapshot.running)
    texts = [name for name, column in tables[0].columns().items() if isinstance(column, Text)]
    return sum(len(table.names(name)) for table in tables for name in texts)


def lived(scene: Scene, jobs: range) -> None:
    """Have jobs with names of their own promised, shown, started and ended, a minute each."""
    for job in jobs:
        now = T0 + MINUTE * job
        token = scene.submit(
            now,
            size=1,
            wall_time=50.0,
            deadline=now + 3600.0,
            name=f"sim-{job}",
            account=f"project-{job}",
        ).reply.token
        kept = job - 1  # one is always there: the tables never begin anew
        scene.poll(
            now + 1, queued=((job, token),), completions=((kept, now, CompletionStatus.COMPLETED),)
        )


def test_names_of_closed_promises_are_let_go(scene: Scene) -> None:
    """After hundreds of promises the tables of names are as long as after the first ones."""
    lived(scene, range(1, 50))
    early = names_held(scene)
    lived(scene, range(50, 700))
    assert len(scene.site.promises) == 1
    assert names_held(scene) <= early + 50


HERE = Path(__file__).parent


@pytest.mark.parametrize("planner", ["mcdf", "portfolio"])
def test_first_answers_load_nothing(planner: str) -> None:
    """No module and no compiled function: a filter waits for milliseconds."""
    paths = os.pathsep.join(
        filter(None, (str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH")))
    )
    done = subprocess.run(
        [sys.executable, str(HERE / "first_answers.py"), planner],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_every_request_takes_a_bounded_number_of_steps() -> None:
    """Extreme numbers and texts, by filters and questions, beside a promise, of four planners."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent)])
    found = subprocess.run(
        [sys.executable, str(here / "bounded_steps.py")],
        env=os.environ | {"RTSCHED_COMPILE": "0", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    made, most = map(int, found.stdout.splitlines()[-1].split())  # logs may come before
    assert made >= 400
    assert most > 1000  # steps were counted at all


async def reloaded(running: Running) -> None:
    """Reload, and wait until that is done."""
    running.daemon.reload()
    assert running.daemon.reloader.task is not None
    await running.daemon.reloader.task


async def test_plugins_are_warm_when_they_are_taken_in(running: Running) -> None:
    """They are read and asked in a thread, while submissions are answered by those before them."""
    before, judged = running.daemon.policy, []

    def submit() -> None:
        judged.append(threading.current_thread())
        assert running.daemon.policy is before
        _, fields = answer_of(running.asked())
        assert fields[Tag.VERDICT] == ACCEPT

    def reread() -> PluginChains:
        policy = running.policy()
        policy.submits.chain.members[0].plugin.meanwhile = submit
        return policy

    await running.start()
    running.daemon.reread = reread
    await reloaded(running)
    assert running.daemon.policy is not before
    assert judged
    assert threading.main_thread() not in judged


async def test_a_reload_during_a_reload_is_not_lost(running: Running) -> None:
    """What changed while the file was read is read again."""
    reads = []

    def reread() -> PluginChains:
        reads.append(len(reads))
        if len(reads) == 1:
            loop.call_soon_threadsafe(running.daemon.reload)
            loop.call_soon_threadsafe(again.set)
            assert again.wait(120.0)
        return running.policy()

    again = threading.Event()
    loop: asyncio.AbstractEventLoop
    loop = asyncio.get_running_loop()
    running.daemon.reread = reread
    await reloaded(running)
    assert reads == [0, 1]


@pytest.mark.parametrize(
    "error", [ConfigError(["plugin[0]: no such"]), ZeroDivisionError("in a plug-in")]
)
async def test_a_failed_reload_keeps_the_running_plugins_and_says_so(
    running: Running, error: Exception
) -> None:
    """Status tells until a reload succeeds."""

    def reread() -> PluginChains:
        raise error

    async def status() -> StatusReport:
        return await asyncio.to_thread(ask, Status(), str(running.users.path))

    await running.start()
    before = running.daemon.policy
    running.daemon.reread = reread
    await reloaded(running)
    assert running.daemon.policy is before
    await running.daemon.cycle()
    (problem,) = (await status()).problems
    assert "previous settings remain in effect" in problem
    assert str(error) in problem
    running.daemon.reread = running.policy
    await reloaded(running)
    assert running.daemon.policy is not before
    assert (await status()).problems == ()


async def test_settings_that_need_a_restart_are_named(running: Running) -> None:
    """They stay as they are: what was made by them at the start cannot follow."""

    def reread() -> PluginChains:
        return replace(running.policy(), at_start=["slurm.share_nodes", "daemon.run"])

    running.daemon.reread = reread
    await reloaded(running)
    (problem,) = running.daemon.problems()
    assert problem.startswith("slurm.share_nodes, daemon.run in site.toml differ")
    assert "restart the daemon" in problem
    running.daemon.reread = running.policy
    await reloaded(running)
    assert running.daemon.problems() == ()
