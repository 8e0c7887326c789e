"""A wheel brings compiled kernels along; a process uses them and compiles none of its own."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("numba")
pytestmark = [pytest.mark.install, pytest.mark.slow]

REPO = Path(__file__).parents[2]
LOG = REPO / "examples" / "logs" / "cluster.swf.gz"


def run(place: Path, command: list[str], **environment: str) -> str:
    """Run a Python program in a directory, and return what it printed."""
    names = ("RTSCHED_COMPILE", "NUMBA_DISABLE_JIT", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=place,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel with the kernels of one policy."""
    made = tmp_path_factory.mktemp("wheel")
    sources = made / "sources"
    left_out = shutil.ignore_patterns("__pycache__", "tests", ".*")
    shutil.copytree(REPO, sources, ignore=left_out, symlinks=True)
    project = sources / "pyproject.toml"
    hook = 'path = "tools/kernels_hook.py"\n'
    text = project.read_text()
    assert hook in text
    project.write_text(text.replace(hook, f'{hook}arguments = ["--policy", "fcfs"]\n'))
    command = ["-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check"]
    run(made, [*command, "-w", str(made), str(sources)], HATCH_BUILD_HOOK_ENABLE_CUSTOM="true")
    (built,) = made.glob("*.whl")
    return built


def test_a_wheel_with_kernels_is_for_one_python_and_kind_of_machine(wheel: Path) -> None:
    """Compiled kernels are of one release of Python."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{version}-{version}-" in wheel.name


def test_kernels_come_with_the_package(wheel: Path) -> None:
    """They are beside their sources."""
    names = zipfile.ZipFile(wheel).namelist()
    kernels = [name for name in names if name.endswith((".nbc", ".nbi"))]
    assert any(name.startswith("rtsched/kernels/compiled/machine_") for name in kernels)
    assert all("/compiled/" in name for name in kernels)


def test_a_process_compiles_nothing_that_the_wheel_brings(wheel: Path, tmp_path: Path) -> None:
    """A replay loads them, and writes none to its own cache."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    zipfile.ZipFile(wheel).extractall(site)
    replay = ["-m", "rtsched", "replay", str(LOG), "--policy", "fcfs", "--no-out", "--no-progress"]
    told = run(
        tmp_path, replay, PYTHONPATH=str(site), NUMBA_CACHE_DIR=str(cache), NUMBA_DEBUG_CACHE="1"
    )
    assert "rtsched/kernels/compiled" in told
    assert "data saved" not in told
    assert not [*cache.rglob("*.nbc")]


def test_a_source_that_changed_is_compiled_anew(wheel: Path, tmp_path: Path) -> None:
    """Kernels of other sources are never used."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    zipfile.ZipFile(wheel).extractall(site)
    changed = site / "rtsched" / "kernels" / "text.py"
    changed.write_text(changed.read_text() + "# changed\n")
    program = "import numpy as np; from rtsched.kernels.text import count_lines\n"
    program += "count_lines(np.frombuffer(b'1\\n2\\n', np.uint8))"
    told = run(
        tmp_path,
        ["-c", program],
        PYTHONPATH=str(site),
        NUMBA_CACHE_DIR=str(cache),
        NUMBA_DEBUG_CACHE="1",
    )
    assert "data loaded" not in told
