"""`rtsched synth MODEL`: a synthetic workload as an SWF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import Group, debug_option, refuse_unwritable
from rtsched.cli.options import from_options, options_of
from rtsched.replay.synth import GENERATORS
from rtsched.text import counted

if TYPE_CHECKING:
    from rtsched.replay.synth import Generator


class Models(Group):
    """One command per generator, made from its settings."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the generators."""
        return list(GENERATORS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of one generator; None if there is none of this name."""
        kind = GENERATORS.get(cmd_name)
        return None if kind is None else _command_of(kind)


@click.command("synth", cls=Models, subcommand_metavar="MODEL [OPTIONS] -o FILE")
@debug_option
def command() -> None:
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
