"""The chain: the only caller of hooks. It orders, times, isolates, attributes and checks.

pluggy finds and validates implementations; it returns bare results and stops at the first
exception, so the chain walks the implementations itself and yields one `Answer` each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pluggy
import structlog

from rtsched.core import hookspecs
from rtsched.core.capabilities import PreparedState, capabilities_of
from rtsched.core.checks import CHECKS, check_no_promises, check_order
from rtsched.core.combine import first_classes, first_opinion, strictest, weighted_sum
from rtsched.core.plugins import discover, instantiate
from rtsched.errors import ConfigError, PluginError, ShapeError
from rtsched.model.verdicts import Finding, Placement, Reason, Verdict, Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.core.capabilities import Capabilities
    from rtsched.core.config import Mode, PluginTable
    from rtsched.core.plugins import Found
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.state import Events, State
    from rtsched.model.verdicts import DelayClasses, Terms


@dataclass
class HookMetrics:
    """How often one plug-in was asked one hook, and what it said.

    Attributes
    ----------
    calls : int
        Times the hook was asked.
    judged, changed, abstained : int
        Rows handed over; rows on which its answer asks for another course than without it (a
        rejection, a deferral or a promise; to pass a job that stands ahead of it in the queue; a
        size or node set); rows on which it had no opinion.
    seconds : float
        Time spent in it (left out of compared files).
    errors : int
        Calls that raised or answered wrongly.
    first_error : str
        What the first of them said.
    """

    calls: int = 0
    judged: int = 0
    changed: int = 0
    abstained: int = 0
    seconds: float = 0.0
    errors: int = 0
    first_error: str = ""

    def enter(self, hook: str, value: Any, n: int, seconds: float, error: str) -> None:
        """Count one call about `n` rows: its answer, how long it took, and its error if any."""
        self.add(1, n, *_course(hook, value, n))
        self.seconds += seconds
        self.errors += bool(error)
        self.first_error = self.first_error or error

    def add(self, calls: int, judged: int, changed: int, abstained: int) -> None:
        """Count calls, and the rows in them."""
        self.calls += calls
        self.judged += judged
        self.changed += changed
        self.abstained += abstained


def _course(hook: str, value: Any, n: int) -> tuple[int, int]:
    """Return on how many of `n` rows an answer changes the course, and on how many it abstains."""
    if value is None:
        return 0, n
    if hook == "admit":
        steers = (value.code >= Verdict.DEFER) | np.isfinite(value.promise)
        return int(np.count_nonzero(steers)), int(np.count_nonzero(value.code == Verdict.ABSTAIN))
    if hook == "fair_share":
        if value.per_account or n < 2:
            return 0, 0
        total = value.total()
        min_ahead = np.minimum.accumulate(total[:-1])
        return int(np.count_nonzero(total[1:] > min_ahead)), 0
    if hook == "partition":
        steers = (value.size > 0) | (value.node_set >= 0)
        changed = int(np.count_nonzero(steers))
        return changed, n - changed
    if hook == "delay_class":
        return (n if bool((value.factor != 1.0).any()) else 0), 0
    return n, 0


T = TypeVar("T")
log = structlog.get_logger(__name__)

__all__ = [
    "FAILED",
    "HOOKS",
    "Answer",
    "Chain",
    "HookMetrics",
    "Judgement",
    "Member",
    "Priorities",
    "Stage",
]

HOOKS = ("delay_class", "admit", "fair_share", "partition", "observe")
FAILED = Reason("plugin.failed", "a plug-in failed; jobs are deferred until it answers again")


class Stage(Enum):
    """Which implementations are asked."""

    ALL = "all"
    STATIC = "static"
    """Those whose answer can never change: they name `jobs` and `cluster` only."""
    DYNAMIC = "dynamic"
    """The others, asked again at every decision."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What one plug-in said: a value, no opinion (None), or an error."""

    plugin: str
    mode: Mode
    value: T | None
    error: str = ""


@dataclass(frozen=True)
class Member:
    """One plug-in of a chain, as configured.

    Attributes
    ----------
    name : str
        By which errors, metrics and the planner setting know it.
    plugin : object
        The instance.
    mode, on_error, weight
        As in its `[[plugin]]` table.
    prepared : PreparedState
        What the plug-in keeps from one call to the next; shared by all members made of this one.
    capabilities : Capabilities
        What the plug-in declares.

    Raises
    ------
    PluginError
        If it declares its capabilities wrongly.
    """

    name: str
    plugin: Any
    mode: Mode = "enforce"
    on_error: str = "abstain"
    weight: float = 1.0
    prepared: PreparedState = field(default_factory=PreparedState, repr=False, compare=False)
    capabilities: Capabilities = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", capabilities_of(self.name, self.plugin))


@dataclass(frozen=True)
class _Hook:
    """One plug-in's implementation of one hook."""

    member: Member
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    declared_static: bool = False
    """The plug-in says that for this workload its answer is static."""

    @property
    def static(self) -> bool:
        return self.declared_static or set(self.arguments) <= {"jobs", "cluster", "prepared"}


@dataclass(frozen=True)
class Judgement:
    """What admission came to: the combined verdicts, and who said what.

    Attributes
    ----------
    verdicts : Verdicts
        One row per job; its findings are those of enforced plug-ins.
    answers : tuple of Answer
        Every plug-in's own verdicts, of shadow and warning ones too, on the same rows.
    planner_error : str
        That the planner, where it is enforced, raised or answered wrongly, and how. Empty if it
        answered. Nothing is known then of what can be promised: what `verdicts` holds for the rows
        that it was asked about is what the site's `on_error` says, and no verdict of the planner.
    """

    verdicts: Verdicts
    answers: tuple[Answer[Verdicts], ...]
    planner_error: str = ""


@dataclass(frozen=True)
class Priorities:
    """What fair share came to: a priority per job, and the terms behind it."""

    value: NDArray[np.float64]
    answers: tuple[Answer[Terms], ...]


@dataclass
class Chain:
    """Plug-ins in the configured order.

    Attributes
    ----------
    members : sequence of Member
        In order; members whose mode is `off` are left out.
    planner : str or None
        The member that owns the plan; asked to admit last, on the rows that survived.
    hook_metrics : dict of hook to dict of plug-in to HookMetrics
        Counted while the chain is used.
    """

    members: Sequence[Member]
    planner: str | None = None
    hook_metrics: dict[str, dict[str, HookMetrics]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = [member for member in self.members if member.mode != "off"]
        self._hooks = _resolve(self.members)
        for hook, implementations in self._hooks.items():
            for implementation in implementations:
                self.hook_metrics.setdefault(hook, {})[implementation.member.name] = HookMetrics()
        if self.planner is not None and not any(
            implementation.member.name == self.planner for implementation in self._hooks["admit"]
        ):
            raise ConfigError([f"planner: {self.planner!r} is not among the admission plug-ins"])

    @classmethod
    def load(
        cls,
        tables: Sequence[PluginTable],
        planner: str | None = None,
        found: Mapping[str, Found] | None = None,
    ) -> Chain:
        """Return the chain that a configuration describes.

        Raises
        ------
        ConfigError
            Listing every table that is wrong.
        PluginError
            If a plug-in cannot be made or breaks the hook contract.
        """
        found = discover() if found is None else found
        members: list[Member] = []
        problems: list[str] = []
        for index, table in enumerate(tables):
            if table.mode == "off":
                continue
            if any(member.name == table.name for member in members):
                problems.append(f"plugin[{index}].name: {table.name!r} is listed twice")
                continue
            try:
                plugin = instantiate(table, found, f"plugin[{index}]")
            except ConfigError as error:
                problems.extend(error.problems)
                continue
            members.append(Member(table.name, plugin, table.mode, table.on_error, table.weight))
        if problems:
            raise ConfigError(problems)
        return cls(members, planner)

    def asks(self, hook: str, stage: Stage = Stage.ALL) -> tuple[str, ...]:
        """Return the names of the plug-ins that a hook would be put to."""
        return tuple(entry.member.name for entry in self._hooks[hook] if _in_stage(entry, stage))

    def counts(self, hook: str, stage: Stage = Stage.ALL) -> bool:
        """Return whether the answer of any of them counts."""
        return any(self.member(name).mode == "enforce" for name in self.asks(hook, stage))

    def may_judge(self, jobs: Jobs, stage: Stage = Stage.ALL) -> NDArray[np.bool_]:
        """Return bool[n]: nobody has an opinion on admission of a batch that has none of these."""
        asked = [self.member(name) for name in self.asks("admit", stage)]
        if all(member.capabilities.judges_only_deadlines for member in asked):
            return np.isfinite(jobs.deadline) & bool(asked)
        return np.ones(len(jobs), np.bool_)

    def mark_static(self, jobs: Jobs, cluster: Cluster) -> None:
        """Take hooks as static that their plug-ins declare so for a workload.

        Raises
        ------
        PluginError
            If a plug-in names something that is no hook.
        """
        for member in self.members:
            ask = member.capabilities.static_hooks
            declared = set(ask(jobs, cluster)) if ask else set()
            if unknown := declared - set(HOOKS):
                raise PluginError(
                    member.name,
                    f"static_hooks names {sorted(unknown)[0]!r}; hooks are {', '.join(HOOKS)}",
                )
            for hook, entries in self._hooks.items():
                for at, entry in enumerate(entries):
                    if entry.member is member:
                        entries[at] = replace(entry, declared_static=hook in declared)

    def forget(self, hook: str) -> None:
        """Begin a hook's metrics anew."""
        for name in self.hook_metrics.get(hook, {}):
            self.hook_metrics[hook][name] = HookMetrics()

    def member(self, name: str) -> Member:
        """Return a member by name."""
        return next(member for member in self.members if member.name == name)

    def delay_class(self, jobs: Jobs, snapshot: Snapshot) -> DelayClasses | None:
        """Ask for delay classes; None where nobody has an opinion."""
        answers: list[Answer[DelayClasses]] = self._ask("delay_class", jobs=jobs, snapshot=snapshot)
        return first_classes(_counted(answers))

    def admit(
        self,
        jobs: Jobs,
        snapshot: Snapshot,
        classes: DelayClasses | None = None,
        stage: Stage = Stage.ALL,
    ) -> Judgement:
        """Judge jobs; the planner is asked last, on the rows that nobody turned away.

        About an empty batch only the planner is asked, if there is one: has it a better plan?
        """
        n = len(jobs)
        given: dict[str, Any] = {"snapshot": snapshot, "classes": classes, "stage": stage}
        answers: list[Answer[Verdicts]] = []
        if n or self.planner is None:
            answers += self._ask("admit", jobs=jobs, leave_out=self.planner, **given)
        rows, counted = np.arange(n), _counted(answers)
        if counted or self.planner is None:
            verdicts = strictest(counted, n)
            rows = np.flatnonzero(verdicts.code < Verdict.DEFER)
            if self.planner is None or (n and not len(rows)):
                return Judgement(verdicts, tuple(answers))
        asked = jobs if len(rows) == n else jobs.take(rows)
        planned: list[Answer[Verdicts]] = self._ask("admit", jobs=asked, only=self.planner, **given)
        answers += [
            Answer(answer.plugin, answer.mode, _spread(answer.value, rows, n), answer.error)
            for answer in planned
        ]
        failed = [a.error for a in planned if a.error and a.mode == "enforce"]
        error = f"planner {self.planner!r} failed: {failed[0]}" if failed else ""
        return Judgement(strictest(_counted(answers), n), tuple(answers), error)

    def fair_share(self, jobs: Jobs, snapshot: Snapshot, stage: Stage = Stage.ALL) -> Priorities:
        """Return a priority per job: the weighted sum of all terms."""
        answers: list[Answer[Terms]] = self._ask(
            "fair_share", jobs=jobs, snapshot=snapshot, stage=stage
        )
        weighed = [
            (self.member(answer.plugin).weight, answer.value)
            for answer in answers
            if answer.value is not None and answer.mode == "enforce"
        ]
        return Priorities(weighted_sum(weighed, jobs.association), tuple(answers))

    def partition(
        self,
        jobs: Jobs,
        snapshot: Snapshot,
        classes: DelayClasses | None = None,
        stage: Stage = Stage.ALL,
    ) -> Placement:
        """Return size and node set per job, by first opinion."""
        answers: list[Answer[Placement]] = self._ask(
            "partition", jobs=jobs, snapshot=snapshot, classes=classes, stage=stage
        )
        return first_opinion(_counted(answers), len(jobs))

    def observe(self, events: Events, snapshot: Snapshot) -> dict[str, State]:
        """Tell everybody what happened; return the states after it, by plug-in."""
        states = dict(snapshot.states)
        for entry in self._hooks["observe"]:
            name = entry.member.name
            answers: list[Answer[State]] = self._ask(
                "observe",
                only=name,
                events=events,
                snapshot=snapshot,
            )
            states.update({a.plugin: a.value for a in answers if a.value is not None})
        return states

    def _ask(
        self,
        hook: str,
        *,
        stage: Stage = Stage.ALL,
        only: str | None = None,
        leave_out: str | None = None,
        **given: Any,
    ) -> list[Answer[Any]]:
        """Put one hook to its implementations, one answer each, about jobs or events."""
        asked: Jobs | Events = given["events" if hook == "observe" else "jobs"]
        n = len(asked)
        snapshot: Snapshot = given["snapshot"]
        given.update(cluster=snapshot.cluster, accounts=snapshot.accounts)
        answers = []
        for entry in self._hooks[hook]:
            name = entry.member.name
            if name == leave_out or only not in {None, name} or not _in_stage(entry, stage):
                continue
            metrics = self.hook_metrics[hook][name]
            given.update(state=snapshot.states.get(name), prepared=entry.member.prepared)
            value, error, begun = None, "", time.perf_counter()
            try:
                value = entry.function(**{key: given[key] for key in entry.arguments})
                if value is not None:
                    CHECKS[hook](value, asked, snapshot)
                    if hook == "admit" and name != self.planner:
                        check_no_promises(value)
                    elif hook == "admit" and entry.member.capabilities.follows_dependencies:
                        check_order(value, snapshot)
            except ShapeError as cause:
                value, error = None, str(cause)
            except (Exception, SystemExit) as cause:  # whatever it raises; the others go on
                value, error = None, f"{type(cause).__name__}: {cause}"
            seconds = time.perf_counter() - begun
            if error and not metrics.errors:
                log.warning("plugin_failed", plugin=name, hook=hook, error=error)
            if error and hook == "admit" and entry.member.on_error == "defer":
                value = _deferred(n)
            metrics.enter(hook, value, n, seconds, error)
            answers.append(Answer(name, entry.member.mode, value, error))
        return answers


def _resolve(members: Sequence[Member]) -> dict[str, list[_Hook]]:
    """Return each hook's implementations in the members' order.

    Raises
    ------
    PluginError
        For an unknown hook or argument, or an implementation that asks for a place of its own.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for member in members:
        try:
            manager.register(member.plugin, member.name)
            manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            what = "; ".join(str(error).splitlines())
            raise PluginError(member.name, f"breaks the hook contract: {what}") from error
    by_name = {member.name: member for member in members}
    hooks: dict[str, list[_Hook]] = {}
    for hook in HOOKS:
        found = {
            implementation.plugin_name: implementation
            for implementation in getattr(manager.hook, f"rtsched_{hook}").get_hookimpls()
        }
        for name, implementation in found.items():
            if (
                implementation.tryfirst
                or implementation.trylast
                or implementation.wrapper
                or implementation.hookwrapper
            ):
                raise PluginError(
                    name,
                    f"rtsched_{hook} asks to be first, last or a wrapper; the order is set by the "
                    "configuration alone",
                )
        hooks[hook] = [
            _Hook(by_name[name], found[name].function, tuple(found[name].argnames))
            for name in by_name
            if name in found
        ]
    return hooks


def _in_stage(entry: _Hook, stage: Stage) -> bool:
    return stage is Stage.ALL or entry.static == (stage is Stage.STATIC)


def _counted(answers: Sequence[Answer[T]]) -> list[T]:
    """Return the values that count: enforced ones."""
    return [a.value for a in answers if a.value is not None and a.mode == "enforce"]


def _deferred(n: int) -> Verdicts:
    return Verdicts.build(
        np.full(n, Verdict.DEFER, np.int8),
        findings=(Finding.where(np.ones(n, np.bool_), FAILED),),
    )


def _spread(value: Verdicts | None, rows: NDArray[np.int64], n: int) -> Verdicts | None:
    """Return verdicts on `rows` as verdicts on all `n` rows, abstaining on the others."""
    if value is None or len(rows) == n:
        return value
    code, retry_at = np.zeros(n, np.int8), np.full(n, -np.inf)
    promise, offer = np.full(n, np.inf), np.full(n, np.inf)
    code[rows], retry_at[rows] = value.code, value.retry_at
    promise[rows], offer[rows] = value.promise, value.offer
    findings = tuple(finding.moved(rows) for finding in value.findings)
    return Verdicts(code, retry_at, promise, offer, findings, value.plan)
