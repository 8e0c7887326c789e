"""The parts of the delay-class paper that need no chance: worked example, states, limits."""

from __future__ import annotations

import numpy as np

from rtsched.reproduce import Claim, Sheet
from rtsched_reproductions.sed_runs import LEAST, MOST, SYSTEMS, ends_of_two, saturated
from rtsched_reproductions.sed_states import VARIANTS, Place, State, diagram, idle

STATES: dict[tuple[int, str], str] = {
    (1, "SED"): "0 0 0 0; 0 0 0 30; 0 5 0 30; 5 0 0 0; 5 0 0 25; 0 0 0 25",
    (1, "SED-NU"): "0 0 0 0; 0 0 0 30; 0 5 0 30; 0 5 0 0",
    (2, "SED"): "0 0 0 0; 20 0 0 0; 20 0 0 10; 10 0 0 0; 10+10 0 0 0; 10+10 0 0 10",
    (2, "SED-NM"): "0 0 0 0; 20 0 0 0; 20 0 0 10; 0 0 0 10",
}
"""The states that the source draws: per delay class the sizes of the jobs in it."""


def examples(jobs: int) -> tuple[tuple[Sheet, ...], tuple[Claim, ...]]:
    """Return worked example, timelines of two jobs and limits; claims on states and upgrades.

    `jobs` are those of each run in which jobs always wait.
    """
    return (_availability(), _delays(), _timelines(), _limits(jobs)), _claims(jobs)


def _claims(jobs: int) -> tuple[Claim, ...]:
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


def _example(**settings: bool) -> tuple[Place, Place]:
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
