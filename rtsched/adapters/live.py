"""A batch system that runs: what one look at it shows, and what it can be asked to do.

A `LiveSystem` talks to the batch system. It may block, and its library may crash, so the daemon
uses it in a process of its own. A `Translator` only turns words of the batch system into models and
back; it is pure, and answers in the daemon's own process while a user waits at the prompt.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from rtsched.errors import AdapterError, InputError
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.jobs import NOBODY, Edges, Jobs, Periodic
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Accounts
from rtsched.model.table import Column, Table, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.model.actions import Action
    from rtsched.model.cluster import Cluster
    from rtsched.model.limits import LimitRules, UsedTime

FIRST_OWN_ID = 1 << 62
"""Jobs that the batch system has not numbered yet have ids from here on: provisional admissions
and counter-offers that are held for their users."""

UNJUDGED = "unjudged"
"""What a job carries in place of an admission's token that its filter let in without a verdict."""

LIKELY = "likely-"
"""How the tokens of promises begin that are likely and not guaranteed: their jobs start when the
batch system starts them."""

PART = "/"
"""What stands behind this in a partition's name follows from what a job asks for on each node, and
from what nodes there are: it changes without its user's doing."""

WITHIN = " --partition="
"""What stands before the partition in a request for nodes (`Jobs.node_request`)."""


class CompletionStatus(IntEnum):
    """How a job ended."""

    COMPLETED = 0
    FAILED = 1
    """It, or a user or an admin, ended it: a non-zero exit, a cancellation, too much memory."""
    OWN_LIMIT = 2
    """Killed at the time limit that it was given."""
    NODE_LOST = 3
    """A node died under it."""
    DEADLINE = 4
    """The batch system gave it up since its deadline could not be met."""
    FORGOTTEN = 5
    """The batch system lost it, and will give its number to another job."""
    UNANSWERED = 6
    """Not known: who keeps its record does not answer. No end; only look-ups return it."""
    PARTITION_GONE = 7
    """The batch system ended it, waiting or running, when its partition was removed."""


class Completions(Table):
    """One row per job that ended lately and that the batch system still knows."""

    job = Column(np.int64, -1, "Job id.")
    start = Column(np.float64, np.nan, "Seconds since the epoch; nan: it never started.")
    end = Column(np.float64, np.nan, "Seconds since the epoch.")
    status = Column(np.int8, CompletionStatus.COMPLETED, "A `CompletionStatus`.")
    token = Text("The admission that it carried.")
    exit_code = Column(
        np.int32, -1, "With which it failed by itself; -1: it did not, or that is not known."
    )
    requeues = Column(np.bool_, False, "It may be queued again, as it is.")
    restarts = Column(np.int32, 0, "How often the batch system has started it again.")


class Marks(Table):
    """One row per job that waits or runs: what the models do not hold."""

    job = Column(np.int64, -1, "Job id.")
    uid = Column(np.int64, -1, "Who owns it.")
    token = Text(
        "The admission that it carries, or `UNJUDGED`, from a field that users cannot write."
    )
    deferred = Column(np.bool_, False, "Its filter let it in to be judged later, and held it.")
    held = Column(np.bool_, False, "It waits for a release.")
    requeues = Column(np.bool_, False, "It may be stopped and queued again.")
    suspended = Column(np.bool_, False, "It runs and is suspended: nobody knows when it ends.")
    stuck = Column(np.bool_, False, "It did not start where and when it could, time and again.")
    problem = Text("Why nothing can be promised to it any more, as it is now.")
    limit = Text(
        "The limit of an account, QOS or partition that it waits for, as the batch system calls it."
    )
    unusable = Text("Why a deferred job cannot be promised what it asks for; rejected for that.")
    last = Column(
        np.int64, -1, "Of a job that the batch system shows in parts: the highest of their ids."
    )
    notify = Text("Of what its user wants to be notified; none: as for other jobs.")
    odds = Column(np.float64, np.nan, "Odds that its user asks for; nan: a guarantee.")
    unpromised = Column(
        np.bool_,
        False,
        "It waits, free to start, with a deadline that could not be promised when it was evaluated "
        "first.",
    )
    otherwise = Text(
        "What becomes of it if its deadline cannot be promised, `reject` or `run`; none: what the "
        "site says."
    )
    priority = Column(
        np.float64, np.nan, "Of a job that waits, the highest first; nan: not known, or it runs."
    )


@dataclass(frozen=True)
class Observation:
    """What one poll showed.

    Attributes
    ----------
    time : float
        When the poll began, seconds since the epoch.
    cluster : Cluster
        Its version grows when a node changed since the poll before.
    queued, running : Jobs
        In order of (submit, id). Wall times contain the margins by which a job outlives its limit.
    allocations : Schedule
        Row by row with `running`; `end` is when the nodes are free again at the latest.
    marks : Marks
        The rows of `queued`, then those of `running`.
    completions : Completions
        Jobs that ended within the batch system's memory.
    accounts, edges, periodic, blocked
        As in a `Snapshot`.
    reserved_ahead : float
        Seconds before a span of `blocked` from which on a planner that knows of no such spans uses
        its node no more.
    facts : object
        What the translator needs of the batch system's configuration; opaque to the daemon.
    problems : tuple of str
        What could not be read, one sentence each.
    flapping : int64[k]
        Nodes that were lost a moment ago and may come back at once, as when a machine's daemon is
        started anew: what cannot be planned without them does not break for that yet.
    unknown : tuple of int
        Jobs of which nobody could tell yet how they ended.
    leeway : float
        Seconds by which the batch system may start a promised job before its planned start, if its
        nodes are free, and by which it may start it later, and the job still ends by its own limit
        before its planned end. 0: it starts none earlier, and a late one is planned anew.
    requeue_delay : float
        Seconds for which the batch system puts off a job that it is asked to queue again.
    limits : LimitRules or None
        The limits of accounts and QOS that the batch system keeps to; None: it keeps to none.
    used_time : UsedTime or None
        What is used of those that count used time; None: there are none, or that is not known.
    keeps_after : float
        Seconds after which nobody else may come to nodes that the batch system was asked to keep
        for a job that is held, and who came before shows in a poll; inf: it keeps none.
    """

    time: float
    cluster: Cluster
    queued: Jobs = NOBODY
    running: Jobs = NOBODY
    allocations: Schedule = field(default_factory=Schedule.empty)
    marks: Marks = field(default_factory=lambda: Marks.build(0))
    completions: Completions = field(default_factory=lambda: Completions.build(0))
    accounts: Accounts = field(default_factory=lambda: Accounts.build(0))
    edges: Edges = field(default_factory=lambda: Edges.build(0))
    periodic: Periodic = field(default_factory=lambda: Periodic.build(0))
    blocked: Blocked = NOTHING_BLOCKED
    reserved_ahead: float = 0.0
    facts: Any = None
    problems: tuple[str, ...] = ()
    unknown: tuple[int, ...] = ()
    flapping: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    leeway: float = 0.0
    requeue_delay: float = 0.0
    limits: LimitRules | None = None
    used_time: UsedTime | None = None
    keeps_after: float = math.inf


@dataclass(frozen=True)
class Change:
    """One thing that has to be changed in the batch system.

    Attributes
    ----------
    kind : str
        Name of the action that asks for it, such as `reserve`, `set-priority`, `cancel`.
    job : int
        Job id; -1 where it is about no job.
    text : str
        What would be done, in the batch system's words, for a dry-run and for the log.
    command : object
        What the adapter needs to do it; opaque to the daemon.
    """

    kind: str
    job: int
    text: str
    command: Any = None


Outcome = Literal["done", "refused", "failed", "unsupported"]


@dataclass(frozen=True)
class Done:
    """What became of a change.

    Attributes
    ----------
    change : Change
        What was asked for.
    outcome : Outcome
        `refused`: the batch system said no, and would again. `failed`: it did not answer, or the
        state was in the way; the change is worked out anew in the next cycle.
    text : str
        What the batch system said.
    """

    change: Change
    outcome: Outcome
    text: str = ""


def dag_key(user: str, name: str) -> int:
    """Return the key of a user's task graph: the same whenever it is asked for."""
    words = f"{user}\0{name}".encode()
    return (zlib.crc32(words) << 31) ^ zlib.adler32(words)


class LiveSystem(Protocol):
    """A batch system that runs, seen from a process that may block."""

    name: str
    """Such as `slurm`."""

    calls: float
    """After so many calls another process goes on with it, pickled as it is; inf: never."""

    def poll(self) -> Observation:
        """Return its present state.

        Raises
        ------
        AdapterError
            If it does not answer, or answers what this adapter does not know.
        """

    def find_completions(self, jobs: Sequence[int], since: float = -math.inf) -> Completions:
        """Return how jobs ended that no poll shows any more, of those of which it is known.

        None of them ended before `since`, seconds since the epoch; -inf: that is not known.

        Raises
        ------
        AdapterError
            If whoever keeps the records does not answer.
        """

    def changes(self, actions: Sequence[Action]) -> Sequence[Change]:
        """Return what of the actions is not so yet, by the last poll."""

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Do it, and return for each change what became of it; never raises for one of them."""


class ServedSystem:
    """A live system as its own process serves it to the daemon.

    Parameters
    ----------
    make : callable
        Makes the `LiveSystem`.
    """

    def __init__(self, make: Callable[[], LiveSystem]) -> None:
        self._system = make()
        self.calls = self._system.calls
        self.poll, self.find_completions = self._system.poll, self._system.find_completions

    def apply(
        self, actions: Sequence[Action], dry_run: bool
    ) -> tuple[tuple[Change, ...], tuple[Done, ...]]:
        """Return what is to be changed and what became of it, without the adapter's commands."""
        changes = self._system.changes(actions)
        dones = () if dry_run or not changes else self._system.carry_out(changes)
        shown = tuple(replace(change, command=None) for change in changes)
        return shown, tuple(replace(d, change=replace(d.change, command=None)) for d in dones)


@dataclass(frozen=True)
class Submission:
    """A job that asks for admission: what somebody wants to submit, or what waits held.

    Attributes
    ----------
    jobs : Jobs
        One row; its id is not known yet when it is submitted.
    edges : Edges
        Jobs it waits for; `after` is -1, itself, where its id is not known.
    uid : int
        Who submits.
    problem : str
        Why it makes no sense, for its user; empty if it does.
    comment : str
        What its user wrote about it, where the answer has to go on with that.
    job : int
        Its id, where the batch system numbers a job before it asks about it; else -1.
    held : bool
        Whether its user has it wait for a release: nobody knows when it may start.
    tasks_per_node : int
        The most tasks on each of several nodes that it shares; 0: that does not matter.
    component : bool
        Whether it is a part of a job whose other parts are not known yet.
    singleton : bool
        Whether it waits for the jobs of its user and name, which are not all known yet.
    unverified : str
        What of it the batch system may refuse after this answer, such as `account`; empty: nothing.
    notify : str
        Of what its user wants to be notified, as in `notify_choice`; empty: as for other jobs.
    odds : float
        Least odds, 0 to 1, with which it is to end by its deadline; nan: with a guarantee.
    otherwise : str
        What becomes of it if its deadline cannot be promised, `reject` or `run`; empty: what the
        site says.
    tested : bool
        Whether its user seems only to ask what would become of it. A batch system may not tell for
        sure, so it is promised its deadline all the same; where no job follows, that lapses.
    partitions : str
        Those that it names, where these are several.
    elsewhere : tuple of Submission
        The same job in others of them; in which it runs does not matter to its user.
    shape : str
        What a plan may change of it, as its user asked for it and the batch system writes it;
        empty: nothing.
    limits : (float, float)
        The shortest and the longest time limit that its user allows, seconds, where it may have a
        shorter one than asked for; inf: it may not.
    """

    jobs: Jobs
    edges: Edges
    uid: int
    problem: str = ""
    comment: str = ""
    job: int = -1
    held: bool = False
    tasks_per_node: int = 0
    component: bool = False
    singleton: bool = False
    notify: str = ""
    odds: float = math.nan
    otherwise: str = ""
    limits: tuple[float, float] = (math.inf, math.inf)
    unverified: str = ""
    tested: bool = False
    partitions: str = ""
    elsewhere: tuple[Submission, ...] = ()
    shape: str = ""


@dataclass(frozen=True)
class SubmitReply:
    """What was decided on a submission, for its user and for the batch system.

    Attributes
    ----------
    rejected : bool
        Whether it is turned away.
    text : str
        What its user reads; may be empty.
    token : str
        The admission, where a promise was given; else empty.
    promise : float
        Finish-by deadline, seconds since the epoch; inf: none.
    start, end : float
        Planned, seconds since the epoch; nan where there is no promise.
    size : int
        Planned nodes; 0 where there is no promise.
    nodes : tuple of str
        Their names.
    shares : tuple of float
        The fraction of the load on each; equal where it is not divided.
    rounds : tuple of float
        The share of its part that each takes in each round; empty: all at once.
    deferred : bool
        Whether it is to be held until the daemon releases or cancels it.
    likely : bool
        Whether the promise is a likely one: nothing is planned for the job.
    unpromised : bool
        Whether it runs without the promise that it asked for: the batch system is not to end it at
        its deadline.
    note : str
        What the job keeps of a promise, with dates, to be read at any time; empty: nothing.
    limit : float
        The time limit that it gets, seconds, of those that its user allows; nan: its own.
    """

    rejected: bool
    text: str = ""
    deferred: bool = False
    token: str = ""
    promise: float = np.inf
    start: float = np.nan
    end: float = np.nan
    size: int = 0
    nodes: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    rounds: tuple[float, ...] = ()
    likely: bool = False
    unpromised: bool = False
    note: str = ""
    limit: float = np.nan


@dataclass(frozen=True)
class FeasibilityRequest:
    """What a user asks about a job that nobody submits; None: left open.

    Times in seconds; `deadline` since the epoch. The load's numbers are as in `Jobs`. `memory` in
    bytes and `gpus` per node, `licenses` and the tasks of an `array` as sbatch(1) takes them. 0 or
    empty: not said.
    """

    uid: int
    deadline: float
    nodes: int = 1
    nodes_max: int | None = None
    time_s: float | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    load: Mapping[str, float] = field(default_factory=dict)
    tasks: int = 0
    cpus_per_task: int = 0
    memory: int = 0
    gpus: int = 0
    licenses: str = ""
    constraint: str = ""
    nodelist: str = ""
    exclude: str = ""
    array: str = ""


class Translator(Protocol):
    """Between a submit filter's words and the models; pure.

    Attributes
    ----------
    afterwards : str
        What becomes of a job whose promise broke, such as `the job runs as best effort`.
    beginning : str
        By what a user says when a job may begin, such as `--begin`.
    """

    afterwards: str
    beginning: str

    def name_of(self, job: int) -> str:
        """Return what the batch system calls a job."""

    def number_of(self, name: str) -> int:
        """Return the id of the job of this name; -1: this is no job's name."""

    @property
    def naming(self) -> str:
        """How a user must name a job, where its number alone does not tell; empty: it does."""

    def fields_of(self, question: FeasibilityRequest) -> Mapping[int, str | int]:
        """Return a question as a submit filter would describe the job.

        Raises
        ------
        AdapterError
            If it asks for what the batch system does not have.
        """

    def describe(self, fields: Mapping[int, str | int], facts: Any, now: float) -> Submission:
        """Return what a submit request means; `facts` are those of the last poll."""

    def default_limit(self, facts: Any) -> float:
        """Return for how long a job may run at most that names no limit, seconds; inf: no end."""

    def answer(
        self, submission: Submission, reply: SubmitReply, facts: Any
    ) -> Mapping[int, str | int]:
        """Return the fields that the filter is to set in the job."""

    def asking(self, deadline: float) -> str:
        """Return how a user asks for a deadline, such as `--deadline=2026-01-01T12:00:00`."""

    def adjustable(
        self, fields: Mapping[int, str | int], submission: Submission, facts: Any
    ) -> Adjustable:
        """Return what of a submit request, and of what it means, could be asked for otherwise."""

    def adjusted(self, fields: Mapping[int, str | int], to: Adjustment) -> Mapping[int, str | int]:
        """Return a submit request that asks for something else."""

    def options(self, fields: Mapping[int, str | int], to: Adjustment) -> tuple[str, ...]:
        """Return the words of a command line that make an adjusted request of the first one."""

    @property
    def taking(self) -> str:
        """How a user submits a choice, such as `rtsched take {} job.sh`."""

    def protected(
        self, fields: Mapping[int, str | int], promised: Jobs | None = None, facts: Any = None
    ) -> str:
        """Return which promised property a request to change a job would change; empty: none.

        `promised`: the job as it was promised, one row; None: nothing of it may change.
        """


@dataclass(frozen=True)
class Adjustable:
    """What of a request can be changed.

    Attributes
    ----------
    nodes : int
        The fewest nodes that it asks for; 1: there are no fewer.
    limit_s : float
        Its time limit, seconds; inf: it has none that can be made shorter.
    step_s : float
        Time limits are whole multiples of this, seconds.
    gpus : int
        GPUs on each node; 1 or 0: there are no fewer.
    gpu_types : tuple of str
        Other types of GPUs that it could ask for.
    partitions : tuple of str
        Other partitions that it could name.
    """

    nodes: int = 1
    limit_s: float = math.inf
    step_s: float = 60.0
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


NOT_ADJUSTABLE = Adjustable()
"""A request of which nothing but the deadline can be changed."""


class Adjustment(NamedTuple):
    """A change of a request; None: as it is.

    Attributes
    ----------
    nodes : int or None
        The fewest nodes.
    limit_s : float or None
        Time limit, seconds.
    gpus : int or None
        GPUs on each node.
    gpu_type : str or None
        Their type.
    partition : str or None
        The partition.
    deadline : float or None
        Finish by, seconds since the epoch.
    odds : float or None
        Least odds, 0 to 1, with which it is to end by then; 1: a guarantee is wanted.
    """

    nodes: int | None = None
    limit_s: float | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    partition: str | None = None
    deadline: float | None = None
    odds: float | None = None


P = ParamSpec("P")
T = TypeVar("T")


class LastGood(Generic[T]):
    """What was read last without an error.

    Parameters
    ----------
    value : T
        What counts until something was read.
    stale : str
        What it means, for people, that nothing new could be read; the error follows.

    Attributes
    ----------
    value : T
        The last one.
    problem : str
        Why it is not a new one; empty: it is.
    """

    def __init__(self, value: T, stale: str) -> None:
        self.value, self.problem = value, ""
        self._stale = stale

    def read(self, call: Callable[[], T]) -> T:
        """Return what a call returns; if that fails, what was read before."""
        try:
            self.value, self.problem = call(), ""
        except (AdapterError, InputError) as error:
            self.problem = f"{self._stale}: {error}"
        return self.value


class Remade(Generic[P, T]):
    """What is made anew only when what it is made of has changed; else it is the same object."""

    def __init__(self, make: Callable[P, T]) -> None:
        self._make = make
        self._of: object = None
        self._made: list[T] = []

    def of(self, *parts: P.args, **more: P.kwargs) -> T:
        """Return what is made of these parts."""
        if not self._made or self._of != (parts, more):
            self._made = [self._make(*parts, **more)]
            self._of = parts, more
        return self._made[0]
