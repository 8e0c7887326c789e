"""MCDF and its baselines: reject and miss ratios of the source's simulation, and its claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from rtsched.kernels import dlt
from rtsched.kernels.loads import Load
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import PapersMcdf
from rtsched.replay.workload import prepare
from rtsched.reproduce import (
    CHANCE,
    Claim,
    Curve,
    Findings,
    Parameters,
    Part,
    Plot,
    Sheet,
    chance,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ADMITTING = ("mcdf", "fifo-mn", "edf-mn", "fifo-an", "edf-an")
SERIAL = ("fifo-anna", "edf-anna")


class Setting(NamedTuple):
    """One point of the simulation study."""

    preset: str
    mode: str
    load: float
    setup: float = 0.0
    ratio: float | None = None
    """cms over cps, in place of the preset's."""

    def __str__(self) -> str:
        setup = f", ST = SC = {self.setup:g}" if self.setup else ""
        return f"{self.preset} {self.mode} {self.load:g}{setup}"


PRINTED: dict[Setting, tuple[float, ...]] = {
    Setting("one100", "literal", 0.1): (0.399, 0.301, 0.189, 0.393, 0.139, 0.528, 0.341),
    Setting("one100", "literal", 0.3): (0.572, 0.568, 0.506, 0.596, 0.476, 0.993, 0.993),
    Setting("one100", "literal", 0.5): (0.697, 0.738, 0.694, 0.751, 0.692, 0.994, 0.995),
    Setting("one100", "literal", 0.7): (0.767, 0.825, 0.783, 0.827, 0.795, 0.994, 0.995),
    Setting("one100", "literal", 1.0): (0.822, 0.883, 0.851, 0.885, 0.864, 0.995, 0.996),
    Setting("one100", "normalised", 0.3): (0.339, 0.232, 0.115, 0.340, 0.076, 0.412, 0.171),
    Setting("one100", "normalised", 1.0): (0.476, 0.419, 0.319, 0.478, 0.259, 0.854, 0.812),
    Setting("equal10", "literal", 0.1): (0.234, 0.174, 0.131, 0.759, 0.675, 0.886, 0.871),
    Setting("equal10", "literal", 0.5): (0.383, 0.335, 0.293, 0.842, 0.799, 0.999, 0.999),
    Setting("equal10", "literal", 1.0): (0.498, 0.481, 0.455, 0.896, 0.872, 0.999, 0.999),
    Setting("equal10", "literal", 2.0): (0.665, 0.675, 0.667, 0.940, 0.931, 0.999, 0.999),
    Setting("equal10", "literal", 3.0): (0.756, 0.785, 0.777, 0.962, 0.957, 0.999, 0.999),
    Setting("equal10", "normalised", 0.5): (0.228, 0.170, 0.127, 0.757, 0.670, 0.877, 0.858),
    Setting("equal10", "normalised", 1.0): (0.271, 0.214, 0.171, 0.782, 0.710, 0.982, 0.983),
}
"""Mean ratios of an independent implementation: 3 seeds of about 1500 tasks, 16 nodes."""

SETUPS = (0.0, 5.0, 10.0, 15.0, 20.0)
RATIOS: dict[float, tuple[float, ...]] = {
    0.01: (0.40, 0.64, 0.77, 0.82),
    0.1: (0.35, 0.54, 0.66, 0.74),
    1.0: (0.23, 0.35, 0.44, 0.50),
    10.0: (0.14, 0.25, 0.33, 0.40),
    20.0: (np.nan,) * 4,
    100.0: (0.11, 0.22, 0.31, 0.38),
}
"""Mean reject ratios of mcdf by cms:cps and load, of the same implementation."""
RATIO_LOADS = (0.1, 0.4, 0.7, 1.0)
INSENSITIVE = 20.0
"""cms:cps beyond which the source's figure 10 shows no sensitivity to load."""
READ = 0.02
"""How well a reject ratio can be read off a figure."""
LOADS = (0.1, 0.3, 0.5, 0.7, 1.0)
HEAVY = LOADS[-1]
"""Load of the set-up study for which values are expected."""


class Study(Parameters, frozen=True):
    """Extent of the study."""

    seeds: Annotated[int, Meta(ge=2)] = 20
    """Runs that are averaged; 8 times as many of misses, a quarter of points with set-up costs for
    which no value is expected."""
    jobs: Annotated[int, Meta(ge=50)] = 1500
    """Tasks per run."""
    nodes: Annotated[int, Meta(ge=1)] = 16
    """Nodes of the cluster."""
    rows: Annotated[int, Meta(ge=1)] = len(PRINTED)
    """Rows of the main table."""
    variations: bool = True
    """Whether to run the set-up and the cms:cps studies too."""


def workload_of(setting: Setting, jobs: int, nodes: int, seed: int) -> Any:
    """Return one synthetic workload of the study, ready for replay."""
    costs: dict[str, Any] = {}
    if setting.ratio is not None:
        costs = {"cms": 1.0, "cps": 1.0 / setting.ratio}
    generator = PapersMcdf(
        jobs=jobs,
        nodes=nodes,
        seed=seed,
        preset=setting.preset,  # type: ignore[arg-type]
        mode=setting.mode,  # type: ignore[arg-type]
        load=setting.load,
        setup=setting.setup,
        **costs,
    )
    return prepare(generator.log(), WorkloadOptions())


def ratios(
    setting: Setting, policies: Sequence[str], jobs: int, nodes: int, seed: int
) -> NDArray[np.float64]:
    """Return per policy the reject ratio and the rejected work ratio, or the miss ratio twice.

    A policy that rejects nobody is measured by its misses: float64[p, 2].
    """
    workload = workload_of(setting, jobs, nodes, seed)
    found = []
    for name in policies:
        preset = presets()[name]
        run = replay(workload, name, preset, record_nodes=False)
        values = measure(workload, run.results)
        if preset.planner is None:
            found.append((values["miss_ratio"], values["miss_ratio"]))
        else:
            assert values["missed"] == 0, f"{name} broke a promise"  # noqa: S101
            found.append((values["reject_ratio"], values["rejected_work_ratio"]))
    return np.array(found, np.float64)


class Mcdf:
    """Reject ratios of MCDF and of FIFO and EDF with fewest or fastest nodes, misses without test.

    The source's own numbers are damaged: the expected values are those of an independent
    implementation of the same simulation.
    """

    name: ClassVar[str] = "mcdf"
    source: ClassVar[str] = (
        "Lin, Lu, Deogun, Goddard: Real-Time Divisible Load Scheduling for Cluster Computing, 2005"
    )
    full: ClassVar[Study] = Study()
    reduced: ClassVar[Study] = Study(seeds=5, rows=2, variations=False)

    def parts(self, parameters: Study) -> list[Part]:
        """One part per point and seed."""
        return [
            Part(
                ratios,
                {
                    "setting": setting,
                    "policies": policies,
                    "jobs": parameters.jobs,
                    "nodes": parameters.nodes,
                    "seed": seed,
                },
            )
            for setting, policies, seeds in _points(parameters)
            for seed in range(seeds)
        ]

    def findings(self, parameters: Study, results: Sequence[Any]) -> Findings:
        """Return the main table, the two variations and the source's claims."""
        runs: Runs = {}
        left = iter(results)
        for setting, policies, seeds in _points(parameters):
            ratio = np.array([next(left) for _ in range(seeds)])[:, :, 0]
            runs.setdefault(setting, {}).update(zip(policies, ratio.T, strict=True))
        means = {
            setting: {name: float(ratio.mean()) for name, ratio in of.items()}
            for setting, of in runs.items()
        }
        sheets = [_main_sheet(parameters, runs), _margin_sheet(parameters, means)]
        plots, claims = [_load_plot(parameters, means)], _claims(parameters, means)
        if parameters.variations:
            sheets += [_setup_sheet(runs), _setups_sheet(means), _ratio_sheet(runs)]
            plots += [*(_setup_plot(setup, means) for setup in SETUPS[1:]), _ratio_plot(means)]
            claims += (*_of_setup(runs), *_of_ratio(means))
        return Findings(tuple(sheets), claims, tuple(plots))


Runs = dict[Setting, dict[str, "NDArray[np.float64]"]]
"""Ratios of all runs, float64[seeds], by point and policy."""
Means = dict[Setting, dict[str, float]]

BEHIND = 3
"""Runs behind an expected value."""
BASIS = f"{CHANCE}, of the difference from a mean of {BEHIND} runs; half a unit of the last digit"


def _judged(
    title: str,
    source: str,
    rows: Sequence[str],
    columns: Sequence[str],
    runs: Sequence[Sequence[NDArray[np.float64]]],
    expected: NDArray[np.float64],
    digits: int,
) -> Sheet:
    """Return the means of cells' runs beside the expected values, with `digits` decimals."""
    half = 0.5 * 10.0**-digits
    return Sheet(
        title,
        source,
        tuple(rows),
        tuple(columns),
        np.array([[cell.mean() for cell in row] for row in runs]),
        expected,
        np.array([[chance(cell, BEHIND, half) for cell in row] for row in runs]),
        basis=BASIS,
    )


def _points(parameters: Study) -> list[tuple[Setting, tuple[str, ...], int]]:
    """Return what is simulated: settings, policies and runs; misses vary most and cost least."""
    seeds, rows = parameters.seeds, list(PRINTED)[: parameters.rows]
    points: list[tuple[Setting, tuple[str, ...], int]] = [(row, ADMITTING, seeds) for row in rows]
    points += [(row, SERIAL, 8 * seeds) for row in rows]
    if parameters.variations:
        judged = {_with_setup(SETUPS[0]), _with_setup(SETUPS[-1])}
        points += [
            (point, ADMITTING, seeds if point in judged else max(seeds // 4, 2))
            for point in (_with_setup(setup, load) for setup in SETUPS for load in LOADS)
            if point not in rows
        ]
        points += [
            (_of_ratio_at(ratio, load), ("mcdf",), seeds)
            for ratio in RATIOS
            for load in RATIO_LOADS
        ]
    return points


def _with_setup(setup: float, load: float = HEAVY) -> Setting:
    return Setting("one100", "literal", load, setup)


def _main_sheet(parameters: Study, runs: Runs) -> Sheet:
    rows, columns = list(PRINTED)[: parameters.rows], (*ADMITTING, *SERIAL)
    return _judged(
        f"Tasks rejected (left) or late (right two), {parameters.nodes} nodes",
        "section 6 of the source; expected values of an independent implementation",
        [str(row) for row in rows],
        columns,
        [[runs[row][name] for name in columns] for row in rows],
        np.array([PRINTED[row] for row in rows]),
        digits=3,
    )


def _margin_sheet(parameters: Study, means: Means) -> Sheet:
    """Compare what MCDF rejects less than the two that take all nodes with "about 10 %"."""
    rows, columns = list(PRINTED)[: parameters.rows], ("fifo-an", "edf-an")
    ours = np.array(
        [[1 - means[row]["mcdf"] / means[row][name] for name in columns] for row in rows]
    )
    return Sheet(
        "Part of the rejects of FIFO-AN and EDF-AN that MCDF avoids",
        "section 6.2 of the source: both are close to MCDF, which rejects about 10 % less",
        tuple(str(row) for row in rows),
        columns,
        ours,
        np.full(ours.shape, 0.1),
        0.05,
        basis='"about 10 %" is read as 5 to 15 % of their rejects',
    )


def _setup_sheet(runs: Runs) -> Sheet:
    cells = []
    for setup in SETUPS:
        ours, other = (runs[_with_setup(setup)][name] for name in ("mcdf", "fifo-an"))
        cells.append([ours, other, other - ours])
    expected = np.full((len(SETUPS), 3), np.nan)
    expected[0] = 0.826, np.nan, 0.060
    expected[-1] = 0.797, np.nan, 0.079
    return _judged(
        "Tasks rejected with set-up costs ST = SC (one100 literal 1)",
        "section 6 of the source; ends of the range by an independent implementation",
        [f"ST = SC = {setup:g}" for setup in SETUPS],
        ("mcdf", "fifo-an", "lead of mcdf"),
        cells,
        expected,
        digits=3,
    )


def _setups_sheet(means: Means) -> Sheet:
    rows = [_with_setup(setup, load) for setup in SETUPS for load in LOADS]
    ours = np.array([[means[row][name] for name in ADMITTING] for row in rows])
    return Sheet(
        "Tasks rejected by all, by set-up cost and load",
        "figures 4 and 6 to 9 of the source, of which no value is legible",
        tuple(map(str, rows)),
        ADMITTING,
        ours,
        np.full(ours.shape, np.nan),
    )


def _of_ratio_at(ratio: float, load: float) -> Setting:
    return Setting("one100", "literal", load, 0.0, ratio)


def _ratio_sheet(runs: Runs) -> Sheet:
    return _judged(
        "Tasks rejected by mcdf, by cms:cps and load (literal)",
        "section 6.4 of the source; expected values of an independent implementation",
        [f"cms:cps = {ratio:g}" for ratio in RATIOS],
        [f"load {load:g}" for load in RATIO_LOADS],
        [[runs[_of_ratio_at(ratio, load)]["mcdf"] for load in RATIO_LOADS] for ratio in RATIOS],
        np.array(list(RATIOS.values())),
        digits=2,
    )


def _load_plot(parameters: Study, means: Means) -> Plot:
    rows = [
        row
        for row in list(PRINTED)[: parameters.rows]
        if row.preset == "one100" and row.mode == "literal"
    ]
    loads = np.array([row.load for row in rows])
    curves = tuple(
        Curve(name, loads, np.array([means[row][name] for row in rows])) for name in ADMITTING
    )
    return Plot("load", "Tasks rejected, one100, literal gaps", "nominal load", "ratio", curves)


def _setup_plot(setup: float, means: Means) -> Plot:
    loads = np.array(LOADS)
    curves = tuple(
        Curve(name, loads, np.array([means[_with_setup(setup, load)][name] for load in LOADS]))
        for name in ADMITTING
    )
    title = f"Tasks rejected, ST = SC = {setup:g} (figure {5 + SETUPS.index(setup)})"
    return Plot(f"setup-{setup:g}", title, "nominal load", "ratio", curves)


def _ratio_plot(means: Means) -> Plot:
    loads = np.array(RATIO_LOADS)
    curves = tuple(
        Curve(
            f"cms:cps = {ratio:g}",
            loads,
            np.array([means[_of_ratio_at(ratio, load)]["mcdf"] for load in RATIO_LOADS]),
        )
        for ratio in RATIOS
    )
    return Plot("ratio", "Tasks rejected by mcdf (figure 10)", "nominal load", "ratio", curves)


def _claims(parameters: Study, means: Means) -> tuple[Claim, ...]:
    """Return what the source claims, tested."""
    rows = list(PRINTED)[: parameters.rows]
    late = {row: min(means[row][name] for name in SERIAL) for row in rows}
    heavy = [row for row in rows if row.mode == "literal" and row.load >= 0.3]
    lead = {
        row: min(means[row][name] for name in ADMITTING[1:]) - means[row]["mcdf"] for row in rows
    }
    claims = [
        Claim(
            "more than 99 % are late without an admission test, offered load above 1",
            bool(heavy) and min(late[row] for row in heavy) > 0.99,
            ", ".join(f"{row}: {late[row]:.3f}" for row in heavy),
            why="the first tasks find an idle machine; in a short run they are some of the 1 %",
        ),
        Claim(
            "MCDF rejects fewest at every load",
            all(value >= 0 for value in lead.values()),
            ", ".join(f"{row}: {value:+.3f}" for row, value in lead.items()),
            why="true under overload only: the cost derivative does not look at deadlines",
        ),
        _facts(),
    ]
    return tuple(claims)


def _of_setup(runs: Runs) -> tuple[Claim, ...]:
    """Return what section 6.3 says, tested at all loads: changes from no set-up to the largest."""
    change: dict[float, NDArray[np.float64]] = {}
    for load in LOADS:
        first, last = (runs[_with_setup(setup, load)] for setup in (SETUPS[0], SETUPS[-1]))
        both = min(len(first["mcdf"]), len(last["mcdf"]))  # equal seeds: equal tasks
        change[load] = np.array(
            [(last[name][:both] - first[name][:both]).mean() for name in ADMITTING]
        )
    lead = {
        _with_setup(setup, load): min(
            runs[_with_setup(setup, load)][name].mean() for name in ADMITTING[1:]
        )
        - runs[_with_setup(setup, load)]["mcdf"].mean()
        for setup in SETUPS[1:]
        for load in LOADS
    }
    table = np.array(list(change.values()))
    ours, others = table[:, :1], table[:, 1:]
    shown = "; ".join(
        f"load {load:g}: " + ", ".join(f"{x:+.3f}" for x in row) for load, row in change.items()
    )
    deadlines = "deadlines are drawn between execution times that contain the set-up costs"
    return (
        Claim(
            "with set-up costs MCDF rejects fewest at every load (figures 6 to 9)",
            all(value >= 0 for value in lead.values()),
            f"in {sum(value >= 0 for value in lead.values())} of {len(lead)} points; "
            + ", ".join(f"{row.load:g}/{row.setup:g}: {x:+.3f}" for row, x in lead.items()),
            why="true under overload only",
        ),
        Claim(
            "the rejects of the four others grow with set-up costs",
            bool((others > 0).all()),
            f"{(others > 0).sum()} of {others.size} grow; from 0 to {SETUPS[-1]:g}, of "
            f"{', '.join(ADMITTING)}: {shown}",
            why=deadlines,
        ),
        Claim(
            "the rejects of MCDF change less with set-up costs than those of the four others",
            bool((np.abs(ours) < np.abs(others)).all()),
            f"less than {(np.abs(ours) < np.abs(others)).sum()} of {others.size} above",
            why=deadlines,
        ),
        Claim(
            "the lead of MCDF over each of the four others grows with set-up costs",
            bool((others > ours).all()),
            f"{(others > ours).sum()} of {others.size} leads grow",
        ),
        Claim(
            f"the lead of MCDF over FIFO-AN grows with set-up costs at load {HEAVY:g}",
            bool(others[-1, ADMITTING.index("fifo-an") - 1] > ours[-1, 0]),
            f"by {others[-1, ADMITTING.index('fifo-an') - 1] - ours[-1, 0]:.3f}",
        ),
    )


def _of_ratio(means: Means) -> tuple[Claim, ...]:
    """Return what section 6.4 says: by how much rejects grow from the least load to the largest."""
    rise = {
        ratio: means[_of_ratio_at(ratio, RATIO_LOADS[-1])]["mcdf"]
        - means[_of_ratio_at(ratio, RATIO_LOADS[0])]["mcdf"]
        for ratio in RATIOS
    }
    beyond = [value for ratio, value in rise.items() if ratio > INSENSITIVE]
    evidence = "rise from load 0.1 to 1: " + ", ".join(f"{k:g}: {x:.3f}" for k, x in rise.items())
    steps = np.diff(list(rise.values()))
    return (
        Claim(
            "the larger cms:cps, the less MCDF's rejects depend on the load (figure 10)",
            bool((steps <= READ).all() and steps.sum() < -READ),
            f"{evidence}; a step up of {READ:g} could be read off a figure",
        ),
        Claim(
            f"beyond cms:cps = {INSENSITIVE:g} MCDF's rejects do not depend on the load",
            max(beyond) <= READ,
            f"{evidence}; up to {READ:g} could not be seen in a figure",
            why="load is measured in least execution times: at 1 the machine is full at any ratio",
        ),
    )


def _facts() -> Claim:
    """Return what is proved of E(n) and W(n), looked at on a grid of loads with set-up costs."""
    sizes = np.arange(1, 65)
    good, fastest = True, []
    for sigma in (1.0, 10.0, 100.0, 1000.0):
        load = Load(sigma, 1.0, 100.0, 20.0, 20.0)
        times = np.array([dlt.exec_time(int(n), load) for n in sizes])
        best = dlt.fastest_count(64, load)
        fastest.append(best)
        falls, rises = np.diff(times[:best]) < 0, np.diff(times[best - 1 :]) >= 0
        good &= bool(falls.all() and rises.all() and (np.diff(sizes * times) > 0).all())
    return Claim(
        "E(n) falls to the fastest count and rises after it, n E(n) always rises (T5.2, T5.3)",
        good,
        f"fastest counts {fastest} for loads of 1, 10, 100 and 1000 units",
    )
