"""The frame of every simulated batch system: what it is given, what it shows, what it is told.

A machine is a subclass. It has what is its own: how it runs (`advance`), who waits and who runs,
and one method for each action that it carries out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.errors import AdapterError, ShapeError
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.jobs import Edges, Periodic
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Accounts, Snapshot, places
from rtsched.model.table import Ragged, offsets_of
from rtsched.simulator.interface import Outcome, StaticAnswers, StopConditions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.model.actions import Action, Admit, Reject
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.limits import Limits
    from rtsched.model.preemption import Preemption
    from rtsched.model.state import Events
    from rtsched.simulator.interface import DecisionPoint, JobOutcomes, NodeEvent
    from rtsched.simulator.settings import SystemSettings

    Rows = NDArray[np.int64]

    Handler = Callable[[Any, Any, Rows], int | None]


class OpenDependencies:
    """The dependencies between jobs that are submitted and have not ended.

    Those on a job that is submitted later are left out, as is one on a job that is not there.

    Parameters
    ----------
    jobs : Jobs
        The workload, in order of (submit, id).
    edges : Edges
        All dependencies.
    """

    def __init__(self, jobs: Jobs, edges: Edges) -> None:
        self._jobs, self._edges = jobs, edges
        if not len(edges):
            return
        self._tasks = np.argsort(jobs.array, kind="stable")
        self._arrays = jobs.array[self._tasks]
        order = np.argsort(jobs.id, kind="stable")
        after, there = places(jobs.id[order], edges.after)
        before, known = places(jobs.id[order], edges.before)
        self._after, self._before = order[after], np.where(known, order[before], 0)
        known &= jobs.submit[self._before] <= jobs.submit[self._after]
        rows = np.flatnonzero(there & (known | edges.whole_array))
        self._rows = rows[np.argsort(self._after[rows], kind="stable")]
        self._submitted = jobs.submit[self._after[self._rows]]
        self._taken, self._open = 0, np.zeros(0, np.int64)

    def at(self, now: float, alive: Callable[[Rows], NDArray[np.bool_]]) -> Edges:
        """Return those that hold now; one on an array stands there for each of its tasks.

        Parameters
        ----------
        now : float
            Seconds since the epoch, never before that of the last call.
        alive : callable
            Which rows of jobs have not ended.
        """
        if not len(self._edges):
            return self._edges
        until = int(np.searchsorted(self._submitted, now, side="right"))
        rows = np.concatenate([self._open, self._rows[self._taken : until]])
        whole = self._edges.whole_array[rows]
        holds = alive(self._after[rows]) & (whole | alive(self._before[rows]))
        self._open, self._taken = rows[holds], until
        whole = whole[holds]
        edges = self._edges.take(self._open)
        if not whole.any():
            return edges
        return Edges.joined([edges.take(~whole), self._of_tasks(edges.take(whole), now, alive)])

    def _of_tasks(
        self, edges: Edges, now: float, alive: Callable[[Rows], NDArray[np.bool_]]
    ) -> Edges:
        """Return dependencies on arrays as such on their tasks that have not ended."""
        first = np.searchsorted(self._arrays, edges.before, "left")
        last = np.searchsorted(self._arrays, edges.before, "right")
        within = Ragged.counted(last - first)
        of = within.rows()
        tasks = self._tasks[first[of] + within.values]
        open_ = alive(tasks) & (self._jobs.submit[tasks] <= now)
        tasks, of = tasks[open_], of[open_]
        single = np.zeros(len(of), np.bool_)
        return edges.take(of).replace(before=self._jobs.id[tasks], whole_array=single)


_NONE = Promises.build(0)


class Ledger:
    """Promises and offers per row of the workload; no memory before the first one."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self._ids = ids
        self._promise = self._made_at = self._offer = np.zeros(0)
        self._rejected = np.zeros(0, np.bool_)
        self._open: Rows = np.zeros(0, np.int64)
        self._new: list[Rows] = []
        """Rows promised something since `_open` was put in order."""

    def promise(self, rows: Rows, deadline: NDArray[np.float64], now: float) -> bool:
        """Note promises (inf: none) made now; return whether there was one."""
        some = np.isfinite(deadline)
        if not some.any():
            return False
        promise, made_at = self.columns()
        promise[rows[some]], made_at[rows[some]] = deadline[some], now
        self.written(rows[some])
        return True

    def columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return float64[n] each: promised deadline and when it was promised, to be written to.

        Whoever writes a promise there tells `written`.
        """
        if not len(self._promise):
            self._promise = np.full(len(self._ids), np.inf)
            self._made_at = np.full(len(self._ids), np.nan)
        return self._promise, self._made_at

    def written(self, rows: Rows) -> None:
        """Take notice of promises that were written to `columns`."""
        self._new.append(rows)

    def offer(self, rows: Rows, deadline: NDArray[np.float64]) -> None:
        """Note counter-offers (inf: none)."""
        if np.isfinite(deadline).any():
            if not len(self._offer):
                self._offer = np.full(len(self._ids), np.inf)
            self._offer[rows] = deadline

    def reject(self, rows: Rows) -> None:
        """Note jobs that are rejected and run on."""
        if not len(self._rejected):
            self._rejected = np.zeros(len(self._ids), np.bool_)
        self._rejected[rows] = True

    def rejected(self) -> NDArray[np.bool_]:
        """Return bool[n]: which jobs were rejected and run on."""
        none = np.broadcast_to(np.False_, len(self._ids))
        return self._rejected.copy() if len(self._rejected) else none

    def open(self, alive: NDArray[np.bool_]) -> Promises:
        """Return the promises to jobs that are `alive`, one flag per row of `open_rows`."""
        self._open = rows = self.open_rows[alive]
        if not len(rows):
            return _NONE
        return Promises.build(
            len(rows),
            job=self._ids[rows],
            deadline=self._promise[rows],
            made_at=self._made_at[rows],
        )

    @property
    def open_rows(self) -> Rows:
        """Return the rows with a promise that was open when last asked, ascending."""
        if self._new:
            self._open = np.unique(np.concatenate([self._open, *self._new]))
            self._new = []
        return self._open

    def promises(self) -> NDArray[np.float64]:
        """Return float64[n]: each job's promised deadline, inf where there is none."""
        return self._all(self._promise)

    def offers(self) -> NDArray[np.float64]:
        """Return float64[n]: each job's counter-offer, inf where there is none."""
        return self._all(self._offer)

    def _all(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values.copy() if len(values) else np.broadcast_to(np.inf, len(self._ids))


class System(ABC):
    """A batch system in simulation, from the first submission to the last end.

    It runs by itself until something must be answered, shows its state, and takes actions.
    `rtsched.simulator.machines.simulate` makes the one that the settings name.

    Parameters
    ----------
    jobs : Jobs
        The workload, `n` rows in order of (submit, id).
    run_time : float64[n]
        Seconds each job takes at `jobs.size` on nodes of speed 1.
    cluster : Cluster
        The machine, with the nodes' states at the start.
    settings : SystemSettings, optional
        Its own scheduler.
    accounts, edges : Accounts, Edges, optional
        Passed on in snapshots.
    periodic : Periodic, optional
        Recurring work of the nodes, on machines that support it.
    blocked : Blocked, optional
        Times at which nodes are set aside, on machines that support it.
    limits : Limits, optional
        Of groups of jobs, row by row with them; machines with their own rules ignore them.
    preemption : Preemption, optional
        Who may preempt whom, row by row with the jobs, on machines that support it.
    task_times : Ragged of float64, optional
        Of each job of kind `ARRAY` the seconds of its tasks, on machine 'exclusive'.
    stop_at : StopConditions
        At which occasions to stop.
    static : StaticAnswers
        Answers known before the run.
    compiled : named tuple, optional
        A compiled policy that orders or places jobs (`rtsched.kernels.policy`), asked from within
        the loop of a machine that is compiled whole.
    node_events : sequence of NodeEvent
        Nodes that go down, are drained or come back, on machines that support it.
    record_events, record_nodes : bool
        Whether `events` and `node_rows` are wanted.

    Raises
    ------
    ShapeError
        If arrays differ in length, jobs are not in order of (submit, id), a node that does not
        exist is named, or nodes would change that cannot.
    """

    handlers: ClassVar[Mapping[type[Action], Handler]]
    """How each action is carried out: the method returns for how many jobs it could not be done,
    None if it is not supported after all."""
    usual: ClassVar[SystemSettings]
    """Its settings where none are given."""

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        settings: SystemSettings | None = None,
        *,
        accounts: Accounts | None = None,
        edges: Edges | None = None,
        periodic: Periodic | None = None,
        blocked: Blocked = NOTHING_BLOCKED,
        limits: Limits | None = None,
        preemption: Preemption | None = None,
        task_times: Ragged | None = None,
        stop_at: StopConditions = StopConditions(),  # noqa: B008 - immutable
        static: StaticAnswers = StaticAnswers(),  # noqa: B008 - immutable
        compiled: Any = None,
        node_events: Sequence[NodeEvent] = (),
        record_events: bool = False,
        record_nodes: bool = False,
    ) -> None:
        self.jobs, self.run_time, self.cluster = jobs, run_time, cluster
        self.settings = self.usual if settings is None else settings
        self.accounts = Accounts.build(0) if accounts is None else accounts
        self.edges = Edges.build(0) if edges is None else edges
        self._dependencies = OpenDependencies(jobs, self.edges)
        self.periodic = Periodic.build(0) if periodic is None else periodic
        self.blocked = blocked
        self.limits, self.preemption, self.task_times = limits, preemption, task_times
        self.stop_at, self.static, self.compiled = stop_at, static, compiled
        self.node_events = sorted(node_events, key=lambda event: event.time)
        self.record_events, self.record_nodes = record_events, record_nodes
        self.origin = float(jobs.submit[0]) if len(jobs) else 0.0
        """Seconds since the epoch of the first submission."""
        self.version = 0
        self._check()
        self._rows, self._ledger = RowsById(jobs.id), Ledger(jobs.id)
        self._set_up()

    def _check(self) -> None:
        """Refuse what does not fit together."""
        n, placement = len(self.jobs), self.static.placement
        given = {
            "run times": self.run_time,
            "rejections": self.static.reject,
            "priorities": self.static.priority,
            "sizes": None if placement is None else placement.size,
            "limits": None if self.limits is None else self.limits.kind,
            "preemption": None if self.preemption is None else self.preemption.kind,
        }
        for name, array in given.items():
            if array is not None and array.shape != (n,):
                raise ShapeError(f"{n} jobs with {name} {array.shape}")
        step = np.diff(self.jobs.submit)
        if (step < 0).any() or (np.diff(self.jobs.id)[step == 0] <= 0).any():
            raise ShapeError("jobs must be in order of (submit, id)")
        if self.node_events and not self.settings.nodes_change:
            raise ShapeError(
                f"nodes of machine {self.settings.machine!r} cannot change their state"
            )
        if any(not 0 <= event.node < len(self.cluster) for event in self.node_events):
            raise ShapeError("a node event names a node that does not exist")

    @abstractmethod
    def _set_up(self) -> None:
        """Make ready what is the machine's own, at the end of the constructor."""

    @property
    @abstractmethod
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""

    @abstractmethod
    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now. Jobs just asked about, and held ones, are not in it."""
        running, allocations = self._running()
        return Snapshot(
            now=self.now,
            cluster=self.cluster,
            queued=self.jobs.take(self._waiting()),
            running=self.jobs.take(running),
            allocations=allocations,
            accounts=self.accounts,
            promises=self._ledger.open(self._alive(self._ledger.open_rows)),
            plan=self._plan_left(),
            edges=self._dependencies.at(self.now, self._alive),
            periodic=self._periodic_now(),
            blocked=self.blocked,
            states=states or {},
            version=self.version,
        )

    @abstractmethod
    def _waiting(self) -> Rows:
        """Return the rows of the jobs that were let in and do not run, ascending."""

    def rejected_waiting(self) -> Rows:
        """Return the rejected jobs that run on, wait, and can still end in time, in some order."""
        return np.zeros(0, np.int64)

    def put_late_last(self) -> None:  # noqa: B027 - where nobody runs on there is nothing to do
        """Have rejected jobs that can no longer end in time wait behind those that can."""

    @abstractmethod
    def _running(self) -> tuple[Rows, Schedule]:
        """Return the rows of the running jobs, ascending, and their nodes, starts, latest ends."""

    @abstractmethod
    def _alive(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which of these jobs have not ended."""

    def _plan_left(self) -> Schedule:
        """Return the entries of the plan that have not started."""
        return Schedule.empty()

    def _periodic_now(self) -> Periodic:
        """Return the recurring work with what it still needs."""
        return self.periodic

    @property
    def resumable(self) -> bool:
        """Return whether `checkpoint` alone says how the simulation goes on."""
        return False

    def checkpoint(self) -> Any:
        """Return the present state, where it is `resumable`; it may be pickled."""
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Go on from what `checkpoint` of an equal system returned, where it is `resumable`."""
        raise NotImplementedError

    @abstractmethod
    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""

    def has_events(self) -> bool:
        """Return whether there may be some."""
        return True

    @abstractmethod
    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""

    def starts(self) -> NDArray[np.float64]:
        """Return when each job started last, float64[n] seconds since the epoch; nan: not yet."""
        return self.job_outcomes().start

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the nodes it ran on last: offsets int64[n + 1], node rows int32[k].

        No job has any unless `record_nodes` was asked for. Here each job runs on one node.
        """
        node = self.job_outcomes().first_node
        known = (node >= 0) & self.record_nodes
        return offsets_of(known), node[known]

    def hook_calls(self) -> Mapping[str, list[int]]:
        """Return what a compiled policy was asked in place of each hook.

        Calls, jobs or events in them, those changed or decided, and those without an opinion.
        """
        return {}

    def apply(self, actions: Sequence[Action]) -> tuple[Outcome, ...]:
        """Carry out actions in order and return an outcome for each.

        Raises
        ------
        AdapterError
            For a job id that is not in the workload.
        ShapeError
            For a plan or node set that names a node which does not exist.
        """
        return tuple(self._apply(action) for action in actions)

    def _apply(self, action: Action) -> Outcome:
        handler = self.handlers.get(type(action))
        left = None if handler is None else handler(self, action, self._rows.find(action.job))
        if left is None:
            return Outcome.UNSUPPORTED
        return Outcome.PARTLY if left else Outcome.DONE

    def _admit(self, action: Admit, rows: Rows) -> int:
        self.version += self._ledger.promise(rows, action.promise, self.now)
        return self._let_in(rows)

    def _reject(self, action: Reject, rows: Rows) -> int:
        self._ledger.offer(rows, action.offer)
        return self._turn_away(rows)

    @abstractmethod
    def _let_in(self, rows: Rows) -> int:
        """Let jobs in; return for how many that cannot be done."""

    @abstractmethod
    def _turn_away(self, rows: Rows) -> int:
        """Turn jobs away; return for how many that cannot be done."""


class RowsById:
    """Find the rows of job ids; the index is made when it is first needed."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self._ids = ids

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """Rows in order of id; None if they are in that order."""
        if (np.diff(self._ids) > 0).all():
            return None
        return np.argsort(self._ids, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        return self._ids if self._order is None else self._ids[self._order]

    @cached_property
    def _dense(self) -> bool:
        """Whether the sorted ids leave none out."""
        ids = self._sorted
        return len(ids) > 0 and bool(ids[-1] - ids[0] == len(ids) - 1)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, int64[k].

        Raises
        ------
        AdapterError
            For an id that no job has.
        """
        known, wanted = self._sorted, np.asarray(ids, np.int64)
        if not len(wanted):
            return wanted
        if self._dense:
            place = wanted - known[0]
            missing = (place < 0) | (place >= len(known))
        else:
            place = np.searchsorted(known, wanted)
            missing = place >= len(known)
            missing[~missing] = known[place[~missing]] != wanted[~missing]
        if missing.any():
            raise AdapterError(f"there is no job {wanted[missing][0]} in this workload")
        return place if self._order is None else np.asarray(self._order[place], np.int64)
