"""One emulated node of a cluster: its slurmd and the processes of its jobs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.services import Services
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.cluster import Cluster
    from testbed.sandbox import Sandbox


@dataclass(frozen=True)
class Node:
    """One emulated node: its slurmd and the jobs that it runs."""

    cluster: Cluster
    name: str

    @property
    def host(self) -> Sandbox:
        """Where its processes are: the cluster's sandbox, or one of its own."""
        return self.cluster.hosts.get(self.name, self.cluster.box)

    @property
    def services(self) -> Services:
        """What runs there."""
        return Services(self.host)

    def start(self, *, wait: bool = True) -> None:
        """Start its slurmd, and wait until the node takes jobs."""
        self.services.start(f"slurmd-{self.name}", ["slurmd", "-D", "-N", self.name])
        if wait:
            self.cluster.wait_nodes([self.name])

    def stop(self) -> None:
        """Stop its slurmd; its jobs run on."""
        self.services.stop(f"slurmd-{self.name}")

    def kill(self) -> None:
        """Kill it and all its jobs, as a power cut would."""
        self.services.stop(f"slurmd-{self.name}", "KILL")
        wait_for(f"nothing is left on {self.name}", lambda: not self._kill_jobs())

    def _kill_jobs(self) -> int:
        found = [entry.name for entry in self.host.path("/proc").iterdir() if self._runs(entry)]
        if found:
            self.host.run(["kill", "-KILL", *found], check=False)
        return len(found)

    def _runs(self, process: Path) -> bool:
        """Whether a process is a step of a job here (its log tells), or was started by one."""
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            if f"SLURMD_NODENAME={self.name}".encode() in variables:
                return True
            files = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:
            return False
        return f"/var/log/slurm/slurmd-{self.name}.log" in files
