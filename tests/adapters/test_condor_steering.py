"""From actions to what HTCondor is told, and jobs that were given slots."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from condor_views import NOW, Noted, ad, read_ads, view_of
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor.accounts import differing, wanted_factors
from rtsched.adapters.condor.commands import (
    Act,
    Edit,
    LastApplied,
    Negotiate,
    Publish,
    carried_out,
    change,
)
from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.pool_state import (
    DEFERRAL_S,
    HELD,
    RUNNING,
    PoolState,
    Procs,
    Slots,
    work_began,
)
from rtsched.adapters.condor.queue import Queue, queue_of
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.starting import StartFailureTracker, bound_of
from rtsched.adapters.condor.steering import CondorSteering, overrun_changes
from rtsched.adapters.live import Change
from rtsched.model.actions import (
    Action,
    Admit,
    Cancel,
    ExchangePlaces,
    Hold,
    Move,
    Notify,
    Place,
    Release,
    Requeue,
    Reserve,
    SetNodeWeight,
    SetPriority,
)
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement

WIDE = {"jobuniverse": 11, "minhosts": 2, "maxhosts": 4, "rtspeedup": "linear"}


def ids(*clusters: int) -> Any:
    """Return the jobs of these clusters."""
    return np.array([job_id(cluster, 0) for cluster in clusters], np.int64)


def steered(
    action: Any, view: PoolState, memory: LastApplied | None = None, **settings: Any
) -> list[Change]:
    """Return what an action comes to."""
    steering = CondorSteering(view, CondorSettings(**settings), memory or LastApplied(), NOW)
    made = steering.changes(action)
    return list(made)


def texts(changes: list[Change]) -> list[str]:
    """Return the texts of changes."""
    return [one.text for one in changes]


def placed(*wishes: tuple[int, int, list[int]]) -> Place:
    """Return what gives these clusters sizes and sets."""
    return Place(
        ids(*(cluster for cluster, _, _ in wishes)),
        Placement(
            np.array([size for _, size, _ in wishes], np.int32),
            np.arange(len(wishes), dtype=np.int32),
            tuple(np.array(nodes, np.int32) for _, _, nodes in wishes),
        ),
    )


def test_the_farthest_off_priorities_change_first() -> None:
    """Only so many in a cycle; a job that stands right is left alone."""
    view = view_of(ad(1), ad(2), ad(3, jobprio=250), ad(4))
    action = SetPriority(ids(1, 2, 3, 4), np.array([0.001, 0.5, 0.25, -2.0]))
    changes = steered(action, view, factors=False, priorities_per_cycle=2)
    assert texts(changes) == [
        "set the priority of job 4.0 to -2000",
        "set the priority of job 2.0 to 500",
    ]
    edits = [(one.command[0].attribute, one.command[0].value) for one in changes]
    assert edits == [("RtJobPrio", "0"), ("RtJobPrio", "0")], "before JobPrio"
    assert [one.command[1].attribute for one in changes] == ["JobPrio", "JobPrio"]


def test_jobs_of_a_user_exchange_places() -> None:
    """By the priorities that their users gave them, which RtJobPrio keeps; others' are theirs."""
    other = {"submitter": "bob@pool"}
    view = view_of(ad(1), ad(2), ad(3, jobprio=-9), ad(4, **other), ad(5, jobprio=4, rtjobprio=3))
    action = ExchangePlaces(ids(1, 2, 4), np.array([3, 2, 1]))
    assert texts(steered(action, view)) == [
        "set the priority of job 5.0 to 3",
        "set the priority of job 2.0 to 1",
    ]
    view = view_of(ad(1), ad(2, jobprio=1, rtjobprio=0), ad(3, jobprio=-9))
    assert not steered(action, view)
    assert texts(steered(ExchangePlaces(ids(), np.zeros(0, np.int64)), view)) == [
        "set the priority of job 2.0 to 0"
    ]


def test_a_user_whose_jobs_are_alike_orders_them_alone() -> None:
    """The user's own priorities stay, and come back where ours are no longer needed."""
    view = view_of(ad(1, jobprio=7), ad(2, jobprio=-7), ad(3, jobprio=900))
    action = SetPriority(ids(1, 2, 3), np.full(3, 0.4))
    assert not steered(action, view, factors=False)
    view = view_of(ad(1, jobprio=7), ad(2, jobprio=-7), ad(3, jobprio=900, rtjobprio=3))
    changes = steered(action, view, factors=False)
    assert texts(changes) == ["set the priority of job 3.0 to 3"]
    assert [step.attribute for step in changes[0].command] == ["JobPrio"]
    view = view_of(ad(1, jobprio=7), ad(2, jobprio=-7), ad(3, jobprio=3, rtjobprio=3))
    (step,) = steered(action, view, factors=False)[0].command
    assert (step.attribute, step.value) == ("RtJobPrio", "undefined"), "when it is so"


def test_users_with_higher_values_get_lower_factors() -> None:
    """Factors that stand right, but for a step, are not set again."""
    view = view_of(
        ad(1),
        ad(2, submitter="bob@pool"),
        ad(3, submitter="carol@pool"),
        factors={"alice@pool": 1.0, "bob@pool": 9.8, "carol@pool": 1000.0},
    )
    action = SetPriority(ids(1, 2, 3), np.array([0.9, 0.4, -7.0]))
    changes = steered(action, view, factor_max=100.0, priorities_per_cycle=0)
    assert texts(changes) == ["set the priority factor of carol@pool to 100"]
    assert not steered(action, view, factors=False, priorities_per_cycle=0)


def test_a_negotiator_that_does_not_answer_is_told_no_factors() -> None:
    """Nobody knows which ones hold."""
    view = view_of(ad(1), ad(2, submitter="bob@pool"), factors={"alice@pool": 1.0})
    action = SetPriority(view.procs.job, np.array([1.0, 0.5]))
    assert texts(steered(action, view, priorities_per_cycle=0))
    view.negotiates = False
    assert not steered(action, view, priorities_per_cycle=0)


def test_who_may_set_no_factors_tries_once() -> None:
    """The negotiator's refusal is reported, and holds until the daemon is started anew."""
    view, memory = view_of(ad(1)), LastApplied()
    action = SetPriority(ids(1), np.array([0.5]))
    pool = Noted(replies={"alice@pool": ("refused", "no")})
    (done,) = carried_out(pool, pool.publish, steered(action, view, memory))
    memory.remember(done, NOW)
    assert done.outcome == "refused"
    assert not steered(action, view, memory)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-5, 5)), min_size=1),
    st.floats(1, 10),
    st.floats(10, 1e6),
)
def test_factors_follow_the_best_job_of_each_user(
    jobs: list[tuple[str, float]], low: float, high: float
) -> None:
    """The best user has the least factor, a better one never a greater, all are within limits."""
    names, values = [name for name, _ in jobs], np.array([value for _, value in jobs])
    found = wanted_factors(names, values, (low, high))
    best = {name: max(v for n, v in jobs if n == name) for name in names}
    ranked = sorted(best, key=lambda name: -best[name])
    assert found[ranked[0]] == low
    in_order = [found[name] for name in ranked]
    assert in_order == sorted(in_order)
    assert all(low <= factor <= high * (1 + 1e-9) for factor in in_order)
    assert not differing(found, found, 0.01)
    assert differing(found, {}, 0.01) == found


def test_what_no_value_says_counts_as_none() -> None:
    """A plug-in without an opinion moves nobody."""
    assert wanted_factors(["a", "b"], np.array([np.nan, 0.0]), (1.0, 10.0)) == {"a": 1.0, "b": 1.0}
    assert wanted_factors([], np.empty(0), (1.0, 10.0)) == {}


def test_parallel_jobs_get_the_size_that_fits_now() -> None:
    """Another that has to wait keeps its own range, also when it had got a size before."""
    later = WIDE | {"minhosts": 3, "maxhosts": 3, "rthosts": "1-3"}
    view = view_of(ad(1, **WIDE), ad(2, **later))
    changes = steered(placed((1, 3, [0, 1, 2, 3]), (2, 2, [0, 1, 2, 3])), view)
    assert [[(s.attribute, s.value) for s in one.command] for one in changes[:2]] == [
        [("RtNodeSet", '"s1,s2,s3"'), ("RtHosts", '"2-4"'), ("MinHosts", "3"), ("MaxHosts", "3")],
        [("MinHosts", "1"), ("MaxHosts", "3")],
    ]


def test_parallel_jobs_keep_the_slots_that_they_were_given() -> None:
    """As long as these are free; better ones that come free meanwhile change nothing."""
    given = WIDE | {"minhosts": 2, "maxhosts": 2, "rthosts": "2-4", "rtnodeset": "s2,s4"}
    view = view_of(ad(1, **given))
    assert not steered(placed((1, 2, [0, 1, 2, 3])), view)
    taken = view_of(ad(1, **given), ad(9, jobstatus=RUNNING, on=[3]))
    (one,) = steered(placed((1, 2, [0, 1, 2, 3])), taken)
    assert [(s.attribute, s.value) for s in one.command] == [("RtNodeSet", '"s1,s2"')]
    (one,) = steered(placed((1, 4, [0, 1, 2, 3])), taken)
    assert [(s.attribute, s.value) for s in one.command] == [
        ("RtNodeSet", "undefined"),
        ("MinHosts", "2"),
        ("MaxHosts", "4"),
    ]


def test_slots_that_are_taken_or_kept_fit_nobody() -> None:
    """A size that needs them is not given."""
    view = view_of(ad(1, **WIDE), ad(9, jobstatus=RUNNING, on=[0]), down=[2])
    kept = LastApplied(kept={"s2": ((0, 1),)})
    assert not steered(placed((1, 2, [0, 1, 2, 3])), view, kept)
    changes = steered(placed((1, 2, [0, 1, 2, 3])), view)
    assert texts(changes) == ["have job 1.0 start on 2 hosts"]
    assert not steered(placed((1, 2, [0, 1, 2, 3])), view, sizes_per_cycle=0)


def test_sizes_take_no_time_where_nothing_is_to_be_done(monkeypatch) -> None:
    """However many jobs wait: the names of slots are looked up once, not for each of them."""
    asked = []
    honest = Slots.texts
    monkeypatch.setattr(Slots, "texts", lambda self, name: asked.append(name) or honest(self, name))
    count = 200
    view = view_of(*(ad(1 + k, **WIDE) for k in range(count)), ad(999, jobstatus=RUNNING, on=[0]))
    wishes = placed(*((1 + k, 4, [0, 1, 2, 3]) for k in range(count)))
    assert not steered(wishes, view, priorities_per_cycle=0)
    assert len(asked) < 5


def test_only_moldable_jobs_get_a_size() -> None:
    """Others run on what they asked for."""
    view = view_of(ad(1), ad(2, jobuniverse=11, minhosts=2, maxhosts=2))
    assert not steered(placed((1, 1, [0])), view)
    assert not steered(placed((2, 3, [0])), view)


def test_jobs_prefer_the_slots_they_are_for() -> None:
    """As many of the first ones as they need; a wish that stands is not said again."""
    wide = ad(3, jobuniverse=11, minhosts=2, maxhosts=2)
    view = view_of(ad(1), ad(2, rtrankset="s2"), wide, ad(4))
    action = placed((1, 0, [2, 3]), (2, 0, [1, 2]), (3, 0, [3, 0, 1]), (4, 0, []))
    assert texts(steered(action, view)) == ["prefer s3 for job 1.0", "prefer s4,s1 for job 3.0"]
    assert len(steered(action, view, priorities_per_cycle=1)) == 1


def test_one_set_for_all_is_no_wish_of_any() -> None:
    """The delay factors of the table order the slots for everybody."""
    view = view_of(ad(1), ad(2))
    nodes = (np.array([1, 0], np.int32),)
    placement = Placement(np.zeros(2, np.int32), np.zeros(2, np.int32), nodes)
    assert not steered(Place(ids(1, 2), placement), view)


def test_weights_become_delay_factors() -> None:
    """They stand beside what the last plan keeps, and until others are given."""
    view, memory = view_of(), LastApplied(kept={"s1": ((5, 1),)})
    weight = np.array([1.0, 2.0, np.inf, 1.5])
    (one,) = steered(SetNodeWeight(np.empty(0, np.int64), weight), view, memory)
    table = one.command[0].table
    assert table.delay == {"s1": 1.0, "s2": 2.0, "s3": 1e6, "s4": 1.5}
    assert table.kept == memory.kept
    memory.remember(carried_out(Noted(), Noted().publish, [one])[0], NOW)
    assert not steered(SetNodeWeight(np.empty(0, np.int64), weight), view, memory)


def test_who_is_removed_is_told_why() -> None:
    """In the job and as the reason; also of a load all procs."""
    view = view_of(ad(1, 0, rtsigma=1.0, rtcms=0.1, rtcps=1.0), ad(1, 1, rtsigma=1.0), ad(2))
    changes = steered(Cancel(ids(1, 3), ("too\nlate", "gone")), view)
    procs = (job_id(1, 0), job_id(1, 1))
    assert [one.command[0] for one in changes] == [
        replace(changes[0].command[0], jobs=procs, attribute="RtWhy", value='"too late"'),
        Act("Remove", procs, "too late"),
    ]


def test_nobody_is_told_the_same_twice() -> None:
    """RtWhy that stands already is no change."""
    assert not steered(Notify(ids(1), ("so",)), view_of(ad(1, rtwhy="so")))
    assert texts(steered(Notify(ids(1), ("so",)), view_of(ad(1)))) == ["set RtWhy of job 1.0: so"]


def test_a_deferred_job_is_let_go_by_what_it_carries() -> None:
    """One that was promised something starts by its node set only; others are left alone."""
    view = view_of(ad(1, rtadmission="parked"), ad(2), ad(3, rtadmission="judged"))
    for action, word in (
        (Admit(ids(1, 3), np.full(2, NOW)), '"judged"'),
        (Release(ids(1, 2, 3)), '"unjudged"'),
    ):
        (one,) = steered(action, view)
        assert (one.command[0].attribute, one.command[0].value) == ("RtAdmission", word)


def test_a_job_without_a_promise_that_gets_one_starts_by_its_node_set_from_then_on() -> None:
    """It might start anywhere before."""
    view = view_of(ad(1), ad(2, rtadmission="unjudged"))
    for each in steered(Admit(ids(1, 2), np.full(2, NOW)), view):
        assert (each.command[0].attribute, each.command[0].value) == ("RtAdmission", '"judged"')


def test_who_waits_for_others_is_not_let_go_before_these_have_ended() -> None:
    """HTCondor would start it at once; a parallel one is given no slots either."""
    deferred, wide = ad(2, rtadmission="parked", rtafter="1.0"), ad(3, **WIDE, rtadmission="judged")
    for edges, count in (([(ids(1)[0], ids(2)[0]), (ids(1)[0], ids(3)[0])], 0), ([], 1)):
        view = view_of(ad(1), deferred, wide, edges=edges)
        assert len(steered(Release(ids(2)), view)) == count
        assert len(steered(placed((3, 2, [0, 1])), view)) == count


def test_who_has_no_start_yet_is_not_let_go() -> None:
    """A promised job waits for a slot that may come back; without its promise it is best effort."""
    bound = {"rtadmission": "judged", "rtnodeset": "slot1@node0"}
    view = view_of(ad(1, **bound), ad(2, rtadmission="judged"))
    no_plan = Reserve(ids(), Schedule.empty(), unplanned=frozenset(ids(1, 2).tolist()))
    kept = [one for one in steered(no_plan, view) if one.job >= 0]
    assert texts(kept) == ["make job 1.0 wait for its next planned start"]
    assert {step.attribute for step in kept[0].command} == {"RtNodeSet"}
    gone = [one for one in steered(Reserve(ids(), Schedule.empty()), view) if one.job >= 0]
    assert [text.partition(":")[0] for text in texts(gone)] == [
        "let job 1.0 start as best effort",
        "let job 2.0 start as best effort",
    ]


def test_holds_and_releases() -> None:
    """A deferred job waits without being held; one that its user held is released."""
    view = view_of(ad(1), ad(2, rtadmission="parked"), ad(3, jobstatus=HELD))
    hold = steered(Hold(ids(1, 2, 3), np.full(3, -np.inf)), view)
    assert texts(hold) == ["hold job 1.0"]
    assert texts(steered(Release(ids(1, 3)), view)) == ["release job 3.0"]


def test_only_jobs_with_checkpoints_are_moved() -> None:
    """They have the time to write one; a job that makes way has not."""
    runs = {"jobstatus": RUNNING, "rtdeadline": NOW + 9e3}
    view = view_of(ad(1, **runs, on=[0]), ad(2, **runs, rtcheckpoint=True, on=[1]))
    moves = steered(Move(ids(1, 2), Schedule.empty()), view)
    assert [one.command for one in moves] == [
        None,
        (Act("Vacate", (job_id(2, 0),), "rtsched: it continues on other slots"),),
    ]
    (one,) = steered(Requeue(ids(1)), view)
    assert one.command[0].action == "VacateFast"
    memory = LastApplied()
    memory.remember(carried_out(Noted(), Noted().publish, [one])[0], NOW)
    assert not steered(Requeue(ids(1)), view, memory)


def test_what_cannot_be_done_is_said() -> None:
    """An action that HTCondor's adapter does not know is reported."""

    class Pause(Action):
        """No system does this."""

    (one,) = steered(Pause(ids(1)), view_of(ad(1)))
    assert (one.kind, one.command) == ("pause", None)


@pytest.mark.parametrize("overruns", ["vacate", "remove", "leave"])
def test_jobs_that_outlive_their_run_time(overruns: Any) -> None:
    """By the overrun and the slot's completing they may; what the plan gave a chunk counts too."""
    start = NOW - 600.0 - 41.0
    view = view_of(
        ad(1, jobstatus=RUNNING, start=start, remotehost="slot1@a"),
        ad(2, jobstatus=RUNNING, start=start + 70.0),
        ad(3, jobstatus=RUNNING, start=NOW - 200.0, rtlimit=100),
        ad(4, jobstatus=RUNNING, start=start, rtruntime=np.inf),
        ad(5),
    )
    settings, memory = CondorSettings(overruns=overruns), LastApplied()
    changes = list(overrun_changes(view, settings, memory, NOW))
    if overruns == "leave":
        assert not changes
        return
    action = "Remove" if overruns == "remove" else "VacateFast"
    assert [one.command[0] for one in changes] == [
        Act(action, (job_id(1, 0),), "rtsched: run time of 600 s is over"),
        Act(action, (job_id(3, 0),), "rtsched: run time of 100 s is over"),
    ]
    going = replace(view, leaving=frozenset({"slot1@a"}))
    assert len(list(overrun_changes(going, settings, memory, NOW))) == 1
    pool = Noted()
    for done in carried_out(pool, pool.publish, changes):
        memory.remember(done, NOW)
    assert not list(overrun_changes(view, settings, memory, NOW + 59.0))
    assert len(list(overrun_changes(view, settings, memory, NOW + 61.0))) >= 2


def test_jobs_that_htcondor_ends_itself_are_left_to_it() -> None:
    """It counts no moving of files: they may be within their limit."""
    view = view_of(ad(1, jobstatus=RUNNING, start=NOW - 5000.0))
    assert len(list(overrun_changes(view, CondorSettings(), LastApplied(), NOW))) == 1
    limited = replace(view, procs=view.procs.replace(limited=np.array([True])))
    assert not list(overrun_changes(limited, CondorSettings(), LastApplied(), NOW))


def test_what_is_remembered() -> None:
    """The table as written, when a negotiation was asked for, and who was told to end."""
    memory, pool = LastApplied(), Noted(replies={"RtWhy": ("failed", "?")})
    view = view_of()
    changes = [
        *steered(SetNodeWeight(np.empty(0, np.int64), np.ones(4)), view, memory),
        change("reserve", -1, "ask", Negotiate()),
        change("cancel", 1, "c", Act("Remove", (1, 2))),
        change("tell", 1, "t", Edit(4, (3,), "RtWhy", '"9"')),
    ]
    for done in carried_out(pool, pool.publish, changes):
        memory.remember(done, NOW)
    assert isinstance(changes[0].command[0], Publish)
    assert (memory.table, memory.written) == (changes[0].command[0].table, NOW)
    assert (memory.negotiated, memory.urged) == (NOW, {1: NOW, 2: NOW})
    memory.keep_only({2})
    assert memory.urged == {2: NOW}


FACTS = CondorFacts(margin=60.0, start_delay=20.0)
ONE = {"clusterid": 7, "procid": 0, "jobstatus": 1, "jobuniverse": 5, "owner": "alice"}
BOUND = ONE | {"rtadmission": "tok", "rtdeadline": NOW + 900, "rtruntime": 60, "rtnodeset": "s1"}
OTHER = ONE | {"clusterid": 8, "jobstatus": 2, "remotehost": "s1", "rtruntime": 60}


def queued(ads: Sequence[Any]) -> Queue:
    """Return the queue that ads make."""
    return queue_of(read_ads(ads), FACTS)


def missed(
    start_failures: StartFailureTracker, start: float, now: float, *others: dict[str, object]
) -> list[int]:
    """Return the clusters that cannot start, by a poll of a job that was to start at `start`."""
    queue = queued([BOUND | {"rtplannedstart": start}, *others])
    return [job >> 20 for job in start_failures.update(queue, FACTS, now)]


def test_one_start_may_fail() -> None:
    """A job that misses one start is planned anew; the second one in a row is too many."""
    start_failures = StartFailureTracker()
    assert missed(start_failures, NOW, NOW + 10) == []
    assert missed(start_failures, NOW, NOW + 21) == []
    assert missed(start_failures, NOW, NOW + 30) == []
    assert missed(start_failures, NOW + 60, NOW + 70) == []
    assert missed(start_failures, NOW + 60, NOW + 81) == [7]


def test_the_next_start_is_planned_on_other_slots() -> None:
    """The machine may be dead; it is not if somebody runs there, or if the job starts nowhere."""
    start_failures = StartFailureTracker()
    missed(start_failures, NOW, NOW + 10)
    assert start_failures.shunned == set()
    missed(start_failures, NOW, NOW + 21)
    assert start_failures.shunned == {"s1"}
    missed(start_failures, NOW + 30, NOW + 40, OTHER)
    assert start_failures.shunned == set()
    missed(start_failures, NOW, NOW + 41)
    assert missed(start_failures, NOW + 60, NOW + 81) == [7]
    assert start_failures.shunned == set()
    other = StartFailureTracker()
    missed(other, NOW, NOW + 21)
    missed(other, NOW + 400, NOW + 401)
    assert other.shunned == set(), "after some minutes it may be back"


def test_a_start_that_was_kept_is_not_missed() -> None:
    """A job that began as planned, and waits again since it was stopped, is to be planned anew."""
    start_failures = StartFailureTracker()
    stopped = BOUND | {"rtplannedstart": NOW, "jobcurrentstartdate": NOW + 3}
    for later in (5, 21, 60):
        queue = queued([stopped])
        assert not start_failures.update(queue, FACTS, NOW + later)
        assert start_failures.shunned == set()
        assert bound_of(queue, FACTS, NOW + later) == {}
    again = queued([stopped | {"rtplannedstart": NOW + 30}])
    assert list(bound_of(again, FACTS, NOW + 31)) == [7 << 20]
    assert bound_of(again, FACTS, NOW + 31, {"s1"}) == {}, "its slot takes no jobs any more"


def test_a_job_that_fits_is_not_to_blame() -> None:
    """Where its own requirements hold, others keep it from starting, and it begins anew."""
    asked, start_failures = [], StartFailureTracker()

    def fits(job: int, slots: Sequence[str]) -> bool:
        asked.append((job >> 20, list(slots)))
        return True

    for turn in range(5):
        start = NOW + 60 * turn
        queue = queued([BOUND | {"rtplannedstart": start}])
        assert not start_failures.update(queue, FACTS, start + 21, fits=fits)
        assert not start_failures.update(queue, FACTS, start + 22, fits=fits)
    assert asked == [(7, ["s1"])] * 4, "after two in a row, and after each one more"


def test_who_is_to_blame_is_asked_once() -> None:
    """Its promise is void then; a job that stays where it is costs no further questions."""
    asked, start_failures = [], StartFailureTracker()

    def fits(job: int, slots: Sequence[str]) -> bool:
        asked.append(job)
        return False

    for start in (NOW, NOW + 60, NOW + 60):
        queue = queued([BOUND | {"rtplannedstart": start}])
        stuck = start_failures.update(queue, FACTS, start + 21, fits=fits)
    assert (len(stuck), len(asked)) == (1, 1)


def test_a_machine_that_is_back_is_no_longer_shunned() -> None:
    """Its startd was started after the start that was missed."""
    start_failures = StartFailureTracker()
    queue = queued([BOUND | {"rtplannedstart": NOW}])
    for started in (NOW - 5000, NOW + 19):
        start_failures.update(queue, FACTS, NOW + 21, started={"s1": started})
        assert start_failures.shunned == {"s1"}
    start_failures.update(queued([ONE]), FACTS, NOW + 25, started={"s1": NOW + 24})
    assert start_failures.shunned == set()


def test_a_schedd_that_starts_nothing_is_no_machine_that_is_dead() -> None:
    """Where several machines are to blame at a time, and no job starts, none of them is."""
    ads = [
        BOUND | {"clusterid": number, "rtnodeset": f"s1@m{number}", "rtplannedstart": NOW}
        for number in range(3)
    ]
    start_failures = StartFailureTracker()
    start_failures.update(queued(ads[:1]), FACTS, NOW + 21)
    assert start_failures.shunned == {"s1@m0"}
    start_failures.update(queued(ads), FACTS, NOW + 22)
    assert start_failures.shunned == set()
    began = OTHER | {"remotehost": "s1@m9", "jobcurrentstartdate": NOW + 5}
    start_failures.update(queued([*ads, began]), FACTS, NOW + 23)
    assert start_failures.shunned == {"s1@m0", "s1@m1", "s1@m2"}


def test_a_machine_of_many_slots_may_be_dead() -> None:
    """But not if it has most of the slots that there are."""
    ads = [
        BOUND | {"clusterid": number, "rtnodeset": f"s{number}@m", "rtplannedstart": NOW}
        for number in range(3)
    ]
    for slots, left in ((6, 3), (5, 0)):
        start_failures = StartFailureTracker()
        start_failures.update(queued(ads), FACTS, NOW + 21, slots=slots)
        assert len(start_failures.shunned) == left


def test_without_a_negotiator_no_start_is_missed() -> None:
    """What nobody offers a slot cannot be blamed for not taking it."""
    start_failures = StartFailureTracker()
    for turn in range(4):
        now = NOW + 60 * turn
        queue = queued([BOUND | {"rtplannedstart": now}])
        assert not start_failures.update(queue, FACTS, now + 21, negotiated=False)
    assert not start_failures.shunned


def test_no_start_is_missed_for_a_schedd_that_was_started_anew() -> None:
    """Its time begins with the schedd, which is asked about only if a start is late."""
    tracker = StartFailureTracker()
    queue = queued([BOUND | {"rtplannedstart": NOW}])
    asked = []

    def started(job: int) -> float:
        assert job == queue.procs.job[0]
        asked.append(NOW + 30)
        return NOW + 30

    for seconds, shunned in ((15, set()), (31, set()), (50, set()), (51, {"s1"})):
        assert not tracker.update(queue, FACTS, NOW + seconds, schedd_started=started)
        assert tracker.shunned == shunned
    assert len(asked) == 3


def test_slots_that_others_have_are_no_chance() -> None:
    """Somebody was quicker: that is not the job's fault."""
    start_failures = StartFailureTracker()
    for turn in range(4):
        assert missed(start_failures, NOW + 60 * turn, NOW + 60 * turn + 21, OTHER) == []


def test_a_job_that_ran_begins_anew() -> None:
    """What was started and came back has shown that it can start."""
    start_failures = StartFailureTracker()
    missed(start_failures, NOW, NOW + 21)
    running = BOUND | {"jobstatus": 2, "remotehost": "s1"}
    start_failures.update(queued([running]), FACTS, NOW + 30)
    assert missed(start_failures, NOW + 60, NOW + 81) == []


def test_about_to_start_for_as_long_as_a_start_may_take() -> None:
    """Then it only waits, and may be planned anew."""
    queue = queued([BOUND | {"rtplannedstart": NOW}])
    assert list(bound_of(queue, FACTS, NOW + 20)) == [7 << 20]
    assert not bound_of(queue, FACTS, NOW + 21)


def test_work_begins_at_the_deferral_time() -> None:
    """A deferred job waits in its slot, but not for as long as its user likes."""
    begin = np.array([-np.inf, NOW + 50, NOW + 10 * DEFERRAL_S])
    procs = Procs.build(3, start=np.full(3, NOW), begin=begin)
    assert (work_began(procs) - NOW).tolist() == [0.0, 50.0, DEFERRAL_S]
