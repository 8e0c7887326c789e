"""Counts of things as people read them."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a count of things: `1 job`, `2,000 jobs`; `1 job is`, `2 jobs are`.

    Parameters
    ----------
    number : int
        How many.
    one, many : str
        What one is called, and what several are; `one` and an s if `many` is empty.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
