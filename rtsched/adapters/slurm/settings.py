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
            description="How Slurm is polled. `auto`: by pyslurm if it matches the installed "
            "Slurm, else by Slurm's commands."
        ),
    ] = "auto"
    bin_dir: Annotated[
        str, Meta(description="Directory of Slurm's commands; empty: the daemon's PATH.")
    ] = ""
    command_timeout_s: Annotated[
        float, Meta(gt=0, description="Timeout of one command, seconds.")
    ] = 15.0
    share_nodes: Annotated[
        bool,
        Meta(
            description="Promised jobs take the cores, memory and GPUs that they ask for, and "
            "other jobs run beside them; otherwise they have whole nodes. Needs select/cons_tres "
            "and priority/multifactor. Slurm's backfill scheduler then keeps their starts: they "
            "are first in the queue, in the order of the plan, each with its planned nodes, and "
            "no reservations are made."
        ),
    ] = False
    user: Annotated[
        str,
        Meta(
            description="The daemon's user, who owns reservations for jobs that are not queued yet."
        ),
    ] = "rtsched"
    start_delay_s: Annotated[
        Seconds, Meta(description="Maximum seconds from a planned start to the job's start.")
    ] = 5.0
    completing_s: Annotated[
        Seconds,
        Meta(description="Seconds that nodes need after a job's end (epilog, completing state)."),
    ] = 10.0
    horizon_s: Annotated[
        float | None,
        Meta(
            description="Starts farther in the future than this get no reservation yet. Default: "
            "the longest time limit of any partition plus `grace_s`, which covers an outage of the "
            "daemon."
        ),
    ] = None
    grace_s: Annotated[
        Seconds,
        Meta(
            description="Seconds by which a reservation outlasts the planned end, so that a job "
            "that started late is not killed while the daemon is down."
        ),
    ] = 600.0
    reserved_ahead_s: Annotated[
        Seconds,
        Meta(
            description="Licenses in the site's own reservations, and their nodes with a planner "
            "that cannot plan around these, are used for no promised job from this many seconds "
            "before the reservation starts."
        ),
    ] = 86400.0
    promised_first: Annotated[
        bool,
        Meta(
            description="Promised jobs get a site factor above all others, by deadline, from "
            "their submission on. Without it, jobs that wait already may take their nodes before "
            "these are reserved, and a long queue may hide a promised job from the scheduler, "
            "which considers only the first jobs (`default_queue_depth`)."
        ),
    ] = True
    site_factor_scale: Annotated[
        float, Meta(gt=0, description="Site factor per unit of priority.")
    ] = 1000.0
    site_factor_step: Annotated[
        int,
        Meta(ge=1, description="Site factors are multiples of this; smaller changes are not made."),
    ] = 10
    site_factors_per_cycle: Annotated[
        int, Meta(ge=0, description="Maximum number of jobs whose site factor changes per cycle.")
    ] = 1000
    sizes_per_cycle: Annotated[
        int,
        Meta(
            ge=0,
            description="Maximum number of best-effort jobs whose node count changes per cycle.",
        ),
    ] = 200
    memory: Annotated[
        str,
        Meta(
            description="File that records what rtsched changed in jobs and Slurm does not show "
            "(requested node counts, node lists, site factors), for use after a restart; empty: "
            "none."
        ),
    ] = "/var/lib/rtsched/slurm-memory.json"
    bound_late: Annotated[
        int,
        Meta(
            ge=0, description="Maximum number of single-node jobs sent to one idle node at a time."
        ),
    ] = 20
    bound_late_s: Annotated[
        Seconds,
        Meta(
            description="Seconds after which a job that was sent to a node and has not "
            "started may start anywhere again."
        ),
    ] = 60.0
    node_weights: Annotated[
        bool,
        Meta(description="Set node weights from delay classes; needs AdminLevel=Admin."),
    ] = False
    speeds: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(description="Relative speed by node name or feature; names take precedence."),
    ] = {}
    accounts_every_s: Annotated[
        Seconds, Meta(description="Seconds between polls of the accounts' shares.")
    ] = 300.0
