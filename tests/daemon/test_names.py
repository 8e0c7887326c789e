"""A name service that hangs: the filter is answered all the same, and nobody else waits."""

from __future__ import annotations

import asyncio
import pwd
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from running import FACTS, Running, answer_of

from rtsched.adapters import users
from rtsched.adapters.wire import ACCEPT, MessageKind, Tag

if TYPE_CHECKING:
    import pytest


def test_a_submission_by_a_user_whom_nobody_knows_yet(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not judged while the name service hangs, others are; then it has the right name."""
    go_on = threading.Event()

    def hang(uid: int) -> Any:
        assert go_on.wait(120.0)
        return pwd.struct_passwd(("ann", "", uid, uid, "", "/", ""))

    async def course() -> None:
        await running.start()
        _, fields = await asyncio.to_thread(answer_of, running.asked())
        assert fields[Tag.VERDICT] == ACCEPT
        running.show(facts=replace(FACTS, users={}))
        await running.daemon.cycle()
        users.forget_users()
        monkeypatch.setattr(users.pwd, "getpwuid", hang)
        kind, fields = await asyncio.to_thread(answer_of, running.asked())
        assert kind is MessageKind.ERROR
        assert "name service" in str(fields[Tag.MESSAGE])
        go_on.set()
        _, fields = await asyncio.to_thread(answer_of, running.asked())
        assert fields[Tag.VERDICT] == ACCEPT
        assert [r.user for r in running.daemon.site.promises.values()] == ["ann", "ann"]

    asyncio.run(course())
    users.forget_users()
