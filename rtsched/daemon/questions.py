"""Questions on the query socket and over REST, and the reports that answer them, for both sides.

A question is a JSON object, `{"ask": "status", ...}`; its answer is `{"report": {...}}` or
`{"error": "...", "code": "..."}`. Its `Route`s say by which requests it is asked over REST. Times
are seconds since the epoch, null where there is none.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

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


class Route(NamedTuple):
    """A request over REST that asks a question."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    """Below `/v1`. Of the question's fields those that it does not name are in the query, or those
    of a POST in the body."""
    operation: str
    """Name in the OpenAPI description."""
    summary: str = ""
    """What is returned; empty: as the question says."""
    body: str = ""
    """The field that is the body of a POST; empty: the body is the whole question."""


class Question(msgspec.Struct, frozen=True, tag_field="ask", forbid_unknown_fields=True):
    """Base of all questions; `Answer` is the report that answers it."""

    Answer: ClassVar[type[Report]]
    routes: ClassVar[tuple[Route, ...]] = ()


class Reason(msgspec.Struct, frozen=True):
    """Why something is so."""

    code: str
    """Reason code; empty where there is none."""
    text: str
    """One sentence."""


class PromiseStatus(msgspec.Struct, frozen=True):
    """A promise or a counter-offer, and the present plan to keep it."""

    job: str
    """The batch system's job id; empty: none yet."""
    name: str
    """The job's name."""
    user: str
    """Its user."""
    state: str = msgspec.field(name="standing")
    """`offered`, `provisional`, `firm`, `at-risk` (as `late`), or how it was closed; `none`: the
    job has a deadline and was never promised it."""
    deadline: Time
    """Finish by."""
    made_at: Time
    """When it was promised."""
    expires: Time = None
    """When an offer expires."""
    running: bool = False
    """Whether the job runs."""
    suspended: bool = False
    """Whether it runs and is suspended."""
    late: bool = False
    """Whether it runs, or is planned, until later than promised."""
    start: Time = None
    """Planned start, or when it started."""
    end: Time = None
    """Planned end at the latest."""
    nodes: tuple[str, ...] = ()
    """Planned nodes."""
    why: str = ""
    """Why it is in this state."""
    tasks: int | None = None
    """Tasks of an array; null: it is none."""
    waiting: int | None = None
    """Tasks that have not been started."""
    notify: str = ""
    """Events of which the user wants to be notified, with `+` between them, or `none`; empty: as
    for the user's other jobs."""
    odds: float | None = None
    """Odds, 0 to 1, stated for a likely promise; null: it is guaranteed."""
    odds_now: float | None = None
    """Odds, 0 to 1, of a likely promise by the latest estimate; null: there is none."""
    unlikely: bool = False
    """Whether these are below the share of those stated at which the site has users notified
    (`warn_below` of `[likely]`)."""
    text: str = ""
    """What the batch system printed when it was given, with dates and the present plan; empty: an
    offer, or a closed promise."""


class Verdict(msgspec.Struct, frozen=True):
    """What was said to one submission."""

    time: float
    """When."""
    job: str
    """The batch system's name of the job; empty: none."""
    name: str
    """The job's name."""
    verdict: str
    """`admit`, `reject`, `defer` or `pass`; `run`: accepted without the promise that it asked for;
    `cancel`: its promise was cancelled."""
    codes: tuple[str, ...]
    """Reason codes."""
    text: str
    """The message to the user."""
    offer: Time = None
    """Counter-offer: the deadline that was feasible."""
    user: str = ""
    """Who submitted; shown to admins only."""


class Peer(msgspec.Struct, frozen=True):
    """The daemon of another controller's host, by what it wrote beside the database."""

    host: str
    """Host name as the batch system knows it."""
    state: str
    """`active`, `standby`, `stopped`, or `silent`: it has not written for some seconds."""
    seen: Time = None
    """When it last wrote, by its clock."""


class StatusReport(Report, frozen=True):
    """How the daemon is, and the promises that the asker may see."""

    version: str
    """Release of the daemon."""
    mode: Literal["live", "dry-run", "standby"]
    """Whether it changes anything; `standby`: another host's daemon does."""
    system: str
    """The batch system."""
    now: float
    """The daemon's clock."""
    started: float
    """When the daemon started."""
    looked: Time
    """Start of the last complete poll."""
    queued: int
    """Jobs that wait."""
    running: int
    """Jobs that run."""
    nodes: int
    """Nodes in all."""
    usable: int
    """Nodes that accept jobs."""
    cycle_s: Time
    """Duration of the last cycle, seconds."""
    states: dict[str, int] = msgspec.field(name="standings")
    """Promises by state."""
    answers: dict[str, int] = {}
    """Submissions since the daemon's start, by what was answered."""
    lag_s: Time = None
    """Longest time that a submission waited before the daemon read it, in the last minute or two,
    seconds; admins see it."""
    problems: tuple[str, ...] = ()
    """Problems, one sentence each."""
    everyone: bool = False
    """Whether promises of all users are listed, or only the caller's."""
    promises: tuple[PromiseStatus, ...] = ()
    """Open ones, by planned start."""
    unpromised: tuple[PromiseStatus, ...] = ()
    """Jobs that wait or run and whose deadline is not promised, or not any more, by submission; the
    first 1,000."""
    metrics: str = ""
    """Metrics as Prometheus text, if requested."""
    peers: tuple[Peer, ...] = ()
    """Daemons on the other controllers' hosts."""


class Status(Question, frozen=True, tag="status"):
    """Ask how the daemon is, and what the asker is promised."""

    Answer = StatusReport
    routes = (Route("GET", "/status", "status"),)
    metrics: bool = False
    """Return the metrics too, to admins."""


class JobReport(msgspec.Struct, frozen=True):
    """What the batch system shows of a job."""

    job: str
    """The batch system's name of it."""
    name: str
    """The job's name."""
    user: str
    """Its user."""
    partition: str
    """Its partition."""
    state: Literal["waiting", "running", "suspended", "ended"]
    """What it does."""
    size: int
    """Nodes that it requests or has."""
    wall_time_s: Time
    """Seconds it may run."""
    submit: Time
    """When it was submitted."""
    deadline: Time = None
    """Finish by, as requested."""
    start: Time = None
    """When it started."""
    end: Time = None
    """When it ended, or ends at the latest."""
    held: bool = False
    """Whether it waits for a release."""


class StartEstimate(msgspec.Struct, frozen=True):
    """When a job is estimated to start and end.

    Where an end of an interval is null and the other is not, it is later than what was simulated.
    """

    job: str
    """The batch system's name of it; empty: it is not submitted."""
    name: str
    """The job's name."""
    user: str
    """Its user."""
    state: Literal["waiting", "running", "unsubmitted"]
    """What it does."""
    basis: Literal["estimate", "plan", "none"]
    """`estimate`: simulations of the queue; `plan`: the job has a promise, and this is its plan;
    `none`: there is no estimate, and `why` says why."""
    start: Time = None
    """Median of its start, or when it started."""
    start_low_80: Time = None
    """Start of the 80 % interval of its start."""
    start_high_80: Time = None
    """End of that interval."""
    start_low_95: Time = None
    """Start of the 95 % interval of its start."""
    start_high_95: Time = None
    """End of that interval."""
    end: Time = None
    """Median of its end; of a plan, its end at the latest."""
    end_low_80: Time = None
    """Start of the 80 % interval of its end."""
    end_high_80: Time = None
    """End of that interval."""
    end_low_95: Time = None
    """Start of the 95 % interval of its end."""
    end_high_95: Time = None
    """End of that interval."""
    latest: Time = None
    """When it ends at the latest, of a job that runs; null: no limit."""
    why: str = ""
    """Why there is no estimate, one sentence."""
    waits: tuple[Reason, ...] = ()
    """What it waits for."""


class ExplainReport(Report, frozen=True):
    """What became of a job or of a submission, and why."""

    now: float
    """The daemon's clock."""
    job: JobReport | None = None
    """The job, if the batch system has it."""
    promise: PromiseStatus | None = None
    """Its promise, open or closed."""
    verdicts: tuple[Verdict, ...] = ()
    """Latest first."""
    waits: tuple[Reason, ...] = ()
    """Why it waits."""
    helps: tuple[str, ...] = ()
    """What the user could do."""
    terms: dict[str, float] = {}
    """Terms of its priority."""
    estimate: StartEstimate | None = None
    """When it is estimated to start and end."""


class Explain(Question, frozen=True, tag="explain"):
    """Ask what became of a job, or of the asker's last submissions."""

    Answer = ExplainReport
    routes = (
        Route("GET", "/explain/{job}", "explain", "Return what became of a job, and why."),
        Route(
            "GET",
            "/verdicts",
            "listVerdicts",
            "Return the replies to the client's last submissions; to admins those of all users.",
        ),
    )
    job: str = ""
    """The batch system's name of it; empty: none."""
    last: Annotated[int, Meta(ge=0, le=1000)] = 5
    """Return so many of the last verdicts."""


class Choice(msgspec.Struct, frozen=True):
    """What a job could have in place of what it asks for, as it would be accepted now."""

    number: int
    """By which `rtsched take` names it."""
    kind: ChoiceKind
    """What is changed first of all; the deadline may be later too. `guaranteed`: in place of odds;
    `likely`: with odds, or with lower ones; `likely-later`: with odds by a later deadline."""
    text: str
    """What is changed, in words."""
    deadline: float
    """Finish by."""
    start: Time
    """Planned start; null: with odds nothing is planned."""
    end: Time
    """Planned end at the latest; null: as `start`."""
    nodes: tuple[str, ...] = ()
    """Planned nodes."""
    options: tuple[str, ...] = ()
    """Words of the command line (sbatch, condor_submit) that ask for it."""
    take: str = ""
    """The command by which a held menu's is submitted."""
    held: bool = False
    """Whether it is reserved for the user; if not, others may take it first."""
    odds: float | None = None
    """Odds, 0 to 1, that it asks for and has now; null: guaranteed."""


class FeasibleReport(Report, frozen=True):
    """The earliest deadline that a job would be promised now; nothing is held for it."""

    now: float
    """The daemon's clock."""
    feasible: bool
    """Whether the deadline asked for, or any at all, can be promised."""
    deadline: Time = None
    """Earliest deadline that would be promised."""
    start: Time = None
    """Planned start."""
    end: Time = None
    """Planned end at the latest."""
    nodes: tuple[str, ...] = ()
    """Planned nodes."""
    asking: str = ""
    """How to ask the batch system for it."""
    reasons: tuple[Reason, ...] = ()
    """Why it is not feasible."""
    choices: tuple[Choice, ...] = ()
    """What could be had in place of a deadline that is not feasible."""
    expires: Time = None
    """Until when choices are held."""


class ChoicesReport(Report, frozen=True):
    """The menu of the asker's last rejected job."""

    now: float
    """The daemon's clock."""
    expires: Time = None
    """When it ends; null: there is none."""
    system: str = ""
    """The batch system."""
    choices: tuple[Choice, ...] = ()
    """Closest to the request first."""


class Choices(Question, frozen=True, tag="choices"):
    """Ask what the asker could have in place of the last job that was rejected."""

    Answer = ChoicesReport
    routes = (Route("GET", "/choices", "listChoices"),)


Positive: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Nodes: TypeAlias = Annotated[int, Meta(ge=1, le=10_000_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 60)]


class Feasible(Question, frozen=True, tag="feasible"):
    """Ask which deadline a job could have now; nothing is reserved."""

    Answer = FeasibleReport
    routes = (Route("POST", "/feasible", "feasible"),)
    nodes: Nodes = 1
    """Nodes, at least."""
    nodes_max: Nodes | None = None
    """Nodes, at most; null: `nodes`."""
    time_s: Positive | None = None
    """Seconds on `nodes` nodes; null: the partition's default, or derived from its load."""
    partition: str = ""
    """Partition; empty: the default one."""
    account: str = ""
    """Account; empty: the default one."""
    qos: str = ""
    """QOS; empty: the default one."""
    deadline: Time = None
    """Ask whether this one is feasible."""
    tasks: Count = 0
    """Tasks; 0: not stated."""
    cpus_per_task: Count = 0
    """Processors of a task; 0: not stated."""
    memory: Bytes = 0
    """Bytes per node; 0: not stated."""
    gpus: Count = 0
    """GPUs per node."""
    licenses: str = ""
    """Licences, such as `matlab:2`; empty: none."""
    constraint: str = ""
    """Features of nodes; empty: any."""
    nodelist: str = ""
    """Nodes to run on; empty: any."""
    exclude: str = ""
    """Nodes not to run on; empty: none."""
    array: str = ""
    """Tasks of an array, such as `1-100%8`."""
    sigma: Positive | None = None
    """Divisible load: data units."""
    cms: NotNegative | None = None
    """Seconds to send one unit."""
    cps: Positive | None = None
    """Seconds to compute one unit."""
    setup_link: NotNegative | None = None
    """Seconds to set up a link."""
    setup_node: NotNegative | None = None
    """Seconds to set up a node."""
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] | None = None
    """Divisible load: most rounds in which each node takes its part."""


class EstimateRecord(msgspec.Struct, frozen=True):
    """How good the estimates of a period of the past were."""

    period_s: float
    """Length of the period before now, seconds."""
    jobs: int
    """Estimates whose jobs have started since."""
    covered_80: float | None = None
    """Share of them within their 80 % interval."""
    covered_90: float | None = None
    """Share of them within their 90 % interval."""
    covered_95: float | None = None
    """Share of them within their 95 % interval."""
    error_s: float | None = None
    """Mean absolute error of the median start, seconds."""
    error_by_limits_s: float | None = None
    """That of requested times without further submissions, seconds."""


class WhenReport(Report, frozen=True):
    """When jobs are estimated to start and end, and how good such estimates were."""

    now: float
    """The daemon's clock."""
    estimated: Time = None
    """Time of the state that was simulated; null: none yet."""
    jobs: tuple[StartEstimate, ...] = ()
    """The next start first."""
    more: int = 0
    """Jobs that are not listed."""
    record: tuple[EstimateRecord, ...] = ()
    """The last day, week and month."""
    problem: str = ""
    """What is wrong with the estimates."""
    past: int = 0
    """Ended jobs that the process of the estimates has read since its start."""


class When(Question, frozen=True, tag="when"):
    """Ask when jobs start: one, the asker's waiting ones, or one that is not submitted."""

    Answer = WhenReport
    routes = (
        Route(
            "GET", "/when/{job}", "showStart", "Return when a job is estimated to start and end."
        ),
        Route(
            "GET",
            "/when",
            "listStarts",
            "Return when the client's waiting jobs are estimated to start; to admins those of all.",
        ),
        Route(
            "POST",
            "/when",
            "estimateStart",
            "Return when a job would start that is not submitted.",
            "request",
        ),
    )
    job: str = ""
    """The batch system's name of it; empty: all that wait."""
    request: Feasible | None = None
    """A job that is not submitted, as `feasible` takes it."""


class Hold(Feasible, frozen=True, tag="hold"):
    """Ask which deadline a job could have, and have that, and its choices, held for a while.

    It counts as an offer, as after a rejected submission.
    """

    routes = (Route("POST", "/hold", "hold"),)


class PendingChange(msgspec.Struct, frozen=True):
    """What the daemon would change in the batch system."""

    kind: str
    """Kind of change, such as `reserve` or `set-priority`."""
    job: str
    """The job it is about; empty: none."""
    text: str
    """What is changed, in the batch system's terms."""


class PlanReport(Report, frozen=True):
    """The present plan."""

    now: float
    """The daemon's clock."""
    mode: Literal["live", "dry-run"]
    """Whether it changes anything."""
    version: int
    """Increases with every change of promises or plan."""
    entries: tuple[PromiseStatus, ...] = ()
    """By planned start."""
    changes: tuple[PendingChange, ...] = ()
    """In a dry run: what the last cycle would have changed."""


class Plan(Question, frozen=True, tag="plan"):
    """Ask how all promises are to be kept; for admins."""

    Answer = PlanReport
    routes = (Route("GET", "/plan", "plan"),)


class ChunkReport(Report, frozen=True):
    """A divisible job's nodes and the fraction of the load that each gets."""

    job: str
    """The batch system's name of the job."""
    deadline: Time
    """Finish by, as promised."""
    nodes: tuple[str, ...]
    """In sending order."""
    fractions: tuple[float, ...]
    """One per node; they sum to 1."""
    rounds: tuple[float, ...] = ()
    """The share of its part that each node takes in each round; they sum to 1. Empty: all at
    once."""


class Chunk(Question, frozen=True, tag="chunk"):
    """Ask how a divisible job is cut; it may change until the job starts."""

    Answer = ChunkReport
    routes = (Route("GET", "/chunk/{job}", "chunk"),)
    job: str
    """The batch system's name of the job."""


class NodeLoad(msgspec.Struct, frozen=True):
    """What a node does, and what is planned on it."""

    name: str
    """Its name; HTCondor: the slot's."""
    usable: bool
    """Whether it accepts jobs."""
    running: int
    """Jobs that run on it."""
    planned: int
    """Promised jobs that are planned on it."""
    busy_until: Time = None
    """When the last of its running jobs ends, at the latest."""
    next_start: Time = None
    """First planned start on it."""


class NodesReport(Report, frozen=True):
    """The nodes, and how busy each is; nothing says with whose jobs."""

    now: float
    """The daemon's clock."""
    nodes: tuple[NodeLoad, ...] = ()
    """In the order of the batch system."""


class NodeList(Question, frozen=True, tag="nodes"):
    """Ask for the nodes, and how busy each is."""

    Answer = NodesReport
    routes = (Route("GET", "/nodes", "listNodes", "Return the nodes, and how busy each is."),)


class TimelineReport(Report, frozen=True):
    """What is on the nodes, and what is planned there; nothing says whose it is.

    The columns `kind` to `end` have a row for each job, or reservation, and run of neighbouring
    nodes.
    """

    now: float
    """The daemon's clock."""
    nodes: tuple[str, ...] = ()
    """Names, in the order of the batch system."""
    usable: tuple[bool, ...] = ()
    """Whether each accepts jobs."""
    partitions: dict[str, tuple[int, ...]] = {}
    """Places in `nodes` of the nodes of each partition; HTCondor has none."""
    kind: tuple[Literal["running", "kept", "planned", "reserved"], ...] = ()
    """`running`: best effort; `kept`: runs and has a promise; `planned`: promised, has not started;
    `reserved`: set aside by a reservation of the site."""
    first: tuple[int, ...] = ()
    """Place of the first node."""
    count: tuple[int, ...] = ()
    """Nodes from there on."""
    start: tuple[float, ...] = ()
    """Start."""
    end: tuple[float, ...] = ()
    """End at the latest."""


class AccountShare(msgspec.Struct, frozen=True):
    """An account, or a user in it, and what it has of the machine; an account with all below."""

    name: str
    """Name of the account or user."""
    account: str
    """The accounts above, with `/` between; empty: none."""
    user: bool
    """Whether it is a user."""
    share: float
    """Its share of the whole machine, from 0 to 1."""
    nodes: int
    """Nodes of its running jobs."""
    waiting: int
    """Its waiting jobs."""
    service_error: float | None = None
    """Node-seconds served above its share, negative: below; null: no fair-share plug-in that
    measures it had jobs to order."""


class SharesReport(Report, frozen=True):
    """Shares of accounts and users, and what they have."""

    now: float
    """The daemon's clock."""
    everyone: bool
    """Whether all are shown, or this user's rows and those above."""
    accounts: tuple[AccountShare, ...] = ()
    """Each account before what is below it; no more than 2,000."""


class Shares(Question, frozen=True, tag="shares"):
    """Ask for the shares of accounts and users: admins of all, others of their own and above."""

    Answer = SharesReport
    routes = (Route("GET", "/shares", "listShares"),)


class OddsKept(msgspec.Struct, frozen=True):
    """Likely promises that were stated with the same odds."""

    odds: float
    """Stated odds, 0 to 1, rounded to 0.001."""
    promises: int
    """Those that came to their end."""
    kept: int
    """Those of them that were kept."""


class ReliabilityReport(Report, frozen=True):
    """Stated odds of likely promises, and how many were kept; nothing says whose they were."""

    now: float
    """The daemon's clock."""
    stated: tuple[OddsKept, ...] = ()
    """By stated odds, of the promises in the database."""


class Reliability(Question, frozen=True, tag="reliability"):
    """Ask how many of the likely promises were kept, by the odds that were stated."""

    Answer = ReliabilityReport
    routes = (Route("GET", "/reliability", "reliability"),)


class ClosedPromise(msgspec.Struct, frozen=True):
    """A promise that is kept, missed, broken or given up."""

    at: float
    """When it was closed."""
    promise: PromiseStatus
    """As it was closed."""


class ClosedReport(Report, frozen=True):
    """Promises that were closed lately."""

    now: float
    """The daemon's clock."""
    closed: tuple[ClosedPromise, ...] = ()
    """Earliest first; no more than 10,000."""


class Closed(Question, frozen=True, tag="closed"):
    """Ask which promises were closed since a time; for admins."""

    Answer = ClosedReport
    since: Annotated[float, Meta(ge=0)]
    """Closed after this."""


class Timeline(Question, frozen=True, tag="timeline"):
    """Ask what is on the nodes from now on; nothing says whose it is."""

    Answer = TimelineReport
    routes = (Route("GET", "/timeline", "timeline"),)


class CancelReport(Report, frozen=True):
    """The promise that was cancelled; its job goes on as best effort."""

    now: float
    """The daemon's clock."""
    promise: PromiseStatus
    """As it was closed."""


class Cancel(Question, frozen=True, tag="cancel"):
    """Give up the promise of a job, which goes on as best effort; for its user and admins."""

    Answer = CancelReport
    routes = (Route("DELETE", "/promises/{job}", "cancelPromise"),)
    job: str
    """The batch system's name of the job."""


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
