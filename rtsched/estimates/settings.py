"""Settings of start estimates."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class EstimateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[estimates]` table of a site.toml."""

    enabled: bool = True
    """Whether the daemon estimates starts."""
    draws: Annotated[int, Meta(ge=8, le=1000)] = 64
    """Simulations of the queue per estimate, at the most."""
    longest: Annotated[float, Meta(gt=0)] = 4.0
    """Seconds into an estimate after which no further simulation begins, if there are 8."""
    history_days: Annotated[float, Meta(gt=0)] = 90.0
    """Days of ended jobs from which run times are drawn."""
    horizon_days: Annotated[float, Meta(gt=0)] = 14.0
    """Days that are simulated ahead; a later start is not estimated."""
    refresh: Annotated[float, Meta(gt=0)] = 30.0
    """Least seconds between two estimates of all jobs."""
    core_share: Annotated[float, Meta(gt=0, le=1)] = 0.3
    """Share of one core that estimates take, on average."""
