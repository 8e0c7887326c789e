"""Jobs that may have a shorter time limit than asked for (`--time-min`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scene import ANN, T0, Scene

from rtsched.adapters.live import Submission
from rtsched.model.jobs import Edges, Jobs

if TYPE_CHECKING:
    from rtsched.daemon.admission import AdmissionResult

MARGIN = 20.0
HOUR = 3600.0


def ask(scene: Scene, hours: float, least: float, left: float) -> AdmissionResult:
    """Submit a job of one node with a limit of so many hours, at least `least`, by a deadline."""
    columns = {"wall_time": [hours * HOUR + MARGIN], "deadline": [T0 + left * HOUR]}
    row = Jobs.build(1, size=[1], label=["the job"], submit=[T0], **columns)
    job = Submission(row, Edges.build(0), ANN, limits=(least * HOUR, hours * HOUR))
    judged = scene.admission.judge(scene.site, job, T0)
    scene.site = judged.site
    return judged


def limit_of(judged: AdmissionResult) -> float:
    """Return the time limit that was planned, hours."""
    return round((judged.reply.end - judged.reply.start - MARGIN) / HOUR, 3)


@pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])
def test_the_longest_limit_that_fits(planner: str) -> None:
    """All of it where there is room, else to the minute what the deadline leaves."""
    whole = ask(Scene(1, planner), 6, 1, 7)
    assert (whole.verdict, limit_of(whole)) == ("admit", 6.0)
    assert "time limit" not in whole.reply.text
    cut = ask(Scene(1, planner), 6, 1, 2)
    assert (cut.verdict, limit_of(cut)) == ("admit", round(119 / 60, 3))
    assert cut.reply.text.endswith("; time limit set to 1 h 59 min (--time-min)")
    assert cut.reply.end <= T0 + 2 * HOUR


def test_behind_others() -> None:
    """A search finds at least nearly the longest that fits behind what is promised already."""
    scene = Scene(1)
    scene.submit(T0, size=1, wall_time=HOUR, deadline=T0 + HOUR + 1)
    found = ask(scene, 6, 0.5, 3)
    assert found.verdict == "admit"
    assert 1.5 <= limit_of(found) < 2.0
    (record,) = found.changed
    assert record.deadline == T0 + 3 * HOUR


def test_not_even_the_shortest() -> None:
    """Then it is rejected, and the offer is for the shortest limit."""
    scene = Scene(1)
    scene.submit(T0, size=1, wall_time=2 * HOUR, deadline=T0 + 2 * HOUR + 1)
    found = ask(scene, 6, 1.5, 3)
    assert (found.verdict, found.reply.token) == ("reject", "")
    assert T0 + 3.5 * HOUR <= found.offer <= T0 + 3.6 * HOUR


def test_what_has_one_limit() -> None:
    """Where the shortest is no shorter, or nothing can be promised, the job is judged once."""
    scene = Scene(1)
    assert ask(scene, 6, 6, 2).verdict == "reject"
    row = Jobs.build(1, size=np.array([1]), wall_time=[HOUR], deadline=[T0 + HOUR])
    job = Submission(row, Edges.build(0), ANN, problem="no", limits=(60.0, HOUR))
    assert scene.admission.judge(scene.site, job, T0).reply.text.endswith("no")
    free = replace(job, jobs=row.replace(deadline=np.array([np.inf])), problem="")
    assert not scene.admission.judge(scene.site, free, T0).reply.token
