"""HTCondor as a live system, and its polls one after the other.

A schedd that was cut off believes its jobs to run on slots that have long been given back.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.accounts import accounts_of, factors_of, submitters_of
from rtsched.adapters.condor.commands import LastApplied, carried_out
from rtsched.adapters.condor.completions import completions_of, find_completions
from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.ids import PROC_BITS, schedd_of
from rtsched.adapters.condor.job_ads import AdReader
from rtsched.adapters.condor.matching import MachineAds
from rtsched.adapters.condor.observation import (
    Groups,
    allocations_of,
    edges_of,
    groups_of,
    jobs_of,
    marks_of,
    occupants_of,
    strangers_of,
)
from rtsched.adapters.condor.pool import CALLS, PatientPool
from rtsched.adapters.condor.pool_state import HELD, PoolState, has_slot, slot_names
from rtsched.adapters.condor.queue import OF_DISK, OF_JOBS, PROMISED, Queue, queue_of
from rtsched.adapters.condor.queue_reader import QueueAds, QueueReader
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.sharing import demand_of_groups, held_by
from rtsched.adapters.condor.slots import (
    OF_SLOTS,
    Claim,
    Occupant,
    PoolLayout,
    Slot,
    SlotAssignment,
    SlotInventory,
    claims_of,
    free_of,
    layout_of,
    parent_of,
    periodic_of,
    slots_of,
    vacating_most,
)
from rtsched.adapters.condor.starting import (
    Bound,
    StartedArrays,
    StartedLoads,
    StartFailureTracker,
    bound_of,
)
from rtsched.adapters.condor.steering import CondorSteering
from rtsched.adapters.condor.table import slots_in
from rtsched.adapters.files import replace_file
from rtsched.adapters.live import Completions, Observation, Remade
from rtsched.errors import AdapterError
from rtsched.logs.classads import number, text
from rtsched.model.cluster import NodeState
from rtsched.model.snapshot import are_in
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.job_ads import JobAds
    from rtsched.adapters.condor.matching import MachineAd
    from rtsched.adapters.condor.pool import Pool
    from rtsched.adapters.condor.pool_state import Procs
    from rtsched.adapters.condor.starting import Begun
    from rtsched.adapters.condor.table import SlotTable
    from rtsched.adapters.live import Change, Done
    from rtsched.logs.classads import Record
    from rtsched.model.actions import Action
    from rtsched.model.cluster import Cluster
    from rtsched.model.snapshot import Accounts


class CondorSystem:
    """An HTCondor pool that runs.

    Parameters
    ----------
    settings : CondorSettings
        The `[condor]` table.

    Raises
    ------
    AdapterError
        If HTCondor's Python bindings cannot be loaded, or its configuration cannot be read.
    """

    name = "condor"
    calls: float = CALLS

    def __init__(self, settings: CondorSettings | None = None) -> None:
        self.settings = settings or CondorSettings()
        self._pool = PatientPool(self.settings)
        self._observer = Observer(self.settings, self._pool)
        self._last_applied = LastApplied()
        self._view: PoolState | None = None

    def poll(self) -> Observation:
        """Return the pool's present state.

        Raises
        ------
        AdapterError
            If collector or schedd does not answer.
        """
        self._view = self._observer.poll()
        self._last_applied.keep_only(set(self._view.numbers.tolist()))
        return self._view.observation

    def find_completions(self, jobs: Sequence[int], since: float = -math.inf) -> Completions:
        """Return how jobs ended that left the queue, of those that the history still has.

        None of them ended before `since`, seconds since the epoch.

        Raises
        ------
        AdapterError
            If the schedd does not answer.
        """
        return find_completions(self._pool, jobs, since)

    def changes(self, actions: Sequence[Action]) -> Sequence[Change]:
        """Return what of the actions is not so yet, by the last poll.

        Jobs of a schedd that does not answer stay as they are: it starts none of them meanwhile.
        """
        if self._view is None:
            self.poll()
        view = self._view
        assert view is not None  # noqa: S101 -- a poll sets it
        steering = CondorSteering(view, self.settings, self._last_applied, time.time())
        found = [each for action in actions for each in steering.changes(action)]
        return [each for each in found if each.job < 0 or schedd_of(each.job) not in view.away]

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Do it, and return for each change what became of it; never raises for one of them."""
        done = carried_out(self._pool, self._publish, changes)
        now = time.time()
        for each in done:
            self._last_applied.remember(each, now)
        return done

    def _publish(self, table: SlotTable) -> Reply:
        """Write the table of slots; return what became of it."""
        path = self.settings.table
        try:
            replace_file(path, table.text(time.time(), self.settings.table_valid_s), 0o644)
        except OSError as error:
            why = (
                f"{path} cannot be written ({error.strerror}); its directory must "
                "belong to the daemon's user"
            )
            return "failed", why
        return "done", ""


SKEW_S = 30.0
"""Seconds by which the clocks of two machines may differ, and the collector's news be old."""


def emptied_of(ads: Sequence[Record]) -> dict[str, float]:
    """Return since when nobody has had a slot, seconds since the epoch, by its name.

    Of a partitionable slot: since when none of the dynamic slots can be that are not shown.
    """
    found = {}
    for ad in ads:
        if ad.get("partitionableslot") is True:
            since = number(ad, "daemonstarttime")
        else:
            since = (
                number(ad, "enteredcurrentstate") if ad.get("state") == "Unclaimed" else math.nan
            )
        if math.isfinite(since):
            found[text(ad, "name") or ""] = since
    return found


def without_stale_claims(
    procs: Procs, emptied: Mapping[str, float], held: Collection[str]
) -> Procs:
    """Return procs, in which those have no slot that cannot be where they were.

    Parameters
    ----------
    procs : Procs
        As the schedd shows them.
    emptied : mapping of str to float
        As `emptied_of` returns it.
    held : collection of str
        Slots that somebody has, dynamic ones too.
    """
    slot = procs.column("slot")
    rows = np.flatnonzero(has_slot(procs) & (slot >= 0)).tolist()
    begun, names = procs.start.tolist(), procs.names("slot")
    gone = [
        row
        for row in rows
        if all(
            name not in held
            and emptied.get(name, emptied.get(parent_of(name), -math.inf)) > begun[row] + SKEW_S
            for name in slot_names(names[slot[row]])
        )
    ]
    if not gone:
        return procs
    codes = slot.copy()
    codes[gone] = -1
    return procs.with_column("slot", codes)


CONFIG_EVERY_S = 60.0
"""Seconds between two readings of the configuration."""

REREAD_S = 300.0
"""Seconds after which all that slots say of themselves is read again; what a startd says that was
started or reconfigured meanwhile is read at once."""

FEW = 100
"""So many slots are read by their names, more all together."""

KEPT_S = 3.0
"""Seconds after which what was being started on a slot when it was to be kept shows in a poll: the
table is written, the library reads it once a second, and a match becomes a claim."""

KEPT_BY_SCRIPT_S = 8.0
"""Likewise where a script of the startd reads the table, every five seconds."""

HEARD = 1.2
"""Times a startd's UPDATE_INTERVAL until a new collector has heard of it, and 5 s."""


class Observer:
    """Looks at a pool, and remembers what one poll does not show.

    Parameters
    ----------
    settings : CondorSettings
        The `[condor]` table.
    pool : Pool
        The pool.
    """

    def __init__(self, settings: CondorSettings, pool: Pool) -> None:
        self._settings, self._pool = settings, pool
        self._start_failures, self._negotiated = StartFailureTracker(), False
        self._inventory, self._assignment, self._started_loads = (
            SlotInventory(),
            SlotAssignment(),
            StartedLoads(pool),
        )
        self._started_arrays = StartedArrays()
        self._readers: dict[int, QueueReader] = {}
        self._ads_of_jobs = AdReader()
        self._machine: PoolLayout | None = None
        self._layout, self._cluster = Remade(layout_of), Remade(self._cluster_of)
        self._version = 0
        self._submitters: list[Record] = []
        self._started: dict[str, float] = {}
        self._machines: dict[str, MachineAd] = {}
        self._machines_of: dict[str, tuple[float, float]] = {}
        self._machines_read = -math.inf
        self._ads = MachineAds.of({})
        self._unheld = np.empty(0, np.int64)
        self._read = -math.inf
        self._silent = math.inf  # since when the collector has not said how long it has been up

    def poll(self) -> PoolState:
        """Return the pool's present state.

        Raises
        ------
        AdapterError
            If collector or schedd does not answer, or there are no slots.
        """
        now = time.time()
        if now - self._read > CONFIG_EVERY_S:
            self._pool.configure()
            self._read = now
        schedds, version = self._identities()
        ads = self._pool.slots(OF_SLOTS)
        self._started = {text(ad, "name") or "": number(ad, "daemonstarttime") for ad in ads}
        shown, small = slots_of(ads, self._settings)
        self._read_machines(ads, now)
        shown = self._with_gpus(shown)
        machine = self._machine_now(shown, now)
        facts = self._facts(machine, version, vacating_most(ads))
        claims = claims_of(ads)
        wanted = (*OF_JOBS, *OF_DISK) if machine.shared else OF_JOBS
        jobs, silent = self._read_jobs(wanted, now)
        queue = queue_of(jobs, facts)
        held = {claim.name for claim in claims}
        queue = replace(queue, procs=without_stale_claims(queue.procs, emptied_of(ads), held))
        queue = replace(queue, procs=self._without_false_spooling(queue.procs))
        problems = _problems(queue.skipped, small)
        problems += (*silent.values(), *self._read_submitters())
        accounts, facts = self._charged(queue, facts)
        away = {name for name, slot in machine.by_name.items() if slot.state != NodeState.UP}
        bound = bound_of(queue, facts, now, away)
        arrays = self._started_arrays.update(queue, facts, now)
        observation = self._observe(queue, machine, (claims, schedds), bound, arrays, facts, now)
        waiting = {job for job in arrays if queue.arrays[job].waits}
        observation = replace(observation, accounts=accounts, facts=facts, problems=problems)
        factors = factors_of(self._submitters)
        return PoolState(
            queue.procs,
            queue.ads,
            machine.slots,
            observation,
            facts,
            factors,
            self._negotiated,
            bound=frozenset(bound) | waiting,
            leaving=frozenset(claim.name for claim in claims if claim.leaving),
            arrays=queue.arrays,
            away=frozenset(silent),
            free=free_of(ads, shared=machine.shared),
        )

    def _without_false_spooling(self, procs: Procs) -> Procs:
        """Return the procs, of which none is being spooled that was seen waiting or running.

        Its owner may write what tells of it.
        """
        numbers = (procs.cluster << PROC_BITS) | procs.proc
        seen = are_in(numbers, self._unheld)
        self._unheld = numbers[seen | (procs.status != HELD)]
        false = procs.spools & seen
        if not false.any():
            return procs
        return procs.replace(spools=procs.spools & ~false, passing=procs.passing & ~false)

    def _observe(
        self,
        queue: Queue,
        machine: PoolLayout,
        claims: tuple[Sequence[Claim], frozenset[str]],
        bound: Mapping[int, Bound],
        arrays: Mapping[int, Begun],
        facts: CondorFacts,
        now: float,
    ) -> Observation:
        """Return what is seen of slots and jobs; `claims` are all, and the names of our schedds."""
        begun = {job: one.procs for job, one in bound.items()} | self._started_loads.update(queue)
        begun |= dict.fromkeys(arrays, 1)
        groups = groups_of(queue, begun)
        taken = self._taken(queue, groups, machine, *claims)
        allocations = allocations_of(queue, groups, taken.rows, begun, bound, arrays, facts, now)
        waits, runs = np.flatnonzero(~groups.runs), np.flatnonzero(groups.runs)
        ended = completions_of(queue.over)
        stuck = self._start_failures.update(
            queue,
            facts,
            now,
            negotiated=self._negotiated,
            slots=len(machine.slots),
            fits=self._pool.fits,
            started=self._alive_since(queue.procs, machine),
            begun=arrays,
            schedd_started=self._schedd_started,
        )
        shunned = machine.rows_of(self._start_failures.shunned)
        away = np.union1d(taken.others, shunned)
        foreign = None if taken.foreign is None else taken.foreign.tolist()
        return Observation(
            now,
            self._cluster.of(machine, away.tolist(), foreign),
            jobs_of(queue, groups, waits, facts),
            jobs_of(
                queue,
                groups,
                runs,
                facts,
                allocations.entries.size,
                taken.slots[runs],
                None if taken.demand is None else taken.demand[runs],
            ),
            allocations,
            marks_of(
                queue, groups, np.concatenate([waits, runs]), stuck, submitters_of(self._submitters)
            ),
            Completions.joined(
                [ended.take(~are_in(ended.job, groups.job)), completions_of(queue.overran)]
            ),
            edges=edges_of(queue, groups),
            periodic=periodic_of(self._settings.recurring, machine.slots, now),
            flapping=np.union1d(machine.rows_of(self._inventory.flapping(now)), shunned),
            keeps_after=self._keeps_after(),
        )

    def _keeps_after(self) -> float:
        """Return after how many seconds nobody else may come to slots that are kept."""
        native = self._pool.word("RTSCHED_NATIVE").lower() == "true"
        return KEPT_S if native else KEPT_BY_SCRIPT_S

    def _identities(self) -> tuple[frozenset[str], str]:
        """Return the names of the schedds, and the release of the first that can be found."""
        names, versions = set[str](), []
        for schedd in self._pool.schedds.values():
            try:
                name, version = schedd.identity()
            except AdapterError:
                if len(self._pool.schedds) == 1:
                    raise
                names.add(schedd.name)
            else:
                names.add(name)
                versions.append(version)
        return frozenset(names), next(iter(versions), "")

    def _schedd_started(self, job: int) -> float:
        """Return when the schedd of a job was started; inf: it is away, and starts nothing."""
        try:
            return self._pool.schedds[schedd_of(job)].started()
        except (AdapterError, KeyError):
            if len(self._pool.schedds) == 1:
                raise
            return math.inf

    def _read_machines(self, ads: Sequence[Record], now: float) -> None:
        """Read what slots say of their machines, where that may have changed."""
        since = {
            text(ad, "name") or "": (
                number(ad, "daemonstarttime"),
                number(ad, "daemonlastreconfigtime"),
            )
            for ad in ads
            if ad.get("dynamicslot") is not True
        }
        all_again = now - self._machines_read >= REREAD_S
        names = [
            name for name, when in since.items() if all_again or self._machines_of.get(name) != when
        ]
        if not names:
            return
        found = self._pool.machines(names if not all_again and len(names) <= FEW else ())
        known = self._machines
        new = {name: found[name] for name in names if name in found}
        if all_again:
            self._machines_read = now
            there = {*since, *(self._machine.by_name if self._machine is not None else ())}
            known = {name: machine for name, machine in known.items() if name in there}
        self._machines_of |= {name: since[name] for name in new}
        if known | new != self._machines:
            self._machines = known | new
            self._ads = MachineAds.of(
                {name: machine.attributes for name, machine in self._machines.items()}
            )

    def _with_gpus(self, shown: Sequence[Slot]) -> list[Slot]:
        """Return the slots with the kinds of their GPUs."""
        kinds = {name: machine.gpus for name, machine in self._machines.items()}
        return [
            replace(slot, kinds=kinds.get(slot.name, ())) if slot.gpus else slot for slot in shown
        ]

    def _alive_since(self, procs: Procs, machine: PoolLayout) -> dict[str, float]:
        """Return since when slots are known to be alive, seconds since the epoch.

        That is when their startds were started, or when the last job that runs on a part of a
        shared slot began: where others start, one that does not makes no slot suspect.
        """
        alive = dict(self._started)
        if machine.shared:
            rows = np.flatnonzero(has_slot(procs) & ~np.isnan(procs.start))
            part = procs.take(rows)
            for words, start in zip(part.texts("slot"), part.start.tolist(), strict=True):
                for name in map(parent_of, slot_names(words)):
                    alive[name] = np.fmax(alive.get(name, start), start)
        return alive

    def _machine_now(self, shown: Sequence[Slot], now: float) -> PoolLayout:
        """Return the machine; the same object as before if nothing changed.

        A collector that was just started has not heard of all slots, and not yet of itself.
        """
        heard = HEARD * self._pool.setting("UPDATE_INTERVAL", 300.0) + 5.0
        up = self._pool.collector_up()
        self._silent = min(self._silent, now) if math.isinf(up) else math.inf
        forgetful = (now - self._silent if math.isinf(up) else up) < heard
        if forgetful and self._machine is None:
            self._wait_for(shown, heard)
        slots = self._inventory.update(shown, now, forgetful=forgetful)
        if not slots:
            raise AdapterError(
                "the collector reports no slot that is large enough; check condor_status, and "
                "[condor] constraint and unit_cpus"
            )
        self._machine = self._layout.of(slots, self._ads)
        return self._machine

    def _wait_for(self, shown: Sequence[Slot], heard: float) -> None:
        """Raise if promises could break since the collector does not know their slots yet.

        That is so when everything starts anew at once. The table that was written last, where it is
        still there, names all slots.
        """
        named = slots_in(self._settings.table)
        if named and named <= {slot.name for slot in shown}:
            return
        if any(schedd.jobs(PROMISED, ("ClusterId",)) for schedd in self._pool.schedds.values()):
            slots = counted(len(shown), "slot")
            raise AdapterError(
                f"the collector has just started and reports {slots} so far; promises are not "
                f"replanned until it knows all of them, {heard:.0f} s after its start"
            )

    def _cluster_of(
        self, machine: PoolLayout, others: list[int], foreign: list[list[int]] | None
    ) -> Cluster:
        """Return the cluster, of which others have some rows, or amounts of them."""
        self._version += 1
        amounts = None if foreign is None else np.array(foreign, np.int64)
        return machine.cluster(np.array(others, np.int64), self._version, amounts)

    def _taken(
        self,
        queue: Queue,
        groups: Groups,
        machine: PoolLayout,
        claims: Sequence[Claim],
        schedds: frozenset[str],
    ) -> _Taken:
        """Return who has which rows."""
        ours, of = occupants_of(queue, groups, claims, machine.by_name)
        strangers = strangers_of(claims, schedds)
        rows = self._assignment.taken([*strangers, *ours], machine.by_name)

        def rows_of(occupant: Occupant) -> list[int]:
            slot, places = rows.get(occupant.key, ("", ()))
            return [machine.first[slot] + place for place in places]

        held, foreign = ([rows_of(each) for each in some] for some in (ours, strangers))
        pairs = [(job, row) for job, some in zip(of, held, strict=True) for row in some]
        jobs = len(groups.job)
        slots = np.bincount(np.array(of, np.int64), minlength=jobs)
        if machine.shared:
            demand = demand_of_groups(ours, held, of, jobs, machine.parts)
            others = held_by(strangers, foreign, len(machine.slots), machine.parts)
            return _Taken(pairs, slots, np.empty(0, np.int64), demand, others)
        return _Taken(pairs, slots, np.array(sorted({*chain(*foreign)}), np.int64))

    def _facts(self, machine: PoolLayout, version: str, vacating: float) -> CondorFacts:
        """Return all facts but who is charged; `vacating`: of `vacating_most`."""
        settings, setting = self._settings, self._pool.setting
        interval = setting("NEGOTIATOR_INTERVAL", 60.0)
        delay = 2 * interval + 10.0 if settings.start_delay_s is None else settings.start_delay_s
        return CondorFacts(
            version=version,
            margin=delay + settings.overrun_s + settings.completing_s,
            start_delay=delay,
            parts=machine.parts,
            run_time=math.inf if settings.run_time_s is None else settings.run_time_s,
            domain=self._pool.word("UID_DOMAIN"),
            shared=machine.shared,
            arrays=settings.arrays,
            sets=machine.sets,
            names=settings.names,
            vacating=settings.completing_s,
            vacating_most=vacating,
        )

    def _read_jobs(self, attributes: Sequence[str], now: float) -> tuple[JobAds, dict[int, str]]:
        """Return the jobs of all queues, and a sentence on each schedd that does not answer."""
        found, silent = QueueAds(), dict[int, str]()
        for at, schedd in self._pool.schedds.items():
            reader = self._readers.setdefault(at, QueueReader())
            try:
                queue = reader.read(schedd, attributes, now)
            except AdapterError as error:
                if len(self._pool.schedds) == 1:
                    raise
                queue, silent[at] = reader.kept(error, now)
            found.add(queue)
        self._ads_of_jobs.merge(found.ads, found.details)
        return self._ads_of_jobs.jobs(found.proc, found.ads), silent

    def _read_submitters(self) -> tuple[str, ...]:
        """Read the negotiator's accounting; return what is wrong with it.

        Without a negotiator jobs run on, and promises are given; none starts.
        """
        try:
            self._submitters = self._pool.submitters()
        except AdapterError as error:
            self._negotiated = False
            return (f"{error}; the last known shares and factors are used",)
        self._negotiated = True
        return ()

    def _charged(self, queue: Queue, facts: CondorFacts) -> tuple[Accounts, CondorFacts]:
        """Return the accounts, and the facts with the row of each submitter."""
        procs = queue.procs
        names, groups = procs.names("submitter"), (*procs.names("account"), "")
        count = len(groups)
        pairs = np.unique(procs.submitter.astype(np.int64) * count + procs.account % count)
        found = (divmod(pair, count) for pair in pairs.tolist())
        queued = sorted((names[name], groups[group]) for name, group in found if name >= 0)
        accounts, rows = accounts_of(self._submitters, queued, self._settings.shares)
        return accounts, replace(facts, associations=rows)


@dataclass(frozen=True)
class _Taken:
    """Who has which rows: pairs of a job of `Groups` and a row, slots per job, rows of others.

    Where jobs share slots: what each job has of each of its slots, and others of each row.
    """

    rows: list[tuple[int, int]]
    slots: NDArray[np.int64]
    others: NDArray[np.int64]
    demand: NDArray[np.int64] | None = None
    foreign: NDArray[np.int64] | None = None


def _problems(jobs: int, slots: int) -> tuple[str, ...]:
    """Return what could not be read."""
    small = f"slots with fewer CPUs than [condor] unit_cpus, which get no promised jobs: {slots}"
    great = f"jobs ignored because their ids are too large: {jobs}"
    return (small,) * bool(slots) + (great,) * bool(jobs)
