"""Jobs whose users allow a shorter time limit (`--time-min`): the longest that is promised.

Slurm shortens such a limit to fit the deadline by the time of submission alone, and when it starts
the job. Here it is as long as the plan leaves room for, and set at once.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import span
from rtsched.model.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.adapters.live import Submission
    from rtsched.daemon.admission import AdmissionResult
    from rtsched.daemon.site import Site

TRIALS = 5
"""After the longest and the shortest limit, so many between them are tried."""


def judged_by_limits(
    judge: Callable[[Site, Submission, float], AdmissionResult],
    site: Site,
    submission: Submission,
    now: float,
) -> AdmissionResult:
    """Return what becomes of a submission with the longest limit that it can be promised.

    Parameters
    ----------
    judge : callable
        Judges a submission.
    site : Site
        As it is.
    submission : Submission
        With the shortest and the longest time limit that its user allows.
    now : float
        Seconds since the epoch.
    """
    jobs, (shortest, limit) = submission.jobs, submission.limits
    longest, deadline = float(jobs.wall_time[0]), float(jobs.deadline[0])
    if not shortest < limit or not math.isfinite(deadline) or submission.problem:
        return judge(site, submission, now)
    most = math.floor((limit - shortest) / MINUTE + 1e-6)
    room = deadline - max(now, float(jobs.begin[0]))
    least = min(max(math.ceil((longest - room) / MINUTE - 1e-6), 0), most)

    def tried(minutes: int) -> AdmissionResult:
        wall = jobs.replace(wall_time=np.array([longest - MINUTE * minutes]))
        result = judge(site, replace(submission, jobs=wall), now)
        return _with_limit(result, limit - MINUTE * minutes, shorter=minutes > 0)

    result = tried(least)
    if result.verdict != "reject" or least == most:
        return result
    found, low, high = tried(most), least, most
    if found.verdict == "reject":
        return found
    for _ in range(TRIALS):
        middle = (low + high) // 2
        if middle in {low, high}:
            break
        if (result := tried(middle)).verdict == "reject":
            low = middle
        else:
            found, high = result, middle
    return found


def _with_limit(result: AdmissionResult, limit: float, *, shorter: bool) -> AdmissionResult:
    """Return a result with the time limit that the job gets, seconds; a promise says a shorter one.

    So does one that is held until the next poll, which judges it with that limit.
    """
    reply = result.reply
    if not (reply.token or reply.deferred):
        return result
    text = f"{reply.text}; time limit set to {span(limit)} (--time-min)" if shorter else reply.text
    return replace(result, reply=replace(reply, text=text, limit=limit))
