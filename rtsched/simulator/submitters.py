"""Submitters with their factors, and slots, for HTCondor's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels.machine_claims import CLAIM, OFFER, REQUEST, SUBMITTER
from rtsched.model.verdicts import Finding, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster, Nodes
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Accounts
    from rtsched.simulator.settings import NegotiatorSettings

DEDICATED = "DedicatedScheduler"
"""HTCondor's name of the submitter of all parallel jobs."""
NO_SLOT = Reason(
    "negotiator.no-slot",
    "requests {cpus:CPU} with {memory} MB each; no slot has more than {fits} of these",
)
NO_SLOTS = Reason(
    "negotiator.no-slots",
    "requests {cpus:CPU} with {memory} MB each; all slots together have {fits} of these",
)


def with_claims(
    machine: kernel.MachineState,
    jobs: Jobs,
    cluster: Cluster,
    accounts: Accounts,
    settings: NegotiatorSettings,
) -> kernel.MachineState:
    """Return a machine that is laid out, with what loop `negotiator` needs.

    Parameters
    ----------
    machine : MachineState
        Before its first instant; its scalars are changed.
    jobs : Jobs
        Their `association` is the submitter; nobody's jobs have one together.
    cluster : Cluster
        Rows of one name that follow one another are the CPUs of one slot.
    accounts : Accounts
        The names of submitters, for their factors.
    settings : NegotiatorSettings
        The loop's own settings.
    """
    offers, slot_of = _slots(cluster.nodes, len(machine.nodes))
    users = max(len(accounts), int(jobs.association.max(initial=-1)) + 1)
    state = kernel.scalars(machine)
    state["interval"] = max(settings.interval, settings.cycle_delay)
    state["cycle_delay"], state["half_life"] = settings.cycle_delay, settings.half_life
    state["least_priority"], state["worklife"] = settings.least_priority, settings.claim_worklife
    state["last_cycle"], state["next_cycle"] = -state["interval"], np.inf
    state["dedicated"], state["widest"] = users + 1, offers["count"].max(initial=1)
    claims = np.zeros(len(machine.nodes), CLAIM)
    claims["owner"], claims["slot"] = -1, slot_of
    return machine._replace(
        requests=_requests(jobs, users),
        claims=claims,
        offers=offers,
        submitters=_submitters(users + 2, accounts, settings),
    )


def never_matched(machine: kernel.MachineState, jobs: Jobs) -> tuple[Finding, ...]:
    """Return why jobs would wait for ever: no slot is large enough, or has enough memory.

    Parameters
    ----------
    machine : MachineState
        Laid out, before its first instant; such jobs are marked in it.
    jobs : Jobs
        `n` rows, at most as wide as the machine.
    """
    memory, code = np.unique(machine.requests["memory"][: len(jobs)], return_inverse=True)
    kinds, times = np.unique(machine.offers[["count", "memory"]], return_counts=True)
    one, all_ = np.zeros(len(memory)), np.zeros(len(memory))
    for kind, number in zip(kinds, times, strict=True):
        room = np.full(len(memory), float(kind["count"]))
        some = memory > 0
        room[some] = np.minimum(room[some], np.floor(kind["memory"] / memory[some]))
        one, all_ = np.maximum(one, room), all_ + number * room
    wide = jobs.size > kernel.scalars(machine)["widest"]
    fits = np.where(wide, all_[code], one[code])
    hopeless = jobs.size > fits
    machine.requests["hopeless"][: len(jobs)] = hopeless
    return tuple(
        Finding.where(mask, reason, cpus=jobs.size, memory=memory[code] / 2**20, fits=fits)
        for mask, reason in ((hopeless & ~wide, NO_SLOT), (hopeless & wide, NO_SLOTS))
        if mask.any()
    )


def _slots(nodes: Nodes, m: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the slots, best first, and the slot of each of `m` nodes.

    The fastest is the best, among equals the first. A slot has the memory of all its rows, any
    amount where one of them does not say.
    """
    name = nodes.name
    fresh = np.ones(len(nodes), np.bool_)
    fresh[1:] = (name[1:] != name[:-1]) | (name[1:] < 0)
    first = np.flatnonzero(fresh)
    slots = np.zeros(len(first), OFFER)
    if len(first):
        memory = np.where(nodes.memory >= 0, nodes.memory, np.inf)
        slots["first"], slots["count"] = first, np.diff(np.append(first, len(nodes)))
        slots["speed"] = np.minimum.reduceat(nodes.speed, first)
        slots["memory"] = np.add.reduceat(memory, first)
        slots["free"] = slots["count"]
    order = np.argsort(-slots["speed"], kind="stable")
    place = np.empty(len(first), np.int32)
    place[order] = np.arange(len(first))
    slot_of = np.zeros(m, np.int32)
    slot_of[: len(nodes)] = place[np.cumsum(fresh) - 1]
    return slots[order], slot_of


def _requests(jobs: Jobs, users: int) -> NDArray[Any]:
    """Return what jobs ask for, and whose they are."""
    requests = np.zeros(max(len(jobs), 1), REQUEST)
    requests["before"] = requests["after"] = -1
    requests["memory"][: len(jobs)] = np.maximum(jobs.memory, 0)
    requests["user"][: len(jobs)] = np.where(jobs.association >= 0, jobs.association, users)
    requests["owner"] = requests["user"]
    return requests


def _submitters(count: int, accounts: Accounts, settings: NegotiatorSettings) -> NDArray[Any]:
    """Return the submitters with their factors, all with the best priority."""
    table = np.zeros(count, SUBMITTER)
    table["priority"] = settings.least_priority
    table["first"] = table["last"] = -1
    table["factor"] = settings.default_factor
    factors = settings.factors
    names, parent = accounts.texts("name"), accounts.parent.tolist()
    for row, name in enumerate(names):
        group = names[parent[row]] if parent[row] >= 0 else name
        for entry in (f"{group}.{name}", name, group):
            if entry in factors:
                table["factor"][row] = factors[entry]
                break
    table["factor"][-1] = factors.get(DEDICATED, settings.default_factor)
    return table
