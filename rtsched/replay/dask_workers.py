"""Replay policies on the workers of a Dask cluster, which runs where the site wants it.

The cluster is the site's own: this module connects to its scheduler, sends the workload once, and
has each worker replay one policy at a time. Workers need the same version of rtsched, and the
plug-ins that the policies name.
"""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from rtsched import __version__
from rtsched.errors import AdapterError, MissingExtraError, WorkerError
from rtsched.replay.engine import replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload

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
            _replay, self._workload, name, policy, self._record_nodes, self._topic, __version__
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


def _replay(
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
