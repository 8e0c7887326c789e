"""The systemd unit fits the daemon's defaults, and systemd understands it."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rtsched.cli.common import SITE
from rtsched.cli.processes import serve
from rtsched.daemon.settings import DaemonSettings

UNITS = Path(__file__).parents[2] / "contrib" / "systemd"


@pytest.fixture
def service():
    """Return the unit's [Service] section."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(UNITS / "rtsched.service")
    return parser["Service"]


def test_paths_agree(service):
    """Directories that systemd makes are those in which the daemon's defaults lie."""
    settings = DaemonSettings()
    assert f"/run/{service['RuntimeDirectory']}" == settings.run
    assert service["RuntimeDirectoryPreserve"] == "yes"
    assert Path(settings.database).parent == Path("/var/lib", service["StateDirectory"])
    assert f"NUMBA_CACHE_DIR=/var/cache/{service['CacheDirectory']} " in service["Environment"]
    made = (UNITS / "rtsched.tmpfiles").read_text()
    for directory in (settings.run, str(Path(settings.database).parent), str(SITE.parent)):
        assert f"d {directory} " in made


def test_the_command(service):
    """What is started is `rtsched serve` with options that it has, and not as root."""
    _, name, *arguments = shlex.split(service["ExecStart"])
    assert name == "serve"
    context = serve.make_context("serve", arguments, resilient_parsing=False)
    assert context.params["config"] == SITE
    assert service["User"] == "rtsched"
    assert service["KillMode"] == "mixed"


def test_a_daemon_that_hangs_is_started_anew(service):
    """Systemd expects pings, kills a silent daemon soon, and starts it however often it takes."""
    assert service["Type"] == "notify"
    assert service["Restart"] == "always"
    assert 10 <= int(service["WatchdogSec"]) <= 120
    assert int(service["TimeoutAbortSec"]) <= 30
    assert "PYTHONFAULTHANDLER=1" in service["Environment"].split()


@pytest.mark.parametrize("system", ["slurm", "condor"])
def test_the_group(service, system):
    """The groups of the daemon's user count; one of them is who may ask for verdicts."""
    assert "SupplementaryGroups" not in service
    group = DaemonSettings(system=system).asking_group()
    assert f"#m {service['User']} {group}\n" in (UNITS / "rtsched.sysusers").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_it(tmp_path):
    """Every directive is known to systemd."""
    text = (UNITS / "rtsched.service").read_text()
    unit = tmp_path / "rtsched.service"
    unit.write_text(text.replace("/opt/rtsched/bin/rtsched", "/bin/true"))
    more = tmp_path / "rtsched.service.d" / "condor.conf"
    more.parent.mkdir()
    more.write_bytes((UNITS / "rtsched-condor.conf").read_bytes())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )
    assert "rtsched.service" not in done.stderr, done.stderr
