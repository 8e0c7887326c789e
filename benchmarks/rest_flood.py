"""What a flood of the REST server costs the submit filter: its answers with and without one.

    python benchmarks/rest_flood.py [--seconds S] [--rate R] [--quick] [--json FILE]

A whole daemon (sockets, database) over a made-up Slurm, and `rtsched rest` beside it as another
user with nice 10, as its unit has it. Jobs with deadlines are submitted at 20/s as the filter does
it, in turn without a flood and while two processes send 1,000 requests/s in all: one as a local
user who asks for her status, the other over TCP without a credential. They run with nice 19, on the
same processors. As root, server and flood have users of their own. The lag of the daemon's loop is
told without its waits for a processor that other processes had (see loop_lag.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from loop_lag import EVERY, waited_for_processor
from made_up import FIRST_USER, MadeUp, Spool, job_fields, policy_in, promise

from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import HEADER, MessageKind, Tag, encode, read_header
from rtsched.daemon.answers import Answers, Queries
from rtsched.daemon.app import Daemon
from rtsched.daemon.metrics import LoopLag, Metrics
from rtsched.daemon.server import SocketServer
from rtsched.daemon.start import QUESTIONS, TURN
from rtsched.daemon.store import Store
from rtsched.daemon.systemd import log_events
from rtsched.daemon.worker import Worker
from rtsched.rest.serving import listeners, serve
from rtsched.rest.settings import RestSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site

NODES = 1_000
PENDING, PROMISES = 10_000, 1_000
SUBMISSIONS = 20.0
"""A second."""
ROUNDS = 4
"""Times that submissions are measured without and with a flood, in turn."""
LINES = 16
"""Connections of each of the processes that flood."""
LAGS = "lags.json"
BOUND = 0.05
"""Seconds that the filter waits by default."""
REST_UID, FLOOD_UID = 61_900, 61_901
PERCENT = (50.0, 99.0, 100.0)


def _daemon(directory: Path, extent: tuple[int, int], rest_uid: int) -> None:
    log_events("error")
    sys.setswitchinterval(TURN)
    asyncio.run(_daemon_runs(directory, extent, rest_uid))


async def _daemon_runs(directory: Path, extent: tuple[int, int], rest_uid: int) -> None:
    pending, promises = extent
    policy = policy_in(directory)
    with Store(directory / "rtsched.db", policy.live.daemon.durable) as store:
        worker = Worker(partial(MadeUp, directory, pending, NODES, NODES // 2), 300.0)
        daemon = Daemon(policy, store, worker, SlurmTranslator(), Metrics(), reread=lambda: policy)
        spool, commit = Spool(directory), daemon.commit

        async def committed(site: Site, changed: Sequence[Promise]) -> None:
            await commit(site, changed)
            spool.put(site, changed)
            await asyncio.to_thread(spool.write)

        daemon.commit = committed  # type: ignore[method-assign]
        await daemon.cycle()
        await promise(daemon, promises)
        submits = SocketServer(
            directory / "submit.sock", (MessageKind.SUBMIT,), Answers(daemon).answer
        )
        queries = Queries(daemon, os.getuid())
        users = SocketServer(
            directory / "query.sock", QUESTIONS, queries.answer, for_others=rest_uid
        )
        lags, waited = list[tuple[float, float]](), waited_for_processor()

        def seen(lag: float) -> None:
            nonlocal waited
            before, waited = waited, waited_for_processor()
            lags.append((time.monotonic(), max(lag - (waited - before), 0.0)))

        meter = LoopLag(seen, EVERY)
        meter.start()
        await daemon.run([(submits, None), (users, None)])
        meter.stop()
        queries.close()
    (directory / LAGS).write_text(json.dumps(lags))


def _server(directory: Path, port: int, uid: int) -> None:
    log_events("error")
    os.nice(10)
    if uid != os.getuid():
        os.setuid(uid)
    settings = RestSettings(
        port=port,
        socket=str(directory / "rest" / "rest.sock"),
        query_socket=str(directory / "query.sock"),
    )
    ready = (directory / "rest" / "ready").touch
    asyncio.run(serve(settings, listeners(settings), ready, asyncio.Event()))


def _flood(where: str | int, rate: float, seconds: float, results: Any) -> None:
    os.nice(19)
    if isinstance(where, str) and os.getuid() == 0:
        os.setuid(FLOOD_UID)
    results.put((str(where), asyncio.run(_flooded(where, rate, seconds))))


async def _flooded(where: str | int, rate: float, seconds: float) -> dict[str, int]:
    """Send requests at a rate; return how many were answered with which status."""
    found, end = Counter[str](), time.monotonic() + seconds

    async def line(at: float) -> None:
        reader = writer = None
        while at < end:
            await asyncio.sleep(max(at - time.monotonic(), 0.0))
            at = max(at + LINES / rate, time.monotonic() - 0.5)
            try:
                if reader is None or writer is None:
                    reader, writer = (
                        await asyncio.open_unix_connection(where)
                        if isinstance(where, str)
                        else await asyncio.open_connection("127.0.0.1", where)
                    )
                writer.write(b"GET /v1/status HTTP/1.1\r\nHost: rtsched\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(each.partition(b":")[2])
                    for each in head.lower().split(b"\r\n")
                    if each.startswith(b"content-length")
                )
                await reader.readexactly(length)
                found[head.split()[1].decode()] += 1
            except (OSError, EOFError):
                found["closed"] += 1
                reader = None

    begin = time.monotonic()
    await asyncio.gather(*(line(begin + k / rate) for k in range(LINES)))
    return dict(found)


def _submit(path: str, seconds: float, seed: int) -> list[float]:
    """Submit jobs at a rate; return how long each answer took, seconds."""
    random, took = np.random.default_rng(seed), list[float]()
    until, at = time.monotonic() + seconds, time.monotonic()
    while (at := at + random.exponential(1.0 / SUBMISSIONS)) < until:
        time.sleep(max(at - time.monotonic(), 0.0))
        nodes, hours = int(random.integers(1, 33)), float(random.uniform(2.0, 72.0))
        uid = FIRST_USER + int(random.integers(200))
        fields = job_fields(uid, nodes, time.time() + hours * 3600)
        begun = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10.0)
            line.connect(path)
            line.sendall(encode(MessageKind.SUBMIT, [(Tag(tag), v) for tag, v in fields.items()]))
            _, length = read_header(line.recv(HEADER.size, socket.MSG_WAITALL))
            line.recv(length, socket.MSG_WAITALL)
        took.append(time.perf_counter() - begun)
    return took


def _measured(
    directory: Path, extent: tuple[int, int], seconds: float, rate: float
) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    context = multiprocessing.get_context("spawn")
    root = os.getuid() == 0
    uid = REST_UID if root else os.getuid()
    (directory / "rest").mkdir()
    if root:
        os.chown(directory / "rest", uid, uid)
    daemon = context.Process(target=_daemon, args=(directory, extent, uid))
    server = context.Process(target=_server, args=(directory, port, uid))
    results = context.Queue()
    try:
        daemon.start()
        _wait(directory / "query.sock", daemon)
        server.start()
        _wait(directory / "rest" / "ready", server)
        path = str(directory / "submit.sock")
        _submit(path, 3.0, 0)
        quiet, flooded, part = list[float](), list[float](), seconds / ROUNDS
        parts = list[tuple[float, bool | None]]()
        targets = (str(directory / "rest" / "rest.sock"), port)
        answers = [Counter[str]() for _ in targets]
        for turn in range(ROUNDS):
            parts.append((time.monotonic(), False))
            quiet += _submit(path, part, 2 * turn + 1)
            parts.append((time.monotonic(), None))
            floods = [
                context.Process(target=_flood, args=(where, rate / 2, part + 4.0, results))
                for where in targets
            ]
            for flood in floods:
                flood.start()
            time.sleep(3.0)  # the processes import what they need
            parts.append((time.monotonic(), True))
            flooded += _submit(path, part, 2 * turn + 2)
            parts.append((time.monotonic(), None))
            found = dict(results.get(timeout=60.0) for _ in floods)
            for answer, where in zip(answers, targets, strict=True):
                answer.update(found[str(where)])
            for flood in floods:
                flood.join()
    finally:
        for process in (server, daemon):
            if process.pid is not None:
                process.terminate()
                process.join(30.0)
    lags: dict[bool | None, list[float]] = {False: [], True: [], None: []}
    for at, lag in json.loads((directory / LAGS).read_text()):
        lags[next((kind for begun, kind in reversed(parts) if begun <= at), None)].append(lag)
    spent = seconds + 4.0 * ROUNDS
    found = {"quiet": quiet, "flooded": flooded, "seconds": spent}
    found |= {"quiet lag": lags[False], "flooded lag": lags[True]}
    return {**found, "answers": [dict(answer) for answer in answers]}


def _wait(file: Path, process: Any) -> None:
    """Wait until a file is there."""
    end = time.monotonic() + 300.0
    while not file.exists():
        time.sleep(0.1)
        if not process.is_alive() or time.monotonic() > end:
            raise SystemExit(f"{file.name} does not appear")


def _row(name: str, values: Sequence[float]) -> str:
    found = np.percentile(values, PERCENT) * 1000.0
    late = sum(value > BOUND for value in values)
    return f"| {name} | {len(values):,} | " + " | ".join(f"{v:.1f}" for v in found) + f" | {late} |"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests per second")
    parser.add_argument("--quick", action="store_true", help="a small state, to see that it works")
    parser.add_argument("--json", type=Path, help="write all measurements there")
    given = parser.parse_args()
    extent = (1_000, 50) if given.quick else (PENDING, PROMISES)
    with tempfile.TemporaryDirectory(prefix="rtsched-flood-") as name, suppress(KeyboardInterrupt):
        directory = Path(name)
        directory.chmod(0o755)
        found = _measured(directory, extent, given.seconds, given.rate)
        total = sum(sum(each.values()) for each in found["answers"])
        print(
            f"{extent[0]:,} pending jobs, {extent[1]:,} promises; flood: "
            f"{total / found['seconds']:.0f} requests/s, answers by status: "
            f"local user {found['answers'][0]}, without credential {found['answers'][1]}\n"
        )
        print("| milliseconds | n | " + " | ".join(f"{p:g} %" for p in PERCENT) + " | over 50 |")
        print("|---|---:|" + "---:|" * (len(PERCENT) + 1))
        print(_row("submit, no flood", found["quiet"]))
        print(_row("submit, flooded", found["flooded"]))
        print(_row("loop's own lag, no flood", found["quiet lag"]))
        print(_row("loop's own lag, flooded", found["flooded lag"]))
        if given.json:
            given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
