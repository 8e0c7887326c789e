"""Events of which a job's user can be notified, and how a submission chooses among them.

Each system reads its own words (`rtsched:notify=` on Slurm, RtNotify on HTCondor), and
`rtsched notices` sends. docs/notices.md describes the events.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Event: TypeAlias = Literal["promised", "moved", "at-risk", "broken", "kept"]
"""A job in the queue is promised its deadline; its planned start moved; it runs and may end too
late, or the odds of a likely promise have fallen; the promise was missed, or cannot be kept; it was
kept."""

EVENTS: tuple[Event, ...] = get_args(Event)

CHOICES = f"none, or some of {', '.join(EVENTS)} with + between them"


def notify_choice(text: str) -> str:
    """Return the events of which a user wants to be notified, with `+` between them.

    `none` means no events; empty: the text makes no sense.
    """
    words = text.strip().lower().split("+")
    if words == ["none"]:
        return "none"
    return "+".join(name for name in EVENTS if name in words) if {*words} <= {*EVENTS} else ""
