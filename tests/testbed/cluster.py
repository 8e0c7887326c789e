"""A Slurm cluster of emulated nodes, with our software on it, from start to teardown."""

from __future__ import annotations

import re
import socket
import stat
from typing import IO, TYPE_CHECKING, Self

from testbed import accounting, images
from testbed.layers import boxes, forget
from testbed.node import Node
from testbed.sandbox import Sandbox, TestbedError
from testbed.services import Services, wait_for
from testbed.slurm import SlurmOptions

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SITE = "/etc/rtsched/site.toml"
SOCKETS = ("/run/rtsched/submit.sock", "/run/rtsched/query.sock")
AS_DAEMON = ("setpriv", "--reuid=rtsched", "--regid=rtsched", "--init-groups")
"""As the daemon's user, with its groups: it may let slurmctld in by the group slurm."""
COMPILED = "/var/cache/rtsched-numba"

CLOCK = "/var/lib/rtsched-clock"
FAKE_CLOCK = {
    "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "FAKETIME_TIMESTAMP_FILE": CLOCK,
    "FAKETIME_CACHE_DURATION": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}


class SubmitError(TestbedError):
    """sbatch refused a job; the text is what the user read."""


class Cluster:
    """A Slurm cluster in a sandbox.

    ::

        with Cluster("forky", SlurmOptions(job_submit=("rtsched",))) as cluster:
            job = cluster.sbatch(["-N2", "--time=1"], user="alice", script="sleep 5")
            print(cluster.run(["squeue"]).stdout)

    Parameters
    ----------
    suite : {"forky", "trixie"}
        The Debian release, and so the Slurm release.
    slurm : SlurmOptions
        How Slurm is set up.
    files : mapping of str to str
        Paths inside and the texts of further files, such as /etc/rtsched/submit.conf.
    software : bool
        Install our wheel, and our plug-in for slurmctld where JobSubmitPlugins names it.
    detached : bool
        Live on after the process that made it, until `close`.
    """

    def __init__(
        self,
        suite: str = "forky",
        slurm: SlurmOptions | None = None,
        *,
        files: Mapping[str, str] | None = None,
        software: bool = True,
        detached: bool = False,
    ) -> None:
        self.suite = suite
        self.slurm = slurm or SlurmOptions()
        self.files = dict(files or {})
        self.software = software
        self.detached = detached
        self._box: Sandbox | None = None
        self._daemon: tuple[tuple[str, ...], dict[str, str]] = ((), {})

    @classmethod
    def attach(cls, pid: int, suite: str) -> Self:
        """Return the detached cluster whose sandbox has this first process."""
        cluster = cls(suite, detached=True)
        cluster._box = Sandbox.attach(pid, boxes())
        return cluster

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
        layer = images.stack(self.suite)
        binds: dict[Path, str] = {}
        if self.software:
            layer = images.software(layer, self.suite)
            binds = {images.compiled(): COMPILED}
        if "rtsched" in self.slurm.job_submit:
            layer = images.submit_filter(layer, self.suite)
        self._box = Sandbox(layer.ready(), boxes(), binds=binds, detached=self.detached)
        forget(layer, unused_days=7)
        try:
            self._box.start()
            self._write_files()
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything, and remove what was written; safe to repeat."""
        if self._box is not None:
            self._box.close()

    def _write_files(self) -> None:
        texts = {"/etc/slurm/slurm.conf": self.slurm.slurm_conf()}
        if self.slurm.job_submit_lua:
            texts["/etc/slurm/job_submit.lua"] = self.slurm.job_submit_lua
        for name, text in (texts | self.files).items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_text(text)
        self.services.prepare()
        directories = "install -d -o slurm -g slurm -m 755 /run/slurm"
        directories += "; install -d -o rtsched -g rtsched -m 755 /run/rtsched"
        self.run(["sh", "-c", directories])

    def _start_all(self) -> None:
        accounting.start_munge(self.services)
        if self.slurm.database:
            accounting.start_mariadb(self.services)
            accounting.start_slurmdbd(self.services)
            if self.slurm.admin_level != "Operator":
                level = f"adminlevel={self.slurm.admin_level}"
                words = ["sacctmgr", "--immediate", "modify", "user", "rtsched", "set", level]
                self.run(words)
        self.start_slurmctld()
        for node in self.slurm.nodes:
            self.node(node).start(wait=False)
        self.wait_nodes(self.slurm.nodes)

    # Commands

    def path(self, inside: str) -> Path:
        """Return where this machine sees a path of the cluster."""
        return self.box.path(inside)

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

    def sbatch(
        self,
        args: Sequence[str] = (),
        *,
        user: str = "alice",
        script: str = "sleep 5",
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> int:
        """Submit a shell script; return the job id.

        Raises
        ------
        SubmitError
            With what the user read, if sbatch refused.
        """
        done = self.run(
            ["sbatch", "--output=/dev/null", *args],
            user=user,
            env=env,
            input=f"#!/bin/sh\n{script}\n",
            check=False,
            timeout=timeout,
        )
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        if done.returncode or found is None:
            raise SubmitError((done.stdout + done.stderr).strip())
        return int(found[1])

    def job(self, job: int) -> dict[str, str]:
        """Return what `scontrol show job` says, by field; {} when the controller forgot it."""
        done = self.run(["scontrol", "--oneliner", "show", "job", str(job)], check=False)
        if done.returncode:
            return {}
        return dict(re.findall(r"(\S+?)=(.*?)(?=\s\S+?=|\s*$)", done.stdout))

    def wait_job(self, job: int, *states: str, timeout: float = 60) -> str:
        """Wait until the job's state is one of those, by default COMPLETED; return it."""
        wanted = states or ("COMPLETED",)
        state = ""

        def reached() -> bool:
            nonlocal state
            state = self.job(job).get("JobState", "")
            return state in wanted

        try:
            wait_for(f"job {job} {' or '.join(wanted)}", reached, timeout)
        except TestbedError as error:
            raise TestbedError(f"{error}; it is {state or 'unknown'}") from error
        return state

    # Slurm's daemons

    def start_slurmctld(self) -> None:
        """Start the controller and wait until it answers."""
        ping = ["scontrol", "ping"]
        self.services.start(
            "slurmctld",
            ["slurmctld", "-D"],
            user="slurm",
            ready=lambda: self.box.listens(6817) and " is UP" in self.run(ping, check=False).stdout,
            timeout=60,
        )

    def stop_slurmctld(self) -> None:
        """Stop the controller; it saves its state."""
        self.services.stop("slurmctld")

    def kill_slurmctld(self) -> None:
        """Kill the controller; what it had not saved is lost."""
        self.services.stop("slurmctld", "KILL")

    def restart_slurmctld(self) -> None:
        """Stop and start the controller."""
        self.stop_slurmctld()
        self.start_slurmctld()

    def start_slurmdbd(self) -> None:
        """Start the accounting daemon and wait until it answers."""
        accounting.start_slurmdbd(self.services)

    def stop_slurmdbd(self) -> None:
        """Stop the accounting daemon; MariaDB stays."""
        self.services.stop("slurmdbd")

    def kill_slurmdbd(self) -> None:
        """Kill the accounting daemon."""
        self.services.stop("slurmdbd", "KILL")

    def node(self, name: str) -> Node:
        """Return one of the nodes that run."""
        return Node(self, name)

    def wait_nodes(self, names: Sequence[str], timeout: float = 60) -> None:
        """Wait until these nodes take jobs."""
        asked = ["sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N %T"]
        good = ("idle", "mixed", "allocated", "completing", "reserved")

        def ready() -> bool:
            states = [line.split() for line in self.run(asked, check=False).stdout.splitlines()]
            return {n for n, state in states if state.rstrip("+") in good} >= set(names)

        try:
            wait_for("all nodes are up", ready, timeout)
        except TestbedError as error:
            states = self.run(["sinfo", "-N", "-l"], check=False).stdout
            raise TestbedError(f"{error}\n{states}{self.logs()}") from error

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
        if not (path.exists() and stat.S_ISSOCK(path.stat().st_mode)):
            return False
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

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

    def logs(self, lines: int = 40) -> str:
        """Return the ends of the logs of all daemons but the nodes'."""
        names = ("rtsched", "slurmctld", "slurmdbd", "mariadbd", "munged")
        return "\n".join(filter(None, (self.services.log_tail(name, lines) for name in names)))
