"""Answers that nobody waited for: no promise may come of them, and nothing may count."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from running import ANN, Running, answer_of, until

from rtsched.adapters.wire import ACCEPT, MessageKind, Tag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from socket import socket


def run(running: Running, course: Callable[[], Awaitable[None]]) -> None:
    """Run a daemon that listens, and a course of events."""

    async def whole() -> None:
        await running.start()
        await course()

    asyncio.run(whole())


def test_an_answer_that_is_read_is_a_promise(running: Running) -> None:
    """Who reads the answer and hangs up then has the promise."""

    async def course() -> None:
        kind, fields = await asyncio.to_thread(answer_of, running.asked())
        assert (kind, fields[Tag.VERDICT]) == (MessageKind.ANSWER, ACCEPT)
        await until(lambda: not running.server.open)
        assert running.states() == ["provisional"]

    run(running, course)


@pytest.mark.parametrize("occupied", [False, True], ids=["promise", "offer"])
def test_a_filter_that_hangs_up_while_it_is_judged(running: Running, occupied: bool) -> None:
    """Nothing is promised or offered: the filter has told its user that nobody answered."""

    async def course() -> None:
        before = []
        if occupied:
            await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
            before = ["provisional"]
        line = running.asked(nodes=4, hours=0.6)
        running.judging = line.close
        await until(lambda: running.server.refused > 0 or len(running.states()) > len(before))
        assert running.states() == before
        assert len(running.store.open_promises()) == len(before)
        assert running.daemon.site.unused == {}
        assert len(running.store.journal()) == len(before)

    run(running, course)


def test_a_filter_that_hangs_up_during_the_commit(running: Running) -> None:
    """The promise is written down, nobody reads of it: it is withdrawn at once, and not counted."""
    commit = running.store.commit

    def slowly(*arguments: object) -> None:
        commit(*arguments)  # type: ignore[arg-type]
        line.close()

    async def course() -> None:
        nonlocal line
        line = running.asked()
        running.store.commit = slowly  # type: ignore[method-assign]
        await until(lambda: bool(running.store.counts().get("lapsed")))
        await until(lambda: running.states() == [])  # it is so once it is on the disk
        assert not len(running.daemon.site.snapshot.plan)
        assert running.daemon.site.unused == {}

    line: socket
    run(running, course)


def test_a_filter_that_hangs_up_before_it_reads(running: Running) -> None:
    """An answer that lies unread in a closed socket was told to nobody."""

    async def course() -> None:
        line = running.asked()
        await until(lambda: bool(running.states()))
        line.close()
        await until(lambda: bool(running.store.counts().get("lapsed")))
        await until(lambda: running.states() == [])  # it is so once it is on the disk
        assert running.daemon.site.unused == {}

    run(running, course)


def test_twenty_answers_that_came_too_late_lock_nobody_out(running: Running) -> None:
    """A daemon that is slow for a while costs its users no promises of the next hour."""

    async def course() -> None:
        for _ in range(20):
            line = running.asked()
            await until(lambda: bool(running.states()))
            line.close()
            await until(lambda: not running.states())
        running.now += 120.0
        running.show(time=running.now)
        await running.daemon.cycle()
        _, fields = await asyncio.to_thread(answer_of, running.asked())
        assert fields[Tag.VERDICT] == ACCEPT, fields
        assert running.daemon.site.unused_by(ANN, running.now, "provisional") == []

    run(running, course)
