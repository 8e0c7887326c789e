"""The queue of a schedd, one poll after the other: only procs that changed are read.

The procs of a large cluster that wait are equal but for their numbers. A constraint that states all
that was read of them finds those procs of the queue of which anything else is true; only these are
read again, and of the others that they are there.

Source: HTCondor's manual, "ClassAd Expressions": `=?=` tells types and case apart, and is never
undefined.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from rtsched.adapters.condor.completions import asking_for, in_parts
from rtsched.adapters.condor.ids import CLUSTERS, PROC_BITS, own_cluster
from rtsched.adapters.condor.job_ads import TextReader, numbered
from rtsched.adapters.condor.matching import names_in
from rtsched.adapters.condor.pool_state import HELD, IDLE
from rtsched.adapters.condor.queue import CONSTRAINT, TO_PLACE
from rtsched.adapters.condor.requirements import AT_EXIT, CRON, REQUEST_ATTRIBUTES
from rtsched.logs.classads import Expression
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.schedd import Schedd
    from rtsched.errors import AdapterError
    from rtsched.logs.classads import Record, Value

FEWEST = 1000
"""A shorter queue is read as a whole."""

ALIKE = 50
"""So many procs of a cluster are alike at least, where the schedd compares them."""

SHARE = 0.5
"""The share of all procs that must be expected: it takes time to ask who is there, too."""

MOST = 2000
"""So many clusters are expected at the most, those with the most procs alike: the schedd reads some
200 bytes of each at a poll, and finds that of a proc in 11 steps."""

_PLAIN = re.compile(r"[ !#-\[\]-~]*")
"""Texts that are written alike in the old and the new syntax of ClassAds."""


@dataclass(frozen=True)
class ExpectedProcs:
    """What procs are expected to be like, by their clusters.

    Attributes
    ----------
    attributes : tuple of str
        What was read of them.
    ads : dict of int to Record
        By cluster, the ad that its procs are expected to have, without ProcId.
    constraint : str
        What is true of a proc that is as expected.
    """

    attributes: tuple[str, ...]
    ads: dict[int, Record]
    constraint: str

    @classmethod
    def of(cls, records: Sequence[Record], attributes: Sequence[str]) -> Self | None:
        """Return what is expected after a poll; None: the next one had better read everything.

        Parameters
        ----------
        records : sequence of Record
            The ads of all procs; equal ones are one object.
        attributes : sequence of str
            What was read of them.
        """
        if len(records) < FEWEST:
            return None
        ads: dict[int, Record] = {}
        stated: dict[int, tuple[_Stated, ...]] = {}
        procs = 0
        for cluster, (ad, count) in _most_common(records).items():
            values = stated_of(ad, attributes)
            if values is not None:
                ads[cluster], stated[cluster] = ad, values
                procs += count
        if not ads or procs < SHARE * len(records):
            return None
        common = set.intersection(*map(set, stated.values()))
        leaves = [
            (
                cluster,
                condition_of([each for each in stated[cluster] if each not in common], cluster),
            )
            for cluster in sorted(stated)
        ]
        every = [each for each in next(iter(stated.values())) if each in common]
        return cls(tuple(attributes), ads, f"{condition_of(every)} && ({_tree(leaves)})")

    @property
    def others(self) -> str:
        """What is true of a proc that is not as expected."""
        return f"({self.constraint}) =!= true"

    def known(self, jobs: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Record]]:
        """Return those of these jobs that belong to the clusters, and the ad expected of each."""
        cluster = jobs >> PROC_BITS
        jobs = jobs[are_in(cluster, list(self.ads))]
        return jobs, [self.ads[each] for each in (jobs >> PROC_BITS).tolist()]


def _most_common(records: Sequence[Record]) -> dict[int, tuple[Record, int]]:
    """Return the ad that most procs of a cluster have, and how many have it, by cluster."""
    objects = np.fromiter(map(id, records), np.int64, len(records))
    _, first, counts = np.unique(objects, return_index=True, return_counts=True)
    found: dict[int, tuple[Record, int]] = {}
    for at in np.lexsort((first, -counts)).tolist():
        if counts[at] < ALIKE or len(found) == MOST:
            break
        ad = records[first[at]]
        cluster = ad.get("clusterid")
        if type(cluster) is int and 0 <= cluster < CLUSTERS:
            found.setdefault(cluster, (ad, int(counts[at])))
    return found


_Stated = tuple[str, str]
"""An attribute, and its value as it is written; empty: it is not there."""


def stated_of(ad: Record, attributes: Sequence[str]) -> tuple[_Stated, ...] | None:
    """Return what is stated of a proc whose ad is this one but for its numbers, by attribute.

    None: that cannot be stated, since something in the ad is no plain literal.
    """
    found = []
    for name in attributes:
        value = ad.get(name.lower())
        written = _literal(value) if value is not None else ""
        if written is None:
            return None
        if name not in {"ClusterId", "ProcId"}:
            found.append((name, written))
    return tuple(found)


def condition_of(stated: Sequence[_Stated], cluster: int = -1) -> str:
    """Return the expression that is true where so much is; `cluster`: of its procs only.

    The schedd evaluates one expression on many attributes faster than many on one each. What users
    ask of rtsched must not even be an expression that comes out undefined: they would be told what
    is wrong with that.
    """
    found = [f"ClusterId == {own_cluster(cluster)}"] if cluster >= 0 else ["true"]
    found += [f"{name} =?= {value}" for name, value in stated if value]
    missing = [name for name, value in stated if not value]
    asked = [f"unparse({name})" for name in missing if name.lower() in REQUEST_ATTRIBUTES]
    others = [name for name in missing if name.lower() not in REQUEST_ATTRIBUTES]
    if asked:
        found.append(f'strcat({", ".join(asked)}) =?= ""')
    if others:
        found.append(f"({' ?: '.join(others)}) =?= undefined")
    return " && ".join(found)


def _literal(value: Value) -> str | None:
    """Return a value as it is written in an expression; None: it is no plain literal."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and abs(value) < 1 << 62:
        return str(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is str and _PLAIN.fullmatch(value):
        return f'"{value}"'
    return None


def _tree(leaves: Sequence[tuple[int, str]]) -> str:
    """Return the expression that is the one of these, by cluster in order, that a proc's is of."""
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    lower, upper = _tree(leaves[:middle]), _tree(leaves[middle:])
    return f"ClusterId < {own_cluster(leaves[middle][0])} ? ({lower}) : ({upper})"


class ProcReader:
    """Reads the procs of a schedd's queue, one poll after the other."""

    def __init__(self) -> None:
        self._texts = TextReader()
        self._expected: ExpectedProcs | None = None

    def read(self, schedd: Schedd, attributes: Sequence[str]) -> tuple[list[int], list[Record]]:
        """Return the ProcId of each proc, and all else of its ad; equal ads are one object.

        Which procs are there is asked before it is asked which of them are not as expected: so one
        that is not among the latter is as expected, or it has left meanwhile and is shown once
        more.

        Raises
        ------
        AdapterError
            If the schedd does not answer.
        """
        expected = self._expected
        if expected is not None and expected.attributes == tuple(attributes):
            there = schedd.numbers(CONSTRAINT)
            proc, ads = self._read(schedd, f"({CONSTRAINT}) && ({expected.others})", attributes)
            read = [numbered(ad, number) for ad, number in zip(ads, proc, strict=True)]
            others = there[~are_in(there, np.array(read, np.int64))]
            others, as_expected = expected.known(others)
            proc = [*proc, *(others & ((1 << PROC_BITS) - 1)).tolist()]
            ads = [*ads, *as_expected]
        else:
            proc, ads = self._read(schedd, CONSTRAINT, attributes)
        self._expected = ExpectedProcs.of(ads, attributes)
        return proc, ads

    def _read(
        self, schedd: Schedd, constraint: str, attributes: Sequence[str]
    ) -> tuple[list[int], list[Record]]:
        """Return the procs of which a constraint is true."""
        shown = schedd.procs(constraint, attributes, self._texts.known)
        return shown.proc, self._texts.read(shown)


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
            referring = {
                value
                for ad in self._details.known.values()
                for name, value in ad.items()
                if name == "requirements" or (name in referred and isinstance(value, Expression))
            }
            self._referred = frozenset().union(*(names_in(str(value)) for value in referring))
            if self._referred <= referred:
                break
            referred |= self._referred
        return names, found


def _may_wait(ad: Record) -> bool:
    """Return whether a job waits that may be promised something."""
    return "rtdeadline" in ad and ad.get("jobstatus") in {IDLE, HELD}
