"""The menu of a rejected job on a real HTCondor: what its user reads, takes, and is promised."""

import re
import time
from collections.abc import Iterator

import pytest
from promised_pool import SITE, LivePool, live_pool, submit_file
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import job_id

SLOTS = 6
JOB = "/home/alice/menu.sub"
ODDS = "/home/alice/odds.sub"
PATIENT = SITE.replace("[daemon]", "[daemon]\nmenu_ms = 5000")  # the machine may be busy
GUARANTEED = PATIENT + "\n[likely]\nshare = 0\n"

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run six static slots, with alice's submit file."""
    with live_pool(GUARANTEED) as up:
        for path, more in ((JOB, ()), (ODDS, ("+RtOdds = 95",))):
            text = submit_file("+RtRunTime = 120", *more, seconds=2)
            up.pool.run(["sh", "-c", 'cat > "$1"', "sh", path], user="alice", input=text)
        yield up


def rejected(live: LivePool) -> str:
    """Have alice's job rejected as all slots are busy for long; return what she reads."""
    live.occupy(SLOTS, 60)
    line = f"+RtDeadline = {time.time() + 160:.0f}"
    done = live.pool.run(["condor_submit", JOB, "-append", line], user="alice", check=False)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_a_choice_is_taken_and_kept(live: LivePool) -> None:
    """A shorter run time meets the deadline: one short command is promised it."""
    text = rejected(live)
    assert "reserved for you for 20 s" in text
    found = re.search(r"or `rtsched take (\d) job.sub`: with a time limit of ", text)
    assert found, text
    done = live.pool.run(["rtsched", "take", found[1], JOB], user="carol", check=False)
    assert "nothing is offered to you now" in done.stderr
    taken = live.pool.run(["rtsched", "take", found[1], JOB], user="alice")
    assert "promised to end by" in taken.stdout + taken.stderr
    cluster = re.search(r"submitted to cluster (\d+)", taken.stdout)
    assert cluster
    live.wait_state(job_id(int(cluster[1]), 0), "kept", seconds=240)


def test_a_guarantee_in_place_of_odds(live: LivePool) -> None:
    """Where no odds are sold: one command takes them out of what the file asks for."""
    line = f"+RtDeadline = {time.time() + 600:.0f}"
    words = ["condor_submit", ODDS, "-append", line]
    done = live.pool.run(words, user="alice", check=False)
    assert done.returncode != 0, done.stdout
    assert "this site gives no promises with odds" in done.stderr
    assert "or `rtsched take 1 job.sub`: guaranteed, by " in done.stderr
    taken = live.pool.run(["rtsched", "take", "1", ODDS], user="alice")
    assert "promised to end by" in taken.stdout + taken.stderr
    cluster = re.search(r"submitted to cluster (\d+)", taken.stdout)
    assert cluster
    live.wait_state(job_id(int(cluster[1]), 0), "kept", seconds=240)


def test_it_lapses(live: LivePool) -> None:
    """When its time is over nothing is held, and nothing is there to be taken."""
    rejected(live)
    assert "offered" in {each.state for each in live.kept()}
    eventually(lambda: "offered" not in {each.state for each in live.kept()}, 60, "it lapses")
    done = live.pool.run(["rtsched", "take", "2", JOB], user="alice", check=False)
    assert "nothing is offered to you now" in done.stderr
