"""The worked example of PSTS: 18 nodes in 3 rows of 6, tables 1 to 5, and its slips."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.reproduce import Claim, Findings, Sheet
from rtsched_plugins.kernels.scans import (
    PROPORTIONAL,
    at_home,
    balanced,
    edges,
    exchanged,
    loads,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SHAPE = (3, 6)
POWER = np.array([3, 4, 5, 2, 1, 5, 1, 2, 2, 1, 1, 3, 5, 1, 4, 2, 6, 2])
LOAD = np.array(
    [250, 300, 150, 100, 50, 150, 200, 300, 100, 400, 300, 700, 200, 50, 50, 200, 300, 200]
)
FINAL = (240, 320, 400, 160, 80, 400, 80, 160, 160, 80, 80, 240, 400, 80, 320, 160, 480, 160)
COLUMNS = tuple(f"node {column}" for column in range(1, 7))


class Level(NamedTuple):
    """The exchange between the rows: of each row load, power and load to reach, and what leaves."""

    total: Ints
    power: Ints
    target: Ints
    leaving: Ints
    """int64[3, 6]: units that leave each node."""


def exchange() -> Level:
    """Return the exchange between the rows of the example."""
    total, power = (each.reshape(SHAPE).sum(axis=1) for each in (LOAD, POWER))
    runs = exchanged(1, SHAPE[0], at_home(LOAD), POWER, PROPORTIONAL)
    away = runs.src // SHAPE[1] != runs.dst // SHAPE[1]
    leaving = np.bincount(runs.src[away], runs.units[away], len(LOAD)).astype(np.int64)
    target = np.diff(edges(total.sum(), power))
    return Level(total, power, target, leaving.reshape(SHAPE))


def findings() -> Findings:
    """Return the tables of the example and the statements about it."""
    level = exchange()
    sheets = (_first_row(), _rows(level), _sender(level), _receiver_scan(), _units(level), _final())
    return Findings(sheets, _slips(level))


def _sheet(title: str, source: str, rows: dict[str, tuple[object, Sequence[float]]]) -> Sheet:
    ours = np.array([np.asarray(row[0], np.float64) for row in rows.values()])
    expected = np.array([row[1] for row in rows.values()], np.float64)
    columns = COLUMNS[: expected.shape[1]]
    return Sheet(title, source, tuple(rows), columns, ours, expected)


def _first_row() -> Sheet:
    power, load = POWER[:6], LOAD[:6]
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


def _rows(level: Level) -> Sheet:
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


def _sender(level: Level) -> Sheet:
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
    power = POWER[12:]
    own = scan(power)[:-1] / power.sum()
    return _sheet(
        "λ of row 3", "worked example, table 5", {"λ": (own, (0, 0.25, 0.3, 0.5, 0.6, 0.9))}
    )


def _landing(level: Level, row: int, at: int) -> tuple[int, int, float]:
    """Return sender, receiver and place of a unit in the block of one receiving row."""
    block = int((level.target - level.total)[row])
    bounds = edges(block, POWER.reshape(SHAPE)[row])[:-1]
    receiver = 6 * row + int(np.searchsorted(bounds, at, "right")) - 1
    before = int(scan(np.maximum(level.target - level.total, 0))[row])
    leaving = scan(level.leaving.ravel())
    sender = int(np.searchsorted(leaving, before + at, "right")) - 1
    return sender, receiver, at / block


def _units(level: Level) -> Sheet:
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
    after = loads(balanced(np.array(SHAPE), LOAD, POWER, PROPORTIONAL), len(LOAD)).reshape(SHAPE)
    rows = {
        f"row {k + 1}": (after[k], np.array(FINAL).reshape(SHAPE)[k].tolist()) for k in range(3)
    }
    return _sheet("Loads at the end", "worked example: 80 times the power everywhere", rows)


def _slips(level: Level) -> tuple[Claim, ...]:
    senders = [_name(_landing(level, row, at)[0]) for row, at in ((0, 220), (2, 380))]
    most, told = int(np.prod(SHAPE[:-1])), [12, 16]
    return (
        Claim(
            f"The two units of the example leave v{told[0]} and v{told[1]}.",
            senders == told,
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
