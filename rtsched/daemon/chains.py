"""Chains of plug-ins, in the modes that hold for each partition and QOS; a changed site.toml."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import structlog

from rtsched.core.chain import Chain
from rtsched.daemon.settings import chosen_modes
from rtsched.daemon.systemd import notify
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.core.config import Mode
    from rtsched.daemon.settings import Scope
    from rtsched.model.jobs import Jobs


class Chains:
    """One chain, and its variants with other modes; they share their plug-ins.

    Parameters
    ----------
    chain : Chain
        As configured, without scopes.
    scopes : sequence of Scope
        Where other modes hold.

    Attributes
    ----------
    planner_alone : Chain or None
        The planner by itself, enforced; None if the site has no planner.
    """

    def __init__(self, chain: Chain, scopes: Sequence[Scope]) -> None:
        self.chain, self._scopes = chain, list(scopes)
        self._modes = [(member.name, member.mode) for member in chain.members]
        self._variants: dict[tuple[Mode, ...], Chain] = {}
        self.planner_alone = _alone(chain)

    def groups(self, jobs: Jobs) -> Iterator[tuple[NDArray[np.int64], Chain]]:
        """Yield the rows of jobs for which the same modes hold, and the chain with these modes."""
        if not self._scopes:
            yield np.arange(len(jobs)), self.chain
            return
        rows: dict[tuple[Mode, ...], list[int]] = {}
        for row, modes in enumerate(chosen_modes(jobs, self._modes, self._scopes)):
            rows.setdefault(modes, []).append(row)
        for modes, some in rows.items():
            yield np.array(some, np.int64), self._variant(modes)

    def of(self, job: Jobs) -> Chain:
        """Return the chain with the modes that hold for one job."""
        return next(chain for _, chain in self.groups(job))

    def without_planner(self, job: Jobs) -> Chain:
        """Return the plug-ins besides the planner, with the modes that hold for one job."""
        chain = self.of(job)
        return Chain([each for each in chain.members if each.name != chain.planner], None)

    def _variant(self, modes: tuple[Mode, ...]) -> Chain:
        if modes not in self._variants:
            pairs = zip(self.chain.members, modes, strict=True)
            members = [replace(member, mode=mode) for member, mode in pairs]
            judges = any(m.name == self.chain.planner and m.mode != "off" for m in members)
            self._variants[modes] = Chain(members, self.chain.planner if judges else None)
        return self._variants[modes]

    def all(self) -> list[Chain]:
        """Return the chain and all its variants, for their hook metrics."""
        return [self.chain, *self._variants.values()]


def _alone(chain: Chain) -> Chain | None:
    name = chain.planner
    return None if name is None else Chain([replace(chain.member(name), mode="enforce")], name)


T = TypeVar("T")

log = structlog.get_logger(__name__)

NOT_RELOADED = (
    "the changed site.toml is invalid, the previous settings remain in effect; correct it and "
    "reload again"
)
NOT_FOLLOWED = (
    "{} in site.toml differ from the settings in effect, and are followed from the next start on; "
    "restart the daemon (no promise is lost)"
)


class ConfigReloader(Generic[T]):
    """Reads the settings again when asked to, one time after the other.

    Parameters
    ----------
    read : callable
        Returns what the settings come to; called in a thread.
    take : callable
        Takes that in, on the loop; returns what of it does not take effect, in a sentence.

    Attributes
    ----------
    problem : str
        Why the last reload failed, or what of it did not take effect, in a sentence; may be empty.
    task : asyncio.Task or None
        The reload under way.
    """

    def __init__(self, read: Callable[[], T], take: Callable[[T], str]) -> None:
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
                    self.problem = self._take(found)
                    log.info("settings_reloaded", problem=self.problem)
        finally:
            self.task = None
            notify("READY=1")
