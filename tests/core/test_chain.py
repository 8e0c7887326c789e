"""The chain: order, isolation, attribution, modes, stages, and the planner's place."""

from typing import Any

import numpy as np
import pytest

from rtsched.core.chain import FAILED, Chain, Member, Stage
from rtsched.core.config import PluginTable
from rtsched.core.hookspecs import hookimpl
from rtsched.core.plugins import Found
from rtsched.errors import ConfigError, PluginError
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind, State
from rtsched.model.verdicts import DelayClasses, Placement, Reason, Terms, Verdict, Verdicts
from rtsched.testing import make_cluster, make_events, make_jobs, make_snapshot

# ruff: noqa: D101, D102, D103 - plug-ins made up for the tests

JOBS = make_jobs(size=[1, 5, 9])
HERE = make_snapshot(JOBS)


class Wide:
    """Reject jobs wider than a limit."""

    reason = Reason("wide.too-wide", "asks for {asked} nodes")

    def __init__(self, limit: int = 4) -> None:
        self.limit = limit

    @hookimpl
    def rtsched_admit(self, jobs: Any) -> Verdicts:
        return Verdicts.reject_where(jobs.size > self.limit, self.reason, asked=jobs.size)


class Broken:
    """Raise, whatever it is asked."""

    @hookimpl
    def rtsched_admit(self, jobs: Any, snapshot: Any) -> Verdicts:
        raise ZeroDivisionError("no idea")

    @hookimpl
    def rtsched_fair_share(self, jobs: Any) -> Terms:
        return Terms({"share": np.full(len(jobs), 2.0)})

    @hookimpl
    def rtsched_partition(self, jobs: Any) -> Any:
        return "anywhere"


class Planner:
    """Promise everything it is asked about, and remember what that was."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    @hookimpl
    def rtsched_admit(self, jobs: Any, snapshot: Any) -> Verdicts:
        self.asked.append(jobs.id.tolist())
        n = len(jobs)
        plan = Schedule.build(
            jobs.id, 0.0, np.ones(n), np.arange(n + 1), np.arange(n, dtype=np.int32)
        )
        return Verdicts.build(np.full(n, Verdict.ADMIT), promise=100.0, plan=plan)


class Urgent:
    """Prefer jobs by a fixed term."""

    def __init__(self, *values: float) -> None:
        self.values = values

    @hookimpl
    def rtsched_fair_share(self, jobs: Any, snapshot: Any) -> Terms:
        return Terms({"urgency": np.array(self.values)}, {"urgency": 10.0})


def member(plugin: Any, name: str = "", **options: Any) -> Member:
    return Member(name or type(plugin).__name__.lower(), plugin, **options)


def test_answers_are_attributed_in_configured_order() -> None:
    """Each answer carries its plug-in's name; the order is that of the members."""
    chain = Chain([member(Wide(8), "second"), member(Wide(4), "first")])
    judgement = chain.admit(JOBS, HERE)
    assert [answer.plugin for answer in judgement.answers] == ["second", "first"]
    assert judgement.answers[0].value.code.tolist() == [0, 0, 3]
    assert judgement.verdicts.code.tolist() == [0, 3, 3]


def test_a_failing_plug_in_leaves_the_others_alone() -> None:
    """What raises abstains by default; its name and cause are in the answer and the metrics."""
    chain = Chain([member(Broken()), member(Wide())])
    judgement = chain.admit(JOBS, HERE)
    assert judgement.verdicts.code.tolist() == [0, 3, 3]
    assert judgement.answers[0].error == "ZeroDivisionError: no idea"
    assert judgement.answers[0].value is None
    metrics = chain.hook_metrics["admit"]["broken"]
    assert (metrics.errors, metrics.first_error) == (1, "ZeroDivisionError: no idea")
    assert (metrics.judged, metrics.changed, metrics.abstained) == (3, 0, 3)


def test_a_failing_plug_in_may_defer_instead() -> None:
    """Where the site says so, nobody passes a plug-in that does not answer."""
    chain = Chain([member(Broken(), on_error="defer")])
    verdicts = chain.admit(JOBS, HERE).verdicts
    assert verdicts.code.tolist() == [Verdict.DEFER] * 3
    assert verdicts.findings[0].reason is FAILED


@pytest.mark.parametrize(
    ("hook", "complaint"),
    [("fair_share", "term 'share' leaves [0, 1]"), ("partition", "returned str")],
)
def test_a_wrong_answer_counts_as_none(hook: str, complaint: str) -> None:
    """Shapes and ranges are checked; a bad answer is its plug-in's error and is not used."""
    chain = Chain([member(Broken())])
    getattr(chain, hook)(JOBS, HERE)
    metrics = chain.hook_metrics[hook]["broken"]
    assert metrics.errors == 1
    assert complaint in metrics.first_error


def test_books_count_rows() -> None:
    """Calls, rows judged, rows whose course changed, rows without an opinion."""
    chain = Chain([member(Wide())])
    chain.admit(JOBS, HERE)
    chain.admit(JOBS.take([0]), HERE)
    metrics = chain.hook_metrics["admit"]["wide"]
    assert (metrics.calls, metrics.judged, metrics.changed, metrics.abstained) == (2, 4, 2, 2)
    assert metrics.seconds > 0.0


@pytest.mark.parametrize(
    ("terms", "passes"),
    [
        ([0.9, 0.5, 0.5, 0.1], 0),
        ([0.5, 0.9, 0.5, 0.1], 1),
        ([0.1, 0.2, 0.3, 0.4], 3),
        ([0.4, 0.1, 0.2, 0.4], 2),
        ([0.7], 0),
    ],
)
def test_books_count_jobs_that_pass_others(terms: list[float], passes: int) -> None:
    """A priority changes a job's course if it is above that of any job ahead in the queue."""

    class Given:
        @hookimpl
        def rtsched_fair_share(self, jobs: Any) -> Terms:
            return Terms({"given": np.array(terms)})

    chain = Chain([member(Given())])
    chain.fair_share(make_jobs(size=[1] * len(terms)), HERE)
    assert chain.hook_metrics["fair_share"]["given"].changed == passes


@pytest.mark.parametrize("option", ["tryfirst", "trylast", "wrapper", "hookwrapper"])
def test_places_of_their_own_are_refused(option: str) -> None:
    """The order comes from the configuration alone."""

    class Pushy:
        @hookimpl(**{option: True})
        def rtsched_admit(self, jobs: Any) -> Any:
            yield

    with pytest.raises(PluginError, match=r"'pushy'.*the order is set by the configuration"):
        Chain([member(Pushy())])


def test_unknown_hooks_and_arguments_are_refused() -> None:
    """A misspelt hook or argument is told by name when the chain is made."""

    class Hook:
        @hookimpl
        def rtsched_admitt(self, jobs: Any) -> None: ...

    class Argument:
        @hookimpl
        def rtsched_admit(self, job: Any) -> None: ...

    with pytest.raises(PluginError, match=r"plug-in 'hook'.*rtsched_admitt"):
        Chain([member(Hook())])
    with pytest.raises(PluginError, match=r"plug-in 'argument'.*job"):
        Chain([member(Argument())])


def test_modes() -> None:
    """Enforced answers count, shadow and warning ones are kept, `off` is not asked."""
    for mode, code in (("enforce", [0, 3, 3]), ("warn", [0] * 3), ("shadow", [0] * 3)):
        judgement = Chain([member(Wide(), mode=mode)]).admit(JOBS, HERE)
        assert judgement.verdicts.code.tolist() == code
        assert judgement.answers[0].mode == mode
        assert judgement.answers[0].value.code.tolist() == [0, 3, 3]
    assert Chain([member(Wide(), mode="off")]).admit(JOBS, HERE).answers == ()


def test_shadow_terms_order_nothing() -> None:
    """A plug-in on trial keeps its breakdown, the order is as without it."""
    order = Chain([member(Urgent(0.0, 0.5, 1.0), mode="shadow")]).fair_share(JOBS, HERE)
    assert order.value.tolist() == [0.0] * 3
    assert order.answers[0].value.total().tolist() == [0.0, 5.0, 10.0]


def test_the_planner_is_asked_last_about_survivors() -> None:
    """Only jobs that no enforced plug-in turned away come to the planner."""
    planner = Planner()
    chain = Chain(
        [member(planner), member(Wide(4)), member(Wide(0), "x", mode="shadow")], "planner"
    )
    judgement = chain.admit(JOBS, HERE)
    assert planner.asked == [[0]]
    assert [answer.plugin for answer in judgement.answers] == ["wide", "x", "planner"]
    assert judgement.verdicts.code.tolist() == [1, 3, 3]
    assert judgement.verdicts.promise.tolist() == [100.0, np.inf, np.inf]
    assert judgement.verdicts.plan is not None
    assert judgement.verdicts.plan.entries.job.tolist() == [0]


def test_the_planner_is_spared_a_hopeless_batch() -> None:
    """If nobody survives there is nothing to plan; an empty batch is a chance to plan better."""
    planner = Planner()
    chain = Chain([member(planner), member(Wide(0))], "planner")
    chain.admit(JOBS, HERE)
    assert planner.asked == []
    chain.admit(JOBS.take([]), HERE)
    assert planner.asked == [[]]


def test_a_planner_must_be_there() -> None:
    """The name of a planner that does not admit is a mistake in the configuration."""
    for plugin, planner in ((Wide(), "mcdf"), (Urgent(), "urgent")):
        with pytest.raises(ConfigError, match=f"planner: '{planner}'"):
            Chain([member(plugin)], planner)


def test_stages() -> None:
    """Who names jobs and cluster alone is static; who names more is asked at every decision."""
    chain = Chain([member(Wide()), member(Planner())])
    assert chain.asks("admit") == ("wide", "planner")
    assert chain.asks("admit", Stage.STATIC) == ("wide",)
    assert chain.asks("admit", Stage.DYNAMIC) == ("planner",)
    static = chain.admit(JOBS, HERE, stage=Stage.STATIC)
    assert [answer.plugin for answer in static.answers] == ["wide"]
    still_open = chain.admit(JOBS, HERE, stage=Stage.DYNAMIC)
    assert [answer.plugin for answer in still_open.answers] == ["planner"]


def test_priorities_are_weighted_sums() -> None:
    """Terms count by their own weight and then by their plug-in's."""

    class Accounted:
        @hookimpl
        def rtsched_fair_share(self, accounts: Any) -> Terms:
            return Terms({"share": np.array([0.25, 1.0])}, per_account=True)

    accounts = Accounts.build(2, name=["a", "b"])
    jobs = make_jobs(3, association=np.array([1, 0, -1], np.int32))
    snapshot = make_snapshot(jobs, accounts=accounts)
    chain = Chain([member(Urgent(0.0, 0.5, 1.0)), member(Accounted(), weight=4.0)])
    assert chain.fair_share(jobs, snapshot).value.tolist() == [4.0, 6.0, 10.0]


def test_the_first_opinion_on_a_place_holds() -> None:
    """Per row, in configured order; classes of delay reach those who ask for them."""

    class Odd:
        @hookimpl
        def rtsched_delay_class(self, cluster: Any) -> DelayClasses:
            return DelayClasses(np.full(len(cluster), 2.0), np.array([1.0]))

        @hookimpl
        def rtsched_partition(self, jobs: Any, classes: Any) -> Placement:
            where = np.where(jobs.size % 4 == 1, int(classes.factor[0]), 0)
            return Placement(where.astype(np.int32), np.full(len(jobs), -1, np.int32))

    class All:
        @hookimpl
        def rtsched_partition(self, jobs: Any) -> Placement:
            every = np.zeros(len(jobs), np.int32)
            return Placement(every + 1, every, (np.arange(3, dtype=np.int32),))

    jobs = make_jobs(size=[1, 2, 5])
    chain = Chain([member(Odd()), member(All())])
    classes = chain.delay_class(jobs, HERE)
    placement = chain.partition(jobs, HERE, classes)
    assert placement.size.tolist() == [2, 1, 2]
    assert placement.node_set.tolist() == [-1, 0, -1]


class Seen(State, frozen=True):
    count: int


class Counter:
    @hookimpl
    def rtsched_observe(self, events: Any, state: Any) -> Seen | None:
        return Seen(len(events) + (state.count if state else 0)) if len(events) else None


def test_everybody_observes_and_keeps_a_state_of_its_own() -> None:
    """States are kept by name, on trial too; a plug-in that fails keeps the one it had."""

    class Clumsy:
        @hookimpl
        def rtsched_observe(self, events: Any) -> Any:
            raise OSError("disk")

    members = [member(Counter(), "a"), member(Counter(), "b", mode="shadow"), member(Clumsy())]
    chain = Chain(members)
    events = make_events(JOBS, [(0.0, EventKind.ARRIVED, 0), (1.0, EventKind.ARRIVED, 1)])
    before = {"a": Seen(3), "clumsy": Seen(9)}
    states = chain.observe(events, make_snapshot(states=before))
    assert states == {"a": Seen(5), "b": Seen(2), "clumsy": Seen(9)}
    assert before == {"a": Seen(3), "clumsy": Seen(9)}
    assert chain.hook_metrics["observe"]["clumsy"].first_error == "OSError: disk"


def found(name: str, plugin: type) -> Found:
    return Found(name, "somewhere", "1", lambda: plugin)


class Configured(Wide):
    """Has no settings."""

    def __init__(self, config: Any) -> None:
        super().__init__()


def test_loading_reports_every_wrong_table() -> None:
    """Unknown, listed twice, wrong settings: all in one go, each with its path."""
    tables = [
        PluginTable("wide"),
        PluginTable("nowhere"),
        PluginTable("wide"),
        PluginTable("bad", settings={"limit": 3}),
        PluginTable("gone", mode="off"),
    ]
    known = {"wide": found("wide", Configured), "bad": found("bad", Configured)}
    with pytest.raises(ConfigError) as caught:
        Chain.load(tables, found=known)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "plugin[1].name",
        "plugin[2].name",
        "plugin[3].settings.limit",
    ]


def test_loading_makes_members_as_configured() -> None:
    """Mode, behaviour on errors and weight come from the table."""
    table = PluginTable("wide", mode="warn", on_error="defer", weight=2.5)
    chain = Chain.load([table], found={"wide": found("wide", Configured)})
    loaded = chain.member("wide")
    assert (loaded.mode, loaded.on_error, loaded.weight) == ("warn", "defer", 2.5)


def test_a_constructor_that_raises_names_its_plug_in() -> None:
    """A plug-in that cannot be made stops the loading with its name and cause."""

    class Fussy:
        def __init__(self, config: Any) -> None:
            raise ValueError("not today")

    with pytest.raises(
        PluginError, match=r"plug-in 'fussy': cannot be created: ValueError: not today"
    ):
        Chain.load([PluginTable("fussy")], found={"fussy": found("fussy", Fussy)})


def test_plans_on_nodes_that_are_not_there_are_refused() -> None:
    """A plan is checked against the cluster like any other answer."""
    chain = Chain([member(Planner())], "planner")
    verdicts = chain.admit(JOBS, make_snapshot(cluster=make_cluster(2))).verdicts
    assert verdicts.plan is None
    assert "does not have" in chain.hook_metrics["admit"]["planner"].first_error


@pytest.mark.parametrize("planner", [None, "other"])
def test_only_the_planner_promises(planner: str | None) -> None:
    """Promises of anybody else are its error: counted, and treated as the site says."""
    other = [member(Wide(), "other")]
    for on_error, code in (("abstain", Verdict.ABSTAIN), ("defer", Verdict.DEFER)):
        chain = Chain([*other, member(Planner(), on_error=on_error)], planner)
        judgement = chain.admit(JOBS.take([0]), HERE)
        assert judgement.verdicts.plan is None
        assert judgement.verdicts.promise.tolist() == [np.inf]
        assert judgement.verdicts.code.tolist() == [code]
        metrics = chain.hook_metrics["admit"]["planner"]
        assert metrics.errors == 1
        assert "not the chain's planner" in metrics.first_error


def test_a_plan_of_jobs_that_are_not_there_is_the_planner_s_error() -> None:
    """It never reaches the batch system, which would not know what to do with it."""

    class Dreamer:
        @hookimpl
        def rtsched_admit(self, jobs: Any, snapshot: Any) -> Verdicts:
            plan = Schedule.build([99], 0.0, 1.0, np.array([0, 1]), np.array([0], np.int32))
            return Verdicts.build(np.zeros(len(jobs)), plan=plan)

    chain = Chain([member(Dreamer())], "dreamer")
    assert chain.admit(JOBS, HERE).verdicts.plan is None
    assert "job 99, which does not wait" in chain.hook_metrics["admit"]["dreamer"].first_error
