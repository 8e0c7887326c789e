"""Sliced servers: the hand example, a plain model, and the errors' sums, all in exact fractions."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.kernels import sliced
from rtsched.kernels.compiling import plain

run = plain(sliced.run)
LOOPS = [sliced.FCFS, sliced.ROUND_ROBIN, sliced.SERVICE_ERROR, sliced.LEAST_ERROR]
Task = tuple[int, Fraction, Fraction]
"""Share, arrival, service."""

quarters = st.integers(0, 40).map(lambda k: Fraction(k, 4))
task = st.tuples(st.integers(1, 6), quarters, quarters.map(lambda t: t + Fraction(1, 4)))
tasks_of = st.lists(task, min_size=1, max_size=7)


def lay_out(tasks: list[Task], *, kind: Any = object, servers: int = 1) -> sliced.Servers:
    """Return servers with these tasks, dealt in turn; they log slices and extremes."""
    share, arrival, service = (np.array(values).astype(kind) for values in zip(*tasks, strict=True))
    server = np.arange(len(tasks)) % servers
    return sliced.lay_out(
        share, arrival, service, server, servers, extremes=True, slices=50 * len(tasks)
    )


def slices_of(done: sliced.Servers) -> list[tuple[int, Any, Any]]:
    """Return (task, begin, end) of every slice."""
    log = zip(done.log_row, done.log_begin, done.log_end, strict=True)
    return [(int(row), begin, end) for row, begin, end in log][: done.logged[0]]


def errors_now(servers: sliced.Servers) -> dict[int, Any]:
    """Return the errors of the tasks in the system of server 0, as it stands."""
    inside = [int(servers.current[0])] if servers.current[0] >= 0 else []
    at = int(servers.head[0])
    while at >= 0:
        inside.append(at)
        at = int(servers.link[at])
    return {row: plain(sliced.error_of)(servers, 0, row) for row in inside}


def model(tasks: list[Task], loop: int, quantum: Fraction) -> list[tuple[int, Any, Any]]:
    """Return the slices by papers' rules on lists, errors by their definition as integrals."""
    left = [service for _, _, service in tasks]
    got = [Fraction(0)] * len(tasks)
    ideal = [Fraction(0)] * len(tasks)
    coming = sorted(range(len(tasks)), key=lambda i: (tasks[i][1], -tasks[i][0], i))
    queue: list[int] = []
    slices: list[tuple[int, Any, Any]] = []
    now, running = Fraction(0), -1

    def inside() -> list[int]:
        return queue + ([running] if running >= 0 else [])

    def pass_to(time: Fraction) -> None:
        nonlocal now
        while now < time:
            step = min([time, *(tasks[i][1] for i in coming if tasks[i][1] > now)])
            total = sum(tasks[i][0] for i in inside())
            for i in inside():
                ideal[i] += (step - now) * Fraction(tasks[i][0], total)
            now = step
            while coming and (tasks[coming[0]][1] < now or tasks[coming[0]][1] == now):
                queue.append(coming.pop(0))

    while True:
        if not queue and running < 0:
            if not coming:
                return slices
            now = tasks[coming[0]][1]
            while coming and tasks[coming[0]][1] == now:
                queue.append(coming.pop(0))
        if running < 0:
            error = [got[i] - ideal[i] for i in queue]
            place = 0
            if loop == sliced.SERVICE_ERROR and len(queue) > 1 and not error[1] >= error[0]:
                place = 1
            if loop == sliced.LEAST_ERROR:
                place = error.index(min(error))
            running = queue.pop(place)
        span = left[running] if loop == sliced.FCFS else min(quantum, left[running])
        slices.append((running, now, now + span))
        pass_to(now + span)
        got[running] += span
        left[running] -= span
        if left[running] == 0:
            running = -1
        elif loop != sliced.SERVICE_ERROR or got[running] - ideal[running] > 0:
            queue.append(running)
            running = -1


def test_hand_example() -> None:
    """Shares 2 and 1, lengths 4 and 2: A B A A B A, errors 1/3 1/3 0 1/3 1/3 -1/3."""
    third = Fraction(1, 3)
    servers = lay_out([(2, Fraction(0), Fraction(4)), (1, Fraction(0), Fraction(2))])
    seen = []
    for until in range(2, 8):
        run(servers, sliced.SERVICE_ERROR, Fraction(1), 0, until)
        row = int(servers.log_row[until - 2])
        final = servers.error[row]
        seen.append((row, errors_now(servers).get(row, final)))
    wanted = [(0, third), (1, third), (0, 0), (0, third), (1, third), (0, -third)]
    assert seen == wanted
    assert servers.end.tolist() == [6, 5]


def test_error_of_exactly_zero_keeps_the_server() -> None:
    """Shares 1, 1, 1 and length 2: A B C C A B."""
    servers = lay_out([(1, Fraction(0), Fraction(2))] * 3)
    run(servers, sliced.SERVICE_ERROR, Fraction(1), 0, math.inf)
    assert [row for row, _, _ in slices_of(servers)] == [0, 1, 2, 2, 0, 1]


@pytest.mark.parametrize("loop", LOOPS)
@given(tasks_of, st.sampled_from([Fraction(1), Fraction(3, 2)]))
@settings(max_examples=40, deadline=None)
def test_slices_are_those_of_the_plain_model(
    loop: int, tasks: list[Task], quantum: Fraction
) -> None:
    """The kernel serves as the rules say, written down on lists."""
    servers = lay_out(tasks)
    assert run(servers, loop, quantum, 0, math.inf)
    assert slices_of(servers) == model(tasks, loop, quantum)


@pytest.mark.parametrize("loop", LOOPS)
@given(tasks_of)
@settings(max_examples=40, deadline=None)
def test_errors_add_up_to_nothing_at_every_instant(loop: int, tasks: list[Task]) -> None:
    """On a work-conserving server the errors inside and the final ones cancel out exactly."""
    servers = lay_out(tasks)
    for until in [*(Fraction(k, 2) for k in range(1, 60)), math.inf]:
        run(servers, loop, Fraction(1), 0, until)
        current = int(servers.current[0])
        inside, share = errors_now(servers), sum(tasks[row][0] for row in errors_now(servers))
        # the present slice has not been booked yet; what it gave since `now` is still nothing
        served = servers.now[0] - (servers.slice_end[0] - servers.slice_time[0])
        pending = served if current >= 0 else 0
        final = sum(error for error in servers.error if error == error)
        assert sum(inside.values()) + pending + final == 0
        assert servers.total[0] == share
    assert sum(servers.error) == 0


@pytest.mark.parametrize("loop", LOOPS)
@given(task)
@settings(max_examples=20, deadline=None)
def test_a_lone_task_has_no_error(loop: int, lone: Task) -> None:
    """What one task gets is all that there is."""
    servers = lay_out([lone])
    run(servers, loop, Fraction(1), 0, math.inf)
    assert (servers.least[0], servers.most[0], servers.error[0]) == (0, 0, 0)


@pytest.mark.parametrize("loop", LOOPS)
@given(tasks_of, st.integers(1, 3), st.lists(quarters, max_size=4))
@settings(max_examples=40, deadline=None)
def test_floats_stops_and_a_full_log_change_nothing(
    loop: int, tasks: list[Task], count: int, stops: list[Fraction]
) -> None:
    """The compiled form serves like the exact one, however often it is stopped in between."""
    exact = lay_out(tasks, servers=count)
    run(exact, loop, Fraction(1), 0, math.inf)
    fast = lay_out(tasks, kind=np.float64, servers=count)
    fast = fast._replace(**{name: getattr(fast, name)[:1] for name in sliced.LOG})
    for until in [*map(float, sorted(stops)), math.inf]:
        while not sliced.run(fast, loop, 1.0, 1e-9, until):
            fast = sliced.with_room(fast)
    assert fast.end.tolist() == [float(end) for end in exact.end]
    assert fast.start.tolist() == [float(start) for start in exact.start]
    assert sorted(slices_of(fast)) == [
        (row, float(begin), float(end)) for row, begin, end in sorted(slices_of(exact))
    ]


def test_tasks_turned_away_are_passed_over() -> None:
    """They take no share and no time."""
    servers = lay_out([(1, Fraction(0), Fraction(2))] * 3)
    servers.away[1] = True
    run(servers, sliced.ROUND_ROBIN, Fraction(1), 0, math.inf)
    assert [row for row, _, _ in slices_of(servers)] == [0, 2, 0, 2]
    assert servers.end[1] != servers.end[1]
