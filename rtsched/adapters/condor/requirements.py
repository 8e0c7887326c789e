"""Job ads in the models: one set of rules for a submission and for a queued job.

Source: appendix "Job ClassAd Attributes" of HTCondor's manual; docs/condor/user.md for ours.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.adapters.condor import matching
from rtsched.adapters.condor.expressions import (
    KEYWORDS,
    gpus_problem,
    gpus_required,
    parsed,
    tokens_of,
)
from rtsched.adapters.condor.ids import job_id, schedd_of
from rtsched.adapters.condor.matching import SlotRequest
from rtsched.adapters.condor.pool_state import HELD
from rtsched.adapters.live import dag_key
from rtsched.adapters.requirements import (
    CHOICES,
    LOAD,
    ODDS,
    UNPROMISED,
    Requirements,
    is_odds,
    notify_choice,
    shortened,
)
from rtsched.logs.classads import Expression, names_slot, number, text
from rtsched.model.jobs import MOST_ROUNDS, Kind
from rtsched.text import counted, similar

if TYPE_CHECKING:
    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.adapters.condor.ids import JobNames
    from rtsched.logs.classads import Record, Value

KILOBYTE, MEGABYTE = 1 << 10, 1 << 20
PARALLEL = 11
"""JobUniverse of parallel jobs."""
LAST = 2.0**33
"""No deadline is later, seconds since the epoch: the year 2242."""
MOST = 1 << 20
"""More slots, or CPUs on one, are not counted."""
GREATEST = 1 << 60
"""No job asks for more of anything."""
_ON_SLOTS = (5, 10, PARALLEL, 13)
"""Universes whose jobs take slots: vanilla, java, parallel, vm."""

_LOAD_ATTRIBUTES = {name: "rt" + name.replace("_", "") for name in LOAD}

REQUEST_ATTRIBUTES: dict[str, str] = {
    "rtdeadline": "RtDeadline",
    "rtruntime": "RtRunTime",
    "rtsigma": "RtSigma",
    "rtcms": "RtCms",
    "rtcps": "RtCps",
    "rtsetuplink": "RtSetupLink",
    "rtsetupnode": "RtSetupNode",
    "rtrounds": "RtRounds",
    "rtminnodes": "RtMinNodes",
    "rtclass": "RtClass",
    "rtspeedup": "RtSpeedup",
    "rtcheckpoint": "RtCheckpoint",
    "rtdag": "RtDag",
    "rtafter": "RtAfter",
    "rtmessagetime": "RtMessageTime",
    "rtnotify": "RtNotify",
    "rtodds": "RtOdds",
    "rtelse": "RtElse",
}
"""Attributes that users write, by their names in lower case."""

OURS = (
    *("RtToken", "RtAdmission", "RtVerdict", "RtMessage", "RtNodeSet", "RtRankSet"),
    *("RtPromise", "RtPlannedStart", "RtFraction", "RtNode", "RtWhy", "RtLimit", "RtHosts"),
    *("RtJobPrio", "RtPerSlot", "RtSlots"),
)
"""Attributes that only rtsched writes."""

CRON = ("CronMinute", "CronHour", "CronDayOfMonth", "CronMonth", "CronDayOfWeek")
"""Attributes of a job that starts at the times of a crontab."""

AT_EXIT = ("OnExitRemove", "OnExitHold")
"""Whether a job leaves the queue when it ends, and whether it is held then."""

_CONSTANT = re.compile(r"[\w\s.()!&|=?:]{1,100}", re.ASCII)
"""Literals and conditions; no arithmetic, and nothing that nests deeply."""

_EXACT = 2.0**53
"""Whole numbers up to here are exact."""
_REQUESTS = ("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs")
_MOVING = re.compile(r"(?i)(?<![\w.])(?!qdate\b|my\b|int\b|floor\b|ceiling\b|round\b)[a-z_]\w*")
"""A word in an expression that is no constant of the job."""

_RANGE = re.compile(r"([1-9]\d{0,6})-([1-9]\d{0,6})", re.ASCII)
"""RtHosts: host counts that were asked for, where MinHosts and MaxHosts hold the planned one."""
_WRITTEN = frozenset(name.lower() for name in OURS)
_NUMBERS = ("rtdeadline", "rtruntime", *_LOAD_ATTRIBUTES.values(), "rtminnodes", "rtmessagetime")
_OF_ANY_JOB = frozenset({"rtruntime", "rtcheckpoint", "rtnotify", "rtelse"})
_POSITIVE = ("rtruntime", "rtsigma", "rtcps")
_MOST_AFTER = 1000


@dataclass(frozen=True)
class CondorRequirements(Requirements):
    """Requirements of a job of HTCondor, whose partition is one of slots.

    `whole`: the cluster is one job, whatever number of procs it has. `deadline` in seconds since
    the epoch, `message_time` in seconds.
    """

    deadline: float = math.inf
    whole: bool = False
    after: tuple[int, ...] = ()
    message_time: float = 0.0
    dag: int = -1
    checkpoint: bool = False

    @property
    def together(self) -> int:
        """How many procs of its cluster run on one slot at a time."""
        return self.tasks_per_node if self.kind == Kind.ARRAY else 1


def needs_rtsched(ad: Record) -> bool:
    """Return whether a job asks for what only rtsched can give.

    Its run time, and that it keeps checkpoints, any job may say.
    """
    return any(ad.get(name) is not None for name in REQUEST_ATTRIBUTES if name not in _OF_ANY_JOB)


def is_whole(ad: Record) -> bool:
    """Return whether all procs of a job's cluster are one job: a divisible load."""
    return ad.get("rtsigma") is not None


def is_late_materialized(ad: Record) -> bool:
    """Return whether the schedd makes a job's procs bit by bit: max_materialize, max_idle."""
    return any(ad.get(name) is not None for name in ("jobfactoryid", "jobmaterializedigestfile"))


def run_time(ad: Record, facts: CondorFacts) -> float:
    """Return how long a job says that it runs, seconds; inf: it does not say.

    A limit of the job's own counts where it states no run time, the site's default last.
    """
    stated = number(ad, "rtruntime")
    if not (math.isfinite(stated) and stated > 0):
        stated = number(ad, "allowedexecuteduration", "allowedjobduration")
    return stated if math.isfinite(stated) and stated > 0 else facts.run_time


def margin_of(ad: Record, facts: CondorFacts) -> float:
    """Return by how much a job outlives its stated run time at the latest, seconds.

    It may have asked for more time to leave its slot than the margin contains.
    """
    return facts.margin + float(facts.beyond(vacate_time(ad)))


def vacate_time(ad: Record) -> float:
    """Return the seconds in which a job must leave its slot: as it says, or as any job of rtsched.

    nan: it asks rtsched for nothing, and has the machine's own. A job whose run time is a limit of
    HTCondor's own is such a job.
    """
    own = number(ad, "jobmaxvacatetime")
    if math.isfinite(own):
        return max(own, 0.0)
    plain = ad.keys().isdisjoint(("rtruntime", "rtdeadline"))
    return math.nan if plain or is_limited(ad) else 0.0


def is_limited(ad: Record) -> bool:
    """Return whether the run time of a job that wants no promise is a limit of HTCondor's own."""
    stated = ad.get("rtruntime")
    own = (ad.get("allowedexecuteduration"), ad.get("allowedjobduration"))
    return stated is not None and stated in own and "rtdeadline" not in ad and "rtlimit" not in ad


def requirements_of(ad: Record, facts: CondorFacts, *, fresh: bool = True) -> CondorRequirements:
    """Return the requirements of a job; `fresh`: nothing was promised to it yet.

    What was promised once stays so when slots become fewer or smaller: that is no change of the
    job, and they may come back in time.
    """
    problem = _malformed(ad)
    if problem:
        return CondorRequirements(problem=problem)
    length, after, asks = run_time(ad, facts), _after(ad, facts.names), fresh and needs_rtsched(ad)
    problem = _problem(ad, facts, length, after is not None) if asks else ""
    if not fresh and needs_rtsched(ad):
        problem = _unfixed(ad, fresh=False) or _endless(ad)  # by its user, since
    part = part_of(ad, facts) if needs_rtsched(ad) else ""
    request = request_of(ad, part, facts)
    problem = problem or (_unmet(ad, request, facts) if asks else "")
    needs = CondorRequirements(
        deadline=_or(number(ad, "rtdeadline"), math.inf),
        whole=is_whole(ad),
        after=after or (),
        message_time=_or(number(ad, "rtmessagetime"), 0.0),
        dag=_dag(ad),
        partition=part,
        node_request=request.words,
        checkpoint=ad.get("rtcheckpoint") is True,
        problem=problem,
    )
    if is_whole(ad):
        whole = _divisible(ad, facts, length, needs)
        return whole if asks else replace(whole, problem=needs.problem)
    least, most = hosts(ad)
    nodes = nodes_for(ad, needs.partition, facts, least)
    problem = problem or (_too_many(least, nodes) if asks else "")
    margin = margin_of(ad, facts)
    needs = replace(needs, size=least, wall_time=length + margin, problem=problem)
    if most == least or text(ad, "rtspeedup") == "none" or not needs_rtsched(ad):
        return needs
    return needs.as_moldable(least, most, length, margin)


def hosts(ad: Record) -> tuple[int, int]:
    """Return the fewest and most slots that a job runs on at a time, as its user asked."""
    if number(ad, "jobuniverse") != PARALLEL:
        return 1, 1
    most = _count(ad, "maxhosts", 1)
    least = _count(ad, "minhosts", most)
    asked = _RANGE.fullmatch(text(ad, "rthosts") or "")
    if asked is not None and least == most:  # as planned; else its user changed it since
        return min(int(asked[1]), MOST), min(int(asked[2]), MOST)
    return min(least, most), most


def _divisible(
    ad: Record, facts: CondorFacts, length: float, needs: CondorRequirements
) -> CondorRequirements:
    """Return the requirements of a load that is cut into the procs of its cluster.

    Its stated run time, where it has one, holds it.
    """
    load = {name: _or(number(ad, key), 0.0) for name, key in _LOAD_ATTRIBUTES.items()}
    margin = margin_of(ad, facts)
    load["setup_node"] += margin
    most = _count(ad, "totalsubmitprocs", 1)
    least = min(_count(ad, "rtminnodes", 1), most)
    nodes = nodes_for(ad, needs.partition, facts, most)
    most = max(least, min(most, nodes))
    needs = replace(needs, problem=needs.problem or _too_many(least, nodes))
    too_long = f"its load takes longer than its run time on {counted(most, 'slot')}"
    needs = replace(needs, rounds=_count(ad, "rtrounds", 1), setup_once=margin)
    return needs.as_divisible(load, least, most, length + margin, too_long)


def _malformed(ad: Record) -> str:
    """Return which attribute of ours makes no sense, one sentence; empty: all do."""
    for name, value in ad.items():
        if not name.startswith("rt") or value is None or name in _WRITTEN:
            continue
        if name in REQUEST_ATTRIBUTES:
            problem = _wrong(name, value, ad)
        else:
            meant = similar(name, REQUEST_ATTRIBUTES, likeness=0.8)
            known = REQUEST_ATTRIBUTES[meant[0]] if meant else ""
            problem = f"{name} is unknown; did you mean {known}?" if known else ""
        if problem:
            return problem
    load = [key for key in _LOAD_ATTRIBUTES.values() if ad.get(key) is not None]
    three = ("rtsigma", "rtcms", "rtcps")
    if load and not all(ad.get(key) is not None for key in three):
        return "RtSigma, RtCms and RtCps describe a divisible load together; give all three"
    if ad.get("rtrounds") is not None and not load:
        return "RtRounds needs RtSigma, RtCms and RtCps"
    if ad.get("rtmessagetime") is not None and ad.get("rtafter") is None:
        return "RtMessageTime needs RtAfter"
    return ""


def _wrong(name: str, value: object, ad: Record) -> str:
    """Return what is wrong with one attribute."""
    shown = REQUEST_ATTRIBUTES[name]
    if name in _NUMBERS:
        found = number(ad, name)
        if not math.isfinite(found) or found < 0 or isinstance(value, bool):
            such = "time() + 3600" if name == "rtdeadline" else "600"
            return f"{shown} must be a number such as {such}, not {shortened(value)}"
        if name in _POSITIVE and found <= 0:
            return f"{shown} must be above 0"
        if name == "rtdeadline" and found > LAST:
            return f"{shown} must be seconds since the epoch, not {shortened(value)}"
    elif name == "rtrounds":
        found = number(ad, name)
        if isinstance(value, bool) or found not in range(1, MOST_ROUNDS + 1):
            given = shortened(value)
            return f"{shown} must be a whole number from 1 to {MOST_ROUNDS}, not {given}"
    elif name == "rtspeedup" and value not in {"linear", "none"}:
        return f'{shown} must be "linear" or "none", not {shortened(value)}'
    elif name == "rtcheckpoint" and not isinstance(value, bool):
        return f"{shown} must be true or false, not {shortened(value)}"
    elif name == "rtodds" and str(value) == "undefined":  # as `rtsched take` removes odds
        return ""
    elif name == "rtodds" and (isinstance(value, bool) or not is_odds(number(ad, name))):
        return f"{shown} must be {ODDS}, not {shortened(value)}"
    elif name == "rtnotify" and not notify_choice(str(value)):
        return f"{shown} must be {CHOICES}, not {shortened(value)}"
    elif name == "rtelse" and value not in UNPROMISED:
        return f'{shown} must be "reject" or "run", not {shortened(value)}'
    elif name in {"rtdag", "rtafter", "rtclass"} and not text(ad, name):
        return f"{shown} must be a text in quotes, not {shortened(value)}"
    return ""


def _problem(ad: Record, facts: CondorFacts, length: float, known: bool) -> str:
    """Return why a job that wants something of rtsched cannot get it; empty if it can."""
    universe = number(ad, "jobuniverse")
    if math.isfinite(universe) and universe not in _ON_SLOTS:
        return "jobs of this universe get no promise; use vanilla, container or parallel"
    if universe == PARALLEL and is_whole(ad):
        return "a divisible load is a vanilla cluster of several procs, not a parallel job"
    if universe == PARALLEL and _count(ad, "totalsubmitprocs", 1) > 1:
        return "a parallel job with a promise needs exactly one queue statement, with machine_count"
    if is_late_materialized(ad) and math.isfinite(number(ad, "rtdeadline")):
        return "clusters with max_materialize or max_idle get no promise; leave these out"
    if not known:
        return 'RtAfter names jobs with their procs, such as "12.0 13.0", at most 1000 of them'
    if ad.get("rtafter") is not None and not math.isfinite(number(ad, "rtdeadline")):
        return "RtAfter needs RtDeadline; for jobs without a deadline use DAGMan"
    if not math.isfinite(length) and not is_whole(ad):
        return "states no run time, so its end cannot be promised; set +RtRunTime"
    if problem := _unfixed(ad, fresh=True) or _endless(ad):
        return problem
    if number(ad, "requestgpus") > 0 and not facts.shared:
        return "jobs that need GPUs get no promise"
    if facts.shared and universe == PARALLEL:
        return "a parallel job gets no promise where jobs share slots (share_nodes)"
    if facts.parts.nodes and not part_of(ad, facts):
        return _too_large(ad, facts)
    return ""


def _unfixed(ad: Record, *, fresh: bool) -> str:
    """Return what of a job is not fixed while it waits; empty: all that counts is.

    Such a job starts at another time, or takes other amounts, than could be planned. Of a job that
    is not `fresh`, amounts that have no value count only where they name the slot: others had one.
    """
    if math.isfinite(number(ad, "rtdeadline")):
        if any(ad.get(name.lower()) is not None for name in CRON):
            return (
                "jobs with cron_minute, cron_hour, ... get no promise; submit a job for each time, "
                "with deferral_time in seconds since the epoch"
            )
        written = ad.get("deferraltimewritten", ad.get("deferraltime"))
        if isinstance(written, str) and _MOVING.search(written):
            return (
                f"deferral_time ({_cut(written)}) changes while the job waits; give a number of "
                "seconds since the epoch"
            )
    for name in _REQUESTS:
        value = ad.get(name.lower())
        if isinstance(value, Expression) and (fresh or names_slot(value)):
            option = f"request_{name.removeprefix('Request').lower()}"
            return f"{option} has no value until the job is matched; give a number"
    return ""


def _endless(ad: Record) -> str:
    """Return why a job with a deadline stays in the queue however it ends; empty: it need not."""
    if not math.isfinite(number(ad, "rtdeadline")):
        return ""
    remove, hold = (ad.get(f"{name.lower()}written", ad.get(name.lower())) for name in AT_EXIT)
    if _constant(hold) is True:
        return (
            f"on_exit_hold = {_cut(_shown(hold))} holds the job whenever it ends; leave it out, "
            "or write on_exit_hold = ExitCode != 0"
        )
    if _constant(remove) is False:
        return (
            f"on_exit_remove = {_cut(_shown(remove))} queues the job again whenever it ends; "
            "leave it out, or write on_exit_remove = ExitCode == 0"
        )
    return ""


def _constant(value: Value) -> bool | None:
    """Return whether a condition is true, if that follows from itself; None: it may be either.

    One that is undefined or an error is not true.
    """
    if isinstance(value, str):
        literal = _CONSTANT.fullmatch(value) is not None
        words = [token.text.lower() for token in tokens_of(value) if token.kind == "name"]
        tree = parsed(value) if literal and KEYWORDS.issuperset(words) else None
        if tree is None:
            return None
        value = tree.eval()
    if value is None:
        return None
    return type(value) in {bool, int, float} and bool(value)


def _shown(value: Value) -> str:
    """Return a condition as its user wrote it, or much the same."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value).strip()


def _too_large(ad: Record, facts: CondorFacts) -> str:
    """Return that no slot is as large as a job asks for; of disk only if it lacks that."""
    size, kind = size_of(ad), text(ad, "rtclass")
    sizes = [f"{size.cpus} CPUs", f"{size.memory // MEGABYTE} MB"]
    sizes += [counted(size.gpus, "GPU")] if size.gpus else []
    if facts.shared and _part(size._replace(disk=0), kind, facts):
        sizes.append(f"{-(-size.disk // MEGABYTE)} MB of disk")
    all_of_it = f"{', '.join(sizes[:-1])} and {sizes[-1]}"
    return f"no slot{f' of class {shortened(kind)}' if kind else ''} has {all_of_it}"


def request_of(ad: Record, part: str, facts: CondorFacts) -> SlotRequest:
    """Return what a job that rtsched plans asks of the slots of a part.

    Requirements count for jobs with a deadline.
    """
    wants_gpus = facts.shared and needs_rtsched(ad) and size_of(ad).gpus > 0
    is_due = math.isfinite(number(ad, "rtdeadline"))
    return SlotRequest(
        matching.condition_in(ad) if is_due else "", gpus_required(ad) if wants_gpus else "", part
    )


def _unmet(ad: Record, request: SlotRequest, facts: CondorFacts) -> str:
    """Return why no slot meets a request; empty if one does."""
    wrong = matching.wrong_in(request.requirements) if request.requirements else ""
    wrong = wrong or (gpus_problem(request.gpus) if request.gpus else "")
    if wrong or facts.sets is None or not request.words:
        return wrong
    if request.gpus and not facts.sets[request._replace(requirements="").words].any():
        return f"no slot has only GPUs that suit its require_gpus ({_cut(request.gpus)})"
    if not request.requirements or nodes_for(ad, request.part, facts):
        return ""
    alone = facts.sets.unmet(request.requirements)
    if alone:
        return f"no slot meets its requirement {_cut(alone)}"
    conditions = " && ".join(matching.conjuncts_of(request.requirements))
    shown = f"its requirements ({_cut(conditions)})"
    if not facts.sets[SlotRequest(request.requirements).words].any():
        return f"no slot meets all of {shown}"
    kind = text(ad, "rtclass")
    of_class = f" of class {shortened(kind)}" if kind else ""
    return f"no slot{of_class} that has what it requests meets {shown}"


def _cut(expression: str, length: int = 80) -> str:
    return expression if len(expression) <= length else f"{expression[:length]}..."


def part_of(ad: Record, facts: CondorFacts, jobs: int = 1) -> str:
    """Return the partition of slots that so many such jobs may share; empty if none fits."""
    return _part(size_of(ad), text(ad, "rtclass"), facts, jobs)


def nodes_for(ad: Record, part: str, facts: CondorFacts, otherwise: int = 0, jobs: int = 1) -> int:
    """Return how many rows of a part meet a job's request and have the disk for so many of it."""
    disk = _taken(size_of(ad), facts, jobs).disk if facts.shared else 0
    words = request_of(ad, part, facts).words
    if words and part and facts.sets is not None:
        return facts.sets.count(words, disk) or otherwise
    return facts.parts.count(part, disk, otherwise)


class Size(NamedTuple):
    """What a job asks for on each slot: CPUs, bytes of memory, GPUs, bytes of disk."""

    cpus: int
    memory: int
    gpus: int
    disk: int


def size_of(ad: Record) -> Size:
    """Return what a job asks for on each slot."""
    names = ("cpus", "memory", "gpus", "disk")
    cpus, memory, gpus, disk = (_requested(ad, f"request{name}") for name in names)
    return Size(
        min(int(_or(cpus, 1.0)), GREATEST),
        min(int(_or(memory, 0.0) * MEGABYTE), GREATEST),
        min(math.ceil(_or(gpus, 0.0)), GREATEST),
        min(math.ceil(max(_or(disk, 0.0), 0.0)) * KILOBYTE, GREATEST),
    )


def _requested(ad: Record, name: str) -> float:
    """Return a request; nan: it is none. One beyond all exact numbers is as large as any."""
    value = ad.get(name)
    if isinstance(value, (int, float)) and value > _EXACT:
        return _EXACT
    return number(ad, name)


def _part(size: Size, kind: str | None, facts: CondorFacts, jobs: int = 1) -> str:
    if facts.shared:
        return facts.parts.of(kind or "", *_taken(size, facts, jobs))
    return facts.parts.of(kind or "", size.cpus, size.memory)


def _taken(size: Size, facts: CondorFacts, jobs: int) -> Size:
    """Return what so many jobs take of a slot that they share."""
    memory = int(facts.parts.rounded(np.array(size.memory, np.int64)))
    disk = int(facts.parts.rounded_disk(np.array(size.disk, np.int64)))
    each = size._replace(memory=memory, disk=disk)
    return Size(*(min(amount * jobs, GREATEST) for amount in each))


def _too_many(least: int, nodes: int) -> str:
    """Return whether a job needs more slots than there are."""
    if least > nodes:
        return f"needs {counted(least, 'slot')} at a time, the pool has {nodes} suitable ones"
    return ""


def _after(ad: Record, names: JobNames) -> tuple[int, ...] | None:
    """Return the jobs that a job waits for; None if the attribute makes no sense."""
    words = (text(ad, "rtafter") or "").replace(",", " ").split()
    cluster = number(ad, "clusterid")
    here = schedd_of(job_id(int(cluster), 0)) if cluster >= 0 else 0
    found = tuple(dict.fromkeys(names.number(word, here) if "." in word else -1 for word in words))
    return None if -1 in found or len(found) > _MOST_AFTER else found


def _dag(ad: Record) -> int:
    """Return the key of a job's task graph: by the name that its user gave, or by its DAGMan."""
    name = text(ad, "rtdag")
    if name:
        return dag_key(text(ad, "owner") or "", name)
    manager = number(ad, "dagmanjobid")
    return int(manager) if math.isfinite(manager) and manager >= 0 else -1


def _count(ad: Record, name: str, otherwise: int) -> int:
    """Return a number of slots or procs, 1 at least."""
    return int(min(max(_or(number(ad, name), float(otherwise)), 1.0), MOST))


def _or(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise


OVER_TIME = "rtsched: run time"
"""How the reason begins of a removal, or of a hold, that ends a job at its own run time."""

AT_ONCE_S = 5.0
"""Seconds from a submission to its hold, where it is held from the start."""

SPOOLING = 16
"""HoldReasonCode of a job whose files are on their way to the schedd."""


def is_held(ad: Record) -> bool:
    """Return whether a job is held by somebody, and waits for a release."""
    return number(ad, "jobstatus") == HELD and not is_passing(ad)


def is_passing(ad: Record) -> bool:
    """Return whether a job is held by nobody, and goes on by itself."""
    return is_overrun(ad) or is_spooling(ad)


def is_spooling(ad: Record) -> bool:
    """Return whether a job is held since its submission, for its files are on their way.

    One that was held later is not: its owner may write HoldReasonCode.
    """
    coded = number(ad, "jobstatus") == HELD and number(ad, "holdreasoncode") == SPOOLING
    return coded and not number(ad, "enteredcurrentstatus") > number(ad, "qdate") + AT_ONCE_S


def is_overrun(ad: Record) -> bool:
    """Return whether a job is held for a moment since it outlived its run time."""
    held = number(ad, "jobstatus") == HELD
    return held and (text(ad, "holdreason") or "").startswith(OVER_TIME)
