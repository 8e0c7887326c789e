"""`rtsched condor check|install|uninstall`: an HTCondor made ready for rtsched, or left again."""

from __future__ import annotations

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
    remove_file,
    replace_file,
    report,
    show_change,
    show_left,
    site_settings,
    submit_option,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.adapters.condor.setup import Setup
    from rtsched.adapters.readiness import CheckResult


AFTER_INSTALL = """\
Nothing was restarted. When all other points of `rtsched condor check` are done:
  condor_reconfig                 on each machine whose files changed, or -all
  rtsched condor check"""

AFTER_UNINSTALL = """\
Nothing was restarted. Run, in this order:
  condor_reconfig                 on each machine whose files changed, or -all
  systemctl disable --now rtsched
  condor_restart -schedd; condor_restart -negotiator     if the library is removed too"""

directory_option = path_option(
    "--config-dir",
    "DIR",
    "Directory for rtsched's files. Default: the last of LOCAL_CONFIG_DIR.",
    None,
)
role_option: Callable[[Any], Any] = click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["access", "central", "execute"]),
    help="Role of this machine: with the queue and the daemon (access), with the negotiator "
    "(central), or with slots (execute); repeatable. Default: from DAEMON_LIST.",
)


@click.group("condor", cls=Group, no_args_is_help=True)
@debug_option
def command() -> None:
    """Prepare HTCondor for rtsched, check it, or undo the preparation.

    Run it as root on the access point; on other machines of the pool it installs their files and
    checks them. Without --apply nothing is changed. Nothing is ever restarted.
    """


@command.command("check")
@directory_option
@config_option
@submit_option
@role_option
@json_option
@debug_option
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, **where: Any) -> None:
    """Report what is ready and what is not, with a remedy for each problem.

    It checks the ClassAd library, rtsched's files, the settings of the running schedd and
    negotiator, all slots of the pool, the permissions of the daemon's user, sockets, the library's
    settings, and the daemon. The exit status is 1 if something is wrong.
    """
    from rtsched.adapters.condor.setup import findings

    setup, found = looked(**where, native=None)
    asked = daemon_findings(setup.run / "query.sock") if setup.queue else []
    report(ctx, [*found, *findings(setup), *asked], as_json)


@command.command("install")
@directory_option
@config_option
@submit_option
@role_option
@click.option(
    "--library/--no-library",
    "native",
    default=None,
    help="With or without the ClassAd library. Default: as installed now, else with it.",
)
@apply_option
@debug_option
def install(really: bool, **where: Any) -> None:
    """Install rtsched's files in HTCondor's configuration, filled in from the site's settings.

    Without --apply they are only shown. A file with local changes is kept next to the new one,
    under a name that HTCondor does not read. Everything else (the library, users, permissions) is
    checked, not changed.
    """
    from rtsched.adapters.condor.setup import findings, path_of, wanted

    setup, found = looked(**where)
    texts = {path_of(setup, name): text for name, text in wanted(setup).items()}
    present = {path_of(setup, name): text for name, text in setup.present.items()}
    change(present, texts, AFTER_INSTALL if really else "")
    ours = tuple(map(str, texts))
    left = [f for f in (*found, *findings(setup)) if f.state == "wrong"]
    show_left([f for f in left if not f.what.startswith(ours)])


@command.command("uninstall")
@directory_option
@apply_option
@debug_option
def uninstall(config_dir: Path | None, really: bool) -> None:
    """Remove rtsched's files from HTCondor's configuration."""
    from rtsched.adapters.condor.setup import SiteSettings, inspect_site, path_of

    both = ("access", "execute")
    setup = inspect_site(None, SiteSettings(), directory=config_dir, roles=both)
    present = {path_of(setup, name): text for name, text in setup.present.items()}
    change(present, dict.fromkeys(present, ""), AFTER_UNINSTALL if really else "")


def looked(
    config_dir: Path | None,
    config: Path,
    submit_conf: Path,
    roles: tuple[str, ...],
    native: bool | None,
) -> tuple[Setup, list[CheckResult]]:
    """Return what there is, and what is wrong with the site's settings."""
    from msgspec.structs import replace

    from rtsched.adapters.condor.setup import SiteSettings, inspect_site

    site, found = site_settings(config)
    daemon = replace(site.daemon, system="condor")  # its defaults, whatever is not said
    of_site = SiteSettings(
        Path(daemon.run), daemon.asking_users(), daemon.asking_group(), submit_conf
    )
    table = None if found else site.condor
    setup = inspect_site(table, of_site, directory=config_dir, roles=roles, native=native)
    if found and (not setup.queue or (setup.elsewhere and not config.exists())):
        found = []  # only the daemon's machine has settings of ours
    elif not found and site.daemon.system != "condor":
        from rtsched.adapters.readiness import wrong

        what = f'{config}: system is "{site.daemon.system}"'
        found = [wrong(what, 'set system = "condor" in the [daemon] table')]
    return setup, found


def change(present: dict[Path, str], texts: dict[Path, str], after: str) -> None:
    """Show how files change, an empty text meaning none; where `after` is said, change them."""
    todo = [path for path, text in texts.items() if present.get(path, "") != text]
    for path in todo:
        show_change(path, present.get(path, ""), texts[path])
    if not todo:
        click.echo("nothing to change")
        return
    if not after:
        say(UNCHANGED)
        return
    for path in todo:
        _change_one(path, present.get(path, ""), texts[path])
    say(after)


def _change_one(path: Path, old: str, new: str) -> None:
    if not new:
        remove_file(path)
        say(f"rtsched: {path} was removed")
    elif old:
        backup = replace_file(path, old, new, "~")
        say(f"rtsched: {path} was changed; the previous version is in {backup}")
    else:
        write_file(path, new, 0o755 if path.suffix == ".sh" else 0o644)
        say(f"rtsched: {path} was written")
