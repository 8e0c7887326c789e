"""A daemon in a thread of its own, and the REST application that asks it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from running import ANN, NOW, Running, answer_of

from rtsched.adapters.credentials import Credential, CredentialError
from rtsched.adapters.live import Marks
from rtsched.daemon.server import SocketServer
from rtsched.daemon.start import QUESTIONS
from rtsched.rest.app import create_app
from rtsched.rest.settings import RestSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from rtsched.model.jobs import Jobs
    from rtsched.rest.app import AccessMiddleware, App

BOB = 1002
JOB = 4711


@contextmanager
def in_thread(
    running: Running, course: Callable[[Running], Coroutine[Any, Any, None]]
) -> Iterator[Running]:
    """Run a daemon that serves this process as REST in a thread, after a course of events."""
    stop, up = threading.Event(), threading.Event()
    running.users = SocketServer(
        running.path / "query.sock", QUESTIONS, running.queries.answer, for_others=os.getuid()
    )

    async def life() -> None:
        await course(running)
        up.set()
        while not stop.is_set():
            await asyncio.sleep(0.05)

    thread = threading.Thread(target=asyncio.run, args=(life(),))
    thread.start()
    try:
        assert up.wait(300.0)
        yield running
    finally:
        stop.set()
        thread.join()
        running.close()


async def seen_in_queue(running: Running, rows: Jobs, tokens: Sequence[str]) -> None:
    """Have the next poll show the promised jobs of ann's."""
    marks = Marks.build(len(rows), job=rows.id, uid=np.full(len(rows), ANN), token=tokens)
    running.show(queued=rows, marks=marks, time=NOW + 1)
    running.now = NOW + 1
    await running.daemon.cycle()


def daemon_with_a_promise(path: Path) -> AbstractContextManager[Running]:
    """Run a daemon that has promised ann's job 4711 something, and serves this process as REST."""

    async def course(running: Running) -> None:
        await running.start()
        await asyncio.to_thread(answer_of, running.asked(nodes=2))
        (record,) = running.daemon.site.promises.values()
        row = running.daemon.site.row(record.id).replace(id=np.array([JOB]))
        await seen_in_queue(running, row, [record.token])

    return in_thread(Running(path), course)


def forged(text: str) -> Credential:
    """Decode credentials of the form `UID HEX`, as munged would its own."""
    uid, _, payload = text.partition(" ")
    if not uid.isdecimal():
        raise CredentialError("invalid munge credential: Invalid credential")
    return Credential(int(uid), bytes.fromhex(payload))


def app_for(running: Running, **settings: Any) -> AccessMiddleware:
    """Return the application for a daemon."""
    given = {"rate": 1e6, "burst": 1_000_000, **settings}
    chosen = RestSettings(query_socket=str(running.users.path), **given)
    return create_app(chosen, decode=forged)


def local(app: App, uid: int) -> App:
    """Return the application as a local user of the Unix socket meets it."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "state": {**scope.get("state", {}), "peer_uid": uid}}
        await app(scope, receive, send)

    return called


async def call(
    app: App, method: str, target: str, body: bytes = b"", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Return status, body (read as JSON where it is that) and headers of an answer."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://rtsched"
    ) as client:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await client.request(method, target, content=body, headers=names)
    is_json = answer.headers.get("content-type", "").endswith("json")
    return (
        answer.status_code,
        json.loads(answer.text) if is_json else answer.text,
        dict(answer.headers),
    )


def asked(
    running: Running, uid: int | None, method: str, target: str, body: Any = b"", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Send one request, of bytes or what is to be JSON, as a local user or as nobody."""
    app = app_for(running)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = call(app if uid is None else local(app, uid), method, target, content, **headers)
    return asyncio.run(found)


def got(
    running: Running, target: str, uid: int = ANN, method: str = "GET", body: Any = b""
) -> tuple[int, Any]:
    """Return status and report of a user's request."""
    return asked(running, uid, method, target, body)[:2]
