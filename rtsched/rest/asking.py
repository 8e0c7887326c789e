"""Questions to the daemon for users whom this server has identified."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from rtsched.adapters.wire import HEADER, MessageKind, frame, frame_for, read_header
from rtsched.daemon.ask import report_in, silence
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from rtsched.daemon.reports import Question


async def ask_for(uid: int | None, question: Question, path: str, timeout_s: float = 10.0) -> Any:
    """Return the report that answers a user's question: a `type(question).Answer`.

    Parameters
    ----------
    uid : int or None
        Whose question it is; None: this process's own.
    question : Question
        What to ask.
    path : str
        The daemon's query socket; the daemon must know this process's user as `rest_user`.
    timeout_s : float
        Seconds within which the whole answer must be here.

    Raises
    ------
    AdapterError
        If the daemon does not answer.
    ProtocolError
        If it answers what this release does not understand.
    RefusedError
        If it says why it does not answer the question.
    """
    text = msgspec.json.encode(question)
    message = frame(MessageKind.QUERY, text) if uid is None else frame_for(uid, text)
    try:
        async with asyncio.timeout(timeout_s):
            kind, payload = await _exchanged(message, path)
    except (OSError, EOFError) as error:
        raise AdapterError(silence(path, timeout_s, error)) from error
    return report_in(question, kind, payload, path)


async def _exchanged(message: bytes, path: str) -> tuple[MessageKind, bytes]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(message)
        kind, length = read_header(await reader.readexactly(HEADER.size))
        return kind, await reader.readexactly(length)
    finally:
        writer.close()
