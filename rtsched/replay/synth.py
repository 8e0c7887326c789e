"""Synthetic logs, for `rtsched synth`: each generator is a table of settings that makes a `Log`.

    log = Lublin(jobs=10_000, nodes=256, seed=1).log()

Equal settings give equal logs. Jobs are known but for what a scheduler decides: a log has run times
and no starts.

The batch workload model of Lublin and Feitelson has sizes, run times and arrivals. Run times are
hyper-gamma in their logarithm, and wide jobs run longer; sizes are serial, powers of two or
anything between, from two uniform stages in their logarithm; arrivals follow a daily cycle.
Parameters are those of the model's published program; logarithms are natural for times and to base
2 for sizes.

References
----------
Lublin and Feitelson, 2003: The workload on parallel supercomputers: modeling the characteristics
of rigid jobs. Journal of Parallel and Distributed Computing 63(11).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.errors import ConfigError
from rtsched.kernels.dlt import execution_ranges
from rtsched.kernels.loads import Loads
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import MOST_ROUNDS, Jobs, Kind
from rtsched.model.log import Ending, Log, Outcomes
from rtsched.replay.rules import DeadlineRule, KindRule, relative_deadlines
from rtsched.replay.settings import HEADER
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_BUCKETS = 48
"""Half hours of a day, over which the rate of arrivals varies."""

_DAY_START = 11
"""The half hour at which the gamma distribution of arrivals over a day begins."""

LONGEST_LOG_RUN, LONGEST_LOG_GAP = 12.0, 13.0
"""Logarithms of seconds above which a run time (45 h) or a gap (5 d) is drawn again."""


class _Model(NamedTuple):
    """Parameters of one kind of job, fitted for a machine of 128 nodes.

    Attributes
    ----------
    serial, power_of_two : float
        Share of jobs of one node, of jobs whose size is a power of two.
    size_low, size_middle, size_high, size_first : float
        Base 2 logarithms between which the two uniform stages lie; share of the first.
    run_first, run_second : (float, float)
        Shape and scale of the two gamma distributions of ln(run time).
    mix_slope, mix_start : float
        Share of the first gamma: mix_slope * size + mix_start, within [0, 1].
    gap : (float, float)
        Shape and scale of the gamma distribution of ln(gap) in rush hours.
    cycle : (float, float)
        Shape and scale of the gamma distribution of arrivals over the half hours of a day.
    all_day : float
        Factor on the shape of `gap` that makes it one for all hours.
    """

    serial: float
    power_of_two: float
    size_low: float
    size_middle: float
    size_high: float
    size_first: float
    run_first: tuple[float, float]
    run_second: tuple[float, float]
    mix_slope: float
    mix_start: float
    gap: tuple[float, float]
    cycle: tuple[float, float]
    all_day: float


BATCH = _Model(
    serial=0.2927,
    power_of_two=0.6686,
    size_low=1.2,
    size_middle=5.0,
    size_high=7.0,
    size_first=0.875,
    run_first=(6.57, 0.823),
    run_second=(639.1, 0.0156),
    mix_slope=-0.003,
    mix_start=0.6986,
    gap=(6.0415, 0.8531),
    cycle=(6.1271, 5.2740),
    all_day=1.0519,
)
_INTERACTIVE = _Model(
    serial=0.1541,
    power_of_two=0.625,
    size_low=1.0,
    size_middle=3.0,
    size_high=5.5,
    size_first=0.705,
    run_first=(3.8351, 0.6605),
    run_second=(7.073, 0.6856),
    mix_slope=-0.0118,
    mix_start=0.9156,
    gap=(6.5510, 0.6621),
    cycle=(8.9186, 3.6680),
    all_day=0.9797,
)
ALL = _Model(
    serial=0.244,
    power_of_two=0.576,
    size_low=0.8,
    size_middle=4.5,
    size_high=7.0,
    size_first=0.86,
    run_first=(4.2, 0.94),
    run_second=(312.0, 0.03),
    mix_slope=-0.0054,
    mix_start=0.78,
    gap=(10.2303, 0.4871),
    cycle=(8.1737, 3.9631),
    all_day=1.0225,
)
MODELS = {"batch": BATCH, "interactive": _INTERACTIVE, "all": ALL}


def sizes(model: _Model, n: int, nodes: int, random: np.random.Generator) -> NDArray[np.int32]:
    """Return int32[n]: nodes of each job.

    On a machine of other than 128 nodes the upper stages move with its logarithm, as the model's
    authors advise.
    """
    shift = math.log2(nodes) - 7.0
    high = max(model.size_high + shift, 0.0)
    middle = max(model.size_middle + shift, 0.0)
    low = min(model.size_low, middle)
    first = random.random(n) < model.size_first
    share = random.random(n)
    exponent = np.where(first, low + share * (middle - low), middle + share * (high - middle))
    kind = random.random(n)
    rounded = kind < model.serial + model.power_of_two
    exponent = np.where(rounded, np.floor(exponent + 0.5), exponent)
    size = np.floor(np.exp2(exponent) + 0.5)
    return np.where(kind < model.serial, 1, np.clip(size, 1, nodes)).astype(np.int32)


def run_times(model: _Model, size: NDArray[np.int32], random: np.random.Generator) -> Floats:
    """Return float64[n]: whole seconds that jobs of these sizes run."""
    mix = np.clip(model.mix_slope * size + model.mix_start, 0.0, 1.0)
    logs = np.full(len(size), np.inf)
    while len(rows := np.flatnonzero(logs > LONGEST_LOG_RUN)):
        first = random.random(len(rows)) < mix[rows]
        shape, scale = (
            np.where(first, a, b) for a, b in zip(model.run_first, model.run_second, strict=True)
        )
        logs[rows] = random.gamma(shape, scale)
    return np.asarray(np.maximum(np.floor(np.exp(logs)), 1.0))


def arrivals(model: _Model, n: int, random: np.random.Generator) -> Floats:
    """Return float64[n]: seconds after midnight of the first day, ascending.

    A gap is drawn for hours of average rate; time then passes through it faster where the daily
    cycle has more arrivals.
    """
    shape, scale = model.gap[0] * model.all_day, model.gap[1]
    logs = np.full(n, np.inf)
    while len(rows := np.flatnonzero(logs > LONGEST_LOG_GAP)):
        logs[rows] = random.gamma(shape, scale, len(rows))
    width = 86400.0 / _BUCKETS
    passed = np.cumsum(np.exp(logs) / width)
    days, rest = np.divmod(passed, _BUCKETS)
    edges = np.concatenate([[0.0], np.cumsum(daily_cycle(model))])
    edges[-1] = _BUCKETS
    return np.asarray((days * _BUCKETS + np.interp(rest, edges, np.arange(_BUCKETS + 1.0))) * width)


def daily_cycle(model: _Model) -> Floats:
    """Return float64[48]: the rate of arrivals in each half hour of a day; the mean is 1."""
    marks = np.arange(_DAY_START, _BUCKETS + _DAY_START + 1) - 0.5
    shares = np.diff([_gamma_cdf(mark, *model.cycle) for mark in marks])
    rates = np.empty(_BUCKETS)
    rates[(np.arange(_DAY_START, _BUCKETS + _DAY_START) - 1) % _BUCKETS] = shares
    return np.asarray(rates / rates.mean())


def _gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Return the gamma distribution's cumulative function by its power series, for x > 0."""
    x = x / scale
    term = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1.0))
    total, k = 0.0, 0
    while term > total * 1e-17:
        total += term
        k += 1
        term *= x / (shape + k)
    return total


MILLENNIUM = 978_307_200
"""2001-01-01 00:00 UTC, a Monday: the first day of synthetic logs with dates."""

ROUND_REQUESTS = 60.0 * np.array(
    [1, 2, 5, 10, 15, 20, 30, 45, *(60 * np.array([1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96]))]
)
"""Seconds that people ask for."""


class Generator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What makes a synthetic log: a table of settings."""

    name: ClassVar[str] = ""

    jobs: Annotated[int, Meta(ge=1)] = 10_000
    """Number of jobs."""
    nodes: Annotated[int, Meta(ge=1)] = 256
    """Nodes of the machine."""
    seed: Annotated[int, Meta(ge=0)] = 0
    """Equal seeds give equal logs."""

    def log(self) -> Log:
        """Return the log."""
        raise NotImplementedError

    def header(self) -> dict[str, str]:
        """Return the lines that its SWF file's header should have, by name."""
        return {
            "Computer": "synthetic",
            "Note": f"rtsched synth {self.name}: {self.text()}",
        }

    def text(self) -> str:
        """Return the settings in words."""
        values = msgspec.structs.asdict(self)
        return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)

    def _made(self, jobs: Jobs, run_time: Floats) -> Log:
        """Return the log of these jobs, which all ran to their end at an unknown time."""
        outcomes = Outcomes.build(
            len(jobs), run_time=run_time, size=jobs.size, ending=np.int8(Ending.COMPLETED)
        )
        assumption = f"The log is synthetic: {self.name} with {self.text()}."
        machine = Cluster.uniform(self.nodes)
        return Log(
            jobs,
            outcomes,
            (f"synth {self.name}",),
            "synthetic",
            cluster=machine,
            assumptions=(assumption,),
        )


class PapersMcdf(Generator, frozen=True, forbid_unknown_fields=True):
    """Divisible loads with deadlines, as the paper on MCDF simulates them.

    Bursts of 1 to 10 tasks come in exponential gaps; a task's size is normal, its relative
    deadline uniform between the least and the greatest execution time on the cluster.

    References
    ----------
    Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
    """

    name: ClassVar[str] = "papers-mcdf"

    preset: Literal["equal10", "one100"] = "one100"
    """Time to send and to compute a unit: 10 and 10, or 1 and 100."""
    mode: Literal["literal", "normalised"] = "literal"
    """`literal`: the mean gap between bursts is as the paper states it, which offers 5.5 times the
    nominal load; `normalised`: the gap is 5.5 times that."""
    load: Annotated[float, Meta(gt=0)] = 0.5
    """Nominal load: sum of least execution times over time."""
    jobs: Annotated[int, Meta(ge=1)] = 1500
    """Number of tasks."""
    nodes: Annotated[int, Meta(ge=1)] = 16
    """Nodes of the cluster."""
    setup: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds to set up a transmission, and also a computation."""
    mean_size: Annotated[float, Meta(gt=0)] = 100.0
    """Mean and deviation of the normal task size, units."""
    cms: float | None = None
    """Seconds to send a unit, in place of the preset's."""
    cps: float | None = None
    """Seconds to compute a unit, in place of the preset's."""

    def costs(self) -> tuple[float, float]:
        """Return seconds to send and to compute a unit.

        Raises
        ------
        ConfigError
            If one is negative or both are 0.
        """
        cms, cps = {"equal10": (10.0, 10.0), "one100": (1.0, 100.0)}[self.preset]
        cms = cms if self.cms is None else self.cms
        cps = cps if self.cps is None else self.cps
        if cms < 0 or cps <= 0:
            raise ConfigError(
                [f"synth.cms, synth.cps: {cms:g} and {cps:g}; take cms >= 0, cps > 0"]
            )
        return cms, cps

    def log(self) -> Log:
        """Return the log; jobs are divisible, on one node by their SWF size, with deadlines."""
        n, (cms, cps) = self.jobs, self.costs()
        random = np.random.default_rng(self.seed)
        sigma = random.normal(self.mean_size, self.mean_size, n)
        while len(rows := np.flatnonzero(sigma <= 0.001 * self.mean_size)):
            sigma[rows] = random.normal(self.mean_size, self.mean_size, len(rows))
        costs = (np.full(n, value) for value in (cms, cps, self.setup, self.setup))
        loads = Loads(sigma, *costs)
        ones = np.ones(n, np.int64)
        shortest, longest = execution_ranges(ones, ones * self.nodes, loads)
        burst = np.repeat(np.arange(n), random.integers(1, 11, n))[:n]
        gap = shortest.mean() / self.load * (5.5 if self.mode == "normalised" else 1.0)
        submit = np.cumsum(random.exponential(gap, n))[burst]
        columns: dict[str, Any] = loads._asdict()
        jobs = Jobs.build(
            n,
            id=np.arange(1, n + 1),
            submit=submit,
            wall_time=longest,
            kind=Kind.DIVISIBLE,
            size=1,
            size_min=1,
            size_max=self.nodes,
            rounds=MOST_ROUNDS,
            **columns,
        )
        due = relative_deadlines(jobs, DeadlineRule("uniform"), self.nodes, self.seed, slice(None))
        jobs = jobs.replace(deadline=submit + due)
        return self._made(jobs, longest)

    def header(self) -> dict[str, str]:
        """Return header lines with the rules that give sizes and deadlines back."""
        rule = KindRule("divisible", 0.5, 2.0, *self.costs(), self.setup, self.setup).text()
        rules = f'{{ jobs_are = "{rule}", deadline_rule = "uniform", seed = {self.seed} }}'
        return {**super().header(), HEADER: rules}


class _Batch(Generator, frozen=True, forbid_unknown_fields=True):
    """What the generators of batch jobs have in common."""

    overestimate: Annotated[float, Meta(ge=0)] = 4.0
    """Requested times are uniform between the run time and 1 + this many times it (0: exact)."""
    round_requests: bool = True
    """Round requested times up to what people ask for: 5 min, 1 h, 12 h ..."""
    users: Annotated[int, Meta(ge=0)] = 64
    """Number of users; user k has 1/k of the first one's jobs."""
    accounts: Annotated[int, Meta(ge=0)] = 8
    """Number of accounts, between which the users are dealt out."""

    def _finish(
        self, submit: Floats, run_time: Floats, size: NDArray[np.int32], queue: Any = None
    ) -> Log:
        """Return the log of jobs with these submissions, run times and sizes."""
        n, random = len(submit), np.random.default_rng([self.seed, 1])
        wall = run_time * random.uniform(1.0, 1.0 + self.overestimate, n)
        if self.round_requests:
            place = np.searchsorted(ROUND_REQUESTS, wall)
            rounded = ROUND_REQUESTS[np.minimum(place, len(ROUND_REQUESTS) - 1)]
            wall = np.where(place < len(ROUND_REQUESTS), rounded, np.ceil(wall / 86400) * 86400)
        who, names = self._people(n, random)
        if queue is not None:
            who["partition"], names["partition"] = queue
        order = np.argsort(submit, kind="stable")
        jobs = Jobs.build(
            n,
            names=names,
            id=np.arange(1, n + 1),
            submit=submit[order],
            wall_time=np.ceil(wall)[order],
            size=size[order],
            **{name: codes[order] for name, codes in who.items()},
        )
        return self._made(jobs, run_time[order])

    def _people(
        self, n: int, random: np.random.Generator
    ) -> tuple[dict[str, NDArray[np.int32]], dict[str, list[str]]]:
        """Return codes and names of who submits each job."""
        if not self.users:
            return {}, {}
        weight = 1.0 / np.arange(1, self.users + 1)
        user = random.choice(self.users, n, p=weight / weight.sum()).astype(np.int32)
        codes = {"user": user}
        names = {"user": [str(number) for number in range(1, self.users + 1)]}
        if self.accounts:
            codes["account"] = user % np.int32(self.accounts)
            used = min(self.accounts, self.users)
            names["account"] = [str(number) for number in range(1, used + 1)]
        return codes, names


class Lublin(_Batch, frozen=True, forbid_unknown_fields=True):
    """Rigid batch jobs by the model of Lublin and Feitelson (2003).

    The model says nothing of requested times and of users; those follow the rules of the settings
    `overestimate` and `users`.
    """

    name: ClassVar[str] = "lublin"

    kind: Literal["batch", "interactive", "both", "all"] = "batch"
    """`batch` or `interactive`: the model of these jobs; `both`: the two side by side, each in its
    queue; `all`: the model fitted without telling them apart."""
    load: float | None = None
    """Offered load to which the times between arrivals are stretched, without regard to the hour;
    not given: the model's own."""

    def log(self) -> Log:
        """Return the log; times count from midnight of a Monday."""
        kinds = ["interactive", "batch"] if self.kind == "both" else [self.kind]
        parts = []
        for code, kind in enumerate(kinds):
            model, random = MODELS[kind], np.random.default_rng([self.seed, 2 + code])
            size = sizes(model, self.jobs, self.nodes, random)
            run_time = run_times(model, size, random)
            submit = arrivals(model, self.jobs, random)
            parts.append((submit, run_time, size, np.full(self.jobs, code, np.int32)))
        submit, run_time, size, queue = (np.concatenate(part) for part in zip(*parts, strict=True))
        first = np.argsort(submit, kind="stable")[: self.jobs]
        submit, run_time, size = submit[first], run_time[first], size[first]
        submit = _stretched(submit, float((size * run_time).sum()), self.nodes, self.load)
        queues = (queue[first], kinds) if self.kind == "both" else None
        return self._finish(np.floor(submit) + MILLENNIUM, run_time, size, queues)


class Poisson(_Batch, frozen=True, forbid_unknown_fields=True):
    """A simple workload: exponential gaps, log-normal run times, sizes mostly powers of two."""

    name: ClassVar[str] = "poisson"

    load: Annotated[float, Meta(gt=0)] = 0.8
    """Offered load: work over nodes and time."""
    median_run: Annotated[float, Meta(gt=0)] = 900.0
    """Median run time, seconds."""
    spread: Annotated[float, Meta(ge=0)] = 1.8
    """Deviation of the logarithm of run times."""
    longest: Annotated[float, Meta(ge=1)] = 172_800.0
    """Run times are cut here, seconds."""
    serial: Annotated[float, Meta(ge=0, le=1)] = 0.3
    """Share of jobs of one node."""

    def log(self) -> Log:
        """Return the log; times count from midnight of a Monday."""
        n, random = self.jobs, np.random.default_rng([self.seed, 2])
        run_time = np.ceil(self.median_run * np.exp(self.spread * random.standard_normal(n)))
        run_time = np.clip(run_time, 1.0, self.longest)
        widest = max(int(self.nodes).bit_length() - 2, 0)
        size = np.exp2(random.integers(0, widest + 1, n))
        size += np.where(random.random(n) < 0.2, random.integers(0, size.astype(np.int64)), 0)
        size = np.where(random.random(n) < self.serial, 1, np.clip(size, 1, self.nodes))
        submit = np.cumsum(random.exponential(1.0, n))
        submit = _stretched(submit, float((size * run_time).sum()), self.nodes, self.load)
        return self._finish(np.floor(submit) + MILLENNIUM, run_time, size.astype(np.int32))


GENERATORS: Mapping[str, type[Generator]] = {
    kind.name: kind for kind in (PapersMcdf, Lublin, Poisson)
}
"""The generators by name."""


def _stretched(submit: Floats, work: float, nodes: int, load: float | None) -> Floats:
    """Return submissions from 0 on such that `work` over nodes and time is `load` (None: as is)."""
    if load is None:
        return submit
    if not load > 0:
        raise ConfigError([f"synth.load: {load} is not above 0"])
    span = float(submit[-1])
    return submit * (work / (nodes * load * span)) if span > 0 else submit


def repeat(log: Log, n_jobs: int) -> Log:
    """Return `n_jobs` jobs: the log again and again, each time after the last submission.

    The next round begins one mean gap after the last submission. Jobs are numbered anew from 1;
    dependencies are left out.

    Parameters
    ----------
    log : Log
        In order of submission.
    n_jobs : int
        Number of jobs; the last round may be cut short.
    """
    n = len(log.jobs)
    if n == 0:
        raise ConfigError(["repeat: the log has no job to repeat"])
    submit = log.jobs.submit
    span = float(submit.max() - submit.min())
    period = max(np.ceil(span + span / max(n - 1, 1)), 1.0)
    rows, shift = np.arange(n_jobs) % n, np.arange(n_jobs) // n * period
    jobs, outcomes = log.jobs, log.outcomes
    moved: dict[str, Any] = {
        name: jobs.column(name)[rows] + shift
        for name in ("submit", "begin", "deadline")
        if np.isfinite(jobs.column(name)).any()
    }
    moved["id"] = np.arange(1, n_jobs + 1)
    happened = {
        name: outcomes.column(name)[rows] + shift
        for name in ("start", "end")
        if np.isfinite(outcomes.column(name)).any()
    }
    return Log(
        jobs.take(rows).replace(**moved),
        outcomes.take(rows).replace(**happened),
        log.sources,
        log.format,
        cluster=log.cluster,
        assumptions=(
            *log.assumptions,
            f"The log's {counted(n, 'job is', 'jobs are')} repeated to {n_jobs}.",
        ),
        skipped=log.skipped,
    )
