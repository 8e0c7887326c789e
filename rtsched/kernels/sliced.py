"""Servers that give their time in slices: first come first served, round robin, service-time error.

Tasks wait in one queue per server. What a task got less what its share entitled it to is its
service-time error

    E = W - S (v - v at its arrival)        dv = dt / sum of the shares of the tasks in the system

so its ideal service accrues at S over the sum of the shares of all arrived, unfinished tasks. On
one server the errors of the tasks in the system and the final errors of the finished ones add up to
0 at every instant.

Queues begin in order of arrival, then decreasing share, then rank; later arrivals go to the end,
before the task whose slice ends at that instant. `FCFS` runs the first task to its end.
`ROUND_ROBIN` runs the first for a quantum and puts it at the end. `SERVICE_ERROR` lets a task whose
error is not above 0 keep the server, moves any other to the end, and then runs the second in the
queue if its error is below the first's, else the first. `LEAST_ERROR` puts the task at the end and
runs the one whose error is least, the first of these in the queue.

The same source runs compiled on float64, and as plain Python on object arrays of fractions
(`plain(run)`), where it is exact. On floats errors that differ by no more than `slack` count as
equal.

References
----------
Lopez and Raja: A dynamic error based fair scheduling algorithm for a computational grid, figure 1.
There the queue is sorted anew at each pass, which would undo the move to the end; here it is
sorted once. The error goes back to Nieh, Vaill and Zhong, 2001: Virtual-Time Round-Robin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled, taken_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
    """float64, or objects: fractions."""
    Rows = NDArray[np.int64]

FCFS, ROUND_ROBIN, SERVICE_ERROR, LEAST_ERROR = range(4)


class Servers(NamedTuple):
    """`n` tasks on `k` servers, changed in place; times from any origin, all in one unit."""

    share: Numbers
    """[n], > 0."""
    arrival: Numbers
    """[n]."""
    left: Numbers
    """[n], service that the task still needs, in time on its server."""
    got: Numbers
    """[n], service that it has got."""
    joined: Numbers
    """[n], `virtual` of its server when it arrived."""
    start: Numbers
    """[n], begin of its first slice; nan before."""
    end: Numbers
    """[n], when it was finished; nan before."""
    error: Numbers
    """[n], error when it was finished; nan before."""
    link: Rows
    """int64[n], the next task in the queue; -1: none."""
    away: NDArray[np.bool_]
    """bool[n], turned away: passed over at its arrival."""
    order: Rows
    """int64[n], tasks of one server after the other, in order of (arrival, -share, rank)."""
    upcoming: Rows
    """int64[k], place in `order` of the server's next arrival."""
    last: Rows
    """int64[k], place after its last one."""
    head: Rows
    """int64[k], first task that waits; -1: none."""
    tail: Rows
    """int64[k], last task that waits, where one does."""
    current: Rows
    """int64[k], task that has the server; -1: it is idle."""
    now: Numbers
    """[k], up to when the server has been simulated."""
    virtual: Numbers
    """[k], v."""
    total: Numbers
    """[k], sum of the shares of the tasks in the system."""
    slice_time: Numbers
    """[k], length of the present slice."""
    slice_end: Numbers
    """[k], when it ends."""
    least: Numbers
    """[k], least error of a task at the end of a slice; [0] where extremes are not wanted."""
    most: Numbers
    """[k], greatest error."""
    log_row: Rows
    """int64[c], task of each slice begun; [0] where slices are not wanted."""
    log_begin: Numbers
    """[c]."""
    log_end: Numbers
    """[c]."""
    logged: Rows
    """int64[1], slices logged."""


LOG = ("log_row", "log_begin", "log_end")
"""The columns of the log of slices."""


def lay_out(
    share: Numbers,
    arrival: Numbers,
    service: Numbers,
    server: Rows,
    servers: int,
    rank: Rows | None = None,
    *,
    extremes: bool = False,
    slices: int = 0,
) -> Servers:
    """Return servers before their first instant.

    Parameters
    ----------
    share, arrival, service : float64[n], or objects: fractions
        Of each task; service is in time on its own server.
    server : int64[n]
        The server of each task, 0..servers-1.
    servers : int
        How many there are.
    rank : int64[n], optional
        Breaks ties of arrival and share; the row if left out.
    extremes : bool
        Whether `least` and `most` are wanted.
    slices : int
        Room in the log of slices; 0: none is kept.
    """
    n, kind = len(share), share.dtype
    by = np.arange(n) if rank is None else rank
    order = np.lexsort((by, -share, arrival, server))
    bounds = np.searchsorted(server[order], np.arange(servers + 1))

    def zeros(count: int) -> Numbers:
        return np.zeros(count, kind)

    def blank(count: int, value: float) -> Numbers:
        return np.full(count, value, kind)

    ends = servers if extremes else 0
    return Servers(
        share=share,
        arrival=arrival,
        left=service.copy(),
        got=zeros(n),
        joined=zeros(n),
        start=blank(n, np.nan),
        end=blank(n, np.nan),
        error=blank(n, np.nan),
        link=np.full(n, -1),
        away=np.zeros(n, np.bool_),
        order=order,
        upcoming=bounds[:-1].copy(),
        last=bounds[1:].copy(),
        head=np.full(servers, -1),
        tail=np.full(servers, -1),
        current=np.full(servers, -1),
        now=zeros(servers),
        virtual=zeros(servers),
        total=zeros(servers),
        slice_time=zeros(servers),
        slice_end=zeros(servers),
        least=blank(ends, np.inf),
        most=blank(ends, -np.inf),
        log_row=np.zeros(slices, np.int64),
        log_begin=zeros(slices),
        log_end=zeros(slices),
        logged=np.zeros(1, np.int64),
    )


def with_room(servers: Servers) -> Servers:
    """Return servers with twice the room in their log of slices."""
    grown = {name: np.concatenate([getattr(servers, name)] * 2) for name in LOG}
    return servers._replace(**grown)


@taken_in
def error_of(servers: Servers, server: int, row: int) -> Any:
    """Return the error of a task in the system, at the server's present instant."""
    ideal = servers.share[row] * (servers.virtual[server] - servers.joined[row])
    return servers.got[row] - ideal


@taken_in
def go_on(servers: Servers, server: int, time: Any) -> None:
    """Let time pass; the tasks in the system accrue ideal service."""
    if servers.total[server] > 0:
        span = time - servers.now[server]
        servers.virtual[server] += span / servers.total[server]
    servers.now[server] = time


@taken_in
def append(servers: Servers, server: int, row: int) -> None:
    """Put a task at the end of the queue."""
    if servers.head[server] < 0:
        servers.head[server] = row
    else:
        servers.link[servers.tail[server]] = row
    servers.link[row] = -1
    servers.tail[server] = row


@taken_in
def next_arrival(servers: Servers, server: int) -> int:
    """Return the next task to arrive that is not turned away, -1 if there is none."""
    while servers.upcoming[server] < servers.last[server]:
        row = servers.order[servers.upcoming[server]]
        if not servers.away[row]:
            return int(row)
        servers.upcoming[server] += 1
    return -1


@taken_in
def arrive(servers: Servers, server: int, time: Any, inclusive: bool) -> None:
    """Take in the tasks that arrive before `time`, or at it too if `inclusive`."""
    row = next_arrival(servers, server)
    while row >= 0 and (
        servers.arrival[row] < time or (inclusive and servers.arrival[row] == time)
    ):
        if servers.arrival[row] > servers.now[server]:
            go_on(servers, server, servers.arrival[row])
        servers.upcoming[server] += 1
        servers.joined[row] = servers.virtual[server]
        servers.total[server] += servers.share[row]
        append(servers, server, row)
        row = next_arrival(servers, server)


@taken_in
def select(servers: Servers, server: int, loop: int, slack: Any) -> int:
    """Take the next task to run out of the queue and return it; -1 if none waits."""
    before, chosen = -1, servers.head[server]
    if chosen < 0:
        return -1
    if loop >= SERVICE_ERROR:
        least = error_of(servers, server, chosen)
        at, row = chosen, servers.link[chosen]
        while row >= 0:
            error = error_of(servers, server, row)
            if error < least - slack:
                before, chosen, least = at, row, error
            if loop == SERVICE_ERROR:
                break
            at, row = row, servers.link[row]
    if before < 0:
        servers.head[server] = servers.link[chosen]
    else:
        servers.link[before] = servers.link[chosen]
        if servers.tail[server] == chosen:
            servers.tail[server] = before
    return int(chosen)


@taken_in
def begin(servers: Servers, server: int, row: int, loop: int, quantum: Any) -> None:
    """Give a task a slice, or the server until it is finished."""
    time = servers.left[row]
    if loop != FCFS and quantum < time:
        time = quantum
    now = servers.now[server]
    servers.current[server] = row
    servers.slice_time[server] = time
    servers.slice_end[server] = now + time
    if servers.start[row] != servers.start[row]:  # nan: its first slice
        servers.start[row] = now
    if len(servers.log_row) > 0:
        at = servers.logged[0]
        servers.log_row[at], servers.log_begin[at] = row, now
        servers.log_end[at] = now + time
        servers.logged[0] = at + 1


@taken_in
def note_extremes(servers: Servers, server: int) -> None:
    """Note the errors of the task that ran and of those that wait."""
    row = servers.current[server]
    following = servers.head[server]
    while row >= 0:
        error = error_of(servers, server, row)
        servers.least[server] = min(servers.least[server], error)
        servers.most[server] = max(servers.most[server], error)
        row = following
        if row >= 0:
            following = servers.link[row]


@taken_in
def finish(servers: Servers, server: int, row: int) -> None:
    """Let a finished task leave the system."""
    servers.error[row] = error_of(servers, server, row)
    servers.end[row] = servers.now[server]
    servers.total[server] -= servers.share[row]
    if servers.head[server] < 0:
        servers.total[server] = 0  # nobody is left, and no rounding either


@taken_in
def end_slice(servers: Servers, server: int, loop: int, slack: Any) -> bool:
    """End the present slice; return whether its task keeps the server for another."""
    row, time = servers.current[server], servers.slice_end[server]
    arrive(servers, server, time, False)
    go_on(servers, server, time)
    servers.got[row] += servers.slice_time[server]
    servers.left[row] -= servers.slice_time[server]
    if len(servers.least) > 0:
        note_extremes(servers, server)
    arrive(servers, server, time, True)
    if not servers.left[row] > 0:
        finish(servers, server, row)
        return False
    if loop == SERVICE_ERROR and error_of(servers, server, row) <= slack:
        return True
    append(servers, server, row)
    return False


@taken_in
def serve(servers: Servers, server: int, loop: int, quantum: Any, slack: Any, until: Any) -> bool:
    """Run one server for what happens before `until`; return False where the log is full."""
    while True:
        if 0 < len(servers.log_row) <= servers.logged[0]:
            return False
        row = servers.current[server]
        if row >= 0:
            if not servers.slice_end[server] < until:
                return True
            if end_slice(servers, server, loop, slack):
                begin(servers, server, row, loop, quantum)
                continue
        elif servers.head[server] < 0:
            row = next_arrival(servers, server)
            if row < 0 or not servers.arrival[row] < until:
                return True
            go_on(servers, server, max(servers.arrival[row], servers.now[server]))
            arrive(servers, server, servers.now[server], True)
        row = select(servers, server, loop, slack)
        servers.current[server] = row
        if row >= 0:
            begin(servers, server, row, loop, quantum)


@compiled
def run(servers: Servers, loop: int, quantum: Any, slack: Any, until: Any) -> bool:
    """Run all servers for what happens before `until`; return False where the log is full.

    Parameters
    ----------
    servers : Servers
        Changed in place. Called again, the run goes on.
    loop : int
        `FCFS`, `ROUND_ROBIN`, `SERVICE_ERROR` or `LEAST_ERROR`.
    quantum : number
        Longest slice, > 0; not used by `FCFS`.
    slack : number
        Errors that differ by no more are equal; 0 on fractions.
    until : number
        Arrivals at it and later, and slices that end then, are left for the next call.
    """
    for server in range(len(servers.now)):
        if not serve(servers, server, loop, quantum, slack, until):
            return False
    return True
