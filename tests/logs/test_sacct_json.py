"""JSON of sacct, release by release."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtsched.logs import ReadOptions, read_logs
from rtsched.model.log import Ending, Log

Read = Callable[..., Log]


LOGS = Path(__file__).parents[1] / "data" / "logs"
RELEASES = ("21.08", "22.05", "23.02", "23.11", "25.05", "26.05")
SUBMIT = 1795262400


def wrapped(number: float | None) -> dict[str, Any]:
    """Return a number as Slurm writes it since 23.02."""
    return {"set": number is not None, "infinite": False, "number": number or 0}


def record(**changed: Any) -> dict[str, Any]:
    """Return one job in the shape of 23.11 and later."""
    usual = {
        "job_id": 7,
        "user": "ann",
        "state": {"current": ["COMPLETED"]},
        "required": {"CPUs": 4},
        "time": {
            "submission": SUBMIT,
            "eligible": SUBMIT,
            "start": SUBMIT + 60,
            "end": SUBMIT + 180,
            "elapsed": 120,
            "limit": wrapped(5),
        },
    }
    time = {**usual["time"], **changed.pop("time", {})}  # type: ignore[dict-item]
    return {**usual, **changed, "time": time}


def text(*jobs: object) -> str:
    """Return a whole file."""
    return json.dumps({"meta": {"Slurm": {}}, "jobs": jobs, "errors": []})


@pytest.mark.parametrize("indent", [None, 1])
def test_jobs_alone_are_read(read: Read, indent: int | None) -> None:
    """As `jq .jobs` and `jq .jobs[]` print them."""
    jobs = [record(), record(job_id=8)]
    lines = "\n".join(json.dumps(job, indent=indent) for job in jobs)
    for form in (json.dumps(jobs, indent=indent), lines):
        log = read(form)
        assert (log.format, log.jobs.labels()) == ("sacct-json", ["7", "8"])


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_outputs(read: Read, indent: int | None) -> None:
    """As `jq -s .` makes one of several."""
    outputs = [json.loads(text(record(), record(job_id=8))), json.loads(text(record(job_id=9)))]
    assert read(json.dumps(outputs, indent=indent)).jobs.labels() == ["7", "8", "9"]


@pytest.mark.parametrize("release", RELEASES)
def test_every_release(release: str) -> None:
    """The same jobs in the shapes of six releases are the same jobs."""
    options = ReadOptions(timezone="UTC")
    log = read_logs([LOGS / f"sacct_{release}.json"], options)
    newest = read_logs([LOGS / "sacct_26.05.json"], options)
    assert log.format == "sacct-json"
    assert not log.skipped.count
    assert log.jobs.labels() == newest.jobs.labels()
    for column in ("id", "submit", "begin", "wall_time", "size", "cores", "memory"):
        np.testing.assert_array_equal(log.jobs.column(column), newest.jobs.column(column), column)
    for column in ("start", "end", "run_time", "size", "ending"):
        np.testing.assert_array_equal(
            log.outcomes.column(column), newest.outcomes.column(column), column
        )
    for column in ("user", "account", "partition", "qos"):
        assert log.jobs.texts(column) == newest.jobs.texts(column)
    if release > "23":  # older ones have no submit line
        np.testing.assert_array_equal(log.jobs.deadline, newest.jobs.deadline)


def test_json_says_what_text_says() -> None:
    """Both forms of one log give the same jobs."""
    options = ReadOptions(timezone="UTC")
    one = read_logs([LOGS / "sacct_26.05.json"], options)
    two = read_logs([LOGS / "sacct_26.05.txt"], options)
    rows = [two.jobs.labels().index(label) for label in one.jobs.labels()]
    jobs, outcomes = two.jobs.take(rows), two.outcomes.take(rows)
    for column in ("submit", "begin", "wall_time", "size", "memory", "deadline"):
        np.testing.assert_array_equal(one.jobs.column(column), jobs.column(column), column)
    for column in ("start", "end", "size", "ending"):
        np.testing.assert_array_equal(one.outcomes.column(column), outcomes.column(column), column)
    ended = ~np.isnan(outcomes.end)  # the others ran on between the two calls of sacct
    np.testing.assert_array_equal(one.outcomes.run_time[ended], outcomes.run_time[ended])
    assert one.outcomes.texts("nodes") == outcomes.texts("nodes")
    assert one.jobs.texts("user") == jobs.texts("user")


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (5, 300),
        (None, np.inf),
        (4294967295, np.inf),
        (4294967294, np.inf),
        (wrapped(5), 300),
        (wrapped(None), np.inf),
        ({"set": True, "infinite": True, "number": 0}, np.inf),
    ],
)
def test_limits(read: Read, limit: object, seconds: float) -> None:
    """A limit in minutes, unset or infinite."""
    assert read(text(record(time={"limit": limit}))).jobs.wall_time.tolist() == [seconds]


@pytest.mark.parametrize(
    "state",
    [{"current": "CANCELLED"}, {"current": ["CANCELLED"]}, "CANCELLED", ["CANCELLED", "REQUEUED"]],
)
def test_states(read: Read, state: object) -> None:
    """A state is a text or a list, alone or in an object."""
    log = read(text(record(state=state)))
    assert log.outcomes.ending.tolist() == [Ending.CANCELLED]


def test_arrays_and_het_jobs(read: Read) -> None:
    """Tasks, parts and waiting arrays have the ids that users see."""
    waiting = {"start": 0, "end": 0, "elapsed": 0}
    log = read(
        text(
            record(job_id=9, array={"job_id": 8, "task_id": 0, "task": None}),
            record(job_id=10, array={"job_id": 8, "task_id": wrapped(3), "task": ""}),
            record(job_id=11, het={"job_id": 11, "job_offset": wrapped(0)}),
            record(job_id=14, het={"job_id": 11, "job_offset": wrapped(1)}),
            record(
                job_id=8,
                array={"job_id": 8, "task_id": wrapped(None), "task": "4-9%2"},
                state={"current": ["PENDING"]},
                time=waiting,
            ),
            record(job_id=12, array={"job_id": 0, "task_id": None}, het={"job_id": 0}),
        )
    )
    assert log.jobs.labels() == ["8_0", "8_3", "11+0", "11+1", "8_[...]", "12"]
    assert log.jobs.het_job.tolist() == [-1, -1, 11, 11, -1, -1]
    assert np.isnan(log.outcomes.start[4])
    assert log.outcomes.ending[4] == Ending.PENDING


def test_processors_from_resources(read: Read) -> None:
    """Trackable resources tell what was given, and the memory of the whole job."""
    tres = {
        "requested": [{"type": "cpu", "count": 4}, {"type": "mem", "count": 1024}],
        "allocated": [{"type": "energy", "count": -2}, {"type": "cpu", "count": 6}],
    }
    log = read(text(record(tres=tres)))
    assert (log.jobs.size[0], log.outcomes.size[0]) == (6, 6)
    assert log.jobs.memory[0] == -(-(1024 << 20) // 6)


def test_wishes(read: Read) -> None:
    """Deadlines and ranges of nodes are read as in text."""
    log = read(
        text(
            record(submit_line="sbatch -N 4-8 --deadline=now+1hour job.sh"),
            record(job_id=8, comment="rt:deadline=1795266000"),
            record(job_id=9, comment={"job": None}, extra="deadline=now+60"),
        )
    )
    assert (log.jobs.deadline - SUBMIT).tolist() == [3600, 3600, 60]
    assert (log.jobs.size_min[0], log.jobs.size_max[0]) == (4, 8)
    assert not log.assumptions


def test_local_deadlines(read: Read) -> None:
    """A deadline without a zone is a local time, which is said."""
    job = record(extra="rt:deadline=2026-11-21T14:00")
    log = read(text(job), timezone="Europe/Berlin")
    assert log.jobs.deadline[0] - SUBMIT == 3600
    assert any("Europe/Berlin" in sentence for sentence in log.assumptions)


def test_requeued_jobs(read: Read) -> None:
    """Runs of one job are folded."""
    again = {"submission": SUBMIT + 90, "start": SUBMIT + 200, "end": SUBMIT + 210, "elapsed": 10}
    log = read(text(record(state={"current": ["NODE_FAIL"]}), record(time=again)))
    assert (log.jobs.submit[0], log.outcomes.run_time[0]) == (SUBMIT, 10)
    assert log.outcomes.restarts.tolist() == [1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"job_id": "seven"}, "the field job_id has an unknown shape"),
        (record(time={"start": []}), "the field time.start has an unknown shape"),
        (record(job_id=None), "it has no job id"),
        (record(time={"submission": None}), "its submit time is missing"),
        (record(time={"end": 5}), "it ends before it starts"),
        (record(required={"CPUs": 0}), "it asks for no processors"),
    ],
)
def test_bad_records_are_counted(read: Read, bad: object, reason: str) -> None:
    """One bad record does not spoil the others."""
    log = read(json.dumps({"jobs": [record(), bad, record(job_id=9)]}, indent=1))
    assert log.jobs.id.tolist() == [7, 9]
    assert log.skipped.count == {reason: 1}


def test_a_truncated_file(read: Read) -> None:
    """A file cut short loses its last record only."""
    whole = text(record(), record(job_id=8))
    log = read(whole[: whole.index('"job_id": 8') + 60])
    assert log.jobs.id.tolist() == [7]
    assert log.skipped.count == {"the record is no JSON, or cut short": 1}


@pytest.mark.parametrize("count", [2**31, 2**62, 10**30, -(10**30), 1e308])
def test_counts_beyond_all_machines(tmp_path: Path, count: float) -> None:
    """A number that no record can hold says nothing; the job is read all the same."""
    path = tmp_path / "log.json"
    path.write_text(text(record(restart_cnt=count), record(job_id=8, restart_cnt=1)))
    log = read_logs([path], ReadOptions(timezone="UTC"))
    assert 8 in log.jobs.id.tolist()


def test_dependencies_and_limits_of_arrays(read: Read) -> None:
    """A limit stands at one task of an array, or in the submit line; it is for all tasks."""
    limits = {"max": {"running": {"tasks": 2}}}
    lone = {"job_id": 32, "task_id": wrapped(1), "limits": None}
    log = read(
        text(
            record(job_id=21, array={"job_id": 20, "task_id": wrapped(1)}),
            record(job_id=20, array={"job_id": 20, "task_id": wrapped(2), "limits": limits}),
            record(job_id=30, submit_line="sbatch -d afterok:20 job.sh"),
            record(job_id=31, submit_line="sbatch -J a -d singleton --begin=now+9 job.sh"),
            record(job_id=32, submit_line="sbatch --array=1%4 j", array=lone),
        )
    )
    assert log.jobs.array_limit.tolist() == [2, 2, 0, 1, 4]
    assert log.jobs.array.tolist() == [21, 21, -1, 31, 32]
    assert (log.edges.before.tolist(), log.edges.after.tolist()) == ([21], [30])
    assert log.edges.whole_array.tolist() == [True]
    assert log.jobs.begin[3] == SUBMIT + 9


def test_reservations(read: Read) -> None:
    """The name of the reservation that a job ran in, in whatever shape; a number names none."""
    shown = [{"id": 3, "name": "course"}, {"id": 0, "name": ""}, {"id": 0, "name": 0}, "lab", None]
    jobs = [record(job_id=7 + at, reservation=one) for at, one in enumerate(shown)]
    log = read(text(*jobs, record(job_id=20)))
    assert log.outcomes.texts("reservation") == ["course", None, None, "lab", None, None]
