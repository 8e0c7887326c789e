"""Priority factors of users from the values that the fair-share plug-ins give their jobs.

HTCondor serves users by their effective priority, the lower the sooner: a measure of their past
use, times a factor. The user whose jobs have the highest value gets the least factor `low` of the
settings, the others more, up to the greatest, `high`:

    factor = low * (high / low) ** min(top - value, 1)

with `value` the highest of the user's jobs and `top` the highest of all. So one who is behind by 1,
the whole range of a term of weight 1, is served last, whatever was used in the past.

Source: HTCondor's manual, "User Priorities and Negotiation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def factors_of(
    submitters: Sequence[str], value: NDArray[np.float64], limits: tuple[float, float]
) -> dict[str, float]:
    """Return the factor of each submitter.

    Parameters
    ----------
    submitters : sequence of str
        Who is charged for each job.
    value : float64[n]
        Of each job: higher is sooner.
    limits : (float, float)
        Least and greatest factor.
    """
    best: dict[str, float] = {}
    for name, one in zip(submitters, np.nan_to_num(value).tolist(), strict=True):
        best[name] = max(best.get(name, -np.inf), one)
    top, (low, high) = max(best.values(), default=0.0), limits
    return {name: low * (high / low) ** min(top - one, 1.0) for name, one in best.items()}


def differing(
    wanted: Mapping[str, float], present: Mapping[str, float], step: float
) -> dict[str, float]:
    """Return the factors that are unknown, or off by more than a fraction `step` of the present."""
    return {
        name: factor
        for name, factor in wanted.items()
        if abs(factor - present.get(name, np.inf)) > step * present.get(name, 0.0)
    }
