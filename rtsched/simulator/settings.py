"""The settings of the simulated batch systems: which machine, and its own scheduler.

One structure per machine, told apart by `machine`; a setting of another machine is an error.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from rtsched.kernels.delays import MigrationCost  # noqa: TC001 - read by msgspec


class NegotiatorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Loop `negotiator`: what HTCondor's configuration macros of these meanings say."""

    interval: Annotated[
        float,
        Meta(gt=0, description="Seconds between negotiation cycles (NEGOTIATOR_INTERVAL)."),
    ] = 60.0
    cycle_delay: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds after a cycle before a submission triggers the next one "
            "(NEGOTIATOR_CYCLE_DELAY).",
        ),
    ] = 20.0
    half_life: Annotated[
        float,
        Meta(gt=0, description="Half-life of real priorities, seconds (PRIORITY_HALFLIFE)."),
    ] = 86400.0
    least_priority: Annotated[
        float, Meta(gt=0, description="Best real priority; that of a new user.")
    ] = 0.5
    default_factor: Annotated[
        float, Meta(gt=0, description="Priority factor of all others (DEFAULT_PRIO_FACTOR).")
    ] = 1000.0
    factors: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(
            description="Priority factors per `GROUP.USER`, `USER` or `GROUP`, the first that is "
            "listed; `DedicatedScheduler`: of parallel jobs. Names that are not in the log have no "
            "effect."
        ),
    ] = {}
    claim_worklife: Annotated[
        float,
        Meta(
            ge=-1,
            description="Seconds for which a claim accepts further jobs of its user without "
            "negotiation; 0: none; -1: unlimited (CLAIM_WORKLIFE).",
        ),
    ] = 1200.0


class SystemSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="machine"):
    """What the settings of all machines have, and what the machine can do."""

    keeps_plans: ClassVar[bool] = False
    """Whether it starts jobs as a plan says."""
    keeps_periodic: ClassVar[bool] = False
    """Whether its nodes may do periodic work."""
    nodes_change: ClassVar[bool] = False
    """Whether nodes may go down, be drained and come back."""
    shares_nodes: ClassVar[bool] = False
    """Whether a node runs processes of several jobs at a time."""

    @property
    def machine(self) -> str:
        """Return the name of the machine."""
        return str(self.__struct_config__.tag)

    @property
    def order(self) -> str:
        """Return how the queue is ordered; a machine without that setting has only `arrival`."""
        return "arrival"


class ExclusiveSettings(SystemSettings, frozen=True, tag="exclusive"):
    """Machine `exclusive`, the usual one: each node runs one job at a time (the batch setting)."""

    keeps_plans = keeps_periodic = nodes_change = True

    loop: Annotated[
        Literal["fcfs", "easy", "conservative", "serial", "negotiator"],
        Meta(
            description="`fcfs`: in queue order, a job that does not fit holds up the rest. "
            "`easy`: later jobs may pass if the first in the queue is not delayed. "
            "`conservative`: every queued job has a reservation, none is ever delayed. "
            "`serial`: one job at a time on the whole machine. `negotiator`: HTCondor's cycles, "
            "user priorities and claims."
        ),
    ] = "easy"
    order: Annotated[
        Literal["arrival", "deadline", "deadline_in_place", "priority"],
        Meta(
            description="How the queue is ordered: by submission, by the earliest deadline, or by "
            "the priority that fair-share plug-ins give. Ties: submission, then job id. `deadline` "
            "has jobs without a deadline wait behind all others; `deadline_in_place` gives those "
            "with one their own places only: before one without there are never more than by "
            "submission. Loop `negotiator` orders the jobs of each user so, `arrival` after the "
            "user's own job priority."
        ),
    ] = "arrival"
    depth: Annotated[
        int,
        Meta(ge=0, description="Number of queued jobs that backfill considers; 0: all."),
    ] = 0
    placement: Annotated[
        Literal["first", "best_fit", "least_loaded", "pack_serial_at_end", "fewest_stranded_gpus"],
        Meta(
            description="Which of the nodes that have room a job is given, where jobs share nodes "
            "by resources (unit `resources`); of equal ones the first. `first`: the first ones. "
            "`best_fit`: those that it fills most, by the fullest of the resources that it asks "
            "for. `least_loaded`: those with most idle cores (Slurm: CR_LLN). "
            "`pack_serial_at_end`: the first ones, but jobs of one core the last ones (Slurm's "
            "pack_serial_at_end). `fewest_stranded_gpus`: those on which it adds least to the free "
            "GPUs without cores or memory, an even share of a node's for each of its GPUs."
        ),
    ] = "first"
    promised: Annotated[
        Literal["plan", "queue"],
        Meta(
            description="How promised jobs start. `plan`: as the planner's plan says, and nobody "
            "else is given their nodes. `queue`: in the queue's order, like all others; the plan "
            "only judges, and nothing keeps a promise but that order."
        ),
    ] = "plan"
    rejected: Annotated[
        Literal["leave", "run"],
        Meta(
            description="What becomes of a rejected job. `leave`: it does not run. `run`: it waits "
            "in the queue, runs where promises leave nodes, and is promised its deadline if there "
            "is room when something ends early. Ordered by deadline, one that can no longer end in "
            "time waits behind all others with a deadline."
        ),
    ] = "leave"
    requeue: Annotated[
        bool,
        Meta(description="Whether a job whose node failed is requeued; otherwise it is lost."),
    ] = True
    negotiator: Annotated[
        NegotiatorSettings, Meta(description="Loop `negotiator`: its own settings.")
    ] = NegotiatorSettings()

    @property
    def by_deadline(self) -> bool:
        """Return whether deadlines order the queue."""
        return self.order in {"deadline", "deadline_in_place"}

    def __post_init__(self) -> None:
        """Refuse settings that another loop has.

        Raises
        ------
        ValueError
            Naming the setting.
        """
        if self.loop != "negotiator" and self.negotiator != NegotiatorSettings():
            raise ValueError("`negotiator` is a setting of loop 'negotiator'")
        if self.loop in {"serial", "negotiator"} and self.placement != "first":
            raise ValueError(
                "`placement` is a setting of loops 'fcfs', 'easy' and 'conservative', which can "
                "share nodes"
            )


class SlicedSettings(SystemSettings, frozen=True, tag="sliced"):
    """Machine `sliced`: each node gives its time to its own queue of jobs, in slices."""

    loop: Annotated[
        Literal["fcfs", "round-robin", "ste", "least-error"],
        Meta(
            description="`fcfs`: jobs run to their end. `round-robin`: each a quantum in turn. "
            "`ste`: by service-time error, comparing the first two of the queue; `least-error`: "
            "comparing all."
        ),
    ] = "ste"
    quantum: Annotated[float, Meta(gt=0, description="Longest slice, seconds.")] = 3600.0
    split: Annotated[
        Literal["in-turn", "blocks"],
        Meta(
            description="How jobs are dealt to the nodes in order of "
            "submission. `in-turn`: one to each, again and again; `blocks`: the first part of all "
            "jobs to the first node, and so on."
        ),
    ] = "in-turn"


class TimeSharedSettings(SystemSettings, frozen=True, tag="time-shared"):
    """Machine `time-shared`: each node runs processes of many jobs at a time.

    A job runs at the pace of its slowest process.
    """

    nodes_change = shares_nodes = True

    loop: Annotated[
        Literal["fcfs"],
        Meta(description="`fcfs`: in queue order, a job that does not fit holds up the rest."),
    ] = "fcfs"
    migration_cost: Annotated[
        MigrationCost,
        Meta(
            description="How long a job stands still when processes move. "
            "`serial`: 10 s, and for each process 12.7 s (0.4 s and 0.0012 s per KB where its size "
            "is known); `parallel`: 10 s and one transfer; `none`."
        ),
    ] = "serial"


class PreemptiveSettings(SystemSettings, frozen=True, tag="preemptive"):
    """Machine `preemptive`: each node has one processor and runs, slot by slot, what is urgent.

    Periodic work and planned jobs run by earliest deadline, others behind them.
    """

    keeps_plans = keeps_periodic = True

    loop: Annotated[Literal["edf"], Meta(description="`edf`: earliest deadline first.")] = "edf"
    slot: Annotated[
        float,
        Meta(gt=0, description="Seconds between changes of what runs."),
    ] = 1.0


MachineSettings = ExclusiveSettings | SlicedSettings | TimeSharedSettings | PreemptiveSettings
"""The settings of one machine; where `machine` is left out, of the first."""
