"""A pool whose negotiator may hang: it is asked by a process of its own.

The bindings ask the collector and the schedd within their limits, and the negotiator without one: a
negotiator that is stopped, or its machine, would stop every poll.

Source: HTCondor 25.14, `Negotiator.getPriorities` and `setFactor` do not follow QUERY_TIMEOUT.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rtsched.adapters.child_process import SubprocessProxy
from rtsched.adapters.condor.pool import TRIES, Pool
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.logs.classads import Record

REST_S = 300.0
"""Seconds for which a negotiator that did not answer is left alone."""


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
