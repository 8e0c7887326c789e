"""`rtsched compare`: replays side by side, files, and what is refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rtsched.cli import main


def run(*words: str) -> tuple[int, str, str]:
    """Run a command; return its status and both outputs."""
    done = CliRunner().invoke(main, list(words))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the directories of six replays of small logs."""
    path, kept = tmp_path_factory.mktemp("compare"), []
    for seed in range(6):
        log, out = path / f"{seed}.swf", path / f"out{seed}"
        words = ["synth", "lublin", "--nodes", "32", "--jobs", "120", "--load", "0.9"]
        assert run(*words, "--seed", str(seed), "-o", str(log))[0] == 0
        words = ["replay", str(log), "--policy", "fcfs,easy", "--out", str(out), "--no-report"]
        assert run(*words)[0] == 0
        kept.append(str(out))
    return kept


def test_policies_side_by_side(replays: list[str], tmp_path: Path) -> None:
    """A table on the terminal; values, differences and plots in a directory."""
    status, out, _ = run("compare", *replays, "--out", str(tmp_path / "out"))
    assert status == 0
    assert out.startswith("6 replays; baseline fcfs\n")
    assert "mean_wait_s" in out
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"values.parquet", "differences.parquet", "mean_wait_s.svg"} <= files
    rows = json.loads((tmp_path / "out" / "comparison.json").read_text())
    (wait,) = [each for each in rows if each["measure"] == "mean_wait_s"]
    assert (wait["policy"], wait["pairs"]) == ("easy", 6)
    assert wait["low"] <= wait["difference"] <= wait["high"]
    again = run("compare", *replays, "--out", str(tmp_path / "out"), "--json")
    assert json.loads(again[1]) == rows


def test_policies_of_some_replays_only_are_named(replays: list[str], tmp_path: Path) -> None:
    """They are not compared."""
    log = str(Path(replays[0]).with_name("0.swf"))
    words = ["replay", log, "--policy", "fcfs,edf-easy,easy", "--no-report"]
    assert run(*words, "--out", str(tmp_path / "out"))[0] == 0
    status, out, _ = run("compare", replays[1], str(tmp_path / "out"))
    assert status == 0
    assert "left out, as they are not in all replays: edf-easy\n" in out
    assert "left out" not in run("compare", *replays)[1]


def test_the_mean_is_that_of_the_summaries(replays: list[str]) -> None:
    """As the replays themselves say it."""
    waits = []
    for path in replays:
        with open(f"{path}/summary.json", encoding="utf-8") as file:
            policies = json.load(file)["policies"]
        waits.append([policies[name]["mean_wait_s"] for name in ("fcfs", "easy")])
    rows = json.loads(run("compare", *replays, "--json")[1])
    (found,) = [each for each in rows if each["measure"] == "mean_wait_s"]
    assert found["difference"] == pytest.approx(sum(b - a for a, b in waits) / 6)
    other = json.loads(run("compare", *replays, "--baseline", "easy", "--json")[1])
    (found_again,) = [each for each in other if each["measure"] == "mean_wait_s"]
    assert found_again["difference"] == pytest.approx(-found["difference"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give the directories of replays"),
        (["/nowhere"], "contains no replay"),
        (["DIR", "--baseline", "sjf"], "no policy 'sjf' is in all replays"),
        (["DIR", "--measure", "speed"], "there is no measure 'speed'"),
        (["DIR", "--confidence", "1.5"], "is not in the range"),
    ],
)
def test_what_is_refused(replays: list[str], words: list[str], text: str) -> None:
    """One sentence each, and nothing is written."""
    status, _, error = run("compare", *(replays[0] if each == "DIR" else each for each in words))
    assert status == 2
    assert text in " ".join(error.split())
