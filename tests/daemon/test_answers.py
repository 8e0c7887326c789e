"""Submissions are evaluated beside the loop, one at a time, each on what was promised before."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from running import Running, answer_of, until

from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.daemon.answers import job_id
from rtsched.daemon.ask import ask
from rtsched.daemon.reports import Status

if TYPE_CHECKING:
    from collections.abc import Callable


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


def run(running: Running, course: Callable[[Gate], object]) -> Gate:
    """Run a course beside a daemon whose evaluations wait at a gate; return the gate."""
    gate = Gate()

    async def whole() -> None:
        await running.start()
        running.judging = gate
        await course(gate)

    asyncio.run(whole())
    return gate


def test_the_loop_goes_on_while_a_submission_is_evaluated(running: Running) -> None:
    """Another user's question is answered meanwhile."""

    async def course(gate: Gate) -> None:
        line = running.asked()
        await until(lambda: gate.calls == 1)
        report = await asyncio.to_thread(ask, Status(), str(running.users.path))
        assert report.nodes == 4
        gate.open.set()
        _, fields = await asyncio.to_thread(answer_of, line)
        assert fields[Tag.VERDICT] == ACCEPT

    assert threading.main_thread() not in run(running, course).threads


def test_submissions_at_once_are_promised_no_node_twice(running: Running) -> None:
    """The machine has room for one of three until the deadline; they are evaluated in turn."""

    async def course(gate: Gate) -> None:
        lines = [running.asked(4, 0.75) for _ in range(3)]
        await until(lambda: gate.calls == 1)
        gate.open.set()
        answers = [await asyncio.to_thread(answer_of, line) for line in lines]
        said = [fields[Tag.VERDICT] for _, fields in answers]
        assert sorted(said) == sorted([ACCEPT, REJECT, REJECT])

    assert run(running, course).most == 1
    assert running.standings().count("provisional") == 1


def test_who_hangs_up_before_its_turn_is_not_evaluated(running: Running) -> None:
    """Its filter gave up while another submission was evaluated."""

    async def course(gate: Gate) -> None:
        first, second = running.asked(), running.asked()
        await until(lambda: gate.calls == 1 and len(running.server.answering) == 2)
        second.close()
        gate.open.set()
        await asyncio.to_thread(answer_of, first)
        await until(lambda: not running.server.answering)
        assert gate.calls == 1

    run(running, course)
    assert running.standings() == ["provisional"]


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
