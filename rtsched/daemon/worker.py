"""The daemon's side of its child processes: of the one that talks to the batch system, and others.

A library of the batch system may block, or crash. It does so in a child process. A thread of the
daemon passes requests and answers to and fro, so that the loop waits for a future and for nothing
else. A child that does not answer in time, or dies, is killed and replaced at the next request,
after a pause that doubles each time.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import queue
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, cast

from rtsched.adapters.child_process import ChildProcess, RestartDelay
from rtsched.adapters.live import ServedSystem
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.adapters.live import Change, Completions, Done, LiveSystem, Observation
    from rtsched.model.actions import Action

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0


class Remote:
    """An object in a process of its own, asked from the loop.

    Parameters
    ----------
    make : callable
        Makes the object, in the child; picklable.
    timeout_s : float
        Seconds within which a request must be answered.
    does : str
        What the process does, for messages: `polls the batch system`.
    late : str
        What is reported of it when it does not answer in time; `{:g}` stands for the seconds.
    """

    def __init__(self, make: Callable[[], object], timeout_s: float, does: str, late: str) -> None:
        self._make = pickle.dumps(make)
        self._timeout, self._does, self._late_text = timeout_s, does, late
        self._child: _ChildThread | None = None
        self._lock = asyncio.Lock()
        self._delay = RestartDelay(FIRST_PAUSE, LONGEST_PAUSE)
        self.starts = 0
        """How often a child was started that remembered nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return self._child.pid if self._child is not None else None

    @property
    def is_made(self) -> bool:
        """Whether the object is there, so that a request need not wait for it."""
        return self._child is not None and self._child.is_made

    @property
    def pause(self) -> float:
        """Seconds for which no child is started, after one that failed."""
        return self._delay.left

    def kill(self) -> None:
        """Kill the child now, whatever it does; the next request starts another one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    async def close(self) -> None:
        """End the child: at once if it is idle, else when it has answered or its time is up."""
        async with self._lock:
            if self._child is not None:
                child, self._child = self._child, None
                child.end()
                await child.wait_ended(self._timeout)

    async def ask(self, method: str, *arguments: object) -> Any:
        """Return what a method of the object returns.

        Raises
        ------
        AdapterError
            If the object raised it or is defective, or the child hung or died. The next call tries
            again, with a new child if needed.
        """
        async with self._lock:
            await self._make_ready()
            value = await self._run(lambda child: child.call(self._timeout, method, *arguments))
            self._delay.succeeded()
            return value

    async def _make_ready(self) -> None:
        """Wait until there is a child with the object in it."""
        if self._child is None:
            if left := self._delay.left:
                raise AdapterError(
                    f"the process that {self._does} failed; it restarts in {left:.1f} s"
                )
            self.starts += 1
            self._child = _ChildThread(self._make, asyncio.get_running_loop())
        try:
            made = await self._run(lambda child: child.wait_made(self._timeout))
        except AdapterError:
            await self._drop()
            raise
        if not made:
            raise await self._late()

    async def _run(self, call: Callable[[ChildProcess], Any]) -> Any:
        """Return what a call of the child returns, made in its thread."""
        assert self._child is not None  # noqa: S101 - `_start` comes first
        try:
            return await self._child.run(call)
        except TimeoutError:
            raise await self._late() from None
        except (EOFError, OSError) as error:
            how = await self._drop()
            raise AdapterError(
                f"the process that {self._does} exited ({how}); its log says why"
            ) from error

    async def _late(self) -> AdapterError:
        """Give the child up, and return the error that says so."""
        await self._drop()
        return AdapterError(self._late_text.format(self._timeout))

    async def _drop(self) -> str:
        """Kill the child, if it is still there, and have the next one wait; return how it ended."""
        child, self._child = self._child, None
        if child is None:
            return ""
        child.kill()
        await child.wait_ended(1.0)
        self._delay.failed()
        return child.ending()


class Worker(Remote):
    """A batch system in a process of its own.

    Parameters
    ----------
    factory : callable
        Makes the `LiveSystem`, in the child; picklable.
    timeout_s : float
        Seconds within which a request must be answered.
    """

    def __init__(self, factory: Callable[[], LiveSystem], timeout_s: float = 30.0) -> None:
        super().__init__(
            partial(ServedSystem, factory),
            timeout_s,
            "polls the batch system",
            "the batch system did not answer within {:g} s; is its controller up?",
        )

    async def poll(self) -> Observation:
        """Return the batch system's present state.

        Raises
        ------
        AdapterError
            If it does not answer, the adapter failed, or the child hung or died. The next call
            tries again, with a new child if needed.
        """
        return cast("Observation", await self.ask("poll"))

    async def find_completions(self, jobs: Sequence[int], since: float = -math.inf) -> Completions:
        """Return how jobs ended that no poll shows any more, of those of which it is known.

        None of them ended before `since`, seconds since the epoch.

        Raises
        ------
        AdapterError
            As in `poll`.
        """
        return cast("Completions", await self.ask("find_completions", jobs, since))

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[Sequence[Change], Sequence[Done]]:
        """Return what the actions change, and what became of it: nothing in a dry-run.

        Raises
        ------
        AdapterError
            As in `poll`; it is then unknown which changes were made, and the next poll tells.
        """
        found = await self.ask("apply", actions, dry_run)
        return cast("tuple[Sequence[Change], Sequence[Done]]", found)


class _ChildThread:
    """One child, and the thread that started it and talks to it: the child does not outlive it."""

    def __init__(self, make: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._make, self._loop = make, loop
        self._calls: queue.SimpleQueue[
            tuple[Callable[[ChildProcess], Any], asyncio.Future[Any]] | None
        ] = queue.SimpleQueue()
        self._process: ChildProcess | None = None
        self._killed = False
        self._gone = loop.create_future()
        self._thread = Thread(target=self._serve, name="child process", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_made(self) -> bool:
        return self._process is not None and self._process.made

    def run(self, call: Callable[[ChildProcess], Any]) -> asyncio.Future[Any]:
        """Return a future of what a call returns; EOFError or OSError if the child is gone."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls.put((call, future))
        return future

    def end(self) -> None:
        """Let the child end when it has answered."""
        self._calls.put(None)

    def kill(self) -> None:
        """Kill the child and the commands it has started."""
        self._killed = True
        self.end()
        if self._process is not None:
            self._process.kill()

    async def wait_ended(self, seconds: float) -> None:
        """Wait until the child has ended; kill it after that many seconds."""
        done, _ = await asyncio.wait([self._gone], timeout=seconds)
        if not done:
            self.kill()

    def ending(self) -> str:
        """Return how it ended."""
        return self._process.ending() if self._process is not None else "it did not start"

    def _serve(self) -> None:
        """Start the child and make calls, in a thread, until there are no more."""
        try:
            with ChildProcess(self._make) as self._process:
                while not self._killed and (asked := self._calls.get()) is not None:
                    self._pass(self._process, *asked)
                if self._killed:
                    self._process.kill()
        except OSError as error:
            while not self._killed and (asked := self._calls.get()) is not None:
                self._resolve(asked[1], error)
        self._resolve(self._gone, None)

    def _pass(
        self,
        process: ChildProcess,
        call: Callable[[ChildProcess], Any],
        future: asyncio.Future[Any],
    ) -> None:
        try:
            self._resolve(future, call(process))
        except Exception as error:
            if isinstance(error, EOFError | OSError):
                process.wait_ended(1.0)  # it is about to end, and we say how
            self._resolve(future, error)

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
