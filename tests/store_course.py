"""Random courses of a store's life, and what must be in its database after each step.

A step is one transaction or none. So a crash within step k leaves what was there after step k - 1
or what is there after step k, and nothing in between.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from rtsched.daemon.promises import OPEN, JournalEntry, Promise, PromiseState, encode_schedule
from rtsched.daemon.store import Store
from rtsched.model.cluster import Nodes
from rtsched.model.schedule import Schedule

NOW = 1_795_000_000.0
CLOSED: tuple[PromiseState, ...] = ("kept", "missed", "broken", "withdrawn", "lapsed", "void")
TOKENS = 40


@dataclass(frozen=True)
class Known:
    """What is in a database: the model of a store, in plain values."""

    promises: Mapping[str, Promise] = field(default_factory=dict)
    plan: bytes | None = None
    version: int = 0
    nodes: tuple[str, ...] | None = None
    unused: Mapping[tuple[int, str], tuple[float, ...]] = field(default_factory=dict)
    states: Mapping[str, bytes] = field(default_factory=dict)
    journal: tuple[JournalEntry, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return how many promises are in each state."""
        found = [record.state for record in self.promises.values()]
        return {state: found.count(state) for state in sorted(set(found))}


def closed(store: Store) -> tuple[Promise, ...]:
    """Return the records of promises and offers that are no longer open."""
    return store._records("WHERE standing NOT IN ('offered', 'provisional', 'firm')")


def found(store: Store) -> Known:
    """Return what is in a database; its counts must be right."""
    kept = store.load()
    records = {record.token: record for record in (*kept.promises, *closed(store))}
    known = Known(
        records,
        None if kept.plan is None else encode_schedule(kept.plan),
        kept.version,
        kept.nodes,
        kept.unused,
        kept.states,
        tuple(reversed(store.journal(limit=10**6))),
    )
    assert dict(sorted(store.counts().items())) == known.counts()
    return known


def planned(jobs: int) -> Schedule:
    """Return a plan of so many jobs, of one to three nodes each."""
    sizes = np.arange(jobs) % 3 + 1
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = np.arange(indptr[-1], dtype=np.int32)
    return Schedule.build(np.arange(jobs), NOW + sizes, NOW + 10.0 * sizes, indptr, nodes)


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes
    ----------
    kind : str
        What it does.
    act : callable
        Does it to a store, but for `reopen`; called again after a failure, it does what was not
        done.
    after : Known
        What is in the database then.
    """

    kind: Literal["commit", "states", "journal", "forget", "checkpoint", "reopen"]
    act: Callable[[Store], None]
    after: Known


class Course:
    """A course drawn from a seed: the same one each time."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311
        self._known = Known()
        self._clock = NOW
        self._nodes: Nodes | None = None

    def step(self) -> Step:
        """Return the next step."""
        kinds = ("commit", "states", "journal", "forget", "checkpoint", "reopen")
        (kind,) = self._rng.choices(kinds, (60, 8, 8, 6, 6, 2))
        self._clock += 1.0
        step: Step = getattr(self, f"_{kind}")()
        self._known = step.after
        return step

    def _record(self) -> Promise:
        rng = self._rng
        return Promise(
            token=f"t{rng.randrange(TOKENS)}",
            id=rng.randrange(10**6),
            uid=rng.randrange(3),
            user="ann",
            deadline=self._clock + 3600.0,
            made_at=self._clock,
            state=rng.choice((*OPEN, *CLOSED)),
            changed_at=self._clock,
            why="",
            job=rng.randbytes(rng.randrange(20, 600)),
        )

    def _commit(self) -> Step:
        rng, before = self._rng, self._known
        records = [self._record() for _ in range(rng.randint(1, 4))]
        plan = planned(rng.randint(0, 60)) if rng.random() < 0.8 else None
        if rng.random() < 0.2:
            names = [f"n{k}" for k in range(rng.randint(1, 30))]
            self._nodes = Nodes.build(len(names), name=names)
        nodes, unused = self._nodes, before.unused
        if rng.random() < 0.2:
            unused = {(rng.randrange(3), "offered"): (self._clock, self._clock + 0.25)}
        version = before.version + 1
        after = replace(
            before,
            promises={**before.promises, **{record.token: record for record in records}},
            plan=before.plan if plan is None else encode_schedule(plan),
            version=version,
            nodes=before.nodes if nodes is None else tuple(map(str, nodes.texts("name"))),
            unused=unused,
        )
        return Step(
            "commit", lambda store: store.commit(records, plan, version, nodes, unused), after
        )

    def _states(self) -> Step:
        states = {self._rng.choice("abc"): self._rng.randbytes(self._rng.randrange(3000))}
        after = replace(self._known, states={**self._known.states, **states})
        return Step("states", lambda store: store.save_states(states), after)

    def _journal(self) -> Step:
        job = str(self._rng.randrange(100))
        notes = [
            JournalEntry(
                self._clock, 1, job, "sim", "reject", ("a.b",), "no" * self._rng.randrange(99)
            )
            for _ in range(self._rng.randint(1, 3))
        ]
        left = list(notes)

        def act(store: Store) -> None:
            while left:
                store.note(left.pop(0))
            store.flush()

        return Step("journal", act, replace(self._known, journal=(*self._known.journal, *notes)))

    def _forget(self) -> Step:
        before = self._clock - self._rng.randrange(1, 60)
        records = {
            token: record
            for token, record in self._known.promises.items()
            if record.state in OPEN or record.changed_at >= before
        }
        after = replace(self._known, promises=records)
        return Step("forget", lambda store: void(store.forget(before)), after)

    def _checkpoint(self) -> Step:
        return Step("checkpoint", lambda store: store.tidy(-np.inf), self._known)

    def _reopen(self) -> Step:
        return Step("reopen", void, self._known)


def void(_value: object) -> None:
    """Return nothing."""
