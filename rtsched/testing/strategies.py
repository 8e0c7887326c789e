"""Hypothesis strategies for models: jobs, clusters, accounts, and whole scenes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import MissingExtraError
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind
from rtsched.testing.builders import make_cluster, make_events, make_jobs, make_snapshot

try:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
except ImportError as cause:
    raise MissingExtraError("testing a plug-in", "testing", str(cause)) from cause

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from rtsched.model.cluster import Cluster
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.state import Events

EPOCH = 1_700_000_000.0
"""About when the jobs of a scene are submitted."""
PARTITIONS = ("short", "long")

_whole = st.integers(0, 20_000).map(float)
_seconds = st.one_of(_whole, st.sampled_from([0.25, 299.75, 300.0, 86_400.0]))


@dataclass(frozen=True)
class Scene:
    """Jobs to ask about, the system they meet, and what happened to them before.

    Attributes
    ----------
    jobs : Jobs
        In order of (submit, id), ids are unique; they stand in the snapshot's queue.
    snapshot : Snapshot
        Later than every submission and event.
    events : Events
        Arrivals, starts and ends of the jobs, in order of time.
    """

    jobs: Jobs
    snapshot: Snapshot
    events: Events


@st.composite
def clusters(draw: DrawFn, most: int = 8) -> Cluster:
    """Return clusters of nodes of different speed, some drained or down, with two partitions."""
    n = draw(st.integers(1, most))

    def column(values: SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    return make_cluster(
        n,
        speed=column(st.sampled_from([0.5, 1.0, 2.0])),
        cores=column(st.sampled_from([1, 2, 4])),
        state=np.array(column(st.sampled_from([NodeState.UP] * 4 + list(NodeState))), np.int8),
        partitions={name: sorted(draw(st.sets(st.integers(0, n - 1)))) for name in PARTITIONS},
    )


@st.composite
def account_tables(draw: DrawFn, most: int = 6) -> Accounts:
    """Return forests of accounts and users with shares and, for users, usage."""
    n = draw(st.integers(0, most))
    parent = [draw(st.integers(-1, row - 1)) for row in range(n)]
    user = [row not in parent for row in range(n)]
    usage = [float(draw(st.integers(0, 5))) * 1000.0 if leaf else 0.0 for leaf in user]
    return Accounts.build(
        n,
        name=[f"account{row}" for row in range(n)],
        parent=np.array(parent, np.int32),
        shares=[draw(st.sampled_from([1.0, 2.0, 4.0])) for _ in range(n)],
        is_user=np.array(user, np.bool_),
        usage=usage,
    )


@st.composite
def job_tables(draw: DrawFn, most: int = 6, widest: int = 10, accounts: int = 3) -> Jobs:
    """Return jobs of every kind in order of (submit, id): rigid, moldable, divisible."""
    rows = draw(st.lists(_job(widest, accounts), max_size=most))
    ids = draw(st.permutations(range(len(rows))))
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    jobs = make_jobs(len(rows), **{**columns, "id": np.array(ids, np.int64)})
    return jobs.take(np.lexsort((jobs.id, jobs.submit)))


@st.composite
def _job(draw: DrawFn, widest: int, accounts: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(Kind))
    submit = EPOCH + draw(_seconds)
    size, wall = draw(st.integers(1, widest)), 1.0 + draw(_seconds)
    bends, divides = kind is not Kind.RIGID, kind is Kind.DIVISIBLE
    slack = draw(st.one_of(st.none(), st.floats(0.5, 4.0)))
    return {
        "submit": submit,
        "begin": draw(st.sampled_from([-np.inf, submit, submit + 600.0])),
        "wall_time": draw(st.sampled_from([wall, wall, wall, np.inf])),
        "deadline": np.inf if slack is None else submit + slack * wall,
        "kind": int(kind),
        "size": size,
        "size_min": draw(st.integers(1, size)) if bends else -1,
        "size_max": draw(st.integers(size, widest)) if bends else -1,
        "tasks": draw(st.integers(1, 30)) if kind is Kind.ARRAY else 1,
        "tasks_per_node": draw(st.integers(1, 4)) if kind is Kind.ARRAY else 1,
        "sigma": 100.0 if divides else np.nan,
        "cms": 1.0 if divides else np.nan,
        "cps": draw(st.sampled_from([1.0, 100.0])) if divides else np.nan,
        "partition": draw(st.sampled_from([None, *PARTITIONS, "elsewhere"])),
        "qos": draw(st.sampled_from([None, "normal", "high"])),
        "user": draw(st.sampled_from([None, "ann", "bob"])),
        "association": draw(st.integers(-1, accounts - 1)),
        "nice": float(draw(st.integers(-5, 5))),
    }


@st.composite
def scenes(draw: DrawFn, most: int = 6) -> Scene:
    """Return scenes with up to `most` jobs."""
    cluster, accounts = draw(clusters()), draw(account_tables())
    jobs = draw(job_tables(most, len(cluster) + 2, len(accounts)))
    events = []
    for row, submit in enumerate(jobs.submit.tolist()):
        events.append((submit, EventKind.ARRIVED, row))
        if draw(st.booleans()):
            start = submit + draw(_seconds)
            events.append((start, EventKind.STARTED, row))
            if draw(st.booleans()):
                events.append((start + draw(_seconds), EventKind.ENDED, row))
    events.sort(key=lambda event: event[0])
    last = max([EPOCH, *(time for time, _, _ in events)])
    snapshot = make_snapshot(jobs, cluster, last + draw(_seconds), accounts=accounts)
    return Scene(jobs, snapshot, make_events(jobs, events))


@cache
def sample_scenes(examples: int) -> tuple[Scene, ...]:
    """Return random scenes, the same ones every time, small ones first."""
    found: list[Scene] = []

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=(HealthCheck.too_slow,),
    )
    @given(scenes())
    def collect(scene: Scene) -> None:
        found.append(scene)

    collect()
    return tuple(sorted(found, key=lambda scene: (len(scene.jobs), len(scene.events))))
