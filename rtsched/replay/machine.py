"""The machine that a log is replayed on, and who is charged with which share of it."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.model.accounts import Accounts
from rtsched.model.cluster import Cluster, Nodes, Topology
from rtsched.model.resources import CPU, MEMORY
from rtsched.replay.gathering import gathered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Outcomes

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
    nodes = gathered(cluster.nodes, None, without=("capacity",))
    return replace(cluster, nodes=nodes, licenses={})


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
    shared = gathered(whole.nodes, None, {"capacity": amounts}, {"capacity": resources})
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
    whole = gathered(nodes, rows, without=("capacity",))
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
    said = []
    for pattern, factor in speeds.items():
        if pattern.endswith("%"):
            wanted = round(m * float(pattern[:-1]) / 100)
            rows = np.flatnonzero(open_rows)[:wanted]
        else:
            rows = np.flatnonzero(open_rows & nodes_like(nodes, pattern))
        speed[rows], open_rows[rows] = factor, False
        said.append(f"Speed factor {factor:g}: {len(rows)} of {counted(m, 'node')} ({pattern}).")
    made = gathered(nodes, None, {"speed": speed})
    return replace(cluster, nodes=made), said


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
    said = []
    if not shares:
        said.append("All accounts have equal shares, and so have the users in each account.")
    if unused:
        said.append(f"Shares of names that are not in the log are not used: {', '.join(unused)}.")
    return table, row.astype(np.int32)[place], said


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
