"""Give hostile inputs to all that reads what others wrote.

    python benchmarks/fuzz.py [--part NAME ...] [--inputs 1e4] [--seed 0] [--minutes M]

An input must be taken, or refused with one of rtsched's own errors; another exception and an input
that takes half a minute of a processor are findings, whose first input is kept in --keep. Memory is
limited to two GiB beyond what the process has at the start. The exit status is 1 if anything was
found. The parts are those of tests/fuzzing.py; CI runs a short form (tests/benchmarks/test_fuzz).

Two more are programs in C and C++, under AddressSanitizer and UndefinedBehaviorSanitizer, which
share their inputs out evenly among several targets (tests/contrib/native_fuzzing.py):

    filter      Slurm's submit filter: answers, whole replies, settings, the breaker, requests from
                job descriptions, whole calls, the list of promised jobs
    classad     HTCondor's ClassAd library: answers, tables of slots, job ads

`filter` needs gcc and Slurm's headers, `classad` root on Debian with debootstrap; both take headers
from the layers of tests/testbed.
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
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "contrib")]

from fuzzing import PARTS, fuzz  # noqa: E402
from native_fuzzing import NATIVE  # noqa: E402

ROOM = 2 << 30


def limit_memory() -> None:
    """Let this process grow by two GiB: what takes more raises MemoryError, a finding."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def run_native(name: str, inputs: int, seed: int) -> bool:
    """Print what came of each target of a part that is no Python; return whether one broke."""
    broken, begun = False, time.monotonic()
    for outcome in NATIVE[name](inputs, seed):
        seconds, begun = time.monotonic() - begun, time.monotonic()
        what = f"found {outcome.found}" if outcome.found else "nothing found"
        print(
            f"{name} {outcome.target}: {outcome.inputs} inputs in {seconds:.0f} s: {what}",
            flush=True,
        )
        broken |= bool(outcome.found)
    return broken


def main() -> int:
    """Print what came of each part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", action="append", choices=[*NATIVE, *PARTS])
    parser.add_argument("--inputs", type=float, default=1e4, help="of each part; default: 1e4")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of each part, at most")
    parser.add_argument("--keep", type=Path, help="directory for the inputs of findings")
    given = parser.parse_args()
    parts, inputs = given.part or [*NATIVE, *PARTS], int(given.inputs)
    found = False
    for name in (name for name in parts if name in NATIVE):
        found |= run_native(name, inputs, given.seed)
    limit_memory()  # not before: a sanitizer takes terabytes of addresses
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients that were cut off
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for name in (name for name in parts if name in PARTS):
        begun = time.monotonic()
        result = fuzz(PARTS[name], inputs, given.seed, 60.0 * given.minutes)
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
