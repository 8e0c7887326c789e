"""Live clusters for tests, made when first asked for and shared by those that ask for the same.

A test that needs a cluster as nobody else has it makes its own `Cluster` and uses it as a context
manager.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from testbed import Cluster, TestbedError, unavailable
from testbed.images import SUITES
from testbed.layers import boxes

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this directory are live tests, and run on one worker."""
    for item in items:
        if "live" in item.path.parts:
            item.add_marker(pytest.mark.live)
            item.add_marker(pytest.mark.xdist_group("live"))


@pytest.fixture(scope="session")
def testbed() -> None:
    """Skip where no cluster can run, with the cause; in CI that is a failure."""
    cause = unavailable(boxes())
    if not cause:
        return
    if os.environ.get("CI") == "true" or os.environ.get("RTSCHED_LIVE") == "require":
        pytest.fail(f"no live cluster on this machine: {cause}")
    pytest.skip(f"no live cluster on this machine: {cause}")


@pytest.fixture(scope="session")
def cluster(testbed: None) -> Iterator[Cluster]:
    """Run Slurm alone on Debian forky: 30 nodes, accounting, no plug-in, no daemon."""
    with Cluster("forky") as running:
        yield running
    assert not running.box.alive


__all__ = ["SUITES", "TestbedError"]
