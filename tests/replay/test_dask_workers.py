"""Policies on a Dask cluster of its own processes: the same runs, and clear refusals."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_engine import workload

from rtsched.cli import main
from rtsched.core.config import PluginTable
from rtsched.errors import AdapterError, ConfigError, MissingExtraError, WorkerError
from rtsched.replay import parallel
from rtsched.replay.engine import replay
from rtsched.replay.parallel import DaskWorkers, connected, replay_in_parallel
from rtsched.replay.policies import Policy, presets


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start `dask scheduler` and a worker as a site would, and return the scheduler's file."""
    place = tmp_path_factory.mktemp("dask")
    file = place / "scheduler.json"
    dask = (sys.executable, "-m", "dask")
    begin = (
        (*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"),
        (*dask, "worker", "--nthreads", "1", "--no-dashboard", "--local-directory", str(place)),
    )
    log = (place / "log").open("wb")
    started = [
        subprocess.Popen([*words, "--scheduler-file", str(file)], stdout=log, stderr=log)
        for words in begin
    ]
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, (place / "log").read_text()
        time.sleep(0.1)
    yield file
    for process in reversed(started):
        process.terminate()
        process.wait(30)
    log.close()


def test_the_same_runs(scheduler: Path) -> None:
    """Results, nodes and decisions are those of this process, and progress is reported."""
    work = workload(deadlines=0.5)
    policies = {name: presets()[name] for name in ("mcdf", "multifactor")}
    seen: list[tuple[str, float]] = []
    told = {name: lambda fraction, name=name: seen.append((name, fraction)) for name in policies}
    with connected(json.loads(scheduler.read_text())["address"]) as client:
        runs = replay_in_parallel(DaskWorkers(client, work), policies, told)
    assert [run.policy for run in runs] == list(policies)
    for run in runs:
        alone = replay(work, run.policy, policies[run.policy])
        assert run.results.equals(alone.results)
        assert [rows.tolist() for rows in run.node_rows] == [r.tolist() for r in alone.node_rows]
        assert list(run.decisions) == list(alone.decisions)
    assert all(name in policies and 0 <= fraction <= 1 for name, fraction in seen)
    assert seen


def test_one_report_of_a_sweep(scheduler: Path, tmp_path: Path) -> None:
    """What the command keeps is the same as of a sweep in one process, byte for byte."""
    log = tmp_path / "log.swf"
    assert (
        CliRunner().invoke(main, ["synth", "lublin", "--jobs", "80", "-o", str(log)]).exit_code == 0
    )
    asked = ["replay", str(log), "--policy", "easy", "--sweep", "system.depth=0,5", "--no-report"]
    places = (tmp_path / "here", tmp_path / "there")
    for place, more in zip(places, ((), ("--dask", str(scheduler))), strict=True):
        result = CliRunner().invoke(main, [*asked, "--out", str(place), *more])
        assert result.exit_code == 0, result.stderr
    kept = [
        {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        for place in places
    ]
    assert kept[0] == kept[1]


def test_an_error_is_that_of_the_policy(scheduler: Path) -> None:
    """What is wrong with one policy is reported as by a replay in this process."""
    policies = {"wrong": Policy(plugin=[PluginTable("no-such-plug-in")])}
    with (
        connected(str(scheduler)) as client,
        pytest.raises(ConfigError, match="no plug-in 'no-such-plug-in' is installed"),
    ):
        replay_in_parallel(
            DaskWorkers(client, workload()), policies, {"wrong": lambda _fraction: None}
        )


def test_another_version_on_the_workers(scheduler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of another version would not be comparable."""
    monkeypatch.setattr(parallel, "__version__", "0.0.0")
    with (
        connected(str(scheduler)) as client,
        pytest.raises(WorkerError, match=r"has rtsched .*, not 0\.0\.0"),
    ):
        replay_in_parallel(
            DaskWorkers(client, workload()),
            {"fcfs": presets()["fcfs"]},
            {"fcfs": lambda _fraction: None},
        )


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is refused before the log is read, with the address."""
    monkeypatch.setattr(parallel, "CONNECT_S", 1)
    result = CliRunner().invoke(main, ["replay", "no-log", "--dask", "tcp://127.0.0.1:1"])
    assert result.exit_code == AdapterError.exit_status
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in result.stderr
    broken = tmp_path / "scheduler.json"
    broken.write_text("{}")
    with pytest.raises(AdapterError, match="no Dask scheduler answers"), connected(str(broken)):
        pass


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the extra."""
    monkeypatch.setattr(parallel, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"rtsched\[cluster\]"), connected("tcp://h:1"):
        pass
    asked = ["replay", "no-log", "--dask", "tcp://h:1", "--workers", "2"]
    assert "exclude each other" in CliRunner().invoke(main, asked).stderr
