"""Another access point of a pool: a schedd on a host of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.condor import HOST, PoolOptions
from testbed.pool import LOGS
from testbed.services import Services
from testbed.waiting import wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.pool import Pool
    from testbed.sandbox import Sandbox

MASTER, PORT = "condor_master", 9618
KEY, TOKENS = "/etc/condor/passwords.d/POOL", "/etc/condor/tokens.d"


class AccessPoint:
    """A host with a schedd, of a pool that is up; it ends with the pool.

    Its daemons and the pool's know one another by the pool's signing key and tokens.

    Parameters
    ----------
    pool : Pool
        The pool.
    name : str
        Name of the host; that of the schedd is `NAME.testbed`.

    Attributes
    ----------
    host : Sandbox
        The host.
    schedd : str
        Name of the schedd.
    """

    def __init__(self, pool: Pool, name: str) -> None:
        self.pool, self.name, self.schedd = pool, name, f"{name}.testbed"
        self.host: Sandbox = pool.add_host(name, software=True)
        hosts = f"127.0.0.1 localhost {HOST} head\n{self.host.address} {self.schedd} {name}\n"
        self._configure(hosts)
        with pool.path("/etc/hosts").open("a") as file:
            file.write(f"{self.host.address} {self.schedd} {name}\n")
        _trust(pool, self.host)
        made = ["/run/condor", "/run/lock", "/var/lock/condor", LOGS]
        made += ["/var/lib/condor", "/var/lib/condor/spool", "/var/lib/condor/execute"]
        self.run(["install", "-d", "-o", "condor", "-g", "condor", *made])
        self.run(["install", "-d", "-o", "rtsched", "-g", "rtsched", "/run/rtsched"])

    def _configure(self, hosts: str) -> None:
        """Write the configuration: that of the pool, but for the address and the daemons."""
        own = {
            "NETWORK_HOSTNAME": self.schedd,
            "NETWORK_INTERFACE": self.host.address,
            "DAEMON_LIST": "MASTER, SHARED_PORT, SCHEDD",
            # The hosts share one network, and the others' port is taken at every address.
            "SHARED_PORT_PORT": str(PORT + len(self.pool.hosts)),
        }
        settings = {**self.pool.options.settings, **own}
        options: PoolOptions = replace(self.pool.options, settings=settings)
        for path, text in {**options.files(), "/etc/hosts": hosts}.items():
            if "execute" not in path:
                self.write(path, text)

    def path(self, inside: str) -> Path:
        """Return where this machine sees a path of the host."""
        return self.host.path(inside)

    def write(self, path: str, text: str) -> None:
        """Write a text to a file of the host, as root."""
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        check: bool = True,
        input: str | None = None,  # noqa: A002 # as subprocess.run calls it
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host."""
        return self.host.run(argv, user=user, check=check, input=input)

    @property
    def services(self) -> Services:
        """What runs on the host in the background."""
        return Services(self.host)

    def start(self, timeout: float = 90) -> None:
        """Start the master and its schedd, and wait until the collector knows that."""
        self.services.start(MASTER, [MASTER, "-f"], ready=self.known, timeout=timeout)

    def stop(self) -> None:
        """Kill the host's daemons, as a power cut would."""
        self.run(["pkill", "-KILL", "condor_"], check=False)
        wait_for("the schedd's end", lambda: not self.answers())

    def known(self) -> bool:
        """Return whether the collector knows the schedd, and it answers."""
        asked = ["condor_status", "-schedd", "-af", "Name"]
        return self.schedd in self.pool.run(asked, check=False).stdout.split() and self.answers()

    def answers(self) -> bool:
        """Return whether the schedd answers on its own host."""
        return self.run(["condor_q", "-totals"], check=False).returncode == 0

    def logs(self, lines: int = 40) -> str:
        """Return the ends of the logs."""
        found = []
        for name in ("MasterLog", "SchedLog"):
            file = self.host.path(f"{LOGS}/{name}")
            if file.exists():
                tail = file.read_text(errors="replace").splitlines()[-lines:]
                found.append("\n".join([f"--- {self.name}: {LOGS}/{name}", *tail]))
        return "\n".join(found)


def _trust(pool: Pool, host: Sandbox) -> None:
    """Give a host the pool's signing key and its daemons a token."""
    identity = ["condor_token_create", "-identity", "condor@testbed"]
    token = pool.run(identity).stdout
    for where in (pool.box, host):
        where.path(TOKENS).mkdir(parents=True, exist_ok=True)
        file = where.path(f"{TOKENS}/pool")
        file.write_text(token)
        file.chmod(0o600)
    target = host.path(KEY)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(pool.path(KEY).read_bytes())
    target.chmod(0o600)
