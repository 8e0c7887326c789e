"""What actions come to: commands in their order, and what their answers mean."""

import stat
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import TOKEN, job_rows, printed

from rtsched.adapters.live import Change, Done, Marks, Observation
from rtsched.adapters.slurm import last_applied
from rtsched.adapters.slurm.commands import (
    Command,
    CommandRunner,
    Rank,
    batchable,
    carried_out,
    outcome_of,
)
from rtsched.adapters.slurm.comments import options_in, record_of, with_message, with_record
from rtsched.adapters.slurm.facts import Partition, SlurmFacts
from rtsched.adapters.slurm.last_applied import (
    UNSURE,
    AppliedFile,
    LastApplied,
    SlurmState,
    applied,
)
from rtsched.adapters.slurm.observation import jobs_of, marks_of, requeued_parts
from rtsched.adapters.slurm.reserving import own_shape, reserve_changes
from rtsched.adapters.slurm.rows import NO_DEADLINE, ReservationRow
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.steering import SlurmSteering
from rtsched.adapters.slurm.system import SlurmSystem
from rtsched.errors import AdapterError
from rtsched.model.actions import (
    Cancel,
    DropDeadline,
    ExchangePlaces,
    Notify,
    Place,
    Requeue,
    Restart,
    SetNodeWeight,
    SetPriority,
)
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement

NOW = 1_800_000_000.0
NAMES = tuple(f"n{i}" for i in range(6))


def view_of(*jobs: dict[str, str], ranges: dict[int, tuple[int, int]] | None = None) -> SlurmState:
    """Return a view of waiting jobs numbered from 1 on six idle nodes."""
    plain = {"dependency": "(null)", "tres-per-job": "N/A", "numcpus": "1", "minmemory": "0"}
    plain |= {"tres": "node=1", "maxnodes": "1", "timelimit": "10:00", "deadline": "N/A"}
    plain |= {"partition": "all"}
    rows = job_rows(
        printed(*({**plain, "jobid": str(at + 1), **job} for at, job in enumerate(jobs)))
    )
    facts = SlurmFacts(margin=20.0, longest=1e6, partitions={"all": Partition("all", nodes=6)})
    which = np.arange(len(jobs))
    queued = jobs_of(rows, which, facts, ranges=ranges)
    observation = Observation(NOW, Cluster.uniform(6), queued, marks=marks_of(rows, which, facts))
    return SlurmState(rows, observation, facts, NAMES, [], NOW)


def ids(*jobs: int) -> Any:
    """Return an array of job ids."""
    return np.array(jobs, np.int64)


def steered(
    action: Any, view: SlurmState, memory: LastApplied | None = None, **settings: Any
) -> list[Change]:
    """Return what an action comes to."""
    steering = SlurmSteering(view, memory or LastApplied(), SlurmSettings(**settings))
    return list(steering.changes(action))


def test_slurm_is_told_not_to_cancel_a_job_at_its_deadline() -> None:
    """What it was is known afterwards, to the next process too: it is the job's deadline."""
    due, memory = NOW + 900, LastApplied()
    parked = {"admin_comment": "rtsched:parked --time=10"}
    view = view_of({"deadline": f"{due:.0f}", **parked}, {})
    (change,) = steered(DropDeadline(ids(1, 2, 9)), view)
    assert change.command.words == ("scontrol", "update", "JobId=1", "Deadline=uts4102444800")
    assert change.command.rank < Rank.JOB, "before it is released"
    assert memory.foreseen([change], NOW).deadlines == {1: due}
    memory.remember(Done(change, "done"), NOW)
    assert not steered(DropDeadline(ids(1)), view, memory)
    put_off = {"deadline": f"{NO_DEADLINE:.0f}"}
    for known in (memory, LastApplied.of(memory.kept())):
        rows = view_of({**put_off, **parked}, put_off).rows
        known.restore_deadlines(rows)
        assert rows.deadline[0] == due
        assert np.isnan(rows.deadline[1]), "of a job of which nothing is known"
        assert rows.mark[0] == "rtsched:unpromised --time=10"
    memory.keep_only({2}, set())
    assert not memory.kept().deadlines


def test_a_job_without_a_promise_has_the_deadline_that_its_admin_comment_keeps() -> None:
    """It waits to be promised something, unless its user holds it, and is never given a size."""
    mark = {"admin_comment": f"rtsched:unpromised --time=30 --deadline=uts{NOW + 900:.0f}"}
    rows = view_of({**mark, "prioritylong": "9"}, {**mark, "prioritylong": "0"}, {}).rows
    LastApplied().restore_deadlines(rows)
    assert rows.deadline[:2].tolist() == [NOW + 900] * 2
    marks = marks_of(rows, np.arange(3), SlurmFacts())
    assert marks.unpromised.tolist() == [True, False, False]
    assert marks.texts("otherwise") == ["run", None, None]
    assert marks.deferred.tolist() == [False] * 3
    assert list(own_shape(rows, 0, {}, "reserve")) == []


def test_the_largest_differences_of_priority_come_first() -> None:
    """Site factors are whole steps; only so many change, those that differ most."""
    view = view_of({}, {}, {}, {})
    action = SetPriority(ids(1, 2, 3, 4), np.array([0.001, 0.5, -2.0, 0.25]))
    changes = steered(action, view, site_factors_per_cycle=2)
    assert [change.command.words[-1] for change in changes] == [
        "SiteFactor=-2000",
        "SiteFactor=500",
    ]
    memory = LastApplied(factors={3: -2000, 2: 500})
    assert [change.job for change in steered(action, view, memory)] == [4]


def test_jobs_exchange_places() -> None:
    """Within a partition, by their own priorities; the job without a deadline keeps its place."""
    last = {"admin_comment": "rtsched:unpromised --time=10"}
    view = view_of(
        {"prioritylong": "900", **last},
        {"prioritylong": "800", "admin_comment": "(null)"},
        {"prioritylong": "700", **last},
        {"prioritylong": "600", **last},
    )
    action = ExchangePlaces(ids(1, 3, 4), np.array([3, 2, 1]))
    words = {
        change.job: change.command.words[-1] for change in steered(action, view, LastApplied())
    }
    assert words == {1: "SiteFactor=-300", 4: "SiteFactor=300"}
    memory = LastApplied(factors={1: -300, 4: 300})
    view.rows.priority[[0, 3]] = [600, 900]
    assert not steered(action, view, memory)
    view.rows.priority[:] = [609, 812, 707, 904]  # ages: order and places are as wanted
    assert not steered(action, view, memory)
    left = steered(ExchangePlaces(ids(1), np.array([1])), view, LastApplied(factors={1: 0, 2: 40}))
    assert [change.command.words[2:] for change in left] == [("JobId=2", "SiteFactor=0")]


def test_a_job_whose_priority_an_admin_has_set_has_no_place_to_exchange() -> None:
    """Slurm shows the same priority after its site factor was changed: once is enough."""
    view, memory = view_of({"prioritylong": "900"}, {"prioritylong": "100"}), LastApplied()
    action = ExchangePlaces(ids(1, 2), np.array([2, 1]))
    changes = steered(action, view, memory)
    assert [change.job for change in changes] == [1, 2]
    for change in changes:
        memory.remember(Done(change, "done"), NOW)
    view.rows.priority[:] = [100, 100]  # that of job 2 is an admin's
    back = steered(action, view, memory)
    assert [change.command.words[2:] for change in back] == [
        ("JobId=1", "SiteFactor=0"),
        ("JobId=2", "SiteFactor=0"),
    ]
    for change in back:
        memory.remember(Done(change, "done"), NOW)
    view.rows.priority[:] = [900, 100]
    assert not steered(action, view, memory)
    memory.keep_only({1}, set())
    assert set(memory.shown) == {1}


@pytest.mark.parametrize("what", ["basic", "site_factors"])
def test_no_places_are_exchanged_where_site_factors_are_not_free(what: str) -> None:
    """Under priority/basic a job whose Nice changes goes to the end of the queue."""
    view, action = view_of({"prioritylong": "900"}, {"prioritylong": "100"}), np.array([2, 1])
    assert steered(ExchangePlaces(ids(1, 2), action), view)
    view = replace(view, facts=replace(view.facts, **{what: True}))
    assert not steered(ExchangePlaces(ids(1, 2), action), view)


def test_single_node_jobs_are_sent_to_idle_nodes_only() -> None:
    """Each gets the first idle node of its set; busy and reserved ones are left out."""
    view = view_of({}, {}, {})
    sets = (np.array([2, 3], np.int32), np.array([2], np.int32))
    placement = Placement(np.ones(3, np.int32), np.array([0, 1, 0], np.int32), sets)
    changes = steered(Place(ids(1, 2, 3), placement), view)
    assert [change.text for change in changes] == ["send job 1 to node n2", "send job 3 to node n3"]


def test_who_has_to_wait_keeps_the_range_that_was_asked_for() -> None:
    """Sizes are for what fits on idle nodes now; what was set before and waits is given back."""
    asked = {"tres": "node=1", "maxnodes": "4", "comment": "rtsched:speedup=linear"}
    view = view_of(asked, asked | {"tres": "node=4"}, asked, ranges={2: (1, 4)})
    every = (np.arange(6, dtype=np.int32),)
    placement = Placement(np.array([4, 4, 2], np.int32), np.zeros(3, np.int32), every)
    memory = LastApplied(ranges={2: (1, 4)})
    changes = steered(Place(ids(1, 2, 3), placement), view, memory)
    said = [(change.job, *change.command.words[3:]) for change in changes]
    assert said == [
        (1, "NumNodes=4-4", "ExcNodeList="),
        (2, "NumNodes=1-4", "ExcNodeList="),
        (3, "NumNodes=2-2", "ExcNodeList="),
    ]


def test_asked_sizes_outlive_the_process(tmp_path: Path) -> None:
    """What a user asked for is known after a restart; a file that cannot be is one sentence."""
    path, what = str(tmp_path / "memory.json"), AppliedFile({7: (1, 4)}, {8: ("n1", 5.0)}, {9: -50})
    assert last_applied.read(path) == AppliedFile()
    assert last_applied.write(path, what) == ""
    assert last_applied.read(path) == what
    assert LastApplied.of(what).kept() == what
    assert "cannot be written" in last_applied.write(str(tmp_path / "none" / "x"), AppliedFile())
    assert last_applied.write("", what) == ""
    assert last_applied.read("") == AppliedFile()


def test_what_is_being_set_is_kept_before(tmp_path: Path) -> None:
    """Whoever follows a process that was killed in between undoes what may have been set."""
    memory = LastApplied(factors={1: 500})
    command = Command(Rank.JOB, ("scontrol", "update", "JobId=1", "SiteFactor=0"))
    sent = Command(Rank.JOB, ("scontrol", "update", "JobId=2", "ReqNodeList=n1"))
    changes = [Change("set-priority", 1, "", command), Change("place", 2, "", sent)]
    before = memory.foreseen(changes, NOW)
    assert before == AppliedFile({}, {2: ("n1", NOW)}, {1: UNSURE})
    assert memory.kept() == AppliedFile(factors={1: 500})
    again = steered(SetPriority(ids(1), np.zeros(1)), view_of({}), LastApplied.of(before))
    assert [change.command.words[-1] for change in again] == ["SiteFactor=0"]


@given(st.binary())
def test_a_damaged_file_of_sizes(content: bytes) -> None:
    """It holds nothing, and stops nothing."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "sizes.json"
        path.write_bytes(content)
        assert all(
            0 < least <= most for least, most in last_applied.read(str(path)).ranges.values()
        )


def test_a_new_process_gives_a_range_back(tmp_path: Path) -> None:
    """A system that set a size, and the one that follows it, both know what was asked for."""
    settings = SlurmSettings(bin_dir=str(tmp_path), memory=str(tmp_path / "sizes.json"))
    commands(tmp_path, scontrol=SCONTROL)
    command = Command(Rank.SIZE, ("scontrol", "update", "JobId=1", "NumNodes=4-4"), (1, 4))
    (done,) = SlurmSystem(settings).carry_out([Change("place", 1, "x", command)])
    assert done.outcome == "done"
    assert SlurmSystem(settings)._last_applied.ranges == {1: (1, 4)}


def test_weights_are_grouped() -> None:
    """One command per weight, none for a node that is taken, or where nobody asked for weights."""
    action = SetNodeWeight(ids(), np.array([1.0, 1.0, 7.0, np.inf, 1.0, 7.0]))
    changes = steered(action, view_of(), node_weights=True)
    assert [change.command.words[2:] for change in changes] == [
        ("NodeName=n[0-1,4]", "Weight=1"),
        ("NodeName=n[2,5]", "Weight=7"),
    ]
    assert steered(action, view_of()) == []


def test_a_refused_weight_is_not_asked_for_again() -> None:
    """What Slurm refuses for good is said once."""
    memory = LastApplied()
    (change, *_) = steered(SetNodeWeight(ids(), np.zeros(6)), view_of(), node_weights=True)
    memory.remember(Done(change, "refused"), NOW)
    assert memory.no_weights


def test_the_user_is_told_before_the_end() -> None:
    """A cancelled job has its comment set first; the text is one line."""
    first, second = steered(Cancel(ids(1), ("too\nlate",)), view_of({}))
    assert (first.command.rank, second.command.rank) == (Rank.JOB, Rank.END)
    assert first.command.words[-1] == "Comment=rtsched: too late"
    assert not batchable(first.command)
    assert second.command.words == ("scancel", "1")


def test_only_jobs_that_have_ended_are_queued_again() -> None:
    """And nothing is said to them while they are over: Slurm takes no comment for such a job."""
    view = view_of({"state": "FAILED"}, {"state": "PENDING"}, {"state": "RUNNING"})
    (change,) = steered(Restart(ids(1, 2, 3, 9)), view)
    assert change.command.words == ("scontrol", "requeue", "1")
    told = steered(Notify(ids(1, 2, 3), ("a", "b", "c")), view)
    assert [each.job for each in told] == [2, 3]


def test_a_task_that_is_queued_again_leaves_the_others_alone() -> None:
    """One task has the number of its array, which Slurm takes for all of them."""
    view, jobs = view_of({"state": "RUNNING"}, {"state": "RUNNING"}), ids(1, 2)
    view.rows.label[0] = "1_40"
    runs = Jobs.build(2, id=jobs)
    marks = Marks.build(2, job=jobs, requeues=[True, True])
    view.observation = replace(view.observation, queued=Jobs.build(0), running=runs, marks=marks)
    found = steered(Requeue(jobs), view)
    assert [each.command.words[1:] for each in found] == [("requeue", "1_40"), ("requeue", "2")]


def test_a_promised_job_that_slurm_requeued_may_start_as_planned() -> None:
    """Slurm puts it off by two minutes; nobody else's job is touched, nor one planned later."""
    off = {"eligibletime": str(int(NOW) + 120), "restartcnt": "1", "deadline": str(int(NOW) + 900)}
    unpromised = off | {"admin_comment": "(null)"}
    rows = {1: off, 2: unpromised, 3: off | {"restartcnt": "0"}, 4: off, 5: off}
    view = view_of(*rows.values())
    view.requeued = requeued_parts(view.rows, NOW)
    assert {job: list(parts) for job, parts in view.requeued.items()} == {
        1: ["1"],
        4: ["4"],
        5: ["5"],
    }
    start = [NOW, NOW + 60, NOW + 500]
    planned = Schedule.build(ids(1, 4, 5), start, [NOW + 600] * 3, ids(0, 1, 2, 3), ids(0, 1, 2))
    changes = reserve_changes(planned, view, SlurmSettings(), LastApplied())
    lifted = [each for each in changes if "StartTime" in each.command.words[-1]]
    assert [each.command.words[2:] for each in lifted] == [
        ("JobId=1", "StartTime=now"),
        ("JobId=4", f"StartTime=uts{NOW + 60:.0f}"),
    ]
    for each in lifted:
        applied(view, each.command)
    again = reserve_changes(planned, view, SlurmSettings(), LastApplied())
    assert not [each for each in again if "StartTime" in each.command.words[-1]]


def test_a_task_that_slurm_requeued_goes_on_in_the_array_s_reservation() -> None:
    """It is named as a task: the array's number would mean all of them."""
    task = {"jobid": "13", "jobarrayid": "12_3", "restartcnt": "1", "deadline": str(int(NOW) + 900)}
    task["eligibletime"] = str(int(NOW) + 120)
    view = view_of(task, task | {"jobid": "12", "jobarrayid": "12_[4-9]", "restartcnt": "0"})
    view.requeued = requeued_parts(view.rows, NOW)
    assert view.requeued == {12: {"12_3": NOW + 120}}
    planned = Schedule.build(ids(12), [NOW], [NOW + 600], ids(0, 1), ids(0))
    changes = reserve_changes(planned, view, SlurmSettings(), LastApplied())
    lifted = [each.command for each in changes if "StartTime" in each.command.words[-1]]
    assert [each.words[2:] for each in lifted] == [("JobId=12_3", "StartTime=now")]
    applied(view, lifted[0])
    assert view.requeued == {12: {}}


def plan() -> Schedule:
    """Return a plan in which job 1 divides its load over two nodes."""
    return Schedule.build(
        ids(1),
        [NOW + 500],
        [NOW + 820],
        ids(0, 2),
        np.array([4, 1], np.int32),
        np.array([0.7, 0.3]),
    )


@pytest.mark.parametrize("basic", [False, True])
def test_who_left_the_plan_is_no_longer_first(basic: bool) -> None:
    """A job with a broken promise goes back among the others, even if another process set it."""
    first = {"prioritylong": "507000000", "nice": "-60000", "timelimit": "5:00"}
    others = {"prioritylong": "4294900000" if basic else "120000", "nice": "100"}
    view = view_of(first | {"deadline": str(int(NOW) + 900)}, first, others, others)
    view = replace(view, facts=replace(view.facts, basic=basic))
    memory = LastApplied(factors={4: 60_000 if basic else 507_000_000})
    changes = reserve_changes(plan(), view, SlurmSettings(), memory)
    moved = {each.job: each for each in changes if each.kind == "set-priority"}
    word = "Nice=0" if basic else "SiteFactor=0"
    assert sorted(moved) == [1, 2, 4]
    assert {job for job, each in moved.items() if each.command.words[-1] == word} == {2, 4}
    for each in moved.values():
        memory.remember(Done(each, "done"), NOW)
    again = reserve_changes(plan(), view, SlurmSettings(), memory)
    assert not [each for each in again if each.kind == "set-priority"]


def test_reservations_are_made_while_there_is_time() -> None:
    """One stands before a job that starts now could reach it, were the daemon away for a while."""
    view = view_of({"tres": "node=2", "maxnodes": "2"})
    near, far = (replace(view.facts, longest=longest) for longest in (100.0, -500.0))
    settings = SlurmSettings(promised_first=False, grace_s=500.0)
    kinds = [
        [
            each.command.rank
            for each in reserve_changes(plan(), replace(view, facts=f), settings, LastApplied())
        ]
        for f in (near, far)
    ]
    assert Rank.CREATE in kinds[0]
    assert Rank.CREATE not in kinds[1]


def test_no_reservation_waits_for_a_deletion() -> None:
    """Reservations are made before old ones are deleted, and jobs are bound in between."""
    view = view_of({"tres": "node=2", "maxnodes": "3"})
    changes = reserve_changes(plan(), view, SlurmSettings(promised_first=False), LastApplied())
    ranks = [change.command.rank for change in sorted(changes, key=lambda each: each.command.rank)]
    assert ranks == [Rank.CREATE, Rank.SIZE, Rank.BIND]
    assert Rank.LEAVE < Rank.RENEW < Rank.UPDATE < Rank.CREATE < Rank.BIND < Rank.DELETE
    sizes = next(change for change in changes if change.command.rank == Rank.SIZE)
    assert sizes.command.words[3:] == ("NumNodes=2-2", "TimeLimit=5", "ExcNodeList=")


def test_a_size_that_slurm_does_not_show_is_set_once() -> None:
    """A controller that was started anew shows no highest node count of jobs that waited before."""
    plain = {"tres": "node=2", "maxnodes": "0", "timelimit": "5:00"}
    memory, rigid = LastApplied(), view_of(plain)
    view = view_of(plain | {"comment": "rtsched:sigma=4,cms=1,cps=100"})

    def sizes(view: SlurmState) -> list[Change]:
        """Return what a cycle does about sizes, after it is done."""
        changes = reserve_changes(plan(), view, SlurmSettings(), memory)
        found = [each for each in changes if "NumNodes=2-2" in each.command.words]
        for each in found:
            memory.remember(Done(each, "done"), NOW)
        return found

    assert sizes(rigid) == []  # it asked for two nodes, no more and no less
    assert len(sizes(view)) == 1
    for _ in range(2):
        memory.keep_only({1}, unshown={1})
        assert sizes(view) == []
    memory.keep_only({1}, unshown=set())  # shown again; what is not shown after that is set again
    assert len(sizes(view)) == 1


def test_a_job_leaves_the_reservation_that_is_made_anew() -> None:
    """Slurm deletes no reservation that a job is bound to: out, anew, and in again."""
    view = view_of({"tres": "node=2", "maxnodes": "2", "reservation": "rtsched_1"})
    begun = ReservationRow("rtsched_1", NOW - 10, NOW + 900, ("n1", "n4"), ("u",), ())
    view = replace(view, reservations=[begun])
    changes = reserve_changes(plan(), view, SlurmSettings(promised_first=False), LastApplied())
    ranks = [change.command.rank for change in sorted(changes, key=lambda each: each.command.rank)]
    assert ranks == [Rank.LEAVE, Rank.RENEW, Rank.CREATE, Rank.BIND]


def test_slurm_takes_no_longer_comment() -> None:
    """A message is cut to what is left; the record and the user's own words stay."""
    record = record_of(NOW + 900, ["n4", "n1"], [0.7, 0.3])
    whole = with_message(with_record("own " * 200, record), "rtsched: promised " + "x" * 400)
    assert len(whole) <= 1024
    assert whole.startswith(f"{record} rtsched: promised xxx")
    assert " ... -- own own" in whole


def test_the_record_of_a_promise() -> None:
    """It stands first in the comment, before what the user wrote, and replaces an older one."""
    record = record_of(NOW + 900, ["n4", "n1"], [0.7, 0.3])
    assert record == (
        f"rtsched:promise deadline={NOW + 900:.0f} nodes=2 "
        "fractions=0.700000000:0.300000000 on=n4:n1"
    )
    assert with_record("", record) == record
    once = with_record("my words rtsched:sigma=4", record)
    assert once == f"{record} my words rtsched:sigma=4"
    assert with_record(once, "rtsched:promise nodes=1") == (
        "rtsched:promise nodes=1 my words rtsched:sigma=4"
    )
    assert with_record("x" * 5000, record) == record
    assert with_record("x" * 5000 + " rtsched:sigma=4", record) == f"{record} rtsched:sigma=4"
    assert with_record(once, "") == "my words rtsched:sigma=4"
    rounds = record_of(NOW + 900, ["n4"], [1.0], [0.25, 0.75])
    assert rounds.endswith("fractions=1.000000000 rounds=0.250000000:0.750000000 on=n4")
    assert with_record(f"{rounds} my words", record) == f"{record} my words"


PIECES = ("rtsched:", "promise", " nodes=1", " ", "--", " -- ", "sigma=4", "a", "\n")
COMMENTS = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)


def test_what_a_user_is_told_stands_before_her_own_words() -> None:
    """It replaces what was told before, and changes nothing that a user says to rtsched."""
    own = "my words rtsched:sigma=4"
    once = with_message(own, "rtsched: held -- wait\nfor rtsched:sigma=9")
    assert once == f"rtsched: held - wait for rtsched: sigma=9 -- {own}"
    assert with_message(once, "void") == f"rtsched: void -- {own}"
    assert with_record(once, "rtsched:promise nodes=1") == f"rtsched:promise nodes=1 {once}"
    assert with_message("", "rtsched: held") == "rtsched: held"
    assert with_message("rtsched: held", "rtsched: void") == "rtsched: void"
    assert (
        with_message("rtsched: as I say rtsched:sigma=4", "no") == "rtsched: no -- rtsched:sigma=4"
    )


@given(COMMENTS, COMMENTS)
def test_messages_are_never_taken_for_words_to_rtsched(comment: str, message: str) -> None:
    """However odd: what is said to rtsched is the same, and telling it twice changes nothing."""
    once = with_message(comment, message)
    assert with_message(once, message) == once
    assert options_in(once) == options_in(comment)


@given(COMMENTS)
def test_a_record_is_written_once(comment: str) -> None:
    """Writing the same record again changes nothing."""
    record = "rtsched:promise deadline=5 nodes=1 fractions=1.0 on=n1"
    once = with_record(comment, record)
    assert with_record(once, record) == once


@given(st.text())
def test_only_plain_words_go_to_scontrol_s_input(text: str) -> None:
    """Whatever could be taken for more than one word is an argument of its own process."""
    command = Command(Rank.JOB, ("scontrol", "update", "JobId=1", f"Comment={text}"))
    if batchable(command):
        assert text.split() in ([text], [])
        assert not set(text) & set("'\"\\\n\r;$`|&<>()#!")


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("", "done"),
        ("Access/permission denied for job 5", "refused"),
        ("slurm_update error: Invalid user id", "refused"),
        ("Invalid job id specified for job 5", "failed"),
        ("delete_reservation ReservationName=x: Requested reservation is in use", "failed"),
        ("Job is pending execution for job 5", "failed"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "failed"),
    ],
)
def test_what_answers_mean(said: str, means: str) -> None:
    """What Slurm would say again is refused; all else is worked out anew."""
    assert outcome_of(said) == means


def commands(directory: Path, **scripts: str) -> CommandRunner:
    """Return commands that are shell scripts."""
    for name, script in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return CommandRunner(SlurmSettings(bin_dir=str(directory), command_timeout_s=5))


SCONTROL = """
while read line; do
  case $line in
    quit) exit 0 ;;
    rtsched_mark_*) echo "invalid keyword: $line" >&2 ;;
    *JobId=3*) echo "Access/permission denied for job 3" >&2 ;;
    *JobId=4*) exit 1 ;;
  esac
done
"""


def test_answers_of_a_batch_are_told_apart(tmp_path: Path) -> None:
    """Each complaint belongs to its command; after scontrol's end nothing was done."""
    system = commands(tmp_path, scontrol=SCONTROL)
    changes = [
        Change("set-priority", job, "x", Command(Rank.JOB, ("scontrol", "update", f"JobId={job}")))
        for job in (1, 3, 2, 4, 5)
    ] + [Change("suspend", 6, "suspend job 6")]
    done = carried_out(system, changes)
    outcomes = ["done", "refused", "done", "failed", "failed", "unsupported"]
    assert [each.outcome for each in done] == outcomes
    assert "scontrol exited before" in done[4].text


def test_a_reservation_stays_until_its_successor_is_there(tmp_path: Path) -> None:
    """Of two that are no longer needed only the one whose nodes are guarded anew is deleted."""
    refusing = SCONTROL.replace("*JobId=3*", "*create*rtsched_1*")
    system = commands(tmp_path, scontrol=refusing)
    view = view_of({"tres": "node=2", "maxnodes": "2"})
    old = [
        ReservationRow(name, NOW + 50, NOW + 900, nodes, ("u",), ())
        for name, nodes in (("rtsched_8", ("n4", "n5")), ("rtsched_9", ("n0",)))
    ]
    view = replace(view, reservations=old)
    changes = reserve_changes(plan(), view, SlurmSettings(promised_first=False), LastApplied())
    done = {each.change.text: each for each in carried_out(system, changes)}
    assert done["delete reservation rtsched_9"].outcome == "done"
    spared = done["delete reservation rtsched_8"]
    assert (spared.outcome, spared.text) == ("failed", "kept until its replacement exists")


def test_commands_that_hang_or_are_missing(tmp_path: Path) -> None:
    """Both are one clear error with a remedy, and a failed change each."""
    system = CommandRunner(SlurmSettings(bin_dir=str(tmp_path)))
    with pytest.raises(AdapterError, match="set bin_dir"):
        system.jobs()
    command = Command(Rank.JOB, ("scontrol", "update", "JobId=1"))
    (done,) = carried_out(system, [Change("hold", 1, "x", command)])
    assert done.outcome == "failed"
    slow = commands(tmp_path, squeue="exec sleep 60")
    slow.settings = SlurmSettings(bin_dir=str(tmp_path), command_timeout_s=0.2)
    with pytest.raises(AdapterError, match="command_timeout_s"):
        slow.jobs()


def test_a_controller_that_does_not_answer(tmp_path: Path) -> None:
    """The sentence says what the command said, and what to look at."""
    commands(tmp_path, squeue="echo 'Unable to contact slurm controller' >&2; exit 1")
    system = SlurmSystem(SlurmSettings(bin_dir=str(tmp_path), route="commands"))
    with pytest.raises(AdapterError, match=r"Unable to contact.*scontrol ping"):
        system.poll()


def test_a_user_s_own_format_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that change squeue's output are not handed on; times are seconds."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SQUEUE_USERS", "nobody")
    system = commands(tmp_path, squeue="env | grep -E '^(SQUEUE|SLURM_TIME)' | cut -c1-40 | sort")
    shown = system.ask("squeue", SQUEUE_FORMAT2="own").split()
    assert shown == ["SLURM_TIME_FORMAT=%s", "SQUEUE_FORMAT2=own"]


def test_weights_that_are_so_are_left_alone() -> None:
    """A weight is compared with the one that the node has, and is known once it was set."""
    view = view_of()
    view.weights = dict.fromkeys(NAMES[:3], 1)
    (change,) = steered(SetNodeWeight(ids(), np.ones(6)), view, node_weights=True)
    assert change.command.words[2] == "NodeName=n[3-5]"
    applied(view, change.command)
    assert steered(SetNodeWeight(ids(), np.ones(6)), view, node_weights=True) == []


DETAILS = """
while read word kind name; do
  printf "scontrol: "
  case "$word $kind" in
    "show job")
      printf 'JobId=%s JobName=x\\n   Comment=show hostnames y\\n' $name
      printf '   Extra=of %s\\n' $name ;;
    "show hostnames") echo "$name" ;;
    quit*) exit 0 ;;
  esac
done
"""


def test_excluded_nodes_before_slurm_24_05(tmp_path: Path) -> None:
    """Its squeue has no such long field, and prints them in the short format."""
    shown = printed(*({"jobid": str(job), "jobarrayid": str(job)} for job in (4, 5, 6)))
    (tmp_path / "jobs").write_text(shown.replace(TOKEN, "@"))
    squeue = f"""
case "$*" in
  --version) echo slurm 23.11.11; exit ;;
  *"-o %A %x") printf "4 fast1,slow[1-2]\\n5 \\n6 (null)\\n7 slow1\\n"; exit ;;
esac
case "$SQUEUE_FORMAT2" in *excnodes*) exit 1 ;; esac
token=${{SQUEUE_FORMAT2##*>}}; token=${{token%<}}; sed "s/@/$token/g" {tmp_path}/jobs
"""
    system = commands(tmp_path, squeue=squeue, scontrol=DETAILS)
    for _ in range(2):
        assert list(system.jobs().excluded) == ["fast1,slow[1-2]", "", ""]


def test_a_squeue_without_one_of_the_fields(tmp_path: Path) -> None:
    """It prints such a field as an empty one; the first poll reports it and shows no job."""
    squeue = """
[ "$1" = --version ] && echo slurm 29.05.1 && exit
echo "squeue: error: Invalid job format specification: oldname" >&2
"""
    system = commands(tmp_path, squeue=squeue)
    with pytest.raises(AdapterError, match=r"squeue of Slurm 29.05 has no field oldname: this rel"):
        system.jobs()


def test_extra_of_jobs_that_are_new(tmp_path: Path) -> None:
    """One process tells of all of them; those known before are not asked about again."""
    shown = printed(*({"jobid": str(job), "jobarrayid": str(job)} for job in (4, 5)))
    (tmp_path / "jobs").write_text(shown.replace(TOKEN, "@"))
    token = (
        'token=${SQUEUE_FORMAT2##*>}; token=${token%<}; sed "s/@/$token/g" ' + f"{tmp_path}/jobs"
    )
    squeue = f'[ "$1" = --version ] && echo slurm 26.05.5 && exit; {token}'
    log = f"echo asked >> {tmp_path}/log\n"
    system = commands(tmp_path, squeue=squeue, scontrol=log + DETAILS)
    for _ in range(2):
        assert list(system.jobs().extra) == ["of 4", "of 5"]
    assert (tmp_path / "log").read_text() == "asked\n"
    commands(tmp_path, scontrol="exit 0")
    system._seen.clear()
    with pytest.raises(AdapterError, match="before it had shown all jobs"):
        system.jobs()
