"""`rtsched calibrate`: logs of known speeds, costs and margins, and the site.toml made of them."""

import json
import tomllib

import numpy as np
import pytest

from rtsched.kernels.dlt import exec_time
from rtsched.kernels.loads import Load

HEADER = "JobID|JobName|User|Submit|Start|ElapsedRaw|TimelimitRaw|ReqCPUS|NCPUS|State|NodeList"
SPEED = {"fast": 1.0, "mid": 0.7, "slow": 0.4}
COSTS = (1.0, 50.0, 5.0, 30.0)


def sacct(rows):
    """Return the text of an accounting log."""
    lines = [HEADER]
    for k, (name, user, run, limit, cpus, state, nodes) in enumerate(rows, 1):
        start = f"2026-10-{1 + k // 1440:02}T{k // 60 % 24:02}:{k % 60:02}:00"
        lines.append(
            f"{k}|{name}|{user}|{start}|{start}|{run:.0f}|{limit}|{cpus}|{cpus}|{state}|{nodes}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def repeated(tmp_path):
    """Write a log of jobs repeated on nodes of three speeds, and of loads on 1 to 16 nodes."""
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(1500):
        job, node = rng.integers(0, 60), list(SPEED)[rng.integers(0, 3)]
        run = (300 + 40 * job) / SPEED[node] * np.exp(0.1 * rng.normal())
        rows.append((f"job{job}", f"u{job % 9}", run, 600, 1, "COMPLETED", f"{node}{job % 4 + 1}"))
    for _ in range(600):
        job, size = rng.integers(0, 30), int(rng.choice([1, 2, 4, 8, 16]))
        run = exec_time(size, Load(20.0 + 10 * job, *COSTS)) * np.exp(0.03 * rng.normal())
        nodes = f"fast[1-{size}]" if size > 1 else "mid9"
        rows.append((f"load{job}", "ann", run, 600, size, "COMPLETED", nodes))
    path = tmp_path / "log.txt"
    path.write_text(sacct(rows))
    return path


def estimates(run, *arguments):
    """Return the JSON of a calibration."""
    result = run("calibrate", *arguments, "--timezone", "UTC", "--json")
    assert result.exit_code in {0, 1}, result.stderr
    return json.loads(result.stdout)


def test_known_parameters_are_found(run, repeated):
    """Speeds by group; costs up to the unit of load, and set-up times, within their intervals."""
    groups = [word for name in SPEED for word in ("--group", f"{name}*")]
    found = estimates(run, repeated, *groups)
    by_node = dict(zip(found["speeds"]["node"], found["speeds"]["speed"], strict=True))
    for name, speed in SPEED.items():
        assert by_node[f"{name}*"]["value"] == pytest.approx(speed, rel=0.03)
    cms, cps, link, node = COSTS
    truth = {"cms": cms / (cms + cps), "cps": cps / (cms + cps)}
    truth |= {"setup_link": link, "setup_node": node}
    for name, value in truth.items():
        assert found["loads"][name]["low"] <= value <= found["loads"][name]["high"], name
    assert found["loads"]["sigma_known"] is False
    assert found["loads"]["sizes"] == [1, 2, 4, 8, 16]


def test_each_node_has_its_own_speed_without_groups(run, repeated):
    """Twelve nodes by name; a job on several nodes says nothing of one."""
    found = estimates(run, repeated)["speeds"]
    assert sorted(found["node"]) == sorted(f"{name}{k}" for name in SPEED for k in range(1, 5))
    assert sum(found["jobs"]) <= 1500


def test_the_site_toml_is_accepted_and_replays(run, repeated, tmp_path):
    """What --out writes is checked and used without a change."""
    result = run(
        "calibrate",
        repeated,
        "--timezone",
        "UTC",
        "--group",
        "fast*",
        "--group",
        "*",
        "--out",
        "site.toml",
    )
    assert result.exit_code == 0, result.stderr
    assert "wrote site.toml" in result.stderr
    written = tomllib.loads((tmp_path / "site.toml").read_text())["workload"]
    assert written["speeds"]["fast*"] == 1.0
    assert 0.4 < written["speeds"]["*"] < 0.7
    assert written["jobs_are"].startswith("divisible:0.0")
    assert "95 % intervals" in (tmp_path / "site.toml").read_text()
    assert run("check", "site.toml").exit_code == 0
    again = run(
        "replay",
        repeated,
        "--config",
        "site.toml",
        "--policy",
        "easy",
        "--no-out",
        "--no-report",
        "--timezone",
        "UTC",
        "--json",
    )
    assert again.exit_code == 0, again.stderr


def test_what_is_shown(run, repeated):
    """The table names what was used, the intervals, and what was assumed."""
    text = run("calibrate", repeated, "--timezone", "UTC").stdout
    for words in (
        "2,100 jobs",
        "60 classes on 12 nodes",
        "fastest",
        "send a unit (cms)",
        "the unit is such that cms + cps = 1 s",
        "killed at their limit",
        "Assumed",
        "number of processors are taken as repetitions",
    ):
        assert words in text, words


def test_a_log_that_tells_nothing(run, tmp_path):
    """Every part is refused with its reason, and the status says so."""
    (tmp_path / "log.txt").write_text(
        sacct([(f"j{k}", "ann", 60, "Partition_Limit", 1, "COMPLETED", "n1") for k in range(9)])
    )
    result = run("calibrate", "log.txt", "--timezone", "UTC", "--out", "site.toml")
    assert result.exit_code == 1
    for words in ("on one node", "no job was repeated", "no requested times"):
        assert words in result.stdout
    assert "speeds is not set" in (tmp_path / "site.toml").read_text()
    assert run("check", "site.toml").exit_code == 0


def test_swf_tells_of_sizes_and_margins_but_not_of_nodes(run, tmp_path):
    """Application numbers are names; there are no node lists; a failure at the limit counts."""
    rng = np.random.default_rng(1)
    lines = ["; MaxProcs: 64"]
    for k in range(1, 501):
        job, size = rng.integers(0, 25), int(rng.choice([1, 2, 4, 8]))
        time = exec_time(size, Load(100.0 + 20 * job, 1.0, 20.0, 0.0, 0.0)) * np.exp(
            0.02 * rng.normal()
        )
        killed = k % 10 == 0
        limit = int(time) if killed else int(2 * time)
        run_time = limit if killed else round(time)
        status = 0 if killed else 1
        lines.append(
            f"{k} {k * 60} 0 {run_time} {size} -1 -1 {size} {limit} -1 {status} 1 1 {job} -1 -1 "
            "-1 -1"
        )
    (tmp_path / "log.swf").write_text("\n".join(lines) + "\n")
    found = estimates(run, "log.swf", "--no-setup", "--within", 50, "--within", 95)
    assert "on which node" in found["speeds"]["reason"]
    assert found["loads"]["ratio"]["low"] <= 1 / 21 <= found["loads"]["ratio"]["high"]
    assert found["requests"]["at_limit"]["value"] == 0.1
    assert found["requests"]["quantiles"]["0.5"]["value"] == pytest.approx(0.5, abs=0.01)
    assert "killed at their limit" in found["requests"]["quantiles"]["0.95"]["reason"]


def test_input_sizes_of_condor_give_seconds_per_megabyte(run, tmp_path):
    """Where the log knows the loads, cms and cps have a unit of their own."""
    rng = np.random.default_rng(2)
    ads = []
    for k in range(400):
        size, megabytes = int(rng.choice([1, 2, 4, 8])), int(rng.integers(20, 400))
        time = exec_time(size, Load(megabytes, 0.5, 4.0, 10.0, 20.0)) * np.exp(0.02 * rng.normal())
        ads.append(
            f"ClusterId = {k + 1}\nProcId = 0\nQDate = 1795219200\nJobStatus = 4\n"
            f"JobCurrentStartDate = 1795219200\nCompletionDate = {1795219200 + round(time)}\n"
            f"RemoteWallClockTime = {round(time)}.0\nNumJobStarts = 1\nRequestCpus = {size}\n"
            f'TransferInputSizeMB = {megabytes}\nCmd = "/bin/x"\nOwner = "ann"\n'
            f'LastRemoteHost = "slot1_2@node{k % 2}"\nExitCode = 0\n*** Offset = 0\n'
        )
    (tmp_path / "history").write_text("".join(ads))
    loads = estimates(run, "history")["loads"]
    assert loads["sigma_known"] is True
    for name, value in (("cms", 0.5), ("cps", 4.0), ("setup_link", 10.0), ("setup_node", 20.0)):
        assert loads[name]["low"] <= value <= loads[name]["high"], (name, loads[name])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["LOG"]),
        (["none.txt"], ["none.txt"]),
        (["log.txt", "--within", "0"], ["--within", "0"]),
        (["log.txt", "--within", "100"], ["--within"]),
        (["log.txt", "--group", ""], ["--group"]),
        (["log.txt", "--unit", "rack"], ["--unit"]),
        (["log.txt", "--timezone", "Mars"], ["Mars"]),
        (["log.txt", "--out", "nowhere/site.toml"], ["nowhere"]),
    ],
    ids=str,
)
def test_wrong_use(run, tmp_path, refused, arguments, words):
    """One sentence each, before any work."""
    (tmp_path / "log.txt").write_text(sacct([("a", "ann", 9, 1, 1, "COMPLETED", "n1")]))
    refused(run("calibrate", *arguments), *words)


def test_equal_refusals_are_one_line(run, tmp_path):
    """Quantiles that are refused for the same reason stand in one sentence."""
    rows = [("a", f"u{k % 3}", 600 + k, 60, 1, "COMPLETED", "n1") for k in range(30)]
    (tmp_path / "log.txt").write_text(sacct(rows))
    said = " ".join(run("calibrate", "log.txt").stdout.split())
    assert "5, 90, 95, 99 % of the jobs: no estimate:" in said
    assert said.count("of the jobs: no estimate") == 1
