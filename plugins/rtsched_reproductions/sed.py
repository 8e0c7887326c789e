"""Shortest expected delay: the worked example, states, limits and simulations of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

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
from rtsched_reproductions.sed_runs import (
    LEAST,
    MOST,
    SYSTEMS,
    VARIANTS,
    MappedCluster,
    State,
    diagram,
    ends_of_two,
    idle,
    means,
    saturated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.delays import MigrationCost

    Means = dict["Point", NDArray[np.float64]]

STATES: dict[tuple[int, str], str] = {
    (1, "SED"): "0 0 0 0; 0 0 0 30; 0 5 0 30; 5 0 0 0; 5 0 0 25; 0 0 0 25",
    (1, "SED-NU"): "0 0 0 0; 0 0 0 30; 0 5 0 30; 0 5 0 0",
    (2, "SED"): "0 0 0 0; 20 0 0 0; 20 0 0 10; 10 0 0 0; 10+10 0 0 0; 10+10 0 0 10",
    (2, "SED-NM"): "0 0 0 0; 20 0 0 0; 20 0 0 10; 0 0 0 10",
}
"""The states that the source draws: per delay class the sizes of the jobs in it."""


def _examples(jobs: int) -> tuple[tuple[Sheet, ...], tuple[Claim, ...]]:
    """Return worked example, timelines of two jobs and limits; claims on states and upgrades.

    `jobs` are those of each run in which jobs always wait.
    """
    return (_availability(), _delays(), _timelines(), _limits(jobs)), _example_claims(jobs)


def _example_claims(jobs: int) -> tuple[Claim, ...]:
    """Return whether the states are those that the source draws, and what upgrades are for."""
    found = []
    for (system, variant), drawn in STATES.items():
        states, _ = diagram(SYSTEMS[system], variant, LEAST, MOST)
        ours = {_written(state) for state in states}
        found.append(
            Claim(
                f"system {system} under {variant} has the states {drawn}",
                ours == set(drawn.split("; ")),
                "; ".join(sorted(ours)),
            )
        )
    with_upgrades = saturated(1, "SED", jobs, idle_first=False)[0]
    without = saturated(1, "SED-NU", jobs, idle_first=False)[0]
    found.append(
        Claim(
            "upgrades happen only when nobody waits (section 4 of the source)",
            bool(np.isclose(with_upgrades, without, rtol=0.01)),
            f"computing takes {with_upgrades:.0f} s with upgrades at each end, {without:.0f} s "
            "without",
            why="section 3 upgrades at each end, and the printed limits need that: else SED would "
            "be SED-NU while jobs wait",
        )
    )
    return tuple(found)


def _written(state: State) -> str:
    return " ".join("+".join(map(str, sizes)) if sizes else "0" for sizes in state)


def _example(**settings: bool) -> tuple[MappedCluster, MappedCluster]:
    """Return system 1 with one job of the paper's kind, and with two."""
    first = idle(SYSTEMS[1], **settings).assigned(1, LEAST, MOST)
    second = None if first is None else first.assigned(2, LEAST, MOST)
    if first is None or second is None:
        raise RuntimeError("an idle system has no room for a job")
    return first, second


def _availability() -> Sheet:
    first, both = _example(**VARIANTS["SED"])
    _, unadapted = _example(**VARIANTS["SED-NU"])
    rows = {
        "idle": (idle(SYSTEMS[1]), (5, 5, 5, 30)),
        "P1 runs": (first, (0, 5, 5, 5)),
        "P1 and P2 run": (both, (0, 0, 0, 0)),
        "P1 ended, SED": (both.terminated(1)[0], (0, 0, 0, 25)),
        "P1 ended, SED-NU": (unadapted.terminated(1)[0], (0, 5, 5, 30)),
        "P2 ended first": (both.terminated(2)[0], (0, 5, 5, 5)),
    }
    return Sheet(
        "Worked example on system 1: machines available per delay class",
        "section 3 of the source",
        tuple(rows),
        ("delay 1", "up to 2", "up to 3", "up to 4"),
        np.array([place.availability() for place, _ in rows.values()], np.float64),
        np.array([expected for _, expected in rows.values()], np.float64),
    )


def _delays() -> Sheet:
    _, both = _example(**VARIANTS["SED"])
    _, unadapted = _example(**VARIANTS["SED-NU"])
    rows = {
        "P1": (both.delays()[1], 4),
        "P2 beside P1": (both.delays()[2], 2),
        "P2 when P1 has ended, SED": (both.terminated(1)[0].delays()[2], 1),
        "P2 when P1 has ended, SED-NU": (unadapted.terminated(1)[0].delays()[2], 2),
        "P1 when P2 has ended": (both.terminated(2)[0].delays()[1], 4),
    }
    return Sheet(
        "Worked example on system 1: delays of the jobs",
        "section 3 of the source",
        tuple(rows),
        ("delay",),
        np.array([[ours] for ours, _ in rows.values()]),
        np.array([[expected] for _, expected in rows.values()], np.float64),
    )


def _timelines() -> Sheet:
    rows = {
        (1, "SED"): (800, 1600, 800),
        (1, "SED-NU"): (800, 2400, 800),
        (2, "SED"): (300, 962, 300),
        (2, "SED-NM"): (300, 2400, 300),
    }
    return Sheet(
        "Two jobs that arrive together, and one alone: when they end, s",
        "sections 3 and 4 of the source, by its rules",
        tuple(f"system {system}, {variant}" for system, variant in rows),
        ("first", "second", "alone"),
        np.array([ends_of_two(system, variant) for system, variant in rows]),
        np.array(list(rows.values()), np.float64),
        1e-6,
    )


def _limits(jobs: int) -> Sheet:
    rows = {
        "system 1, SED-NU, states (0,5,0,30)": (1, "SED-NU", False, 1200.0, 5 / 3),
        "system 1, SED, states (5,0,0,25)": (1, "SED", False, 9600 / 9, 1.875),
        "system 2, SED-NM, states (20,0,0,10)": (2, "SED-NM", False, 4800 / 9, 3.75),
        "system 2, SED, states (10+10,0,0,10)": (2, "SED", True, 800.0, 3.75),
    }
    kinds = [(2400.0, 800.0), (1200.0, 960.0), (2400.0, 300.0), (2400.0, 600.0)]
    """Longest and shortest computing time in each row's states, seconds."""
    seen = jobs * 3 // 5
    ours = [saturated(row[0], row[1], jobs, row[2]) for row in rows.values()]
    return Sheet(
        "While jobs always wait: mean computing time, s, and throughput, jobs/1000 s",
        "section 4 of the source (it prints about 1060 for 1066.7)",
        tuple(rows),
        ("computing", "throughput"),
        np.array(ours),
        np.array([row[3:] for row in rows.values()]),
        np.array(
            [
                [(most - least) / seen, row[4] / seen]
                for row, (most, least) in zip(rows.values(), kinds, strict=True)
            ]
        ),
        basis=f"one job more or less of one kind among the {seen} that are observed",
    )


NAN = float("nan")
OTHER = {1: "SED-NU", 2: "SED-NM"}
"""What SED is compared with on each system."""
TABLES: dict[int, dict[float, tuple[float, ...]]] = {
    1: {
        0.1: (843, 1, 842, 907, 1, 905, 0.07),
        0.4: (963, 24, 939, 1136, 33, 1104, 0.18),
        0.8: (1135, 121, 1013, 1378, 182, 1196, 0.20),
        1.2: (1426, 377, 1049, 1866, 655, 1211, 0.14),
        1.6: (2433, 1370, 1063, 6226, 5024, 1202, 0.06),
        1.8: (5543, 4477, 1066, NAN, NAN, NAN, 0.02),
    },
    2: {
        0.25: (340, 0, 339, 429, 1, 428, 0.06),
        0.5: (381, 2, 379, 522, 4, 518, 0.12),
        1.0: (467, 9, 458, 626, 22, 604, 0.20),
        2.0: (679, 75, 605, 721, 121, 600, 0.28),
        2.6: (884, 211, 673, 853, 274, 579, 0.24),
        3.0: (1133, 423, 710, 1042, 483, 559, 0.19),
        3.6: (2905, 2200, 705, 2784, 2245, 539, 0.05),
    },
}
"""Residence, wait and computing of SED and of the other variant, s; share upgraded or migrated."""
STEADY = {1: 1.2, 2: 2.6}
"""Rates up to which three runs of 3000 jobs agree to a few percent."""
CROSSINGS: dict[MigrationCost, float] = {"serial": 1.97, "parallel": 2.25, "none": 2.35}
PRINTED_CROSSING = 2.3
MEDIUM = 1.875
"""Jobs per 1000 s; half of what system 2 gets done while jobs wait."""
BEHIND = 3
"""Runs of 3000 jobs behind each expected value."""
BASIS = f"{CHANCE}, of the difference from a mean of {BEHIND} runs; half a unit of the last digit"


class Point(NamedTuple):
    """One point of the simulation."""

    system: int
    variant: str
    rate: float
    cost: MigrationCost = "serial"


class Study(Parameters, frozen=True):
    """Extent of the study."""

    seeds: Annotated[int, Meta(ge=2)] = 5
    """Runs that are averaged."""
    jobs: Annotated[int, Meta(ge=50)] = 3000
    """Jobs per run."""
    saturated: Annotated[int, Meta(ge=10)] = 400
    """Jobs of each run in which jobs always wait."""
    steady_only: bool = False
    """Whether to leave out the rates near saturation."""
    crossing_rates: tuple[float, ...] = (1.6, 1.8, 2.0, 2.2, 2.4, 2.6)
    """Rates between which the crossing of the computing times is looked for."""

    def rates(self, system: int) -> list[float]:
        """Return the rates at which a system is simulated."""
        return [rate for rate in TABLES[system] if rate <= STEADY[system] or not self.steady_only]

    def points(self) -> list[Point]:
        """Return what is simulated, each point once."""
        points = [
            Point(system, variant, rate)
            for system in TABLES
            for rate in self.rates(system)
            for variant in ("SED", OTHER[system])
        ]
        for rate in self.crossing_rates:
            points.append(Point(2, "SED-NM", rate))
            points += [Point(2, "SED", rate, cost) for cost in CROSSINGS]
        return list(dict.fromkeys(points))


class Sed:
    """SED against SED-NU (no upgrades) and SED-NM (no migrations) on the source's two systems.

    Expected values of the simulations are those of an independent implementation, since the source
    shows curves only; limits and worked examples follow from the source's rules.
    """

    name: ClassVar[str] = "sed"
    source: ClassVar[str] = (
        "Schnor, Petri, Oleyniczak, Langendoerfer: Scheduling of Parallel Applications on "
        "Heterogeneous Workstation Clusters, 1996"
    )
    full: ClassVar[Study] = Study()
    reduced: ClassVar[Study] = Study(seeds=5, jobs=100, steady_only=True, crossing_rates=())

    def parts(self, parameters: Study) -> list[Part]:
        """First the examples, then one part per point and seed."""
        return [Part(_examples, {"jobs": parameters.saturated})] + [
            Part(
                means,
                {
                    "system": point.system,
                    "variant": point.variant,
                    "rate": point.rate,
                    "jobs": parameters.jobs,
                    "seed": seed,
                    "cost": point.cost,
                },
            )
            for point in parameters.points()
            for seed in range(parameters.seeds)
        ]

    def findings(self, parameters: Study, results: Sequence[Any]) -> Findings:
        """Return the examples, both tables, the crossing points and the claims."""
        seeds, (example_sheets, example_claims) = parameters.seeds, results[0]
        runs = {
            point: np.array(results[1 + k * seeds : 1 + (k + 1) * seeds])
            for k, point in enumerate(parameters.points())
        }
        found = {point: values.mean(axis=0) for point, values in runs.items()}
        sheets = [*example_sheets, *(_table(system, parameters, runs) for system in TABLES)]
        if len(parameters.crossing_rates) > 1:
            sheets.append(_crossing_sheet(parameters, runs))
        plots = [_plot(system, parameters, found) for system in TABLES]
        plots.append(_speed_up_plot(parameters, found))
        claims = (*example_claims, *_claims(parameters, found))
        return Findings(tuple(sheets), claims, tuple(plots))


def _table(system: int, parameters: Study, found: Means) -> Sheet:
    """Compare means of float64[seed, measure] by point with the expected ones.

    The source draws the share of processes and prints no number of it.
    """
    rates, moved = parameters.rates(system), ("upgraded", "migrated")[system - 1]
    shares, runs = [2 + system, 4 + system], []
    for rate in rates:
        sed, other = found[Point(system, "SED", rate)], found[Point(system, OTHER[system], rate)]
        runs.append(np.column_stack([sed[:, :3], other[:, :3], sed[:, shares]]))
    half = np.array([0.5] * 6 + [0.005] * 2)
    return Sheet(
        f"System {system}: residence, wait and computing",
        "section 5 of the source; expected values of an independent implementation",
        tuple(f"{rate:g} jobs/1000 s" for rate in rates),
        (
            *(f"{name} {what}" for name in ("SED", OTHER[system]) for what in _TIMES),
            f"jobs {moved}",
            f"processes {moved}",
        ),
        np.array([values.mean(axis=0) for values in runs]),
        np.array([(*TABLES[system][rate], NAN) for rate in rates]),
        np.array([chance(values, BEHIND) for values in runs]) + half,
        basis=BASIS,
    )


_TIMES = ("residence", "wait", "computing")


def _crossing(parameters: Study, found: Means, cost: MigrationCost) -> float:
    """Return the rate at which SED computes as long as SED-NM, nan: not between those simulated."""
    rates = np.array(parameters.crossing_rates)
    lead = np.array(
        [
            found[Point(2, "SED", rate, cost)][2] - found[Point(2, "SED-NM", rate)][2]
            for rate in parameters.crossing_rates
        ]
    )
    above = np.flatnonzero((lead[:-1] < 0) & (lead[1:] >= 0))
    if not len(above):
        return NAN
    at = int(above[0])
    part = -lead[at] / (lead[at + 1] - lead[at])
    return float(rates[at] + part * (rates[at + 1] - rates[at]))


def _crossing_sheet(parameters: Study, runs: Means) -> Sheet:
    """Compare the crossings of the mean curves; the spread is that of each run's own crossing."""
    found = {point: values.mean(axis=0) for point, values in runs.items()}
    single = np.array(
        [
            [
                _crossing(parameters, {point: values[seed] for point, values in runs.items()}, cost)
                for cost in CROSSINGS
            ]
            for seed in range(parameters.seeds)
        ]
    )
    return Sheet(
        "System 2: rate at which SED computes as long as SED-NM, jobs/1000 s",
        "section 5 of the source prints about 2.3; expected values of an independent "
        "implementation",
        tuple(f"cost {cost}" for cost in CROSSINGS),
        ("crossing",),
        np.array([[_crossing(parameters, found, cost)] for cost in CROSSINGS]),
        np.array([[value] for value in CROSSINGS.values()]),
        np.nan_to_num(chance(single, BEHIND, 0.005))[:, None],
        basis=f"{BASIS}; 0 where a run has no crossing between these rates",
    )


def _plot(system: int, parameters: Study, found: Means) -> Plot:
    """Return residence and computing at the rates at which both variants are stable."""
    rates = [rate for rate in parameters.rates(system) if np.isfinite(TABLES[system][rate]).all()]
    curves = tuple(
        Curve(
            f"{variant} {what}",
            np.array(rates),
            np.array([found[Point(system, variant, rate)][column] for rate in rates]),
        )
        for variant in ("SED", OTHER[system])
        for column, what in ((0, "residence"), (2, "computing"))
    )
    return Plot(f"system{system}", f"System {system}", "jobs per 1000 s", "mean, s", curves)


def _speed_ups(system: int, parameters: Study, found: Means) -> dict[float, float]:
    """Return the residence under the other variant over that under SED, by rate."""
    rates = parameters.rates(system)
    points = [(Point(system, OTHER[system], rate), Point(system, "SED", rate)) for rate in rates]
    values = [float(found[other][0] / found[sed][0]) for other, sed in points]
    return dict(zip(rates, values, strict=True))


def _speed_up_plot(parameters: Study, found: Means) -> Plot:
    """Return figure 6, at the rates at which both variants are stable."""
    curves = []
    for system, table in TABLES.items():
        values = _speed_ups(system, parameters, found)
        stable = [rate for rate in values if np.isfinite(table[rate]).all()]
        label = f"against {OTHER[system]}, system {system}"
        curves.append(Curve(label, np.array(stable), np.array([values[rate] for rate in stable])))
    return Plot("speed-up", "Speed-up of SED", "jobs per 1000 s", "residence ratio", tuple(curves))


def _claims(parameters: Study, found: Means) -> tuple[Claim, ...]:
    """Return what the source says of its simulations, tested on ours: float64[7] by point."""
    first = {rate: found[Point(1, "SED", rate)] for rate in parameters.rates(1)}
    second = {rate: found[Point(2, "SED", rate)] for rate in parameters.rates(2)}
    still = {rate: found[Point(2, "SED-NM", rate)] for rate in parameters.rates(2)}
    upgrading, migrating = (_speed_ups(system, parameters, found) for system in TABLES)
    claims = [
        _below_limit(first),
        _rises(
            "residence(SED-NU) / residence(SED) grows with the load on system 1",
            upgrading,
        ),
        Claim(
            "upgrades shorten the residence on system 1 at every load: the speed-up, "
            "residence(SED-NU) over residence(SED), is above 1 (erratum: printed with SED in both "
            "places)",
            all(value > 1 for value in upgrading.values()),
            _listed(upgrading, ".2f"),
        ),
        Claim(
            "migrations shorten the residence on system 2 substantially, by 10 %, at low and "
            f"medium load (figure 6; up to {MEDIUM:g} jobs/1000 s, half the saturated throughput)",
            all(value > 1.1 for rate, value in migrating.items() if rate <= MEDIUM),
            _listed(migrating, ".2f"),
        ),
        _falls(
            "the share of upgraded processes falls as the load grows on system 1 (figure 3)",
            {rate: row[5] for rate, row in first.items()},
        ),
        Claim(
            "migrations make jobs wait less on system 2",
            all(second[rate][1] <= still[rate][1] for rate in second),
            _listed({rate: second[rate][1] - still[rate][1] for rate in second}, "+.0f", " s"),
        ),
        Claim(
            "migrations shorten computing at low load on system 2",
            all(second[rate][2] < still[rate][2] for rate in second if rate <= 1.0),
            _listed({rate: second[rate][2] - still[rate][2] for rate in second}, "+.0f", " s"),
        ),
    ]
    if not parameters.steady_only:
        claims += _claims_of_high_load(first, second, still)
    if len(parameters.crossing_rates) > 1:
        at = _crossing(parameters, found, "serial")
        claims.append(
            Claim(
                f"the computing times cross at about {PRINTED_CROSSING:g} jobs/1000 s",
                abs(at - PRINTED_CROSSING) <= 0.05,
                f"at {at:.2f} with the pause of 137 s that the source's own formula gives",
                why="the source charged less than its formula, or did not count the pause as "
                "computing: see the crossings with cheaper migrations",
            )
        )
    return tuple(claims)


def _claims_of_high_load(first: Any, second: Any, still: Any) -> list[Claim]:
    return [
        _rises_then_falls(
            "the share of upgraded jobs", {rate: row[3] for rate, row in first.items()}
        ),
        _rises_then_falls(
            "the share of migrated jobs", {rate: row[4] for rate, row in second.items()}
        ),
        _rises_then_falls(
            "the share of migrated processes (figure 5)",
            {rate: row[6] for rate, row in second.items()},
        ),
        Claim(
            "migrations lengthen computing at high load on system 2",
            all(second[rate][2] > still[rate][2] for rate in second if rate >= 2.6),
            _listed({rate: second[rate][2] - still[rate][2] for rate in second}, "+.0f", " s"),
        ),
    ]


def _below_limit(rows: dict[float, NDArray[np.float64]]) -> Claim:
    values = {rate: float(row[2]) for rate, row in rows.items()}
    limit = 9600.0 / 9.0
    times = list(values.values())
    return Claim(
        "computing under SED stays below 1066.7 s on system 1 and grows towards it",
        max(times) < limit and times[-1] > times[0],
        _listed(values, ".0f", " s"),
    )


def _rises(text: str, values: dict[float, float]) -> Claim:
    steps = np.diff(list(values.values()))
    return Claim(text, bool((steps > 0).all()), _listed(values, ".2f"))


def _falls(text: str, values: dict[float, float]) -> Claim:
    steps = np.diff(list(values.values()))
    return Claim(
        text,
        bool((steps < 0).all()),
        _listed(values, ".3f"),
        why="hardly a job runs beside another at low load, so that there is little to upgrade; the "
        "source's reason, that upgrades wait for an empty queue, contradicts its section 3",
    )


def _rises_then_falls(what: str, values: dict[float, float]) -> Claim:
    shares = np.array(list(values.values()))
    top = int(np.argmax(shares))
    rises, falls = np.diff(shares[: top + 1]) > 0, np.diff(shares[top:]) < 0
    holds = bool(rises.all() and falls.all() and 0 < top < len(shares) - 1)
    return Claim(f"{what} rises with the load and then falls", holds, _listed(values, ".2f"))


def _listed(values: dict[float, float], form: str, unit: str = "") -> str:
    return ", ".join(f"{rate:g}: {value:{form}}{unit}" for rate, value in values.items())
