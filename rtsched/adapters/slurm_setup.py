"""Whether a Slurm is ready for rtsched: what there is, what should be, what to do; pure.

`slurm_look.look` makes a `Setup`; `findings` judges it, `wanted` says what slurm.conf should hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rtsched.adapters import readiness, slurm_conf
from rtsched.adapters.readiness import Finding, socket_findings, user_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLUGIN = "job_submit_rtsched.so"
PROLOG = "/usr/libexec/rtsched/task_prolog.sh"
FLAGS = ("job_comment", "job_extra")
MOST_SKEW = 5.0
"""Seconds that the controller's clock may differ."""

SUBMIT_KEYS = readiness.SUBMIT_KEYS | {"reservation_prefix", "promised_jobs"}


@dataclass(frozen=True)
class Setup:
    """What there is on this machine.

    Attributes
    ----------
    path : Path
        slurm.conf.
    conf : mapping of str to str
        What it and the files it includes set, by name in lower case.
    running : mapping of str to str, or None
        What the running controller uses, by name in lower case; None: it does not answer.
    silence : str
        Why it does not answer.
    skew_s : float
        How far its clock is ahead of ours, seconds.
    version : str
        Of the installed slurmctld; empty: unknown.
    plugin : Path or None
        Our submit filter, where PluginDir or `plugin_dir` holds it.
    plugin_version : str
        The Slurm it was built for; empty: it cannot be loaded.
    prolog : bool
        Whether our TaskProlog is installed.
    user, user_exists : str, bool
        The daemon's user.
    level : str
        Its AdminLevel; empty: unknown.
    run : Path
        Directory of the sockets.
    run_owner : str
        Whose that is; empty: it is not there.
    filters : tuple of str
        Who may ask for verdicts, by the site's settings.
    submit_path : Path
        Settings of the submit filter.
    submit : mapping of str to str
        What they say.
    """

    path: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    running: Mapping[str, str] | None = None
    silence: str = ""
    skew_s: float = 0.0
    version: str = ""
    plugin: Path | None = None
    plugin_version: str = ""
    prolog: bool = True
    user: str = "rtsched"
    user_exists: bool = True
    level: str = ""
    run: Path = Path("/run/rtsched")
    run_owner: str = ""
    filters: tuple[str, ...] = ("slurm", "root")
    submit_path: Path = Path("/etc/rtsched/submit.conf")
    submit: Mapping[str, str] = field(default_factory=dict)


# --- what is wanted -------------------------------------------------------------------------------


def wanted(setup: Setup) -> dict[str, str]:
    """Return the values that slurm.conf should have, by name as Slurm's manual writes it."""
    present = setup.conf
    found = {
        "JobSubmitPlugins": slurm_conf.with_first(present.get("jobsubmitplugins", ""), "rtsched"),
        "AccountingStoreFlags": slurm_conf.with_all(present.get("accountingstoreflags", ""), FLAGS),
    }
    searched = present.get("plugindir") or (setup.running or {}).get("plugindir", "")
    if setup.plugin is not None and searched:
        found["PluginDir"] = slurm_conf.with_directory(searched, str(setup.plugin.parent))
        if "plugindir" not in present and found["PluginDir"] == searched:
            del found["PluginDir"]  # it is where Slurm looks without being told
    if setup.prolog and not present.get("taskprolog"):
        found["TaskProlog"] = PROLOG
    return found


# --- judging --------------------------------------------------------------------------------------


def findings(setup: Setup) -> list[Finding]:
    """Return what is good and what is not, in the order in which to put it right."""
    return [
        *_plugin(setup),
        *_lines(setup),
        *_controller(setup),
        *_permissions(setup),
        *socket_findings(setup, SUBMIT_KEYS),
        *_promised_jobs(setup),
    ]


def _plugin(setup: Setup) -> Iterator[Finding]:
    if setup.plugin is None:
        yield Finding(
            "wrong",
            f"no {PLUGIN} in PluginDir",
            "build it for this Slurm: `make -C contrib/slurm && make -C contrib/slurm install`; "
            "where it is elsewhere, say so with --plugin-dir",
        )
    elif not setup.plugin_version:
        yield Finding("wrong", f"{setup.plugin} cannot be loaded", "build it anew on this machine")
    elif setup.version and not same_release(setup.plugin_version, setup.version):
        yield Finding(
            "wrong",
            f"{setup.plugin} was built for Slurm {setup.plugin_version}, {setup.version} is "
            "installed: slurmctld would not start with it",
            "build it anew, before slurmctld starts again",
        )
    else:
        yield Finding("good", f"{setup.plugin} is built for Slurm {setup.plugin_version}")


def same_release(one: str, other: str) -> bool:
    """Return whether two releases are the same: Slurm wants the micro release to be equal too."""
    return [int(part) for part in one.split(".")] == [int(part) for part in other.split(".")]


def _lines(setup: Setup) -> Iterator[Finding]:
    remedy = "`rtsched slurm install` shows the line, `rtsched slurm install --apply` puts it in"
    for name, value in wanted(setup).items():
        present = setup.conf.get(name.lower(), "")
        if present == value:
            yield Finding("good", f"{name}={value}")
        else:
            now = f"{name}={present}" if present else f"{name} is not set"
            yield Finding("wrong", f"{setup.path}: {now}, wanted: {value}", remedy)
    prolog = setup.conf.get("taskprolog", "")
    if prolog and prolog != PROLOG:
        yield Finding(
            "note",
            f"TaskProlog={prolog}: jobs are not told their plan",
            f"have it call {PROLOG} too, or tell users of `rtsched chunk`",
        )
    elif not setup.prolog:
        yield Finding(
            "note", f"{PROLOG} is not installed: jobs are not told their plan", "make install"
        )
    if setup.conf.get("prioritytype", "priority/multifactor").lower() == "priority/basic":
        yield Finding(
            "note",
            "PriorityType=priority/basic knows no site factor: rtsched orders the queue by Nice",
            "use priority/multifactor if fair share is to count for more than 60,000 places",
        )


def _controller(setup: Setup) -> Iterator[Finding]:
    if setup.running is None:
        yield Finding(
            "wrong", f"the controller does not answer: {setup.silence}", "start slurmctld"
        )
        return
    used = setup.running.get("jobsubmitplugins", "")
    if "rtsched" in used.split(","):
        yield Finding("good", f"the running controller uses JobSubmitPlugins={used}")
    else:
        yield Finding(
            "wrong",
            f"the running controller uses JobSubmitPlugins={used}",
            "when slurm.conf is ready: `scontrol reconfigure`; if that fails the old ones stay",
        )
    if abs(setup.skew_s) > MOST_SKEW:
        yield Finding(
            "wrong",
            f"the controller's clock is {setup.skew_s:+.0f} s from this machine's",
            "run the daemon where slurmctld runs, and have all clocks set by NTP",
        )
    owner = setup.running.get("slurmuser", "").partition("(")[0]
    if owner and owner not in setup.filters:
        yield Finding(
            "wrong",
            f"slurmctld runs as {owner}, who may not ask the daemon",
            f'set filters = ["{owner}"] in the [daemon] table',
        )


def _permissions(setup: Setup) -> Iterator[Finding]:
    user = setup.user
    yield from user_findings(setup)
    owner = (setup.running or {}).get("slurmuser", "").partition("(")[0]
    if user in {owner, "root"}:
        yield Finding("good", f"{user} is SlurmUser or root, who may do everything")
    elif setup.level in {"Operator", "Administrator", "Admin"}:
        yield Finding("good", f"{user} has AdminLevel={setup.level}")
    elif setup.level:
        yield Finding(
            "wrong",
            f"{user} is no Operator: Slurm would refuse reservations and changes of jobs",
            f"`sacctmgr add user {user} account=ACCOUNT adminlevel=Operator`, or `sacctmgr modify "
            f"user {user} set adminlevel=Operator`",
        )
    else:
        yield Finding(
            "note",
            f"the accounting database does not tell what {user} may do",
            "without slurmdbd only SlurmUser and root may change jobs of others: run the daemon "
            "as SlurmUser",
        )


def _promised_jobs(setup: Setup) -> Iterator[Finding]:
    wanted = str(setup.run / "promised_jobs")
    read = setup.submit.get("promised_jobs", "/run/rtsched/promised_jobs")
    if read != wanted:
        yield Finding(
            "wrong",
            f"the submit filter reads {read}, the daemon writes {wanted}: without the daemon "
            "on_failure = hold or closed lets nobody change a job",
            f"set promised_jobs = {wanted} in {setup.submit_path}",
        )
