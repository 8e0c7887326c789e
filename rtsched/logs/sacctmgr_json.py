"""JSON of `sacctmgr show qos` and `show assoc` (Slurm 23.11 to 26.05), as rows of their text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rtsched.errors import InputError
from rtsched.logs.sacctmgr import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
