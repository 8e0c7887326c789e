"""The names of options as users write them: Slurm makes one field of several of them.

Options in a script, and in variables such as SBATCH_HINT, are not in the command line: where it has
none of those that a field is made of, all are named.

Source: manual page sbatch.
"""

from __future__ import annotations

import re

_HINT = "--hint"
_EXTRA_NODE_INFO = "-B"

WRITTEN: dict[str, tuple[str, ...]] = {
    "threads-per-core": ("--threads-per-core", _HINT, _EXTRA_NODE_INFO),
    "cores-per-socket": ("--cores-per-socket", _EXTRA_NODE_INFO, _HINT),
    "sockets-per-node": ("--sockets-per-node", _EXTRA_NODE_INFO),
    "ntasks-per-core": ("--ntasks-per-core", _HINT),
    "nodes-list": ("--nodes",),
    "core-spec": ("--core-spec", "--thread-spec"),
    "cluster-constraint": ("--cluster-constraint",),
    "mem-per-cpu": ("--mem-per-cpu",),
    "mincpus": ("--mincpus", "--cpus-per-task", "--ntasks"),
}
"""Options that a field is made of, where these are not one of the same name."""

_SPELLINGS = {
    _EXTRA_NODE_INFO: r"(?:-B|--extra-node-info\b)",
    "--nodes": r"(?:-N|--nodes\b)",
    "--core-spec": r"(?:-S|--core-spec\b)",
    "--cpus-per-task": r"(?:-c|--cpus-per-task\b)",
    "--ntasks": r"(?:-n|--ntasks(?![\w-]))",
}


def written(name: str, line: str) -> str:
    """Return an option as its user wrote it, or the options that it may have been.

    Parameters
    ----------
    name : str
        Of the field, such as `threads-per-core`.
    line : str
        The command line; empty: not known.
    """
    options = WRITTEN.get(name, (f"--{name}",))
    given = [
        one for one in options if re.search(rf"(?:^|\s){_SPELLINGS.get(one, re.escape(one))}", line)
    ]
    return given[0] if given else " or ".join(options)
