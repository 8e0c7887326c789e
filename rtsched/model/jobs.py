"""Jobs: what a user asked for, and what is known of it before it runs."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.loads import Load
from rtsched.model.table import Amounts, Column, Ragged, Table, Text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Kind(IntEnum):
    """How a job's run time depends on its size."""

    RIGID = 0
    """Runs on exactly `size` nodes for at most `wall_time`."""
    MOLDABLE = 1
    """Any size in `size_min..size_max`; T(n) = wall_time * size / n unless configured otherwise."""
    DIVISIBLE = 2
    """A load of `sigma` units cut at will over `size_min..size_max` nodes (papers: MCDF)."""
    ARRAY = 3
    """A job array with one promise: `tasks` tasks of `wall_time`, `tasks_per_node` of them at a
    time on each of `size_min..size_max` nodes; see `array_time`."""


MOST_ROUNDS: int = 64
"""No load is taken in more rounds."""


class Jobs(Table):
    """One row per job. Times are seconds since the epoch, durations seconds, memory bytes.

    `size` counts rows of `Cluster.nodes`: whole nodes where the site allocates whole nodes, else
    processors or slots. The adapter that fills the table chooses, and fills the cluster alike.
    """

    id = Column(np.int64, -1, "Unique key of the job in this table; ties are broken by it.")
    label = Text("The batch system's own name of the job (`123_4`, `12.0`); the id if missing.")
    submit = Column(np.float64, np.nan, "Seconds since the epoch at which it was submitted.")
    begin = Column(np.float64, -np.inf, "Seconds since the epoch before which it must not start.")
    wall_time = Column(np.float64, np.inf, "Requested run time at `size`, seconds; inf: no limit.")
    deadline = Column(np.float64, np.inf, "Finish by, seconds since the epoch; inf: none.")
    kind = Column(np.int8, Kind.RIGID, "A `Kind`: how run time depends on size.")
    size = Column(np.int32, 1, "Nodes asked for.")
    size_min = Column(np.int32, -1, "Fewest nodes it can use; -1: `size`.")
    size_max = Column(np.int32, -1, "Most nodes it can use; -1: `size`.")
    node_count = Column(np.int32, -1, "Nodes on which its processors are to be; -1: any.")
    cores = Column(np.int32, -1, "Total cores requested; -1: unknown.")
    memory = Column(np.int64, -1, "Memory requested per node, bytes; -1: unknown.")
    demand = Amounts("What it takes of each resource on each of its nodes, where jobs share nodes.")
    exclusive = Column(np.bool_, False, "Whether nobody else may run on its nodes meanwhile.")
    sigma = Column(np.float64, np.nan, "Divisible load: data units (paper: σ).")
    cms = Column(np.float64, np.nan, "Divisible load: seconds to send one unit (paper: Cms).")
    cps = Column(np.float64, np.nan, "Divisible load: seconds to compute one unit (paper: Cps).")
    setup_link = Column(np.float64, 0.0, "Divisible load: seconds to set up one transmission.")
    setup_node = Column(np.float64, 0.0, "Divisible load: seconds to set up the computation.")
    rounds = Column(np.int32, 1, "Divisible load: most rounds in which it takes its load.")
    setup_once = Column(np.float64, 0.0, "Seconds of `setup_node` that pass once, not per round.")
    name = Text("What its user calls it: job name, executable. Kept for a calibration only.")
    user = Text("Who submitted it.")
    account = Text("The account, group or accounting group that is charged.")
    partition = Text("Partition or queue.")
    node_request = Text(
        "Which nodes it asks for, as options of sbatch or condor_submit (`Cluster.node_sets`)."
    )
    qos = Text("Quality of service.")
    association = Column(np.int32, -1, "Row of `Accounts` that is charged; -1: none.")
    billed = Column(
        np.float64,
        np.nan,
        "Nodes that it is charged for at `size`, by what the site bills; nan: `size`.",
    )
    nice = Column(np.float64, 0.0, "The user's own downward adjustment of priority.")
    dag = Column(np.int64, -1, "Key of the task graph it belongs to; -1: none (see `Edges`).")
    array = Column(np.int64, -1, "Key of the array or other group it is a task of; -1: none.")
    tasks = Column(np.int32, 1, "Array with one promise: its tasks that have not been started.")
    tasks_per_node = Column(np.int32, 1, "Array with one promise: its tasks at a time on a node.")
    array_limit = Column(np.int32, 0, "How many of these may run at a time; 0: all.")
    het_job = Column(
        np.int64, -1, "Key of the heterogeneous job that it is a component of; -1: none."
    )
    singleton = Column(
        np.bool_, False, "Whether it waits for whatever jobs of its name and user there are."
    )
    pinned = Column(np.int32, -1, "The one node it must run on; -1: any.")
    process_bytes = Column(np.int64, -1, "Size of one process, bytes, for migration; -1: unknown.")
    checkpoints = Column(np.bool_, False, "Whether it may be requeued or moved while it runs.")
    suspends = Column(np.bool_, False, "Whether it may be suspended and resumed.")

    def load(self, row: int) -> Load:
        """Return the load of one divisible job."""
        return Load(*(float(self.column(name)[row]) for name in Load._fields))

    def labels(self) -> list[str]:
        """Return what the batch system calls each job."""
        return [
            str(key) if label is None else label
            for key, label in zip(self.id.tolist(), self.texts("label"), strict=True)
        ]


def array_time(jobs: Jobs, nodes: ArrayLike) -> NDArray[np.float64]:
    """Return how long arrays with one promise run on so many nodes at the most, float64[n] seconds.

    Their tasks run in rounds: as many at a time as the nodes take, until none is left.
    """
    at_a_time = np.asarray(nodes) * np.maximum(jobs.tasks_per_node, 1)
    return np.asarray(-(-jobs.tasks // at_a_time) * jobs.wall_time)


def alike_but_for_deadlines(jobs: Jobs) -> NDArray[np.int64]:
    """Return a number for each job, int64[n], the same for jobs that ask for the same.

    They may differ in who they are, in when they were submitted and may start, and in deadlines.
    """
    own = {"id", "label", "name", "submit", "begin", "deadline", "array", "nice", "billed"}
    asked = [np.nan_to_num(jobs.column(name)) for name in jobs.given() if name not in own]
    if not asked:
        return np.zeros(len(jobs), np.int64)
    return np.unique(np.column_stack(asked), axis=0, return_inverse=True)[1].ravel()


class Edges(Table):
    """One row per dependency between two jobs, such as tasks of a graph."""

    before = Column(np.int64, -1, "Job id of the job that must end first.")
    after = Column(np.int64, -1, "Job id of the job that waits for it.")
    at_start = Column(np.bool_, False, "Whether it waits for the start only (Slurm's `after`).")
    whole_array = Column(np.bool_, False, "Whether `before` is a `Jobs.array`: all tasks of it.")
    message_time = Column(np.float64, 0.0, "Seconds its result travels to another node.")


NOBODY = Jobs.build(0)
"""No jobs."""


class Periodic(Table):
    """One row per periodic job, which reserved work that new jobs must not disturb."""

    id = Column(np.int64, -1, "Unique key.")
    node = Column(np.int32, -1, "Row of `Cluster.nodes` on which it runs.")
    exec_time = Column(np.float64, np.nan, "Seconds of work per instance (paper: C).")
    period = Column(np.float64, np.nan, "Seconds between releases (paper: T).")
    relative_deadline = Column(np.float64, np.nan, "Seconds from release to deadline (paper: d).")
    phase = Column(np.float64, 0.0, "First release, seconds since the epoch.")
    left = Column(np.float64, 0.0, "Seconds that the instance released last still needs now.")
    demand = Amounts("What it takes of each resource of its node, where jobs share nodes.")
    exclusive = Column(np.bool_, True, "Whether nobody else may run on its node meanwhile.")


def occurrences(
    periodic: Periodic, begin: float, end: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return row, start and end (seconds since the epoch) of what occurs in [begin, end).

    None is interrupted: each ends `exec_time` after its release.
    """
    first = np.floor((begin - periodic.phase - periodic.exec_time) / periodic.period) + 1
    last = np.ceil((end - periodic.phase) / periodic.period)
    first = np.maximum(first, 0)
    counts = np.maximum(last - first, 0).astype(np.int64)
    instances = Ragged.counted(counts)
    row = instances.rows()
    start = periodic.phase[row] + (instances.values + first[row]) * periodic.period[row]
    return row, start, start + periodic.exec_time[row]


def most_together(fits: ArrayLike, count: ArrayLike, tasks: int | None = None) -> int:
    """Return so many tasks on a node that the most of them run at a time; the fewest such.

    Nodes that take fewer are left out then.

    Parameters
    ----------
    fits : int[k]
        How many tasks a node of each sort takes.
    count : int[k]
        How many nodes there are of each sort.
    tasks : int, optional
        How many tasks there are: they are spread over as many nodes as have all of them, or the
        most, run at once. None: a node that is taken is filled.
    """
    each, nodes = np.asarray(fits, np.int64), np.asarray(count, np.int64)
    most = int(each.max(initial=0))
    if most < 1:
        return 1
    tried = np.unique(each[each > 0]) if tasks is None else np.arange(1, min(most, tasks) + 1)
    together = tried * ((each >= tried[:, None]) * nodes).sum(axis=1)
    if tasks is not None:
        together = np.minimum(together, tasks)
    return int(tried[np.argmax(together)])


def array_width(tasks: int, per_node: int, parallel: int, nodes: int) -> tuple[int, int]:
    """Return how many tasks of an array run on a node at a time, and on how many nodes at most.

    Parameters
    ----------
    tasks : int
        How many there are.
    per_node : int
        How many a node takes.
    parallel : int
        How many may run at a time; 0: any number.
    nodes : int
        How many nodes there are.
    """
    if parallel:
        per_node = min(per_node, parallel)
    most = -(-tasks // per_node)
    if parallel:
        most = min(most, parallel // per_node)
    return per_node, max(min(most, nodes), 1)


def last_end(
    ends: NDArray[np.float64], tasks: int, at_a_time: int, limit: float, now: float
) -> float:
    """Return when the last task of an array ends at the latest.

    Parameters
    ----------
    ends : float64[r]
        When those that run end at the latest, seconds since the epoch.
    tasks : int
        How many still wait.
    at_a_time : int
        How many run at a time.
    limit : float
        Seconds of each.
    now : float
        Seconds since the epoch.

    All that run end within one limit, so those that wait follow them in rounds, in that order.
    """
    last = float(ends.max(initial=now))
    if tasks <= 0:
        return last
    free = np.sort(np.concatenate([ends, np.full(max(at_a_time - len(ends), 0), now)]))
    rounds, place = divmod(tasks - 1, len(free))
    return max(last, float(free[place]) + (rounds + 1) * limit)
