"""Offers keep nobody from starting, and can be taken for as long as they say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import ANN, BOB, T0, Scene

from rtsched.daemon.offers import in_the_way
from rtsched.model.actions import Requeue, Reserve
from rtsched.model.jobs import Kind
from rtsched_plugins.mcdf import Mcdf

ALL = (0, 1, 2, 3)
BUSY = ((7, "", T0, T0 + 600.0, ALL),)
"""A best-effort job on all nodes, for ten minutes."""


def reserved(scene: Scene, settled: object) -> list[int]:
    """Return the jobs of the plan that the batch system is to keep."""
    (plan,) = [a.plan for a in settled.actions if isinstance(a, Reserve)]  # type: ignore[attr-defined]
    return list(plan.entries.job.tolist())


def offered(scene: Scene) -> list[int]:
    """Return the offers that are held."""
    return [job for job, record in scene.site.promises.items() if record.state == "offered"]


def test_an_offer_on_free_nodes_is_not_reserved_and_reaches_no_batch_system() -> None:
    """Whoever can start, starts."""
    scene = Scene()
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


def test_a_job_that_could_start_now_starts_in_the_place_of_an_offer() -> None:
    """Another user's deadline is promised on the nodes that an offer has."""
    scene = Scene()
    scene.submit(size=4, wall_time=600.0, deadline=T0 + 300.0)
    judged = scene.submit(uid=BOB, size=4, wall_time=600.0, deadline=T0 + 5000.0)
    assert (judged.verdict, judged.reply.start) == ("admit", T0)
    assert offered(scene) == []


def test_best_effort_jobs_on_the_nodes_of_an_offer_are_not_requeued_for_it() -> None:
    """The offer is planned later, or lapses; `late_starters` is for promises."""
    scene = Scene()
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


def test_an_array_most_of_whose_tasks_are_cancelled_is_planned_anew_at_once() -> None:
    """It waits for nodes for an hour; then it needs one of them, for one round."""
    scene = Scene()
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
