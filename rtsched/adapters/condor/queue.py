"""The jobs of a queue: procs as arrays, and the requirements of those that rtsched plans.

A cluster of several procs with a deadline is one job of the models, an array, whose procs run in
rounds on the slots that they are given. Its first proc brings the promise; `RtPerSlot` then tells
on every proc that the cluster is an array, and how many of its procs run on a row of the cluster at
a time. When it may start, `RtSlots` names its rows, each slot as often as the array has rows of it.
From then on it counts as one job that runs there, until no proc waits or runs. Its procs are alike:
the ClassAd library turns a cluster away whose procs are not.

Source: HTCondor's manual, "Job ClassAd Attributes".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.expressions import LIMITS
from rtsched.adapters.condor.ids import CLUSTERS, PROC_BITS
from rtsched.adapters.condor.job_ads import reals, with_domain
from rtsched.adapters.condor.matching import condition_in
from rtsched.adapters.condor.pool_state import (
    COMPLETED,
    DEFERRED,
    HELD,
    IDLE,
    REMOVED,
    UNJUDGED,
    Array,
    Procs,
    has_slot,
    slot_names,
)
from rtsched.adapters.condor.requirements import (
    KILOBYTE,
    OURS,
    PARALLEL,
    REQUEST_ATTRIBUTES,
    CondorRequirements,
    is_late_materialized,
    is_whole,
    needs_rtsched,
    nodes_for,
    part_of,
    request_of,
    requirements_of,
    size_of,
)
from rtsched.logs.classads import number, text
from rtsched.model.jobs import array_width
from rtsched.model.table import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.adapters.condor.job_ads import Ads, JobAds
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
    *("AllowedExecuteDuration", "AllowedJobDuration", "JobMaxVacateTime", "DAGManJobId"),
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


def queue_of(jobs: JobAds, facts: CondorFacts) -> Queue:
    """Return the queue that the ads of its procs make; of `facts` all but who is charged."""
    ads, proc = jobs.ads, jobs.proc
    cluster, status = ads.cluster[jobs.kind], ads.status[jobs.kind]
    known = (cluster >= 0) & (cluster < CLUSTERS) & (proc >= 0) & (proc < 1 << PROC_BITS)
    over = (status == COMPLETED) | ((status == REMOVED) & ~ads.placed[jobs.kind])
    order = np.lexsort((proc, cluster))
    order = order[(known & ~over)[order]]
    kind, cluster, job = jobs.kind[order], cluster[order], (cluster << PROC_BITS | proc)[order]
    rows = {i: jobs.records[kind[i]] for i in np.flatnonzero(ads.ours[kind]).tolist()}
    members = members_of(rows, cluster.tolist(), facts)
    requirements = _requirements(rows, cluster.tolist(), members, facts)
    whole = ads.universe[kind] == PARALLEL
    whole[[i for i, needs in requirements.items() if needs.whole]] = True
    whole[[i for some in members.values() for i in some]] = True
    dag = ads.dag[kind]
    for i, needs in requirements.items():
        dag[i] = needs.dag
    job = np.where(whole, job >> PROC_BITS << PROC_BITS, job)
    queue = Queue(
        _procs(ads, kind, proc[order], job, facts),
        rows,
        requirements,
        dag,
        [jobs.whole(i) for i in np.flatnonzero(over & known).tolist()],
        [jobs.whole(i) for i in order[ads.overrun[kind]].tolist()],
        int((~known).sum()),
    )
    return replace(queue, arrays=arrays_in(queue, members))


def _requirements(
    rows: dict[int, Record],
    cluster: Sequence[int],
    arrays: dict[int, list[int]],
    facts: CondorFacts,
) -> dict[int, CondorRequirements]:
    """Return what those jobs are that want something; procs of one job, or ad, are all alike."""
    requirements: dict[int, CondorRequirements] = {}
    for some in arrays.values():
        requirements |= dict.fromkeys(some, _requirements_of_array([rows[i] for i in some], facts))
    alike: dict[object, CondorRequirements] = {}
    procs = Counter(cluster[i] for i, ad in rows.items() if "rtsigma" in ad)
    conditions = defaultdict[int, set[str]](set)
    for i, ad in rows.items():
        if i in requirements or not (needs_rtsched(ad) or ad.get("jobuniverse") == PARALLEL):
            continue
        deferred = ad.get("rtadmission") == DEFERRED
        is_load = "rtsigma" in ad
        key: object = (cluster[i], deferred) if is_load else id(ad)
        known = alike.get(key)
        requirements[i] = known or _requirements_of_ad(ad, facts, deferred)
        if requirements[i].whole and not known:
            requirements[i] = _with_procs(requirements[i], procs[cluster[i]])
        if requirements[i].whole or not is_load:
            alike[key] = requirements[i]
        if requirements[i].whole:
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
    disk = reals(ads, "requestdisk")
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


def _procs(
    ads: Ads,
    kind: NDArray[np.int64],
    proc: NDArray[np.int64],
    job: NDArray[np.int64],
    facts: CondorFacts,
) -> Procs:
    """Return the arrays of procs in the queue; `kind` is which of the different ads each has."""
    procs = ads.take(kind)
    texts = {name: _in_use(procs.column(name), ads.names(name)) for name in _TEXTS}
    codes, names = texts["submitter"]
    charged, charged_names = encode(with_domain(name, facts.domain) for name in names)
    texts["submitter"] = charged[codes], charged_names
    own = {name: procs.column(name) for name in Procs.columns() if name in procs.given()}
    run_time = procs.run_time
    return Procs.build(
        len(kind),
        names={name: names for name, (_, names) in texts.items()},
        **own
        | {name: codes for name, (codes, _) in texts.items()}
        | {
            "job": job,
            "proc": proc,
            "run_time": np.where(np.isnan(run_time), facts.run_time, run_time),
            "vacating": facts.beyond(procs.vacate_time),
            "disk": _disk_of_jobs(procs.request_disk, job, facts) if facts.shared else None,
        },
    )


_TEXTS = ("user", "submitter", "account", "name", "slot", "admission", "node_set", "rank_set")


def _in_use(
    codes: NDArray[np.int32], names: Sequence[str]
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the codes of texts, and the texts, of which all are in use; -1 stays -1."""
    used = np.zeros(len(names) + 1, np.bool_)
    used[codes] = True
    used[-1] = False
    place = np.append(np.cumsum(used[:-1], dtype=np.int32) - 1, np.int32(-1)).astype(np.int32)
    return place[codes], tuple(names[at] for at in np.flatnonzero(used).tolist())


def _disk_of_jobs(
    kilobytes: NDArray[np.float64], job: NDArray[np.int64], facts: CondorFacts
) -> NDArray[np.int64]:
    """Return the bytes of disk that each proc's job takes for a proc, the most of any, int64[n]."""
    kilobytes = np.clip(np.nan_to_num(kilobytes), 0.0, _MOST_KILOBYTES)
    found = np.ceil(kilobytes).astype(np.int64) * KILOBYTE
    most, place = np.zeros_like(found), np.unique(job, return_inverse=True)[1].ravel()
    np.maximum.at(most, place, found)
    return facts.parts.rounded_disk(most[place])


_MOST_KILOBYTES = 2.0**50


# --- arrays ---------------------------------------------------------------------------------------

WHOLE_CLUSTER = "wholecluster"
"""What the ClassAd library says where it can take an answer on the whole cluster."""


def procs_of(ad: Record, facts: CondorFacts) -> int:
    """Return how many procs the array has that a proc may be of; 0: it is a job by itself."""
    count = number(ad, "totalsubmitprocs")
    alone = is_whole(ad) or ad.get("jobuniverse") == PARALLEL or is_late_materialized(ad)
    if not facts.arrays or alone or not math.isfinite(number(ad, "rtdeadline")):
        return 0
    return int(min(count, 1 << PROC_BITS)) if count > 1 else 0


def submitted_array(
    ad: Record, needs: CondorRequirements, facts: CondorFacts
) -> CondorRequirements:
    """Return the requirements of the array whose first proc is submitted; `needs`: of any other.

    `needs` are those of the proc.
    """
    procs = procs_of(ad, facts) if ad.get(WHOLE_CLUSTER) is True else 0
    if not procs or number(ad, "procid") != 0 or needs.problem:
        return needs
    return array_of(ad, needs, facts, procs, fitting_per_slot(ad, facts, procs))


def array_of(
    ad: Record, needs: CondorRequirements, facts: CondorFacts, procs: int, per_slot: int
) -> CondorRequirements:
    """Return the requirements of an array.

    Parameters
    ----------
    ad, needs
        Of one of its procs.
    facts : CondorFacts
        The slots.
    procs : int
        How many wait.
    per_slot : int
        How many run on a row at a time.
    """
    part = part_of(ad, facts, per_slot) if facts.shared else needs.partition
    nodes = nodes_for(ad, part, facts, 1, per_slot)
    per_slot, most = array_width(procs, per_slot, 0, nodes)
    words = request_of(ad, part, facts).words
    return replace(needs, partition=part, node_request=words).as_array(procs, per_slot, most)


def fitting_per_slot(ad: Record, facts: CondorFacts, procs: int) -> int:
    """Return how many procs of an array run on a slot at a time.

    As few as have most of them run at once. Where jobs do not share slots that is one on each row.
    """
    if not facts.shared:
        return 1
    cpus = max(size_of(ad).cpus, 1)
    best, most = 1, 0
    for each in range(1, min(procs, facts.parts.cores[-1] // cpus) + 1):
        nodes = nodes_for(ad, part_of(ad, facts, each), facts, jobs=each)
        together = min(nodes * each, procs)
        if together > most:
            best, most = each, together
    return best


def per_slot_of(ad: Record) -> int:
    """Return how many procs of a proc's array run on a row at a time; 0: it is of none."""
    value = ad.get("rtperslot")
    return value if type(value) is int and 0 < value < 1 << PROC_BITS else 0


def members_of(
    rows: Mapping[int, Record], cluster: Sequence[int], facts: CondorFacts
) -> dict[int, list[int]]:
    """Return the procs of each array, by cluster.

    Those of a cluster that was promised something; and those that are all to be evaluated, since
    nobody could when they were submitted, if they are alike.

    Parameters
    ----------
    rows : mapping of int to Record
        Ads of procs, by their rows in the queue.
    cluster : sequence of int
        ClusterId by row.
    facts : CondorFacts
        The slots.
    """
    marked, parked = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for row, ad in rows.items():
        if per_slot_of(ad):
            marked[cluster[row]].append(row)
        elif ad.get("rtadmission") == DEFERRED and procs_of(ad, facts):
            parked[cluster[row]].append(row)
    found = {
        each: some
        for each, some in marked.items()
        if any(text(rows[row], "rtadmission") not in {None, UNJUDGED} for row in some)
    }
    for each, some in parked.items():
        ads = [rows[row] for row in some]
        if each not in marked and len(some) == procs_of(ads[0], facts) and _are_alike(ads):
            found[each] = some
    return found


_COMMON = (
    *("requestcpus", "requestmemory", "requestgpus", "jobuniverse", "owner", "acctgroup"),
    *("accountinggroup", "deferraltime", "allowedexecuteduration", "allowedjobduration"),
    *("requiregpus", *(name.lower() for name in LIMITS)),
)


def _are_alike(ads: Sequence[Record]) -> bool:
    """Return whether procs differ in nothing that a promise stands on, and none is due earlier."""
    first = ads[0]
    names = {*_COMMON, *(name for ad in ads for name in ad if name.startswith("rt"))}
    names -= {"rtdeadline", "rtwhy", "rtmessage", "rtjobprio"}
    due, condition = number(first, "rtdeadline"), condition_in(first)
    return all(
        number(ad, "rtdeadline") >= due
        and all(ad.get(name) == first.get(name) for name in names)
        and condition_in(ad) == condition
        for ad in ads
    )


def arrays_in(queue: Queue, members: Mapping[int, list[int]]) -> dict[int, Array]:
    """Return the arrays of a queue by job; `members` are their rows by cluster."""
    found, runs = {}, has_slot(queue.procs)
    waits = np.isin(queue.procs.status, (IDLE, HELD))
    for cluster, some in members.items():
        ads = [queue.ads[row] for row in some]
        slots = next((value for ad in ads if (value := text(ad, "rtslots"))), None)
        bound = [number(ad, "rtplannedstart") for ad in ads]
        found[cluster << PROC_BITS] = Array(
            per_slot=queue.requirements[some[0]].tasks_per_node or 1,
            slots=tuple(slot_names(slots)),
            waits=tuple(row for row in some if waits[row]),
            runs=tuple(row for row in some if runs[row]),
            bound=max((each for each in bound if math.isfinite(each)), default=-math.inf),
        )
    return found
