"""Jobs that were given slots: about to start, or unable to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.job_ads import JobAds
from rtsched.adapters.condor.pool_state import DEFERRAL_S, Procs, work_began
from rtsched.adapters.condor.queue import Queue, queue_of
from rtsched.adapters.condor.starting import StartFailureTracker, bound_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_800_000_000.0
FACTS = CondorFacts(margin=60.0, start_delay=20.0)
ONE = {"clusterid": 7, "procid": 0, "jobstatus": 1, "jobuniverse": 5, "owner": "alice"}
BOUND = ONE | {"rtadmission": "tok", "rtdeadline": NOW + 900, "rtruntime": 60, "rtnodeset": "s1"}
OTHER = ONE | {"clusterid": 8, "jobstatus": 2, "remotehost": "s1", "rtruntime": 60}


def queued(ads: Sequence[Any]) -> Queue:
    """Return the queue that ads make."""
    return queue_of(JobAds.of(ads), FACTS)


def missed(
    start_failures: StartFailureTracker, start: float, now: float, *others: dict[str, object]
) -> list[int]:
    """Return the clusters that cannot start, by a poll of a job that was to start at `start`."""
    queue = queued([BOUND | {"rtplannedstart": start}, *others])
    return [job >> 20 for job in start_failures.update(queue, FACTS, now)]


def test_one_start_may_fail() -> None:
    """A job that misses one start is planned anew; the second one in a row is too many."""
    start_failures = StartFailureTracker()
    assert missed(start_failures, NOW, NOW + 10) == []
    assert missed(start_failures, NOW, NOW + 21) == []
    assert missed(start_failures, NOW, NOW + 30) == []
    assert missed(start_failures, NOW + 60, NOW + 70) == []
    assert missed(start_failures, NOW + 60, NOW + 81) == [7]


def test_the_next_start_is_planned_on_other_slots() -> None:
    """The machine may be dead; it is not if somebody runs there, or if the job starts nowhere."""
    start_failures = StartFailureTracker()
    missed(start_failures, NOW, NOW + 10)
    assert start_failures.shunned == set()
    missed(start_failures, NOW, NOW + 21)
    assert start_failures.shunned == {"s1"}
    missed(start_failures, NOW + 30, NOW + 40, OTHER)
    assert start_failures.shunned == set()
    missed(start_failures, NOW, NOW + 41)
    assert missed(start_failures, NOW + 60, NOW + 81) == [7]
    assert start_failures.shunned == set()
    other = StartFailureTracker()
    missed(other, NOW, NOW + 21)
    missed(other, NOW + 400, NOW + 401)
    assert other.shunned == set(), "after some minutes it may be back"


def test_a_start_that_was_kept_is_not_missed() -> None:
    """A job that began as planned, and waits again since it was stopped, is to be planned anew."""
    start_failures = StartFailureTracker()
    stopped = BOUND | {"rtplannedstart": NOW, "jobcurrentstartdate": NOW + 3}
    for later in (5, 21, 60):
        queue = queued([stopped])
        assert not start_failures.update(queue, FACTS, NOW + later)
        assert start_failures.shunned == set()
        assert bound_of(queue, FACTS, NOW + later) == {}
    again = queued([stopped | {"rtplannedstart": NOW + 30}])
    assert list(bound_of(again, FACTS, NOW + 31)) == [7 << 20]
    assert bound_of(again, FACTS, NOW + 31, {"s1"}) == {}, "its slot takes no jobs any more"


def test_a_job_that_fits_is_not_to_blame() -> None:
    """Where its own requirements hold, others keep it from starting, and it begins anew."""
    asked, start_failures = [], StartFailureTracker()

    def fits(job: int, slots: Sequence[str]) -> bool:
        asked.append((job >> 20, list(slots)))
        return True

    for turn in range(5):
        start = NOW + 60 * turn
        queue = queued([BOUND | {"rtplannedstart": start}])
        assert not start_failures.update(queue, FACTS, start + 21, fits=fits)
        assert not start_failures.update(queue, FACTS, start + 22, fits=fits)
    assert asked == [(7, ["s1"])] * 4, "after two in a row, and after each one more"


def test_who_is_to_blame_is_asked_once() -> None:
    """Its promise is void then; a job that stays where it is costs no further questions."""
    asked, start_failures = [], StartFailureTracker()

    def fits(job: int, slots: Sequence[str]) -> bool:
        asked.append(job)
        return False

    for start in (NOW, NOW + 60, NOW + 60):
        queue = queued([BOUND | {"rtplannedstart": start}])
        stuck = start_failures.update(queue, FACTS, start + 21, fits=fits)
    assert (len(stuck), len(asked)) == (1, 1)


def test_a_machine_that_is_back_is_no_longer_shunned() -> None:
    """Its startd was started after the start that was missed."""
    start_failures = StartFailureTracker()
    queue = queued([BOUND | {"rtplannedstart": NOW}])
    for started in (NOW - 5000, NOW + 19):
        start_failures.update(queue, FACTS, NOW + 21, started={"s1": started})
        assert start_failures.shunned == {"s1"}
    start_failures.update(queued([ONE]), FACTS, NOW + 25, started={"s1": NOW + 24})
    assert start_failures.shunned == set()


def test_a_schedd_that_starts_nothing_is_no_machine_that_is_dead() -> None:
    """Where several machines are to blame at a time, and no job starts, none of them is."""
    ads = [
        BOUND | {"clusterid": number, "rtnodeset": f"s1@m{number}", "rtplannedstart": NOW}
        for number in range(3)
    ]
    start_failures = StartFailureTracker()
    start_failures.update(queued(ads[:1]), FACTS, NOW + 21)
    assert start_failures.shunned == {"s1@m0"}
    start_failures.update(queued(ads), FACTS, NOW + 22)
    assert start_failures.shunned == set()
    began = OTHER | {"remotehost": "s1@m9", "jobcurrentstartdate": NOW + 5}
    start_failures.update(queued([*ads, began]), FACTS, NOW + 23)
    assert start_failures.shunned == {"s1@m0", "s1@m1", "s1@m2"}


def test_a_machine_of_many_slots_may_be_dead() -> None:
    """But not if it has most of the slots that there are."""
    ads = [
        BOUND | {"clusterid": number, "rtnodeset": f"s{number}@m", "rtplannedstart": NOW}
        for number in range(3)
    ]
    for slots, left in ((6, 3), (5, 0)):
        start_failures = StartFailureTracker()
        start_failures.update(queued(ads), FACTS, NOW + 21, slots=slots)
        assert len(start_failures.shunned) == left


def test_without_a_negotiator_no_start_is_missed() -> None:
    """What nobody offers a slot cannot be blamed for not taking it."""
    start_failures = StartFailureTracker()
    for turn in range(4):
        now = NOW + 60 * turn
        queue = queued([BOUND | {"rtplannedstart": now}])
        assert not start_failures.update(queue, FACTS, now + 21, negotiated=False)
    assert not start_failures.shunned


def test_no_start_is_missed_for_a_schedd_that_was_started_anew() -> None:
    """Its time begins with the schedd, which is asked about only if a start is late."""
    tracker = StartFailureTracker()
    queue = queued([BOUND | {"rtplannedstart": NOW}])
    asked = []

    def started(job: int) -> float:
        assert job == queue.procs.job[0]
        asked.append(NOW + 30)
        return NOW + 30

    for seconds, shunned in ((15, set()), (31, set()), (50, set()), (51, {"s1"})):
        assert not tracker.update(queue, FACTS, NOW + seconds, schedd_started=started)
        assert tracker.shunned == shunned
    assert len(asked) == 3


def test_slots_that_others_have_are_no_chance() -> None:
    """Somebody was quicker: that is not the job's fault."""
    start_failures = StartFailureTracker()
    for turn in range(4):
        assert missed(start_failures, NOW + 60 * turn, NOW + 60 * turn + 21, OTHER) == []


def test_a_job_that_ran_begins_anew() -> None:
    """What was started and came back has shown that it can start."""
    start_failures = StartFailureTracker()
    missed(start_failures, NOW, NOW + 21)
    running = BOUND | {"jobstatus": 2, "remotehost": "s1"}
    start_failures.update(queued([running]), FACTS, NOW + 30)
    assert missed(start_failures, NOW + 60, NOW + 81) == []


def test_about_to_start_for_as_long_as_a_start_may_take() -> None:
    """Then it only waits, and may be planned anew."""
    queue = queued([BOUND | {"rtplannedstart": NOW}])
    assert list(bound_of(queue, FACTS, NOW + 20)) == [7 << 20]
    assert not bound_of(queue, FACTS, NOW + 21)


def test_work_begins_at_the_deferral_time() -> None:
    """A deferred job waits in its slot, but not for as long as its user likes."""
    begin = np.array([-np.inf, NOW + 50, NOW + 10 * DEFERRAL_S])
    procs = Procs.build(3, start=np.full(3, NOW), begin=begin)
    assert (work_began(procs) - NOW).tolist() == [0.0, 50.0, DEFERRAL_S]
