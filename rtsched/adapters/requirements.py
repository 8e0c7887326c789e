"""Requests that both batch systems share: sizes, bounds of numbers, and events to be notified of.

Each system reads its own words (`slurm/requirements.py`, `condor/requirements.py`); how a moldable
job or a divisible load is sized, and which columns of `Jobs` that fills, is the same for all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

import numpy as np

from rtsched.adapters.wire import Tag
from rtsched.kernels.loads import Load
from rtsched.model.jobs import Kind
from rtsched.model.units import DAY
from rtsched.text import counted

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


LOAD = Load._fields
"""Columns of `Jobs` that describe a divisible load."""


@dataclass(frozen=True)
class Requirements:
    """What a job is in the models; `problem` says why it cannot be promised anything.

    Times in seconds; `load` by the names of `LOAD`, taken in up to `rounds` rounds and
    with `setup_once` of its `setup_node` whatever their number; an empty
    `partition` is all nodes. Where jobs share nodes, `demand` is what it takes on each by name of
    the resource (licences: in all), and `exclusive` whether nobody else runs there;
    `tasks_per_node` the most tasks on each, 0: that does not matter. `node_request` as in `Jobs`;
    empty: none. `tasks`: of a job array.
    """

    kind: Kind = Kind.RIGID
    size: int = 1
    size_min: int = -1
    size_max: int = -1
    wall_time: float = math.inf
    partition: str = ""
    load: dict[str, float] = field(default_factory=dict)
    rounds: int = 1
    setup_once: float = 0.0
    problem: str = ""
    demand: dict[str, int] = field(default_factory=dict)
    exclusive: bool = False
    tasks_per_node: int = 0
    node_request: str = ""
    tasks: int = 1

    def as_array(self, tasks: int, per_node: int, most: int) -> Self:
        """Return these, which are of one task, for an array of so many on up to `most` nodes.

        Nobody else runs on these nodes, which its tasks share.
        """
        return replace(
            self,
            kind=Kind.ARRAY,
            size=1,
            size_min=1,
            size_max=most,
            tasks=tasks,
            tasks_per_node=per_node,
            demand={name: amount * per_node for name, amount in self.demand.items()},
            exclusive=True,
        )

    def as_moldable(self, least: int, most: int, limit: float, margin: float) -> Self:
        """Return these for any number of nodes from `least` to `most`.

        `limit` is that on the fewest nodes, without the `margin` by which a job outlives it.
        """
        wall = limit + margin * most / least
        return replace(
            self, kind=Kind.MOLDABLE, size=least, size_min=least, size_max=most, wall_time=wall
        )

    def as_divisible(
        self, load: dict[str, float], least: int, most: int, limit: float, too_long: str
    ) -> Self:
        """Return these for a load that is cut at will; its run times follow from the load.

        It takes at least so many nodes that `limit` holds it; if none of the counts from `least` to
        `most` do, `too_long` is the problem.
        """
        if wrong := load_problem(load):
            return replace(self, problem=self.problem or wrong)
        # It imports numba: only where there are loads.
        from rtsched.kernels.dlt import fastest_count

        fastest = max(least, fastest_count(most, Load(**load)))
        problem = self.problem
        if limit > HORIZON:
            limit, too_long = HORIZON, f"its load takes {AHEAD} on {counted(most, 'node')}"
        if not load_time(load, fastest) <= limit:
            problem = problem or too_long
        else:
            sizes = range(least, fastest + 1)
            least = sizes[bisect_left(sizes, -limit, key=lambda n: -load_time(load, n))]
        return replace(
            self,
            kind=Kind.DIVISIBLE,
            size=least,
            size_min=least,
            size_max=most,
            wall_time=load_time(load, least),
            load=load,
            problem=problem,
        )

    def one_job(self) -> dict[str, Any]:
        """Return what `Jobs.build` takes for one job, its amounts too."""
        demand = np.array([list(self.demand.values())], np.int64)
        return {
            **self.columns(),
            "exclusive": self.exclusive,
            "demand": demand,
            "names": {"demand": tuple(self.demand)},
        }

    def columns(self) -> dict[str, Any]:
        """Return the values of the columns of `Jobs` that they determine, for one job."""
        return {
            "kind": self.kind,
            "size": self.size,
            "size_min": self.size_min,
            "size_max": self.size_max,
            "wall_time": self.wall_time,
            "tasks": self.tasks,
            "tasks_per_node": self.tasks_per_node if self.kind == Kind.ARRAY else 1,
            "rounds": self.rounds,
            "setup_once": self.setup_once,
            **self.load,
        }

    def write_to(self, columns: Mapping[str, Any], at: int) -> None:
        """Write them into one row of the columns of jobs that wait, which may have `demand`."""
        for name, value in self.columns().items():
            columns[name][at] = value
        if "demand" in columns:
            columns["exclusive"][at] = self.exclusive
            for resource, name in enumerate(columns["names"]["demand"]):
                columns["demand"][at, resource] = self.demand.get(name, 0)


def load_time(load: Mapping[str, float], nodes: int) -> float:
    """Return how long a divisible load runs on so many nodes, seconds."""
    # It imports numba: only where there are loads.
    from rtsched.kernels.dlt import exec_time

    return float(exec_time(nodes, Load(**load)))


def plain_columns(count: int) -> dict[str, Any]:
    """Return columns of `Jobs` for so many rigid jobs without a deadline; they can be written."""
    return {
        "deadline": np.full(count, np.inf),
        "kind": np.zeros(count, np.int8),
        "size_min": np.full(count, -1, np.int32),
        "size_max": np.full(count, -1, np.int32),
        "tasks": np.ones(count, np.int32),
        "tasks_per_node": np.ones(count, np.int32),
        **{name: np.full(count, np.nan) for name in ("sigma", "cms", "cps")},
        **{name: np.zeros(count) for name in ("setup_link", "setup_node", "setup_once")},
        "rounds": np.ones(count, np.int32),
    }


UNPROMISED = ("reject", "run")
"""What becomes of a job whose deadline cannot be promised; `run`: as best effort."""

ODDS = "a percentage above 0 and below 100, such as 95"


def is_odds(number: float) -> bool:
    """Return whether a number of per cent can be the odds of a promise."""
    return 0.0 < number < 100.0


def odds_alone(odds: float, deadline: float, how: str, option: str) -> str:
    """Return what is wrong with odds without a deadline; empty: nothing.

    `odds`: nan where there are none; `how` is what users give odds by, `option` deadlines.
    """
    if math.isfinite(odds) and not math.isfinite(deadline):
        return f"{how} asks for a deadline that is likely met; give {option}"
    return ""


def too_late(deadline: float, start: float, option: str) -> str:
    """Return what is wrong with a deadline before the earliest start; empty: nothing.

    Both in seconds since the epoch; `option` is what users give a deadline by.
    """
    if deadline <= start:
        return f"its deadline is before its earliest start; give a later {option}"
    return ""


def shortened(value: object) -> str:
    """Return a value in quotes for a message, cut off."""
    text = str(value)
    return repr(text if len(text) <= 40 else text[:40] + "...")


def readable(text: str) -> str:
    """Return a text of a user's for a message: in quotes if it holds control characters."""
    return text if text.isprintable() else repr(text)


Event: TypeAlias = Literal["promised", "moved", "at-risk", "broken", "kept"]
"""A job in the queue is promised its deadline; its planned start moved; it runs and may end too
late, or the odds of a likely promise have fallen; the promise was missed, or cannot be kept; it was
kept."""

EVENTS: tuple[Event, ...] = get_args(Event)

CHOICES = f"none, or some of {', '.join(EVENTS)} with + between them"


def notify_choice(text: str) -> str:
    """Return the events of which a user wants to be notified, with `+` between them.

    `none` means no events; empty: the text makes no sense.
    """
    words = text.strip().lower().split("+")
    if words == ["none"]:
        return "none"
    return "+".join(name for name in EVENTS if name in words) if {*words} <= {*EVENTS} else ""
