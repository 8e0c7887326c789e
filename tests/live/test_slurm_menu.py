"""The menu of a rejected job on a real Slurm: what its user reads, takes, and is promised."""

import re
from collections.abc import Iterator

import pytest
from promising import SITE, Live, live_cluster
from testbed.waiting import eventually

NODES = 4
JOB = "/home/alice/menu.sh"
SCRIPT = """#!/bin/sh
#SBATCH --nodes=4 --time=2 --output=/dev/null
sleep 2
"""
PATIENT = SITE.replace("[daemon]", "[daemon]\nmenu_ms = 5000")  # the machine may be busy
GUARANTEED = PATIENT + "\n[likely]\nshare = 0\n"

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run four nodes with our filter and daemon."""
    with live_cluster(GUARANTEED, fast=1, slow=3) as running:
        words = ["sh", "-c", 'cat > "$1"', "sh", JOB]
        running.cluster.run(words, user="alice", input=SCRIPT)
        yield running


def occupied(live: Live) -> None:
    """Have bob's job run on three nodes for ten minutes, and the daemon know of it."""
    live.submit("-N3", "--exclusive", "--time=10", user="bob", script="sleep 600")
    words = ["squeue", "-h", "-t", "R", "-u", "bob"]
    eventually(lambda: live.cluster.run(words).stdout.strip(), 30, "bob's job runs")
    live.polled()


def rejected(live: Live) -> list[str]:
    """Have alice's job on four nodes rejected; return what sbatch prints, by lines."""
    reply = live.cluster.run(["sbatch", "--deadline=now+6minutes", JOB], user="alice", check=False)
    assert reply.returncode != 0, reply.stdout
    return reply.stderr.splitlines()


def test_a_choice_is_taken_and_kept(live: Live) -> None:
    """At most three lines more than a rejection has; one short command is promised the second."""
    occupied(live)
    first, *others, last = rejected(live)
    assert re.search(r"Feasible: .*\(--deadline=\S+\), not reserved: submit within 20 s$", first)
    assert "Batch job submission failed" in last
    assert 1 <= len(others) <= 3
    start = "sbatch: error: or `rtsched take 2 job.sh`: on 1 node (with the same time limit), by "
    assert others[0].startswith(start)
    assert others[0].endswith(", not reserved")  # it is on the free node
    listed = live.command("rtsched", "take")
    assert "as it is" in listed
    assert "on 1 node" in listed
    taken = live.cluster.run(["rtsched", "take", "2", JOB], user="alice")
    assert "promised to end by" in taken.stderr
    found = re.search(r"Submitted batch job (\d+)", taken.stdout)
    assert found
    job = int(found[1])
    live.wait_state(job, "kept", seconds=120)
    assert [each.state for each in live.kept() if each.state == "offered"] == []


def test_it_is_its_users_alone(live: Live) -> None:
    """Another user has no such choice, but may start on the free node."""
    occupied(live)
    rejected(live)
    for words in (["rtsched", "take", "2", JOB], ["rtsched", "take", "2"]):
        done = live.cluster.run(words, user="carol", check=False)
        assert done.returncode == 2
        assert "nothing is offered to you now" in done.stderr
    reply = live.submit("-N1", "--time=4", "--deadline=now+6minutes", user="carol")
    assert "promised to end by" in reply.text


def test_it_lapses(live: Live) -> None:
    """When its time is over nothing is held, and nothing is there to be taken."""
    occupied(live)
    rejected(live)
    assert [each.state for each in live.kept()].count("offered") >= 2

    def over() -> bool:
        done = live.cluster.run(["rtsched", "take", "2", JOB], user="alice", check=False)
        assert done.returncode == 2 or "promised" not in done.stderr
        return "nothing is offered to you now" in done.stderr

    eventually(lambda: "offered" not in {each.state for each in live.kept()}, 60, "it lapses")
    eventually(over, 20, "there is no choice")


def test_feasible_shows_the_menu(live: Live) -> None:
    """As a table, and as JSON, which names the options; nothing is held."""
    occupied(live)
    words = ("feasible", "-N4", "-t", "2", "--deadline", "now+6minutes")
    report = live.ask(*words)
    assert [each["kind"] for each in report["choices"]][:2] == ["later", "smaller"]
    assert "--nodes=1" in report["choices"][1]["options"]
    assert all(each["odds"] is None and not each["held"] for each in report["choices"])
    assert "what could be had instead" in live.command("rtsched", *words)
    assert not [each for each in live.kept() if each.state == "offered"]
