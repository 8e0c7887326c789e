"""An estimator whose answers are known, and a daemon that uses it; for tests."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from running import ANN, NOW, Running

from rtsched.adapters.live import Marks
from rtsched.daemon.estimating import Estimating
from rtsched.daemon.estimating_process import EstimatingProcess
from rtsched.estimates import estimator
from rtsched.estimates.ahead import LimitSource
from rtsched.estimates.estimator import Estimator
from rtsched.estimates.settings import EstimateSettings
from rtsched.estimates.tables import Accuracy, Estimates
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Log
from rtsched.model.snapshot import Snapshot
from rtsched.model.units import DAY, HOUR, MINUTE


class KnownEstimator(Estimator):
    """Every job starts ten minutes from now; what it does beside is told by the jobs' names.

    The odds of a deadline in two hours are 1, and fall evenly to none at the deadline.

    A job `die` kills the process, `fail` makes the refresh fail, `hang` makes it last until a
    question comes, `limited` makes it count the groups with limits that the first job is in.
    """

    def __init__(self, settings: EstimateSettings, system: Any = None) -> None:
        super().__init__(settings, system)
        self.learned = 0
        self.asked = 0
        self.now = NOW

    def learn(self, log: Log) -> None:
        """Count the jobs."""
        self.learned += len(log.jobs)

    def refresh(
        self,
        snapshot: Snapshot,
        order: NDArray[np.float64] | None = None,
        between: Callable[[], None] | None = None,
        limits: LimitSource | None = None,
    ) -> Estimates:
        """Do what the names say."""
        self.now = snapshot.now
        names = snapshot.queued.texts("name")
        if "die" in names:
            os.kill(os.getpid(), signal.SIGKILL)
        if "fail" in names:
            raise ValueError("no such luck")
        asked = self.asked
        while "hang" in names and self.asked == asked:
            assert between is not None
            between()
            time.sleep(0.001)
        first = self.learned if order is None else float(order.max())
        if "limited" in names:
            found = limits.of(snapshot.queued, snapshot) if limits is not None else None
            first = -1 if found is None else len(found.groups.row(int(found.kind[0])))
        found = ten_minutes_from(snapshot.now, snapshot.queued.id, first)
        odds = np.clip((snapshot.queued.deadline - snapshot.now) / (2 * HOUR), 0.0, 1.0)
        odds[~np.isfinite(snapshot.queued.deadline)] = np.nan
        return found.with_column("odds", odds)

    def estimate(self, jobs: Jobs) -> Estimates:
        """Answer as for the others."""
        self.asked += 1
        return ten_minutes_from(self.now, jobs.id, 0.0)

    def ends(
        self, jobs: Jobs, within_s: float = np.inf, since: Jobs | None = None
    ) -> NDArray[np.float64]:
        """Answer with the time that may be spent, and 1,000 s more per job ahead."""
        self.asked += 1
        within_s += 0 if since is None else 1000 * len(since)
        return np.full((len(jobs), 1), within_s)

    def accuracy(self) -> Accuracy:
        """Return a record."""
        return Accuracy.build(
            3,
            seconds=[DAY, 7 * DAY, 30 * DAY],
            jobs=[4, 40, 400],
            covered_80=[0.75, 0.8, 0.81],
            covered_90=[0.75, 0.9, 0.91],
            covered_95=[1.0, 0.95, 0.96],
            error=[600.0, 500.0, 400.0],
            error_by_limits=[2000.0, 2000.0, 2000.0],
        )


def ten_minutes_from(now: float, jobs: NDArray[np.int64], first: float) -> Estimates:
    """Return an estimate of jobs; the upper 95 % of the end tells a number of the test's."""
    at = now + 10 * MINUTE
    return Estimates.build(
        len(jobs),
        job=jobs,
        start=np.full(len(jobs), at),
        start_low_80=np.full(len(jobs), at - 5 * MINUTE),
        start_high_80=np.full(len(jobs), at + 20 * MINUTE),
        start_low_95=np.full(len(jobs), at - 8 * MINUTE),
        start_high_95=np.full(len(jobs), at + 90 * MINUTE),
        end=np.full(len(jobs), at + 30 * MINUTE),
        end_low_80=np.full(len(jobs), at + 25 * MINUTE),
        end_high_80=np.full(len(jobs), at + 60 * MINUTE),
        end_low_95=np.full(len(jobs), at + 20 * MINUTE),
        end_high_95=np.full(len(jobs), at + 30 * MINUTE + first),
    )


def known_process(past: Any = None, file: Path | None = None) -> Any:
    """Return a process with the known estimator, made in the child."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "Estimator", KnownEstimator)
        return EstimatingProcess(EstimateSettings(), None, past, file)


def with_estimates(running: Running, past: Any = None, file: Path | None = None) -> Estimating:
    """Give a daemon that is not started yet the known estimator."""
    often = EstimateSettings(refresh=0.05, core_share=1.0)
    estimating = Estimating(
        msgspec.structs.replace(running.live, estimates=often),
        running.daemon.metrics,
        clock=lambda: running.now,
        make=partial(known_process, past, file),
    )
    running.daemon.estimating = estimating
    return estimating


def waiting(*names: str, held: tuple[str, ...] = (), uid: int = ANN) -> dict[str, Any]:
    """Return a poll with jobs of ann's that wait, numbered from 1."""
    n = len(names)
    ids = np.arange(1, n + 1)
    return {
        "queued": Jobs.build(
            n,
            id=ids,
            submit=NOW - 60.0 + ids,
            wall_time=np.full(n, 3600.0),
            size=np.full(n, 2),
            name=list(names),
            user=["ann"] * n,
            partition=["all"] * n,
        ),
        "edges": Edges.build(0),
        "marks": Marks.build(
            n, job=ids, uid=np.full(n, uid), held=np.array([name in held for name in names])
        ),
    }
