"""What figures are drawn from, against plain loops; and that every odd log can be drawn."""

import dataclasses

import numpy as np
import pytest
import report_builders as build
from hypothesis import given
from hypothesis import strategies as st

from rtsched.model.log import FinalState, Outcomes
from rtsched.replay.results import PolicyRun, Results
from rtsched.report import figures
from rtsched.report.axes import (
    DARK,
    GRID,
    INK,
    LOGGED,
    MUTED,
    PAPER,
    POLICIES,
    WAITS,
    TimeAxis,
    literal,
    look,
    span_axis,
)
from rtsched.report.figures import (
    THROUGH,
    groups,
    hours_figure,
    nodes_figure,
    occupancy_figure,
    waiting_figure,
)
from rtsched.report.scene import Scene, by_hour, mean_level, occupancy, size_classes

times = st.integers(0, 60).map(float)


@given(
    st.lists(st.tuples(times, times, st.integers(1, 9).map(float)), max_size=12),
    st.integers(1, 7),
)
def test_a_mean_level_is_its_integral(rows, points):
    """Per span of time the mean is that of the level at every half second."""
    begin, end, weight = np.array(rows).reshape(-1, 3).T
    borders = 1.7e9 + np.linspace(0, points * 9, points + 1)
    mean = mean_level(begin + 1.7e9, end + 1.7e9, weight, borders)
    fine = np.arange(0, points * 9, 0.5) + 0.25
    level = sum(w * ((b <= fine) & (fine < e)) for b, e, w in rows) + np.zeros_like(fine)
    np.testing.assert_allclose(mean, level.reshape(points, -1).mean(axis=1), atol=1e-6)


def test_hours_count_rejects_and_misses_of_their_own_submissions():
    """Each hour's fractions are of the jobs submitted in it."""
    work = build.workload(n=400)
    results = build.run(work, "mcdf", rejects=0.4).results
    hours = by_hour(work, results)
    submitted = (work.jobs.submit // 3600 % 24).astype(int)
    for hour in range(24):
        mine = submitted == hour
        assert hours.jobs[hour] == mine.sum()
        rejected = results.fate[mine] == FinalState.REJECTED
        late = ~rejected & (results.end[mine] > work.jobs.deadline[mine])
        assert hours.rejected[hour] == pytest.approx(rejected.mean())
        assert hours.missed[hour] == pytest.approx(late.mean())


def test_size_classes_hold_powers_of_two():
    """A class ends at a power of two, and only classes with jobs are named."""
    work = build.workload(n=6, nodes=64)
    jobs = work.jobs.replace(size=np.array([1, 2, 3, 4, 5, 64]))
    classes, names = size_classes(dataclasses.replace(work, jobs=jobs))
    assert names == ("1", "2", "3–4", "5–8", "33–64")
    assert classes.tolist() == [0, 1, 2, 2, 3, 4]


def test_bars_cover_each_node_of_a_job_once():
    """Neighbouring nodes make one bar; together the bars are the job's nodes."""
    work = build.workload(n=80, nodes=16)
    run = build.run(work, "easy")
    bars = figures.bars(run, -np.inf, np.inf)
    indptr, rows = run.node_rows
    for job in range(80):
        mine = np.flatnonzero(bars.job == job)
        covered = [
            node
            for low, height in zip(bars.low[mine], bars.height[mine], strict=True)
            for node in range(low, low + height)
        ]
        assert covered == rows[indptr[job] : indptr[job + 1]].tolist()
        assert (np.diff(bars.low[mine]) > bars.height[mine][:-1]).all()


def test_a_window_has_no_more_bars_than_can_be_drawn():
    """A long log is cut down to the time about its longest queue; a short one is whole."""
    work = build.workload(n=600)
    run = build.run(work)
    whole = figures.window([run], work.jobs.submit, work.outcomes.start, 5000)
    assert whole.is_whole
    assert whole.end == np.nanmax(run.results.end)
    part = figures.window([run], work.jobs.submit, work.outcomes.start, 50)
    assert not part.is_whole
    assert 0 < len(figures.bars(run, part.begin, part.end)) <= 50


def keys(work, runs) -> list[str]:
    """Return the figures of a report."""
    return [figure.key for group in groups(work, runs) for row in group.rows for figure in row]


def test_a_report_has_all_figures():
    """Waits, slowdown, occupancy, queue, nodes, hours, fairness of users and accounts."""
    work = build.workload()
    runs = [build.run(work), build.run(work, "mcdf", rejects=0.3)]
    assert keys(work, runs) == [
        "fig-waits", "fig-slowdown", "fig-occupancy", "fig-waiting", "fig-nodes", "fig-hours",
        "fig-fairness-user", "fig-errors-user", "fig-fairness-account", "fig-errors-account",
    ]  # fmt: skip


@pytest.mark.parametrize("start", [0.0, build.START])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_odd_logs_can_be_drawn(n, start):
    """One job, no dates, no outcomes, everything rejected: still a report."""
    work = build.workload(n=n, start=start, users=("one", "two"))
    blank = dataclasses.replace(work, outcomes=Outcomes.build(n))
    results = Results.build(n, fate=np.full(n, FinalState.REJECTED, np.int8))
    nowhere = PolicyRun("none", results, (np.zeros(n + 1, np.int64), np.empty(0, np.int32)))
    assert "fig-waits" in keys(work, [build.run(work)])
    assert "fig-nodes" not in keys(work, [nowhere])
    assert "fig-waits" in keys(blank, [nowhere])


def test_every_colour_has_its_dark_one_and_every_policy_its_look():
    """Eleven presets can be told apart by colour and dashes."""
    assert set(DARK) == {LOGGED, *POLICIES, *WAITS, INK, MUTED, GRID, PAPER}
    assert len(set(DARK.values())) == len(DARK)
    assert len({look(place) for place in (None, *range(11))}) == 12


def test_undated_logs_count_from_their_start():
    """A log without dates has an axis of days, one with dates has dates."""
    undated = TimeAxis.of(100.0, 100.0 + 9 * 86400)
    assert undated.title == "Days since the start of the log"
    assert undated.at(np.array([100.0 + 86400])).tolist() == [1.0]
    dated = TimeAxis.of(build.START, build.START + 60)
    assert dated.at(np.array([build.START])).tolist() == [build.START * 1000]


def test_spans_have_human_ticks():
    """A logarithmic axis of waits is marked in seconds, minutes, hours, days."""
    assert span_axis("Wait", 1.0, 90000.0)["ticktext"] == [
        "1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d",
    ]  # fmt: skip


def test_a_plots_own_markup_is_taken_apart():
    """Names with tags are shown as they are, not as links or bold text."""
    assert literal(["<b>&</b>"]) == ["&lt;b&gt;&amp;&lt;/b&gt;"]


def test_shared_nodes_are_drawn_as_such():
    """Occupancy counts service, not bookings; bars are seen through, and the caption says why."""
    work = build.workload()
    run = build.run(work)
    half = run.results.replace(service=run.results.served() / 2)
    system = {"system": {"machine": "sliced"}}
    shared = dataclasses.replace(run, policy="rr", results=half, settings=system)
    borders = np.linspace(work.jobs.submit[0], np.nanmax(run.results.end), 9)
    busy = occupancy(work, run.results, borders)
    assert occupancy(work, half, borders) == pytest.approx(busy / 2)
    scene = Scene.of(work, [run, shared])
    assert "Under rr jobs share nodes" in occupancy_figure(scene).caption
    figure = nodes_figure(scene)
    assert figure is not None
    assert "Under rr jobs share nodes" in figure.caption
    assert {trace.marker.opacity for trace in figure.plot.data} == {1.0, THROUGH}
    alone = nodes_figure(Scene.of(work, [run]))
    assert alone is not None
    assert "share nodes" not in alone.caption


def test_panels_share_their_scale():
    """Queues that are far apart, and missed and rejected jobs, are drawn to one scale."""
    work = build.workload(gap=20_000.0)
    run = build.run(work, "mcdf", rejects=0.3)
    late = run.results.replace(start=run.results.start + 1e6, end=run.results.end + 1e6)
    slow = dataclasses.replace(run, policy="slow", results=late)
    scene = Scene.of(work, [run, slow])
    waiting = waiting_figure(scene)
    assert "All panels have the same scale." in waiting.caption
    ranges = {tuple(axis.range) for axis in waiting.plot.select_yaxes()}
    assert len(ranges) == 1
    assert next(iter(ranges))[1] >= max(trace.y.max() for trace in waiting.plot.data)
    hours = hours_figure(scene)
    assert hours is not None
    assert [axis.matches for axis in hours.plot.select_yaxes()] == [None, "y"]
