"""The portfolio plug-in: who is declined, what is remembered, promises, through the chain."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.config import convert
from rtsched.core.decision import admission_actions, judge, observe
from rtsched.model.actions import Admit, Reject, Reserve
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.model.verdicts import Verdict
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import PapersMcdf
from rtsched.replay.workload import prepare
from rtsched_plugins.portfolio import Portfolio, Recent

NOW = 1_795_000_000.0


def rigid(*rows: tuple[float, int, float], first: int = 0, now: float = NOW) -> Jobs:
    """Return rigid jobs from (relative deadline, size, wall time)."""
    deadline, size, wall = zip(*rows, strict=True)
    return Jobs.build(
        len(rows),
        id=np.arange(first, first + len(rows)),
        submit=now,
        deadline=now + np.array(deadline),
        size=np.array(size),
        wall_time=np.array(wall, np.float64),
    )


def chain(**changes: Any) -> Chain:
    """Return a chain of the one plug-in, as planner."""
    return Chain([Member("portfolio", Portfolio(Portfolio.Config(**changes)))], "portfolio")


EARLY = {"arrivals": 4, "least": 2, "overbooking": 1.0, "spared": 0.0, "heard": 0.0}
"""Settings with which a few arrivals tell the load."""


def with_arrivals(asked: Chain, snapshot: Snapshot, *work: float) -> Snapshot:
    """Return the snapshot after one job of each work came, a second apart, due at once."""
    n = len(work)
    time = snapshot.now - np.arange(n, 0, -1)
    jobs = rigid(*((0.0, 1, w) for w in work), first=1000).with_column("deadline", time)
    rows = EventRows.build(n, time=time, kind=np.full(n, EventKind.ARRIVED, np.int8))
    return observe(snapshot, asked, Events(rows, jobs))[0]


def test_large_jobs_are_declined_under_overload_with_their_numbers() -> None:
    """2 nodes: 1 + 3 + 8 + 9 came within 4 s; 8 s are room for 1 + 3, so what is over 8 is not."""
    asked = chain(**EARLY)
    snapshot = with_arrivals(asked, Snapshot(NOW, Cluster.uniform(2)), 1, 3, 8, 9)
    jobs = rigid((1e5, 1, 8.5), (1e5, 1, 8.0), (1e5, 2, 2.0))
    verdicts = judge(snapshot, asked, jobs).verdicts
    actions = admission_actions(jobs, verdicts)
    admit, reject = (next(a for a in actions if isinstance(a, k)) for k in (Admit, Reject))
    assert isinstance(admit, Admit)
    assert isinstance(reject, Reject)
    assert admit.job.tolist() == [1, 2]
    assert reject.job.tolist() == [0]
    assert reject.offer.tolist() == [np.inf]
    finding = verdicts.findings[0]
    assert finding.reason is Portfolio.overloaded
    assert finding.numbers["work"].tolist() == [8.5]
    assert finding.numbers["threshold"].tolist() == [8.0]
    assert finding.numbers["load"][0] > 2


def test_light_load_declines_nobody() -> None:
    """The same jobs on forty nodes."""
    asked = chain(**EARLY)
    snapshot = with_arrivals(asked, Snapshot(NOW, Cluster.uniform(40)), 1, 3, 8, 9)
    verdicts = asked.admit(rigid((1e5, 1, 8.0), (1e5, 1, 99.0)), snapshot).verdicts
    assert verdicts.code.tolist() == [Verdict.ADMIT] * 2


def test_a_job_that_was_seen_coming_is_not_counted_twice() -> None:
    """Judged with its arrival told or not told, a job gets the same verdict."""
    asked = chain(**EARLY)
    before = with_arrivals(asked, Snapshot(NOW, Cluster.uniform(2)), 1, 3, 8, 9)
    jobs = rigid(*((1e5, 1, wall) for wall in (40.0, 4.0, 5.0, 8.2, 7.0, 90.0)))
    n = len(jobs)
    came = EventRows.build(n, time=np.full(n, NOW), kind=np.full(n, EventKind.ARRIVED, np.int8))
    told, _ = observe(before, asked, Events(came, jobs))
    one, other = asked.admit(jobs, before).verdicts, asked.admit(jobs, told).verdicts
    assert one.code.tolist() == other.code.tolist()
    assert Verdict.REJECT in one.code.tolist()
    assert Verdict.ADMIT in one.code.tolist()


def test_memory_is_bounded_and_keeps_the_last_instant() -> None:
    """Of ten arrivals four are remembered; of ten at one instant all are."""
    for step, kept in ((1.0, 4), (0.0, 10)):
        asked, n = chain(**EARLY), 10
        jobs = rigid(*((1e5, 1, 5.0),) * n)
        rows = EventRows.build(n, time=NOW + step * np.arange(n), kind=np.zeros(n, np.int8))
        snapshot, _ = observe(Snapshot(NOW + 99, Cluster.uniform(2)), asked, Events(rows, jobs))
        state = snapshot.states["portfolio"]
        assert isinstance(state, Recent)
        assert len(state.job) == kept


def test_only_jobs_with_a_deadline_are_judged_and_counted() -> None:
    """Without deadlines there is no opinion, and nothing to remember."""
    asked = chain(**EARLY)
    jobs = rigid((np.inf, 1, 10.0), (np.inf, 1, 20.0))
    events = Events(EventRows.build(2, time=np.full(2, NOW), kind=np.zeros(2, np.int8)), jobs)
    snapshot, _ = observe(Snapshot(NOW, Cluster.uniform(1)), asked, events)
    assert "portfolio" not in snapshot.states
    assert asked.admit(jobs, snapshot).answers[0].value is None


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ((5, 1, 10), "portfolio.impossible"),
        ((99, 3, 10), "portfolio.impossible"),
        ((99, 1, np.inf), "portfolio.endless"),
    ],
    ids=["too long", "too wide", "endless"],
)
def test_hopeless_jobs_are_told_so(job: tuple[float, int, float], code: str) -> None:
    """What no plan could keep gets its own reason."""
    judgement = chain().admit(rigid(job), Snapshot(NOW, Cluster.uniform(2)))
    assert [finding.reason.code for finding in judgement.verdicts.findings] == [code]


def test_a_job_that_must_not_begin_yet_is_put_off() -> None:
    """It is judged when it may begin."""
    job = rigid((500, 1, 10)).with_column("begin", np.array([NOW + 60]))
    verdicts = chain().admit(job, Snapshot(NOW, Cluster.uniform(2))).verdicts
    assert verdicts.code.tolist() == [Verdict.DEFER]
    assert verdicts.retry_at.tolist() == [NOW + 60]
    assert [finding.reason.code for finding in verdicts.findings] == ["portfolio.not-yet"]


def test_a_rejected_job_leaves_no_trace_and_gets_an_offer() -> None:
    """The node is promised for 100 s: 10 s of work may end at 110 s; the plan stays as it is."""
    waiting = rigid((100, 1, 100))
    plan = Schedule.build([0], [NOW], [NOW + 100], np.array([0, 1]), np.array([0], np.int32))
    promises = Promises.build(1, job=[0], deadline=[NOW + 100], made_at=NOW)
    snapshot = Snapshot(NOW, Cluster.uniform(1), waiting, promises=promises, plan=plan)
    jobs = rigid((60, 1, 10), first=1)
    actions = admission_actions(jobs, judge(snapshot, chain(), jobs).verdicts)
    (reject,) = actions
    assert isinstance(reject, Reject)
    assert (reject.offer - NOW).tolist() == [110]
    assert not any(isinstance(action, Reserve) for action in actions)
    nothing = chain(offer_tests=0).admit(rigid((60, 1, 10), first=1), snapshot).verdicts
    assert nothing.offer.tolist() == [np.inf]


def test_loads_are_sent_in_several_rounds() -> None:
    """Sent at once E(2) = 5263 s; in rounds two nodes meet a deadline of 5000 s, in equal parts."""
    job = Jobs.build(
        1, id=[0], submit=NOW, deadline=NOW + 5000, kind=Kind.DIVISIBLE, sigma=100.0, cms=10.0,
        cps=90.0, size_max=2, rounds=8,
    )  # fmt: skip
    snapshot = Snapshot(NOW, Cluster.uniform(2))
    plan = chain().admit(job, snapshot).verdicts.plan
    assert plan is not None
    assert plan.fractions.tolist() == [0.5, 0.5]
    assert 1 < plan.entries.rounds[0] <= 8
    assert chain(rounds=1).admit(job, snapshot).verdicts.code.tolist() == [Verdict.REJECT]
    at_once = job.replace(rounds=np.array([1], np.int32))
    assert chain().admit(at_once, snapshot).verdicts.code.tolist() == [Verdict.REJECT]


def test_a_refused_load_is_told_what_would_do() -> None:
    """100 units due in half of E(1) on the one node: about half the load would get in."""
    job = Jobs.build(
        1, id=[0], submit=NOW, deadline=NOW + 5000, kind=Kind.DIVISIBLE, sigma=100.0, cms=10.0,
        cps=90.0,
    )  # fmt: skip
    found = chain(rounds=1).admit(job, Snapshot(NOW, Cluster.uniform(1))).verdicts.findings
    numbers = {finding.reason.code: finding.numbers for finding in found}
    assert numbers["portfolio.smaller-load"]["percent"].tolist() == [50]


def test_a_refused_array_is_told_how_many_tasks_would_do() -> None:
    """Four rounds of two tasks are due in 200 s, 100 s each, on one node."""
    job = Jobs.build(
        1, id=[0], submit=NOW, deadline=NOW + 200, kind=Kind.ARRAY, tasks=8, tasks_per_node=2,
        wall_time=100.0, size_min=1, size_max=4,
    )  # fmt: skip
    found = chain().admit(job, Snapshot(NOW, Cluster.uniform(1))).verdicts.findings
    numbers = {finding.reason.code: finding.numbers for finding in found}["portfolio.fewer-tasks"]
    assert (numbers["tasks"].tolist(), numbers["all"].tolist()) == ([4], [8])


@pytest.mark.parametrize(
    ("deadline", "code"), [(60, "portfolio.breaks-promise"), (105, "portfolio.no-room")]
)
def test_refusals_say_who_would_be_late(deadline: float, code: str) -> None:
    """The node is promised for 100 s: before that the promise would break, after it is too late."""
    waiting = rigid((100, 1, 100))
    plan = Schedule.build([0], [NOW], [NOW + 100], np.array([0, 1]), np.array([0], np.int32))
    promises = Promises.build(1, job=[0], deadline=[NOW + 100], made_at=NOW)
    snapshot = Snapshot(NOW, Cluster.uniform(1), waiting, promises=promises, plan=plan)
    found = chain().admit(rigid((deadline, 1, 10), first=1), snapshot).verdicts.findings
    assert [finding.reason.code for finding in found] == [code]
    assert found[0].numbers["promises"].tolist() == [1]


def test_a_refused_moldable_job_is_told_how_many_nodes_would_do() -> None:
    """100 s of work on one node, due in 60 s: on two of the four idle nodes it takes 50 s."""
    job = rigid((60, 1, 100)).with_column("kind", np.array([Kind.MOLDABLE], np.int8))
    found = chain().admit(job, Snapshot(NOW, Cluster.uniform(4))).verdicts.findings
    numbers = {finding.reason.code: finding.numbers for finding in found}
    assert numbers["portfolio.more-nodes"]["nodes"].tolist() == [2]


@pytest.mark.parametrize("wrong", [{"sigma": 0.0}, {"cps": -95.0}, {"setup_link": -1.0}])
def test_senseless_loads_are_refused_and_not_counted(wrong: dict[str, float]) -> None:
    """With one clear reason, and without a trace in what is remembered."""
    load = {"sigma": 100.0, "cms": 100.0, "cps": 90.0, "setup_link": 0.0, **wrong}
    job = Jobs.build(1, id=[0], submit=NOW, deadline=NOW + 5000, kind=Kind.DIVISIBLE, **load)
    events = Events(EventRows.build(1, time=[NOW], kind=np.zeros(1, np.int8)), job)
    snapshot, _ = observe(Snapshot(NOW, Cluster.uniform(2)), chain(), events)
    assert "portfolio" not in snapshot.states
    asked = chain()
    found = asked.admit(job, snapshot).verdicts.findings
    assert [finding.reason.code for finding in found] == ["portfolio.no-load"]
    assert not asked.hook_metrics["admit"]["portfolio"].errors


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"orders": []}, "orders"),
        ({"orders": ["cost"]}, "orders"),
        ({"generosity": -0.1}, "generosity"),
        ({"rounds": 0}, "rounds"),
        ({"overbooking": 0}, "overbooking"),
        ({"spared": 1.5}, "spared"),
        ({"heard": -1}, "heard"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], path: str) -> None:
    """Each with one sentence that names it."""
    problems: list[str] = []
    convert(given, Portfolio.Config, "", problems)
    assert len(problems) == 1
    assert path in problems[0]


def loaded(seed: int, load: float, jobs: int = 150) -> Any:
    """Return a workload of divisible loads with deadlines on 8 nodes."""
    return prepare(
        PapersMcdf(jobs=jobs, nodes=8, seed=seed, preset="equal10", load=load).log(),
        WorkloadOptions(),
    )


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 1000), st.sampled_from([0.3, 3.0]), st.sampled_from([1, 8]))
def test_no_promise_is_broken_in_a_replay(seed: int, load: float, rounds: int) -> None:
    """Nobody admitted ends late, under light and heavy load; nobody makes the plug-in fail."""
    preset = presets()["portfolio"]
    table = msgspec.structs.replace(
        preset.plugin[0], settings={"rounds": rounds, "least": 5, "offer_tests": 2}
    )
    workload = loaded(seed, load)
    run = replay(workload, "portfolio", msgspec.structs.replace(preset, plugin=[table]))
    values = measure(workload, run.results)
    assert values["missed"] == 0
    assert 0 < values["reject_ratio"] < 1
    assert not any(use.errors for hook in run.hooks.values() for use in hook.values())


def test_overload_is_counted_by_reason() -> None:
    """Three times too much work: some are declined, most are not, both are told apart."""
    workload = loaded(1, 4.0, jobs=300)
    run = replay(workload, "portfolio", presets()["portfolio"], record_nodes=False)
    found = [record["reason"] for record in run.decisions]
    declined = found.count("portfolio.overloaded")
    assert 20 < declined < 200
    assert run.hooks["admit"]["portfolio"].judged == 300


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    """One plug-in asked about many snapshots answers as a new one does."""
    used, snapshot = chain(**EARLY), Snapshot(NOW, Cluster.uniform(4))
    rng = np.random.default_rng(5)
    for k in range(15):
        jobs = rigid((float(rng.uniform(5, 90)), int(rng.integers(1, 4)), 20.0), first=k)
        asked = jobs.with_column("submit", np.full(1, snapshot.now))
        one, other = used.admit(asked, snapshot), chain(**EARLY).admit(asked, snapshot)
        assert one.verdicts.code.tolist() == other.verdicts.code.tolist()
        assert one.verdicts.offer.tolist() == other.verdicts.offer.tolist()
        snapshot = replace(snapshot, now=snapshot.now + float(rng.uniform(0, 2)))
