"""The garbage collector at rest: while modules are loaded, or many objects are made and freed."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_collection() -> Iterator[None]:
    """Have the garbage collector rest; it goes on afterwards, if it went before."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """Have the garbage collector never look through what this block loads, nor what there is now.

    It is for processes of our own, which keep the modules that they load. Looking through these
    takes a tenth of a start, and as much again at the end.
    """
    before = len(sys.modules)
    with without_collection():
        try:
            yield
        finally:
            if len(sys.modules) > before:
                gc.freeze()
