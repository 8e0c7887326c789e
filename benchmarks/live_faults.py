"""Kill the daemon of a real batch system again and again; count promises lost and invented.

    python benchmarks/live_faults.py [--system slurm|condor] [--kills 100] [--burst 10000] [--json]

Three times as many kills as given: in the middle of a stream of jobs at moments drawn from a seed,
always after a promise is on the disk and before its user is told, and always after that and before
its job is seen. Then a burst of jobs. It needs root on Linux with debootstrap, as tests/testbed
does. The exit status is 1 if a promise was lost or invented, or a submission took a second.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

import promised_pool  # noqa: E402
import promising  # noqa: E402
from promised_pool import LivePool, live_pool, submit_file, within  # noqa: E402
from promising import Live, Said, in_minutes, lost_and_invented  # noqa: E402
from testbed import Cluster, SlurmOptions  # noqa: E402
from testbed.waiting import eventually  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = {"/etc/rtsched/submit.conf": "breaker_ms = 300\n"}
POINTS = ("committed", "answered")
CLIENTS = 4
EACH = 250
"""Jobs of one condor_submit in a burst, at the most."""


@dataclass(frozen=True)
class Side:
    """A batch system with our daemon, and what a user does there.

    Attributes
    ----------
    live : Live or LivePool
        The batch system.
    submit : callable
        Submit a job with a deadline that can be met.
    burst : callable
        Submit so many jobs at once; return what came of it.
    """

    live: Live | LivePool
    submit: Callable[[], Said]
    burst: Callable[[int], dict[str, Any]]


@contextmanager
def on_slurm() -> Iterator[Side]:
    """Give a cluster of eight nodes."""
    options = SlurmOptions(fast=2, slow=6, job_submit=("rtsched",))
    with Cluster("forky", options, files=SETTINGS) as cluster:
        live = Live(cluster)
        cluster.start_daemon(promising.SITE)
        yield Side(
            live,
            lambda: live.submit("-N1", "--time=2", in_minutes(240), script="sleep 1"),
            lambda count: promising.burst(live, count, clients=CLIENTS),
        )


@contextmanager
def on_condor() -> Iterator[Side]:
    """Give a pool of eight slots."""
    with live_pool(promised_pool.SITE, files=SETTINGS, slow=6) as live:
        yield Side(
            live,
            lambda: live.submit(*within(4 * 3600), seconds=1),
            lambda count: condor_burst(live, count),
        )


SYSTEMS = {"slurm": on_slurm, "condor": on_condor}


def start(live: Live | LivePool, point: str = "") -> float:
    """Start the daemon; return how long it took until its sockets answered."""
    begun = time.monotonic()
    live.box.start_daemon(env={"RTSCHED_FAILPOINT": point})
    return time.monotonic() - begun


def in_a_stream(side: Side, kills: int) -> tuple[list[Said], list[float]]:
    """Kill the daemon while jobs come; return what was said, and how long its starts took."""
    chance, stop = random.Random(1), threading.Event()  # noqa: S311
    said, starts = list[Said](), list[float]()

    def stream() -> None:
        while not stop.is_set():
            said.append(side.submit())
            time.sleep(0.03)

    client = threading.Thread(target=stream)
    client.start()
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.5))
            side.live.box.kill_daemon()
            starts.append(start(side.live))
    finally:
        stop.set()
        client.join()
    return said, starts


def at_a_point(side: Side, point: str, kills: int) -> tuple[list[Said], list[float]]:
    """Have the daemon die at a point of each admission; return as `in_a_stream`."""
    side.live.box.kill_daemon()
    said, starts = list[Said](), list[float]()
    for _ in range(kills):
        starts.append(start(side.live, point))
        while side.live.box.services.alive("rtsched"):
            said.append(side.submit())
            time.sleep(0.05)
    start(side.live)
    return said, starts


def figures(live: Live | LivePool, said: list[Said], starts: list[float]) -> dict[str, Any]:
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
        "submission p50 ms": 1000 * median(times),
        "submission p99 ms": 1000 * quantiles(times, n=100, method="inclusive")[98],
        "submission slowest ms": 1000 * max(times),
        "daemon ready again after s": median(starts),
        "slowest start s": max(starts),
        "wrong": wrong,
    }


def condor_burst(live: LivePool, count: int) -> dict[str, Any]:
    """Submit jobs to HTCondor by so many clients at once, a tenth of them with a deadline.

    Meanwhile condor_q is asked, and so is the daemon.
    """
    done: list[str] = []

    def client() -> None:
        left = count // CLIENTS
        while left > 0:
            size = min(left, EACH)
            wishes, left = max(size // 10, 1), left - size
            for queue, lines in ((size - wishes, ()), (wishes, within(20 * 3600))):
                text = submit_file(*lines, f"queue {queue}", seconds=600)
                words = ["condor_submit"]
                said = live.pool.run(words, user="bob", input=text, check=False, timeout=300)
                done.append(said.stdout + said.stderr)

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    begun = time.monotonic()
    for each in clients:
        each.start()
    shown, looks = [], []
    while any(each.is_alive() for each in clients):
        shown.append(_seconds(lambda: live.pool.run(["condor_q", "-totals"], timeout=120)))
        looks.append(_seconds(lambda: live.ask("status")))
        time.sleep(0.2)
    seconds = time.monotonic() - begun
    taken = (re.search(r"(\d+) job\(s\) submitted", text) for text in done)
    submitted = sum(int(found[1]) for found in taken if found)
    there = live.ads('Owner == "bob"') | live.past('Owner == "bob"')
    late = [ad for ad in there.values() if ad.get("RtToken") in {"unjudged", "parked"}]
    return {
        "submitted": submitted,
        "refused": sum("ERROR" in text for text in done),
        "seconds": seconds,
        "in the queue": len(there),
        "not judged in time": len(late),
        "condor_q slowest ms": 1000 * max(shown),
        "status slowest ms": 1000 * max(looks),
        "wrong": [] if len(there) == submitted else ["jobs are missing in the queue"],
    }


def _seconds(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def run(system: str, kills: int, count: int) -> dict[str, dict[str, Any]]:
    """Do all of it on a cluster or pool of its own."""
    found: dict[str, dict[str, Any]] = {}
    with SYSTEMS[system]() as side:
        live = side.live
        found["in a stream"] = figures(live, *in_a_stream(side, kills))
        live.cancel_all()
        for point in POINTS:
            found[point] = figures(live, *at_a_point(side, point, kills))
            live.cancel_all()
        if count:
            found["burst"] = side.burst(count)
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--system", choices=list(SYSTEMS), default="slurm", help="default: slurm")
    parser.add_argument("--kills", type=int, default=100, help="of each kind; default: 100")
    parser.add_argument("--burst", type=int, default=10_000, help="jobs; 0: none; default: 10000")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    found = run(given.system, given.kills, given.burst)
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for name, side in found.items():
            print(f"{name}:")
            for key, value in side.items():
                print(f"  {key}: {value:.3g}" if isinstance(value, float) else f"  {key}: {value}")
    slow = any(side.get("submission slowest ms", 0) >= 1000 for side in found.values())
    return 1 if slow or any(side["wrong"] for side in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
