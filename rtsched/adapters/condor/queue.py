"""The jobs of a queue: procs as arrays, and the requirements of those that rtsched plans.

Source: HTCondor's manual, "Job ClassAd Attributes".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.condor.arrays import (
    array_of,
    arrays_in,
    fitting_per_slot,
    members_of,
    per_slot_of,
)
from rtsched.adapters.condor.gpus import LIMITS
from rtsched.adapters.condor.holds import is_overrun, is_passing, is_spooling
from rtsched.adapters.condor.ids import PROC_BITS
from rtsched.adapters.condor.matching import condition_in
from rtsched.adapters.condor.pool_state import (
    COMPLETED,
    DEFERRED,
    HELD,
    IDLE,
    REMOVED,
    Array,
    Procs,
)
from rtsched.adapters.condor.requirements import (
    KILOBYTE,
    MEGABYTE,
    OURS,
    PARALLEL,
    REQUEST_ATTRIBUTES,
    CondorRequirements,
    needs_rtsched,
    requirements_of,
    run_time,
)
from rtsched.adapters.condor.submission import name_in, submitter_of
from rtsched.logs.classads import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.logs.classads import Record

CONSTRAINT = "JobUniverse == 5 || JobUniverse == 10 || JobUniverse == 11 || JobUniverse == 13"
"""Jobs that take slots: vanilla, java, parallel, vm."""

TO_PLACE = "RtDeadline =!= undefined && (JobStatus == 1 || JobStatus == 5)"
"""Jobs that wait and may be promised something."""

PROMISED = (
    "JobStatus == 1 && RtAdmission =!= undefined && "
    '((RtAdmission != "parked" && RtAdmission != "unjudged") || RtWhy =!= undefined)'
)
"""Jobs that wait and were promised something, perhaps."""

OF_JOBS = (
    *("ClusterId", "ProcId", "JobStatus", "JobUniverse", "QDate", "DeferralTime"),
    *(
        "JobCurrentStartDate",
        "JobCurrentStartExecutingDate",
        "RemoteHost",
        "AllRemoteHosts",
        "TotalSubmitProcs",
    ),
    *("RequestCpus", "RequestMemory", "RequestGPUs", "MinHosts", "MaxHosts", "JobPrio"),
    *("RequireGPUs", *LIMITS),
    *("AllowedExecuteDuration", "AllowedJobDuration", "DAGManJobId"),
    "JobMaterializeDigestFile",
    *("HoldReason", "HoldReasonCode", "EnteredCurrentStatus"),
    *("User", "Owner", "AcctGroup", "AccountingGroup", "JobBatchName", "Cmd"),
    *REQUEST_ATTRIBUTES.values(),
    *OURS,
)
"""What is read of a job."""

OF_DISK = ("RequestDisk", "DiskUsage", "TransferInputSizeMB")
"""What is read of it besides where jobs share slots; RequestDisk often refers to the others."""

OF_ENDS = (
    *("ClusterId", "ProcId", "JobStatus", "JobUniverse", "RtSigma", "TotalSubmitProcs"),
    "RtPerSlot",
    *("RtAdmission", "RtToken"),
    *("JobStartDate", "JobCurrentStartDate", "CompletionDate", "EnteredCurrentStatus"),
    *("ExitCode", "ExitBySignal", "RemoveReason"),
)
"""What is read of a job that ended."""

DIFFER = "its procs differ in their requirements"
"""The problem of a cluster with one promise."""

_OF_OURS = {*REQUEST_ATTRIBUTES, *(name.lower() for name in OURS)} - {"rtruntime"}


@dataclass(frozen=True)
class Queue:
    """What the schedd shows.

    Attributes
    ----------
    procs : Procs
        All procs that are not over.
    ads : dict of int to Record
        By row of `procs`, the ads of those that want something of rtsched or were told something,
        and of parallel jobs.
    requirements : dict of int to CondorRequirements
        By row of `procs`, what those are that want something, and parallel jobs.
    dag : int64[n]
        Key of each proc's task graph; -1: none.
    over : list of Record
        Procs that are over and that their users keep in the queue.
    overran : list of Record
        Procs that were stopped at the end of their run time, and begin anew.
    skipped : int
        Procs whose numbers are too great.
    arrays : dict of int to Array
        Clusters with one promise, by job.
    """

    procs: Procs
    ads: dict[int, Record]
    requirements: dict[int, CondorRequirements]
    dag: NDArray[np.int64]
    over: list[Record]
    overran: list[Record]
    skipped: int = 0
    arrays: dict[int, Array] = field(default_factory=dict)


def queue_of(records: Sequence[Record], facts: CondorFacts) -> Queue:
    """Return the queue that the ads of its jobs make; of `facts` all but who is charged."""
    cluster, proc = _whole(records, "clusterid", -1), _whole(records, "procid", -1)
    known = (cluster >= 0) & (cluster < 1 << 31) & (proc >= 0) & (proc < 1 << PROC_BITS)
    status = _whole(records, "jobstatus", IDLE)
    placed = np.array(["remotehost" in ad for ad in records], np.bool_)
    over = (status == COMPLETED) | ((status == REMOVED) & ~placed)
    order = np.lexsort((proc, cluster))
    order = order[(known & ~over)[order]]
    ads = [records[i] for i in order.tolist()]
    whole = _whole(ads, "jobuniverse", 5) == PARALLEL
    rows = {i: ad for i, ad in enumerate(ads) if whole[i] or not _OF_OURS.isdisjoint(ad)}
    members = members_of(rows, cluster[order].tolist(), facts)
    requirements = _requirements(rows, cluster[order].tolist(), members, facts)
    job = (cluster << PROC_BITS | proc)[order]
    whole[[i for i, needs in requirements.items() if needs.whole]] = True
    whole[[i for some in members.values() for i in some]] = True
    dag = np.maximum(_whole(ads, "dagmanjobid", -1), -1)
    for i, needs in requirements.items():
        dag[i] = needs.dag
    queue = Queue(
        _procs(ads, np.where(whole, job >> PROC_BITS << PROC_BITS, job), facts),
        rows,
        requirements,
        dag,
        [records[i] for i in np.flatnonzero(over & known).tolist()],
        [ad for ad in ads if is_overrun(ad)],
        int((~known).sum()),
    )
    return replace(queue, arrays=arrays_in(queue, members))


def _requirements(
    rows: dict[int, Record],
    cluster: Sequence[int],
    arrays: dict[int, list[int]],
    facts: CondorFacts,
) -> dict[int, CondorRequirements]:
    """Return what those jobs are that want something; procs of one job are all alike."""
    requirements: dict[int, CondorRequirements] = {}
    for some in arrays.values():
        requirements |= dict.fromkeys(some, _requirements_of_array([rows[i] for i in some], facts))
    loads: dict[tuple[int, bool], CondorRequirements] = {}
    procs = Counter(cluster[i] for i, ad in rows.items() if "rtsigma" in ad)
    conditions = defaultdict[int, set[str]](set)
    for i, ad in rows.items():
        if i in requirements or not (needs_rtsched(ad) or ad.get("jobuniverse") == PARALLEL):
            continue
        deferred = ad.get("rtadmission") == DEFERRED
        known = loads.get((cluster[i], deferred)) if "rtsigma" in ad else None
        requirements[i] = known or _requirements_of_ad(ad, facts, deferred)
        if requirements[i].whole and not known:
            requirements[i] = _with_procs(requirements[i], procs[cluster[i]])
        if requirements[i].whole:
            loads[cluster[i], deferred] = requirements[i]
            conditions[cluster[i]] |= {condition_in(ad)} - {""}
    for i, needs in requirements.items():
        if needs.whole and len(conditions[cluster[i]]) > 1:
            requirements[i] = replace(needs, problem=needs.problem or DIFFER)
    return requirements


def _with_procs(needs: CondorRequirements, procs: int) -> CondorRequirements:
    """Return a divisible load of so many procs: its user may have removed some."""
    if needs.problem or procs >= needs.size_max:
        return needs
    if procs < needs.size_min:
        return replace(needs, problem=f"it needs {needs.size_min} procs and has {procs}")
    return replace(needs, size_max=procs)


def _requirements_of_array(ads: Sequence[Record], facts: CondorFacts) -> CondorRequirements:
    """Return the requirements of an array with these procs."""
    waits = [ad for ad in ads if ad.get("jobstatus") in {IDLE, HELD}]
    ad, waiting = (waits or ads)[0], len(waits)
    disk = _real(ads, "requestdisk")
    if not np.isnan(disk).all():
        ad = ad | {"requestdisk": float(np.nanmax(disk))}
    needs = _requirements_of_ad(ad, facts, ad.get("rtadmission") == DEFERRED)
    if len({condition_in(each) for each in waits}) > 1:
        needs = replace(needs, problem=DIFFER)
    if needs.problem:
        return needs
    per_slot = per_slot_of(ad) or fitting_per_slot(ad, facts, len(ads))
    return array_of(ad, needs, facts, waiting, per_slot)


def _requirements_of_ad(ad: Record, facts: CondorFacts, deferred: bool) -> CondorRequirements:
    """Return a job's requirements; no content of a single ad may end a poll."""
    try:
        return requirements_of(ad, facts, fresh=deferred)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        return CondorRequirements(problem=f"its attributes cannot be read ({type(error).__name__})")


def _procs(ads: Sequence[Record], job: NDArray[np.int64], facts: CondorFacts) -> Procs:
    """Return the arrays of procs in the queue."""
    submit, begin = _real(ads, "qdate"), _real(ads, "deferraltime")
    memory, priority = _real(ads, "requestmemory"), _whole(ads, "jobprio", 0)
    own = _whole(ads, "rtjobprio", _MOST + 1)
    held = [ad.get("jobstatus") == HELD for ad in ads]
    limited = [_is_limited(ad) for ad in ads]
    cpus = np.nan_to_num(_real(ads, "requestcpus"), nan=1.0)
    return Procs.build(
        len(ads),
        job=job,
        cluster=_whole(ads, "clusterid", -1),
        proc=_whole(ads, "procid", -1),
        status=_whole(ads, "jobstatus", IDLE).astype(np.int8),
        passing=np.array([h and is_passing(ad) for h, ad in zip(held, ads, strict=True)], np.bool_),
        spools=np.array([h and is_spooling(ad) for h, ad in zip(held, ads, strict=True)], np.bool_),
        universe=_whole(ads, "jobuniverse", 5).astype(np.int8),
        submit=submit,
        begin=np.where(begin > submit, begin, -np.inf),
        start=_real(ads, "jobcurrentstartdate"),
        run_time=np.array([run_time(ad, facts) for ad in ads], np.float64),
        limited=np.array(limited, np.bool_),
        executing=np.array(
            [_executing(ad) if own else math.nan for own, ad in zip(limited, ads, strict=True)],
            np.float64,
        ),
        cpus=np.clip(np.ceil(cpus), 1, _MOST).astype(np.int32),
        memory=np.where(memory > 0, np.clip(memory, 0, _MOST) * MEGABYTE, -1).astype(np.int64),
        gpus=np.clip(np.ceil(np.nan_to_num(_real(ads, "requestgpus"))), 0, _MOST).astype(np.int32),
        disk=_disk_of_jobs(ads, job, facts) if facts.shared else None,
        priority=np.clip(priority, -_MOST, _MOST).astype(np.int32),
        own_priority=np.clip(own, -_MOST, _MOST).astype(np.int32),
        reordered=own <= _MOST,
        user=_texts(ads, "owner"),
        submitter=_submitters(ads, facts),
        account=_texts(ads, "acctgroup"),
        name=[name_in(ad) for ad in ads],
        slot=[_slots(ad) for ad in ads],
        admission=_texts(ads, "rtadmission"),
        node_set=_texts(ads, "rtnodeset"),
        rank_set=_texts(ads, "rtrankset"),
    )


_MOST = (1 << 31) - 1


def _disk_of_jobs(
    ads: Sequence[Record], job: NDArray[np.int64], facts: CondorFacts
) -> NDArray[np.int64]:
    """Return the bytes of disk that each proc's job takes for a proc, the most of any, int64[n]."""
    kilobytes = np.clip(np.nan_to_num(_real(ads, "requestdisk")), 0.0, _MOST_KILOBYTES)
    found = np.ceil(kilobytes).astype(np.int64) * KILOBYTE
    most, place = np.zeros_like(found), np.unique(job, return_inverse=True)[1].ravel()
    np.maximum.at(most, place, found)
    return facts.parts.rounded_disk(most[place])


_MOST_KILOBYTES = 2.0**50


def _is_limited(ad: Record) -> bool:
    """Return whether the run time of a job that wants no promise is a limit of HTCondor's own."""
    stated = ad.get("rtruntime")
    own = (ad.get("allowedexecuteduration"), ad.get("allowedjobduration"))
    return stated is not None and stated in own and "rtdeadline" not in ad and "rtlimit" not in ad


def _executing(ad: Record) -> float:
    """Return since when a job that HTCondor limits executes, inf: not yet, nan: that is no matter.

    Its files come first, and AllowedExecuteDuration does not count that.
    """
    if ad.get("rtruntime") != ad.get("allowedexecuteduration"):
        return math.nan
    start, executes = (number(ad, name) for name in ("jobcurrentstartdate", _EXECUTES))
    return executes if executes >= start else math.inf


_EXECUTES = "jobcurrentstartexecutingdate"


def _submitters(ads: Sequence[Record], facts: CondorFacts) -> list[str]:
    """Return who is charged for each job."""
    keys = [(ad.get("user"), ad.get("owner"), ad.get("accountinggroup")) for ad in ads]
    first = dict(zip(reversed(keys), reversed(ads), strict=True))
    names = {key: submitter_of(ad, facts) for key, ad in first.items()}
    return [names[key] for key in keys]


def _slots(ad: Record) -> str | None:
    """Return the slots that a proc runs on, with commas between them."""
    if ad.get("jobuniverse") == PARALLEL and "remotehost" in ad:
        return _text(ad, "allremotehosts") or _text(ad, "remotehost")
    return _text(ad, "remotehost")


def _text(ad: Record, name: str) -> str | None:
    value = ad.get(name)
    return value if type(value) is str and value else None


def _texts(ads: Sequence[Record], name: str) -> list[str | None]:
    return [_text(ad, name) for ad in ads]


def _whole(ads: Sequence[Record], name: str, missing: int) -> NDArray[np.int64]:
    """Return a whole number of each ad; `missing` where it has none."""
    values: list[Any] = [ad.get(name) for ad in ads]
    return np.array(
        [value if type(value) is int and abs(value) < 1 << 62 else missing for value in values],
        np.int64,
    )


def _real(ads: Sequence[Record], name: str) -> NDArray[np.float64]:
    """Return a number of each ad; nan where it has none."""
    values: list[Any] = [ad.get(name) for ad in ads]
    return np.array(
        [value if type(value) in (int, float) else math.nan for value in values], np.float64
    )
