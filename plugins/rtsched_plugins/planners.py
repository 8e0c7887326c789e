"""How promised jobs are planned, and new ones tested, in one pool of whole nodes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rtsched.api import Ragged, offsets_of
from rtsched_plugins.kernels.admission import (
    BY_ARRIVAL,
    BY_COST,
    BY_DEADLINE,
    IN_TURN,
    LEAST_NODES,
    Plan,
    Rows,
    Tasks,
    joined,
    needed_time,
    rejection,
    rows_of,
    with_last,
)
from rtsched_plugins.kernels.admission_by_cost import (
    ByCost,
    PreparedByCost,
    least_later_by_cost,
    planned_by_cost,
    prepared_by_cost,
)
from rtsched_plugins.kernels.admission_in_orders import (
    InOrders,
    PreparedInOrders,
    least_later_in_orders,
    planned_in_orders,
    prepared_in_orders,
)
from rtsched_plugins.kernels.admission_varied import NodeClasses, demands, run_varied
from rtsched_plugins.kernels.fractions import (
    Division,
    division_of,
    staggered_fractions,
    unequal_plan_fractions,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Nodes
    from rtsched_plugins.kernels.admission_of_rows import WorkloadRows


class Planner(Protocol):
    """How promised jobs are planned, and new ones tested, in one pool of nodes."""

    def prepare(self, free: NDArray[np.float64], waiting: Tasks) -> Any:
        """Return what all tests against these free times and waiting tasks share."""

    def admit(self, prepared: Any, new: Tasks | None, now: float) -> Plan:
        """Return the plan of the waiting tasks and the one new task, the last; or who fails."""

    def needed(self, prepared: Any, new: Tasks, now: float) -> float:
        """Return the new task's least run time if it would be late on an idle cluster; else nan.

        Seconds; inf: it never fits.
        """

    def offer(self, prepared: Any, new: Tasks, now: float, max_tests: int) -> float:
        """Return a whole second as deadline with which the new task is admitted, inf: none."""

    def division(self, plan: Plan, tasks: Tasks) -> Division:
        """Return how the tasks' work is divided."""


@runtime_checkable
class NodeAware(Protocol):
    """How to plan that depends on the nodes of a pool."""

    def on(self, nodes: Nodes, pace: NDArray[np.float64]) -> Planner:
        """Return the planner for a pool of these nodes; `pace` as `Cluster.pace`."""


class EqualNodes(ABC):
    """A planner that takes all nodes as equal: tasks are rows to its compiled test.

    Attributes
    ----------
    efficiency : float
        Exponent of a moldable task's speed-up, > 0.
    rounds : int
        A divisible task is sent in at most so many rounds.
    node_rule : int
        See `rtsched_plugins.kernels.admission.LEAST_NODES`.
    """

    efficiency: float
    rounds: int
    node_rule: int

    @abstractmethod
    def test(self, rows: Rows, free: NDArray[np.float64]) -> PreparedByCost | PreparedInOrders:
        """Return the test of all rows but the last, which is kept for a new task."""

    @abstractmethod
    def policy_of(self, jobs: WorkloadRows) -> Any:
        """Return the compiled policy that plans these jobs so; loads are sent in one round."""

    def prepare(self, free: NDArray[np.float64], waiting: Tasks) -> Any:
        """Return what all tests against these free times and waiting tasks share."""
        usable = int(np.isfinite(free).sum())
        rows = rows_of(waiting, usable, self.efficiency, self.rounds, self.node_rule, spare=1)
        return self.test(rows, np.require(free, np.float64, ("C", "W")))

    def with_new(self, test: Any, new: Tasks) -> Any:
        """Return the test with the new task in its last row; the given one stays as it is."""
        rows = with_last(test.rows, new, len(test.release), self.node_rule)
        return test._replace(rows=rows)

    def admit(self, test: Any, new: Tasks | None, now: float) -> Plan:
        """Return the plan of the waiting tasks and the one new task, the last; or who fails."""
        test = test if new is None else self.with_new(test, new)
        planned = planned_by_cost if isinstance(test, PreparedByCost) else planned_in_orders
        return planned(test, new is not None, float(now))

    def row_of(self, task: Tasks, usable: int) -> Rows:
        """Return a task as the one row for a cluster of `usable` nodes."""
        return rows_of(task, usable, self.efficiency, self.rounds, self.node_rule)

    def needed(self, test: Any, new: Tasks, now: float) -> float:
        """Return the new task's least run time if it would be late on an idle cluster; else nan."""
        return needed_time(self.row_of(new, len(test.release)), 0, now)

    def offer(self, test: Any, new: Tasks, now: float, max_tests: int) -> float:
        """Return a whole second as deadline with which it is admitted, inf: none."""
        by_cost = isinstance(test, PreparedByCost)
        least_later = least_later_by_cost if by_cost else least_later_in_orders
        return least_later(self.with_new(test, new), float(now), max_tests).deadline

    def division(self, plan: Plan, tasks: Tasks) -> Division:
        """Return how the tasks' work is divided."""
        return division_of(plan, tasks, self.rounds)


QUEUES = {BY_ARRIVAL: BY_ARRIVAL, BY_DEADLINE: IN_TURN}
"""Orders in which a task that does not fit keeps those behind it waiting."""

ON_THE_FEWEST = -1.0
"""The generosity of a planner by which each task gets the fewest nodes that do."""


@dataclass(frozen=True)
class Rules(EqualNodes):
    """One order and one node rule (`rtsched_plugins.kernels.admission`): MCDF, FIFO and EDF."""

    order: int
    node_rule: int
    efficiency: float
    rounds: int = 1

    @property
    def _queue(self) -> Several:
        """How tasks in another order than by cost are planned."""
        orders = (QUEUES[self.order],)
        return Several(orders, ON_THE_FEWEST, self.efficiency, self.rounds, self.node_rule)

    def test(self, rows: Rows, free: NDArray[np.float64]) -> PreparedByCost | PreparedInOrders:
        """Return the test of all rows but the last."""
        if self.order == BY_COST:
            return prepared_by_cost(rows, free)
        return self._queue.test(rows, free)

    def policy_of(self, jobs: WorkloadRows) -> ByCost | InOrders:
        """Return the compiled policy that plans these jobs so."""
        if self.order == BY_COST:
            return ByCost(jobs)
        return self._queue.policy_of(jobs)


@dataclass(frozen=True)
class Several(EqualNodes):
    """Orders tried in turn, with thrifty node counts: the planner of `portfolio`.

    Attributes
    ----------
    orders : tuple of int
        See `rtsched_plugins.kernels.admission.BY_DEADLINE`.
    generosity : float
        Further nodes may cost this fraction of node-seconds more than the fewest do.
    """

    orders: tuple[int, ...]
    generosity: float
    efficiency: float
    rounds: int
    node_rule: int = LEAST_NODES

    def _orders(self) -> NDArray[np.int64]:
        return np.array(self.orders, np.int64)

    def test(self, rows: Rows, free: NDArray[np.float64]) -> PreparedInOrders:
        """Return the test of all rows but the last."""
        return prepared_in_orders(rows, self._orders(), float(self.generosity), free)

    def policy_of(self, jobs: WorkloadRows) -> InOrders:
        """Return the compiled policy that plans these jobs so."""
        return InOrders(jobs, self._orders(), float(self.generosity))


class Varied(NamedTuple):
    """The planner of `kernels.admission_varied`, for any pool of nodes."""

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


class PreparedVaried(NamedTuple):
    """What all tests against the same free times and waiting tasks share."""

    free: NDArray[np.float64]
    machine: NodeClasses
    waiting: Tasks


class VariedOn(NamedTuple):
    """A planner for nodes with the columns of `NodeClasses.column`."""

    rules: Rules
    staggered: bool
    column: NDArray[np.float64]

    def prepare(self, free: NDArray[np.float64], waiting: Tasks) -> PreparedVaried:
        """Return what all tests against these free times and waiting tasks share."""
        usable = np.flatnonzero(np.isfinite(free))
        known = np.where(np.isnan(self.column[usable]), -1.0, self.column[usable])
        _, first, kind = np.unique(known, axis=0, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[kind.reshape(-1)]
        members = usable[np.argsort(rank, kind="stable")]
        bounds = offsets_of(np.bincount(rank, minlength=len(first)))
        column = self.column[usable[np.sort(first)]]
        machine = NodeClasses(members, bounds, column, self.staggered)
        return PreparedVaried(np.require(free, np.float64, ("C", "W")), machine, waiting)

    def admit(self, prepared: PreparedVaried, new: Tasks | None, now: float) -> Plan:
        """Return the plan of the waiting tasks and the one new task, the last; or who fails."""
        tasks = prepared.waiting if new is None else joined(prepared.waiting, new)
        rules, free, machine = self.rules, prepared.free, prepared.machine
        course = run_varied(
            free, machine, tasks, rules.order, rules.node_rule, rules.efficiency, float(now)
        )
        if course.failed >= 0:
            return rejection(course.failed, course.failed_at)
        position = np.argsort(course.order)
        in_order = Ragged(offsets_of(course.size[course.order]), course.nodes)
        by_task = in_order.take(position)
        starts = np.empty(0)
        if self.staggered:
            starts = in_order._replace(values=course.node_start).take(position).values
        start, end = course.start, course.end
        return Plan(True, -1, math.nan, start, end, course.order, *by_task, starts)

    def needed(self, prepared: PreparedVaried, new: Tasks, now: float) -> float:
        """Return the new task's least run time if it would be late on an idle cluster; else nan."""
        demand = demands(new, prepared.machine, self.rules.node_rule, self.rules.efficiency)
        least = float(demand.least[0])
        return least if now + least > new.deadline[0] else math.nan

    def offer(self, prepared: PreparedVaried, new: Tasks, now: float, max_tests: int) -> float:
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
    """Return float64[m, 6], the columns of `NodeClasses.column`; the same for all where `alike`."""
    if alike:
        return np.tile(np.array([np.nan, np.nan, np.nan, np.nan, 1.0, 1.0]), (len(nodes), 1))
    times = [nodes.cms, nodes.cps, nodes.setup_link, nodes.setup_node]
    if any((column < 0).any() for column in times) or (nodes.cms + nodes.cps <= 0).any():
        raise ValueError("a node's time to send, to compute or to set up is negative, or no time")
    if not (nodes.speed > 0).all():
        raise ValueError(f"a node's speed is {nodes.speed.min()}; it must be above 0")
    return np.column_stack([*times, nodes.speed, pace])
