"""What `sacctmgr -P show qos` and `sacctmgr -P show assoc` print: the limits of a site.

References
----------
Slurm manual page sacctmgr; Slurm manual, "Resource Limits".
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rtsched.errors import InputError
from rtsched.logs.cells import readable
from rtsched.logs.slurm_cluster import conf_lines, pairs_of
from rtsched.logs.source import Source
from rtsched.model.limits import JOBS, Association, LimitSet, Qos, SiteLimits
from rtsched.model.units import size_bytes, slurm_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rtsched.model.limits import Amounts

SHOW_QOS, SHOW_ASSOCIATIONS = "sacctmgr -P show qos", "sacctmgr -P show assoc tree"
"""The commands that write the files."""

_SCOPES = {
    "group": ("GrpTRES", "GrpJobs"),
    "user": ("MaxTRESPU", "MaxJobsPU"),
    "account": ("MaxTRESPA", "MaxJobsPA"),
    "job": ("MaxTRES", ""),
}
_OTHERS = (
    "GrpTRESMins",
    "GrpTRESRunMins",
    "GrpWall",
    "GrpSubmit",
    "MaxSubmit",
    "MaxSubmitPU",
    "MaxSubmitPA",
    "MaxTRESPerNode",
    "MaxTRESRunMinsPU",
    "MaxTRESRunMinsPA",
    "MinTRES",
)
"""Columns of limits that are reported, and not enforced."""

_UNSET = frozenset(("", "-1"))
_COUNT = re.compile(r"\d{1,15}", re.ASCII)


class _Row(NamedTuple):
    """One line of a file: its cells by column, in lower case; where it stands."""

    path: str
    line: int
    command: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return a cell, empty where the file has no such column."""
        return self.cells.get(column.lower(), "").strip()

    def number(self, column: str, read: Callable[[str], float]) -> float | None:
        """Return the number in a cell, None if it sets no limit.

        Raises
        ------
        InputError
            If it is something else.
        """
        text = self.text(column)
        if text in _UNSET:
            return None
        value = read(text)
        if math.isnan(value):
            raise self.error(f"{column} is {text!r}, which is not a limit")
        return value

    def amounts(self, column: str, scale: int = 1) -> Amounts:
        """Return the amounts in a cell such as `cpu=8,gres/gpu=2,mem=4G`, memory in bytes.

        Raises
        ------
        InputError
            If it is something else.
        """
        amounts: Amounts = {}
        for pair in self.text(column).split(","):
            name, _, value = pair.strip().partition("=")
            if not name or value == "-1":
                continue
            amount = size_bytes(value, "M" if name == "mem" else "") * scale
            if not 0 <= amount < 2.0**62:
                raise self.error(f"{column} has {pair.strip()!r}, which is not NAME=COUNT")
            amounts[name.lower()] = int(amount)
        return amounts

    def error(self, what: str) -> InputError:
        """Return an error about this line."""
        return InputError(
            self.path, f"{what}; write the file again with `{self.command}`", line=self.line
        )


def read_limits(
    qos: str | Path | None, associations: str | Path | None, cluster: str | Path | None = None
) -> SiteLimits:
    """Return the limits of a site.

    Parameters
    ----------
    qos : path or None
        The output of `sacctmgr -P show qos`.
    associations : path or None
        The output of `sacctmgr -P show assoc`, with `tree` or the column ParentName if accounts
        stand below others.
    cluster : path, optional
        A slurm.conf, or the output of `scontrol show nodes` with that of `scontrol show partition`
        behind it: the QOS of partitions is read from it.

    Raises
    ------
    InputError
        If a file cannot be read or is something else.
    """
    said: list[str] = []
    partitions = None if cluster is None else _partition_qos(cluster)
    if qos is not None and partitions is None:
        said.append(
            "The QOS of partitions is not known, and taken to be none: a slurm.conf tells it, or "
            "the output of `scontrol show partition` behind that of `scontrol show nodes`."
        )
    return SiteLimits(
        None if qos is None else _qos(_rows(qos, ("Name",), SHOW_QOS)),
        None
        if associations is None
        else _associations(_rows(associations, ("Account", "User"), SHOW_ASSOCIATIONS), said),
        partitions or {},
        tuple(said),
    )


def _text(path: str | Path) -> tuple[str, str]:
    """Return the name and the content of a file."""
    with Source(path) as source:
        return source.path, readable(b"".join(source.line_blocks()))


def _rows(path: str | Path, needed: tuple[str, ...], command: str) -> list[_Row]:
    """Return the lines of a file behind its header, which has the columns that are needed."""
    name, text = _text(path)
    header: list[str] = []
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split("|")
        if not header:
            header = [cell.strip().lower() for cell in cells]
            missing = [column for column in needed if column.lower() not in header]
            if missing:
                raise InputError(
                    name,
                    f"no header line with {' and '.join(missing)}; write the file with "
                    f"`{command}`, without -n",
                    line=number,
                )
            continue
        row = _Row(name, number, command, dict(zip(header, cells, strict=False)))
        if len(cells) != len(header):
            raise row.error(f"{len(cells)} fields, where the header has {len(header)}")
        rows.append(row)
    if not header:
        raise InputError(name, f"the file is empty; write it with `{command}`")
    return rows


def _limits(row: _Row, scopes: dict[str, tuple[str, str]]) -> LimitSet:
    """Return the limits of one line."""
    found = {}
    for scope, (amounts, count) in scopes.items():
        found[scope] = row.amounts(amounts) if amounts else {}
        jobs = row.number(count, _whole) if count else None
        if jobs is not None:
            found[scope][JOBS] = int(jobs)
    wall = row.number("MaxWall", slurm_duration)
    return LimitSet(
        **found,
        job_seconds=row.amounts("MaxTRESMins", 60),
        wall=math.inf if wall is None else wall,
        others=tuple(name for name in _OTHERS if row.text(name) not in _UNSET),
    )


def _whole(text: str) -> float:
    return float(text) if _COUNT.fullmatch(text) else math.nan


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _qos(rows: Iterable[_Row]) -> dict[str, Qos]:
    found = {}
    for row in rows:
        factor = row.number("LimitFactor", _factor)
        found[row.text("Name")] = Qos(
            _limits(row, _SCOPES),
            "overpartqos" in row.text("Flags").lower().split(","),
            1.0 if factor is None else factor,
        )
    return found


def _associations(rows: list[_Row], said: list[str]) -> tuple[Association, ...]:
    clusters = dict.fromkeys(row.text("Cluster") for row in rows)
    if len(clusters) > 1:
        first, second, *_ = clusters
        raise InputError(
            rows[0].path,
            f"associations of several clusters ({first}, {second}); write those of one with "
            f"`{SHOW_ASSOCIATIONS} cluster={first}`",
        )
    scopes = {**_SCOPES, "user": ("", "MaxJobs"), "account": ("", "")}
    above = _parents([row for row in rows if not row.text("User")], said)
    return tuple(
        Association(
            row.text("Account"),
            row.text("User"),
            row.text("Partition"),
            "" if row.text("User") else above[row.text("Account")],
            _limits(row, scopes),
        )
        for row in rows
    )


def _parents(rows: list[_Row], said: list[str]) -> dict[str, str]:
    """Return the account above each account: by its name, else as indented, else the root."""
    accounts = [row.text("Account") for row in rows]
    named = {row.text("Account"): row.text("ParentName") for row in rows}
    if any(named.values()):
        return named
    depths = [len(cell) - len(cell.lstrip()) for cell in (row.cells["account"] for row in rows)]
    above: dict[str, str] = {}
    if any(depths):
        line: list[tuple[int, str]] = []
        for depth, account in zip(depths, accounts, strict=True):
            while line and line[-1][0] >= depth:
                line.pop()
            above[account] = line[-1][1] if line else ""
            line.append((depth, account))
        return above
    root = "root" if "root" in accounts else ""
    if len(accounts) > 2:
        said.append(
            "The associations do not tell which account is below which (`tree`, or the column "
            "ParentName): all accounts stand below the root."
        )
    return {account: "" if account == root else root for account in accounts}


def _partition_qos(path: str | Path) -> dict[str, str] | None:
    """Return the QOS of partitions, of a slurm.conf or the output of `scontrol show partition`.

    None: the file tells of no partition.
    """
    name, text = _text(path)
    found: dict[str, str] = {}
    partition, default = "", ""
    for _, line in conf_lines(Path(name), text, []):
        pairs = pairs_of(line)
        kind = next(iter(pairs), "")
        if kind == "partitionname":
            partition = pairs[kind]
            found[partition] = default
        elif kind == "nodename":
            partition = ""
        if partition and "qos" in pairs:
            qos = pairs["qos"]
            found[partition] = "" if qos.upper() in {"N/A", "(NULL)"} else qos
        if partition.upper() == "DEFAULT":
            default = found.pop(partition, default)
    return {name: qos for name, qos in found.items() if qos} if found else None
