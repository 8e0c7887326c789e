"""What clusters of all batch systems are: a sandbox with daemons, commands, and our daemon."""

from __future__ import annotations

import shutil
import socket
import stat
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from testbed import images, tools
from testbed.errors import TestbedError
from testbed.layers import boxes, forget
from testbed.reader import DatabaseReader
from testbed.sandbox import Sandbox
from testbed.services import Services

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from testbed.layers import Layer

SITE = "/etc/rtsched/site.toml"
SOCKETS = ("/run/rtsched/submit.sock", "/run/rtsched/query.sock")
AS_DAEMON = ("setpriv", "--reuid=rtsched", "--regid=rtsched", "--init-groups")
"""As the daemon's user, with its groups: it may let the batch system in by a group."""
COMPILED = "/var/cache/rtsched-numba"

CLOCK = "/var/lib/rtsched-clock"
FAKE_CLOCK = {
    "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "FAKETIME_TIMESTAMP_FILE": CLOCK,
    "FAKETIME_CACHE_DURATION": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}


class SubmitError(TestbedError):
    """The batch system refused a job; the text is what the user read."""


class Box(ABC):
    """A batch system in a sandbox, and our software on it, from `start` to `close`.

    Parameters
    ----------
    suite : {"forky", "trixie"}
        The Debian release, and so the batch system's release.
    files : mapping of str to str
        Paths inside and the texts of further files, such as /etc/rtsched/submit.conf.
    software : bool
        Install our wheel.
    detached : bool
        Live on after the process that made it, until `close`.
    shared : str
        A directory inside that all its hosts share, as over a network file system; empty: none.
    tools : bool
        Have the programs of `testbed.tools` by which users submit work.
    """

    def __init__(
        self,
        suite: str,
        *,
        files: Mapping[str, str] | None = None,
        software: bool = True,
        detached: bool = False,
        shared: str = "",
        tools: bool = False,
    ) -> None:
        self.suite, self.tools = suite, tools
        self.shared = shared
        self.files = dict(files or {})
        self.software = software
        self.detached = detached
        self.hosts: dict[str, Sandbox] = {}
        self._box: Sandbox | None = None
        self._shared: Path | None = None
        self._daemon: tuple[tuple[str, ...], dict[str, str]] = ((), {})
        self._reader: DatabaseReader | None = None

    @abstractmethod
    def _layer(self) -> Layer:
        """Return the uppermost layer."""

    @abstractmethod
    def _bare_layer(self) -> Layer:
        """Return the uppermost layer of a host that has nothing of ours."""

    @abstractmethod
    def _prepare(self) -> None:
        """Write what the batch system reads, before anything starts."""

    @abstractmethod
    def _start_all(self) -> None:
        """Start the batch system."""

    @abstractmethod
    def logs(self, lines: int = 40) -> str:
        """Return the ends of the daemons' logs."""

    def _binds(self) -> dict[Path, str]:
        """Return what of this machine is seen inside, and where."""
        found = {images.compiled(): COMPILED} if self.software else {}
        return found | (tools.binds(self.suite) if self.tools else {})

    @classmethod
    def attach(cls, pid: int, suite: str) -> Self:
        """Return the detached one whose sandbox has this first process."""
        found = cls(suite, detached=True)
        found._box = Sandbox.attach(pid, boxes())
        return found

    @property
    def box(self) -> Sandbox:
        """The sandbox that it runs in."""
        if self._box is None:
            raise TestbedError("the cluster is not up")
        return self._box

    @property
    def services(self) -> Services:
        """All that runs in the background, by name."""
        return Services(self.box)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Make what is missing of its layers, and start everything but our daemon.

        Raises
        ------
        TestbedError
            With the end of the log of what did not start.
        """
        layer = self._layer()
        binds = self._binds()
        if self.shared:
            self._shared = Path(tempfile.mkdtemp(prefix="shared-", dir=boxes()))
            self._shared.chmod(0o755)
            binds = {**binds, self._shared: self.shared}
        self._box = Sandbox(layer.ready(), boxes(), binds=binds, detached=self.detached)
        forget(layer, unused_days=7)
        try:
            self._box.start()
            self._prepare()
            self.write(self.files)
            self.services.prepare()
            self.run(["install", "-d", "-o", "rtsched", "-g", "rtsched", "/run/rtsched"])
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything, and remove what was written; safe to repeat."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        for host in self.hosts.values():
            host.close()
        if self._box is not None:
            self._box.close()
        if self._shared is not None:
            shutil.rmtree(self._shared, ignore_errors=True)

    def add_host(self, name: str, *, software: bool = False) -> Sandbox:
        """Start another host: the batch system's files and nothing of ours, processes of its own.

        With `software` it has ours too.

        It shares the cluster's network: ports of the head are reached at 127.0.0.1, and taken. It
        ends with the cluster; no detached one may have it.
        """
        if self.detached:
            raise TestbedError("a detached cluster has one host")
        address = f"192.0.2.{len(self.hosts) + 2}"
        layers = (self._layer() if software else self._bare_layer()).ready()
        binds = {self._shared: self.shared} if self._shared is not None else {}
        host = Sandbox(
            layers, boxes(), binds=binds, hostname=name, address=address, beside=self.box
        )
        self.hosts[name] = host
        host.start()
        Services(host).prepare()
        with host.path("/etc/hosts").open("a") as file:
            file.write(f"{address} {name}\n")
        return host

    # Commands

    def path(self, inside: str) -> Path:
        """Return where this machine sees a path of the cluster."""
        return self.box.path(inside)

    def write(self, files: Mapping[str, str]) -> None:
        """Write texts to files, as root."""
        for name, text in files.items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_text(text)

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = 30,
        input: str | None = None,  # noqa: A002 # as subprocess.run calls it
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the cluster to its end, as `Sandbox.run` does."""
        return self.box.run(
            argv, user=user, env=env, cwd=cwd, timeout=timeout, input=input, check=check
        )

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: int | IO[str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command on the cluster, its outputs in pipes."""
        return self.box.popen(argv, user=user, env=env, cwd=cwd, stdin=stdin)

    # Our daemon

    def start_daemon(
        self,
        config: str | None = None,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        stepping: bool = False,
        timeout: float = 60,
    ) -> None:
        """Write site.toml, where given, start `rtsched serve`, and wait until its sockets answer.

        With `stepping`, `step_clock` sets its clock while it runs.

        Raises
        ------
        TestbedError
            With the end of its log, if it does not come up.
        """
        if config is not None:
            self.path(SITE).write_text(config)
        variables = {"NUMBA_CACHE_DIR": COMPILED} | dict(env or {})
        if stepping:
            self.step_clock(0.0)
            variables |= FAKE_CLOCK
        self._daemon = (tuple(args), variables)
        self.services.start(
            "rtsched",
            [*AS_DAEMON, "rtsched", "serve", "--config", SITE, *args],
            env={"HOME": "/var/lib/rtsched"} | variables,
            ready=lambda: all(map(self.answers, SOCKETS)),
            timeout=timeout,
        )

    def step_clock(self, seconds: float) -> None:
        """Set the clock of a daemon that was started `stepping` to so far from the true time."""
        self.path(CLOCK).write_text(f"{seconds:+f}\n")
        self.path(CLOCK).chmod(0o644)

    def answers(self, inside: str) -> bool:
        """Whether somebody listens on a Unix socket."""
        path = self.path(inside)
        try:
            if not stat.S_ISSOCK(path.stat().st_mode):
                return False
        except FileNotFoundError:  # also where a daemon has just removed that of one killed before
            return False
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

    def database(self, query: str) -> list[list[Any]]:
        """Return what a query finds in our daemon's database, as `DatabaseReader.rows` does."""
        if self._reader is None:
            self._reader = DatabaseReader(self.box)
        return self._reader.rows(query)

    def stop_daemon(self) -> None:
        """Stop our daemon as systemd would."""
        self.services.stop("rtsched")

    def kill_daemon(self) -> None:
        """Kill our daemon; the system takes its child with it."""
        self.services.stop("rtsched", "KILL")

    def restart_daemon(self) -> None:
        """Stop and start our daemon, as it was started before."""
        self.stop_daemon()
        args, variables = self._daemon
        self.start_daemon(args=args, env=variables)
