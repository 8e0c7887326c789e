"""One plot per measure of a comparison: every pair as a dot, and the mean with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import MissingExtraError
from rtsched.replay.measures import MEASURES
from rtsched.report.files import created
from rtsched.report.palette import GRID, INK, MUTED, POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rtsched.report.comparison import Difference, Values


def draw(values: Values, found: Sequence[Difference], directory: Path) -> list[str]:
    """Draw the measures by which policies differ; return the names of the files.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    OutputError
        If a file cannot be written.
    """
    try:
        import matplotlib as mpl

        mpl.use("svg")
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("plots of a comparison", "reproduce", str(error)) from error
    names = []
    for measure, table in values.values.items():
        rows = [each for each in found if each.measure == measure and each.pairs]
        gaps = table[1:] - table[0]
        if not rows or not np.nan_to_num(gaps).any():
            continue
        name = f"{measure}.svg"
        with mpl.rc_context({"svg.hashsalt": measure, "svg.fonttype": "none", "font.size": 10}):
            figure, axes = pyplot.subplots(figsize=(7, 1.1 + 0.5 * len(rows)), layout="constrained")
            for row, each in enumerate(rows):
                color = POLICIES[row % len(POLICIES)]
                pairs = gaps[values.policies.index(each.policy) - 1]
                pairs = pairs[np.isfinite(pairs)]
                axes.plot(pairs, np.full(len(pairs), row), "o", color=color, alpha=0.35, ms=5)
                if np.isfinite(each.low):
                    axes.plot([each.low, each.high], [row, row], color=color, lw=4)
                axes.plot(each.difference, row, "D", color=INK, ms=6)
            axes.axvline(0.0, color=MUTED, lw=1)
            axes.set_yticks(range(len(rows)), [each.policy for each in rows])
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.grid(axis="x", color=GRID)
            unit = MEASURES[measure].unit
            axes.set_xlabel(f"{measure}: difference from {values.policies[0]} ({unit})")
            with created(directory / name) as file:
                figure.savefig(file, format="svg", metadata={"Date": None})
            pyplot.close(figure)
        names.append(name)
    return names
