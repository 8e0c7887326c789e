"""Set-up of the exclusive machine: its arrays for one workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import machine as kernel
from rtsched.kernels.compiling import ABSENT
from rtsched.kernels.machine_claims import CLAIM, OFFER, REQUEST, SUBMITTER
from rtsched.kernels.machine_gates import ARRAY, DEPENDENT, GATE
from rtsched.kernels.machine_sharing import lanes_for
from rtsched.kernels.room import empty_profile
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind, array_time
from rtsched.simulator.limits import no_limits
from rtsched.simulator.preemption import no_preemption
from rtsched.simulator.shared_nodes import no_placement, with_shared_nodes
from rtsched.simulator.sizes import fastest, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
    from rtsched.simulator.nodesets import NodeSets
    from rtsched.simulator.settings import ExclusiveSettings

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
