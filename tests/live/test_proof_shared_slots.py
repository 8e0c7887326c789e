"""The proof on slots that jobs share, in short: promises hold beside floods of each resource."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "live" / "run.py"


@pytest.fixture(scope="module")
def found(testbed: None) -> dict[str, Any]:
    """Play a short stream to a pool alone and to one with rtsched; return the figures."""
    words = [sys.executable, str(COMMAND), "--system", "condor", "--part", "shared-nodes"]
    words += ["--reduced", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1200)
    assert done.stdout, done.stderr
    print(done.stdout)
    return dict(json.loads(done.stdout))


def test_every_promise_is_kept(found: dict[str, Any]) -> None:
    """All admitted jobs end by their deadlines, and the daemon's own books say the same."""
    ours = found["rtsched"]
    assert ours["admitted"] > 0
    assert ours["met"] == ours["admitted"] == ours["promises"]["kept"]


def test_nothing_else_is_amiss(found: dict[str, Any]) -> None:
    """Enough is admitted, best effort goes on, and each job ran on the slot of its node set."""
    assert found["problems"] == []
