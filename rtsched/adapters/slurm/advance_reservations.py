"""Advance reservations that keep a plan's starts free, and the commands for them.

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
from datetime import datetime
from typing import TYPE_CHECKING

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.slurm.commands import Rank, change, deletion
from rtsched.adapters.slurm.layout import PREFIX, is_ours
from rtsched.logs.hostlist import fold
from rtsched.model.resources import LICENSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.live import Change
    from rtsched.adapters.slurm.last_applied import SlurmState
    from rtsched.adapters.slurm.rows import ReservationRow
    from rtsched.model.schedule import Schedule

FLAGS = "IGNORE_JOBS,OVERLAP,NO_HOLD_JOBS_AFTER_END"
"""Of every reservation of nodes: it is made over jobs that run, beside others of ours, and a job
that it leaves behind waits on."""

LICENSE_FLAGS = "ANY_NODES,FLEX,IGNORE_JOBS,NO_HOLD_JOBS_AFTER_END"
"""Of a reservation of licences alone: its job may run on any node, and start before it begins."""

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
    first = plan.first_entries(len(names))
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


def reservation_changes(moved: ReservationChanges, view: SlurmState) -> list[Change]:
    """Return what is to be done about reservations."""
    changes = [deletion(name, Rank.RENEW, ", to recreate it") for name in moved.renew]
    for reservation, words in moved.update:
        pairs = [f"{key}={value}" for key, value in words.items()]
        text = f"change reservation {reservation.name}: {' '.join(pairs)}"
        changes.append(_change(reservation, text, Rank.UPDATE, "update", pairs))
    changes += [_create(reservation, view) for reservation in moved.create]
    kept = {row.name: row for row in view.reservations}
    changes += [_delete(kept[name]) for name in moved.delete]
    return changes


def _delete(row: ReservationRow) -> Change:
    """Return the change that deletes a reservation, which nothing is to follow.

    One with licences goes before others are made: Slurm refuses one that would keep more licences
    than there are.
    """
    return deletion(row.name, Rank.RENEW if row.licenses else Rank.DELETE, nodes=row.nodes)


def _create(reservation: AdvanceReservation, view: SlurmState) -> Change:
    """Return the change that makes a reservation."""
    nodes, licenses = fold(reservation.nodes), written_licenses(reservation.licenses)
    start = max(reservation.start, view.now)
    what = f"on {nodes} " if nodes else ""
    what += f"with the licences {licenses} " if licenses else ""
    text = (
        f"create reservation {reservation.name} {what}from {clock(start)} for "
        f"{math.ceil((reservation.end - start) / 60)} min for {reservation.user}"
    )
    words = [
        f"StartTime={written(reservation.start, view.now)}",
        f"EndTime=uts{reservation.end:.0f}",
        *([f"Nodes={nodes}"] if nodes else []),
        *([f"Licenses={licenses}"] if licenses else []),
        f"Users={reservation.user}",
        f"Flags={FLAGS if nodes else LICENSE_FLAGS}",
    ]
    return _change(reservation, text, Rank.CREATE, "create reservation", words)


def _change(
    reservation: AdvanceReservation, text: str, rank: Rank, what: str, words: Sequence[str]
) -> Change:
    """Return the change by which scontrol makes or changes a reservation."""
    words = ("scontrol", *what.split(), f"ReservationName={reservation.name}", *words)
    return change("reserve", reservation.job, text, rank, *words, nodes=reservation.nodes)


def clock(moment: float) -> str:
    """Return a time of day in the machine's own zone, for people."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
