"""Nodes that jobs share die under promised jobs, and stay dead: who is told, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import failures
import shared_nodes
from failures import Killer
from workload_driver import Setup

if TYPE_CHECKING:
    from pathlib import Path

    from workload_driver import Live


def run(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the stream while nodes die; return the figures, and what was said of each miss."""
    killer = Killer(40, 30, 2) if reduced else Killer(90, 90, 4)
    extent = system.reduced if reduced else system.full
    setup = Setup(True, shared_nodes.site(system), single=True)
    side = shared_nodes.play_side(
        system, extent, setup, keep / "shared-failures" if keep else None, killer
    )
    return failures.told(system, side, shared_nodes.figures(system, side), killer)


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    del system
    ours = found["rtsched"]
    return [
        *failures.untold(found["misses"]),
        *([f"{ours['strays']} jobs ran where they were not to"] if ours["strays"] else []),
        *([] if ours["killed_nodes"] > 1 else ["fewer than two nodes were killed"]),
    ]
