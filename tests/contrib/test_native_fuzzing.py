"""Random inputs break nothing of the submit filters, under sanitizers.

The short form: `python benchmarks/fuzz.py` gives each part ten million.
"""

import subprocess
import time
from pathlib import Path

import pytest
from classad_workshop import Workshop
from filter_sources import PROGRAMS
from native_fuzzing import (
    CLASSAD_TARGETS,
    filter_program,
    filter_targets,
    fuzz_classad,
    fuzz_filter,
)

TARGETS = {
    "answers": 200_000,
    "replies": 20_000,
    "settings": 20_000,
    "breaker": 300_000,
    "requests": 50_000,
    "calls": 50_000,
    "promised-jobs": 150_000,
}
"""Inputs for each: a second or two."""


@pytest.fixture(scope="session")
def program(slurm_include: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that gives the submit filter inputs."""
    return filter_program(tmp_path_factory.mktemp("fuzz"), slurm_include)


def test_every_target_has_its_test(program: Path) -> None:
    """What benchmarks/fuzz.py does at length CI does in short, and what it cannot it refuses."""
    assert set(filter_targets(program)) == set(TARGETS)
    assert subprocess.run([program, "what"], check=False).returncode == 2
    assert (PROGRAMS / "fuzz.c").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_the_submit_filter(program: Path, target: str) -> None:
    """Nothing that it reads breaks it, and what holds of each result is checked."""
    seed = time.time_ns()
    outcome = fuzz_filter(program, target, TARGETS[target], seed)
    assert not outcome.found, f"seed {seed}: {outcome.found}"


@pytest.mark.parametrize("target", CLASSAD_TARGETS)
def test_the_classad_library(workshop: Workshop, target: str) -> None:
    """Neither answers nor tables nor ads break it."""
    seed = time.time_ns()
    outcome = fuzz_classad(workshop, target, 20_000 if target == "ads" else 200_000, seed)
    assert not outcome.found, f"seed {seed}: {outcome.found}"
