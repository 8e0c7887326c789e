"""Setup of an HTCondor and rtsched here: what there is, what should be, what to do.

`inspect_site` makes a `Setup`, `findings` judges it, `wanted` is what our files should hold.
"""

from __future__ import annotations

import grp
import importlib
import json
import os
import pwd
import re
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.adapters import readiness
from rtsched.adapters.condor import condor_conf
from rtsched.adapters.condor.requirements import OURS, REQUEST_ATTRIBUTES
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.table import HEAD
from rtsched.adapters.programs import run_program
from rtsched.adapters.readiness import (
    CheckResult,
    HostSetup,
    good,
    host_facts,
    note,
    owner_of,
    socket_findings,
    user_findings,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


SUBMIT_KEYS = readiness.SUBMIT_KEYS | {"table"}
PRIORITY_MAP = "PRIORITY_FACTOR_AUTHORIZATION"
INSTALL = "`rtsched condor install` shows the change, `rtsched condor install --apply` makes it"

SCHEDD: Mapping[str, tuple[str, ...]] = {
    "JOB_TRANSFORM_NAMES": ("RtForged", "RtFrozen", "RtJudged", "RtParallel"),
    "SUBMIT_REQUIREMENT_NAMES": ("RtRunTime", "RtVerdict", "RtMessage"),
    "PROTECTED_JOB_ATTRS": (*OURS, *REQUEST_ATTRIBUTES.values()),
}
NEGOTIATOR: Mapping[str, tuple[str, ...]] = {
    "NEGOTIATOR_PRE_JOB_RANK": ("RtNodeSet", "RtRankSet"),
    "NEGOTIATOR_CLASSAD_USER_MAP_NAMES": (PRIORITY_MAP,),
}
"""Words that each setting of a running daemon must hold: a later file may have replaced ours."""

OF_HTCONDOR = frozenset({"PelicanRetry"})
"""Transforms that HTCondor appends to JOB_TRANSFORM_NAMES itself (seen on 25.14)."""


@dataclass(frozen=True, kw_only=True)
class Setup(HostSetup):
    """What there is on this machine, beside what there is of any batch system, and in the pool.

    Attributes
    ----------
    directory : Path
        Where HTCondor reads our files from.
    script : Path
        Where the script for slots belongs.
    names : tuple of str
        Our files that this machine needs.
    queue : bool
        Whether the schedd, and so our daemon, is on this machine.
    present : mapping of str to str
        What they hold, by name; those that are not there are left out.
    settings : CondorSettings
        The `[condor]` table.
    configured : bool
        Whether there is such a table; else what our files say is kept.
    native : bool
        Whether the ClassAd library is used.
    version : str
        Of the installed HTCondor; empty: there is none.
    schedd, negotiator : mapping of str to str, or None
        What the running daemons use, by name; None: no answer.
    interval : str
        NEGOTIATOR_INTERVAL as this machine's configuration has it: plans rest on it.
    table : str
        What is wrong with the table of slots that the library reads; empty: nothing.
    started : float
        When the schedd started, on a central manager the negotiator; seconds since the epoch.
    silence : str
        Why one of them does not answer.
    library : Path
        The ClassAd library.
    library_time : float or None
        When it was written, seconds since the epoch; None: it is not there.
    library_works : bool
        Whether HTCondor's tools can use it.
    slots : int
        How many slots the collector knows.
    gateless : tuple of str
        Those of them that let every job start.
    known_user : bool
        Whether the schedd knows the daemon's user.
    groups : tuple of str
        Those of the daemon's user.
    group : str
        The group that may connect to the submit filter's socket; empty: everybody.
    schedd_user : str
        Whom the schedd runs as.
    schedds : tuple of str
        Those that the collector knows, where the settings name several.
    asked : str
        Who owns the socket at which the library asks, where the daemon is on another machine;
        empty: there is none.
    bindings : str
        Why Python cannot talk to HTCondor; empty: it can.
    """

    directory: Path
    script: Path = Path("/usr/libexec/rtsched/slots.sh")
    names: tuple[str, ...] = (condor_conf.ACCESS, condor_conf.EXECUTE)
    queue: bool = True
    present: Mapping[str, str] = field(default_factory=dict)
    settings: CondorSettings = field(default_factory=CondorSettings)
    configured: bool = True
    native: bool = True
    version: str = ""
    schedd: Mapping[str, str] | None = None
    negotiator: Mapping[str, str] | None = None
    interval: str = ""
    table: str = ""
    started: float = 0.0
    silence: str = ""
    library: Path = Path("/usr/lib/rtsched/librtsched_classad.so")
    library_time: float | None = None
    library_works: bool = False
    slots: int = 0
    gateless: tuple[str, ...] = ()
    known_user: bool = True
    groups: tuple[str, ...] = ()
    group: str = "condor"
    schedd_user: str = "condor"
    filters: tuple[str, ...] = ("condor", "root")
    schedds: tuple[str, ...] = ()
    asked: str = ""
    bindings: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether this is an access point whose library asks a daemon on another machine."""
        return self.queue and not self.configured and self.socket != str(self.run / "submit.sock")

    @property
    def socket(self) -> str:
        """Where the library asks."""
        return self.submit.get("socket", str(self.run / "submit.sock"))

    @property
    def access(self) -> bool:
        """Whether this machine holds the queue or the negotiator."""
        return condor_conf.ACCESS in self.names

    @property
    def table_path(self) -> str:
        """Where the library looks for the table of slots."""
        return self.submit.get("table", CondorSettings().table)


# --- what is wanted -------------------------------------------------------------------------------


def path_of(setup: Setup, name: str) -> Path:
    """Return where a file of ours belongs."""
    return setup.script if name == condor_conf.SCRIPT else setup.directory / name


def wanted(setup: Setup) -> dict[str, str]:
    """Return what our files should hold, by name."""
    values = condor_conf.from_settings(setup.settings) if setup.configured else {}
    values["RTSCHED_NATIVE"] = str(setup.native)
    found = {
        name: condor_conf.wanted(name, setup.present.get(name, ""), values) for name in setup.names
    }
    if not setup.native and condor_conf.EXECUTE in setup.names:
        found[condor_conf.SCRIPT] = condor_conf.shipped(condor_conf.SCRIPT)
    return found


# --- judging --------------------------------------------------------------------------------------


def findings(setup: Setup) -> list[CheckResult]:
    """Return what is good and what is not, in the order in which to put it right."""
    if not setup.version:
        return [wrong("HTCondor's tools are not installed here", "install condor")]
    own = [*_files(setup)]
    if not setup.access:
        return own
    return [
        *(_library(setup) if setup.native else _script()),
        *own,
        *(_schedd(setup) if setup.queue else ()),
        *_negotiator(setup),
        *_slots(setup),
        *_permissions(setup),
        *(_schedds(setup) if setup.queue else ()),
        *(_meeting(setup) if setup.native and setup.queue else ()),
        *(_table(setup) if setup.native else ()),
    ]


def _files(setup: Setup) -> Iterator[CheckResult]:
    for name, text in wanted(setup).items():
        path, present = path_of(setup, name), setup.present.get(name)
        if present == text:
            yield good(f"{path} is as it should be")
        elif present is None:
            yield wrong(f"{path} does not exist", INSTALL)
        else:
            yield wrong(f"{path} does not match the settings", INSTALL)


def _library(setup: Setup) -> Iterator[CheckResult]:
    daemon = "schedd" if setup.queue else "negotiator"
    build = "build it on this machine: `make -C contrib/condor && make -C contrib/condor install`"
    if setup.library_time is None:
        yield wrong(f"{setup.library} does not exist", build)
    elif not setup.library_works and condor_conf.ACCESS in setup.present:
        yield wrong(f"HTCondor cannot use {setup.library}", f"{build}, for this release")
    elif 0 < setup.started < setup.library_time:
        yield note(
            f"{setup.library} is newer than the running {daemon}, which may "
            "still use the previous one",
            "`condor_restart -schedd` and `condor_restart -negotiator`: running jobs stay",
        )
    else:
        yield good(f"{setup.library} is there")


def _script() -> Iterator[CheckResult]:
    yield note(
        "without the ClassAd library, users get no answer from condor_submit "
        "and slots are updated some seconds late",
        "build contrib/condor, then `rtsched condor install --library --apply`",
    )


def _schedd(setup: Setup) -> Iterator[CheckResult]:
    if setup.schedd is None:
        yield wrong(f"the schedd does not answer: {setup.silence}", "start it")
    else:
        yield from _uses("schedd", setup.schedd, SCHEDD)
        transforms = re.findall(r"[^,\s]+", setup.schedd.get("JOB_TRANSFORM_NAMES", ""))
        last = SCHEDD["JOB_TRANSFORM_NAMES"][-1]
        later = transforms[transforms.index(last) + 1 :] if last in transforms else []
        later = [name for name in later if name not in OF_HTCONDOR]
        if later:
            yield note(
                f"the schedd applies {' '.join(later)} in JOB_TRANSFORM_NAMES after {last}: what "
                "that changes of a promised job may void its promise",
                "set JOB_TRANSFORM_NAMES for yours in a file that is read before "
                f"{condor_conf.ACCESS}",
            )
        users = re.split(r"[,\s]+", setup.schedd.get("QUEUE_SUPER_USERS", ""))
        if setup.user not in {user.partition("@")[0] for user in users}:
            yield _replaced("schedd", "QUEUE_SUPER_USERS", setup.user)


def _negotiator(setup: Setup) -> Iterator[CheckResult]:
    if setup.negotiator is None:
        yield note(
            f"no negotiator answers here: {setup.silence}",
            f"the central manager needs {condor_conf.ACCESS} too; run this check there",
        )
    else:
        yield from _uses("negotiator", setup.negotiator, NEGOTIATOR)
        preemption = setup.negotiator.get("NEGOTIATOR_CONSIDER_PREEMPTION", "").lower()
        required = setup.negotiator.get("PREEMPTION_REQUIREMENTS", "").lower()
        if preemption != "false" and required != "false":
            yield note(
                f"PREEMPTION_REQUIREMENTS={required}: the negotiator may preempt promised jobs",
                "add `&& (MY.RtPromise is undefined)`, or set it to False",
            )
        yield from _interval(setup, setup.negotiator.get("NEGOTIATOR_INTERVAL", ""))


def _interval(setup: Setup, interval: str) -> Iterator[CheckResult]:
    """Tell of a negotiator that is slower than plans believe; `interval` is its own."""
    try:
        real, planned = float(interval), float(setup.interval)
    except ValueError:
        return
    if setup.queue and setup.settings.start_delay_s is None and real != planned:
        late = real > planned
        yield CheckResult(
            "wrong" if late else "note",
            f"the negotiation interval is {real:g} s, plans assume {planned:g} s: "
            + (
                "promised jobs may start too late" if late else "deadlines are later than necessary"
            ),
            f"set NEGOTIATOR_INTERVAL = {real:g} on this machine too; or start_delay_s in the "
            "[condor] table",
        )


def _uses(
    daemon: str, values: Mapping[str, str], expected: Mapping[str, tuple[str, ...]]
) -> Iterator[CheckResult]:
    missing = {
        name: [word for word in words if word not in re.findall(r"\w+", values.get(name, ""))]
        for name, words in expected.items()
    }
    for name in filter(missing.get, missing):
        yield _replaced(daemon, name, " ".join(missing[name]))
    if not any(missing.values()):
        yield good(f"the running {daemon} uses our settings")


def _replaced(daemon: str, name: str, missing: str) -> CheckResult:
    return wrong(
        f"the running {daemon} uses {name} without {missing}",
        f"`condor_reconfig`; if that does not help, `condor_config_val -v {name}` names the file "
        f"that overrides ours: move its line to a file that is read before {condor_conf.ACCESS}",
    )


def _slots(setup: Setup) -> Iterator[CheckResult]:
    if setup.gateless:
        shown = ", ".join(setup.gateless[:5]) + (", ..." if len(setup.gateless) > 5 else "")
        yield wrong(
            f"{len(setup.gateless)} of {setup.slots} slots start jobs that "
            f"they should refuse: {shown}",
            f"put {condor_conf.EXECUTE} on their machines, then `condor_reconfig -all`; put a "
            "START expression of your own into a file that is read earlier",
        )
    elif setup.slots:
        yield good(f"all {setup.slots} slots honour promises")
    else:
        yield note("the collector reports no slots", "start the execute machines")


def _permissions(setup: Setup) -> Iterator[CheckResult]:
    yield from user_findings(setup)
    if setup.schedd is not None and not setup.known_user:
        yield wrong(
            f"the schedd does not know the user {setup.user}, so that it may not change jobs",
            f"once, as root: {_made_known(setup.user)}",
        )
    elif setup.schedd is not None:
        yield good(f"the schedd knows the user {setup.user}")
    if setup.bindings and setup.queue:
        yield wrong(setup.bindings, "pip install 'rtsched[condor]'")


def _made_known(user: str) -> str:
    """Return how the schedd comes to know a user, on every release: by a first job."""
    lines = "'executable = /bin/true' 'initialdir = /' 'hold = true' 'queue'"
    submit = f"printf '%s\\n' {lines} | runuser -u {user} -- condor_submit"
    return f"`{submit}; condor_rm {user}`"


def _schedds(setup: Setup) -> Iterator[CheckResult]:
    """Tell which of several schedds nobody has heard of."""
    named = [name for name in setup.settings.schedds if name]
    known = {name.lower() for name in setup.schedds}
    for name in named:
        if name.lower() not in known:
            yield wrong(
                f"the collector knows no schedd {name}",
                "`condor_status -schedd -af Name` lists the names; correct schedds in the [condor] "
                "table, or start it",
            )
    if named and known.issuperset(map(str.lower, named)):
        yield good(f"the collector knows all {len(named)} schedds")


def _tunnel(setup: Setup) -> Iterator[CheckResult]:
    """Tell whether the library reaches a daemon on another machine."""
    trusted = {setup.submit.get("daemon_user", setup.user), "root"}
    if setup.asked in trusted:
        yield good(f"the ClassAd library asks at {setup.socket}")
    elif setup.asked:
        yield wrong(
            f"{setup.socket} belongs to {setup.asked}, whom the library does not trust",
            "see User= in rtsched-tunnel.service, and daemon_user in " + str(setup.submit_path),
        )
    else:
        yield wrong(
            f"the ClassAd library asks at {setup.socket}, which does not exist",
            "start rtsched-tunnel; its log says why it does not listen",
        )


def _meeting(setup: Setup) -> Iterator[CheckResult]:
    if setup.elsewhere:
        yield from _tunnel(setup)
        return
    yield from socket_findings(setup, SUBMIT_KEYS)
    if setup.schedd_user not in setup.filters:
        yield wrong(
            f"the schedd runs as {setup.schedd_user}, who may not query the daemon",
            f'set filters = ["{setup.schedd_user}", "root"] in the [daemon] table',
        )
    if setup.group and setup.user_exists and setup.group not in setup.groups:
        yield wrong(
            f"{setup.user} is not in the group {setup.group} and cannot give it access",
            f"`usermod -aG {setup.group} {setup.user}`, then restart the daemon",
        )
    if setup.table_path != setup.settings.table:
        yield wrong(
            f"the library reads {setup.table_path}, the daemon writes {setup.settings.table}",
            f"set table = {setup.settings.table} in {setup.submit_path}",
        )


def _table(setup: Setup) -> Iterator[CheckResult]:
    if not setup.table:
        yield good(f"{setup.table_path} shows which slots are reserved")
        return
    yield note(
        f"{setup.table_path} {setup.table}: no slot is reserved for promised starts",
        "the daemon writes it, except in a dry run. If it runs on another machine, the table must "
        "be a shared file: `table` in the [condor] table, and in "
        f"{setup.submit_path} on both",
    )


# --- looking --------------------------------------------------------------------------------------

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
    present = {name: _text(directory / name) for name in names if (directory / name).exists()}
    chosen = {k: v for text in present.values() for k, v in condor_conf.choices(text).items()}
    script = Path(chosen.get("RTSCHED_SCRIPT") or Setup.script)
    if script.exists():
        present[condor_conf.SCRIPT] = _text(script)
    library = Path(chosen.get("RTSCHED_LIBRARY") or Setup.library)
    version = _VERSION.search(run("condor_version").stdout)
    setup = Setup(
        directory=directory,
        script=script,
        names=names,
        queue="access" in known,
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
    found = result.stdout.replace(",", " ").split()
    return Path(found[-1]) if not result.returncode and found else CONFIG


def _with_pool(setup: Setup, schedd: str) -> Setup:
    """Return the same with what the pool's daemons say."""
    named = ("-name", schedd) if schedd else ()
    host = run("condor_config_val", "FULL_HOSTNAME").stdout.strip()
    local = (schedd,) if schedd else ("-constraint", f"Machine == {json.dumps(host)}")
    schedd_values, silence = _values("schedd", named) if setup.queue else (None, "")
    negotiator_values, unheard = _values("negotiator", ())
    which = ("-schedd", *local) if setup.queue else ("-negotiator",)
    shown = run("condor_status", *which, "-af", 'rtschedDelay("-")', "DaemonStartTime").stdout
    words = shown.split()
    named_schedds = setup.settings.schedds
    known = run("condor_status", "-schedd", "-af", "Name").stdout if named_schedds else ""
    slots = _known_slots()
    users = run("condor_qusers", *named, "-af", "User").stdout.split() if setup.queue else []
    return replace(
        setup,
        schedd=schedd_values,
        negotiator=negotiator_values,
        silence=silence or unheard,
        interval=run("condor_config_val", "NEGOTIATOR_INTERVAL").stdout.strip(),
        started=float(words[1]) if len(words) > 1 and words[1].isdigit() else 0.0,
        library_works=bool(words) and words[0] not in {"error", "undefined"},
        slots=len(slots),
        gateless=tuple(
            slot["Name"]
            for slot in slots
            if "RtSlot" not in slot or "RtNodeSet" not in str(slot.get("Start"))
        ),
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
        if result.returncode:
            return None, " ".join(result.stderr.split())[-300:]
        found[name] = "" if result.stdout.startswith("Not defined") else result.stdout.strip()
    return found, ""


def _known_slots() -> list[dict[str, Any]]:
    """Return the slots of the pool that the collector knows, dynamic ones left out."""
    words = ("-constraint", "DynamicSlot isnt true", "-json", "-attributes", "Name,Start,RtSlot")
    result = run("condor_status", *words)
    try:
        found = json.loads(result.stdout) if not result.returncode and result.stdout.strip() else []
    except json.JSONDecodeError:
        return []
    return [slot for slot in found if "Name" in slot]


def _roles() -> set[str]:
    """Return what this machine is, by the daemons that run on it."""
    result = run("condor_config_val", "DAEMON_LIST").stdout
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
    numbers = run("condor_config_val", "CONDOR_IDS").stdout.strip().partition(".")
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


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one of HTCondor's tools; one that fails or is missing is no error here."""
    try:
        return run_program(words, SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))
