"""Clusters with one promise: arrays, whose procs run in rounds on the slots that they are given.

A cluster of several procs with a deadline is one job of the models. Its first proc brings the
promise; `RtPerSlot` then tells on every proc that the cluster is an array, and how many of its
procs run on a row of the cluster at a time. When it may start, `RtSlots` names its rows, each slot
as often as the array has rows of it. From then on it counts as one job that runs there, until no
proc waits or runs.

Procs of an array are alike: the ClassAd library turns a cluster away whose procs are not.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.adapters.condor.expressions import LIMITS
from rtsched.adapters.condor.ids import PROC_BITS
from rtsched.adapters.condor.matching import condition_in
from rtsched.adapters.condor.pool_state import (
    DEFERRED,
    HELD,
    IDLE,
    UNJUDGED,
    Array,
    has_slot,
    slot_names,
)
from rtsched.adapters.condor.requirements import (
    PARALLEL,
    CondorRequirements,
    is_late_materialized,
    is_whole,
    nodes_for,
    part_of,
    request_of,
    size_of,
)
from rtsched.logs.classads import number, text
from rtsched.model.array_rounds import array_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.adapters.condor.queue import Queue
    from rtsched.logs.classads import Record

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


class Begun(NamedTuple):
    """An array that has begun: when, and by when it ends as it was planned; s since the epoch."""

    start: float
    end: float


@dataclass
class _Seen:
    """What is remembered of an array: its first start, its planned end, when it ran last."""

    start: float
    end: float
    last: float


class StartedArrays:
    """Which arrays have begun, from poll to poll.

    One has as long as its procs run, or are about to start on its slots. If none starts within the
    time that a start may take, it waits, and is planned anew.
    """

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._first = True

    def update(self, queue: Queue, facts: CondorFacts, now: float) -> dict[int, Begun]:
        """Return those that have begun; `now` in seconds since the epoch."""
        seen: dict[int, _Seen] = {}
        for job, array in queue.arrays.items():
            before = self._seen.get(job)
            last = max(before.last if before else -math.inf, array.bound)
            if array.runs or (self._first and array.slots):
                last = now
            if not array.runs and not (
                array.slots and array.waits and last + facts.start_delay >= now
            ):
                continue
            seen[job] = before or self._began(queue, array, facts, min(array.bound, now), now)
            seen[job].last = last
        self._seen, self._first = seen, False
        return {job: Begun(each.start, each.end) for job, each in seen.items()}

    def _began(
        self, queue: Queue, array: Array, facts: CondorFacts, start: float, now: float
    ) -> _Seen:
        """Return what is to be remembered of an array that has begun."""
        start = start if math.isfinite(start) else now
        row = (array.waits or array.runs)[0]
        limit = float(queue.procs.run_time[row] + queue.procs.vacating[row]) + facts.margin
        rounds = -(-(len(array.waits) + len(array.runs)) // max(array.at_a_time, 1))
        return _Seen(start, start + rounds * limit, now)


def free_places(array: Array, on: Sequence[str]) -> Counter[str]:
    """Return how many more procs of an array may run on each of its slots; `on`: where some do."""
    room = Counter({slot: rows * array.per_slot for slot, rows in Counter(array.slots).items()})
    room.subtract(on)
    return Counter({slot: count for slot, count in room.items() if count > 0})
