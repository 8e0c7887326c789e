"""Divisible loads that jobs take in several rounds, on a real HTCondor."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from promised_pool import SITE, LivePool, live_pool

ROUNDS = 'name = "mcdf"\nsettings = { rounds = 8 }\n'
WORKER = """\
#!/bin/sh
while part=$(/opt/rtsched/bin/rtsched chunk --next) || echo "ended with $?"; do
    [ -n "$part" ] || break
    echo "$part"
done
sleep 5  # as long as it may take until the other parts have started
"""
LOAD = ("+RtSigma = 80", "+RtCms = 0.05", "+RtCps = 1", "+RtRounds = 4", "+RtMinNodes = 2")


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run two fast and four slow slots; the planner may send loads in up to eight rounds."""
    with live_pool(SITE.replace('name = "mcdf"\n', ROUNDS)) as running:
        running.pool.write({"/usr/local/bin/rounds.sh": WORKER})
        running.pool.run(["chmod", "755", "/usr/local/bin/rounds.sh"])
        yield running


def test_procs_take_their_parts_in_rounds(live: LivePool) -> None:
    """Each proc takes its own part in four rounds; together they take all of the load."""
    lines = ("executable = /usr/local/bin/rounds.sh", "transfer_executable = false")
    lines += ("should_transfer_files = yes", "when_to_transfer_output = on_exit")
    home = ("output = /home/alice/rounds.$(ProcId)", f"+RtDeadline = {time.time() + 300:.0f}")
    job = live.promise(*lines, *home, *LOAD, "queue 4")
    live.wait_state(job, "kept", seconds=120)
    ran = [ad for ad in live.past(f"ClusterId == {job >> 20}").values() if ad["JobStatus"] == 4]
    assert len(ran) >= 2
    parts = []
    for ad in ran:
        text = live.pool.path(f"/home/alice/rounds.{ad['ProcId']}").read_text()
        *own, last = [line.split() for line in text.splitlines()]
        assert (len(own), last) == (4, ["ended", "with", "1"]), text
        assert ad["Environment"].count("RTSCHED_ROUNDS=") == 1
        lengths = [float(end) - float(start) for start, end in own]
        ratios = [after / before for before, after in pairwise(lengths)]
        assert ratios == pytest.approx([1 / (0.05 * len(ran))] * 3, rel=1e-4)
        parts += own
    parts.sort(key=lambda part: float(part[0]))
    assert (parts[0][0], parts[-1][1]) == ("0", "1")
    assert all(one[1] == two[0] for one, two in pairwise(parts)), parts
    home_now = [path.name for path in live.pool.path("/home/alice").iterdir()]
    assert ".rtsched" not in home_now
    assert "parts" not in home_now
