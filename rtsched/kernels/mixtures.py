"""Mixtures of samples: each value counts by how much the sample that it is in does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Samples(NamedTuple):
    """Samples one after another, each with its values in ascending order."""

    value: NDArray[np.float64]
    """float64[k]."""
    weight: NDArray[np.float64]
    """float64[k]: how much each counts within its sample."""
    offsets: NDArray[np.int64]
    """int64[s + 1]: where each sample begins."""
    total: NDArray[np.float64]
    """float64[s]: the sum of its weights."""


@compiled
def merged(
    samples: Samples,
    row: NDArray[np.int64],
    factor: NDArray[np.float64],
    scale: float,
    value: NDArray[np.float64],
    upto: NDArray[np.float64],
) -> int:
    """Put the values of some samples in order, with the sums of their weights up to each.

    Parameters
    ----------
    samples : Samples
        All samples.
    row : int64[c]
        Which of them; -1: none.
    factor : float64[c]
        What the weights of each are multiplied by.
    scale : float
        What those of all but the last are multiplied by too.
    value, upto : float64[k]
        Written to; of equal values those of the first sample come first.

    Returns
    -------
    int
        How many there are.
    """
    head, end = np.zeros(len(row), np.int64), np.zeros(len(row), np.int64)
    least = np.empty(len(row))
    """The first value of each that is left."""
    first, open_ = np.empty(len(row), np.int64), 0
    """Those that have any left, in order of their first values."""
    for c in range(len(row)):
        if row[c] >= 0 and samples.offsets[row[c]] < samples.offsets[row[c] + 1]:
            head[c], end[c] = samples.offsets[row[c]], samples.offsets[row[c] + 1]
            least[c] = samples.value[head[c]]
            at, open_ = open_, open_ + 1
            while at > 0 and least[first[at - 1]] > least[c]:
                first[at] = first[at - 1]
                at -= 1
            first[at] = c
    count, sum_ = 0, 0.0
    while open_ > 0:
        c = first[0]
        weight = samples.weight[head[c]] * factor[c]
        sum_ += weight if c == len(row) - 1 else weight * scale
        value[count], upto[count] = least[c], sum_
        count += 1
        head[c] += 1
        at, open_ = 0, open_ - 1
        if head[c] < end[c]:
            least[c] = samples.value[head[c]]
            while at < open_ and (
                least[first[at + 1]] < least[c]
                or (least[first[at + 1]] == least[c] and first[at + 1] < c)
            ):
                first[at] = first[at + 1]
                at += 1
            first[at], open_ = c, open_ + 1
        else:
            for at in range(open_):
                first[at] = first[at + 1]
    return count


@compiled
def quantiles(
    samples: Samples,
    rows: NDArray[np.int64],
    own: int,
    half: float,
    known: NDArray[np.float64],
    base: NDArray[np.int64],
    points: int,
) -> NDArray[np.float64]:
    """Return quantiles of mixtures by shrinkage: a closer sample leaves the rest to the next ones.

    Parameters
    ----------
    samples : Samples
        All samples.
    rows : int64[n, c]
        The samples of each mixture, the closest first; -1: none in this place.
    own : int
        How many places are of its own, in whose samples others do not count.
    half : float
        The total weight of a sample that counts as much as all further ones together.
    known : float64[n, 2]
        To the last sample a share of one in so many is left at least, and one in so many of what
        its own leave.
    base : int64[n]
        The last sample, which has all that is left.
    points : int
        How many quantiles, from half a step to one less half a step.

    Returns
    -------
    float64[n, points]
        Ascending.
    """
    n, places = rows.shape
    longest = int((samples.offsets[1:] - samples.offsets[:-1]).max())
    value, upto = np.empty(longest * (places + 1)), np.empty(longest * (places + 1))
    row, factor = np.empty(places + 1, np.int64), np.empty(places + 1)
    found = np.empty((n, points))
    for i in range(n):
        left = others = scale = 1.0
        for c in range(places):
            row[c], factor[c] = rows[i, c], 0.0
            if row[c] >= 0:
                total = samples.total[row[c]]
                share = left * total / (total + half)
                factor[c] = share / total
                left -= share
            if c < own:
                others = left
        least = max(others / known[i, 1], 1.0 / known[i, 0])
        if left < least:
            scale, left = (1.0 - least) / (1.0 - left), least
        row[places], factor[places] = base[i], left / samples.total[base[i]]
        count, at = merged(samples, row, factor, scale, value, upto), 0
        for point in range(points):
            while upto[at] < (point + 0.5) / points * upto[count - 1]:
                at += 1
            found[i, point] = value[at]
    return found
