"""Promised jobs that ended or are forgotten, and the list of those that there are."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from running import ANN, Running, answer_of
from scene import T0, WORDS, Scene

from rtsched.adapters.live import Completions, CompletionStatus, Marks, Observation, Submission
from rtsched.adapters.wire import ACCEPT, Tag
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.cycle import after_poll
from rtsched.daemon.drift import STUCK
from rtsched.daemon.estimating import EndedJobs
from rtsched.daemon.promises import LIST_FILE
from rtsched.daemon.reconcile import NOT_TAKEN
from rtsched.daemon.recovery import (
    FIRST_RETRY_S,
    LAST_RETRY_S,
    LATE_S,
    REPEAT_S,
    SILENT_S,
    CompletionLookup,
)
from rtsched.errors import AdapterError
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot

HOUR = 3600.0


class Records:
    """What keeps records of ended jobs: `known` are all; None: it does not answer.

    Attributes
    ----------
    asked : list of tuple of int
        Which jobs it was asked about.
    failures : int
        How often it was counted that it did not answer.
    now : float
        Of the clock that `CompletionLookup` goes by, seconds.
    """

    def __init__(self, scene: Scene, known: Completions | None) -> None:
        self.scene, self.known = scene, known
        self.asked: list[tuple[int, ...]] = []
        self.failures, self.now = 0, 0.0
        self._completion_lookup = CompletionLookup(self._ended, self._failed, lambda: self.now)

    async def _ended(self, jobs: Sequence[int], since: float) -> Completions:
        assert since == T0, "when the promise was made: the search may end there"
        self.asked.append(tuple(jobs))
        if self.known is None:
            raise AdapterError("sacct took too long")
        return self.known

    def _failed(self) -> None:
        self.failures += 1

    def poll(self, observation: Observation | None = None) -> Observation:
        """Return an observation that shows no job, or this one, with what the records tell."""
        observation = observation or Observation(T0 + 2 * HOUR, self.scene.cluster)
        return asyncio.run(self._completion_lookup(self.scene.site, observation))

    def closed(self) -> list[tuple[int, str]]:
        """Return the promises that such a poll closes, and how."""
        observation = self.poll()
        settled = after_poll(self.scene.site, observation, self.scene.rules, observation.time)
        self.scene.site = settled.site
        return [(record.id, record.state) for record in settled.changed]


def firm(scene: Scene, job: int = 7) -> str:
    """Promise a job its deadline, and show it once; return its token."""
    token = scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR).reply.token
    scene.poll(T0 + 1, queued=((job, token),))
    return token


@pytest.mark.parametrize(
    ("end", "state"), [(HOUR - 60, "kept"), (HOUR + 60, "missed"), (np.nan, "unknown")]
)
def test_the_end_of_a_purged_job_is_asked_for(scene: Scene, end: float, state: str) -> None:
    """What the records tell decides; a record without an end proves nothing."""
    firm(scene)
    records = Records(scene, Completions.build(1, job=[7], end=[T0 + end]))
    assert (records.closed(), records.asked) == ([(7, state)], [(7,)])


def test_records_that_do_not_answer_are_asked_again(scene: Scene) -> None:
    """The promise stays open meanwhile, and who looks at the daemon's status sees why."""
    firm(scene)
    records = Records(scene, None)
    assert records.closed() == []
    (problem,) = records.poll().problems
    assert problem == "the end of 1 promised job is not known yet: sacct took too long"
    assert (records.asked, records.failures) == ([(7,)], 1), "not with every poll"
    records.now = FIRST_RETRY_S
    assert (records.closed(), len(records.asked)) == ([], 2)
    records.known = Completions.build(1, job=[7], end=[T0 + HOUR + 60])
    records.now += 2 * FIRST_RETRY_S
    assert records.closed() == [(7, "missed")]
    assert records.poll().problems == ()


def test_one_of_several_schedds_that_does_not_answer_leaves_its_jobs_open(scene: Scene) -> None:
    """What the others know counts; a job of the silent one is asked for until it answers."""
    firm(scene)
    silent = [CompletionStatus.UNANSWERED]
    records = Records(scene, Completions.build(1, job=[7], status=np.array(silent, np.int8)))
    while records.now < 2 * LATE_S:
        assert records.closed() == []
        records.now += REPEAT_S
    (problem,) = records.poll().problems
    assert problem == "the end of 1 promised job is not known yet: a schedd does not answer"
    assert records.failures > 1
    records.known = Completions.build(1, job=[7], end=[T0 + HOUR - 60])
    records.now += REPEAT_S
    assert records.closed() == [(7, "kept")]
    assert records.poll().problems == ()


def test_records_that_never_answer_leave_the_end_unknown(scene: Scene) -> None:
    """After a day nobody waits for them any more; nothing says that the user withdrew the job."""
    firm(scene)
    records = Records(scene, None)
    while records.now < SILENT_S:
        assert records.closed() == []
        records.now += LAST_RETRY_S
    assert records.closed() == [(7, "unknown")]
    assert len(records.asked) < SILENT_S / LAST_RETRY_S + 10


def test_a_job_that_the_records_do_not_know_is_asked_for_once_more(scene: Scene) -> None:
    """They may learn of it late; after ten minutes its end counts as unknown."""
    firm(scene)
    records = Records(scene, Completions.build(0))
    assert (records.closed(), records.closed(), records.asked) == ([], [], [(7,)])
    assert records.poll().problems == ()
    while records.now < LATE_S:
        assert records.closed() == []
        records.now += REPEAT_S
    assert records.closed() == [(7, "unknown")]


def test_accounting_is_not_asked_for_what_a_poll_shows(scene: Scene) -> None:
    """Jobs that wait, run or ended, and those that never appeared, cost no question."""
    scene.submit(size=1, wall_time=60.0, deadline=T0 + HOUR)
    firm(scene)
    completions = Completions.build(1, job=[7], status=np.array([CompletionStatus.FAILED], np.int8))

    async def nobody(jobs: Sequence[int], since: float) -> Completions:
        raise AssertionError(jobs, since)

    observation = Observation(T0 + 2, scene.cluster, completions=completions)
    assert asyncio.run(CompletionLookup(nobody)(scene.site, observation)) is observation


def numbered(scene: Scene, job: int, now: float) -> str:
    """Submit a job of which the batch system tells the number; return its token."""
    one = Jobs.build(1, size=[1], wall_time=[60.0], deadline=[T0 + HOUR])
    submission = Submission(one, Edges.build(0), ANN, job=job)
    judged = AdmissionController(scene.chains, scene.settings, WORDS).judge(
        scene.site, submission, now
    )
    scene.site = judged.site
    return judged.reply.token


def test_a_held_job_is_promised_nothing_before_its_release(scene: Scene) -> None:
    """Its promise would be void at the first poll; it is judged later instead."""
    one = Jobs.build(1, size=[1], wall_time=[60.0], deadline=[T0 + HOUR])
    admission = AdmissionController(scene.chains, scene.settings, WORDS)
    submission = Submission(one, Edges.build(0), ANN, job=7, held=True)
    judged = admission.judge(scene.site, submission, T0)
    assert (judged.verdict, judged.codes, judged.reply.deferred) == (
        "defer",
        ("submit.held",),
        True,
    )
    assert "when it is released" in judged.reply.text
    assert judged.site is scene.site
    plain = replace(submission, jobs=one.replace(deadline=np.array([np.inf])))
    assert admission.judge(scene.site, plain, T0).verdict == "pass"


def test_a_job_that_was_not_taken_keeps_no_nodes(scene: Scene) -> None:
    """A batch system that numbers jobs before it asks shows them in the next poll, or never."""
    token = numbered(scene, 7, T0)
    assert scene.poll(T0 + 1).changed == (), "the poll may have begun before the job was there"
    (record,) = scene.poll(T0 + 3).changed
    assert (record.token, record.state, record.why) == (token, "withdrawn", NOT_TAKEN)
    assert (len(scene.site.snapshot.plan), len(scene.site.numbers)) == (0, 0)
    assert scene.site.unused_by(ANN, T0 + 3, "provisional") == [T0 + 3]


def test_a_job_that_no_poll_shows_is_asked_for_until_somebody_answers(scene: Scene) -> None:
    """It may have run and ended: nobody knows yet that the batch system did not take it."""
    numbered(scene, 7, T0)
    records, observation = Records(scene, None), Observation(T0 + 3, scene.cluster)
    settled = after_poll(scene.site, records.poll(observation), scene.rules, observation.time)
    assert (records.asked, settled.changed) == ([(7,)], ())
    records.known, records.now = Completions.build(0), FIRST_RETRY_S
    (record,) = after_poll(settled.site, records.poll(observation), scene.rules, T0 + 4).changed
    assert record.why == NOT_TAKEN


def test_a_transaction_that_is_refused_counts_once(scene: Scene) -> None:
    """However many jobs it had, its user is not turned away for one mistake."""
    for job in (7, 8, 9):
        numbered(scene, job, T0)
    assert len(scene.poll(T0 + 3).changed) == 3
    assert scene.site.unused_by(ANN, T0 + 3, "provisional") == [T0 + 3]


def test_a_job_that_cannot_start_loses_its_promise(scene: Scene) -> None:
    """Nodes are not kept for ever for a job that its own requirements keep off them."""
    token = firm(scene)
    settled = scene.poll(T0 + 2, queued=((7, token),), stuck=(7,))
    assert [(r.state, r.why) for r in settled.changed] == [("void", STUCK)]
    assert not len(scene.site.snapshot.plan)


def test_a_job_of_which_too_little_is_left_is_told_so(scene: Scene) -> None:
    """Its promise is void; that its deadline is not seen any more is no deed of its user."""
    token = firm(scene)
    lacks = "it needs 3 procs and has 2"
    less = {"deadline": np.inf}
    settled = scene.poll(T0 + 2, queued=((7, token),), problems={7: lacks}, changed=less)
    assert [(r.state, r.why) for r in settled.changed] == [("void", lacks)]


def test_who_submits_jobs_that_cannot_start_is_promised_no_more_for_a_while() -> None:
    """Else the same requirements, submitted anew, would keep nodes from others for ever."""
    scene = Scene(unused_promises_per_hour=2)
    asked = {"size": 1, "wall_time": 60.0, "deadline": T0 + HOUR}
    for now, jobs in ((T0, (7, 8)), (T0 + 10, (9,))):
        tokens = [scene.submit(now, **asked).reply.token for _ in jobs]
        waiting = tuple(zip(jobs, tokens, strict=True))
        scene.poll(now + 1, queued=waiting)
        scene.poll(now + 2, queued=waiting, stuck=jobs)
    assert scene.site.unused_by(ANN, T0 + 12, "firm") == [T0 + 2, T0 + 12], "one a submission"
    assert scene.submit(T0 + 20, **asked).codes == ("submit.unused",)


def test_a_job_that_was_over_before_a_poll_is_asked_for(scene: Scene) -> None:
    """Its promise was kept, though nobody has seen it."""
    token = numbered(scene, 7, T0)
    told = Completions.build(1, job=[7], end=[T0 + 2], token=[token])
    records = Records(scene, told)
    assert (records.closed(), records.asked) == ([(7, "kept")], [(7,)])


def test_a_job_that_is_seen_is_not_asked_for(scene: Scene) -> None:
    """It becomes firm as any other."""
    token = numbered(scene, 7, T0)
    (record,) = scene.poll(T0 + 3, queued=((7, token),)).changed
    assert (record.id, record.state, scene.site.numbers) == (7, "firm", {})


def poll(queued: list[int], running: dict[int, float]) -> Snapshot:
    """Return a state with these jobs; those that run have their starts."""
    ids = sorted(running)
    starts = [running[job] for job in ids]
    return Snapshot(
        0.0,
        Cluster.uniform(8),
        queued=Jobs.build(len(queued), id=queued, name=["model"] * len(queued)),
        running=Jobs.build(len(ids), id=ids, name=["model"] * len(ids)),
        allocations=Schedule.build(
            ids,
            starts,
            [each + 100.0 for each in starts],
            np.arange(len(ids) + 1),
            np.arange(len(ids), dtype=np.int32),
        ),
    )


def test_ends_are_seen() -> None:
    """By the batch system's memory, else by the poll."""
    ended = EndedJobs()
    none = Completions.build(0)
    ended.poll(poll([3, 4], {1: 10.0, 2: 20.0}), none, 30.0)
    assert ended.taken() is None
    known = Completions.build(2, job=[1, 4], start=[10.0, 31.0], end=[33.0, 34.0])
    ended.poll(poll([], {}), known, 35.0)
    log = ended.taken()
    assert log.jobs.id.tolist() == [4, 1, 2]
    assert log.jobs.texts("name") == ["model"] * 3
    assert log.outcomes.end.tolist() == [34.0, 33.0, 35.0]
    assert log.outcomes.run_time.tolist() == [3.0, 23.0, 15.0]
    assert ended.taken() is None


def lines(running: Running) -> list[str]:
    """Return the list's lines, without the first words and the last line."""
    first, *others, last = (running.path / LIST_FILE).read_text().splitlines()
    assert last == "end"
    return [first.removeprefix("rtsched-promised-jobs 1 "), *others]


async def promise(running: Running) -> None:
    """Have ann promised something."""
    _, fields = await asyncio.to_thread(answer_of, running.asked())
    assert fields[Tag.VERDICT] == ACCEPT


def appear(running: Running, job: int) -> None:
    """Have the next poll show the job of the one promise that has none yet."""
    site = running.daemon.site
    record = next(r for r in site.promises.values() if r.state == "provisional")
    row = site.row(record.id).replace(id=np.array([job]))
    marks = Marks.build(1, job=[job], uid=[ANN], token=[record.token], requeues=[True])
    running.show(queued=row, marks=marks)


async def test_a_promise_is_on_the_list_before_the_filter_reads_of_it(running: Running) -> None:
    """Its job has no number yet, so its user stands there; with the next poll the job does."""
    await running.start()
    assert lines(running) == ["0"]
    add = running.daemon.promised.add

    def seen(uid: int) -> None:
        assert running.states() == ["provisional"]  # committed, not answered
        add(uid)
        assert lines(running) == ["0", f"user {ANN}"]

    running.daemon.promised.add = seen
    await promise(running)
    assert lines(running) == ["0", f"user {ANN}"]
    appear(running, 17)
    await running.daemon.cycle()
    assert lines(running) == ["17", "17"]


async def test_a_closed_promise_leaves_the_list(running: Running) -> None:
    """A job that is gone is on it no longer, nor is a user whose admission lapsed."""
    await running.start()
    await promise(running)
    appear(running, 17)
    await running.daemon.cycle()
    await promise(running)
    assert lines(running) == ["17", "17", f"user {ANN}"]
    running.now += 1000.0
    empty = running.system.observation.queued.take(np.zeros(0, np.int64))
    over = Completions.build(1, job=[17], end=[running.now], status=[CompletionStatus.FAILED])
    running.show(time=running.now, queued=empty, marks=Marks.build(0), completions=over)
    await running.daemon.cycle()
    assert running.states() == []
    assert lines(running) == ["17"]


async def test_an_offer_is_no_promise(running: Running) -> None:
    """Of a user who was rejected, with an offer that is held for her, no job is guarded."""
    await running.start()
    await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
    await asyncio.to_thread(answer_of, running.asked(nodes=4, hours=0.6))
    assert sorted(running.states()) == ["offered", "provisional"]
    appear(running, 17)
    await running.daemon.cycle()
    assert lines(running) == ["17", "17"]


async def test_a_list_that_cannot_be_written_is_a_problem_and_no_obstacle(running: Running) -> None:
    """Promises are given all the same; the status says what is wrong, until it is not any more."""
    await running.start()
    place = running.path / "gone" / LIST_FILE
    running.daemon.promised.path = place
    await promise(running)
    await running.daemon.cycle()
    problem = f"{place} cannot be written (No such file or directory)"
    assert any(problem in each for each in running.daemon.status.problems)
    place.parent.mkdir()
    await running.daemon.cycle()
    assert running.daemon.status.problems == ()
    assert f"user {ANN}" in place.read_text()


async def test_the_list_is_written_when_it_changes(running: Running) -> None:
    """A poll that shows nothing new, and a second promise to a user, leave the file as it is."""
    await running.start()
    await promise(running)
    before = (running.path / LIST_FILE).stat().st_mtime_ns
    await promise(running)
    await running.daemon.cycle()
    assert (running.path / LIST_FILE).stat().st_mtime_ns == before
    assert (running.path / LIST_FILE).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in running.path.glob(f".{LIST_FILE}*")] == []
