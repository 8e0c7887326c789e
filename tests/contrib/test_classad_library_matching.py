"""What START and the negotiator's rank say in one call each, against what is written out."""

import re
import time
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from classad_workshop import Library

from rtsched.adapters.condor import condor_conf

NOW = int(time.time())
"""Hours lie between the times of the tests, so that none of these depends on when it runs."""
SLOT_NAME = re.findall(r"^RtSlot = (.*)$", condor_conf.shipped(condor_conf.EXECUTE), re.MULTILINE)[
    0
]
REQUESTS = ("RequestCpus", "RequestMemory", "RequestGPUs", "RequestDisk")
RANK = "rtschedRank(TARGET.RtNodeSet, TARGET.RtRankSet)"
RESOURCES = {"": "", "_MEMORY": ', "memory"', "_GPUS": ', "gpus"', "_DISK": ', "disk"'}
KEPT = {
    f"RTSCHED_KEPT{end}": f"rtschedKept(MY.RtSlot, $(RTSCHED_END){word})"
    for end, word in RESOURCES.items()
}
"""What is kept, from the table instead of the slot's ad."""


def expression(name: str, file: str, more: Mapping[str, str]) -> str:
    """Return a macro's expression as it is without the library, with other macros replaced."""
    text = condor_conf.shipped(file).replace("\\\n", " ")
    macros = dict(re.findall(r"^(RTSCHED_\w+) = *(.*)$", text, re.MULTILINE)) | dict(more)
    macros["MachineMaxVacateTime"] = "10 * 60"  # as HTCondor sets it
    said = f"$({name})"
    while (found := re.search(r"\$\((\w+)\)", said)) is not None:
        said = said.replace(found[0], macros[found[1]])
    return said


START = expression("RTSCHED_MAY_START", condor_conf.EXECUTE, KEPT)
RUN_TIME = "(TARGET.RtRunTime ?: {}) + {}".format(
    *(expression(f"RTSCHED_{name}", condor_conf.EXECUTE, {}) for name in ("RUN_TIME", "LONGER"))
)
ARGUMENTS = ", ".join(f"TARGET.{name}" for name in ("DeferralTime", *REQUESTS))
MAY_START = f"rtschedMayStart({RUN_TIME}, {ARGUMENTS})"


def ad(values: Mapping[str, object]) -> str:
    """Return an ad with these values, without those that are None."""
    lines = [f"{name} = {_literal(value)}" for name, value in values.items() if value is not None]
    return f"[ {'; '.join(lines)} ]"


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


DYNAMIC = {"DynamicSlot": True, "SlotType": '"Dynamic"', "Name": '"slot1_3@a"'}
PARTITIONABLE = {"PartitionableSlot": True, "SlotType": '"Partitionable"', "Name": '"slot1@a"'}
STATIC = {"SlotType": '"Static"', "Name": '"slot1@a"'}
AMOUNTS = (1, 1, 2, 0, 3.5, 100, 127, 128, 129, 1024, 1025, 2000, None, '"many"', "error", True, -1)
ENDS = {
    "RtRunTime": (10, 40_000, 60_000, 70_000.5, None, '"soon"'),
    "DeferralTime": (None, None, 0, NOW - 9, NOW + 30_000, NOW + 10**6, '"soon"'),
}
STATE = {
    "State": ('"owner"', '"Unclaimed"', '"Claimed"'),
    "PublicClaimId": (None, '"<1>#2"'),
    "TotalJobRunTime": (None, 0, 9),
}
ROOM = {
    "Cpus": (1, 2, 4, 4, 2000),
    "Memory": (128, 1000, 2048, 4000),
    "TotalSlotCpus": (1, 4, 2000),
    "TotalSlotMemory": (2048, 4000),
    "GPUs": (None, 0, 1, 2, 2000),
    "Disk": (1000, 4096, 10**6),
}


def chosen(draw: Random, values: Mapping[str, Sequence[object]]) -> dict[str, object]:
    """Return one of the values for each name."""
    return {name: draw.choice(among) for name, among in values.items()}


def steps(draw: Random) -> str:
    """Return what is kept of a slot, in up to two steps."""
    last, named = draw.choice((1, 4, 2000)), draw.choice((1, 3, 4))
    rows = [[draw.randint(0, last) for _ in range(named)] for _ in range(draw.randint(0, 2))]
    rising = zip(*(sorted(column) for column in zip(*rows, strict=True)), strict=True)
    each = zip((NOW - 5, NOW + 50_000), rising, strict=False)
    return ",".join(f"{start}:{':'.join(map(str, row))}" for start, row in each) or "-"


def write(library: Library, *lines: str) -> None:
    """Write a table."""
    text = "".join(f"{line}\n" for line in (f"rtsched-slots 1 {int(time.time())} 300", *lines))
    library.table.write_text(text)


@pytest.mark.parametrize("seed", range(3))
def test_start_is_what_its_expression_is(library: Library, seed: int) -> None:
    """Of whatever slot, for whatever job, the call and the expression without it agree."""
    draw = Random(seed)  # noqa: S311
    write(library, *(f"slot{number}@a\t1\t{steps(draw)}" for number in range(100)))
    values = []
    for number in range(40):
        kind = draw.choice((STATIC, PARTITIONABLE, PARTITIONABLE, DYNAMIC))
        name = {"Name": str(kind["Name"]).replace("slot1", f"slot{number}"), "RtSlot": SLOT_NAME}
        slot = kind | chosen(draw, STATE | ROOM) | name
        jobs = [chosen(draw, ENDS | dict.fromkeys(REQUESTS, AMOUNTS)) for _ in range(8)]
        asked = [
            line
            for job in jobs
            for line in (f"job {ad(job)}", f"eval {MAY_START}", f"eval {START}")
        ]
        found = library.run(f"slot {ad(slot)}", *asked)
        for job, call, plain in zip(jobs, found[::2], found[1::2], strict=True):
            # An error is no match, and neither is what is false or not known.
            assert call == plain or (plain == "error" and call != "true"), (slot, job)
        values += found
    assert {"true", "false", "undefined"} <= set(values)


def test_without_a_job_it_is_not_known_whether_one_may_start(library: Library) -> None:
    """So a slot of which something is kept is still the pool's."""
    write(library, f"slot1@a\t1\t{NOW}:1")
    for slot in (STATIC, PARTITIONABLE | {"Cpus": 4, "Memory": 4000}):
        assert library.run(f"slot {ad(slot)}", f"eval {MAY_START}") == ["undefined"]


@pytest.mark.parametrize(
    ("run_time", "deferred", "may"),
    [(400, None, "true"), (600, None, "false"), (None, None, "false"), (400, 300, "false")],
)
def test_a_job_may_start_if_it_ends_before_what_is_kept(
    library: Library, run_time: int | None, deferred: int | None, may: str
) -> None:
    """A job that waits in its slot for its deferral time ends later, one without run time never."""
    now = int(time.time())
    write(library, f"slot1@a\t1\t{now + 500}:1")
    until = None if deferred is None else now + deferred
    job = {"RtRunTime": run_time, "DeferralTime": until, "RequestCpus": 1, "JobMaxVacateTime": 10}
    asked = (f"slot {ad(STATIC)}", f"job {ad(job)}", f"eval {MAY_START}")
    assert library.run(*asked) == [may]


@pytest.mark.parametrize(
    ("slot", "job", "rank"),
    [
        ({}, {}, 1e14 - 2.5e9),
        ({"RemoteOwner": '"alice"'}, {}, -2.5e9),
        ({"Name": '"slot1@b"'}, {}, 1e14 - 1e9),
        ({"Name": None}, {"RtNodeSet": '""'}, 1e14 - 1e9),
        ({}, {"RtNodeSet": '"slot1@a"'}, 1e15 + 1e14 - 2.5e9),
        ({}, {"RtNodeSet": '"slot2@a,slot1@a"', "RtRankSet": '"x"'}, 1e15 + 1e14 - 2.5e9),
        ({}, {"RtNodeSet": '"slot1@ab,slot11@a,SLOT1@A"'}, 1e14 - 2.5e9),
        ({}, {"RtRankSet": '"slot1@a,slot2@a"'}, 1e14 + 1e13 - 2.5e9),
        ({}, {"RtNodeSet": 5, "RtRankSet": "error"}, 1e14 - 2.5e9),
    ],
)
def test_the_rank_of_a_slot(
    library: Library, slot: dict[str, object], job: dict[str, object], rank: float
) -> None:
    """A job's own slots come first, then free ones, those that suit it, and the faster."""
    write(library, "slot1@a\t2.5\t-")
    asked = (f"slot {ad(STATIC | slot)}", f"job {ad(job)}", f"eval {RANK}")
    assert float(library.run(*asked)[0]) == rank
