"""The Ansible role, run on a head and a login host: set up, unchanged, refused, changed."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from packaged_site import Site
from testbed import Sandbox
from testbed.images import CHECKOUT, Sources

ROLES = "contrib/ansible/roles"
ROOT = "/root/site"
PLAY = """
- hosts: all
  roles: [rtsched]
"""
INVENTORY = """
[rtsched_controllers]
head
[logins]
login
"""
SITE_TOML = """\
planner = "mcdf"

[[plugin]]
name = "mcdf"
mode = "{mode}"

[daemon]
rest_user = "rtsched-rest"
admins = ["rtsched-notices"]
"""
SETTINGS: dict[str, Any] = {
    "rtsched_packages_directory": f"{ROOT}/packages",
    "rtsched_site": SITE_TOML.format(mode="shadow"),
    "rtsched_submit": {"timeout_ms": 5000},
    "rtsched_rest": {
        "address": "0.0.0.0",  # noqa: S104
        "certificate": "/etc/rtsched/rest.pem",
        "key": "/etc/rtsched/rest.key",
    },
    "rtsched_rest_certificate_file": f"{ROOT}/rest.pem",
    "rtsched_rest_key_file": f"{ROOT}/rest.key",
    "rtsched_notices": {"sender": "rtsched@example.org", "mail_domain": "example.org"},
    "rtsched_client": {"server": "https://head:6821", "ca": "/etc/rtsched/ca.pem"},
    "rtsched_client_ca_file": f"{ROOT}/rest.pem",
}
CERTIFICATE = f"""
cd {ROOT}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \\
    -subj /CN=head -addext subjectAltName=DNS:head -keyout rest.key -out rest.pem
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Start the site; both hosts have Ansible, the role, and what an admin hands to it."""
    with Site(apart=(), more=["ansible-core"]) as running:
        for host in (running.box, running.hosts["login"]):
            Sources(ROLES).write(host.path(ROOT))
            host.path(f"{ROOT}/play.yml").write_text(PLAY)
            host.path(f"{ROOT}/hosts").write_text(INVENTORY)
        running.copy_packages(f"{ROOT}/packages")
        running.copy_packages(f"{ROOT}/packages", running.hosts["login"], "rtsched-client")
        running.run(["sh", "-euc", CERTIFICATE])
        certificate = running.path(f"{ROOT}/rest.pem").read_text()
        running.hosts["login"].path(f"{ROOT}/rest.pem").write_text(certificate)
        yield running


def played(host: Sandbox, name: str, **changed: Any) -> tuple[dict[str, int], str]:
    """Run the role on a host; return the counts of its recap, and all that it printed."""
    host.path(f"{ROOT}/settings.json").write_text(json.dumps(SETTINGS | changed))
    words = ["ansible-playbook", "--inventory", f"{ROOT}/hosts", "--connection", "local"]
    words += ["--limit", name, "--extra-vars", f"@{ROOT}/settings.json", f"{ROOT}/play.yml"]
    env = {
        "ANSIBLE_ROLES_PATH": f"{ROOT}/{ROLES}",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    done = host.run(words, env=env, timeout=600, check=False)
    recap = re.search(rf"^{name} +: (.*)$", done.stdout, re.M)
    assert recap, done.stdout + done.stderr
    counts = dict(pair.split("=") for pair in recap[1].split())
    return {key: int(value) for key, value in counts.items()}, done.stdout + done.stderr


def set_up(site: Site) -> None:
    """Run the role on the head, if it is not as a first run leaves it."""
    file = site.path("/etc/rtsched/site.toml")
    if not file.exists() or file.read_text() != SETTINGS["rtsched_site"]:
        counts, text = played(site.box, "head")
        assert counts["failed"] == 0, text


def test_a_controller_and_a_login_host(site: Site) -> None:
    """A first run sets them up, so that users on the login host are answered; a second none."""
    login = site.hosts["login"]
    for host, name in ((site.box, "head"), (login, "login")):
        counts, text = played(host, name)
        assert (counts["failed"], counts["changed"] > 0) == (0, True), text
    assert site.run(["systemctl", "is-enabled", "rtsched"]).stdout == "enabled\n"
    assert site.path("/etc/rtsched/rest.key").stat().st_mode & 0o777 == 0o400
    done = login.run(["rtsched", "status", "--json"], user="alice", check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    assert json.loads(done.stdout)["system"] == "slurm"
    for host, name in ((site.box, "head"), (login, "login")):
        counts, text = played(host, name)
        assert (counts["failed"], counts["changed"]) == (0, 0), text


def test_a_wrong_site_toml(site: Site) -> None:
    """It is refused, with the cause; the old one stays, and the daemon goes on."""
    set_up(site)
    file = site.path("/etc/rtsched/site.toml")
    before, pid = file.read_text(), site.path("/run/stand-in/rtsched.pid").read_text()
    counts, text = played(site.box, "head", rtsched_site=before.replace("shadow", "bold"))
    assert counts["failed"] == 1
    assert "mode" in text
    assert "bold" in text
    assert file.read_text() == before
    assert site.path("/run/stand-in/rtsched.pid").read_text() == pid


@pytest.mark.parametrize("handler", ["restarted", "reloaded"])
def test_a_changed_site_toml(site: Site, handler: str) -> None:
    """It is applied by the handler."""
    set_up(site)
    pid = site.path("/run/stand-in/rtsched.pid")
    log = site.path("/run/stand-in/rtsched.log")
    before, reloads = pid.read_text(), log.read_text().count("settings_reloaded")
    text = SITE_TOML.format(mode="warn")
    changed = {"rtsched_site": text, "rtsched_site_handler": handler}
    counts, reply = played(site.box, "head", **changed)
    assert (counts["failed"], counts["changed"]) == (0, 2), reply
    assert (pid.read_text() == before) == (handler == "reloaded")
    assert log.read_text().count("settings_reloaded") - reloads == (handler == "reloaded")
    assert site.path("/etc/rtsched/site.toml").read_text() == text
    assert site.run(["rtsched", "status"], check=False).returncode in {0, 1}


def test_services_that_the_daemon_does_not_know(site: Site) -> None:
    """A REST server needs its user in site.toml."""
    set_up(site)
    text = SITE_TOML.format(mode="shadow").replace("rest_user", "#")
    counts, text = played(site.box, "head", rtsched_site=text)
    assert counts["failed"] == 1
    assert "rest_user" in text


def test_it_is_in_good_style() -> None:
    """As ansible-lint asks of roles in production."""
    words = ["ansible-lint", "--offline", "--profile", "production", CHECKOUT / ROLES / "rtsched"]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
