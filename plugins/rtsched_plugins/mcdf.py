"""Deadline admission by a complete plan: MCDF, with FIFO and EDF over two node rules as baselines.

A job with a deadline is admitted if one plan keeps every promise given so far and its own; that
plan then replaces the old one. Rigid, moldable and divisible jobs pass the same test. Jobs without
a deadline are not judged: they are best effort and run around the plan. A job that must not begin
yet is put off until it may: the plan knows no later arrivals.

The cluster is taken as one pool of equal nodes per partition. Where partitions overlap, the plans
of the others stand while one is planned anew, so nothing promised is broken, though a plan over
both could admit more.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.hookspecs import hookimpl
from rtsched.model.jobs import Kind
from rtsched.model.verdicts import Finding, Reason, Verdict, Verdicts
from rtsched_plugins.kernels.admission import (
    BY_ARRIVAL,
    BY_COST,
    BY_DEADLINE,
    FASTEST_NODES,
    LEAST_NODES,
)
from rtsched_plugins.ledger import Ledger, Rules, Standing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot

ORDERS = {"cost-derivative": BY_COST, "arrival": BY_ARRIVAL, "deadline": BY_DEADLINE}
NODE_RULES = {"fewest": LEAST_NODES, "fastest": FASTEST_NODES}


class Mcdf:
    """Admit a job with a deadline if a plan keeps it and every earlier promise."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        order: Annotated[
            Literal["cost-derivative", "arrival", "deadline"],
            Meta(
                description="Who is planned first: the job for which one node more costs most "
                "(MCDF; a later job may overtake one that does not fit), the first come (FIFO), "
                "or the earliest deadline (EDF)."
            ),
        ] = "cost-derivative"
        nodes: Annotated[
            Literal["fewest", "fastest"],
            Meta(description="Give the fewest nodes that meet the deadline, or the fastest count."),
        ] = "fewest"
        efficiency: Annotated[
            float,
            Meta(
                gt=0,
                le=1,
                description="Moldable jobs: run time on n nodes is wall time (size/n)^efficiency.",
            ),
        ] = 1.0
        offer_tests: Annotated[
            int,
            Meta(
                ge=0,
                description="Admission tests that one counter-offer may cost; 0: no counter-offer. "
                "When they are used up a later deadline that was tested is offered.",
            ),
        ] = 64

    impossible = Reason(
        "mcdf.impossible",
        "cannot end by its deadline even on an idle machine: {left} s are left",
    )
    no_room = Reason(
        "mcdf.no-room",
        "every plan that keeps the {promises} promises given ends it too late; {left} s are left "
        "and {free} of {nodes} nodes are free",
    )
    breaks_promise = Reason(
        "mcdf.breaks-promise",
        "with it job {other} would miss its promised deadline; {promises} promises are given",
    )
    endless = Reason(
        "mcdf.endless", "says neither how long it runs nor how much work it is; no end is certain"
    )
    not_yet = Reason(
        "mcdf.not-yet", "must not begin for another {wait} s; it is judged when it may begin"
    )

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._standing: Standing | None = None

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts | None:
        """Judge one by one in order of (submit, id), each against all admitted before it."""
        if not len(jobs):
            return self._improve(snapshot)
        due = np.isfinite(jobs.deadline)
        if not due.any():
            return None
        endless = due & ~_bounded(jobs)
        later = due & ~endless & (jobs.begin > snapshot.now)
        judged = np.flatnonzero(due & ~endless & ~later)
        code = np.zeros(len(jobs), np.int8)
        code[endless], code[later] = Verdict.REJECT, Verdict.DEFER
        promise, offer = np.full(len(jobs), np.inf), np.full(len(jobs), np.inf)
        findings = []
        all_judged = len(judged) == len(jobs)
        if not all_judged:
            findings.append(Finding.where(endless, self.endless))
            findings.append(Finding.where(later, self.not_yet, wait=jobs.begin - snapshot.now))
        ledger = self._ledger(snapshot, jobs if all_judged else jobs.take(judged))
        for k in np.lexsort((jobs.id[judged], jobs.submit[judged])).tolist():
            row = judged[k]
            refusal = ledger.admit(k)
            if refusal is None:
                code[row], promise[row] = Verdict.ADMIT, jobs.deadline[row]
                continue
            code[row] = Verdict.REJECT
            if self.config.offer_tests:
                offer[row] = ledger.offer(k, self.config.offer_tests)
            reason = getattr(self, refusal.why)
            numbers = {name: np.array([value]) for name, value in refusal.numbers.items()}
            findings.append(Finding(reason, np.array([row]), numbers))
        plan = ledger.schedule() if (code == Verdict.ADMIT).any() else None
        retry_at = np.where(later, jobs.begin, -np.inf)
        said = tuple(finding for finding in findings if len(finding.rows))
        return Verdicts(code, retry_at, promise, offer, said, plan)

    def _improve(self, snapshot: Snapshot) -> Verdicts | None:
        """Return an earlier plan for the promises given, if there is one; see `Ledger.improve`."""
        if not len(snapshot.plan):
            return None
        ledger = self._ledger(snapshot, snapshot.queued.take([]))
        return Verdicts.build([], plan=ledger.schedule()) if ledger.improve() else None

    def _ledger(self, snapshot: Snapshot, jobs: Jobs) -> Ledger:
        """Return the ledger; what was made of the same promises and plan for the last is kept."""
        config, standing = self.config, self._standing
        if standing is None or not standing.is_of(snapshot):
            rules = Rules(ORDERS[config.order], NODE_RULES[config.nodes], config.efficiency)
            standing = self._standing = Standing(snapshot, rules)
        return Ledger(snapshot, jobs, standing)


def _bounded(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs say enough to know when they will have ended."""
    load = np.isfinite(jobs.sigma) & (jobs.sigma > 0) & np.isfinite(jobs.cms + jobs.cps)
    load &= jobs.cms + jobs.cps > 0
    return np.where(jobs.kind == Kind.DIVISIBLE, load, np.isfinite(jobs.wall_time))
