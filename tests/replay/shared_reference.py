"""Backfilling on nodes that jobs share, the plain way: one event after the other, no kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from plain_loops import Over


@dataclass
class Job:
    """What a job asks for: nodes, amounts on each, seconds requested and run; licences in all."""

    submit: float
    nodes: int
    demand: tuple[int, ...]
    wall: float
    run: float
    exclusive: bool = False
    licenses: int = 0


def licensed(jobs: list[Job], licenses: int, key: int, holders: Iterable[int]) -> bool:
    """Return whether there are licences enough for a job beside those who hold some."""
    return sum(jobs[one].licenses for one in (key, *holders)) <= licenses


@dataclass
class Node:
    """What is left of a node, and who is there."""

    room: list[int]
    guests: set[int] = field(default_factory=set)
    closed: bool = False

    def fits(self, job: Job) -> bool:
        """Return whether a job may come."""
        enough = all(asked <= left for asked, left in zip(job.demand, self.room, strict=True))
        return enough and not self.closed and not (job.exclusive and self.guests)

    def take(self, key: int, job: Job, sign: int) -> None:
        """Let a job come (1) or go (-1)."""
        self.room = [left - sign * n for left, n in zip(self.room, job.demand, strict=True)]
        self.guests ^= {key}
        self.closed = sign > 0 and job.exclusive

    def copy(self) -> Node:
        """Return the same once more."""
        return Node(list(self.room), set(self.guests), self.closed)


def score(job: Job, room: list[int], has: tuple[int, ...], at: int, rule: str) -> float:
    """Return the score of a node, with cores, memory and GPUs, for a job; less is better."""
    if rule == "best_fit":
        full = [
            (has[k] - room[k] + job.demand[k]) / has[k]
            for k in range(3)
            if job.demand[k] > 0 and has[k] > 0
        ]
        return -max(full, default=0.0)
    if rule == "backwards":
        return -float(at)
    if rule == "least_loaded":
        return -float(room[0])
    if rule == "pack_serial_at_end":
        return float(-at if job.nodes == 1 and job.demand[0] <= 1 else at)
    if rule == "fewest_stranded_gpus":
        left = [amount - asked for amount, asked in zip(room, job.demand, strict=True)]
        return without_others(left, has) - without_others(room, has)
    return float(at)


def without_others(room: list[int], has: tuple[int, ...]) -> float:
    """Return the free GPUs that have not an even share of the node's cores and memory left."""
    usable = [room[k] / has[k] * has[2] for k in range(2) if has[k] > 0]
    return float(room[2] - min([room[2], *usable])) if has[2] > 0 else 0.0


def best(scores: dict[int, float], count: int) -> list[int]:
    """Return the `count` nodes of the least scores, of equal ones the first; ascending."""
    return sorted(sorted(scores, key=lambda at: (scores[at], at))[:count])


def starts(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    policy: str,
    rule: str = "first",
    over: Over | None = None,
    licenses: int = 0,
) -> dict[int, tuple[float, list[int]]]:
    """Return start and nodes of each job, which are in order of submission.

    Jobs that do not fit on the empty machine are refused. Those over a limit are passed over.
    """
    over = over or Over()
    nodes = [Node(list(amounts)) for amounts in capacity]
    possible = [
        sum(node.fits(job) for node in nodes) >= job.nodes and job.licenses <= licenses
        for job in jobs
    ]
    queue: list[int] = []
    running: dict[int, float] = {}
    found: dict[int, tuple[float, list[int]]] = {}

    def place(key: int, on: list[Node], beside: Iterable[int]) -> list[int] | None:
        if not licensed(jobs, licenses, key, beside):
            return None
        scores = {
            at: score(jobs[key], node.room, capacity[at], at, rule)
            for at, node in enumerate(on)
            if node.fits(jobs[key])
        }
        return best(scores, jobs[key].nodes) if len(scores) >= jobs[key].nodes else None

    def begin(key: int, at: list[int], now: float) -> None:
        for node in at:
            nodes[node].take(key, jobs[key], 1)
        found[key], running[key] = (now, at), now + min(jobs[key].run, jobs[key].wall)
        over.begin(key)
        queue.remove(key)

    def earliest(head: int, now: float, and_key: int = -1, its: list[int] | None = None) -> float:
        later = [node.copy() for node in nodes]
        ends = {key: found[key][0] + jobs[key].wall for key in running}
        where = {key: found[key][1] for key in running}
        if its is not None:
            ends[and_key], where[and_key] = now + jobs[and_key].wall, its
            for node in its:
                later[node].take(and_key, jobs[and_key], 1)
        for time in sorted({now, *ends.values()}):
            for key, end in ends.items():
                if end == time and key in where:
                    for node in where.pop(key):
                        later[node].take(key, jobs[key], -1)
            if place(head, later, where) is not None:
                return time
        raise AssertionError("a job that fits on the empty machine starts some time")

    upcoming = 0
    while upcoming < len(jobs) or running or over.again < math.inf:
        submits = [jobs[upcoming].submit] if upcoming < len(jobs) else []
        now = min([over.again, *running.values(), *submits])
        over.at(now)
        for key in [key for key, end in running.items() if end == now]:
            for node in found[key][1]:
                nodes[node].take(key, jobs[key], -1)
            del running[key]
        while upcoming < len(jobs) and jobs[upcoming].submit == now:
            queue += [upcoming] * possible[upcoming]
            upcoming += 1
        head = None
        for key in list(queue):
            if over(key, running):
                continue
            if (at := place(key, nodes, running)) is None:
                head = key
                break
            begin(key, at, now)
        if policy == "fcfs" or head is None:
            continue
        shadow = earliest(head, now)
        for key in queue[queue.index(head) + 1 :]:
            at = place(key, nodes, running)
            if at is None or over(key, running):
                continue
            if now + jobs[key].wall <= shadow or earliest(head, now, key, at) <= shadow:
                begin(key, at, now)
    return found


def fits_at(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    held: dict[int, tuple[float, float, list[int]]],
    key: int,
    node: int,
    start: float,
) -> bool:
    """Return whether a job fits on a node from `start` on, beside (start, end, nodes) of others."""
    end = start + jobs[key].wall
    others = [
        (other, begin, until)
        for other, (begin, until, where) in held.items()
        if node in where and begin < end and until > start
    ]
    for moment in {start, *(begin for _, begin, _ in others if begin > start)}:
        there = Node(list(capacity[node]))
        for other, begin, until in others:
            if begin <= moment < until:
                there.take(other, jobs[other], 1)
        there.closed = any(
            jobs[other].exclusive for other, begin, until in others if begin <= moment < until
        )
        if not there.fits(jobs[key]):
            return False
    return True


def licensed_at(
    jobs: list[Job],
    licenses: int,
    held: dict[int, tuple[float, float, list[int]]],
    key: int,
    start: float,
) -> bool:
    """Return whether there are licences for a job from `start` on, beside what others hold."""
    end = start + jobs[key].wall
    return all(
        licensed(jobs, licenses, key, [one for one, (b, u, _) in held.items() if b <= moment < u])
        for moment in {start, *(begin for begin, _, _ in held.values() if start < begin < end)}
    )


def conservative(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    rule: str = "first",
    over: Over | None = None,
    licenses: int = 0,
    plan: dict[int, tuple[float, list[int]]] | None = None,
) -> dict[int, tuple[float, list[int]]]:
    """Return start and nodes of each job if every queued job has a reservation.

    When a job ends early, each is taken out and put back in queue order. A job over a limit has
    none, and loses its own, which the others may use. Those of `plan`, with start and nodes, are
    there from the beginning and are not in what is returned.
    """
    plan, over = plan or {}, over or Over()
    held = {key: (start, start + jobs[key].wall, at) for key, (start, at) in plan.items()}
    queue: list[int] = []
    running: dict[int, float] = {}
    found: dict[int, tuple[float, list[int]]] = {}
    empty = [Node(list(amounts)) for amounts in capacity]

    def reserve(key: int, now: float) -> None:
        for time in sorted({now, *(until for _, until, _ in held.values() if until > now)}):
            where = [
                node
                for node in range(len(capacity))
                if fits_at(jobs, capacity, held, key, node, time)
            ]
            if len(where) >= jobs[key].nodes and licensed_at(jobs, licenses, held, key, time):
                scores = {
                    at: score(jobs[key], left(at, time), capacity[at], at, rule) for at in where
                }
                held[key] = (time, time + jobs[key].wall, best(scores, jobs[key].nodes))
                return

    def left(node: int, time: float) -> list[int]:
        there = Node(list(capacity[node]))
        for other, (begin, until, where) in held.items():
            if node in where and begin <= time < until:
                there.take(other, jobs[other], 1)
        return there.room

    def sweep(now: float, early: bool) -> bool:
        lost = False
        for key in list(queue):
            if over(key, running):
                lost |= held.pop(key, None) is not None
                continue
            if early and key in held and held[key][0] > now:
                del held[key]
            if key not in held:
                reserve(key, now)
            if held[key][0] <= now:
                found[key] = (now, held[key][2])
                over.begin(key)
                running[key] = now + min(jobs[key].run, jobs[key].wall)
                queue.remove(key)
        return lost

    upcoming = 0
    while True:
        submits = [jobs[upcoming].submit] if upcoming < len(jobs) else []
        reserved = [held[key][0] for key in queue if key in held]
        if not (submits or running or reserved or over.again < math.inf):
            return found
        now = min([over.again, *running.values(), *submits, *reserved])
        over.at(now)
        early = False
        for key in [key for key, end in running.items() if end == now]:
            early |= held.pop(key)[1] > now
            del running[key]
        while upcoming < len(jobs) and jobs[upcoming].submit == now:
            job = jobs[upcoming]
            fits = sum(node.fits(job) for node in empty) >= job.nodes
            if fits and job.licenses <= licenses and upcoming not in plan:
                queue.append(upcoming)
            upcoming += 1
        while sweep(now, early):
            early = True


def starts_beside(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    policy: str,
    plan: dict[int, tuple[float, list[int]]],
    licenses: int = 0,
) -> dict[int, tuple[float, list[int]]]:
    """Return start and nodes of each job where some are planned: these start then and there.

    The others are in order of submission; one that starts leaves the plan its nodes for the whole
    time that it asks for.
    """
    held = {key: (start, start + jobs[key].wall, at) for key, (start, at) in plan.items()}
    empty = [Node(list(amounts)) for amounts in capacity]
    found: dict[int, tuple[float, list[int]]] = {}
    running: dict[int, float] = {}
    queue: list[int] = []

    def place(key: int, now: float) -> list[int] | None:
        if not licensed_at(jobs, licenses, held, key, now):
            return None
        where = [n for n in range(len(capacity)) if fits_at(jobs, capacity, held, key, n, now)]
        return where[: jobs[key].nodes] if len(where) >= jobs[key].nodes else None

    def earliest(key: int, now: float) -> float:
        times = sorted({now, *(until for _, until, _ in held.values() if until > now)})
        return next(time for time in times if place(key, time) is not None)

    def begin(key: int, at: list[int], now: float) -> None:
        found[key] = (now, at)
        held[key] = (now, now + jobs[key].wall, at)
        running[key] = now + min(jobs[key].run, jobs[key].wall)

    upcoming, planned = 0, dict(plan)
    while upcoming < len(jobs) or running or planned:
        submits = [jobs[upcoming].submit] if upcoming < len(jobs) else []
        now = min([*running.values(), *submits, *(start for start, _ in planned.values())])
        for key in [key for key, end in running.items() if end == now]:
            del held[key], running[key]
        for key in [key for key, (start, _) in planned.items() if start == now]:
            begin(key, planned.pop(key)[1], now)
        while upcoming < len(jobs) and jobs[upcoming].submit == now:
            possible = sum(node.fits(jobs[upcoming]) for node in empty) >= jobs[upcoming].nodes
            possible = possible and jobs[upcoming].licenses <= licenses
            queue += [upcoming] * (possible and upcoming not in plan)
            upcoming += 1
        while queue and (at := place(queue[0], now)) is not None:
            begin(queue.pop(0), at, now)
        if policy == "fcfs" or not queue:
            continue
        head, shadow = queue[0], earliest(queue[0], now)
        for key in queue[1:]:
            at = place(key, now)
            if at is None:
                continue
            before = dict(held)
            held[key] = (now, now + jobs[key].wall, at)
            spares = earliest(head, now) <= shadow
            held.clear()
            held.update(before)
            if spares:
                begin(key, at, now)
                queue.remove(key)
    return found
