"""The `[condor]` table of a site file."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.adapters.condor.ids import SCHEDDS, JobNames
from rtsched.adapters.recurring import DAY_S

Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class Recurring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[condor.recurring]]` table: slots that belong to other work from time to time.

    No best-effort job that would reach into an occurrence starts there, and no promise is planned
    into one.
    """

    slots: Annotated[list[str], Meta(min_length=1)]
    """Names of slots, or of machines: all their slots."""
    first: str
    """Local time of an occurrence, such as 2026-12-24T02:00."""
    every_s: Annotated[float, Meta(gt=0)]
    """Seconds from one start to the next. Whole days are counted by the local clock, as cron does,
    unless `first` names a zone (`+01:00`)."""
    length_s: Annotated[float, Meta(gt=0)]
    """Duration of an occurrence, seconds."""

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.first)
        if self.length_s >= self.every_s:
            raise ValueError("length_s must be less than every_s")

    @property
    def by_local_clock(self) -> bool:
        """Whether it begins at the same local time, also after clocks were set."""
        return self.every_s % DAY_S == 0 and datetime.fromisoformat(self.first).tzinfo is None

    def begins(self, number: int) -> float:
        """Return when an occurrence begins, from 0, in seconds since the epoch."""
        first, later = datetime.fromisoformat(self.first), number * self.every_s
        if self.by_local_clock:
            return (first + timedelta(seconds=later)).timestamp()
        return first.timestamp() + later


class CondorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rtsched reads and changes HTCondor."""

    collector: str = ""
    """The pool's collector, `host[:port]`; empty: the configured one."""
    schedd: str = ""
    """Name of the schedd whose jobs are evaluated; empty: the local one."""
    schedds: Annotated[list[str], Meta(max_length=SCHEDDS)] = []
    """Names of the schedds whose jobs are evaluated, where they are several. Promises refer to
    places in this list: add names at its end, and replace one that is no more by an empty one. A
    schedd that was the only one before comes first."""
    user: str = "rtsched"
    """The Unix user that the daemon runs as."""
    table: str = "/run/rtsched/slots"
    """File in which the ClassAd library looks up slots; its directory must be writable for the
    daemon and readable for HTCondor."""
    table_valid_s: Annotated[float, Meta(gt=0)] = 900.0
    """After this many seconds without an update of the table, HTCondor ignores it and places jobs
    as if nothing were planned. The daemon rewrites it in time, changed or not."""
    constraint: str = ""
    """ClassAd expression that selects the slots that rtsched uses. Empty: all slots."""
    unit_cpus: Annotated[int, Meta(ge=1)] = 1
    """A partitionable slot counts as one node per this many CPUs. A promised job gets whole
    nodes."""
    share_nodes: bool = False
    """A partitionable slot is one node, of which promised jobs take the CPUs, memory, GPUs and disk
    that they ask for; `unit_cpus` does not count then. Parallel jobs get no promise."""
    arrays: bool = True
    """A cluster of several procs with a deadline gets one promise. Otherwise each proc is a job by
    itself, as the planner `spare` needs it."""
    start_delay_s: Seconds | None = None
    """Maximum seconds from a planned start to the job's start. Default: two negotiation intervals
    of the pool, plus 10."""
    completing_s: Seconds = 10.0
    """Seconds from a job's end until the next job can start on its slot."""
    run_time_s: Positive | None = None
    """Run time of jobs that state none (RtRunTime). Not set: unlimited; such jobs start only where
    nothing is planned."""
    overrun_s: Seconds = 30.0
    """Seconds by which a job may exceed its stated run time before HTCondor ends it: the interval
    of its checks."""
    reserve_ahead_s: Positive | None = None
    """Starts farther in the future than this reserve no slots yet. Not set: all starts reserve
    slots."""
    factors: bool = True
    """Set users' priority factors from the terms of fair-share plug-ins."""
    factor_step: Annotated[float, Meta(gt=0)] = 0.05
    """A factor is updated when it differs by this fraction."""
    factor_min: Annotated[float, Meta(ge=1)] = 1.0
    """Minimum priority factor that is set."""
    factor_max: Annotated[float, Meta(ge=1)] = 1000000.0
    """Maximum priority factor that is set."""
    priorities_per_cycle: Annotated[int, Meta(ge=0)] = 1000
    """Maximum number of jobs whose JobPrio changes per cycle."""
    sizes_per_cycle: Annotated[int, Meta(ge=0)] = 100
    """Maximum number of parallel jobs whose host count changes per cycle."""
    overruns: Literal["vacate", "remove", "leave"] = "vacate"
    """What the daemon does with a best-effort job that exceeds its stated run time if HTCondor's
    own policy did not act."""
    speeds: dict[str, Annotated[float, Meta(gt=0)]] = {}
    """Relative speed by slot name, machine or RtClass; a slot's name counts first, its attribute
    RtSpeed last."""
    shares: dict[str, Annotated[float, Meta(gt=0)]] = {}
    """Shares by submitter (with or without domain), user or group; default 1. Priority factors are
    not shares: rtsched sets them."""
    recurring: list[Recurring] = []
    """Recurring work on slots outside HTCondor."""
    query_timeout_s: Annotated[float, Meta(gt=0)] = 20.0
    """Timeout of one query to HTCondor, seconds."""

    def __post_init__(self) -> None:
        if self.schedd and self.schedds:
            raise ValueError("set schedd or schedds, not both")
        named = [name.lower() for name in self.schedds if name]
        if self.schedds and len(set(named)) < max(len(named), 1):
            raise ValueError("schedds must name at least one, and none twice")

    @property
    def names(self) -> JobNames:
        """What jobs are called."""
        return JobNames(tuple(self.schedds))
