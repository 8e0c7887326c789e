"""The planner's view of a snapshot: per pool of nodes, what is promised and what is free."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.api import Kind, Schedule, allowed_nodes
from rtsched_plugins.insurance import (
    NOTHING,
    Insurance,
    held_longer,
    insured,
    one_run,
    without_spares,
)
from rtsched_plugins.kernels.admission import (
    ANY_SIZE,
    KINDS,
    Plan,
    Tasks,
    joined,
)
from rtsched_plugins.kernels.admission_of_rows import planning_origin, starts_earlier
from rtsched_plugins.kernels.beside import Gaps, PlaceBeside, gaps_of, place_of
from rtsched_plugins.planners import EqualNodes, NodeAware

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rtsched.api import Jobs, Snapshot
    from rtsched_plugins.planners import Planner


class Refusal(NamedTuple):
    """Why a job was not admitted: the name of a reason, and its numbers."""

    why: str
    numbers: dict[str, float]


class Proposal(NamedTuple):
    """What a job could ask for with the same deadline: the name of a reason, and its numbers."""

    why: str
    numbers: dict[str, float]


def tasks_of(jobs: Jobs, origin: float) -> Tasks:
    """Return jobs as the admission test's tasks, times relative to `origin`."""
    size = jobs.size
    least, most, sigma = size, size, jobs.sigma
    divisible, array = jobs.kind == Kind.DIVISIBLE, jobs.kind == Kind.ARRAY
    if divisible.any():
        least, most = np.where(divisible, 1, size), np.where(divisible, ANY_SIZE, size)
    if array.any():
        on_one = np.ceil(jobs.tasks / np.maximum(jobs.tasks_per_node, 1))
        sigma = np.where(array, on_one, sigma)
    columns = {
        "arrival": jobs.submit - origin,
        "rank": jobs.id,
        "deadline": jobs.deadline - origin,
        "kind": jobs.kind,
        "size": size,
        "size_min": np.where(jobs.size_min > 0, jobs.size_min, least),
        "size_max": np.where(jobs.size_max > 0, jobs.size_max, most),
        "wall": jobs.wall_time,
        "sigma": sigma,
        "cms": jobs.cms,
        "cps": jobs.cps,
        "setup_link": jobs.setup_link,
        "setup_node": jobs.setup_node,
        "rounds": np.maximum(jobs.rounds, 1),
        "setup_once": jobs.setup_once,
    }
    flat: dict[str, NDArray[Any]] = {
        name: np.array(values, KINDS[name], order="C") for name, values in columns.items()
    }
    return Tasks(**flat)


def tasks_at(tasks: Tasks, rows: NDArray[np.int64] | slice) -> Tasks:
    """Return some of the tasks."""
    columns: list[NDArray[Any]] = [np.ascontiguousarray(column[rows]) for column in tasks]
    return Tasks(*columns)


@dataclass
class _Pool:
    """The nodes that some jobs may use, and the promised ones among these that wait for them.

    Its arrays are replaced, never written to, so that a copy of it is a pool of its own.
    """

    nodes: NDArray[np.int64]
    free: NDArray[np.float64]
    waiting: Tasks
    ids: NDArray[np.int64]
    planner: Planner
    spare: int = 0
    plan: Schedule | None = None
    held: Schedule | None = None
    _prepared: list[Any] = field(default_factory=list)
    """What the planner prepared, once it has; copies share it."""

    def prepared(self) -> Any:
        if not self._prepared:
            self._prepared.append(self.planner.prepare(self.free, self.waiting))
        return self._prepared[0]

    def adopt(self, new: Tasks, job: int) -> None:
        """Have one more promised job."""
        self.waiting, self._prepared = joined(self.waiting, new), []
        self.ids = np.append(self.ids, job)

    def planned(self, plan: Plan, origin: float) -> None:
        """Have another plan for its jobs."""
        once = one_run(plan.start, plan.end, self.spare)
        self.plan = _schedule(self, plan, once, origin)
        self.held = _schedule(self, plan, plan.end, origin) if self.spare else self.plan

    def see(self, free: NDArray[np.float64]) -> None:
        """Take in what other pools have planned on its nodes."""
        self.free, self._prepared = without_spares(free, self.spare), []

    def without(self, row: int) -> None:
        kept = np.delete(np.arange(len(self.ids)), row)
        self.waiting, self.ids = tasks_at(self.waiting, kept), self.ids[kept]
        self._prepared = []


class _Outcome(NamedTuple):
    """A session's jobs, the pool in which it planned, as it is now, and the plan of all jobs."""

    jobs: Jobs
    at: int
    pool: _Pool
    plan: Schedule


class PreparedPlan:
    """What is promised and planned in a snapshot, by pool of nodes; holds until that changes.

    Times are relative to an origin that many snapshots share: the last multiple of 1024 s before
    now. (It follows from `now` alone, so that what was asked before cannot show in an answer;
    and it is near enough for the tolerance of the admission test.)

    Attributes
    ----------
    origin : float
        Seconds since the epoch.
    planner : Planner or NodeAware
        How plans are made.
    masks : list of bool[m]
        The sets of nodes that partitions are, the first: all nodes; then those that jobs ask for.
    pool_of_planned : int64[n]
        For each entry of the plan the set of nodes that it may use.
    insurance : Insurance
        How many lost nodes promises survive.
    spare : list of int
        By set of nodes, how many of them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        planner: Planner | NodeAware,
        insurance: Insurance = NOTHING,
    ) -> None:
        self.planner, self.insurance = planner, insurance
        self._snapshot = snapshot
        self._outcome: _Outcome | None = None
        self.origin = planning_origin(snapshot.now)
        self._free = snapshot.free_after(self.origin)
        self.masks = [np.ones(len(snapshot.cluster), np.bool_)]
        self._index: dict[str, int] = {}
        known = {self.masks[0].tobytes(): 0}
        for name, mask in snapshot.cluster.partitions.items():
            index = self._index[name] = known.setdefault(mask.tobytes(), len(known))
            if index == len(self.masks):
                self.masks.append(mask)
        self.spare = [
            insurance.of(name for name, at in self._index.items() if at == index)
            for index in range(len(self.masks))
        ]
        self._known = {(key, self.spare[index]): index for key, index in known.items()}
        self.pool_of_planned = self.pool_of(snapshot.planned)
        self._in_use = len(self.masks)
        if insurance.max_nodes:
            self._free = held_longer(snapshot, self._free, self._spare_of_nodes(), self.origin)
        self._pools: dict[int, _Pool] = {}
        self._gaps: tuple[int, float, Gaps] | None = None

    def gaps(self, index: int, now: float) -> Gaps:
        """Return the gaps of a pool's nodes beside the plan, `now` in seconds after the origin."""
        if self._gaps is None or self._gaps[:2] != (index, now):
            self._gaps = (index, now, self.gaps_beside(self._snapshot.plan, index, now))
        return self._gaps[2]

    def gaps_beside(self, plan: Schedule, index: int, now: float) -> Gaps:
        """Return the gaps of a pool's nodes beside another plan; their nodes are the pool's."""
        mask = self.masks[index]
        place = np.where(mask, np.cumsum(mask) - 1, -1)[plan.nodes]
        start, end = plan.starts() - self.origin, plan.per_node(plan.entries.end) - self.origin
        return gaps_of(self._free[mask], place, start, end, now)

    def planned(self, jobs: Jobs, index: int, pool: _Pool, plan: Schedule) -> None:
        """Remember what a session came to that planned anew in one pool only, for `after`."""
        self._outcome = _Outcome(jobs, index, pool, plan)

    def after(self, snapshot: Snapshot) -> PreparedPlan | None:
        """Return what is prepared for a snapshot that has the plan of the last session.

        None where more has changed than that its one job is promised its deadline.
        """
        before, outcome = self._snapshot, self._outcome
        if outcome is None or outcome.plan is not snapshot.plan or self.insurance.max_nodes:
            return None
        jobs, index, pool, _ = outcome
        if len(self.masks) != self._in_use or self.origin != planning_origin(snapshot.now):
            return None
        read = ("cluster", "allocations", "blocked")
        if any(getattr(before, name) is not getattr(snapshot, name) for name in read):
            return None
        promise = snapshot.promises.added_to(before.promises)
        if promise is None or snapshot.queued.added_to(before.queued) is not jobs:
            return None
        if promise.job.tolist() != jobs.id.tolist() or (promise.deadline != jobs.deadline).any():
            return None
        grown = copy(self)
        kept = self.pool_of_planned[self.pool_of_planned != index]
        grown.pool_of_planned = np.append(kept, np.full(len(pool.ids), index))
        grown._snapshot, grown._outcome, grown._gaps = snapshot, None, None
        grown._pools = {index: replace(pool, plan=None, held=None)}
        return grown

    def _spare_of_nodes(self) -> NDArray[np.int64]:
        """Return int64[m]: how many nodes may be lost, at most, of those that each is among."""
        most = np.zeros(len(self.masks[0]), np.int64)
        for mask, many in zip(self.masks, self.spare, strict=True):
            most[mask] = np.maximum(most[mask], many)
        return most

    def open_after(self, now: float) -> NDArray[np.float64]:
        """Return float64[m]: seconds after `now` (since the epoch) at which nodes take a job.

        inf for those that are kept for when others are lost.
        """
        free = np.maximum(self._free + (self.origin - now), 0.0)
        for mask, spare in list(zip(self.masks, self.spare, strict=True))[: self._in_use]:
            free[mask] = without_spares(free[mask], spare)
        return free

    def losses(self, jobs: Jobs) -> NDArray[np.int64]:
        """Return int64[n]: how many losses of a node each job is insured against."""
        return np.array(self.spare, np.int64)[self.pool_of(jobs)]

    def pool_of(self, jobs: Jobs) -> NDArray[np.int64]:
        """Return for each job which set of nodes it may use; 0: all nodes.

        Sets that jobs ask for are insured as their partitions are.
        """
        pools = np.zeros(len(jobs), np.int64)
        if len(self.masks) > 1:
            index = [self._index.get(name, 0) for name in jobs.names("partition")]
            pools = np.array([*index, 0])[jobs.partition]  # the last place serves code -1, none
        if jobs.names("node_request"):
            self._set_asked(pools, jobs)
        return pools

    def _set_asked(self, pools: NDArray[np.int64], jobs: Jobs) -> None:
        """Set the pools of those jobs that ask for nodes, by those of their partitions."""
        asking = np.flatnonzero(jobs.node_request >= 0)
        codes, masks = allowed_nodes(jobs.take(asking), self._snapshot.cluster)
        masks.append(self.masks[0])  # of code -1
        own = pools[asking]
        for code, partition in sorted(set(zip(codes.tolist(), own.tolist(), strict=True))):
            alike = asking[(codes == code) & (own == partition)]
            pools[alike] = self._pool_on(masks[code], self.spare[partition])

    def has_overlapping_pools(self, jobs: Jobs) -> bool:
        """Return whether the pools of these jobs and of the planned ones overlap.

        Each pool is planned by itself, after all that others have planned on its nodes: where pools
        overlap, one plan for all jobs keeps more promises. Not where loads are sent in several
        rounds.
        """
        there = np.flatnonzero(np.bincount(self.pool_of_planned))
        used = {*there.tolist(), *self.pool_of(jobs).tolist()}
        if len(used) < 2:
            return False
        if any((each.rounds > 1).any() for each in (jobs, self._snapshot.planned)):
            return False
        return bool((np.sum([self.masks[index] for index in used], axis=0) > 1).any())

    def _pool_on(self, mask: NDArray[np.bool_], spare: int) -> int:
        """Return the index of a set of nodes of which so many may be lost; it may be a new one."""
        index = self._known.setdefault((mask.tobytes(), spare), len(self.masks))
        if index == len(self.masks):
            self.masks.append(mask)
            self.spare.append(spare)
        return index

    def pool(self, index: int) -> _Pool:
        """Return a pool of its own with the promises given for it, and its preparation."""
        if index not in self._pools:
            nodes, mine = np.flatnonzero(self.masks[index]), self.pool_of_planned == index
            planned = self._snapshot.planned
            planned = planned if mine.all() else planned.take(mine)
            spare = self.spare[index]
            free = without_spares(self.free_but_for([index], [])[nodes], spare)
            tasks = insured(tasks_of(planned, self.origin), spare, self.insurance.recovery)
            pool = _Pool(nodes, free, tasks, planned.id, self._planner_on(nodes), spare)
            self._pools[index] = pool
        return replace(self._pools[index])

    def _planner_on(self, nodes: NDArray[np.int64]) -> Planner:
        if isinstance(self.planner, NodeAware):
            cluster = self._snapshot.cluster
            return self.planner.on(cluster.nodes.take(nodes), cluster.pace[nodes])
        return self.planner

    def free_but_for(self, left_out: list[int], anew: Sequence[Schedule]) -> NDArray[np.float64]:
        """Return when each node is free of running jobs, of the plans `anew`, and of the plan.

        Of the plan the entries in the pools `left_out` do not count.
        """
        counts = np.ones(len(self.pool_of_planned), np.bool_)
        for index in left_out:
            counts &= self.pool_of_planned != index
        old = np.flatnonzero(counts)
        if not len(old) and not anew:
            return self._free
        free = self._free.copy()
        for part in (self._held(old), *anew):
            np.maximum.at(free, part.nodes, part.per_node(part.entries.end - self.origin))
        return free

    def _held(self, rows: NDArray[np.int64]) -> Schedule:
        """Return entries of the plan, as long as their nodes are kept for them."""
        part = self._snapshot.plan.take(rows)
        if not self.insurance.max_nodes:
            return part
        losses = np.array(self.spare)[self.pool_of_planned[rows]]
        end = part.entries.end + losses * (part.entries.end - part.entries.start)
        return replace(part, entries=part.entries.replace(end=end))


def planning_reads(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what of a snapshot a prepared plan is made from: as long as this stands, it does."""
    return (
        planning_origin(snapshot.now),
        snapshot.cluster,
        snapshot.allocations,
        snapshot.plan,
        snapshot.promises,
        snapshot.queued,
        snapshot.blocked,
    )


@dataclass
class PlanningSession:
    """Promises given and the new jobs of one batch; grows as they are admitted.

    Attributes
    ----------
    snapshot : Snapshot
        The state that the batch is judged against.
    jobs : Jobs
        The new jobs.
    prepared : PreparedPlan
        What the snapshot says of promises and plan.
    beside : bool
        Whether a new job is planned beside the plan as it is where that can be.
    """

    snapshot: Snapshot
    jobs: Jobs
    prepared: PreparedPlan
    beside: bool = False
    _pools: dict[int, _Pool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._origin = self.prepared.origin
        self._now = self.snapshot.now - self._origin
        self._new = tasks_of(self.jobs, self._origin)
        self._pool_of_new = self.prepared.pool_of(self.jobs)

    def _task(self, row: int) -> Tasks:
        """Return the batch's job `row` as it is planned in its pool."""
        spare = self.prepared.spare[int(self._pool_of_new[row])]
        one = tasks_at(self._new, slice(row, row + 1))
        return insured(one, spare, self.prepared.insurance.recovery)

    def _pool(self, index: int) -> _Pool:
        """Return a pool; what other pools have planned on its nodes counts as busy until then."""
        if index not in self._pools:
            pool = self._pools[index] = self.prepared.pool(index)
            if any(other.plan is not None for other in self._pools.values()):
                pool.see(self._free(index)[pool.nodes])
        return self._pools[index]

    def _free(self, index: int) -> NDArray[np.float64]:
        """Return when each node is free of running jobs and of all other pools' plans."""
        anew = [other for other, pool in self._pools.items() if pool.plan is not None]
        return self.prepared.free_but_for([index, *anew], self._parts(without=index, held=True))

    def _parts(self, without: int = -1, held: bool = False) -> list[Schedule]:
        """Return the plans of the pools that were planned anew, but for one.

        `held`: as long as the nodes are kept for the jobs, not until these end if no node is lost.
        """
        pools = [pool for index, pool in self._pools.items() if index != without]
        plans = [pool.held if held else pool.plan for pool in pools]
        return [plan for plan in plans if plan is not None]

    def _see(self, index: int) -> None:
        """Let the other pools see a new plan of a pool."""
        for other, pool in self._pools.items():
            if other != index:
                pool.see(self._free(other)[pool.nodes])

    def admit(self, row: int) -> Refusal | None:
        """Admit the batch's job `row` and return None, or change nothing and say why not."""
        index = int(self._pool_of_new[row])
        pool = self._pool(index)
        new = self._task(row)
        if (place := self._place(pool, index, new)) is not None:
            self._take(pool, index, row, new, place)
            return None
        planner, prepared = pool.planner, pool.prepared()
        plan = planner.admit(prepared, new, self._now)
        if plan.accepted:
            pool.adopt(new, int(self.jobs.id[row]))
            pool.planned(plan, self._origin)
            self._see(index)
            return None
        left = float(self.jobs.deadline[row] - self.snapshot.now)
        needed = planner.needed(prepared, new, self._now)
        if pool.spare and not math.isnan(needed):
            bare = tasks_at(self._new, slice(row, row + 1))
            if math.isnan(planner.needed(prepared, bare, self._now)):
                return Refusal("uninsured", {"left": left, "spare": pool.spare})
        free = self._free_now(pool, index)
        return refusal_of(needed, plan.failed, self._now, left, free, pool.ids)

    def _place(self, pool: _Pool, index: int, new: Tasks) -> PlaceBeside | None:
        """Return a place for a task of a pool beside the plan as it is; None: there is none."""
        planner = pool.planner
        if not self.beside or self.prepared.insurance.max_nodes:
            return None
        if not isinstance(planner, EqualNodes):
            return None
        usable = int(np.isfinite(pool.free).sum())
        place = place_of(self._gaps(index), planner.row_of(new, usable), self._now)
        return place if len(place.nodes) else None

    def _gaps(self, index: int) -> Gaps:
        """Return the gaps of a pool's nodes beside the plan of all promises."""
        if any(each.plan is not None for each in self._pools.values()):
            return self.prepared.gaps_beside(self.schedule(), index, self._now)
        return self.prepared.gaps(index, self._now)

    def _free_now(self, pool: _Pool, index: int) -> NDArray[np.float64]:
        """Return when nodes of a pool are free, with `beside` also of promised jobs that start."""
        if not self.beside or self.prepared.insurance.max_nodes:
            return pool.free
        gaps = self._gaps(index)
        free = np.full(len(pool.free), np.inf)
        free[gaps.node[gaps.begin <= self._now]] = self._now
        return free

    def _take(self, pool: _Pool, index: int, row: int, new: Tasks, place: PlaceBeside) -> None:
        """Have the batch's job `row` in its place; all others stay where they are planned."""
        before = pool.plan
        if before is None:
            before, mine = self.snapshot.plan, self.prepared.pool_of_planned == index
            before = before if mine.all() else before.take(np.flatnonzero(mine))
        start, end, size = np.array([place.start]), np.array([place.end]), len(place.nodes)
        order, indptr = np.zeros(1, np.int64), np.array([0, size])
        nodes = place.nodes.astype(np.int32)
        plan = Plan(True, -1, math.nan, start, end, order, indptr, nodes, np.empty(0))
        alone = replace(pool, waiting=new, ids=self.jobs.id[row : row + 1])
        part = _schedule(alone, plan, end, self._origin)
        pool.adopt(new, int(self.jobs.id[row]))
        pool.plan = pool.held = Schedule.joined([before, part])
        self._see(index)

    def offer(self, row: int, max_tests: int) -> float:
        """Return the least whole second at which the job's deadline would be accepted, or inf."""
        index = int(self._pool_of_new[row])
        pool, new = self._pool(index), self._task(row)
        found = pool.planner.offer(pool.prepared(), new, self._now, max_tests)
        patient = new._replace(deadline=np.array([math.inf]))
        if (place := self._place(pool, index, patient)) is not None:
            found = min(found, float(math.ceil(place.end + self._origin)) - self._origin)
        return found + self._origin + math.ceil(pool.spare * self.prepared.insurance.recovery)

    def instead(self, row: int) -> Proposal | None:
        """Return what the job, which was not admitted, could ask for with the same deadline.

        As `instead_of`.
        """
        index = int(self._pool_of_new[row])
        pool = self._pool(index)
        prepared = pool.prepared()

        def fits(changed: Tasks) -> bool:
            if self._place(pool, index, changed) is not None:
                return True
            return pool.planner.admit(prepared, changed, self._now).accepted

        return instead_of(self._task(row), len(pool.free), fits)

    def improve(self, leave_out: bool = True) -> bool | None:
        """Plan all promises anew; return whether that is better than the plan they have.

        It is if nodes of the old plan were lost, or if the jobs start earlier on the whole. Where
        lost nodes leave no plan for all, the promises that fail are left out one by one: their
        jobs become best effort. Without `leave_out` the answer is None then.
        """
        old = self.snapshot.plan
        up = np.isfinite(self.snapshot.free_in)
        better = False
        for index in np.unique(self.prepared.pool_of_planned).tolist():
            pool = self._pool(index)
            mine = self.prepared.pool_of_planned == index
            lost = not up[old.nodes[old.per_node(mine)]].all()
            plan = pool.planner.admit(pool.prepared(), None, self._now)
            while lost and not plan.accepted:
                if not leave_out:
                    return None
                pool.without(plan.failed)
                plan = pool.planner.admit(pool.prepared(), None, self._now)
            begun = old.entries.start[mine]
            if plan.accepted and (lost or starts_earlier(plan.start, begun, self._origin)):
                pool.planned(plan, self._origin)
                self._see(index)
                better = True
        return better

    def schedule(self) -> Schedule:
        """Return the plan of all promises: new in the pools that changed, the old one elsewhere."""
        changed = [index for index, pool in self._pools.items() if pool.plan is not None]
        unchanged = np.ones(len(self.prepared.masks), np.bool_)
        unchanged[changed] = False
        kept = np.flatnonzero(unchanged[self.prepared.pool_of_planned])
        old = [self.snapshot.plan.take(kept)] if len(kept) else []
        plan = Schedule.joined([*old, *self._parts()])
        if len(changed) == 1:
            self.prepared.planned(self.jobs, changed[0], self._pools[changed[0]], plan)
        return plan


def refusal_of(
    needed: float,
    failed: int,
    now: float,
    left: float,
    free: NDArray[np.float64],
    ids: NDArray[np.int64],
) -> Refusal:
    """Return why a new task was not admitted.

    Parameters
    ----------
    needed : float
        Its least run time, seconds, if it would be late on an idle cluster; else nan.
    failed : int
        Which task cannot be kept: one that waits, or the new one, the last.
    now : float
        Seconds, relative as the tasks' times are.
    left : float
        Seconds until its deadline.
    free : float64[m]
        When each node is free of running jobs, seconds.
    ids : int64[n]
        Job ids of the tasks that wait.
    """
    if not math.isnan(needed):
        numbers = {"left": left, "needed": needed} if needed < math.inf else {"left": left}
        return Refusal("impossible", numbers)
    promises = len(ids)
    if failed < promises:
        other = float(ids[failed])
        return Refusal("breaks_promise", {"other": other, "promises": promises})
    open_now = int(np.count_nonzero(free <= now))
    numbers = {"promises": promises, "left": left, "free": open_now, "nodes": len(free)}
    return Refusal("no_room", numbers)


def instead_of(new: Tasks, whole: int, fits: Callable[[Tasks], bool]) -> Proposal | None:
    """Return what a job, which was not admitted, could ask for with the same deadline.

    Of a divisible job's load a percentage: that much is accepted, one per cent more is not. Of an
    array rounds on one node, alike. A moldable job that may use `most` nodes is accepted with
    `nodes`, and not with one less.

    Parameters
    ----------
    new : Tasks
        One task.
    whole : int
        Nodes that there are for it.
    fits : callable
        Whether it would be admitted if it asked for something else.
    """
    most = int(new.size_max[0])
    if new.kind[0] == Kind.DIVISIBLE:
        percent = bisected(0, 100, lambda k: fits(new._replace(sigma=new.sigma * (k / 100))))
        return Proposal("smaller_load", {"percent": percent}) if percent else None
    if new.kind[0] == Kind.ARRAY:
        rounds = int(new.sigma[0])
        rounds = bisected(0, rounds, lambda k: fits(new._replace(sigma=np.array([float(k)]))))
        return Proposal("fewer_tasks", {"rounds": rounds}) if rounds else None
    if new.kind[0] != Kind.MOLDABLE or most >= whole:
        return None

    def allowed(fewer: int) -> bool:
        return fits(new._replace(size_max=np.array([whole - fewer], np.int32)))

    if not allowed(0):
        return None
    nodes = whole - bisected(0, whole - most, allowed)
    return Proposal("more_nodes", {"nodes": nodes, "most": most})


def bisected(accepted: int, refused: int, is_accepted: Callable[[int], bool]) -> int:
    """Return an accepted number next to a refused one, between two such numbers.

    Acceptance need not be monotone, so another number further up may be accepted too.
    """
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if is_accepted(middle):
            accepted = middle
        else:
            refused = middle
    return accepted


def _schedule(pool: _Pool, plan: Plan, end: NDArray[np.float64], origin: float) -> Schedule:
    """Return one pool's plan as a schedule of the cluster, with these ends of its entries."""
    divided = bool((pool.waiting.kind == Kind.DIVISIBLE).any())
    division = pool.planner.division(plan, pool.waiting) if divided else None
    return Schedule.build(
        pool.ids,
        plan.start + origin,
        end + origin,
        plan.indptr,
        pool.nodes[plan.nodes].astype(np.int32),
        None if division is None else division.fractions,
        plan.node_start + origin if len(plan.node_start) else None,
        1 if division is None else division.rounds,
    )
