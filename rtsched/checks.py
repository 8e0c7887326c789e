"""What an answer must look like. A wrong one is the plug-in's error, never the cycle's."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.state import State
from rtsched.model.verdicts import DelayClasses, Placement, Terms, Verdict, Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.model.schedule import Schedule
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.verdicts import Finding


def _of_kind(value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ShapeError(f"answered {type(value).__name__}, expected {kind.__name__} or None")


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
    if (np.diff(schedule.indptr) < 1).any():
        raise ShapeError(f"{name} has an entry without nodes")
    if len(np.unique(entries.job)) != len(schedule):
        raise ShapeError(f"{name} has two entries of one job")


def _finding(finding: Finding, n: int) -> None:
    code, rows = finding.reason.code, finding.rows
    _array(f"rows of finding {code}", rows, (len(rows),), "iu")
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        raise ShapeError(f"finding {code} names a row that was not asked about")
    for name, values in finding.numbers.items():
        _array(f"number {name!r} of finding {code}", values, (len(rows),), "fiub")
    if len(rows):
        try:
            finding.text(0)
        except (KeyError, IndexError, ValueError) as cause:
            raise ShapeError(f"{code} lacks a number that its text names: {cause}") from cause


def check_verdicts(value: Verdicts, n: int, snapshot: Snapshot) -> None:
    """Refuse verdicts of the wrong length or range, and promises to jobs that are not admitted."""
    _of_kind(value, Verdicts)
    code = _array("code", value.code, (n,), "iu")
    if n and (code.min() < Verdict.ABSTAIN or code.max() > Verdict.REJECT):
        raise ShapeError("code holds something that is no Verdict")
    for name in ("retry_at", "promise", "offer"):
        if np.isnan(_array(name, getattr(value, name), (n,), "f")).any():
            raise ShapeError(f"{name} holds nan")
    if (np.isfinite(value.promise) & (code != Verdict.ADMIT)).any():
        raise ShapeError("a promise is made to a job that is not admitted")
    for finding in value.findings:
        _finding(finding, n)
    if value.plan is not None:
        _schedule("plan", value.plan, snapshot)


def check_terms(value: Terms, n: int, snapshot: Snapshot) -> None:
    """Refuse terms of the wrong length or outside [0, 1]."""
    _of_kind(value, Terms)
    rows = len(snapshot.accounts) if value.per_account else n
    for name, term in value.values.items():
        array = _array(f"term {name!r}", term, (rows,), "f")
        if len(array) and not (array.min() >= 0.0 and array.max() <= 1.0):
            raise ShapeError(f"term {name!r} leaves [0, 1]")
    if (
        value.offset is not None
        and not np.isfinite(_array("offset", value.offset, (rows,), "f")).all()
    ):
        raise ShapeError("offset holds something that is no number")
    for name, weight in value.weights.items():
        if not isinstance(weight, (int, float)) or not np.isfinite(weight):
            raise ShapeError(f"weight {name!r} is {weight!r}, no finite number")
    if not value.values and value.offset is None:
        raise ShapeError("no terms; answer None for no opinion")


def check_placement(value: Placement, n: int, snapshot: Snapshot) -> None:
    """Refuse placements of the wrong length, on unknown nodes, or larger than their node set."""
    _of_kind(value, Placement)
    size = _array("size", value.size, (n,), "i")
    node_set = _array("node_set", value.node_set, (n,), "i")
    if n and (size.min() < 0 or node_set.min() < -1 or node_set.max() >= len(value.node_sets)):
        raise ShapeError("size or node_set is out of range")
    for nodes, shares in zip_longest(value.node_sets, value.fractions):
        _array("a node set", nodes, (len(nodes),), "i")
        if shares is not None:
            _array("fractions of a node set", shares, (len(nodes),), "f")
        if nodes.dtype.kind != "i" or len(np.unique(nodes)) != len(nodes):
            raise ShapeError("a node set names a node twice or holds something else")
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= len(snapshot.cluster)):
            raise ShapeError("a node set names a node that the cluster does not have")
    within = np.append([len(nodes) for nodes in value.node_sets], np.iinfo(np.int32).max)
    if (size > within[node_set]).any():
        raise ShapeError("a size is larger than the node set it is to be taken from")
    if value.moves is not None:
        _schedule("moves", value.moves, snapshot)


def check_classes(value: DelayClasses, n: int, snapshot: Snapshot) -> None:
    """Refuse factors that are not one per node or not positive, and bounds out of order."""
    _of_kind(value, DelayClasses)
    nodes = len(snapshot.cluster)
    if not (_array("factor", value.factor, (nodes,), "f") > 0).all():
        raise ShapeError("factor holds something that is not above zero")
    if not (np.diff(value.bounds) > 0).all():
        raise ShapeError("bounds do not ascend")
    if value.per_job is not None:
        _array("per_job", value.per_job, (n, nodes), "f")


def check_state(value: State, _n: int, _snapshot: Snapshot) -> None:
    """Refuse what is not a `State`."""
    _of_kind(value, State)


CHECKS: Mapping[str, Callable[[Any, int, Snapshot], None]] = {
    "delay_class": check_classes,
    "admit": check_verdicts,
    "fair_share": check_terms,
    "partition": check_placement,
    "observe": check_state,
}
"""The check of each hook's answer: `check(value, rows asked about, snapshot)`."""
