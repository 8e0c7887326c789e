"""What a plan on nodes that jobs share comes to: nodes and places in the queue, no reservations."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slurm_printed import job_rows, printed

from rtsched.adapters.live import FIRST_OWN_ID, Change, Done, Observation, SubmitReply
from rtsched.adapters.slurm.commands import Rank, promised_priority, rank_of
from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts
from rtsched.adapters.slurm.last_applied import AppliedFile, LastApplied, SlurmState, applied
from rtsched.adapters.slurm.observation import jobs_of, marks_of
from rtsched.adapters.slurm.requirements import JobRequest, requirements_of
from rtsched.adapters.slurm.reserving import reserve_changes
from rtsched.adapters.slurm.rows import ReservationRow
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.steering import SlurmSteering, restoring
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.model.actions import Reserve
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.schedule import Schedule

NOW = 1_800_000_000.0
NAMES = ("n0", "n1", "n2")
GIB = 2**30
RESOURCES = ("cpu", "mem")
NOBODY = np.empty(0, np.int64)
PLAIN = {
    "tres": "cpu=2,mem=1G,node=1,billing=2",
    "numcpus": "2",
    "minmemory": "1G",
    "maxnodes": "1",
    "dependency": "(null)",
    "tres-per-job": "N/A",
    "timelimit": "10:00",
    "partition": "all",
    "prioritylong": "1000",
    "deadline": str(int(NOW + 5000)),
}
HARDWARE = (({"cpu": 8, "mem": 8 * GIB}, 3),)
FACTS = SlurmFacts(
    margin=20.0,
    partitions={"all": Partition("all", nodes=3, cores=8, hardware=HARDWARE)},
    default="all",
    sharing=Sharing(RESOURCES),
)


def view_of(*jobs: dict[str, str], shared: bool = True) -> SlurmState:
    """Return a view of waiting jobs numbered from 1 on three nodes."""
    shown = ({**PLAIN, "jobid": str(at + 1), **job} for at, job in enumerate(jobs))
    rows = job_rows(printed(*shown))
    which = np.arange(len(jobs))
    facts = FACTS if shared else replace(FACTS, sharing=Sharing())
    nodes = Nodes.build(
        3,
        name=list(NAMES),
        capacity=np.full((3, 2), (8, 8 * GIB)) if shared else None,
        names={"capacity": RESOURCES if shared else ()},
    )
    observation = Observation(
        NOW,
        Cluster(nodes),
        jobs_of(rows, which, facts, now=NOW),
        marks=marks_of(rows, which, facts),
    )
    return SlurmState(rows, observation, facts, NAMES, [], NOW)


def plan(*entries: tuple[int, float, tuple[int, ...]]) -> Schedule:
    """Return a plan of (job, start after now, nodes), each for 620 s."""
    sizes = [len(nodes) for _, _, nodes in entries]
    start = NOW + np.array([start for _, start, _ in entries])
    return Schedule.build(
        [job for job, _, _ in entries],
        start,
        start + 620.0,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([node for *_, nodes in entries for node in nodes], np.int32),
    )


def words(changes: list[Change]) -> list[tuple[int, str]]:
    """Return each change's job, and what of it is set."""
    return [(each.job, [*each.command.words[3:], each.command.words[1]][0]) for each in changes]


def asked(view: SlurmState, *entries: tuple[int, float, tuple[int, ...]]) -> list[Change]:
    """Return what a plan asks for."""
    return reserve_changes(plan(*entries), view, SlurmSettings(share_nodes=True), LastApplied())


@pytest.mark.parametrize("shared", [False, True])
def test_nodes_are_kept_for_a_job_before_it_is_promised_anything(shared: bool) -> None:
    """Nothing but the reservation is made; it stays while the job is let go."""
    held = {"prioritylong": "0", "admin_comment": "rtsched:parked", "reservation": "(null)"}
    view, settings = view_of(held, shared=shared), SlurmSettings(share_nodes=shared)
    secured = plan((1, 0.0, (2,)))
    (made,) = reserve_changes(plan(), view, settings, LastApplied(), secured)
    assert (made.command.rank, made.command.nodes) == (Rank.CREATE, ("n2",))
    asked = next(word for word in made.command.words if word.startswith("EndTime=uts"))
    row = ReservationRow(
        "rtsched_1", NOW, float(asked.removeprefix("EndTime=uts")), ("n2",), ("ann",), ()
    )
    kept = replace(view, reservations=[row])
    promised = reserve_changes(secured, kept, settings, LastApplied())
    assert not {change.command.rank for change in promised} & {Rank.DELETE, Rank.RENEW}


def test_planned_jobs_come_first_in_the_order_of_their_starts() -> None:
    """Each gets its nodes and a priority; when that is so there is nothing to do."""
    view = view_of({}, {"tres": "cpu=4,mem=2G,node=2", "maxnodes": "2"}, {})
    entries = (1, 600.0, (2,)), (2, 100.0, (0, 1))
    changes = asked(view, *entries)
    first, second = (promised_priority(NOW + seconds) for seconds in (100.0, 600.0))
    assert first - second == 500
    assert words(changes) == [
        (1, "ReqNodeList=n2"),
        (1, f"Priority={second}"),
        (2, "ReqNodeList=n[0-1]"),
        (2, f"Priority={first}"),
    ]
    for change in changes:
        applied(view, change.command)
    assert asked(view, *entries) == []


def test_a_job_without_time_to_spare_has_its_nodes_reserved() -> None:
    """Not one that is second on one of them, nor one that Slurm has not shown yet."""
    hurried, calm = ({"deadline": str(int(NOW) + 2620 + spare)} for spare in (120, 121))
    view = view_of(hurried, calm, hurried)
    entries = (1, 2000.0, (0,)), (2, 2000.0, (1,)), (3, 2000.0, (0, 1)), (FIRST_OWN_ID, 0.0, (2,))
    changes = [each for each in asked(view, *entries) if "rtsched_" in str(each.command.words)]
    assert [each.command.words[1:3] for each in changes] == [
        ("create", "reservation"),
        ("update", "JobId=1"),
    ]
    assert "Nodes=n0" in changes[0].command.words
    assert f"StartTime=uts{NOW + 1980:.0f}" in changes[0].command.words


def test_an_array_has_whole_nodes_reserved() -> None:
    """On all of them, though another job is planned on one before; that has its place in line."""
    view = view_of({"jobarrayid": "1_[1-99]"}, {})
    queued = view.observation.queued
    assert queued.demand[0].tolist() == [8, 4 * GIB]
    assert queued.exclusive.tolist() == [True, False]
    changes = asked(view, (1, 2000.0, (0, 1)), (2, 100.0, (1,)))
    made, *others = [each.command.words for each in changes]
    assert {"ReservationName=rtsched_1", "Nodes=n[0-1]"} <= set(made)
    assert (1, "ReservationName=rtsched_1") in words(changes)
    assert {each[0] for each in words(changes) if "Reservation" not in each[1]} == {2}
    assert len(others) == 3


@pytest.mark.parametrize("shared", [True, False])
def test_a_promised_job_that_slurm_does_not_show_yet(shared: bool) -> None:
    """Nothing waits: it has its reservation where jobs have whole nodes, and no error."""
    changes = asked(view_of(shared=shared), (FIRST_OWN_ID, 0.0, (2,)))
    assert len(changes) == (0 if shared else 1)


def test_where_nobody_waits_the_resources_are_known() -> None:
    """Their amounts are put beside those of what is set aside, on an empty cluster too."""
    queued = view_of().observation.queued
    assert queued.names("demand") == RESOURCES
    assert queued.demand.shape == (0, len(RESOURCES))


def test_demand_is_read_per_node() -> None:
    """Of a job on two nodes, half on each; a promised one's node list is not its own wish."""
    view = view_of(
        {"tres": "cpu=4,mem=2G,node=2", "maxnodes": "2", "reqnodes": "n[0-1]"},
        {"exclusive": "NODE"},
    )
    queued = view.observation.queued
    assert queued.names("demand") == RESOURCES
    assert queued.demand.tolist() == [[2, GIB], [2, GIB]]
    assert queued.exclusive.tolist() == [False, True]
    assert queued.deadline.tolist() == [NOW + 5000] * 2
    foreign = view_of({"reqnodes": "n[0-1]", "admin_comment": "rtsched:unjudged"})
    assert np.isinf(foreign.observation.queued.deadline).all()


@pytest.mark.parametrize("shared", [True, False])
def test_a_job_that_is_not_planned_any_more_has_its_own_shape(shared: bool) -> None:
    """Nodes, time limit and partitions that its user asked for, once; what is set later stays."""
    mark = "rtsched:abc --partition=a,b --nodes=1-3 --time=40"
    given = {"admin_comment": mark, "minnodes": "2", "maxnodes": "2", "tres": "cpu=2,node=2"}
    given["partition"] = "b"
    view = view_of(given, given | {"admin_comment": "rtsched:abc"}, shared=shared)
    memory = LastApplied()
    steering = SlurmSteering(view, memory, SlurmSettings(share_nodes=shared))
    both = plan((1, 0.0, (0, 1)), (2, 0.0, (0, 1)))
    planned, nothing = Reserve(both.entries.job, both), Reserve(NOBODY, Schedule.empty())
    assert "as asked for" not in str(steering.reserve(planned))
    late = Reserve(NOBODY, Schedule.empty(), unplanned=frozenset({1}))
    assert "asked for" not in str(steering.reserve(late)), "it waits for another start"
    (back,) = [each for each in steering.reserve(nothing) if "asked for" in each.text]
    assert back.command.words[3:6] == ("NumNodes=1-3", "TimeLimit=40", "Partition=a,b")
    (again,) = [
        each
        for each in restoring(view.rows, [], memory.kept(), basic=False)
        if "asked for" in each.text
    ]
    assert again.command == back.command
    memory.remember(Done(back, "done", ""), NOW)
    assert "asked for" not in str(steering.reserve(nothing))
    after = SlurmSteering(view, LastApplied.of(memory.kept()), steering.settings)
    assert "asked for" not in str(after.reserve(nothing)), "its user has set it since"


def test_a_job_that_was_held_is_to_run_in_the_partition_that_it_is_planned_in() -> None:
    """The first of its list, if that is kept for later; once."""
    kept = {"admin_comment": "rtsched:parked --partition=a,b", "partition": "b,a"}
    for given, words in ((kept, ["Partition=b"]), (kept | {"partition": "b"}, [])):
        view = view_of(given, {"partition": "a,b"})
        steering = SlurmSteering(view, LastApplied(), SlurmSettings(share_nodes=True))
        both = plan((1, 0.0, (0,)), (2, 0.0, (0,)))
        changes = steering.reserve(Reserve(both.entries.job, both))
        found = [each.command.words[3] for each in changes if "partition" in each.text]
        assert found == words


def test_what_a_user_changed_while_it_was_planned_stays() -> None:
    """A shorter limit is the job's own; a job that waits to be evaluated is as it is."""
    mark = "--nodes=1-3 --time=40"
    given = {"minnodes": "2", "maxnodes": "2", "tres": "cpu=2,node=2"}
    view = view_of(
        given | {"admin_comment": f"rtsched:abc {mark}"},
        given | {"admin_comment": f"rtsched:parked {mark}"},
    )
    memory = LastApplied(shapes={1: (2, 900.0)})
    steering = SlurmSteering(view, memory, SlurmSettings(share_nodes=True))
    assert "asked for" not in str(steering.reserve(Reserve(NOBODY, Schedule.empty())))


def test_who_is_not_planned_any_more_waits_as_any_other() -> None:
    """Nodes and priority are taken from a job whose promise is over, not from an admin's."""
    lifted = {"prioritylong": "3800000000", "reqnodes": "n1"}
    view = view_of(lifted, lifted | {"admin_comment": "rtsched:unjudged"}, {"reqnodes": "n2"})
    changes = asked(view)
    assert words(changes) == [(1, "ReqNodeList="), (1, "release")]
    restored = restoring(view.rows, [], AppliedFile(), basic=False)
    assert [each for each in words(restored) if each[0] == 1] == words(changes)


def test_who_was_held_meanwhile_gets_its_own_nodes_back() -> None:
    """A hold takes the priority of a planned job, not the nodes; others' node lists are theirs."""
    held = {"prioritylong": "0", "reqnodes": "n1"}
    view = view_of(held, held, held | {"admin_comment": "rtsched:abc --nodelist=n2"})
    view.rows.required[1] = "n0"
    sent = dict.fromkeys((1, 2, 3), ("n1", NOW))
    changes = reserve_changes(plan(), view, SlurmSettings(share_nodes=True), LastApplied(sent=sent))
    assert words(changes) == [(1, "ReqNodeList="), (3, "ReqNodeList=n2")]
    restored = restoring(view.rows, [], AppliedFile(sent=sent), basic=False)
    assert words(restored) == words(changes)


def test_who_loses_a_promise_with_rtsched_is_told() -> None:
    """In the comment of the job, whether it waits or runs; nobody else is."""
    view = view_of({}, {"comment": "mine"}, {"state": "RUNNING"}, {"state": "COMPLETED"})
    changes = restoring(view.rows, [], AppliedFile(), basic=False, promised={2, 3, 4})
    told = {each.job: each.command.words[-1] for each in changes if "Comment" in each.text.title()}
    assert sorted(told) == [2, 3]
    assert told[2].startswith("Comment=rtsched: the promise has ended")
    assert told[2].endswith("mine")


def test_an_admin_s_comment_does_not_end_a_promise() -> None:
    """Another AdminComment in place of ours: the admission is known on, by the next process too."""
    lifted = {"prioritylong": "3800000000", "reqnodes": "n1"}
    mark = "rtsched:abc --nodelist=n2"
    before = view_of(lifted | {"admin_comment": mark}, lifted)
    memory = LastApplied()
    memory.restore_marks(before.rows)
    over = view_of(lifted | {"admin_comment": "ask bob about this"}, lifted)
    memory.restore_marks(over.rows)
    assert over.rows.mark[0] == mark
    after = view_of(lifted | {"admin_comment": ""}, lifted | {"admin_comment": "rtsched:unjudged"})
    restored = restoring(after.rows, [], memory.kept(), basic=False)
    first = [each for each in words(restored) if each[0] == 1]
    assert first == [(1, "ReqNodeList=n2"), (1, "release")]


def test_a_site_that_shares_no_more_takes_it_back() -> None:
    """With whole nodes again a planned job is reserved for, and loses its node list."""
    view = view_of({"prioritylong": "3800000000", "reqnodes": "n1"}, shared=False)
    kinds = [each.command.words[1] for each in asked(view, (1, 0.0, (1,)))]
    assert kinds.count("create") == 1
    assert (1, "ReqNodeList=") in words(asked(view, (1, 0.0, (1,))))


def test_a_site_that_shares_now_needs_fewer_reservations() -> None:
    """Those that stand are deleted, and their jobs leave them, if they have time to spare."""
    view = view_of({"reservation": "rtsched_1"})
    view.reservations = [
        ReservationRow("rtsched_1", NOW, NOW + 700, ("n1",), ("ann",), ()),
        ReservationRow("rtsched_maintenance", NOW, NOW + 700, ("n2",), ("root",), ()),
    ]
    changes = asked(view, (1, 100.0, (1,)))
    assert (1, "ReservationName=") in words([each for each in changes if each.job == 1])
    assert [each.command.words for each in changes if each.command.words[1] == "delete"] == [
        ("scontrol", "delete", "ReservationName=rtsched_1")
    ]


@pytest.mark.parametrize("when", [{"dependency": "after:4,afterok:5:6_1"}, {"begin": NOW + 60}])
def test_a_job_that_may_not_start_yet_has_whole_nodes(when: dict[str, Any]) -> None:
    """Slurm's scheduler keeps no room for it, so its nodes are reserved until it may start."""
    request = JobRequest(limit=600.0, deadline=NOW + 3600, cpus=1, memory=GIB, **when)
    needs = requirements_of(request, FACTS)
    assert not needs.problem
    assert (needs.exclusive, needs.demand) == (True, {"cpu": 1, "mem": GIB})
    now = replace(request, dependency="", begin=-np.inf)
    assert not requirements_of(now, FACTS).exclusive
    best_effort = replace(request, deadline=np.inf)
    assert not requirements_of(best_effort, FACTS).exclusive


@pytest.mark.parametrize(
    "dependency", ["12", "after:5+10", "afterburstbuffer:5", "expand:5", "singleton,afterok:5"]
)
def test_a_dependency_that_cannot_be_planned_with(dependency: str) -> None:
    """It is not known when such a job may start; what was promised once stays so."""
    request = JobRequest(limit=600.0, deadline=NOW + 3600, cpus=1, dependency=dependency)
    for facts in (FACTS, replace(FACTS, sharing=Sharing())):
        assert requirements_of(request, facts).problem.startswith("cannot plan with ")
        assert not requirements_of(request, facts, fresh=False).problem
        assert not requirements_of(replace(request, deadline=np.inf), facts).problem


def test_a_singleton_that_is_held_for_its_evaluation_shares_nodes_later() -> None:
    """Its tasks are spread evenly, as those of any promised job that shares its nodes."""
    request = {Tag.DEADLINE: int(NOW + 5000), Tag.TIME_LIMIT: 10, Tag.DEPENDENCY: "singleton"}
    translator = SlurmTranslator()
    asked = translator.describe(request | {Tag.MIN_NODES: 2, Tag.NUM_TASKS: 8}, FACTS, NOW)
    fields = translator.answer(asked, SubmitReply(False, "held", deferred=True), FACTS)
    assert (fields[Tag.PRIORITY], fields[Tag.NTASKS_PER_NODE]) == (0, 4)
    assert Tag.SHARED not in fields


def test_a_job_that_is_held_for_its_evaluation_shares_nodes_later() -> None:
    """It asks for whole nodes only if it gets them in the end, as while it may not start yet."""
    plain = {Tag.DEADLINE: int(NOW + 5000), Tag.TIME_LIMIT: 10, Tag.PN_MIN_MEMORY: 100}
    waits = plain | {Tag.DEPENDENCY: "afterok:5"}
    translator, later = SlurmTranslator(), SubmitReply(False, "held", deferred=True)
    answers = [
        translator.answer(translator.describe(fields | several, FACTS, NOW), later, FACTS)
        for fields in (plain, waits)
        for several in ({}, {Tag.MIN_NODES: 2, Tag.NUM_TASKS: 8})
    ]
    assert [answer.get(Tag.SHARED) for answer in answers] == [None, None, 0, 0]
    assert [answer.get(Tag.NTASKS_PER_NODE) for answer in answers] == [None, 4, None, None]


def test_a_job_that_gets_all_memory_of_its_nodes_is_alone_there() -> None:
    """So it is at its submission, and as Slurm shows it."""
    request = JobRequest(limit=600.0, deadline=NOW + 3600, cpus=1)
    for shown in (None, "cpu=1,mem=8G,node=1"):
        assert requirements_of(replace(request, shown=shown), FACTS).exclusive
    assert not requirements_of(request, replace(FACTS, sharing=Sharing(("cpu",)))).exclusive


EARLIER, LATER = str(int(NOW - 60)), str(int(NOW + 60))


@pytest.mark.parametrize(
    ("shown", "waits"),
    [
        ({"dependency": "afterok:9(unfulfilled)", "eligibletime": "N/A"}, True),
        ({"eligibletime": LATER}, True),
        ({"eligibletime": EARLIER}, False),
        ({"eligibletime": LATER, "restartcnt": "1"}, False),
    ],
)
def test_who_may_not_start_yet_has_all_its_nodes_reserved(
    shown: dict[str, str], waits: bool
) -> None:
    """It is bound to its reservation, and has its place in the queue for when it may start."""
    # A job that Slurm queued again is put off by a moment only; its promise shares nodes.
    view = view_of(shown)
    assert view.observation.queued.exclusive.tolist() == [waits]
    changes = asked(view, (1, 2000.0, (0,)))
    found = [each.command.words for each in changes if "rtsched_1" in str(each.command.words)]
    assert bool(found) == waits
    assert (1, "ReqNodeList=n0") in words(changes)
    assert (1, f"Priority={promised_priority(NOW + 2000)}") in words(changes)
    if waits:
        assert {"Nodes=n0", f"StartTime=uts{NOW + 1980:.0f}"} <= set(found[0])
        assert (1, "ReservationName=rtsched_1") in words(changes)


def test_a_job_that_may_start_leaves_its_reservation() -> None:
    """From then on Slurm's scheduler keeps its room: it may start before its planned start."""
    view = view_of({"dependency": "afterok:9(unfulfilled)"})
    entry = (1, 2000.0, (0,))
    for change in asked(view, entry):
        applied(view, change.command)
    kept = ReservationRow("rtsched_1", NOW + 1980, NOW + 3220, ("n0",), ("ann",), (), False)
    view = replace(view, reservations=[kept])
    assert asked(view, entry) == []
    may = {"reservation": "rtsched_1", "reqnodes": "n0", "eligibletime": EARLIER}
    later = view_of({**may, "prioritylong": str(promised_priority(NOW + 2000))})
    later = replace(later, reservations=[kept])
    changes = sorted(asked(later, entry), key=rank_of)
    assert [each.command.words[1:] for each in changes] == [
        ("update", "JobId=1", "ReservationName="),
        ("delete", "ReservationName=rtsched_1"),
    ]


@pytest.mark.parametrize(
    ("before", "start"),
    [((2, 1000.0, (0,)), 1980), ((2, 1375.0, (0,)), 1995), ((2, 1375.0, (1,)), 1980)],
)
def test_a_reservation_leaves_those_before_it_their_margin(
    before: tuple[int, float, tuple[int, ...]], start: float
) -> None:
    """It begins 20 s before its planned start, but not before the planned end of one there."""
    # That is 620 s after its start; it could not start late otherwise.
    view = view_of({"dependency": "afterok:9(unfulfilled)"}, {})
    made, *_ = [each.command.words for each in asked(view, (1, 2000.0, (0,)), before)]
    assert {"ReservationName=rtsched_1", f"StartTime=uts{NOW + start:.0f}"} <= set(made)
