"""Metrics and logs of the daemon: what is counted and written, and under which names."""

import json
import math
import socket
import urllib.request

import msgspec
import numpy as np
import pytest
import structlog

from rtsched.adapters.live import Change, Done
from rtsched.core.chain import Answer, HookMetrics, Judgement
from rtsched.daemon import metrics as module
from rtsched.daemon.metrics import METRICS, Metrics
from rtsched.daemon.promises import Promise
from rtsched.daemon.site import Site
from rtsched.daemon.systemd import log_events
from rtsched.errors import ConfigError
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Reason, Verdicts

WIDE = Reason("limits.too-wide", "asks for {asked} nodes")


@pytest.fixture(autouse=True)
def _logging(capsys):
    """Log to where the test may look, and to nowhere special afterwards."""
    log_events()
    yield
    structlog.reset_defaults()


def record(state: str) -> Promise:
    """Return a record."""
    return Promise("t", 7, 1000, "ann", 1.0, 0.0, state, 0.0, "", b"")


def values(text: str) -> dict[str, float]:
    """Return the values in Prometheus' text format by name and labels."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def used() -> Metrics:
    """Return metrics that have counted one of everything."""
    metrics = Metrics()
    metrics.answered("submit", "admit", 0.003)
    no = Verdicts.reject_where(np.array([True]), WIDE, asked=9)
    metrics.judged(
        Judgement(
            no,
            (
                Answer("limits", "enforce", no),
                Answer("mcdf", "shadow", None),
                Answer("own", "enforce", None, "broken"),
            ),
        )
    )
    for state in ("provisional", "missed", "broken"):
        metrics.changed(record(state))
    metrics.applied(Done(Change("hold", 7, "hold 7"), "refused", "no"))
    metrics.query_refused("busy")
    metrics.cycle_failed()
    snapshot = Snapshot(0.0, Cluster.uniform(2), queued=Jobs.build(3))
    metrics.cycle_done(0.3, Site(snapshot, {7: record("firm")}, seen=1.0))
    metrics.watch(lambda: [{"admit": {"limits": HookMetrics(calls=2, seconds=0.5)}}] * 2)
    return metrics


def test_everything_is_counted():
    """Each occasion counts under its labels."""
    found = values(used().text())
    assert found['rtsched_requests_total{kind="submit",result="admit"}'] == 1
    assert found['rtsched_answer_seconds_bucket{kind="submit",le="0.005"}'] == 1
    assert found['rtsched_answer_seconds_bucket{kind="submit",le="0.002"}'] == 0
    head = "rtsched_verdicts_total"
    limits = 'mode="enforce",plugin="limits",reason="limits.too-wide",verdict="reject"'
    assert found[f"{head}{{{limits}}}"] == 1
    assert found[f'{head}{{mode="shadow",plugin="mcdf",reason="",verdict="abstain"}}'] == 1
    assert found[f'{head}{{mode="enforce",plugin="own",reason="",verdict="error"}}'] == 1
    assert found["rtsched_misses_total"] == 2
    assert found['rtsched_promises{standing="firm"}'] == 1
    assert found['rtsched_promises{standing="offered"}'] == 0
    assert found['rtsched_changes_total{kind="hold",outcome="refused"}'] == 1
    assert found['rtsched_jobs{state="waiting"}'] == 3
    assert found['rtsched_hook_seconds_total{hook="admit",plugin="limits"}'] == 1.0
    assert found["rtsched_look_age_seconds"] > 1e9


def test_likely_promises_are_counted_apart():
    """By the class of their odds when they are closed; no alert about guaranteed ones fires."""
    metrics = Metrics()
    for state in ("provisional", "firm", "missed"):
        metrics.changed(msgspec.structs.replace(record(state), odds=0.9671))
    metrics.changed(msgspec.structs.replace(record("kept"), odds=1.0))
    found = values(metrics.text())
    name = "rtsched_likely_promises_total"
    assert found[f'{name}{{outcome="missed",stated="95"}}'] == 1
    assert found[f'{name}{{outcome="kept",stated="99"}}'] == 1
    assert found[f'{name}{{outcome="kept",stated="95"}}'] == 0
    assert found["rtsched_misses_total"] == 0
    assert found['rtsched_promise_changes_total{standing="missed"}'] == 0


def test_every_metric_is_shown():
    """Each declared metric is in the text, and none that is not declared."""
    text = used().text()
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in shown if not name.endswith("_created")} == set(METRICS)


def test_no_poll_yet():
    """Before the first poll its age is no number."""
    assert math.isnan(values(Metrics().text())["rtsched_look_age_seconds"])


def test_database(tmp_path):
    """Its size includes the write-ahead log; before it is known, or once it is gone, it is NaN."""
    metrics, path = Metrics(), tmp_path / "db"
    assert math.isnan(values(metrics.text())["rtsched_database_bytes"])
    metrics.watch_database(path)
    assert math.isnan(values(metrics.text())["rtsched_database_bytes"])
    path.write_bytes(b"x" * 1000)
    assert values(metrics.text())["rtsched_database_bytes"] == 1000
    path.with_name("db-wal").write_bytes(b"x" * 24)
    found = values(metrics.text())
    assert found["rtsched_database_bytes"] == 1024
    assert found["rtsched_database_free_bytes"] > 0


def test_promises_at_risk():
    """A job that runs and may end after its deadline counts; one that ends in time does not."""
    cluster = Cluster.uniform(2)
    nodes = np.array([0, 1], np.int32)
    runs = Schedule.build([7, 8], [0.0, 0.0], [100.0, 100.0], np.array([0, 1, 2]), nodes)
    promises = Promises.build(2, job=[7, 8], deadline=[50.0, 150.0])
    snapshot = Snapshot(0.0, cluster, allocations=runs, promises=promises)
    records = {
        job: msgspec.structs.replace(record("firm"), id=job, deadline=deadline)
        for job, deadline in ((7, 50.0), (8, 150.0))
    }
    metrics = Metrics()
    metrics.cycle_done(0.3, Site(snapshot, records, seen=1.0))
    assert values(metrics.text())["rtsched_promises_at_risk"] == 1


def test_failed_requests_begin_at_zero():
    """Otherwise the first one would be no increase, and no alert."""
    found = values(Metrics().text())
    assert found['rtsched_requests_total{kind="submit",result="error"}'] == 0
    assert found['rtsched_requests_total{kind="submit",result="unheard"}'] == 0


def test_never_by_user_or_job():
    """No label is a user, a job or a name that users choose."""
    labels = {label for metric in METRICS.values() for label in metric.labels}
    assert labels <= {
        *("kind", "result", "plugin", "mode", "verdict", "reason"),
        *("hook", "state", "outcome", "standing", "why", "stated"),
        *("interval", "period"),
    }


def test_the_port():
    """Metrics are served on localhost alone; a port that is taken is told with its setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        with pytest.raises(ConfigError, match=r"daemon\.metrics_port: .*in use"):
            Metrics().listen(port)
    metrics = used()
    metrics.listen(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        assert b"rtsched_misses_total 2.0" in page.read()
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.connect(("127.0.0.2", port))
    metrics.close()
    Metrics().listen(0)


def test_open_metrics():
    """Whoever accepts OpenMetrics gets it: counters without `_total` in their types, and an end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    metrics = used()
    metrics.listen(port)
    accepted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    request.add_header("Accept", accepted)
    with urllib.request.urlopen(request) as page:  # noqa: S310 - our own address
        kind, text = page.headers["Content-Type"], page.read().decode()
    metrics.close()
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert "# TYPE rtsched_misses counter\nrtsched_misses_total 2.0\n" in text
    assert text.endswith("# EOF\n")
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert families == {name.removesuffix("_total") for name in METRICS}


def test_without_the_library(monkeypatch, capsys):
    """Without prometheus_client all goes on, nothing is counted, and the log says so once."""
    monkeypatch.setattr(module, "MISSING", "No module named 'prometheus_client'")
    metrics = used()
    metrics.listen(9100)
    assert metrics.text() == ""
    event = json.loads(capsys.readouterr().err)
    assert event["event"] == "metrics_off"
    assert event["remedy"] == "pip install 'rtsched[live]'"
    metrics.close()


def test_logs_are_json(capsys):
    """Events are one JSON object a line, whatever they hold; those below the level are left out."""
    log_events("info")
    log = structlog.get_logger("x").bind(cycle=3)
    log.info("job_deferred", job=7, name="a\nb\x1b[31m", path=object, bad="\ud800")
    log.debug("not_seen")
    try:
        raise ValueError("boom")
    except ValueError:
        log.exception("cycle_crashed", why={1, 2})
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert list(first)[:3] == ["timestamp", "level", "event"]
    assert first["event"] == "job_deferred"
    assert "job_deferred" in first.get("unwritable", "") or first["name"] == "a\nb\x1b[31m"
    assert second["cycle"] == 3
    assert second["level"] == "error"
    assert "ValueError: boom" in second["exception"]
