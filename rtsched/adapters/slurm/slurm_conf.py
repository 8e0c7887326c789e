"""A slurm.conf as text: what is set in it, and how our lines get in and out again; pure.

Our lines stand in one block at the end. A line that they replace stays where it is as a comment.
Taking the block out and the comments off gives the file back, byte by byte.

References
----------
Manual page slurm.conf(5): a name is taken in any case; `#` begins a comment unless a backslash
stands before it; a backslash at the end of a line continues it; of a name that occurs twice the
last value counts; `Include` inserts a file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rtsched.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BEGIN = "# rtsched: our lines begin here; `rtsched slurm uninstall` takes them out"
END = "# rtsched: our lines end here"
OFF = "#rtsched-off# "
MOST_INCLUDES = 50

_ENTITY = re.compile(
    r"\s*(?:NodeName|PartitionName|NodeSet|DownNodes|FrontendName)\b", re.IGNORECASE
)
_PAIR = re.compile(r"""([A-Za-z][A-Za-z0-9_]*)\s*\+?=\s*("[^"]*"|[^\s"]*)""")
_CONTROLLER = re.compile(r"SlurmctldHost\s*=\s*\"?([^\s(\"]+)[^\s\"]*\"?", re.IGNORECASE)
_SHARED_ADDRESS = re.compile(r"SlurmctldAddr\s*=\s*(?:\"[^\"]*\"|\S*)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*Include\s+(\S+)", re.IGNORECASE)


class Setting(NamedTuple):
    """One value of a slurm.conf.

    Attributes
    ----------
    value : str
        As written, without quotes.
    path : Path
        The file it stands in.
    line : int
        Number of its line, from 1.
    alone : bool
        Whether nothing else is set in its line.
    """

    value: str
    path: Path
    line: int
    alone: bool


def read(path: Path) -> str:
    """Return a file's text.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(
            path, f"cannot be read ({error.strerror}); name Slurm's file with --slurm-conf"
        ) from error


def settings(path: Path, text: str | None = None) -> dict[str, list[Setting]]:
    """Return what is set in a file and in those it includes, by name in lower case.

    Parameters
    ----------
    path : Path
        The file.
    text : str, optional
        Its text, where it is another than the file's present one.
    """
    found: dict[str, list[Setting]] = {}
    for file, number, line in _lines(path, read(path) if text is None else text, [path]):
        if not _ENTITY.match(line):
            pairs = _PAIR.findall(line)
            for name, value in pairs:
                setting = Setting(value.strip('"'), file, number, len(pairs) == 1)
                found.setdefault(name.lower(), []).append(setting)
    return found


def _lines(path: Path, text: str, seen: list[Path]) -> Iterator[tuple[Path, int, str]]:
    """Yield a file's lines, each with its place; in place of an Include those of what it names."""
    for number, line in _logical(text):
        if match := _INCLUDE.match(line):
            inner = path.parent / match[1]
            if inner not in seen and len(seen) < MOST_INCLUDES and inner.exists():
                seen.append(inner)
                yield from _lines(inner, read(inner), seen)
        else:
            yield path, number, line


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, continued ones joined, with the number of their first line."""
    begun, whole = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        bare = re.sub(r"(?<!\\)#.*", "", line).rstrip()
        begun = begun or number
        if bare.endswith("\\"):
            whole += bare[:-1] + " "
            continue
        yield begun, whole + bare
        begun, whole = 0, ""
    if whole:
        yield begun, whole


def installed(path: Path, text: str, wanted: Mapping[str, str]) -> str:
    """Return the text with these values in our block, in place of what was set before.

    Values that are so already are left where they are. What our block sets and is not wanted goes.

    Raises
    ------
    ConfigError
        If a value stands where we must not change it: in an included file, or beside others.
    """
    names = {name.lower() for name in wanted}
    if not _missing(settings(path, text), wanted) and names.issuperset(_ours(text)):
        return text
    text = uninstalled(text)
    present = settings(path, text)
    missing = _missing(present, wanted)
    if not missing:
        return text
    old = [setting for name in missing for setting in present.get(name.lower(), [])]
    _refuse_hidden(path, missing, present)
    lines = text.split("\n")
    for setting in old:
        for number in range(setting.line - 1, _last(lines, setting.line - 1) + 1):
            lines[number] = OFF + lines[number]
    ours = [BEGIN, *(f"{name}={value}" for name, value in missing.items()), END]
    if lines[-1] == "":
        lines.pop()
        return "\n".join([*lines, *ours, ""])
    return "\n".join([*lines, *ours])


def _ours(text: str) -> list[str]:
    """Return the names that our block sets, in lower case."""
    inside = text.partition(BEGIN)[2].partition(END)[0]
    return [name.lower() for _, line in _logical(inside) for name, _ in _PAIR.findall(line)]


def _missing(present: Mapping[str, list[Setting]], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted values that do not hold."""
    holds = {name: found[-1].value for name, found in present.items()}
    return {name: value for name, value in wanted.items() if holds.get(name.lower()) != value}


def _last(lines: list[str], first: int) -> int:
    """Return the row at which a line that begins in row `first` ends."""
    last = first
    while last + 1 < len(lines) and re.sub(r"(?<!\\)#.*", "", lines[last]).rstrip().endswith("\\"):
        last += 1
    return last


def _refuse_hidden(
    path: Path, missing: Mapping[str, str], present: Mapping[str, list[Setting]]
) -> None:
    problems = []
    for name, value in missing.items():
        for setting in present.get(name.lower(), []):
            where = f"{setting.path}:{setting.line}"
            if setting.path != path:
                problems.append(f"{where}: {name} is set in an included file; set {name}={value}")
            elif not setting.alone:
                problems.append(f"{where}: {name} shares its line; give it a line of its own")
    if problems:
        raise ConfigError(problems)


def uninstalled(text: str) -> str:
    """Return the text as it was before our lines came in."""
    kept: list[str] = []
    inside = False
    for line in text.split("\n"):
        if line == BEGIN:
            inside = True
        elif inside:
            inside = line != END
        else:
            kept.append(line.removeprefix(OFF))
    return "\n".join(kept)


def with_last(value: str, ours: str) -> str:
    """Return a list of plug-ins in which ours is the last: `lua,rtsched`.

    Those before it may change a job, or refuse it, and what they tell its user stays.
    """
    names = [name for name in value.split(",") if name and name != ours]
    return ",".join([*names, ours])


def with_all(value: str, ours: tuple[str, ...]) -> str:
    """Return a list of flags that contains ours."""
    names = [name for name in value.split(",") if name]
    known = {name.lower() for name in names}
    return ",".join([*names, *(name for name in ours if name not in known)])


def with_host(path: Path, host: str) -> str:
    """Return a file and those it includes as one text that names one host of a controller.

    An address that the controllers share (SlurmctldAddr) is left out: whoever has control answers
    there.

    Raises
    ------
    InputError
        If one of them cannot be read.
    """
    found = ""
    for _, _, line in _lines(path, read(path), [path]):
        if not _ENTITY.match(line):
            line = _SHARED_ADDRESS.sub("", line)
            line = _CONTROLLER.sub(lambda named: named[0] if named[1] == host else "", line)
        found += f"{line}\n"
    return found
