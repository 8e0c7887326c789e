"""Slurm with nodes that jobs share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

from on_slurm import FILTER, LICENSE, SETTINGS, Slurm
from shared_nodes import CORES, KINDS
from stream import Extent
from testbed import Cluster, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from measure import Row
    from shared_nodes import Hardware
    from workload_driver import Setup

LICENSES = 12
"""How many there are: fewer than best-effort jobs ask for at once."""

MIXED = {
    "SchedulerParameters": f"{SETTINGS['SchedulerParameters']},bf_window_linear=30,bf_licenses",
    "Licenses": f"{LICENSE}:{LICENSES}",
    "GresTypes": "gpu",
    "AccountingStorageTRES": "gres/gpu",
    "DefMemPerCPU": "1000",
    "SelectTypeParameters": "CR_Core_Memory",
}


class SharedSlurm(Slurm):
    """A cluster of 20 nodes of 16 cores, 4 with GPUs and 4 with large memory, and licences."""

    planners: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "edf": (*["rigid"] * 6, "moldable", "array")
    }
    full: ClassVar[Extent] = Extent(480, 9, (2, 3, 4), (1.3, 2.5), 90, (), 240_000)
    licenses: ClassVar[int] = LICENSES
    reduced: ClassVar[Extent] = Extent(90, 5, (1,), (1.3, 2.4), 45, (), 60_000)

    @classmethod
    @contextmanager
    def up(cls, setup: Setup) -> Iterator[Self]:
        """Bring a cluster up."""
        options = SlurmOptions(
            **{kind: has.nodes for kind, has in KINDS.items()},
            hardware={kind: _hardware(has) for kind, has in KINDS.items()},
            settings=SETTINGS | MIXED,
            job_submit=("rtsched",) if setup.steered else (),
        )
        gpus = max(has.gpus for has in KINDS.values())
        gres = [
            f"NodeName={kind}[1-{has.nodes}] Name=gpu File=/srv/gpu[0-{has.gpus - 1}]"
            for kind, has in KINDS.items()
            if has.gpus
        ]
        conf = "\n".join(["AutoDetect=off", *gres, ""])
        files = {"/etc/rtsched/submit.conf": FILTER, "/etc/slurm/gres.conf": conf}
        files |= {f"/srv/gpu{number}": "" for number in range(gpus)}
        with Cluster("forky", options, software=setup.steered, files=files) as running:
            if setup.steered:
                running.start_daemon(setup.site, timeout=300)
            yield cls(running, setup)

    @staticmethod
    def rows(accounting: str) -> list[Row]:
        """Return the rows of what sacct printed, with cores in place of nodes.

        The tasks of an array with a deadline are parts of one job.
        """
        lines = accounting.splitlines()
        names = lines[0].split("\t")
        cells = [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]
        return [
            replace(row, nodes=int(cell["NCPUS"] or 0), **_of_array(row, cell["JobID"]))
            for row, cell in zip(Slurm.rows(accounting), cells, strict=True)
        ]

    def machine(self) -> str:
        """Return the nodes' lines of slurm.conf."""
        lines = [f"NodeName={kind}[1-{has.nodes}] {_hardware(has)}" for kind, has in KINDS.items()]
        return "\n".join([*lines, ""])


def _of_array(row: Row, name: str) -> dict[str, int]:
    """Return job and part of a task such as `12_3`, if its array has a deadline."""
    array, _, task = name.partition("_")
    if not row.name.startswith("d") or not task.isdigit():
        return {}
    return {"job": int(array), "part": int(task)}


def _hardware(has: Hardware) -> str:
    """Return what nodes of a kind have, as slurm.conf says it."""
    gres = f" Gres=gpu:{has.gpus}" if has.gpus else ""
    return f"CPUs={CORES} RealMemory={has.megabytes}{gres}"
