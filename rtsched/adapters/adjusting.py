"""What a job's request could ask for instead, and how that is written.

A menu of alternatives to a rejected request is searched by the daemon; what can be changed in a
request, and the options by which its user asks for that, are the batch system's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Adjustable:
    """What of a request can be changed.

    Attributes
    ----------
    nodes : int
        The fewest nodes that it asks for; 1: there are no fewer.
    limit_s : float
        Its time limit, seconds; inf: it has none that can be made shorter.
    step_s : float
        Time limits are whole multiples of this, seconds.
    gpus : int
        GPUs on each node; 1 or 0: there are no fewer.
    gpu_types : tuple of str
        Other types of GPUs that it could ask for.
    partitions : tuple of str
        Other partitions that it could name.
    """

    nodes: int = 1
    limit_s: float = math.inf
    step_s: float = 60.0
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


NOT_ADJUSTABLE = Adjustable()
"""A request of which nothing but the deadline can be changed."""


class Adjustment(NamedTuple):
    """A change of a request; None: as it is.

    Attributes
    ----------
    nodes : int or None
        The fewest nodes.
    limit_s : float or None
        Time limit, seconds.
    gpus : int or None
        GPUs on each node.
    gpu_type : str or None
        Their type.
    partition : str or None
        The partition.
    deadline : float or None
        Finish by, seconds since the epoch.
    odds : float or None
        Least odds, 0 to 1, with which it is to end by then; 1: a guarantee is wanted.
    """

    nodes: int | None = None
    limit_s: float | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    partition: str | None = None
    deadline: float | None = None
    odds: float | None = None
