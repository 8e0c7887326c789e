"""HTCondor with slots that jobs share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from on_condor import Condor
from shared_nodes import CORES, KINDS
from stream import Extent

from rtsched.adapters.condor.slots import parent_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measure import Row
    from testbed import PoolOptions
    from workload_driver import Setup


class SharedCondor(Condor):
    """A pool of 20 machines, each one partitionable slot of 16 CPUs; 4 with GPUs, 4 with memory."""

    planners: ClassVar[Mapping[str, tuple[str, ...]]] = {"edf": ("rigid",)}
    full: ClassVar[Extent] = Extent(
        480, 9, (2, 3, 4), (1.3, 2.5), 180, (), 160_000, (4, 5, 6), (0.75, 0.92), array=1000
    )
    reduced: ClassVar[Extent] = Extent(
        100, 6, (2,), (1.3, 2.4), 130, (), 100_000, (3, 4), (0.7, 0.85), array=300
    )
    settling: ClassVar[float] = 90.0
    """A start takes a third of a second of a processor, and two pools of 320 CPUs share two."""
    patience: ClassVar[str] = "timeout_ms = 2000\n"

    @classmethod
    def options(cls, setup: Setup) -> PoolOptions:
        """Return how the pool is set up.

        A startd of a name of its own reads no MACHINE_RESOURCE_GPUs of that name; but what the
        common one refers to may be one.
        """
        hardware = {
            kind: {
                "NUM_CPUS": f"{CORES}",
                "MEMORY": f"{has.megabytes}",
                "OWN_GPUS": f"{has.gpus}",
                "RtSpeed": "1.0",
            }
            for kind, has in KINDS.items()
        }
        counts = {kind: has.nodes for kind, has in KINDS.items()}
        given = super().options(setup)
        settings = {**given.settings, "MACHINE_RESOURCE_GPUs": "$(OWN_GPUS)"}
        return replace(
            given, **counts, hardware=hardware, settings=settings, startds=True, parallel=False
        )

    @staticmethod
    def rows(accounting: str) -> list[Row]:
        """Return the rows of such ads, with CPUs in place of slots, and machines' own slots."""
        cores = [int(ad["RequestCpus"]) for ad in json.loads(accounting)]
        pairs = zip(Condor.rows(accounting), cores, strict=True)
        return [replace(row, nodes=count, on=tuple(map(parent_of, row.on))) for row, count in pairs]
