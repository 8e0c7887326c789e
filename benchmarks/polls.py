"""What a poll of a large queue takes: time of both processes, and their memory.

    python benchmarks/polls.py [--jobs N] [--procs N] [--side NAME]... [--changed SHARE] [--json]

A whole daemon (plug-in `mcdf`) and its process that polls, over made-up queues: a Slurm whose
commands print files (on whole nodes, and where jobs share nodes), and an HTCondor pool whose schedd
hands over ads of clusters of 1,000 procs. What slurmctld, squeue and schedd take themselves is not
in it. After the first poll come polls in which nothing changed, in which a share of the jobs
changed (a third of these left, as many came), and in which all priorities did.

Processor seconds are those of user and system; the resolution is 10 ms. Memory is the greatest
resident size up to then (VmHWM).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import queues
from measuring import machine, processor_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtsched.adapters.live import Observation

SIDES = ("whole", "shared", "condor")
POLLS = 3
"""Of each kind; the median counts."""


def _peak_mb(pid: int) -> float:
    """Return the greatest resident size of a process, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


async def _serve(side: str, directory: Path) -> None:
    """Run a cycle of a daemon for each line of standard input, and print what it took."""
    # They import much: not in the process that makes the queues.
    from made_up import policy_in

    from rtsched.adapters.condor.submission import CondorTranslator
    from rtsched.adapters.slurm.submission import SlurmTranslator
    from rtsched.daemon.app import Daemon
    from rtsched.daemon.metrics import Metrics
    from rtsched.daemon.store import Store
    from rtsched.daemon.systemd import log_events
    from rtsched.daemon.worker import Worker

    took: dict[str, Any] = {}

    class Measured(Worker):
        async def poll(self) -> Observation:
            before = processor_s(self.pid) if self.pid else 0.0
            begun = time.perf_counter()
            observation = await super().poll()
            assert self.pid
            took["wall"] = time.perf_counter() - begun
            took["child"] = processor_s(self.pid) - before
            took["child_mb"] = _peak_mb(self.pid)
            took["rows"] = len(observation.queued)
            took["problems"] = list(observation.problems)
            return observation

    log_events("error")
    policy = policy_in(directory)
    make = partial(queues.slurm, str(directory), side == "shared")
    translator: Any = SlurmTranslator()
    if side == "condor":
        make, translator = partial(queues.condor, str(directory)), CondorTranslator()
    with Store(directory / "rtsched.db") as store:
        async with Measured(make, 600.0) as worker:
            daemon = Daemon(policy, store, worker, translator, Metrics(), reread=lambda: policy)
            for _ in sys.stdin:
                begun = time.process_time()
                await daemon.cycle()
                took["daemon"] = time.process_time() - begun
                took["daemon_mb"] = _peak_mb(os.getpid())
                print(json.dumps(took), flush=True)


def _measured(side: str, given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each kind of poll takes."""
    with tempfile.TemporaryDirectory(prefix="rtsched-polls-") as name:
        directory = Path(name)
        queue: Any = (
            queues.MadeUpCondor(directory, given.procs)
            if side == "condor"
            else queues.MadeUpSlurm(directory, given.jobs)
        )
        command = [sys.executable, __file__, "--serve", side, name]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None

            def poll() -> dict[str, Any]:
                print("poll", file=child.stdin, flush=True)
                assert child.stdout is not None
                found: dict[str, Any] = json.loads(child.stdout.readline())
                return found

            yield "first", poll()
            for kind, change in (
                ("unchanged", lambda: None),
                ("changed", lambda: queue.change(given.changed)),
                ("all priorities", queue.age),
            ):
                found = []
                for _ in range(POLLS):
                    change()
                    found.append(poll())
                numbers = ("wall", "child", "daemon", "child_mb", "daemon_mb")
                yield kind, found[-1] | {each: median(f[each] for f in found) for each in numbers}
            child.stdin.close()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=100_000, help="pending jobs of Slurm")
    parser.add_argument("--procs", type=int, default=100_000, help="idle procs of HTCondor")
    parser.add_argument("--side", action="append", choices=SIDES, help="only this one")
    parser.add_argument("--changed", type=float, default=0.01, help="share of jobs that change")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(given.serve[0], Path(given.serve[1])))
        return
    found: dict[str, Any] = {}
    for side in given.side or SIDES:
        load = os.getloadavg()[0]
        found[side] = dict(_measured(side, given)) | {"load": [load, os.getloadavg()[0]]}
    if given.json:
        print(
            json.dumps({**machine(), "jobs": given.jobs, "procs": given.procs, **found}, indent=1)
        )
        return
    print("| poll | rows | CPU s, polls | CPU s, daemon | s | MB, polls | MB, daemon |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for side, kinds in found.items():
        begun, ended = kinds.pop("load")
        print(f"| **{side}**; load average {begun:.1f} to {ended:.1f} |||||||")
        for kind, took in kinds.items():
            print(
                f"| {kind} | {took['rows']:,} | {took['child']:.2f} | {took['daemon']:.2f} | "
                f"{took['wall']:.2f} | {took['child_mb']:.0f} | {took['daemon_mb']:.0f} |"
            )


if __name__ == "__main__":
    main()
