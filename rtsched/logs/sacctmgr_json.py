"""QOS of `sacctmgr --json show qos` (Slurm 23.11 to 26.05), as the rows that its text has."""

from __future__ import annotations

import json
from typing import Any

from rtsched.errors import InputError
from rtsched.logs.sacctmgr import Row

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


def qos_rows(path: str, text: str, command: str) -> list[Row]:
    """Return what JSON says of each QOS, under the columns of `sacctmgr -P show qos`.

    Raises
    ------
    InputError
        If it is something else, or of a release that puts limits elsewhere.
    """
    try:
        return [Row(path, 1, command, _cells(each)) for each in json.loads(text)["qos"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            path,
            "no `sacctmgr --json show qos` of Slurm 23.11 or later; write the file with "
            f"`{command}`",
        ) from error


def _cells(qos: dict[str, Any]) -> dict[str, str]:
    """Return the cells of one QOS; every field must be where it is looked for."""
    cells = {
        "Name": str(qos["name"]),
        "Flags": ",".join(_FLAGS.get(flag, flag) for flag in qos["flags"]),
        "Preempt": ",".join(qos["preempt"]["list"]),
        "PreemptMode": ",".join(mode for mode in qos["preempt"]["mode"] if mode != "DISABLED"),
    }
    cells |= {column: _amounts(_at(qos, place)) for column, place in _TRES.items()}
    for column, place in _COUNTS.items():
        number = _number(_at(qos, place))
        cells[column] = "" if number is None else f"{number:.15g}"
    for column, (place, scale) in _SECONDS.items():
        number = _number(_at(qos, place))
        cells[column] = "" if number is None else _duration(int(number) * scale)
    return {column.lower(): cell for column, cell in cells.items()}


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
