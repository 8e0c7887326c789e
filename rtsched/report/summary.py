"""The summary of a replay: the one object that `--json` prints, and that tables and page show.

What was assumed has names in it, so that a program finds an assumption whatever its sentence says.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from rtsched.replay.measures import logged, logged_results, measure
from rtsched.replay.resource_use import resource_use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.core.chain import HookMetrics
    from rtsched.model.cluster import Cluster
    from rtsched.model.log import Skipped
    from rtsched.replay.resource_use import Use
    from rtsched.replay.results import PolicyRun, Results, Workload


NOT_MEASURES = frozenset(
    {
        "hooks",
        "settings",
        "seconds",
        "not_carried_out",
        "did_not_wait",
        "beyond_limits",
        "resources",
        "partitions",
    }
)
"""What stands in a policy's object beside its measures."""


class Summary(msgspec.Struct, frozen=True):
    """What a replay came to, in plain JSON types.

    Attributes
    ----------
    log : dict
        Sources, format, jobs, users, span, machine, skipped records, under `promisable` how many
        jobs have a form that a deadline can be promised to, and under `as_logged` the measures of
        what the log itself records.
    assumptions : dict
        Sentences by the names in `rtsched.report.summary.ASSUMPTIONS`.
    policies : dict
        Per policy its measures by name, where jobs share nodes `resources` and `partitions` (see
        `rtsched.replay.resource_use`; the log's stand beside its measures), then `hooks`,
        `settings`, `not_carried_out` if there is anything (per kind of action for how many jobs),
        `did_not_wait` (jobs that depend on one which does not run), `beyond_limits` (jobs that
        started as planned beyond a limit), and `seconds` if it was asked for. A hook's `seconds`
        are None where they were not taken: a compiled one is called from within the simulated
        system's loop.
    """

    log: dict[str, Any]
    assumptions: dict[str, str]
    policies: dict[str, dict[str, Any]]

    def encode(self) -> bytes:
        """Return the object as indented JSON text, the same bytes for the same values."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def without_timings(self) -> Summary:
        """Return the summary without anything that differs from run to run."""
        return Summary(
            self.log,
            self.assumptions,
            {name: _without_timings(entry) for name, entry in self.policies.items()},
        )

    def measures(self, policy: str | None = None) -> dict[str, Any]:
        """Return the measures of a policy, or with None those of the log itself."""
        entry = self.entry(policy)
        return {name: value for name, value in entry.items() if name not in NOT_MEASURES}

    def entry(self, policy: str | None = None) -> dict[str, Any]:
        """Return all that is reported of a policy, or with None of the log itself."""
        found: dict[str, Any] = self.log["as_logged"] if policy is None else self.policies[policy]
        return found


def summarise(workload: Workload, runs: Sequence[PolicyRun], *, timings: bool = False) -> Summary:
    """Return the summary of a replay.

    Parameters
    ----------
    workload : Workload
        The log.
    runs : sequence of PolicyRun
        What each policy made of it.
    timings : bool
        Whether to tell how long the replay and each plug-in took.
    """
    policies, common = {}, _common([run.results for run in runs])
    for run in runs:
        entry: dict[str, Any] = _plain(
            measure(workload, run.results, run.node_rows, common, run.baseline_wait)
        )
        entry |= _use(workload, run.results)
        entry["hooks"] = {
            hook: {plugin: _book(book, timings) for plugin, book in books.items()}
            for hook, books in run.hooks.items()
            if books
        }
        entry["settings"] = _plain(run.settings)
        if run.undone:
            entry["not_carried_out"] = _plain(run.undone)
        if run.released:
            entry["did_not_wait"] = run.released
        if run.beyond_limits:
            entry["beyond_limits"] = run.beyond_limits
        if timings:
            entry["seconds"] = round(run.seconds, 6)
        policies[_text(run.policy)] = entry
    return Summary(
        _log(workload), named([_text(sentence) for sentence in workload.assumptions]), policies
    )


def _common(results: Sequence[Results]) -> NDArray[np.bool_] | None:
    """Return bool[n]: who started under all policies; None where all of them started the same."""
    started = [np.isfinite(some.start) for some in results]
    if not started:
        return None
    common = np.logical_and.reduce(started)
    return None if all(np.array_equal(common, some) for some in started) else common


def _log(workload: Workload) -> dict[str, Any]:
    jobs, outcomes, skipped = workload.jobs, workload.outcomes, workload.skipped
    promisable = workload.promisable
    first = float(jobs.submit.min()) if len(jobs) else math.nan
    ends = np.concatenate([jobs.submit, outcomes.end[np.isfinite(outcomes.end)]])
    last = float(ends.max()) if len(ends) else math.nan
    log: dict[str, Any] = {
        "sources": list(workload.sources),
        "format": workload.format,
        "jobs": len(jobs),
        "users": _distinct(jobs.user),
        "accounts": _distinct(jobs.account),
        "jobs_with_deadline": int(np.count_nonzero(np.isfinite(jobs.deadline))),
        "first_submit_s": first,
        "last_end_s": last,
        "span_s": last - first,
        "machine_nodes": len(workload.cluster),
        "machine_cores": int(workload.cluster.nodes.cores.sum()),
        "machine_resources": _totals(workload.cluster),
        "promisable": {
            "jobs": promisable.jobs,
            "promisable": promisable.promisable,
            "share": promisable.share,
            "others": _by_reason(promisable.others, "jobs"),
        },
        "skipped": _by_reason(skipped, "records"),
        "as_logged": logged(workload) | _use(workload, logged_results(workload)),
    }
    plain: dict[str, Any] = _plain(log)
    return plain


def _totals(cluster: Cluster) -> dict[str, int]:
    """Return how much all nodes have of each resource, memory in bytes; {}: they are not shared."""
    names = cluster.nodes.names("capacity")
    return dict(zip(names, cluster.nodes.capacity.sum(axis=0).tolist(), strict=True))


def _use(workload: Workload, results: Results) -> dict[str, Any]:
    """Return use per resource and per partition; nothing where jobs do not share nodes."""
    found = resource_use(workload, results)
    if found is None:
        return {}
    return {
        "resources": _plain(_by_resource(found.resources)),
        "partitions": _plain(
            {
                name: {
                    "jobs": use.jobs,
                    "mean_wait_s": use.mean_wait_s,
                    "resources": _by_resource(use.resources),
                }
                for name, use in found.partitions.items()
            }
        ),
    }


def _by_resource(resources: Mapping[str, Use]) -> dict[str, dict[str, float | None]]:
    return {
        name: use._asdict() | {"utilisation": use.utilisation} for name, use in resources.items()
    }


def _by_reason(counts: Skipped, what: str) -> dict[str, dict[str, Any]]:
    """Return how many of what there are by reason, and the first of each."""
    return {
        reason: {what: times, "first": counts.first.get(reason, "")}
        for reason, times in counts.count.items()
    }


def _distinct(codes: np.ndarray[Any, np.dtype[np.int32]]) -> int:
    used = np.unique(codes)
    return int(np.count_nonzero(used >= 0))


def _book(book: HookMetrics, timings: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "calls": book.calls,
        "judged": book.judged,
        "changed": book.changed,
        "abstained": book.abstained,
        "errors": book.errors,
    }
    if book.first_error:
        entry["first_error"] = _text(book.first_error)
    if timings:
        untimed = book.calls > 0 and book.seconds == 0
        entry["seconds"] = None if untimed else round(book.seconds, 6)
    return entry


def _plain(value: Any) -> Any:
    """Return `value` in JSON's types: nan and infinities become None, keys text."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return _text(value)
    if hasattr(value, "items"):
        return {_text(str(key)): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        entries = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(entry) for entry in entries]
    return None if value is None else _text(str(value))


def _text(text: str) -> str:
    """Return `text` such that UTF-8 can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _without_timings(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's entry without its own seconds and those of its plug-ins."""
    hooks = {
        hook: {
            plugin: {name: value for name, value in book.items() if name != "seconds"}
            for plugin, book in books.items()
        }
        for hook, books in entry["hooks"].items()
    }
    rest = {name: value for name, value in entry.items() if name != "seconds"}
    return {**rest, "hooks": hooks}


OTHER = "other"
"""Name of an assumption that is in no table."""


class Assumption(NamedTuple):
    """What is assumed, and the words by which its sentence is known."""

    meaning: str
    words: tuple[str, ...]


ASSUMPTIONS = {
    name: Assumption(meaning, tuple(words))
    for name, meaning, *words in (
        ("header_settings", "Settings that the log's own header proposes.", "header proposes"),
        ("synthetic_log", "A generator made the log.", "The log is synthetic"),
        ("repeated_log", "A log that is repeated to get more jobs.", "repeated to"),
        ("machine_size", "How large the machine is.", "does not describe the machine"),
        ("machine_nodes", "MaxNodes is used for MaxProcs.", "no MaxProcs"),
        ("machines_differ", "Logs of one replay describe several machines.", "machines differ"),
        ("unusable_nodes", "Nodes that take no jobs.", "down or drained"),
        ("empty_nodes", "Nodes without processors.", "nodes without processors"),
        ("unreadable_nodes", "Nodes that cannot be read.", "records that cannot be read"),
        ("dynamic_slots", "Which slots are counted.", "dynamic slots are parts"),
        ("missing_include", "A part of slurm.conf is not there.", "the included file"),
        ("node_speeds", "Speed factors of nodes.", "Speed factor"),
        ("processor_is_node", "Cores of a node are not known.", "a processor of the log"),
        ("single_cores", "Jobs share nodes.", "single cores"),
        ("no_links", "Links between nodes are left out.", "links between nodes"),
        ("whole_nodes", "Jobs have nodes to themselves.", "processors asked for are one node"),
        ("processors", "How many processors a job wants.", "is assumed", "CpusProvisioned"),
        ("time_origin", "When the log's times begin.", "no UnixStartTime", "UnixStartTime is"),
        ("time_zone", "Zone of the log's times.", "local times ("),
        ("repeated_numbers", "Jobs that share a number.", "numbers occur twice"),
        ("new_numbers", "Jobs that get another number.", "the number of another job"),
        ("no_requested_times", "No job has a requested time.", "log has no requested times"),
        ("requested_times", "Some jobs have no requested time.", "run time is used"),
        ("run_times", "Jobs ran longer than requested.", "longer than requested"),
        ("running_jobs", "Jobs had not ended.", "ran when the log was written"),
        ("requeued_jobs", "Which run of a job counts.", "requeued job"),
        ("early_starts", "Jobs start before they come.", "a start before the submit time"),
        ("earliest_starts", "Jobs that must not start at once.", "not start earlier"),
        (
            "dependencies",
            "Jobs that wait for others.",
            "follows the one it names",
            "its --dependency names",
            "waits for its parents",
            "waiting for others",
            "run one at a time",
        ),
        (
            "other_dependencies",
            "Dependencies that are not replayed as they were asked for.",
            "of a dependency",
            "a dependency ",
            "--dependency=singleton of",
        ),
        ("used_time", "What limits of used time count.", "limits of used time"),
        ("limits", "Limits of accounts and QOS that hold jobs up.", "holds up nobody"),
        (
            "other_limits",
            "Limits that are not replayed, and jobs that they say nothing of.",
            "Slurm would not start them",
            "of accounts or QOS with",
            "no limits",
            "account is below which",
            "The QOS of partitions",
        ),
        (
            "preemption",
            "Jobs that preempt others, and what happens to those.",
            "may preempt",
        ),
        (
            "other_preemption",
            "Preemption that is not replayed.",
            "Preemption by",
            "preempted in the log",
            "would suspend",
            "with a GraceTime",
        ),
        ("node_requests", "Jobs that run on some nodes only.", "they run on such nodes only"),
        (
            "other_node_requests",
            "Requests for nodes that are not replayed.",
            "it is not replayed",
            "that the log ends with",
        ),
        (
            "array_limits",
            "Tasks of an array that run at a time.",
            "`%` says",
            "of arrays with a limit",
        ),
        ("moldable_jobs", "Jobs may have other sizes.", "taken as moldable"),
        ("divisible_jobs", "Jobs are divisible loads.", "taken as divisible"),
        ("short_jobs", "Jobs that stay rigid.", "too short for the set-up"),
        ("past_deadlines", "Deadlines that are left out.", "that is no time after"),
        ("no_deadlines", "Jobs without a deadline.", "best effort"),
        ("deadlines", "Where deadlines lie.", "deadline that the log does not give"),
        ("equal_shares", "The log gives no shares.", "have equal shares"),
        ("unused_shares", "Shares of nobody in the log.", "Shares of names"),
    )
}
"""Assumptions by name; a sentence has the first name of which it has one of the words."""


def named(sentences: Sequence[str]) -> dict[str, str]:
    """Return sentences by name; a name's second sentence has `_2` behind it, and so on."""
    found: dict[str, str] = {}
    for sentence in sentences:
        first = name_of(sentence)
        name, number = first, 1
        while name in found:
            number += 1
            name = f"{first}_{number}"
        found[name] = sentence
    return found


def name_of(sentence: str) -> str:
    """Return the name of the assumption that a sentence tells."""
    for name, assumption in ASSUMPTIONS.items():
        if any(words in sentence for words in assumption.words):
            return name
    return OTHER
