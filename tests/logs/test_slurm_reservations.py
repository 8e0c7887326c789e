"""Reservations, as scontrol and sacctmgr print them."""

import json

import pytest

from rtsched.errors import InputError
from rtsched.logs.slurm_reservations import Reservation, read_reservations

SHOWN = """ReservationName=daily StartTime=2026-11-24T13:48:22 EndTime=2026-11-24T14:18:22 Duration=00:30:00
   Nodes=fast1 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags=DAILY,SPEC_NODES
   TRES=cpu=4
   AllowedPartitions=(null) QOS=(null)
   Users=alice Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

ReservationName=part StartTime=2026-11-24T15:48:22 EndTime=2026-11-24T16:18:22 Duration=00:30:00
   Nodes=fast1 NodeCnt=1 CoreCnt=1 Features=(null) PartitionName=all Flags=SPEC_NODES
     NodeName=fast1 CoreIDs=0
   TRES=cpu=1
   AllowedPartitions=(null) QOS=(null)
   Users=alice Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

ReservationName=note StartTime=2026-11-24T19:48:52 EndTime=2026-11-24T19:53:52 Duration=00:05:00
   Nodes=slow[2,4] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=SPEC_NODES
   TRES=cpu=8
   AllowedPartitions=(null) QOS=(null)
   Users=alice Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)
   Comment=a Flags=TIME_FLOAT

ReservationName=float StartTime=2026-11-24T10:58:22 EndTime=2026-11-24T11:28:22 Duration=00:30:00
   Nodes=fast1 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES,TIME_FLOAT
   TRES=cpu=4
   AllowedPartitions=(null) QOS=(null)
   Users=alice Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

"""  # noqa: E501 - as Slurm 26.05 prints it
ACCOUNTED = """Name|TimeStart|TimeEnd|NodeName|Flags|TRES
hourly|2026-11-24T10:48:52|2026-11-24T10:49:52|slow1|IGNORE_JOBS,HOURLY,SPEC_NODES|cpu=4
hourly|2026-11-24T11:48:52|2026-11-24T11:49:52|slow1|IGNORE_JOBS,HOURLY,SPEC_NODES|cpu=4
daily|2026-11-24T13:48:22|2026-11-24T14:18:22|fast1|DAILY,SPEC_NODES|cpu=4
part|2026-11-24T15:48:22|2026-11-24T16:18:22|fast1|SPEC_NODES|cpu=1
note|2026-11-24T19:48:52|2026-11-24T19:53:52|slow[2,4]|SPEC_NODES|cpu=8
"""
"""Of the same reservations, but those that move; `hourly` has come once, and its next is known."""
DAY = 1_795_478_400.0
"""2026-11-24T00:00:00 UTC."""


def reservation(name, nodes, clock, minutes, obstacle="", *, recurs=False, cpus=0):
    """Return one that starts at hour, minute and second of the day."""
    hour, minute, second = clock
    start = DAY + 3600 * hour + 60 * minute + second
    return Reservation(name, nodes, start, start + 60 * minutes, obstacle, recurs, cpus)


DAILY = reservation("daily", ("fast1",), (13, 48, 22), 30, recurs=True)
PART = reservation("part", ("fast1",), (15, 48, 22), 30)._replace(cpus_on=(1,))
NOTE = reservation("note", ("slow2", "slow4"), (19, 48, 52), 5)
HOURLY = reservation("hourly", ("slow1",), (10, 48, 52), 1, recurs=True, cpus=4)
FLOAT = reservation("float", ("fast1",), (10, 58, 22), 30, "moves with the time")


def read(tmp_path, text):
    """Return what is read from a file with this text."""
    path = tmp_path / "reserved.txt"
    path.write_text(text)
    return read_reservations(path, "UTC")


def test_both_forms_of_scontrol(tmp_path):
    """Several lines each, or one; a comment says nothing of the reservation."""
    assert read(tmp_path, SHOWN) == [DAILY, PART, NOTE, FLOAT]
    lines = [" ".join(block.split()) for block in SHOWN.strip().split("\n\n")]
    assert read(tmp_path, "\n".join(lines)) == [DAILY, PART, NOTE, FLOAT]


def test_accounting(tmp_path):
    """The columns have names of their own; whether some cores are meant, their number tells."""
    assert read(tmp_path, ACCOUNTED) == [
        HOURLY,
        HOURLY._replace(start=HOURLY.start + 3600, end=HOURLY.end + 3600),
        DAILY._replace(cpus=4),
        PART._replace(cpus_on=(), cpus=1),
        NOTE._replace(cpus=8),
    ]


def test_cores_of_several_nodes(tmp_path):
    """3 cores of fast1 and 1 of fast3, of 2 threads each, as 8 CPUs say."""
    text = SHOWN.split("\n\n")[1].replace("Nodes=fast1", "Nodes=fast[1-3]")
    text = text.replace(
        "NodeName=fast1 CoreIDs=0", "NodeName=fast1 CoreIDs=0-1,3\n  NodeName=fast3 CoreIDs=2"
    )
    text = text.replace("TRES=cpu=1", "TRES=cpu=8")
    expected = PART._replace(nodes=("fast1", "fast2", "fast3"), cpus_on=(6, 0, 2))
    assert read(tmp_path, text) == [expected]
    assert read(tmp_path, " ".join(text.split())) == [expected]


def test_without_nodes(tmp_path):
    """One of licenses alone."""
    text = SHOWN.partition("\n\n")[0].replace("Nodes=fast1", "Nodes=")
    assert read(tmp_path, text) == [DAILY._replace(nodes=(), obstacle="names no nodes")]


def test_messages_before_reservations(tmp_path):
    """Of a shell, before what scontrol or sacctmgr prints."""
    noise = "[ann@login ~]$ scontrol show reservation\n"
    assert read(tmp_path, noise + SHOWN) == read(tmp_path, SHOWN)
    table = (
        "Name|TimeStart|TimeEnd|NodeName|Flags|TRES\n"
        "a|2026-11-21T08:00:00|2026-11-21T09:00:00|n1|MAINT|cpu=4\n"
    )
    assert read(tmp_path, noise + table) == read(tmp_path, table)


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
        ("ReservationName=a Nodes=n1 NodeName=n1 CoreIDs=0-\n", "the nodes: "),
        ("Name|TimeStart\n", "no header line with TimeEnd"),
    ],
)
def test_something_else(tmp_path, text, message):
    """One sentence says what is wrong."""
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        read(tmp_path, text)


@pytest.mark.parametrize("wrapped", [True, False])
def test_json_says_what_text_says(tmp_path, wrapped):
    """`scontrol --json show reservation`: times are numbers, or objects since Slurm 23.02."""
    text, shown = tmp_path / "text", tmp_path / "json"
    text.write_text(
        "ReservationName=one StartTime=2026-11-21T12:00:00 EndTime=2026-11-21T14:00:00 "
        "Nodes=n[1-2] Flags=MAINT,WEEKLY TRES=cpu=4\n  NodeName=n1 CoreIDs=0-1\n"
        "ReservationName=two StartTime=2026-11-21T12:00:00 EndTime=2026-11-21T14:00:00 "
        "Nodes=(null) Flags=TIME_FLOAT TRES=(null)\n"
    )

    def at(moment):
        return {"set": True, "infinite": False, "number": moment} if wrapped else moment

    times = {"start_time": at(1795262400), "end_time": at(1795269600)}
    one = {"name": "one", "node_list": "n[1-2]", "flags": ["MAINT", "WEEKLY"], "tres": "cpu=4"}
    one |= {"core_specializations": [{"node": "n1", "core": "0-1"}]}
    two = {"name": "two", "node_list": "", "flags": ["FLOAT"], "tres": "", "partition": "p"}
    shown.write_text(json.dumps({"reservations": [one | times, two | times], "meta": {}}))
    assert read_reservations(shown, "UTC") == read_reservations(text, "UTC")
    shown.write_text(json.dumps({"reservations": []}))
    assert read_reservations(shown, "UTC") == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"reservations": [', "no `scontrol --json show reservation`"),
        ('{"jobs": []}', "no `scontrol --json show reservation`"),
        (
            '{"reservations": [{"name": "a", "start_time": {"set": false}, "end_time": 7}]}',
            "StartTime is 'not set'|starttime is 'not set'",
        ),
    ],
)
def test_json_of_something_else(tmp_path, content, words):
    """It is refused with the command."""
    path = tmp_path / "json"
    path.write_text(content)
    with pytest.raises(InputError, match=words):
        read_reservations(path, "UTC")
