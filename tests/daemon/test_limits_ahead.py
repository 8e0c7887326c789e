"""The queue simulated ahead within limits of accounts, users and QOS."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rtsched.daemon.qos_limits import LIMIT, LimitsNow, without_planned_limits
from rtsched.estimates.ahead import ahead
from rtsched.estimates.estimator import Estimator
from rtsched.estimates.settings import EstimateSettings
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.limits import Association, LimitRules, LimitSet, Qos, SiteLimits, UsedTime
from rtsched.model.log import Log, Outcomes
from rtsched.model.resources import CPU, MEMORY
from rtsched.model.snapshot import Snapshot
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.testing import make_cluster, make_jobs, make_snapshot

NOW = 100.0
DAY = 86400.0
NONE = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)


def rules(
    account: LimitSet | None = None,
    ann: LimitSet | None = None,
    qos: LimitSet | None = None,
    **others: Any,
) -> LimitRules:
    """Return limits of account physics, of ann in it, and of QOS `normal`; bob has none."""
    physics = Association("physics", parent="root", limits=account or LimitSet())
    ann_there = Association("physics", "ann", limits=ann or LimitSet())
    rows = Association("root"), physics, ann_there, Association("physics", "bob")
    return LimitRules(SiteLimits({"normal": Qos(qos or LimitSet())}, rows, **others))


def jobs(*users: str, first: int = 11, **columns: Any) -> Jobs:
    """Return jobs of physics of a node each, for at most 1,000 s."""
    n = len(users)
    given: dict[str, Any] = {"submit": np.arange(n, dtype=float), "wall_time": 1000.0, "size": 1}
    given |= {"id": np.arange(first, first + n), "user": list(users), "account": "physics"}
    return make_jobs(n, **given | columns)


def waiting(*users: str, wall_time: float = 1000.0) -> Snapshot:
    """Return eight nodes of 4 cores; ann's job has two of them from 0 to 3,600 at the latest."""
    running = jobs("ann", first=1, size=2, wall_time=3600.0, cores=8)
    cluster = make_cluster(8, cores=4)
    queued = jobs(*users, wall_time=wall_time, cores=1)
    return make_snapshot(queued, cluster, NOW, running=running, nodes=[[0, 1]])


def starts(
    snapshot: Snapshot,
    limits: LimitRules,
    *run_time: float,
    used: UsedTime | None = None,
    until: float = np.inf,
) -> list[float]:
    """Return the starts ahead, without arrivals."""
    source = pickle.loads(pickle.dumps(LimitsNow(limits, used)))  # noqa: S301 - our own
    state, _ = ahead(snapshot, Jobs.build(0), None, source)
    found = state.simulate(np.array(run_time), *NONE, ExclusiveSettings(), until)
    return list(found.tolist())


def test_a_job_waits_for_its_users_job() -> None:
    """MaxJobs=1: ann's jobs run one after the other; bob's begins at once."""
    snapshot = waiting("ann", "bob", "ann")
    limits = rules(ann=LimitSet(user={"jobs": 1}))
    assert starts(snapshot, limits, 2000.0, 500.0, 500.0, 500.0) == [2000.0, NOW, 2500.0]
    assert starts(snapshot, rules(), 2000.0, 500.0, 500.0, 500.0) == [NOW] * 3


def test_a_job_waits_for_its_accounts_job() -> None:
    """GrpTRES=cpu=12: 8 are taken, and each job takes the 4 of its node, whoever it is of."""
    snapshot, limits = waiting("bob", "bob", "ann"), rules(LimitSet(group={"cpu": 12}))
    assert starts(snapshot, limits, 2000.0, 500.0, 500.0, 500.0) == [NOW, 600.0, 1100.0]


def test_nodes_of_a_qos() -> None:
    """MaxTRESPU=node=3 of QOS `normal`, which jobs have that name none."""
    snapshot, limits = waiting("ann", "ann", "bob"), rules(qos=LimitSet(user={"node": 3}))
    assert starts(snapshot, limits, 2000.0, 500.0, 500.0, 500.0) == [NOW, 600.0, NOW]


def test_more_runs_than_a_limit_allows() -> None:
    """It was lowered: what runs goes on, and counts."""
    snapshot = waiting("ann")
    more = jobs("ann", "ann", first=1, submit=0.0, size=2, wall_time=3600.0, cores=8)
    snapshot = make_snapshot(
        snapshot.queued, snapshot.cluster, NOW, running=more, nodes=[[0, 1], [2, 3]]
    )
    limits = rules(ann=LimitSet(user={"jobs": 1}))
    assert starts(snapshot, limits, 2000.0, 3000.0, 500.0) == [3000.0]


@pytest.mark.parametrize(
    "limits",
    [
        rules(LimitSet(group={"jobs": 0})),
        rules(LimitSet(group={"cpu": 3})),
        rules(LimitSet(seconds={"GrpTRESMins": {"cpu": 0}})),
        rules(LimitSet(seconds={"GrpTRESRunMins": {"cpu": 4 * 999}})),
        rules(LimitSet(seconds={"GrpWall": {"jobs": 999}}), safe=True),
    ],
)
def test_a_job_beyond_a_limit_by_itself(limits: LimitRules) -> None:
    """It never starts, and keeps nothing free."""
    assert starts(waiting("bob"), limits, 2000.0, 500.0) == [np.inf]


def test_what_running_jobs_may_yet_use() -> None:
    """GrpTRESRunMins=cpu=500: ann's job has 8 processors for 3,500 s at the most, 28,000 s."""
    # bob's needs 4,000: there is room as soon as ann's has less than 26,060 (a minute is rounded
    # down), which is 242.5 s later; it is looked every 300 s.
    limits = rules(LimitSet(seconds={"GrpTRESRunMins": {"cpu": 500 * 60}}))
    assert starts(waiting("bob"), limits, 2000.0, 500.0) == [400.0]


def test_used_time() -> None:
    """GrpTRESMins=cpu=500 without `safe`: a job starts while something is left of 30,000 s."""
    # 4,000 are used, and ann's job may use 28,000: jobs start. If 30,000 are, and used time does
    # not decay, none ever starts.
    limit = LimitSet(seconds={"GrpTRESMins": {"cpu": 500 * 60}})
    used = UsedTime(NOW, {("account physics", "cpu"): 28_000.0 + 4_000.0})
    snapshot = waiting("bob", "bob", wall_time=7200.0)
    run_time = 2000.0, 7000.0, 7000.0
    assert starts(snapshot, rules(limit), *run_time, used=used) == [NOW, NOW]
    spent = UsedTime(NOW, {("account physics", "cpu"): 28_000.0 + 30_000.0})
    never = rules(limit, half_life=np.inf)
    assert starts(snapshot, never, *run_time, used=spent) == [np.inf, np.inf]


def test_used_time_decays() -> None:
    """GrpTRESMins=cpu=500, 30,000 s, is used up now; ann's job uses 15,200 s more until it ends."""
    # A job starts when less than 30,000 s are left of 45,200: after log2(45,200 / 30,000) half-
    # lives, a day each; what has decayed before makes it some minutes earlier.
    limit = LimitSet(seconds={"GrpTRESMins": {"cpu": 500 * 60}})
    spent = UsedTime(NOW, {("account physics", "cpu"): 28_000.0 + 30_000.0})
    limits = rules(limit, half_life=DAY)
    expected = 2000.0 + DAY * np.log2(45_200 / 30_000)
    (found,) = starts(waiting("bob"), limits, 2000.0, 500.0, used=spent)
    assert found == pytest.approx(expected, abs=1500.0)
    early = starts(waiting("bob"), limits, 2000.0, 500.0, used=spent, until=NOW + 3600.0)
    assert early == [np.inf]


def test_jobs_that_started_since_used_time_was_read() -> None:
    """What they may use is not in it: it is not taken off."""
    limit = LimitSet(seconds={"GrpTRESMins": {"cpu": 500 * 60}})
    used = UsedTime(-50.0, {("account physics", "cpu"): 30_000.0})
    limits = rules(limit, half_life=np.inf)
    assert starts(waiting("bob"), limits, 2000.0, 500.0, used=used) == [np.inf]
    assert starts(waiting("bob"), limits, 2000.0, 500.0, used=used._replace(at=NOW)) == [NOW]


def shared(*cores: int) -> Snapshot:
    """Return one node of 16 cores that jobs share; ann's has 4 of them until 3,600."""
    names = {"demand": (CPU, MEMORY)}

    def of(ids: list[int], user: str, demand: list[int]) -> Jobs:
        n = len(ids)
        columns = {"user": [user] * n, "account": ["physics"] * n, "submit": np.zeros(n)}
        return Jobs.build(
            n,
            names=names,
            id=ids,
            wall_time=np.full(n, 3600.0),
            exclusive=np.zeros(n, np.bool_),
            demand=np.column_stack([demand, [8] * n]),
            **columns,
        )

    capacity = np.array([[16, 128]], np.int64)
    cluster = Cluster(Nodes.build(1, names={"capacity": names["demand"]}, capacity=capacity))
    queued = of(list(range(11, 11 + len(cores))), "bob", list(cores))
    return make_snapshot(queued, cluster, NOW, running=of([1], "ann", [4]), nodes=[[0]])


def test_shared_nodes() -> None:
    """GrpTRES=cpu=8,mem=24 B: processors are full for a job of 8, then memory for the last one."""
    snapshot = shared(6, 2, 2)
    limits = rules(LimitSet(group={"cpu": 8, "mem": 24}))
    assert starts(snapshot, limits, 2000.0, 500.0, 500.0, 500.0) == [2000.0, NOW, NOW]
    assert starts(snapshot, rules(), 2000.0, 500.0, 500.0, 500.0) == [NOW] * 3


def test_planned_limits_are_left_out() -> None:
    """Licences that stand for limits in the plan do not count twice."""
    snapshot, name = shared(6), f"{LIMIT}account physics/cpu"
    cluster = replace(snapshot.cluster, licenses={name: 4, "license/matlab": 2})
    resources = (CPU, MEMORY, name)

    def counted(them: Jobs) -> Jobs:
        demand = np.column_stack([them.demand, np.full(len(them), 4)])
        return them.replace_text("demand", demand, resources)

    planned = replace(
        snapshot,
        cluster=cluster,
        queued=counted(snapshot.queued),
        running=counted(snapshot.running),
    )
    plain = without_planned_limits(planned)
    assert plain.cluster.licenses == {"license/matlab": 2}
    assert plain.queued.names("demand") == plain.running.names("demand") == (CPU, MEMORY)
    assert plain.queued.demand.tolist() == snapshot.queued.demand.tolist()


def estimator(n: int = 60) -> Estimator:
    """Return one that knows that jobs of physics run for 500 s."""
    made = Estimator(EstimateSettings(draws=8, longest=1e9), answer_within=np.inf)
    submit = 50 * DAY - np.linspace(3 * DAY, 3600.0, n)
    past = jobs(*["ann"] * n, first=1000, submit=submit, cores=4)
    outcomes = Outcomes.build(n, start=submit, end=submit + 500.0, run_time=np.full(n, 500.0))
    made.learn(Log(past, outcomes, (), "test"))
    return made


def test_estimates_keep_to_limits() -> None:
    """Of waiting jobs, and of one that is not submitted, by whose it is; arrivals count too."""
    now = 50 * DAY
    running = jobs("ann", first=1, submit=[now - 100.0], cores=4)
    queued = jobs("ann", "ann", "bob", submit=now - 10.0)
    snapshot = make_snapshot(queued, make_cluster(50), now, running=running, nodes=[[0]])
    source = LimitsNow(rules(ann=LimitSet(user={"jobs": 1})), None)
    made = estimator()
    found = made.refresh(snapshot, limits=source).start - now
    assert found[2] == 0.0
    assert 300.0 <= found[0] <= 450.0
    assert 700.0 <= found[1] - 100.0 <= 950.0
    asked = jobs("ann", "bob", first=90, submit=now)
    assert made.estimate(asked).start[0] > now + 1000.0
    assert made.estimate(asked).start[1] == now
    assert made.refresh(snapshot).start.tolist() == [now] * 3
