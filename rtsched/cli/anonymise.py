"""`rtsched anonymise LOG`: an accounting log for people outside the site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import Exit, complain, debug_option, refuse_unwritable
from rtsched.cli.options import columns_option
from rtsched.errors import ConfigError, OutputError
from rtsched.logs.anonymous.pseudonyms import KEEPABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.logs.anonymous import Anonymised, Pseudonyms
    from rtsched.model.log import Skipped


@click.command("anonymise")
@click.argument("words", metavar="LOG | NAME...", nargs=-1, required=True)
@click.option(
    "--key",
    "key_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="The site's key, made if there is no such file. FILE.names lists the names that were "
    "replaced. Keep both to yourself.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The log for others; compressed with gzip if its name ends in .gz.",
)
@click.option(
    "--keep",
    metavar="KIND",
    type=click.Choice(KEEPABLE),
    multiple=True,
    help=f"Keep names of this kind: {', '.join(KEEPABLE)}. May be given several times.",
)
@columns_option
@click.option("--delimiter", help="What separates the fields of `sacct` text.")
@click.option("--format", "format_", metavar="NAME", help="The log's format; default: by content.")
@click.option(
    "--reverse", is_flag=True, help="Write no log: print which names NAME... stand for at the site."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    key_path: Path,
    output: Path | None,
    reverse: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write LOG with pseudonyms in place of names, for people outside the site.

    Users, accounts, job names, partitions, nodes and all other names are replaced by keyed hashes;
    what no replay needs, such as comments, paths and arguments of programs, is left out. A replay
    of the new log gives the same figures. Job numbers, times and sizes stay.

    The same key gives the same pseudonyms, so that several logs fit together. With --reverse the
    site can look up what a pseudonym stands for.
    """
    from rtsched.logs.anonymous import KeyFile

    keys = KeyFile(key_path)
    if reverse:
        _reverse(ctx, keys.names(required=True), words, as_json)
        return
    if len(words) > 1:
        raise ConfigError([f"give one log, not {len(words)}; the same key fits others too"])
    log, output = Path(words[0]), _checked(output, words[0], keys)
    done, names = _write(log, output, keys, given)
    shown = _as_object(done, names, output)
    click.echo(json.dumps(shown, indent=2) if as_json else _sentences(shown))


def _checked(output: Path | None, log: str, keys: Any) -> Path:
    """Return where the log for others goes, if that can be."""
    if output is None:
        raise ConfigError(["name the log for others with -o FILE"])
    refuse_unwritable(output, "-o", is_directory=False, replaces=True)
    if output.exists():
        for other in (Path(log), keys.path, keys.names_path):
            if other.exists() and output.samefile(other):
                raise OutputError(output, f"this is {other} itself; choose another with -o")
    return output


def _write(
    log: Path, output: Path, keys: Any, given: Mapping[str, Any]
) -> tuple[Anonymised, Pseudonyms]:
    from rtsched.logs.anonymous import Pseudonyms, anonymise
    from rtsched.logs.readers import ReadOptions

    known = keys.names()
    names = Pseudonyms(keys.key(make=True), known, frozenset(given["keep"]))
    options = ReadOptions(
        format=given["format_"], delimiter=given["delimiter"], columns=given["columns"]
    )
    done = anonymise(log, output, names, options, before_release=lambda: keys.add(names.new))
    return done, names


def _reverse(ctx: click.Context, names: Any, wanted: tuple[str, ...], as_json: bool) -> None:
    """Print the names behind pseudonyms; status 1 if one is not known."""
    from rtsched.report.wording import visible

    found = {each.pseudonym: each for each in names if each.pseudonym in wanted}
    unknown = [word for word in wanted if word not in found]
    if as_json:
        rows = {word: each._asdict() for word, each in found.items()}
        click.echo(json.dumps({"names": list(rows.values()), "unknown": unknown}, indent=2))
    else:
        for word in wanted:
            if word in found:
                click.echo(f"{word}  {found[word].kind}  {visible(found[word].name)}")
    for word in unknown:
        complain("warning", f"{word}: no name was replaced by this with this key")
    ctx.exit(Exit.FINDINGS if unknown else Exit.GOOD)


def _as_object(done: Anonymised, names: Pseudonyms, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "format": done.format,
        "records": done.records,
        "names": names.counts(),
        "kept": sorted(names.kept),
        "assumptions": list(done.assumptions),
        "columns_left_out": list(done.columns_left_out),
        "left_out": _reasons(done.skipped),
        "blanked": _reasons(done.blanked),
    }


def _reasons(skipped: Skipped) -> dict[str, dict[str, Any]]:
    return {
        reason: {"records": times, "first": skipped.first[reason]}
        for reason, times in skipped.count.items()
    }


def _sentences(shown: Mapping[str, Any]) -> str:
    """Return what was done in lines for people."""
    from rtsched.report.wording import visible
    from rtsched.text import counted

    lines = [f"{counted(shown['records'], 'record')} ({shown['format']}): {shown['output']}"]
    names = ", ".join(f"{kind} {count:,}" for kind, count in shown["names"].items())
    lines.append(f"names replaced: {names or 'none'}")
    if shown["kept"]:
        lines.append(f"names kept: {', '.join(shown['kept'])}")
    lines += shown["assumptions"]
    if shown["columns_left_out"]:
        lines.append(f"columns left out: {', '.join(shown['columns_left_out'])}")
    for word, key in (("record", "left_out"), ("value", "blanked")):
        for reason, entry in shown[key].items():
            count = counted(entry["records"], word)
            lines.append(f"{count} left out: {reason} (first at {entry['first']})")
    return "\n".join(visible(line) for line in lines)
