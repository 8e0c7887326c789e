"""The queue of a schedd, one poll after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtsched.adapters.condor.completions import asking_for, in_parts, numbered
from rtsched.adapters.condor.expected import ProcReader
from rtsched.adapters.condor.job_ads import TextReader
from rtsched.adapters.condor.matching import names_in
from rtsched.adapters.condor.pool_state import HELD, IDLE
from rtsched.adapters.condor.queue import CONSTRAINT, TO_PLACE
from rtsched.adapters.condor.requirements import AT_EXIT, CRON
from rtsched.logs.classads import Expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.adapters.condor.schedd import Schedd
    from rtsched.errors import AdapterError
    from rtsched.logs.classads import Record

CHAIN = 4
"""So many attributes of a job may refer to one another, from its Requirements on."""


@dataclass
class QueueAds:
    """Procs that take slots, as their schedds show them.

    Attributes
    ----------
    proc : list of int
        ProcId of each.
    ads : list of Record
        All else in the ad of each; equal ones of a schedd are one object.
    details : dict of int to Record
        By row, further attributes of those that may be promised something.
    """

    proc: list[int] = field(default_factory=list)
    ads: list[Record] = field(default_factory=list)
    details: dict[int, Record] = field(default_factory=dict)

    def add(self, others: QueueAds) -> None:
        """Add the procs of another schedd to these."""
        first = len(self.ads)
        self.details |= {first + row: ad for row, ad in others.details.items()}
        self.proc += others.proc
        self.ads += others.ads


class QueueReader:
    """Reads the queue of a schedd, and keeps it while the schedd does not answer."""

    def __init__(self) -> None:
        self._procs, self._details = ProcReader(), TextReader()
        self._referred: frozenset[str] = frozenset()
        self._last: QueueAds | None = None
        self._read_at = math.nan

    def read(self, schedd: Schedd, attributes: Sequence[str], now: float) -> QueueAds:
        """Return the procs of the queue.

        Parameters
        ----------
        schedd : Schedd
            Whose queue it is.
        attributes : sequence of str
            What is read of all procs.
        now : float
            Seconds since the epoch.

        Raises
        ------
        AdapterError
            If the schedd does not answer.
        """
        self._last, self._read_at = self._read(schedd, attributes), now
        return self._last

    def kept(self, error: AdapterError, now: float) -> tuple[QueueAds, str]:
        """Return the procs as they were when the schedd last answered, and a sentence about it.

        Raises
        ------
        AdapterError
            The one given, if it has never answered: its promised jobs would seem to be gone.
        """
        if self._last is None:
            raise error
        age = now - self._read_at
        return self._last, f"{error}; its jobs count as they were {age:.0f} s ago"

    def _read(self, schedd: Schedd, attributes: Sequence[str]) -> QueueAds:
        """Return the procs, those that may be promised something in detail.

        One that no longer waits when its details are read is read again, as a whole: without them
        it would seem that its user had changed it.
        """
        proc, ads = self._procs.read(schedd, attributes)
        different = {id(ad): ad for ad in ads}
        may_wait = {id(ad) for ad in different.values() if _may_wait(ad)}
        waiting = {
            job: at
            for at, ad in enumerate(ads)
            if id(ad) in may_wait and (job := numbered(ad, proc[at])) >= 0
        }
        if not waiting:
            return QueueAds(proc, ads)
        names, details = self._read_details(schedd)
        known = {waiting.pop(job): ad for job, ad in details if job in waiting}
        if waiting:
            gone = set(waiting.values())
            stay = [row for row in range(len(proc)) if row not in gone]
            known = {at: known[row] for at, row in enumerate(stay) if row in known}
            proc, ads = [proc[row] for row in stay], [ads[row] for row in stay]
        for some in in_parts(sorted(waiting)):
            constraint = f"({CONSTRAINT}) && {asking_for(some)}"
            again = schedd.procs(constraint, (*attributes, *names), {})
            proc += again.proc
            ads += [again.new[text] for text in again.text]
        return QueueAds(proc, ads, known)

    def _read_details(self, schedd: Schedd) -> tuple[Sequence[str], Iterable[tuple[int, Record]]]:
        """Return Requirements, with what they refer to, and environments of some jobs.

        Of those that may be promised something: for all jobs this would be far more than everything
        else. To which attributes Requirements refer shows when they are read; mostly to the same as
        at the last poll.

        Returns
        -------
        names : sequence of str
            The attributes that were read.
        found : iterable of (int, Record)
            The jobs, by their numbers.
        """
        constraint, referred = f"({CONSTRAINT}) && ({TO_PLACE})", self._referred
        names: tuple[str, ...] = ()
        found: Iterable[tuple[int, Record]] = ()
        for _ in range(CHAIN):
            names = ("ClusterId", "ProcId", "Environment", "Requirements", *CRON, *AT_EXIT)
            names = (*names, *sorted(referred))
            shown = schedd.procs(constraint, names, self._details.known)
            ads = self._details.read(shown)
            found = ((numbered(ad, proc), ad) for proc, ad in zip(shown.proc, ads, strict=True))
            said = {
                value
                for ad in self._details.known.values()
                for name, value in ad.items()
                if name == "requirements" or (name in referred and isinstance(value, Expression))
            }
            self._referred = frozenset().union(*(names_in(str(value)) for value in said))
            if self._referred <= referred:
                break
            referred |= self._referred
        return names, found


def _may_wait(ad: Record) -> bool:
    """Return whether a job waits that may be promised something."""
    return "rtdeadline" in ad and ad.get("jobstatus") in {IDLE, HELD}
