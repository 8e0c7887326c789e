"""`rtsched replay`: an accounting log under several policies, side by side."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import (
    KEPT,
    Exit,
    Partial,
    ProgressBars,
    complain,
    console,
    debug_option,
    indented,
    refuse_unwritable,
    require_page,
    say,
    toml_text,
)
from rtsched.cli.options import from_options, options_of, reading_of, reading_options, title_option
from rtsched.errors import ConfigError, InputError, MissingExtraError
from rtsched.loading import loading
from rtsched.model import on_disk
from rtsched.model.units import known_zone
from rtsched.replay.policies import RECOMMENDED, presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.uncompiled import (
    SHORT,
    NotCompiled,
    again_uncompiled,
    compile_beside,
    may_restart,
    unless_compiling,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtsched.core.plugins import Found
    from rtsched.logs.readers import ReadOptions
    from rtsched.logs.sacctmgr import Outage
    from rtsched.logs.slurm_reservations import Reservation
    from rtsched.replay.checkpoints import Checkpoints
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload
    from rtsched.report.files import TableFormat
    from rtsched.report.summary import Summary

REPORT = "report.html"

UNCOMPILED = "rtsched: this short log is replayed uncompiled; "
COMPILED_BESIDE = "kernels are compiled once, in the background (process {}), which takes minutes"
NOT_BESIDE = "kernels are not compiled in the background, as no process could be started ({})"

ON_DISK = 8_000_000
"""Jobs from which the log, and what policies made of it, are on disk: about 1 GB each."""

WITHOUT_SITE = ("easy", "edf-easy", "multifactor", RECOMMENDED)
WITH_SITE = ("site", "easy")


def policy_names(asked: Sequence[str], *, has_site: bool) -> list[str]:
    """Return the names of `--policy a,b --policy c` in that order, each once; or the default.

    Raises
    ------
    ConfigError
        If a name is empty.
    """
    names: list[str] = []
    for group in asked:
        parts = [part.strip() for part in group.split(",")]
        if not all(parts):
            raise ConfigError([f"--policy: {group!r} has an empty name; write NAME or NAME,NAME"])
        names += parts
    return list(dict.fromkeys(names or (WITH_SITE if has_site else WITHOUT_SITE)))


@dataclass(frozen=True)
class Arguments:
    """What the command line asks for, checked as far as it can be before the work begins."""

    logs: tuple[Path, ...]
    reading: ReadOptions
    cluster: Path | None
    qos: Path | None
    associations: Path | None
    outages: Path | None
    reservations: Path | None
    options: Mapping[str, Any]
    site_workload: Mapping[str, Any]
    policies: Mapping[str, Policy]
    found: Mapping[str, Found]
    sharing: bool | None
    out: Path | None
    html: Path | None
    title: str | None
    table_format: TableFormat
    strict: bool
    as_json: bool
    progress: bool
    workers: int
    dask: str | None
    resume: bool
    may_restart: bool
    """Whether the program starts again, uncompiled, where kernels would have to be compiled."""


def list_policies(config: Path | None, as_json: bool) -> None:
    """Print the policies that there are: those of a site.toml, then the presets."""
    from rtsched.cli.check import load_checked
    from rtsched.core.plugins import discover

    known = {} if config is None else load_checked(config, discover()).policies()
    rows = [
        {"name": name, "description": summary_of(policy), "from": where}
        for where, policies in (("config", known), ("preset", presets()))
        for name, policy in policies.items()
        if where == "config" or name not in known
    ]
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(rows).decode())
        return
    out, width = console(), max(len(row["name"]) for row in rows) + 2
    for row in rows:
        indented(out, row["description"], width, lead=row["name"])


def summary_of(policy: Policy) -> str:
    """Return a policy in one line: its description, else its scheduler and plug-ins."""
    if policy.description:
        return policy.description
    plugins = ", ".join(entry.name for entry in policy.plugin) or "none"
    return f"{policy.system.loop}; plug-ins: {plugins}"


def request(given: Mapping[str, Any]) -> Arguments:
    """Return what is asked for.

    Raises
    ------
    RtschedError
        For everything that is wrong with it: settings, policies, places that cannot be written.
    """
    from rtsched.cli.check import load_checked, problems_by_unit
    from rtsched.core.config import read_toml
    from rtsched.core.plugins import discover
    from rtsched.replay.policies import Sweep, choose, swept

    if not given["logs"]:
        raise click.UsageError("give at least one LOG")
    if given["dask"] is not None and given["workers"] > 1:
        raise click.UsageError("--dask and --workers exclude each other")
    if given["resume"] and given["no_out"]:
        raise click.UsageError("--resume and --no-out exclude each other")
    if given["title"] and (given["no_report"] or (given["no_out"] and given["html"] is None)):
        raise click.UsageError(
            "--title needs a report; leave out --no-report, or name it by --html"
        )
    found = discover()
    site = load_checked(given["config"], found) if given["config"] else None
    site_workload = read_toml(given["config"]).get("workload", {}) if site else {}
    options = {name: given[name] for name in WorkloadOptions.__struct_fields__}
    workload = from_options(WorkloadOptions, options, site_workload)
    workload.rules()
    known_zone(given["timezone"])  # checked here, because not every format asks for it
    policies = choose(policy_names(given["asked"], has_site=site is not None), site)
    policies = swept(policies, [Sweep.parse(text) for text in given["sweeps"]])
    tables = {f"policy {name}: ": policy for name, policy in policies.items()}
    problems, sharing = problems_by_unit(tables, found, workload)
    if problems:
        raise ConfigError(problems)
    out = None if given["no_out"] else given["out"]
    return Arguments(
        logs=given["logs"],
        reading=reading_of(given, resources=True),
        cluster=given["cluster_file"],
        qos=given["qos_file"],
        associations=given["associations_file"],
        outages=given["outages_file"],
        reservations=given["reservations_file"],
        options=options,
        site_workload=site_workload,
        policies=policies,
        found=found,
        sharing=sharing,
        out=out,
        html=_report_place(given["html"], out, given["logs"], no_report=given["no_report"]),
        title=given["title"],
        table_format=_table_format(given["table_format"], out),
        strict=given["strict"],
        as_json=given["as_json"],
        progress=not given["no_progress"],
        workers=given["workers"],
        dask=given["dask"],
        resume=given["resume"],
        may_restart=given["dask"] is None and may_restart(given["logs"]),
    )


def _report_place(
    html: Path | None, out: Path | None, logs: Sequence[Path], *, no_report: bool
) -> Path | None:
    """Return where the report goes; None for nowhere."""
    if html is not None and no_report:
        raise click.UsageError("--html and --no-report exclude each other")
    if out is not None:
        refuse_unwritable(out, "--out", is_directory=True)
    if html is not None:
        refuse_unwritable(html, "--html", is_directory=False, replaces=True, inputs=logs)
        require_page("the HTML report")
        return html
    if no_report or out is None:
        return None
    try:
        require_page("the HTML report")
    except MissingExtraError as error:
        complain("warning", f"no HTML report is written: {error}; use --no-report to silence this")
        return None
    return out / REPORT


def _table_format(asked: TableFormat | None, out: Path | None) -> TableFormat:
    from rtsched.report.files import writer_of

    if out is None or asked == "csv":
        return "csv"
    try:
        writer_of("parquet")
    except MissingExtraError:
        if asked is not None:
            raise
        return "csv"
    return "parquet"


def perform(asked: Arguments) -> Exit:
    """Read, replay and report; return the exit status.

    Raises
    ------
    NotCompiled
        If it is a short replay, and a kernel was not compiled yet.
    """
    with loading():
        from rtsched.replay.parallel import connected
        from rtsched.report.summary import summarise

    with ProgressBars(asked.progress) as bars, ExitStack() as cluster:
        client = None
        if asked.dask is not None:  # before the log is read, which may take long
            client = cluster.enter_context(connected(asked.dask))
        with bars.step("reading"):
            workload, unusable = load(asked)
            if len(workload.jobs) >= ON_DISK:
                workload = on_disk.mapped(workload)
            checkpoints = checkpoints_of(asked, workload)
        if len(workload.jobs) * ceil(len(asked.policies) / asked.workers) > SHORT:
            asked = replace(asked, may_restart=False)
        with unless_compiling(asked.may_restart):
            runs = run_all(asked, workload, bars, checkpoints, client)
        if runs:
            with bars.step("reporting"):
                summary = summarise(workload, runs, timings=True)
                keep(asked, workload, runs, summary)
    if runs:
        say_results(asked, summary)
    if len(runs) < len(asked.policies):
        raise Partial(
            _progress_text(asked, runs, resumable=checkpoints is not None and checkpoints.any)
        )
    if checkpoints is not None:
        checkpoints.discard()
    failed = any(
        book.errors for run in runs for hook in run.hooks.values() for book in hook.values()
    )
    return Exit.FINDINGS if failed or (asked.strict and unusable) else Exit.GOOD


def load(asked: Arguments) -> tuple[Workload, int]:
    """Return the workload, and how many records of the log were unusable."""
    from rtsched.logs.cluster_files import read_cluster
    from rtsched.logs.readers import read_logs
    from rtsched.logs.sacctmgr import read_outages
    from rtsched.logs.slurm_limits import read_limits, read_preemption
    from rtsched.logs.slurm_reservations import read_reservations
    from rtsched.model.preemption import SitePreemption
    from rtsched.replay.workload import prepare

    limits = None
    if asked.qos is not None or asked.associations is not None:
        limits = read_limits(asked.qos, asked.associations, asked.cluster)
    log, cluster, preemption = read_logs(asked.logs, asked.reading), None, SitePreemption()
    if asked.cluster is not None:
        preemption = read_preemption(asked.cluster)
        cluster, notes = read_cluster(asked.cluster)
        log = replace(log, assumptions=(*log.assumptions, *notes))
    proposed = proposed_settings(asked.logs[0]) if log.format == "swf" else {}
    if proposed:
        text = ", ".join(f"{name} = {toml_text(value)}" for name, value in proposed.items())
        note = f"The log's header proposes {text}; it is followed where nothing else is set."
        log = replace(log, assumptions=(*log.assumptions, note))
    options = from_options(WorkloadOptions, asked.options, {**proposed, **asked.site_workload})
    outages: Sequence[Outage] = ()
    if asked.outages is not None:
        outages = read_outages(asked.outages, asked.reading.timezone)
    reservations: Sequence[Reservation] = ()
    if asked.reservations is not None:
        reservations = read_reservations(asked.reservations, asked.reading.timezone)
    workload = prepare(
        log,
        options,
        cluster,
        limits,
        outages,
        reservations,
        preemption,
        sharing=asked.sharing,
    )
    return workload, log.skipped.count.total()


def proposed_settings(path: Path) -> dict[str, Any]:
    """Return the workload settings that an SWF file's header proposes.

    Raises
    ------
    InputError
        If they are no settings.
    """
    from rtsched.core.config import convert
    from rtsched.logs.source import Source
    from rtsched.replay.settings import HEADER, header_settings

    with Source(path) as source:
        lines = source.head.decode("utf-8", "replace").splitlines()
    problems: list[str] = []
    try:
        settings = header_settings(line for line in lines if line.startswith(";"))
        convert(settings, WorkloadOptions, f"header line {HEADER}", problems)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise InputError(path, "; ".join(problems))
    return settings


def checkpoints_of(asked: Arguments, workload: Workload) -> Checkpoints | None:
    """Return what an interrupted replay goes on from; None where nothing is kept.

    Raises
    ------
    InputError
        If another replay is to be resumed.
    """
    from rtsched.replay.checkpoints import Checkpoints

    if asked.out is None:
        return None
    checkpoints = Checkpoints(
        asked.out,
        workload,
        asked.policies,
        asked.found,
        warn=lambda text: complain("warning", text),
    )
    if not asked.resume:
        checkpoints.discard()
    elif not checkpoints.resume():
        say(f"nothing to resume in {asked.out}: the replay starts at the beginning")
    return checkpoints


def run_all(
    asked: Arguments,
    workload: Workload,
    bars: ProgressBars,
    checkpoints: Checkpoints | None = None,
    client: Any = None,
) -> list[PolicyRun]:
    """Return the policies' runs in their order; when interrupted, those that are finished.

    Where a policy rejected jobs, the baseline is replayed with the others, too. `checkpoints` keeps
    the runs, and has those of an interrupted replay. `client` is that of a Dask cluster, on which
    policies are replayed.
    """
    from rtsched.replay.engine import with_baseline_waits

    runs: dict[str, PolicyRun] = {}
    if checkpoints is not None:
        runs = {name: run for name in asked.policies if (run := checkpoints.finished(name))}
    left = {name: policy for name, policy in asked.policies.items() if name not in runs}

    def finished(run: PolicyRun) -> None:
        runs[run.policy] = run
        if checkpoints is not None:
            runs[run.policy] = checkpoints.finish(run)
        elif len(workload.jobs) >= ON_DISK:
            runs[run.policy] = on_disk.mapped(run)

    replay_all(asked, workload, left, finished, bars, checkpoints, client)
    done = [runs[name] for name in asked.policies if name in runs]
    if len(done) < len(asked.policies):
        return done
    with bars.step("baseline"), redirect_stdout(sys.stderr):
        return with_baseline_waits(workload, done, asked.policies, asked.found)


def replay_all(
    asked: Arguments,
    workload: Workload,
    policies: Mapping[str, Policy],
    finished: Callable[[PolicyRun], None],
    bars: ProgressBars,
    checkpoints: Checkpoints | None,
    client: Any,
) -> None:
    """Replay policies and hand over each run that is finished; return early when interrupted."""
    from rtsched.replay.engine import replay

    recorded = asked.out is not None or asked.html is not None
    if client is not None or min(asked.workers, len(policies)) > 1:
        from rtsched.replay.parallel import DaskWorkers, LocalWorkers, Workers, replay_in_parallel

        count = min(asked.workers, len(policies))
        workers: Workers = (
            LocalWorkers(workload, count, record_nodes=recorded, may_compile=not asked.may_restart)
            if client is None
            else DaskWorkers(client, workload, record_nodes=recorded)
        )
        with ExitStack() as steps:
            progress = {name: steps.enter_context(bars.step(name)) for name in policies}
            replay_in_parallel(workers, policies, progress, finished)
        return
    try:
        for name, policy in policies.items():
            # standard output is for results, not for what plug-ins print
            with bars.step(name) as advance, redirect_stdout(sys.stderr):
                run = replay(
                    workload,
                    name,
                    policy,
                    found=asked.found,
                    record_nodes=recorded,
                    progress=advance,
                    checkpoint=None if checkpoints is None else checkpoints.of(name),
                )
            finished(run)
            del run
    except KeyboardInterrupt:
        pass  # the caller sees that policies are missing and says so


def _progress_text(asked: Arguments, runs: Sequence[PolicyRun], *, resumable: bool) -> str:
    done = [run.policy for run in runs]
    left = ", ".join(name for name in asked.policies if name not in done)
    text = f"not replayed: {left}"
    if done:
        text = f"{', '.join(done)} done and reported, {text}"
    return f"{text}; to go on from there, add --resume to the command" if resumable else text


def keep(asked: Arguments, workload: Workload, runs: Sequence[PolicyRun], summary: Summary) -> None:
    """Write the report and the results."""
    from rtsched.report import html, store

    page = None
    if asked.html is not None:
        page = html.render(workload, runs, summary.without_timings(), asked.title)
    inside = asked.out is not None and asked.html == asked.out / REPORT
    if asked.out is not None:
        kept = page if inside else None
        store.write(asked.out, workload, runs, summary, asked.table_format, kept)
    if page is not None and asked.html is not None and not inside:
        store.write_text(asked.html, page)


def say_results(asked: Arguments, summary: Summary) -> None:
    """Print the tables, or the summary as JSON, and where everything was written."""
    places = []
    if asked.html is not None:
        places.append(f"report: {asked.html}")
    if asked.out is not None:
        places.append(f"results: {asked.out} (`rtsched explain JOB` tells about one job)")
    if asked.as_json:
        click.echo(summary.encode(), nl=False)
        for place in places:
            say(place)
        return
    from rtsched.report.tables import show

    out = console()
    show(summary, out)
    out.print()
    for place in places:
        indented(out, place, 0)


def _file_option(name: str, text: str) -> Callable[[Any], Any]:
    """Return an option that names a file to read, given as `<name>_file`."""
    return click.option(
        f"--{name}", f"{name}_file", metavar="FILE", type=click.Path(path_type=Path), help=text
    )


@click.command("replay")
@click.argument("logs", metavar="LOG...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "asked",
    metavar="NAME",
    multiple=True,
    help="Policy to replay; repeatable, or several separated by commas: "
    f"{', '.join(presets())}; with --config also `site` and those defined in "
    f"the file. Default: `{','.join(WITH_SITE)}` with --config, else `{','.join(WITHOUT_SITE)}`.",
)
@click.option(
    "--list-policies",
    is_flag=True,
    help="List the names for --policy, with those of --config, one line each, and replay nothing.",
)
@click.option(
    "--sweep",
    "sweeps",
    metavar="TABLE.KEY=A,B",
    multiple=True,
    help="Replay each policy once with each of these values of a setting: of the plug-in of that "
    "name, or of the simulated batch system (`system`). Repeatable: all combinations.",
)
@click.option(
    "--config",
    metavar="SITE.TOML",
    type=click.Path(path_type=Path),
    help="Policies, plug-ins and `[workload]` of the site.",
)
@_file_option(
    "cluster",
    "The machine: a slurm.conf, `scontrol show nodes` or `condor_status -long`. Default: from "
    "the log's header, else the peak use in the log.",
)
@_file_option(
    "qos",
    "Limits of QOS that the simulated system keeps to, and which QOS preempts which: output of "
    "`sacctmgr -P show qos`.",
)
@_file_option(
    "associations",
    "Limits of accounts and users that the simulated system keeps to: output of `sacctmgr -P "
    "show assoc tree`.",
)
@_file_option(
    "outages",
    "When nodes were down or drained: output of `sacctmgr -P show event start=DATE "
    "format=NodeName,TimeStart,TimeEnd,State`.",
)
@_file_option(
    "reservations",
    "When nodes were set aside: output of `scontrol show reservation`, or of `sacctmgr -P "
    "show reservation start=DATE format=Name,Start,End,NodeNames,Flags,TRES`.",
)
@reading_options
@options_of(WorkloadOptions)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=KEPT,
    show_default=True,
    help="Directory for results, summary and report, for `rtsched explain` and `rtsched render`.",
)
@click.option("--no-out", is_flag=True, help="Save nothing.")
@click.option(
    "--table-format",
    type=click.Choice(["parquet", "csv"]),
    help="Format of the per-job results. Default: parquet if pyarrow is installed, else csv.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File for the report, in an existing directory. Default: report.html in --out.",
)
@title_option
@click.option("--no-report", is_flag=True, help="Write no HTML report.")
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with status 1 if records of the log were unusable. Jobs that were read but cannot "
    "be replayed, since they never started or ran for no time, do not count.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print only the summary, as one JSON object, on standard output; with --list-policies one "
    "JSON array.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress bars.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of policies to replay in parallel, each in a process with its own copy of the "
    "jobs.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Replay the policies on the workers of the Dask cluster with this scheduler: its address "
    "(tcp://HOST:8786), or the file that `dask scheduler --scheduler-file` wrote.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on where the same command was interrupted: with the policies that were finished, and "
    "where no plug-in is asked during the replay, from the last checkpoint of the one that was "
    "not.",
)
@debug_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Replay accounting logs under several policies and compare them.

    LOG is SWF, the output of `sacct -P` or `sacct --json`, or an HTCondor history; plain or
    packed with gzip; several files of one format are one log. Policies are simulated one after
    the other, or in parallel with --workers or --dask, on the same jobs. A table compares them
    with what the log records; a report and the results of every job are saved in --out.

    Nothing is changed on the batch system, and no batch system is needed.
    """
    if given["list_policies"]:
        list_policies(given["config"], given["as_json"])
        return
    asked = request(given)
    with suppress(NotCompiled):
        ctx.exit(perform(asked))
    quiet = replace(asked, out=None, html=None, progress=False, workers=1, may_restart=False)
    try:
        meanwhile = COMPILED_BESIDE.format(compile_beside(lambda: perform(quiet)))
    except OSError as error:
        meanwhile = NOT_BESIDE.format(error.strerror)
    say(UNCOMPILED + meanwhile)
    again_uncompiled()
