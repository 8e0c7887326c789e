"""What the daemon does with the outcomes of changes. The batch system fails on purpose here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
from running import ANN, NOW, Running, Shown
from scene import Scene

from rtsched.adapters.live import Change, Done, Marks, Observation, Outcome
from rtsched.adapters.slurm import SlurmTranslator
from rtsched.core.chain import Chain, Member
from rtsched.core.hookspecs import hookimpl
from rtsched.daemon.app import Daemon, PluginChains
from rtsched.daemon.chains import Chains
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.settings import LiveSite
from rtsched.daemon.store import Store
from rtsched.model.actions import Action, Notify
from rtsched.model.jobs import Jobs
from rtsched_plugins.mcdf import Mcdf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rtsched.model.snapshot import Snapshot
    from rtsched.model.verdicts import Verdicts


class Failing:
    """A batch system that shows four idle nodes, and does not take the first messages to users."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.told: list[tuple[int, str]] = []

    async def poll(self) -> Observation:
        """Show nothing but nodes."""
        return Observation(1.0, Scene().cluster)

    async def find_completions(self, jobs: Sequence[int], since: float) -> object:
        """Never be asked: no promise is open."""
        raise AssertionError(jobs)

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[list[Change], list[Done]]:
        """Take messages only, and those not at once."""
        assert not dry_run
        dones = []
        for action in (each for each in actions if isinstance(each, Notify)):
            for job, text in zip(action.job.tolist(), action.text, strict=True):
                self.told.append((job, text))
                self.failures -= 1
                outcome = "failed" if self.failures >= 0 else "done"
                dones.append(Done(Change("tell", job, text), outcome))
        return [done.change for done in dones], dones


class Clueless:
    """A planner that raises."""

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts | None:
        """Raise."""
        raise ZeroDivisionError("no idea")


def test_a_planner_that_fails_is_reported(tmp_path: Path) -> None:
    """`rtsched status` and the metrics say so; the cycle goes on to its end."""

    async def cycle() -> tuple[tuple[str, ...], str]:
        chains = [Chains(Chain([Member("bad", Clueless())], "bad"), ()) for _ in range(3)]
        policy = PluginChains(LiveSite(), *chains)
        with Store(tmp_path / "rtsched.db") as store:
            daemon = Daemon(
                policy, store, Failing(0), SlurmTranslator(), Metrics(), reread=lambda: policy
            )
            for _ in range(2):
                await daemon.cycle()
            return daemon.status.problems, daemon.metrics.text()

    problems, metrics = asyncio.run(cycle())
    assert problems == (
        "planner 'bad' failed: ZeroDivisionError: no idea; the plan is unchanged, the next cycle "
        "tries again",
    )
    assert "rtsched_planning_failures_total 2.0" in metrics


def test_a_user_who_could_not_be_told_is_told_in_the_next_cycle(tmp_path: Path) -> None:
    """A message that the batch system did not take is tried again until it does, and once."""

    async def cycles(system: Failing) -> None:
        chains = [Chains(Chain([Member("mcdf", Mcdf())], "mcdf"), ()) for _ in range(3)]
        policy = PluginChains(LiveSite(), *chains)
        with Store(tmp_path / "rtsched.db") as store:
            daemon = Daemon(
                policy, store, system, SlurmTranslator(), Metrics(), reread=lambda: policy
            )
            daemon._with_notices([Notify(np.array([7]), ("broken",))])
            for _ in range(4):
                await daemon.cycle()

    system = Failing(failures=2)
    asyncio.run(cycles(system))
    assert system.told == [(7, "broken")] * 3


class Unkept(Shown):
    """A batch system that cannot keep nodes at first."""

    outcome: Outcome = "failed"

    async def apply(
        self, actions: Sequence[Action], dry_run: bool = False
    ) -> tuple[list[Change], list[Done]]:
        """Take in all, and fail at what keeps nodes."""
        await super().apply(actions, dry_run)
        change = Change("reserve", -1, "write the table")
        return [change], [Done(change, self.outcome)]


def test_a_held_job_is_not_promised_before_its_nodes_are_kept(running: Running) -> None:
    """Which counts from when the batch system has done it, not from when it was to."""
    system = running.system = running.daemon.worker = Unkept()
    columns = {"wall_time": [600.0], "deadline": [NOW + 700]}
    jobs = Jobs.build(1, id=[1], submit=[NOW], size=[4], **columns)
    marks = Marks.build(1, job=[1], uid=[ANN], deferred=[True], held=[True])

    def cycle(seconds: float) -> str:
        running.now = NOW + seconds
        running.show(time=running.now - 0.5, queued=jobs, marks=marks, keeps_after=2.0)
        asyncio.run(running.daemon.cycle())
        return "".join(running.states())

    assert [cycle(seconds) for seconds in (1, 4, 7)] == [""] * 3
    system.outcome = "done"
    assert [cycle(seconds) for seconds in (10, 12)] == [""] * 2
    assert running.daemon.site.secured[1].since == NOW + 10
    assert cycle(13) == "firm"
