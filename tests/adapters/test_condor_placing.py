"""From a plan to jobs that may start on their slots in HTCondor, and back."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
from condor_views import MARGIN, NOW, Noted, ad, plan_of, view_of
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor.commands import (
    CLOSED_S,
    Act,
    Edit,
    LastApplied,
    Negotiate,
    Publish,
    Rank,
    carried_out,
    change,
)
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.pool_state import HELD, IDLE, RUNNING, PoolState
from rtsched.adapters.condor.reserving import (
    FIRST_PRIORITY,
    STARTING_S,
    SURPLUS,
    bindings_of,
    has_variables,
    reserve_changes,
    their_turn,
    variables,
    with_variables,
)
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.table import SlotTable
from rtsched.adapters.live import FIRST_OWN_ID, Change
from rtsched.model.schedule import Schedule

A, B, C = (job_id(cluster, 0) for cluster in (1, 2, 3))
LOAD = {"rtsigma": 100.0, "rtcms": 0.1, "rtcps": 10.0, "totalsubmitprocs": 4}
PROMISED = {"rtadmission": "tok", "rtdeadline": NOW + 5000.0}
CLOSED = np.ones(5, np.bool_)
"""No other job may start anywhere."""


def reserved(
    plan: Schedule, view: PoolState, memory: LastApplied | None = None, **settings: Any
) -> Any:
    """Return the changes that a plan comes to, but the table and requests for negotiations."""
    made = changes_of(plan, view, memory, **settings)
    return [one for one in made if not isinstance(one.command, tuple) or one.job >= 0]


def changes_of(
    plan: Schedule, view: PoolState, memory: LastApplied | None = None, **settings: Any
) -> list[Change]:
    """Return all changes that a plan comes to."""
    memory = memory or LastApplied()
    names = view.observation.cluster.nodes.texts("name")
    memory.closed |= {name or "": NOW - CLOSED_S for name in names}
    return reserve_changes(plan, view, CondorSettings(**settings), memory, NOW)


def edits(changes: list[Change], attribute: str) -> dict[int, str]:
    """Return the values that an attribute gets, by job; the last one counts."""
    return {
        job: step.value
        for rank in Rank
        for one in changes
        for step in one.command or ()
        if isinstance(step, Edit) and step.attribute == attribute and step.rank == rank
        for job in step.jobs
    }


def test_a_job_that_is_first_on_its_slot_may_start_there() -> None:
    """It is told its promise and its planned start, and comes before its user's other jobs."""
    view = view_of(ad(1, **PROMISED), ad(2, **PROMISED))
    changes = reserved(plan_of((A, 20.7, [1]), (B, 900.0, [1])), view)
    assert edits(changes, "RtNodeSet") == {A: '"s2"'}
    assert edits(changes, "RtPlannedStart") == {A: f"{NOW:.0f}"}
    assert edits(changes, "RtPromise") == {A: f"{NOW + 5000:.0f}"}
    minutes = int((NOW + 5000) // 60)
    prio = FIRST_PRIORITY - minutes
    assert edits(changes, "JobPrio") == {A: str(FIRST_PRIORITY + prio), B: str(prio)}


def test_nothing_is_asked_for_twice() -> None:
    """What the poll shows already is no change."""
    plan, memory = plan_of((A, 20.0, [1])), LastApplied(negotiated=NOW)
    bound = {"rtnodeset": "s2", "rtplannedstart": NOW, "rtpromise": NOW + 5000}
    prio = 2 * FIRST_PRIORITY - int((NOW + 5000) // 60)
    view = view_of(ad(1, **PROMISED, **bound, jobprio=prio))
    first = changes_of(plan, view, memory)
    assert [type(one.command[0]) for one in first] == [Publish]
    memory.table, memory.written = first[0].command[0].table, NOW
    assert changes_of(plan, view, memory) == []


def test_the_table_is_written_again_in_good_time() -> None:
    """Changed or not: HTCondor takes a table that is too old for none."""
    memory = LastApplied()
    (first,) = changes_of(plan_of(), view_of(), memory, table_valid_s=300.0)
    memory.table, memory.written = first.command[0].table, NOW - 99.0
    assert changes_of(plan_of(), view_of(), memory, table_valid_s=300.0) == []
    memory.written = NOW - 100.0
    assert len(changes_of(plan_of(), view_of(), memory, table_valid_s=300.0)) == 1


def test_the_table_of_a_plan() -> None:
    """Starts are kept a margin earlier, those of jobs without a number too; slow slots delay."""
    plan = plan_of((A, 100.0, [0]), (FIRST_OWN_ID, 50.0, [2]), (B, 2000.0, [1]))
    busy = [ad(7, jobstatus=RUNNING, on=[0]), ad(8, jobstatus=RUNNING, on=[1])]
    speeds = [2.0, 1.0, 2.0, 1.0]
    view = view_of(ad(1, **PROMISED), ad(2, **PROMISED), *busy, speeds=speeds)
    (written,) = [
        step.table
        for one in changes_of(plan, view, reserve_ahead_s=1000.0)
        for step in one.command or ()
        if isinstance(step, Publish)
    ]
    assert written.kept == {
        "s1": ((int(NOW + 100 - MARGIN - STARTING_S), 1),),
        "s3": ((int(NOW + 50 - MARGIN - STARTING_S), 1),),
    }
    assert written.delay == {"s1": 1.0, "s2": 2.0, "s3": 1.0, "s4": 2.0}


def test_a_job_behind_another_waits() -> None:
    """One that runs or waits must end first; the node set is taken back where that is new."""
    view = view_of(ad(1, **PROMISED), ad(2, **PROMISED, rtnodeset="s2"), edges=[(A, B)])
    changes = reserved(plan_of((A, 0.0, [0]), (B, 700.0, [1])), view)
    assert edits(changes, "RtNodeSet") == {A: '"s1"', B: "undefined"}


def test_a_job_is_not_sent_long_before_its_begin() -> None:
    """HTCondor would let it take the slot and wait there."""
    for begin, bound in ((NOW + MARGIN + 1, False), (NOW + MARGIN, True)):
        view = view_of(ad(1, **PROMISED, begin=begin))
        changes = reserved(plan_of((A, 34.0, [0])), view)
        assert (edits(changes, "RtNodeSet") == {A: '"s1"'}) == bound


def test_a_moved_job_leaves_its_slot_before_another_gets_it() -> None:
    """Two that change places: both are unbound, and only then bound."""
    view = view_of(ad(1, **PROMISED, rtnodeset="s1"), ad(2, **PROMISED, rtnodeset="s2"))
    pool = Noted()
    changes = reserved(plan_of((A, 0.0, [1]), (B, 0.0, [0])), view)
    assert {one.outcome for one in carried_out(pool, pool.publish, changes)} == {"done"}
    asked = [each for each in pool.asked if each[0] == "RtNodeSet"]
    assert asked == [
        ("RtNodeSet", "undefined", (A, B)),
        ("RtNodeSet", '"s2"', (A,)),
        ("RtNodeSet", '"s1"', (B,)),
    ]


def test_no_job_is_bound_while_another_cannot_be_unbound() -> None:
    """A failed step ends its change, and holds back all that are to follow."""
    pool = Noted(replies={"TAKEN": ("failed", "no answer")})
    taken = change("reserve", A, "take", Edit(Rank.TAKE, (A,), "TAKEN", "undefined"))
    bound = change("reserve", B, "bind", Edit(Rank.BIND, (B,), "RtNodeSet", '"s1"'))
    marked = change("tell", C, "tell", Edit(Rank.JOB, (C,), "RtWhy", '"x"'))
    dones = carried_out(pool, pool.publish, [taken, bound, marked, Change("suspend", C, "?")])
    assert [one.outcome for one in dones] == ["failed", "failed", "done", "unsupported"]
    assert [each[0] for each in pool.asked] == ["TAKEN", "RtWhy"]


def test_a_job_starts_only_with_all_that_it_must_carry() -> None:
    """A chunk whose fraction could not be set is not bound."""
    procs = [ad(1, proc, **PROMISED, **LOAD) for proc in range(4)]
    pool = Noted(replies={"RtFraction": ("refused", "protected")})
    changes = reserved(plan_of((A, 0.0, [0, 1])), view_of(*procs))
    outcome = {one.change.kind: one.outcome for one in carried_out(pool, pool.publish, changes)}
    assert outcome == {"reserve": "refused", "set-priority": "done"}
    assert not [each for each in pool.asked if each[0] == "RtNodeSet"]


def test_the_chunks_of_a_load() -> None:
    """Each proc gets the slot of its chunk, its fraction, and what its program reads."""
    procs = [ad(1, proc, **PROMISED, **LOAD, environment="A=1 B='x y'") for proc in range(4)]
    plan = plan_of((A, 0.0, [2, 0, 1]))
    plan = Schedule(plan.entries, plan.indptr, plan.nodes, np.array([0.5, 0.3, 0.2]))
    changes = reserved(plan, view_of(*procs))
    ids = [job_id(1, proc) for proc in range(4)]
    assert edits(changes, "RtNodeSet") == dict(zip(ids, ('"s3"', '"s1"', '"s2"'), strict=False))
    assert edits(changes, "RtFraction") == dict(zip(ids, ("0.5", "0.3", "0.2"), strict=False))
    assert edits(changes, "RtLimit") == dict.fromkeys(ids[:3], f"{600 - MARGIN:.0f}")
    assert edits(changes, "Environment")[ids[1]] == (
        f"\"A=1 B='x y' RTSCHED_DEADLINE={NOW + 5000:.0f} RTSCHED_NODES=3 RTSCHED_NODE=s1 "
        'RTSCHED_CHUNK=1 RTSCHED_FRACTION=0.300000000 RTSCHED_FROM=0.5 RTSCHED_TO=0.8"'
    )


def test_the_rounds_of_a_load() -> None:
    """By hand: on two slots 100 times as slow to compute as to send, a part is 50 times the first.

    The margin, which is part of the time to set up a slot, does not count in every round.
    """
    view = view_of(*(ad(1, proc, **PROMISED, **LOAD) for proc in range(4)))
    load = {"sigma": 100.0, "cms": 0.1, "cps": 10.0, "setup_node": MARGIN, "setup_once": MARGIN}
    columns = {name: np.array([value]) for name, value in load.items()}
    queued = view.observation.queued.replace(**columns)
    view = replace(view, observation=replace(view.observation, queued=queued))
    plan = plan_of((A, 0.0, [2, 0]))
    entries = plan.entries.replace(rounds=np.array([2], np.int32))
    plan = Schedule(entries, plan.indptr, plan.nodes, np.array([0.5, 0.5]))
    told = edits(reserved(plan, view), "Environment")
    assert len(told) == 2
    for text in told.values():
        assert text.endswith(f' RTSCHED_ROUNDS={1 / 51:.9f}:{50 / 51:.9f}"')


def test_a_load_with_too_few_procs_is_not_bound() -> None:
    """A part of the load would be lost; that is reported instead."""
    procs = [ad(1, proc, **PROMISED, **LOAD) for proc in range(2)]
    changes = reserved(plan_of((A, 0.0, [2, 0, 1])), view_of(*procs))
    assert not edits(changes, "RtNodeSet")
    assert [one.text for one in changes if not one.command] == [
        "job 1.0 has fewer idle procs than its load has parts"
    ]


def test_a_load_that_is_divided_anew() -> None:
    """Procs that lose their chunk carry nothing of it any more, those that keep a slot are new."""
    held = {"rtfraction": 0.333333333, "rtlimit": 570, "environment": "RTSCHED_CHUNK=0 A=1"}
    procs = [
        ad(1, proc, **PROMISED, **LOAD, **held, rtnodeset=f"s{proc + 1}", rtnode=f"s{proc + 1}")
        for proc in range(3)
    ]
    pool = Noted()
    changes = reserved(plan_of((A, 0.0, [0, 1])), view_of(*procs))
    carried_out(pool, pool.publish, changes)
    ids = [job_id(1, proc) for proc in range(3)]
    sets = [each[1:] for each in pool.asked if each[0] == "RtNodeSet"]
    assert sets == [("undefined", tuple(ids)), ('"s1"', (ids[0],)), ('"s2"', (ids[1],))]
    assert edits(changes, "RtNode") == {ids[2]: "undefined"}
    assert edits(changes, "Environment")[ids[2]] == '"A=1"'


def test_the_rest_of_a_load_that_runs() -> None:
    """Chunks keep their slots, those whose slot is gone start anywhere, spare procs are removed."""
    some = {**PROMISED, **LOAD}
    view = view_of(
        ad(1, 0, **some, jobstatus=RUNNING, on=[0]),
        ad(1, 1, **some, rtnode="s2", rtnodeset="s2"),
        ad(1, 2, **some, rtnode="s3"),
        ad(1, 3, **some, rtnode="s4", rtnodeset="s4"),
        ad(1, 4, **some),
        ad(1, 5, **some, rtnode="s1", rtnodeset="s1", jobstatus=HELD),
        ad(2, 0, **LOAD, jobstatus=RUNNING, on=[1]),
        ad(2, 1, **LOAD),
        down=[3],
    )
    changes = reserved(plan_of(), view)
    gone, held = job_id(1, 3), job_id(1, 5)
    sets = {job_id(1, 2): '"s3"', gone: "undefined", held: "undefined"}
    assert edits(changes, "RtNodeSet") == sets
    assert edits(changes, "RtAdmission") == dict.fromkeys((gone, held), '"unjudged"')
    acts = [step for one in changes for step in one.command if isinstance(step, Act)]
    assert acts == [Act("Remove", (job_id(1, 4),), SURPLUS)]


def test_a_parallel_job_gets_its_planned_size() -> None:
    """All its slots are its node set; the host counts that its user asked for are kept."""
    wide = {"jobuniverse": 11, "minhosts": 2, "maxhosts": 4, "rtspeedup": "linear"}
    changes = reserved(plan_of((A, 0.0, [3, 1, 0])), view_of(ad(1, **PROMISED, **wide)))
    assert edits(changes, "RtNodeSet") == {A: '"s4,s2,s1"'}
    assert edits(changes, "RtHosts") == {A: '"2-4"'}
    assert (edits(changes, "MinHosts"), edits(changes, "MaxHosts")) == ({A: "3"}, {A: "3"})


def test_what_is_no_longer_promised_starts_as_any_other_job() -> None:
    """It carries nothing of its plan, has its own size and its own priority again."""
    wide = {"jobuniverse": 11, "minhosts": 3, "maxhosts": 3, "rthosts": "2-4", "rtlimit": 500}
    view = view_of(
        ad(1, **PROMISED, **wide, rtnodeset="s1,s2,s3", jobprio=FIRST_PRIORITY - 7, rtjobprio=5)
    )
    pool = Noted()
    carried_out(pool, pool.publish, reserved(plan_of(), view))
    assert [each[:2] for each in pool.asked] == [
        ("RtNodeSet", "undefined"),
        ("RtLimit", "undefined"),
        ("MinHosts", "2"),
        ("MaxHosts", "4"),
        ("RtHosts", "undefined"),
        ("RtAdmission", '"unjudged"'),
        ("JobPrio", "5"),
    ]


def test_what_is_no_longer_promised_still_waits_for_those_before_it() -> None:
    """It loses its slots, and starts as any other only when the others have ended."""
    jobs = ad(1), ad(2, **PROMISED, rtnodeset="s1")
    changes = reserved(plan_of(), view_of(*jobs, edges=[(A, B)]))
    assert edits(changes, "RtNodeSet") == {B: "undefined"}
    assert not edits(changes, "RtAdmission")
    assert edits(reserved(plan_of(), view_of(*jobs)), "RtAdmission") == {B: '"unjudged"'}


def test_best_effort_and_deferred_jobs_are_left_alone() -> None:
    """Nothing was promised to them, so nothing is taken."""
    for admission in (None, "unjudged", "parked"):
        assert not reserved(plan_of(), view_of(ad(1, rtadmission=admission, jobprio=7)))


def test_a_negotiation_is_asked_for_when_a_job_may_start() -> None:
    """When it gets its slots, and while it waits on them; not again at once."""
    for since, wanted in ((11.0, 1), (9.0, 0)):
        for view, plan in (
            (view_of(ad(1, **PROMISED)), plan_of((A, 0.0, [0]))),
            (replace(view_of(), bound=frozenset({A})), plan_of()),
        ):
            changes = changes_of(plan, view, LastApplied(negotiated=NOW - since))
            asked = [one for one in changes if isinstance(one.command[0], Negotiate)]
            assert len(asked) == wanted
    later = changes_of(plan_of(), view_of(), LastApplied())
    assert not [one for one in later if isinstance(one.command[0], Negotiate)]


def test_a_job_gets_no_slots_before_all_of_them_are_free() -> None:
    """Else a plan that finds better ones would have to take them back again and again."""
    wide = {"jobuniverse": 11, "minhosts": 2, "maxhosts": 2}
    ads = [ad(9, jobstatus=RUNNING, on=[0]), ad(1, **PROMISED, **wide), ad(2, **PROMISED)]
    view = view_of(*ads, down=[2])
    assert not their_turn(plan_of((A, 0.0, [0, 1])), view, CLOSED[:4], NOW).any()
    assert not their_turn(plan_of((B, 0.0, [2])), view, CLOSED[:4], NOW).any()
    assert their_turn(plan_of((A, 90.0, [1, 3])), view, CLOSED[:4], NOW).all()


def test_a_job_gets_no_slots_on_which_another_may_be_starting() -> None:
    """They are closed to others first; what was on its way then shows in the next poll."""
    memory, plan = LastApplied(), plan_of((A, 0.0, [1]), (B, 600.0, [2]))
    before = view_of(ad(1, **PROMISED), ad(2, **PROMISED), ad(9, jobstatus=RUNNING, on=[2]))
    after = view_of(ad(1, **PROMISED), ad(2, **PROMISED))

    def bound(view: PoolState, at: float) -> set[int]:
        later = replace(view, observation=replace(view.observation, time=NOW + at))
        made = reserve_changes(plan, later, CondorSettings(), memory, NOW + at + 0.5)
        return set(edits(made, "RtNodeSet"))

    assert bound(before, 0.0) == bound(before, CLOSED_S) == set()
    assert bound(before, CLOSED_S + 0.5) == {A}
    assert memory.closed.keys() == {"s2"}
    assert bound(after, 60.0) == {A}, "the other slot came free just now"
    assert memory.kept["s3"] == ((0, 1),)
    assert bound(after, 60.0 + CLOSED_S + 0.5) == {A, B}


def test_a_job_that_is_about_to_start_keeps_what_it_has() -> None:
    """It is in no plan, and still carries its node set, its priority and its procs."""
    some = {**PROMISED, **LOAD, "jobprio": FIRST_PRIORITY - 7}
    view = view_of(
        ad(1, 0, **some, rtnode="s1", rtnodeset="s1", jobstatus=RUNNING, on=[0]), ad(1, 1, **some)
    )
    bound = replace(view, bound=frozenset({A}))
    assert edits(reserved(plan_of(), bound), "JobPrio") == {}
    assert [one for one in reserved(plan_of(), bound) if one.kind != "set-priority"] == []


@st.composite
def scenes(draw: Any) -> tuple[Schedule, PoolState]:
    """Plans of up to eight jobs on five rows of up to three slots, some of them busy."""
    owner = draw(st.lists(st.sampled_from(["p", "q", "r"]), min_size=5, max_size=5))
    count = draw(st.integers(0, 8))
    entries = [
        (
            job_id(1 + at, 0),
            float(draw(st.integers(-50, 300))),
            draw(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)),
        )
        for at in range(count)
    ]
    wide = {"jobuniverse": 11, "minhosts": 1, "maxhosts": 3}
    ads = [ad(1 + at, **PROMISED, **wide) for at in range(count)]
    busy = draw(st.lists(st.integers(0, 4), unique=True))
    ads += [ad(50 + row, jobstatus=RUNNING, on=[row]) for row in busy]
    held = draw(st.integers(0, max(count - 1, 0)))
    ads = [{**one, "jobstatus": HELD} if at == held else one for at, one in enumerate(ads)]
    return plan_of(*entries), view_of(*ads, slots=owner)


@given(scenes())
def test_no_two_jobs_are_bound_to_one_row(scene: tuple[Schedule, PoolState]) -> None:
    """Each bound job is the first on all of its rows."""
    plan, view = scene
    bindings, short = bindings_of(plan, view, CLOSED, NOW)
    rows = [row for each in bindings for row in plan.nodes_of(each.entry).tolist()]
    assert len(rows) == len(set(rows))
    assert not short
    for each in bindings:
        start = plan.entries.start[each.entry]
        for at in range(len(plan)):
            if set(plan.nodes_of(at)) & set(plan.nodes_of(each.entry)):
                assert plan.entries.start[at] >= start
        assert {view.procs.status[row] for row in each.procs} == {IDLE}


@given(scenes(), st.randoms(use_true_random=False))
def test_bound_jobs_never_take_what_an_earlier_start_needs(
    scene: tuple[Schedule, PoolState], dice: Any
) -> None:
    """In whatever order they start, all that are first on their rows start in time."""
    # Rows come free just before they are needed; on a slot any free row will do.
    plan, view = scene
    owner = view.slots.texts("name")
    turn = their_turn(plan, view, CLOSED, NOW)
    first = [
        at
        for at in range(len(plan))
        if all(
            (plan.entries.start[at], plan.entries.job[at])
            <= min(
                (plan.entries.start[other], plan.entries.job[other])
                for other in range(len(plan))
                if row in plan.nodes_of(other)
            )
            for row in plan.nodes_of(at).tolist()
        )
    ]
    busy = set(view.observation.allocations.nodes.tolist())
    free = {name: sum(owner[r] == name and r not in busy for r in range(5)) for name in owner}
    waits = list(first)

    def start(at: int) -> bool:
        needs = [owner[row] for row in plan.nodes_of(at).tolist()]
        if any(free[name] < needs.count(name) for name in needs):
            return False
        for name in needs:
            free[name] -= 1
        waits.remove(at)
        return True

    eager = [at for at in first if turn[at]]
    dice.shuffle(eager)
    for at in eager:
        start(at)
    for at in sorted(first, key=lambda at: (plan.entries.start[at], plan.entries.job[at])):
        for row in set(plan.nodes_of(at).tolist()) & busy:
            busy.discard(row)
            free[owner[row]] += 1
        if at in waits:
            assert start(at)


@given(
    st.lists(
        st.sampled_from(["A=1", "B='x y'", "C=''''", "'D E'=2", "RTSCHED_CHUNK=4", "XRTSCHED_TO=1"])
    ),
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12),
)
def test_environments_keep_what_users_wrote(words: list[str], node: str) -> None:
    """Ours come last and once; all other assignments stay as they were."""
    told = variables([0.25, 0.75], 1, node, None)
    made = with_variables("  ".join(words), told)
    others = [word for word in words if not word.startswith("RTSCHED_")]
    assert made.startswith(" ".join(others))
    assert has_variables(made)
    assert with_variables(made, told) == made
    assert with_variables(made, {}) == " ".join(others)
    assert len(re.findall(r"(?<!X)RTSCHED_TO=", made)) == 1 + node.count("RTSCHED_TO=")


def test_an_environment_that_makes_no_sense_stays() -> None:
    """With an open quote nothing in it can be told apart."""
    assert with_variables("A='x B=1 ", {"RTSCHED_CHUNK": "0"}) == "A='x B=1 RTSCHED_CHUNK=0"
    assert not has_variables("A='x B=1 ")


def test_a_table_that_cannot_be_written_stops_nothing_else() -> None:
    """The failure is that change's own."""
    pool = Noted(replies={"table": ("failed", "full")})
    changes = [
        change("reserve", -1, "write", Publish(SlotTable())),
        change("reserve", A, "bind", Edit(Rank.BIND, (A,), "RtNodeSet", '"s1"')),
        change("reserve", -1, "ask", Negotiate()),
    ]
    outcomes = [one.outcome for one in carried_out(pool, pool.publish, changes)]
    assert outcomes == ["failed", "done", "done"]
