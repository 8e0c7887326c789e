"""What a plug-in made of parts of a snapshot, kept by the chain until one of them changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class PreparedState:
    """What one plug-in prepared, from one call to the next; hooks name it `prepared`.

    It decides how long an answer takes, never what it is: a state left out, or one that was asked
    about something else before, gives the same answers.
    """

    def __init__(self) -> None:
        self._kept: dict[Callable[..., Any], tuple[tuple[object, ...], Any]] = {}

    def get(
        self,
        make: Callable[[*Ts], T],
        *arguments: *Ts,
        reads: tuple[object, ...] | None = None,
        after: Callable[[T], T | None] | None = None,
    ) -> T:
        """Return `make(*arguments)`, or its last result if nothing that it reads has changed.

        Parameters
        ----------
        make : callable
            A pure function. The last result of each is kept.
        *arguments
            What it is called with.
        reads : tuple, optional
            What the result depends on, where an argument has more than that: the fields of a
            snapshot that are read, and numbers derived from its time. Default: the arguments. A
            part is unchanged if it is the same object or an equal number; tables are never
            written to, so the same object has the same content.
        after : callable, optional
            Makes the new result from the last one where that is quicker, and an equal one; None:
            it cannot.
        """
        parts: tuple[object, ...] = arguments if reads is None else reads
        kept = self._kept.get(make)
        if kept is None or not _same(kept[0], parts):
            found = after(kept[1]) if after is not None and kept is not None else None
            kept = self._kept[make] = parts, make(*arguments) if found is None else found
        result: T = kept[1]
        return result


def _same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(
        a is b or (isinstance(a, (int, float)) and a == b) for a, b in zip(before, now, strict=True)
    )
