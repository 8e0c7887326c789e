"""An HTCondor pool through its Python bindings: the only place that knows them.

Ads come back as records: attributes by their names in lower case, literals as Python's values, and
other expressions as their text. An undefined attribute is left out.

The bindings ask the collector and the schedd within their limits, and the negotiator without one: a
negotiator that is stopped, or its machine, would stop every poll. So `PatientPool` has it asked by
a process of its own.

Sources: HTCondor's manual, "htcondor2 API reference" and "classad2 API reference"; HTCondor 25.14,
`Negotiator.getPriorities` and `setFactor` do not follow QUERY_TIMEOUT.
"""

from __future__ import annotations

import gc
import importlib
import math
import re
from collections import defaultdict
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import numpy as np

from rtsched.adapters.child_process import SubprocessProxy
from rtsched.adapters.condor.gpus import gpus_in, suiting_gpus
from rtsched.adapters.condor.ids import PROC_BITS, cluster_of, name_of, proc_of
from rtsched.adapters.condor.job_ads import ProcAds
from rtsched.adapters.condor.matching import Machine, lasting_attributes
from rtsched.errors import AdapterError
from rtsched.logs.classads import Expression, Record, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.commands import JobAction
    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.logs.classads import Record

T = TypeVar("T")

_COUNTED = re.compile(
    r"countMatches\(\s*MY\.RequireGPUs\s*,\s*TARGET\.AvailableGPUs\s*\)", re.IGNORECASE
)
_WORKED_OUT = ("requestcpus", "requestmemory", "requestgpus", "requestdisk")
"""Attributes of jobs that HTCondor itself often sets to expressions."""

TRIES = 2
"""How often a question is put at the most."""

REST_S = 300.0
"""Seconds for which a negotiator that did not answer is left alone."""

CALLS = 1000
"""Calls after which another process uses the bindings, since they lose memory: those of 25.14 a
copy of the name of each attribute that a query names, 5 KiB in a poll, and 1.7 KiB at each question
to the negotiator."""

_PLAIN = frozenset({str, int, float, bool})

_REFUSED = re.compile(r"may not|not allowed|immutable|protected|denied|not authorized|secure", re.I)
_NUMBERED = re.compile(r"(\D+)(\d+)")
_OF_ONE_ANSWER = ("procid", "servertime")
"""What differs between ads of procs that are equal."""

_PROC = re.compile(r"\d{1,18}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_REMEDIES = {
    "collector": "check that condor_status answers and that [condor] collector is right",
    "schedd": "check that condor_q answers for the daemon's user and that [condor] schedd is right",
    "negotiator": "check that condor_userprio answers for the daemon's user",
}


def literal(value: str | float) -> str:
    """Return a value as a ClassAd literal; control characters of a text become blanks.

    The schedd reads the old syntax of ClassAds, in which a backslash is one, but before a quote.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    escaped = _CONTROL.sub(" ", value).replace('"', '\\"')
    return f'"{escaped}"'


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


class Pool:
    """A pool, as the configuration of HTCondor on this machine and the settings name it.

    Parameters
    ----------
    settings : CondorSettings
        The `[condor]` table.

    Raises
    ------
    AdapterError
        If the bindings cannot be loaded.
    """

    calls = CALLS

    def __init__(self, settings: CondorSettings) -> None:
        try:
            self._condor: Any = importlib.import_module("htcondor2")
            self._classad: Any = importlib.import_module("classad2")
        except ImportError as error:
            raise AdapterError(
                f"HTCondor's Python bindings cannot be loaded ({error}); install them: "
                "pip install 'rtsched[condor]'"
            ) from error
        self._settings = settings
        self._failures = (self._condor.HTCondorException, ValueError, OSError, RuntimeError)
        self._places: dict[str, Any] = {}
        self._read = False
        self.configure()

    def __reduce__(self) -> tuple[type[Self], tuple[CondorSettings]]:
        """Return how another process makes the pool: anew."""
        return type(self), (self._settings,)

    # Reading

    def configure(self) -> None:
        """Read HTCondor's configuration anew.

        Raises
        ------
        AdapterError
            If it cannot be read.
        """
        patience = self._settings.query_timeout_s / TRIES
        try:
            if self._read:
                self._condor.reload_config()
            self._read = True
            for name in ("QUERY_TIMEOUT", "Q_QUERY_TIMEOUT", "TOOL_TIMEOUT"):
                self._condor.param[name] = str(max(1, round(patience)))
        except self._failures as error:
            raise AdapterError(
                f"HTCondor's configuration cannot be read ({error}); check "
                "condor_config_val -summary"
            ) from error

    def setting(self, name: str, otherwise: float) -> float:
        """Return a number of HTCondor's configuration on this machine."""
        try:
            return float(self._condor.param.get(name, otherwise))
        except (TypeError, ValueError):
            return otherwise

    def word(self, name: str) -> str:
        """Return a text of HTCondor's configuration on this machine; empty if it is not set."""
        return str(self._condor.param.get(name) or "")

    def slots(self, attributes: Sequence[str]) -> list[Record]:
        """Return the slots that the collector knows, of those that the settings leave to us."""
        kind, constraint = self._condor.AdType.Startd, self._of_slots()
        return self._records(
            "collector",
            lambda: self._collector().query(kind, constraint, list(attributes)),
        )

    def machines(self, slots: Sequence[str] = ()) -> dict[str, Machine]:
        """Return what slots say of their machines, by their names; without names all slots.

        Dynamic slots are left out.
        """
        kind, constraint = self._condor.AdType.Startd, self._of_slots("DynamicSlot isnt true")
        if slots:
            constraint = f"{constraint} && {_named(slots)}"
        ads = self._ask("collector", lambda: self._collector().query(kind, constraint))
        return {str(ad.get("Name")): self._machine(ad) for ad in ads}

    def collector_up(self) -> float:
        """Return for how many seconds the collector has been running; inf: it does not say."""
        kind = self._condor.AdType.Collector
        found = self._records(
            "collector", lambda: self._collector().query(kind, None, ["StatsLifetime"])
        )
        ages = [number(ad, "statslifetime") for ad in found]
        return min(filter(math.isfinite, ages), default=math.inf)

    def schedd(self) -> tuple[str, str]:
        """Return name and version of the schedd."""
        ad = self._ask("schedd", self._schedd_ad)
        found = re.search(r"\d+\.\d+\.\d+", str(ad.get("CondorVersion")))
        return str(ad.get("Name")), found[0] if found else ""

    def schedd_started(self, name: str) -> float:
        """Return when the schedd was started, seconds since the epoch; -inf: it is not known."""
        kind, constraint = self._condor.AdType.Schedd, _named([name])
        found = self._records(
            "collector", lambda: self._collector().query(kind, constraint, ["DaemonStartTime"])
        )
        times = [number(ad, "daemonstarttime") for ad in found]
        return max(filter(math.isfinite, times), default=-math.inf)

    def jobs(self, constraint: str, attributes: Sequence[str]) -> list[Record]:
        """Return jobs of the queue."""
        return [self._record(ad, _WORKED_OUT) for ad in self._job_ads(constraint, attributes)]

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
                found.add(ProcAds.of([self._record(ad, _WORKED_OUT)]))
                continue
            proc, text = split
            if text not in known and text not in found.new:
                record = self._record(ad, _WORKED_OUT)
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
        fits = (cluster >= 0) & (cluster < 1 << 31) & (proc >= 0) & (proc < 1 << PROC_BITS)
        found: NDArray[np.int64] = (cluster << PROC_BITS | proc)[fits]
        return found

    def _job_ads(self, constraint: str, attributes: Sequence[str]) -> list[Any]:
        """Return jobs of the queue as the bindings make them."""
        found: list[Any] = self._ask(
            "schedd", lambda: self._schedd().query(constraint, list(attributes))
        )
        return found

    def fits(self, job: int, slots: Sequence[str]) -> bool:
        """Return whether a job's own Requirements hold on one of some slots when it is free.

        So it is also where nobody can tell, as when the job is gone.

        Parameters
        ----------
        job : int
            Cluster and proc in one.
        slots : sequence of str
            Their names.
        """
        wanted = f"ClusterId == {cluster_of(job)} && ProcId == {proc_of(job)}"
        kind = self._condor.AdType.Startd
        try:
            jobs = list(self._ask("schedd", lambda: self._schedd().query(wanted)))
            found = self._ask("collector", lambda: self._collector().query(kind, _named(slots)))
        except AdapterError:
            return True
        return not jobs or not found or any(fits_free(jobs[0], slot) for slot in found)

    def history(
        self, constraint: str, attributes: Sequence[str], most: int, stop: str = ""
    ) -> list[Record]:
        """Return jobs that left the queue, the last ones first, at the most so many.

        The search ends with the first job for which the expression `stop` is true.
        """
        since = self._classad.ExprTree(stop) if stop else None
        return self._records(
            "schedd", lambda: self._schedd().history(constraint, list(attributes), most, since)
        )

    def submitters(self) -> list[Record]:
        """Return the negotiator's accounting, one record per submitter or group.

        The bindings of 25.14 tell apart only ten of them, by the last digit of their numbers; what
        they make of it still holds all attributes, and is put right here.
        """
        found = self._ask("negotiator", lambda: self._negotiator().getPriorities())
        mixed = getattr(found, "mapping", None)
        if mixed is None:
            return [self._record(ad) for ad in found]
        records: dict[str, Record] = defaultdict(dict)
        for digit, ad in mixed.items():
            for name, value in self._record(ad).items():
                numbered = _NUMBERED.fullmatch(name + str(digit))
                if numbered is not None:
                    records[numbered[2]][numbered[1]] = value
        return list(records.values())

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
        why = (_CONTROL.sub(" ", reason), 0) if reason else None
        try:
            ad = self._schedd().act(wanted, names, why)
        except (AdapterError, *self._failures) as error:
            return _refusal(error)
        counts = {key.lower(): int(ad[key]) for key in ad if key.startswith("Total")}
        if counts.get("totalpermissiondenied", 0):
            remedy = "check that the daemon's user is in QUEUE_SUPER_USERS"
            return "refused", f"{action}: permission denied; {remedy}"
        if counts.get("totalsuccess", 0) + counts.get("totalalreadydone", 0) >= len(jobs):
            return "done", ""
        return "failed", f"{action}: the job is gone or in another state"

    def set_factors(self, factors: Mapping[str, float]) -> dict[str, Reply]:
        """Set priority factors by submitter.

        The negotiator does not say whether it did so: its accounting is read again.
        """
        replies: dict[str, Reply] = {}
        try:
            negotiator = self._negotiator()
            for submitter, factor in factors.items():
                negotiator.setFactor(submitter, factor)
            now = {ad.get("name"): ad.get("priorityfactor") for ad in self.submitters()}
        except (AdapterError, *self._failures) as error:
            return dict.fromkeys(factors, _refusal(error))
        for submitter, factor in factors.items():
            is_so = now.get(submitter)
            same = isinstance(is_so, (int, float)) and abs(is_so - factor) <= 1e-3 * factor
            no = (
                f"the factor of {submitter} is {is_so}; check that the daemon's "
                "user may set factors"
            )
            replies[submitter] = ("done", "") if same else ("refused", no)
        return replies

    def reschedule(self) -> Reply:
        """Ask for a negotiation soon."""
        try:
            self._schedd().reschedule()
        except (AdapterError, *self._failures) as error:
            return _refusal(error)
        return "done", ""

    def _edited(self, names: list[str], attribute: str, value: str) -> Reply:
        try:
            self._schedd().edit(names, attribute, value)
        except (AdapterError, *self._failures) as error:
            return _refusal(error)
        return "done", ""

    # The daemons

    def _collector(self) -> Any:
        return self._condor.Collector(self._settings.collector or None)

    def _schedd_ad(self) -> Any:
        name = self._settings.schedd
        where = self._collector() if name else self._condor.Collector()
        return self._located("schedd", where, self._condor.DaemonType.Schedd, name)

    def _schedd(self) -> Any:
        return self._condor.Schedd(self._schedd_ad())

    def _negotiator(self) -> Any:
        kind = self._condor.DaemonType.Negotiator
        return self._condor.Negotiator(self._located("negotiator", self._collector(), kind))

    def _located(self, daemon: str, collector: Any, kind: Any, name: str = "") -> Any:
        """Return the ad that says where a daemon is; the last one known if there is none.

        A collector that has just been started may not have heard of it yet.
        """
        try:
            ad = collector.locate(kind, name) if name else collector.locate(kind)
        except self._failures:
            ad = None
            if daemon not in self._places:
                raise
        ad = self._places.get(daemon) if ad is None else ad
        if ad is None:
            raise AdapterError(f"the collector knows no {daemon} {name}; {_REMEDIES[daemon]}")
        self._places[daemon] = ad
        return ad

    # Ads

    def _ask(self, daemon: str, call: Callable[[], T]) -> T:
        """Return what a call of the bindings returns; its error is ours.

        A daemon that was started anew refuses the session that it had with us, once.
        """
        for _ in range(TRIES - 1):
            with suppress(*self._failures):
                return call()
        try:
            return call()
        except self._failures as error:
            self._fail(daemon, error)

    def _fail(self, daemon: str, error: Exception) -> NoReturn:
        said = " ".join(str(error).split())[:300]
        raise AdapterError(f"the {daemon} does not answer ({said}); {_REMEDIES[daemon]}") from error

    def _records(
        self, daemon: str, call: Callable[[], Iterable[Any]], worked_out: Sequence[str] = ()
    ) -> list[Record]:
        return [self._record(ad, worked_out) for ad in self._ask(daemon, call)]

    def _record(self, ad: Any, worked_out: Sequence[str] = ()) -> Record:
        """Return the record of an ad; `worked_out`: attributes whose expressions are evaluated."""
        items = self._items(ad)
        for name, value in items.items():
            if name.lower() in worked_out and type(value) not in _PLAIN:
                items[name] = ad.eval(name)
        return self._plain(items)

    def _plain(self, items: Mapping[str, Any]) -> Record:
        """Return attributes as a record; those that are undefined are left out."""
        record: Record = {}
        for name, value in items.items():
            key = name.lower()
            if type(value) in _PLAIN:
                record[key] = value
            elif value is not self._classad.Value.Undefined:
                record[key] = Expression(value)
        return record

    def _of_slots(self, *conditions: str) -> str:
        """Return the constraint for slots that the settings leave to us."""
        said = self._settings.constraint.strip()
        own = (f"({said})",) if said else ()
        return " && ".join(("SlotID =!= undefined", *own, *conditions))

    def _machine(self, ad: Any) -> Machine:
        """Return what a slot says of its machine; lists as they are written, no nested ads."""
        items = self._items(ad)
        plain = {
            name: ad.lookup(name) if isinstance(value, list) else value
            for name, value in items.items()
            if type(value) is not type(ad)
        }
        return Machine(gpus_in(items), lasting_attributes(self._plain(plain)))

    def _items(self, ad: Any) -> dict[str, Any]:
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


def _named(names: Sequence[str]) -> str:
    """Return the constraint for ads of these names."""
    return f"member(Name, {{{', '.join(map(literal, names))}}})"


def fits_free(job: Any, slot: Any) -> bool:
    """Return whether a job's Requirements hold on a slot, if nobody has a part of that.

    The bindings cannot count GPUs that suit a job (countMatches) while they match two ads, so they
    are counted before. Both ads are changed.
    """
    if slot.get("PartitionableSlot") is True:
        for name in ("Cpus", "Memory", "Disk", "GPUs"):
            if f"TotalSlot{name}" in slot:
                slot[name] = slot[f"TotalSlot{name}"]
    written = job.lookup("Requirements") if "Requirements" in job else None
    if "RequireGPUs" in job and written is not None:
        counted = _COUNTED.sub(str(suiting_gpus(job, slot)), str(written))
        job["Requirements"] = type(written)(counted)
    fits: bool = slot.matches(job)
    if written is not None:
        job["Requirements"] = written
    return fits


def _refusal(error: Exception) -> Reply:
    """Return what became of a request that raised."""
    said = " ".join(str(error).split())[:300]
    return ("refused" if _REFUSED.search(said) else "failed"), said


class PatientPool(Pool):
    """A pool that never waits for its negotiator longer than for the others.

    Parameters
    ----------
    settings : CondorSettings
        The `[condor]` table.

    Raises
    ------
    AdapterError
        If the bindings cannot be loaded.
    """

    def __init__(self, settings: CondorSettings) -> None:
        limit = settings.query_timeout_s / TRIES
        self._apart = SubprocessProxy(partial(Pool, settings), limit, REST_S)
        self._known: tuple[str, ...] = ()
        super().__init__(settings)

    def configure(self) -> None:
        """Read HTCondor's configuration anew; who asks the negotiator begins anew with it.

        Raises
        ------
        AdapterError
            If it cannot be read.
        """
        super().configure()
        names = ("COLLECTOR_HOST", "SEC_CLIENT_AUTHENTICATION_METHODS", "UID_DOMAIN")
        known = tuple(map(self.word, names))
        if known != self._known:
            self._apart.end()
        self._known = known

    def submitters(self) -> list[Record]:
        """Return the negotiator's accounting, one record per submitter or group.

        Raises
        ------
        AdapterError
            If it does not answer in time, or did not some minutes ago.
        """
        try:
            found: list[Record] = self._apart.call("submitters")
        except AdapterError as error:
            raise AdapterError(f"the negotiator: {error}") from error
        return found

    def set_factors(self, factors: Mapping[str, float]) -> dict[str, Reply]:
        """Set priority factors by submitter."""
        try:
            replies: dict[str, Reply] = self._apart.call("set_factors", dict(factors))
        except AdapterError as error:
            return dict.fromkeys(factors, ("failed", f"the negotiator: {error}"))
        return replies
