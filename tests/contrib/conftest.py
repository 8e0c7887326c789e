"""Building C programs against the filter's sources, with sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from filter_sources import ADDRESSES, COMMON, FILTER, PROGRAMS, SLURM, slurm_headers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that compiles sources and returns the program."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    place = tmp_path_factory.mktemp("built")

    def compile_(name: str, *sources: Path, flags: tuple[str, ...] = ADDRESSES) -> Path:
        program = place / name
        if not program.exists():
            includes = [f"-I{COMMON}", f"-I{SLURM}", f"-I{PROGRAMS}"]
            warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]
            subprocess.run(
                ["gcc", *warnings, *flags, *includes, "-o", program, *sources, "-pthread"],
                check=True,
                timeout=120,
            )
        return program

    return compile_


def _include(place: Path | None, factory: pytest.TempPathFactory) -> Path:
    """Return a directory that holds the headers of one Slurm release, and nothing else."""
    if place is None:
        pytest.skip("there are no headers of Slurm: install libslurm-dev")
    alone = factory.mktemp("include")
    (alone / "slurm").symlink_to(place / "slurm")
    return alone


@pytest.fixture(scope="session", params=slurm_headers() or [None], ids=str)
def each_slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the headers of each Slurm release that is there."""
    return _include(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def slurm_include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the headers of the newest Slurm release that is there."""
    return _include((slurm_headers() or [None])[-1], tmp_path_factory)


@pytest.fixture
def harness(build: Build, slurm_include: Path) -> Path:
    """Return a program that hands a job to the filter as slurmctld would."""
    flags = (*ADDRESSES, f"-I{slurm_include}")
    return build("harness", PROGRAMS / "harness.c", PROGRAMS / "fake_slurm.c", *FILTER, flags=flags)
