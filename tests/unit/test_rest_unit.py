"""The REST server's unit fits its defaults, and systemd understands it."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rtsched.cli.processes import rest
from rtsched.rest.settings import RestSettings

UNITS = Path(__file__).parents[2] / "contrib" / "systemd"
UNIT = UNITS / "rtsched-rest.service"


def test_it_fits_the_defaults() -> None:
    """It starts `rtsched rest` as a user of its own, behind the daemon in what it may use."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    service = parser["Service"]
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
def test_systemd_knows_every_directive(tmp_path: Path) -> None:
    """Nothing in it is misspelt."""
    unit = tmp_path / "rtsched-rest.service"
    unit.write_text(UNIT.read_text().replace("/opt/rtsched/bin/rtsched", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert "rtsched-rest.service" not in done.stderr, done.stderr
