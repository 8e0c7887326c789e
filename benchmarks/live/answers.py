"""How fast the daemon answers and cycles on a large Slurm, and what memory it takes."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import loading
from measure import DEFERRED

from rtsched.adapters.wire import HEADER, MessageKind, Tag, decode_fields, encode, read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from testbed import Box, Cluster

    Questions = Mapping[str, Callable[[int], bytes]]

FULL = {"jobs": 10_000, "nodes": 2_000, "promises": 1_000, "grown": 100_000}
REDUCED = {"jobs": 1_000, "nodes": 200, "promises": 100, "grown": 3_000}
PROBES = 200
CYCLES = 8
SOCKET = "/run/rtsched/submit.sock"
TICKS = os.sysconf("SC_CLK_TCK")

SITE = """
planner = "mcdf"
[[plugin]]
name = "mcdf"
settings = { order = "deadline" }
[daemon]
cycle = 1.0
patience = 300
log_level = "debug"
lapse = 10
offer = 10
unused_promises_per_hour = 0
unused_offers_per_hour = 1000
"""
"""Each part asks for the same users, who take none of their offers."""
ANSWERS = {"accept": "promised to end by", "reject": "rejected"}
LAPSED_S = 14.0
"""Seconds after which nothing is left of the questions."""


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Measure one large state in several ways, and then a larger one."""
    extent = REDUCED if reduced else FULL
    found: dict[str, Any] = {}
    with loading.cluster(extent["nodes"], ("rtsched",)) as running:
        loading.install(running)
        loading.fill(running, extent["jobs"])
        for name, measured in _sides(running, extent):
            found[name] = measured
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / "answers.json").write_text(json.dumps(found, indent=1))
        loading.empty(running)
    return {**extent, "load": os.getloadavg()[1], **found}


def _sides(running: Cluster, extent: dict[str, int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is measured of each state, by its name."""
    yield "full", _first(running, extent)
    yield "normal", _again(running, durable="normal")
    yield "commands", _again(running, route="commands")
    loading.fill(running, extent["grown"] - extent["jobs"])
    yield "grown", _again(running)


def problems(found: dict[str, Any]) -> list[str]:
    """Return what went wrong; speed alone never fails."""
    sides = [side for side in found.values() if isinstance(side, dict)]
    wrong = [f"unexpected: {text}" for side in sides for text in side["unexpected"]]
    wrong += [f"{many} of {PROBES} deferred" for many in deferred(sides) if many > PROBES // 20]
    if sides[0]["promises"] < 0.99 * found["promises"]:
        wrong.append(f"only {sides[0]['promises']} promises could be made")
    return wrong


def deferred(sides: Iterable[dict[str, Any]]) -> list[int]:
    """Return how many questions of each kind were deferred."""
    kinds = (side[part] for side in sides for part in ("beside_cycles_ms", "at_rest_ms"))
    return [found["deferred"] for kind in kinds for found in kind.values()]


def _first(running: Cluster, extent: dict[str, int]) -> dict[str, Any]:
    """Make the promises, and measure."""
    loading.filter_settings(running, loading.PATIENT)
    running.start_daemon(SITE, timeout=300)
    each, whole = extent["nodes"] // 125, extent["promises"]
    loading.submit(
        running, 1, whole, nodes=each, minutes=60, begin=0, deadline=30_000, spread=32 * whole
    )
    steady(running)
    return measured(running, _questions(running))


def _again(running: Cluster, *, durable: str = "full", route: str = "auto") -> dict[str, Any]:
    """Start the daemon anew with other settings, and measure."""
    running.stop_daemon()
    running.path(running.services.log_file("rtsched")).write_text("")
    site = f'{SITE}durable = "{durable}"\n[slurm]\nroute = "{route}"\n'
    running.start_daemon(site, timeout=300)
    steady(running)
    return measured(running, _questions(running))


def _questions(running: Cluster) -> Questions:
    """Return what is asked: jobs that are accepted, and jobs that get an offer instead."""
    wide = len(running.run(["sinfo", "-h", "-N", "-o", "%N"]).stdout.split()) // 3
    now = int(time.time())
    return {
        "accept": lambda number: _job(number, 1, now + 200_000, 10),
        "reject": lambda number: _job(number, wide, now + 3_000, 60),
    }


def steady(running: Box) -> None:
    """Wait until three cycles in a row have changed nothing and no admission is open."""
    until = time.monotonic() + 300
    quiet = 0
    while quiet < 3 and time.monotonic() < until:
        before = _done(running)
        while _done(running)["cycle_done"] == before["cycle_done"]:
            time.sleep(0.2)
        after = _done(running)
        quiet = quiet + 1 if after["change_made"] == before["change_made"] else 0


def _done(running: Box) -> dict[str, int]:
    """Return how many cycles and changes the log tells of."""
    names = ("cycle_done", "change_made")
    return {name: len(loading.log_lines(running, name)) for name in names}


def measured(running: Box, questions: Questions) -> dict[str, Any]:
    """Return how fast the daemon cycles and answers, and what memory it has."""
    cycles = _cycles(running)
    beside, unexpected = _answers(running, questions)
    time.sleep(LAPSED_S)
    child = _processes(running)[1]
    found = {
        "promises": _promises(running),
        "first_cycle_s": sum(_parts(loading.log_lines(running, "cycle_done")[0]).values()),
        "cycle_s": cycles,
        "beside_cycles_ms": beside,
    }
    running.run(["kill", "-STOP", str(child)])
    try:
        found["at_rest_ms"], more = _answers(running, questions)
    finally:
        running.run(["kill", "-CONT", str(child)])
    found["memory_mb"] = {
        name: _memory(running, pid)
        for name, pid in zip(("daemon", "child"), _processes(running), strict=True)
    }
    return found | {"unexpected": unexpected + more}


def _cycles(running: Box) -> dict[str, float]:
    """Return the median cycle of several, the longest, and the medians of its parts."""
    before = _done(running)["cycle_done"]
    while len(lines := loading.log_lines(running, "cycle_done")[before:]) < CYCLES:
        time.sleep(0.5)
    parts = [_parts(line) for line in lines]
    sums = [sum(each.values()) for each in parts]
    middle = {name: loading.at_share([each[name] for each in parts], 0.5) for name in parts[0]}
    return {"p50": loading.at_share(sums, 0.5), "max": max(sums)} | middle


def _parts(line: Any) -> dict[str, float]:
    return {name: value for name, value in line.items() if isinstance(value, float)}


def _promises(running: Box) -> int:
    """Return how many jobs have a promise that stands."""
    told = json.loads(running.run(["rtsched", "status", "--json"], timeout=60).stdout)
    return int(told["standings"].get("firm", 0))


def _answers(running: Box, questions: Questions) -> tuple[dict[str, Any], list[str]]:
    """Ask as the filter does; return what it took, and answers that are not as they should be."""
    path, daemon = running.path(SOCKET), _processes(running)[0]
    found: dict[str, Any] = {}
    unexpected: list[str] = []
    for kind, job in questions.items():
        before = _processor_s(running, daemon)
        took, texts = _asked(path, map(job, range(PROBES)))
        used = _processor_s(running, daemon) - before
        found[kind] = loading.summary(took) | {"processor_each": 1000 * used / PROBES}
        judged = [text for text in texts if DEFERRED not in text]
        found[kind]["deferred"] = len(texts) - len(judged)
        unexpected += [text for text in judged if ANSWERS[kind] not in text]
        if kind == "reject":
            bare = [text for text in judged if "Feasible" not in text]
            found[kind] |= {"without_offer": len(bare), "why": Counter(bare).most_common(3)}
    return found, unexpected[:3]


def _job(number: int, nodes: int, deadline: int, minutes: int) -> bytes:
    """Return the question about a job, each of another user: each may hold an offer."""
    fields = {
        Tag.USER_ID: 20_000 + number,
        Tag.SUBMIT_UID: 20_000 + number,
        Tag.NAME: "probe",
        Tag.PARTITION: "all",
        Tag.MIN_NODES: nodes,
        Tag.MAX_NODES: nodes,
        Tag.DEADLINE: deadline,
        Tag.TIME_LIMIT: minutes,
        Tag.BATCH: 1,
        Tag.LAST_NODE_UPDATE: 0,  # nothing has started since the poll
    }
    return encode(MessageKind.SUBMIT, fields.items())


def _asked(path: Path, messages: Iterable[bytes]) -> tuple[list[float], list[str]]:
    """Ask one after the other, 25 ms apart; return milliseconds and texts."""
    took, texts = [], []
    for message in messages:
        begun = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(message)
            answer = b"".join(iter(lambda: line.recv(65536), b""))
        took.append(1000 * (time.perf_counter() - begun))
        _, length = read_header(answer[: HEADER.size])
        fields = decode_fields(answer[HEADER.size : HEADER.size + length])
        texts.append(str(fields.get(Tag.MESSAGE, "")))
        time.sleep(0.025)
    return took, texts


def _processes(running: Box) -> tuple[int, int]:
    """Return the daemon's process id inside the cluster, and its child's."""
    pid = running.services.pid("rtsched")
    child = running.run(["pgrep", "-P", str(pid)]).stdout.split()
    return pid, int(child[0])


def _processor_s(running: Box, pid: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = running.path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _memory(running: Box, pid: int) -> float:
    """Return the greatest resident size of a process, MiB."""
    lines = running.path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
