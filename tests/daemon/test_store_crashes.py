"""The database after crashes and on failing disks: a short form of benchmarks/store_crashes.py."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from disk import Disk, Operation
from store_course import Course, Known

from rtsched.daemon.store import Store
from rtsched.errors import StoreError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="module")
def crashes() -> ModuleType:
    """Return the benchmark."""
    import store_crashes

    return store_crashes


def test_nothing_is_lost_and_nothing_invented(crashes: ModuleType, tmp_path: Path) -> None:
    """Kills at every failpoint and any instant, power cuts at every write, disks that fail."""
    state = tmp_path / "rounds"
    table = crashes.run(1, state, steps=10)
    assert crashes.bad(table) == 0, table
    for point in crashes.POINTS:
        assert table[f"killed, failpoint {point}|crashes"] == 5
    assert table["power cut, the log written|crashes"] > 50
    assert sum(table[f"{error}|failures"] for error in crashes.ERRORS) > 5
    assert crashes.run(1, state) == table  # what was done is not done again


def test_what_is_wrong_is_found(crashes: ModuleType, tmp_path: Path) -> None:
    """A commit that is not there, one by half, and a file that is of no use are told apart."""
    path, course, states = tmp_path / "rtsched.db", Course(5), [Known()]
    with Store(path) as store:
        for _ in range(10):
            step = course.step()
            step.act(store)
            states.append(step.after)
    assert crashes.judged(path, states, 10) == ""
    assert crashes.judged(path, [*states, Known(version=99)], 11) == "lost"
    assert crashes.judged(path, states[:10], 9) == "invented"
    path.write_bytes(b"\xa5" * 8192)
    assert crashes.judged(path, states, 0) == "damaged"


def test_a_power_cut_takes_what_was_not_synced(crashes: ModuleType) -> None:
    """A write may be missing, there, or torn; what was synced stays, and so do names."""
    disk = Disk()
    for operation in (
        Operation("C", "a", 0, b""),
        Operation("W", "a", 0, b"x" * 2048),
        Operation("S", "a", 0, b""),
        Operation("S", ".", 0, b""),
        Operation("W", "a", 512, b"y" * 1024),
        Operation("T", "a", 1600, b""),
        Operation("C", "b", 0, b""),
    ):
        disk.do(operation)
    found = [disk.after_power_cut(crashes.random.Random(seed)) for seed in range(200)]
    contents = {content for files in found for name, content in files.items() if name == "a"}
    assert {len(content) for content in contents} == {1600, 2048}
    assert {content[512:1024] for content in contents} == {b"x" * 512, b"y" * 512}
    assert {content[:512] for content in contents} == {b"x" * 512}
    assert any(content[512:1536] == b"x" * 512 + b"y" * 512 for content in contents)
    assert {"b" in files for files in found} == {True, False}
    half = disk.after_kill(Operation("W", "a", 0, b"z" * 100), crashes.random.Random(1))
    assert 0 < half["a"].count(b"z") < 100


@pytest.mark.parametrize("made", [False, True], ids=["new", "there before"])
def test_a_read_only_file_system(tmp_path: Path, made: bool) -> None:
    """One clear sentence; as soon as it may be written to, all goes on."""
    place = tmp_path / "place"
    place.mkdir()
    path = place / "rtsched.db"
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        if made:
            Store(path).close()
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        with pytest.raises(StoreError, match=r"rtsched.db: cannot be opened \(Read-only file sys"):
            Store(path)
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        with Store(path) as store:
            store.commit([], None, 1)
    finally:
        subprocess.run(["umount", "-l", place], check=True)
