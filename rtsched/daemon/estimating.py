"""The daemon's side of the process that estimates starts.

After a poll the newest state is handed over, as often as the settings allow. The estimates that
come back are kept for users' questions; questions about jobs that are not submitted are passed on,
with a bounded wait. Nothing here delays a poll or a submission, and no failure of it is more than a
sentence in the log.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import structlog

from rtsched.adapters.past import NO_JOBS, condor_past, joined_logs, slurm_past
from rtsched.daemon.estimating_process import Question, Refreshed, Report, low_priority_process
from rtsched.daemon.qos_limits import LimitsNow, without_planned_limits
from rtsched.daemon.site import LikelyPromises
from rtsched.daemon.worker import Remote
from rtsched.errors import AdapterError
from rtsched.estimates.tables import Accuracy, Estimates
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.log import Ending, Log, Outcomes
from rtsched.model.snapshot import are_in, places
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.adapters.live import Completions
    from rtsched.daemon.cycle import Steered
    from rtsched.daemon.metrics import Metrics
    from rtsched.daemon.settings import LiveSite
    from rtsched.daemon.site import Site
    from rtsched.model.snapshot import Snapshot

MOST = 100_000
"""Ended jobs that are kept until somebody takes them."""


class EndedJobs:
    """Finds, poll by poll, which jobs have ended, and how long they ran."""

    def __init__(self) -> None:
        self._jobs = NOBODY
        self._runs: dict[int, float] = {}
        self._found: list[Log] = []

    def poll(self, snapshot: Snapshot, completions: Completions, at: float) -> None:
        """Take in a poll that began at this time, seconds since the epoch."""
        jobs = Jobs.joined([snapshot.queued, snapshot.running])
        gone = self._jobs.take(~are_in(self._jobs.id, jobs.id))
        if len(gone):
            found = self._ended(gone, completions, at)
            if len(found.jobs):
                self._found.append(found)
        if sum(len(log.jobs) for log in self._found) > MOST:
            self._found = self._found[-1:]
        entries = snapshot.allocations.entries
        self._runs = dict(zip(entries.job.tolist(), entries.start.tolist(), strict=True))
        self._jobs = jobs

    def taken(self) -> Log | None:
        """Return what has been found since this was last asked; None: nothing."""
        found, self._found = joined_logs(self._found), []
        return found if len(found.jobs) else None

    def _ended(self, gone: Jobs, completions: Completions, at: float) -> Log:
        """Return jobs that are not shown any more, of those that ran."""
        start = np.array([self._runs.get(job, np.nan) for job in gone.id.tolist()], np.float64)
        end = np.where(np.isfinite(start), at, np.nan)
        place, known = places(completions.job, gone.id)
        if known.any():
            start[known] = completions.start[place[known]]
            end[known] = completions.end[place[known]]
        with np.errstate(invalid="ignore"):
            ran: NDArray[np.bool_] = np.isfinite(start) & (end >= start)
        if not ran.any():
            return NO_JOBS
        outcomes = Outcomes.build(
            len(gone),
            start=start,
            end=end,
            run_time=end - start,
            size=gone.size,
            ending=np.full(len(gone), Ending.UNKNOWN, np.int8),
        )
        return Log(gone.take(ran), outcomes.take(ran), (), "polls")


def past_of(live: LiveSite) -> Callable[[float, float], Log]:
    """Return what reads the jobs that ended between two times, seconds since the epoch."""
    if live.daemon.system == "condor":
        return partial(condor_past, live.condor)
    return partial(slurm_past, live.slurm)


log = structlog.get_logger(__name__)

FILE = "estimates.bin"
"""Name of the file with past and record, beside the database."""

WAIT = 1.5
"""Seconds that a question about jobs that are not submitted waits for its answer."""

ANSWERS = 30.0
"""Seconds within which the process must answer each request; it then only passes work on."""

HANGS = 900.0
"""Seconds after which a refresh is taken to hang; the first one may compile kernels."""

MOST_WAITING = 20_000
"""Waiting jobs that are estimated at most, the first in their order: those behind them hardly
delay them."""

POLLED_EVERY = 0.25
"""Seconds between two questions whether a refresh has ended."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds between two attempts, where one fails after the other."""

LAST = 2.0
"""Seconds that a process which ends may take to write down past and record."""


@dataclass(frozen=True)
class LatestEstimates:
    """What is known of starts.

    Attributes
    ----------
    estimates : Estimates
        One row per waiting job at that time, in order of job ids.
    at : float
        The time of the state, seconds since the epoch; -inf: nothing has been estimated.
    left_out : int
        Waiting jobs that were not estimated, since too many wait.
    accuracy : Accuracy
        How good the estimates of the past were.
    past : int
        Jobs of the past that were read since the process began.
    problem : str
        Why no ended jobs can be read, one sentence; empty: they can.
    failure : str
        Why there are no newer estimates, one sentence; empty: there are none due.
    enabled : bool
        Whether starts are estimated at all.
    """

    estimates: Estimates = field(default_factory=lambda: Estimates.build(0))
    at: float = -math.inf
    left_out: int = 0
    accuracy: Accuracy = field(default_factory=lambda: Accuracy.build(0))
    past: int = 0
    problem: str = ""
    failure: str = ""
    enabled: bool = True

    def row(self, job: int) -> Estimates | None:
        """Return what is estimated of a waiting job, one row; None: nothing."""
        place, there = places(self.estimates.job, np.array([job]))
        return self.estimates.take(place) if there[0] else None

    def odds(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the odds that jobs end by their deadlines, float64[n]; nan: not known."""
        found = np.full(len(jobs), np.nan)
        place, there = places(self.estimates.job, jobs)
        found[there] = self.estimates.odds[place[there]]
        return found


class Estimating:
    """Start estimates of the live cluster.

    Parameters
    ----------
    live : LiveSite
        The site's settings.
    metrics : Metrics
        What is counted.
    clock : callable
        Seconds since the epoch.
    kept : bool
        Whether past and record are kept beside the database: not in a dry run.
    make : callable, optional
        Makes the `EstimatingProcess`, in the child, picklable; by default as the settings say.
    """

    def __init__(
        self,
        live: LiveSite,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
        kept: bool = True,
        make: Callable[[], object] | None = None,
    ) -> None:
        self._live, self._metrics, self._clock = live, metrics, clock
        self._kept, self._given = kept, make
        self.latest = LatestEstimates(enabled=live.estimates.enabled)
        self._remote: Remote | None = None
        self._task: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None
        self._newest: tuple[Snapshot, NDArray[np.float64] | None, LimitsNow | None, int] | None = (
            None
        )
        self._arrived = asyncio.Event()
        self._ended = EndedJobs()
        self._margin = 0.0
        """Seconds by which polls show jobs to last longer than their users asked for."""
        self._records = False
        """Whether ended jobs come from the batch system's records."""
        self._cpu_s, self._problem, self._pause = 0.0, "", 0.0
        self.promised: Callable[[], LikelyPromises] = LikelyPromises
        """Returns the open likely promises: jobs that the last estimate may not know of."""

    @property
    def pid(self) -> int | None:
        """The process id of the estimating process; None while there is none."""
        return self._remote.pid if self._remote is not None else None

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to estimate, if the settings say so."""
        if self._live.estimates.enabled and self._task is None:
            self._remote = self._made()
            self._task = asyncio.get_running_loop().create_task(self._run(self._remote))

    async def close(self) -> None:
        """End the process."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        remote, self._remote = self._remote, None
        if remote is not None:
            with suppress(AdapterError, TimeoutError):
                if remote.is_made:
                    async with asyncio.timeout(LAST):
                        await remote.ask("save", LAST)
            remote.kill()

    def follow_settings(self, live: LiveSite) -> None:
        """Go on as changed settings say; the process begins anew if they concern it."""
        before, self._live = self._live, live
        if _concerns(before) != _concerns(live):
            self._changing = asyncio.get_running_loop().create_task(self._begin_anew())

    async def _begin_anew(self) -> None:
        await self.close()
        self.latest = LatestEstimates(enabled=self._live.estimates.enabled)
        self._metrics.not_estimated()
        self.start()

    def _made(self) -> Remote:
        live = self._live
        make = self._given
        if make is None:
            file = Path(live.daemon.database).with_name(FILE) if self._kept else None
            system = live.system if isinstance(live.system, ExclusiveSettings) else None
            make = partial(
                low_priority_process,
                live.estimates,
                system,
                past_of(live),
                file,
                live.daemon.log_level,
            )
        late = "the process that estimates starts did not answer within {:g} s"
        return Remote(make, ANSWERS, "estimates starts", late)

    # --- what the daemon reports ------------------------------------------------------------------

    async def follow(self, site: Site, steered: Steered | None, completions: Completions) -> None:
        """Take note of the state after a poll, and of what it showed to end."""
        if self._task is not None:
            await asyncio.to_thread(self._note, site, steered, completions)
            self._arrived.set()

    def _note(self, site: Site, steered: Steered | None, completions: Completions) -> None:
        if not self._records:
            self._ended.poll(site.snapshot, completions, site.seen)
        snapshot, order = site.snapshot, order_of(site, steered)
        if len(stuck := held_back(site)):
            rows = np.flatnonzero(~are_in(snapshot.queued.id, stuck))
            snapshot = replace(snapshot, queued=snapshot.queued.take(rows))
            order = None if order is None else order[rows]
        snapshot, order, left_out = first_waiting(snapshot, order, MOST_WAITING)
        self._margin = float(getattr(site.facts, "margin", 0.0))
        queued, running = (
            with_likely_deadlines(self._handed_over(jobs), site.likely)
            for jobs in (snapshot.queued, snapshot.running)
        )
        snapshot = replace(snapshot, states={}, queued=queued, running=running)
        limits = None
        if site.limit_rules is not None:
            limits = LimitsNow(site.limit_rules, site.used_time)
            snapshot = without_planned_limits(snapshot)
        self._newest = snapshot, order, limits, left_out

    def _handed_over(self, jobs: Jobs) -> Jobs:
        """Return jobs with the times that their users asked for, as records have them."""
        return jobs.with_column("wall_time", np.maximum(jobs.wall_time - self._margin, 1.0))

    # --- questions --------------------------------------------------------------------------------

    async def estimate(self, jobs: Jobs, timeout_s: float = WAIT) -> Estimates | None:
        """Return estimates of jobs that are not submitted, each as if it alone were, now.

        None: they are not estimated, or not within so many seconds.
        """
        return cast("Estimates | None", await self._answer("estimate", jobs, timeout_s))

    async def ends(self, jobs: Jobs, timeout_s: float = WAIT) -> NDArray[np.float64] | None:
        """Return when such jobs may end if submitted now, each alone, as `Estimator.ends` does.

        Those with likely promises that were given since the last estimate wait ahead of each.
        None: they are not estimated, or not within so many seconds.
        """
        since = self.promised().given_since(self.latest.at)
        found = await self._answer("ends", jobs, timeout_s, self._handed_over(since))
        return cast("NDArray[np.float64] | None", found)

    async def _answer(
        self, kind: Question, jobs: Jobs, timeout_s: float, since: Jobs = NOBODY
    ) -> Any:
        remote = self._remote
        if remote is None or not math.isfinite(self.latest.at) or not remote.is_made:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await remote.ask("answer", kind, self._handed_over(jobs), timeout_s, since)
        except TimeoutError:
            return None
        except AdapterError as error:
            self._failed(str(error))
            return None

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self, remote: Remote) -> None:
        """Refresh the estimates, again and again."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(remote.pause)
            begun, cpu = time.monotonic(), self._cpu_s
            try:
                await self._refresh(remote)
                self._pause = 0.0
            except AdapterError as error:
                self._failed(str(error))
                self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
                await asyncio.sleep(self._pause)
                self._arrived.set()
                continue
            except Exception:  # a defect must not end the estimates
                log.exception("estimating_crashed")
                await asyncio.sleep(LONGEST_PAUSE)
                continue
            settings = self._live.estimates
            used = max(self._cpu_s - cpu, 0.0) / settings.core_share
            await asyncio.sleep(max(settings.refresh, used) - (time.monotonic() - begun))

    async def _refresh(self, remote: Remote) -> None:
        """Have the newest state estimated.

        Raises
        ------
        AdapterError
            If that fails, or the process hung or died.
        """
        assert self._newest is not None  # noqa: S101 - something arrived
        snapshot, order, limits, left_out = self._newest
        await remote.ask("refresh", snapshot, order, self._ended.taken(), limits)
        until = time.monotonic() + HANGS
        while True:
            report = cast("Report", await remote.ask("report"))
            self._count(report)
            if report.failure:
                raise AdapterError(f"starts are not estimated: {report.failure}")
            if report.refreshed is not None:
                self._take_in(report.refreshed, report, left_out)
                return
            if not report.busy:
                raise AdapterError("the process that estimates starts began anew")
            if time.monotonic() > until:
                remote.kill()
                raise AdapterError(f"an estimate of starts did not end within {HANGS:g} s")
            await asyncio.sleep(POLLED_EVERY)

    def _count(self, report: Report) -> None:
        if report.cpu_s < self._cpu_s:  # another process
            self._cpu_s = 0.0
        self._records = not report.past_problem
        self._metrics.estimating(report.cpu_s - self._cpu_s)
        self._cpu_s = report.cpu_s

    def _take_in(self, refreshed: Refreshed, report: Report, left_out: int) -> None:
        found = refreshed.estimates
        if self._problem:
            log.info("estimates_again")
        self._problem = ""
        self.latest = LatestEstimates(
            found.take(np.argsort(found.job, kind="stable")),
            refreshed.at,
            left_out,
            refreshed.accuracy,
            report.past,
            report.past_problem,
        )
        self._metrics.estimated(refreshed.at, refreshed.seconds, refreshed.accuracy)

    def _failed(self, problem: str) -> None:
        """Count a failure, and log it once."""
        self._metrics.estimate_failed()
        if problem != self._problem:
            log.warning("not_estimated", error=problem)
        self._problem = problem
        self.latest = replace(self.latest, failure=problem)


def with_likely_deadlines(jobs: Jobs, likely: LikelyPromises) -> Jobs:
    """Return jobs with the deadlines of open likely promises, and no others: theirs are judged."""
    promises = likely.promises
    deadline = np.full(len(jobs), np.inf)
    place, there = places(np.array(list(promises), np.int64), jobs.id)
    promised = np.array([promise.deadline for promise in promises.values()])
    deadline[there] = promised[place[there]]
    return jobs.with_column("deadline", deadline)


def order_of(site: Site, steered: Steered | None) -> NDArray[np.float64] | None:
    """Return the priorities of the waiting jobs, float64[n]; None: they are not known.

    Where plug-ins order the queue, theirs; else the batch system's own.
    """
    queued = site.snapshot.queued
    if not len(queued):
        return None
    found = np.full(len(queued), np.nan)
    place, there = places(site.marks.job, queued.id)
    if len(site.marks):
        found[there] = site.marks.priority[place[there]]
    orders = steered.orders if steered is not None else ()
    if orders and not np.isfinite(found).any():
        for ids, order in orders:
            at, known = places(queued.id, ids)
            found[at[known]] = order.value[known]
    known = np.isfinite(found)
    if not known.any():
        return None
    found[~known] = found[known].min()
    return found


def held_back(site: Site) -> NDArray[np.int64]:
    """Return the waiting jobs, int64[k], that are held by somebody or wait for such a job.

    Nobody knows when they start. Promised jobs, and those that are held to be judged, are none.
    """
    marks, snapshot = site.marks, site.snapshot
    queued, edges = snapshot.queued, snapshot.edges
    held = marks.job[marks.held & ~marks.deferred]
    held = np.setdiff1d(held[are_in(held, queued.id)], snapshot.plan.entries.job)
    while len(held):
        arrays = queued.array[are_in(queued.id, held)]
        waits = np.where(
            edges.whole_array,
            are_in(edges.before, arrays[arrays >= 0]),
            are_in(edges.before, held),
        )
        more = np.setdiff1d(edges.after[waits], held)
        more = more[are_in(more, queued.id)]
        if not len(more):
            break
        held = np.union1d(held, more)
    return held


def first_waiting(
    snapshot: Snapshot, order: NDArray[np.float64] | None, most: int
) -> tuple[Snapshot, NDArray[np.float64] | None, int]:
    """Return a state with so many waiting jobs at the most, and how many are left out."""
    waiting = len(snapshot.queued)
    if waiting <= most:
        return snapshot, order, 0
    ranks = np.arange(waiting) if order is None else np.argsort(-order, kind="stable")
    rows = ranks[:most]
    planned = np.flatnonzero(are_in(snapshot.queued.id, snapshot.plan.entries.job))
    rows = np.union1d(rows, planned)
    queued = Jobs.joined([snapshot.queued.take(rows)])
    order = None if order is None else order[rows]
    return replace(snapshot, queued=queued), order, waiting - len(rows)


def _concerns(live: LiveSite) -> tuple[object, ...]:
    """Return the settings that the process is made by."""
    settings = live.estimates
    system = live.system if isinstance(live.system, ExclusiveSettings) else None
    patience = live.slurm if live.daemon.system == "slurm" else live.condor
    return settings, system, patience, live.daemon.database
