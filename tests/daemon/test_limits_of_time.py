"""Limits on the time of several jobs together, and jobs that take a shorter limit."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import ANN, T0, Scene, limits_of

from rtsched.adapters.live import Submission
from rtsched.daemon.admission import AdmissionResult
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.limits import LimitRules, LimitSet, Qos, UsedTime

RUN = 600.0
MINUTE = 60
PHYSICS = "account physics"

Seconds = "Mapping[str, Mapping[str, int]]"


def rules(
    account: Mapping[str, Mapping[str, int]] | None = None,
    normal: Mapping[str, Mapping[str, int]] | None = None,
    **qos: float,
) -> LimitRules:
    """Return limits of physics and of QOS `normal`, in amounts times minutes."""
    sets = [
        LimitSet(
            seconds={
                word: {thing: most * MINUTE for thing, most in some.items()}
                for word, some in (words or {}).items()
            }
        )
        for words in (account, normal)
    ]
    return limits_of(sets[0], normal=replace(Qos(sets[1]), **qos))


def site(limits: LimitRules, *, shared: bool = True, nodes: int = 2) -> Scene:
    """Return a site of nodes of 8 processors; nothing is used of the limits."""
    if shared:
        scene = Scene(nodes=nodes, capacity=[(8, 0)] * nodes)
    else:
        scene = Scene(nodes=nodes)
        cores = scene.cluster.nodes.replace(cores=np.full(nodes, 8, np.int32))
        scene.cluster = replace(scene.cluster, nodes=cores, version=1)
    scene.limit_rules, scene.used_time = limits, UsedTime(T0, {})
    scene.poll(T0)
    return scene


def submit(
    scene: Scene, cores: int, account: str = "physics", **columns: object
) -> AdmissionResult:
    """Submit a job of one node for ten minutes, with hours of time."""
    asked = {"size": 1, "wall_time": RUN, "deadline": T0 + 20 * RUN, "user": "ann", **columns}
    demand = {"demand": (cores, 0)} if scene.cluster.shared else {}
    return scene.submit(scene.site.snapshot.now, account=account, **demand, **asked)


def polled(scene: Scene, now: float, *running: tuple[int, float, float]) -> None:
    """Poll: all promised jobs wait, and others run on node 0, by number, start and end."""
    queued = tuple(
        (record.id if record.id < 1000 else 10 + k, record.token)
        for k, record in enumerate(sorted(scene.site.promises.values(), key=lambda r: r.id))
    )
    runs = tuple((job, "", start, end, (0,)) for job, start, end in running)
    scene.poll(now, queued, runs)


def test_what_running_jobs_may_use_is_planned_with() -> None:
    """GrpTRESRunMins=cpu=60: of jobs of 4, 2 and 3 processors for 10 min the third one waits."""
    # The first two have 40 and 20 processor-minutes. One of another account runs at once.
    scene = site(rules({"GrpTRESRunMins": {"cpu": 60}}))
    assert [submit(scene, cores).verdict for cores in (4, 2, 3)] == ["admit"] * 3
    assert submit(scene, 8, "arts").verdict == "admit"
    assert scene.starts() == [0.0, 0.0, RUN, 0.0]


@pytest.mark.parametrize(
    ("word", "found"),
    [("MaxTRESRunMinsPU", [0.0, RUN, 0.0]), ("MaxTRESRunMinsPA", [0.0, RUN, RUN])],
)
def test_each_user_or_account_has_a_limit_of_its_own(word: str, found: list[float]) -> None:
    """40 processor-minutes each in QOS normal: two jobs of ann, one of bob, of 30 each."""
    scene = site(rules(normal={word: {"cpu": 40}}))
    for user in ("ann", "ann", "bob"):
        assert submit(scene, 3, user=user).verdict == "admit"
    assert scene.starts()[:2] == found[:2]
    assert (scene.starts()[2] == 0.0) is (found[2] == 0.0)


def test_a_running_job_counts_with_what_is_left_of_its_time() -> None:
    """At 0 s it has 1200 s left of its limit: 6 processors have 120 minutes of the 150."""
    # A job of 40 is planned when it ends. At 900 s 300 s are left, and 300 more until Slurm counts
    # again what it used: 60 minutes, beside which 40 have room.
    scene = site(rules({"GrpTRESRunMins": {"cpu": 150}}))
    scene.demand[90], scene.accounts[90] = (6, 0), "physics"
    polled(scene, T0, (90, T0, T0 + 1200))
    assert submit(scene, 4).verdict == "admit"
    assert scene.starts() == [1200.0]
    later = site(rules({"GrpTRESRunMins": {"cpu": 150}}))
    later.demand[90], later.accounts[90] = (6, 0), "physics"
    polled(later, T0 + 900, (90, T0, T0 + 1200))
    assert submit(later, 4).verdict == "admit"
    assert later.starts() == [900.0]


def test_a_running_job_without_a_time_limit_leaves_no_room() -> None:
    """Nobody knows when it ends; jobs of other accounts run beside it."""
    scene = site(rules({"GrpTRESRunMins": {"cpu": 10**6}}))
    scene.demand[90], scene.accounts[90] = (1, 0), "physics"
    polled(scene, T0, (90, T0, np.inf))
    assert submit(scene, 4).verdict == "reject"
    assert submit(scene, 4, "arts").verdict == "admit"


def test_the_margin_does_not_count() -> None:
    """The time limit counts, and not the margin by which a job may outlive it; nodes count, too."""
    scene = site(rules({"GrpTRESRunMins": {"node": 10}}))
    scene.poll(T0, leeway=120.0)
    for _ in range(2):
        assert submit(scene, 1, wall_time=RUN + 120).verdict == "admit"
    assert scene.starts() == [0.0, RUN + 120]


def test_who_has_no_time_for_it_reads_which_limit() -> None:
    """The deadline leaves no time after the job that takes all of it; the offer is then."""
    scene = site(rules({"GrpTRESRunMins": {"cpu": 80}}))
    submit(scene, 8, deadline=T0 + 1.2 * RUN)
    late = submit(scene, 4, deadline=T0 + 1.5 * RUN)
    assert (late.verdict, late.offer) == ("reject", pytest.approx(T0 + 2 * RUN, abs=60))
    assert "; without GrpTRESRunMins=cpu=80 of account physics it could be met" in late.reply.text


def test_on_whole_nodes_there_is_room_when_others_have_ended() -> None:
    """100 minutes: of two jobs of 8 processors for 10 min, 80 each, the second is told when."""
    scene = site(rules({"GrpTRESRunMins": {"cpu": 100}}), shared=False)
    assert submit(scene, 8).verdict == "admit"
    second = submit(scene, 8)
    assert (second.verdict, second.codes) == ("reject", ("submit.limit",))
    assert "in GrpTRESRunMins=cpu=100 of account physics; submit it again from" in second.reply.text


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_left_of_used_time_is_given_once(*, shared: bool) -> None:
    """GrpTRESMins=cpu=200, of which 30 are used: two jobs of 80 have room, and a third has not."""
    scene = site(rules({"GrpTRESMins": {"cpu": 200}}), shared=shared)
    scene.used_time = UsedTime(T0, {(PHYSICS, "cpu"): 30.0 * MINUTE})
    scene.poll(T0)
    assert [submit(scene, 8).verdict for _ in range(2)] == ["admit"] * 2
    third = submit(scene, 8)
    assert (third.verdict, third.codes, third.offer) == ("reject", ("submit.used-up",), np.inf)
    assert third.reply.text == (
        "rtsched: the job may use 80 processor-minutes, and 10 are left of GrpTRESMins=cpu=200 of "
        "account physics, beside what running and promised jobs may use; use a shorter --time, or "
        "another account or QOS"
    )
    assert submit(scene, 8, "arts").verdict == "admit"
    assert submit(scene, 8, wall_time=60.0).verdict == "admit"  # 8 of the 10


def test_a_promised_job_that_runs_is_counted_once() -> None:
    """By Slurm, from the next reading on; until then by its own time limit."""
    scene = site(rules({"GrpTRESMins": {"cpu": 100}}))
    token = submit(scene, 8).reply.token
    scene.demand[10], scene.accounts[10] = (8, 0), "physics"
    runs = ((10, token, T0 + 5, T0 + 5 + RUN, (0,)),)
    scene.poll(T0 + 6, running=runs)
    used = submit(scene, 3)  # 80 are the running job's
    assert "30 processor-minutes, and 20 are left" in used.reply.text
    scene.used_time = UsedTime(T0 + 60, {(PHYSICS, "cpu"): 80.0 * MINUTE})
    scene.poll(T0 + 61, running=runs)
    assert submit(scene, 3).verdict == "reject"
    assert submit(scene, 2).verdict == "admit"


def test_best_effort_jobs_that_started_since_count() -> None:
    """Job 90 started after used time was read, job 91 of arts does not count."""
    scene = site(rules({"GrpTRESMins": {"cpu": 100}}))
    scene.demand |= {90: (4, 0), 91: (4, 0)}
    scene.accounts |= {90: "physics", 91: "arts"}
    polled(scene, T0 + 10, (90, T0 + 5, T0 + 5 + RUN), (91, T0 + 5, T0 + 5 + RUN))
    assert "70 processor-minutes, and 60 are left" in submit(scene, 7).reply.text
    assert submit(scene, 6).verdict == "admit"


@pytest.mark.parametrize("shared", [True, False])
def test_wall_time_of_a_group(*, shared: bool) -> None:
    """GrpWall of 30 min, of which 5 are used, for jobs of any size of 10 min: two have room."""
    scene = site(rules({"GrpWall": {"jobs": 30}}), shared=shared)
    scene.used_time = UsedTime(T0, {(PHYSICS, "jobs"): 5.0 * MINUTE})
    scene.poll(T0)
    assert [submit(scene, 1).verdict for _ in range(2)] == ["admit"] * 2
    third = submit(scene, 1)
    assert third.codes == ("submit.used-up",)
    assert (
        "may use 10 minutes, and 5 are left of GrpWall=00:30:00 of account physics, beside"
        in third.reply.text
    )


def test_all_tasks_of_an_array_count() -> None:
    """Ten tasks of 2 processors for 10 min, 4 at a time: 200 minutes, and 100 of wall time."""
    array = {"kind": np.int8(Kind.ARRAY), "size_min": 1, "size_max": 1, "tasks": 10}
    for word, thing, most in (("GrpTRESMins", "cpu", 200), ("GrpWall", "jobs", 100)):
        for left, verdict in ((most, "admit"), (most - 1, "reject")):
            scene = site(rules({word: {thing: left}}))
            assert submit(scene, 8, tasks_per_node=4, **array).verdict == verdict


def test_usage_factor() -> None:
    """With 2 a job uses twice its time; with 0.5 all of it must be left; with 0 none."""
    for factor, left in ((2.0, 160), (0.5, 80), (0.0, 0)):
        scene = site(rules({"GrpTRESMins": {"cpu": left}}, usage_factor=factor))
        assert submit(scene, 8).verdict == "admit"
        if left:
            scene = site(rules({"GrpTRESMins": {"cpu": left - 1}}, usage_factor=factor))
            assert submit(scene, 8).verdict == "reject"


def test_an_offer_counts_for_others_and_not_for_its_user() -> None:
    """Ann is offered a later time for a job that has 80 of 100 minutes: bob has 20 meanwhile."""
    scene = site(rules({"GrpTRESMins": {"cpu": 100}}), nodes=1)
    submit(scene, 8, "arts", deadline=T0 + 1.2 * RUN)
    offered = submit(scene, 8, deadline=T0 + 1.5 * RUN)
    assert offered.offer < np.inf
    assert submit(scene, 3, user="bob", uid=1002).codes == ("submit.used-up",)
    assert submit(scene, 8, deadline=offered.offer).codes == ("submit.offer",)


def test_without_a_reading_nothing_is_rejected() -> None:
    """Slurm may not have answered yet; its limits are read again in a minute."""
    scene = site(rules({"GrpTRESMins": {"cpu": 1}}))
    scene.used_time = None
    scene.poll(T0)
    assert submit(scene, 8).verdict == "admit"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 9)), min_size=1, max_size=10),
    st.integers(1, 300),
    st.integers(0, 200),
)
def test_no_more_is_promised_than_is_left(
    jobs: list[tuple[int, int]], most: int, spent: int
) -> None:
    """What all promised jobs may use is within the limit, and who is rejected would be beyond."""
    scene = site(rules({"GrpTRESMins": {"cpu": most}}))
    scene.used_time = UsedTime(T0, {(PHYSICS, "cpu"): spent * 60.0})
    scene.poll(T0)
    promised = spent
    for cores, minutes in jobs:
        admitted = submit(scene, cores, wall_time=60.0 * minutes).verdict == "admit"
        assert admitted is (promised + cores * minutes <= most)
        promised += cores * minutes * admitted


MARGIN = 20.0
HOUR = 3600.0


def ask(scene: Scene, hours: float, least: float, left: float) -> AdmissionResult:
    """Submit a job of one node with a limit of so many hours, at least `least`, by a deadline."""
    columns = {"wall_time": [hours * HOUR + MARGIN], "deadline": [T0 + left * HOUR]}
    row = Jobs.build(1, size=[1], label=["the job"], submit=[T0], **columns)
    job = Submission(row, Edges.build(0), ANN, limits=(least * HOUR, hours * HOUR))
    judged = scene.admission.judge(scene.site, job, T0)
    scene.site = judged.site
    return judged


def limit_of(judged: AdmissionResult) -> float:
    """Return the time limit that was planned, hours."""
    return round((judged.reply.end - judged.reply.start - MARGIN) / HOUR, 3)


@pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])
def test_the_longest_limit_that_fits(planner: str) -> None:
    """All of it where there is room, else to the minute what the deadline leaves."""
    whole = ask(Scene(1, planner), 6, 1, 7)
    assert (whole.verdict, limit_of(whole)) == ("admit", 6.0)
    assert "time limit" not in whole.reply.text
    cut = ask(Scene(1, planner), 6, 1, 2)
    assert (cut.verdict, limit_of(cut)) == ("admit", round(119 / 60, 3))
    assert cut.reply.text.endswith("; time limit set to 1 h 59 min (--time-min)")
    assert cut.reply.end <= T0 + 2 * HOUR


def test_behind_others() -> None:
    """A search finds at least nearly the longest that fits behind what is promised already."""
    scene = Scene(1)
    scene.submit(T0, size=1, wall_time=HOUR, deadline=T0 + HOUR + 1)
    found = ask(scene, 6, 0.5, 3)
    assert found.verdict == "admit"
    assert 1.5 <= limit_of(found) < 2.0
    (record,) = found.changed
    assert record.deadline == T0 + 3 * HOUR


def test_not_even_the_shortest() -> None:
    """Then it is rejected, and the offer is for the shortest limit."""
    scene = Scene(1)
    scene.submit(T0, size=1, wall_time=2 * HOUR, deadline=T0 + 2 * HOUR + 1)
    found = ask(scene, 6, 1.5, 3)
    assert (found.verdict, found.reply.token) == ("reject", "")
    assert T0 + 3.5 * HOUR <= found.offer <= T0 + 3.6 * HOUR


def test_what_has_one_limit() -> None:
    """Where the shortest is no shorter, or nothing can be promised, the job is judged once."""
    scene = Scene(1)
    assert ask(scene, 6, 6, 2).verdict == "reject"
    row = Jobs.build(1, size=np.array([1]), wall_time=[HOUR], deadline=[T0 + HOUR])
    job = Submission(row, Edges.build(0), ANN, problem="no", limits=(60.0, HOUR))
    assert scene.admission.judge(scene.site, job, T0).reply.text.endswith("no")
    free = replace(job, jobs=row.replace(deadline=np.array([np.inf])), problem="")
    assert not scene.admission.judge(scene.site, free, T0).reply.token
