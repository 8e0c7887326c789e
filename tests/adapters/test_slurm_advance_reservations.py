"""Which reservations keep a plan's starts free."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.slurm.advance_reservations import (
    AdvanceReservation,
    ReservationChanges,
    difference,
    reservations_of,
)
from rtsched.adapters.slurm.rows import ReservationRow
from rtsched.model.schedule import Schedule

NAMES = [f"n{i}" for i in range(8)]
NOW = 1_800_000_000.0


def plan_of(*entries: tuple[int, float, float, list[int]]) -> Schedule:
    """Return a plan of (job, start after now, length, nodes)."""
    sizes = [len(nodes) for _, _, _, nodes in entries]
    return Schedule.build(
        np.array([job for job, _, _, _ in entries], np.int64),
        np.array([NOW + start for _, start, _, _ in entries]),
        np.array([NOW + start + length for _, start, length, _ in entries]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([node for _, _, _, nodes in entries for node in nodes], np.int32),
    )


def reservations(plan: Schedule, horizon: float = 1e6, **users: str) -> list[AdvanceReservation]:
    """Return the reservations of a plan, all jobs ann's."""
    owners = dict.fromkeys(plan.entries.job.tolist(), "ann")
    return reservations_of(
        plan, NAMES, owners, own_user="rtsched", horizon=NOW + horizon, grace=600.0
    )


def test_only_the_next_start_on_a_node_is_reserved() -> None:
    """An entry is guarded where it is first, and bound where it is first on all of its nodes."""
    found = reservations(plan_of((7, 100, 60, [0, 1]), (8, 200, 60, [1, 2]), (9, 300, 60, [0])))
    assert [(g.name, g.nodes, g.whole) for g in found] == [
        ("rtsched_7", ("n0", "n1"), True),
        ("rtsched_8", ("n2",), False),
    ]


def test_a_reservation_begins_before_the_planned_start() -> None:
    """A job whose limit ends before the start may outlive it: Slurm must not start it there."""
    plan, owners = plan_of((7, 100, 60, [0])), {7: "ann"}
    (reservation,) = reservations_of(
        plan, NAMES, owners, own_user="rtsched", horizon=1e12, grace=0.0, lead=20.0
    )
    assert (reservation.start, reservation.end) == (NOW + 80, NOW + 160)


def test_starts_beyond_the_horizon_wait() -> None:
    """What cannot be blocked yet needs no reservation."""
    assert not reservations(plan_of((7, 1000, 60, [0])), horizon=999)
    assert len(reservations(plan_of((7, 1000, 60, [0])), horizon=1001)) == 1


def test_a_job_that_is_not_queued_yet() -> None:
    """Its reservation is the daemon's own, and nothing is bound to it."""
    (reservation,) = reservations_of(
        plan_of((FIRST_OWN_ID, 5, 60, [3])), NAMES, {}, own_user="rtsched", horizon=1e12, grace=0
    )
    assert (reservation.user, reservation.whole) == ("rtsched", False)


@st.composite
def plans(draw: Any) -> Schedule:
    """Plans of up to twelve entries."""
    entries = [
        (
            job + 1,
            float(draw(st.integers(-100, 1000))),
            float(draw(st.integers(1, 500))),
            draw(st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True)),
        )
        for job in range(draw(st.integers(0, 12)))
    ]
    return plan_of(*entries)


@given(plans(), st.integers(0, 1000))
def test_every_next_start_is_reserved(plan: Schedule, horizon: int) -> None:
    """On every node the earliest entry within the horizon has a reservation, and no other has."""
    found = reservations(plan, horizon=horizon)
    by_node: dict[str, list[AdvanceReservation]] = {}
    for reservation in found:
        for name in reservation.nodes:
            by_node.setdefault(name, []).append(reservation)
    for row, name in enumerate(NAMES):
        there = [at for at in range(len(plan)) if row in plan.nodes_of(at)]
        jobs = plan.entries.job
        first = min(there, key=lambda at: (plan.entries.start[at], jobs[at]), default=None)
        protected = by_node.get(name, [])
        if first is None or plan.entries.start[first] > NOW + horizon:
            assert not protected
        else:
            assert [reservation.job for reservation in protected] == [jobs[first]]
    for reservation in found:
        at = int(np.flatnonzero(plan.entries.job == reservation.job)[0])
        assert reservation.whole == (len(reservation.nodes) == len(plan.nodes_of(at)))


@given(plans())
def test_first_entries(plan: Schedule) -> None:
    """Nodes without an entry have none; the others name one that has the node."""
    for row, at in enumerate(plan.first_entries(len(NAMES)).tolist()):
        assert at < 0 or row in plan.nodes_of(at)


def existing(reservation: AdvanceReservation, **changed: Any) -> ReservationRow:
    """Return the reservation that a reservation makes, but for some columns."""
    columns = {
        "name": reservation.name,
        "start": reservation.start,
        "end": reservation.end,
        "nodes": reservation.nodes,
        "users": (reservation.user,),
        "flags": (),
    }
    return ReservationRow(**{**columns, **changed})


@given(plans())
def test_reservations_that_are_there_are_left_alone(plan: Schedule) -> None:
    """Comparing reservations with the reservations that they make asks for nothing."""
    found = reservations(plan)
    moved = difference(found, [existing(reservation) for reservation in found], NOW - 200, 300.0)
    assert moved == ReservationChanges((), (), (), ())


def test_other_reservations_are_not_ours() -> None:
    """Only what is named as ours are is ever deleted, not whatever begins with rtsched_."""
    present = [
        ReservationRow("maint", NOW, NOW + 1, ("n0",), ("root",), ()),
        ReservationRow("rtsched_maint", NOW, NOW + 1, ("n0",), ("root",), ()),
        ReservationRow("rtsched_3b", NOW, NOW + 1, ("n0",), ("root",), ()),
        ReservationRow("rtsched_", NOW, NOW + 1, ("n0",), ("root",), ()),
        ReservationRow("rtsched_3", NOW, NOW + 1, ("n0",), ("ann",), ()),
    ]
    moved = difference([], present, NOW, 300.0)
    assert moved.delete == ("rtsched_3",)


def test_what_moved_is_changed_in_place() -> None:
    """Nodes, user, start and end are updated; an end within the slack is let be."""
    (reservation,) = reservations(plan_of((7, 100, 60, [0, 1])))
    row = existing(
        reservation, nodes=("n0",), start=NOW + 50, users=("bob",), end=reservation.end - 400
    )
    ((_, words),) = difference([reservation], [row], NOW, 300.0).update
    assert words == {
        "Nodes": "n[0-1]",
        "StartTime": f"uts{NOW + 100:.0f}",
        "EndTime": f"uts{reservation.end:.0f}",
        "Users": "ann",
    }
    assert not difference(
        [reservation], [existing(reservation, end=reservation.end - 200)], NOW, 300.0
    ).update


def test_a_reservation_that_has_begun() -> None:
    """It keeps its start while that is near, and is made anew where it ought to begin later."""
    near, far = (reservations(plan_of((7, start, 60, [0])))[0] for start in (20, 100))
    moved = difference([near], [existing(near, start=NOW - 5)], NOW, 300.0)
    assert moved == ReservationChanges((), (), (), ())
    moved = difference([far], [existing(far, start=NOW - 5)], NOW, 300.0)
    assert moved.renew == ("rtsched_7",)
    assert moved.create == (far,)
