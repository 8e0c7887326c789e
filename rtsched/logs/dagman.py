"""Which jobs of a DAG wait for which: the parents of each node, as DAGMan tells its jobs.

Source: HTCondor manual, "Job ClassAd Attributes": DAGManJobId, DAGNodeName, DAGParentNodeNames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.jobs import Edges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


def dag_edges(
    ids: Rows,
    dags: Rows,
    codes: Mapping[str, NDArray[np.int32]],
    texts: Mapping[str, Sequence[str]],
) -> tuple[Rows, Edges]:
    """Return the group of each job and the edges from the nodes that it waits for.

    Parameters
    ----------
    ids : int64[n]
        Keys of the jobs.
    dags : int64[n, 2]
        Schedd and DAG of each job.
    codes : mapping of str to int32[n]
        `dag_node`, the node of the DAG, and `parents`; -1: none.
    texts : mapping of str to sequence of str
        What the codes mean; parents are separated by commas.

    Returns
    -------
    int64[n], Edges
        Jobs of one node have a group in common, the id of the first of them; -1: no node of a DAG.
        The edges name these groups, or the job where it is alone in its group. Nodes that are not
        in the log are left out.
    """
    group = np.full(len(ids), -1, np.int64)
    rows = np.flatnonzero(codes["dag_node"] >= 0)
    if not len(rows):
        return group, Edges.build(0)
    keys = np.column_stack([dags[rows], codes["dag_node"][rows]])
    nodes, first, of, count = np.unique(
        keys, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    group[rows] = ids[rows[first]][of.ravel()]
    head, several = ids[rows[first]].tolist(), (count > 1).tolist()
    place = {node: at for at, node in enumerate(map(tuple, nodes.tolist()))}
    code_of = {name: code for code, name in enumerate(texts["dag_node"])}
    children = np.flatnonzero((codes["dag_node"] >= 0) & (codes["parents"] >= 0))
    table = []
    for row in children.tolist():
        schedd, dag = dags[row].tolist()
        for name in texts["parents"][codes["parents"][row]].split(","):
            at = place.get((schedd, dag, code_of.get(name.strip(), -1)))
            if at is not None and head[at] != group[row]:
                table.append((head[at], ids[row], several[at]))
    return group, Edges.of_rows(("before", "after", "whole_array"), table)
