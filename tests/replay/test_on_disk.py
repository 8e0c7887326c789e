"""Values whose arrays are on disk: the same values, and no file that is not whole is believed."""

import errno
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from test_engine import workload

from rtsched.errors import OutputError
from rtsched.model import on_disk
from rtsched.model.jobs import Jobs


@given(
    st.lists(
        arrays.arrays(
            st.sampled_from([np.int8, np.int32, np.float64]),
            st.integers(0, 300),
            elements=st.just(1),
        )
        | st.builds(np.zeros, st.sampled_from([0, 5, 2_000_000]))
    )
)
def test_arrays_come_back(given: list[Any]) -> None:
    """Of every type and length, zeros or not."""
    value = {"arrays": tuple(given), "more": "text"}
    found = on_disk.mapped(value)
    assert found["more"] == "text"
    for array, back in zip(given, found["arrays"], strict=True):
        assert array.dtype == back.dtype
        assert np.array_equal(array, back)


def test_a_workload_on_disk_is_the_same() -> None:
    """Columns keep their values, what they may be used for, and what they cost."""
    work = workload(deadlines=0.5)
    found = on_disk.mapped(work)
    assert found.jobs.equals(work.jobs)
    assert found.outcomes.equals(work.outcomes)
    assert found.jobs.given() == work.jobs.given()
    assert not found.jobs.submit.flags.writeable
    single = on_disk.mapped(Jobs.build(1000, nice=3.0, submit=np.arange(1000.0)))
    assert single.nice.strides == (0,)
    assert single.nice.tolist() == [3.0] * 1000


def test_what_is_read_may_be_changed(tmp_path: Path) -> None:
    """In memory only: whoever reads the file again gets what was written."""
    path = tmp_path / "value"
    with path.open("xb") as file:
        on_disk.write(file, np.arange(5))
    first = on_disk.read(path, writable=True)
    first += 1
    on_disk.let_go()
    assert first.tolist() == [1, 2, 3, 4, 5]
    assert not on_disk.read(path).flags.writeable
    assert on_disk.read(path).tolist() == [0, 1, 2, 3, 4]


def test_zeros_take_no_room(tmp_path: Path) -> None:
    """Most of a simulated machine's arrays were never used."""
    path = tmp_path / "value"
    with path.open("xb") as file:
        on_disk.write(file, np.zeros(10_000_000))
    assert path.stat().st_size > 80_000_000
    assert path.stat().st_blocks * 512 < 1_000_000


@pytest.mark.parametrize("left", [0, 5, 20, -1, -16])
def test_a_part_of_a_file_is_refused(tmp_path: Path, left: int) -> None:
    """Wherever it was cut off."""
    path = tmp_path / "value"
    with path.open("xb") as file:
        on_disk.write(file, np.arange(100.0))
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ValueError, match="not complete"):
        on_disk.read(path)


@pytest.mark.parametrize(("old", "new"), [(b"numpy", b"nympu"), (b"\x80\x05", b"XX"), (b".", b"t")])
def test_a_damaged_file_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    """So is one that names a module which is not installed, as of another version of numpy."""
    path = tmp_path / "value"
    with path.open("xb") as file:
        on_disk.write(file, np.arange(100.0))
    whole = path.read_bytes()
    assert old in whole[800:]
    path.write_bytes(whole[:800] + whole[800:].replace(old, new))
    with pytest.raises(ValueError, match="cannot be read here"):
        on_disk.read(path)


def test_the_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it would run what it says."""
    path = tmp_path / "value"
    with path.open("xb") as file:
        on_disk.write(file, 1)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user's"):
        on_disk.read(path)


def test_large_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are an array like any other, and keep what they had when they grow."""
    monkeypatch.setattr(on_disk, "LARGE", 1000)
    small, large = on_disk.zeros(10, np.int32), on_disk.zeros(1000, np.int32)
    large[:] = np.arange(1000)
    small[:] = 7
    on_disk.let_go()
    assert on_disk.grown(small, 500).tolist() == [7] * 10 + [0] * 490
    assert on_disk.grown(large, 1001).tolist() == [*range(1000), 0]


def test_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk is one sentence that says what to do."""

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(on_disk, "LARGE", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OutputError, match=r"No space left on device.*TMPDIR"):
        on_disk.zeros(1000, np.int32)
    monkeypatch.setattr(on_disk, "write", full)
    with pytest.raises(OutputError, match=r"No space left on device.*TMPDIR"):
        on_disk.mapped(1)
