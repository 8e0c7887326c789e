"""QOS, associations and partitions: limits, and who preempts whom.

References
----------
Slurm manual pages sacctmgr and slurm.conf (PreemptType, PreemptMode, PreemptExemptTime,
PriorityTier); Slurm manual, "Resource Limits" and "Preemption".
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rtsched.errors import InputError
from rtsched.logs.sacctmgr import Row, association_rows, qos_rows, rows_in, text_of
from rtsched.logs.slurm_cluster import (
    conf_lines,
    pairs_of,
    partition_settings,
    with_partitions_as_text,
)
from rtsched.model.limits import (
    CALC_PERIOD,
    GROUP_SUBMITS,
    GROUP_WALL,
    HALF_LIFE,
    JOB_MINUTES,
    JOBS,
    LEAST,
    MINUTES,
    Association,
    LimitSet,
    Qos,
    SiteLimits,
)
from rtsched.model.preemption import CANCEL, NONE, OFF, REQUEUE, SUSPEND, SitePreemption
from rtsched.model.units import size_bytes, slurm_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rtsched.model.limits import Amounts

_MODES = (OFF, CANCEL, REQUEUE, SUSPEND)
_TYPES = {"preempt/none": NONE, "preempt/qos": "qos", "preempt/partition_prio": "partition_prio"}


def mode_of(text: str) -> str | None:
    """Return what a PreemptMode does with a preempted job, None if it is none.

    Of `SUSPEND,GANG` the first counts; `GANG` alone preempts nobody, and `WITHIN` says among whom.
    """
    words = [word.strip().lower() for word in text.split(",")]
    found = [word for word in words if word not in {"gang", "within"}]
    if not found:
        return OFF
    return found[0] if len(found) == 1 and found[0] in _MODES else None


def read_preemption(cluster: str | Path) -> SitePreemption:
    """Return how jobs preempt others.

    Parameters
    ----------
    cluster : path
        A slurm.conf, or the output of `scontrol show nodes`, perhaps with that of `scontrol show
        partition` behind it, which tells of partitions alone. Other files tell nothing.

    Raises
    ------
    InputError
        If the file cannot be read, or a setting has a value that Slurm does not know.
    """
    path, text = text_of(cluster)
    text = with_partitions_as_text(path, text)
    if not any(word in text.lower() for word in ("preempt", "prioritytier", "include")):
        return SitePreemption()
    lines = conf_lines(Path(path), text, [])
    whole: dict[str, tuple[int, str]] = {}
    for number, line in lines:
        pairs = pairs_of(line)
        name = next(iter(pairs), "")
        whole[name] = number, pairs.get(name, "")
    by, mode, exempt = NONE, OFF, 0.0
    if "preempttype" in whole:
        number, value = whole["preempttype"]
        by = _TYPES.get(value.lower(), "")
        if not by:
            raise _wrong(path, number, "PreemptType", value, ", ".join(_TYPES))
    if "preemptmode" in whole:
        number, value = whole["preemptmode"]
        mode = _mode(path, number, value)
    if "preemptexempttime" in whole:
        number, value = whole["preemptexempttime"]
        exempt = 0.0 if value == "-1" else slurm_duration(value)
        if math.isnan(exempt):
            raise _wrong(path, number, "PreemptExemptTime", value, "times such as 00:10:00, and -1")
    return SitePreemption(
        by,
        mode,
        exempt,
        {
            name: _tier(path, *setting)
            for name, setting in _set(partition_settings(lines, "prioritytier")).items()
        },
        {
            name: _mode(path, *setting)
            for name, setting in _set(partition_settings(lines, "preemptmode")).items()
        },
    )


def _set(found: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Return the partitions that a setting is there for."""
    return {name: setting for name, setting in found.items() if setting[1]}


def _mode(path: str, number: int, text: str) -> str:
    mode = mode_of(text)
    if mode is None:
        raise _wrong(path, number, "PreemptMode", text, ", ".join(_MODES).upper())
    return mode


def _tier(path: str, number: int, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _wrong(path, number, "PriorityTier", text, "numbers from 0 to 65533")
    return int(text)


def _wrong(path: str, number: int, name: str, text: str, known: str) -> InputError:
    return InputError(
        path, f"{name}={text} is not known (known: {known}); put it right", line=number
    )


SHOW_QOS, SHOW_ASSOCIATIONS = "sacctmgr -P show qos", "sacctmgr -P show assoc tree"
"""The commands that write the files."""

_SCOPES = {
    "group": ("GrpTRES", "GrpJobs"),
    "user": ("MaxTRESPU", "MaxJobsPU"),
    "account": ("MaxTRESPA", "MaxJobsPA"),
    "job": ("MaxTRES", ""),
}
_SUBMITS = (GROUP_SUBMITS, "MaxSubmit", "MaxSubmitPU", "MaxSubmitPA")
_OTHERS = (*_SUBMITS, "MaxTRESPerNode")
"""Columns of limits that replays report, and do not enforce."""

_PAIRS = [name for pair in _SCOPES.values() for name in pair if name]
QOS_COLUMNS = (
    *("Name", "Flags", "LimitFactor", "UsageFactor", "MaxWall", JOB_MINUTES, LEAST),
    *(*MINUTES, *_PAIRS, *_OTHERS),
)
"""Columns of limits of QOS; sacctmgr shows LimitFactor only where it is asked for."""

_LIMITS_OF_ASSOCIATIONS = {name.lower() for name in ("MaxJobs", *QOS_COLUMNS[4:])}

Lines = list[tuple[int, str]]

_UNSET = frozenset(("", "-1"))
_COUNT = re.compile(r"\d{1,15}", re.ASCII)


def _number(row: Row, column: str, read: Callable[[str], float]) -> float | None:
    """Return the number in a cell, None if it sets no limit.

    Raises
    ------
    InputError
        If it is something else.
    """
    text = row.text(column)
    if text in _UNSET:
        return None
    value = read(text)
    if math.isnan(value):
        raise row.error(f"{column} is {text!r}, which is not a limit")
    return value


def _amounts(row: Row, column: str) -> Amounts:
    """Return the amounts in a cell such as `cpu=8,gres/gpu=2,mem=4G`, memory in bytes.

    Where Slurm counts minutes, they are amounts times seconds.

    Raises
    ------
    InputError
        If it is something else.
    """
    amounts: Amounts = {}
    scale, bound = (60, 2.0**90) if column in {JOB_MINUTES, *MINUTES} else (1, 2.0**62)
    for pair in row.text(column).split(","):
        name, _, value = pair.strip().partition("=")
        if not name or value == "-1":
            continue
        amount = size_bytes(value, "M" if name == "mem" else "")
        if not 0 <= amount < bound:
            raise row.error(f"{column} has {pair.strip()!r}, which is not NAME=COUNT")
        amounts[name.lower()] = int(amount) * scale
    return amounts


def read_limits(
    qos: str | Path | None, associations: str | Path | None, cluster: str | Path | None = None
) -> SiteLimits:
    """Return the limits of a site.

    Parameters
    ----------
    qos : path or None
        The output of `sacctmgr -P show qos`, or of `sacctmgr --json show qos`.
    associations : path or None
        The output of `sacctmgr -P show assoc`, with `tree` or the column ParentName if accounts
        stand below others.
    cluster : path, optional
        A slurm.conf, or the output of `scontrol show nodes` with that of `scontrol show partition`
        behind it: the QOS of partitions is read from it, and from a slurm.conf how used time counts
        (AccountingStorageEnforce, PriorityDecayHalfLife).

    Raises
    ------
    InputError
        If a file cannot be read or is something else.
    """
    notes: list[str] = []
    name, text = ("", "") if cluster is None else text_of(cluster)
    lines = conf_lines(Path(name), text, [])
    partitions = _partition_qos(lines)
    safe, half_life = _used_time(name, lines)
    if qos is not None and partitions is None:
        notes.append(
            "The QOS of partitions is not known, and taken to be none: a slurm.conf tells it, or "
            "the output of `scontrol show partition` behind that of `scontrol show nodes`."
        )
    rows = None if associations is None else _association_rows(associations)
    if rows is not None and not any(_LIMITS_OF_ASSOCIATIONS & row.cells.keys() for row in rows):
        notes.append(
            f"{associations} has no column of limits, such as GrpTRES or MaxJobs: no limit of an "
            f"association is kept. Write it with `{SHOW_ASSOCIATIONS}`."
        )
    return SiteLimits(
        None if qos is None else _qos(_qos_rows(qos)),
        None if rows is None else _associations(rows, notes),
        partitions or {},
        safe,
        half_life,
        assumptions=tuple(notes),
    )


def _qos_rows(path: str | Path) -> list[Row]:
    """Return what text or JSON says of each QOS."""
    name, text = text_of(path)
    if text.lstrip().startswith("{"):
        return qos_rows(name, text, SHOW_QOS)
    return rows_in(name, text, ("Name",), SHOW_QOS)


def _association_rows(path: str | Path) -> list[Row]:
    """Return what text or JSON says of each association."""
    name, text = text_of(path)
    if text.lstrip().startswith("{"):
        return association_rows(name, text, SHOW_ASSOCIATIONS)
    return rows_in(name, text, ("Account", "User"), SHOW_ASSOCIATIONS)


def limits_in(
    qos: str,
    associations: str,
    partition_qos: Mapping[str, str],
    calc_period: float = CALC_PERIOD,
    *,
    safe: bool = False,
    half_life: float = HALF_LIFE,
) -> SiteLimits:
    """Return the limits of a site, by what the two commands print and the QOS of partitions.

    `calc_period`, `safe` and `half_life` as in `SiteLimits`.

    Raises
    ------
    InputError
        If it is something else.
    """
    notes: list[str] = []
    return SiteLimits(
        _qos(rows_in(SHOW_QOS, qos, ("Name",), SHOW_QOS)),
        _associations(
            rows_in(SHOW_ASSOCIATIONS, associations, ("Account", "User"), SHOW_ASSOCIATIONS), notes
        ),
        partition_qos,
        safe,
        half_life,
        calc_period,
        assumptions=tuple(notes),
    )


def _limits(row: Row, scopes: dict[str, tuple[str, str]]) -> LimitSet:
    """Return the limits of one line."""
    found = {}
    for scope, (amounts, count) in scopes.items():
        found[scope] = _amounts(row, amounts) if amounts else {}
        jobs = _number(row, count, _whole) if count else None
        if jobs is not None:
            found[scope][JOBS] = int(jobs)
    wall = _number(row, "MaxWall", slurm_duration)
    group_wall = _number(row, GROUP_WALL, slurm_duration)
    seconds = {word: _amounts(row, word) for word in MINUTES if word != GROUP_WALL}
    if group_wall is not None and group_wall < math.inf:
        seconds[GROUP_WALL] = {JOBS: int(group_wall)}
    submits = {name: _number(row, name, _whole) for name in _SUBMITS}
    return LimitSet(
        **found,
        seconds={word: amounts for word, amounts in seconds.items() if amounts},
        per_node=_amounts(row, "MaxTRESPerNode"),
        least=_amounts(row, LEAST),
        submits={name: int(most) for name, most in submits.items() if most is not None},
        job_seconds=_amounts(row, JOB_MINUTES),
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


def _qos(rows: Iterable[Row]) -> dict[str, Qos]:
    found: dict[str, Qos] = {}
    of_row: dict[str, Row] = {}
    for row in rows:
        factor = _number(row, "LimitFactor", _factor)
        usage_factor = _number(row, "UsageFactor", _factor)
        flags = row.text("Flags").lower().split(",")
        grace, priority = (
            _number(row, "GraceTime", slurm_duration),
            _number(row, "Priority", _whole),
        )
        of_row[row.text("Name")] = row
        found[row.text("Name")] = Qos(
            _limits(row, _SCOPES),
            "overpartqos" in flags,
            1.0 if factor is None else factor,
            "nodecay" not in flags,
            1.0 if usage_factor is None else usage_factor,
            tuple(name.strip() for name in row.text("Preempt").split(",") if name.strip()),
            _preempt_mode(row),
            _number(row, "PreemptExemptTime", slurm_duration),
            grace or 0.0,
            int(priority or 0),
        )
    for name, row in of_row.items():
        if name in _below(name, found):
            raise row.error(f"Preempt of {name} leads back to {name}, which Slurm does not allow")
    return found


def _preempt_mode(row: Row) -> str:
    """Return what becomes of the preempted jobs of a QOS; empty: what the site says."""
    text = row.text("PreemptMode")
    if text.lower() in {"", "cluster"}:
        return ""
    mode = mode_of(text)
    if mode is None:
        raise row.error(f"PreemptMode is {text!r}, which is not known")
    return mode


def _below(name: str, known: Mapping[str, Qos]) -> set[str]:
    """Return the QOS that one preempts, those that these preempt, and so on."""
    found: set[str] = set()
    left = [name]
    while left:
        new = set(known.get(left.pop(), Qos()).preempts) - found
        found |= new
        left += new
    return found


def _associations(rows: list[Row], notes: list[str]) -> tuple[Association, ...]:
    clusters = dict.fromkeys(row.text("Cluster") for row in rows)
    if len(clusters) > 1:
        first, second, *_ = clusters
        raise InputError(
            rows[0].path,
            f"associations of several clusters ({first}, {second}); write those of one with "
            f"`{SHOW_ASSOCIATIONS} cluster={first}`",
        )
    scopes = {**_SCOPES, "user": ("", "MaxJobs"), "account": ("", "")}
    above = _parents([row for row in rows if not row.text("User")], notes)
    return tuple(
        Association(
            row.text("Account"),
            row.text("User"),
            row.text("Partition"),
            "" if row.text("User") else above[row.text("Account")],
            _limits(row, scopes),
            tuple(filter(None, row.text("QOS").split(","))),
            row.text("Def QOS"),
        )
        for row in rows
    )


def _parents(rows: list[Row], notes: list[str]) -> dict[str, str]:
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
        notes.append(
            "The associations do not tell which account is below which (`tree`, or the column "
            "ParentName): all accounts are below the root."
        )
    return {account: "" if account == root else root for account in accounts}


def qos_named(text: str) -> str:
    """Return the QOS of a partition as Slurm shows it; empty: it has none."""
    return "" if text.upper() in {"N/A", "(NULL)"} else text


def _used_time(path: str, lines: Lines) -> tuple[bool, float]:
    """Return how a slurm.conf says that used time counts, as `SiteLimits` has it.

    Raises
    ------
    InputError
        If PriorityDecayHalfLife is no time.
    """
    safe, half_life = False, HALF_LIFE
    for number, line in lines:
        pairs = pairs_of(line)
        enforced = pairs.get("accountingstorageenforce", "").lower().split(",")
        safe = safe or not {"safe", "all"}.isdisjoint(enforced)
        if text := pairs.get("prioritydecayhalflife"):
            half_life = slurm_duration(text) or math.inf
            if math.isnan(half_life):
                raise InputError(path, f"PriorityDecayHalfLife={text} is not a time", line=number)
    return safe, half_life


def _partition_qos(lines: Lines) -> dict[str, str] | None:
    """Return the QOS of partitions, of a slurm.conf or the output of `scontrol show partition`.

    None: the file tells of no partition.
    """
    found = partition_settings(lines, "qos")
    known = {name: qos_named(qos) for name, (_, qos) in found.items()}
    return {name: qos for name, qos in known.items() if qos} if found else None
