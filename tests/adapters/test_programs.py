"""Commands of a batch system whose output is read while it comes."""

from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.programs import output_of, run_program, text_of


def shell(script: str, seconds: float = 20.0) -> bytes:
    """Return what a script prints."""
    return b"".join(output_of(["sh", "-c", script], seconds, {"PATH": "/usr/bin:/bin"}))


def test_all_output_comes() -> None:
    """Whatever its length, and what goes to standard error is not among it."""
    assert shell("echo x >&2") == b""
    assert shell("head -c 3000000 /dev/zero; echo x >&2") == bytes(3_000_000)


def test_one_that_fails() -> None:
    """Its exit status and what it said are told when its output has ended."""
    with pytest.raises(subprocess.CalledProcessError) as failed:
        shell("echo some; echo why >&2; exit 3")
    assert (failed.value.returncode, failed.value.stderr) == (3, b"why\n")
    with pytest.raises(OSError, match="No such file"):
        list(output_of(["/no/such/program"], 1.0))


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 & sleep 60", "exec >&-; sleep 60", "yes"])
def test_one_that_takes_too_long(script: str) -> None:
    """It is killed in time, also where others hold its output open or it never ends."""
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        shell(script, 0.3)
    assert time.monotonic() - begun < 10.0


def test_one_that_is_not_read_to_its_end() -> None:
    """It is ended, and nobody waits for it."""
    output = output_of(["sh", "-c", "echo first; sleep 60"], 60.0)
    assert next(output) == b"first\n"
    begun = time.monotonic()
    output.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begun < 10.0


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_text_is_that_of_a_whole_run(data: bytes) -> None:
    """Bytes that are no text and ends of lines are the same by either way."""
    octal = "".join(f"\\{byte:03o}" for byte in data)
    assert text_of(data) == run_program(["printf", "%b", octal.replace("\\", "\\0")], 20.0).stdout
