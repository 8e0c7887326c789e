"""Jobs and nodes through pyslurm, Slurm's Python bindings, where it fits; else by Slurm's commands.

pyslurm is built for one release of Slurm. Bindings that do not fit can crash the process, or show
numbers that are not there. So they are tried in a process of their own, and their first poll is
compared with squeue's; where they fail either, Slurm's commands are used.
"""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.programs import run_program
from rtsched.adapters.slurm.rows import (
    MEGABYTE,
    WAITING,
    JobRows,
    NodeRow,
    Texts,
    alive,
    arrays_in,
    asked_tres,
    in_maintenance,
    state_of,
)
from rtsched.errors import AdapterError
from rtsched.logs.slurm_text import gres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rtsched.adapters.slurm.commands import CommandRunner

_TRIAL = "import pyslurm; pyslurm.Jobs.load(); pyslurm.Nodes.load()"
TRIAL_S = 10.0
"""Seconds that the trial may take: far less than the daemon waits for a poll."""


def unusable(patience: float = TRIAL_S) -> str:
    """Return why pyslurm cannot be used here; empty if it can. `patience`: seconds to wait."""
    try:
        done = run_program([sys.executable, "-P", "-c", _TRIAL], patience)
    except subprocess.TimeoutExpired:
        return f"pyslurm did not answer within {patience:g} s"
    except OSError as error:
        return f"pyslurm could not be tested ({error})"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode < 0:
        last = f"it was killed by signal {-done.returncode}"
    return f"pyslurm does not match this Slurm ({last}); build it for this release"


class Bindings:
    """Jobs and nodes by pyslurm.

    Raises
    ------
    AdapterError
        If pyslurm cannot be loaded.
    """

    def __init__(self) -> None:
        try:
            self._slurm: Any = importlib.import_module("pyslurm")
        except ImportError as error:
            raise AdapterError(
                f'pyslurm cannot be loaded ({error}); install it, or set route = "commands"'
            ) from error

    def jobs(self) -> JobRows:
        """Return all jobs that the controller knows.

        Raises
        ------
        AdapterError
            If the controller does not answer.
        """
        return rows_of(list(self._ask(self._slurm.Jobs.load).values()))

    def nodes(self) -> list[NodeRow]:
        """Return all nodes."""
        return [_node(node) for node in self._ask(self._slurm.Nodes.load).values()]

    def _ask(self, call: Callable[[], Any]) -> Any:
        """Return what a call of pyslurm returns; its error is ours."""
        try:
            return call()
        except self._slurm.PyslurmError as error:
            raise AdapterError(
                f"pyslurm: {error}; check that slurmctld runs (scontrol ping)"
            ) from error


def rows_of(jobs: list[Any]) -> JobRows:
    """Return the rows of pyslurm's jobs."""

    def texts(name: str) -> Texts:
        return Texts.of(shown_text(job, name) for job in jobs)

    def moments(name: str) -> Any:
        return np.array([_moment(getattr(job, name)) for job in jobs], np.float64)

    def numbers(name: str) -> Any:
        return np.array([getattr(job, name) or 0 for job in jobs], np.int64)

    most = numbers("max_nodes")
    return JobRows(
        id=numbers("id"),
        uid=numbers("user_id"),
        label=Texts.of(map(_label, jobs)),
        user=texts("user_name"),
        account=texts("account"),
        partition=texts("partition"),
        qos=texts("qos"),
        state=texts("state"),
        reason=Texts.of(_text(job.state_reason) for job in jobs),
        nodes=texts("allocated_nodes"),
        features=Texts.of(_listed(job.constraints) for job in jobs),  # `a&b` is no single one
        reservation=texts("reservation"),
        submit=moments("submit_time"),
        eligible=moments("eligible_time"),
        start=moments("start_time"),
        end=moments("end_time"),
        limit=np.array([_limit(job.time_limit) for job in jobs], np.float64),
        deadline=moments("deadline"),
        cpus=numbers("cpus"),
        memory=np.array([job.memory_per_node or job.memory_per_cpu or 0 for job in jobs], np.int64),
        nice=numbers("nice"),
        priority=numbers("priority"),
        amounts=Texts.alike("", len(jobs)),
        exclusive=Texts.alike("", len(jobs)),
        min_nodes=np.array(
            [_least(job, int(n)) for job, n in zip(jobs, most, strict=True)], np.int64
        ),
        max_nodes=most,
        dependency=Texts.of(shown_dependency(job.dependencies) for job in jobs),
        required=texts("required_nodes"),
        excluded=texts("excluded_nodes"),
        licenses=Texts.of(_listed(job.licenses) for job in jobs),
        tres=Texts.of(map(_tres, jobs)),
        mark=texts("admin_comment"),
        name=texts("name"),
        comment=texts("comment"),
        extra=Texts.of(shown_text(job, "extra") if alive(job.state) else "" for job in jobs),
        exit_code=Texts.of(map(_exit_code, jobs)),
        restarts=numbers("requeue_count"),
        requeue=np.array([bool(job.is_requeueable) for job in jobs], np.bool_),
        het=np.array([job.heterogeneous_id or -1 for job in jobs], np.int64),
        components={},
        **arrays_in(map(_label, jobs)),
    )


def shown_text(job: Any, name: str) -> str:
    """Return a text; pyslurm cannot show one that is no UTF-8, and Slurm takes any from a user."""
    try:
        return getattr(job, name) or ""
    except UnicodeDecodeError:
        return "\N{REPLACEMENT CHARACTER}"


def _moment(value: Any) -> float:
    return float(value) if value else math.nan


def _text(value: Any) -> str:
    return "" if value in {None, "None"} else str(value)


def _limit(minutes: int | None) -> float:
    """Return seconds of a time limit; pyslurm says None for UNLIMITED."""
    return math.inf if minutes is None else float(minutes) * 60.0


def _label(job: Any) -> str:
    """Return a job's id as users see it; empty: it is its number."""
    if job.array_id is None:
        return ""
    if job.array_task_id is not None:
        return f"{job.array_id}_{job.array_task_id}"
    together = f"%{job.array_tasks_parallel}" if job.array_tasks_parallel else ""
    return f"{job.array_id}_[{job.array_tasks_waiting}{together}]"


def _listed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (dict, list)) else value or ""


def _tres(job: Any) -> str:
    """Return the generic resources asked for."""
    asked = (job.tres_per_node, job.tres_per_job, job.tres_per_socket, job.tres_per_task)
    return asked_tres(*(value if isinstance(value, str) else "" for value in asked))


def _exit_code(job: Any) -> str:
    """Return exit status and signal; of an interactive job that was killed pyslurm reads neither.

    Its status is above 2^31 (seen of srun and salloc on 26.05), for which pyslurm raises.
    """
    try:
        return f"{job.exit_code or 0}:{job.exit_code_signal or 0}"
    except OverflowError:
        return "0:0"


def _least(job: Any, most: int) -> int:
    """Return the fewest nodes of a request, which pyslurm shows among its resources only."""
    if most <= 1 or job.state not in WAITING:
        return int(job.num_nodes or 0)
    asked = job.requested_tres
    node = asked.node if asked is not None else None
    return int(node.count) if node is not None else int(job.num_nodes or 0)


def shown_dependency(waits_for: dict[str, Any] | None) -> str:
    """Return a dependency as squeue writes it, by what pyslurm says of it; None: there is none.

    pyslurm does not know `singleton(unfulfilled)`, as Slurm shows it: that is what it says nothing
    of.
    """
    if waits_for is None:
        return ""
    joint = "," if waits_for.get("satisfy", "all") == "all" else "?"
    found = [
        f"{kind}:{job}"
        for kind, jobs in waits_for.items()
        if isinstance(jobs, list)
        for job in jobs
    ]
    return joint.join(found) or "singleton"


def _node(node: Any) -> NodeRow:
    """Return the row of one of pyslurm's nodes."""
    return NodeRow(
        node.name,
        int(node.effective_cpus or node.total_cpus or 1),
        int(node.real_memory or 0) * MEGABYTE or -1,
        state_of(str(node.state)),
        tuple(node.active_features or ()),
        tuple(node.partitions or ()),
        int(node.weight or 0),
        gres=tuple(sorted(gres(_listed_counts(getattr(node, "configured_gres", None))).items())),
        threads=int(node.threads_per_core or 1),
        maintenance=in_maintenance(str(node.state)),
        sockets=int(getattr(node, "sockets", 0) or 1),
        disk=int(getattr(node, "temporary_disk", 0) or 0),
        available=tuple(getattr(node, "available_features", None) or ()),
    )


def _listed_counts(counts: Any) -> str:
    """Return counts by name, as pyslurm shows generic resources, as Slurm writes them."""
    return ",".join(f"{name}:{n}" for name, n in counts.items()) if isinstance(counts, dict) else ""


def differs(ours: JobRows, shown: JobRows) -> str:
    """Return in what bindings and commands differ on jobs that both show; empty: in nothing."""
    place = {job: at for at, job in enumerate(shown.id.tolist())}
    both = [(at, place[job]) for at, job in enumerate(ours.id.tolist()) if job in place]
    if len(both) < min(len(ours), len(shown)) / 2:
        return "the jobs"
    for name in ("uid", "submit", "user", "partition", "limit", "deadline"):
        if not _alike(getattr(ours, name), getattr(shown, name), both):
            return name
    return ""


def _alike(one: Any, other: Any, both: Iterable[tuple[int, int]]) -> bool:
    return all(one[i] == other[j] or (one[i] != one[i] and other[j] != other[j]) for i, j in both)


class Route:
    """Jobs and nodes by the best route there is.

    Parameters
    ----------
    commands : CommandRunner
        Slurm's commands, which do for everything.
    wanted : {"auto", "pyslurm", "commands"}
        `pyslurm`: no other route will do.
    amounts : bool
        What jobs have of each resource is wanted, which the bindings do not show.

    Attributes
    ----------
    name : str
        `pyslurm` or `commands`; empty before the first poll.
    problem : str
        Why pyslurm is not used although it is there; empty: it is used, or is not wanted, or by
        `auto` is not installed, which is no problem.
    """

    def __init__(self, commands: CommandRunner, wanted: str, *, amounts: bool = False) -> None:
        self._commands = commands
        self._wanted = "commands" if amounts else wanted
        self._bindings: Bindings | None = None
        self.name = ""
        self.problem = ""

    def jobs(self) -> JobRows:
        """Return all jobs that the controller knows.

        Raises
        ------
        AdapterError
            If the controller does not answer, or pyslurm is demanded and does not fit.
        """
        if not self.name:
            self._choose()
        return (self._bindings or self._commands).jobs()

    def nodes(self) -> list[NodeRow]:
        """Return all nodes."""
        return (self._bindings or self._commands).nodes()

    def _choose(self) -> None:
        """Try pyslurm, and use it if it shows what squeue shows."""
        wanted = self._wanted
        if wanted == "pyslurm" or (wanted == "auto" and find_spec("pyslurm") is not None):
            shown = self._commands.jobs()
            try:
                self._bindings = self._tried(shown)
            except AdapterError as error:
                if wanted == "pyslurm":
                    raise
                self.problem = f"{error}; using Slurm's commands instead"
        self.name = "commands" if self._bindings is None else "pyslurm"

    def _tried(self, shown: JobRows) -> Bindings:
        """Return bindings that fit.

        Raises
        ------
        AdapterError
            If there are none.
        """
        why = unusable(min(TRIAL_S, self._commands.settings.command_timeout_s))
        if why:
            raise AdapterError(why)
        bindings = Bindings()
        column = differs(bindings.jobs(), shown)
        if column:
            raise AdapterError(
                f"pyslurm and squeue differ in {column}; build pyslurm for this release of Slurm"
            )
        return bindings
