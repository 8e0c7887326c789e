"""What looks at small pools show, made by hand, and a pool that only notes what it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.job_ads import AdReader, JobAds, ProcAds, TextReader
from rtsched.adapters.condor.matching import MachineAd
from rtsched.adapters.condor.pool_state import IDLE, RUNNING, PoolState, Procs, Slots
from rtsched.adapters.condor.requirements import PARALLEL, requirements_of
from rtsched.adapters.condor.sharing import RESOURCES
from rtsched.adapters.live import Marks, Observation
from rtsched.errors import AdapterError
from rtsched.logs.classads import Record
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.condor.commands import JobAction, Reply
    from rtsched.logs.classads import Record

NOW = 1_800_000_000.0
MARGIN = 30.0


def plan_of(*entries: tuple[int, float, list[int]], length: float = 600.0) -> Schedule:
    """Return a plan of (job, start after now, rows), all of one length."""
    sizes = [len(rows) for _, _, rows in entries]
    start = np.array([NOW + start for _, start, _ in entries])
    return Schedule.build(
        np.array([job for job, _, _ in entries], np.int64),
        start,
        start + length,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([row for _, _, rows in entries for row in rows], np.int32),
    )


def ad(cluster: int, proc: int = 0, **attributes: Any) -> dict[str, Any]:
    """Return the ad of a proc that waits, names in lower case."""
    plain: dict[str, Any] = {
        "clusterid": cluster,
        "procid": proc,
        "jobstatus": IDLE,
        "jobuniverse": 5,
    }
    plain |= {"owner": "alice", "rtruntime": 600.0, "jobprio": 0, "submitter": "alice@pool"}
    return {**plain, **attributes}


def view_of(
    *ads: dict[str, Any],
    slots: Sequence[str] = ("s1", "s2", "s3", "s4"),
    edges: Sequence[tuple[int, int]] = (),
    down: Sequence[int] = (),
    speeds: Sequence[float] = (),
    factors: Mapping[str, float] | None = None,
    capacity: tuple[int, ...] = (),
) -> PoolState:
    """Return what a poll of these procs shows; running ones name the rows they have as `on`.

    Where jobs share slots all have the same `capacity`, and jobs name what they take as `takes`.
    """
    facts = CondorFacts(margin=MARGIN)
    whole = [one["jobuniverse"] == PARALLEL or "rtsigma" in one for one in ads]
    jobs = [
        job_id(one["clusterid"], 0 if all_one else one["procid"])
        for one, all_one in zip(ads, whole, strict=True)
    ]
    names = {name: [one.get(name) for one in ads] for name in ("rtadmission", "rtnodeset")}
    procs = Procs.build(
        len(ads),
        job=np.array(jobs, np.int64),
        cluster=np.array([one["clusterid"] for one in ads], np.int64),
        proc=np.array([one["procid"] for one in ads], np.int64),
        status=np.array([one["jobstatus"] for one in ads], np.int8),
        universe=np.array([one["jobuniverse"] for one in ads], np.int8),
        submit=np.full(len(ads), NOW - 100.0),
        start=np.array([one.get("start", np.nan) for one in ads], np.float64),
        run_time=np.array([one.get("rtruntime", np.inf) for one in ads], np.float64),
        priority=np.array([one["jobprio"] for one in ads], np.int32),
        own_priority=np.array([one.get("rtjobprio", 0) for one in ads], np.int32),
        reordered=np.array(["rtjobprio" in one for one in ads], np.bool_),
        submitter=[one["submitter"] for one in ads],
        admission=names["rtadmission"],
        node_set=names["rtnodeset"],
        slot=[one.get("remotehost") for one in ads],
        rank_set=[one.get("rtrankset") for one in ads],
    )
    running = {job for job, one in zip(jobs, ads, strict=True) if one["jobstatus"] == RUNNING}
    first = dict(reversed(list(zip(jobs, ads, strict=True))))
    waits = jobs_of({job: first[job] for job in jobs if job not in running}, facts)
    runs = jobs_of({job: first[job] for job in jobs if job in running}, facts)
    taken = [(job, one["on"]) for job, one in zip(jobs, ads, strict=True) if "on" in one]
    cluster = Cluster(
        Nodes.build(
            len(slots),
            name=list(slots),
            speed=np.array(speeds or [1.0] * len(slots)),
            state=np.array([2 if row in down else 0 for row in range(len(slots))], np.int8),
            capacity=np.tile(np.array(capacity, np.int64), (len(slots), 1)) if capacity else None,
            names={"capacity": RESOURCES} if capacity else None,
        )
    )
    ids = [*waits.id.tolist(), *runs.id.tolist()]
    observation = Observation(
        NOW,
        cluster,
        waits,
        runs,
        plan_of(*((job, -10.0, rows) for job, rows in taken)),
        Marks.build(len(ids), job=np.array(ids, np.int64), requeues=np.ones(len(ids), np.bool_)),
        edges=Edges.build(
            len(edges),
            before=np.array([before for before, _ in edges], np.int64),
            after=np.array([after for _, after in edges], np.int64),
        ),
    )
    rows = dict(enumerate(ads))
    table = Slots.build(len(slots), name=list(slots))
    return PoolState(procs, rows, table, observation, facts, dict(factors or {}))


def jobs_of(ads: Mapping[int, dict[str, Any]], facts: CondorFacts) -> Jobs:
    """Return the rows of the jobs with these ads."""
    requirements = [requirements_of(one, facts, fresh=False) for one in ads.values()]
    takes = [one["takes"] for one in ads.values() if "takes" in one]
    return Jobs.build(
        len(requirements),
        demand=np.array(takes, np.int64) if takes else None,
        names={"demand": RESOURCES} if takes else None,
        id=np.array(list(ads), np.int64),
        submit=np.full(len(requirements), NOW - 100.0),
        begin=np.array([one.get("begin", -np.inf) for one in ads.values()], np.float64),
        deadline=np.array([needs.deadline for needs in requirements]),
        kind=np.array([needs.kind for needs in requirements], np.int8),
        size=np.array([needs.size for needs in requirements], np.int32),
        checkpoints=np.array([needs.checkpoint for needs in requirements], np.bool_),
    )


def read_ads(records: Sequence[Record]) -> JobAds:
    """Return procs by their whole ads."""
    shown = ProcAds.of(records)
    return AdReader().jobs(shown.proc, TextReader().read(shown))


class Shown:
    """A pool and its schedd, which show what they are given; with `silence` the latter does not.

    Attributes
    ----------
    schedds : dict of int to Shown
        This one and others, by their places in the settings.
    asked, wanted, read
        What it was asked: constraints, attributes of jobs, slots of which properties were read.
    """

    def __init__(
        self, slots: Sequence[Record], jobs: Sequence[Record] = (), name: str = "here"
    ) -> None:
        self.schedds, self.name, self.silence = {0: self}, name, ""
        self.shown_slots, self.shown_jobs = list(slots), list(jobs)
        self.shown_past: list[Record] = []
        self.shown_submitters: list[Record] = []
        self.up = 1e6
        self.shown_machines: dict[str, MachineAd] = {}
        self.asked: list[str] = []
        self.wanted: list[Sequence[str]] = []
        self.read: list[Sequence[str]] = []
        self.words: dict[str, str] = {"UID_DOMAIN": "pool"}

    def configure(self) -> None:
        """Read nothing."""

    def setting(self, name: str, otherwise: float) -> float:
        """Return what HTCondor itself takes."""
        return otherwise

    def word(self, name: str) -> str:
        """Return the name of the domain, and what else was given."""
        return self.words.get(name, "")

    def identity(self) -> tuple[str, str]:
        """Return who it is."""
        return self.name, "25.14.1"

    def started(self) -> float:
        """Return when it was started, long ago."""
        return NOW - 1e6

    def collector_up(self) -> float:
        """Return for how long."""
        return self.up

    def fits(self, job: int, slots: Sequence[str]) -> bool:
        """Return that the job's own requirements forbid them."""
        return False

    def slots(self, attributes: Sequence[str]) -> list[Record]:
        """Return what was given."""
        return self.shown_slots

    def machines(self, slots: Sequence[str]) -> dict[str, MachineAd]:
        """Return what was given: where that is nothing, nothing is known of them."""
        self.read.append(tuple(slots))
        return self.shown_machines

    def jobs(self, constraint: str, attributes: Sequence[str]) -> list[Record]:
        """Return what was given."""
        self.asked.append(constraint)
        self.wanted.append(attributes)
        wanted = {name.lower() for name in attributes}
        return [{k: v for k, v in ad.items() if k in wanted} for ad in self.shown_jobs]

    def procs(self, constraint: str, attributes: Sequence[str], known: object) -> ProcAds:
        """Return the same, as if nothing of it were known."""
        self.fail()
        return ProcAds.of(self.jobs(constraint, attributes))

    def history(
        self, constraint: str, attributes: Sequence[str], most: int, stop: str = ""
    ) -> list[Record]:
        """Return what was given."""
        self.fail()
        self.asked.append(constraint)
        return self.shown_past[:most]

    def submitters(self) -> list[Record]:
        """Return what was given."""
        return self.shown_submitters

    def fail(self) -> Any:
        """Raise what `silence` says, if it says anything."""
        if self.silence:
            raise AdapterError(self.silence)


@dataclass
class Noted:
    """A pool that notes what it is asked, and refuses what it is told to.

    Attributes
    ----------
    asked : list
        Requests in order.
    replies : dict of str to Reply
        By attribute, action, submitter or "Negotiate", what is not done.
    """

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)

    def edit(self, jobs: Sequence[int], attribute: str, value: str) -> list[Reply]:
        """Set an attribute."""
        self.asked.append((attribute, value, tuple(jobs)))
        return [self.replies.get(attribute, ("done", ""))] * len(jobs)

    def act(self, action: JobAction, job: int, reason: str = "") -> Reply:
        """Do something with a job."""
        self.asked.append((action, reason, (job,)))
        return self.replies.get(action, ("done", ""))

    def set_factors(self, factors: Mapping[str, float]) -> dict[str, Reply]:
        """Set factors."""
        self.asked.append(("factors", dict(factors)))
        return {name: self.replies.get(name, ("done", "")) for name in factors}

    def reschedule(self) -> Reply:
        """Ask for a negotiation."""
        self.asked.append(("negotiate",))
        return self.replies.get("Negotiate", ("done", ""))

    def publish(self, table: Any) -> Reply:
        """Write a table."""
        self.asked.append(("table", table))
        return self.replies.get("table", ("done", ""))
