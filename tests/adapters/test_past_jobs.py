"""Jobs that ended, read from Slurm's accounting and from HTCondor's history."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.past import FIELDS, NO_JOBS, condor_past, joined_logs, slurm_past
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.errors import AdapterError

THEN = 1_795_000_000.0
HEAD = FIELDS.replace(",", "|")


def at(seconds: float) -> str:
    """Return an instant as sacct prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(THEN + seconds))


def row(job: int, start: float, end: float, state: str = "COMPLETED", nodes: int = 2) -> str:
    """Return a line of sacct."""
    times = "|".join(map(at, (0, 0, start, end)))
    run = f"{end - start:.0f}|60|8|8|{nodes}"
    return f"{job}|{job}|ann|phys|all|normal|{times}|{run}|{state}|model\n"


def program(path: Path, name: str, output: str, errors: str = "", status: int = 0) -> None:
    """Write a program that notes its arguments, and says that."""
    (path / "said").write_text(output)
    (path / "errors").write_text(errors)
    script = path / name
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {path}/asked\ncat {path}/said\n'
        f"cat {path}/errors >&2\nexit {status}\n"
    )
    script.chmod(0o755)


def slurm(path: Path, since: float = THEN, until: float = THEN + 1000) -> object:
    """Read what that sacct says."""
    return slurm_past(SlurmSettings(bin_dir=str(path)), since, until)


def test_slurm(tmp_path: Path) -> None:
    """Names, sizes in nodes, and times; what ended outside of the span is left out."""
    rows = row(7, 10, 110) + row(8, 20, 1020) + row(9, 30, 60, "TIMEOUT", nodes=1)
    program(tmp_path, "sacct", f"{HEAD}\n{rows}")
    log = slurm_past(SlurmSettings(bin_dir=str(tmp_path)), THEN, THEN + 1000)
    assert log.jobs.id.tolist() == [7, 9]
    assert log.jobs.texts("name") == ["model"] * 2
    assert log.jobs.texts("user") == ["ann"] * 2
    assert log.jobs.size.tolist() == [2, 1]
    assert log.jobs.wall_time.tolist() == [3600.0] * 2
    assert log.outcomes.run_time.tolist() == [100.0, 30.0]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[asked.index("-S") + 1] == at(0)
    assert asked[asked.index("-E") + 1] == at(1001)


@pytest.mark.parametrize(
    ("output", "errors", "status", "why"),
    [
        ("", "Slurm accounting storage is disabled\n", 1, "storage is disabled"),
        ("", "sacct: error: slurmdbd: Connection refused\n", 1, "Connection refused"),
        ("", "", 7, "exit status 7"),
    ],
)
def test_no_accounting(tmp_path: Path, output: str, errors: str, status: int, why: str) -> None:
    """One sentence says why."""
    program(tmp_path, "sacct", output, errors, status)
    with pytest.raises(AdapterError, match=why):
        slurm(tmp_path)


def test_no_sacct(tmp_path: Path) -> None:
    """A program that is missing is one sentence too."""
    with pytest.raises(AdapterError, match="sacct"):
        slurm(tmp_path)


def test_nothing_ended(tmp_path: Path) -> None:
    """A header without a line behind it is no jobs."""
    program(tmp_path, "sacct", f"{HEAD}\n")
    assert slurm(tmp_path) is NO_JOBS


AD = """ClusterId = {cluster}
ProcId = 3
QDate = {submit:.0f}
JobStatus = 4
JobStartDate = {start:.0f}
JobCurrentStartDate = {start:.0f}
CompletionDate = {end:.0f}
EnteredCurrentStatus = {end:.0f}
RemoteWallClockTime = {run:.1f}
CommittedTime = {run:.0f}
NumJobStarts = 1
RequestCpus = 4
RtRunTime = 600
Owner = "ann"
Cmd = "/bin/model"
GlobalJobId = "sched#{cluster}.3#1"
ExitCode = 0

"""


def ad(cluster: int, start: float, end: float) -> str:
    """Return an ad of condor_history."""
    return AD.format(
        cluster=cluster, submit=THEN, start=THEN + start, end=THEN + end, run=end - start
    )


def test_condor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and sizes are those of polls: a slot each."""
    program(tmp_path, "condor_history", ad(12, 5, 65) + ad(13, 5, 2000))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    log = condor_past(CondorSettings(), THEN, THEN + 1000)
    assert log.jobs.id.tolist() == [job_id(12, 3)]
    assert log.jobs.labels() == ["12.3"]
    assert log.jobs.size.tolist() == [1]
    assert log.jobs.texts("user") == ["ann"]
    assert log.jobs.texts("name") == ["/bin/model"]
    assert log.jobs.wall_time.tolist() == [600.0]
    assert log.outcomes.run_time.tolist() == [60.0]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[asked.index("-completedsince") + 1] == f"{THEN:.0f}"


def test_one_of_several_schedds_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' jobs are read; if none answers it is said why."""
    program(tmp_path, "condor_history", ad(12, 5, 65))
    script = tmp_path / "condor_history"
    away = 'case "$*" in *away*) echo "no such schedd" >&2; exit 1;; esac\n'
    script.write_text(script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{away}"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    log = condor_past(CondorSettings(schedds=["away", "near"]), THEN, THEN + 1000)
    assert log.jobs.id.tolist() == [job_id((1 << 31) + 12, 3)]
    assert log.jobs.labels() == ["near#12.3"]
    with pytest.raises(AdapterError, match="no such schedd"):
        condor_past(CondorSettings(schedds=["away"]), THEN, THEN + 1000)


def test_logs_are_joined(tmp_path: Path) -> None:
    """One after the other; those without jobs do no harm."""
    program(tmp_path, "sacct", f"{HEAD}\n{row(7, 10, 110)}")
    log = slurm_past(SlurmSettings(bin_dir=str(tmp_path)), THEN, THEN + 1000)
    both = joined_logs([NO_JOBS, log, log])
    assert both.jobs.id.tolist() == [7, 7]
    assert np.isfinite(both.outcomes.end).all()
    assert joined_logs([NO_JOBS]) is NO_JOBS
