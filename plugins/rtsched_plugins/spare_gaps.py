"""Spare capability in the batch setting: tasks that are never suspended, in gaps between work.

A node has what is left beside running jobs, until their requested ends; beside what is planned and
what reservations set aside; and beside every occurrence of its periodic work, from its release for
as long as it takes. Where jobs have whole nodes, each of these takes all of a node.

The short form, for replays on whole nodes without periodic work or graphs, makes the same choices,
from the rows of a workload in place of a snapshot's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import (
    TENANCY,
    Edges,
    Kind,
    PlanRows,
    Ragged,
    Schedule,
    Verdicts,
    demand_of,
    lacking,
    occurrences,
    offsets_of,
    room_of,
)
from rtsched_plugins.kernels.gaps import (
    GapRows,
    gap_for,
    keep_row,
    left_by_rows,
    plan_of_rows,
    reserve,
)
from rtsched_plugins.room import copied, left_beside
from rtsched_plugins.spare_form import Batch, Choice, Place, allowed_sets, bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, RejectedRows, Snapshot
    from rtsched.kernels.room import RoomProfile
    from rtsched_plugins.spare import Spare

    Rows = NDArray[np.int64]

    Times = NDArray[np.float64]


NO_EDGES = Edges.build(0)

PERIODS = 64
"""Behind everything planned the gaps are looked for this many longest periods far at most."""


class GapForm:
    """What is left of each node, and what a batch takes of it.

    Parameters
    ----------
    gaps : GapRows
        Jobs and nodes.
    left : RoomProfile
        What is left of the nodes, from now on; changed.
    now : float
        Seconds since the epoch.
    closed : bool[m]
        The nodes that take no job.
    rows : int64[n]
        The new jobs' rows of `gaps`.
    """

    def __init__(
        self,
        gaps: GapRows,
        left: RoomProfile,
        now: float,
        closed: NDArray[np.bool_],
        rows: Rows,
    ) -> None:
        self._gaps, self._left, self._now, self._closed = gaps, left, now, closed
        self._rows = rows.tolist()

    @classmethod
    def of(cls, snapshot: Snapshot, jobs: Jobs, last: bool) -> GapForm:
        """Return the form for new jobs; `last`: utilisation-first instead of response-first."""
        gaps = gap_rows(jobs, snapshot.cluster, last)
        closed = ~np.asarray(snapshot.cluster.usable, np.bool_)
        return cls(gaps, _beside_all(snapshot, jobs), snapshot.now, closed, np.arange(len(jobs)))

    def choose(
        self,
        row: int,
        before: list[tuple[Place, float]],
        due: float,
        beyond: bool,  # noqa: ARG002 - it costs nothing here
    ) -> Choice:
        """Choose the nodes of one task; as `Form.choose`."""
        now, row = self._now, self._rows[row]
        ready = np.where(self._closed, np.inf, max(float(self._gaps.begin[row]) - now, 0.0))
        for place, message in before:
            arrives = np.full(len(ready), place.end - now + message)
            arrives[place.nodes] = place.end - now
            ready = np.maximum(ready, arrives)
        found, nodes = gap_for(self._gaps, self._left, row, ready, due - now)
        at = Place(now + found.start, now + found.end, nodes) if len(nodes) else None
        return Choice(at, now + found.later, found.fits)

    def take(self, row: int, place: Place, sign: int = 1) -> None:
        """Take what a task needs at a place (sign 1), or give it back (-1)."""
        now, row = self._now, self._rows[row]
        needed = 2 * (len(place.nodes) + 1)
        if self._left.unused[1] + needed > len(self._left.after):
            self._left = copied(self._left, needed + len(self._left.after))
        demand = self._gaps.demand[row : row + 1]
        reserve(self._left, demand, place.nodes, place.start - now, place.end - now, sign)


def _beside_all(snapshot: Snapshot, jobs: Jobs) -> RoomProfile:
    """Return what is left beside all that runs, is planned or set aside, and recurs.

    Nothing is left of a node with recurring work where its occurrences are not known any more.
    """
    cluster, blocked, now = snapshot.cluster, snapshot.blocked, snapshot.now
    held = Schedule.joined([snapshot.allocations, snapshot.plan, blocked.schedule()])
    start, end = held.entries.start - now, held.entries.end - now
    size, nodes = held.ragged.lengths, held.nodes
    demand = [demand_of(some, cluster) for some in (snapshot.running, snapshot.planned)]
    demand.append(blocked.demand(cluster))
    if len(snapshot.periodic):
        periodic, ahead = snapshot.periodic, _look_ahead(snapshot, jobs, end)
        row, begin, _ = occurrences(periodic, now, now + ahead)
        over, unknown = begin - now + periodic.exec_time[row], np.unique(periodic.node)
        start = np.concatenate([start, begin - now, np.full(len(unknown), ahead)])
        end = np.concatenate([end, over, np.full(len(unknown), np.inf)])
        size = np.concatenate([size, np.ones(len(row) + len(unknown), np.int64)])
        nodes = np.concatenate([nodes, periodic.node[row], unknown])
        whole = np.zeros((len(unknown), demand[0].shape[1]), np.int64)
        whole[:, -1] = TENANCY
        demand += [demand_of(periodic, cluster)[row], whole]
    spans = start, np.maximum(end, 0.0), Ragged(offsets_of(size), nodes)
    return left_beside(room_of(cluster), *spans, np.concatenate(demand), 0.0, len(cluster.licenses))


def _look_ahead(snapshot: Snapshot, jobs: Jobs, end: Times) -> float:
    """Return for how many seconds occurrences count: as far as a job may look for a gap.

    `end` is when all else ends, seconds from now.
    """
    period = snapshot.periodic.period
    due = jobs.deadline[np.isfinite(jobs.deadline)] - snapshot.now
    wall = jobs.wall_time[np.isfinite(jobs.wall_time)]
    slowest = snapshot.cluster.pace.min(initial=1.0)
    planned = end[np.isfinite(end)].max(initial=0.0)
    last = max(due.max(initial=0.0), planned) + wall.sum() / slowest
    multiple = int(np.lcm.reduce(np.maximum(period, 1.0).astype(np.int64).astype(object)))
    longest = float(period.max())
    return float(last + min(float(multiple), PERIODS * longest) + 2 * longest)


MOST_NODES = 1 << 27
"""Nodes of all jobs together, at most."""


def gap_rows(jobs: Jobs, cluster: Cluster, last: bool) -> GapRows:
    """Return jobs and nodes as the kernels want them; none is planned, nor is there room for it."""
    allowed, code = allowed_sets(jobs, cluster)
    never = np.full(len(jobs), np.nan)
    return GapRows(
        room=room_of(cluster),
        pace=np.array(cluster.pace, np.float64),
        allowed=allowed,
        code=np.where(lacking(jobs, cluster) & cluster.shared, len(allowed) - 1, code),
        pinned=jobs.pinned.astype(np.int64),
        size=jobs.size.astype(np.int64),
        demand=demand_of(jobs, cluster),
        wall=np.array(jobs.wall_time, np.float64),
        begin=np.array(jobs.begin, np.float64),
        deadline=np.array(jobs.deadline, np.float64),
        last=last,
        judged=np.zeros(0, np.bool_),
        start=never,
        end=never.copy(),
        at=np.zeros(len(jobs), np.int64),
        nodes=np.empty(0, np.int32),
    )


def gap_planner(plugin: Spare, jobs: Jobs, cluster: Cluster) -> RowsInGaps | None:
    """Return the short form for these jobs; None where nodes are shared, or there are graphs."""
    size = jobs.size.astype(np.int64)
    if cluster.shared or len(cluster.licenses) or (jobs.dag >= 0).any():
        return None
    if int(size.sum()) > MOST_NODES or (size < 1).any():
        return None
    return RowsInGaps(plugin, jobs, cluster)


class RowsInGaps:
    """Answers about the jobs of one workload (`rtsched.api.ReplayPlanner`).

    Parameters
    ----------
    plugin : Spare
        Whose short form it is.
    jobs : Jobs
        The workload, `n` rows.
    cluster : Cluster
        Its nodes.
    """

    def __init__(self, plugin: Spare, jobs: Jobs, cluster: Cluster) -> None:
        self.plugin, self.jobs = plugin, jobs
        judged = np.isfinite(jobs.deadline) & (jobs.kind != Kind.ARRAY)
        self.answers: NDArray[np.bool_] = judged & bounded(jobs)
        gaps = gap_rows(jobs, cluster, plugin.config.select == "utilisation-first")
        at = offsets_of(gaps.size)
        listed = np.zeros(int(at[-1]), np.int32)
        self.gaps = gaps._replace(judged=self.answers, at=at[:-1], nodes=listed)

    def judge(
        self,
        rows: Rows,
        now: float,
        held_until: Times,
        plan: PlanRows,
        promises: Callable[[], int],
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs one by one; as `rtsched.api.ReplayPlanner.judge`."""
        closed = held_until == np.inf
        for entry, row in enumerate(plan.row.tolist()):
            if self.gaps.start[row] != plan.start[entry]:
                nodes = plan.nodes[plan.indptr[entry] : plan.indptr[entry + 1]]
                keep_row(self.gaps, row, plan.start[entry], plan.end[entry], nodes)
        left = left_by_rows(self.gaps, plan.row, now, held_until)
        form = GapForm(self.gaps, left, now, closed, rows)
        batch = Batch(self.plugin, self.jobs.take(rows), form, now, promises())
        batch.judge(NO_EDGES)
        new = rows[list(batch.places)]
        if not len(new):
            return batch.verdicts(), None
        for row, place in zip(new.tolist(), batch.places.values(), strict=True):
            keep_row(self.gaps, row, *place)
        all_rows = np.concatenate([plan.row, new])
        anew = PlanRows(all_rows, *plan_of_rows(self.gaps, all_rows)[1:5])
        return batch.verdicts() if len(new) < len(rows) else None, anew

    def improve(self, now: float, held_until: Times, plan: PlanRows) -> None:  # noqa: ARG002
        """Return that there is no better plan: what is planned stays where it is."""
        return

    def compiled_policy(self) -> GapRows:
        """Return its compiled form; as `rtsched.api.ReplayPlanner.compiled_policy`."""
        return self.gaps

    def verdicts(self, rejected: RejectedRows) -> Verdicts:
        """Return why it rejected jobs: the compiled form leaves that to `judge`."""
        return Verdicts.abstain(len(rejected.row))
