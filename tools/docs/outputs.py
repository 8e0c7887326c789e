"""Bring the terminal excerpts in hand-written pages up to date.

    python tools/docs/outputs.py            run the commands and rewrite what they print
    python tools/docs/outputs.py --check    say which excerpt is out of date; status 1 if any is

An excerpt is a fenced block `console`: a line `$ rtsched ...`, and what it prints. If its last line
is `...` it holds the output up to the first blank line. All commands run in one empty directory
that has the repository's `examples` in it, one after the other, each only once.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from installed import TOP

PAGES = (TOP / "README.md", TOP / "docs" / "tutorial.md")
BLOCK = re.compile(r"^```console\n\$ (rtsched [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CUT = "...\n"


class Excerpt(NamedTuple):
    """What a page says that a command prints."""

    page: Path
    command: str
    output: str


def excerpts() -> list[Excerpt]:
    """Return all excerpts in the order of the pages."""
    return [
        Excerpt(page, *found) for page in PAGES for found in BLOCK.findall(page.read_text("utf-8"))
    ]


class Terminal:
    """An empty directory in which commands are run, each only once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "examples").symlink_to(TOP / "examples")
        self._printed: dict[str, str] = {}

    def printed(self, command: str) -> str:
        """Return what a command prints, without blanks at the ends of lines."""
        if command not in self._printed:
            words = [sys.executable, "-m", *shlex.split(command)]
            environment = {**os.environ, "TZ": "UTC", "COLUMNS": "100", "NO_COLOR": "1"}
            done = subprocess.run(  # noqa: S603 - the commands of our own pages
                words,
                cwd=self.directory,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            lines = (done.stdout + done.stderr).splitlines()
            self._printed[command] = "".join(f"{line.rstrip()}\n" for line in lines)
        return self._printed[command]

    def shown(self, excerpt: Excerpt) -> str:
        """Return what should stand in an excerpt's block."""
        output = self.printed(excerpt.command)
        if excerpt.output.endswith(CUT):
            return output.partition("\n\n")[0] + f"\n{CUT}"
        return output


def update(terminal: Terminal) -> None:
    """Rewrite the excerpts of all pages."""
    for page in PAGES:
        text = page.read_text("utf-8")

        def block(match: re.Match[str], page: Path = page) -> str:
            output = terminal.shown(Excerpt(page, match[1], match[2]))
            return f"```console\n$ {match[1]}\n{output}```"

        page.write_text(BLOCK.sub(block, text), "utf-8")


def main(arguments: list[str]) -> int:
    """Update the pages, or with `--check` compare them, and return the exit status."""
    with tempfile.TemporaryDirectory() as directory:
        terminal = Terminal(Path(directory))
        if arguments != ["--check"]:
            update(terminal)
            return 0
        wrong = [each for each in excerpts() if each.output != terminal.shown(each)]
    for each in wrong:
        print(f"{each.page.relative_to(TOP)}: `{each.command}` prints something else")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
