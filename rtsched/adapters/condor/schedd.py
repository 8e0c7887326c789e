"""A schedd through HTCondor's Python bindings: its queue, its history, and what is changed there.

`Bindings` alone knows how the bindings are loaded, and what they raise. The numbers of clusters in
a schedd's records have its place in the settings above their own bits (`ids`), and so are different
from those of all other schedds of the pool.

Source: HTCondor's manual, "htcondor2 API reference", class Schedd.
"""

from __future__ import annotations

import importlib
import math
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

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
from rtsched.loading import without_collection
from rtsched.logs.classads import Expression, Record, names_slot, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.commands import JobAction


T = TypeVar("T")

WORKED_OUT = ("requestcpus", "requestmemory", "requestgpus", "requestdisk")
"""Attributes of jobs that HTCondor itself often sets to expressions."""

TRIES = 2
"""How often a question is put at the most."""

_PLAIN = frozenset({str, int, float, bool})
_REFUSED = re.compile(r"may not|not allowed|immutable|protected|denied|not authorized|secure", re.I)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_REMEDIES = {
    "collector": "check that condor_status answers and that [condor] collector is right",
    "schedd": "check that condor_q answers for the daemon's user and that [condor] names it right",
    "negotiator": "check that condor_userprio answers for the daemon's user",
}


class Bindings:
    """The bindings, with a limit to what a question may take.

    Parameters
    ----------
    timeout_s : float
        Seconds that a question may take at the most.

    Raises
    ------
    AdapterError
        If they cannot be loaded.
    """

    def __init__(self, timeout_s: float) -> None:
        try:
            self.condor: Any = importlib.import_module("htcondor2")
            self.classad: Any = importlib.import_module("classad2")
        except ImportError as error:
            raise AdapterError(
                f"HTCondor's Python bindings cannot be loaded ({error}); install them: "
                "pip install 'rtsched[condor]'"
            ) from error
        self._timeout_s = timeout_s
        self.failures = (self.condor.HTCondorException, ValueError, OSError, RuntimeError)
        self._places: dict[tuple[str, str], Any] = {}
        self._read = False

    def __reduce__(self) -> tuple[type[Self], tuple[float]]:
        """Return how another process makes them: anew."""
        return type(self), (self._timeout_s,)

    def configure(self) -> None:
        """Read HTCondor's configuration anew.

        Raises
        ------
        AdapterError
            If it cannot be read.
        """
        patience = self._timeout_s / TRIES
        try:
            if self._read:
                self.condor.reload_config()
            self._read = True
            for name in ("QUERY_TIMEOUT", "Q_QUERY_TIMEOUT", "TOOL_TIMEOUT"):
                self.condor.param[name] = str(max(1, round(patience)))
        except self.failures as error:
            raise AdapterError(
                f"HTCondor's configuration cannot be read ({error}); check "
                "condor_config_val -summary"
            ) from error

    def setting(self, name: str, otherwise: float) -> float:
        """Return a number of HTCondor's configuration on this machine."""
        try:
            return float(self.condor.param.get(name, otherwise))
        except (TypeError, ValueError):
            return otherwise

    def word(self, name: str) -> str:
        """Return a text of HTCondor's configuration on this machine; empty if it is not set."""
        return str(self.condor.param.get(name) or "")

    def located(self, daemon: str, collector: Any, kind: Any, name: str = "") -> Any:
        """Return the ad that says where a daemon is; the last one known if there is none.

        A collector that has just been started may not have heard of it yet.
        """
        try:
            ad = collector.locate(kind, name) if name else collector.locate(kind)
        except self.failures:
            ad = None
            if (daemon, name) not in self._places:
                raise
        ad = self._places.get((daemon, name)) if ad is None else ad
        if ad is None:
            raise AdapterError(f"the collector knows no {daemon} {name}; {_REMEDIES[daemon]}")
        self._places[daemon, name] = ad
        return ad

    def ask(self, daemon: str, call: Callable[[], T], name: str = "") -> T:
        """Return what a call of the bindings returns; its error is ours.

        A daemon that was started anew refuses the session that it had with us, once.

        Parameters
        ----------
        daemon : {"collector", "schedd", "negotiator"}
            Who is asked.
        call : callable
            What asks.
        name : str
            Which one, if there are several.

        Raises
        ------
        AdapterError
            If it does not answer.
        """
        for _ in range(TRIES - 1):
            with suppress(*self.failures):
                return call()
        try:
            return call()
        except self.failures as error:
            complaint, which = " ".join(str(error).split())[:300], f"{daemon} {name}".rstrip()
            raise AdapterError(
                f"the {which} does not answer ({complaint}); {_REMEDIES[daemon]}"
            ) from error

    def records(
        self, daemon: str, call: Callable[[], Iterable[Any]], worked_out: Sequence[str] = ()
    ) -> list[Record]:
        """Return the records of the ads that a call returns, as `ask` and `record` do."""
        return [self.record(ad, worked_out) for ad in self.ask(daemon, call)]

    def record(self, ad: Any, worked_out: Sequence[str] = ()) -> Record:
        """Return the record of an ad; `worked_out`: attributes whose expressions are evaluated.

        Those that have no value yet stay expressions, and those that have another at the match.
        """
        items = self.items(ad)
        for name, value in items.items():
            if name.lower() not in worked_out or type(value) in _PLAIN:
                continue
            if not names_slot(str(value)):
                known = ad.eval(name)
                items[name] = value if known is self.classad.Value.Undefined else known
        return self.plain(items)

    def plain(self, items: Mapping[str, Any]) -> Record:
        """Return attributes as a record; those that are undefined are left out."""
        record: Record = {}
        for name, value in items.items():
            key = name.lower()
            if type(value) in _PLAIN:
                record[key] = value
            elif value is not self.classad.Value.Undefined:
                record[key] = Expression(value)
        return record

    def items(self, ad: Any) -> dict[str, Any]:
        """Return the attributes of an ad, of those that are text at all."""
        with suppress(UnicodeDecodeError):
            return dict(ad)
        found = {}
        for name in ad:
            try:
                found[name] = ad[name]
            except UnicodeDecodeError:
                continue
        return found


def printable(text: str) -> str:
    """Return a text with blanks in place of control characters."""
    return _CONTROL.sub(" ", text)


def literal(value: str | float) -> str:
    """Return a value as a ClassAd literal; control characters of a text become blanks.

    The schedd reads the old syntax of ClassAds, in which a backslash is one, but before a quote.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    escaped = printable(value).replace('"', '\\"')
    return f'"{escaped}"'


def named(names: Sequence[str]) -> str:
    """Return the constraint for ads of these names."""
    return f"member(Name, {{{', '.join(map(literal, names))}}})"


def refusal(error: Exception) -> Reply:
    """Return what became of a request that raised."""
    complaint = " ".join(str(error).split())[:300]
    return ("refused" if _REFUSED.search(complaint) else "failed"), complaint


PAUSE = 10.0
"""A schedd, one of several, that does not answer is left alone for so many times as long as it took
to find that out: a dead host takes a tenth of the time of polls at the most."""

_OF_ONE_ANSWER = ("procid", "servertime")
"""What differs between ads of procs that are equal."""

_OF_CLUSTERS = ("clusterid", "dagmanjobid")
"""Attributes that are numbers of clusters."""

_PROC = re.compile(r"\d{1,18}", re.ASCII)


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

    @without_collection()  # it would look through all ads again and again: a third of a poll
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

    @without_collection()
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

    def act(self, action: JobAction, job: int, reason: str = "") -> Reply:
        """Do something with a job; `done` if it was done, or was so before."""
        wanted = getattr(self._condor.JobAction, action)
        why = (printable(reason), 0) if reason else None
        try:
            ad = self._schedd().act(wanted, [name_of(job)], why)
        except (AdapterError, *self._bindings.failures) as error:
            return refusal(error)
        counts = {key.lower(): int(ad[key]) for key in ad if key.startswith("Total")}
        if counts.get("totalpermissiondenied", 0):
            remedy = "check that the daemon's user is in QUEUE_SUPER_USERS"
            return "refused", f"{action}: permission denied; {remedy}"
        if counts.get("totalsuccess", 0) + counts.get("totalalreadydone", 0):
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
