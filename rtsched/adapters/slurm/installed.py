"""Slurm and rtsched as installed on this host, and whether its slurmctld has control.

It is for `rtsched slurm`, and for hosts of backup controllers; nothing is changed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rtsched.adapters.files import replace_file
from rtsched.adapters.programs import run_program
from rtsched.adapters.readiness import host_facts
from rtsched.adapters.slurm import slurm_conf
from rtsched.adapters.slurm.commands import CommandRunner
from rtsched.adapters.slurm.facts import config_of, federation_in
from rtsched.adapters.slurm.setup import PLUGIN, Setup, plugin_dirs
from rtsched.errors import AdapterError, ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.slurm.settings import SlurmSettings

_AS_OF = re.compile(r"Configuration data as of (\d+)")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_READ_VERSION = (
    "import ctypes, os, sys; "
    "print(ctypes.c_uint32.in_dll(ctypes.CDLL(sys.argv[1], os.RTLD_LAZY), 'plugin_version').value)"
)


def inspect_site(
    path: Path,
    settings: SlurmSettings,
    run: Path,
    filters: Sequence[str],
    submit_path: Path = Path("/etc/rtsched/submit.conf"),
) -> Setup:
    """Return what there is on this machine.

    Raises
    ------
    InputError
        If slurm.conf cannot be read.
    """
    commands = CommandRunner(settings)
    conf = {name: found[-1].value for name, found in slurm_conf.settings(path).items()}
    running, silence, skew = _running(commands)
    places = plugin_dirs(conf, running)
    plugin = next((place / PLUGIN for place in places if (place / PLUGIN).exists()), None)
    return Setup(
        path=path,
        conf=conf,
        running=running,
        silence=silence,
        skew_s=skew,
        version=_version(commands),
        plugin=plugin,
        plugin_version=built_for(plugin) if plugin else "",
        sends_idle=plugin is None or b"idle_node_bitmap" in plugin.read_bytes(),
        level=_level(commands, settings.user),
        federation=federation_in(commands.federation() or "") if running is not None else "",
        share_nodes=settings.share_nodes,
        **host_facts(settings.user, run, filters, submit_path),
    )


def conf_in_use(settings: SlurmSettings) -> Path | None:
    """Return the slurm.conf that the running controller reads; None: it does not tell."""
    running, _, _ = _running(CommandRunner(settings))
    named = (running or {}).get("slurm_conf", "")
    return Path(named) if named.startswith("/") else None


def _running(commands: CommandRunner) -> tuple[Mapping[str, str] | None, str, float]:
    """Return the controller's configuration, why there is none, and how far its clock is ahead."""
    try:
        shown = commands.ask("scontrol", "show", "config")
    except AdapterError as error:
        return None, str(error), 0.0
    found = {name.lower(): value for name, value in config_of(shown).items()}
    match = _AS_OF.search(shown)
    return found, "", float(match[1]) - time.time() if match else 0.0


def _version(commands: CommandRunner) -> str:
    for program in ("slurmctld", "/usr/sbin/slurmctld", "scontrol"):
        try:
            result = commands.run(program, "-V")
        except AdapterError:
            continue
        if match := _VERSION.search(result.stdout + result.stderr):
            return match[0]
    return ""


def built_for(plugin: Path) -> str:
    """Return the release of Slurm that a plug-in was built for; empty if it cannot be loaded.

    Slurm compares this number with its own (slurm.h, SLURM_VERSION_NUM). The plug-in is loaded in
    a process of its own.
    """
    try:
        done = run_program([sys.executable, "-P", "-c", _READ_VERSION, str(plugin)], 20.0)
        number = int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return f"{number >> 16 & 0xFF}.{number >> 8 & 0xFF:02d}.{number & 0xFF}"


def _level(commands: CommandRunner, user: str) -> str:
    """Return a user's AdminLevel; empty if the accounting database does not tell."""
    try:
        result = commands.run("sacctmgr", "-nP", "show", "user", user, "format=User,AdminLevel")
    except AdapterError:
        return ""
    rows = [line.split("|") for line in result.stdout.splitlines()]
    levels = [row[1] for row in rows if len(row) == 2 and row[0] == user]
    return levels[0] if levels else ("" if result.returncode else "None")


SLURM_CONF = "/etc/slurm/slurm.conf"
CONF_EVERY_S = 60.0
"""Seconds between two readings of slurm.conf."""

Control = Literal["in control", "standby", "down"]

_HOST = re.compile(r"([^\s(]+)(?:\(([^)]*)\))?")


def controllers(path: Path) -> list[str]:
    """Return the names of the hosts that may run slurmctld, in Slurm's order.

    Raises
    ------
    InputError
        If slurm.conf cannot be read.
    """
    found = slurm_conf.settings(path).get("slurmctldhost", [])
    return [match[1] for each in found if (match := _HOST.match(each.value))]


def own_name(path: Path, host: str = "") -> str:
    """Return the name under which slurm.conf knows a host, by default this one.

    Raises
    ------
    ConfigError
        If it is no host of a controller.
    InputError
        If slurm.conf cannot be read.
    """
    host = host or socket.gethostname()
    names = controllers(path)
    for same in (lambda name: name == host, lambda name: _short(name) == _short(host)):
        if found := next(filter(same, names), ""):
            return found
    raise ConfigError(
        [
            f"standby: {path} names no SlurmctldHost {_short(host)} (only "
            f"{', '.join(names) or 'none'}); run the daemon where slurmctld runs"
        ]
    )


class LocalController:
    """The slurmctld of this host.

    Parameters
    ----------
    settings : SlurmSettings
        The `[slurm]` table.
    run : Path
        Directory in which the copy of slurm.conf is written.

    Attributes
    ----------
    copy : Path
        The copy; there once `control` has returned something else than an error.

    Raises
    ------
    ConfigError
        If slurm.conf does not name this host.
    InputError
        If slurm.conf cannot be read.
    """

    def __init__(self, settings: SlurmSettings, run: Path) -> None:
        self.path = Path(os.environ.get("SLURM_CONF") or SLURM_CONF)
        self.host = own_name(self.path)
        self.peers = tuple(name for name in controllers(self.path) if name != self.host)
        self._commands, self.copy = CommandRunner(settings), run / "slurm.conf"
        self._written = -CONF_EVERY_S

    def control(self) -> Control:
        """Return whether it has control; `down`: it does not answer.

        Raises
        ------
        AdapterError
            If scontrol cannot be run, or slurm.conf be copied.
        """
        if time.monotonic() - self._written >= CONF_EVERY_S:
            self._write()
        try:
            result = self._commands.run("scontrol", "show", "config", SLURM_CONF=str(self.copy))
        except AdapterError as error:
            if isinstance(error.__cause__, OSError):
                raise
            return "down"
        if result.returncode == 0:
            return "in control"
        return "standby" if "standby" in result.stderr else "down"

    def _write(self) -> None:
        try:
            replace_file(self.copy, slurm_conf.with_host(self.path, self.host))
        except (OSError, InputError) as error:
            raise AdapterError(f"{self.copy} cannot be made: {error}") from error
        self._written = time.monotonic()


def _short(name: str) -> str:
    return name.partition(".")[0]
