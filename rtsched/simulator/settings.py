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

    interval: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds between negotiation cycles (NEGOTIATOR_INTERVAL)."""
    cycle_delay: Annotated[float, Meta(ge=0)] = 20.0
    """Seconds after a cycle before a submission triggers the next one (NEGOTIATOR_CYCLE_DELAY)."""
    half_life: Annotated[float, Meta(gt=0)] = 86400.0
    """Half-life of real priorities, seconds (PRIORITY_HALFLIFE)."""
    least_priority: Annotated[float, Meta(gt=0)] = 0.5
    """Best real priority; that of a new user."""
    default_factor: Annotated[float, Meta(gt=0)] = 1000.0
    """Priority factor of all others (DEFAULT_PRIO_FACTOR)."""
    factors: dict[str, Annotated[float, Meta(gt=0)]] = {}
    """Priority factors per `GROUP.USER`, `USER` or `GROUP`, the first that is listed;
    `DedicatedScheduler`: of parallel jobs. Names that are not in the log have no effect."""
    claim_worklife: Annotated[float, Meta(ge=-1)] = 1200.0
    """Seconds for which a claim accepts further jobs of its user without negotiation; 0: none; -1:
    unlimited (CLAIM_WORKLIFE)."""


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

    loop: Literal["fcfs", "easy", "conservative", "serial", "negotiator"] = "easy"
    """`fcfs`: in queue order, a job that does not fit holds up the rest. `easy`: later jobs may
    pass if the first in the queue is not delayed. `conservative`: every queued job has a
    reservation, none is ever delayed. `serial`: one job at a time on the whole machine.
    `negotiator`: HTCondor's cycles, user priorities and claims."""
    order: Literal["arrival", "deadline", "deadline_in_place", "priority"] = "arrival"
    """How the queue is ordered: by submission, by the earliest deadline, or by the priority that
    fair-share plug-ins give. Ties: submission, then job id. `deadline` has jobs without a deadline
    wait behind all others; `deadline_in_place` gives those with one their own places only: before
    one without there are never more than by submission. Loop `negotiator` orders the jobs of each
    user so, `arrival` after the user's own job priority."""
    depth: Annotated[int, Meta(ge=0)] = 0
    """Number of queued jobs that backfill considers; 0: all."""
    placement: Literal[
        "first", "best_fit", "least_loaded", "pack_serial_at_end", "fewest_stranded_gpus"
    ] = "first"
    """Which of the nodes that have room a job is given, where jobs share nodes by resources (unit
    `resources`); of equal ones the first. `first`: the first ones. `best_fit`: those that it fills
    most, by the fullest of the resources that it asks for. `least_loaded`: those with most idle
    cores (Slurm: CR_LLN). `pack_serial_at_end`: the first ones, but jobs of one core the last ones
    (Slurm's pack_serial_at_end). `fewest_stranded_gpus`: those on which it adds least to the free
    GPUs without cores or memory, an even share of a node's for each of its GPUs."""
    promised: Literal["plan", "queue"] = "plan"
    """How promised jobs start. `plan`: as the planner's plan says, and nobody else is given their
    nodes. `queue`: in the queue's order, like all others; the plan only judges, and nothing keeps a
    promise but that order."""
    rejected: Literal["leave", "run"] = "leave"
    """What becomes of a rejected job. `leave`: it does not run. `run`: it waits in the queue, runs
    where promises leave nodes, and is promised its deadline if there is room when something ends
    early. Ordered by deadline, one that can no longer end in time waits behind all others with a
    deadline."""
    requeue: bool = True
    """Whether a job whose node failed is requeued; otherwise it is lost."""
    negotiator: NegotiatorSettings = NegotiatorSettings()
    """Loop `negotiator`: its own settings."""

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

    loop: Literal["fcfs", "round-robin", "ste", "least-error"] = "ste"
    """`fcfs`: jobs run to their end. `round-robin`: each a quantum in turn. `ste`: by service-time
    error, comparing the first two of the queue; `least-error`: comparing all."""
    quantum: Annotated[float, Meta(gt=0)] = 3600.0
    """Longest slice, seconds."""
    split: Literal["in-turn", "blocks"] = "in-turn"
    """How jobs are dealt to the nodes in order of submission. `in-turn`: one to each, again and
    again; `blocks`: the first part of all jobs to the first node, and so on."""


class TimeSharedSettings(SystemSettings, frozen=True, tag="time-shared"):
    """Machine `time-shared`: each node runs processes of many jobs at a time.

    A job runs at the pace of its slowest process.
    """

    nodes_change = shares_nodes = True

    loop: Literal["fcfs"] = "fcfs"
    """`fcfs`: in queue order, a job that does not fit holds up the rest."""
    migration_cost: MigrationCost = "serial"
    """How long a job stands still when processes move. `serial`: 10 s, and for each process 12.7 s
    (0.4 s and 0.0012 s per KB where its size is known); `parallel`: 10 s and one transfer;
    `none`."""


class PreemptiveSettings(SystemSettings, frozen=True, tag="preemptive"):
    """Machine `preemptive`: each node has one processor and runs, slot by slot, what is urgent.

    Periodic work and planned jobs run by earliest deadline, others behind them.
    """

    keeps_plans = keeps_periodic = True

    loop: Literal["edf"] = "edf"
    """`edf`: earliest deadline first."""
    slot: Annotated[float, Meta(gt=0)] = 1.0
    """Seconds between changes of what runs."""


MachineSettings = ExclusiveSettings | SlicedSettings | TimeSharedSettings | PreemptiveSettings
"""The settings of one machine; where `machine` is left out, of the first."""
