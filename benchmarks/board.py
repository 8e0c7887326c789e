"""How long a browser takes to show the board of a large cluster.

    python benchmarks/board.py [--nodes N] [--jobs N] [--runs N] [--json]

A made-up daemon with so many nodes, running jobs and 20 promises, `rtsched rest`'s application, and
headless Chromium (`apt-get install chromium`), all on this machine. Milliseconds by the clock from
the first request: *answered*, the page is here; *drawn*, the frame with all bars has been painted.
Then the part that is brought up to date every five seconds: its bytes, and what the server takes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
import structlog

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "daemon"))

from board_pages import board, large_daemon, link_for
from playwright.sync_api import sync_playwright

PAINTED = """() => new Promise((done) => {
  const frame = () => requestAnimationFrame(() => requestAnimationFrame(() => done([
    performance.getEntriesByType("navigation")[0].responseEnd, performance.now()])));
  document.readyState === "complete" ? frame() : addEventListener("load", frame);
})"""


def measure(nodes: int, jobs: int, runs: int) -> dict[str, float]:
    """Return the medians of several runs, milliseconds, and the bytes of the refreshed part."""
    taken, parts, size = [], [], 0
    with (
        tempfile.TemporaryDirectory(prefix="rtsched-board-") as name,
        large_daemon(Path(name), nodes, jobs) as running,
        board(running) as where,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(runs + 1):
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            page = context.new_page()
            page.goto(link_for(where))
            page.goto(f"{where}/board/")  # without the way over the link
            taken.append(page.evaluate(PAINTED))
            context.close()
        browser.close()
        with httpx.Client(base_url=where) as client:
            client.get(link_for(where), follow_redirects=True)
            for _ in range(runs):
                begun = time.perf_counter()
                size = len(client.get("/board/now").content)
                parts.append(1000 * (time.perf_counter() - begun))
                time.sleep(2.1)  # the timeline of a moment ago would be shown again
    answered, drawn = zip(*taken[1:], strict=True)
    return {
        "answered": statistics.median(answered),
        "drawn": statistics.median(drawn),
        "refreshed": statistics.median(parts),
        "bytes": size,
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = measure(given.nodes, given.jobs, given.runs)
    if given.json:
        json.dump(found, sys.stdout)
        return
    print(f"{given.nodes:,} nodes, {given.jobs:,} jobs; load average {os.getloadavg()[0]:.1f}\n")
    print("| answered, ms | drawn, ms | refreshed, ms | bytes |\n|---:|---:|---:|---:|")
    print(f"| {found['answered']:.0f} | {found['drawn']:.0f} | {found['refreshed']:.0f} |", end="")
    print(f" {found['bytes']:,.0f} |")


if __name__ == "__main__":
    main()
