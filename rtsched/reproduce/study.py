"""Studies: independent parts of work, their runs, and sheets that compare their results.

A reproduction regenerates the tables and figures of one published policy and puts its own values
beside the printed or expected ones. It is a class that a distribution announces under the entry
point group `rtsched.reproductions`; its parts may run on many cores, or on a cluster.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from rtsched.errors import AdapterError, ConfigError, PluginError, ShapeError
from rtsched.replay.parallel import connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of a reproduction's settings; each has a type, a default and a description."""


@dataclass(frozen=True)
class Part:
    """One piece of work that depends on no other.

    Attributes
    ----------
    function : callable
        A module's function, so that it can be sent to another process.
    arguments : mapping of str to value
        What it is called with: plain values and arrays.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> Any:
        """Do the work and return its result."""
        return self.function(**self.arguments)


class Verdict(StrEnum):
    """What comes of one comparison; no remark changes it."""

    AGREES = "agrees"
    DIFFERS = "differs"
    FITTED = "fitted"
    """It agrees, but was fitted to the value that it is compared with."""


class Tally(NamedTuple):
    """How many comparisons came out how; tallies are summed with `total`."""

    agree: int = 0
    differ: int = 0
    fitted: int = 0

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Tally:
        """Return the tally of some verdicts."""
        found = Counter(verdicts)
        return cls(*(found[verdict] for verdict in Verdict))

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum of some tallies."""
        return cls(*(sum(column) for column in zip(cls(), *tallies, strict=True)))

    def __str__(self) -> str:
        fitted = f", {self.fitted} fitted" if self.fitted else ""
        one, other = "s" * (self.agree == 1), "s" * (self.differ == 1)
        return f"{self.agree} agree{one}, {self.differ} differ{other}{fitted}"


@dataclass(frozen=True)
class Sheet:
    """A table of ours beside the printed or expected one.

    Attributes
    ----------
    title, source : str
        What it shows; where the expected values stand (paper and section).
    rows, columns : tuple of str
        Labels.
    ours : float64[r, c]
        Computed in this run; nan: no such value, which differs from any that is expected.
    expected : float64[r, c]
        Printed or expected; nan: nothing is printed, so ours is shown only.
    tolerance : float or float64[r, c]
        Largest absolute difference that still agrees; of means over runs see `chance`.
    why : mapping of str to str
        Row label to a remark on that row, such as why it differs. It changes no verdict.
    basis : str
        How the tolerance comes about, in words.
    fitted : str
        What was fitted to the expected values, if anything was: no value then counts as agreeing.

    Raises
    ------
    ShapeError
        If tables and labels differ in size, or a tolerance is negative or not finite.
    """

    title: str
    source: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    ours: NDArray[np.float64]
    expected: NDArray[np.float64]
    tolerance: float | NDArray[np.float64] = 0.0
    why: Mapping[str, str] = field(default_factory=dict)
    basis: str = ""
    fitted: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        if self.ours.shape != shape or self.expected.shape != shape:
            raise ShapeError(
                f"{self.title}: {self.ours.shape} and {self.expected.shape} values for {shape}"
            )
        bounds = self.bounds()[np.isfinite(self.expected)]
        if not (np.isfinite(bounds) & (bounds >= 0)).all():
            raise ShapeError(f"{self.title}: a tolerance must be a finite number of 0 or more")

    def bounds(self) -> NDArray[np.float64]:
        """Return the tolerance of each value, float64[r, c]."""
        return np.broadcast_to(np.asarray(self.tolerance, np.float64), self.ours.shape)

    def compared(self) -> NDArray[np.bool_]:
        """Return bool[r, c]: where a value is expected."""
        return np.isfinite(self.expected)

    def differs(self) -> NDArray[np.bool_]:
        """Return bool[r, c]: where a value is expected and ours is further off than tolerated."""
        near = np.abs(self.ours - self.expected) <= self.bounds() + 1e-12
        return self.compared() & ~near

    def verdicts(self) -> list[list[Verdict | None]]:
        """Return the verdict on each value, None where nothing is expected."""
        good = Verdict.FITTED if self.fitted else Verdict.AGREES
        return [
            [
                None if not judged else Verdict.DIFFERS if wrong else good
                for judged, wrong in zip(*row, strict=True)
            ]
            for row in zip(self.compared(), self.differs(), strict=True)
        ]

    def tally(self) -> Tally:
        """Return how many values agree, differ and were fitted."""
        return Tally.of(verdict for row in self.verdicts() for verdict in row if verdict)


CHANCE = (
    "three standard errors of the mean over the runs (as many more as Student's t wants for few "
    "runs)"
)
"""What `chance` computes, in words."""


def chance(
    runs: NDArray[np.float64], behind: int = 0, rounding: float = 0.0
) -> NDArray[np.float64]:
    """Return how far a mean over runs may lie from an expected one by chance.

    Three standard errors of the difference between the two means. The spread is known from our
    runs only, so the three are those of Student's t with n - 1 degrees of freedom at the same
    confidence, 99.73 %: 6.6 for 5 runs, 4.1 for 10, 3.1 for 100.

    Parameters
    ----------
    runs : float64[n, ...]
        Independent runs, at least 2.
    behind : int
        Runs behind the expected value, of equal spread; 0: it is exact, or that is not known.
    rounding : float
        Half a unit of the last printed digit, which is added.

    Returns
    -------
    float64[...]

    Raises
    ------
    ShapeError
        If there is only one run.
    """
    n = len(runs)
    if n < 2:
        raise ShapeError("a standard error needs at least 2 runs")
    share = 1 / n + (1 / behind if behind else 0.0)
    spread = runs.std(axis=0, ddof=1)
    return np.asarray(_three(n - 1) * spread * share**0.5 + rounding, np.float64)


def _three(freedom: int) -> float:
    """Return the quantile of Student's t that is 3 for the normal distribution.

    By its expansion in powers of 1/freedom (Abramowitz and Stegun, 26.7.5).
    """
    z = 3.0
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**k for k, term in enumerate(terms, 1))


@dataclass(frozen=True)
class Claim:
    """A statement of the source, tested.

    Attributes
    ----------
    text : str
        What is claimed.
    holds : bool
        Whether it does in this run.
    evidence : str
        The numbers behind it.
    why : str
        A remark, such as why it does not hold. It changes no verdict.
    """

    text: str
    holds: bool
    evidence: str
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """Return whether this run agrees with the statement."""
        return Verdict.AGREES if self.holds else Verdict.DIFFERS


@dataclass(frozen=True)
class Curve:
    """One line of a plot: label, x and y."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True)
class Plot:
    """A figure: curves over one axis."""

    name: str
    """File name without its ending."""
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Findings:
    """All that one reproduction shows."""

    sheets: tuple[Sheet, ...] = ()
    claims: tuple[Claim, ...] = ()
    plots: tuple[Plot, ...] = ()


class Reproduction(Protocol):
    """One paper's reproduction."""

    name: ClassVar[str]
    """What the command line calls it."""
    source: ClassVar[str]
    """The paper."""
    full: ClassVar[Parameters]
    """The paper's own extent."""
    reduced: ClassVar[Parameters]
    """A smaller one for tests: fewer seeds, jobs and points, wider tolerances."""

    def parts(self, parameters: Any) -> Sequence[Part]:
        """Return the work, in an order that `findings` knows."""

    def findings(self, parameters: Any, results: Sequence[Any]) -> Findings:
        """Return the comparison, from the results of the parts in their order."""


_GROUP = "rtsched.reproductions"

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
    for entry in sorted(entry_points(group=_GROUP), key=lambda entry: entry.name):
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
    report = progress or (lambda _fraction: None)
    if pool is None:
        results = []
        for done, part in enumerate(parts, 1):
            results.append(part.run())
            report(done / len(parts))
        return results
    futures: list[Future[Any]] = [pool.submit(part.run) for part in parts]
    try:
        for done, _ in enumerate(as_completed(futures), 1):
            report(done / len(futures))
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise
