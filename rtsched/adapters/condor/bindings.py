"""HTCondor's Python bindings: the only place that knows how they are loaded, and what they raise.

Ads come back as records: attributes by their names in lower case, literals as Python's values, and
other expressions as their text. An undefined attribute is left out.

Source: HTCondor's manual, "htcondor2 API reference" and "classad2 API reference".
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rtsched.errors import AdapterError
from rtsched.logs.classads import Expression, Record, names_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rtsched.adapters.changes import Reply

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
