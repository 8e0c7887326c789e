"""Offers keep nobody from starting; promises rest on the nodes that are idle at submission."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import ANN, BOB, SHARED, T0, Scene

from rtsched.adapters.wire import Tag
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.instant import Instant, NodeLists, filter_problem, instant_of
from rtsched.daemon.offers import in_the_way
from rtsched.daemon.promises import OpenPromises, Promise
from rtsched.logs.hostlist import fold
from rtsched.model.actions import Requeue, Reserve
from rtsched.model.jobs import Jobs, Kind
from rtsched_plugins.mcdf import Mcdf

ALL = (0, 1, 2, 3)
BUSY = ((7, "", T0, T0 + 600.0, ALL),)
"""A best-effort job on all nodes, for ten minutes."""


def reserved(scene: Scene, settled: object) -> list[int]:
    """Return the jobs of the plan that the batch system is to keep."""
    (plan,) = [a.plan for a in settled.actions if isinstance(a, Reserve)]
    return list(plan.entries.job.tolist())


def offered(scene: Scene) -> list[int]:
    """Return the offers that are held."""
    return offers_in(scene.site.promises)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.sampled_from((ANN, BOB)),
            st.sampled_from(("offered", "firm")),
            st.sets(st.integers(1, 9), max_size=2),
        )
    )
)
def test_what_is_open_is_kept_with_each_promise(
    made: list[tuple[int, int, str, set[int]]],
) -> None:
    """Whose promises they are, which are offers, and the ledger, as of all at once."""
    changed = OpenPromises()
    for job, uid, state, ended in made:
        if job not in changed:  # a job is promised something once
            changed = changed.with_new(Promise("t", job, uid, "u", T0, T0, state, T0, "", b""))
        changed = changed.without(ended)
        whole = OpenPromises(changed)
        assert not whole.keys() & ended
        assert changed.of_users == whole.of_users
        assert changed.offers.tolist() == whole.offers.tolist() == offers_in(whole)
        assert changed.ledger.equals(whole.ledger)
        assert whole.ledger.job.tolist() == sorted(whole)


def offers_in(promises: OpenPromises) -> list[int]:
    """Return the ids of held offers."""
    return [job for job, promise in promises.items() if promise.state == "offered"]


def test_an_offer_on_free_nodes_is_not_reserved_and_reaches_no_batch_system(scene: Scene) -> None:
    """Whoever can start, starts."""
    judged = scene.submit(size=3, wall_time=600.0, deadline=T0 + 300.0)
    assert judged.verdict == "reject"
    assert judged.reply.text.endswith(", not reserved: submit within 60 s")
    assert in_the_way(scene.site, T0) == offered(scene)
    assert reserved(scene, scene.poll(T0 + 1)) == []


def test_an_offer_behind_running_jobs_is_reserved_and_reaches_no_batch_system_either() -> None:
    """Its nodes are busy now; if they come free early, they are for who can start."""
    scene = Scene()
    scene.poll(T0, running=BUSY)
    judged = scene.submit(size=3, wall_time=600.0, deadline=T0 + 700.0)
    assert judged.reply.text.endswith(", reserved for you for 60 s")
    assert in_the_way(scene.site, T0) == []
    assert reserved(scene, scene.poll(T0 + 1, running=BUSY)) == []


def test_a_job_that_could_start_now_starts_in_the_place_of_an_offer(scene: Scene) -> None:
    """Another user's deadline is promised on the nodes that an offer has."""
    scene.submit(size=4, wall_time=600.0, deadline=T0 + 300.0)
    judged = scene.submit(uid=BOB, size=4, wall_time=600.0, deadline=T0 + 5000.0)
    assert (judged.verdict, judged.reply.start) == ("admit", T0)
    assert offered(scene) == []


def test_best_effort_jobs_on_the_nodes_of_an_offer_are_not_requeued_for_it(scene: Scene) -> None:
    """The offer is planned later, or lapses; `late_starters` is for promises."""
    scene.submit(size=4, wall_time=600.0, deadline=T0 + 300.0)
    (offer,) = offered(scene)
    running = ((9, "", T0 + 2, T0 + 9000.0, (0,)),)
    settled = scene.poll(T0 + 3, running=running)
    assert not any(isinstance(action, Requeue) for action in settled.actions)
    assert offer not in scene.site.promises
    (gone,) = [record for record in settled.changed if record.id == offer]
    assert gone.state == "lapsed"


def test_promises_are_kept_before_offers() -> None:
    """Where a lost node leaves no place for both, the offer lapses, and no promise breaks."""
    scene = Scene(plugin=Mcdf(Mcdf.Config(beside_plan=True)))
    judged = scene.submit(size=3, wall_time=600.0, deadline=T0 + 1300.0)
    scene.submit(uid=BOB, size=4, wall_time=100.0, deadline=T0 + 50.0)
    assert len(offered(scene)) == 1
    settled = scene.poll(T0 + 3, queued=((5, judged.reply.token),), down=(3,))
    assert {record.state for record in settled.changed} == {"firm", "lapsed"}
    assert [record.state for record in scene.site.promises.values()] == ["firm"]


def feasible(text: str) -> float:
    """Return the deadline that a rejection names."""
    found = re.search(r"--deadline=(\d+)", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize("held", [0, 10])
@given(
    late=st.floats(0.0, 60.0),
    wall=st.integers(1, 4000),
    size=st.integers(1, 4),
    busy=st.booleans(),
    second=st.integers(0, 59),
)
@settings(max_examples=25, deadline=None)
def test_an_offer_can_be_taken_for_as_long_as_it_says(
    held: int, late: float, wall: int, size: int, busy: bool, second: int
) -> None:
    """Held or not, it is on a whole minute, and the job is promised it until then."""
    scene = Scene(unused_offers_per_hour=held)
    start = T0 + second
    running = ((7, "", T0, start + 90.0, ALL),) if busy else ()
    scene.poll(start, running=running)
    judged = scene.submit(start, size=size, wall_time=float(wall), deadline=start + wall / 2)
    assert judged.verdict == "reject"
    deadline = feasible(judged.reply.text)
    assert deadline % 60 == 0
    again = scene.submit(start + late, size=size, wall_time=float(wall), deadline=deadline)
    assert again.verdict == "admit", again.reply.text


def test_after_too_many_unused_offers_they_are_not_held_and_can_be_taken() -> None:
    """Nothing of them is in the plan."""
    scene = Scene(unused_offers_per_hour=2)
    scene.poll(T0, running=BUSY)
    texts = []
    for _ in range(4):
        judged = scene.submit(size=1, wall_time=600.0, deadline=T0 + 700.0)
        texts.append("not reserved" in judged.reply.text)
    assert texts == [False, False, False, True]
    assert offered(scene) == []
    last = feasible(judged.reply.text)
    assert scene.submit(T0 + 55, size=1, wall_time=600.0, deadline=last).verdict == "admit"
    assert scene.site.of_user(ANN, "provisional")


def test_an_array_most_of_whose_tasks_are_cancelled_is_planned_anew_at_once(scene: Scene) -> None:
    """It waits for nodes for an hour; then it needs one of them, for one round."""
    scene.poll(T0, running=BUSY)
    array = {"kind": Kind.ARRAY, "size": 1, "tasks": 300, "tasks_per_node": 2, "size_max": 4}
    judged = scene.submit(wall_time=600.0, deadline=T0 + 600.0 * 45, **array)
    plan = scene.site.snapshot.plan
    assert plan.entries.size.tolist() == [4]
    waiting = ((9, judged.reply.token),)
    scene.poll(T0 + 2, queued=waiting, running=BUSY)
    scene.poll(T0 + 4, queued=waiting, running=BUSY, changed={"tasks": 1})
    plan = scene.site.snapshot.plan
    assert plan.entries.size.tolist() == [1]
    assert (plan.entries.end - plan.entries.start).tolist() == [600.0]


def test_a_start_is_now_only_on_free_nodes() -> None:
    """A job past its limit is expected to end at any moment, and has its nodes until then."""
    scene = Scene(plugin=Mcdf(Mcdf.Config(beside_plan=True)))
    over = ((7, "", T0 - 900.0, T0 - 5.0, (0, 1, 2)),)
    scene.poll(T0, running=over)
    asked = {"size": 2, "wall_time": 600.0, "deadline": T0 + 900.0}
    assert "planned to start at" in scene.submit(**asked).reply.text
    scene = Scene(plugin=Mcdf(Mcdf.Config(beside_plan=True)))
    assert "planned to start now on 2 nodes" in scene.submit(**asked).reply.text
    assert "planned to start now on 2 nodes" in scene.submit(**asked).reply.text
    third = scene.submit(**asked)
    assert "0 of 4 nodes are free" in third.reply.text
    later = scene.submit(**asked | {"deadline": T0 + 1900.0})
    assert "planned to start at" in later.reply.text


MINUTE = 60.0


def idle(scene: Scene, *nodes: int, longest: float = 0.0) -> AdmissionController:
    """Return the admission at an instant at which these nodes are idle.

    `longest`: for how long a job may run that passed the filter since the poll, seconds.
    """
    mask = np.isin(np.arange(len(scene.cluster)), nodes)
    return replace(scene.admission, instant=Instant(mask, T0 + 1, longest))


def test_a_node_that_was_taken_is_not_counted_on() -> None:
    """The poll showed four free nodes; two are left, for a job of two and not for one of three."""
    scene = Scene(nodes=4)
    by = idle(scene, 2, 3, longest=10 * MINUTE)
    asked = {"wall_time": MINUTE, "deadline": T0 + 2 * MINUTE}
    refused = scene.submit(by=by, size=3, **asked)
    assert refused.verdict == "reject"
    assert T0 + 11 * MINUTE <= refused.offer <= T0 + 12 * MINUTE, "when what started has ended"
    assert scene.submit(by=by, uid=BOB, size=2, **asked).verdict == "admit"
    entry = scene.site.snapshot.plan.entries.job.tolist().index(scene.site.next_id - 1)
    assert sorted(scene.site.snapshot.plan.nodes_of(entry).tolist()) == [2, 3]


@pytest.mark.parametrize(("leeway", "held"), [(0.0, True), (0.0, False), (90.0, False)])
def test_an_offer_is_kept_when_the_next_poll_shows_what_started(leeway: float, held: bool) -> None:
    """It can be taken, since it was made for the longest that could have started."""
    # A poll shows the end of a job later than its limit by the leeway, which the offer counts with.
    scene = Scene(nodes=2)
    scene.poll(T0, leeway=leeway)
    asked = {"size": 2, "wall_time": MINUTE}
    refused = scene.submit(by=idle(scene, 1, longest=600.0), deadline=T0 + 90, **asked)
    assert refused.verdict == "reject"
    scene.poll(T0 + 1, running=((9, "", T0, T0 + 599 + leeway, (0,)),), uid=BOB, leeway=leeway)
    offers = [record.id for record in scene.site.of_user(ANN, "offered")]
    scene.site = scene.site if held else scene.site.without(offers)
    taken = scene.submit(T0 + 2, deadline=refused.offer, **asked)
    assert (taken.verdict, taken.codes == ("submit.offer",)) == ("admit", held)


def test_a_job_of_the_queue_may_have_started_too() -> None:
    """Whatever waited at the poll counts with its own limit, on the nodes that it may use."""
    scene = Scene(nodes=2)
    waits = Jobs.build(1, id=[9], size=[1], wall_time=[1000.0], submit=T0)
    scene.site = replace(scene.site, snapshot=replace(scene.site.snapshot, queued=waits))
    refused = scene.submit(by=idle(scene, 1), size=2, wall_time=MINUTE, deadline=T0 + 90)
    assert T0 + 1060 <= refused.offer <= T0 + 1120


def test_an_unknown_end_defers() -> None:
    """Where nobody knows for how long the node is taken, the next poll decides."""
    scene = Scene(nodes=2)
    by = idle(scene, 1, longest=math.inf)
    deferred = scene.submit(by=by, size=2, wall_time=MINUTE, deadline=T0 + 90)
    assert (deferred.verdict, deferred.codes) == ("defer", ("submit.unconfirmed",))
    assert "held for a moment" in deferred.reply.text


def test_a_promised_job_that_started_is_no_stranger() -> None:
    """All nodes planned for it are taken, at its time: it is what runs there."""
    scene = Scene(nodes=4)
    first = scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    nodes = scene.site.snapshot.plan.nodes.tolist()
    left = sorted({0, 1, 2, 3} - set(nodes))
    second = scene.submit(T0 + 1, by=idle(scene, *left), size=2, wall_time=600.0, deadline=T0 + 700)
    assert (first.verdict, second.verdict) == ("admit", "admit")
    third = scene.submit(T0 + 1, by=idle(scene), size=2, wall_time=600.0, deadline=T0 + 1300)
    assert third.verdict == "admit", "after the first two, by their ends"
    scene.poll(T0 + 2, queued=((7, first.reply.token), (8, second.reply.token)))
    assert all(r.state == "firm" for r in scene.site.promises.values() if r.id < 100)


def test_a_promised_job_that_started_elsewhere_defers() -> None:
    """Until a poll tells it apart from other jobs, nobody is rejected for it."""
    scene = Scene(nodes=4)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    planned = set(scene.site.snapshot.plan.nodes.tolist())
    by = idle(scene, *planned, longest=600.0)
    asked = {"size": 2, "wall_time": 600.0, "deadline": T0 + 700}
    assert scene.submit(T0 + 1, by=by, **asked).codes == ("submit.unconfirmed",)


@pytest.mark.parametrize(("nodes", "verdict"), [((0,), "reject"), ((0, 1), "admit")])
def test_nodes_that_became_idle_are_free(nodes: tuple[int, ...], verdict: str) -> None:
    """A job that ran at the poll and has no node any more has ended."""
    scene = Scene(nodes=2)
    scene.poll(T0 + 5, running=((9, "", T0 - 100, T0 + 9000, (0, 1)),))
    asked = {"size": 2, "wall_time": 600.0, "deadline": T0 + 700}
    assert scene.submit(T0 + 6, by=idle(scene, *nodes), **asked).verdict == verdict


def test_nothing_breaks_when_the_poll_shows_what_took_the_nodes() -> None:
    """Best-effort jobs took nodes after the poll: each promise is kept, nobody is requeued."""
    scene = Scene(nodes=6)
    asked = {"size": 2, "wall_time": 60.0, "deadline": T0 + 110}
    given = [
        scene.submit(by=idle(scene, *left, longest=600.0), **asked).verdict
        for left in ((3, 4, 5), (5,), (5,), (5,))
    ]
    assert given == ["admit", "reject", "reject", "reject"]
    taken = tuple((90 + k, "", T0, T0 + 600, (k,)) for k in range(3))
    token = next(r.token for r in scene.site.promises.values() if r.state == "provisional")
    settled = scene.poll(T0 + 3, queued=((7, token),), running=taken)
    assert not [r for r in settled.changed if r.state == "broken"]
    assert not [a for a in settled.actions if isinstance(a, Requeue)]


# --- where what is idle does not say all ----------------------------------------------------------


def sharing(started: bool, longest: float = 0.0) -> tuple[Scene, AdmissionController]:
    """Return two nodes of 8 cores, one used in part, and the admission at an instant."""
    scene = Scene(nodes=2, capacity=((8, 0), (8, 0)))
    scene.demand = {9: (4, 0)}
    scene.poll(T0 + 1, running=((9, "", T0 - 10, T0 + 9000, (0,)),))
    changed = T0 + (2 if started else -5)
    instant = Instant(np.array([False, True]), changed, longest)
    return scene, replace(scene.admission, instant=instant)


@pytest.mark.parametrize(
    ("started", "size", "verdict"), [(False, 2, "admit"), (True, 1, "admit"), (True, 2, "defer")]
)
def test_a_node_used_in_part_is_not_relied_on(started: bool, size: int, verdict: str) -> None:
    """What is left of it may have been taken; the idle node beside it is certain."""
    scene, by = sharing(started, 600.0)
    asked = {"wall_time": 60.0, "deadline": T0 + 100, "demand": (4, 0)}
    assert SHARED[0] == "cpu"
    assert scene.submit(T0 + 3, by=by, size=size, **asked).verdict == verdict


def test_a_promise_with_slack_is_given_though_jobs_may_have_started() -> None:
    """It could start when what may have started has ended."""
    scene, by = sharing(True, 600.0)
    judged = scene.submit(T0 + 3, by=by, size=2, wall_time=60.0, deadline=T0 + 900, demand=(4, 0))
    assert judged.verdict == "admit"


def test_of_an_older_filter_nothing_is_known() -> None:
    """It sends no word of the instant: only a promise with slack is given at once."""
    scene = Scene(nodes=2)
    instant = instant_of({}, scene.site, NodeLists())
    assert instant == Instant()
    assert "earlier release" in filter_problem({})
    assert "slurmctld does not show" in filter_problem({Tag.PASSED: ""})
    assert not filter_problem({Tag.PASSED: "", Tag.LAST_NODE_UPDATE: 5})
    by = replace(scene.admission, instant=instant)
    judged = scene.submit(by=by, size=1, wall_time=60.0, deadline=T0 + 100)
    assert judged.codes == ("submit.unconfirmed",)


# --- what the filter sends ------------------------------------------------------------------------


def test_what_a_request_says_of_its_instant() -> None:
    """Idle nodes that take jobs; the longest limit of those who passed since the poll."""
    scene = Scene(nodes=4)
    fields = {
        Tag.IDLE_NODES: "n[0-2]",
        Tag.AVAIL_NODES: "n[1-3],nobody",
        Tag.LAST_NODE_UPDATE: int(T0),
        Tag.PASSED: f"{int(T0) - 30}:-1,{int(T0) - 1}:10,{int(T0)}:0,{int(T0)}:-2",
    }
    instant = instant_of(fields, scene.site, NodeLists(), 60.0)
    assert instant.idle.tolist() == [False, True, True, False]
    assert (instant.changed, instant.longest) == (T0, 600.0)


@pytest.mark.parametrize(
    ("passed", "longest"),
    [("", 0.0), (f"{int(T0)}:-1", math.inf), (f"{int(T0)}:-2", 77.0), ("?:1,", math.inf)],
)
def test_what_passed(passed: str, longest: float) -> None:
    """No limit, the partition's, and what is no list."""
    instant = instant_of({Tag.PASSED: passed}, Scene().site, NodeLists(), 77.0)
    assert instant.longest == longest


def test_lists_of_nodes_are_read_once() -> None:
    """Each list of some requests, as long as the cluster has the same nodes."""
    lists, nodes = NodeLists(), Scene(nodes=30).cluster.nodes
    text = fold([f"n{k}" for k in range(0, 30, 2)])
    first = lists.mask(nodes, text)
    assert first.sum() == 15
    assert lists.mask(nodes, text) is first
    assert lists.mask(nodes, "n[1") is None
