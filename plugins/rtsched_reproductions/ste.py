"""Lopez and Raja, scheduling by service-time error: errors of three rules and of a reference.

The paper gives neither shares nor quantum nor the unit of its errors, so its figures cannot be
reproduced one by one; what can be tested is their order, and what it says of completion times and
cost. The expected table is that of an independent implementation with a quantum of 1 s.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from rtsched.kernels import sliced
from rtsched.kernels.compiling import plain
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
from rtsched.simulator.sliced import LOOPS, SLACK, deal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


EXPECTED: Mapping[Study, Sequence[float]] = {
    (100, 10, 2): (-27.9, 18.0, -9.2, 7.2, -1.6, 1.5, -1.0, 1.0),
    (100, 10, 3): (-23.8, 16.1, -11.6, 9.4, -2.0, 1.7, -1.1, 1.1),
    (100, 10, 5): (-23.5, 15.7, -15.8, 11.6, -2.4, 2.2, -1.0, 1.1),
    (100, 50, 2): (-10.8, 10.8, -5.4, 5.4, -0.5, 0.5, -0.7, 0.7),
    (1000, 50, 3): (-37.9, 21.3, -16.5, 11.6, -2.7, 2.6, -1.2, 1.2),
}
"""Least and greatest error per rule, mean over seeds; how many seeds is not said."""
SEEDS_BEHIND = 10
"""Seeds taken to stand behind the expected values, for the tolerance."""
BASIS = (
    f"{CHANCE}, of the difference from a mean of {SEEDS_BEHIND} runs, which is assumed; half a "
    "unit of the last digit"
)
PRINTED: Mapping[Study, Sequence[float]] = {
    (100, 50, 2): (-1.2, 0.899999, -0.79999, 0.83333, -0.5, 0.5),
    (1000, 50, 3): (-5.46, 6.941818, -4.56765, 5.6365, -3.27989, 3.970909),
}
"""The paper's table 3, by the study of ours that it may come nearest to."""
COMPLETIONS = (57.0, 83.0, 80.0)
"""Expected mean completion of FCFS, RR and STE in the second study."""
SECOND: Study = (100, 10, 3)
WIDEST = (1, 2, 3, 5, 10)


class Ste:
    """The errors of FCFS, round robin and STE, and the paper's claims about them."""

    class Parameters(Parameters, frozen=True):
        """Settings."""

        seeds: Annotated[int, Meta(gt=1)] = 200
        """Drawings per study."""
        quantum: Annotated[float, Meta(gt=0)] = 1.0
        """Longest slice, seconds."""
        arrivals: Annotated[int, Meta(ge=1000)] = 400_000
        """Tasks of the queue that is held against the formulas."""

    name: ClassVar[str] = "ste"
    source: ClassVar[str] = (
        "Lopez and Raja, A dynamic error based fair scheduling algorithm for a computational grid"
    )
    full: ClassVar[Parameters] = Parameters()
    reduced: ClassVar[Parameters] = Parameters(seeds=12, arrivals=100_000)

    def parts(self, parameters: Parameters) -> list[Part]:
        """One part per study, the two hand examples, and the queue."""
        given = {"seeds": parameters.seeds, "quantum": parameters.quantum}
        return [
            *(Part(serve, {"study": study, **given}) for study in _studies()),
            Part(hand_example, {"shares": (2, 1), "lengths": (4, 2)}),
            Part(hand_example, {"shares": (1, 1, 1), "lengths": (2, 2, 2)}),
            Part(waits, {"tasks": parameters.arrivals}),
        ]

    def findings(self, parameters: Parameters, results: Sequence[Any]) -> Findings:
        """Return the comparison."""
        del parameters
        studies = dict(zip(_studies(), results, strict=False))
        two, three, queue = results[len(studies) :]
        sheets = (_hand_sheet(two), _error_sheet(studies), _printed_sheet(studies))
        completion = _completion_sheet(studies[SECOND])
        claims = (*_error_claims(studies), *_time_claims(studies), _sequence_claim(three))
        plots = (_width_plot(studies), _hand_plot(two))
        return Findings((*sheets, completion, *_queue_sheets(queue)), claims, plots)


def _studies() -> list[Study]:
    return list(dict.fromkeys([*EXPECTED, *((100, 10, widest) for widest in WIDEST)]))


def _label(study: Study) -> str:
    tasks, queues, widest = study
    return f"{tasks}/{queues}, {f'1-{widest}' if widest > 1 else 'equal'}"


def _by_rule(labels: Sequence[str], rules: int) -> tuple[str, ...]:
    return tuple(f"{name} {label}" for name in list(NAMES)[:rules] for label in labels)


def _extremes(found: NDArray[np.float64], rules: int = 4) -> NDArray[np.float64]:
    """Return least and greatest error per rule, mean over seeds, float64[2 * rules]."""
    return np.asarray(found[:rules, :, : MOST_ERROR + 1].mean(axis=1).ravel(), np.float64)


def _tolerance(values: NDArray[np.float64], behind: int, rounding: float) -> NDArray[np.float64]:
    """Return the tolerances of means over seeds of values, float64[..., seed, k]: row by row."""
    return chance(np.moveaxis(values, -2, 0), behind, rounding)


def _width(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return greatest less least error, float64[rule, seed]."""
    return np.asarray(found[..., MOST_ERROR] - found[..., LEAST_ERROR], np.float64)


def _hand_sheet(slices: Sequence[tuple[int, Any, Any, Any]]) -> Sheet:
    """Shares 2 and 1, lengths 4 and 2, quantum 1."""
    third = 1 / 3
    error = (third, third, 0.0, third, third, -third)
    task = (0, 1, 0, 0, 1, 0)
    return Sheet(
        "Hand example: shares 2, 1, lengths 4, 2",
        "worked out by hand from figure 1",
        tuple(f"slice {k + 1}" for k in range(6)),
        ("task", "begin", "end", "its error"),
        np.array([[float(value) for value in entry] for entry in slices]),
        np.array([(task[k], k, k + 1, error[k]) for k in range(6)]),
    )


def _error_sheet(studies: Mapping[Study, NDArray[np.float64]]) -> Sheet:
    first = MOST_ERROR + 1
    return Sheet(
        "Errors, quanta",
        "expected: an independent implementation",
        tuple(_label(study) for study in EXPECTED),
        _by_rule(("min", "max"), 4),
        np.array([_extremes(studies[study]) for study in EXPECTED]),
        np.array(list(EXPECTED.values())),
        np.array(
            [
                _tolerance(studies[study][..., :first], SEEDS_BEHIND, 0.05).ravel()
                for study in EXPECTED
            ]
        ),
        basis=BASIS,
    )


def _printed_sheet(studies: Mapping[Study, NDArray[np.float64]]) -> Sheet:
    why = "the paper gives neither unit, shares nor quantum"
    rows = tuple(_label(study) for study in PRINTED)
    return Sheet(
        "Errors beside the printed ones",
        "table 3",
        rows,
        _by_rule(("min", "max"), 3),
        np.array([_extremes(studies[study], 3) for study in PRINTED]),
        np.array(list(PRINTED.values())),
        np.array(
            [
                _tolerance(studies[study][:3, :, : MOST_ERROR + 1], 0, 5e-4).ravel()
                for study in PRINTED
            ]
        ),
        dict.fromkeys(rows, why),
        f"{CHANCE} and half a unit of the third decimal; how many runs are behind the printed "
        "values is not known, so nothing is added for them",
    )


def _completion_sheet(found: NDArray[np.float64]) -> Sheet:
    ours = found[:3, :, COMPLETION].mean(axis=1)[:, None]
    return Sheet(
        f"Mean completion, s, {_label(SECOND)}",
        "expected: an independent implementation",
        tuple(NAMES)[:3],
        ("mean completion",),
        ours,
        np.array(COMPLETIONS)[:, None],
        _tolerance(found[:3, :, COMPLETION, None], SEEDS_BEHIND, 0.5),
        basis=BASIS,
    )


def _queue_sheets(queue: NDArray[np.float64]) -> list[Sheet]:
    """Hold the quoted wait, rho/(2 mu (1 - rho)), against a queue's, float64[2, load, batch, 2]."""
    load = np.array(LOADS)
    mean = queue.mean(axis=2)
    quoted = load * mean[..., 1] / (2 * (1 - load))
    rows = tuple(f"load {value:g}" for value in LOADS)
    why = "the formula is that of constant service; tasks of 1000-5000 MI wait longer"
    tasks = ("constant service", "service of 1000-5000 MI")
    return [
        Sheet(
            f"Mean wait, s, {what}",
            "equation 4",
            rows,
            ("mean wait",),
            mean[k, :, :1],
            quoted[k][:, None],
            _tolerance(queue[k, ..., :1], 0, 0.0),
            dict.fromkeys(rows, why) if k else {},
            f"{CHANCE}: {BATCHES} batches of one queue; the formula is exact",
        )
        for k, what in enumerate(tasks)
    ]


def _error_claims(studies: Mapping[Study, NDArray[np.float64]]) -> list[Claim]:
    claims = []
    for study in EXPECTED:
        width = _width(studies[study]).mean(axis=1)
        shown = " > ".join(f"{value:.2f}" for value in width[:3])
        holds = bool(width[FCFS] > width[RR] > width[STE])
        claims.append(Claim(f"errors of FCFS > RR > STE, {_label(study)}", holds, shown))
    wide, equal = _width(studies[100, 10, 10]), _width(studies[100, 10, 1])
    worse = np.mean(wide[RR] > wide[FCFS])
    least = max(np.abs(_extremes(studies[study])[6:]).max() for study in EXPECTED)
    two = studies[100, 50, 2][STE, :, : MOST_ERROR + 1]
    off = np.abs(np.abs(two) - 0.5).max()
    final = max(found[..., FINAL].max() for found in studies.values())
    return [
        *claims,
        Claim(
            "errors of FCFS > RR whatever the shares",
            bool(worse == 0),
            f"RR is worse in {worse:.0%} of the drawings with shares 1-10",
            why="round robin does not look at shares",
        ),
        Claim(
            "errors of RR > STE whatever the shares",
            bool(equal[RR].mean() > equal[STE].mean()),
            f"equal shares: {equal[RR].mean():.2f} and {equal[STE].mean():.2f}",
            why="with equal shares, turns are fair, and STE lets a task go on at an error of 0",
        ),
        Claim(
            "two tasks per queue: errors of STE are half a quantum either way, as printed",
            bool(off < 1e-9),
            f"largest difference from 1/2 in all drawings {off:.1e}",
        ),
        Claim(
            "the least-error rule keeps errors at about a quantum",
            bool(least < 1.5),
            f"largest mean extreme {least:.2f}",
        ),
        Claim(
            "final errors of each queue add up to 0",
            bool(final < 1e-6),
            f"largest sum {final:.1e} quanta",
        ),
    ]


def _time_claims(studies: Mapping[Study, NDArray[np.float64]]) -> list[Claim]:
    apart = max(np.ptp(found[..., MAKESPAN], axis=0).max() for found in studies.values())
    cost = max(np.ptp(found[..., BUSY], axis=0).max() for found in studies.values())
    means = {study: studies[study][..., COMPLETION].mean(axis=1) for study in EXPECTED}
    listed = "; ".join(
        f"{_label(study)}: " + ", ".join(f"{value:.1f}" for value in mean[:3])
        for study, mean in means.items()
    )
    late = {study: studies[study][..., LATE].mean(axis=1) for study in EXPECTED}
    shown = ", ".join(f"{part:.0%}" for part in late[SECOND][:3])
    after = f"of the tasks of {_label(SECOND)} so many are late under FCFS, RR, STE: {shown}"
    queues = "the queues are the same and no server idles"
    return [
        Claim("the makespan is equal under all rules", bool(apart < 1e-6), f"{apart:.1e} s apart"),
        Claim(
            "STE completes sooner on average than RR where shares differ",
            all(bool(mean[STE] < mean[RR]) for mean in means.values()),
            f"mean completion of FCFS, RR, STE: {listed}",
        ),
        Claim(
            "FCFS completes last, STE first (table 3)",
            all(bool(mean[FCFS] > mean[RR] > mean[STE]) for mean in means.values()),
            f"mean completion of FCFS, RR, STE: {listed}",
            why=f"{queues}, so the makespan is equal; the mean is least under FCFS",
        ),
        Claim(
            "the average cost depends on the rule (table 3)",
            bool(cost > 1e-6),
            f"busy time {cost:.1e} s apart",
            why=f"cost is not defined; as price times busy time it is equal, for {queues}",
        ),
        Claim(
            "each task gets enough to end by its deadline (abstract)",
            bool(late[SECOND][STE] == 0),
            f"with deadlines at the ideal finish in the first set of tasks, {after}",
            why="the rule knows no deadlines, and an error below 0 is a delay",
        ),
        Claim(
            "with deadlines at the ideal finish fewer are late under STE than under RR",
            all(bool(part[STE] < part[RR]) for part in late.values()),
            after,
        ),
    ]


def _sequence_claim(slices: Sequence[tuple[int, Any, Any, Any]]) -> Claim:
    order = " ".join("ABC"[entry[0]] for entry in slices)
    return Claim(
        "an error of exactly 0 keeps the server: shares 1, 1, 1, length 2 give A B C C A B",
        order == "A B C C A B",
        order,
    )


def _width_plot(studies: Mapping[Study, NDArray[np.float64]]) -> Plot:
    x = np.array(WIDEST, np.float64)
    widths = np.array([_width(studies[100, 10, widest]).mean(axis=1) for widest in WIDEST])
    curves = tuple(Curve(name, x, widths[:, rule]) for rule, name in enumerate(NAMES))
    title = "Greatest less least error, 100 tasks in 10 queues"
    return Plot("errors", title, "shares are drawn from 1 to", "quanta", curves)


def _hand_plot(slices: Sequence[tuple[int, Any, Any, Any]]) -> Plot:
    """Errors of both tasks of the hand example: on one server they mirror each other."""
    ran = np.array([entry[0] for entry in slices])
    end = np.array([0.0, *(float(entry[2]) for entry in slices)])
    error = np.array([float(entry[3]) for entry in slices])
    curves = tuple(
        Curve(name, end, np.array([0.0, *np.where(ran == task, error, -error)]))
        for task, name in enumerate(("A, share 2", "B, share 1"))
    )
    return Plot("hand", "Hand example: errors after each slice", "s", "s", curves)


NAMES = {"FCFS": "fcfs", "RR": "round-robin", "STE": "ste", "least-error": "least-error"}
"""The rules, in the order of the results' first axis."""
FCFS, RR, STE, LEAST = range(4)
LEAST_ERROR, MOST_ERROR, COMPLETION, MAKESPAN, FINAL, BUSY, LATE = range(7)
"""What is measured in each run: the results' last axis."""

Study = tuple[int, int, int]
"""Tasks, queues, widest share."""

LOADS = (0.3, 0.5, 0.7)
BATCHES = 20
"""Batches of consecutive tasks of a queue, each taken as a run of its own."""


class DrawnTasks(NamedTuple):
    """One drawing of the paper's frame: 200-400 MIPS, 1000-5000 MI, whole numbers."""

    share: NDArray[np.float64]
    service: NDArray[np.float64]
    server: NDArray[np.int64]


def draw(study: Study, seed: int) -> DrawnTasks:
    """Return the tasks of a study, all there from the start."""
    tasks, queues, widest = study
    random = np.random.default_rng(seed)
    mips, mi = random.integers(200, 401, queues), random.integers(1000, 5001, tasks)
    share = random.integers(1, widest + 1, tasks).astype(np.float64)
    server = deal(tasks, queues, "blocks")
    return DrawnTasks(share, mi / mips[server], server)


def serve(study: Study, seeds: int, quantum: float) -> NDArray[np.float64]:
    """Return float64[rule, seed, measure] of a study."""
    found = np.zeros((len(NAMES), seeds, 7))
    for seed in range(seeds):
        tasks = draw(study, seed)
        shares = np.bincount(tasks.server, tasks.share)[tasks.server]
        ideal = tasks.service * shares / tasks.share
        for rule, loop in enumerate(NAMES.values()):
            done = sliced.lay_out(
                tasks.share,
                np.zeros(study[0]),
                tasks.service,
                tasks.server,
                study[1],
                extremes=True,
            )
            sliced.run(done, LOOPS[loop], quantum, SLACK * quantum, np.inf)
            final = np.bincount(tasks.server, done.error)
            found[rule, seed] = (
                done.least.min() / quantum,
                done.most.max() / quantum,
                done.end.mean(),
                done.end.max(),
                np.abs(final).max() / quantum,
                done.got.sum(),
                np.mean(done.end > ideal + SLACK),
            )
    return found


def hand_example(shares: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, Any, Any, Any]]:
    """Return (task, begin, end, its error then) of every slice of STE, in exact fractions."""
    exact = [
        np.array([Fraction(value) for value in values], object) for values in (shares, lengths)
    ]
    count = len(shares)
    zero = np.array([Fraction(0)] * count, object)
    room = sum(lengths)
    servers = sliced.lay_out(
        exact[0], zero, exact[1], np.zeros(count, np.int64), 1, slices=room + 1
    )
    found = []
    for slices in range(room):
        plain(sliced.run)(servers, sliced.SERVICE_ERROR, Fraction(1), 0, slices + 2)
        row = int(servers.log_row[slices])
        error = servers.error[row]
        if error != error:  # nan: it goes on
            error = plain(sliced.error_of)(servers, 0, row)
        found.append((row, servers.log_begin[slices], servers.log_end[slices], error))
    return found


def wait(load: float, tasks: int, constant: bool) -> NDArray[np.float64]:
    """Return mean wait and 1/mu on one server with Poisson arrivals, first come first served.

    Constant service, or that of the paper's frame on 300 MIPS.

    Returns
    -------
    float64[BATCHES, 2]
    """
    random = np.random.default_rng(7)
    service = np.full(tasks, 10.0) if constant else random.integers(1000, 5001, tasks) / 300.0
    arrival = np.cumsum(random.exponential(service.mean() / load, tasks))
    server = np.zeros(tasks, np.int64)
    done = sliced.lay_out(np.ones(tasks), arrival, service, server, 1)
    sliced.run(done, sliced.FCFS, 1.0, 0.0, np.inf)
    even = tasks // BATCHES * BATCHES
    measured = np.stack([done.start - arrival, service], axis=-1)[:even]
    batches: NDArray[np.float64] = measured.reshape(BATCHES, -1, 2).mean(axis=1)
    return batches


def waits(tasks: int) -> NDArray[np.float64]:
    """Return float64[2, load, BATCHES, 2]: mean wait and 1/mu; constant and the frame's service."""
    return np.array([[wait(load, tasks, constant) for load in LOADS] for constant in (True, False)])
