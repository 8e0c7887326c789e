"""Preemption the plain way: one event after the other, on whole nodes or shared ones, no kernel."""

import math
from dataclasses import dataclass, field

Room = list[list[int]]


@dataclass
class Job:
    """What a job asks for: nodes, amounts on each, seconds requested and run; its kind."""

    submit: float
    nodes: int
    demand: tuple[int, ...]
    wall: float
    run: float
    kind: int = 0


@dataclass
class Rules:
    """Who may preempt whom, by kind: `may[a]` are the kinds that `a` may preempt."""

    may: dict[int, set[int]]
    rank: dict[int, float]
    cancels: set[int] = field(default_factory=set)
    exempt: dict[int, float] = field(default_factory=dict)


@dataclass
class Run:
    """A job from a start to when it stopped, and how: `ended`, `requeued` or `cancelled`."""

    job: int
    start: float
    end: float
    nodes: list[int]
    how: str


class Plain:
    """A system under FCFS or EASY with preemption; `runs` grows by every run of every job."""

    def __init__(
        self, jobs: list[Job], capacity: list[tuple[int, ...]], policy: str, rules: Rules
    ) -> None:
        self.jobs, self.policy, self.rules = jobs, policy, rules
        self.room: Room = [list(amounts) for amounts in capacity]
        self.queue: list[int] = []
        self.running: dict[int, Run] = {}
        self.runs: list[Run] = []
        self.now = -math.inf

    def run(self) -> list[Run]:
        """Run to the end and return all runs."""
        left = list(range(len(self.jobs)))
        while left or self.running:
            ends = [self.end(key) for key in self.running]
            opens = [time for key in self.running if (time := self.open_at(key)) > self.now]
            self.now = min([*ends, *opens, *(self.jobs[key].submit for key in left)])
            for key in [key for key in self.running if self.end(key) <= self.now]:
                self.stop(key, "ended")
            while left and self.jobs[left[0]].submit <= self.now:
                self.queue.append(left.pop(0))
            self.usual_pass()
            while self.preempt():
                self.usual_pass()
        return self.runs

    def end(self, key: int) -> float:
        """Return when a running job ends."""
        return self.running[key].start + min(self.jobs[key].run, self.jobs[key].wall)

    def limit(self, key: int) -> float:
        """Return when a running job ends by its time limit."""
        return self.running[key].start + self.jobs[key].wall

    def open_at(self, key: int) -> float:
        """Return from when on a running job may be preempted."""
        return self.running[key].start + self.rules.exempt.get(self.jobs[key].kind, 0.0)

    def fits(self, key: int, room: list[int]) -> bool:
        """Return whether a job fits in the room of a node."""
        return all(asked <= left for asked, left in zip(self.jobs[key].demand, room, strict=True))

    def without(self, keys: set[int], room: Room | None = None) -> Room:
        """Return the room of the nodes without some running jobs."""
        found = [list(amounts) for amounts in (self.room if room is None else room)]
        for key in keys:
            for node in self.running[key].nodes:
                found[node] = [
                    a + b for a, b in zip(found[node], self.jobs[key].demand, strict=True)
                ]
        return found

    def beside(self, key: int, room: list[int]) -> list[int]:
        """Return the room of a node with a job on it."""
        return [a - b for a, b in zip(room, self.jobs[key].demand, strict=True)]

    def first_nodes(self, key: int, room: Room) -> list[int] | None:
        """Return the first nodes that a job fits on, None: there are too few."""
        found = [node for node, left in enumerate(room) if self.fits(key, left)]
        return found[: self.jobs[key].nodes] if len(found) >= self.jobs[key].nodes else None

    def begin(self, key: int, nodes: list[int]) -> None:
        """Start a job."""
        self.queue.remove(key)
        for node in nodes:
            self.room[node] = self.beside(key, self.room[node])
        self.running[key] = Run(key, self.now, math.nan, nodes, "")

    def stop(self, key: int, how: str) -> None:
        """Stop a running job."""
        self.room = self.without({key})
        run = self.running.pop(key)
        run.end, run.how = self.now, how
        self.runs.append(run)
        if how == "requeued":
            self.queue = sorted([*self.queue, key])

    def shadow(self, head: int) -> tuple[float, Room]:
        """Return the earliest time limit at which a job fits, and the room then."""
        for time in sorted({self.limit(key) for key in self.running}):
            room = self.without({key for key in self.running if self.limit(key) <= time})
            if self.first_nodes(head, room) is not None:
                return time, room
        raise AssertionError("a job that fits on the empty machine starts some time")

    def usual_pass(self) -> None:
        """Start what the loop lets start."""
        for key in list(self.queue):
            nodes = self.first_nodes(key, self.room)
            if nodes is None:
                break
            self.begin(key, nodes)
        if self.policy == "fcfs" or not self.queue:
            return
        head = self.queue[0]
        shadow, later = self.shadow(head)
        for key in self.queue[1:]:
            nodes = self.first_nodes(key, self.room)
            if nodes is None:
                continue
            if self.now + self.jobs[key].wall > shadow:
                with_it = [list(left) for left in later]
                for node in nodes:
                    with_it[node] = self.beside(key, with_it[node])
                if self.first_nodes(head, with_it) is None:
                    continue
                later = with_it
            self.begin(key, nodes)

    def preempt(self) -> bool:
        """Start the first job that can start by preempting others; return whether one did."""
        for place, key in enumerate(self.queue):
            may = self.rules.may.get(self.jobs[key].kind, set())
            if not may:
                continue
            others = [*self.running, *self.queue[:place]]
            if not any(self.jobs[one].kind in may for one in others):
                continue  # there is nobody whose place it could take
            ahead = [one for one in self.queue[:place] if self.jobs[one].kind not in may]
            if ahead and self.policy == "fcfs":
                continue
            candidates = [
                one
                for one in self.running
                if self.jobs[one].kind in may
                and (self.running[one].start == self.now or self.open_at(one) <= self.now)
            ]
            guard = self.ahead(ahead[0]) if ahead else None
            if self.choose(key, set(candidates), guard) is None:
                continue
            candidates.sort(key=self.order)
            nodes, gone = self.fewest(key, candidates, guard)
            held = {one: len(set(self.running[one].nodes) & set(nodes)) for one in gone}
            fresh = {one: self.running[one].start < self.now for one in gone}
            gone.sort(key=lambda one: (fresh[one], -held[one], self.order(one)))
            nodes, gone = self.fewest(key, gone, guard)
            for one in sorted(gone):
                if set(self.running[one].nodes) & set(nodes):
                    cancels = self.jobs[one].kind in self.rules.cancels
                    ran = self.running[one].start < self.now
                    self.stop(one, "cancelled" if cancels and ran else "requeued")
            self.begin(key, nodes)
            return True
        return False

    def order(self, key: int) -> tuple[bool, float, int, float, int]:
        """Return what running jobs are preempted by, the least first."""
        job, start = self.jobs[key], self.running[key].start
        return start < self.now, self.rules.rank[job.kind], job.nodes, -start, -key

    def ahead(self, key: int) -> tuple[int, float, Room]:
        """Return a job that waits ahead, its earliest start, and the room then."""
        return (key, *self.earliest(key))

    def earliest(self, key: int) -> tuple[float, Room]:
        """Return the earliest start of a job that waits."""
        if self.first_nodes(key, self.room) is not None:
            return self.now, self.room
        return self.shadow(key)

    def fewest(
        self, key: int, candidates: list[int], guard: tuple[int, float, Room] | None
    ) -> tuple[list[int], list[int]]:
        """Return nodes for a job, and the first candidates that must be gone for them."""
        for count in range(len(candidates) + 1):
            nodes = self.choose(key, set(candidates[:count]), guard)
            if nodes is not None:
                return nodes, candidates[:count]
        raise AssertionError("there are nodes when all are gone")

    def choose(
        self, key: int, gone: set[int], guard: tuple[int, float, Room] | None
    ) -> list[int] | None:
        """Return the first nodes for a job without some running ones; a guard keeps its start."""
        room = self.without(gone)
        if guard is None or self.now + self.jobs[key].wall <= guard[1]:
            return self.first_nodes(key, room)
        head, shadow, later = guard
        spare = sum(self.fits(head, left) for left in later) - self.jobs[head].nodes
        still = {one for one in gone if self.limit(one) > shadow}
        then = self.without(still, later)
        nodes: list[int] = []
        for node, left in enumerate(room):
            if not self.fits(key, left) or len(nodes) == self.jobs[key].nodes:
                continue
            served = self.fits(head, later[node])
            if served and not self.fits(head, self.beside(key, then[node])):
                if spare <= 0:
                    continue
                spare -= 1
            nodes.append(node)
        return nodes if len(nodes) == self.jobs[key].nodes else None
