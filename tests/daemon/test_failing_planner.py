"""A planner that fails has said nothing: no promise is given or broken for its error."""

import numpy as np
import pytest
from scene import ANN, T0, Scene

from rtsched.core.capabilities import PreparedState
from rtsched.core.hookspecs import hookimpl
from rtsched.daemon.deferred import AGAIN
from rtsched.errors import PlannerError
from rtsched.model.actions import Cancel, Notify, Release, Requeue
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdicts
from rtsched_plugins.mcdf import Mcdf

ASKED = {"size": 2, "wall_time": 600.0, "deadline": T0 + 9000}


class Flaky(Mcdf):
    """A planner that fails as it is told: `raises`, or `answers wrongly`."""

    fails = ""
    answers = 0
    """Times that it still answers as it should before it fails."""

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, prepared: PreparedState
    ) -> Verdicts | None:
        """Fail, or judge as mcdf does."""
        self.answers -= 1
        if self.answers >= 0:
            return self.judge(jobs, snapshot, prepared)
        if self.fails == "raises":
            raise ZeroDivisionError("no idea")
        if self.fails == "answers wrongly":
            return Verdicts.build(np.ones(len(jobs) + 1, np.int8))
        return self.judge(jobs, snapshot, prepared)


@pytest.fixture(params=["raises", "answers wrongly"])
def how(request: pytest.FixtureRequest) -> str:
    """Return how a planner fails."""
    return request.param


@pytest.fixture(params=["abstain", "defer"])
def on_error(request: pytest.FixtureRequest) -> str:
    """Return what the site says of a failing plug-in."""
    return request.param


def flaky(offer: float = 60.0, **member: str) -> tuple[Scene, Flaky]:
    """Return a site of four nodes and its planner, which works for now."""
    plugin = Flaky()
    return Scene(plugin=plugin, planner="flaky", member=member, offer=offer), plugin


def told(actions: tuple[object, ...]) -> list[str]:
    """Return what users are told."""
    return [text for each in actions if isinstance(each, Notify) for text in each.text]


def test_no_promise_breaks_while_the_planner_fails(how: str, on_error: str) -> None:
    """A node is lost and the planner fails: the plan is kept, and mended when it answers again."""
    scene, plugin = flaky(on_error=on_error)
    token = scene.submit(**ASKED).reply.token
    scene.poll(T0 + 5, queued=((7, token),))
    before = scene.site.snapshot.plan
    plugin.fails = how
    for at in (10, 15):
        settled = scene.poll(T0 + at, queued=((7, token),), down=(0,))
        assert not settled.changed
        assert all("at risk" in text for text in told(settled.actions))
        assert scene.site.promises[7].state == "firm"
        assert scene.site.snapshot.plan.entries.equals(before.entries)
        (problem,) = settled.problems
        assert "1 promised job" in problem
        assert "flaky" in problem
    plugin.fails = ""
    settled = scene.poll(T0 + 20, queued=((7, token),), down=(0,))
    assert not settled.problems
    assert 0 not in scene.site.snapshot.plan.nodes
    assert scene.site.promises[7].state == "firm"


def test_what_cannot_be_kept_breaks_when_the_planner_answers_again() -> None:
    """A promise is not forgotten with the error: the planner's own verdict still counts."""
    scene, plugin = flaky()
    token = scene.submit(**ASKED).reply.token
    scene.poll(T0 + 5, queued=((7, token),))
    plugin.fails = "raises"
    assert not scene.poll(T0 + 10, queued=((7, token),), down=(0, 1, 2)).changed
    plugin.fails = ""
    (broken,) = scene.poll(T0 + 15, queued=((7, token),), down=(0, 1, 2)).changed
    assert broken.state == "broken"


def test_nobody_is_requeued_for_a_planner_that_fails(how: str) -> None:
    """A best-effort job stands in the way, and the planner fails only after it said no once."""
    scene, plugin = flaky()
    token = scene.submit(size=3, wall_time=600.0, deadline=T0 + 700).reply.token
    scene.poll(T0 + 5, queued=((7, token),))
    plugin.answers, plugin.fails = 1, how
    runs = ((9, "", T0 + 5.5, T0 + 4000.0, (1,)),)
    settled = scene.poll(T0 + 6, ((7, token),), runs, down=(0,))
    assert not settled.changed
    assert not [each for each in settled.actions if isinstance(each, Requeue)]
    assert len(settled.problems) == 1
    assert scene.site.promises[7].state == "firm"


def test_a_better_plan_that_fails_is_reported(how: str) -> None:
    """The planner is asked for a better plan with each poll; that it fails is seen at once."""
    scene, plugin = flaky()
    token = scene.submit(**ASKED).reply.token
    plugin.fails = how
    settled = scene.poll(T0 + 5, queued=((7, token),))
    assert len(settled.problems) == 1
    assert scene.site.promises[7].state == "firm"


def test_a_submission_that_the_planner_cannot_judge_is_an_error(how: str) -> None:
    """The filter then does what its own `on_failure` says; nothing is promised or passed."""
    scene, plugin = flaky(on_error="abstain")
    plugin.fails = how
    before = scene.site
    with pytest.raises(PlannerError, match=r"planner 'flaky' failed"):
        scene.submit(**ASKED)
    assert scene.site is before


def test_where_the_site_says_so_such_a_submission_waits(how: str) -> None:
    """`on_error = "defer"`: it is held, and judged when the planner answers again."""
    scene, plugin = flaky(on_error="defer")
    plugin.fails = how
    judged = scene.submit(**ASKED)
    assert judged.verdict == "defer"
    assert judged.reply.deferred


@pytest.mark.parametrize("mode", ["shadow", "warn"])
def test_a_planner_that_does_not_count_disturbs_nobody(how: str, mode: str, on_error: str) -> None:
    """In shadow and warn the job passes, whatever becomes of the planner."""
    scene, plugin = flaky(mode=mode, on_error=on_error)
    plugin.fails = how
    judged = scene.submit(**ASKED)
    assert judged.verdict == "pass"
    assert not judged.reply.deferred
    assert not judged.reply.rejected


def test_jobs_without_a_deadline_pass(how: str) -> None:
    """Of them the planner has nothing to say anyway."""
    scene, plugin = flaky(on_error="abstain")
    plugin.fails = how
    assert scene.submit(size=2, wall_time=600.0).verdict == "pass"


def deferred(count: int = 1) -> Jobs:
    """Return jobs that wait held until they have been judged."""
    numbers = np.arange(1, count + 1)
    given = {name: np.full(count, value) for name, value in ASKED.items()}
    return Jobs.build(count, id=numbers, submit=np.full(count, T0), **given)


def test_deferred_jobs_stay_held_while_the_planner_fails(how: str, on_error: str) -> None:
    """They are not let go as if nothing could be promised; they are judged when it answers."""
    scene, plugin = flaky(on_error=on_error)
    plugin.fails = how
    for at in (1.0, 6.0, 1.0 + AGAIN):
        settled = scene.poll(T0 + at, deferred=deferred())
        assert not [each for each in settled.actions if isinstance(each, Release | Cancel)]
        assert not scene.site.promises
        assert not any(one.declined for one in scene.site.waiting.values())
        assert all("held" in text for text in told(settled.actions))
    plugin.fails = ""
    scene.poll(T0 + 2 * AGAIN + 2, deferred=deferred())
    assert scene.site.promises[1].state == "firm"


def test_deferred_jobs_that_could_not_be_judged_are_reported(how: str) -> None:
    """An admin sees it in `rtsched status`, once for all of them."""
    scene, plugin = flaky()
    plugin.fails = how
    problems = scene.poll(T0 + 1, deferred=deferred(3)).problems
    assert len([each for each in problems if "3 held jobs" in each]) == 1


def test_an_offer_without_a_place_is_not_taken(how: str) -> None:
    """Its nodes died and the planner fails: it is judged as any other, and that is an error."""
    scene, plugin = flaky(offer=600.0)
    scene.submit(size=4, wall_time=600.0, deadline=T0 + 700)
    wanted = {"size": 4, "wall_time": 600.0}
    assert scene.submit(**wanted, deadline=T0 + 700).verdict == "reject"
    (offer,) = scene.site.of_user(ANN, "offered")
    plugin.fails = how
    scene.poll(T0 + 5, down=(0,))
    with pytest.raises(PlannerError):
        scene.submit(now=T0 + 6, **wanted, deadline=offer.deadline)
