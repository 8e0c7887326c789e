"""Calls that may never return, or crash, made by another process of ours.

A library of a batch system may block without any limit, in native code that holds the interpreter,
so that no thread helps. So an object that uses it is made in a process of its own, which calls its
methods for us. One that does not answer in time is killed.

A library may also lose memory at each call. Then the object says how many `calls` its process
answers, and after these a new process goes on with the object as it is.

The process reads requests from standard input and answers on standard output, one after the other,
until its input ends or its parent dies. What a library prints goes to standard error. A message is
a pickle whose arrays follow as they are (pickle protocol 5), so that nobody need copy them.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from functools import partial
from threading import Timer
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, cast

from rtsched.errors import AdapterError, RtschedError
from rtsched.loading import loading

if TYPE_CHECKING:
    from collections.abc import Callable

_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1

_CHILD = "from rtsched.adapters.child_process import main; main()"
"""Not -m: the classes of messages have one module."""


# --- messages -------------------------------------------------------------------------------------


class Start(NamedTuple):
    """The first request: how to make the object, and where its module is found."""

    path: tuple[str, ...]
    make: bytes
    """A callable without arguments, pickled: its module is only found with that path."""


class Call(NamedTuple):
    """Ask for what a method of the object returns."""

    method: str
    arguments: tuple[object, ...]


class HandOver(NamedTuple):
    """Ask for what makes the object as it is now; the process is not used any more."""


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


# --- the child's side -----------------------------------------------------------------------------


def main() -> None:
    """Serve until there are no more requests."""
    _die_with_parent(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # who asks ends us, when all is done
        signal.signal(number, lambda *_: None)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    made = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            answer, made = _answered(receive(requests), made)
            send(answers, answer)


def _answered(request: Start | Call | HandOver, made: object) -> tuple[Response, object]:
    """Return the answer to a request, and the object as it is afterwards."""
    try:
        if isinstance(request, Start):
            sys.path[:] = request.path
            with loading():
                made = pickle.loads(request.make)()  # noqa: S301 - from our own other half
            return Response(getattr(made, "calls", math.inf)), made
        if isinstance(request, HandOver):
            return Response(pickle.dumps(partial(_itself, made), protocol=5)), made
        return Response(getattr(made, request.method)(*request.arguments)), made
    except RtschedError as error:
        return Response(None, str(error)), made
    except Exception as error:
        what = f"defect in the adapter: {type(error).__name__}: {error}"
        return Response(None, what, traceback.format_exc()), made


def _itself(made: object) -> object:
    return made


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        os._exit(0)


# --- the parent's side ----------------------------------------------------------------------------


class ChildProcess:
    """A process with an object in it; the commands that it starts are killed with it.

    The kernel kills it when the thread that started it ends. Where the object has an attribute
    `calls`, each process answers so many at the most.

    Parameters
    ----------
    make : bytes
        A callable that makes the object, over there; pickled.

    Attributes
    ----------
    made : bool
        Whether the object is there, and can be asked.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    def __init__(self, make: bytes) -> None:
        self._expired = False
        self._begin(make)

    def _begin(self, make: bytes) -> None:
        command, pipe = [sys.executable, "-P", "-c", _CHILD, str(os.getpid())], subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603
            command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True
        )
        self._stdin = cast("BinaryIO", self._process.stdin)
        self._stdout = cast("BinaryIO", self._process.stdout)
        self._start: Start | None = Start(tuple(sys.path), make)
        self.made = False
        self._calls, self._answered = math.inf, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """Wait until it has ended, which it does when it has answered."""
        self._process.__exit__(*error)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_made(self, seconds: float) -> bool:
        """Wait so long for the object to be made; return whether it is.

        If the process has answered its last call, another one makes the object as it is now.

        Raises
        ------
        AdapterError
            If it cannot be made.
        TimeoutError
            If it was not handed over within so many seconds; the process has been killed.
        EOFError, OSError
            If the process has ended.
        """
        if self.made and self._answered >= self._calls:
            self._hand_over(seconds)
        if self._start is not None:
            send(self._stdin, self._start)
            self._start = None
        if not self.made and select.select([self._stdout], [], [], seconds)[0]:
            self._calls = _value(receive(self._stdout))
            self.made = True
        return self.made

    def _hand_over(self, seconds: float) -> None:
        make = self._ask(seconds, HandOver())
        self.end()
        self._begin(make)

    def call(self, seconds: float, method: str, *arguments: object) -> Any:
        """Return what a method of the object returns; wait as long for the object to be made.

        Raises
        ------
        AdapterError
            If the object raised it, or is defective.
        TimeoutError
            If it did not answer within so many seconds; the process has been killed.
        EOFError, OSError
            If the process has ended.
        """
        if not self.wait_made(seconds):
            self._expire()
            raise TimeoutError
        self._answered += 1
        return self._ask(seconds, Call(method, arguments))

    def _ask(self, seconds: float, request: Call | HandOver) -> Any:
        """Return the value of the answer to a request, which must come within so many seconds."""
        expiry = Timer(seconds, self._expire)
        expiry.daemon = True
        expiry.start()
        try:
            send(self._stdin, request)
            response = receive(self._stdout)
        except (EOFError, OSError) as error:
            if self._expired:
                raise TimeoutError from error
            raise
        finally:
            expiry.cancel()
        if self._expired:
            raise TimeoutError
        return _value(response)

    def _expire(self) -> None:
        self._expired = True
        self.kill()

    def kill(self) -> None:
        """Kill it and the commands it has started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def wait_ended(self, seconds: float) -> None:
        """Wait so long for its end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def end(self) -> None:
        """End it, whatever it does."""
        self.kill()
        self.wait_ended(5.0)
        for stream in (self._stdin, self._stdout):
            with suppress(OSError):
                stream.close()

    def ending(self) -> str:
        """Return how it ended."""
        status = self._process.returncode
        if status is None:
            return "it cannot be killed"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def _value(response: Response) -> Any:
    """Return the value of an answer, or raise the error in it."""
    if response.error:
        failure = AdapterError(response.error)
        if response.trace:
            failure.add_note(response.trace)
        raise failure
    return response.value


class RestartDelay:
    """For how long no process is started after one failed: twice as long each time.

    Parameters
    ----------
    first_s, longest_s : float
        Seconds.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first, self._longest = first_s, longest_s
        self._pause, self._not_before = 0.0, -math.inf

    @property
    def left(self) -> float:
        """Seconds that are left of it."""
        return max(self._not_before - time.monotonic(), 0.0)

    def failed(self) -> None:
        """Begin it."""
        self._pause = min(max(2 * self._pause, self._first), self._longest)
        self._not_before = time.monotonic() + self._pause

    def succeeded(self) -> None:
        """Have the next one be the first again."""
        self._pause = 0.0


class SubprocessProxy:
    """An object in a process of its own, which is started when it is first asked.

    While it is being made, calls fail, and nothing is given up: a machine may be slow.

    Parameters
    ----------
    make : callable
        Makes the object, over there; picklable.
    limit_s : float
        Seconds for which a call waits until the object has been made, and then for an answer.
    rest_s : float
        Seconds for which nothing is asked after a call that was not answered in time.
    """

    def __init__(self, make: Callable[[], object], limit_s: float, rest_s: float) -> None:
        self._make = pickle.dumps(make)
        self._limit, self._rest = limit_s, rest_s
        self._child: ChildProcess | None = None
        self._delay = RestartDelay(rest_s, rest_s)

    def call(self, method: str, *arguments: object) -> Any:
        """Return what a method of the object returns.

        Raises
        ------
        AdapterError
            If the object raised it, could not be made, was not in time, or is left alone.
        """
        if left := self._delay.left:
            raise AdapterError(f"it did not answer in time; next attempt in {left:.0f} s")
        try:
            child = self._child = self._child or ChildProcess(self._make)
            if not self._is_made(child):
                raise AdapterError(
                    f"the process that queries it did not start within {self._limit:g} s; check "
                    "the load of this machine"
                )
            return child.call(self._limit, method, *arguments)
        except TimeoutError:
            self.end()
            self._delay.failed()
            raise AdapterError(
                f"it did not answer within {self._limit:g} s; next attempt in {self._rest:g} s"
            ) from None
        except (EOFError, OSError) as error:
            self.end()
            raise AdapterError(f"the process that queries it exited ({error!r})") from error

    def _is_made(self, child: ChildProcess) -> bool:
        try:
            return child.wait_made(self._limit)
        except AdapterError:
            self.end()
            raise

    def end(self) -> None:
        """End the other process, whatever it does."""
        child, self._child = self._child, None
        if child is not None:
            child.end()
