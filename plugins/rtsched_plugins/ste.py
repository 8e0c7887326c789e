"""Fair share by service-time error: who got less than the share goes first.

The error of a user is the service that the user's jobs received, in core-seconds, less the ideal
service. While a user is active (has jobs that wait or run) the ideal service grows at the user's
share of what is being served, but no faster than the user's jobs could use it: what one cannot use
goes to the others, in proportion to their shares. Accounts stand against accounts, the users of an
account against each other. A term falls with the error E from 1 to 0:

    term = (1 - E / (|E| + scale)) / 2

Ideal finishing times say when jobs would end if everybody were served exactly by share, and the set
of active users stayed as it is:

    now + requested time x nodes that the user's jobs could occupy / ideal nodes of the user

References
----------
Lopez and Raja: A dynamic error based fair scheduling algorithm for a computational grid. The
batch setting, changing sets of users, caps, accounts and half-life are our generalisation. The
source claims that each task gets what it needs to end by its deadline; it does where only tasks are
let in whose ideal finish is in time, and the error is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import (
    Capabilities,
    Finding,
    Reason,
    ShapeError,
    State,
    Terms,
    Verdict,
    Verdicts,
    hookimpl,
    job_columns,
)
from rtsched.kernels.service_error import fill
from rtsched_plugins.kernels import ste as kernel
from rtsched_plugins.multifactor import Tree

if TYPE_CHECKING:
    from rtsched.api import Accounts, Cluster, Events, Jobs, Snapshot

    Floats = NDArray[np.float64]


class Service(State, frozen=True):
    """Errors and what they grow by: one row for the machine, then one per row of `Accounts`.

    The lines of `kept` are the first ones of `rtsched_plugins.kernels.ste`: error in node-seconds,
    seconds since the epoch up to when, nodes served, ideal nodes, nodes that the jobs could occupy,
    jobs that wait or run, and two that link the active rows.
    """

    kept: NDArray[np.float64]


class Ste:
    """Order jobs by how much less than their share their users and accounts were served."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        weight_user: Annotated[float, Meta(ge=0)] = 1.0
        """Weight of the user's term, against the same account's."""
        weight_account: Annotated[float, Meta(ge=0)] = 10.0
        """Weight of the account's term; above accounts, their mean."""
        scale: Annotated[float, Meta(gt=0)] = 86400.0
        """Core-seconds of error at which a term is 1/4, or 3/4 below 0."""
        half_life: Annotated[float, Meta(ge=0)] = 0.0
        """Half-life of past errors, seconds; 0: errors do not decay."""
        admission: Literal["none", "ideal-finish"] = "none"
        """`ideal-finish`: a job with a deadline is accepted only if it would end by then when it
        gets exactly its share. This is not a promise."""

    too_late = Reason(
        "ste.too-late",
        "with its share of {nodes} of {capacity:node} it would end {late:time} after its deadline",
    )
    fewer_nodes = Reason(
        "ste.fewer-nodes",
        "the same deadline would be accepted with {nodes:node} instead of "
        "{asked} and the same run time",
    )
    endless = Reason("ste.endless", "states no run time, so its end cannot be predicted")

    def __init__(self, config: Config) -> None:
        self.config = config
        self.weights = {"user": config.weight_user, "account": config.weight_account}
        if config.admission == "none":
            self.rtsched_admit = None  # type: ignore[method-assign, assignment]  # not asked

    @hookimpl
    def rtsched_fair_share(
        self,
        jobs: Jobs,
        cluster: Cluster,
        accounts: Accounts,
        snapshot: Snapshot,
        state: Service | None,
    ) -> Terms | None:
        """Give a term for the user and one for the account; a job charged to nobody has 1/2."""
        if not (jobs.association >= 0).any():
            return None
        params, tables = self._lay_out(accounts, cluster)
        by_row, lines = np.empty((2, len(accounts) + 1)), _resume(state, accounts)
        errors = _errors(lines, snapshot.now, self.config.half_life)
        kernel.terms(snapshot.now, params, tables, lines, by_row)
        values = dict(zip(self.weights, by_row[:, jobs.association + 1], strict=True))
        return Terms(values, self.weights, service_error=errors)

    @hookimpl
    def rtsched_observe(
        self, events: Events, snapshot: Snapshot, state: Service | None
    ) -> Service | None:
        """Book what jobs received, and what they were entitled to meanwhile."""
        rows, account = events.rows, events.jobs.association
        booked = np.isin(rows.kind, kernel.BOOKED) & (account >= 0)
        if not booked.any():
            return None
        params, tables = self._lay_out(snapshot.accounts, snapshot.cluster)
        after = _resume(state, snapshot.accounts)
        rows, jobs = rows.take(booked), events.jobs.take(booked)
        sizes = jobs.size, rows.size, np.ascontiguousarray(jobs.billed)
        kernel.book_all(rows.time, rows.kind, jobs.association, *sizes, params, tables, after)
        return Service(after[: kernel.KEPT].copy())

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, cluster: Cluster, accounts: Accounts, snapshot: Snapshot
    ) -> Verdicts | None:
        """Let a job with a deadline in only if its ideal finish is in time; no promise."""
        if not (np.isfinite(jobs.deadline) & (jobs.association >= 0)).any():
            return None
        ideal = IdealFinish(Tree.of(accounts), accounts.shares, cluster, snapshot)
        return ideal.judge(jobs, self.too_late, self.endless, self.fewer_nodes)

    @property
    def capabilities(self) -> Capabilities:
        """Return what it judges, and that both other hooks have a compiled form."""
        return Capabilities(judges_only_deadlines=True, compiled_policy=self._compiled_policy)

    def _compiled_policy(
        self, jobs: Jobs, accounts: Accounts, cluster: Cluster, origin: float
    ) -> kernel.SteCharges:
        """Return both hooks in compiled form."""
        arrays, state = self._lay_out(accounts, cluster), _resume(None, accounts)
        return kernel.SteCharges(job_columns(jobs, origin), *arrays, state)

    def _lay_out(self, accounts: Accounts, cluster: Cluster) -> tuple[Floats, Floats]:
        """Return `params` and `tables` of the kernels; the errors they keep are node-seconds.

        Raises
        ------
        ShapeError
            Naming an account whose share is not above 0.
        """
        config = self.config
        if len(accounts) and not accounts.shares.min() > 0.0:
            name = accounts.texts("name")[int(accounts.shares.argmin())]
            raise ShapeError(f"the share of {name!r} is not above 0")
        cores = float(cluster.nodes.cores.mean()) if len(cluster) else 1.0
        scale = config.scale / cores
        params = np.array([config.half_life, scale, config.weight_user, config.weight_account])
        shares = np.concatenate(([1.0], accounts.shares))
        return params, np.stack([Tree.of(accounts).parent.astype(np.float64), shares])


def _resume(state: Service | None, accounts: Accounts) -> Floats:
    """Return the kernels' array as remembered; rows that are new have no error."""
    lines = np.zeros((kernel.LINES, len(accounts) + 1))
    lines[kernel.AT] = np.nan
    if state is not None:
        lines[: kernel.KEPT, : state.kept.shape[1]] = state.kept
    return lines


def _errors(lines: Floats, now: float, half_life: float) -> NDArray[np.float64]:
    """Return each account's error at an instant, node-seconds; as `kernel.error_at`."""
    span = np.maximum(now - lines[kernel.SINCE, 1:], 0.0)
    kept, weight = np.ones_like(span), span
    if half_life > 0.0:
        fading = np.log(2.0) / half_life
        kept, weight = np.exp2(-span / half_life), -np.expm1(-span * fading) / fading
    gained = (lines[kernel.SERVED, 1:] - lines[kernel.RATE, 1:]) * weight
    found: NDArray[np.float64] = lines[kernel.ERROR, 1:] * kept + gained
    return found


class IdealFinish:
    """The shares at one instant, with the jobs that have been let in.

    Parameters
    ----------
    tree : Tree
        Rows of accounts, 0 for the machine.
    shares : float64[a]
        Of each row of `Accounts`, > 0.
    cluster : Cluster
        Its usable nodes are handed out.
    snapshot : Snapshot
        Who waits and runs.
    """

    def __init__(
        self, tree: Tree, shares: NDArray[np.float64], cluster: Cluster, snapshot: Snapshot
    ) -> None:
        self._parent, self._now = tree.parent, snapshot.now
        self._shares = np.concatenate(([1.0], shares))
        self.capacity = float(cluster.usable.sum())
        self._cap = np.zeros(len(self._shares))
        self._enter(snapshot.queued)
        self._enter(snapshot.running)

    def _enter(self, jobs: Jobs) -> None:
        """Count jobs as active, at every row above the one they are charged to."""
        charged = jobs.association >= 0
        row, size = jobs.association[charged].astype(np.int64) + 1, jobs.size[charged]
        while len(row):
            np.add.at(self._cap, row, size)
            row = self._parent[row]
            size, row = size[row > 0], row[row > 0]

    def nodes_of(self, row: int) -> float:
        """Return how many nodes a row is entitled to: its siblings' part of what is above it."""
        above = int(self._parent[row])
        capacity = self.nodes_of(above) if above else self.capacity
        active = np.flatnonzero((self._parent == above) & (self._cap > 0.0))
        active = active[active > 0]
        rate = np.empty(len(active))
        fill(capacity, self._shares[active], self._cap[active], rate)
        return float(rate[np.searchsorted(active, row)])

    def judge(self, jobs: Jobs, too_late: Reason, endless: Reason, fewer_nodes: Reason) -> Verdicts:
        """Admit or reject jobs with a deadline, in order of (submit, id), each after those let in.

        A rejection carries the ideal finish as counter-offer: the least deadline accepted; and the
        most nodes that would be accepted with the asked one. Jobs without a deadline are let in,
        and of those that are charged to nobody nothing is said.
        """
        n = len(jobs)
        judged = np.isfinite(jobs.deadline) & (jobs.association >= 0)
        nodes, finish = np.zeros(n), np.full(n, np.inf)
        code, fits = np.zeros(n, np.int8), np.zeros(n, np.int32)
        for k in np.lexsort((jobs.id, jobs.submit)).tolist():
            before, job = self._cap.copy(), jobs.take([k])
            self._enter(job)
            if not judged[k]:
                continue
            nodes[k], finish[k] = self._job(int(jobs.association[k]) + 1, job)
            code[k] = Verdict.ADMIT
            if not finish[k] <= jobs.deadline[k]:
                code[k], self._cap = Verdict.REJECT, before
                fits[k] = self._most_nodes(job)
        rejected = code == Verdict.REJECT
        never, late = rejected & ~np.isfinite(finish), np.zeros(n)
        np.subtract(finish, jobs.deadline, out=late, where=rejected & ~never)
        capacity = self.capacity
        findings = (
            Finding.where(rejected & ~never, too_late, nodes=nodes, capacity=capacity, late=late),
            Finding.where(never, endless),
            Finding.where(fits > 0, fewer_nodes, nodes=fits, asked=jobs.size),
        )
        offer = np.where(rejected, finish, np.inf)
        return Verdicts.build(code, offer=offer, findings=findings)

    def _most_nodes(self, job: Jobs) -> int:
        """Return with how many nodes, fewer than asked, it would end in time; 0: with none.

        With fewer nodes it never ends later, since a narrower user is served a greater part.
        """
        before, row = self._cap, int(job.association[0]) + 1
        good, bad = 0, int(job.size[0])
        while bad - good > 1:
            nodes = (good + bad) // 2
            self._cap, narrower = before.copy(), job.replace(size=[nodes])
            self._enter(narrower)
            in_time = self._job(row, narrower)[1] <= job.deadline[0]
            good, bad = (nodes, bad) if in_time else (good, nodes)
        self._cap = before
        return good

    def _job(self, row: int, job: Jobs) -> tuple[float, float]:
        """Return the nodes that a job charged to `row` is entitled to, and its ideal finish."""
        part = self.nodes_of(row) / self._cap[row]
        begin = max(self._now, float(job.begin[0]))
        wall = float(job.wall_time[0])
        return part * float(job.size[0]), begin + wall / part if part > 0.0 else np.inf
