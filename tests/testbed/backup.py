"""A second host in a sandbox, on which the backup controller and its own daemon of ours run.

It has a name and an address of its own, and directories of its own for what a host keeps to itself:
sockets, process ids, logs. All else, as StateSaveLocation and the daemon's database, it shares with
the first host, as over a network file system. Processes and network are the sandbox's.

References
----------
Manual pages slurm.conf(5) (`SlurmctldHost`, `NoCtldInAddrAny`), unshare(1), nsenter(1).
"""

from __future__ import annotations

from pathlib import Path

from testbed.sandbox import Sandbox
from testbed.services import wait_for

NAME, ADDRESS = "head2", "127.0.0.2"

OWN = "/run/testbed /run/rtsched /run/slurm /var/log/testbed /var/log/slurm"

FIRST_PROCESS = f"""
set -eu
hostname {NAME}
for directory in {OWN}; do
    mkdir -p "$directory"
    mount -t tmpfs -o mode=755 tmpfs "$directory"
done
chmod 1777 /run/testbed /var/log/testbed
chown slurm:slurm /run/slurm /var/log/slurm
chown rtsched:rtsched /run/rtsched
: >/run/testbed/ready
while :; do sleep 3600; done
"""


class SecondHost(Sandbox):
    """The second host of a sandbox that is up, from `start` until that ends."""

    def __init__(self, first: Sandbox) -> None:
        super().__init__(first.layers, first.home, detached=True)
        self.first, self.pid = first, first.pid
        self._inner = 0

    def start(self) -> None:
        """Make its namespaces, and wait until its directories are there."""
        words = ["unshare", "--mount", "--uts", "sh", "-c", FIRST_PROCESS]
        pid_file = "/run/head2.pid"
        background = 'exec >/dev/null 2>&1; echo $$ >"$0"; exec "$@"'
        self.first.run(
            [
                "setsid",
                "--fork",
                "sh",
                "-c",
                background,
                pid_file,
                *words,
            ]
        )
        file = self.first.path(pid_file)
        wait_for("the second host is there", lambda: file.exists() and file.read_text().strip())
        self._inner = int(file.read_text())
        wait_for("its directories are there", self.path("/run/testbed/ready").exists)

    def close(self) -> None:
        """Leave it to the sandbox, which ends it."""

    def path(self, inside: str) -> Path:
        """Return where the machine sees a path of this host."""
        root = self.first.path(f"/proc/{self._inner}/root") if self._inner else Path("/nowhere")
        return root / inside.lstrip("/")

    def entry(self, user: str = "root", cwd: str | None = None) -> tuple[list[str], dict[str, str]]:
        """Return what to put before a command to run it on this host, and its environment."""
        words, variables = super().entry(user, cwd)
        spaces = self.first.path(f"/proc/{self._inner}/ns")
        own = {"--mount": f"--mount={spaces}/mnt", "--uts": f"--uts={spaces}/uts"}
        words = [own.get(word, word) for word in words]
        words[words.index("--root")] = f"--root={self.path('/')}"
        return words, variables
