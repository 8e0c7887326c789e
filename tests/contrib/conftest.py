"""Building C programs against the filter's sources, with sanitizers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from classad_workshop import Library, Workshop
from filter_harness import Filter
from filter_sources import ADDRESSES, COMMON, FILTER, PROGRAMS, SLURM, Build
from slurm_headers import NoHeadersError, alone, headers
from testbed import unavailable
from testbed.images import SUITES


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


def headers_or_skip(suite: str) -> Path:
    """Return where a suite's Slurm headers are; live tests that are required need them."""
    try:
        return headers(suite)
    except NoHeadersError as error:
        cannot(str(error))


def cannot(text: str) -> NoReturn:
    """Skip; where live tests are required, fail."""
    if os.environ.get("CI") == "true" or os.environ.get("RTSCHED_LIVE") == "require":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session", params=SUITES)
def each_slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the headers of each Slurm release that is supported."""
    return alone(headers_or_skip(request.param), tmp_path_factory.mktemp("include"))


@pytest.fixture(scope="session")
def slurm_include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the headers of the newest Slurm release that is supported."""
    return alone(headers_or_skip(SUITES[0]), tmp_path_factory.mktemp("include"))


@pytest.fixture
def harness(build: Build, slurm_include: Path) -> Path:
    """Return a program that hands a job to the filter as slurmctld would."""
    flags = (*ADDRESSES, f"-I{slurm_include}")
    return build("harness", PROGRAMS / "harness.c", PROGRAMS / "fake_slurm.c", *FILTER, flags=flags)


@pytest.fixture
def tested(harness: Path, tmp_path: Path) -> Filter:
    """Return the filter, with nobody at its socket."""
    return Filter(harness, tmp_path)


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    """Return a place with the headers of the newest HTCondor that is supported."""
    if unavailable():
        cannot(f"no place with HTCondor's headers: {unavailable()}")
    with Workshop(SUITES[0]) as shop:
        yield shop


@pytest.fixture(scope="session", params=SUITES)
def each_workshop(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    """Return a place with the headers of each HTCondor release that is supported."""
    if unavailable():
        cannot(f"no place with HTCondor's headers: {unavailable()}")
    with Workshop(request.param) as shop:
        yield shop


@pytest.fixture
def library(workshop: Workshop, tmp_path: Path) -> Library:
    """Return the ClassAd library in a program, with nobody at its socket."""
    return Library(workshop, workshop.build("harness"), f"/srv/{tmp_path.name}")
