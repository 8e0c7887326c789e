"""A live system that runs inside a cluster or pool, as the daemon's user, driven from outside."""

import math
import pickle
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from testbed import Box

from rtsched.adapters.child_process import receive, send
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.system import CondorSystem
from rtsched.adapters.live import Change, Completions, Done, Observation
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.system import SlurmSystem
from rtsched.errors import AdapterError
from rtsched.model.actions import Action

_FAR_SIDE = """
import pickle, sys
from rtsched.adapters.child_process import receive, send
from rtsched.errors import AdapterError
system = receive(sys.stdin.buffer)()
while True:
    try:
        name, arguments = receive(sys.stdin.buffer)
    except EOFError:
        break
    if name == "hand_over":
        send(sys.stdout.buffer, (pickle.dumps(system), ""))
        break
    try:
        send(sys.stdout.buffer, (getattr(system, name)(*arguments), ""))
    except AdapterError as error:
        send(sys.stdout.buffer, (None, str(error)))
"""


class Remote:
    """A `SlurmSystem` or `CondorSystem`, by its settings, on a cluster or pool."""

    def __init__(
        self, box: Box, settings: SlurmSettings | CondorSettings, user: str = "rtsched"
    ) -> None:
        self._box, self._user = box, user
        kind = CondorSystem if isinstance(settings, CondorSettings) else SlurmSystem
        self._begin(partial(kind, settings))

    def _begin(self, make: Callable[[], object]) -> None:
        argv = ["/opt/rtsched/bin/python", "-c", _FAR_SIDE]
        self._process = self._box.popen(argv, user=self._user, stdin=subprocess.PIPE)
        self._send(make)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def kill(self) -> None:
        """Kill it, as nobody expects."""
        self._process.kill()

    def hand_over(self) -> None:
        """Have a new process go on with the system as it is."""
        state = self._call("hand_over")
        self._process.communicate()
        self._begin(partial(pickle.loads, state))

    def poll(self) -> Observation:
        """Return what a poll shows."""
        return self._call("poll")

    def find_completions(self, *jobs: int, since: float = -math.inf) -> Completions:
        """Return how jobs ended, by the batch system's records."""
        return self._call("find_completions", jobs, since)

    def changes(self, *actions: Action) -> Sequence[Change]:
        """Return what actions come to."""
        return self._call("changes", actions)

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Return what became of changes."""
        return self._call("carry_out", changes)

    def apply(self, *actions: Action) -> Sequence[Done]:
        """Poll, and carry out what actions come to."""
        self.poll()
        return self.carry_out(self.changes(*actions))

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        send(self._process.stdin.buffer, message)  # type: ignore[attr-defined]

    def _call(self, name: str, *arguments: object) -> Any:
        self._send((name, arguments))
        assert self._process.stdout is not None
        try:
            value, error = receive(self._process.stdout.buffer)  # type: ignore[attr-defined]
        except EOFError:
            raise AssertionError(self._process.communicate()[1]) from None
        if error:
            raise AdapterError(error)
        return value
