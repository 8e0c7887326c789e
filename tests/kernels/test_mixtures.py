"""Mixtures of samples against a plain reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rtsched.kernels.mixtures import Samples, quantiles

OWN, HALF = 2, 6.0
SAMPLE = st.lists(
    st.tuples(st.integers(0, 5).map(float), st.floats(0.05, 1.0)), min_size=1, max_size=6
)


def mixed(
    given_: list[list[tuple[float, float]]], row: list[int], known: tuple[float, float], points: int
) -> NDArray[np.float64]:
    """Return the quantiles of one mixture, whose last sample is the last of all."""
    value, weight, left, others = list[float](), list[float](), 1.0, 1.0
    for place, sample in enumerate(row):
        if sample >= 0:
            total = sum(each for _, each in given_[sample])
            share = left * total / (total + HALF)
            value += [each for each, _ in given_[sample]]
            weight += [each * share / total for _, each in given_[sample]]
            left -= share
        if place < OWN:
            others = left
    least = max(others / known[1], 1.0 / known[0])
    if left < least:
        weight = [each * (1.0 - least) / (1.0 - left) for each in weight]
        left = least
    value += [each for each, _ in given_[-1]]
    total = sum(each for _, each in given_[-1])
    weight += [each * left / total for _, each in given_[-1]]
    order = np.argsort(value, kind="stable")
    upto = np.cumsum(np.array(weight)[order])
    wanted = (np.arange(points) + 0.5) / points * upto[-1]
    # which of two neighbours is the quantile may rest on the last digit of a sum
    below, above = np.searchsorted(upto, wanted - 1e-9), np.searchsorted(upto, wanted + 1e-9)
    ordered = np.array(value)[order]
    return np.array([ordered[below], ordered[np.minimum(above, len(ordered) - 1)]])


@given(
    samples=st.lists(SAMPLE.map(sorted), min_size=1, max_size=5),
    places=st.lists(st.integers(-1, 4), min_size=3, max_size=3),
    known=st.tuples(st.integers(1, 20).map(float), st.integers(1, 5).map(float)),
    points=st.integers(1, 9),
)
def test_quantiles_of_a_mixture(
    samples: list[list[tuple[float, float]]],
    places: list[int],
    known: tuple[float, float],
    points: int,
) -> None:
    """Every place counts by its weight, and leaves the rest to the next; something is left."""
    row = [place if place < len(samples) else -1 for place in places]
    flat = [each for sample in samples for each in sample]
    compiled = Samples(
        np.array([value for value, _ in flat]),
        np.array([weight for _, weight in flat]),
        np.concatenate([[0], np.cumsum([len(sample) for sample in samples])]).astype(np.int64),
        np.array([sum(weight for _, weight in sample) for sample in samples]),
    )
    found = quantiles(
        compiled,
        np.array([row], np.int64),
        OWN,
        HALF,
        np.array([known]),
        np.array([len(samples) - 1]),
        points,
    )[0]
    low, high = mixed(samples, row, known, points)
    assert ((low <= found) & (found <= high)).all()
