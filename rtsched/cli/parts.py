"""The parts of a divisible load that a node takes one by one, and which of them it has taken.

The first call on a node writes the parts, in the order of the plan's rounds, into a file; each call
takes the next one, holding a lock on that file. So a job's tasks on a node can ask at a time, and
what the plan was is asked once. Nothing here needs another host: nodes share nothing.

The file is `JOB.RESTART.NODE` in /tmp/rtsched-UID on Slurm, so that a requeued job begins anew; on
HTCondor it is in the scratch directory of the job, which is another one after a restart.
"""

from __future__ import annotations

import fcntl
import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WORD = re.compile(r"[A-Za-z0-9._-]{1,255}", re.ASCII)
_SHARE = r"\d+(?:\.\d*)?(?:e-?\d+)?"
_STATE = re.compile(rf"((?:{_SHARE} {_SHARE}\n)+)\n(x*)", re.ASCII)
_LARGEST = 1 << 16


def parts_of(found: Mapping[str, str]) -> list[str]:
    """Return a node's parts of the load in the order of the rounds, each as `FROM TO`.

    Each begins where the one before ends, to the last digit.

    Parameters
    ----------
    found : mapping of str to str
        What `rtsched chunk` prints, without RTSCHED_.

    Raises
    ------
    AdapterError
        If that divides no load.
    """
    if not found:
        raise AdapterError("there is no plan for this job, so its load is not divided")
    if "FROM" not in found or "TO" not in found:
        raise AdapterError("the plan of this job gives this node no part of a load")
    start, end = float(found["FROM"]), float(found["TO"])
    shares = [float(share) for share in found.get("ROUNDS", "1").split(":")]
    whole, so_far = sum(shares), 0.0
    bounds = [found["FROM"]]
    for share in shares[:-1]:
        so_far += share
        bounds.append(f"{start + (end - start) * so_far / whole if whole else start:.12g}")
    bounds.append(found["TO"])
    return [f"{before} {after}" for before, after in pairwise(bounds)]


def state_of(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return directory and name of the file for the job that runs this, on this node.

    Raises
    ------
    AdapterError
        If this is no job.
    """
    if "_CONDOR_JOB_AD" in environment:
        scratch = environment.get("_CONDOR_SCRATCH_DIR", "")
        if not scratch:
            raise AdapterError("_CONDOR_SCRATCH_DIR is not set")
        return os.path.join(scratch, ".rtsched"), "parts"
    if not environment.get("SLURM_JOB_ID", ""):
        raise AdapterError("not inside a job of Slurm or HTCondor")
    words = [
        environment["SLURM_JOB_ID"],
        environment.get("SLURM_RESTART_COUNT", "") or "0",
        environment.get("SLURMD_NODENAME", "") or os.uname().nodename,
    ]
    if not all(_WORD.fullmatch(word) for word in words):
        raise AdapterError("SLURM_JOB_ID, SLURM_RESTART_COUNT or SLURMD_NODENAME is not valid")
    base = environment.get("RTSCHED_STATE_DIR", "") or "/tmp"  # noqa: S108 - its owner is checked
    return os.path.join(base, f"rtsched-{os.geteuid()}"), ".".join(words)


class Parts:
    """The file of a node's parts, locked while it is open.

    Parameters
    ----------
    directory, name : str
        Where it is; the directory is made if it is missing.

    Raises
    ------
    AdapterError
        If it cannot be used, or could have been written by somebody else.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, name)
        self._file = -1
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                about = os.fstat(place)
                if about.st_uid != os.geteuid() or about.st_mode & 0o022:
                    raise AdapterError(
                        f"{directory} belongs to another user, or others may write to it; "
                        "set RTSCHED_STATE_DIR to another directory"
                    )
                how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
                self._file = os.open(name, how, 0o600, dir_fd=place)
            finally:
                os.close(place)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            self.__exit__()
            raise self._unusable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self, plan: Callable[[], Mapping[str, str]]) -> str:
        """Return the next part as `FROM TO`, and note that it is taken; empty: none is left.

        `plan` is called for the first part only. What is noted survives this process; a part that
        was taken is not given again.

        Raises
        ------
        AdapterError
            If the file is damaged or cannot be written, or the plan divides no load. Nothing is
            taken then.
        """
        try:
            text = os.pread(self._file, _LARGEST, 0).decode("ascii", "replace")
            if not text:
                text = "\n".join([*parts_of(plan()), "", ""])
                self._append(text, 0)
        except OSError as error:
            raise self._unusable(error) from error
        found = _STATE.fullmatch(text)
        if found is None:
            raise AdapterError(
                f"{self._path} is damaged; `rtsched chunk --restart` makes this node begin anew"
            )
        parts, taken = found[1].splitlines(), len(found[2])
        if taken >= len(parts):
            return ""
        try:
            self._append("x", len(text))
        except OSError as error:
            raise self._unusable(error) from error
        return parts[taken]

    def forget(self) -> None:
        """Take no part as taken, and ask for the plan again.

        Raises
        ------
        AdapterError
            If the file cannot be written.
        """
        try:
            os.ftruncate(self._file, 0)
        except OSError as error:
            raise self._unusable(error) from error

    def _append(self, text: str, at: int) -> None:
        """Write all of a text at the end of the file, or nothing."""
        written = os.pwrite(self._file, text.encode(), at)
        if written < len(text):
            os.ftruncate(self._file, at)
            raise OSError("no space left")

    def _unusable(self, error: OSError) -> AdapterError:
        return AdapterError(f"{self._path} cannot be used: {error.strerror or error}")
