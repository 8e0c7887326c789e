"""Claims of a machine: who has which CPU of which slot, what users are charged, whose jobs wait.

A submitter's *real priority* follows the CPUs that it has claimed, with a half-life; less is
better. It is worked out when its claims change and when it is looked at. Between two changes the
number of claimed CPUs is constant, so that is exact however often it is done:

    beta = 0.5 ** (seconds passed / half-life)
    priority = max(least, beta * priority + (1 - beta) * claimed CPUs)

A claim outlasts the job: when the job ends its CPUs are *vacated*, until the next job of the same
submitter takes them over or the claim is given up. The dedicated scheduler, which is the submitter
of all wide jobs, *holds* claimed CPUs until it has enough. What it claims is charged to the users
whose jobs they are, so its own priority stays the best (as seen on HTCondor 25.14).

References
----------
HTCondor manual, "User Priorities and Negotiation": priority calculation. "Configuration Macros":
PRIORITY_HALFLIFE, CLAIM_WORKLIFE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtsched.kernels.compiling import outline, part
from rtsched.kernels.records import record_type

if TYPE_CHECKING:
    from rtsched.kernels.machine import MachineState

NEVER = 2**31
"""More CPUs than any job asks for."""

REQUEST = record_type(
    ("memory", "f8"),
    ("user", "i4"),
    ("owner", "i4"),
    ("before", "i4"),
    ("after", "i4"),
    ("hopeless", "i1"),
)
"""One per job: bytes per CPU, its user, and its place in the list of what waits.

`hopeless`: the slots never have so much memory for all its CPUs.

`owner` is the submitter in whose list it stands: `user`, or of a wide job the dedicated scheduler.
`before` and `after` are its neighbours in that list, -1: none.
"""

CLAIM = record_type(
    ("since", "f8"),
    ("memory", "f8"),
    ("owner", "i4"),
    ("payer", "i4"),
    ("slot", "i4"),
    ("vacated", "i4"),
    ("part", "i4"),
    ("held", "i1"),
)
"""One per node, which is one CPU of a slot: who claims it (-1: nobody), since when, the memory.

`payer` is the user who is charged: the owner, or of a wide job whose job it is. `slot` is the row
of its slot. `held`: claimed by the dedicated scheduler, without a job so far. `vacated` and `part`
are no facts of the node: entry k is the k-th CPU vacated at this instant; the first CPU of each job
that ended says how many there are, in `part`.
"""

OFFER = record_type(
    ("speed", "f8"), ("memory", "f8"), ("first", "i4"), ("count", "i4"), ("free", "i4")
)
"""One per slot, best first: its CPUs are the `count` nodes from `first` on; what is unclaimed."""

SUBMITTER = record_type(
    ("factor", "f8"),
    ("priority", "f8"),
    ("at", "f8"),
    ("effective", "f8"),
    ("limit", "f8"),
    ("used", "i8"),
    ("first", "i4"),
    ("last", "i4"),
    ("rank", "i4"),
    ("listed", "i1"),
    ("done", "i1"),
)
"""One per user of an account, then one for jobs of nobody, then the dedicated scheduler.

Its real priority as of `at`, CPUs claimed, first and last of its waiting jobs. For the length of a
cycle: effective priority, slice of the pie, and whether it is done. `rank` is no fact of the
submitter: entry k is the k-th of those who negotiate (`STATE.active` of them); `listed`: is one.
"""


@part
def age(machine: MachineState, who: int) -> None:
    """Bring a submitter's real priority up to now."""
    state, submitter = machine.state[0], machine.submitters[who]
    passed = state.now - submitter.at
    if passed > 0.0:
        beta = 0.5 ** (passed / state.half_life)
        priority = beta * submitter.priority + (1.0 - beta) * submitter.used
        submitter.priority = max(state.least_priority, priority)
        submitter.at = state.now


@part
def charge(machine: MachineState, who: int, cpus: int) -> None:
    """Charge a user for so many CPUs more from now on."""
    age(machine, who)
    machine.submitters[who].used += cpus


@outline
def claim(machine: MachineState, node: int, row: int) -> None:
    """Give an unclaimed CPU to the owner of a job, with the memory that the job asks for."""
    state, request, mine = machine.state[0], machine.requests[row], machine.claims[node]
    charge(machine, request.user, 1)
    offer = machine.offers[mine.slot]
    offer.free -= 1
    offer.memory -= request.memory
    mine.owner = request.owner
    mine.payer = request.user
    mine.memory = request.memory
    mine.since = state.now


@outline
def give_up(machine: MachineState, node: int) -> None:
    """Take a claimed CPU away from its owner."""
    state, mine = machine.state[0], machine.claims[node]
    charge(machine, mine.payer, -1)
    offer = machine.offers[mine.slot]
    offer.free += 1
    offer.memory += mine.memory
    state.held -= mine.held
    mine.owner = -1
    mine.held = 0
    state.calm = 0
    state.asked_size = NEVER


@outline
def take_over(machine: MachineState, row: int, first: int) -> None:
    """Have the CPUs on which a job starts claimed by its owner, if they are not so yet."""
    state, node = machine.state[0], first
    request = machine.requests[row]
    while node >= 0:
        mine = machine.claims[node]
        if mine.owner >= 0 and mine.owner != request.owner:
            give_up(machine, node)
        if mine.owner < 0:
            claim(machine, node, row)
        if mine.payer != request.user:
            charge(machine, mine.payer, -1)
            charge(machine, request.user, 1)
            mine.payer = request.user
        state.held -= mine.held
        mine.held = 0
        node = machine.nodes[node].next


@outline
def vacate(machine: MachineState, row: int) -> None:
    """Note the CPUs of a job that stops; they stay claimed for now."""
    state, job = machine.state[0], machine.jobs[row]
    head, node = state.vacated, job.first
    while node >= 0:
        entry = machine.claims[state.vacated]
        entry.vacated = node
        entry.part = 0
        state.vacated += 1
        node = machine.nodes[node].next
    machine.claims[head].part = state.vacated - head


@outline
def link(machine: MachineState, row: int) -> None:
    """Put a job into its owner's list, in order of (key, row)."""
    state, request = machine.state[0], machine.requests[row]
    request.owner = request.user
    if machine.jobs[row].width > state.widest:
        request.owner = state.dedicated
    owner = machine.submitters[request.owner]
    if not owner.listed:
        machine.submitters[state.active].rank = request.owner
        owner.listed = 1
        state.active += 1
    key = machine.more[row].key
    before, after = owner.last, -1
    while before >= 0 and (
        machine.more[before].key > key or (machine.more[before].key == key and before > row)
    ):
        before, after = machine.requests[before].before, before
    request.before, request.after = before, after
    join(machine, owner, before, row)
    join(machine, owner, row, after)
    state.fresh = 1
    state.calm = 0


@part
def join(machine: MachineState, owner: Any, before: int, after: int) -> None:
    """Let two jobs (-1: an end of the list) be neighbours."""
    if before >= 0:
        machine.requests[before].after = after
    else:
        owner.first = after
    if after >= 0:
        machine.requests[after].before = before
    else:
        owner.last = before


@outline
def unlink(machine: MachineState, row: int) -> None:
    """Take a job out of its owner's list."""
    request = machine.requests[row]
    join(machine, machine.submitters[request.owner], request.before, request.after)
