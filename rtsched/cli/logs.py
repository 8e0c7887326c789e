"""Logs written: `anonymise` one for people outside the site, or `synth` a workload as SWF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import Exit, Group, complain, debug_option, refuse_unwritable
from rtsched.cli.options import columns_option, from_options, options_of
from rtsched.errors import ConfigError, OutputError
from rtsched.logs.anonymous.pseudonyms import KEEPABLE
from rtsched.replay.synth import GENERATORS
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.logs.anonymous import Anonymised, Pseudonyms
    from rtsched.model.log import Skipped
    from rtsched.replay.synth import Generator


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
def anonymise(
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


class _Models(Group):
    """One command per generator, made from its settings."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the generators."""
        return list(GENERATORS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of one generator; None if there is none of this name."""
        kind = GENERATORS.get(cmd_name)
        return None if kind is None else _command_of(kind)


@click.command("synth", cls=_Models, subcommand_metavar="MODEL [OPTIONS] -o FILE")
@debug_option
def synth() -> None:
    """Write a synthetic workload as an SWF file, to be replayed like any log.

    Equal options give the same bytes. `rtsched synth MODEL --help` lists a model's settings.
    """


def _command_of(kind: type[Generator]) -> click.Command:
    @click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        required=True,
        help="SWF file; compressed with gzip if its name ends in .gz.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @debug_option
    def write(output: Path, as_json: bool, **given: Any) -> None:
        from rtsched.logs.swf import write as write_swf

        refuse_unwritable(output, "-o", is_directory=False)
        generator = from_options(kind, given)
        log = generator.log()
        write_swf(output, log.jobs, log.outcomes, cluster=log.cluster, header=generator.header())
        if as_json:
            made = {"output": str(output), "jobs": len(log.jobs), "nodes": generator.nodes}
            click.echo(json.dumps(made, indent=2))
            return
        click.echo(
            f"{counted(len(log.jobs), 'job')} on {counted(generator.nodes, 'node')}: {output}"
        )

    text = (kind.__doc__ or "").partition("References")[0].strip()
    return click.command(kind.name, help=text)(options_of(kind)(write))
