"""`rtsched doctor`: what a bug report needs, without secrets."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rtsched.cli.asking import socket_option
from rtsched.cli.common import console, debug_option, indented, refuse_unwritable, say
from rtsched.cli.ready import SITE, SUBMIT_CONF, path_option, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rtsched.cli.diagnosis import Section

HINT = "Read it before you send it: texts of the batch system and of plug-ins may name jobs."


@click.command("doctor")
@path_option("--config", "SITE.TOML", "Settings of the site.", SITE, readable=False)
@path_option("--submit-conf", "FILE", "Settings of the submit filter.", SUBMIT_CONF, readable=False)
@path_option(
    "--log",
    "FILE",
    "File with the daemon's log, if it does not go to systemd's journal.",
    None,
    readable=False,
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write the report as a .tar.gz archive, which only its owner can read (mode 0600).",
)
@click.option(
    "--users", is_flag=True, help="Show user names. Default: user1, user2 and so on for people."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@socket_option
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    config: Path,
    submit_conf: Path,
    log: Path | None,
    out: Path | None,
    users: bool,
    as_json: bool,
    path: str,
) -> None:
    """Gather what a report of a problem needs, and print it.

    These are versions, settings, the results of `rtsched check`, `slurm check` or `condor check`
    and `status`, the daemon's metrics, database and last log lines, and the owners and permissions
    of files. Passwords, tokens, unknown settings, user names, and names and comments of jobs are
    left out; what was left out of the settings is listed. Nothing is changed. What cannot be read
    is reported in its section. Run it as root or as the daemon's user, otherwise some sections are
    incomplete.
    """
    from rtsched.cli.diagnosis import Places, gathered

    if out is not None:
        refuse_unwritable(out, "--out", is_directory=False)
    if ctx.get_parameter_source("path") is ParameterSource.DEFAULT:
        path = ""
    sections = gathered(Places(config, submit_conf, path, log), users)
    if as_json:
        click.echo(as_object(sections))
    else:
        show(console(), sections)
    if out is not None:
        write_file(out, archive(sections), 0o600)
        say(f"rtsched: the report is in {out}")
    say(f"rtsched: {HINT}")


def as_object(sections: Sequence[Section]) -> str:
    """Return a report as one JSON object: what each section holds, by its title."""
    import msgspec

    found: dict[str, Any] = {each.title: each.content() for each in sections}
    return msgspec.json.format(msgspec.json.encode(found)).decode()


def show(out: Console, sections: Sequence[Section]) -> None:
    """Print a report."""
    for number, section in enumerate(sections):
        if number:
            out.print()
        indented(out, section.title, 0, "bold")
        if section.error:
            indented(out, f"not available: {section.error}", 2, "yellow")
        width = max(map(len, section.facts), default=0) + 4
        for name, value in section.facts.items():
            indented(out, value, width, lead=f"  {name}")
        for line in section.lines:
            indented(out, line, 2)
        for left_out in section.left_out:
            indented(out, f"left out: {left_out}", 2, "dim")


def archive(sections: Sequence[Section]) -> bytes:
    """Return a .tar.gz archive with a report as text and as JSON."""
    from rich.console import Console

    text = io.StringIO()
    show(Console(file=text, width=100, highlight=False), sections)
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        for name, content in (
            ("report.txt", text.getvalue()),
            ("report.json", as_object(sections)),
        ):
            data = content.encode()
            entry = tarfile.TarInfo(f"rtsched-doctor/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            tar.addfile(entry, io.BytesIO(data))
    return held.getvalue()
