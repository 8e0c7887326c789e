"""Clusters with GPUs whose nodes jobs share; for live tests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from promising import Live, live_cluster

GPUS = 4
"""Of a node that has any."""

SHARED = "\n[slurm]\nshare_nodes = true\n"
"""What site.toml has, beside all else."""

HARDWARE = "CPUs=8 RealMemory=8000"
MORE_MEMORY = "CPUs=8 RealMemory=16000"


@contextmanager
def gpu_cluster(
    site: str, nodes: Mapping[str, int], types: Mapping[str, str], **options: Any
) -> Iterator[Live]:
    """Run a cluster with filter and daemon.

    Parameters
    ----------
    site : str
        The site.toml.
    nodes : mapping of str to int
        How many nodes there are of each kind: `fast`, `slow` and `large`.
    types : mapping of str to str
        Of the kinds with GPUs, which type they are of; nodes of others have more memory.
    **options
        More attributes of `SlurmOptions`.
    """
    amounts = [f"gres/gpu:{name}" for name in sorted({*types.values()})]
    settings = {
        "GresTypes": "gpu",
        "AccountingStorageTRES": ",".join(["gres/gpu", *amounts]),
        "DefMemPerCPU": "500",
        "SchedulerParameters": "bf_interval=5,bf_continue",
        "ReturnToService": "1",
    }
    hardware = {
        kind: f"{HARDWARE} Gres=gpu:{types[kind]}:{GPUS}" if kind in types else MORE_MEMORY
        for kind in nodes
    }
    lines = [
        f"NodeName={kind}[1-{nodes[kind]}] Name=gpu Type={name} File=/srv/gpu[0-{GPUS - 1}]"
        for kind, name in types.items()
    ]
    counts = {"fast": 0, "slow": 0, "large": 0, **nodes}
    more = {"hardware": hardware, "settings": settings, **options}
    files = {
        "/etc/slurm/gres.conf": "\n".join(["AutoDetect=off", *lines, ""]),
        **{f"/srv/gpu{number}": "" for number in range(GPUS)},
    }
    with live_cluster(site, files=files, **counts, **more) as running:
        yield running
