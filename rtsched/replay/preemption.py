"""Preemption among the jobs of a log, and what of a site's is not replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.limits import Qos
from rtsched.model.log import Ending
from rtsched.model.preemption import (
    CANCEL,
    NONE,
    OFF,
    REQUEUE,
    SUSPEND,
    Preemption,
)
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Outcomes
    from rtsched.model.preemption import SitePreemption

AS_CONFIGURED = "conf"
"""Value of a setting that leaves it to the site's slurm.conf."""

_BY = {"qos": "QOS", "partition_prio": "PriorityTier"}


class _Kind(NamedTuple):
    """Jobs of one QOS in one partition."""

    qos: str
    partition: str
    own: Qos
    mode: str
    rank: float
    exempt: float


def as_set(site: SitePreemption, by: str, mode: str) -> SitePreemption:
    """Return a site's preemption with what settings put in its place.

    `by` and `mode` are `AS_CONFIGURED` or values as in `SitePreemption`. Where only `by` is given,
    and the site does not say what becomes of preempted jobs, they are requeued.
    """
    if by != AS_CONFIGURED:
        site = replace(site, by=by, mode=REQUEUE if site.mode == OFF else site.mode)
    return site if mode == AS_CONFIGURED else replace(site, mode=mode)


def preemption_of_jobs(
    jobs: Jobs,
    outcomes: Outcomes,
    site: SitePreemption,
    qos: Mapping[str, Qos] | None,
    notes: list[str],
) -> Preemption | None:
    """Return who of the jobs may preempt whom; None: nobody may.

    Parameters
    ----------
    jobs, outcomes : Jobs, Outcomes
        `n` jobs, and what the log says of them.
    site : SitePreemption
        What the site has set.
    qos : mapping of str to Qos, or None
        Its QOS by name; None: not known.
    notes : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    stopped = int(np.count_nonzero(outcomes.ending == Ending.PREEMPTED))
    if site.by == NONE or site.mode == OFF or (site.by == "qos" and qos is None):
        if site.by == "qos" and site.mode != OFF:
            notes.append(
                "Preemption by QOS is not replayed: `--qos` tells which QOS preempt which."
            )
        if stopped:
            notes.append(
                f"{counted(stopped, 'job')} preempted in the log: preemption is not replayed, and "
                "they run for as long as they ran there (`--preempt-type` replays it)."
            )
        return None
    kind, kinds = _kinds(jobs, site, qos or {})
    may = np.array([[_may(one, other, site) for other in kinds] for one in kinds], np.bool_)
    may = may.reshape(len(kinds), len(kinds))
    stops = np.array([one.mode in (REQUEUE, CANCEL) for one in kinds], np.bool_)
    jobs_of = np.bincount(kind, minlength=len(kinds))
    suspended = int(jobs_of[may.any(axis=0) & np.array([k.mode == SUSPEND for k in kinds])].sum())
    may &= stops
    if suspended:
        notes.append(
            f"{counted(suspended, 'job')} that Slurm would suspend for others (PreemptMode="
            "SUSPEND): no job is suspended in the replay, so they are not preempted."
        )
    notes += _remarks(site, kinds, jobs_of, may)
    if stopped:
        notes.append(
            f"{counted(stopped, 'job')} preempted in the log: each runs in the replay for as long "
            "as it ran there, at most."
        )
    if not may.any():
        return None
    return Preemption(
        kind,
        may,
        np.array([one.mode == CANCEL for one in kinds], np.bool_),
        np.array([one.rank for one in kinds]),
        np.array([one.exempt for one in kinds]),
    )


def higher_tiers(jobs: Jobs, machine: Cluster, site: SitePreemption) -> list[str]:
    """Return what to say of jobs that Slurm would start before others, by PriorityTier.

    Parameters
    ----------
    jobs : Jobs
        With their partitions.
    machine : Cluster
        With the nodes of the partitions; those of unknown ones are all.
    site : SitePreemption
        With the tiers.
    """
    names = jobs.names("partition")
    codes = jobs.partition[jobs.partition >= 0]
    count = np.bincount(codes, minlength=len(names)).tolist()
    every = np.ones(len(machine), np.bool_)
    there = [
        (_tier(name, site), machine.partitions.get(name, every), n)
        for name, n in zip(names, count, strict=True)
        if n
    ]
    higher = sum(
        n
        for tier, nodes, n in there
        if any(tier > other and (nodes & shared).any() for other, shared, _ in there)
    )
    if not higher:
        return []
    return [
        f"{counted(higher, 'job')} of a partition with a higher PriorityTier than another one on "
        "the same nodes: Slurm starts them first, no policy here does."
    ]


def _kinds(
    jobs: Jobs, site: SitePreemption, qos: Mapping[str, Qos]
) -> tuple[NDArray[np.int64], list[_Kind]]:
    """Return the kind of each job, int64[n], and the kinds."""
    names = [(*jobs.names(name), "") for name in ("qos", "partition")]
    keys = (jobs.qos.astype(np.int64) + 1) * (len(names[1]) + 1) + (jobs.partition + 1)
    distinct, kind = np.unique(keys, return_inverse=True)
    kinds = []
    for key in distinct.tolist():
        of_qos, of_partition = (code - 1 for code in divmod(key, len(names[1]) + 1))
        name, partition = names[0][of_qos], names[1][of_partition]
        own = qos.get(name, Qos())
        mode, rank = own.preempt_mode, float(own.priority)
        if site.by == "partition_prio":
            mode, rank = site.partition_modes.get(partition, ""), _tier(partition, site)
        exempt = site.exempt if own.exempt is None else own.exempt
        kinds.append(_Kind(name, partition, own, mode or site.mode, rank, exempt))
    return kind.astype(np.int64), kinds


def _tier(partition: str, site: SitePreemption) -> float:
    """Return the PriorityTier of a partition; Slurm's default is 1."""
    return float(site.tiers.get(partition, 1))


def _may(one: _Kind, other: _Kind, site: SitePreemption) -> bool:
    """Return whether waiting jobs of one kind may preempt running ones of another."""
    if site.by == "partition_prio":
        return one.rank > other.rank
    return other.qos in one.own.preempts


def _remarks(
    site: SitePreemption, kinds: list[_Kind], jobs_of: NDArray[np.int64], may: NDArray[np.bool_]
) -> list[str]:
    """Return what to say of the jobs that may preempt or be preempted."""
    by = _BY[site.by]
    if not may.any():
        return [f"Preemption by {by}: no job of the log may preempt another one."]
    some = may.any(axis=0)
    cancelled = some & np.array([one.mode == CANCEL for one in kinds])
    graced = some & np.array([one.own.grace > 0 for one in kinds])
    others, gone = int(jobs_of[some].sum()), int(jobs_of[cancelled].sum())
    remarks = [
        f"{counted(int(jobs_of[may.any(axis=1)].sum()), 'job')} may preempt {others} others by "
        f"{by} (then requeued, to begin again: {others - gone}; cancelled: {gone}): on machine "
        "'exclusive' with loop 'fcfs' or 'easy', and no promised job is preempted."
    ]
    if grace := int(jobs_of[graced].sum()):
        remarks.append(f"{counted(grace, 'job')} with a GraceTime: preempted jobs end at once.")
    return remarks
