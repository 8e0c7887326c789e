"""A real Prometheus reads a daemon's metrics: each panel and each alert finds the data it shows."""

import asyncio
import json
import math
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from estimating_site import KnownEstimator
from rest_client import in_thread, seen_in_queue
from running import Running, answer_of

from rtsched.adapters.live import Change, Done
from rtsched.estimates.settings import EstimateSettings
from rtsched.model.actions import Action
from rtsched.model.jobs import Jobs

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus (tests/promtool.sh)"
)
yaml = pytest.importorskip("yaml", reason="needs PyYAML, which mkdocs brings along")

TOP = Path(__file__).resolve().parents[2]
RULES = TOP / "contrib" / "prometheus" / "rtsched.rules.yml"
DASHBOARD = TOP / "contrib" / "grafana" / "rtsched.json"
EVERY = 0.25
"""Seconds between two scrapes."""


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


async def refusing(actions: Sequence[Action], dry_run: bool) -> Any:
    """Refuse every change, as a batch system does where permissions are missing."""
    del dry_run
    changes = [Change("set-priority", 4711, "scontrol update") for _ in actions[:1]]
    return changes, [Done(change, "refused", "Access denied") for change in changes]


async def everything(running: Running) -> None:
    """Have promises given, seen and lapsed, a job rejected, changes refused, the planner fail."""

    def fails() -> None:
        raise RuntimeError("the planner fails")

    running.daemon.lag.start()
    accuracy = KnownEstimator(EstimateSettings()).accuracy()
    running.daemon.metrics.estimated(running.now, 2.0, accuracy)
    await running.start()
    for hours in (24.0, 20.0):
        await asyncio.to_thread(answer_of, running.asked(hours=hours))
    records = list(running.daemon.site.promises.values())
    rows = Jobs.joined([running.daemon.site.row(record.id) for record in records])
    rows = rows.replace(id=4711 + np.arange(len(records)))
    await seen_in_queue(running, rows, [record.token for record in records])
    await asyncio.to_thread(answer_of, running.asked())  # never seen in the queue
    await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.1))
    running.now += 600
    running.show(time=running.now)
    await running.daemon.cycle()
    running.judging = fails
    await asyncio.to_thread(answer_of, running.asked())


def free_port() -> int:
    """Return a port that nothing listens on."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Prometheus:
    """A server that scrapes one daemon, and what it answers."""

    def __init__(self, port: int) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60.0)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer."""
        return self.client.get(path, params=parameters).raise_for_status().json()["data"]

    def values(self, expression: str) -> list[float]:
        """Return the values that an expression has now."""
        found = self.ask("query", query=expression)["result"]
        return [float(each["value"][1]) for each in found]

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression has a value above zero."""
        end = time.monotonic() + seconds
        while not any(value > 0 for value in self.values(expression)):
            assert time.monotonic() < end, expression
            time.sleep(EVERY)


@contextmanager
def prometheus(place: Path, target: int) -> Iterator[Prometheus]:
    """Run Prometheus with our rules on the metrics of a daemon."""
    port = free_port()
    settings = {
        "global": {"scrape_interval": "250ms", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "rtsched", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        ],
    }
    (place / "prometheus.yml").write_text(json.dumps(settings))
    words = [
        "prometheus",
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (place / "log").open("w") as log, subprocess.Popen(words, stderr=log) as process:
        server = Prometheus(port)
        try:
            end = time.monotonic() + 60.0
            while True:
                try:
                    server.values("up")
                    break
                except httpx.HTTPError:
                    assert process.poll() is None, (place / "log").read_text()
                    assert time.monotonic() < end
                    time.sleep(EVERY)
            yield server
        finally:
            server.client.close()
            process.terminate()
            process.wait(60.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape a daemon before and after all that the panels show has happened to it."""
    place = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    (place / "daemon").mkdir()
    running = Running(place / "daemon")
    running.system.apply = refusing
    daemon = running.daemon
    daemon.metrics.watch_database(running.store.path)
    daemon.metrics.watch(lambda: [chain.hook_metrics for chain in daemon.policy.chains()])
    daemon.metrics.listen(port)
    with closing(daemon.metrics), prometheus(place, port) as found:
        found.wait('up{job="rtsched"}')
        with in_thread(running, everything):
            found.wait("rtsched_hook_errors_total")  # which come last
            (scraped,) = found.values("timestamp(up)")
            found.wait(f"timestamp(up) - {scraped}")
            yield found


def test_each_panel_has_data(server: Prometheus) -> None:
    """Every query of the dashboard finds numbers, as Grafana would send it."""
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            assert "$" not in text
            found = server.values(text)
            assert found, (panel["title"], text)
            assert all(map(math.isfinite, found)), (panel["title"], text)


def test_each_alert_has_data(server: Prometheus) -> None:
    """What an alert compares is there, and Prometheus can evaluate every rule."""
    for rule in rules():
        compared, *_ = re.split(r" (?:[<>]|==) ", rule["expr"])
        assert server.values(compared), rule["alert"]
    server.wait('sum(ALERTS{alertname="RtschedFilterFails"})')  # so all were evaluated
    (group,) = server.ask("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}


def test_panels_are_drawn_as_what_they_are(server: Prometheus) -> None:
    """What grows for ever is shown by its rate or increase, and nothing else is."""
    kinds = {name: found[0]["type"] for name, found in server.ask("metadata").items()}
    counters = re.compile(r"\b(rtsched_\w+?)(_bucket|_sum|_count)?\{[^}]*\}(\[)?")
    for panel in panels():
        for target in panel["targets"]:
            for name, part, over_time in counters.findall(target["expr"]):
                kind = kinds.get(name) or kinds[name.removesuffix("_total")]
                assert bool(over_time) == (bool(part) or kind == "counter"), target["expr"]
