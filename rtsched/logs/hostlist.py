"""Node lists as Slurm writes them: `fast[1-5,7],login`.

Source: manual page scontrol (show hostnames).
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_NODES = 1_000_000
"""A list of more nodes is taken for damage."""

_PART = re.compile(r"([^\[\],\s]*)((?:\[[^\[\]]*\][^\[\],\s]*)*)(?:,|$)")
_BRACKET = re.compile(r"\[([^\[\]]*)\]([^\[\]]*)")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


def expand(text: str, most: int = MOST_NODES) -> list[str]:
    """Return the names in a node list, in order.

    Raises
    ------
    ValueError
        If brackets or numbers are wrong, or there are more than `most` names; these are not made
        first.
    """
    names: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or match.end() == at:
            raise ValueError(f"{text[:80]!r} is no node list")
        at = match.end()
        brackets = [(_ranges_in(inside), after) for inside, after in _BRACKET.findall(match[2])]
        count = len(names) + 1
        for ranges, _ in brackets:
            count = len(names) + (count - len(names)) * sum(len(numbers) for numbers, _ in ranges)
            if count > most:
                raise ValueError(f"more than {most:,} nodes in one list")
        pieces = [[match[1]], *([number + end for number in _numbers(of)] for of, end in brackets)]
        names += [name for name in map("".join, product(*pieces)) if name]
    return names


def names_of(text: str) -> list[str]:
    """Return the names in a node list that a batch system wrote; none of a damaged one."""
    try:
        return expand(text)
    except ValueError:
        return []


def _ranges_in(text: str) -> list[tuple[range, int]]:
    """Return the ranges of `1-5,007`, and with how many digits each is written at least."""
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first:
            raise ValueError(f"{part[:80]!r} is no range of node numbers")
        found.append((range(first, last + 1), len(match[1])))
    return found


def _numbers(ranges: list[tuple[range, int]]) -> list[str]:
    """Return the numbers of some ranges, with their leading zeros."""
    return [str(number).zfill(width) for numbers, width in ranges for number in numbers]


_NUMBERED = re.compile(r"(.*?)(\d{1,12})", re.ASCII | re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Return a node list of these names, the inverse of `expand` but for their order."""
    plain: list[str] = []
    found: list[tuple[str, str]] = []
    for name in dict.fromkeys(names):
        if match := _NUMBERED.fullmatch(name):
            found.append((match[1], match[2]))
        else:
            plain.append(name)
    padded = {(stem, len(digits)) for stem, digits in found if digits[0] == "0" != digits}
    numbered: dict[tuple[str, int], list[int]] = {}
    for stem, digits in found:
        width = len(digits) if (stem, len(digits)) in padded else 1
        numbered.setdefault((stem, width), []).append(int(digits))
    lists = [_ranges(stem, width, numbers) for (stem, width), numbers in numbered.items()]
    return ",".join([*plain, *lists])


def _ranges(stem: str, width: int, numbers: list[int]) -> str:
    """Return the names that begin with `stem` and end in one of the numbers."""
    numbers = sorted(numbers)
    if len(numbers) == 1:
        return f"{stem}{numbers[0]:0{width}d}"
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    parts = [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in runs
    ]
    return f"{stem}[{','.join(parts)}]"
