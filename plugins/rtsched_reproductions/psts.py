"""PSTS: the worked example, the best dimension, crossover points, times and speed-up.

The source prints crossover points of a machine that it does not describe. Their absolute values
cannot be had again; what they say (more axes are never worse, more work lowers the point) can. Of
figures 4 to 6 no number is left, only what the text says of them.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from rtsched.api import ShapeError
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
from rtsched_plugins.kernels.scan_grid import (
    best_dimension,
    busiest,
    link_costs,
    overhead,
    sides,
    traffic,
)
from rtsched_plugins.kernels.scans import (
    INDEX,
    MAJORITY,
    PROPORTIONAL,
    at_home,
    balanced,
    edges,
    exchanged,
    loads,
    placed,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_SHAPE = (3, 6)
_POWER = np.array([3, 4, 5, 2, 1, 5, 1, 2, 2, 1, 1, 3, 5, 1, 4, 2, 6, 2])
LOAD = np.array(
    [250, 300, 150, 100, 50, 150, 200, 300, 100, 400, 300, 700, 200, 50, 50, 200, 300, 200]
)
FINAL = (240, 320, 400, 160, 80, 400, 80, 160, 160, 80, 80, 240, 400, 80, 320, 160, 480, 160)
_COLUMNS = tuple(f"node {column}" for column in range(1, 7))


def steps(shape: Sequence[int]) -> int:
    """Return the communication steps of one run, 2(Σ n_i - d); so many computing steps too."""
    return 2 * (sum(shape) - len(shape))


def slowest(load: Ints, power: Ints) -> Fraction:
    """Return max L_i/τ_i over nodes with power, exactly; 0 without any load.

    Raises
    ------
    ShapeError
        If a node without power holds work, which it never ends.
    """
    real = power > 0
    if load[~real].any():
        raise ShapeError("a node without power holds work")
    if not load.any():
        return Fraction(0)
    time = load[real] / power[real]
    near = np.flatnonzero(time >= time.max() * (1 - 1e-12))
    pairs = zip(load[real][near].tolist(), power[real][near].tolist(), strict=True)
    return max(Fraction(units, strength) for units, strength in pairs)


def imbalance(load: Ints, power: Ints) -> Fraction:
    """Return I = max(L_i/τ_i)/(W/Π) - 1, over nodes with power; 0 without any load."""
    total = int(load.sum())
    if total == 0:
        return Fraction(0)
    return slowest(load, power) * int(power.sum()) / total - 1


def crossover(cost: Fraction | float, load: Ints, power: Ints) -> Fraction:
    """Return I*: the imbalance above which a run of this cost pays, cost/(W/Π).

    Parameters
    ----------
    cost : Fraction or float
        Time of the run's steps and of its migrations.
    load, power : int64[n]
        Units and units per time of each node.

    Raises
    ------
    ShapeError
        If there is no work: nothing can pay then.
    """
    total = int(load.sum())
    if total == 0:
        raise ShapeError("without work there is no crossover point")
    return Fraction(cost) * int(power.sum()) / total


def speed_up(load: Ints, power: Ints, cost: Fraction | float) -> Fraction:
    """Return how many times sooner all is done than on one node of mean power.

    Parameters
    ----------
    load : int64[n]
        Units per node after balancing.
    power : int64[n]
        Units per time; nodes of power 0 are virtual and do not count.
    cost : Fraction or float
        Time of the balancing run itself, its migrations included.

    Raises
    ------
    ShapeError
        If there is no work.
    """
    total = int(load.sum())
    if total == 0:
        raise ShapeError("without work there is no speed-up")
    alone = Fraction(total * int(np.count_nonzero(power)), int(power.sum()))
    return alone / (slowest(load, power) + Fraction(cost))


class _Level(NamedTuple):
    """The exchange between the rows: of each row load, power and load to reach, and what leaves."""

    total: Ints
    power: Ints
    target: Ints
    leaving: Ints
    """int64[3, 6]: units that leave each node."""


def _exchange() -> _Level:
    """Return the exchange between the rows of the example."""
    total, power = (each.reshape(_SHAPE).sum(axis=1) for each in (LOAD, _POWER))
    runs = exchanged(1, _SHAPE[0], at_home(LOAD), _POWER, PROPORTIONAL)
    away = runs.src // _SHAPE[1] != runs.dst // _SHAPE[1]
    leaving = np.bincount(runs.src[away], runs.units[away], len(LOAD)).astype(np.int64)
    target = np.diff(edges(total.sum(), power))
    return _Level(total, power, target, leaving.reshape(_SHAPE))


def findings() -> Findings:
    """Return the tables of the example and the statements about it."""
    level = _exchange()
    sheets = (_first_row(), _rows(level), _sender(level), _receiver_scan(), _units(level), _final())
    return Findings(sheets, _slips(level))


def _sheet(title: str, source: str, rows: dict[str, tuple[object, Sequence[float]]]) -> Sheet:
    ours = np.array([np.asarray(row[0], np.float64) for row in rows.values()])
    expected = np.array([row[1] for row in rows.values()], np.float64)
    columns = _COLUMNS[: expected.shape[1]]
    return Sheet(title, source, tuple(rows), columns, ours, expected)


def _first_row() -> Sheet:
    power, load = _POWER[:6], LOAD[:6]
    return _sheet(
        "Scans of row 1",
        "worked example, table 1",
        {
            "power scan": (scan(power)[:-1], (0, 3, 7, 12, 14, 15)),
            "normalised powers": (power / power.sum(), (0.15, 0.2, 0.25, 0.1, 0.05, 0.25)),
            "λ": (scan(power)[:-1] / power.sum(), (0, 0.15, 0.35, 0.6, 0.7, 0.75)),
            "load scan": (scan(load)[:-1], (0, 250, 550, 700, 800, 850)),
        },
    )


def _rows(level: _Level) -> Sheet:
    total, power, target = level.total, level.power, level.target
    found = _sheet(
        "The three rows",
        "worked example, table 2",
        {
            "total load": (total, (1000, 2000, 1000)),
            "λ": (scan(power)[:-1] / power.sum(), (0, 0.4, 0.6)),
            "load scan": (scan(total)[:-1], (0, 1000, 3000)),
            "target": (target, (1600, 800, 1600)),
            "excess": (total - target, (-600, 1200, -600)),
        },
    )
    return Sheet(
        found.title,
        found.source,
        found.rows,
        ("row 1", "row 2", "row 3"),
        found.ours,
        found.expected,
    )


def _sender(level: _Level) -> Sheet:
    leaving = level.leaving[1]
    blocks = scan(np.maximum(level.target - level.total, 0))[:-1]
    order = scan(leaving)[:-1]
    within = order - blocks[np.searchsorted(blocks, order, "right") - 1]
    stays = LOAD[6:12] - leaving
    return _sheet(
        "Row 2 as sender",
        "worked example, tables 3 and 4 (the text announces table 4 as the receivers' result)",
        {
            "M, units that leave": (leaving, (120, 180, 60, 240, 180, 420)),
            "S.M, anew at each receiver": (within, (0, 120, 300, 360, 0, 180)),
            "units that stay": (stays, (80, 120, 40, 160, 120, 280)),
            "scan of these": (scan(stays)[:-1], (0, 80, 200, 240, 400, 520)),
        },
    )


def _receiver_scan() -> Sheet:
    power = _POWER[12:]
    own = scan(power)[:-1] / power.sum()
    return _sheet(
        "λ of row 3", "worked example, table 5", {"λ": (own, (0, 0.25, 0.3, 0.5, 0.6, 0.9))}
    )


def _landing(level: _Level, row: int, at: int) -> tuple[int, int, float]:
    """Return sender, receiver and place of a unit in the block of one receiving row."""
    block = int((level.target - level.total)[row])
    bounds = edges(block, _POWER.reshape(_SHAPE)[row])[:-1]
    receiver = 6 * row + int(np.searchsorted(bounds, at, "right")) - 1
    before = int(scan(np.maximum(level.target - level.total, 0))[row])
    leaving = scan(level.leaving.ravel())
    sender = int(np.searchsorted(leaving, before + at, "right")) - 1
    return sender, receiver, at / block


def _units(level: _Level) -> Sheet:
    """Follow unit 100 of v22 and unit 200 of v26."""
    first, second = _landing(level, 0, 220), _landing(level, 2, 380)
    return Sheet(
        "Two units on their way (nodes by row and column)",
        "worked example, table 5 and text",
        ("unit 100 of v22", "unit 200 of v26"),
        ("sender", "place in λ", "receiver"),
        np.array([[_name(s), place, _name(r)] for s, r, place in (first, second)]),
        np.array([[22, 0.367, 13], [26, 0.633, 35]]),
        tolerance=5e-4,
        basis="half a unit of the last printed digit",
    )


def _name(node: int) -> float:
    """Return a node's number as the source writes it: row, then column, from 1."""
    return float(10 * (node // 6 + 1) + node % 6 + 1)


def _final() -> Sheet:
    after = loads(balanced(np.array(_SHAPE), LOAD, _POWER, PROPORTIONAL), len(LOAD)).reshape(_SHAPE)
    rows = {
        f"row {k + 1}": (after[k], np.array(FINAL).reshape(_SHAPE)[k].tolist()) for k in range(3)
    }
    return _sheet("Loads at the end", "worked example: 80 times the power everywhere", rows)


def _slips(level: _Level) -> tuple[Claim, ...]:
    senders = [_name(_landing(level, row, at)[0]) for row, at in ((0, 220), (2, 380))]
    most, moved = int(np.prod(_SHAPE[:-1])), [12, 16]
    return (
        Claim(
            f"The two units of the example leave v{moved[0]} and v{moved[1]}.",
            senders == moved,
            f"they leave v{senders[0]:.0f} and v{senders[1]:.0f}",
            why="A slip of the text: row 2 is the only sender.",
        ),
        Claim(
            "The number of nodes is the product of all sides but one.",
            most == len(LOAD),
            f"{most} against {len(LOAD)} nodes",
            why="A slip of the text: all sides are multiplied.",
        ),
    )


NODES = (2, 4, 8, 16, 32, 64)
LINE_POINTS = (1.0057, 0.6736, 0.4622, 2.0316, 2.7028, 3.0457)
BEST_POINTS = (1.0057, 0.2058, 0.2979, 1.6069, 2.4228, 2.8701)
ARRIVAL_POINTS = (0.20333, 0.15937, 0.13593, 0.12421, 0.11835, 0.11591)
ARRIVAL_STEP, ARRIVAL_MOVE = 0.1125 / 2, 0.1125 + 0.1875
"""Step time (p + q) and migration time that the printed one-arrival points amount to."""
LEAST_STEPS = {2: (1, 2, 2), 3: (2, 4, 4), 4: (2, 4, 6), 5: (3, 6, 8), 8: (3, 6, 14)} | {
    16: (4, 8, 30),
    18: (5, 10, 34),
    32: (5, 10, 62),
    64: (6, 12, 126),
}
"""Best dimension, its steps, and those of a line, by number of nodes."""
UNKNOWN_MACHINE = (
    "The printed points come from a machine whose step times, link and task sizes are not given."
)


class Extent(Parameters, frozen=True, forbid_unknown_fields=True):
    """How much is run."""

    seeds: Annotated[int, Meta(ge=2)] = 100
    """Random task sets per point."""
    tasks: Annotated[int, Meta(gt=0)] = 4000
    """Tasks of each set (paper: 4000)."""
    mean_units: Annotated[float, Meta(gt=1)] = 50.0
    """Mean work of a task, units."""
    mean_packets: Annotated[float, Meta(gt=1)] = 10.0
    """Mean packets of a task."""
    packet_time: Annotated[float, Meta(ge=0)] = 0.01
    """Time one packet takes over a link: bits/bandwidth."""
    step_time: Annotated[float, Meta(ge=0)] = 1.0
    """Time of a communication and of a computing step (p, q)."""
    powers: Annotated[int, Meta(gt=0)] = 10
    """Powers are drawn from 1 to this."""


class Measured(NamedTuple):
    """What comes of one task set on one grid."""

    crossover: float
    imbalance: float
    """Of the placement at random."""
    speed_up: float
    """Over one node of mean power."""
    time: float
    """Of the run's steps and migrations."""
    gain: float
    """Time in which all is done as placed at random, over that with the run."""


def experiment(seed: int, nodes: int, law: str, extent: Extent) -> dict[str, Measured]:
    """Return what is measured of one task set, by grid.

    Parameters
    ----------
    seed, nodes : int
        The draw, and the number of real nodes.
    law : 'uniform' or 'poisson'
        How sizes and packets of tasks are distributed.
    extent : Extent
        Tasks, means, times.

    Returns
    -------
    mapping of 'line', 'best' and 'more' to Measured
        `more` is the best grid with every task there twice.
    """
    found = {}
    for name, axes, times in (("line", 1, 1), ("best", 0, 1), ("more", 0, 2)):
        random = np.random.default_rng([seed, nodes, law == "poisson"])
        shape = sides(nodes, axes)
        power = np.zeros(int(np.prod(shape)), np.int64)
        power[:nodes] = random.integers(1, extent.powers + 1, nodes)
        units = np.repeat(_drawn(random, law, extent.mean_units, extent.tasks), times)
        packets = np.repeat(_drawn(random, law, extent.mean_packets, extent.tasks), times)
        owner = np.repeat(random.integers(0, nodes, extent.tasks), times)
        node = placed(np.array(shape), owner, units, power, MAJORITY, INDEX)
        before = np.bincount(owner, units, len(power)).astype(np.int64)
        after = np.bincount(node, units, len(power)).astype(np.int64)
        cost = overhead(shape, extent.step_time, extent.step_time)
        cost += _migration(shape, owner, node, packets, extent.packet_time)
        faster = speed_up(after, power, cost)
        found[name] = Measured(
            float(crossover(cost, before, power)),
            float(imbalance(before, power)),
            float(faster),
            cost,
            float(faster / speed_up(before, power, 0)),
        )
    return found


def _drawn(random: np.random.Generator, law: str, mean: float, count: int) -> NDArray[np.int64]:
    """Return sizes of at least 1 with a mean."""
    if law == "poisson":
        return 1 + random.poisson(mean - 1, count)
    return random.integers(1, round(2 * mean), count)


def _migration(
    shape: tuple[int, ...],
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    packets: NDArray[np.int64],
    packet_time: float,
) -> float:
    """Return the time that the busiest link of a whole grid needs for what moves."""
    passing = traffic(np.array(shape), src, dst, packets.astype(np.float64))
    none = np.empty((0, 2), np.int32)
    speed = 1.0 / packet_time if packet_time else 0.0
    return busiest(passing, link_costs(shape, np.arange(0), none, np.empty(0), speed))


class Psts:
    """Savvas and Kechadi: scans over grids of nodes."""

    name: ClassVar[str] = "psts"
    source: ClassVar[str] = (
        "Savvas and Kechadi, Dynamic Task Scheduling in Computing Cluster Environments"
    )
    full: ClassVar[Parameters] = Extent()
    reduced: ClassVar[Parameters] = Extent(seeds=5, tasks=800)

    def parts(self, parameters: Extent) -> Sequence[Part]:
        """Return one part per law, number of nodes and seed."""
        return [
            Part(experiment, {"seed": seed, "nodes": n, "law": law, "extent": parameters})
            for law in ("uniform", "poisson")
            for n in NODES
            for seed in range(parameters.seeds)
        ]

    def findings(self, parameters: Extent, results: Sequence[object]) -> Findings:
        """Return the example's tables, steps, crossover points, claims and the figures."""
        kinds = ("line", "best", "more")
        values = np.array([[row[kind] for kind in kinds] for row in results])  # type: ignore[index]
        values = values.reshape(2, len(NODES), parameters.seeds, len(kinds), -1)
        # each float64[law, nodes, seed, kind]
        by_kind = dict(zip(Measured._fields, np.moveaxis(values, -1, 0), strict=True))
        means = {name: each.mean((0, 2)) for name, each in by_kind.items()}
        example = findings()
        return Findings(
            (*example.sheets, _dimensions(), _crossovers(by_kind["crossover"]), _arrivals()),
            (
                *example.claims,
                _least(),
                *_directions(by_kind["crossover"]),
                *_of_figures(by_kind, parameters.step_time),
            ),
            (_time_figure(means), _gain_figure(means), _speed_figure(means), _point_figure(means)),
        )


def _dimensions() -> Sheet:
    rows = tuple(LEAST_STEPS)
    ours = [[best_dimension(n), steps(sides(n)), steps(sides(n, 1))] for n in rows]
    labels = tuple(f"{n} nodes" for n in rows)
    table6 = np.array([[4.0 if n in {32, 64} else np.nan] for n in rows])
    return Sheet(
        "Best dimension and steps",
        "section on the optimal dimension, and table 6",
        labels,
        ("dimension", "its steps", "steps of a line", "dimension in table 6"),
        np.hstack([ours, np.array(ours)[:, :1]]).astype(np.float64),
        np.hstack([np.array(list(LEAST_STEPS.values()), np.float64), table6]),
        why={
            f"{n} nodes": "Table 6 was made with 4 axes, against the source's own proposition."
            for n in (32, 64)
        },
    )


def _crossovers(points: Floats) -> Sheet:
    """Compare the mean points, of float64[law, nodes, seed, kind], with the printed ones."""
    runs = points[..., :2].mean(axis=0)
    labels = tuple(f"{n} nodes" for n in NODES)
    return Sheet(
        "Crossover points",
        "tables of crossover points",
        labels,
        ("line", "best dimension"),
        runs.mean(axis=1),
        np.array([LINE_POINTS, BEST_POINTS]).T,
        chance(np.moveaxis(runs, 1, 0), 0, 5e-5),
        dict.fromkeys(labels, UNKNOWN_MACHINE),
        f"{CHANCE} and half a unit of the last printed digit; how many runs are behind the "
        "printed values is not known, so nothing is added for them",
    )


def _arrivals() -> Sheet:
    """Compare the points of one arriving task with those of two fitted times."""
    ours = []
    for n in NODES:
        cost = 2 * (n - 1) * ARRIVAL_STEP + ARRIVAL_MOVE
        full = np.full(n, n)
        ours.append([float(crossover(cost, full, np.ones(n, np.int64)))])
    return Sheet(
        "Crossover points of one arriving task, on a line",
        "table of crossover points, one arrival",
        tuple(f"{n} nodes" for n in NODES),
        ("crossover",),
        np.array(ours),
        np.array(ARRIVAL_POINTS)[:, None],
        tolerance=1e-5,
        basis="a unit of the last printed digit, since the printed values seem to be cut off",
        fitted="the time of a step and that of the migration, to these six points: "
        "0.1125 + 0.1875/n",
    )


def _least() -> Claim:
    """Compare with the fewest steps of any grid, by trying every side."""
    fewest = {1: 0}
    for n in range(2, 129):
        fewest[n] = min(side - 1 + fewest[-(-n // side)] for side in range(2, n + 1))
    wrong = [n for n in fewest if steps(sides(n)) != 2 * fewest[n]]
    return Claim(
        "No grid with room for n nodes has fewer steps than 2 ceil(log2 n).",
        not wrong,
        f"all grids tried for n = 1 to {max(fewest)}; {len(wrong)} differ",
    )


def _directions(points: Floats) -> tuple[Claim, ...]:
    line, best, more = points[..., 0], points[..., 1], points[..., 2]
    worse, higher = int((best > line + 1e-12).sum()), int((more >= best).sum())
    on_average = best.mean((0, 2)) <= line.mean((0, 2)) + 1e-12
    return (
        Claim(
            "For no number of nodes the best dimension has a higher crossover point than the line.",
            bool(on_average.all()),
            f"means {best.mean():.4f} and {line.mean():.4f}; higher in {worse} of {line.size} "
            "single task sets, where the busiest link happens to carry more",
        ),
        Claim(
            "The crossover point falls as work grows.",
            higher == 0,
            f"{higher} of {best.size} task sets; means {best.mean():.4f}, with every task twice "
            f"{more.mean():.4f}",
        ),
    )


def _of_figures(values: dict[str, Floats], step: float) -> tuple[Claim, ...]:
    """Return what the text says of figures 4 to 6."""
    time, gain = (each[..., :2].mean(axis=0) for each in (values["time"], values["gain"]))
    (line, best), gains = time.mean(axis=1).T, gain.mean(axis=1).T[1]
    saved = time[..., 0] - time[..., 1]
    clear = saved.mean(axis=1) > chance(np.moveaxis(saved, 1, 0))
    on_line, on_grid = (
        _by_nodes(np.array([overhead(sides(n, axes), step, step) for n in NODES]), 0)
        for axes in (1, 0)
    )
    return (
        Claim(
            "The time of a run falls as nodes are added, on a line (figure 4).",
            bool((np.diff(line) < 0).all()),
            f"{_by_nodes(line, 1)}; of it steps {on_line}",
            "it contradicts equation 8, by which the steps take 2(n - 1)(p + q)",
        ),
        Claim(
            "The time of a run falls as nodes are added, in the best dimension (figure 5).",
            bool((np.diff(best) < 0).all()),
            f"{_by_nodes(best, 1)}; of it steps {on_grid}",
            "by equation 12 the steps take more; only the migrations, over more links, take less",
        ),
        Claim(
            "In the best dimension a run takes clearly less time than on a line (figures 4, 5).",
            bool(clear[1:].all()),
            f"{_by_nodes(saved.mean(axis=1), 1)} less; clearly: by three standard errors",
        ),
        Claim(
            "The relative speed-up falls as nodes are added (figure 6).",
            bool((np.diff(gains) < 0).all()),
            _by_nodes(gains, 2),
            "more nodes of unequal power are less balanced when placed at random",
        ),
    )


def _by_nodes(values: Floats, digits: int) -> str:
    return ", ".join(f"{n}: {value:.{digits}f}" for n, value in zip(NODES, values, strict=True))


def _figure(name: str, title: str, label: str, curves: dict[str, Floats]) -> Plot:
    nodes = np.array(NODES, np.float64)
    return Plot(name, title, "nodes", label, tuple(Curve(k, nodes, y) for k, y in curves.items()))


def _time_figure(means: dict[str, Floats]) -> Plot:
    curves = {"line": means["time"][:, 0], "best dimension": means["time"][:, 1]}
    return _figure("time", "Time of a run (figures 4 and 5)", "units of time", curves)


def _gain_figure(means: dict[str, Floats]) -> Plot:
    curves = {"line": means["gain"][:, 0], "best dimension": means["gain"][:, 1]}
    return _figure("gain", "Relative speed-up (figure 6)", "time without over with a run", curves)


def _speed_figure(means: dict[str, Floats]) -> Plot:
    labels = ("line", "best dimension", "best dimension, every task twice")
    curves = {label: means["speed_up"][:, k] for k, label in enumerate(labels)}
    one = {"one per node": np.array(NODES, np.float64)}
    return _figure("speed-up", "Speed-up over one node of mean power", "speed-up", one | curves)


def _point_figure(means: dict[str, Floats]) -> Plot:
    curves = {
        "line": means["crossover"][:, 0],
        "best dimension": means["crossover"][:, 1],
        "line, printed": np.array(LINE_POINTS),
        "best dimension, printed": np.array(BEST_POINTS),
        "imbalance when placed at random": means["imbalance"][:, 1],
    }
    return _figure("crossover", "Imbalance above which a scan pays", "crossover point", curves)
