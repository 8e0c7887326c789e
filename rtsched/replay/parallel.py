"""Replay policies in parallel, each in a process of its own."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from multiprocessing import active_children, get_context
from typing import TYPE_CHECKING, NamedTuple

from rtsched.core.plugins import discover
from rtsched.errors import WorkerError
from rtsched.replay.engine import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue

    from rtsched.core.plugins import Found
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload

POLL = 0.2
"""Seconds between two looks at how far the processes are."""


class _Given(NamedTuple):
    """What a worker process needs to replay policies."""

    workload: Workload
    found: Mapping[str, Found]
    record_nodes: bool
    progress: SimpleQueue[tuple[str, float]]


_given: _Given


def replay_in_parallel(
    workload: Workload,
    policies: Mapping[str, Policy],
    workers: int,
    progress: Mapping[str, Callable[[float], None]],
    *,
    record_nodes: bool = True,
) -> list[PolicyRun]:
    """Return the policies' runs in their order; when interrupted, those that are finished.

    Each worker process has its own copy of the workload.

    Parameters
    ----------
    workload : Workload
        From `prepare`.
    policies : mapping of str to Policy
        By name.
    workers : int
        How many processes there are at most.
    progress : mapping of str to callable
        By policy, called now and then with the fraction of jobs that have arrived.
    record_nodes : bool
        As in `replay`.

    Raises
    ------
    ConfigError, PluginError
        As `replay` does.
    WorkerError
        If a process ended before its work was done.
    """
    context = get_context("spawn")
    queue: SimpleQueue[tuple[str, float]] = context.SimpleQueue()
    count, given = min(workers, len(policies)), (workload, record_nodes, queue)
    with ProcessPoolExecutor(count, context, _receive, given) as pool:
        futures = {name: pool.submit(_replay, name, policies[name]) for name in policies}
        try:
            left: set[Future[PolicyRun]] = set(futures.values())
            while left:
                done, left = wait(left, POLL)
                while not queue.empty():
                    name, fraction = queue.get()
                    progress[name](fraction)
                for future in done:
                    future.result()
        except KeyboardInterrupt:
            _stop(pool)
        except BrokenProcessPool as cause:
            message = "a worker process was killed; if memory ran out, use fewer --workers"
            raise WorkerError(message) from cause
        except BaseException:
            _stop(pool)
            raise
    finished = (future for future in futures.values() if future.done() and not future.cancelled())
    return [future.result() for future in finished if future.exception() is None]


def _stop(pool: ProcessPoolExecutor) -> None:
    """End all processes; what they were doing is lost."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in active_children():
        process.terminate()


def _receive(
    workload: Workload, record_nodes: bool, progress: SimpleQueue[tuple[str, float]]
) -> None:
    """Keep what this process is to replay."""
    global _given
    _given = _Given(workload, discover(), record_nodes, progress)


def _replay(name: str, policy: Policy) -> PolicyRun:
    """Replay one policy here; standard output is for results, not for what plug-ins print."""
    with redirect_stdout(sys.stderr):
        return replay(
            _given.workload,
            name,
            policy,
            found=_given.found,
            record_nodes=_given.record_nodes,
            progress=lambda fraction: _given.progress.put((name, fraction)),
        )
