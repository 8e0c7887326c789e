"""The process that talks to the batch system.

It reads requests from standard input and answers on standard output, one after the other, until
its input ends or the daemon dies. What a library prints goes to standard error. A message is a
pickle whose arrays follow as they are (pickle protocol 5), so that the daemon need not copy them.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from rtsched.adapters.subprocess_proxy import die_with_parent
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.live import Change, Done, LiveSystem
    from rtsched.model.actions import Action

_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


class Start(NamedTuple):
    """The first request: how to make the system, and where its module is found."""

    path: tuple[str, ...]
    factory: bytes
    """A callable without arguments, pickled: its module is only found with that path."""


class Poll(NamedTuple):
    """Ask for the present state."""


class FindCompletions(NamedTuple):
    """Ask how jobs ended that no poll shows any more."""

    jobs: Sequence[int]
    since: float
    """None of them ended before, seconds since the epoch."""


class Apply(NamedTuple):
    """Ask for what is to be changed, and, unless in a dry-run, change it."""

    actions: Sequence[Action]
    dry_run: bool


class Response(NamedTuple):
    """What a request came to: a value, or a sentence and, for a defect, its traceback."""

    value: Any
    error: str = ""
    trace: str = ""


def send(stream: BinaryIO, message: object) -> None:
    """Write a message."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    stream.write(_COUNT.pack(len(parts)) + b"".join(_LENGTH.pack(len(part)) for part in parts))
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Return the next message; its arrays are not writable.

    Raises
    ------
    EOFError
        If the other side is gone.
    """
    (count,) = _COUNT.unpack(_exactly(stream, _COUNT.size))
    sizes = struct.unpack(f"<{count}Q", _exactly(stream, _LENGTH.size * count))
    head, *buffers = [_exactly(stream, size).toreadonly() for size in sizes]
    return pickle.loads(head, buffers=buffers)  # noqa: S301 - from our own other half


def _exactly(stream: BinaryIO, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    done = 0
    while done < size:
        got = stream.readinto(data[done:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        done += got
    return data


def main() -> None:
    """Serve until there are no more requests."""
    die_with_parent(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # the daemon ends us, when it is done
        signal.signal(number, lambda *_: None)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    system = None
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        answer, system = _answered(request, system)
        send(answers, answer)


def _answered(request: object, system: LiveSystem | None) -> tuple[Response, LiveSystem | None]:
    """Return the answer to a request, and the system as it is afterwards."""
    try:
        if isinstance(request, Start):
            sys.path[:] = request.path
            system = pickle.loads(request.factory)()  # noqa: S301 - from our own other half
            return Response(system.name), system
        assert system is not None  # noqa: S101 - `Start` comes first
        if isinstance(request, Apply):
            return Response(apply(system, request.actions, request.dry_run)), system
        if isinstance(request, FindCompletions):
            return Response(system.find_completions(request.jobs, request.since)), system
        return Response(system.poll()), system
    except RtschedError as error:
        return Response(None, str(error)), system
    except Exception as error:
        what = f"defect in the adapter: {type(error).__name__}: {error}"
        return Response(None, what, traceback.format_exc()), system


def apply(
    system: LiveSystem, actions: Sequence[Action], dry_run: bool
) -> tuple[tuple[Change, ...], tuple[Done, ...]]:
    """Return what is to be changed and what became of it, without the adapter's own orders."""
    changes = system.changes(actions)
    dones = () if dry_run or not changes else system.carry_out(changes)
    shown = tuple(replace(change, command=None) for change in changes)
    return shown, tuple(replace(d, change=replace(d.change, command=None)) for d in dones)
