"""Promises to jobs whose Requirements only some slots meet, poll by poll."""

from dataclasses import replace

import numpy as np
import pytest
from scene import T0, Scene

from rtsched.adapters.condor.matching import MachineAds, SlotRequest, SlotSets
from rtsched.model.cluster import Cluster

pytest.importorskip("classad2")

RUN, PART, FAST = 600.0, "/1/512", "fast/1/512"
NAMES = ("slot1@a", "slot1@b", "slot1@c")


def pool(*matlab: int) -> Cluster:
    """Return three slots in two parts; those named have Matlab."""
    ads = MachineAds.of({name: {"hasmatlab": at in matlab} for at, name in enumerate(NAMES)})
    parts = {PART: np.ones(3, np.bool_), "/2/512": np.array([False, False, True])}
    sets = SlotSets(ads, NAMES, [()] * 3, parts, np.zeros(3, np.int64))
    return replace(Scene(3).cluster, partitions=parts, node_sets=sets)


def scene_of(*matlab: int, planner: str = "mcdf") -> Scene:
    """Return a site with these slots."""
    scene = Scene(3, planner)
    scene.cluster = pool(*matlab)
    scene.poll(T0)
    return scene


def ask(scene: Scene, requirements: str, left: float = 20 * RUN, part: str = PART) -> str:
    """Submit a job of 600 s that must be promised something; return its token."""
    words = SlotRequest(requirements, part=part).words or None
    columns = {"size": 1, "wall_time": RUN, "deadline": T0 + left, "partition": part}
    judged = scene.submit(scene.site.snapshot.now, node_request=words, **columns)
    assert judged.verdict == "admit"
    return str(judged.reply.token)


@pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])
def test_jobs_wait_for_slots_that_match(planner: str) -> None:
    """The second starts when the first has ended, though other slots are free."""
    scene = scene_of(1, planner=planner)
    jobs = tuple((7 + at, ask(scene, "HasMatlab")) for at in range(2))
    plain = (9, ask(scene, "HasMatlab =!= true"))
    scene.poll(T0 + 1, queued=(*jobs, plain))
    found = scene.planned()
    assert [found[job] for job in (7, 8)] == [(0.0, [1]), (RUN, [1])]
    assert found[9][0] == 0.0
    assert found[9][1] != [1]


def test_slots_that_change_move_the_plan() -> None:
    """What no longer matches anywhere breaks; what matches elsewhere is planned there."""
    scene = scene_of(1)
    token = ask(scene, "HasMatlab")
    scene.cluster = replace(pool(2), version=scene.cluster.version + 1)
    settled = scene.poll(T0 + 2, queued=((7, token),))
    assert [record.state for record in settled.changed] == ["firm"]
    assert scene.planned()[7][1] == [2]
    scene.cluster = replace(pool(), version=scene.cluster.version + 1)
    settled = scene.poll(T0 + 4, queued=((7, token),))
    assert [record.state for record in settled.changed] == ["broken"]


@pytest.mark.parametrize(
    ("asked", "part", "seen", "why"),
    [
        ("HasMatlab", FAST, SlotRequest("HasMatlab"), None),
        ("HasMatlab", FAST, SlotRequest("HasMatlab", part=PART), "it was moved to another"),
        ("HasMatlab", PART, SlotRequest("HasMatlab", part=PART), None),
        ("HasMatlab", PART, SlotRequest("HasMatlab", part="/2/512"), None),
        (
            "HasMatlab",
            PART,
            SlotRequest("true", part=PART),
            "it requests other nodes than were promised",
        ),
        ("HasMatlab", PART, SlotRequest("HasMatlab", part="x/1/512"), "it was moved to another"),
        (
            "HasMatlab",
            PART,
            SlotRequest("HasMatlab", "Capability > 8", PART),
            "it requests other nodes",
        ),
        ("", PART, SlotRequest("HasMatlab", part=PART), None),
    ],
)
def test_other_requirements_are_another_job(
    asked: str, part: str, seen: SlotRequest, why: str | None
) -> None:
    """Not where its part follows from other slots or is gone, nor where nobody told of them."""
    scene = scene_of(1, 2)
    token = ask(scene, asked, part=part)
    settled = scene.poll(
        T0 + 1, queued=((7, token),), changed={"node_request": seen.words, "partition": seen.part}
    )
    state = {record.state: record.why for record in settled.changed}
    assert [*state] == (["void"] if why else ["firm"])
    assert not why or state["void"].startswith(why)
    if not why and asked:
        assert settled.site.row(7).texts("node_request") == [seen.words]
        assert scene.planned()[7][1] == ([2] if seen.part == "/2/512" else [1])
