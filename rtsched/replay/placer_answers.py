"""Have the system's loop itself ask who places waiting jobs, where a plug-in offers that.

What it is asked and how its answers are carried out and counted is as `rtsched.replay.engine` does
by snapshots; the results are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.chain import Stage
from rtsched.model.jobs import Kind
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from rtsched.core.chain import Chain
    from rtsched.kernels.row_placers import RowPlacer
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import Workload
    from rtsched.simulator.exclusive import ExclusiveNodes


def placer_of(chain: Chain, workload: Workload, policy: Policy) -> RowPlacer | None:
    """Return the compiled form of who places a policy's jobs; None where the hooks must be asked.

    It is asked only where it is the only plug-in that is asked anything during the replay, and
    where jobs that arrive wait at once, in order of arrival, for whole nodes that keep their state.
    """
    system, names = policy.system, chain.asks("partition")
    if not isinstance(system, ExclusiveSettings) or len(names) != 1 or chain.planner is not None:
        return None
    member = chain.member(names[0])
    others = {*chain.asks("admit"), *chain.asks("fair_share"), *chain.asks("delay_class")}
    others |= {*chain.asks("observe")} - {member.name}
    if chain.asks("partition", Stage.DYNAMIC) != names:
        return None
    if others or member.mode != "enforce" or not chain.asks("observe"):
        return None
    if system.order != "arrival" or system.loop == "negotiator" or workload.cluster.shared:
        return None
    jobs = workload.jobs
    timed = len(workload.periodic) or len(workload.blocked.node) or len(workload.edges)
    if timed or workload.preemption is not None or workload.node_events:
        return None
    plain = (jobs.kind == Kind.RIGID) & (jobs.size > 0) & (jobs.begin <= jobs.submit)
    if not plain.all() or len(np.unique(jobs.id)) < len(jobs):
        return None
    offer = member.capabilities.replay_placer
    return None if offer is None else offer(jobs, workload.cluster)


@dataclass
class PlacerAnswers:
    """A placer, and the machine whose loop asks it.

    Attributes
    ----------
    placer : RowPlacer
        Who answers.
    chain : Chain
        It is the only plug-in there; hook metrics are counted as if the hooks had been asked.
    system : ExclusiveNodes
        The machine.
    """

    placer: RowPlacer
    chain: Chain
    system: ExclusiveNodes

    def __post_init__(self) -> None:
        self.system.place_by(self.placer)

    def tell(self) -> None:
        """Tell the placer of what happened since it was told last."""
        self.system.tell_placer()

    def count(self) -> None:
        """Count what the system's loop asked; once, at the end. How long it took is not known."""
        told, events, asked, rows, placed = self.system.placing.counts.tolist()
        name = self.chain.asks("partition")[0]
        observed = self.chain.hook_metrics["observe"][name]
        observed.calls += told
        observed.judged += events
        observed.changed += events
        metrics = self.chain.hook_metrics["partition"][name]
        metrics.calls += asked
        metrics.judged += rows
        metrics.changed += placed
        metrics.abstained += rows - placed
