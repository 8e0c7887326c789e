"""What a job's `--dependency` means for a plan.

A job with several alternatives, joined by `?`, is planned after all of them: which of them will
satisfy it is not known, and Slurm starts it no later than when all have ended. With `singleton` it
starts when no job of its user and name runs, and none of them waits that was submitted before it.

Sources: manual page sbatch; `_parse_dependency_str`, `_depend_list2str` and `_find_singleton_job`
in src/slurmctld/job_scheduler.c.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set

_JOB = r"\d{1,10}(?:_(?:\d+|\*|\[[\d,:-]+\]))?(?:\+\d+)?(?:\(\w+\))?"
_JOBS = re.compile(rf"(after(?:any|ok|notok|corr)?):({_JOB}(?::{_JOB})*)", re.ASCII | re.IGNORECASE)
_SINGLETON = re.compile(r"singleton(?:\(\w+\))?", re.ASCII | re.IGNORECASE)
_CONDITION = re.compile(r"(?:[^,?\[]++|\[[^\[\]]*+\]|\[)++")
"""Up to a comma or question mark that is not inside of task numbers, as in `afterok:5_[1,3]`."""
_PLANNED = "after, afterany, afterok, afternotok, aftercorr or singleton"


class Dependency(NamedTuple):
    """What a job waits for.

    Attributes
    ----------
    jobs : tuple of int
        Job ids; of an array that of all its tasks, also where one of them is named. It counts as
        waiting for their ends, also where it waits for a start.
    singleton : bool
        Whether it waits for the jobs of its user and name.
    problem : str
        Why it cannot be planned with; empty: it can.
    """

    jobs: tuple[int, ...] = ()
    singleton: bool = False
    problem: str = ""


def refused_dependency(text: str, unknown: Set[str]) -> str:
    """Return why Slurm refuses a dependency with jobs that it does not know; empty: it does not.

    Any other dependency on a job that it does not know is satisfied. `unknown` holds the jobs as
    `NUMBER` or `NUMBER_TASK`.
    """
    for condition in _CONDITION.findall(text) if unknown else ():
        match = _JOBS.fullmatch(condition)
        kind = match[1].lower() if match is not None else ""
        if match is None or kind not in {"afterok", "afternotok"}:
            continue
        named = re.findall(r"(?:^|:)(\d+(?:_\d+)?)", match[2], re.ASCII)
        if found := next((job for job in named if job in unknown), ""):
            return (
                f"--dependency={kind} names job {found}, which Slurm does not know: the number is "
                "wrong, or the job ended too long ago (MinJobAge); leave it out"
            )
    return ""


@lru_cache(maxsize=8192)
def dependency_of(text: str) -> Dependency:
    """Return what `afterok:12:13_4,singleton` says, as sbatch takes it or as squeue shows it."""
    found: dict[int, None] = {}
    singleton, problem = False, ""
    for condition in (_CONDITION.findall(text) or [text]) if text else ():
        match = _JOBS.fullmatch(condition)
        if match is None:
            if _SINGLETON.fullmatch(condition):
                singleton = True
            else:
                problem = f"cannot plan with the dependency {condition[:80]!r}; use {_PLANNED}"
            continue
        numbers = re.findall(r"(?:^|:)(\d+)", re.sub(r"\[[^]]*\]", "", match[2]))
        found.update(dict.fromkeys(map(int, numbers)))
        if match[1].lower() == "after" and "+" in match[2]:
            problem = (
                f"cannot plan with a delay after a start ({condition[:80]!r}); leave the delay "
                "out, or use afterany"
            )
    return Dependency(tuple(found), singleton, problem)
