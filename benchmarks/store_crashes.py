"""Crash the daemon's database in every way; count commits lost, invented and damaged.

    python benchmarks/store_crashes.py [--crashes 100000] [--state FILE] [--json]

Rounds of random courses, each from a seed of its own: commits, states, journal, deletions,
checkpoints, reopenings. In each round processes are killed with signal 9, at the failpoints and at
any instant. Another one is recorded: each write and sync of its files, in order. At each of them
the disk is set up as a kill in the middle, or a power cut, may leave it (writes that no sync
followed are there, or not, or torn into sectors), and opened again. And a third one lives on a disk
that is full, read-only or broken for a while.

A commit is lost if it had returned and is not there; with a power cut that holds for commits, while
states, journal and deletions may be those of some moments before. It is invented if what is there
never was, such as half of a commit. The database is damaged if it cannot be opened or used.

With --state a run that was interrupted goes on. It needs a C compiler. The exit status is 1 if
anything was lost, invented, damaged, left by half, or did not go on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from disk import Disk, compiled, operations  # noqa: E402
from store_course import Course, Known, Step, found  # noqa: E402

from rtsched.daemon import failpoints  # noqa: E402
from rtsched.daemon.store import Store  # noqa: E402
from rtsched.errors import RtschedError, StoreError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disk import Operation

POINTS = ("begun", "written", "committed")
STEPS = 30
"""Of the recorded course of a round. Half as many kills are made at each failpoint and at any
instant, and the course on a failing disk has twice as many steps."""

ERRORS = {"full": 28, "read-only": 30, "input/output error": 5, "over quota": 122}
OUTCOMES = ("lost", "invented", "damaged")
NAME = "rtsched.db"


def judged(path: Path, states: Sequence[Known], least: int) -> str:
    """Return what became of a database: empty if it is as after a step from `least` on."""
    try:
        with Store(path) as store:
            known = found(store)
            store.commit([], None, known.version)
    except (RtschedError, AssertionError):
        return "damaged"
    if known in states[least:]:
        return ""
    return "lost" if known in states[:least] else "invented"


def states_of(seed: int, steps: int) -> list[Known]:
    """Return what is there before a course and after each of its steps."""
    course = Course(seed)
    return [Known(), *(course.step().after for _ in range(steps))]


def done(step: Step, store: Store, path: Path) -> Store:
    """Do a step; return the store, which may be another one then."""
    if step.kind != "reopen":
        step.act(store)
        return store
    store.close()
    store = Store(path)
    store.load()
    return store


# --- killed ------------------------------------------------------------------------------------


def killed(directory: Path, seed: int, point: str) -> str:
    """Kill a process at a failpoint, or at any instant if `point` is empty; judge what it left."""
    rng = random.Random(f"{seed}{point}")  # noqa: S311
    directory.mkdir()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            live(directory / NAME, seed, writing, point, rng.randint(1, 30))
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        marks = told.read(1)
        if not point:
            time.sleep(rng.uniform(0.0, 0.05))
            os.kill(child, signal.SIGKILL)
        marks += told.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise AssertionError(f"seed {seed}: the process ended by itself")
    outcome = judged(directory / NAME, states_of(seed, marks.count(b"b")), marks.count(b"d"))
    shutil.rmtree(directory)
    return outcome


def live(path: Path, seed: int, told: int, point: str, at: int) -> None:
    """Go through a course until killed; tell `b` before each step and `d` after it."""
    course, store = Course(seed), Store(path)
    for number in count(1):
        step = course.step()
        if point and number == at:
            failpoints.choose(point)
        os.write(told, b"b")
        store = done(step, store, path)
        os.write(told, b"d")


# --- recorded ----------------------------------------------------------------------------------


def preloaded(library: Path, directory: Path, what: str, seed: int, steps: int) -> str:
    """Run a part of this script in a process whose writes to a directory are recorded.

    The trace stands beside that.
    """
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "DISK_DIRECTORY": str(directory),
        "DISK_TRACE": str(directory.with_name("trace")),
    }
    words = [sys.executable, __file__, "--part", what, "--seed", str(seed), "--steps", str(steps)]
    return subprocess.run(
        [*words, str(directory)], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def marking(directory: Path) -> int:
    """Return the descriptor whose writes are marks in the trace."""
    return os.open(directory / "mark", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def recorded(directory: Path, seed: int, steps: int) -> None:
    """Go through a course, with marks; the process ends without closing anything."""
    path, mark, course = directory / NAME, marking(directory), Course(seed)
    store = Store(path)
    for _ in range(steps):
        step = course.step()
        os.write(mark, b"begun")
        store = done(step, store, path)
        os.write(mark, f"done {step.kind}".encode())
    os._exit(0)


def what_follows(operation: Operation) -> str:
    """Return in which row of the table a crash before an operation is counted."""
    if operation.kind in "CU":
        return "a file made or removed"
    what = "synced" if operation.kind == "S" else "written"
    if operation.name.endswith("-wal"):
        return f"the log {what}"
    return f"the file {what}" if operation.name == NAME else f"others {what}"


def crashed(trace: Path, directory: Path, seed: int, steps: int) -> Counter[str]:
    """Crash before and within each operation of a trace, by a kill and by a power cut."""
    disk, rng, table = Disk(), random.Random(seed), Counter[str]()  # noqa: S311
    states, begun, finished, durable = states_of(seed, steps), 0, 0, 0
    for operation in operations(trace):
        if operation.kind == "M":
            if operation.data == b"begun":
                begun += 1
            else:
                finished = begun
                durable = begun if operation.data == b"done commit" else durable
            continue
        if operation.name == "mark":
            continue
        ways = {
            "killed": (disk.after_kill(operation, rng), finished),
            "power cut": (disk.after_power_cut(rng), durable),
        }
        for how, (files, least) in ways.items():
            directory.mkdir()
            for name, content in files.items():
                (directory / name).write_bytes(content)
            outcome = judged(directory / NAME, states[: begun + 1], least)
            shutil.rmtree(directory)
            key = f"{how}, {what_follows(operation)}"
            table[f"{key}|crashes"] += 1
            if outcome:
                table[f"{key}|{outcome}"] += 1
        disk.do(operation)
    return table


# --- a failing disk ----------------------------------------------------------------------------


def failing(directory: Path, seed: int, steps: int) -> Counter[str]:
    """Go through a course on a disk that fails for a while; tell what came of it.

    After a failure the store must be as before the step, and a copy of its files as before or after
    it; with room again the step must come to its end.
    """
    path, mark, course = directory / NAME, marking(directory), Course(seed)
    rng, table = random.Random(seed), Counter[str]()  # noqa: S311
    store, before = Store(path), Known()
    for _ in range(steps):
        step, error = course.step(), rng.choice(list(ERRORS))
        for_long = rng.choice((1, 10**6))
        os.write(mark, f"fail {ERRORS[error]} {rng.randint(0, 8)} {for_long}".encode())
        try:
            store = done(step, store, path)
        except StoreError as told:
            os.write(mark, b"fail 0 0 0")
            table[f"{error}|failures"] += 1
            table[f"{error}|not told"] += "; " not in str(told)
            if step.kind != "reopen":
                half = replace(found(store), journal=()) != replace(before, journal=())
                table[f"{error}|by half"] += half
            copy = directory.with_name("copy")
            shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*-shm"))
            table[f"{error}|by half"] += bool(judged(copy / NAME, [before, step.after], 0))
            shutil.rmtree(copy)
            try:
                store = done(step, store, path)
            except StoreError:
                table[f"{error}|stuck"] += 1
        os.write(mark, b"fail 0 0 0")
        if step.kind == "reopen":
            store.load()
        table[f"{error}|by half"] += found(store) != step.after
        before = step.after
    store.close()
    return table


# --- all together ------------------------------------------------------------------------------


def one_round(library: Path, seed: int, steps: int) -> Counter[str]:
    """Return the table of one round."""
    table = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="rtsched-crashes-", dir=memory()) as name:
        place = Path(name)
        for point in (*POINTS, ""):
            key = f"killed, failpoint {point}" if point else "killed, at any instant"
            for number in range(steps // 2):
                outcome = killed(place / "killed", 1000 * seed + number, point)
                table[f"{key}|crashes"] += 1
                if outcome:
                    table[f"{key}|{outcome}"] += 1
        recording, broken = place / "recorded", place / "failing"
        recording.mkdir()
        preloaded(library, recording, "record", seed, steps)
        table += crashed(place / "trace", place / "crashed", seed, steps)
        broken.mkdir()
        table += Counter(json.loads(preloaded(library, broken, "fail", seed, 2 * steps)))
    return table


def memory() -> str | None:
    """Return a file system in memory, if there is one: what is on a disk is worked out here."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def crashes(table: Counter[str]) -> int:
    """Return how many crashes a table counts."""
    return sum(number for key, number in table.items() if key.endswith("|crashes"))


def bad(table: Counter[str]) -> int:
    """Return how much went wrong."""
    wrong = (*OUTCOMES, "not told", "by half", "stuck")
    return sum(number for key, number in table.items() if key.partition("|")[2] in wrong)


def show(table: Counter[str], out: Console) -> None:
    """Print the tables."""
    names = sorted({key.partition("|")[0] for key in table if key.partition("|")[0] not in ERRORS})
    for columns, rows in (
        (("crashes", *OUTCOMES), names),
        (("failures", "not told", "by half", "stuck"), list(ERRORS)),
    ):
        shown = Table("")
        for column in columns:
            shown.add_column(column, justify="right")
        for row in rows:
            shown.add_row(row, *(f"{table[f'{row}|{column}']:,}" for column in columns))
        shown.add_section()
        sums = (sum(table[f"{row}|{column}"] for row in rows) for column in columns)
        shown.add_row("all", *(f"{number:,}" for number in sums))
        out.print(shown)


def run(wanted: int, state: Path | None = None, steps: int = STEPS) -> Counter[str]:
    """Make rounds until so many crashes are counted; go on where a state file ends."""
    lines = state.read_text("utf-8").splitlines() if state and state.exists() else []
    rounds = [Counter[str](json.loads(line)) for line in lines]
    with tempfile.TemporaryDirectory(prefix="rtsched-disk-") as directory:
        library = compiled(Path(directory))
        while sum(map(crashes, rounds)) < wanted:
            rounds.append(one_round(library, len(rounds) + 1, steps))
            if state:
                with state.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rounds[-1]) + "\n")
    return sum(rounds, Counter[str]())


def main() -> int:
    """Crash, count and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--crashes", type=int, default=100_000, help="at the least (100,000)")
    parser.add_argument("--state", type=Path, help="where rounds are kept that are done")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of a round ({STEPS})")
    parser.add_argument("--part", choices=("record", "fail"), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("directory", type=Path, nargs="?", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "record":
        recorded(given.directory, given.seed, given.steps)
    if given.part == "fail":
        print(json.dumps(failing(given.directory, given.seed, given.steps)))
        return 0
    table = run(given.crashes, given.state, given.steps)
    if given.json:
        print(json.dumps(table, indent=2, sort_keys=True))
    else:
        show(table, Console(width=None if sys.stdout.isatty() else 110))
    return 1 if bad(table) else 0


if __name__ == "__main__":
    sys.exit(main())
