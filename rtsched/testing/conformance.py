"""The conformance test: what every plug-in must keep, whoever wrote it."""

from __future__ import annotations

import math
import re
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import msgspec
import numpy as np

from rtsched.core.capabilities import Capabilities, capabilities_of
from rtsched.core.chain import HOOKS, Chain, Member, Stage
from rtsched.core.config import convert, schema
from rtsched.core.planned_rows import planned_again, planned_in_turn
from rtsched.core.plugins import NoSettings
from rtsched.descriptions import described, structures
from rtsched.kernels.policy import RejectedRows, kernels_of, observe, place, rank
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import NO_PLAN, PlanRows, Promises, Schedule
from rtsched.model.snapshot import Snapshot, places
from rtsched.model.state import EventKind, EventRows, Events, decode_state, encode_state
from rtsched.model.verdicts import Reason, Verdict, Verdicts
from rtsched.testing.builders import make_jobs, make_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rtsched.core.capabilities import ReplayPlanner
    from rtsched.model.state import State
    from rtsched.model.verdicts import Finding
    from rtsched.testing.strategies import Scene


ASKED = ("delay_class", "admit", "fair_share", "partition")
"""The hooks that answer about jobs."""


class PluginConformance:
    """Derive from it, name the plug-in, and pytest runs the conformance test on it.

    Attributes
    ----------
    plugin : type
        The class under test.
    settings : mapping
        Its settings, as a configuration file would give them.
    name : str
        The name it is configured by; its class's `name`, or the class's name, if left empty.
    planner : bool
        Whether it is asked as the planner.
    examples : int
        Number of random scenes.
    """

    plugin: ClassVar[type[Any]]
    settings: ClassVar[Mapping[str, Any]] = {}
    name: ClassVar[str] = ""
    planner: ClassVar[bool] = False
    examples: ClassVar[int] = 50

    def test_is_documented(self) -> None:
        """The class says what it does, and every setting what it is for."""
        claim((self.plugin.__doc__ or "").strip(), f"{self.plugin.__name__} has no docstring")
        kind = self._config_kind()
        schema(kind)
        missing = undescribed(kind, "")
        claim(not missing, f"settings without a description: {', '.join(missing)}")

    def test_reasons_are_complete(self) -> None:
        """Declared reasons have stable codes; findings use them with all their numbers."""
        codes = {reason.code for reason in reasons_of(self.plugin)}

        def check(scene: Scene) -> None:
            answer = self._answer("admit", scene.jobs, scene.snapshot)
            for finding in answer.findings if answer is not None else ():
                claim(finding.reason.code in codes, f"{finding.reason.code} is not declared")
                claim_numbers(finding)

        self._on_scenes(check, "admit")

    def test_answers_have_the_right_shape(self) -> None:
        """Whatever it is asked, it answers with arrays of the right length, type and range."""

        def check(scene: Scene) -> None:
            for hook in self._asked():
                self._answer(hook, scene.jobs, scene.snapshot)

        self._on_scenes(check)

    def test_abstains_on_empty_input(self) -> None:
        """A batch of no jobs and no events is answered with nothing."""

        def check(scene: Scene) -> None:
            for hook in self._asked():
                none = self._answer(hook, scene.jobs.take([]), scene.snapshot)
                claim_same(by_row(hook, none, 0), [], f"{hook}: rows about no jobs")
            if self._chain().asks("observe"):
                silence = Events(EventRows.build(0), Jobs.build(0))
                state = self._reduced(silence, scene.snapshot, None)
                claim(state is None, "observe: a state of no events")

        self._on_scenes(check)

    def test_rows_have_no_order(self) -> None:
        """Permuted jobs get the same answers, permuted: order is by submission and id."""

        def check(scene: Scene) -> None:
            n = len(scene.jobs)
            backwards = np.arange(n)[::-1]
            for hook in self._asked():
                there = by_row(hook, self._answer(hook, scene.jobs, scene.snapshot), n)
                jobs = scene.jobs.take(backwards)
                back = by_row(hook, self._answer(hook, jobs, scene.snapshot), n)
                claim_same(there, back[::-1], f"{hook}: answers depend on the order of rows")

        self._on_scenes(check)

    def test_leaves_its_input_alone(self) -> None:
        """Nothing it is given is written to."""

        def check(scene: Scene) -> None:
            before = contents(scene)
            for hook in self._asked():
                self._answer(hook, scene.jobs, scene.snapshot)
            if self._chain().asks("observe"):
                self._reduced(scene.events, scene.snapshot, None)
            claim(contents(scene) == before, "an input was written to")

        self._on_scenes(check)

    def test_equal_questions_get_equal_answers(self) -> None:
        """Nothing but its arguments and settings decides: no clock, no chance, no memory."""

        def check(scene: Scene) -> None:
            n, chain = len(scene.jobs), self._chain()
            for hook in self._asked():
                first = by_row(hook, self._answer(hook, scene.jobs, scene.snapshot, chain), n)
                again = by_row(hook, self._answer(hook, scene.jobs, scene.snapshot, chain), n)
                other = by_row(hook, self._answer(hook, scene.jobs, scene.snapshot), n)
                claim_same(first, again, f"{hook}: a second answer differs")
                claim_same(first, other, f"{hook}: another instance answers otherwise")

        self._on_scenes(check)

    def test_nothing_asked_before_shows(self) -> None:
        """What it prepared for another snapshot is not used where it no longer stands."""

        def check(scene: Scene) -> None:
            jobs, snapshot = scene.jobs, scene.snapshot
            later = replace(snapshot, now=snapshot.now + 4000.0)
            none = snapshot.running.take([])
            idle = replace(snapshot, running=none, allocations=Schedule.empty())
            for hook in self._asked():
                for other in (later, idle):
                    chain = self._chain()
                    self._answer(hook, jobs, other, chain)
                    after = by_row(hook, self._answer(hook, jobs, snapshot, chain), len(jobs))
                    fresh = by_row(hook, self._answer(hook, jobs, snapshot), len(jobs))
                    claim_same(fresh, after, f"{hook}: shows what it was asked before")

        self._on_scenes(check)

    def test_static_answers_do_not_depend_on_batches(self) -> None:
        """Where only jobs and cluster are asked for, jobs judged together or apart fare alike."""

        def check(scene: Scene) -> None:
            n = len(scene.jobs)
            for hook in self._chain().static():
                whole = by_row(hook, self._answer(hook, scene.jobs, scene.snapshot), n)
                apart = []
                for row in range(n):
                    job = scene.jobs.take([row])
                    apart += by_row(hook, self._answer(hook, job, scene.snapshot), 1)
                claim_same(whole, apart, f"{hook}: answers depend on the batch")

        self._on_scenes(check)

    def test_hooks_declared_static_are_static(self) -> None:
        """What a plug-in declares static for some jobs it answers alike whatever else goes on."""
        static_hooks = self._capabilities().static_hooks
        if static_hooks is None:
            return

        def check(scene: Scene) -> None:
            everyone, cluster = scene.jobs, scene.snapshot.cluster
            busy = make_snapshot(
                everyone, cluster, scene.snapshot.now, running=make_jobs(1, id=[-1]), nodes=[[0]]
            )
            for rows in ([], *([row] for row in range(len(everyone))), range(len(everyone))):
                jobs = everyone.take(list(rows))
                for hook in static_hooks(jobs, cluster):
                    alone = self._answer(hook, jobs, Snapshot(busy.now, cluster))
                    among = self._answer(hook, jobs, busy)
                    claim_same(
                        by_row(hook, alone, len(jobs)),
                        by_row(hook, among, len(jobs)),
                        f"{hook}: is declared static and depends on what runs",
                    )

        self._on_scenes(check)

    def test_has_no_opinion_on_jobs_without_a_deadline(self) -> None:
        """A plug-in that says so has none where no job of the batch has one."""
        if not self._capabilities().judges_only_deadlines:
            return

        def check(scene: Scene) -> None:
            jobs = scene.jobs.take(np.isinf(scene.jobs.deadline))
            answer = self._answer("admit", jobs, scene.snapshot)
            claim(answer is None, "admit: an opinion on jobs without a deadline")

        self._on_scenes(check, "admit")

    def test_state_is_data(self) -> None:
        """States are stored and read back; events reduced in pieces come to the same state."""

        def check(scene: Scene) -> None:
            events, snapshot = scene.events, scene.snapshot
            at_once = self._reduced(events, snapshot, None)
            in_pieces: State | None = None
            for row in range(len(events)):
                piece = _piece(events, row, row + 1)
                then = replace(snapshot, now=float(events.rows.time[row]))
                after = self._reduced(piece, then, in_pieces)
                in_pieces = in_pieces if after is None else after
            if at_once is None or in_pieces is None:
                claim(at_once is in_pieces, "a state comes and goes with how events are cut")
                return
            stored = encode_state(at_once)
            claim(encode_state(in_pieces) == stored, "the state depends on how events are cut")
            back = decode_state(stored, type(at_once))
            claim(encode_state(back) == stored, "the state is not what was stored")

        if self._chain().asks("observe"):
            self._on_scenes(check)

    def test_compiled_policy_answers_alike(self) -> None:
        """A compiled policy gives the priorities and node sets of the hooks, event by event."""
        offer = self._capabilities().compiled_policy
        if offer is None:
            return

        def check(scene: Scene) -> None:
            jobs, events, system = scene.jobs, scene.events, scene.snapshot
            origin = float(jobs.submit[0]) if len(jobs) else 0.0
            policy = offer(jobs, system.accounts, system.cluster, origin)
            kernels = kernels_of(policy)
            places = kernels.place is not None
            if places:
                system = Snapshot(
                    system.now,
                    system.cluster,
                    running=system.running,
                    allocations=system.allocations,
                )
                if (events.rows.kind == EventKind.NODE_CHANGED).any():
                    return
            ids, state, waiting = jobs.id.tolist(), None, set[int]()
            for at, time in enumerate(events.rows.time.tolist()):
                then = replace(system, now=time)
                if kernels.rank is not None:
                    self._compare_priorities(policy, jobs, origin, self._with_state(then, state))
                job, kind = int(events.jobs.id[at]), int(events.rows.kind[at])
                row, nodes = ids.index(job), np.empty(0, np.int32)
                if places and kind == EventKind.STARTED and job in system.running.id:
                    on = int(np.flatnonzero(system.running.id == job)[0])
                    nodes = np.array(system.allocations.nodes_of(on), np.int32)
                if kernels.observe is not None:
                    size = int(events.rows.size[at])
                    observe(policy, time - origin, kind, row, size, nodes)
                    after = self._reduced(_piece(events, at, at + 1), then, state)
                    state = state if after is None else after
                if kernels.rank is not None:
                    self._compare_priorities(policy, jobs, origin, self._with_state(then, state))
                waiting.discard(row)
                if kind == EventKind.ARRIVED:
                    waiting.add(row)
                if places:
                    rows = np.array(sorted(waiting), np.int64)
                    known = self._with_state(then, state)
                    self._compare_node_sets(policy, jobs, rows, origin, known)
            if kernels.rank is not None:
                self._compare_priorities(policy, jobs, origin, self._with_state(system, state))

        self._on_scenes(check)

    def test_short_form_answers_alike(self) -> None:
        """A planner's short form for replays judges, plans and improves as its hook does."""
        replay_planner = self._capabilities().replay_planner
        if replay_planner is None:
            return

        def check(scene: Scene) -> None:
            everyone = scene.jobs.replace(partition=np.full(len(scene.jobs), -1, np.int32))
            short = replay_planner(everyone, scene.snapshot.cluster)
            if short is None:
                return
            rows = np.flatnonzero(short.answers)
            if not len(rows):
                return
            jobs, system = everyone.take(rows), scene.snapshot
            idle = replace(
                Snapshot(system.now, system.cluster),
                running=system.running,
                allocations=system.allocations,
            )
            if self._chain().asks("observe"):  # the short form knows when each job came
                idle = self._with_state(idle, self._reduced(_arrivals(everyone), idle, None))
            until = _held_until(idle)
            verdicts, plan = short.judge(rows, idle.now, until, NO_PLAN, lambda: 0)
            theirs_whole = self._answer("admit", jobs, idle)
            if verdicts is None:
                verdicts = Verdicts.build(np.full(len(rows), Verdict.ADMIT), promise=jobs.deadline)
            ours, theirs = (by_row("admit", each, len(rows)) for each in (verdicts, theirs_whole))
            claim_same(ours, theirs, "the short form judges otherwise")
            planned = _plan_as_rows(theirs_whole.plan, everyone)
            claim_same(_plain(plan), _plain(planned), "the short form plans otherwise")
            policy = short.compiled_policy()
            if policy is not None:
                alone = planned_in_turn(policy, rows, idle.now, until, NO_PLAN)
                admitted = rows[verdicts.code == Verdict.ADMIT].tolist()
                claim_same(alone[0].row.tolist(), admitted, "the compiled policy admits others")
                both = _plain(alone[0]), _plain(NO_PLAN if plan is None else plan)
                claim_same(*both, "the compiled policy plans otherwise")
                _claim_rejects_alike(short, rows, verdicts, alone[1], alone[2])
            if plan is None:
                return
            promised = everyone.take(plan.row)
            waits = replace(
                idle,
                queued=promised.take(np.argsort(plan.row)),
                plan=theirs_whole.plan,
                promises=Promises.build(
                    len(promised), job=promised.id, deadline=promised.deadline
                ).take(np.argsort(promised.id)),
            )
            chain = self._chain()
            anew = chain.answer("admit", everyone.take([]), waits)
            better = _plan_as_rows(None if anew is None else anew.plan, everyone)
            found = short.improve(idle.now, until, plan)
            claim_same(_plain(found), _plain(better), "the short form improves otherwise")
            if policy is not None:
                again = planned_again(policy, idle.now, until, plan)
                claim_same(_plain(again), _plain(found), "the compiled policy improves otherwise")

        self._on_scenes(check, "admit")

    def _compare_priorities(
        self, policy: Any, jobs: Jobs, origin: float, snapshot: Snapshot
    ) -> None:
        out = np.full(len(jobs), np.nan)
        rank(policy, snapshot.now - origin, np.arange(len(jobs)), out)
        value = self._chain().fair_share(jobs, snapshot).value
        claim_same(out.tolist(), value.tolist(), "fair_share: the compiled policy differs")

    def _compare_node_sets(
        self,
        policy: Any,
        jobs: Jobs,
        rows: NDArray[np.int64],
        origin: float,
        snapshot: Snapshot,
    ) -> None:
        out, (offsets, nodes) = np.full(len(rows), -1, np.int64), policy.node_sets
        place(policy, snapshot.now - origin, rows, out)
        ours = [nodes[offsets[k] : offsets[k + 1]].tolist() if k >= 0 else [] for k in out]
        whole = self._answer("partition", jobs.take(rows), snapshot)
        codes = [] if whole is None else whole.node_set.tolist()
        theirs = [whole.node_sets[k].tolist() if k >= 0 else [] for k in codes]
        claim_same(ours, theirs, "partition: the compiled policy wants other nodes")

    # How the plug-in is asked.

    def _with_state(self, snapshot: Snapshot, state: State | None) -> Snapshot:
        return replace(snapshot, states={} if state is None else {self._name(): state})

    def _name(self) -> str:
        return self.name or getattr(self.plugin, "name", self.plugin.__name__.lower())

    def _config_kind(self) -> type[msgspec.Struct]:
        kind: type[msgspec.Struct] = getattr(self.plugin, "Config", NoSettings)
        return kind

    def _make(self) -> Any:
        problems: list[str] = []
        config = convert(dict(self.settings), self._config_kind(), "", problems)
        claim(not problems, "; ".join(problems))
        return self.plugin(config)

    def _capabilities(self) -> Capabilities:
        return capabilities_of(self._name(), self._make())

    def _chain(self) -> _Lone:
        name = self._name()
        return _Lone([Member(name, self._make())], name if self.planner else None)

    def _asked(self) -> list[str]:
        chain = self._chain()
        return [hook for hook in ASKED if chain.asks(hook)]

    def _answer(self, hook: str, jobs: Jobs, snapshot: Snapshot, chain: _Lone | None = None) -> Any:
        """Return the plug-in's own answer; an error or a wrong answer fails the test."""
        chain = self._chain() if chain is None else chain
        if hook == "admit":
            snapshot = replace(snapshot, queued=Jobs.build(0))
        answer = chain.answer(hook, jobs, snapshot)
        chain.refuse_errors(hook)
        return answer

    def _reduced(self, events: Events, snapshot: Snapshot, state: State | None) -> State | None:
        """Return the state after `events`; None where the plug-in keeps none yet."""
        chain = self._chain()
        after = chain.observe(events, self._with_state(snapshot, state))
        chain.refuse_errors("observe")
        return after.get(self._name())

    def _on_scenes(self, check: Callable[[Scene], None], hook: str | None = None) -> None:
        """Run a check on random scenes, if the plug-in answers `hook`."""
        if hook is not None and not self._chain().asks(hook):
            return
        from rtsched.testing.strategies import sample_scenes  # raises where hypothesis is missing

        for scene in sample_scenes(self.examples):
            try:
                check(scene)
            except AssertionError as error:
                error.add_note(f"The smallest scene that shows it: {scene}")
                raise


def check_plugin(
    plugin: type[Any], settings: Mapping[str, Any] | None = None, **attributes: Any
) -> None:
    """Run the conformance test on a plug-in, without pytest.

    Parameters
    ----------
    plugin : type
        The plug-in's class.
    settings : mapping, optional
        Its settings.
    **attributes
        Further attributes of `PluginConformance`.

    Raises
    ------
    AssertionError
        Saying what the plug-in does not keep.
    MissingExtraError
        If hypothesis is not installed.
    """
    given = {"plugin": plugin, "settings": settings or {}, **attributes}
    suite = type(f"{plugin.__name__}Conformance", (PluginConformance,), given)()
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        getattr(suite, name)()


class _Lone(Chain):
    """A chain of one plug-in, whose errors are the test's."""

    def static(self) -> list[str]:
        """Return the hooks whose answers can never change."""
        return [hook for hook in HOOKS if hook in ASKED and self.asks(hook, Stage.STATIC)]

    def answer(self, hook: str, jobs: Jobs, snapshot: Snapshot) -> Any:
        """Return the only plug-in's answer to one hook."""
        if hook == "admit":
            return self.admit(jobs, snapshot).answers[0].value
        if hook == "fair_share":
            return self.fair_share(jobs, snapshot).answers[0].value
        return getattr(self, hook)(jobs, snapshot)

    def refuse_errors(self, hook: str) -> None:
        """Fail if the plug-in raised or answered wrongly."""
        for metrics in self.hook_metrics[hook].values():
            claim(not metrics.errors, f"{hook}: {metrics.first_error}")


def _piece(events: Events, begin: int, end: int) -> Events:
    rows = np.arange(begin, end)
    return Events(events.rows.take(rows), events.jobs.take(rows))


def _arrivals(jobs: Jobs) -> Events:
    """Return that all jobs were submitted, at the times that a replay's clock has."""
    origin = jobs.submit[:1]
    time = (jobs.submit - origin) + origin
    return Events(EventRows.build(len(jobs), time=time, kind=EventKind.ARRIVED), jobs)


def _held_until(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return until when running jobs hold each node, as `ReplayPlanner.judge` takes it."""
    until = np.full(len(snapshot.cluster), -np.inf)
    ends = snapshot.allocations.last_ends
    until[: len(ends)] = ends
    until[snapshot.cluster.nodes.state != NodeState.UP] = np.inf
    return until


def _plan_as_rows(plan: Schedule | None, jobs: Jobs) -> PlanRows | None:
    """Return a plan by the rows of its jobs in `jobs`."""
    if plan is None:
        return None
    row, _ = places(jobs.id, plan.entries.job)
    return PlanRows(row, plan.entries.start, plan.entries.end, plan.indptr, plan.nodes)


def _claim_rejects_alike(
    short: ReplayPlanner,
    rows: NDArray[np.int64],
    verdicts: Verdicts,
    others: RejectedRows,
    final: NDArray[np.bool_],
) -> None:
    """Claim that of those whom a compiled policy rejects for good the short form says the same."""
    if not final.any():
        return
    rejected = RejectedRows._make(column[final] for column in others)
    ours = by_row("admit", short.verdicts(rejected), len(rejected.row))
    theirs = by_row("admit", verdicts, len(rows))
    place = {row: at for at, row in enumerate(rows.tolist())}
    theirs = [theirs[place[row]] for row in rejected.row.tolist()]
    claim_same(ours, theirs, "the compiled policy rejects with other words")


def _plain(plan: PlanRows | None) -> list[Any] | None:
    """Return a plan as nested lists."""
    return None if plan is None else [column.tolist() for column in plan]


CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")


def claim(condition: object, message: str) -> None:
    """Fail the test with a message unless the condition holds, under `python -O` too."""
    if not condition:
        raise AssertionError(message)


def claim_same(one: Any, other: Any, message: str) -> None:
    """Fail the test unless two nested values are equal but for rounding."""
    claim(same(one, other), f"{message}: {one} and {other}")


def by_row(hook: str, answer: Any, n: int) -> list[Any]:
    """Return an answer as one comparable value per job."""
    if answer is None:
        return [None] * n
    if hook == "admit":
        columns = zip(answer.code, answer.retry_at, answer.promise, answer.offer, strict=True)
        found: list[list[Any]] = [[] for _ in range(n)]
        for finding in answer.findings:
            for k, row in enumerate(finding.rows.tolist()):
                numbers = {name: float(values[k]) for name, values in finding.numbers.items()}
                found[row].append((finding.reason.code, sorted(numbers.items())))
        return [(*map(float, row), sorted(found[i])) for i, row in enumerate(columns)]
    if hook == "fair_share":
        total = answer.total().tolist()
        return [sorted(total)] * n if answer.per_account else total
    if hook == "partition":
        sets = [part.tolist() for part in answer.node_sets]
        cuts = [part.tolist() for part in answer.fractions] or [[]] * len(sets)
        return [
            (size, sets[code] if code >= 0 else None, cuts[code] if code >= 0 else None)
            for size, code in zip(answer.size.tolist(), answer.node_set.tolist(), strict=True)
        ]
    common = [answer.factor.tolist(), answer.bounds.tolist()]
    if answer.per_job is None:
        return [common] * n
    return [(common, row) for row in answer.per_job.tolist()]


def same(one: Any, other: Any) -> bool:
    """Return whether two nested values are equal, numbers but for rounding."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)
    return bool(one == other)


def contents(scene: Scene) -> list[bytes]:
    """Return the bytes of all columns that a plug-in can reach."""
    system = scene.snapshot
    tables = (scene.jobs, system.queued, system.cluster.nodes, system.accounts, scene.events.rows)
    masks = [mask.tobytes() for mask in system.cluster.partitions.values()]
    return masks + [table.column(name).tobytes() for table in tables for name in table.columns()]


def reasons_of(plugin: type[Any]) -> list[Reason]:
    """Return the reasons that a plug-in declares in its class; fail for a code that is none."""
    values = [getattr(plugin, name) for name in dir(plugin) if not name.startswith("__")]
    reasons = [value for value in values if isinstance(value, Reason)]
    codes = [reason.code for reason in reasons]
    claim(len(set(codes)) == len(codes), "two reasons have one code")
    for code in codes:
        claim(CODE.fullmatch(code), f"{code!r} is no dotted lower-case code")
    return reasons


def claim_numbers(finding: Finding) -> None:
    """Fail the test unless a finding gives every number of its reason's template."""
    template = finding.reason.template
    wanted = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    claim(wanted <= finding.numbers.keys(), f"{finding.reason.code} lacks a number")
    for position in range(len(finding.rows)):
        claim(finding.text(position), f"{finding.reason.code} says nothing")


def undescribed(kind: type[msgspec.Struct], prefix: str) -> list[str]:
    """Return the paths of settings without a description."""
    missing = []
    hints = get_type_hints(described(kind), include_extras=True)
    for field in msgspec.structs.fields(kind):
        path, hint = f"{prefix}{field.encode_name}", hints[field.name]
        metas = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, msgspec.Meta)]
        if not any(meta.description for meta in metas):
            missing.append(path)
        for inner in structures(hint):
            missing += undescribed(inner, f"{path}.")
    return missing
