"""How long commands and the daemon take to start: each is a process, from its start.

    python benchmarks/startup.py [--runs N] [--nodes N] [--json]

The daemon (`rtsched serve`, plug-in `mcdf`) polls a made-up Slurm of so many nodes on which nothing
runs or waits (`queues.py`); it is ready when it tells systemd so, and from then on answers the
submit filter. `rtsched status` asks it. What has to be compiled was compiled by a run before, whose
time is shown as *first*.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import queues
from measuring import machine, processor_s, run_alone

WANTED = {"rtsched --help": 0.15, "rtsched status": 0.2, "rtsched serve, until ready": 2.0}
"""Seconds."""

LONGEST = 600.0
"""Seconds that a start may take at all."""

SITE = """\
planner = "mcdf"
[[plugin]]
name = "mcdf"
[daemon]
run = "{place}/run"
database = "{place}/rtsched.db"
filters = ["root"]
filter_group = ""
metrics_port = 0
[slurm]
bin_dir = "{place}"
route = "commands"
"""

RTSCHED = (sys.executable, "-m", "rtsched")


class Running:
    """A daemon that runs until `stop`."""

    def __init__(self, place: Path) -> None:
        notify = place / "notify"
        notify.unlink(missing_ok=True)
        begun = time.perf_counter()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(notify))
            manager.settimeout(LONGEST)
            self._process = subprocess.Popen(
                [*RTSCHED, "serve", "--config", place / "site.toml"],
                env={**os.environ, "NOTIFY_SOCKET": str(notify)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while manager.recv(4096) != b"READY=1":
                pass
        self.wall, self.cpu = time.perf_counter() - begun, processor_s(self._process.pid)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def measure(place: Path, runs: int, nodes: int) -> dict[str, dict[str, float]]:
    """Return wall and processor seconds of each, the median of so many runs, and the first."""
    queues.NODES, queues.RUNNING = nodes, 0
    queues.MadeUpSlurm(place, 0)
    (place / "run").mkdir()
    (place / "site.toml").write_text(SITE.format(place=place))
    status = (*RTSCHED, "status", "--socket", place / "run" / "query.sock")
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in WANTED}
    for _ in range(runs + 1):
        helped = run_alone([*RTSCHED, "--help"])
        took["rtsched --help"].append((helped.wall, helped.cpu))
        daemon = Running(place)
        took["rtsched serve, until ready"].append((daemon.wall, daemon.cpu))
        asked = run_alone(status)
        took["rtsched status"].append((asked.wall, asked.cpu))
        daemon.stop()
    return {
        name: {
            "first_s": each[0][0],
            "wall_s": median(wall for wall, _ in each[1:]),
            "cpu_s": median(cpu for _, cpu in each[1:]),
            "wanted_s": WANTED[name],
        }
        for name, each in took.items()
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rtsched-startup-") as name:
        found: dict[str, Any] = measure(Path(name), given.runs, given.nodes)
    if given.json:
        print(json.dumps({**machine(), "nodes": given.nodes, **found}))
        return
    print("| seconds | first | median | on the processor | wanted |")
    print("|---|---:|---:|---:|---:|")
    for name, row in found.items():
        print(f"| `{name}` | " + " | ".join(f"{value:.2f}" for value in row.values()) + " |")
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
