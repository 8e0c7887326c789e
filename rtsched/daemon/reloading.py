"""A changed site.toml is taken in beside the loop, by a daemon that is active or on standby."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from rtsched.daemon.notify import notify
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

log = structlog.get_logger(__name__)

NOT_RELOADED = (
    "the changed site.toml is invalid, the previous settings remain in effect; correct it and "
    "reload again"
)


class ConfigReloader(Generic[T]):
    """Reads the settings again when asked to, one time after the other.

    Parameters
    ----------
    read : callable
        Returns what the settings come to; called in a thread.
    take : callable
        Takes that in, on the loop.

    Attributes
    ----------
    problem : str
        Why the last reload failed, in a sentence; empty: it did not.
    task : asyncio.Task or None
        The reload under way.
    """

    def __init__(self, read: Callable[[], T], take: Callable[[T], None]) -> None:
        self._read, self._take = read, take
        self.problem = ""
        self.task: asyncio.Task[None] | None = None
        self._again = False

    def begin(self) -> None:
        """Begin to reload; what asks for it meanwhile has the settings read again."""
        self._again = True
        if self.task is None:
            self.task = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        """Read beside the loop; if that fails, all stays as it was."""
        try:
            while self._again:
                self._again = False
                notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
                try:
                    found = await asyncio.to_thread(self._read)
                except Exception as error:  # whatever a plug-in raises: the running ones go on
                    defect = not isinstance(error, RtschedError)
                    what = f"{type(error).__name__}: {error}" if defect else str(error)
                    log.error("reload_failed", error=what, exc_info=defect)
                    self.problem = f"{NOT_RELOADED}: {what}"
                else:
                    self._take(found)
                    self.problem = ""
                    log.info("settings_reloaded")
        finally:
            self.task = None
            notify("READY=1")
