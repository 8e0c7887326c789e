"""A promise is cancelled by its user or an admin; the job goes on without it."""

import asyncio

import numpy as np
import pytest
from running import ANN, NOW, Running, answer_of

from rtsched.adapters.live import Marks
from rtsched.daemon.questions import Cancel, CancelReport, Explain, NodeList, RefusedError, Status
from rtsched.daemon.store import Store
from rtsched.errors import StoreError
from rtsched.model.jobs import Jobs

BOB = 1002
JOB = 4711


async def promise(running: Running) -> None:
    """Have ann's job promised, and seen in the queue."""
    await running.start()
    await asyncio.to_thread(answer_of, running.asked(nodes=2))
    (record,) = running.daemon.site.promises.values()
    row = running.daemon.site.row(record.id).replace(id=np.array([JOB]))
    marks = Marks.build(1, job=[JOB], uid=[ANN], token=[record.token])
    running.show(queued=row, marks=marks, time=NOW + 1)
    running.now = NOW + 1
    await running.daemon.cycle()
    assert running.states() == ["firm"]


async def test_a_user_cancels_a_promise(running: Running) -> None:
    """It is closed on disk, told and journalled; the job stays, unplanned, and is not judged."""
    await promise(running)
    nodes = await running.ask(NodeList(), BOB)
    assert [node.planned for node in nodes.nodes] == [1, 1, 0, 0]
    assert nodes.nodes[0].next_start is not None
    report = await running.ask(Cancel(str(JOB)), ANN)
    assert isinstance(report, CancelReport)
    assert report.promise.state == "withdrawn"
    assert report.promise.why == "cancelled by its user"
    assert (report.promise.job, report.promise.nodes) == (str(JOB), ())
    site = running.daemon.site
    assert not site.promises
    assert not len(site.snapshot.plan)
    assert site.snapshot.queued.id.tolist() == [JOB]
    assert running.store.find(JOB)[0].state == "withdrawn"
    told = running.system.applied
    await running.daemon.cycle()
    texts = [text for action in told for text in getattr(action, "text", ())]
    assert any("the promise was cancelled by its user" in text for text in texts)
    assert not running.daemon.site.promises
    assert running.daemon.site.snapshot.queued.id.tolist() == [JOB]
    shown = await running.ask(Explain(str(JOB), 5), ANN)
    assert shown.promise.state == "withdrawn"
    assert [verdict.verdict for verdict in shown.verdicts] == ["cancel", "admit"]
    with pytest.raises(RefusedError, match="no promise that could be cancelled") as refused:
        await running.ask(Cancel(str(JOB)), ANN)
    assert refused.value.code == "not-found"


async def test_others_may_not_cancel_it(running: Running) -> None:
    """Another user is told what is told of a job that does not exist; an admin may."""
    await promise(running)
    errors = []
    for job in (str(JOB), "99", "x", "", str(2**62)):
        with pytest.raises(RefusedError) as refused:
            await running.ask(Cancel(job), BOB)
        errors.append((refused.value.code, str(refused.value).replace(repr(job), "JOB")))
    assert len(set(errors)) == 1
    assert running.states() == ["firm"]
    report = await running.ask(Cancel(str(JOB)), 0)
    assert report.promise.why.startswith("cancelled by an admin")
    assert not running.states()


async def test_it_is_cancelled_once(running: Running) -> None:
    """Of two requests at a time one is told that there is nothing left."""
    await promise(running)
    first, second = await asyncio.gather(
        *(running.ask(Cancel(str(JOB)), ANN) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in (first, second)) == [
        "CancelReport",
        "RefusedError",
    ]
    closed = [r for r in running.store.find(JOB) if r.state == "withdrawn"]
    assert len(closed) == 1


async def test_what_cannot_be_written_is_not_cancelled(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk the promise stands as it did, and the user is told so."""

    def full(*_: object) -> None:
        raise StoreError("rtsched.db", "no room")

    await promise(running)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", full)
        with pytest.raises(RefusedError, match="no room"):
            await running.ask(Cancel(str(JOB)), ANN)
    assert running.states() == ["firm"]


async def test_a_dry_run_cancels_nothing(running: Running) -> None:
    """There is no promise."""
    await promise(running)
    running.daemon.dry_run = True
    with pytest.raises(RefusedError, match="dry run"):
        await running.ask(Cancel(str(JOB)), ANN)
    assert running.states() == ["firm"]


async def test_status_says_of_each_job_with_a_deadline_what_is_promised(running: Running) -> None:
    """Open promises, a cancelled one, and a job that was never promised anything; to its user."""
    await promise(running)
    status = await running.ask(Status(), ANN)
    (kept,) = status.promises
    assert (kept.state, status.unpromised) == ("firm", ())
    assert kept.text.startswith("rtsched: promised to end by 20")
    assert kept.text.endswith("on 2 nodes")
    await running.ask(Cancel(str(JOB)), ANN)
    row = running.daemon.site.snapshot.queued
    late = row.replace(id=np.array([JOB + 1]), submit=row.submit + 1)
    free = row.replace(id=np.array([JOB + 2]), deadline=np.array([np.inf]))
    marks = Marks.build(3, job=[JOB, JOB + 1, JOB + 2], uid=[ANN] * 3)
    running.show(queued=Jobs.joined([row, late, free]), marks=marks, time=NOW + 2)
    await running.daemon.cycle()
    status = await running.ask(Status(), ANN)
    assert status.promises == ()
    cancelled, never = status.unpromised
    assert (cancelled.job, cancelled.state) == (str(JOB), "withdrawn")
    assert (cancelled.why, cancelled.text) == ("cancelled by its user", "")
    assert (never.job, never.state) == (str(JOB + 1), "none")
    assert never.deadline == row.deadline[0]
    assert (await running.ask(Status(), BOB)).unpromised == ()
