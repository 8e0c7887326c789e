"""Tables, numbers and comparisons as people read them; stated odds and what was kept."""

import dataclasses
import io
import json
import math
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import report_builders as build
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rtsched.calibrate.intervals import share
from rtsched.core.chain import HookMetrics
from rtsched.daemon.questions import StartEstimate
from rtsched.errors import ConfigError, InputError
from rtsched.model.wilson import wilson
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
from rtsched.report.reliability import (
    EDGES,
    reliability,
    reliability_drawing,
)
from rtsched.report.summary import Summary, summarise
from rtsched.report.tables import on_shares, show, undone
from rtsched.report.wording import (
    compact,
    decimal,
    duration,
    instant,
    percent,
    quantity,
    shortened,
    starts,
    visible,
)

GOLDEN = Path(__file__).parent.parent / "data" / "report"
"""Written anew where RTSCHED_UPDATE_GOLDEN is set; review the difference as code."""


def printed(summary, width: int, **console) -> str:
    """Return what `show` prints on a terminal of this width, or into a pipe."""
    out = io.StringIO()
    show(summary, Console(file=out, width=width, **console))
    return out.getvalue()


@pytest.fixture(scope="module")
def summary():
    """Summarise one small fixed replay of three policies, one of which rejects."""
    work = build.workload()
    runs = [build.run(work), build.run(work, "easy"), build.run(work, "mcdf", rejects=0.2)]
    return summarise(work, runs)


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_read_as_the_golden_text(summary, width):
    """A piped table has the reviewed text, without colours, and fits the terminal."""
    text = printed(summary, width)
    path = GOLDEN / f"tables_{width}.txt"
    if os.environ.get("RTSCHED_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= width


def test_what_jobs_in_time_and_missed_deadlines_are_shares_of(summary):
    """Their shares do not add up to 100 % where some jobs have no deadline."""
    due, jobs = summary.log["jobs_with_deadline"], summary.log["jobs"]
    shares = (
        f"ended in time: share of the {due} jobs with a deadline; missed deadlines and rejected: "
        f"shares of all {jobs} jobs."
    )
    assert 0 < due < jobs
    assert shares in printed(summary, 200)
    everyone = {**summary.log, "jobs_with_deadline": jobs}
    nobody = {**summary.log, "jobs_with_deadline": 0, "as_logged": {}}
    assert not on_shares(Summary(everyone, {}, summary.policies))
    assert not on_shares(Summary(nobody, {}, {}))


def test_the_best_value_is_marked_on_a_terminal(summary):
    """Only a terminal gets the escape sequences that mark the best value of a row."""
    assert "\x1b[1;32m" in printed(summary, 100, force_terminal=True)


def test_many_policies_are_shown_in_groups_that_fit():
    """More policies than fit side by side go into further tables, each beside the log."""
    work = build.workload()
    names = ["easy", "fcfs", "conservative", "multifactor", "mcdf", "fifo-mn", "edf-an"]
    summary = summarise(work, [build.run(work, name) for name in names])
    text = printed(summary, 80)
    heads = [line for line in text.splitlines() if "as logged" in line]
    assert len(heads) > 1
    assert [name for line in heads for name in line.replace("as logged", "").split()] == names
    assert max(map(len, text.splitlines())) <= 80


def test_assumptions_stand_above_the_table(summary):
    """Who reads a figure has read what it rests on."""
    text = printed(summary, 100)
    assert text.index("Assumed\n") < text.index("as logged")


def test_resources_and_partitions_of_shared_nodes():
    """Hours used and their part of those available; a partition's GPUs where it has some."""
    work = build.shared_workload()
    runs = [build.shared_run(work), build.shared_run(work, "easy")]
    text = printed(summarise(work, runs), 120)
    assert "60 jobs · 3 users · 8 nodes with 64 cores and 8 GPUs" in text
    lines = [line.split() for line in text.splitlines()]
    hours = {line[0]: line[1:] for line in lines if line and line[0].endswith("-hours")}
    used = sum(work.jobs.size * work.run_time) / 3600 * 4
    assert hours["core-hours"][0] == f"{used:,.0f}"
    assert len(hours["core-hours"]) == 3 * 3  # number, part and per cent: the log, two policies
    assert [line for line in lines if line[:1] == ["GPUs"]]
    assert "gpu (30): mean wait" in text
    assert "Hours used" not in printed(summarise(build.workload(), []), 120)


def test_hostile_names_are_shown_and_not_obeyed():
    """Rich markup, control characters and overrides in names come out as plain text."""
    work = build.workload(users=build.HOSTILE)
    work.skipped.add("odd\x1b[2J field [blink]x[/blink]", "evil\n\rname:1")
    runs = [build.run(work, name, rejects=0.3) for name in build.HOSTILE]
    text = printed(summarise(work, runs, timings=True), 200, force_terminal=False)
    assert "[red]eve[/red]" in text
    assert r"bell\x07\x1b[31mr" in text
    assert r"abc\u202edef" in text
    assert r"odd\x1b[2J field [blink]x[/blink]" in text
    assert r"evil\n\rname:1" in text
    assert all(char.isprintable() for line in text.split("\n") for char in line)


def test_times_are_shown_only_where_they_were_kept():
    """Plug-ins' seconds differ from run to run, so a compared table has none."""
    work = build.workload()
    runs = [build.run(work, "mcdf", rejects=0.3)]
    assert "0.25s" in printed(summarise(work, runs, timings=True), 100)
    assert "0.25s" not in printed(summarise(work, runs), 100)


def test_a_hook_that_is_not_timed_shows_a_dash():
    """A compiled hook has calls and no time; that is not 0 s."""
    work = build.workload()
    hooks = {"observe": {"fair": HookMetrics(60, 60, 60)}}
    run = dataclasses.replace(build.run(work), hooks=hooks)
    text = printed(summarise(work, [run], timings=True), 100)
    (line,) = [line for line in text.splitlines() if " observe " in line]
    assert line.split()[-1] == "–"


def test_a_failing_plugin_is_told(summary):
    """What a plug-in's first failure said stands below the books."""
    assert "multifactor failed in 1 call of fair-share; the first error: ValueError: no" in printed(
        summary, 120
    )


def test_what_was_not_carried_out_is_told():
    """An action that the simulated system cannot do is a sentence on terminal and page."""
    run = dataclasses.replace(build.run(build.workload(), "mcdf", rejects=0.2), undone={"Move": 7})
    summary = summarise(build.workload(), [run])
    said = " ".join(printed(summary, 100).split())
    assert "mcdf: plug-ins asked to move running jobs (7 times, counted by job); machine" in said
    assert summary.without_timings().policies["mcdf"]["not_carried_out"] == {"Move": 7}
    assert list(undone(summarise(build.workload(), [build.run(build.workload())]))) == []


def test_jobs_that_did_not_wait_are_told():
    """A dependency on a job that does not run is a sentence with a count."""
    run = dataclasses.replace(build.run(build.workload(), "easy"), released=3)
    (said,) = undone(summarise(build.workload(), [run]))
    assert said.startswith("easy: 3 jobs did not wait for one that they depend on, as it was")


def test_planned_jobs_beyond_a_limit_are_told():
    """Planners do not know limits: the count is no measure, and stays without timings."""
    run = dataclasses.replace(build.run(build.workload(), "mcdf"), beyond_limits=2)
    summary = summarise(build.workload(), [run])
    (said,) = undone(summary)
    assert said.startswith("mcdf: 2 jobs started as planned though their account, user or QOS was")
    assert summary.without_timings().policies["mcdf"]["beyond_limits"] == 2
    assert "beyond_limits" not in summary.measures("mcdf")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (9.5, "9.5s"),
        (59.6, "1m 00s"),
        (61, "1m 01s"),
        (3599.7, "1h 00m"),
        (12_000, "3h 20m"),
        (86_399, "1d 00h"),
        (86_400 * 2.3, "2d 07h"),
        (86_400 * 340, "340d"),
        (-90, "−1m 30s"),
        (math.nan, "–"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_durations_have_their_two_greatest_units(seconds, text):
    """A wait is read at a glance, and never as `60s` or `24h`."""
    assert duration(seconds) == text


@given(st.floats(0, 1e9))
def test_durations_never_show_a_full_unit(seconds):
    """Rounding carries over."""
    text = duration(seconds)
    assert not any(part in text.split() for part in ("60s", "60m", "24h"))


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.1234, "12.3 %"),
        (0.0004, "0.04 %"),
        (0.9996, "99.96 %"),
        (-40.04, "−4,004.00 %"),
    ],
)
def test_ratios_are_per_cent(ratio, text):
    """Nearly all is not all, nearly none is not none."""
    assert percent(ratio) == text


def test_numbers_keep_three_digits():
    """Larger ones keep all before the point."""
    shown = [decimal(number) for number in (0, 0.5, 1.234, 12.34, 123.4, 12345.6)]
    assert shown == ["0", "0.500", "1.23", "12.3", "123", "12,346"]
    assert [compact(n) for n in (0, 99_999, 123_456, 1_234_567)] == ["0", "99,999", "123k", "1.23M"]


def test_quantities_go_by_name_and_unit():
    """A measure's unit decides how it is written."""
    assert quantity(7200, "mean_wait_s", "s") == "2h 00m"
    assert quantity(0.5, "miss_ratio", "1") == "50.0 %"
    assert quantity(7200.0, "user_error_max_node_s", "node s") == "2.00 node-h"
    assert quantity(3, "jobs", "jobs") == "3"
    assert quantity(None, "mean_wait_s", "s") == "–"


def test_instants_without_dates_are_spans():
    """A log that counts from its own start has no year 1970."""
    assert instant(1_700_000_000) == "2023-11-14 22:13 UTC"
    assert instant(7200) == "2h 00m after the start"


@given(st.text())
def test_visible_text_has_nothing_to_obey(text):
    """Whatever is no printable character is written out; the rest stays."""
    shown = visible(text)
    assert shown.isprintable()
    assert "\n" not in shown
    if text.isprintable():
        assert shown == text
    assert len(shortened(text, 10)) <= 10


@pytest.mark.parametrize(
    ("high_95", "says"),
    [
        (7200.0, "between 00:10 and 02:00 (80 %), too little history for a wider interval"),
        (7260.0, "between 00:10 and 02:00 (80 %), by 02:01 (95 %)"),
        (None, "between 00:10 and 02:00 (80 %)"),
    ],
)
def test_two_equal_intervals_rest_on_too_little_history(high_95: float | None, says: str) -> None:
    """A wider interval that is the same as the first one is not shown as one."""
    estimate = StartEstimate(
        "7",
        "sim",
        "ann",
        "waiting",
        "estimate",
        3600.0,
        start_low_80=600.0,
        start_high_80=7200.0,
        start_low_95=600.0,
        start_high_95=high_95,
    )
    assert starts(estimate, 0.0) == f"about 01:00, {says}"


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


def parsed(drawing):
    """Return a drawing as XML."""
    return ElementTree.fromstring(drawing)  # noqa: S314 - our own


promises = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60)


@given(promises)
def test_each_promise_is_counted_in_one_class(rows):
    """Promises, kept ones and the mean of the odds are those of a plain loop."""
    odds, kept = np.array([odds for odds, _ in rows]), np.array([good for _, good in rows], bool)
    found = reliability(odds, kept)
    assert found.promises.sum() == len(rows)
    assert (found.kept * found.promises).sum() == pytest.approx(kept.sum())
    assert (found.stated * found.promises).sum() == pytest.approx(odds.sum())
    assert (np.diff(found.stated) > 0).all()
    for stated, number in zip(found.stated, found.promises, strict=True):
        low = max(edge for edge in EDGES[:-1] if edge <= stated + 1e-12)
        high = EDGES[EDGES.index(low) + 1]
        inside = (odds >= low) & ((odds < high) | (high == 1.0))
        assert inside.sum() == number
    assert ((found.low <= found.kept) & (found.kept <= found.high)).all()
    parsed(reliability_drawing(found))
    parsed(reliability_drawing(found, standalone=False))


def test_the_interval_is_wilsons():
    """8 of 10: 0.4902 to 0.9433, as Newcombe (1998) and others print it; alone or in an array."""
    low, high = wilson([0.8, 0.8], [10, 10])
    np.testing.assert_allclose(low, 0.4902, atol=5e-5)
    np.testing.assert_allclose(high, 0.9433, atol=5e-5)
    one = share(0.8, 10)
    assert (one.low, one.high) == pytest.approx((low[0], high[0]))


def test_a_point_lies_where_its_promises_are():
    """20 promises of 95 %, 19 kept: on the dashed line; 10 kept: far below it."""
    good = reliability(np.full(20, 0.95), np.arange(20) > 0)
    bad = reliability(np.full(20, 0.95), np.arange(20) > 9)
    assert good.sentence() == (
        "Of 20 promises, stated with odds of 95.0 % on average, 95.0 % kept."
    )
    assert "stated 95.0 %: 95.0 % of 20 kept" in reliability_drawing(good)
    heights = []
    for found in (good, bad):
        circle = parsed(reliability_drawing(found)).find(".//{*}circle")
        heights.append(float(circle.get("cy")))
    assert heights[1] > heights[0]
    assert "No promise" in reliability([], []).sentence()


def test_odds_are_odds():
    """Per cent, and arrays of different lengths, are refused."""
    with pytest.raises(ValueError, match="within 0 and 1"):
        reliability([95.0], [True])
    with pytest.raises(ValueError, match="do not belong together"):
        reliability([0.95], [True, False])
