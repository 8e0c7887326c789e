"""What is kept from poll to poll: good readings, and what is made of what seldom changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from rtsched.errors import AdapterError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class LastGood(Generic[T]):
    """What was read last without an error.

    Parameters
    ----------
    value : T
        What counts until something was read.
    stale : str
        What it means, for people, that nothing new could be read; the error follows.

    Attributes
    ----------
    value : T
        The last one.
    problem : str
        Why it is not a new one; empty: it is.
    """

    def __init__(self, value: T, stale: str) -> None:
        self.value, self.problem = value, ""
        self._stale = stale

    def read(self, call: Callable[[], T]) -> T:
        """Return what a call returns; if that fails, what was read before."""
        try:
            self.value, self.problem = call(), ""
        except (AdapterError, InputError) as error:
            self.problem = f"{self._stale}: {error}"
        return self.value


class Remade(Generic[P, T]):
    """What is made anew only when what it is made of has changed; else it is the same object."""

    def __init__(self, make: Callable[P, T]) -> None:
        self._make = make
        self._of: object = None
        self._made: list[T] = []

    def of(self, *parts: P.args, **more: P.kwargs) -> T:
        """Return what is made of these parts."""
        if not self._made or self._of != (parts, more):
            self._made = [self._make(*parts, **more)]
            self._of = parts, more
        return self._made[0]
