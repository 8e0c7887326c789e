"""`rtsched explain JOB`: why a job was rejected, or waited; of a replay, or of the live cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rtsched.cli.asking import (
    answers,
    gap,
    node_list,
    print_json,
    report_of,
    show_facts,
    socket_option,
    when,
)
from rtsched.cli.common import KEPT, Exit, console, debug_option, indented
from rtsched.report.wording import decimal, duration, sentence
from rtsched.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from rtsched.daemon.questions import ExplainReport, JobReport, PromiseStatus, Verdict


@click.command("explain")
@click.argument("job", metavar="[JOB]", required=False)
@click.option(
    "--from",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Directory with saved results of `rtsched replay`. Default: {KEPT}, if it exists.",
)
@click.option(
    "--policy",
    "names",
    metavar="NAME",
    multiple=True,
    help="Explain only this policy; repeatable. Default: all of the replay.",
)
@click.option("--live", is_flag=True, help="Query the daemon even if there is a replay.")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, 1000),
    is_flag=False,
    flag_value=1,
    help="Query the daemon for the replies to your last N submissions, including rejected ones.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: the daemon's report, or what the replay has of the job.",
)
@socket_option
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    job: str | None,
    directory: Path | None,
    names: tuple[str, ...],
    live: bool,
    last: int | None,
    as_json: bool,
    path: str,
) -> None:
    """Explain why JOB was rejected or waits, on the live cluster or in a replay.

    JOB is the batch system's own name of the job (`4711`, `4711_3`, `12.0`). If there are saved
    results of `rtsched replay`, they are read; otherwise the daemon is queried. For a replay, a
    rejection is explained by the plug-in, its reason and numbers and the counter-offer, under each
    policy; a wait by the state of the queue, the jobs ahead of it and those that overtook it. The
    daemon shows what was promised and planned, why the job waits, and what would help. Times are
    local; set TZ for another zone.
    """
    asks = live or last is not None or (as_json and not os.path.exists(KEPT))
    if directory is None and not names and _asks_daemon(asks, path):
        if job is None and last is None:
            raise click.UsageError("give a JOB or --last")
        ctx.exit(explain_live(job or "", last or 5, path, as_json))
    if job is None or live or last is not None:
        raise click.UsageError("for a replay, give a JOB; --live and --last apply to the daemon")
    from rtsched.cli.explain_replay import explain_replay

    explain_replay(job, directory or Path(KEPT), names, as_json)


def _asks_daemon(wanted: bool, path: str) -> bool:
    """Return whether the daemon is meant: asked for, or no replay here but a daemon's socket."""
    return wanted or (not os.path.exists(KEPT) and answers(path))


def explain_live(job: str, last: int, path: str, as_json: bool) -> Exit:
    """Ask the daemon about a job, or for the last verdicts; print what it says."""
    from rtsched.daemon.questions import Explain

    report: ExplainReport = report_of(Explain(job, last), path)
    if as_json:
        print_json(report)
    else:
        show(console(), report, job)
    known = report.job or report.promise or report.verdicts
    return Exit.GOOD if known else Exit.FINDINGS


def show(out: Console, report: ExplainReport, job: str) -> None:
    """Print a report: the job, its promise, why it waits, what was said."""
    now = report.now
    if report.job is not None:
        indented(out, f"job {report.job.job}: {state(report.job, now)}", 0, "bold")
        show_facts(out, job_facts(report.job, now))
    elif job:
        indented(out, f"job {job}: the batch system no longer shows it", 0, "bold")
    if report.promise is not None:
        show_facts(out, promise_facts(report.promise, now))
    for lead, texts in (
        ("waits", [f"{r.text} ({r.code})" if r.code else r.text for r in report.waits]),
        ("would help", report.helps),
    ):
        show_facts(out, [(lead if not at else "", text) for at, text in enumerate(texts)])
    if report.estimate is not None and report.estimate.basis == "estimate":
        show_facts(out, [("estimate", sentence(report.estimate, now))])
    if report.terms:
        terms = (f"{name} {decimal(value)}" for name, value in report.terms.items())
        show_facts(out, [("priority", ", ".join(terms))])
    if not report.verdicts:
        if not job:
            out.print("no replies to submissions of yours are recorded")
        return
    for verdict in report.verdicts:
        show_verdict(out, verdict, now, named=not job)


def state(job: JobReport, now: float) -> str:
    """Return in words what a job does."""
    if job.state == "waiting":
        held = ", held" if job.held else ""
        since = "" if job.submit is None else f" for {duration(max(now - job.submit, 0))}"
        return f"waits{since}{held}"
    if job.state == "suspended":
        ago = "" if job.start is None else f", started {gap(job.start, now)}"
        return f"is suspended{ago}"
    if job.state == "running":
        until = "" if job.end is None else f", until {when(job.end, now)} at the latest"
        since = "" if job.start is None else f" for {duration(max(now - job.start, 0))}"
        return f"has run{since}{until}"
    return f"ended {when(job.end, now)}"


def job_facts(job: JobReport, now: float) -> list[tuple[str, str]]:
    """Return what a job asked for; of its partition what its user named."""
    from rtsched.adapters.live import PART

    limit = "" if job.wall_time_s is None else f" for {duration(job.wall_time_s)} with margins"
    asked = f"{counted(job.size, 'node')}{limit}"
    if job.deadline is not None:
        asked += f", by {when(job.deadline, now)}"
    partition = job.partition.partition(PART)[0]
    owner = " / ".join(part for part in (job.user, partition, job.name) if part)
    return [("of", owner), ("asked", asked), ("submitted", when(job.submit, now))]


def promise_facts(promise: PromiseStatus, now: float) -> list[tuple[str, str]]:
    """Return what was promised, and the plan to keep it."""
    from rtsched.text import state_of

    by = f"{when(promise.deadline, now)}, {gap(promise.deadline, now)}"
    kept = state_of(promise.state, promise.odds, promise.odds_now)
    found = [("promised", f"to end by {by} ({kept}, given {when(promise.made_at, now)})")]
    if promise.state == "offered":
        by = when(promise.deadline, now)
        found = [("offered", f"to end by {by}; held until {when(promise.expires, now)}")]
    if promise.start is not None:
        lead = "runs" if promise.running else "planned"
        lead = "suspended" if promise.suspended else lead
        nodes = f"{counted(len(promise.nodes), 'node')} ({node_list(promise.nodes)})"
        span = f"{when(promise.start, now)} to {when(promise.end, now)}"
        found.append((lead, f"{span} on {nodes}"))
    if promise.why:
        found.append(("", promise.why))
    return found


def show_verdict(out: Console, verdict: Verdict, now: float, *, named: bool) -> None:
    """Print what was said to a submission."""
    codes = f" ({', '.join(verdict.codes)})" if verdict.codes else ""
    words = (when(verdict.time, now), verdict.user, verdict.job or verdict.name if named else "")
    indented(out, f"{' '.join(filter(None, words))}: {verdict.verdict}{codes}", 2, lead="")
    if verdict.text:
        indented(out, verdict.text, 6)
    if verdict.offer is not None:
        over = ", which is over" if verdict.offer <= now else ""
        indented(out, f"feasible then: {when(verdict.offer, now)}{over}", 6)
