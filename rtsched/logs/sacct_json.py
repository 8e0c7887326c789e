"""`sacct --json` of Slurm 21.08 to 26.05.

The shape of a field depends on the release: a number, or an object of `set`, `infinite` and
`number`; a state, or a list of states; a name, or null. Fields that are not read may be anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from rtsched.kernels.text import ARRAY, HET, PENDING_ARRAY, SINGLE
from rtsched.logs.gather import Coder
from rtsched.logs.sacct import moment, per_processor, zone_label
from rtsched.logs.sacct_rows import TEXTS, SlurmRows
from rtsched.logs.slurm_text import NO_VALUE, deadline_in, ending, submit_line
from rtsched.logs.source import JOBS, is_json, json_records
from rtsched.model.units import known_zone, slurm_moment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.logs.readers import ReadOptions
    from rtsched.logs.source import Source
    from rtsched.model.log import Log

_NO_JOBS = re.compile(JOBS.pattern + rb"\s*(?:\]|\Z)")
_TIME = re.compile(rb'"time"\s*:\s*\{')
_FLUSH = 16384
_MEGABYTE = 2.0**20


class Number(msgspec.Struct):
    """A number that may be unset or infinite (Slurm 23.02 and later)."""

    set: bool = True
    infinite: bool = False
    number: float = 0.0


Count = float | Number | None


class Times(msgspec.Struct):
    """Seconds since the epoch and seconds; the limit in minutes."""

    submission: Count = None
    eligible: Count = None
    start: Count = None
    end: Count = None
    elapsed: Count = None
    limit: Count = None


class Running(msgspec.Struct):
    """How many tasks may run at a time; 0: any number."""

    tasks: Count = None


class Most(msgspec.Struct):
    """Limits of an array from above."""

    running: Running | None = None


class Limits(msgspec.Struct):
    """Limits of an array."""

    max: Most | None = None


class Array(msgspec.Struct):
    """The array that a job is a task of."""

    limits: Limits | None = None
    job_id: Count = None
    task_id: Count = None
    task: str | None = None


class Het(msgspec.Struct):
    """The heterogeneous job that a job is a part of."""

    job_id: Count = None
    job_offset: Count = None


class Required(msgspec.Struct):
    """What was asked for."""

    cpus: Count = msgspec.field(default=None, name="CPUs")


class Amount(msgspec.Struct):
    """One trackable resource."""

    type: str = ""
    name: str | None = None
    count: float | None = None


class Resources(msgspec.Struct):
    """Trackable resources asked for and given."""

    requested: list[Amount] | None = None
    allocated: list[Amount] | None = None


class State(msgspec.Struct):
    """The job's state, with flags behind it."""

    current: str | list[str] | None = None


class Comment(msgspec.Struct):
    """Comments of the user and of others."""

    job: str | None = None


class Association(msgspec.Struct):
    """Whom the job is charged to."""

    user: str | None = None
    account: str | None = None


class Reserved(msgspec.Struct):
    """The reservation that the job ran in; its name is a number in schemas of old releases."""

    name: str | int | None = None


class Record(msgspec.Struct):
    """A job of `sacct --json`."""

    job_id: Count = None
    time: Times | None = None
    array: Array | None = None
    het: Het | None = None
    required: Required | None = None
    tres: Resources | None = None
    state: State | str | list[str] | None = None
    comment: Comment | str | None = None
    association: Association | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: str | None = None
    name: str | None = None
    cluster: str | None = None
    extra: str | None = None
    submit_line: str | None = None
    constraints: str | None = None
    reservation: Reserved | str | None = None
    restart_cnt: Count = None
    allocation_nodes: Count = None

    @property
    def own_comment(self) -> str:
        """What the user wrote of the job, not what administrators did; empty if nothing."""
        comment = self.comment
        return (comment.job if isinstance(comment, Comment) else comment) or ""


class SacctJsonReader:
    """Reads the JSON of sacct. Sizes count processors, memory is per processor."""

    format: ClassVar[str] = "sacct-json"

    def __init__(self, options: ReadOptions) -> None:
        self._zone_name = options.timezone
        self._details, self._resources = options.details, options.resources
        self._zone = known_zone(options.timezone)
        self._local = False
        self._rows = SlurmRows(options.clusters)
        self._texts = {name: Coder() for name in TEXTS}
        self._tres, self._given, self._gres = Coder(), Coder(), Coder()
        self._dependencies, self._job_names, self._node_options = Coder(), Coder(), Coder()
        self._licenses = Coder()
        self._decoder = msgspec.json.Decoder(Record, strict=True)
        self._pending: list[dict[str, float]] = []

    @staticmethod
    def claims(head: bytes) -> bool:
        """Return whether an object with a list `jobs` begins, or its jobs; not those of squeue."""
        if not is_json(head) or is_squeue_json(head):
            return False
        known = b'"job_id"' in head
        return (known and _TIME.search(head) is not None) or (
            (JOBS if known else _NO_JOBS).search(head) is not None
        )

    def read(self, source: Source) -> None:
        """Take in one file."""
        self._rows.open(source.path)
        for line, text in json_records(source):
            try:
                record = self._decoder.decode(text)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                self._rows.skipped.add(json_reason(error), self._rows.where(line))
                continue
            self._pending.append({"line": line, **self._row(record)})
            if len(self._pending) == _FLUSH:
                self._flush()
        self._flush()

    def _flush(self) -> None:
        rows, self._pending = self._pending, []
        if rows:
            columns: dict[str, NDArray[Any]] = {
                name: np.array([row[name] for row in rows], np.float64) for name in rows[0]
            }
            size = np.where(columns["asked"] > 0, columns["asked"], columns["given"])
            columns["memory"] = per_processor(columns["memory"], size)
            self._rows.append(len(rows), columns, self._texts["cluster"].names())

    def _row(self, record: Record) -> dict[str, float]:
        """Return the columns of `SlurmRows` for one record."""
        time = record.time or Times()
        base, part, meaning = _shown_id(record)
        submit = _moment(time.submission)
        cpus = _value(record.required.cpus) if record.required else np.nan
        tres = record.tres or Resources()
        asked = cpus if cpus > 0 else _amount(tres.requested, "cpu")
        given = _amount(tres.allocated, "cpu")
        row = {
            "raw": _whole(_value(record.job_id)),
            "base": base,
            "part": part,
            "meaning": meaning,
            "submit": submit,
            "eligible": _moment(time.eligible),
            "start": _moment(time.start),
            "end": _moment(time.end),
            "elapsed": _value(time.elapsed),
            "limit": _limit(time.limit),
            "asked": asked,
            "given": given,
            "memory": _amount(tres.requested, "mem") * _MEGABYTE,
            "width": _value(record.allocation_nodes),
            "tres": self._tres.code(_tres_text(tres.requested)) if self._resources else -1,
            "tres_given": self._given.code(_tres_text(tres.allocated)) if self._resources else -1,
            "exclusive": False,
            "array_limit": _array_limit(record.array),
            "restarts": max(0.0, _whole(_value(record.restart_cnt))),
            "ending": ending(_state(record.state)),
            "size_min": -1.0,
            "size_max": -1.0,
        }
        row |= self._names(record)
        row["deadline"] = self._wishes(record, submit, row)
        return row

    def _names(self, record: Record) -> dict[str, float]:
        """Return the codes of a record's texts."""
        charged = record.association or Association()
        nodes = record.nodes if record.nodes not in {"None assigned", "(null)"} else None
        reserved = record.reservation
        inside = reserved.name if isinstance(reserved, Reserved) else reserved
        texts = {
            "user": record.user or charged.user,
            "account": record.account or charged.account,
            "partition": record.partition,
            "qos": record.qos,
            "nodes": nodes,
            "cluster": record.cluster,
            "name": record.name if self._details else None,
            "reservation": inside if isinstance(inside, str) else None,
        }
        return {name: self._texts[name].code(text) for name, text in texts.items()}

    def _wishes(self, record: Record, submit: float, row: dict[str, float]) -> float:
        """Return the deadline, and fill in the range of sizes."""
        asked = submit_line(record.submit_line or "")
        row["exclusive"] = asked.exclusive
        self._rows.assume_of(asked)
        row["array_limit"] = max(row["array_limit"], asked.array_limit)
        row["dependency"] = self._dependencies.code(asked.dependency)
        features = asked.constraint if record.constraints is None else record.constraints
        row["node_options"] = self._node_options.code(asked.nodes_asked(features))
        row["licenses"] = self._licenses.code(asked.licenses) if self._resources else -1
        generic = self._resources and (asked.gres or asked.gpus)
        row["gres"] = self._gres.code(f"{asked.gres};{asked.gpus}") if generic else -1
        alone = "singleton" in asked.dependency
        row["job_name"] = self._job_names.code(asked.job_name) if alone else -1
        known = asked.begin and submit == submit
        row["begin"] = slurm_moment(asked.begin, submit, self._zone) if known else np.nan
        if asked.nodes is not None:
            row["size_min"], row["size_max"] = (
                min(float(count * asked.per_node), 2.0**31 - 1) for count in asked.nodes
            )
        if submit != submit:
            return np.inf
        text = asked.deadline or deadline_in(record.extra or "", record.own_comment)
        found = moment(text, submit, self._zone, self._rows)
        self._local |= found < np.inf and not text.isdigit() and not text.startswith("now")
        return found

    def log(self) -> Log:
        """Return everything taken in."""
        if self._local:
            zone = zone_label(self._zone_name)
            self._rows.remarks.append(f"deadlines without a zone are local times ({zone})")
        names = {name: coder.names() for name, coder in self._texts.items()}
        names["tres"], names["dependency"] = self._tres.names(), self._dependencies.names()
        names["tres_given"], names["gres"] = self._given.names(), self._gres.names()
        names["node_options"], names["constraint"] = self._node_options.names(), ()
        names["licenses"] = self._licenses.names()
        return self._rows.log(self.format, names)


def is_squeue_json(head: bytes) -> bool:
    """Return whether JSON is of `squeue` or `scontrol show jobs`: its jobs have no `time`."""
    return re.search(rb'"(?:job_state|submit_time)"\s*:', head) is not None and (
        _TIME.search(head) is None
    )


def json_reason(error: Exception) -> str:
    """Return in a few words why a record cannot be read."""
    match = re.search(r"`\$\.([^`]*)`", str(error))
    if match is not None:
        return f"the field {match[1]} has an unknown shape"
    return "the record is no JSON, or cut short"


def _value(count: Count) -> float:
    """Return a number, nan if it is not set, inf if it is infinite."""
    if isinstance(count, Number):
        if count.infinite:
            return np.inf
        count = count.number if count.set else None
    if count is None or count == NO_VALUE:
        return np.nan
    return np.inf if count == NO_VALUE + 1 else float(count)


def _array_limit(array: Array | None) -> float:
    """Return how many tasks of an array may run at a time, 0 where it is not said."""
    limits = array.limits if array is not None else None
    running = limits.max.running if limits is not None and limits.max is not None else None
    return max(0.0, _whole(_value(running.tasks))) if running is not None else 0.0


def _moment(count: Count) -> float:
    """Return seconds since the epoch, nan for 0 and for what is no time."""
    value = _value(count)
    return value if value != 0 and value < NO_VALUE else np.nan


def _limit(count: Count) -> float:
    """Return the seconds of a limit in minutes, inf if there is none."""
    value = _value(count)
    return value * 60 if value > 0 else np.inf


def _whole(value: float) -> float:
    """Return a number that an int64 holds, -1 for any other."""
    return float(int(value)) if 0 <= value < 2.0**53 else -1.0


def _amount(amounts: list[Amount] | None, kind: str) -> float:
    """Return how much of a resource there is, nan if it is not said."""
    for amount in amounts or ():
        if amount.type == kind and amount.count is not None and amount.count >= 0:
            return amount.count
    return np.nan


def _tres_text(amounts: list[Amount] | None) -> str:
    """Return resources as the text of sacct has them: `cpu=4,gres/gpu:a100=2,mem=100M`."""
    return ",".join(
        f"{amount.type}{'/' if amount.name else ''}{amount.name or ''}={amount.count:.0f}"
        for amount in amounts or ()
        if amount.count is not None and 0 <= amount.count < 2.0**53
    )


def _state(state: State | str | list[str] | None) -> str:
    if isinstance(state, State):
        state = state.current
    if isinstance(state, list):
        state = state[0] if state else None
    return state or ""


def _shown_id(record: Record) -> tuple[float, float, float]:
    """Return the id that users see: number, task or component, and which of them it is."""
    array, het = record.array or Array(), record.het or Het()
    base, task = _whole(_value(array.job_id)), _whole(_value(array.task_id))
    if base > 0 and task >= 0:
        return base, task, ARRAY
    if base > 0 and array.task:
        return base, 0.0, PENDING_ARRAY
    base = _whole(_value(het.job_id))
    if base > 0:
        return base, max(0.0, _whole(_value(het.job_offset))), HET
    return _whole(_value(record.job_id)), 0.0, SINGLE
