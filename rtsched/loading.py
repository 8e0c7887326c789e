"""Loading modules without the garbage collector, which would look through them again and again."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def loading() -> Iterator[None]:
    """Have the garbage collector never look through what this block loads, nor what there is now.

    It is for processes of our own, which keep the modules that they load. Looking through these
    takes a tenth of a start, and as much again at the end.
    """
    before = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        gc.enable()
