"""Runners of worked cases, one module per algorithm; each kind turns an input into an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from case_runners import mcdf, psts, sed, spare, ste, tres

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNERS: dict[str, Callable[[mcdf.Case], mcdf.Case]] = {
    **mcdf.RUNNERS,
    **psts.RUNNERS,
    **sed.RUNNERS,
    **spare.RUNNERS,
    **ste.RUNNERS,
    **tres.RUNNERS,
}
