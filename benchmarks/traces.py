"""Logs to replay: generated ones by default, each repeated to as many jobs as wanted."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from measuring import run_alone, script

if TYPE_CHECKING:
    from pathlib import Path

GENERATED = {
    "short-queues": ("poisson", "--load", "0.6"),
    "long-queues": ("lublin", "--load", "0.8"),
}
"""Names and generators (`rtsched synth`) of the default traces."""


class Trace(NamedTuple):
    """A log repeated, and what a bare loop makes of one round of it."""

    name: str
    path: Path
    records: int
    """Lines of jobs in the file."""
    mean_wait_s: float
    """Mean wait of one round under EASY."""
    mean_bounded_slowdown: float


def generate(directory: Path, jobs: int) -> list[Path]:
    """Write the default traces, each of `jobs` jobs on 256 processors."""
    paths = []
    for name, (model, *settings) in GENERATED.items():
        path = directory / f"{name}.swf"
        words = ("-m", "rtsched", "synth", model, "--jobs", str(jobs), *settings, "-o", str(path))
        run_alone([sys.executable, *words])
        paths.append(path)
    return paths


def repeat(source: Path, directory: Path, jobs: int) -> Trace:
    """Write a trace again and again, in whole rounds, until it has at least `jobs` lines.

    Each round begins when the last job of the round before has ended under EASY. The machine is
    idle then, so every round has the waits of the trace itself.
    """
    once = json.loads(run_alone(script("bare.py", source)).output)
    period = int(once["last_end_s"] - once["first_submit_s"]) + 1
    header, rows = _lines(source)
    name = source.name.removesuffix(".gz").removesuffix(".swf")
    target = directory / f"{name}.repeated.swf"
    number = 0
    with target.open("w") as file:
        file.writelines(header)
        for begin in range(0, jobs, len(rows)):
            shift = begin // len(rows) * period
            for submit, rest in rows:
                number += 1
                file.write(f"{number} {submit + shift} {rest}\n")
    return Trace(name, target, number, once["mean_wait_s"], once["mean_bounded_slowdown"])


def head(trace: Trace, directory: Path, jobs: int) -> tuple[Path, int]:
    """Write the first `jobs` jobs of a trace; return the file and the number of processors."""
    target, processors, left = directory / "head.swf", 0, jobs
    with trace.path.open() as source, target.open("w") as file:
        for line in source:
            if line.startswith(";"):
                name, _, value = line[1:].partition(":")
                if name.strip() == "MaxProcs" or (name.strip() == "MaxNodes" and not processors):
                    processors = int(value.split()[0])
            elif not left:
                break
            else:
                left -= 1
            file.write(line)
    return target, processors


def _lines(source: Path) -> tuple[list[str], list[tuple[int, str]]]:
    """Return a log's comments, and per job its submission and what follows on the line.

    Dependencies between jobs (the last two fields) are left out: numbers are given anew.
    """
    header, rows = [], []
    with gzip.open(source, "rt") if source.suffix == ".gz" else source.open() as file:
        for line in file:
            if line.startswith(";"):
                header.append(line)
            elif line.strip():
                field = line.split()
                rows.append((int(field[1]), " ".join([*field[2:16], "-1 -1"])))
    return header, rows
