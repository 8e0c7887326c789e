"""A large daemon, made up, whose board a browser opens; for tests, pictures and measurements."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from estimating_site import KnownEstimator
from numpy.typing import NDArray
from rest_client import app_for, in_thread, seen_in_queue
from running import ANN, FACTS, NOW, Running, answer_of

from rtsched.adapters.live import Marks
from rtsched.adapters.slurm.facts import Partition
from rtsched.daemon.estimating import Estimating, LatestEstimates
from rtsched.daemon.promises import Promise, PromiseState, encode_jobs
from rtsched.daemon.settings import DaemonSettings
from rtsched.estimates.settings import EstimateSettings
from rtsched.estimates.tables import Estimates
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.table import offsets_of
from rtsched.rest.credential import payload_for

HOUR, DAY = 3600.0, 86_400.0
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"
"""What somebody may call a job."""


def busy(nodes: int, jobs: int) -> dict[str, Any]:
    """Return a poll of so many nodes with so many running jobs, several on a node where need be."""
    random = np.random.default_rng(7)
    free = nodes // 40  # nothing runs on these
    size = np.minimum(random.geometric(0.4, jobs), 8).astype(np.int32)
    first = random.integers(free, max(nodes - 8, free + 1), jobs)
    rows = np.repeat(first, size) + np.concatenate([np.arange(each) for each in size.tolist()])
    ids = np.arange(10_000, 10_000 + jobs)
    start = NOW - random.uniform(0.0, 4.0, jobs) * HOUR
    end = NOW + np.minimum(0.2 + random.exponential(2.5, jobs), 24.0) * HOUR
    placed = np.minimum(rows, nodes - 1).astype(np.int32)
    aside = np.arange(nodes - 2, nodes)
    blocked = Blocked.of([(int(at), NOW + 6 * HOUR, NOW + 9 * HOUR, WHOLE) for at in aside])
    return {
        "cluster": Cluster(
            Nodes.build(nodes, name=[f"node{at:04}" for at in range(nodes)]),
            {"first": np.arange(nodes) < nodes // 2, "second": np.arange(nodes) >= nodes // 2},
        ),
        "running": Jobs.build(jobs, id=ids, submit=start, wall_time=end - start, size=size),
        "allocations": Schedule.build(ids, start, end, offsets_of(size), placed),
        "blocked": blocked,
    }


def closed_likely() -> Iterator[Promise]:
    """Yield likely promises that ended, of odds that are about right."""
    job, random = encode_jobs(Jobs.build(1)), np.random.default_rng(7)
    for number in range(400):
        odds = float(random.choice([0.82, 0.9, 0.95, 0.97, 0.995]))
        state: PromiseState = "kept" if random.random() < odds else "missed"
        yield Promise(f"past{number}", number, ANN, "ann", NOW, NOW, state, NOW, "", job, odds=odds)


class MadeUpEstimates(Estimating):
    """Estimates of starts that are known at once; each job ends in time with odds of 96 %."""

    async def estimate(self, jobs: Jobs, timeout_s: float = 1.0) -> Estimates:
        """Answer as for a job that waits."""
        del timeout_s
        return made_up(jobs.id)

    async def ends(self, jobs: Jobs, timeout_s: float = 1.0) -> NDArray[np.float64]:
        """Answer the same for all: most end at once, the others never."""
        del timeout_s
        return np.tile(np.repeat([0.0, np.inf], [96, 3]), (len(jobs), 1))


def made_up(jobs: NDArray[np.int64]) -> Estimates:
    """Return estimates of jobs, each starting somewhat later than the one before."""
    start = NOW + HOUR * (0.4 + 0.7 * np.arange(len(jobs)))
    around = {"low_95": 0.4, "low_80": 0.6, "high_80": 1.6, "high_95": 2.5}
    columns = {f"start_{name}": NOW + by * (start - NOW) for name, by in around.items()}
    columns |= {f"end_{name}": NOW + by * (start + HOUR - NOW) for name, by in around.items()}
    return Estimates.build(len(jobs), job=jobs, start=start, end=start + HOUR, **columns)


def with_waiting(running: Running, promised: Jobs, count: int) -> None:
    """Have so many jobs of ann's wait without a promise, with estimates of their starts."""
    ids = 5001 + np.arange(count)
    jobs = Jobs.build(
        count,
        id=ids,
        submit=NOW - HOUR,
        wall_time=2 * HOUR,
        size=2 + np.arange(count) % 3,
        name=[f"sweep-{number}" for number in range(count)],
        user=["ann"] * count,
        partition=["all"] * count,
    )
    shown = running.system.observation
    marks = Marks.joined([shown.marks, Marks.build(count, job=ids, uid=np.full(count, ANN))])
    running.show(queued=Jobs.joined([promised, jobs]), marks=marks)
    estimating = MadeUpEstimates(running.live, running.daemon.metrics)
    estimating.latest = LatestEstimates(
        made_up(ids), NOW, accuracy=KnownEstimator(EstimateSettings()).accuracy()
    )
    running.daemon.estimating = running.daemon.odds = estimating


def large_daemon(
    path: Path,
    nodes: int = 2000,
    jobs: int = 10_000,
    promises: int = 20,
    first: str = HOSTILE,
    waiting: int = 0,
) -> AbstractContextManager[Running]:
    """Run a daemon with running jobs, and with promises to ann's, of which one is named `first`.

    `waiting` of ann's jobs wait without one; then there are estimates of starts, and odds.
    """

    async def course(running: Running) -> None:
        partitions = {
            "all": Partition("all", 600.0, 30 * DAY, True, nodes, 4),
            "first": Partition("first", 600.0, 30 * DAY, True, nodes // 2, 4),
            "second": Partition("second", 600.0, 30 * DAY, True, nodes - nodes // 2, 4),
        }
        facts = replace(FACTS, partitions=partitions, longest=30 * DAY)
        running.show(facts=facts, **busy(nodes, jobs))
        await running.start()
        for number in range(promises):
            hours = 2.0 + number
            name = first if number == 0 else f"model-{number}"
            line = running.asked(4 + number % 5, hours, minutes=90, NAME=name)
            await asyncio.to_thread(answer_of, line)
        records = list(running.daemon.site.promises.values())
        rows = Jobs.joined([running.daemon.site.row(record.id) for record in records])
        rows = rows.replace(id=4711 + np.arange(len(records)))
        await seen_in_queue(running, rows, [record.token for record in records])
        if waiting:
            with_waiting(running, rows, waiting)
            await running.daemon.cycle()
        running.store.commit(list(closed_likely()), None, 0)

    return in_thread(Running(path, DaemonSettings(promises_per_user=promises + 10)), course)


@contextmanager
def board(running: Running) -> Iterator[str]:
    """Serve the board of a daemon; yield where."""
    config = uvicorn.Config(app_for(running), port=0, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    with closing(config.bind_socket()) as end:
        where = f"http://127.0.0.1:{end.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [end]})
        thread.start()
        try:
            while not server.started:
                thread.join(0.02)
            yield where
        finally:
            server.should_exit = True
            thread.join()


def link_for(where: str, uid: int = ANN) -> str:
    """Return a link that opens the board for a user."""
    said = payload_for("POST", b"/v1/sessions", b"").hex()
    header = {"authorization": f"Munge {uid} {said}"}
    answer = httpx.post(f"{where}/v1/sessions", headers=header)
    return where + str(answer.json()["path"])
