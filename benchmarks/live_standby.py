"""Kill the first of two controllers' hosts again and again; count promises lost and invented.

    python benchmarks/live_standby.py [--takeovers 20] [--json]

A real Slurm with a backup controller and a daemon of ours beside each. While jobs with deadlines
are submitted, slurmctld and the daemon of the first host are killed (signal 9) at a moment drawn
from a seed; controller and daemon of the second host take over. Then the second controller is
stopped, and the first one and after it the second one started: that gives control back. It needs
root on Linux with debootstrap, as tests/testbed does. The exit status is 1 if a promise was lost or
invented, or a reservation is stuck.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from promising import OPEN, SITE, Live, Reply, eventually, in_minutes  # noqa: E402
from testbed import Cluster, SlurmOptions, TestbedError  # noqa: E402

from rtsched.adapters.slurm.observation import NOT_LAUNCHED  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = "timeout_ms = 500\nbreaker_ms = 300\n"  # the machine may be busy

TIMEOUT = 6
"""Slurm's SlurmctldTimeout, seconds."""

PAUSE = 0.5
"""Seconds between two submissions: the nodes keep up with them, and no backlog grows."""

GONE = 20.0
"""Seconds, on a quiet machine, until a reservation is deleted whose promise is closed."""

SELDOM = 5.0
"""Seconds between two questions whether the promises of lost jobs are closed."""

CLOSED = 300.0
"""A third of the seconds, on a quiet machine, until a promise is closed whose job is not there: the
accounting is asked about it for ten minutes."""


class Stream:
    """A user who submits jobs with deadlines, one after the other, from the second host."""

    def __init__(self, live: Live) -> None:
        self.live, self.replies = live, list[tuple[float, Reply]]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _submit(self) -> None:
        while not self._stop.is_set():
            reply = self.live.submit("-N1", "--time=2", in_minutes(240), script="sleep 1")
            self.replies.append((time.monotonic(), reply))
            time.sleep(PAUSE)

    def wait_promised(self, since: float) -> float:
        """Return how long after `since` the next promise was read."""
        return self._first(since, lambda reply: reply.promised)

    def wait_taken(self, since: float) -> float:
        """Return how long after `since` the next job was taken by a controller."""
        return self._first(since, lambda reply: reply.job != 0)

    def _first(self, since: float, what: Callable[[Reply], bool]) -> float:
        found = eventually(lambda: [at for at, s in self.replies if at > since and what(s)], 90)
        return float(min(found) - since)


def takeovers(cluster: Cluster, count: int) -> dict[str, Any]:
    """Do it so many times; return what came of it."""
    head, other = Live(cluster), Live(cluster.backup())
    chance = random.Random(1)  # noqa: S311
    taken, promised, given_back, drained = list[float](), list[float](), list[float](), 0
    with Stream(other) as stream:
        stream.wait_promised(time.monotonic())
        for number in range(count):
            time.sleep(chance.uniform(0.5, 3.0))
            cluster.wait_saved()
            for name in ("slurmctld", "rtsched"):
                cluster.services.signal(name, "KILL")
            killed = time.monotonic()
            taken.append(stream.wait_taken(killed))
            promised.append(stream.wait_promised(killed))
            time.sleep(chance.uniform(0.5, 3.0))
            cluster.start_daemon()
            begun = time.monotonic()
            cluster.take_back()
            eventually(lambda: head.ask("status")["mode"] == "live", 60)
            active = time.monotonic()
            drained += resumed(cluster)
            given_back.append(active - begun + stream.wait_promised(active))
            print(
                f"{number + 1}: taken over after {taken[-1]:.1f} s, promised again after "
                f"{promised[-1]:.1f} s, given back in {given_back[-1]:.1f} s",
                file=sys.stderr,
            )
    replies = [each for _, each in stream.replies]
    return {
        "takeovers": count,
        "submissions": len(replies),
        "promised": sum(each.promised for each in replies),
        "let in without a promise": sum(bool(each.job) and not each.promised for each in replies),
        "refused by Slurm": sum(not each.job for each in replies),
        "controller answers again after s": median(taken),
        "slowest takeover of the controller s": max(taken),
        "promises are given again after s": median(promised),
        "slowest s": max(promised),
        "longest time from controller to promise s": max(
            after - before for before, after in zip(taken, promised, strict=True)
        ),
        "given back in s": median(given_back),
        "drained nodes resumed, some again": drained,
        **judged(head, replies),
    }


def resumed(cluster: Cluster) -> int:
    """Resume the nodes that Slurm drained, as their admin would; return how many.

    A controller with an older state launches jobs again that run already. Their nodes refuse; Slurm
    drains these, and holds the jobs. A resume that was not saved is lost with the next controller.
    """
    drained = cluster.run(["sinfo", "-hN", "-t", "drain", "-o", "%N"]).stdout.split()
    for node in drained:
        cluster.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    return len(drained)


def judged(live: Live, replies: list[Reply]) -> dict[str, Any]:
    """Return what is wrong between what users read, what the jobs carry and what is written down.

    A controller that is killed may lose the jobs that it took in since it last saved its state, and
    gives their numbers again: a promise whose job Slurm lost must not stay open for long.
    """
    begun, gone = time.monotonic(), _without_a_job(live)
    with suppress(TestbedError):  # what is open after that is stuck
        eventually(lambda: not _still_open(live, gone), CLOSED, "promises of lost jobs are closed")
    closed = time.monotonic() - begun
    with suppress(TestbedError):
        eventually(lambda: not _stuck(live), GONE, "reservations without a promise are deleted")
    kept = {each.token: each for each in live.kept()}
    tokens = {job: text.removeprefix("rtsched:") for job, text in live.tokens().items()}
    of_job: dict[int, list[Reply]] = {}
    for each in replies:
        of_job.setdefault(each.job, []).append(each)
    lost_by_slurm, held_by_slurm, without_end, wrong = 0, 0, 0, list[str]()
    for job, those in of_job.items():
        if not job:
            continue
        lost_by_slurm += sum(each.promised for each in those[:-1])
        records = [each for each in kept.values() if each.id == job]
        alive = [each for each in records if each.state in {"firm", "kept"}]
        promises = sum(each.promised for each in those)
        known = job in tokens or any(each.state == "kept" for each in records)
        if len(alive) > min(promises, 1):
            wrong.append(f"invented: job {job}: {alive}")
        if any(each.why == NOT_LAUNCHED for each in records):
            held_by_slurm += 1
        elif those[-1].promised and any(each.state == "own-limit" for each in records):
            without_end += 1  # it slept for a second: the end was not saved, so it ran on for Slurm
        elif those[-1].promised and known and not alive:
            wrong.append(f"lost: job {job}: {records}")
        if those[-1].promised and not known:
            lost_by_slurm += 1
            wrong += [f"stuck: job {job}: {each}" for each in alive if each.state in OPEN]
        if tokens.get(job, "unjudged") != "unjudged" and not those[-1].promised:
            wrong.append(f"invented: job {job} with {tokens[job]!r}")
    stuck = _stuck(live)
    return {
        "promised jobs that Slurm lost": lost_by_slurm,
        "promises of those are closed after s": closed,
        "promises void, since Slurm launched the job twice": held_by_slurm,
        "promised jobs whose ends Slurm lost": without_end,
        "promises lost": sum(text.startswith("lost") for text in wrong),
        "promises invented": sum(text.startswith("invented") for text in wrong),
        "stuck": len(stuck) + sum(text.startswith("stuck") for text in wrong),
        "wrong": [*wrong, *(f"stuck: reservation {name}" for name in stuck)],
    }


def _without_a_job(live: Live) -> set[str]:
    """Return the tokens of open promises whose jobs the controller does not know."""
    opened, known = [each for each in live.kept() if each.state in OPEN], live.known_jobs()
    return {each.token for each in opened if each.id not in known}


def _still_open(live: Live, tokens: set[str]) -> bool:
    """Return whether any of these promises is open; ask only now and then, it takes long."""
    found = any(each.token in tokens and each.state in OPEN for each in live.kept())
    if found:
        time.sleep(SELDOM)
    return found


def _stuck(live: Live) -> list[str]:
    """Return the reservations of ours without an open promise.

    The daemon writes a closed promise down, and then deletes its reservation: that one is seen here
    for a moment.
    """
    opened = {str(each.id) for each in live.kept() if each.state in OPEN}
    numbers = {name: name.rpartition("_")[2] for name in live.reservations()}
    return [name for name, job in numbers.items() if job.isdigit() and job not in opened]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--takeovers", type=int, default=20, help="default: 20")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    options = SlurmOptions(
        fast=2,
        slow=6,
        job_submit=("rtsched",),
        backup=True,
        # No controller forgets a job by itself while this runs.
        settings={"SlurmctldTimeout": str(TIMEOUT), "MinJobAge": "86400"},
    )
    files = {"/etc/rtsched/submit.conf": SETTINGS}
    with Cluster("forky", options, files=files) as cluster:
        # Jobs that a killed controller lost would count as promises that the user left unused.
        cluster.start_daemon(SITE + "unused_promises_per_hour = 0\nstandby = true\n")
        cluster.backup().start_daemon()
        found = takeovers(cluster, given.takeovers)
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for key, value in found.items():
            print(f"{key}: {value:.3g}" if isinstance(value, float) else f"{key}: {value}")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
