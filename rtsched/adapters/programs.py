"""Commands of a batch system: argument lists, no shell, a time limit on each."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
