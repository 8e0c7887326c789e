"""How jobs ended: by the schedd's history, and by ads of jobs that are over and still in the queue.

Source: HTCondor's manual, "Job ClassAd Attributes".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.classads import number, text
from rtsched.adapters.condor.ids import PROC_BITS, cluster_of, job_id, proc_of
from rtsched.adapters.condor.queue import OF_ENDS, OVER_TIME, is_overrun
from rtsched.adapters.condor.shape import PARALLEL
from rtsched.adapters.condor.view import COMPLETED, JUDGED, PARKED, REMOVED, UNJUDGED
from rtsched.adapters.live import Ended, Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.adapters.classads import Record
    from rtsched.adapters.condor.pool import Pool

AT_A_TIME = 1000
"""Jobs that the history is searched for at once."""

MOST = 100_000
"""Records that one search may return."""


def past(pool: Pool, jobs: Sequence[int]) -> Ended:
    """Return how jobs ended that left the queue, of those that the history still has.

    Raises
    ------
    AdapterError
        If the schedd does not answer.
    """
    ordered = sorted(jobs)
    parts = [ordered[at : at + AT_A_TIME] for at in range(0, len(ordered), AT_A_TIME)]
    found = [ad for part in parts for ad in pool.history(asking_for(part), OF_ENDS, MOST)]
    ended = endings_of(found)
    return ended.take(np.isin(ended.job, np.array(ordered, np.int64)))


def asking_for(jobs: Sequence[int]) -> str:
    """Return a constraint that finds jobs, and some others of their clusters, in few words.

    A job of proc 0 may be all procs of its cluster.
    """
    clusters = ", ".join(map(str, sorted({cluster_of(job) for job in jobs})))
    procs = [proc_of(job) for job in jobs]
    one = f"(ProcId >= {min(procs)} && ProcId <= {max(procs)})"
    whole = f"RtSigma =!= undefined || JobUniverse == {PARALLEL}"
    return f"member(ClusterId, {{{clusters}}}) && ({one} || {whole})"


def endings_of(records: Iterable[Record]) -> Ended:
    """Return the ends of jobs, one row each, in order of their ids.

    A job of several procs starts with the first of them and ends with the last. Procs that we
    removed before they started, since the plan did without them, do not count.
    """
    procs: dict[int, list[Record]] = {}
    for ad in records:
        job = _job(ad)
        if job >= 0 and not _unused(ad):
            procs.setdefault(job, []).append(ad)
    jobs = sorted(procs)
    parts = [procs[job] for job in jobs]
    return Ended.build(
        len(jobs),
        job=np.array(jobs, np.int64),
        start=np.array([_least([_start(ad) for ad in ads]) for ads in parts], np.float64),
        end=np.array([max(_end(ad) for ad in ads) for ads in parts], np.float64),
        ending=np.array([max(map(_ending, ads), key=_WORSE.index) for ads in parts], np.int8),
        token=[next(filter(None, map(token_of, ads)), None) for ads in parts],
    )


def started_of(records: Iterable[Record]) -> list[int]:
    """Return the procs that ever ran, cluster and proc in one."""
    ran = [ad for ad in records if not math.isnan(_start(ad)) and _job(ad) >= 0]
    return [job_id(int(number(ad, "clusterid")), int(number(ad, "procid"))) for ad in ran]


_WORSE = (Ending.COMPLETED, Ending.FAILED, Ending.OWN_LIMIT)


def token_of(ad: Record) -> str | None:
    """Return the token of the admission that a job carries, None if it carries none.

    START reads RtAdmission, so it must not differ from job to job: each would be negotiated for by
    itself.
    """
    token = text(ad, "rttoken") if text(ad, "rtadmission") == JUDGED else None
    return None if token in {PARKED, UNJUDGED} else token


def _job(ad: Record) -> int:
    """Return the number of a job in the models; -1 if the ad makes no sense."""
    cluster, proc = number(ad, "clusterid"), number(ad, "procid")
    if not (0 <= cluster < 1 << 31 and 0 <= proc < 1 << PROC_BITS):
        return -1
    whole = "rtsigma" in ad or ad.get("jobuniverse") == PARALLEL
    return job_id(int(cluster), 0 if whole else int(proc))


def _unused(ad: Record) -> bool:
    """Return whether a chunk was removed by us since it was not needed."""
    ours = (text(ad, "removereason") or "").startswith("rtsched:")
    return "rtsigma" in ad and ours and math.isnan(_start(ad))


def _start(ad: Record) -> float:
    return number(ad, "jobcurrentstartdate", "jobstartdate")


def _end(ad: Record) -> float:
    completed = number(ad, "completiondate")
    return completed if completed > 0 else number(ad, "enteredcurrentstatus")


def _ending(ad: Record) -> Ending:
    if is_overrun(ad):
        return Ending.OWN_LIMIT
    if ad.get("jobstatus") == REMOVED:
        timed = (text(ad, "removereason") or "").startswith(OVER_TIME)
        return Ending.OWN_LIMIT if timed else Ending.FAILED
    good = number(ad, "exitcode") == 0 and ad.get("exitbysignal") is not True
    return Ending.COMPLETED if ad.get("jobstatus") == COMPLETED and good else Ending.FAILED


def _least(values: Sequence[float]) -> float:
    """Return the least of those that are known; nan if none is."""
    return min((value for value in values if not math.isnan(value)), default=math.nan)
