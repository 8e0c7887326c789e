"""HTCondor's own loop: cycles, priorities, slices of the pie, claims, wide jobs, slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from plain_negotiator import Ask, Plain, Rules

from rtsched.adapters.simulated.exclusive import ExclusiveNodes
from rtsched.adapters.simulated.interface import NegotiatorSettings, SystemSettings
from rtsched.model.accounts import Accounts
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

ORIGIN = 1_000_000_000.0
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
    rules = rules or Rules()
    settings = NegotiatorSettings(
        interval=rules.interval,
        cycle_delay=rules.delay,
        half_life=rules.half_life,
        claim_worklife=rules.worklife,
        factors=rules.factors,
    )
    made = ExclusiveNodes(
        *table(work),
        cluster,
        SystemSettings(loop="negotiator", negotiator=settings),
        accounts=Accounts.build(len(USERS), name=list(USERS), is_user=True),
        record_nodes=True,
        **more,
    )
    assert made.advance().done
    return made


def starts(made: ExclusiveNodes) -> list[float]:
    """Return when each job started, relative to the origin."""
    return (made.course().start - ORIGIN).tolist()


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
