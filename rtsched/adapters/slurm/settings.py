"""The `[slurm]` table of a site file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0)]


class SlurmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rtsched reads and changes Slurm."""

    route: Annotated[
        Literal["auto", "pyslurm", "commands"],
        Meta(
            description="How the state is read. `auto`: pyslurm where it fits the installed Slurm, "
            "else Slurm's commands."
        ),
    ] = "auto"
    bin_dir: Annotated[
        str, Meta(description="Where Slurm's commands are; empty: the daemon's PATH.")
    ] = ""
    command_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds that one command may take.")
    ] = 15.0
    user: Annotated[
        str, Meta(description="The daemon's own user: reservations of jobs not yet queued are its.")
    ] = "rtsched"
    start_delay_s: Annotated[
        Seconds, Meta(description="Seconds from a planned start to the job's start at the latest.")
    ] = 5.0
    completing_s: Annotated[
        Seconds,
        Meta(description="Seconds that nodes need after a job's end: epilog, completing state."),
    ] = 10.0
    horizon_s: Annotated[
        float | None,
        Meta(
            description="Starts that are farther away get no reservation yet. Not given: the "
            "longest time limit of any partition, and `grace_s` for a daemon that is away."
        ),
    ] = None
    grace_s: Annotated[
        Seconds,
        Meta(
            description="How long a reservation outlasts the planned end, so that a job that "
            "started late is not killed while the daemon is down."
        ),
    ] = 600.0
    reserved_ahead_s: Annotated[
        Seconds,
        Meta(
            description="Nodes in somebody else's reservation take no promised job from this long "
            "before it begins; a plan that reaches farther ahead may run into it."
        ),
    ] = 86400.0
    promised_first: Annotated[
        bool,
        Meta(
            description="Promised jobs get a site factor above all others, by deadline. Without "
            "it a long queue may hide a promised job from the scheduler, which looks at the first "
            "jobs only (`default_queue_depth`)."
        ),
    ] = True
    site_factor_scale: Annotated[
        float, Meta(gt=0, description="Site factor per unit of priority.")
    ] = 1000.0
    site_factor_step: Annotated[
        int, Meta(ge=1, description="Site factors are multiples of this; less is no change.")
    ] = 10
    site_factors_per_cycle: Annotated[
        int, Meta(ge=0, description="Most jobs whose site factor changes in one cycle.")
    ] = 1000
    sizes_per_cycle: Annotated[
        int, Meta(ge=0, description="Most best-effort jobs whose node count changes in one cycle.")
    ] = 200
    memory: Annotated[
        str,
        Meta(
            description="File that keeps, over restarts, what was set in jobs and Slurm does not "
            "show: node counts asked for, node lists given, site factors; empty: none."
        ),
    ] = "/var/lib/rtsched/slurm-memory.json"
    bound_late: Annotated[
        int,
        Meta(ge=0, description="Most single-node jobs that are sent to one idle node at a time."),
    ] = 20
    bound_late_s: Annotated[
        Seconds, Meta(description="When a job sent to a node has not started, it is let go again.")
    ] = 60.0
    node_weights: Annotated[
        bool,
        Meta(description="Set node weights from delay classes; needs AdminLevel=Admin."),
    ] = False
    speeds: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(description="Relative speed by node name or feature; a name counts first."),
    ] = {}
    accounts_every_s: Annotated[
        Seconds, Meta(description="Seconds between two readings of the accounts' shares.")
    ] = 300.0
