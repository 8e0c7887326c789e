"""Reproductions notice that a policy or a formula was changed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from mutations import TARGETS, TOP, mutants_of, outcome_of

DATA = TOP / "tests" / "data" / "reproductions"


def mutate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, str(TOP / "tools" / "mutations.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RTSCHED_COMPILE": "0"},
    )


def test_twenty_changes_are_noticed() -> None:
    """Each of the list leads to another verdict, or the reproduction fails."""
    done = mutate("--named", str(DATA / "mutations.txt"), "--workers", "2")
    lines = done.stdout.strip().splitlines()
    verdicts = [line for line in lines if ": rtsched" in line]
    assert len(verdicts) == 20, done.stdout + done.stderr
    assert all(line.startswith("noticed") for line in verdicts), done.stdout
    assert done.returncode == 0


def test_a_change_that_is_gone_is_named(tmp_path: Path) -> None:
    """A list that no longer fits the sources is refused."""
    (tmp_path / "names").write_text("# old\nrtsched.kernels.edf:gone: 1 -> 2 in x = 1\n")
    done = mutate("--named", str(tmp_path / "names"))
    assert done.returncode == 2
    assert "no such change (any more):\nrtsched.kernels.edf:gone" in done.stderr


def test_names_of_changes_are_unique() -> None:
    """So that a list names each."""
    for study in TARGETS:
        names = [mutant.name for mutant in mutants_of(study)]
        assert len(names) == len(set(names)) > 50


@pytest.mark.parametrize("study", TARGETS)
def test_reduced_values_are_those_kept(study: str) -> None:
    """Computed values of a small run are as they were."""
    # If a change of them is meant: `python tools/mutations.py --values` prints those of today.
    kept = json.loads((DATA / "values.json").read_text("utf-8"))[study]
    outcome = outcome_of(study)
    assert outcome["verdicts"] == kept["verdicts"]
    assert _near(outcome["values"], kept["values"]), json.dumps(outcome["values"])


def _near(ours: Any, kept: Any) -> bool:
    """Return whether values are equal to 6 digits, and texts equal."""
    if isinstance(kept, list):
        return len(ours) == len(kept) and all(map(_near, ours, kept))
    if isinstance(kept, float):
        return bool(ours == pytest.approx(kept, rel=1e-6, abs=1e-9, nan_ok=True))
    return bool(ours == kept)
