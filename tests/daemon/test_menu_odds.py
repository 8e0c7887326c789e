"""Choices with odds, and the menu of a job that asked for odds: hand-derived."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from running import ANN, FACTS, NOW, Running, even_ends, until
from test_menu import busy, submit, told

from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.core.config import PluginTable
from rtsched.daemon.answers import MENUS
from rtsched.daemon.likely import OddsSource
from rtsched.daemon.questions import Choices, Feasible, Hold
from rtsched.daemon.settings import DaemonSettings, LikelySettings, LiveSite
from rtsched.model.jobs import Jobs

MINUTE = 60.0


class Known:
    """Every job ends at any time between two, minutes from now, all equally likely."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last, self.asked = first, last, 0
        self.jobs: list[Jobs] = []

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64] | None:
        """Return the ends of each job."""
        assert timeout_s >= 0.0
        self.asked += 1
        self.jobs.append(jobs)
        ends = even_ends(NOW + self.first * MINUTE, NOW + self.last * MINUTE)
        return np.tile(ends, (len(jobs), 1))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four nodes and much time for menus: a busy machine is slow."""
    one = Running(tmp_path, DaemonSettings(menu_ms=600_000.0))
    yield one
    one.close()


def sells(running: Running, known: OddsSource, wait: float = 600.0, **likely: Any) -> None:
    """Have a daemon sell odds as they are known; it waits for them: a busy machine is slow."""
    running.daemon.odds, likely["wait"] = known, wait
    running.live = LiveSite(
        planner="mcdf",
        plugin=[PluginTable("mcdf")],
        daemon=running.settings,
        likely=LikelySettings(**likely),
    )
    running.daemon.policy = running.policy()


BUSY = busy({1: 120, 2: 120, 3: 120})
"""One of four nodes is free; the others are in two hours."""


async def test_the_asked_deadline_with_odds(patient: Running) -> None:
    """Odds of 97 % are given as the 95 % that they are sure to be; what is taken is promised so."""
    # The two questions about the job are the same one, whose answer is remembered.
    known = Known(30.0, 61.0)
    sells(patient, known)
    await patient.start(**BUSY)
    said = await submit(patient, 4, 30, 60)
    assert said[Tag.VERDICT] == REJECT
    lines = str(said[Tag.MESSAGE]).splitlines()
    assert lines[1].startswith("or `rtsched take 2 job.sh`: with odds of 95 %, by ")
    assert lines[1].endswith(", not reserved")
    report = await patient.ask(Choices())
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
    assert patient.states() == ["offered", "offered"]
    said = await submit(patient, 4, 30, 60, EXTRA="rtsched:odds=95")
    assert said[Tag.VERDICT] == ACCEPT
    assert "not guaranteed" in str(said[Tag.MESSAGE])
    assert patient.states() == [], "the others are given up"
    assert patient.daemon.site.unused_by(ANN, NOW, "offered") == []
    assert [r.state for r in patient.daemon.site.likely.promises.values()] == ["provisional"]
    assert (await patient.ask(Choices())).choices == ()
    one, other = known.jobs
    assert one.equals(other)


@pytest.mark.parametrize(("last", "shown"), [(140.0, True), (158.0, False)])
async def test_a_later_deadline_with_odds_comes_before_the_guaranteed_one(
    patient: Running, last: float, shown: bool
) -> None:
    """One that comes no sooner than 150 minutes from now is dominated by the guarantee then."""
    sells(patient, Known(30.0, last))
    await patient.start(**BUSY)
    await submit(patient, 4, 30, 60)
    report = await patient.ask(Choices())
    likely = [one for one in told(report.choices) if one[0].startswith("likely")]
    by = math.ceil(30.0 + 0.95 * (last - 30.0)) + 1
    assert likely == ([("likely-later", "with odds of 95 %", by)] if shown else [])
    assert report.choices[0].kind == "later"


async def test_odds_that_are_not_sold_are_no_choice(patient: Running) -> None:
    """Nor is anybody asked for them where none are sold, or too many were."""
    known = Known(30.0, 160.0)
    await patient.start(**BUSY)
    for likely in ({"share": 0.0}, {"share": 0.1}, {"odds_least": 99.0}):
        sells(patient, known, **likely)
        await submit(patient, 4, 30, 60)
        kinds = [each.kind for each in (await patient.ask(Choices())).choices]
        assert kinds == ["later", "smaller"], likely
    assert known.asked == 1, "by the site that sells 99 %: later than is guaranteed"


async def test_low_odds_are_given_as_the_lowest_that_are_sold(patient: Running) -> None:
    """83 % are a class of 80; where no less than 82 are sold, it is those."""
    await patient.start(**BUSY)
    for least, shown in ((80.0, 0.8), (82.0, 0.82), (84.0, None)):
        sells(patient, Known(0.0, 60.0 / 0.83), odds_least=least)
        await submit(patient, 4, 30, 60)
        found = {each.kind: each.odds for each in (await patient.ask(Choices())).choices}
        assert found.get("likely") == shown
        assert found["likely-later"] == 0.95


DEFAULT = LikelySettings().wait


@pytest.fixture
def usual(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four nodes and the default settings."""
    one = Running(tmp_path)
    yield one
    one.close()


async def test_by_default_odds_are_shown(usual: Running) -> None:
    """To who submits by a filter that waits 50 ms, when these were enough, and to who asks."""
    sells(usual, Known(30.0, 61.0), wait=DEFAULT)
    await usual.start(**BUSY)
    said = ""
    async with asyncio.timeout(120.0):
        while "with odds of 95 %" not in said:
            said = str((await submit(usual, 4, 30, 60, TIMEOUT_MS=50))[Tag.MESSAGE])
    assert {"later", "likely"} <= {one.kind for one in (await usual.ask(Choices())).choices}
    report = await usual.ask(Feasible(nodes=4, time_s=1800.0, deadline=NOW + 3600))
    assert "likely" in {one.kind for one in report.choices}


class Hanging:
    """Never answers, however short the time; notes that, and when it is given up."""

    def __init__(self) -> None:
        self.times, self.given_up = list[float](), 0

    async def ends(self, jobs: Jobs, timeout_s: float) -> None:
        """Hang."""
        del jobs
        self.times.append(timeout_s)
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up += 1


async def test_odds_that_hang_are_given_up_in_time(patient: Running) -> None:
    """Before the filter is: the answer is there without them, each time."""
    hanging = Hanging()
    await patient.start(**BUSY)
    for timeout, wait, most in (
        (200, DEFAULT, DEFAULT),  # a slow machine needs 70 for the choices without odds
        (50_000, DEFAULT, DEFAULT),
        (200, 0.5, 0.185),
    ):
        sells(patient, hanging, wait=wait)
        asked = len(hanging.times)
        async with asyncio.timeout(120.0):
            said, held = {}, True  # on a busy machine no time may be left to ask, or to answer
            while len(hanging.times) == asked or held:
                said = await submit(patient, 4, 30, 60, TIMEOUT_MS=timeout)
                held = "held for a moment" in str(said[Tag.MESSAGE])
        assert "odds" not in str(said[Tag.MESSAGE])
        assert "rtsched take 2" in str(said[Tag.MESSAGE])
        assert 0.0 < hanging.times[-1] <= most
    await until(lambda: hanging.given_up == len(hanging.times))
    await submit(patient, 4, 30, 60, TIMEOUT_MS=15)
    assert hanging.given_up == len(hanging.times), "no time is left to ask"


class Dying:
    """Fails."""

    asked = 0

    async def ends(self, jobs: Jobs, timeout_s: float) -> None:
        """Raise what nobody expects."""
        del jobs, timeout_s
        self.asked += 1
        raise RuntimeError("gone")


async def test_odds_that_fail_are_no_choice(patient: Running) -> None:
    """The guaranteed ones are."""
    dying = Dying()
    sells(patient, dying)
    await patient.start(**BUSY)
    said = await submit(patient, 4, 30, 60)
    assert dying.asked == 1
    assert "odds" not in str(said[Tag.MESSAGE])
    assert "rtsched take 2" in str(said[Tag.MESSAGE])


class Gated(Known):
    """Answers when a gate is opened."""

    def __init__(self, first: float, last: float) -> None:
        super().__init__(first, last)
        self.gate = asyncio.Event()

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64] | None:
        """Return the ends of each job, late."""
        found = await super().ends(jobs, timeout_s)
        await self.gate.wait()
        return found


async def test_under_load_menus_are_without_odds(patient: Running) -> None:
    """While some wait, others are answered at once; nothing else waits for the odds."""
    gated = Gated(30.0, 61.0)
    sells(patient, gated)
    users = {uid: f"u{uid}" for uid in range(ANN, ANN + MENUS + 1)}
    await patient.start(facts=replace(FACTS, users=users), **BUSY)
    asking = [
        asyncio.create_task(submit(patient, 4, 30, 60, uid=uid)) for uid in range(ANN, ANN + MENUS)
    ]
    await until(lambda: gated.asked == MENUS)
    other = ANN + MENUS
    said = await submit(patient, 4, 30, 60, uid=other)
    assert said[Tag.VERDICT] == REJECT
    assert "odds" not in str(said[Tag.MESSAGE])
    assert gated.asked == MENUS
    await until(lambda: len(patient.daemon.menus) == MENUS + 1)
    kinds = {each.kind for each in (await patient.ask(Choices(), ANN)).choices}
    assert kinds
    assert "likely" not in kinds, "its guaranteed ones can be taken already"
    assert (await submit(patient, 1, 10, 6000, uid=other))[Tag.VERDICT] == ACCEPT
    gated.gate.set()
    for said in await asyncio.gather(*asking):
        assert "with odds of 95 %" in str(said[Tag.MESSAGE])
    assert "likely" in {each.kind for each in (await patient.ask(Choices(), ANN)).choices}
    said = await submit(patient, 4, 30, 60, uid=other)
    assert "with odds of 95 %" in str(said[Tag.MESSAGE]), "the others wait no longer"


async def test_a_menu_that_was_replaced_meanwhile_stays_so(patient: Running) -> None:
    """What its user was offered last is what is to be taken, though earlier odds come later."""
    gated = Gated(30.0, 61.0)
    sells(patient, gated)
    await patient.start(**BUSY)
    first = asyncio.create_task(submit(patient, 4, 30, 60))
    await until(lambda: bool(patient.daemon.menus))
    patient.daemon.odds = None
    await submit(patient, 3, 30, 60)
    last = told((await patient.ask(Choices())).choices)
    gated.gate.set()
    await first
    assert told((await patient.ask(Choices())).choices) == last


async def test_odds_too_low_but_a_guarantee_is_to_be_had(patient: Running) -> None:
    """It dominates all else, is reserved, and is promised to who takes it."""
    sells(patient, Known(0.0, 120.0))
    await patient.start(**BUSY)
    said = await submit(patient, 1, 30, 60, EXTRA="rtsched:odds=95 rtsched:notify=none")
    first, *others = str(said[Tag.MESSAGE]).splitlines()
    assert "the odds of ending by this deadline are 50 %, 95 % were asked for" in first
    assert len(others) == 1
    assert others[0].startswith("or `rtsched take 1 job.sh`: guaranteed, by ")
    assert others[0].endswith(", not reserved")  # on a free node
    (choice,) = (await patient.ask(Choices())).choices
    assert (choice.kind, choice.odds, choice.held) == ("guaranteed", None, False)
    assert "--extra=rtsched:notify=none" in choice.options
    assert patient.states() == ["offered"]
    said = await submit(patient, 1, 30, 60, EXTRA="rtsched:notify=none")
    assert "promised to end by" in str(said[Tag.MESSAGE])
    assert patient.states() == ["provisional"]
    assert patient.daemon.site.unused_by(ANN, NOW, "offered") == []


async def test_odds_too_low_and_no_guarantee(patient: Running) -> None:
    """Lower odds by the same deadline, the same by a later one, guarantees with something else."""
    sells(patient, Known(0.0, 60.0 / 0.92))
    await patient.start(**BUSY)
    said = await submit(patient, 4, 30, 60, EXTRA="rtsched:odds=95")
    first, *others = str(said[Tag.MESSAGE]).splitlines()
    assert "With odds of 95 %" in first
    report = await patient.ask(Choices())
    assert told(report.choices) == [
        ("likely-later", "with odds of 95 %", 63.0),
        ("likely", "with odds of 90 %", 60.0),
        ("smaller", "guaranteed, on 1 node (with the same time limit)", 60.0),
        ("later", "guaranteed", 150.0),
    ]
    assert [each.odds for each in report.choices] == [0.95, 0.9, None, None]
    assert [each.held for each in report.choices] == [False, False, False, True]
    assert [line.rpartition(", ")[2] for line in others] == [
        "not reserved",
        "not reserved",
        "reserved",
    ]
    smaller = report.choices[2].options
    assert "--extra=" in smaller
    assert "--nodes=1" in smaller
    assert (await submit(patient, 1, 30, 60))[Tag.VERDICT] == ACCEPT
    assert patient.states() == ["provisional"]


async def test_a_menu_after_odds_gives_up_what_was_offered_before(patient: Running) -> None:
    """It counts as an offer that was not used."""
    sells(patient, Known(0.0, 6000.0))
    await patient.start(**BUSY)
    await submit(patient, 4, 30, 60)
    assert patient.states() == ["offered", "offered"]
    await submit(patient, 1, 30, 60, EXTRA="rtsched:odds=95")
    assert patient.states() == ["offered"]
    assert len(patient.daemon.site.unused_by(ANN, NOW, "offered")) == 1
    assert (await submit(patient, 1, 30, 60))[Tag.VERDICT] == ACCEPT


async def test_where_odds_are_not_sold_guarantees_are_offered(patient: Running) -> None:
    """Who asks for odds all the same reads what else could be had."""
    sells(patient, Known(0.0, 61.0), share=0.0)
    await patient.start(**BUSY)
    said = await submit(patient, 4, 30, 60, EXTRA="rtsched:odds=95")
    first, *others = str(said[Tag.MESSAGE]).splitlines()
    assert "this site gives no promises with odds" in first
    assert len(others) == 2
    assert {each.kind for each in (await patient.ask(Choices())).choices} == {"later", "smaller"}


async def test_a_question_shows_odds_too(patient: Running) -> None:
    """`feasible` shows them, and `hold` holds the others beside."""
    known = Known(30.0, 61.0)
    sells(patient, known)
    await patient.start(**BUSY)
    question = {"nodes": 4, "time_s": 1800.0, "deadline": NOW + 3600}
    report = await patient.ask(Feasible(**question))
    assert [(c.kind, c.odds) for c in report.choices] == [
        ("later", None),
        ("likely", 0.95),
        ("smaller", None),
    ]
    held = await patient.ask(Hold(**question))
    assert told(held.choices) == told(report.choices)
    assert [each.held for each in held.choices] == [True, False, False]
    assert known.asked == 2
    assert (await patient.ask(Feasible(nodes=1, time_s=1800.0, deadline=NOW + 7200))).feasible
    await patient.ask(Feasible(nodes=4, time_s=1800.0))
    assert known.asked == 2, "neither needs odds"
    shown = msgspec.json.decode(msgspec.json.encode(held))
    assert shown["choices"][1]["start"] is None
