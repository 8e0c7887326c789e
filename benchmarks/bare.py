"""A bare EASY loop in plain Python, for comparison: it reads SWF and knows nothing else.

    python benchmarks/bare.py FILE.swf

No line of rtsched is used, so that equal waits mean something. One pool of processors; at one
instant ends first, then arrivals, then one scheduling pass in order of submission.
"""

from __future__ import annotations

import gzip
import json
import sys
from bisect import insort
from heapq import heappop, heappush
from time import perf_counter

Job = tuple[float, int, int, float, float]
"""Submission, number, processors, run time, requested time."""


def read(path: str) -> tuple[list[Job], int]:
    """Return the jobs that ran, in order of (submission, number), and the processors there are."""
    jobs: list[Job] = []
    header: dict[str, int] = {}
    processors = 0
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        for line in file:
            if line[0] == ";":
                name, _, value = line[1:].partition(":")
                if name.strip() in {"MaxProcs", "MaxNodes"}:
                    header[name.strip()] = int(value.split()[0])
                    processors = header.get("MaxProcs", header.get("MaxNodes", 0))
                continue
            field = line.split(None, 9)
            size, run = int(field[7]), float(field[3])
            if size <= 0:
                size = int(field[4])
            if run > 0 and 0 < size <= processors:
                wall = float(field[8])
                if wall < run:
                    wall = run
                jobs.append((float(field[1]), int(field[0]), size, run, wall))
    jobs.sort()
    return jobs, processors


def easy(jobs: list[Job], processors: int) -> list[float]:
    """Return when each job starts."""
    n = len(jobs)
    start = [0.0] * n
    ends: list[tuple[float, int]] = []  # heap: when running jobs end, and their rows
    limits: list[tuple[float, int, int]] = []  # requested end, row and size, in order
    queue: list[int] = []
    free, upcoming = processors, 0
    shadow = extra = 0.0
    seen = 0  # as long as no job ends, the first `seen` places of the queue cannot start

    def launch(row: int, now: float, size: int, run: float, wall: float) -> None:
        start[row] = now
        heappush(ends, (now + run, row))
        insort(limits, (now + wall, row, size))

    while upcoming < n or ends:
        now = jobs[upcoming][0] if upcoming < n else ends[0][0]
        if ends and ends[0][0] < now:
            now = ends[0][0]
        while ends and ends[0][0] <= now:
            row = heappop(ends)[1]
            _, _, size, _, wall = jobs[row]
            free += size
            limits.remove((start[row] + wall, row, size))
            seen = 0
        while upcoming < n and jobs[upcoming][0] <= now:
            queue.append(upcoming)
            upcoming += 1
        if not queue or not free:
            continue
        if not seen:
            heads = 0
            for row in queue:
                _, _, size, run, wall = jobs[row]
                if size > free:
                    break
                free -= size
                launch(row, now, size, run, wall)
                heads += 1
            if heads:
                del queue[:heads]
            if not queue or not free:
                continue
            shadow, extra = shadow_of(jobs[queue[0]][2], free, limits)
            seen = 1
        if seen < len(queue):
            left = queue[:seen]
            for row in queue[seen:]:
                _, _, size, run, wall = jobs[row]
                if size <= free and (now + wall <= shadow or size <= extra):
                    free -= size
                    if now + wall > shadow:
                        extra -= size
                    launch(row, now, size, run, wall)
                else:
                    left.append(row)
            queue = left
            seen = len(queue)
    return start


def shadow_of(size: int, free: int, limits: list[tuple[float, int, int]]) -> tuple[float, int]:
    """Return when the head can start by the requested ends, and what it leaves over then."""
    shadow = 0.0
    for time, _, width in limits:
        if free >= size and time > shadow:
            break
        shadow = time
        free += width
    return shadow, free - size


def main() -> None:
    """Read, replay, print the waits as JSON."""
    begin = perf_counter()
    jobs, processors = read(sys.argv[1])
    read_by = perf_counter()
    start = easy(jobs, processors)
    wait = slowdown = last = 0.0
    for (submit, _, _, run, _), began in zip(jobs, start, strict=True):
        waited = began - submit
        wait += waited
        slowdown += max(1.0, (waited + run) / max(run, 10.0))
        last = max(last, began + run)
    found = {
        "jobs": len(jobs),
        "mean_wait_s": wait / len(jobs),
        "mean_bounded_slowdown": slowdown / len(jobs),
        "first_submit_s": jobs[0][0],
        "last_end_s": last,
        "reading_s": read_by - begin,
        "seconds": perf_counter() - begin,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
