"""Compile kernels for any x86-64 processor, so that a wheel can bring them along.

    python tools/kernels.py DIRECTORY [--policy NAMES]

Replays by all policies on the shipped logs, and a daemon that answers, are run on a copy of the
sources whose kernels are not compiled yet; what a second run of them loads is put into DIRECTORY,
each in the place in the package where `rtsched.kernels.compiling` looks for it. That takes about
ten minutes on one core. With `--policy` only replays by those policies are run, on one log.

Numba keeps to kernels that the same release of it has compiled, by the same release of Python; with
any other, they are compiled anew at their first use, as if none were shipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parents[1]
PACKAGES = (Path("rtsched"), Path("plugins/rtsched_plugins"))
BESIDE = ("benchmarks", "examples")
"""What the commands read, beside the packages."""

RTSCHED = ("-m", "rtsched")
REPLAY = (*RTSCHED, "replay", "--no-out", "--no-progress", "--workers", "1")
LOG = "examples/logs/cluster.swf.gz"
SHARED = "examples/logs/slurm-sacct.txt"
POLICIES = (
    "fcfs,easy,conservative,negotiator,multifactor,mcdf,fifo-mn,fifo-an,edf-mn,edf-an,portfolio,"
    "ste,psts,spare-rf,sed"
)
DAEMON = (
    ("benchmarks/startup.py", "--runs", "1", "--nodes", "16"),
    ("benchmarks/answers.py", "--tests", "20", "--pending", "200"),
)

LOADED = re.compile(r"^\[cache\] data loaded from '(.+)'$", re.MULTILINE)


def compile_all(directory: Path, commands: list[tuple[str, ...]]) -> int:
    """Compile what commands use, put it into a directory, and return how many bytes that are."""
    sys.path.insert(0, str(SOURCES))
    from rtsched.kernels.compiling import ANY_PROCESSOR, SHIPPED

    processor, features = ANY_PROCESSOR
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made)
        for each in (*PACKAGES, *BESIDE):
            ignored = shutil.ignore_patterns("__pycache__", SHIPPED)
            shutil.copytree(SOURCES / each, copy / each, ignore=ignored)
        environment = {
            **os.environ,
            "NUMBA_CPU_NAME": processor,
            "NUMBA_CPU_FEATURES": features,
            "RTSCHED_COMPILE": "1",
            "PYTHONPATH": f"{copy}:{copy / 'plugins'}",
        }
        for name in ("NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT"):
            environment.pop(name, None)
        loaded: set[Path] = set()
        for command in commands:
            print(*command, file=sys.stderr, flush=True)
            _run(command, copy, environment)
            said = _run(command, copy, environment | {"NUMBA_DEBUG_CACHE": "1"})
            loaded |= {Path(path) for path in LOADED.findall(said)}
        if not loaded:
            sys.exit("kernels.py: nothing was compiled; is numba installed?")
        kept = 0
        for path in loaded | {_index_of(path) for path in loaded}:
            within = path.relative_to(copy).parent.parent  # without __pycache__
            place = directory / within / SHIPPED
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
            kept += path.stat().st_size
    return kept


def _index_of(path: Path) -> Path:
    """Return the index of a kernel's compiled forms: `NAME.nbi` beside `NAME.NUMBER.nbc`."""
    return path.with_suffix("").with_suffix(".nbi")


def _run(command: tuple[str, ...], copy: Path, environment: dict[str, str]) -> str:
    """Return all that a Python program prints, run in the copy; end with that if it fails."""
    done = subprocess.run(  # noqa: S603 (our own programs)
        [sys.executable, *command],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"kernels.py: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def main() -> None:
    """Compile into the directory that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--policy", help="only replays by these")
    chosen = parser.parse_args()
    if chosen.policy:
        commands = [(*REPLAY, LOG, "--policy", chosen.policy)]
    else:
        commands = [
            (*REPLAY, LOG),
            *((*REPLAY, LOG, "--policy", name) for name in POLICIES.split(",")),
            (*REPLAY, SHARED, "--policy", POLICIES),
            *DAEMON,
        ]
    size = compile_all(chosen.directory, commands)
    print(f"{size / 1e6:.1f} MB of compiled kernels in {chosen.directory}", file=sys.stderr)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """Keep the lines of the description."""


if __name__ == "__main__":
    main()
