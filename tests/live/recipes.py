"""The page of workflow tools: its files and commands, run on a cluster that has these tools."""

import json
from pathlib import Path
from typing import Any

from guide import blocks
from testbed import Box
from testbed.tools import VENV

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
HOME = "/home/alice"
# Snakemake looks at its jobs after 40 s at first, and then every 40 s or more.
PROFILE = {
    f"{HOME}/profile/config.yaml": "slurm-init-seconds-before-status-checks: 2\n"
    "seconds-between-status-checks: 2\nlatency-wait: 10\n"
}
ENV = {
    "PATH": f"{VENV}/bin:/opt/rtsched/bin:/usr/local/bin:/usr/bin:/usr/sbin",
    "SNAKEMAKE_PROFILE": f"{HOME}/profile",
}


def followed(box: Box, section: str, timeout: float = 150) -> list[str]:
    """Run a section of the page; return what each block of commands printed, in order."""
    printed = []
    for block in blocks(PAGE):
        if block.section != section:
            continue
        if block.file:
            box.write({block.file: block.text})
            continue
        words = ["sh", "-eu", "-c", block.text]
        done = box.run(words, user=block.user, cwd=HOME, env=ENV, timeout=timeout, check=False)
        text = done.stdout + done.stderr
        assert (done.returncode != 0) == block.fails, f"{block.text}\n{text}"
        printed.append(text)
    return printed


def status(box: Box) -> dict[str, Any]:
    """Return what programs read of alice's promises."""
    report: dict[str, Any] = json.loads(
        box.run(["rtsched", "status", "--json"], user="alice", check=False).stdout
    )
    return report
