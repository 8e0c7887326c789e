"""The replay engine: the chain is asked as live, its answers take effect, and are kept."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import workload_of

from rtsched.core.capabilities import Capabilities
from rtsched.core.chain import Answer, Judgement
from rtsched.core.config import Mode, PluginTable
from rtsched.core.hookspecs import hookimpl
from rtsched.core.plugins import Found, discover
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Accounts, Snapshot
from rtsched.model.state import EventKind, State
from rtsched.model.verdicts import Finding, Placement, Reason, Terms, Verdict, Verdicts
from rtsched.replay.decisions import Decisions
from rtsched.replay.engine import replay
from rtsched.replay.policies import Policy, presets
from rtsched.replay.results import PolicyRun, Workload
from rtsched_plugins.multifactor import Multifactor

NODES = 16


def workload(n: int = 300, seed: int = 5, *, deadlines: float = 0.0) -> Workload:
    """Return a busy random workload; a share of the jobs, `deadlines`, has one."""
    rng = np.random.default_rng(seed)
    run = np.ceil(rng.lognormal(4, 1, n))
    wall = np.ceil(run * rng.uniform(1, 3, n))
    submit = np.cumsum(rng.integers(0, 60, n)).astype(np.float64) + 1e9
    due = np.where(rng.random(n) < deadlines, submit + 3 * wall, np.inf)
    user = rng.integers(0, 4, n).astype(np.int32)
    jobs = Jobs.build(
        n,
        names={"user": ("a", "b", "c", "d")},
        id=np.arange(n) + 7,
        submit=submit,
        wall_time=wall,
        size=rng.integers(1, 9, n),
        deadline=due,
        user=user,
        association=user,
    )
    accounts = Accounts.build(4, name=["a", "b", "c", "d"], is_user=True, shares=[1.0, 2, 3, 4])
    cluster = Cluster.uniform(NODES)
    return workload_of(jobs, run, cluster, accounts=accounts)


def installed(name: str, plugin: type) -> Found:
    """Return a class as if a plug-in of that name were installed."""
    return Found(name, "test", "1", lambda: plugin)


def found(**plugins: type) -> dict[str, Found]:
    """Return the installed plug-ins and these classes as if they were installed too."""
    return discover() | {name: installed(name, kind) for name, kind in plugins.items()}


def run(
    work: Workload, *tables: PluginTable, planner: str | None = None, **plugins: type
) -> PolicyRun:
    """Replay under EASY with these plug-ins; in order of priority if one gives any."""
    easy = presets()["easy"]
    shares = {"multifactor", "oldest", "slow"}
    ordered = any(table.name in shares and table.mode == "enforce" for table in tables)
    system = easy.system if not ordered else presets()["multifactor"].system
    policy = Policy(system=system, planner=planner, plugin=list(tables))
    return replay(work, "test", policy, found=found(**plugins))


def same(left: PolicyRun, right: PolicyRun) -> bool:
    """Return whether two runs came out alike, job by job and node by node."""
    columns = ("start", "end", "size", "fate", "first_node")
    equal = [
        np.array_equal(left.results.column(name), right.results.column(name), equal_nan=True)
        for name in columns
    ]
    return all(equal) and np.array_equal(left.node_rows[1], right.node_rows[1])


class RejectWide:
    """Turn away jobs of more than four nodes."""

    wide = Reason("test.wide", "asks for {asked} nodes")

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs) -> Verdicts:
        """Judge by the jobs alone: static."""
        return Verdicts.reject_where(jobs.size > 4, self.wide, asked=jobs.size)


class RejectWideDynamic(RejectWide):
    """Do the same, but say that it looks at the state."""

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts:
        """Judge at every submission: dynamic."""
        assert snapshot.now == pytest.approx(float(jobs.submit[0]))
        return super().rtsched_admit(jobs)


class Failing:
    """Raise whenever asked."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts:
        """Fail."""
        raise RuntimeError(f"{len(jobs)} jobs at {snapshot.now}")


class Later:
    """Put every job off until an hour after its submission."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts:
        """Defer until then."""
        due = jobs.submit + 3600.0
        code = np.where(snapshot.now < due, Verdict.DEFER, Verdict.ADMIT)
        return Verdicts.build(code, retry_at=due)


class Seen(State, frozen=True):
    """How many events of each kind were seen."""

    kinds: Any


class Counting:
    """Count events."""

    last: Seen | None = None

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_observe(self, events: Any, state: Seen | None) -> Seen:
        """Add up."""
        before = np.zeros(5, np.int64) if state is None else state.kinds
        after = Seen(before + np.bincount(events.rows.kind, minlength=5))
        Counting.last = after
        return after


class SlowMultifactor(Multifactor):
    """The same plug-in without its compiled form."""

    capabilities = Capabilities()


class Oldest:
    """Order by submission, looking at the state."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_fair_share(self, jobs: Jobs, snapshot: Snapshot) -> Terms:
        """Give the older job the higher term."""
        return Terms({"age": 1.0 - 1e-6 * (jobs.submit - 1e9) + 0.0 * snapshot.now})


def test_equal_arguments_give_equal_runs() -> None:
    """Nothing depends on anything but workload and policy."""
    work = workload(deadlines=0.5)
    for name in ("easy", "multifactor", "mcdf"):
        assert same(replay(work, name, presets()[name]), replay(work, name, presets()[name]))


@pytest.mark.parametrize("plugin", [RejectWide, RejectWideDynamic], ids=["static", "dynamic"])
def test_rejections_take_effect_with_reason_and_books(plugin: type) -> None:
    """Wide jobs are rejected, whether asked once in a batch or at every submission."""
    work = workload()
    done = run(work, PluginTable("wide"), wide=plugin)
    wide = work.jobs.size > 4
    assert ((done.results.fate == FinalState.REJECTED) == wide).all()
    assert set(done.results.texts("reason")) == {None, "test.wide"}
    assert np.isnan(done.results.start[wide]).all()
    book = done.hooks["admit"]["wide"]
    assert (book.judged, book.changed) == (len(work.jobs), int(wide.sum()))
    assert book.calls == (1 if plugin is RejectWide else len(np.unique(work.jobs.submit)))
    first = next(iter(done.decisions))
    assert (first["plugin"], first["verdict"], first["reason"]) == ("wide", "reject", "test.wide")


class RejectTight(RejectWide):
    """Turn away deadlines within five minutes, looking at the state."""

    capabilities = Capabilities(judges_only_deadlines=True)
    tight = Reason("test.tight", "leaves {left:time}")

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts:
        """Judge at the submission of a job with a deadline."""
        left = jobs.deadline - snapshot.now
        return Verdicts.reject_where(left < 300.0, self.tight, left=left)


def test_who_judges_only_deadlines_is_not_asked_about_other_jobs() -> None:
    """Unless another plug-in is asked about all jobs: they are asked together."""
    work = workload(deadlines=0.3)
    due = np.isfinite(work.jobs.deadline)
    done = run(work, PluginTable("tight"), tight=RejectTight)
    tight = work.jobs.deadline - work.jobs.submit < 300.0
    assert 0 < tight.sum() < due.sum() < len(due)
    assert ((done.results.fate == FinalState.REJECTED) == tight).all()
    times = np.unique(work.jobs.submit[due])
    book = done.hooks["admit"]["tight"]
    assert book.calls == len(times)
    assert book.judged == np.isin(work.jobs.submit, times).sum()
    both = run(
        work, PluginTable("tight"), PluginTable("wide"), tight=RejectTight, wide=RejectWideDynamic
    )
    assert both.hooks["admit"]["wide"].judged == len(due)


@pytest.mark.parametrize("mode", ["shadow", "warn", "off"])
def test_only_enforced_answers_count(mode: Any) -> None:
    """A shadow or a warning is recorded and changes nothing; off is not even asked."""
    work = workload()
    done = run(work, PluginTable("wide", mode=mode), wide=RejectWideDynamic)
    assert same(done, run(work))
    assert len(list(done.decisions)) == (0 if mode == "off" else int((work.jobs.size > 4).sum()))


def test_failing_plugin_is_counted_and_the_others_go_on() -> None:
    """By default a failure counts as no opinion."""
    work = workload()
    done = run(work, PluginTable("bad"), PluginTable("wide"), bad=Failing, wide=RejectWide)
    assert same(done, run(work, PluginTable("wide"), wide=RejectWide))
    book = done.hooks["admit"]["bad"]
    assert book.errors == book.calls > 0
    assert "RuntimeError" in book.first_error


def test_failing_plugin_can_hold_jobs_back() -> None:
    """With on_error = defer nothing starts while it fails, and the reason says so."""
    done = run(workload(30), PluginTable("bad", on_error="defer"), bad=Failing)
    assert (done.results.fate == FinalState.UNFINISHED).all()
    assert set(done.results.texts("reason")) == {"plugin.failed"}


def test_deferred_jobs_are_asked_again_when_they_said() -> None:
    """No job starts within the hour for which it is put off."""
    work = workload(60)
    done = run(work, PluginTable("later"), later=Later)
    assert (done.results.fate == FinalState.FINISHED).all()
    assert (done.results.start >= work.jobs.submit + 3600).all()
    assert done.hooks["admit"]["later"].judged >= 2 * len(work.jobs)


def test_observers_are_told_everything_once() -> None:
    """Every job arrives, starts and ends once, and nothing is told twice."""
    work = workload()
    run(work, PluginTable("counting"), counting=Counting)
    kinds = Counting.last.kinds
    assert kinds[[EventKind.ARRIVED, EventKind.STARTED, EventKind.ENDED]].tolist() == [300] * 3


def test_compiled_form_of_multifactor_decides_like_the_python_form() -> None:
    """Asked from compiled code or through the chain, at the same instants, with one outcome."""
    work = workload(200)
    settings = {"weight_age": 1000.0, "weight_fair_share": 5000.0, "weight_job_size": 100.0}
    fast = run(work, PluginTable("multifactor", settings=settings))
    slow = run(work, PluginTable("slow", settings=settings), slow=SlowMultifactor)
    assert same(fast, slow)
    assert not same(fast, run(work))
    left, right = fast.hooks["fair_share"]["multifactor"], slow.hooks["fair_share"]["slow"]
    assert (left.calls, left.judged) == (right.calls, right.judged)


def test_open_fair_share_is_asked_at_every_decision() -> None:
    """Submission order as a priority is EASY itself, asked while jobs wait and nodes are free."""
    work = workload()
    done = run(work, PluginTable("oldest"), oldest=Oldest)
    assert same(done, run(work))
    assert done.hooks["fair_share"]["oldest"].calls > 100


class Upper:
    """Bind jobs to the upper half of the nodes, looking at the jobs alone."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_partition(self, jobs: Jobs) -> Placement:
        """Name one node set for all."""
        n = len(jobs)
        nodes = np.arange(NODES // 2, NODES, dtype=np.int32)
        return Placement(np.zeros(n, np.int32), np.zeros(n, np.int32), (nodes,))


class UpperOpen(Upper):
    """Do the same, but say that it looks at the state."""

    @hookimpl
    def rtsched_partition(self, jobs: Jobs, snapshot: Snapshot) -> Placement:
        """Be asked at every pass."""
        assert snapshot.now >= 1e9
        return super().rtsched_partition(jobs)


class BySize:
    """Order by size, looking at the jobs alone."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_fair_share(self, jobs: Jobs) -> Terms:
        """Give the wider job the higher term."""
        return Terms({"size": jobs.size / NODES})


def test_static_hooks_are_asked_once_beside_dynamic_ones() -> None:
    """A hook that is static is not asked again because another one is dynamic."""
    work = workload()
    done = run(work, PluginTable("oldest"), PluginTable("upper"), oldest=Oldest, upper=Upper)
    book = done.hooks["partition"]["upper"]
    assert (book.calls, book.judged) == (1, len(work.jobs))
    assert done.hooks["fair_share"]["oldest"].calls > 100
    assert same(done, run(work, PluginTable("upper"), upper=UpperOpen))

    slow = run(work, PluginTable("slow"), PluginTable("upper"), slow=SlowMultifactor, upper=Upper)
    assert slow.hooks["partition"]["upper"].calls == 1
    assert same(slow, run(work, PluginTable("multifactor"), PluginTable("upper"), upper=Upper))

    sized = run(work, PluginTable("oldest"), PluginTable("upper"), oldest=BySize, upper=UpperOpen)
    assert sized.hooks["fair_share"]["oldest"].calls == 1
    assert sized.hooks["partition"]["upper"].calls > 100
    assert same(
        sized, run(work, PluginTable("oldest"), PluginTable("upper"), oldest=BySize, upper=Upper)
    )


def test_static_and_dynamic_answers_to_one_hook_are_combined_at_every_pass() -> None:
    """Priorities add up and the first opinion counts, so all are asked where some are dynamic."""
    work = workload()
    tables = (PluginTable("oldest"), PluginTable("upper"), PluginTable("fastest"))
    done = run(work, *tables, oldest=Oldest, upper=UpperOpen)
    first, second = done.hooks["partition"]["upper"], done.hooks["partition"]["fastest"]
    assert first.calls == second.calls > 100
    assert same(done, run(work, *tables[:2], oldest=Oldest, upper=Upper))

    tables = (PluginTable("size"), PluginTable("oldest"))
    done = run(work, *tables, size=BySize, oldest=Oldest)
    assert done.hooks["fair_share"]["size"].calls == done.hooks["fair_share"]["oldest"].calls
    assert not same(done, run(work, PluginTable("oldest"), oldest=Oldest))


def test_four_hooks_that_change_nothing_give_plain_easy() -> None:
    """Admission, fair share, partition and observer through the chain leave EASY alone."""
    work = workload()
    others = ("fair_share", "job_size", "partition")
    age_only = {"weight_age": 1000.0} | {f"weight_{name}": 0.0 for name in others}
    tables = (
        PluginTable("limits"),
        PluginTable("multifactor", settings=age_only),
        PluginTable("fastest"),
    )
    done = run(work, *tables)
    assert same(done, run(work))
    for hook in ("admit", "fair_share", "partition", "observe"):
        assert sum(book.judged for book in done.hooks[hook].values()) >= len(work.jobs)


class StaticFailing:
    """Raise whenever asked, looking at the jobs alone."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs) -> Verdicts:
        """Fail."""
        raise RuntimeError(str(len(jobs)))


class Offering:
    """Turn jobs of more than four nodes away with a counter-offer of a day."""

    wide = Reason("test.offer", "a day is enough")

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs) -> Verdicts:
        """Offer."""
        code = np.where(jobs.size > 4, Verdict.REJECT, Verdict.ABSTAIN)
        return Verdicts.build(code, offer=jobs.submit + 86400.0)


def test_static_failure_holds_jobs_back_too() -> None:
    """A static plug-in that fails and defers does not fail open."""
    done = run(workload(30), PluginTable("bad", on_error="defer"), bad=StaticFailing)
    assert (done.results.fate == FinalState.UNFINISHED).all()
    assert done.hooks["admit"]["bad"].errors == done.hooks["admit"]["bad"].calls


def test_static_counter_offers_reach_the_results() -> None:
    """The offer of a rejection that was known before the run is in the job's row."""
    work = workload(50)
    done = run(work, PluginTable("offering"), offering=Offering)
    rejected = done.results.fate == FinalState.REJECTED
    assert rejected.any()
    assert (done.results.offer[rejected] == work.jobs.submit[rejected] + 86400.0).all()
    assert np.isinf(done.results.offer[~rejected]).all()


def test_shadow_of_a_compiled_plugin_changes_nothing() -> None:
    """Also where the queue is ordered by priority, a shadow gives none."""
    work = workload()
    policy = presets()["multifactor"]
    shadow = [PluginTable("multifactor", mode="shadow")]
    done = replay(work, "shadow", Policy(system=policy.system, plugin=shadow))
    assert same(done, run(work))
    assert done.hooks["fair_share"]["multifactor"].calls > 0


@pytest.mark.parametrize("policy", ["mcdf", "fifo-mn", "fifo-an", "edf-mn", "edf-an"])
@pytest.mark.parametrize("seed", range(3))
def test_no_promise_is_broken_beside_best_effort_jobs(policy: str, seed: int) -> None:
    """Promised jobs end in time whatever fills the rest of the machine."""
    work = workload(seed=seed, deadlines=0.4)
    done = replay(work, policy, presets()[policy]).results
    promised = np.isfinite(done.promise)
    assert promised.any()
    assert (done.end[promised] <= done.promise[promised] + 1e-6).all()
    assert (
        promised == (np.isfinite(work.jobs.deadline) & (done.fate != FinalState.REJECTED))
    ).all()
    best_effort = ~np.isfinite(work.jobs.deadline)
    assert (done.fate[best_effort] == FinalState.FINISHED).all()


def test_counter_offer_is_accepted_when_asked_for_instead() -> None:
    """A rejected job that had asked for the offered deadline would have been admitted."""
    work = workload(80, deadlines=1.0)
    before = replay(work, "mcdf", presets()["mcdf"]).results
    turned_away = np.flatnonzero(np.isfinite(before.offer))
    assert len(turned_away)
    job = int(turned_away[0])
    deadline = work.jobs.deadline.copy()
    assert before.offer[job] > deadline[job]
    deadline[job] = before.offer[job]
    resubmitted = replace(work, jobs=work.jobs.replace(deadline=deadline))
    after = replay(resubmitted, "mcdf", presets()["mcdf"]).results
    assert after.fate[job] == FinalState.FINISHED
    assert after.end[job] <= before.offer[job] + 1e-6


def test_the_reason_of_a_rejection_is_not_that_of_an_earlier_deferral() -> None:
    """A job that was put off until it may begin, and then refused, was refused for the latter."""
    work = workload(3)
    jobs = work.jobs.replace(
        begin=work.jobs.submit + 60, deadline=work.jobs.submit + 61, wall_time=100.0
    )
    done = replay(replace(work, jobs=jobs), "mcdf", presets()["mcdf"])
    assert (done.results.fate == FinalState.REJECTED).all()
    assert set(done.results.texts("reason")) == {"mcdf.impossible"}
    assert {found["reason"] for found in done.decisions} == {"mcdf.not-yet", "mcdf.impossible"}


class StaticPromise:
    """Promise everybody their deadline, looking at the jobs alone."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs) -> Verdicts:
        """Promise."""
        return Verdicts.build(np.full(len(jobs), Verdict.ADMIT, np.int8), promise=jobs.deadline)


def test_static_promises_are_not_lost() -> None:
    """A promise reaches the results whatever arguments the hook names."""
    work = workload(40, deadlines=1.0)
    done = run(work, PluginTable("word"), planner="word", word=StaticPromise)
    assert (done.results.promise == work.jobs.deadline).all()


class Mover:
    """Ask every running job to move to where it is."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_partition(self, jobs: Jobs, snapshot: Snapshot) -> Placement:
        """Move all."""
        held, ids = snapshot.allocations, snapshot.running.id
        now = np.full(len(ids), snapshot.now)
        moves = Schedule.build(ids, now, now, held.indptr, held.nodes)
        return replace(Placement.abstain(len(jobs)), moves=moves)


def test_what_the_system_cannot_do_is_counted() -> None:
    """An action without effect is told by kind and number of jobs; in shadow none is asked for."""
    work = workload(60)
    done = run(work, PluginTable("mover"), mover=Mover)
    assert done.undone["Move"] > 0
    assert same(done, run(work))
    easy = presets()["easy"].system
    for mode, expected in (("enforce", {"SetPriority"}), ("shadow", set())):
        table = PluginTable("oldest", mode=mode)
        policy = Policy(system=easy, plugin=[table])
        assert set(replay(work, "test", policy, found=found(oldest=Oldest)).undone) == expected


BUSY = Reason("test.busy", "{free} nodes are free")
CLOSED = Reason("test.closed", "the site is closed")


def judgement(
    code: Any, *findings: Finding, plugin: str = "p", mode: Mode = "enforce", **more: Any
) -> Judgement:
    """Return what one plug-in said."""
    verdicts = Verdicts.build(code, findings=findings, **more)
    return Judgement(verdicts, (Answer(plugin, mode, verdicts),))


def busy(code: Any, free: Any, **more: Any) -> Judgement:
    """Return a finding with a number on all jobs."""
    return judgement(code, Finding.where(np.ones(len(code), np.bool_), BUSY, free=free), **more)


def rows(*of: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return rows of the workload."""
    return np.array(of, np.int64)


def test_equal_findings_of_a_job_are_counted() -> None:
    """A deferral at every instant is one record per job, with its first and last time."""
    decisions = Decisions()
    for now in range(1000):
        decisions.add(busy([Verdict.DEFER] * 3, [1, 2, np.nan]), rows(4, 0, 2), float(now))
    assert len(decisions) == 3
    kept = list(decisions)
    assert [record["job"] for record in kept] == [4, 0, 2]
    assert kept[0] == {
        "job": 4,
        "plugin": "p",
        "mode": "enforce",
        "verdict": "defer",
        "reason": "test.busy",
        "text": "1 nodes are free",
        "numbers": {"free": 1.0},
        "offer_s": None,
        "times": 1000,
        "first_s": 0.0,
        "last_s": 999.0,
    }


def test_what_differs_is_kept_apart() -> None:
    """Other numbers, verdicts, offers, modes, plug-ins or reasons are records of their own."""
    decisions = Decisions()
    said = [
        busy([Verdict.DEFER], 1),
        busy([Verdict.DEFER], 2),
        busy([Verdict.DEFER], 2, offer=9.0),
        busy([Verdict.REJECT], 2, offer=9.0),
        busy([Verdict.REJECT], 2, offer=9.0, plugin="q"),
        busy([Verdict.REJECT], 2, offer=9.0, plugin="q", mode="shadow"),
        judgement([Verdict.REJECT], Finding.where(np.array([True]), CLOSED)),
    ]
    for now, one in enumerate(said):
        for _ in range(2):
            decisions.add(one, rows(0), float(now))
    kept = list(decisions)
    assert [record["times"] for record in kept] == [2] * len(said)
    assert [record["first_s"] for record in kept] == [*range(len(said))]
    assert [record["offer_s"] for record in kept] == [None, None, 9.0, 9.0, 9.0, 9.0, None]


def test_a_finding_before_the_run_has_no_time() -> None:
    """What was known before the run holds for good."""
    decisions = Decisions()
    decisions.add(busy([Verdict.REJECT], 1), rows(0))
    (record,) = decisions
    assert (record["times"], record["first_s"], record["last_s"]) == (1, None, None)


def test_the_reason_is_that_of_the_first_rejection_else_deferral() -> None:
    """Shadows decide nothing, and a rejection counts before an earlier deferral."""
    decisions = Decisions()
    closed = Finding.where(np.array([True, True]), CLOSED)
    decisions.add(judgement([Verdict.REJECT] * 2, closed, mode="shadow"), rows(0, 3))
    decisions.add(busy([Verdict.DEFER] * 3, 0), rows(0, 1, 2))
    decisions.add(judgement([Verdict.REJECT, Verdict.DEFER], closed), rows(1, 2))
    codes, names = decisions.reasons(4)
    assert [names[code] if code >= 0 else None for code in codes] == [
        "test.busy", "test.closed", "test.busy", None,
    ]  # fmt: skip
    assert Decisions().reasons(2)[0].tolist() == [-1, -1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([BUSY, CLOSED]),
            st.lists(
                st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(2, 3)), max_size=4
            ),
        ),
        max_size=12,
    )
)
def test_counts_agree_with_a_plain_loop(
    said: list[tuple[Reason, list[tuple[int, int, int]]]],
) -> None:
    """On any sequence the records are those that folding one by one gives."""
    decisions = Decisions()
    expected: list[list[Any]] = []
    latest: dict[tuple[str, int], list[Any]] = {}
    for now, (reason, batch) in enumerate(said):
        of = list({row: entry for entry in batch if (row := entry[0]) >= 0}.values())
        number = np.array([free for _, free, _ in of], float)
        numbers = {"free": number} if reason is BUSY else {}
        finding = Finding(reason, np.arange(len(of)), numbers)
        code = np.array([verdict for _, _, verdict in of], np.int8)
        decisions.add(judgement(code, finding), rows(*(row for row, _, _ in of)), float(now))
        for row, free, verdict in of:
            what = (row, reason.code, verdict, free if reason is BUSY else None)
            last = latest.get((reason.code, row))
            if last is not None and last[0] == what:
                last[1], last[3] = last[1] + 1, now
            else:
                latest[reason.code, row] = [what, 1, now, now]
                expected.append(latest[reason.code, row])
    found = [
        [
            (
                record["job"],
                record["reason"],
                Verdict[str(record["verdict"]).upper()],
                record["numbers"].get("free"),
            ),
            record["times"],
            record["first_s"],
            record["last_s"],
        ]
        for record in decisions
    ]
    assert found == expected
