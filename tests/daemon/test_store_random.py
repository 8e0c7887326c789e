"""The store against a model of plain dicts: any sequence of what a daemon does with it."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_course import CLOSED, NOW, Known, found, planned

import rtsched.daemon.store
from rtsched.daemon.promises import OPEN, JournalEntry, Promise, PromiseState, encode_schedule
from rtsched.daemon.store import Store
from rtsched.model.cluster import Nodes

ROWS, AT_ONCE, FORGOTTEN = 8, 3, 6
"""Limits of the store in these tests, so small that they are met."""

times = st.integers(0, 9).map(lambda k: NOW + k)
records = st.builds(
    Promise,
    token=st.sampled_from([f"t{k}" for k in range(12)]),
    id=st.integers(1, 5),
    uid=st.integers(0, 3),
    user=st.sampled_from(["ann", "bob", "\u00e4\u00f6"]),
    deadline=times,
    made_at=times,
    state=st.sampled_from((*OPEN, *CLOSED)),
    changed_at=times,
    why=st.sampled_from(["", "a node failed while the job ran"]),
    job=st.binary(max_size=40),
    expires=times,
)
notes = st.builds(
    JournalEntry,
    time=times,
    uid=st.integers(0, 2),
    job=st.sampled_from(["", "7", "8"]),
    name=st.just("sim"),
    verdict=st.sampled_from(["admit", "reject"]),
    codes=st.just(("a.b",)),
    text=st.text("nothing", max_size=9),
    offer=times,
    token=st.sampled_from(["", "t1", "t2"]),
)
quotas = st.dictionaries(
    st.tuples(st.integers(0, 2), st.sampled_from(["offered", "provisional"])),
    st.lists(times, min_size=1, max_size=3).map(tuple),
    max_size=3,
)


class Sequences(RuleBasedStateMachine):
    """A store, what must be in it, and verdicts that are not on the disk yet."""

    @initialize()
    def begin(self) -> None:
        """Make a new database."""
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / "0" / "rtsched.db"
        self.path.parent.mkdir()
        self.known, self.noted = Known(), tuple[JournalEntry, ...]()
        self.opened(self.path)

    def opened(self, path: Path) -> None:
        """Open a database, as a daemon that starts."""
        self.path, self.store = path, Store(path)
        self.store.load()

    @rule(
        changed=st.lists(records, max_size=5),
        jobs=st.none() | st.integers(0, 5),
        names=st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
        unused=st.none() | quotas,
    )
    def commit(
        self,
        changed: list[Promise],
        jobs: int | None,
        names: tuple[str, ...] | None,
        unused: dict[tuple[int, PromiseState], tuple[float, ...]] | None,
    ) -> None:
        """Commit records and what goes with them, or leave that as it is."""
        known, plan = self.known, None if jobs is None else planned(jobs)
        nodes = None if names is None else Nodes.build(len(names), name=names or None)
        self.store.commit(changed, plan, known.version + 1, nodes, unused)
        self.known = replace(
            known,
            promises={**known.promises, **{record.token: record for record in changed}},
            plan=known.plan if plan is None else encode_schedule(plan),
            version=known.version + 1,
            nodes=known.nodes if names is None else names,
            unused=known.unused if unused is None else unused,
        )

    @rule(states=st.dictionaries(st.sampled_from("ab"), st.binary(max_size=9)))
    def save_states(self, states: dict[str, bytes]) -> None:
        """Write down some plug-ins' states."""
        self.store.save_states(states)
        self.known = replace(self.known, states={**self.known.states, **states})

    @rule(said=st.lists(notes, max_size=ROWS + 2))
    def note(self, said: list[JournalEntry]) -> None:
        """Note verdicts."""
        for decision in said:
            self.store.note(decision)
        self.noted = (*self.noted, *said)[-ROWS:]

    @rule()
    def flush(self) -> None:
        """Write the journal."""
        self.store.flush()
        self.known = replace(self.known, journal=(*self.known.journal, *self.noted)[-ROWS:])
        self.noted = ()

    @rule(before=times)
    def forget(self, before: float) -> None:
        """Delete the oldest of what was closed before then."""
        closed = [r for r in self.known.promises.values() if r.state in CLOSED]
        old = sorted((r.changed_at, r.token) for r in closed if r.changed_at < before)
        gone = {token for _, token in old[:FORGOTTEN]}
        assert self.store.forget(before) == len(gone)
        left = {token: r for token, r in self.known.promises.items() if token not in gone}
        self.known = replace(self.known, promises=left)

    @rule()
    def tidy(self) -> None:
        """Write the journal, and move all into the file proper."""
        self.store.tidy(NOW)
        self.known = replace(self.known, journal=(*self.known.journal, *self.noted)[-ROWS:])
        self.noted = ()

    @rule()
    def reopen(self) -> None:
        """End in good order, and start again."""
        self.flush()
        self.store.close()
        self.opened(self.path)

    @rule()
    def kill(self) -> None:
        """Go on with what a killed daemon leaves: its files as they are now."""
        place = self.directory / str(len(list(self.directory.iterdir())))
        shutil.copytree(self.path.parent, place, ignore=shutil.ignore_patterns("*-shm"))
        self.store.close()
        self.noted = ()
        self.opened(place / "rtsched.db")

    @invariant()
    def all_is_there(self) -> None:
        """Compare records, plan, nodes, quotas, states, journal and counts with the model."""
        journal = (*self.known.journal, *self.noted)
        assert found(self.store) == replace(self.known, journal=journal)

    @invariant()
    def questions_are_answered(self) -> None:
        """Ask by job, user and admission, and for what is open and what was closed, in order."""
        known, store = self.known, self.store
        journal = tuple(reversed((*known.journal, *self.noted)))
        assert store.journal(uid=1) == tuple(d for d in journal if d.uid == 1)
        assert store.journal(job="7", limit=2) == tuple(d for d in journal if d.job == "7")[:2]
        admission = "t1"
        said = tuple(d for d in journal if d.token == admission)
        assert store.journal(token=admission) == said
        records = known.promises.values()
        assert {r.token for r in store.find(3)} == {r.token for r in records if r.id == 3}
        opened = sorted((r.made_at, r.token) for r in records if r.state in OPEN)
        assert [(r.made_at, r.token) for r in store.open_promises()] == opened

    def teardown(self) -> None:
        """Remove the databases."""
        self.store.close()
        shutil.rmtree(self.directory)


@pytest.fixture(autouse=True, scope="module")
def small() -> object:
    """Make the store's limits small."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "JOURNAL_ROWS": ROWS,
            "AT_ONCE": AT_ONCE,
            "FORGOTTEN": FORGOTTEN,
            "PAUSE": 0.0,
        }.items():
            patch.setattr(rtsched.daemon.store, name, value)
        yield


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=25, stateful_step_count=25)
