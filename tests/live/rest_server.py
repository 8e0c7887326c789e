"""`rtsched rest` beside a daemon in a sandbox, and hosts whose users ask it over TLS."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from testbed import Box, Sandbox

ADDRESS, PORT = "192.0.2.1", 6821
REST = f"""
address = "0.0.0.0"
port = {PORT}
certificate = "/etc/rtsched/rest.pem"
key = "/etc/rtsched/rest.key"
time_limit = 2
rate = 20
"""
CLIENT = f"""
server = "https://{ADDRESS}:{PORT}"
ca = "/etc/rtsched/rest.pem"
"""
AS_REST = ("setpriv", "--reuid=rtsched-rest", "--regid=rtsched-rest", "--clear-groups")
PYTHON = "/opt/rtsched/bin/python"


class HttpReply(NamedTuple):
    """Status and body of an answer."""

    status: int
    text: str


def certificate(directory: Path) -> tuple[str, str]:
    """Return a certificate of the head node that signs itself, and its key, as PEM."""
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=head", "-keyout", "key.pem", "-out", "rest.pem"]
    words += ["-addext", f"subjectAltName=DNS:head,DNS:head.testbed,IP:{ADDRESS}"]
    subprocess.run(words, cwd=directory, check=True, capture_output=True)
    return (directory / "rest.pem").read_text(), (directory / "key.pem").read_text()


def prepare_rest(box: Box, directory: Path) -> None:
    """Make the server's user, its certificate and its directory."""
    pem, key = certificate(directory)
    box.run(["useradd", "--system", "--shell", "/usr/sbin/nologin", "rtsched-rest"])
    box.path("/etc/rtsched/rest.pem").write_text(pem)
    box.path("/etc/rtsched/rest.key").write_text(key)
    box.run(["chown", "rtsched-rest", "/etc/rtsched/rest.key"])
    box.run(["chmod", "400", "/etc/rtsched/rest.key"])
    box.run(["install", "-d", "-o", "rtsched-rest", "/run/rtsched-rest"])


def start_rest(box: Box) -> None:
    """Start the server, behind the daemon."""
    box.services.start(
        "rest",
        [*AS_REST, "nice", "-n", "10", "rtsched", "rest"],
        env={"HOME": "/run/rtsched-rest"},
        ready=lambda: box.box.listens(PORT),
    )


def add_client(box: Box, name: str, client: str = CLIENT) -> Sandbox:
    """Start a host with our commands and a client.toml, and neither socket."""
    host = box.add_host(name, software=True)
    host.run(["install", "-d", "/etc/rtsched"])
    host.path("/etc/rtsched/client.toml").write_text(client)
    host.path("/etc/rtsched/rest.pem").write_text(box.path("/etc/rtsched/rest.pem").read_text())
    return host


def rtsched(host: Sandbox | Box, *words: str, user: str = "alice") -> tuple[int, Any]:
    """Run a command on a host; return its exit status and JSON, or what it says."""
    done = host.run(["rtsched", *words], user=user, check=False)
    if done.returncode < 2 and "--json" in words:
        return done.returncode, json.loads(done.stdout)
    return done.returncode, done.stdout + done.stderr
