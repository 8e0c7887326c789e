"""Records of Slurm's accounting, gathered from text or JSON and folded into one row per job.

A requeued job has one record per run (`sacct -D`): its last run counts, submitted when the first
was. A job that was resized has one record per size: they are one run, of the size it began with.
The same run in several files counts once. Numbers begin again where a site's slurmctld lost its
state: a job submitted long after another of its number had ended is another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.text import ARRAY, HET, PENDING_ARRAY, SINGLE
from rtsched.logs.gather import (
    MOST,
    SUSPENDED,
    Columns,
    of_jobs,
    unique_ids,
    unless_constant,
    whole,
)
from rtsched.logs.slurm_dependencies import grouped, waiting
from rtsched.logs.slurm_text import generic_amounts, licenses_in, trackable
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Ending, Log, Outcomes, Skipped
from rtsched.model.resources import CPU, GRES, LICENSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.slurm_text import SubmitLine

    Row = Mapping[str, NDArray[Any]]

TEXTS = ("user", "account", "partition", "qos", "nodes", "cluster", "name", "reservation")
"""Columns of codes."""

COLUMNS: dict[str, tuple[Any, Any]] = {
    "raw": (np.int64, -1),  # the id that is a job's own, -1 if the log has it not
    "base": (np.int64, -1),  # the id that users see ...
    "part": (np.int64, 0),  # ... its task or component ...
    "meaning": (np.int8, SINGLE),  # ... and which of them that is
    "submit": (np.float64, np.nan),
    "eligible": (np.float64, np.nan),
    "start": (np.float64, np.nan),
    "end": (np.float64, np.nan),
    "elapsed": (np.float64, np.nan),
    "limit": (np.float64, np.inf),
    "deadline": (np.float64, np.inf),
    "asked": (np.float64, np.nan),  # processors
    "given": (np.float64, np.nan),
    "memory": (np.int64, -1),  # bytes per processor
    "width": (np.float64, np.nan),  # nodes
    "tres": (np.int32, -1),  # code of the resources asked for, of all nodes together
    "tres_given": (np.int32, -1),  # the same, of those that it was given
    "gres": (np.int32, -1),  # code of generic resources that the submit line or a column tells
    "more": (np.bool_, False),  # whether it was given more processors than it asked for
    "exclusive": (np.bool_, False),
    "dependency": (np.int32, -1),  # code of what the submit line says
    "node_options": (np.int32, -1),  # the same, of the nodes asked for
    "licenses": (np.int32, -1),  # the same, of licences
    "constraint": (np.int32, -1),
    "job_name": (np.int32, -1),  # the same, where somebody depends on such a name
    "begin": (np.float64, np.nan),
    "array_limit": (np.int32, 0),
    "size_min": (np.int32, -1),
    "size_max": (np.int32, -1),
    "restarts": (np.int32, 0),
    "ending": (np.int8, Ending.UNKNOWN),
    "line": (np.int64, 0),
    **dict.fromkeys(TEXTS, (np.int32, -1)),
}
"""Columns of a record: dtype, and the value that says nothing."""

_IDS, _PARTS = 1 << 36, 1 << 24  # more would not fit a key
OTHER_CLUSTER = "it is of another cluster"
NO_CLUSTER = "nothing tells its cluster"
_REQUEUED = 7 * 86400.0
"""Seconds after its end at which no job is requeued any more: slurmctld has forgotten it, and a
job that is submitted with its number is another."""
AGAIN = "the log has the same run of the job twice"


class _Fold(NamedTuple):
    """Jobs that have several rows, one entry each: rows, and what they come to."""

    last: NDArray[np.int64]
    """The last row of its last run."""
    first: NDArray[np.int64]
    """That with the first submit."""
    begin: NDArray[np.int64]
    """That in which the last run begins; not the last row where the job was resized."""
    elapsed: NDArray[np.float64]
    """Seconds of the last run, of all its rows."""
    restarts: NDArray[np.int32]


class SlurmRows:
    """Gathers records, then makes the log of them."""

    def __init__(self, clusters: str | None = None) -> None:
        """Keep the jobs of these clusters, a list with commas; None: of all."""
        self.clock = 1.0
        """Seconds in which the log's times count."""
        self._wanted = None if clusters is None else [each.strip() for each in clusters.split(",")]
        self.skipped = Skipped()
        self.remarks: list[str] = []
        self._assumed: dict[str, int] = {}
        self._columns = Columns()
        self._sources: list[str] = []

    def open(self, path: str) -> None:
        """Say that the following records are of this file."""
        self._sources.append(path)

    def where(self, line: int) -> str:
        """Return the place of a line of the present file."""
        return f"{self._sources[-1]}:{line}"

    def assume(self, sentence: str, times: int = 1) -> None:
        """Count an assumption that was made for some jobs."""
        if times > 0:
            self._assumed[sentence] = self._assumed.get(sentence, 0) + times

    def assume_of(self, asked: SubmitLine) -> None:
        """Count what is not replayed of a submit line."""
        if asked.owner_only:
            self.assume("--exclusive=user and mcs are not replayed: others may share the nodes")

    def append(self, n: int, given: Row, clusters: Sequence[str] = ()) -> None:
        """Append `n` records; columns that are not given say nothing.

        `clusters` are the names behind the codes of clusters.
        """
        row = {
            name: _fitted(given[name], dtype, missing)
            if name in given
            else np.full(n, missing, dtype)
            for name, (dtype, missing) in COLUMNS.items()
        }
        _finish(row)
        keep = self._possible(row, n)
        if self._wanted is not None:
            known = [code for code, name in enumerate(clusters) if name in self._wanted]
            others = keep & ~np.isin(row["cluster"], known)
            if others.any():
                place = self.where(int(row["line"][np.argmax(others)]))
                reason = OTHER_CLUSTER if any(clusters) else NO_CLUSTER
                self.skipped.add(reason, place, int(others.sum()))
            keep &= ~others
        row["file"] = np.full(n, len(self._sources) - 1, np.int32)
        if not keep.all():
            row = {name: values[keep] for name, values in row.items()}
        self._columns.append(int(keep.sum()), row)

    def _possible(self, row: Row, n: int) -> NDArray[np.bool_]:
        """Count the records that cannot be, and return the others."""
        bad = {
            "it has no job id": (
                ((row["raw"] < 0) & (row["base"] < 0))
                | (row["raw"] >= _IDS)
                | (row["base"] >= _IDS)
                | (row["part"] >= _PARTS)
            ),
            "its submit time is missing": np.isnan(row["submit"]),
            "a time is negative": (row["submit"] < 0) | (row["start"] < 0) | (row["end"] < 0),
            "it ends before it starts": row["end"] < row["start"],
            "it asks for no processors": ~(row["asked"] > 0),
            "it asks for impossibly many processors": row["asked"] > MOST,
        }
        keep = np.ones(n, np.bool_)
        for reason, rows in bad.items():
            wrong = np.flatnonzero(keep & rows)
            if len(wrong):
                self.skipped.add(reason, self.where(int(row["line"][wrong[0]])), len(wrong))
                keep[wrong] = False
        return keep

    def log(self, format_name: str, names: Mapping[str, tuple[str, ...]]) -> Log:
        """Return the log of all records; `names` are the texts behind the codes."""
        edges = Edges.build(0)
        if self._columns.rows == 0:
            jobs, outcomes = Jobs.build(0), Outcomes.build(0)
        else:
            jobs, outcomes, edges = self._tables(names)
        notes = tuple(of_jobs(text, n) for text, n in self._assumed.items())
        return Log(
            jobs,
            outcomes,
            tuple(self._sources),
            format_name,
            edges=edges,
            assumptions=(*self.remarks, *notes),
            skipped=self.skipped,
        )

    def _tables(self, names: Mapping[str, tuple[str, ...]]) -> tuple[Jobs, Outcomes, Edges]:
        look = self._columns.look
        key = _key(look("raw"), look("base"), look("part"), look("meaning"))
        fold = self._fold(key)
        rows: NDArray[np.int64] | None = None
        changed: dict[str, NDArray[Any]] = {}
        if fold is not None:
            rows, first = fold.last, fold.first
            key = key[rows]
            changed = {
                "submit": look("submit")[first],
                "eligible": look("eligible")[first],
                "deadline": np.minimum(look("deadline")[first], look("deadline")[rows]),
                "restarts": np.maximum(look("restarts")[rows], fold.restarts),
                **self._resized(fold),
            }

        def take(name: str) -> NDArray[Any]:
            values = self._columns.take(name)
            if name in changed:
                return changed[name]
            return values if rows is None else values[rows]

        ranks = unique_ids(key)
        part, base, meaning = take("part"), take("base"), take("meaning")
        label = _labels(base, part, meaning, everyone=ranks is not None)
        submit, start = take("submit"), take("start")
        early = int((start < submit).sum())
        self.assume("a start before the submit time is kept as the log has it", early)
        size, size_min, size_max = take("asked"), take("size_min"), take("size_max")
        size_min, size_max = _ranges(size, size_min, size_max)
        n = len(key)
        width = take("width")
        asked, given, generic = (
            (take(name), names[name]) for name in ("tres", "tres_given", "gres")
        )
        more = take("more")
        demand, resources = _demands(asked, given, generic, width, np.where(more, size, 0.0))
        demand, resources = _with_licenses(demand, resources, take("licenses"), names["licenses"])
        self.assume(
            "a job that was given more processors than it asked for occupies what it was given",
            int(more.sum()),
        )
        texts = {name: take(name) for name in TEXTS}
        self._several(texts["cluster"], names["cluster"])
        ids = key if ranks is None else ranks
        shown = {"raw": take("raw"), "base": base, "part": part, "meaning": meaning}
        shown |= {name: texts[name] for name in ("cluster", "user")}
        shown |= {name: take(name) for name in ("dependency", "job_name", "array_limit")}
        waits = waiting(ids, shown, names["dependency"], self.assume)
        request, requests = _node_requests(
            take("constraint"), names["constraint"], take("node_options"), names["node_options"]
        )
        jobs = Jobs.build(
            n,
            id=ids,
            label=label[0],
            submit=submit,
            begin=self._begin(take("eligible"), submit, start, waits.replayed, take("begin")),
            wall_time=unless_constant(take("limit"), np.inf),
            deadline=unless_constant(take("deadline"), np.inf),
            kind=unless_constant(np.where(size_min > 0, Kind.MOLDABLE, Kind.RIGID), Kind.RIGID),
            size=whole(size),
            size_min=unless_constant(size_min, -1),
            size_max=unless_constant(size_max, -1),
            cores=whole(size),
            memory=unless_constant(take("memory"), -1),
            node_count=unless_constant(whole(np.where(width > 0, width, -1.0)), -1),
            demand=demand,
            exclusive=unless_constant(take("exclusive"), False),
            array=unless_constant(waits.array, -1),
            array_limit=unless_constant(waits.array_limit, 0),
            het_job=unless_constant(grouped(ids, shown, HET), -1),
            names={
                "demand": resources,
                "node_request": requests,
                "label": label[1],
                "name": names["name"],
                **{name: names[name] for name in TEXTS[:4]},
            },
            node_request=unless_constant(request, -1),
            name=unless_constant(texts["name"], -1),
            **{name: unless_constant(texts[name], -1) for name in TEXTS[:4]},
        )
        ending, end, elapsed = take("ending"), take("end"), take("elapsed")
        self.assume(SUSPENDED, int(((elapsed > 0) & (end - start > elapsed + self.clock)).sum()))
        outcomes = Outcomes.build(
            n,
            start=start,
            end=end,
            run_time=elapsed,
            size=whole(take("given")),
            ending=np.where(ending == Ending.RESIZED, Ending.RUNNING, ending),
            restarts=unless_constant(take("restarts"), 0),
            nodes=unless_constant(texts["nodes"], -1),
            reservation=unless_constant(texts["reservation"], -1),
            names={name: names[name] for name in ("nodes", "reservation")},
        )
        return jobs, outcomes, waits.edges

    def _several(self, code: NDArray[np.int32], names: tuple[str, ...]) -> None:
        """Say so if the jobs are of several clusters."""
        count = np.bincount(code[code >= 0], minlength=len(names))
        known = [f"{name} {n:,}" for name, n in zip(names, count.tolist(), strict=True) if n]
        if len(known) > 1:
            self.remarks.append(
                f"the log has jobs of {len(known)} clusters ({', '.join(known[:8])}), taken as one "
                "machine; choose one of them with `--clusters NAME`"
            )

    def _begin(
        self,
        eligible: NDArray[np.float64],
        submit: NDArray[np.float64],
        start: NDArray[np.float64],
        replayed: NDArray[np.bool_],
        begin: NDArray[np.float64],
    ) -> NDArray[np.float64] | None:
        """Return the earliest start: when a job became eligible, if that is after its submit.

        Where it is `replayed` what made the job wait, or not known, its own begin time counts.
        """
        eligible = np.where(replayed | np.isnan(eligible), begin, eligible)
        late = (eligible > submit) & ~(eligible > start)
        if not late.any():
            return None
        self.assume(
            "a job that became eligible after its submit time (begin time, dependency, limit) must "
            "not start earlier",
            int(late.sum()),
        )
        return np.where(late, eligible, -np.inf)

    def _fold(self, key: NDArray[np.int64]) -> _Fold | None:
        """Return which rows are of one job; None: every row is a job."""
        if (key[1:] > key[:-1]).all():
            return None
        look = self._columns.look
        owner = look("user").astype(np.int64) * (int(look("cluster").max()) + 2) + look("cluster")
        submit = look("submit")
        start = np.where(np.isnan(look("start")), -np.inf, look("start"))
        ending = look("ending")
        done = ~np.isin(ending, (Ending.PENDING, Ending.RUNNING))
        order = np.lexsort((np.arange(len(key)), done, start, submit, owner, key))
        same = (key[order[1:]] == key[order[:-1]]) & (owner[order[1:]] == owner[order[:-1]])
        same &= ~(submit[order[1:]] > look("end")[order[:-1]] + _REQUEUED)
        if not same.any():
            return None
        before, after = order[:-1], order[1:]
        again = same & (submit[before] == submit[after])
        again &= (start[before] == start[after]) | (~done[before] & np.isinf(start[before]))
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        began = (ending[order] != Ending.PENDING) & (start[order] > -np.inf)
        ran = np.where(began, np.arange(len(order)), -1)
        last = np.maximum.reduceat(ran, first)  # not a wait for a next run that never came
        last = np.where(last >= 0, last, np.concatenate([first[1:], [len(order)]]) - 1)
        goes_on = same & (ending[before] == Ending.RESIZED)
        new = np.concatenate([[True], ~(goes_on | again)])
        begin = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))[last]
        restart = np.concatenate([[False], same & ~again & ~goes_on])
        restart &= began
        runs = np.add.reduceat(restart.astype(np.int32), first)
        twice = order[1:][again]
        if len(twice):
            row = int(twice.min())
            place = f"{self._sources[look('file')[row]]}:{look('line')[row]}"
            self.skipped.add(AGAIN, place, len(twice))
        self.assume("of a requeued job the last run counts", int((runs > 0).sum()))
        back = np.argsort(order[last])
        parts = np.where(np.concatenate([[False], again]), 0, look("elapsed")[order])
        elapsed = np.cumsum(np.nan_to_num(parts))
        took = elapsed[last] - elapsed[begin] + look("elapsed")[order[begin]]
        return _Fold(
            order[last][back],
            order[first][back],
            order[begin][back],
            took[back],
            runs[back].astype(np.int32),
        )

    def _resized(self, fold: _Fold) -> dict[str, NDArray[Any]]:
        """Return the columns of jobs that changed their size while they ran, as one run each."""
        look, rows = self._columns.look, fold.last
        resized = (fold.begin != rows) & (look("ending")[fold.begin] == Ending.RESIZED)
        if not resized.any():
            return {}
        self.assume("a job that was resized keeps the size with which it began", int(resized.sum()))
        first = np.where(resized, fold.begin, rows)
        names = (
            "start",
            "asked",
            "given",
            "more",
            "memory",
            "width",
            "tres",
            "tres_given",
            "nodes",
        )
        changed = {name: look(name)[first] for name in names}
        changed["elapsed"] = np.where(resized, fold.elapsed, look("elapsed")[rows])
        return changed


_Coded = tuple["NDArray[np.int32]", tuple[str, ...]]


def _demands(
    asked: _Coded,
    given: _Coded,
    generic: _Coded,
    width: NDArray[np.float64],
    held: NDArray[np.float64],
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return what jobs take on each of their nodes, rounded up, and the resources' names.

    Parameters
    ----------
    asked, given : (int32[n], tuple of str)
        Codes and texts of the resources asked for, and of those that a job was given.
    generic : (int32[n], tuple of str)
        The same of generic resources by other sources, which count where those name none, and their
        types where those name no type.
    width : float64[n]
        Nodes.
    held : float64[n]
        Processors of jobs that were given more than they asked for; 0: others.

    Returns
    -------
    demand : int64[n, r] or None
        Licences are for all nodes together. None: the log does not say.
    resources : tuple of str
    """
    total = [[trackable(text) for text in texts] for _, texts in (asked, given)]
    others = [generic_amounts(text) for text in generic[1]]
    every = [*total[0], *total[1], *(some for pair in others for some in pair)]
    resources = tuple(sorted({name for some in every for name in some}))
    if not resources:
        return None, ()
    nodes = np.where(width > 1, width, 1.0).astype(np.int64)[:, None]

    def table(amounts: Sequence[Mapping[str, int]], code: NDArray[np.int32]) -> NDArray[np.int64]:
        rows = [[some.get(name, 0) for name in resources] for some in (*amounts, {})]
        return np.array(rows, np.int64)[code]

    demand = np.maximum(table(total[0], asked[0]), table(total[1], given[0]))
    per_node = np.array([not name.startswith(LICENSE) for name in resources])
    demand = -(-demand // np.where(per_node, nodes, 1))
    if others:
        each, together = (table([pair[at] for pair in others], generic[0]) for at in (0, 1))
        stated = np.maximum(each, -(-together // nodes))
        named = np.array([name.startswith(GRES) for name in resources])
        unknown = ~(demand[:, named] > 0).any(axis=1)
        demand[unknown] = np.maximum(demand, stated)[unknown]
        typed = np.flatnonzero(named & np.array([":" in name for name in resources]))
        total_of = [resources.index(resources[at].partition(":")[0]) for at in typed]
        untyped = np.flatnonzero(~(demand[:, typed] > 0).any(axis=1))[:, None]
        demand[untyped, typed] = np.minimum(stated[untyped, typed], demand[untyped, total_of])
    if CPU in resources:
        cores = demand[:, resources.index(CPU)]
        held = -(-held // nodes[:, 0])
        demand[:, resources.index(CPU)] = np.where(cores > 0, np.maximum(cores, held), 0)
    return demand, resources


def _with_licenses(
    demand: NDArray[np.int64] | None,
    resources: tuple[str, ...],
    code: NDArray[np.int32],
    texts: tuple[str, ...],
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return the same with the licences of submit lines: Slurm may not keep account of them."""
    amounts = [licenses_in(text) for text in texts]
    names = tuple(sorted({name for some in amounts for name in some}))
    if not names:
        return demand, resources
    table = np.array([[some.get(name, 0) for name in names] for some in (*amounts, {})])
    known = np.zeros((len(code), 0), np.int64) if demand is None else demand
    others = [at for at, name in enumerate(resources) if name not in names]
    asked = table[code]
    for at, name in enumerate(names):
        if name in resources:
            asked[:, at] = np.maximum(asked[:, at], known[:, resources.index(name)])
    return np.concatenate([known[:, others], asked], axis=1), (
        *(resources[at] for at in others),
        *names,
    )


def _node_requests(
    constraint: NDArray[np.int32],
    features: tuple[str, ...],
    option: NDArray[np.int32],
    options: tuple[str, ...],
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the nodes that jobs ask for, of the column for features and of the submit lines."""
    if not features:
        return option, options
    pairs, code = np.unique(np.column_stack([constraint, option]), axis=0, return_inverse=True)
    words = ("", *(f"--constraint={name}" for name in features))
    texts = [f"{words[a + 1]} {('', *options)[b + 1]}".strip() for a, b in pairs.tolist()]
    empty = len(texts) > 0 and not texts[0]  # (-1, -1) is the least pair
    codes = np.asarray(code.ravel() - empty, np.int32)
    return codes, tuple(texts[1:] if empty else texts)


def _fitted(values: NDArray[Any], dtype: Any, missing: float) -> NDArray[Any]:
    """Return a column in its type; a number that this cannot hold says nothing."""
    if np.dtype(dtype).kind != "i" or np.can_cast(values.dtype, dtype):
        return values.astype(dtype, copy=False)
    bits = 8 * np.dtype(dtype).itemsize - 1
    fits = (values >= -(2.0**bits)) & (values < 2.0**bits)
    return np.where(fits, values, missing).astype(dtype)


def _finish(row: dict[str, NDArray[Any]]) -> None:
    """Fill times that follow from others, and clear those that mean nothing."""
    start, end, elapsed = row["start"], row["end"], row["elapsed"]
    ending, given = row["ending"], row["given"]
    row["asked"] = np.where(row["asked"] > 0, row["asked"], given)
    _hold(row)
    waiting = ending == Ending.PENDING
    running = ending == Ending.RUNNING
    gone = ending == Ending.CANCELLED
    idle = (elapsed == 0) | (np.isnan(elapsed) & (start == end))
    never = waiting | (~running & idle & (gone | (ending == Ending.MISSED)) & ~(row["nodes"] >= 0))
    start = np.where(never, np.nan, np.where(np.isnan(start), end - elapsed, start))
    end = np.where(np.isnan(end) & ~running & ~waiting, start + elapsed, end)
    elapsed = np.where(np.isnan(elapsed), end - start, elapsed)
    elapsed = np.where(never, np.where(waiting, np.nan, 0.0), elapsed)
    row["end"] = np.where(running | waiting, np.nan, end)
    row["start"], row["elapsed"] = start, elapsed
    row["given"] = np.where(never, 0.0, given)
    killed = (ending == Ending.MISSED) & np.isinf(row["deadline"]) & ~never
    row["deadline"] = np.where(killed & ~np.isnan(end), end, row["deadline"])


def _hold(row: dict[str, NDArray[Any]]) -> None:
    """Let jobs that were given more processors than they asked for occupy what they were given.

    Slurm rounds requests up to whole cores, and to whole nodes with --exclusive, select/linear or
    OverSubscribe=EXCLUSIVE. A job that may have several sizes keeps the one asked for.
    """
    asked, given = row["asked"], np.maximum(row["given"], 1.0)
    row["more"] = (row["given"] > asked) & (given <= MOST) & ~(row["size_min"] > 0)
    if row["more"].any():
        memory = np.where(row["more"], -(-row["memory"] * asked // given), row["memory"])
        row["memory"] = np.where(row["memory"] > 0, memory, row["memory"]).astype(np.int64)
        row["asked"] = np.where(row["more"], given, asked)


def _key(
    raw: NDArray[np.int64],
    base: NDArray[np.int64],
    part: NDArray[np.int64],
    meaning: NDArray[np.int8],
) -> NDArray[np.int64]:
    """Return a number per job: its own id, else made of the id that users see."""
    shown = np.where(meaning == SINGLE, base, (base << 26) + (part << 2) + meaning)
    own = (raw >= 0) & (meaning != PENDING_ARRAY)
    key: NDArray[np.int64] = np.where(own, raw, shown)
    return key


def _labels(
    base: NDArray[np.int64], part: NDArray[np.int64], meaning: NDArray[np.int8], *, everyone: bool
) -> tuple[NDArray[np.int32] | None, tuple[str, ...]]:
    """Return codes and texts of the ids that users see, where they are not the job's key."""
    rows = np.arange(len(base)) if everyone else np.flatnonzero(meaning != SINGLE)
    if len(rows) == 0:
        return None, ()
    mark, tail = {ARRAY: "_", HET: "+"}, {SINGLE: "", PENDING_ARRAY: "_[...]"}
    shown = zip(base[rows].tolist(), part[rows].tolist(), meaning[rows].tolist(), strict=True)
    codes = np.full(len(base), -1, np.int32)
    codes[rows] = np.arange(len(rows), dtype=np.int32)
    return codes, tuple(
        f"{number}{mark[kind]}{task}" if kind in mark else f"{number}{tail[kind]}"
        for number, task, kind in shown
    )


def _ranges(
    size: NDArray[np.float64], least: NDArray[np.int32], most: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the moldable ranges that hold the size asked for, -1 elsewhere."""
    fits = (least > 0) & (least < most) & (least <= size) & (size <= most)
    return np.where(fits, least, np.int32(-1)), np.where(fits, most, np.int32(-1))
