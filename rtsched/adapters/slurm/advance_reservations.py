"""Advance reservations that keep a plan's starts free; pure.

Of all planned starts on a node only the next one needs protection: a job that Slurm starts now and
that ends before the first planned start disturbs none of the later ones. So an entry of the plan is
reserved on those of its nodes on which it is the first. Where that is all of its nodes, its job is
bound to the reservation and starts in it; until then it waits as any other job.

A reservation outlasts the planned end by a grace, and reservations may overlap: only starts
matter. A reservation is left behind as soon as its job runs, since nodes that are busy need none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.planned import first_entries
from rtsched.adapters.slurm.layout import PREFIX, is_ours
from rtsched.logs.hostlist import fold
from rtsched.model.resources import LICENSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.slurm.rows import ReservationRow
    from rtsched.model.schedule import Schedule

STARTS_S = 120.0
"""Seconds after its planned start that a reservation lasts, or until its entry ends."""

LATE_S = 30.0
"""A reservation that has begun cannot be put off; by more than this, it is made anew."""


@dataclass(frozen=True)
class AdvanceReservation:
    """A reservation that ought to be.

    Attributes
    ----------
    name : str
        `rtsched_<job id>`.
    job : int
        The entry's job id.
    user : str
        Who may use it.
    start, end : float
        Whole seconds since the epoch.
    nodes : tuple of str
        Names, in the cluster's order; empty: it keeps licences alone.
    whole : bool
        Whether these are all nodes of the entry: its job is bound.
    licenses : mapping of str to int
        How many of each it keeps, by names such as `license/matlab`.
    """

    name: str
    job: int
    user: str
    start: float
    end: float
    nodes: tuple[str, ...]
    whole: bool
    licenses: Mapping[str, int] = field(default_factory=dict)


def reservations_of(
    plan: Schedule,
    names: Sequence[str],
    users: Mapping[int, str],
    *,
    own_user: str,
    horizon: float,
    grace: float,
    lead: float = 0.0,
) -> list[AdvanceReservation]:
    """Return the reservations that a plan needs.

    Parameters
    ----------
    plan : Schedule
        Planned starts of jobs that wait.
    names : sequence of str
        Names of the nodes, by row.
    users : mapping of job id to str
        Whose the waiting jobs are.
    own_user : str
        Whose the reservations of jobs are that have no number yet.
    horizon : float
        Seconds since the epoch; a start after it needs no reservation yet.
    grace : float
        Seconds by which a reservation outlasts its entry.
    lead : float
        Seconds by which a reservation begins before the planned start: Slurm starts what by its
        time limit ends before the reservation, and a job may outlive its limit by so much.
    """
    first = first_entries(plan, len(names))
    reservations = []
    for at, job in enumerate(plan.entries.job.tolist()):
        start = float(plan.entries.start[at])
        mine = [int(row) for row in plan.nodes_of(at) if first[row] == at]
        if start - lead > horizon or not mine:
            continue
        user = own_user if job >= FIRST_OWN_ID else users.get(job, "")
        if not user:
            continue
        reservations.append(
            AdvanceReservation(
                f"{PREFIX}{job}",
                job,
                user,
                float(math.floor(start - lead)),
                float(math.ceil(plan.entries.end[at] + grace)),
                tuple(names[row] for row in sorted(mine)),
                len(mine) == len(plan.nodes_of(at)) and job < FIRST_OWN_ID,
            )
        )
    return reservations


@dataclass(frozen=True)
class ReservationChanges:
    """What has to be done to the reservations that are, for those that ought to be.

    Attributes
    ----------
    delete : tuple of str
        Names of reservations to delete.
    renew : tuple of str
        Names of reservations to delete before they are made anew.
    create : tuple of AdvanceReservation
        To make.
    update : tuple of (AdvanceReservation, dict of str to str)
        To change, and the words that change it.
    """

    delete: tuple[str, ...]
    renew: tuple[str, ...]
    create: tuple[AdvanceReservation, ...]
    update: tuple[tuple[AdvanceReservation, dict[str, str]], ...]


def difference(
    reservations: Sequence[AdvanceReservation],
    present: Sequence[ReservationRow],
    now: float,
    slack: float,
) -> ReservationChanges:
    """Return what turns the present reservations of ours into the reservations.

    A start that is over stays as it is: Slurm refuses to put off the start of a reservation that
    has begun. One that ought to begin much later is deleted and made anew, and so is one that is to
    keep other licences, or licences with nodes or without. Ends may be off by `slack` seconds, with
    licences they may be earlier only.
    """
    wanted = {reservation.name: reservation for reservation in reservations}
    ours = [row for row in present if is_ours(row.name)]
    delete = [row.name for row in ours if row.name not in wanted]
    renew, update, kept = [], [], set()
    for row in ours:
        reservation = wanted.get(row.name)
        if reservation is None:
            continue
        words = _words(reservation, row, now, slack)
        late = row.start <= now and reservation.start > now + LATE_S
        if late or _keeps_otherwise(reservation, row):
            renew.append(row.name)
            continue
        kept.add(row.name)
        if words:
            update.append((reservation, words))
    create = [reservation for reservation in reservations if reservation.name not in kept]
    return ReservationChanges(tuple(delete), tuple(renew), tuple(create), tuple(update))


def _words(
    reservation: AdvanceReservation, row: ReservationRow, now: float, slack: float
) -> dict[str, str]:
    """Return what of a reservation has to change."""
    words = {}
    if set(reservation.nodes) != set(row.nodes):
        words["Nodes"] = fold(reservation.nodes)
    if reservation.start != row.start and row.start > now:
        words["StartTime"] = written(reservation.start, now)
    longer = row.end - reservation.end
    most = 0.0 if reservation.licenses else slack
    enough = min(reservation.end, max(reservation.start, now) + STARTS_S)
    if (row.end < enough or not -slack <= longer <= most) and reservation.end > now:
        words["EndTime"] = written(reservation.end, now)
    if row.users != (reservation.user,):
        words["Users"] = reservation.user
    if row.licenses != reservation.licenses:
        words["Licenses"] = written_licenses(reservation.licenses)
    return words


def _keeps_otherwise(reservation: AdvanceReservation, row: ReservationRow) -> bool:
    """Return whether a reservation needs other flags than it has, or other licences for its job."""
    if not row.nodes and not reservation.nodes and not reservation.whole:
        return False
    on_nodes = bool(row.nodes) == bool(reservation.nodes)
    return row.licenses != reservation.licenses or (bool(row.licenses) and not on_nodes)


def written_licenses(licenses: Mapping[str, int]) -> str:
    """Return licences as scontrol reads them, such as `matlab:3,fluent:1`."""
    return ",".join(f"{name.removeprefix(LICENSE)}:{n}" for name, n in licenses.items())


def written(moment: float, now: float) -> str:
    """Return a time as scontrol reads it: seconds since the epoch, or `now`."""
    return f"uts{moment:.0f}" if moment > now + 1 else "now"
