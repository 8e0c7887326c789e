"""What the board draws: bars where jobs are, counts of busy nodes, labels that can be read."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.daemon.questions import PromiseStatus, TimelineReport
from rtsched.rest.board.drawing import PAST, SAMPLES, WIDTH, drawing, marks

NOW = 1_800_000_000.0
SPAN = 9600.0
"""Seconds ahead; with `PAST` before now a unit is ten seconds."""
BEGIN = NOW - PAST * SPAN
UNIT = (1 + PAST) * SPAN / WIDTH


def at(units: float) -> float:
    """Return the instant that is drawn so many units from the left."""
    return BEGIN + units * UNIT


def rectangles(path: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of each rectangle of a path."""
    found = re.findall(r"M([\d.]+) (\d+)h([\d.]+)v(\d+)", path)
    numbers = [tuple(map(float, each)) for each in found]
    return [(x, y, round(x + w, 1), y + h) for x, y, w, h in numbers]


def heights(area: str) -> list[tuple[float, int]]:
    """Return until where an area has which height."""
    return [(float(x), int(y)) for y, x in re.findall(r"V(\d+)H([\d.]+)", area)]


def test_bars_are_where_the_jobs_are() -> None:
    """Node 1 to 2 from 100 to 300 units, and what began before the left edge from there."""
    report = TimelineReport(
        NOW,
        ("a", "b", "c", "d"),
        (True,) * 4,
        kind=("running", "planned", "running"),
        first=(1, 0, 3),
        count=(2, 1, 1),
        start=(at(100), at(500), at(-50)),
        end=(at(300), at(1500), at(-10)),
    )
    drawn = drawing(report, SPAN)
    assert rectangles(drawn.paths["running"]) == [(100.0, 1.0, 300.0, 3.0)]
    assert rectangles(drawn.paths["planned"]) == [(500.0, 0.0, 1000.0, 1.0)]
    assert drawn.paths["kept"] == ""
    assert [label.text for label in drawn.names] == ["a", "b", "c", "d"]
    step = WIDTH / SAMPLES
    busy = heights(drawn.load.busy)
    assert [height for _, height in busy] == [0, 2, 0, 1]
    for (until, _), exact in zip(busy[:-1], (100, 300, 500), strict=True):
        assert exact <= until < exact + step + 0.1
    assert [height for _, height in heights(drawn.load.promised)] == [0, 1]


def test_a_partition_has_its_nodes_only() -> None:
    """A job on nodes 0 to 3 is on two rows of a partition with the nodes 1 and 3."""
    report = TimelineReport(
        NOW,
        ("a", "b", "c", "d"),
        (True,) * 4,
        {"odd": (1, 3)},
        kind=("running",),
        first=(0,),
        count=(4,),
        start=(at(0),),
        end=(at(10),),
    )
    drawn = drawing(report, SPAN, "odd")
    assert drawn.rows == 2
    assert rectangles(drawn.paths["running"]) == [(0.0, 0.0, 10.0, 2.0)]
    assert [label.text for label in drawn.names] == ["b", "d"]


def test_promises_of_the_reader_are_marked() -> None:
    """Each by itself, with a rectangle for each run of nodes; not those without a plan."""
    report = TimelineReport(NOW, ("a", "b", "c", "d"), (True,) * 4)
    planned = PromiseStatus(
        "7", "model", "ann", "firm", NOW, NOW, start=at(100), end=at(200), nodes=("d", "a", "b")
    )
    unknown = PromiseStatus("8", "", "ann", "firm", NOW, NOW)
    (mark,) = marks(drawing(report, SPAN).axes, [planned, unknown])
    assert (mark.job, mark.title) == ("7", "7: planned")
    assert rectangles(mark.path) == [(100.0, 0.0, 200.0, 2.0), (100.0, 3.0, 200.0, 4.0)]


def test_an_empty_cluster_is_drawn() -> None:
    """Before the first poll there is nothing, and no error."""
    drawn = drawing(TimelineReport(NOW), SPAN)
    assert (drawn.rows, drawn.names, heights(drawn.load.busy)) == (1, (), [(1000.0, 0)])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-20, 900), st.integers(1, 400)), max_size=20)
)
def test_each_busy_node_counts_once(jobs: list[tuple[int, int, int]]) -> None:
    """However many jobs share a node, by a count at each sample."""
    report = TimelineReport(
        NOW,
        tuple("abcdef"),
        (True,) * 6,
        kind=("running",) * len(jobs),
        first=tuple(node for node, _, _ in jobs),
        count=(1,) * len(jobs),
        start=tuple(at(start + 0.25) for _, start, _ in jobs),  # never just at a sample
        end=tuple(at(start + long + 0.25) for _, start, long in jobs),
    )
    load = drawing(report, SPAN).load
    samples = np.linspace(0, WIDTH, SAMPLES + 1)[:-1]
    counted = [
        len({node for node, start, long in jobs if start + 0.25 <= x < start + long + 0.25})
        for x in samples.tolist()
    ]
    steps = heights(load.busy)
    middles = (samples + WIDTH / SAMPLES / 2).tolist()
    read = [next(height for until, height in steps if x < until) for x in middles]
    assert read == counted
