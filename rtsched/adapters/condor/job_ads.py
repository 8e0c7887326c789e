"""The ads of procs, from poll to poll: what is known is not read again, equal ads are read once.

A proc's number and the text of all else in its ad are kept apart: the procs of a cluster that wait
differ in their numbers only, and so share one record and what that means.

Source: HTCondor's manual, "Job ClassAd Attributes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.ids import CLUSTERS, PROC_BITS, job_id
from rtsched.adapters.condor.pool_state import HELD, IDLE, Procs
from rtsched.adapters.condor.requirements import (
    MEGABYTE,
    OURS,
    PARALLEL,
    REQUEST_ATTRIBUTES,
    is_limited,
    is_overrun,
    is_passing,
    is_spooling,
    run_time,
    vacate_time,
)
from rtsched.logs.classads import number, text
from rtsched.model.table import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.classads import Record

GREATEST = (1 << 31) - 1
"""Priorities, and amounts of CPUs, GPUs and MB, are not counted beyond."""

_STATED = CondorFacts(run_time=math.nan)
"""Facts of a site without a default run time or domain: ads mean what they state."""

_OF_OURS = {*REQUEST_ATTRIBUTES, *(name.lower() for name in OURS)} - {"rtruntime"}


class ProcAds(NamedTuple):
    """What the schedd shows of some procs, of which only that was read which was not known.

    Attributes
    ----------
    proc : list of int
        ProcId of each; -1: it has none.
    text : list of str
        All else in the ad of each. Equal texts are equal ads.
    new : dict of str to Record
        What the texts mean that were not known, without ProcId.
    """

    proc: list[int]
    text: list[str]
    new: dict[str, Record]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """Return procs as their whole ads show them."""
        found = cls([], [], {})
        for whole in records:
            record = {name: value for name, value in whole.items() if name != "procid"}
            found.proc.append(proc_in(whole))
            found.text.append(text_of(record))
            found.new.setdefault(found.text[-1], record)
        return found

    def add(self, others: ProcAds) -> None:
        """Add others to these procs."""
        self.proc.extend(others.proc)
        self.text.extend(others.text)
        self.new.update(others.new)


def proc_in(ad: Record) -> int:
    """Return ProcId; -1: the ad has none, or it is no number of a proc."""
    proc = ad.get("procid")
    return proc if type(proc) is int and 0 <= proc < 1 << 62 else -1


def number_of(ad: Record) -> int:
    """Return cluster and proc of a job in one; -1 if the ad makes no sense."""
    cluster, proc = number(ad, "clusterid"), number(ad, "procid")
    if not (0 <= cluster < CLUSTERS and 0 <= proc < 1 << PROC_BITS):
        return -1
    return job_id(int(cluster), int(proc))


def numbered(ad: Record, proc: int) -> int:
    """Return the number of a job by its ad, and its ProcId; -1 if they make no sense."""
    return number_of(ad | {"procid": proc})


def text_of(record: Record) -> str:
    """Return a text that only equal records have, of whatever they hold."""
    return repr([(name, type(value).__name__, value) for name, value in sorted(record.items())])


class Ads(Procs):
    """What ads of procs mean, whoever polls: one row per different ad.

    The columns of procs that they have in common, as far as the ad alone tells: `run_time` is nan
    where none is stated, and `submitter` may lack the pool's domain.
    """

    placed = Column(np.bool_, False, "RemoteHost is there.")
    ours = Column(
        np.bool_, False, "It asks rtsched for something, or has an attribute that rtsched set."
    )
    overrun = Column(np.bool_, False, "It was stopped at the end of its run time.")
    vacate_time = Column(np.float64, np.nan, "Seconds to leave its slot; nan: the machine's.")
    request_disk = Column(np.float64, np.nan, "RequestDisk, KB.")
    dag = Column(np.int64, -1, "DAGManJobId; -1: none.")


@dataclass(frozen=True)
class JobAds:
    """The procs of a queue by their ads.

    Attributes
    ----------
    proc : int64[n]
        ProcId; -1: none.
    kind : int64[n]
        Which of the different ads each has.
    records : list of Record
        The different ads, without ProcId.
    ads : Ads
        What they mean.
    """

    proc: NDArray[np.int64]
    kind: NDArray[np.int64]
    records: list[Record]
    ads: Ads

    def whole(self, row: int) -> Record:
        """Return the ad of a proc, with its number."""
        record: Record = self.records[self.kind[row]]
        return record | {"procid": int(self.proc[row])}


class TextReader:
    """Reads the ads of procs by their texts, one poll after the other.

    Attributes
    ----------
    known : dict of str to Record
        What the texts of the last reading mean.
    """

    def __init__(self) -> None:
        self.known: dict[str, Record] = {}

    def read(self, shown: ProcAds) -> list[Record]:
        """Return the ad of each proc; equal ones are one object, now and at the next reading."""
        meant = shown.new | self.known
        self.known = {text: meant[text] for text in shown.text}
        return list(map(meant.__getitem__, shown.text))


class AdReader:
    """Works out what the ads of procs mean, one poll after the other."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._row_of: dict[int, int] = {}
        self._ads = ads_of([])
        self._merged: dict[tuple[int, int], tuple[Record, Record, Record]] = {}

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Return how another process makes it: anew, since it tells objects apart by identity."""
        return type(self), ()

    def merge(self, records: list[Record], details: Mapping[int, Record]) -> None:
        """Put details into ads; equal ones stay one object, now and at the next reading.

        Parameters
        ----------
        records : list of Record
            The ads; those of equal procs are one object.
        details : mapping of int to Record
            By row, further attributes, likewise.
        """
        merged: dict[tuple[int, int], tuple[Record, Record, Record]] = {}
        for at, more in details.items():
            ad = records[at]
            key = id(ad), id(more)  # those of these objects, as long as they are kept with both
            if key not in merged:
                merged[key] = self._merged.get(key) or (ad, more, more | ad)
            records[at] = merged[key][2]
        self._merged = merged

    def jobs(self, proc: Sequence[int], records: Sequence[Record]) -> JobAds:
        """Return what ads mean; what is one object with one of the last time is known.

        Parameters
        ----------
        proc : sequence of int
            ProcId of each.
        records : sequence of Record
            All else of each.
        """
        objects = np.fromiter(map(id, records), np.int64, len(records))
        different, first, kind = np.unique(objects, return_index=True, return_inverse=True)
        found = [records[at] for at in first.tolist()]
        row = np.array([self._row_of.get(each, -1) for each in different.tolist()], np.int64)
        new = np.flatnonzero(row < 0)
        row[new] = len(self._ads) + np.arange(len(new))
        ads = Ads.joined([self._ads, ads_of([found[at] for at in new.tolist()])])
        self._ads, self._records = ads.take(row).replace(), found
        self._row_of = dict(zip(different.tolist(), range(len(found)), strict=True))
        return JobAds(np.array(proc, np.int64), kind.ravel(), found, self._ads)


def ads_of(ads: Sequence[Record]) -> Ads:
    """Return what different ads mean."""
    limited = [is_limited(ad) for ad in ads]
    ours = np.array([not _OF_OURS.isdisjoint(ad) for ad in ads], np.bool_)
    universe = _whole(ads, "jobuniverse", 5).clip(0, 127).astype(np.int8)
    submit, begin = reals(ads, "qdate"), reals(ads, "deferraltime")
    memory, own = reals(ads, "requestmemory"), _whole(ads, "rtjobprio", GREATEST + 1)
    return Ads.build(
        len(ads),
        cluster=_whole(ads, "clusterid", -1),
        status=_whole(ads, "jobstatus", IDLE).clip(0, 127).astype(np.int8),
        placed=np.array(["remotehost" in ad for ad in ads], np.bool_),
        universe=universe,
        ours=ours | (universe == PARALLEL),
        passing=_held(ads, is_passing),
        spools=_held(ads, is_spooling),
        overrun=_held(ads, is_overrun),
        submit=submit,
        begin=np.where(begin > submit, begin, -np.inf),
        start=reals(ads, "jobcurrentstartdate"),
        run_time=np.array([run_time(ad, _STATED) for ad in ads], np.float64),
        limited=np.array(limited, np.bool_),
        vacate_time=np.array([vacate_time(ad) for ad in ads], np.float64),
        executing=np.array(
            [_executing(ad) if is_so else math.nan for is_so, ad in zip(limited, ads, strict=True)],
            np.float64,
        ),
        cpus=np.ceil(np.nan_to_num(reals(ads, "requestcpus"), nan=1.0))
        .clip(1, GREATEST)
        .astype(np.int32),
        memory=np.where(memory > 0, memory.clip(0, GREATEST) * MEGABYTE, -1).astype(np.int64),
        gpus=np.ceil(np.nan_to_num(reals(ads, "requestgpus"))).clip(0, GREATEST).astype(np.int32),
        request_disk=reals(ads, "requestdisk"),
        priority=_whole(ads, "jobprio", 0).clip(-GREATEST, GREATEST).astype(np.int32),
        own_priority=own.clip(-GREATEST, GREATEST).astype(np.int32),
        reordered=own <= GREATEST,
        dag=np.maximum(_whole(ads, "dagmanjobid", -1), -1),
        user=_texts(ads, "owner"),
        submitter=[submitter_of(ad, _STATED) for ad in ads],
        account=_texts(ads, "acctgroup"),
        name=[name_in(ad) for ad in ads],
        slot=[_slots(ad) for ad in ads],
        admission=_texts(ads, "rtadmission"),
        node_set=_texts(ads, "rtnodeset"),
        rank_set=_texts(ads, "rtrankset"),
    )


def _held(ads: Sequence[Record], how: Callable[[Record], bool]) -> NDArray[np.bool_]:
    """Return which jobs are held in some way."""
    return np.array([ad.get("jobstatus") == HELD and how(ad) for ad in ads], np.bool_)


def _executing(ad: Record) -> float:
    """Return since when a job that HTCondor limits executes, inf: not yet, nan: that is no matter.

    Its files come first, and AllowedExecuteDuration does not count that.
    """
    if ad.get("rtruntime") != ad.get("allowedexecuteduration"):
        return math.nan
    start, executes = (number(ad, name) for name in ("jobcurrentstartdate", _EXECUTES))
    return executes if executes >= start else math.inf


_EXECUTES = "jobcurrentstartexecutingdate"


def _slots(ad: Record) -> str | None:
    """Return the slots that a proc runs on, with commas between them."""
    if ad.get("jobuniverse") == PARALLEL and "remotehost" in ad:
        return _text(ad, "allremotehosts") or _text(ad, "remotehost")
    return _text(ad, "remotehost")


_BLANKS = dict.fromkeys((*range(32), 127), " ")


def _text(ad: Record, name: str) -> str | None:
    """Return a text as requests have it: a control character is a blank (job_ad.cpp)."""
    value = ad.get(name)
    return value.translate(_BLANKS) if type(value) is str and value else None


def _texts(ads: Sequence[Record], name: str) -> list[str | None]:
    return [_text(ad, name) for ad in ads]


def _whole(ads: Sequence[Record], name: str, missing: int) -> NDArray[np.int64]:
    """Return a whole number of each ad; `missing` where it has none."""
    values: list[Any] = [ad.get(name) for ad in ads]
    return np.array(
        [value if type(value) is int and abs(value) < 1 << 62 else missing for value in values],
        np.int64,
    )


def reals(ads: Sequence[Record], name: str) -> NDArray[np.float64]:
    """Return a number of each ad; nan where it has none."""
    values: list[Any] = [ad.get(name) for ad in ads]
    return np.array(
        [value if type(value) in (int, float) else math.nan for value in values], np.float64
    )


def name_in(ad: Record) -> str | None:
    """Return what its user calls a job: the batch's name, or the command's."""
    name = text(ad, "jobbatchname")
    command = text(ad, "cmd")
    return name or (command.rpartition("/")[2] if command else None)


def submitter_of(ad: Record, facts: CondorFacts) -> str:
    """Return who is charged for a job, as the negotiator names it."""
    domain = (text(ad, "user") or "").partition("@")[2] or facts.domain
    return with_domain(text(ad, "accountinggroup") or text(ad, "owner") or "", domain)


def with_domain(name: str, domain: str) -> str:
    """Return who is charged as the negotiator names it, with a domain."""
    return name if "@" in name or not domain else f"{name}@{domain}"
