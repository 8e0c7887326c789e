"""Delay-class mapping told plainly: exact fractions, steps of at most a second, loops over all.

Nothing here is shared with rtsched; the tests compare both.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


@dataclass
class Job:
    """One job, before, while and after it runs."""

    id: int
    arrival: Fraction
    demand: Fraction
    least: int
    most: int
    nodes: list[int] = field(default_factory=list)
    delay: Fraction = Fraction(0)
    pause: Fraction = Fraction(0)
    start: Fraction | None = None
    end: Fraction | None = None
    upgrades: int = 0
    migrations: int = 0


class Workstations:
    """The machines, the queue and the running jobs."""

    def __init__(self, alpha: list[Fraction], upgrade: bool, migrate: bool, cost: bool) -> None:
        self.alpha, self.upgrades, self.migrates, self.costs = alpha, upgrade, migrate, cost
        self.classes = sorted({a * k for a in alpha for k in range(1, 99) if a * k <= max(alpha)})
        self.running: list[Job] = []
        self.queue: list[Job] = []

    def load(self, node: int, without: Job | None = None) -> int:
        """Return the processes on a node."""
        return sum(node in job.nodes for job in self.running if job is not without)

    def usable(self, without: Job | None = None) -> list[tuple[Fraction, int]]:
        """Return delay and index of the nodes that a new process slows nobody on, sorted."""
        found = []
        for node, alpha in enumerate(self.alpha):
            delay = alpha * (1 + self.load(node, without))
            delays = [job.delay for job in self.running if node in job.nodes and job is not without]
            if delay <= min([max(self.alpha), *delays]):
                found.append((delay, node))
        return sorted(found)

    def serve(self, now: Fraction) -> None:
        """Map jobs, head first, while that can be done."""
        while self.queue:
            job, usable = self.queue[0], self.usable()
            options = []
            for bound in self.classes:
                count = sum(delay <= bound for delay, _ in usable)
                given = min(count, job.most)
                if given >= job.least:
                    options.append((bound / given, count - given, bound, given))
            if not options:
                return
            taken = usable[: min(options)[3]]
            job.nodes, job.delay = [node for _, node in taken], max(delay for delay, _ in taken)
            job.start = now
            self.running.append(self.queue.pop(0))

    def adapt(self) -> None:
        """Let delays fall to what the load makes them."""
        for job in self.running if self.upgrades else ():
            present = max(self.alpha[node] * self.load(node) for node in job.nodes)
            if present < job.delay:
                job.delay, job.upgrades = present, job.upgrades + 1

    def settle(self) -> None:
        """Migrate jobs until nobody moves."""
        while self.migrates and not self.queue and self.one_moves():
            self.adapt()

    def one_moves(self) -> bool:
        """Move the first job that gains; return whether there was one."""
        for job in sorted(self.running, key=lambda job: (job.start, job.id)):
            best = self.usable(job)[: len(job.nodes)]
            moved = {node for _, node in best} - set(job.nodes)
            if len(best) == len(job.nodes) and moved and best[-1][0] < job.delay:
                job.nodes, job.delay = [node for _, node in best], best[-1][0]
                job.migrations += 1
                job.pause += (10 + Fraction(127, 10) * len(moved)) * self.costs
                return True
        return False


def simulate(places: Workstations, jobs: list[Job]) -> list[Job]:
    """Run jobs, listed by arrival, and return them."""
    ahead, now = list(jobs), Fraction(0)
    while ahead or places.queue or places.running:
        step = Fraction(1)
        if ahead:
            step = min(step, ahead[0].arrival - now)
        for job in places.running:
            left = job.pause if job.pause > 0 else job.demand * job.delay / len(job.nodes)
            step = min(step, left)
        now += step
        for job in places.running:
            if job.pause > 0:
                job.pause -= step
            else:
                job.demand -= step * len(job.nodes) / job.delay
        for job in sorted(places.running, key=lambda job: job.id):
            if job.demand == 0 and job.pause == 0:
                job.end = now
                places.running.remove(job)
                places.adapt()
                places.serve(now)
                places.settle()
        while ahead and ahead[0].arrival == now:
            places.queue.append(ahead.pop(0))
        places.serve(now)
    return jobs


def outcome(jobs: list[Job]) -> list[dict[str, Any]]:
    """Return what became of the jobs, as the case files say it."""
    return [
        {
            "id": job.id,
            "start_time_s": float(job.start or 0),
            "finish_time_s": float(job.end or 0),
            "processes": len(job.nodes),
            "upgrades": job.upgrades,
            "migrations": job.migrations,
        }
        for job in jobs
    ]
