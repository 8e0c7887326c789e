"""What may fail on a real Slurm: no promise is lost, none is invented, and sbatch never hangs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from promising import (
    SITE,
    Live,
    Said,
    eventually,
    in_minutes,
    lost_and_invented,
)
from testbed import Cluster, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS = 10
LAPSE = 6.0
SHORT = ("-N1", "--time=2")
SETTINGS = "breaker_ms = 300\n"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run eight nodes with filter and daemon."""
    options = SlurmOptions(fast=2, slow=6, job_submit=("rtsched",))
    files = {"/etc/rtsched/submit.conf": SETTINGS}
    with Cluster("forky", options, files=files) as cluster:
        cluster.start_daemon(SITE)
        yield Live(cluster)


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins with a daemon that answers, without jobs."""
    if not live.cluster.services.alive("rtsched"):
        live.cluster.start_daemon(SITE)
    live.said.clear()
    yield
    live.cancel_all()


def stream(live: Live, stop: threading.Event) -> list[Said]:
    """Submit jobs with deadlines until told to stop; return what was said."""
    said = []
    while not stop.is_set():
        said.append(live.submit(*SHORT, in_minutes(240), script="sleep 1"))
        time.sleep(0.03)
    return said


def settled(live: Live) -> None:
    """Wait until no promise is provisional."""

    def over() -> bool:
        return all(each.standing != "provisional" for each in live.kept())

    eventually(over, LAPSE + 15)


def test_killed_in_the_middle_of_a_stream(live: Live) -> None:
    """The daemon is killed ten times while jobs come: what was promised stands, and no more."""
    stop, said = threading.Event(), list[Said]()
    client = threading.Thread(target=lambda: said.extend(stream(live, stop)))
    client.start()
    try:
        for number in range(KILLS):
            time.sleep(0.3 + 0.037 * number)
            live.cluster.kill_daemon()
            live.cluster.start_daemon()
    finally:
        time.sleep(0.5)
        stop.set()
        client.join()
    settled(live)
    assert lost_and_invented(live, said) == []
    assert sum(each.promised for each in said) >= KILLS
    assert all(each.job for each in said)
    assert live.slowest(said) < 1.0


@pytest.mark.parametrize("point", ["committed", "answered"])
def test_killed_at_the_worst_moment(live: Live, point: str) -> None:
    """It dies when the promise is on the disk: before its user is told, or before the job is seen.

    A promise that nobody was told of lapses; one that its user has read is there after the start.
    """
    live.cluster.stop_daemon()
    live.cluster.start_daemon(env={"RTSCHED_FAILPOINT": point})
    said = live.submit(*SHORT, in_minutes(60), script="sleep 40")
    eventually(lambda: not live.cluster.services.alive("rtsched"))
    assert said.promised == (point == "answered")
    live.cluster.start_daemon()
    settled(live)
    assert live.standing(said.job) == ("firm" if said.promised else "")
    if not said.promised:
        assert "without a promise" in said.text
        assert any(each.why == "the job never appeared" for each in live.kept())
    assert said.seconds < 1.0
