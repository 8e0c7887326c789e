"""The machine: its nodes, who may use them, and how they are wired."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.table import Amounts, Column, Table, Text, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.model.limits import BillingWeights


class NodeState(IntEnum):
    """Whether a node takes jobs."""

    UP = 0
    DRAINED = 1
    """Takes no new job; what runs there goes on."""
    DOWN = 2
    """Dead: what ran there is lost."""


class Nodes(Table):
    """One row per unit that is given to one job at a time: a node, a slot or a processor."""

    name = Text("The batch system's name of the node or slot.")
    host = Text("The computer it belongs to, where several rows share one.")
    features = Text("Its features, separated by commas; missing: none, or not known.")
    cores = Column(np.int32, 1, "Cores of this row.")
    memory = Column(np.int64, -1, "Memory, bytes; -1: unknown.")
    capacity = Amounts("What it has of each resource, where jobs share nodes.")
    speed = Column(np.float64, 1.0, "Relative speed (SED: α = max/own); run time is 1/speed.")
    foreign_load = Column(np.float64, 0.0, "Runnable processes that no job of ours owns.")
    state = Column(np.int8, NodeState.UP, "A `NodeState`.")
    cms = Column(np.float64, np.nan, "Seconds to send one unit of load to it; nan: the job's own.")
    cps = Column(np.float64, np.nan, "Seconds to compute one unit on it; nan: the job's own.")
    setup_link = Column(np.float64, np.nan, "Seconds to set up a transmission; nan: the job's own.")
    setup_node = Column(np.float64, np.nan, "Seconds to set up a computation; nan: the job's own.")


@dataclass(frozen=True)
class Topology:
    """How nodes are linked: a hyper-grid, a graph, or both.

    Attributes
    ----------
    shape : tuple of int
        Sides of the hyper-grid, axis 0 highest; () if there is none.
    cell : int64[n]
        Each node's cell of the hyper-grid, counted row-major; empty where node i is in cell i.
        Cells without a node are virtual.
    link : int32[m, 2]
        Node rows at both ends of each link.
    bandwidth : float64[m]
        Bytes per second of each link; 0 where a link is missing.
    """

    shape: tuple[int, ...] = ()
    link: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 2), np.int32))
    bandwidth: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    cell: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        if self.link.shape != (len(self.bandwidth), 2):
            raise ShapeError(f"{len(self.bandwidth)} bandwidths for links {self.link.shape}")
        if self.shape and len(self.cell):
            inside = (self.cell >= 0) & (self.cell < math.prod(self.shape))
            if not inside.all() or len(np.unique(self.cell)) != len(self.cell):
                raise ShapeError("a node has no cell of its own on the hyper-grid")
        for name in ("link", "bandwidth", "cell"):
            object.__setattr__(self, name, read_only(getattr(self, name)))


@dataclass(frozen=True)
class Cluster:
    """All nodes, the partitions over them, and the topology.

    Attributes
    ----------
    nodes : Nodes
        One row per allocatable unit.
    partitions : mapping of str to bool[n]
        Which nodes each partition may use. A partition that is not listed may use all.
    topology : Topology
        Links and hyper-grid.
    licenses : mapping of str to int
        How many there are of each licence, which any job may take wherever it runs, by the name of
        the resource, such as `license/matlab`.
    billing : BillingWeights or None
        What jobs are billed for; None: not known.
    node_sets : mapping of str to bool[n]
        Which nodes a `Jobs.node_request` means; a job with one that is listed uses no others,
        whatever its partition. Other mappings than dict are kept as they are: they may work out
        sets when they are asked for.
    version : int
        Grows with every change of the nodes.
    gives_whole_nodes : bool
        Whether the batch system gives every job whole nodes (select/linear, or
        OverSubscribe=EXCLUSIVE of all partitions), as far as the description tells.
    by_clock : bool
        A requested time counts by the clock on every node, as batch systems that run count it; else
        it is that on nodes of speed 1, as in a replay.
    """

    nodes: Nodes
    partitions: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    topology: Topology = field(default_factory=Topology)
    version: int = 0
    by_clock: bool = False
    licenses: Mapping[str, int] = field(default_factory=dict)
    billing: BillingWeights | None = None
    node_sets: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    gives_whole_nodes: bool = False

    def __post_init__(self) -> None:
        for kind, sets in (("partition", self.partitions), ("node set", self.node_sets)):
            for name, mask in sets.items():
                if mask.shape != (len(self.nodes),):
                    raise ShapeError(f"{kind} {name!r} covers {mask.shape}, not every node")
        cells = len(self.topology.cell) or math.prod(self.topology.shape or (len(self.nodes),))
        if cells != len(self.nodes):
            raise ShapeError(f"a hyper-grid with cells for {cells} of {len(self.nodes)} nodes")
        for column in ("partitions", "node_sets"):
            sets = getattr(self, column)
            if isinstance(sets, dict):
                read = {name: read_only(mask) for name, mask in sets.items()}
                object.__setattr__(self, column, read)

    @classmethod
    def uniform(cls, n: int) -> Cluster:
        """Return `n` equal nodes."""
        return cls(Nodes.build(n))

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def pace(self) -> NDArray[np.float64]:
        """By what a requested time is divided on each node, float64[m]."""
        return np.ones(len(self)) if self.by_clock else self.nodes.speed

    @property
    def shared(self) -> bool:
        """Whether jobs share nodes: each takes its demand of their capacity."""
        return len(self.nodes.names("capacity")) > 0

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which nodes take new jobs."""
        return np.equal(self.nodes.state, NodeState.UP)
