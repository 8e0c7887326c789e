"""The short form of admission into gaps: replays on whole nodes, without periodic work or graphs.

It answers as `spare_batch.Batch` does with `spare_gaps.GapForm`, on the rows of a workload in place
of a snapshot's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rtsched.api import (
    Finding,
    Kind,
    PlanRows,
    RowTest,
    Verdict,
    Verdicts,
    allowed_nodes,
    offsets_of,
)
from rtsched_plugins.kernels.gaps import (
    GapRows,
    gap_for,
    keep_row,
    left_by_rows,
    plan_of_rows,
)
from rtsched_plugins.spare_form import Place, Trial, bounded, least_offer
from rtsched_plugins.task_graphs import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs
    from rtsched.kernels.room import RoomProfile
    from rtsched_plugins.kernels.gaps import Found
    from rtsched_plugins.spare import Spare

    Rows = NDArray[np.int64]
    Times = NDArray[np.float64]

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
