"""How long each policy takes to answer one question: spread, memory, growth.

    python benchmarks/policies.py [--policy NAME]... [--quick] [--json]

The questions are those of `questions.py`, each at three sizes, each size in a process of its own
that is bound to one core. Times are those of the calling thread, on the clock and on the processor;
the first answers, which load what was compiled, do not count. Memory is the greatest resident size
of the process, the generated state included.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from typing import Any

import numpy as np
from admission import Took, spread, timed
from measuring import Used, run_alone, script
from questions import QUESTIONS, Way

NAMES = tuple(QUESTIONS)
FIRST = 2
"""Answers that do not count."""


def measure(policy: str, size: int, tests: int) -> dict[str, Any]:
    """Return what each way of a policy's question takes at a size, in this process."""
    return {way.label: _measure(way, tests) for way in QUESTIONS[policy].ways(size)}


def _measure(way: Way, tests: int) -> dict[str, Any]:
    took, yes = [], 0
    gc.collect()
    gc.disable()
    for k in range(tests + FIRST):
        time, answer = timed(way.ask, *way.given(k))
        if k >= FIRST:
            took.append(Took(time.wall / way.per, time.cpu / way.per))
            yes += bool(way.said_yes(answer))
    gc.enable()
    if not yes:
        raise AssertionError(f"{way.label}: nothing was decided in {tests} tests")
    return {**spread(took), "decided": yes}


def study(policy: str, *, quick: bool) -> dict[str, Any]:
    """Return one policy's times at its sizes, how they grow, and what is wanted."""
    question = QUESTIONS[policy]
    tests = 3 if quick else question.tests
    rows: dict[str, Any] = {}
    memory = {}
    if not quick:
        _alone(policy, question.sizes[0], 1)  # compiles what is not compiled yet
    for size in question.sizes[:1] if quick else question.sizes:
        used = _alone(policy, size, tests)
        memory[size] = used.peak_mb
        for label, took in json.loads(used.output).items():
            rows.setdefault(label, {})[size] = took
    return {
        "title": question.title,
        "axis": question.axis,
        "ways": rows,
        "peak_mb": memory,
        "growth": _growth(rows),
        "wanted": {
            label: question.target_ms
            for label in list(rows)[: question.judged]
            if np.isfinite(question.target_ms)
        },
        "wanted_size": question.target_size,
    }


def _alone(policy: str, size: int, tests: int) -> Used:
    words = ("--measure", policy, "--size", str(size), "--tests", str(tests))
    return run_alone(script("policies.py", *words))


def _growth(rows: dict[str, Any]) -> dict[str, float]:
    """Return per way the slope of processor time over size, both as logarithms; 1: linear."""
    slopes = {}
    for label, by_size in rows.items():
        if len(by_size) > 1:
            times = [took["cpu_p50_ms"] for took in by_size.values()]
            slopes[label] = float(np.polyfit(np.log(list(by_size)), np.log(times), 1)[0])
    return slopes


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--policy", choices=NAMES, action="append", help="repeatable")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, few tests")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--measure", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tests", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.size, given.tests)))
        return 0
    found = {name: study(name, quick=given.quick) for name in given.policy or NAMES}
    if given.json:
        print(json.dumps(found))
        return 0
    for result in found.values():
        print(result["title"])
        for label, by_size in result["ways"].items():
            for size, took in by_size.items():
                cells = ", ".join(f"{key} {value:.3f}" for key, value in took.items())
                print(f"  {label}; {size:,} {result['axis']}: {cells}")
        print(f"  growth {result['growth']}, peak MB {result['peak_mb']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
