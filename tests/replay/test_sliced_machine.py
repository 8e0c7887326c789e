"""The sliced machine as a batch system: events, stops, verdicts, and what it refuses."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import workload_of

from rtsched.core.capabilities import Capabilities
from rtsched.core.chain import Chain, Member
from rtsched.core.config import PluginTable, convert
from rtsched.core.decision import observe
from rtsched.core.hookspecs import hookimpl
from rtsched.core.plugins import Found, discover
from rtsched.errors import ConfigError, ShapeError
from rtsched.kernels import sliced as kernel
from rtsched.model.actions import Admit, Cancel, Hold, Reject
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind
from rtsched.model.verdicts import Verdicts
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import Policy, presets
from rtsched.replay.results import Workload
from rtsched.simulator.interface import NodeEvent, Outcome, StaticAnswers, StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings, SlicedSettings
from rtsched.simulator.sliced import LOOPS as MACHINE_LOOPS
from rtsched.simulator.sliced import deal, shares_of
from rtsched.testing import make_cluster, make_jobs
from rtsched_plugins.kernels.ste import ERROR
from rtsched_plugins.ste import Ste

LOOPS = ["fcfs", "round-robin", "ste", "least-error"]
EPOCH = 1_700_000_000.0


def sliced(loop: Any = "ste", quantum: float = 1.0, **others: Any) -> SlicedSettings:
    """Return the settings of the machine."""
    return SlicedSettings(loop, quantum, **others)


def workload(seed: int = 3, n: int = 40) -> Workload:
    """Return jobs of three users with whole run times, close together."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 3, n).astype(np.int32)
    jobs = Jobs.build(
        n,
        id=rng.permutation(n),
        submit=EPOCH + np.cumsum(rng.integers(1, 4, n)),
        wall_time=np.float64(50.0),
        size=rng.integers(1, 4, n),
        association=user,
    )
    accounts = Accounts.build(3, name=["a", "b", "c"], shares=[1.0, 2.0, 3.0], is_user=True)
    run = rng.integers(1, 9, n).astype(np.float64)
    cluster = make_cluster(4, speed=[1.0, 2.0, 0.5, 1.0])
    return workload_of(jobs, run, cluster, accounts=accounts)


def machine(work: Workload, system: SlicedSettings, **others: Any) -> Any:
    """Return the machine before its first instant."""
    return simulate(
        work.jobs, work.run_time, work.cluster, settings=system, accounts=work.accounts, **others
    )


def test_jobs_are_dealt_in_equal_parts() -> None:
    """Eleven tasks on four nodes: 3 3 3 2, in blocks or in turn."""
    assert deal(11, 4, "blocks").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert deal(11, 4, "in-turn").tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]


def test_shares_come_from_the_accounts() -> None:
    """By the account's part of the machine; who is charged to nobody has the mean."""
    accounts = Accounts.build(2, name=["a", "b"], shares=[1.0, 3.0])
    jobs = make_jobs(association=np.array([0, 1, -1], np.int32))
    assert shares_of(jobs, accounts).tolist() == [0.25, 0.75, 0.5]
    assert shares_of(jobs.take([2]), accounts).tolist() == [1.0]


def test_a_wide_job_is_one_task() -> None:
    """Three nodes for 4 s are 12 s of one node, 6 s of one of speed 2."""
    jobs = make_jobs(submit=0.0, size=[3, 3])
    system = simulate(
        jobs,
        np.full(2, 4.0),
        make_cluster(2, speed=[1.0, 2.0]),
        settings=sliced("round-robin"),
        record_nodes=True,
    )
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert outcomes.end.tolist() == [12.0, 6.0]
    assert outcomes.size.tolist() == [1, 1]
    assert outcomes.service.tolist() == [12.0, 6.0]
    assert [rows.tolist() for rows in system.node_rows()] == [[0, 1, 2], [0, 1]]


@pytest.mark.parametrize("loop", LOOPS)
def test_stops_change_nothing(loop: str) -> None:
    """Paused after every few arrivals it does what it does in one go."""
    work = workload()
    once, often = machine(work, sliced(loop)), machine(work, sliced(loop))
    once.advance()
    arrived = 0
    while not (point := often.advance(3)).done:
        assert point.arrived > arrived
        arrived = point.arrived
        assert len(often.snapshot().running) <= len(work.cluster)
    for one, two in zip(once.job_outcomes(), often.job_outcomes(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("loop", LOOPS)
@given(st.integers(0, 1000), st.integers(1, 30))
@settings(max_examples=15, deadline=None)
def test_events_tell_what_was_served(loop: str, seed: int, step: int) -> None:
    """Starts, suspensions and resumptions add up to each job's service, one job per node."""
    work = workload(seed)
    system = machine(work, sliced(loop), record_events=True)
    seen: list[tuple[float, int, int]] = []
    while True:
        done = system.advance(step).done
        events = system.events()
        rows = np.searchsorted(np.sort(work.jobs.id), events.jobs.id)
        rows = np.argsort(work.jobs.id)[rows]
        seen += zip(
            events.rows.time.tolist(), events.rows.kind.tolist(), rows.tolist(), strict=True
        )
        if done:
            break
    assert [time for time, _, _ in seen] == sorted(time for time, _, _ in seen)
    outcomes, n = system.job_outcomes(), len(work.jobs)
    on = {EventKind.STARTED, EventKind.RESUMED}
    off = {EventKind.SUSPENDED, EventKind.ENDED}
    served, since, node_of = np.zeros(n), np.full(n, np.nan), outcomes.first_node
    busy = np.zeros(len(work.cluster), int)
    for time, kind, row in seen:
        if kind in on:
            since[row] = time
            busy[node_of[row]] += 1
            assert busy[node_of[row]] == 1
        elif kind in off:
            served[row] += time - since[row]
            busy[node_of[row]] -= 1
    np.testing.assert_allclose(served, outcomes.service, atol=1e-6)
    for kind, times in [(EventKind.STARTED, outcomes.start), (EventKind.ENDED, outcomes.end)]:
        told = {row: time for time, what, row in seen if what == kind}
        assert [told[row] for row in range(n)] == times.tolist()
    assert sorted(row for _, kind, row in seen if kind == EventKind.ARRIVED) == list(range(n))


def test_verdicts_take_effect_at_arrival() -> None:
    """One is rejected, one put off to an instant and one to the next arrival; one just enters."""
    jobs = make_jobs(4, submit=[0.0, 0.0, 0.0, 5.0])
    system: Any = simulate(
        jobs,
        np.full(4, 2.0),
        make_cluster(1),
        settings=sliced("fcfs"),
        stop_at=StopConditions(arrivals=True),
        record_events=True,
    )
    assert system.advance().arrivals.tolist() == [0, 1, 2]
    none = np.full(1, -np.inf)
    outcomes = system.apply(
        [
            Reject(np.array([0]), np.array([np.inf]), ("no",)),
            Hold(np.array([1]), np.array([3.0])),
            Hold(np.array([2]), none),
            Cancel(np.array([3]), ("no",)),
            Admit(np.array([3]), none),
        ]
    )
    done, other, late = Outcome.DONE, Outcome.UNSUPPORTED, Outcome.PARTLY
    assert outcomes == (done, done, done, other, late)
    assert system.advance().arrivals.tolist() == [1, 2]
    system.apply([Hold(np.array([2]), none)])
    assert system.advance().arrivals.tolist() == [2, 3]
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert outcomes.start[1:].tolist() == [3.0, 5.0, 7.0]
    assert outcomes.fate.tolist() == [1, 0, 0, 0]
    told = [EventKind(kind).name for kind in system.events().rows.kind]
    assert told.count("REJECTED") == 1
    assert told.count("ENDED") == 3


class Picky:
    """Turn away jobs of two nodes and put off those of three for ever."""

    def __init__(self, config: object = None) -> None:
        self.config = config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Any) -> Verdicts:
        """Judge by size."""
        return Verdicts.build(np.select([jobs.size == 2, jobs.size == 3], [3, 2], 0))


def test_a_policy_with_admission_runs_on_it() -> None:
    """The replay asks plug-ins at arrivals; what is put off again and again never starts."""
    work = workload()
    plugins = discover() | {"picky": Found("picky", "test", "1", lambda: Picky)}
    run = replay(work, "x", Policy(system=sliced(), plugin=[PluginTable("picky")]), found=plugins)
    fate, size = run.results.fate, work.jobs.size
    assert (fate[size == 1] == FinalState.FINISHED).all()
    assert (fate[size == 2] == FinalState.REJECTED).all()
    assert (fate[size == 3] == FinalState.UNFINISHED).all()


def test_static_rejections_and_nodes_that_are_down() -> None:
    """They take no part; without any node nothing starts."""
    work = workload()
    turned = np.arange(len(work.jobs)) % 3 == 0
    down = make_cluster(4, state=np.array([NodeState.UP] + [NodeState.DOWN] * 3, np.int8))
    system: Any = simulate(
        work.jobs, work.run_time, down, settings=sliced(), static=StaticAnswers(reject=turned)
    )
    system.advance()
    outcomes = system.job_outcomes()
    assert (outcomes.fate == turned).all()
    assert set(outcomes.first_node.tolist()) == {-1, 0}
    none = make_cluster(1, state=np.array([NodeState.DOWN], np.int8))
    system = simulate(work.jobs, work.run_time, none, settings=sliced())
    assert system.advance().done
    assert (system.job_outcomes().fate == 2).all()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"quantum": 2.0}, "system.quantum: is a setting of machine 'sliced'"),
        ({"machine": "sliced", "depth": 3}, "system.depth: is a setting of machine 'exclusive'"),
        (
            {"machine": "sliced", "loop": "easy"},
            "invalid value 'easy' on machine 'sliced'; choose one of: 'fcfs', 'round-robin'",
        ),
        ({"loop": "ste"}, "system.loop: invalid value 'ste'; choose one of: 'fcfs', 'easy'"),
        ({"machine": "grid"}, "system.machine: invalid value 'grid'; choose one of: 'exclusive'"),
        ({"machine": "sliced", "loop": "ste", "quantum": 0}, "expected `float` > 0"),
    ],
)
def test_settings_of_other_machines_are_refused(table: dict[str, Any], message: str) -> None:
    """A setting that would have no effect is a mistake, told in one sentence."""
    problems: list[str] = []
    assert convert({"system": table}, Policy, "", problems) is None
    assert len(problems) == 1
    assert message.lower() in problems[0].lower()
    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert({"system": table}, Policy)


def test_what_does_not_fit_is_refused() -> None:
    """Arrays of another length, and nodes that fail."""
    work = workload()
    with pytest.raises(ShapeError):
        simulate(work.jobs, work.run_time[:3], work.cluster, settings=sliced())
    with pytest.raises(ConfigError):
        machine(work, sliced(), node_events=[NodeEvent(EPOCH, 0, NodeState.DOWN)])


@pytest.mark.parametrize("loop", LOOPS)
@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_plug_in_and_machine_mean_the_same_error(loop: str, seed: int) -> None:
    """On one node with a user per job, what the plug-in books is what the machine steers by."""
    rng, n = np.random.default_rng(seed), 12
    submit = np.sort(rng.integers(0, 30, n)).astype(np.float64)
    jobs = make_jobs(n, submit=submit, association=np.arange(n, dtype=np.int32))
    shares = rng.integers(1, 5, n).astype(np.float64)
    accounts = Accounts.build(n, name=[f"u{k}" for k in range(n)], shares=shares, is_user=True)
    run = rng.integers(1, 9, n).astype(np.float64)
    node = make_cluster(1)
    system: Any = simulate(
        jobs, run, node, settings=sliced(loop), accounts=accounts, record_events=True
    )
    system.advance()
    chain = Chain([Member("ste", Ste(Ste.Config()))])
    states = observe(system.snapshot(), chain, system.events())[1]
    lone = kernel.lay_out(shares, submit, run, np.zeros(n, np.int64), 1)
    kernel.run(lone, MACHINE_LOOPS[loop], 1.0, 1e-9, np.inf)
    np.testing.assert_allclose(states["ste"].kept[ERROR, 1:], lone.error, atol=1e-9)


class PlainSte(Ste):
    """The same plug-in without its compiled form."""

    capabilities = Capabilities()


@pytest.mark.parametrize("given", [{}, {"half_life": 30.0, "weight_account": 0.5}])
def test_ste_orders_alike_compiled_and_not(given: dict[str, Any]) -> None:
    """A replay with kernels in the loop starts the jobs that one with Python calls starts."""
    work = workload(n=150)
    runs = []
    for plugin in (Ste, PlainSte):
        found = discover() | {"ste": Found("ste", "test", "1", lambda kind=plugin: kind)}
        tables = [PluginTable("ste", settings=given)]
        policy = Policy(system=ExclusiveSettings(order="priority"), plugin=tables)
        runs.append(replay(work, "x", policy, found=found))
    one, two = (run.results for run in runs)
    assert one.start.tolist() == two.start.tolist()
    for run in runs:
        book = run.hooks["fair_share"]["ste"]
        assert book.judged > book.changed > 0
        assert book.abstained == book.errors == 0


def test_ste_serves_by_shares() -> None:
    """Three users with work for all the time: each gets the share of the machine, within a few
    jobs, where first come first served gives them a third each.
    """  # noqa: D205
    n = 900
    user = (np.arange(n) % 3).astype(np.int32)
    jobs = make_jobs(n, submit=EPOCH, wall_time=60.0, association=user)
    accounts = Accounts.build(3, name=["a", "b", "c"], shares=[1.0, 2.0, 3.0], is_user=True)
    work = workload_of(jobs, np.full(n, 60.0), make_cluster(5), accounts=accounts)
    served = {}
    for name in ("ste", "easy"):
        start = replay(work, name, presets()[name]).results.start
        first = start < EPOCH + 60.0 * 60
        served[name] = np.bincount(user[first], minlength=3)
    assert np.abs(served["ste"] - np.array([50, 100, 150])).max() <= 3
    assert served["easy"].tolist() == [100, 100, 100]


@pytest.mark.parametrize("name", ["ste-sliced", "rr", "least-error", "fcfs-sliced", "ste"])
def test_presets_finish_all_jobs(name: str) -> None:
    """Each preset serves what there is; the machine is never busier than it can be."""
    work = workload(n=120)
    run = replay(work, name, presets()[name])
    found = measure(work, run.results)
    assert found["finished"] == 120
    assert 0.0 < found["utilisation"] <= 1.0
