"""The systemd units fit the defaults of daemon and REST server, and systemd understands them."""

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rtsched.cli.common import SITE
from rtsched.cli.processes import rest, serve
from rtsched.daemon.settings import DaemonSettings
from rtsched.rest.settings import RestSettings

UNITS = Path(__file__).parents[2] / "contrib" / "systemd"


def section(unit):
    """Return a unit's [Service] section."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(UNITS / unit)
    return parser["Service"]


@pytest.fixture
def service():
    """Return that of the daemon."""
    return section("rtsched.service")


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


def test_the_rest_server():
    """It starts `rtsched rest` as a user of its own, behind the daemon in what it may use."""
    service = section("rtsched-rest.service")
    _, name, *arguments = shlex.split(service["ExecStart"])
    assert name == "rest"
    assert rest.make_context("rest", arguments).params["config"] == Path("/etc/rtsched/rest.toml")
    assert service["User"] not in {"root", "rtsched"}
    assert f"\nu {service['User']} " in (UNITS / "rtsched.sysusers").read_text()
    directory = Path("/run", service["RuntimeDirectory"])
    assert Path(RestSettings().socket).parent == directory
    assert int(service["Nice"]) > 0
    assert service["Type"] == "notify"
    assert int(service["LimitNOFILE"]) > 2 * RestSettings().connections


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["rtsched", "rtsched-rest"])
def test_systemd_knows_every_directive(tmp_path, name):
    """Nothing in it is misspelt; nor in what the daemon's has beside HTCondor."""
    unit = tmp_path / f"{name}.service"
    unit.write_text(
        (UNITS / unit.name).read_text().replace("/opt/rtsched/bin/rtsched", "/bin/true")
    )
    more = tmp_path / "rtsched.service.d" / "condor.conf"
    more.parent.mkdir()
    more.write_bytes((UNITS / "rtsched-condor.conf").read_bytes())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )
    assert unit.name not in done.stderr, done.stderr
