"""The promises that hold: deadline jobs beside a flood, with rtsched and without."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import measure
import replayed
import workload_driver
from stream import deadline_stream, flood, recurring
from workload_driver import FAVOURED, USERS, Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from stream import Extent, Work
    from workload_driver import Book, Live

SEED = 7

PRESETS = {"edf": "edf-mn", "mcdf": "mcdf", "spare": "spare-rf"}
"""Planners, and the policies of `rtsched replay` that plan in the same way."""

SETTINGS = {"edf": 'settings = { order = "deadline" }'}

LATE = 5.0
"""Seconds after its reservation's start that recurring work may start."""

AFTER = 8.0
"""Seconds after the last deadline until the run is looked at."""


@dataclass
class Side:
    """What one machine made of the stream.

    `kept_free`: only rtsched keeps nodes free for the recurring work; what that takes counts as
    served.
    """

    deadlines: Book
    best_effort: Book
    accounting: str
    machine: str
    ended: float
    recurring: list[dict[str, float]] = field(default_factory=list)
    promises: list[measure.Promise] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    kept_free: bool = False


def site(planner: str, settings: str = "") -> str:
    """Return the site.toml; `settings` of the planner are TOML."""
    name = "mcdf" if planner == "edf" else planner
    given = settings or SETTINGS.get(planner, "")
    lines = [f'planner = "{name}"', "[[plugin]]", f'name = "{name}"', given]
    return "\n".join([*lines, workload_driver.DAEMON])


def play_side(
    system: type[Live],
    extent: Extent,
    planner: str,
    setup: Setup,
    keep: Path | None = None,
    meanwhile: Callable[[Live, float], None] | None = None,
) -> Side:
    """Bring a machine up, play the stream to it, and return what it made of it."""
    with system.up(setup) as live:
        live.favour()
        try:
            return _played(live, extent, planner, meanwhile)
        finally:
            if keep is not None:
                live.save(keep)


def _played(
    live: Live, extent: Extent, planner: str, meanwhile: Callable[[Live, float], None] | None
) -> Side:
    works = deadline_stream(SEED, extent, live.planners[planner], FAVOURED, live.slow)
    begun = time.time()
    if planner == "spare":
        live.recur(extent, begun)
    best_effort = flood(SEED + 1, extent, USERS, live.slow, wide=live.wide)
    side = played(live, works, best_effort, begun, meanwhile)
    if planner == "spare":
        side.recurring = [row for work in recurring(extent) for row in work.columns(begun)]
        side.lateness = live.lateness(live.rows(side.accounting), extent, begun)
        side.kept_free = live.setup.steered and not live.recurs_alone
    return side


def played(
    live: Live,
    works: Sequence[Work],
    best_effort: Iterable[Work],
    begun: float,
    meanwhile: Callable[[Live, float], None] | None = None,
) -> Side:
    """Submit best-effort jobs, play a stream beside them, and return what became of both.

    Parameters
    ----------
    works, best_effort : sequence of Work
        The jobs with deadlines, and the others.
    begun : float
        Now, seconds since the epoch.
    meanwhile : callable, optional
        What else is done to the machine from the stream's start on.
    """
    flooding = workload_driver.submit_all(live, best_effort, begun)
    time.sleep(live.settling)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(meanwhile, live, time.time()) if meanwhile is not None else None
        book = workload_driver.play(live, works, offers=live.setup.steered)
    if going is not None:
        going.result()
    ended = book.begun + max(work.at + work.deadline for work in works)
    time.sleep(max(0.0, ended + AFTER - time.time()))
    found = measure.promises(live.box) if live.setup.steered else []
    live.empty(USERS)
    time.sleep(4)
    return Side(book, flooding, live.accounting(), live.machine(), ended, promises=found)


def figures(
    system: type[Live], side: Side, unit: str = "node", units: int = measure.NODES
) -> dict[str, Any]:
    """Return the figures of one side, of a machine of so many nodes, or cores."""
    rows = system.rows(side.accounting)
    begun, ended = side.deadlines.begun, side.ended
    found: dict[str, Any] = measure.outcomes(side.deadlines, rows)
    found |= measure.answers(side.deadlines, system.command)
    found |= measure.best_effort(rows, begun, ended, unit)
    found["utilisation"] = measure.utilisation(rows, begun, ended, units)
    found |= measure.offers(side.deadlines)
    found["unpromised"] = sum("without a promise" in reply.text for reply in side.deadlines.replies)
    found["strays"] = measure.strays(rows)
    found["promises"] = measure.states(side.promises)
    if side.lateness:
        found["recurring_late_s"] = max(side.lateness)
        if side.kept_free:
            found["recurring_node_s"] = sum(row["exec_time"] for row in side.recurring)
    return found


def run(
    system: type[Live], *, reduced: bool, planner: str = "edf", keep: Path | None = None
) -> dict[str, Any]:
    """Play the stream to two machines side by side, and replay it; return all figures."""
    extent = system.reduced if reduced else system.full
    setups = {system.name: Setup(False), "rtsched": Setup(True, site(planner))}
    done = side_by_side(
        setups,
        lambda setup, place: play_side(system, extent, planner, setup, place),
        {name: keep / f"{planner}-{name}" for name in setups} if keep else {},
    )
    found: dict[str, Any] = {name: figures(system, side) for name, side in done.items()}
    return found | compared(system, done["rtsched"], planner)


def side_by_side(
    setups: Mapping[str, Setup],
    play: Callable[[Setup, Path | None], Side],
    places: Mapping[str, Path],
) -> dict[str, Side]:
    """Play the same to several machines at once; keep what they wrote in directories, if any."""
    with ThreadPoolExecutor(len(setups)) as pool:
        sides = {name: pool.submit(play, setup, places.get(name)) for name, setup in setups.items()}
        done = {name: side.result() for name, side in sides.items()}
    for name, place in places.items():
        side = done[name]
        (place / "accounting.txt").write_text(side.accounting)
        (place / "machine.txt").write_text(side.machine)
        replies = [asdict(one) for one in side.deadlines.replies]
        (place / "replies.json").write_text(json.dumps(replies, indent=1))
    return done


def compared(system: type[Live], side: Side, planner: str) -> dict[str, Any]:
    """Return what replays of the stream, and of the accounting, come to."""
    replies = [*side.best_effort.replies, *side.deadlines.replies]
    found: dict[str, Any] = {}
    for name, margins in (("replay", system.margins), ("replay without margins", (0.0, 0.0))):
        found[name] = replayed.admitted(
            replies, side.deadlines.begun, PRESETS[planner], margins, side.recurring
        )
    policies = {"accounting, replayed": PRESETS[planner]}
    policies |= {"accounting, by the pool": "pool"} if system.pool else {}
    for name, policy in policies.items():
        words = f'{system.workload}\ndeadline_rule = "none"\n{system.pool}'
        found[name] = replayed.accounting(side.accounting, side.machine, words, policy)
    return found


def claims_of(ours: dict[str, Any], least: float) -> dict[str, bool]:
    """Return what must hold of promises, and whether it does; `least`: jobs to be admitted."""
    lost = ours["promises"].keys() & {"missed", "broken", "own-limit", "unknown"}
    return {
        f"{ours['missed']} admitted jobs missed their deadlines": ours["missed"] == 0,
        f"{ours['own_limit']} admitted jobs ran into their own limits": ours["own_limit"] == 0,
        f"promises are {', '.join(sorted(lost))}": not lost,
        f"{ours['admitted']} admitted, wanted {least:g}": ours["admitted"] >= least,
        "a job was accepted without a promise": ours["unpromised"] == 0,
    }


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    ours, alone = found["rtsched"], found[system.name]
    served = ours["best_effort_useful_node_s"] + ours.get("recurring_node_s", 0.0)
    before = alone["best_effort_useful_node_s"]
    claims = claims_of(ours, 0.8 * found["replay"]["admitted"]) | {
        f"best effort got {served:.0f} node-seconds of {before:.0f}": served >= 0.8 * before,
        "an offer that was taken up was refused": ours["offers_taken"] == ours["offered"],
        f"{ours['strays']} jobs ran where they were not to": ours["strays"] == 0,
        "recurring work was late": ours.get("recurring_late_s", 0.0) <= LATE,
    }
    return [text for text, good in claims.items() if not good]
