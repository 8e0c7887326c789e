"""Every exception that rtsched raises on purpose.

Each says in one sentence what happened, to what, and what to do, and carries the data behind it.
The command line prints the sentence and exits with the class's `exit_status`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class RtschedError(Exception):
    """What all errors of rtsched have in common."""

    exit_status: ClassVar[int] = 2

    def __reduce__(self) -> tuple[Callable[..., RtschedError], tuple[object, ...]]:
        return _again, (type(self), self.args, self.__dict__)


def _again(
    kind: type[RtschedError], args: tuple[object, ...], data: dict[str, object]
) -> RtschedError:
    """Return the error that another process raised."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(data)
    return error


class WorkerError(RtschedError):
    """A process that was to do a part of the work ended before."""


class ShapeError(RtschedError):
    """Arrays that belong together differ in length, or one has the wrong type."""


class ConfigError(RtschedError):
    """One or more settings are wrong; `problems` lists them all, each with its path."""

    def __init__(self, problems: Sequence[str], source: str | Path | None = None) -> None:
        self.problems = tuple(problems)
        self.source = source
        where = f"{source}: " if source is not None else ""
        super().__init__("\n".join(f"{where}{problem}" for problem in self.problems))


class InputError(RtschedError):
    """A log or cluster file cannot be read: which file, which line, and what to do about it."""

    def __init__(self, path: str | Path, message: str, *, line: int | None = None) -> None:
        self.path = path
        self.line = line
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")


class OutputError(RtschedError):
    """A result cannot be written or replaced: which file or directory, why, and what to do."""

    def __init__(self, path: str | Path, message: str) -> None:
        self.path = path
        super().__init__(f"{path}: {message}")


class PluginError(RtschedError):
    """A plug-in is unusable: it raised, answered wrongly, or breaks the hook contract."""

    def __init__(self, plugin: str, message: str) -> None:
        self.plugin = plugin
        super().__init__(f"plug-in {plugin!r}: {message}")


class PlannerError(RtschedError):
    """The planner raised or answered wrongly, so nobody knows what can be promised just now."""


class MissingExtraError(RtschedError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str, cause: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs `pip install 'rtsched[{extra}]'` ({cause})")


class AdapterError(RtschedError):
    """The batch system did not answer, or refused."""

    exit_status: ClassVar[int] = 3


class ProtocolError(RtschedError):
    """A message between a submit filter, a user and the daemon is malformed, or of another version.

    The connection that it came over cannot be used any more.
    """

    exit_status: ClassVar[int] = 3


class StoreError(RtschedError):
    """The database of promises cannot be opened, read or written: which file, why, what to do."""

    def __init__(self, path: str | Path, message: str) -> None:
        self.path = path
        super().__init__(f"{path}: {message}")
