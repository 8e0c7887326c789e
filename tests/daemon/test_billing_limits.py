"""Limits of billing units: promised jobs are planned within them, and get no more than is left."""

from dataclasses import replace

import numpy as np
import pytest
from scene import T0, Scene, limits_of

from rtsched.daemon.admission import AdmissionResult
from rtsched.model.jobs import Kind
from rtsched.model.limits import BillingWeights, LimitSet, UsedTime

RUN = 600.0
PHYSICS = "account physics"
OF_GPUS = BillingWeights({"gpu": {"cpu": 0.5, "gres/gpu": 4.0}})


def site(limits: LimitSet, billing: BillingWeights, *, shared: bool = True) -> Scene:
    """Return four nodes of 8 processors and, if shared, 4 GPUs, with limits of physics."""
    scene = Scene(nodes=4, capacity=[(8, 4)] * 4 if shared else ())
    cores = scene.cluster.nodes.replace(cores=np.full(4, 8, np.int32))
    every = np.ones(4, np.bool_)
    partitions = {"gpu": every, "batch": every}
    scene.cluster = replace(
        scene.cluster, nodes=cores, version=1, billing=billing, partitions=partitions
    )
    scene.limit_rules = limits_of(limits)
    scene.used_time = UsedTime(T0, {})
    scene.poll(T0)
    return scene


def submit(scene: Scene, cores: int, gpus: int, **columns: object) -> AdmissionResult:
    """Submit a job of physics for ten minutes, with hours of time."""
    asked = {"size": 1, "wall_time": RUN, "deadline": T0 + 20 * RUN, "partition": "gpu", **columns}
    demand = {"demand": (cores, gpus)} if scene.cluster.shared else {}
    return scene.submit(T0, account="physics", user="ann", **demand, **asked)


def test_jobs_wait_for_billing_units() -> None:
    """GrpTRES=billing=10: with half a unit for a core and 4 for a GPU, two jobs take 5.5 and 4.5.

    Rounded down, as Slurm does, these are 9, and a job of two cores is the last with room. One of
    a partition without weights is billed for its cores, and waits.
    """
    scene = site(LimitSet(group={"billing": 10}), OF_GPUS)
    for cores, gpus in ((3, 1), (1, 1), (2, 0)):
        assert submit(scene, cores, gpus).verdict == "admit"
    assert submit(scene, 2, 0, partition="batch").verdict == "admit"
    assert scene.starts() == [0.0, 0.0, 0.0, RUN]


@pytest.mark.parametrize(
    ("rule", "second"), [("sum", RUN), ("max", 0.0), ("max-gres", RUN)], ids=str
)
def test_how_units_are_combined(rule: str, second: float) -> None:
    """Two jobs of 8 cores and a GPU: 4 units for the cores and 4 for the GPU, or the greater."""
    billing = replace(OF_GPUS, rule=rule)
    scene = site(LimitSet(group={"billing": 8}), billing)
    assert [submit(scene, 8, 1).verdict for _ in range(2)] == ["admit", "admit"]
    assert scene.starts() == [0.0, second]


@pytest.mark.parametrize("shared", [True, False])
def test_no_more_is_promised_than_is_left_of_the_budget(*, shared: bool) -> None:
    """GrpTRESMins=billing=100, of which 15 are used: two jobs of 40 have room, and a third has not.

    Each takes 8 processors for ten minutes, half a unit each.
    """
    minutes = {"GrpTRESMins": {"billing": 100 * 60}}
    billing = BillingWeights({"gpu": {"cpu": 0.5}})
    scene = site(LimitSet(seconds=minutes), billing, shared=shared)
    scene.used_time = UsedTime(T0, {(PHYSICS, "billing"): 15.0 * 60})
    scene.poll(T0)
    assert [submit(scene, 8, 0).verdict for _ in range(2)] == ["admit", "admit"]
    third = submit(scene, 8, 0)
    assert (third.verdict, third.codes) == ("reject", ("submit.used-up",))
    assert third.reply.text == (
        "rtsched: the job may use 40 billing-minutes, and 5 are left of GrpTRESMins=billing=100 of "
        "account physics, beside what running and promised jobs may use; use a shorter --time, or "
        "another account or QOS"
    )
    assert submit(scene, 8, 0, wall_time=60.0).verdict == "admit"  # 4 of the 5


def test_all_tasks_of_an_array_use_up_the_budget() -> None:
    """Six tasks of a GPU for ten minutes are 240 billing-minutes, and 230 are left."""
    minutes = {"GrpTRESMins": {"billing": 230 * 60}}
    scene = site(LimitSet(seconds=minutes), BillingWeights({"gpu": {"gres/gpu": 4.0}}))
    array = {"kind": int(Kind.ARRAY), "tasks_per_node": 1, "size_min": 1, "size_max": 2}
    assert submit(scene, 1, 1, tasks=6, **array).codes == ("submit.used-up",)
    assert submit(scene, 1, 1, tasks=5, **array).verdict == "admit"


@pytest.mark.parametrize(("most", "second"), [(80, 0.0), (79, RUN)])
def test_time_that_running_jobs_may_use_is_counted_in_units(most: int, second: float) -> None:
    """Of GrpTRESRunMins a GPU for ten minutes takes 40; with a core beside it is rounded down."""
    minutes = {"GrpTRESRunMins": {"billing": most * 60}}
    scene = site(LimitSet(seconds=minutes), OF_GPUS)
    assert [submit(scene, *asked).verdict for asked in ((0, 1), (1, 1))] == ["admit", "admit"]
    assert scene.starts() == [0.0, second]


def test_on_whole_nodes_units_of_processors_and_nodes_are_known() -> None:
    """GrpTRES=billing=9: a node is 5 units, so the second job is rejected while the first runs."""
    # Where memory has a weight nobody knows what jobs on whole nodes are billed for.
    billing = BillingWeights({"gpu": {"cpu": 0.5, "node": 1.0}})
    scene = site(LimitSet(group={"billing": 9}), billing, shared=False)
    assert [submit(scene, 8, 0).verdict for _ in range(2)] == ["admit", "reject"]
    unknown = BillingWeights({"gpu": {"cpu": 0.5, "mem": 1e-9}})
    scene = site(LimitSet(group={"billing": 9}), unknown, shared=False)
    assert [submit(scene, 8, 0).verdict for _ in range(3)] == ["admit"] * 3
