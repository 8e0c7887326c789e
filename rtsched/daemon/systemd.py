"""The daemon as a service of systemd: its state, and its log, one JSON object a line.

References
----------
Manual pages sd_notify(3), sd_watchdog_enabled(3); systemd.service(5), `WatchdogSec`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Literal

import msgspec
import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STARTING = 10.0
"""Seconds between two requests for more time to start, where no watchdog says how often."""


def notify(state: str, flags: int = 0) -> None:
    """Send a state such as `READY=1`; nothing happens where nobody waits for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(state.encode(), flags, address.replace("@", "\0", 1))


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Callable[[], None]]:
    """Tell systemd, in this block, that the loop goes round; give what to call when it is ready."""
    ready = asyncio.Event()
    watching = asyncio.create_task(watch(ready.is_set))

    def report_ready() -> None:
        notify("READY=1")
        ready.set()

    try:
        yield report_ready
    finally:
        watching.cancel()


async def watch(ready: Callable[[], bool]) -> None:
    """Tell the watchdog, until cancelled, that the loop which runs this goes round.

    A loop that hangs falls silent, and systemd starts the daemon anew. While the daemon is not
    `ready` it asks for more time to start instead: compiling may take longer than
    `TimeoutStartSec`.
    """
    limit = _watchdog()
    pause = limit / 2 or STARTING
    extension = f"EXTEND_TIMEOUT_USEC={4 * max(pause, STARTING) * 1e6:.0f}"
    while limit or not ready():
        notify("WATCHDOG=1" if ready() else extension, socket.MSG_DONTWAIT)
        await asyncio.sleep(pause)


def _watchdog() -> float:
    """Return the seconds after which systemd takes this process for hung; 0: it does not watch."""
    try:
        limit = int(os.environ.get("WATCHDOG_USEC", "0")) * 1e-6
        mine = int(os.environ.get("WATCHDOG_PID", os.getpid())) == os.getpid()
    except ValueError:
        return 0.0
    return limit if mine and limit > 0 else 0.0


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
