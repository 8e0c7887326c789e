"""A planner that answered before gives the answers of one that did not."""

import numpy as np
import pytest
from scene import ANN, T0, WORDS, Scene

from rtsched.core.chain import Chain, Member
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.chains import Chains
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.planning import PreparedPlan

PARTITIONS = {"left": (0, 1, 2), "right": (3, 4, 5), "all": (0, 1, 2, 3, 4, 5)}


@pytest.mark.parametrize("order", ["cost-derivative", "deadline"])
@pytest.mark.parametrize("partitions", [("all",), ("left", "right"), ("left", "all")])
def test_what_is_prepared_grows_with_the_promises(
    monkeypatch: pytest.MonkeyPatch, order: str, partitions: tuple[str, ...]
) -> None:
    """Plan, verdict and offer are the same, whoever else was promised something just before."""
    kept, after = [], PreparedPlan.after

    def counted(prepared: PreparedPlan, snapshot: object) -> PreparedPlan | None:
        kept.append(after(prepared, snapshot))
        return kept[-1]

    monkeypatch.setattr(PreparedPlan, "after", counted)
    scene = Scene(nodes=6, plugin=Mcdf(Mcdf.Config(order=order)))
    random, now = np.random.default_rng(7), T0
    scene.poll(now, partitions=PARTITIONS, running=((9, "", T0, T0 + 300.0, (0, 4)),))
    shown: tuple[tuple[int, str], ...] = ()
    for number in range(60):
        now += float(random.integers(0, 20))
        plugin = Mcdf(Mcdf.Config(order=order))
        fresh = AdmissionController(
            Chains(Chain([Member("mcdf", plugin)], "mcdf"), ()), scene.settings, WORDS
        )
        before, wall = scene.site, float(random.integers(1, 9)) * 100.0
        asked = {
            "size": int(random.integers(1, 4)),
            "wall_time": wall,
            "deadline": now + wall * float(random.uniform(1.0, 9.0)),
            "partition": partitions[number % len(partitions)],
        }
        again = scene.submit(now, uid=ANN + number, by=fresh, **asked)
        scene.site = before
        one = scene.submit(now, uid=ANN + number, **asked)
        assert (one.verdict, one.codes, one.offer) == (again.verdict, again.codes, again.offer)
        plan, other = one.site.snapshot.plan, again.site.snapshot.plan
        assert plan.entries.equals(other.entries)
        assert plan.nodes.tolist() == other.nodes.tolist()
        if one.verdict == "admit":
            shown += ((10 + number, one.reply.token),)
        if number % 20 == 19:
            now += 1.0
            scene.poll(now, queued=shown, partitions=PARTITIONS)
    overlap = partitions == ("left", "all")  # there is one plan for all nodes then
    assert any(kept) or overlap
