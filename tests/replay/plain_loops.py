"""FCFS, EASY and conservative backfilling once more, as plainly as they can be written."""

from __future__ import annotations

import math
from typing import NamedTuple


class Work(NamedTuple):
    """A job: submission, run time, requested time, processors."""

    submit: float
    run: float
    wall: float
    size: int


def simulate(
    jobs: list[Work], nodes: int, loop: str, keys: list[float] | None = None
) -> list[float]:
    """Return when each job starts; `keys` order the queue (ties: row)."""
    order = keys or [0.0] * len(jobs)
    start = [math.nan] * len(jobs)
    running: list[int] = []
    queue: list[int] = []
    left = list(range(len(jobs)))

    def end(row: int) -> float:
        return start[row] + min(jobs[row].run, jobs[row].wall)

    while left or running:
        now = min([jobs[left[0]].submit] if left else [math.inf])
        now = min([now, *(end(row) for row in running)])
        running = [row for row in running if end(row) > now]
        while left and jobs[left[0]].submit <= now:
            queue.append(left.pop(0))
        queue.sort(key=lambda row: (order[row], row))
        for row in startable(jobs, nodes, loop, start, running, queue, now):
            start[row] = now
            running.append(row)
            queue.remove(row)
    return start


def startable(
    jobs: list[Work],
    nodes: int,
    loop: str,
    start: list[float],
    running: list[int],
    queue: list[int],
    now: float,
) -> list[int]:
    """Return which queued jobs FCFS or EASY start now."""
    free = nodes - sum(jobs[row].size for row in running)
    limits = [(start[row] + jobs[row].wall, jobs[row].size) for row in running]
    chosen = []
    waiting = list(queue)
    while waiting and jobs[waiting[0]].size <= free:
        row = waiting.pop(0)
        chosen.append(row)
        free -= jobs[row].size
        limits.append((now + jobs[row].wall, jobs[row].size))
    if loop == "fcfs" or not waiting:
        return chosen
    need = jobs[waiting[0]].size
    shadow = min(
        when
        for when, _ in limits
        if free + sum(size for limit, size in limits if limit <= when) >= need
    )
    extra = free + sum(size for limit, size in limits if limit <= shadow) - need
    for row in waiting[1:]:
        job = jobs[row]
        if job.size > free:
            continue
        if now + job.wall <= shadow:
            chosen.append(row)
            free -= job.size
        elif job.size <= extra:
            chosen.append(row)
            free -= job.size
            extra -= job.size
    return chosen


def conservative(jobs: list[Work], nodes: int) -> tuple[list[float], list[float]]:
    """Return when each job starts, and when it was to start by its first reservation."""
    first = [math.nan] * len(jobs)
    reserved: dict[int, float] = {}
    start: dict[int, float] = {}
    ended: set[int] = set()
    left = list(range(len(jobs)))

    def used(at: float, without: int) -> int:
        blocks = [(start[r], start[r] + jobs[r].wall, r) for r in start if r not in ended]
        blocks += [(reserved[r], reserved[r] + jobs[r].wall, r) for r in reserved]
        return sum(jobs[r].size for begin, end, r in blocks if r != without and begin <= at < end)

    def earliest(row: int, now: float) -> float:
        job = jobs[row]
        blocks = [start[r] + jobs[r].wall for r in start if r not in ended]
        blocks += [reserved[r] + jobs[r].wall for r in reserved if r != row]
        blocks += [reserved[r] for r in reserved if r != row]
        for begin in sorted({now, *(time for time in blocks if time > now)}):
            inside = [begin, *(time for time in blocks if begin < time < begin + job.wall)]
            if all(used(time, row) + job.size <= nodes for time in inside):
                return begin
        raise AssertionError("a job finds no place on an empty machine")

    def end(row: int) -> float:
        return start[row] + min(jobs[row].run, jobs[row].wall)

    while left or reserved or len(ended) < len(start):
        now = min(
            [
                *(jobs[row].submit for row in left[:1]),
                *(end(row) for row in start if row not in ended),
                *reserved.values(),
            ]
        )
        early = False
        for row in list(start):
            if row not in ended and end(row) <= now:
                ended.add(row)
                early |= start[row] + jobs[row].wall > now
        if early:
            for row in sorted(reserved):
                reserved[row] = min(reserved[row], earliest(row, now))
        while left and jobs[left[0]].submit <= now:
            row = left.pop(0)
            reserved[row] = earliest(row, now)
            first[row] = reserved[row]
        for row in [row for row in sorted(reserved) if reserved[row] <= now]:
            start[row] = now
            del reserved[row]
    return [start[row] for row in range(len(jobs))], first


def head_starts(
    jobs: list[Work], sets: list[list[int]], start: list[float], took: list[list[int]]
) -> dict[int, list[float]]:
    """Return when each job could start at best, at every instant at which it heads the queue.

    That is when enough nodes of its set are free by the requested ends of the jobs that run then.

    Parameters
    ----------
    jobs : list of Work
        In order of the queue.
    sets : list of list of int
        The nodes that each job may use.
    start, took
        What happened: when each job started, and on which nodes.
    """
    rows = range(len(jobs))
    end = [start[row] + min(jobs[row].run, jobs[row].wall) for row in rows]
    promised: dict[int, list[float]] = {}
    for now in sorted({*(job.submit for job in jobs), *end}):
        waiting = [row for row in rows if jobs[row].submit <= now < start[row]]
        if not waiting:
            continue
        head = waiting[0]
        free_at = {
            node: start[row] + jobs[row].wall
            for row in rows
            if start[row] <= now < end[row]
            for node in took[row]
        }
        times = sorted(free_at.get(node, now) for node in sets[head])
        promised.setdefault(head, []).append(times[jobs[head].size - 1])
    return promised
