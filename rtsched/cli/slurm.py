"""`rtsched slurm check|install|uninstall|restore`: a Slurm ready for rtsched, or without it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import Group, debug_option, path_option, say
from rtsched.cli.ready import (
    UNCHANGED,
    apply_option,
    config_option,
    daemon_findings,
    json_option,
    replace_file,
    report,
    show_change,
    show_left,
    site_settings,
    submit_option,
)
from rtsched.errors import AdapterError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.readiness import CheckResult
    from rtsched.adapters.slurm.last_applied import AppliedFile
    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.adapters.slurm.setup import ProbeResult, Setup

SLURM_CONF = Path("/etc/slurm/slurm.conf")

AFTER_INSTALL = """\
Nothing was restarted. When all other points of `rtsched slurm check` are done:
  copy slurm.conf to all hosts with a copy of their own, as after any change (not if it is shared
  or the site is configless)
  scontrol reconfigure            if it fails, the controller keeps its old settings
  rtsched slurm check"""

AFTER_UNINSTALL = """\
Nothing was restarted. Run, in this order, because slurmctld must find its plug-ins:
  scontrol reconfigure
  systemctl disable --now rtsched
  rtsched slurm restore --apply"""


def default_slurm_conf() -> Path:
    """Return Slurm's own file: as Slurm's commands find it, else as the controller tells."""
    if named := os.environ.get("SLURM_CONF"):
        return Path(named)
    if SLURM_CONF.exists():
        return SLURM_CONF
    from rtsched.adapters.slurm.installed import conf_in_use
    from rtsched.adapters.slurm.settings import SlurmSettings

    return conf_in_use(SlurmSettings()) or SLURM_CONF


slurm_conf_option = path_option(
    "--slurm-conf",
    "FILE",
    "Slurm's configuration file. Default: SLURM_CONF in the environment, else "
    "/etc/slurm/slurm.conf, else the file that the controller reads.",
    default_slurm_conf,
)


@click.group("slurm", cls=Group, no_args_is_help=True)
@debug_option
def command() -> None:
    """Prepare Slurm for rtsched, check it, or undo the preparation.

    Run it as root on the head node. Without --apply nothing is changed. Nothing is ever restarted.
    """


@command.command("check")
@slurm_conf_option
@config_option
@submit_option
@click.option(
    "--nodes",
    "ask",
    is_flag=True,
    help="Test on all nodes that accept jobs whether they can run rtsched's TaskProlog, by a step "
    "without allocation (srun --no-allocate); takes a minute at most. Only for root and SlurmUser.",
)
@json_option
@debug_option
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, ask: bool, **where: Any) -> None:
    """Report what is ready and what is not, with a remedy for each problem.

    It checks the submit filter and the release that it was built for, slurm.conf, the running
    controller, the permissions of the daemon's user, sockets, clocks, the filter's settings, and
    the daemon. The exit status is 1 if something is wrong.
    """
    from rtsched.adapters.slurm.setup import findings

    setup, found, settings = looked(**where)
    asked = asked_nodes(setup, settings) if ask else None
    query = setup.run / "query.sock"
    report(ctx, [*found, *findings(setup, asked), *daemon_findings(query)], as_json)


@command.command("install")
@slurm_conf_option
@config_option
@submit_option
@click.option(
    "--task-prolog/--no-task-prolog",
    "prolog",
    default=None,
    help="With or without rtsched's TaskProlog. Default: as installed now, else without. Every "
    "step fails on a node that cannot run it, so with --apply all nodes are tested, as by `check "
    "--nodes`.",
)
@click.option(
    "--force-task-prolog",
    "forced",
    is_flag=True,
    help="Skip the test of the nodes; only if you know that all can run it.",
)
@apply_option
@debug_option
def install(really: bool, prolog: bool | None, forced: bool, **where: Any) -> None:
    """Add rtsched's lines to slurm.conf: a marked block; lines that it replaces become comments.

    Without --apply the change is only shown. With --apply the file is replaced at once, and a
    backup is kept. Everything else (the submit filter, users, permissions) is checked, not changed.
    """
    from rtsched.adapters.slurm.setup import findings, same_release, wanted
    from rtsched.adapters.slurm.slurm_conf import installed, read

    setup, found, settings = looked(**where)
    wants = wanted(setup, prolog)
    old = read(setup.path)
    new = installed(setup.path, old, wants)
    if really and new != old:
        if setup.plugin is None or not setup.plugin_version:
            refuse(setup, "there is no loadable submit filter")
        elif setup.version and not same_release(setup.plugin_version, setup.version):
            refuse(setup, f"the submit filter was built for Slurm {setup.plugin_version}")
        own = setup.conf.get("taskprolog", "")
        if wants.get("TaskProlog", own) != own:
            refuse_prolog(setup, settings, own, forced)
    _change(setup.path, old, new, AFTER_INSTALL if really else "")
    lines = f"{setup.path}: "
    left = [f for f in (*found, *findings(setup)) if f.state == "wrong"]
    show_left([f for f in left if not f.what.startswith(lines)])


def refuse_prolog(setup: Setup, settings: SlurmSettings, own: str, forced: bool) -> None:
    """Refuse a TaskProlog that some node cannot run, or in place of the site's own."""
    from rtsched.adapters.slurm.setup import PROLOG, few

    if own:
        raise ConfigError(
            [f"{setup.path}: TaskProlog={own} is the site's own; make it call {PROLOG} too"]
        )
    if forced:
        return
    asked = asked_nodes(setup, settings)
    if asked.unable:
        raise ConfigError(
            [
                f"{len(asked.unable)} of the nodes cannot run {PROLOG}: {few(asked.unable)}. As "
                "TaskProlog it would fail every step there. Copy it to all nodes, mode 755; if you "
                "know that they have it, add --force-task-prolog"
            ]
        )
    if asked.unasked:
        say(
            "rtsched: not tested, because they accept no jobs now: "
            f"{few(asked.unasked)}. Copy {PROLOG} "
            "there before they do"
        )


def asked_nodes(setup: Setup, settings: SlurmSettings) -> ProbeResult:
    """Ask all nodes that take jobs whether they can run our TaskProlog.

    Raises
    ------
    AdapterError
        If this is not for the user to ask, or Slurm does not answer.
    """
    from rtsched.adapters.slurm.commands import CommandRunner
    from rtsched.adapters.slurm.setup import HANDED_OUT, PROLOG, probe_nodes

    # One that slurmctld hands out has no such path: the step itself runs it.
    program = "true" if setup.conf.get("taskprolog") == HANDED_OUT else PROLOG
    owner = (setup.running or {}).get("slurmuser", "").partition("(")[2].rstrip(")")
    if os.geteuid() != 0 and owner != str(os.geteuid()):
        raise AdapterError("only root and SlurmUser may test the nodes; run this as root")
    commands = CommandRunner(settings)
    return probe_nodes(program, commands.nodes(), Path(settings.bin_dir) / "srun")


def refuse(setup: Setup, why: str) -> None:
    """Refuse to write what would keep slurmctld from starting."""
    raise ConfigError(
        [
            f"{why} (installed: Slurm {setup.version or 'of an unknown release'}): slurmctld "
            "cannot start with these lines; build it first, see `rtsched slurm check`"
        ]
    )


@command.command("uninstall")
@slurm_conf_option
@apply_option
@debug_option
def uninstall(slurm_conf: Path, really: bool) -> None:
    """Remove rtsched's lines from slurm.conf; the lines they replaced are restored."""
    from rtsched.adapters.slurm.slurm_conf import read, uninstalled

    old = read(slurm_conf)
    _change(slurm_conf, old, uninstalled(old), AFTER_UNINSTALL if really else "")


@command.command("restore")
@config_option
@click.option(
    "--apply", "really", is_flag=True, help="Make the changes; without it, only show them."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON array: of each change its outcome (null without --apply) and Slurm's "
    "message.",
)
@debug_option
@click.pass_context
def restore(ctx: click.Context, /, config: Path, really: bool, as_json: bool) -> None:
    """Undo what rtsched set in waiting jobs, and delete its reservations.

    Site factors, node counts and node lists are reset to what users requested, and jobs that were
    held to be evaluated later are released. A promised job becomes an ordinary one with the node
    count and time limit that its user requested; its comment tells its user. The daemon must not
    run: it would set all that again. The exit status is 1 if something could not be undone.
    """
    from rtsched.adapters.slurm.commands import CommandRunner, carried_out, rank_of
    from rtsched.adapters.slurm.facts import config_of
    from rtsched.adapters.slurm.steering import restoring

    site, wrong = site_settings(config)
    if wrong and config.exists():
        text = (
            f"{wrong[0].what}; correct it first: it names the file that records "
            "what rtsched set in jobs"
        )
        raise ConfigError([text])
    if really and _answers(Path(site.daemon.run) / "query.sock"):
        raise ConfigError(["the daemon runs; stop it first: systemctl disable --now rtsched"])
    memory = _remembered(site.slurm.memory, site.slurm.user)
    commands = CommandRunner(site.slurm)
    basic = config_of(commands.config()).get("PriorityType", "").endswith("basic")
    promised = _promised(Path(site.daemon.database))
    rows, reservations = commands.jobs(), commands.reservations()
    changes = restoring(rows, reservations, memory, basic=basic, promised=promised)
    changes.sort(key=rank_of)
    if not really or not changes:
        show_changes([(change.text, None, "") for change in changes], as_json)
        say("rtsched: nothing to undo" if not changes else UNCHANGED)
        return
    results = carried_out(commands, changes)
    show_changes([(done.change.text, done.outcome, done.text) for done in results], as_json)
    failed = sum(done.outcome != "done" for done in results)
    if failed:
        say(f"rtsched: {failed} of {len(changes)} could not be undone; try again")
        ctx.exit(1)
    if site.slurm.memory:
        Path(site.slurm.memory).unlink(missing_ok=True)


def show_changes(changes: Sequence[tuple[str, str | None, str]], as_json: bool) -> None:
    """Print changes in Slurm: what each is, its outcome (None: not made) and Slurm's message."""
    if as_json:
        names = ("change", "outcome", "message")
        rows = [dict(zip(names, each, strict=True)) for each in changes]
        click.echo(json.dumps(rows, indent=2))
        return
    for change, outcome, message in changes:
        click.echo(change if outcome in {None, "done"} else f"{change}: {message}")


def _promised(database: Path) -> frozenset[int]:
    """Return the jobs with open promises, by the daemon's database.

    Raises
    ------
    ConfigError
        If there is one, and it cannot be read.
    """
    from rtsched.daemon.store import Store
    from rtsched.errors import StoreError

    if not database.exists():
        return frozenset()
    try:
        with Store(database) as store:
            return frozenset(record.id for record in store.open_promises())
    except StoreError as error:
        raise ConfigError([f"{error}; it records which jobs have promises"]) from error


def _remembered(path: str, user: str) -> AppliedFile:
    """Return what the daemon remembered of jobs.

    Raises
    ------
    ConfigError
        If there is a file, and it cannot be read, as by root on a shared file system.
    """
    from rtsched.adapters.slurm import last_applied

    try:
        if path:
            Path(path).open("rb").close()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ConfigError(
            [
                f"{path} cannot be read ({error.strerror}): it records what "
                "users requested. Run this "
                f"as the daemon's user: runuser -u {user} -- rtsched slurm restore"
            ]
        ) from error
    return last_applied.read(path)


def _answers(path: Path) -> bool:
    """Return whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def looked(
    slurm_conf: Path, config: Path, submit_conf: Path
) -> tuple[Setup, list[CheckResult], SlurmSettings]:
    """Return what there is, what is wrong with the site's settings, and those for Slurm."""
    from rtsched.adapters.slurm.installed import controllers, inspect_site
    from rtsched.adapters.slurm.setup import controller_findings

    site, found = site_settings(config)
    run, users = Path(site.daemon.run), site.daemon.asking_users()
    setup = inspect_site(slurm_conf, site.slurm, run, users, submit_conf)
    hosts, database = controllers(slurm_conf), Path(site.daemon.database)
    daemons = controller_findings(hosts, site.daemon.standby, database, site.slurm.memory)
    return setup, [*found, *daemons], site.slurm


def _change(path: Path, old: str, new: str, after: str) -> None:
    """Show how a file changes; where it is said what comes `after`, change it."""
    if new == old:
        click.echo(f"{path}: nothing to change")
        return
    show_change(path, old, new)
    if not after:
        say(UNCHANGED)
        return
    backup = replace_file(path, old, new)
    say(f"rtsched: {path} was changed; the previous version is in {backup}\n{after}")
