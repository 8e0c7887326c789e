"""FCFS, EASY and conservative backfilling once more, as plainly as they can be written."""

import math
from collections.abc import Collection
from typing import NamedTuple


class Over:
    """Whether jobs would be over a limit if they started: here nobody is.

    A loop tells it the time and who starts, and looks again at `again`.
    """

    def __init__(self) -> None:
        self.now, self.again = 0.0, math.inf
        self.begun: dict[int, float] = {}

    def at(self, now: float) -> None:
        """Take notice of the time."""
        self.now, self.again = now, math.inf

    def begin(self, row: int) -> None:
        """Take notice of a job that starts."""
        self.begun[row] = self.now

    def __call__(self, row: int, running: Collection[int]) -> bool:
        """Return whether a job would be over a limit if it started now while others run."""
        return False


class Work(NamedTuple):
    """A job: submission, run time, requested time, processors."""

    submit: float
    run: float
    wall: float
    size: int


def simulate(
    jobs: list[Work],
    nodes: int,
    loop: str,
    keys: list[float] | None = None,
    over: Over | None = None,
) -> list[float]:
    """Return when each job starts; `keys` order the queue (ties: row).

    Jobs with an infinite key keep the places that the order of submission gives them. Jobs over a
    limit are passed over.
    """
    order = keys or [0.0] * len(jobs)
    over = over or Over()
    start = [math.nan] * len(jobs)
    running: list[int] = []
    queue: list[int] = []
    left = list(range(len(jobs)))

    def end(row: int) -> float:
        return start[row] + min(jobs[row].run, jobs[row].wall)

    while left or running or over.again < math.inf:
        now = min([jobs[left[0]].submit] if left else [math.inf])
        now = min([now, over.again, *(end(row) for row in running)])
        over.at(now)
        running = [row for row in running if end(row) > now]
        while left and jobs[left[0]].submit <= now:
            queue.append(left.pop(0))
        places = [at for at, row in enumerate(queue) if order[row] < math.inf]
        rows = sorted((queue[at] for at in places), key=lambda row: (order[row], row))
        for at, row in zip(places, rows, strict=True):
            queue[at] = row
        for row in startable(jobs, nodes, loop, start, running, queue, now, over):
            start[row] = now
            over.begin(row)
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
    over: Over | None = None,
) -> list[int]:
    """Return which queued jobs FCFS or EASY start now."""
    over = over or Over()
    free = nodes - sum(jobs[row].size for row in running)
    limits = [(start[row] + jobs[row].wall, jobs[row].size) for row in running]
    chosen: list[int] = []
    waiting = list(queue)
    while waiting:
        row = waiting[0]
        if not over(row, [*running, *chosen]) and jobs[row].size > free:
            break
        waiting.pop(0)
        if over(row, [*running, *chosen]):
            continue
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
        if job.size > free or over(row, [*running, *chosen]):
            continue
        if now + job.wall <= shadow:
            chosen.append(row)
            free -= job.size
        elif job.size <= extra:
            chosen.append(row)
            free -= job.size
            extra -= job.size
    return chosen


def conservative(
    jobs: list[Work], nodes: int, over: Over | None = None
) -> tuple[list[float], list[float]]:
    """Return when each job starts, and when it was to start by its first reservation.

    A job over a limit has none; one that gets over a limit loses its own, and the others move up.
    """
    over = over or Over()
    first = [math.nan] * len(jobs)
    reserved: dict[int, float] = {}
    start: dict[int, float] = {}
    ended: set[int] = set()
    left = list(range(len(jobs)))
    queue: list[int] = []

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

    def sweep(now: float, compress: bool) -> bool:
        lost = False
        for row in list(queue):
            if over(row, [r for r in start if r not in ended]):
                lost |= reserved.pop(row, None) is not None
                continue
            if row not in reserved:
                reserved[row] = earliest(row, now)
                first[row] = min(first[row], reserved[row])
            elif compress:
                reserved[row] = min(reserved[row], earliest(row, now))
            if reserved[row] <= now:
                start[row] = now
                over.begin(row)
                del reserved[row]
                queue.remove(row)
        return lost

    while left or reserved or len(ended) < len(start) or over.again < math.inf:
        now = min(
            [
                over.again,
                *(jobs[row].submit for row in left[:1]),
                *(end(row) for row in start if row not in ended),
                *reserved.values(),
            ]
        )
        over.at(now)
        early = False
        for row in list(start):
            if row not in ended and end(row) <= now:
                ended.add(row)
                early |= start[row] + jobs[row].wall > now
        while left and jobs[left[0]].submit <= now:
            queue.append(left.pop(0))
            first[queue[-1]] = math.inf
        while sweep(now, early):
            early = True
    return [start.get(row, math.nan) for row in range(len(jobs))], first


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
