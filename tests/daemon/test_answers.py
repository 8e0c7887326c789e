"""Submissions are evaluated beside the loop, one at a time, each on what was promised before."""

import asyncio
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from running import ANN, FACTS, Running, answer_of, until
from scene import BOB

from rtsched.adapters.wire import ACCEPT, REJECT, MessageKind, Tag, encode
from rtsched.daemon.answers import Answers, asked_at, job_id
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Status
from rtsched.daemon.user_turns import Usual


class Gate:
    """Keeps an evaluation from its end until it is opened."""

    def __init__(self) -> None:
        self.calls, self.inside, self.most = 0, 0, 0
        self.open, self.threads = threading.Event(), set[threading.Thread]()

    def __call__(self) -> None:
        """Wait, as a planner that takes its time."""
        self.threads.add(threading.current_thread())
        self.calls, self.inside = self.calls + 1, self.inside + 1
        self.most = max(self.most, self.inside)
        assert self.open.wait(120.0)
        self.inside -= 1


async def gated(running: Running) -> Gate:
    """Start a daemon whose evaluations wait at a gate; return the gate."""
    await running.start()
    running.judging = gate = Gate()
    return gate


async def test_the_loop_goes_on_while_a_submission_is_evaluated(running: Running) -> None:
    """Another user's question is answered meanwhile."""
    gate = await gated(running)
    line = running.asked()
    await until(lambda: gate.calls == 1)
    report = await asyncio.to_thread(ask, Status(), str(running.users.path))
    assert report.nodes == 4
    gate.open.set()
    _, fields = await asyncio.to_thread(answer_of, line)
    assert fields[Tag.VERDICT] == ACCEPT
    assert threading.main_thread() not in gate.threads


async def test_submissions_at_once_are_promised_no_node_twice(running: Running) -> None:
    """The machine has room for one of three until the deadline; they are evaluated in turn."""
    gate = await gated(running)
    lines = [running.asked(4, 0.75) for _ in range(3)]
    await until(lambda: gate.calls == 1)
    gate.open.set()
    answers = [await asyncio.to_thread(answer_of, line) for line in lines]
    said = [fields[Tag.VERDICT] for _, fields in answers]
    assert sorted(said) == sorted([ACCEPT, REJECT, REJECT])
    assert gate.most == 1
    assert running.states().count("provisional") == 1


async def test_who_hangs_up_before_its_turn_is_not_evaluated(running: Running) -> None:
    """Its filter gave up while another submission was evaluated."""
    gate = await gated(running)
    first = running.asked()
    await until(lambda: gate.calls == 1)
    second = running.asked()
    await until(lambda: len(running.server.answering) == 2)
    second.close()
    gate.open.set()
    await asyncio.to_thread(answer_of, first)
    await until(lambda: not running.server.answering)
    assert gate.calls == 1
    assert running.states() == ["provisional"]


async def test_users_are_evaluated_in_turn(running: Running) -> None:
    """Whoever comes after a flood of another user's has the next turn."""
    order: list[int] = []
    gate = await gated(running)
    lines = [running.asked() for _ in range(4)]
    turns = running.answers.turns
    await until(lambda: gate.calls == 1 and turns.waiting == 3)
    lines.append(running.asked(uid=BOB))
    await until(lambda: turns.waiting == 4)
    gate.open.set()
    for line in lines:
        await asyncio.to_thread(answer_of, line)
    made = sorted(running.daemon.site.promises.values(), key=lambda record: record.id)
    order.extend(record.uid for record in made)
    assert order == [ANN, BOB, ANN, ANN, ANN]


async def test_what_takes_long_for_one_user_leaves_no_other_out(running: Running) -> None:
    """While others wait, it is judged whether there is time by what a user's own took before."""
    gate = await gated(running)
    running.answers.usual.took(ANN, 8000.0)
    first = running.asked()
    await until(lambda: gate.calls == 1)
    lines = [running.asked(uid=uid, timeout_ms=500_000) for uid in (ANN, BOB)]
    await until(lambda: running.answers.turns.waiting == 2)
    gate.open.set()
    texts = [str((await asyncio.to_thread(answer_of, line))[1][Tag.MESSAGE]) for line in lines]
    assert "held for a moment" in texts[0]
    assert "promised to end by" in texts[1]
    await asyncio.to_thread(answer_of, first)


def test_a_user_who_was_left_out_is_evaluated_again_some_time() -> None:
    """Each time an evaluation is thought to take less; of others it is not known."""
    usual = Usual()
    usual.took(ANN, 8.01)
    assert (usual.of(ANN), usual.of(BOB)) == (pytest.approx(1.01), 0.01)
    usual.was_left_out(ANN)
    assert usual.of(ANN) == pytest.approx(0.909)


async def test_whose_turn_does_not_come_in_time_is_held(running: Running) -> None:
    """The filter gets an answer while it waits: its breaker stays closed, and a cycle decides."""
    gate = await gated(running)
    first = running.asked()
    await until(lambda: gate.calls == 1)
    fields = (await asyncio.to_thread(answer_of, running.asked(timeout_ms=100)))[1]
    assert gate.inside == 1
    assert fields[Tag.VERDICT] == ACCEPT
    assert fields[Tag.PRIORITY] == 0
    assert "held for a moment" in str(fields[Tag.MESSAGE])
    gate.open.set()
    await asyncio.to_thread(answer_of, first)
    assert gate.calls == 1


async def test_a_filter_that_was_read_late_gets_its_answer_in_time(running: Running) -> None:
    """Of the hour that it waits a second is left when the daemon reads what it asks."""
    gate = await gated(running)
    hour = 3_600_000
    begun = int(time.perf_counter() * 1000.0) - hour + 1000
    line = running.asked(timeout_ms=hour, asked_ms=begun)
    fields = (await asyncio.to_thread(answer_of, line))[1]
    assert "held for a moment" in str(fields[Tag.MESSAGE])
    gate.open.set()


@pytest.mark.parametrize(
    ("asked", "since"),
    [(99_960, 99.96), (100_000, 100.0), (99_949, 100.0), (100_001, 100.0), (-1, 100.0)],
)
def test_a_filter_waits_since_it_asked(asked: int, since: float) -> None:
    """Unless that cannot be, since its clock is another one."""
    fields: dict[int, int | str] = {Tag.TIMEOUT_MS: 50, Tag.ASKED_MS: asked}
    assert asked_at(fields, 100.0) == pytest.approx(since)
    del fields[Tag.ASKED_MS]
    assert asked_at(fields, 100.0) == pytest.approx(100.0)


async def test_a_filter_may_ask_whether_the_daemon_answers(running: Running) -> None:
    """A change of no job is accepted at once, whatever is evaluated meanwhile."""
    gate = await gated(running)
    first = running.asked()
    await until(lambda: gate.calls == 1)
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(120.0)
    line.connect(str(running.server.path))
    line.sendall(encode(MessageKind.MODIFY, []))
    kind, fields = await asyncio.to_thread(answer_of, line)
    assert (kind, fields) == (MessageKind.ANSWER, {Tag.VERDICT: ACCEPT})
    gate.open.set()
    await asyncio.to_thread(answer_of, first)


async def test_an_account_that_slurm_may_refuse_is_held_at_once(running: Running) -> None:
    """Nothing is promised or planned; it is evaluated as soon as a poll shows that it is there."""
    gate = await gated(running)
    del gate
    facts = replace(FACTS, enforced=True, associations={("physics", "ann"): 0})
    running.show(facts=facts)
    await running.daemon.cycle()
    fields = (await asyncio.to_thread(answer_of, running.asked()))[1]
    assert (fields[Tag.VERDICT], fields[Tag.PRIORITY]) == (ACCEPT, 0)
    assert "evaluated once its account has been accepted" in str(fields[Tag.MESSAGE])
    assert running.states() == []


async def test_a_request_is_read_beside_the_loop(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes, others are answered meanwhile."""
    threads: set[threading.Thread] = set()
    describe = running.daemon.translator.describe

    def described(*arguments: Any) -> Any:
        threads.add(threading.current_thread())
        return describe(*arguments)

    monkeypatch.setattr(running.daemon.translator, "describe", described)
    gate = await gated(running)
    gate.open.set()
    await asyncio.to_thread(answer_of, running.asked())
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((f"{12 + (high << 32)}{rest}", 12) for high in (0, 1, 2**31 - 1) for rest in ("", "_3")),
        *((text, 12) for text in (" +12", "\v012", "0" * 9000 + "12+1")),
        *((text, -1) for text in ("", "x", "-12", "-4294967284", "0", f"{2**63 - 1}", "9" * 9000)),
        ("4294967296", 0),
    ],
)
def test_job_ids_are_read_as_by_slurmctld(text: str, number: int) -> None:
    """It takes any that strtol(3) reads, above 0 and below LONG_MAX, and keeps 32 bits of it."""
    assert job_id({Tag.JOB_ID_STR: text}) == number


async def test_one_that_takes_too_long_is_held_and_promised_nothing_twice(running: Running) -> None:
    """The answer comes in time; what the evaluation comes to is forgotten, and a cycle decides."""
    gate = await gated(running)
    fields = (await asyncio.to_thread(answer_of, running.asked(timeout_ms=300)))[1]
    assert gate.inside == 1
    assert "held for a moment" in str(fields[Tag.MESSAGE])
    gate.open.set()
    await asyncio.to_thread(answer_of, running.asked())
    assert len(running.daemon.site.promises) == 1


async def test_one_slow_evaluation_does_not_have_all_others_held(running: Running) -> None:
    """Who is alone at the door is evaluated, however long that took before."""
    answers = Answers(running.daemon)
    answers.usual.took(ANN, 8 * 3600.0)
    before = answers.usual.of(ANN)
    running.server.handler = answers.answer
    gate = await gated(running)
    gate.open.set()
    fields = (await asyncio.to_thread(answer_of, running.asked(timeout_ms=60_000)))[1]
    assert "promised to end by" in str(fields[Tag.MESSAGE])
    assert gate.calls
    assert answers.usual.of(ANN) < before
