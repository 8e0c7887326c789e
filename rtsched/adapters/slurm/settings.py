"""The `[slurm]` table of a site file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0)]


class SlurmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rtsched reads and changes Slurm."""

    route: Literal["auto", "pyslurm", "commands"] = "auto"
    """How Slurm is polled. `auto`: by pyslurm if it matches the installed Slurm, else by Slurm's
    commands."""
    bin_dir: str = ""
    """Directory of Slurm's commands; empty: the daemon's PATH."""
    command_timeout_s: Annotated[float, Meta(gt=0)] = 15.0
    """Timeout of one command, seconds."""
    share_nodes: bool = False
    """Promised jobs take the cores, memory and GPUs that they ask for, and other jobs run beside
    them; otherwise they have whole nodes. Needs select/cons_tres and priority/multifactor. Slurm's
    backfill scheduler then keeps their starts: they are first in the queue, in the order of the
    plan, each with its planned nodes, and no reservations are made."""
    user: str = "rtsched"
    """The daemon's user, who owns reservations for jobs that are not queued yet."""
    start_delay_s: Seconds = 5.0
    """Maximum seconds from a planned start to the job's start."""
    completing_s: Seconds = 10.0
    """Seconds that nodes need after a job's end (epilog, completing state)."""
    horizon_s: float | None = None
    """Starts farther in the future than this get no reservation yet. Default: the longest time
    limit of any partition plus `grace_s`, which covers an outage of the daemon."""
    grace_s: Seconds = 600.0
    """Seconds by which a reservation outlasts the planned end, so that a job that started late is
    not killed while the daemon is down."""
    reserved_ahead_s: Seconds = 86400.0
    """Licenses in the site's own reservations, and their nodes with a planner that cannot plan
    around these, are used for no promised job from this many seconds before the reservation
    starts."""
    promised_first: bool = True
    """Promised jobs get a site factor above all others, by deadline, from their submission on.
    Without it, jobs that wait already may take their nodes before these are reserved, and a long
    queue may hide a promised job from the scheduler, which considers only the first jobs
    (`default_queue_depth`)."""
    site_factor_scale: Annotated[float, Meta(gt=0)] = 1000.0
    """Site factor per unit of priority."""
    site_factor_step: Annotated[int, Meta(ge=1)] = 10
    """Site factors are multiples of this; smaller changes are not made."""
    site_factors_per_cycle: Annotated[int, Meta(ge=0)] = 1000
    """Maximum number of jobs whose site factor changes per cycle."""
    sizes_per_cycle: Annotated[int, Meta(ge=0)] = 200
    """Maximum number of best-effort jobs whose node count changes per cycle."""
    memory: str = "/var/lib/rtsched/slurm-memory.json"
    """File that records what rtsched changed in jobs and Slurm does not show (requested node
    counts, node lists, site factors), for use after a restart; empty: none."""
    bound_late: Annotated[int, Meta(ge=0)] = 20
    """Maximum number of single-node jobs sent to one idle node at a time."""
    bound_late_s: Seconds = 60.0
    """Seconds after which a job that was sent to a node and has not started may start anywhere
    again."""
    node_weights: bool = False
    """Set node weights from delay classes; needs AdminLevel=Admin."""
    speeds: dict[str, Annotated[float, Meta(gt=0)]] = {}
    """Relative speed by node name or feature; names take precedence."""
    accounts_every_s: Seconds = 300.0
    """Seconds between polls of the accounts' shares."""
