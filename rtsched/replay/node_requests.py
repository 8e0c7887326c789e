"""The nodes that jobs ask for, by features, names and partitions, as node sets of the machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.logs.hostlist import expand
from rtsched.logs.slurm_features import nodes_with
from rtsched.model.ragged import Ragged, offsets_of
from rtsched.replay.gathering import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.log import Log

    Mask = NDArray[np.bool_]


def with_node_requests(
    log: Log, machine: Cluster, size: NDArray[np.int32], said: list[str]
) -> tuple[Log, Cluster]:
    """Return the log with the requests that are replayed, and the machine with their node sets.

    Parameters
    ----------
    log : Log
        As read, in the machine's unit; each `node_request` holds options of sbatch.
    machine : Cluster
        With the features of its nodes.
    size : int32[n]
        Units that each job has.
    said : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    jobs = log.jobs
    texts = jobs.names("node_request")
    asking = np.flatnonzero(jobs.node_request >= 0)
    if not len(asking):
        return log, machine
    single = size == 1
    keys = [column[asking] for column in (jobs.node_request, jobs.partition, single)]
    kinds, of = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    alike = Ragged(offsets_of(np.bincount(of.ravel())), asking[np.argsort(of.ravel())])
    nodes = _Nodes(machine)
    told = Counter[str]()
    sets: dict[str, Mask] = {}
    code = np.full(len(jobs), -1, np.int32)
    code_of: dict[bytes, int] = {}
    partitions = (*jobs.names("partition"), "")
    for at, (request, partition, alone) in enumerate(kinds.tolist()):
        rows = alike.row(at)
        own = machine.partitions.get(partitions[partition])
        mask, left_out = nodes.meant(texts[request], own, single=bool(alone))
        told.update(dict.fromkeys(left_out, len(rows)))
        enough = size[rows] <= (mask & machine.usable).sum()
        told[_TOO_FEW] += int((~enough).sum())
        if enough.any() and (~mask if own is None else mask != own).any():
            key = np.packbits(mask).tobytes()
            code[rows[enough]] = code_of.setdefault(key, len(sets))
            if len(code_of) > len(sets):
                where = f" ({partitions[partition]})" if partition >= 0 else ""
                sets[f"{texts[request]}{where}{', one node' if alone else ''}"] = mask
    replayed = int((code >= 0).sum())
    if replayed:
        said.append(
            f"{counted(replayed, 'job')} with a --constraint, --nodelist, --exclude or several "
            "partitions: they run on such nodes only (planners may ignore that)."
        )
    said += [f"{counted(n, 'job')} {sentence}." for sentence, n in told.items() if n]
    column, known = ({"node_request": code}, {"node_request": tuple(sets)}) if sets else ({}, {})
    jobs = gathered(jobs, None, column, known, without=("node_request",))
    return replace(log, jobs=jobs), replace(machine, node_sets=sets)


_TOO_FEW = "with a request for nodes that too few of the machine meet: it is not replayed"
_NO_FEATURES = "with a --constraint, of a machine whose features are not known: it is not replayed"
_ODD = (
    "with a --constraint that counts nodes or has brackets, or cannot be read: it is not replayed"
)
_LIST = "with a --nodelist or --exclude that is no list of the machine's nodes: it is not replayed"
_WIDE = (
    "of more than one node or processor, with several partitions: the one that the log ends with "
    "counts"
)


class _Nodes:
    """The nodes of a machine by what requests call them."""

    def __init__(self, machine: Cluster) -> None:
        self._partitions = machine.partitions
        self._size = len(machine)
        table = machine.nodes
        self._features = [
            frozenset((text or "").split(",")) for text in (*table.names("features"), None)
        ]
        self._code = table.features
        column = "host" if table.names("host") else "name"
        self._hosts = {name: code for code, name in enumerate(table.names(column))}
        self._host = table.column(column)

    def meant(
        self, request: str, own: Mask | None, *, single: bool
    ) -> tuple[Mask, tuple[str, ...]]:
        """Return the nodes of a request, and what of it is left out.

        Parameters
        ----------
        request : str
            Options of sbatch.
        own : bool[m] or None
            The nodes of the partition that the log ends with; None: all.
        single : bool
            Whether the job has one node, so that it cannot be spread over two partitions. (Nor
            can any job where one of them has all nodes of the others.)
        """
        mask = np.ones(self._size, np.bool_) if own is None else own
        left_out = []
        for word in reversed(request.split(" --")):
            option, _, value = word.removeprefix("--").partition("=")
            if option == "partition":
                wanted = [self._partitions.get(name) for name in value.split(",")]
                known = [one for one in wanted if one is not None]
                either = np.logical_or.reduce(known) if known else mask
                if single or any((one == either).all() for one in known):
                    mask = either
                else:
                    left_out.append(_WIDE)
            elif option == "constraint":
                if not self._known:
                    left_out.append(_NO_FEATURES)
                elif (having := nodes_with(value, self._having)) is None:
                    left_out.append(_ODD)
                else:
                    mask = mask & having
            elif (listed := self._listed(value)) is None:
                left_out.append(_LIST)
            else:
                mask = mask & (listed if option == "nodelist" else ~listed)
        return mask, tuple(left_out)

    @property
    def _known(self) -> bool:
        return len(self._features) > 1

    def _having(self, feature: str) -> Mask:
        has = np.array([feature in some for some in self._features], np.bool_)
        return has[self._code]

    def _listed(self, text: str) -> Mask | None:
        try:
            codes = [self._hosts[name] for name in expand(text)]
        except (ValueError, KeyError):
            return None
        return np.isin(self._host, codes)
