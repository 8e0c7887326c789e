"""He, Jarvis, Spooner, Nudd, IEEE CLUSTER 2003: new task graphs beside periodic jobs.

Only the slides of the talk survive, without numbers. The worked values follow from its definitions;
the table that we compare with is that of an independent implementation with drawings of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from rtsched.kernels.edf import NEVER, hyperperiods
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
from rtsched_plugins.kernels.spare import (
    PeriodicSet,
    demand,
    earliest_finish,
    spare,
    spare_from,
    spare_literal,
)
from rtsched_reproductions.spare_runs import (
    SPEEDS,
    Job,
    Scene,
    Task,
    admit_jobs,
    differs,
    machines_of,
    share_that_differs,
    study,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GAPS = (30.0, 15.0, 8.0)
EXPECTED = (
    (1.00, 11.1, 0.17, 0.81, 33.0, 0.20),
    (1.00, 13.1, 0.35, 0.69, 32.8, 0.32),
    (0.97, 17.2, 0.68, 0.72, 35.3, 0.59),
)
"""Ratio, response and use, response-first and utilisation-first, by gap; two seeds."""
HALF_DIGITS = (0.005, 0.05, 0.005, 0.005, 0.05, 0.005)
"""Half a unit of the last digit of the expected values, by column."""
BEHIND = 2
"""Drawings behind each expected value."""
COLUMNS = ("RF ratio", "RF response", "RF use", "UF ratio", "UF response", "UF use")
DRAWN = (
    "neither task lengths, graphs nor messages behind the expected values are given: ours draws 3 "
    "to 9 slots at speed 1, up to two predecessors and messages of 0 to 3 slots"
)
SCENES: dict[str, Scene] = {
    **{f"gap {gap:g}": Scene(gap) for gap in GAPS},
    "larger tasks": Scene(8.0, work=12),
    "larger messages": Scene(8.0, message=12),
    "equal machines": Scene(8.0, speeds=(1.425,) * 4),
    "very unequal machines": Scene(8.0, speeds=(0.5, 0.7, 1.0, 3.5)),
}


def periodic(*jobs: tuple[int, ...]) -> PeriodicSet:
    """Return synchronous periodic jobs (C, T) or (C, T, d)."""
    rows = np.array([(job[0], job[1], job[-1]) for job in jobs], np.int64).reshape(-1, 3)
    cost, period, relative = rows.T
    return PeriodicSet(cost, period, relative, np.zeros(len(rows), np.int64))


def finish_at(jobs: PeriodicSet, cost: int) -> int:
    """Return the earliest finish of a task that comes at slot 0."""
    work = machines_of([jobs], 1)
    hyper, used = hyperperiods(work)
    return int(earliest_finish(work, 0, 0, 0, cost, NEVER, hyper[0], used[0]))


def worked_values() -> list[tuple[str, float, float]]:
    """Return what is worked by hand: a label, our value and the expected one."""
    first, second = periodic((2, 5), (3, 10)), periodic((5, 10, 8), (2, 6, 3))
    errs = periodic((2, 3), (2, 8))

    def at(slot: int) -> NDArray[np.int64]:
        return np.array([slot])

    graph = (Job(0, 0, 10, (Task(0, (2, 4), ()),)),)
    places = [
        admit_jobs([periodic((1, 2)), periodic()], graph, 40, last).said[0].places[0]
        for last in (False, True)
    ]
    online = spare_from(machines_of([first], 0), 0, 0, np.array([1, 2, 10, 11]))
    return [
        ("P(5) of (2,5), (3,10)", float(demand(first, at(5))[0]), 2),
        ("P(10)", float(demand(first, at(10))[0]), 7),
        ("S(10)", float(spare(first, at(10))[0]), 3),
        ("S(11)", float(spare(first, at(11))[0]), 6),
        ("S(20)", float(spare(first, at(20))[0]), 6),
        ("S(0, 1) on-line", float(online[0]), 1),
        ("S(0, 10) on-line", float(online[2]), 3),
        ("finish of 4 slots at 0", finish_at(first, 4), 11),
        ("finish of 3 slots at 0", finish_at(first, 3), 3),
        ("literal S(1) of (5,10,d=8), (2,6,d=3)", float(spare_literal(second, at(1))[0]), 1),
        ("exact S(1)", float(spare(second, at(1))[0]), 0),
        ("literal S(4) of (2,3), (2,8)", float(spare_literal(errs, at(4))[0]), 2),
        ("exact S(4)", float(spare(errs, at(4))[0]), 1),
        ("finish of 2 slots at 0 beside them", finish_at(errs, 2), 10),
        ("machine of task a, RF", places[0][0], 0),
        ("finish of task a, RF", places[0][2], 3),
        ("machine of task a, UF", places[1][0], 1),
        ("finish of task a, UF", places[1][2], 4),
    ]


def smaller_examples(periods: int) -> list[tuple[int, int, int, int]]:
    """Return pairs (C, T, C', T') with T <= T' < `periods` for which the printed S is too large."""
    found = []
    for second in range(2, periods):
        for first in range(2, second + 1):
            for a in range(1, first):
                for b in range(1, second):
                    fits = a * second + b * first <= first * second
                    if fits and differs(np.array([a, b]), np.array([first, second])):
                        found.append((a, first, b, second))
    return found


class Spare:
    """Worked values and errata of spare capability, and response- against utilisation-first."""

    class Parameters(Parameters, frozen=True):
        """Settings."""

        seeds: Annotated[int, Meta(ge=2, description="Drawings per row of the table.")] = 200
        jobs: Annotated[int, Meta(gt=1, description="Graphs per drawing.")] = 18
        sets: Annotated[int, Meta(gt=0, description="Random periodic sets, for the errata.")] = 5000

    name: ClassVar[str] = "spare"
    source: ClassVar[str] = (
        "He, Jarvis, Spooner and Nudd, Dynamic scheduling of parallel real-time jobs by modelling "
        "spare capabilities in heterogeneous clusters, IEEE CLUSTER 2003"
    )
    full: ClassVar[Parameters] = Parameters()
    reduced: ClassVar[Parameters] = Parameters(seeds=25, sets=600)

    def parts(self, parameters: Parameters) -> list[Part]:
        """Return one part per row of the table and per claim about it, and the small ones."""
        given = {"jobs": parameters.jobs, "seeds": range(parameters.seeds)}
        drawn = [Part(study, {"scene": scene, **given}) for scene in SCENES.values()]
        share = Part(share_that_differs, {"sets": parameters.sets, "seed": 0})
        return [*drawn, share, Part(worked_values), Part(smaller_examples, {"periods": 9})]

    def findings(self, parameters: Parameters, results: Sequence[Any]) -> Findings:
        """Return the worked values, the table and the claims."""
        *drawn, share, worked, smaller = results
        found = dict(zip(SCENES, drawn, strict=True))
        mean = {name: values.mean(0)[:, :3] for name, values in found.items()}
        claims = [*_of_errata(smaller), *_of_selection(mean), *_of_load(mean)]
        missed = int(sum(values[..., 3].sum() for values in found.values()))
        runs = sum(len(values) for values in found.values()) * 2
        never = Claim(
            "no deadline is missed, of periodic jobs and of admitted tasks",
            missed == 0,
            f"{missed} missed in {runs} runs",
        )
        return Findings(
            (_worked_sheet(worked), _share_sheet(share, parameters.sets), _table(found)),
            (never, *claims),
            (_ratio_plot(mean),),
        )


def _worked_sheet(worked: Sequence[tuple[str, float, float]]) -> Sheet:
    return Sheet(
        "Worked values",
        "definitions of the slides, worked by hand",
        tuple(row[0] for row in worked),
        ("value",),
        np.array([[row[1]] for row in worked], np.float64),
        np.array([[row[2]] for row in worked], np.float64),
    )


def _share_sheet(share: float, sets: int) -> Sheet:
    rounding = 1 / 8.5 - 1 / 9
    return Sheet(
        "Random synchronous sets for which the printed S(t) is too large",
        "independent count; two to four jobs, periods up to 12",
        ("share",),
        ("value",),
        np.array([[share]]),
        np.array([[1.0 / 9.0]]),
        3.0 * (share * (1.0 - share) / sets) ** 0.5 + rounding,
        basis=f"three standard errors of a share of {sets} sets; about one in nine: 8.5 to 9.5",
    )


def _table(found: dict[str, NDArray[np.float64]]) -> Sheet:
    """Compare means of float64[seed, selection, measure] by scene with the expected ones."""
    rows = [f"gap {gap:g}" for gap in GAPS]
    runs = np.array([found[row][..., :3].reshape(-1, 6) for row in rows])
    return Sheet(
        "Guarantee ratio, mean response (slots) and spare utilisation by mean gap",
        f"independent implementation; four machines of speeds {', '.join(map(str, SPEEDS))}",
        tuple(rows),
        COLUMNS,
        runs.mean(axis=1),
        np.array(EXPECTED),
        np.array([chance(row, BEHIND) for row in runs]) + HALF_DIGITS,
        dict.fromkeys(rows, DRAWN),
        f"{CHANCE}, of the difference from a mean of {BEHIND} runs; half a unit of the last digit",
    )


def _of_errata(smaller: Sequence[tuple[int, int, int, int]]) -> list[Claim]:
    shown = "; ".join(f"({a}, {t}), ({b}, {u})" for a, t, b, u in smaller[:3])
    return [
        Claim(
            "the printed S(t), by each job's next deadline, is safe",
            not differs(np.array([2, 2]), np.array([3, 8])),
            "(2, 3), (2, 8): printed S(4) = 2, but deadline 9 leaves 1 slot",
            why="a later deadline may be tighter: the least over all later deadlines is needed",
        ),
        Claim(
            "(2, 3), (2, 8) is the smallest example of that",
            not [pair for pair in smaller if pair[3] < 8],
            f"with shorter periods: {shown}" if smaller else "no shorter one found",
            why="(2, 4), (3, 6) fills the machine and has periods of at most 6",
        ),
    ]


def _of_selection(mean: dict[str, NDArray[np.float64]]) -> list[Claim]:
    rows = [mean[f"gap {gap:g}"] for gap in GAPS]
    ratio = np.array([row[:, 0] for row in rows])
    response = np.array([row[:, 1] for row in rows])
    use = np.array([row[:, 2] for row in rows])
    return [
        Claim(
            "response-first has the lower mean response",
            bool((response[:, 0] < response[:, 1]).all()),
            f"RF {_list(response[:, 0])}, UF {_list(response[:, 1])} slots",
        ),
        Claim(
            "utilisation-first has about three times the response at light load",
            bool(2.5 < response[0, 1] / response[0, 0] < 3.5),
            f"{response[0, 1] / response[0, 0]:.1f} times",
        ),
        Claim(
            "with jobs of several tasks response-first has the higher guarantee ratio",
            bool((ratio[:, 0] > ratio[:, 1]).all()),
            f"RF {_list(ratio[:, 0])}, UF {_list(ratio[:, 1])}",
        ),
        Claim(
            "the spare utilisation of utilisation-first is higher only at light load",
            bool(use[0, 1] > use[0, 0] and use[2, 1] < use[2, 0]),
            f"RF {_list(use[:, 0])}, UF {_list(use[:, 1])}",
        ),
    ]


def _of_load(mean: dict[str, NDArray[np.float64]]) -> list[Claim]:
    ratio = {name: float(values[:, 0].mean()) for name, values in mean.items()}
    by_gap = [ratio[f"gap {gap:g}"] for gap in GAPS]
    use = [float(mean[f"gap {gap:g}"][:, 2].mean()) for gap in GAPS]
    base, unequal = ratio["gap 8"], ratio["very unequal machines"]
    equal = ratio["equal machines"]
    return [
        Claim(
            "the guarantee ratio falls with load",
            by_gap == sorted(by_gap, reverse=True),
            f"{_list(by_gap)} at gaps 30, 15, 8, mean of both selections",
        ),
        Claim("the spare utilisation rises with load", use == sorted(use), _list(use)),
        *(
            Claim(
                f"{name}: the guarantee ratio falls",
                ratio[name] < base,
                f"{base:.3f} to {ratio[name]:.3f} at gap 8",
            )
            for name in ("larger tasks", "larger messages")
        ),
        Claim(
            "more heterogeneity: the guarantee ratio falls",
            equal > base > unequal,
            f"{equal:.3f} equal, {base:.3f} unequal, {unequal:.3f} very unequal, same total speed",
            why="not where the total speed is kept: the fast machine also shortens the longest "
            "path of a graph; the slides do not say what is kept",
        ),
    ]


def _list(values: Sequence[float] | NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _ratio_plot(mean: dict[str, NDArray[np.float64]]) -> Plot:
    gaps = np.array(GAPS)
    rows = np.array([mean[f"gap {gap:g}"][:, 0] for gap in GAPS])
    return Plot(
        "spare-ratio",
        "Jobs guaranteed, by how often they come",
        "mean slots between jobs",
        "guarantee ratio",
        (
            Curve("response-first", gaps, rows[:, 0]),
            Curve("utilisation-first", gaps, rows[:, 1]),
        ),
    )
