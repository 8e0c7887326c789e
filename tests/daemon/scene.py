"""A small site to judge submissions on: equal nodes, jobs that run on them, mcdf or spare."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rtsched.adapters.live import (
    Completions,
    CompletionStatus,
    Done,
    Marks,
    Observation,
    Submission,
)
from rtsched.core.chain import Chain, Member
from rtsched.daemon.admission import AdmissionController, AdmissionResult
from rtsched.daemon.chains import Chains
from rtsched.daemon.cycle import CycleRules, after_poll
from rtsched.daemon.deferred import with_kept
from rtsched.daemon.messages import Wording
from rtsched.daemon.restarting import RestartPolicy
from rtsched.daemon.settings import DaemonSettings
from rtsched.daemon.site import Site, Step
from rtsched.model.blocked import NOTHING_BLOCKED
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Periodic
from rtsched.model.limits import Association, LimitRules, LimitSet, Qos, SiteLimits, UsedTime
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.spare import Spare

T0 = 1_000_000.0
ANN, BOB = 1001, 1002
SHARED = ("cpu", "gres/gpu")
"""Resources of nodes that jobs share."""
WORDS = Wording(lambda at: f"--deadline={at:.0f}", str, "the job may run yet")


def limits_of(
    account: LimitSet | None = None, ann: LimitSet | None = None, **qos: Qos
) -> LimitRules:
    """Return limits of account physics, of ann in it, and of QOS; bob and arts have none."""
    rows = (
        Association("root"),
        Association("physics", parent="root", limits=account or LimitSet()),
        Association("physics", "ann", limits=ann or LimitSet()),
        Association("physics", "bob"),
        Association("arts", parent="root"),
        Association("arts", "ann"),
    )
    return LimitRules(SiteLimits(qos, rows))


class Scene:
    """Drives a site as the daemon does, with hand-made polls."""

    def __init__(
        self,
        nodes: int = 4,
        planner: str = "mcdf",
        plugin: object = None,
        member: Mapping[str, str] | None = None,
        capacity: Sequence[tuple[int, int]] = (),
        **settings: Any,
    ) -> None:
        edf = Mcdf(Mcdf.Config(order="deadline"))
        plugin = plugin or {"mcdf": Mcdf(), "edf": edf, "spare": Spare()}[planner]
        self.chains = Chains(Chain([Member(planner, plugin, **(member or {}))], planner), ())
        self.settings = DaemonSettings(**settings)
        restart_policy = RestartPolicy(
            frozenset(self.settings.restart_exit_codes), self.settings.restarts
        )
        self.rules = CycleRules(
            self.chains,
            self.chains.planner_alone,
            15.0,
            self.admission,
            restart_policy=restart_policy,
        )
        names = [f"n{k}" for k in range(nodes)]
        self.cluster = Cluster(Nodes.build(nodes, name=names))
        if capacity:  # cores and GPUs, shared by jobs
            amounts = np.array(capacity, np.int64)
            columns = {"names": {"capacity": SHARED}, "capacity": amounts}
            self.cluster = Cluster(Nodes.build(nodes, name=names, **columns))
        self.demand: dict[int, tuple[int, int]] = {}
        self.accounts: dict[int, str] = {}  # of ann's jobs that run
        self.qos: dict[int, str] = {}  # of them, too
        self.limit_rules: LimitRules | None = None
        self.used_time: UsedTime | None = None
        self.blocked = NOTHING_BLOCKED
        self.periodic = Periodic.build(0)
        self.reserved_ahead = 0.0
        self.site = Site(Snapshot(T0, self.cluster))
        self.poll(T0)

    @property
    def admission(self) -> AdmissionController:
        """The admission by the present chains and settings."""
        return AdmissionController(self.chains, self.settings, WORDS)

    def submit(
        self,
        now: float = T0,
        uid: int = ANN,
        after: int | None = None,
        demand: tuple[int, int] | None = None,
        singleton: bool = False,
        by: AdmissionController | None = None,
        otherwise: str = "",
        elsewhere: Sequence[str] = (),
        **columns: object,
    ) -> AdmissionResult:
        """Submit a job, perhaps one that waits for another; the site then is the daemon's.

        `demand`: the cores and GPUs that it takes on each node, where jobs share nodes;
        `singleton`: it waits for the jobs of its name; `by`: who judges it, in place of ours;
        `otherwise`: what becomes of it without a promise; `elsewhere`: the other partitions
        that it names.
        """
        text = {"partition": None, "account": None, "qos": None, **columns}
        arrays = {k: [v] for k, v in text.items() if v is not None}
        edges = Edges.build(0) if after is None else Edges.build(1, before=[after])
        names = {} if demand is None else {"demand": SHARED}
        amounts = None if demand is None else np.array([demand], np.int64)
        row = Jobs.build(1, names=names, demand=amounts, **arrays)
        submission = Submission(row, edges, uid, singleton=singleton, otherwise=otherwise)
        others = [Jobs.build(1, **arrays | {"partition": [name]}) for name in elsewhere]
        same = tuple(replace(submission, jobs=other) for other in others)
        submission = replace(submission, elsewhere=same)
        judged = (by or self.admission).judge(self.site, submission, now)
        self.site = judged.site
        return judged

    def submit_all(self, jobs: Sequence[tuple[int, int, float]]) -> tuple[tuple[int, str], ...]:
        """Submit jobs at `T0`; return numbers and tokens of those that are promised something.

        Each has a size, a wall time in hundreds of seconds, and a deadline in wall times from then.
        """
        promised: tuple[tuple[int, str], ...] = ()
        for number, (size, hundreds, slack) in enumerate(jobs):
            wall = 100.0 * hundreds
            judged = self.submit(T0, size=size, wall_time=wall, deadline=T0 + 1 + slack * wall)
            if judged.verdict == "admit":
                promised += ((10 + number, judged.reply.token),)
        return promised

    def poll(
        self,
        now: float,
        queued: tuple[tuple[int, str], ...] = (),
        running: tuple[tuple[int, str, float, float, tuple[int, ...]], ...] = (),
        completions: tuple[tuple[int, float, CompletionStatus], ...] = (),
        uid: int = ANN,
        down: tuple[int, ...] = (),
        partitions: Mapping[str, tuple[int, ...]] | None = None,
        deferred: Jobs | None = None,
        held: tuple[int, ...] = (),
        stuck: tuple[int, ...] = (),
        suspended: tuple[int, ...] = (),
        edges: tuple[tuple[int, int], ...] = (),
        changed: Mapping[str, object] | None = None,
        flapping: tuple[int, ...] = (),
        problems: Mapping[int, str] | None = None,
        limits: Mapping[int, str] | None = None,
        leeway: float = 0.0,
        failed: tuple[tuple[int, float, int], ...] = (),
        restarts: int = 0,
        requeue_delay: float = 0.0,
        unusable: str | None = None,
        singleton: tuple[int, ...] = (),
        keeps_after: float = math.inf,
        not_done: tuple[Done, ...] = (),
        otherwise: str | None = None,
        unpromised: Jobs | None = None,
    ) -> Step:
        """Take in a poll that shows these jobs.

        `queued`: id and token; `running`: id, token, start, end and nodes; `completions`: id, end,
        how; `partitions`: rows of their nodes, as before if None; `held`: ids; `edges`: who waits
        for whom, `(before, after)`; `changed`: columns of all that wait which are not as submitted;
        `flapping`: nodes that may come back at once; `problems`: by id, what is wrong with a job;
        `limits`: by id, the limit that it waits for;
        `leeway`, `requeue_delay`, `keeps_after`: as of an `Observation`; `failed`: id, end, exit
        code of jobs that may be queued again, and have been as often as `restarts` says;
        `unusable`: why none of `deferred` can be promised anything; `otherwise`: what becomes of
        these without a promise, and of `unpromised`, which run without one; `singleton`: ids of
        jobs that wait for those of their name;
        `not_done`: what failed of what was asked for afterwards.
        """
        state = np.zeros(len(self.cluster), np.int8)
        state[list(down)] = 2
        if (state != self.cluster.nodes.state).any():
            nodes = self.cluster.nodes.replace(state=state)
            self.cluster = replace(self.cluster, nodes=nodes, version=self.cluster.version + 1)
        if partitions is not None:
            rows = np.arange(len(self.cluster))
            masks = {name: np.isin(rows, inside) for name, inside in partitions.items()}
            self.cluster = replace(self.cluster, partitions=masks)
        waiting = Jobs.joined([self._shown(job, token) for job, token in queued])
        for name, value in (changed or {}).items():
            if isinstance(value, str):
                waiting = waiting.replace_text(name, np.zeros(len(waiting), np.int32), (value,))
            else:
                rows = value if np.ndim(value) else np.full(len(waiting), value)
                waiting = waiting.with_column(name, rows)
        shared = bool(self.cluster.shared and running)
        at_work = Jobs.build(
            len(running),
            names={"demand": SHARED} if shared else {},
            id=[r[0] for r in running] or None,
            submit=np.full(len(running), T0),
            demand=np.array([self.demand[r[0]] for r in running], np.int64) if shared else None,
            wall_time=np.array([r[3] - r[2] for r in running]) if shared else None,
            user=["ann"] * len(running) or None,
            account=[self.accounts.get(r[0]) for r in running] or None,
            qos=[self.qos.get(r[0]) for r in running] if shared else None,
        )
        counts = [len(r[4]) for r in running]
        runs = Schedule.build(
            [r[0] for r in running],
            [r[2] for r in running],
            [r[3] for r in running],
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.array([n for r in running for n in r[4]], np.int32),
        )
        rows = [*queued, *running]
        marks = Marks.build(
            len(rows),
            job=[r[0] for r in rows] or None,
            uid=[uid] * len(rows) or None,
            token=[r[1] or None for r in rows] or None,
            requeues=[True] * len(rows) or None,
            held=[r[0] in held for r in rows] or None,
            stuck=[r[0] in stuck for r in rows] or None,
            suspended=[r[0] in suspended for r in rows] or None,
            problem=[(problems or {}).get(r[0]) for r in rows] or None,
            limit=[(limits or {}).get(r[0]) for r in rows] or None,
        )
        for others, marked in ((deferred, "deferred"), (unpromised, "unpromised")):
            if others is None:
                continue
            waiting, count = Jobs.joined([waiting, others]), len(others)
            columns = {"uid": [uid] * count, "otherwise": [otherwise] * count or None}
            if marked == "deferred":
                columns |= {
                    "unusable": [unusable] * count or None,
                    "held": np.ones(count, np.bool_),
                }
            columns[marked] = np.ones(count, np.bool_)
            marks = Marks.joined([marks, Marks.build(count, job=others.id, **columns)])
        waiting = waiting.replace(singleton=np.isin(waiting.id, singleton))
        past = Completions.build(
            len(completions),
            job=[e[0] for e in completions] or None,
            start=np.full(len(completions), T0),
            end=[e[1] for e in completions] or None,
            status=np.array([e[2] for e in completions], np.int8) if completions else None,
        )
        again = Completions.build(
            len(failed),
            job=[e[0] for e in failed] or None,
            start=np.full(len(failed), T0),
            end=[e[1] for e in failed] or None,
            status=np.full(len(failed), CompletionStatus.FAILED, np.int8),
            exit_code=[e[2] for e in failed] or None,
            requeues=np.ones(len(failed), np.bool_),
            restarts=np.full(len(failed), restarts, np.int32),
        )
        past = Completions.joined([past, again])
        links = Edges.build(
            len(edges), before=[e[0] for e in edges] or None, after=[e[1] for e in edges] or None
        )
        observation = Observation(
            now,
            self.cluster,
            waiting,
            at_work,
            runs,
            marks,
            past,
            edges=links,
            flapping=np.array(flapping, np.int64),
            leeway=leeway,
            requeue_delay=requeue_delay,
            keeps_after=keeps_after,
            limits=self.limit_rules,
            used_time=self.used_time,
            blocked=self.blocked,
            periodic=self.periodic,
            reserved_ahead=self.reserved_ahead,
        )
        settled = after_poll(self.site, observation, self.rules, now)
        self.site = with_kept(settled.site, not_done, now)
        return settled

    def planned(self) -> dict[int, tuple[float, list[int]]]:
        """Return start, in seconds after `T0`, and nodes of each planned job."""
        plan = self.site.snapshot.plan
        rows = enumerate(zip(plan.entries.job.tolist(), plan.entries.start.tolist(), strict=True))
        return {job: (start - T0, plan.nodes_of(row).tolist()) for row, (job, start) in rows}

    def starts(self) -> list[float]:
        """Return the planned starts in order of the jobs, seconds after `T0`."""
        return [round(start, 3) for _, (start, _) in sorted(self.planned().items())]

    def _shown(self, job: int, token: str) -> Jobs:
        """Return a waiting job as the batch system shows it: as it was submitted."""
        known = [r.id for r in self.site.promises.values() if r.token == token]
        if known:
            return self.site.row(known[0]).replace(id=np.array([job]))
        likely = self.site.likely
        if own := [r.id for r in likely.promises.values() if r.token == token]:
            row = likely.requested.take(likely.requested.id == own[0])
            return row.replace(id=np.array([job]))
        return Jobs.build(1, id=[job], submit=[T0])
