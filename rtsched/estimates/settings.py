"""Settings of start estimates."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class EstimateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[estimates]` table of a site.toml."""

    enabled: Annotated[bool, Meta(description="Whether the daemon estimates starts.")] = True
    draws: Annotated[
        int, Meta(ge=8, le=1000, description="Simulations of the queue per estimate, at the most.")
    ] = 64
    longest: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds into an estimate after which no further simulation begins, if "
            "there are 8.",
        ),
    ] = 4.0
    history_days: Annotated[
        float, Meta(gt=0, description="Days of ended jobs from which run times are drawn.")
    ] = 90.0
    horizon_days: Annotated[
        float,
        Meta(gt=0, description="Days that are simulated ahead; a later start is not estimated."),
    ] = 14.0
    refresh: Annotated[
        float, Meta(gt=0, description="Least seconds between two estimates of all jobs.")
    ] = 30.0
    core_share: Annotated[
        float,
        Meta(gt=0, le=1, description="Share of one core that estimates take, on average."),
    ] = 0.3
