"""Replay policies in parallel, each in a process of its own: here, or on a Dask cluster.

The cluster is the site's own: this module connects to its scheduler, sends the workload once, and
has each worker replay one policy at a time. Workers need the same version of rtsched, and the
plug-ins that the policies name.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from concurrent.futures import CancelledError, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from uuid import uuid4

from rtsched import __version__
from rtsched.core.plugins import discover
from rtsched.errors import AdapterError, MissingExtraError, WorkerError
from rtsched.replay.engine import replay
from rtsched.replay.uncompiled import unless_compiling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue
    from types import TracebackType

    from rtsched.core.plugins import Found
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload


POLL = 0.2
"""Seconds between two looks at how far the processes are."""


class Workers(Protocol):
    """Processes that replay policies of one workload; they are there while the context lasts."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def submit(self, name: str, policy: Policy) -> Future[PolicyRun]:
        """Have one of them replay a policy."""
        ...

    def progress(self) -> Iterator[tuple[str, float]]:
        """Yield what they reported since the last call: a policy, and the fraction replayed."""
        ...

    def stop(self) -> None:
        """Give up what is not finished."""
        ...

    def lost(self, error: BaseException) -> str | None:
        """Return a sentence if an error says that a process was lost; None: it is another one."""
        ...


def replay_in_parallel(
    workers: Workers,
    policies: Mapping[str, Policy],
    progress: Mapping[str, Callable[[float], None]],
    finished: Callable[[PolicyRun], None] | None = None,
) -> list[PolicyRun]:
    """Return the policies' runs in their order; when interrupted, those that are finished.

    Parameters
    ----------
    workers : Workers
        `LocalWorkers` or `DaskWorkers`; results are the same.
    policies : mapping of str to Policy
        By name.
    progress : mapping of str to callable
        By policy, called now and then with the fraction of jobs that have arrived.
    finished : callable, optional
        Called with each run when it is there.

    Raises
    ------
    ConfigError, PluginError
        As `replay` does.
    WorkerError
        If a process ended before its work was done.
    """
    with workers:
        futures = {name: workers.submit(name, policies[name]) for name in policies}
        try:
            left: set[Future[PolicyRun]] = set(futures.values())
            while left:
                done, left = wait(left, POLL)
                for name, fraction in workers.progress():
                    progress[name](fraction)
                for future in done:
                    run = future.result()
                    if finished is not None:
                        finished(run)
        except KeyboardInterrupt:
            workers.stop()
        except BaseException as error:
            workers.stop()
            if (message := workers.lost(error)) is not None:
                raise WorkerError(message) from error
            raise
    ended = (future for future in futures.values() if future.done() and not future.cancelled())
    return [future.result() for future in ended if future.exception() is None]


class LocalWorkers:
    """Processes on this machine, each with its own copy of the workload.

    Parameters
    ----------
    workload : Workload
        From `prepare`.
    count : int
        How many processes there are at most.
    record_nodes : bool
        As in `replay`.
    may_compile : bool
        Whether they compile what is not compiled; else `NotCompiled` is raised.
    """

    def __init__(
        self,
        workload: Workload,
        count: int,
        *,
        record_nodes: bool = True,
        may_compile: bool = True,
    ) -> None:
        context = get_context("spawn")
        self._queue: SimpleQueue[tuple[str, float]] = context.SimpleQueue()
        given = (workload, record_nodes, may_compile, self._queue)
        self._pool = ProcessPoolExecutor(count, context, _receive, given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def submit(self, name: str, policy: Policy) -> Future[PolicyRun]:
        """Have one of them replay a policy."""
        return self._pool.submit(_replay, name, policy)

    def progress(self) -> Iterator[tuple[str, float]]:
        """Yield what they reported since the last call."""
        while not self._queue.empty():
            yield self._queue.get()

    def stop(self) -> None:
        """End all processes; what they were doing is lost."""
        for process in active_children():
            process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def lost(self, error: BaseException) -> str | None:
        """Return a sentence if an error says that a process was lost."""
        if isinstance(error, BrokenProcessPool):
            return "a worker process was killed; if memory ran out, use fewer --workers"
        return None


class _Given(NamedTuple):
    """What a worker process needs to replay policies."""

    workload: Workload
    found: Mapping[str, Found]
    record_nodes: bool
    may_compile: bool
    progress: SimpleQueue[tuple[str, float]]


_given: _Given


def _receive(
    workload: Workload,
    record_nodes: bool,
    may_compile: bool,
    progress: SimpleQueue[tuple[str, float]],
) -> None:
    """Keep what this process is to replay."""
    global _given
    _given = _Given(workload, discover(), record_nodes, may_compile, progress)


def _replay(name: str, policy: Policy) -> PolicyRun:
    """Replay one policy here; standard output is for results, not for what plug-ins print."""
    with redirect_stdout(sys.stderr), unless_compiling(not _given.may_compile):
        return replay(
            _given.workload,
            name,
            policy,
            found=_given.found,
            record_nodes=_given.record_nodes,
            progress=lambda fraction: _given.progress.put((name, fraction)),
        )


CONNECT_S = 10
"""Seconds within which the scheduler must answer."""


def require_dask() -> None:
    """Refuse to go on without Dask.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    if find_spec("distributed") is None:
        raise MissingExtraError("a Dask cluster", "cluster", "distributed is not installed")


@contextmanager
def connected(scheduler: str) -> Iterator[Any]:
    """Yield a client of a Dask scheduler.

    Parameters
    ----------
    scheduler : str
        Its address (`tcp://host:8786`), or the file that it wrote (`--scheduler-file`).

    Raises
    ------
    MissingExtraError
        If Dask is not installed.
    AdapterError
        If the scheduler cannot be reached.
    """
    require_dask()
    from distributed import Client

    try:
        file = Path(scheduler)
        address = json.loads(file.read_bytes())["address"] if file.is_file() else scheduler
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, LookupError, TypeError) as cause:
        why = str(cause) or type(cause).__name__
        raise AdapterError(
            f"no Dask scheduler answers at {scheduler} ({why}); give its address, such as "
            "tcp://host:8786, or the file that `dask scheduler --scheduler-file` wrote"
        ) from cause
    with client:
        yield client


class DaskWorkers:
    """The workers of a Dask cluster, which are sent the workload once.

    Parameters
    ----------
    client : distributed.Client
        From `connected`.
    workload : Workload
        From `prepare`.
    record_nodes : bool
        As in `replay`.

    Raises
    ------
    AdapterError
        If the cluster has no worker.
    """

    def __init__(self, client: Any, workload: Workload, *, record_nodes: bool = True) -> None:
        self._client, self._record_nodes = client, record_nodes
        self._executor = client.get_executor(pure=False)
        try:
            self._workload = client.scatter(workload, hash=False)
        except TimeoutError as cause:
            raise AdapterError("the Dask cluster has no worker; start some") from cause
        self._topic = f"rtsched-replay-{uuid4()}"
        self._reports: deque[tuple[str, float]] = deque()

    def __enter__(self) -> Self:
        self._client.subscribe_topic(self._topic, lambda event: self._reports.append(event[1]))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.unsubscribe_topic(self._topic)
        self._executor.shutdown(wait=False)

    def submit(self, name: str, policy: Policy) -> Future[PolicyRun]:
        """Have one of them replay a policy."""
        future: Future[PolicyRun] = self._executor.submit(
            _replay_on_worker,
            self._workload,
            name,
            policy,
            self._record_nodes,
            self._topic,
            __version__,
        )
        return future

    def progress(self) -> Iterator[tuple[str, float]]:
        """Yield what they reported since the last call."""
        while self._reports:
            name, fraction = self._reports.popleft()
            yield name, fraction

    def stop(self) -> None:
        """Give up what has not begun; a policy that a worker is replaying ends unseen."""
        self._executor.shutdown(wait=False)

    def lost(self, error: BaseException) -> str | None:
        """Return a sentence if an error says that workers were lost or cannot do it."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            return "workers of the Dask cluster were killed; if memory ran out, give them more"
        if isinstance(error, CancelledError):
            return "the Dask cluster was closed, or lost the jobs; replay again"
        if isinstance(error, ImportError):
            return f"a worker of the Dask cluster cannot import rtsched or a plug-in ({error})"
        return None


def _replay_on_worker(
    workload: Workload, name: str, policy: Policy, record_nodes: bool, topic: str, version: str
) -> PolicyRun:
    """Replay one policy, on a worker."""
    from distributed import get_worker

    worker = get_worker()
    if version != __version__:
        raise WorkerError(
            f"worker {worker.address} of the Dask cluster has rtsched {__version__}, not {version}"
        )
    return replay(
        workload,
        name,
        policy,
        record_nodes=record_nodes,
        progress=lambda fraction: worker.log_event(topic, [name, fraction]),
    )
