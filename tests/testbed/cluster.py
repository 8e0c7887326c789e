"""A Slurm cluster of emulated nodes, with our software on it, from start to teardown."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from testbed import accounting, backup, images, slurm_source
from testbed.backup import SecondHost
from testbed.box import Box, SubmitError
from testbed.errors import TestbedError
from testbed.node import Node
from testbed.services import Services
from testbed.slurm import SlurmOptions
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from testbed.layers import Layer
    from testbed.sandbox import Sandbox

SUBMIT_CONF = "/etc/rtsched/submit.conf"


class Cluster(Box):
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
    rest : bool
        Install what `rtsched rest` needs.
    detached : bool
        Live on after the process that made it, until `close`.
    tools : bool
        Have the programs of `testbed.tools` by which users submit work.
    source : Path, optional
        An archive of Slurm's sources: that release in place of the suite's. Where
        $RTSCHED_SLURM_SOURCE names one, it is that, upon the first of the suites.
    """

    def __init__(
        self,
        suite: str = "forky",
        slurm: SlurmOptions | None = None,
        *,
        files: Mapping[str, str] | None = None,
        software: bool = True,
        rest: bool = False,
        detached: bool = False,
        source: Path | None = None,
        tools: bool = False,
    ) -> None:
        if source is None and (source := slurm_source.named()):
            suite = images.SUITES[0]
        super().__init__(suite, files=files, software=software, detached=detached, tools=tools)
        self.rest, self.source = rest, source
        self.slurm = slurm or SlurmOptions()
        self._backup: Cluster | None = None

    def _bare_layer(self) -> Layer:
        if self.source is not None:
            return slurm_source.stack(self.suite, self.source)
        return images.stack(self.suite)

    def _layer(self) -> Layer:
        layer = self._bare_layer()
        if self.rest:
            layer = images.python(layer, f"rest-{self.suite}", ("rest",))
        if self.software:
            layer = images.software(layer, self.suite)
        if "rtsched" in self.slurm.job_submit:
            layer = images.submit_filter(layer, self.suite)
        return layer

    def _prepare(self) -> None:
        self.write({"/etc/slurm/slurm.conf": self.slurm.slurm_conf()})
        if self.slurm.backup:
            self.write(
                {"/etc/hosts": f"127.0.0.1 localhost head\n{backup.ADDRESS} {backup.NAME}\n"}
            )
        if self.slurm.job_submit_lua:
            self.write({"/etc/slurm/job_submit.lua": self.slurm.job_submit_lua})
        self.run(["install", "-d", "-o", "slurm", "-g", "slurm", "/run/slurm"])

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
        if self.slurm.backup:
            self.restart_slurmctld()  # so all of its state is saved, without which none takes over
            self.backup().start_slurmctld()
        for node in self.slurm.nodes:
            if node in self.slurm.apart:
                self.add_host(node)
            self.node(node).start(wait=False)
        self.wait_nodes(self.slurm.nodes)

    def add_host(self, name: str, *, software: bool = False) -> Sandbox:
        """Start another host, as a login node is one: with munge, and slurm.conf as it is now."""
        host = super().add_host(name, software=software)
        self.copy_conf()
        host.run(["install", "-d", "-o", "slurm", "-g", "slurm", "/run/slurm"])
        accounting.start_munge(Services(host))
        return host

    def copy_conf(self) -> None:
        """Copy slurm.conf and cgroup.conf to the other hosts."""
        for host in self.hosts.values():
            for file in ("/etc/slurm/slurm.conf", "/etc/slurm/cgroup.conf"):
                host.path(file).write_text(self.path(file).read_text())

    # Jobs

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

    def has_whole_nodes(self, job: int) -> bool:
        """Return whether a job asked for whole nodes.

        Before 26.05 Slurm does not tell that of one that runs.
        """
        shown = self.job(job)
        if "Exclusive" in shown:
            return shown["Exclusive"].strip() == "NODE"
        return shown["OverSubscribe"].strip() == "NO"

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
        """Start this host's controller and wait until it answers."""
        up = f" at {backup.NAME if isinstance(self.box, SecondHost) else 'head'} is UP"
        ping = ["scontrol", "ping"]
        self.services.start(
            "slurmctld",
            ["slurmctld", "-D"],
            user="slurm",
            ready=lambda: self.box.listens(6817) and up in self.run(ping, check=False).stdout,
            timeout=60,
        )

    def backup(self) -> Cluster:
        """Return the cluster as it is seen on the backup controller's host."""
        if self._backup is None:
            self._backup = Cluster(self.suite, self.slurm, detached=True, source=self.source)
            self._backup._box = SecondHost(self.box)
            self._backup._box.start()
        return self._backup

    def close(self) -> None:
        """End everything, and remove what was written; safe to repeat."""
        if self._backup is not None:
            self._backup.close()
        super().close()

    def configure_filter(self, text: str) -> None:
        """Write the submit filter's settings, and wait until it has read them.

        It looks for new ones once a second, when it is asked about a job.
        """
        log = self.path("/var/log/slurm/slurmctld.log")
        before = log.read_text().count("rtsched: settings of")
        self.path(SUBMIT_CONF).write_text(text)

        def read_again() -> bool:
            self.run(["sbatch", "--test-only", "--wrap=true"], user="alice", check=False)
            return log.read_text().count("rtsched: settings of") > before

        wait_for("the filter reads its settings again", read_again, 10)

    def stop_slurmctld(self) -> None:
        """Stop the controller; it saves its state."""
        self.services.stop("slurmctld")

    def kill_slurmctld(self) -> None:
        """Kill the controller; what it had not saved is lost.

        Not while it saves: killed between two names of one file, Slurm 26.05 finds no node state at
        its next start, and ends.
        """
        self.wait_saved()
        self.services.stop("slurmctld", "KILL")

    def wait_saved(self) -> None:
        """Wait until the controller saves none of its state just now."""
        states = self.path("/var/spool/slurmctld")
        wait_for("nothing is being saved", lambda: states.stat().st_mtime < time.time() - 0.5)

    def restart_slurmctld(self) -> None:
        """Stop and start the controller."""
        self.stop_slurmctld()
        self.start_slurmctld()

    def take_back(self) -> None:
        """Start this controller again where its backup has control; the backup stops before.

        Slurm 26.05 (25.11 too) does it without that stop, but badly: the backup answers after 29 s,
        "not completely done relinquishing control. Old state possible", and saves its state while
        the first controller reads it, which then finds a file missing and ends, or has lost jobs.
        """
        other = self.backup()
        other.stop_slurmctld()
        self.start_slurmctld()
        other.start_slurmctld()

    def start_slurmdbd(self) -> None:
        """Start the accounting daemon and wait until it answers."""
        accounting.start_slurmdbd(self.services)

    def stop_slurmdbd(self) -> None:
        """Stop the accounting daemon; MariaDB stays."""
        self.services.stop("slurmdbd")

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

    def logs(self, lines: int = 40) -> str:
        """Return the ends of the logs of all daemons but the nodes'."""
        names = ("rtsched", "slurmctld", "slurmdbd", "mariadbd", "munged")
        return "\n".join(filter(None, (self.services.log_tail(name, lines) for name in names)))
