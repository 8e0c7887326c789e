"""Service-time errors of users and accounts, kept up to date event by event.

Row 0 is the whole machine, row `a + 1` is row `a` of `Accounts`; each line of `state` holds one
thing of all rows. Rows with the same row above are siblings. What siblings are served just then is
what is handed out among those of them that are active, by their shares, to none more than its jobs
could occupy (`rtsched.kernels.service_error.fill`). So at every level and instant the errors of
siblings, added up, stay what they were, a lone one has none, and where nobody waits no error
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rtsched.api import EventKind, policy_kernels
from rtsched.kernels.compiling import compiled
from rtsched.kernels.service_error import fill, kept, weight
from rtsched_plugins.kernels.usage import charged_nodes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtsched.kernels.policy import JobColumns

    Line = NDArray[np.float64]
    Grid = NDArray[np.float64]
    Rows = NDArray[np.int64]

# Lines of `state`: what must be remembered ...
ERROR, SINCE, SERVED, RATE, CAP, ACTIVE, FIRST, NEXT = range(8)
KEPT = 8
"""Node-seconds of error; seconds up to when; nodes served; nodes by ideal; nodes its jobs could
occupy; jobs that wait or run; first active row below; next active sibling (0: none)."""
# ... and scratch: a term and the instant that it is of; the arguments of `fill`.
TERM, AT, SHARE_OF, CAP_OF, RATE_OF = range(KEPT, KEPT + 5)
LINES = KEPT + 5

# Entries of `params`: seconds; node-seconds at which a term is 3/4 or 1/4; weights of the terms.
HALF_LIFE, SCALE, USER, ACCOUNT = range(4)

# Lines of `tables`.
PARENT, SHARES = range(2)

ARRIVED, REJECTED = int(EventKind.ARRIVED), int(EventKind.REJECTED)
STARTED, ENDED = int(EventKind.STARTED), int(EventKind.ENDED)
SUSPENDED, RESUMED = int(EventKind.SUSPENDED), int(EventKind.RESUMED)
BOOKED = (ARRIVED, REJECTED, STARTED, ENDED, SUSPENDED, RESUMED)


@compiled
def error_at(row: int, now: float, half_life: float, state: Grid) -> float:
    """Return a row's error at an instant, node-seconds; positive: more than its share."""
    span = max(now - state[SINCE, row], 0.0)
    gained = (state[SERVED, row] - state[RATE, row]) * weight(span, half_life)
    return float(state[ERROR, row] * kept(span, half_life) + gained)


@compiled
def settle(parent: int, now: float, half_life: float, state: Grid) -> None:
    """Bring the errors of the active rows below one row up to date."""
    row = int(state[FIRST, parent])
    while row > 0:
        state[ERROR, row] = error_at(row, now, half_life, state)
        state[SINCE, row] = now
        row = int(state[NEXT, row])


@compiled
def share_out(parent: int, tables: Grid, state: Grid) -> None:
    """Work out the ideal rates of the active rows below one row."""
    count, served = 0, 0.0
    row = int(state[FIRST, parent])
    while row > 0:
        state[SHARE_OF, count] = tables[SHARES, row]
        state[CAP_OF, count] = state[CAP, row]
        served += state[SERVED, row]
        count += 1
        row = int(state[NEXT, row])
    rates = state[RATE_OF, :count]
    fill(served, state[SHARE_OF, :count], state[CAP_OF, :count], rates)
    count, row = 0, int(state[FIRST, parent])
    while row > 0:
        state[RATE, row] = rates[count]
        count += 1
        row = int(state[NEXT, row])


@compiled
def join(row: int, parent: int, now: float, half_life: float, state: Grid) -> None:
    """Make a row active."""
    state[ERROR, row] = error_at(row, now, half_life, state)
    state[SINCE, row] = now
    state[NEXT, row] = state[FIRST, parent]
    state[FIRST, parent] = row


@compiled
def leave(row: int, parent: int, state: Grid) -> None:
    """Make a row inactive; its error stays."""
    state[ACTIVE, row] = state[CAP, row] = state[SERVED, row] = state[RATE, row] = 0.0
    if state[FIRST, parent] == row:
        state[FIRST, parent] = state[NEXT, row]
    else:
        before = int(state[FIRST, parent])
        while state[NEXT, before] != row:
            before = int(state[NEXT, before])
        state[NEXT, before] = state[NEXT, row]
    state[NEXT, row] = 0.0


@compiled
def change(
    account: int,
    now: float,
    jobs: float,
    cap: float,
    served: float,
    params: Line,
    tables: Grid,
    state: Grid,
) -> None:
    """Book more (or, if negative, fewer) jobs, usable nodes and served nodes of an account.

    Parameters
    ----------
    account : int
        Row of `Accounts`; the rows above it get the same.
    now : float
        Seconds, not before that of any earlier call.
    jobs, cap, served : float
        Changes of the jobs that wait or run, of their nodes, and of the nodes that serve them.
    params, tables, state
        As laid out by this module's constants; `state` is written to.
    """
    row, half_life = account + 1, params[HALF_LIFE]
    while row > 0:
        parent = int(tables[PARENT, row])
        settle(parent, now, half_life, state)
        before = state[ACTIVE, row]
        state[ACTIVE, row] = max(before + jobs, 0.0)
        state[SERVED, row] = max(state[SERVED, row] + served, 0.0)
        if state[SERVED, row] > 0.0:  # jobs from before the first event
            state[ACTIVE, row] = max(state[ACTIVE, row], 1.0)
        state[CAP, row] = max(state[CAP, row] + cap, state[SERVED, row])
        if before == 0.0 and state[ACTIVE, row] > 0.0:
            join(row, parent, now, half_life, state)
        elif before > 0.0 and state[ACTIVE, row] == 0.0:
            leave(row, parent, state)
        share_out(parent, tables, state)
        row = parent


@compiled
def book(
    now: float,
    kind: int,
    account: int,
    asked: float,
    size: float,
    billed: float,
    params: Line,
    tables: Grid,
    state: Grid,
) -> None:
    """Book one event of a job that asked for `asked` nodes and has `size`.

    Service counts in the nodes that the job is charged for (`billed`: `Jobs.billed`).
    """
    if account < 0:
        return
    size = charged_nodes(size, asked, billed)
    asked = charged_nodes(asked, asked, billed)
    if kind == ARRIVED:
        change(account, now, 1.0, asked, 0.0, params, tables, state)
    elif kind == REJECTED:
        change(account, now, -1.0, -asked, 0.0, params, tables, state)
    elif kind == STARTED:
        change(account, now, 0.0, size - asked, size, params, tables, state)
    elif kind == ENDED:
        change(account, now, -1.0, -size, -size, params, tables, state)
    elif kind == SUSPENDED:
        change(account, now, 0.0, 0.0, -size, params, tables, state)
    elif kind == RESUMED:
        change(account, now, 0.0, 0.0, size, params, tables, state)


@compiled
def book_all(
    now: Line,
    kind: NDArray[np.int8],
    account: NDArray[np.int32],
    asked: NDArray[np.int32],
    size: NDArray[np.int32],
    billed: Line,
    params: Line,
    tables: Grid,
    state: Grid,
) -> None:
    """Book a batch of events, in order; see `book`."""
    for at in range(len(now)):
        asks, has = float(asked[at]), float(size[at])
        book(now[at], kind[at], account[at], asks, has, billed[at], params, tables, state)


@compiled
def term(row: int, now: float, params: Line, state: Grid) -> float:
    """Return a row's term in [0, 1]: 1/2 without error, more the less it was served."""
    if state[AT, row] != now:
        error = error_at(row, now, params[HALF_LIFE], state)
        state[TERM, row] = 0.5 - 0.5 * (error / (abs(error) + params[SCALE]))
        state[AT, row] = now
    return float(state[TERM, row])


@compiled
def account_term(row: int, now: float, params: Line, tables: Grid, state: Grid) -> float:
    """Return the mean term of the rows above a row; its own where there is none."""
    above = int(tables[PARENT, row])
    if above == 0:
        return term(row, now, params, state)
    total, count = 0.0, 0
    while above > 0:
        total += term(above, now, params, state)
        count += 1
        above = int(tables[PARENT, above])
    return total / count


@compiled
def terms(now: float, params: Line, tables: Grid, state: Grid, out: Grid) -> None:
    """Fill the lines of `out` with the terms of user and of account, per row; 1/2 in row 0."""
    out[:, 0] = 0.5
    for row in range(1, out.shape[1]):
        out[0, row] = term(row, now, params, state)
        out[1, row] = account_term(row, now, params, tables, state)


class SteCharges(NamedTuple):
    """The jobs of a replay, and what is booked for them: a compiled policy."""

    columns: JobColumns
    params: Line
    tables: Grid
    state: Grid


def observed(
    charged: SteCharges, now: float, kind: int, row: int, size: int, _nodes: NDArray[np.int32]
) -> None:
    """Book one event."""
    columns, params, tables, state = charged
    account, asked = columns.association[row], float(columns.size[row])
    book(now, kind, account, asked, float(size), columns.billed[row], params, tables, state)


def priorities(charged: SteCharges, now: float, rows: Rows, out: Line) -> int:
    """Fill `out` with the priorities of `rows`.

    Nothing is said where no job is charged to anybody.
    """
    columns, params, tables, state = charged
    owned = 0
    for at in range(len(rows)):
        row = columns.association[rows[at]] + 1
        user = account = 0.5
        if row > 0:
            owned += 1
            user = term(row, now, params, state)
            account = account_term(row, now, params, tables, state)
        out[at] = params[USER] * user + params[ACCOUNT] * account
    if owned == 0:
        out[:] = 0.0
        return len(rows)
    return 0


policy_kernels(SteCharges, rank=priorities, observe=observed)
