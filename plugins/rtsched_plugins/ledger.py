"""The planner's view of a snapshot: per pool of nodes, what is promised and what is free."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Schedule
from rtsched_plugins.kernels.admission import ANY_SIZE, Plan, Tasks
from rtsched_plugins.kernels.admission_fast import admit, prepare, with_new
from rtsched_plugins.kernels.admission_rows import LOW, least_size
from rtsched_plugins.kernels.counter_offer import counter_offer
from rtsched_plugins.kernels.fractions import plan_fractions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.snapshot import Snapshot
    from rtsched_plugins.kernels.admission_events import Prepared


class Refusal(NamedTuple):
    """Why a job was not admitted: the name of a reason, and its numbers."""

    why: str
    numbers: dict[str, float]


def tasks_of(jobs: Jobs, now: float) -> Tasks:
    """Return jobs as the admission test's tasks, times relative to `now`."""
    divisible = jobs.kind == Kind.DIVISIBLE
    least = np.where(divisible, 1, jobs.size)
    most = np.where(divisible, ANY_SIZE, jobs.size)
    columns = {
        "arrival": jobs.submit - now,
        "rank": jobs.id,
        "deadline": jobs.deadline - now,
        "kind": jobs.kind,
        "size": jobs.size,
        "size_min": np.where(jobs.size_min > 0, jobs.size_min, least).astype(np.int32),
        "size_max": np.where(jobs.size_max > 0, jobs.size_max, most).astype(np.int32),
        "wall": jobs.wall_time,
        "sigma": jobs.sigma,
        "cms": jobs.cms,
        "cps": jobs.cps,
        "setup_link": jobs.setup_link,
        "setup_node": jobs.setup_node,
    }
    flat: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(values) for name, values in columns.items()
    }
    return Tasks(**flat)


def _rows(tasks: Tasks, rows: NDArray[np.int64] | slice) -> Tasks:
    columns: list[NDArray[Any]] = [np.ascontiguousarray(column[rows]) for column in tasks]
    return Tasks(*columns)


def _joined(first: Tasks, second: Tasks) -> Tasks:
    pairs: zip[tuple[Any, Any]] = zip(first, second, strict=True)
    columns: list[NDArray[Any]] = [np.concatenate(pair) for pair in pairs]
    return Tasks(*columns)


@dataclass
class _Pool:
    """The nodes of one partition, and the promised jobs that wait for them."""

    nodes: NDArray[np.int64]
    free: NDArray[np.float64]
    waiting: Tasks
    ids: NDArray[np.int64]
    plan: Plan | None = None
    _prepared: Prepared | None = None

    def prepared(self, order: int, node_rule: int, efficiency: float) -> Prepared:
        if self._prepared is None:
            self._prepared = prepare(
                self.free, self.waiting, order, node_rule, efficiency=efficiency
            )
        return self._prepared

    def adopt(self, plan: Plan, new: Tasks | None, ids: NDArray[np.int64]) -> None:
        if new is not None:
            self.waiting = _joined(self.waiting, new)
            self._prepared = None
        self.ids, self.plan = ids, plan

    def see(self, free: NDArray[np.float64]) -> None:
        """Take in what other pools have planned on its nodes."""
        self.free, self._prepared = free, None

    def without(self, row: int) -> None:
        kept = np.delete(np.arange(len(self.ids)), row)
        self.waiting, self.ids, self._prepared = _rows(self.waiting, kept), self.ids[kept], None


@dataclass
class Ledger:
    """Promises given and the new jobs of one batch; grows as they are admitted.

    Attributes
    ----------
    snapshot : Snapshot
        The state that the batch is judged against.
    jobs : Jobs
        The new jobs.
    order, node_rule, efficiency
        See `rtsched_plugins.kernels.admission`.
    """

    snapshot: Snapshot
    jobs: Jobs
    order: int
    node_rule: int
    efficiency: float
    _pools: dict[int, _Pool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._now = self.snapshot.now
        self._new = tasks_of(self.jobs, self._now)
        self._masks: list[NDArray[np.bool_]] = [np.ones(len(self.snapshot.cluster), np.bool_)]
        self._planned = self.snapshot.planned
        self._pool_of_new = self._pool_index(self.jobs)
        self._pool_of_planned = self._pool_index(self._planned)

    def _pool_index(self, jobs: Jobs) -> NDArray[np.int64]:
        """Return for each job which set of nodes its partition is, as an index; 0: all nodes."""
        partitions = self.snapshot.cluster.partitions
        if not partitions:
            return np.zeros(len(jobs), np.int64)
        index = [0]  # the last place serves code -1, no partition
        for name in reversed(jobs.names("partition")):
            mask = partitions.get(name, self._masks[0])
            same = [k for k, other in enumerate(self._masks) if (other == mask).all()]
            if not same:
                self._masks.append(mask)
            index.insert(0, same[0] if same else len(self._masks) - 1)
        return np.array(index)[jobs.partition]

    def _pool(self, index: int) -> _Pool:
        """Return a pool; what other pools have planned on its nodes counts as busy until then."""
        if index not in self._pools:
            nodes, mine = np.flatnonzero(self._masks[index]), self._pool_of_planned == index
            planned = self._planned if mine.all() else self._planned.take(mine)
            tasks = tasks_of(planned, self._now)
            self._pools[index] = _Pool(nodes, self._free(index)[nodes], tasks, planned.id)
        return self._pools[index]

    def _free(self, index: int) -> NDArray[np.float64]:
        """Return when each node is free of running jobs and of all other pools' plans."""
        plan, free = self.snapshot.plan, self.snapshot.free_in.copy()
        anew = [other for other, pool in self._pools.items() if pool.plan is not None]
        old = ~np.isin(self._pool_of_planned, [index, *anew])
        for part in (plan.take(np.flatnonzero(old)), *self._parts(without=index)):
            ends = np.repeat(part.entries.end - self._now, np.diff(part.indptr))
            np.maximum.at(free, part.nodes, ends)
        return free

    def _parts(self, without: int = -1) -> list[Schedule]:
        """Return the plans of the pools that were planned anew, but for one."""
        return [
            _part(pool, pool.plan, self._now)
            for index, pool in self._pools.items()
            if pool.plan is not None and index != without
        ]

    def _adopt(self, index: int, plan: Plan, new: Tasks | None, ids: NDArray[np.int64]) -> None:
        """Let a pool have a new plan, and the others see it."""
        self._pools[index].adopt(plan, new, ids)
        for other, pool in self._pools.items():
            if other != index:
                pool.see(self._free(other)[pool.nodes])

    def admit(self, row: int) -> Refusal | None:
        """Admit the batch's job `row` and return None, or change nothing and say why not."""
        index = int(self._pool_of_new[row])
        pool = self._pool(index)
        prepared = pool.prepared(self.order, self.node_rule, self.efficiency)
        new = _rows(self._new, slice(row, row + 1))
        plan = admit(prepared, new)
        if plan.accepted:
            self._adopt(index, plan, new, np.append(pool.ids, self.jobs.id[row]))
            return None
        left = float(new.deadline[0])
        promises = len(pool.ids)
        tried = with_new(prepared, new).rows
        if least_size(tried, promises, tried.whole[promises, LOW], 0.0) == 0:
            return Refusal("impossible", {"left": left})
        if plan.failed < promises:
            other = float(pool.ids[plan.failed])
            return Refusal("breaks_promise", {"other": other, "promises": promises})
        free = int(np.count_nonzero(pool.free <= 0.0))
        numbers = {"promises": promises, "left": left, "free": free, "nodes": len(pool.free)}
        return Refusal("no_room", numbers)

    def offer(self, row: int, max_tests: int) -> float:
        """Return the least whole second at which the job's deadline would be accepted, or inf."""
        pool = self._pool(int(self._pool_of_new[row]))
        prepared = pool.prepared(self.order, self.node_rule, self.efficiency)
        new = _rows(self._new, slice(row, row + 1))
        base = -(self._now % 1.0)
        found = counter_offer(prepared, new, base=base, resolution=1.0, max_tests=max_tests)
        return float(np.round(found.deadline + self._now))

    def improve(self) -> bool:
        """Plan all promises anew; return whether that is better than the plan they have.

        It is if nodes of the old plan were lost, or if the jobs start earlier on the whole. Where
        lost nodes leave no plan for all, the promises that fail are left out one by one: their
        jobs become best effort.
        """
        old = self.snapshot.plan
        up = np.isfinite(self.snapshot.free_in)
        better = False
        for index in np.unique(self._pool_of_planned).tolist():
            pool = self._pool(index)
            mine = self._pool_of_planned == index
            lost = not up[old.nodes[np.repeat(mine, np.diff(old.indptr))]].all()
            plan = admit(pool.prepared(self.order, self.node_rule, self.efficiency))
            while lost and not plan.accepted:
                pool.without(plan.failed)
                plan = admit(pool.prepared(self.order, self.node_rule, self.efficiency))
            begun = float((old.entries.start[mine] - self._now).sum())
            if plan.accepted and (lost or float(plan.start.sum()) < begun):
                self._adopt(index, plan, None, pool.ids)
                better = True
        return better

    def schedule(self) -> Schedule:
        """Return the plan of all promises: new in the pools that changed, the old one elsewhere."""
        changed = [index for index, pool in self._pools.items() if pool.plan is not None]
        kept = np.flatnonzero(~np.isin(self._pool_of_planned, changed))
        return Schedule.joined([self.snapshot.plan.take(kept), *self._parts()])


def _part(pool: _Pool, plan: Plan, now: float) -> Schedule:
    """Return one pool's plan as a schedule of the cluster."""
    divided = bool((pool.waiting.kind == Kind.DIVISIBLE).any())
    return Schedule.build(
        pool.ids,
        plan.start + now,
        plan.end + now,
        plan.indptr,
        pool.nodes[plan.nodes].astype(np.int32),
        plan_fractions(plan.indptr, pool.waiting) if divided else None,
    )
