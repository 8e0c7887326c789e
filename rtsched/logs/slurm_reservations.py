"""Reservations of nodes, as `scontrol show reservation` or `sacctmgr -P show reservation` prints.

Source: Slurm manual pages scontrol and sacctmgr; output of Slurm 26.05.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rtsched.errors import InputError
from rtsched.logs.hostlist import expand
from rtsched.logs.sacctmgr import Row, rows_of, text_of
from rtsched.model.units import known_zone

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

SHOW_RESERVATIONS = "scontrol show reservation"
"""The command that writes the reservations of now and later, one line or several for each."""
PAST_RESERVATIONS = (
    "sacctmgr -P show reservation start=2026-01-01 format=Name,Start,End,NodeNames,Flags,TRES"
)
"""The command that writes those of the past."""

_CORES = re.compile(r"NodeName=(\S+)\s+CoreIDs=(\S+)")
_FIELD = re.compile(r"(\w+)=(\S*)")
_COLUMNS = {"timestart": "starttime", "timeend": "endtime", "nodename": "nodes"}
_CPUS = re.compile(r"(?:^|,)cpu=(\d{1,9})(?:,|$)", re.ASCII)
_NO_NODES = frozenset(("", "(null)", "none"))
_FLAGS = {"FLOAT": "TIME_FLOAT"}
"""Flags that JSON calls otherwise than text."""
_RECURRING = frozenset(("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"))


class Reservation(NamedTuple):
    """Nodes that are set aside for some time."""

    name: str
    nodes: tuple[str, ...]
    """Their names, as Slurm lists them."""
    start: float
    """Seconds since the epoch."""
    end: float
    """Seconds since the epoch."""
    obstacle: str
    """Why it cannot be replayed; empty: it can."""
    recurs: bool
    """Whether it comes again, by its flags; this is the one time that is printed."""
    cpus: int = 0
    """Reserved CPUs of all nodes together, as accounting says; 0: not known."""
    cpus_on: tuple[int, ...] = ()
    """Reserved CPUs of each node, where scontrol lists their cores; empty: not known."""


def read_reservations(path: str | Path, zone: str | None) -> list[Reservation]:
    """Return the reservations of nodes.

    Parameters
    ----------
    path : path
        The output of `SHOW_RESERVATIONS`, with or without `-o` or `--json`, or of
        `PAST_RESERVATIONS`.
    zone : str or None
        The time zone of its times, such as Europe/Berlin; None: this machine's.

    Raises
    ------
    InputError
        If the file cannot be read or is something else.
    """
    clock = known_zone(zone)
    return [_reservation(row, clock) for row in _rows(path)]


def _rows(path: str | Path) -> list[Row]:
    """Return the fields of each reservation, under scontrol's names in lower case."""
    name, text = text_of(path)
    if text.lstrip().startswith("{"):
        return _rows_of_json(name, text)
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line]
    if lines and lines[0][1] == "No reservations in the system":
        return []
    shown = any(line.startswith("ReservationName=") for _, line in lines)
    if not shown and any("|" in line for _, line in lines):
        needed = ("Name", "TimeStart", "TimeEnd", "NodeName", "Flags", "TRES")
        return [
            row._replace(cells={_COLUMNS.get(key, key): cell for key, cell in row.cells.items()})
            for row in rows_of(path, needed, PAST_RESERVATIONS)
        ]
    rows: list[Row] = []
    for number, line in lines:
        if line.startswith("ReservationName="):
            rows.append(Row(name, number, SHOW_RESERVATIONS, {}))
        elif not rows:
            continue
        own, cells = line.partition("Comment=")[0], rows[-1].cells
        for pair in _CORES.findall(own):
            cells["cores"] = " ".join([*cells.get("cores", "").split(), "=".join(pair)])
        for key, cell in _FIELD.findall(own):
            cells.setdefault(key.lower(), cell)
    if not rows:
        raise InputError(
            name,
            f"no reservation is in it; write it with `{SHOW_RESERVATIONS}` or "
            f"`{PAST_RESERVATIONS}`",
        )
    return rows


class _Number(msgspec.Struct):
    set: bool = True
    infinite: bool = False
    number: float = 0.0


class _Cores(msgspec.Struct):
    node: str
    core: str


class _Shown(msgspec.Struct):
    name: str
    start_time: _Number | float
    end_time: _Number | float
    node_list: str | None = None
    flags: list[str] | None = None
    tres: str | None = None
    core_specializations: list[_Cores] | None = None


class _AllShown(msgspec.Struct):
    reservations: list[_Shown]


def _rows_of_json(name: str, text: str) -> list[Row]:
    """Return the fields of each reservation of `scontrol --json show reservation`."""
    try:
        found = msgspec.json.decode(text, type=_AllShown).reservations
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            name, f"no `scontrol --json show reservation` ({error}); write the file again"
        ) from error
    return [
        Row(
            name,
            1,
            SHOW_RESERVATIONS,
            {
                "reservationname": each.name,
                "starttime": _seconds(each.start_time),
                "endtime": _seconds(each.end_time),
                "nodes": each.node_list or "",
                "flags": ",".join(_FLAGS.get(flag, flag) for flag in each.flags or ()),
                "tres": each.tres or "",
                "cores": " ".join(
                    f"{one.node}={one.core}" for one in each.core_specializations or ()
                ),
            },
        )
        for each in found
    ]


def _seconds(value: _Number | float) -> str:
    """Return a time as text that `Row.moment` reads; no number where it is not set."""
    if isinstance(value, _Number):
        if value.infinite or not value.set:
            return "not set"
        value = value.number
    return f"{value:.0f}"


def _reservation(row: Row, zone: tzinfo | None) -> Reservation:
    """Return what the fields of one reservation mean."""
    named, flags = row.text("nodes"), row.text("flags").upper().split(",")
    nodes: tuple[str, ...] = ()
    cores: dict[str, int] = {}
    try:
        if named.lower() not in _NO_NODES:
            nodes = tuple(expand(named))
        for pair in row.text("cores").split():
            name, _, ids = pair.partition("=")
            cores[name] = len(expand(f"[{ids}]"))
    except ValueError as error:
        raise row.error(f"the nodes: {error}") from None
    start, end = row.moment("starttime", zone), row.moment("endtime", zone)
    obstacle = ""
    if not nodes:
        obstacle = "names no nodes"
    elif "TIME_FLOAT" in flags:
        obstacle = "moves with the time"
    recurs = any(flag in _RECURRING for flag in flags)
    name = row.text("reservationname") or row.text("name")
    match = _CPUS.search(row.text("tres"))
    cpus = int(match[1]) if match else 0
    threads = max(cpus // max(sum(cores.values()), 1), 1)
    cpus_on = tuple(cores.get(node, 0) * threads for node in nodes) if cores else ()
    if row.command == SHOW_RESERVATIONS:
        cpus = 0
    return Reservation(name, nodes, start, end, obstacle, recurs, cpus, cpus_on)
