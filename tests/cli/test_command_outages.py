"""`rtsched replay --outages`: what waits, what starts again, and who replays none."""

import csv

import pytest

T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
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


@pytest.fixture
def arguments(tmp_path):
    """Return the arguments of a replay of two jobs on two nodes, one of them drained."""
    for name, text in (("log.txt", LOG), ("slurm.conf", MACHINE), ("events.txt", EVENTS)):
        (tmp_path / name).write_text(text)
    words = ["replay", tmp_path / "log.txt", "--cluster", tmp_path / "slurm.conf"]
    words += ["--timezone", "UTC", "--deadline-rule", "none", "--table-format", "csv"]
    words += ["--no-report", "--out", tmp_path / "out"]
    return [*words, "--outages", tmp_path / "events.txt"]


def test_a_job_on_a_node_that_dies_starts_again(run, arguments, tmp_path):
    """n1 dies at 5 min under job 1, which starts at 30 min; job 2 follows it, or takes n2."""
    result = run(*arguments, "--policy", "fcfs")
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "Outages replayed: 2, of 2 nodes." in said
    assert "Outages left out, of nodes that the machine does not have: 1." in said
    with (tmp_path / "out" / "fcfs" / "jobs.csv").open() as table:
        starts = [float(row["start_s"]) - T0 for row in csv.DictReader(table)]
    assert starts == [1800.0, 2400.0]


def test_a_machine_whose_nodes_are_never_out_of_service(run, arguments):
    """It is said so, and nothing is replayed."""
    result = run(*arguments, "--policy", "rr")
    assert result.exit_code
    assert "nodes of machine 'sliced' are never out of service" in result.stderr
