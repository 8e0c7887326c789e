"""How fast logs are read: lines per second and peak memory, on one core.

    python benchmarks/reading.py [--lines N] [--format swf|sacct] [--path FILE]

The files are generated (seeded) unless `--path` names one. Each measurement is a process of its
own, bound to one core; `first` includes loading the compiled kernels, `again` is the best of
three further readings, and `cpu` the same by processor time, which others' work does not disturb
and which is compared with what is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WANTED = {"swf": 1_500_000, "sacct": 1_000_000}
"""Lines per second to reach."""

START = 1_780_000_000
HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|Submit|Eligible|Start|End|ElapsedRaw|"
    "TimelimitRaw|NNodes|NCPUS|ReqCPUS|ReqMem|State|NodeList|SubmitLine"
)


def write_swf(path: Path, lines: int) -> None:
    """Write an SWF log of `lines` jobs."""
    draw = random.Random(1)  # noqa: S311  no secret
    now = 0
    with path.open("w") as file:
        file.write(f"; Version: 2.2\n; MaxProcs: 512\n; UnixStartTime: {START}\n")
        for job in range(1, lines + 1):
            now += draw.randrange(60)
            run = draw.randrange(1, 90000)
            size = draw.randrange(1, 512)
            file.write(
                f"{job:7d} {now:9d} {draw.randrange(99999):6d} {run:6d} {size:4d} {run * 0.97:.2f}"
                f" -1 {size:4d} {run + draw.randrange(9999):6d} -1 1 {draw.randrange(400):4d}"
                f" {draw.randrange(40):3d} -1 {draw.randrange(5):2d} -1 -1 -1\n"
            )


def clock(seconds: int) -> str:
    """Return a time as sacct writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def write_sacct(path: Path, lines: int) -> None:
    """Write `sacct -P` text of `lines` lines: a job and its steps `batch` and `extern`."""
    draw = random.Random(1)  # noqa: S311  no secret
    now = START
    with path.open("w") as file:
        file.write(HEADER + "\n")
        for job in range(1, lines // 3 + 1):
            now += draw.randrange(60)
            start = now + draw.randrange(9999)
            run = draw.randrange(1, 90000)
            size = draw.randrange(1, 129)
            node = f"node{draw.randrange(2000):04d}"
            name = f"{job - job % 10}_{job % 10}" if job % 4 == 0 else f"{job}"
            wish = " --deadline=now+2days" if job % 10 == 0 else ""
            times = f"{clock(start)}|{clock(start + run)}|{run}"
            file.write(
                f"{name}|{job}|run{draw.randrange(99)}|user{draw.randrange(400):03d}|"
                f"group{draw.randrange(40)}|batch|normal|{clock(now)}|{clock(now)}|{times}|"
                f"{run // 60 + 60}|1|{size}|{size}|{size * 2000}M|COMPLETED|{node}|"
                f"sbatch -n {size}{wish} -t {run // 60 + 60} job.sh\n"
            )
            for step in ("batch", "extern"):
                file.write(
                    f"{name}.{step}|{job}.{step}|{step}||group{draw.randrange(40)}|||{clock(start)}|"
                    f"{clock(start)}|{times}||1|{size}|{size}||COMPLETED|{node}|\n"
                )


WRITERS = {"swf": write_swf, "sacct": write_sacct}


def measure(path: str) -> None:
    """Read a file twice and print what it took, as JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from rtsched.logs import ReadOptions, read_logs  # its import is no part of reading

    with open(path, "rb") as file:  # also brings the file into memory
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 22), b""))
    seconds, busy, rows = [], [], 0
    for _ in range(4):
        begin, used = time.perf_counter(), time.process_time()
        log = read_logs([path], ReadOptions(timezone="Europe/Berlin"))
        seconds.append(time.perf_counter() - begin)
        busy.append(time.process_time() - used)
        rows = len(log.jobs)
        del log
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "lines": lines,
                "jobs": rows,
                "first": lines / seconds[0],
                "again": lines / min(seconds[1:]),
                "cpu": lines / min(busy[1:]),
                "peak_mb": peak,
            }
        )
    )


def report(kind: str, path: Path) -> bool:
    """Measure in a process of its own, print a line, return whether it is fast enough."""
    for _ in range(2):  # the first may have to compile
        done = subprocess.run(
            [sys.executable, __file__, "--measure", str(path)], stdout=subprocess.PIPE, check=True
        )
    found = json.loads(done.stdout)
    wanted = WANTED.get(kind, 0)
    print(
        f"{kind:6} {found['lines']:>9,} lines  {found['jobs']:>9,} jobs  "
        f"lines/s: first {found['first']:>9,.0f}  again {found['again']:>9,.0f}  "
        f"cpu {found['cpu']:>9,.0f}  (wanted {wanted:,})  peak {found['peak_mb']:.0f} MB"
    )
    return bool(found["cpu"] >= wanted)


def main() -> int:
    """Run the benchmark; 1 if a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--format", choices=sorted(WRITERS), action="append")
    parser.add_argument("--path", type=Path, help="a log of your own")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.measure)
        return 0
    if chosen.path:
        return 0 if report("own", chosen.path) else 1
    good = True
    with tempfile.TemporaryDirectory() as place:
        for kind in chosen.format or sorted(WRITERS):
            path = Path(place) / f"log.{kind}"
            WRITERS[kind](path, chosen.lines)
            good &= report(kind, path)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
