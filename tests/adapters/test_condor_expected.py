"""Procs that are expected to be as they were: the schedd compares them, and the rest is read."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor import queue_reader
from rtsched.adapters.condor.ids import cluster_at, job_id
from rtsched.adapters.condor.queue_reader import ExpectedProcs, ProcReader, condition_of, stated_of
from rtsched.adapters.condor.schedd import Bindings, Schedd
from rtsched.logs.classads import Expression, Record

classad2 = pytest.importorskip("classad2")

READ = ("ClusterId", "ProcId", "JobUniverse", "RtDeadline", "RequestCpus", "Owner", "JobPrio")


class GivenSchedd(Schedd):
    """A schedd that has a queue: text of attributes by (cluster, proc)."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(Bindings(20.0), number=number)
        self.queue: dict[tuple[int, int], str] = {}
        self.handed_over: list[int] = []

    def _job_ads(self, constraint: str, attributes: Sequence[str]) -> list[Any]:
        holds, found = classad2.ExprTree(constraint), []
        for (cluster, proc), said in self.queue.items():
            ad = classad2.ClassAd(f"[ClusterId = {cluster}; ProcId = {proc}; {said}]")
            if holds.eval(ad) is True:
                kept = {name: ad.lookup(name) for name in attributes if name in ad}
                found.append(classad2.ClassAd(kept))
        self.handed_over.append(len(found))
        return found


@pytest.fixture(autouse=True)
def _short() -> Iterator[None]:
    """Have short queues and clusters be compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_reader, "FEWEST", 1)
        patch.setattr(queue_reader, "ALIKE", 2)
        yield


def read_by(reader: ProcReader, schedd: Schedd) -> dict[int, Record]:
    """Return the ads by the numbers of their procs."""
    proc, ads = reader.read(schedd, READ)
    numbers = [job_id(int(str(ad["clusterid"])), each) for ad, each in zip(ads, proc, strict=True)]
    assert len(set(numbers)) == len(numbers)
    return dict(zip(numbers, ads, strict=True))


PLAIN = 'JobUniverse = 5; RequestCpus = 1; Owner = "ann"'


def test_only_who_is_not_as_expected_is_read_again() -> None:
    """Of ten procs one is changed, one is gone, and one has come: of nine it is asked if they are.

    The second poll asks who is there (10), and who differs (2); the third one finds one who does.
    """
    schedd = GivenSchedd()
    schedd.queue = {(7, proc): PLAIN for proc in range(10)}
    reader = ProcReader()
    before = read_by(reader, schedd)
    del schedd.queue[7, 3]
    schedd.queue[7, 4] = PLAIN.replace("1;", "2;")
    schedd.queue[8, 0] = PLAIN
    after = read_by(reader, schedd)
    changed: Record = {"clusterid": 7, "jobuniverse": 5, "requestcpus": 2, "owner": "ann"}
    new: Record = {"clusterid": 8, "jobuniverse": 5, "requestcpus": 1, "owner": "ann"}
    del before[job_id(7, 3)]
    assert after == before | {job_id(7, 4): changed, job_id(8, 0): new}
    assert after[job_id(7, 5)] is before[job_id(7, 5)]
    assert schedd.handed_over == [10, 10, 2]
    schedd.queue[7, 4] = PLAIN
    assert read_by(reader, schedd)[job_id(7, 4)] is before[job_id(7, 5)]
    assert schedd.handed_over == [10, 10, 2, 10, 1]


def test_clusters_of_another_schedd_have_its_number() -> None:
    """They differ from those of the first one, and are asked for as that schedd knows them."""
    schedd, reader = GivenSchedd(3), ProcReader()
    schedd.queue = {(cluster, proc): PLAIN for cluster in (7, 8) for proc in range(5)}
    every = {job_id(cluster_at(3, cluster), proc) for cluster, proc in schedd.queue}
    assert set(read_by(reader, schedd)) == every
    del schedd.queue[7, 3]
    schedd.queue[8, 4] = PLAIN.replace("1;", "2;")
    after = read_by(reader, schedd)
    assert set(after) == every - {job_id(cluster_at(3, 7), 3)}
    assert after[job_id(cluster_at(3, 8), 4)]["requestcpus"] == 2
    assert schedd.handed_over == [10, 9, 1]


@pytest.mark.parametrize(
    "changed",
    [
        'JobUniverse = 5; RequestCpus = 1; Owner = "Ann"',
        'JobUniverse = 5; RequestCpus = 1.0; Owner = "ann"',
        'JobUniverse = 5; RequestCpus = true; Owner = "ann"',
        'JobUniverse = 5; RequestCpus = error; Owner = "ann"',
        'JobUniverse = 5; Owner = "ann"',
        f"{PLAIN}; JobPrio = 0",
        f"{PLAIN}; JobPrio = error",
        f"{PLAIN}; RtDeadline = 5",
        f"{PLAIN}; RtDeadline = no_such_thing",
        f"{PLAIN}; RtDeadline = error",
    ],
)
def test_any_change_is_seen(changed: str) -> None:
    """Types, case, attributes that were not there, and what comes out undefined."""
    schedd = GivenSchedd()
    schedd.queue = {(7, proc): PLAIN for proc in range(10)}
    reader = ProcReader()
    read_by(reader, schedd)
    schedd.queue[7, 4] = changed
    read_by(reader, schedd)
    assert schedd.handed_over == [10, 10, 1]


ads = st.sampled_from(
    [
        PLAIN,
        f"{PLAIN}; JobPrio = 5",
        f'{PLAIN}; RtDeadline = "x"',
        PLAIN.replace("1;", "1 + JobPrio;"),
    ]
)
queues = st.dictionaries(st.tuples(st.integers(1, 4), st.integers(0, 3)), ads)


@given(st.lists(queues, min_size=2, max_size=5))
def test_polls_show_what_is_there(course: list[dict[tuple[int, int], str]]) -> None:
    """As if all were read each time, whatever comes, goes and changes in between."""
    schedd = GivenSchedd()
    reader = ProcReader()
    for queue in course:
        schedd.queue = queue
        assert read_by(reader, schedd) == read_by(ProcReader(), schedd)


def test_other_attributes_are_read_of_all() -> None:
    """Nothing is known of them."""
    schedd = GivenSchedd()
    schedd.queue = {(7, proc): PLAIN for proc in range(10)}
    reader = ProcReader()
    reader.read(schedd, READ)
    reader.read(schedd, (*READ, "Cmd"))
    assert schedd.handed_over == [10, 10]


def test_what_is_stated() -> None:
    """What is there by its value, what is not together; of users' wishes by their text."""
    ad: Record = {"owner": "ann", "jobprio": -3, "requestcpus": 1.5, "wants": True}
    stated = stated_of(
        ad, ("ClusterId", "Owner", "JobPrio", "RequestCpus", "wants", "RtDag", "A", "B")
    )
    assert stated is not None
    assert condition_of(stated, 7) == (
        'ClusterId == 7 && Owner =?= "ann" && JobPrio =?= -3 && RequestCpus =?= 1.5 && '
        'wants =?= true && strcat(unparse(RtDag)) =?= "" && (A ?: B) =?= undefined'
    )


@pytest.mark.parametrize(
    "value", [Expression("a + 1"), 'say "x"', "back\\slash", "ä", "line\n", float("inf"), 1 << 62]
)
def test_what_cannot_be_stated(value: Any) -> None:
    """Such procs are read at each poll."""
    assert stated_of({"a": value}, ("A",)) is None


def test_the_constraint_finds_the_cluster_in_few_steps() -> None:
    """What all clusters have in common stands before it, once."""
    ads: dict[int, Record] = {at: {"clusterid": at, "a": 1, "b": at % 2} for at in range(1, 4)}
    found = ExpectedProcs.of(
        [ads[at] for at in (1, 2, 3) for _ in range(2)], ("ClusterId", "A", "B")
    )
    assert found.constraint == (
        "true && A =?= 1 && (ClusterId < 2 ? (ClusterId == 1 && B =?= 1) : "
        "(ClusterId < 3 ? (ClusterId == 2 && B =?= 0) : (ClusterId == 3 && B =?= 1)))"
    )


def test_short_queues_and_those_of_single_jobs_are_read_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There it would take longer to ask twice: 3 of 4 procs are alike, and 2 of 5."""
    one: Record = {"clusterid": 1}
    others: list[Record] = [{"clusterid": at} for at in range(2, 5)]
    attributes = ("ClusterId",)
    assert ExpectedProcs.of([one, one, one, *others[:1]], attributes) is not None
    assert ExpectedProcs.of([one, one, *others], attributes) is None
    monkeypatch.setattr(queue_reader, "FEWEST", 5)
    assert ExpectedProcs.of([one, one, one, *others[:1]], attributes) is None
