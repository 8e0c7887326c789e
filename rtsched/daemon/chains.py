"""The site's chain of plug-ins, in the modes that hold for each partition and QOS."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.chain import Chain
from rtsched.daemon.settings import chosen_modes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
