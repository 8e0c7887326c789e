"""Writes a log of any format anew with pseudonyms in place of names, record by record.

Only what a reader of that format reads is written, each value in a form that is known: nothing else
of the log can get through.
"""

from __future__ import annotations

import gzip
import math
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, TYPE_CHECKING

import msgspec

from rtsched.errors import InputError, OutputError
from rtsched.logs.ad_files import read_ads
from rtsched.logs.classads import Expression, Record, number, text
from rtsched.logs.condor_history import ATTRIBUTES, accounting_group
from rtsched.logs.hostlist import expand
from rtsched.logs.readers import ReadOptions, reader_of
from rtsched.logs.sacct import read_fields, read_header, second_table
from rtsched.logs.sacct_json import Record as SlurmRecord
from rtsched.logs.sacct_json import Reserved, State, json_reason
from rtsched.logs.sacct_lines import is_header
from rtsched.logs.slurm_text import (
    ENDINGS,
    SubmitLine,
    deadline_in,
    generic_column,
    is_state_number,
    licenses_in,
    state_name,
    submit_line,
)
from rtsched.logs.source import MESSAGE, Source, json_records, readable
from rtsched.logs.swf import COMMENT, FIELDS, HEADER, NAMED, NUMBERED, header_name, parse_lines
from rtsched.model.log import Skipped
from rtsched.model.resources import GRES, LICENSE
from rtsched.model.units import slurm_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rtsched.logs.anonymous.pseudonyms import Pseudonyms
    from rtsched.logs.sacct_lines import Header

    Written = Iterator[bytes]


STEP = "it is a step of a job, which no replay needs"
NO_ID = "its job id has an unknown form"
_NO_VALUE = "a value of column {} has an unknown form"


@dataclass
class Anonymised:
    """What was written, and what was not.

    Attributes
    ----------
    format : str
        Name of the log's format.
    records : int
        Jobs written.
    skipped : Skipped
        Records that were not written.
    blanked : Skipped
        Values that were not written, of records that were.
    columns_left_out : tuple of str
        Columns of sacct's text that were not written.
    assumptions : tuple of str
        What had to be assumed.
    """

    format: str
    records: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    blanked: Skipped = field(default_factory=Skipped)
    columns_left_out: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def anonymise(
    log: str | Path,
    output: Path,
    names: Pseudonyms,
    options: ReadOptions | None = None,
    *,
    before_release: Callable[[], None] = lambda: None,
) -> Anonymised:
    """Write a log with pseudonyms in place of names; on errors nothing is written.

    Parameters
    ----------
    log : path
        Plain or gzip.
    output : path
        Packed with gzip if it ends in `.gz`.
    names : Pseudonyms
    options : ReadOptions, optional
        What the log does not say itself.
    before_release : callable, optional
        Called when all is written, before the output has its name.

    Raises
    ------
    InputError
        If the log cannot be read, or there is no job in it.
    OutputError
        If the output cannot be written.
    """
    options = options or ReadOptions()
    with Source(log) as source:
        done = Anonymised(reader_of(source, options).format)
        writer = _WRITERS[done.format](source, names, done, options)
        for line in source.messages:
            writer.skip(MESSAGE, line)
        with _replaced(output) as file:
            for piece in writer.written():
                file.write(piece)
            if not done.records:
                raise InputError(source.path, _no_job(done))
            before_release()
    return done


def _no_job(done: Anonymised) -> str:
    why = "; ".join(f"{times} left out: {reason}" for reason, times in done.skipped.count.items())
    return f"no job in it ({why or f'read as {done.format}'}); check how the log was made"


@contextmanager
def _replaced(output: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `output` when all of it is written."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with open(part, "xb") as plain:
            if output.name.endswith(".gz"):
                # No time stamp and no name inside.
                with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield plain
        part.replace(output)
    except OSError as error:
        raise OutputError(
            output, f"cannot be written ({error.strerror}); check the place"
        ) from error
    finally:
        part.unlink(missing_ok=True)


class _Writer:
    """Writes one log."""

    def __init__(
        self, source: Source, names: Pseudonyms, done: Anonymised, options: ReadOptions
    ) -> None:
        self.source, self.names, self.done, self.options = source, names, done, options
        self.words = SlurmWords(names)

    def written(self) -> Written:
        """Yield what is written."""
        raise NotImplementedError

    def skip(self, reason: str, line: int) -> None:
        """Count a record that is not written."""
        self.done.skipped.add(reason, f"{self.source.path}:{line}")

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and text of each line that is not blank."""
        before = 0
        for block in self.source.line_blocks():
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            for at, line in enumerate(lines, before + 1):
                if line.strip():
                    yield at, line.removesuffix(b"\r")
            before += len(lines)


# --- SWF ------------------------------------------------------------------------------------------

_HEAD_NUMBER = re.compile(rb"[+-]?\d{1,20}(?:\.\d{1,3})?\b", re.ASCII)
_SWF_NAMES = {"user": "user", "group": "account", "application": "job"}
_OUT_OF_RANGE = b"1e300"


class _SwfWriter(_Writer):
    def written(self) -> Written:
        for line, content in self.lines():
            if content.lstrip().startswith(COMMENT):
                head = self._head(content) if not self.done.records else b""
                if head:
                    yield head
            elif len(parse_lines(content)[1]):
                self.done.records += 1
                yield self._fields(content.split())
            else:
                self.skip(f"the line is not {len(FIELDS)} numbers", line)

    def _head(self, content: bytes) -> bytes:
        match = HEADER.fullmatch(content)
        if match is None:
            return b""
        name, value = header_name(match[1]), match[2]
        named = NAMED.fullmatch(value)
        if name in {"Queue", "Partition"} and named is not None:
            shown = self.words.name("partition", readable(named[2]))
            return b"; %s: %s %s\n" % (match[1], named[1], shown.encode())
        found = _HEAD_NUMBER.match(value) if name in NUMBERED else None
        return b"; %s: %s\n" % (match[1], found[0]) if found is not None else b""

    def _fields(self, fields: list[bytes]) -> bytes:
        for name, kind in _SWF_NAMES.items():
            at = FIELDS.index(name)
            value = float(fields[at])
            if value >= 0:
                known = value < 2.0**53
                fields[at] = b"%d" % self.names.number(kind, int(value)) if known else _OUT_OF_RANGE
        return b" ".join(fields) + b"\n"


# --- sacct text -----------------------------------------------------------------------------------

_NUMBER = re.compile(r"\d{0,15}(?:\.\d{1,3}|,0)?[KM]?", re.ASCII)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ][\d:.]{5,15})?(?:Z|[+-][\d:]{2,6})?|\d{1,11}(?:[.,]0)?|"
    r"Unknown|None|N/A|",
    re.ASCII,
)
_DURATION = re.compile(
    r"(?:\d{1,9}-)?[\d:.]{0,20}(?:,0)?|UNLIMITED|Partition_Limit|INVALID", re.ASCII | re.IGNORECASE
)
_SIZE = re.compile(r"[\d.]{1,20}(?:,0|[KMGTPE]?[cn]?)|0?", re.ASCII | re.IGNORECASE)
_FORMS = {
    _NUMBER: "jobidraw elapsedraw reqcpus alloccpus ncpus nnodes allocnodes reqnodes restarts",
    _TIME: "submit eligible start end",
    _DURATION: "elapsed timelimit timelimitraw",
    _SIZE: "reqmem",
}
FORMS = {name: form for form, names in _FORMS.items() for name in names.split()}
"""Columns of sacct whose values are written as they are, if they have this form."""
NAMES = {
    "user": "user",
    "uid": "user-id",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "cluster": "cluster",
    "jobname": "job",
    "reservation": "reservation",
}
"""Columns that hold one name, and its kind."""
TEXTS = (
    *("jobid", "state", "reqtres", "alloctres", "reqgres", "allocgres"),
    *("nodelist", "constraints", "submitline"),
)
"""Columns of which what is known is written anew."""
DEADLINES = ("extra", "comment")
"""Columns of which only the deadline is written."""
_MAY_HOLD_A_PIPE = frozenset(("constraints", "submitline"))
_FREE_DELIMITER = "^"
"""It is in no value that is written."""


class _SacctWriter(_Writer):
    def written(self) -> Written:
        header: Header | None = None
        before = 0
        for block in self.source.line_blocks():
            content = block
            if header is None:
                header, content, skipped = read_header(
                    self.source, block, self.options.delimiter, self.options.columns
                )
                self.done.assumptions = (header.guessed,) if header.guessed else ()
                yield self._head(header)
                before += skipped
            lines = header.plain(content).split(b"\n")
            if not lines[-1]:
                lines.pop()
            for at, line in enumerate(lines, before + 1):
                yield self._line(at, line.removesuffix(b"\r"), header)
            before += len(lines)

    def _head(self, header: Header) -> bytes:
        spare = ("name", "held_tres", "gres")
        for role in (*spare, *(("asked_tres",) if "asked" in header.place else ())):
            header.place.pop(role, None)  # what may be cut in two ways need not be the same in both
        writers: dict[str, Callable[[str], str]] = {
            "jobid": job_id,
            "state": state,
            "reqtres": self.words.resources,
            "alloctres": self.words.resources,
            "reqgres": self.words.generic_column,
            "allocgres": self.words.generic_column,
            "nodelist": self.words.nodes,
            "constraints": self.words.features,
            "submitline": self.words.submit_line,
            **dict.fromkeys(DEADLINES, self.words.comment),
        }
        self._columns = [
            (at, name, writers.get(name))
            for at, name in enumerate(header.columns)
            if name in FORMS or name in NAMES or name in writers
        ]
        names = [name for _, name, _ in self._columns]
        self.done.columns_left_out = tuple(each for each in header.columns if each not in names)
        free = not _MAY_HOLD_A_PIPE.intersection(names)
        self._delimiter = "|" if free else _FREE_DELIMITER
        shown = header.line.split(header.delimiter)
        return self._joined(shown[at].decode("ascii").strip() for at, _, _ in self._columns)

    def _joined(self, values: Iterator[str]) -> bytes:
        return self._delimiter.join(values).encode() + b"\n"

    def _line(self, line: int, content: bytes, header: Header) -> bytes:
        if not content.strip() or content.strip(b"\r\n ") == header.line:
            return b""
        if is_header(content):
            raise second_table(self.source.path, line)
        fields = content.split(header.delimiter)
        if len(fields) != len(header.columns):
            reason, fields = read_fields(content, header)
            if reason or not fields:
                self.skip(reason or STEP, line)
                return b""
        known = readable(fields[header.place["id"]])
        if not job_id(known):
            self.skip(STEP if job_id(known.partition(".")[0]) else NO_ID, line)
            return b""
        self.done.records += 1
        return self._joined(
            self._value(line, name, write, readable(fields[at]))
            for at, name, write in self._columns
        )

    def _value(self, line: int, name: str, write: Callable[[str], str] | None, value: str) -> str:
        if write is not None:
            made = write(value)
        elif name in NAMES:
            made = self.words.name(NAMES[name], value)
        else:
            made = value if FORMS[name].fullmatch(value) else ""
        if value and not made and name not in {*DEADLINES, "submitline"}:
            self.done.blanked.add(_NO_VALUE.format(name), f"{self.source.path}:{line}")
        return made


# --- sacct JSON -----------------------------------------------------------------------------------


class _SacctJsonWriter(_Writer):
    def written(self) -> Written:
        decoder = msgspec.json.Decoder(SlurmRecord, strict=True)
        encoder = msgspec.json.Encoder()
        yield b'{"jobs": ['
        for line, content in json_records(self.source):
            try:
                record = decoder.decode(content)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                self.skip(json_reason(error), line)
                continue
            self._replace(record)
            yield (b",\n" if self.done.records else b"\n") + encoder.encode(record)
            self.done.records += 1
        yield b"\n]}\n"

    def _replace(self, record: SlurmRecord) -> None:
        """Put pseudonyms into a record of what a reader reads."""
        words = self.words
        for name in ("user", "account", "partition", "qos", "cluster"):
            setattr(record, name, self._name(name, getattr(record, name)))
        if record.association is not None:
            for name in ("user", "account"):
                value = self._name(name, getattr(record.association, name))
                setattr(record.association, name, value)
        record.name = self._name("job", record.name)
        record.nodes = words.nodes(record.nodes or "") or None
        record.submit_line = words.submit_line(record.submit_line or "") or None
        if record.constraints is not None:
            record.constraints = words.features(record.constraints)
        record.extra = words.comment(record.extra or "") or None
        record.comment = words.comment(record.own_comment) or None
        place = record.reservation
        inside = place.name if isinstance(place, Reserved) else place
        record.reservation = self._name("reservation", inside if isinstance(inside, str) else None)
        states = record.state.current if isinstance(record.state, State) else record.state
        first = states[0] if isinstance(states, list) and states else states
        record.state = state(first) if isinstance(first, str) else None
        if record.array is not None and record.array.task:
            record.array.task = "0"
        for amounts in (record.tres.requested, record.tres.allocated) if record.tres else ():
            for amount in amounts or ():
                whole = f"{amount.type}/{amount.name}" if amount.name else amount.type
                kind, slash, rest = words.resource(whole).partition("/")
                amount.type, amount.name = kind, rest if slash else None

    def _name(self, kind: str, name: str | None) -> str | None:
        return self.words.name(kind, name or "") or None


# --- HTCondor -------------------------------------------------------------------------------------

_WRITTEN = (
    "ClusterId ProcId GlobalJobId Owner AcctGroup JobUniverse JobStatus JobPrio QDate "
    "JobStartDate JobCurrentStartDate CompletionDate EnteredCurrentStatus NumJobStarts ExitCode "
    "ExitBySignal RemoteWallClockTime CommittedTime CommittedSuspensionTime "
    "CumulativeSuspensionTime AllowedExecuteDuration AllowedJobDuration MaxRuntime RequestRuntime "
    "RtRunTime RtDeadline RequestCpus CpusProvisioned MinHosts MaxHosts RequestMemory "
    "MemoryProvisioned MemoryUsage ResidentSetSize RequestDisk DiskProvisioned DiskUsage "
    "RequestGPUs GPUsProvisioned TransferInputSizeMB LastRemoteHost LastVacateTime Cmd DAGManJobId "
    "DAGNodeName DAGParentNodeNames DeferralTime DeferralPrepTime JobMaterializeLimit "
    "ConcurrencyLimits"
)
ATTRIBUTE_NAMES = tuple(_WRITTEN.split())
"""What is written of an ad, in this order. Owner has User in it, AcctGroup AccountingGroup."""
_SLOT = re.compile(r"slot\d{1,6}(?:_\d{1,6})?", re.ASCII)
_JOB = re.compile(r"[\d.#]{1,60}", re.ASCII)


class _HistoryWriter(_Writer):
    def written(self) -> Written:
        for _, ad in read_ads(self.source, ATTRIBUTES, self.skip):
            self.done.records += 1
            texts = self._texts(ad)
            lines = (self._line(name, ad, texts) for name in ATTRIBUTE_NAMES)
            yield "".join(lines).encode() + b"\n"

    def _line(self, name: str, ad: Record, texts: dict[str, str | None]) -> str:
        key = name.lower()
        if key in texts:
            return f'{name} = "{texts[key]}"\n' if texts[key] else ""
        value = ad.get(key)
        if isinstance(value, bool):
            return f"{name} = {str(value).lower()}\n"
        amount = number(ad, key)
        if key == "rtdeadline" and value is not None and math.isnan(amount):
            return f"{name} = -1\n"  # counted by readers as one that makes no sense
        if isinstance(value, Expression) and key.startswith("request") and math.isnan(amount):
            return f"{name} = {UNREADABLE}\n"
        return f"{name} = {amount:.17g}\n" if math.isfinite(amount) else ""

    def _texts(self, ad: Record) -> dict[str, str | None]:
        name = self.words.name
        parents = (part.strip() for part in (text(ad, "dagparentnodenames") or "").split(","))
        group = accounting_group(ad) or ""
        return {
            "owner": name("user", text(ad, "owner", "user") or ""),
            "acctgroup": ".".join(name("account", part) for part in group.split(".")),
            "globaljobid": self._global_id(text(ad, "globaljobid") or ""),
            "lastremotehost": self._host(text(ad, "lastremotehost") or ""),
            "cmd": name("program", text(ad, "cmd") or ""),
            "concurrencylimits": name("license", text(ad, "concurrencylimits") or ""),
            "dagnodename": name("dag-node", text(ad, "dagnodename") or ""),
            "dagparentnodenames": ",".join(name("dag-node", part) for part in parents),
        }

    def _global_id(self, known: str) -> str:
        schedd, mark, rest = known.partition("#")
        rest = rest if _JOB.fullmatch(rest) else self.names.unlisted("job", rest)
        return f"{self.words.name('schedd', schedd)}{mark}{rest if mark else ''}"

    def _host(self, place: str) -> str:
        slot, mark, host = place.partition("@")
        if not mark:
            return self.words.nodes(place)
        return f"{slot if _SLOT.fullmatch(slot) else 'slot'}@{self.words.name('node', host)}"


_WRITERS: dict[str, type[_Writer]] = {
    "swf": _SwfWriter,
    "sacct": _SacctWriter,
    "sacct-json": _SacctJsonWriter,
    "condor-history": _HistoryWriter,
}


UNREADABLE = "unreadable"
"""Stands where a reader finds nothing that it can use, and counts that."""

_JOB_ID = re.compile(r"(\d{1,18})(?:([_+])(?:(\d{1,18})|\[.*))?", re.ASCII | re.DOTALL)
_CONDITION = re.compile(
    r"(?:after(?:any|ok|notok|corr|burstbuffer)?:)?\d[\d_*+:]*|singleton", re.ASCII
)
_FEATURE = re.compile(r"[^&|()\[\]*,\s]+")
_GENERIC = re.compile(r"([^:]+(?::(?!\d+$)[^:]+)?)(?::(\d{1,9}))?", re.ASCII)
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_TRES = re.compile(r"([^=,\s]+)=(\d{1,15}(?:\.\d{1,9})?[KMGTPEkmgtpe]?)", re.ASCII)
_PLAIN_TRES = frozenset(("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem"))
_PLAIN_GRES = frozenset(("gpu", "mps", "shard"))
_NO_NODES = frozenset(("None assigned", "(null)"))
_HUGE = 999_999_999
_LEAP_YEAR = 946_684_800.0


def job_id(text: str) -> str:
    """Return a job id; empty if it is none. Which tasks of an array are pending is left out."""
    match = _JOB_ID.fullmatch(text)
    if match is None:
        return ""
    number, mark, part = match.groups()
    return number if mark is None else f"{number}{mark}{part or '[0]'}"


def state(text: str) -> str:
    """Return a state, or its number, without who cancelled the job."""
    word = state_name(text)
    return word if word in ENDINGS or is_state_number(word) else ""


def moment(text: str) -> str:
    """Return a time as users may state it, `now+2hours`; `UNREADABLE` for anything else."""
    known = slurm_moment(text, _LEAP_YEAR, None)
    return text if known == known else UNREADABLE


class SlurmWords:
    """Writes texts of Slurm anew, with pseudonyms."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        cached: Callable[..., Callable[[str], str]] = lru_cache(maxsize=8192)
        self.submit_line = cached(self._submit_line)
        self.resources = cached(self._resources)
        self.nodes = cached(self._nodes)

    def name(self, kind: str, text: str) -> str:
        """Return what stands for a name that may have any letters."""
        kept = kind in self._names.kept and not re.fullmatch(r"[\w.+@:/-]{1,80}", text, re.ASCII)
        return "" if kept else self._names.of(kind, text)

    def features(self, text: str) -> str:
        """Return `gpu&(fast|slow)` with other features."""

        def other(word: re.Match[str]) -> str:
            return word[0] if _COUNT.fullmatch(word[0]) else self.name("feature", word[0])

        return _FEATURE.sub(other, text)

    def partitions(self, text: str) -> str:
        """Return `long,short` with other partitions."""
        return ",".join(self.name("partition", name) for name in text.split(","))

    def _nodes(self, text: str) -> str:
        """Return a list with the node it names, or of as many nodes as it names."""
        if not text or text in _NO_NODES:
            return text
        try:
            hosts = list(dict.fromkeys(expand(text)))
        except ValueError:
            return self._names.unlisted("nodes", text)
        if "node" in self._names.kept and all(re.fullmatch(r"[\w.-]+", host) for host in hosts):
            return text
        if len(hosts) == 1:
            return self._names.of("node", hosts[0])
        return f"{self._names.unlisted('nodes', text)}-[1-{len(hosts)}]"

    def _resources(self, text: str) -> str:
        """Return `cpu=4,gres/gpu:a100=2,license/matlab=1` with other names."""
        pairs = (_TRES.fullmatch(pair) for pair in text.split(","))
        known = ((self.resource(pair[1]), pair[2]) for pair in pairs if pair is not None)
        return ",".join(f"{name}={amount}" for name, amount in known if name)

    def resource(self, name: str) -> str:
        """Return what stands for a trackable resource; empty if its kind is not known."""
        if name in _PLAIN_TRES:
            return name
        kind, _, rest = name.partition("/")
        if kind == LICENSE.rstrip("/"):
            return f"{LICENSE}{self.name('license', rest)}"
        if kind == "bb":
            return f"bb/{self.name('burst-buffer', rest)}"
        if kind != "gres":
            return ""
        generic, colon, model = rest.partition(":")
        generic = generic if generic in _PLAIN_GRES else self.name("gres", generic)
        return f"gres/{generic}{colon}{self.name('gres', model)}"

    def comment(self, *texts: str) -> str:
        """Return the deadline in free texts; nothing else of them."""
        due = deadline_in(*texts)
        return f"deadline={moment(due)}" if due else ""

    def _submit_line(self, text: str) -> str:
        """Return a submit line with what a reader reads of it; empty if that is nothing."""
        asked = submit_line(text)
        return "" if asked == SubmitLine() else " ".join(["sbatch", *self._options(asked)])

    def _options(self, asked: SubmitLine) -> list[str]:
        options = [*self._times(asked), *self._node_options(asked)]
        if asked.exclusive:
            options.append("--exclusive")
        if asked.owner_only:
            options.append("--exclusive=user")
        if asked.nodes is not None:
            least, most = (min(count, _HUGE) for count in asked.nodes)
            options.append(f"--nodes={least}-{most}")
            options.append(f"--cpus-per-task={min(asked.per_node, _HUGE)}")
        if asked.array_limit:
            options.append(f"--array=0%{asked.array_limit}")
        if asked.dependency:
            parts = re.split("([,?])", asked.dependency)
            known = (
                part if i % 2 or _CONDITION.fullmatch(part) else UNREADABLE
                for i, part in enumerate(parts)
            )
            options.append(f"--dependency={''.join(known)}")
        if asked.job_name:
            options.append(f"--job-name={self.name('job', asked.job_name)}")
        if asked.constraint:
            options.append(f"--constraint={self.features(asked.constraint)}")
        if asked.gres:
            options.append(f"--gres={self._generic(asked.gres)}")
        if asked.gpus:
            kinds = (each.removeprefix("gpu:") for each in self._generic(asked.gpus).split(","))
            options.append(f"--gpus={','.join(kinds)}")
        licenses = licenses_in(asked.licenses)
        if licenses:
            listed = (
                f"{self.name('license', name.removeprefix(LICENSE))}:{amount}"
                for name, amount in licenses.items()
            )
            options.append(f"--licenses={','.join(listed)}")
        return options

    def generic_column(self, text: str) -> str:
        """Return ReqGRES or AllocGRES with other names."""
        node, _, job = generic_column(text).partition(";")
        each = (f"PER_NODE:{part}" for part in self._generic(node).split(",") if part)
        return ",".join([*each, *filter(None, [self._generic(job)])])

    def _generic(self, text: str) -> str:
        """Return `gpu:a100:2,shard:1` with other names."""
        parts = (_GENERIC.fullmatch(part) for part in text.split(","))
        return ",".join(
            f"{self.resource(GRES + part[1]).removeprefix(GRES)}:{part[2] or 1}"
            for part in parts
            if part is not None
        )

    def _times(self, asked: SubmitLine) -> list[str]:
        times = {"deadline": asked.deadline, "begin": asked.begin}
        return [f"--{name}={moment(text)}" for name, text in times.items() if text]

    def _node_options(self, asked: SubmitLine) -> list[str]:
        options = []
        for word in asked.node_options.split(" --"):
            name, equals, value = word.removeprefix("--").partition("=")
            if equals:
                write = self.partitions if name == "partition" else self.nodes
                options.append(f"--{name}={write(value)}")
        return options
