"""Waiting jobs as their users submitted them: what a site does that takes rtsched out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.adapters.slurm.commands import (
    Rank,
    change,
    deletion,
    job_update,
    only_waiting,
    priority_argument,
)
from rtsched.adapters.slurm.comments import with_message
from rtsched.adapters.slurm.layout import is_ours
from rtsched.adapters.slurm.memory import LastApplied
from rtsched.adapters.slurm.observation import is_admitted, is_deferred, keeps_order
from rtsched.adapters.slurm.reserving import (
    is_first,
    keeps_nodes,
    out_of_order,
    own_nodes,
    own_shape,
)
from rtsched.adapters.slurm.rows import WAITING, alive

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from rtsched.adapters.live import Change
    from rtsched.adapters.slurm.memory import AppliedFile
    from rtsched.adapters.slurm.rows import JobRows, ReservationRow


ENDED = "the promise has ended: rtsched was removed from this cluster; the job runs as best effort"
"""What users of promised jobs are told."""


def restoring(
    rows: JobRows,
    reservations: Sequence[ReservationRow],
    kept: AppliedFile,
    *,
    basic: bool,
    promised: Container[int] = (),
) -> list[Change]:
    """Return what undoes all that rtsched set in waiting jobs, and its reservations.

    Parameters
    ----------
    rows : JobRows
        All jobs.
    reservations : sequence of ReservationRow
        All there are.
    kept : AppliedFile
        What was asked for that Slurm does not show.
    basic : bool
        The site has priority/basic: jobs were put forward and back by Nice.
    promised : container of int
        Jobs whose promises end with this: their users are told, in the jobs' comments.
    """
    LastApplied.of(kept).restore_marks(rows)
    changes = [deletion(row.name, Rank.DELETE) for row in reservations if is_ours(row.name)]
    for at in range(len(rows)):
        if alive(rows.state[at]):
            changes += _job(rows, at, kept, basic=basic)
            job = int(rows.id[at])
            if job in promised:
                comment = with_message(rows.comment[at], ENDED)
                text = f"set the comment of job {job}: {comment}"
                changes.append(job_update("restore", job, text, Rank.JOB, f"Comment={comment}"))
    return changes


def _job(rows: JobRows, at: int, kept: AppliedFile, *, basic: bool) -> Iterator[Change]:
    """Yield what undoes all that was set in one job that waits or runs."""
    job, waits = int(rows.id[at]), rows.state[at] in WAITING

    def update(text: str, rank: Rank, *words: str) -> Change:
        return job_update("restore", job, text, rank, *words)

    if is_ours(rows.reservation[at]):
        text = f"take job {job} out of reservation {rows.reservation[at]}"
        yield update(text, Rank.LEAVE, "ReservationName=")
    if not waits:
        return
    if keeps_order(rows, at, basic=basic):
        yield from out_of_order(rows, at, "restore")
    elif keeps_nodes(rows, at, kept.sent):
        yield from own_nodes(rows, at, "restore")
    elif kept.factors.get(job, int(is_first(rows, at, basic=basic))):
        words = priority_argument(0, basic)
        yield update(f"set {words} of job {job}", Rank.JOB, words)
    yield from own_shape(rows, at, kept.shapes, "restore")
    asked = kept.ranges.get(job)
    if asked and asked != (rows.min_nodes[at], rows.max_nodes[at]):
        words = f"NumNodes={asked[0]}-{asked[1]}"
        text = f"set {words} of job {job}, as asked for"
        yield update(text, Rank.SIZE, words, only_waiting(rows, at))
    node, _ = kept.sent.get(job, ("", 0.0))
    if node and rows.required[at] == node and not is_admitted(rows.mark[at]):
        yield update(f"let job {job} start on any node again", Rank.JOB, "ReqNodeList=")
    if is_deferred(rows.mark[at]) and rows.priority[at] == 0:
        yield change(
            "restore", job, f"release job {job}", Rank.END, "scontrol", "release", str(job)
        )
