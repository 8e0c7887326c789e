"""Findings and changed files, shown alike by `rtsched slurm` and `rtsched condor`."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.adapters.readiness import good, note, wrong
from rtsched.cli.common import SITE, Exit, console, indented, path_option
from rtsched.errors import OutputError, RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from rtsched.adapters.readiness import CheckResult
    from rtsched.daemon.settings import LiveSite

SUBMIT_CONF = Path("/etc/rtsched/submit.conf")
REMEDIES = "docs/operations.md"
STYLES = {"good": "green", "note": "yellow", "wrong": "red"}
UNCHANGED = "rtsched: nothing was changed; use --apply to make the changes"


config_option = path_option("--config", "SITE.TOML", "Settings of the site.", SITE)
submit_option = path_option("--submit-conf", "FILE", "Settings of the submit filter.", SUBMIT_CONF)
json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON array."
)
apply_option: Callable[[Any], Any] = click.option(
    "--apply", "really", is_flag=True, help="Change files; without it, only show how."
)

# --- findings -------------------------------------------------------------------------------------


def site_settings(config: Path) -> tuple[LiveSite, list[CheckResult]]:
    """Return the site's settings, and what is wrong with them; then they are the defaults."""
    from rtsched.cli.check import load_checked
    from rtsched.core.plugins import discover
    from rtsched.daemon.settings import LiveSite
    from rtsched.daemon.start import policy_of

    try:
        if config.exists():
            found = discover()
            site = load_checked(config, found)
            policy_of(site, found)
            return site, []
    except RtschedError as error:
        return LiveSite(), [wrong(str(error), "see `rtsched check`")]
    what = f"{config} does not exist: defaults apply, no plug-in is loaded"
    return LiveSite(), [wrong(what, "write one and check it with `rtsched check`")]


def daemon_findings(path: Path) -> list[CheckResult]:
    """Return whether a daemon answers on a socket, and of what problems it tells.

    Parameters
    ----------
    path : Path
        The socket for questions.
    """
    from rtsched.daemon.query_client import ask
    from rtsched.daemon.questions import Status

    try:
        report = ask(Status(), str(path))
    except RtschedError as error:
        return [wrong(str(error), "`systemctl start rtsched`; if it fails, its log says why")]
    findings = [wrong(f"the daemon reports: {problem}", REMEDIES) for problem in report.problems]
    dry = note("the daemon is in a dry run: it promises and changes nothing")
    others = ", ".join(f"{peer.host} {peer.state}" for peer in report.peers)
    standby = good(f"the daemon is on standby ({others})")
    state = {"dry-run": [dry], "standby": [standby]}.get(report.mode, [])
    return [*state, *findings] or [good("the daemon answers and reports no problem")]


def report(ctx: click.Context, found: Sequence[CheckResult], as_json: bool) -> None:
    """Print findings and end: status 1 if something is wrong."""
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode([each._asdict() for each in found]).decode())
    else:
        show(console(), found)
    states = {each.state for each in found}
    ctx.exit(Exit.FINDINGS if "wrong" in states else Exit.GOOD)


def show(out: Console, found: Sequence[CheckResult]) -> None:
    """Print findings, each with its remedy."""
    for each in found:
        indented(out, each.what, 7, STYLES[each.state], lead=each.state)
        if each.remedy:
            indented(out, each.remedy, 7)


def show_left(found: Sequence[CheckResult]) -> None:
    """Print what is still wrong after an installation, if anything is."""
    if found:
        out = console()
        out.print("\nRemaining steps:")
        show(out, found)


# --- files ----------------------------------------------------------------------------------------


def show_change(path: Path, old: str, new: str) -> None:
    """Print how a file changes; an empty text: it is not there."""
    before, after = (str(path) if old else "/dev/null"), (f"{path} (new)" if new else "/dev/null")
    lines = unified_diff(old.splitlines(), new.splitlines(), before, after, lineterm="")
    click.echo("\n".join(lines).encode("utf-8", "backslashreplace").decode())


def replace_file(path: Path, old: str, new: str, ending: str = "") -> Path:
    """Write a file anew, in one step, with its owner and mode; return the path of the backup.

    Parameters
    ----------
    path : Path
        The file.
    old, new : str
        What it holds, and is to hold.
    ending : str
        What the backup's name ends with.

    Raises
    ------
    OutputError
        If the file changed meanwhile, or cannot be written.
    """
    path = path.resolve()
    stamp = time.strftime("%Y%m%dT%H%M%S")
    backup = path.with_name(f"{path.name}.rtsched-{stamp}{ending}")
    try:
        _write_like(path, backup, old)
        if path.read_bytes() != old.encode("utf-8", "surrogateescape"):
            backup.unlink()
            raise OutputError(path, "was changed concurrently; try again")
        _write_like(path, path, new)
    except OSError as error:
        raise _unwritable(path, error) from error
    return backup


def write_file(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file that is ours alone, in one step; its directory is made where it is missing.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content, mode, (os.geteuid(), os.getegid()))
    except OSError as error:
        raise _unwritable(path, error) from error


def remove_file(path: Path) -> None:
    """Remove a file that is ours alone.

    Raises
    ------
    OutputError
        If it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(path, f"cannot be written ({error.strerror}); run this as root")


def _write_like(model: Path, path: Path, text: str) -> None:
    """Write a file in one step, with the owner and mode of another."""
    status = model.stat()
    _write(path, text, status.st_mode & 0o7777, (status.st_uid, status.st_gid))


def _write(path: Path, content: str | bytes, mode: int, owner: tuple[int, int]) -> None:
    """Write a file in one step."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            os.fchown(file.fileno(), *owner)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
