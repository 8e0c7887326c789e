"""Planners: whether the simulated system keeps one's plan, and suits its plug-ins.

By what they declare: `rtsched.core.capabilities`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.core.chain import Chain
from rtsched.core.plugins import discover
from rtsched.simulator.settings import ExclusiveSettings, PreemptiveSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.core.plugins import Found
    from rtsched.replay.policies import Policy
    from rtsched.simulator.settings import SystemSettings


def load_chain(
    policy: Policy,
    found: Mapping[str, Found] | None = None,
    *,
    periodic: bool,
    resources: bool = False,
    reservations: bool = False,
) -> tuple[Chain, list[str]]:
    """Return a policy's chain, and why periodic work or promises would not be kept.

    Parameters
    ----------
    policy : Policy
        Its machine, plug-ins and planner.
    found : mapping of str to Found, optional
        Installed plug-ins; found anew if None.
    periodic : bool
        Whether nodes do periodic work.
    resources : bool
        Whether jobs share nodes, each taking amounts of resources.
    reservations : bool
        Whether nodes are set aside at times.

    Returns
    -------
    Chain, list of str
        No sentence: all is well. Where no planner is enforced, nothing is promised.

    Raises
    ------
    ConfigError, PluginError
        If the plug-ins cannot be loaded.
    """
    found = discover() if found is None else found
    chain = Chain.load(policy.plugin, policy.planner, found)
    machine, name = policy.system.machine, chain.planner
    problems = _sharing_problems(chain, policy.system)
    if resources:
        problems += _resource_problems(chain, policy)
    elif isinstance(policy.system, ExclusiveSettings) and policy.system.placement != "first":
        problems.append(
            f"system.placement: {policy.system.placement!r} chooses among nodes that jobs share; "
            "set `workload.unit` to 'resources', or leave it out"
        )
    if periodic and not policy.system.keeps_periodic:
        problems.append(
            f"system.machine: {machine!r} does not support periodic work, [[workload.periodic]]"
        )
    queues = isinstance(policy.system, ExclusiveSettings) and policy.system.promised == "queue"
    if queues and (periodic or reservations):
        problems.append(
            "system.promised: 'queue' lays out no plan, so nothing would keep jobs off nodes that "
            "are set aside or do periodic work; set it to 'plan'"
        )
    if name is None or chain.member(name).mode != "enforce":
        return chain, problems
    declared = chain.member(name).capabilities
    problems += _machine_problems(name, declared.suspends_every, policy)
    around = declared.plans_resources and not declared.spare_nodes
    if periodic and not (declared.keeps_periodic or around):
        problems.append(
            f"planner: {name!r} as configured would promise the time of the periodic work of "
            "[[workload.periodic]]; remove these tables, or use 'spare', or 'mcdf' or 'portfolio' "
            "without `spare_nodes`, `rounds`, `unequal_nodes` and `staggered`"
        )
    if reservations and not around:
        problems.append(
            f"planner: {name!r} as configured would promise nodes that are set aside; replay "
            "without --reservations, or use 'spare' in form 'gaps', or 'mcdf' or 'portfolio' "
            "without `spare_nodes`, `rounds`, `unequal_nodes` and `staggered`"
        )
    return chain, problems


def _sharing_problems(chain: Chain, system: SystemSettings) -> list[str]:
    """Return which enforced plug-ins choose nodes for another kind of machine."""
    has, machine = system.shares_nodes, system.machine
    kinds = {True: "jobs share its nodes", False: "a node runs one job at a time"}
    return [
        f"plugin {member.name!r} is set for a machine on which {kinds[not has]}, but on machine "
        f"{machine!r} {kinds[has]}; change its settings or the machine"
        for member in chain.members
        if member.mode == "enforce" and member.capabilities.shares_nodes not in {None, has}
    ]


def _resource_problems(chain: Chain, policy: Policy) -> list[str]:
    """Return what of a policy gives whole nodes to jobs, where they share them by resources."""
    remedy = "set `workload.unit` to 'core' or 'node'"
    system, problems = policy.system, []
    if system.machine != "exclusive" or system.loop not in {"fcfs", "easy", "conservative"}:
        problems.append(
            f"system: machine {system.machine!r} with loop {system.loop!r} gives whole nodes to "
            f"jobs; {remedy}, or use loop 'fcfs', 'easy' or 'conservative' "
            "of machine 'exclusive'"
        )
    name = chain.planner
    if name is not None and chain.member(name).mode == "enforce":
        declared = chain.member(name).capabilities
        if declared.spare_nodes:
            problems.append(
                f"planner: {name!r} cannot plan for lost nodes where jobs share nodes; set its "
                f"`spare_nodes` to 0, or {remedy}"
            )
        elif not declared.plans_resources:
            problems.append(
                f"planner: {name!r} as configured plans whole nodes, and jobs share them; {remedy}"
            )
    rule = system.placement if isinstance(system, ExclusiveSettings) else "first"
    if rule != "first" and chain.counts("partition"):
        problems.append(
            f"system.placement: {rule!r} would ignore the order in which plugin "
            f"{chain.asks('partition')[0]!r} prefers nodes; leave out one of them"
        )
    problems += [
        f"plugin {name!r} chooses whole nodes for jobs, which share them; {remedy}"
        for name in chain.asks("partition")
        if not chain.member(name).capabilities.places_resources
    ]
    return problems


def _machine_problems(name: str, every: float | None, policy: Policy) -> list[str]:
    """Return why the policy's machine would not keep plans that suspend jobs as often."""
    machine = policy.system.machine
    own = policy.system.slot if isinstance(policy.system, PreemptiveSettings) else None
    if not policy.system.keeps_plans:
        return [
            f"planner: machine {machine!r} follows no plan, so promises of {name!r} would not "
            "be kept; remove the planner or choose another machine"
        ]
    if own is None and every is not None:
        return [
            f"planner: {name!r} is set to suspend jobs, which machine {machine!r} does not "
            "support; "
            "change its settings or choose machine 'preemptive'"
        ]
    if own is not None and every is None:
        return [
            f"planner: {name!r} plans jobs that are never suspended, which machine {machine!r} "
            "does not guarantee; change its settings or choose machine 'exclusive'"
        ]
    if own != every:
        return [
            f"planner: {name!r} plans in slots of {every:g} s, machine {machine!r} has slots of "
            f"{own:g} s; set the same `slot` for both"
        ]
    return []
