"""Settings of a replay: how a log is made ready, the `[workload]` table of a site.toml."""

from __future__ import annotations

import math
import tomllib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rtsched.errors import ConfigError
from rtsched.replay.rules import DEADLINE_PATTERN, KIND_PATTERN, DeadlineRule, KindRule

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADER = "RtschedWorkload"
"""Name of the SWF header line that holds these settings as a TOML inline table."""

Positive = Annotated[float, Meta(gt=0)]


class PeriodicTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[workload.periodic]]` table: the same work again and again on some nodes."""

    name: str
    """Its name."""
    period: Annotated[float, Meta(gt=0)]
    """Seconds from one start to the next."""
    duration: Annotated[float, Meta(gt=0)]
    """Its duration on each node, seconds."""
    nodes: int | list[str] = 1
    """The nodes, by name (`fast*` is a pattern), or how many: those with the least recurring work
    so far."""
    first: float | datetime = 0.0
    """First start: seconds since the epoch, or a time (UTC if no zone)."""
    amounts: dict[str, Annotated[int, Meta(ge=1)]] | None = None
    """With `unit = "resources"`: what it takes of each of its nodes, such as `{ cpu = 4, "gres/gpu"
    = 1 }`; memory (`mem`) in bytes. All of them if not given."""
    deadline: Positive | None = None
    """Seconds from a start until it must have ended; the period if not given. It counts where jobs
    can be suspended; elsewhere it ends `duration` after its start."""

    def problems(self, path: str) -> list[str]:
        """Return what is wrong with the table, each with its path."""
        due = self.period if self.deadline is None else self.deadline
        found = []
        if not math.isfinite(self.period + self.duration + due + self.first_start()):
            found.append(f"{path}: first, period, duration and deadline must be finite")
        if self.duration > self.period:
            found.append(
                f"{path}.duration: {self.duration:g} s of work do not fit into a period of "
                f"{self.period:g} s"
            )
        elif self.duration > due:
            found.append(
                f"{path}.deadline: {due:g} s are less than the {self.duration:g} s of work"
            )
        if due > self.period:
            found.append(f"{path}.deadline: {due:g} s are more than the period")
        if isinstance(self.nodes, int) and self.nodes < 1:
            found.append(f"{path}.nodes: {self.nodes} is not above 0")
        if not self.nodes and isinstance(self.nodes, list):
            found.append(f"{path}.nodes: lists no node")
        return found

    def first_start(self) -> float:
        """Return the first start in seconds since the epoch."""
        if isinstance(self.first, datetime):
            moment = self.first if self.first.tzinfo else self.first.replace(tzinfo=UTC)
            return moment.timestamp()
        return float(self.first)


class WorkloadOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a log is made ready for replay: the `[workload]` table of a site.toml."""

    unit: Literal["auto", "core", "node", "resources"] = "auto"
    """What is allocated to one job at a time. `auto`: chosen by what the log's jobs held and what
    the cluster's nodes have. `core`: jobs share nodes, so a cluster of 30 nodes with 4 cores is 120
    rows. `node`: a job has its nodes to itself; its request is rounded up to whole nodes.
    `resources`: jobs share nodes, and each takes the cores, memory and GPUs that it asks for on
    each of its nodes."""
    deadline_rule: Annotated[
        str,
        Meta(
            pattern=DEADLINE_PATTERN,
            examples=["none", "slowdown:4", "run_time:4", "run_time:2-8", "uniform", "uniform:4"],
        ),
    ] = "slowdown:4"
    """Deadlines of jobs for which the log has none. `none`; `slowdown:F`: F times the requested
    time after submission; `run_time:F`: F times the time for which the job really ran, as of users
    who know it and request more; with `E-F` in place of F each job has a factor of its own, drawn
    from that range; `uniform`: drawn between the least and the greatest execution time of a
    moldable or divisible job, `uniform:F`: of a rigid one between the requested time and F times it
    (4 if not given)."""
    deadline_fraction: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Fraction of the jobs without a deadline that get one by the rule, drawn by seed and job id;
    the others are best effort."""
    jobs_are: Annotated[
        str,
        Meta(
            pattern=KIND_PATTERN,
            examples=["rigid", "moldable:0.5-2", "divisible", "divisible:1:100"],
        ),
    ] = "rigid"
    """Kind of jobs for which the log gives only a size. `rigid`; `moldable:LOW-HIGH`: any size
    between these multiples of the requested one, run time in inverse proportion;
    `divisible:CMS:CPS` or `divisible:CMS:CPS:ST:SC`: arbitrarily divisible loads, with seconds to
    send and to compute a unit and to set up both."""
    arrays: Literal["whole", "tasks"] = "whole"
    """What a planner of a replay promises arrays with a deadline. `whole`: one promise for all
    tasks, as on a live system, if these need one node each and no licences; `tasks`: each task is a
    job with a promise of its own."""
    shares: dict[str, Positive] = {}
    """Shares per `ACCOUNT`, `ACCOUNT/USER` or `*/USER` relative to their siblings; default 1."""
    speeds: dict[str, Positive] = {}
    """Speed factors per pattern of node names (`fast*`) or per share of the machine (`25%`: the
    first quarter of the nodes that no earlier entry took); default 1."""
    periodic: list[PeriodicTable] = []
    """Recurring work for which new jobs must leave time, one table each."""
    preempt_type: Literal["conf", "none", "qos", "partition_prio"] = "conf"
    """By what waiting jobs preempt running ones (PreemptType). `conf`: as the slurm.conf given as
    the machine says, else not at all; `qos`: by the column Preempt of the QOS; `partition_prio`: by
    the PriorityTier of the partitions."""
    preempt_mode: Literal["conf", "off", "requeue", "cancel"] = "conf"
    """What happens to a preempted job whose QOS or partition does not say so (PreemptMode). `conf`:
    as the slurm.conf says, else `requeue` where `preempt_type` is set."""
    price: Annotated[float, Meta(ge=0)] = 1.0
    """Price of a node-hour, for the mean cost of a job."""
    price_of: Literal["node", "core"] = "node"
    """Whether `price` is per node or per core."""
    seed: Annotated[int, Meta(ge=0)] = 0
    """Seed of random choices; equal seeds give equal workloads."""

    def rules(self) -> tuple[DeadlineRule, KindRule]:
        """Return the two rules, parsed.

        Raises
        ------
        ConfigError
            Listing every mistake with its path.
        """
        problems: list[str] = []
        found: list[Any] = []
        for name, rule in (("deadline_rule", DeadlineRule), ("jobs_are", KindRule)):
            try:
                found.append(rule.parse(getattr(self, name)))
            except ConfigError as error:
                problems += [f"workload.{name}: {problem}" for problem in error.problems]
        if not 0 <= self.deadline_fraction <= 1:
            problems.append(
                f"workload.deadline_fraction: {self.deadline_fraction} is not between 0 and 1"
            )
        for name in ("shares", "speeds"):
            for entry, value in getattr(self, name).items():
                if not 0 < value < math.inf:
                    problems.append(f"workload.{name}.{entry!r}: {value} is not above 0")
        for index, table in enumerate(self.periodic):
            problems += table.problems(f"workload.periodic[{index}]")
        for entry in self.speeds:
            if entry.endswith("%") and not _is_percentage(entry[:-1]):
                problems.append(f"workload.speeds.{entry!r}: is not a share between 0% and 100%")
        if problems:
            raise ConfigError(problems)
        return found[0], found[1]


def _is_percentage(text: str) -> bool:
    try:
        return 0 <= float(text) <= 100
    except ValueError:
        return False


def header_settings(lines: Iterable[str]) -> dict[str, Any]:
    """Return the settings that an SWF file's own header proposes, {} if none.

    SWF has no place for what a job is and when it is due. `rtsched synth` therefore writes the
    rules that give its jobs back, as `; RtschedWorkload: { jobs_are = "divisible:1:100" }`. They
    are defaults: what the user says comes first.

    Parameters
    ----------
    lines : iterable of str
        The file's lines, at least its comments.

    Raises
    ------
    ConfigError
        If the line is no TOML inline table.
    """
    for line in lines:
        name, _, value = line.strip().lstrip(";").partition(":")
        if name.strip() == HEADER:
            try:
                table = tomllib.loads(f"settings = {value}")["settings"]
            except tomllib.TOMLDecodeError as cause:
                raise ConfigError([f"header line {HEADER}: is not valid TOML: {cause}"]) from cause
            if not isinstance(table, dict):
                raise ConfigError([f"header line {HEADER}: is not a table of settings"])
            return table
    return {}
