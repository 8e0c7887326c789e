"""The names of options as users write them: Slurm makes one field of several of them.

Options in a script, and in variables such as SBATCH_HINT, are not in the command line: where it has
none of those that a field is made of, all are named.

Source: manual page sbatch.
"""

from __future__ import annotations

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
    _EXTRA_NODE_INFO: ("-B", "--extra-node-info"),
    "--nodes": ("-N", "--nodes"),
    "--core-spec": ("-S", "--core-spec"),
    "--cpus-per-task": ("-c", "--cpus-per-task"),
    "--ntasks": ("-n", "--ntasks"),
}
"""Options that have a short form, which its value may follow without a space."""


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
    words = [word.partition("=")[0] for word in line.split()]
    for option in options:
        short, long = _SPELLINGS.get(option, ("", option))
        if long in words or (short and any(word.startswith(short) for word in words)):
            return option
    return " or ".join(options)
