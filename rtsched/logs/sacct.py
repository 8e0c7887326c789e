"""Text of Slurm's `sacct -P` (or -p, --delimiter): the header says which columns there are.

Source: manual page sacct. Tried with dumps of Slurm 19.05 to 26.05.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.errors import InputError
from rtsched.kernels.compiling import COMPILING
from rtsched.kernels.text import NO_ID
from rtsched.logs import cells as read
from rtsched.logs.cells import Cells, Interner, Meanings
from rtsched.logs.gather import Coder
from rtsched.logs.sacct_lines import (
    ROLES,
    SACCT,
    Header,
    begins_record,
    columns_named,
    guess_note,
    guessed_header,
    header_of,
    is_header,
    readings,
    split_lines,
    split_plainly,
    whole_records,
)
from rtsched.logs.sacct_rows import TEXTS, SlurmRows
from rtsched.logs.slurm_text import (
    deadline_in,
    ending,
    generic_column,
    is_state_number,
    minutes,
    submit_line,
)
from rtsched.logs.source import readable
from rtsched.model.units import (
    known_zone,
    size_bytes,
    slurm_duration,
    slurm_moment,
    until_repeated,
)

if TYPE_CHECKING:
    from datetime import tzinfo

    from numpy.typing import NDArray

    from rtsched.logs.readers import ReadOptions
    from rtsched.logs.source import Source
    from rtsched.model.log import Log

_FREE = ("submit_line", "extra", "comment")


class SacctReader:
    """Reads the text of sacct. Sizes count processors, memory is per processor."""

    format: ClassVar[str] = "sacct"

    def __init__(self, options: ReadOptions) -> None:
        self._given_delimiter, self._columns = options.delimiter, options.columns
        self._details, self._resources = options.details, options.resources
        self._zone_name = options.timezone
        self._zone = known_zone(options.timezone)
        self._rows = SlurmRows(options.clusters)
        self._texts = {name: Interner() for name in TEXTS if name != "nodes"}
        self._tres = {name: Interner() for name in ("tres", "tres_given")}
        self._gres, self._gres_column = Coder(), Interner()
        self._without_gres = Meanings(lambda text: float("gres/" not in text))
        self._dependencies, self._job_names, self._node_options = Coder(), Coder(), Coder()
        self._licenses = Coder()
        self._constraints = Interner()
        self._nodes = Meanings(lambda text: float(text not in {"None assigned", "(null)"}))
        self._means = {
            "elapsed": Meanings(slurm_duration),
            "minutes": Meanings(minutes),
            "limit": Meanings(slurm_duration),
            "asked_tres": Meanings(_tres_cpus),
            "given_tres": Meanings(_tres_cpus),
            "state": Meanings(ending, is_state_number),
        }
        self._memory = Meanings(lambda text: _req_mem(text)[0], lambda text: _req_mem(text)[1])
        self._local = False
        self._path = ""

    @staticmethod
    def claims(head: bytes) -> bool:
        """Return whether the first line is a header with JobID in it."""
        line = head.lstrip().partition(b"\n")[0].strip()
        header = Header(line, None)
        names = {b"jobid", b"jobidraw"}
        delimited = len(header.columns) > 1 and not header.delimiter.isspace()
        delimited &= not {*b"='\""} & {*header.delimiter}  # `JobId=7 JobName=x`, JSON
        return (delimited or b"\t" in header.delimiter) and bool(
            names & {name.encode() for name in header.columns}
        )

    def read(self, source: Source) -> None:
        """Take in one file."""
        self._rows.open(source.path)
        self._path = source.path
        header: Header | None = None
        before, rest = 0, b""
        for block in source.line_blocks():
            text = block
            if header is None:
                header, text, skipped = self._header(source, block)
                before += skipped
            text, rest = _cut(rest + header.plain(text), header)
            before += self._take(text, header, before)
        if header is not None and rest:
            self._take(rest, header, before)

    def _header(self, source: Source, block: bytes) -> tuple[Header, bytes, int]:
        """Return the header, the text behind it, and how many lines both take."""
        header, rest, number = read_header(source, block, self._given_delimiter, self._columns)
        if header.guessed and header.guessed not in self._rows.remarks:
            self._rows.remarks.insert(0, header.guessed)
        if header.decimal and DECIMAL_IDS not in self._rows.remarks:
            self._rows.remarks.append(DECIMAL_IDS)
        if not self._details:
            header.place.pop("name", None)
        if not self._resources:
            spare = ("held_tres", "gres", *(("asked_tres",) if "asked" in header.place else ()))
            for role in spare:
                header.place.pop(role, None)
        return header, rest, number

    def _take(self, block: bytes, header: Header, before: int) -> int:
        """Take in whole lines; return how many."""
        slots = np.full(len(header.columns), -1, np.int64)
        roles = list(header.place)
        used = sorted(set(header.place.values()))
        slots[used] = np.arange(len(used))
        split = split_lines if COMPILING else split_plainly
        starts, ends, line_of, odd, lines = split(
            block, header.delimiter, slots, header.place["id"], len(used)
        )
        cells = {
            role: Cells(block, starts[slots[at]], ends[slots[at]])
            for role, at in header.place.items()
        }
        row = self._decode(cells, line_of + (before + 1))
        repaired = self._repair(odd, block, header, before)
        if repaired:
            late = self._decode(
                _as_cells([fields for _, fields in repaired], roles),
                np.array([line for line, _ in repaired], np.int64),
            )
            row = {name: np.concatenate([row[name], late[name]]) for name in row}
            order = np.argsort(row["line"], kind="stable")
            row = {name: values[order] for name, values in row.items()}
        self._rows.append(len(row["line"]), row, self._texts["cluster"].names())
        return lines

    def _repair(
        self, odd: NDArray[np.int64], block: bytes, header: Header, before: int
    ) -> list[tuple[int, list[bytes]]]:
        """Return line and fields (in the order of the roles) of what can be put right."""
        good = []
        joined = whole_records(block, odd.tolist(), header.columns, header.delimiter)
        for start, end, line in joined:
            text, number = block[start:end], before + line + 1
            if text.strip(b"\r\n ") == header.line or not text.strip():
                continue
            if is_header(text):
                raise second_table(self._path, number)
            reason, fields = read_fields(text, header)
            if reason:
                self._rows.skipped.add(reason, self._rows.where(number))
            elif fields:
                good.append((number, [fields[at] for at in header.place.values()]))
        return good

    def _decode(self, cells: dict[str, Cells], line: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the columns of `SlurmRows` for the rows that can be read."""
        row: dict[str, NDArray[Any]] = {"line": line}
        row["base"], row["part"], row["meaning"] = read.job_ids(cells["id"])
        if "raw" in cells:
            row["raw"] = np.nan_to_num(read.integers(cells["raw"]), nan=-1).astype(np.int64)
        bad: dict[str, NDArray[np.int64]] = {}
        nobody = np.flatnonzero(row["meaning"] == NO_ID)
        bad["JobID is no job id"] = nobody
        after = None
        for name in ("submit", "eligible", "start", "end"):
            if name in cells:
                row[name], bad[f"{name.title()} is no time"] = read.times(
                    cells[name], self._zone, after
                )
                after = row[name] if name in {"submit", "start"} else after
        if len(line) and not self._local:
            self._local = read.is_local(cells["submit"][0])
        if len(line) and _WHOLE_MINUTES.fullmatch(cells["submit"][0]):
            self._rows.clock = 60.0
        self._numbers(cells, row)
        _agree(row, self._zone, self._rows.clock)
        self._words(cells, row)
        self._wishes(cells, row)
        return self._without(row, bad, cells)

    def _without(
        self,
        row: dict[str, NDArray[Any]],
        bad: dict[str, NDArray[np.int64]],
        cells: dict[str, Cells],
    ) -> dict[str, NDArray[Any]]:
        """Count the bad rows, and return the others."""
        keep = np.ones(len(row["line"]), np.bool_)
        for reason, rows in bad.items():
            for at in rows[keep[rows]].tolist():
                names = {role: readable(cell[at]).strip().lower() for role, cell in cells.items()}
                if names["id"] not in ROLES["id"]:
                    self._rows.skipped.add(reason, self._rows.where(int(row["line"][at])))
                elif any(name not in ROLES[role] for role, name in names.items()):
                    raise second_table(self._path, int(row["line"][at]))
                keep[at] = False
        if keep.all():
            return row
        return {name: values[keep] for name, values in row.items()}

    def _numbers(self, cells: dict[str, Cells], row: dict[str, NDArray[Any]]) -> None:
        """Fill in durations, processors and memory."""
        n = len(row["line"])
        if "seconds" in cells:
            row["elapsed"] = read.integers(cells["seconds"])
        elif "elapsed" in cells:
            row["elapsed"] = self._means["elapsed"](cells["elapsed"])[0]
        limit = next((name for name in ("minutes", "limit") if name in cells), None)
        if limit is not None:
            asked = self._means[limit](cells[limit])[0]
            row["limit"] = np.where(np.isnan(asked), np.inf, asked)
        for name in ("asked", "given"):
            if name in cells:
                row[name] = read.integers(cells[name])
            elif f"{name}_tres" in cells:
                row[name] = self._means[f"{name}_tres"](cells[f"{name}_tres"])[0]
        width = read.integers(cells["width"]) if "width" in cells else np.ones(n)
        if "width" in cells:
            row["width"] = width
        for role, name in (("asked_tres", "tres"), ("held_tres", "tres_given")):
            if self._resources and role in cells:
                row[name] = self._tres[name].codes(cells[role])
        if not row.keys() & {"asked", "given"}:
            row["asked"] = np.where(width > 0, width, 1.0)
            self._rows.assume("the log has no processor counts: one per node is assumed", n)
        size = row.get("asked", row.get("given", np.ones(n)))
        if "given" in row:
            size = np.where(size > 0, size, row["given"])
        if "memory" in cells:
            amount, basis = self._memory(cells["memory"])
            nodes = np.where(width > 0, width, 1.0)
            total = np.where(basis == _PER_CPU, amount * size, amount)
            total = np.where(basis == _PER_NODE, amount * nodes, total)
            row["memory"] = per_processor(total, size)
        if "restarts" in cells:
            row["restarts"] = np.nan_to_num(np.minimum(read.integers(cells["restarts"]), 1e9))

    def _words(self, cells: dict[str, Cells], row: dict[str, NDArray[Any]]) -> None:
        """Fill in state and names."""
        if "state" in cells:
            endings, numbered = np.nan_to_num(self._means["state"](cells["state"]))
            row["ending"] = endings.astype(np.int8)
            self._rows.assume(STATE_NUMBERS, int(numbered.sum()))
        for name, interner in self._texts.items():
            if name in cells:
                row[name] = interner.codes(cells[name])
        if "nodes" in cells:
            codes, given = self._nodes.look_up(cells["nodes"])
            row["nodes"] = np.where(given[0] > 0, codes, np.int32(-1))

    def _wishes(self, cells: dict[str, Cells], row: dict[str, NDArray[Any]]) -> None:
        """Fill in deadlines and ranges of sizes, from submit lines and comments."""
        n = len(row["line"])
        row["deadline"] = np.full(n, np.inf)
        row["size_min"], row["size_max"] = np.full((2, n), -1, np.int32)
        marked = np.zeros(n, np.bool_)
        row["exclusive"] = np.zeros(n, np.bool_)
        for name in ("dependency", "job_name", "node_options", "licenses", "gres"):
            row[name] = np.full(n, -1, np.int32)
        if self._resources:
            self._generic(cells, row)
        if "constraint" in cells:
            row["constraint"] = self._constraints.codes(cells["constraint"])
        row["array_limit"], row["begin"] = np.zeros(n, np.int32), np.full(n, np.nan)
        if "submit_line" in cells:
            marked = read.telling(cells["submit_line"]) | read.with_node_range(cells["submit_line"])
            if "eligible" not in cells:
                marked |= read.marked(cells["submit_line"], b"-b")
            if self._resources:
                marked |= self._may_ask_for_gpus(cells)
        free = [name for name in ("extra", "comment") if name in cells]
        for name in free:
            marked |= read.marked(cells[name], b"eadline=", b"EADLINE=")
        rows = np.flatnonzero(marked & ~np.isnan(row["submit"]))
        lines = cells["submit_line"].take(rows) if "submit_line" in cells else [b""] * len(rows)
        others = [cells[name].take(rows) for name in free]
        submits = row["submit"][rows].tolist()
        for i, at in enumerate(rows.tolist()):
            asked = submit_line(readable(lines[i]))
            due = asked.deadline or deadline_in(*(readable(other[i]) for other in others))
            row["exclusive"][at] = asked.exclusive
            self._rows.assume_of(asked)
            row["array_limit"][at] = asked.array_limit
            row["dependency"][at] = self._dependencies.code(asked.dependency)
            features = "" if "constraint" in cells else asked.constraint
            row["node_options"][at] = self._node_options.code(asked.nodes_asked(features))
            if self._resources:
                row["licenses"][at] = self._licenses.code(asked.licenses)
                if asked.gres or asked.gpus:
                    row["gres"][at] = self._gres.code(f"{asked.gres};{asked.gpus}")
            if "singleton" in asked.dependency:
                row["job_name"][at] = self._job_names.code(asked.job_name)
            if asked.begin:
                row["begin"][at] = slurm_moment(asked.begin, submits[i], self._zone)
            row["deadline"][at] = moment(due, submits[i], self._zone, self._rows)
            if asked.nodes is not None:
                ends = (min(count * asked.per_node, 2**31 - 1) for count in asked.nodes)
                row["size_min"][at], row["size_max"][at] = ends

    def _may_ask_for_gpus(self, cells: dict[str, Cells]) -> NDArray[np.bool_]:
        """Return which submit lines may ask for generic resources or types that no column tells."""
        line = cells["submit_line"]
        marked = read.marked(line, b"--gres", b"--gpu", b"--tres", b"-G", b"-per-gpu")
        rows = np.flatnonzero(marked)
        typed = [_GPU_TYPE.search(text) is not None for text in line.take(rows)]
        for role in ("asked_tres", "held_tres"):
            if role in cells and marked.any():
                marked &= self._without_gres(cells[role])[0] != 0
        marked[rows] |= np.array(typed, np.bool_)
        return marked

    def _generic(self, cells: dict[str, Cells], row: dict[str, NDArray[Any]]) -> None:
        """Fill in the generic resources of a column of their own, as before Slurm 21.08."""
        if "gres" not in cells:
            return
        codes = self._gres_column.codes(cells["gres"])
        texts = map(generic_column, self._gres_column.names())
        row["gres"] = np.array([*map(self._gres.code, texts), -1], np.int32)[codes]

    def log(self) -> Log:
        """Return everything taken in."""
        if self._local:
            zone = zone_label(self._zone_name)
            self._rows.remarks.append(f"the log's times are local times ({zone})")
        names = {name: interner.names() for name, interner in self._texts.items()}
        names["nodes"] = self._nodes.interner.names()
        names |= {name: interner.names() for name, interner in self._tres.items()}
        names["gres"] = self._gres.names()
        names["dependency"] = self._dependencies.names()
        names["node_options"] = self._node_options.names()
        names["licenses"] = self._licenses.names()
        names["constraint"] = self._constraints.names()
        return self._rows.log(self.format, names)


STATE_NUMBERS = "a State that is a number is read as Slurm's accounting database numbers job states"

DECIMAL_IDS = "all JobIDs end in .0, as decimal numbers do: they are taken to be jobs, not steps"

_GPU_TYPE = re.compile(
    rb"gpu:(?:[^\s:,=]+[:=]|[^\s:,=]*[A-Za-z])|-(?:G|-gpus[^\s=]*)[\s=]*[^\s:=]+:"
)
"""What a submit line has if it names a type of GPU."""

_WHOLE_MINUTES = re.compile(rb"[0-9-]+[T ][0-9]+:[0-9]+(?:[+-][0-9:]+|Z)?")
"""A time without seconds."""

_LONGEST_RECORD = 1 << 20
"""A record has no more bytes."""


def _cut(text: bytes, header: Header) -> tuple[bytes, bytes]:
    """Return lines without the last record, which may go on in the next block, and that record."""
    end, least = len(text), max(0, len(text) - _LONGEST_RECORD)
    while (start := text.rfind(b"\n", least, end - 1)) >= 0:
        if begins_record(text[start + 1 : end], header.columns, header.delimiter):
            return text[: start + 1], text[start + 1 :]
        end = start + 1
    return text, b""


def read_header(
    source: Source, block: bytes, delimiter: str | None, columns: str | None = None
) -> tuple[Header, bytes, int]:
    """Return the header of a file, the text of `block` behind it, and how many lines it takes.

    Parameters
    ----------
    source : Source
    block : bytes
        The first piece of the file.
    delimiter : str or None
        What separates fields; None: find out.
    columns : str or None
        Names of the columns, for a file without a header line; None: guess.

    Raises
    ------
    InputError
        If it lacks what no log can do without.
    ConfigError
        If `columns` is no list of columns.
    """
    block = block.removeprefix(b"\xef\xbb\xbf")
    start = len(block) - len(block.lstrip(b"\r\n "))  # a tab is a field
    line, _, rest = block[start:].partition(b"\n")
    number = block.count(b"\n", 0, start) + 1
    guess = ""
    if not is_header(line):
        made = None
        if columns is not None:
            made = header_of(source.path, block, columns_named(columns), delimiter)
        elif made := guessed_header(block, delimiter):
            guess = guess_note(Header(made, None).columns)
        if made is not None:
            line, rest, number = made, block[start:], number - 1
    header = Header(line, delimiter)
    header.guessed = guess
    if delimiter and len(header.columns) == 1:
        raise InputError(
            source.path,
            f"the delimiter {delimiter!r} is not in the header; name the right one, or leave it to "
            "be found out",
            line=number,
        )
    missing = header.missing()
    if missing:
        raise InputError(
            source.path,
            f"the header has no column {missing}; make the log with `{SACCT}`",
            line=number,
        )
    header.read_ids(header.unpadded(rest))
    return header, rest, number


def second_table(path: str, line: int) -> InputError:
    """Return the error of a file that goes on with another table."""
    return InputError(
        path,
        "a header with other columns follows; make a file of each table, and name them all",
        line=line,
    )


def read_fields(line: bytes, header: Header) -> tuple[str, list[bytes]]:
    """Return why a line that is not cut in as many fields as columns is left out, or its fields.

    Neither for a line of a step: that is passed over.
    """
    fields = line.split(header.delimiter)
    if len(fields) < len(header.columns):
        return "the line is cut short (too few fields)", []
    ways = {}
    for way in readings(header.columns, fields, header.delimiter):
        chosen = [way[at] for at in header.place.values()]
        ways[_gist(chosen, list(header.place))] = way
    likely = next(iter(ways.values()), [])
    fixed = [at for role, at in header.place.items() if role not in _FREE]
    if len(ways) > 1 and all(way[at] == likely[at] for way in ways.values() for at in fixed):
        return "", likely  # they differ in free text only
    if ways and all(b"." in way[header.place["id"]] for way in ways.values()):
        return "", []  # a step, however it is read
    if len(ways) == 1:
        return "", next(iter(ways.values()))
    return "a field holds the delimiter (use another --delimiter, or --json)", []


def _agree(row: dict[str, NDArray[Any]], zone: tzinfo | None, clock: float) -> None:
    """Read starts and ends in an hour that the clock shows twice as the run time says.

    `clock`: seconds in which times count.
    """
    if not row.keys() >= {"start", "end", "elapsed"}:
        return
    start, end = row["start"], row["end"]
    rows = np.flatnonzero(np.abs(end - start - row["elapsed"]) > clock)
    if not len(rows):
        return
    later = [until_repeated(times[rows], zone) for times in (start, end)]
    choices = np.array([(0, 0), (0, 1), (1, 1), (1, 0)])
    late_start, late_end = (choices[:, [at]] * later[at] for at in (0, 1))
    rest = (end - start - row["elapsed"])[rows] + late_end - late_start
    best = np.argmin(np.where(rest > -clock, rest, np.inf), axis=0)
    at = np.arange(len(rows))
    start[rows] += late_start[best, at]
    end[rows] += late_end[best, at]


def zone_label(name: str | None) -> str:
    """Return what a time zone is called; None is this machine's own."""
    return name or f"this machine's zone, {datetime.now().astimezone().tzname()}"


def moment(text: str, submit: float, zone: Any, rows: SlurmRows) -> float:
    """Return the deadline that a text means, inf if it means none, and count the odd ones."""
    if not text:
        return np.inf
    value = slurm_moment(text, submit, zone)
    if not value > submit:
        rows.assume("a deadline that is no time after the submit time is left out")
        return np.inf
    return value


def per_processor(total: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return bytes per processor, rounded up, -1 where the total is not known or 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.ceil(total / size)
    known = (share > 0) & (share < 2.0**60)
    return np.where(known, share, -1.0).astype(np.int64)


_TOTAL, _PER_CPU, _PER_NODE = 0.0, 1.0, 2.0


_RAW_MEMORY = re.compile(r"(\d{1,20})(?:\.0+|,0)?([MGTP]?)(n?)", re.ASCII)


def _req_mem(text: str) -> tuple[float, float]:
    """Return the bytes of a ReqMem and what they count for.

    Before 21.08 it ended in `c` (per CPU) or `n` (per node). Old records, printed by a later Slurm
    or by exporters, may have the flag MEM_PER_CPU (once bit 31, then 63) still in the MiB.
    """
    text = text.strip()
    if raw := _RAW_MEMORY.fullmatch(text):
        size = int(raw[1]) << 10 * "MGTP".index(raw[2])
        for bit in (63, 31) if raw[3] or not raw[2] else (63,):  # all of a job may ask for 2 PiB
            if size >> bit == 1:
                return float(size - (1 << bit) << 20), _PER_CPU
    basis = {"c": _PER_CPU, "n": _PER_NODE}.get(text[-1:].lower(), _TOTAL)
    return size_bytes(text.removesuffix(",0"), "M"), basis


def _tres_cpus(text: str) -> float:
    """Return the processors in `billing=4,cpu=4,mem=50M,node=1`; nan if it has none."""
    match = re.search(r"(?:^|,)cpu=(\d{1,10})(?:,|$)", text, re.ASCII)
    return float(match[1]) if match else np.nan


def _gist(fields: list[bytes], roles: list[str]) -> tuple[object, ...]:
    """Return what counts of the fields: two readings with one gist are the same to us."""
    values = dict(zip(roles, fields, strict=True))
    words = [readable(values.pop(role, b"")) for role in _FREE]
    return (*values.items(), submit_line(words[0]), deadline_in(*words[1:]))


def _as_cells(lines: list[list[bytes]], roles: list[str]) -> dict[str, Cells]:
    """Return the columns of lines that are given field by field."""
    widths = np.array([[len(field) for field in line] for line in lines], np.int32)
    ends = np.cumsum(widths.ravel(), dtype=np.int32).reshape(widths.shape)
    text = b"".join(field for line in lines for field in line)
    return {
        role: Cells(text, (ends - widths)[:, i].copy(), ends[:, i].copy())
        for i, role in enumerate(roles)
    }
