"""rtsched on a Slurm built from its sources: a release that Debian does not have."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from promising import QUICK, SITE, SUBMIT_CONF, Live, in_minutes
from testbed import Cluster, SlurmOptions
from testbed.slurm_source import version_of

ARCHIVES = Path(os.environ.get("RTSCHED_SLURM_SOURCES") or "/nonexistent").glob("slurm-*.tar.*")
NEWEST = max(ARCHIVES, key=lambda path: re.findall(r"\d+", path.name), default=None)
"""Of the releases in the directory of sources."""

pytestmark = pytest.mark.skipif(
    NEWEST is None, reason="RTSCHED_SLURM_SOURCES names no directory of Slurm's release tarballs"
)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run four nodes of that release, with filter and daemon."""
    options = SlurmOptions(fast=2, slow=2, job_submit=("rtsched",))
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}, source=NEWEST) as cluster:
        cluster.start_daemon(SITE)
        yield Live(cluster)


def test_it_is_that_release(live: Live) -> None:
    """The controller, and the filter that was compiled for it."""
    assert NEWEST is not None
    version = version_of(NEWEST)
    assert live.cluster.run(["slurmctld", "-V"]).stdout.split() == ["slurm", version]
    checked = live.cluster.run(["rtsched", "slurm", "check"], check=False).stdout
    assert f"job_submit_rtsched.so is built for Slurm {version}" in checked
    assert "bad " not in checked


def test_promises_are_given_and_kept(live: Live) -> None:
    """One is given while its user waits, and kept; what cannot be kept is rejected."""
    job = live.promise("-N2", "--time=2", in_minutes(30), script="sleep 3")
    live.wait_state(job, "kept", seconds=90)
    reply = live.submit("-N4", "--time=60", in_minutes(2))
    assert not reply.promised
    assert reply.offer
