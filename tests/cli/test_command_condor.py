"""`rtsched condor`: what is not ready is told; our files are written by --apply alone, and go."""

import json
import os

import pytest

from rtsched.adapters.condor.condor_conf import ACCESS, EXECUTE, SCRIPT, shipped

SITE = """\
planner = "mcdf"
[[plugin]]
name = "mcdf"
[daemon]
system = "condor"
run = "{run}"
[condor]
run_time_s = 600
"""
CONFIG_VAL = """\
case "$*" in
  LOCAL_CONFIG_DIR) echo "/usr/share/condor/config.d, /etc/other $CONFIG_D" ;;
  DAEMON_LIST) echo "MASTER, SCHEDD, STARTD_FAST1" ;;
  *-negotiator*) echo "${NEGOTIATED?no negotiator}" ;;
  NEGOTIATOR_INTERVAL) echo 20 ;;
  *-schedd*QUEUE_SUPER_USERS) echo "root, condor" ;;
  *-schedd*) echo "Not defined" ;;
  *) exit 1 ;;
esac
"""
STATUS = """\
case "$*" in
  *-schedd*|*-negotiator*) echo "1.0 1700000000" ;;
  *) echo '[{"Name": "slot1@a", "RtSlot": "x", "Start": "RtNodeSet"}, {"Name": "slot2@a"}]' ;;
esac
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Make an access point of made-up commands; return its configuration's directory."""
    commands = {
        "condor_version": "echo '$CondorVersion: 25.14.1 2026-10-16 $'",
        "condor_config_val": CONFIG_VAL,
        "condor_status": STATUS,
        "condor_qusers": "echo alice@a",
    }
    for name, text in commands.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CONFIG_D", str(tmp_path / "config.d"))
    (tmp_path / "config.d").mkdir()
    (tmp_path / "site.toml").write_text(SITE.format(run=tmp_path))
    return tmp_path / "config.d"


@pytest.fixture
def site(tmp_path):
    """Return the options that name the site's files."""
    return ("--config", tmp_path / "site.toml", "--submit-conf", tmp_path / "submit.conf")


def test_check(run, directory, site):
    """Machine and pool are asked, and what is not ready is told, with status 1; as JSON too."""
    result = run("condor", "check", *site)
    assert result.exit_code == 1, result.stderr
    text = " ".join(result.stdout.split())
    assert f"{directory / ACCESS} does not exist" in text
    assert "uses JOB_TRANSFORM_NAMES without RtForged RtFrozen RtJudged RtParallel" in text
    assert "QUEUE_SUPER_USERS without rtsched" in text
    assert "1 of 2 slots start jobs" in text
    assert "no negotiator answers here: " in text
    assert "/run/rtsched/slots" in text
    assert "does not know the user rtsched" in text
    assert "no daemon answers" in text
    found = json.loads(run("condor", "check", *site, "--json").stdout)
    assert {"state", "what", "remedy"} == set(found[0])


def test_check_of_a_slow_negotiator(run, directory, site, monkeypatch):
    """The running negotiator's interval is compared with the one that plans count on."""
    monkeypatch.setenv("NEGOTIATED", "60")
    text = " ".join(run("condor", "check", *site).stdout.split())
    assert "negotiation interval is 60 s, plans assume 20 s" in text


def test_check_of_a_central_manager(run, directory, site, tmp_path):
    """Where only the negotiator runs its table counts, and neither schedd nor daemon."""
    (tmp_path / "submit.conf").write_text(f"table = {tmp_path}/slots\n")
    (tmp_path / "site.toml").unlink()
    text = run("condor", "check", *site, "--role", "central", "--json").stdout
    assert f"{tmp_path}/slots does not exist: no slot is reserved for promised starts" in text
    assert f"{directory / ACCESS} does not exist" in text
    for other in ("schedd", "daemon answers", "site.toml", "sockets"):
        assert other not in text, other


def test_install_shows_first(run, directory, site):
    """Without --apply the files are shown, filled in, and nothing is written."""
    result = run("condor", "install", *site)
    assert result.exit_code == 0, result.stderr
    assert "+RTSCHED_RUN_TIME = 600" in result.stdout
    assert "Remaining steps" in result.stdout
    assert not list(directory.iterdir())
    assert "use --apply" in result.stderr


def test_install_and_uninstall(run, directory, site):
    """Files are written once; what somebody changed is kept unread; all goes without a trace."""
    for _ in range(2):
        result = run("condor", "install", *site, "--apply")
        assert result.exit_code == 0, result.stderr
    assert "nothing to change" in result.stdout
    assert {path.name for path in directory.iterdir()} == {ACCESS, EXECUTE}
    text = (directory / ACCESS).read_text()
    assert text == shipped(ACCESS).replace("RUN_TIME = undefined", "RUN_TIME = 600")
    assert (directory / ACCESS).stat().st_mode & 0o777 == 0o644
    mine = text.replace("/usr/lib/rtsched/", "/opt/") + "UNUSED_CLAIM_TIMEOUT = 5\n"
    (directory / ACCESS).write_text(mine)
    result = run("condor", "install", *site, "--apply")
    assert "-UNUSED_CLAIM_TIMEOUT = 5" in result.stdout
    assert "RTSCHED_LIBRARY = /opt/librtsched_classad.so" in (directory / ACCESS).read_text()
    (backup,) = directory.glob("*~")
    assert backup.read_text() == mine
    backup.unlink()
    run("condor", "uninstall", "--config-dir", directory)
    assert (directory / ACCESS).exists()
    result = run("condor", "uninstall", "--apply")
    assert result.exit_code == 0
    assert "condor_reconfig" in result.stderr
    assert not list(directory.iterdir())


def test_without_the_library(run, directory, site, tmp_path):
    """The choice stays in the files; the script comes with it."""
    (directory / EXECUTE).write_text(
        shipped(EXECUTE).replace("/usr/libexec/rtsched", str(tmp_path / "made"))
    )
    options = ("--role", "execute", "--no-library", "--apply")
    assert run("condor", "install", *site, *options).exit_code == 0
    assert (tmp_path / "made" / SCRIPT).stat().st_mode & 0o777 == 0o755
    assert "RTSCHED_NATIVE = False\n" in (directory / EXECUTE).read_text()
    assert not (directory / ACCESS).exists()
    result = run("condor", "install", *site, "--role", "execute")
    assert "nothing to change" in result.stdout
    result = run("condor", "install", *site, "--role", "execute", "--library")
    assert "+RTSCHED_NATIVE = True" in result.stdout
    assert run("condor", "uninstall", "--apply").exit_code == 0
    assert not list((tmp_path / "made").iterdir())


def test_another_system(run, directory, site, tmp_path):
    """A site of another batch system, or a broken one, is a finding beside the others."""
    (tmp_path / "site.toml").write_text("")
    assert 'system is "slurm"' in " ".join(run("condor", "check", *site).stdout.split())
    (tmp_path / "site.toml").write_text("[daemon]\nrun = 3\n")
    assert "daemon.run" in run("condor", "check", *site).stdout
    assert run("condor", "check", *site, "--role", "execute").stdout.startswith("wrong  ")


@pytest.mark.parametrize("text", [None, "[daemon]\nrun = 3\n", ""])
def test_without_settings_htcondors_defaults_hold(run, directory, site, tmp_path, text):
    """A site.toml that is missing, broken, or Slurm's: advice is HTCondor's, choices stay."""
    (tmp_path / "site.toml").unlink()
    if text is not None:
        (tmp_path / "site.toml").write_text(text)
    chosen = shipped(ACCESS).replace("OVERRUNS = vacate", "OVERRUNS = remove")
    (directory / ACCESS).write_text(chosen)
    result = run("condor", "check", *site)
    said = " ".join(result.stdout.split())
    assert str(tmp_path / "site.toml") in said
    assert "who may not query the daemon" not in said
    assert "group slurm" not in said
    result = run("condor", "install", *site, "--apply")
    assert result.exit_code == 0, result.stderr
    kept = "vacate" if text == "" else "remove"
    assert f"RTSCHED_OVERRUNS = {kept}\n" in (directory / ACCESS).read_text()


def test_no_htcondor(run, tmp_path, monkeypatch):
    """Where HTCondor is not installed that is one finding."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("condor", "check", "--config", tmp_path / "none.toml", "--role", "access")
    assert result.exit_code == 1
    assert "HTCondor's tools are not installed here" in " ".join(result.stdout.split())


def test_a_directory_that_cannot_be_written(run, directory, site):
    """That is one sentence with its remedy."""
    (directory.parent / "file").write_text("")
    where = ("--config-dir", directory.parent / "file" / "config.d")
    result = run("condor", "install", *site, *where, "--apply")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert "run this as root" in result.stderr
