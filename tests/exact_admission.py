"""Exact deadline admission on nodes that jobs share, by search: what planners are compared with.

A job is admitted if some schedule keeps it and all that were admitted before, whatever order and
nodes that takes. Plain Python, for some jobs on a few nodes.

Times are whole seconds, and a job runs for as long as it asks for. Then starts may be restricted
to now and the ends of other jobs: take any schedule in time, and a job in it that starts at another
instant. Move it earlier, on its nodes, to the last of those instants before its start. Nobody ends
between there and its old start, so whoever is on its nodes in between is still there at its old
start, where all have room beside it. It ends earlier, nobody else moves, and the sum of all starts,
which are whole and not before now, becomes less. So after some such moves there is no such job.

All jobs take time, so who ends at the start of another starts before it. A search that starts jobs
in order of time therefore comes by each of these schedules if at now, and at each end, it starts
any of the jobs that wait on any of the nodes, or none. Whoever runs at an instant was placed
before, and nobody comes to a node without room at his start: it suffices to look at that instant.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

Amounts = tuple[int, ...]


class Job(NamedTuple):
    """What a job asks for."""

    submit: int
    deadline: int
    demand: Amounts
    """On each of its nodes."""
    shapes: tuple[tuple[int, int], ...]
    """Numbers of nodes on which it may run, and its seconds there; a rigid job has one."""


class Entry(NamedTuple):
    """A job that runs, or is planned."""

    job: int
    start: int
    end: int
    nodes: tuple[int, ...]


class Search:
    """The search for a schedule of some jobs on nodes with such amounts."""

    def __init__(self, jobs: list[Job], capacity: list[Amounts]) -> None:
        self.jobs, self.capacity = jobs, capacity
        self._failed: set[tuple[object, ...]] = set()

    def schedule(
        self, now: int, running: Iterable[Entry], waiting: Iterable[int]
    ) -> list[Entry] | None:
        """Return entries of the jobs that wait, all in time, or None if there is no schedule."""
        due = sorted(waiting, key=lambda job: (self.jobs[job].deadline, job))
        self._failed = set()
        return self._rest(now, tuple(due), tuple(running), 0)

    def _rest(
        self, now: int, waiting: tuple[int, ...], held: tuple[Entry, ...], first: int
    ) -> list[Entry] | None:
        """Return the schedule from `now` on; of those that wait, the `first` start later."""
        if not waiting:
            return []
        held = tuple(entry for entry in held if entry.end > now)
        nodes = self._nodes(held)
        state = (now, waiting, first, tuple(sorted(nodes)))
        if state in self._failed or self._hopeless(now, waiting, held, first):
            return None
        for at in range(first, len(waiting)):
            others = waiting[:at] + waiting[at + 1 :]
            for entry in self._entries(waiting[at], now, nodes):
                found = self._rest(now, others, (*held, entry), at)
                if found is not None:
                    return [entry, *found]
        if held:
            found = self._rest(min(entry.end for entry in held), waiting, held, 0)
            if found is not None:
                return found
        self._failed.add(state)
        return None

    def _nodes(self, held: tuple[Entry, ...]) -> list[tuple[Amounts, tuple[object, ...]]]:
        """Return what each node has, and until when others take what of it: all that matters."""
        there: list[list[tuple[int, Amounts]]] = [[] for _ in self.capacity]
        for entry in held:
            for node in entry.nodes:
                there[node].append((entry.end, self.jobs[entry.job].demand))
        return [
            (amounts, tuple(sorted(on))) for amounts, on in zip(self.capacity, there, strict=True)
        ]

    def _entries(
        self, job: int, now: int, nodes: list[tuple[Amounts, tuple[object, ...]]]
    ) -> Iterator[Entry]:
        """Yield how a job may start now; of nodes that are alike, the first ones."""
        asked = self.jobs[job]
        fits = [
            node
            for node, (amounts, on) in enumerate(nodes)
            if all(
                sum(taken[k] for _, taken in on) + asked.demand[k] <= amount
                for k, amount in enumerate(amounts)
            )
        ]
        for count, seconds in asked.shapes:
            if now + seconds > asked.deadline:
                continue
            tried = set()
            for chosen in combinations(fits, count):
                alike = tuple(sorted(nodes[node] for node in chosen))
                if alike not in tried:
                    tried.add(alike)
                    yield Entry(job, now, now + seconds, chosen)

    def _hopeless(
        self, now: int, waiting: tuple[int, ...], held: tuple[Entry, ...], first: int
    ) -> bool:
        """Return whether somebody would be late, or those due by some time ask for too much."""
        later = min((entry.end for entry in held), default=now)
        work = [0] * len(self.capacity[0])
        for at, job in enumerate(waiting):
            asked = self.jobs[job]
            start = later if at < first else now
            if start + min(seconds for _, seconds in asked.shapes) > asked.deadline:
                return True
            least = min(count * seconds for count, seconds in asked.shapes)
            for k, amount in enumerate(asked.demand):
                work[k] += amount * least
                there = sum(amounts[k] for amounts in self.capacity) * (asked.deadline - now)
                there -= sum(
                    self.jobs[entry.job].demand[k]
                    * len(entry.nodes)
                    * (min(entry.end, asked.deadline) - now)
                    for entry in held
                )
                if work[k] > there:
                    return True
        return False


def admissions(jobs: list[Job], capacity: list[Amounts]) -> list[bool]:
    """Return whom exact admission lets in, who come in order of arrival.

    A job that runs stays where it is; those that wait are planned anew for each that is admitted.
    """
    search = Search(jobs, capacity)
    running: list[Entry] = []
    plan: list[Entry] = []
    admitted = []
    for job, asked in enumerate(jobs):
        now = asked.submit
        running += [entry for entry in plan if entry.start < now]
        running = [entry for entry in running if entry.end > now]
        plan = [entry for entry in plan if entry.start >= now]
        found = search.schedule(now, running, [*(entry.job for entry in plan), job])
        admitted.append(found is not None)
        plan = plan if found is None else found
    return admitted
