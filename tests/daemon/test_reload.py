"""A changed site.toml is read and warmed up beside the loop; a wrong one changes nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from running import Running, answer_of

from rtsched.adapters.wire import ACCEPT, Tag
from rtsched.daemon.ask import ask
from rtsched.daemon.reports import Status, StatusReport
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from rtsched.daemon.app import PluginChains


async def reloaded(running: Running) -> None:
    """Reload, and wait until that is done."""
    running.daemon.reload()
    assert running.daemon.reloader.task is not None
    await running.daemon.reloader.task


def test_plugins_are_warm_when_they_are_taken_in(running: Running) -> None:
    """They are read and asked in a thread, while submissions are answered by those before them."""
    before, judged = running.daemon.policy, []

    def submit() -> None:
        judged.append(threading.current_thread())
        assert running.daemon.policy is before
        _, fields = answer_of(running.asked())
        assert fields[Tag.VERDICT] == ACCEPT

    def reread() -> PluginChains:
        policy = running.policy()
        policy.submits.chain.members[0].plugin.meanwhile = submit  # type: ignore[attr-defined]
        return policy

    async def course() -> None:
        await running.start()
        running.daemon.reread = reread
        await reloaded(running)
        assert running.daemon.policy is not before
        assert judged
        assert threading.main_thread() not in judged

    asyncio.run(course())


def test_a_reload_during_a_reload_is_not_lost(running: Running) -> None:
    """What changed while the file was read is read again."""
    reads = []

    def reread() -> PluginChains:
        reads.append(len(reads))
        if len(reads) == 1:
            loop.call_soon_threadsafe(running.daemon.reload)
            loop.call_soon_threadsafe(again.set)
            assert again.wait(120.0)
        return running.policy()

    async def course() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        running.daemon.reread = reread
        await reloaded(running)
        assert reads == [0, 1]

    again = threading.Event()
    loop: asyncio.AbstractEventLoop
    asyncio.run(course())


@pytest.mark.parametrize(
    "error", [ConfigError(["plugin[0]: no such"]), ZeroDivisionError("in a plug-in")]
)
def test_a_failed_reload_keeps_the_running_plugins_and_says_so(
    running: Running, error: Exception
) -> None:
    """Status tells until a reload succeeds."""

    def reread() -> PluginChains:
        raise error

    async def status() -> StatusReport:
        return await asyncio.to_thread(ask, Status(), str(running.users.path))

    async def course() -> None:
        await running.start()
        before = running.daemon.policy
        running.daemon.reread = reread
        await reloaded(running)
        assert running.daemon.policy is before
        await running.daemon.cycle()
        (problem,) = (await status()).problems
        assert "previous settings remain in effect" in problem
        assert str(error) in problem
        running.daemon.reread = running.policy
        await reloaded(running)
        assert running.daemon.policy is not before
        assert (await status()).problems == ()

    asyncio.run(course())
