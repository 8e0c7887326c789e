"""The network as Slurm describes it: topology.conf, switches in a tree or blocks of nodes.

The tree becomes a hyper-grid: one axis per level of switches, the nodes of a leaf switch along the
last. Where switches have unequally many children, cells are left over. A tree too uneven for that
becomes a line in the order of the tree.

Source: manual page topology.conf.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import InputError
from rtsched.logs.slurm_cluster import conf_lines, expanded, pairs_of
from rtsched.model.cluster import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.logs.machine import Node

MOST_CELLS = 8
"""Cells per row of the cluster above which a grid is too empty to be of use."""

Place = tuple[int, ...]


def topology_places(path: str, text: str, said: list[str]) -> dict[str, Place]:
    """Return each node's place in the tree: which child at each level, from the root down.

    Parameters
    ----------
    path, text : str
        The topology.conf; a wrong line is named with its path.
    said : list of str
        Is given what had to be assumed.

    Raises
    ------
    InputError
        If a switch is below itself, or a list of names cannot be read.
    """
    leaves: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    for number, line in conf_lines(Path(path), text, said):
        pairs = pairs_of(line)
        name = pairs.get("switchname", pairs.get("blockname", ""))
        if not name:
            continue
        if "nodes" in pairs:
            leaves[name] = expanded(path, number, pairs["nodes"])
        if "switches" in pairs:
            children[name] = expanded(path, number, pairs["switches"])
    below = {child for names in children.values() for child in names}
    roots = [name for name in [*children, *leaves] if name not in below]
    places: dict[str, Place] = {}
    pending: list[tuple[str, Place]] = [(name, (k,)) for k, name in enumerate(dict.fromkeys(roots))]
    deepest = len(children) + len(leaves) + 1
    while pending:
        name, at = pending.pop()
        if len(at) > deepest:
            raise InputError(path, f"the switch {name} is below itself; put the tree right")
        for k, node in enumerate(leaves.get(name, ())):
            places[node] = (*at, k)
        pending += [(child, (*at, k)) for k, child in enumerate(children.get(name, ()))]
    if not places and (leaves or children):
        raise InputError(path, "no switch leads to a node, or every one is below another")
    return places


def topology_of(places: dict[str, Place], nodes: Sequence[Node], said: list[str]) -> Topology:
    """Return the grid of a cluster whose rows are the processors of `nodes`, in their order.

    Nodes that the tree does not know come last, as one more switch at the top.
    """
    depth = max(map(len, places.values()))
    top = 1 + max(place[0] for place in places.values())
    rows: list[Place] = []
    strangers = 0
    for node in nodes:
        place = places.get(node.name, (top, strangers))
        strangers += node.name not in places
        padded = (*place[:-1], *(0,) * (depth - len(place)), place[-1])
        rows += [(*padded, cpu) for cpu in range(node.cpus)]
    if strangers:
        said.append(f"nodes that topology.conf leaves out form their own switch ({strangers:,})")
    table = np.array(rows, np.int64)
    shape = tuple((table.max(0) + 1).tolist())
    if prod(shape) > MOST_CELLS * len(table):
        said.append("the tree of switches is too uneven for a grid; its nodes form a line")
        cell = np.empty(len(table), np.int64)
        cell[np.lexsort(table.T[::-1])] = np.arange(len(table))
        return Topology((len(table),), cell=cell)
    used = [axis for axis, side in enumerate(shape) if side > 1] or [len(shape) - 1]
    sides = tuple(shape[axis] for axis in used)
    return Topology(sides, cell=np.ravel_multi_index(tuple(table[:, used].T), sides))
