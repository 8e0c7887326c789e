"""Metrics of the daemon, for Prometheus, never by user or job; and the lag of its loop.

Without the package `prometheus_client` (`pip install 'rtsched[live]'`) nothing is counted, and the
daemon runs on.

How long a submit filter waits before its question is looked at: a timer that is due every 20 ms
says by how much it came too late. What a timer waits for, a question that came at the same instant
waits for too.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import structlog

from rtsched.daemon.likely import sold
from rtsched.daemon.promises import AT_RISK, OPEN, PromiseState
from rtsched.daemon.site import states
from rtsched.errors import ConfigError
from rtsched.model.units import PERIODS
from rtsched.model.verdicts import Verdict
from rtsched.text import CLASSES, class_of

try:
    import prometheus_client
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = ""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from rtsched.adapters.live import Done
    from rtsched.core.chain import Answer, HookMetrics, Judgement
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site
    from rtsched.estimates.tables import Accuracy
    from rtsched.model.verdicts import Verdicts

    ByHook = Mapping[str, Mapping[str, HookMetrics]]

log = structlog.get_logger(__name__)


class Metric(NamedTuple):
    """One metric as it is declared."""

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    description: str
    buckets: tuple[float, ...] = ()


_ANSWER = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
_LAG = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_CYCLE = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

METRICS = {
    "rtsched_requests_total": Metric(
        "counter", ("kind", "result"), "Requests of the submit filter, by kind and outcome."
    ),
    "rtsched_answer_seconds": Metric(
        "histogram", ("kind",), "Response time to the submit filter, seconds.", _ANSWER
    ),
    "rtsched_verdicts_total": Metric(
        "counter",
        ("plugin", "mode", "verdict", "reason"),
        "Verdicts on submissions, by plug-in, its mode, and reason code; abstentions included.",
    ),
    "rtsched_hook_calls_total": Metric("counter", ("plugin", "hook"), "Hook calls per plug-in."),
    "rtsched_hook_seconds_total": Metric(
        "counter", ("plugin", "hook"), "Seconds spent in a plug-in."
    ),
    "rtsched_hook_errors_total": Metric(
        "counter",
        ("plugin", "hook"),
        "Hook calls in which a plug-in raised an exception or returned an invalid answer.",
    ),
    "rtsched_loop_lag_seconds": Metric(
        "histogram",
        (),
        "Timer delay of the event loop that answers the submit filter, seconds.",
        _LAG,
    ),
    "rtsched_cycle_seconds": Metric(
        "histogram", (), "Duration of a cycle including poll and changes, seconds.", _CYCLE
    ),
    "rtsched_cycle_failures_total": Metric("counter", (), "Cycles that failed."),
    "rtsched_planning_failures_total": Metric(
        "counter",
        (),
        "Cycles in which the planner failed: the plan and all promises were kept, and held jobs "
        "stayed held.",
    ),
    "rtsched_database_renewals_total": Metric(
        "counter",
        (),
        "Times that the database was made again while the daemon ran, as its file was removed or "
        "damaged.",
    ),
    "rtsched_look_age_seconds": Metric(
        "gauge", (), "Age of the last complete poll of the batch system, seconds; NaN: none yet."
    ),
    "rtsched_jobs": Metric("gauge", ("state",), "Jobs in the last poll, by state."),
    "rtsched_changes_total": Metric(
        "counter", ("kind", "outcome"), "Changes requested of the batch system, by outcome."
    ),
    "rtsched_promises": Metric(
        "gauge", ("standing",), "Open promises, by state; `at-risk`: those that may end late."
    ),
    "rtsched_promises_at_risk": Metric(
        "gauge", (), "Promised jobs that may end after their deadline."
    ),
    "rtsched_promise_changes_total": Metric(
        "counter", ("standing",), "Promises that entered this state."
    ),
    "rtsched_misses_total": Metric(
        "counter", (), "Promises that were missed or announced as broken; likely ones not counted."
    ),
    "rtsched_likely_open": Metric(
        "gauge", ("standing",), "Open likely promises (those with odds), by state."
    ),
    "rtsched_likely_fallen": Metric(
        "gauge",
        (),
        "Open likely promises whose odds are now below the share `warn_below` of those stated.",
    ),
    "rtsched_likely_share": Metric(
        "gauge",
        (),
        "Share of the machine until the latest of their deadlines that open likely promises may "
        "use, by size and requested time.",
    ),
    "rtsched_likely_promises_total": Metric(
        "counter",
        ("stated", "outcome"),
        "Likely promises that were closed, by class of the stated odds (its lower end, per cent) "
        "and outcome.",
    ),
    "rtsched_completion_lookup_failures_total": Metric(
        "counter",
        (),
        "Failed lookups in sacct or the schedd's history of how promised jobs ended.",
    ),
    "rtsched_estimate_coverage": Metric(
        "gauge",
        ("interval", "period"),
        "Share of the started jobs whose start was within its interval of 80, 90 or 95 %, over the "
        "last day, week and month; NaN: no such job.",
    ),
    "rtsched_estimate_error_seconds": Metric(
        "gauge",
        ("period",),
        "Mean absolute error of the estimated starts, over the last day, week and month, seconds.",
    ),
    "rtsched_estimate_judged_jobs": Metric(
        "gauge", ("period",), "Started jobs whose estimates are counted, by period."
    ),
    "rtsched_estimate_age_seconds": Metric(
        "gauge", (), "Age of the state of the last start estimates, seconds; NaN: none yet."
    ),
    "rtsched_estimate_seconds": Metric(
        "gauge", (), "Duration of the last estimate of all starts, seconds; NaN: none yet."
    ),
    "rtsched_estimate_cpu_seconds_total": Metric(
        "counter", (), "Processor seconds of the process that estimates starts."
    ),
    "rtsched_estimate_failures_total": Metric(
        "counter", (), "Estimates that failed, and ends of the process that makes them."
    ),
    "rtsched_queries_refused_total": Metric(
        "counter", ("why",), "User requests that were not answered, by reason."
    ),
    "rtsched_database_bytes": Metric(
        "gauge", (), "Size of the database with its write-ahead log; NaN: not readable."
    ),
    "rtsched_database_free_bytes": Metric(
        "gauge", (), "Free space on the database's file system; NaN: not readable."
    ),
}
"""Every metric by name."""

INTERVALS = ("80", "90", "95")
"""Of estimates, per cent."""

FAILED = ("error", "unheard")
"""Results of requests for which the submit filter does what its setting `on_failure` says."""


class Metrics:
    """The daemon's counters, in a registry of their own."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._server: Any = None
        self._seen = self._estimated = -math.inf
        self._hook_metrics: list[Callable[[], Iterable[ByHook]]] = []
        self._database: Path | None = None
        if MISSING:
            return
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        for name, metric in METRICS.items():
            if not name.startswith("rtsched_hook_"):
                self._made[name] = _made(name, metric, self._registry)
        self._registry.register(_Hooks(self._hook_metrics))
        self._made["rtsched_look_age_seconds"].set_function(self._age)
        self._made["rtsched_estimate_age_seconds"].set_function(self._age_of_estimates)
        self._forget_estimates()
        for name, sized in (("bytes", _size), ("free_bytes", _free)):
            self._made[f"rtsched_database_{name}"].set_function(partial(self._of_database, sized))
        # `increase` and `rate` see the first one only if there was a zero before.
        self._made["rtsched_answer_seconds"].labels("submit")
        for result in FAILED:
            self._made["rtsched_requests_total"].labels("submit", result)
        for state in get_args(PromiseState):
            self._made["rtsched_promise_changes_total"].labels(state)
        for low in CLASSES:
            for outcome in ("kept", "missed", "broken"):
                self._made["rtsched_likely_promises_total"].labels(f"{low:g}", outcome)

    def listen(self, port: int) -> None:
        """Show the metrics at http://localhost:PORT/metrics; with port 0 nowhere.

        Raises
        ------
        ConfigError
            If the port is taken.
        """
        if not port:
            return
        if MISSING:
            log.warning("metrics_off", cause=MISSING, remedy="pip install 'rtsched[live]'")
            return
        try:
            self._server, _ = prometheus_client.start_http_server(
                port, addr="127.0.0.1", registry=self._registry
            )
        except OSError as error:
            raise ConfigError(
                [f"daemon.metrics_port: nothing can listen on 127.0.0.1:{port} ({error.strerror})"]
            ) from error
        log.info("metrics_listening", port=port)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def text(self) -> str:
        """Return all metrics in Prometheus' text format; empty if nothing is counted."""
        return "" if MISSING else str(generate_latest(self._registry).decode())

    def watch(self, hook_metrics: Callable[[], Iterable[ByHook]]) -> None:
        """Show what chains count of their hooks; `hook_metrics` is called at each reading."""
        self._hook_metrics[:] = [hook_metrics]

    def watch_database(self, path: Path) -> None:
        """Show the size of a database, and the space that is left for it."""
        self._database = path

    def _of_database(self, sized: Callable[[Path], int]) -> float:
        try:
            return math.nan if self._database is None else float(sized(self._database))
        except OSError:
            return math.nan

    def answered(self, kind: str, result: str, seconds: float) -> None:
        """Count a request of the submit filter."""
        self._count("rtsched_requests_total", kind, result)
        if self._made:
            self._made["rtsched_answer_seconds"].labels(kind).observe(seconds)

    def answers(self) -> dict[str, int]:
        """Return how many submissions were answered how; empty if nothing is counted."""
        if not self._made:
            return {}
        (family,) = self._made["rtsched_requests_total"].collect()
        return {
            sample.labels["result"]: int(sample.value)
            for sample in family.samples
            if sample.labels.get("kind") == "submit" and sample.name.endswith("_total")
        }

    def judged(self, judgement: Judgement) -> None:
        """Count what each plug-in said of each job of a batch."""
        for answer in judgement.answers if self._made else ():
            for verdict, reason in _verdicts(answer):
                name = "rtsched_verdicts_total"
                self._count(name, answer.plugin, answer.mode, verdict, reason)

    def changed(self, promise: Promise) -> None:
        """Count a promise that changed how it stands; a likely one when it is closed, apart."""
        if promise.odds is not None:
            if promise.state not in OPEN:
                name = "rtsched_likely_promises_total"
                self._count(name, class_of(promise.odds), promise.state)
            return
        self._count("rtsched_promise_changes_total", promise.state)
        if promise.state in {"missed", "broken"}:
            self._count("rtsched_misses_total")

    def applied(self, done: Done) -> None:
        """Count what became of a change."""
        self._count("rtsched_changes_total", done.change.kind, done.outcome)

    def lookup_failed(self) -> None:
        """Count a question about ends of jobs that the batch system's records did not answer."""
        self._count("rtsched_completion_lookup_failures_total")

    def query_refused(self, why: str) -> None:
        """Count a question that was not answered; `why` is one of a few words."""
        self._count("rtsched_queries_refused_total", why)

    def lagged(self, seconds: float) -> None:
        """Count how late the loop was."""
        if self._made:
            self._made["rtsched_loop_lag_seconds"].observe(seconds)

    def cycle_done(self, seconds: float, site: Site, fallen: int = 0) -> None:
        """Count a cycle, and show what it left; `fallen`: likely promises whose odds have."""
        if not self._made:
            return
        self._seen = site.seen
        self._made["rtsched_cycle_seconds"].observe(seconds)
        counts = states(site)
        for state in (*OPEN, AT_RISK):
            self._made["rtsched_promises"].labels(state).set(counts[state])
        likely = [promise.state for promise in site.likely.promises.values()]
        for state in OPEN[1:]:
            self._made["rtsched_likely_open"].labels(state).set(likely.count(state))
        self._made["rtsched_likely_fallen"].set(fallen)
        share = sold(site, site.likely.requested.take([]), site.snapshot.now)
        self._made["rtsched_likely_share"].set(share)
        self._made["rtsched_promises_at_risk"].set(counts[AT_RISK])
        jobs = {"waiting": site.snapshot.queued, "running": site.snapshot.running}
        for state, table in jobs.items():
            self._made["rtsched_jobs"].labels(state).set(len(table))

    def cycle_failed(self) -> None:
        """Count a cycle that failed."""
        self._count("rtsched_cycle_failures_total")

    def store_renewed(self) -> None:
        """Count a database that was made again, as its file was removed or damaged."""
        self._count("rtsched_database_renewals_total")

    def planning_failed(self) -> None:
        """Count a cycle in which the planner failed."""
        self._count("rtsched_planning_failures_total")

    def estimating(self, cpu_s: float) -> None:
        """Count processor seconds of the process that estimates starts."""
        if self._made and cpu_s > 0:
            self._made["rtsched_estimate_cpu_seconds_total"].inc(cpu_s)

    def estimated(self, at: float, seconds: float, accuracy: Accuracy) -> None:
        """Show an estimate of all starts: of which time, how long it took, how good they were."""
        if not self._made:
            return
        self._estimated = at
        self._made["rtsched_estimate_seconds"].set(seconds)
        for row, length in enumerate(accuracy.seconds.tolist()):
            period = PERIODS.get(length)
            if period is None:
                continue
            shares = accuracy.covered_80, accuracy.covered_90, accuracy.covered_95
            for interval, share in zip(INTERVALS, shares, strict=True):
                gauge = self._made["rtsched_estimate_coverage"].labels(interval, period)
                gauge.set(float(share[row]))
            error = self._made["rtsched_estimate_error_seconds"].labels(period)
            error.set(float(accuracy.error[row]))
            jobs = self._made["rtsched_estimate_judged_jobs"].labels(period)
            jobs.set(int(accuracy.jobs[row]))

    def estimate_failed(self) -> None:
        """Count an estimate that failed."""
        self._count("rtsched_estimate_failures_total")

    def not_estimated(self) -> None:
        """Show that there are no estimates."""
        self._estimated = -math.inf
        if self._made:
            self._forget_estimates()

    def _forget_estimates(self) -> None:
        self._made["rtsched_estimate_seconds"].set(math.nan)
        for period in PERIODS.values():
            self._made["rtsched_estimate_error_seconds"].labels(period).set(math.nan)
            self._made["rtsched_estimate_judged_jobs"].labels(period).set(0)
            for interval in INTERVALS:
                self._made["rtsched_estimate_coverage"].labels(interval, period).set(math.nan)

    def _age_of_estimates(self) -> float:
        known = math.isfinite(self._estimated)
        return max(time.time() - self._estimated, 0.0) if known else math.nan

    def _count(self, name: str, *labels: str) -> None:
        if self._made:
            metric = self._made[name]
            (metric.labels(*labels) if labels else metric).inc()

    def _age(self) -> float:
        return time.time() - self._seen if math.isfinite(self._seen) else math.nan


def _size(path: Path) -> int:
    """Return the bytes of a database and its write-ahead log."""
    log_file = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (log_file.stat().st_size if log_file.exists() else 0)


def _free(path: Path) -> int:
    """Return the bytes that are free on its file system."""
    return shutil.disk_usage(path.parent).free


def _made(name: str, metric: Metric, registry: CollectorRegistry) -> Any:
    """Return a metric of the library."""
    arguments = (name, metric.description, metric.labels)
    if metric.kind == "histogram":
        return prometheus_client.Histogram(*arguments, registry=registry, buckets=metric.buckets)
    kinds: dict[str, Any] = {
        "counter": prometheus_client.Counter,
        "gauge": prometheus_client.Gauge,
    }
    return kinds[metric.kind](*arguments, registry=registry)


def _verdicts(answer: Answer[Verdicts]) -> Iterator[tuple[str, str]]:
    """Yield verdict and reason code of each row of a plug-in's answer, once per finding."""
    if answer.error:
        yield "error", ""
        return
    if answer.value is None:
        yield Verdict.ABSTAIN.name.lower(), ""
        return
    found: dict[int, list[str]] = {}
    for finding in answer.value.findings:
        for row in finding.rows.tolist():
            found.setdefault(row, []).append(finding.reason.code)
    for row, code in enumerate(answer.value.code.tolist()):
        for reason in found.get(row, [""]):
            yield Verdict(code).name.lower(), reason


class _Hooks:
    """Reads the chains' hook metrics when the metrics are read."""

    FIELDS = ("calls", "seconds", "errors")

    def __init__(self, hook_metrics: list[Callable[[], Iterable[ByHook]]]) -> None:
        self._hook_metrics = hook_metrics

    def describe(self) -> list[CounterMetricFamily]:
        """Return the metrics without values."""
        return [self._family(field) for field in self.FIELDS]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the metrics."""
        sums: dict[tuple[str, str], list[float]] = {}
        for book in [book for give in self._hook_metrics for book in give()]:
            for hook, uses in list(book.items()):
                for plugin, use in list(uses.items()):
                    total = sums.setdefault((plugin, hook), [0.0] * len(self.FIELDS))
                    for at, field in enumerate(self.FIELDS):
                        total[at] += getattr(use, field)
        for at, field in enumerate(self.FIELDS):
            family = self._family(field)
            for labels, total in sorted(sums.items()):
                family.add_metric(labels, total[at])
            yield family

    def _family(self, field: str) -> CounterMetricFamily:
        name = f"rtsched_hook_{field}_total"
        return CounterMetricFamily(name, METRICS[name].description, labels=METRICS[name].labels)


EVERY = 0.02
"""Seconds from one timer to the next."""

LONG = 0.05
"""Seconds from which on a delay is said in the log: a submit filter waits no longer in all."""

_LOG_EVERY = 1.0
"""Seconds between two log lines."""

WINDOW = 60.0
"""Seconds after which the longest delay begins to be forgotten."""


class LoopLag:
    """Measures the lag of the loop that it is started on.

    Parameters
    ----------
    seen : callable
        Called with each lag, in seconds.
    every : float
        Seconds from one measurement to the next.
    """

    def __init__(self, seen: Callable[[float], None], every: float = EVERY) -> None:
        self._seen, self._every = seen, every
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._since = 0.0
        self._last_logged = -_LOG_EVERY
        self._blocked = 0
        self._longest = [0.0, 0.0]

    def start(self) -> None:
        """Begin to measure the running loop."""
        loop = asyncio.get_running_loop()
        self._since, self._due = loop.time(), loop.time() + self._every
        self._timer = loop.call_at(self._due, self._tick, loop)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def longest(self) -> float:
        """Return the longest lag of the last minute or two, seconds."""
        return max(self._longest)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        lag = max(now - self._due, 0.0)
        if now >= self._since + WINDOW:
            self._since, self._longest = now, [0.0, self._longest[0]]
        self._longest[0] = max(self._longest[0], lag)
        self._seen(lag)
        if lag >= LONG:
            self._blocked += 1
            if now >= self._last_logged + _LOG_EVERY:
                self._last_logged = now
                log.warning("loop_blocked", seconds=round(lag, 3), times=self._blocked)
        self._due = now + self._every
        self._timer = loop.call_at(self._due, self._tick, loop)
