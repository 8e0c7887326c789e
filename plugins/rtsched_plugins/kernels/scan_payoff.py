"""When a positional scan pays: imbalance, crossover point, speed-up.

The source prints crossover points without saying how they are defined. Here a run pays if it makes
the last node end sooner by more than the run and its migrations take.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def slowest(load: Ints, power: Ints) -> Fraction:
    """Return max L_i/τ_i over nodes with power, exactly; 0 without any load.

    Raises
    ------
    ShapeError
        If a node without power holds work, which it never ends.
    """
    real = power > 0
    if load[~real].any():
        raise ShapeError("a node without power holds work")
    if not load.any():
        return Fraction(0)
    time = load[real] / power[real]
    near = np.flatnonzero(time >= time.max() * (1 - 1e-12))
    pairs = zip(load[real][near].tolist(), power[real][near].tolist(), strict=True)
    return max(Fraction(units, strength) for units, strength in pairs)


def imbalance(load: Ints, power: Ints) -> Fraction:
    """Return I = max(L_i/τ_i)/(W/Π) - 1, over nodes with power; 0 without any load."""
    total = int(load.sum())
    if total == 0:
        return Fraction(0)
    return slowest(load, power) * int(power.sum()) / total - 1


def crossover(cost: Fraction | float, load: Ints, power: Ints) -> Fraction:
    """Return I*: the imbalance above which a run of this cost pays, cost/(W/Π).

    Parameters
    ----------
    cost : Fraction or float
        Time of the run's steps and of its migrations.
    load, power : int64[n]
        Units and units per time of each node.

    Raises
    ------
    ShapeError
        If there is no work: nothing can pay then.
    """
    total = int(load.sum())
    if total == 0:
        raise ShapeError("without work there is no crossover point")
    return Fraction(cost) * int(power.sum()) / total


def speed_up(load: Ints, power: Ints, cost: Fraction | float) -> Fraction:
    """Return how many times sooner all is done than on one node of mean power.

    Parameters
    ----------
    load : int64[n]
        Units per node after balancing.
    power : int64[n]
        Units per time; nodes of power 0 are virtual and do not count.
    cost : Fraction or float
        Time of the balancing run itself, its migrations included.

    Raises
    ------
    ShapeError
        If there is no work.
    """
    total = int(load.sum())
    if total == 0:
        raise ShapeError("without work there is no speed-up")
    alone = Fraction(total * int(np.count_nonzero(power)), int(power.sum()))
    return alone / (slowest(load, power) + Fraction(cost))
