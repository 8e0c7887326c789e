"""`rtsched doctor`: what a bug report needs, without secrets, in sections.

Each section is gathered by itself, and says why it cannot be.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import tarfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from rtsched.cli.asking import socket_option
from rtsched.cli.common import (
    SITE,
    console,
    debug_option,
    indented,
    path_option,
    refuse_unwritable,
    say,
)
from rtsched.cli.ready import SUBMIT_CONF, write_file
from rtsched.cli.redaction import Redactor, shown_settings
from rtsched.errors import InputError, RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from rtsched.adapters.readiness import CheckResult
    from rtsched.daemon.settings import LiveSite


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
    if out is not None:
        refuse_unwritable(out, "--out", is_directory=False)
    if ctx.get_parameter_source("path") is ParameterSource.DEFAULT:
        path = ""
    sections = gathered(Paths(config, submit_conf, path, log), users)
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


LIBRARIES = (
    *("click", "msgspec", "numpy", "pluggy", "rich", "structlog"),
    *("numba", "pyarrow", "prometheus-client", "htcondor", "pyslurm", "jinja2", "plotly"),
)
SECONDS = 10.0
"""How long a program may take that is asked for a version or for the log."""
LINES = 50
LOG_BYTES = 1 << 18
SETTINGS_BYTES = 1 << 20
ERROR_CHARACTERS = 2000

LOG_TEXTS = frozenset(
    (
        *("timestamp", "level", "event", "error", "problem", "cause", "remedy", "why", "answer"),
        *("plugin", "hook", "kind", "outcome", "verdict", "codes", "setting", "state", "standing"),
        *("file", "path", "group", "job"),
    )
)
"""Fields of the daemon's log whose texts are shown; `job` is the batch system's number."""
LOG_NUMBERS = frozenset(("uid", "filter"))
"""Fields with numbers that are not shown."""
FRAMES = ("Traceback", "File ", "Current thread", "Thread 0x", "Fatal Python", "rtsched.service")
"""How lines begin that are no events and are shown: of Python's tracebacks, and of systemd."""


class Paths(NamedTuple):
    """Where a site has what the report is about; an empty socket: where the settings say."""

    config: Path
    submit_conf: Path
    socket: str
    log: Path | None


@dataclass
class Section:
    """A part of the report."""

    title: str
    error: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """Return what it holds, without what is empty."""
        return {name: value for name, value in vars(self).items() if value and name != "title"}

    def redacted(self, redactor: Redactor) -> Section:
        """Return it fit for others."""
        return Section(
            self.title,
            redactor.text(self.error),
            {redactor.text(name): redactor.text(value) for name, value in self.facts.items()},
            [redactor.text(line) for line in self.lines],
            [redactor.text(line) for line in self.left_out],
        )


def gathered(paths: Paths, users: bool) -> list[Section]:
    """Return the report, without secrets and, unless `users`, without names of people.

    Parameters
    ----------
    paths : Paths
        Where everything is.
    users : bool
        Whether user names may be shown.
    """
    site, wrong = _settings(paths.config)
    redactor = Redactor(users, [*(site.daemon.filters or ()), site.slurm.user, site.condor.user])
    for name in site.daemon.admins:
        redactor.knows(name)
    condor = site.daemon.system == "condor"
    if not paths.socket:
        paths = paths._replace(socket=str(Path(site.daemon.run) / "query.sock"))
    gather: dict[str, Callable[[Section], None]] = {
        "versions": lambda part: _versions(part, site),
        "plug-ins": _plugins,
        "site.toml": lambda part: _site(part, paths.config, redactor),
        "check": lambda part: _check(part, paths.config, wrong),
        f"{site.daemon.system} check": lambda part: _ready(part, paths, condor),
        "daemon": lambda part: _daemon(part, paths.socket, redactor),
        "database": lambda part: _database(part, Path(site.daemon.database)),
        "submit.conf": lambda part: _submit(part, paths.submit_conf, redactor),
        "files": lambda part: _files(part, paths, site),
        "log": lambda part: _log(part, paths.log),
    }
    sections = []
    for title, fill in gather.items():
        section = Section(title)
        try:
            fill(section)
        except Exception as error:  # whatever fails, the other sections are needed all the more
            section.error = _sentence(error)
        sections.append(section)
    return [section.redacted(redactor) for section in sections]


def _sentence(error: Exception) -> str:
    """Return what went wrong, on one line."""
    if isinstance(error, RtschedError):
        return "; ".join(str(error).splitlines())[:ERROR_CHARACTERS]
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}"
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]


def _settings(config: Path) -> tuple[LiveSite, str]:
    """Return the site's settings, and what is wrong with them; then those that can be read."""
    import msgspec

    from rtsched.cli.ready import site_settings
    from rtsched.daemon.settings import LiveSite

    try:
        _regular(config)
        site, wrong = site_settings(config)
    except Exception as error:
        return LiveSite(), _sentence(error)
    if not os.path.exists(config) and shutil.which("condor_version") and not shutil.which("sinfo"):
        daemon = msgspec.structs.replace(site.daemon, system="condor")
        site = msgspec.structs.replace(site, daemon=daemon)
        return site, "\n".join(each.what for each in wrong)
    return (_readable(config) if wrong else site), "\n".join(each.what for each in wrong)


def _readable(config: Path) -> LiveSite:
    """Return what the tables of the daemon and the batch systems say, without their mistakes."""
    import tomllib

    import msgspec

    from rtsched.daemon.settings import LiveSite

    try:
        values = tomllib.loads(_read(config, SETTINGS_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return LiveSite()
    tables = {}
    for name in ("daemon", "slurm", "condor"):
        usual = getattr(LiveSite(), name)
        given = values.get(name)
        good = {}
        for key, value in given.items() if isinstance(given, dict) else ():
            with suppress(msgspec.ValidationError):
                one = msgspec.convert({key: value}, type(usual))
                good[key] = getattr(one, key)
        tables[name] = msgspec.structs.replace(usual, **good)
    return msgspec.structs.replace(LiveSite(), **tables)


def _regular(path: Path) -> None:
    """Refuse what may keep a reader waiting, such as a pipe; a file that is not there is none."""
    if path.exists() and not path.is_file():
        raise InputError(path, "is not a regular file")


def _read(path: Path, limit: int) -> bytes:
    """Return the beginning of a file."""
    _regular(path)
    with path.open("rb") as file:
        return file.read(limit)


# --- sections -------------------------------------------------------------------------------------


def _versions(part: Section, site: LiveSite) -> None:
    import platform
    import sqlite3
    import sys
    from importlib.metadata import PackageNotFoundError, version

    from rtsched import __version__

    part.facts["rtsched"] = __version__
    part.facts["Python"] = f"{platform.python_version()} ({sys.executable})"
    part.facts["SQLite"] = sqlite3.sqlite_version
    for name in LIBRARIES:
        try:
            part.facts[name] = version(name)
        except PackageNotFoundError:
            part.facts[name] = "not installed"
    programs = {
        "Slurm": [str(Path(site.slurm.bin_dir) / "sinfo"), "--version"],
        "HTCondor": ["condor_version"],
    }
    for name, words in programs.items():
        part.facts[name] = _answer(words)
    try:
        part.facts["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError as error:
        part.facts["distribution"] = _sentence(error)
    part.facts["kernel"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    part.facts["processors"] = str(os.cpu_count())


def _answer(words: list[str]) -> str:
    """Return the first line that a program prints, or why there is none."""
    from rtsched.adapters.programs import run_program

    try:
        done = run_program(words, SECONDS)
    except subprocess.TimeoutExpired:
        return f"{words[0]} did not answer within {SECONDS:g} s"
    except OSError as error:
        return f"{words[0]}: {error.strerror}"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else f"{words[0]} printed nothing (status {done.returncode})"


def _plugins(part: Section) -> None:
    from rtsched.core.plugins import discover

    for name, found in discover().items():
        broken = f", cannot be used: {found.cause}" if found.cause else ""
        part.facts[name] = f"{found.distribution} {found.version}{broken}"


def _site(part: Section, config: Path, redactor: Redactor) -> None:
    import tomllib

    from rtsched.cli.common import toml_text

    data = _read(config, SETTINGS_BYTES)
    try:
        values = tomllib.loads(data.decode())
    except ValueError as error:  # its text names the place, never what is there
        raise InputError(config, f"is not TOML: {error}") from error
    shown, part.left_out = _with_plugins(values, redactor)
    part.facts = {path: toml_text(_plain(value)) for path, value in shown}


def _with_plugins(
    values: dict[str, Any], redactor: Redactor
) -> tuple[list[tuple[str, Any]], list[str]]:
    """Return the settings shown and those left out; plug-ins' by what each plug-in has."""
    import msgspec

    from rtsched.core.plugins import discover
    from rtsched.daemon.settings import LiveSite

    tables: list[tuple[str, Any]] = [("", values)]
    policies = values.get("policy")
    if isinstance(policies, dict):
        tables += [(f"policy.{name}.", policy) for name, policy in policies.items()]
    own: list[tuple[str, Any, Any]] = []
    for prefix, table in tables:
        entries = table.get("plugin") if isinstance(table, dict) else None
        for at, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict) and isinstance(entry.get("settings"), dict):
                place = f"{prefix}plugin[{at}].settings"
                own.append((place, entry.get("name"), entry.pop("settings")))
    shown, left_out = shown_settings(values, msgspec.json.schema(LiveSite), redactor)
    found = discover()
    for place, name, settings in own:
        entry = found.get(name) if isinstance(name, str) else None
        usable = entry is not None and entry.plugin is not None
        schema = msgspec.json.schema(entry.config) if entry is not None and usable else {}
        inner = {"properties": {"settings": schema}, "$defs": schema.get("$defs", {})}
        some, others = shown_settings({"settings": settings}, inner, redactor)
        stem = place.removesuffix("settings")
        shown += [(stem + path, value) for path, value in some]
        left_out += [stem + text for text in others]
    return shown, left_out


def _plain(value: Any) -> Any:
    """Return a value that can be shown as TOML: dates as texts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _check(part: Section, config: Path, wrong: str) -> None:
    part.lines = wrong.splitlines() or [f"{config}: no errors"]


def _ready(part: Section, paths: Paths, condor: bool) -> None:
    _regular(paths.config)
    _regular(paths.submit_conf)
    part.lines = [
        f"{each.state}: {each.what}" + (f" ({each.remedy})" if each.remedy else "")
        for each in (_condor_check(paths) if condor else _slurm_check(paths))
    ]


def _slurm_check(paths: Paths) -> Iterator[CheckResult]:
    from rtsched.adapters.slurm.setup import findings
    from rtsched.cli.slurm import default_slurm_conf, looked

    setup, found, _ = looked(default_slurm_conf(), paths.config, paths.submit_conf)
    yield from (*found, *findings(setup))


def _condor_check(paths: Paths) -> Iterator[CheckResult]:
    from rtsched.adapters.condor.setup import findings
    from rtsched.cli.condor import looked

    setup, found = looked(None, paths.config, paths.submit_conf, (), None)
    yield from (*found, *findings(setup))


def _daemon(part: Section, socket: str, redactor: Redactor) -> None:
    from rtsched.cli.promises import MODES, daemon_facts
    from rtsched.daemon.query_client import ask
    from rtsched.daemon.questions import Status, StatusReport

    report: StatusReport = ask(Status(metrics=True), socket)
    for promise in report.promises:
        redactor.knows(promise.user)
    part.facts["daemon"] = f"rtsched {report.version} on {report.system}{MODES[report.mode]}"
    part.facts |= dict(daemon_facts(report))
    part.lines = [f"problem: {problem}" for problem in report.problems]
    metrics = report.metrics.splitlines()
    part.lines += [line for line in metrics if line and not line.startswith("#")]
    if not metrics:
        part.lines.append("no metrics: the daemon has none, or this user is not an admin")


def _database(part: Section, path: Path) -> None:
    import sqlite3
    from contextlib import closing
    from urllib.parse import quote

    from rtsched.daemon.database import migrations, sentence

    part.facts["file"] = str(path)
    status = path.stat()
    part.facts["size"] = f"{status.st_size:,} bytes"
    for ending in ("-wal", "-shm", "-journal"):
        beside = path.with_name(path.name + ending)
        if beside.exists():
            part.facts[f"size of {ending}"] = f"{beside.stat().st_size:,} bytes"
    disk = shutil.disk_usage(path.parent)
    part.facts["free on its disk"] = f"{disk.free:,} of {disk.total:,} bytes"
    # Without a write-ahead log nobody has it open, and nothing needs to be made beside it.
    unused = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{unused}", uri=True)) as base:
            for name in ("user_version", "page_count", "freelist_count"):
                (value,) = base.execute(f"PRAGMA {name}").fetchone()
                part.facts[name.replace("_", " ")] = str(value)
    except sqlite3.Error as error:
        part.error = f"{path}: {sentence(error)}"
        return
    part.facts["schema"] = f"{part.facts.pop('user version')}, newest known {migrations()[-1][0]}"


def _submit(part: Section, path: Path, redactor: Redactor) -> None:
    from rtsched.adapters.condor import setup as condor
    from rtsched.adapters.readiness import submit_settings
    from rtsched.adapters.slurm import setup as slurm

    _read(path, 1)
    for name, value in submit_settings(path).items():
        if name in slurm.SUBMIT_KEYS | condor.SUBMIT_KEYS:
            part.facts[name] = value
        elif value:
            redactor.hide(value, secret=True)
            part.left_out.append(f"{name} (not a known setting)")
        else:  # perhaps a value that stands there by itself
            redactor.hide(name, secret=True)
            part.left_out.append("a line without a setting")
    if not part.facts and not part.left_out:
        part.lines = ["no settings: all have their defaults"]


def _files(part: Section, paths: Paths, site: LiveSite) -> None:
    run, database = Path(site.daemon.run), Path(site.daemon.database)
    files = [paths.config, paths.submit_conf, run, run / "submit.sock", run / "query.sock"]
    files += [Path(paths.socket), run / "promised_jobs", database.parent, database]
    if site.daemon.system == "condor":
        files += [Path(site.condor.table)]
    elif site.slurm.memory:
        files += [Path(site.slurm.memory)]
    files += [paths.log] if paths.log is not None else []
    for path in dict.fromkeys(files):
        try:
            part.facts[str(path)] = _permissions(path.lstat())
        except OSError as error:
            part.facts[str(path)] = error.strerror or str(error)


def _permissions(status: os.stat_result) -> str:
    import grp
    import pwd

    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    changed = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(status.st_mtime))
    mode = stat.filemode(status.st_mode)
    return f"{mode} {owner}:{group} {status.st_size:,} bytes, {changed} UTC"


# --- log ------------------------------------------------------------------------------------------


def _log(part: Section, path: Path | None) -> None:
    part.facts["from"] = "systemd's journal" if path is None else str(path)
    if path is not None:
        text = _end_of(path)
    else:
        words = ["journalctl", "--unit=rtsched", f"--lines={LINES}", "--output=cat", "--no-pager"]
        text = _journal(words)
    lines = [line for line in text.splitlines() if line.strip()][-LINES:]
    shown = [_log_line(line) for line in lines]
    part.lines = [line for line in shown if line]
    if missing := len(shown) - len(part.lines):
        part.left_out.append(f"lines that are not events of the daemon: {missing}")
    if not lines:
        part.lines = ["no lines"]


def _end_of(path: Path) -> str:
    """Return the end of a log file."""
    _regular(path)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LOG_BYTES, 0))
        return file.read(LOG_BYTES).decode("utf-8", "replace")


def _journal(words: list[str]) -> str:
    from rtsched.adapters.programs import run_program

    try:
        done = run_program(words, SECONDS)
    except subprocess.TimeoutExpired as error:
        raise RtschedError(f"journalctl did not answer within {SECONDS:g} s") from error
    except OSError as error:
        text = f"journalctl: {error.strerror}; if the log is a file, name it with --log"
        raise RtschedError(text) from error
    if done.returncode:
        complaint = " ".join(done.stderr.split())
        raise RtschedError(f"journalctl failed (status {done.returncode}): {complaint}")
    return done.stdout


def _log_line(line: str) -> str:
    """Return what is shown of a line of the log; empty: nothing."""
    import msgspec

    try:
        event = msgspec.json.decode(line.encode("utf-8", "replace"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        event = None
    if not isinstance(event, dict):
        return line if line.lstrip().startswith(FRAMES) else ""
    return " ".join(f"{name}={value}" for name, value in _fields(event).items())


def _fields(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of an event that are shown."""
    shown = {}
    for name, value in event.items():
        if name == "exception":
            shown[name] = _traceback(str(value))
        elif name in LOG_TEXTS:
            shown[name] = str(value)[:ERROR_CHARACTERS]
        elif isinstance(value, bool | int | float) and name not in LOG_NUMBERS:
            shown[name] = str(value)
    return shown


def _traceback(text: str) -> str:
    """Return the type of an exception and where it was raised, innermost first, without its words.

    Those may quote a job.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    frames = [line for line in lines if line.startswith("File ")]
    kind = lines[-1].partition(":")[0] if lines else ""
    named = [kind] if kind.replace(".", "").isidentifier() else []
    return " < ".join([*named, *reversed(frames[-8:])])
