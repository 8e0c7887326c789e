"""The proof on a real Slurm: one command, clusters of its own, tables.

    python benchmarks/live/run.py --part promises|failures|fair-share|mapping
        [--reduced] [--json] [--keep DIR] [--planner NAME]

It needs root on Debian-like Linux, as tests/testbed does. The exit status is 1 if what the part
must show is not so.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

import promises  # noqa: E402

PARTS = ("promises",)


def main() -> int:
    """Run a part, and print what it came to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--planner", choices=tuple(promises.PLANNERS), action="append")
    parser.add_argument("--reduced", action="store_true", help="a few minutes")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--keep", type=Path, help="directory for logs")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for planner in given.planner or promises.PLANNERS:
        found[planner] = promises.run(planner, reduced=given.reduced, keep=given.keep)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
