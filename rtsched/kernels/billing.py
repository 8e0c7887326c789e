"""What a running job is charged for, in nodes."""

from __future__ import annotations

from rtsched.kernels.compiling import compiled


@compiled
def charged_nodes(size: float, asked: float, billed: float) -> float:
    """Return the nodes that a job is charged for while it holds `size` of them.

    Parameters
    ----------
    size, asked : float
        Nodes that it holds, and those that it asks for.
    billed : float
        `Jobs.billed`: what it is billed for on as many nodes as it asks for; nan: its nodes count.
    """
    if billed != billed:
        return float(size)
    return float(billed * (size / asked))
