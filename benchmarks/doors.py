"""What one request takes at the most, by the submit filter and by a question: extreme values.

    python benchmarks/doors.py [--nodes N] [--promises N]

A daemon over the made-up Slurm of `made_up.py` is asked with the greatest numbers, and the longest
and most nested texts, that a message holds. Of each request two figures, milliseconds on the
processor: of the loop, which reads all others' requests meanwhile (at most 100 is wanted), and of
the whole process; the worst of three times.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from made_up import FIRST_USER, MadeUp, job_fields, policy_in, promise

from rtsched.adapters.slurm.facts import partitions_of
from rtsched.adapters.slurm.layout import layout_of
from rtsched.adapters.slurm.rows import node_rows
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import HEADER, MessageKind, Tag, encode
from rtsched.daemon.answers import Answers, Queries
from rtsched.daemon.app import Daemon
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.store import Store
from rtsched.daemon.systemd import log_events
from rtsched.daemon.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rtsched.adapters.slurm.layout import PartitionParts

WANTED = 100.0
"""Milliseconds of the loop's processor."""

REPEATS = 3

LONG = 200_000
"""Characters; a request of 256 KiB is the longest there is."""


class Asking:
    """A client who waits for the answer, as `uid`."""

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def waits(self) -> bool:
        """Return that it does."""
        return True

    def if_unread(self, undo: Callable[[], None]) -> None:
        """Read every answer."""


def submissions() -> Iterator[tuple[str, dict[int, int | str]]]:
    """Yield names and the fields by which they differ from a usual job."""
    yield "a usual job", {}
    yield "time limit of 2^32 min", {Tag.TIME_LIMIT: 2**32 - 2}
    for power in (31, 53, 62):
        yield f"deadline in 2^{power} s", {Tag.DEADLINE: 2**power}
        yield f"2^{power} nodes", {Tag.MIN_NODES: 2**power, Tag.MAX_NODES: 2**power}
    for load in ("sigma=1e20,cms=1,cps=1", "sigma=1e15,cms=1e15,cps=1e15,rounds=99"):
        yield f"load {load}", {Tag.EXTRA: f"rtsched:{load}", Tag.MAX_NODES: 2**31 - 1}
    for tag, piece in (
        (Tag.REQ_NODES, "n[1-999999],"),
        (Tag.EXC_NODES, "n[1-999999]"),
        (Tag.EXC_NODES, "n1,"),
        (Tag.FEATURES, "a&"),
        (Tag.FEATURES, "("),
        (Tag.FEATURES, "["),
        (Tag.DEPENDENCY, "afterok:1,"),
        (Tag.DEPENDENCY, "1,"),
        (Tag.ARRAY_INX, "1,"),
        (Tag.LICENSES, "a:1,"),
        (Tag.TRES_PER_NODE, "gres/gpu:1,"),
        (Tag.EXTRA, "rtsched:sigma=1 "),
    ):
        for length in (2_000, 30_000, LONG):
            text = piece * (length // len(piece)) if length > 2_000 else piece.rstrip(",&")
            yield f"{tag.name.lower()} {piece!r}, {len(text):,} characters", {tag: text}


def questions() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield names and questions."""
    for seconds in (60.0, 2.0**62, 1e300):
        yield f"feasible, {seconds:g} s", {"ask": "feasible", "time_s": seconds}
    yield "feasible, deadline 1e300", {"ask": "feasible", "time_s": 60.0, "deadline": 1e300}
    load = {"sigma": 1e308, "cms": 1e308, "cps": 1e308, "nodes_max": 10_000_000}
    yield "feasible, load of 1e308", {"ask": "feasible", **load}
    for name, piece in (("exclude", "n[1-999999]"), ("constraint", "a&"), ("array", "1,")):
        text = piece * (LONG // len(piece)) if piece[-1] != "]" else piece
        yield f"feasible, {name} {piece!r}", {"ask": "feasible", "time_s": 60.0, name: text}
    yield "explain, long name", {"ask": "explain", "job": "9" * LONG}


def parts_of(nodes: int) -> PartitionParts | None:
    """Return what is known of nodes n0 and so on, each of one feature or two."""
    text = "".join(
        f"NodeName=n{i} CPUEfctv=4 RealMemory=1000 State=IDLE ActiveFeatures={('a,b', 'a')[i % 2]} "
        "Partitions=all\n"
        for i in range(nodes)
    )
    said, default = partitions_of("PartitionName=all Default=YES State=UP PriorityTier=1\n")
    return layout_of(node_rows(text), said, default, set(), SlurmSettings(), 1, None).parts


async def measured(request: Callable[[], Awaitable[bytes]]) -> tuple[float, float]:
    """Return the milliseconds that a request took on the loop, and in all."""
    loop, whole = time.thread_time(), time.process_time()
    answer = await request()
    assert len(answer) >= HEADER.size
    return (time.thread_time() - loop) * 1e3, (time.process_time() - whole) * 1e3


async def measure(directory: Path, nodes: int, promises: int) -> dict[str, tuple[float, float]]:
    """Return the figures of each request."""
    policy, took = policy_in(directory), dict[str, tuple[float, float]]()
    worker = Worker(partial(MadeUp, directory, 1_000, nodes, nodes), 300.0)
    with Store(directory / "rtsched.db", policy.live.daemon.durable) as store:
        daemon = Daemon(policy, store, worker, SlurmTranslator(), Metrics(), reread=lambda: policy)
        await daemon.cycle()
        await promise(daemon, promises)
        known = replace(daemon.site.facts, parts=parts_of(nodes))
        daemon.site = replace(daemon.site, facts=known)
        answers, queries = Answers(daemon), Queries(daemon, -1)
        requests: dict[str, Callable[[], Awaitable[bytes]]] = {}
        for name, changed in submissions():
            usual = job_fields(FIRST_USER, 2, time.time() + 7200.0)
            message = encode(MessageKind.SUBMIT, [*({**usual, **changed}).items()])  # type: ignore[list-item]
            payload = message[HEADER.size :]
            requests[name] = partial(answers.answer, MessageKind.SUBMIT, payload, Asking(0))
        for name, question in questions():
            payload = msgspec.json.encode(question)
            requests[name] = partial(queries.answer, MessageKind.QUERY, payload, Asking(0))
        await measured(requests["a usual job"])  # compiles
        await measured(requests["feasible, 60 s"])
        for name, request in requests.items():
            all_took = [await measured(request) for _ in range(REPEATS)]
            took[name] = max(one for one, _ in all_took), max(both for _, both in all_took)
        queries.close()
        await worker.close()
    return took


def main() -> int:
    """Measure, print a table, and fail where the loop took longer than wanted."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--promises", type=int, default=200)
    given = parser.parse_args()
    log_events("critical")
    with tempfile.TemporaryDirectory(prefix="rtsched-doors-") as name:
        took = asyncio.run(measure(Path(name), given.nodes, given.promises))
    print("| request | loop, ms | process, ms |\n|---|---:|---:|")
    for request, (loop, whole) in sorted(took.items(), key=lambda item: -item[1][0]):
        print(f"| {request.replace('|', '/')} | {loop:.1f} | {whole:.1f} |")
    return int(max(loop for loop, _ in took.values()) > WANTED)


if __name__ == "__main__":
    sys.exit(main())
