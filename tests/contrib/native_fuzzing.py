"""The programs that give parts of the submit filters random inputs, under sanitizers.

Each target is a process of its own, `PROGRAM TARGET COUNT SEED`, that ends with an error at the
first input that breaks something. Used by the tests, and at length by benchmarks/fuzz.py.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from classad_workshop import Workshop
from filter_sources import ADDRESSES, COMMON, FILTER, PROGRAMS, SLURM
from slurm_headers import alone, headers
from testbed.images import SUITES

Part = Callable[[int, int], Iterator["Outcome"]]
"""From inputs and seed to what became of each target, as soon as it is over."""


DAY = 86400.0
"""Seconds; no target runs for longer."""

FILTER_SOURCES = (
    *(PROGRAMS / name for name in ("fuzz.c", "fake_slurm.c")),
    *(source for source in FILTER if source.name != "rtsched_client.c"),
)
"""fuzz.c holds the client itself."""

CLASSAD_TARGETS = ("answers", "tables", "ads")


class Outcome(NamedTuple):
    """What random inputs of one target came to.

    Attributes
    ----------
    target : str
        What they were given to.
    inputs : int
        How many.
    found : str
        What went wrong; empty: nothing.
    """

    target: str
    inputs: int
    found: str


def filter_program(place: Path, include: Path) -> Path:
    """Build fuzz.c with the submit filter; `include` holds Slurm's headers."""
    program = place / "fuzz"
    includes = [f"-I{path}" for path in (include, COMMON, SLURM, PROGRAMS)]
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", *ADDRESSES]
    command += [*includes, "-o", str(program), *map(str, FILTER_SOURCES), "-pthread"]
    subprocess.run(command, check=True, timeout=300)
    return program


def filter_targets(program: Path) -> list[str]:
    """Return what fuzz.c gives inputs to."""
    done = subprocess.run([program], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def fuzz_filter(program: Path, target: str, inputs: int, seed: int) -> Outcome:
    """Give a target of the submit filter inputs."""
    done = subprocess.run(
        [program, target, str(inputs), str(seed)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DAY,
        check=False,
    )
    return Outcome(target, inputs, _found(done.returncode, done.stderr))


def fuzz_classad(workshop: Workshop, target: str, inputs: int, seed: int) -> Outcome:
    """Give a target of the ClassAd library inputs."""
    program = workshop.build("fuzz")
    words = [program, target, str(inputs), str(seed)]
    done = workshop.run(words, check=False, timeout=DAY)
    return Outcome(target, inputs, _found(done.returncode, done.stderr))


def _found(status: int, said: str) -> str:
    """Return what a sanitizer or a check said, its first line in front."""
    if not status:
        return ""
    first = re.search(r".*(?:ERROR:|runtime error:|does not hold:).*", said)
    return f"{first[0] if first else f'exit status {status}'}\n{said[-4000:]}"


def _filter(inputs: int, seed: int) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory(prefix="rtsched-fuzz-") as place:
        include = alone(headers(SUITES[0]), Path(place) / "include")
        program = filter_program(Path(place), include)
        targets = filter_targets(program)
        for target in targets:
            yield fuzz_filter(program, target, inputs // len(targets), seed)


def _classad(inputs: int, seed: int) -> Iterator[Outcome]:
    with Workshop(SUITES[0]) as workshop:
        workshop.build("fuzz")
        for target in CLASSAD_TARGETS:
            yield fuzz_classad(workshop, target, inputs // len(CLASSAD_TARGETS), seed)


NATIVE: dict[str, Part] = {"filter": _filter, "classad": _classad}
"""The parts, by name; inputs are shared out evenly among the targets of one."""
