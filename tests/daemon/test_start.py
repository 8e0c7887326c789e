"""Which plug-ins a daemon starts with."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.users import forget_users
from rtsched.core.config import PluginTable
from rtsched.daemon.app import Daemon
from rtsched.daemon.database import WriterEpoch, connect
from rtsched.daemon.server import SocketServer
from rtsched.daemon.settings import DaemonSettings, LiveSite
from rtsched.daemon.start import policy_again, policy_of, serve
from rtsched.errors import ConfigError


def site(name: str, **settings: Any) -> LiveSite:
    """Return a site with this planner."""
    return LiveSite(planner=name, plugin=[PluginTable(name, settings=settings)])


@pytest.mark.parametrize(
    ("name", "settings", "remedy"),
    [
        ("mcdf", {"staggered": True}, "set staggered = false"),
        ("spare", {"form": "edf", "slot": 60.0}, "change its settings"),
    ],
)
def test_plans_that_no_batch_system_can_follow_are_refused(
    name: str, settings: dict[str, Any], remedy: str
) -> None:
    """Jobs of a live system know their shares, and start on all their nodes at once."""
    with pytest.raises(ConfigError, match=f"plugin '{name}'.*{remedy}"):
        policy_of(site(name, **settings))


@pytest.mark.parametrize(
    ("name", "settings"),
    [("portfolio", {}), ("mcdf", {"rounds": 2}), ("mcdf", {"unequal_nodes": True}), ("spare", {})],
)
def test_other_planners_start(name: str, settings: dict[str, Any]) -> None:
    """What jobs can follow is planned live as it is in a replay."""
    assert policy_of(site(name, **settings))


def test_a_reload_changes_only_what_a_running_daemon_can_follow() -> None:
    """Its sockets, its database and the system's adapter stay as at its start, all of one kind."""
    running = LiveSite(daemon=DaemonSettings(database="/a/db", cycle=5.0))
    changed = LiveSite(
        daemon=DaemonSettings(system="condor", database="/b/db", cycle=9.0, admins=["ann"]),
        slurm=SlurmSettings(share_nodes=True, command_timeout_s=7.0),
    )
    policy = policy_again(changed, running)
    assert policy.live.daemon == DaemonSettings(database="/a/db", cycle=9.0, admins=["ann"])
    assert (policy.live.slurm, policy.live.shares_nodes) == (running.slurm, False)
    assert sorted(policy.at_start) == [
        *("daemon.database", "daemon.system", "slurm.command_timeout_s", "slurm.share_nodes")
    ]
    assert policy_again(running, running).at_start == []


def test_a_reload_of_an_empty_file_is_refused() -> None:
    """As of one that an editor has just opened for writing: the planner would be gone."""
    with pytest.raises(ConfigError, match="nothing is set"):
        policy_again(LiveSite(), LiveSite(daemon=DaemonSettings(cycle=5.5)))
    assert policy_again(LiveSite(), LiveSite()).at_start == []


@pytest.mark.parametrize("system", ["slurm", "condor"])
def test_shared_nodes_need_a_planner_of_resources(system: str) -> None:
    """Another one would give jobs whole nodes; only the setting of the system that runs counts."""
    text = f'{{}}[daemon]\nsystem = "{system}"\n[{system}]\nshare_nodes = true\n'
    sites = {}
    planners = {"mcdf": "", "spare": "", "whole": "settings = { rounds = 2 }\n"}
    for key, settings in planners.items():
        name = "mcdf" if key == "whole" else key
        head = f'planner = "{name}"\n[[plugin]]\nname = "{name}"\n{settings}'
        sites[key] = msgspec.toml.decode(text.format(head), type=LiveSite)
    assert policy_of(sites["mcdf"])
    assert policy_of(sites["spare"])
    with pytest.raises(ConfigError, match=rf"'mcdf' plans whole nodes only.* in \[{system}\]"):
        policy_of(sites["whole"])
    other = {"slurm": "condor", "condor": "slurm"}[system]
    other_daemon = msgspec.structs.replace(sites["whole"].daemon, system=other)
    assert policy_of(msgspec.structs.replace(sites["whole"], daemon=other_daemon))


def test_who_may_ask_is_known_before_the_sockets_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A daemon that starts has looked up no user yet; one that is not there is left out."""
    forget_users()
    seen: list[set[int]] = []

    async def run(
        _: Daemon, servers: Sequence[tuple[SocketServer, str | None]], *__: object
    ) -> None:
        seen.append(set(servers[0][0].uids or ()))

    monkeypatch.setattr(Daemon, "run", run)
    monkeypatch.setattr("rtsched.daemon.start.log_events", lambda _: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    own = DaemonSettings(
        run=str(tmp_path), database=str(tmp_path / "db"), filters=["root", "nobody-is-called-so"]
    )
    serve(lambda: LiveSite(daemon=own))
    assert seen == [{0}]


class InControl:
    """A controller that has control."""

    host, peers = "one", ("two",)

    def __init__(self, _: object, run: Path) -> None:
        self.copy = run / "slurm.conf"

    def control(self) -> str:
        """Return that it has."""
        return "in control"


def test_a_daemon_told_to_end_while_another_takes_over_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a host that goes down: the signal counts, and it does not go on standby."""
    monkeypatch.setenv("SLURM_CONF", "none")  # the daemon sets it for its own process
    database, superseded, stop = tmp_path / "db", asyncio.Event(), Daemon.stop
    cycles: list[Daemon] = []

    async def cycle(daemon: Daemon) -> None:
        cycles.append(daemon)
        assert len(cycles) == 1, "it took over again"
        os.kill(os.getpid(), signal.SIGTERM)

    async def save(_: Daemon, at_once: bool = False) -> None:
        assert at_once
        with closing(connect(database)) as base:
            WriterEpoch("two").take(base)
        await asyncio.wait_for(superseded.wait(), 120.0)

    def stopped(daemon: Daemon) -> None:
        stop(daemon)
        superseded.set()

    monkeypatch.setattr("rtsched.adapters.slurm.installed.LocalController", InControl)
    monkeypatch.setattr("rtsched.daemon.start.log_events", lambda _: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    monkeypatch.setattr(Daemon, "_try_cycle", cycle)
    monkeypatch.setattr(Daemon, "_save", save)
    monkeypatch.setattr(Daemon, "stop", stopped)
    own = DaemonSettings(
        run=str(tmp_path), database=str(database), standby=True, filters=["root"], metrics_port=0
    )
    serve(lambda: LiveSite(daemon=own))
    assert len(cycles) == 1
