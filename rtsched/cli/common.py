"""Exit statuses, errors, consoles, options and progress bars of all commands, and their process."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from rtsched import __version__
from rtsched.errors import MissingExtraError, OutputError, RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import msgspec
    from rich.console import Console
    from rich.progress import Progress


SITE = Path("/etc/rtsched/site.toml")
"""The settings of the site."""

KEPT = "rtsched-replay"
"""Directory in which `replay` keeps its results and `explain` and `render` look for them."""

_DEBUG = "rtsched.debug"
_WIDTH = 100


class Exit(IntEnum):
    """What the exit status says."""

    GOOD = 0
    FINDINGS = 1
    USAGE = 2
    UNANSWERED = 3
    DEFECT = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Partial(KeyboardInterrupt):
    """Ctrl-C in the middle: says which results are there already."""


class Group(click.Group):
    """A group of commands; one that there is not is named with the one that was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names, and the other words."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from rtsched.text import did_you_mean

            hint = did_you_mean(args[0], names)
            hint = hint[:1].upper() + hint[1:]
            ctx.fail(f"No such command {args[0]!r}. {hint}".rstrip())
        return super().resolve_command(ctx, args)


def _remember_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_DEBUG] = value or ctx.meta.get(_DEBUG, False)


debug_option: Callable[[Any], Any] = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_remember_debug,
    help="On errors, show the traceback as well.",
)


def path_option(
    name: str, metavar: str, text: str, default: Any, *, readable: bool = True
) -> Callable[[Any], Any]:
    """Return an option that names a file or a directory, which must be `readable` if it exists."""
    return click.option(
        name,
        metavar=metavar,
        type=click.Path(path_type=Path, readable=readable),
        default=default,
        show_default=not callable(default),
        help=text,
    )


def say(text: str) -> None:
    """Write a message for the person at the terminal to standard error."""
    click.echo(text, err=True)


def complain(kind: str, text: str) -> None:
    """Write an error or a warning to standard error, one line per line of it.

    It may quote a log: control characters are written out, never obeyed.
    """
    from rtsched.report.wording import visible

    for line in text.splitlines():
        say(f"rtsched: {kind}: {visible(line)}")


@contextmanager
def sentences(ctx: click.Context) -> Iterator[None]:
    """Turn every exception of the block into a sentence on standard error and an exit status."""
    try:
        yield
        sys.stdout.flush()
    except (click.exceptions.Exit, click.ClickException, click.Abort):
        raise
    except RtschedError as error:
        _end(ctx, str(error) or type(error).__name__, error.exit_status)
    except BrokenPipeError:
        _drop_output()
        ctx.exit(Exit.BROKEN_PIPE)
    except KeyboardInterrupt as error:
        also = f"; {error}" if isinstance(error, Partial) else ""
        _end(ctx, f"interrupted{also}", Exit.INTERRUPTED)
    except MemoryError:
        _end(ctx, "out of memory; replay a shorter part of the log, or on a larger machine", 2)
    except RuntimeError as error:
        if "cannot cache function" not in str(error):  # numba's words
            _defect(ctx, error)
        text = "set NUMBA_CACHE_DIR to a directory that this user can write to"
        _end(ctx, f"compiled code cannot be cached; {text}", Exit.USAGE)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            _defect(ctx, error)
        _drop_output()
        text = f"output cannot be written ({error.strerror}); free space or write it elsewhere"
        _end(ctx, text, Exit.USAGE)
    except Exception as error:  # the last resort: a user never sees a bare traceback
        _defect(ctx, error)


def _drop_output() -> None:
    """Drop what standard output still buffers: it must not fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _descriptor(sys.stdout))


def _defect(ctx: click.Context, error: Exception) -> None:
    """End with what a maintainer wants to know."""
    message = " ".join(str(error).split())
    _end(
        ctx,
        f"internal error in rtsched {__version__}: {type(error).__name__}: {message}; "
        "please report it with the output of the same command with --debug",
        Exit.DEFECT,
    )


def _end(ctx: click.Context, message: str, status: int) -> None:
    if ctx.meta.get(_DEBUG):
        traceback.print_exc()
    complain("error", message)
    ctx.exit(int(status))


def _descriptor(stream: Any) -> int:
    try:
        return int(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return 1


def console(*, stderr: bool = False) -> Console:
    """Return a console; where nobody watches it is 100 columns wide and writes no colour.

    Characters that the locale's encoding lacks are printed as question marks.
    """
    from io import TextIOWrapper

    from rich import console

    class Console(console.Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `sentences`, where rich would exit with 1 by itself."""
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _WIDTH
    return made


def indented(out: Console, text: str, columns: int, style: str = "", lead: str = "") -> None:
    """Print a text, wrapped, `columns` to the right of which `lead` takes the first ones.

    A number and its per cent sign stay on one line. Control characters are written out, never
    obeyed.
    """
    from textwrap import wrap

    from rich.text import Text

    from rtsched.report.wording import visible

    width = max(out.width - columns, 20)
    joined = visible(text).replace(" %", "\N{NO-BREAK SPACE}%")
    for wrapped in wrap(joined, width, break_on_hyphens=False) or [""]:
        line = wrapped.replace("\N{NO-BREAK SPACE}", " ")
        out.print(Text(f"{lead:<{columns}}{line}".rstrip(), style), soft_wrap=True)
        lead = ""


def require_page(what: str) -> None:
    """Refuse a page with figures that cannot be made, before the work that fills it.

    Raises
    ------
    MissingExtraError
        If a package is missing.
    """
    from importlib.util import find_spec

    for package in ("jinja2", "plotly"):
        if find_spec(package) is None:
            raise MissingExtraError(what, "report", f"{package} is not installed")


def refuse_unwritable(
    path: Path,
    option: str,
    *,
    is_directory: bool,
    replaces: bool = False,
    inputs: Iterable[Path | None] = (),
) -> None:
    """Refuse a place for results that cannot be written, before the work that fills it.

    Refused are `inputs` too, and where results take the place of a file, devices and pipes.
    """
    try:
        trouble = _trouble(path, inputs, is_directory=is_directory, replaces=replaces)
    except OSError as error:  # such as a name that is too long
        trouble = error.strerror or str(error)
    if trouble:
        raise OutputError(path, f"cannot be written ({trouble}); choose another with {option}")


def _trouble(
    path: Path, inputs: Iterable[Path | None], *, is_directory: bool, replaces: bool
) -> str:
    """Return why a place cannot be written; empty: it can."""
    above = path
    while not above.exists() and above != above.parent:
        above = above.parent
    if path.exists() and path.is_dir() != is_directory:
        return "it is a file" if is_directory else "it is a directory"
    if path.exists() and any(each and each.exists() and path.samefile(each) for each in inputs):
        return "the command reads this file"
    if replaces and path.exists() and not path.is_file():
        return "it is no regular file"
    if not is_directory and above not in {path, path.parent}:
        return "its directory does not exist"
    if above != path and not above.is_dir():
        return f"{above} is no directory"
    return "" if os.access(above, os.W_OK) else "permission denied"


class Setting(NamedTuple):
    """One setting as shown to people: what may stand there, what stands there by default."""

    name: str
    kind: str
    default: Any
    required: bool
    description: str


def settings_of(kind: type[msgspec.Struct]) -> list[Setting]:
    """Return the settings of a structure in their order, read from its JSON schema."""
    from rtsched.core.config import schema

    whole = schema(kind)
    definitions = whole.get("$defs", {})
    table = _resolved(whole, definitions)
    required = set(table.get("required", ()))
    return [
        Setting(
            name,
            _kind_text(entry, definitions),
            entry.get("default"),
            name in required,
            str(entry.get("description", "")),
        )
        for name, entry in table.get("properties", {}).items()
    ]


def _resolved(entry: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = entry.get("$ref")
    if reference is None:
        return entry
    found: Mapping[str, Any] = definitions[str(reference).rpartition("/")[2]]
    return found


_WORDS = {"integer": "int", "number": "float", "string": "text", "boolean": "bool", "null": "none"}
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def _kind_text(entry: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return a schema entry in words: `float > 0`, `arrival | deadline`, `list of text`."""
    entry = _resolved(entry, definitions)
    if "enum" in entry:
        return " | ".join(str(value) for value in entry["enum"])
    if "anyOf" in entry:
        return " | ".join(dict.fromkeys(_kind_text(each, definitions) for each in entry["anyOf"]))
    kind = str(entry.get("type", "anything"))
    if kind == "array" and "items" in entry:
        return f"list of {_kind_text(entry['items'], definitions)}"
    if kind == "object":
        return "table"
    bounds = " and ".join(f"{sign} {entry[key]}" for key, sign in _BOUNDS.items() if key in entry)
    return f"{_WORDS.get(kind, kind)} {bounds}".rstrip()


def toml_text(value: Any) -> str:
    """Return a value the way a TOML file writes it."""
    import msgspec

    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value).lower()
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {toml_text(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_text(each) for each in value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return msgspec.json.encode(value).decode()


def log_to_stderr() -> None:
    """Write events as `event key=value` lines to standard error; standard output is for results."""
    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


def return_what_is_freed() -> None:
    """Have every array of a megabyte or more go back to the system when it is freed.

    glibc does so from a size on that it raises to that of the largest array freed so far. After a
    log is read, all columns of its jobs would come from a heap that never shrinks, and blank ones
    would be written to before they are used. A size that is set stays. Other C libraries have no
    such call, or none that does anything.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


def one_thread_for_arrays() -> None:
    """Have numpy's linear algebra keep to one thread, unless the environment says how many.

    When it is imported it starts a thread, with its memory, per processor of the host: a hundred on
    a large head node, and where a login node limits its users' processes, an error. Processes that
    this one starts do the same.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


FIRST_LINE = 5
"""Seconds of a step after which its first line of progress is written."""


class ProgressBars:
    """Progress, step by step: a bar at a terminal, and elsewhere now and then a line.

    Lines come after 5, 10, 20 seconds of a step and so on, so that a short command writes none.
    """

    def __init__(self, wanted: bool) -> None:
        out = console(stderr=True)
        self._wanted = wanted
        self._progress = _bars(out) if wanted and out.is_terminal else None

    def __enter__(self) -> ProgressBars:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[float], None]]:
        """Show a step; its length is unknown until the yielded function tells a fraction."""
        if not self._wanted:
            yield lambda _fraction: None
            return
        bars = self._progress
        shown = _as_lines(name) if bars is None else _as_bar(bars, name)
        with shown as (advance, compiling), compiling_shown(compiling):
            yield advance


COMPILING = "{} (compiling, once)"
"""A step while numba compiles."""


Shown: TypeAlias = "tuple[Callable[[float], None], Callable[[bool], None]]"
"""What tells a fraction of a step that is shown, and what tells whether numba compiles."""


@contextmanager
def _as_bar(bars: Progress, name: str) -> Iterator[Shown]:
    """Show a step as a bar."""
    task = bars.add_task(name, total=None)

    def advance(fraction: float) -> None:
        bars.update(task, total=1.0, completed=fraction)

    def compiling(begun: bool) -> None:
        bars.update(task, description=COMPILING.format(name) if begun else name)

    yield advance, compiling
    advance(1.0)


@contextmanager
def _as_lines(name: str) -> Iterator[Shown]:
    """Show a step as lines of a log."""
    over, done, doing = threading.Event(), 0.0, name

    def advance(fraction: float) -> None:
        nonlocal done
        done = fraction

    def compiling(begun: bool) -> None:
        nonlocal doing
        doing = COMPILING.format(name) if begun else name

    def write() -> None:
        elapsed = seconds = FIRST_LINE
        while not over.wait(seconds):
            so_far = f", {100 * done:.0f} %" if done else ""
            say(f"rtsched: {doing}: {elapsed:g} s{so_far}")
            seconds, elapsed = elapsed, 2 * elapsed

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield advance, compiling
    finally:
        over.set()
        writer.join()


@contextmanager
def compiling_shown(show: Callable[[bool], None]) -> Iterator[None]:
    """Call `show` with True when numba begins to compile in this process, and False at its end.

    What it finds in its cache it does not compile.
    """
    from rtsched.replay.uncompiled import while_compiling

    depth = 0  # one compiled function has others compiled: only the outermost counts

    def begins(_module: str) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            show(True)

    def ends() -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            show(False)

    with while_compiling(begins, ends):
        yield


def _bars(out: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=out,
        transient=True,
    )
