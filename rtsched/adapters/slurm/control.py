"""Whether the slurmctld of this host has control, where a site has backup controllers.

Slurm's commands find the controller that has control by themselves, and do not tell which one it
is; `scontrol ping` tells which ones answer. So this asks a controller that cannot hand the question
on: with a copy of slurm.conf that names no other. A controller on standby refuses it, and says why.

An active daemon reads and changes Slurm by the same copy. With the site's own file each command
would first try the first host, and wait for `MessageTimeout` where that has lost power or hangs.

References
----------
Manual pages slurm.conf(5) (`SlurmctldHost`), scontrol(1) (`takeover`); slurm_errno.h
(ESLURM_IN_STANDBY_MODE).
"""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rtsched.adapters.files import replace_file
from rtsched.adapters.slurm import slurm_conf
from rtsched.adapters.slurm.commands import CommandRunner
from rtsched.errors import AdapterError, ConfigError, InputError

if TYPE_CHECKING:
    from rtsched.adapters.slurm.settings import SlurmSettings

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
            said = self._commands.run("scontrol", "show", "config", SLURM_CONF=str(self.copy))
        except AdapterError as error:
            if isinstance(error.__cause__, OSError):
                raise
            return "down"
        if said.status == 0:
            return "in control"
        return "standby" if "standby" in said.errors else "down"

    def _write(self) -> None:
        try:
            replace_file(self.copy, slurm_conf.with_host(self.path, self.host))
        except (OSError, InputError) as error:
            raise AdapterError(f"{self.copy} cannot be made: {error}") from error
        self._written = time.monotonic()


def _short(name: str) -> str:
    return name.partition(".")[0]
