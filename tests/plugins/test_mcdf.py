"""The mcdf plug-in: verdicts, promises, plans, reasons and counter-offers, through the chain."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_portfolio import rigid

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import admission_actions, judge
from rtsched.model.actions import Admit, Reject, Reserve
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import Text
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched_plugins.mcdf import Mcdf

NOW = 1_795_000_000.0


def chain(**settings: object) -> Chain:
    """Return a chain of the one plug-in, as planner."""
    return Chain([Member("mcdf", Mcdf(Mcdf.Config(**settings)))], "mcdf")  # type: ignore[arg-type]


def test_admitted_jobs_get_their_deadline_promised_and_a_place_in_the_plan() -> None:
    """Two jobs fit side by side, the third after the first that ends."""
    jobs = rigid((100, 1, 100), (50, 1, 50), (100, 1, 50))
    judgement = judge(Snapshot(NOW, Cluster.uniform(2)), chain(), jobs)
    admit, reserve = admission_actions(jobs, judgement.verdicts)
    assert isinstance(admit, Admit)
    assert isinstance(reserve, Reserve)
    assert admit.promise.tolist() == jobs.deadline.tolist()
    entries = reserve.plan.entries
    assert entries.job.tolist() == [0, 1, 2]
    assert (entries.start - NOW).tolist() == [0, 0, 50]
    assert (entries.end - NOW).tolist() == [100, 50, 100]
    assert reserve.plan.nodes.tolist() == [0, 1, 1]


def test_batch_is_judged_in_order_of_submission_and_id_whatever_the_rows() -> None:
    """Of two jobs that exclude each other the lower id gets in, also from the second row."""
    jobs = rigid((10, 1, 10), (10, 1, 10)).take([1, 0])
    verdicts = chain().admit(jobs, Snapshot(NOW, Cluster.uniform(1))).verdicts
    assert verdicts.code.tolist() == [Verdict.REJECT, Verdict.ADMIT]


def test_jobs_without_deadline_are_not_judged() -> None:
    """Best effort is none of the planner's business."""
    jobs = rigid((np.inf, 1, 10), (20, 1, 10))
    verdicts = chain().admit(jobs, Snapshot(NOW, Cluster.uniform(1))).verdicts
    assert verdicts.code.tolist() == [Verdict.ABSTAIN, Verdict.ADMIT]


@pytest.mark.parametrize(
    ("job", "code"),
    [((5, 1, 10), "mcdf.impossible"), ((99, 3, 10), "mcdf.impossible")],
    ids=["too long", "too wide"],
)
def test_hopeless_jobs_are_told_so(job: tuple[float, int, float], code: str) -> None:
    """A job that an idle machine could not finish in time gets its own reason."""
    judgement = chain().admit(rigid(job), Snapshot(NOW, Cluster.uniform(2)))
    assert [finding.reason.code for finding in judgement.verdicts.findings] == [code]


def with_promise() -> tuple[Snapshot, Jobs]:
    """Return a one-node cluster where job 0 is promised and planned at once for 100 s."""
    waiting = rigid((100, 1, 100))
    plan = Schedule.build([0], [NOW], [NOW + 100], np.array([0, 1]), np.array([0], np.int32))
    promises = Promises.build(1, job=[0], deadline=[NOW + 100], made_at=NOW)
    snapshot = Snapshot(NOW, Cluster.uniform(1), waiting, promises=promises, plan=plan)
    return snapshot, waiting


def test_no_room_names_the_numbers_and_offers_the_least_deadline() -> None:
    """The machine is promised away for 100 s, so a 10 s job can end at 110 s at the earliest."""
    snapshot, _ = with_promise()
    jobs = rigid((60, 1, 10), first=1)
    judgement = judge(snapshot, chain(), jobs)
    (reject,) = admission_actions(jobs, judgement.verdicts)
    assert isinstance(reject, Reject)
    assert (reject.offer - NOW).tolist() == [110]
    (finding,) = judgement.verdicts.findings
    assert finding.reason.code in {"mcdf.no-room", "mcdf.breaks-promise"}
    assert finding.numbers["promises"].tolist() == [1]


def test_breaking_a_promise_names_whose() -> None:
    """First in the order, a new job would push the promised one past its deadline."""
    snapshot, _ = with_promise()
    judgement = chain(order="deadline").admit(rigid((60, 1, 10), first=7), snapshot)
    (finding,) = judgement.verdicts.findings
    assert finding.reason.code == "mcdf.breaks-promise"
    assert finding.numbers["other"].tolist() == [0]


def test_counter_offers_can_be_switched_off() -> None:
    """With no tests to spend there is no offer."""
    snapshot, _ = with_promise()
    judgement = chain(offer_tests=0).admit(rigid((60, 1, 10), first=1), snapshot)
    assert judgement.verdicts.offer.tolist() == [np.inf]


def test_rejection_leaves_the_plan_alone() -> None:
    """A failed test answers without a plan, so the old one stands."""
    snapshot, _ = with_promise()
    assert chain().admit(rigid((60, 1, 10), first=1), snapshot).verdicts.plan is None


def test_divisible_job_gets_its_fractions() -> None:
    """On two equal nodes with Cms = Cps the first gets twice the second's share."""
    job = Jobs.build(
        1, id=[0], submit=NOW, deadline=NOW + 1400, kind=Kind.DIVISIBLE, sigma=100.0, cms=10.0,
        cps=10.0,
    )  # fmt: skip
    plan = chain().admit(job, Snapshot(NOW, Cluster.uniform(2))).verdicts.plan
    assert plan is not None
    assert plan.fractions == pytest.approx([2 / 3, 1 / 3])


def test_empty_batch_takes_up_time_that_came_free() -> None:
    """The planned job could start now: the planner says so, and says nothing a second time."""
    waiting = rigid((100, 1, 20))
    late = Schedule.build([0], [NOW + 30], [NOW + 50], np.array([0, 1]), np.array([0], np.int32))
    snapshot = Snapshot(NOW, Cluster.uniform(1), waiting, plan=late)
    plan = chain().admit(waiting.take([]), snapshot).verdicts.plan
    assert plan is not None
    assert plan.entries.start.tolist() == [NOW]
    again = Snapshot(NOW, Cluster.uniform(1), waiting, plan=plan)
    assert chain().admit(waiting.take([]), again).verdicts.plan is None


def array(deadline: float, **columns: Any) -> Jobs:
    """Return an array of 22 tasks of 100 s, four at a time on each of up to ten nodes."""
    values = {"tasks": 22, "tasks_per_node": 4, "wall_time": 100.0, "size_min": 1, "size_max": 10}
    return Jobs.build(
        1, id=[0], submit=NOW, deadline=NOW + deadline, kind=Kind.ARRAY, **(values | columns)
    )


@pytest.mark.parametrize(
    ("deadline", "nodes", "end"), [(1000, 1, 600), (349, 2, 300), (199, 6, 100)]
)
def test_an_array_has_one_promise(deadline: float, nodes: int, end: float) -> None:
    """Its tasks run in rounds: six on one node, three on two, one on six."""
    plan = chain().admit(array(deadline), Snapshot(NOW, Cluster.uniform(8))).verdicts.plan
    assert plan is not None
    assert plan.entries.size.tolist() == [nodes]
    assert plan.entries.end.tolist() == [NOW + end]


def test_how_many_tasks_would_make_it() -> None:
    """On four nodes 16 run at a time: with 150 s left that many do, and all with 200 s."""
    judgement = chain().admit(array(150), Snapshot(NOW, Cluster.uniform(4)))
    verdicts = judgement.verdicts
    assert verdicts.code.tolist() == [Verdict.REJECT]
    assert verdicts.offer.tolist() == [NOW + 200]
    said = {finding.reason.code: finding for finding in verdicts.findings}
    text = said["mcdf.fewer-tasks"].reason.text(
        {name: float(value[0]) for name, value in said["mcdf.fewer-tasks"].numbers.items()}
    )
    assert text == "16 of its 22 tasks would be accepted with the same deadline"


def test_lost_nodes_drop_the_promises_that_cannot_be_kept() -> None:
    """With one of two nodes down only one of two full-length jobs still fits its deadline."""
    waiting = rigid((100, 1, 90), (100, 1, 90))
    plan = Schedule.build(
        [0, 1], [NOW, NOW], [NOW + 90] * 2, np.array([0, 1, 2]), np.array([0, 1], np.int32)
    )
    nodes = Nodes.build(2, state=[NodeState.UP, NodeState.DOWN])
    snapshot = Snapshot(NOW, Cluster(nodes), waiting, plan=plan)
    kept = chain().admit(waiting.take([]), snapshot).verdicts.plan
    assert kept is not None
    assert len(kept) == 1
    assert kept.nodes.tolist() == [0]


def partitioned() -> Cluster:
    """Return four nodes: `left` has 0 and 1, `right` 2 and 3, `most` 1 to 3."""
    masks = {"left": [1, 1, 0, 0], "right": [0, 0, 1, 1], "most": [0, 1, 1, 1]}
    return Cluster(Nodes.build(4), {name: np.array(mask, np.bool_) for name, mask in masks.items()})


def in_partition(jobs: Jobs, *names: str | None) -> Jobs:
    """Return the jobs in these partitions."""
    table = tuple(dict.fromkeys(name for name in names if name is not None))
    codes = [-1 if name is None else table.index(name) for name in names]
    return jobs.replace_text("partition", np.array(codes, np.int32), table)


def test_partitions_are_planned_on_their_own_nodes() -> None:
    """Each job is planned within its partition."""
    jobs = in_partition(rigid((10, 2, 10), (10, 2, 10)), "left", "right")
    plan = chain().admit(jobs, Snapshot(NOW, partitioned())).verdicts.plan
    assert plan is not None
    assert [plan.nodes_of(row).tolist() for row in range(2)] == [[0, 1], [2, 3]]


def test_overlapping_partitions_never_share_a_node_at_one_time() -> None:
    """What one partition has planned is busy for another that overlaps it."""
    cluster = partitioned()
    first = in_partition(rigid((10, 2, 10)), "right")
    plan = chain().admit(first, Snapshot(NOW, cluster)).verdicts.plan
    assert plan is not None
    snapshot = Snapshot(NOW, cluster, first, plan=plan)
    wide = in_partition(rigid((10, 3, 10), first=1), "most")
    assert chain().admit(wide, snapshot).verdicts.code.tolist() == [Verdict.REJECT]
    narrow = in_partition(rigid((10, 1, 10), first=1), "most")
    joint = chain().admit(narrow, snapshot).verdicts.plan
    assert joint is not None
    nodes = [joint.nodes_of(row).tolist() for row in range(2)]
    assert dict(zip(joint.entries.job.tolist(), nodes, strict=True)) == {0: [2, 3], 1: [1]}


def test_the_promised_deadline_counts_not_the_job_s_own() -> None:
    """A job that took a counter-offer is planned against what it was promised."""
    waiting = rigid((50, 1, 100))
    plan = Schedule.build([0], [NOW], [NOW + 100], np.array([0, 1]), np.array([0], np.int32))
    promises = Promises.build(1, job=[0], deadline=[NOW + 200], made_at=NOW)
    snapshot = Snapshot(NOW, Cluster.uniform(1), waiting, promises=promises, plan=plan)
    verdicts = chain(order="deadline").admit(rigid((60, 1, 10), first=1), snapshot).verdicts
    assert verdicts.code.tolist() == [Verdict.ADMIT]


def test_a_job_that_must_not_begin_yet_is_judged_when_it_may() -> None:
    """Until its begin time it is put off, and nothing is planned for it."""
    job = rigid((100, 1, 10)).replace(begin=NOW + 20)
    judgement = chain().admit(job, Snapshot(NOW, Cluster.uniform(1)))
    verdicts = judgement.verdicts
    assert verdicts.code.tolist() == [Verdict.DEFER]
    assert verdicts.retry_at.tolist() == [NOW + 20]
    assert verdicts.plan is None
    assert verdicts.findings[0].reason.code == "mcdf.not-yet"
    verdicts = chain().admit(job, Snapshot(NOW + 20, Cluster.uniform(1))).verdicts
    assert verdicts.code.tolist() == [Verdict.ADMIT]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_job_that_does_not_say_how_long_it_is_gets_no_promise(kind: Kind) -> None:
    """Without a requested time, or without a load, no end can be certain."""
    job = rigid((100, 1, np.inf)).replace(kind=kind)
    judgement = chain().admit(job, Snapshot(NOW, Cluster.uniform(2)))
    assert judgement.verdicts.code.tolist() == [Verdict.REJECT]
    assert judgement.verdicts.findings[0].reason.code == "mcdf.endless"


def test_overlapping_partitions_of_one_batch_see_each_other() -> None:
    """Three full-length jobs of three partitions over the same nodes cannot all be promised."""
    masks = {"a": [1, 1, 1, 0], "b": [0, 1, 1, 1], "c": [1, 1, 0, 0]}
    cluster = Cluster(
        Nodes.build(4), {name: np.array(mask, np.bool_) for name, mask in masks.items()}
    )
    jobs = in_partition(rigid((60, 2, 60), (60, 3, 60), (60, 2, 60)), "a", "b", "c")
    verdicts = chain().admit(jobs, Snapshot(NOW, cluster)).verdicts
    assert verdicts.code.tolist() == [Verdict.ADMIT, Verdict.REJECT, Verdict.REJECT]


def test_a_pool_planned_first_sees_what_another_plans_later_in_the_batch() -> None:
    """The first pool takes a second job only on nodes that the other has not taken since."""
    cluster = partitioned()
    jobs = in_partition(rigid((10, 1, 10), (10, 3, 10), (10, 1, 10)), "left", "most", "left")
    plan = chain().admit(jobs, Snapshot(NOW, cluster)).verdicts.plan
    assert plan is not None
    assert len(np.unique(plan.nodes)) == len(plan.nodes)


def same_answers(one: Verdicts, other: Verdicts) -> bool:
    """Return whether two answers agree to the last bit, plans included."""
    pairs = [(one.code, other.code), (one.promise, other.promise), (one.offer, other.offer)]
    if (one.plan is None) != (other.plan is None):
        return False
    if one.plan is not None and other.plan is not None:
        names = ("job", "start", "end")
        pairs += [(getattr(one.plan.entries, k), getattr(other.plan.entries, k)) for k in names]
        pairs += [(one.plan.indptr, other.plan.indptr), (one.plan.nodes, other.plan.nodes)]
        pairs += [(one.plan.fractions, other.plan.fractions)]
    said = [
        [
            (f.reason.code, f.rows.tolist(), {k: v.tolist() for k, v in f.numbers.items()})
            for f in found
        ]
        for found in (one.findings, other.findings)
    ]
    return said[0] == said[1] and all(np.array_equal(a, b) for a, b in pairs)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(["cost-derivative", "arrival", "deadline"]))
def test_what_was_asked_before_shows_in_no_answer(seed: int, order: str) -> None:
    """A plug-in that has seen other snapshots answers as a new one does.

    Time passes, jobs are promised, nodes go down, running jobs end, the queue loses jobs; some
    snapshots come twice, and some share arrays with the last.
    """
    rng = np.random.default_rng(seed)
    used = chain(order=order)
    snapshot = Snapshot(NOW + rng.random(), partitioned())
    for k in range(12):
        jobs = in_partition(
            Jobs.build(
                1,
                id=[k],
                submit=snapshot.now,
                deadline=snapshot.now + rng.uniform(10, 400),
                kind=rng.choice(list(Kind)),
                size=rng.integers(1, 4),
                wall_time=rng.uniform(5, 90),
                sigma=rng.uniform(1, 9),
                cms=1.0,
                cps=9.0,
            ),
            str(rng.choice(["left", "right", "most"])),
        )
        for asked in (jobs, jobs, jobs.take([])):
            old, new = used.admit(asked, snapshot), chain(order=order).admit(asked, snapshot)
            assert same_answers(old.verdicts, new.verdicts)
            assert not used.hook_metrics["admit"]["mcdf"].errors
        plan = used.admit(jobs, snapshot).verdicts.plan
        if plan is not None and rng.random() < 0.8:
            queued = snapshot.queued
            both = {
                name: np.concatenate([getattr(queued, name), getattr(jobs, name)])
                for name, column in Jobs.columns().items()
                if not isinstance(column, Text)
            }
            names = [*queued.texts("partition"), *jobs.texts("partition")]
            queued = Jobs.build(len(names), partition=names, **both)
            due = Promises.build(len(names), job=queued.id, deadline=queued.deadline)
            snapshot = replace(snapshot, queued=queued, plan=plan, promises=due)
        if rng.random() < 0.5:
            snapshot = replace(snapshot, now=snapshot.now + rng.choice([0.3, 3.0, 700.0]))
        if rng.random() < 0.2:
            state = rng.choice([NodeState.UP, NodeState.DOWN], 4, p=[0.8, 0.2])
            nodes = snapshot.cluster.nodes.replace(state=state)
            snapshot = replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))
        if rng.random() < 0.3:
            held = Schedule.build(
                [99], [NOW], [snapshot.now + 20], np.array([0, 1]), rng.integers(0, 4, 1, np.int32)
            )
            held_by = Jobs.build(1, id=[99])
            snapshot = replace(snapshot, running=held_by, allocations=held)


def load_job(sigma: float, due: float, **columns: float) -> Jobs:
    """Return one divisible job that takes 1 s to send and 9 s to compute a unit."""
    given_ = {"cms": 1.0, "cps": 9.0, **columns}
    return Jobs.build(
        1, id=[9], submit=NOW, deadline=NOW + due, kind=Kind.DIVISIBLE, sigma=sigma, **given_
    )


@pytest.mark.parametrize(
    "columns", [{"setup_link": -1.0}, {"cms": -1.0}, {"cms": 0.0, "cps": 0.0}, {"sigma": -3.0}]
)
def test_loads_that_make_no_sense_are_refused(columns: dict[str, float]) -> None:
    """A negative time, no time per unit or no units: refused in one sentence that names them."""
    job = load_job(**{"sigma": 5.0, "due": 100.0, **columns})
    verdicts = chain().admit(job, Snapshot(NOW, Cluster.uniform(2))).verdicts
    assert verdicts.code.tolist() == [Verdict.REJECT]
    assert [finding.reason.code for finding in verdicts.findings] == ["mcdf.no-load"]
    assert "invalid divisible load" in verdicts.findings[0].text(0)


@settings(deadline=None, max_examples=25)
@given(
    st.floats(5, 60),
    st.floats(5, 200),
    st.lists(st.integers(0, 80), min_size=1, max_size=4),
    st.sampled_from(["cost-derivative", "deadline"]),
)
def test_the_share_of_a_load_that_is_offered_is_the_largest(
    sigma: float, due: float, busy: list[int], order: str
) -> None:
    """It is accepted, one per cent more is not; with no promise given nothing above it is."""
    held = Schedule.build(
        100 + np.arange(len(busy)),
        np.full(len(busy), NOW - 100),
        NOW + np.array(busy, np.float64),
        np.arange(len(busy) + 1),
        np.arange(len(busy), dtype=np.int32),
    )
    running = Jobs.build(len(busy), id=held.entries.job, submit=NOW - 100)
    cluster = Cluster.uniform(len(busy))
    snapshot = Snapshot(NOW, cluster, running=running, allocations=held)

    def accepted(percent: int) -> bool:
        job = load_job(sigma * percent / 100, due)
        return bool(chain(order=order).admit(job, snapshot).verdicts.code[0] == Verdict.ADMIT)

    verdicts = chain(order=order).admit(load_job(sigma, due), snapshot).verdicts
    said = [f for f in verdicts.findings if f.reason.code == "mcdf.smaller-load"]
    if verdicts.code[0] == Verdict.ADMIT:
        assert not said
        return
    fits = [percent for percent in range(1, 101) if accepted(percent)]
    assert [int(f.numbers["percent"][0]) for f in said] == fits[-1:]


def test_a_moldable_job_is_told_how_many_nodes_it_would_need() -> None:
    """60 node-seconds due in 10 s need 6 nodes; it may use 4 of the 8."""
    job = rigid((10, 2, 30)).replace(kind=Kind.MOLDABLE, size_min=1, size_max=4)
    verdicts = chain().admit(job, Snapshot(NOW, Cluster.uniform(8))).verdicts
    numbers = verdicts.findings[-1].numbers
    assert verdicts.findings[-1].reason.code == "mcdf.more-nodes"
    assert (numbers["nodes"].tolist(), numbers["most"].tolist()) == ([6], [4])
    small = chain().admit(job, Snapshot(NOW, Cluster.uniform(5))).verdicts
    assert [finding.reason.code for finding in small.findings] == ["mcdf.impossible"]
