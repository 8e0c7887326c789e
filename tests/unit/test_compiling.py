"""Compiled kernels: kept on disk, and made anew when anything that they take in has changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rtsched.kernels.compiling import COMPILING

if TYPE_CHECKING:
    from pathlib import Path

INNER = """
from rtsched.kernels.compiling import compiled
STEP = {step}
@compiled
def inner(x):
    return x + STEP
"""
OUTER = """
from rtsched.kernels.compiling import compiled
from inner import STEP, inner
@compiled
def outer(x):
    return 10 * inner(x) + STEP
if __name__ == "__main__":
    value = outer(1)
    print(value, sum(outer.stats.cache_hits.values()) if hasattr(outer, "stats") else 0)
"""


def run(directory: Path, **environment: str) -> str:
    """Return what the outer kernel gives, and how many of its forms came from disk."""
    done = subprocess.run(
        [sys.executable, "-B", "outer.py"],  # Python's own cache misses a change within a second
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not COMPILING, reason="numba is not installed or turned off")
def test_a_kernel_follows_the_files_beside_it(tmp_path: Path) -> None:
    """A changed constant in another file reaches a kernel that was kept on disk."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(step=1))
    assert run(tmp_path) == "21 0"
    assert run(tmp_path) == "21 1"
    (tmp_path / "inner.py").write_text(INNER.format(step=2))
    assert run(tmp_path) == "32 0"


@pytest.mark.skipif(not COMPILING, reason="numba is not installed or turned off")
def test_an_index_that_names_a_type_that_has_moved_is_made_anew(tmp_path: Path) -> None:
    """It was written by a release whose kernels took a type from a module that is gone."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(step=1))
    assert run(tmp_path) == "21 0"
    (index,) = (tmp_path / "__pycache__").glob("outer.outer-*.nbi")
    with index.open("rb") as opened:
        version = pickle.load(opened)  # noqa: S301 - the test's own file
    index.write_bytes(pickle.dumps(version) + b"crtsched.kernels.gone\nMachine\n.")
    assert run(tmp_path) == "21 0"
    assert run(tmp_path) == "21 1"


def test_kernels_run_without_the_compiler(tmp_path: Path) -> None:
    """`RTSCHED_COMPILE=0` runs the source as it stands, and so does numba's own switch."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(step=1))
    assert run(tmp_path, RTSCHED_COMPILE="0") == "21 0"
    assert run(tmp_path, NUMBA_DISABLE_JIT="1") == "21 0"


@pytest.mark.parametrize("system", ["slurm", "condor"])
def test_the_process_that_polls_starts_without_the_compiler(system: str) -> None:
    """It plans nothing, and importing numba is most of what it would take to start."""
    words = f"import sys, rtsched.adapters.{system}.system; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
