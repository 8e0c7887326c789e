"""Checkpoints of a long replay, so that it can go on where it was interrupted.

    DIR/.unfinished/replay.json    of which log and settings
    DIR/.unfinished/0.run          the run of the first policy, once it is finished
    DIR/.unfinished/1.state        a checkpoint of the second, which is being replayed

A checkpoint is the state of the simulated system at an instant. Only a system whose arrays alone
say how the replay goes on has one (`System.resumable`): where plug-ins are asked during the replay,
a policy is replayed anew. Each file is written under another name first, and renamed once it is on
the disk, so that none is ever incomplete.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched import __version__
from rtsched.errors import InputError
from rtsched.model import on_disk
from rtsched.model.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rtsched.core.plugins import Found
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload

DIRECTORY = ".unfinished"

KEEP_AFTER = 10.0
"""Seconds that the replay of a policy must have taken for its run to be kept."""

INTERVAL = 60.0
"""Seconds from one checkpoint to the next, at least ..."""

_SPACING = 50
"""... and at least this many times what the last one took: checkpoints cost at most 2 %."""

_IDENTITY = "replay.json"


class Identity(msgspec.Struct, frozen=True):
    """What a replay is of. What was kept of one is of use to an equal one only."""

    version: str
    """That of rtsched."""
    workload: str
    """Digest of the jobs, the machine and all else that `prepare` makes."""
    policies: dict[str, Any]
    """Their tables by name, in the order of the replay."""
    plugins: dict[str, str]
    """Version of the distribution of each plug-in that they name."""

    def difference(self, other: Identity) -> str:
        """Return in which way another replay differs; empty: in none."""
        if self.version != other.version:
            return f"rtsched {self.version}, not {other.version}"
        if self.workload != other.workload:
            return "another log or machine, or other settings of the workload"
        if list(self.policies.items()) != list(other.policies.items()):
            return f"other policies or settings of them ({', '.join(self.policies)})"
        return "" if self == other else "other versions of plug-ins"


class Checkpoints:
    """What is kept of one replay; nothing is written before a policy has taken `KEEP_AFTER`.

    Parameters
    ----------
    out : Path
        The directory of the replay's results.
    workload : Workload
        From `prepare`.
    policies : mapping of str to Policy
        By name, in the order of the replay.
    found : mapping of str to Found
        Installed plug-ins.
    warn : callable
        Told in one sentence that nothing can be kept; the replay itself goes on.
    """

    def __init__(
        self,
        out: Path,
        workload: Workload,
        policies: Mapping[str, Policy],
        found: Mapping[str, Found],
        *,
        warn: Callable[[str], None],
    ) -> None:
        self._place = out / DIRECTORY
        self._workload, self._policies, self._found = workload, policies, found
        self._warn = warn
        self._number = {name: number for number, name in enumerate(policies)}
        self._begun = self._failed = False

    def resume(self) -> bool:
        """Take over what an interrupted replay of the same kept; return whether there is any.

        Raises
        ------
        InputError
            If what is there is of another replay.
        """
        path = self._place / _IDENTITY
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=Identity)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise InputError(path, f"cannot be read ({error}); replay without --resume") from error
        if difference := kept.difference(self._identity()):
            raise InputError(
                self._place,
                f"cannot be resumed: it is of {difference}; give the same command, or replay "
                "without --resume",
            )
        self._begun = True
        return True

    def discard(self) -> None:
        """Remove everything that is kept."""
        shutil.rmtree(self._place, ignore_errors=True)

    @property
    def any(self) -> bool:
        """Return whether there is something to resume."""
        return self._begun

    def finished(self, name: str) -> PolicyRun | None:
        """Return a policy's run if it is kept."""
        run: PolicyRun | None = self._read(self._path(name, "run"), writable=False)
        return run

    def finish(self, run: PolicyRun) -> PolicyRun:
        """Keep a policy's run; return it, with its arrays on disk if they are kept."""
        if run.seconds < KEEP_AFTER:
            return run
        path = self._path(run.policy, "run")
        self._keep(path, run)
        self._path(run.policy, "state").unlink(missing_ok=True)
        kept = self._read(path, writable=False)
        return run if kept is None else kept

    def of(self, name: str) -> Checkpoint:
        """Return where one policy keeps its state while it is replayed."""
        path = self._path(name, "state")
        return Checkpoint(
            lambda: self._read(path, writable=True), lambda state: self._keep(path, state)
        )

    def _path(self, name: str, kind: str) -> Path:
        return self._place / f"{self._number[name]}.{kind}"

    def _read(self, path: Path, *, writable: bool) -> Any:
        if not self._begun or not path.exists():
            return None
        try:
            return on_disk.read(path, writable=writable)
        except (OSError, ValueError) as error:
            self._warn(f"{path} is not used: {error}")
            return None

    def _keep(self, path: Path, value: object) -> None:
        if self._failed:
            return
        try:
            if not self._begun:
                self._place.mkdir(parents=True, exist_ok=True)
                identity = msgspec.json.encode(self._identity())
                _replace(self._place / _IDENTITY, lambda file: file.write(identity))
                self._begun = True
            _replace(path, lambda file: on_disk.write(file, value))
        except OSError as error:
            self._failed = True
            self._warn(f"an interrupted replay could not go on from here: {error}")

    def _identity(self) -> Identity:
        named = {entry.name for policy in self._policies.values() for entry in policy.plugin}
        known = {name: self._found[name] for name in sorted(named & self._found.keys())}
        return Identity(
            __version__,
            digest(self._workload),
            {name: msgspec.to_builtins(policy) for name, policy in self._policies.items()},
            {name: f"{found.distribution} {found.version}" for name, found in known.items()},
        )


class Checkpoint:
    """The state of one policy's replay on disk.

    Parameters
    ----------
    read : callable
        Returns the state that was kept last, None if there is none.
    write : callable
        Keeps a state in its place.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self.read, self._write = read, write
        self._next = time.monotonic() + INTERVAL

    def is_due(self) -> bool:
        """Return whether it is time to keep the state."""
        return time.monotonic() >= self._next

    def keep(self, state: object) -> None:
        """Keep the state in place of the last one."""
        begun = time.monotonic()
        self._write(state)
        now = time.monotonic()
        self._next = now + max(INTERVAL, _SPACING * (now - begun))


def digest(value: object) -> str:
    """Return a text that is the same for equal values only.

    Parameters
    ----------
    value : object
        Tables, arrays, dataclasses, tuples, lists and mappings of such, and what has a `repr` of
        its value.
    """
    hashed = blake2b(digest_size=20)
    _feed(hashed.update, value)
    return hashed.hexdigest()


def _feed(update: Callable[[Any], None], value: object) -> None:
    if isinstance(value, Table):
        update(f"{type(value).__name__} {len(value)}".encode())
        for name in value.given():
            _feed(update, [name, value.names(name), value.column(name)])
    elif isinstance(value, np.ndarray):
        update(f"{value.dtype} {value.shape}".encode())
        single = value.ndim == 1 and value.strides == (0,)
        update(np.ascontiguousarray(value[:1] if single else value).view(np.uint8).data)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _feed(update, [field.name, getattr(value, field.name)])
    elif isinstance(value, dict):
        _feed(update, list(value.items()))
    elif isinstance(value, tuple | list):
        update(f"{len(value)}:".encode())
        for each in value:
            _feed(update, each)
    else:
        update(f"{value!r};".encode("utf-8", "backslashreplace"))


def _replace(path: Path, fill: Callable[[Any], object]) -> None:
    """Put a new file in a path's place, once it is on the disk."""
    new = path.with_name(f"{path.name}.partial")
    try:
        with new.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
