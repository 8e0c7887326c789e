"""The most that one request may ask for, whichever door it comes through.

Requests come from the submit filters, the query socket, REST, the board and the batch system's
queue. All of them become a row of `Jobs`, whose times are checked here, and most of them fields,
whose texts are. Within these bounds every evaluation takes a bounded number of steps, and all
instants are exact to far less than a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.wire import Tag
from rtsched.model.units import DAY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.model.jobs import Edges, Jobs

YEARS = 10
HORIZON = YEARS * 365.25 * DAY
"""Seconds ahead up to which anything is planned, and for which any job may run."""

AHEAD = f"more than {YEARS} years"

LONGEST: dict[Tag, tuple[int, str]] = {
    Tag.NAME: (1 << 12, "its name"),
    Tag.ACCOUNT: (1 << 10, "its account"),
    Tag.PARTITION: (1 << 12, "its list of partitions"),
    Tag.QOS: (1 << 10, "its QOS"),
    Tag.RESERVATION: (1 << 12, "its list of reservations"),
    Tag.FEATURES: (1 << 12, "its constraint"),
    Tag.PREFER: (1 << 12, "its list of preferred features"),
    Tag.DEPENDENCY: (1 << 16, "its list of dependencies"),
    Tag.ARRAY_INX: (1 << 16, "its list of array tasks"),
    Tag.LICENSES: (1 << 12, "its list of licences"),
    Tag.REQ_NODES: (1 << 15, "its node list"),
    Tag.EXC_NODES: (1 << 15, "its list of excluded nodes"),
    Tag.TRES_PER_JOB: (1 << 12, "its list of resources per job"),
    Tag.TRES_PER_NODE: (1 << 12, "its list of resources per node"),
    Tag.TRES_PER_SOCKET: (1 << 12, "its list of resources per socket"),
    Tag.TRES_PER_TASK: (1 << 12, "its list of resources per task"),
    Tag.CLUSTERS: (1 << 12, "its list of clusters"),
    Tag.CPUS_PER_TRES: (1 << 12, "its list of processors per resource"),
    Tag.MEM_PER_TRES: (1 << 12, "its memory per resource"),
    Tag.OTHER: (1 << 10, "its list of options"),
}
"""Characters of a text that is read, and what users call it."""


LEAST_LOAD, GREATEST_LOAD = 1e-9, 1e15
"""Between these is each number of a divisible load that is not 0: data units, or seconds."""

MOST_SENDING = 1e12
"""Times of computing a unit that sending one takes at the most."""

LONGEST_ATTRIBUTE = 1 << 15
"""Characters of an attribute of an ad."""


def too_long(fields: Mapping[int, int | str]) -> tuple[Mapping[int, int | str], str]:
    """Return a request without texts that are too long, and what is wrong with it; empty: nothing.

    Parameters
    ----------
    fields : mapping of int to int or str
        As the submit filter sends them, by `Tag`.
    """
    problem, kept = "", dict(fields)
    for tag, (longest, name) in LONGEST.items():
        value = fields.get(tag)
        if isinstance(value, str) and len(value) > longest:
            problem = problem or f"{name} is longer than {longest:,} characters; shorten it"
            del kept[tag]
    ad = fields.get(Tag.AD)
    if isinstance(ad, str) and len(ad) > LONGEST_ATTRIBUTE:
        lines = ad.split("\n")
        long = [line for line in lines if len(line) > LONGEST_ATTRIBUTE]
        kept[Tag.AD] = "\n".join(line for line in lines if len(line) <= LONGEST_ATTRIBUTE)
        if long:
            name = long[0][:40].partition("=")[0].strip()
            problem = f"{name} is longer than {LONGEST_ATTRIBUTE:,} characters; shorten it"
    return kept, problem


def load_problem(load: Mapping[str, float]) -> str:
    """Return which number of a divisible load is out of bounds; empty: none."""
    for name, value in load.items():
        if value != 0.0 and not LEAST_LOAD <= value <= GREATEST_LOAD:
            return f"the {name} of its load must be from {LEAST_LOAD:g} to {GREATEST_LOAD:g}, or 0"
    if load.get("cms", 0.0) > MOST_SENDING * load.get("cps", 1.0):
        return f"the cms of its load must be at most {MOST_SENDING:g} times its cps"
    return ""


def beyond_horizon(jobs: Jobs, edges: Edges, now: float) -> str:
    """Return what of a job, one row, lies too far ahead to be planned; empty: nothing.

    Parameters
    ----------
    jobs : Jobs
        The job.
    edges : Edges
        What it waits for.
    now : float
        Seconds since the epoch.
    """
    wall_time = float(jobs.wall_time[0])
    if not wall_time <= HORIZON and wall_time != np.inf:  # planners refuse one that states none
        return f"it may run for {AHEAD}, and nothing is planned for so long; state a shorter time"
    deadline = float(jobs.deadline[0])
    if np.isfinite(deadline) and deadline > now + HORIZON:
        return f"its deadline is {AHEAD} ahead; give an earlier one"
    if not (edges.message_time <= HORIZON).all():
        return f"its messages take {AHEAD}; state a shorter time"
    return ""
