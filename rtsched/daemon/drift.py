"""Drift: promised jobs that wait, and are no longer as they were promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID, PART, WITHIN
from rtsched.daemon.site import LATE, renumbered
from rtsched.model.jobs import Kind
from rtsched.model.resources import CPU, DISK, GPU, LICENSE, MEMORY
from rtsched.model.snapshot import are_in, places
from rtsched.model.table import amounts_of, differ, encode
from rtsched.model.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.adapters.live import Observation
    from rtsched.daemon.site import Site
    from rtsched.model.jobs import Edges, Jobs

STUCK = "its requirements do not match the nodes reserved for it"

REQUEUED = 180.0
"""Seconds by which the batch system itself puts off a job that it queues again, at the most, or as
it is set to (see `Observation`) if that is more."""

DISK_LEEWAY = 1 << 30
"""Bytes of local disk by which a job, or a task of an array, may request more than was promised:
HTCondor's default follows from its files."""


def changed_by_users(
    site: Site, observation: Observation, names: Mapping[int, int]
) -> dict[int, str]:
    """Return what of waiting jobs is no longer as it was promised, by job id."""
    ids = renumbered(site.requested.id, names)
    place, there = places(observation.queued.id, ids)
    requested, seen = site.requested.take(there), observation.queued.take(place[there])
    fixed = requested.size_min < 0
    late = np.maximum(requested.begin, observation.time + max(REQUEUED, observation.requeue_delay))
    causes = {
        "its deadline was removed or postponed": (seen.deadline > requested.deadline)
        | ~np.isfinite(seen.deadline),
        "its deadline was moved forward": seen.deadline < requested.deadline - LATE,
        "its start was postponed": seen.begin > late,
        "it is held": are_held(observation, ids[there]),
        "its dependencies were changed": are_in(
            ids[there], _newly_waiting(site, observation, names)
        )
        | (seen.singleton & ~requested.singleton),
        STUCK: are_in(ids[there], observation.marks.job[observation.marks.stuck]),
        "it was moved to another partition": _elsewhere(seen, requested),
        "it requests other nodes than were promised": _asks_otherwise(seen, requested),
        "it requests more licences than were promised": _more_licenses(seen, requested),
        "it was moved to another QOS": differ(seen, requested, "qos")
        & requested.where("qos", bool),  # else the batch system chose it
        "it requests more nodes than were promised": fixed & (seen.size > requested.size),
        "its number of nodes was changed": _sized_otherwise(site, seen, requested, ids[there]),
        "fewer of its tasks may run at a time than was promised": _throttled(
            site, seen, requested, ids[there]
        ),
        "it requests larger nodes than were promised": _grown(
            seen, requested, observation.cluster.shared
        )
        & ~are_in(ids[there], site.snapshot.running.id),
        "it requests more time than was promised": (fixed | (requested.kind == Kind.ARRAY))
        & ~_follows(requested)  # there it cannot be changed, and contains a margin that can
        & (seen.wall_time > requested.wall_time + MINUTE),
    }
    found = _problems(observation, ids[there])
    for why, rows in causes.items():
        for job in ids[there][rows].tolist():
            found.setdefault(job, why)
    return found


def _problems(observation: Observation, jobs: NDArray[np.int64]) -> dict[int, str]:
    """Return to which jobs nothing can be promised any more, and why."""
    marks = observation.marks.take(are_in(observation.marks.job, jobs))
    pairs = zip(marks.job.tolist(), marks.texts("problem"), strict=True)
    return {job: problem for job, problem in pairs if problem}


def _sized_otherwise(
    site: Site, seen: Jobs, requested: Jobs, jobs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which jobs that could have several sizes can no longer have the planned one.

    One that has one size now may have been given that by us.
    """
    moldable, plan = requested.kind == Kind.MOLDABLE, site.snapshot.plan.entries
    place, known = places(plan.job, jobs)
    size = np.where(known, plan.size[place] if len(plan) else 0, seen.size)
    least = np.where(seen.kind == Kind.MOLDABLE, seen.size_min, requested.size_min)
    most = np.where(seen.kind == Kind.MOLDABLE, seen.size_max, requested.size_max)
    size = np.where(seen.kind == Kind.MOLDABLE, size, seen.size)
    return np.asarray(moldable & ((size < least) | (size > most)), np.bool_)


def _throttled(
    site: Site, seen: Jobs, requested: Jobs, jobs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return of which arrays so few tasks may run at a time that they need more rounds."""
    plan, limit = site.snapshot.plan.entries, seen.array_limit
    place, known = places(plan.job, jobs)
    nodes = np.where(known, plan.size[place] if len(plan) else 0, requested.size_max)
    together = np.maximum(nodes * np.maximum(requested.tasks_per_node, 1), 1)
    more = -(-seen.tasks // np.maximum(limit, 1)) > -(-seen.tasks // together)
    return np.asarray((requested.kind == Kind.ARRAY) & (limit > 0) & more, np.bool_)


def _asks_otherwise(seen: Jobs, requested: Jobs) -> NDArray[np.bool_]:
    """Return which jobs ask for other nodes, whatever their partitions.

    Where partitions follow from sizes, a filter of an earlier release does not tell what a job asks
    for: then that is not known.
    """
    unknown = _follows(requested) & (requested.node_request < 0)
    return differ(seen, requested, "node_request", _asked) & ~unknown


def _asked(text: str | None) -> str:
    """Return a request for nodes without its partition."""
    asked, mark, rest = (text or "").rpartition(WITHIN)
    return asked if mark else rest


def _elsewhere(seen: Jobs, requested: Jobs) -> NDArray[np.bool_]:
    """Return which jobs were moved to another partition, but for what follows from their sizes."""
    no_node_fits = _follows(requested) & ~seen.where("partition", bool)
    return differ(seen, requested, "partition", _named) & ~no_node_fits


def _named(partition: str | None) -> str:
    """Return a partition without what follows from the size of its job."""
    return (partition or "").partition(PART)[0]


def _follows(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs have a partition that follows from their sizes."""
    return jobs.where("partition", lambda text: PART in (text or ""))


def _grown(seen: Jobs, requested: Jobs, shared: bool) -> NDArray[np.bool_]:
    """Return which jobs ask for more of a node than they did, where that is planned.

    It is where it chooses the partition, and where nodes are `shared`; processors and memory that
    go with GPUs are not compared there.
    """
    now, before = (amounts_of(jobs, "demand", (GPU, DISK)) for jobs in (seen, requested))
    tasks = np.maximum(requested.tasks_per_node, 1).astype(np.int64)
    together = np.where(requested.kind == Kind.ARRAY, tasks, 1)
    more = (seen.cores > requested.cores) | (seen.memory > requested.memory)
    more |= now[:, 0] > before[:, 0]
    planned = before[:, 1] > 0  # an earlier release planned no disk
    more |= planned & (now[:, 1] > before[:, 1] + DISK_LEEWAY * together)
    names = (CPU, MEMORY, GPU)
    now, before = (amounts_of(jobs, "demand", names) for jobs in (seen, requested))
    of_node = (now[:, :2] > before[:, :2]).any(axis=1) & (before[:, 2] == 0)
    of_node &= shared & ~requested.exclusive
    return np.where(_follows(requested), more, of_node)


def _more_licenses(seen: Jobs, requested: Jobs) -> NDArray[np.bool_]:
    """Return which jobs ask for more licences than they did."""
    names = tuple(name for name in seen.names("demand") if name.startswith(LICENSE))
    now, before = (amounts_of(jobs, "demand", names) for jobs in (seen, requested))
    return np.asarray((now > before).any(axis=1))


def with_present(requested: Jobs, observation: Observation, ran: NDArray[np.int64]) -> Jobs:
    """Return the jobs in the partitions that follow from their sizes now, loads no larger than now.

    They are in the accounts that the batch system charges, which may be others than asked for.
    A load that lost some of its parts can no longer be divided among so many, and of an array some
    tasks may have run or been cancelled. A job that may start now may share nodes from now on. One
    whose time limit was shortened is planned for no longer than that. One that `ran` at the poll
    before and waits again may request what it was measured to use, as HTCondor's defaults do.
    """
    requested = _in_charged_accounts(requested, observation)
    requested = _with_fewer_tasks(requested, observation)
    requested = _as_measured(requested, observation, ran)
    requested = _with_shorter_limits(requested, observation)
    requested = _sharing(requested, observation)
    place, there = places(observation.queued.id, requested.id)
    there &= _follows(requested)
    if not there.any():
        return requested
    for name in ("partition", "node_request"):
        now, texts = observation.queued.take(place).texts(name), requested.texts(name)
        new = [
            (seen or text) if known and text else text
            for seen, known, text in zip(now, there.tolist(), texts, strict=True)
        ]
        requested = requested if new == texts else requested.replace_text(name, *encode(new))
    most = np.where(there, observation.queued.size_max[place], -1)
    fewer = (requested.kind == Kind.DIVISIBLE) & (most > 0) & (most < requested.size_max)
    if not fewer.any():
        return requested
    return requested.replace(size_max=np.where(fewer, most, requested.size_max).astype(np.int32))


def _in_charged_accounts(requested: Jobs, observation: Observation) -> Jobs:
    """Return the jobs in the accounts that they are shown in."""
    for shown in (observation.queued, observation.running):
        place, there = places(shown.id, requested.id)
        there[there] = shown.where("account", bool)[place[there]]
        rows, seen = np.flatnonzero(there), shown.take(place[there])
        if not differ(seen, requested.take(rows), "account").any():
            continue
        accounts, association = requested.texts("account"), requested.association.copy()
        for row, account in zip(rows.tolist(), seen.texts("account"), strict=True):
            accounts[row] = account
        association[rows] = seen.association
        requested = requested.replace_text("account", *encode(accounts))
        requested = requested.replace(association=association)
    return requested


def _with_fewer_tasks(requested: Jobs, observation: Observation) -> Jobs:
    """Return the jobs, arrays with as many tasks as still wait."""
    arrays = requested.id[requested.kind == Kind.ARRAY]
    place, there = places(observation.queued.id, arrays)
    if not there.any():
        return requested
    row, _ = places(requested.id, arrays[there])
    tasks = requested.tasks.copy()
    tasks[row] = np.minimum(tasks[row], observation.queued.tasks[place[there]])
    return requested if np.array_equal(tasks, requested.tasks) else requested.replace(tasks=tasks)


def _as_measured(requested: Jobs, observation: Observation, ran: NDArray[np.int64]) -> Jobs:
    """Return the jobs; those that wait again need as much of a node as they request by now."""
    place, there = places(observation.queued.id, requested.id)
    there &= _follows(requested) & are_in(requested.id, ran)
    if not there.any():
        return requested
    seen = observation.queued.take(place[there])
    columns = {name: requested.column(name).copy() for name in ("cores", "memory", "demand")}
    demand = amounts_of(seen, "demand", requested.names("demand"))
    for name, now in (("cores", seen.cores), ("memory", seen.memory), ("demand", demand)):
        columns[name][there] = np.maximum(columns[name][there], now)
    return requested.replace(**columns)


def _with_shorter_limits(requested: Jobs, observation: Observation) -> Jobs:
    """Return the jobs, rigid ones for no longer than their present time limits allow."""
    place, there = places(observation.queued.id, requested.id)
    there &= (requested.size_min < 0) & ~_follows(requested)
    wall_time = requested.wall_time.copy()
    wall_time[there] = np.minimum(wall_time[there], observation.queued.wall_time[place[there]])
    if (wall_time >= requested.wall_time - MINUTE).all():
        return requested
    return requested.replace(wall_time=wall_time)


def _sharing(requested: Jobs, observation: Observation) -> Jobs:
    """Return the jobs, with whole nodes only those that still need them where jobs share nodes."""
    place, there = places(observation.queued.id, requested.id)
    there &= requested.exclusive & (requested.kind != Kind.ARRAY) & observation.cluster.shared
    there[there] = ~observation.queued.exclusive[place[there]]
    if not there.any():
        return requested
    return requested.replace(exclusive=requested.exclusive & ~there)


def are_held(observation: Observation, jobs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which waiting jobs somebody holds; those that are held for a verdict do not count."""
    marks = observation.marks
    return are_in(jobs, marks.job[marks.held & ~marks.deferred])


def _newly_waiting(
    site: Site, observation: Observation, names: Mapping[int, int]
) -> NDArray[np.int64]:
    """Return the jobs that wait for one that they did not wait for before.

    Not those of which that is not known: a poll must have shown them, or they were promised
    something behind other jobs, none of which was guessed. Nor those that wait for whatever jobs of
    their name there are: these come and go.
    """
    if not len(observation.edges):
        return np.empty(0, np.int64)
    links = [[names.get(job, job) for job in ends.tolist()] for ends in _ends_of(site.links)]
    old = [ends.tolist() for ends in _ends_of(site.snapshot.edges)]
    pairs = {*zip(*links, strict=True), *zip(*old, strict=True)}
    guessed = {job for first, job in pairs if first >= FIRST_OWN_ID}
    singletons = observation.queued.id[observation.queued.singleton].tolist()
    known = {*site.marks.job.tolist(), *links[1]}.difference(guessed, singletons)
    new = set(zip(*(ends.tolist() for ends in _ends_of(observation.edges)), strict=True)) - pairs
    return np.array(sorted({job for _, job in new} & known), np.int64)


def _ends_of(edges: Edges) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return edges.before, edges.after
