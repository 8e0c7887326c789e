"""Planners for nodes that differ, and for loads that start on their nodes one after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import Ragged, offsets_of
from rtsched_plugins.kernels.admission import Plan, Tasks, joined, rejection
from rtsched_plugins.kernels.admission_varied import Machine, demands, run_varied
from rtsched_plugins.kernels.fractions import (
    Division,
    staggered_fractions,
    unequal_plan_fractions,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Nodes
    from rtsched_plugins.planning import Planner, Rules


class Varied(NamedTuple):
    """The planner of `kernels.admission_varied`, once it is told what nodes it plans for."""

    rules: Rules
    staggered: bool

    def on(self, nodes: Nodes, pace: NDArray[np.float64]) -> Planner:
        """Return the planner for a pool of these nodes; `pace` as `Cluster.pace`.

        Raises
        ------
        ValueError
            If a node's speed or times are no times.
        """
        return VariedOn(self.rules, self.staggered, _columns(nodes, pace, self.staggered))


class Prepared(NamedTuple):
    """What all tests against the same free times and waiting tasks share."""

    free: NDArray[np.float64]
    machine: Machine
    waiting: Tasks


class VariedOn(NamedTuple):
    """A planner for nodes with the columns of `Machine.column`."""

    rules: Rules
    staggered: bool
    column: NDArray[np.float64]

    def prepare(self, free: NDArray[np.float64], waiting: Tasks) -> Prepared:
        """Return what all tests against these free times and waiting tasks share."""
        usable = np.flatnonzero(np.isfinite(free))
        known = np.where(np.isnan(self.column[usable]), -1.0, self.column[usable])
        _, first, kind = np.unique(known, axis=0, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[kind.reshape(-1)]
        members = usable[np.argsort(rank, kind="stable")]
        bounds = offsets_of(np.bincount(rank, minlength=len(first)))
        column = self.column[usable[np.sort(first)]]
        machine = Machine(members, bounds, column, self.staggered)
        return Prepared(np.require(free, np.float64, ("C", "W")), machine, waiting)

    def admit(self, prepared: Prepared, new: Tasks | None, now: float) -> Plan:
        """Return the plan of the waiting tasks and the one new task, the last; or who fails."""
        tasks = prepared.waiting if new is None else joined(prepared.waiting, new)
        order, node_rule, efficiency = self.rules[:3]
        course = run_varied(
            prepared.free, prepared.machine, tasks, order, node_rule, efficiency, float(now)
        )
        if course.failed >= 0:
            return rejection(course.failed, course.failed_at)
        position = np.empty(len(course.order), np.int64)
        position[course.order] = np.arange(len(position))
        in_order = Ragged(offsets_of(course.size[course.order]), course.nodes)
        by_task = in_order.take(position)
        starts = np.empty(0)
        if self.staggered:
            starts = in_order._replace(values=course.node_start).take(position).values
        size = course.size.astype(np.int32)
        return Plan(True, -1, math.nan, course.start, course.end, size, position, *by_task, starts)

    def hopeless(self, prepared: Prepared, new: Tasks, now: float) -> bool:
        """Return whether the new task would be late on an idle cluster."""
        return bool(now + self.shortest(prepared, new) > new.deadline[0])

    def shortest(self, prepared: Prepared, new: Tasks) -> float:
        """Return the new task's least run time on an idle cluster, seconds; inf: it never fits."""
        _, node_rule, efficiency = self.rules[:3]
        return float(demands(new, prepared.machine, node_rule, efficiency).least[0])

    def offer(self, prepared: Prepared, new: Tasks, now: float, max_tests: int) -> float:
        """Return a whole second as deadline with which the new task is admitted, inf: none.

        Without any deadline it ends at some time; half the way back from there is tried, and half
        of that, as long as tests are left. What is offered was tested.
        """
        free_of_haste = self.admit(prepared, new._replace(deadline=np.array([np.inf])), now)
        if not free_of_haste.accepted:
            return math.inf
        low, found = math.ceil(new.deadline[0]), math.inf
        high = max(low, math.ceil(float(free_of_haste.end[-1])))
        for _ in range(max_tests - 1):
            asked = new._replace(deadline=np.array([float(high)]))
            if self.admit(prepared, asked, now).accepted:
                found = float(high)
            else:
                low = high
            if found < math.inf and found - low <= 1:
                break
            high = (low + int(found)) // 2 if found < math.inf else high + 1 + (high - low)
        return found

    def division(self, plan: Plan, tasks: Tasks) -> Division:
        """Return how the tasks' work is divided, each load in one round."""
        if self.staggered:
            shares = staggered_fractions(plan.indptr, plan.node_start, tasks)
        else:
            shares = unequal_plan_fractions(plan.indptr, plan.nodes, self.column, tasks)
        return Division(shares, np.ones(len(plan.start), np.int32))


def _columns(nodes: Nodes, pace: NDArray[np.float64], alike: bool) -> NDArray[np.float64]:
    """Return float64[m, 6], the columns of `Machine.column`; the same for all where `alike`."""
    if alike:
        return np.tile(np.array([np.nan, np.nan, np.nan, np.nan, 1.0, 1.0]), (len(nodes), 1))
    times = [nodes.cms, nodes.cps, nodes.setup_link, nodes.setup_node]
    if any((column < 0).any() for column in times) or (nodes.cms + nodes.cps <= 0).any():
        raise ValueError("a node's time to send, to compute or to set up is negative, or no time")
    if not (nodes.speed > 0).all():
        raise ValueError(f"a node's speed is {nodes.speed.min()}; it must be above 0")
    return np.column_stack([*times, nodes.speed, pace])
