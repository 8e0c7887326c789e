"""The terminal's tables: golden text, no colours in a pipe, hostile names shown harmlessly."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path

import pytest
import report_builders as build
from rich.console import Console

from rtsched.core.chain import HookMetrics
from rtsched.report.summary import summarise
from rtsched.report.tables import show, undone

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
    assert "multifactor failed in 1 call of fair-share; the first said: ValueError: no" in printed(
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
