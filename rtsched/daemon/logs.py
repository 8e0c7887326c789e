"""What the daemon logs: one JSON object a line to standard error, for the journal.

Events are named for what happened (`promise_changed`, `cycle_failed`); what it happened to are
fields. Nothing else writes to standard error while the daemon runs well.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import msgspec
import structlog

Level = Literal["debug", "info", "warning", "error"]


def log_events(level: Level = "info") -> None:
    """Write events of this level and above to standard error from now on."""
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_line),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _line(event: dict[str, object], **_: object) -> str:
    """Return an event as JSON; what is no JSON stands there as Python writes it."""
    first = {name: event[name] for name in ("timestamp", "level", "event") if name in event}
    try:
        return msgspec.json.encode({**first, **event}, enc_hook=repr).decode()
    except (TypeError, ValueError):  # such as half of a character
        text = repr(event).encode("utf-8", "replace").decode()
        return msgspec.json.encode({**first, "unwritable": text}).decode()
