"""The daemon: one asyncio loop that reads and answers, and a cycle beside it.

Submissions are evaluated from memory, in a thread: the loop waits for none of them.
A poll of the batch system comes from a process of its own. What it means is worked out in a thread,
from a site that nobody changes; a submission that is judged meanwhile makes another site, and then
the cycle is worked out again, with fewer deferred jobs to judge. So a promise is never overwritten.
A cycle that has been overtaken several times must end all the same: during its last attempt nothing
is promised. Who asks for a promise then waits for a moment, and else is judged in the next cycle.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING

import msgspec
import structlog

from rtsched.daemon import messages
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.chains import NOT_FOLLOWED, ConfigReloader
from rtsched.daemon.cycle import CycleRules, Steered, after_poll, steered
from rtsched.daemon.deferred import AT_A_TIME, with_kept
from rtsched.daemon.likely import fallen
from rtsched.daemon.messages import Wording
from rtsched.daemon.metrics import LoopLag
from rtsched.daemon.promises import TOKEN, JournalEntry, decode_jobs, lines_of
from rtsched.daemon.questions import RefusedError
from rtsched.daemon.recovery import CompletionLookup, recovered, states_to_store
from rtsched.daemon.restarting import RestartPolicy
from rtsched.daemon.user_limits import kept_for_nothing
from rtsched.daemon.warming import keep_loaded, rehearse, warm_up
from rtsched.errors import RtschedError, StoreError
from rtsched.model.actions import Notify
from rtsched.model.snapshot import places
from rtsched.model.state import NO_EVENTS, joined
from rtsched.model.units import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rtsched.adapters.live import Change, Done, Observation, Translator
    from rtsched.core.chain import Chain
    from rtsched.daemon.chains import Chains
    from rtsched.daemon.estimating import Estimating
    from rtsched.daemon.likely import OddsSource
    from rtsched.daemon.menu import Menu
    from rtsched.daemon.metrics import Metrics
    from rtsched.daemon.promises import Promise, PromisedJobs
    from rtsched.daemon.questions import Peer
    from rtsched.daemon.server import SocketServer
    from rtsched.daemon.settings import LiveSite
    from rtsched.daemon.site import Site, Step
    from rtsched.daemon.store import Store
    from rtsched.daemon.worker import Worker
    from rtsched.model.actions import Action

log = structlog.get_logger(__name__)

ATTEMPTS = 4
"""Times that a cycle is worked out at most; during the last time nothing is promised."""

LEAST = 8
"""Deferred jobs judged in the last attempts; each attempt judges an eighth of the one before."""

PARTS = ("look", "settle", "reserve", "steer", "apply")
"""Of a cycle, in their order, as they stand in the log."""

SOON = 0.05
"""Seconds between two cycles at the least."""

IN_QUEUE = 0.2
"""Seconds after an answer at which the job is in the batch system's queue."""

UNREAD = "the submit filter did not wait for the answer"
"""Why a promise or an offer lapsed that nobody was told of."""

SAVED = 30.0
"""Seconds between two times at which the plug-ins' states are written down."""


LAST_ANSWERS = 1.0
"""Seconds that a daemon which ends waits for the answers under way."""


@dataclass(frozen=True)
class PluginChains:
    """The plug-ins as configured, once each for submissions, for cycles and for users' questions.

    Plug-ins keep what they prepared for their last question, so one that is asked by two threads
    would prepare everything anew each time. `at_start`: names of settings that differ in the
    site.toml and take effect at the next start.
    """

    live: LiveSite
    submits: Chains
    cycles: Chains
    queries: Chains
    at_start: Sequence[str] = ()

    @property
    def not_followed(self) -> str:
        """What of the site.toml does not take effect, in a sentence; empty: all does."""
        return NOT_FOLLOWED.format(", ".join(self.at_start)) if self.at_start else ""

    def chains(self) -> list[Chain]:
        """Return all chains, for their hook metrics."""
        return [*self.submits.all(), *self.cycles.all(), *self.queries.all()]


def wording_of(translator: Translator) -> Wording:
    """Return how a batch system's users are spoken to."""
    return Wording(
        translator.asking, translator.name_of, translator.afterwards, translator.beginning
    )


def rules_of(policy: PluginChains, wording: Wording, dry_run: bool = False) -> CycleRules:
    """Return what cycles are worked out by."""
    daemon, cycles = policy.live.daemon, policy.cycles
    young = 2 * daemon.cycle + 5.0 if daemon.late_starters == "requeue" else 0.0
    admission = AdmissionController(cycles, daemon, wording)
    restart_policy = RestartPolicy(frozenset(daemon.restart_exit_codes), daemon.restarts)
    return CycleRules(cycles, cycles.planner_alone, young, admission, dry_run, restart_policy)


@dataclass
class DaemonStatus:
    """What the daemon tells of itself."""

    started: float
    last_cycle_s: float = 0.0
    problem: str = ""
    problems: tuple[str, ...] = ()


class Daemon:
    """Keeps promises, and steers the batch system.

    Parameters
    ----------
    policy : PluginChains
        Settings and plug-ins.
    store : Store
        Where promises are written down.
    worker : Worker
        The process that talks to the batch system.
    translator : Translator
        Between its words and the models.
    metrics : Metrics
        What is counted.
    reread : callable
        Returns the policy as the site.toml now says it.
    dry_run : bool
        Judge and plan, and touch nothing: no promise is given, nothing is applied.
    promised : PromisedJobs or None
        The list for a submit filter that can tell promised jobs by nothing else.
    estimating : Estimating or None
        Start estimates; None: there are none.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        policy: PluginChains,
        store: Store,
        worker: Worker,
        translator: Translator,
        metrics: Metrics,
        *,
        reread: Callable[[], PluginChains],
        dry_run: bool = False,
        promised: PromisedJobs | None = None,
        estimating: Estimating | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy, self.store, self.worker = policy, store, worker
        self.translator, self.metrics = translator, metrics
        self.wording = wording_of(translator)
        self.reread, self.dry_run, self.clock = reread, dry_run, clock
        self.promised = promised
        self.estimating = estimating
        self.site: Site = recovered(store.load())
        self.menus: dict[int, Menu] = {}
        self.steered: Steered | None = None
        self.pending: Sequence[Change] = ()
        self.odds: OddsSource | None = estimating
        if estimating is not None:
            estimating.promised = lambda: self.site.likely
        self.peers: Callable[[], tuple[Peer, ...]] = tuple
        self.status = DaemonStatus(clock())
        self._completion_lookup = CompletionLookup(worker.find_completions, metrics.lookup_failed)
        self.lag = LoopLag(metrics.lagged)
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self.site_lock, self.last_attempt = asyncio.Lock(), False
        self._withdrawing = set[asyncio.Task[None]]()
        self._unreported = NO_EVENTS
        self._unwritten: tuple[Promise, ...] = ()
        self._write_problem = self._damage = self._lost_store = self._orphans = ""
        self.filter_problem = ""
        self._renewed, self._looked_for_orphans = (-math.inf, ""), False
        self._planning_problems: tuple[str, ...] = ()
        self._pending_notices: dict[int, str] = {}
        self.reloader = ConfigReloader(self._reread, self._follow)
        self.signalled = False
        self._saved = -float("inf")

    async def commit(self, site: Site, changed: Sequence[Promise]) -> None:
        """Take in a site with a new promise or offer, and have the next cycle come soon.

        The caller holds `site_lock`, until the change is on the disk.

        Raises
        ------
        StoreError
            If it cannot be written down; then nothing is promised.
        """
        try:
            await self._adopt(site, changed)
        except StoreError:
            self._wake.set()  # the next cycle may have a file again
            raise
        for promise in changed:
            if self.promised is not None and promise.state == "provisional":
                self.promised.add(promise.uid)
        self._wake.set()

    def poll_soon(self) -> None:
        """Have the next poll come as soon as what is just being submitted is in the queue."""
        asyncio.get_running_loop().call_later(IN_QUEUE, self._wake.set)

    def withdraw(self, tokens: Collection[str]) -> None:
        """Withdraw promises and offers that nobody was told of; they count against nobody."""
        task = asyncio.get_running_loop().create_task(self._withdraw(tokens))
        self._withdrawing.add(task)
        task.add_done_callback(self._withdrawing.discard)

    async def _withdraw(self, tokens: Collection[str]) -> None:
        async with self.site_lock:
            now, site = self.clock(), self.site
            gone = [r for r in site.all_promises() if r.token in tokens and r.state != "firm"]
            if not gone:
                return
            ids = [promise.id for promise in gone]
            after = replace(
                site.without(set(ids) & site.promises.keys()), likely=site.likely.without(ids)
            )
            closed = [
                msgspec.structs.replace(
                    r, state="lapsed", why=UNREAD, changed_at=now, expires=math.inf
                )
                for r in gone
            ]
            await self._adopt_anyway(after, closed)
        self._wake.set()

    async def cancel(self, promise: Promise, by: str) -> Promise:
        """Close the firm promise of a job, which goes on as best effort; return how it was closed.

        Parameters
        ----------
        promise : Promise
            The promise as it was seen.
        by : str
            Who cancels it.

        Raises
        ------
        RefusedError
            If it was closed meanwhile.
        StoreError
            If that cannot be written down; then it stands as it was.
        """
        async with self.site_lock:
            now, site = self.clock(), self.site
            present = site.promise_of(promise.id)
            if present is None or present.token != promise.token or present.state != "firm":
                raise RefusedError("the promise was closed a moment ago", "not-found")
            name = decode_jobs(present.job).texts("name")
            closed = msgspec.structs.replace(
                present,
                state="withdrawn",
                why=f"cancelled by {by}",
                changed_at=now,
                expires=math.inf,
            )
            if present.odds is None:
                after = site.released(promise.id)
                if by == messages.ITS_USER and promise.id not in site.snapshot.running.id:
                    after = after.cancelled(kept_for_nothing(site, [present]), now)
            else:
                after = replace(site, likely=site.likely.without([promise.id]))
            await self._adopt(after, [closed])
            text = messages.cancelled(by)
            self._pending_notices[promise.id] = text
        job, title = self.translator.name_of(promise.id), (name[0] if name else None) or ""
        self.store.note(
            JournalEntry(now, promise.uid, job, title, "cancel", (), text, token=promise.token)
        )
        self._wake.set()
        return closed

    async def _adopt(self, site: Site, changed: Sequence[Promise]) -> None:
        """Write down, beside the loop, what changed; then, and only then, it is so."""
        new, promises = site.snapshot, (*self._unwritten, *changed)
        await asyncio.to_thread(
            self.store.commit, promises, new.plan, new.version, new.cluster.nodes, site.unused
        )
        self._unwritten, self._write_problem = (), ""
        before, self.site = self.site, site
        for promise in changed:
            known = before.promise_of(promise.id)
            if known is None or known.state != promise.state:
                self.metrics.changed(promise)
            level = log.warning if promise.state in {"broken", "missed"} else log.info
            level("promise_changed", job=promise.id, state=promise.state, why=promise.why)

    async def _adopt_anyway(self, site: Site, changed: Sequence[Promise]) -> None:
        """Take in a site that is so whether or not it can be written down.

        What cannot be written down now is written with the next commit.
        """
        try:
            await self._adopt(site, changed)
        except StoreError as error:
            self._unwritten = (*self._unwritten, *changed)
            self.site, self._write_problem = site, str(error)
            log.error("promises_not_written", error=str(error), promises=len(self._unwritten))

    # --- cycles --------------------------------------------------------------------------------

    async def cycle(self) -> None:
        """Look, settle what the poll means for the promises, and have the rest done."""
        at = [time.perf_counter()]
        self._wake.clear()
        await self._keep_store()
        observation = await self._completion_lookup(self.site, await self.worker.poll())
        await self._find_orphans(observation)
        at.append(time.perf_counter())
        settled = await self._settle(observation)
        await self._list_promised()
        at.append(time.perf_counter())
        self._unreported = joined([self._unreported, settled.events])
        self._report_planning(settled.problems)
        first, dones = await self._keep(settled.actions)
        await self._note_kept(dones, observation.keeps_after)
        at.append(time.perf_counter())
        rules = self._rules(self.policy)
        result = await asyncio.to_thread(
            steered, settled.site, self._unreported, rules, self.clock()
        )
        self._unreported = NO_EVENTS
        async with self.site_lock:
            snapshot = replace(self.site.snapshot, states=dict(result.states))
            self.site = replace(self.site, snapshot=snapshot)
        self.steered = result
        at.append(time.perf_counter())
        second, _ = await self._apply(result.actions)
        self.pending = (*first, *second)
        if self.estimating is not None:
            await self.estimating.follow(self.site, result, observation.completions)
        await self._save()
        self._finished([*at, time.perf_counter()], observation)

    async def _note_kept(self, dones: Sequence[Done], keeps_after: float) -> None:
        """Have the nodes that are kept for held jobs from now on looked at again, some seconds on.

        The poll then shows whether they are free still.
        """
        async with self.site_lock:
            before, self.site = self.site, with_kept(self.site, dones, self.clock())
        after = self.site.secured
        if any(after[job].since < one.since for job, one in before.secured.items()):
            asyncio.get_running_loop().call_later(keeps_after, self._wake.set)

    async def _keep_store(self) -> None:
        """Make the database again where its file was removed or damaged, from what is known."""
        found = await asyncio.to_thread(self.store.damage)
        self._lost_store = ""
        if not found:
            return
        async with self.site_lock:
            site, now = self.site, self.clock()
            new = site.snapshot
            try:
                whole = await asyncio.to_thread(self.store.renew, f"damaged-{now:.0f}")
                await asyncio.to_thread(
                    self.store.commit,
                    (*site.all_promises(), *self._unwritten),
                    new.plan,
                    new.version,
                    new.cluster.nodes,
                    site.unused,
                )
            except StoreError as error:
                self._lost_store = messages.store_lost(str(self.store.path), found)
                log.error("database_lost", found=found, error=str(error))
                return
            self._unwritten, self._write_problem = (), ""
        self._renewed = now, messages.store_renewed(str(self.store.path), found, now, whole)
        self.metrics.store_renewed()
        log.error(
            "database_made_again", found=found, whole=whole, promises=len(site.all_promises())
        )
        await self._save(at_once=True)

    async def _find_orphans(self, observation: Observation) -> None:
        """At the first poll: find waiting jobs with a promise of which the database knows nothing.

        They are evaluated anew, as they wait in the queue.
        """
        if self._looked_for_orphans or self.dry_run:
            return
        self._looked_for_orphans = True
        await self._find_tried(observation)
        marks, waits = observation.marks, set(observation.queued.id.tolist())
        tokens = {
            token: job
            for token, job in zip(marks.texts("token"), marks.job.tolist(), strict=True)
            if token and job in waits and TOKEN.fullmatch(token)
        }
        known = await asyncio.to_thread(self.store.known, tokens) if tokens else set()
        orphans = {job: token for token, job in tokens.items() if token not in known}
        if not orphans:
            return
        async with self.site_lock:
            before = self.site.waiting_job
            self.site = self.site.with_waiting(
                {job: before(job)._replace(orphan=token) for job, token in orphans.items()}
            )
        names = [self.translator.name_of(job) for job in sorted(orphans)]
        self._orphans = messages.orphans(names)
        log.error("promises_not_known", jobs=names[:20], count=len(names))

    async def _find_tried(self, observation: Observation) -> None:
        """Find waiting jobs without a promise that had one before: they are evaluated no more."""
        jobs = observation.marks.job[observation.marks.unpromised]
        if not len(jobs):
            return
        place, waits = places(observation.queued.id, jobs)
        submit = dict(
            zip(jobs[waits].tolist(), observation.queued.submit[place[waits]].tolist(), strict=True)
        )
        closed = await asyncio.to_thread(self.store.latest, list(submit))
        had = [job for job, promise in closed.items() if promise.made_at >= submit[job]]
        async with self.site_lock:
            before = self.site.waiting_job
            self.site = self.site.with_waiting(
                {job: before(job)._replace(tried=math.inf) for job in had}
            )

    async def _list_promised(self) -> None:
        if self.promised is not None:
            lines = await asyncio.to_thread(lines_of, self.site)
            self.promised.update(lines, self.site)  # not in the thread: it has what came meanwhile

    def _report_planning(self, problems: tuple[str, ...]) -> None:
        """Report what the planner could not do in a cycle; a problem that lasts is logged once."""
        if problems:
            self.metrics.planning_failed()
        for problem in problems:
            if problem not in self._planning_problems:
                log.error("planning_failed", problem=problem)
        self._planning_problems = problems

    def reload(self) -> None:
        """Begin to take in a changed site.toml."""
        self.reloader.begin()

    def _follow(self, policy: PluginChains) -> str:
        self.policy = policy
        if self.estimating is not None:
            self.estimating.follow_settings(policy.live)
        return policy.not_followed

    def problems(self) -> tuple[str, ...]:
        """Return all that is wrong, one sentence each."""
        status = self.status
        return (*filter(None, (status.problem, self.reloader.problem)), *status.problems)

    def _reread(self) -> PluginChains:
        policy = self.reread()
        warm_up(policy, self._rules(policy))
        return policy

    def _finished(self, at: Sequence[float], observation: Observation) -> None:
        status, seconds = self.status, at[-1] - at[0]
        parts = zip(
            PARTS, (round(after - before, 4) for before, after in pairwise(at)), strict=True
        )
        log.debug("cycle_done", **dict(parts))
        status.last_cycle_s, status.problem = seconds, ""
        listing = self.promised.problem if self.promised is not None else ""
        renewed = self._renewed[1] if self.clock() < self._renewed[0] + DAY else ""
        store = (self._damage, self._lost_store, renewed, self._write_problem, self._orphans)
        own = [problem for problem in (*store, listing, self.filter_problem) if problem]
        status.problems = (*own, *self._planning_problems, *observation.problems)
        below = self.policy.live.likely.warn_below
        count = 0
        if self.estimating is not None:
            count = fallen(self.site.likely, self.estimating.latest, below)
        self.metrics.cycle_done(seconds, self.site, count)

    def _rules(self, policy: PluginChains) -> CycleRules:
        return rules_of(policy, self.wording, self.dry_run)

    async def _settle(self, observation: Observation) -> Step:
        """Work out in a thread what a poll means, until no submission comes in between."""
        for attempt in range(ATTEMPTS - 1):
            site = self.site
            settled = await self._settled(observation, max(AT_A_TIME >> 3 * attempt, LEAST))
            async with self.site_lock:
                if self.site is site:
                    return await self._take_in(settled, observation)
        async with self.site_lock:
            self.last_attempt = True
            try:
                return await self._take_in(await self._settled(observation, LEAST), observation)
            finally:
                self.last_attempt = False

    async def _settled(self, observation: Observation, deferred: int) -> Step:
        return await asyncio.to_thread(
            after_poll, self.site, observation, self._rules(self.policy), self.clock(), deferred
        )

    async def _take_in(self, settled: Step, observation: Observation) -> Step:
        """Take in what a cycle came to, and return it; the site must be the one it began with.

        Where new promises to held jobs cannot be written down, these jobs stay held.
        """
        known = {promise.token for promise in self.site.all_promises()}
        if any(r.state == "firm" and r.token not in known for r in settled.changed):
            try:
                await self._adopt(settled.site, settled.changed)
            except StoreError as error:
                self._write_problem = str(error)
                log.error("held_jobs_not_promised", error=self._write_problem)
                settled = await self._settled(observation, 0)
            else:
                self._note(settled)
                return settled
        moved = settled.site.snapshot.version != self.site.snapshot.version
        self._note(settled)
        if settled.changed or moved or self._unwritten:
            await self._adopt_anyway(settled.site, settled.changed)
        else:
            self.site = settled.site
        return settled

    def _note(self, settled: Step) -> None:
        for decision in settled.journal:
            self.store.note(decision)

    async def _apply(self, actions: Sequence[Action]) -> tuple[Sequence[Change], Sequence[Done]]:
        """Have actions carried out; return the changes that they came to, and their outcomes.

        Raises
        ------
        StoreError
            If the daemon of another host took over; then nothing is done.
        """
        await asyncio.to_thread(self.store.confirm)
        changes, dones = await self.worker.apply(actions, self.dry_run)
        for done in dones:
            self._report(done)
        return changes, dones

    async def _keep(self, actions: Sequence[Action]) -> tuple[Sequence[Change], Sequence[Done]]:
        """Have done what the promises ask for; whom it could not tell is told the next time."""
        whole = self._with_notices(actions)
        given = dict(self._pending_notices)
        changes, dones = await self._apply(whole)
        again = {d.change.job for d in dones if d.change.kind == "tell" and d.outcome == "failed"}
        self._pending_notices = {  # with what has come since
            job: text
            for job, text in self._pending_notices.items()
            if job in again or given.get(job) != text
        }
        return changes, dones

    def _with_notices(self, actions: Sequence[Action]) -> list[Action]:
        """Return the actions, with what users could not be told before."""
        others = [action for action in actions if not isinstance(action, Notify)]
        for action in actions:
            if isinstance(action, Notify):
                self._pending_notices |= dict(zip(action.job.tolist(), action.text, strict=True))
        return [*others, *Notify.of(self._pending_notices)]

    def _report(self, done: Done) -> None:
        self.metrics.applied(done)
        if done.outcome == "done":
            log.info("change_made", kind=done.change.kind, job=done.change.job)
            return
        log.warning(
            "change_not_made",
            kind=done.change.kind,
            job=done.change.job,
            change=done.change.text,
            outcome=done.outcome,
            answer=done.text,
        )

    async def _save(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if self.dry_run or (now - self._saved < SAVED and not at_once):
            return
        observes = bool(self.policy.cycles.chain.asks("observe"))
        site = self.site
        oldest = self.clock() - self.policy.live.daemon.history_days * DAY

        def save() -> None:
            self.store.save_states(states_to_store(site, observes))
            self.store.tidy(oldest)

        await asyncio.to_thread(save)
        self._saved = now

    # --- life ----------------------------------------------------------------------------------

    async def run(
        self,
        servers: Sequence[tuple[SocketServer, str | None]],
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Look once, listen, call `ready`, and go on until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        try:
            await asyncio.to_thread(warm_up, self.policy, self._rules(self.policy))
            await asyncio.to_thread(keep_loaded)
            if self.estimating is not None:
                self.estimating.start()
            await self._try_cycle()
            if self.site.facts is not None:
                asked = self.site, self.policy, self.translator, self.wording, self.clock()
                await asyncio.to_thread(rehearse, *asked)
            self.lag.start()
            for server, group in servers:
                await server.listen(group)
            ready()
            log.info("daemon_started", promises=len(self.site.promises), dry_run=self.dry_run)
            if not self.store.checked:
                Thread(target=self._check_database, name="database check", daemon=True).start()
            while not self._stop.is_set():
                await self._wait()
                if not self._stop.is_set():
                    await self._try_cycle()
        finally:
            self.lag.stop()
            for server, _ in servers:
                server.close()
            for server, _ in servers:  # what is being committed is answered, or withdrawn
                await server.answered(LAST_ANSWERS)
            if self._withdrawing:
                await asyncio.wait(self._withdrawing, timeout=LAST_ANSWERS)
            try:
                with contextlib.suppress(RtschedError):
                    await self._save(at_once=True)
            finally:
                if self.estimating is not None:
                    await self.estimating.close()
                await self.worker.close()
            log.info("daemon_stopped")

    def _end(self) -> None:
        self.signalled = True
        self._stop.set()

    def stop(self) -> None:
        """Have `run` come to its end."""
        self._stop.set()

    def _check_database(self) -> None:
        """Check all of a large database, beside the daemon's work; damage is told, not more.

        The open promises have been read; they are kept.
        """
        try:
            self.store.check()
        except StoreError as error:
            self._damage = str(error)
            log.error("database_damaged", error=self._damage)
        else:
            log.info("database_checked")

    async def _try_cycle(self) -> None:
        try:
            await self.cycle()
        except RtschedError as error:
            self.status.problem = str(error)
            self.metrics.cycle_failed()
            log.error("cycle_failed", error=str(error))
        except Exception as error:  # a defect must not end the daemon that keeps promises
            self.status.problem = f"{type(error).__name__}: {error}"
            self.metrics.cycle_failed()
            log.exception("cycle_crashed")

    async def _wait(self) -> None:
        """Wait for the next cycle: its time, a new promise since the last poll, or the end.

        After a cycle the batch system is left alone for as long as it took.
        """
        pause = min(max(self.status.last_cycle_s, SOON), self.policy.live.daemon.cycle)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), pause)
        waits = [asyncio.create_task(self._wake.wait()), asyncio.create_task(self._stop.wait())]
        period = self.policy.live.daemon.cycle
        _, left = await asyncio.wait(waits, timeout=period, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
