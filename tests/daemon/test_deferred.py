"""Jobs that nobody could judge when they were submitted, or that came without a verdict."""

from dataclasses import replace

import numpy as np
import pytest
from scene import ANN, BOB, T0, Scene

from rtsched.adapters.live import Change, Done, Submission
from rtsched.core.decision import observe
from rtsched.daemon.admission import AdmissionController, AdmissionResult
from rtsched.daemon.deferred import AGAIN, AT_A_TIME, _waiting
from rtsched.daemon.site import Site, Step
from rtsched.model.actions import Admit, Cancel, Notify, Release, Reserve
from rtsched.model.jobs import Edges, Jobs
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio


def deferred(count: int, **columns: object) -> Jobs:
    """Return jobs that wait for a verdict."""
    given = {name: np.full(count, value) for name, value in columns.items()}
    return Jobs.build(count, id=np.arange(1, count + 1), submit=np.full(count, T0), **given)


def judged(scene: Scene, now: float, jobs: Jobs) -> dict[type, list[int]]:
    """Return what becomes of the jobs at a poll."""
    actions = scene.poll(now, deferred=jobs).actions
    return {
        kinds[0]: [job for each in actions if isinstance(each, kinds) for job in each.job.tolist()]
        for kinds in ((Release, Admit), (Cancel,))
    }


def test_what_is_put_off_is_not_judged_in_each_cycle(scene: Scene) -> None:
    """A job that may not begin yet is judged when it may, and costs no cycle before."""
    jobs = deferred(3, begin=T0 + 600, deadline=T0 + 3600, wall_time=60.0)
    assert judged(scene, T0 + 1, jobs) == {Release: [], Cancel: []}
    put_off = {job: one.put_off for job, one in scene.site.waiting.items()}
    assert put_off == dict.fromkeys([1, 2, 3], T0 + 600)
    assert judged(scene, T0 + 300, jobs) == {Release: [], Cancel: []}
    assert judged(scene, T0 + 601, jobs)[Release] == [1, 2, 3]
    assert not scene.site.waiting


def test_a_long_queue_is_judged_in_turns(scene: Scene) -> None:
    """After a long outage no single cycle judges everything; the first come first."""
    jobs = deferred(AT_A_TIME + 7, wall_time=60.0)
    assert judged(scene, T0 + 1, jobs)[Release] == list(range(1, AT_A_TIME + 1))
    left = jobs.take(np.arange(AT_A_TIME, AT_A_TIME + 7))
    assert judged(scene, T0 + 2, left)[Release] == list(range(AT_A_TIME + 1, AT_A_TIME + 8))


def test_users_are_judged_in_turns(scene: Scene) -> None:
    """Who has deferred hundreds keeps nobody's one job from its cycle."""
    scene.poll(T0 + 1, deferred=deferred(5, wall_time=60.0, begin=T0 + 9e3, deadline=T0 + 1e4))
    uid = np.array([ANN, ANN, ANN, BOB, BOB])
    site = replace(scene.site, marks=scene.site.marks.replace(uid=uid), waiting={})
    assert site.marks.job.tolist() == [1, 2, 3, 4, 5]
    assert _waiting(site, False).tolist() == [1, 4, 2, 5, 3]


def test_what_was_decided_is_asked_for_until_it_is_so() -> None:
    """A release or an end that the batch system did not carry out is asked for with each poll."""
    scene = Scene(nodes=1)
    jobs = Jobs.build(
        2, id=[1, 2], submit=[T0, T0], wall_time=[600.0, 600.0], deadline=[T0 + 700, T0 + 800]
    )
    first = judged(scene, T0 + 1, jobs)
    assert first == {Release: [1], Cancel: [2]}
    assert scene.site.promises[1].state == "firm"
    assert judged(scene, T0 + 2, jobs) == first


def test_who_leaves_promises_unused_gets_no_more_by_deferred_jobs() -> None:
    """What does not start on what is kept for it counts, however judged; others then wait."""
    scene = Scene(unused_promises_per_hour=2)
    asked = {"deadline": T0 + 9000, "wall_time": 60.0}
    for k in (0, 100):
        token = scene.submit(T0 + k, **asked).reply.token
        scene.poll(T0 + k + 10, queued=((70 + k, token),))
        (void,) = scene.poll(T0 + k + 60, queued=((70 + k, token),), stuck=(70 + k,)).changed
        assert void.state == "void"
    settled = scene.poll(T0 + 200, deferred=deferred(1, **asked))
    (text,) = [text for each in settled.actions if isinstance(each, Notify) for text in each.text]
    assert "too many promises to you came to nothing in the last hour" in text
    assert "try again in 58 min" in text
    assert not scene.site.promises
    assert judged(scene, T0 + 300, deferred(1, **asked)) == {Release: [], Cancel: []}
    assert judged(scene, T0 + 3661, deferred(1, **asked))[Release] == [1]


def test_a_job_that_cannot_be_judged_stops_no_cycle(monkeypatch) -> None:
    """It stays held, for it is our fault, and is judged again later; the others are judged."""
    scene, seen, defect = Scene(), [], [True]
    honest = AdmissionController.judge_queued

    def odd(self: AdmissionController, site: Site, job: int, now: float) -> AdmissionResult:
        seen.append(job)
        if job == 2 and defect:
            raise OverflowError("too large")
        return honest(self, site, job, now)

    monkeypatch.setattr(AdmissionController, "judge_queued", odd)
    jobs = deferred(3, deadline=T0 + 3600, wall_time=60.0)
    assert judged(scene, T0 + 1, jobs) == {Release: [1, 3], Cancel: []}
    assert list(scene.site.promises) == [1, 3]
    settled = scene.poll(T0 + 2, deferred=jobs)
    assert [each.job.tolist() for each in settled.actions if isinstance(each, Admit)] == [[1, 3]]
    assert seen == [1, 2, 3], "once each"
    defect.clear()
    assert judged(scene, T0 + 2 + AGAIN, jobs)[Release] == [1, 2, 3]


def test_nodes_of_an_imminent_start_are_promised_to_no_deferred_job() -> None:
    """The batch system may start a planned job at any moment; what is judged meanwhile waits."""
    scene = Scene(nodes=1, planner="edf")
    scene.submit(wall_time=600.0, deadline=T0 + 5000)
    urgent = deferred(1, wall_time=600.0, deadline=T0 + 700)
    assert scene.submit(T0, wall_time=600.0, deadline=T0 + 700).verdict == "admit", "not seen yet"
    scene = Scene(nodes=1, planner="edf")
    token = scene.submit(wall_time=600.0, deadline=T0 + 5000).reply.token
    scene.poll(T0 + 1, queued=((70, token),))
    settled = scene.poll(T0 + 2, queued=((70, token),), deferred=urgent)
    (cancel,) = [each for each in settled.actions if isinstance(each, Cancel)]
    assert cancel.job.tolist() == [1]
    assert list(scene.site.promises) == [70]
    assert scene.site.snapshot.plan.entries.start[0] <= T0 + 2


def test_a_deferred_job_takes_the_offer_that_its_user_was_made() -> None:
    """It was submitted anew by the offered deadline while nothing could be promised."""
    scene = Scene(nodes=1, offer=600.0)
    assert scene.submit(wall_time=600.0, deadline=T0 + 700).verdict == "admit"
    assert scene.submit(wall_time=600.0, deadline=T0 + 700).verdict == "reject"
    (offer,) = scene.site.of_user(ANN, "offered")
    settled = scene.poll(T0 + 1, deferred=deferred(1, wall_time=600.0, deadline=offer.deadline))
    assert [record.state for record in settled.changed] == ["firm", "lapsed"]
    assert scene.site.promises[1].deadline == offer.deadline
    assert scene.site.snapshot.queued.id.tolist().count(1) == 1


def test_a_deferred_job_with_dependencies_needs_a_planner_that_minds_them() -> None:
    """As at its submission: insured, it would be planned before the job that it waits for ends."""
    scene = Scene(plugin=Mcdf(Mcdf.Config(spare_nodes=1)))
    both = deferred(2, wall_time=600.0)
    both = both.replace(deadline=np.array([T0 + 1800, T0 + 3600]))
    scene.poll(T0 + 1, deferred=both, edges=((1, 2),))
    assert "a job with dependencies gets no promise here" in (scene.site.waiting[2].declined or "")
    assert list(scene.site.promises) == [1]
    for planner in ("spare", "mcdf"):
        scene = Scene(planner=planner)
        scene.poll(T0 + 1, deferred=both, edges=((1, 2),))
        assert list(scene.site.promises) == [1, 2]


def test_a_dry_run_judges_all_that_wait_with_a_deadline(scene: Scene) -> None:
    """Held or not."""
    scene.rules = replace(scene.rules, everything=True)
    scene.poll(T0 + 1, ((1, ""), (2, "")), changed={"wall_time": 600.0, "deadline": T0 + 3600})
    assert list(scene.site.promises) == [1, 2]
    assert scene.site.snapshot.plan.entries.job.tolist() == [1, 2]


def test_what_cannot_be_promised_is_rejected_as_at_submission(scene: Scene) -> None:
    """Its user learns the reason that sbatch would have shown, and it does not stay held."""
    settled = scene.poll(T0 + 1, deferred=deferred(1), unusable="no promise can be given to it")
    (cancel,) = [each for each in settled.actions if isinstance(each, Cancel)]
    assert (cancel.job.tolist(), cancel.text) == ([1], ("rtsched: no promise can be given to it",))
    assert not scene.site.promises


def test_a_component_waits_for_the_others(scene: Scene) -> None:
    """Where a verdict counts it is held; elsewhere it passes, and nothing is said of it alone."""
    jobs = Jobs.build(1, deadline=[T0 + 3600], wall_time=[60.0])
    part = Submission(jobs, Edges.build(0), ANN, component=True)
    judged = scene.admission.judge(scene.site, part, T0)
    assert (judged.verdict, judged.reply.deferred) == ("defer", True)
    assert judged.reply.text.endswith("held until it has been evaluated with all its components")
    assert judged.site is scene.site
    plain = Submission(Jobs.build(1, wall_time=[60.0]), Edges.build(0), ANN, component=True)
    assert scene.admission.judge(scene.site, plain, T0).verdict == "pass"


def test_free_nodes_are_secured_before_they_are_promised() -> None:
    """Others may start there between a poll and what keeps them; the next poll shows it."""
    scene = Scene(nodes=4)
    jobs = Jobs.build(
        2,
        id=[1, 2],
        submit=[T0, T0],
        size=[2, 2],
        wall_time=[600.0, 600.0],
        deadline=[T0 + 700, T0 + 700],
    )
    first = scene.poll(T0 + 1, deferred=jobs, keeps_after=0.0)
    (reserve,) = (each for each in first.actions if isinstance(each, Reserve))
    assert reserve.secured.entries.job.tolist() == [1, 2]
    assert sorted(reserve.secured.nodes.tolist()) == [0, 1, 2, 3]
    assert not len(reserve.plan)
    assert not [each for each in first.actions if isinstance(each, Admit | Cancel | Notify)]
    assert not scene.site.promises
    assert not first.changed
    assert not first.journal
    kept = {job: {f"n{node}" for node in nodes} for job, nodes in _nodes_by_job(reserve).items()}
    assert {job: one.nodes for job, one in scene.site.secured.items()} == kept
    lost = _nodes_by_job(reserve)[2]
    ran = ((9, "", T0 + 1, T0 + 9000.0, tuple(lost)),)
    second = scene.poll(T0 + 2, running=ran, deferred=jobs, keeps_after=0.0)
    assert [each.job.tolist() for each in second.actions if isinstance(each, Admit)] == [[1]]
    assert [each.job.tolist() for each in second.actions if isinstance(each, Cancel)] == [[2]]
    assert scene.site.promises[1].state == "firm"
    assert not scene.site.secured


def _nodes_by_job(reserve: Reserve) -> dict[int, list[int]]:
    plan = reserve.secured
    return {job: plan.nodes_of(at).tolist() for at, job in enumerate(plan.entries.job.tolist())}


def test_nodes_are_kept_for_a_while_before_they_are_promised() -> None:
    """What was on its way there when they were to be kept shows only some seconds later."""
    scene = Scene(nodes=2)
    jobs = deferred(1, wall_time=600.0, deadline=T0 + 700)
    for after in (1, 2, 3):
        polled = scene.poll(T0 + after, deferred=jobs, keeps_after=3.0)
        assert not [each for each in polled.actions if isinstance(each, Admit)]
        assert scene.site.secured[1].since == T0 + 1
    late = scene.poll(T0 + 4, deferred=jobs, keeps_after=3.0)
    assert [each.job.tolist() for each in late.actions if isinstance(each, Admit)] == [[1]]


@pytest.mark.parametrize(("about", "refused"), [(-1, True), (1, True), (2, False)])
def test_nodes_that_could_not_be_kept_are_not_promised(about: int, refused: bool) -> None:
    """As when the slot table cannot be written, or the reservation is refused."""
    scene = Scene(nodes=2)
    jobs = deferred(1, wall_time=600.0, deadline=T0 + 700)
    failed = (Done(Change("reserve", about, "write"), "failed"),)
    for after in (1, 2, 3):
        polled = scene.poll(T0 + after, deferred=jobs, keeps_after=1.0, not_done=failed)
        (reserve,) = (each for each in polled.actions if isinstance(each, Reserve))
        promised = [each.job.tolist() for each in polled.actions if isinstance(each, Admit)]
        assert promised == ([[1]] if after > 1 and not refused else [])
        if promised:
            return
        assert reserve.secured.entries.job.tolist() == [1]
    other = (Done(Change("tell", 1, "text"), "failed"), Done(Change("reserve", 1, "w"), "done"))
    scene.poll(T0 + 4, deferred=jobs, keeps_after=1.0, not_done=other)
    late = scene.poll(T0 + 5, deferred=jobs, keeps_after=1.0)
    assert [each.job.tolist() for each in late.actions if isinstance(each, Admit)] == [[1]]


def test_with_time_to_spare_nothing_is_secured() -> None:
    """What runs ends in time: whatever takes the free nodes, the promise can be kept."""
    scene = Scene(nodes=2)
    ran = ((9, "", T0, T0 + 100.0, (0,)),)
    jobs = deferred(1, wall_time=600.0, deadline=T0 + 750)
    polled = scene.poll(T0 + 1, running=ran, deferred=jobs, keeps_after=0.0)
    assert [each.job.tolist() for each in polled.actions if isinstance(each, Admit)] == [[1]]


def procs(n: int) -> Jobs:
    """Return so many jobs that ask for deadlines, as one cluster of an access point has them."""
    many = np.full(n, T0)
    return Jobs.build(
        n, id=np.arange(100, 100 + n), submit=many, wall_time=3600.0, deadline=many + 20000.0
    )


def test_five_hundred_procs_without_a_promise_do_not_overload_the_pool() -> None:
    """Another user's small request is promised as on a pool without them, there or removed."""
    for removed in (False, True):
        scene = Scene(planner="portfolio", plugin=Portfolio(Portfolio.Config()), nodes=16)
        take_in(scene, scene.poll(T0 + 2, deferred=procs(500)))
        if removed:
            take_in(scene, scene.poll(T0 + 3))
        judged = scene.submit(T0 + 5, uid=BOB, size=4, wall_time=3600.0, deadline=T0 + 864000.0)
        assert judged.verdict == "admit"


def test_promised_jobs_that_were_removed_are_no_load() -> None:
    """What nobody wants any more rejects nobody; others that came stay."""
    scene = Scene(planner="portfolio", plugin=Portfolio(Portfolio.Config()), nodes=16)
    tokens = [
        scene.submit(T0, size=1, wall_time=60.0, deadline=T0 + 90000.0 + k).reply.token
        for k in range(3)
    ]
    queued = tuple((7 + k, token) for k, token in enumerate(tokens))
    take_in(scene, scene.poll(T0 + 2, queued=queued))
    assert scene.site.snapshot.states["portfolio"].job.tolist() == [7, 8, 9]
    take_in(
        scene, scene.poll(T0 + 4, queued=queued[:1], running=((8, tokens[1], T0, T0 + 60, (0,)),))
    )
    assert scene.site.snapshot.states["portfolio"].job.tolist() == [7, 8]


def take_in(scene: Scene, settled: Step) -> None:
    """Let plug-ins see what happened, as a cycle does."""
    snapshot, _ = observe(settled.site.snapshot, scene.chains.chain, settled.events)
    scene.site = replace(settled.site, snapshot=snapshot)


def test_a_promised_job_arrives_with_its_deadline(scene: Scene) -> None:
    """It is what the load is made of."""
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + 900.0).reply.token
    settled = scene.poll(T0 + 2, queued=((9, token),))
    assert settled.events.jobs.deadline.tolist() == [T0 + 900.0]
