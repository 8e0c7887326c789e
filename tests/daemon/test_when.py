"""`rtsched when`: what users are shown of start estimates."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from estimating_site import KnownEstimator, ten_minutes_from, waiting
from rest_client import BOB, got, in_thread
from running import ANN, NOW, Running

from rtsched.cli import main
from rtsched.daemon.estimating import Estimating, LatestEstimates
from rtsched.estimates.settings import EstimateSettings
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Schedule
from rtsched.report.wording import about


class Known(Estimating):
    """Estimates that are known at once, without a process."""

    answers = True

    async def estimate(self, jobs: Jobs, timeout_s: float = 1.0) -> Any:
        """Answer at once, or not in time."""
        del timeout_s
        return ten_minutes_from(NOW, jobs.id, 0.0) if self.answers else None


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with four waiting jobs, one of them held, and one that runs."""
    shown = waiting("a", "b", "held", "late", "after", held=("held",))
    shown["edges"] = Edges.build(2, before=[1, 3], after=[2, 5])
    runs = Jobs.build(1, id=[9], submit=[NOW - 900.0], wall_time=[3600.0], size=[1], name=["runs"])
    shown["running"] = runs
    shown["allocations"] = Schedule.build(
        [9], [NOW - 600.0], [NOW + 3000.0], np.array([0, 1]), np.array([3], np.int32)
    )
    marks = shown["marks"]
    ids = np.array([*marks.job, 9])
    shown["marks"] = marks.__class__.build(
        6, job=ids, uid=np.full(6, ANN), held=np.array([*marks.held, False])
    )

    async def course(running: Running) -> None:
        running.show(**shown)
        estimating = Known(running.live, running.daemon.metrics)
        estimating.latest = LatestEstimates(
            ten_minutes_from(NOW, np.array([1, 2, 9]), 0.0),
            NOW - 5.0,
            accuracy=KnownEstimator(EstimateSettings()).accuracy(),
        )
        running.daemon.estimating = estimating
        await running.start()

    with in_thread(Running(tmp_path), course) as made:
        yield made


def test_waiting_jobs_of_the_asker(running: Running) -> None:
    """The next start first; of the held one it says why there is none."""
    status, report = got(running, "/v1/when")
    assert status == 200
    by_name = {each["name"]: each for each in report["jobs"]}
    assert list(by_name)[:2] == ["a", "b"]
    assert by_name["a"]["start"] == NOW + 600.0
    assert by_name["a"]["start_high_95"] == NOW + 6000.0
    assert by_name["a"]["basis"] == "estimate"
    assert by_name["held"]["basis"] == "none"
    assert "held" in by_name["held"]["why"]
    assert "submitted after" in by_name["late"]["why"]
    assert by_name["after"]["why"] == "it waits for a job that is held"
    assert report["record"][1]["covered_90"] == 0.9
    assert report["estimated"] == NOW - 5.0
    assert got(running, "/v1/when", BOB)[1]["jobs"] == []
    assert len(got(running, "/v1/when", 0)[1]["jobs"]) == 5


def test_what_a_job_waits_for(running: Running) -> None:
    """Dependencies too; others' jobs are not shown."""
    (job,) = got(running, "/v1/when/2")[1]["jobs"]
    codes = [each["code"] for each in job["waits"]]
    assert codes[0] == "wait.dependency"
    assert "wait.nodes" in codes
    assert got(running, "/v1/when/2", BOB)[0] == 404
    assert got(running, "/v1/when/77")[0] == 404


def test_a_running_job(running: Running) -> None:
    """Its start is known, and its end estimated."""
    (job,) = got(running, "/v1/when/9")[1]["jobs"]
    assert (job["state"], job["start"], job["end"]) == ("running", NOW - 600.0, NOW + 2400.0)
    assert job["latest"] == NOW + 3000.0
    assert job["start_high_80"] is None


def test_a_job_that_is_not_submitted(running: Running) -> None:
    """It is estimated, or it says that there was no time."""
    body = {"nodes": 2, "time_s": 3600.0}
    status, report = got(running, "/v1/when", method="POST", body=body)
    assert status == 200
    (job,) = report["jobs"]
    assert (job["state"], job["start"]) == ("unsubmitted", NOW + 600.0)
    assert job["waits"][0]["code"] == "wait.nodes"
    estimating = running.daemon.estimating
    assert isinstance(estimating, Known)
    estimating.answers = False
    (job,) = got(running, "/v1/when", method="POST", body=body)[1]["jobs"]
    assert (job["basis"], job["start"]) == ("none", None)
    assert "in time" in job["why"]
    assert got(running, "/v1/when", method="POST", body={"partition": "no-such"})[0] == 422


@pytest.mark.parametrize(
    ("latest", "why"),
    [
        (LatestEstimates(), "not ready yet"),
        (LatestEstimates(enabled=False), "not estimated here"),
        (LatestEstimates(at=NOW, left_out=7), "last 7 in the queue"),
        (LatestEstimates(at=NOW, problem="sacct: no"), "sacct: no"),
        (LatestEstimates(at=NOW, failure="it exited"), "no newer estimates: it exited"),
        (LatestEstimates(failure="it exited"), "it exited"),
    ],
)
def test_what_is_wrong_is_said(running: Running, latest: LatestEstimates, why: str) -> None:
    """In one sentence."""
    estimating = running.daemon.estimating
    estimating.latest = latest
    assert why in got(running, "/v1/when")[1]["problem"]


def test_beyond_what_is_simulated(running: Running) -> None:
    """An infinite end of an interval is null, and said in words."""
    estimating = running.daemon.estimating
    found = ten_minutes_from(NOW, np.array([1]), 0.0)
    endless = {name: np.array([np.inf]) for name in ("start", "start_high_80", "start_high_95")}
    estimating.latest = replace(estimating.latest, estimates=found.replace(**endless))
    (job,) = got(running, "/v1/when/1")[1]["jobs"]
    assert (job["basis"], job["start"], job["start_high_95"]) == ("estimate", None, None)
    text = said(running, "1").output
    assert "later than is simulated" in text
    assert f"after {about(NOW + 300.0, NOW)} (90 %)" in text


def said(running: Running, *words: str) -> Any:
    """Return what the command prints."""
    path = str(running.path / "query.sock")
    return CliRunner().invoke(main, ["when", "--socket", path, *words], catch_exceptions=False)


@pytest.fixture
def as_root(running: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Give a daemon that takes this process for an admin."""
    import os

    monkeypatch.setattr(running.queries, "_own", os.getuid())
    return running


def test_the_command(as_root: Running) -> None:
    """One job in words, all in a table, another by its options."""
    running = as_root
    one = said(running, "1")
    assert one.exit_code == 0
    low, high = about(NOW + 300.0, NOW), about(NOW + 1800.0, NOW)
    assert f"starts about {about(NOW + 600.0, NOW)}, between {low} and" in " ".join(
        one.output.split()
    )
    assert high in one.output
    assert "wait.nodes" in one.output
    table = said(running)
    assert f"{low} to {high}" in table.output
    assert "it is held" in table.output
    assert said(running, "3").exit_code == 1
    other = said(running, "-N", "2", "-t", "60")
    assert other.exit_code == 0
    assert "such a job starts about" in other.output
    assert json.loads(said(running, "--json").output)["jobs"][0]["job"] == "1"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["7", "-N", "2"], "not both"),
        (["-N", "2", "--gpus", "3"], "cannot be divided"),
        (["--gpus", "2", "--gpus-per-node", "1"], "not both"),
        (["-t", "soon"], "not a time limit"),
    ],
)
def test_options_that_make_no_sense(running: Running, words: list[str], why: str) -> None:
    """One sentence, and status 2."""
    found = said(running, *words)
    assert found.exit_code == 2
    assert why in found.output


def test_explain_has_a_line_of_it(as_root: Running) -> None:
    """Beside what it waits for."""
    path = str(as_root.path / "query.sock")
    words = ["explain", "--live", "--socket", path, "1"]
    text = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert "estimate" in text
    assert f"starts about {about(NOW + 600.0, NOW)}" in " ".join(text.split())


def test_the_board_shows_estimates(running: Running) -> None:
    """Those of the reader, and how good estimates were."""
    text = got(running, "/board/now")[1]
    assert "My waiting jobs" in text
    assert "last week" in text
    assert text.count('class="cover90"') == 4  # three periods and the legend
    assert "Starts about" not in got(running, "/board/now", BOB)[1]
    when = got(running, "/board/when?nodes=2&time=60")[1]
    assert f"start about {about(NOW + 600.0, NOW)}" in when
    assert f"starts about {about(NOW + 600.0, NOW)}" in got(running, "/board/why?job=1")[1]
