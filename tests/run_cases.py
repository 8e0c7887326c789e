"""Run worked cases through the code that the policies run: `run_cases.py FILE.json...`.

A file is `{"algorithm", "format", "cases": [{"case_id", "kind", "input", "expected"}]}`. Each kind
has a runner in `case_runners` that turns the input into arrays, calls a kernel, a plug-in or a
whole replay, and names its output as the case does. A kind without a runner is counted as not run.
The exit status is 1 if a case failed or none was run.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from case_runners import RUNNERS

Case = dict[str, Any]

TOLERANCE = 1e-6
LOOSE = {"hetero": 1e-5, "avail": 1e-5, "umr": 1e-5}


def differences(expected: object, found: object, tolerance: float, path: str = "") -> Iterator[str]:
    """Yield where `found` is not as expected; names that a case does not list are not compared."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            if not isinstance(found, dict) or name not in found:
                yield f"{path}.{name}: missing"
            else:
                yield from differences(value, found[name], tolerance, f"{path}.{name}")
    elif isinstance(expected, list):
        items = list(found) if isinstance(found, (list, np.ndarray)) else None
        if items is None or len(items) != len(expected):
            yield f"{path}: expected {expected}, found {found}"
        else:
            for i, (left, right) in enumerate(zip(expected, items, strict=True)):
                yield from differences(left, right, tolerance, f"{path}[{i}]")
    elif isinstance(expected, float) and isinstance(found, (int, float, np.floating)):
        if not math.isclose(expected, found, rel_tol=tolerance, abs_tol=1e-9):
            yield f"{path}: expected {expected}, found {found}"
    elif expected != found:
        yield f"{path}: expected {expected}, found {found}"


def read_cases(path: Path) -> list[Case]:
    """Return the cases of one file."""
    cases: list[Case] = json.loads(path.read_text("utf-8"))["cases"]
    return cases


def check(case: Case) -> list[str] | None:
    """Return what is wrong with one case, None if its kind has no runner."""
    runner = RUNNERS.get(case["kind"])
    if runner is None:
        return None
    tolerance = LOOSE.get(case["kind"], TOLERANCE)
    return list(differences(case["expected"], runner(case["input"]), tolerance))


def main(paths: list[str]) -> int:
    """Run all cases of the files, print passed and failed per kind, and return the status."""
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    not_run: Counter[str] = Counter()
    for path in paths:
        for case in read_cases(Path(path)):
            wrong = check(case)
            if wrong is None:
                not_run[case["kind"]] += 1
            elif wrong:
                failed[case["kind"]] += 1
                print(f"{case['case_id']} ({case['kind']}): {wrong[0]}")
            else:
                passed[case["kind"]] += 1
    for kind in sorted(passed | failed):
        print(f"{kind}: {passed[kind]} passed, {failed[kind]} failed")
    for kind in sorted(not_run):
        print(f"{kind}: {not_run[kind]} not run (no runner for this kind yet)")
    print(f"{passed.total()} passed, {failed.total()} failed")
    return int(bool(failed) or not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
