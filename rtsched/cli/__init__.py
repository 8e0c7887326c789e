"""The command line: modules of commands, imported when a command is used.

Every error of rtsched ends here: one sentence on standard error and a documented exit status.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from rtsched import __version__
from rtsched.cli.common import (
    Group,
    debug_option,
    log_to_stderr,
    one_thread_for_arrays,
    return_what_is_freed,
    sentences,
)
from rtsched.loading import loading

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["main"]

COMMANDS = {
    "replay": "Replay accounting logs under several policies and compare them.",
    "compare": "Compare policies over several replays, pair by pair.",
    "explain": "Explain why a job was rejected or waits, live or in a replay.",
    "serve": "Run the daemon that keeps promises on the live cluster.",
    "rest": "Answer queries over HTTP, for other hosts and programs.",
    "notices": "Notify users of changes to their promises.",
    "status": "Show the state of the daemon and your promises.",
    "board": "Print a link that opens the board in a browser.",
    "feasible": "Show which deadline a job could get now.",
    "when": "Show when jobs are estimated to start and end.",
    "take": "Submit a job with what was offered in place of its deadline.",
    "plan": "Print the plan behind all promises.",
    "cancel": "Give up the promise of a job.",
    "chunk": "Print the plan of a promised job, for use inside the job.",
    "slurm": "Prepare Slurm for rtsched, or check it.",
    "condor": "Prepare HTCondor for rtsched, or check it.",
    "doctor": "Gather what a report of a problem needs, without secrets.",
    "check": "Check a site.toml and show what it configures.",
    "plugins": "List installed plug-ins and their settings.",
    "calibrate": "Estimate node speeds, load costs and margins from a log.",
    "anonymise": "Write an accounting log without names, for others.",
    "reproduce": "Reproduce a paper's tables and figures next to the printed values.",
    "synth": "Write a synthetic workload as an SWF file.",
    "render": "Write the HTML report of a replay that was saved with --out.",
}
"""One line per command, here so that `rtsched --help` need not import them all."""

MODULES = {
    **dict.fromkeys(("serve", "rest", "notices"), "processes"),
    **dict.fromkeys(("status", "plan", "cancel", "board"), "promises"),
    **dict.fromkeys(("feasible", "take"), "feasible"),
    **dict.fromkeys(("compare", "render"), "compare"),
    **dict.fromkeys(("check", "plugins"), "check"),
    **dict.fromkeys(("anonymise", "synth"), "logs"),
}
"""Modules of several commands, each by its name there; any other has one, `command`."""

SILENT = frozenset(("board", "cancel", "chunk", "feasible", "status", "take", "when"))
"""Commands that only ask the daemon, and log nothing: they start without the library for that."""

SOLVING = frozenset(("calibrate",))
"""Commands that solve large systems of equations, on all processors."""


class Commands(Group):
    """A group that imports a command's module when it is used, and ends on errors politely."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the commands' names in the order in which an admin meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, imported now; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = MODULES.get(cmd_name, cmd_name)
        attribute = cmd_name if cmd_name in MODULES else "command"
        with loading():
            command: click.Command = getattr(import_module(f"rtsched.cli.{module}"), attribute)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing the commands, or an option."""
        from click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; every exception becomes a sentence and an exit status."""
        with sentences(ctx):
            return super().invoke(ctx)


EPILOG = """\
\b
Exit status:
  0    success
  1    findings: a plug-in failed, --strict met unusable records, a check failed, a no
  2    wrong usage, configuration or input
  3    the batch system did not answer
  70   an internal error of rtsched
  130  interrupted
  141  output pipe closed early
"""


@click.command(
    cls=Commands,
    epilog=EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="rtsched")
@debug_option
@click.pass_context
def main(ctx: click.Context) -> None:
    """Try scheduling policies on a site's own logs, and run them on its live cluster.

    `rtsched replay LOG`, and then `rtsched explain JOB`, need no daemon and no root, and change
    nothing. On a live Slurm or HTCondor, `rtsched serve` is the daemon; users query it with
    `status`, `feasible` and `explain`, admins prepare them with `rtsched slurm` and `rtsched
    condor`.
    """
    if ctx.invoked_subcommand not in SILENT:
        log_to_stderr()
    if ctx.invoked_subcommand not in SOLVING:
        one_thread_for_arrays()
    return_what_is_freed()
