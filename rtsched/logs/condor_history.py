"""History of HTCondor: the raw file, `condor_history -long`, `-json`, `-xml` and `-af:h`.

Source: the appendix "Job ClassAd Attributes" of HTCondor's manual. Tried with 25.14.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtsched.logs.ad_files import is_table, is_xml, read_ads
from rtsched.logs.classads import Expression, Record, number, text
from rtsched.logs.gather import (
    MOST,
    SUSPENDED,
    Coder,
    Columns,
    of_jobs,
    unique_ids,
    unless_constant,
    whole,
)
from rtsched.logs.source import is_json
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Ending, Log, Outcomes, Skipped
from rtsched.model.resources import CPU, DISK, GPU, MEMORY, whole_kib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.readers import ReadOptions
    from rtsched.logs.source import Source

    Rows = NDArray[np.int64]


def dag_edges(
    ids: Rows,
    dags: Rows,
    codes: Mapping[str, NDArray[np.int32]],
    texts: Mapping[str, Sequence[str]],
) -> tuple[Rows, Edges]:
    """Return the group of each job and the edges from the nodes that it waits for.

    Parameters
    ----------
    ids : int64[n]
        Keys of the jobs.
    dags : int64[n, 2]
        Schedd and DAG of each job.
    codes : mapping of str to int32[n]
        `dag_node`, the node of the DAG, and `parents`; -1: none.
    texts : mapping of str to sequence of str
        What the codes mean; parents are separated by commas.

    Returns
    -------
    int64[n], Edges
        Jobs of one node have a group in common, the id of the first of them; -1: no node of a DAG.
        The edges name these groups, or the job where it is alone in its group. Nodes that are not
        in the log are left out.
    """
    group = np.full(len(ids), -1, np.int64)
    rows = np.flatnonzero(codes["dag_node"] >= 0)
    if not len(rows):
        return group, Edges.build(0)
    keys = np.column_stack([dags[rows], codes["dag_node"][rows]])
    nodes, first, of, count = np.unique(
        keys, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    group[rows] = ids[rows[first]][of.ravel()]
    head, several = ids[rows[first]].tolist(), (count > 1).tolist()
    place = {node: at for at, node in enumerate(map(tuple, nodes.tolist()))}
    code_of = {name: code for code, name in enumerate(texts["dag_node"])}
    children = np.flatnonzero((codes["dag_node"] >= 0) & (codes["parents"] >= 0))
    table = []
    for row in children.tolist():
        schedd, dag = dags[row].tolist()
        for name in texts["parents"][codes["parents"][row]].split(","):
            at = place.get((schedd, dag, code_of.get(name.strip(), -1)))
            if at is not None and head[at] != group[row]:
                table.append((head[at], ids[row], several[at]))
    return group, Edges.of_rows(("before", "after", "whole_array"), table)


_WANTED = (
    "accountinggroup acctgroup allowedexecuteduration allowedjobduration clusterid cmd "
    "committedtime "
    "committedsuspensiontime completiondate concurrencylimits cpusprovisioned "
    "cumulativesuspensiontime dagmanjobid dagnodename dagparentnodenames deferralpreptime "
    "deferraltime diskprovisioned diskusage "
    "enteredcurrentstatus exitbysignal exitcode globaljobid gpusprovisioned jobcurrentstartdate "
    "jobmaterializelimit jobprio "
    "jobstartdate jobstatus jobuniverse lastremotehost lastvacatetime maxhosts maxruntime "
    "memoryprovisioned memoryusage minhosts numjobstarts owner procid qdate remotewallclocktime "
    "requestcpus requestdisk requestgpus requestmemory requestruntime residentsetsize rtdeadline "
    "rtruntime "
    "transferinputsizemb user"
)
ATTRIBUTES = frozenset(_WANTED.split())
"""What is read of an ad."""

_INSTEAD = {
    "RequestCpus": ("CpusProvisioned",),
    "RequestMemory": ("MemoryProvisioned", "MemoryUsage"),
    "RequestGPUs": ("GPUsProvisioned",),
    "RequestDisk": ("DiskProvisioned", "DiskUsage"),
}
"""What a slot had for a job, and what the job used."""

_PREPARING = 300.0
"""Seconds of DeferralPrepTime where an ad has none (manual page condor_submit)."""
_PARALLEL = 11
_IDLE, _HELD = 1.0, 5.0
_WAITS = {_IDLE, _HELD}
_TWICE = "the log has the job twice"
_OFF_THE_POOL = {
    7.0: "it is of the scheduler universe, as DAGMan's managers are: it takes no slot of the pool",
    9.0: "it is of the grid universe: it runs in another system and takes no slot of the pool",
    12.0: "it is of the local universe: it runs at the access point and takes no slot of the pool",
}
"""Why a job of a universe is left out."""
_STATUS: dict[float, Ending] = {
    1: Ending.PENDING,
    2: Ending.RUNNING,
    3: Ending.CANCELLED,
    4: Ending.COMPLETED,
    5: Ending.PENDING,
    6: Ending.RUNNING,
    7: Ending.RUNNING,
}
_TEXTS = ("user", "account", "schedd", "nodes", "name", "dag_node", "parents")
_COLUMNS = (
    "cluster proc submit begin start end run wall_time deadline size size_min size_max given "
    "memory hosts gpus disk restarts nice ending input dag limit"
)
_NUMBERS = tuple(_COLUMNS.split())
_MEGABYTE = 2.0**20
_FLUSH = 16384
_HEAD = re.compile(rb"^(?:ClusterId|ProcId|QDate|GlobalJobId|JobStatus)[ \t]*=", re.M | re.I)
_LONG = re.compile(rb"\s*(?:\*\*\*|[A-Za-z_]\w*[ \t]*=)")
_XML_HEAD = re.compile(rb'<a n="(?:ClusterId|ProcId|QDate|GlobalJobId|JobStatus)">', re.I)
_JSON_HEAD = re.compile(rb'"(?:ClusterId|ProcId|QDate|GlobalJobId|JobStatus)"\s*:', re.I)
RUNS = re.compile(rb'^\*\*\* .*\bRunInstanceId=|\bEpochWriteDate"?[ \t]*[:=]', re.M)
"""What is in each record of a history of runs (JOB_EPOCH_HISTORY), in none of a job's."""


class CondorHistoryReader:
    """Reads history. Sizes count processors (`RequestCpus`), memory is per processor."""

    format: ClassVar[str] = "condor-history"

    def __init__(self, options: ReadOptions) -> None:
        self._details, self._resources = options.details, options.resources
        self._columns = Columns()
        self._skipped = Skipped()
        self._sources: list[str] = []
        self._coders = {name: Coder() for name in _TEXTS}
        self._ended: set[str] = set()
        self._not_ended: dict[str, tuple[int, float]] = {}  # row and start, -inf if not started
        self._replaced: list[int] = []
        self._pending: list[list[float]] = []
        self._assumed: dict[str, int] = {}

    @staticmethod
    def claims(head: bytes) -> bool:
        """Return whether attributes of a job are at the head, but not of one of its runs."""
        if RUNS.search(head):
            return False
        if is_json(head):
            return _JSON_HEAD.search(head) is not None
        if is_xml(head):
            return _XML_HEAD.search(head) is not None
        begins = _LONG.match(head) is not None
        return is_table(head) or (begins and _HEAD.search(head) is not None)

    def read(self, source: Source) -> None:
        """Take in one file."""
        self._sources.append(source.path)
        for line, ad in read_ads(source, ATTRIBUTES, self._skip):
            reason, row = self._row(ad, line)
            if reason:
                self._skip(reason, line)
                continue
            self._pending.append(row)
            if len(self._pending) == _FLUSH:
                self._flush()
        self._flush()

    def _skip(self, reason: str, line: int) -> None:
        self._skipped.add(reason, f"{self._sources[-1]}:{line}")

    def _flush(self) -> None:
        rows, self._pending = self._pending, []
        if rows:
            table = np.array(rows, np.float64).T
            names = (*_NUMBERS, *_TEXTS)
            self._columns.append(len(rows), dict(zip(names, table, strict=True)))

    def _again(self, job: str, last_run: str, start: float, *, ended: bool) -> bool:
        """Return whether a record tells no more of a job than one before.

        One that has ended tells more than one that runs or waits (condor_q), and among those the
        later start does. Jobs of several schedds may have number, owner and QDate in common:
        without a GlobalJobId two that ended are one job only if `last_run` is the same.
        """
        if ended:
            again = last_run in self._ended
            self._ended |= {job, last_run}
            return again
        known = self._not_ended.get(job)
        return job in self._ended or (known is not None and not start > known[1])

    def _replace(self, job: str, start: float, line: int, *, ended: bool) -> None:
        """Leave out the row of a job that had not ended: the one that is appended next counts."""
        if job in self._not_ended:
            self._replaced.append(self._not_ended.pop(job)[0])
            self._skip(_TWICE, line)
        if not ended:
            row = self._columns.rows + len(self._pending)
            self._not_ended[job] = (row, start if math.isfinite(start) else -math.inf)

    def _row(self, ad: Record, line: int) -> tuple[str, list[float]]:
        """Return why an ad is left out, or else its columns."""
        cluster, proc = number(ad, "clusterid"), number(ad, "procid")
        if not (0 <= cluster < 2.0**38 and 0 <= proc < 2.0**24):
            return "it has no ClusterId or ProcId", []
        submit = number(ad, "qdate")
        if not 0 <= submit < 2.0**40:
            return "its QDate is missing, or no number of seconds since 1970", []
        start, end, run, ending = _times(ad)
        name, owner = text(ad, "globaljobid"), text(ad, "owner", "user")
        job = name or f"{cluster} {proc} {owner} {submit}"
        last_run = name or f"{job} {start} {end}"
        ended = _STATUS.get(number(ad, "jobstatus")) not in {Ending.PENDING, Ending.RUNNING}
        if self._again(job, last_run, start, ended=ended):
            return _TWICE, []
        if (outside := _OFF_THE_POOL.get(number(ad, "jobuniverse"))) is not None:
            return outside, []
        size = self._cpus(ad)
        if not 0 < size <= MOST:
            return "it asks for no processors, or for impossibly many", []
        if math.isfinite(end) and number(ad, "jobstatus") in _WAITS:
            self._assume("of a job that ran and is held, or waits again, the last run counts")
        if end < start or run < 0 or start < 0:
            return "it ends before it starts", []
        self._note_left_out(ad, run)
        self._replace(job, start, line, ended=ended)
        schedd = name.partition("#")[0] if name else None
        called = text(ad, "cmd") if self._details else None
        dag = number(ad, "dagmanjobid")
        texts = (
            owner,
            accounting_group(ad),
            schedd,
            text(ad, "lastremotehost"),
            called,
            text(ad, "dagnodename") if dag >= 0 else None,
            text(ad, "dagparentnodenames") if dag >= 0 else None,
        )
        row = {
            "cluster": cluster,
            "proc": proc,
            "submit": submit,
            "begin": self._begin(ad, submit, start),
            "start": start,
            "end": end,
            "run": run,
            "wall_time": _wall_time(ad),
            "deadline": self._deadline(ad, submit),
            "given": math.isfinite(start) * size,
            "restarts": max(0.0, min(number(ad, "numjobstarts"), 1e9) - 1),
            "nice": -number(ad, "jobprio"),
            "ending": ending,
            "input": number(ad, "transferinputsizemb") * _MEGABYTE if self._details else math.nan,
            "dag": dag,
            "limit": max(0.0, min(number(ad, "jobmaterializelimit"), float(MOST))),
            **self._sizes(ad, size),
        }
        codes = [self._coders[key].code(value) for key, value in zip(_TEXTS, texts, strict=True)]
        return "", [*(row[key] for key in _NUMBERS), *codes]

    def _note_left_out(self, ad: Record, run: float) -> None:
        """Count what a record says of its job that a replay leaves out."""
        if run > 0 and number(ad, "numjobstarts") > 1:
            self._assume("of a job that started more than once what it lost is not replayed")
        if run > 0 and number(ad, "cumulativesuspensiontime") > 0:
            self._assume(SUSPENDED)
        if text(ad, "concurrencylimits"):
            self._assume(
                "ConcurrencyLimits are not replayed, as no log tells how many the pool has"
            )

    def _begin(self, ad: Record, submit: float, start: float) -> float:
        """Return when a job that waits for its DeferralTime may take its slot, else -inf."""
        least = number(ad, "deferralpreptime")
        begin = number(ad, "deferraltime") - (least if least >= 0 else _PREPARING)
        begin = min(begin, start) if math.isfinite(start) else begin
        if not begin > submit:
            return -math.inf
        self._assume("a job with a DeferralTime takes its slot DeferralPrepTime before it")
        return begin

    def _cpus(self, ad: Record) -> float:
        """Return the processors of one host that a job asks for."""
        asked, given = self._asked(ad, "RequestCpus"), number(ad, "cpusprovisioned")
        if given > asked:
            self._assume(
                "a job that was given more processors than it asked for occupies what it was given"
            )
            return given
        if math.isfinite(asked):
            return asked
        unclear = isinstance(ad.get("requestcpus"), Expression)
        why = (
            "RequestCpus is an expression" if unclear else "the processors asked for are not known"
        )
        self._assume(f"{why}: 1 is assumed")
        return 1.0

    def _asked(self, ad: Record, name: str) -> float:
        """Return what a job asks for, or what is known in place of an expression; nan: nothing."""
        asked = number(ad, name.lower())
        if math.isfinite(asked):
            return asked
        unclear = isinstance(ad.get(name.lower()), Expression)
        instead = _INSTEAD[name] if unclear else _INSTEAD[name][:1]
        taken = next((each for each in instead if number(ad, each.lower()) > 0), "")
        if unclear and taken:
            used = ", the most that the job used; it may have asked for more"
            used = used if taken != instead[0] else ""
            self._assume(f"{name} is an expression: {taken} is taken{used}")
        elif unclear and name != "RequestCpus":
            self._assume(f"{name} is an expression that does not tell how much: none is assumed")
        return math.floor(number(ad, taken.lower())) if taken else math.nan

    def _sizes(self, ad: Record, cpus: float) -> dict[str, float]:
        """Return size, its range, the memory per processor, and GPUs and disk of each host.

        Only jobs of the parallel universe use several hosts; they are moldable between MinHosts and
        MaxHosts. Disk is in whole MiB, as a startd gives it.
        """
        least, most = 1.0, 1.0
        if number(ad, "jobuniverse") == _PARALLEL:
            most = max(1.0, min(number(ad, "maxhosts", "minhosts"), float(MOST)))
            least = max(1.0, min(number(ad, "minhosts", "maxhosts"), most))
        range_ = (least * cpus, most * cpus) if least < most else (-1.0, -1.0)
        if isinstance(ad.get("requestmemory"), Expression):
            ad.setdefault("memoryusage", Expression("(ResidentSetSize + 1023) / 1024"))
        asked = self._asked(ad, "RequestMemory")
        gpus, disk = (
            self._asked(ad, name) if self._resources else math.nan
            for name in ("RequestGPUs", "RequestDisk")
        )
        return {
            "size": min(most * cpus, float(MOST)),
            "size_min": range_[0],
            "size_max": range_[1],
            "memory": math.ceil(asked * _MEGABYTE / cpus) if 0 < asked < 2.0**40 else -1.0,
            "hosts": most,
            "gpus": max(0.0, min(gpus, float(MOST))),
            "disk": math.ceil(min(disk, 2.0**41) / 1024.0) * _MEGABYTE if disk > 0 else 0.0,
        }

    def _deadline(self, ad: Record, submit: float) -> float:
        """Return the deadline that the custom attribute RtDeadline sets."""
        if ad.get("rtdeadline") is None:
            return math.inf
        value = number(ad, "rtdeadline")
        if value > submit:
            return value
        self._assume("an RtDeadline that is no time after the QDate is left out")
        return math.inf

    def _assume(self, sentence: str) -> None:
        self._assumed[sentence] = self._assumed.get(sentence, 0) + 1

    def log(self) -> Log:
        """Return everything taken in."""
        assumptions = [of_jobs(sentence, n) for sentence, n in self._assumed.items()]
        edges = Edges.build(0)
        if self._columns.rows == 0:
            jobs, outcomes = Jobs.build(0), Outcomes.build(0)
        else:
            jobs, outcomes, edges = self._tables()
            followers = len(np.unique(edges.after))
            if followers:
                assumptions.append(of_jobs("a job of a DAG waits for its parents", followers))
            if np.isinf(jobs.wall_time).all():
                assumptions.append("the log has no requested times")
        return Log(
            jobs,
            outcomes,
            tuple(self._sources),
            self.format,
            edges=edges,
            assumptions=tuple(assumptions),
            skipped=self._skipped,
        )

    def _tables(self) -> tuple[Jobs, Outcomes, Edges]:
        keep = np.ones(self._columns.rows, np.bool_)
        keep[self._replaced] = False

        def take(name: str) -> NDArray[np.float64]:
            values = self._columns.take(name)
            return values[keep] if self._replaced else values

        cluster, proc = take("cluster").astype(np.int64), take("proc").astype(np.int64)
        schedd = take("schedd").astype(np.int32)
        key = (cluster << 24) + proc
        ranks = unique_ids(key)
        labels = [f"{c}.{p}" for c, p in zip(cluster.tolist(), proc.tolist(), strict=True)]
        if ranks is not None:  # several schedds: their job numbers are the same
            names = (*self._coders["schedd"].names(), "")
            labels = [
                f"{names[code]}#{label}"
                for code, label in zip(schedd.tolist(), labels, strict=True)
            ]
        size, size_min, size_max = (whole(take(name)) for name in ("size", "size_min", "size_max"))
        moldable = size_min > 0
        memory, hosts = take("memory"), take("hosts")
        demand = resources = None
        if self._resources:
            resources = (CPU, MEMORY, GPU, DISK)
            each = (size // hosts).astype(np.int64)
            gpus, disk = np.nan_to_num(take("gpus")), take("disk")
            asked = [each, whole_kib(np.maximum(memory, 0).astype(np.int64) * each), gpus, disk]
            demand = np.column_stack(asked).astype(np.int64)
        nice = np.nan_to_num(take("nice"), nan=0.0)
        codes = {name: take(name).astype(np.int32) for name in ("user", "account", "nodes", "name")}
        n = len(key)
        ids = key if ranks is None else ranks
        nodes = {name: take(name).astype(np.int32) for name in ("dag_node", "parents")}
        dag = np.nan_to_num(take("dag"), nan=-1.0).astype(np.int64)
        texts = {name: self._coders[name].names() for name in nodes}
        array, edges = dag_edges(ids, np.column_stack([schedd, dag]), nodes, texts)
        array = np.where(array >= 0, array, _clusters(ids, schedd, cluster))
        jobs = Jobs.build(
            n,
            id=ids,
            label=labels,
            submit=take("submit"),
            begin=unless_constant(take("begin"), -np.inf),
            wall_time=unless_constant(take("wall_time"), np.inf),
            deadline=unless_constant(take("deadline"), np.inf),
            kind=unless_constant(np.where(moldable, Kind.MOLDABLE, Kind.RIGID), Kind.RIGID),
            size=size,
            size_min=unless_constant(np.where(moldable, size_min, np.int32(-1)), -1),
            size_max=unless_constant(np.where(moldable, size_max, np.int32(-1)), -1),
            cores=size,
            memory=unless_constant(np.where(memory > 0, memory, -1).astype(np.int64), -1),
            nice=unless_constant(nice, 0.0),
            node_count=whole(hosts),
            demand=demand,
            array=unless_constant(array, -1),
            array_limit=unless_constant(np.where(array >= 0, whole(take("limit")), 0), 0),
            names={
                "demand": resources or (),
                **{name: self._coders[name].names() for name in ("user", "account", "name")},
            },
            name=unless_constant(codes["name"], -1),
            user=codes["user"],
            account=codes["account"],
        )
        outcomes = Outcomes.build(
            n,
            start=take("start"),
            end=take("end"),
            run_time=take("run"),
            size=whole(take("given")),
            ending=take("ending").astype(np.int8),
            restarts=unless_constant(whole(take("restarts")), 0),
            input_bytes=unless_constant(take("input"), np.nan),
            names={"nodes": self._coders["nodes"].names()},
            nodes=codes["nodes"],
        )
        return jobs, outcomes, edges


def _clusters(
    ids: NDArray[np.int64], schedd: NDArray[np.int32], cluster: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the key of each proc's cluster, the id of its first proc; -1: it is alone in there."""
    both = (schedd.astype(np.int64) << 38) + cluster
    _, first, of, count = np.unique(
        both, return_index=True, return_inverse=True, return_counts=True
    )
    return np.where(count[of] > 1, ids[first[of]], -1)


def accounting_group(ad: Record) -> str | None:
    """Return the accounting group, without the user's name at its end."""
    group = text(ad, "acctgroup")
    if group is not None:
        return group
    group = text(ad, "accountinggroup")
    return group.rpartition(".")[0] or group if group else None


def _wall_time(ad: Record) -> float:
    """Return the longest run time that a job asks for, inf if it sets none."""
    limit = number(
        ad,
        *("rtruntime", "allowedexecuteduration", "allowedjobduration", "maxruntime"),
        "requestruntime",
    )
    return limit if limit > 0 else math.inf


def _times(ad: Record) -> tuple[float, float, float, Ending]:
    """Return start, end and run time of the last run, and how the job ended."""
    ending = _STATUS.get(number(ad, "jobstatus"), Ending.UNKNOWN)
    if ending is Ending.COMPLETED and (
        ad.get("exitbysignal") is True or number(ad, "exitcode") > 0
    ):
        ending = Ending.FAILED
    start = number(ad, "jobcurrentstartdate", "jobstartdate")
    if ending is Ending.PENDING and start > 0:
        return _last_run(ad, start)
    done = ending not in {Ending.PENDING, Ending.RUNNING}
    end = number(ad, "completiondate")
    if not end > 0:
        end = number(ad, "enteredcurrentstatus")
    end = end if done else math.nan
    if math.isnan(start):
        return start, end, 0.0 if done else math.nan, ending
    run = number(ad, "committedtime") - max(0.0, number(ad, "committedsuspensiontime"))
    if not run > 0 and not number(ad, "numjobstarts") > 1:
        pause = max(0.0, number(ad, "cumulativesuspensiontime"))
        run = number(ad, "remotewallclocktime") - pause
    return start, end, run if run > 0 else end - start, ending


def _last_run(ad: Record, start: float) -> tuple[float, float, float, Ending]:
    """Return the same of a job that ran, and now is held or waits to run again."""
    held = number(ad, "jobstatus") == _HELD
    run = number(ad, "remotewallclocktime") - max(0.0, number(ad, "cumulativesuspensiontime"))
    if number(ad, "numjobstarts") > 1:
        end = number(ad, "lastvacatetime", *(("enteredcurrentstatus",) if held else ()))
        run = end - start
    if not run > 0:
        return math.nan, math.nan, math.nan, Ending.PENDING
    return start, start + run, run, Ending.CANCELLED if held else Ending.PREEMPTED
