"""Runners of worked cases, one module per algorithm; each kind turns an input into an output."""

from collections.abc import Callable

from case_runners import mcdf, psts, sed, spare, ste, tres

RUNNERS: dict[str, Callable[[mcdf.Case], mcdf.Case]] = {
    **mcdf.RUNNERS,
    **psts.RUNNERS,
    **sed.RUNNERS,
    **spare.RUNNERS,
    **ste.RUNNERS,
    **tres.RUNNERS,
}
