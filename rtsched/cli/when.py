"""`rtsched when`: when jobs are estimated to start and end; and how good that is on a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rtsched.cli.asking import (
    gap,
    json_option,
    print_json,
    report_of,
    show_facts,
    show_table,
    socket_option,
    zone,
)
from rtsched.cli.common import (
    Exit,
    ProgressBars,
    console,
    debug_option,
    indented,
    refuse_unwritable,
    require_page,
    say,
)
from rtsched.cli.feasible import node_range, request_of, request_options
from rtsched.cli.options import from_options, reading_of, reading_options
from rtsched.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from rtsched.daemon.questions import StartEstimate, When, WhenReport
    from rtsched.estimates.settings import EstimateSettings
    from rtsched.replay.results import Workload
    from rtsched.replay.settings import WorkloadOptions
    from rtsched.report.start_accuracy import StartAccuracy
    from rtsched.simulator.settings import ExclusiveSettings

CHECKING = (
    "config", "cluster_file", "qos_file", "associations_file", "unit", "every", "starts", "draws",
    "html", "no_progress", "log_format", "delimiter", "columns", "clusters",
    "timezone",
)  # fmt: skip
"""Parameters that go with --check alone."""

OTHERS = frozenset(("job", "as_json", "path", "check", *CHECKING))
"""Parameters that say nothing of what a job asks for."""

CHECK: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--check",
        metavar="LOG",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Ask no daemon: go through this accounting log, as `rtsched replay` reads it, and "
        "show how good estimates would have been. Repeatable: several files are one log.",
    ),
    click.option(
        "--config",
        metavar="SITE.TOML",
        type=click.Path(path_type=Path),
        help="With --check: `[estimates]`, `[system]` and `[workload]` of the site.",
    ),
    click.option(
        "--cluster",
        "cluster_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="With --check: the machine, a slurm.conf, `scontrol show nodes` or `condor_status "
        "-long`. Default: from the log's header, else the peak use in the log.",
    ),
    click.option(
        "--qos-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="With --check: limits of QOS, output of `sacctmgr -P show qos`.",
    ),
    click.option(
        "--associations-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="With --check: limits of accounts and users, output of `sacctmgr -P show assoc tree`.",
    ),
    click.option(
        "--unit",
        type=click.Choice(["auto", "core", "node", "resources"]),
        help="With --check: what is allocated to one job at a time. Default: as in --config, else "
        "auto: chosen by the log and the machine.",
    ),
    click.option(
        "--every",
        metavar="SECONDS",
        type=click.FloatRange(1.0),
        default=3600.0,
        show_default=True,
        help="With --check: seconds between two estimates of all waiting jobs.",
    ),
    click.option(
        "--starts",
        type=click.Choice(["recorded", "replayed"]),
        help="With --check: compare with the starts that the log records, or with those of a "
        "replay by the simulated scheduler. Default: recorded, if the log has them.",
    ),
    click.option(
        "--draws",
        metavar="NUMBER",
        type=click.IntRange(8, 1000),
        help="With --check: simulations of each estimate. Default: as in --config, else 64.",
    ),
    click.option(
        "--html",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="With --check: write a page with plots per week, which needs no network.",
    ),
    click.option("--no-progress", is_flag=True, help="With --check: show no progress bars."),
)
"""Options of a check on a log."""


def check_options(command: Any) -> Any:
    """Give a command the options of a check on a log."""
    command = reading_options(command)
    for option in reversed(CHECK):
        command = option(command)
    return command


@click.command("when")
@click.argument("job", metavar="[JOB]", required=False)
@request_options
@click.option(
    "--gpus", "all_gpus", type=click.IntRange(1), help="GPUs on all nodes together (Slurm)."
)
@json_option
@socket_option
@check_options
@debug_option
@click.pass_context
def command(ctx: click.Context, /, job: str | None, as_json: bool, path: str, **given: Any) -> None:
    """Show when JOB, or each of your waiting jobs, is estimated to start and end.

    With options of `rtsched feasible`, show it of such a job if it were submitted now. The queue is
    simulated ahead many times, with run times drawn from users' past jobs; the answer is the median
    start and the intervals in which 80 % and 95 % of such starts lie. It is no promise. The start
    of a job with a promise is that of its plan. The exit status is 1 if there is no estimate.

    With --check LOG, no daemon is asked and nothing is changed: a table shows how often starts were
    within the intervals, and how far they were from the median and from simple predictors. The
    exit status is 1 if the 90 % intervals cover less than 87 or more than 93 % of them on the whole
    or in a window of 4,000 jobs, or less than 80 or more than 97 % in a quarter of the time or a
    third of job sizes; if the best simple predictor is as near as the median on the whole, or by
    5 % nearer in a window; or if fewer than 50 jobs were judged.
    """
    checking = {name: given.pop(name) for name in ("check", *CHECKING)}
    if checking["check"]:
        if job or _describes(ctx):
            raise click.UsageError("--check goes through a log: give no job, and none of its needs")
        ctx.exit(_check_log(checking, as_json=as_json))
    _refuse_alone(ctx)
    report: WhenReport = report_of(_question(ctx, job or "", given), path)
    if as_json:
        print_json(report)
    else:
        show(console(), report, alone=bool(job) or _describes(ctx))
    known = any(each.basis != "none" for each in report.jobs) or not report.jobs
    ctx.exit(Exit.GOOD if known else Exit.FINDINGS)


def _describes(ctx: click.Context) -> bool:
    """Return whether options say what a job asks for that is not submitted."""
    given = ParameterSource.COMMANDLINE
    return any(ctx.get_parameter_source(name) is given for name in ctx.params if name not in OTHERS)


def _refuse_alone(ctx: click.Context) -> None:
    """Refuse options of a check where there is none."""
    given = ParameterSource.COMMANDLINE
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in CHECKING and ctx.get_parameter_source(name) is given:
            raise click.UsageError(f"{parameter.opts[0]} goes with --check LOG")


def _question(ctx: click.Context, job: str, given: dict[str, Any]) -> When:
    from rtsched.daemon.questions import When

    if not _describes(ctx):
        return When(job)
    if job:
        raise click.UsageError("give a JOB, or what a job would ask for, not both")
    all_gpus = given.pop("all_gpus")
    if all_gpus is not None:
        if given["gpus"] is not None:
            raise click.UsageError("give --gpus or --gpus-per-node, not both")
        least, _ = node_range(given["nodes"])
        if all_gpus % least:
            raise click.BadParameter(
                f"{all_gpus} GPUs cannot be divided among {least} nodes; give --gpus-per-node",
                param_hint="--gpus",
            )
        given["gpus"] = all_gpus // least
    return When(request=request_of(**given))


def show(out: Console, report: WhenReport, *, alone: bool) -> None:
    """Print a report: all of one job, or a table of several."""
    if alone:
        for each in report.jobs:
            _show_one(out, each, report.now)
    elif report.jobs:
        _show_table(out, report)
    else:
        out.print("no waiting jobs")
    facts = []
    if report.estimated is not None:
        facts.append(("estimated", gap(min(report.estimated, report.now), report.now)))
    if report.problem:
        facts.append(("note", report.problem))
    if report.more:
        facts.append(("more", f"{report.more:,} jobs are not listed"))
    show_facts(out, facts)


def _show_one(out: Console, estimate: StartEstimate, now: float) -> None:
    from rtsched.cli.asking import when
    from rtsched.report.wording import ends, sentence, starts

    named = f"job {estimate.job}" if estimate.job else "such a job"
    if estimate.state == "running":
        indented(out, f"{named} has run since {when(estimate.start, now)}", 0, "bold")
        what = ends(estimate, now) if estimate.basis != "none" else estimate.why
        facts = [("ends", what)]
        if estimate.latest is not None:
            facts.append(("at the latest", when(estimate.latest, now)))
        show_facts(out, facts)
        return
    if estimate.basis == "none":
        indented(out, f"{named}: no estimate: {sentence(estimate, now)}", 0, "bold")
    else:
        indented(out, f"{named} starts {starts(estimate, now)}", 0, "bold")
        show_facts(out, [("ends", ends(estimate, now))])
    reasons = [f"{r.text} ({r.code})" if r.code else r.text for r in estimate.waits]
    show_facts(out, [("waits" if not at else "", text) for at, text in enumerate(reasons)])


def _show_table(out: Console, report: WhenReport) -> None:
    from rtsched.report.wording import MISSING, TOO_LITTLE, about, interval, shortened

    now, rows = report.now, []
    for each in report.jobs:
        note = {"plan": "as promised", "none": each.why}.get(each.basis, "")
        inner = (each.start_low_80, each.start_high_80)
        outer = (each.start_low_95, each.start_high_95)
        if inner == outer and any(inner):
            outer, note = (None, None), note or TOO_LITTLE
        rows.append(
            [
                each.job,
                shortened(each.name, 24),
                MISSING if each.start is None else about(each.start, now),
                interval(*inner, now),
                interval(*outer, now),
                MISSING if each.end is None else about(each.end, now),
                note,
            ]
        )
    titles = ["job", "name", f"starts ({zone(now)})", "80 %", "95 %", "ends", ""]
    show_table(out, titles, rows, lines=True)


_MOST_INSTANTS = 1_000_000
"""Instants at the most; a log of a hundred years has fewer, every hour."""


@dataclass(frozen=True)
class _Asked:
    """What the command line asks for."""

    logs: tuple[Path, ...]
    given: Mapping[str, Any]
    settings: EstimateSettings
    system: ExclusiveSettings
    workload: Mapping[str, Any]


def _check_log(given: Mapping[str, Any], *, as_json: bool) -> Exit:
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
    with ProgressBars(not given["no_progress"]) as bars:
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


def _asked(given: Mapping[str, Any]) -> _Asked:
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
    return _Asked(tuple(given["check"]), given, settings, system, workload)


def _read(asked: _Asked) -> Workload:
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


def _check(asked: _Asked, workload: Workload, bars: ProgressBars) -> tuple[StartAccuracy, str]:
    """Return how good the estimates were, and whose starts they were compared with."""
    import numpy as np

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
    if not math.isfinite(every):
        raise ConfigError([f"--every is {every} seconds; give a number"])
    submit = workload.jobs.submit
    instants = (float(submit[-1]) - float(submit[0])) / every if len(submit) else 0.0
    if instants > _MOST_INSTANTS:
        years = instants * every / (365.25 * 86400)
        raise InputError(
            workload.named,
            f"its submissions span {years:,.3g} years, {instants:,.0f} instants; check its times, "
            "or raise --every",
        )


def _named(asked: _Asked) -> str:
    from rtsched.report.wording import shortened

    return shortened(", ".join(path.name for path in asked.logs), 80)


def _facts(
    asked: _Asked, workload: Workload, found: StartAccuracy, starts: str
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


def _write_page(asked: _Asked, workload: Workload, found: StartAccuracy, starts: str) -> None:
    from rtsched.report import files, start_accuracy

    title = f"Start estimates on {_named(asked)}"
    facts = _facts(asked, workload, found, starts)
    text = start_accuracy.page(found, title, facts, tuple(workload.assumptions))
    files.write_text(asked.given["html"], text)


def _print_json(asked: _Asked, workload: Workload, found: StartAccuracy, starts: str) -> None:
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


def _show(asked: _Asked, workload: Workload, found: StartAccuracy, starts: str) -> None:
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
