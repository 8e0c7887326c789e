"""How long the daemon's loop keeps a submit filter waiting, under all that it has to do at once.

    python benchmarks/loop_lag.py [--seconds S] [--quick] [--estimates] [--stacks] [--json FILE]

A whole daemon (sockets, database, the process that talks to the batch system) over a made-up Slurm
of 1,000 nodes: 10,000 pending jobs, 1,000 promises, a history of a million closed promises; polls
and cycles follow one another. Users, in processes of their own, submit jobs with deadlines, ask
`feasible` without pause, and an admin asks `status` each second. The lag is measured every 5 ms on
the loop itself; what part of it the loop's thread waited for a processor that other processes
had is known from the kernel (schedstat), and told apart. The clients run with nice 19.

With `--estimates` the process that estimates starts is there too, with 50,000 jobs of the past, and
begins its first refresh with the measurement; the last line says which share of a core it took.

`--stacks` prints what the threads were doing while the loop was late.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from estimates import past_of
from made_up import DAY, FIRST_USER, MadeUp, Spool, job_fields, policy_in, promise
from msgspec.structs import replace as changed

from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import HEADER, MessageKind, Tag, decode_fields, encode, read_header
from rtsched.daemon.answers import Answers, Queries
from rtsched.daemon.app import Daemon
from rtsched.daemon.estimating import FILE, Estimating
from rtsched.daemon.estimating_process import EstimatesFile
from rtsched.daemon.metrics import LoopLag, Metrics
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Feasible, Status
from rtsched.daemon.server import SocketServer
from rtsched.daemon.start import TURN
from rtsched.daemon.store import Store
from rtsched.daemon.systemd import log_events
from rtsched.daemon.worker import Worker
from rtsched.errors import RtschedError
from rtsched.estimates.estimator import Estimator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.daemon.promises import Promise
    from rtsched.daemon.settings import LiveSite
    from rtsched.daemon.site import Site

NODES = 1_000
PENDING, PROMISES, CLOSED = 10_000, 1_000, 1_000_000
PAST = 50_000
RATE = 5.0
"""Submissions a second."""

ASKERS = 4
"""Users who ask `feasible` without pause."""

ESTIMATES_CPU = "rtsched_estimate_cpu_seconds_total"

EVERY = 0.005
"""Seconds between two measurements of the lag."""

PERCENT = (50.0, 99.0, 99.9, 100.0)


def _submitter(path: str, seconds: float, results: Any) -> None:
    """Submit jobs at a rate, and measure how long each answer takes."""
    os.nice(19)
    random, took, given = np.random.default_rng(1), [], Counter[str]()
    until, at = time.monotonic() + seconds, time.monotonic()
    while (at := at + random.exponential(1.0 / RATE)) < until:
        time.sleep(max(at - time.monotonic(), 0.0))
        nodes, hours = int(random.integers(1, 33)), float(random.uniform(2.0, 72.0))
        fields = job_fields(
            FIRST_USER + int(random.integers(200)), nodes, time.time() + hours * 3600
        )
        begun = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10.0)
            line.connect(path)
            line.sendall(encode(MessageKind.SUBMIT, [(Tag(tag), v) for tag, v in fields.items()]))
            kind, length = read_header(line.recv(HEADER.size, socket.MSG_WAITALL))
            payload = line.recv(length, socket.MSG_WAITALL)
        took.append(time.perf_counter() - begun)
        said = decode_fields(payload)
        given[kind.name if kind is MessageKind.ERROR else str(said[Tag.VERDICT])] += 1
    results.put(("submit", took, dict(given)))


def _asker(path: str, seconds: float, uid: int, results: Any) -> None:
    """Ask without pause which deadline a job could have; as an admin, once a second, for all."""
    os.nice(19)
    if uid:
        os.setuid(uid)
    random, took = np.random.default_rng(uid), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        nodes = int(random.integers(1, 65))
        question = Feasible(nodes=nodes, time_s=3600.0) if uid else Status(metrics=True)
        begun = time.perf_counter()
        with suppress(RtschedError):
            ask(question, path)
            took.append(time.perf_counter() - begun)
        if not uid:
            time.sleep(1.0)
    results.put(("feasible" if uid else "status", took, {}))


class Stacks(threading.Thread):
    """Looks every few milliseconds what all threads do while the loop is late."""

    def __init__(self, late: float = 0.012) -> None:
        super().__init__(daemon=True)
        self.late, self.beat, self.seen = late, time.monotonic(), Counter[str]()

    def run(self) -> None:
        """Watch until the process ends."""
        loop = threading.main_thread().ident
        while True:
            time.sleep(0.003)
            if time.monotonic() - self.beat < self.late + EVERY:
                continue
            for thread, frame in sys._current_frames().items():
                if thread != threading.get_ident():
                    who = "loop" if thread == loop else "other"
                    where = traceback.extract_stack(frame)[-4:]
                    lines = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in where[::-1])
                    self.seen[f"{who}: {lines}"] += 1


def _filled(path: Path, closed: int) -> None:
    """Make a database with a long history."""
    Store(path).close()
    now = time.time()
    rows = (
        (f"{k:032x}", k, FIRST_USER + k % 200, "u", now, now - DAY, "kept", now - k * 2.0, "", b"",
         float("inf"))
        for k in range(closed)
    )  # fmt: skip
    with sqlite3.connect(path) as base:
        names = "token, id, uid, user, deadline, made_at, standing, changed_at, why, job, expires"
        marks = ", ".join("?" * 11)
        base.executemany(f"INSERT INTO records ({names}) VALUES ({marks})", rows)  # noqa: S608
    base.close()


def _estimating(directory: Path, live: LiveSite, metrics: Metrics, past: int) -> Estimating:
    """Return start estimates that know so many jobs of the past."""
    now = time.time()
    estimator = Estimator(live.estimates)
    estimator.learn(past_of(past, shared=False, now=now))
    EstimatesFile(directory / FILE).write(estimator, now)
    daemon = changed(live.daemon, database=str(directory / "rtsched.db"))
    return Estimating(changed(live, daemon=daemon), metrics)


async def _measured(
    directory: Path,
    extent: tuple[int, int, int],
    seconds: float,
    stacks: Stacks | None,
    past: int,
) -> dict[str, Any]:
    pending, promises, closed = extent
    _filled(directory / "rtsched.db", closed)
    policy = policy_in(directory)
    lags, own = list[float](), list[float]()
    with Store(directory / "rtsched.db", policy.live.daemon.durable) as store:
        worker = Worker(partial(MadeUp, directory, pending, NODES, NODES // 2), 300.0)
        metrics = Metrics()
        estimating = _estimating(directory, policy.live, metrics, past) if past else None
        daemon = Daemon(
            policy,
            store,
            worker,
            SlurmTranslator(),
            metrics,
            reread=lambda: policy,
            estimating=estimating,
        )
        spool, commit = Spool(directory), daemon.commit

        async def committed(site: Site, new: Sequence[Promise]) -> None:
            await commit(site, new)
            spool.put(site, new)

        daemon.commit = committed  # type: ignore[method-assign]
        await daemon.cycle()
        await promise(daemon, promises)
        spool.write()
        submits = SocketServer(
            directory / "submit.sock", (MessageKind.SUBMIT,), Answers(daemon).answer
        )
        queries = Queries(daemon, os.getuid())
        users = SocketServer(directory / "query.sock", (MessageKind.QUERY,), queries.answer)
        running = asyncio.create_task(daemon.run([(submits, None), (users, None)]))
        while not (directory / "query.sock").exists():
            await asyncio.sleep(0.1)
            if running.done():
                running.result()
        await asyncio.sleep(3.0)

        waited = waited_for_processor()

        def seen(lag: float) -> None:
            nonlocal waited
            before, waited = waited, waited_for_processor()
            lags.append(lag)
            own.append(max(lag - (waited - before), 0.0))
            if stacks is not None:
                stacks.beat = time.monotonic()

        results = multiprocessing.get_context("spawn").Queue()
        asks = [(_asker, (str(users.path), seconds, uid, results)) for uid in _uids()]
        loads = [(_submitter, (str(submits.path), seconds, results)), *asks]
        started = [
            multiprocessing.get_context("spawn").Process(target=target, args=arguments)
            for target, arguments in loads
        ]
        for process in started:
            process.start()
        meter = LoopLag(seen, EVERY)
        found, cycles = list[Any](), 0
        await asyncio.sleep(3.0)  # the processes import what they need
        meter.start()
        if stacks is not None:
            stacks.start()
        cpu, wall = time.process_time(), time.monotonic()
        estimates_cpu, refreshes = _value(metrics.text(), ESTIMATES_CPU), dict[float, float]()
        while len(found) < len(started):
            await asyncio.sleep(0.25)
            await asyncio.to_thread(spool.write)
            if estimating is not None and np.isfinite(at := estimating.latest.at):
                refreshes[at] = _value(metrics.text(), "rtsched_estimate_seconds")
            while not results.empty():
                found.append(results.get())
        meter.stop()
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        cycles = int(_value(metrics.text(), "rtsched_cycle_seconds_count"))
        estimates_cpu = (_value(metrics.text(), ESTIMATES_CPU) - estimates_cpu) / wall
        daemon._stop.set()
        await running
        queries.close()
    took = {kind: [s for k, some, _ in found if k == kind for s in some] for kind, _, _ in found}
    given = next(given for kind, _, given in found if kind == "submit")
    return {
        "lag": lags, "own": own, "took": took, "given": given,
        "promises": len(daemon.site.promises),
        "cycles": cycles, "cpu": cpu / wall, "seconds": wall,
        "estimates_cpu": estimates_cpu, "refreshes": list(refreshes.values()),
    }  # fmt: skip


def waited_for_processor() -> float:
    """Return for how many seconds this thread was ready to run and had no processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def _uids() -> list[int]:
    """Return who asks: an admin, and users where this process may become them."""
    return [0, *(FIRST_USER + k for k in range(ASKERS))] if os.getuid() == 0 else [0]


def _value(text: str, name: str) -> float:
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def _row(name: str, values: Sequence[float]) -> str:
    found = np.percentile(values, PERCENT) * 1000.0 if len(values) else [np.nan] * len(PERCENT)
    return f"| {name} | {len(values):,} | " + " | ".join(f"{v:.1f}" for v in found) + " |"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--quick", action="store_true", help="a small state, to see that it works")
    parser.add_argument("--closed", type=int, default=CLOSED, help="closed promises")
    parser.add_argument("--estimates", action="store_true", help="estimate starts meanwhile")
    parser.add_argument("--stacks", action="store_true", help="print what ran while it was late")
    parser.add_argument("--json", type=Path, help="write all measurements there")
    given = parser.parse_args()
    extent = (1_000, 50, 10_000) if given.quick else (PENDING, PROMISES, given.closed)
    log_events("warning")
    sys.setswitchinterval(TURN)
    stacks = Stacks() if given.stacks else None
    with tempfile.TemporaryDirectory(prefix="rtsched-lag-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        found = asyncio.run(
            _measured(directory, extent, given.seconds, stacks, PAST if given.estimates else 0)
        )
    print(
        f"{extent[0]:,} pending jobs, {found['promises']:,} promises, {extent[2]:,} closed ones; "
        f"{found['cycles']} cycles in {found['seconds']:.0f} s, {found['cpu']:.0%} of a processor, "
        f"load average {os.getloadavg()[0]:.1f}; verdicts {found['given']}\n"
    )
    print("| milliseconds | n | " + " | ".join(f"{p:g} %" for p in PERCENT) + " |")
    print("|---|---:|" + "---:|" * len(PERCENT))
    print(_row("loop's lag", found["lag"]))
    print(_row("without the wait for a processor", found["own"]))
    for kind, took in sorted(found["took"].items()):
        print(_row(f"`{kind}`", took))
    if given.estimates:
        took = ", ".join(f"{seconds:.1f}" for seconds in found["refreshes"]) or "none"
        print(
            f"\nStart estimates took {found['estimates_cpu']:.0%} of a core; refreshes that ended, "
            f"seconds: {took}"
        )
    for where, times in stacks.seen.most_common(40) if stacks is not None else ():
        print(times, where)
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
