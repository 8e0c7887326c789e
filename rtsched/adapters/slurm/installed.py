"""What there is of Slurm and rtsched on this machine, for `rtsched slurm`; nothing is changed."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rtsched.adapters.programs import run_program
from rtsched.adapters.readiness import host_facts
from rtsched.adapters.slurm import slurm_conf
from rtsched.adapters.slurm.commands import CommandRunner
from rtsched.adapters.slurm.facts import federation_in
from rtsched.adapters.slurm.setup import PLUGIN, Setup, plugin_dirs
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.slurm.settings import SlurmSettings

_SHOWN = re.compile(r"^([A-Za-z][\w/]*)\s*= (.*)$", re.MULTILINE)
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
        tells_idle=plugin is None or b"idle_node_bitmap" in plugin.read_bytes(),
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
    found = {name.lower(): value.strip() for name, value in _SHOWN.findall(shown)}
    match = _AS_OF.search(shown)
    return found, "", float(match[1]) - time.time() if match else 0.0


def _version(commands: CommandRunner) -> str:
    for program in ("slurmctld", "/usr/sbin/slurmctld", "scontrol"):
        try:
            said = commands.run(program, "-V")
        except AdapterError:
            continue
        if match := _VERSION.search(said.output + said.errors):
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
        said = commands.run("sacctmgr", "-nP", "show", "user", user, "format=User,AdminLevel")
    except AdapterError:
        return ""
    rows = [line.split("|") for line in said.output.splitlines()]
    levels = [row[1] for row in rows if len(row) == 2 and row[0] == user]
    return levels[0] if levels else ("" if said.status else "None")
