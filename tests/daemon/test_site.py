"""What the daemon makes of submissions and polls."""

from dataclasses import replace

import numpy as np
import pytest
from scene import ANN, BOB, T0, WORDS, Scene

from rtsched.adapters.condor.matching import MachineAds, SlotSets
from rtsched.adapters.live import FIRST_OWN_ID, CompletionStatus, Marks, Observation
from rtsched.daemon.app import PluginChains, rules_of
from rtsched.daemon.drift import changed_by_users, with_present
from rtsched.daemon.promises import StoredState
from rtsched.daemon.reconcile import RENUMBERED
from rtsched.daemon.recovery import recovered, states_to_store
from rtsched.daemon.settings import LiveSite
from rtsched.daemon.site import on_nodes
from rtsched.logs.node_requests import NodeSets
from rtsched.model.actions import Notify, Requeue, Reserve
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Kind
from rtsched.model.state import EventKind
from rtsched_plugins.mcdf import Mcdf

HOUR = 3600.0


def promised(scene: Scene, job: int = 7, **asked: object) -> str:
    """Have a job promised and shown by a poll; return its token."""
    token = scene.submit(**asked).reply.token
    scene.poll(T0 + 1, queued=((job, token),))
    return token


def test_a_feasible_deadline_is_promised(scene: Scene) -> None:
    """An admitted job has a provisional promise, a token and a place in the plan."""
    judged = scene.submit(size=2, wall_time=600.0, deadline=T0 + HOUR)
    (record,) = judged.changed
    assert judged.verdict == "admit"
    assert record.state == "provisional"
    assert record.id == FIRST_OWN_ID
    assert judged.reply.token == record.token
    assert (judged.reply.start, judged.reply.size) == (T0, 2)
    assert scene.site.snapshot.plan.entries.job.tolist() == [FIRST_OWN_ID]
    assert scene.site.snapshot.promises.deadline.tolist() == [T0 + HOUR]


def test_no_deadline_no_verdict(scene: Scene) -> None:
    """A best-effort job passes without a word, and leaves the site as it was."""
    before = scene.site
    judged = scene.submit(size=2, wall_time=600.0)
    assert (judged.verdict, judged.reply.text) == ("pass", "")
    assert scene.site is before


def test_a_rejection_names_a_deadline_that_is_held() -> None:
    """What is offered is admitted when it is submitted again, though others came between."""
    scene = Scene(nodes=2)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    refused = scene.submit(size=2, wall_time=600.0, deadline=T0 + 900)
    assert refused.verdict == "reject"
    assert refused.offer == np.ceil((T0 + 1200) / 60) * 60
    assert f"--deadline={refused.offer:.0f}" in refused.reply.text
    other = scene.submit(uid=BOB, size=2, wall_time=600.0, deadline=refused.offer, now=T0 + 5)
    assert other.verdict == "reject"
    again = scene.submit(size=2, wall_time=600.0, deadline=refused.offer, now=T0 + 10)
    assert again.verdict == "admit"
    assert again.codes == ("submit.offer",)
    state = sorted(r.state for r in scene.site.promises.values())
    assert state == ["offered", "provisional", "provisional"]  # what bob was offered is his


def test_an_offer_lapses() -> None:
    """After its time an offer is forgotten, and its room is free for others."""
    scene = Scene(nodes=2)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    refused = scene.submit(size=2, wall_time=600.0, deadline=T0 + 900)
    settled = scene.poll(T0 + 60)
    assert {r.state for r in settled.changed} == {"lapsed"}
    assert (
        scene.submit(uid=BOB, size=2, wall_time=600.0, deadline=refused.offer, now=T0 + 60).verdict
        == "admit"
    )


def test_an_own_offer_is_not_in_the_way() -> None:
    """Who asks for something else than what was offered is judged as if nothing was held."""
    scene = Scene(nodes=2)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 900)
    smaller = scene.submit(size=2, wall_time=500.0, deadline=T0 + 1150, now=T0 + 1)
    assert smaller.verdict == "admit"
    assert {r.state for r in smaller.changed} == {"provisional", "lapsed"}


def test_offers_that_nobody_takes_do_not_stand_in_the_way_of_all() -> None:
    """Two offers behind one another leave no second to spare; a third user still gets one."""
    # Each is planned to begin as soon as it can, so the first one moves with the clock until it
    # expires, and the second one would be too late for what it was offered.
    scene = Scene(nodes=4, planner="edf", offer=120.0)
    scene.poll(T0)
    begin = np.ceil(T0 / 60.0) * 60.0
    wide = {"size": 4, "wall_time": 600.0}
    first = scene.submit(begin, uid=ANN, deadline=begin + 60.0, **wide)
    second = scene.submit(begin, uid=BOB, deadline=begin + 60.0, **wide)
    assert [first.offer, second.offer] == [begin + 720.0, begin + 1200.0]
    third = scene.submit(begin + 5.0, uid=BOB + 1, deadline=begin + 60.0, **wide)
    assert (third.verdict, third.offer) == ("reject", begin + 1800.0)
    assert (
        scene.submit(begin + 6.0, uid=BOB + 2, deadline=begin + 9000.0, **wide).verdict == "admit"
    )
    taken = scene.submit(begin + 7.0, uid=ANN, deadline=first.offer, **wide)
    assert taken.codes == ("submit.offer",)


def test_an_offer_is_for_the_same_predecessors() -> None:
    """The offered place may lie before the end of a job that only the new submission waits for."""
    scene = Scene(nodes=2, planner="spare")
    token = promised(scene, size=1, wall_time=3000.0, deadline=T0 + HOUR)
    refused = scene.submit(size=1, wall_time=600.0, deadline=T0 + 500, now=T0 + 1)
    assert refused.offer < T0 + 3000
    asked = {"size": 1, "wall_time": 600.0, "deadline": refused.offer}
    behind = scene.submit(T0 + 2, after=7, **asked)
    assert behind.verdict == "reject"
    assert behind.offer >= T0 + 3600
    assert scene.submit(T0 + 3, after=7, **asked | {"deadline": behind.offer}).codes == (
        "submit.offer",
    )
    (last,) = scene.site.of_user(ANN, "provisional")
    assert scene.site.links.before.tolist() == [7]
    assert scene.site.links.after.tolist() == [last.id]
    scene.poll(T0 + 4, queued=((7, token), (8, last.token)))
    assert scene.site.promises[8].state == "firm"


def test_an_offer_is_not_taken_without_a_deadline() -> None:
    """The same job as best effort is promised nothing."""
    scene = Scene(nodes=2)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 900)
    assert scene.submit(size=2, wall_time=600.0, now=T0 + 1).verdict == "pass"


def test_an_admission_becomes_firm(scene: Scene) -> None:
    """The token in the queue gives the promise its job id, in ledger and plan."""
    token = scene.submit(size=2, wall_time=600.0, deadline=T0 + HOUR).reply.token
    settled = scene.poll(T0 + 1, queued=((7, token),))
    assert [(r.id, r.state) for r in settled.changed] == [(7, "firm")]
    assert scene.site.snapshot.plan.entries.job.tolist() == [7]
    assert scene.site.snapshot.queued.id.tolist() == [7]
    assert scene.site.snapshot.queued.size.tolist() == [2]


@pytest.mark.parametrize("copied", [False, True])
def test_a_copied_token_gains_nothing(scene: Scene, copied: bool) -> None:
    """Another user's job with an admission's token, or an unknown one, is an ordinary job."""
    real = scene.submit(size=2, wall_time=600.0, deadline=T0 + HOUR).reply.token
    scene.poll(T0 + 1, queued=((8, real if copied else "forged"),), uid=BOB)
    assert scene.site.promises[FIRST_OWN_ID].state == "provisional"
    assert 8 not in scene.site.promises


def test_an_admission_lapses_without_a_job() -> None:
    """Slurm may refuse a job after us: its admission ends by itself, and frees its room."""
    scene = Scene(nodes=2)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    settled = scene.poll(T0 + 61)
    assert [r.state for r in settled.changed] == ["lapsed"]
    assert not scene.site.promises
    assert not len(scene.site.snapshot.plan)


@pytest.mark.parametrize(
    ("end", "ending", "state"),
    [
        (HOUR - 1, CompletionStatus.COMPLETED, "kept"),
        (HOUR + 0.5, CompletionStatus.COMPLETED, "kept"),
        (HOUR + 5, CompletionStatus.COMPLETED, "missed"),
        (HOUR - 1, CompletionStatus.OWN_LIMIT, "own-limit"),
        (10, CompletionStatus.FAILED, "withdrawn"),
        (10, CompletionStatus.NODE_LOST, "missed"),
        (10, CompletionStatus.PARTITION_GONE, "missed"),
        (HOUR, CompletionStatus.DEADLINE, "missed"),
    ],
)
def test_how_promises_end(scene: Scene, end: float, ending: CompletionStatus, state: str) -> None:
    """A promise is kept, missed, or ended by its user or its own limit; each is counted apart."""
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    scene.poll(T0 + 2, running=((7, token, T0 + 1, T0 + 601, (0, 1)),))
    settled = scene.poll(T0 + HOUR + 9, completions=((7, T0 + end, ending),))
    assert [(r.id, r.state) for r in settled.changed] == [(7, state)]
    assert not scene.site.promises


@pytest.mark.parametrize(
    ("poll", "why"),
    [
        ({"changed": {"deadline": np.inf}}, "its deadline was removed or postponed"),
        ({"changed": {"deadline": T0 + HOUR + 60}}, "its deadline was removed or postponed"),
        ({"changed": {"deadline": T0 + HOUR - 60}}, "its deadline was moved forward"),
        ({"changed": {"begin": T0 + 1000}}, "its start was postponed"),
        ({"changed": {"begin": T0 + 122}}, ""),  # Slurm queued it again
        ({"changed": {"begin": T0 + 1}}, ""),  # what it waited for is over
        ({"changed": {"wall_time": 1800.0}}, "it requests more time than was promised"),
        ({"changed": {"wall_time": 300.0}}, ""),
        ({"held": (7,)}, "it is held"),
        ({"edges": ((9, 7),)}, "its dependencies were changed"),
    ],
)
def test_a_job_that_is_changed_loses_its_promise(poll: dict[str, object], why: str) -> None:
    """What a promise rests on may not change behind it; what the batch system changes may."""
    scene = Scene()
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    other = (9, "", T0 - 500, T0 + 1000, (3,))
    settled = scene.poll(T0 + 2, queued=((7, token),), running=(other,), **poll)
    assert [(r.id, r.state, r.why) for r in settled.changed] == ([(7, "void", why)] if why else [])
    told = [(a.job.tolist(), a.text) for a in settled.actions if isinstance(a, Notify)]
    text = f"rtsched: the promise is void: {why}; the job runs as best effort"
    text += " once it is released" * ("held" in poll)
    assert told == ([([7], (text,))] if why else [])


@pytest.mark.parametrize("restarted", [False, True])
def test_the_batch_system_chooses_the_account(scene: Scene, restarted: bool) -> None:
    """Slurm may charge another account than the one that is named; the promise counts to that."""
    given = {"size": 1, "wall_time": 600.0, "deadline": T0 + HOUR, "account": "arts"}
    token = scene.submit(T0 + 1, **given).reply.token
    polls = [{"queued": ((7, token),), "changed": {"account": "physics"}}]
    if restarted:  # what the daemon has stored names the account that was asked for
        scene.poll(T0 + 2, queued=((7, token),))
    else:
        scene.accounts[7] = "physics"
        polls.append({"running": ((7, token, T0 + 2, T0 + 602, (0,)),)})
    for second, poll in enumerate(polls, 3):
        settled = scene.poll(T0 + second, **poll)
        assert [r for r in settled.changed if r.state != "firm"] == []
        assert settled.site.row(7).texts("account") == ["physics"]


@pytest.mark.parametrize(
    ("asked", "changed", "state"),
    [
        ("fast/1/8", {"partition": "fast/1/4"}, "firm"),
        ("fast/1/8", {"partition": "slow/1/8"}, "void"),
        ("/1/8", {"partition": "/2/8", "cores": np.int32(1)}, "firm"),
        ("/1/8", {"partition": "/2/8", "cores": np.int32(2)}, "void"),
        ("/1/8", {"partition": ""}, "firm"),
        ("/1/8", {"partition": "/1/8", "wall_time": 600.0}, "firm"),
        ("batch", {"partition": "batch", "wall_time": 600.0}, "void"),
        ("batch", {"partition": "debug"}, "void"),
    ],
)
def test_partitions_that_follow_from_sizes(scene: Scene, asked, changed, state) -> None:
    """Other nodes give a job another part of the pool; that is no doing of its user's."""
    parts = {asked: (0, 1, 2, 3), str(changed["partition"]): (0, 1)}
    scene.poll(T0 + 1, partitions=parts)
    given = {"wall_time": 60.0, "deadline": T0 + HOUR, "partition": asked, "cores": np.int32(1)}
    token = scene.submit(T0 + 1, size=1, **given).reply.token
    settled = scene.poll(T0 + 2, queued=((7, token),), changed=changed)
    assert [r.state for r in settled.changed] == [state]
    if state == "firm" and changed["partition"]:
        assert settled.site.row(7).texts("partition") == [changed["partition"]]


def test_a_shortened_time_limit_is_planned_with(scene: Scene) -> None:
    """Whoever shortened it: the nodes are kept for no longer; from then on that is the promise."""
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    scene.poll(T0 + 2, queued=((7, token),), changed={"wall_time": 300.0})
    assert scene.site.requested.wall_time.tolist() == [300.0]
    settled = scene.poll(T0 + 3, queued=((7, token),), changed={"wall_time": 600.0})
    assert [r.why for r in settled.changed] == ["it requests more time than was promised"]


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_job_that_waits_for_its_name_all_at_once_loses_its_promise(
    shown: bool, before: bool, restarted: bool
) -> None:
    """An update to --dependency=singleton, whenever it was made; not one that was promised so."""
    scene = Scene()
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    if shown:
        scene.poll(T0 + 2, queued=((7, token),))
    requested = scene.site.requested.replace(singleton=np.array([before]))
    site = replace(scene.site, requested=requested)
    site = replace(site, marks=Marks.build(0)) if restarted else site
    marks = Marks.build(1, job=[7], uid=[ANN], token=[token])
    queued = requested.replace(id=np.array([7]), singleton=np.array([True]))
    names = {} if shown else {next(iter(scene.site.promises)): 7}
    observation = Observation(T0 + 3, scene.cluster, queued, marks=marks)
    why = None if before else "its dependencies were changed"
    assert changed_by_users(site, observation, names).get(7) == why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"array_limit": np.int32(3)}, "fewer of its tasks may run at a time than was promised"),
        ({"array_limit": np.int32(4)}, None),
        ({"array_limit": np.int32(3), "tasks": np.int32(3)}, None),
        ({"array_limit": np.int32(0)}, None),
        ({"wall_time": 600.0}, "it requests more time than was promised"),
    ],
)
def test_an_array_that_needs_more_rounds_loses_its_promise(
    changed: dict[str, object], why: str | None
) -> None:
    """Its throttle was lowered, or its tasks got more time; fewer tasks do with less."""
    scene = Scene()
    array = {"kind": np.int8(Kind.ARRAY), "size_min": 1, "size_max": 4, "tasks": np.int32(8)}
    given = {"wall_time": 60.0, "deadline": T0 + 120.0, "tasks_per_node": np.int32(1)}
    token = promised(scene, size=1, **array, **given)
    scene.poll(T0 + 1, queued=((7, token),))
    assert scene.site.snapshot.plan.entries.size.tolist() == [4]
    settled = scene.poll(T0 + 2, queued=((7, token),), changed=changed)
    assert [record.why for record in settled.changed] == ([why] if why else [])


@pytest.mark.parametrize(
    ("partition", "gpus", "why"),
    [
        ("/4/8/2", 2, "it requests larger nodes than were promised"),
        ("/4/8/2", 1, None),
        ("/4/8/2", 0, None),
        ("batch", 2, None),
    ],
)
def test_a_job_that_asks_for_more_gpus_loses_its_promise(
    partition: str, gpus: int, why: str | None
) -> None:
    """Where they choose the nodes, as its cores and its memory do."""
    scene = Scene(1, capacity=[(8, 2)])
    given = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR, "partition": partition}
    promised(scene, demand=(1, 1), **given)
    seen = scene.site.snapshot.queued.with_column("demand", np.array([[1, gpus]]))
    observation = Observation(T0 + 2, scene.cluster, seen, marks=scene.site.marks)
    assert changed_by_users(scene.site, observation, {}).get(7) == why


@pytest.mark.parametrize("partition", ["/4/8", "batch"])
@pytest.mark.parametrize(("kind", "together"), [(Kind.RIGID, 1), (Kind.ARRAY, 3)])
@pytest.mark.parametrize(("before", "more"), [(5, 0), (5, 1), (0, 1)])
def test_a_job_that_asks_for_far_more_disk_loses_its_promise(
    partition: str, kind: Kind, together: int, before: int, more: int
) -> None:
    """Where sizes choose nodes: 1 GiB a task may follow from its files; 0 was none planned."""
    scene = Scene(1, capacity=[(8, 2)])
    given = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR, "partition": partition}
    promised(scene, demand=(1, 1), **given)
    requested, seen = (
        jobs.replace(kind=[kind], tasks_per_node=[together]).replace_text(
            "demand", np.array([[1, disk]]), ("cpu", "fs/disk")
        )
        for jobs, disk in (
            (scene.site.requested, before),
            (scene.site.snapshot.queued, before + (1 << 30) * together + more),
        )
    )
    site = replace(scene.site, requested=requested)
    observation = Observation(T0 + 2, scene.cluster, seen, marks=site.marks)
    why = "it requests larger nodes than were promised" if more > 0 else None
    expected = why if before and partition.startswith("/") else None
    assert changed_by_users(site, observation, {}).get(7) == expected


@pytest.mark.parametrize("ran", [True, False])
def test_a_job_that_waits_again_may_request_what_it_used(scene: Scene, ran: bool) -> None:
    """HTCondor's default requests follow what was measured; no user changed anything."""
    given = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR, "partition": "/1/8"}
    parts = {"/1/8": (0, 1, 2, 3)}
    scene.poll(T0, partitions=parts)
    token = promised(scene, memory=2 << 20, cores=np.int32(1), **given)
    if ran:
        scene.poll(T0 + 2, running=((7, token, T0 + 2, T0 + 62, (0,)),))
    larger = "it requests larger nodes than were promised"
    settled = scene.poll(T0 + 3, queued=((7, token),), changed={"memory": 3 << 20})
    if not ran:
        assert [record.why for record in settled.changed] == [larger]
        return
    assert settled.site.requested.memory.tolist() == [3 << 20]
    settled = scene.poll(T0 + 4, queued=((7, token),), changed={"memory": 3 << 20})
    assert [record.state for record in settled.site.promises.values()] == ["firm"]
    settled = scene.poll(T0 + 5, queued=((7, token),), changed={"memory": 4 << 20})
    assert [record.why for record in settled.changed] == [larger]  # that is its user's doing


def test_what_a_job_used_is_planned_with() -> None:
    """Of all that its slot must have, and no less than before."""
    scene = Scene(1, capacity=[(8, 8)])
    given = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR, "partition": "/4/8"}
    promised(scene, demand=(2, 1), **given)
    seen = scene.site.snapshot.queued.with_column("demand", np.array([[1, 3]]))
    observation = Observation(T0 + 2, scene.cluster, seen, marks=scene.site.marks)
    for ran, demand in ([7], [[2, 3]]), ([8], [[2, 1]]):
        found = with_present(scene.site.requested, observation, np.array(ran))
        assert found.demand.tolist() == demand


@pytest.mark.parametrize(("licenses", "more"), [(2, True), (1, False), (0, False)])
def test_a_job_that_asks_for_more_licences_loses_its_promise(licenses: int, more: bool) -> None:
    """Not one that asks for as many as it did, or fewer."""
    scene = Scene(1, capacity=[(8, 2)])
    given = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR}
    promised(scene, demand=(1, 1), **given)
    requested, seen = (
        jobs.replace_text("demand", np.array([[1, count]]), ("cpu", "license/matlab"))
        for jobs, count in ((scene.site.requested, 1), (scene.site.snapshot.queued, licenses))
    )
    site = replace(scene.site, requested=requested)
    observation = Observation(T0 + 2, scene.cluster, seen, marks=site.marks)
    why = "it requests more licences than were promised" if more else None
    assert changed_by_users(site, observation, {}).get(7) == why


def test_an_array_is_planned_for_the_tasks_that_are_left() -> None:
    """Ten rounds on one node; with seven of its tasks started elsewhere or cancelled three."""
    scene = Scene(nodes=4)
    given = {"kind": Kind.ARRAY, "size": 1, "size_min": 1, "size_max": 4, "wall_time": 60.0}
    token = scene.submit(tasks=10, deadline=T0 + HOUR, **given).reply.token
    settled = scene.poll(T0 + 1, queued=((7, token),))
    assert settled.site.requested.tasks.tolist() == [10]
    assert settled.site.snapshot.plan.entries.end.tolist() == [T0 + 600.0]
    settled = scene.poll(T0 + 2, queued=((7, token),), changed={"tasks": np.int32(3)})
    assert [r.state for r in settled.site.promises.values()] == ["firm"]
    assert settled.site.requested.tasks.tolist() == [3]
    settled = scene.poll(T0 + 3, queued=((7, token),))
    assert settled.site.requested.tasks.tolist() == [3], "a count that grows again is no task more"
    scene.poll(T0 + 4, running=((7, token, T0 + 4, T0 + 184, (0,)),))
    settled = scene.poll(T0 + 185, completions=((7, T0 + 184, 0),))
    assert [r.state for r in settled.changed] == ["kept"]


def test_another_qos_is_no_change_where_none_was_named() -> None:
    """The batch system shows the QOS that it chose; one that was named must stay."""
    for named, state in ((None, "firm"), ("normal", "firm"), ("high", "void")):
        scene = Scene()
        token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR, qos=named).reply.token
        settled = scene.poll(T0 + 1, queued=((7, token),), changed={"qos": "normal"})
        assert [r.state for r in settled.changed] == [state]


def test_a_dependency_is_no_change_where_it_was_promised() -> None:
    """Edges that stood in the submission, or that a daemon that starts finds, are no news."""
    scene = Scene(planner="spare")
    first = promised(scene, size=1, wall_time=600.0, deadline=T0 + HOUR)
    second = scene.submit(T0 + 1, size=1, wall_time=600.0, deadline=T0 + HOUR, after=7)
    waiting = ((7, first), (8, second.reply.token))
    scene.poll(T0 + 2, queued=waiting, edges=((7, 8),))
    settled = scene.poll(T0 + 3, queued=waiting, edges=((7, 8),))
    kept = states_to_store(scene.site, stateful=True)
    records, snapshot = tuple(scene.site.promises.values()), scene.site.snapshot
    scene.site = recovered(StoredState(records, snapshot.plan, snapshot.version, kept))
    again = scene.poll(T0 + 4, queued=waiting, edges=((7, 8),))
    assert not settled.changed
    assert not again.changed
    (void,) = scene.poll(T0 + 5, queued=waiting, edges=((7, 8), (9, 7))).changed
    assert (void.id, void.state) == (7, "void")


def test_a_dead_node_moves_the_plan() -> None:
    """A promise on a node that dies is planned elsewhere, without a word to anybody."""
    scene = Scene(nodes=4)
    promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    token = next(iter(scene.site.promises.values())).token
    scene.poll(T0 + 2, queued=((7, token),), down=(0,))
    plan = scene.site.snapshot.plan
    assert 0 not in plan.nodes.tolist()
    assert plan.entries.job.tolist() == [7]


def test_a_partition_that_loses_a_node_moves_the_plan() -> None:
    """A promise is planned on the nodes that its partition has now; so is the next submission."""
    scene = Scene(nodes=4)
    scene.poll(T0, partitions={"short": (0, 1), "long": (2, 3)})
    asked = {"size": 2, "wall_time": 600.0, "partition": "short"}
    token = promised(scene, deadline=T0 + HOUR, **asked)
    assert scene.site.snapshot.plan.nodes.tolist() == [0, 1]
    scene.poll(T0 + 2, queued=((7, token),), partitions={"short": (1, 2), "long": (3,)})
    assert scene.site.snapshot.plan.nodes.tolist() == [1, 2]
    assert scene.site.promises[7].state == "firm"
    refused = scene.submit(T0 + 3, partition="long", size=2, wall_time=60.0, deadline=T0 + HOUR)
    assert refused.verdict == "reject"


TOLD = "rtsched: the promised deadline can no longer be kept; the job may run yet"
"""Which ends in the batch system's own words."""


def test_a_promise_that_cannot_be_kept_is_reported_at_once() -> None:
    """Where too few nodes are left the promise is broken before its deadline; its user is told."""
    scene = Scene(nodes=2)
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    settled = scene.poll(T0 + 2, queued=((7, token),), down=(0,))
    assert [(r.id, r.state) for r in settled.changed] == [(7, "broken")]
    assert [type(action) for action in settled.actions] == [Reserve, Notify]
    assert settled.actions[1].text == (TOLD,)
    assert not len(scene.site.snapshot.promises)
    assert scene.site.snapshot.queued.id.tolist() == [7]


def test_a_node_that_may_come_back_breaks_no_promise_yet() -> None:
    """The job stays planned there, unless there is room elsewhere; for good, and it breaks."""
    scene = Scene(nodes=3)
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    lost = {"queued": ((7, token),), "down": (0, 1)}
    for later in (2, 3):
        settled = scene.poll(T0 + later, **lost, flapping=(0, 1))
        assert settled.changed == ()
        assert scene.site.snapshot.plan.entries.job.tolist() == [7]
    judged = scene.submit(T0 + 4, uid=BOB, size=1, wall_time=600.0, deadline=T0 + HOUR)
    assert judged.verdict == "reject", "nobody knows yet what is left"
    assert "job 7 would miss" in judged.reply.text
    scene.poll(T0 + 5, queued=((7, token),), down=(0,), flapping=(0,))
    assert scene.site.snapshot.plan.nodes.tolist() == [1, 2]
    settled = scene.poll(T0 + 7, **lost)
    assert [(r.id, r.state) for r in settled.changed] == [(7, "broken")]


@pytest.mark.parametrize(("uid", "later", "told"), [(ANN, 2, [7]), (BOB, 2, []), (ANN, 90, [])])
def test_who_appears_after_the_promise_broke_is_told(uid: int, later: int, told: list[int]) -> None:
    """A node may die between the prompt and the first poll of the job; its user hears of it."""
    scene = Scene(nodes=2)
    token = scene.submit(size=2, wall_time=600.0, deadline=T0 + HOUR).reply.token
    settled = scene.poll(T0 + 1, down=(0,))
    assert [r.state for r in settled.changed] == ["broken"]
    assert not [a for a in settled.actions if isinstance(a, Notify)]
    settled = scene.poll(T0 + later, queued=((7, token),), down=(0,), uid=uid)
    tells = [a for a in settled.actions if isinstance(a, Notify)]
    assert [job for a in tells for job in a.job.tolist()] == told
    assert {text for a in tells for text in a.text} <= {TOLD}
    again = scene.poll(T0 + later + 1, queued=((7, token),), down=(0,), uid=uid)
    assert not [a for a in again.actions if isinstance(a, Notify)]


def test_a_late_starter_gives_way() -> None:
    """A best-effort job that slipped onto planned nodes is requeued if nothing else helps."""
    scene = Scene(nodes=2)
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + 900)
    slipped = (9, "", T0 + 1, T0 + 5000, (1,))
    settled = scene.poll(T0 + 2, queued=((7, token),), running=(slipped,))
    _, action, tell = settled.actions
    assert isinstance(action, Requeue)
    assert action.job.tolist() == [9]
    assert isinstance(tell, Notify)
    assert tell.job.tolist() == [9]
    assert "a job with a promised deadline needs its nodes" in tell.text[0]
    (note,) = settled.journal
    assert (note.job, note.verdict, note.text) == ("9", "requeue", tell.text[0])
    assert 7 in scene.site.promises


def test_a_late_starter_runs_on_by_default() -> None:
    """No job of others is stopped unless the site says so; the promise is at risk, and breaks."""
    scene = Scene(nodes=2)
    policy = PluginChains(LiveSite(), *[scene.chains] * 3)
    scene.rules = replace(scene.rules, young=rules_of(policy, WORDS).young)
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + 900)
    slipped = (9, "", T0 + 1, T0 + 5000, (1,))
    settled = scene.poll(T0 + 2, queued=((7, token),), running=(slipped,))
    assert not [a for a in settled.actions if isinstance(a, Requeue)]
    assert scene.site.at_risk == {7: T0 + 5600}
    settled = scene.poll(T0 + 301, queued=((7, token),), running=(slipped,))
    assert not [a for a in settled.actions if isinstance(a, Requeue)]
    assert [r.state for r in settled.changed] == ["broken"]


def test_only_what_is_in_the_way_is_requeued() -> None:
    """Jobs on other nodes, and those that end before the planned start, run on."""
    scene = Scene(nodes=4)
    before = (
        (4, "", T0 - 500, T0 + 5000, (0,)),
        (5, "", T0 - 500, T0 + 100, (1, 2)),
        (6, "", T0 - 500, T0 + 5000, (3,)),
    )
    scene.poll(T0, running=before)
    token = scene.submit(size=2, wall_time=600.0, deadline=T0 + 750).reply.token
    scene.poll(T0 + 1, queued=((7, token),), running=before)
    assert scene.site.snapshot.plan.nodes.tolist() == [1, 2]
    slipped = (
        (9, "", T0 + 3, T0 + 5000, (1,)),
        (10, "", T0 + 3, T0 + 50, (2,)),
        (11, "", T0 + 3, T0 + 5000, (3,)),
    )
    over = tuple((job, T0 + 2, CompletionStatus.COMPLETED) for job in (5, 6))
    running = (before[0], *slipped)
    settled = scene.poll(T0 + 4, queued=((7, token),), running=running, completions=over)
    requeued = [a.job.tolist() for a in settled.actions if isinstance(a, Requeue)]
    assert requeued == [[9]]


def test_a_job_that_has_run_long_is_left_alone() -> None:
    """An older best-effort job is never requeued; then the promise is what breaks."""
    scene = Scene(nodes=2)
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + 900)
    old = (9, "", T0 - 500, T0 + 5000, (1,))
    scene.poll(T0 + 2, queued=((7, token),), running=(old,))
    assert scene.site.at_risk == {7: T0 + 5600}
    settled = scene.poll(T0 + 301, queued=((7, token),), running=(old,))
    assert not [a for a in settled.actions if isinstance(a, Requeue)]
    assert [r.state for r in settled.changed] == ["broken"]


def test_an_early_end_pulls_the_plan_forward() -> None:
    """When nodes come free early, what is planned on them starts earlier."""
    scene = Scene(nodes=2)
    busy = (9, "", T0 - 10, T0 + 1000, (0, 1))
    scene.poll(T0, running=(busy,))
    token = scene.submit(size=2, wall_time=600.0, deadline=T0 + HOUR).reply.token
    scene.poll(T0 + 1, queued=((7, token),), running=(busy,))
    assert scene.site.snapshot.plan.entries.start.tolist() == [T0 + 1000]
    scene.poll(
        T0 + 50, queued=((7, token),), completions=((9, T0 + 49, CompletionStatus.COMPLETED),)
    )
    assert scene.site.snapshot.plan.entries.start.tolist() == [T0 + 50]


@pytest.mark.parametrize("planner", ["edf", "mcdf", "spare"])
def test_what_may_be_starting_is_not_moved_for_a_new_job(planner: str) -> None:
    """Since the poll the batch system may have started the first one: the second comes after it."""
    scene = Scene(nodes=2, planner=planner)
    promised(scene, size=2, wall_time=600.0, deadline=T0 + 3 * HOUR)
    haste = {"size": 2, "wall_time": 600.0, "now": T0 + 2}
    assert scene.submit(**haste, deadline=T0 + 700).verdict == "reject"
    later = scene.submit(**haste, deadline=T0 + 1300)
    assert later.verdict == "admit"
    assert later.reply.start >= T0 + 600
    plan = scene.site.snapshot.plan
    assert (
        dict(zip(plan.entries.job.tolist(), plan.entries.start.tolist(), strict=True))[7] <= T0 + 1
    )


def test_what_nobody_can_start_yet_is_moved_for_a_new_job() -> None:
    """The batch system has not shown the first one: the second, which is in haste, comes first."""
    scene = Scene(nodes=2, planner="edf")
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 3 * HOUR)
    assert scene.submit(size=2, wall_time=600.0, deadline=T0 + 700).verdict == "admit"


def test_spare_is_planned_anew_too() -> None:
    """A planner that never moves its plan by itself loses nothing when a node dies."""
    scene = Scene(nodes=3, planner="spare")
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    down = int(scene.site.snapshot.plan.nodes[0])
    scene.poll(T0 + 2, queued=((7, token),), down=(down,))
    assert down not in scene.site.snapshot.plan.nodes.tolist()
    assert scene.site.promises[7].state == "firm"


def test_events_between_polls(scene: Scene) -> None:
    """Events between two polls come in order of time; a job that left unrun was rejected."""
    first = scene.poll(T0 + 1, queued=((1, ""), (2, "")))
    second = scene.poll(T0 + 5, running=((1, "", T0 + 3, T0 + 100, (0,)),))
    third = scene.poll(T0 + 9, completions=((1, T0 + 8, CompletionStatus.COMPLETED),))
    told = [
        [(EventKind(k).name, int(j), t - T0) for k, j, t in rows]
        for rows in (
            zip(s.events.rows.kind, s.events.jobs.id, s.events.rows.time, strict=True)
            for s in (first, second, third)
        )
    ]
    assert told == [
        [("ARRIVED", 1, 0), ("ARRIVED", 2, 0)],
        [("STARTED", 1, 3), ("REJECTED", 2, 5)],
        [("ENDED", 1, 8)],
    ]


def test_a_daemon_that_starts_anew_remembers(scene: Scene) -> None:
    """Promises, plan and what the plug-ins were told of survive, by the names of the nodes."""
    token = promised(scene, size=2, wall_time=600.0, deadline=T0 + HOUR)
    records, plan = tuple(scene.site.promises.values()), scene.site.snapshot.plan
    names = tuple(map(str, scene.cluster.nodes.texts("name")))
    states = states_to_store(scene.site, stateful=True)
    kept = StoredState(records, plan, scene.site.snapshot.version, states, names)
    before, scene.site = scene.site, recovered(kept)
    assert scene.site.promises == before.promises
    settled = scene.poll(T0 + 2, queued=((7, token),))
    assert not settled.changed
    assert not len(settled.events)
    assert scene.site.snapshot.plan.entries.start.tolist() == [T0]


def test_a_plan_follows_its_nodes() -> None:
    """When nodes are added in front, a plan means the same machines; where one is gone it falls."""
    scene = Scene(nodes=3)
    scene.submit(size=1, wall_time=600.0, deadline=T0 + HOUR)
    scene.submit(size=1, wall_time=600.0, deadline=T0 + HOUR)
    after = Cluster(Nodes.build(3, name=["new", "n0", "n2"]))
    moved = on_nodes(scene.site.snapshot.plan, scene.cluster, after)
    assert moved.nodes.tolist() == [1]
    assert len(moved) == 1


def test_a_planner_that_ignores_order_promises_nothing_to_jobs_that_wait() -> None:
    """Insured, a job that waits for another one is turned away; else it is planned behind it."""
    insured = Mcdf(Mcdf.Config(spare_nodes=1))
    for planner, plugin, verdict in (
        ("mcdf", insured, "reject"),
        ("mcdf", None, "admit"),
        ("edf", None, "admit"),
        ("spare", None, "admit"),
    ):
        scene = Scene(planner=planner, plugin=plugin)
        token = promised(scene, size=1, wall_time=600.0, deadline=T0 + HOUR)
        assert token
        judged = scene.submit(size=1, wall_time=600.0, deadline=T0 + HOUR, after=7)
        assert judged.verdict == verdict
        if verdict == "admit":
            plan = scene.site.snapshot.plan
            assert sorted(plan.entries.start.tolist()) == [T0, T0 + 600]


@pytest.mark.parametrize("planner", ["spare", "mcdf"])
def test_a_chain_submitted_in_one_breath_is_planned_in_order(planner: str) -> None:
    """The first job has no number here yet when the second one names it."""
    scene = Scene(planner=planner)
    tokens = []
    for after in (None, 41):
        judged = scene.submit(size=1, wall_time=600.0, deadline=T0 + HOUR, after=after)
        assert judged.verdict == "admit"
        tokens.append(judged.reply.token)
    plan = scene.site.snapshot.plan
    assert sorted(plan.entries.start.tolist()) == [T0, T0 + 600]
    scene.poll(T0 + 1, queued=((41, tokens[0]),))
    assert scene.site.links.before.tolist() == [41]
    assert sorted(scene.site.snapshot.plan.entries.start.tolist())[1] >= T0 + 600
    scene.poll(T0 + 2, queued=((41, tokens[0]), (42, tokens[1])))
    assert len(scene.site.links) == 0


def test_nothing_is_promised_behind_a_job_that_nobody_knows() -> None:
    """A best-effort job that no poll has shown may still wait for hours."""
    scene = Scene(planner="spare")
    judged = scene.submit(size=1, wall_time=600.0, deadline=T0 + HOUR, after=41)
    assert (judged.verdict, judged.codes) == ("defer", ("submit.unseen",))
    assert judged.reply.deferred
    assert "job 41" in judged.reply.text
    assert not scene.site.promises
    scene.poll(T0 + 1, completions=((41, T0, CompletionStatus.COMPLETED),))
    judged = scene.submit(T0 + 2, size=1, wall_time=600.0, deadline=T0 + HOUR, after=41)
    assert judged.verdict == "admit"


def test_offers_that_nobody_takes_are_held_no_more() -> None:
    """Who lets offers lapse one after the other still reads a deadline, and blocks nothing."""
    scene = Scene(nodes=2, unused_offers_per_hour=2)
    scene.submit(size=2, wall_time=600.0, deadline=T0 + 700)
    for k in range(4):
        refused = scene.submit(size=2, wall_time=600.0, deadline=T0 + 900, now=T0 + k)
        held = [r for r in scene.site.promises.values() if r.state == "offered"]
        assert refused.verdict == "reject"
        assert np.isfinite(refused.offer)
        assert bool(held) == ("reserved for you" in refused.reply.text) == (k < 3)
    other = scene.submit(uid=BOB, size=2, wall_time=600.0, deadline=T0 + 900, now=T0 + 5)
    assert "reserved for you" in other.reply.text


def test_who_leaves_admissions_unused_is_promised_no_more_for_a_while() -> None:
    """Submissions that come to no job keep nodes from others; after an hour they are forgotten."""
    scene = Scene(nodes=2, unused_promises_per_hour=2)
    asked = {"size": 2, "wall_time": 600.0}
    for k in (0, 100):
        judged = scene.submit(T0 + k, deadline=T0 + k + 700, **asked)
        assert judged.verdict == "admit"
        assert [r.state for r in scene.poll(T0 + k + 61).changed] == ["lapsed"]
    refused = scene.submit(T0 + 200, deadline=T0 + 2 * HOUR, **asked)
    assert refused.codes == ("submit.unused",)
    assert (
        "came to nothing in the last hour: no job followed, or it was cancelled before it started; "
        "try again in 58 min" in refused.reply.text
    )
    assert scene.submit(T0 + 200, **asked).verdict == "pass"
    assert scene.submit(T0 + 200, BOB, deadline=T0 + HOUR, **asked).verdict == "admit"
    scene.poll(T0 + 270)
    again = scene.submit(T0 + 62 + HOUR, deadline=T0 + 2 * HOUR, **asked)
    assert again.verdict == "admit"


def test_who_has_all_the_promises_that_one_may_have_still_submits_without() -> None:
    """A job without a deadline takes no promise, and so is not counted."""
    scene = Scene(promises_per_user=1)
    asked = {"size": 1, "wall_time": 600.0}
    assert scene.submit(deadline=T0 + HOUR, **asked).verdict == "admit"
    assert scene.submit(deadline=T0 + HOUR, **asked).codes == ("submit.too-many",)
    assert scene.submit(**asked).verdict == "pass"


def test_a_guess_that_is_too_strict_rejects_nobody_for_good() -> None:
    """Behind the wrong one of two jobs there would be no room; the user is asked to wait."""
    scene = Scene(planner="spare")
    for length in (3000.0, 600.0):
        scene.submit(size=1, wall_time=length, deadline=T0 + HOUR)
    judged = scene.submit(size=1, wall_time=900.0, deadline=T0 + HOUR, after=42)
    assert judged.codes == ("submit.unseen",)
    scene.submit(size=1, wall_time=600.0, deadline=T0 + HOUR, dag=7)
    judged = scene.submit(size=1, wall_time=900.0, deadline=T0 + HOUR, after=43, dag=7)
    assert judged.verdict == "admit"


def test_a_job_without_a_number_is_just_the_job() -> None:
    """Our own ids mean nothing to a user."""
    scene = Scene(planner="spare")
    assert "the job states no run time" in scene.submit(deadline=T0 + HOUR).reply.text


def test_a_load_that_lost_some_of_its_parts_is_planned_smaller(scene: Scene) -> None:
    """Where the batch system shows fewer parts than were promised, no plan counts on more."""
    scene.poll(T0 + 1, partitions={"/1/1": (0, 1, 2, 3)})
    load = {"kind": np.int8(Kind.DIVISIBLE), "sigma": 100.0, "cms": 0.1, "cps": 1.0}
    sizes = {"size": 1, "size_min": np.int32(1), "size_max": np.int32(4)}
    given = {**load, **sizes, "wall_time": 200.0, "deadline": T0 + HOUR, "partition": "/1/1"}
    token = scene.submit(T0 + 1, **given).reply.token
    scene.poll(T0 + 2, queued=((7, token),), changed={"size_max": np.int32(2)})
    assert scene.site.row(7).size_max.tolist() == [2]
    scene.poll(T0 + 3, queued=((7, token),), changed={"size_max": np.int32(3)})
    assert scene.site.row(7).size_max.tolist() == [2], "parts do not come back"


@pytest.mark.parametrize("by", ["unjudged", "another", "admitted"])
def test_a_number_that_the_batch_system_gives_again(scene: Scene, by: str) -> None:
    """A controller that lost a job gives its number to the next one, which inherits no promise."""
    asked = {"size": 2, "wall_time": 600.0, "deadline": T0 + HOUR}
    lost = promised(scene, **asked)
    if by == "another":
        settled = scene.poll(T0 + 5, queued=((7, lost),), uid=BOB)
    else:
        token = scene.submit(T0 + 4, **asked).reply.token if by == "admitted" else "unjudged"
        settled = scene.poll(T0 + 5, queued=((7, token),))
    closed = {r.token: (r.state, r.why) for r in settled.changed}[lost]
    assert closed == ("unknown", RENUMBERED)
    entries = scene.site.snapshot.plan.entries.job.tolist()
    if by == "admitted":
        assert {r.token: r.state for r in settled.changed}[token] == "firm"
        assert [r.token for r in scene.site.promises.values()] == [token]
        assert entries == [7]
        assert scene.site.requested.id.tolist() == [7]
    else:
        assert not scene.site.promises
        assert entries == []
    assert scene.site.snapshot.queued.id.tolist() == [7]


def test_other_kinds_of_gpus_are_another_cluster() -> None:
    """Node sets are compared by what they are made of: nodes and partitions stay as they are."""
    scene = Scene(nodes=1)
    kinds = [((("Capability", capability),),) for capability in (7.0, 7.0, 8.0)]
    seen = []
    for at, kind in enumerate(kinds):
        sets = SlotSets(MachineAds.of({}), ["s"], [kind], {}, np.zeros(1, np.int64))
        scene.cluster = replace(scene.cluster, node_sets=sets)
        scene.poll(T0 + at)
        seen.append(scene.site.snapshot.cluster)
    assert seen[1] is seen[0]
    assert seen[2] is scene.cluster


def test_equal_nodes_have_equal_node_sets() -> None:
    """What was worked out of them does not matter."""
    nodes = Nodes.build(2, name=["a", "b"])
    one, other = (NodeSets(nodes.replace(state=nodes.state), {}) for _ in range(2))
    assert one["--nodelist=a"].tolist() != other["--nodelist=b"].tolist()
    assert one == other
    assert one != NodeSets(Nodes.build(2, name=["a", "c"]), {})
