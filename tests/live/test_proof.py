"""The proof on real batch systems, in short: promises hold while best-effort jobs fill them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "live" / "run.py"


@pytest.fixture(scope="module", params=["slurm", "condor"])
def found(testbed: None, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Play a short stream to a system alone and to one with rtsched; return the figures."""
    words = [sys.executable, str(COMMAND), "--system", request.param, "--part", "promises"]
    words += ["--reduced", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.stdout, done.stderr
    print(done.stdout)
    return dict(json.loads(done.stdout)) | {"system": request.param}


def test_every_promise_is_kept(found: dict[str, Any]) -> None:
    """All admitted jobs end by their deadlines, and the daemon's own books say the same."""
    ours = found["rtsched"]
    assert ours["admitted"] > 0
    assert (ours["missed"], ours["own_limit"]) == (0, 0)
    assert ours["met"] == ours["admitted"]
    assert ours["promises"]["kept"] == ours["submissions_accepted"]
    assert not ours["promises"].keys() & {"missed", "broken", "own-limit", "unknown"}


def test_as_much_is_admitted_as_a_replay_admits(found: dict[str, Any]) -> None:
    """At least 80 % of what the simulated system admits of the same submissions."""
    assert found["rtsched"]["admitted"] >= 0.8 * found["replay"]["admitted"]
    assert found["replay"]["missed"] == 0


def test_best_effort_goes_on(found: dict[str, Any]) -> None:
    """Best-effort jobs get at least 80 % of the node-seconds that they get without rtsched."""
    served = "best_effort_useful_node_s"
    assert found["rtsched"][served] >= 0.8 * found[found["system"]][served]


def test_offers_are_good(found: dict[str, Any]) -> None:
    """Whoever takes the deadline that came with a rejection is accepted.

    On HTCondor, whether there are rejections depends on how soon best-effort jobs end.
    """
    ours = found["rtsched"]
    assert ours["offers_taken"] == ours["offered"]
    assert ours["offered"] > 0 or found["system"] == "condor"
    assert ours["unpromised"] == 0


def test_accounting_can_be_replayed(found: dict[str, Any]) -> None:
    """What the run left in slurmdbd, or in the history, is a log that `rtsched replay` reads."""
    again = found["accounting, replayed"]
    assert again["jobs read"] > 0
    assert again["asked"] >= found["rtsched"]["admitted"]


def test_nothing_else_is_amiss(found: dict[str, Any]) -> None:
    """The command itself finds nothing that ought not to be so."""
    assert found["problems"] == []
