"""Calls that may never return, made by another process of ours.

The bindings of a batch system may block without any limit, in native code that holds the
interpreter, so that no thread helps. A process that does not answer in time is killed.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any, NoReturn

from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1

_OTHER = "from rtsched.adapters.subprocess_proxy import main; main()"


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
        self._other: subprocess.Popen[bytes] | None = None
        self._line: Connection[Any, Any] | None = None
        self._made, self._not_before = False, -math.inf

    def call(self, method: str, *arguments: object) -> Any:
        """Return what a method of the object returns.

        Raises
        ------
        AdapterError
            If the object raised it, could not be made, was not in time, or is left alone.
        """
        wait = self._not_before - time.monotonic()
        if wait > 0:
            raise AdapterError(f"it did not answer in time; next attempt in {wait:.0f} s")
        try:
            line = self._line if self._line is not None else self._start()
            if not self._made:
                self._wait(line)
            line.send((method, arguments))
            if not line.poll(self._limit):
                self._give_up()
            return _value(line.recv())
        except (EOFError, OSError) as error:
            self.end()
            raise AdapterError(f"the process that queries it exited ({error!r})") from error

    def end(self) -> None:
        """End the other process, whatever it does."""
        if self._line is not None:
            self._line.close()
        if self._other is not None:
            self._other.kill()
            with suppress(subprocess.TimeoutExpired):
                self._other.wait(5.0)
        self._other = self._line = None
        self._made = False

    def _start(self) -> Connection[Any, Any]:
        line, theirs = Pipe()
        command = [sys.executable, "-P", "-c", _OTHER, str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self._other = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),)
            )
        self._line = line
        line.send((sys.path, self._make))
        return line

    def _wait(self, line: Connection[Any, Any]) -> None:
        """Wait until the object has been made."""
        if not line.poll(self._limit):
            raise AdapterError(
                f"the process that queries it did not start within {self._limit:g} s; check the "
                "load of this machine"
            )
        try:
            _value(line.recv())
        except AdapterError:
            self.end()
            raise
        self._made = True

    def _give_up(self) -> NoReturn:
        self.end()
        self._not_before = time.monotonic() + self._rest
        raise AdapterError(
            f"it did not answer within {self._limit:g} s; next attempt in {self._rest:g} s"
        )


def _value(answer: tuple[Any, str]) -> Any:
    """Return the value of an answer, or raise the error in it."""
    value, error = answer
    if error:
        raise AdapterError(error)
    return value


def main() -> None:
    """Make the object, and answer calls until nobody is there to ask."""
    line: Connection[Any, Any] = Connection(int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGTERM):  # who asks ends us
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        sys.path[:], make = line.recv()
        made = None
        try:
            made = pickle.loads(make)()  # noqa: S301 - from our own other half
        except Exception as error:
            line.send((None, _message(error)))
            return
        line.send((None, ""))
        while True:
            method, arguments = line.recv()
            try:
                answer = getattr(made, method)(*arguments), ""
            except Exception as error:
                answer = None, _message(error)
            line.send(answer)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        os._exit(0)


def _message(error: Exception) -> str:
    """Return an error as a sentence."""
    return str(error) if isinstance(error, AdapterError) else f"{type(error).__name__}: {error}"
