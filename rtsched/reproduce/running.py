"""Runs of reproductions, on this machine's cores or on a cluster, and their verdicts."""

from __future__ import annotations

import os
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal

from rtsched.errors import AdapterError, ConfigError, PluginError
from rtsched.replay.parallel import connected
from rtsched.reproduce.study import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rtsched.reproduce.study import Findings, Parameters, Part, Reproduction

GROUP = "rtsched.reproductions"

Where = Literal["here", "processes", "dask", "slurm", "htcondor"]
WHERE: dict[Where, str] = {
    "here": "in this process, one part after the other",
    "processes": "on this machine's cores",
    "dask": "on a Dask cluster: the one at --scheduler, else a local one",
    "slurm": "on a Dask cluster whose workers are Slurm jobs (dask-jobqueue's own configuration)",
    "htcondor": "on a Dask cluster whose workers are HTCondor jobs (likewise)",
}
"""Where parts can run."""


def reproductions() -> dict[str, type[Reproduction]]:
    """Return the reproductions that are installed, by name.

    Raises
    ------
    PluginError
        If one cannot be imported.
    """
    found = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found[entry.name] = entry.load()
        except Exception as cause:  # whatever its import raises
            raise PluginError(entry.name, f"cannot be imported: {cause}") from cause
    return found


@contextmanager
def executor(where: Where, workers: int | None, scheduler: str = "") -> Iterator[Executor | None]:
    """Yield what runs parts, None for this process itself.

    Raises
    ------
    ConfigError, MissingExtraError
        If a library that it needs is missing.
    AdapterError
        If the Dask cluster does not answer.
    """
    if where == "here":
        yield None
    elif where == "dask" and scheduler:
        with connected(scheduler) as client:
            yield client.get_executor(pure=False)
    elif where == "processes":
        with ProcessPoolExecutor(workers or os.cpu_count(), get_context("spawn")) as pool:
            yield pool
    else:
        with _dask_client(where, workers) as client:
            yield client.get_executor(pure=False)


@contextmanager
def _dask_client(where: Where, workers: int | None) -> Iterator[Any]:
    try:
        import dask
        from distributed import Client, LocalCluster

        if where in {"slurm", "htcondor"}:
            from dask_jobqueue import HTCondorCluster, SLURMCluster
    except ImportError as cause:
        raise ConfigError(
            [f"--executor {where} needs {cause.name}; install rtsched[cluster]"]
        ) from cause
    try:
        if where == "dask":
            cluster = LocalCluster(
                n_workers=workers or os.cpu_count(),
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
            )
        else:
            # any free port, unless the site names one: without a word Dask takes 8787
            options = {"dashboard_address": ":0"}
            options |= dask.config.get(f"jobqueue.{where}.scheduler-options", None) or {}
            kind = {"slurm": SLURMCluster, "htcondor": HTCondorCluster}[where]
            cluster = kind(scheduler_options=options)
            cluster.scale(jobs=workers or 1)
        with cluster, Client(cluster) as client:
            yield client
    except (OSError, TimeoutError, ValueError) as cause:
        raise AdapterError(f"the Dask cluster cannot be used: {cause}") from cause


@dataclass(frozen=True)
class Reproduced:
    """One reproduction as it came out.

    Attributes
    ----------
    name, source : str
        Which, and the paper.
    parameters : Parameters
        What it was run with; of a recorded one as a dict.
    findings : Findings
        Ours beside the expected values.
    seconds : float
        Wall time.
    """

    name: str
    source: str
    parameters: Parameters | dict[str, Any]
    findings: Findings
    seconds: float

    @property
    def values(self) -> Tally:
        """Return how many values of all sheets agree, differ and were fitted."""
        return Tally.total(sheet.tally() for sheet in self.findings.sheets)

    @property
    def claims(self) -> Tally:
        """Return how many claims agree and differ."""
        return Tally.of(claim.verdict for claim in self.findings.claims)

    @property
    def differ(self) -> int:
        """Return how many values and claims differ."""
        return self.values.differ + self.claims.differ


def reproduce(
    study: Reproduction,
    parameters: Parameters,
    pool: Executor | None = None,
    progress: Callable[[float], None] | None = None,
) -> Reproduced:
    """Run one reproduction; the result does not depend on where its parts ran."""
    begun = time.perf_counter()
    results = _results(study.parts(parameters), pool, progress)
    findings = study.findings(parameters, results)
    return Reproduced(study.name, study.source, parameters, findings, time.perf_counter() - begun)


def _results(
    parts: Sequence[Part], pool: Executor | None, progress: Callable[[float], None] | None
) -> list[Any]:
    """Return the parts' results in their order."""
    tell = progress or (lambda _fraction: None)
    if pool is None:
        results = []
        for done, part in enumerate(parts, 1):
            results.append(part.run())
            tell(done / len(parts))
        return results
    futures: list[Future[Any]] = [pool.submit(part.run) for part in parts]
    try:
        for done, _ in enumerate(as_completed(futures), 1):
            tell(done / len(futures))
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise
