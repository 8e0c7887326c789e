"""Names for what was assumed, so that a program finds an assumption whatever its sentence says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        ("machine_nodes", "MaxNodes stands in for MaxProcs.", "no MaxProcs"),
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
        ("time_origin", "When the log's times begin.", "no UnixStartTime"),
        ("time_zone", "Zone of the log's times.", "local times ("),
        ("repeated_numbers", "Jobs that share a number.", "numbers occur twice"),
        ("new_numbers", "Jobs that get another number.", "the number of another job"),
        ("no_requested_times", "No job has a requested time.", "log has no requested times"),
        ("requested_times", "Some jobs have no requested time.", "run time stands in"),
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
