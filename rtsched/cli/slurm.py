"""`rtsched slurm check|install|uninstall`: a Slurm made ready for rtsched, or left again."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import Exit, console, debug_option, indented, say
from rtsched.errors import ConfigError, OutputError, RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from rtsched.adapters.slurm_setup import Finding, Setup

SLURM_CONF = Path("/etc/slurm/slurm.conf")
SUBMIT_CONF = Path("/etc/rtsched/submit.conf")
SITE = Path("/etc/rtsched/site.toml")
STYLES = {"good": "green", "note": "yellow", "wrong": "red"}

AFTER_INSTALL = """\
Nothing was restarted. When all else that `rtsched slurm check` names is done:
  scontrol reconfigure            if it fails, the controller keeps its old settings
  rtsched slurm check"""

AFTER_UNINSTALL = """\
Nothing was restarted. In this order, since slurmctld must find its plug-ins:
  scontrol reconfigure
  systemctl disable --now rtsched"""


def _slurm_conf() -> Path:
    return Path(os.environ.get("SLURM_CONF") or SLURM_CONF)


def _option(name: str, metavar: str, text: str, default: Any) -> Callable[[Any], Any]:
    kind = click.Path(path_type=Path)
    return click.option(
        name,
        metavar=metavar,
        type=kind,
        default=default,
        show_default=not callable(default),
        help=text,
    )


slurm_conf_option = _option(
    "--slurm-conf",
    "FILE",
    "Slurm's own file. Default: SLURM_CONF of the environment, else /etc/slurm/slurm.conf.",
    _slurm_conf,
)
config_option = _option("--config", "SITE.TOML", "The site's settings.", SITE)
submit_option = _option("--submit-conf", "FILE", "Settings of the submit filter.", SUBMIT_CONF)
plugin_option = _option(
    "--plugin-dir", "DIR", "Where job_submit_rtsched.so is, if not in Slurm's PluginDir.", None
)
apply_option: Callable[[Any], Any] = click.option(
    "--apply", "really", is_flag=True, help="Change the file; without it only say how."
)


@click.group("slurm", no_args_is_help=True)
@debug_option
def command() -> None:
    """Prepare a Slurm for rtsched, check whether it is ready, or undo it.

    Run it as root on the head node. Without --apply nothing is changed, and nothing is ever
    restarted.
    """


@command.command("check")
@slurm_conf_option
@config_option
@submit_option
@plugin_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array instead.")
@debug_option
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, **where: Any) -> None:
    """Say what is ready and what is not, each with its remedy.

    It looks at the submit filter and the release that it was built for, slurm.conf, the running
    controller, the permissions of the daemon's user, sockets, clocks, the filter's settings, and
    the daemon. The status is 1 if something is wrong.
    """
    from rtsched.adapters.slurm_setup import findings

    setup, found = looked(**where)
    found += [*findings(setup), *daemon_findings(setup.run / "query.sock")]
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode([each._asdict() for each in found]).decode())
    else:
        show(console(), found)
    wrong = any(each.state == "wrong" for each in found)
    ctx.exit(Exit.FINDINGS if wrong else Exit.GOOD)


@command.command("install")
@slurm_conf_option
@config_option
@submit_option
@plugin_option
@apply_option
@debug_option
def install(really: bool, **where: Any) -> None:
    """Put our lines into slurm.conf: a marked block; lines that it replaces become comments.

    Without --apply the change is only shown. With it the file is replaced at once, beside a backup.
    What stands elsewhere (the submit filter, users, permissions) is checked, not changed.
    """
    from rtsched.adapters.slurm_conf import installed, read
    from rtsched.adapters.slurm_setup import findings, same_release, wanted

    setup, found = looked(**where)
    old = read(setup.path)
    new = installed(setup.path, old, wanted(setup))
    if really and new != old:
        if setup.plugin is None or not setup.plugin_version:
            refuse(setup, "there is no submit filter that can be loaded")
        elif setup.version and not same_release(setup.plugin_version, setup.version):
            refuse(setup, f"the submit filter was built for Slurm {setup.plugin_version}")
    _change(setup.path, old, new, AFTER_INSTALL if really else "")
    lines = f"{setup.path}: "
    left = [f for f in (*found, *findings(setup)) if f.state == "wrong"]
    left = [f for f in left if not f.what.startswith(lines)]
    if left:
        out = console()
        out.print("\nStill to be done:")
        show(out, left)


def refuse(setup: Setup, why: str) -> None:
    """Refuse to write what would keep slurmctld from starting."""
    raise ConfigError(
        [
            f"{why} (installed: Slurm {setup.version or 'of an unknown release'}): slurmctld would "
            "not start with these lines; build it first, `rtsched slurm check` says how"
        ]
    )


@command.command("uninstall")
@slurm_conf_option
@apply_option
@debug_option
def uninstall(slurm_conf: Path, really: bool) -> None:
    """Take our lines out of slurm.conf again; the lines they replaced come back."""
    from rtsched.adapters.slurm_conf import read, uninstalled

    old = read(slurm_conf)
    _change(slurm_conf, old, uninstalled(old), AFTER_UNINSTALL if really else "")


def looked(
    slurm_conf: Path, config: Path, submit_conf: Path, plugin_dir: Path | None
) -> tuple[Setup, list[Finding]]:
    """Return what there is, and what is wrong with the site's settings."""
    from rtsched.adapters.slurm_look import look
    from rtsched.adapters.slurm_setup import Finding
    from rtsched.cli.check import load_checked
    from rtsched.daemon.settings import LiveSite
    from rtsched.plugins import discover

    found: list[Finding] = []
    site = LiveSite()
    try:
        if config.exists():
            site = load_checked(config, discover())
        else:
            what = f"{config} is not there: defaults hold, and no plug-in"
            found.append(Finding("wrong", what, "write one; `rtsched check` reads it"))
    except RtschedError as error:
        found.append(Finding("wrong", str(error), "`rtsched check` tells more"))
    run, users = Path(site.daemon.run), site.daemon.asking_users()
    setup = look(slurm_conf, site.slurm, run, users, plugin_dir, submit_conf)
    return setup, found


def daemon_findings(path: Path) -> list[Finding]:
    """Return whether a daemon answers on a socket, and of what problems it tells."""
    from rtsched.adapters.slurm_setup import Finding
    from rtsched.daemon.ask import ask
    from rtsched.daemon.reports import Status

    try:
        report = ask(Status(), str(path))
    except RtschedError as error:
        return [Finding("wrong", str(error), "`systemctl start rtsched`; its log says what fails")]
    told = [
        Finding("wrong", f"the daemon tells: {problem}", "docs/slurm/troubleshooting.md")
        for problem in report.problems
    ]
    dry = Finding("note", "the daemon is on a dry-run: it promises and changes nothing")
    state = [dry] if report.mode == "dry-run" else []
    return [*state, *told] or [Finding("good", "the daemon answers, and tells of no problem")]


def show(out: Console, found: Sequence[Finding]) -> None:
    """Print findings, each with its remedy."""
    for each in found:
        indented(out, each.what, 7, STYLES[each.state], lead=each.state)
        if each.remedy:
            indented(out, each.remedy, 7)


def _change(path: Path, old: str, new: str, after: str) -> None:
    """Show how a file changes; where it is said what comes `after`, change it."""
    if new == old:
        click.echo(f"{path}: nothing to change")
        return
    lines = unified_diff(
        old.splitlines(), new.splitlines(), str(path), f"{path} (new)", lineterm=""
    )
    click.echo("\n".join(lines).encode("utf-8", "backslashreplace").decode())
    if not after:
        say("rtsched: nothing was changed; --apply does it")
        return
    backup = replace_file(path, old, new)
    say(f"rtsched: {path} was changed; what it was is in {backup}\n{after}")


def replace_file(path: Path, old: str, new: str) -> Path:
    """Write a file anew, in one step, with its owner and mode; return the path of the backup.

    Raises
    ------
    OutputError
        If the file changed meanwhile, or cannot be written.
    """
    path = path.resolve()
    stamp = time.strftime("%Y%m%dT%H%M%S")
    backup = path.with_name(f"{path.name}.rtsched-{stamp}")
    try:
        _write_like(path, backup, old)
        if path.read_bytes() != old.encode("utf-8", "surrogateescape"):
            backup.unlink()
            raise OutputError(path, "was changed by somebody else just now; try again")
        _write_like(path, path, new)
    except OSError as error:
        raise OutputError(
            path, f"cannot be written ({error.strerror}); run this as root"
        ) from error
    return backup


def _write_like(model: Path, path: Path, text: str) -> None:
    """Write a file in one step, with the owner and mode of another."""
    status = model.stat()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), status.st_mode & 0o7777)
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
