"""Live clusters for tests, made when first asked for and shared by those that ask for the same.

A test that needs a cluster as nobody else has it makes its own `testbed.Cluster` and uses it as a
context manager: one is up in three seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed import Cluster, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent

LONGEST = (
    "test_proof.py",
    "test_condor_faults.py",
    "test_live_reservations.py",
    "test_condor_requirements_of_jobs.py",
    "test_shared_later_starts.py",
    "test_condor_gate.py",
    "test_live_licenses.py",
)
"""The files that take longest: with them first, the processes of a run end at about one time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory as live, and put the files that take longest first."""
    rank = {name: place for place, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        live = item.get_closest_marker("live") is not None
        return rank.get(item.path.name, len(rank)) if live else -1

    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def testbed() -> None:
    """Skip where no cluster can run, with the cause; where one is required, that is a failure."""
    cause = unavailable()
    if not cause:
        return
    text = f"no live cluster on this machine: {cause}"
    if os.environ.get("CI") == "true" or os.environ.get("RTSCHED_LIVE") == "require":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session")
def cluster(testbed: None) -> Iterator[Cluster]:
    """Run Slurm alone on Debian forky: 30 nodes, accounting, no plug-in, no daemon."""
    with Cluster("forky") as running:
        yield running
