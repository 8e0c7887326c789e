"""The daemon's side of the process that talks to the batch system.

A library of the batch system may block, or crash. It does so in a child process. A thread of the
daemon passes requests and answers to and fro, so that the loop waits for a future and for nothing
else. A child that does not answer in time, or dies, is killed and replaced at the next request,
after a pause that doubles each time.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from rtsched.daemon.child import Apply, FindCompletions, Poll, Response, Start, receive, send
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.adapters.live import Change, Completions, Done, LiveSystem, Observation
    from rtsched.model.actions import Action

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0

_CHILD = "from rtsched.daemon.child import main; main()"  # not -m: its classes have one module


class Worker:
    """A batch system in a process of its own.

    Parameters
    ----------
    factory : callable
        Makes the `LiveSystem`, in the child; picklable.
    timeout_s : float
        Seconds within which a request must be answered.
    """

    def __init__(self, factory: Callable[[], LiveSystem], timeout_s: float = 30.0) -> None:
        self._factory = pickle.dumps(factory)
        self._timeout = timeout_s
        self._child: _Child | None = None
        self._lock = asyncio.Lock()
        self._pause = 0.0
        self._not_before = 0.0
        self.starts = 0
        """How many children there were."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return self._child.pid if self._child is not None else None

    async def poll(self) -> Observation:
        """Return the batch system's present state.

        Raises
        ------
        AdapterError
            If it does not answer, the adapter failed, or the child hung or died. The next call
            tries again, with a new child if needed.
        """
        return cast("Observation", await self._ask(Poll()))

    async def find_completions(self, jobs: Sequence[int], since: float = -math.inf) -> Completions:
        """Return how jobs ended that no poll shows any more, of those of which it is known.

        None of them ended before `since`, seconds since the epoch.

        Raises
        ------
        AdapterError
            As in `poll`.
        """
        return cast("Completions", await self._ask(FindCompletions(jobs, since)))

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[Sequence[Change], Sequence[Done]]:
        """Return what the actions change, and what became of it: nothing in a dry-run.

        Raises
        ------
        AdapterError
            As in `poll`; it is then unknown which changes were made, and the next poll tells.
        """
        return cast(
            "tuple[Sequence[Change], Sequence[Done]]", await self._ask(Apply(actions, dry_run))
        )

    async def close(self) -> None:
        """End the child: at once if it is idle, else when it has answered or its time is up."""
        async with self._lock:
            if self._child is not None:
                child, self._child = self._child, None
                child.end()
                await child.wait_ended(self._timeout)

    async def _ask(self, request: object) -> Any:
        async with self._lock:
            if self._child is None:
                await self._start()
            return await self._exchange(request)

    async def _start(self) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            raise AdapterError(
                f"the process that polls the batch system failed; it restarts in {wait:.1f} s"
            )
        self.starts += 1
        self._child = _Child(asyncio.get_running_loop())
        await self._exchange(Start(tuple(sys.path), self._factory))

    async def _exchange(self, request: object) -> Any:
        """Pass a request to the child and return the answer's value."""
        child = self._child
        assert child is not None  # noqa: S101 - `_start` comes first
        try:
            answer = await asyncio.wait_for(child.ask(request), self._timeout)
        except TimeoutError:
            await self._drop(child)
            raise AdapterError(
                f"the batch system did not answer within {self._timeout:g} s; is its controller up?"
            ) from None
        except (EOFError, OSError) as error:
            raise AdapterError(await self._drop(child)) from error
        if answer.error:
            if isinstance(request, Start):
                await self._drop(child)
            failure = AdapterError(answer.error)
            if answer.trace:
                failure.add_note(answer.trace)
            raise failure
        if not isinstance(request, Start):
            self._pause = 0.0
        return answer.value

    async def _drop(self, child: _Child) -> str:
        """Kill a child and have the next one wait; return how it ended, as a sentence."""
        self._child = None
        child.kill()
        await child.wait_ended(1.0)
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        self._not_before = time.monotonic() + self._pause
        return (
            f"the process that polls the batch system exited ({child.ending()}); its log says why"
        )


class _Child:
    """One child, and the thread that started it and talks to it.

    The kernel kills the child when that thread ends (prctl(2), PR_SET_PDEATHSIG), so one thread
    lives as long as the child.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._requests: queue.SimpleQueue[tuple[object, asyncio.Future[Response]] | None]
        self._requests = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._gone = loop.create_future()
        self._thread = Thread(target=self._serve, name="batch-system", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ask(self, request: object) -> asyncio.Future[Response]:
        """Return a future of the answer; it raises EOFError or OSError if the child is gone."""
        future: asyncio.Future[Response] = self._loop.create_future()
        self._requests.put((request, future))
        return future

    def end(self) -> None:
        """Let the child end when it has answered."""
        self._requests.put(None)

    def kill(self) -> None:
        """Kill the child and the commands it has started."""
        self._killed = True
        self.end()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait_ended(self, seconds: float) -> None:
        """Wait until the child has ended; kill it after that many seconds."""
        done, _ = await asyncio.wait([self._gone], timeout=seconds)
        if not done:
            self.kill()

    def ending(self) -> str:
        """Return how it ended."""
        status = None if self._process is None else self._process.returncode
        if status is None:
            return "it cannot be killed"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"

    def _serve(self) -> None:
        """Start the child and pass on requests, in a thread, until there are no more."""
        command = [sys.executable, "-P", "-c", _CHILD, str(os.getpid())]
        pipe = subprocess.PIPE
        try:
            with subprocess.Popen(  # noqa: S603
                command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True
            ) as process:
                self._process = process
                stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
                while not self._killed and (asked := self._requests.get()) is not None:
                    self._pass(stdin, stdout, *asked)
                if self._killed:
                    self.kill()
        except OSError as error:
            self._fail_all(error)
        self._resolve(self._gone, None)

    def _pass(
        self, stdin: BinaryIO, stdout: BinaryIO, request: object, future: asyncio.Future[Response]
    ) -> None:
        try:
            send(stdin, request)
            self._resolve(future, receive(stdout))
        except Exception as error:
            if isinstance(error, EOFError | OSError) and self._process is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)  # it is about to end, and we say how
            self._resolve(future, error)

    def _fail_all(self, error: OSError) -> None:
        """Answer with an error whoever asks, since there is no child."""
        while not self._killed and (asked := self._requests.get()) is not None:
            self._resolve(asked[1], error)

    def _resolve(self, future: asyncio.Future[Any], outcome: object) -> None:
        def settle() -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(settle)
