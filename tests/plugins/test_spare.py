"""The spare plug-in: what it admits, promises, offers and refuses, in both forms."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.kernels.policy import ABSTAIN, ADMIT, REJECT, admit
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs, Kind, Periodic
from rtsched.model.schedule import NO_PLAN, PlanRows, Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.state import EventKind
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched.testing import (
    make_cluster,
    make_events,
    make_jobs,
    make_snapshot,
)
from rtsched_plugins.spare import Executed, RowsInGaps, Spare


def ask(jobs: Jobs, snapshot: Snapshot, **settings: Any) -> Verdicts:
    """Return the plug-in's verdicts as the chain checks them."""
    chain = Chain([Member("spare", Spare(Spare.Config(**settings)))], "spare")
    verdicts = chain.admit(jobs, snapshot).verdicts
    assert not chain.hook_metrics["admit"]["spare"].first_error
    return verdicts


def placed(verdicts: Verdicts) -> dict[int, tuple[float, float, list[int]]]:
    """Return start, end and nodes by job id."""
    plan = verdicts.plan
    assert plan is not None
    return {
        job: (start, end, plan.nodes_of(row).tolist())
        for row, (job, start, end) in enumerate(
            zip(
                plan.entries.job.tolist(),
                plan.entries.start.tolist(),
                plan.entries.end.tolist(),
                strict=True,
            )
        )
    }


def test_a_rigid_job_takes_one_gap_on_all_its_nodes() -> None:
    """Occurrences every 10 s leave [3, 10) on node 0 and [0, 5) and [8, 15) on node 1."""
    periodic = Periodic.build(
        2, node=[0, 1], exec_time=[3.0, 3.0], period=[10.0, 10.0], phase=[0.0, 5.0]
    )
    snapshot = make_snapshot(cluster=make_cluster(2), periodic=periodic)
    one = make_jobs(1, wall_time=5.0, size=1, deadline=100.0)
    two = make_jobs(1, wall_time=2.0, size=2, deadline=100.0)
    assert placed(ask(one, snapshot)) == {0: (0.0, 5.0, [1])}
    assert placed(ask(two, snapshot)) == {0: (3.0, 5.0, [0, 1])}
    never = ask(make_jobs(1, wall_time=8.0, size=2, deadline=1000.0), snapshot)
    assert never.code.tolist() == [Verdict.REJECT]
    assert never.offer.tolist() == [np.inf]


def test_selection_on_equal_nodes() -> None:
    """Node 0 is busy for 4 s: response-first takes node 1 now, utilisation-first node 0 then."""
    running = make_jobs(1, id=[9], submit=0.0, wall_time=4.0)
    snapshot = make_snapshot(cluster=make_cluster(2), running=running, nodes=[[0]])
    job = make_jobs(1, wall_time=3.0, deadline=8.0)
    assert placed(ask(job, snapshot)) == {0: (0.0, 3.0, [1])}
    assert placed(ask(job, snapshot, select="utilisation-first")) == {0: (4.0, 7.0, [0])}
    tight = job.with_column("deadline", np.array([6.0]))
    assert placed(ask(tight, snapshot, select="utilisation-first")) == {0: (0.0, 3.0, [1])}


def test_partitions_may_overlap() -> None:
    """What a job of another partition is promised on a node takes its own time there, no more."""
    cluster = replace(
        make_cluster(2),
        partitions={"a": np.array([True, False]), "b": np.array([True, True])},
    )
    waits = make_jobs(1, id=[9], submit=0.0, wall_time=10.0, deadline=50.0, partition=["a"])
    snapshot = make_snapshot(
        waits,
        cluster,
        plan=Schedule.build([9], [5.0], [15.0], np.array([0, 1]), np.array([0], np.int32)),
        promises=Promises.build(1, job=[9], deadline=[50.0]),
    )
    for wall, start in ((5.0, 0.0), (6.0, 15.0)):
        job = make_jobs(1, submit=0.0, wall_time=wall, size=2, deadline=90.0, partition=["b"])
        assert placed(ask(job, snapshot))[0] == (start, start + wall, [0, 1])


def test_slow_nodes_take_longer() -> None:
    """A job of two nodes runs at the pace of the slower; alone it takes the fast one."""
    snapshot = make_snapshot(cluster=make_cluster(2, speed=[1.0, 0.5]))
    both = make_jobs(1, wall_time=4.0, size=2, deadline=100.0)
    one = make_jobs(1, wall_time=4.0, deadline=100.0)
    assert placed(ask(both, snapshot)) == {0: (0.0, 8.0, [0, 1])}
    assert placed(ask(one, snapshot)) == {0: (0.0, 4.0, [0])}
    assert placed(ask(one, snapshot, select="utilisation-first")) == {0: (0.0, 8.0, [1])}


@pytest.mark.parametrize("form", ["gaps", "edf"])
def test_a_running_batch_system_counts_limits_by_the_clock(form: str) -> None:
    """There a fast node's job may take all that it asked for, and is planned so."""
    cluster = replace(make_cluster(2, speed=[2.0, 1.0]), by_clock=True)
    one = make_jobs(1, submit=0.0, wall_time=4.0, deadline=100.0)
    assert placed(ask(one, make_snapshot(cluster=cluster), form=form)) == {0: (0.0, 4.0, [0])}


GRAPH = Edges.build(2, before=[0, 1], after=[1, 2], message_time=[2.0, 0.0])


@pytest.mark.parametrize("form", ["gaps", "edf"])
def test_a_graph_is_judged_as_one(form: str) -> None:
    """Three tasks in a chain end at 9 on one node; by 8 none of them is admitted."""
    jobs = make_jobs(3, submit=0.0, wall_time=3.0, dag=np.full(3, 7), deadline=9.0)
    snapshot = make_snapshot(cluster=make_cluster(2), edges=GRAPH)
    verdicts = ask(jobs, snapshot, form=form)
    assert verdicts.code.tolist() == [Verdict.ADMIT] * 3
    assert verdicts.promise.tolist() == [9.0] * 3
    assert placed(verdicts) == {0: (0, 3, [0]), 1: (3, 6, [0]), 2: (6, 9, [0])}
    late = ask(jobs.with_column("deadline", np.full(3, 8.0)), snapshot, form=form)
    assert late.code.tolist() == [Verdict.REJECT] * 3
    assert late.plan is None
    assert late.offer.tolist() == [9.0] * 3
    reason = {"gaps": "spare.no-room", "edf": "spare.no-capability"}[form]
    assert late.findings[0].reason.code == reason
    assert late.findings[0].text(0).startswith("task 2 cannot meet its deadline in 8 s")


@pytest.mark.parametrize("form", ["gaps", "edf"])
def test_a_graph_in_parts_waits_for_what_is_planned(form: str) -> None:
    """A task whose predecessor is planned elsewhere starts when its result has arrived."""
    first = make_jobs(1, submit=0.0, wall_time=3.0, deadline=9.0)
    plan = Schedule.build([0], [0.0], [3.0], np.array([0, 1]), np.array([1], np.int32))
    plan = replace(plan, preemptive=form == "edf")
    promises = Promises.build(1, job=[0], deadline=[9.0])
    snapshot = make_snapshot(first, make_cluster(2), edges=GRAPH, plan=plan, promises=promises)
    second = make_jobs(1, id=[1], submit=0.0, wall_time=3.0, deadline=20.0)
    assert placed(ask(second, snapshot, form=form))[1] == (3.0, 6.0, [1])


@pytest.mark.parametrize("form", ["gaps", "edf"])
def test_a_job_is_judged_behind_the_one_that_it_waits_for(form: str) -> None:
    """Of two submitted at once the first waits for the second, as for a task of an array."""
    jobs = make_jobs(2, submit=0.0, wall_time=3.0, deadline=9.0)
    edges = Edges.build(1, before=[1], after=[0])
    snapshot = make_snapshot(cluster=make_cluster(1), edges=edges)
    assert placed(ask(jobs, snapshot, form=form)) == {1: (0, 3, [0]), 0: (3, 6, [0])}


@pytest.mark.parametrize(
    ("columns", "settings", "edges", "reason", "text"),
    [
        ({"wall_time": np.inf}, {}, GRAPH, "spare.endless", "job 0 states no run time"),
        ({"kind": Kind.ARRAY}, {}, GRAPH, "spare.array", "job 0 is an array"),
        ({"size": 2}, {"form": "edf"}, GRAPH, "spare.wide", "requests 2 nodes"),
        (
            {},
            {},
            Edges.build(2, before=[0, 1], after=[1, 0]),
            "spare.cyclic",
            "job 0 depends on itself",
        ),
        ({}, {}, Edges.build(1, before=[5], after=[0]), "spare.waits", "waits for job 5"),
        ({"size": 3}, {}, GRAPH, "spare.no-room", "2 of 3 nodes would be free together"),
    ],
)
def test_refusals(
    columns: dict[str, Any], settings: dict[str, Any], edges: Edges, reason: str, text: str
) -> None:
    """What can never be kept is refused at submission with one sentence."""
    given_columns = {"submit": 0.0, "wall_time": 3.0, "deadline": 90.0, **columns}
    jobs = make_jobs(2, dag=np.full(2, 1), **given_columns)
    queued = make_jobs(1, id=[5], submit=0.0)
    snapshot = make_snapshot(queued, make_cluster(2), edges=edges)
    verdicts = ask(jobs, snapshot, **settings)
    assert verdicts.code.tolist() == [Verdict.REJECT] * 2
    assert verdicts.findings[0].reason.code == reason
    assert text in verdicts.findings[0].text(0)


def test_jobs_without_a_deadline_are_left_alone() -> None:
    """Best effort is not judged, also not beside a job that is."""
    snapshot = make_snapshot(cluster=make_cluster(1))
    jobs = make_jobs(2, submit=0.0, deadline=[np.inf, 1e6])
    assert ask(jobs, snapshot).code.tolist() == [Verdict.ABSTAIN, Verdict.ADMIT]
    assert ask(jobs.take([0]), snapshot).code.tolist() == [Verdict.ABSTAIN]


def test_what_has_run_counts() -> None:
    """A reserved task that was suspended needs only what is left of it."""
    running = make_jobs(1, id=[9], submit=0.0, wall_time=6.0, deadline=10.0)
    held = Schedule.build([9], [0.0], [10.0], np.array([0, 1]), np.array([0], np.int32))
    snapshot = Snapshot(
        5.0,
        make_cluster(1),
        running=running,
        allocations=held,
        promises=Promises.build(1, job=[9], deadline=[10.0]),
    )
    events = make_events(running, [(0.0, EventKind.STARTED, 0), (4.0, EventKind.SUSPENDED, 0)])
    state = Spare(Spare.Config(form="edf")).rtsched_observe(events, None)
    assert isinstance(state, Executed)
    assert state.seconds.tolist() == [4.0]
    job = make_jobs(1, submit=5.0, wall_time=3.0, deadline=30.0)
    known = placed(ask(job, replace(snapshot, states={"spare": state}), form="edf"))
    assert known[0][1] == 8.0
    assert placed(ask(job, snapshot, form="edf"))[0][1] == 14.0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=2, max_size=4),
    st.integers(4, 16),
    st.sampled_from(["response-first", "utilisation-first"]),
    st.sampled_from(["gaps", "edf"]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None)
def test_offers_are_the_least_accepted_deadlines(
    tasks: list[tuple[int, int]], due: int, select: str, form: str, random: Any
) -> None:
    """Between the asked deadline and the offer none is accepted, and the offer is."""
    n = len(tasks)
    pairs = [(i, j) for j in range(n) for i in range(j) if random.random() < 0.5]
    edges = Edges.build(
        len(pairs),
        before=[i for i, _ in pairs],
        after=[j for _, j in pairs],
        message_time=[float(random.randint(0, 3)) for _ in pairs],
    )
    periodic = Periodic.build(
        2,
        node=[0, 1],
        exec_time=[2.0, 3.0],
        period=[6.0, 12.0],
        phase=[0.0, 1.0],
        relative_deadline=[6.0, 12.0],
    )
    wall = np.array([float(cost) for _, cost in tasks])
    jobs = make_jobs(n, submit=0.0, dag=np.full(n, 1), wall_time=wall, deadline=float(due))
    snapshot = make_snapshot(
        cluster=make_cluster(2, speed=[1.0, 0.5]), edges=edges, periodic=periodic
    )
    verdicts = ask(jobs, snapshot, select=select, form=form, offer_tests=500)
    if verdicts.code[0] == Verdict.ADMIT:
        return
    offer = float(verdicts.offer[0])
    last = offer if np.isfinite(offer) else due + 60.0
    for deadline in np.arange(due, last + 1.0):
        again = ask(
            jobs.with_column("deadline", np.full(n, deadline)),
            snapshot,
            select=select,
            form=form,
            offer_tests=0,
        )
        assert (again.code[0] == Verdict.ADMIT) == (deadline == offer)


NOW = 1000.0


def form(select: str = "response-first", **columns: Any) -> RowsInGaps:
    """Return the short form for jobs on two equal nodes."""
    n = len(columns["size"])
    jobs = Jobs.build(n, id=10 + np.arange(n), submit=np.full(n, NOW), **columns)
    short = Spare(Spare.Config(select=select)).replay_planner(jobs, Cluster.uniform(2))
    assert isinstance(short, RowsInGaps)
    return short


def test_a_job_goes_into_the_first_gap() -> None:
    """Node 0 runs until 1050; 30 s fit on node 1 at once, two nodes together only at 1050."""
    short = form(size=[1, 2], wall_time=[30.0, 10.0], deadline=[1030.0, 1060.0])
    policy, held = short.compiled_policy(), np.array([1050.0, -np.inf])
    none = np.empty(0, np.int64)
    first = admit(policy, none, np.empty(0), 0, NOW, held)
    assert first.code == ADMIT
    assert (first.start.tolist(), first.end.tolist()) == ([1000.0], [1030.0])
    assert first.nodes.tolist() == [1]
    both = admit(policy, np.array([0]), first.start, 1, NOW, held)
    assert both.code == ADMIT
    assert both.start.tolist() == [1000.0, 1050.0]
    assert both.indptr.tolist() == [0, 1, 3]
    assert both.nodes.tolist() == [1, 0, 1]
    without = admit(policy, np.array([0, 1]), both.start, -1, NOW, held)
    assert without.code == REJECT  # what is planned stays where it is
    other = admit(policy, np.array([0]), first.start + 1.0, 1, NOW, held)
    assert other.code == ABSTAIN  # it was planned by somebody else


def test_utilisation_first_ends_last() -> None:
    """By 1100, 30 s end last on the node that is busy until 1050."""
    short = form("utilisation-first", size=[1], wall_time=[30.0], deadline=[1100.0])
    held = np.array([1050.0, -np.inf])
    verdicts, plan = short.judge(np.array([0]), NOW, held, NO_PLAN, lambda: 0)
    assert verdicts is None
    assert plan is not None
    assert (plan.start.tolist(), plan.nodes.tolist()) == ([1050.0], [0])


def test_what_is_said_to_a_job_that_does_not_fit() -> None:
    """Two nodes are together from 1050 on: 20 s end at 1070, not by 1060; one is free in time."""
    short = form(size=[2], wall_time=[20.0], deadline=[1060.0])
    held = np.array([1050.0, -np.inf])
    verdicts, plan = short.judge(np.array([0]), NOW, held, NO_PLAN, lambda: 3)
    assert plan is None
    assert verdicts is not None
    assert verdicts.offer.tolist() == [1070.0]
    (finding,) = verdicts.findings
    assert finding.text(0) == (
        "task 10 cannot meet its deadline in 1 min beside 3 promises and 0 periodic jobs; 1 of 2 "
        "nodes would be free together in time"
    )


def test_plans_of_others_are_kept() -> None:
    """Job 0 was planned on node 1 until 1040 by the hook: job 1 goes behind it."""
    short = form(size=[1, 1], wall_time=[40.0, 30.0], deadline=[1040.0, 1100.0])
    plan = PlanRows(
        np.array([0]),
        np.array([1000.0]),
        np.array([1040.0]),
        np.array([0, 1]),
        np.array([1], np.int32),
    )
    held = np.array([1060.0, -np.inf])
    _, anew = short.judge(np.array([1]), NOW, held, plan, lambda: 1)
    assert anew is not None
    assert anew.row.tolist() == [0, 1]
    assert anew.start.tolist() == [1000.0, 1040.0]
    assert anew.nodes.tolist() == [1, 1]
