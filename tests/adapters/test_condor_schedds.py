"""Several access points: numbers that cannot collide, and one of them that is away."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_condor_observation import NOW, Polls, Shown, ad, claimed, runs, slot

from rtsched.adapters.condor import schedd as schedds
from rtsched.adapters.condor import system as observers
from rtsched.adapters.condor.completions import find_completions
from rtsched.adapters.condor.ids import (
    CLUSTER_BITS,
    PROC_BITS,
    SCHEDDS,
    JobNames,
    cluster_at,
    job_id,
    name_of,
    schedd_of,
)
from rtsched.adapters.condor.pool import Pool
from rtsched.adapters.condor.requirements import requirements_of
from rtsched.adapters.condor.schedd import Bindings, Schedd
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.live import FIRST_OWN_ID, CompletionStatus
from rtsched.adapters.wire import Tag
from rtsched.errors import AdapterError
from rtsched.model.cluster import NodeState

NAMES = JobNames(("submit1.example", "cms@submit2.example", "submit3.example"))
SILENCE = "the schedd there does not answer"
PLACES = st.tuples(
    st.integers(0, 2), st.integers(0, (1 << CLUSTER_BITS) - 1), st.integers(0, (1 << PROC_BITS) - 1)
)


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass."""
    monkeypatch.setattr(observers.time, "time", lambda: NOW)


@given(PLACES, PLACES)
def test_numbers_are_those_of_one_job(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    """Different jobs have different numbers and names, all below those of rtsched itself."""
    first, second = (job_id(cluster_at(at, cluster), proc) for at, cluster, proc in (one, other))
    assert (first == second) == (one == other) == (NAMES.of(first) == NAMES.of(second))
    assert NAMES.number(NAMES.of(first)) == first
    assert schedd_of(first) == one[0]
    assert name_of(first) == f"{one[1]}.{one[2]}"
    greatest = job_id(cluster_at(SCHEDDS - 1, (1 << CLUSTER_BITS) - 1), (1 << PROC_BITS) - 1)
    assert 0 <= first <= greatest < FIRST_OWN_ID


def test_what_users_call_a_job() -> None:
    """Its GlobalJobId, or the beginning of it; with several schedds a bare number is no name."""
    job = job_id(cluster_at(1, 12), 3)
    assert NAMES.of(job) == "cms@submit2.example#12.3"
    for name in ("CMS@submit2.example#12.3", "cms@submit2.example#12.3#1700000000"):
        assert NAMES.number(name) == job
    for name in ("12.3", "12", "elsewhere#12.3", "#12.3", "cms@submit2.example#12.x"):
        assert NAMES.number(name) == -1
    assert NAMES.number("12.3", 1) == job
    assert JobNames().number("12.3") == job_id(12, 3)
    assert JobNames().number("here#12.3") == -1


def test_settings() -> None:
    """One schedd or several, each once; an empty name keeps a place."""
    assert set(Pool(CondorSettings(schedds=["a", "", "b"])).schedds) == {0, 2}
    for wrong in (
        {"schedd": "a", "schedds": ["b"]},
        {"schedds": ["a", "A"]},
        {"schedds": ["", ""]},
    ):
        with pytest.raises(ValueError, match="schedds"):
            CondorSettings(**wrong)


def submission(schedd: str, **more: object) -> Any:
    """Return what a submission of cluster 12 to a schedd means."""
    said: dict[str, object] = {"ClusterId": 12, "ProcId": 0, "Owner": "root", "JobUniverse": 5}
    said |= {"RtRunTime": 60, "RtDeadline": NOW + 9000} | more
    lines = [f'GlobalJobId = "{schedd}#12.0#1"']
    lines += [
        f"{name} = {value!r}".replace("'", '"') if isinstance(value, str) else f"{name} = {value}"
        for name, value in said.items()
    ]
    translator = CondorTranslator(CondorSettings(schedds=list(NAMES.schedds)))
    return translator.describe({Tag.AD: "\n".join(lines)}, None, NOW)


def test_a_submission_is_of_the_schedd_that_asks() -> None:
    """Whose name its GlobalJobId begins with; another one gets no promise."""
    found = [submission(name) for name in NAMES.schedds]
    assert [each.job for each in found] == [job_id(cluster_at(at, 12), 0) for at in range(3)]
    assert [each.problem for each in found] == [""] * 3
    stranger = submission("flock.example.net")
    assert stranger.problem == (
        "its access point 'flock.example.net' is not in the site's [condor] schedds"
    )


def test_jobs_depend_on_those_of_their_own_schedd() -> None:
    """A plain name in RtAfter is one of the same schedd, a whole one any."""
    after = "11.0 submit1.example#11.0"
    found = submission("submit3.example", RtAfter=after)
    assert found.edges.before.tolist() == [job_id(cluster_at(2, 11), 0), job_id(11, 0)]
    managed = ad(cluster_at(2, 12), rtdeadline=NOW + 5000, dagmanjobid=cluster_at(2, 9))
    assert requirements_of(managed, Polls(slot("s@a"))().facts).dag == cluster_at(2, 9)


class Two(Polls):
    """Polls a pool with two schedds, `other` beside the first."""

    def __init__(self, *slots: Any) -> None:
        super().__init__(*slots, schedds=["here", "there"])
        self.other = Shown((), name="there")
        self.pool.schedds[1] = self.other


@pytest.fixture
def two() -> Two:
    """Return a pool with four slots, three of which schedds have, one of them a third one."""
    taken = [claimed(f"slot{at + 1}@a", by) for at, by in enumerate(("here", "there", "elsewhere"))]
    return Two(*taken, slot("s@b"))


def at_other(record: Any) -> Any:
    """Return a record as the second schedd hands it over."""
    return record | {"clusterid": cluster_at(1, record["clusterid"])}


def test_queues_of_two_schedds_are_one(two: Two) -> None:
    """Jobs of one number are two; slots that a third schedd has are others'."""
    two.other.shown_jobs = [at_other(runs(1, on="slot2@a")), at_other(ad(2))]
    view = two(runs(1), ad(2))
    queued, running = view.observation.queued, view.observation.running
    assert sorted(queued.labels()) == ["here#2.0", "there#2.0"]
    assert sorted(running.labels()) == ["here#1.0", "there#1.0"]
    assert len(view.observation.allocations) == 2
    states = dict(
        zip(
            view.observation.cluster.nodes.names("name"),
            view.observation.cluster.nodes.state.tolist(),
            strict=True,
        )
    )
    assert len({states[name] for name in ("slot1@a", "slot2@a", "s@b")}) == 1
    assert states["slot3@a"] != states["slot1@a"]


def test_a_schedd_that_is_away_keeps_its_jobs(two: Two) -> None:
    """They count as they were, a sentence says so, and the others' go on."""
    two.other.shown_jobs = [at_other(ad(2))]
    before = two(ad(2))
    two.other.silence = SILENCE
    after = two(ad(2), ad(3))
    assert sorted(after.observation.queued.labels()) == ["here#2.0", "here#3.0", "there#2.0"]
    assert f"{SILENCE}; its jobs count as they were 0 s ago" in after.observation.problems
    two.other.silence, two.other.shown_jobs = "", []
    assert sorted(two(ad(2)).observation.queued.labels()) == ["here#2.0"]
    assert not before.observation.problems


def test_a_schedd_of_which_the_collector_no_longer_knows_is_away(two: Two) -> None:
    """Its claims are no strangers' all the same."""
    two.other.shown_jobs = [at_other(runs(1, on="slot2@a"))]
    two()
    two.other.silence = SILENCE
    two.other.identity = two.other.fail
    after = two(ad(2))
    assert after.away == {1}
    assert after.observation.running.labels() == ["there#1.0"]
    assert after.observation.cluster.nodes.state.tolist().count(int(NodeState.UP)) >= 3


class Slow(Schedd):
    """A schedd whose questions take as long as they are said to, and fail while it is away."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__(Bindings(20.0), "there", 1, alone=False)
        self.clock, self.away, self.asked = clock, True, 0

    def _schedd(self) -> Any:
        self.asked += 1
        self.clock[0] += 5.0
        if self.away:
            raise AdapterError(SILENCE)
        return SimpleNamespace(query=lambda *_: [])


def test_a_schedd_that_is_slow_to_fail_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ten times as long as it took, so that the polls of the others go on."""
    clock = [100.0]
    monkeypatch.setattr(schedds.time, "monotonic", lambda: clock[0])
    schedd = Slow(clock)
    for asked in (1, 1):
        with pytest.raises(AdapterError, match=SILENCE):
            schedd.jobs("true", ())
        assert schedd.asked == asked
    clock[0] += 50.0
    schedd.away = False
    assert schedd.jobs("true", ()) == []


def test_a_schedd_that_never_answered_lets_no_promise_be_forgotten(two: Two) -> None:
    """Its promised jobs would seem to have left the queue."""
    two.other.silence = SILENCE
    with pytest.raises(AdapterError, match=SILENCE):
        two(ad(2))


def test_ends_at_a_schedd_that_is_away_are_not_known(two: Two) -> None:
    """Those at the other one are."""
    two.pool.shown_past = [ad(5, jobstatus=4, completiondate=int(NOW), exitcode=0)]
    two.other.silence = SILENCE
    pool: Any = two.pool
    jobs = [job_id(5, 0), job_id(cluster_at(1, 5), 0)]
    found = find_completions(pool, jobs)
    assert found.job.tolist() == jobs
    assert found.status.tolist() == [CompletionStatus.COMPLETED, CompletionStatus.UNANSWERED]
