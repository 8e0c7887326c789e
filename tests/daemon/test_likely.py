"""Likely promises: sold by their odds, beside guaranteed ones, which know nothing of them."""

import asyncio
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from running import NOW, Running, answer_of, even_ends, until
from scene import ANN, BOB, T0, WORDS, Scene

from rtsched.adapters.live import FIRST_OWN_ID, LIKELY, CompletionStatus, Marks, Submission
from rtsched.adapters.slurm.observation import token_of
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.core.chain import Chain, Member
from rtsched.core.hookspecs import hookimpl
from rtsched.daemon.answers import Answers
from rtsched.daemon.chains import Chains
from rtsched.daemon.likely import LikelyController, Odds, odds_of, sold, stated_odds
from rtsched.daemon.promises import OUTCOMES, Promise, StoredState, encode_jobs, encode_schedule
from rtsched.daemon.questions import Explain, Reliability, Status
from rtsched.daemon.recovery import recovered
from rtsched.daemon.settings import DaemonSettings, LikelySettings
from rtsched.daemon.site import renamed
from rtsched.daemon.store import LEARNT_FROM
from rtsched.estimates.calibration import LikelyLevel
from rtsched.model.actions import Notify
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Reason, Verdicts
from rtsched_plugins.mcdf import Mcdf


class Told:
    """Knows when jobs end: half of the time by `median`, more the later; counts the questions."""

    def __init__(self, median: float = T0 + 1000.0, spread: float = 500.0) -> None:
        self.median, self.spread, self.asked = median, spread, 0

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64]:
        """Return the ends of each job."""
        assert timeout_s >= 0
        self.asked += 1
        ends = even_ends(self.median - self.spread, self.median + self.spread)
        return np.tile(ends, (len(jobs), 1))


class Silent:
    """Does not answer in time."""

    async def ends(self, jobs: Jobs, timeout_s: float) -> None:
        """Answer nothing."""
        del jobs, timeout_s


class Unready:
    """Has not estimated anything yet."""

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64]:
        """Answer with no end."""
        del timeout_s
        return np.zeros((len(jobs), 0))


def asks(odds: float = 0.95, uid: int = ANN, deadline: float = T0 + 3600, **columns: Any) -> Any:
    """Return a submission that asks for odds."""
    more = {
        name: columns.pop(name) for name in ("component", "held", "singleton") if name in columns
    }
    edges = columns.pop("edges", Edges.build(0))
    wall = columns.pop("wall_time", 600.0)
    row = Jobs.build(1, deadline=deadline, wall_time=wall, user=["ann"], **columns)
    return Submission(row, edges, uid, odds=odds, **more)


def controller(scene: Scene, likely: LikelySettings | None = None, **more: Any) -> LikelyController:
    """Return who judges on a scene."""
    settings_ = DaemonSettings(**more)
    return LikelyController(scene.chains, settings_, likely or LikelySettings(), WORDS)


def sell(
    scene: Scene, job: Submission, by: LikelyController | None = None, odds: float = 0.97
) -> Any:
    """Judge a job whose odds are known; the site then is the daemon's."""
    judged = (by or controller(scene)).judge(scene.site, job, Odds(odds), T0)
    scene.site = judged.site
    return judged


# --- odds ----------------------------------------------------------------------------------------


UNTAUGHT = LikelyLevel()


@pytest.mark.parametrize("asked", [0.85, 0.9, 0.95, 0.99])
async def test_an_offer_is_a_minute_by_which_it_ends_with_the_odds(asked):
    """Of a job whose deadline is too soon, and of one that is submitted a minute later."""
    source = Told()
    found = await odds_of(source, asks(asked, deadline=T0 + 700), UNTAUGHT, 1.0)
    assert found.known == pytest.approx(0.2)
    assert found.raw == found.known
    exact = source.median + (asked - 0.5) * 1000 + 60
    assert exact <= found.offer < exact + 61
    assert found.offer % 60 == 0
    assert source.asked == 1


@settings(deadline=None, max_examples=200)
@given(
    ends=st.lists(st.floats(60.0, 1e6) | st.just(math.inf), min_size=1, max_size=80),
    asked=st.floats(0.5, 0.999),
    learnt=st.lists(st.tuples(st.sampled_from([0.5, 0.8, 0.9, 0.95]), st.booleans()), max_size=40),
    least=st.sampled_from([0.5, 0.82, 0.95]),
    deadline=st.floats(1.0, 2e6),
)
def test_what_is_offered_is_accepted(ends, asked, learnt, least, deadline):
    """A job that asks for what was offered has those odds, whatever the thresholds have become."""

    class Sorted:
        async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64]:
            del timeout_s
            return np.tile(T0 + np.sort(ends), (len(jobs), 1))

    level = LikelyLevel().learnt(((odds, kept) for odds, kept in learnt))
    found = asyncio.run(odds_of(Sorted(), asks(asked, deadline=T0 + deadline), level, 1.0))
    if math.isfinite(found.offer):
        assert found.offer > T0 + deadline
        again = asyncio.run(odds_of(Sorted(), asks(asked, deadline=found.offer), level, 1.0))
        assert again.known >= asked
    stated = stated_odds(found.raw, level, least)
    if math.isfinite(stated):
        assert stated >= least
        again = asyncio.run(odds_of(Sorted(), asks(stated, deadline=T0 + deadline), level, 1.0))
        assert again.known >= stated


async def test_no_offer_is_looked_for_where_the_deadline_has_the_odds():
    """Nor is there one where the odds are higher than any that are known."""
    found = await odds_of(Told(), asks(0.9), UNTAUGHT, 1.0)
    assert found.known == pytest.approx(1.0, abs=1e-3)
    assert found.offer == math.inf
    high = await odds_of(Told(), asks(0.99999, deadline=T0 + 700), UNTAUGHT, 1.0)
    assert high.offer == math.inf


@pytest.mark.parametrize("source", [None, Silent(), Unready()])
async def test_without_an_estimate_nothing_is_stated(source):
    """Whoever knows nothing, or not in time, or no number: no odds and no offer."""
    found = await odds_of(source, asks(), UNTAUGHT, 1.0)
    assert math.isnan(found.known)
    assert math.isnan(stated_odds(found.raw, UNTAUGHT, 0.8))
    assert found.offer == math.inf


async def test_an_end_beyond_what_is_simulated_is_no_offer():
    """The odds are stated all the same."""
    found = await odds_of(Told(median=math.inf), asks(), UNTAUGHT, 1.0)
    assert found == Odds(0.0, math.inf, 0.0)


async def test_odds_go_by_what_became_of_promises_before():
    """Where all were kept 80 % are enough, and an earlier offer; after breaks not even 96 are."""
    kept = LikelyLevel().learnt([(0.95, True)] * 150)
    broken = LikelyLevel().learnt([(0.95, False)] * 10)
    often, rarely = asks(0.95, deadline=T0 + 1300), asks(0.95, deadline=T0 + 1460)
    assert (await odds_of(Told(), often, UNTAUGHT, 1.0)).known == pytest.approx(0.8)
    assert (await odds_of(Told(), often, kept, 1.0)).known > 0.95
    assert (await odds_of(Told(), rarely, UNTAUGHT, 1.0)).known == pytest.approx(0.96)
    assert (await odds_of(Told(), rarely, broken, 1.0)).known < 0.95
    soon = asks(0.95, deadline=T0 + 510)
    late = (await odds_of(Told(), soon, UNTAUGHT, 1.0)).offer
    early = (await odds_of(Told(), soon, kept, 1.0)).offer
    assert early <= Told().median + 120 < late


# --- verdicts ------------------------------------------------------------------------------------


def test_accepted_with_its_odds(scene):
    """Those asked for are stated, the token is a likely one's, nothing is planned."""
    judged = sell(scene, asks(0.95), odds=0.9999999)
    assert judged.verdict == "admit"
    assert "odds 95 %" in judged.reply.text
    assert "not guaranteed" in judged.reply.text
    assert judged.reply.likely
    assert judged.reply.token.startswith(LIKELY)
    assert judged.reply.size == 0
    (record,) = scene.site.likely.promises.values()
    assert (record.odds, record.state) == (0.95, "provisional")
    assert not scene.site.promises
    assert not len(scene.site.snapshot.plan)


@pytest.mark.parametrize(
    ("job", "likely", "code"),
    [
        (asks(0.5), LikelySettings(), "likely.low"),
        (asks(0.95), LikelySettings(share=0), "likely.off"),
        (
            asks(kind=np.array([Kind.ARRAY], np.int8), tasks=9),
            LikelySettings(),
            "likely.unsuitable",
        ),
        (asks(held=True), LikelySettings(), "likely.unsuitable"),
        (asks(component=True), LikelySettings(), "likely.unsuitable"),
        (asks(edges=Edges.build(1, before=[3])), LikelySettings(), "likely.unsuitable"),
        (asks(wall_time=math.inf), LikelySettings(), "likely.unsuitable"),
        (asks(size=4, wall_time=2000.0), LikelySettings(), "likely.share"),
        (asks(0.99), LikelySettings(), "likely.odds"),
    ],
)
def test_rejected(scene, job, likely, code):
    """Each with its code, and the site as it was."""
    site = scene.site
    judged = sell(scene, job, controller(scene, likely))
    assert (judged.verdict, judged.codes) == ("reject", (code,))
    assert scene.site is site
    assert judged.reply.text.startswith("rtsched: rejected")


def test_a_rejection_states_the_odds_and_a_later_deadline(scene):
    """In one sentence, with how to ask for it."""
    odds = Odds(0.62, T0 + 7200.0)
    judged = controller(scene).judge(scene.site, asks(0.95), odds, T0)
    assert "the odds of ending by this deadline are 62 %, 95 % were asked for" in judged.reply.text
    assert "With odds of 95 %:" in judged.reply.text
    assert f"(--deadline={T0 + 7200:.0f}), not reserved" in judged.reply.text
    assert judged.offer == T0 + 7200.0


async def test_without_an_estimate_as_the_site_says(scene):
    """It is rejected, or let in without a promise; never promised something."""
    judged = controller(scene).judge(scene.site, asks(), Odds(), T0)
    assert (judged.verdict, judged.codes) == ("reject", ("likely.no-estimate",))
    by = controller(scene, LikelySettings(without_estimate="best-effort"))
    judged = by.judge(scene.site, asks(), Odds(), T0)
    assert (judged.verdict, judged.changed) == ("pass", ())
    assert "without a promise" in judged.reply.text


def test_promises_per_user_count_both_kinds(scene):
    """A guaranteed and a likely one are two; another user is not concerned."""
    by = controller(scene, promises_per_user=2)
    scene.submit(size=1, wall_time=60.0, deadline=T0 + 7200)
    assert sell(scene, asks(), by).verdict == "admit"
    assert sell(scene, asks(), by).codes == ("submit.too-many",)
    assert sell(scene, asks(uid=BOB), by).verdict == "admit"


def test_a_guarantee_counts_with_those_with_odds():
    """Whichever of both was first, no second one is given where one is the limit."""
    scene = Scene(promises_per_user=1)
    assert sell(scene, asks(), controller(scene, promises_per_user=1)).verdict == "admit"
    second = scene.submit(size=1, wall_time=60.0, deadline=T0 + 7200)
    assert second.codes == ("submit.too-many",)
    assert len(scene.site.all_promises()) == 1


def test_while_the_plan_is_updated_the_user_submits_again(scene):
    """It is a rejection, and says why."""
    now = controller(scene).later(scene.site)
    assert (now.verdict, now.codes, now.reply.rejected) == ("reject", ("likely.busy",), True)
    assert "the plan is being updated" in now.reply.text


class OfTwo:
    """Turns away jobs of more than two nodes."""

    def __init__(self) -> None:
        self.config = None

    wide = Reason("width.too-wide", "asks for {asked} nodes")

    @hookimpl
    def rtsched_admit(self, jobs: Jobs) -> Verdicts | None:
        """Reject wide jobs."""
        return Verdicts.reject_where(jobs.size > 2, self.wide, asked=jobs.size)


def test_other_plugins_judge_too(scene):
    """What turns jobs away by their width does so with odds; the planner is not asked."""
    scene.chains = Chains(Chain([Member("width", OfTwo()), Member("mcdf", Mcdf())], "mcdf"), ())
    judged = sell(scene, asks(size=3))
    assert (judged.verdict, judged.codes) == ("reject", ("width.too-wide",))
    assert sell(scene, asks(size=2)).verdict == "admit"


def test_in_shadow_nobody_is_promised_anything():
    """Where the plug-ins' answers do not count, neither do odds."""
    scene = Scene(member={"mode": "shadow"})
    assert not controller(scene).wanted(asks())
    assert controller(Scene()).wanted(asks())
    assert not controller(Scene()).wanted(asks(deadline=math.inf))


# --- beside guaranteed promises ------------------------------------------------------------------

jobs = st.lists(
    st.tuples(st.booleans(), st.integers(1, 4), st.integers(1, 9), st.integers(1, 12)), max_size=12
)


@settings(max_examples=40, deadline=None)
@given(jobs, st.sampled_from(["mcdf", "edf", "spare"]))
def test_guaranteed_plans_are_equal_with_and_without_likely_ones(rows, planner):
    """Byte by byte, after each submission and each poll, with the same verdicts."""
    both, alone = Scene(planner=planner), Scene(planner=planner)
    numbers = itertools.count(10)
    shown: list[tuple[int, str]] = []
    guaranteed: list[tuple[int, str, str]] = []
    for is_likely, size, hundreds, slack in rows:
        wall, deadline = 100.0 * hundreds, T0 + 1 + 100.0 * hundreds * slack
        if is_likely:
            given_ = sell(both, asks(size=size, wall_time=wall, deadline=deadline))
            if given_.verdict == "admit":
                shown.append((next(numbers), given_.reply.token))
            continue
        first = both.submit(size=size, wall_time=wall, deadline=deadline)
        second = alone.submit(size=size, wall_time=wall, deadline=deadline)
        assert (first.verdict, first.reply.text) == (second.verdict, second.reply.text)
        if first.verdict == "admit":
            guaranteed.append((next(numbers), first.reply.token, second.reply.token))
        same_plans(both, alone)
    one = tuple((job, token) for job, token, _ in guaranteed)
    other = tuple((job, token) for job, _, token in guaranteed)
    both.poll(T0 + 1, one + tuple(shown))
    alone.poll(T0 + 1, other)
    same_plans(both, alone)
    assert {r.state for r in both.site.likely.promises.values()} <= {"firm"}


def same_plans(both: Scene, alone: Scene) -> None:
    """Assert that two scenes have the same plan; own ids count likely promises, too."""
    plans = [scene.site.snapshot.plan for scene in (both, alone)]
    ranked = [renamed(plan, ranks(plan)) for plan in plans]
    assert encode_schedule(ranked[0]) == encode_schedule(ranked[1])


def ranks(plan: Schedule) -> dict[int, int]:
    """Return small numbers in place of our own ids, in the same order."""
    own = sorted(job for job in plan.entries.job.tolist() if job >= FIRST_OWN_ID)
    return {job: 1000 + at for at, job in enumerate(own)}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 40)), max_size=20),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_the_share_is_never_exceeded(rows, share):
    """Whatever is asked for, what was sold takes no more than that of the nodes until the end."""
    scene = Scene()
    by = controller(scene, LikelySettings(share=share))
    taken, latest = 0.0, T0
    for size, hundreds, ahead in rows:
        wall, deadline = 100.0 * hundreds, T0 + 100.0 * ahead
        judged = sell(scene, asks(size=size, wall_time=wall, deadline=deadline), by)
        if judged.verdict == "admit":
            taken, latest = taken + size * wall, max(latest, deadline)
        assert taken <= share * 4 * (latest - T0) + 1e-6
        assert sold(scene.site, Jobs.build(0), T0) <= share + 1e-9


# --- what becomes of them ------------------------------------------------------------------------


def ended(end: float, how: CompletionStatus = CompletionStatus.COMPLETED) -> tuple[Scene, Any]:
    """Return a scene in which the job of a likely promise ended, by a deadline at T0 + 3600."""
    scene = Scene()
    token = sell(scene, asks()).reply.token
    scene.poll(T0 + 1, ((10, token),))
    scene.poll(T0 + 5, running=((10, token, T0 + 2, T0 + 602, (0,)),))
    return scene, scene.poll(T0 + 4000, completions=((10, end, how),))


@pytest.mark.parametrize(
    ("end", "how", "state"),
    [
        (T0 + 600, CompletionStatus.COMPLETED, "kept"),
        (T0 + 3700, CompletionStatus.COMPLETED, "missed"),
        (T0 + 600, CompletionStatus.FAILED, "withdrawn"),
        (T0 + 600, CompletionStatus.OWN_LIMIT, "own-limit"),
        (T0 + 600, CompletionStatus.NODE_LOST, "missed"),
    ],
)
def test_closed_by_the_real_end(end, how, state):
    """As guaranteed promises are."""
    scene, settled = ended(end, how)
    (record,) = (r for r in settled.changed if r.odds is not None)
    assert (record.state, record.id, record.odds) == (state, 10, 0.95)
    assert not len(scene.site.likely)
    assert not len(scene.site.likely.requested)
    learnt = UNTAUGHT.learnt([(0.95, state == "kept")] if state in OUTCOMES else [])
    assert scene.site.likely.level == learnt


def test_those_given_since_an_estimate(scene):
    """By when they were made; those that are over are not among them."""
    token = sell(scene, asks()).reply.token
    (made,) = (record.made_at for record in scene.site.likely.promises.values())
    given = scene.site.likely.given_since(made)
    assert given.size.tolist() == scene.site.likely.requested.size.tolist()
    assert not len(scene.site.likely.given_since(made + 0.001))
    scene.poll(T0 + 1, ((10, token),))
    assert scene.site.likely.given_since(made).id.tolist() == [10]
    scene.poll(T0 + 3601, ((10, token),))
    assert not len(scene.site.likely.given_since(made))


def test_a_job_that_waits_at_its_deadline_is_broken_and_told(scene):
    """Its user reads of it, with the odds; the job goes on."""
    token = sell(scene, asks()).reply.token
    scene.poll(T0 + 1, ((10, token),))
    settled = scene.poll(T0 + 3599, ((10, token),))
    assert not settled.changed
    settled = scene.poll(T0 + 3601, ((10, token),))
    (record,) = settled.changed
    assert record.state == "broken"
    (tell,) = (action for action in settled.actions if isinstance(action, Notify))
    assert tell.job.tolist() == [10]
    assert "the likely promise (odds 95 %)" in tell.text[0]


def test_a_job_that_runs_past_its_deadline_is_missed_when_it_ends(scene):
    """Not before: it may have ended in time, unseen."""
    token = sell(scene, asks()).reply.token
    scene.poll(T0 + 1, ((10, token),))
    settled = scene.poll(T0 + 3700, running=((10, token, T0 + 2, T0 + 4000, (0,)),))
    assert not settled.changed
    settled = scene.poll(T0 + 3701, completions=((10, T0 + 3650, CompletionStatus.COMPLETED),))
    assert [record.state for record in settled.changed] == ["missed"]
    assert scene.site.likely.level.threshold(0.95) > 0.95


def test_a_job_that_its_user_holds_has_no_promise(scene):
    """The odds were of a job that may start."""
    token = sell(scene, asks()).reply.token
    scene.poll(T0 + 1, ((10, token),))
    settled = scene.poll(T0 + 2, ((10, token),), held=(10,))
    assert [(r.state, r.why) for r in settled.changed] == [("void", "it is held")]


def test_one_that_never_appears_lapses_and_counts_as_unused(scene):
    """As with sbatch --test-only; after so many of them the user gets none for a while."""
    by = controller(scene, unused_promises_per_hour=1)
    sell(scene, asks(), by)
    settled = scene.poll(T0 + 70)
    assert [record.state for record in settled.changed] == ["lapsed"]
    assert by.judge(scene.site, asks(), Odds(0.99), T0 + 71).codes == ("submit.unused",)


def test_they_survive_a_restart(scene):
    """Open ones come back apart from guaranteed ones, and new ids are above theirs."""
    first = sell(scene, asks()).changed[0]
    second = scene.submit(size=1, wall_time=60.0, deadline=T0 + 7200).changed[0]
    outcomes = ((0.95, True), (0.95, False), (0.9, True))
    stored = StoredState((first, second), scene.site.snapshot.plan, 3, {}, likely_outcomes=outcomes)
    site = recovered(stored)
    assert site.likely.level == UNTAUGHT.learnt(outcomes)
    assert list(site.likely.promises) == [first.id]
    assert list(site.promises) == [second.id]
    assert site.likely.requested.deadline.tolist() == [T0 + 3600]
    assert site.next_id == max(first.id, second.id) + 1
    assert site.snapshot.promises.job.tolist() == [second.id]


def test_a_reused_number_is_no_kept_promise(scene):
    """A controller that lost its state gives the number to somebody else's job."""
    token = sell(scene, asks()).reply.token
    scene.poll(T0 + 1, ((10, token),))
    settled = scene.poll(T0 + 2, ((10, ""),), uid=BOB)
    assert [record.state for record in settled.changed] == ["unknown"]


# --- a daemon ------------------------------------------------------------------------------------


async def answered(running: Running, extra: str, **asked: Any) -> dict[int, int | str]:
    """Return what a filter reads that asks a daemon about one job."""
    await running.start()
    line = running.asked(extra=extra, **asked)
    return (await asyncio.to_thread(answer_of, line))[1]


async def test_the_filter_takes_the_deadline_from_slurm(running):
    """Slurm would give the job up by its time limit; what it stands by is in our record."""
    running.daemon.odds = Told(median=NOW)
    fields = await answered(running, "rtsched:odds=95,notify=none")
    assert fields[Tag.VERDICT] == ACCEPT
    assert fields[Tag.DEADLINE] == 0
    assert fields[Tag.ADMIN_COMMENT].startswith(f"rtsched:{LIKELY}")
    assert not {Tag.SHARED, Tag.MIN_NODES, Tag.PRIORITY, Tag.REQ_NODES} & fields.keys()
    (record,) = running.store.open_promises()
    assert (record.odds, record.notify, record.state) == (0.95, "none", "provisional")
    assert not running.daemon.site.promises


async def test_without_the_process_it_is_rejected(running):
    """In one sentence, and nothing is written down."""
    fields = await answered(running, "rtsched:odds=95")
    assert fields[Tag.VERDICT] == REJECT
    assert "no odds can be stated" in fields[Tag.MESSAGE]
    assert not running.store.open_promises()


@pytest.mark.parametrize("word", ["0", "100", "nan", "95%", "-3", "1e9", ""])
async def test_odds_that_are_none(running, word):
    """They are rejected in one sentence."""
    running.daemon.odds = Told(median=NOW)
    fields = await answered(running, f"rtsched:odds={word}")
    assert fields[Tag.VERDICT] == REJECT
    assert "must be a percentage above 0 and below 100" in fields[Tag.MESSAGE]


async def test_its_user_sees_and_cancels_it(running):
    """Status and explain show its odds; once cancelled it is no promise, and no metric's miss."""
    running.daemon.odds = Told(median=NOW)
    await running.start()
    _, fields = await asyncio.to_thread(answer_of, running.asked(extra="rtsched:odds=95"))
    token = token_of(str(fields[Tag.ADMIN_COMMENT]))
    (record,) = running.daemon.site.likely.promises.values()
    row = running.daemon.site.likely.requested.replace(id=np.array([7]))
    marks = Marks.build(1, job=[7], uid=[ANN], token=[token])
    running.show(queued=row, marks=marks, time=NOW + 1)
    await running.daemon.cycle()
    reader = await asyncio.to_thread(running.queries.reader, ANN)
    (promise,) = reader.report(Status()).promises
    assert (promise.job, promise.odds, promise.state) == ("7", 0.95, "firm")
    assert reader.report(Explain("7")).promise.odds == 0.95
    assert running.store.counts() == {"likely firm": 1}
    closed = await running.daemon.cancel(running.daemon.site.likely.promises[7], "its user")
    assert (closed.state, closed.odds) == ("withdrawn", record.odds)
    assert not running.daemon.site.likely
    assert running.store.counts() == {"likely withdrawn": 1}
    text = running.daemon.metrics.text()
    assert 'rtsched_likely_promises_total{outcome="withdrawn",stated="95"} 1.0' in text
    assert 'rtsched_promise_changes_total{standing="withdrawn"} 0.0' in text


def test_a_user_may_not_change_the_job(running):
    """Its time limit and its word stay; the odds were of the job as it is."""
    running.daemon.odds = Told(median=NOW)
    asyncio.run(answered(running, "rtsched:odds=95"))
    (record,) = running.daemon.site.likely.promises.values()
    fields = {Tag.JOB_ID: record.id, Tag.TIME_LIMIT: 999}
    result, _ = Answers(running.daemon)._modification(fields)
    assert result == "reject"


async def test_what_nobody_read_is_withdrawn(running):
    """The filter did not wait: the likely promise is closed, and sold again."""
    running.daemon.odds = Told(median=NOW)
    await answered(running, "rtsched:odds=95")
    (record,) = running.daemon.site.likely.promises.values()
    running.daemon.withdraw([record.token])
    await until(lambda: not running.daemon.site.likely)
    assert running.store.counts() == {"likely lapsed": 1}


def test_the_record_of_the_past(running):
    """Stated odds and what was kept, of all users, by the odds; others are not in it."""
    job = encode_jobs(Jobs.build(1))

    def closed(number: int, state: str, odds: float | None) -> Promise:
        return Promise(f"t{number}", number, ANN, "ann", NOW, NOW, state, NOW, "", job, odds=odds)

    rows = [closed(n, "kept", 0.95) for n in range(19)]
    rows += [closed(19, "missed", 0.9501), closed(20, "broken", 0.8), closed(21, "kept", None)]
    rows += [closed(22, "withdrawn", 0.95), closed(23, "firm", 0.95)]
    running.store.commit(rows, None, 1)
    found = running.queries.reader(ANN).report(Reliability())
    assert [(each.odds, each.promises, each.kept) for each in found.stated] == [
        (0.8, 1, 0),
        (0.95, 20, 19),
    ]
    latest = (*[(0.95, True)] * 19, (0.9501, False), (0.8, False))
    assert sorted(running.store.load().likely_outcomes) == sorted(latest)


def test_a_daemon_that_starts_learns_from_the_latest_outcomes(running):
    """In their order, and from no more than a bounded number of them."""
    job = encode_jobs(Jobs.build(1))
    rows = [
        Promise(
            f"t{n}", n, ANN, "ann", NOW, NOW, "kept" if n % 7 else "broken", NOW + n, "", job,
            odds=0.95,
        )
        for n in range(LEARNT_FROM + 5)
    ]  # fmt: skip
    running.store.commit(rows[::-1], None, 1)
    found = running.store.load().likely_outcomes
    assert found == tuple((0.95, n % 7 > 0) for n in range(5, LEARNT_FROM + 5))
