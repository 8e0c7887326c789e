"""Jobs that run without the promise that they asked for, where their users or the site say so."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Running, answer_of
from scene import T0, Scene

from rtsched.adapters.live import UNJUDGED, Marks
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.daemon.admission import AdmissionController, AdmissionResult
from rtsched.daemon.cycle import steered
from rtsched.daemon.deferred import FEW, settled_deferred
from rtsched.daemon.settings import DaemonSettings
from rtsched.daemon.site import Site, Step
from rtsched.model.actions import (
    Admit,
    Cancel,
    DropDeadline,
    ExchangePlaces,
    Notify,
    Release,
    Reserve,
)
from rtsched.model.jobs import Jobs
from rtsched.model.state import NO_EVENTS

WHOLE = {"size": 4, "wall_time": 600.0}
UNPROMISED = "accepted without a promise, it runs as best effort: "


def full() -> Scene:
    """Return a site whose nodes are promised for ten minutes."""
    scene = Scene()
    assert scene.submit(deadline=T0 + 650, **WHOLE).verdict == "admit"
    return scene


def test_a_job_that_cannot_be_promised_its_deadline_runs_anyway() -> None:
    """Its user reads why, and the earliest deadline; nothing is held for it."""
    scene = full()
    before = scene.site
    judged = scene.submit(otherwise="run", deadline=T0 + 700, **WHOLE)
    assert (judged.verdict, judged.changed) == ("run", ())
    assert judged.codes == scene.submit(deadline=T0 + 700, **WHOLE).codes
    assert judged.site is before
    assert not judged.reply.rejected
    assert judged.reply.unpromised
    assert UNPROMISED in judged.reply.text
    assert "Feasible: " in judged.reply.text
    assert "reserved" not in judged.reply.text
    assert "submit" not in judged.reply.text


def test_one_that_can_be_is_promised_it() -> None:
    """The word changes nothing then."""
    judged = full().submit(otherwise="run", deadline=T0 + 3000, **WHOLE)
    assert (judged.verdict, judged.reply.unpromised) == ("admit", False)


def test_an_offer_that_its_user_holds_stays() -> None:
    """It was made for another job."""
    scene = full()
    (offer,) = scene.submit(deadline=T0 + 700, **WHOLE).changed
    scene.submit(otherwise="run", deadline=T0 + 700, **WHOLE)
    assert offer.id in scene.site.promises


def test_budgets_count_as_no_promise() -> None:
    """And so does a limit on promises."""
    scene = Scene(promises_per_user=1)
    scene.submit(size=1, wall_time=60.0, deadline=T0 + 900)
    judged = scene.submit(otherwise="run", size=1, wall_time=60.0, deadline=T0 + 900)
    assert (judged.verdict, judged.codes) == ("run", ("submit.too-many",))
    assert f"{UNPROMISED}you have reached the limit of 1 promise" in judged.reply.text


def test_what_makes_no_sense_is_rejected() -> None:
    """Such as a deadline in a hundred years."""
    judged = Scene().submit(otherwise="run", size=1, wall_time=60.0, deadline=T0 + 4e9)
    assert (judged.verdict, judged.codes) == ("reject", ("submit.unusable",))


@pytest.mark.parametrize(
    ("site", "user", "runs"),
    [("reject", None, False), ("run", None, True), ("run", "reject", False), ("run", "run", True)],
)
def test_a_deferred_job_is_let_go_without_its_deadline(
    site: str, user: str | None, runs: bool
) -> None:
    """Once; the batch system is asked not to end it at its deadline until that is so."""
    scene = Scene(rejected=site)
    jobs = Jobs.build(1, id=[7], submit=[T0], size=[4], wall_time=[600.0], deadline=[T0 + 300])
    for now in (T0 + 1, T0 + 2):
        actions = scene.poll(now, deferred=jobs, otherwise=user).actions
        asked = {type(each): each for each in actions if 7 in each.job.tolist()}
        assert (DropDeadline in asked) == (Release in asked) == runs
        assert (Cancel in asked) == (not runs)
    (entry,) = scene.poll(T0 + 3, deferred=jobs.replace(id=[8]), otherwise=user).journal
    assert entry.verdict == ("run" if runs else "reject")
    assert not scene.site.waiting_job(7).unpromised


def test_its_user_is_told(scene: Scene) -> None:
    """In the job's comment, as its submission was answered long ago."""
    jobs = Jobs.build(1, id=[7], submit=[T0], size=[4], wall_time=[600.0], deadline=[T0 + 300])
    actions = scene.poll(T0 + 1, deferred=jobs, otherwise="run").actions
    (text,) = [text for each in actions if isinstance(each, Notify) for text in each.text]
    assert UNPROMISED in text


def test_who_waits_for_a_job_without_a_promise_is_not_cancelled_with_it(scene: Scene) -> None:
    """It is no rejected job."""
    jobs = Jobs.build(
        2,
        id=[7, 8],
        submit=[T0, T0],
        size=[4, 1],
        wall_time=[600.0, 60.0],
        deadline=[T0 + 300, T0 + 9000],
    )
    settled = scene.poll(T0 + 1, deferred=jobs, otherwise="run", edges=((7, 8),))
    assert not [each for each in settled.actions if isinstance(each, Cancel)]
    assert {entry.job: entry.verdict for entry in settled.journal} == dict.fromkeys("78", "run")


# --- evaluated again -----------------------------------------------------------------------------


def waiting(*numbers: int, deadline: float = T0 + 3000, **columns: object) -> Jobs:
    """Return jobs of the whole site that run without a promise, each due a second later."""
    count = len(numbers)
    due = deadline + np.arange(count)
    return Jobs.build(
        count,
        id=list(numbers),
        submit=np.full(count, T0),
        size=np.full(count, 4, np.int32),
        wall_time=np.full(count, 600.0),
        deadline=due,
        **columns,
    )


def busy(scene: Scene, now: float, end: float, **shown: Any) -> Step:
    """Have a poll show a job that has all nodes until `end`."""
    scene.demand = {}
    return scene.poll(now, running=((5, "", T0, end, (0, 1, 2, 3)),), **shown)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return which jobs are evaluated from now on."""
    seen, honest = list[int](), AdmissionController.judge_queued

    def noted(self: AdmissionController, site: Site, job: int, now: float) -> AdmissionResult:
        seen.append(job)
        return honest(self, site, job, now)

    monkeypatch.setattr(AdmissionController, "judge_queued", noted)
    return seen


def test_it_is_promised_its_deadline_as_soon_as_there_is_room(monkeypatch) -> None:
    """When a job has ended; not before, and not again and again while nothing is freed."""
    scene, seen, job = Scene(), asked(monkeypatch), waiting(7)
    for now in (T0 + 1, T0 + 2, T0 + 3):
        settled = busy(scene, now, T0 + 2900, unpromised=job, otherwise="run")
        assert not settled.changed
        assert not settled.journal
        assert 7 not in [job for each in settled.actions for job in each.job.tolist()]
    assert seen == [7]
    settled = scene.poll(T0 + 5, unpromised=job, otherwise="run")
    (record,) = settled.changed
    assert (record.id, record.state, record.deadline) == (7, "firm", T0 + 3000)
    (text,) = [text for each in settled.actions if isinstance(each, Notify) for text in each.text]
    assert "promised to end by" in text
    assert [each.job.tolist() for each in settled.actions if isinstance(each, Admit)] == [[7]]
    assert [entry.verdict for entry in settled.journal] == ["admit"]
    assert not scene.poll(T0 + 6, unpromised=job, otherwise="run").changed
    assert seen == [7, 7]


@pytest.mark.parametrize(
    ("site", "user", "again"),
    [("reject", None, False), ("run", None, True), ("run", "reject", False)],
)
def test_only_if_it_is_to_run(site: str, user: str | None, again: bool) -> None:
    """Its user decides, then the site: others with a deadline are left as they are."""
    scene = Scene(rejected=site)
    assert bool(scene.poll(T0 + 1, unpromised=waiting(7), otherwise=user).changed) == again


def test_so_many_in_a_poll_by_their_deadlines(monkeypatch) -> None:
    """All of them in turn, before the first are evaluated again."""
    scene, seen = Scene(), asked(monkeypatch)
    jobs = waiting(*range(40, 40 - FEW - 3, -1), deadline=T0 + 2000)
    busy(scene, T0 + 1, T0 + 9000, unpromised=jobs, otherwise="run")
    assert seen == list(range(40, 40 - FEW, -1))
    scene.poll(T0 + 2, running=((6, "", T0, T0 + 9e3, (0, 1)),), unpromised=jobs, otherwise="run")
    assert seen[FEW : FEW + 3] == [32, 31, 30]
    assert seen[FEW + 3 :] == list(range(40, 40 - FEW + 3, -1))


def test_one_that_can_no_longer_end_in_time_is_not_evaluated(monkeypatch) -> None:
    """It runs on without a promise."""
    seen = asked(monkeypatch)
    Scene().poll(T0 + 1, unpromised=waiting(7, deadline=T0 + 600), otherwise="run")
    assert seen == []


def test_what_its_user_gave_up_is_not_promised_again(monkeypatch) -> None:
    """Nor by a daemon that was started anew."""
    scene, job = Scene(), waiting(7)
    scene.poll(T0 + 1, unpromised=job, otherwise="run")
    scene.site, seen = scene.site.released(7), asked(monkeypatch)
    assert not scene.poll(T0 + 2, unpromised=job, otherwise="run").changed
    assert seen == []


def test_a_deferred_one_is_evaluated_again_too() -> None:
    """Once it has been let go."""
    scene, job = Scene(), waiting(7)
    busy(scene, T0 + 1, T0 + 2900, deferred=job, otherwise="run")
    assert scene.site.waiting_job(7).unpromised
    busy(scene, T0 + 2, T0 + 2900, unpromised=job, otherwise="run")
    assert scene.poll(T0 + 3, unpromised=job, otherwise="run").changed


def test_free_nodes_are_kept_before_they_are_promised() -> None:
    """As for jobs that are held: others may start there between the poll and the promise."""
    scene, job = Scene(), waiting(7, deadline=T0 + 700)
    busy(scene, T0 + 1, T0 + 8000, unpromised=job, otherwise="run", keeps_after=0.0)
    settled = scene.poll(T0 + 2, unpromised=job, otherwise="run", keeps_after=0.0)
    assert not settled.changed
    (reserve,) = [each for each in settled.actions if isinstance(each, Reserve)]
    assert reserve.secured.entries.job.tolist() == [7]
    assert scene.poll(T0 + 3, unpromised=job, otherwise="run", keeps_after=0.0).changed


def test_who_waits_for_one_that_is_promised_something_is_evaluated_after_it(scene: Scene) -> None:
    """Before, nobody knew when the first would end."""
    jobs = waiting(7, 8).replace(size=np.ones(2, np.int32), deadline=np.array([T0 + 5e3, T0 + 4e3]))
    shown: Any = {"unpromised": jobs, "otherwise": "run", "edges": ((7, 8),)}
    assert [each.id for each in scene.poll(T0 + 1, **shown).changed] == [7]
    assert [each.id for each in scene.poll(T0 + 2, **shown).changed] == [8]


@pytest.mark.parametrize("word", ["run", None])
def test_without_a_promise_its_deadline_ends_no_job_whose_user_says_so(word: str | None) -> None:
    """Nobody could judge it, or its promise is over; not one that has a promise or waits for it."""
    # Nor one that passed where plug-ins only watch: the batch system treats it as without rtsched.
    scene = Scene(rejected="run")
    token = scene.submit(deadline=T0 + 3000, **WHOLE).reply.token
    site = scene.poll(T0 + 1, queued=((6, token),)).site
    marks = Marks.build(
        5,
        job=[5, 6, 7, 8, 9],
        token=[None, token, "over", UNJUDGED, None],
        otherwise=[word] * 5,
        deferred=[False] * 4 + [True],
        held=[False] * 4 + [True],
    )
    queued = Jobs.build(5, id=[5, 6, 7, 8, 9], submit=[T0] * 5)
    site = replace(site, marks=marks, snapshot=replace(site.snapshot, queued=queued))
    asked = [each.job.tolist() for each in settled_deferred(site) if isinstance(each, DropDeadline)]
    assert asked == ([[7, 8]] if word else [])


# --- a daemon ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "word", "runs"),
    [
        ("reject", "", False),
        ("reject", "rtsched:else=run", True),
        ("run", "", True),
        ("run", "rtsched:else=reject", False),
    ],
)
async def test_a_user_overrides_the_site(tmp_path: Path, site: str, word: str, runs: bool) -> None:
    """Both ways."""
    running = Running(tmp_path, DaemonSettings(rejected=site))
    try:
        await running.start()
        line = running.asked(nodes=4, hours=0.1, extra=word)
        answer = (await asyncio.to_thread(answer_of, line))[1]
    finally:
        running.close()
    assert answer[Tag.VERDICT] == (ACCEPT if runs else REJECT)
    assert answer.get(Tag.DEADLINE) == (0 if runs else None)


# --- their order ---------------------------------------------------------------------------------


def test_jobs_without_a_promise_that_may_start_wait_by_deadline() -> None:
    """Not one that is held, begins later or waits for another; last one that must end late."""
    jobs = Jobs.build(
        6,
        id=[5, 6, 7, 8, 9, 10],
        submit=[T0] * 6,
        size=[4] * 6,
        wall_time=[600.0] * 6,
        deadline=[T0 + 800, T0 + 700, T0 + 300, T0 + 650, T0 + 650, np.inf],
        begin=[-np.inf, T0, -np.inf, T0 + 60, -np.inf, -np.inf],
    )
    for order in ("deadline_in_place", "site"):
        scene = Scene(order=order)
        token = scene.submit(deadline=T0 + 650, **WHOLE).reply.token
        scene.poll(T0 + 1, queued=((4, token),), unpromised=jobs, otherwise="run", edges=((5, 9),))
        found = steered(scene.site, NO_EVENTS, scene.rules, T0 + 1).actions
        if order == "site":
            assert not found
            continue
        (action,) = found
        assert isinstance(action, ExchangePlaces)
        assert action.job.tolist() == [6, 5, 7]
        assert action.rank.tolist() == [0, 1, 2]
