"""Slurm's `--constraint`: which nodes have the features that it asks for.

Source: manual page sbatch. Operators apply from left to right, whichever they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

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
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[1])
        at = match.end()
    try:
        mask, rest = _expression(tokens, having)
    except IndexError:
        return None
    return mask if not rest else None


def _expression(
    tokens: list[str], having: Callable[[str], NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_] | None, list[str]]:
    """Return the nodes that an expression means, and the tokens behind it."""
    mask, tokens = _term(tokens, having)
    while mask is not None and tokens and tokens[0] in {"&", "|"}:
        other, rest = _term(tokens[1:], having)
        if other is None:
            return None, rest
        mask = mask & other if tokens[0] == "&" else mask | other
        tokens = rest
    return mask, tokens


def _term(
    tokens: list[str], having: Callable[[str], NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_] | None, list[str]]:
    """Return the nodes of one feature or of an expression in parentheses; IndexError: none."""
    first, rest = tokens[0], tokens[1:]
    if first == "(":
        mask, rest = _expression(rest, having)
        return (mask, rest[1:]) if rest[0] == ")" else (None, rest)
    return (None, rest) if first in {"&", "|", ")"} else (having(first), rest)
