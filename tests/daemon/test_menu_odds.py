"""Choices with odds, and the menu of a job that asked for odds: hand-derived."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from running import ANN, NOW, Running, even_ends
from test_menu import ask, busy, course, submit, told

from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.core.config import PluginTable
from rtsched.daemon.reports import Choices, Feasible, Hold
from rtsched.daemon.settings import DaemonSettings, LikelySettings, LiveSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

MINUTE = 60.0


class Known:
    """Every job ends at any time between two, minutes from now, all equally likely."""

    def __init__(self, first: float, last: float, late: bool = False) -> None:
        self.first, self.last, self.late, self.asked = first, last, late, 0

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64] | None:
        """Return the ends of each job; nothing, as late as may be, if it is late."""
        assert timeout_s >= 0.0
        self.asked += 1
        if self.late:
            await asyncio.sleep(timeout_s)
            return None
        ends = even_ends(NOW + self.first * MINUTE, NOW + self.last * MINUTE)
        return np.tile(ends, (len(jobs), 1))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four nodes and much time for menus: a busy machine is slow."""
    one = Running(tmp_path, DaemonSettings(menu_ms=600_000.0))
    yield one
    one.close()


def sells(running: Running, known: Known, **likely: Any) -> None:
    """Have a daemon sell odds as they are known."""
    running.daemon.odds = known
    running.live = LiveSite(
        planner="mcdf",
        plugin=[PluginTable("mcdf")],
        daemon=running.settings,
        likely=LikelySettings(**likely),
    )
    running.daemon.policy = running.policy()


BUSY = busy({1: 120, 2: 120, 3: 120})
"""One of four nodes is free; the others are in two hours."""


def test_the_asked_deadline_with_odds(patient: Running) -> None:
    """Odds of 97 % are given as the 95 % that they are sure to be; what is taken is promised so."""
    sells(patient, Known(30.0, 61.0))

    async def steps() -> None:
        said = await submit(patient, 4, 30, 60)
        assert said[Tag.VERDICT] == REJECT
        lines = str(said[Tag.MESSAGE]).splitlines()
        assert lines[1].startswith("or `rtsched take 2 job.sh`: with odds of 95 %, by ")
        assert lines[1].endswith(", not reserved")
        report = await ask(patient, Choices())
        assert told(report.choices) == [
            ("later", "as it is", 150.0),
            ("likely", "with odds of 95 %", 60.0),
            ("smaller", "on 1 node (with the same time limit)", 60.0),
        ]
        choice = report.choices[1]
        assert choice.odds == 0.95
        assert not choice.held
        assert (choice.start, choice.end, choice.nodes) == (None, None, ())
        assert "--extra=rtsched:odds=95" in choice.options
        assert patient.standings() == ["offered", "offered"]
        said = await submit(patient, 4, 30, 60, EXTRA="rtsched:odds=95")
        assert said[Tag.VERDICT] == ACCEPT
        assert "not guaranteed" in str(said[Tag.MESSAGE])
        assert patient.standings() == [], "the others are given up"
        assert patient.daemon.site.unused_by(ANN, NOW, "offered") == []
        assert [r.standing for r in patient.daemon.site.likely.records.values()] == ["provisional"]
        assert (await ask(patient, Choices())).choices == ()

    course(patient, steps, **BUSY)


@pytest.mark.parametrize(("last", "shown"), [(140.0, True), (158.0, False)])
def test_a_later_deadline_with_odds_comes_before_the_guaranteed_one(
    patient: Running, last: float, shown: bool
) -> None:
    """One that comes no sooner than 150 minutes from now is dominated by the guarantee then."""
    sells(patient, Known(30.0, last))

    async def steps() -> None:
        await submit(patient, 4, 30, 60)
        report = await ask(patient, Choices())
        likely = [one for one in told(report.choices) if one[0].startswith("likely")]
        by = math.ceil(30.0 + 0.95 * (last - 30.0)) + 1
        assert likely == ([("likely-later", "with odds of 95 %", by)] if shown else [])
        assert report.choices[0].kind == "later"

    course(patient, steps, **BUSY)


def test_odds_that_are_not_sold_are_no_choice(patient: Running) -> None:
    """Nor is anybody asked for them where none are sold, or too many were."""
    known = Known(30.0, 160.0)

    async def steps() -> None:
        for likely in ({"share": 0.0}, {"share": 0.1}, {"odds_least": 99.0}):
            sells(patient, known, **likely)
            await submit(patient, 4, 30, 60)
            kinds = [each.kind for each in (await ask(patient, Choices())).choices]
            assert kinds == ["later", "smaller"], likely
        assert known.asked == 1, "by the site that sells 99 %: later than is guaranteed"

    course(patient, steps, **BUSY)


def test_low_odds_are_given_as_the_lowest_that_are_sold(patient: Running) -> None:
    """83 % are a class of 80; where no less than 82 are sold, it is those."""

    async def steps() -> None:
        for least, shown in ((80.0, 0.8), (82.0, 0.82), (84.0, None)):
            sells(patient, Known(0.0, 60.0 / 0.83), odds_least=least)
            await submit(patient, 4, 30, 60)
            found = {each.kind: each.odds for each in (await ask(patient, Choices())).choices}
            assert found.get("likely") == shown
            assert found["likely-later"] == 0.95

    course(patient, steps, **BUSY)


def test_odds_that_are_late_are_not_waited_for(tmp_path: Path) -> None:
    """The menu is there when its time is over, without them."""
    one, known = Running(tmp_path, DaemonSettings(menu_ms=30.0)), Known(0.0, 1.0, late=True)
    sells(one, known)

    async def steps() -> None:
        said = await submit(one, 4, 30, 60)
        assert known.asked == 1
        assert "odds" not in str(said[Tag.MESSAGE])
        assert said[Tag.VERDICT] == REJECT

    course(one, steps, **BUSY)
    one.close()


def test_odds_too_low_but_a_guarantee_is_to_be_had(patient: Running) -> None:
    """It dominates all else, is reserved, and is promised to who takes it."""
    sells(patient, Known(0.0, 120.0))

    async def steps() -> None:
        said = await submit(patient, 1, 30, 60, EXTRA="rtsched:odds=95 rtsched:notify=none")
        first, *others = str(said[Tag.MESSAGE]).splitlines()
        assert "the odds of ending by this deadline are 50 %, 95 % were asked for" in first
        assert len(others) == 1
        assert others[0].startswith("or `rtsched take 1 job.sh`: guaranteed, by ")
        assert others[0].endswith(", reserved")
        (choice,) = (await ask(patient, Choices())).choices
        assert (choice.kind, choice.odds, choice.held) == ("guaranteed", None, True)
        assert "--extra=rtsched:notify=none" in choice.options
        assert patient.standings() == ["offered"]
        said = await submit(patient, 1, 30, 60, EXTRA="rtsched:notify=none")
        assert "promised to end by" in str(said[Tag.MESSAGE])
        assert patient.standings() == ["provisional"]
        assert patient.daemon.site.unused_by(ANN, NOW, "offered") == []

    course(patient, steps, **BUSY)


def test_odds_too_low_and_no_guarantee(patient: Running) -> None:
    """Lower odds by the same deadline, the same by a later one, guarantees with something else."""
    sells(patient, Known(0.0, 60.0 / 0.92))

    async def steps() -> None:
        said = await submit(patient, 4, 30, 60, EXTRA="rtsched:odds=95")
        first, *others = str(said[Tag.MESSAGE]).splitlines()
        assert "With odds of 95 %" in first
        report = await ask(patient, Choices())
        assert told(report.choices) == [
            ("likely-later", "with odds of 95 %", 63.0),
            ("likely", "with odds of 90 %", 60.0),
            ("smaller", "guaranteed, on 1 node (with the same time limit)", 60.0),
            ("later", "guaranteed", 150.0),
        ]
        assert [each.odds for each in report.choices] == [0.95, 0.9, None, None]
        assert [each.held for each in report.choices] == [False, False, True, True]
        assert [line.rpartition(", ")[2] for line in others] == [
            "not reserved",
            "reserved",
            "reserved",
        ]
        smaller = report.choices[2].options
        assert "--extra=" in smaller
        assert "--nodes=1" in smaller
        assert (await submit(patient, 1, 30, 60))[Tag.VERDICT] == ACCEPT
        assert patient.standings() == ["provisional"]

    course(patient, steps, **BUSY)


def test_a_menu_after_odds_gives_up_what_was_offered_before(patient: Running) -> None:
    """It counts as an offer that was not used."""
    sells(patient, Known(0.0, 6000.0))

    async def steps() -> None:
        await submit(patient, 4, 30, 60)
        assert patient.standings() == ["offered", "offered"]
        await submit(patient, 1, 30, 60, EXTRA="rtsched:odds=95")
        assert patient.standings() == ["offered"]
        assert len(patient.daemon.site.unused_by(ANN, NOW, "offered")) == 1
        assert (await submit(patient, 1, 30, 60))[Tag.VERDICT] == ACCEPT

    course(patient, steps, **BUSY)


def test_where_odds_are_not_sold_guarantees_are_offered(patient: Running) -> None:
    """Who asks for odds all the same reads what else could be had."""
    sells(patient, Known(0.0, 61.0), share=0.0)

    async def steps() -> None:
        said = await submit(patient, 4, 30, 60, EXTRA="rtsched:odds=95")
        first, *others = str(said[Tag.MESSAGE]).splitlines()
        assert "this site gives no promises with odds" in first
        assert len(others) == 2
        assert {each.kind for each in (await ask(patient, Choices())).choices} == {
            "later",
            "smaller",
        }

    course(patient, steps, **BUSY)


def test_a_question_shows_odds_too(patient: Running) -> None:
    """`feasible` shows them, and `hold` holds the others beside."""
    known = Known(30.0, 61.0)
    sells(patient, known)

    async def steps() -> None:
        question = {"nodes": 4, "time_s": 1800.0, "deadline": NOW + 3600}
        report = await ask(patient, Feasible(**question))
        assert [(c.kind, c.odds) for c in report.choices] == [
            ("later", None),
            ("likely", 0.95),
            ("smaller", None),
        ]
        held = await ask(patient, Hold(**question))
        assert told(held.choices) == told(report.choices)
        assert [each.held for each in held.choices] == [True, False, True]
        assert known.asked == 2
        assert (await ask(patient, Feasible(nodes=1, time_s=1800.0, deadline=NOW + 7200))).feasible
        await ask(patient, Feasible(nodes=4, time_s=1800.0))
        assert known.asked == 2, "neither needs odds"
        shown = msgspec.json.decode(msgspec.json.encode(held))
        assert shown["choices"][1]["start"] is None

    course(patient, steps, **BUSY)
