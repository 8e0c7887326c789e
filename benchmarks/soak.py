"""Run a real batch system for hours under a steady stream of everything that happens on one.

    python benchmarks/soak.py [--system slurm|condor] [--minutes N] [--rate N] [--cycle S] [--json]

Jobs with and without deadlines are submitted, cancelled and changed, nodes fail and come back, the
batch system takes in its settings again, logs are rotated, the daemon reloads its site.toml and is
asked questions. It prints the memory and the open files of the daemon and of its child by quarters
of the time, and each line of the daemon's log above "info" that is not explained
(tests/live/soaking.py says what is, and why). It needs root on Linux with debootstrap, as
tests/testbed does. The exit status is 1 if memory of the last quarter is not within 2 % of the
second, open files grow, the daemon was restarted, or a line of the log is not explained.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from soaking import GROUNDS, soak  # noqa: E402

FLAT = 1.02


def wrong(figures: dict[str, Any]) -> list[str]:
    """Return what is not as it should be."""
    found = list(figures["unexplained log lines"])
    if figures["restarts of the daemon"]:
        found.append("the daemon was restarted")
    for who in ("daemon", "child"):
        if figures[f"{who}_kib, last quarter over second"] > FLAT:
            found.append(f"the memory of the {who} grows")
        files = figures[f"{who}_files, low of each quarter"]
        if files[3] > files[1]:
            found.append(f"the open files of the {who} grow")
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--system", choices=list(GROUNDS), default="slurm", help="default: slurm")
    parser.add_argument("--minutes", type=float, default=120.0, help="how long; default: 120")
    parser.add_argument("--rate", type=float, default=5.0, help="submissions a second; default: 5")
    parser.add_argument(
        "--cycle", type=float, default=1.0, help="seconds between polls; 0.01: no pause; default: 1"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    with GROUNDS[given.system](cycle=given.cycle) as ground:
        found = soak(ground, 60.0 * given.minutes, given.rate)
    figures = found.figures()
    if given.json:
        print(json.dumps(figures | {"samples": found.samples}, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name}: {value}")
    return 1 if wrong(figures) else 0


if __name__ == "__main__":
    sys.exit(main())
