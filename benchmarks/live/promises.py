"""The promises that hold: deadline jobs beside a flood, under Slurm alone and under rtsched."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import playing
import replayed
from stream import Extent, deadline_stream, flood

if TYPE_CHECKING:
    from collections.abc import Callable

    from playing import Book
    from stream import Work
    from testbed import Cluster

USERS = ("alice", "bob", "carol")
DEADLINE_USER = playing.FAVOURED
SEED = 7

FULL = Extent(480, 14, (2, 3, 4), (1.3, 2.5), 90, (2, 3, 4, 6), 45_000)
REDUCED = Extent(65, 5, (1,), (1.3, 2.4), 45, (1, 2, 3, 4), 12_000)

PLANNERS = {
    "edf": ("rigid", "moldable", "divisible"),
    "mcdf": ("rigid", "moldable", "divisible"),
    "spare": ("rigid", "rigid", "chain"),
}
"""The kinds of jobs that each planner is given. `edf` is mcdf in the order of deadlines, in which
every rejection comes with an offer."""

PRESETS = {"edf": "edf-mn", "mcdf": "mcdf", "spare": "spare-rf"}
"""The policies of `rtsched replay` that plan in the same way."""

SETTINGS = {"edf": 'settings = { order = "deadline" }'}

LATE = 5.0
"""Seconds after its reservation's start that recurring work may start."""

AFTER = 8.0
"""Seconds after the last deadline until the run is looked at."""


@dataclass
class Side:
    """What one cluster made of the stream."""

    deadlines: Book
    best_effort: Book
    accounting: str
    ended: float
    promises: list[measure.Promise] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)


def site(planner: str) -> str:
    """Return the site.toml."""
    name = "mcdf" if planner == "edf" else planner
    lines = [f'planner = "{name}"', "[[plugin]]", f'name = "{name}"', SETTINGS.get(planner, "")]
    return "\n".join([*lines, playing.DAEMON])


@dataclass(frozen=True)
class Recurring:
    """An hourly reservation of so many minutes, and a job in it that may take one less."""

    name: str
    nodes: str
    rows: tuple[int, ...]
    after: float
    minutes: int


def recurring(extent: Extent) -> list[Recurring]:
    """Return recurring work whose first occurrences fall into the run."""
    whole = 60 * round((40 + extent.seconds / 2) / 60)
    return [
        Recurring("backup", "slow[24-25]", (28, 29), max(60, whole), 2),
        Recurring("model", "slow[21-23]", (25, 26, 27), max(120, whole + 60), 2),
    ]


def reserve(running: Cluster, work: Recurring, begun: float) -> None:
    """Make the reservation, and submit its job."""
    words = ["scontrol", "create", "reservation", f"ReservationName={work.name}"]
    words += [f"StartTime=uts{begun + work.after:.0f}", f"Duration={work.minutes}", "Users=root"]
    running.run([*words, f"Nodes={work.nodes}", "Flags=HOURLY"])
    words = [
        f"--job-name=p-{work.name}",
        f"--reservation={work.name}",
        f"--time={work.minutes - 1}",
    ]
    words += [f"--nodes={len(work.rows)}", "--exclusive"]
    running.sbatch(words, user="root", script=f"sleep {work.minutes * 60 - 80}")


def play_side(
    extent: Extent,
    planner: str,
    *,
    steered: bool,
    keep: Path | None = None,
    meanwhile: Callable[[Cluster, float], None] | None = None,
) -> Side:
    """Bring up a cluster, play the stream to it, and return what it made of it."""
    works = deadline_stream(SEED, extent, PLANNERS[planner], DEADLINE_USER)
    with playing.cluster(steered=steered) as running:
        playing.give_way(running)
        if steered:
            running.start_daemon(site(planner), timeout=300)
        try:
            return _played(running, extent, planner, works, steered, meanwhile)
        finally:
            if keep is not None:
                save_logs(running, keep)


def _played(
    running: Cluster,
    extent: Extent,
    planner: str,
    works: list[Work],
    steered: bool,
    meanwhile: Callable[[Cluster, float], None] | None,
) -> Side:
    begun = time.time()
    if planner == "spare":
        for work in recurring(extent):
            reserve(running, work, begun)
    flooding = playing.submit_all(running, flood(SEED + 1, extent.flood, USERS), begun)
    time.sleep(3)
    with ThreadPoolExecutor(1) as pool:
        if meanwhile is not None:
            pool.submit(meanwhile, running, time.time())
        book = playing.play(running, works, offers=steered)
    ended = book.begun + max(work.at + work.deadline for work in works)
    time.sleep(max(0.0, ended + AFTER - time.time()))
    found = measure.promises(running) if steered else []
    running.run(["scancel", *(f"--user={user}" for user in USERS)], check=False)
    running.run(["scancel", "--name=dry"], check=False)
    time.sleep(4)
    text = measure.sacct(running)
    late = _lateness(text, begun, extent) if planner == "spare" else []
    return Side(book, flooding, text, ended, found, late)


def _lateness(accounting: str, begun: float, extent: Extent) -> list[float]:
    """Return by how many seconds each recurring job started after its reservation did."""
    starts = {row.name: row.start for row in measure.rows_of(accounting)}
    late = [starts[f"p-{work.name}"] - math.floor(begun + work.after) for work in recurring(extent)]
    return [math.inf if math.isnan(seconds) else seconds for seconds in late]


def save_logs(running: Cluster, directory: Path) -> None:
    """Keep the daemons' logs and what the controller still knows."""
    directory.mkdir(parents=True, exist_ok=True)
    logs = ("/var/log/slurm/slurmctld.log", "/var/log/testbed/rtsched.log")
    for name in (*logs, measure.DATABASE, f"{measure.DATABASE}-wal"):
        source = running.path(name)
        if source.exists():
            (directory / Path(name).name).write_bytes(source.read_bytes())
    for words in (["show", "job"], ["show", "res"], ["show", "node", "-o"]):
        done = running.run(["scontrol", *words], check=False)
        (directory / f"{words[1]}.txt").write_text(done.stdout)


def figures(side: Side) -> dict[str, Any]:
    """Return the figures of one side."""
    rows = measure.rows_of(side.accounting)
    begun, ended = side.deadlines.begun, side.ended
    found: dict[str, Any] = measure.outcomes(side.deadlines, rows)
    found |= measure.answers(side.deadlines) | measure.best_effort(rows, begun, ended)
    found["utilisation"] = measure.utilisation(rows, begun, ended)
    found |= measure.offers(side.deadlines)
    found["unpromised"] = sum("without a promise" in said.text for said in side.deadlines.said)
    found["promises"] = measure.standings(side.promises)
    if side.lateness:
        found["recurring_late_s"] = max(side.lateness)
    return found


def run(planner: str, *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the stream to two clusters side by side, and replay it; return all figures."""
    extent = REDUCED if reduced else FULL
    places = {name: keep / f"{planner}-{name}" if keep else None for name in ("slurm", "rtsched")}
    with ThreadPoolExecutor(2) as pool:
        sides = {
            name: pool.submit(
                play_side, extent, planner, steered=name == "rtsched", keep=places[name]
            )
            for name in places
        }
        done = {name: side.result() for name, side in sides.items()}
    for name, side in done.items():
        if (place := places[name]) is not None:
            (place / "sacct.txt").write_text(side.accounting)
            said = [asdict(one) for one in side.deadlines.said]
            (place / "said.json").write_text(json.dumps(said, indent=1))
    found: dict[str, Any] = {name: figures(side) for name, side in done.items()}
    found |= compared(done["rtsched"], planner, extent)
    return found


def compared(side: Side, planner: str, extent: Extent) -> dict[str, Any]:
    """Return what replays of the stream, and of the accounting, come to."""
    said = [*side.best_effort.said, *side.deadlines.said]
    begun = side.deadlines.begun
    work: list[dict[str, float]] = []
    if planner == "spare":
        work = [_column(each, row, begun) for each in recurring(extent) for row in each.rows]
    found: dict[str, Any] = {}
    for name, margins in (("replay", True), ("replay without margins", False)):
        preset = PRESETS[planner]
        found[name] = replayed.admitted(said, begun, preset, margins=margins, periodic=work)
    found["accounting, replayed"] = replayed.accounting(side.accounting, PRESETS[planner])
    return found


def problems(found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    ours, slurm = found["rtsched"], found["slurm"]
    least = 0.8 * found["replay"]["admitted"]
    lost = ours["promises"].keys() & {"missed", "broken", "own-limit"}
    served, before = ours["best_effort_useful_node_s"], slurm["best_effort_useful_node_s"]
    claims = {
        f"{ours['missed']} admitted jobs missed their deadlines": ours["missed"] == 0,
        f"{ours['own_limit']} admitted jobs ran into their own limits": ours["own_limit"] == 0,
        f"promises are {', '.join(sorted(lost))}": not lost,
        f"{ours['admitted']} admitted, wanted {least:g}": ours["admitted"] >= least,
        f"best effort got {served:.0f} node-seconds of {before:.0f}": served >= 0.8 * before,
        "an offer that was taken up was refused": ours["offers_taken"] == ours["offered"],
        "a job was accepted without a promise": ours["unpromised"] == 0,
        "recurring work was late": ours.get("recurring_late_s", 0.0) <= LATE,
    }
    return [text for text, good in claims.items() if not good]


def _column(work: Recurring, row: int, begun: float) -> dict[str, float]:
    return {
        "id": row,
        "node": row,
        "exec_time": work.minutes * 60.0,
        "period": 3600.0,
        "relative_deadline": 3600.0,
        "phase": begun + work.after,
    }
