"""One batch of jobs judged by spare capability, graph by graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import Finding, Kind, Ragged, Schedule, Verdict, Verdicts
from rtsched_plugins.spare_form import Place, bounded, known_places, least_offer
from rtsched_plugins.task_graphs import graphs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Jobs, Reason, Snapshot
    from rtsched_plugins.spare import Spare
    from rtsched_plugins.spare_form import Form
    from rtsched_plugins.task_graphs import Graph


class Batch:
    """The answer on a batch as it grows; what is admitted is kept in the form."""

    def __init__(self, plugin: Spare, jobs: Jobs, snapshot: Snapshot, form: Form) -> None:
        self.plugin, self.jobs, self.snapshot, self.form = plugin, jobs, snapshot, form
        self._edf = plugin.config.form == "edf"
        self._last = plugin.config.select == "utilisation-first"
        self._code = np.zeros(len(jobs), np.int8)
        self._promise, self._offer = np.full(len(jobs), np.inf), np.full(len(jobs), np.inf)
        self._findings: list[Finding] = []
        self._known: dict[int, Place] = {}
        self._uncertain: set[int] = set()
        if len(snapshot.edges):
            self._known = known_places(snapshot, promised=self._edf)
            there = [*snapshot.queued.id.tolist(), *snapshot.running.id.tolist()]
            self._uncertain = set(there) - self._known.keys()
        self._new: dict[int, Place] = {}

    def judge(self) -> None:
        """Judge all graphs in order of (submit, id); without a deadline they are left alone."""
        for graph in graphs_of(self.jobs, self.snapshot.edges):
            rows = np.concatenate([graph.rows, graph.stuck])
            own = self.jobs.deadline[rows]
            if not np.isfinite(own).any():
                self._uncertain |= set(self.jobs.id[rows].tolist())
                continue
            common = own[np.isfinite(own)].max()
            self._judge(graph, rows, np.where(np.isfinite(own), own, common))

    def _judge(self, graph: Graph, rows: NDArray[np.int64], deadline: NDArray[np.float64]) -> None:
        if self._impossible(graph, rows):
            self._reject(rows)
            return
        trial = self.form.place(graph, deadline, self._known)
        if trial.failed:
            self._say_no_room(graph, deadline, len(trial.places), trial.fits)
            tests = self.plugin.config.offer_tests
            offer = (
                least_offer(self.form, graph, deadline, self._known, tests, self._last)
                if tests
                else np.inf
            )
            self._offer[rows] = np.maximum(offer, deadline) if np.isfinite(offer) else np.inf
            self._reject(rows)
            return
        self.form.keep(graph, trial)
        self._code[rows], self._promise[rows] = Verdict.ADMIT, deadline
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            job = int(self.jobs.id[row])
            self._known[job] = self._new[job] = place

    def _reject(self, rows: NDArray[np.int64]) -> None:
        self._code[rows] = Verdict.REJECT
        self._uncertain |= set(self.jobs.id[rows].tolist())

    def _impossible(self, graph: Graph, rows: NDArray[np.int64]) -> bool:
        """Say what is wrong with a graph whatever its deadline is; return whether something is."""
        jobs, plugin = self.jobs, self.plugin
        ids = set(jobs.id[rows].tolist())
        outer = [job for job in graph.before.tolist() if job in self._uncertain - ids]
        wide = self._edf and jobs.size[rows].max() > 1
        endless, arrays = ~bounded(jobs)[rows], jobs.kind[rows] == Kind.ARRAY
        if len(graph.stuck):
            self._say(rows, plugin.cyclic, task=jobs.id[graph.stuck].min())
        elif outer:
            self._say(rows, plugin.waits, task=min(outer))
        elif arrays.any():
            self._say(rows, plugin.array, task=jobs.id[rows[arrays]].min())
        elif endless.any():
            self._say(rows, plugin.endless, task=jobs.id[rows[endless]].min())
        elif wide:
            self._say(rows, plugin.wide, nodes=jobs.size[rows].max())
        else:
            return False
        return True

    def _say_no_room(
        self, graph: Graph, deadline: NDArray[np.float64], task: int, fits: int
    ) -> None:
        numbers: dict[str, float] = {
            "task": self.jobs.id[graph.rows[task]],
            "left": deadline[task] - self.snapshot.now,
            "promises": len(self.snapshot.promises) + len(self._new),
            "periodic": len(self.snapshot.periodic),
        }
        if self._edf:
            self._say(graph.rows, self.plugin.no_spare, **numbers)
            return
        numbers |= {"fits": fits, "nodes": int(self.jobs.size[graph.rows[task]])}
        self._say(graph.rows, self.plugin.no_room, **numbers)

    def _say(self, rows: NDArray[np.int64], reason: Reason, **numbers: float) -> None:
        full = {name: np.full(len(rows), float(value)) for name, value in numbers.items()}
        self._findings.append(Finding(reason, rows.astype(np.int64), full))

    def verdicts(self) -> Verdicts:
        """Return the answer, with the whole plan where something was admitted."""
        plan = None
        if self._new:
            places = list(self._new.values())
            added = Schedule.build(
                list(self._new),
                [place.start for place in places],
                [place.end for place in places],
                *Ragged.of([place.nodes for place in places]),
            )
            plan = Schedule.joined([self.snapshot.plan, replace(added, preemptive=self._edf)])
        retry_at = np.full(len(self.jobs), -np.inf)
        return Verdicts(
            self._code, retry_at, self._promise, self._offer, tuple(self._findings), plan
        )
