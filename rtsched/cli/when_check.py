"""`rtsched when --check LOG`: how good start estimates would have been on a site's own log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.cli.asking import show_facts, show_table
from rtsched.cli.common import (
    Bars,
    Exit,
    console,
    indented,
    refuse_unwritable,
    require_page,
    say,
)
from rtsched.cli.options import from_options, reading_of
from rtsched.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rtsched.estimates.settings import EstimateSettings
    from rtsched.replay.results import Workload
    from rtsched.replay.settings import WorkloadOptions
    from rtsched.report.start_accuracy import StartAccuracy
    from rtsched.simulator.settings import ExclusiveSettings

MOST_INSTANTS = 1_000_000
"""Instants at the most; a log of a hundred years has fewer, every hour."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    logs: tuple[Path, ...]
    given: Mapping[str, Any]
    settings: EstimateSettings
    system: ExclusiveSettings
    workload: Mapping[str, Any]


def run(given: Mapping[str, Any], *, as_json: bool) -> Exit:
    """Check the estimates on a log and report; return the exit status.

    Raises
    ------
    RtschedError
        For everything that is wrong with options, files and the log.
    """
    asked = _asked(given)
    if given["html"] is not None:
        read = (given[name] for name in ("config", "cluster_file", "qos_file", "associations_file"))
        refuse_unwritable(
            given["html"],
            "--html",
            is_directory=False,
            replaces=True,
            inputs=(*asked.logs, *read),
        )
        require_page("the HTML page")
    with Bars(not given["no_progress"]) as bars:
        with bars.step("reading"):
            workload = _read(asked)
        found, starts = _check(asked, workload, bars)
        if given["html"] is not None:
            _write_page(asked, workload, found, starts)
    if as_json:
        _print_json(asked, workload, found, starts)
    else:
        _show(asked, workload, found, starts)
    if given["html"] is not None:
        say(f"wrote {given['html']}")
    return Exit.GOOD if found.holds else Exit.FINDINGS


def _asked(given: Mapping[str, Any]) -> Asked:
    """Return what is asked for, over what the site's file says."""
    import msgspec

    from rtsched.cli.check import load_checked
    from rtsched.core.config import read_toml
    from rtsched.core.plugins import discover
    from rtsched.estimates.settings import EstimateSettings
    from rtsched.model.units import known_zone
    from rtsched.simulator.settings import ExclusiveSettings

    known_zone(given["timezone"])
    settings, system = EstimateSettings(), ExclusiveSettings()
    workload: Mapping[str, Any] = {}
    if given["config"] is not None:
        site = load_checked(given["config"], discover())
        settings = site.estimates
        system = site.system if isinstance(site.system, ExclusiveSettings) else system
        workload = read_toml(given["config"]).get("workload", {})
    draws = settings.draws if given["draws"] is None else given["draws"]
    # the clock of this machine has no say in what the answer is
    settings = msgspec.structs.replace(settings, draws=draws, longest=float("inf"))
    return Asked(tuple(given["check"]), given, settings, system, workload)


def _read(asked: Asked) -> Workload:
    """Return the log, ready to be replayed, as `rtsched replay` reads it; and with job names.

    A job without a requested time has no limit here: estimates must not know its run time.
    """
    from dataclasses import replace

    from rtsched.cli.replay import proposed_settings
    from rtsched.logs.cluster_files import read_cluster
    from rtsched.logs.readers import read_logs
    from rtsched.logs.slurm_limits import read_limits
    from rtsched.replay.workload import prepare

    given = asked.given
    reading = reading_of(given, details=True, resources=True)
    log, cluster = read_logs(asked.logs, reading), None
    if given["cluster_file"] is not None:
        cluster, notes = read_cluster(given["cluster_file"])
        log = replace(log, assumptions=(*log.assumptions, *notes))
    limits = None
    if given["qos_file"] is not None or given["associations_file"] is not None:
        limits = read_limits(given["qos_file"], given["associations_file"], given["cluster_file"])
    proposed = proposed_settings(asked.logs[0]) if log.format == "swf" else {}
    options = _workload_options({**proposed, **asked.workload}, given)
    return prepare(log, options, cluster, limits, assume_requested=False)


def _workload_options(base: Mapping[str, Any], given: Mapping[str, Any]) -> WorkloadOptions:
    from rtsched.replay.settings import WorkloadOptions

    unit = {} if given["unit"] is None else {"unit": given["unit"]}
    return from_options(WorkloadOptions, {}, {**base, **unit, "deadline_rule": "none"})


def _check(asked: Asked, workload: Workload, bars: Bars) -> tuple[StartAccuracy, str]:
    """Return how good the estimates were, and whose starts they were compared with."""
    from rtsched.estimates.check import check, recorded, replayed
    from rtsched.report.start_accuracy import StartAccuracy

    every = asked.given["every"]
    _refuse_endless(workload, every)
    starts = asked.given["starts"]
    if starts is None:
        known = np.isfinite(workload.outcomes.start).any()
        starts = "recorded" if known else "replayed"
    if starts == "recorded":
        course = recorded(workload)
    else:
        with bars.step("replaying"):
            course = replayed(workload, asked.system)
    with bars.step("estimating") as progress:
        checked = check(
            workload, course, asked.settings, asked.system, step=every, progress=progress
        )
    return StartAccuracy.of(checked), starts


def _refuse_endless(workload: Workload, every: float) -> None:
    """Refuse a log over which the instants have no end, before any work."""
    if not np.isfinite(every):
        raise ConfigError([f"--every is {every} seconds; give a number"])
    submit = workload.jobs.submit
    instants = (float(submit[-1]) - float(submit[0])) / every if len(submit) else 0.0
    if instants > MOST_INSTANTS:
        years = instants * every / (365.25 * 86400)
        raise InputError(
            workload.named,
            f"its submissions span {years:,.3g} years, {instants:,.0f} instants; check its times, "
            "or raise --every",
        )


def _named(asked: Asked) -> str:
    from rtsched.report.wording import shortened

    return shortened(", ".join(path.name for path in asked.logs), 80)


def _facts(
    asked: Asked, workload: Workload, found: StartAccuracy, starts: str
) -> list[tuple[str, str]]:
    from rtsched.report.start_accuracy import span
    from rtsched.report.wording import count, duration
    from rtsched.text import counted

    whose = "as the log records them" if starts == "recorded" else "of a replay by the scheduler"
    each = duration(asked.given["every"])
    times, by = count(found.instants), counted(asked.settings.draws, "simulation")
    left_out = workload.skipped.count.total()
    skipped = f", {counted(left_out, 'record')} skipped" if left_out else ""
    return [
        ("jobs", f"{count(len(workload.jobs))}{skipped}"),
        ("starts", whose),
        ("judged", span(found)),
        ("estimated", f"all waiting jobs every {each}, {times} times, by {by} each"),
    ]


def _write_page(asked: Asked, workload: Workload, found: StartAccuracy, starts: str) -> None:
    from rtsched.report import files, start_accuracy

    title = f"Start estimates on {_named(asked)}"
    facts = _facts(asked, workload, found, starts)
    text = start_accuracy.page(found, title, facts, tuple(workload.assumptions))
    files.write_text(asked.given["html"], text)


def _print_json(asked: Asked, workload: Workload, found: StartAccuracy, starts: str) -> None:
    import click
    import msgspec

    from rtsched.report.wording import visible

    report = {
        "logs": [str(path) for path in asked.logs],
        "jobs": len(workload.jobs),
        "skipped": workload.skipped.count.total(),
        "starts": starts,
        "every_s": asked.given["every"],
        "draws": asked.settings.draws,
        "assumptions": [visible(each) for each in workload.assumptions],
        **found.as_object(),
    }
    click.echo(msgspec.json.encode(report).decode())


def _show(asked: Asked, workload: Workload, found: StartAccuracy, starts: str) -> None:
    from rtsched.report.start_accuracy import ERROR_TITLES, TITLES

    out = console()
    indented(out, _named(asked), 0, "bold")
    show_facts(out, _facts(asked, workload, found, starts))
    out.print()
    if workload.assumptions:
        indented(out, "Assumed", 0, "bold")
        for sentence in workload.assumptions:
            indented(out, sentence, 2, lead="- ")
        out.print()
    show_table(out, TITLES, [part.cells() for part in found.parts])
    out.print()
    show_table(out, ERROR_TITLES, [part.error_cells() for part in found.parts])
    out.print()
    indented(out, found.steadiness(), 0)
    indented(out, found.verdict(), 0, "bold")
