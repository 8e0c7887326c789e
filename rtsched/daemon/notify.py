"""Tell systemd how the daemon is, where it runs under systemd.

References
----------
Manual pages sd_notify(3), sd_watchdog_enabled(3); systemd.service(5), `WatchdogSec`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

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

    def tell() -> None:
        notify("READY=1")
        ready.set()

    try:
        yield tell
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
