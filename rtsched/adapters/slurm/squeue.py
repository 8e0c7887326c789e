"""The jobs that squeue prints, from poll to poll: what has not changed is not read again.

A job is a record of two parts. The first one holds what changes while the job waits, as its
priority does every few minutes; it is read at each poll. The second one holds all the rest: where
it is as it was at the last poll, its columns are those that were read then.

What users write could hold any delimiter, so those around it are random, and so are those of parts;
between numbers and words of Slurm's own stands a bar.

Source: manual page squeue.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.adapters.programs import text_of
from rtsched.adapters.slurm.rows import (
    JobRows,
    Texts,
    Vocabulary,
    arrays_in,
    asked_tres,
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

_GENERIC = ("tres_node", "tres_job", "tres_socket", "tres_task")
"""Generic resources in all forms that they are asked for in: one column of `JobRows`."""

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
        generic = zip(*(shown[name] for name in _GENERIC), strict=True)
        return {
            **self._read(NUMBERS, fields[::width]),
            **{
                each.column: self._column(each, shown[each.column])
                for each in TEXTS
                if each.column not in _GENERIC
            },
            "tres": self._codes("tres", list(generic), _generic_of),
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
        if field.dtype is not None:
            return _meant(values, field.meaning, field.dtype)
        return self._codes(field.column, values, lambda value: field.meaning(text_of(value)))

    def _codes(
        self, column: str, values: Sequence[Any], meaning: Callable[[Any], str]
    ) -> NDArray[np.int32]:
        """Return the codes of the texts that values mean."""
        vocabulary = self._vocabularies.setdefault(column, Vocabulary())
        codes = {value: vocabulary.code(meaning(value)) for value in set(values)}
        return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))


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


def _generic_of(shown: Sequence[bytes]) -> str:
    """Return the generic resources that a job asks for, as `asked_tres` writes them."""
    return asked_tres(*(text(text_of(value)) for value in shown))


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
