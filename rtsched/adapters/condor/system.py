"""HTCondor as a live system."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rtsched.adapters.condor.commands import LastApplied, carried_out
from rtsched.adapters.condor.ids import schedd_of
from rtsched.adapters.condor.observer import Observer
from rtsched.adapters.condor.pool import CALLS, PatientPool
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.steering import CondorSteering
from rtsched.adapters.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.pool_state import PoolState
    from rtsched.adapters.condor.table import SlotTable
    from rtsched.adapters.live import Change, Completions, Done, Observation
    from rtsched.model.actions import Action


class CondorSystem:
    """An HTCondor pool that runs.

    Parameters
    ----------
    settings : CondorSettings
        The `[condor]` table.

    Raises
    ------
    AdapterError
        If HTCondor's Python bindings cannot be loaded, or its configuration cannot be read.
    """

    name = "condor"
    calls: float = CALLS

    def __init__(self, settings: CondorSettings | None = None) -> None:
        self.settings = settings or CondorSettings()
        self._pool = PatientPool(self.settings)
        self._observer = Observer(self.settings, self._pool)
        self._last_applied = LastApplied()
        self._view: PoolState | None = None

    def poll(self) -> Observation:
        """Return the pool's present state.

        Raises
        ------
        AdapterError
            If collector or schedd does not answer.
        """
        self._view = self._observer.poll()
        self._last_applied.keep_only(set(self._view.numbers.tolist()))
        return self._view.observation

    def find_completions(self, jobs: Sequence[int], since: float = -math.inf) -> Completions:
        """Return how jobs ended that left the queue, of those that the history still has.

        None of them ended before `since`, seconds since the epoch.

        Raises
        ------
        AdapterError
            If the schedd does not answer.
        """
        return self._observer.find_completions(jobs, since)

    def changes(self, actions: Sequence[Action]) -> Sequence[Change]:
        """Return what of the actions is not so yet, by the last poll.

        Jobs of a schedd that does not answer stay as they are: it starts none of them meanwhile.
        """
        if self._view is None:
            self.poll()
        view = self._view
        assert view is not None  # noqa: S101 -- a poll sets it
        steering = CondorSteering(view, self.settings, self._last_applied, time.time())
        found = [each for action in actions for each in steering.changes(action)]
        return [each for each in found if each.job < 0 or schedd_of(each.job) not in view.away]

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Do it, and return for each change what became of it; never raises for one of them."""
        done = carried_out(self._pool, self._publish, changes)
        now = time.time()
        for each in done:
            self._last_applied.remember(each, now)
        return done

    def _publish(self, table: SlotTable) -> Reply:
        """Write the table of slots; return what became of it."""
        path = self.settings.table
        try:
            replace_file(path, table.text(time.time(), self.settings.table_valid_s), 0o644)
        except OSError as error:
            why = (
                f"{path} cannot be written ({error.strerror}); its directory must "
                "belong to the daemon's user"
            )
            return "failed", why
        return "done", ""
