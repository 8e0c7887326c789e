"""Text of sacct as other sites export it: what their Slurm writes otherwise than ours."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rtsched.errors import ConfigError, InputError
from rtsched.logs.sacct_lines import SACCT_COLUMNS
from rtsched.logs.source import quoted_by
from rtsched.model.log import Ending, Log

Read = Callable[..., Log]


pytestmark = pytest.mark.usefixtures("either")


def utc(text: str) -> float:
    """Return the seconds since the epoch of a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def text(header: str, *lines: str) -> str:
    """Return a file."""
    return "\n".join([header, *lines, ""])


@pytest.mark.parametrize(
    ("number", "ending"),
    [
        ("0", Ending.PENDING),
        ("1", Ending.RUNNING),
        ("2", Ending.RUNNING),
        ("3", Ending.COMPLETED),
        ("4", Ending.CANCELLED),
        ("5", Ending.FAILED),
        ("6", Ending.TIMEOUT),
        ("7", Ending.NODE_FAILURE),
        ("8", Ending.PREEMPTED),
        ("9", Ending.NODE_FAILURE),
        ("10", Ending.MISSED),
        ("11", Ending.FAILED),
        ("12", Ending.UNKNOWN),
        ("3.0", Ending.COMPLETED),
        (str(3 + (1 << 15)), Ending.COMPLETED),  # it was COMPLETING
        (str(1 << 10), Ending.UNKNOWN),  # REQUEUED
        (str(1 << 13), Ending.RUNNING),  # RESIZING: another record follows
        (str(1 << 19), Ending.CANCELLED),  # REVOKED
    ],
)
@pytest.mark.parametrize("delimiter", ["|", ","])
def test_states_by_number(read: Read, delimiter: str, number: str, ending: Ending) -> None:
    """Exports of the accounting database have them, by slurm.h; a note counts the jobs."""
    lines = [
        "JobID|Submit|Start|End|ElapsedRaw|ReqCPUS|State",
        f"1|2026-10-25T01:10:00|2026-10-25T01:10:00|2026-10-25T01:20:00|600|2|{number}",
        "2|2026-10-25T01:10:00|2026-10-25T01:10:00|2026-10-25T01:20:00|600|2|COMPLETED",
    ]
    log = read(text(*lines).replace("|", delimiter), timezone="UTC")
    assert log.outcomes.ending.tolist() == [ending, Ending.COMPLETED]
    sentence = "a State that is a number is read as Slurm's accounting database numbers job states"
    assert f"{sentence} (1 job)" in log.assumptions


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "times"),
    [
        ("02:15:00", "02:25:00", "600", ("00:15", "00:25")),
        ("02:15:00", "02:25:00", "4200", ("00:15", "01:25")),
        ("02:50:00", "02:10:00", "1200", ("00:50", "01:10")),
        ("01:30:00", "02:30:00", "7200", ("23:30", "01:30")),
        ("02:30:00", "03:30:00", "3600", ("01:30", "02:30")),
        ("02:30:00", "03:30:00", "7200", ("00:30", "02:30")),
        ("02:15:00", "02:25:00", "300", ("00:15", "00:25")),  # suspended for 5 minutes
        ("02:15:00", "02:25:00", "3900", ("00:15", "01:25")),  # the same, over the change
        ("04:00:00", "05:00:00", "600", ("03:00", "04:00")),
    ],
)
def test_the_hour_that_comes_twice(
    read: Read, start: str, end: str, elapsed: str, times: tuple[str, str]
) -> None:
    """Clocks in Berlin went back from 3 to 2 on 2026-10-25: the run time says which is meant."""
    line = f"1|2026-10-25T01:10:00|2026-10-25T{start}|2026-10-25T{end}|{elapsed}|2|COMPLETED"
    log = read(
        text("JobID|Submit|Start|End|ElapsedRaw|ReqCPUS|State", line), timezone="Europe/Berlin"
    )
    days = ["24" if time > "20" else "25" for time in times]
    expected = [utc(f"2026-10-{day}T{time}:00") for day, time in zip(days, times, strict=True)]
    assert [log.outcomes.start[0], log.outcomes.end[0]] == expected
    assert log.outcomes.run_time[0] == float(elapsed)


SIZES = "JobID|JobIDRaw|Submit|Start|End|ElapsedRaw|ReqCPUS|NCPUS|NNodes|State|NodeList"
RESIZED = (
    "7|7|2026-11-21T08:00:00|2026-11-21T08:10:00|2026-11-21T10:10:00|7200|12|12|3|RESIZING|n[1-3]",
    "7|7|2026-11-21T10:10:00|2026-11-21T10:10:00|2026-11-21T11:10:00|3600|12|8|2|RESIZING|n[1-2]",
    "7|7|2026-11-21T11:10:00|2026-11-21T11:10:00|2026-11-21T11:40:00|1800|12|4|1|COMPLETED|n1",
)


def test_a_resized_job_is_one_run(read: Read) -> None:
    """Its records follow one another; none of them is a requeue."""
    other = "8|8|2026-11-21T09:00:00|2026-11-21T09:00:00|2026-11-21T09:10:00|600|4|4|1|FAILED|n4"
    log = read(text(SIZES, *RESIZED, other))
    outcomes = log.outcomes
    assert log.jobs.submit.tolist() == [utc("2026-11-21T08:00:00"), utc("2026-11-21T09:00:00")]
    assert outcomes.start[0] == utc("2026-11-21T08:10:00")
    assert outcomes.end[0] == utc("2026-11-21T11:40:00")
    assert outcomes.run_time.tolist() == [12600.0, 600.0]
    assert (log.jobs.size[0], outcomes.size[0], log.jobs.node_count[0]) == (12, 12, 3)
    assert outcomes.restarts.tolist() == [0, 0]
    assert outcomes.ending.tolist() == [Ending.COMPLETED, Ending.FAILED]
    sentence = "a job that was resized keeps the size with which it began (1 job)"
    assert sentence in log.assumptions
    assert not any("requeued" in sentence for sentence in log.assumptions)


def test_a_resized_job_whose_rest_is_not_in_the_log(read: Read) -> None:
    """It still runs, as far as the log tells."""
    log = read(text(SIZES, RESIZED[0]))
    assert log.outcomes.ending.tolist() == [Ending.RUNNING]
    assert log.outcomes.run_time.tolist() == [7200.0]


def test_a_requeued_job_that_was_resized(read: Read) -> None:
    """The run before the requeue is another one."""
    before = (
        "7|7|2026-11-21T06:00:00|2026-11-21T06:00:00|2026-11-21T07:00:00|3600|12|12|3|NODE_FAIL|n1"
    )
    log = read(text(SIZES, before, *RESIZED))
    assert log.jobs.submit.tolist() == [utc("2026-11-21T06:00:00")]
    assert log.outcomes.run_time.tolist() == [12600.0]
    assert log.outcomes.restarts.tolist() == [1]


def test_a_job_that_waits_again_counts_with_its_last_run(read: Read) -> None:
    """It was requeued and is held: the run before is what the machine did."""
    ran = "7|7|2026-11-21T06:00:00|2026-11-21T06:00:00|2026-11-21T07:00:00|3600|4|4|1|FAILED|n1"
    held = "7|7|2026-11-21T07:00:00|Unknown|Unknown|0|4|4|1|PENDING|None assigned"
    log = read(text(SIZES, ran, held))
    assert log.outcomes.run_time.tolist() == [3600.0]
    assert log.outcomes.ending.tolist() == [Ending.FAILED]
    assert log.outcomes.restarts.tolist() == [0]


HELD = "JobID|Submit|Start|End|ReqCPUS|AllocCPUS|NNodes|ReqMem|State|SubmitLine"
DAY = "2026-11-21T08:00:00|2026-11-21T08:10:00|2026-11-21T10:10:00"


def test_what_was_held_counts(read: Read) -> None:
    """Slurm gave whole nodes, or whole cores, to jobs that asked for less."""
    whole, same, less = (
        f"1|{DAY}|2|48|2|8G|COMPLETED|sbatch a",
        f"2|{DAY}|4|4|1|8G|COMPLETED|sbatch a",
        f"3|{DAY}|8|4|1|8G|COMPLETED|sbatch -N 1-2 a",
    )
    log = read(text(HELD, whole, same, less))
    assert log.jobs.size.tolist() == [48, 4, 8]
    assert log.jobs.memory.tolist() == [-(-(8 << 30) // 48), 2 << 30, 1 << 30]
    sentence = "a job that was given more processors than it asked for occupies what it was given"
    assert f"{sentence} (1 job)" in log.assumptions


def test_a_job_that_was_given_nothing_and_does_not_say_what_it_asked_for(read: Read) -> None:
    """Its size is not known, with NCPUS as with AllocTRES; it is left out, and counted."""
    log = read(
        "JobID|Submit|Start|End|ElapsedRaw|NCPUS|State\n"
        f"1|{DAY}|7200|8|COMPLETED\n"
        "2|2026-11-21T08:00:00|None|2026-11-21T09:00:00|0|0|CANCELLED by 5\n"
    )
    assert log.jobs.size.tolist() == [8]
    assert log.skipped.count == {"it asks for no processors": 1}
    assert not any("more processors" in sentence for sentence in log.assumptions)


def test_a_job_of_several_sizes_keeps_the_one_asked_for(read: Read) -> None:
    """Its range says that it may have more; it asked for the least."""
    log = read(text(HELD, f"1|{DAY}|1|3|3||COMPLETED|sbatch -N 1-4 a"))
    assert (log.jobs.size[0], log.jobs.size_max[0]) == (1, 4)


GPUS = "JobID|Submit|Start|End|ReqCPUS|NNodes|ReqTRES|AllocTRES|ReqGRES|SubmitLine|State"
PLAIN = "billing=8,cpu=8,mem=16G,node=2"


@pytest.mark.parametrize(
    ("asked", "given", "column", "line", "gpus"),
    [
        (f"{PLAIN},gres/gpu=4", "", "", "", 2),
        (PLAIN, f"{PLAIN},gres/gpu:a100=8,gres/gpu=8", "", "", 4),
        ("", f"{PLAIN},gres/gpu:a100=8", "", "", 4),
        (f"{PLAIN},gres/gpu=4", f"{PLAIN},gres/gpu=8", "", "", 4),
        (PLAIN, PLAIN, "", "sbatch --gres=gpu:3 x", 3),
        (PLAIN, PLAIN, "", "sbatch --gres gpu:a100:3 x", 3),
        (PLAIN, PLAIN, "", "sbatch --gres=gpu x", 1),
        (PLAIN, PLAIN, "", "srun --gres=shard:4,gres:gpu:v100:2 x", 2),
        (PLAIN, PLAIN, "", "sbatch -G 4 x", 2),
        (PLAIN, PLAIN, "", "sbatch --gpus=h100:5 x", 3),
        (PLAIN, PLAIN, "", "sbatch --gpus-per-node=a100:2 x", 2),
        (PLAIN, PLAIN, "", "sbatch -n 6 --gpus-per-task=1 x", 3),
        (PLAIN, PLAIN, "", "sbatch --ntasks-per-node=4 --gpus-per-task=1 x", 4),
        (PLAIN, PLAIN, "", "sbatch --tres-per-node=gres/gpu:2 x", 2),
        (PLAIN, PLAIN, "", "sbatch -n2 --tres-per-task=cpu=4,gres/gpu=2 x", 2),
        (PLAIN, PLAIN, "", "sbatch --gres=gpu:1g.5gb:2 x", 2),
        (f"{PLAIN},gres/gpu=4", "", "", "sbatch --gres=gpu:8 x", 2),
        ("", "", "gpu:tesla:4", "", 2),
        ("", "", "PER_NODE:gpu:4", "", 4),
        ("", "", "gres:gpu:4", "", 2),
        (PLAIN, PLAIN, "", "sbatch run.sh --gres=gpu:8", 0),
        (PLAIN, PLAIN, "", "sbatch --gres=none x", 0),
        (PLAIN, PLAIN, "", "sbatch --gres=gpu:0 x", 0),
        (PLAIN, PLAIN, "", "sbatch --gpus=0 x", 0),
        (PLAIN, PLAIN, "", "sbatch --gres=tmp:20G,gpu:a100:2 x", 2),
        (PLAIN, PLAIN, "", "sbatch --gpus-per-n 2 x", 2),
        (PLAIN, PLAIN, "", "sbatch --gpu 2 x", 0),  # ambiguous, which sbatch refuses
        (PLAIN, PLAIN, "", "sbatch --ntasks=8 --ntasks-per-gpu=2 x", 2),
        (PLAIN, PLAIN, "", "sbatch -n 8 --ntasks-per-gpu=2 --gpus-per-node=3 x", 3),
        (PLAIN, PLAIN, "", "sbatch --wrap=python t.py --gres=gpu:2", 2),
        (PLAIN, PLAIN, "", "sbatch --gres=gpu:1 --wrap=python t.py --gpus 8", 1),
        ("", "", "tmp:2,gpu:v100:4", "", 2),
        ("", "", "gpu:0", "", 0),
    ],
)
def test_gpus_of_each_node_wherever_they_are_told(
    read: Read, asked: str, given: str, column: str, line: str, gpus: int
) -> None:
    """On two nodes, by ReqTRES, AllocTRES, ReqGRES of old releases, or the submit line."""
    row = f"1|{DAY}|8|2|{asked}|{given}|{column}|{line}|COMPLETED"
    plain = f"2|{DAY}|8|2|||||COMPLETED"
    jobs = read(text(GPUS, row, plain), resources=True).jobs
    names = jobs.names("demand")
    found = jobs.demand[:, names.index("gres/gpu")].tolist() if "gres/gpu" in names else [0, 0]
    assert found == [gpus, 0]


TYPED = ("gpu", "gpu:a100", "gpu:v100")


@pytest.mark.parametrize(
    ("tres", "line", "a100", "v100"),
    [
        ("gres/gpu=4", "sbatch --gres=gpu:a100:2 x", 2, 0),
        ("gres/gpu=4", "sbatch --gpus=a100:4 x", 2, 0),
        ("gres/gpu=4", "sbatch --gpus-per-node v100:2 x", 0, 2),
        ("gres/gpu=4", "sbatch --gres=gpu:a100:8 x", 2, 0),  # it was given two on each node
        ("gres/gpu=4", "sbatch --gres=gpu:a100:1,gpu:v100:1 x", 1, 1),
        ("gres/gpu=4", "sbatch --tres-per-node=gres/gpu:a100:2 x", 2, 0),
        ("gres/gpu=4,gres/gpu:v100=4", "sbatch --gres=gpu:a100:2 x", 0, 2),
        ("gres/gpu=4", "sbatch --gres=gpu:2 x", 0, 0),
    ],
)
def test_types_of_gpus_that_only_the_submit_line_tells(
    read: Read, tres: str, line: str, a100: int, v100: int
) -> None:
    """As where AccountingStorageTRES has gres/gpu and none of its types; there are two nodes."""
    rows = [f"{job}|{DAY}|8|2|{PLAIN},{tres}|||{line}|COMPLETED" for job in (1, 2)]
    types = f"3|{DAY}|8|2|{PLAIN},gres/gpu:a100=2,gres/gpu:v100=2||||COMPLETED"
    jobs = read(text(GPUS, *rows, types), resources=True).jobs
    names = jobs.names("demand")
    found = {name: int(jobs.demand[0, names.index(f"gres/{name}")]) for name in TYPED}
    assert found == {"gpu": 2, "gpu:a100": a100, "gpu:v100": v100}


@pytest.mark.parametrize(("amount", "each"), [("20G", 20 << 30), ("3K", 3072), ("7", 7)])
def test_generic_resources_have_units(read: Read, amount: str, each: int) -> None:
    """`--gres=tmp:20G` is an amount, no type."""
    row = f"1|{DAY}|8|2|{PLAIN}|||sbatch --gres=tmp:{amount} x|COMPLETED"
    jobs = read(text(GPUS, row), resources=True).jobs
    assert [name for name in jobs.names("demand") if "tmp" in name] == ["gres/tmp"]
    assert jobs.demand[0, jobs.names("demand").index("gres/tmp")] == each


TUTORIAL = (
    "JobID|User|Submit|Start|End|ReqCPUS|NNodes|State|SubmitLine|Extra|Comment|Constraints|"
    "Reservation"
)
LAST = "JobID|User|Submit|Start|End|ReqCPUS|NNodes|State|Constraints|Reservation|Comment|SubmitLine"
PIPED = "sbatch --wrap=cut -f1 x | sort || true"
BROKEN = "sbatch --deadline=now+600 --wrap=cd x\n./a | b\n\n./c"


@pytest.mark.parametrize("line", [PIPED, BROKEN, PIPED + "\n" + PIPED, "sbatch a.sh"])
@pytest.mark.parametrize("comment", ["", "two words"])
@pytest.mark.parametrize("features", ["", "(null)"])
def test_pipes_and_line_breaks_in_free_text(
    read: Read, line: str, comment: str, features: str
) -> None:
    """Sacct escapes neither; each record is read whatever the order of its columns."""
    rows = [f"{job}|ann|{DAY}|4|1|COMPLETED|{{}}" for job in ("1", "1.batch", "2", "3")]
    for header, free in (
        (TUTORIAL, f"{line}||{comment}|{features}|"),
        (LAST, f"{features}||{comment}|{line}"),
    ):
        plain = "||||" if header == TUTORIAL else "|||sbatch b"
        log = read(
            text(header, *(row.format(free if at != 3 else plain) for at, row in enumerate(rows)))
        )
        assert log.jobs.id.tolist() == [1, 2, 3]
        assert log.jobs.size.tolist() == [4, 4, 4]
        assert not log.skipped.count
        due = log.jobs.deadline - log.jobs.submit
        assert due[:2].tolist() == [600.0 if "deadline" in line else float("inf")] * 2


def test_a_line_that_is_cut_short_takes_no_other_with_it(read: Read) -> None:
    """It is counted; the record behind it is read."""
    whole = f"2|ann|{DAY}|4|1|COMPLETED|||a b|sbatch x"
    log = read(text(LAST, f"1|ann|{DAY}|4", whole))
    assert log.jobs.id.tolist() == [2]
    assert log.skipped.count == {"the line is cut short (too few fields)": 1}


def test_records_over_the_ends_of_blocks(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in pieces, which may end inside a record of several lines."""
    monkeypatch.setattr("rtsched.logs.source.BLOCK", 300)
    monkeypatch.setattr("rtsched.logs.source.HEAD", 300)
    rows = [f"{job}|ann|{DAY}|4|1|COMPLETED|{BROKEN}||||" for job in range(1, 30)]
    log = read(text(TUTORIAL, *rows))
    assert log.jobs.id.tolist() == list(range(1, 30))
    assert not log.skipped.count


def test_several_clusters_are_named(read: Read) -> None:
    """They are one machine in a replay, unless one of them is exported."""
    rows = [f"{job}|{name}|{DAY}|4|COMPLETED" for job, name in ((1, "a"), (2, "b"), (3, "b"))]
    log = read(text("JobID|Cluster|Submit|Start|End|ReqCPUS|State", *rows))
    assert any("jobs of 2 clusters (a 1, b 2)" in sentence for sentence in log.assumptions)
    assert any("--clusters NAME" in sentence for sentence in log.assumptions)
    assert not any(
        "clusters" in sentence
        for sentence in read(text(TUTORIAL) + f"1|ann|{DAY}|4|1|COMPLETED|||||\n").assumptions
    )


SHORT = "JobID,User%20,Submit,Start,End,ReqCPUS,State"
DUMP = (Path(__file__).parents[1] / "data" / "logs" / "sacct_26.05.txt").read_text()


def headerless(columns: list[str], at: str = "|", end: str = "") -> str:
    """Return the dump without its header, with these columns."""
    names = DUMP.partition("\n")[0].split("|")
    rows = [dict(zip(names, line.split("|"), strict=False)) for line in DUMP.splitlines()[1:]]
    return "".join(at.join(row[name] for name in columns) + end + "\n" for row in rows)


def same(one: Log, other: Log) -> None:
    """Compare what two logs say of their jobs."""
    for mine, its in ((one.jobs, other.jobs), (one.outcomes, other.outcomes)):
        for name in ("id", "submit", "size", "deadline", "start", "end", "ending"):
            if hasattr(mine, name) and getattr(mine, name) is not None:
                np.testing.assert_array_equal(getattr(mine, name), getattr(its, name), name)


@pytest.mark.parametrize(("at", "end"), [("|", ""), ("|", "|"), ("\t", ""), (";", "")])
def test_columns_that_are_named(read: Read, at: str, end: str) -> None:
    """`--columns` stands for the header line, with -p, -P and --delimiter."""
    names = [name.partition("%")[0] for name in SHORT.split(",")]
    body = headerless(names, at, end)
    log = read(body, columns=SHORT)
    same(log, read(at.join(names) + (end and at) + "\n" + body))
    same(log, read("\n" + body, columns=SHORT, format="sacct"))
    assert len(log.jobs) > 10
    assert not any("header" in sentence for sentence in log.assumptions)


def test_a_header_counts_more_than_named_columns(read: Read) -> None:
    """Of several files some may have one."""
    same(read(DUMP, columns=SHORT), read(DUMP))


@pytest.mark.parametrize(
    "columns",
    [
        SACCT_COLUMNS,
        "JobID,Submit,Start,End,Elapsed,State,AllocTRES",
        "JobID,User,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,NNodes,AllocTRES,NodeList",
    ],
)
@pytest.mark.parametrize("end", ["", "|"])
def test_columns_that_are_certain_are_guessed(read: Read, columns: str, end: str) -> None:
    """The guess is the first assumption, and comes to what the header would."""
    names = [name for name in columns.split(",") if name != "Elapsed"]
    body = headerless(names, end=end)
    if "Elapsed," in columns:
        names.insert(4, "Elapsed")
        body = "".join(
            "|".join([*(cells := line.split("|"))[:4], lasted(*cells[2:4]), *cells[4:]]) + "\n"
            for line in body.splitlines()
        )
    log = read(body)
    assert log.assumptions[0].startswith("the log has no header line: by their form its columns")
    assert "--columns" in log.assumptions[0]
    same(log, read("|".join(names) + end + "\n" + body))


def test_a_run_time_of_a_damaged_file_that_no_job_has(read: Read) -> None:
    """It is none; so is the guess."""
    line = "7|2026-11-21T08:00:00|2026-11-21T08:10:00|2026-11-21T10:10:00|99999999999999999|"
    with pytest.raises(InputError, match="without its header line"):
        read(f"{line}COMPLETED|cpu=4\n" * 4)


def lasted(start: str, end: str) -> str:
    """Return the time between two as sacct shows it."""
    if not {start, end}.isdisjoint(("Unknown", "None", "")):
        return "00:00:00"
    return str(datetime.fromisoformat(end) - datetime.fromisoformat(start)).rjust(8, "0")


@pytest.mark.parametrize(
    "columns",
    [
        "JobID,Submit,Start,End,ElapsedRaw,State,ReqTRES,AllocTRES",  # which is which?
        "JobID,Start,End,ElapsedRaw,State,AllocTRES",  # when was it submitted?
        "JobID,Submit,Start,End,ElapsedRaw,State,ReqCPUS,NNodes",
        "JobID,End,Start,Submit,ElapsedRaw,State,AllocTRES",
        "JobID,Submit,Start,End,State,AllocTRES",
    ],
)
def test_columns_that_are_not_certain_are_asked_for(read: Read, columns: str) -> None:
    """The error names the option."""
    with pytest.raises(InputError, match=r"without its header line.*--columns"):
        read(headerless(columns.split(",")))
    assert len(
        read(headerless(columns.split(",")), columns=columns.replace(",Start", ",Submit")).jobs
    )


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ("JobID,,Submit", ConfigError, "'' is no column"),
        ("JobID,Submit", ConfigError, "names no Start, End or Elapsed"),
        (f"{SHORT},User,User", InputError, "has 7 fields, and --columns names 9"),
    ],
)
def test_wrong_names_of_columns(
    read: Read, columns: str, error: type[Exception], words: str
) -> None:
    """What cannot be is said with the option's name."""
    body = headerless([name.partition("%")[0] for name in SHORT.split(",")])
    with pytest.raises(error, match=words):
        read(body, columns=columns)


def test_one_of_several_clusters(read: Read) -> None:
    """Others are left out with the reason; what names none is of another."""
    rows = [f"{job}|{name}|{DAY}|4|COMPLETED" for job, name in ((1, "a"), (1, "b"), (3, ""))]
    body = text("JobID|Cluster|Submit|Start|End|ReqCPUS|State", *rows)
    for clusters, left in (("a", 2), ("b", 2), ("a, b", 1)):
        log = read(body, clusters=clusters)
        assert len(log.jobs) == 3 - left
        assert log.skipped.count == {"it is of another cluster": left}
    with pytest.raises(InputError, match=r"3 because it is of another cluster.*--clusters"):
        read(body, clusters="c")
    with pytest.raises(InputError, match=r"2 because nothing tells its cluster.*column Cluster"):
        read(TWO_JOBS, clusters="a")
    with pytest.raises(ConfigError, match="--clusters: only logs of sacct"):
        read("; Version: 2\n", clusters="a")


def test_one_of_several_clusters_in_json(read: Read) -> None:
    """The same."""
    job = '{"job_id": %d, "cluster": "%s", "required": {"CPUs": 1}, "time": {"submission": 100}}'
    body = '{"jobs": [' + ",".join(job % pair for pair in ((1, "a"), (2, "b"))) + "]}"
    log = read(body, clusters="b")
    assert log.jobs.id.tolist() == [2]
    assert log.skipped.count == {"it is of another cluster": 1}


FREE = ("Constraints", "Reservation", "Extra", "Comment", "SubmitLine")
"""The tutorial's order of what may hold a pipe."""


@pytest.mark.parametrize("features", ["", "fast|big", "[rack1|rack2]", "(a|b)&c"])
@pytest.mark.parametrize("comment", ["", "x | y", "step 1|2"])
@pytest.mark.parametrize("line", ["sbatch a.sh", PIPED, "sbatch --deadline=now+600 --wrap=a | b"])
def test_pipes_in_several_fields(read: Read, features: str, comment: str, line: str) -> None:
    """Constraints, comment and submit line may all have some: each is read as it is."""
    header = "|".join(("JobID|User|Submit|Start|End|ReqCPUS|NNodes|State", *FREE))
    row = f"|ann|{DAY}|4|1|COMPLETED|"
    log = read(text(header, f"1{row}{features}|||{comment}|{line}", f"2{row}||||sbatch b"))
    assert log.jobs.id.tolist() == [1, 2]
    assert not log.skipped.count
    due = log.jobs.deadline - log.jobs.submit
    assert due.tolist() == [600.0 if "deadline" in line else float("inf"), float("inf")]
    assert log.jobs.names("node_request") == ((f"--constraint={features}",) if features else ())


TABLE = "JobID,User,Submit,Start,End,ReqCPUS,NNodes,AllocTRES,State,NodeList,Comment"
MOMENTS = "2026-11-21T08:00:00,2026-11-21T08:10:00,2026-11-21T10:10:00"
GIVEN = "billing=8,cpu=8,gres/gpu=2,mem=16G,node=2"


def quoted(line: list[str], at: str, *, every: bool) -> str:
    """Return a line of a table, with quotes where they are needed, or everywhere."""
    need = [every or any(each in cell for each in (at, '"', "\n")) for cell in line]
    cells = [cell.replace('"', '""') for cell in line]
    return at.join(f'"{cell}"' if one else cell for cell, one in zip(cells, need, strict=True))


@pytest.mark.parametrize(("at", "every"), [*product(",;\t", (False, True)), ("|", True)], ids=repr)
@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_with_quotes(read: Read, at: str, every: bool, numbered: bool, end: str) -> None:
    """As R and pandas write it, perhaps with numbers of rows in a first column."""
    first = ["7", "ann", *MOMENTS.split(","), "8", "2", GIVEN, "COMPLETED", "n[1,3]"]
    rows = [[*first, 'a "b", c;\nrtdeadline=2026-11-21T12:00:00\td'], [*first, "plain, text"]]
    rows[1][0] = "8"
    lines = [TABLE.split(","), *rows]
    lines = [["" if i == 0 else str(i), *line][not numbered :] for i, line in enumerate(lines)]
    body = end.join([*(quoted(line, at, every=every) for line in lines), ""])
    log = read(body, resources=True)
    assert log.jobs.labels() == ["7", "8"]
    assert log.jobs.deadline.tolist() == [utc("2026-11-21T12:00:00"), np.inf]
    assert log.jobs.demand[:, log.jobs.names("demand").index("gres/gpu")].tolist() == [1, 1]
    assert not log.skipped.count


def test_a_table_with_gaps(read: Read) -> None:
    """Where a column has no number in some line, pandas writes all of its numbers with a point."""
    log = read(
        "JobID,Submit,Start,End,ElapsedRaw,TimelimitRaw,NCPUS,NNodes,Restarts\n"
        "7,1795248000,1795248600.0,1795249200.0,600.0,60.0,8.0,2.0,3.0\n"
        "7.batch,1795248000,1795248600.0,1795249200.0,600.0,,8.0,1.0,\n"
        "8,1795248000,,,,30.0,8.0,2.0,0.0\n"
    )
    assert log.jobs.wall_time.tolist() == [3600.0, 1800.0]
    assert (log.jobs.size.tolist(), log.jobs.labels()) == ([8, 8], ["7", "8"])
    outcomes = log.outcomes
    assert (outcomes.start[0], outcomes.run_time[0], outcomes.restarts[0]) == (1795248600.0, 600, 3)


@pytest.mark.parametrize("comment", ["", "a|b"])
def test_nodes_counted_in_thousands(read: Read, comment: str) -> None:
    """As sacct prints AllocNodes and ReqNodes, of 1,024 nodes and more."""
    log = read(
        "JobID|Submit|Start|End|Comment|AllocNodes\n"
        f"7|{DAY}|{comment}|1.50K\n8|{DAY}|{comment}|2K\n9|{DAY}|{comment}|3\n"
    )
    assert log.jobs.size.tolist() == [1536, 2048, 3]


def test_a_quote_in_the_text_of_sacct_is_none_of_a_table(read: Read) -> None:
    """Sacct quotes nothing: such a field is as it is."""
    log = read(f'JobID|Submit|Start|End|Comment\n7|{DAY}|"a, b", c\n8|{DAY}|"\n9|{DAY}|x\n')
    assert log.jobs.labels() == ["7", "8", "9"]


def test_a_carriage_return_in_the_first_line() -> None:
    """It is no error of the table's reader, whatever the file is."""
    assert quoted_by(b'a,"b"\rJobID,User\n1,"ann"\n') == ""
    assert quoted_by(b'JobID,"User"\r\n1,"ann"\r\n') == ","


def test_a_quote_that_does_not_end(read: Read) -> None:
    """The rest of the file is one field."""
    body = f'"JobID","Submit","Start","End","Comment"\n7,{MOMENTS},"x"\n8,{MOMENTS},"'
    assert len(read(body).jobs) == 2
    with pytest.raises(InputError, match="a quoted field does not end"):
        read(body + "a" * 200_000)


def test_lists_with_the_delimiter(read: Read) -> None:
    """`--delimiter=,` cuts TRES and node lists."""
    asked = GIVEN.replace("gres/gpu=2,", "")
    header = TABLE.replace("AllocTRES", "ReqTRES,AllocTRES")
    lines = (
        f"7,ann,{MOMENTS},8,2,{asked},{GIVEN},COMPLETED,n[1,3],x y, z",
        f"8,ann,{MOMENTS},8,2,{asked},,COMPLETED,n1,",
        f"9,ann,{MOMENTS},8,2,{asked},{GIVEN},COMPLETED,n1,m[3-4,6]x,",
    )
    log = read(text(header, *lines), resources=True)
    assert log.jobs.labels() == ["7", "8", "9"]
    assert log.jobs.demand[:, log.jobs.names("demand").index("gres/gpu")].tolist() == [1, 0, 1]
    assert [log.outcomes.names("nodes")[code] for code in log.outcomes.nodes][2] == "n1,m[3-4,6]x"


@pytest.mark.parametrize("at", ["|", ",", ";", "\t", "^", "\u2603"])
def test_text_without_a_header_is_named_for_what_it_is(read: Read, at: str) -> None:
    """Whatever is between its fields."""
    for moments in (MOMENTS, "1795248000,1795248600,1795255800"):  # SLURM_TIME_FORMAT=%s
        line = at.join(["7", "ann", "p", *moments.split(","), "8"])
        with pytest.raises(InputError, match=r"without its header line.*--columns"):
            read(line + "\n" + line + "\n")


@pytest.mark.parametrize(
    "moment", ["11/21/26 08:00:00", "Sat Nov 21 08:00:00 2026", "21 Nov 08:00"]
)
def test_times_of_another_form(read: Read, moment: str) -> None:
    """SLURM_TIME_FORMAT was set; which day is meant cannot be told from all forms."""
    with pytest.raises(InputError, match=r"Submit is no time.*SLURM_TIME_FORMAT=standard"):
        read(text("JobID|Submit|Start|End|ReqCPUS", f"7|{moment}|{moment}|{moment}|8"))


TWO_JOBS = text(
    "JobID|JobIDRaw|Submit|Start|End|NCPUS|State",
    *(
        f"{number}|{number}|{DAY}|4|{state}"
        for number, state in ((901, "COMPLETED"), (902, "TIMEOUT"))
    ),
)


def test_job_ids_that_pandas_wrote(read: Read) -> None:
    """Decimal numbers, where no job is without `.0`: they are no steps."""
    decimal = re.sub(r"(90.)\|(90.)", r"\1.0|\2.0", TWO_JOBS)
    log = read(decimal)
    assert log.jobs.labels() == ["901", "902"]
    assert log.assumptions[0].startswith("all JobIDs end in .0")
    assert read(TWO_JOBS + re.sub(r"\A.*\n", "", decimal)).jobs.labels() == ["901", "902"]


def test_numbers_with_a_decimal_comma(read: Read) -> None:
    """As pandas writes them with `decimal=","`."""
    names = "JobID;Submit;Start;ElapsedRaw;ReqCPUS;ReqMem;TimelimitRaw;State"
    times = "1795248000{0};1795248600{0};600{0}"
    line = f"901{{0}};{times};8{{0}};64{{0}};90{{0}};5{{0}}"
    comma, point = (read(text(names, line.format(mark))) for mark in (",0", ".0"))
    assert comma.jobs.wall_time.tolist() == [5400.0]
    for name in ("label", "submit", "wall_time", "size", "memory"):
        assert comma.jobs.column(name).tolist() == point.jobs.column(name).tolist()
    for name in ("start", "run_time", "ending"):
        assert comma.outcomes.column(name).tolist() == point.outcomes.column(name).tolist()
    assert comma.jobs.labels() == ["901"]


@pytest.mark.parametrize(
    "before", ["$ ", "[ann@login ~]$ ", "\ufeff\ufeff", "#", "sacct: ", "\x1b[?2004l\r"]
)
@pytest.mark.parametrize("columns", ["JobID|JobIDRaw", "JobID", "State|JobID"])
def test_text_before_a_header_on_its_line(read: Read, before: str, columns: str) -> None:
    """What a terminal or an editor put there names no column."""
    first = {"JobID": "901", "JobIDRaw": "901", "State": "FAILED"}
    line = "|".join([*(first[name] for name in columns.split("|")), DAY, "4"])
    log = read(text(f"{before}{columns}|Submit|Start|End|NCPUS", line))
    assert log.jobs.labels() == ["901"]
    assert (log.outcomes.ending[0] == Ending.FAILED) == ("State" in columns)


@pytest.mark.parametrize("delimiter", ["\t", "\u2206", " - ", " : ", ":|:"])
def test_a_delimiter_is_no_text_before_a_header(read: Read, delimiter: str) -> None:
    """Wherever the job's id stands."""
    for columns in ("Submit|Start|End|JobID", "Submit|Start|JobID|End", "JobID|Submit|Start|End"):
        cells = dict(zip(("Submit", "Start", "End"), DAY.split("|"), strict=True), JobID="7")
        line = "|".join(cells[name] for name in columns.split("|"))
        log = read(text(columns, line).replace("|", delimiter))
        assert log.jobs.labels() == ["7"]
        assert log.outcomes.run_time.tolist() == [7200.0]


@pytest.mark.parametrize("delimiter", [";", "\\t"])
@pytest.mark.parametrize("numbered", [False, True])
def test_delimiters_that_begin_like_something_else(
    read: Read, delimiter: str, numbered: bool
) -> None:
    r"""A `;` before the header begins no SWF, and sacct prints `--delimiter='\t'` as it stands."""
    lines = TWO_JOBS.splitlines()
    if numbered:
        lines = [f"{'' if i == 0 else i}|{line}" for i, line in enumerate(lines)]
    log = read(text(*lines).replace("|", delimiter))
    assert log.format == "sacct"
    assert log.jobs.labels() == ["901", "902"]
    assert log.outcomes.run_time.tolist() == [7200.0, 7200.0]


@pytest.mark.parametrize("delimiter", ["|", " | ", "; "])
def test_fields_padded_with_blanks(read: Read, delimiter: str) -> None:
    """As `column -t` writes them, the last column too."""
    rows = [line.split("|") for line in TWO_JOBS.splitlines()]
    rows = [[*row[1:], row[0]] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [delimiter.join(map(str.ljust, row, widths)) for row in rows]
    log, same = read(text(*(line + "  " for line in lines))), read(TWO_JOBS)
    assert log.jobs.labels() == same.jobs.labels()
    assert log.outcomes.ending.tolist() == [Ending.COMPLETED, Ending.TIMEOUT]
    assert log.outcomes.run_time.tolist() == same.outcomes.run_time.tolist()


@pytest.mark.parametrize(
    ("moment", "local"),
    [
        ("2026-11-21T08:00:00", True),
        ("2026-11-21T08:00:00+01:00", False),
        ("1795248000", False),
        ("1795248000.0", False),
    ],
)
def test_only_times_without_a_zone_are_local(read: Read, moment: str, local: bool) -> None:
    """Of others nothing is assumed."""
    log = read(text("JobID|Submit|Start|Elapsed|NCPUS", f"7|{moment}|{moment}|01:00:00|4"))
    assert any("local times" in sentence for sentence in log.assumptions) == local


@pytest.mark.parametrize(("first", "last"), [("", "\t"), ("\t", ""), ("0\t", "\t")])
def test_tabs_at_the_ends_of_lines(read: Read, first: str, last: str) -> None:
    """As of `sacct --parsable`, or before an index without a name."""
    header = "JobID\tSubmit\tStart\tEnd\tState"
    line = "\t".join(["7", *DAY.split("|"), "FAILED"])
    log = read(text(f"{first.strip('0')}{header}{last}", f"{first}{line}{last}"))
    assert log.jobs.labels() == ["7"]
    assert log.outcomes.ending[0] == Ending.FAILED


@pytest.mark.parametrize(
    "second",
    [
        "JobID|Start|Submit|End|NCPUS|State",
        "JobID|User|Submit|Start|End|NCPUS|State",
        "JobID|Submit|Start|End|NCPUS",
    ],
)
def test_two_tables_in_one_file(read: Read, second: str) -> None:
    """The second is not read by the columns of the first, which may be others."""
    header = "JobID|Submit|Start|End|NCPUS|State"
    line = f"7|{DAY}|4|COMPLETED"
    assert read(text(header, line, header, line.replace("7", "8", 1))).jobs.labels() == ["7", "8"]
    with pytest.raises(InputError, match=r"log:3: a header with other columns follows; make a"):
        read(text(header, line, second, line))


@pytest.mark.parametrize("missing", ["NaT", "NA", "nan", "Unknown"])
def test_times_that_are_missing_in_a_table(read: Read, missing: str) -> None:
    """As R and pandas write them: a job that never started is a job."""
    log = read(
        "JobID,Submit,Start,End,ElapsedRaw,NCPUS,State\n"
        f"7,2026-11-21 08:00:00,{missing},{missing},0,4,CANCELLED\n"
    )
    assert log.jobs.labels() == ["7"]
    assert np.isnan(log.outcomes.start[0])


def test_durations_of_pandas(read: Read) -> None:
    """They have days in words."""
    log = read(
        "JobID,Submit,Start,Elapsed,Timelimit\n"
        "7,2026-11-21 08:00:00,2026-11-21 08:10:00,0 days 02:00:00,1 days 00:00:30\n"
    )
    assert log.outcomes.run_time.tolist() == [7200.0]
    assert log.jobs.wall_time.tolist() == [86430.0]


def test_steps_only(read: Read) -> None:
    """They are no jobs."""
    with pytest.raises(InputError, match="no job in it, maybe steps only"):
        read(text("JobID|Submit|Start|End", f"7.batch|{DAY}", f"7.0|{DAY}"))
