"""Readers of logs, and `read_logs`, which picks the one that fits."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from rtsched.errors import ConfigError, InputError
from rtsched.logs.condor_history import RUNS, CondorHistoryReader
from rtsched.logs.sacct import SacctReader
from rtsched.logs.sacct_json import SacctJsonReader, is_squeue_json
from rtsched.logs.sacct_lines import SACCT, follows_messages, is_headerless
from rtsched.logs.sacct_rows import NO_CLUSTER, OTHER_CLUSTER
from rtsched.logs.source import MESSAGE, Source
from rtsched.logs.swf import SwfReader
from rtsched.model.log import Skipped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rtsched.model.log import Log


class ReadOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may say about log files; None: find out."""

    format: str | None = None
    """`swf`, `sacct`, `sacct-json` or `condor-history`."""
    delimiter: str | None = None
    """What separates the fields of `sacct` text."""
    timezone: str | None = None
    """The time zone of times without one, such as Europe/Berlin; None: this machine's."""
    details: bool = False
    """Whether to read job names and input sizes too, which only a calibration asks for."""
    resources: bool = False
    """Whether to read what jobs ask for on each node, for nodes that jobs share."""
    columns: str | None = None
    """Names of the columns of `sacct` text without a header line, as for `sacct --format`."""
    clusters: str | None = None
    """Clusters of sacct's log whose jobs are read, separated by commas; None: all."""


class Reader(Protocol):
    """Reads all files of one format into one log."""

    format: ClassVar[str]

    def __init__(self, options: ReadOptions) -> None: ...

    @staticmethod
    def claims(head: bytes) -> bool:
        """Return whether a file that starts with `head` is of this format."""
        ...

    def read(self, source: Source) -> None:
        """Take in one file."""
        ...

    def log(self) -> Log:
        """Return everything taken in."""
        ...


READERS: tuple[type[Reader], ...] = (SwfReader, SacctJsonReader, SacctReader, CondorHistoryReader)

FORMATS: tuple[str, ...] = tuple(reader.format for reader in READERS)


def read_logs(paths: Sequence[str | Path], options: ReadOptions | None = None) -> Log:
    """Return the log in one or more files of one format.

    Parameters
    ----------
    paths : sequence of path
        Plain or gzip files; their content tells the format, not their name.
    options : ReadOptions, optional
        What the files do not say themselves.

    Raises
    ------
    InputError
        If a file cannot be read, is of no known format, or of another one than the first; if
        there is not one job in all of them.
    ConfigError
        If an option is wrong.
    MissingExtraError
        If the format needs a package that is not installed.
    """
    options = options or ReadOptions()
    if not paths:
        raise ConfigError(["give at least one log file"])
    reader: Reader | None = None
    skipped = Skipped()  # of several reasons that count alike the first is shown first
    for path in paths:
        with Source(path) as source:
            kind = reader_of(source, options)
            if reader is None:
                if options.clusters is not None and not kind.format.startswith("sacct"):
                    raise ConfigError(
                        ["--clusters: only logs of sacct name clusters; leave the option out"]
                    )
                reader = kind(options)
            elif reader.format != kind.format:
                raise InputError(
                    source.path,
                    f"is of format {kind.format}, but {paths[0]} is {reader.format}; "
                    "read files of one format at a time",
                )
            reader.read(source)
            for line in source.messages:
                skipped.add(MESSAGE, f"{source.path}:{line}")
    assert reader is not None  # noqa: S101  there is at least one path
    log = reader.log()
    if len(log.jobs) == 0:
        raise InputError(paths[0], _no_jobs(log))
    for reason, times in log.skipped.count.items():
        skipped.add(reason, log.skipped.first[reason], times)
    return replace(log, skipped=skipped)


_BEGINS = re.compile(
    rb"^(?:[ \t]*[{\[<]|[^\n]*(?:JobID|ClusterId)|\d[\w.+\[\]-]*[|,;\t^]|[A-Z]\w*[ \t]*="
    rb"|\*\*\*)",
    re.MULTILINE | re.IGNORECASE,
)
"""A line with which a log may begin behind messages."""
_MOST_PLACES = 500
_ANY_LINE = re.compile(rb"^[^\n]", re.MULTILINE)
_MOST_GUESSES = 8


def reader_of(source: Source, options: ReadOptions) -> type[Reader]:
    """Return the class that reads `source`.

    Raises
    ------
    InputError
        If the file is of no known format.
    ConfigError
        If the options name an unknown one.
    """
    kinds = [reader for reader in READERS if options.format in {None, reader.format}]
    if not kinds:
        raise ConfigError([f"unknown log format {options.format!r}: one of {', '.join(FORMATS)}"])
    head = source.head
    if options.format is None and not head.strip():
        raise InputError(source.path, "the file is empty; check how it was made")
    found = _found(head, kinds, options)
    if found is not None:
        source.begin(found[1])
        return found[0]
    if options.format is not None:
        return kinds[0]
    if b"\0" in head:
        raise InputError(source.path, _binary(head))
    if options.columns is not None:
        return SacctReader
    raise InputError(source.path, _unknown(head))


def _found(
    head: bytes, kinds: Sequence[type[Reader]], options: ReadOptions
) -> tuple[type[Reader], int] | None:
    """Return who reads a file, and where in its head the log begins, maybe behind messages."""
    lines = SacctReader in kinds and b"\0" not in head

    def headerless(at: int) -> bool:
        return lines and is_headerless(head[at:], options.columns, options.delimiter)

    for reader in kinds:
        if reader.claims(head):
            return reader, 0
    if headerless(0):
        return SacctReader, 0
    places = [line.start() for line in islice(_BEGINS.finditer(head), _MOST_PLACES)]
    lacking = None
    for at in places:
        for reader in kinds:
            if reader.claims(head[at:]):
                if reader is not SacctReader or follows_messages(head[:at], head[at:]):
                    return reader, at
                lacking = lacking or (reader, at)
    if options.columns is None:
        del places[_MOST_GUESSES:]
    else:
        places = [line.start() for line in _ANY_LINE.finditer(head)]
    return next(((SacctReader, at) for at in places if headerless(at)), lacking)


def _other(form: bytes, what: str, instead: str = "") -> tuple[re.Pattern[bytes], str]:
    remedy = instead or f"make the log with `{SACCT}`"
    said = f"this is {what}, not a log that rtsched reads; {remedy}"
    return re.compile(form, re.IGNORECASE), said


_CONDOR = "make the log with `condor_history -long`"
_SWF = "convert the accounting log to SWF"
_OTHERS = (
    _other(
        rb"\A[^\s=]*JOBID[^\s=]*\s+(?:\S+\s+)*(?:PARTITION|NODELIST|ST)\b",
        "what squeue or sprio prints",
    ),
    _other(rb"\APARTITION\s+AVAIL|\ANODELIST\s+NODES|\AHOSTNAMES?\s", "what sinfo prints"),
    _other(rb"\AJob ID: \d", "what seff prints"),
    _other(rb"\AJob id\s+Name\s|\A\{[^{}]*\"pbs_version\"", "what qstat prints", _SWF),
    _other(
        rb"\A-{20,}\s|\ACluster\||\A[^\n]* - \d{4}-\d\d-\d\dT\S+ \(\d+ secs\)",
        "what sreport or sacctmgr prints",
    ),
    _other(
        rb"(?m)^(?:sacct: \S|\S*sh: [^\n]*\bsacct\b|Slurm accounting storage is disabled)",
        "an error message of sacct",
        "mend its cause, then make the log again",
    ),
    _other(rb'\A\{.*"@(?:submit|start|end)"', "JSON of jobcomp/elasticsearch"),
    _other(
        rb"\A(?:-- \w+ dump|INSERT INTO|(?:\+[+-]*\s+)?[^\n]*\bid_job\b)",
        "a dump of a database",
    ),
    _other(rb"\AJobId=\d+ UserId=", "a job completion log (jobcomp/filetxt)"),
    _other(rb"\AJobId=\d+", "what `scontrol show job` prints"),
    _other(rb"\A(?:PartitionName|ReservationName|LicenseName)=", "what scontrol shows"),
    _other(
        rb"\A(?:[^\n|]*\|)*(?:GraceTime|GrpTRES|MaxJobs|TimeStart|RawUsage|Share|ParentName)\b",
        "what sacctmgr or sshare prints",
        "give it as --qos, --associations or --outages, beside the log",
    ),
    _other(
        rb"(?m)^\s*(?:SlurmctldHost|ControlMachine|SelectType|SlurmctldPort|AuthType)\s*=",
        "a slurm.conf",
        "give it as --cluster, beside the log",
    ),
    _other(rb"\A\[\d{4}-\d\d-\d\dT[\d:.]+\]", "a log file of Slurm's daemons"),
    _other(
        rb"\A\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Z];",
        "a log of PBS or Torque",
        _SWF,
    ),
    _other(rb'\A"JOB_(?:FINISH|NEW|START)"', "a log of LSF", _SWF),
    _other(rb"\A[^:\n{]*(?::[^:\n{]*){40,}", "a log of Grid Engine", _SWF),
    _other(
        rb"\A%YAML |\A(?:---\s+)?\w+:[^\n]*\n\s*(?:- |\w+:[ \n])",
        "YAML",
        "make the log with `sacct --json`",
    ),
    _other(rb"\A\d{3} \(\d+\.\d+\.\d+\) ", "a user's event log of HTCondor", _CONDOR),
    _other(
        rb"\A(?:ID\s+OWNER|-- Schedd|OWNER\s+BATCH_NAME|Name\s+OpSys)",
        "a table of HTCondor for reading by eye",
        _CONDOR,
    ),
    _other(
        rb"(?m)^(?:Machine|SlotID)[ \t]*=",
        "what condor_status prints",
        "give it as --cluster, beside the log",
    ),
    _other(rb"\A\d\d/\d\d/\d\d \d\d:\d\d:\d\d ", "a log file of HTCondor's daemons", _CONDOR),
    _other(
        rb"\A[^\n=]*\b(?:ClusterId|QDate|JobStatus|JobStartDate|CompletionDate|RequestCpus)\b[^\n=]*\n",
        "a table of HTCondor's attributes without ClusterId and ProcId",
        "have `condor_history -af:ht` print these too, and QDate and JobStatus",
    ),
    _other(
        rb"\A\"?[a-z][\w \"]*([,;\t|])(?:[\w \".()-]+\1)+[\w \".()-]+\r?\n",
        "a table without the columns JobID and Submit",
    ),
    _other(
        rb"(?m)^\d+(?:_\d+)?([|,;\t^]|[\x80-\xff]+)(?:[^\n]{0,2000}\1)?"
        rb"(?:\d{4}-\d\d-\d\d[T ]\d\d:|(?:COMPLETED|FAILED|CANCELLED|TIMEOUT)\b)",
        "the text of sacct without its header line (--noheader)",
        "make the log without that option, or name its columns with --columns, as for `sacct "
        "--format`",
    ),
    _other(
        rb"\A(?:[^\s|,;^]*#)?\d+(?:[._][\w.-]+)?(?:#\d+)?([|,;\t^ ]|[\x80-\xff]+)"
        rb"(?:[^\n]{0,2000}\1)?1\d{9}\b",
        "a table without names, as of `condor_history -format`, or sacct without its header line",
        "print it with `condor_history -af:h` or `-long`, or name sacct's columns with --columns",
    ),
    _other(rb"\A(?:<!DOCTYPE|<html)", "an HTML page"),
    _other(
        rb'(?s)\A\{(?=.*"jobs"\s*:).*"(?:subtime|nb_res)"\s*:',
        "a workload of Batsim",
        "convert its jobs to SWF",
    ),
    _other(rb"\A#!", "a script"),
)
"""What else people have at hand, by its beginning, and what to do."""


_STORED = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "HDF5",
}
"""How files begin in which programs store tables."""


def _binary(head: bytes) -> str:
    """Return what to do about a file that is no text."""
    for magic, name in _STORED.items():
        if head.startswith(magic):
            return (
                f"this is {name}, not a log that rtsched reads; write its jobs as CSV, with "
                "sacct's or HTCondor's own names of columns"
            )
    return "binary data, not a log; check the file name"


def _unknown(head: bytes) -> str:
    """Return what to do about a file that no reader claims."""
    start = head.lstrip()
    if start.startswith(b"{") and is_squeue_json(head) and b'"pbs_version"' not in head:
        return (
            "this is JSON of squeue or of `scontrol show jobs`, not a log that rtsched reads; make "
            "the log with `sacct --json`"
        )
    begins = (b"---", b"%YAML ", b"Job ID ", b"Job id ")
    by_eye = b"\n---" in head[:2000] and not start.startswith(begins)
    if by_eye or start.startswith(b"JobID "):
        return f"this is sacct's table for reading by eye; make the log with `{SACCT}`"
    if RUNS.search(head):
        return (
            "this is HTCondor's epoch history, with a record for each run and none for the whole "
            "job; give the history file, or make the log with `condor_history -long`"
        )
    for form, what in _OTHERS:
        if form.search(start[:4000]):
            return what
    if start.startswith(b"<?xml"):
        return "XML without jobs of HTCondor; make the log with `condor_history -xml` or `-json`"
    if start.startswith((b"NodeName=", b"ClusterName=")) or (
        re.search(rb'"nodes"\s*:\s*\[', start[:200])
    ):
        return "this describes a machine, not jobs; give it as the cluster file"
    if re.match(rb"[{[]\s*[\"'{[]", start):
        return (
            "JSON without jobs of Slurm or HTCondor; make the log with `sacct --json` or "
            "`condor_history -json`"
        )
    return (
        "not a log that rtsched knows: SWF, `sacct -P` or `--json` of Slurm, or history of "
        "HTCondor (raw, -long, -json, -xml, -af:h); check the file, or name its format"
    )


def _no_jobs(log: Log) -> str:
    """Return why there is no job in a log."""
    count = log.skipped.count
    if not count:
        steps = ", maybe steps only" if log.format == "sacct" else ""
        return f"no job in it{steps} (read as {log.format}); check how the log was made"
    reason, times = count.most_common(1)[0]
    where = log.skipped.first[reason]
    remedy = "check how the log was made"
    if reason.endswith("is no time"):
        remedy = "make the log with SLURM_TIME_FORMAT=standard"
    elif reason == OTHER_CLUSTER:
        remedy = "name another cluster by --clusters, or leave the option out"
    elif reason == NO_CLUSTER:
        remedy = "make the log with the column Cluster, or leave --clusters out"
    return (
        f"no usable job in it (read as {log.format}): {count.total()} records left out, {times} "
        f"because {reason} (first at {where}); {remedy}"
    )
