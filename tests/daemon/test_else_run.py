"""Jobs that run without the promise that they asked for, where their users or the site say so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from running import Running, answer_of
from scene import T0, Scene

from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.daemon.settings import DaemonSettings
from rtsched.model.actions import Cancel, DropDeadline, Release, Tell
from rtsched.model.jobs import Jobs

if TYPE_CHECKING:
    from pathlib import Path

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
    assert offer.id in scene.site.records


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
    assert 7 not in scene.site.unpromised


def test_its_user_is_told() -> None:
    """In the job's comment, as its submission was answered long ago."""
    scene = Scene()
    jobs = Jobs.build(1, id=[7], submit=[T0], size=[4], wall_time=[600.0], deadline=[T0 + 300])
    actions = scene.poll(T0 + 1, deferred=jobs, otherwise="run").actions
    (text,) = [text for each in actions if isinstance(each, Tell) for text in each.text]
    assert UNPROMISED in text


def test_who_waits_for_a_job_without_a_promise_is_not_cancelled_with_it() -> None:
    """It is no rejected job."""
    scene = Scene()
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


@pytest.mark.parametrize(
    ("site", "word", "runs"),
    [
        ("reject", "", False),
        ("reject", "rtsched:else=run", True),
        ("run", "", True),
        ("run", "rtsched:else=reject", False),
    ],
)
def test_a_user_overrides_the_site(tmp_path: Path, site: str, word: str, runs: bool) -> None:
    """Both ways."""
    running = Running(tmp_path, DaemonSettings(rejected=site))

    async def course() -> dict[int, int | str]:
        await running.start()
        line = running.asked(nodes=4, hours=0.1, extra=word)
        return (await asyncio.to_thread(answer_of, line))[1]

    try:
        answer = asyncio.run(course())
    finally:
        running.close()
    assert answer[Tag.VERDICT] == (ACCEPT if runs else REJECT)
    assert answer.get(Tag.DEADLINE) == (0 if runs else None)
