"""An HTCondor pool on one machine, with our software on it, from start to teardown."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from testbed import condor_images, images
from testbed.box import Box, SubmitError
from testbed.condor import HOST, STANDARD, PoolOptions
from testbed.condor_daemon import MASTER, CondorDaemon, frozen
from testbed.errors import TestbedError
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from testbed.layers import Layer
    from testbed.sandbox import Sandbox

STATES = {"Idle": 1, "Running": 2, "Removed": 3, "Completed": 4, "Held": 5}
"""JobStatus of a job ad."""
LOGS = "/var/log/condor"
COMMON = (
    "CONDOR_HOST",
    "UID_DOMAIN",
    "FILESYSTEM_DOMAIN",
    "SEC_DEFAULT_AUTHENTICATION_METHODS",
)
"""What the configurations of all hosts of a pool have alike."""


class Pool(Box):
    """An HTCondor pool in a sandbox.

    ::

        with Pool("forky", PoolOptions(fast=1, slow=1)) as pool:
            cluster = pool.submit(["executable = /bin/sleep", "arguments = 5"], user="alice")
            pool.wait_job(cluster)
            print(pool.run(["condor_q"]).stdout)

    Parameters
    ----------
    suite : {"forky", "trixie"}
        The Debian release, and so the HTCondor release.
    options : PoolOptions
        How HTCondor is set up.
    files : mapping of str to str
        Paths inside and the texts of further files, such as /etc/rtsched/submit.conf.
    software : bool
        Install our wheel.
    rest : bool
        Install what `rtsched rest` needs.
    detached : bool
        Live on after the process that made it, until `close`.
    shared : str
        A directory inside that all its hosts share; empty: none.
    tools : bool
        Have the programs of `testbed.tools` by which users submit work.
    """

    def __init__(
        self,
        suite: str = "forky",
        options: PoolOptions | None = None,
        *,
        files: Mapping[str, str] | None = None,
        software: bool = True,
        rest: bool = False,
        detached: bool = False,
        shared: str = "",
        tools: bool = False,
    ) -> None:
        super().__init__(
            suite, files=files, software=software, detached=detached, shared=shared, tools=tools
        )
        self.rest = rest
        self.options = options or PoolOptions()

    def _bare_layer(self) -> Layer:
        return condor_images.stack(self.suite)

    def _layer(self) -> Layer:
        layer = self._bare_layer()
        if self.rest:
            layer = images.python(layer, f"condor-rest-{self.suite}", ("rest", "client"))
        if self.software:
            layer = images.software(layer, self.suite)
        if self.options.library:
            layer = condor_images.library(layer, self.suite)
        return layer

    def _prepare(self) -> None:
        self.write(self.options.files())
        made = ["/run/condor", "/run/lock", "/var/lock/condor", "/var/log/condor"]
        execute = "/var/lib/condor/execute"
        made += ["/var/lib/condor", "/var/lib/condor/spool", execute]
        made += [f"{execute}/{node}" for node in self.options.nodes if self.options.startds]
        self.run(["install", "-d", "-o", "condor", "-g", "condor", *made])

    def _start_all(self) -> None:
        self.start_master()
        if "50-rtsched.conf" in self.options.config:
            self._make_known("rtsched")

    def _make_known(self, user: str) -> None:
        """Have the schedd know a user: super users whom it does not know may do nothing."""
        self.run(["condor_qusers", "-add", f"{user}@testbed"])
        if f"{user}@testbed" not in self.run(["condor_qusers", "-af", "User"]).stdout.split():
            # 23.9 knows those who have submitted a job.
            job = self.submit(["hold = true"], user=user)
            self.run(["condor_rm", str(job)], user=user)

    def add_host(self, name: str, *, software: bool = False) -> Sandbox:
        """Start another host of the pool, without daemons of HTCondor."""
        host = super().add_host(name, software=software)
        settings = [f"{key} = {STANDARD[key]}" for key in COMMON]
        host.path("/etc/condor/config.d/10-testbed.conf").write_text("\n".join([*settings, ""]))
        with host.path("/etc/hosts").open("a") as file:
            file.write(f"127.0.0.1 {HOST}\n")
        return host

    # Jobs

    def submit(
        self,
        text: str | Sequence[str] = "",
        *,
        user: str = "alice",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> int:
        """Submit a job; return the cluster id.

        Parameters
        ----------
        text : str or sequence of str
            The submit file, or its lines; without `executable` the job sleeps for 5 s, without
            `queue` there is one of it.
        user : str
            Whose job it is.
        args : sequence of str
            Further words for condor_submit.

        Raises
        ------
        SubmitError
            With what the user read, if condor_submit refused.
        """
        lines = text.splitlines() if isinstance(text, str) else list(text)
        said = {re.split(r"[\s=]", line.strip().lower(), maxsplit=1)[0] for line in lines}
        if "executable" not in said:
            lines = ["executable = /bin/sleep", "arguments = 5", *lines]
        if "queue" not in said:
            lines = [*lines, "queue"]
        done = self.run(
            ["condor_submit", *args],
            user=user,
            env=env,
            input="\n".join([*lines, ""]),
            check=False,
            timeout=timeout,
        )
        found = re.search(r"submitted to cluster (\d+)", done.stdout)
        if done.returncode or found is None:
            raise SubmitError((done.stdout + done.stderr).strip())
        return int(found[1])

    def job(self, cluster: int, proc: int = 0) -> dict[str, Any]:
        """Return a job's ad, from the queue or the history; {} when neither has it."""
        for tool in ("condor_q", "condor_history"):
            words = [tool, f"{cluster}.{proc}", "-json"]
            done = self.run(words, check=False)
            if done.returncode == 0 and done.stdout.strip():
                ads: list[dict[str, Any]] = json.loads(done.stdout)
                if ads:
                    return ads[0]
        return {}

    def wait_job(
        self, cluster: int, proc: int = 0, *states: str, timeout: float = 60
    ) -> dict[str, Any]:
        """Wait until the job's state is one of those, by default Completed; return its ad.

        Raises
        ------
        TestbedError
            If it is not within `timeout` seconds.
        """
        wanted = {STATES[state] for state in states or ("Completed",)}
        ad: dict[str, Any] = {}

        def reached() -> bool:
            nonlocal ad
            ad = self.job(cluster, proc)
            return ad.get("JobStatus") in wanted

        what = f"job {cluster}.{proc} {' or '.join(states or ('Completed',))}"
        try:
            wait_for(what, reached, timeout)
        except TestbedError as error:
            status = ad.get("JobStatus")
            state = next((name for name, code in STATES.items() if code == status), "unknown")
            raise TestbedError(f"{error}; it is {state} {ad.get('HoldReason', '')}") from error
        return ad

    def remove_all(self) -> None:
        """Remove all jobs, wait until the queue is empty, and end all claims.

        A job that is held or removed while its match is on the way may leave an idle claim behind,
        which HTCondor by itself ends after half an hour.

        Raises
        ------
        TestbedError
            If some jobs stay in the queue.
        """
        asked = ["condor_q", "-allusers", "-af:j", "JobStatus"]
        self.run(["condor_rm", "-all"], check=False)
        wait_for("the queue is empty", lambda: not self.run(asked).stdout.strip(), 40)
        self.run(["condor_vacate", "-fast", "-all"], check=False)

    def slots(self) -> dict[str, dict[str, Any]]:
        """Return the ads of the slots that the collector knows, by Name."""
        done = self.run(["condor_status", "-json"], check=False)
        ads = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
        return {ad["Name"]: ad for ad in ads}

    # HTCondor's daemons

    def daemon(self, name: str) -> CondorDaemon:
        """Return one of "collector", "negotiator", "schedd", "startd" (or "startd_fast1", ...)."""
        return CondorDaemon(self, name)

    def start_master(self, timeout: float = 90) -> None:
        """Start the master, and with it all, and wait until all slots and the schedd are known.

        Raises
        ------
        TestbedError
            With the ends of the logs, if they are not.
        """
        try:
            self.services.start(MASTER, [MASTER, "-f"], ready=self._ready, timeout=timeout)
        except TestbedError as error:
            raise TestbedError(f"{error}\n{self.logs()}") from error

    def stop_master(self) -> None:
        """Stop the master, and with it all, as systemd would; jobs wait again."""
        self.services.stop(MASTER, "QUIT", timeout=60)

    def kill_master(self) -> None:
        """Kill everything of HTCondor's, and its jobs, as a power cut would."""
        found = frozen(self, self.services.pid(MASTER))
        self.run(["kill", "-KILL", *map(str, found)], check=False)
        left = [self.path(f"/proc/{pid}") for pid in found]
        wait_for("HTCondor's end", lambda: not any(path.exists() for path in left))

    def wait_ready(self, timeout: float = 90) -> None:
        """Wait until the collector knows all slots, the schedd and the negotiator.

        Raises
        ------
        TestbedError
            If it does not within `timeout` seconds.
        """
        wait_for("all slots are known", self._ready, timeout)

    def _ready(self) -> bool:
        asked = ["condor_status", "-any", "-af", "MyType", "Name"]
        done = self.run(asked, check=False)
        known = {tuple(line.split(maxsplit=1)) for line in done.stdout.splitlines()}
        kinds = {words[0] for words in known}
        names = {words[1] for words in known if len(words) > 1}
        return names >= set(self.options.slots) and {"Scheduler", "Negotiator"} <= kinds

    def logs(self, lines: int = 40) -> str:
        """Return the ends of the logs of our daemon and of HTCondor's."""
        found = [self.services.log_tail(name, lines) for name in ("rtsched", "condor_master")]
        for name in ("MasterLog", "CollectorLog", "NegotiatorLog", "SchedLog", "StartLog"):
            file = self.path(f"{LOGS}/{name}")
            if file.exists():
                tail = file.read_text(errors="replace").splitlines()[-lines:]
                found.append("\n".join([f"--- {LOGS}/{name}", *tail]))
        return "\n".join(filter(None, found))
