"""Kill the daemon of a real Slurm again and again; count promises lost and invented.

    python benchmarks/live_faults.py [--kills 100] [--burst 10000] [--json]

Three times as many kills as given: in the middle of a stream of jobs at moments drawn from a seed,
always after a promise is on the disk and before its user is told, and always after that and before
its job is seen. Then a burst of jobs. It needs root on Linux with debootstrap, as tests/testbed
does. The exit status is 1 if a promise was lost or invented, or an sbatch took a second.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from promising import SITE, Live, Said, burst, eventually, in_minutes, lost_and_invented  # noqa: E402
from testbed import Cluster, SlurmOptions  # noqa: E402

SHORT = ("-N1", "--time=2")
POINTS = ("committed", "answered")


def start(live: Live, point: str = "") -> float:
    """Start the daemon; return how long it took until its sockets answered."""
    begun = time.monotonic()
    live.cluster.start_daemon(env={"RTSCHED_FAILPOINT": point})
    return time.monotonic() - begun


def submit(live: Live) -> Said:
    """Submit a job with a deadline that can be met."""
    return live.submit(*SHORT, in_minutes(240), script="sleep 1")


def in_a_stream(live: Live, kills: int) -> tuple[list[Said], list[float]]:
    """Kill the daemon while jobs come; return what was said, and how long its starts took."""
    chance, stop = random.Random(1), threading.Event()  # noqa: S311
    said, starts = list[Said](), list[float]()

    def stream() -> None:
        while not stop.is_set():
            said.append(submit(live))
            time.sleep(0.03)

    client = threading.Thread(target=stream)
    client.start()
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.5))
            live.cluster.kill_daemon()
            starts.append(start(live))
    finally:
        stop.set()
        client.join()
    return said, starts


def at_a_point(live: Live, point: str, kills: int) -> tuple[list[Said], list[float]]:
    """Have the daemon die at a point of each admission; return as `in_a_stream`."""
    live.cluster.kill_daemon()
    said, starts = list[Said](), list[float]()
    for _ in range(kills):
        starts.append(start(live, point))
        while live.cluster.services.alive("rtsched"):
            said.append(submit(live))
            time.sleep(0.05)
    start(live)
    return said, starts


def figures(live: Live, said: list[Said], starts: list[float]) -> dict[str, Any]:
    """Return what came of it, once no promise is provisional any more."""
    eventually(lambda: all(each.standing != "provisional" for each in live.kept()), 60)
    wrong = lost_and_invented(live, said)
    told = {each.job for each in live.said if each.promised}
    alive = {"provisional", "firm", "kept"}
    wrong += [f"invented: {r}" for r in live.kept() if r.standing in alive and r.id not in told]
    times = [each.seconds for each in said]
    return {
        "kills": len(starts),
        "submissions": len(said),
        "promised": sum(each.promised for each in said),
        "let in without a promise": sum(bool(each.job) and not each.promised for each in said),
        "lost": sum(text.startswith(("lost", "mixed")) for text in wrong),
        "invented": sum(text.startswith("invented") for text in wrong),
        "sbatch p50 ms": 1000 * median(times),
        "sbatch p99 ms": 1000 * quantiles(times, n=100)[98],
        "sbatch slowest ms": 1000 * max(times),
        "daemon ready again after s": median(starts),
        "slowest start s": max(starts),
        "wrong": wrong,
    }


def run(kills: int, count: int) -> dict[str, dict[str, Any]]:
    """Do all of it on a cluster of its own."""
    options = SlurmOptions(fast=2, slow=6, job_submit=("rtsched",))
    files = {"/etc/rtsched/submit.conf": "breaker_ms = 300\n"}
    found: dict[str, dict[str, Any]] = {}
    with Cluster("forky", options, files=files) as cluster:
        live = Live(cluster)
        cluster.start_daemon(SITE)
        found["in a stream"] = figures(live, *in_a_stream(live, kills))
        live.cancel_all()
        for point in POINTS:
            found[point] = figures(live, *at_a_point(live, point, kills))
            live.cancel_all()
        found["burst"] = burst(live, count)
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="of each kind; default: 100")
    parser.add_argument("--burst", type=int, default=10_000, help="jobs; default: 10000")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    found = run(given.kills, given.burst)
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for name, side in found.items():
            print(f"{name}:")
            for key, value in side.items():
                print(f"  {key}: {value:.3g}" if isinstance(value, float) else f"  {key}: {value}")
    slow = any(side.get("sbatch slowest ms", 0) >= 1000 for side in found.values())
    return 1 if slow or any(side["wrong"] for side in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
