"""Formats told apart, files that cannot be read, columns that grow, lists of nodes."""

import bz2
import contextlib
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rtsched.errors import ConfigError, InputError
from rtsched.logs import FORMATS, ReadOptions, read_cluster, read_logs
from rtsched.logs.gather import Columns, compact, number_codes
from rtsched.logs.hostlist import expand, fold
from rtsched.model.log import Log

Read = Callable[..., Log]


LOGS = Path(__file__).parents[1] / "data" / "logs"
SAMPLES = sorted(LOGS.iterdir())
SWF = "; MaxProcs: 4\n" + "".join(
    f"{i} {i * 60} 3 60 2 -1 -1 2 90 -1 1 {i % 3} 1 -1 1 -1 -1 -1\n" for i in range(1, 12)
)
OPTIONS = ReadOptions(timezone="UTC")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_content_tells_the_format(
    path: Path, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Every sample is known under any name, plain or packed."""
    copy = tmp_path / "log.swf"
    copy.write_bytes(pack(path.read_bytes()))
    log, same = read_logs([copy], OPTIONS), read_logs([path], OPTIONS)
    assert log.format in FORMATS
    assert log.jobs.labels() == same.jobs.labels()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (b" \n\r\n ", "the file is empty"),
        (b"\0\1\2" * 99, "binary data"),
        (b"PAR1\x15\0\x15rubbish", "this is Parquet.*; write its jobs as CSV"),
        (b"SQLite format 3\0rubbish", "this is an SQLite database.*; write its jobs as CSV"),
        (b"hello world\n", "not a log that rtsched knows"),
        (b"\xff\xfeJ\0o\0b\0", "UTF-16"),
        (b"PK\3\4rubbish", r"packed with zip; unpack it first \(unzip\)"),
        (b"\x1f\x9d\x90rubbish", r"packed with compress; unpack it first"),
        (b"\x28\xb5\x2f\xfdrubbish", "packed with zstd; unpack it first"),
        (lzma.compress(b"x", lzma.FORMAT_ALONE), "packed with lzma; unpack it first"),
        (lzma.compress(SWF.encode())[:-20], "damaged xz data"),
        (lzma.compress(SWF.encode())[:40] + b"rubbish", "damaged xz data"),
        (bz2.compress(SWF.encode())[:-20], "damaged bzip2 data"),
        (b"BZh9rubbish and more of it", "damaged bzip2 data"),
        (gzip.compress(SWF.encode())[:-20], "damaged gzip data"),
        (b"\x1f\x8b\x08rubbish", "damaged gzip data"),
        (b"JobID JobName State\n------- --- ---\n", "make the log with `sacct --allusers"),
        (b"<?xml version='1.0'?>", "XML without jobs of HTCondor"),
        (b"<classads><c><a n='Name'><s>x</s></a></c></classads>", "not a log that rtsched knows"),
        (b"NodeName=a CPUs=3\n", "describes a machine"),
        (
            b" JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n 1 p a b R 1 1 n\n",
            "squeue",
        ),
        (b"PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\np* up 1 1 idle n\n", "sinfo"),
        (b"JobId=7 JobName=a\n   UserId=u(1)\n", "scontrol show job"),
        (b"JobId=7 UserId=u(1) GroupId=g(1) Name=a\n", "job completion log"),
        (b"Name|Priority|GraceTime|Preempt\nnormal|0|00:00:00|\n", "sacctmgr"),
        (b"# a comment\nClusterName=c\nSlurmctldHost=h\n", "slurm.conf"),
        (
            b'{"jobs": [{"job_id": 7, "job_state": ["RUNNING"], "submit_time": {"number": 9}}]}',
            "JSON of squeue",
        ),
        (b'{"meta": {}, "jobs": [{"account": "a", "job_state": "PENDING"}]}', "JSON of squeue"),
        (b"[2026-11-21T12:00:00.123] slurmctld version 26.05\n", "Slurm's daemons"),
        (b"11/21/2026 12:00:00;E;12.h;user=a group=b\n", "PBS"),
        (b'"JOB_FINISH" "10.1" 1795262400 1 2\n', "LSF"),
        (b"all.q:h:g:u:a:1" + b":0" * 40 + b"\n", "Grid Engine"),
        (b"000 (012.000.000) 2026-11-21 12:00:00 Job submitted from host: <1>\n", "event log"),
        (b"11/21/26 12:00:00 (pid:7) condor_schedd STARTING UP\n", "HTCondor's daemons"),
        (b"7|ann|2026-11-21T12:00:00|2026-11-21T12:01:00\n", "without its header line"),
        (b"7_4|ann|1795262400|1795262460|COMPLETED\n", "is the text of sacct without"),
        (b"Loading x\n\n7|ann|2026-11-21T12:00:00|b\n", "is the text of sacct without"),
        (b"7|ann|1795262400|1795262460|4|\n", "condor_history -format.*-af:h"),
        (b"7_ce.example.org|ann|60|1795262400|1795262460|\n", "condor_history -format.*-af:h"),
        (b"ap.example.org#7.0#1795262400|ann|60|1795262460\n", "condor_history -format.*-af:h"),
        (b"7.0 ann 1795262400 1795262460 4\n", "condor_history -format.*-af:h"),
        (b"<!DOCTYPE html><html>\n", "HTML"),
        (b"J\0o\0b\0I\0D\0|\0U\0s\0e\0r\0", "UTF-16"),
        (b"\0" * 257 + b"ustar\0", r"packed with tar; unpack it first \(tar xf\)"),
        (gzip.compress(gzip.compress(SWF.encode())), "packed with gzip twice"),
        (b"JobId=7 UserId=u(1) GroupId=g(1) Partition=p\n", "job completion log"),
        (b'{"jobid":7,"nodes":"n1","@start":"2026-11-21T12:00:00"}\n', "jobcomp/elasticsearch"),
        (b'{"JobID": "7", "User": "a"' + b', "x": "y"' * 40 + b"}\n", "JSON without jobs"),
        (b'ann@n1:~$ {"a": "b"' + b', "x": "y"' * 40 + b"}\n", "not a log that rtsched knows"),
        (b"[{'JobID': '7', 'User': 'a'}]\n", "JSON without jobs"),
        (b'{"sinfo": [{"nodes": {"total": 1}}]}', "JSON without jobs"),
        (b'{"meta": {}, "nodes": [{"name": "n1"}]}', "describes a machine"),
        (b"---\njobs:\n  - account: a\n", "YAML"),
        (b"-- MariaDB dump 10.19\n--\n", "dump of a database"),
        (b"Job ID: 7\nCluster: c\n", "what seff prints"),
        (b'Machine = "h"\nName = "slot1@h"\n', "what condor_status prints"),
        (
            b"ClusterId = 7\nProcId = 0\nQDate = 9\n*** EPOCH ClusterId=7 ProcId=0 RunInstanceId=0 "
            b'Owner="a" CurrentTime=9\n',
            "epoch history, with a record for each run",
        ),
        (b'[{"ClusterId": 7, "ProcId": 0, "EpochWriteDate": 9}]\n', "epoch history"),
        (b"-" * 80 + b"\nCluster Utilization\n  Cluster  Idle\n--------- ----\n", "sreport"),
        (b"Cluster|Account|Login|Proper Name|Used\n", "sreport"),
        (b"sacct: error: Connection refused\n", "an error message of sacct"),
        (b"sacct: unrecognized option '--foo'\n", "an error message of sacct"),
        (b"bash: line 1: sacct: command not found\n", "an error message of sacct"),
        (b"Loading x\nSlurm accounting storage is disabled\n", "an error message of sacct"),
        (b"#!/bin/sh\nsacct\n", "a script"),
        (
            b" ID QDate JobStatus\n 7.0 1795262400 4\n",
            "without ClusterId and ProcId.*; have `condor",
        ),
        (b"ClusterId,QDate\n7,1795262400\n", "without ClusterId and ProcId.*; have `condor"),
        (b"job,user,when\n1,a,2\n", "a table without the columns JobID and Submit"),
        (
            b"job_id;user;state;submit_time\n7;a;COMPLETED;2026-11-21 08:00:00\n",
            "a table without the columns JobID and Submit",
        ),
        (
            b"job_id|submit|state\n7|2026-11-21T08:00:00|COMPLETED\n",
            "a table without the columns JobID and Submit",
        ),
        (b"---\nmeta:\n  plugins:\n    data_parser: v\njobs:\n- account: a\n", "YAML"),
        (b"%YAML 1.1\n---\nmeta:\n  plugins:\n    data_parser: v\njobs:\n- account: a\n", "YAML"),
        (b"apiVersion: v1\nitems:\n- apiVersion: kueue.x-k8s.io/v1beta1\n", "YAML"),
        (b"job_db_inx\tid_job\ttime_submit\n1\t7\t1795262400\n", "dump of a database"),
        (b"+----+--------+\n| id_job | state |\n+----+--------+\n", "dump of a database"),
        (b"INSERT INTO `c_job_table` VALUES (1,2,3);\n", "dump of a database"),
        (b"Job ID    Name   User   S Queue\n------- ------ ------ - -----\n", "qstat.*to SWF"),
        (b'{"timestamp": 1, "pbs_version": "23", "Jobs": {"7.s": {"job_state": "F"}}}', "qstat"),
        (
            b"Cluster/User Utilization 2026-11-01T00:00:00 - 2026-11-29T23:59:59 (2505600 secs)\n"
            b"Usage reported in CPU Minutes\nCluster|Account|Login|Used\n",
            "sreport",
        ),
        (
            b'{"nb_res": 4, "jobs": [{"id": "1", "subtime": 10, "res": 2}],\n"profiles": {}}',
            "a workload of Batsim.*to SWF",
        ),
        (b'{"jobs": [{"id": "1"}]}', "JSON without jobs of Slurm or HTCondor"),
        (b"; Version: 2\n", "no job in it"),
        (
            b"; Version: 2\n1 2 3\n",
            "no usable job in it.* 1 because the line has fewer than 18 fields",
        ),
        (b"JobID|Submit|Start\n", "no job in it"),
        (b'{"jobs": []}', "no job in it"),
        (b'[{"ClusterId": "x"}]', "no usable job in it"),
    ],
)
def test_unreadable_content(read: Read, data: bytes, sentence: str) -> None:
    """What cannot be read is refused in one sentence that names the file and a remedy."""
    with pytest.raises(InputError, match=sentence) as caught:
        read(data)
    assert "\n" not in str(caught.value)
    assert str(caught.value.path).endswith("log")


def test_unreadable_files(tmp_path: Path) -> None:
    """Missing files, directories and files that may not be read."""
    with pytest.raises(InputError, match="no such file"):
        read_logs([tmp_path / "nothing"])
    with pytest.raises(InputError, match="name /dev/stdin"):
        read_logs(["-"])
    with pytest.raises(InputError, match="is a directory"):
        read_logs([tmp_path])
    with pytest.raises(InputError, match="not a file name"):
        read_logs(["a\0b"])
    closed = tmp_path / "closed"
    closed.write_text(SWF)
    closed.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(InputError, match="permission denied"):
            read_logs([closed])


def test_refused_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the system is passed on, with a remedy (root is refused nothing)."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match="permission denied; read it as a user who may"):
        read_logs([tmp_path / "x"])


def test_mixed_formats_are_refused(tmp_path: Path) -> None:
    """Files of two formats are not one log."""
    other = tmp_path / "log"
    other.write_text(SWF)
    with pytest.raises(InputError, match=r"is of format swf, but .* is sacct;"):
        read_logs([LOGS / "sacct_26.05.txt", other])


def test_options_are_checked(tmp_path: Path) -> None:
    """Unknown formats and empty lists of files are refused."""
    with pytest.raises(ConfigError, match="unknown log format 'csv'"):
        read_logs([LOGS / "sacct_26.05.txt"], ReadOptions(format="csv"))
    with pytest.raises(ConfigError, match="at least one log file"):
        read_logs([])


def test_a_format_can_be_named(read: Read) -> None:
    """A named format is taken even if the content looks otherwise."""
    data = b"oops\n" + SWF.encode()
    with pytest.raises(InputError):
        read(data)
    assert len(read(data, format="swf").jobs) == 11


def test_lines_that_end_as_on_old_macs(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spreadsheet's CSV for Macintosh has no line feeds."""
    monkeypatch.setattr("rtsched.logs.source.HEAD", 200)
    assert len(read(SWF.replace("\n", "\r")).jobs) == 11
    for quote in ("", '"'):
        rows = [("JobID", "Submit", "End", "NCPUS")]
        rows += [(str(i), "1795262400", "1795262460", "4") for i in range(1, 30)]
        lines = (",".join(f"{quote}{cell}{quote}" for cell in row) for row in rows)
        assert len(read("\r".join(lines)).jobs) == 29


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge line is no log, and is not kept in memory."""
    for name in ("BLOCK", "HEAD", "LONGEST_LINE"):
        monkeypatch.setattr(f"rtsched.logs.source.{name}", 1000)
    path = tmp_path / "log"
    path.write_text(SWF + "1 " * 9999)
    with pytest.raises(InputError, match="a line is longer"):
        read_logs([path])


def test_pipes_can_be_read(tmp_path: Path) -> None:
    """A log may come through a pipe, which can be read only once."""
    reading, writing = os.pipe()
    os.write(writing, SWF.encode())
    os.close(writing)
    log = read_logs([f"/dev/fd/{reading}"])
    os.close(reading)
    assert len(log.jobs) == 11


DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["flip", "delete", "insert", "cut", "digit"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=6,
)


def damaged(data: bytes, damage: list[tuple[str, float, bytes]]) -> bytes:
    """Return `data` with bytes changed."""
    for kind, place, junk in damage:
        at = int(place * len(data))
        if kind == "flip":
            data = data[:at] + bytes([data[at] ^ junk[0] if data else 0]) + data[at + 1 :]
        elif kind == "delete":
            data = data[:at] + data[at + 8 * len(junk) :]
        elif kind == "insert":
            data = data[:at] + junk + data[at:]
        elif kind == "digit":
            data = data[:at] + b"9" * junk[0] + data[at:]
        else:
            data = data[:at]
        data = data or b"x"
    return data


def shortened(path: Path) -> bytes:
    """Return the beginning of a sample, so that many can be tried."""
    data = path.read_bytes()
    return data[:12000] if path.suffix == ".txt" else data[:20000]


FUZZED = {path.name: shortened(path) for path in SAMPLES if "22.05" not in path.name}
FUZZED |= {"log.swf": SWF.encode(), "log.gz": gzip.compress(SWF.encode())}


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("name", sorted(FUZZED))
@given(damage=DAMAGE)
@settings(max_examples=25)
def test_damaged_files_give_an_error_or_a_log(
    tmp_path_factory: pytest.TempPathFactory, name: str, damage: list[tuple[str, float, bytes]]
) -> None:
    """Whatever happens to a file, the reader says so or leaves records out."""
    path = tmp_path_factory.getbasetemp() / f"damaged-{name}"
    path.write_bytes(damaged(FUZZED[name], damage))
    try:
        log = read_logs([path], OPTIONS)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        check(log)
    with contextlib.suppress(InputError):
        read_cluster(path)


def check(log: Log) -> None:
    """Assert what every log promises."""
    jobs, outcomes = log.jobs, log.outcomes
    assert len(jobs) == len(outcomes) > 0
    assert len(set(jobs.id.tolist())) == len(jobs) == len(jobs.labels())
    assert (jobs.size > 0).all()
    assert (jobs.submit >= 0).all()
    assert not (outcomes.end < outcomes.start).any()
    assert not (outcomes.run_time < 0).any()
    assert (jobs.wall_time > 0).all() or log.format == "sacct"
    assert (jobs.deadline > jobs.submit).all() or log.format != "condor-history"
    for column in ("user", "account", "partition", "qos"):
        assert all(text is None or text.isascii() or text for text in jobs.texts(column))


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_refused(tmp_path: Path, seed: int) -> None:
    """Random bytes are no log in any format."""
    path = tmp_path / "noise"
    path.write_bytes(np.random.default_rng(seed).bytes(5000))
    for name in (None, *FORMATS):
        with pytest.raises(InputError):
            read_logs([path], ReadOptions(format=name))


NUMBERS = st.integers(-(2**52), 2**52) | st.integers(-300, 300) | st.just(-1)


@given(blocks=st.lists(st.lists(NUMBERS, min_size=1, max_size=40), min_size=1, max_size=8))
def test_a_column_holds_what_was_appended(blocks: list[list[int]]) -> None:
    """Whatever types the blocks have, nothing is lost, and taken columns are exactly as long."""
    columns = Columns()
    for block in blocks:
        columns.append(len(block), {"number": compact(np.array(block, np.float64))})
    expected = [number for block in blocks for number in block]
    assert columns.rows == len(expected)
    assert columns.look("number").tolist() == expected
    taken = columns.take("number")
    assert taken.tolist() == expected
    assert taken.base is None or len(taken.base) == len(expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], np.int8),
        ([-1, 127], np.int8),
        ([-129], np.int16),
        ([32768], np.int32),
        ([2.0**31], np.int64),
        ([2.0**52], np.int64),
    ],
)
def test_whole_numbers_are_of_the_smallest_type(values: list[float], kind: type[np.int8]) -> None:
    """Most columns of a log are small codes or -1 throughout."""
    found = compact(np.array(values, np.float64))
    assert found.dtype == kind
    assert found.tolist() == values


@given(st.lists(st.integers(-128, 127) | st.sampled_from([-1, 126, 127]), min_size=1))
def test_codes_do_not_depend_on_the_type_of_numbers(values: list[int]) -> None:
    """Numbers of one byte give the codes and names that wide ones give."""
    wide: NDArray[np.int64] = np.array(values, np.int64)
    expected, found = (
        number_codes(wide, {3: "three"}),
        number_codes(wide.astype(np.int8), {3: "three"}),
    )
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found[1] == expected[1]
    assert found[0].tolist() == expected[0].tolist()
    named = [found[1][code] if code >= 0 else None for code in found[0].tolist()]
    assert named == [
        None if value < 0 else "three" if value == 3 else str(value) for value in values
    ]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["head"], "head"),
        (["n7"], "n7"),
        (["slow1", "slow2", "slow3", "fast5", "slow9"], "slow[1-3,9],fast5"),
        (["n09", "n10", "n9"], "n[09-10],n9"),
        (["r1n2", "r1n3", "r2n2"], "r1n[2-3],r2n2"),
        (["s9", "s10", "s11"], "s[9-11]"),
        (["a0", "a1", "b00", "b1"], "a[0-1],b00,b1"),
        (["gpu-a", "gpu-b"], "gpu-a,gpu-b"),
    ],
)
def test_fold(names, text):
    """Names that differ in their last number stand in one bracket."""
    assert fold(names) == text


@given(st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,5}[0-9]{0,4}", fullmatch=True)))
def test_folding_loses_nothing(names):
    """What is folded expands to the same names, each once."""
    assert sorted(expand(fold(names))) == sorted(set(names))


@pytest.mark.parametrize("text", ["n[1-999999]", "n[1-30][1-30]", "n1,n[2-102]", "n[1-50],m[1-51]"])
def test_no_more_names_than_allowed_are_made(text: str) -> None:
    """A list of 100 nodes and one more."""
    with pytest.raises(ValueError, match="more than 100 nodes"):
        expand(text, 100)
    assert len(expand("n[1-10][1-10]", 100)) == 100


@pytest.mark.parametrize("text", ["n[2-1]", "a,b[9-1][2-4294967295]", "n[1-3,7-5]", "n[-1]", "n[]"])
def test_a_range_that_ends_before_it_begins_is_none(text: str) -> None:
    """As in Slurm; and it hides no other range that is too long to be made."""
    with pytest.raises(ValueError, match="no range of node numbers"):
        expand(text)
