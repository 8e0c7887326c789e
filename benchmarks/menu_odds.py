"""How many rejections show choices with odds, by the default settings, and how late answers are.

    python benchmarks/menu_odds.py [--nodes N] [--pending N] [--tests N] [--timeout-ms MS]
        [--wait S] [--autogroup N]

A whole daemon over a made-up Slurm whose nodes are all busy, with the process that estimates starts
and 2,000 jobs of the past. One user after the other submits a job whose deadline most often cannot
be guaranteed, as the submit filter does that waits `--timeout-ms`. The times are those of the
answers, by the clock, of accepted jobs, of rejected ones with choices with odds, and of others.
On a machine that has other work, `--autogroup -15` has the daemon and its process go first, as on a
host of their own (autogroup in sched(7); only root may).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from estimates import past_of
from made_up import FIRST_USER, MadeUp, job_fields, policy_in
from msgspec.structs import replace as changed

from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import HEADER, REJECT, MessageKind, Tag, decode_fields, encode
from rtsched.adapters.wire import read_header as header
from rtsched.daemon.answers import Answers, Queries
from rtsched.daemon.app import Daemon
from rtsched.daemon.estimating import FILE, Estimating
from rtsched.daemon.estimating_process import EstimatesFile
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.server import SocketServer
from rtsched.daemon.settings import LikelySettings
from rtsched.daemon.start import TURN
from rtsched.daemon.store import Store
from rtsched.daemon.systemd import log_events
from rtsched.daemon.worker import Worker
from rtsched.estimates.estimator import Estimator

PAST = 2_000

PAUSE = 0.2
"""Seconds between two submissions."""

FIRST = 20
"""Submissions that are not counted."""


def submit(path: Path, tests: int, timeout_ms: int, most: int) -> dict[str, list[float]]:
    """Return the seconds that answers took, by what they were."""
    random = np.random.default_rng(1)
    took: dict[str, list[float]] = {"accepted": [], "with odds": [], "without": []}
    for k in range(FIRST + tests):
        time.sleep(PAUSE)
        nodes, hours = int(random.integers(1, most + 1)), float(random.uniform(1.5, 12.0))
        fields = job_fields(FIRST_USER + k % 200, nodes, time.time() + hours * 3600)
        fields[Tag.TIMEOUT_MS] = timeout_ms
        message = encode(MessageKind.SUBMIT, [(Tag(tag), v) for tag, v in fields.items()])
        begun = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60.0)
            line.connect(str(path))
            line.sendall(message)
            _, length = header(line.recv(HEADER.size, socket.MSG_WAITALL))
            said = decode_fields(line.recv(length, socket.MSG_WAITALL))
        seconds = time.perf_counter() - begun
        what = "with odds" if "with odds of" in str(said.get(Tag.MESSAGE)) else "without"
        if k >= FIRST:
            took[what if said.get(Tag.VERDICT) == REJECT else "accepted"].append(seconds)
    return took


async def measure(directory: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    """Return what `submit` does, of a daemon with its files in a directory."""
    policy, metrics, now = policy_in(directory), Metrics(), time.time()
    settings = changed(policy.live.daemon, database=str(directory / "rtsched.db"))
    likely = changed(policy.live.likely, wait=given.wait)
    live = changed(policy.live, daemon=settings, likely=likely)
    policy = replace(policy, live=live)
    estimator = Estimator(live.estimates)
    estimator.learn(past_of(PAST, shared=False, now=now))
    EstimatesFile(directory / FILE).write(estimator, now)
    estimating = Estimating(live, metrics)
    with Store(directory / "rtsched.db", settings.durable) as store:
        made = partial(MadeUp, directory, given.pending, given.nodes, given.nodes)
        daemon = Daemon(
            policy,
            store,
            Worker(made, 300.0),
            SlurmTranslator(),
            metrics,
            reread=lambda: policy,
            estimating=estimating,
        )
        submits = SocketServer(
            directory / "submit.sock", (MessageKind.SUBMIT,), Answers(daemon).answer
        )
        queries = Queries(daemon, os.getuid())
        running = asyncio.create_task(daemon.run([(submits, None)]))
        while not (submits.path.exists() and np.isfinite(estimating.latest.at)):
            await asyncio.sleep(0.1)
            if running.done():
                running.result()
        if given.autogroup:
            for pid in ("self", estimating.pid):
                Path(f"/proc/{pid}/autogroup").write_text(str(given.autogroup))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--submit", str(submits.path)),
            *("--nodes", str(given.nodes), "--tests", str(given.tests)),
            *("--timeout-ms", str(given.timeout_ms)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await child.communicate()
        daemon._stop.set()
        await running
        queries.close()
    lines = (line.split(":") for line in out.decode().splitlines())
    return {name: [float(word) for word in words.split()] for name, words in lines}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--pending", type=int, default=50)
    parser.add_argument("--tests", type=int, default=220)
    parser.add_argument("--timeout-ms", type=int, default=50)
    parser.add_argument("--wait", type=float, default=LikelySettings().wait, help="of [likely]")
    parser.add_argument("--autogroup", type=int, default=0)
    parser.add_argument("--submit", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.submit is not None:
        for what, took in submit(given.submit, given.tests, given.timeout_ms, given.nodes).items():
            print(f"{what}: {' '.join(map(str, took))}")
        return
    log_events("error")
    sys.setswitchinterval(TURN)
    with tempfile.TemporaryDirectory() as name:
        took = asyncio.run(measure(Path(name), given))
    rejected = len(took["with odds"]) + len(took["without"])
    late = sum(s > given.timeout_ms / 1000.0 for some in took.values() for s in some)
    share = 100.0 * len(took["with odds"]) / max(rejected, 1)
    print(
        f"{given.nodes} nodes, {given.pending} pending jobs: {len(took['with odds'])} of", end=" "
    )
    print(f"{rejected} rejections ({share:.0f} %) show odds; {late} of {given.tests} answers late")
    print("\n| answer | number | p50, ms | p95 | p99 | max |\n|---|---:|---:|---:|---:|---:|")
    for what, some in took.items():
        found = np.percentile(some, [50, 95, 99, 100]) * 1000.0 if some else [np.nan] * 4
        print(f"| {what} | {len(some)} | " + " | ".join(f"{v:.1f}" for v in found) + " |")


if __name__ == "__main__":
    main()
