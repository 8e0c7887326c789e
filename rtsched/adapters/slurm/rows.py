"""Rows of jobs, nodes and reservations that Slurm shows: one form, whichever route they come by.

`JobRows` holds what both Slurm's commands and its bindings say, in the same words, each different
text once, as dictionary encoding has it; `observation.py` makes models of it. Parsers of what
scontrol prints are here too, and of single values: pure, and safe against what users write.

Sources: manual pages squeue, scontrol.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from rtsched.logs.hostlist import names_of
from rtsched.logs.machine import slurm_state
from rtsched.logs.slurm_text import ENDINGS, gres, licenses_in
from rtsched.model.cluster import NodeState
from rtsched.model.limits import JobNames
from rtsched.model.log import Ending
from rtsched.model.resources import LICENSE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray


class Vocabulary:
    """Different texts, and the number of each; it only grows."""

    __slots__ = ("_code_of", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._code_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def code(self, text: str) -> int:
        """Return the number of a text, which is added if it is new."""
        code = self._code_of.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


class Texts:
    """One text per row.

    Parameters
    ----------
    codes : int32[n]
        The number of each in the vocabulary.
    vocabulary : Vocabulary
        The texts; other columns may share it.
    """

    __slots__ = ("codes", "vocabulary")

    def __init__(self, codes: NDArray[np.int32], vocabulary: Vocabulary) -> None:
        self.codes, self.vocabulary = codes, vocabulary

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return a column of these texts."""
        vocabulary = Vocabulary()
        return cls(np.array([vocabulary.code(text) for text in texts], np.int32), vocabulary)

    @classmethod
    def alike(cls, text: str, count: int) -> Self:
        """Return a column of so many rows with one text."""
        vocabulary = Vocabulary()
        return cls(np.full(count, vocabulary.code(text), np.int32), vocabulary)

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Self:
        """Return the rows of some columns, of at least one, one after the other."""
        vocabulary = parts[0].vocabulary
        codes = [
            part.codes
            if part.vocabulary is vocabulary
            else np.array([vocabulary.code(text) for text in part], np.int32)
            for part in parts
        ]
        return cls(np.concatenate(codes), vocabulary)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.vocabulary.texts[int(self.codes[row])]

    def __setitem__(self, row: int, text: str) -> None:
        self.codes[row] = self.vocabulary.code(text)

    def __iter__(self) -> Iterator[str]:
        return map(self.vocabulary.texts.__getitem__, self.codes.tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Texts | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts.of({list(self)!r})"

    def take(self, rows: ArrayLike) -> Texts:
        """Return some of the rows: int64[m], or a bool[n] mask."""
        return Texts(self.codes[np.asarray(rows)], self.vocabulary)

    def map(self, meaning: Callable[[str], Any], dtype: DTypeLike) -> NDArray[Any]:
        """Return what each text means, dtype[n]; each different one is looked at once."""
        used, place = self._used()
        texts = self.vocabulary.texts
        return np.array([meaning(texts[code]) for code in used], dtype)[place]

    def replaced(self, meaning: Callable[[str], str]) -> Texts:
        """Return a column of what each text means where that is a text too."""
        vocabulary = Vocabulary()
        codes = self.map(lambda text: vocabulary.code(meaning(text)), np.int32)
        return Texts(codes, vocabulary)

    def compact(self) -> Texts:
        """Return the same rows with a vocabulary of the texts that they have, in its order."""
        used, place = self._used()
        vocabulary = Vocabulary()
        for code in used:
            vocabulary.code(self.vocabulary.texts[code])
        return Texts(place.astype(np.int32), vocabulary)

    def encoded(self) -> tuple[NDArray[np.int32], list[str]]:
        """Return the rows as `Table.build` takes a text column: codes, and names.

        An empty text is -1, missing.
        """
        used, place = self._used()
        names = [self.vocabulary.texts[code] for code in used]
        codes = place.astype(np.int32)
        if "" in names:
            empty = names.index("")
            del names[empty]
            codes = np.where(codes == empty, -1, codes - (codes > empty)).astype(np.int32)
        return codes, names

    def _used(self) -> tuple[list[int], NDArray[np.int64]]:
        """Return the codes in use, in order, and which of these each row has, int64[n]."""
        is_used = np.zeros(len(self.vocabulary), np.bool_)
        is_used[self.codes] = True
        return np.flatnonzero(is_used).tolist(), (np.cumsum(is_used) - 1)[self.codes]


def pairwise(
    first: Texts, second: Texts, meaning: Callable[[str, str], Any], dtype: DTypeLike
) -> NDArray[Any]:
    """Return what the texts of two columns mean together, dtype[n]; each pair is looked at once.

    Where that are several numbers, dtype[n, k].
    """
    width = max(len(second.vocabulary), 1)
    keys = first.codes.astype(np.int64) * width + second.codes
    pairs, place = np.unique(keys, return_inverse=True)
    one, other = first.vocabulary.texts, second.vocabulary.texts
    return np.array([meaning(one[p // width], other[p % width]) for p in pairs.tolist()], dtype)[
        place
    ]


MEGABYTE = 2**20
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REQUEUE_FED"})
"""States of a job that waits."""

NO_DEADLINE = 4_102_444_800.0
"""In place of a deadline that is taken from a waiting job, seconds since the epoch: scontrol(1)
changes a deadline and clears none."""

TRES = ("tres_node", "tres_job", "tres_socket", "tres_task")
"""Columns of trackable resources that are asked for."""

_HARMLESS = {"RESERVED", "PLANNED", "COMPLETING"}
_MAINTENANCE = "MAINT"
_AWAY = ("POWER", "REBOOT", "INVAL", "BLOCKED")

_EMPTY = {"(null)", "N/A", "None", "Unknown", "NONE"}
_NODES = re.compile(r"(?:^|,)node=(\d{1,9})")
_ARRAY = re.compile(r"(\d{1,10})_(?:\d{1,9}|\[(.*)\])")
_NUMBER = r"\s*\+?([0-9]{1,18})\]?"
_TASKS = re.compile(rf"\[?{_NUMBER}(?:-{_NUMBER}(?::{_NUMBER})?)?(?:%.*)?", re.ASCII)
"""`_parse_array_tok` in src/slurmctld/job_mgr.c."""
_PARALLEL = re.compile(r"%\s*\+?([0-9]{1,18})", re.ASCII)
MOST_TASKS = (1 << 31) - 1
"""More are not counted; Slurm's MaxArraySize is far less."""
_EXTRA = re.compile(r"(?m)^   Extra=(.*)$")


class Components(NamedTuple):
    """The components of a heterogeneous job that is one row here."""

    ids: tuple[int, ...]
    """Their job ids."""
    cpus: int
    """The most processors that one of them asks for on each of its nodes."""
    problem: str
    """Why they cannot be planned as one job, such as `have different QOS`; empty: they can."""


@dataclass
class JobRows:
    """One row per job that Slurm knows; texts are empty where nothing is said.

    Attributes
    ----------
    id, uid : int64[n]
        Job id, user id.
    label, user, account, partition, qos, state, reason, nodes, features, reservation : Texts
        As Slurm writes them; `nodes` is a node list, `label` such as `12_[3-4]`;
        empty: its number.
    submit, eligible, start, end, limit, deadline : float64[n]
        Seconds since the epoch, the limit in seconds; nan: not said; inf: no limit.
    amounts : Texts
        What it has, or asks for, on all nodes together, such as `cpu=8,mem=4G,node=2,gres/gpu=4`;
        empty: not said.
    exclusive : Texts
        Who has its nodes for itself: the job (`NODE`), its user (`USER`), ...; `NO`: nobody; empty:
        not said.
    cpus, memory, nice, priority : int64[n]
        Processors in all, MiB per node (0: not said), adjustment, priority (0: held).
    min_nodes, max_nodes : int64[n]
        Fewest and most nodes of a job that waits.
    dependency, required, excluded, licenses, mark, name, comment, extra : Texts
        Dependency, node lists asked for, licences, admin comment, job name, comment; Extra of jobs
        that wait or run.
    tres_node, tres_job, tres_socket, tres_task : Texts
        Trackable resources asked for on each node, in all, for each socket and for each task.
    exit_code : Texts
        Exit status and signal of the batch script, such as `75:0`.
    restarts : int64[n]
        How often Slurm has queued it again.
    requeue : bool[n]
        May be requeued.
    het : int64[n]
        The heterogeneous job that it is a component of, by the number of its first one; -1: none.
    components : dict of int to Components
        By job id, of rows that are whole heterogeneous jobs.
    array, tasks, parallel : int64[n]
        The array that it is tasks of (-1: none), how many, and how many of the array may run at a
        time (0: all).
    """

    id: NDArray[np.int64]
    uid: NDArray[np.int64]
    label: Texts
    user: Texts
    account: Texts
    partition: Texts
    qos: Texts
    state: Texts
    reason: Texts
    nodes: Texts
    features: Texts
    reservation: Texts
    submit: NDArray[np.float64]
    eligible: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    limit: NDArray[np.float64]
    deadline: NDArray[np.float64]
    cpus: NDArray[np.int64]
    memory: NDArray[np.int64]
    nice: NDArray[np.int64]
    priority: NDArray[np.int64]
    amounts: Texts
    exclusive: Texts
    min_nodes: NDArray[np.int64]
    max_nodes: NDArray[np.int64]
    dependency: Texts
    required: Texts
    excluded: Texts
    licenses: Texts
    tres_node: Texts
    tres_job: Texts
    tres_socket: Texts
    tres_task: Texts
    mark: Texts
    name: Texts
    comment: Texts
    extra: Texts
    exit_code: Texts
    restarts: NDArray[np.int64]
    requeue: NDArray[np.bool_]
    het: NDArray[np.int64]
    components: dict[int, Components]
    array: NDArray[np.int64]
    tasks: NDArray[np.int64]
    parallel: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class NodeRow:
    """A node as Slurm shows it."""

    name: str
    cores: int
    memory: int
    state: NodeState
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    weight: int = field(compare=False)
    """Not of the machine as the models see it."""
    gres: tuple[tuple[str, int], ...] = ()
    """Its generic resources, such as ("gres/gpu", 4), and how much there is of each."""
    threads: int = 1
    """Processors of one core."""
    maintenance: bool = False
    """It is in a reservation for maintenance now."""
    sockets: tuple[int, ...] = (1,)
    """The cores that jobs may have of each socket, the most first."""
    disk: int = 0
    """MiB of TmpDisk."""
    available: tuple[str, ...] = ()
    """Features that it can have, now or after a reboot."""


@dataclass(frozen=True)
class ReservationRow:
    """An advance reservation; times in seconds since the epoch."""

    name: str
    start: float
    end: float
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    flags: tuple[str, ...]
    active: bool = False
    licenses: Mapping[str, int] = field(default_factory=dict)
    """How many of each, by names such as `license/matlab`."""


def alive(state: str) -> bool:
    """Return whether a job in this state waits or runs."""
    return state in WAITING or ENDINGS.get(state) == Ending.RUNNING


def is_held(reason: str) -> bool:
    """Return whether a job waits for this reason since somebody, or Slurm, holds it."""
    return reason.startswith("JobHeld")


def text(value: str) -> str:
    """Return a text, empty where Slurm's commands say that there is none."""
    return "" if value in _EMPTY else value


def moment(value: str) -> float:
    """Return seconds since the epoch as `SLURM_TIME_FORMAT=%s` gives them; nan for none."""
    return float(value) if value.isascii() and value.isdigit() and len(value) < 12 else math.nan


def number(value: str) -> int:
    """Return a whole number; 0 for none."""
    digits = value.removeprefix("-")
    whole = digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(value) if whole else 0


def megabytes(value: str) -> int:
    """Return the MiB of `1000M`, `4G` or `500Mc`; 0 for none."""
    match = re.fullmatch(r"(\d{1,12})(?:\.\d+)?([KMGT]?)[cn]?", value)
    if match is None:
        return 0
    return int(match[1]) * {"K": 0, "": 1, "M": 1, "G": 1024, "T": 1024**2}[match[2]]


def tasks_in(text: str) -> tuple[int, int]:
    """Return how many tasks `1-5000:2%10` names, and how many may run at a time (0: all)."""
    count = sum((last - first) // step + 1 for first, last, step in filter(None, _ranges(text)))
    limit = _PARALLEL.search(text)
    parallel = int(limit[1]) if limit is not None and limit.start() == text.find("%") else 0
    return min(count, MOST_TASKS), min(parallel, MOST_TASKS)


def last_task_in(text: str) -> int:
    """Return the highest task id that `1-5000:2%10` names; -1: none, or Slurm cannot read it."""
    last = -1
    for each in _ranges(text):
        if each is None:
            return -1
        last = max(last, each[1])
    return last


def _ranges(text: str) -> Iterator[tuple[int, int, int] | None]:
    """Yield first, last and step of each range of task ids; None: it cannot be read."""
    for part in filter(None, text.split(",")):
        found = _TASKS.fullmatch(part)
        first, last, step = (0, -1, 0)
        if found is not None:
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        yield (first, last, step) if first <= last and step > 0 else None


def arrays_in(labels: Iterable[str]) -> dict[str, NDArray[np.int64]]:
    """Return the columns `array`, `tasks` and `parallel` of labels such as `12_[3-4%2]`, `12_3`."""
    found = np.array([_array_in(label) for label in labels], np.int64).reshape(-1, 3)
    return {name: found[:, at] for at, name in enumerate(("array", "tasks", "parallel"))}


def _array_in(label: str) -> tuple[int, int, int]:
    match = _ARRAY.fullmatch(label) if "_" in label else None
    if match is None:
        return -1, 0, 0
    return int(match[1]), *(tasks_in(match[2]) if match[2] else (1, 0))


def nodes_in(value: str) -> int:
    """Return the nodes of a request such as `cpu=1,mem=2000M,node=2`; 0 if it says none."""
    match = _NODES.search(value)
    return int(match[1]) if match else 0


def taken(rows: JobRows, which: Sequence[int] | NDArray[np.int64]) -> JobRows:
    """Return some of the rows."""
    index = np.asarray(which, np.int64)
    columns: dict[str, Any] = {
        name: column if isinstance(column, dict) else _taken(column, index)
        for name, column in vars(rows).items()
    }
    return JobRows(**columns)


def _taken(column: Texts | NDArray[Any], which: NDArray[np.int64]) -> Texts | NDArray[Any]:
    return column.take(which) if isinstance(column, Texts) else column[which]


def with_joined(rows: JobRows, dropped: Collection[int], joined: Sequence[JobRows]) -> JobRows:
    """Return the rows without those that are parts of others, and behind them these others."""
    stays = np.ones(len(rows), np.bool_)
    stays[list(dropped)] = False
    parts = (taken(rows, np.flatnonzero(stays)), *joined)
    columns = {name: _joined([getattr(part, name) for part in parts]) for name in vars(parts[0])}
    return JobRows(**columns)


def _joined(parts: Sequence[Any]) -> Any:
    """Return the rows of a column, one part after the other."""
    if isinstance(parts[0], Texts):
        return Texts.joined(parts)
    if isinstance(parts[0], dict):
        return {job: value for part in parts for job, value in part.items()}
    return np.concatenate(parts)


def parts(rows: JobRows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return which rows wait, run, and have ended; waiting and running by (submit, id)."""
    code = rows.state.map(_part_of, np.int8)
    order = np.lexsort((rows.id, rows.submit))
    ordered = code[order]
    return order[ordered == 0], order[ordered == 1], np.flatnonzero(code == 2)


def _part_of(state: str) -> int:
    if state in WAITING:
        return 0
    return 1 if alive(state) else 2


def names_of_job(rows: JobRows, i: int) -> JobNames:
    """Return what limits of a job go by."""
    first = rows.partition[i].split(",", 1)[0]
    return JobNames(rows.qos[i], first, rows.account[i], rows.user[i])


def extra_in(output: str) -> str:
    """Return Extra of one job from `scontrol show job ID`; empty if it has none.

    Slurm writes it behind the other texts of the user, so the last such line counts; a user can
    only spoil what she may set herself.
    """
    found = _EXTRA.findall(output)
    return found[-1] if found else ""


def first_of(line: str) -> dict[str, str]:
    """Return the pairs `name=value` of a line; of a name that occurs twice, the first."""
    words = reversed(line.split())
    return {name: value for name, equals, value in (w.partition("=") for w in words) if equals}


def node_rows(output: str) -> list[NodeRow]:
    """Return the nodes of `scontrol show node -o`."""
    rows = []
    for line in output.splitlines():
        pairs = first_of(line)
        if not pairs.get("NodeName"):
            continue
        memory = number(pairs.get("RealMemory", "")) - number(pairs.get("MemSpecLimit", ""))
        cpus, usable = number(pairs.get("CPUTot", "")), number(pairs.get("CPUEfctv", ""))
        threads = number(pairs.get("ThreadsPerCore", "")) or 1
        sockets = number(pairs.get("Sockets", "")) or 1
        rows.append(
            NodeRow(
                pairs["NodeName"],
                usable or cpus or 1,
                max(memory, 0) * MEGABYTE or -1,
                state_of(pairs.get("State", "")),
                words_of(pairs.get("ActiveFeatures", "")),
                words_of(pairs.get("Partitions", "")),
                number(pairs.get("Weight", "")),
                tuple(sorted(gres(text(pairs.get("Gres", ""))).items())),
                threads,
                in_maintenance(pairs.get("State", "")),
                _sockets(cpus or usable, sockets, threads, pairs.get("CPUSpecList", "")),
                number(pairs.get("TmpDisk", "")),
                words_of(pairs.get("AvailableFeatures", "")),
            )
        )
    return rows


@lru_cache(maxsize=256)
def _sockets(cpus: int, sockets: int, threads: int, kept: str) -> tuple[int, ...]:
    """Return the cores that jobs may have of each socket of a node, the most first.

    `kept` are the processors that Slurm keeps for the system (CPUSpecList, also by CoreSpecCount),
    in order of the cores.
    """
    each = max(cpus // threads // sockets, 1)
    cores = {int(cpu) // threads for cpu in names_of(f"[{kept}]") if cpu.isdigit()}
    left = (each - sum(core // each == at for core in cores) for at in range(sockets))
    return tuple(sorted(left, reverse=True))


@lru_cache(maxsize=256)
def state_of(state: str) -> NodeState:
    """Return what a node's state such as `IDLE+DRAIN` means for promises.

    A node that does not answer is down. One that the controller has not asked since it started is
    up: if it is not, Slurm says so within `SlurmdTimeout`, and no promise breaks before. One that
    is switched off or about to boot takes no promised job: nobody knows when it would start. For
    maintenance see `in_maintenance`.
    """
    words = state.split("+")
    if "*" in state:
        return NodeState.DOWN
    harmless = {*_HARMLESS, *(word for word in words if word.startswith(_MAINTENANCE))}
    known = slurm_state(word for word in words if word not in harmless)
    away = any(word.startswith(_AWAY) for word in words)
    return NodeState.DRAINED if away and known == NodeState.UP else known


def in_maintenance(state: str) -> bool:
    """Return whether a node in a state such as `IDLE+MAINTENANCE` is in maintenance."""
    return any(word.startswith(_MAINTENANCE) for word in state.split("+"))


def words_of(value: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list."""
    return tuple(word for word in text(value).split(",") if word)


def reservation_rows(output: str) -> list[ReservationRow]:
    """Return the reservations of `scontrol show reservation -o`."""
    rows = []
    for line in output.splitlines():
        pairs = first_of(line)
        if not pairs.get("ReservationName"):
            continue
        rows.append(
            ReservationRow(
                pairs["ReservationName"],
                moment(pairs.get("StartTime", "")),
                moment(pairs.get("EndTime", "")),
                tuple(names_of(text(pairs.get("Nodes", "")))),
                words_of(pairs.get("Users", "")),
                words_of(pairs.get("Flags", "")),
                pairs.get("State", "") == "ACTIVE",
                licenses_in(pairs.get("Licenses", "")),
            )
        )
    return rows


def license_counts(output: str) -> dict[str, int]:
    """Return how many there are of each licence, by `scontrol show licenses -o`.

    Those in reservations are there; of those on a server, without those that are used elsewhere
    although they are meant for this cluster.
    """
    counts = {}
    for line in output.splitlines():
        pairs = first_of(line)
        if pairs.get("LicenseName"):
            free = number(pairs.get("Total", "")) - number(pairs.get("LastDeficit", ""))
            counts[f"{LICENSE}{pairs['LicenseName']}"] = max(free, 0)
    return counts
