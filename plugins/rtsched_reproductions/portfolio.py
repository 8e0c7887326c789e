"""The portfolio policy beside the best single policies of the source on MCDF, and beside a bound.

Nothing of it is printed anywhere: the columns are ours, the targets are claims.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.kernels.compiling import compiled
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.reproduce import Claim, Curve, Findings, Parameters, Part, Plot, Sheet
from rtsched_reproductions.mcdf import (
    ADMITTING,
    PRINTED,
    RATIO_LOADS,
    RATIOS,
    SETUPS,
    Setting,
    workload_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


REJECTED, WORK = 0, 1
"""Columns of what a part returns: tasks rejected over all, and node-seconds."""


class Run(NamedTuple):
    """One policy of the study: a preset, and settings of its plug-in that differ from it."""

    label: str
    preset: str
    settings: dict[str, Any]


ROUNDS = 8
"""Of the single policies that distribute in rounds, too."""
RUNS = (
    *(Run(name, name, {}) for name in ADMITTING),
    *(
        Run(f"{name}, {ROUNDS} rounds", name, {"rounds": ROUNDS})
        for name in ("mcdf", "edf-mn", "edf-an")
    ),
    Run("portfolio", "portfolio", {}),
    Run("portfolio, one round", "portfolio", {"rounds": 1}),
    Run("portfolio, declines nobody", "portfolio", {"overbooking": math.inf}),
)
LABELS = tuple(run.label for run in RUNS)
SINGLE = slice(0, len(ADMITTING))
IN_ROUNDS = slice(len(ADMITTING), len(ADMITTING) + 3)
PORTFOLIO, ONE_ROUND, DECLINES_NOBODY, BOUND = (len(RUNS) - 3 + k for k in range(4))


class Study(Parameters, frozen=True):
    """Extent of the study."""

    seeds: Annotated[int, Meta(ge=1)] = 3
    """Runs that are averaged."""
    first_seed: Annotated[int, Meta(ge=0)] = 1000
    """Seed of the first run; the policy was tuned on 100 to 299."""
    jobs: Annotated[int, Meta(ge=100)] = 1500
    """Tasks per run."""
    nodes: Annotated[int, Meta(ge=1)] = 16
    """Nodes of the cluster."""
    rows: Annotated[int, Meta(ge=1)] = len(PRINTED)
    """Rows of the main table."""
    variations: bool = True
    """Whether to run the set-up and the cms:cps studies too."""
    more_tasks: Annotated[float, Meta(ge=0)] = 0.005
    """Target: so much more rejected than by the best, at most."""
    more_work: Annotated[float, Meta(ge=0)] = 0.02
    """Target: so much more work than by the best, at most."""
    less: float = 0.10
    """Target: so much less rejected on average, relatively."""


def compare(setting: Setting, jobs: int, nodes: int, seed: int) -> Floats:
    """Return per run, and for the bound, tasks and work rejected: float64[len(RUNS) + 1, 2]."""
    workload = workload_of(setting, jobs, nodes, seed)
    found = []
    for run in RUNS:
        preset = presets()[run.preset]
        (table,) = preset.plugin
        chosen = {**table.settings, **run.settings, "offer_tests": 0}
        plugin = [msgspec.structs.replace(table, settings=chosen)]
        policy = msgspec.structs.replace(preset, plugin=plugin)
        done = replay(workload, run.label, policy, record_nodes=False)
        values = measure(workload, done.results)
        failed = sum(use.errors for hook in done.hooks.values() for use in hook.values())
        assert values["missed"] == 0, f"{run.label} broke a promise"  # noqa: S101
        assert not failed, f"{run.label} failed {failed} times"  # noqa: S101
        found.append((values["reject_ratio"], values["rejected_work_ratio"]))
    every: Floats = np.array([*found, least_rejected(workload.jobs, nodes)], np.float64)
    return every


def least_rejected(jobs: Any, nodes: int) -> tuple[float, float]:
    """Return which part of the tasks, and of their work, every schedule must leave undone.

    Whatever the nodes and the rounds, all units of a task are received, and all are computed, on
    nodes that it holds meanwhile; a node may do both at once, but for the first set-up. So it holds
    nodes for sigma max(cms, cps) + ST + SC at the least.
    """
    work = jobs.sigma * np.maximum(jobs.cms, jobs.cps) + jobs.setup_link + jobs.setup_node
    asked = jobs.wall_time * jobs.size
    origin = jobs.submit.min()
    times = jobs.submit - origin, jobs.deadline - origin
    tasks = most_value(*times, work, np.ones(len(work)), nodes) / len(work)
    return 1.0 - tasks, 1.0 - most_value(*times, work, asked, nodes) / float(asked.sum())


class Portfolio:
    """Tasks and work rejected by the portfolio, by the single policies, and at the least."""

    name: ClassVar[str] = "portfolio"
    source: ClassVar[str] = (
        "ours; workloads of Lin, Lu, Deogun, Goddard: Real-Time Divisible Load Scheduling for "
        "Cluster Computing, 2005"
    )
    full: ClassVar[Study] = Study()
    reduced: ClassVar[Study] = Study(
        seeds=1, jobs=200, rows=3, variations=False, more_tasks=0.03, more_work=0.04
    )

    def parts(self, parameters: Study) -> list[Part]:
        """One part per point and seed."""
        seeds = range(parameters.first_seed, parameters.first_seed + parameters.seeds)
        same = {"jobs": parameters.jobs, "nodes": parameters.nodes}
        return [
            Part(compare, {"setting": setting, "seed": seed, **same})
            for setting in _settings(parameters)
            for seed in seeds
        ]

    def findings(self, parameters: Study, results: Sequence[Any]) -> Findings:
        """Return tasks and work rejected per row, what each part brings, and the targets."""
        settings = _settings(parameters)
        shape = (len(settings), parameters.seeds, len(RUNS) + 1, 2)
        means = np.array(results, np.float64).reshape(shape).mean(axis=1)
        rows = tuple(_label(setting) for setting in settings)
        sheets = (
            _beside_single(rows, means, REJECTED, "Tasks rejected"),
            _beside_single(rows, means, WORK, "Work rejected (node-seconds on one node)"),
            _what_brings_what(rows, means),
        )
        plots = (_load_plot(settings, means),)
        return Findings(sheets, _claims(parameters, rows, means), plots)


def _settings(parameters: Study) -> list[Setting]:
    settings = list(PRINTED)[: parameters.rows]
    if parameters.variations:
        settings += [Setting("one100", "literal", 1.0, setup) for setup in SETUPS if setup]
        settings += [
            Setting("one100", "literal", load, 0.0, ratio)
            for ratio in RATIOS
            for load in RATIO_LOADS
        ]
    return settings


def _label(setting: Setting) -> str:
    if setting.ratio is not None:
        return f"cms:cps {setting.ratio:g}, load {setting.load:g}"
    return f"{setting}, ST = SC = {setting.setup:g}" if setting.setup else str(setting)


def _best(means: Floats, among: slice = SINGLE) -> Floats:
    """Return float64[r, 2]: tasks and work rejected by the policy that rejects fewest tasks."""
    which = means[:, among, REJECTED].argmin(axis=1)
    best: Floats = means[:, among][np.arange(len(means)), which]
    return best


def _reduction(means: Floats) -> Floats:
    """Return float64[r]: how many fewer tasks are rejected than by the best, relatively."""
    ours: Floats = means[:, PORTFOLIO, REJECTED]
    return 1.0 - ours / _best(means)[:, REJECTED]


def _shown(title: str, rows: tuple[str, ...], columns: tuple[str, ...], ours: Floats) -> Sheet:
    return Sheet(title, "ours", rows, columns, ours, np.full(ours.shape, np.nan))


def _beside_single(rows: tuple[str, ...], means: Floats, measured: int, title: str) -> Sheet:
    ours = means[:, :, measured]
    less = 1.0 - ours[:, PORTFOLIO] / _best(means)[:, measured]
    columns = (*ADMITTING, "portfolio", "less than the best", "at least")
    table = np.column_stack([ours[:, SINGLE], ours[:, PORTFOLIO], less, ours[:, BOUND]])
    return _shown(title, rows, columns, table)


def _what_brings_what(rows: tuple[str, ...], means: Floats) -> Sheet:
    tasks = means[:, :, REJECTED]
    columns = {
        "best single": _best(means)[:, REJECTED],
        f"best single in {ROUNDS} rounds": _best(means, IN_ROUNDS)[:, REJECTED],
        "portfolio, one round": tasks[:, ONE_ROUND],
        "portfolio, declines nobody": tasks[:, DECLINES_NOBODY],
        "portfolio": tasks[:, PORTFOLIO],
    }
    title = "Tasks rejected: what rounds bring, and what declining brings"
    return _shown(title, rows, tuple(columns), np.column_stack(list(columns.values())))


def _load_plot(settings: list[Setting], means: Floats) -> Plot:
    plain = [
        k
        for k, s in enumerate(settings)
        if (s.preset, s.mode, s.setup, s.ratio) == ("one100", "literal", 0.0, None)
    ]
    loads = np.array([settings[k].load for k in plain])
    tasks = means[plain, :, REJECTED]
    names = (*ADMITTING, "portfolio", "at least")
    lines = np.column_stack([tasks[:, SINGLE], tasks[:, PORTFOLIO], tasks[:, BOUND]])
    curves = tuple(Curve(name, loads, lines[:, k]) for k, name in enumerate(names))
    return Plot("load", "Tasks rejected, one100, literal gaps", "nominal load", "ratio", curves)


def _claims(parameters: Study, rows: tuple[str, ...], means: Floats) -> tuple[Claim, ...]:
    """Return the targets, each with the rows that come nearest to missing it."""
    ours, best = means[:, PORTFOLIO], _best(means)
    more, reduction = ours - best, _reduction(means)
    least_work = means[:, SINGLE, WORK].min(axis=1)
    single_rounds = _best(means, IN_ROUNDS)[:, REJECTED]
    bound = means[:, BOUND]

    def worst(values: Floats) -> str:
        order = np.argsort(-values, kind="stable")[:3]
        return ", ".join(f"{rows[k]}: {values[k]:+.3f}" for k in order)

    return (
        Claim(
            f"in no row more tasks are rejected than by the best single policy + "
            f"{parameters.more_tasks:g}",
            bool((more[:, REJECTED] <= parameters.more_tasks).all()),
            f"nearest {worst(more[:, REJECTED])}",
        ),
        Claim(
            f"on average {parameters.less:.0%} fewer tasks are rejected than by the best single "
            f"policy",
            bool(reduction.mean() >= parameters.less),
            f"mean {reduction.mean():.1%}, least {reduction.min():.1%}",
        ),
        Claim(
            f"in no row more work is rejected than by the best single policy + "
            f"{parameters.more_work:g}",
            bool((more[:, WORK] <= parameters.more_work).all()),
            f"nearest {worst(more[:, WORK])}",
        ),
        Claim(
            f"nor than by the single policy that rejects least work + {parameters.more_work:g}",
            bool((ours[:, WORK] - least_work <= parameters.more_work).all()),
            f"nearest {worst(ours[:, WORK] - least_work)}",
            why="no target: declining large tasks trades work for tasks, most so with set-up costs",
        ),
        Claim(
            f"in no row more tasks are rejected than by the best single policy in {ROUNDS} "
            f"rounds + {parameters.more_tasks:g}",
            bool((ours[:, REJECTED] - single_rounds <= parameters.more_tasks).all()),
            f"nearest {worst(ours[:, REJECTED] - single_rounds)}",
        ),
        Claim(
            "nobody beats the bound",
            bool((means[:, :BOUND] >= bound[:, None, :] - 1e-9).all()),
            f"portfolio above it by {np.mean(ours[:, REJECTED] - bound[:, REJECTED]):.3f} of the "
            f"tasks and {np.mean(ours[:, WORK] - bound[:, WORK]):.3f} of the work on average",
        ),
    )


def most_value(arrival: Floats, deadline: Floats, work: Floats, value: Floats, nodes: int) -> float:
    """Return the most that any schedule could finish, in the unit of `value`.

    Parameters
    ----------
    arrival, deadline : float64[n]
        Seconds.
    work : float64[n]
        Node-seconds that each task holds at least, > 0.
    value : float64[n]
        What finishing it counts: 1 for the number of tasks, its work for the work.
    nodes : int
        Nodes of the machine.

    Notes
    -----
    Amounts of work that fit are those that no interval overfills: for each, the amounts of the
    tasks whose windows lie within it come to at most nodes x length. They form a polymatroid, so
    that the greedy choice is the best one: tasks by value per node-second, each as much as still
    fits.

    References
    ----------
    Edmonds, 1970: Submodular functions, matroids, and certain polyhedra.
    """
    starts, first = np.unique(arrival, return_inverse=True)
    ends, last = np.unique(deadline, return_inverse=True)
    room = nodes * np.maximum(ends[None, :] - starts[:, None], 0.0)
    order = np.argsort(-value / work, kind="stable")
    done = _fill(room, first[order], last[order], work[order])
    return float((done / work[order] * value[order]).sum())


@compiled
def _fill(room: Floats, first: Integers, last: Integers, work: Floats) -> Floats:
    """Return how much of each task's work fits, one after the other; `room` is used up."""
    done = np.empty(len(work))
    for k in range(len(work)):
        amount = work[k]
        for a in range(first[k] + 1):
            for b in range(last[k], room.shape[1]):
                amount = min(amount, room[a, b])
        for a in range(first[k] + 1):
            for b in range(last[k], room.shape[1]):
                room[a, b] -= amount
        done[k] = amount
    return done
