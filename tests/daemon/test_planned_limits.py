"""Limits of accounts and QOS that hold over time: promised jobs are planned within them."""

import pickle
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import T0, Scene, limits_of

from rtsched.adapters.live import CompletionStatus, Observation
from rtsched.daemon.admission import AdmissionResult
from rtsched.daemon.promises import StoredState, decode_jobs
from rtsched.daemon.qos_limits import LIMIT, limits_in, with_limits
from rtsched.daemon.recovery import recovered
from rtsched.model.actions import Notify
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.limits import LimitRules, LimitSet, Qos
from rtsched.model.schedule import Schedule
from rtsched.model.table import amounts_of
from rtsched.text import moment

RUN = 600.0
ON_A_NODE = Schedule.build([1], [T0], [T0 + RUN], np.array([0, 1]), np.array([0]))
PHYSICS = f"{LIMIT}account physics/cpu"


def rules(
    account: Mapping[str, int] | None = None,
    user: Mapping[str, int] | None = None,
    per_user: Mapping[str, int] | None = None,
) -> LimitRules:
    """Return limits of physics, of ann there, and of each user in QOS `normal`."""
    each = Qos(LimitSet(user=dict(per_user or {})))
    group, ann = LimitSet(group=dict(account or {})), LimitSet(user=dict(user or {}))
    return limits_of(group, ann, normal=each)


def site(limits: LimitRules | None, nodes: int = 2, cores: int = 8) -> Scene:
    """Return a site with these limits."""
    scene = Scene(nodes=nodes, capacity=[(cores, 0)] * nodes)
    scene.limit_rules = limits
    scene.poll(T0)
    return scene


def submit(
    scene: Scene, cores: int, account: str = "physics", user: str = "ann", **columns: object
) -> AdmissionResult:
    """Submit a job of one node for ten minutes, with hours of time."""
    asked = {"size": 1, "wall_time": RUN, "deadline": T0 + 20 * RUN, **columns}
    now = scene.site.snapshot.now
    return scene.submit(now, demand=(cores, 0), account=account, user=user, **asked)


def polled(scene: Scene, now: float, *, running: tuple[tuple[int, float], ...] = ()) -> None:
    """Poll, with all promised jobs in the queue and others, by number and end, on node 0."""
    queued = tuple(
        (record.id if record.id < 1000 else 10 + k, record.token)
        for k, record in enumerate(sorted(scene.site.promises.values(), key=lambda r: r.id))
    )
    runs = tuple((job, "", T0, end, (0,)) for job, end in running)
    scene.poll(now, queued, runs)


def test_two_jobs_of_an_account_are_planned_one_after_the_other() -> None:
    """GrpTRES=cpu=8: 5 and 4 processors are too many together, though there are 16; 3 are not."""
    scene = site(rules({"cpu": 8}))
    said = [submit(scene, cores) for cores in (5, 4, 3)]
    assert [each.verdict for each in said] == ["admit"] * 3
    assert scene.starts() == [0.0, RUN, 0.0]
    other = submit(scene, 8, account="arts")
    assert (other.verdict, scene.starts()[3]) == ("admit", 0.0)
    polled(scene, T0 + 1)
    assert scene.starts()[1] == RUN


def test_without_limits_they_run_side_by_side() -> None:
    """As the nodes let them."""
    scene = site(None)
    for cores in (5, 4, 3):
        submit(scene, cores)
    assert scene.starts() == [0.0, 0.0, 0.0]
    assert not scene.site.snapshot.cluster.licenses


def test_what_runs_counts() -> None:
    """A best-effort job of the account has 6 of its 8 processors for 300 s; one of arts counts not.

    4 more are planned when it ends by its limit, on the node that is free all the time.
    """
    scene = site(rules({"cpu": 8}))
    scene.demand |= {90: (6, 0), 91: (2, 0)}
    scene.accounts |= {90: "physics", 91: "arts"}
    polled(scene, T0, running=((90, T0 + 300), (91, T0 + 9000)))
    assert submit(scene, 4).verdict == "admit"
    assert scene.starts() == [300.0]
    assert submit(scene, 2).verdict == "admit"
    assert scene.starts() == [300.0, 0.0]


def test_names_of_resources_have_no_case() -> None:
    """Nodes have gpu:A100, which sacctmgr may show as gpu:a100."""
    names = ("cpu", "gres/gpu:A100")
    nodes = Nodes.build(1, names={"capacity": names}, capacity=np.array([[8, 8]], np.int64))
    running, requested = (
        Jobs.build(
            1,
            id=[job],
            names={"demand": names},
            demand=np.array([[1, gpus]], np.int64),
            account=["physics"],
            user=["ann"],
        )
        for job, gpus in ((1, 3), (2, 2))
    )
    limits = rules({"gres/gpu:a100": 4})
    shown = Observation(T0, Cluster(nodes), running=running, allocations=ON_A_NODE, limits=limits)
    cluster, running, requested, _ = with_limits(shown, requested)
    (limit,) = cluster.licenses
    assert cluster.licenses[limit] == 4
    assert amounts_of(running, "demand", (limit,)).tolist() == [[3]]
    assert amounts_of(requested, "demand", (limit,)).tolist() == [[2]]


def test_what_a_qos_lets_run_beyond_the_account_counts_there() -> None:
    """GrpTRES of QOS `more` is instead of the account's for its jobs; for others these count."""
    # Slurm lets a job of 4 run only when that of 6 in the QOS has left the account's 8.
    more = Qos(LimitSet(group={"cpu": 100}))
    scene = site(limits_of(LimitSet(group={"cpu": 8}), normal=Qos(), more=more))
    scene.demand |= {90: (6, 0)}
    scene.accounts |= {90: "physics"}
    scene.qos |= {90: "more"}
    polled(scene, T0, running=((90, T0 + 300),))
    assert submit(scene, 4).verdict == "admit"
    assert scene.starts() == [300.0]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (rules({"jobs": 2}), [0.0, 0.0, RUN]),
        (rules(user={"jobs": 1}), [0.0, RUN, 2 * RUN]),
        (rules(per_user={"cpu": 2}), [0.0, 0.0, RUN]),
        (rules({"cpu": 2}, per_user={"jobs": 1}), [0.0, RUN, 2 * RUN]),
        (rules({"node": 1}), [0.0, 0.0, 0.0]),  # a shared node counts once: not planned with
    ],
)
def test_each_kind_of_limit(limits: LimitRules, found: list[float]) -> None:
    """GrpJobs, MaxJobs of the association, MaxTRESPU and MaxJobsPU; three jobs of a processor."""
    scene = site(limits)
    for _ in range(3):
        assert submit(scene, 1).verdict == "admit"
    assert scene.starts() == found


def test_another_user_of_the_account_has_a_limit_of_her_own() -> None:
    """MaxTRESPU is of each user."""
    scene = site(rules(per_user={"cpu": 4}))
    for user in ("ann", "bob", "ann"):
        submit(scene, 4, user=user)
    assert scene.starts() == [0.0, 0.0, RUN]


def test_who_has_no_time_for_the_limit_is_offered_later() -> None:
    """The deadline leaves no time after the job that uses the limit up; the offer is then."""
    scene = site(rules({"cpu": 8}))
    submit(scene, 8, deadline=T0 + 1.2 * RUN)
    late = submit(scene, 4, deadline=T0 + 1.5 * RUN)
    assert (late.verdict, late.offer) == ("reject", pytest.approx(T0 + 2 * RUN, abs=60))
    assert "; without GrpTRES=cpu=8 of account physics it could be met. Feas" in late.reply.text
    again = submit(scene, 4, deadline=late.offer)
    assert (again.verdict, again.codes) == ("admit", ("submit.offer",))
    early = submit(scene, 4, deadline=T0 + 0.5 * RUN)  # no limit is in its way
    assert (early.verdict, "GrpTRES" in early.reply.text) == ("reject", False)


def test_a_limit_that_is_lowered_moves_who_is_planned() -> None:
    """From 8 to 4 processors: the jobs of 4 no longer run together, one of 8 waits for them all."""
    scene = site(rules({"cpu": 8}))
    for cores in (4, 4):
        submit(scene, cores)
    assert scene.starts() == [0.0, 0.0]
    scene.limit_rules = rules({"cpu": 4})
    polled(scene, T0 + 1)
    assert sorted(scene.starts()) == pytest.approx([1.0, RUN + 1], abs=1.5)
    scene.limit_rules = None
    polled(scene, T0 + 2)
    assert not scene.site.snapshot.cluster.licenses
    assert limits_in(scene.site.requested) == ()


def test_a_range_of_nodes_counts_with_all_of_them() -> None:
    """A moldable job of 1 or 2 nodes with 4 processors each may have 8."""
    scene = site(rules({"cpu": 8}), nodes=3)
    submit(scene, 4, kind=np.int8(1), size_min=1, size_max=2)
    submit(scene, 4)
    assert scene.site.requested.demand.tolist() == [[4, 0, 8], [4, 0, 4]]
    assert scene.starts()[1] > 0


def test_limits_that_cannot_matter_are_not_planned_with() -> None:
    """Jobs of 5, 3 and 1 processors: the third one makes the limit of 8 matter, for all three."""
    scene = site(rules({"cpu": 8}, per_user={"cpu": 99, "jobs": 9}))
    for cores in (5, 3):
        submit(scene, cores)
    assert not scene.site.snapshot.cluster.licenses
    submit(scene, 1)
    assert scene.site.snapshot.cluster.licenses == {PHYSICS: 8}
    for jobs in (scene.site.requested, scene.site.snapshot.queued):
        assert jobs.names("demand")[2:] == (PHYSICS,)
        assert sorted(jobs.demand[:, 2].tolist()) == [1, 3, 5]
    polled(scene, T0 + 1)
    assert scene.site.snapshot.cluster.licenses == {PHYSICS: 8}
    assert max(scene.starts()) >= RUN


def test_rules_that_another_process_sends_again_are_the_same() -> None:
    """Unchanged ones are one object, however often they come."""
    first, second = (pickle.loads(pickle.dumps(rules({"cpu": 8}))) for _ in range(2))  # noqa: S301
    other = pickle.loads(pickle.dumps(rules({"cpu": 9})))  # noqa: S301
    assert first is second
    assert other is not first


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 4), st.sampled_from(["physics", "arts"])),
        min_size=1,
        max_size=10,
    ),
    st.integers(8, 12),
    st.integers(0, 6),
)
def test_no_plan_is_ever_beyond_a_limit(
    jobs: list[tuple[int, int, str]], most: int, held: int
) -> None:
    """At each start, the account's jobs that are planned or run have no more than it may have."""
    scene = site(rules({"cpu": most}), nodes=4)
    scene.demand[90], scene.accounts[90] = (held, 0), "physics"
    polled(scene, T0, running=((90, T0 + 1000),))
    for cores, hundreds, account in jobs:
        wall = 100.0 * hundreds
        submit(scene, cores, account, wall_time=wall, deadline=T0 + 2000.0 + wall)
    for now in (T0, T0 + 1):
        polled(scene, now, running=((90, T0 + 1000),))
        plan, queued = scene.site.snapshot.plan, scene.site.snapshot.queued
        rows = [queued.id.tolist().index(job) for job in plan.entries.job.tolist()]
        mine = [queued.texts("account")[row] == "physics" for row in rows]
        cores_of = [int(queued.demand[row, 0]) for row in rows]
        for at in plan.entries.start.tolist():
            used = held if at + 1e-3 < T0 + 1000 else 0
            for k, cores in enumerate(cores_of):
                runs = plan.entries.start[k] <= at + 1e-3 and plan.entries.end[k] > at + 2e-3
                used += cores if mine[k] and runs else 0
            assert used <= most


def whole(limits: LimitRules | None) -> Scene:
    """Return a site of four nodes of 4 cores, which jobs have to themselves."""
    scene = Scene(nodes=4)
    nodes = scene.cluster.nodes.replace(cores=np.full(4, 4, np.int32))
    scene.cluster = replace(scene.cluster, nodes=nodes, version=1)
    scene.limit_rules = limits
    scene.poll(T0)
    return scene


def asked(scene: Scene, now: float, size: int = 1, account: str = "physics") -> AdmissionResult:
    """Submit a job of ten minutes on whole nodes."""
    names = {"account": account, "user": "ann"}
    return scene.submit(now, size=size, wall_time=RUN, deadline=T0 + 20 * RUN, **names)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (rules({"cpu": 8}), "GrpTRES=cpu=8 of account physics"),
        (rules({"node": 2}), "GrpTRES=node=2 of account physics"),
        (rules(user={"jobs": 2}), "MaxJobs=2 of user ann of account physics"),
        (rules(per_user={"jobs": 2}), "MaxJobsPU=2 of QOS normal"),
    ],
)
def test_on_whole_nodes_no_promise_is_given_beyond_a_limit(limits: LimitRules, name: str) -> None:
    """The third job of the account would start while two others run: it is told when there is room.

    Submitted then, it is promised its deadline. A job of another account has room all the time.
    """
    scene = whole(limits)
    assert [asked(scene, T0).verdict for _ in range(2)] == ["admit", "admit"]
    third = asked(scene, T0 + 1)
    assert (third.verdict, third.codes, third.changed) == ("reject", ("submit.limit",), ())
    assert f"leave no room for it in {name}; submit it again from " in third.reply.text
    assert moment(T0 + 1 + RUN, T0 + 1) in third.reply.text
    other = asked(scene, T0 + 1, account="arts")
    assert (other.verdict == "admit") is ("physics" in name)
    tokens = [r.token for r in scene.site.promises.values()]
    ends = tuple((10 + k, token) for k, token in enumerate(tokens))
    runs = tuple((job, token, T0, T0 + RUN, (k,)) for k, (job, token) in enumerate(ends))
    scene.poll(T0 + 2, running=runs)
    over = tuple((job, T0 + 300, CompletionStatus.COMPLETED) for job, _ in ends)
    scene.poll(T0 + 301, completions=over)
    assert asked(scene, T0 + 302).verdict == "admit"


def test_on_whole_nodes_without_limits() -> None:
    """There is room for four jobs of a node."""
    scene = whole(None)
    assert [asked(scene, T0).verdict for _ in range(4)] == ["admit"] * 4


def kept_waiting(scene: Scene, ends: tuple[float, ...]) -> list[tuple[int, str]]:
    """Submit a job of two nodes, which waits for a limit beside jobs that run until these times.

    They run on, whatever their ends. Return what is written down of its promise, and when.
    """
    queued = ((7, asked(scene, T0, size=2).reply.token),)
    scene.accounts |= {90 + k: "physics" for k in range(len(ends))}
    waits = {7: "AssocGrpCpuLimit"}
    found = []
    for second in range(1, 400, 3):
        runs = tuple((90 + k, "", T0, T0 + end, (3 - k,)) for k, end in enumerate(ends))
        settled = scene.poll(T0 + second, queued, runs, limits=waits)
        found += [(second, record.state) for record in settled.changed]
    return found


def test_who_misses_starts_for_a_limit_is_moved_once() -> None:
    """Job 90 of the account has 4 of its 8 processors, for 200 s by its limit."""
    # Job 7, of 8, is planned for then after two missed starts; and when 90 should have ended long
    # ago, and it has missed two more, its promise breaks.
    scene = whole(rules({"cpu": 8}))
    assert kept_waiting(scene, (200.0,)) == [(1, "firm"), (43, "firm"), (244, "broken")]
    assert not scene.site.promises


def test_a_moved_job_is_told_and_stays_where_it_is() -> None:
    """Its record says from when it is planned, so a daemon that is started anew knows it too."""
    scene = whole(rules({"cpu": 8}))
    queued = ((7, asked(scene, T0, size=2).reply.token),)
    scene.accounts[90] = "physics"
    told, start = [], []
    for second in range(1, 190, 3):
        runs = ((90, "", T0, T0 + 200, (3,)),)
        settled = scene.poll(T0 + second, queued, runs, limits={7: "AssocGrpCpuLimit"})
        told += [one.text[0] for one in settled.actions if isinstance(one, Notify)]
        start += scene.starts()
    (text,) = told
    assert text.startswith(
        "rtsched: the job did not start at 2 planned starts, since it waits for a limit of its "
        "account, QOS or partition (AssocGrpCpuLimit); it is now planned to start at "
        f"{moment(T0 + 200, T0 + 43)}, still promised"
    )
    assert (start[0], start[-1]) == (0.0, 200.0)
    assert start[14:] == [200.0] * len(start[14:])
    (record,) = scene.site.promises.values()
    assert record.why.startswith("the job did not start at 2 planned starts")
    assert decode_jobs(record.job).begin.tolist() == [T0 + 200]
    asked(scene, T0 + 190, account="arts")  # whoever comes does not bring it forward
    scene.poll(T0 + 191, queued, limits={7: "AssocGrpCpuLimit"})
    assert scene.starts()[0] == 200.0


@pytest.mark.parametrize("kept", [True, False])
def test_a_daemon_that_starts_anew_knows_who_was_moved(*, kept: bool) -> None:
    """It moves the job no second time: two more missed starts break its promise."""
    # It keeps the start, or finds it again where the nodes of the plan are gone.
    scene = whole(rules({"cpu": 8}))
    queued = ((7, asked(scene, T0, size=2).reply.token),)
    scene.accounts[90] = "physics"
    runs = ((90, "", T0, T0 + 200, (3,)),)
    found, waits = [], {7: "AssocGrpCpuLimit"}
    for second in range(1, 300, 3):
        if second == 100:
            old, names = scene.site, ("n0", "n1", "n2", "n3") if kept else ()
            stored = StoredState(tuple(old.promises.values()), old.snapshot.plan, 1, {}, names)
            scene.site = recovered(stored)
        settled = scene.poll(T0 + second, queued, runs, limits=waits)
        found += [(second, record.state) for record in settled.changed]
        if second in {100, 103}:
            assert scene.starts() == [200.0]
    assert found == [(1, "firm"), (43, "firm"), (244, "broken")]


def test_who_has_no_time_to_be_moved_loses_the_promise() -> None:
    """The job that uses the limit up may run for longer than its deadline leaves time."""
    scene = whole(rules({"cpu": 8}))
    assert kept_waiting(scene, (20 * RUN,)) == [(1, "firm"), (43, "broken")]


def test_on_shared_nodes_who_misses_starts_is_moved() -> None:
    """A limit of what nodes do not have is not planned with: it has room when job 90 has ended."""
    scene = site(rules({"billing": 8}))
    scene.demand[90], scene.accounts[90] = (1, 0), "physics"
    queued = ((7, submit(scene, 4).reply.token),)
    found = []
    for second in range(1, 60, 3):
        runs = ((90, "", T0, T0 + 200, (0,)),)
        settled = scene.poll(T0 + second, queued, runs, limits={7: "AssocGrpBillingLimit"})
        found += [(second, record.state) for record in settled.changed]
    assert found == [(1, "firm"), (43, "firm")]
    assert submit(scene, 8, account="arts").verdict == "admit"
    assert scene.starts()[0] == 200.0
