"""A daemon with real sockets and a real database; its batch system shows what it is told to."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scene import Scene

from rtsched.adapters.live import Change, Completions, Done, Observation
from rtsched.adapters.slurm.facts import Partition, SlurmFacts
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import HEADER, MessageKind, Tag, decode_fields, encode, read_header
from rtsched.core.capabilities import PreparedState
from rtsched.core.chain import Chain, Member
from rtsched.core.config import PluginTable
from rtsched.core.hookspecs import hookimpl
from rtsched.daemon.answers import Answers, Queries
from rtsched.daemon.app import Daemon, PluginChains
from rtsched.daemon.chains import Chains
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.promises import LIST_FILE, PromisedJobs
from rtsched.daemon.query_client import report_in
from rtsched.daemon.server import SocketServer
from rtsched.daemon.settings import DaemonSettings, LiveSite
from rtsched.daemon.store import Store
from rtsched.model.actions import Action
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdicts
from rtsched_plugins.mcdf import Mcdf

ANN = 1001
NOW = 1_800_000_000.0
FACTS = SlurmFacts(
    partitions={"all": Partition("all", 600.0, 86400.0, True, 4, 4)},
    default="all",
    longest=86400.0,
    users={ANN: "ann"},
)


class Shown:
    """A batch system that shows four idle nodes and what else `observation` is set to."""

    def __init__(self) -> None:
        self.observation = Observation(NOW, Scene().cluster, facts=FACTS)
        self.applied: list[Action] = []

    async def poll(self) -> Observation:
        """Show what there is to see."""
        return self.observation

    async def find_completions(self, jobs: Sequence[int], since: float) -> Completions:
        """Know nothing of jobs that ended."""
        del jobs, since
        return Completions.build(0)

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[list[Change], list[Done]]:
        """Take all actions in, and change nothing."""
        assert not dry_run
        self.applied += actions
        return [], []

    async def close(self) -> None:
        """Do nothing."""


class Observed(Mcdf):
    """The planner; `meanwhile` is called while it judges jobs."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(Mcdf.Config())
        self.meanwhile = meanwhile

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, prepared: PreparedState
    ) -> Verdicts | None:
        """Judge, and let the test do something in between."""
        if len(jobs):
            self.meanwhile()
        return super().rtsched_admit(jobs, snapshot, prepared)


class User:
    """A client of some uid."""

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def waits(self) -> bool:
        """Return that it does."""
        return True

    def if_unread(self, undo: object) -> None:
        """Read everything."""


async def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Let the loop run until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.001)


def even_ends(first: float, last: float, count: int = 9999) -> NDArray[np.float64]:
    """Return so many ends of a job, between two times; its odds are the share that has passed."""
    share = np.arange(1, count + 1) / (count + 1)
    return np.asarray(first + share * (last - first) - 1e-3)


def nothing() -> None:
    """Do nothing."""


@dataclass
class Running:
    """A daemon, its parts, and what the test has happen while it works."""

    path: Path
    settings: DaemonSettings = field(default_factory=DaemonSettings)
    now: float = NOW
    judging: Callable[[], None] = nothing
    settling: Callable[[], None] = nothing
    querying: Callable[[], None] = nothing

    def __post_init__(self) -> None:
        live = LiveSite(planner="mcdf", plugin=[PluginTable("mcdf")], daemon=self.settings)
        self.live, self.system = live, Shown()
        self.store = Store(self.path / "rtsched.db")
        self.daemon = Daemon(
            self.policy(),
            self.store,
            self.system,
            SlurmTranslator(),
            Metrics(),
            reread=self.policy,
            promised=PromisedJobs(self.path / LIST_FILE),
            clock=lambda: self.now,
        )
        self.answers = Answers(self.daemon)
        self.server = SocketServer(
            self.path / "submit.sock", (MessageKind.SUBMIT, MessageKind.MODIFY), self.answers.answer
        )
        self.queries = Queries(self.daemon, -1)
        self.users = SocketServer(
            self.path / "query.sock", (MessageKind.QUERY,), self.queries.answer
        )

    def policy(self) -> PluginChains:
        """Return the plug-ins of a site with mcdf."""
        calls = [lambda: self.judging(), lambda: self.settling(), lambda: self.querying()]
        chains = [Chains(Chain([Member("mcdf", Observed(call))], "mcdf"), ()) for call in calls]
        return PluginChains(self.live, *chains)

    async def start(self, **shown: object) -> None:
        """Look once, at what else is shown, and listen."""
        self.show(**shown)
        await self.daemon.cycle()
        await self.server.listen()
        await self.users.listen()

    def close(self) -> None:
        """Listen no more."""
        self.server.close()
        self.users.close()
        self.queries.close()
        self.store.close()

    def asked(
        self,
        nodes: int = 1,
        hours: float = 24.0,
        array: str = "",
        extra: str = "",
        *,
        uid: int = ANN,
        minutes: int = 30,
        timeout_ms: int = 0,
        asked_ms: int = 0,
        **others: int | str,
    ) -> socket.socket:
        """Return the socket of a filter that has asked about a job of ann's and not read yet."""
        fields: list[tuple[Tag, int | str]] = [
            (Tag.USER_ID, uid),
            (Tag.SUBMIT_UID, uid),
            *([(Tag.TIMEOUT_MS, timeout_ms)] if timeout_ms else []),
            *([(Tag.ASKED_MS, asked_ms)] if asked_ms else []),
            (Tag.MIN_NODES, nodes),
            (Tag.MAX_NODES, nodes),
            (Tag.TIME_LIMIT, minutes),
            (Tag.DEADLINE, int(self.now + hours * 3600)),
            (Tag.LAST_NODE_UPDATE, 0),  # nothing has started since the poll
            *([(Tag.ARRAY_INX, array)] if array else []),
            *([(Tag.EXTRA, extra)] if extra else []),
            *((Tag[name], value) for name, value in others.items()),
        ]
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(120.0)  # the first question may compile kernels
        line.connect(str(self.server.path))
        line.sendall(encode(MessageKind.SUBMIT, fields))
        return line

    async def ask(self, question: Any, uid: int = ANN) -> Any:
        """Return the answer to a user's question."""
        payload = msgspec.json.encode(question)
        answer = await self.queries.answer(MessageKind.QUERY, payload, User(uid))
        return report_in(question, MessageKind.REPORT, answer[HEADER.size :], "test")

    def states(self) -> list[str]:
        """Return how the promises and offers that the daemon holds stand."""
        return [record.state for record in self.daemon.site.promises.values()]

    def show(self, **changes: object) -> None:
        """Have the next poll show something else."""
        self.system.observation = replace(self.system.observation, **changes)


def answer_of(line: socket.socket) -> tuple[MessageKind, dict[int, int | str]]:
    """Return what a filter reads: kind and fields."""
    with line:
        kind, length = read_header(line.recv(HEADER.size, socket.MSG_WAITALL))
        payload = line.recv(length, socket.MSG_WAITALL) if length else b""
    return kind, decode_fields(payload)
