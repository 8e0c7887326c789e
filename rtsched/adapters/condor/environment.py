"""What a chunk of a divisible load reads in its environment; `rtsched chunk` prints it.

Source: HTCondor's manual, condor_submit, "environment": the job attribute Environment is a list of
`NAME=value` between blanks; blanks and single quotes stand in single quotes, a quote there twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAMES = ("DEADLINE", "NODES", "NODE", "CHUNK", "FRACTION", "FROM", "TO", "ROUNDS")
_OURS = tuple(f"RTSCHED_{name}=" for name in _NAMES)
_WORD = re.compile(r"(?:[^\s']|'(?:[^']|'')*')+")
_PLAIN = re.compile(r"[^\s']+")


def variables(
    shares: Sequence[float],
    here: int,
    node: str,
    deadline: float | None,
    rounds: Sequence[float] = (),
) -> dict[str, str]:
    """Return what a chunk is told.

    Parameters
    ----------
    shares : sequence of float
        The fractions of the load, in sending order.
    here : int
        Which of them this chunk is.
    node : str
        Its slot.
    deadline : float or None
        Seconds since the epoch.
    rounds : sequence of float
        The share of its part that it takes in each round; empty: all at once.
    """
    words = [f"{share:.9f}" for share in shares]
    start = min(sum(map(float, words[:here])), 1.0)
    end = 1.0 if here == len(words) - 1 else min(start + float(words[here]), 1.0)
    told = {} if deadline is None else {"DEADLINE": f"{deadline:.0f}"}
    told |= {"NODES": str(len(words)), "NODE": node, "CHUNK": str(here), "FRACTION": words[here]}
    told |= {"FROM": f"{start:.12g}", "TO": f"{end:.12g}"}
    if rounds:
        told["ROUNDS"] = ":".join(f"{share:.9f}" for share in rounds)
    return {f"RTSCHED_{name}": value for name, value in told.items()}


def has_variables(environment: str) -> bool:
    """Return whether variables of ours are in an environment."""
    return any(map(_is_ours, _words(environment)))


def with_variables(environment: str, values: Mapping[str, str]) -> str:
    """Return an environment with these variables; those of ours that it had before are left out.

    An environment that makes no sense, such as one with an open quote, stays in front of them.
    """
    kept = [word for word in _words(environment) if not _is_ours(word)]
    return " ".join([*kept, *(_word(f"{name}={value}") for name, value in values.items())])


def _words(environment: str) -> list[str]:
    """Return the assignments as they are written; all in one if they cannot be told apart."""
    if _WORD.sub("", environment).strip():
        return [environment.strip()]
    return _WORD.findall(environment)


def _is_ours(word: str) -> bool:
    return word.lstrip("'").startswith(_OURS)


def _word(text: str) -> str:
    """Return an assignment, in quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"
