"""Slurm's `--constraint`: which nodes have the features that it asks for.

Source: manual page sbatch. Operators apply from left to right, whichever they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
