"""HTCondor's own loop: cycles, priorities, slices of the pie, claims, wide jobs, slots."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from exclusive_scenarios import ORIGIN, answer, assert_no_overlap, random_jobs
from hypothesis import given
from hypothesis import strategies as st
from plain_negotiator import Ask, Plain, Rules
from workloads import workload_of

from rtsched.kernels import machine as kernel
from rtsched.kernels.compiling import plain
from rtsched.kernels.machine_claims import age
from rtsched.logs.readers import read_logs
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay
from rtsched.replay.policies import presets
from rtsched.replay.results import Results, Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import Lublin
from rtsched.replay.workload import prepare
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StopConditions
from rtsched.simulator.queue import _slots
from rtsched.simulator.settings import ExclusiveSettings, MachineSettings, NegotiatorSettings

USERS = ("a", "b", "c")
FACTORS = {"a": 1000.0, "b": 1370.0, "c": 2117.0, "DedicatedScheduler": 977.0}
"""Factors of which no two users' effective priorities are ever equal, so that none needs a tie."""


def machine(slots: Sequence[tuple[int, float]], **columns: Any) -> Cluster:
    """Return slots of so many CPUs and so much memory."""
    rows = [k for k, (count, _) in enumerate(slots) for _ in range(count)]
    memory = [int(slots[k][1] / slots[k][0]) for k in rows]
    names = {"name": [f"slot{k + 1}@host" for k in range(len(slots))], "host": ["host"]}
    return Cluster(
        Nodes.build(
            len(rows),
            names=names,
            name=np.array(rows, np.int32),
            host=np.zeros(len(rows), np.int32),
            memory=np.array(memory, np.int64),
            **columns,
        )
    )


def table(work: Sequence[Ask], **columns: Any) -> tuple[Jobs, np.ndarray[Any, Any]]:
    """Return jobs on the epoch's clock, in the order given, and their run times."""
    run = np.array([job.run for job in work], np.float64)
    jobs = Jobs.build(
        len(work),
        id=np.arange(len(work)) + 3,
        submit=ORIGIN + np.array([job.submit for job in work], np.float64),
        wall_time=run,
        size=np.array([job.size for job in work], np.int32),
        nice=-np.array([job.priority for job in work], np.float64),
        memory=np.array([job.memory for job in work], np.int64),
        association=np.array([USERS.index(job.user) for job in work], np.int32),
        **columns,
    )
    return jobs, run


def system(
    work: Sequence[Ask], cluster: Cluster, rules: Rules | None = None, **more: Any
) -> ExclusiveNodes:
    """Return a pool that has run to its end."""
    made = begun(work, cluster, rules, **more)
    assert made.advance().done
    return made


def begun(
    work: Sequence[Ask], cluster: Cluster, rules: Rules | None = None, **more: Any
) -> ExclusiveNodes:
    """Return a pool before its first instant."""
    rules = rules or Rules()
    settings = NegotiatorSettings(
        interval=rules.interval,
        cycle_delay=rules.delay,
        half_life=rules.half_life,
        claim_worklife=rules.worklife,
        factors=rules.factors,
    )
    return ExclusiveNodes(
        *table(work),
        cluster,
        ExclusiveSettings(loop="negotiator", negotiator=settings),
        accounts=Accounts.build(len(USERS), name=list(USERS), is_user=True),
        record_nodes=True,
        **more,
    )


def starts(made: ExclusiveNodes) -> list[float]:
    """Return when each job started, relative to the origin."""
    return (made.job_outcomes().start - ORIGIN).tolist()


@st.composite
def workloads(draw: st.DrawFn) -> list[Ask]:
    """Draw few short jobs of three users, some of them wide, with many ties."""
    rows = draw(
        st.lists(
            st.builds(
                Ask,
                submit=st.sampled_from([0.0, 0.0, 1.0, 5.0, 30.0, 70.0]),
                run=st.integers(1, 200).map(float),
                size=st.sampled_from([1, 1, 1, 2, 3, 4, 5, 7]),
                user=st.sampled_from(USERS),
                priority=st.integers(0, 2),
                memory=st.sampled_from([0.0, 1.0, 2.0, 3.0]),
            ),
            min_size=1,
            max_size=24,
        )
    )
    at = np.cumsum([job.submit for job in rows])
    return [job._replace(submit=float(t - at[0])) for job, t in zip(rows, at, strict=True)]


pools = st.lists(
    st.tuples(st.sampled_from([1, 1, 2, 4]), st.sampled_from([2.0, 4.0, 8.0])),
    min_size=1,
    max_size=5,
).map(lambda slots: [(count, each * count) for count, each in slots])
rules = st.builds(
    Rules,
    interval=st.sampled_from([60.0, 25.0]),
    delay=st.sampled_from([20.0, 0.0]),
    half_life=st.sampled_from([50.0, 86400.0]),
    worklife=st.sampled_from([1200.0, 90.0, 0.0, -1.0]),
    factors=st.just(FACTORS),
)


@given(work=workloads(), slots=pools, rules=rules)
def test_the_loop_starts_jobs_as_a_plainly_written_one_does(
    work: list[Ask], slots: list[tuple[int, float]], rules: Rules
) -> None:
    """Every start agrees with a second implementation that makes every cycle."""
    most = sum(count for count, _ in slots)
    work = [job._replace(size=min(job.size, most)) for job in work]
    made = system(work, machine(slots), rules)
    np.testing.assert_allclose(starts(made), Plain(work, slots, rules).run(), rtol=0, atol=1e-6)


def assert_books_agree(made: ExclusiveNodes) -> None:
    """Check that claims, slots, submitters and lists of waiting jobs tell the same story."""
    machine, m = made._machine, len(made.cluster)
    state, claims = kernel.scalars(machine), machine.claims[:m]
    owner, busy = claims["owner"], machine.nodes["row"][:m]
    for who, submitter in enumerate(machine.submitters):
        assert submitter["used"] == np.count_nonzero((claims["payer"] == who) & (owner >= 0))
    whole = with_claims_of(made)
    for place, offer in enumerate(machine.offers):
        mine = claims[(claims["slot"] == place) & (owner >= 0)]
        assert offer["free"] == offer["count"] - len(mine)
        assert offer["memory"] == whole[place]["memory"] - mine["memory"].sum()
        assert offer["memory"] >= 0
    assert (owner[busy >= 0] == machine.requests["owner"][busy[busy >= 0]]).all()
    assert (claims["payer"][busy >= 0] == machine.requests["user"][busy[busy >= 0]]).all()
    held = claims["held"] == 1
    assert state["held"] == held.sum()
    assert (owner[held] == state["dedicated"]).all()
    assert (busy[held] < 0).all()
    assert (owner[(busy < 0) & ~held] < 0).all(), "a claim without a job that nobody holds"
    assert_lists_are_the_queue(made)


def with_claims_of(made: ExclusiveNodes) -> np.ndarray[Any, Any]:
    """Return the slots of a pool as they were at the start."""
    return _slots(made.cluster.nodes, len(made._machine.nodes))[0]


def assert_lists_are_the_queue(made: ExclusiveNodes) -> None:
    """Check that each job that waits stands in one list, which is in order both ways."""
    machine, listed = made._machine, []
    for submitter in machine.submitters:
        row, mine = int(submitter["first"]), []
        while row >= 0:
            mine.append(row)
            row = int(machine.requests["after"][row])
        back, row = [], int(submitter["last"])
        while row >= 0:
            back.append(row)
            row = int(machine.requests["before"][row])
        assert back == mine[::-1]
        assert mine == sorted(mine, key=lambda row: (machine.more["key"][row], row))
        listed += mine
    assert sorted(listed) == np.flatnonzero(machine.jobs["status"] == kernel.QUEUED).tolist()


@given(work=workloads(), slots=pools, rules=rules)
def test_books_agree_whenever_one_looks(
    work: list[Ask], slots: list[tuple[int, float]], rules: Rules
) -> None:
    """No CPU has two owners, no slot gives more than it has, and nothing is lost or gained."""
    most = sum(count for count, _ in slots)
    work = [job._replace(size=min(job.size, most)) for job in work]
    made = begun(work, machine(slots), rules)
    while not made.advance(1).done:
        assert_books_agree(made)
    assert_books_agree(made)
    assert_no_overlap(made)
    if (made.job_outcomes().fate == 0).all():
        assert (made._machine.claims["owner"] < 0).all()


@given(work=workloads(), slots=pools)
def test_a_job_of_few_cpus_has_them_in_one_slot(
    work: list[Ask], slots: list[tuple[int, float]]
) -> None:
    """Only what is wider than every slot is spread over several."""
    most, widest = sum(count for count, _ in slots), max(count for count, _ in slots)
    work = [job._replace(size=min(job.size, most)) for job in work]
    cluster = machine(slots)
    made = system(work, cluster)
    offsets, nodes = made.node_rows()
    for row, job in enumerate(work):
        mine = cluster.nodes.name[nodes[offsets[row] : offsets[row + 1]]]
        if job.size <= widest:
            assert len(set(mine.tolist())) <= 1


@given(seed=st.integers(0, 2**16), slots=pools)
def test_books_agree_whatever_is_asked_of_the_system(
    seed: int, slots: list[tuple[int, float]]
) -> None:
    """Plans, holds, priorities, node sets and nodes that fail leave claims in order."""
    rng = np.random.default_rng(seed)
    cluster = machine([*slots, (4, 16.0)])
    jobs, run = random_jobs(seed, 25, len(cluster), memory=rng.integers(0, 3, 25))
    settings = ExclusiveSettings(loop="negotiator", order="priority")
    events = [
        NodeEvent(ORIGIN + 30.0 * k, int(rng.integers(0, len(cluster))), (2, 0, 1, 0)[k % 4])
        for k in range(12)
    ]
    made = ExclusiveNodes(
        jobs,
        run,
        cluster,
        settings,
        stop_at=StopConditions(True, True, True, True),
        node_events=events,
        record_nodes=True,
    )
    answer(made, rng)
    assert_lists_are_the_queue(made)
    assert_no_overlap(made)
    used = made._machine.submitters["used"]
    claimed = made._machine.claims[made._machine.claims["owner"] >= 0]
    assert used.tolist() == np.bincount(claimed["payer"], minlength=len(used)).tolist()


def test_real_priority_follows_the_cpus_in_use_with_a_half_life() -> None:
    """The manual's example: ten CPUs for long make 10, a day later it is 5, then 2.5."""
    day = 86400.0
    work = [Ask(0.0, 40 * day, user="a") for _ in range(10)]
    work += [Ask(40 * day + day, 1.0, user="a"), Ask(40 * day + 2 * day, 1.0, user="a")]
    made = begun(work, machine([(1, 1.0)] * 10))
    priority = [priority_of(made, "a")]
    while not made.advance(1).done:
        priority.append(priority_of(made, "a"))
    assert priority[0] == 0.5
    assert priority[-2:] == pytest.approx([5.0, 2.5], rel=1e-4)
    made = system([Ask(0.0, 40 * day, user="a")] * 10, machine([(1, 1.0)] * 10))
    assert priority_of(made, "a") == pytest.approx(10.0, rel=1e-6)


def priority_of(made: ExclusiveNodes, user: str) -> float:
    """Return a user's real priority as of when it was last looked at."""
    return float(made._machine.submitters["priority"][USERS.index(user)])


@given(
    before=st.floats(0.5, 1000.0),
    used=st.integers(0, 1000),
    spans=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=6),
)
def test_priority_does_not_depend_on_how_often_it_is_worked_out(
    before: float, used: int, spans: list[float]
) -> None:
    """While usage stays the same, many small steps and one large step agree."""
    made = begun([Ask(0.0, 1.0)], machine([(1, 1.0)]))
    state, submitter = kernel.scalars(made._machine), made._machine.submitters[:1]
    results = []
    for steps in (spans, [sum(spans)]):
        state["now"] = submitter["at"] = 0.0
        submitter["priority"], submitter["used"] = before, used
        for step in steps:
            state["now"] += step
            plain(age)(made._machine, 0)
        results.append(float(submitter["priority"][0]))
    assert results[0] == pytest.approx(results[1], rel=1e-9)
    assert 0.5 <= results[0] <= max(before, used) + 1e-9


@pytest.mark.parametrize(("factor", "ratio"), [(1.0, 1.0), (2.0, 2.0**0.5), (4.0, 2.0)])
def test_long_run_shares_go_with_one_over_the_root_of_the_factor(
    factor: float, ratio: float
) -> None:
    """The slice goes with 1 / (CPUs in use x factor), so a factor of 4 halves what a user gets."""
    rng = np.random.default_rng(1)
    hours, cpus = 48, 60
    run = rng.integers(300, 900, 2 * cpus * hours * 8)
    work = [Ask(0.0, float(t), user="ab"[k % 2]) for k, t in enumerate(run)]
    rules = Rules(half_life=3600.0, factors={"a": 1000.0, "b": 1000.0 * factor})
    made = system(work, machine([(1, 1.0)] * cpus), rules)
    outcomes = made.job_outcomes()
    first, last = ORIGIN + 12 * 3600.0, ORIGIN + hours * 3600.0
    span = np.clip(outcomes.end, first, last) - np.clip(outcomes.start, first, last)
    of_a = np.arange(len(work)) % 2 == 0
    assert span.sum() == pytest.approx(cpus * (last - first), rel=0.1)
    assert span[of_a].sum() / span[~of_a].sum() == pytest.approx(ratio, rel=0.05)


def test_at_first_slices_go_with_one_over_the_factor() -> None:
    """Two new users, factors 1 to 2: the first cycle gives them 20 and 10 of 30 CPUs."""
    work = [Ask(0.0, 1e5, user="ab"[k % 2]) for k in range(80)]
    made = system(work, machine([(1, 1.0)] * 30), Rules(factors={"a": 500.0}))
    begun_at_once = np.array(starts(made)) == 0.0
    assert [begun_at_once[0::2].sum(), begun_at_once[1::2].sum()] == [20, 10]


def test_cycles_come_at_the_interval_and_on_submission_after_the_delay() -> None:
    """The first job starts at once, the next at 20 s, what finds no slot with a later cycle."""
    work = [
        Ask(0.0, 1000.0),
        Ask(5.0, 1000.0, user="b"),
        Ask(30.0, 45.0, user="c"),
        Ask(31.0, 5.0, user="c"),
    ]
    made = system(work, machine([(1, 1.0)] * 3), Rules(worklife=0.0))
    assert starts(made) == [0.0, 20.0, 40.0, 100.0]


@pytest.mark.parametrize(
    ("worklife", "expected"),
    [(1200.0, [0.0, 50.0, 100.0]), (0.0, [0.0, 60.0, 120.0]), (60.0, [0.0, 50.0, 120.0])],
)
def test_a_claim_takes_the_next_job_until_its_work_life_is_over(
    worklife: float, expected: list[float]
) -> None:
    """A claim is used again at once; after that the next job waits for a cycle."""
    work = [Ask(0.0, 50.0)] * 3
    assert starts(system(work, machine([(1, 1.0)]), Rules(worklife=worklife))) == expected


def test_a_claim_passes_to_its_own_user_only() -> None:
    """Another user's job, however old, gets the CPU by negotiation."""
    work = [Ask(0.0, 50.0), Ask(1.0, 5.0, user="b"), Ask(2.0, 5.0)]
    assert starts(system(work, machine([(1, 1.0)]))) == [0.0, 80.0, 50.0]


def test_a_job_that_fits_nowhere_holds_up_nobody() -> None:
    """One whose memory no slot has waits for ever; later ones of the same user start."""
    work = [Ask(0.0, 5.0, memory=9.0), Ask(0.0, 5.0, memory=1.0)]
    made = system(work, machine([(1, 4.0)]))
    assert made.job_outcomes().fate.tolist() == [2, 0]


def test_a_job_that_no_slot_holds_is_named_with_what_there_is() -> None:
    """Nothing waits for ever silently: the results say how many CPUs have so much memory."""
    mega = 2.0**20
    asks = [(2, 8.0), (3, 8.0), (5, 9.0), (5, 4.0)]
    jobs, run = table([Ask(0.0, 5.0, size, memory=each * mega) for size, each in asks])
    cluster = machine([(4, 16 * mega), (4, 16 * mega), (1, 9 * mega)])
    accounts = Accounts.build(len(USERS), name=list(USERS), is_user=True)
    outcomes, edges = Outcomes.build(len(jobs)), Edges.build(0)
    work = workload_of(jobs, run, cluster, outcomes=outcomes, accounts=accounts, edges=edges)
    done = replay(work, "pool", presets()["negotiator"])
    assert done.results.fate.tolist() == [0, 2, 2, 0]
    numbers = {entry["reason"]: entry["numbers"] for entry in done.decisions}
    assert numbers == {
        "negotiator.no-slot": {"cpus": 3.0, "memory": 8.0, "fits": 2.0},
        "negotiator.no-slots": {"cpus": 5.0, "memory": 9.0, "fits": 3.0},
    }


def test_wide_jobs_start_first_come_first_served_on_cpus_held_for_them() -> None:
    """The first wide job collects CPUs as they come free; a narrower one does not pass it."""
    work = [
        Ask(0.0, 100.0),
        Ask(0.0, 200.0),
        Ask(1.0, 10.0, size=3, user="b"),
        Ask(2.0, 10.0, size=2, user="c"),
    ]
    rules = Rules(factors={"DedicatedScheduler": 1.0})
    made = system(work, machine([(1, 1.0)] * 3), rules)
    assert starts(made) == [0.0, 0.0, 200.0, 210.0]


def test_the_fastest_slot_is_taken_first() -> None:
    """Of slots with room the fastest one is the best, then the first."""
    cluster = machine([(1, 1.0)] * 4, speed=np.array([1.0, 2.0, 1.0, 2.0]))
    made = system([Ask(0.0, 50.0, user=user) for user in "abc"], cluster)
    assert made.job_outcomes().first_node.tolist() == [1, 3, 0]


def test_a_user_orders_the_own_jobs() -> None:
    """Job priority counts among one user's jobs, then the order of submission."""
    work = [Ask(0.0, 10.0), Ask(0.0, 10.0, priority=5), Ask(0.0, 10.0, priority=5)]
    assert starts(system(work, machine([(1, 1.0)]))) == [20.0, 0.0, 10.0]


def test_factors_are_found_by_group_and_user() -> None:
    """`GROUP.USER` counts before `USER`, and that before `GROUP`."""
    accounts = Accounts.build(
        4, name=["g", "x", "y", "x"], parent=np.array([-1, 0, 0, -1], np.int32)
    )
    jobs, run = table([Ask(0.0, 1.0)])
    factors = {"g.x": 2.0, "x": 3.0, "g": 5.0, "DedicatedScheduler": 7.0}
    made = ExclusiveNodes(
        jobs,
        run,
        Cluster.uniform(1),
        ExclusiveSettings(loop="negotiator", negotiator=NegotiatorSettings(factors=factors)),
        accounts=accounts,
    )
    assert made._machine.submitters["factor"].tolist() == [5.0, 2.0, 5.0, 3.0, 1000.0, 7.0]


def test_the_loops_settings_belong_to_it() -> None:
    """Another loop refuses them, and says whose they are."""
    with pytest.raises(ValueError, match="`negotiator` is a setting of loop 'negotiator'"):
        ExclusiveSettings(loop="easy", negotiator=NegotiatorSettings(interval=5.0))
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'negotiator'"):
        msgspec.convert({"machine": "sliced", "loop": "negotiator"}, MachineSettings)


@pytest.mark.parametrize("loop", ["easy", "negotiator"])
def test_promises_are_kept_on_a_pool(loop: str) -> None:
    """With a planner, best-effort jobs of the pool's own loop never delay a promised one."""
    log = Lublin(jobs=400, nodes=24, seed=5, load=0.9, users=6, accounts=2).log()
    workload = prepare(log, WorkloadOptions(deadline_rule="slowdown:4", deadline_fraction=0.4))
    chosen = msgspec.structs.replace(presets()["mcdf"], system=ExclusiveSettings(loop=loop))
    run = replay(workload, loop, chosen, record_nodes=False)
    promised = np.isfinite(run.results.promise)
    assert promised.sum() > 50
    assert (run.results.end[promised] <= run.results.promise[promised] + 1e-6).all()
    free = np.isinf(workload.jobs.deadline)
    assert (run.results.fate[free] == 0).all()


POOLS = Path(__file__).parents[1] / "data" / "pools"
TWO_USERS = POOLS / "two_users.history.gz"
"""History of a real pool of 30 slots (HTCondor 25.14): two users submit 300 jobs each at a time.

NEGOTIATOR_INTERVAL 20, NEGOTIATOR_CYCLE_DELAY 10, PRIORITY_HALFLIFE 60, CLAIM_WORKLIFE 60; bob has
priority factor 4000, alice 1000. Jobs sleep for 15 to 35 s.
"""
PARALLEL_JOBS = POOLS / "parallel_jobs.history.gz"
"""The same on 10 slots with half-life 600: 100 jobs of alice, then parallel ones of 6, 3 and 8."""


def as_it_went(history: Path, slots: int, **settings: Any) -> tuple[Workload, Results]:
    """Return a real pool's history and its replay under the pool's own settings."""
    options = WorkloadOptions(deadline_rule="none", unit="core")
    work = prepare(read_logs([history]), options, slots_of(slots))
    own = NegotiatorSettings(interval=20.0, cycle_delay=10.0, claim_worklife=60.0, **settings)
    system = ExclusiveSettings(loop="negotiator", negotiator=own)
    chosen = msgspec.structs.replace(presets()["negotiator"], system=system)
    return work, replay(work, "negotiator", chosen, record_nodes=False).results


def slots_of(count: int) -> Cluster:
    """Return static slots of one CPU."""
    return machine([(1, 512 * 2.0**20)] * count)


def test_a_real_pool_is_replayed_as_it_went() -> None:
    """Waits and shares of both users are those that the history records, within 10 %."""
    work, replayed = as_it_went(TWO_USERS, 30, half_life=60.0, factors={"bob": 4e3})
    of_alice = work.jobs.association == work.accounts.texts("name").index("alice")
    submit, flood = work.jobs.submit, float(np.median(work.jobs.submit))
    told = {}
    for name, rows in (("log", work.outcomes), ("replay", replayed)):
        within = [np.clip(times, flood + 60, flood + 300) for times in (rows.start, rows.end)]
        held, wait = within[1] - within[0], rows.start - submit
        told[name] = [
            value
            for mine in (of_alice, ~of_alice)
            for value in (wait[mine].mean(), held[mine].sum() / 240.0)
        ]
    assert told["replay"] == pytest.approx(told["log"], rel=0.1)
    assert told["log"][1] / told["log"][3] == pytest.approx(2.0, rel=0.1)


def test_parallel_jobs_of_a_real_pool_are_replayed_as_they_went() -> None:
    """They start in the same order, as early as the pool needed to start them later."""
    work, replayed = as_it_went(PARALLEL_JOBS, 10, half_life=600.0)
    wide = np.flatnonzero(work.jobs.size > 1)
    assert work.jobs.size[wide].tolist() == [6, 3, 8]
    late = work.outcomes.start[wide] - replayed.start[wide]
    assert (late > 0).all()
    assert (late < 12).all()
