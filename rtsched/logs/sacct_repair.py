"""Lines of `sacct -P` in which a field holds the delimiter itself, or a line break.

sacct escapes nothing, so `srun a | b` in a submit line makes a line with a field too many. Most
columns have a known form (a time, a number, a state), only some are free text: the line is put
right by finding where those may begin and end so that all others keep their form, and of
several ways the one in which texts look as usual: a submit line begins with sbatch, others have
nothing.
"""

from __future__ import annotations

import math
import re

_NUMBERS = (
    "alloccpus allocnodes associd consumedenergyraw cputimeraw dbindex elapsedraw gid jobidraw "
    "ncpus nnodes ntasks priority qosraw reqcpus reqnodes reservationid resvcpuraw restarts uid "
    "wckeyid"
)
_TIMES = "eligible end start submit"
_DURATIONS = (
    "avecpu cputime elapsed mincpu planned plannedcpu reserved resvcpu suspended systemcpu "
    "timelimit timelimitraw totalcpu usercpu"
)
_SIZES = (
    "avediskread avedisk averss avevmsize avepages consumedenergy maxdiskread maxdiskwrite "
    "maxpages maxrss maxvmsize reqmem avediskwrite"
)
_FREE = (
    "admincomment comment constraints container extra jobname licenses reason stderr stdin stdout "
    "submitline systemcomment wckey workdir"
)
_FORMS = {
    _NUMBERS: rb"\d*(?:\.\w+)?",
    _TIMES: rb"\d{4}-\d\d-\d\dT[\d:]{5,8}\S{0,6}|\d{9,11}|Unknown|None|N/A|",
    _DURATIONS: rb"(?:\d+-)?[\d:.]+|\d*|UNLIMITED|Partition_Limit|INVALID",
    _SIZES: rb"[\d.]+[KMGTPE]?[cn]?|\?|",
    "exitcode derivedexitcode": rb"(?:\d+:\d+)?",
    "state": rb"[A-Z_]+\+?(?: by \d+)?",
    "jobid": rb"\d+(?:[_+](?:\d+|\[.*\]))?(?:\.[\w+]+)?",
    "reqtres alloctres": rb"(?:[^=,]+=[^=,]+)(?:,[^=,]+=[^=,]+)*|",
}
_FORM = {
    name: re.compile(form, re.DOTALL) for names, form in _FORMS.items() for name in names.split()
}
_MAY_HOLD = frozenset(_FREE.split())
_LISTS = frozenset(("reqtres", "alloctres", "nodelist"))
"""Columns of lists, whose values hold commas."""
_HOST = rb"[\w.-]+(?:\[[\d,-]+\][\w.-]*)?"
_HOSTS = re.compile(rb"%b(?:,%b)*|None assigned|\(null\)|" % (_HOST, _HOST))

MOST_EXTRA = 60
"""More fields too many than this are not looked into."""

_MOST_WAYS = 64
_COMMAND = re.compile(rb"(?:\S*/)?(?:sbatch|srun|salloc|scrontab|scontrol)\b", re.DOTALL)
_FEATURES = re.compile(rb"[\w.:@*\[(!][^\s]*[\w.:@*\])]|\w|\(null\)|", re.DOTALL)
_NAME = re.compile(rb"[^\s|]*")


def _oddity(name: str, field: bytes) -> float:
    """Return how odd a text is in a column that may hold any; inf if it cannot be there."""
    if name == "submitline":
        return 0 if not field or _COMMAND.match(field) else 4
    if name == "constraints" and not _FEATURES.fullmatch(field):
        return math.inf
    if name in {"reservation", "wckey", "licenses"} and not _NAME.fullmatch(field):
        return math.inf
    return 0 if not field or name == "jobname" else 1


def readings(columns: list[str], fields: list[bytes], delimiter: bytes) -> list[list[bytes]]:
    """Return the likeliest ways to read a line with too many fields, each column in its form.

    Parameters
    ----------
    columns : list of str
        Names of the header, in lower case.
    fields : list of bytes
        The line, cut at every delimiter.
    delimiter : bytes
        What is put back between the pieces of one field.

    Returns
    -------
    list of list of bytes
        At most 64 of them, each with one field per column; empty if there is none.
    """
    extra = len(fields) - len(columns)
    lists: frozenset[str] = _LISTS if delimiter == b"," else frozenset()
    if not 0 <= extra <= MOST_EXTRA:
        return []
    best: dict[tuple[int, int], tuple[float, list[int]]] = {}

    def text(at: int, more: int) -> bytes:
        return delimiter.join(fields[at : at + more + 1])

    def cost(column: int, at: int) -> float:
        """Return the least oddity of `fields[at:]` read as `columns[column:]`."""
        if column == len(columns):
            return 0 if at == len(fields) else math.inf
        if (column, at) not in best:
            name, form = columns[column], _FORM.get(columns[column])
            spare = extra - (at - column)
            found: list[tuple[float, int]] = []
            for more in range(spare + 1 if name in _MAY_HOLD or name in lists else 1):
                field = text(at, more)
                if name in lists and not _is_list(name, field):
                    continue
                if form is None or form.fullmatch(field):
                    known = name in _MAY_HOLD or name == "reservation"
                    own = _oddity(name, field) if known else 0
                    found.append((own + cost(column + 1, at + more + 1), more))
            least = min((each for each, _ in found), default=math.inf)
            ways = [more for each, more in found if each == least] if least < math.inf else []
            best[column, at] = least, ways
        return best[column, at][0]

    cost(0, 0)
    ways: list[tuple[int, list[bytes]]] = [(0, [])]
    for column in range(len(columns)):
        ways = [
            (at + more + 1, [*read, text(at, more)])
            for at, read in ways
            for more in best[column, at][1]
        ][:_MOST_WAYS]
    return [read for _, read in ways]


def _is_list(name: str, field: bytes) -> bool:
    """Return whether a text is one list of hosts, or of resources, each of which is in it once."""
    if name == "nodelist":
        return _HOSTS.fullmatch(field) is not None
    names = [pair.partition(b"=")[0] for pair in field.split(b",")]
    return len(set(names)) == len(names)


def begins_record(line: bytes, columns: list[str], delimiter: bytes) -> bool:
    """Return whether a line may be the first of a record, by the columns before any free text."""
    for name, field in zip(columns, line.split(delimiter), strict=False):
        form = _FORM.get(name)
        if name in _MAY_HOLD or (form is not None and not form.fullmatch(field)):
            return name in _MAY_HOLD
        if name in {"jobid", "jobidraw"}:
            return bool(field)
    return True


def whole_records(
    block: bytes, odd: list[list[int]], columns: list[str], delimiter: bytes
) -> list[list[int]]:
    """Return odd lines with those that belong together as one: text may hold line breaks.

    Parameters
    ----------
    block : bytes
        Whole lines.
    odd : list of [start, end, line]
        Those that are not cut in as many fields as there are columns.
    columns : list of str
        Names of the header, in lower case.
    delimiter : bytes

    Returns
    -------
    list of [start, end, line]
        Without what goes on after the last column of a record, where that may be any text.
    """
    records: list[list[int]] = []
    open_end = columns[-1] in _MAY_HOLD
    for start, end, line in odd:
        content = block[start:end]
        if begins_record(content, columns, delimiter):
            records.append([start, end, line])
            continue
        last = records[-1] if records else None
        if last is not None and not block[last[1] : start].strip():
            fields = block[last[0] : last[1]].split(delimiter)
            if open_end or not readings(columns, fields, delimiter):
                last[1] = end
                continue
        if open_end:
            continue  # of the record before, whose columns are all there
        records.append([start, end, line])
    return records
