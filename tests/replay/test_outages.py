"""Outages of nodes in a replay: what waits, what starts again, and who replays none."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.cli import main
from rtsched.logs.slurm_events import Outage
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.replay.outages import node_events

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
DOWN, DRAINED = NodeState.DOWN, NodeState.DRAINED
LOG = """JobID|JobIDRaw|User|Account|Partition|Submit|Start|End|TimelimitRaw|ReqCPUS|NNodes|State
1|1|ann|a|p|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:10:00|10|1|1|COMPLETED
2|2|bob|b|p|2026-01-01T00:01:00|2026-01-01T00:10:00|2026-01-01T00:20:00|10|1|1|COMPLETED
"""
MACHINE = "NodeName=n[1-2] CPUs=1\nPartitionName=p Nodes=ALL Default=YES\n"
EVENTS = """NodeName|TimeStart|TimeEnd|State
n1|2026-01-01T00:05:00|2026-01-01T00:30:00|DOWN
n2|2025-12-31T23:00:00|2026-01-01T00:40:00|IDLE+DRAIN
n9|2026-01-01T00:05:00|2026-01-01T00:30:00|DOWN
"""


def machine(*states: NodeState) -> Cluster:
    """Return nodes n0, n1, ... in these states."""
    names = [f"n{k}" for k in range(len(states))]
    return Cluster(Nodes.build(len(states), name=names, state=np.array(states, np.int8)))


def test_overlapping_outages_count_by_the_worst_state() -> None:
    """Drained from 10 to 50, meanwhile down from 20 to 30."""
    outages = [
        Outage("n1", T0 + 10, T0 + 50, DRAINED),
        Outage("n1", T0 + 20, T0 + 30, DOWN),
        Outage("n0", T0 - 90, T0 - 50, DOWN),
        Outage("n2", T0 - 90, np.inf, DOWN),
        Outage("n7", T0, np.inf, DOWN),
    ]
    said: list[str] = []
    found = node_events(outages, machine(NodeState.UP, NodeState.UP, NodeState.UP), T0, said)
    assert [(event.time - T0, event.node, event.state) for event in found] == [
        (0, 2, DOWN),
        (10, 1, DRAINED),
        (20, 1, DOWN),
        (30, 1, DRAINED),
        (50, 1, NodeState.UP),
    ]
    assert said[0].startswith("Outages replayed: 3, of 2 nodes.")
    assert said[1] == "Outages left out, of nodes that the machine does not have: 1."


def test_a_node_that_takes_no_jobs_stays_so() -> None:
    """An outage that ends does not bring it into service."""
    outages = [Outage("n0", T0 + 10, T0 + 50, DOWN)]
    assert node_events(outages, machine(DRAINED, NodeState.UP), T0, []) == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 20), st.sampled_from([DOWN, DRAINED])),
        min_size=1,
        max_size=8,
    )
)
def test_at_each_instant_the_worst_state(spans: list[tuple[int, int, NodeState]]) -> None:
    """A plain look at each second says the same."""
    outages = [Outage("n0", T0 + start, T0 + start + long, how) for start, long, how in spans]
    events = node_events(outages, machine(NodeState.UP), T0, [])
    for second in range(80):
        now = T0 + second
        worst = max((each.state for each in outages if each.start <= now < each.end), default=0)
        state = next((event.state for event in reversed(events) if event.time <= now), 0)
        assert state == worst


def written(tmp_path: Path) -> list[str]:
    """Return the arguments of a replay of two jobs on two nodes, one of them drained."""
    for name, text in (("log.txt", LOG), ("slurm.conf", MACHINE), ("events.txt", EVENTS)):
        (tmp_path / name).write_text(text)
    paths = {name: str(tmp_path / name) for name in ("log.txt", "slurm.conf", "events.txt", "out")}
    words = ["replay", paths["log.txt"], "--cluster", paths["slurm.conf"], "--timezone", "UTC"]
    words += ["--deadline-rule", "none", "--table-format", "csv", "--no-report", "--no-progress"]
    return [*words, "--out", paths["out"], "--outages", paths["events.txt"]]


def test_a_job_on_a_node_that_dies_starts_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """n1 dies at 5 min under job 1, which starts at 30 min; job 2 has n2 from 40 min, or n1."""
    with pytest.raises(SystemExit) as ended:
        main([*written(tmp_path), "--policy", "fcfs"])
    assert ended.value.code == 0
    assert "Outages replayed: 2, of 2 nodes" in " ".join(capsys.readouterr().out.split())
    with (tmp_path / "out" / "fcfs" / "jobs.csv").open() as table:
        starts = [float(row["start_s"]) - T0 for row in csv.DictReader(table)]
    assert starts == [1800.0, 2400.0]


def test_a_machine_whose_nodes_are_never_out_of_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said so, and nothing is replayed."""
    with pytest.raises(SystemExit) as ended:
        main([*written(tmp_path), "--policy", "rr"])
    assert ended.value.code
    assert "nodes of machine 'sliced' are never out of service" in capsys.readouterr().err
