"""Dependencies between a Slurm log's jobs, from `--dependency` in their submit lines.

Source: manual page sbatch. Slurm holds nobody back for a job that it does not know any more, so a
job that is not in the log counts as ended.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.text import ARRAY
from rtsched.model.jobs import Edges
from rtsched.model.snapshot import places
from rtsched.model.table import Ragged, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

_CONDITION = re.compile(r"(?:(after(?:any|ok|notok|corr|burstbuffer)?):)?(\d[\d_*+:]*)", re.ASCII)
_JOB = re.compile(r"(\d{1,10})(?:_(\d{1,9}|\*))?(\+\d{1,9})?", re.ASCII)
_ANY_TASK = -1
_MOST_TASKS = 1 << 24

ALTERNATIVES = "of a dependency with alternatives (`?`) none is replayed"
DELAY = "a dependency with a delay after the start is replayed without the delay"
UNREADABLE = "a dependency that cannot be read is left out"
UNKNOWN = "a dependency on a job that is not in the log is taken as fulfilled"
NAMELESS = (
    "--dependency=singleton of an array, or without a --job-name in the submit line, is left out"
)
ONE_BY_ONE = "--dependency=singleton: such jobs of one name and user run one at a time"
FOLLOWED = "a job waits for those that its --dependency names"
LIMITED = "a task of an array waits while as many of it run as its `%` says"


class Reference(NamedTuple):
    """One job, or all tasks of one array, that another waits for."""

    base: int
    """The number that users see."""
    task: int
    """Task of an array, -1: all."""
    at_start: bool
    """Whether its start is enough."""
    same_task: bool
    """Whether task i waits for task i only (`aftercorr`)."""


class Dependency(NamedTuple):
    """What one text after `--dependency` says."""

    references: tuple[Reference, ...] = ()
    singleton: bool = False
    remarks: tuple[str, ...] = ()


@lru_cache(maxsize=8192)
def parsed(text: str) -> Dependency:
    """Return what `afterok:12:13_4,afterany:15`, `singleton` or `12` says."""
    if "?" in text:
        return Dependency(remarks=(ALTERNATIVES,))
    found: list[Reference] = []
    remarks: dict[str, None] = {}
    singleton = False
    for condition in text.split(","):
        match = _CONDITION.fullmatch(condition)
        if condition == "singleton":
            singleton = True
        elif match is None:
            remarks[UNREADABLE] = None
        else:
            for word in match[2].split(":"):
                job = _JOB.fullmatch(word)
                if job is None:
                    remarks[UNREADABLE] = None
                    continue
                if job[3]:
                    remarks[DELAY] = None
                task = _ANY_TASK if job[2] in {None, "*"} else int(job[2])
                kind = match[1]
                found.append(Reference(int(job[1]), task, kind == "after", kind == "aftercorr"))
    return Dependency(tuple(found), singleton, tuple(remarks))


class Waiting(NamedTuple):
    """Who waits for whom in a log of `n` jobs."""

    edges: Edges
    array: Rows
    """int64[n]: the key of each task's array, the id of the first one in the log; -1: none."""
    array_limit: NDArray[np.int32]
    """int32[n]: how many of them may run at a time; 0: all."""
    replayed: NDArray[np.bool_]
    """bool[n]: whether all that a job waited for is in here."""


def waiting(
    ids: Rows,
    shown: Mapping[str, NDArray[Any]],
    texts: Sequence[str],
    assume: Callable[[str, int], None],
) -> Waiting:
    """Return the dependencies between the jobs of a log, and the limits of arrays.

    Jobs with `--dependency=singleton` are as the tasks of an array that run one at a time: those of
    one name and user.

    Parameters
    ----------
    ids : int64[n]
        Keys of the jobs.
    shown : mapping of str to array[n]
        `raw`, `base`, `part`, `meaning`, `cluster`, `user`, `dependency`, `job_name` and
        `array_limit`, as in `rtsched.logs.sacct_rows.COLUMNS`.
    texts : sequence of str
        What stands behind `--dependency`, by its code.
    assume : callable
        Called with a sentence and for how many jobs it holds.
    """
    array = grouped(ids, shown, ARRAY)
    limit = np.zeros(len(ids), np.int32)
    tasks = np.flatnonzero(array >= 0)
    if shown["array_limit"].any():
        _, of = np.unique(array[tasks], return_inverse=True)
        most = np.zeros(len(tasks), np.int32)
        np.maximum.at(most, of, shown["array_limit"][tasks])
        limit[tasks] = most[of]
    edges, replayed = Edges.build(0), limit > 0
    assume(LIMITED, int(replayed.sum()))
    code = shown["dependency"]
    if not (code >= 0).any():
        return Waiting(edges, array, limit, replayed)
    dependencies = [parsed(text) for text in texts]
    times = np.bincount(code[code >= 0], minlength=len(texts)).tolist()
    for each, n in zip(dependencies, times, strict=True):
        for remark in each.remarks:
            assume(remark, n)
    edges, missing = _edges(ids, {**shown, "array": array}, dependencies)
    assume(UNKNOWN, len(missing))
    assume(FOLLOWED, len(np.unique(edges.after)))
    alone = np.append([each.singleton for each in dependencies], False)[code]
    named = alone & (shown["job_name"] >= 0) & (array < 0)
    assume(NAMELESS, int((alone & ~named).sum()))
    rows = np.flatnonzero(named)
    names = np.column_stack([shown[name][rows] for name in ("user", "cluster", "job_name")])
    _, first, of = np.unique(names, axis=0, return_index=True, return_inverse=True)
    array[rows], limit[rows] = ids[rows[first]][of.ravel()], 1
    assume(ONE_BY_ONE, len(rows))
    simple = np.append([not each.remarks for each in dependencies], True)[code]
    simple[missing] = False
    simple &= named | ~alone
    return Waiting(edges, array, limit, simple & (replayed | (code >= 0)))


def grouped(ids: Rows, shown: Mapping[str, NDArray[Any]], meaning: int) -> Rows:
    """Return the key of the array or heterogeneous job that each job is a part of, int64[n].

    It is the id of its first part in the log; -1: none.

    Parameters
    ----------
    ids, shown
        As in `waiting`.
    meaning : int
        `ARRAY` or `HET`.
    """
    key = np.full(len(ids), -1, np.int64)
    parts = np.flatnonzero(shown["meaning"] == meaning)
    if len(parts):
        both = np.column_stack([shown["base"][parts], shown["cluster"][parts]]).astype(np.int64)
        _, first, of = np.unique(both, axis=0, return_index=True, return_inverse=True)
        key[parts] = ids[parts[first]][of.ravel()]
    return key


def _edges(
    ids: Rows, shown: Mapping[str, NDArray[Any]], dependencies: Sequence[Dependency]
) -> tuple[Edges, Rows]:
    """Return the edges, and the rows of the jobs that wait for one that is not in the log."""
    code = shown["dependency"]
    references = [reference for each in dependencies for reference in each.references]
    counts = np.array([len(each.references) for each in dependencies], np.int64)
    waits = np.flatnonzero(code >= 0)
    _, within = Ragged.counted(counts[code[waits]])
    after = np.repeat(waits, counts[code[waits]])
    first = np.cumsum(counts) - counts
    asked = np.array(references, np.int64).reshape(-1, 4)[first[code[after]] + within]
    edges, missing = _resolved(after, asked, ids, shown)
    return edges, np.unique(after[missing])


def _resolved(
    after: Rows, asked: Rows, ids: Rows, shown: Mapping[str, NDArray[Any]]
) -> tuple[Edges, NDArray[np.bool_]]:
    """Return the edges to the jobs in rows `after`, and which of what they ask is not there."""
    base, task, at_start, same_task = asked.T
    meaning, part = shown["meaning"], shown["part"]
    task = np.where((same_task > 0) & (meaning[after] == ARRAY), part[after], task)
    clusters = int(shown["cluster"].max(initial=-1)) + 2

    def key(numbers: Rows, rows: Rows | slice) -> Rows:
        return np.asarray(numbers * clusters + shown["cluster"][rows] + 1, np.int64)

    groups, group = np.unique(key(shown["base"], slice(None)), return_inverse=True)
    wanted, found = places(groups, key(base, after))
    tasks = np.flatnonzero(meaning == ARRAY)
    is_array = np.zeros(len(groups), np.bool_)
    is_array[group[tasks]] = True
    in_array = found & is_array[wanted]
    # All tasks of an array are one edge; one task, or a job with its components, one each.
    whole = np.flatnonzero(in_array & (task == _ANY_TASK))
    array_key = np.zeros(len(groups), np.int64)
    array_key[group[tasks]] = shown["array"][tasks]
    single = np.flatnonzero(in_array & (task != _ANY_TASK))
    exact = group[tasks] * _MOST_TASKS + part[tasks]
    place, is_task = places(exact, wanted[single] * _MOST_TASKS + task[single])
    single, one = single[is_task], tasks[place[is_task]]
    plain = np.flatnonzero(found & ~in_array)
    members = Ragged(offsets_of(np.bincount(group, minlength=len(groups))), np.argsort(group))
    parts = members.take(wanted[plain])
    plain = plain[parts.rows()]
    raw = np.flatnonzero(~found)
    own_key = key(shown["raw"], slice(None))
    own, is_raw = places(own_key, key(base[raw], after[raw]))
    raw, own = raw[is_raw], own[is_raw]

    which = np.concatenate([whole, single, plain, raw])
    before = np.concatenate([array_key[wanted[whole]], ids[one], ids[parts.values], ids[own]])
    is_whole = np.arange(len(which)) < len(whole)
    table = np.column_stack([before, ids[after[which]], at_start[which], is_whole])
    table = np.unique(table[is_whole | (before != ids[after[which]])], axis=0)
    edges = Edges.build(
        len(table),
        before=table[:, 0],
        after=table[:, 1],
        at_start=table[:, 2] > 0,
        whole_array=table[:, 3] > 0,
    )
    return edges, ~np.isin(np.arange(len(after)), which)
