"""What the page says first: sentences, tiles, marks, and with whom policies are compared."""

from __future__ import annotations

import dataclasses

import report_builders as build

from rtsched.replay.policies import baseline
from rtsched.report.html import lines, sentences, tiles
from rtsched.report.rows import ROWS, best
from rtsched.report.summary import Summary, summarise

DEADLINES = (
    "60 of 60 jobs got a deadline that the log does not give: 4 times the requested time after "
    "submission."
)


def summary(*names: str, rejects: float = 0.0, said: tuple[str, ...] = ()) -> Summary:
    """Return the summary of runs of these names, of which the last may reject jobs."""
    work = build.workload()
    work = dataclasses.replace(work, assumptions=(*work.assumptions, *said))
    runs = [build.run(work, name) for name in names[:-1]]
    return summarise(work, [*runs, build.run(work, names[-1], rejects=rejects)])


def test_the_policy_that_stands_for_the_site():
    """`site` where a configuration names it, else the first that was asked for."""
    assert baseline(["fcfs", "site", "easy"]) == "site"
    assert baseline(["fcfs", "easy"]) == "fcfs"
    assert baseline([]) == ""


def test_policies_are_compared_with_the_site_and_not_with_the_log():
    """Neither the log nor the site itself has a difference; the sentence names the site."""
    found = summary("fcfs", "easy")
    wait = next(line for line in lines(found) if line.label == "wait, mean")
    logged, fcfs, easy = wait.cells
    assert logged.difference == fcfs.difference == ""
    measures = [found.measures(name)["mean_wait_s"] for name in ("fcfs", "easy")]
    assert measures[1] < measures[0]
    gap = 100 * (1 - measures[1] / measures[0])
    assert easy.difference == f"−{gap:.1f} %"
    first = sentences(found)[0]
    assert first.startswith("Under easy jobs wait ")
    assert first.endswith(f"that is {gap:.1f} % less than under fcfs.")
    assert "log" not in first


def test_a_site_that_rejects_jobs_is_no_measure_of_waits():
    """Its waits are those of fewer jobs."""
    work = build.workload()
    runs = [build.run(work, "site", rejects=0.3), build.run(work, "easy")]
    assert "than under site" not in sentences(summarise(work, runs))[0]


def test_the_log_wins_nothing():
    """Only policies have marks; one alone has none."""
    for line in lines(summary("fcfs", "easy")):
        assert not line.cells[0].wins
    for line in lines(summary("fcfs")):
        assert not any(cell.wins for cell in line.cells)
    for tile in tiles(summary("fcfs", "easy")):
        assert not tile.bars[0].wins


def test_no_best_wait_where_policies_started_different_jobs():
    """Who rejects jobs has shorter queues; what ended in time, of all jobs, is still compared."""
    found = summary("fcfs", "easy", rejects=0.5)
    columns = [found.measures(name) for name in found.policies]
    rows = {row.measure: row for row in ROWS}
    for name in ("mean_wait_s", "max_wait_s", "mean_bounded_slowdown", "miss_ratio"):
        assert best(rows[name], columns) == set()
    assert best(rows["in_time_ratio"], columns)
    same = summary("fcfs", "easy")
    assert best(rows["mean_wait_s"], [same.measures(name) for name in same.policies]) == {1}


def test_a_tile_says_that_deadlines_are_assumed():
    """On the tile itself, not only in the list of assumptions."""
    (assumed,) = [t for t in tiles(summary("easy", said=(DEADLINES,))) if "in time" in t.label]
    assert assumed.hint == "higher is better; deadlines are assumed"
    (known,) = [t for t in tiles(summary("easy")) if "in time" in t.label]
    assert known.hint == "higher is better"


def test_deadlines_are_compared_over_all_that_were_submitted():
    """A policy that rejects jobs does not look better for it."""
    found = summary("fcfs", "easy", rejects=0.3)
    parts = []
    for name in found.policies:
        measures = found.measures(name)
        in_time = round(100 * measures["in_time"] / found.log["jobs_with_deadline"], 1)
        rejected = f" ({100 * measures['reject_ratio']:.1f} % rejected)"
        parts.append(f"{name} {in_time} %" + (rejected if measures["rejected"] else ""))
    assert sentences(found)[-1].endswith(f"of all that were submitted: {', '.join(parts)}.")


def test_waits_are_also_compared_over_the_jobs_that_all_started():
    """Beside each policy's own."""
    found = summary("fcfs", "easy", rejects=0.3)
    for name in found.policies:
        own, common = (found.measures(name)[f"mean_{k}wait_s"] for k in ("", "common_"))
        assert (own == common) == bool(found.measures(name)["rejected"])
    assert "of common jobs" in [line.label for line in lines(found)]
    assert "of common jobs" not in [line.label for line in lines(summary("fcfs", "easy"))]
