"""From the ads of jobs to the procs of a queue, and how jobs ended."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from condor_views import read_ads
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor.accounts import (
    Submitter,
    accounts_of,
    factors_of,
    submitters_of,
    turns_of,
)
from rtsched.adapters.condor.completions import (
    AT_A_TIME,
    MOST,
    completions_of,
    find_completions,
    stop_at,
)
from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.ids import CLUSTERS, job_id
from rtsched.adapters.condor.pool_state import COMPLETED, HELD, IDLE, REMOVED, RUNNING, work_began
from rtsched.adapters.condor.queue import OF_ENDS, OF_JOBS, Queue, queue_of
from rtsched.adapters.live import CompletionStatus
from rtsched.logs.classads import Expression, Record
from rtsched.model.jobs import Kind

MB = 1 << 20
NOW = 1_800_000_000
FACTS = CondorFacts(margin=30.0, domain="pool")
LOAD = {"rtsigma": 100.0, "rtcms": 1.0, "rtcps": 10.0, "rtdeadline": NOW + 5000}


def ad(cluster: int = 12, proc: int = 0, **said: Any) -> Record:
    """Return the ad of a vanilla job that waits."""
    plain: Record = {"clusterid": cluster, "procid": proc, "jobstatus": IDLE, "jobuniverse": 5}
    plain |= {"owner": "ann", "user": "ann@pool", "qdate": NOW - 100, "requestcpus": 1}
    return plain | said


def queue(*ads: Record, **facts: Any) -> Queue:
    """Return the queue of ads."""
    return queue_of(read_ads(ads), CondorFacts(**{"margin": 30.0, "domain": "pool", **facts}))


def test_what_a_proc_says() -> None:
    """Units become bytes and seconds; what is not said is missing."""
    full = ad(
        3,
        4,
        requestcpus=2,
        requestmemory=100,
        rtruntime=600,
        jobprio=-5,
        acctgroup="hep",
        accountinggroup="hep.ann",
        jobbatchname="sweep",
        jobstatus=RUNNING,
        jobcurrentstartdate=NOW,
        remotehost="slot1@a",
        rtadmission="judged",
        rtnodeset="slot1@a",
        deferraltime=NOW + 50,
    )
    procs = queue(full, ad(5, cmd="/usr/bin/sleep")).procs
    assert procs.job.tolist() == [job_id(3, 4), job_id(5, 0)]
    assert procs.cpus.tolist() == [2, 1]
    assert procs.memory.tolist() == [100 * MB, -1]
    assert procs.run_time.tolist() == [600.0, math.inf]
    assert procs.begin.tolist() == [NOW + 50, -math.inf]
    assert procs.start[0] == NOW
    assert procs.priority.tolist() == [-5, 0]
    assert procs.texts("submitter") == ["hep.ann@pool", "ann@pool"]
    assert procs.texts("name") == ["sweep", "sleep"]
    assert procs.texts("slot") == ["slot1@a", None]
    assert procs.texts("admission") == ["judged", None]


@pytest.mark.parametrize(
    ("said", "limited"),
    [
        ({"allowedexecuteduration": 600}, True),
        ({"allowedjobduration": 600}, True),
        ({}, False),
        ({"allowedexecuteduration": Expression("500 + 100")}, False),
        ({"allowedexecuteduration": 600, "rtdeadline": NOW}, False),
        ({"allowedexecuteduration": 600, "rtlimit": 60}, False),
    ],
)
def test_run_times_that_are_limits_of_htcondors_own(said: Any, limited: bool) -> None:
    """HTCondor ends such a job itself; of a promised one the run time is what counts."""
    assert queue(ad(rtruntime=600, **said)).procs.limited.tolist() == [limited]
    assert queue(ad()).procs.limited.tolist() == [False]


def test_a_limit_of_execution_does_not_count_files_that_come_in() -> None:
    """So the planned end is counted from when the job executes; until then from now on."""
    limit = {"rtruntime": 600, "allowedexecuteduration": 600, "jobstatus": RUNNING}
    runs = {"jobcurrentstartdate": NOW, "remotehost": "s1"}
    later, before = ({"jobcurrentstartexecutingdate": NOW + at} for at in (90.0, -90.0))
    for said, began in ((later, NOW + 90), (before, np.inf), ({}, np.inf)):
        procs = queue(ad(1, **limit, **runs, **said)).procs
        assert work_began(procs).tolist() == [began]
    whole = {"rtruntime": 600, "allowedjobduration": 600, "jobstatus": RUNNING}
    assert work_began(queue(ad(1, **whole, **runs)).procs).tolist() == [NOW]


def test_who_was_held_later_is_not_being_spooled() -> None:
    """Its owner may write HoldReasonCode."""
    spools = {"holdreasoncode": 16, "jobstatus": HELD, "qdate": NOW}
    found = queue(
        *(ad(n, **spools, enteredcurrentstatus=NOW + after) for n, after in ((1, 0), (2, 60)))
    )
    assert found.procs.spools.tolist() == [True, False]
    assert found.procs.passing.tolist() == [True, False]


def test_procs_are_in_order_whatever_the_schedd_shows_first() -> None:
    """By cluster and proc."""
    procs = queue(ad(2, 1), ad(10, 0), ad(2, 0), ad(1, 5)).procs
    assert list(zip(procs.cluster.tolist(), procs.proc.tolist(), strict=True)) == [
        (1, 5),
        (2, 0),
        (2, 1),
        (10, 0),
    ]


def test_a_divisible_load_and_a_parallel_job_are_one() -> None:
    """Their procs share the number of the first; a load that makes no sense is no load."""
    loads = [ad(7, proc, totalsubmitprocs=3, **LOAD) for proc in (2, 1)]
    hosts = "slot1@a, slot2@a"
    parallel = ad(
        8, jobuniverse=11, minhosts=2, maxhosts=2, remotehost="slot1@a", allremotehosts=hosts
    )
    odd = [ad(9, proc, **(LOAD | {"rtsigma": "much"})) for proc in (0, 1)]
    found = queue(*loads, parallel, *odd)
    numbers = [(7, 0), (7, 0), (8, 0), (9, 0), (9, 1)]
    assert found.procs.job.tolist() == [job_id(*number) for number in numbers]
    assert found.requirements[0] is found.requirements[1]
    assert found.requirements[0].kind == Kind.DIVISIBLE
    assert found.procs.texts("slot")[2] == hosts
    assert found.requirements[3].problem


def test_who_wants_something() -> None:
    """A run time and checkpoints any job may say; what we told a job is kept in view too."""
    found = queue(
        ad(1, rtruntime=60),
        ad(2, rtcheckpoint=True),
        ad(3, rtdeadline=NOW + 500, rtruntime=60),
        ad(4, rtwhy="waits"),
        ad(5, dagmanjobid=77),
    )
    assert sorted(found.ads) == [1, 2, 3]
    assert sorted(found.requirements) == [2]
    assert found.dag.tolist() == [-1, -1, -1, -1, 77]


def test_a_deferred_job_is_judged_as_a_new_one() -> None:
    """What was promised stays so when slots become fewer; a deferred one has no promise yet."""
    wish = {"rtdeadline": NOW + 500, "requestgpus": 1, "rtruntime": 60}
    found = queue(ad(1, **wish), ad(2, rtadmission="parked", **wish))
    assert not found.requirements[0].problem
    assert "GPU" in found.requirements[1].problem


def test_who_is_over_is_not_in_the_queue() -> None:
    """A removed job that still has its slot runs; one that its user keeps is over."""
    found = queue(
        ad(1, jobstatus=COMPLETED),
        ad(2, jobstatus=REMOVED),
        ad(3, jobstatus=REMOVED, remotehost="slot1@a"),
        ad(4, jobstatus=HELD),
    )
    assert found.procs.cluster.tolist() == [3, 4]
    assert [record["clusterid"] for record in found.over] == [1, 2]


def test_numbers_that_are_too_great_are_counted() -> None:
    """A job that has no number in the models is left out, and said to be."""
    found = queue(ad(1, 1 << 20), {"owner": "ann"}, ad(CLUSTERS), ad(2))
    assert found.procs.cluster.tolist() == [2]
    assert found.skipped == 3


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.text(max_size=6).map(Expression),
)
names = st.sampled_from([name.lower() for name in (*OF_JOBS, *OF_ENDS)])


@given(st.lists(st.dictionaries(names, values)), st.dictionaries(names, values))
def test_no_ad_breaks_the_reading(odd: list[Record], more: Record) -> None:
    """Whatever users write into their jobs, the others are read."""
    found = queue(
        *odd, ad(1 << 20, 0, **{**more, "clusterid": 1 << 20, "procid": 0, "jobstatus": 1})
    )
    assert 1 << 20 in found.procs.cluster.tolist()
    completions_of([*odd, more])


def end(cluster: int = 12, proc: int = 0, **said: Any) -> Record:
    """Return the ad of a job that was completed."""
    plain = {"jobstatus": COMPLETED, "exitcode": 0, "exitbysignal": False}
    plain |= {"completiondate": NOW, "enteredcurrentstatus": NOW, "jobcurrentstartdate": NOW - 60}
    return ad(cluster, proc, **(plain | said))


def gone(cluster: int = 12, proc: int = 0, **said: Any) -> Record:
    """Return the ad of a job that was removed."""
    return end(cluster, proc, **({"jobstatus": REMOVED, "completiondate": 0} | said))


@pytest.mark.parametrize(
    ("record", "ending"),
    [
        (end(), CompletionStatus.COMPLETED),
        (end(exitcode=1), CompletionStatus.FAILED),
        (end(exitbysignal=True), CompletionStatus.FAILED),
        (gone(removereason="via condor_rm (by user ann)"), CompletionStatus.FAILED),
        (gone(removereason="rtsched: run time over"), CompletionStatus.OWN_LIMIT),
        (gone(removereason="rtsched: rejected"), CompletionStatus.FAILED),
        (gone(), CompletionStatus.FAILED),
    ],
)
def test_endings(record: Record, ending: CompletionStatus) -> None:
    """Exit codes, signals and removals are told apart, and who removed it for which cause."""
    found = completions_of([record])
    assert found.status.tolist() == [ending]
    assert found.end.tolist() == [NOW]
    assert found.start.tolist() == [NOW - 60]


def test_a_load_ends_with_its_last_chunk() -> None:
    """It starts with the first; a chunk that was not needed, or is of another cluster, is none."""
    spare = gone(7, 3, removereason="rtsched: not needed", jobcurrentstartdate=None, **LOAD)
    found = completions_of(
        [
            end(7, 1, completiondate=NOW + 9, **LOAD),
            end(7, 0, jobcurrentstartdate=NOW - 99, rtadmission="judged", rttoken="t1", **LOAD),
            spare,
            end(8, 1),
        ]
    )
    assert found.job.tolist() == [job_id(7, 0), job_id(8, 1)]
    assert found.start.tolist() == [NOW - 99, NOW - 60]
    assert found.end.tolist() == [NOW + 9, NOW]
    assert found.status.tolist() == [CompletionStatus.COMPLETED] * 2
    assert found.texts("token") == ["t1", None]
    worst = completions_of([end(7, 0, **LOAD), end(7, 1, exitcode=3, **LOAD)])
    assert worst.status.tolist() == [CompletionStatus.FAILED]


def test_a_job_that_never_started_has_no_start() -> None:
    """Nor has a word in place of a token a meaning."""
    found = completions_of([gone(jobcurrentstartdate=None, rtadmission="parked")])
    assert math.isnan(found.start[0])
    assert found.texts("token") == [None]


class History:
    """A history that returns what it is given, and notes what it is asked."""

    def __init__(self, *records: Record) -> None:
        self.records, self.asked = records, list[tuple[str, int, str]]()
        self.schedds = {0: self}

    def history(
        self, constraint: str, attributes: Sequence[str], most: int, stop: str
    ) -> Sequence[Record]:
        """Return everything, in the first answer."""
        self.asked.append((constraint, most, stop))
        return self.records if len(self.asked) == 1 else ()


def test_what_the_history_is_asked() -> None:
    """Not more at once than it can bear, and not to read on when all have been found."""
    pool: Any = History(end(7, 3), end(7, 4), end(7, 5))
    found = find_completions(pool, [job_id(7, 5), job_id(7, 3), job_id(9, 9)])
    assert found.job.tolist() == [job_id(7, 3), job_id(7, 5)]
    numbers = ", ".join(str(job_id(*job)) for job in ((7, 3), (7, 5), (9, 9)))
    assert pool.asked == [(f"member(ClusterId * 1048576 + ProcId, {{{numbers}}})", 3, "")]
    many: Any = History()
    assert len(find_completions(many, [job_id(number, 0) for number in range(AT_A_TIME + 1)])) == 0
    assert len(many.asked) == 2
    assert len(find_completions(many, [])) == 0
    assert len(many.asked) == 2


@pytest.mark.parametrize(("submitted", "most"), [(4, 3), (1, 0), (None, MOST), (1e300, MOST)])
def test_the_other_procs_of_a_load_are_asked_for(submitted: float | None, most: int) -> None:
    """Its first one tells how many there may be; one that is alone needs no second search."""
    pool: Any = History(end(7, 0, **LOAD, totalsubmitprocs=submitted), end(8, 0))
    find_completions(pool, [job_id(7, 0), job_id(8, 0)], NOW)
    more = [("member(ClusterId, {7}) && ProcId > 0", most)]
    assert [(asked, count) for asked, count, _ in pool.asked[1:]] == more[: most > 0]


def test_a_search_ends_before_the_promises() -> None:
    """With a job that ended earlier, but for those that stayed in the queue after their ends."""
    classads = pytest.importorskip("classad2")

    def ends(**said: Any) -> bool:
        ended = {"JobStatus": COMPLETED, "EnteredCurrentStatus": NOW - 601}
        record = classads.ClassAd(ended | said | {"Stop": classads.ExprTree(stop_at(float(NOW)))})
        return record.eval("Stop") is True

    assert ends()
    assert ends(LeaveJobInQueue=False)
    assert not ends(LeaveJobInQueue=classads.ExprTree("time() < 5"))
    assert not ends(EnteredCurrentStatus=NOW - 599)
    assert not ends(JobStatus=REMOVED)
    assert stop_at(-math.inf) == ""


def charged(name: str, group: str = "<none>", **said: Any) -> Record:
    """Return a record of the negotiator's accounting."""
    return {"name": name, "accountinggroup": group, "priorityfactor": 1000.0, **said}


def test_submitters_and_groups_make_a_tree() -> None:
    """Shares are the site's, by the closest name; a group's use is that of its submitters."""
    records = [
        charged("ann@pool", weightedaccumulatedusage=5.0),
        charged("hep.cms.ann@pool", "hep.cms", weightedaccumulatedusage=7.0),
        charged("<none>", isaccountinggroup=True, weightedaccumulatedusage=99.0),
        charged("hep.john.doe@pool", "hep", weightedaccumulatedusage=-1.0),
    ]
    shares = {"ann": 3.0, "hep": 2.0, "hep.cms.ann": 4.0}
    table, rows = accounts_of(records, [("new@pool", ""), ("hep.cms.bob@pool", "hep.cms")], shares)
    names = table.texts("name")
    above = [None if up < 0 else names[up] for up in table.parent.tolist()]
    found = dict(zip(names, zip(above, table.shares, table.usage, strict=True), strict=True))
    assert found == {
        "ann@pool": (None, 3.0, 5.0),
        "hep": (None, 2.0, 7.0),
        "hep.cms": ("hep", 1.0, 7.0),
        "hep.cms.ann@pool": ("hep.cms", 4.0, 7.0),
        "hep.cms.bob@pool": ("hep.cms", 1.0, 0.0),
        "hep.john.doe@pool": ("hep", 1.0, 0.0),
        "new@pool": (None, 1.0, 0.0),
    }
    assert {name: names[row] for name, row in rows.items()} == {
        name: name for name in names if name and "@" in name
    }
    assert table.is_user.tolist() == ["@" in (name or "") for name in names]
    assert np.isclose(table.share()[[up < 0 for up in table.parent]].sum(), 1.0)


def test_factors_are_the_negotiators() -> None:
    """Groups have none, nor has who was never charged."""
    records = [
        charged("ann@pool", priorityfactor=2.5),
        charged("hep", isaccountinggroup=True),
        {"name": "bob@pool"},
    ]
    assert factors_of(records) == {"ann@pool": 2.5}


@pytest.mark.parametrize(
    ("reason", "passing", "overran"),
    [
        ({"holdreason": "rtsched: run time of 60 s is over", "holdreasoncode": 26}, True, True),
        ({"holdreason": "Spooling input data files", "holdreasoncode": 16}, True, False),
        ({"holdreason": "via condor_hold", "holdreasoncode": 1}, False, False),
        ({}, False, False),
    ],
)
def test_some_holds_pass_by_themselves(
    reason: dict[str, object], passing: bool, overran: bool
) -> None:
    """A job whose files come in is not held by its user; one that ran too long has ended once."""
    marks = {"rtadmission": "judged", "rttoken": "t1", "rtdeadline": NOW + 9000}
    found = queue(ad(1, jobstatus=HELD, **reason, **marks))
    assert found.procs.passing.tolist() == [passing]
    ends = completions_of(found.overran)
    assert ends.texts("token") == ["t1"] * overran
    assert ends.status.tolist() == [CompletionStatus.OWN_LIMIT] * overran


@pytest.mark.parametrize(("procs", "most"), [(4, 4), (3, 3), (2, 2), (1, None)])
def test_a_load_that_lost_procs(procs: int, most: int | None) -> None:
    """It is divided among those that are left, and promised nothing where they are too few."""
    wish = LOAD | {"totalsubmitprocs": 4, "rtminnodes": 2, "rtadmission": "judged"}
    found = queue(*(ad(7, proc, **wish) for proc in range(procs)))
    needs = found.requirements[0]
    assert all(other == needs for other in found.requirements.values())
    assert (needs.problem != "") == (most is None)
    assert most is None or needs.size_max == most


def turns(known: dict[str, Submitter], *jobs: tuple[str, int, int]) -> list[int]:
    """Return the order of jobs with submitter, JobPrio and cores, by their places."""
    names = ["ann@pool", "ben@pool", "new@pool"]
    submitter = np.array([names.index(f"{name}@pool") for name, _, _ in jobs], np.int32)
    priority, cores = (np.array([job[k] for job in jobs], np.int64) for k in (1, 2))
    turn = turns_of(submitter, names, priority, np.arange(len(jobs)), cores, known)
    return list(np.argsort(-turn).tolist())


def test_users_are_served_by_effective_priority() -> None:
    """Of two that have nothing the lower one is first; then each gets what it has too little."""
    # With 100 and 200, ann has two cores for each of ben's: after ann's first job she has 1 x 100,
    # and ben 0; after ben's he has 1 x 200, and hers are next until she has as much.
    known = {"ann@pool": Submitter(100.0, 0.0), "ben@pool": Submitter(200.0, 0.0)}
    same = [("ben", 0, 1)] * 3 + [("ann", 0, 1)] * 4
    assert turns(known, *same) == [3, 0, 4, 5, 1, 6, 2]
    running = {**known, "ann@pool": Submitter(100.0, 5.0)}
    assert turns(running, *same) == [0, 1, 2, 3, 4, 5, 6]


def test_jobs_of_a_user_are_served_by_their_priority() -> None:
    """JobPrio, then the order of submission; wide jobs count for as many cores as they ask for."""
    known = {"ann@pool": Submitter(100.0, 0.0), "ben@pool": Submitter(100.0, 0.0)}
    jobs = [("ann", 0, 1), ("ann", 5, 8), ("ann", 0, 1), ("ben", 0, 1), ("ben", 0, 1)]
    assert turns(known, *jobs) == [1, 3, 4, 0, 2]


def test_a_submitter_that_is_new() -> None:
    """Has the defaults of HTCondor; without accounting no order is known."""
    jobs = [("ann", 0, 1), ("new", 0, 1)]
    assert turns({"ann@pool": Submitter(600.0, 0.0)}, *jobs) == [1, 0]
    assert turns({"ann@pool": Submitter(400.0, 0.0)}, *jobs) == [0, 1]
    found = turns_of(np.zeros(2, np.int32), ["a"], *[np.zeros(2, np.int64)] * 3, known={})
    assert np.isnan(found).all()


def test_what_the_accounting_tells_of_submitters() -> None:
    """Effective priority and cores; groups, and records without a priority, are left out."""
    records = [
        charged("ann@pool", priority=500.0, weightedresourcesused=8.0),
        charged("ben@pool", priority=1000.0),
        charged("cid@pool"),
        charged("hep", priority=1.0, isaccountinggroup=True),
    ]
    assert submitters_of(records) == {
        "ann@pool": Submitter(500.0, 8.0),
        "ben@pool": Submitter(1000.0, 0.0),
    }
