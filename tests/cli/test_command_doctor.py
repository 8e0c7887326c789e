"""`rtsched doctor`: a report of everything, without secrets, whatever is missing or hostile."""

import io
import json
import os
import pwd
import subprocess
import tarfile
from contextlib import closing

import pytest
from daemon_replies import answering, reported

from rtsched.daemon.database import connect, migrations, prepare
from rtsched.daemon.questions import PromiseStatus, Status, StatusReport
from rtsched.errors import AdapterError

SECRETS = ("hunter22", "T0/B1/abc", "plug-in secret", "conf-secret", "f1lter")
SITE = """\
description = "say \\u001b[31mred"
password = "hunter22"
planner = "mcdf"
[daemon]
run = "{run}"
database = "{run}/rtsched.db"
admins = ["head-admin"]
log_level = "debug"
webhook = "https://hooks.example.org/T0/B1/abc"
[[plugin]]
name = "mcdf"
settings = {{ node_order = "conf-secret", token = "plug-in secret" }}
"""
EVENT = {
    "timestamp": "2026-11-21T00:00:00Z",
    "level": "error",
    "event": "change_not_made",
    "job": "4711",
    "change": "scontrol update JobId=4711 Comment=my-comment",
    "uid": 1234,
    "answer": "refused for ann\x1b]0;x\x07",
    "seconds": 0.5,
    "exception": 'Traceback\n  File "/x/y.py", line 3, in f\n    g(my-comment)\nOops: my-comment',
}
STATUS = StatusReport(
    version="1.0",
    mode="live",
    system="slurm",
    now=1_795_219_200.0,
    started=1_795_219_100.0,
    looked=1_795_219_197.0,
    queued=12,
    running=1,
    nodes=30,
    usable=29,
    cycle_s=0.25,
    states={"firm": 1},
    problems=("cannot tell ann\x1b[2J: password=f1lter",),
    everyone=True,
    promises=(PromiseStatus("4711", "my-job-name", "guest7", "firm", None, None, why="of guest7"),),
    metrics="# HELP x\n# TYPE x counter\nrtsched_cycle_failures_total 3.0\n",
)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Make this a machine without batch system and journal, with the one user ann."""

    def getpwnam(name):
        if name != "ann":
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", 1000, 100, "", "/", "/bin/sh"))

    def absent(words, seconds, *_):
        raise FileNotFoundError(2, "No such file or directory", words[0])

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr("rtsched.adapters.programs.run_program", absent)
    monkeypatch.setattr("rtsched.adapters.slurm.installed.run_program", absent)
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")


@pytest.fixture
def doctor(run, tmp_path):
    """Return a function that runs the command on files of the test."""

    def doctor(*arguments):
        places = ("--config", "site.toml", "--submit-conf", "submit.conf")
        result = run("doctor", *places, "--socket", tmp_path / "query.sock", *arguments)
        assert result.exit_code == 0, result.output
        assert "Traceback" not in result.output
        return result

    return doctor


def sections(result):
    """Return a report's sections by title."""
    return json.loads(result.stdout)


def site(tmp_path):
    """Write files of a site with secrets in all of them."""
    (tmp_path / "site.toml").write_text(SITE.format(run=tmp_path))
    (tmp_path / "submit.conf").write_text("timeout_ms = 80\nproxy = conf-secret\nf1lter\n")
    lines = [json.dumps(EVENT), "my-comment of somebody", '  File "/x", line 1 in f', ""]
    (tmp_path / "rtsched.log").write_text("\n".join(lines))


def test_nothing_is_installed(doctor):
    """Each section says why it has nothing, and the command succeeds."""
    found = sections(doctor("--json"))
    assert list(found) == [
        *("versions", "plug-ins", "site.toml", "check", "slurm check", "daemon", "database"),
        *("submit.conf", "files", "log"),
    ]
    assert found["versions"]["facts"]["Slurm"] == "sinfo: No such file or directory"
    assert found["site.toml"]["error"] == "site.toml: No such file or directory"
    assert found["check"]["lines"] == [
        "site.toml does not exist: defaults apply, no plug-in is loaded"
    ]
    assert "/nowhere/slurm.conf: cannot be read" in found["slurm check"]["error"]
    assert "no daemon answers" in found["daemon"]["error"]
    assert found["submit.conf"]["error"] == "submit.conf: No such file or directory"
    assert found["files"]["facts"]["site.toml"] == "No such file or directory"
    assert found["log"]["error"] == (
        "journalctl: No such file or directory; if the log is a file, name it with --log"
    )


def test_no_secret_and_no_user_is_shown(doctor, tmp_path):
    """Planted secrets, job names and comments, and users appear in no form of the report."""
    site(tmp_path)
    with answering(tmp_path / "query.sock", lambda _: reported(STATUS)):
        text = doctor("--log", "rtsched.log", "--out", "r.tar.gz").stdout
        found = sections(doctor("--json", "--log", "rtsched.log"))
    with tarfile.open(tmp_path / "r.tar.gz") as tar:
        names = tar.getnames()
        packed = [tar.extractfile(name).read().decode() for name in names]
    assert names == ["rtsched-doctor/report.txt", "rtsched-doctor/report.json"]
    assert (tmp_path / "r.tar.gz").stat().st_mode & 0o7777 == 0o600
    for shown in (text, json.dumps(found), *packed):
        for hidden in (
            *SECRETS,
            "my-comment",
            "my-job-name",
            "guest7",
            "head-admin",
            "ann\\",
            "ann:",
            "1234",
        ):
            assert hidden not in shown, hidden
        assert "\x1b" not in shown
        assert "\x07" not in shown
    assert found["site.toml"]["left_out"] == [
        "password (its name suggests a secret)",
        "daemon.webhook (its name suggests a secret)",
        "plugin[0].settings.node_order (not a known setting)",
        "plugin[0].settings.token (its name suggests a secret)",
    ]
    assert found["site.toml"]["facts"]["daemon.log_level"] == '"debug"'
    assert found["submit.conf"]["facts"] == {"timeout_ms": "80"}
    assert found["submit.conf"]["left_out"] == [
        "proxy (not a known setting)",
        "a line without a setting",
    ]
    assert found["daemon"]["facts"]["daemon"] == "rtsched 1.0 on slurm"
    assert found["daemon"]["lines"] == [
        "problem: cannot tell user3\\x1b[2J: password=(left out)",
        "rtsched_cycle_failures_total 3.0",
    ]
    assert found["log"]["lines"] == [
        "timestamp=2026-11-21T00:00:00Z level=error event=change_not_made job=4711 "
        "answer=refused for user3\\x1b]0;x\\x07 seconds=0.5 "
        'exception=Oops < File "/x/y.py", line 3, in f',
        '  File "/x", line 1 in f',
    ]
    assert found["log"]["left_out"] == ["lines that are not events of the daemon: 1"]


def test_socket_of_the_settings(run, tmp_path):
    """Without --socket the daemon is asked where the settings say that it listens."""
    site(tmp_path)
    with answering(tmp_path / "query.sock", lambda _: reported(STATUS)) as asked:
        result = run("doctor", "--config", "site.toml", "--submit-conf", "submit.conf", "--json")
    assert asked == [Status(metrics=True)]
    assert sections(result)["daemon"]["facts"]["daemon"] == "rtsched 1.0 on slurm"


def test_users_are_shown_if_asked_for(doctor, tmp_path):
    """With --users names stand there; secrets do not."""
    site(tmp_path)
    with answering(tmp_path / "query.sock", lambda _: reported(STATUS)):
        result = doctor("--users", "--log", "rtsched.log")
    assert 'daemon.admins ["head-admin"]' in " ".join(result.stdout.split())
    assert "refused for ann\\x1b]0;x\\x07" in " ".join(result.stdout.split())
    assert not [secret for secret in SECRETS if secret in result.stdout]


def test_database(doctor, tmp_path):
    """Size and schema are read; the file, and what is beside it, stay as they were."""
    site(tmp_path)
    path = tmp_path / "rtsched.db"
    with closing(connect(path)) as base:
        prepare(base, path, "full")
    before = (path.read_bytes(), sorted(os.listdir(tmp_path)))
    facts = sections(doctor("--json"))["database"]["facts"]
    newest = migrations()[-1][0]
    assert facts["schema"] == f"{newest}, newest known {newest}"
    assert facts["size"] == f"{path.stat().st_size:,} bytes"
    assert (path.read_bytes(), sorted(os.listdir(tmp_path))) == before


def test_database_in_use(doctor, tmp_path):
    """While a daemon writes, the schema is that of its write-ahead log."""
    site(tmp_path)
    path = tmp_path / "rtsched.db"
    with closing(connect(path)) as base:
        prepare(base, path, "full")
        base.execute("PRAGMA user_version = 99")
        facts = sections(doctor("--json"))["database"]["facts"]
    assert facts["schema"].startswith("99, ")


def test_damaged_database(doctor, tmp_path):
    """The section says so."""
    site(tmp_path)
    (tmp_path / "rtsched.db").write_bytes(b"no database" * 100)
    assert "file is not a database" in sections(doctor("--json"))["database"]["error"]


def test_unreadable_files(doctor, tmp_path, monkeypatch):
    """Files that may not be read, or that are none, are reported, each in its section."""
    site(tmp_path)
    (tmp_path / "submit.conf").unlink()
    os.mkfifo(tmp_path / "submit.conf")
    (tmp_path / "rtsched.log").unlink()
    (tmp_path / "rtsched.log").mkdir()

    def denied(path, limit):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("rtsched.cli.doctor._read", denied)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    found = sections(doctor("--json", "--log", "rtsched.log"))
    assert found["site.toml"]["error"] == "site.toml: Permission denied"
    assert found["slurm check"]["error"] == "submit.conf: is not a regular file"
    assert found["log"]["error"] == "rtsched.log: is not a regular file"


@pytest.mark.parametrize("text", ["password = hunter22", "\x00\x1b[2J", "\xff", "[" * 3000, ""])
def test_odd_site_files(doctor, tmp_path, text):
    """What is no TOML is not shown, and stops nothing."""
    (tmp_path / "site.toml").write_text(text, "latin-1")
    result = doctor()
    assert "hunter22" not in result.output
    assert "\x1b" not in result.output


def test_log_lines_of_any_kind(doctor, tmp_path):
    """Only events and lines of tracebacks are shown; of a long log the last 50 lines."""
    lines = [f'{{"event": "e{k}"}}' for k in range(70)]
    (tmp_path / "rtsched.log").write_text("\n".join([*lines, "[" * 5000, "3", '"x"']))
    found = sections(doctor("--json", "--log", "rtsched.log"))["log"]
    assert found["lines"] == [f"event=e{k}" for k in range(23, 70)]
    assert found["left_out"] == ["lines that are not events of the daemon: 3"]


def test_journal(doctor, monkeypatch):
    """Without --log the journal is read; if it cannot be, its own words are shown."""

    def journal(words, seconds, *_):
        if words[0] != "journalctl":
            raise subprocess.TimeoutExpired(words, seconds)
        return subprocess.CompletedProcess(
            words, status, '{"event": "daemon_started"}\n', "no\nway"
        )

    monkeypatch.setattr("rtsched.adapters.programs.run_program", journal)
    status = 0
    found = sections(doctor("--json"))
    assert found["log"]["lines"] == ["event=daemon_started"]
    assert found["versions"]["facts"]["HTCondor"] == "condor_version did not answer within 10 s"
    status = 1
    assert sections(doctor("--json"))["log"]["error"] == "journalctl failed (status 1): no way"


def test_condor(doctor, tmp_path, monkeypatch):
    """On a pool its own check is made; one that fails is reported."""

    def looked(*_):
        raise AdapterError("the schedd does not answer")

    monkeypatch.setattr("rtsched.cli.condor.looked", looked)
    (tmp_path / "site.toml").write_text('[daemon]\nsystem = "condor"\n')
    found = sections(doctor("--json"))
    assert found["condor check"]["error"] == "the schedd does not answer"
    assert found["check"]["lines"] == ["site.toml: no errors"]


def test_pool_without_settings(doctor, tmp_path, monkeypatch):
    """Where there is no site.toml, the batch system is the one whose commands are installed."""
    (tmp_path / "condor_version").write_text("#!/bin/sh\n")
    (tmp_path / "condor_version").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rtsched.cli.condor.looked", lambda *_: (None, []))
    monkeypatch.setattr("rtsched.adapters.condor.setup.findings", lambda _: [])
    found = sections(doctor("--json"))
    assert "condor check" in found
    assert "slurm check" not in found
    (tmp_path / "sinfo").write_text("#!/bin/sh\n")
    (tmp_path / "sinfo").chmod(0o755)
    assert "slurm check" in sections(doctor("--json"))


def test_defect_of_one_section(doctor, monkeypatch):
    """It costs that section only."""

    def broken():
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("rtsched.core.plugins.discover", broken)
    found = sections(doctor("--json"))
    assert found["plug-ins"]["error"] == "ZeroDivisionError: by zero"
    assert "files" in found


def test_archive_that_cannot_be_written(run, refused, tmp_path):
    """It is refused before anything is gathered; a file that was there stays."""
    refused(run("doctor", "--out", "no/such/r.tar.gz"), "no/such/r.tar.gz: cannot be written")


def test_archive_replaces_a_file(doctor, tmp_path):
    """In one step: nothing else is left in its directory."""
    (tmp_path / "r.tar.gz").write_bytes(b"old")
    (tmp_path / "r.tar.gz").chmod(0o644)
    doctor("--out", "r.tar.gz")
    assert os.listdir(tmp_path) == ["r.tar.gz"]
    assert (tmp_path / "r.tar.gz").stat().st_mode & 0o7777 == 0o600
    tarfile.open(fileobj=io.BytesIO((tmp_path / "r.tar.gz").read_bytes())).close()
