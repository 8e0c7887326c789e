"""Suggestions for a name that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def similar(name: str, known: Iterable[str], most: int = 1, likeness: float = 0.6) -> list[str]:
    """Return the known names that look most like `name`, best first.

    Parameters
    ----------
    name : str
        A name as somebody typed it.
    known : iterable of str
        The names that there are.
    most : int
        How many are returned at most.
    likeness : float
        From 0, anything, to 1, only `name` itself.
    """
    from difflib import get_close_matches  # most commands need it never

    return get_close_matches(name, list(known), most, likeness)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean 'replay'?`; `otherwise` where nothing looks like the name."""
    close = similar(name, known)
    return f"did you mean {close[0]!r}?" if close else otherwise
