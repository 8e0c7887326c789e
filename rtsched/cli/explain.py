"""`rtsched explain JOB`: why a job was rejected, or waited; of a replay, or of the live cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

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
from rtsched.errors import InputError
from rtsched.report.wording import MISSING, decimal, duration, is_dated, percent, sentence
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from rtsched.daemon.questions import ExplainReport, JobReport, PromiseStatus, Verdict
    from rtsched.model.jobs import Jobs
    from rtsched.replay.decisions import Why
    from rtsched.replay.results import Workload


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
    _explain_replay(job, directory or Path(KEPT), names, as_json)


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


_Label = Callable[[int], str]
"""What the batch system calls the job in a row."""

_NAMED = 3
"""Jobs named in a list of many."""

_HELD = ("reject", "defer")


def _explain_replay(
    job: str, directory: Path, names: tuple[str, ...], as_json: bool = False
) -> None:
    """Print why a job of a replay was rejected or had to wait, under each policy."""
    from rtsched.replay.decisions import explain, find
    from rtsched.report.store import read

    kept = read(directory)
    chosen = [name for name in kept.policies if not names or name in names]
    for name in names:
        if name not in kept.policies:
            kept.run(name)  # raises, naming those that are there
    workload = kept.workload
    rows = find(workload.jobs, job)
    if not rows:
        raise InputError(directory, _unknown(workload.jobs, job))
    jobs, machine, out = workload.jobs, len(workload.cluster), console()
    runs = {name: kept.run(name) for name in chosen}
    found: list[dict[str, Any]] = []
    for row in rows:
        if not as_json:
            _show_job(out, workload, row)
        whys = {}
        for name in chosen:
            findings = kept.findings(name, row)
            run, shared = runs[name].results, runs[name].shares_nodes
            whys[name] = explain(jobs, run, row, machine, findings, shared=shared)
            if not as_json:
                _show_why(out, name, whys[name], jobs)
        found.append(_as_object(workload, row, whys))
    if as_json:
        click.echo(msgspec.json.encode({"jobs": found}).decode())


def _as_object(workload: Workload, row: int, whys: Mapping[str, Why]) -> dict[str, Any]:
    """Return a job and what became of it under each policy, as JSON has them.

    Instants are seconds since the epoch; what there is not is null.
    """
    jobs, logged = workload.jobs, workload.outcomes
    label = label_of(jobs)
    shown: dict[str, Any] = {"job": label(row)}
    for column in ("user", "account", "partition"):
        code = int(jobs.column(column)[row])
        shown[column] = jobs.names(column)[code] if code >= 0 else None
    return shown | {
        "submit": float(jobs.submit[row]),
        "nodes": int(jobs.size[row]),
        "wall_time_s": float(jobs.wall_time[row]),
        "deadline": float(jobs.deadline[row]),
        "logged": {"start": float(logged.start[row]), "run_time_s": float(logged.run_time[row])},
        "policies": {name: _why_object(why, label) for name, why in whys.items()},
    }


def _why_object(why: Why, label: _Label) -> dict[str, Any]:
    """Return what became of a job under one policy."""
    met = why.met
    return {
        "state": why.fate.name.lower(),
        "why": outcome(why, label),
        "start": why.start,
        "end": why.end,
        "wait_s": why.wait,
        "lateness_s": why.lateness,
        "nodes": why.given,
        "promise": why.promise,
        "offer": why.offer,
        "at_submission": {
            "nodes": met.machine,
            "free": met.free,
            "running": met.running,
            "running_node_s": met.running_work,
            "waiting": met.waiting,
            "waiting_node_s": met.waiting_work,
        },
        "ahead": [label(row) for row in why.ahead.tolist()],
        "overtook": [label(row) for row in why.overtook.tolist()],
        "made_way": [label(row) for row in why.made_way.tolist()],
        "decisions": [dict(each) for each in why.decisions],
    }


def _unknown(jobs: Jobs, job: str) -> str:
    """Return what to say of a job that is not there."""
    from rtsched.replay.decisions import close_matches

    close = ", ".join(close_matches(jobs, job))
    hint = f"close to it: {close}" if close else "give the batch system's own name of the job"
    return f"has no job {job!r} among its {len(jobs):,}; {hint}"


def label_of(jobs: Jobs) -> _Label:
    """Return what names the job in a row, without naming all the others."""
    codes, names, ids = jobs.label, jobs.names("label"), jobs.id

    def label(row: int) -> str:
        return names[codes[row]] if codes[row] >= 0 else str(ids[row])

    return label


def _show_job(out: Console, workload: Workload, row: int) -> None:
    """Print what the job asked for, and what the log itself records of it."""
    jobs, logged = workload.jobs, workload.outcomes
    submit = float(jobs.submit[row])
    owner = [
        names[code]
        for column in ("user", "account", "partition")
        if (code := jobs.column(column)[row]) >= 0 and (names := jobs.names(column))
    ]
    asked = [_nodes(int(jobs.size[row])), f"for {duration(float(jobs.wall_time[row]))}"]
    if (begin := float(jobs.begin[row])) > submit:
        asked.append(f"not before {after(begin, submit)}")
    if math.isfinite(deadline := float(jobs.deadline[row])):
        asked.append(f"by {after(deadline, submit)}")
    recorded = "nothing"
    if math.isfinite(start := float(logged.start[row])):
        recorded = f"a wait of {duration(start - submit)}, a run of " + duration(
            float(logged.run_time[row])
        )
    rows = [("submitted", clock(submit)), ("asked", ", ".join(asked)), ("the log has", recorded)]
    if owner:
        rows.insert(1, ("by", " / ".join(owner)))
    indented(out, f"job {label_of(jobs)(row)}", 0, "bold")
    _show_rows(out, rows)


def _show_why(out: Console, policy: str, why: Why, jobs: Jobs) -> None:
    """Print what became of the job under one policy: a sentence, then the numbers."""
    label = label_of(jobs)

    def sized(row: int) -> str:
        return f"{label(row)}: {_nodes(int(jobs.size[row]))}"

    out.print()
    indented(out, f"{policy}: {outcome(why, label)}.", 0, "bold")
    _show_rows(out, facts(why, sized))


def _show_rows(out: Console, rows: Sequence[tuple[str, str]]) -> None:
    for name, text in rows:
        indented(out, text, 18, lead=f"  {name}")


def clock(seconds: float) -> str:
    """Return an instant in local time, or as seconds where the log has no dates."""
    if not math.isfinite(seconds):
        return MISSING
    if not is_dated(seconds):
        return f"second {seconds:.10g}"
    local = datetime.fromtimestamp(round(seconds)).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()


def after(seconds: float, submit: float) -> str:
    """Return an instant, and how long after submission it is."""
    if not math.isfinite(seconds):
        return MISSING
    gap = seconds - submit
    if gap == 0:
        return f"{clock(seconds)}, at submission"
    return f"{clock(seconds)}, {duration(gap)} ({gap:.10g} s) after submission"


def outcome(why: Why, label: _Label) -> str:
    """Return in one sentence what became of the job and why."""
    from rtsched.model.log import FinalState

    if why.fate == FinalState.REJECTED:
        held = any(decision["verdict"] == "defer" for decision in why.decisions)
        return f"rejected {'after it was put off' if held else 'at submission'}{_blamed(why)}"
    if math.isnan(why.start):
        if why.asked > why.met.machine:
            machine = _nodes(why.met.machine)
            return f"never started: the machine has {machine}, it asks for {why.asked:,}"
        return f"never started by the end of the replay{_blamed(why)}"
    if why.fate == FinalState.UNFINISHED:
        return f"started after {duration(why.wait)} and was lost when a node went down"
    if why.ran_on:
        waited = f"waited {duration(why.wait)}" if why.wait > 0 else "started at once"
        how = "promised later" if math.isfinite(why.promise) else "ran without a promise"
        return f"rejected{_blamed(why)}; {how}, {waited}{_punctual(why)}"
    if why.wait <= 0:
        return f"started at once on {_nodes(why.given)}{_punctual(why)}"
    return f"waited {duration(why.wait)}{_cause(why, label)}{_punctual(why)}"


def _cause(why: Why, label: _Label) -> str:
    """Return what a wait was for, to follow `waited 3h`."""
    parts = []
    if blamed := _blamed(why):
        parts.append(blamed)
    elif why.begin >= why.start:
        parts.append(": it was not to start earlier")
    elif why.met.shared:
        parts.append(": nodes are shared, and none was to take it earlier")
    elif why.asked > why.met.free:
        free = "none was" if why.met.free == 0 else f"only {why.met.free:,} were"
        parts.append(f": of {_nodes(why.met.machine)} {free} free at submission")
    elif len(why.ahead):
        parts.append(": there were free nodes, but not for it yet")
    if len(why.ahead):
        parts.append(f"{_jobs(why.ahead, label)} ahead of it started first")
    if len(why.overtook):
        parts.append(f"{_jobs(why.overtook, label)} submitted later passed it")
    return ", ".join(parts)


def _blamed(why: Why) -> str:
    """Return the enforced finding that turned it away, else that held it, to follow a verb."""
    for verdict in _HELD:
        for decision in why.decisions:
            if decision["verdict"] == verdict and decision.get("mode") == "enforce":
                return f" by {decision['plugin']}: {decision['text']}"
    return ""


def _punctual(why: Why) -> str:
    if math.isnan(why.lateness):
        return ""
    if why.lateness <= 0:
        return f"; it ended {duration(-why.lateness)} before its deadline"
    broken = ", a broken promise" if why.end > why.promise else ""
    return f"; it ended {duration(why.lateness)} after its deadline{broken}"


def _nodes(number: int) -> str:
    return counted(number, "node")


def _jobs(rows: NDArray[np.int64], label: _Label) -> str:
    """Return how many jobs, and the names of the largest: `7 jobs (12, 15, 9, ...)`."""
    named = ", ".join(label(row) for row in rows[:_NAMED].tolist())
    more = ", ..." if len(rows) > _NAMED else ""
    return f"{_number(len(rows))} ({named}{more})"


def _number(jobs: int) -> str:
    return counted(jobs, "job")


def facts(why: Why, label: _Label) -> list[tuple[str, str]]:
    """Return the numbers behind the sentence, each with its name."""
    from rtsched.model.log import FinalState

    met = why.met
    running = f"{_number(met.running)} running"
    if met.shared:
        head = f"{running} on {_nodes(met.machine)} that are shared"
    else:
        head = f"{met.free:,} of {_nodes(met.machine)} free, {running}"
    found = [
        (
            "at submission",
            f"{head} ({_node_hours(met.running_work)} left), {_number(met.waiting)} waiting "
            f"({_node_hours(met.waiting_work)} asked for)",
        )
    ]
    for decision in why.decisions:
        found += _decided(decision, why)
    if math.isfinite(why.promise):
        found.append(("promised", f"to end by {after(why.promise, why.submit)}"))
    if math.isfinite(why.offer):
        offered = f"a deadline of {after(why.offer, why.submit)} would have been accepted"
        found.append(("counter-offer", offered))
    if why.fate == FinalState.REJECTED:
        return found
    if len(why.ahead):
        found.append(("ahead of it", _jobs(why.ahead, label)))
    if len(why.overtook):
        work = _node_hours(why.overtook_work)
        found.append(("passed by", f"{_jobs(why.overtook, label)}, {work} before its start"))
    if math.isfinite(why.start):
        made_way = f", when {_jobs(why.made_way, label)} ended" if len(why.made_way) else ""
        found.append(("started", f"{after(why.start, why.submit)}{made_way}"))
        found.append(("ran on", _nodes(why.given)))
    if why.served < why.whole * (1 - 1e-6):
        part = f"{percent(why.served / why.whole)} of the time it held its nodes"
        found.append(("was served", f"{_node_hours(why.served)}, {part}"))
    if math.isfinite(why.end):
        found.append(("ended", f"{after(why.end, why.submit)}"))
    return found


def _decided(decision: Mapping[str, Any], why: Why) -> list[tuple[str, str]]:
    """Return one plug-in's finding: verdict and reason, then its numbers."""
    mode = decision.get("mode", "enforce")
    weight = "" if mode == "enforce" else f" ({mode}: not counted)"
    text = f"{decision['verdict']}, {decision['reason']}{weight}: {decision['text']}"
    found = [(str(decision["plugin"]), text)]
    if numbers := decision.get("numbers"):
        found.append(("", ", ".join(f"{name} = {value:.10g}" for name, value in numbers.items())))
    if (times := decision.get("times", 1)) > 1:
        found.append(("", f"{counted(times, 'time')}{_span(decision)}"))
    offer = decision.get("offer_s")
    if offer is not None and offer != why.offer:
        found.append(("", f"it would accept a deadline of {after(offer, why.submit)}"))
    return found


def _span(decision: Mapping[str, Any]) -> str:
    """Return from when to when it was found, where that is known."""
    first, last = decision.get("first_s"), decision.get("last_s")
    return "" if first is None or last is None else f" from {clock(first)} to {clock(last)}"


def _node_hours(node_seconds: float) -> str:
    return f"{decimal(node_seconds / 3600)} node-hours"
