"""What `explain` says: a outcome, then the numbers."""

import dataclasses

import numpy as np
import pytest

from rtsched.cli.explain import after, clock, facts, outcome
from rtsched.model.log import FinalState
from rtsched.replay.decisions import Met, Why

NAN, INF = np.nan, np.inf
DAY = 1_795_219_200.0
NONE = np.empty(0, np.int64)

WAITED = Why(
    row=7,
    fate=FinalState.FINISHED,
    submit=DAY,
    begin=-INF,
    deadline=INF,
    start=DAY + 7200,
    end=DAY + 10_800,
    promise=INF,
    offer=INF,
    asked=8,
    given=8,
    met=Met(10, 8, 3, 36_000.0, 5, 72_000.0),
    ahead=np.arange(5),
    overtook=np.array([9]),
    overtook_work=3600.0,
    made_way=np.array([2]),
)
NO_ROOM = {
    "plugin": "mcdf",
    "mode": "enforce",
    "verdict": "reject",
    "reason": "mcdf.no-room",
    "text": "no plan ends it in time; 60 s are left",
    "numbers": {"left": 60.0, "free": 2.5},
    "offer_s": DAY + 7200,
}


pytestmark = pytest.mark.usefixtures("zone")


def said(**changes):
    """Return the outcome for a job that differs from the one that waited."""
    return outcome(dataclasses.replace(WAITED, **changes), str)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {},
            "waited 2h 00m: of 10 nodes only 2 were free at submission, 5 jobs (0, 1, 2, ...) "
            "ahead of it started first, 1 job (9) submitted later passed it",
        ),
        (
            {"asked": 2, "overtook": NONE, "deadline": DAY + 10_000, "promise": DAY + 10_000},
            "waited 2h 00m: there were free nodes, but not for it yet, 5 jobs (0, 1, 2, ...) ahead "
            "of it started first; it ended 13m 20s after its deadline, a broken promise",
        ),
        (
            {"begin": DAY + 7200, "ahead": NONE, "overtook": NONE},
            "waited 2h 00m: it was not to start earlier",
        ),
        (
            {"start": DAY, "deadline": DAY + 20_000},
            "started at once on 8 nodes; it ended 2h 33m before its deadline",
        ),
        (
            {"fate": FinalState.REJECTED, "start": NAN, "end": NAN, "decisions": [NO_ROOM]},
            "rejected at submission by mcdf: no plan ends it in time; 60 s are left",
        ),
        (
            {"fate": FinalState.UNFINISHED, "start": NAN, "end": NAN, "asked": 11},
            "never started: the machine has 10 nodes, it asks for 11",
        ),
        (
            {"fate": FinalState.UNFINISHED, "start": NAN, "end": NAN},
            "never started by the end of the replay",
        ),
        (
            {"fate": FinalState.UNFINISHED, "end": NAN},
            "started after 2h 00m and was lost when a node went down",
        ),
    ],
)
def test_sentence(changes, expected):
    """Each fate has its own outcome."""
    assert said(**changes) == expected


def test_shadow_findings_blame_nobody():
    """A plug-in in shadow mode is shown, but did not reject the job."""
    shadow = {**NO_ROOM, "mode": "shadow"}
    assert "mcdf" not in said(decisions=[shadow])
    shown = dict(facts(dataclasses.replace(WAITED, decisions=[shadow]), str))
    assert "reject, mcdf.no-room (shadow: not counted): no plan" in shown["mcdf"]


def test_facts_of_a_rejection():
    """Plug-in, reason, numbers, and the counter-offer in local time and in seconds."""
    why = dataclasses.replace(
        WAITED,
        fate=FinalState.REJECTED,
        start=NAN,
        end=NAN,
        deadline=DAY + 60,
        offer=DAY + 7200,
        decisions=[NO_ROOM],
    )
    assert facts(why, str) == [
        (
            "at submission",
            "2 of 10 nodes free, 3 jobs running (10.0 node-hours left), 5 jobs waiting "
            "(20.0 node-hours asked for)",
        ),
        ("mcdf", "reject, mcdf.no-room: no plan ends it in time; 60 s are left"),
        ("", "left = 60, free = 2.5"),
        (
            "counter-offer",
            "a deadline of 2026-11-21 02:00:00 UTC, 2h 00m (7200 s) after submission would have "
            "been accepted",
        ),
    ]


def test_repeated_findings_are_counted():
    """A deferral at every instant is told once: how often, from when to when."""
    again = {**NO_ROOM, "verdict": "defer", "times": 4321, "first_s": DAY, "last_s": DAY + 7200}
    shown = facts(dataclasses.replace(WAITED, decisions=[again]), str)
    span = "4,321 times from 2026-11-21 00:00:00 UTC to 2026-11-21 02:00:00 UTC"
    assert ("", span) in shown
    undated = {**again, "first_s": None, "last_s": None}
    assert ("", "4,321 times") in facts(dataclasses.replace(WAITED, decisions=[undated]), str)


def test_facts_of_a_wait():
    """Who was ahead, who passed, who made way, when it ran."""
    shown = dict(facts(dataclasses.replace(WAITED, promise=DAY + 12_000), str))
    assert shown["promised"].startswith("to end by 2026-11-21 03:20:00 UTC, 3h 20m (12000 s)")
    assert shown["passed by"] == "1 job (9), 1.00 node-hours before its start"
    assert shown["started"].endswith("(7200 s) after submission, when 1 job (2) ended")
    assert shown["ran on"] == "8 nodes"


def test_log_without_dates():
    """A log that counts from its own start is told in seconds."""
    assert clock(1234.5) == "second 1234.5"
    assert after(100.0, 40.0) == "second 100, 1m 00s (60 s) after submission"


def test_zone(zone):
    """Instants are in the zone of the reader."""
    zone("Europe/Berlin")
    assert clock(DAY) == "2026-11-21 01:00:00 CET"


def test_shared_nodes():
    """Where jobs share nodes none is called free, and what a job was served is told."""
    met = dataclasses.replace(WAITED.met, busy=25, shared=True)
    shared = dataclasses.replace(WAITED, met=met, whole=8 * 3600.0, served=2 * 3600.0)
    assert met.free == 10
    assert outcome(shared, str).startswith(
        "waited 2h 00m: nodes are shared, and none was to take it earlier, 5 jobs"
    )
    told = dict(facts(shared, str))
    assert told["at submission"].startswith("3 jobs running on 10 nodes that are shared (10.0 node")
    assert told["was served"] == "2.00 node-hours, 25.0 % of the time it held its nodes"
    assert "was served" not in dict(facts(WAITED, str))
