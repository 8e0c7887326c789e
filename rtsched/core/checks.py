"""Checks of plug-ins' answers. A wrong one is the plug-in's error, never the cycle's."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.core.plan_check import broken_order, broken_promise, plan_fault
from rtsched.errors import ShapeError
from rtsched.kernels.overlaps import first_overlap
from rtsched.model.snapshot import are_in, places
from rtsched.model.state import State
from rtsched.model.verdicts import DelayClasses, Placement, Terms, Verdict, Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.state import Events
    from rtsched.model.verdicts import Finding


def _of_kind(value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ShapeError(f"returned {type(value).__name__}, expected {kind.__name__} or None")


def _array(name: str, array: object, shape: tuple[int, ...], kinds: str) -> np.ndarray[Any, Any]:
    """Return `array` if it is a numpy array of this shape and of one of these dtype kinds."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
        raise ShapeError(f"{name} is {getattr(array, 'dtype', type(array).__name__)}")
    if array.shape != shape:
        raise ShapeError(f"{name} has shape {array.shape}, expected {shape}")
    return array


def _schedule(name: str, schedule: Schedule, snapshot: Snapshot) -> None:
    nodes = schedule.nodes
    if len(nodes) and (nodes.min() < 0 or nodes.max() >= len(snapshot.cluster)):
        raise ShapeError(f"{name} names a node that the cluster does not have")
    entries = schedule.entries
    if not (np.isfinite(entries.start) & np.isfinite(entries.end)).all():
        raise ShapeError(f"{name} has an entry without start or end")
    if len(schedule) and not (entries.start <= entries.end).all():
        raise ShapeError(f"{name} has an entry that ends before it starts")
    if (schedule.ragged.lengths < 1).any():
        raise ShapeError(f"{name} has an entry without nodes")
    if len(schedule.node_start):
        first, last = schedule.per_node(entries.start), schedule.per_node(entries.end)
        if not ((first <= schedule.node_start) & (schedule.node_start <= last)).all():
            raise ShapeError(f"{name} has a node that is taken before its entry starts, or after")
    job = np.sort(entries.job)
    if (job[1:] == job[:-1]).any():
        raise ShapeError(f"{name} has two entries of one job")


def _plan(plan: Schedule, jobs: Jobs, snapshot: Snapshot, promise: np.ndarray[Any, Any]) -> None:
    """Refuse a plan of jobs that do not wait, that breaks a promise, or that gives a node twice.

    All of it is looked at, since what stands already may be broken by what is new. It takes one
    pass in order of start with the time at which each node is free again: about 5 ns per node of
    each entry, so that nothing need be left out. Entries that stand in the present plan as they are
    need not fit around running jobs: if one of these stays longer, the plug-in has not planned it.
    Jobs of a pre-emptive plan take turns on their nodes. Where jobs share nodes, `plan_fault` looks
    at what is new in the plan.
    """
    _schedule("plan", plan, snapshot)
    entries = plan.entries
    place, kept = places(snapshot.plan.entries.job, entries.job)
    others = entries.job[~kept]
    others = others[~are_in(others, jobs.id)]
    if len(others):
        others = others[~are_in(others, snapshot.queued.id)]
    if len(others):
        raise ShapeError(f"plan names job {others[0]}, which does not wait")
    shared = snapshot.cluster.shared
    fault = (plan_fault if shared else broken_promise)(plan, jobs, snapshot, promise)
    if fault is not None:
        raise ShapeError(f"plan {fault}")
    if plan.preemptive or shared:
        return
    kept[kept] = snapshot.plan.entries.start[place[kept]] == entries.start[kept]
    running = snapshot.allocations
    clash = first_overlap(
        np.ascontiguousarray(entries.start),
        entries.end,
        plan.indptr,
        plan.nodes,
        np.argsort(entries.start),
        kept,
        running.entries.end,
        running.indptr,
        running.nodes,
        len(snapshot.cluster),
        plan.node_start,
    )
    if clash >= 0:
        raise ShapeError(f"plan gives job {entries.job[clash]} a node that is not free by then")


def _finding(finding: Finding, n: int) -> None:
    code, rows = finding.reason.code, finding.rows
    _array(f"rows of finding {code}", rows, (len(rows),), "iu")
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        raise ShapeError(f"finding {code} names a row that is not in the batch")
    for name, values in finding.numbers.items():
        _array(f"number {name!r} of finding {code}", values, (len(rows),), "fiub")
    if len(rows):
        try:
            finding.text(0)
        except (KeyError, IndexError, ValueError) as cause:
            raise ShapeError(f"{code} lacks a number that its text names: {cause}") from cause


def check_verdicts(value: Verdicts, jobs: Jobs, snapshot: Snapshot) -> None:
    """Refuse verdicts of the wrong length or range, and promises to jobs that are not admitted.

    In a plan every job must wait or be judged just now, and have its nodes to itself. Promises and
    plans of others than the planner are refused, too.
    """
    _of_kind(value, Verdicts)
    n = len(jobs)
    code = _array("code", value.code, (n,), "iu")
    if n and (code.min() < Verdict.ABSTAIN or code.max() > Verdict.REJECT):
        raise ShapeError("code contains a value that is not a Verdict")
    for name in ("retry_at", "promise", "offer"):
        if np.isnan(_array(name, getattr(value, name), (n,), "f")).any():
            raise ShapeError(f"{name} contains nan")
    if (np.isfinite(value.promise) & (code != Verdict.ADMIT)).any():
        raise ShapeError("a promise is given to a job that is not admitted")
    for finding in value.findings:
        _finding(finding, n)
    if value.plan is not None:
        _plan(value.plan, jobs, snapshot, value.promise)


def check_order(value: Verdicts, snapshot: Snapshot) -> None:
    """Refuse plans that start a job before those that it waits for are to end."""
    fault = None if value.plan is None else broken_order(value.plan, snapshot)
    if fault is not None:
        raise ShapeError(f"plan {fault}")


def check_no_promises(value: Verdicts) -> None:
    """Refuse promises and plans: only the planner's are kept."""
    if value.plan is not None or np.isfinite(value.promise).any():
        raise ShapeError("promises or plans, but is not the chain's planner")


def check_terms(value: Terms, jobs: Jobs, snapshot: Snapshot) -> None:
    """Refuse terms of the wrong length or outside [0, 1]."""
    _of_kind(value, Terms)
    rows = len(snapshot.accounts) if value.per_account else len(jobs)
    for name, term in value.values.items():
        array = _array(f"term {name!r}", term, (rows,), "f")
        if len(array) and not (array.min() >= 0.0 and array.max() <= 1.0):
            raise ShapeError(f"term {name!r} leaves [0, 1]")
    if (
        value.offset is not None
        and not np.isfinite(_array("offset", value.offset, (rows,), "f")).all()
    ):
        raise ShapeError("offset contains a value that is not a number")
    for name, weight in value.weights.items():
        if not isinstance(weight, (int, float)) or not np.isfinite(weight):
            raise ShapeError(f"weight {name!r} is {weight!r}, no finite number")
    if not value.values and value.offset is None:
        raise ShapeError("no terms; return None for no opinion")


def check_placement(value: Placement, jobs: Jobs, snapshot: Snapshot) -> None:
    """Refuse placements of the wrong length, on unknown nodes, or larger than their node set.

    A job that is given no size is as large as it asks to be; one with an empty set is to wait.
    """
    _of_kind(value, Placement)
    n = len(jobs)
    size = _array("size", value.size, (n,), "i")
    node_set = _array("node_set", value.node_set, (n,), "i")
    if n and (size.min() < 0 or node_set.min() < -1 or node_set.max() >= len(value.node_sets)):
        raise ShapeError("size or node_set is out of range")
    for nodes, shares in zip_longest(value.node_sets, value.fractions):
        _array("a node set", nodes, (len(nodes),), "i")
        if shares is not None:
            _array("fractions of a node set", shares, (len(nodes),), "f")
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= len(snapshot.cluster)):
            raise ShapeError("a node set names a node that the cluster does not have")
        if np.bincount(nodes).max(initial=0) > 1:
            raise ShapeError("a node set names a node twice or contains other values")
    within = np.append([len(nodes) for nodes in value.node_sets], np.iinfo(np.int32).max)
    if (size > within[node_set]).any():
        raise ShapeError("a size is larger than the node set it is to be taken from")
    starved = (size == 0) & (jobs.size > within[node_set]) & (within[node_set] > 0)
    if starved.any():
        row = int(np.argmax(starved))
        raise ShapeError(
            f"job {jobs.id[row]} is given no size and could never start: it asks for "
            f"{jobs.size[row]} nodes, its node set has {within[node_set[row]]}"
        )
    if value.moves is not None:
        _schedule("moves", value.moves, snapshot)


def check_classes(value: DelayClasses, jobs: Jobs, snapshot: Snapshot) -> None:
    """Refuse factors that are not one per node or not positive, and bounds out of order."""
    _of_kind(value, DelayClasses)
    nodes = len(snapshot.cluster)
    if not (_array("factor", value.factor, (nodes,), "f") > 0).all():
        raise ShapeError("factor contains a value that is not above zero")
    if not (np.diff(value.bounds) > 0).all():
        raise ShapeError("bounds do not ascend")
    if value.per_job is not None:
        _array("per_job", value.per_job, (len(jobs), nodes), "f")


def check_state(value: State, _events: Events, _snapshot: Snapshot) -> None:
    """Refuse what is not a `State`."""
    _of_kind(value, State)


CHECKS: Mapping[str, Callable[[Any, Any, Snapshot], None]] = {
    "delay_class": check_classes,
    "admit": check_verdicts,
    "fair_share": check_terms,
    "partition": check_placement,
    "observe": check_state,
}
"""The check of each hook's answer: `check(value, jobs or events asked about, snapshot)`."""
