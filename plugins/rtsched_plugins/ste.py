"""Fair share by service-time error: who got less than the share goes first.

The error of a user is the service that the user's jobs received, in core-seconds, less the ideal
service. While a user is active (has jobs that wait or run) the ideal service grows at the user's
share of what is being served, but no faster than the user's jobs could use it: what one cannot use
goes to the others, in proportion to their shares. Accounts stand against accounts, the users of an
account against each other. A term falls with the error E from 1 to 0:

    term = (1 - E / (|E| + scale)) / 2

References
----------
Lopez and Raja: A dynamic error based fair scheduling algorithm for a computational grid. The
batch setting, changing sets of users, caps, accounts and half-life are our generalisation.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import (
    FAIR_SHARE,
    OBSERVE,
    Capabilities,
    CompiledHook,
    Reason,
    ShapeError,
    State,
    Terms,
    compiled_hook,
    hookimpl,
)
from rtsched_plugins.accounting import Tree
from rtsched_plugins.ideal_finish import IdealFinish
from rtsched_plugins.kernels import ste as kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.api import Accounts, Cluster, Events, Jobs, Snapshot, Verdicts

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
        return Capabilities(judges_only_deadlines=True, compiled_hooks=self._compiled_hooks)

    def _compiled_hooks(
        self,
        jobs: Jobs,  # noqa: ARG002 - the kernels see them
        accounts: Accounts,
        cluster: Cluster,
        origin: float,  # noqa: ARG002 - only differences of times matter
    ) -> Mapping[str, CompiledHook]:
        """Return both hooks in compiled form; see `rtsched.kernels.hooks`."""
        arrays, state = self._lay_out(accounts, cluster), _resume(None, accounts)
        return {
            "fair_share": CompiledHook(_priorities(), *arrays, state),
            "observe": CompiledHook(_observed(), *arrays, state),
        }

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


@cache
def _priorities() -> Callable[..., Any]:
    """Return the kernel of `rtsched_fair_share`, compiled when first needed."""
    return compiled_hook(FAIR_SHARE)(kernel.priorities)


@cache
def _observed() -> Callable[..., Any]:
    """Return the kernel of `rtsched_observe`, compiled when first needed."""
    return compiled_hook(OBSERVE)(kernel.observed)
