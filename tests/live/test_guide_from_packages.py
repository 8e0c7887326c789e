"""The guides followed from packages, on a site whose head, login and compute hosts are apart.

The controller's host has the Debian packages of the daemon and the submit filter, the login host
that of users' commands, compute hosts none. Between installation and the last line a user submits
a job on the login host, and is promised its deadline, reads why, sees it on the board, and gets a
mail when the promise was kept.
"""

import re
from collections.abc import Iterator

import pytest
from guide import Block, blocks, follow
from packaged_site import NODES, Site
from testbed import Sandbox
from testbed.images import CHECKOUT
from testbed.waiting import eventually

DOCS = CHECKOUT / "docs"
SOURCES = "/usr/src/rtsched"

MAIL = """
cd /etc/exim4
sed -i "s/^dc_other_hostnames=.*/dc_other_hostnames='example.org'/" update-exim4.conf.conf
update-exim4.conf
"""
"""The mail system delivers this domain's mail itself."""


def guide(name: str) -> list[Block]:
    """Return what is to be run of a page of the documentation."""
    found = blocks(DOCS / name)
    assert found
    return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Start the site, with the packages where an admin has copied them to."""
    with Site() as running:
        running.copy_packages(f"{SOURCES}/dist")
        running.copy_packages(f"{SOURCES}/dist", running.hosts["login"], "rtsched-client")
        yield running


@pytest.fixture(scope="module")
def login(site: Site) -> Sandbox:
    """Follow the guides; return the login host."""
    login = site.hosts["login"]
    here = [block._replace(text=f"cd {SOURCES}\n{block.text}") for block in guide("packages.md")]
    follow(login, [block._replace(user="root") for block in here if block.user == "login"])
    follow(site, [block for block in here if block.user == "root"])
    site.write({"/etc/rtsched/submit.conf": "timeout_ms = 5000\n"})  # the machine may be busy
    slurm = guide("slurm/install.md")
    accounts = re.findall("^sacctmgr .*add .*$", "".join(block.text for block in slurm), re.M)
    site.run(["sh", "-euc", "\n".join(accounts)])
    reply = site.follow([b for b in slurm if b.section in {"Shadow", "Warn", "Enforce"}])
    assert "portfolio (shadow) would reject it" in reply["Shadow"]
    assert "sbatch: rtsched: warning: " in reply["Warn"]
    assert "sbatch: rtsched: promised to end by" in reply["Enforce"]

    rest = guide("rest.md")
    site.follow([b for b in rest if b.user == "root" and "client.toml" not in b.file])
    login.path("/etc/rtsched/ca.pem").write_text(site.path("/etc/rtsched/ca.pem").read_text())
    follow(login, [b for b in rest if b.user == "alice" or "client.toml" in b.file])

    site.run(["sh", "-euc", MAIL])
    notices = guide("notices.md")
    start = next(at for at, block in enumerate(notices) if "--now rtsched-notices" in block.text)
    site.follow(notices[:start])
    with site.path("/etc/rtsched/notices.toml").open("a") as file:
        file.write("digest = 0\n")
    site.follow(notices[start:])
    choice = "/var/lib/rtsched-notices/choices/alice"
    site.run(["tee", choice], user="alice", input='events = ["broken", "kept"]\n')
    return login


def test_what_is_installed_where(site: Site, login: Sandbox) -> None:
    """The controller has all of it, the login host users' commands, compute hosts nothing."""

    def installed(host: Sandbox) -> set[str]:
        ask = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", "rtsched*"]
        lines = host.run(ask, check=False).stdout.splitlines()
        return {name for name, status in map(str.split, lines) if status == "installed"}

    assert installed(site.box) == {"rtsched", "rtsched-client", "rtsched-slurm-plugin"}
    assert installed(login) == {"rtsched-client"}
    for name in NODES:
        assert installed(site.hosts[name]) == set()
        assert not site.hosts[name].path("/etc/rtsched").exists()
    for host in (login, *(site.hosts[name] for name in NODES)):
        assert "rtsched" not in host.path("/etc/passwd").read_text()


def test_a_promise_from_the_login_host_to_the_mail(site: Site, login: Sandbox) -> None:
    """A job is submitted, promised, explained, drawn, run, and its user hears that it was kept."""
    words = ["sbatch", "-N2", "--time=2", "--deadline=now+2hours", "--output=/dev/null"]
    done = login.run([*words, "--wrap=sleep 20"], user="alice")
    assert "rtsched: promised to end by" in done.stderr
    job = re.search(r"Submitted batch job (\d+)", done.stdout)[1]  # type: ignore[index]

    told = ""

    def explained() -> bool:
        nonlocal told
        done = login.run(["rtsched", "explain", job], user="alice", check=False)
        told = done.stdout + done.stderr
        return done.returncode == 0 and "promise" in told and f"job {job}" in told

    eventually(explained, 30, lambda: f"job {job} is explained: {told}")

    link = login.run(["rtsched", "board"], user="alice").stdout.strip()
    assert link.startswith("https://head:6821/board/enter?ticket=")
    browse = ["curl", "--silent", "--show-error", "--fail", "--location", "--cookie-jar", "jar"]
    browse += ["--cookie", "jar", "--cacert", "/etc/rtsched/ca.pem", link]
    assert f'data-job="{job}"' in login.run(browse, user="alice").stdout

    site.wait_job(int(job))
    mailbox = site.path("/var/mail/alice")
    eventually(lambda: mailbox.exists() and f"job {job}" in mailbox.read_text(), 90, "a mail comes")
    mail = mailbox.read_text()
    assert re.search(r"^From: .*rtsched@example.org", mail, re.M)
    assert re.search(r"^To: alice@example.org", mail, re.M)
    assert "ended as promised" in mail
