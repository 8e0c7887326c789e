"""Deadline admission by a complete plan: MCDF, with FIFO and EDF over two node rules as baselines.

A job with a deadline is admitted if one plan keeps every promise given so far and its own; that
plan then replaces the old one. Rigid, moldable and divisible jobs pass the same test. Jobs without
a deadline are not judged: they are best effort and run around the plan. A job that must not begin
yet is put off until it may, where jobs have whole nodes: that plan knows no later arrivals.

The cluster is taken as one pool of equal nodes per partition. Where the partitions of promised jobs
overlap, and on nodes that jobs share, there is one plan for all (`resource_planning`).

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from rtsched.api import Reason, hookimpl
from rtsched_plugins.deadline_admission import BesidePlan, DeadlineAdmission
from rtsched_plugins.insurance import Insurance
from rtsched_plugins.kernels.admission import (
    BY_ARRIVAL,
    BY_COST,
    BY_DEADLINE,
    FASTEST_NODES,
    LEAST_NODES,
)
from rtsched_plugins.planners import Rules, Varied

if TYPE_CHECKING:
    from rtsched.api import Cluster, Jobs, PreparedState, ReplayPlanner, Snapshot, Verdicts


ORDERS = {"cost-derivative": BY_COST, "arrival": BY_ARRIVAL, "deadline": BY_DEADLINE}
NODE_RULES = {"fewest": LEAST_NODES, "fastest": FASTEST_NODES}
AT_ONCE = "batch systems start a load on all its nodes at once; set staggered = false"
"""Why a planner of staggered starts is for replays only."""


class Mcdf(DeadlineAdmission):
    """Admit a job with a deadline if a plan keeps it and every earlier promise."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        order: Literal["cost-derivative", "arrival", "deadline"] = "cost-derivative"
        """Who is planned first: the job for which one more node costs most (MCDF; a later job may
        overtake one that does not fit), the first to arrive (FIFO), or the earliest deadline
        (EDF)."""
        nodes: Literal["fewest", "fastest"] = "fewest"
        """Allocate the fewest nodes that meet the deadline, or the count that is fastest."""
        efficiency: Annotated[float, Meta(gt=0, le=1)] = 1.0
        """Moldable jobs: run time on n nodes is wall time (size/n)^efficiency."""
        rounds: Annotated[int, Meta(ge=1, le=64)] = 1
        """Divisible jobs: maximum number of rounds in which a load is sent, so that nodes start
        computing sooner. The fastest number is used. On live systems only jobs that state that they
        take their load in rounds do so."""
        unequal_nodes: bool = False
        """Plan with each node's speed and its own times to send and to compute. Off: all nodes are
        treated as equal."""
        staggered: bool = False
        """Divisible jobs may start on some nodes before the others are free. Off: a job gets all
        its nodes at once."""
        beside_plan: BesidePlan = False
        spare_nodes: int | dict[str, int] = 0
        """Promises survive the loss of this many nodes of their partition, each at any time: a job
        is admitted only if it could restart that often and still end in time, with that many nodes
        fewer. A table sets it by partition, with `*` for all others."""
        recovery: Annotated[float, Meta(ge=0)] = 0.0
        """With `spare_nodes`: seconds from the loss of a node until a job that ran there can
        restart: the batch system must notice the loss and requeue the job."""
        offer_tests: Annotated[int, Meta(ge=0)] = 64
        """Maximum number of admission tests per counter-offer; 0: no counter-offer. When they are
        used up, a later deadline that passed the test is offered."""

        def __post_init__(self) -> None:
            """Refuse settings that exclude each other."""
            chosen = [self.rounds > 1, self.unequal_nodes, self.staggered]
            if sum(chosen) > 1:
                raise ValueError("set only one of rounds > 1, unequal_nodes and staggered")
            spare = self.spare_nodes
            counts = list(spare.values()) if isinstance(spare, dict) else [spare]
            if min(counts, default=0) < 0:
                raise ValueError("spare_nodes must not be negative")
            if any(counts) and any(chosen):
                raise ValueError(
                    "spare_nodes treats nodes as equal; it cannot be combined with rounds > 1, "
                    "unequal_nodes or staggered"
                )

    impossible: ClassVar = Reason(
        "mcdf.impossible",
        "deadline too soon: the job may need {needed:time up}, {left:time} are left",
    )
    no_room: ClassVar = Reason(
        "mcdf.no-room",
        "cannot meet this deadline without breaking {promises:existing promise}; {left:time} "
        "are left, {free} of {nodes:node} are free",
    )
    breaks_promise: ClassVar = Reason(
        "mcdf.breaks-promise",
        "with this job, job {other} would miss its promised deadline; {promises:existing "
        "promise} must be kept",
    )
    uninsured: ClassVar = Reason(
        "mcdf.uninsured",
        "deadline too soon: {left:time} are left, and the job must be able to restart if a "
        "node fails; promises here survive the loss of {spare:node}",
    )
    endless: ClassVar = Reason(
        "mcdf.endless",
        "states neither its run time nor its work, so its end cannot be predicted",
    )
    no_load: ClassVar = Reason(
        "mcdf.no-load",
        "invalid divisible load: {sigma} units, {cms} s to send and {cps} s to compute one, "
        "set-up {setup_link} s and {setup_node} s; units and time per unit must be above 0, "
        "and no time may be negative",
    )
    smaller_load: ClassVar = Reason(
        "mcdf.smaller-load", "{percent} % of its load would be accepted with the same deadline"
    )
    fewer_tasks: ClassVar = Reason(
        "mcdf.fewer-tasks", "{tasks} of its {all} tasks would be accepted with the same deadline"
    )
    more_nodes: ClassVar = Reason(
        "mcdf.more-nodes",
        "the same deadline would be accepted if the job could use {nodes:node} instead of {most}",
    )
    not_yet: ClassVar = Reason(
        "mcdf.not-yet",
        "may not start for another {wait:time}; it is evaluated then",
    )
    waits: ClassVar = Reason(
        "mcdf.waits",
        "waits for job {task}, whose end cannot be predicted: it neither runs with a time limit "
        "nor has a promise; give it a deadline too",
    )
    behind: ClassVar = Reason(
        "mcdf.behind",
        "deadline too soon: it may have to wait for its begin time, or for other jobs, for "
        "{wait:time up}, and it may need {needed:time up}; {left:time} are left",
    )

    def __init__(self, config: Config | None = None) -> None:
        config = config or self.Config()
        order, nodes = ORDERS[config.order], NODE_RULES[config.nodes]
        rules = Rules(order, nodes, config.efficiency, config.rounds)
        varied = config.unequal_nodes or config.staggered
        planner = Varied(rules, config.staggered) if varied else rules
        only = AT_ONCE if config.staggered else ""
        insurance, beside = _insurance(config), config.beside_plan
        super().__init__(planner, config.offer_tests, only, insurance, beside_plan=beside)

    def replay_planner(self, jobs: Jobs, cluster: Cluster) -> ReplayPlanner | None:
        """Return its short form for a replay of these jobs; None: it has none."""
        if isinstance(self.planner, Rules):
            return self.one_pool(self.planner, jobs, cluster)
        return None

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, prepared: PreparedState
    ) -> Verdicts | None:
        """Admit what a plan keeps beside all promises; see `DeadlineAdmission.judge`."""
        return self.judge(jobs, snapshot, prepared)


def _insurance(config: Mcdf.Config) -> Insurance:
    """Return how many lost nodes promises survive, as configured."""
    spare = config.spare_nodes
    if isinstance(spare, int):
        return Insurance(spare, {}, config.recovery)
    others = spare.get("*", 0)
    return Insurance(others, {k: v for k, v in spare.items() if k != "*"}, config.recovery)
