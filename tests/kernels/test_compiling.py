"""Compiled kernels: kept on disk, made anew after changes, left out where nothing needs them."""

import importlib
import json
import os
import pickle
import re
import subprocess
import sys
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from rtsched.kernels.compiling import ABSENT, COMPILING, compiled, numba, only_with, part

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


SLOW_INDEX = """
import sys, time
from outer import outer
file = outer._cache._cache_file
load = file._load_index
def slowly():
    found = load()
    time.sleep(1.0)
    return found
file._load_index = slowly
sys.stdin.readline()
outer({argument})
"""


@pytest.mark.skipif(not COMPILING, reason="numba is not installed or turned off")
def test_two_processes_keep_a_form_each(tmp_path: Path) -> None:
    """Both look into the index before either has written to it, and neither takes the other's."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(step=1))
    command = [sys.executable, "-B", "-c"]
    both = [
        subprocess.Popen(
            [*command, SLOW_INDEX.format(argument=argument)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for argument in ("1", "1.0")
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()
    for process in both:
        assert process.stderr is not None
        assert process.wait(120.0) == 0, process.stderr.read()
        process.stderr.close()
    text = "from outer import outer; print(outer(1), outer(1.0), len(outer.stats.cache_hits))"
    done = subprocess.run(
        [*command, text], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "21 21.0 2\n"


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


SORTS = """
import sys
import numpy as np
from rtsched.kernels.compiling import compiled

@compiled
def ascending(values):
    return np.sort(values)

@compiled
def places(values):
    return np.argsort(values)

values = np.array([30, 10, 20] * 40)
for name in sys.argv[1:]:
    print(globals()[name](values)[[0, 40, 80]].tolist())
"""


@pytest.mark.skipif(not COMPILING, reason="numba is not installed or turned off")
def test_kernels_of_several_processes_are_not_mixed_up(tmp_path: Path) -> None:
    """Both bring along numba's functions that sort, which have one name and different sources."""
    (tmp_path / "sorts.py").write_text(SORTS)

    def run(*names: str) -> list[str]:
        command = [sys.executable, "-B", "sorts.py", *names]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout.splitlines()

    ascending, places = run("ascending"), run("places")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "__pycache__").glob("*.nbc"))
    numbers = {int(found) for found in re.findall(rb"run_quicksort1B\d+v(\d+)", kept)}
    assert min(abs(a - b) for a, b in combinations(numbers, 2)) > 2**20
    assert ascending == ["[10, 20, 30]"]
    assert [int(place) % 3 for place in json.loads(places[0])] == [1, 2, 0]
    assert run("ascending", "places") == [*ascending, *places]
    assert run("places", "ascending") == [*places, *ascending]


def number() -> int:
    """Return the number that numba would give to a function now."""
    identity = importlib.import_module("numba.core.bytecode").FunctionIdentity
    return int(identity.from_function(number).unique_id)


@pytest.mark.skipif(not COMPILING, reason="numba is not installed")
def test_each_process_numbers_what_it_compiles_apart() -> None:
    """Also one that was forked: what it compiles is kept on disk too."""
    with get_context("fork").Pool(1) as one, get_context("fork").Pool(1) as other:
        found = [number(), one.apply(number), other.apply(number)]
    assert min(abs(a - b) for a, b in combinations(found, 2)) > 2**20


@pytest.mark.skipif(not COMPILING, reason="numba is not installed")
def test_numba_still_has_what_compiling_rests_on() -> None:
    """Where numba keeps compiled kernels and chooses their forms is private to it, and may move."""
    kernel: Any = compiled(lambda x: x)
    file = kernel._cache._cache_file
    for name in ("_source_stamp", "_load_index", "_cache_path", "_index_path", "_index_name"):
        assert hasattr(file, name), f"numba {numba.__version__} has moved {name}"
    assert callable(file.load)
    assert callable(file.save)
    assert callable(kernel.get_call_template)
    assert callable(kernel.get_overload)


@pytest.mark.skipif(not COMPILING, reason="numba is not installed")
@pytest.mark.parametrize("kept_by", [part, compiled])
def test_one_form_serves_constants_and_integers_of_any_width(kept_by: Any) -> None:
    """What other kernels call is compiled once for all of them, and not to be called by Python."""

    def times(x: int, by: int, doubled: bool) -> int:
        return x * by * (2 if doubled else 1)

    times.__qualname__ = f"times_{kept_by.__name__}"  # numba keeps each on disk under its name
    kernel, kinds = kept_by(times), numba.types
    signature = kinds.int64(kinds.int64, kinds.int64, kinds.boolean)
    for given in (
        (kinds.literal(3), kinds.literal(5), kinds.literal(True)),
        (kinds.int64, kinds.literal(7), kinds.boolean),
        (kinds.int32, kinds.int8, kinds.literal(False)),
    ):
        template, *_ = kernel.get_call_template(given, {})
        assert template.cases == [signature]
    assert kernel.get_overload(signature)
    assert len(kernel.overloads) == (kept_by is part)
    if kept_by is compiled:
        assert kernel(3, 5, True) == 30
        assert len(kernel.overloads) == 1


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


class State(NamedTuple):
    """A machine's state of two parts, of which one may be absent."""

    always: NDArray[np.int64]
    sometimes: NDArray[np.int64]


@only_with("sometimes", -1)
def kept(machine: Any, at: int) -> int:
    """Return what a part keeps at a place."""
    return int(machine.sometimes[at])


def read(machine: Any) -> int:
    """Return what the second part keeps, if the first says that there is one."""
    return kept(machine, 1) if machine.always[0] else 0


@pytest.mark.skipif(not COMPILING, reason="numba compiles nothing in this process")
def test_without_its_part_of_the_state_a_kernel_is_not_compiled() -> None:
    """Such a state has no array to read: compiling the kernel for it would fail."""
    import numba

    compiled = numba.njit(read)
    assert compiled(State(np.array([1]), np.array([5, 6]))) == 6
    assert compiled(State(np.array([0]), ABSENT)) == 0
    assert compiled(State(np.array([1]), ABSENT)) == -1


def test_python_calls_the_kernel_as_it_is() -> None:
    """The plain source stays the reference of its compiled form."""
    assert kept(State(np.array([1]), np.array([5, 6])), 0) == 5
