"""Give hostile inputs to all that reads what others wrote.

    python benchmarks/fuzz.py [--part NAME ...] [--inputs 10000] [--seed 0] [--minutes M]

An input must be taken, or refused with one of rtsched's own errors; another exception and an input
that takes longer than ten seconds are findings, whose first input is kept in --keep. Memory is
limited to two GiB beyond what the process has at the start. The exit status is 1 if anything was
found. The parts are those of tests/fuzzing.py; CI runs a short form (tests/unit/test_fuzzing.py).
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import resource
import sys
import time
from pathlib import Path

import structlog

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from fuzzing import PARTS, fuzz  # noqa: E402

ROOM = 2 << 30


def limit_memory() -> None:
    """Let this process grow by two GiB: what takes more raises MemoryError, a finding."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> int:
    """Print what came of each part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", action="append", choices=list(PARTS), help="default: all")
    parser.add_argument("--inputs", type=int, default=10_000, help="of each part; default: 10000")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of each part, at most")
    parser.add_argument("--keep", type=Path, help="directory for the inputs of findings")
    given = parser.parse_args()
    limit_memory()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients that were cut off
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = False
    for name in given.part or PARTS:
        begun = time.monotonic()
        result = fuzz(PARTS[name], given.inputs, given.seed, begun + 60.0 * given.minutes)
        seconds, count = time.monotonic() - begun, result.outcomes.total()
        shown = ", ".join(f"{n} {what}" for what, n in sorted(result.outcomes.items()))
        print(f"{name}: {count} inputs in {seconds:.0f} s: {shown}", flush=True)
        for what, data in result.wrong.items():
            found = True
            print(f"  {what}: {data[:200]!r}", flush=True)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                key = hashlib.sha256(data).hexdigest()[:12]
                (given.keep / f"{name}-{key}").write_bytes(data)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
