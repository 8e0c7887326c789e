"""Guard speed: each figure beside a reference loop in the same run; 15 % slower than before fails.

    python benchmarks/guard.py [--figure NAME]... [--record] [--json]
    python benchmarks/guard.py --calls [--figure NAME]... [--record] [--json]

A figure is the processor time of a small piece of work, divided by that of a loop that shares no
line with rtsched, in plain Python or compiled by numba, as the work itself mostly is. The two take
turns, and of each the least time counts: so neither another process nor a slow hour of the machine
shows, but a change of the code does. What `guard.toml` has is the ratio of an earlier run; a ratio
that is more than 15 % above it is measured up to four times again, and if it stays there the
command ends with 1. `--record` writes down the ratios of this run; without any it ends with 2. The
machine is to be quiet: beside other work ratios scatter by up to a half.

How fast compiled code is beside Python differs between processors. Where the ratio of the two
reference loops is more than 15 % off that of the recorded machine, nothing is compared: the
command says so and ends with 0.

With `--calls` no time is measured: calls of functions are counted, Python's and those that it calls
in other languages, which are the same on a quiet machine and on a busy one. That shows where more
is done in Python than was, also that a compiled loop comes back to Python more often; not that the
compiled loop itself is slower. `calls.toml` has the counts by release of Python, and is kept with
the sources: CI compares them (`tests/install/test_benchmarks.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import shutil
import sys
import tempfile
import time
import tomllib
from functools import cache, partial
from heapq import heappop, heappush
from importlib.metadata import Distribution
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np
from measuring import HERE, machine, run_alone

from rtsched.core import plugins
from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

RECORDED = HERE / "guard.toml"
CALLS = HERE / "calls.toml"
SLOWER = 1.15
"""A ratio so much above the recorded one fails, and so do so many calls."""

ROUNDS, AGAIN = 5, 4
"""Measurements of each, and how often as many are added if a ratio is too high."""


def in_python() -> float:
    """Return the processor seconds of a loop in plain Python over a heap, texts and a dict."""
    begun = time.process_time()
    heap: list[tuple[float, int]] = []
    seen: dict[str, float] = {}
    number = 1
    for at in range(60_000):
        number = number * 1_103_515_245 % 2_147_483_648
        heappush(heap, (number / 7.0, at))
        if len(heap) > 500:
            value, _ = heappop(heap)
            seen[f"job{number % 997}"] = value
    return time.process_time() - begun


@compiled
def _sifted(values: NDArray[np.float64], rounds: int) -> float:
    total = 0.0
    for _ in range(rounds):
        heap, count = np.empty(len(values)), 0
        for value in values:
            at = count
            count += 1
            while at > 0 and heap[(at - 1) // 2] > value:
                heap[at] = heap[(at - 1) // 2]
                at = (at - 1) // 2
            heap[at] = value
        total += heap[0] + np.sort(heap)[count // 2]
    return total


_VALUES = np.random.default_rng(1).random(20_000)


def in_numba() -> float:
    """Return the processor seconds of a compiled loop: a heap filled, and a sort."""
    begun = time.process_time()
    _sifted(_VALUES, 40)
    return time.process_time() - begun


def as_process() -> float:
    """Return the processor seconds of a Python that imports some of its own library."""
    return run_alone([sys.executable, "-c", "import argparse, asyncio, decimal, json, typing"]).cpu


REFERENCES: Mapping[str, Callable[[], float]] = {
    "python": in_python,
    "numba": in_numba,
    "process": as_process,
}


def _log(directory: Path, jobs: int) -> Path:
    """Generate a log of a busy cluster."""
    path = directory / "log.swf"
    settings = ("--nodes", "256", "--load", "0.8", "--jobs", str(jobs), "-o", path)
    run_alone([sys.executable, "-m", "rtsched", "synth", "lublin", *settings])
    return path


def _replayed(directory: Path, jobs: int, policy: str, deadlines: str = "none") -> Any:
    """Return what the replay of a generated log takes, without reading it."""
    from rtsched.logs.readers import ReadOptions, read_logs
    from rtsched.replay.engine import replay
    from rtsched.replay.policies import choose, load_site
    from rtsched.replay.settings import WorkloadOptions
    from rtsched.replay.workload import prepare

    log = read_logs([_log(directory, jobs)], ReadOptions())
    workload = prepare(log, WorkloadOptions(deadline_rule=deadlines))
    policies = choose([policy], load_site(HERE / "chain.toml"))

    def measured() -> float:
        begun = time.process_time()
        replay(workload, policy, policies[policy], record_nodes=False)
        return time.process_time() - begun

    return measured


def _read(directory: Path, jobs: int) -> Any:
    """Return what it takes to read a generated log."""
    from rtsched.logs.readers import ReadOptions, read_logs

    log = _log(directory, jobs)

    def measured() -> float:
        begun = time.process_time()
        read_logs([log], ReadOptions())
        return time.process_time() - begun

    return measured


def _answered(directory: Path) -> Any:
    """Return what an answer takes: a promise over 2,000 pending jobs and 200 promises."""
    from answers import measure

    from rtsched.daemon.systemd import log_events

    log_events("error")

    def measured() -> float:
        here = Path(tempfile.mkdtemp(dir=directory))
        took = asyncio.run(measure(here, 2_000, 200, 400, 60))
        shutil.rmtree(here)
        return median(took["admit"]["all"])

    return measured


def _polled(directory: Path) -> Any:
    """Return what a poll takes of which 1 % of 20,000 jobs are new to it."""
    import queues

    made_up = queues.MadeUpSlurm(directory, 20_000)
    system = queues.slurm(str(directory), share_nodes=False)
    system.poll()

    def measured() -> float:
        made_up.change(0.01)
        begun = time.process_time()
        system.poll()
        return time.process_time() - begun

    return measured


def _helped(_: Path) -> Any:
    return lambda: run_alone([sys.executable, "-m", "rtsched", "--help"]).cpu


class Figure(NamedTuple):
    """One figure: beside which reference, and how its work is made ready in a directory."""

    reference: str
    ready: Callable[[Path], Any]


FIGURES: Mapping[str, Figure] = {
    "reading 100,000 lines of SWF": Figure("numba", partial(_read, jobs=100_000)),
    "EASY, 100,000 jobs": Figure("numba", partial(_replayed, jobs=100_000, policy="easy")),
    "EASY with four hooks, 20,000 jobs": Figure(
        "numba", partial(_replayed, jobs=20_000, policy="chain")
    ),
    "mcdf, 2,000 jobs": Figure(
        "python", partial(_replayed, jobs=2_000, policy="mcdf", deadlines="slowdown:4")
    ),
    "portfolio, 2,000 jobs": Figure(
        "python", partial(_replayed, jobs=2_000, policy="portfolio", deadlines="slowdown:4")
    ),
    "an answer that promises": Figure("python", _answered),
    "a poll of 20,000 jobs": Figure("python", _polled),
    "rtsched --help": Figure("process", _helped),
}


class Least(NamedTuple):
    """The least processor seconds so far, of a figure and of its reference."""

    figure: float
    reference: float

    @property
    def ratio(self) -> float:
        """Return the figure in units of its reference."""
        return self.figure / self.reference


def take_turns(measured: Callable[[], float], reference: str, least: Least, rounds: int) -> Least:
    """Measure both in turns, so many times, and return the least."""
    beside = REFERENCES[reference]
    for _ in range(rounds):
        least = Least(min(least.figure, measured()), min(least.reference, beside()))
    return least


def ratio_of(figure: Figure, directory: Path, most: float) -> Least:
    """Measure a figure; again, some times, while its ratio is above `most`."""
    measured = figure.ready(directory)
    for warm in (measured, REFERENCES[figure.reference]):
        warm()
    least = take_turns(measured, figure.reference, Least(np.inf, np.inf), ROUNDS)
    for _ in range(AGAIN):
        if least.ratio <= most:
            break
        least = take_turns(measured, figure.reference, least, ROUNDS)
    return least


def calls_of(figure: Figure, directory: Path) -> int:
    """Return how many functions are called for a figure, once that it asks for is compiled.

    Which packages are installed, among which plug-ins are looked for, and what each says of itself
    (its README too) is read before.
    """
    metadata = property(cache(Distribution.metadata.fget))
    with (
        patch.object(plugins, "entry_points", cache(plugins.entry_points)),
        patch.object(Distribution, "metadata", metadata),
    ):
        measured = figure.ready(directory)
        measured()
        with cProfile.Profile() as profile:
            measured()
    return sum(entry.callcount for entry in profile.getstats())


def count(names: Sequence[str], *, record: bool, as_json: bool) -> int:
    """Count the calls of some figures and print them; 1 if one has more than it had."""
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    recorded: dict[str, Any] = tomllib.loads(CALLS.read_text()) if CALLS.exists() else {}
    before: dict[str, int] = recorded.setdefault(release, {})
    found: dict[str, int] = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="rtsched-guard-") as directory:
            found[name] = calls_of(FIGURES[name], Path(directory))
    more = [name for name, calls in found.items() if calls > before.get(name, calls) * SLOWER]
    if record:
        before |= found
        lines = ["# Calls of functions for each figure: python benchmarks/guard.py --calls"]
        for each, counts in sorted(recorded.items()):
            lines += ["", f'["{each}"]', *(f'"{name}" = {n}' for name, n in counts.items())]
        CALLS.write_text("\n".join(lines) + "\n")
        more = []
    if as_json:
        print(json.dumps({"python": release, "calls": found, "before": before, "more": more}))
        return bool(more)
    print(f"| figure | calls | recorded, Python {release} |\n|---|---:|---:|")
    for name, calls in found.items():
        print(f"| {name} | {calls:,} | {before.get(name, 'none')} |")
    for name in more:
        print(f"More calls by {found[name] / before[name] - 1:.0%}: {name}", file=sys.stderr)
    return bool(more)


def compiled_beside_python() -> float:
    """Return the ratio of the two reference loops, which differs between kinds of processors."""
    in_numba()
    return take_turns(in_numba, "python", Least(np.inf, np.inf), 2 * ROUNDS).ratio


def main() -> int:
    """Measure and print; 1 if a figure is slower than it was."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--figure", choices=list(FIGURES), action="append", help="repeatable")
    parser.add_argument("--record", action="store_true", help="write down what is found")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--calls", action="store_true", help="count calls, measure no time")
    given = parser.parse_args()
    if given.calls:
        in_this_process = [name for name, each in FIGURES.items() if each.reference != "process"]
        names = given.figure or in_this_process
        return count(names, record=given.record, as_json=given.json)
    if not given.record and not RECORDED.exists():
        print("nothing to compare with: run it with --record first", file=sys.stderr)
        return 2
    recorded: dict[str, Any] = tomllib.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    before, kind = recorded.get("ratio", {}), compiled_beside_python()
    usual = recorded.get("compiled_beside_python", kind)
    alike = given.record or max(kind / usual, usual / kind) <= SLOWER
    found: dict[str, Least] = {}
    for name in given.figure or FIGURES:
        most = before.get(name, np.inf) * SLOWER if alike and not given.record else np.inf
        with tempfile.TemporaryDirectory(prefix="rtsched-guard-") as directory:
            found[name] = ratio_of(FIGURES[name], Path(directory), most)
    if given.record:
        _write(kind, before | {name: least.ratio for name, least in found.items()})
    slower = [n for n, least in found.items() if least.ratio > before.get(n, np.inf) * SLOWER]
    slower = [] if given.record or not alike else slower
    if given.json:
        rows = {n: {**least._asdict(), "before": before.get(n)} for n, least in found.items()}
        print(json.dumps({**machine(), "alike": alike, "slower": slower, "figures": rows}))
        return bool(slower)
    print("| figure | ms of processor | of the reference | recorded |")
    print("|---|---:|---:|---:|")
    for name, least in found.items():
        print(f"| {name} | {least.figure * 1e3:.1f} | {least.ratio:.3f} | {before.get(name, '')} |")
    print(f"\n{machine()}")
    if not alike:
        print(f"Not compared: compiled code takes {kind:.3f} of Python's time here, not {usual}.")
    for name in slower:
        print(f"Slower by {found[name].ratio / before[name] - 1:.0%}: {name}", file=sys.stderr)
    return bool(slower)


def _write(kind: float, ratios: Mapping[str, float]) -> None:
    lines = [
        "# Processor time of each figure beside its reference loop: python benchmarks/guard.py",
        f"compiled_beside_python = {kind:.4f}",
        "",
        "[ratio]",
        *(f'"{name}" = {ratio:.4f}' for name, ratio in ratios.items()),
    ]
    RECORDED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
