"""An HTCondor pool through its Python bindings: collector and negotiator, and its schedds.

The bindings ask the collector and the schedds within their limits, and the negotiator without one:
a negotiator that is stopped, or its machine, would stop every poll. So `PatientPool` has it asked
by a process of its own.

Sources: HTCondor's manual, "htcondor2 API reference" and "classad2 API reference"; HTCondor 25.14,
`Negotiator.getPriorities` and `setFactor` do not follow QUERY_TIMEOUT.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rtsched.adapters.child_process import SubprocessProxy
from rtsched.adapters.condor.expressions import gpus_in, suiting_gpus
from rtsched.adapters.condor.ids import schedd_of
from rtsched.adapters.condor.matching import MachineAd, lasting_attributes
from rtsched.adapters.condor.schedd import TRIES, Bindings, Schedd, named, refusal
from rtsched.errors import AdapterError
from rtsched.logs.classads import Record, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.commands import JobAction
    from rtsched.adapters.condor.settings import CondorSettings

T = TypeVar("T")

_COUNTED = re.compile(
    r"countMatches\(\s*MY\.RequireGPUs\s*,\s*TARGET\.AvailableGPUs\s*\)", re.IGNORECASE
)
REST_S = 300.0
"""Seconds for which a negotiator that did not answer is left alone."""

CALLS = 1000
"""Calls after which another process uses the bindings, since they lose memory: those of 25.14 a
copy of the name of each attribute that a query names, 5 KiB in a poll, and 1.7 KiB at each question
to the negotiator."""

_GONE: Reply = ("failed", "its schedd is no longer in [condor] schedds")
_NUMBERED = re.compile(r"(\D+)(\d+)")


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

    Attributes
    ----------
    schedds : dict of int to Schedd
        Those whose jobs are evaluated, by their places in the settings.
    """

    calls = CALLS

    def __init__(self, settings: CondorSettings) -> None:
        self._settings, self._bindings = settings, Bindings(settings.query_timeout_s)
        collector, several = settings.collector, settings.schedds
        self.schedds = {
            at: Schedd(self._bindings, name, at, collector, alone=not several)
            for at, name in enumerate(several or [settings.schedd])
            if name or not several
        }
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
        self._bindings.configure()

    def setting(self, name: str, otherwise: float) -> float:
        """Return a number of HTCondor's configuration on this machine."""
        return self._bindings.setting(name, otherwise)

    def word(self, name: str) -> str:
        """Return a text of HTCondor's configuration on this machine; empty if it is not set."""
        return self._bindings.word(name)

    def slots(self, attributes: Sequence[str]) -> list[Record]:
        """Return the slots that the collector knows, of those that the settings leave to us."""
        kind, constraint = self._condor.AdType.Startd, self._of_slots()
        return self._bindings.records(
            "collector",
            lambda: self._collector().query(kind, constraint, list(attributes)),
            ("machinemaxvacatetime",),
        )

    def machines(self, slots: Sequence[str] = ()) -> dict[str, MachineAd]:
        """Return what slots say of their machines, by their names; without names all slots.

        Dynamic slots are left out.
        """
        kind, constraint = self._condor.AdType.Startd, self._of_slots("DynamicSlot isnt true")
        if slots:
            constraint = f"{constraint} && {named(slots)}"
        ads = self._ask("collector", lambda: self._collector().query(kind, constraint))
        return {str(ad.get("Name")): self._machine(ad) for ad in ads}

    def collector_up(self) -> float:
        """Return for how many seconds the collector has been running; inf: it does not say."""
        kind = self._condor.AdType.Collector
        found = self._bindings.records(
            "collector", lambda: self._collector().query(kind, None, ["StatsLifetime"])
        )
        ages = [number(ad, "statslifetime") for ad in found]
        return min(filter(math.isfinite, ages), default=math.inf)

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
        kind = self._condor.AdType.Startd
        try:
            schedd = self.schedds.get(schedd_of(job))
            ad = schedd.ad(job) if schedd is not None else None
            found = self._ask("collector", lambda: self._collector().query(kind, named(slots)))
        except AdapterError:
            return True
        return ad is None or not found or any(fits_free(ad, slot) for slot in found)

    def submitters(self) -> list[Record]:
        """Return the negotiator's accounting, one record per submitter or group.

        The bindings of 25.14 tell apart only ten of them, by the last digit of their numbers; what
        they make of it still holds all attributes, and is put right here.
        """
        found = self._ask("negotiator", lambda: self._negotiator().getPriorities())
        mixed = getattr(found, "mapping", None)
        if mixed is None:
            return [self._bindings.record(ad) for ad in found]
        records: dict[str, Record] = defaultdict(dict)
        for digit, ad in mixed.items():
            for name, value in self._bindings.record(ad).items():
                numbered = _NUMBERED.fullmatch(name + str(digit))
                if numbered is not None:
                    records[numbered[2]][numbered[1]] = value
        return list(records.values())

    # Changing

    def edit(self, jobs: Sequence[int], attribute: str, value: str) -> list[Reply]:
        """Set an attribute of jobs to a ClassAd expression; return one reply per job."""
        replies: list[Reply] = [_GONE] * len(jobs)
        for at, schedd in self.schedds.items():
            rows = [row for row, job in enumerate(jobs) if schedd_of(job) == at]
            answers = schedd.edit([jobs[row] for row in rows], attribute, value) if rows else ()
            for row, reply in zip(rows, answers, strict=True):
                replies[row] = reply
        return replies

    def act(self, action: JobAction, job: int, reason: str = "") -> Reply:
        """Do something with a job; `done` if it was done, or was so before."""
        schedd = self.schedds.get(schedd_of(job))
        return _GONE if schedd is None else schedd.act(action, job, reason)

    def reschedule(self) -> Reply:
        """Ask for a negotiation soon: one negotiates for all schedds, whoever asks."""
        for schedd in self.schedds.values():
            reply = schedd.reschedule()
            if reply[0] == "done":
                break
        return reply

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
        except (AdapterError, *self._bindings.failures) as error:
            return dict.fromkeys(factors, refusal(error))
        for submitter, factor in factors.items():
            is_so = now.get(submitter)
            same = isinstance(is_so, (int, float)) and abs(is_so - factor) <= 1e-3 * factor
            no = (
                f"the factor of {submitter} is {is_so}; check that the daemon's "
                "user may set factors"
            )
            replies[submitter] = ("done", "") if same else ("refused", no)
        return replies

    # The daemons

    @property
    def _condor(self) -> Any:
        return self._bindings.condor

    def _ask(self, daemon: str, call: Callable[[], T]) -> T:
        return self._bindings.ask(daemon, call)

    def _collector(self) -> Any:
        return self._condor.Collector(self._settings.collector or None)

    def _negotiator(self) -> Any:
        kind = self._condor.DaemonType.Negotiator
        return self._condor.Negotiator(
            self._bindings.located("negotiator", self._collector(), kind)
        )

    def _of_slots(self, *conditions: str) -> str:
        """Return the constraint for slots that the settings leave to us."""
        also = self._settings.constraint.strip()
        own = (f"({also})",) if also else ()
        return " && ".join(("SlotID =!= undefined", *own, *conditions))

    def _machine(self, ad: Any) -> MachineAd:
        """Return what a slot says of its machine; lists as they are written, no nested ads."""
        items = self._bindings.items(ad)
        plain = {
            name: ad.lookup(name) if isinstance(value, list) else value
            for name, value in items.items()
            if type(value) is not type(ad)
        }
        return MachineAd(gpus_in(items), lasting_attributes(self._bindings.plain(plain)))


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
