"""Spare capability in the batch setting: tasks that are never suspended, in gaps between work.

A node has what is left beside running jobs, until their requested ends; beside what is planned and
what reservations set aside; and beside every occurrence of its periodic work, from its release for
as long as it takes. Where jobs have whole nodes, each of these takes all of a node.

The short form, for replays on whole nodes without periodic work or graphs, answers as
`spare_form.Batch` does with `GapForm`, on the rows of a workload in place of a snapshot's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from rtsched.api import (
    TENANCY,
    Finding,
    Kind,
    PlanRows,
    Ragged,
    RowTest,
    Verdict,
    Verdicts,
    allowed_nodes,
    demand_of,
    lacking,
    occurrences,
    offsets_of,
    room_of,
)
from rtsched_plugins.kernels.gaps import (
    SLACK,
    GapRows,
    Rigid,
    find,
    gap_for,
    keep_row,
    left_by_rows,
    nodes_at,
    plan_of_rows,
    reserve,
)
from rtsched_plugins.room import copied, left_beside
from rtsched_plugins.spare_form import Place, Trial, bounded, least_offer, usable_nodes
from rtsched_plugins.task_graphs import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Schedule, Snapshot
    from rtsched.kernels.room import RoomProfile
    from rtsched_plugins.kernels.gaps import Found
    from rtsched_plugins.spare import Spare

    Rows = NDArray[np.int64]

    Times = NDArray[np.float64]


PERIODS = 64
"""Behind everything planned the gaps are looked for this many longest periods far at most."""


class Spans(NamedTuple):
    """When `n` things have their nodes."""

    start: NDArray[np.float64]
    """float64[n], seconds from now."""
    end: NDArray[np.float64]
    """float64[n], seconds from now."""
    size: NDArray[np.int64]
    """int64[n]: nodes of each."""
    nodes: NDArray[np.int32]
    """int32[k]: theirs, one after the other."""


class GapForm:
    """What is left of each node, and what a batch takes of it.

    Parameters
    ----------
    snapshot : Snapshot
        The state that a batch is judged against.
    jobs : Jobs
        The new jobs.
    last : bool
        Utilisation-first instead of response-first.
    """

    def __init__(self, snapshot: Snapshot, jobs: Jobs, last: bool) -> None:
        self.snapshot, self.jobs, self.last = snapshot, jobs, last
        cluster = snapshot.cluster
        self._speed = np.asarray(cluster.pace, np.float64)
        self._demand = demand_of(jobs, cluster)
        self._lacks = lacking(jobs, cluster) & cluster.shared
        self._left = self._beside_all()

    def _beside_all(self) -> RoomProfile:
        """Return what is left beside all that runs, is planned or set aside, and recurs."""
        snapshot, cluster, blocked = self.snapshot, self.snapshot.cluster, self.snapshot.blocked
        parts = [self._of(snapshot.allocations), self._of(snapshot.plan)]
        demand = [_whole(sum(len(part.start) for part in parts), self._demand.shape[1])]
        if cluster.shared:
            demand = [demand_of(jobs, cluster) for jobs in (snapshot.running, snapshot.planned)]
        if len(blocked.node):
            set_aside = blocked.start - snapshot.now, blocked.end - snapshot.now
            parts.append(_on_one_node(*set_aside, blocked.node))
            demand.append(blocked.demand(cluster))
        if len(snapshot.periodic):
            recurring, takes = self._recurring(np.concatenate([part.end for part in parts]))
            parts.insert(0, recurring)
            demand.insert(0, takes)
        start, end, size, nodes = (np.concatenate(each) for each in zip(*parts, strict=True))
        return left_beside(
            room_of(cluster),
            start,
            np.maximum(end, 0.0),
            Ragged(offsets_of(size), nodes),
            np.concatenate(demand),
            0.0,
            len(cluster.licenses),
        )

    def _of(self, schedule: Schedule) -> Spans:
        """Return when the jobs of a schedule have their nodes."""
        entries, now = schedule.entries, self.snapshot.now
        size = schedule.ragged.lengths
        return Spans(entries.start - now, entries.end - now, size, schedule.nodes)

    def _recurring(self, end: NDArray[np.float64]) -> tuple[Spans, NDArray[np.int64]]:
        """Return the time for which occurrences are not known, and these, and what each takes.

        The latest first: so each is laid out before what is there already. `end` is when all else
        ends, seconds from now.
        """
        periodic, now, ahead = self.snapshot.periodic, self.snapshot.now, self._look_ahead(end)
        row, begin, _ = occurrences(periodic, now, now + ahead)
        start, over = begin - now, begin - now + periodic.exec_time[row]
        latest, nodes = np.argsort(-start, kind="stable"), np.unique(periodic.node)
        spans = _on_one_node(
            np.concatenate([np.full(len(nodes), ahead), start[latest]]),
            np.concatenate([np.full(len(nodes), np.inf), over[latest]]),
            np.concatenate([nodes, periodic.node[row[latest]]]),
        )
        takes = demand_of(periodic, self.snapshot.cluster)[row[latest]]
        return spans, np.concatenate([_whole(len(nodes), takes.shape[1]), takes])

    def _look_ahead(self, end: NDArray[np.float64]) -> float:
        """Return for how many seconds occurrences count: as far as a job may look for a gap."""
        period = self.snapshot.periodic.period
        due = self.jobs.deadline[np.isfinite(self.jobs.deadline)] - self.snapshot.now
        wall = self.jobs.wall_time[np.isfinite(self.jobs.wall_time)]
        slowest = self._speed.min(initial=1.0)
        planned = end[np.isfinite(end)].max(initial=0.0)
        last = max(due.max(initial=0.0), planned) + wall.sum() / slowest
        multiple = int(np.lcm.reduce(np.maximum(period, 1.0).astype(np.int64).astype(object)))
        longest = float(period.max())
        return float(last + min(float(multiple), PERIODS * longest) + 2 * longest)

    def place(
        self,
        graph: Graph,
        deadline: NDArray[np.float64],
        known: dict[int, Place],
        beyond: bool = False,  # noqa: ARG002 - it costs nothing here
    ) -> Trial:
        """Place a graph's tasks by these deadlines, seconds since the epoch; nothing is kept."""
        known, places = dict(known), []
        later, fits, failed = np.inf, 0, False
        for task, row in enumerate(graph.rows.tolist()):
            job = self._rigid(graph, task, row, float(deadline[task]), known)
            found = find(self._left, job, self.last)
            later = min(later, found.later)
            if not (found.end < np.inf and found.end <= job.deadline + SLACK):
                failed, fits = True, found.fits
                break
            place = self._place(nodes_at(self._left, job, found), found.start, found.end)
            places.append(place)
            known[int(self.jobs.id[row])] = place
            if len(graph.rows) > 1:
                self._take(row, place)
        if len(graph.rows) > 1:
            for row, place in zip(graph.rows.tolist(), places, strict=False):
                self._take(row, place, -1)
        return Trial(tuple(places), failed, later + self.snapshot.now, fits)

    def _place(self, nodes: NDArray[np.int32], start: float, end: float) -> Place:
        now = self.snapshot.now
        return Place(now + start, now + end, nodes)

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Reserve what a trial has found."""
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            self._take(row, place)

    def _take(self, row: int, place: Place, sign: int = 1) -> None:
        """Take what a job needs at a place (sign 1), or give it back (-1)."""
        now, demand = self.snapshot.now, self._demand[row : row + 1]
        needed = 2 * (len(place.nodes) + 1)
        if self._left.unused[1] + needed > len(self._left.after):
            self._left = copied(self._left, needed + len(self._left.after))
        reserve(self._left, demand, place.nodes, place.start - now, place.end - now, sign)

    def _rigid(
        self, graph: Graph, task: int, row: int, deadline: float, known: dict[int, Place]
    ) -> Rigid:
        """Return one task as the kernel wants it; predecessors that have ended are left out."""
        jobs, now = self.jobs, self.snapshot.now
        ready = np.full(len(self._speed), max(float(jobs.begin[row]) - now, 0.0))
        span = slice(int(graph.before_of[task]), int(graph.before_of[task + 1]))
        pairs = zip(graph.before[span].tolist(), graph.message[span].tolist(), strict=True)
        for job, message in pairs:
            if job in known:
                place = known[job]
                arrives = np.full(len(ready), place.end - now + message)
                arrives[place.nodes] = place.end - now
                ready = np.maximum(ready, arrives)
        usable = usable_nodes(jobs, row, self.snapshot) & (not self._lacks[row])
        speed, wall = np.where(usable, self._speed, 0.0), float(jobs.wall_time[row])
        demand, width = self._demand[row : row + 1], int(jobs.size[row])
        return Rigid(demand, ready, speed, wall, width, deadline - now)


def _on_one_node(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    node: NDArray[np.integer[Any]],
) -> Spans:
    """Return spans on one node each."""
    return Spans(start, end, np.ones(len(node), np.int64), node.astype(np.int32))


def _whole(count: int, resources: int) -> NDArray[np.int64]:
    """Return what keeps so many nodes for itself, int64[count, resources]."""
    demand = np.zeros((count, resources), np.int64)
    demand[:, -1] = TENANCY
    return demand


MOST_NODES = 1 << 27
"""Nodes of all jobs together, at most."""


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
        self._usable = int(np.count_nonzero(cluster.usable))
        code, masks = allowed_nodes(jobs, cluster)
        allowed = np.array([*masks, np.ones(len(cluster), np.bool_)], np.bool_)
        at = offsets_of(jobs.size.astype(np.int64))
        never = np.full(len(jobs), np.nan)
        self.gaps = GapRows(
            pace=np.array(cluster.pace, np.float64),
            allowed=allowed,
            code=np.where(code >= 0, code, len(masks)).astype(np.int64),
            pinned=jobs.pinned.astype(np.int64),
            size=jobs.size.astype(np.int64),
            wall=np.array(jobs.wall_time, np.float64),
            begin=np.array(jobs.begin, np.float64),
            deadline=np.array(jobs.deadline, np.float64),
            last=plugin.config.select == "utilisation-first",
            start=never,
            end=never.copy(),
            at=at[:-1].astype(np.int64),
            nodes=np.zeros(int(at[-1]), np.int32),
        )

    def judge(
        self,
        rows: Rows,
        now: float,
        held_until: Times,
        plan: PlanRows,
        promises: Callable[[], int],
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs one by one; as `rtsched.api.ReplayPlanner.judge`."""
        self._usable = int(np.count_nonzero(held_until < np.inf))
        for entry, row in enumerate(plan.row.tolist()):
            if self.gaps.start[row] != plan.start[entry]:
                nodes = plan.nodes[plan.indptr[entry] : plan.indptr[entry + 1]]
                keep_row(self.gaps, row, plan.start[entry], plan.end[entry], nodes)
        session = _Session(self.gaps, plan.row, now, held_until)
        deadline = self.jobs.deadline[rows]
        refused: list[tuple[int, float]] = []
        findings: list[Finding] = []
        for at in np.argsort(rows, kind="stable").tolist():
            row, due = int(rows[at]), float(deadline[at])
            found = session.admit(row, due)
            if found is None:
                continue
            offer = self._offer(session, found, row, due)
            refused.append((at, max(offer, due) if np.isfinite(offer) else np.inf))
            promised = promises() + session.new
            findings.append(self._no_room(row, at, due - now, int(found.fits), promised))
        anew = session.plan_rows() if session.new else None
        if not refused:
            return None, anew
        code, offers = np.full(len(rows), Verdict.ADMIT, np.int8), np.full(len(rows), np.inf)
        promise = deadline.copy()
        for at, offer in refused:
            code[at], promise[at], offers[at] = Verdict.REJECT, np.inf, offer
        never = np.full(len(rows), -np.inf)
        return Verdicts(code, never, promise, offers, tuple(findings)), anew

    def _offer(self, session: _Session, found: Found, row: int, due: float) -> float:
        """Return the deadline that would be accepted, or inf; see `least_offer`.

        Response-first, what was found is when the job ends whatever its deadline is.
        """
        tests, last = self.plugin.config.offer_tests, self.gaps.last
        if not tests:
            return float(np.inf)
        if last:
            return least_offer(session, _alone(row), np.array([due]), {}, tests, last)
        end = session.now + found.end
        return end if end > due else float(np.inf)

    def _no_room(self, row: int, at: int, left: float, fits: int, promises: int) -> Finding:
        numbers = {
            "task": self.jobs.id[row],
            "left": left,
            "promises": promises,
            "periodic": 0,
            "fits": fits,
            "nodes": self.jobs.size[row],
        }
        full = {name: np.full(1, float(value)) for name, value in numbers.items()}
        return Finding(self.plugin.no_room, np.array([at], np.int64), full)

    def improve(self, now: float, held_until: Times, plan: PlanRows) -> None:  # noqa: ARG002
        """Return that there is no better plan: what is planned stays where it is."""
        return

    def row_test(self) -> RowTest | None:
        """Return its test for a replay's loop; as `rtsched.api.ReplayPlanner.row_test`."""
        return RowTest(self.gaps, self._usable, self.answers)


class _Session:
    """What one question leaves of the nodes; a form that `least_offer` tries deadlines on."""

    def __init__(self, gaps: GapRows, planned: Rows, now: float, held_until: Times) -> None:
        self._gaps, self._rows = gaps, planned
        self.now, self._held = now, held_until
        self._known: RoomProfile | None = None
        self.new = 0
        """How many jobs it admitted."""

    def _gap(self, row: int, deadline: float) -> Any:
        if self._known is None:
            self._known = left_by_rows(self._gaps, self._rows, self.now, self._held)
        return gap_for(self._gaps, self._known, row, self.now, self._held, deadline)

    def admit(self, row: int, deadline: float) -> Found | None:
        """Admit a job and return None, or return what was found where that is too late."""
        found, nodes = self._gap(row, deadline)
        if not len(nodes):
            return cast("Found", found)
        keep_row(self._gaps, row, self.now + found.start, self.now + found.end, nodes)
        self._rows, self._known, self.new = np.append(self._rows, row), None, self.new + 1
        return None

    def place(
        self,
        graph: Graph,
        deadline: Times,
        known: dict[int, Place],  # noqa: ARG002 - there are no predecessors
        beyond: bool = False,  # noqa: ARG002 - it costs nothing here
    ) -> Trial:
        """Place one job by a deadline; nothing is kept."""
        found, nodes = self._gap(int(graph.rows[0]), float(deadline[0]))
        later = found.later + self.now
        if not len(nodes):
            return Trial((), True, later, int(found.fits))
        place = Place(self.now + found.start, self.now + found.end, nodes)
        return Trial((place,), False, later, 0)

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Note what a trial has found."""
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            keep_row(self._gaps, row, place.start, place.end, place.nodes)

    def plan_rows(self) -> PlanRows:
        """Return the plan of all promises."""
        return PlanRows(self._rows, *plan_of_rows(self._gaps, self._rows, True)[1:5])


def _alone(row: int) -> Graph:
    """Return a graph of one job."""
    none = np.empty(0, np.int64)
    return Graph(np.array([row]), np.zeros(2, np.int64), none, np.empty(0), none)
