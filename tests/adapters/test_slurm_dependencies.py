"""What dependencies say, and which jobs of its name a singleton waits for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import job_rows, printed

from rtsched.adapters.slurm.observation import edges_of
from rtsched.adapters.slurm.requirements import Dependency, dependency_of, refused_dependency
from rtsched.adapters.slurm.rows import parts


@pytest.mark.parametrize(
    ("text", "jobs", "singleton"),
    [
        ("", (), False),
        ("afterok:12:13,afterany:14_*", (12, 13, 14), False),
        ("afterok:1?afterok:2", (1, 2), False),
        ("singleton", (), True),
        ("Singleton,AfterOK:7", (7,), True),
        ("after:7,singleton", (7,), True),
        ("afterok:7+5", (7,), False),
        ("aftercorr:9_*(unfulfilled)", (9,), False),
        ("afterok:5(failed)?afterok:6(unfulfilled)", (5, 6), False),
        ("afternotok:5_3(unfulfilled),singleton(unfulfilled)", (5,), True),
        ("afterok:5_[1-3,7],afterany:6", (5, 6), False),
        ("afterok:5:5:4", (5, 4), False),
    ],
)
def test_what_is_planned_with(text: str, jobs: tuple[int, ...], singleton: bool) -> None:
    """All jobs that are named count, of alternatives too; Slurm shows what is left of them."""
    assert dependency_of(text) == Dependency(jobs, singleton)


@pytest.mark.parametrize(
    ("text", "jobs", "problem"),
    [
        ("12", (), "cannot plan with the dependency '12'; use after, afterany, "),
        ("expand:3,afterok:4", (4,), "cannot plan with the dependency 'expand:3'; use after, "),
        ("afterburstbuffer:3", (), "cannot plan with the dependency 'afterburstbuffer:3'; use "),
        ("after:7+5", (7,), "cannot plan with a delay after a start ('after:7+5'); leave the "),
    ],
)
def test_what_cannot_be_planned_with(text: str, jobs: tuple[int, ...], problem: str) -> None:
    """It says what would do."""
    found = dependency_of(text)
    assert found.jobs == jobs
    assert found.problem.startswith(problem)


@pytest.mark.parametrize(
    ("text", "unknown", "says"),
    [
        ("afterok:9", "9", "--dependency=afterok names job 9, which Slurm does not know: "),
        ("afterany:7,AfterNotOk:8:12_3", "12_3", "--dependency=afternotok names job 12_3, which"),
        ("afterok:9?afterany:7", "9,7", "names job 9, which"),
        ("afterany:9,after:8,aftercorr:7", "9,8,7", ""),
        ("afterok:9", "8", ""),
        ("afterok:9_[1,3]", "9", "names job 9, which"),
        ("singleton", "9", ""),
    ],
)
def test_jobs_that_slurm_does_not_know(text: str, unknown: str, says: str) -> None:
    """It refuses a job that waits for their success or failure: it cannot be known any more."""
    found = refused_dependency(text, frozenset(unknown.split(",")))
    assert says in found
    assert bool(says) == bool(found)


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    """Whatever a user writes is planned with as a whole, or there is a problem."""
    found = dependency_of(text)
    assert found.problem or not text or found.jobs or found.singleton


NIGHT = {
    "state": "PENDING",
    "partition": "all",
    "username": "ann",
    "userid": "1000",
    "name": "night",
    "dependency": "(null)",
    "deadline": "1900000000",
    "admin_comment": "(null)",
    "hetjobid": "N/A",
    "comment": "(null)",
    "tres": "node=1",
}
ONE = NIGHT | {"dependency": "singleton(unfulfilled)"}
RUNS = {"state": "RUNNING", "deadline": "N/A"}


@pytest.mark.parametrize(
    ("jobs", "edges"),
    [
        ([NIGHT, ONE], [(1, 2)]),
        ([ONE, NIGHT], []),
        ([ONE, NIGHT | RUNS], [(2, 1)]),
        ([NIGHT | {"name": "day"}, NIGHT | {"userid": "1001"}, ONE], []),
        ([NIGHT | {"state": "COMPLETED"}, ONE], []),
        ([ONE, ONE, ONE], [(1, 2), (1, 3), (2, 3)]),
        ([NIGHT, ONE | {"dependency": "afterok:1(unfulfilled),singleton(unfulfilled)"}], [(1, 2)]),
        ([NIGHT, ONE | {"deadline": "N/A"}], []),
        ([NIGHT, ONE | {"deadline": "N/A", "admin_comment": "rtsched:parked"}], [(1, 2)]),
        ([NIGHT | {"hetjobid": "1"}, ONE | {"hetjobid": "1"}], []),
        ([NIGHT | {"name": "(null)"}, ONE | {"name": "(null)"}], []),
    ],
)
def test_whom_a_singleton_waits_for(
    jobs: list[dict[str, str]], edges: list[tuple[int, int]]
) -> None:
    """Jobs of its user and name that run, or that were submitted before it.

    Of jobs that ask for nothing nobody needs to know, and there may be many.
    """
    numbered = [job | {"jobid": str(at), "jobarrayid": str(at)} for at, job in enumerate(jobs, 1)]
    rows = job_rows(printed(*numbered))
    queued, running, _ = parts(rows)
    found = edges_of(rows, queued, np.concatenate([queued, running]))
    assert list(zip(found.before.tolist(), found.after.tolist(), strict=True)) == edges
