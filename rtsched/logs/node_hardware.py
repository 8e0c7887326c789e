"""Hardware of nodes, and which of them have what a job wants of each of its nodes.

What a job wants is written as options of sbatch, and so is part of a request for nodes (see
`rtsched.logs.node_requests`), such as `--mincpus=8 --gres=gpu:a:2`.

Source: manual page sbatch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.logs.slurm_text import gres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

MIB = 1 << 20

COUNTS = (
    "mincpus",
    "threads-per-core",
    "sockets-per-node",
    "cores-per-socket",
    "ntasks-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "tmp",
)
"""Options whose values are numbers; memory and disk in MiB."""

_MOST = 1 << 31
"""More of anything is not counted."""

OPTIONS = (*COUNTS, "gres")
"""Options that say what each node of a job must have."""


@dataclass(frozen=True, eq=False)
class Hardware:
    """What each of m nodes has.

    Attributes
    ----------
    cpus, threads, sockets : int64[m]
        Processors in all, of each core, and sockets.
    memory : int64[m]
        Bytes.
    disk : int64[m]
        MiB of local disk.
    gres : mapping of str to int64[m]
        By name, such as `gres/gpu:a`.
    """

    cpus: Integers
    threads: Integers
    sockets: Integers
    memory: Integers
    disk: Integers
    gres: Mapping[str, Integers]

    def __len__(self) -> int:
        return len(self.cpus)

    def __eq__(self, other: object) -> bool:
        """Return whether all nodes have the same."""
        if not isinstance(other, Hardware):
            return NotImplemented
        mine, theirs = self._columns(), other._columns()
        same = mine.keys() == theirs.keys()
        return same and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def _columns(self) -> dict[str, Integers]:
        own: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**own.pop("gres"), **own}

    def of(self, mask: Mask) -> Hardware:
        """Return that of some of the nodes, bool[m]."""
        some = {name: column[mask] for name, column in self.gres.items()}
        return Hardware(
            self.cpus[mask],
            self.threads[mask],
            self.sockets[mask],
            self.memory[mask],
            self.disk[mask],
            some,
        )

    @property
    def cores(self) -> Integers:
        """Cores of each node, int64[m]."""
        return self.cpus // np.maximum(self.threads, 1)

    def usable(self, threads: int) -> Integers:
        """Return the processors of a job that uses so many of each core, int64[m]; 0: all."""
        return self.cores * np.minimum(self.threads, threads) if threads else self.cpus

    def amount(self, name: str) -> Integers:
        """Return how much of a generic resource each node has, int64[m]."""
        return self.gres.get(name, np.zeros(len(self), np.int64))

    def having(self, wishes: Mapping[str, str]) -> Mask:
        """Return which nodes have what a job wants of each, bool[m].

        Parameters
        ----------
        wishes : mapping of str to str
            Values of `OPTIONS`. None has what cannot be read.
        """
        given = {name: value for name, value in wishes.items() if name in COUNTS}
        if not all(
            value.isascii() and value.isdigit() and len(value) < 13 for value in given.values()
        ):
            return np.zeros(len(self), np.bool_)
        want = {name: min(int(given.get(name, 0)), _MOST) for name in COUNTS}
        tasks, threads = want["ntasks-per-node"], want["threads-per-core"]
        mask = (
            (self.usable(threads) >= want["mincpus"])
            & (self.threads >= threads)
            & (self.sockets >= want["sockets-per-node"])
            & (self.cores >= want["cores-per-socket"] * self.sockets)
            & (self.memory >= want["mem"] * MIB)
            & (self.memory >= want["mem-per-cpu"] * MIB * self.cpus)
            & (self.memory >= want["mem-per-gpu"] * MIB * self.amount("gres/gpu"))
            & (self.disk >= want["tmp"])
        )
        if want["ntasks-per-core"]:
            mask &= self.cores * want["ntasks-per-core"] >= tasks
        if want["ntasks-per-socket"]:
            mask &= self.sockets * want["ntasks-per-socket"] >= tasks
        for name, amount in gres(wishes.get("gres", "")).items():
            mask &= self.amount(name) >= amount
        return mask
