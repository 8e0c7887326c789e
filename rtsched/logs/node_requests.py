"""Requests for nodes, by features, names, partitions and hardware.

A request is a text of options of sbatch, such as `--constraint=gpu&fast --exclude=n[1-3]`; the
partitions among them come last. It is also the name of its node set (`Cluster.node_sets`). What a
job wants of each of its nodes is written so too: `--mincpus=8 --gres=gpu:a:2`.

Source: manual page sbatch. Operators of a constraint apply from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.logs.hostlist import expand
from rtsched.logs.slurm_text import gres
from rtsched.model.table import read_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rtsched.model.cluster import Nodes

    Mask = NDArray[np.bool_]
    Integers = NDArray[np.int64]


_TOKEN = re.compile(r"\s*([&|()]|[^&|()\[\]*,\s]+)")


def nodes_with(text: str, having: Callable[[str], NDArray[np.bool_]]) -> NDArray[np.bool_] | None:
    """Return which nodes have what `gpu&(fast|slow)` asks for.

    Parameters
    ----------
    text : str
        The constraint.
    having : callable
        Returns which nodes have one feature, bool[m].

    Returns
    -------
    bool[m] or None
        None: it counts nodes (`a*2`), wants one of several features on all nodes (`[a|b]`), or
        cannot be read.
    """
    known: dict[str, NDArray[np.bool_]] = {}
    outside: list[tuple[NDArray[np.bool_] | None, str]] = []  # of open parentheses
    mask, operator, wants_term = None, "", True
    for word in _tokens(text):
        if word in {"&", "|"} and not wants_term:
            operator, wants_term = word, True
            continue
        if word == "(" and wants_term:
            outside.append((mask, operator))
            mask, operator = None, ""
            continue
        if word == ")" and outside and mask is not None and not wants_term:
            term = mask
            mask, operator = outside.pop()
        elif wants_term and word not in {"&", "|", ")", ""}:
            if word not in known:
                known[word] = having(word)
            term = known[word]
        else:
            return None
        mask = term if mask is None else mask & term if operator == "&" else mask | term
        wants_term = False
    return mask if not outside and not wants_term else None


def _tokens(text: str) -> Iterator[str]:
    """Yield operators, parentheses and features; an empty one where there is something else."""
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        yield match[1] if match is not None else ""
        at = match.end() if match is not None else end


MOST_KEPT = 1024
"""So many node sets are kept, once they were worked out."""


def most_named(text: str, nodes: int) -> int:
    """Return how many nodes a list may name where there are so many, and some of them twice."""
    return max(nodes, len(text))


class LeftOut(Enum):
    """What of a request does not count."""

    NO_FEATURES = "no node's features are known"
    CONSTRAINT = "it counts nodes, has brackets or cannot be read"
    NODE_LIST = "it is no list of nodes that are there"
    PARTITIONS = "a job of several nodes cannot be spread over partitions"


class NodesMeant(NamedTuple):
    """The nodes that a request means, bool[m], and what of it does not count."""

    mask: Mask
    left_out: tuple[LeftOut, ...] = ()


class RequestedNodes:
    """The nodes of a machine by what requests call them.

    Parameters
    ----------
    nodes : Nodes
        With `features`, and `host` or `name`.
    partitions : mapping of str to bool[m]
        Nodes of each partition.
    hardware : Hardware, optional
        What each has; None: not known, so that none has what a job wants of each of its nodes.
    """

    def __init__(
        self, nodes: Nodes, partitions: Mapping[str, Mask], hardware: Hardware | None = None
    ) -> None:
        self._nodes, self._partitions, self._hardware = nodes, partitions, hardware

    def meant(self, request: str, own: Mask | None, *, single: bool) -> NodesMeant:
        """Return the nodes of a request.

        Parameters
        ----------
        request : str
            Options of sbatch.
        own : bool[m] or None
            The nodes of its partition; None: all.
        single : bool
            Whether the job has one node, so that it cannot be spread over two partitions. (Nor
            can any job where one of them has all nodes of the others.)
        """
        mask = np.ones(len(self._nodes), np.bool_) if own is None else own
        left_out, wishes = [], {}
        for word in reversed(request.split(" --")):
            option, _, value = word.removeprefix("--").partition("=")
            if option == "partition":
                wanted = [self._partitions.get(name) for name in value.split(",")]
                known = [one for one in wanted if one is not None]
                either = np.logical_or.reduce(known) if known else mask
                if single or any((one == either).all() for one in known):
                    mask = either
                else:
                    left_out.append(LeftOut.PARTITIONS)
            elif option == "constraint":
                if len(self._features) < 2:
                    left_out.append(LeftOut.NO_FEATURES)
                elif (having := nodes_with(value, self._having)) is None:
                    left_out.append(LeftOut.CONSTRAINT)
                else:
                    mask = mask & having
            elif option in OPTIONS:
                wishes[option] = value
            elif (listed := self._listed(value)) is None:
                left_out.append(LeftOut.NODE_LIST)
            else:
                mask = mask & (listed if option == "nodelist" else ~listed)
        if wishes:
            hardware = self._hardware
            mask = mask & (hardware.having(wishes) if hardware is not None else np.False_)
        return NodesMeant(mask, tuple(left_out))

    @cached_property
    def _features(self) -> list[frozenset[str]]:
        texts = (*self._nodes.names("features"), None)
        return [frozenset((text or "").split(",")) for text in texts]

    @cached_property
    def _hosts(self) -> tuple[dict[str, int], NDArray[np.int32]]:
        column = "host" if self._nodes.names("host") else "name"
        codes = {name: code for code, name in enumerate(self._nodes.names(column))}
        return codes, self._nodes.column(column)

    def _having(self, feature: str) -> Mask:
        has = np.array([feature in some for some in self._features], np.bool_)
        return has[self._nodes.features]

    def _listed(self, text: str) -> Mask | None:
        code_of, host = self._hosts
        try:
            codes = [code_of[name] for name in expand(text, most_named(text, len(self._nodes)))]
        except (ValueError, KeyError):
            return None
        return np.isin(host, codes)


class NodeSets(Mapping[str, "Mask"]):
    """The node sets of a machine that runs, each worked out when it is first asked for.

    So jobs need bring nothing but the text of their request; where nodes or features change, there
    is another machine, with other sets. A request of which something does not count, as when nodes
    that it names are gone, allows no node. It names its partition, or that of a job of one node
    several.

    Parameters
    ----------
    nodes, partitions, hardware
        As of `RequestedNodes`.
    """

    def __init__(
        self, nodes: Nodes, partitions: Mapping[str, Mask], hardware: Hardware | None = None
    ) -> None:
        self._of = nodes, partitions, hardware
        self._requested = RequestedNodes(nodes, partitions, hardware)
        self._known: dict[str, Mask] = {}

    def __reduce__(
        self,
    ) -> tuple[type[NodeSets], tuple[Nodes, Mapping[str, Mask], Hardware | None]]:
        """Return how to make it again: what was worked out does not go to other processes."""
        return NodeSets, self._of

    def meant(self, request: str) -> NodesMeant:
        """Return the nodes of a request, and what of it does not count."""
        return self._requested.meant(request, None, single=True)

    def __eq__(self, other: object) -> bool:
        """Return whether they are those of the same nodes and partitions."""
        if not isinstance(other, NodeSets):
            return NotImplemented
        (nodes, mine, hardware), (others, theirs, others_hardware) = self._of, other._of
        same = nodes.equals(others) and mine.keys() == theirs.keys()
        same = same and hardware == others_hardware
        return same and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    def __getitem__(self, request: str) -> Mask:
        if request not in self._known:
            mask, left_out = self.meant(request)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[request] = read_only(mask & (not left_out))
        return self._known[request]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


MIB = 1 << 20

COUNTS = (
    "mincpus",
    "threads-per-core",
    "sockets-per-node",
    "cores-per-socket",
    "ntasks-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "tmp",
)
"""Options whose values are numbers; memory and disk in MiB."""

_MOST = 1 << 31
"""More of anything is not counted."""

OPTIONS = (*COUNTS, "gres")
"""Options that say what each node of a job must have."""


@dataclass(frozen=True, eq=False)
class Hardware:
    """What each of m nodes has.

    Attributes
    ----------
    cpus, threads : int64[m]
        Processors in all, and of each core.
    sockets : int64[m, s]
        Cores of each socket, the most first; 0: there is none.
    memory : int64[m]
        Bytes.
    disk : int64[m]
        MiB of local disk.
    gres : mapping of str to int64[m]
        By name, such as `gres/gpu:a`.
    """

    cpus: Integers
    threads: Integers
    sockets: Integers
    memory: Integers
    disk: Integers
    gres: Mapping[str, Integers]

    def __len__(self) -> int:
        return len(self.cpus)

    def __eq__(self, other: object) -> bool:
        """Return whether all nodes have the same."""
        if not isinstance(other, Hardware):
            return NotImplemented
        mine, theirs = self._columns(), other._columns()
        same = mine.keys() == theirs.keys()
        return same and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def _columns(self) -> dict[str, Integers]:
        own: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**own.pop("gres"), **own}

    def of(self, mask: Mask) -> Hardware:
        """Return that of some of the nodes, bool[m]."""
        some = {name: column[mask] for name, column in self.gres.items()}
        return Hardware(
            self.cpus[mask],
            self.threads[mask],
            self.sockets[mask],
            self.memory[mask],
            self.disk[mask],
            some,
        )

    @property
    def cores(self) -> Integers:
        """Cores of each node, int64[m]."""
        return self.cpus // np.maximum(self.threads, 1)

    @property
    def socket_count(self) -> Integers:
        """Sockets of each node, int64[m]."""
        count: Integers = np.count_nonzero(self.sockets, axis=1)
        return count

    def on_sockets(self, most: int) -> Integers:
        """Return how many processors each node has, at most so many of each socket, int64[m]."""
        processors: Integers = np.minimum(self.sockets * self.threads[:, None], most).sum(axis=1)
        return processors

    def usable(self, threads: int) -> Integers:
        """Return the processors of a job that uses so many of each core, int64[m]; 0: all."""
        return self.cores * np.minimum(self.threads, threads) if threads else self.cpus

    def amount(self, name: str) -> Integers:
        """Return how much of a generic resource each node has, int64[m]."""
        return self.gres.get(name, np.zeros(len(self), np.int64))

    def having(self, wishes: Mapping[str, str]) -> Mask:
        """Return which nodes have what a job wants of each, bool[m].

        Parameters
        ----------
        wishes : mapping of str to str
            Values of `OPTIONS`. None has what cannot be read.
        """
        given = {name: value for name, value in wishes.items() if name in COUNTS}
        if not all(
            value.isascii() and value.isdigit() and len(value) < 13 for value in given.values()
        ):
            return np.zeros(len(self), np.bool_)
        want = {name: min(int(given.get(name, 0)), _MOST) for name in COUNTS}
        tasks, threads = want["ntasks-per-node"], want["threads-per-core"]
        sockets, each = want["sockets-per-node"], want["cores-per-socket"]
        mask = np.ones(len(self), np.bool_)
        if want["mincpus"]:
            mask &= self.usable(threads) >= want["mincpus"]
        if threads:
            mask &= self.threads >= threads
        if sockets or each:
            mask &= np.count_nonzero(self.sockets >= max(each, 1), axis=1) >= max(sockets, 1)
        if want["mem"]:
            mask &= self.memory >= want["mem"] * MIB
        if want["mem-per-cpu"]:
            mask &= self.memory >= want["mem-per-cpu"] * MIB * self.cpus
        if want["mem-per-gpu"]:
            mask &= self.memory >= want["mem-per-gpu"] * MIB * self.amount("gres/gpu")
        if want["tmp"]:
            mask &= self.disk >= want["tmp"]
        if want["ntasks-per-core"]:
            mask &= self.cores * want["ntasks-per-core"] >= tasks
        if want["ntasks-per-socket"]:
            mask &= self.on_sockets(want["ntasks-per-socket"]) >= tasks
        for name, amount in gres(wishes.get("gres", "")).items():
            mask &= self.amount(name) >= amount
        return mask
