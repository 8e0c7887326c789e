"""Commands of a batch system: argument lists, no shell, a time limit on each."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_AT_ONCE = 1 << 20
"""Bytes read at a time at the most, which Linux has a pipe hold."""


def run_program(
    words: Sequence[str],
    seconds: float,
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program, and return its exit status and both outputs; one that fails is no error here.

    Parameters
    ----------
    words : sequence of str
        The program and its arguments.
    seconds : float
        How long it may take.
    text : str, optional
        What it reads from standard input.
    environment : mapping of str to str, optional
        All its variables; not given: ours.

    Raises
    ------
    OSError
        If it cannot be started.
    subprocess.TimeoutExpired
        If it takes too long; it has been killed.
    """
    return subprocess.run(  # noqa: S603 -- an argument list; no shell
        words,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
        env=environment,
        check=False,
    )


def reason_of(status: int, complaint: str) -> str:
    """Return why a program failed: the end of what it complained of, or its exit status."""
    return " ".join(complaint.split())[-300:] or f"exit status {status}"


def output_of(
    words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> Iterator[bytes]:
    """Run a program, and yield what it prints while it does so: more than fits into memory twice.

    Parameters as in `run_program`.

    Raises
    ------
    OSError
        If it cannot be started.
    subprocess.TimeoutExpired
        If it takes too long; it has been killed.
    subprocess.CalledProcessError
        If it fails; what it printed is not to be used.
    """
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(  # noqa: S603 -- an argument list; no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            pipesize=_AT_ONCE,
        )
        assert process.stdout is not None  # noqa: S101 - a pipe
        with process.stdout as pipe:
            try:
                while select.select([pipe], [], [], max(until - time.monotonic(), 0.0))[0]:
                    chunk = os.read(pipe.fileno(), _AT_ONCE)
                    if not chunk:
                        break
                    yield chunk
                else:
                    raise subprocess.TimeoutExpired(words, seconds)
                process.wait(max(until - time.monotonic(), 0.0))
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            complaints.seek(0)
            raise subprocess.CalledProcessError(process.returncode, words, stderr=complaints.read())


def text_of(output: bytes) -> str:
    """Return a part of a program's output as `run_program` does: text with one kind of line ends.

    What is no UTF-8 becomes U+FFFD.
    """
    text = output.decode(errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
