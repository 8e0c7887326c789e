"""Choices that are held over REST: for whom, for how long, and what is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_client import BOB, asked, in_thread
from running import ANN, NOW, Running, until
from test_menu import busy

from rtsched.daemon.settings import DaemonSettings

WISH = {"nodes": 4, "time_s": 1800.0, "deadline": NOW + 3600}
"""More nodes than are free; one node is, and all four are in two hours."""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon three of whose four nodes are busy, and which looks again when asked to."""

    async def course(one: Running) -> None:
        one.show(**busy({1: 120, 2: 120, 3: 120}))
        await one.start()

    with in_thread(Running(tmp_path, DaemonSettings(menu_ms=600_000.0)), course) as daemon:
        yield daemon


def test_held_for_its_user_alone(running: Running) -> None:
    """Another user does not see it, nor can hold anything for others."""
    status, report = asked(running, ANN, "POST", "/v1/hold", WISH)[:2]
    assert (status, report["feasible"]) == (200, False)
    assert [(each["kind"], each["held"]) for each in report["choices"]] == [
        ("later", True),
        ("smaller", False),
    ]
    assert report["expires"] == NOW + 60
    assert report["choices"][1]["take"] == "rtsched take 2 job.sh"
    status, mine = asked(running, ANN, "GET", "/v1/choices")[:2]
    assert (status, mine["expires"], mine["choices"]) == (200, NOW + 60, report["choices"])
    for uid in (BOB, 0):
        status, others = asked(running, uid, "GET", "/v1/choices")[:2]
        assert (status, others["expires"], others["choices"]) == (200, None, [])
    one = {"nodes": 1, "time_s": 2400.0, "deadline": NOW + 3600}
    assert asked(running, BOB, "POST", "/v1/feasible", one)[1]["feasible"], "it is not reserved"
    assert asked(running, ANN, "POST", "/v1/feasible", one)[1]["feasible"]
    for wrong in ({"uid": ANN}, {"user": "ann"}, {"job": "4711"}, {"choice": 2}):
        status, refused = asked(running, BOB, "POST", "/v1/hold", WISH | wrong)[:2]
        assert (status, refused.keys()) == (400, {"error"})
    assert asked(running, None, "POST", "/v1/hold", WISH)[0] == 401
    assert asked(running, None, "GET", "/v1/choices")[0] == 401
    assert asked(running, ANN, "GET", "/v1/choices")[1]["choices"] == mine["choices"]
    assert {record.uid for record in running.daemon.site.promises.values()} == {ANN}


def test_expired(running: Running) -> None:
    """After its time there is no choice, nothing is held, and it counts as one unused offer."""
    asked(running, ANN, "POST", "/v1/hold", WISH)[:2]
    assert len(running.states()) == 2
    running.now = NOW + 61
    assert asked(running, ANN, "GET", "/v1/choices")[1]["choices"] == []
    running.show(time=running.now)
    asyncio.run(running.daemon.cycle())
    asyncio.run(until(lambda: not running.states()))
    assert len(running.daemon.site.unused_by(ANN, running.now, "offered")) == 1
    one = {"nodes": 1, "time_s": 2400.0, "deadline": running.now + 3600}
    assert asked(running, BOB, "POST", "/v1/feasible", one)[1]["feasible"]


def test_one_menu_after_the_other(running: Running) -> None:
    """A user has one at a time; who takes too many is shown them, and nothing is held."""
    for minutes in range(1, 15):
        wish = WISH | {"deadline": NOW + 3600 + 60 * minutes}
        status, report = asked(running, ANN, "POST", "/v1/hold", wish)[:2]
        assert status == 200
        assert len(running.states()) <= 2
    assert report["choices"]
    assert not any(each["held"] for each in report["choices"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"partition": "nowhere"}, 422),
        ({"nodes": 0}, 400),
        ({"time_s": -1}, 400),
        ({"deadline": "soon"}, 400),
        ({"gpus": 1 << 40}, 400),
        ([], 400),
    ],
)
def test_what_makes_no_sense_is_refused(running: Running, body: Any, status: int) -> None:
    """By one sentence; what was held before stays."""
    asked(running, ANN, "POST", "/v1/hold", WISH)[:2]
    wish = WISH | body if isinstance(body, dict) else body
    found, report = asked(running, ANN, "POST", "/v1/hold", wish)[:2]
    assert (found, report.keys()) == (status, {"error"})
    assert len(running.states()) == 2


def test_what_is_feasible_is_not_held(running: Running) -> None:
    """Nobody submits it; nor is anything held by a dry run, which says so."""
    good = {"nodes": 1, "time_s": 600.0, "deadline": NOW + 86400}
    status, report = asked(running, ANN, "POST", "/v1/hold", good)[:2]
    assert (status, report["feasible"], running.states()) == (200, True, [])
    running.daemon.dry_run = True
    status, report = asked(running, ANN, "POST", "/v1/hold", WISH)[:2]
    assert (status, "nothing can be held" in report["error"]) == (422, True)
