"""The nodes that jobs ask for, by features, names and partitions, as node sets of the machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.logs.node_requests import LeftOut, RequestedNodes
from rtsched.model.table import Ragged, offsets_of
from rtsched.replay.gathering import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.log import Log

    Mask = NDArray[np.bool_]


def with_node_requests(
    log: Log, machine: Cluster, size: NDArray[np.int32], notes: list[str]
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
    notes : list of str
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
    nodes = RequestedNodes(machine.nodes, machine.partitions)
    counts = Counter[str]()
    sets: dict[str, Mask] = {}
    code = np.full(len(jobs), -1, np.int32)
    code_of: dict[bytes, int] = {}
    partitions = (*jobs.names("partition"), "")
    for at, (request, partition, alone) in enumerate(kinds.tolist()):
        rows = alike.row(at)
        own = machine.partitions.get(partitions[partition])
        mask, left_out = nodes.meant(texts[request], own, single=bool(alone))
        counts.update({_SENTENCES[some]: len(rows) for some in left_out})
        enough = size[rows] <= (mask & machine.usable).sum()
        counts[_TOO_FEW] += int((~enough).sum())
        if enough.any() and (~mask if own is None else mask != own).any():
            key = np.packbits(mask).tobytes()
            code[rows[enough]] = code_of.setdefault(key, len(sets))
            if len(code_of) > len(sets):
                where = f" ({partitions[partition]})" if partition >= 0 else ""
                sets[f"{texts[request]}{where}{', one node' if alone else ''}"] = mask
    replayed = int((code >= 0).sum())
    if replayed:
        notes.append(
            f"{counted(replayed, 'job')} with a --constraint, --nodelist, --exclude or several "
            "partitions: they run on such nodes only (planners may ignore that)."
        )
    notes += [f"{counted(n, 'job')} {sentence}." for sentence, n in counts.items() if n]
    column, known = ({"node_request": code}, {"node_request": tuple(sets)}) if sets else ({}, {})
    jobs = gathered(jobs, None, column, known, without=("node_request",))
    return replace(log, jobs=jobs), replace(machine, node_sets=sets)


_TOO_FEW = "with a request for nodes that too few of the machine meet: it is not replayed"
_SENTENCES = {
    LeftOut.NO_FEATURES: (
        "with a --constraint, of a machine whose features are not known: it is not replayed"
    ),
    LeftOut.CONSTRAINT: (
        "with a --constraint that counts nodes or has brackets, or cannot be read: it is not "
        "replayed"
    ),
    LeftOut.NODE_LIST: (
        "with a --nodelist or --exclude that is no list of the machine's nodes: it is not replayed"
    ),
    LeftOut.PARTITIONS: (
        "of more than one node or processor, with several partitions: the one "
        "that the log ends with counts"
    ),
}
