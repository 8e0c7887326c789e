"""A user's side of the query socket: one question, one report."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec

from rtsched.adapters.wire import HEADER, MessageKind, frame, read_header
from rtsched.daemon.questions import NOT_A_QUESTION, Refusal, RefusedError
from rtsched.errors import AdapterError, ProtocolError

if TYPE_CHECKING:
    from rtsched.daemon.questions import Question

SOCKET = "/run/rtsched/query.sock"


def ask(question: Question, path: str = SOCKET, timeout_s: float = 10.0) -> Any:
    """Return the report that answers a question: an instance of `type(question).Answer`.

    Parameters
    ----------
    question : Question
        What to ask.
    path : str
        The daemon's query socket.
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
    until = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout_s)
            line.connect(path)
            line.sendall(frame(MessageKind.QUERY, msgspec.json.encode(question)))
            kind, length = read_header(_exactly(line, HEADER.size, until))
            payload = _exactly(line, length, until)
    except (OSError, EOFError) as error:
        raise AdapterError(silence(path, timeout_s, error)) from error
    return report_in(question, kind, payload, path)


def report_in(question: Question, kind: MessageKind, payload: bytes, path: str) -> Any:
    """Return the report in an answer of the daemon at `path`; raises as `ask` does."""
    if kind is not MessageKind.REPORT:
        raise ProtocolError(f"{path}: a message of kind {kind.name} is not a report")
    try:
        answer = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        if "error" in answer:
            refusal = msgspec.json.decode(payload, type=Refusal)
            if refusal.code == "malformed" or refusal.error.startswith(NOT_A_QUESTION):
                raise ProtocolError(
                    f"{path}: the daemon does not know this question ({refusal.error}); use the "
                    "same release of rtsched as the daemon"
                )
            raise RefusedError(refusal.error, refusal.code)
        return msgspec.json.decode(answer["report"], type=type(question).Answer)
    except (msgspec.MsgspecError, KeyError) as error:
        raise ProtocolError(
            f"{path}: the daemon's report cannot be decoded ({error}); use the same release of "
            "rtsched as the daemon"
        ) from error


def _exactly(line: socket.socket, size: int, until: float) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        line.settimeout(max(until - time.monotonic(), 0.001))
        part = line.recv(min(size, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def silence(path: str, timeout_s: float, error: Exception) -> str:
    """Return why there is no answer, and what to do."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        why = "check `systemctl status rtsched`"
        return f"no daemon answers on {path} ({error.strerror}): {why}"
    if isinstance(error, PermissionError):
        return f"no daemon answers on {path}: this user may not connect to it; ask an admin"
    if isinstance(error, TimeoutError):
        return f"the daemon did not answer on {path} within {timeout_s:g} s; try again"
    return f"the daemon closed the connection on {path}; its log says why (`journalctl -u rtsched`)"
