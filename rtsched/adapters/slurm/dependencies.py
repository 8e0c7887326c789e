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
from typing import NamedTuple

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
