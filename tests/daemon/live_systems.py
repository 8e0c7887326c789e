"""Small batch systems that answer, sleep, die or raise, for the process that the daemon keeps."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from rtsched.adapters.live import Change, Completions, Done, Marks, Observation
from rtsched.errors import AdapterError
from rtsched.model.actions import Action
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs


class Small:
    """A batch system that does at each poll what the next word of a script says."""

    name = "small"
    calls = math.inf

    def __init__(self, script: Path) -> None:
        self.script = script
        self.polls = 0
        print("a library says something")  # must not end up among the answers
        os.write(1, b"so does one in C\n")

    def poll(self) -> Observation:
        """Do what the script says, and return a hundred jobs."""
        words = self.script.read_text().split()
        self.script.write_text(" ".join(words[1:]))
        self.polls += 1
        getattr(self, words[0] if words else "answer")()
        jobs = Jobs.build(100, id=np.arange(100), name=[f"job {k}" for k in range(100)])
        marks = Marks.build(100, uid=np.full(100, os.getuid()), job=np.arange(100))
        return Observation(
            time.time(), Cluster.uniform(4), queued=jobs, marks=marks, facts=os.getpid()
        )

    def find_completions(self, jobs: Sequence[int], since: float) -> Completions:
        """Return that they completed; of a negative one it cannot be known."""
        if min(jobs) < 0:
            raise AdapterError("accounting does not answer")
        return Completions.build(len(jobs), job=np.array(jobs))

    def answer(self) -> None:
        """Do nothing."""

    def sleep(self) -> None:
        """Hang, with a command that hangs too and keeps what it inherited."""
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], check=False)

    def die(self) -> None:
        """Crash, as a library does."""
        os.kill(os.getpid(), signal.SIGSEGV)

    def leave(self) -> None:
        """End, as a library does."""
        os._exit(7)

    def refuse(self) -> None:
        """Say what an adapter says."""
        raise AdapterError("slurmctld does not answer; start it")

    def break_down(self) -> None:
        """Show a defect."""
        raise ZeroDivisionError("by zero")

    def changes(self, actions: Sequence[Action]) -> Sequence[Change]:
        """Return one change per job of the actions."""
        jobs = [job for action in actions for job in action.job.tolist()]
        return [Change("hold", job, f"hold {job}", command=lambda: 0) for job in jobs]

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Write down what was done."""
        done = self.script.with_suffix(".done")
        done.write_text(" ".join(change.text for change in changes))
        return [Done(change, "done", "ok") for change in changes]


def small(script: Path) -> Callable[[], Small]:
    """Return a factory."""
    return partial(Small, script)


class Leaky(Small):
    """One whose library is worn out after three calls; a poll shows its process and their count."""

    calls = 3

    def poll(self) -> Observation:
        """Return the process, and how many polls there were."""
        return replace(super().poll(), facts=(os.getpid(), self.polls))

    def stick(self) -> None:
        """Have what no other process can take over."""
        self.stuck = lambda: 0


def leaky(script: Path) -> Callable[[], Leaky]:
    """Return a factory."""
    return partial(Leaky, script)


def unmade() -> Small:
    """Fail to make a system."""
    raise AdapterError("this needs Slurm's commands in PATH")


class Large(Small):
    """Ten thousand jobs wait for two thousand nodes."""

    def __init__(self) -> None:
        n = 10_000
        numbers = np.random.default_rng(1).random(n)
        self.jobs = Jobs.build(
            n,
            id=np.arange(n),
            submit=numbers,
            wall_time=numbers,
            deadline=numbers,
            name=[f"job {k}" for k in range(n)],
            user=[f"user {k % 50}" for k in range(n)],
        )
        marks = [f"{k:x}" if k % 10 == 0 else None for k in range(n)]
        self.marks = Marks.build(n, job=np.arange(n), uid=np.arange(n), token=marks)

    def poll(self) -> Observation:
        """Return them."""
        return Observation(time.time(), Cluster.uniform(2000), queued=self.jobs, marks=self.marks)


def large() -> Large:
    """Return the large system."""
    return Large()
