"""Promises beside reservations of the site: planned before and after them, and moved for them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scene import T0, Scene

from rtsched.daemon.waiting import waits
from rtsched.model.actions import Notify
from rtsched.model.blocked import NOTHING_BLOCKED, RECURS_AHEAD, WHOLE, Blocked, with_recurring
from rtsched.model.jobs import Periodic
from rtsched_plugins.mcdf import Mcdf

if TYPE_CHECKING:
    from rtsched.daemon.admission import AdmissionResult

RUN, DAY = 600.0, 86400.0
BOTH_KINDS = pytest.mark.parametrize("shared", [False, True], ids=["whole nodes", "shared nodes"])


def span(node: int, start: float, end: float) -> tuple[int, float, float, int]:
    """Return a span of a whole node, in seconds after T0."""
    return node, T0 + start, T0 + end, WHOLE


def scene_of(nodes: int, shared: bool, *spans: tuple[int, float, float, int]) -> Scene:
    """Return a site with nodes of 4 cores of which some are set aside."""
    scene = Scene(nodes, capacity=[(4, 0)] * nodes if shared else ())
    scene.blocked = Blocked.of(spans)
    scene.poll(T0)
    return scene


def ask(scene: Scene, wall: float, deadline: float, size: int = 1) -> AdmissionResult:
    """Submit a job of all cores of its nodes; the deadline in seconds after T0."""
    demand = (4, 0) if scene.cluster.shared else None
    now = scene.site.snapshot.now
    return scene.submit(now, size=size, wall_time=wall, deadline=T0 + deadline, demand=demand)


def starts(scene: Scene) -> list[float]:
    """Return the planned starts, seconds after T0."""
    return (scene.site.snapshot.plan.entries.start - T0).tolist()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 6)), max_size=9))
def test_merged_spans_cover_the_same_instants_once(given_: list[tuple[int, int, int]]) -> None:
    """Instant by instant; and none of a node overlaps or touches another of it."""
    spans = [(node, start, start + length) for node, start, length in given_]
    columns = np.array(spans, np.float64).reshape(-1, 3).T
    found = Blocked.merged(columns[0].astype(np.int64), columns[1], columns[2])
    instants = {(n, t) for n, start, end in spans for t in range(start, end)}
    rows = list(zip(found.node.tolist(), found.start.tolist(), found.end.tolist(), strict=True))
    assert [(n, t) for n, a, b in rows for t in range(int(a), int(b))] == sorted(instants)
    apart = [(n, b, m, c) for (n, _, b), (m, c, _) in pairwise(rows)]
    assert all(n < m or b < c for n, b, m, c in apart)
    assert (found.cpus == WHOLE).all()


def test_merged_spans_without_an_end() -> None:
    """One that never ends takes in all later ones of its node."""
    merged = Blocked.merged(
        np.array([1, 0, 1, 1]), np.array([5.0, 1.0, 0.0, 9.0]), np.array([np.inf, 2.0, 6.0, 10.0])
    )
    assert merged.node.tolist() == [0, 1]
    assert merged.end.tolist() == [2.0, np.inf]
    assert Blocked.merged(*(column[:0] for column in merged[:3])).equals(NOTHING_BLOCKED)


def test_recurring_work_of_a_short_period_is_laid_out_for_less() -> None:
    """1,024 times of 10 s; the spans stay the same for a fifteenth of that."""
    work = Periodic.build(1, node=[2], exec_time=[3.0], period=[10.0], phase=[0.0])
    spans = with_recurring(NOTHING_BLOCKED, work, 700.0)
    begin = 10240 / 15
    assert spans.equals(with_recurring(NOTHING_BLOCKED, work, 2 * begin - 0.1))
    assert not spans.equals(with_recurring(NOTHING_BLOCKED, work, 2 * begin))
    assert spans.start[:2].tolist() == [680.0, 690.0]
    assert (spans.start[-1], spans.end[-1]) == (10920.0, np.inf)


@BOTH_KINDS
def test_jobs_are_planned_before_and_after_a_reservation(shared: bool) -> None:
    """Of both nodes from 1000 to 2000 s: what does not end before starts after it."""
    scene = scene_of(2, shared, span(0, 1000, 2000), span(1, 1000, 2000))
    assert ask(scene, 900, 1000, size=2).verdict == "admit"
    assert starts(scene) == [0.0]
    assert ask(scene, 900, 3000, size=2).verdict == "admit"
    assert starts(scene) == [0.0, 2000.0]
    refused = ask(scene, 150, 2000, size=2)
    assert refused.verdict == "reject"
    assert 3050 <= refused.offer - T0 < 3050 + 60


@BOTH_KINDS
def test_a_promise_is_moved_out_of_the_way_of_a_new_reservation(shared: bool) -> None:
    """To another node at the same time, or to after it; only if neither will do it breaks.

    That is as soon as the job could no longer end in time if it started at once.
    """
    scene = scene_of(2, shared)
    token = ask(scene, RUN, 3 * RUN).reply.token
    scene.poll(T0 + 1, ((7, token),))
    (node,) = scene.site.snapshot.plan.nodes.tolist()
    scene.blocked = Blocked.of([span(node, 100, 5000)])
    settled = scene.poll(T0 + 2, ((7, token),))
    assert not settled.changed
    assert starts(scene) == [pytest.approx(1, abs=2)]
    assert scene.site.snapshot.plan.nodes.tolist() == [1 - node]

    scene.blocked = Blocked.of([span(0, 100, 5000), span(1, 100, 1000)])
    settled = scene.poll(T0 + 3, ((7, token),))
    assert not settled.changed
    assert starts(scene) == [1000.0]

    scene.blocked = Blocked.of([span(0, 100, 5000), span(1, 100, 1300)])
    assert not scene.poll(T0 + 4, ((7, token),)).changed  # it is at risk
    settled = scene.poll(T0 + 1205, ((7, token),))
    assert [record.state for record in settled.changed] == ["broken"]
    assert any(isinstance(action, Notify) for action in settled.actions)


@BOTH_KINDS
def test_a_job_that_starts_late_before_a_reservation_stays_where_it_is(shared: bool) -> None:
    """Its time contains the leeway: by its own limit it ends before the reservation."""
    scene = scene_of(1, shared, span(0, RUN, 3 * RUN))
    token = ask(scene, RUN, 2 * RUN).reply.token
    scene.poll(T0 + 5, ((7, token),), leeway=60.0)
    settled = scene.poll(T0 + 15, ((7, token),), leeway=60.0)
    assert not settled.changed
    assert starts(scene) == [0.0]
    settled = scene.poll(T0 + 665, ((7, token),), leeway=60.0)
    assert [record.state for record in settled.changed] == ["broken"]


@BOTH_KINDS
def test_the_end_of_a_maintenance_is_an_instant_to_start_at(shared: bool) -> None:
    """All nodes are in it when the job is submitted."""
    scene = scene_of(2, shared, span(0, -500, 700), span(1, -500, 700))
    assert ask(scene, RUN, 700 + RUN, size=2).verdict == "admit"
    assert starts(scene) == [700.0]


def test_a_planner_that_knows_of_no_spans_has_its_nodes_closed() -> None:
    """From `reserved_ahead` before a span on; a span farther ahead is not looked at."""
    scene = Scene(2, plugin=Mcdf(Mcdf.Config(rounds=2)), planner="mine")
    scene.reserved_ahead = 1000.0
    scene.blocked = Blocked.of([span(0, 500, 900), span(1, 2000, 3000)])
    scene.poll(T0)
    assert scene.site.snapshot.cluster.usable.tolist() == [False, True]
    assert not len(scene.site.snapshot.blocked.node)
    scene.poll(T0 + 1500)
    assert scene.site.snapshot.cluster.usable.tolist() == [True, False]


@BOTH_KINDS
def test_recurring_work_is_planned_around(shared: bool) -> None:
    """For two weeks; then its node is set aside for good, and nothing is promised there."""
    scene = scene_of(1, shared)
    scene.periodic = Periodic.build(
        1, node=[0], exec_time=[3600.0], period=[DAY], phase=[T0 + 3600.0], left=[0.0]
    )
    scene.poll(T0)
    assert ask(scene, 3600, DAY).verdict == "admit"
    assert ask(scene, DAY - 3600, 2 * DAY + 3600).verdict == "admit"
    assert starts(scene) == [0.0, 7200.0]
    assert ask(scene, DAY, 30 * DAY).verdict == "reject"
    spans = scene.site.snapshot.blocked
    assert len(spans.node) == RECURS_AHEAD // DAY + 1
    assert spans.end[-1] == np.inf
    assert scene.site.snapshot.cluster.usable.all()
    same = spans
    scene.poll(T0 + 60)
    assert scene.site.snapshot.blocked is same


def test_why_a_job_waits_for_a_reservation() -> None:
    """Both nodes are free, and one is set aside before the job would end."""
    scene = scene_of(2, False, span(0, 300, 900))
    scene.poll(T0 + 1, ((8, ""),), changed={"wall_time": RUN, "size": 2})
    found = {reason.code: reason.text for reason in waits(scene.site, None, 8, T0 + 1)}
    assert found["wait.nodes"] == "it needs 2 nodes, 1 free"
    assert found["wait.reservation"] == (
        "1 node is in a reservation of the site before it would end"
    )
