"""Where jobs that ended are read from, by the site's batch system."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rtsched.adapters.condor.completions import past_jobs as condor_past
from rtsched.adapters.slurm.completions import past_jobs as slurm_past

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.daemon.settings import LiveSite
    from rtsched.model.log import Log


def past_of(live: LiveSite) -> Callable[[float, float], Log]:
    """Return what reads the jobs that ended between two times, seconds since the epoch."""
    if live.daemon.system == "condor":
        return partial(condor_past, live.condor)
    return partial(slurm_past, live.slurm)
