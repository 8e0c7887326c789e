"""Kill daemons of a real batch system at random; count promises lost and invented, and more.

    python benchmarks/live_faults.py [--system slurm|condor] [--kills 300] [--controller-kills 30]
        [--burst 10000] [--state FILE [--resume]] [--minutes M] [--json]

A third of the kills of our daemon each: in the middle of a stream of jobs at moments drawn from a
seed, always after a promise is on the disk and before its user is told, and always after that and
before its job is seen. Then slurmctld or the schedd is killed in the middle of such a stream; Slurm
forgets the jobs of the last seconds at that, whose promises must be closed. Then a burst of jobs.

The kills go in parts, each with a seed of its own. With --state what each part found is in a file
as soon as it is over, and --resume goes on behind the last one, with the same options; a part that
fails (its error is kept) is followed by the next one on a new cluster. It needs root on Linux with
debootstrap, as tests/testbed does. The exit status is 1 if a promise was lost or invented, a
reservation or kept slot was stuck, a submission took longer than the bound, or a part failed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

import promised_pool  # noqa: E402
import promising  # noqa: E402
from promised_pool import LivePool, live_pool, submit_file, within  # noqa: E402
from promising import Live, Reply, in_minutes, lost_and_invented  # noqa: E402
from testbed import Cluster, SlurmOptions, TestbedError  # noqa: E402
from testbed.waiting import eventually  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SETTINGS = {"/etc/rtsched/submit.conf": "timeout_ms = 500\nbreaker_ms = 300\n"}
STREAM, CONTROLLER = "in a stream", "controller"
POINTS = ("committed", "answered")
PART = 10
"""Kills in a part."""
BOUND_S = 1.0
"""In seconds of a quiet machine: no submission takes longer while its controller is up."""
CLIENTS = 4
EACH = 250
"""Jobs of one condor_submit in a burst, at the most."""


class Part(NamedTuple):
    """Some kills of one kind: what is killed, how often, and the seed of the moments."""

    kind: str
    kills: int
    seed: int

    @property
    def name(self) -> str:
        """Return what it is called in the file of states."""
        return f"{self.seed} {self.kind}, {self.kills} kills"


def parts(kills: int, of_controller: int) -> list[Part]:
    """Return all parts, such that after any number of them each kind had about its share."""
    kinds = (STREAM, *POINTS)
    left = {kind: kills // 3 + (kills % 3 > at) for at, kind in enumerate(kinds)}
    left[CONTROLLER] = of_controller
    found = list[Part]()
    for kind, count in left.items():
        sizes = [min(PART, count - begin) for begin in range(0, count, PART)]
        found += [Part(kind, size, seed) for seed, size in enumerate(sizes)]
    most = {kind: max(1, -(-count // PART)) for kind, count in left.items()}
    return sorted(found, key=lambda part: part.seed / most[part.kind])


class Submission(NamedTuple):
    """One submission: what its user read, and whether the controller was there all the while."""

    reply: Reply
    controller_up: bool


@dataclass(frozen=True)
class Side:
    """A batch system with our daemon, and what a user does there.

    Attributes
    ----------
    live : Live or LivePool
        The batch system.
    submit : callable
        Submit a job with a deadline that can be met.
    kill_controller : callable
        Kill slurmctld or the schedd, and wait until the next one answers.
    kept_back : callable
        Return what is kept for promises: reservations or slots, by name.
    burst : callable
        Submit so many jobs at once; return what came of it.
    """

    live: Live | LivePool
    submit: Callable[[], Reply]
    kill_controller: Callable[[], None]
    kept_back: Callable[[], Sequence[str]]
    burst: Callable[[int], dict[str, Any]]


def patient(site: str) -> str:
    """Return a site.toml that lets a user have any number of admissions that are not used.

    Each kill between a promise and its answer leaves one; by default 20 an hour are too many.
    """
    return site.replace("[daemon]\n", "[daemon]\nunused_promises_per_hour = 0\n")


@contextmanager
def on_slurm() -> Iterator[Side]:
    """Give a cluster of eight nodes."""
    options = SlurmOptions(fast=2, slow=6, job_submit=("rtsched",))
    with Cluster("forky", options, files=SETTINGS) as cluster:
        live = Live(cluster)
        cluster.restart_slurmctld()  # killed before it has saved once, Slurm does not start again
        cluster.start_daemon(patient(promising.SITE))

        def kill() -> None:
            cluster.kill_slurmctld()
            cluster.start_slurmctld()

        yield Side(
            live,
            lambda: live.submit("-N1", "--time=2", in_minutes(240), script="sleep 1"),
            kill,
            lambda: [name for name in live.reservations() if name.startswith("rtsched_")],
            lambda count: promising.burst(live, count, clients=CLIENTS),
        )


@contextmanager
def on_condor() -> Iterator[Side]:
    """Give a pool of eight slots."""
    with live_pool(patient(promised_pool.SITE), files=SETTINGS, slow=6) as live:
        yield Side(
            live,
            lambda: live.submit(*within(4 * 3600), seconds=1),
            lambda: live.pool.daemon("schedd").kill(),
            lambda: list(live.kept_slots()),
            lambda count: condor_burst(live, count),
        )


SYSTEMS = {"slurm": on_slurm, "condor": on_condor}


def start(live: Live | LivePool, point: str = "") -> float:
    """Start the daemon; return how long it took until its sockets answered."""
    begun = time.monotonic()
    live.box.start_daemon(env={"RTSCHED_FAILPOINT": point})
    return time.monotonic() - begun


def in_a_stream(
    side: Side, part: Part, kill: Callable[[], float], controller_up: threading.Event
) -> tuple[list[Submission], list[float]]:
    """Kill while jobs come; return the submissions, and how long it was away each time.

    Each kill is some moments after a promise was read, so that it hits a daemon that gives them.
    """
    live, chance, stop = side.live, random.Random(part.seed), threading.Event()  # noqa: S311
    done, away = list[Submission](), list[float]()

    def stream() -> None:
        while not stop.is_set():
            up = controller_up.is_set()
            reply = side.submit()
            done.append(Submission(reply, up and controller_up.is_set()))
            time.sleep(0.03)

    client = threading.Thread(target=stream)
    client.start()
    try:
        for _ in range(part.kills):
            live.wait_promise()
            time.sleep(chance.uniform(0.0, 0.5))
            away.append(kill())
    finally:
        stop.set()
        client.join()
    return done, away


def of_daemon(side: Side, part: Part) -> tuple[list[Submission], list[float]]:
    """Kill our daemon in a stream."""

    def kill() -> float:
        side.live.box.kill_daemon()
        return start(side.live)

    up = threading.Event()
    up.set()
    return in_a_stream(side, part, kill, up)


def of_controller(side: Side, part: Part) -> tuple[list[Submission], list[float]]:
    """Kill slurmctld or the schedd in a stream."""
    up = threading.Event()
    up.set()

    def kill() -> float:
        begun = time.monotonic()
        up.clear()
        side.kill_controller()
        up.set()
        return time.monotonic() - begun

    return in_a_stream(side, part, kill, up)


def at_a_point(side: Side, part: Part) -> tuple[list[Submission], list[float]]:
    """Have the daemon die at a point of each admission; return as `in_a_stream`."""
    side.live.box.kill_daemon()
    done, starts = list[Submission](), list[float]()
    for _ in range(part.kills):
        starts.append(start(side.live, part.kind))
        while side.live.box.services.alive("rtsched"):
            done.append(Submission(side.submit(), controller_up=True))
            time.sleep(0.05)
    start(side.live)
    return done, starts


def abandoned(live: Live | LivePool) -> list[promising.Kept]:
    """Return the promises of jobs that the batch system does not know."""
    known = live.known_jobs()
    return [each for each in live.kept() if each.state == "firm" and each.id not in known]


def play(side: Side, part: Part) -> dict[str, Any]:
    """Do a part, and cancel what it left; return what came of it.

    A job whose number was given again, or that nobody knows any more, was forgotten by a controller
    that was killed: its promise must be closed. A job that is in the queue though its submission
    failed was taken by a controller that was killed before it said so: its promise stands.
    """
    live = side.live
    before = {each.token for each in live.kept()}
    ways = {STREAM: of_daemon, CONTROLLER: of_controller}
    done, away = ways.get(part.kind, at_a_point)(side, part)
    eventually(lambda: all(each.state != "provisional" for each in live.kept()), 60)
    if part.kind == CONTROLLER:
        with suppress(TestbedError):  # what is open all the same is counted below
            eventually(lambda: not abandoned(live), 60, "promises of lost jobs are closed")
    by_job = {each.reply.job: each.reply for each in done if each.reply.job}
    known = live.known_jobs() | {each.id for each in live.kept() if each.state == "kept"}
    forgotten = list[Reply]()
    if part.kind == CONTROLLER:
        forgotten = [
            each.reply
            for each in done
            if each.reply.promised and (by_job[each.reply.job] is not each.reply)
        ]
        forgotten += [reply for job, reply in by_job.items() if reply.promised and job not in known]
        tokens = live.tokens()
        before |= {tokens[job].removeprefix("rtsched:") for job in tokens.keys() - by_job.keys()}
    gone = {id(reply) for reply in forgotten}
    replies = [each.reply for each in done if id(each.reply) not in gone]
    wrong = lost_and_invented(live, replies, before)
    times = sorted(each.reply.seconds for each in done)
    late = [each for each in done if each.controller_up and each.reply.quiet > BOUND_S]
    with suppress(TestbedError):  # what is open all the same is counted below
        live.cancel_all()
    with suppress(TestbedError):
        eventually(lambda: not side.kept_back(), 40, "nothing is kept for promises")
    stuck = [f"stuck: {name}" for name in side.kept_back()]
    stuck += [f"stuck: {each}" for each in live.kept() if each.state in promising.OPEN]
    return {
        "kills": len(away),
        "submissions": len(done),
        "promised": sum(each.reply.promised for each in done),
        "let in without a promise": sum(
            bool(each.reply.job) and not each.reply.promised for each in done
        ),
        "forgotten by the controller": len(forgotten),
        "lost": sum(text.startswith(("lost", "mixed")) for text in wrong),
        "invented": sum(text.startswith("invented") for text in wrong),
        "stuck": len(stuck),
        "beyond the bound": len(late),
        "submission ms": [round(1000 * seconds) for seconds in times],
        "away s": [round(seconds, 2) for seconds in away],
        "wrong": [*wrong, *stuck],
    }


COUNTS = (
    *("kills", "submissions", "promised", "let in without a promise"),
    *("forgotten by the controller", "lost", "invented", "stuck", "beyond the bound"),
)


def totals(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures of all parts, by kind."""
    by_kind: dict[str, dict[str, Any]] = {}
    for name, part in found.items():
        if "failed" in part:
            continue
        kind = name.partition(" ")[2].partition(",")[0]
        side = by_kind.setdefault(kind, dict.fromkeys(COUNTS, 0) | {"ms": [], "away": []})
        for key in COUNTS:
            side[key] += part[key]
        side["ms"] += part["submission ms"]
        side["away"] += part["away s"]
    for side in by_kind.values():
        times, away = sorted(side.pop("ms")), sorted(side.pop("away"))
        side["submission p50 / p99 / slowest ms"] = [
            times[int(share * (len(times) - 1))] for share in (0.5, 0.99, 1.0)
        ]
        side["away median / slowest s"] = [away[len(away) // 2], away[-1]]
    return by_kind


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
                reply = live.pool.run(words, user="bob", input=text, check=False, timeout=300)
                done.append(reply.stdout + reply.stderr)

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


def run(
    system: str,
    todo: Sequence[Part],
    found: dict[str, Any],
    keep: Callable[[], None],
    minutes: float,
) -> None:
    """Do the parts missing in `found` while there is time; call `keep` after each."""
    pending = deque(part for part in todo if part.name not in found)
    until = time.monotonic() + 60.0 * minutes
    while pending and time.monotonic() < until:
        try:
            with SYSTEMS[system]() as side:
                while pending and time.monotonic() < until:
                    part = pending.popleft()
                    found[part.name] = {"failed": "it was broken off"}
                    found[part.name] = play(side, part)
                    keep()
        except (TestbedError, AssertionError, OSError) as error:
            found[part.name] = {"failed": f"{type(error).__name__}: {error}"}
            keep()


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--system", choices=list(SYSTEMS), default="slurm", help="default: slurm")
    parser.add_argument("--kills", type=int, default=300, help="of our daemon; default: 300")
    parser.add_argument(
        "--controller-kills", type=int, default=30, help="of slurmctld or schedd; default: 30"
    )
    parser.add_argument("--burst", type=int, default=10_000, help="jobs; 0: none; default: 10000")
    parser.add_argument("--state", type=Path, help="keep what the parts found in this file")
    parser.add_argument("--resume", action="store_true", help="go on with what that file holds")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no part after so long"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    if given.resume and not given.state:
        parser.error("--resume needs --state")
    todo = parts(given.kills, given.controller_kills)
    found: dict[str, dict[str, Any]] = {}
    if given.resume and given.state.exists():
        found = json.loads(given.state.read_text())

    def keep() -> None:
        if given.state:
            new = given.state.with_suffix(".new")
            new.write_text(json.dumps(found))
            new.replace(given.state)

    run(given.system, todo, found, keep, given.minutes)
    shown = totals(found)
    if given.burst:
        with SYSTEMS[given.system]() as side:
            shown["burst"] = side.burst(given.burst)
    wrong = [text for part in found.values() for text in part.get("wrong", ())]
    wrong += [f"{name}: {part['failed']}" for name, part in found.items() if "failed" in part]
    wrong += shown.get("burst", {}).get("wrong", [])
    if given.json:
        print(json.dumps(shown | {"wrong": wrong}, indent=1))
    else:
        for name, side in shown.items():
            print(f"{name}:")
            for key, value in side.items():
                print(f"  {key}: {value:.3g}" if isinstance(value, float) else f"  {key}: {value}")
        print("\n".join(["wrong:", *map(str, wrong)]) if wrong else "nothing was wrong")
    return 1 if wrong or any(side.get("beyond the bound") for side in shown.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
