"""When nodes were down or drained, as sacctmgr tells it."""

import math
from pathlib import Path

import pytest

from rtsched.errors import InputError
from rtsched.logs.sacctmgr import Outage, read_outages
from rtsched.model.cluster import NodeState

HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
DAY = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""


def written(tmp_path: Path, *lines: str) -> Path:
    """Return a file with these lines."""
    path = tmp_path / "events.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_outages_of_nodes(tmp_path: Path) -> None:
    """Events of the cluster, power saving and outages of no length are none."""
    path = written(
        tmp_path,
        HEADER,
        "c||2026-01-01T00:00:00|Unknown||Cluster Registered TRES|root(0)",
        "c|n1|2026-01-01T01:00:00|2026-01-01T02:00:00|DOWN*|not responding|slurm(64030)",
        "c|n2|2026-01-01T01:00:00|Unknown|MIXED+DRAIN|memory|root(0)",
        "c|n3|2026-01-01T01:00:00|2026-01-01T03:00:00|IDLE+POWERED_DOWN||root(0)",
        "c|n4|2026-01-01T01:00:00|2026-01-01T01:00:00|DOWN|short|root(0)",
        "c|n5|2026-01-01T01:00:00|2026-01-01T03:00:00|DOWN+DRAIN|both|root(0)",
    )
    assert read_outages(path, "UTC") == [
        Outage("n1", DAY + 3600, DAY + 7200, NodeState.DOWN),
        Outage("n2", DAY + 3600, math.inf, NodeState.DRAINED),
        Outage("n5", DAY + 3600, DAY + 10800, NodeState.DOWN),
    ]
    assert read_outages(path, "Europe/Berlin")[0].start == DAY


@pytest.mark.parametrize(
    ("lines", "line", "what"),
    [
        (("NodeName|TimeStart|State", "n1|2026-01-01T01:00:00|DOWN"), 1, "no header line with"),
        ((HEADER, "c|n1|soon|Unknown|DOWN||"), 2, "TimeStart is 'soon', which is not a time"),
        ((HEADER, "c|n1|2026-01-01T01:00:00|never|DOWN||"), 2, "TimeEnd is 'never'"),
        ((HEADER, "c|n1|2026-01-01T01:00:00|Unknown|DOWN|a|b|root(0)"), 2, "8 fields, where"),
    ],
)
def test_files_that_are_something_else(
    tmp_path: Path, lines: tuple[str, ...], line: int, what: str
) -> None:
    """The error names the line, and the command that writes the file."""
    with pytest.raises(InputError) as raised:
        read_outages(written(tmp_path, *lines), "UTC")
    assert what in str(raised.value)
    assert f":{line}:" in str(raised.value)
    assert "sacctmgr -P show event" in str(raised.value)
