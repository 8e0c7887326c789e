"""HTCondor and rtsched as installed here, for `rtsched condor`; nothing is changed."""

from __future__ import annotations

import grp
import importlib
import json
import os
import pwd
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.adapters.condor import condor_conf
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.setup import NEGOTIATOR, SCHEDD, Setup
from rtsched.adapters.condor.table import HEAD
from rtsched.adapters.programs import run_program
from rtsched.adapters.readiness import host_facts, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SECONDS = 20.0
"""How long one of HTCondor's tools may take."""

_RUNS = {"access": "SCHEDD", "central": "NEGOTIATOR", "execute": "STARTD"}
_NEEDED = {condor_conf.ACCESS: {"access", "central"}, condor_conf.EXECUTE: {"execute"}}
CONFIG = Path("/etc/condor/config.d")
_VERSION = re.compile(r"CondorVersion: (\d+\.\d+\.\d+)")
_QUERIED = {
    "schedd": (*SCHEDD, "QUEUE_SUPER_USERS"),
    "negotiator": (
        *NEGOTIATOR,
        *("NEGOTIATOR_CONSIDER_PREEMPTION", "PREEMPTION_REQUIREMENTS", "NEGOTIATOR_INTERVAL"),
    ),
}


class ToolResult(NamedTuple):
    """What a tool said: whether it went well, its output, and its complaint."""

    good: bool
    output: str
    errors: str


class SiteSettings(NamedTuple):
    """What the site's settings say, beside the `[condor]` table.

    Attributes
    ----------
    run : Path
        Directory of the sockets.
    filters : sequence of str
        Who may ask for verdicts.
    group : str
        Who may connect; empty: everybody.
    submit_path : Path
        Settings of the library.
    """

    run: Path = Path("/run/rtsched")
    filters: Sequence[str] = ("condor", "root")
    group: str = "condor"
    submit_path: Path = Path("/etc/rtsched/submit.conf")


def inspect_site(
    settings: CondorSettings | None,
    site: SiteSettings,
    *,
    directory: Path | None = None,
    roles: Iterable[str] = (),
    native: bool | None = None,
) -> Setup:
    """Return what there is on this machine, and in its pool.

    Parameters
    ----------
    settings : CondorSettings or None
        The `[condor]` table; None: there are no settings, or they make no sense.
    site : SiteSettings
        The rest of the site's settings.
    directory : Path, optional
        Where HTCondor reads our files from; by default the last of its LOCAL_CONFIG_DIR.
    roles : iterable of {"access", "central", "execute"}
        What this machine is; by default what DAEMON_LIST says.
    native : bool, optional
        Whether the library is wanted; by default what our files say.
    """
    configured, settings = settings is not None, settings or CondorSettings()
    directory = directory or config_directory()
    known = set(roles) or _roles()
    names = tuple(name for name, of in _NEEDED.items() if known & of)
    present = _texts(directory, names)
    chosen = {k: v for text in present.values() for k, v in condor_conf.choices(text).items()}
    script = Path(chosen.get("RTSCHED_SCRIPT") or Setup.script)
    if script.exists():
        present[condor_conf.SCRIPT] = _text(script)
    library = Path(chosen.get("RTSCHED_LIBRARY") or Setup.library)
    version = _VERSION.search(run("condor_version").output)
    setup = Setup(
        directory=directory,
        script=script,
        names=names,
        queue="access" in known,
        central="central" in known,
        present=present,
        settings=settings,
        configured=configured,
        native=_native(present) if native is None else native,
        version=version[1] if version else "",
        library=library,
        library_time=library.stat().st_mtime if library.exists() else None,
        groups=_groups(settings.user),
        group=site.group,
        **host_facts(settings.user, site.run, site.filters, site.submit_path),
    )
    if not (setup.access and setup.version):
        return setup
    owner = setup.submit.get("daemon_user", CondorSettings().user)
    setup = replace(setup, table=table_problem(Path(setup.table_path), owner, time.time()))
    return _with_pool(setup, settings.schedd)


def config_directory() -> Path:
    """Return the last directory from which HTCondor reads its configuration."""
    result = run("condor_config_val", "LOCAL_CONFIG_DIR")
    found = result.output.replace(",", " ").split()
    return Path(found[-1]) if result.good and found else CONFIG


def _with_pool(setup: Setup, schedd: str) -> Setup:
    """Return the same with what the pool's daemons say."""
    named = ("-name", schedd) if schedd else ()
    host = run("condor_config_val", "FULL_HOSTNAME").output.strip()
    local = (schedd,) if schedd else ("-constraint", f"Machine == {json.dumps(host)}")
    schedd_values, silence = _values("schedd", named) if setup.queue else (None, "")
    negotiator_values, unheard = _values("negotiator", ())
    which = ("-schedd", *local) if setup.queue else ("-negotiator",)
    shown = run("condor_status", *which, "-af", 'rtschedDelay("-")', "DaemonStartTime").output
    words = shown.split()
    named_schedds = setup.settings.schedds
    known = run("condor_status", "-schedd", "-af", "Name").output if named_schedds else ""
    slots = _slots()
    users = run("condor_qusers", *named, "-af", "User").output.split() if setup.queue else []
    return replace(
        setup,
        schedd=schedd_values,
        negotiator=negotiator_values,
        silence=silence or unheard,
        interval=run("condor_config_val", "NEGOTIATOR_INTERVAL").output.strip(),
        started=float(words[1]) if len(words) > 1 and words[1].isdigit() else 0.0,
        library_works=bool(words) and words[0] not in {"error", "undefined"},
        slots=len(slots),
        gateless=tuple(slot["Name"] for slot in slots if not _gated(slot)),
        known_user=any(user.partition("@")[0] == setup.user for user in users),
        schedd_user=_daemons_user(),
        schedds=tuple(known.split()),
        asked=owner_of(Path(setup.socket)) if setup.elsewhere else "",
        bindings=_bindings(),
    )


def _values(daemon: str, named: Sequence[str]) -> tuple[Mapping[str, str] | None, str]:
    """Return what a running daemon uses, and why it does not answer."""
    found: dict[str, str] = {}
    for name in _QUERIED[daemon]:
        result = run("condor_config_val", *named, f"-{daemon}", name)
        if not result.good:
            return None, result.errors
        found[name] = "" if result.output.startswith("Not defined") else result.output.strip()
    return found, ""


def _slots() -> list[dict[str, Any]]:
    """Return the slots of the pool that the collector knows, dynamic ones left out."""
    words = ("-constraint", "DynamicSlot isnt true", "-json", "-attributes", "Name,Start,RtSlot")
    result = run("condor_status", *words)
    try:
        found = json.loads(result.output) if result.good and result.output.strip() else []
    except json.JSONDecodeError:
        return []
    return [slot for slot in found if "Name" in slot]


def _gated(slot: Mapping[str, Any]) -> bool:
    """Return whether a slot lets only those jobs start that may."""
    return "RtSlot" in slot and "RtNodeSet" in str(slot.get("Start"))


def _roles() -> set[str]:
    """Return what this machine is, by the daemons that run on it."""
    result = run("condor_config_val", "DAEMON_LIST").output
    daemons = {word.partition("_")[0] for word in result.replace(",", " ").upper().split()}
    return {role for role, daemon in _RUNS.items() if daemon in daemons}


def table_problem(path: Path, user: str, now: float) -> str:
    """Return what keeps the library from using a table of slots; empty: nothing.

    Parameters
    ----------
    path : Path
        The table.
    user : str
        Whom the daemon runs as: the table must be that user's, or root's.
    now : float
        Seconds since the epoch.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            words = file.readline(100).split()
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if len(words) != 4 or words[:2] != HEAD.split() or not (words[2] + words[3]).isdigit():
        return "is no table of rtsched's"
    if (owner := owner_of(path)) not in {user, "root"}:
        return f"belongs to {owner}, not to {user}"
    age, valid = now - int(words[2]), int(words[3])
    return "" if abs(age) <= valid else f"was written {age:.0f} s ago, and holds for {valid} s"


def _texts(directory: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: _text(directory / name) for name in names if (directory / name).exists()}


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _native(present: Mapping[str, str]) -> bool:
    names = (condor_conf.ACCESS, condor_conf.EXECUTE)
    return all(condor_conf.is_native(present[name]) for name in names if name in present)


def _groups(user: str) -> tuple[str, ...]:
    """Return the names of a user's groups; none if there is no such user."""
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
        return tuple(grp.getgrgid(number).gr_name for number in numbers)
    except KeyError:
        return ()


def _daemons_user() -> str:
    """Return whom HTCondor's daemons run as, when root started them."""
    numbers = run("condor_config_val", "CONDOR_IDS").output.strip().partition(".")
    try:
        return pwd.getpwuid(int(numbers[0])).pw_name
    except (KeyError, ValueError):
        return "condor"


def _bindings() -> str:
    """Return why HTCondor's Python bindings cannot be used; empty: they can."""
    try:
        importlib.import_module("htcondor2")
    except ImportError as error:
        return f"HTCondor's Python bindings cannot be loaded ({error})"
    return ""


def run(*words: str) -> ToolResult:
    """Run one of HTCondor's tools; one that fails or is missing is no error here."""
    try:
        done = run_program(words, SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return ToolResult(False, "", str(error))
    return ToolResult(done.returncode == 0, done.stdout, " ".join(done.stderr.split())[-300:])
