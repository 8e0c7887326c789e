"""One daemon of a pool: stopped, started and killed, beside the others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.pool import Pool

MASTER = "condor_master"
HEAD = "head"
KINDS = {
    "collector": "Collector",
    "negotiator": "Negotiator",
    "schedd": "Scheduler",
    "startd": "Machine",
}
"""Daemons, and the MyType of what they tell the collector."""


@dataclass(frozen=True)
class CondorDaemon:
    """A daemon of HTCondor's, below the master.

    Attributes
    ----------
    pool : Pool
        Where it runs.
    name : str
        "collector", "negotiator", "schedd" or "startd"; with a startd per slot, "startd_fast1", ...
    """

    pool: Pool
    name: str

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox; 0 when there is none."""
        kind, _, local = self.name.partition("_")
        wanted = [f"condor_{kind}", *(["-f", "-local-name", local] if local else [])]
        for pid, parent in _processes(self.pool.path("/proc")):
            if parent == self.pool.services.pid(MASTER):
                words = _words(self.pool.path(f"/proc/{pid}/cmdline"))
                if words[: len(wanted)] == wanted:
                    return pid
        return 0

    def start(self, timeout: float = 60) -> None:
        """Have the master start it, and wait until the collector has heard of it."""
        since = int(time.time())
        self.pool.run(["condor_on", "-daemon", self.name])
        self._wait_heard(since, timeout)

    def stop(self, timeout: float = 30) -> None:
        """Have the master stop it, fast; a startd takes its jobs along, which wait again.

        It stays down until `start`.
        """
        self.pool.run(["condor_off", "-fast", "-daemon", self.name])
        wait_for(f"{self.name} ends", lambda: not self.pid, timeout)

    def restart(self) -> None:
        """Stop and start it."""
        self.stop()
        self.start()

    def kill(self, *, stay: bool = False, wait: bool = True, timeout: float = 60) -> None:
        """Kill it (SIGKILL); a startd's jobs die with it, as by a power cut.

        The master starts another after two seconds, whose ad replaces the dead one's.

        Parameters
        ----------
        stay : bool
            Leave it down until `start`. Its ads stay in the collector for half a minute
            (CLASSAD_LIFETIME): as long, the negotiator takes its slots for free ones. Its jobs
            wait again when their shadows give up, which takes `job_lease_duration`.
        wait : bool
            Wait until the collector has heard of the next one.
        timeout : float
            Seconds to wait.
        """
        pid, since = self.pid, int(time.time()) + 1
        if not pid:
            raise TestbedError(f"no {self.name} runs")
        found = frozen(self.pool, pid) if self.name.startswith("startd") else [pid]
        self.pool.run(["kill", "-KILL", *map(str, found)], check=False)
        if stay:
            self.stop()
        elif wait:
            self._wait_heard(since, timeout)

    def _wait_heard(self, since: int, timeout: float) -> None:
        """Wait until the collector knows an ad of a daemon that began then or later."""
        kind, _, local = self.name.partition("_")
        about = f'MyType == "{KINDS[kind]}" && Machine == "{local or HEAD}.testbed"'
        # The collector's own ad does not say, but no other can have it.
        about += "" if kind == "collector" else f" && DaemonStartTime >= {since}"
        asked = ["condor_status", "-any", "-constraint", about, "-af", "Name"]
        wait_for(
            f"{self.name} is heard of",
            lambda: bool(self.pool.run(asked, check=False).stdout.strip()),
            timeout,
        )


def frozen(pool: Pool, pid: int) -> list[int]:
    """Stop (SIGSTOP) a process, all that it has started, and what that has; return their ids.

    One that still runs may start another after the others were listed: they are listed again
    until there are no more.
    """
    found: list[int] = []
    while len(now := [pid, *descendants(pool.path("/proc"), pid)]) > len(found):
        found = now
        pool.run(["kill", "-STOP", *map(str, found)], check=False)
    return found


def descendants(proc: Path, pid: int) -> list[int]:
    """Return all that a process has started, and what that has."""
    parents = dict(_processes(proc))
    found, pending = [], [pid]
    while pending:
        parent = pending.pop()
        children = [child for child, its in parents.items() if its == parent]
        found += children
        pending += children
    return found


def _processes(proc: Path) -> Iterator[tuple[int, int]]:
    """Yield the process ids of a sandbox, each with its parent's."""
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry.name), int(words[1])


def _words(cmdline: Path) -> list[str]:
    try:
        words = cmdline.read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [words[0].rpartition("/")[2], *words[1:]]
