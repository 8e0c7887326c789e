"""Replays compared pair by pair: means, intervals and counts by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.errors import ConfigError, InputError
from rtsched.report import comparison
from rtsched.report.comparison import (
    FEWEST,
    Values,
    as_json,
    difference_cells,
    differences,
    interval,
    read_values,
    value_cells,
)
from rtsched.report.files import read_cells, writer_of

if TYPE_CHECKING:
    from pathlib import Path

NAN = float("nan")


def kept(path: Path, monkeypatch: pytest.MonkeyPatch, **policies: dict[str, Any]) -> Path:
    """Write what is read of a replay: the measures of its policies."""
    monkeypatch.setattr(comparison, "read_manifest", lambda _: None)
    path.mkdir()
    (path / "summary.json").write_text(json.dumps({"policies": policies}))
    return path


def test_pairs_by_hand() -> None:
    """Waits of 10, 20, 40 become 5, 22, 20: -5, +2, -20; quotients 1/2, 11/10, 1/2."""
    values = Values(
        ("a", "b", "c"), ("fcfs", "easy"), {"mean_wait_s": np.array([[10, 20, 40], [5, 22, 20.0]])}
    )
    (found,) = differences(values)
    assert (found.policy, found.measure, found.pairs) == ("easy", "mean_wait_s", 3)
    assert found.baseline == pytest.approx(70 / 3)
    assert found.mean == pytest.approx(47 / 3)
    assert found.difference == pytest.approx(-23 / 3)
    assert found.ratio == pytest.approx((0.5 * 1.1 * 0.5) ** (1 / 3))
    assert (found.better, found.worse) == (2, 1)  # less waiting is better
    assert np.isnan([found.low, found.high]).all()  # three pairs say too little


def test_what_is_missing_makes_no_pair() -> None:
    """Nor does a zero make a quotient; more use of the machine is better."""
    table = np.array([[0.0, 0.5, NAN], [0.5, 0.25, 1.0]])
    (found,) = differences(Values(("a", "b", "c"), ("x", "y"), {"utilisation": table}))
    assert (found.pairs, found.difference, found.better, found.worse) == (2, 0.125, 1, 1)
    assert np.isnan(found.ratio)
    none = Values(("a",), ("x", "y"), {"utilisation": np.array([[NAN], [1.0]])})
    (found,) = differences(none)
    assert found.pairs == 0
    assert as_json([found])[0]["difference"] is None


def test_an_interval_of_equal_pairs_is_a_point() -> None:
    """And without enough pairs there is none."""
    assert interval(np.full(FEWEST, 3.0), 0.95) == (3.0, 3.0)
    assert np.isnan(interval(np.full(FEWEST - 1, 3.0), 0.95)).all()


def test_intervals_hold_what_they_say() -> None:
    """Of 400 samples of 12 the true mean is outside about as often as it may be.

    A bootstrap of 12 values is somewhat too narrow: 92 % are usual where 95 % are asked for.
    """
    random = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        low, high = interval(random.normal(5.0, 2.0, 12), 0.95)
        inside += low <= 5.0 <= high
    assert 0.88 <= inside / 400 <= 0.97


@given(st.lists(st.floats(-1e6, 1e6), min_size=FEWEST, max_size=20))
def test_intervals_lie_within_the_values(values: list[float]) -> None:
    """Around their mean, the same each time, and wider with more confidence."""
    found = np.array(values)
    low, high = interval(found, 0.95)
    slack = 1e-9 * max(np.abs(found).max(), 1.0)
    assert found.min() - slack <= low <= high <= found.max() + slack
    assert interval(found, 0.95) == (low, high)
    wide = interval(found, 0.99)
    assert wide[0] <= low
    assert high <= wide[1]


def test_policies_that_are_in_all_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared with the first one, or the one that is named."""
    one = kept(
        tmp_path / "one",
        monkeypatch,
        fcfs={"mean_wait_s": 10},
        easy={"mean_wait_s": 5.0, "utilisation": None},
        only={},
    )
    two = kept(tmp_path / "two", monkeypatch, easy={"mean_wait_s": 6}, fcfs={"mean_wait_s": 8})
    values = read_values([one, two])
    assert values.policies == ("fcfs", "easy")
    assert list(values.values) == ["mean_wait_s"]
    assert values.values["mean_wait_s"].tolist() == [[10.0, 8.0], [5.0, 6.0]]
    assert read_values([one, two], "easy").policies == ("easy", "fcfs")
    with pytest.raises(ConfigError, match="no policy 'only' is in all replays"):
        read_values([one, two], "only")
    three = kept(tmp_path / "three", monkeypatch, easy={})
    with pytest.raises(ConfigError, match="two policies that are in all replays"):
        read_values([one, three])


def test_what_is_no_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory, or the damaged file, is named."""
    with pytest.raises(InputError, match="contains no replay"):
        read_values([tmp_path])
    one = kept(tmp_path / "one", monkeypatch)
    for text in ("{", "[]", '{"policies": 3}'):
        (one / "summary.json").write_text(text)
        with pytest.raises((InputError, ConfigError)):
            read_values([one])


def test_tables(tmp_path: Path) -> None:
    """A row for each value, with its unit; and one for each difference."""
    values = Values(("a", "b"), ("x", "y"), {"mean_wait_s": np.array([[1.0, NAN], [2.0, 3.0]])})
    path = tmp_path / "values.parquet"
    with path.open("wb") as file:
        writer_of("parquet")(file, value_cells(values))
    cells = read_cells(path)
    assert list(cells) == ["replay", "policy", "measure", "unit", "value"]
    assert cells["value"].present.tolist() == [True, False, True, True]
    path = tmp_path / "values.csv"
    with path.open("wb") as file:
        writer_of("csv")(file, value_cells(values))
    assert path.read_text().splitlines()[:3] == [
        "replay,policy,measure,unit,value",
        "a,x,mean_wait_s,s,1",
        "b,x,mean_wait_s,s,",
    ]
    found = difference_cells(differences(values))
    assert found["difference"].values.tolist() == [1.0]
    assert found["low"].present.tolist() == [False]
