"""Comparison of several replays, pairwise: one log, or seed, under two policies is a pair.

Differences between logs are larger than those between policies, so a policy is compared with the
baseline on each log by itself, and then the pairs are summed up. An interval is a bootstrap's
(percentiles of the mean of resampled pairs; Efron and Tibshirani 1993, chapter 13): it asks for no
distribution, and it is given for `FEWEST` pairs or more only, since of fewer it says too little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched.errors import ConfigError, MissingExtraError
from rtsched.model.table import encode
from rtsched.replay.measures import MEASURES
from rtsched.report.axes import GRID, INK, MUTED, POLICIES
from rtsched.report.files import Cells, created, text_cells, unreadable
from rtsched.report.store import SUMMARY, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FEWEST = 6
"""Pairs from which on there are intervals."""
RESAMPLES = 10_000
SEED = 20_260_101


class Values(msgspec.Struct, frozen=True):
    """What each policy came to in each replay.

    Attributes
    ----------
    replays : tuple of str
        Directories of the `n` replays.
    policies : tuple of str
        Those that are in all of them; the baseline first.
    values : dict of str to float64[p, n]
        By measure; nan: the replay has no such value.
    left_out : tuple of str
        Policies that are in some of the replays only.
    """

    replays: tuple[str, ...]
    policies: tuple[str, ...]
    values: dict[str, Any]
    left_out: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """A policy beside the baseline by one measure, over all replays that have both values.

    Attributes
    ----------
    policy, measure : str
        What is compared.
    pairs : int
        How many replays.
    baseline, mean : float
        Means over them.
    difference, low, high : float
        Mean of the pairs' differences, and the interval; nan: too few pairs.
    ratio, ratio_low, ratio_high : float
        Geometric mean of the pairs' quotients, and the interval; nan where a value is not positive.
    better, worse : int
        Pairs in which the policy is better or worse; by neither if the measure has no good side.
    """

    policy: str
    measure: str
    pairs: int
    baseline: float
    mean: float
    difference: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    better: int
    worse: int


def read_values(directories: Sequence[Path], baseline: str | None = None) -> Values:
    """Return what the replays kept in some directories came to.

    Parameters
    ----------
    directories : sequence of Path
        Written by `rtsched replay --out`.
    baseline : str, optional
        A policy; by default the first one of the first replay.

    Raises
    ------
    InputError
        If a directory holds no replay, or a damaged one.
    ConfigError
        If there are not two policies that are in all of them, or the baseline is not.
    """
    summaries = [_policies(directory) for directory in directories]
    common = [name for name in summaries[0] if all(name in each for each in summaries)]
    if baseline is not None and baseline not in common:
        raise ConfigError([f"--baseline: no policy {baseline!r} is in all replays"])
    if len(common) < 2:
        raise ConfigError(
            [
                "a comparison needs two policies that are in all replays; replay each log with the "
                "same --policy"
            ]
        )
    first = baseline or common[0]
    policies = (first, *(name for name in common if name != first))
    values = {
        measure: np.array(
            [[_number(each[policy].get(measure)) for each in summaries] for policy in policies]
        )
        for measure in MEASURES
    }
    values = {name: table for name, table in values.items() if np.isfinite(table).any()}
    some = dict.fromkeys(name for each in summaries for name in each if name not in common)
    return Values(tuple(str(each) for each in directories), policies, values, tuple(some))


def _policies(directory: Path) -> dict[str, dict[str, Any]]:
    read_manifest(directory)
    path = directory / SUMMARY
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Summary).policies
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "is damaged") from error


class _Summary(msgspec.Struct):
    policies: dict[str, dict[str, Any]]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else np.nan


def differences(values: Values, confidence: float = 0.95) -> list[Difference]:
    """Return each policy beside the baseline, by measure and policy."""
    return [
        _difference(policy, measure, table[0], table[row], confidence)
        for measure, table in values.values.items()
        for row, policy in enumerate(values.policies)
        if row
    ]


def _difference(
    policy: str,
    measure: str,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    confidence: float,
) -> Difference:
    both = np.isfinite(before) & np.isfinite(after)
    before, after = before[both], after[both]
    gap = after - before
    positive = bool(len(gap)) and bool((before > 0).all() and (after > 0).all())
    logs = np.log(after / before) if positive else np.full(len(gap), np.nan)
    low, high = interval(gap, confidence)
    ratio_low, ratio_high = np.exp(interval(logs, confidence)).tolist()
    side = MEASURES[measure].better
    return Difference(
        policy=policy,
        measure=measure,
        pairs=len(gap),
        baseline=_mean(before),
        mean=_mean(after),
        difference=_mean(gap),
        low=low,
        high=high,
        ratio=float(np.exp(_mean(logs))),
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        better=int(np.count_nonzero(gap * side > 0)),
        worse=int(np.count_nonzero(gap * side < 0)),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else np.nan


def interval(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return a bootstrap interval of the mean of float64[n]; nan, nan: fewer than `FEWEST`.

    The same values give the same interval.
    """
    if len(values) < FEWEST or not np.isfinite(values).all():
        return np.nan, np.nan
    random = np.random.default_rng(SEED)
    means = random.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(means, [tail, 100.0 - tail]).tolist()
    return low, high


def value_cells(values: Values) -> dict[str, Cells]:
    """Return the columns of a file with a row for each replay, policy and measure."""
    rows = [
        (replay, policy, measure, float(table[row, column]))
        for measure, table in values.values.items()
        for row, policy in enumerate(values.policies)
        for column, replay in enumerate(values.replays)
    ]
    replay, policy, measure, value = zip(*rows, strict=True)
    found = np.array(value)
    return {
        "replay": text_cells(*encode(replay)),
        "policy": text_cells(*encode(policy)),
        "measure": text_cells(*encode(measure)),
        "unit": text_cells(*encode(MEASURES[name].unit for name in measure)),
        "value": Cells(found, np.isfinite(found)),
    }


def difference_cells(found: Sequence[Difference]) -> dict[str, Cells]:
    """Return the columns of a file with a row for each policy and measure."""
    cells: dict[str, Cells] = {}
    for name in Difference.__struct_fields__:
        column = [getattr(each, name) for each in found]
        if name in {"policy", "measure"}:
            cells[name] = text_cells(*encode(column))
        else:
            numbers = np.array(column)
            cells[name] = Cells(numbers, np.isfinite(numbers))
    return cells


def as_json(found: Sequence[Difference]) -> list[Mapping[str, Any]]:
    """Return plain rows; what is not a number is null."""
    return [
        {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in msgspec.structs.asdict(each).items()
        }
        for each in found
    ]


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
