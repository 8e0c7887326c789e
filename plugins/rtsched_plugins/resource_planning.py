"""The planner's view of what each node has left over time, and of what is promised.

For nodes that jobs share, and for whole nodes where jobs wait for others, partitions overlap, or
nodes are set aside. One plan over all nodes: each job may use the nodes of its partition on which
it fits. A new job is first planned beside the present plan; only if it would be late there are all
promises planned anew with it, in the planner's order, and where that keeps not all of them, in
order of deadline. In the order of MCDF the cost derivative of a job is that at the fewest nodes
with which it would be in time if it started now.

A job that begins later is placed from then on. One that waits for others is placed after them, and
starts when they have ended in the same plan. For that they must leave it its time: by their
effective deadlines, d' = min(d, min(d'_j - w_j)) over the jobs j that wait for them, of which each
runs for w_j at least. The order of deadline is that of these.

References
----------
Chetto, Silly, Bouchentouf, 1990: Dynamic scheduling of real-time tasks under precedence
constraints (effective deadlines).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import (
    Dependencies,
    Kind,
    Ragged,
    Schedule,
    allowed_nodes,
    are_in,
    demand_of,
    fitting_nodes,
    lacking,
    offsets_of,
    places,
    room_of,
)
from rtsched_plugins.kernels.admission import (
    BY_COST,
    BY_DEADLINE,
    BY_LAXITY,
    DEADLINE,
    IN_TURN,
    LEAST_NODES,
    LOW,
    Rows,
    Tasks,
    joined,
    least_size,
    rows_of,
    shortest_time,
    uniform,
)
from rtsched_plugins.kernels.admission_of_rows import planning_origin
from rtsched_plugins.kernels.fractions import plan_fractions
from rtsched_plugins.kernels.resource_plan import (
    FEWEST,
    FULL,
    Chains,
    Places,
    TaskRequests,
    copied,
    cost_derivatives,
    first_times,
    free_now,
    latest_starts,
    left_beside,
    nowhere,
    place_tasks,
    scratch_for,
    soonest,
    unchained,
)
from rtsched_plugins.planners import Rules, Several
from rtsched_plugins.planning import (
    Refusal,
    instead_of,
    tasks_at,
    tasks_of,
)
from rtsched_plugins.task_graphs import topological

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Snapshot
    from rtsched.kernels.room import RoomProfile
    from rtsched_plugins.kernels.resource_plan import Placed
    from rtsched_plugins.planners import NodeAware, Planner
    from rtsched_plugins.planning import Proposal

OFFER_PLANS = 3
"""How often all promises are planned anew, at most, for one counter-offer."""


class ResourceRules(NamedTuple):
    """How plans on nodes that jobs share are made."""

    orders: tuple[int, ...]
    """Tried one after the other; the first complete plan counts. Later jobs may overtake, but not
    `IN_TURN`."""
    node_rule: int
    efficiency: float
    generosity: float = FEWEST


def resource_rules(planner: Planner | NodeAware) -> ResourceRules | None:
    """Return how a planner plans on nodes that jobs share; None: it cannot.

    Loads are sent in one round there. The order by cost derivative is followed by that of
    deadlines: beside jobs that are promised much later deadlines, the others may keep no plan.
    """
    if isinstance(planner, Several):
        return ResourceRules(planner.orders, LEAST_NODES, planner.efficiency, planner.generosity)
    if isinstance(planner, Rules) and planner.rounds == 1:
        orders = (BY_COST, BY_DEADLINE) if planner.order == BY_COST else (planner.order,)
        return ResourceRules(orders, planner.node_rule, planner.efficiency)
    return None


@dataclass(frozen=True)
class _Jobs:
    """Jobs as they are planned; `n` rows."""

    ids: NDArray[np.int64]
    tasks: Tasks
    demand: NDArray[np.int64]
    class_of: NDArray[np.int64]
    begin: NDArray[np.float64]
    """Seconds: none starts before."""

    def take(self, rows: NDArray[np.int64]) -> _Jobs:
        return _Jobs(
            self.ids[rows],
            tasks_at(self.tasks, rows),
            self.demand[rows],
            self.class_of[rows],
            self.begin[rows],
        )

    def with_one(self, other: _Jobs) -> _Jobs:
        return _Jobs(
            np.append(self.ids, other.ids),
            joined(self.tasks, other.tasks),
            np.concatenate([self.demand, other.demand]),
            np.append(self.class_of, other.class_of),
            np.append(self.begin, other.begin),
        )


class _DemandClasses:
    """When jobs fit on each node at the earliest, by classes of alike jobs.

    The jobs of a class may use the same nodes, and their demands are the same when rounded down:
    none of them fits before the class does. What is found for one class serves all its jobs, as
    long as what runs stays the same.
    """

    def __init__(self, cluster: Cluster, left: RoomProfile, now: float) -> None:
        self._cluster, self._left, self._now = cluster, left, now
        self._row: dict[tuple[object, ...], int] = {}
        self._bounds = np.empty((16, len(cluster)))

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Return float64[c, m], seconds: before that no job of the class fits; inf: never."""
        return self._bounds[: len(self._row)]

    def of(self, jobs: Jobs, demand: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the class of each job, int64[n]: its row of `bounds`."""
        lacks = lacking(jobs, self._cluster)
        code, masks = allowed_nodes(jobs, self._cluster)
        keys = np.column_stack([rounded_down(demand), code, jobs.pinned, lacks])
        if len(keys) == 1:  # as at every submission
            return np.array([self._row_of(keys[0], masks)])
        distinct, class_of = np.unique(keys, axis=0, return_inverse=True)
        rows = np.array([self._row_of(key, masks) for key in distinct], np.int64)
        return rows[class_of.ravel()]

    def _row_of(self, key: NDArray[np.int64], masks: list[NDArray[np.bool_]]) -> int:
        *amounts, code, pinned, lacks = key.tolist()
        which = masks[code].tobytes() if code >= 0 else b""
        known = (which, pinned, lacks, *amounts)
        if known in self._row:
            return self._row[known]
        row = self._row[known] = len(self._row)
        if row >= len(self._bounds):
            self._bounds = np.concatenate([self._bounds, np.empty_like(self._bounds)])
        allowed = self._cluster.usable & (not lacks)
        if code >= 0:
            allowed &= masks[code]
        if pinned >= 0:
            allowed &= np.arange(len(self._cluster)) == pinned
        self._bounds[row] = np.where(allowed, self._now, np.inf)
        first_times(self._left, key[None, :-3].copy(), 0, self._now, self._bounds[row])
        return row


def rounded_down(amounts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return amounts rounded down to one of 1, 2, 3, 4, 6, 8, 12, 16, ..., the same shape."""
    _, exponent = np.frexp(amounts.astype(np.float64))
    step = np.int64(1) << np.maximum(exponent - 2, 0).astype(np.int64)
    rounded: NDArray[np.int64] = amounts // step * step
    return rounded


class PreparedResources:
    """What is promised, planned and left in a snapshot; holds until that changes.

    Times are relative to `planning_origin`.

    Attributes
    ----------
    origin : float
        Seconds since the epoch.
    rules : ResourceRules
        Orders and node rule of plans.
    promised : jobs of the plan
    running, planned : RoomProfile
        What running jobs and reservations leave of each node; what the plan leaves of that.
    """

    def __init__(self, snapshot: Snapshot, rules: ResourceRules) -> None:
        self.origin, self.rules = planning_origin(snapshot.now), rules
        self._cluster = snapshot.cluster
        self._room = room_of(snapshot.cluster)
        self._now = snapshot.now - self.origin
        blocked, plan = snapshot.blocked, snapshot.plan
        held = Schedule.joined([snapshot.allocations, blocked.schedule()])
        running = demand_of(snapshot.running, snapshot.cluster)
        demand = np.concatenate([running, blocked.demand(snapshot.cluster)])
        self.running = self._filled(held, demand)
        self._classes = _DemandClasses(snapshot.cluster, self.running, self._now)
        self.promised = self.jobs_of(snapshot.planned)
        both = np.concatenate([demand, self.promised.demand])
        self.planned = self._filled(Schedule.joined([held, plan]), both)

    def _filled(self, part: Schedule, demand: NDArray[np.int64]) -> RoomProfile:
        """Return what these entries leave of nodes and licences."""
        return left_beside(
            self._room,
            part.entries.start - self.origin,
            np.maximum(part.entries.end - self.origin, self._now),
            part.ragged,
            demand,
            self._now,
            len(self._cluster.licenses),
        )

    def jobs_of(self, jobs: Jobs) -> _Jobs:
        """Return jobs as they are planned."""
        tasks = tasks_of(jobs, self.origin)
        flexible = np.flatnonzero(tasks.kind != Kind.RIGID)
        if len(flexible):
            most = tasks.size_max.copy()
            most[flexible] = np.minimum(most[flexible], self.in_service(jobs.take(flexible)))
            tasks = tasks._replace(size_max=most)
        demand = demand_of(jobs, self._cluster)
        class_of = self._classes.of(jobs, demand)
        return _Jobs(jobs.id.copy(), tasks, demand, class_of, jobs.begin - self.origin)

    def in_service(self, jobs: Jobs) -> NDArray[np.int32]:
        """Return how many nodes in service each job could use if nobody else was there."""
        return fitting_nodes(jobs, self._cluster, self._cluster.usable)

    def requests(self, jobs: _Jobs, chains: Chains | None = None) -> TaskRequests:
        """Return jobs as the kernels take them; without `chains` they wait for nobody."""
        n, m = len(jobs.ids), len(self._cluster)
        rules = self.rules
        rows = rows_of(jobs.tasks, m, rules.efficiency, node_rule=rules.node_rule)
        bounds = self._classes.bounds
        chains = unchained(n) if chains is None else chains
        chains = chains._replace(ready=np.fmax(chains.ready, jobs.begin))
        return TaskRequests(rows, jobs.demand, jobs.class_of, bounds, rules.generosity, chains)


@dataclass
class ResourceSession:
    """Promises given and the new jobs of one batch; grows as they are admitted.

    As `rtsched_plugins.planning.PlanningSession`, by what each node has left over time.

    Attributes
    ----------
    snapshot : Snapshot
        The state that the batch is judged against.
    jobs : Jobs
        The new jobs.
    prepared : PreparedResources
        What the snapshot says of promises and plan.
    links : Dependencies or None
        What the jobs of the plan, and behind them the new ones, wait for; None: for nobody.
    """

    snapshot: Snapshot
    jobs: Jobs
    prepared: PreparedResources
    links: Dependencies | None = None

    def __post_init__(self) -> None:
        self._ids = np.concatenate([self.prepared.promised.ids, self.jobs.id])
        self._now = self.snapshot.now - self.prepared.origin
        self._new, self._promised = self.prepared.jobs_of(self.jobs), self.prepared.promised
        self._plan = self.snapshot.plan
        self._left = self.prepared.planned

    def admit(self, row: int) -> Refusal | None:
        """Admit the batch's job `row` and return None, or change nothing and say why not."""
        new = self._new.take(np.array([row]))
        if (unknown := self._unknown(int(new.ids[0]))) >= 0:
            return Refusal("waits", {"task": unknown})
        failed = self._try(new)
        if failed < 0:
            return None
        left = float(self.jobs.deadline[row] - self.snapshot.now)
        requests = self.prepared.requests(new, self._chains(new))
        rows, first = requests.rows, self._first(requests)
        nodes = int(self.prepared.in_service(self.jobs.take([row]))[0])
        needed = shortest_time(rows, 0) if rows.whole[0, LOW] <= nodes else math.inf
        if needed == math.inf:
            return Refusal("impossible", {"left": left})
        if least_size(rows, 0, rows.whole[0, LOW], self._now) == 0:
            return Refusal("impossible", {"left": left, "needed": needed})
        if least_size(rows, 0, rows.whole[0, LOW], first) == 0:
            wait = first - self._now
            return Refusal("behind", {"left": left, "needed": needed, "wait": wait})
        promises = len(self._promised.ids)
        if failed < promises:
            other = float(self._promised.ids[failed])
            return Refusal("breaks_promise", {"other": other, "promises": promises})
        free = free_now(self._left, requests, 0, self._now)
        numbers = {"promises": promises, "left": left, "free": free, "nodes": nodes}
        return Refusal("no_room", numbers)

    def _try(self, new: _Jobs, adopt: bool = True) -> int:
        """Admit a job beside the plan or by a new one; return -1, or which task cannot be kept.

        That is a row of the promised jobs, or their number for the new job.
        """
        due = min(float(new.tasks.deadline[0]), self._needed_by(int(new.ids[0])))
        sooner = replace(new, tasks=new.tasks._replace(deadline=np.array([due])))
        requests = self.prepared.requests(sooner, self._chains(new))
        beside, left = self._placed(requests, np.zeros(1, np.int64), self._left)
        if beside.failed == -1:
            if adopt:
                self._adopt(new, self._schedule([self._plan], new, beside), left)
            return -1
        everybody = self._promised.with_one(new)
        anew, left, order = self._anew(everybody, self._places(everybody))
        if anew.failed == -1 and adopt:
            self._adopt(new, self._schedule([], everybody.take(order), anew), left)
        return anew.failed

    def _anew(
        self, jobs: _Jobs, so_far: Places | None = None
    ) -> tuple[Placed, RoomProfile, NDArray[np.int64]]:
        """Plan all these jobs anew; return the plan, what it leaves, and the order of its rows.

        With `so_far`, those stay where they are planned that need not move for jobs before them,
        or if that fails, nobody need stay. Where no order gives a complete plan, that of the first
        is returned.
        """
        chains = self._chains(jobs)
        requests, orders = self.prepared.requests(jobs, chains), self.prepared.rules.orders
        if len(chains.after):
            orders = tuple(dict.fromkeys([*orders, BY_DEADLINE]))
            deadline = effective_deadlines(jobs.tasks.deadline, requests)
            jobs = replace(jobs, tasks=jobs.tasks._replace(deadline=deadline))
            requests = self.prepared.requests(jobs, chains)
        failures = []
        for which in orders:
            order, in_turn = self._order(jobs, requests.rows, which), which == IN_TURN
            order = in_sequence(order, chains)
            for staying in (so_far, None) if so_far else (None,):
                left = self.prepared.running
                placed, left = self._placed(requests, order, left, staying, in_turn)
                if placed.failed == -1:
                    return placed, left, order
            failures.append((placed, left, order))
        return failures[0]

    def _places(self, jobs: _Jobs) -> Places:
        """Return where jobs are planned now."""
        row, known = places(self._plan.entries.job, jobs.ids)
        known[known] = self._plan.entries.rounds[row[known]] == 1
        taken = self._plan.take(row[known])
        start, end = np.full((2, len(row)), np.nan)
        start[known] = taken.entries.start - self.prepared.origin
        end[known] = taken.entries.end - self.prepared.origin
        size = np.zeros(len(row), np.int64)
        size[known] = np.diff(taken.indptr)
        return Places(start, end, offsets_of(size), taken.nodes.copy())

    def _chains(self, jobs: _Jobs) -> Chains:
        """Return what jobs wait for: running ones, those among them, and others of the plan.

        What waits for a job of the batch that is not among them stays where it is planned.
        """
        links = self.links
        if links is None:
            return unchained(len(jobs.ids))
        row, here = places(jobs.ids, self._ids)
        at, _ = places(self._ids, jobs.ids)
        ready = links.ready[at] - self.prepared.origin
        own, _ = self._times(jobs.ids)
        stays = links.unknown[at] >= 0
        ready[stays] = np.fmax(ready[stays], own[stays])
        both = here[links.before] & here[links.after]
        others = np.flatnonzero(here[links.after] & ~both)
        start, end = self._times(self._ids[links.before[others]])
        over = np.where(links.at_start[others], start, end) + links.lag[others]
        after = row[links.after[others]]
        np.fmax.at(ready, after, np.where(np.isnan(over), own[after], over))
        rows = np.flatnonzero(both)[np.argsort(row[links.before[both]], kind="stable")]
        count = np.bincount(row[links.before[rows]], minlength=len(jobs.ids))
        after = row[links.after[rows]]
        return Chains(ready, offsets_of(count), after, links.lag[rows], links.at_start[rows])

    def _times(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return when jobs start and end by the plan, float64[2, n], seconds; nan: not planned."""
        times = np.full((2, len(ids)), np.nan)
        row, known = places(self._plan.entries.job, ids)
        entries = self._plan.entries
        times[0, known] = entries.start[row[known]] - self.prepared.origin
        times[1, known] = entries.end[row[known]] - self.prepared.origin
        return times

    def _unknown(self, job: int) -> int:
        """Return a job that a new one waits for and whose end is not known; -1: there is none."""
        links = self.links
        if links is None:
            return -1
        (row,) = np.flatnonzero(self._ids == job)
        before = self._ids[links.before[links.after == row]]
        lost = before[~are_in(before, self._promised.ids)]
        return int(lost[0]) if len(lost) else int(links.unknown[row])

    def _needed_by(self, job: int) -> float:
        """Return when a new job must have ended for those of the plan that wait for it, seconds."""
        links = self.links
        if links is None:
            return math.inf
        mine = self._ids[links.before] == job
        start, _ = self._times(self._ids[links.after[mine]])
        return float(np.fmin.reduce(start - links.lag[mine], initial=math.inf))

    def _first(self, requests: TaskRequests) -> float:
        """Return when the only job of some requests can start at the earliest, seconds."""
        return max(self._now, float(requests.chains.ready[0]))

    def _order(self, jobs: _Jobs, rows: Rows, order: int) -> NDArray[np.int64]:
        """Return the order in which jobs are planned."""
        tasks = jobs.tasks
        first: tuple[NDArray[np.float64], ...] = ()
        if order in {BY_DEADLINE, IN_TURN}:
            first = (tasks.deadline,)
        elif order == BY_LAXITY:
            first = (latest_starts(rows),)
        elif order == BY_COST:
            first = (-cost_derivatives(rows, self._now),)
        return np.lexsort((tasks.rank, tasks.arrival, *first))

    def _placed(
        self,
        requests: TaskRequests,
        order: NDArray[np.int64],
        left: RoomProfile,
        so_far: Places | None = None,
        in_turn: bool = False,
    ) -> tuple[Placed, RoomProfile]:
        """Place jobs on a copy of what is left; return how, and what is left then."""
        so_far = so_far or nowhere(len(requests.class_of))
        more = 4 * len(order) + 2 * len(left.first)
        while True:
            profile = copied(left, more)
            scratch = scratch_for(requests)
            placed = place_tasks(profile, requests, order, self._now, scratch, so_far, in_turn)
            if placed.failed != FULL:
                return placed, profile
            more *= 4

    def _schedule(self, kept: list[Schedule], jobs: _Jobs, placed: Placed) -> Schedule:
        """Return a plan: what is kept, and what was placed, row by row with `jobs`."""
        indptr, origin = offsets_of(placed.size), self.prepared.origin
        divided = bool((jobs.tasks.kind == Kind.DIVISIBLE).any())
        part = Schedule.build(
            jobs.ids,
            placed.start + origin,
            placed.end + origin,
            indptr,
            placed.nodes,
            plan_fractions(indptr, uniform(jobs.tasks), np.ones(len(jobs.ids), np.int32))
            if divided
            else None,
        )
        return Schedule.joined([*kept, part])

    def _adopt(self, new: _Jobs | None, plan: Schedule, left: RoomProfile) -> None:
        if new is not None:
            self._promised = self._promised.with_one(new)
        self._plan, self._left = plan, left

    def offer(self, row: int, max_tests: int) -> float:
        """Return a whole second at which the job's deadline would be accepted, or inf.

        The end beside the present plan, or an earlier one that a new plan keeps; that is looked for
        by bisection with at most `OFFER_PLANS` new plans.
        """
        new, origin = self._new.take(np.array([row])), self.prepared.origin
        requests = self.prepared.requests(new, self._chains(new))
        requests.rows.real[0, DEADLINE] = math.inf
        end = soonest(self._left, requests, 0, self._first(requests), scratch_for(requests))
        if end == math.inf:
            return math.inf
        found = math.ceil(end + origin)
        shortest = shortest_time(requests.rows, 0)
        refused = math.floor(max(float(self.jobs.deadline[row]), self.snapshot.now + shortest))
        for _ in range(min(OFFER_PLANS, max_tests)):
            if found - refused <= 1:
                break
            middle = (refused + found) // 2
            deadline = np.array([middle - origin])
            earlier = replace(new, tasks=new.tasks._replace(deadline=deadline))
            if self._try(earlier, adopt=False) < 0:
                found = middle
            else:
                refused = middle
        return float(found)

    def instead(self, row: int) -> Proposal | None:
        """Return what the job, which was not admitted, could ask for with the same deadline.

        As `rtsched_plugins.planning.instead_of`.
        """
        new = self._new.take(np.array([row]))

        def fits(changed: Tasks) -> bool:
            return self._try(replace(new, tasks=changed), adopt=False) < 0

        return instead_of(new.tasks, int(self.prepared.in_service(self.jobs.take([row]))[0]), fits)

    def improve(self, leave_out: bool = True) -> bool | None:
        """Plan all promises anew; as `rtsched_plugins.planning.PlanningSession.improve`."""
        old = self.snapshot.plan
        usable = self.snapshot.cluster.usable
        lost = not usable[old.nodes].all()
        anew, left, order = self._anew(self._promised)
        while lost and anew.failed >= 0:
            if not leave_out:
                return None
            kept = np.delete(np.arange(len(self._promised.ids)), anew.failed)
            self._promised = self._promised.take(kept)
            anew, left, order = self._anew(self._promised)
        sooner = float(anew.start.sum()) < float((old.entries.start - self.prepared.origin).sum())
        if anew.failed >= 0 or not (lost or sooner):
            return False
        self._adopt(None, self._schedule([], self._promised.take(order), anew), left)
        return True

    def schedule(self) -> Schedule:
        """Return the plan of all promises."""
        return self._plan


def effective_deadlines(
    deadline: NDArray[np.float64], requests: TaskRequests
) -> NDArray[np.float64]:
    """Return by when each task must have ended for those that wait for its end to be in time."""
    due, chains, rows = deadline.copy(), requests.chains, requests.rows
    for i in in_sequence(np.arange(len(due)), chains)[::-1].tolist():
        for link in range(int(chains.indptr[i]), int(chains.indptr[i + 1])):
            j = int(chains.after[link])
            if not chains.at_start[link]:
                due[i] = min(due[i], due[j] - shortest_time(rows, j) - chains.lag[link])
    return due


def in_sequence(order: NDArray[np.int64], chains: Chains) -> NDArray[np.int64]:
    """Return an order of tasks in which each comes after those that it waits for."""
    if not len(chains.after):
        return order
    place = np.argsort(order)
    before = Ragged(chains.indptr, chains.after).rows()
    ranks = topological(
        list(range(len(order))), place[before].tolist(), place[chains.after].tolist()
    )
    return order[ranks]


def scarcest_share(jobs: Jobs, cluster: Cluster, size: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share that jobs on `size` nodes take of the resource that they take most of.

    float64[n], of what the cluster has; licences count once. An exclusive job takes whole nodes.
    """
    room, demand = room_of(cluster).astype(np.float64), demand_of(jobs, cluster)
    licensed, nodes = len(cluster.licenses), len(cluster)
    total, count = room[:nodes].sum(axis=0), np.repeat(size[:, None], demand.shape[1], axis=1)
    if licensed:
        first = demand.shape[1] - 1 - licensed
        total[first:-1], count[:, first:-1] = room[-1, first:-1], 1
    share: NDArray[np.float64] = (demand * count / np.maximum(total, 1.0)).max(axis=1)
    return share
