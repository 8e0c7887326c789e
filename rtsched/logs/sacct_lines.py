"""Lines of `sacct` as text: with a header or without, in quotes, or with the delimiter in a field.

Columns without a header are named by the user, or guessed where every line looked at fits: the
columns of `SACCT_COLUMNS`; or a job id first, times in the order of Submit, Eligible, Start and
End, the run time as their difference, a state and one column of resources, each in one way only.

sacct escapes nothing, so `srun a | b` in a submit line makes a line with a field too many. Most
columns have a known form (a time, a number, a state), only some are free text: the line is put
right by finding where those may begin and end so that all others keep their form, and of
several ways the one in which texts look as usual: a submit line begins with sbatch, others have
nothing.

"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ConfigError, InputError
from rtsched.kernels.text import count_lines, scan_fields
from rtsched.logs.source import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROLES: dict[str, tuple[str, ...]] = {
    "id": ("jobid", "jobidraw"),
    "raw": ("jobidraw",),
    "submit": ("submit",),
    "eligible": ("eligible",),
    "start": ("start",),
    "end": ("end",),
    "seconds": ("elapsedraw",),
    "elapsed": ("elapsed",),
    "minutes": ("timelimitraw",),
    "limit": ("timelimit",),
    "asked": ("reqcpus",),
    "asked_tres": ("reqtres",),
    "given": ("alloccpus", "ncpus"),
    "given_tres": ("alloctres",),
    "held_tres": ("alloctres",),
    "gres": ("reqgres", "allocgres"),
    "width": ("nnodes", "allocnodes", "reqnodes"),
    "memory": ("reqmem",),
    "restarts": ("restarts",),
    "state": ("state",),
    "user": ("user", "uid"),
    "account": ("account",),
    "partition": ("partition",),
    "qos": ("qos",),
    "nodes": ("nodelist",),
    "cluster": ("cluster",),
    "submit_line": ("submitline",),
    "extra": ("extra",),
    "comment": ("comment",),
    "name": ("jobname",),
    "constraint": ("constraints",),
    "reservation": ("reservation",),
}
"""What is read, and the columns that say it, best first."""

_INSTEAD = {
    "elapsed": "seconds",
    "limit": "minutes",
    "given_tres": "given",
}
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9]*")
_PROMPT = re.compile(
    rb"\A[^\n]*?[$#%>\]:\x00-\x08\x0b-\x1f\x7f-\xff]\s{0,9}"
    rb"(?=(?:\w+[|,;^\t])*JobID(?:Raw)?[|,;^\t]|(?:\w+[|,;^\t])+JobID(?:Raw)?\s*\Z)",
    re.IGNORECASE,
)
"""What a terminal or an editor may put before a header, on its line."""


SACCT_COLUMNS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,"
    "ReqCPUS,NCPUS,NNodes,ReqMem,ReqTRES,AllocTRES,State,NodeList,Restarts,Constraints,"
    "Reservation,Extra,Comment,SubmitLine"
)
"""The columns that a replay can use."""
SACCT = f"sacct --allusers --allocations --duplicates --parsable2 --format {SACCT_COLUMNS}"
"""How an export is made, beside its first and last day."""


class Header:
    """The first line of a table: its columns, and where each role is found.

    Attributes
    ----------
    columns : list of str
        Names in lower case.
    delimiter : bytes
    place : dict of str to int
        Column of each role that the file has.
    guessed : str
        What to say of columns that no line of the file names; empty: one does.
    padded : bool
        Whether fields may have blanks around them.
    decimal : bool
        Whether job ids end in `.0`, as numbers that pandas wrote.
    """

    guessed: str = ""
    decimal: bool = False

    def __init__(self, line: bytes, delimiter: str | None) -> None:
        text = _PROMPT.sub(b"", line, count=1).strip(b"\r\n ")
        found = delimiter.encode() if delimiter else _delimiter(text)
        bare = found.strip(b" ")
        self.delimiter = bare if bare in _DELIMITERS else found
        self.padded = bare in _DELIMITERS and (
            line.rstrip(b"\r\n").endswith(b" ")
            or any(each in text for each in (b" " + self.delimiter, self.delimiter + b" "))
        )
        self.line = self.unpadded(text)
        names = text.split(self.delimiter) if self.delimiter else [text]
        self.columns = [name.decode("ascii", "replace").strip().lower() for name in names]
        self.place: dict[str, int] = {}
        for role, choices in ROLES.items():
            for choice in choices:
                if choice in self.columns:
                    self.place[role] = self.columns.index(choice)
                    break
        for role, better in _INSTEAD.items():
            if better in self.place:
                self.place.pop(role, None)

    def unpadded(self, lines: bytes) -> bytes:
        """Return lines without blanks around their fields, if the header has some."""
        if not self.padded:
            return lines
        mark = re.escape(self.delimiter)
        around = rb"^ +|(?<=%b) +|(?<! ) +(?=%b|\r?$)" % (mark, mark)
        return re.sub(around, b"", lines, flags=re.MULTILINE)

    def read_ids(self, first: bytes) -> None:
        """Find out from the first lines whether all job ids, not only those of steps, end in `.0`.

        sacct prints a job before its steps, of which most are named `batch` or `extern`.
        """
        at = self.place["id"]
        records = [line.split(self.delimiter) for line in first.split(b"\n")]
        ids = [fields[at] for fields in records if len(fields) == len(self.columns)]
        self.decimal = bool(ids) and all(map(_DECIMAL_ID.fullmatch, ids))

    def plain(self, lines: bytes) -> bytes:
        """Return lines as sacct would have printed them."""
        lines = self.unpadded(lines)
        if not self.decimal:
            return lines
        mark = re.escape(self.delimiter)
        number = rb"^((?>[^\n]*?%b){%d}\d+)[.,]0(?=%b|\r?$)" % (mark, self.place["id"], mark)
        return re.sub(number, rb"\1", lines, flags=re.MULTILINE)

    def missing(self) -> str:
        """Return which columns are missing that no log can do without."""
        lacking = []
        if "id" not in self.place:
            lacking.append("JobID")
        if "submit" not in self.place:
            lacking.append("Submit")
        if not self.place.keys() & {"start", "end", "elapsed", "seconds"}:
            lacking.append("Start, End or Elapsed")
        return " and ".join(lacking)


def _delimiter(line: bytes) -> bytes:
    """Return what stands between the first two names of a header."""
    first = _NAME.search(line)  # a table with row numbers begins with the delimiter
    if first is None:
        return b""
    if line.startswith(_TYPED_TAB, first.end()):
        return _TYPED_TAB
    second = _NAME.search(line, first.end())
    return line[first.end() : second.start()] if second else b""


_TYPED_TAB = b"\\t"
"""What `sacct --delimiter='\\t'` prints: sacct takes the two characters as they are."""
_DECIMAL_ID = re.compile(rb"\d+[.,]0\r?")

Split = tuple[
    "NDArray[np.int32]", "NDArray[np.int32]", "NDArray[np.int64]", "NDArray[np.int64]", int
]


def split_lines(
    block: bytes, delimiter: bytes, slots: NDArray[np.int64], key: int, used: int
) -> Split:
    """Return where the fields of whole lines lie (see `scan_fields`)."""
    buffer = np.frombuffer(block, np.uint8)
    most = count_lines(buffer)
    starts, ends = np.empty((2, used, most), np.int32)
    line_of, odd = np.empty(most, np.int64), np.empty((most, 3), np.int64)
    rows, odds, lines = scan_fields(
        buffer,
        np.frombuffer(delimiter, np.uint8),
        slots,
        key,
        starts,
        ends,
        line_of,
        odd,
    )
    return starts[:, :rows], ends[:, :rows], line_of[:rows], odd[:odds], lines


def split_plainly(
    block: bytes, delimiter: bytes, slots: NDArray[np.int64], key: int, used: int
) -> Split:
    """Return the same as `split_lines`, by `bytes.split`."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    spans: list[list[int]] = []
    line_of: list[int] = []
    odd: list[tuple[int, int, int]] = []
    at = 0
    for number, line in enumerate(lines):
        text = line.removesuffix(b"\r")
        fields = text.split(delimiter)
        if len(fields) == len(slots):
            if b"." not in fields[key]:
                place = at
                span = [0] * (2 * used)
                for slot, field in zip(slots.tolist(), fields, strict=True):
                    if slot >= 0:
                        span[slot], span[used + slot] = place, place + len(field)
                    place += len(field) + len(delimiter)
                spans.append(span)
                line_of.append(number)
        elif text:
            odd.append((at, at + len(text), number))
        at += len(line) + 1
    table = np.array(spans, np.int32).reshape(len(spans), 2, used).transpose(1, 2, 0).copy()
    places = np.array(odd, np.int64).reshape(len(odd), 3)
    return table[0], table[1], np.array(line_of, np.int64), places, len(lines)


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
    _NUMBERS: rb"\d*[KM]?(?:\.\w+)?",
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
_NAME_CELL = re.compile(rb"[^\s|]*")


def _oddity(name: str, field: bytes) -> float:
    """Return how odd a text is in a column that may hold any; inf if it cannot be there."""
    if name == "submitline":
        return 0 if not field or _COMMAND.match(field) else 4
    if name == "constraints" and not _FEATURES.fullmatch(field):
        return math.inf
    if name in {"reservation", "wckey", "licenses"} and not _NAME_CELL.fullmatch(field):
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


_DELIMITERS = (b"|", b"\t", b"^", b";", b",")
_WIDTH = re.compile(r"%-?\d+$")
_COLUMN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_MOST_LINES = 200
_LEAST_RUNS = 3
_SHOWN = {name.lower(): name for name in (*SACCT_COLUMNS.split(","), "Elapsed")}
_ID = re.compile(rb"\d+(?:[_+](?:\d+|\[[^|]*\]))?(?:\.[\w+]+)?")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None|N/A")
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_SPAN = re.compile(rb"(?:(\d+)-)?(\d\d):(\d\d):(\d\d)|(\d+)")
_STATE = re.compile(
    rb"(?:COMPLETED|FAILED|CANCELLED|TIMEOUT|RUNNING|PENDING|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|"
    rb"REQUEUED|BOOT_FAIL|DEADLINE|SUSPENDED|RESIZING|REVOKED)\+?(?: by \d+)?"
)
_TRES = re.compile(rb"(?=.*\bcpu=\d)(?:[a-z][^=,|]*=[^=,|]+,)*[a-z][^=,|]*=[^=,|]+|")


def columns_named(text: str) -> list[str]:
    """Return the names that a list as for `sacct --format` has, without their widths.

    Raises
    ------
    ConfigError
        If it is no such list.
    """
    names = [_WIDTH.sub("", each.strip()) for each in re.split(r"[,|]", text.strip(" ,|"))]
    wrong = [name for name in names if not _COLUMN_NAME.fullmatch(name)]
    if wrong:
        raise ConfigError(
            [f"--columns: {wrong[0]!r} is no column; list names as for `sacct --format`"]
        )
    missing = Header("|".join(names).encode(), "|").missing()
    if missing:
        raise ConfigError([f"--columns names no {missing}, which every log needs"])
    return names


def is_header(line: bytes) -> bool:
    """Return whether a first line names columns, a job's id among them."""
    known = b"jobid" in line.lower()
    return known and not {"jobid", "jobidraw"}.isdisjoint(Header(line, None).columns)


def follows_messages(before: bytes, text: bytes) -> bool:
    """Return whether a text begins with a header that can be used, and no records stand before."""
    header = Header(text.partition(b"\n")[0], None)
    mark, width = header.delimiter, len(header.columns)
    return not header.missing() and not any(
        each.count(mark) + 1 >= width and begins_record(each, header.columns, mark)
        for each in before.split(b"\n")
    )


def is_headerless(head: bytes, columns: str | None, delimiter: str | None) -> bool:
    """Return whether text without a header can be read: its columns are named or certain."""
    if columns is None:
        return guessed_header(head, delimiter) is not None
    names = [name.lower() for name in columns_named(columns)]
    line = head.lstrip().partition(b"\n")[0]
    return any(
        line.count(mark) + 1 >= len(names) and begins_record(line, names, mark)
        for mark in ((delimiter.encode(),) if delimiter else _DELIMITERS)
    )


def header_of(path: str, head: bytes, columns: Sequence[str], delimiter: str | None) -> bytes:
    """Return the header line that the text of a file would have with these columns.

    Raises
    ------
    InputError
        If its lines have another number of fields.
    """
    sample = _sample(head)
    first = sample[0] if sample else b""
    delimiters = (delimiter.encode(),) if delimiter else _DELIMITERS
    most = max(delimiters, key=lambda each: (first.count(each) + 1 >= len(columns), each in first))
    fields = first.split(most)
    if len(fields) < len(columns):
        raise InputError(
            path,
            f"its first line has {len(fields)} fields, and --columns names {len(columns)}; name "
            "the columns with which sacct was called, in their order",
        )
    ends = len(fields) > len(columns) and all(line.endswith(most) for line in sample)
    return most.join([*(name.encode() for name in columns), *((b"",) if ends else ())])


def guessed_header(head: bytes, delimiter: str | None = None) -> bytes | None:
    """Return the header line that text without one seems to lack; None: unknown."""
    sample = _sample(head)
    mark = delimiter.encode() if delimiter else b"|"
    if not sample or mark not in sample[0]:
        return None
    names = SACCT_COLUMNS.split(",")
    for ends in (0, 1):
        header = mark.join([*(name.encode() for name in names), *((b"",) * ends)])
        columns = Header(header, readable(mark)).columns
        records = [line for line in sample if begins_record(line, columns, mark)]
        if records and all(readings(columns, line.split(mark), mark) for line in records):
            return header
    found = _by_form([line.split(mark) for line in sample])
    return mark.join(name.encode() for name in found) if found else None


def guess_note(columns: list[str]) -> str:
    """Return what is assumed of a file without a header line."""
    shown = ", ".join(_SHOWN[name] for name in columns if name in _SHOWN)
    number = sum(name not in _SHOWN for name in columns if name)
    others = f"; {number} others are not read" if number else ""
    return (
        f"the log has no header line: by their form its columns are taken to be {shown}{others} "
        "(`--columns` names them)"
    )


def _sample(head: bytes) -> list[bytes]:
    """Return the first lines, the last one only if it is whole."""
    lines = head.lstrip().split(b"\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    return [line.rstrip(b"\r") for line in whole[:_MOST_LINES] if line.strip()]


def _by_form(rows: list[list[bytes]]) -> list[str] | None:
    """Return names of columns, `Other` for those not known; None where there are several ways."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return None
    columns = list(zip(*rows, strict=True))
    alike = {
        kind: [at for at, cells in enumerate(columns) if all(map(form.fullmatch, cells))]
        for kind, form in (("id", _ID), ("time", _TIME), ("state", _STATE), ("tres", _TRES))
    }
    tres = [at for at in alike["tres"] if any(columns[at])]
    if alike["id"][:1] != [0] or len(alike["state"]) != 1 or len(tres) != 1:
        return None
    names = ["Other"] * width
    names[0], names[alike["state"][0]], names[tres[0]] = "JobID", "State", "AllocTRES"
    times = _times([columns[at] for at in alike["time"]])
    if times is None:
        return None
    for at, name in zip(alike["time"], times, strict=True):
        names[at] = name
    start, end = (columns[names.index(name)] for name in ("Start", "End"))
    started = [bool(_MOMENT.fullmatch(cell)) for cell in start]
    if sum(bool(_MOMENT.fullmatch(cell)) for cell in end) < _LEAST_RUNS:
        return None
    if any(cell for cell, did in zip(columns[tres[0]], started, strict=True) if not did):
        names[tres[0]] = "ReqTRES"
    spans = [
        at
        for at, cells in enumerate(columns)
        if names[at] == "Other" and all(map(_lasts, start, end, cells))
    ]
    if not spans:
        return None
    for at in spans:
        names[at] = "ElapsedRaw" if all(cell.isdigit() for cell in columns[at]) else "Elapsed"
    return names


def _times(columns: list[tuple[bytes, ...]]) -> tuple[str, ...] | None:
    """Return the names of columns of times, if they come in the order in which jobs pass them."""
    names = {3: ("Submit", "Start", "End"), 4: ("Submit", "Eligible", "Start", "End")}
    order = names.get(len(columns))
    for moments in zip(*columns, strict=True):
        known = [moment for moment in moments if _MOMENT.fullmatch(moment)]
        if known != sorted(known):
            return None
    return order


def _lasts(start: bytes, end: bytes, cell: bytes) -> bool:
    """Return whether a cell may be the seconds from `start` to `end`."""
    match = _SPAN.fullmatch(cell)
    if match is None:
        return False
    if not (_MOMENT.fullmatch(start) and _MOMENT.fullmatch(end)):
        return True
    days, hours, minutes, seconds, whole = (int(each or 0) for each in match.groups())
    try:
        span = timedelta(days, seconds + whole, minutes=minutes, hours=hours)
        return datetime.fromisoformat(end.decode()) - datetime.fromisoformat(start.decode()) == span
    except (ValueError, OverflowError):
        return False
