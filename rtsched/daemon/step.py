"""Step: what became of the site, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rtsched.model.events import NO_EVENTS, Events, joined

if TYPE_CHECKING:
    from rtsched.daemon.records import JournalEntry, PromiseRecord
    from rtsched.daemon.site import Site
    from rtsched.model.actions import Action


@dataclass(frozen=True)
class Step:
    """A change of the site by a poll, a verdict or a new plan.

    Attributes
    ----------
    site : Site
        After it.
    changed : tuple of PromiseRecord
        Promises that were given, kept or broken, to be written down.
    actions : tuple of Action
        What is asked of the batch system for it, and what users are notified of.
    journal : tuple of JournalEntry
        Verdicts, for `rtsched explain`.
    events : Events
        What happened since the poll before, for plug-ins.
    problems : tuple of str
        What could not be judged or planned, one sentence each. The site is then as it was, and the
        next cycle tries again.
    """

    site: Site
    changed: tuple[PromiseRecord, ...] = ()
    actions: tuple[Action, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    events: Events = NO_EVENTS
    problems: tuple[str, ...] = ()

    def then(self, later: Step) -> Step:
        """Return this step and one from the site after it as one."""
        return Step(
            later.site,
            self.changed + later.changed,
            self.actions + later.actions,
            self.journal + later.journal,
            joined([self.events, later.events]) if len(later.events) else self.events,
            self.problems + later.problems,
        )
