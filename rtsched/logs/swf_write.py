"""Writing Standard Workload Format, version 2.2 (Parallel Workloads Archive)."""

from __future__ import annotations

import gzip
import math
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import InputError
from rtsched.model.log import Ending, Outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs

_STATUS = {Ending.COMPLETED: 1, Ending.CANCELLED: 5}
_FAILED = (Ending.FAILED, Ending.TIMEOUT, Ending.MISSED, Ending.NODE_FAILURE, Ending.PREEMPTED)
_BATCH = 65536


def write(
    path: str | Path,
    jobs: Jobs,
    outcomes: Outcomes | None = None,
    *,
    cluster: Cluster | None = None,
    header: Mapping[str, object] | None = None,
) -> None:
    """Write jobs as SWF; the same input gives the same bytes.

    Deadlines, moldable sizes and divisible loads have no place in SWF and are left out.

    Parameters
    ----------
    path : path
        Packed with gzip if it ends in `.gz`.
    jobs : Jobs
        Written in their order; `submit` must be known.
    outcomes : Outcomes, optional
        What became of them, same rows; left out: nothing is known.
    cluster : Cluster, optional
        Its length is written as MaxProcs and MaxNodes.
    header : mapping of str to object, optional
        Further header lines, such as Computer or Note; they replace those made here.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    outcomes = outcomes if outcomes is not None else Outcomes.build(len(jobs))
    start = math.floor(jobs.submit.min()) if len(jobs) else 0
    known, numbers = _text_numbers(jobs)
    lines: dict[str, object] = {"Version": "2.2", "MaxJobs": len(jobs), "MaxRecords": len(jobs)}
    if start:
        lines["UnixStartTime"] = start
    if cluster is not None:
        lines |= {"MaxNodes": len(cluster), "MaxProcs": len(cluster)}
    lines |= header or {}
    try:
        with open(path, "wb") as file:
            if str(path).endswith(".gz"):
                # No time stamp and no name inside, so that equal jobs give equal bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                    _write(packed, lines, known, _fields(jobs, outcomes, start, numbers))
            else:
                _write(file, lines, known, _fields(jobs, outcomes, start, numbers))
    except OSError as error:
        raise InputError(path, f"cannot be written ({error.strerror}); check the place") from error


def _write(
    file: IO[bytes] | gzip.GzipFile,
    header: Mapping[str, object],
    names: list[str],
    fields: list[NDArray[Any]],
) -> None:
    for name, value in header.items():
        for line in str(value).splitlines() or [""]:
            file.write(f"; {name}: {line}\n".encode())
    for line in names:
        file.write(f"; {' '.join(line.split())}\n".encode())
    for first in range(0, len(fields[0]), _BATCH):
        columns = [field[first : first + _BATCH].tolist() for field in fields]
        text = "\n".join(" ".join(map(str, row)) for row in zip(*columns, strict=True))
        file.write(f"{text}\n".encode())


def _text_numbers(jobs: Jobs) -> tuple[list[str], dict[str, NDArray[np.int64]]]:
    """Return header lines for queue names, and the numbers that stand for each text column."""
    lines: list[str] = []
    columns: dict[str, NDArray[np.int64]] = {}
    for column in ("user", "account", "partition"):
        names = jobs.names(column)
        if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
            numbers = [int(name) for name in names]
        else:
            numbers = list(range(1, len(names) + 1))
            if column == "partition":
                lines += [f"Queue: {i} {name}" for i, name in zip(numbers, names, strict=True)]
        columns[column] = np.array([*numbers, -1], np.int64)[jobs.column(column)]
    return lines, columns


def _fields(
    jobs: Jobs, outcomes: Outcomes, start: int, numbers: Mapping[str, NDArray[np.int64]]
) -> list[NDArray[Any]]:
    """Return the 18 columns of numbers."""
    n = len(jobs)
    unknown = np.full(n, -1, np.int64)
    memory = np.where(jobs.memory > 0, jobs.memory // 1024, -1)
    return [
        jobs.id if n == 0 or jobs.id.min() >= 0 else np.arange(1, n + 1),
        _plain(jobs.submit - start),
        _plain(outcomes.start - jobs.submit),
        _plain(outcomes.run_time),
        np.where(outcomes.size > 0, outcomes.size, -1),
        unknown,
        unknown,
        jobs.size,
        _plain(jobs.wall_time),
        memory,
        _status(outcomes.ending),
        numbers["user"],
        numbers["account"],
        unknown,
        numbers["partition"],
        unknown,
        unknown,
        unknown,
    ]


def _plain(values: NDArray[np.float64]) -> NDArray[Any]:
    """Return seconds as whole numbers where all are whole, -1 where they are not known."""
    known = np.where(np.isfinite(values), values, -1.0)
    rounded = np.rint(known)
    return rounded.astype(np.int64) if (rounded == known).all() else np.round(known, 3)


def _status(ending: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return SWF's status of each `Ending`."""
    status = np.full(len(ending), -1, np.int64)
    for meaning, code in _STATUS.items():
        status[ending == meaning] = code
    status[np.isin(ending, _FAILED)] = 0
    return status
