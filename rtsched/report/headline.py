"""Headline of the page: two sentences, bars, and the table with differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rtsched.replay.measures import MEASURES
from rtsched.replay.policies import baseline
from rtsched.report.axes import look
from rtsched.report.rows import LOGGED, ROWS, Row, best, shown
from rtsched.report.wording import decimal, duration, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.report.summary import Summary

TILES = ("mean_wait_s", "mean_bounded_slowdown", "in_time_ratio", "reject_ratio", "utilisation")
"""Measures shown as bars; those that are 0 for all are left out."""

MOST_NAMED = 5
"""Policies that a sentence names one by one."""


@dataclass(frozen=True)
class Bar:
    """One policy in a tile."""

    name: str
    value: str
    share: float
    variable: str
    wins: bool


@dataclass(frozen=True)
class Tile:
    """One measure of all policies, as bars from zero."""

    label: str
    hint: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Cell:
    """One policy's value of one measure.

    Attributes
    ----------
    value : str
        As people read it.
    difference : str
        From the value of the `baseline`; empty where that is not known or there is none.
    course : str
        `better`, `worse` or empty.
    wins : bool
        Whether no policy is better.
    """

    value: str
    difference: str = ""
    course: str = ""
    wins: bool = False


@dataclass(frozen=True)
class Line:
    """One row of the comparison."""

    label: str
    definition: str
    cells: tuple[Cell, ...]


def columns(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """Return the measures by what they are of: the log itself, then the policies in order."""
    return {LOGGED: summary.measures()} | {
        name: summary.measures(name) for name in summary.policies
    }


def tiles(summary: Summary) -> list[Tile]:
    """Return the measures that a head of computing asks for first."""
    named = columns(summary)
    made = []
    rows = {row.measure: row for row in ROWS}
    for name in TILES:
        values = [measures.get(name) for measures in named.values()]
        top = max((value for value in values if value is not None), default=0.0)
        if not top:
            continue
        row = rows[name]
        wins = best(row, list(named.values())[1:])
        bars = tuple(
            Bar(
                policy,
                _short(row, measures),
                max((measures.get(name) or 0.0) / top, 0.0),
                look(place - 1 if place else None).variable,
                place - 1 in wins,
            )
            for place, (policy, measures) in enumerate(named.items())
        )
        hint = "higher is better" if MEASURES[name].better > 0 else "lower is better"
        if name == "in_time_ratio" and "deadlines" in summary.assumptions:
            hint += "; deadlines are assumed"
        made.append(Tile(_TITLES[name], hint, bars))
    return made


_TITLES = {
    "mean_wait_s": "Mean wait",
    "mean_bounded_slowdown": "Bounded slowdown",
    "in_time_ratio": "Ended in time",
    "reject_ratio": "Rejected jobs",
    "utilisation": "Utilisation",
}


def _short(row: Row, measures: Mapping[str, Any]) -> str:
    value = measures.get(row.measure)
    return percent(value) if row.count else row.cell(measures)


def lines(summary: Summary) -> list[Line]:
    """Return the comparison, each policy's value with its difference from the `baseline`'s."""
    named = columns(summary)
    base = named.get(baseline(summary.policies), {})
    made = []
    for row in shown(list(named.values())):
        wins = best(row, list(named.values())[1:])
        cells = tuple(
            Cell(row.cell(measures), *_difference(row, measures, base), place - 1 in wins)
            if place and measures is not base
            else Cell(row.cell(measures), wins=place - 1 in wins)
            for place, measures in enumerate(named.values())
        )
        made.append(Line(row.label, MEASURES[row.measure].definition, cells))
    return made


def _difference(row: Row, measures: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, str]:
    """Return how far a value is from another, and whether that is for the better."""
    value, base = measures.get(row.measure), other.get(row.measure)
    if value is None or base is None or row.total or row.measure == "jobs":
        return "", ""
    if row.count or row.measure.endswith("ratio") or row.measure.endswith("utilisation"):
        gap = 100 * (value - base)
        text = f"{gap:+.1f} pp"
    elif not base:
        return "", ""
    else:
        gap = 100 * (value / base - 1)
        text = f"×{decimal(value / base)}" if gap >= 1000 else f"{gap:+.1f} %"
    if abs(gap) < 0.05:
        return "±0", ""
    good = (gap > 0) == (MEASURES[row.measure].better > 0)
    return text.replace("-", "−"), "better" if good else "worse"


def sentences(summary: Summary) -> list[str]:
    """Return what stands out, in words: the shortest waits, and deadlines."""
    policies = {name: summary.measures(name) for name in summary.policies}
    return [
        *_on_waits(policies, baseline(policies)),
        *_on_deadlines(policies, summary.log.get("jobs_with_deadline", 0), summary.log["jobs"]),
    ]


def _on_waits(policies: Mapping[str, Mapping[str, Any]], base: str) -> list[str]:
    """Tell who waits least; of those that turn jobs away and of those that do not, apart."""
    known = {name: some for name, some in policies.items() if some.get("mean_wait_s") is not None}
    if not known:
        return ["No job started under any of the policies."]
    all_in = {name: some for name, some in known.items() if not some.get("reject_ratio")}
    notes = [_on_least(all_in, base)] if all_in else []
    least, wait = _least(known)
    if least not in all_in:
        turned = percent(known[least]["reject_ratio"])
        than = " less still," if all_in else ""
        alone = known[least].get("mean_baseline_wait_s")
        others = ""
        if alone is not None and base != least:
            others = f"; under {base} the others alone would wait {duration(alone)}"
        notes.append(
            f"Under {least} jobs wait{than} {duration(wait)}, but {turned} of them are rejected"
            f"{others}."
        )
    return notes


def _least(policies: Mapping[str, Mapping[str, Any]]) -> tuple[str, float]:
    name = min(policies, key=lambda key: float(policies[key]["mean_wait_s"]))
    return name, policies[name]["mean_wait_s"]


def _on_least(policies: Mapping[str, Mapping[str, Any]], base: str) -> str:
    """Tell whose jobs wait least, and how much less than under the `baseline`."""
    name, wait = _least(policies)
    text = f"Under {name} jobs wait {duration(wait)} on average"
    if len({duration(some["mean_wait_s"]) for some in policies.values()}) > 1:
        text += f", the least of the {len(policies)} policies that accept every job"
    usual = policies[base]["mean_wait_s"] if base in policies else 0.0
    if usual > 0 and (less := 1 - wait / usual) >= 0.005:
        text += f"; that is {percent(less)} less than under {base}"
    return f"{text}."


def _on_deadlines(
    policies: Mapping[str, Mapping[str, Any]], with_deadline: int, jobs: int
) -> list[str]:
    if not with_deadline:
        return ["No job has a deadline."]
    who = (
        "Every job has"
        if with_deadline == jobs
        else f"{percent(with_deadline / jobs)} of the jobs have"
    )
    parts = []
    for name, measures in policies.items():
        rejected, in_time = measures.get("reject_ratio"), measures.get("in_time_ratio")
        more = f" ({percent(rejected)} rejected)" if rejected else ""
        parts.append((in_time or 0.0, f"{name} {percent(in_time)}{more}"))
    if len(parts) > MOST_NAMED:
        few, most = min(parts)[1], max(parts)[1]
        return [f"{who} a deadline. Most end in time under {most}, fewest under {few}."]
    named = ", ".join(text for _, text in parts)
    return [f"{who} a deadline. In time end, of all that were submitted: {named}."]
