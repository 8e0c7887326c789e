"""Changes of a batch system, made of plans and actions, and their results: alike for all systems.

`Steering` gives each action to the method of its name, which knows the system's commands for it.
`carried_out` runs the commands of many changes by rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID, Change, Done, Outcome
from rtsched.model.actions import Move
from rtsched.model.cluster import NodeState
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.live import Observation
    from rtsched.model.actions import Action, Cancel, Notify, Reject, Requeue
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule


Reply = tuple[Outcome, str]
"""The result of a command, and the batch system's message."""


# --- from actions to changes ----------------------------------------------------------------------


class Steering(ABC):
    """What actions ask of a batch system that is not so yet, by its last poll.

    A system has a method for each action that it knows commands for: `set_priority` for a
    `SetPriority`. An action without one is not supported, and its changes have no command.
    """

    def changes(self, action: Action) -> Iterable[Change]:
        """Return what one action asks for."""
        name = kind_of(action).replace("-", "_")
        asked: Callable[[Action], Iterable[Change]] = getattr(self, name, self.unsupported)
        return asked(action)

    def unsupported(self, action: Action) -> Iterator[Change]:
        """Yield an action that the system knows no command for."""
        kind = kind_of(action)
        for job in action.job.tolist():
            yield Change(kind, job, f"{kind} job {self.name_of(job)}")

    def cancel(self, action: Cancel | Reject) -> Iterator[Change]:
        """Yield what removes jobs, their users told before."""
        for job, text in zip(action.job.tolist(), action.text, strict=True):
            yield from self.removal(job, text)

    reject = cancel

    def notify(self, action: Notify) -> Iterator[Change]:
        """Yield what tells jobs' users something."""
        for job, text in zip(action.job.tolist(), action.text, strict=True):
            yield from self.notice(job, text)

    @abstractmethod
    def name_of(self, job: int) -> str:
        """Return what the batch system calls a job."""

    @abstractmethod
    def removal(self, job: int, text: str) -> Iterable[Change]:
        """Return what removes a job, its user told before."""

    @abstractmethod
    def notice(self, job: int, text: str) -> Iterable[Change]:
        """Return what tells a job's user something."""


def kind_of(action: Action) -> str:
    """Return the name of an action, such as `set-priority`."""
    name = type(action).__name__
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def exchanged(
    priority: NDArray[np.float64], group: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the priorities that jobs have after they exchanged their places in the queue.

    Parameters
    ----------
    priority : float64[n]
        By which the queue is ordered, the highest first; equal ones in the order given.
    group : int64[n]
        Places are exchanged within a group only, such as a partition.
    rank : int64[n]
        The lowest has its group's highest priority.
    """
    result = np.empty_like(priority)
    holder, taker = _exchange(priority, group, rank)
    result[taker] = priority[holder]
    return result


def _exchange(
    priority: NDArray[np.float64] | NDArray[np.int64],
    group: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return who holds each place, by group from the first on, and who takes it, int64[n]."""
    return np.lexsort((-priority, group)), np.lexsort((-priority, rank, group))


def with_exchanged_places(
    priority: NDArray[np.int64],
    group: NDArray[np.int64],
    rank: NDArray[np.int64],
    others: NDArray[np.int64],
    others_group: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the priorities of `exchanged` for a queue that has equal ones in another order.

    That is the order of submission. So of jobs with equal priorities those of lower rank get
    higher ones, up to the next one of the `others` in their group, int64[m]; none do where others
    have the same. Before none of these are there more jobs than by `priority`.
    """
    wanted = np.empty_like(priority)
    holder, taker = _exchange(priority, group, rank)
    for each in np.unique(group).tolist():
        at = np.flatnonzero(group[holder] == each)
        taken = np.sort(others[others_group == each])
        place, count = priority[holder[at]], np.arange(len(at))
        higher = np.maximum.accumulate((place + count)[::-1])[::-1] - count
        after = np.searchsorted(taken, place, side="right")
        bound = np.concatenate([taken, [np.iinfo(np.int64).max]])[after] - 1
        equal = np.isin(place, taken)
        shared = place - (taker[at] < holder[at])
        wanted[taker[at]] = np.where(equal, shared, np.minimum(higher, bound))
    return wanted


def is_ordered(
    wanted: NDArray[np.int64], present: NDArray[np.int64], group: NDArray[np.int64]
) -> bool:
    """Return whether jobs are in the order of the wanted priorities in each group, int64[n]."""
    order = np.lexsort((-wanted, group))
    lower = (np.diff(wanted[order]) < 0) & (np.diff(group[order]) == 0)
    return not bool((lower & (np.diff(present[order]) >= 0)).any())


def stoppable(observation: Observation, action: Requeue | Move) -> dict[int, bool]:
    """Return the running jobs among those of an action, and whether each may be stopped.

    A job is moved only if it says that it keeps checkpoints; what it did so far would be lost.
    """
    able = observation.marks.requeues[len(observation.queued) :]
    if isinstance(action, Move):
        able = able & observation.running.checkpoints
    running = dict(zip(observation.running.id.tolist(), able.tolist(), strict=True))
    return {job: running[job] for job in action.job.tolist() if job in running}


def idle_nodes(observation: Observation, usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[m]: which of the `usable` nodes, bool[m], take jobs and run none."""
    idle = np.equal(observation.cluster.nodes.state, NodeState.UP)
    idle[observation.allocations.nodes] = False
    return idle & usable


# --- carrying them out ----------------------------------------------------------------------------


class Ranked(Protocol):
    """A command that has its turn: lower ranks come first."""

    @property
    def rank(self) -> int: ...  # noqa: D102


C = TypeVar("C", bound=Ranked)


def carried_out(
    changes: Sequence[Change],
    commands: Sequence[Sequence[C]],
    run: Callable[[Sequence[tuple[int, C]]], Iterable[tuple[int, Reply]]],
    held_back: Callable[[Sequence[tuple[int, C]], Sequence[C]], Mapping[int, str]],
    system: str,
) -> list[Done]:
    """Return what became of each change, in the order given.

    The commands of a change follow one another by rank, and end with the first one that fails.

    Parameters
    ----------
    changes : sequence of Change
        What is to be changed.
    commands : sequence of sequence of Command
        Those of each change; the system cannot do what has none.
    run : callable
        Runs commands of one rank, each with the place of its change, and returns what became of
        them, by that place.
    held_back : callable
        Which commands of one rank must not run, as the commands of changes that failed did not: by
        the place of the change, why.
    system : str
        The batch system, for people.
    """
    replies: list[Reply] = [
        ("done", "") if each else ("unsupported", f"not supported on {system}") for each in commands
    ]
    for rank in sorted({command.rank for each in commands for command in each}):
        going = [at for at, reply in enumerate(replies) if reply[0] == "done"]
        turn = [(at, each) for at in going for each in commands[at] if each.rank == rank]
        failed = [
            each
            for at, reply in enumerate(replies)
            if reply[0] not in {"done", "unsupported"}
            for each in commands[at]
        ]
        stopped = held_back(turn, failed) if failed else {}
        for at, why in stopped.items():
            replies[at] = ("failed", why)
        for at, reply in run([(at, each) for at, each in turn if at not in stopped]):
            if reply[0] != "done":
                replies[at] = reply
    return [Done(each, *reply) for each, reply in zip(changes, replies, strict=True)]


# --- planned jobs ---------------------------------------------------------------------------------


def waiting(plan: Schedule, queued: NDArray[np.int64]) -> Schedule:
    """Return the entries whose jobs are among the `queued` ones, int64[n], or are not there yet."""
    jobs = plan.entries.job
    keep = are_in(jobs, queued) | (jobs >= FIRST_OWN_ID)
    return plan if keep.all() else plan.take(np.flatnonzero(keep))


def rounds_of(plan: Schedule, entry: int, jobs: Jobs, row: int) -> list[float]:
    """Return the share of its part that each node of an entry takes in each round.

    Empty if it takes all at once. The entry is of the job in that row of `jobs`.
    """
    # It imports numba: only where there are loads.
    from rtsched.kernels.dlt import round_shares

    rounds, size = int(plan.entries.rounds[entry]), int(plan.entries.size[entry])
    return round_shares(rounds, size, jobs.load(row), float(jobs.setup_once[row]))
