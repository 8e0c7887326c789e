"""Slurm with nodes that jobs share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

from on_slurm import FILTER, SETTINGS, Slurm
from shared_nodes import CORES, KINDS
from stream import Extent
from testbed import Cluster, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measure import Row
    from shared_nodes import Hardware
    from workload_driver import Setup

MIXED = {
    "SchedulerParameters": f"{SETTINGS['SchedulerParameters']},bf_window_linear=30",
    "GresTypes": "gpu",
    "AccountingStorageTRES": "gres/gpu",
    "DefMemPerCPU": "1000",
    "SelectTypeParameters": "CR_Core_Memory",
}


class SharedSlurm(Slurm):
    """A cluster of 20 nodes of 16 cores, 4 with GPUs and 4 with large memory."""

    full: ClassVar[Extent] = Extent(480, 9, (2, 3, 4), (1.3, 2.5), 90, (), 240_000)
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
        """Return the rows of what sacct printed, with cores in place of nodes."""
        lines = accounting.splitlines()
        at = lines[0].split("\t").index("NCPUS")
        cores = [int(line.split("\t")[at] or 0) for line in lines[1:]]
        pairs = zip(Slurm.rows(accounting), cores, strict=True)
        return [replace(row, nodes=count) for row, count in pairs]

    def machine(self) -> str:
        """Return the nodes' lines of slurm.conf."""
        lines = [f"NodeName={kind}[1-{has.nodes}] {_hardware(has)}" for kind, has in KINDS.items()]
        return "\n".join([*lines, ""])


def _hardware(has: Hardware) -> str:
    """Return what nodes of a kind have, as slurm.conf says it."""
    gres = f" Gres=gpu:{has.gpus}" if has.gpus else ""
    return f"CPUs={CORES} RealMemory={has.megabytes}{gres}"
