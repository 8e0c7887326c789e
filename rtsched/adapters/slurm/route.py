"""Routes by which jobs are read: pyslurm, where it fits; else what squeue prints.

pyslurm, Slurm's Python bindings, is built for one release of Slurm. Bindings that do not fit can
crash the process, or show numbers that are not there. So they are tried in a process of their own,
and their first poll is compared with squeue's; where they fail either, Slurm's commands are used.
Nodes are always read by scontrol: pyslurm leaves out generic resources with a unit, `scratch:9G`.

What squeue prints of a job is a record of two parts. The first one holds what changes while the job
waits, as its priority does every few minutes; it is read at each poll. The second one holds all the
rest: where it is as it was at the last poll, its columns are those that were read then. What users
write could hold any delimiter, so those around it are random, and so are those of parts; between
numbers and words of Slurm's own stands a bar.

Source: manual page squeue.
"""

from __future__ import annotations

import importlib
import math
import re
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.adapters.programs import run_program, text_of
from rtsched.adapters.slurm.rows import (
    TRES,
    WAITING,
    JobRows,
    Texts,
    Vocabulary,
    alive,
    arrays_in,
    megabytes,
    moment,
    nodes_in,
    number,
    text,
)
from rtsched.errors import AdapterError
from rtsched.model.units import slurm_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.commands import CommandRunner


_TRIAL = "import pyslurm; pyslurm.Jobs.load()"
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
    """Jobs by pyslurm.

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
        try:
            return rows_of(list(self._slurm.Jobs.load().values()))
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
    others: dict[str, Any] = arrays_in(map(_label, jobs))
    others |= {name: Texts.of(_tres(job, name) for job in jobs) for name in TRES}
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
        **others,
        mark=texts("admin_comment"),
        name=texts("name"),
        comment=texts("comment"),
        extra=Texts.of(shown_text(job, "extra") if alive(job.state) else "" for job in jobs),
        exit_code=Texts.of(map(_exit_code, jobs)),
        restarts=numbers("requeue_count"),
        requeue=np.array([bool(job.is_requeueable) for job in jobs], np.bool_),
        het=np.array([job.heterogeneous_id or -1 for job in jobs], np.int64),
        components={},
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


def _tres(job: Any, name: str) -> str:
    """Return trackable resources asked for, such as `tres_node`."""
    value = getattr(job, name.replace("_", "_per_"))
    return value if isinstance(value, str) else ""


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


class JobSource:
    """Jobs by the best route there is.

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


# --- what squeue prints ---------------------------------------------------------------------------


class Field(NamedTuple):
    """A column of `JobRows`: squeue's name of it, what a value means, dtype; None: it is a text."""

    column: str
    shown: str
    meaning: Callable[[str], Any]
    dtype: Any = None


CHANGING = (
    Field("state", "state", lambda value: value.removeprefix("\n")),
    Field("start", "starttime", moment, np.float64),
    Field("end", "endtime", moment, np.float64),
    Field("priority", "prioritylong", number, np.int64),
)
"""What changes of many jobs that wait; numbers and words of Slurm's own."""

NUMBERS = (
    Field("id", "jobid", number, np.int64),
    Field("uid", "userid", number, np.int64),
    Field("submit", "submittime", moment, np.float64),
    Field("eligible", "eligibletime", moment, np.float64),
    Field("limit", "timelimit", slurm_duration, np.float64),
    Field("deadline", "deadline", moment, np.float64),
    Field("cpus", "numcpus", number, np.int64),
    Field("memory", "minmemory", megabytes, np.int64),
    Field("nice", "nice", number, np.int64),
    Field("exclusive", "exclusive", text),
    Field("max_nodes", "maxnodes", number, np.int64),
    Field("het", "hetjobid", lambda value: number(value) or -1, np.int64),
    Field("exit_code", "exit_code", str),
    Field("restarts", "restartcnt", number, np.int64),
    Field("requeue", "requeue", lambda value: value == "1", np.bool_),
)
"""Further numbers and words of Slurm's own."""

TEXTS = (
    Field("label", "jobarrayid", str),
    Field("user", "username", text),
    Field("account", "account", text),
    Field("partition", "partition", text),
    Field("qos", "qos", text),
    Field("reason", "reason", text),
    Field("nodes", "nodelist", text),
    Field("features", "feature", text),
    Field("reservation", "reservation", text),
    Field("amounts", "tres", text),
    Field("dependency", "dependency", text),
    Field("required", "reqnodes", text),
    Field("excluded", "excnodes", text),
    Field("licenses", "licenses", text),
    Field("tres_node", "tres-per-node", text),
    Field("tres_job", "tres-per-job", text),
    Field("tres_socket", "tres-per-socket", text),
    Field("tres_task", "tres-per-task", text),
    Field("mark", "admin_comment", text),
    Field("name", "name", text),
    Field("comment", "comment", text),
)
"""What somebody may have written."""

EXCLUSIVE_SHOWN = (26, 5)
"""The release from which on squeue has a field Exclusive, and OverSubscribe no longer tells."""

EXCLUDED_SHOWN = (24, 5)
"""The release from which on squeue has a field ExcNodes in its long formats."""

_OVERSUBSCRIBE = {"NO": "NODE", "OK": "NO", "YES": "NO"}

_BLOCK = 4096
"""So many records are read at a time: their fields take more memory than all that is kept."""


def release_of(version: str) -> tuple[int, int]:
    """Return the release of what a command of Slurm prints as its version.

    Raises
    ------
    AdapterError
        If it prints none.
    """
    found = re.search(r"\b(\d{1,3})\.(\d{1,3})\b", version)
    if found is None:
        raise AdapterError(
            f"squeue --version printed {version[:60]!r}, which is no version; check bin_dir in "
            "[slurm]"
        )
    return int(found[1]), int(found[2])


class JobReader:
    """Reads what squeue prints of all jobs, one poll after the other.

    Parameters
    ----------
    token : str
        Random, and hidden from users: delimiters are made of it.
    release : (int, int)
        That of squeue.

    Attributes
    ----------
    format : str
        What squeue is to print.
    knows_excluded : bool
        Whether that includes the nodes that jobs exclude; they are empty otherwise.
    """

    def __init__(self, token: str, release: tuple[int, int] = EXCLUSIVE_SHOWN) -> None:
        self.knows_excluded = release >= EXCLUDED_SHOWN
        field, part = f"<{token}>", f">{token}<"
        behind = [*"|" * (len(CHANGING) - 1), part]
        behind += [*"|" * (len(NUMBERS) - 1), field]
        behind += [*[field] * (len(TEXTS) - 1), part]
        former = {"exclusive": "oversubscribe"} if release < EXCLUSIVE_SHOWN else {}
        if not self.knows_excluded:
            former["excnodes"] = "reqnodes"
        shown = [former.get(each.shown, each.shown) for each in (*CHANGING, *NUMBERS, *TEXTS)]
        self.format = ",".join(f"{a}:0{b}" for a, b in zip(shown, behind, strict=True))
        self._field, self._part = field.encode(), part.encode()
        self._oversubscribe = release < EXCLUSIVE_SHOWN
        self._vocabularies: dict[str, Vocabulary] = {}
        self._changing = _Part(partial(self._read, CHANGING))
        self._lasting = _Part(self._read_lasting)

    def read(self, output: Iterable[bytes]) -> JobRows:
        """Return the jobs that squeue printed by the format.

        Parameters
        ----------
        output : iterable of bytes
            What it printed, in pieces.

        Raises
        ------
        AdapterError
            If the output is not of this form.
        """
        parts, left = list[bytes](), b""
        for piece in output:
            *whole, left = (left + piece).split(self._part)
            parts += whole
        if len(parts) % 2 or left.strip():
            raise _other_form()
        self._changing.update(parts[::2])
        self._lasting.update(parts[1::2])
        self._forget(len(parts) // 2)
        columns: dict[str, Any] = {
            name: column.copy()
            for part in (self._changing, self._lasting)
            for name, column in part.columns.items()
        }
        for name, vocabulary in self._vocabularies.items():
            columns[name] = Texts(columns[name], vocabulary)
        if self._oversubscribe:
            columns["exclusive"] = _exclusive_of(columns["exclusive"], columns["state"])
        if not self.knows_excluded:
            columns["excluded"] = Texts.alike("", len(parts) // 2)
        return JobRows(**columns, extra=Texts.alike("", len(parts) // 2), components={})

    def _forget(self, jobs: int) -> None:
        """Forget texts of jobs that are gone, where these are most of all."""
        columns = self._lasting.columns
        for name, vocabulary in self._vocabularies.items():
            if name in columns and len(vocabulary) > 2 * jobs + _BLOCK:
                texts = Texts(columns[name], vocabulary).compact()
                columns[name], self._vocabularies[name] = texts.codes, texts.vocabulary

    def _read_lasting(self, records: Sequence[bytes]) -> dict[str, NDArray[Any]]:
        """Return the columns of what lasts of some jobs; codes of texts."""
        fields = self._field.join(records).split(self._field) if records else []
        width = 1 + len(TEXTS)
        if len(fields) != width * len(records):
            raise _other_form()
        shown = {each.column: fields[at::width] for at, each in enumerate(TEXTS, 1)}
        job = [record.partition(b"|")[0] for record in fields[::width]]
        shown["label"] = [
            b"" if label == number else label
            for label, number in zip(shown["label"], job, strict=True)
        ]
        return {
            **self._read(NUMBERS, fields[::width]),
            **{each.column: self._column(each, shown[each.column]) for each in TEXTS},
            "min_nodes": _meant(shown["amounts"], nodes_in, np.int64),
            **arrays_in(map(text_of, shown["label"])),
        }

    def _read(self, fields: Sequence[Field], records: Sequence[bytes]) -> dict[str, NDArray[Any]]:
        """Return the columns of numbers and words with bars between them."""
        values = b"|".join(records).split(b"|") if records else []
        if len(values) != len(fields) * len(records):
            raise _other_form()
        return {
            each.column: self._column(each, values[at :: len(fields)])
            for at, each in enumerate(fields)
        }

    def _column(self, field: Field, values: Sequence[bytes]) -> NDArray[Any]:
        """Return what the values of a field mean; codes of texts."""
        meaning, dtype = field.meaning, field.dtype
        if dtype is None:
            code = self._vocabularies.setdefault(field.column, Vocabulary()).code
            return _meant(values, lambda value: code(meaning(value)), np.int32)
        return _meant(values, meaning, dtype)


class _Part:
    """One part of all records, from poll to poll.

    Parameters
    ----------
    read : callable
        Returns the columns of some records.

    Attributes
    ----------
    columns : dict of str to array
        One row per record of the last time; codes of texts.
    """

    def __init__(self, read: Callable[[Sequence[bytes]], dict[str, NDArray[Any]]]) -> None:
        self._read = read
        self._row_of: dict[bytes, int] = {}
        self.columns = read([])

    def update(self, records: Sequence[bytes]) -> None:
        """Have the columns be those of these records; what was there last time is not read."""
        count, known = len(records), len(next(iter(self.columns.values())))
        row = np.fromiter(map(self._row_of.get, records, repeat(-1)), np.int64, count)
        new = np.flatnonzero(row < 0)
        row[new] = known + np.arange(len(new))
        fresh = [records[at] for at in new.tolist()]
        starts = range(0, len(fresh), _BLOCK)
        blocks = [self.columns, *(self._read(fresh[at : at + _BLOCK]) for at in starts)]
        self.columns = {
            name: np.concatenate([block[name] for block in blocks])[row] for name in self.columns
        }
        self._row_of = dict(zip(records, range(count), strict=True))


def _meant(values: Sequence[bytes], meaning: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
    """Return what values mean, each different one looked at once."""
    known = {value: meaning(text_of(value)) for value in set(values)}
    return np.fromiter(map(known.__getitem__, values), dtype, len(values))


def _exclusive_of(oversubscribe: Texts, state: Texts) -> Texts:
    """Return who has jobs' nodes by OverSubscribe, as Slurm showed it before 26.05.

    It is `NO` of every job that runs in a partition that does not oversubscribe.
    """
    found = oversubscribe.replaced(lambda word: _OVERSUBSCRIBE.get(word, word))
    waits = state.map(lambda word: word == "PENDING", np.bool_)
    unknown = ~waits & oversubscribe.map(lambda word: word == "NO", np.bool_)
    found.codes[unknown] = found.vocabulary.code("")
    return found


def _other_form() -> AdapterError:
    return AdapterError(
        "squeue's output does not have the requested format; "
        'set route = "pyslurm" in [slurm], or report this Slurm\'s version'
    )
