"""Reproductions at their reduced extent, run once per process for all tests that look at them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rtsched.reproduce import reproduce, reproductions

if TYPE_CHECKING:
    from rtsched.reproduce import Reproduced


@cache
def reduced_run(name: str) -> Reproduced:
    """Return the reduced run of one reproduction, in this process."""
    study = reproductions()[name]
    return reproduce(study(), study.reduced)
