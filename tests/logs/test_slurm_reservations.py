"""Reservations, as scontrol and sacctmgr print them."""

from __future__ import annotations

import pytest

from rtsched.errors import InputError
from rtsched.logs.slurm_reservations import Reservation, read_reservations

T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
SHOWN = """ReservationName=a StartTime=2026-01-01T00:10:00 EndTime=2026-01-01T00:20:00 Duration=00:10:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=2 Features=(null) PartitionName=p Flags=DAILY,SPEC_NODES
   TRES=cpu=2
   Comment=Nodes=n7 Flags=TIME_FLOAT

ReservationName=b StartTime=2026-01-01T00:10:00 EndTime=2026-01-01T00:20:00 Duration=00:10:00
   Nodes=n1 NodeCnt=1 CoreCnt=1 Features=(null) PartitionName=p Flags=SPEC_NODES
     NodeName=n1 CoreIDs=0
   TRES=cpu=1

ReservationName=c StartTime=2026-01-01T00:10:00 EndTime=2026-01-01T00:20:00 Duration=00:10:00
   Nodes= NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=ANY_NODES
"""  # noqa: E501 - as Slurm prints it
EXPECTED = [
    Reservation("a", ("n1", "n2"), T0 + 600, T0 + 1200, "", recurs=True),
    Reservation("b", ("n1",), T0 + 600, T0 + 1200, "holds some cores of its nodes", recurs=False),
    Reservation("c", (), T0 + 600, T0 + 1200, "names no nodes", recurs=False),
]


def read(tmp_path, text):
    """Return what is read from a file with this text."""
    path = tmp_path / "reserved.txt"
    path.write_text(text)
    return read_reservations(path, "UTC")


def test_both_forms_of_scontrol(tmp_path):
    """Several lines each, or one; a comment says nothing of the reservation."""
    assert read(tmp_path, SHOWN) == EXPECTED
    lines = [" ".join(block.split()) for block in SHOWN.split("\n\n")]
    assert read(tmp_path, "\n".join(lines)) == EXPECTED


def test_accounting(tmp_path):
    """The columns have names of their own."""
    text = "Name|TimeStart|TimeEnd|NodeName|Flags\n"
    text += "a|2026-01-01T00:10:00|2026-01-01T00:20:00|n[1-2]|DAILY,SPEC_NODES\n"
    assert read(tmp_path, text) == EXPECTED[:1]


def test_no_reservation(tmp_path):
    """Slurm says so in words."""
    assert read(tmp_path, "No reservations in the system\n") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JobId=1 Name=x\n", "no reservation is in it"),
        ("", "no reservation is in it"),
        ("ReservationName=a StartTime=now-what Nodes=n1\n", "is not a time"),
        ("ReservationName=a Nodes=n[1\n", "the nodes: "),
        ("Name|TimeStart\n", "no header line with TimeEnd"),
    ],
)
def test_something_else(tmp_path, text, message):
    """One sentence says what is wrong."""
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        read(tmp_path, text)
