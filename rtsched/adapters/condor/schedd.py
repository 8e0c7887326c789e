"""A schedd: its queue, its history, and what is changed there.

The numbers of clusters in its records have the schedd's place in the settings above their own bits
(`ids`), and so are different from those of all other schedds of the pool.

Source: HTCondor's manual, "htcondor2 API reference", class Schedd.
"""

from __future__ import annotations

import gc
import math
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtsched.adapters.condor.bindings import WORKED_OUT, named, printable, refusal
from rtsched.adapters.condor.ids import (
    CLUSTER_BITS,
    PROC_BITS,
    cluster_at,
    cluster_of,
    name_of,
    own_cluster,
    proc_of,
)
from rtsched.adapters.condor.job_ads import ProcAds
from rtsched.errors import AdapterError
from rtsched.logs.classads import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.bindings import Bindings
    from rtsched.adapters.condor.commands import JobAction
    from rtsched.logs.classads import Record

T = TypeVar("T")

PAUSE = 10.0
"""A schedd, one of several, that does not answer is left alone for so many times as long as it took
to find that out: a dead host takes a tenth of the time of polls at the most."""

_OF_ONE_ANSWER = ("procid", "servertime")
"""What differs between ads of procs that are equal."""

_OF_CLUSTERS = ("clusterid", "dagmanjobid")
"""Attributes that are numbers of clusters."""

_PROC = re.compile(r"\d{1,18}", re.ASCII)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Have the garbage collector rest while many ads are made and freed.

    It would look through all of them again and again, a third of the time of a poll, and they are
    freed without it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Schedd:
    """A schedd of the pool.

    Parameters
    ----------
    bindings : Bindings
        Through which it is asked.
    name : str
        Its name; empty: the local one.
    number : int
        Its place in the settings.
    collector : str
        The pool's collector, `host[:port]`; empty: the configured one.
    alone : bool
        Whether it is the only one: then it is asked in any case.
    """

    def __init__(
        self,
        bindings: Bindings,
        name: str = "",
        number: int = 0,
        collector: str = "",
        *,
        alone: bool = True,
    ) -> None:
        self.name, self.number = name, number
        self._bindings, self._collector, self._alone = bindings, collector, alone
        self._silence, self._again = "", -math.inf

    def identity(self) -> tuple[str, str]:
        """Return its name and its version, as the collector has them."""
        ad = self._bindings.ask("schedd", self._ad, self.name)
        found = re.search(r"\d+\.\d+\.\d+", str(ad.get("CondorVersion")))
        return str(ad.get("Name")), found[0] if found else ""

    def started(self) -> float:
        """Return when it was started, seconds since the epoch; -inf: that is not known."""
        kind = self._condor.AdType.Schedd
        collector = self._condor.Collector(self._collector or None)
        constraint = named([self.identity()[0]])
        found = self._bindings.records(
            "collector", lambda: collector.query(kind, constraint, ["DaemonStartTime"])
        )
        times = [number(ad, "daemonstarttime") for ad in found]
        return max(filter(math.isfinite, times), default=-math.inf)

    def jobs(self, constraint: str, attributes: Sequence[str]) -> list[Record]:
        """Return jobs of the queue."""
        return [self._record(ad) for ad in self._job_ads(constraint, attributes)]

    @_without_collection()
    def procs(
        self, constraint: str, attributes: Sequence[str], known: Mapping[str, Record]
    ) -> ProcAds:
        """Return jobs of the queue, of which only that is read of which the text is not known.

        The bindings write an ad as JSON in a tenth of the time in which its attributes are read.
        """
        found = ProcAds([], [], {})
        same: dict[str, str] = {}
        for ad in self._job_ads(constraint, attributes):
            split = _split(ad)
            if split is None:
                found.add(ProcAds.of([self._record(ad)]))
                continue
            proc, text = split
            if text not in known and text not in found.new:
                record = self._record(ad)
                found.new[text] = {
                    name: value for name, value in record.items() if name not in _OF_ONE_ANSWER
                }
            found.proc.append(proc)
            found.text.append(same.setdefault(text, text))
        return found

    @_without_collection()
    def numbers(self, constraint: str) -> NDArray[np.int64]:
        """Return which jobs are in the queue, cluster and proc in one, int64[n]."""
        ads = self._job_ads(constraint, ("ClusterId", "ProcId"))
        pairs = np.array([(ad["ClusterId"], ad["ProcId"]) for ad in ads], np.int64).reshape(-1, 2)
        cluster, proc = pairs.T
        fits = (cluster >= 0) & (cluster < 1 << CLUSTER_BITS)
        fits &= (proc >= 0) & (proc < 1 << PROC_BITS)
        job = (self.number << CLUSTER_BITS | cluster) << PROC_BITS | proc
        found: NDArray[np.int64] = job[fits]
        return found

    def _job_ads(self, constraint: str, attributes: Sequence[str]) -> list[Any]:
        """Return jobs of the queue as the bindings make them."""
        found: list[Any] = self._ask(lambda: self._schedd().query(constraint, list(attributes)))
        return found

    def ad(self, job: int) -> Any:
        """Return a job's whole ad as the bindings make it; None: it is not in the queue.

        Parameters
        ----------
        job : int
            Cluster and proc in one.
        """
        cluster = own_cluster(cluster_of(job))
        wanted = f"ClusterId == {cluster} && ProcId == {proc_of(job)}"
        return next(iter(self._ask(lambda: self._schedd().query(wanted))), None)

    def history(
        self, constraint: str, attributes: Sequence[str], most: int, stop: str = ""
    ) -> list[Record]:
        """Return jobs that left the queue, the last ones first, at the most so many.

        The search ends with the first job for which the expression `stop` is true.
        """
        since = self._bindings.classad.ExprTree(stop) if stop else None
        ads = self._ask(
            lambda: list(self._schedd().history(constraint, list(attributes), most, since))
        )
        return [self._at_schedd(self._bindings.record(ad)) for ad in ads]

    # Changing

    def edit(self, jobs: Sequence[int], attribute: str, value: str) -> list[Reply]:
        """Set an attribute of jobs to a ClassAd expression; return one reply per job.

        They are changed in one transaction. Where that fails, as it does when one of them is no
        longer there, each is changed by itself. HTCondor 23 says of a job that is no longer there
        that it was done.
        """
        names = [name_of(job) for job in jobs]
        reply = self._edited(names, attribute, value)
        if reply[0] == "done" or len(jobs) < 2:
            return [reply] * len(jobs)
        return [self._edited([name], attribute, value) for name in names]

    def act(self, action: JobAction, jobs: Sequence[int], reason: str = "") -> Reply:
        """Do something with jobs; `done` if it was done, or was so before, for all of them."""
        wanted = getattr(self._condor.JobAction, action)
        names = [name_of(job) for job in jobs]
        why = (printable(reason), 0) if reason else None
        try:
            ad = self._schedd().act(wanted, names, why)
        except (AdapterError, *self._bindings.failures) as error:
            return refusal(error)
        counts = {key.lower(): int(ad[key]) for key in ad if key.startswith("Total")}
        if counts.get("totalpermissiondenied", 0):
            remedy = "check that the daemon's user is in QUEUE_SUPER_USERS"
            return "refused", f"{action}: permission denied; {remedy}"
        if counts.get("totalsuccess", 0) + counts.get("totalalreadydone", 0) >= len(jobs):
            return "done", ""
        return "failed", f"{action}: the job is gone or in another state"

    def reschedule(self) -> Reply:
        """Ask for a negotiation soon."""
        try:
            self._schedd().reschedule()
        except (AdapterError, *self._bindings.failures) as error:
            return refusal(error)
        return "done", ""

    def _edited(self, names: list[str], attribute: str, value: str) -> Reply:
        try:
            self._schedd().edit(names, attribute, value)
        except (AdapterError, *self._bindings.failures) as error:
            return refusal(error)
        return "done", ""

    # The daemon

    @property
    def _condor(self) -> Any:
        return self._bindings.condor

    def _ad(self) -> Any:
        """Return the ad that says where it is; without a name the configuration does."""
        where = self._collector if self.name else ""
        collector = self._condor.Collector(where or None)
        kind = self._condor.DaemonType.Schedd
        return self._bindings.located("schedd", collector, kind, self.name)

    def _check_silence(self) -> None:
        """Raise the last error again while the schedd is left alone."""
        if time.monotonic() < self._again:
            raise AdapterError(self._silence)

    def _schedd(self) -> Any:
        self._check_silence()
        return self._condor.Schedd(self._ad())

    def _ask(self, call: Callable[[], T]) -> T:
        """Return what a call of the bindings returns; its error is ours."""
        self._check_silence()
        begun = time.monotonic()
        try:
            return self._bindings.ask("schedd", call, self.name)
        except AdapterError as error:
            if not self._alone:
                now = time.monotonic()
                self._silence, self._again = str(error), now + PAUSE * (now - begun)
            raise

    def _record(self, ad: Any) -> Record:
        """Return the record of a job in the queue."""
        return self._at_schedd(self._bindings.record(ad, WORKED_OUT))

    def _at_schedd(self, record: Record) -> Record:
        """Return a job's record, in which clusters have their numbers in the pool."""
        for name in _OF_CLUSTERS:
            cluster = record.get(name)
            if type(cluster) is int:
                fits = 0 <= cluster < 1 << CLUSTER_BITS
                record[name] = cluster_at(self.number, cluster) if fits else -1
        return record


def _split(ad: Any) -> tuple[int, str] | None:
    """Return a proc's number, and all else of its ad as text; None: its JSON does not show that.

    In JSON no line begins within a value, and each attribute of the ad has a line of its own. The
    schedd puts the time into each ad that it hands over, which is left out.
    """
    try:
        text: str = ad.printJson()
    except UnicodeDecodeError:
        return None
    before, _, rest = text.partition('\n  "ProcId": ')
    number, _, behind = rest.partition("\n")
    number = number.removesuffix(",")
    if not _PROC.fullmatch(number):
        return None
    text = f"{before}\n{behind}"
    before, asked, rest = text.partition('\n  "ServerTime": ')
    return int(number), f"{before}\n{rest.partition(chr(10))[2]}" if asked else text
