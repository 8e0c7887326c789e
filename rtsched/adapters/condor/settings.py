"""The `[condor]` table of a site file."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.adapters.condor.ids import SCHEDDS, JobNames
from rtsched.adapters.local_days import DAY_S

Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class Recurring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[condor.recurring]]` table: slots that belong to other work from time to time.

    No best-effort job that would reach into an occurrence starts there, and no promise is planned
    into one.
    """

    slots: Annotated[
        list[str],
        Meta(min_length=1, description="Names of slots, or of machines: all their slots."),
    ]
    first: Annotated[
        str, Meta(description="Local time of an occurrence, such as 2026-12-24T02:00.")
    ]
    every_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds from one start to the next. Whole days are counted by the local "
            "clock, as cron does, unless `first` names a zone (`+01:00`).",
        ),
    ]
    length_s: Annotated[float, Meta(gt=0, description="Duration of an occurrence, seconds.")]

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

    collector: Annotated[
        str, Meta(description="The pool's collector, `host[:port]`; empty: the configured one.")
    ] = ""
    schedd: Annotated[
        str, Meta(description="Name of the schedd whose jobs are evaluated; empty: the local one.")
    ] = ""
    schedds: Annotated[
        list[str],
        Meta(
            max_length=SCHEDDS,
            description="Names of the schedds whose jobs are evaluated, where they are several. "
            "Promises refer to places in this list: add names at its end, and replace one that is "
            "no more by an empty one. A schedd that was the only one before comes first.",
        ),
    ] = []
    user: Annotated[str, Meta(description="The Unix user that the daemon runs as.")] = "rtsched"
    table: Annotated[
        str,
        Meta(
            description="File in which the ClassAd library looks up slots; its directory must be "
            "writable for the daemon and readable for HTCondor."
        ),
    ] = "/run/rtsched/slots"
    table_valid_s: Annotated[
        float,
        Meta(
            gt=0,
            description="After this many seconds without an update of the table, HTCondor ignores "
            "it and places jobs as if nothing were planned. The daemon rewrites it in time, "
            "changed or not.",
        ),
    ] = 900.0
    constraint: Annotated[
        str,
        Meta(
            description="ClassAd expression that selects the slots that rtsched uses. Empty: "
            "all slots."
        ),
    ] = ""
    unit_cpus: Annotated[
        int,
        Meta(
            ge=1,
            description="A partitionable slot counts as one node per this many CPUs. A promised "
            "job gets whole nodes.",
        ),
    ] = 1
    share_nodes: Annotated[
        bool,
        Meta(
            description="A partitionable slot is one node, of which promised jobs take the CPUs, "
            "memory, GPUs and disk that they ask for; `unit_cpus` does not count then. Parallel "
            "jobs get no promise."
        ),
    ] = False
    arrays: Annotated[
        bool,
        Meta(
            description="A cluster of several procs with a deadline gets one promise. Otherwise "
            "each proc is a job by itself, as the planner `spare` needs it."
        ),
    ] = True
    start_delay_s: Annotated[
        Seconds | None,
        Meta(
            description="Maximum seconds from a planned start to the job's start. Default: two "
            "negotiation intervals of the pool, plus 10.",
        ),
    ] = None
    completing_s: Annotated[
        Seconds,
        Meta(description="Seconds from a job's end until the next job can start on its slot."),
    ] = 10.0
    run_time_s: Annotated[
        Positive | None,
        Meta(
            description="Run time of jobs that state none (RtRunTime). Not set: unlimited; such "
            "jobs start only where nothing is planned.",
        ),
    ] = None
    overrun_s: Annotated[
        Seconds,
        Meta(
            description="Seconds by which a job may exceed its stated run time before HTCondor "
            "ends it: the interval of its checks."
        ),
    ] = 30.0
    reserve_ahead_s: Annotated[
        Positive | None,
        Meta(
            description=(
                "Starts farther in the future than this reserve no slots yet. Not "
                "set: all starts reserve slots."
            ),
        ),
    ] = None
    factors: Annotated[
        bool, Meta(description="Set users' priority factors from the terms of fair-share plug-ins.")
    ] = True
    factor_step: Annotated[
        float, Meta(gt=0, description="A factor is updated when it differs by this fraction.")
    ] = 0.05
    factor_min: Annotated[float, Meta(ge=1, description="Minimum priority factor that is set.")] = (
        1.0
    )
    factor_max: Annotated[float, Meta(ge=1, description="Maximum priority factor that is set.")] = (
        1000000.0
    )
    priorities_per_cycle: Annotated[
        int, Meta(ge=0, description="Maximum number of jobs whose JobPrio changes per cycle.")
    ] = 1000
    sizes_per_cycle: Annotated[
        int,
        Meta(
            ge=0, description="Maximum number of parallel jobs whose host count changes per cycle."
        ),
    ] = 100
    overruns: Annotated[
        Literal["vacate", "remove", "leave"],
        Meta(
            description="What the daemon does with a best-effort job that exceeds its stated run "
            "time if HTCondor's own policy did not act."
        ),
    ] = "vacate"
    speeds: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(
            description="Relative speed by slot name, machine or RtClass; a slot's name counts "
            "first, its attribute RtSpeed last."
        ),
    ] = {}
    shares: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(
            description="Shares by submitter (with or without domain), user or group; default 1. "
            "Priority factors are not shares: rtsched sets them."
        ),
    ] = {}
    recurring: Annotated[
        list[Recurring],
        Meta(description="Recurring work on slots outside HTCondor."),
    ] = []
    query_timeout_s: Annotated[
        float, Meta(gt=0, description="Timeout of one query to HTCondor, seconds.")
    ] = 20.0

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
