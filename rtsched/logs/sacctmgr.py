"""Tables that `sacctmgr -P show ...` prints, QOS and associations as JSON too, and node events.

Source: Slurm manual page sacctmgr, with "SPECIFICATIONS FOR EVENTS"; node states of sinfo.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.errors import InputError
from rtsched.logs.source import Source, readable
from rtsched.model.cluster import NodeState
from rtsched.model.units import known_zone, slurm_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import tzinfo
    from pathlib import Path


class Row(NamedTuple):
    """One line of a file: its cells by column, in lower case; where it stands."""

    path: str
    line: int
    command: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return a cell, empty where the file has no such column."""
        return self.cells.get(column.lower(), "").strip()

    def moment(self, column: str, zone: tzinfo | None) -> float:
        """Return the time in a cell, seconds since the epoch.

        Raises
        ------
        InputError
            If it is none.
        """
        moment = slurm_moment(self.text(column), 0.0, zone)
        if math.isnan(moment):
            raise self.error(f"{column} is {self.text(column)!r}, which is not a time")
        return moment

    def error(self, what: str) -> InputError:
        """Return an error about this line."""
        return InputError(
            self.path, f"{what}; write the file again with `{self.command}`", line=self.line
        )


def text_of(path: str | Path) -> tuple[str, str]:
    """Return the name and the content of a file."""
    with Source(path) as source:
        return source.path, readable(b"".join(source.line_blocks()))


def rows_of(path: str | Path, needed: tuple[str, ...], command: str) -> list[Row]:
    """Return the lines of a file behind its header, which has the columns that are needed."""
    return rows_in(*text_of(path), needed, command)


def rows_in(name: str, text: str, needed: tuple[str, ...], command: str) -> list[Row]:
    """Return the lines of what a command printed, as `rows_of` a file called `name`.

    Messages of a shell may stand before the header, but nothing with as many cells.
    """
    lines = [
        (number, line.split("|"))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not lines:
        raise InputError(name, f"the file is empty; write it with `{command}`")
    at = next((at for at, (_, cells) in enumerate(lines) if not _missing(cells, needed)), 0)
    if any(len(cells) >= len(lines[at][1]) for _, cells in lines[:at]):
        at = 0
    first, cells = lines[at]
    if missing := _missing(cells, needed):
        raise InputError(
            name,
            f"no header line with {' and '.join(missing)}; write the file with `{command}`, "
            "without -n",
            line=first,
        )
    header = _names(cells)
    rows = []
    for number, cells in lines[at + 1 :]:
        row = Row(name, number, command, dict(zip(header, cells, strict=False)))
        if len(cells) != len(header):
            raise row.error(f"{len(cells)} fields, where the header has {len(header)}")
        rows.append(row)
    return rows


def _names(cells: list[str]) -> list[str]:
    """Return what a header calls its columns, in lower case."""
    return [cell.strip().lower() for cell in cells]


def _missing(cells: list[str], needed: tuple[str, ...]) -> list[str]:
    """Return the columns that a header lacks."""
    names = _names(cells)
    return [column for column in needed if column.lower() not in names]


_MOST, _PER = "limits/max/", "limits/max/tres/minutes/per/"
_TRES = {
    "GrpTRES": f"{_MOST}tres/total",
    "GrpTRESMins": f"{_MOST}tres/minutes/total",
    "GrpTRESRunMins": f"{_PER}qos",
    "MaxTRESMins": f"{_PER}job",
    "MaxTRESRunMinsPA": f"{_PER}account",
    "MaxTRESRunMinsPU": f"{_PER}user",
    "MaxTRES": f"{_MOST}tres/per/job",
    "MaxTRESPerNode": f"{_MOST}tres/per/node",
    "MaxTRESPA": f"{_MOST}tres/per/account",
    "MaxTRESPU": f"{_MOST}tres/per/user",
    "MinTRES": "limits/min/tres/per/job",
}
_COUNTS = {
    "GrpJobs": f"{_MOST}active_jobs/count",
    "GrpSubmit": f"{_MOST}jobs/count",
    "MaxJobsPA": f"{_MOST}jobs/active_jobs/per/account",
    "MaxJobsPU": f"{_MOST}jobs/active_jobs/per/user",
    "MaxSubmitPA": f"{_MOST}jobs/per/account",
    "MaxSubmitPU": f"{_MOST}jobs/per/user",
    "Priority": "priority",
    "LimitFactor": "limits/factor",
    "UsageFactor": "usage_factor",
}
_SECONDS = {
    "GrpWall": (f"{_MOST}wall_clock/per/qos", 60),
    "MaxWall": (f"{_MOST}wall_clock/per/job", 60),
    "GraceTime": ("limits/grace_time", 1),
    "PreemptExemptTime": ("preempt/exempt_time", 1),
}
_FLAGS = {"OVERRIDE_PARTITION_QOS": "OverPartQOS", "NO_DECAY": "NoDecay"}
"""Flags that limits depend on, and what text calls them."""


_OF_ASSOCIATION = {
    "GrpTRES": "max/tres/total",
    "GrpTRESMins": "max/tres/group/minutes",
    "GrpTRESRunMins": "max/tres/group/active",
    "MaxTRESMins": "max/tres/minutes/per/job",
    "MaxTRES": "max/tres/per/job",
    "MaxTRESPerNode": "max/tres/per/node",
}
_COUNTS_OF_ASSOCIATION = {
    "GrpJobs": "max/jobs/per/count",
    "GrpSubmit": "max/jobs/per/submitted",
    "MaxJobs": "max/jobs/active",
    "MaxSubmit": "max/jobs/total",
}
_WALLS_OF_ASSOCIATION = {
    "GrpWall": ("max/per/account/wall_clock", 60),
    "MaxWall": ("max/jobs/per/wall_clock", 60),
}


def qos_rows(path: str, text: str, command: str) -> list[Row]:
    """Return what JSON says of each QOS, under the columns of `sacctmgr -P show qos`.

    Raises
    ------
    InputError
        If it is something else, or of a release that puts limits elsewhere.
    """
    return _rows(path, text, command, "qos", _of_qos)


def association_rows(path: str, text: str, command: str) -> list[Row]:
    """Return what JSON says of each association, under the columns of `sacctmgr -P show assoc`.

    Raises
    ------
    InputError
        If it is something else, or of a release that puts limits elsewhere.
    """
    return _rows(path, text, command, "associations", _of_association)


def _rows(
    path: str,
    text: str,
    command: str,
    key: str,
    cells_of: Callable[[dict[str, Any]], dict[str, str]],
) -> list[Row]:
    try:
        found = [cells_of(each) for each in json.loads(text)[key]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            path,
            f"no JSON of `sacctmgr show {key}` of Slurm 23.11 or later; write the file with "
            f"`{command}`",
        ) from error
    return [
        Row(path, 1, command, {column.lower(): cell for column, cell in cells.items()})
        for cells in found
    ]


def _of_qos(qos: dict[str, Any]) -> dict[str, str]:
    """Return the cells of one QOS; every field must be where it is looked for."""
    cells = {
        "Name": str(qos["name"]),
        "Flags": ",".join(_FLAGS.get(flag, flag) for flag in qos["flags"]),
        "Preempt": ",".join(qos["preempt"]["list"]),
        "PreemptMode": ",".join(mode for mode in qos["preempt"]["mode"] if mode != "DISABLED"),
    }
    return cells | _limits(qos, _TRES, _COUNTS, _SECONDS)


def _of_association(association: dict[str, Any]) -> dict[str, str]:
    """Return the cells of one association; the account above it is named."""
    cells = {
        "Cluster": str(association["cluster"]),
        "Account": str(association["account"]),
        "User": str(association["user"]),
        "Partition": str(association["partition"] or ""),
        "ParentName": str(association["parent_account"] or ""),
        "QOS": ",".join(association["qos"]),
        "Def QOS": str(association["default"]["qos"] or ""),
    }
    return cells | _limits(
        association, _OF_ASSOCIATION, _COUNTS_OF_ASSOCIATION, _WALLS_OF_ASSOCIATION
    )


def _limits(
    table: dict[str, Any],
    tres: Mapping[str, str],
    counts: Mapping[str, str],
    seconds: Mapping[str, tuple[str, int]],
) -> dict[str, str]:
    """Return the cells of limits by the columns' places in the JSON."""
    cells = {column: _amounts(_at(table, place)) for column, place in tres.items()}
    for column, place in counts.items():
        number = _number(_at(table, place))
        cells[column] = "" if number is None else f"{number:.15g}"
    for column, (place, scale) in seconds.items():
        number = _number(_at(table, place))
        cells[column] = "" if number is None else _duration(int(number) * scale)
    return cells


def _at(table: Any, place: str) -> Any:
    for name in place.split("/"):
        table = table[name]
    return table


def _amounts(entries: list[dict[str, Any]]) -> str:
    """Return `cpu=8,gres/gpu=2`, as text has amounts."""
    return ",".join(
        f"{each['type']}{'/' if each.get('name') else ''}{each.get('name') or ''}={each['count']}"
        for each in entries
    )


def _number(value: Any) -> float | None:
    """Return a number, None if it is not set."""
    if isinstance(value, dict):
        value = value["number"] if value["set"] and not value["infinite"] else None
    return None if value is None else float(value)


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:{rest:02}"


SHOW_EVENTS = "sacctmgr -P show event start=2026-01-01 format=NodeName,TimeStart,TimeEnd,State"
"""The command that writes the file; a reason may have bars in it, and is left out."""

_STATES = {
    "DOWN": NodeState.DOWN,
    "DRAIN": NodeState.DRAINED,
    "DRAINED": NodeState.DRAINED,
    "DRAINING": NodeState.DRAINED,
    "FAIL": NodeState.DRAINED,
    "FAILING": NodeState.DRAINED,
}
"""States in which a node takes no jobs, but for those of power saving."""


class Outage(NamedTuple):
    """A node takes no jobs for some time."""

    node: str
    """Its name."""
    start: float
    """Seconds since the epoch."""
    end: float
    """Seconds since the epoch; inf: it goes on."""
    state: NodeState


def read_outages(path: str | Path, zone: str | None) -> list[Outage]:
    """Return the outages of nodes; events of the cluster and other states of nodes are none.

    Parameters
    ----------
    path : path
        The output of `SHOW_EVENTS`, perhaps with more columns.
    zone : str or None
        The time zone of its times, such as Europe/Berlin; None: this machine's.

    Raises
    ------
    InputError
        If the file cannot be read or is something else.
    """
    found, clock = [], known_zone(zone)
    for row in rows_of(path, ("NodeName", "TimeStart", "TimeEnd", "State"), SHOW_EVENTS):
        state = _state(row.text("State"))
        if not row.text("NodeName") or state == NodeState.UP:
            continue
        start, end = row.moment("TimeStart", clock), math.inf
        if row.text("TimeEnd") != "Unknown":
            end = row.moment("TimeEnd", clock)
        if end > start:
            found.append(Outage(row.text("NodeName"), start, end, state))
    return found


def _state(text: str) -> NodeState:
    """Return what a state such as `IDLE+DRAIN` or `DOWN*` means, the worst of its words."""
    words = text.upper().rstrip("*~#!%$@^-").split("+")
    return max((_STATES.get(word, NodeState.UP) for word in words), default=NodeState.UP)
