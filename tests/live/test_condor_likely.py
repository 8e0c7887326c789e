"""Promises with odds on a real HTCondor: accepted, rejected with a later deadline, kept."""

import re
import time
from collections.abc import Iterator

import pytest
from promised_pool import SITE, LivePool, live_pool, within
from promising import Reply
from testbed.waiting import attempts, eventually

from rtsched.adapters.condor.ids import name_of

LIKELY = """
[likely]
wait = 1.5

[estimates]
refresh = 1
core_share = 1
"""
ODDS = "+RtOdds = 95"
NO_ESTIMATE = "no odds can be stated"


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run six slots with library and daemon."""
    with live_pool(SITE + LIKELY) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test begins without jobs."""
    live.replies.clear()
    yield
    live.cancel_all()


def submitted(live: LivePool, *lines: str, seconds: float = 4) -> Reply:
    """Submit a job that asks for odds, as soon as there are estimates."""
    for _ in attempts(60, "starts are estimated"):
        reply = live.submit(ODDS, *lines, seconds=seconds)
        if NO_ESTIMATE not in reply.text:
            return reply
        time.sleep(0.5)
    raise AssertionError(reply.text)


def test_accepted_when_the_queue_is_short_and_kept(live: LivePool) -> None:
    """The user reads odds; no slot is kept; the job starts as any other and ends in time."""
    reply = submitted(live, *within(14_400))
    assert reply.job, reply.text
    odds = re.search(r"likely to end by [\d: -]+ \+0000: odds (\d[\d.]*) %", reply.text)
    assert odds, reply.text
    assert 95 <= float(odds[1]) < 100
    assert live.kept_slots() == {}
    ad = live.wait_status(reply.job, "completed", seconds=90)
    assert ad.get("RtNodeSet") is None
    live.wait_state(reply.job, "kept", seconds=60)
    shown = live.ask("explain", name_of(reply.job), "--live")["promise"]
    assert (shown["standing"], shown["odds"] >= 0.95) == ("kept", True)
    assert live.ask("status")["standings"] == {"likely kept": 1}


def test_rejected_with_odds_and_a_later_deadline_when_the_queue_is_long(live: LivePool) -> None:
    """Six slots are busy for long, and as many jobs wait."""
    live.fill(18, seconds=1200)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 6, 60)
    live.polled()
    for _ in attempts(60, "the estimates know the queue"):
        refused = submitted(live, *within(60))
        if not refused.job:
            break
        live.pool.run(["condor_rm", name_of(refused.job)])
    assert "ERROR: rtsched: rejected: the odds of ending by this deadline are" in refused.text
    later = re.search(r"With odds of [\d.]+ %: .* \(\+RtDeadline=(\d+)\), not res", refused.text)
    assert later, refused.text
    assert float(later[1]) > time.time() + 60


def test_a_guaranteed_promise_is_untouched(live: LivePool) -> None:
    """Its planned start and slot are the same before and after likely ones were sold."""
    live.occupy(6, 60)
    guaranteed = live.promise(*within(600), seconds=4)
    live.polled()

    def planned() -> list[tuple[object, ...]]:
        entries = live.ask("plan", user="root")["entries"]
        return [(e["job"], e["start"], e["end"], e["nodes"], e["deadline"]) for e in entries]

    before = planned()
    assert [entry[0] for entry in before] == [name_of(guaranteed)]
    likely = [submitted(live, *within(14_400)) for _ in range(2)]
    assert all(reply.job for reply in likely), likely
    assert planned() == before
    live.wait_state(guaranteed, "kept", seconds=150)
    for reply in likely:
        live.wait_state(reply.job, "kept", seconds=150)


def test_it_survives_a_restart_and_can_be_cancelled(live: LivePool) -> None:
    """The daemon that comes back knows it; the user gives it up, and the job goes on."""
    reply = submitted(live, *within(14_400, 200), seconds=150)
    live.wait_state(reply.job, "firm")
    odds = live.ask("explain", name_of(reply.job), "--live")["promise"]["odds"]
    live.pool.stop_daemon()
    live.pool.start_daemon()
    eventually(lambda: live.daemon_time() > 0, 30, "the daemon answers")
    promise = live.ask("explain", name_of(reply.job), "--live")["promise"]
    assert (promise["standing"], promise["odds"]) == ("firm", odds)

    def present_odds() -> float:
        shown = live.ask("explain", name_of(reply.job), "--live")["promise"]
        return float(shown["odds_now"] or 0.0)

    assert 0.5 * odds < eventually(present_odds, 60, "its odds are estimated") < 1.0
    live.pool.run(["rtsched", "cancel", name_of(reply.job)], user="alice")
    assert live.state(reply.job) == "withdrawn"
    assert live.status(reply.job) in {"running", "idle"}


def test_what_cannot_have_odds_is_rejected_in_a_sentence(live: LivePool) -> None:
    """Odds without a deadline, too low ones, such that are none, and a cluster of several procs."""
    assert "RtOdds asks for a deadline" in live.submit(ODDS, "+RtRunTime = 20").text
    low = live.submit("+RtOdds = 50", *within(300))
    assert "the lowest here are 80 %" in low.text
    for wrong in ("200", '"many"', "true", "-1"):
        text = live.submit(f"+RtOdds = {wrong}", *within(300)).text
        assert "RtOdds must be a percentage above 0 and below 100" in text
    several = submitted(live, *within(300), "queue 3")
    assert "an array or a divisible load gets no promise with odds" in several.text
