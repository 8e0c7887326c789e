"""Deadline admission by a complete plan: MCDF, with FIFO and EDF over two node rules as baselines.

A job with a deadline is admitted if one plan keeps every promise given so far and its own; that
plan then replaces the old one. Rigid, moldable and divisible jobs pass the same test. Jobs without
a deadline are not judged: they are best effort and run around the plan. A job that must not begin
yet is put off until it may, where jobs have whole nodes: that plan knows no later arrivals.

The cluster is taken as one pool of equal nodes per partition. Where the partitions of promised jobs
overlap, and on nodes that jobs share, there is one plan for all (`resource_planning`).

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.api import Ragged, Reason, hookimpl, offsets_of
from rtsched_plugins.deadline_admission import BesidePlan, DeadlineAdmission
from rtsched_plugins.insurance import Insurance
from rtsched_plugins.kernels.admission import (
    BY_ARRIVAL,
    BY_COST,
    BY_DEADLINE,
    FASTEST_NODES,
    LEAST_NODES,
    Plan,
    Tasks,
    joined,
    rejection,
)
from rtsched_plugins.kernels.admission_varied import Machine, demands, run_varied
from rtsched_plugins.kernels.fractions import (
    Division,
    staggered_fractions,
    unequal_plan_fractions,
)
from rtsched_plugins.planning import Rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Nodes, PreparedState, ReplayPlanner, Snapshot, Verdicts
    from rtsched_plugins.planning import Planner


ORDERS = {"cost-derivative": BY_COST, "arrival": BY_ARRIVAL, "deadline": BY_DEADLINE}
NODE_RULES = {"fewest": LEAST_NODES, "fastest": FASTEST_NODES}
AT_ONCE = "batch systems start a load on all its nodes at once; set staggered = false"
"""Why a planner of staggered starts is for replays only."""


class Mcdf(DeadlineAdmission):
    """Admit a job with a deadline if a plan keeps it and every earlier promise."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        order: Literal["cost-derivative", "arrival", "deadline"] = "cost-derivative"
        """Who is planned first: the job for which one more node costs most (MCDF; a later job may
        overtake one that does not fit), the first to arrive (FIFO), or the earliest deadline
        (EDF)."""
        nodes: Literal["fewest", "fastest"] = "fewest"
        """Allocate the fewest nodes that meet the deadline, or the count that is fastest."""
        efficiency: Annotated[float, Meta(gt=0, le=1)] = 1.0
        """Moldable jobs: run time on n nodes is wall time (size/n)^efficiency."""
        rounds: Annotated[int, Meta(ge=1, le=64)] = 1
        """Divisible jobs: maximum number of rounds in which a load is sent, so that nodes start
        computing sooner. The fastest number is used. On live systems only jobs that state that they
        take their load in rounds do so."""
        unequal_nodes: bool = False
        """Plan with each node's speed and its own times to send and to compute. Off: all nodes are
        treated as equal."""
        staggered: bool = False
        """Divisible jobs may start on some nodes before the others are free. Off: a job gets all
        its nodes at once."""
        beside_plan: BesidePlan = False
        spare_nodes: int | dict[str, int] = 0
        """Promises survive the loss of this many nodes of their partition, each at any time: a job
        is admitted only if it could restart that often and still end in time, with that many nodes
        fewer. A table sets it by partition, with `*` for all others."""
        recovery: Annotated[float, Meta(ge=0)] = 0.0
        """With `spare_nodes`: seconds from the loss of a node until a job that ran there can
        restart: the batch system must notice the loss and requeue the job."""
        offer_tests: Annotated[int, Meta(ge=0)] = 64
        """Maximum number of admission tests per counter-offer; 0: no counter-offer. When they are
        used up, a later deadline that passed the test is offered."""

        def __post_init__(self) -> None:
            """Refuse settings that exclude each other."""
            chosen = [self.rounds > 1, self.unequal_nodes, self.staggered]
            if sum(chosen) > 1:
                raise ValueError("set only one of rounds > 1, unequal_nodes and staggered")
            spare = self.spare_nodes
            counts = list(spare.values()) if isinstance(spare, dict) else [spare]
            if min(counts, default=0) < 0:
                raise ValueError("spare_nodes must not be negative")
            if any(counts) and any(chosen):
                raise ValueError(
                    "spare_nodes treats nodes as equal; it cannot be combined with rounds > 1, "
                    "unequal_nodes or staggered"
                )

    impossible: ClassVar = Reason(
        "mcdf.impossible",
        "deadline too soon: the job may need {needed:time up}, {left:time} are left",
    )
    no_room: ClassVar = Reason(
        "mcdf.no-room",
        "cannot meet this deadline without breaking {promises:existing promise}; {left:time} "
        "are left, {free} of {nodes:node} are free",
    )
    breaks_promise: ClassVar = Reason(
        "mcdf.breaks-promise",
        "with this job, job {other} would miss its promised deadline; {promises:existing "
        "promise} must be kept",
    )
    uninsured: ClassVar = Reason(
        "mcdf.uninsured",
        "deadline too soon: {left:time} are left, and the job must be able to restart if a "
        "node fails; promises here survive the loss of {spare:node}",
    )
    endless: ClassVar = Reason(
        "mcdf.endless",
        "states neither its run time nor its work, so its end cannot be predicted",
    )
    no_load: ClassVar = Reason(
        "mcdf.no-load",
        "invalid divisible load: {sigma} units, {cms} s to send and {cps} s to compute one, "
        "set-up {setup_link} s and {setup_node} s; units and time per unit must be above 0, "
        "and no time may be negative",
    )
    smaller_load: ClassVar = Reason(
        "mcdf.smaller-load", "{percent} % of its load would be accepted with the same deadline"
    )
    fewer_tasks: ClassVar = Reason(
        "mcdf.fewer-tasks", "{tasks} of its {all} tasks would be accepted with the same deadline"
    )
    more_nodes: ClassVar = Reason(
        "mcdf.more-nodes",
        "the same deadline would be accepted if the job could use {nodes:node} instead of {most}",
    )
    not_yet: ClassVar = Reason(
        "mcdf.not-yet",
        "may not start for another {wait:time}; it is evaluated then",
    )
    waits: ClassVar = Reason(
        "mcdf.waits",
        "waits for job {task}, whose end cannot be predicted: it neither runs with a time limit "
        "nor has a promise; give it a deadline too",
    )
    behind: ClassVar = Reason(
        "mcdf.behind",
        "deadline too soon: it may have to wait for its begin time, or for other jobs, for "
        "{wait:time up}, and it may need {needed:time up}; {left:time} are left",
    )

    def __init__(self, config: Config | None = None) -> None:
        config = config or self.Config()
        order, nodes = ORDERS[config.order], NODE_RULES[config.nodes]
        rules = Rules(order, nodes, config.efficiency, config.rounds)
        varied = config.unequal_nodes or config.staggered
        planner = Varied(rules, config.staggered) if varied else rules
        only = AT_ONCE if config.staggered else ""
        insurance, beside = _insurance(config), config.beside_plan
        super().__init__(planner, config.offer_tests, only, insurance, beside_plan=beside)

    def replay_planner(self, jobs: Jobs, cluster: Cluster) -> ReplayPlanner | None:
        """Return its short form for a replay of these jobs; None: it has none."""
        if isinstance(self.planner, Rules):
            return self.one_pool(self.planner, jobs, cluster)
        return None

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, prepared: PreparedState
    ) -> Verdicts | None:
        """Admit what a plan keeps beside all promises; see `DeadlineAdmission.judge`."""
        return self.judge(jobs, snapshot, prepared)


def _insurance(config: Mcdf.Config) -> Insurance:
    """Return how many lost nodes promises survive, as configured."""
    spare = config.spare_nodes
    if isinstance(spare, int):
        return Insurance(spare, {}, config.recovery)
    others = spare.get("*", 0)
    return Insurance(others, {k: v for k, v in spare.items() if k != "*"}, config.recovery)


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

    def needed(self, prepared: Prepared, new: Tasks, now: float) -> float:
        """Return the new task's least run time if it would be late on an idle cluster; else nan."""
        _, node_rule, efficiency = self.rules[:3]
        least = float(demands(new, prepared.machine, node_rule, efficiency).least[0])
        return least if now + least > new.deadline[0] else math.nan

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
