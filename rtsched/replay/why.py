"""Reasons why a job of a replay was rejected, or waited: read off the results.

A job waits for nodes, for the jobs ahead of it, for its own earliest start, or for its place in a
plan. What it met at its submission and who passed it follow from the starts and ends of all jobs;
what a plug-in said of it stands in the decisions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.log import FinalState
from rtsched.text import similar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.replay.results import Results

_NUMBERED = re.compile(r"(?:^|#)([0-9]{1,18})(?:[._][0-9]+)*$")
_MOST_COMPARED = 20_000
"""Names that are compared letter by letter with one that is not there."""


@dataclass(frozen=True)
class Met:
    """What a job met at its submission.

    Attributes
    ----------
    machine, busy : int
        Nodes of the machine; nodes taken by running jobs.
    running : int
        Jobs that ran.
    running_work : float
        Node-seconds that the running ones still took.
    waiting : int
        Jobs that were submitted earlier and waited.
    waiting_work : float
        Node-seconds that the waiting ones asked for; without a time limit, what they took.
    shared : bool
        Whether jobs share nodes, so that none counts as taken.
    """

    machine: int
    busy: int
    running: int
    running_work: float
    waiting: int
    waiting_work: float
    shared: bool = False

    @property
    def free(self) -> int:
        """Return the nodes that no job held; where they are shared, all may take another job."""
        return self.machine if self.shared else self.machine - self.busy


@dataclass(frozen=True)
class Why:
    """One job under one policy.

    Attributes
    ----------
    row : int
        Its row of the workload.
    fate : FinalState
        What became of it.
    submit, begin, deadline, start, end, promise, offer : float
        Seconds since the epoch; nan or an infinity where there is none.
    asked, given : int
        Nodes.
    met : Met
        The machine and the queue at its submission.
    ahead : int64[k]
        Rows that waited at its submission and started before it, largest first.
    overtook : int64[k]
        Rows that were submitted after it and started before it, largest first.
    overtook_work : float
        Node-seconds that those had used by its start.
    made_way : int64[k]
        Rows whose end at its very start freed nodes, largest first.
    decisions : sequence of mapping
        What plug-ins said of it, in order.
    whole, served : float
        Node-seconds from its start to its end, and those in which its nodes served it; nan: it did
        not end.
    ran_on : bool
        Whether it was rejected, and run all the same.
    """

    row: int
    fate: FinalState
    submit: float
    begin: float
    deadline: float
    start: float
    end: float
    promise: float
    offer: float
    asked: int
    given: int
    met: Met
    ahead: NDArray[np.int64]
    overtook: NDArray[np.int64]
    overtook_work: float
    made_way: NDArray[np.int64]
    decisions: Sequence[Mapping[str, object]] = field(default=())
    whole: float = np.nan
    served: float = np.nan
    ran_on: bool = False

    @property
    def wait(self) -> float:
        """Return the seconds from submission to start; nan if it never started."""
        return self.start - self.submit

    @property
    def lateness(self) -> float:
        """Return the seconds from its deadline to its end: negative in time, nan where unknown."""
        return self.end - self.deadline if np.isfinite(self.deadline) else np.nan


def explain(
    jobs: Jobs,
    results: Results,
    row: int,
    machine: int,
    decisions: Sequence[Mapping[str, object]] = (),
    *,
    shared: bool = False,
) -> Why:
    """Return why the job in `row` fared as it did.

    Parameters
    ----------
    jobs : Jobs
        The workload, in order of (submit, id).
    results : Results
        Row by row what a policy made of it.
    row : int
        The job.
    machine : int
        Nodes of the machine.
    decisions : sequence of mapping
        The plug-ins' findings on this job.
    shared : bool
        Whether jobs share nodes.
    """
    submit, start, end = float(jobs.submit[row]), results.start, results.end
    own_start = float(start[row])
    until = own_start if np.isfinite(own_start) else np.inf
    earlier = np.arange(len(jobs)) < row
    entered = results.fate != FinalState.REJECTED
    waited = earlier & entered & ~(start <= submit)
    overtook = ~earlier & entered & (start < until)
    overtook[row] = False
    if results.fate[row] == FinalState.REJECTED:
        overtook[:] = False
    passed = np.flatnonzero(overtook)
    serving = results.serving()
    used = serving[passed] * (np.minimum(end[passed], until) - start[passed])
    made_way = np.flatnonzero(end == own_start)
    return Why(
        row=row,
        fate=FinalState(int(results.fate[row])),
        submit=submit,
        begin=float(jobs.begin[row]),
        deadline=float(jobs.deadline[row]),
        start=own_start,
        end=float(end[row]),
        promise=float(results.promise[row]),
        offer=float(results.offer[row]),
        ran_on=bool(results.ran_on[row]),
        asked=int(jobs.size[row]),
        given=int(results.size[row]),
        met=_met(jobs, results, submit, earlier, waited, machine, shared),
        ahead=_largest_first(results, np.flatnonzero(waited & (start < until))),
        overtook=_largest_first(results, passed),
        overtook_work=float(np.nansum(used)),
        whole=float(results.size[row] * (end[row] - own_start)),
        served=float(results.served()[row]),
        made_way=_largest_first(results, made_way),
        decisions=decisions,
    )


def _met(
    jobs: Jobs,
    results: Results,
    submit: float,
    earlier: NDArray[np.bool_],
    waited: NDArray[np.bool_],
    machine: int,
    shared: bool,
) -> Met:
    begun = (results.start < submit) | (earlier & (results.start == submit))
    running = np.flatnonzero(begun & (results.end > submit))
    waiting = np.flatnonzero(waited)
    asked, took = jobs.wall_time[waiting], (results.end - results.start)[waiting]
    work = jobs.size[waiting] * np.where(np.isfinite(asked), asked, took)
    return Met(
        machine=machine,
        busy=int(results.size[running].sum()),
        running=len(running),
        running_work=float((results.serving()[running] * (results.end[running] - submit)).sum()),
        waiting=len(waiting),
        waiting_work=float(np.nansum(work)),
        shared=shared,
    )


def _largest_first(results: Results, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return rows by the node-seconds they took, ties by row."""
    work = results.size[rows] * (results.end[rows] - results.start[rows])
    return rows[np.argsort(-np.nan_to_num(work), kind="stable")].astype(np.int64)


def find(jobs: Jobs, name: str) -> list[int]:
    """Return the rows whose label, or else whose id, is `name`."""
    if name in (table := jobs.names("label")):
        rows = np.flatnonzero(jobs.label == table.index(name))
        return [int(row) for row in rows]
    if name.lstrip("-").isdecimal() and abs(int(name)) < 1 << 62:
        return [int(row) for row in np.flatnonzero(jobs.id == int(name))]
    return []


def close_matches(jobs: Jobs, name: str, max_count: int = 3) -> list[str]:
    """Return names of jobs that look like `name`, best first: those that `find` would find."""
    shown = list(dict.fromkeys(jobs.labels()))
    alike = [each for each in shown if each.startswith(name) or each.partition("_")[0] == name]
    if (number := _number(name)) is not None:
        numbered = [(abs(n - number), each) for each in shown if (n := _number(each)) is not None]
        alike += [each for _, each in nsmallest(max_count, numbered, key=itemgetter(0))]
    elif not alike and len(shown) <= _MOST_COMPARED:
        alike = similar(name, shown, max_count)
    return list(dict.fromkeys(alike))[:max_count]


def _number(name: str) -> int | None:
    """Return the number in a batch system's name of a job: 12 in `12`, `12_3`, `host#12.0`."""
    match = _NUMBERED.search(name)
    return int(match[1]) if match else None
