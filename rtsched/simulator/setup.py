"""Set-up of the exclusive machine: its arrays for one workload.

Limits of groups of jobs, preemption and the node sets that jobs are bound to (by a placement, their
partition or request, or one node) are laid out for the machine here; what came of them is read
back. So are run times of jobs on other numbers of nodes than they asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import machine as kernel
from rtsched.kernels.compiling import ABSENT
from rtsched.kernels.dlt import exec_time, fastest_count
from rtsched.kernels.machine_claims import CLAIM, OFFER, REQUEST, SUBMITTER
from rtsched.kernels.machine_gates import ARRAY, DEPENDENT, GATE
from rtsched.kernels.machine_limits import HELD, REMAINING, LimitCounts
from rtsched.kernels.machine_preemption import PreemptionRules
from rtsched.kernels.machine_sharing import lanes_for
from rtsched.kernels.room import empty_profile
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind, array_time
from rtsched.model.limits import JOBS, Limits
from rtsched.model.preemption import Preemption
from rtsched.model.resources import CPU, MEMORY, allowed_nodes
from rtsched.model.table import Ragged, offsets_of
from rtsched.model.verdicts import Finding, Reason
from rtsched.simulator.shared_nodes import no_placement, with_shared_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.machine import MachineState
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Placement
    from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
    from rtsched.simulator.settings import ExclusiveSettings

    Floats = NDArray[np.float64]


LOOPS = {
    "fcfs": kernel.FCFS,
    "easy": kernel.EASY,
    "conservative": kernel.CONSERVATIVE,
    "serial": kernel.SERIAL,
    "negotiator": kernel.NEGOTIATOR,
}


def lay_out(
    jobs: Jobs,
    run_time: NDArray[np.float64],
    cluster: Cluster,
    settings: ExclusiveSettings,
    stop_at: StopConditions,
    static: StaticAnswers,
    node_events: Sequence[NodeEvent],
    sets: NodeSets,
    origin: float,
    *,
    preempts: bool = False,
) -> kernel.MachineState:
    """Return the machine before its first instant; `preempts`: jobs will preempt others.

    Raises
    ------
    ShapeError
        If a node set names a node that does not exist, or a node event has a foreign load.
    """
    if any(not np.isnan(event.foreign_load) for event in node_events):
        raise ShapeError("nodes of machine 'exclusive' cannot have foreign load")
    group = sets.of_jobs(jobs, cluster)
    if static.placement is not None:
        placed = sets.of_placement(static.placement)
        group = np.where(placed >= 0, placed, group)
    extended = bool(
        settings.order != "arrival"
        or settings.loop == "negotiator"
        or len(sets)
        or len(node_events)
        or (len(jobs) and (jobs.begin > jobs.submit).any())
    )
    machine = _blank(
        len(jobs),
        len(cluster),
        extended=extended,
        conservative=settings.loop == "conservative",
        every_part=cluster.shared or preempts,
    )
    _fill_jobs(machine, jobs, run_time, settings, static)
    _resize(machine, jobs, run_time, settings, static, len(cluster))
    if extended:
        _fill_more(machine, jobs, settings, static, group, origin)
    _fill_nodes(machine, cluster)
    _fill_state(machine, settings, stop_at, extended)
    machine.state[0].node_level = bool(len(sets) or len(node_events) or not cluster.usable.all())
    group_of, group_nodes = sets.arrays()
    machine = machine._replace(
        group_of=group_of, group_nodes=group_nodes, node_events=_events(node_events, origin)
    )
    return (
        with_shared_nodes(machine, jobs, cluster, settings.placement) if cluster.shared else machine
    )


def _zeros(n: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return `n` records of a kind, at least one; memory is used as rows are touched."""
    return np.zeros(max(n, 1), kind)


def _blank(
    n: int, m: int, *, extended: bool, conservative: bool, every_part: bool
) -> kernel.MachineState:
    """Return a machine of `n` jobs and `m` nodes with nothing filled in.

    `every_part`: none is `ABSENT`, so that the loop is compiled once for shared nodes and for
    preemption.
    """
    words = -(-m // 32)
    counted = 2 * (n + m) + 8 if conservative else 1
    return kernel.MachineState(
        state=_zeros(1, kernel.STATE),
        jobs=np.zeros(n, kernel.JOB),
        more=_zeros(n if extended else 1, kernel.MORE),
        queue=_zeros(n + 1, kernel.SLOT),
        blocks=_zeros(n // 64 + 1, kernel.TIMED),
        nodes=_zeros(m, kernel.NODE),
        words=np.zeros(words, np.int64),
        top=np.zeros(-(-words // 32), np.int64),
        ends=_zeros(m + 1, kernel.TIMED),
        running=_zeros(m + 1, kernel.TIMED),
        sleepers=_zeros(n + 1, kernel.TIMED),
        again=np.zeros(n, np.int64),
        asked=np.zeros(n, np.int64),
        node_events=np.zeros(0, kernel.TIMED),
        events=np.zeros(0, kernel.EVENT),
        log_nodes=np.zeros(0, np.int32),
        log_at=np.zeros(0, np.int64),
        plan=np.zeros(0, kernel.PLANNED_START),
        plan_nodes=np.zeros(0, np.int32),
        span_of=np.zeros(m + 1, np.int64),
        spans=np.zeros(0, kernel.SPAN),
        awaited=np.zeros(0),
        group_of=np.zeros(1, np.int64),
        group_nodes=np.zeros(0, np.int32),
        profile=_zeros(counted, kernel.TIMED) if conservative or every_part else ABSENT,
        rows=np.zeros(n, np.int64),
        values=np.zeros(n, np.float64),
        picks=np.zeros(m, np.int64),
        latest_end=np.zeros(m + 1),
        sweep=ABSENT if conservative and not every_part else _zeros(2 * m, kernel.TIMED),
        gates=_zeros(1, GATE),
        dependent_of=np.zeros(1, np.int64),
        dependents=_zeros(1, DEPENDENT),
        arrays=_zeros(1, ARRAY),
        tasks=np.zeros(1, np.int64),
        opened=np.zeros(1, np.int64),
        dependent_rows=np.zeros(0, np.int64),
        requests=_zeros(1, REQUEST),
        claims=_zeros(1, CLAIM),
        offers=_zeros(1, OFFER),
        submitters=_zeros(1, SUBMITTER),
        demand=np.zeros((1, 0), np.int64),
        fitting=np.zeros(1, np.int32),
        held_at=np.zeros(1, np.int64),
        held=np.zeros(1, np.int32),
        room=np.zeros((1, 0), np.int64),
        later=np.zeros((1, 0), np.int64),
        tried=_zeros(1, kernel.TRIED),
        no_room=np.zeros(1, np.int64),
        lanes=lanes_for(np.zeros((1, 0), np.int64)),
        grown=np.zeros(1, np.int64),
        most=np.zeros(0, np.int64),
        candidates=np.zeros(1, np.int64),
        step_room=empty_profile(1, 1, 0) if every_part else ABSENT,
        placement=no_placement() if every_part else ABSENT,
        limits=no_limits(),
        preemption=no_preemption() if every_part else ABSENT,
    )


def _fill_jobs(
    machine: kernel.MachineState,
    jobs: Jobs,
    run_time: NDArray[np.float64],
    settings: ExclusiveSettings,
    static: StaticAnswers,
) -> None:
    table = machine.jobs
    table["submit"] = jobs.submit
    if len(jobs):
        table["submit"] -= jobs.submit[0]
    table["run"] = run_time
    table["wall"] = jobs.wall_time
    if (arrays := jobs.kind == Kind.ARRAY).any():
        table["wall"][arrays] = array_time(jobs, jobs.size)[arrays]
    table["width"] = jobs.size
    table["start"] = table["end"] = np.nan
    table["first"] = -1
    if static.reject is not None and settings.rejected == "leave":
        table["status"][static.reject] = kernel.REJECTED


def _resize(
    machine: kernel.MachineState,
    jobs: Jobs,
    run_time: NDArray[np.float64],
    settings: ExclusiveSettings,
    static: StaticAnswers,
    nodes: int,
) -> None:
    """Give jobs the sizes known before the run, or in a serial system the fastest ones."""
    size = None if static.placement is None else static.placement.size
    if settings.loop == "serial" and nodes > 0:
        best = fastest(jobs, nodes)
        size = best if size is None else np.where(size > 0, size, best)
    if size is not None and size.any():
        table = machine.jobs
        table["width"], table["run"], table["wall"] = scaled(jobs, run_time, size)


def _fill_more(
    machine: kernel.MachineState,
    jobs: Jobs,
    settings: ExclusiveSettings,
    static: StaticAnswers,
    group: NDArray[np.int32],
    origin: float,
) -> None:
    more = machine.more[: len(jobs)]
    more["begin"] = jobs.begin - origin
    more["group"] = group
    if settings.by_deadline:
        more["key"] = jobs.deadline
    elif settings.order == "priority" and static.priority is not None:
        more["key"] = -static.priority
    elif settings.order == "arrival" and settings.loop == "negotiator":
        more["key"] = jobs.nice


def _fill_nodes(machine: kernel.MachineState, cluster: Cluster) -> None:
    nodes, m = machine.nodes, len(cluster)
    nodes["row"] = nodes["next"] = -1
    nodes["window"] = np.inf
    nodes["state"] = NodeState.DOWN
    nodes["speed"][:m] = cluster.nodes.speed
    nodes["state"][:m] = cluster.nodes.state
    usable = np.flatnonzero(cluster.usable)
    np.bitwise_or.at(machine.words, usable >> 5, np.int64(1) << (usable & 31))
    filled = np.flatnonzero(machine.words)
    np.bitwise_or.at(machine.top, filled >> 5, np.int64(1) << (filled & 31))
    machine.state[0].free = len(usable)
    machine.state[0].uneven = bool((cluster.nodes.speed != 1.0).any())


def _fill_state(
    machine: kernel.MachineState,
    settings: ExclusiveSettings,
    stop_at: StopConditions,
    extended: bool,
) -> None:
    state = machine.state[0]
    state.loop = LOOPS[settings.loop]
    state.depth = settings.depth
    state.by_key = settings.order != "arrival" or settings.loop == "negotiator"
    state.extended = extended
    state.requeue = settings.requeue
    state.keeps_shadow = settings.loop != "negotiator"
    state.now = -np.inf
    state.next_reserved = np.inf
    state.pause_at = len(machine.jobs) + 1
    state.ask_arrivals, state.ask_passes = stop_at.arrivals, stop_at.passes
    state.ask_early, state.ask_nodes = stop_at.early_ends, stop_at.nodes


def _events(node_events: Sequence[NodeEvent], origin: float) -> NDArray[Any]:
    """Return node events, which are in order of time, those of one instant in the order given."""
    table = np.zeros(len(node_events), kernel.TIMED)
    for entry, event in zip(table, node_events, strict=True):
        entry["time"], entry["row"], entry["width"] = event.time - origin, event.node, event.state
    return table


OVER_JOBS = Reason(
    "site-limit.jobs", "its user, account or QOS may run {most:job} at once, and did"
)
OVER_CORES = Reason(
    "site-limit.cores",
    "it asks for {asked:core}, of which its user, account or QOS may hold {most} at once",
)
OVER_RESOURCE = Reason(
    "site-limit.resource",
    "it asks for {asked} of a resource, of which its user, account or QOS may hold {most} at once",
)
OVER_REMAINING = Reason(
    "site-limit.run-minutes",
    "it asks for {asked} minutes of a resource, of which running jobs of its user, account or QOS "
    "may have {most} left until their time limits",
)
OVER_USED = Reason(
    "site-limit.used-minutes",
    "it asks for {asked} minutes of a resource or of run time, of which its account or QOS may use "
    "{most} in all",
)


def no_limits() -> LimitCounts:
    """Return the counts of a machine without limits."""
    nothing = np.zeros(0, np.int64)
    limits = Limits(
        things=(),
        basis=nothing,
        asked=np.zeros((1, 0), np.int64),
        kind=np.zeros(1, np.int64),
        groups=Ragged(np.zeros(2, np.int64), nothing),
        most=np.zeros((1, 0)),
        half_life=np.full(1, np.inf),
        names=(),
    )
    return _counts(limits)


def with_limits(machine: MachineState, limits: Limits) -> MachineState:
    """Return the machine with limits; `limits` stand row by row with its jobs."""
    machine.state[0].limited = 1
    return machine._replace(limits=_counts(limits))


def _counts(limits: Limits) -> LimitCounts:
    """Return the counts of groups that hold nothing yet."""
    groups, things = len(limits.half_life), len(limits.things)
    units = [
        1.0 if basis == HELD else _minute(thing)
        for basis, thing in zip(limits.basis, limits.things, strict=True)
    ]
    return LimitCounts(
        asked=limits.asked.astype(np.float64),
        kind=limits.kind.copy(),
        group_of=limits.groups.offsets.copy(),
        group=limits.groups.values.astype(np.int64),
        basis=limits.basis.copy(),
        unit=np.array(units, np.float64),
        below=limits.most + np.array(units, np.float64),
        decay=np.log(2.0) / limits.half_life,
        held=np.zeros((groups, things)),
        remaining=np.zeros((groups, things)),
        used=np.zeros((groups, things)) if limits.used is None else limits.used.copy(),
        since=np.zeros(groups),
        recheck=np.full(1, np.inf),
        held_up_by=np.full(len(limits.kind), -1),
    )


def _minute(thing: str) -> float:
    """Return a minute of what Slurm counts, such as 60 core-seconds; memory is in MB."""
    return 60.0 * 2**20 if thing == MEMORY else 60.0


def held_up_by_limits(machine: MachineState, limits: Limits) -> tuple[Finding, ...]:
    """Return which jobs limits held up, with the limit that did so last."""
    rows = np.flatnonzero(machine.limits.held_up_by >= 0)
    at, thing = np.divmod(machine.limits.held_up_by[rows], len(limits.things))
    asked, most = limits.asked[rows, thing].astype(float), limits.most[at, thing].copy()
    name, basis = np.array(limits.things, object)[thing], limits.basis[thing]
    minutes = np.array([_minute(one) for one in limits.things])[thing]
    timed = basis != HELD
    asked[timed] *= (machine.jobs["wall"][rows] / minutes)[timed]
    most[timed] /= minutes[timed]
    is_known = {
        OVER_JOBS: ~timed & (name == JOBS),
        OVER_CORES: ~timed & (name == CPU),
        OVER_REMAINING: basis == REMAINING,
        OVER_USED: timed & (basis != REMAINING),
    }
    others = {OVER_RESOURCE: ~np.logical_or.reduce(list(is_known.values()))}
    return tuple(
        Finding(
            reason,
            rows[mask],
            {"most": most[mask]} | ({} if reason is OVER_JOBS else {"asked": asked[mask]}),
        )
        for reason, mask in (is_known | others).items()
        if mask.any()
    )


REQUEUED = Reason(
    "preemption.requeued",
    "{runs:of its runs was|of its runs were} ended by jobs that may preempt it, and it began again",
)
CANCELLED = Reason("preemption.cancelled", "a job that may preempt it did so, which cancelled it")


def no_preemption() -> PreemptionRules:
    """Return the rules of a machine on which nobody preempts."""
    nobody = Preemption(
        kind=np.zeros(1, np.int64),
        may=np.zeros((1, 1), np.bool_),
        cancels=np.zeros(1, np.bool_),
        rank=np.zeros(1),
        exempt=np.zeros(1),
    )
    return _rules(nobody, 1, 1, np.zeros((1, 0), np.int64))


def with_preemption(machine: MachineState, preemption: Preemption) -> MachineState:
    """Return the machine with preemption; the rules stand row by row with its jobs."""
    machine.state[0].preempting = 1
    nodes = len(machine.nodes)
    return machine._replace(
        preemption=_rules(preemption, len(machine.jobs), nodes, machine.room.copy())
    )


def _rules(preemption: Preemption, n: int, m: int, room: NDArray[np.int64]) -> PreemptionRules:
    k = len(preemption.rank)
    return PreemptionRules(
        kind=preemption.kind.astype(np.int64),
        may=preemption.may.copy(),
        preempts=np.asarray(preemption.may.any(axis=1), np.bool_),
        cancels=preemption.cancels.copy(),
        rank=preemption.rank.astype(np.float64),
        exempt=preemption.exempt.astype(np.float64),
        promised=np.zeros(n, np.bool_),
        until=np.full(1, np.inf),
        first=np.zeros(k, np.int64),
        place=np.zeros(k, np.int64),
        nodes=np.zeros(k, np.int64),
        gone=np.zeros(n, np.bool_),
        holds=np.zeros(n, np.int64),
        chosen=np.zeros(m, np.bool_),
        room=room,
        later=room.copy(),
        times=np.zeros(n, np.int32),
        lost=np.zeros(n),
    )


def preempted(machine: MachineState) -> tuple[Finding, ...]:
    """Return which jobs were preempted, and whether that cancelled them."""
    times = machine.preemption.times
    rows = np.flatnonzero(times)
    cancelled = machine.preemption.cancels[machine.preemption.kind[rows]]
    again = rows[~cancelled]
    found = (
        Finding(REQUEUED, again, {"runs": times[again].astype(np.float64)}),
        Finding(CANCELLED, rows[cancelled], {}),
    )
    return tuple(finding for finding in found if len(finding.rows))


def scaled(
    jobs: Jobs, run_time: Floats, size: NDArray[np.int32]
) -> tuple[NDArray[np.int32], Floats, Floats]:
    """Return size, run time and wall time of jobs that are given `size` nodes each.

    A rigid job or an array keeps its own size; a moldable one runs `run_time * jobs.size / size`; a
    divisible one E(n) by the divisible-load formula, where it is given another size than its own.
    """
    array = jobs.kind == Kind.ARRAY
    bends = (size > 0) & (jobs.kind != Kind.RIGID) & ~array
    given = np.where(bends, size, jobs.size).astype(np.int32)
    factor = jobs.size / np.maximum(given, 1)
    run, wall = run_time * factor, jobs.wall_time * factor
    if array.any():
        wall = np.where(array, array_time(jobs, given), wall)
    divided = (jobs.kind == Kind.DIVISIBLE) & np.isfinite(jobs.sigma) & (given != jobs.size)
    for row in np.flatnonzero(divided).tolist():
        run[row] = wall[row] = exec_time(int(given[row]), jobs.load(row))
    return given, run, wall


def fastest(jobs: Jobs, nodes: int) -> NDArray[np.int32]:
    """Return the size at which each divisible job ends soonest on a cluster, 0 for other jobs."""
    size = np.zeros(len(jobs), np.int32)
    for row in np.flatnonzero((jobs.kind == Kind.DIVISIBLE) & np.isfinite(jobs.sigma)).tolist():
        size[row] = fastest_count(nodes, jobs.load(row))
    return size


class NodeSets:
    """Distinct node sets and their codes. Equal sets share a code; the order of nodes counts."""

    def __init__(self, nodes: int) -> None:
        self._most = nodes
        self._codes: dict[bytes, int] = {}
        self._sets: list[NDArray[np.int32]] = []
        self._laid_out: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        return len(self._sets)

    def code(self, nodes: NDArray[np.int32]) -> int:
        """Return the code of a node set.

        Raises
        ------
        ShapeError
            If it names a node that the cluster does not have, or one twice.
        """
        nodes = np.ascontiguousarray(nodes, np.int32)
        key = nodes.tobytes()
        if key not in self._codes:
            inside = (nodes >= 0) & (nodes < self._most)
            if not inside.all() or len(np.unique(nodes)) != len(nodes):
                raise ShapeError("a node set names a node twice, or one that does not exist")
            self._laid_out = None
            self._codes[key] = len(self._sets)
            self._sets.append(nodes)
        return self._codes[key]

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and nodes of all sets, one after the other; not to be written to."""
        if self._laid_out is not None:
            return self._laid_out
        offsets = offsets_of([len(nodes) for nodes in self._sets])
        nodes = np.concatenate(self._sets) if self._sets else np.zeros(0, np.int32)
        self._laid_out = offsets, nodes
        return offsets, nodes

    def of_jobs(self, jobs: Jobs, cluster: Cluster) -> NDArray[np.int32]:
        """Return each job's node set by request, partition or pinned node, -1 where it has none."""
        code, masks = allowed_nodes(jobs, cluster)
        codes = [self.code(np.flatnonzero(mask).astype(np.int32)) for mask in masks]
        group = np.array([*codes, -1], np.int32)[code]
        pinned = jobs.pinned
        for node in np.unique(pinned[pinned >= 0]):
            group[pinned == node] = self.code(np.array([node], np.int32))
        return group

    def of_placement(self, placement: Placement) -> NDArray[np.int32]:
        """Return the code of each row's node set, -1 where it has none or an empty one."""
        codes = [self.code(nodes) if len(nodes) else -1 for nodes in placement.node_sets]
        return np.array([*codes, -1], np.int32)[placement.node_set]
