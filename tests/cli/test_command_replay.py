"""`rtsched replay` from one end to the other."""

import json
import re

import pytest

from rtsched.cli import replay as replay_command
from rtsched.errors import MissingExtraError
from rtsched.replay import checkpoints, engine
from rtsched.replay.policies import presets

QUICK = ("--no-report", "--no-out")


def bytes_below(directory):
    """Return the bytes of every file in a directory by its path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_defaults(run, log, tmp_path):
    """Four policies, a table, results and report in one directory, nothing on stderr."""
    result = run("replay", log)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    policies = ("easy", "edf-easy", "multifactor", "portfolio-run")
    for word in ("as logged", *policies, "wait, mean", "Assumed"):
        assert word in result.stdout
    assert "report: rtsched-replay/report.html" in result.stdout
    kept = tmp_path / "rtsched-replay"
    page = (kept / "report.html").read_text()
    assert "<html" in page
    assert (kept / "easy" / "jobs.parquet").exists()


def test_json_is_all_that_is_printed(run, log):
    """With --json stdout is one object; what else there is to say goes to stderr."""
    result = run("replay", log, "--json", "--no-report")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert list(summary) == ["log", "assumptions", "policies"]
    assert list(summary["policies"]) == ["easy", "edf-easy", "multifactor", "portfolio-run"]
    assert summary["policies"]["easy"]["mean_wait_s"] > 0
    assert summary["policies"]["portfolio-run"]["hooks"]["admit"]["portfolio"]["judged"] >= 60
    assert "results: rtsched-replay" in result.stderr


def test_policies_in_parallel(run, log, tmp_path):
    """Whatever is kept of policies that were replayed in parallel is the same, byte for byte."""
    asked = ("replay", log, "--policy", "easy,fcfs", "--no-report")
    assert run(*asked, "--out", "one").exit_code == 0
    result = run(*asked, "--out", "two", "--workers", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert bytes_below(tmp_path / "one") == bytes_below(tmp_path / "two")
    assert run(*asked, "--workers", "0").exit_code == 2


def test_a_sweep_is_one_report(run, log, tmp_path):
    """Each value is a policy of its own, called by it in the table, in files and for `explain`."""
    asked = ("--policy", "easy,mcdf", "--sweep", "mcdf.order=arrival,deadline")
    result = run("replay", log, *asked, "--no-report")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["mcdf", "mcdf"] in lines
    assert ["as", "logged", "easy", "+order=arrival", "+order=deadline"] in lines
    summary = json.loads((tmp_path / "rtsched-replay/summary.json").read_text())
    names = ["easy", "mcdf+order=arrival", "mcdf+order=deadline"]
    assert list(summary["policies"]) == names
    explained = run("explain", "9", "--policy", names[1])
    assert (explained.exit_code, explained.stderr) == (0, "")
    assert names[1] in explained.stdout
    wrong = run("replay", log, "--policy", "mcdf", "--sweep", "mcdf.order=nonsense", *QUICK)
    assert wrong.exit_code == 2
    assert "policy mcdf+order=nonsense: plugin[0].settings.order: invalid value" in wrong.stderr


def test_promisable_jobs(run, tmp_path):
    """Who asks for a GPU is told, with the remedy, though jobs are given cores here."""
    (tmp_path / "sacct.txt").write_text(
        "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|ReqTRES\n"
        "1|1700000000|1700000000|1700000100|100|5|4|1|COMPLETED|cpu=4,mem=4G,node=1\n"
        "2|1700000000|1700000000|1700000100|100|5|1|1|COMPLETED|cpu=1,gres/gpu=1,node=1\n"
    )
    result = run("replay", "sacct.txt", "--policy", "easy", *QUICK)
    said = " ".join(result.stdout.split())
    assert "1 of 2 jobs in the log (50.0 %) have a form that a deadline can be promised to." in said
    assert "it asks for GPUs or other generic resources, which only --unit resources" in said


def limited(tmp_path):
    """Write a log of three jobs of one user that come at once, the machine, and a QOS for one."""
    lines = [
        f"{job}|1700000000|1700000000|1700000100|100|5|1|1|COMPLETED|ann|lab|{qos}|cpu=1,node=1"
        for job, qos in ((1, "one"), (2, "one"), (3, "free"))
    ]
    head = "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|User|Account|QOS"
    (tmp_path / "sacct.txt").write_text("\n".join([f"{head}|ReqTRES", *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(
        "".join(f"NodeName=n{k} CPUTot=1 RealMemory=1000 State=IDLE\n" for k in range(4))
    )
    (tmp_path / "qos.txt").write_text("Name|MaxJobsPU|MaxWall\none|1|00:01:00\nfree||\n")
    (tmp_path / "assoc.txt").write_text("Account|User|MaxJobs\nroot||\n lab||\n lab|ann|2\n")
    return ("replay", "sacct.txt", "--cluster", "nodes.txt", "--deadline-rule", "none", *QUICK)


@pytest.mark.parametrize("unit", ["core", "node", "resources"])
def test_limits_hold_jobs_up(run, tmp_path, unit):
    """One job of the QOS runs at a time: the second waits for 100 s, the third for nobody."""
    asked = (*limited(tmp_path), "--unit", unit, "--policy", "fcfs,easy,conservative,multifactor")
    free = json.loads(run(*asked, "--json").stdout)["policies"]
    result = run(*asked, "--json", "--qos", "qos.txt")
    summary = json.loads(result.stdout)
    for name, entry in summary["policies"].items():
        assert free[name]["mean_wait_s"] == 0
        assert entry["mean_wait_s"] == pytest.approx(100 / 3), name
    assert summary["assumptions"]["limits"].startswith("2 jobs of accounts, users or QOS with")
    assert summary["assumptions"]["other_limits_2"].startswith("2 jobs beyond MaxWall")


@pytest.mark.parametrize(
    ("limit", "enforced", "wait"),
    [
        # Both jobs ask for 5 core-minutes. The first has less than 4 to go from 60 s on, and ends
        # at 100 s, when the second is looked at; it has used 1 then.
        ("GrpTRESRunMins|cpu=8", "limits", 100),
        ("GrpTRESRunMins|cpu=10", "limits", 0),
        ("MaxTRESRunMinsPA|cpu=8", "limits", 100),
        ("GrpTRESMins|cpu=8", "limits", 0),
        ("GrpTRESMins|cpu=8", "safe", 100),
        ("GrpWall|00:05:00", "safe", 0),
    ],
)
def test_limits_that_count_time(run, tmp_path, limit, enforced, wait):
    """They hold jobs up as in Slurm, and the report says what is assumed."""
    asked = [*limited(tmp_path), "--policy", "fcfs,easy,conservative,multifactor", "--json"]
    asked[asked.index("nodes.txt")] = "slurm.conf"
    (tmp_path / "slurm.conf").write_text(
        f"NodeName=n[0-3] CPUs=1 RealMemory=1000\nAccountingStorageEnforce={enforced}\n"
    )
    name, _, most = limit.partition("|")
    (tmp_path / "qos.txt").write_text(f"Name|{name}\none|{most}\nfree|\n")
    summary = json.loads(run(*asked, "--qos", "qos.txt").stdout)
    for policy, entry in summary["policies"].items():
        assert entry["mean_wait_s"] == pytest.approx(wait / 3), policy
    said = summary["assumptions"]
    assert said["limits"].startswith("2 jobs of accounts, users or QOS with limits")
    used = name in {"GrpTRESMins", "GrpWall"}
    assert said.get("used_time", "").startswith("2 jobs of accounts or QOS with limits" * used)
    assert ("used_time" in said) is used


def test_explain_names_the_limit(run, tmp_path):
    """A job that waited for a limit is not said to have waited for nodes."""
    asked = [word for word in limited(tmp_path) if word != "--no-out"]
    assert run(*asked, "--policy", "easy", "--qos", "qos.txt", "--out", "kept").exit_code == 0
    said = " ".join(run("explain", "2", "--from", "kept").stdout.split())
    assert "its user, account or QOS may run 1 job at once, and did" in said


def test_limits_of_associations(run, tmp_path):
    """Two jobs of ann run at a time, so the third waits; with the QOS the second, in its place."""
    asked = (*limited(tmp_path), "--policy", "easy", "--json", "--associations", "assoc.txt")
    policies = json.loads(run(*asked).stdout)["policies"]
    assert policies["easy"]["mean_wait_s"] == pytest.approx(100 / 3)
    policies = json.loads(run(*asked, "--qos", "qos.txt").stdout)["policies"]
    assert policies["easy"]["mean_wait_s"] == pytest.approx(100 / 3)


def test_planned_jobs_beyond_a_limit_are_told(run, tmp_path):
    """A planner does not know limits, and the table says for how many jobs."""
    asked = (*limited(tmp_path)[:4], *QUICK, "--policy", "mcdf", "--qos", "qos.txt")
    said = " ".join(run(*asked).stdout.split())
    assert "mcdf: 1 job started as planned though their account, user or QOS was at a limit" in said


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--qos", "Name|GrpTRES\nx|cpu\n", "bad:2: GrpTRES has 'cpu', which is not NAME=COUNT"),
        ("--qos", "one|1\n", "bad:1: no header line with Name"),
        ("--associations", "Name\nx\n", "bad:1: no header line with Account and User"),
    ],
)
def test_bad_limits(run, tmp_path, refused, option, text, words):
    """One sentence says where, and which command writes the file."""
    (tmp_path / "bad").write_text(text)
    refused(run(*limited(tmp_path), option, "bad"), words, "`sacctmgr -P show ")


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
def test_same_bytes(run, log, tmp_path, table_format):
    """Equal logs, settings and seeds give equal files."""
    common = ("replay", log, "--table-format", table_format, "--policy", "multifactor,mcdf")
    more = ("--deadline-rule", "uniform:3", "--seed", "5")
    quick = ("--no-report",) if table_format == "csv" else ()
    for name in ("a", "b"):
        assert run(*common, *more, *quick, "--out", name).exit_code == 0
    first = bytes_below(tmp_path / "a")
    assert first == bytes_below(tmp_path / "b")
    assert f"mcdf/jobs.{table_format}" in first
    assert quick or "report.html" in first
    assert run(*common, *more[:-1], "6", "--out", "c", "--no-report").exit_code == 0
    assert bytes_below(tmp_path / "c")[f"log.{table_format}"] != first[f"log.{table_format}"]


def test_title(run, log, tmp_path):
    """The report's heading is what the user says."""
    named = ("--html", "page.html", "--no-out", "--title", "October on cluster A")
    assert run("replay", log, "--policy", "easy", *named).exit_code == 0
    assert "<h1>October on cluster A</h1>" in (tmp_path / "page.html").read_text()


def test_report_alone(run, log, tmp_path):
    """Without --out the report goes where --html says."""
    result = run("replay", log, "--policy", "easy", "--no-out", "--html", "report.html")
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "small.swf"]


def test_help_names_every_preset(run):
    """An admin finds the policies without looking into files."""
    text = re.sub(r"-\n\s+", "-", run("replay", "--help").stdout)
    assert set(presets()) <= set(re.split(r"[\s,;:]+", text))


def test_policies_by_comma_and_repeated(run, log):
    """`--policy a,b --policy c` is three policies, each once, in that order."""
    result = run("replay", log, "--json", *QUICK, "--policy", "fcfs, easy", "--policy", "easy,mcdf")
    assert list(json.loads(result.stdout)["policies"]) == ["fcfs", "easy", "mcdf"]


def test_site(run, log, tmp_path):
    """With a site.toml its own policy stands beside easy; options come before its [workload]."""
    (tmp_path / "site.toml").write_text(
        "[system]\nloop = 'fcfs'\n[workload]\ndeadline_rule = 'none'\nshares = {'1' = 2}\n"
    )
    common = ("replay", log, "--json", *QUICK, "--config", "site.toml")
    summary = json.loads(run(*common).stdout)
    assert list(summary["policies"]) == ["site", "easy"]
    assert summary["policies"]["site"]["settings"]["system"]["loop"] == "fcfs"
    assert summary["log"]["jobs_with_deadline"] == 0
    summary = json.loads(run(*common, "--deadline-rule", "slowdown:3").stdout)
    assert summary["log"]["jobs_with_deadline"] == 60


def test_table_options_add_to_the_sites(run, log):
    """`--shares NAME=VALUE` is repeatable and is seen in what was assumed."""
    result = run("replay", log, *QUICK, "--policy", "easy", "--shares", "0=3", "--shares", "1=0.5")
    assert result.exit_code == 0, result.stderr
    assert "equal shares" not in result.stdout


def test_cluster_file(run, log, tmp_path):
    """--cluster says what the machine is, whatever the log's header says."""
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nNodeName=n[1-8] CPUs=4\n")
    result = run(
        "replay",
        log,
        "--json",
        *QUICK,
        "--policy",
        "easy",
        "--cluster",
        "slurm.conf",
        "--unit",
        "core",
    )
    assert json.loads(result.stdout)["log"]["machine_nodes"] == 32


def test_header_proposes_rules(run, tmp_path):
    """A log by `rtsched synth` says what its jobs are; the command line may say otherwise."""
    assert run("synth", "papers-mcdf", "--jobs", "40", "-o", "p.swf").exit_code == 0
    common = ("replay", "p.swf", "--json", *QUICK, "--policy", "mcdf")
    assumed = json.loads(run(*common).stdout)["assumptions"]
    assert any("header proposes" in sentence for sentence in assumed.values())
    assert any("divisible" in sentence and "taken as" in sentence for sentence in assumed.values())
    assumed = json.loads(run(*common, "--jobs-are", "rigid").stdout)["assumptions"]
    assert not any("taken as divisible" in sentence for sentence in assumed.values())


def test_damaged_header_is_refused(run, log, refused):
    """Settings in the log's header are checked like all others."""
    text = log.read_text()
    log.write_text("; RtschedWorkload: { seed = -1, sead = 2 }\n" + text)
    refused(run("replay", log, *QUICK), "small.swf", "header line RtschedWorkload.seed", "sead")
    log.write_text("; RtschedWorkload: { seed\n" + text)
    refused(run("replay", log, *QUICK), "small.swf", "RtschedWorkload: is not valid TOML")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "eazy"], ["no policy 'eazy'", "did you mean 'easy'"]),
        (["--policy", "site"], ["no policy 'site'"]),
        (["--policy", ""], ["--policy: '' has an empty name"]),
        (["--policy", "easy,,mcdf"], ["--policy: 'easy,,mcdf' has an empty name"]),
        (["--timezone", "Berlin"], ["'Berlin'", "time zone"]),
        (["--config", "none.toml"], ["none.toml", "No such file"]),
        (["--format", "slurm"], ["'slurm'", "sacct-json"]),
        (["--cluster", "none.conf"], ["none.conf", "no such file"]),
        (["--seed", "x"], ["--seed: "]),
        (["--seed", "-1"], ["--seed: "]),
        (["--deadline-rule", "soon"], ["--deadline-rule: "]),
        (["--deadline-rule", "slowdown:0.5"], ["slowdown:0.5"]),
        (["--deadline-fraction", "2"], ["--deadline-fraction: "]),
        (["--jobs-are", "liquid"], ["--jobs-are: "]),
        (["--unit", "rack"], ["--unit: "]),
        (["--shares", "alice"], ["--shares: 'alice' is not NAME=VALUE"]),
        (["--shares", "alice=-2"], ["--shares"]),
        (["--table-format", "xls"], ["xls"]),
        (["--html", "a.html", "--no-report"], ["exclude each other"]),
        (["--title", "October", "--no-report"], ["--title needs a report"]),
        (["--title", "October", "--no-out"], ["--title needs a report"]),
        (["--out", "small.swf"], ["small.swf", "--out"]),
        (["--out", "small.swf/deeper"], ["small.swf", "--out"]),
        (["--html", "."], ["it is a directory", "--html"]),
        (["--html", "no/where.html"], ["no/where.html", "its directory does not exist", "--html"]),
        (["--frobnicate"], ["--frobnicate"]),
    ],
)
def test_wrong_use(run, log, refused, arguments, words):
    """Wrong options, settings, policies and places: status 2, one sentence each."""
    refused(run("replay", log, *arguments), *words)


def test_several_wrong_options_in_one_go(run, log, refused):
    """All wrong values are reported together."""
    refused(run("replay", log, "--seed", "x", "--unit", "rack"), "--seed: ", "--unit: ")


def test_no_log_is_named(run, refused):
    """Without a log the command says what it wants."""
    refused(run("replay"), "give at least one LOG")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["no such file"]),
        (b"", ["empty"]),
        (b"\x7fELF\x00\x01\x02\x00" * 40, ["binary"]),
        (b"once upon a time\n", ["not a log"]),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut", ["bad.swf"]),
        (b"; MaxProcs: 4\n", ["no "]),
        (b"; MaxProcs: 4\n1 0 0 -1 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n", ["no job"]),
    ],
)
def test_bad_logs(run, tmp_path, refused, content, words):
    """Missing, empty, binary, foreign, truncated and useless logs: status 2, one sentence."""
    path = tmp_path / "bad.swf"
    if content is not None:
        path.write_bytes(content)
    refused(run("replay", path, *QUICK), "bad.swf", *words)


def test_directory_as_log(run, tmp_path, refused):
    """A directory is no log."""
    refused(run("replay", tmp_path), "directory")


def test_two_formats(run, log, tmp_path, refused):
    """Logs of two formats are not mixed."""
    (tmp_path / "s.txt").write_text("JobID|Submit|Start|End|State\n1|x|x|x|x\n")
    refused(run("replay", log, "s.txt"), "one format at a time")


def test_nothing_is_left_behind_after_a_refusal(run, tmp_path):
    """A replay that fails makes no directory."""
    run("replay", "none.swf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("made_up")
def test_failing_plugin(run, log, tmp_path):
    """A plug-in that raises is left out, said, and makes the status 1."""
    (tmp_path / "site.toml").write_text("[[plugin]]\nname = 'raises'\n")
    result = run("replay", log, *QUICK, "--config", "site.toml")
    assert result.exit_code == 1, result.stderr
    assert "raises failed in" in result.stdout
    assert "licence server" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.usefixtures("made_up")
def test_plugin_that_cannot_be_made(run, log, tmp_path, refused):
    """It is refused before the log is read."""
    (tmp_path / "site.toml").write_text("[[plugin]]\nname = 'unmade'\n")
    refused(run("replay", "none.swf", "--config", "site.toml"), "'unmade': cannot be created")


def test_strict(run, log):
    """Unusable records are an issue only if one asks for it."""
    with log.open("a") as file:
        file.write("61 what is this\n")
    assert run("replay", log, *QUICK, "--policy", "easy").exit_code == 0
    result = run("replay", log, *QUICK, "--policy", "easy", "--strict")
    assert result.exit_code == 1
    assert "Skipped records" in result.stdout


def test_strict_passes_over_jobs_that_cannot_be_replayed(run, log):
    """Every log has some; the help says so."""
    with log.open("a") as file:
        file.write("61 70 5 0 4 -1 -1 4 300 -1 1 1 1 -1 1 -1 -1 -1\n")
        file.write("62 70 -1 -1 4 -1 -1 4 300 -1 5 1 1 -1 1 -1 -1 -1\n")
    result = run("replay", log, *QUICK, "--policy", "easy", "--strict")
    assert result.exit_code == 0
    assert "it ran for no time" in result.stdout
    assert "it never started" in result.stdout
    told = " ".join(run("replay", "--help").stdout.split())
    assert "cannot be replayed, since they never started or ran for no time, do not count" in told


def test_no_report_takes_the_place_of_a_log(run, log, refused):
    """Nor of a device; calibrate keeps to that too."""
    before = log.read_bytes()
    refused(run("replay", log, "--html", log), "reads this file", "--html")
    refused(run("replay", log, "--html", "/dev/null"), "no regular file", "--html")
    refused(run("calibrate", log, "--out", log), "reads this file", "--out")
    assert log.read_bytes() == before


def test_without_report_packages(run, log, tmp_path, monkeypatch, refused):
    """The report is left out with a word; asked for by name, its absence is an error."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = run("replay", log, "--policy", "easy")
    assert result.exit_code == 0
    assert result.stderr.startswith("rtsched: warning: no HTML report is written: ")
    assert "pip install 'rtsched[report]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "rtsched-replay" / "report.html").exists()
    refused(run("replay", log, "--html", "a.html"), "rtsched[report]")


def test_without_pyarrow(run, log, tmp_path, monkeypatch, refused):
    """Results are kept as CSV; Parquet asked for by name is an error."""

    def missing():
        raise MissingExtraError("Parquet", "replay", "no pyarrow")

    monkeypatch.setattr("rtsched.report.files._arrow", missing)
    assert run("replay", log, "--policy", "easy", "--no-report").exit_code == 0
    assert (tmp_path / "rtsched-replay" / "easy" / "jobs.csv").exists()
    refused(run("replay", log, "--table-format", "parquet"), "rtsched[replay]")


def test_interrupted(run, log, tmp_path, monkeypatch):
    """Ctrl-C ends with 130; the policies that were done are reported and kept."""
    real = engine.replay

    def interrupted(workload, name, *args, **kwargs):
        if name == "multifactor":
            raise KeyboardInterrupt
        return real(workload, name, *args, **kwargs)

    monkeypatch.setattr(engine, "replay", interrupted)
    result = run("replay", log, "--no-report")
    assert result.exit_code == 130
    said = "interrupted; easy, edf-easy done and reported, not replayed: multifactor, portfolio-run"
    assert result.stderr == f"rtsched: error: {said}\n"
    assert "wait, mean" in result.stdout
    assert (tmp_path / "rtsched-replay" / "easy").exists()
    result = run("replay", log, "--policy", "multifactor")
    assert result.exit_code == 130
    assert result.stdout == ""


def test_resuming(run, log, tmp_path, monkeypatch, refused):
    """An interrupted replay says how to go on, does so with the same results, and keeps no rest."""
    real, replayed = engine.replay, []

    def interrupted(workload, name, *args, **kwargs):
        replayed.append(name)
        if name == "multifactor" and len(replayed) < 4:
            raise KeyboardInterrupt
        return real(workload, name, *args, **kwargs)

    assert run("replay", log, "--no-report", "--out", "whole").exit_code == 0
    monkeypatch.setattr(checkpoints, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(engine, "replay", interrupted)
    asked = ("replay", log, "--no-report", "--out", "out")
    result = run(*asked)
    assert result.exit_code == 130
    assert "to go on from there, add --resume to the command" in result.stderr
    refused(run(*asked, "--resume", "--jobs-are", "moldable"), "another log or machine")
    refused(run(*asked, "--resume", "--policy", "easy"), "other policies or settings of them")
    refused(run(*asked, "--resume", "--no-out"), "exclude each other")
    assert run(*asked, "--resume").exit_code == 0
    assert replayed == ["easy", "edf-easy", "multifactor", "multifactor", "portfolio-run"]
    assert bytes_below(tmp_path / "out") == bytes_below(tmp_path / "whole")
    result = run(*asked, "--resume")
    assert result.exit_code == 0
    assert "nothing to resume in out: the replay starts at the beginning" in result.stderr


def test_large_logs_are_on_disk(run, log, tmp_path, monkeypatch):
    """They give the same results, byte for byte."""
    asked = ("replay", log, "--no-report", "--out")
    whole = run(*asked, "memory", "--json")
    monkeypatch.setattr(replay_command, "ON_DISK", 1)
    monkeypatch.setattr("rtsched.model.on_disk.LARGE", 64)
    assert run(*asked, "disk").exit_code == 0
    assert bytes_below(tmp_path / "memory") == bytes_below(tmp_path / "disk")
    measured = json.loads(run("replay", log, "--no-out", "--json").stdout)
    for policy, entry in json.loads(whole.stdout)["policies"].items():
        assert measured["policies"][policy]["mean_wait_s"] == entry["mean_wait_s"]


def test_list_of_policies(run):
    """Every preset has one line, its name and what it does; no log is needed."""
    result = run("replay", "--list-policies")
    assert result.exit_code == 0, result.stderr
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert [name for name, _ in lines] == list(presets())
    assert ["easy", "first come, first served with EASY backfilling"] in lines
    listed = json.loads(run("replay", "--list-policies", "--json").stdout)
    assert [[each["name"], each["description"]] for each in listed] == lines
    assert {each["from"] for each in listed} == {"preset"}


def test_list_of_policies_of_a_site(run, tmp_path, refused):
    """Those of its file come first, and in place of presets of the same names."""
    (tmp_path / "site.toml").write_text(
        '[[plugin]]\nname = "limits"\n[policy.easy]\ndescription = "our\\u001b easy"\n'
    )
    arguments = ("replay", "--list-policies", "--config", "site.toml")
    lines = run(*arguments).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines[:2]] == [
        "site easy; plug-ins: limits",
        "easy our\\x1b easy",
    ]
    assert [line.split()[0] for line in lines].count("easy") == 1
    assert len(lines) == len(presets()) + 1
    listed = json.loads(run(*arguments, "--json").stdout)
    assert [each["from"] for each in listed[:3]] == ["config", "config", "preset"]
    (tmp_path / "site.toml").write_text("[policy.x]\nlop = 1\n")
    refused(run(*arguments), "policy.x")
