"""The benchmark: it runs to its end, and its own comparisons of results hold. Speed is no test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_and_its_schedules_agree(tmp_path: Path) -> None:
    """Small sizes, no peer to install: rtsched's waits are the bare loop's, promises are kept."""
    figures, plot = tmp_path / "figures.json", tmp_path / "growth.svg"
    command = [sys.executable, "benchmarks/run.py", "--quick", "--no-peer"]
    done = subprocess.run(
        [*command, "--json", figures, "--plot", plot],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["failures"] == []
    assert {"machine", "replay", "reading", "admission", "policies", "growth"} <= set(found)
    assert set(found["policies"]["questions"]) >= {"mcdf", "spare", "psts", "ste", "sed"}
    for policy, row in found["policies"]["replays"].items():
        assert row["rows_changed"] > 0, policy
    assert all(row["promises_kept"] for row in found["admission"])
    assert plot.read_text().startswith("<svg")
    for trace in found["replay"].values():
        hooks = trace["hooks"]
        assert set(hooks) == {"admit", "fair_share", "partition", "observe"}
        assert hooks["fair_share"]["multifactor"]["calls"] > trace["records"] / 2


@pytest.mark.slow
def test_the_benchmark_of_acceptance_compares_each_policy_with_the_search(tmp_path: Path) -> None:
    """One instance of each load and kind of jobs; as many rows are in the table and the file."""
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "benchmarks/acceptance.py", "--instances", "1", "--json", figures],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(figures.read_text())
    assert len(rows) == len(done.stdout.splitlines()) - 2 == 16
    for row in rows:
        assert row["questions"] == row["admitted"] + row["refused"] == 7
        assert row["feasible"] <= row["refused"]


@pytest.mark.slow
def test_nothing_calls_more_functions_than_it_did() -> None:
    """Calls are counted, no time: by more than 15 % more of them for a figure, this fails."""
    done = subprocess.run(
        [sys.executable, "benchmarks/guard.py", "--calls", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    if not found["before"]:
        pytest.skip(f"benchmarks/calls.toml has no counts of Python {found['python']}")
    assert set(found["before"]) == set(found["calls"])
    assert found["more"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.swf"], "none.swf: there is no such file"),
        (["none.swf", "--run", "likely", "--plot", "x.svg"], "add --run mixed"),
    ],
    ids=["no log", "nothing to draw"],
)
def test_wrong_use_of_the_odds_benchmark(arguments: list[str], words: str) -> None:
    """One sentence, no traceback."""
    command = [sys.executable, "benchmarks/likely.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"likely.py: error: {words}" in done.stderr.replace("--plot draws the mixed run; ", "")
    assert "Traceback" not in done.stderr


def test_jobs_without_requested_times_get_some(tmp_path: Path) -> None:
    """From the run time to 5 times as much, in whole minutes; the others and comments stay."""
    log = tmp_path / "log.swf"
    without = " ".join(["{} 0 0 {} 1 -1 -1 1", "{}", "-1 1 1 1 -1 -1 -1 -1 -1\n"])
    lines = [without.format(job, 600, -1) for job in range(200)]
    log.write_text("".join(["; Version: 2.2\n", *lines, without.format(200, 600, 900)]))
    command = [sys.executable, "benchmarks/requested_times.py", log]
    texts = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    first, *rows = texts[0].splitlines()
    assert first == "; Version: 2.2"
    asked = [int(row.split()[8]) for row in rows]
    assert asked[200] == 900
    assert all(600 <= each <= 3000 and each % 60 == 0 for each in asked[:200])
    assert max(asked) > 2 * min(asked)
