"""Completions of jobs: by the schedd's history, and by ads of those still in the queue.

Source: HTCondor's manual, "Job ClassAd Attributes".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.ids import (
    PROC_BITS,
    cluster_of,
    job_id,
    own_cluster,
    proc_of,
    schedd_of,
)
from rtsched.adapters.condor.job_ads import number_of
from rtsched.adapters.condor.pool_state import COMPLETED, DEFERRED, JUDGED, REMOVED, UNJUDGED
from rtsched.adapters.condor.queue import OF_ENDS
from rtsched.adapters.condor.requirements import OVER_TIME, PARALLEL, is_overrun
from rtsched.adapters.live import Completions, CompletionStatus
from rtsched.errors import AdapterError
from rtsched.logs.classads import number, text
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.adapters.condor.pool import Pool
    from rtsched.adapters.condor.schedd import Schedd
    from rtsched.logs.classads import Record

AT_A_TIME = 1000
"""Jobs that are asked for by number at once."""

MOST = 100_000
"""Records that one search may return."""

SLACK_S = 600.0
"""Seconds by which a job may be put into the history after others that ended later."""


def find_completions(pool: Pool, jobs: Sequence[int], since: float = -math.inf) -> Completions:
    """Return how jobs ended that left the queue, of those that the histories still have.

    A history can have millions of records; the last ones are read first, and no more than needed.
    Jobs of a schedd that does not answer are `UNANSWERED`, if another one does.

    Parameters
    ----------
    pool : Pool
        Whose histories are searched.
    jobs : sequence of int
        Ids.
    since : float
        None of them ended before, seconds since the epoch; -inf: not known.

    Raises
    ------
    AdapterError
        If no schedd answers.
    """
    stop, found, unanswered = stop_at(since), [Completions.build(0)], list[int]()
    for at, schedd in pool.schedds.items():
        of_schedd = sorted(job for job in jobs if schedd_of(job) == at)
        try:
            found.append(_completions_at(schedd, of_schedd, stop))
        except AdapterError:
            if len(pool.schedds) == 1:
                raise
            unanswered += of_schedd
    status = np.full(len(unanswered), CompletionStatus.UNANSWERED, np.int8)
    rows = Completions.build(len(unanswered), job=np.array(unanswered, np.int64), status=status)
    return Completions.joined([*found, rows])


def _completions_at(schedd: Schedd, jobs: Sequence[int], stop: str) -> Completions:
    """Return how jobs of a schedd ended, in order of their ids."""
    found = []
    for part in in_parts(jobs):
        found += schedd.history(asking_for(part), OF_ENDS, len(part), stop)
    whole = [ad for ad in found if _is_whole(ad)]
    if count := _others(whole):
        clusters = ", ".join(str(own_cluster(cluster_of(_job(ad)))) for ad in whole)
        rest = f"member(ClusterId, {{{clusters}}}) && ProcId > 0"
        found += schedd.history(rest, OF_ENDS, count, stop)
    ended = completions_of(found)
    return ended.take(are_in(ended.job, np.array(jobs, np.int64)))


def in_parts(jobs: Sequence[int]) -> list[Sequence[int]]:
    """Return jobs in parts that can be asked for at once."""
    return [jobs[at : at + AT_A_TIME] for at in range(0, len(jobs), AT_A_TIME)]


def asking_for(jobs: Sequence[int]) -> str:
    """Return a constraint that finds the procs of these numbers at their schedd."""
    own = ", ".join(str(job_id(own_cluster(cluster_of(job)), proc_of(job))) for job in jobs)
    return f"member(ClusterId * {1 << PROC_BITS} + ProcId, {{{own}}})"


def stop_at(since: float) -> str:
    """Return the job at which a search ends: all before it ended earlier than `since`.

    Jobs are put into the history when they leave the queue, and their users may have them stay
    there for long after their ends.
    """
    if not math.isfinite(since):
        return ""
    return (
        f"JobStatus == {COMPLETED} && EnteredCurrentStatus < {math.floor(since - SLACK_S)} && "
        '(LeaveJobInQueue is undefined || unparse(LeaveJobInQueue) == "false")'
    )


def _is_whole(ad: Record) -> bool:
    """Return whether all procs of a job's cluster are one job in the models."""
    return "rtsigma" in ad or ad.get("jobuniverse") == PARALLEL or _is_of_array(ad)


def _is_of_array(ad: Record) -> bool:
    """Return whether a proc was one of an array with a promise."""
    verdict = text(ad, "rtadmission")
    return type(ad.get("rtperslot")) is int and verdict not in {None, UNJUDGED}


def _others(whole: Sequence[Record]) -> int:
    """Return how many more procs the clusters of some first procs have, at the most."""
    counts = (number(ad, "totalsubmitprocs") - 1.0 for ad in whole)
    return int(sum(min(max(count, 0.0), MOST) if count == count else MOST for count in counts))


def completions_of(records: Iterable[Record]) -> Completions:
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
    return Completions.build(
        len(jobs),
        job=np.array(jobs, np.int64),
        start=np.array([np.fmin.reduce([_start(ad) for ad in ads]) for ads in parts], np.float64),
        end=np.array([max(_end(ad) for ad in ads) for ads in parts], np.float64),
        status=np.array([_status_of_job(ads) for ads in parts], np.int8),
        token=[next(filter(None, map(token_of, ads)), None) for ads in parts],
    )


def started_of(records: Iterable[Record]) -> list[int]:
    """Return the procs that ever ran, cluster and proc in one."""
    numbers = [number_of(ad) for ad in records if not math.isnan(_start(ad))]
    return [job for job in numbers if job >= 0]


def _status_of_job(ads: Sequence[Record]) -> CompletionStatus:
    """Return how a job of these procs ended.

    Of an array it was promised that all procs run in time, whatever comes of them: if one did it
    has completed, unless somebody removed all.
    """
    if not _is_of_array(ads[0]):
        return max(map(_status, ads), key=_WORSE.index)
    if any(ad.get("jobstatus") == COMPLETED for ad in ads):
        return CompletionStatus.COMPLETED
    return min(map(_status, ads), key=_BETTER.index)


_BETTER = (CompletionStatus.COMPLETED, CompletionStatus.OWN_LIMIT, CompletionStatus.FAILED)
_WORSE = (CompletionStatus.COMPLETED, CompletionStatus.FAILED, CompletionStatus.OWN_LIMIT)


def token_of(ad: Record) -> str | None:
    """Return the token of the admission that a job carries, None if it carries none.

    START reads RtAdmission, so it must not differ from job to job: each would be negotiated for by
    itself.
    """
    token = text(ad, "rttoken") if text(ad, "rtadmission") == JUDGED else None
    return None if token in {DEFERRED, UNJUDGED} else token


def _job(ad: Record) -> int:
    """Return the number of a job in the models; -1 if the ad makes no sense."""
    job = number_of(ad)
    return job_id(cluster_of(job), 0) if job >= 0 and _is_whole(ad) else job


def _unused(ad: Record) -> bool:
    """Return whether a chunk was removed by us since it was not needed."""
    ours = (text(ad, "removereason") or "").startswith("rtsched:")
    return "rtsigma" in ad and ours and math.isnan(_start(ad))


def _start(ad: Record) -> float:
    return number(ad, "jobcurrentstartdate", "jobstartdate")


def _end(ad: Record) -> float:
    completed = number(ad, "completiondate")
    return completed if completed > 0 else number(ad, "enteredcurrentstatus")


def _status(ad: Record) -> CompletionStatus:
    if is_overrun(ad):
        return CompletionStatus.OWN_LIMIT
    if ad.get("jobstatus") == REMOVED:
        timed = (text(ad, "removereason") or "").startswith(OVER_TIME)
        return CompletionStatus.OWN_LIMIT if timed else CompletionStatus.FAILED
    good = number(ad, "exitcode") == 0 and ad.get("exitbysignal") is not True
    return (
        CompletionStatus.COMPLETED
        if ad.get("jobstatus") == COMPLETED and good
        else CompletionStatus.FAILED
    )
