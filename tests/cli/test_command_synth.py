"""`rtsched synth`, and the logs that rtsched ships."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rtsched.replay.synth import GENERATORS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("model", list(GENERATORS))
def test_models(run, tmp_path, model):
    """Every model writes a log that replays; equal options give the same bytes."""
    for name in ("a.swf.gz", "b.swf.gz"):
        result = run("synth", model, "--jobs", 50, "--nodes", 8, "--seed", 3, "-o", name)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == f"50 jobs on 8 nodes: {name}\n"
    assert (tmp_path / "a.swf.gz").read_bytes() == (tmp_path / "b.swf.gz").read_bytes()
    result = run("replay", "a.swf.gz", "--policy", "easy", "--json", "--no-out", "--no-report")
    assert json.loads(result.stdout)["log"]["machine_nodes"] == 8


def test_synth_as_json(run):
    """What was made, for scripts."""
    result = run("synth", "lublin", "--jobs", 5, "--nodes", 8, "-o", "a.swf", "--json")
    assert json.loads(result.stdout) == {"output": "a.swf", "jobs": 5, "nodes": 8}


@pytest.mark.parametrize("model", list(GENERATORS))
def test_every_setting_is_an_option_with_help(run, model):
    """The help of a model explains all of its settings."""
    text = run("synth", model, "--help").stdout
    for name in GENERATORS[model].__struct_fields__:
        assert f"--{name.replace('_', '-')}" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lublin"], ["-o"]),
        (["lubblin", "-o", "x.swf"], ["lubblin"]),
        (["lublin", "-o", "none/x.swf"], ["none"]),
        (["lublin", "-o", "."], ["it is a directory"]),
        (["lublin", "-o", "x.swf", "--jobs", "0", "--nodes", "many"], ["--jobs: ", "--nodes: "]),
        (["lublin", "-o", "x.swf", "--load", "0"], ["load"]),
        (["papers-mcdf", "-o", "x.swf", "--cms", "-1"], ["cms"]),
        (["poisson", "-o", "x.swf", "--kind", "batch"], ["--kind"]),
    ],
)
def test_wrong_use(run, tmp_path, refused, arguments, words):
    """Wrong options are one sentence each, and nothing is written."""
    refused(run("synth", *arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["slurm-sacct.txt", "slurm-sacct.json.gz", "condor-history.txt.gz"]
)
def test_shipped_logs(run, name):
    """The small shipped logs replay, and none of their records is unreadable."""
    path = EXAMPLES / "logs" / name
    common = ("--no-out", "--no-report", "--timezone", "UTC", "--policy", "easy,mcdf", "--json")
    result = run("replay", path, *common)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["log"]["jobs"] >= 50


def test_shipped_site(run):
    """The shipped site.toml has no mistakes and replays the shipped cluster's log."""
    site, log = EXAMPLES / "site.toml", EXAMPLES / "logs" / "cluster.swf.gz"
    assert run("check", site).exit_code == 0
    result = run("replay", log, "--config", site, "--no-out", "--no-report", "--json")
    assert result.exit_code == 0, result.stderr
    policies = json.loads(result.stdout)["policies"]
    assert list(policies) == ["site", "easy"]
    assert policies["site"]["hooks"]["admit"]["portfolio"]["changed"] > 0
    assert log.stat().st_size < 300_000


def test_shipped_log_is_what_its_script_makes(tmp_path):
    """examples/logs/make.py still runs, and makes a log of as many jobs."""
    script, target = EXAMPLES / "logs" / "make.py", tmp_path / "made.swf"
    subprocess.run([sys.executable, script, target], check=True)
    lines = target.read_text().splitlines()
    assert sum(not line.startswith(";") for line in lines) == 2500


def test_as_a_process(tmp_path):
    """The installed command, from shell to files; its errors too."""
    log = EXAMPLES / "logs" / "slurm-sacct.txt"
    command = [sys.executable, "-m", "rtsched", "replay"]
    done = subprocess.run(
        [*command, log, "--policy", "easy", "--json", "--no-report"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["policies"]) == ["easy"]
    done = subprocess.run([*command, "none"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "rtsched: error: none: there is no such file; check the name\n"
