"""Jobs that wait for other jobs of a machine: for those they depend on, and for tasks of an array.

An admitted job passes its gate before it comes into the queue. The gate is shut as long as
the job waits for others (`GATE.missing`), and while as many tasks of its array as may run at a time
are in the queue or run (`ARRAY.active`). Whoever finds it shut sleeps without a time; what opens it
puts the job on the list `opened`, and the event loop lets those in at the same instant.

A dependency is over when the other job has ended, or for Slurm's `after` when it has started. One
that will not run (rejected, cancelled, lost, too wide) holds nobody back either, as in Slurm a job
that is not known any more; the jobs that were opened so are marked (`GATE.released`).

References
----------
Slurm manual page sbatch: --dependency, --array (the `%` separator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.kernels.compiling import outline, part
from rtsched.kernels.records import record_type

if TYPE_CHECKING:
    from rtsched.kernels.machine import MachineState

GATE = record_type(
    ("missing", "i4"),
    ("array", "i4"),
    ("place", "i4"),
    ("counted", "i1"),
    ("stopped", "i1"),
    ("released", "i1"),
)
"""One per job where some wait for others, else a single row; behind these one per array that others
wait for, which opens when all its tasks have ended.

`missing` jobs it still waits for; its `array` (-1: none that is limited) and `place` in `tasks`;
whether it is `counted` as active there, or was `stopped` since enough others are; whether it was
`released` as a job that it depends on does not run.
"""

ARRAY = record_type(("next", "i8"), ("last", "i8"), ("limit", "i4"), ("active", "i4"))
"""An array's tasks from place `next` on, up to `last`, may be stopped; none before is."""

DEPENDENT = record_type(("row", "i4"), ("at_start", "i1"), ("over", "i1"))
"""A job that waits for another: for its start only, and whether it no longer does."""


@part
def open_gate(machine: MachineState, row: int) -> None:
    """Have a job's gate tried again before the next pass."""
    state = machine.state[0]
    machine.opened[state.opened] = row
    state.opened += 1


@part
def passes_gate(machine: MachineState, row: int) -> bool:
    """Return whether a job may come into the queue; it is then counted in its array."""
    gate = machine.gates[row]
    if gate.missing > 0:
        return False
    if gate.array < 0 or gate.counted:
        return True
    array = machine.arrays[gate.array]
    if array.active < array.limit:
        array.active += 1
        gate.counted = 1
        return True
    gate.stopped = 1
    array.next = min(array.next, gate.place)
    return False


@part
def next_task(machine: MachineState, which: int) -> None:
    """Free the first task of an array that was stopped."""
    array = machine.arrays[which]
    at = array.next
    while at < array.last and not machine.gates[machine.tasks[at]].stopped:
        at += 1
    array.next = at
    if at < array.last:
        row = machine.tasks[at]
        machine.gates[row].stopped = 0
        open_gate(machine, row)


@outline
def leave_array(machine: MachineState, row: int) -> None:
    """Let another task of an array in for one that no longer waits in the queue, nor runs."""
    gate = machine.gates[row]
    if gate.counted:
        gate.counted = 0
        machine.arrays[gate.array].active -= 1
        next_task(machine, gate.array)


@outline
def array_over(machine: MachineState, whole: int) -> None:
    """Open the gates of jobs that waited for all tasks of an array only."""
    for i in range(machine.dependent_of[whole], machine.dependent_of[whole + 1]):
        dependent = machine.dependents[i]
        dependent.over = 1
        gate = machine.gates[dependent.row]
        gate.missing -= 1
        if machine.gates[whole].released:
            gate.released = 1
        if gate.missing == 0:
            open_gate(machine, dependent.row)


@outline
def dependency_over(machine: MachineState, row: int, started: bool, ran: bool) -> None:
    """Open the gates of jobs that waited for one only, which `started` or will not run any more."""
    for i in range(machine.dependent_of[row], machine.dependent_of[row + 1]):
        dependent = machine.dependents[i]
        if dependent.over or (started and not dependent.at_start):
            continue
        dependent.over = 1
        gate = machine.gates[dependent.row]
        gate.missing -= 1
        if not ran:
            gate.released = 1
        if gate.missing == 0:
            if dependent.row < len(machine.jobs):
                open_gate(machine, dependent.row)
            else:
                array_over(machine, dependent.row)


@outline
def job_over(machine: MachineState, row: int, ran: bool) -> None:
    """Open the gates of jobs that waited for one that has ended, or that will not run."""
    dependency_over(machine, row, False, ran)
    leave_array(machine, row)
