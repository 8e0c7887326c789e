"""Rules that fill in what a log does not say of its jobs: deadlines, and how they may be cut.

A rule is a short text in the settings, `slowdown:4` or `moldable:0.5-2`. Where chance comes in,
the draw belongs to the job's id and the seed, so it does not change with the order of rows, with
jobs left out or with the machine that computes it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ConfigError
from rtsched.kernels.loads import Load, Loads
from rtsched.model.jobs import MOST_ROUNDS, Kind
from rtsched.text import counted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rtsched.model.jobs import Jobs

    Floats = NDArray[np.float64]
    Affine = tuple[Floats, Floats]

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
DEADLINE_PATTERN = rf"^(none|(slowdown|run_time)(:{_NUMBER}(-{_NUMBER})?)?|uniform(:{_NUMBER})?)$"
KIND_PATTERN = rf"^(rigid|moldable(:{_NUMBER}-{_NUMBER})?|divisible((:{_NUMBER}){{2}}){{0,2}})$"

DEADLINE_DRAW, CHOICE_DRAW = 1, 2
"""Streams of draws: how far away a deadline is; whether a job gets one."""


SHORT = 10.0
"""Seconds for which a job is taken to have run at the least, by the rule `run_time`."""


@dataclass(frozen=True)
class DeadlineRule:
    """Where a deadline lies that the log does not give.

    Attributes
    ----------
    name : str
        `none`, `slowdown`, `run_time` or `uniform`.
    factor : float
        Greatest relative deadline as a multiple of the requested time, or of the run time.
    least : float
        Least such multiple, where each job's is drawn; 0: all have `factor`.
    """

    name: str
    factor: float = 4.0
    least: float = 0.0

    @classmethod
    def parse(cls, text: str) -> DeadlineRule:
        """Return the rule in `none`, `slowdown[:[E-]F]`, `run_time[:[E-]F]`, `uniform[:F]`.

        Raises
        ------
        ConfigError
            If it is none of these, E > F, or one of them < 1.
        """
        if re.match(DEADLINE_PATTERN, text) is None:
            raise ConfigError(
                [
                    f"{text!r} is not a rule; use `none`, `slowdown:4`, `run_time:4`, "
                    "`run_time:2-8` or `uniform` (or `uniform:4`)"
                ]
            )
        name, _, rest = text.partition(":")
        factors = [float(part) for part in re.split(r"(?<![eE])-", rest)] if rest else []
        if not all(1 <= factor < math.inf for factor in factors):
            raise ConfigError([f"{text!r} leaves no time to run in; use a factor of at least 1"])
        if factors != sorted(factors):
            raise ConfigError([f"{text!r} has the greater factor first; write the least one first"])
        return cls(name, *factors[::-1])


@dataclass(frozen=True)
class KindRule:
    """Kind of jobs for which the log gives only a size.

    Attributes
    ----------
    name : str
        `rigid`, `moldable` or `divisible`.
    low, high : float
        Least and greatest size of a moldable job as a multiple of the requested one.
    cms, cps, setup_link, setup_node : float
        Of a divisible job: see `rtsched.kernels.dlt`.
    """

    name: str
    low: float = 0.5
    high: float = 2.0
    cms: float = 1.0
    cps: float = 100.0
    setup_link: float = 0.0
    setup_node: float = 0.0

    @classmethod
    def parse(cls, text: str) -> KindRule:
        """Return the rule in `rigid`, `moldable[:LOW-HIGH]`, `divisible[:CMS:CPS[:ST:SC]]`.

        Raises
        ------
        ConfigError
            If it is none of these, or its numbers make no sense.
        """
        if re.match(KIND_PATTERN, text) is None:
            raise ConfigError(
                [
                    f"{text!r} is not a rule; use `rigid`, `moldable:0.5-2` (least and greatest "
                    "size as multiples of the requested one) or `divisible:1:100` (seconds to "
                    "send and to compute one unit)"
                ]
            )
        name, _, rest = text.partition(":")
        if name == "moldable" and rest:
            low, high = (float(part) for part in re.split(r"(?<![eE])-", rest))
            if not 0 < low <= 1 <= high < math.inf:
                raise ConfigError(
                    [f"{text!r} excludes the requested size; use LOW in (0, 1] and HIGH >= 1"]
                )
            return cls(name, low, high)
        if name == "divisible" and rest:
            numbers = [float(part) for part in rest.split(":")]
            if not numbers[1] > 0 or not all(math.isfinite(number) for number in numbers):
                raise ConfigError([f"{text!r} computes in no time; use CPS > 0"])
            return cls(name, 0.5, 2.0, *numbers)
        return cls(name)

    def text(self) -> str:
        """Return the rule as a setting, in full."""
        if self.name == "moldable":
            return f"moldable:{self.low:.17g}-{self.high:.17g}"
        if self.name == "divisible":
            numbers = (self.cms, self.cps, self.setup_link, self.setup_node)
            return ":".join(["divisible", *(f"{number:.17g}" for number in numbers)])
        return self.name


def draw(ids: NDArray[np.int64], seed: int, stream: int) -> Floats:
    """Return float64[n] in [0, 1): for each job id the same number at every call.

    References
    ----------
    Steele, Lea and Flood, 2014: Fast splittable pseudorandom number generators (the mixer of
    SplitMix64, applied twice: to the seed and stream, and to the id).
    """
    # Wrapping is what is wanted here; on arrays numpy does it without a warning.
    start = _mixed(np.array([(seed * 8 + stream) & 0xFFFFFFFFFFFFFFFF], np.uint64))
    bits = _mixed(ids.astype(np.uint64) + start)
    bits >>= np.uint64(11)
    return np.asarray(bits * 2.0**-53, np.float64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits


def kinds(jobs: Jobs, rule: KindRule, machine: int) -> tuple[dict[str, ArrayLike], list[str]]:
    """Return the columns that `rule` changes, and what was assumed.

    The rule speaks of the jobs that the log leaves rigid. A moldable job needs
    `wall_time * size / n` on n nodes; a divisible one has as much load as makes E(size) its
    requested time.

    Parameters
    ----------
    jobs : Jobs
        With `wall_time` and `size` final.
    rule : KindRule
        The rule.
    machine : int
        Number of nodes.
    """
    rigid = np.equal(jobs.kind, Kind.RIGID)
    if rule.name == "rigid" or not rigid.any():
        return {}, []
    if rule.name == "moldable":
        return _moldable(jobs, rule, machine, rigid)
    return _divisible(jobs, rule, machine, rigid)


def _moldable(
    jobs: Jobs, rule: KindRule, machine: int, rigid: NDArray[np.bool_]
) -> tuple[dict[str, ArrayLike], list[str]]:
    low = np.maximum(np.ceil(jobs.size * rule.low - 1e-9), 1).astype(np.int32)
    high = np.minimum(np.floor(jobs.size * rule.high + 1e-9), machine)
    columns: dict[str, ArrayLike] = {
        "kind": np.where(rigid, Kind.MOLDABLE, jobs.kind).astype(np.int8),
        "size_min": np.where(rigid, low, jobs.size_min),
        "size_max": np.where(rigid, np.maximum(high, jobs.size), jobs.size_max).astype(np.int32),
    }
    return columns, [
        f"{counted(int(rigid.sum()), 'job is', 'jobs are')} taken as moldable: any size "
        f"from {rule.low:g} to {rule.high:g} times the requested one, with run time in inverse "
        "proportion."
    ]


def _divisible(
    jobs: Jobs, rule: KindRule, machine: int, rigid: NDArray[np.bool_]
) -> tuple[dict[str, ArrayLike], list[str]]:
    costs = (rule.cms, rule.cps, rule.setup_link, rule.setup_node)
    fixed, per_unit = _affine(jobs.size, costs)
    sigma = (jobs.wall_time - fixed) / per_unit
    cut = rigid & (sigma > 0)
    if rule.setup_link > 0:  # with one node less it must take longer, or a chunk would be negative
        fixed, per_unit = _affine(np.maximum(jobs.size - 1, 1), costs)
        cut &= (jobs.size == 1) | (fixed + sigma * per_unit > jobs.wall_time)
    short = int((rigid & ~cut).sum())
    columns: dict[str, ArrayLike] = {
        "kind": np.where(cut, Kind.DIVISIBLE, jobs.kind).astype(np.int8),
        "size_min": np.where(cut, 1, jobs.size_min).astype(np.int32),
        "size_max": np.where(cut, machine, jobs.size_max).astype(np.int32),
        "sigma": np.where(cut, sigma, jobs.sigma),
        "rounds": np.where(cut, MOST_ROUNDS, jobs.rounds).astype(np.int32),
    }
    for name, value in zip(("cms", "cps", "setup_link", "setup_node"), costs, strict=True):
        columns[name] = np.where(cut, value, jobs.column(name))
    notes = [
        f"{counted(int(cut.sum()), 'job is', 'jobs are')} taken as divisible, on 1 to "
        f"{counted(machine, 'node')}: a unit takes {rule.cms:g} s to send and {rule.cps:g} s to "
        f"compute, set-up takes {rule.setup_link:g} s and {rule.setup_node:g} s, and there are as "
        "many units as make the run on the requested nodes last the requested time."
    ]
    if short:
        notes.append(
            f"{counted(short, 'job is', 'jobs are')} too short for the set-up times and stay rigid."
        )
    return columns, notes


def _affine(size: NDArray[np.int32], costs: tuple[float, float, float, float]) -> Affine:
    """Return (a, b), float64[n] each: on `size` nodes, E = a + b sigma."""
    from rtsched.kernels.dlt import exec_time  # loads numba: not for settings alone

    sizes, place = np.unique(size, return_inverse=True)
    fixed = np.array([exec_time(int(each), Load(0.0, *costs)) for each in sizes])
    whole = np.array([exec_time(int(each), Load(1.0, *costs)) for each in sizes])
    return fixed[place], (whole - fixed)[place]


def _factors(rule: DeadlineRule, ids: NDArray[np.int64], seed: int) -> Floats | float:
    """Return the factor of all jobs, or that of each, float64[n]."""
    if not rule.least:
        return rule.factor
    return rule.least + draw(ids, seed, DEADLINE_DRAW) * (rule.factor - rule.least)


def relative_deadlines(
    jobs: Jobs,
    rule: DeadlineRule,
    machine: int,
    seed: int,
    rows: NDArray[np.int64] | slice,
    run_time: Floats | None = None,
) -> Floats:
    """Return float64[k]: seconds from submission to deadline of the jobs in `rows`.

    `slowdown:F` gives F times the requested time, `run_time:F` F times the time for which the job
    really ran (`run_time`, float64[n] seconds), or F times `SHORT` where that is longer; with `E-F`
    each job has a factor of its own, drawn from [E, F]. `uniform` draws from [E(n*), E(1)]: for a
    divisible load the least and the greatest execution time, for a moldable job the times at its
    greatest and least size. A rigid job has one execution time E only, so that range would leave no
    room to wait: it draws from [E, F E].

    References
    ----------
    Lin, Lu, Deogun, Goddard, 2005, section 5: deadlines between the least and the greatest
    execution time.
    Feitelson, "Metrics for parallel job scheduling and their convergence", JSSPP 2001: the
    bounded slowdown, which takes shorter jobs to run for 10 s.
    """
    wall = jobs.wall_time[rows]
    if rule.name == "slowdown":
        return np.asarray(wall * _factors(rule, jobs.id[rows], seed))
    if rule.name == "run_time":
        if run_time is None:
            raise ValueError("the rule `run_time` needs the run times")
        return np.maximum(run_time[rows], SHORT) * _factors(rule, jobs.id[rows], seed)
    kind = jobs.kind[rows]
    shortest, longest = wall.copy(), wall * rule.factor
    molded = np.flatnonzero(kind == Kind.MOLDABLE)
    if len(molded):
        size = jobs.size[rows][molded]
        sizes = [jobs.column(name)[rows][molded] for name in ("size_max", "size_min")]
        high, low = (np.where(given > 0, given, size) for given in sizes)
        work = wall[molded] * size
        shortest[molded], longest[molded] = work / high, work / low
    cut = np.flatnonzero(kind == Kind.DIVISIBLE)
    if len(cut):
        columns = (jobs.column(name)[rows][cut] for name in Loads._fields)
        loads = Loads(*(np.ascontiguousarray(column) for column in columns))
        bounds = [jobs.column(name)[rows][cut] for name in ("size_min", "size_max")]
        low = np.where(bounds[0] > 0, bounds[0], 1).astype(np.int64)
        high = np.where(bounds[1] > 0, np.minimum(bounds[1], machine), machine).astype(np.int64)
        from rtsched.kernels.dlt import execution_ranges  # loads numba

        shortest[cut], longest[cut] = execution_ranges(low, np.maximum(high, low), loads)
    share = draw(jobs.id[rows], seed, DEADLINE_DRAW)
    return np.asarray(shortest + share * (longest - shortest))
