"""The machine that a log is replayed on: its nodes and their outages, and who is charged for it."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import numpy as np

from rtsched.logs.hostlist import names_of
from rtsched.model.cluster import Cluster, Nodes, Topology
from rtsched.model.resources import CPU, GRES, MEMORY
from rtsched.model.snapshot import Accounts
from rtsched.simulator.interface import NodeEvent
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.sacctmgr import Outage
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log, Outcomes

_SMALL_TABLE = 1 << 22
"""Pairs of account and user up to which a table of all pairs is quicker than sorting."""


def peak_use(outcomes: Outcomes, size: NDArray[np.int32]) -> int:
    """Return the most units that jobs of the log held at once; ends come before starts.

    Parameters
    ----------
    outcomes : Outcomes
        What happened; jobs without start or end count as if they ran alone.
    size : int32[n]
        Units each job held.
    """
    known = np.isfinite(outcomes.start) & np.isfinite(outcomes.end)
    alone = int(size.max(initial=0))
    held = size[known].astype(np.int64)
    times = np.concatenate([outcomes.end[known], outcomes.start[known]])
    order = np.argsort(times, kind="stable")
    use = np.cumsum(np.concatenate([-held, held])[order])
    return max(int(use.max(initial=0)), alone)


def by_core(cluster: Cluster) -> Cluster:
    """Return the cluster with one row per core; rows of one node share its name and `host`.

    What a node has is divided among its cores. Links between nodes are left out: they would join
    cores of which the log does not say who uses them.
    """
    nodes = cluster.nodes
    cores = np.maximum(nodes.cores, 1)
    if (cores == 1).all():
        return _whole(cluster)
    rows = np.repeat(np.arange(len(nodes)), cores)
    shared = cores[rows]
    columns = {
        name: nodes.column(name)[rows]
        for name in Nodes.columns()
        if name not in {"cores", "capacity"} and nodes.column(name).strides != (0,)
    }
    columns["host"] = np.where(nodes.host >= 0, nodes.host, nodes.name)[rows]
    if "memory" in columns:
        memory = columns["memory"]
        columns["memory"] = np.where(memory >= 0, memory // shared, -1)
    if "foreign_load" in columns:
        columns["foreign_load"] = columns["foreign_load"] / shared
    names = {name: nodes.names(name) for name in ("name", "host", "features")}
    if not (nodes.host >= 0).any():
        names["host"] = names["name"]
    return Cluster(
        Nodes.build(len(rows), names=names, **columns),
        {name: mask[rows] for name, mask in cluster.partitions.items()},
        version=cluster.version,
    )


def _whole(cluster: Cluster) -> Cluster:
    """Return the cluster with rows that are given to one job at a time."""
    if not cluster.shared:
        return cluster
    return replace(cluster, nodes=cluster.nodes.replace(capacity=None), licenses={})


def by_resources(cluster: Cluster) -> Cluster:
    """Return the cluster with one row per node, which jobs share: with the capacity of each.

    A node of which no more is known has its cores, and its memory if that of all is known.
    """
    nodes = cluster.nodes
    whole = by_node(cluster)
    resources = nodes.names("capacity")
    if resources:
        amounts = nodes.capacity
        if len(whole) != len(nodes):
            group = _same_host(nodes)[1]
            amounts = np.zeros((len(whole), len(resources)), np.int64)
            np.add.at(amounts, group, nodes.capacity)
    else:
        known = bool((whole.nodes.memory > 0).all())
        resources = (CPU, MEMORY) if known else (CPU,)
        columns = [np.maximum(whole.nodes.cores, 1), whole.nodes.memory][: len(resources)]
        amounts = np.column_stack(columns).astype(np.int64)
    shared = whole.nodes.replace({"capacity": resources}, capacity=amounts)
    return replace(whole, nodes=shared, licenses=cluster.licenses)


def _same_host(nodes: Nodes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each host, in order, and of each row the place of its host."""
    _, first, row = np.unique(nodes.host, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[row.ravel()]


def by_node(cluster: Cluster) -> Cluster:
    """Return the cluster with one row per node: rows that share a `host` become one.

    Its cores and memory are the sums; everything else is the first row's.
    """
    nodes = cluster.nodes
    hosts = np.unique(nodes.host)
    if not len(hosts) or hosts[0] < 0 or len(hosts) == len(nodes):
        return _whole(cluster)
    rows, group = _same_host(nodes)
    whole = nodes.take(rows).replace(capacity=None)
    memory = np.bincount(group, np.maximum(nodes.memory, 0)).astype(np.int64)
    table = whole.replace(
        cores=np.bincount(group, nodes.cores).astype(np.int32),
        memory=np.where(whole.memory >= 0, memory, -1),
    ).replace_text("name", whole.host, nodes.names("host"))
    masks = {name: mask[rows] for name, mask in cluster.partitions.items()}
    topology = _of_whole_nodes(cluster.topology, rows, group)
    return Cluster(table, masks, topology, cluster.version)


def _of_whole_nodes(
    topology: Topology, rows: NDArray[np.int64], group: NDArray[np.int64]
) -> Topology:
    """Return the grid without its axis of processors; none where they do not lie along one.

    `rows` are the first rows of the nodes, `group` says which node each row belongs to.
    """
    if not topology.shape:
        return Topology()
    cell = topology.cell if len(topology.cell) else np.arange(len(group))
    if len(topology.shape) == 1:
        return Topology((len(rows),), cell=np.argsort(np.argsort(cell[rows])))
    line = cell // topology.shape[-1]
    apart = len(np.unique(line[rows])) == len(rows)
    if not apart or (line != line[rows][group]).any():
        return Topology()
    return Topology(topology.shape[:-1], cell=line[rows])


def cores_per_node(cluster: Cluster) -> int:
    """Return the number of cores that most nodes have."""
    if not len(cluster):
        return 1
    values, counts = np.unique(cluster.nodes.cores, return_counts=True)
    return max(int(values[np.argmax(counts)]), 1)


def with_speeds(cluster: Cluster, speeds: Mapping[str, float]) -> tuple[Cluster, list[str]]:
    """Return the cluster with speed factors, and what was assumed.

    Parameters
    ----------
    cluster : Cluster
        The machine.
    speeds : mapping of str to float
        Factor per pattern of node names (`fast[0-9]*`), or per share of the machine (`25%`: the
        first quarter of the rows that no earlier entry took). The first entry that fits counts.
    """
    if not speeds:
        return cluster, []
    nodes, m = cluster.nodes, len(cluster)
    speed, open_rows = nodes.speed.copy(), np.ones(m, np.bool_)
    notes = []
    for pattern, factor in speeds.items():
        if pattern.endswith("%"):
            wanted = round(m * float(pattern[:-1]) / 100)
            rows = np.flatnonzero(open_rows)[:wanted]
        else:
            rows = np.flatnonzero(open_rows & nodes_like(nodes, pattern))
        speed[rows], open_rows[rows] = factor, False
        notes.append(f"Speed factor {factor:g}: {len(rows)} of {counted(m, 'node')} ({pattern}).")
    return replace(cluster, nodes=nodes.replace(speed=speed)), notes


def nodes_like(nodes: Nodes, pattern: str) -> NDArray[np.bool_]:
    """Return which nodes have a name or host that fits; a node without a name is its row."""
    fits = np.zeros(len(nodes), np.bool_)
    for column in ("name", "host"):
        names = nodes.names(column)
        known = np.array([fnmatchcase(name, pattern) for name in names] + [False])
        fits |= known[nodes.column(column)]
    if not nodes.names("name"):
        fits |= np.array([fnmatchcase(str(row), pattern) for row in range(len(nodes))], np.bool_)
    return fits


def charge(
    jobs: Jobs, shares: Mapping[str, float]
) -> tuple[Accounts, NDArray[np.int32] | None, list[str]]:
    """Return the accounts of a log, the row each job is charged to, and what was assumed.

    Accounts stand at the top; below each one row per user who was charged to it. A user without
    an account stands at the top; a job without a user is charged to its account.

    Parameters
    ----------
    jobs : Jobs
        With `user` and `account`.
    shares : mapping of str to float
        Shares per `ACCOUNT`, per `ACCOUNT/USER` and per `*/USER` (of a user in any account or
        none); 1 where nothing is said.

    Returns
    -------
    Accounts, int32[n] or None, list of str
        None: no job has a user or an account.
    """
    accounts, users = jobs.names("account"), jobs.names("user")
    width = len(users) + 1
    key = (jobs.account.astype(np.int64) + 1) * width + (jobs.user + 1)
    if not key.any():
        return Accounts.build(0), None, []
    pairs, place = _distinct(key, (len(accounts) + 1) * width)
    account, user = pairs // width - 1, pairs % width - 1
    top = np.unique(account[account >= 0])
    row_of_account = np.full(len(accounts) + 1, -1)
    row_of_account[top] = np.arange(len(top))
    owned = user >= 0
    row = np.where(owned, len(top) + np.cumsum(owned) - 1, row_of_account[account])
    names = [accounts[code] for code in top] + [users[code] for code in user[owned]]
    above = [""] * len(top) + [accounts[a] if a >= 0 else "" for a in account[owned]]
    is_user = np.arange(len(names)) >= len(top)
    given, unused = _shares(names, above, is_user, shares)
    table = Accounts.build(
        len(names),
        name=names,
        parent=np.concatenate([np.full(len(top), -1), row_of_account[account[owned]]]),
        shares=given,
        is_user=is_user,
    )
    notes = []
    if not shares:
        notes.append("All accounts have equal shares, and so have the users in each account.")
    if unused:
        notes.append(f"Shares of names that are not in the log are not used: {', '.join(unused)}.")
    return table, row.astype(np.int32)[place], notes


def _distinct(key: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct keys, ascending, and the place of each key among them."""
    if most > max(_SMALL_TABLE, len(key)):
        pairs, place = np.unique(key, return_inverse=True)
        return pairs, place
    occurs = np.zeros(most, np.bool_)
    occurs[key] = True
    pairs = np.flatnonzero(occurs)
    rank = np.zeros(most, np.int64)
    rank[pairs] = np.arange(len(pairs))
    return pairs, rank[key]


def _shares(
    names: list[str], above: list[str], is_user: NDArray[np.bool_], shares: Mapping[str, float]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return the shares of each row, and the entries that fit none."""
    given, used = np.ones(len(names)), set()
    for row, (name, account) in enumerate(zip(names, above, strict=True)):
        for entry in (f"{account}/{name}", f"*/{name}") if is_user[row] else (name,):
            if entry in shares:
                given[row] = shares[entry]
                used.add(entry)
                break
    return given, [entry for entry in shares if entry not in used]


def node_events(
    outages: Sequence[Outage], cluster: Cluster, first: float, notes: list[str]
) -> tuple[NodeEvent, ...]:
    """Return the changes of nodes' states that outages mean, in order of time.

    Where outages of a node overlap the worst state counts. A node that is out of service in the
    description of the machine stays so.

    Parameters
    ----------
    outages : sequence of Outage
        In any order.
    cluster : Cluster
        The machine; a node may be several rows.
    first : float
        Seconds since the epoch of the first submission: what is over before changes nothing.
    notes : list of str
        Grows by what is replayed, and what is not.
    """
    if not outages:
        return ()
    rows: dict[str, list[int]] = {}
    pairs = zip(cluster.nodes.texts("name"), cluster.usable.tolist(), strict=True)
    for row, (name, usable) in enumerate(pairs):
        of_name = rows.setdefault(name or "", [])
        of_name += [row] if usable else []
    meant = [one for one in outages if one.node in rows and one.end > first]
    foreign = sum(one.node not in rows for one in outages)
    of_node: dict[str, list[Outage]] = {}
    for one in meant:
        of_node.setdefault(one.node, []).append(one)
    events = [
        NodeEvent(max(time, first), row, state)
        for name, some in of_node.items()
        for time, state in _changes(some)
        for row in rows[name]
    ]
    notes.append(
        f"Outages replayed: {len(meant)}, of {counted(len(of_node), 'node')}. A job on a node that "
        "goes down is requeued, or lost where `requeue` is off; a drained node ends what it runs."
    )
    if foreign:
        notes.append(f"Outages left out, of nodes that the machine does not have: {foreign}.")
    return tuple(sorted(events, key=lambda event: event.time))


def _changes(outages: Sequence[Outage]) -> list[tuple[float, int]]:
    """Return when a node changes its state, and to which."""
    times = sorted({time for one in outages for time in (one.start, one.end) if np.isfinite(time)})
    found: list[tuple[float, int]] = []
    for time in times:
        states = [int(one.state) for one in outages if one.start <= time < one.end]
        state = max(states, default=0)
        if state != (found[-1][1] if found else 0):
            found.append((time, state))
    return found


Unit = Literal["core", "node", "resources"]

_NEARLY_ALL = 0.99
_MOST_LISTS = 50_000
"""Different node lists that are looked into; with more, nodes count with the usual cores, and are
not looked for in the machine."""


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
    found = [each.get(_host(name), 0) for name in names_of(text)]
    return sum(found) if all(found) else 0


def strange_nodes(outcomes: Outcomes, machine: Cluster) -> str:
    """Return a sentence if the log's jobs ran on nodes that a machine with names has not."""
    names = {name for column in ("name", "host") for name in machine.nodes.names(column)}
    known = names | set(map(_host, names))
    lists = outcomes.names("nodes")
    if not known or not 0 < len(lists) <= _MOST_LISTS:
        return ""
    strange = [
        next((name for name in sorted({*held} - known) if _host(name) not in known), "")
        for held in map(names_of, lists)
    ]
    jobs = np.array([*map(bool, strange), False])[outcomes.nodes]
    if not jobs.any():
        return ""
    number, first = np.count_nonzero(jobs), strange[outcomes.nodes[np.argmax(jobs)]]
    return (
        f"Log and machine do not fit: {number:,} of {counted(len(jobs), 'job')} ran on nodes that "
        f"the machine does not have, such as {first}; check --cluster."
    )


def _host(name: str) -> str:
    """Return the host of a node or slot."""
    return name.rpartition("@")[2]


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
