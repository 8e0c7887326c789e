"""Questions on the query socket and the reports that answer them, for both sides.

A question is a JSON object, `{"ask": "status", ...}`; its answer is `{"report": {...}}` or
`{"error": "...", "code": "..."}`. Times are seconds since the epoch, null where there is none.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rtsched.errors import RtschedError

Time: TypeAlias = float | None

MOST_COUNTED = 1_000_000_000
"""Tasks, processors and the like that a job may ask for at the most."""

MOST_ROUNDS = 64
"""`rtsched.model.jobs.MOST_ROUNDS`; users' commands start without numpy, which that imports."""

ChoiceKind: TypeAlias = Literal[
    "later",
    "smaller",
    "shorter",
    "fewer-gpus",
    "gpu-type",
    "partition",
    "guaranteed",
    "likely",
    "likely-later",
]


class Report(msgspec.Struct, frozen=True):
    """Base of all reports."""


class Question(msgspec.Struct, frozen=True, tag_field="ask", forbid_unknown_fields=True):
    """Base of all questions; `Answer` is the report that answers it."""

    Answer: ClassVar[type[Report]]


class Reason(msgspec.Struct, frozen=True):
    """Why something is so."""

    code: Annotated[str, Meta(description="Reason code; empty where there is none.")]
    text: Annotated[str, Meta(description="One sentence.")]


class Promise(msgspec.Struct, frozen=True):
    """A promise or a counter-offer, and the present plan to keep it."""

    job: Annotated[str, Meta(description="The batch system's job id; empty: none yet.")]
    name: Annotated[str, Meta(description="The job's name.")]
    user: Annotated[str, Meta(description="Its user.")]
    standing: Annotated[
        str,
        Meta(
            description="`offered`, `provisional`, `firm`, `at-risk` (as `late`), or how it was "
            "closed; `none`: the job has a deadline and was never promised it."
        ),
    ]
    deadline: Annotated[Time, Meta(description="Finish by.")]
    made_at: Annotated[Time, Meta(description="When it was promised.")]
    expires: Annotated[Time, Meta(description="When an offer expires.")] = None
    running: Annotated[bool, Meta(description="Whether the job runs.")] = False
    suspended: Annotated[bool, Meta(description="Whether it runs and is suspended.")] = False
    late: Annotated[
        bool, Meta(description="Whether it runs, or is planned, until later than promised.")
    ] = False
    start: Annotated[Time, Meta(description="Planned start, or when it started.")] = None
    end: Annotated[Time, Meta(description="Planned end at the latest.")] = None
    nodes: Annotated[tuple[str, ...], Meta(description="Planned nodes.")] = ()
    why: Annotated[str, Meta(description="Why it is in this state.")] = ""
    tasks: Annotated[int | None, Meta(description="Tasks of an array; null: it is none.")] = None
    waiting: Annotated[int | None, Meta(description="Tasks that have not been started.")] = None
    notify: Annotated[
        str,
        Meta(
            description="Events of which the user wants to be notified, with `+` between them, or "
            "`none`; empty: as for the user's other jobs."
        ),
    ] = ""
    odds: Annotated[
        float | None,
        Meta(description="Odds, 0 to 1, stated for a likely promise; null: it is guaranteed."),
    ] = None
    odds_now: Annotated[
        float | None,
        Meta(
            description="Odds, 0 to 1, of a likely promise by the latest estimate; null: there is "
            "none."
        ),
    ] = None
    unlikely: Annotated[
        bool,
        Meta(
            description="Whether these are below the share of those stated at which the site has "
            "users notified (`warn_below` of `[likely]`)."
        ),
    ] = False
    text: Annotated[
        str,
        Meta(
            description="What the batch system printed when it was given, with dates and the "
            "present plan; empty: an offer, or a closed promise."
        ),
    ] = ""


class Verdict(msgspec.Struct, frozen=True):
    """What was said to one submission."""

    time: Annotated[float, Meta(description="When.")]
    job: Annotated[str, Meta(description="The batch system's name of the job; empty: none.")]
    name: Annotated[str, Meta(description="The job's name.")]
    verdict: Annotated[
        str,
        Meta(
            description="`admit`, `reject`, `defer` or `pass`; `run`: accepted without the promise "
            "that it asked for; `cancel`: its promise was cancelled."
        ),
    ]
    codes: Annotated[tuple[str, ...], Meta(description="Reason codes.")]
    text: Annotated[str, Meta(description="The message to the user.")]
    offer: Annotated[Time, Meta(description="Counter-offer: the deadline that was feasible.")] = (
        None
    )
    user: Annotated[str, Meta(description="Who submitted; shown to admins only.")] = ""


class Peer(msgspec.Struct, frozen=True):
    """The daemon of another controller's host, by what it wrote beside the database."""

    host: Annotated[str, Meta(description="Host name as the batch system knows it.")]
    state: Annotated[
        str,
        Meta(
            description="`active`, `standby`, `stopped`, or `silent`: it has not written for "
            "some seconds."
        ),
    ]
    seen: Annotated[Time, Meta(description="When it last wrote, by its clock.")] = None


class StatusReport(Report, frozen=True):
    """How the daemon is, and the promises that the asker may see."""

    version: Annotated[str, Meta(description="Release of the daemon.")]
    mode: Annotated[
        Literal["live", "dry-run", "standby"],
        Meta(description="Whether it changes anything; `standby`: another host's daemon does."),
    ]
    system: Annotated[str, Meta(description="The batch system.")]
    now: Annotated[float, Meta(description="The daemon's clock.")]
    started: Annotated[float, Meta(description="When the daemon started.")]
    looked: Annotated[Time, Meta(description="Start of the last complete poll.")]
    queued: Annotated[int, Meta(description="Jobs that wait.")]
    running: Annotated[int, Meta(description="Jobs that run.")]
    nodes: Annotated[int, Meta(description="Nodes in all.")]
    usable: Annotated[int, Meta(description="Nodes that accept jobs.")]
    cycle_s: Annotated[Time, Meta(description="Duration of the last cycle, seconds.")]
    standings: Annotated[dict[str, int], Meta(description="Promises by state.")]
    answers: Annotated[
        dict[str, int],
        Meta(description="Submissions since the daemon's start, by what was answered."),
    ] = {}
    lag_s: Annotated[
        Time,
        Meta(
            description="Longest time that a submission waited before the daemon read it, in the "
            "last minute or two, seconds; admins see it."
        ),
    ] = None
    problems: Annotated[tuple[str, ...], Meta(description="Problems, one sentence each.")] = ()
    everyone: Annotated[
        bool, Meta(description="Whether promises of all users are listed, or only the caller's.")
    ] = False
    promises: Annotated[tuple[Promise, ...], Meta(description="Open ones, by planned start.")] = ()
    unpromised: Annotated[
        tuple[Promise, ...],
        Meta(
            description="Jobs that wait or run and whose deadline is not promised, or not any "
            "more, by submission; the first 1,000."
        ),
    ] = ()
    metrics: Annotated[str, Meta(description="Metrics as Prometheus text, if requested.")] = ""
    peers: Annotated[
        tuple[Peer, ...], Meta(description="Daemons on the other controllers' hosts.")
    ] = ()


class Status(Question, frozen=True, tag="status"):
    """Ask how the daemon is, and what the asker is promised."""

    Answer = StatusReport
    metrics: Annotated[bool, Meta(description="Return the metrics too.")] = False


class JobReport(msgspec.Struct, frozen=True):
    """What the batch system shows of a job."""

    job: Annotated[str, Meta(description="The batch system's name of it.")]
    name: Annotated[str, Meta(description="The job's name.")]
    user: Annotated[str, Meta(description="Its user.")]
    partition: Annotated[str, Meta(description="Its partition.")]
    state: Annotated[
        Literal["waiting", "running", "suspended", "ended"], Meta(description="What it does.")
    ]
    size: Annotated[int, Meta(description="Nodes that it requests or has.")]
    wall_time_s: Annotated[Time, Meta(description="Seconds it may run.")]
    submit: Annotated[Time, Meta(description="When it was submitted.")]
    deadline: Annotated[Time, Meta(description="Finish by, as requested.")] = None
    start: Annotated[Time, Meta(description="When it started.")] = None
    end: Annotated[Time, Meta(description="When it ended, or ends at the latest.")] = None
    held: Annotated[bool, Meta(description="Whether it waits for a release.")] = False


class StartEstimate(msgspec.Struct, frozen=True):
    """When a job is estimated to start and end.

    Where an end of an interval is null and the other is not, it is later than what was simulated.
    """

    job: Annotated[
        str, Meta(description="The batch system's name of it; empty: it is not submitted.")
    ]
    name: Annotated[str, Meta(description="The job's name.")]
    user: Annotated[str, Meta(description="Its user.")]
    state: Annotated[
        Literal["waiting", "running", "unsubmitted"], Meta(description="What it does.")
    ]
    basis: Annotated[
        Literal["estimate", "plan", "none"],
        Meta(
            description="`estimate`: simulations of the queue; `plan`: the job has a promise, and "
            "this is its plan; `none`: there is no estimate, and `why` says why."
        ),
    ]
    start: Annotated[Time, Meta(description="Median of its start, or when it started.")] = None
    start_low_80: Annotated[Time, Meta(description="Start of the 80 % interval of its start.")] = (
        None
    )
    start_high_80: Annotated[Time, Meta(description="End of that interval.")] = None
    start_low_95: Annotated[Time, Meta(description="Start of the 95 % interval of its start.")] = (
        None
    )
    start_high_95: Annotated[Time, Meta(description="End of that interval.")] = None
    end: Annotated[
        Time, Meta(description="Median of its end; of a plan, its end at the latest.")
    ] = None
    end_low_80: Annotated[Time, Meta(description="Start of the 80 % interval of its end.")] = None
    end_high_80: Annotated[Time, Meta(description="End of that interval.")] = None
    end_low_95: Annotated[Time, Meta(description="Start of the 95 % interval of its end.")] = None
    end_high_95: Annotated[Time, Meta(description="End of that interval.")] = None
    latest: Annotated[
        Time, Meta(description="When it ends at the latest, of a job that runs; null: no limit.")
    ] = None
    why: Annotated[str, Meta(description="Why there is no estimate, one sentence.")] = ""
    waits: Annotated[tuple[Reason, ...], Meta(description="What it waits for.")] = ()


class ExplainReport(Report, frozen=True):
    """What became of a job or of a submission, and why."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    job: Annotated[JobReport | None, Meta(description="The job, if the batch system has it.")] = (
        None
    )
    promise: Annotated[Promise | None, Meta(description="Its promise, open or closed.")] = None
    verdicts: Annotated[tuple[Verdict, ...], Meta(description="Latest first.")] = ()
    waits: Annotated[tuple[Reason, ...], Meta(description="Why it waits.")] = ()
    helps: Annotated[tuple[str, ...], Meta(description="What the user could do.")] = ()
    terms: Annotated[dict[str, float], Meta(description="Terms of its priority.")] = {}
    estimate: Annotated[
        StartEstimate | None, Meta(description="When it is estimated to start and end.")
    ] = None


class Explain(Question, frozen=True, tag="explain"):
    """Ask what became of a job, or of the asker's last submissions."""

    Answer = ExplainReport
    job: Annotated[str, Meta(description="The batch system's name of it; empty: none.")] = ""
    last: Annotated[
        int, Meta(ge=0, le=1000, description="Return so many of the last verdicts.")
    ] = 1


class Choice(msgspec.Struct, frozen=True):
    """What a job could have in place of what it asks for, as it would be accepted now."""

    number: Annotated[int, Meta(description="By which `rtsched take` names it.")]
    kind: Annotated[
        ChoiceKind,
        Meta(
            description="What is changed first of all; the deadline may be later too. "
            "`guaranteed`: in place of odds; `likely`: with odds, or with lower ones; "
            "`likely-later`: with odds by a later deadline."
        ),
    ]
    text: Annotated[str, Meta(description="What is changed, in words.")]
    deadline: Annotated[float, Meta(description="Finish by.")]
    start: Annotated[Time, Meta(description="Planned start; null: with odds nothing is planned.")]
    end: Annotated[Time, Meta(description="Planned end at the latest; null: as `start`.")]
    nodes: Annotated[tuple[str, ...], Meta(description="Planned nodes.")] = ()
    options: Annotated[
        tuple[str, ...],
        Meta(description="Words of the command line (sbatch, condor_submit) that ask for it."),
    ] = ()
    take: Annotated[str, Meta(description="The command by which a held menu's is submitted.")] = ""
    held: Annotated[
        bool,
        Meta(description="Whether it is reserved for the user; if not, others may take it first."),
    ] = False
    odds: Annotated[
        float | None,
        Meta(description="Odds, 0 to 1, that it asks for and has now; null: guaranteed."),
    ] = None


class FeasibleReport(Report, frozen=True):
    """The earliest deadline that a job would be promised now; nothing is held for it."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    feasible: Annotated[
        bool, Meta(description="Whether the deadline asked for, or any at all, can be promised.")
    ]
    deadline: Annotated[Time, Meta(description="Earliest deadline that would be promised.")] = None
    start: Annotated[Time, Meta(description="Planned start.")] = None
    end: Annotated[Time, Meta(description="Planned end at the latest.")] = None
    nodes: Annotated[tuple[str, ...], Meta(description="Planned nodes.")] = ()
    asking: Annotated[str, Meta(description="How to ask the batch system for it.")] = ""
    reasons: Annotated[tuple[Reason, ...], Meta(description="Why it is not feasible.")] = ()
    choices: Annotated[
        tuple[Choice, ...],
        Meta(description="What could be had in place of a deadline that is not feasible."),
    ] = ()
    expires: Annotated[Time, Meta(description="Until when choices are held.")] = None


class ChoicesReport(Report, frozen=True):
    """The menu of the asker's last rejected job."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    expires: Annotated[Time, Meta(description="When it ends; null: there is none.")] = None
    system: Annotated[str, Meta(description="The batch system.")] = ""
    choices: Annotated[tuple[Choice, ...], Meta(description="Closest to the request first.")] = ()


class Choices(Question, frozen=True, tag="choices"):
    """Ask what the asker could have in place of the last job that was rejected."""

    Answer = ChoicesReport


Positive: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Nodes: TypeAlias = Annotated[int, Meta(ge=1, le=10_000_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 60)]


class Feasible(Question, frozen=True, tag="feasible"):
    """Ask which deadline a job could have now."""

    Answer = FeasibleReport
    nodes: Annotated[Nodes, Meta(description="Nodes, at least.")] = 1
    nodes_max: Annotated[Nodes | None, Meta(description="Nodes, at most; null: `nodes`.")] = None
    time_s: Annotated[
        Positive | None,
        Meta(
            description="Seconds on `nodes` nodes; null: the partition's default, or derived "
            "from its load."
        ),
    ] = None
    partition: Annotated[str, Meta(description="Partition; empty: the default one.")] = ""
    account: Annotated[str, Meta(description="Account; empty: the default one.")] = ""
    qos: Annotated[str, Meta(description="QOS; empty: the default one.")] = ""
    deadline: Annotated[Time, Meta(description="Ask whether this one is feasible.")] = None
    tasks: Annotated[Count, Meta(description="Tasks; 0: not said.")] = 0
    cpus_per_task: Annotated[Count, Meta(description="Processors of a task; 0: not said.")] = 0
    memory: Annotated[Bytes, Meta(description="Bytes per node; 0: not said.")] = 0
    gpus: Annotated[Count, Meta(description="GPUs per node.")] = 0
    licenses: Annotated[str, Meta(description="Licences, such as `matlab:2`; empty: none.")] = ""
    constraint: Annotated[str, Meta(description="Features of nodes; empty: any.")] = ""
    nodelist: Annotated[str, Meta(description="Nodes to run on; empty: any.")] = ""
    exclude: Annotated[str, Meta(description="Nodes not to run on; empty: none.")] = ""
    array: Annotated[str, Meta(description="Tasks of an array, such as `1-100%8`.")] = ""
    sigma: Annotated[Positive | None, Meta(description="Divisible load: data units.")] = None
    cms: Annotated[NotNegative | None, Meta(description="Seconds to send one unit.")] = None
    cps: Annotated[Positive | None, Meta(description="Seconds to compute one unit.")] = None
    setup_link: Annotated[NotNegative | None, Meta(description="Seconds to set up a link.")] = None
    setup_node: Annotated[NotNegative | None, Meta(description="Seconds to set up a node.")] = None
    rounds: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] | None,
        Meta(description="Divisible load: most rounds in which each node takes its part."),
    ] = None


class EstimateRecord(msgspec.Struct, frozen=True):
    """How good the estimates of a period of the past were."""

    period_s: Annotated[float, Meta(description="Length of the period before now, seconds.")]
    jobs: Annotated[int, Meta(description="Estimates whose jobs have started since.")]
    covered_80: Annotated[
        float | None, Meta(description="Share of them within their 80 % interval.")
    ] = None
    covered_90: Annotated[
        float | None, Meta(description="Share of them within their 90 % interval.")
    ] = None
    covered_95: Annotated[
        float | None, Meta(description="Share of them within their 95 % interval.")
    ] = None
    error_s: Annotated[
        float | None, Meta(description="Mean absolute error of the median start, seconds.")
    ] = None
    error_by_limits_s: Annotated[
        float | None,
        Meta(description="That of requested times without further submissions, seconds."),
    ] = None


class WhenReport(Report, frozen=True):
    """When jobs are estimated to start and end, and how good such estimates were."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    estimated: Annotated[
        Time, Meta(description="Time of the state that was simulated; null: none yet.")
    ] = None
    jobs: Annotated[tuple[StartEstimate, ...], Meta(description="The next start first.")] = ()
    more: Annotated[int, Meta(description="Jobs that are not listed.")] = 0
    record: Annotated[
        tuple[EstimateRecord, ...], Meta(description="The last day, week and month.")
    ] = ()
    problem: Annotated[str, Meta(description="What is wrong with the estimates.")] = ""
    past: Annotated[
        int,
        Meta(description="Ended jobs that the process of the estimates has read since its start."),
    ] = 0


class When(Question, frozen=True, tag="when"):
    """Ask when jobs start: one, the asker's waiting ones, or one that is not submitted."""

    Answer = WhenReport
    job: Annotated[
        str, Meta(description="The batch system's name of it; empty: all that wait.")
    ] = ""
    request: Annotated[
        Feasible | None, Meta(description="A job that is not submitted, as `feasible` takes it.")
    ] = None


class Hold(Feasible, frozen=True, tag="hold"):
    """Ask which deadline a job could have, and have that, and its choices, held for a while.

    It counts as an offer, as after a rejected submission.
    """


class PendingChange(msgspec.Struct, frozen=True):
    """What the daemon would change in the batch system."""

    kind: Annotated[str, Meta(description="Kind of change, such as `reserve` or `set-priority`.")]
    job: Annotated[str, Meta(description="The job it is about; empty: none.")]
    text: Annotated[str, Meta(description="What is changed, in the batch system's terms.")]


class PlanReport(Report, frozen=True):
    """The present plan."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    mode: Annotated[Literal["live", "dry-run"], Meta(description="Whether it changes anything.")]
    version: Annotated[int, Meta(description="Increases with every change of promises or plan.")]
    entries: Annotated[tuple[Promise, ...], Meta(description="By planned start.")] = ()
    changes: Annotated[
        tuple[PendingChange, ...],
        Meta(description="In a dry run: what the last cycle would have changed."),
    ] = ()


class Plan(Question, frozen=True, tag="plan"):
    """Ask how all promises are to be kept; for admins."""

    Answer = PlanReport


class ChunkReport(Report, frozen=True):
    """A divisible job's nodes and the fraction of the load that each gets."""

    job: Annotated[str, Meta(description="The batch system's name of the job.")]
    deadline: Annotated[Time, Meta(description="Finish by, as promised.")]
    nodes: Annotated[tuple[str, ...], Meta(description="In sending order.")]
    fractions: Annotated[tuple[float, ...], Meta(description="One per node; they sum to 1.")]
    rounds: Annotated[
        tuple[float, ...],
        Meta(
            description="The share of its part that each node takes in each round; they sum to 1. "
            "Empty: all at once."
        ),
    ] = ()


class Chunk(Question, frozen=True, tag="chunk"):
    """Ask how a divisible job is cut; it may change until the job starts."""

    Answer = ChunkReport
    job: Annotated[str, Meta(description="The batch system's name of the job.")]


class NodeLoad(msgspec.Struct, frozen=True):
    """What a node does, and what is planned on it."""

    name: Annotated[str, Meta(description="Its name; HTCondor: the slot's.")]
    usable: Annotated[bool, Meta(description="Whether it accepts jobs.")]
    running: Annotated[int, Meta(description="Jobs that run on it.")]
    planned: Annotated[int, Meta(description="Promised jobs that are planned on it.")]
    busy_until: Annotated[
        Time, Meta(description="When the last of its running jobs ends, at the latest.")
    ] = None
    next_start: Annotated[Time, Meta(description="First planned start on it.")] = None


class NodesReport(Report, frozen=True):
    """The nodes, and how busy each is; nothing says with whose jobs."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    nodes: Annotated[
        tuple[NodeLoad, ...], Meta(description="In the order of the batch system.")
    ] = ()


class NodeList(Question, frozen=True, tag="nodes"):
    """Ask what the nodes do."""

    Answer = NodesReport


class TimelineReport(Report, frozen=True):
    """What is on the nodes, and what is planned there; nothing says whose it is.

    The columns `kind` to `end` have a row for each job, or reservation, and run of neighbouring
    nodes.
    """

    now: Annotated[float, Meta(description="The daemon's clock.")]
    nodes: Annotated[
        tuple[str, ...], Meta(description="Names, in the order of the batch system.")
    ] = ()
    usable: Annotated[tuple[bool, ...], Meta(description="Whether each accepts jobs.")] = ()
    partitions: Annotated[
        dict[str, tuple[int, ...]],
        Meta(description="Places in `nodes` of the nodes of each partition; HTCondor has none."),
    ] = {}
    kind: Annotated[
        tuple[Literal["running", "kept", "planned", "reserved"], ...],
        Meta(
            description="`running`: best effort; `kept`: runs and has a promise; `planned`: "
            "promised, has not started; `reserved`: set aside by a reservation of the site."
        ),
    ] = ()
    first: Annotated[tuple[int, ...], Meta(description="Place of the first node.")] = ()
    count: Annotated[tuple[int, ...], Meta(description="Nodes from there on.")] = ()
    start: Annotated[tuple[float, ...], Meta(description="Start.")] = ()
    end: Annotated[tuple[float, ...], Meta(description="End at the latest.")] = ()


class AccountShare(msgspec.Struct, frozen=True):
    """An account, or a user in it, and what it has of the machine; an account with all below."""

    name: Annotated[str, Meta(description="Name of the account or user.")]
    account: Annotated[str, Meta(description="The accounts above, with `/` between; empty: none.")]
    user: Annotated[bool, Meta(description="Whether it is a user.")]
    share: Annotated[float, Meta(description="Its share of the whole machine, from 0 to 1.")]
    nodes: Annotated[int, Meta(description="Nodes of its running jobs.")]
    waiting: Annotated[int, Meta(description="Its waiting jobs.")]
    service_error: Annotated[
        float | None,
        Meta(
            description="Node-seconds served above its share, negative: below; null: no fair-share "
            "plug-in that measures it had jobs to order."
        ),
    ] = None


class SharesReport(Report, frozen=True):
    """Shares of accounts and users, and what they have."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    everyone: Annotated[
        bool, Meta(description="Whether all are shown, or this user's rows and those above.")
    ]
    accounts: Annotated[
        tuple[AccountShare, ...],
        Meta(description="Each account before what is below it; no more than 2,000."),
    ] = ()


class Shares(Question, frozen=True, tag="shares"):
    """Ask for the shares of accounts and users: admins of all, others of their own and above."""

    Answer = SharesReport


class OddsKept(msgspec.Struct, frozen=True):
    """Likely promises that were stated with the same odds."""

    odds: Annotated[float, Meta(description="Stated odds, 0 to 1, rounded to 0.001.")]
    promises: Annotated[int, Meta(description="Those that came to their end.")]
    kept: Annotated[int, Meta(description="Those of them that were kept.")]


class ReliabilityReport(Report, frozen=True):
    """Stated odds of likely promises, and how many were kept; nothing says whose they were."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    stated: Annotated[
        tuple[OddsKept, ...], Meta(description="By stated odds, of the promises in the database.")
    ] = ()


class Reliability(Question, frozen=True, tag="reliability"):
    """Ask how many of the likely promises were kept."""

    Answer = ReliabilityReport


class ClosedPromise(msgspec.Struct, frozen=True):
    """A promise that is kept, missed, broken or given up."""

    at: Annotated[float, Meta(description="When it was closed.")]
    promise: Annotated[Promise, Meta(description="As it was closed.")]


class ClosedReport(Report, frozen=True):
    """Promises that were closed lately."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    closed: Annotated[
        tuple[ClosedPromise, ...], Meta(description="Earliest first; no more than 10,000.")
    ] = ()


class Closed(Question, frozen=True, tag="closed"):
    """Ask which promises were closed since a time; for admins."""

    Answer = ClosedReport
    since: Annotated[float, Meta(ge=0, description="Closed after this.")]


class Timeline(Question, frozen=True, tag="timeline"):
    """Ask what is on the nodes from now on."""

    Answer = TimelineReport


class CancelReport(Report, frozen=True):
    """The promise that was cancelled; its job goes on as best effort."""

    now: Annotated[float, Meta(description="The daemon's clock.")]
    promise: Annotated[Promise, Meta(description="As it was closed.")]


class Cancel(Question, frozen=True, tag="cancel"):
    """Give up the promise of a job, which goes on as best effort; for its user and admins."""

    Answer = CancelReport
    job: Annotated[str, Meta(description="The batch system's name of the job.")]


AnyQuestion: TypeAlias = (
    Status
    | Explain
    | Feasible
    | When
    | Choices
    | Hold
    | Plan
    | Chunk
    | NodeList
    | Timeline
    | Shares
    | Reliability
    | Closed
    | Cancel
)
"""What `msgspec.json.decode(payload, type=AnyQuestion)` reads."""

RefusalCode: TypeAlias = Literal[
    "malformed", "refused", "forbidden", "not-found", "busy", "unavailable"
]
"""Why a question is not answered: it is none (`malformed`), it cannot be answered as it is
(`refused`), not to this user (`forbidden`), there is no such job of this user's (`not-found`), too
much waits (`busy`), or this daemon cannot answer now (`unavailable`)."""


class RefusedError(RtschedError):
    """A question that is not answered, and why."""

    def __init__(self, text: str, code: RefusalCode = "refused") -> None:
        self.code = code
        super().__init__(text)


class Refusal(msgspec.Struct, frozen=True):
    """The answer to a question that was not answered."""

    error: str
    code: RefusalCode = "refused"


NOT_A_QUESTION = "not a question: "
"""How the refusal of a malformed question begins; daemons of earlier releases give no code."""


def report_payload(report: Report) -> bytes:
    """Return the payload of an answer."""
    return msgspec.json.encode({"report": report})


def refusal_payload(text: str, code: RefusalCode = "refused") -> bytes:
    """Return the payload that says why a question is not answered."""
    return msgspec.json.encode(Refusal(text, code))


def read_question(payload: bytes) -> AnyQuestion:
    """Return the question in a payload.

    Raises
    ------
    msgspec.MsgspecError
        If there is none; its text may be told to whoever asked.
    """
    try:
        question: AnyQuestion = msgspec.json.decode(payload, type=AnyQuestion)
    except UnicodeDecodeError as error:  # msgspec lets it through where a tag is no UTF-8
        raise msgspec.DecodeError(f"the text is not UTF-8: {error}") from error
    return question
