"""The `[condor]` table of a site file."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
    length_s: Annotated[float, Meta(gt=0, description="Seconds that an occurrence takes.")]

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
        str, Meta(description="The pool's collector, `host[:port]`; empty: as HTCondor is set up.")
    ] = ""
    schedd: Annotated[
        str, Meta(description="Name of the schedd whose jobs are judged; empty: the local one.")
    ] = ""
    user: Annotated[str, Meta(description="The unix user that the daemon runs as.")] = "rtsched"
    table: Annotated[
        str,
        Meta(
            description="File that the ClassAd library looks slots up in; its directory must be "
            "writable for the daemon and readable for HTCondor."
        ),
    ] = "/run/rtsched/slots"
    table_valid_s: Annotated[
        float,
        Meta(
            gt=0,
            description="After so many seconds without a new table HTCondor places jobs as if "
            "nothing were planned. The table is written anew in good time, changed or not.",
        ),
    ] = 900.0
    constraint: Annotated[
        str, Meta(description="ClassAd expression; other slots are left alone. Empty: all slots.")
    ] = ""
    unit_cpus: Annotated[
        int,
        Meta(
            ge=1,
            description="A partitionable slot counts as so many nodes as it has times this many "
            "CPUs. A promised job gets whole nodes.",
        ),
    ] = 1
    start_delay_s: Annotated[
        Seconds | None,
        Meta(
            description="Seconds from a planned start to the job's start at the latest. Not "
            "given: two negotiation intervals of the pool, and 10.",
        ),
    ] = None
    completing_s: Annotated[
        Seconds,
        Meta(description="Seconds that a slot needs after a job's end before the next may start."),
    ] = 10.0
    run_time_s: Annotated[
        Positive | None,
        Meta(
            description="Run time of jobs that state none (RtRunTime). Not given: they may run "
            "for ever, and start only where nothing is planned.",
        ),
    ] = None
    overrun_s: Annotated[
        Seconds,
        Meta(
            description="Seconds by which a job may outlive its stated run time before HTCondor "
            "ends it: the interval of its checks."
        ),
    ] = 30.0
    reserve_ahead_s: Annotated[
        Positive | None,
        Meta(
            description="Starts that are farther away keep no slot yet. Not given: all starts do.",
        ),
    ] = None
    factors: Annotated[
        bool, Meta(description="Set users' priority factors from the fair-share plug-ins' terms.")
    ] = True
    factor_step: Annotated[
        float, Meta(gt=0, description="A factor is set anew when it differs by this fraction.")
    ] = 0.05
    factor_min: Annotated[float, Meta(ge=1, description="Least priority factor that is set.")] = 1.0
    factor_max: Annotated[
        float, Meta(ge=1, description="Greatest priority factor that is set.")
    ] = 1000000.0
    priorities_per_cycle: Annotated[
        int, Meta(ge=0, description="Most jobs whose JobPrio changes in one cycle.")
    ] = 1000
    sizes_per_cycle: Annotated[
        int, Meta(ge=0, description="Most parallel jobs whose host count changes in one cycle.")
    ] = 100
    overruns: Annotated[
        Literal["vacate", "remove", "leave"],
        Meta(
            description="What the daemon does with a best-effort job that outlives its stated run "
            "time, where HTCondor's own policy did not."
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
            description="Shares by submitter (with its domain or without), user or group; all "
            "others have 1. Priority factors are no shares: rtsched sets them."
        ),
    ] = {}
    recurring: Annotated[
        list[Recurring],
        Meta(description="Work that recurs on slots without being a job of HTCondor's."),
    ] = []
    query_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds that one question to HTCondor may take.")
    ] = 20.0
