"""What is allocated to one job at a time, where nobody says it: by the log and its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rtsched.counting import counted
from rtsched.logs.hostlist import names_of
from rtsched.model.resources import GRES
from rtsched.replay.machine import by_node, cores_per_node, peak_use

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log, Outcomes

Unit = Literal["core", "node", "resources"]

_NEARLY_ALL = 0.99
_MOST_LISTS = 50_000
"""Different node lists that are looked into; with more, nodes count with the usual cores."""


def chosen_unit(log: Log, machine: Cluster | None, *, sharing: bool | None) -> tuple[Unit, str]:
    """Return the unit, and a sentence why; empty where there is nothing to choose from.

    Parameters
    ----------
    log : Log
        As read; sizes count processors.
    machine : Cluster or None
        As read, one row per processor.
    sharing : bool or None
        Whether the policies need nodes that jobs share by resources; False: they cannot have them.
    """
    if machine is None or not (machine.nodes.host >= 0).any():
        plain = machine is not None or log.format == "swf"
        return "core", "" if plain else _because("core", "no --cluster says what nodes have")
    if sharing:
        return "resources", _because("resources", "a policy places jobs by their resources")
    nodes = by_node(machine)
    generic = _asks_for(log.jobs, GRES)
    if (nodes.nodes.cores <= 1).all() and not generic.any():
        return "core", _because("core", "each node has one core")
    if len(np.unique(machine.nodes.name)) == len(machine) and not generic.any():
        return "core", _because("core", "each slot has one core")
    if machine.gives_whole_nodes:
        return "node", _because("node", "the cluster gives jobs whole nodes")
    ran = log.outcomes.size > 0
    ran = ran if ran.any() else log.jobs.size > 0
    whole = _whole_nodes(log, nodes)[ran]
    if len(whole) and whole.mean() >= _NEARLY_ALL:
        n = counted(int(whole.sum()), "job")
        return "node", _because("node", f"{n} of {len(whole):,} held whole nodes")
    part = f"{counted(int((~whole).sum()), 'job')} of {len(whole):,} held parts of nodes"
    if generic.any():
        part += f", and {int(generic.sum()):,} asked for GPUs or other generic resources"
    if sharing is False:
        part += "; a policy asked for cannot plan with `--unit resources`"
        return "core", _because("core", part)
    return "resources", _because("resources", part)


def _because(unit: Unit, why: str) -> str:
    return f"Unit: {unit}, as {why} (--unit)."


def _asks_for(jobs: Jobs, kind: str) -> NDArray[np.bool_]:
    """Return which jobs ask for a resource whose name begins so."""
    names = jobs.names("demand")
    if not names:
        return np.zeros(len(jobs), np.bool_)
    wanted = np.array([name.startswith(kind) for name in names], np.bool_)
    return np.asarray((jobs.demand[:, wanted] > 0).any(axis=1), np.bool_)


def _whole_nodes(log: Log, nodes: Cluster) -> NDArray[np.bool_]:
    """Return which jobs held all cores of their nodes, as far as the log tells."""
    jobs, outcomes = log.jobs, log.outcomes
    held = np.where(outcomes.size > 0, outcomes.size, jobs.size)
    usual = cores_per_node(nodes)
    width = np.where(jobs.node_count > 0, jobs.node_count, -(-np.maximum(held, 1) // usual))
    cores = width * usual
    lists = outcomes.names("nodes")
    if 0 < len(lists) <= _MOST_LISTS and len(np.unique(nodes.nodes.cores)) > 1:
        each = dict(zip(nodes.nodes.texts("name"), nodes.nodes.cores.tolist(), strict=True))
        known = np.array([*(_cores_of(text, each) for text in lists), 0])[outcomes.nodes]
        cores = np.where(known > 0, known, cores)
    return np.asarray(held >= cores, np.bool_)


def _cores_of(text: str, each: dict[str | None, int]) -> int:
    """Return the cores of the nodes in a list, or of a slot's host; 0 if one is not known."""
    found = [each.get(name.rpartition("@")[2], 0) for name in names_of(text)]
    return sum(found) if all(found) else 0


def overfull(jobs: Jobs, outcomes: Outcomes, machine: Cluster) -> str:
    """Return a sentence if the log's jobs held more processors than the machine has, else none.

    Parameters
    ----------
    jobs, outcomes : Jobs, Outcomes
        In the unit of the machine.
    machine : Cluster
    """
    held, room = np.maximum(outcomes.size, 0), int(machine.usable.sum())
    if machine.shared:
        held = held * np.maximum(-(-jobs.cores // np.maximum(jobs.size, 1)), 1)
        room = int(machine.nodes.cores[machine.usable].sum())
    known = np.isfinite(outcomes.start) & np.isfinite(outcomes.end) & (held > 0)
    if not known.any() or not room:
        return ""
    start, end = outcomes.start[known], outcomes.end[known]
    span = max(float(end.max() - start.min()), 1.0)
    use = float((held[known].astype(np.float64) * (end - start)).sum()) / (room * span)
    most = peak_use(outcomes, held.astype(np.int32))
    if most <= room:
        return ""
    what = "cores" if machine.shared else "nodes or cores"
    return (
        f"Log and machine do not fit: the log's jobs held up to {most:,} {what} at a time and "
        f"{use:.0%} on average of the {room:,} that are usable; check --cluster and --unit."
    ).replace("%", " %", 1)
