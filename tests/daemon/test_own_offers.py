"""What is held for a user gives way to the next job of this user, where it is in the way."""

from itertools import pairwise

import pytest
from scene import ANN, BOB, T0, Scene

from rtsched.daemon.offers import GAVE_WAY
from rtsched.model.jobs import Kind
from rtsched_plugins.portfolio import Portfolio

WIDE = {
    "kind": Kind.MOLDABLE,
    "size": 1,
    "size_min": 1,
    "size_max": 4,
    "wall_time": 400.0,
    "deadline": T0 + 1000.0,
}
"""It may have any number of nodes; the planner gives it all that are free."""


@pytest.fixture
def offered() -> Scene:
    """Give four nodes, two of which are held for ann's job until 100 s from now."""
    scene = Scene(planner="portfolio", plugin=Portfolio(Portfolio.Config()))
    judged = scene.submit(size=2, wall_time=100.0, deadline=T0 + 50.0)
    assert (judged.verdict, states(scene)) == ("reject", ["offered"])
    return scene


def states(scene: Scene) -> list[str]:
    """Return how the promises and offers stand."""
    return [record.state for record in scene.site.promises.values()]


def nodes(scene: Scene) -> list[int]:
    """Return the number of nodes of each planned job."""
    return scene.site.snapshot.plan.entries.size.tolist()


def test_a_moldable_job_has_the_nodes_that_it_would_have_without(offered: Scene) -> None:
    """The offer lapses in the same step, and does not count as unused."""
    judged = offered.submit(**WIDE)
    assert (judged.verdict, judged.reply.size) == ("admit", 4)
    assert nodes(offered) == [4]
    assert states(offered) == ["provisional"]
    (gone,) = [record for record in judged.changed if record.state == "lapsed"]
    assert gone.why == GAVE_WAY
    assert offered.site.unused_by(ANN, T0, "offered") == []


def test_it_stays_where_it_is_not_in_the_way(offered: Scene) -> None:
    """Of a rigid job, of one that has the nodes that it wants, and of one without a deadline."""
    offered.submit(**{**WIDE, "size_max": 2})
    assert states(offered) == ["offered", "provisional"]
    assert nodes(offered) == [2, 2]
    judged = offered.submit(size=4, wall_time=100.0, deadline=T0 + 9000.0)
    assert judged.verdict == "admit"
    offered.submit(size=4, wall_time=100.0)
    assert states(offered) == ["offered", "provisional", "provisional"]


def test_a_job_that_would_be_rejected_takes_its_place(offered: Scene) -> None:
    """All nodes until its deadline, which would else be rejected; it is another user's, too."""
    job = {"size": 4, "wall_time": 150.0, "deadline": T0 + 160.0}
    before = offered.site
    assert offered.submit(uid=BOB, **job).verdict == "admit"
    offered.site = before
    judged = offered.submit(**job)
    assert (judged.verdict, states(offered)) == ("admit", ["provisional"])
    assert [record.why for record in judged.changed if record.state == "lapsed"] == [GAVE_WAY]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_so_many_offers_are_held_beside_one_another(most: int) -> None:
    """A new one replaces the oldest; each keeps the nodes that it was made for."""
    scene = Scene(offers_per_user=most)
    made: list[int] = []
    for second in range(3):
        job = {"size": 4, "wall_time": 100.0, "deadline": T0 + 50.0}
        judged = scene.submit(now=T0 + second, **job)
        (record,) = [record for record in judged.changed if record.state == "offered"]
        made.append(record.id)
    assert list(scene.site.promises) == made[-most:]
    starts = sorted(scene.site.snapshot.plan.entries.start.tolist())
    assert len(starts) == most
    assert all(after - before >= 100.0 for before, after in pairwise(starts))
