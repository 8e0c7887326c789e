"""A made-up Slurm for measurements of the daemon: large, always the same, and quick to poll."""

from __future__ import annotations

import math
import pickle
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.live import Completions, Marks, Observation
from rtsched.adapters.slurm.facts import Partition, SlurmFacts
from rtsched.adapters.wire import Tag
from rtsched.core.config import PluginTable
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.settings import DaemonSettings, LiveSite
from rtsched.daemon.start import policy_of
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rtsched.adapters.live import Change, Done
    from rtsched.daemon.app import Daemon, PluginChains
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site
    from rtsched.model.actions import Action

FIRST_USER = 61_000
DAY = 86400.0
EACH = 2_000
"""Promises that a user may have at most."""


class MadeUp:
    """A Slurm in which many jobs wait, and those that were promised something besides."""

    name = "slurm"
    calls = math.inf

    def __init__(self, directory: Path, pending: int, nodes: int, busy: int) -> None:
        self.directory, self.promised = directory, list[tuple[str, Jobs]]()
        names = [f"node{k:04}" for k in range(nodes)]
        self.cluster = Cluster(Nodes.build(nodes, name=names))
        self.begun = time.time()
        at = self.begun - 3600.0 + np.arange(pending) * min(0.1, 3600.0 / max(pending, 1))
        self.pending = Jobs.build(
            pending,
            id=np.arange(1, pending + 1),
            submit=np.floor(at),
            wall_time=np.full(pending, 7200.0),
            size=np.full(pending, 4, np.int32),
            name=[f"job{k % 5000}" for k in range(pending)],
            user=[f"u{FIRST_USER + k % 200}" for k in range(pending)],
            account=[f"a{k % 20}" for k in range(pending)],
            partition=["all"] * pending,
        )
        self.running = self.pending.take(np.arange(busy) % pending).replace(
            id=np.arange(10_000_000, 10_000_000 + busy)
        )

    def poll(self) -> Observation:
        """Return all jobs; those of new promises have come meanwhile."""
        for file in sorted(self.directory.glob("*.new")):
            self.promised += pickle.loads(file.read_bytes())  # noqa: S301 - our own
            file.unlink()
        now, busy, count = time.time(), len(self.running), len(self.promised)
        asked = [
            row.replace(id=np.array([20_000_000 + k])) for k, (_, row) in enumerate(self.promised)
        ]
        runs = Schedule.build(
            self.running.id,
            np.full(busy, self.begun - 60.0),
            np.full(busy, self.begun + 6 * 3600.0),
            np.arange(busy + 1, dtype=np.int64),
            np.arange(busy, dtype=np.int32),
        )
        queued = Jobs.joined([self.pending, *asked])
        marks = Marks.build(
            len(queued) + busy,
            job=np.concatenate([queued.id, self.running.id]),
            uid=np.full(len(queued) + busy, FIRST_USER),
            token=[None] * len(self.pending) + [t for t, _ in self.promised] + [None] * busy,
        )
        if count:
            order = np.lexsort((queued.id, queued.submit))
            queued = queued.take(order)
            marks = marks.take(np.concatenate([order, np.arange(len(queued), len(queued) + busy)]))
        return Observation(
            now, self.cluster, queued, self.running, runs, marks, facts=facts(len(self.cluster))
        )

    def find_completions(self, jobs: Sequence[int], since: float) -> Completions:
        """Know nothing of jobs that ended."""
        del jobs, since
        return Completions.build(0)

    def changes(self, actions: Sequence[Action]) -> Sequence[Change]:
        """Return that all is as it should be."""
        del actions
        return []

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Do nothing."""
        del changes
        return []


def facts(nodes: int) -> SlurmFacts:
    """Return one partition of all nodes, and two hundred users."""
    return SlurmFacts(
        partitions={"all": Partition("all", 3600.0, 7 * DAY, True, nodes, 4)},
        default="all",
        longest=7 * DAY,
        users={FIRST_USER + k: f"u{FIRST_USER + k}" for k in range(200)},
    )


def job_fields(uid: int, nodes: int, deadline: float) -> dict[int, int | str]:
    """Return what the filter sends of a job of an hour."""
    return {
        Tag.USER_ID: uid,
        Tag.SUBMIT_UID: uid,
        Tag.MIN_NODES: nodes,
        Tag.MAX_NODES: nodes,
        Tag.TIME_LIMIT: 60,
        Tag.DEADLINE: int(deadline),
        Tag.LAST_NODE_UPDATE: 0,  # nothing has started since the poll
    }


class Spool:
    """Tells the batch system which promises were given: the filter would write their tokens."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.count, self.lines = directory, 0, list[tuple[str, Jobs]]()

    def put(self, site: Site, changed: Sequence[Promise]) -> None:
        """Remember the jobs of new promises."""
        self.lines += [(r.token, site.row(r.id)) for r in changed if r.state == "provisional"]

    def write(self) -> None:
        """Write down what has come; in a thread."""
        lines, self.lines = self.lines, []
        if lines:
            self.count += 1
            file = self.directory / f"{self.count:06}.tmp"
            file.write_bytes(pickle.dumps(lines))
            file.rename(file.with_suffix(".new"))


def policy_in(directory: Path, **planner: Any) -> PluginChains:
    """Return what a daemon needs that promises by `mcdf`, and has its files in a directory.

    `planner`: settings of `mcdf`.
    """
    settings = DaemonSettings(
        unused_promises_per_hour=0, lapse=600.0, run=str(directory), log_level="warning"
    )
    return policy_of(
        LiveSite(planner="mcdf", plugin=[PluginTable("mcdf", settings=planner)], daemon=settings)
    )


def admission_of(daemon: Daemon) -> AdmissionController:
    """Return what evaluates submissions, as the daemon does."""
    return AdmissionController(daemon.policy.submits, daemon.policy.live.daemon, daemon.wording)


async def promise(daemon: Daemon, promises: int) -> None:
    """Give promises until there are so many, as submissions would.

    Raises
    ------
    SystemExit
        If as many are rejected.
    """
    random, admission, rejected = np.random.default_rng(7), admission_of(daemon), 0
    while len(daemon.site.promises) < promises:
        now, user = time.time(), FIRST_USER + len(daemon.site.promises) // EACH
        fields = job_fields(user, int(random.integers(1, 9)), now + random.uniform(1, 6) * DAY)
        submission = daemon.translator.describe(fields, daemon.site.facts, now)
        judged = admission.judge(daemon.site, submission, now)
        if judged.verdict == "admit":
            await daemon.commit(judged.site, judged.changed)
            continue
        rejected += 1
        if rejected > promises:
            raise SystemExit(f"no more is promised: {judged.reply.text}")
