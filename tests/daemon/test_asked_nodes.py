"""Promises to jobs that name nodes, exclude nodes or want several features, poll by poll."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import T0, Scene

from rtsched.core.plan_check import plan_fault
from rtsched.daemon.admission import AdmissionResult
from rtsched.daemon.promises import Promise, StoredState, encode_jobs
from rtsched.daemon.recovery import recovered
from rtsched.daemon.waiting import waits
from rtsched.logs.node_requests import NodeSets
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.resources import allowed_nodes
from rtsched_plugins.mcdf import Mcdf

RUN = 600.0
FEATURES = ("a,b", "a", "b", "a,b")
BOTH, EITHER = "--constraint=a&b --partition=all", "--constraint=a|b --partition=all"


def machine(*features: str, capacity: tuple[tuple[int, int], ...] = ()) -> Cluster:
    """Return nodes with these features; partition `all` has them all, `left` the first half."""
    names = [f"n{k}" for k in range(len(features))]
    columns: dict[str, object] = {"name": names, "features": list(features)}
    if capacity:
        columns |= {"names": {"capacity": ("cpu", "gres/gpu")}, "capacity": np.array(capacity)}
    nodes = Nodes.build(len(features), **columns)
    every = np.ones(len(features), np.bool_)
    partitions = {"all": every, "left": np.arange(len(features)) < len(features) // 2}
    return Cluster(nodes, partitions, node_sets=NodeSets(nodes, partitions))


def scene_of(*features: str, planner: str = "mcdf", plugin: object = None) -> Scene:
    """Return a site of nodes with these features."""
    scene = Scene(len(features), planner, plugin)
    scene.cluster = machine(*features)
    scene.poll(T0)
    return scene


def ask(
    scene: Scene, request: str | None, size: int = 1, left: float = 20 * RUN
) -> AdmissionResult:
    """Submit a job of 600 s with a request for nodes, by a deadline in `left` seconds."""
    now = scene.site.snapshot.now
    columns = {"size": size, "wall_time": RUN, "deadline": now + left, "partition": "all"}
    return scene.submit(now, node_request=request, **columns)


@pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])
def test_plans_keep_to_what_jobs_ask_for(planner: str) -> None:
    """Two nodes have both features; a job that excludes n0 to n2 waits for the other one."""
    scene = scene_of(*FEATURES, planner=planner)
    both = ask(scene, BOTH, size=2)
    one = ask(scene, "--constraint=a|b --exclude=n[0-1] --partition=all")
    named = ask(scene, "--nodelist=n1 --partition=all")
    assert [each.verdict for each in (both, one, named)] == ["admit"] * 3
    jobs = ((7, both.reply.token), (8, one.reply.token), (9, named.reply.token))
    for seconds in range(1, 4):
        scene.poll(T0 + seconds, queued=jobs)
        assert scene.planned() == {7: (0.0, [0, 3]), 8: (0.0, [2]), 9: (0.0, [1])}
    last = ask(scene, "--exclude=n[0-2] --partition=all")
    assert last.verdict == "admit"
    scene.poll(T0 + 5, queued=(*jobs, (10, last.reply.token)))
    start, nodes = scene.planned()[10]
    assert (nodes, start) == ([3], RUN)


def test_an_offer_is_made_and_taken() -> None:
    """Both nodes are busy for ten minutes; the deadline that is offered is accepted then."""
    scene = scene_of(*FEATURES)
    assert ask(scene, BOTH, size=2).verdict == "admit"
    refused = ask(scene, BOTH, left=RUN + 60)
    assert (refused.verdict, refused.offer) == ("reject", T0 + 2 * RUN + 20)  # a whole minute
    taken = ask(scene, BOTH, left=2 * RUN + 20)
    assert (taken.verdict, taken.codes) == ("admit", ("submit.offer",))
    assert ask(scene, BOTH, left=RUN + 60).offer == T0 + 2 * RUN + 20
    other = ask(scene, "--nodelist=n3 --partition=all", left=2 * RUN + 20)
    assert (other.verdict, other.codes) == ("admit", ())


def test_features_that_change_move_the_plan() -> None:
    """What is planned on a node that has them no more is planned elsewhere, or breaks."""
    scene = scene_of(*FEATURES)
    token = ask(scene, "--constraint=a&b --exclude=n0 --partition=all").reply.token
    assert list(scene.planned().values()) == [(0.0, [3])]
    scene.cluster = machine("a,b", "a,b", "b", "b")
    settled = scene.poll(T0 + 2, queued=((7, token),))
    assert scene.planned() == {7: (2.0, [1])}
    assert [record.state for record in settled.changed] == ["firm"]
    scene.cluster = machine("a,b", "a", "b", "b")
    settled = scene.poll(T0 + 4, queued=((7, token),))
    (broken,) = settled.changed
    assert (broken.state, broken.why) == ("broken", "no plan meets it after changes on the cluster")


def test_nodes_that_are_gone_break_the_promise() -> None:
    """A job that names one has no node to run on."""
    scene = scene_of(*FEATURES)
    token = ask(scene, "--nodelist=n3 --partition=all").reply.token
    scene.poll(T0 + 1, queued=((7, token),))
    scene.cluster = machine(*FEATURES[:3])
    settled = scene.poll(T0 + 2, queued=((7, token),))
    assert [record.state for record in settled.changed] == ["broken"]


def test_another_request_is_another_job() -> None:
    """An admin who changes it takes the promise away."""
    scene = scene_of(*FEATURES)
    token = ask(scene, BOTH).reply.token
    scene.poll(T0 + 1, queued=((7, token),))
    settled = scene.poll(T0 + 2, queued=((7, token),), changed={"node_request": EITHER})
    (void,) = settled.changed
    assert (void.state, void.why) == ("void", "it requests other nodes than were promised")


def test_who_waits_for_its_nodes_is_told_how_many_are_free() -> None:
    """Nodes that it may not use do not count."""
    scene = scene_of(*FEATURES)
    request = {"node_request": [BOTH], "partition": ["all"]}
    job = Jobs.build(1, id=[7], size=[3], submit=[T0], wall_time=[RUN], **request)
    scene.site = replace(scene.site, snapshot=replace(scene.site.snapshot, queued=job))
    first = waits(scene.site, None, 7, T0)[0]
    assert first.text == "it needs 3 nodes, 2 free"


def test_what_nodes_ask_for_is_insured_as_their_partition() -> None:
    """One of the two nodes with both features may be lost: a job of two is not admitted."""
    plugin = Mcdf(Mcdf.Config(spare_nodes={"all": 1}))
    scene = scene_of(*FEATURES, plugin=plugin)
    assert ask(scene, BOTH, size=2).verdict == "reject"
    assert ask(scene, BOTH, size=1).verdict == "admit"
    assert ask(scene, "--nodelist=n2 --partition=all").verdict == "reject"


def test_records_of_earlier_releases_ask_for_a_feature() -> None:
    """They called the nodes of a partition that have it a partition."""
    jobs = Jobs.build(1, partition=["all@a"], submit=[T0])
    record = Promise("t", 7, 1, "ann", T0 + 1, T0, "firm", T0, "", encode_jobs(jobs))
    site = recovered(StoredState((record,), None, 0, {}))
    assert site.requested.texts("partition") == ["all"]
    assert site.requested.texts("node_request") == ["--constraint=a --partition=all"]


REQUESTS = (
    None,
    BOTH,
    EITHER,
    "--constraint=a --partition=left",
    "--nodelist=n[1-2] --partition=all",
    "--exclude=n0 --partition=all",
)


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(REQUESTS), st.integers(1, 2), st.integers(1, 8)),
        min_size=1,
        max_size=8,
    ),
    down=st.integers(-1, 3),
    planner=st.sampled_from(["mcdf", "edf", "spare"]),
)
def test_no_plan_leaves_the_nodes_that_its_jobs_ask_for(
    jobs: list[tuple[str | None, int, int]], down: int, planner: str
) -> None:
    """Whatever is submitted, admitted, lost: each planned node is of those, and one job's."""
    scene = scene_of(*FEATURES, planner=planner)
    promised: tuple[tuple[int, str], ...] = ()
    for number, (request, size, slack) in enumerate(jobs):
        before = scene.site.snapshot
        judged = ask(scene, request, size, slack * RUN + 1)
        if judged.verdict == "admit":
            promised += ((10 + number, judged.reply.token),)
        nothing = Jobs.build(0)
        checked = replace(scene.site.snapshot, plan=before.plan)
        assert plan_fault(scene.site.snapshot.plan, nothing, checked, np.empty(0)) is None
    scene.poll(T0 + 1, queued=promised)
    lost = (down,) if down >= 0 else ()
    scene.poll(T0 + 2, queued=promised, down=lost)
    plan, site = scene.site.snapshot.plan, scene.site
    codes, masks = allowed_nodes(site.snapshot.planned, site.snapshot.cluster)
    for row, code in enumerate(codes.tolist()):
        nodes = plan.nodes_of(row)
        assert code < 0 or masks[code][nodes].all()
        assert not np.isin(nodes, lost).any()
    busy = [(n, plan.entries.start[r]) for r in range(len(plan)) for n in plan.nodes_of(r).tolist()]
    ends = {
        (n, plan.entries.start[r]): plan.entries.end[r]
        for r in range(len(plan))
        for n in plan.nodes_of(r).tolist()
    }
    for node, start in busy:
        others = [at for other, at in busy if other == node and at > start]
        assert not others or min(others) >= ends[node, start] - 1e-6
    assert len(busy) == len(set(busy))
