"""Requests that a job could make in place of a rejected one: what is tried, in which order.

Each search yields changed requests, and is sent whether the last one was good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.adapters.live import Adjustment
from rtsched.text import counted, per_cent, span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.live import Adjustable
    from rtsched.daemon.questions import ChoiceKind

Search: TypeAlias = "Generator[Adjustment, bool, None]"

FINEST = 32
"""A time limit is searched to the next of so many steps."""

FURTHER = 8
"""Amounts that halving left out that are tried at most."""

OTHERS = 4
"""Other partitions, and types of GPUs, that are tried at most."""


@dataclass(frozen=True)
class Amount:
    """Something of which a job could have less.

    Attributes
    ----------
    asked : int
        How much it asks for.
    to : callable
        Returns the change by which it asks for so much.
    number : callable
        Returns for how much a change asks.
    finest : int
        It is searched to the next of so many.
    same_work : bool
        Whether with less of it the time limit may be longer.
    """

    asked: int
    to: Callable[[int], Adjustment]
    number: Callable[[Adjustment], int]
    finest: int = 1
    same_work: bool = False


def amounts(asked: Adjustable) -> dict[ChoiceKind, Amount]:
    """Return of what a job could have less: nodes, time limit, GPUs per node."""
    step = asked.step_s
    whole = max(math.ceil(asked.limit_s / step), 1) if math.isfinite(asked.limit_s) else 1
    return {
        "smaller": Amount(
            asked.nodes,
            lambda nodes: Adjustment(nodes=nodes),
            lambda to: to.nodes or asked.nodes,
            same_work=math.isfinite(asked.limit_s),
        ),
        "shorter": Amount(
            whole,
            lambda steps: Adjustment(limit_s=steps * step),
            lambda to: whole if to.limit_s is None else round(to.limit_s / step),
            max(whole // FINEST, 1),
        ),
        "fewer-gpus": Amount(
            asked.gpus, lambda gpus: Adjustment(gpus=gpus), lambda to: to.gpus or asked.gpus
        ),
    }


def most(amount: Amount, asked: Adjustable, guess: int = 0) -> Search:
    """Search by halving the most, below what was asked for, with which the job could be.

    Where there is a guess, that and the next higher one are tried first. Of nodes then with the
    same node-hours there.
    """
    low, high = 0, amount.asked
    first = [guess, guess + amount.finest] if guess else []
    while high - low > amount.finest:
        middle = first.pop(0) if first else 0
        middle = middle if low < middle < high else (low + high) // 2
        low, high = (middle, high) if (yield amount.to(middle)) else (low, middle)
    if low:
        yield from _same_work(amount, asked, low)


def left_out(amount: Amount, asked: Adjustable, known: Mapping[int, bool]) -> Search:
    """Search above the best that is known, from the top, until one is good.

    Where that are more than `FURTHER`, so many of them, equally far apart.
    """
    best = max((number for number, good in known.items() if good), default=0)
    count = amount.asked - 1 - best
    step = max(-(-count // FURTHER), amount.finest)
    for number in range(amount.asked - 1, best, -step):
        if number not in known and (yield amount.to(number)):
            yield from _same_work(amount, asked, number)
            return


def _same_work(amount: Amount, asked: Adjustable, nodes: int) -> Search:
    """Try so many nodes with the same node-hours."""
    if amount.same_work:
        longer = math.floor(asked.limit_s * asked.nodes / nodes / asked.step_s) * asked.step_s
        yield Adjustment(nodes=nodes, limit_s=longer)


def one_by_one(others: Sequence[Adjustment]) -> Search:
    """Try one change after the other, until one is good."""
    for to in others[:OTHERS]:
        if (yield to):
            return


def what(to: Adjustment, asked: Adjustable) -> str:
    """Return what a choice is, as its user reads it; the time by which it ends is not said."""
    parts = []
    if to.nodes is not None:
        parts.append(f"on {counted(to.nodes, 'node')}")
    if to.limit_s is not None:
        parts.append(f"with a time limit of {span(to.limit_s)}")
    if to.nodes is not None:
        same = to.limit_s is not None
        parts.append("(the same node-hours)" if same else "(with the same time limit)")
    if to.gpus is not None:
        parts.append(f"with {counted(to.gpus, 'GPU')} per node in place of {asked.gpus}")
    if to.gpu_type is not None:
        parts.append(f"with GPUs of type {to.gpu_type}")
    if to.partition is not None:
        parts.append(f"in {to.partition}")
    if to.odds is not None:
        sure = "guaranteed" if to.odds >= 1.0 else f"with odds of {per_cent(to.odds)}"
        parts = [f"{sure}," if parts else sure, *parts]
    return " ".join(parts) or "as it is"


def efficient(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows no other row dominates; of equal rows the first.

    Parameters
    ----------
    costs : float64[n, k]
        What each gives up, of k things.

    Returns
    -------
    bool[n]
        Whether no row is as good in everything, and better in something.
    """
    below = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)
    equal = (costs[:, None, :] == costs[None, :, :]).all(axis=2)
    better = (below & ~equal) | np.triu(equal, 1)
    dominated: NDArray[np.bool_] = better.any(axis=0)
    return ~dominated
