"""Live clusters for tests, made when first asked for and shared by those that ask for the same.

A test that needs a cluster as nobody else has it makes its own `testbed.Cluster` and uses it as a
context manager: one is up in three seconds.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from promised_pool import LivePool
from promising import Live, without_jobs
from testbed import Cluster, unavailable
from testbed.images import SUITES
from testbed.slurm_source import named

HERE = Path(__file__).parent

pytest.register_assert_rewrite("alike", "guide")

LONGEST = (
    "test_slurm_source.py",
    "test_proof.py",
    "test_live_reservations.py",
    "test_condor_faults.py",
    "test_packages_rpm.py",
    "test_shared_later_starts.py",
    "test_live_licenses.py",
    "test_ansible_role.py",
    "test_steering.py",
    "test_condor_requirements_of_jobs.py",
    "test_daemon.py",
)
"""The files that take longest, the first where no Slurm was built before: with them first, the
processes of a run end at about one time."""


WITHOUT_SLURM = ("test_condor_", "test_pool_", "test_packages_", "test_slurm_source")
"""The beginnings of names of files whose tests are of no use on a Slurm built from its sources."""


def of_that_slurm(item: pytest.Item) -> bool:
    """Return whether a test runs on the Slurm of $RTSCHED_SLURM_SOURCE, on one suite only."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    other = any(value in ("condor", *SUITES[1:]) for value in given if isinstance(value, str))
    return not (other or item.path.name.startswith(WITHOUT_SLURM))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this directory as live, and put the files that take longest first.

    Where $RTSCHED_SLURM_SOURCE names a release, those that do not run on it are deselected.
    """
    rank = {name: place for place, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        live = item.get_closest_marker("live") is not None
        return rank.get(item.path.name, len(rank)) if live else -1

    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
    if named() is not None:
        other = [item for item in items if HERE in item.path.parents and not of_that_slurm(item)]
        items[:] = [item for item in items if item not in other]
        config.hook.pytest_deselected(items=other)
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


@pytest.fixture
def clean(live: Live | LivePool) -> Iterator[None]:
    """Let a test begin with a daemon that may use all nodes, and cancel all jobs after it."""
    live.replies.clear()
    yield from without_jobs(live)
