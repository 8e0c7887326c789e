"""Users' questions: beside the loop, in turn, from one instant; and what doctor gathers."""

import asyncio
import re
import threading

import pytest
from running import Running, answer_of

from rtsched.adapters.wire import ACCEPT, Tag
from rtsched.cli.doctor import Paths, gathered
from rtsched.daemon.database import migrations
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Feasible, Plan, Status
from rtsched.daemon.server import HungUpError
from rtsched.daemon.user_turns import (
    BURST,
    EACH,
    WAITING,
    BusyError,
    ClosedError,
    FairThread,
    RateLimiter,
)
from rtsched.errors import RtschedError


async def test_a_submission_does_not_wait_for_a_question(running: Running) -> None:
    """The filter is answered while a question is being worked out, however long that takes."""
    threads = set()

    def submit() -> None:
        threads.add(threading.current_thread())
        _, fields = answer_of(running.asked())
        assert fields[Tag.VERDICT] == ACCEPT

    await running.start()
    running.querying = submit
    question = Feasible(nodes=2, time_s=600.0)
    report = await asyncio.to_thread(ask, question, str(running.users.path))
    assert report.feasible
    assert len(report.nodes) == 2
    assert threading.main_thread() not in threads
    assert running.states() == ["provisional"] * running.daemon.site.snapshot.version


async def test_a_report_is_of_one_instant(running: Running) -> None:
    """The plan that an admin reads is the one whose version it names."""
    await running.start()
    await asyncio.to_thread(answer_of, running.asked(nodes=2))
    report = await asyncio.to_thread(ask, Plan(), str(running.users.path))
    (entry,) = report.entries
    assert (report.version, entry.state) == (1, "provisional")
    assert entry.nodes == ("n0", "n1")
    status = await asyncio.to_thread(ask, Status(metrics=True), str(running.users.path))
    assert status.promises == report.entries
    assert "rtsched_requests_total" in status.metrics


async def test_a_defect_in_a_question_is_told(running: Running) -> None:
    """A refused question is answered with the reason."""
    await running.start()
    question = Feasible(partition="nowhere")
    with pytest.raises(RtschedError, match="nowhere"):
        await asyncio.to_thread(ask, question, str(running.users.path))


def test_turns() -> None:
    """After a burst, somebody gets the share of the time and no more; others do not wait for it."""
    limiter = RateLimiter(0.1)
    assert limiter.wait(1, 100.0) == 0.0
    limiter.used(1, 100.0, BURST)
    assert limiter.wait(1, 100.0) == pytest.approx(0.0)
    limiter.used(1, 100.0, 0.05)
    assert limiter.wait(1, 100.0) == pytest.approx(0.5)
    assert limiter.wait(1, 100.5) == pytest.approx(0.0)
    assert limiter.wait(2, 100.0) == 0.0


def wanted() -> bool:
    """Return that somebody waits."""
    return True


async def test_users_are_served_in_turn() -> None:
    """Who asks much waits behind others' first questions; order is kept within a user."""
    done: list[tuple[int, int]] = []
    thread = FairThread("test")
    jobs = [(7, k) for k in range(4)] + [(8, 0), (9, 0)]
    pieces = [thread.run(job[0], lambda job=job: done.append(job), wanted) for job in jobs]
    await asyncio.gather(*pieces)
    thread.close()
    assert done == [(7, 0), (8, 0), (9, 0), (7, 1), (7, 2), (7, 3)]


async def test_too_many_questions_are_refused() -> None:
    """No more wait than a number; what nobody waits for is not worked out; errors come back."""
    hold = threading.Event()
    thread = FairThread("test")
    asked = [thread.run(7, hold.wait, wanted) for _ in range(WAITING)]
    pieces = [asyncio.create_task(piece) for piece in asked]
    await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await thread.run(8, hold.wait, wanted)
    hold.set()
    await asyncio.gather(*pieces)
    with pytest.raises(HungUpError):
        await thread.run(0, hold.wait, lambda: False)
    with pytest.raises(ZeroDivisionError):
        await thread.run(0, lambda: 1 // 0, wanted)
    thread.close()


async def test_who_waits_is_told_when_it_ends() -> None:
    """What is being worked out, and what waits behind it, is answered at once."""
    hold = threading.Event()
    thread, begun = FairThread("test"), threading.Event()

    def work() -> None:
        begun.set()
        hold.wait(120.0)

    pieces = [asyncio.create_task(thread.run(uid, work, wanted)) for uid in (7, 7, 8)]
    await asyncio.to_thread(begun.wait, 60.0)
    thread.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*pieces, return_exceptions=True), 120.0)
    assert [type(outcome) for outcome in outcomes] == [ClosedError] * 3
    hold.set()


def test_a_user_gets_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has used the share waits, and another user's question is worked out meanwhile."""
    clock = [1000.0]
    thread = FairThread.__new__(FairThread)
    thread._each, thread._all = RateLimiter(EACH), RateLimiter(1.0)
    thread._waiting = {7: None, 8: None}
    monkeypatch.setattr("rtsched.daemon.user_turns.time.monotonic", lambda: clock[0])
    thread._each.used(7, clock[0], BURST + 0.1)
    assert thread._next() == 8
    clock[0] += 0.1 / EACH
    assert thread._next() == 7


async def test_an_array_tells_how_many_tasks_wait(running: Running) -> None:
    """All of them, before it has begun; a job that is no array says nothing."""
    await running.start()
    await asyncio.to_thread(answer_of, running.asked(array="1-100%8"))
    await asyncio.to_thread(answer_of, running.asked())
    status = await asyncio.to_thread(ask, Status(), str(running.users.path))
    shown = sorted((each.tasks, each.waiting) for each in status.promises if each.tasks)
    assert shown == [(100, 100)]
    assert len(status.promises) == 2


async def test_daemon_and_database(running: Running) -> None:
    """A promise is counted and its user not named; the schema is read while the daemon writes."""
    config = running.path / "site.toml"
    database = running.path / "rtsched.db"
    config.write_text(f'[daemon]\nrun = "{running.path}"\ndatabase = "{database}"\n')
    places = Paths(config, running.path / "submit.conf", "", config)
    await running.start()
    await asyncio.to_thread(answer_of, running.asked(nodes=2))
    await running.daemon.cycle()
    found = {section.title: section for section in await asyncio.to_thread(gathered, places, False)}
    daemon = found["daemon"]
    assert daemon.error == ""
    assert daemon.facts["promises"] == "1 provisional"
    (promised,) = running.daemon.site.promises.values()
    assert promised.user == "ann"
    assert not [line for line in daemon.lines if re.search(r"\bann\b", line)]
    assert 'rtsched_promises{standing="provisional"} 1.0' in daemon.lines
    newest = migrations()[-1][0]
    assert found["database"].facts["schema"] == f"{newest}, newest known {newest}"
    assert found["files"].facts[str(running.path / "query.sock")].startswith("srw")
