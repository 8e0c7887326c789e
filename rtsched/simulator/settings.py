"""The settings of the simulated batch systems: which machine, and its own scheduler."""

from __future__ import annotations

from typing import Annotated, Literal

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


class SystemSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The simulated batch system: its machine, and its own loop."""

    machine: Annotated[
        Literal["exclusive", "sliced", "time-shared", "preemptive"],
        Meta(
            description="`exclusive`: each node runs one job at a time (the batch setting). "
            "`sliced`: each node gives its time to its own queue of jobs, in slices. "
            "`time-shared`: each node runs processes of many jobs at a time; a job runs at the "
            "pace of its slowest process. `preemptive`: each node has one processor and runs, slot "
            "by slot, periodic work and planned jobs by earliest deadline, others behind them."
        ),
    ] = "exclusive"
    loop: Annotated[
        Literal[
            "fcfs",
            "easy",
            "conservative",
            "serial",
            "negotiator",
            "round-robin",
            "ste",
            "least-error",
            "edf",
        ],
        Meta(
            description="`fcfs`: in queue order, a job that does not fit holds up the rest. "
            "`easy`: later jobs may pass if the first in the queue is not delayed. "
            "`conservative`: every queued job has a reservation, none is ever delayed. "
            "`serial`: one job at a time on the whole machine. `negotiator`: HTCondor's cycles, "
            "user priorities and claims. On machine `sliced` `fcfs` runs jobs to their end; "
            "`round-robin`: each a quantum in turn; `ste`: by service-time error, comparing the "
            "first two of the queue; `least-error`: comparing all. Machine `preemptive` has `edf` "
            "alone."
        ),
    ] = "easy"
    order: Annotated[
        Literal["arrival", "deadline", "priority"],
        Meta(
            description="How the queue is ordered: by submission, by the earliest deadline, or by "
            "the priority that fair-share plug-ins give. Ties: submission, then job id. Loop "
            "`negotiator` orders the jobs of each user so, `arrival` after the user's own job "
            "priority."
        ),
    ] = "arrival"
    depth: Annotated[
        int,
        Meta(ge=0, description="Number of queued jobs that backfill considers; 0: all."),
    ] = 0
    requeue: Annotated[
        bool,
        Meta(description="Whether a job whose node failed is requeued; otherwise it is lost."),
    ] = True
    quantum: Annotated[
        float, Meta(gt=0, description="Machine `sliced`: longest slice, seconds.")
    ] = 3600.0
    split: Annotated[
        Literal["in-turn", "blocks"],
        Meta(
            description="Machine `sliced`: how jobs are dealt to the nodes in order of "
            "submission. `in-turn`: one to each, again and again; `blocks`: the first part of all "
            "jobs to the first node, and so on."
        ),
    ] = "in-turn"

    migration_cost: Annotated[
        MigrationCost,
        Meta(
            description="Machine `time-shared`: how long a job stands still when processes move. "
            "`serial`: 10 s, and for each process 12.7 s (0.4 s and 0.0012 s per KB where its size "
            "is known); `parallel`: 10 s and one transfer; `none`."
        ),
    ] = "serial"

    slot: Annotated[
        float,
        Meta(gt=0, description="Machine `preemptive`: seconds between changes of what runs."),
    ] = 1.0

    negotiator: Annotated[
        NegotiatorSettings, Meta(description="Loop `negotiator`: its own settings.")
    ] = NegotiatorSettings()

    def __post_init__(self) -> None:
        """Refuse what another machine is for.

        Raises
        ------
        ValueError
            Naming the setting and its machine.
        """
        others = self.of_others()
        for field in msgspec.structs.fields(self):
            if field.name in others and getattr(self, field.name) != field.default:
                machine = ONLY_ON.get(field.name, ("",))[0]
                owner = f"machine {machine!r}" if machine else f"loop {field.name!r}"
                raise ValueError(f"`{field.name}` is a setting of {owner}")
        loops = LOOPS_OF.get(self.machine, (self.loop,))
        if self.loop not in loops:
            known = ", ".join(f"`{loop}`" for loop in loops)
            raise ValueError(
                f"machine {self.machine!r} has no loop `{self.loop}`; choose one of: {known}"
            )

    def of_others(self) -> set[str]:
        """Return the names of the settings that only other machines or loops have."""
        others = {name for name, machines in ONLY_ON.items() if self.machine not in machines}
        return others if self.loop == "negotiator" else others | {"negotiator"}


ONLY_ON: dict[str, tuple[str, ...]] = {
    "order": ("exclusive",),
    "depth": ("exclusive",),
    "requeue": ("exclusive",),
    "quantum": ("sliced",),
    "split": ("sliced",),
    "migration_cost": ("time-shared",),
    "slot": ("preemptive",),
}
"""Settings that not all machines have, and the machines that have them."""

LOOPS_OF: dict[str, tuple[str, ...]] = {
    "exclusive": ("fcfs", "easy", "conservative", "serial", "negotiator"),
    "sliced": ("fcfs", "round-robin", "ste", "least-error"),
    "time-shared": ("fcfs",),
    "preemptive": ("edf",),
}
"""The loops of each machine; of one that is not listed: all."""
