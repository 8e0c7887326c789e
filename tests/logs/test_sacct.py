"""Text of sacct, with whatever columns and oddities it has."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from rtsched.errors import ConfigError, InputError
from rtsched.logs import ReadOptions, cells, read_logs
from rtsched.logs.sacct_rows import AGAIN
from rtsched.logs.source import MESSAGE
from rtsched.model.jobs import Kind
from rtsched.model.log import Ending, Log

Read = Callable[..., Log]


pytestmark = pytest.mark.usefixtures("either")

LOGS = Path(__file__).parents[1] / "data" / "logs"
NOON = 1795262400.0  # 2026-11-21T12:00:00Z


def table(*rows: dict[str, str], delimiter: str = "|", **usual: str) -> str:
    """Return text of sacct: a few usual columns, and those that the rows name."""
    usual = {
        "JobID": "7",
        "User": "ann",
        "Submit": "2026-11-21T12:00:00",
        "Start": "2026-11-21T12:01:00",
        "End": "2026-11-21T12:03:00",
        "State": "COMPLETED",
        "ReqCPUS": "4",
        **usual,
    }
    names = list(dict.fromkeys([*usual, *(name for row in rows for name in row)]))
    lines = [[{**usual, **row}.get(name, "") for name in names] for row in rows]
    return "\n".join(delimiter.join(line) for line in [names, *lines]) + "\n"


def test_nodes_for_one_user_are_told(read: Read) -> None:
    """No job has such nodes to itself."""
    lines = ("--exclusive=user", "--exclusive=mcs", "--exclusive", "-n1")
    log = read(
        table(
            *({"JobID": str(i), "SubmitLine": f"sbatch {x} j.sh"} for i, x in enumerate(lines, 1))
        )
    )
    assert log.jobs.exclusive.tolist() == [False, False, True, False]
    told = "--exclusive=user and mcs are not replayed: others may share the nodes (2 jobs)"
    assert told in log.assumptions


@pytest.mark.parametrize("state", ["CANCELLED by 1000", "PENDING"])
def test_a_requeued_job_that_never_ran_again_counts_with_its_run(read: Read, state: str) -> None:
    """It held its nodes for 120 s, whatever became of its wait for another run."""
    waits = {"Submit": "2026-11-21T12:03:00", "Start": "None", "End": "2026-11-21T12:09:00"}
    log = read(table({"State": "NODE_FAIL"}, {**waits, "State": state, "ElapsedRaw": "0"}))
    assert (log.outcomes.start - NOON).tolist() == [60]
    assert (log.outcomes.end - NOON).tolist() == [180]
    assert log.outcomes.restarts.tolist() == [0]


def test_suspended_jobs_are_told(read: Read) -> None:
    """A job of 100 s that ended 120 s after its start was; a resized one was not."""
    log = read(table({"ElapsedRaw": "100"}, {"JobID": "8", "ElapsedRaw": "120"}))
    assert log.outcomes.run_time.tolist() == [100, 120]
    assert "the time for which a job was suspended is not replayed (1 job)" in log.assumptions
    parts = (
        {"End": "2026-11-21T12:02:00", "ElapsedRaw": "60", "State": "RESIZING"},
        {"Start": "2026-11-21T12:02:00", "ElapsedRaw": "60"},
    )
    assert not any("suspended" in told for told in read(table(*parts)).assumptions)


@pytest.mark.parametrize("option", ["-b", "--begin", "--beg"])
def test_begin_times_where_nothing_tells_when_a_job_became_eligible(
    read: Read, option: str
) -> None:
    """The submit line does; Eligible comes first, and a log that shows an earlier start."""
    line = {"SubmitLine": f"sbatch {option}=2026-11-21T12:01:00 x.sh"}
    assert (read(table(line)).jobs.begin - NOON).tolist() == [60]
    early = read(table({**line, "Start": "2026-11-21T12:00:30"}))
    assert early.jobs.begin.tolist() == [-np.inf]
    known = read(table({**line, "Eligible": "2026-11-21T12:00:20"}))
    assert (known.jobs.begin - NOON).tolist() == [20]


@pytest.mark.parametrize("zone", ["", "Z", "+0000"])
def test_times_without_seconds(read: Read, zone: str) -> None:
    """12:01:50 to 12:03:05 show as two minutes for 75 s; three show that a job was suspended."""
    moments = {name: f"2026-11-21T12:0{at}{zone}" for name, at in (("Submit", 0), ("Start", 1))}
    runs = [{"End": f"2026-11-21T12:0{end}{zone}", "ElapsedRaw": "75"} for end in (3, 4)]
    told = [read(table(moments | run)).assumptions for run in runs]
    assert [any("suspended" in sentence for sentence in each) for each in told] == [False, True]


def test_the_sample_of_26_05() -> None:
    """Our own run of Slurm 26.05: arrays, a het job, steps, deadlines."""
    log = read_logs([LOGS / "sacct_26.05.txt"], ReadOptions(timezone="UTC"))
    jobs, outcomes = log.jobs, log.outcomes
    assert len(jobs) == 63
    assert not log.skipped.count
    labels = jobs.labels()
    assert {"50241+0", "50241+1", "50240_1", "50240_6", "50188"} <= set(labels)
    assert len(set(jobs.id.tolist())) == 63
    parts = [labels.index(f"50241+{part}") for part in (0, 1)]
    assert jobs.het_job[parts].tolist() == [50241, 50241]
    assert np.delete(jobs.het_job, parts).tolist() == [-1] * 61
    first = labels.index("50191")
    assert jobs.deadline[first] - jobs.submit[first] == 600
    assert np.isfinite(jobs.deadline).sum() == 20
    assert (outcomes.ending == Ending.RUNNING).sum() == 2
    assert jobs.texts("qos").count("rt") > 0
    assert outcomes.texts("nodes")[1] == "fast[3-5]"
    assert jobs.size[:4].tolist() == [1, 3, 4, 2]
    assert jobs.memory[:2].tolist() == [50 << 20, -(-(50 << 20) // 3)]
    assert jobs.begin[0] == jobs.submit[0] + 20
    assert jobs.wall_time[:2].tolist() == [120.0, 60.0]


@pytest.mark.parametrize("delimiter", ["|", ";", "\t", "^", "|||", "\x1f", ","])
def test_any_delimiter(read: Read, delimiter: str) -> None:
    """The header shows what separates fields."""
    log = read(table({}, {"JobID": "8"}, delimiter=delimiter))
    assert log.jobs.id.tolist() == [7, 8]


def test_trailing_delimiters(read: Read) -> None:
    """`sacct -p` ends every line with a delimiter."""
    log = read(table({}, {"JobID": "8"}).replace("\n", "|\n"))
    assert log.jobs.id.tolist() == [7, 8]


def test_a_given_delimiter(read: Read) -> None:
    """A delimiter can be named, and must be there."""
    text = table({}, delimiter="xx")
    assert len(read(text, delimiter="xx", format="sacct").jobs) == 1
    with pytest.raises(InputError, match="delimiter '#' is not in the header"):
        read(text, delimiter="#", format="sacct")


def test_steps_are_folded(read: Read) -> None:
    """Steps are no jobs."""
    steps = [{"JobID": f"7.{name}"} for name in ("batch", "extern", "0", "4294967291")]
    log = read(table({}, *steps, {"JobID": "8_1"}, {"JobID": "8_1.batch"}, {"JobID": "9+0.0"}))
    assert log.jobs.labels() == ["7", "8_1"]
    assert not log.skipped.count


def test_pending_arrays(read: Read) -> None:
    """An array that has not started is one waiting job beside its started tasks."""
    pending = {"Start": "Unknown", "End": "Unknown", "State": "PENDING"}
    log = read(table({"JobID": "8_1"}, {"JobID": "8_[2-10%2]", **pending}))
    assert log.jobs.labels() == ["8_1", "8_[...]"]
    assert log.outcomes.ending.tolist() == [Ending.COMPLETED, Ending.PENDING]
    assert np.isnan(log.outcomes.start[1])


def test_components_of_heterogeneous_jobs_belong_together(read: Read) -> None:
    """Their key is the id of the first in the log; an array, and another cluster, is another."""
    parts = [{"JobID": f"{number}+{part}"} for part in (1, 0) for number in (8, 11)]
    log = read(table({"JobID": "7_1"}, *parts, {"JobID": "8+2", "Cluster": "far"}))
    keys, ids = log.jobs.het_job, log.jobs.id
    assert keys.tolist() == [-1, ids[1], ids[2], ids[1], ids[2], ids[5]]


def test_numbers_that_began_again(read: Read) -> None:
    """Another job of one user may have the number of one that ended a week before, or earlier."""
    end = datetime(2026, 11, 21, 13)
    for days, jobs in ((6, 1), (8, 2)):
        moments = [(end + timedelta(days, minutes)).isoformat() for minutes in (0, 60, 120)]
        later = dict(zip(("Submit", "Start", "End"), moments, strict=True))
        log = read(table({"End": end.isoformat()}, later))
        assert log.jobs.labels() == ["7"] * jobs


def test_requeued_jobs_keep_their_last_run(read: Read) -> None:
    """The first submit and the last run count; the rest is said."""
    again = {
        "Submit": "2026-11-21T12:02:00",
        "Start": "2026-11-21T12:05:00",
        "End": "2026-11-21T12:09:00",
    }
    log = read(table({"State": "NODE_FAIL"}, {"JobID": "8"}, again))
    assert log.jobs.labels() == ["8", "7"]
    assert log.jobs.submit.tolist() == [NOON, NOON]
    assert log.outcomes.start.tolist() == [NOON + 60, NOON + 300]
    assert log.outcomes.restarts.tolist() == [0, 1]
    assert any("requeued" in sentence for sentence in log.assumptions)


def test_restarts_column(read: Read) -> None:
    """Without `-D` the column Restarts tells of requeues."""
    assert read(table({"Restarts": "2"})).outcomes.restarts.tolist() == [2]


def test_overlapping_files(tmp_path: Path) -> None:
    """A run that two files have counts once, as its later record has it."""
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_text(table({"State": "RUNNING", "End": "Unknown"}, {"JobID": "8"}))
    two.write_text(table({}, {"JobID": "9"}))
    log = read_logs([one, two], ReadOptions(timezone="UTC"))
    assert sorted(log.jobs.id.tolist()) == [7, 8, 9]
    assert log.skipped.count == {AGAIN: 1}
    assert set(log.outcomes.ending.tolist()) == {Ending.COMPLETED}


def test_pending_then_run(tmp_path: Path) -> None:
    """A job that waits in one file and has run in the next is one job."""
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_text(table({"State": "PENDING", "Start": "Unknown", "End": "Unknown"}))
    two.write_text(table({}))
    log = read_logs([one, two], ReadOptions(timezone="UTC"))
    assert (len(log.jobs), log.outcomes.restarts.tolist()) == (1, [0])


def test_equal_ids_of_other_users_are_other_jobs(read: Read) -> None:
    """Job ids begin anew after a while."""
    log = read(table({}, {"User": "bob", "Submit": "2026-11-21T12:00:30"}))
    assert log.jobs.labels() == ["7", "7"]
    assert len(set(log.jobs.id.tolist())) == 2


@pytest.mark.parametrize(
    "gone",
    [
        {"Start": "None", "End": "2026-11-21T12:03:00", "Elapsed": "00:00:00"},
        {"Start": "2026-11-21T12:03:00", "Elapsed": "00:00:00", "NodeList": "None assigned"},
        {"Start": "Unknown", "End": "Unknown", "Elapsed": "00:00:00"},
    ],
)
def test_cancelled_before_start(read: Read, gone: dict[str, str]) -> None:
    """A job that never ran has no start, and ran for no time."""
    log = read(table({**gone, "State": "CANCELLED by 1001", "AllocCPUS": "0"}))
    assert np.isnan(log.outcomes.start[0])
    assert log.outcomes.run_time[0] == 0
    assert log.outcomes.size[0] == 0
    assert log.jobs.size[0] == 4
    assert log.outcomes.ending[0] == Ending.CANCELLED


@pytest.mark.parametrize(
    ("column", "text", "seconds"),
    [
        ("Timelimit", "2-03:00:00", 183600),
        ("Timelimit", "01:00:00", 3600),
        ("Timelimit", "UNLIMITED", np.inf),
        ("Timelimit", "Partition_Limit", np.inf),
        ("Timelimit", "", np.inf),
        ("TimelimitRaw", "90", 5400),
        ("TimelimitRaw", "90,0", 5400),
        ("TimelimitRaw", "UNLIMITED", np.inf),
        ("TimelimitRaw", "4294967295", np.inf),
        ("TimelimitRaw", "4294967294.0", np.inf),
    ],
)
def test_time_limits(read: Read, column: str, text: str, seconds: float) -> None:
    """Limits are read in both forms; none is infinite."""
    assert read(table({column: text})).jobs.wall_time.tolist() == [seconds]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("50M", 50 << 18),
        ("4G", 4 << 28),
        ("2.5G", 5 << 27),
        ("1000Mc", 1000 << 20),
        ("8Gn", 8 << 29),
        ("2147485198Mn", 1550 << 20),
        ("2097155Gn", 3 << 30),
        ("2147485198.0", 1550 << 20),
        ("2.00Pn", -1),
        ("9223372036854777358", 1550 << 20),
        ("9223372036854777358Mn", 1550 << 20),
        ("9223372036854777358M", 1550 << 20),
        ("2P", 1 << 49),
        ("0", -1),
        ("", -1),
        ("?", -1),
    ],
)
def test_memory_is_per_processor(read: Read, text: str, size: int) -> None:
    """ReqMem counts for the job, per CPU (c) or per node (n); here are 4 CPUs on 2 nodes.

    Slurm's flag MEM_PER_CPU may be left in the number, rounded away in `2.00Pn`.
    """
    assert read(table({"ReqMem": text, "NNodes": "2"})).jobs.memory.tolist() == [size]


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("CANCELLED by 1001", Ending.CANCELLED),
        ("CANCELLED+", Ending.CANCELLED),
        ("CANC+", Ending.CANCELLED),
        ("OUT_OF_ME+", Ending.FAILED),
        ("NODE_FAI+", Ending.NODE_FAILURE),
        ("REQUEUE+", Ending.UNKNOWN),
        ("+", Ending.UNKNOWN),
        ("OUT_OF_MEMORY", Ending.FAILED),
        ("TIMEOUT", Ending.TIMEOUT),
        ("NODE_FAIL", Ending.NODE_FAILURE),
        ("PREEMPTED", Ending.PREEMPTED),
        ("whatever", Ending.UNKNOWN),
    ],
)
def test_states(read: Read, state: str, ending: Ending) -> None:
    """Slurm's states in our words."""
    assert read(table({"State": state})).outcomes.ending.tolist() == [ending]


def test_a_killed_job_had_a_deadline(read: Read) -> None:
    """A job ended by its deadline missed it, and had it then."""
    log = read(table({"State": "DEADLINE"}))
    assert log.outcomes.ending[0] == Ending.MISSED
    assert log.jobs.deadline[0] == NOON + 180


@pytest.mark.parametrize(
    ("column", "text", "deadline"),
    [
        ("SubmitLine", "sbatch --deadline=now+1hour -n 4 job.sh", NOON + 3600),
        ("SubmitLine", "sbatch -Q --deadline 18:00 job.sh", NOON + 6 * 3600),
        ("SubmitLine", "sbatch --wrap sleep 5 --deadline=2026-11-22", NOON + 12 * 3600),
        ("SubmitLine", "sbatch job.sh --deadline=now+1hour", np.inf),
        ("SubmitLine", "sbatch --deadline=soon job.sh", np.inf),
        ("SubmitLine", "sbatch --deadline=now job.sh", np.inf),
        ("Extra", "rt:deadline=2026-11-21T13:00", NOON + 3600),
        ("Extra", "rt:deadline=hard", np.inf),
        ("Comment", "project x, RtDeadline=1795266000", NOON + 3600),
        ("Comment", "DEADLINE=now+60", NOON + 60),
    ],
)
def test_deadlines(read: Read, column: str, text: str, deadline: float) -> None:
    """The deadline is in the submit line, else in Extra or Comment."""
    assert read(table({column: text})).jobs.deadline.tolist() == [deadline]


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("sbatch -N 2-4 job.sh", (2, 4)),
        ("srun -N2-4 --ntasks-per-node=2 ./a", (4, 8)),
        ("sbatch --nodes=1-2 -c 4 job.sh", (4, 8)),
        ("sbatch --nodes 1-1k job.sh", (1, 1024)),
        ("sbatch -N 2-4 -n 4 job.sh", (-1, -1)),
        ("sbatch -N 2-4 --exclusive job.sh", (-1, -1)),
        ("sbatch -N 4 job.sh", (-1, -1)),
        ("sbatch -N 8-16 job.sh", (-1, -1)),
        ("sbatch job.sh -N 2-8", (-1, -1)),
    ],
)
def test_moldable_jobs(read: Read, line: str, sizes: tuple[int, int]) -> None:
    """A range of nodes makes a job moldable if its processors grow with its nodes."""
    jobs = read(table({"SubmitLine": line})).jobs
    assert (jobs.size_min[0], jobs.size_max[0]) == sizes
    assert jobs.kind[0] == (Kind.MOLDABLE if sizes[0] > 0 else Kind.RIGID)


def test_times_of_a_zone_with_summer_time(read: Read) -> None:
    """Local times are right on both sides of a change; one that occurs twice follows the start."""
    rows = [
        {"JobID": "1", "Submit": "2026-10-25T01:30:00", "Start": "2026-10-25T02:30:00"},
        {"JobID": "2", "Submit": "2026-07-01T12:00:00", "Start": "2026-07-01T12:00:00"},
    ]
    rows[0]["End"] = "2026-10-25T02:10:00"  # after the clock went back
    rows[1]["End"] = "2026-12-01T12:00:00"
    log = read(table(*rows), timezone="Europe/Berlin")
    outcomes = log.outcomes
    assert log.jobs.submit[0] == 1792884600.0
    assert (outcomes.start - log.jobs.submit).tolist() == [3600.0, 0.0]
    assert outcomes.run_time[0] == 2400.0
    assert outcomes.run_time[1] == 153 * 86400 + 3600
    assert any("Europe/Berlin" in sentence for sentence in log.assumptions)


def test_epoch_times_need_no_zone(read: Read) -> None:
    """SLURM_TIME_FORMAT=%s writes seconds since the epoch."""
    log = read(table({"Submit": "1795262400", "Start": "1795262460", "End": "1795262580"}))
    assert log.jobs.submit.tolist() == [NOON]
    assert not any("local times" in sentence for sentence in log.assumptions)


def test_an_unknown_zone_is_refused(read: Read) -> None:
    """A time zone must exist."""
    with pytest.raises(ConfigError, match="unknown time zone 'Mars/Base'"):
        read(table({}), timezone="Mars/Base")


@pytest.mark.parametrize(
    ("missing", "sentence"), [("JobID", "JobID"), ("Submit", "Submit"), ("Start,End", "Start, End")]
)
def test_needed_columns(read: Read, missing: str, sentence: str) -> None:
    """Without the least columns a log cannot be read, and the error says which."""
    text = table({})
    for name in missing.split(","):
        text = text.replace(name + "|", "X" + "|")
    with pytest.raises(InputError, match=f"no column {sentence}"):
        read(text, format="sacct")


def test_few_columns_are_enough(read: Read) -> None:
    """JobID, Submit and Elapsed with Start make a log; what is assumed is said."""
    log = read("JobID|Submit|Start|Elapsed\n3|2026-11-21T12:00:00|2026-11-21T12:00:09|1-00:00:01\n")
    assert log.outcomes.end.tolist() == [NOON + 9 + 86401]
    assert log.jobs.size.tolist() == [1]
    assert any("no processor counts" in sentence for sentence in log.assumptions)


def test_resources_tell_processors(read: Read) -> None:
    """Without counts of processors, ReqTRES and AllocTRES have them."""
    text = "JobID|Submit|Start|End|ReqTRES|AllocTRES\n3|{0}|{0}|{0}|{1}|{2}\n".format(
        "2026-11-21T12:00:00", "billing=8,cpu=8,node=1", "cpu=16,mem=1G"
    )
    log = read(text)
    assert (log.jobs.size[0], log.outcomes.size[0]) == (16, 16)
    assert any("was given more processors" in sentence for sentence in log.assumptions)


def test_fields_that_hold_the_delimiter(read: Read) -> None:
    """A line is put right if only one reading fits, whatever the free text is."""
    rows = [
        {"JobID": "1", "JobName": "a|b", "SubmitLine": "sbatch --deadline=now+60 --wrap a | b"},
        {"JobID": "1.batch", "SubmitLine": "srun a | b"},
        {"JobID": "2"},
    ]
    log = read(table(*rows, JobName="x", NNodes="1", SubmitLine="sbatch x"))
    assert log.jobs.id.tolist() == [1, 2]
    assert log.jobs.deadline[0] == NOON + 60
    assert not log.skipped.count


def test_ambiguous_lines_are_counted(read: Read) -> None:
    """A line with two meanings is left out."""
    log = read(
        table({"JobID": "1", "JobName": "a|b", "Account": "x", "Comment": "c"}, {"JobID": "2"})
    )
    assert log.jobs.id.tolist() == [2]
    (reason,) = log.skipped.count
    assert "delimiter" in reason
    assert log.skipped.first[reason].endswith(":2")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"JobID": "seven"}, "JobID is no job id"),
        ({"JobID": "9" * 14}, "it has no job id"),
        ({"Submit": "yesterday"}, "Submit is no time"),
        ({"Submit": "Unknown"}, "its submit time is missing"),
        ({"Submit": "2026-02-30T00:00:00"}, "Submit is no time"),
        ({"End": "2026-11-20T00:00:00"}, "it ends before it starts"),
        ({"ReqCPUS": "0"}, "it asks for no processors"),
        ({"ReqCPUS": "99999999999"}, "it asks for impossibly many processors"),
    ],
)
def test_impossible_records_are_counted(read: Read, row: dict[str, str], reason: str) -> None:
    """A bad record is left out, with its reason and place."""
    log = read(table({"JobID": "1"}, row, {"JobID": "3"}))
    assert log.jobs.id.tolist() == [1, 3]
    assert log.skipped.count == {reason: 1}
    assert log.skipped.first[reason].endswith(":3")


def test_odd_bytes_pass_through(read: Read) -> None:
    """BOM, CRLF, blank lines, a second header, other encodings and hostile names do no harm."""
    text = table({"User": "<script>"}, {"JobID": "8", "User": "'; DROP\x07"}, {"JobID": "9"})
    head = text.partition("\n")[0]
    data = b"\xef\xbb\xbf\r\n" + text.replace("\n", "\r\n").encode()
    data += b"\r\n" + head.encode() + b"\r\n" + text.splitlines()[1].encode()
    data = data.replace(b"9|ann", b"9|J\xf6rg").replace(b"\r\n7|<", b"\r\n11|<", 1)
    log = read(data)
    assert log.jobs.id.tolist() == [11, 8, 9, 7]
    assert log.jobs.texts("user")[:3] == ["<script>", "'; DROP\x07", "J\\xf6rg"]
    assert not log.skipped.count


NOISE = "Loading gcc, version 12.2\n\nsacct: error: first try failed: retrying\r\n"


@pytest.mark.parametrize("delimiter", ["|", ",", "\t"])
def test_messages_before_the_header_are_counted(read: Read, delimiter: str) -> None:
    """Of a shell and of sacct, whose stderr went into the file; a line keeps its number."""
    log = read(NOISE + table({}, {"JobID": "8", "Submit": "?"}, delimiter=delimiter))
    assert log.jobs.id.tolist() == [7]
    assert log.skipped.count == {MESSAGE: 2, "Submit is no time": 1}
    assert [place.rpartition(":")[2] for place in log.skipped.first.values()] == ["1", "6"]


def test_what_stands_before_a_header_may_be_more_than_messages(read: Read) -> None:
    """Records before a header are none, and many lines are another file."""
    head, record = table({}).splitlines(keepends=True)
    log = read("8" + record[1:] + head + record, columns=head.replace("|", ","))
    assert log.jobs.id.tolist() == [8, 7]
    with pytest.raises(InputError, match="not a log that rtsched knows"):
        read("a word\n" * 10_000 + head + record)
    assert read("a word\n" * 200 + head + record).skipped.count == {MESSAGE: 200}


@pytest.mark.parametrize("noise", [NOISE, '[ann@n1 ~]$ sacct --format JobID,Submit "x"\n' + NOISE])
def test_messages_before_any_form_are_counted(read: Read, noise: str) -> None:
    """A table with quotes, JSON, and lines without a header; a line keeps its number."""
    count = sum(bool(line.strip()) for line in noise.splitlines())
    lines = table({}, {"JobID": "8", "Submit": "?"}, delimiter="|").splitlines()
    quotes = "\n".join('"' + line.replace("|", '","') + '"' for line in lines)
    record = '{"job_id": 7, "time": {"submission": 1795262400}, "required": {"CPUs": 1}}'
    ad = '"ProcId": 0, "QDate": 1795262400, "JobStatus": 4}'
    numbers = {"ClusterId": 7, "ProcId": 0, "QDate": 1795262400, "JobStatus": 4}
    as_xml = "".join(f'<a n="{name}"><i>{number}</i></a>' for name, number in numbers.items())
    for text, columns in (
        (quotes, None),
        ("\n".join(lines[1:]), lines[0].replace("|", ",")),
        ('{"meta": {}, "jobs": [\n' + record + ",\n{]}", None),
        ('[\n{"ClusterId": 7, ' + ad + ",\n{1}\n]", None),
        ('{"ClusterId": 7, ' + ad, None),
        ("ClusterId ProcId QDate JobStatus\n7 0 1795262400 4\n7", None),
        ("ClusterId = 7\nProcId = 0\nQDate = 1795262400\nJobStatus = 4\n", None),
        ("<?xml version='1.0'?>\n<classads><c>" + as_xml + "</c>\n<c></d>", None),
    ):
        log = read(noise + text, columns=columns)
        assert log.jobs.labels() in (["7"], ["7.0"])
        assert log.skipped.count.pop(MESSAGE) == count
        assert log.skipped.first.pop(MESSAGE).endswith(":1")
        last = (noise + text).rstrip("]}").rstrip("\n").count("\n") + 1
        assert all(place.endswith(f":{last}") for place in log.skipped.first.values())


def test_messages_before_a_header_that_lacks_columns(read: Read) -> None:
    """The header is what can be mended."""
    with pytest.raises(InputError, match="the header has no column Submit"):
        read(NOISE + "JobID|State|Start\n7|COMPLETED|2026-11-21T12:00:00\n")


def test_a_truncated_last_line(read: Read) -> None:
    """A file cut short loses only its last line."""
    log = read(table({}, {"JobID": "8"})[:-30])
    assert log.jobs.id.tolist() == [7]
    assert log.skipped.count == {"the line is cut short (too few fields)": 1}


def test_rows_stay_in_file_order_with_their_lines(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repaired lines keep their place, in blocks of any size."""
    monkeypatch.setattr("rtsched.logs.source.BLOCK", 200)
    monkeypatch.setattr("rtsched.logs.source.HEAD", 200)
    rows = [{"JobID": str(i), "JobName": "a|b" if i % 3 else "c"} for i in range(1, 40)]
    rows[20]["Submit"] = "never"
    log = read(table(*rows, NNodes="1"))
    assert log.jobs.id.tolist() == [i for i in range(1, 40) if i != 21]
    assert log.skipped.first["Submit is no time"].endswith(":22")


LATE = "2026-11-21T12:00:40"


def edges_of(log: Log) -> list[tuple[int, int, bool, bool]]:
    """Return the dependencies of a log: who, before whom, at its start, as a whole array."""
    names = ("before", "after", "at_start", "whole_array")
    return list(zip(*(log.edges.column(name).tolist() for name in names), strict=True))


@pytest.mark.parametrize(
    ("line", "edges"),
    [
        ("sbatch --dependency=afterok:10 x.sh", [(10, 30, False, False)]),
        ("sbatch --dependency afterany:10:11 x", [(10, 30, False, False), (11, 30, False, False)]),
        ("sbatch -d after:10 x.sh", [(10, 30, True, False)]),
        ("sbatch -dafternotok:10,afterok:11 x", [(10, 30, False, False), (11, 30, False, False)]),
        ("sbatch --depend=10 x.sh", [(10, 30, False, False)]),
        ("sbatch -d afterok:12 x.sh", [(13, 30, False, True)]),
        ("sbatch -d afterok:12_2 x.sh", [(14, 30, False, False)]),
        ("sbatch -d afterok:12_* x.sh", [(13, 30, False, True)]),
        ("sbatch -d afterok:14 x.sh", [(14, 30, False, False)]),
        ("sbatch x.sh -d afterok:10", []),
    ],
)  # fmt: skip
def test_dependencies(read: Read, line: str, edges: list[tuple[int, int, bool, bool]]) -> None:
    """Which jobs a submit line names; 12 is an array of tasks 1 (job 13), 2 (14) and 3 (12)."""
    log = read(
        table(
            {"JobID": "10", "JobIDRaw": "10"},
            {"JobID": "11", "JobIDRaw": "11"},
            {"JobID": "12_1", "JobIDRaw": "13"},
            {"JobID": "12_2", "JobIDRaw": "14"},
            {"JobID": "12_3", "JobIDRaw": "12"},
            {
                "JobID": "30",
                "JobIDRaw": "30",
                "SubmitLine": line,
                "Eligible": "2026-11-21T12:00:30",
            },
        )
    )
    assert edges_of(log) == edges
    assert log.jobs.array.tolist() == [-1, -1, 13, 13, 13, -1]
    assert log.jobs.begin[-1] == (-np.inf if edges else NOON + 30)
    sentence = "a job waits for those that its --dependency names (1 job)"
    assert (sentence in log.assumptions) == bool(edges)


def test_tasks_that_depend_on_their_like(read: Read) -> None:
    """`aftercorr`: each task waits for the same task of the other array."""
    line = "sbatch -a 1-2 --dependency=aftercorr:12 x.sh"
    log = read(
        table(
            {"JobID": "12_1", "JobIDRaw": "13"},
            {"JobID": "12_2", "JobIDRaw": "12"},
            {"JobID": "20_1", "JobIDRaw": "21", "SubmitLine": line},
            {"JobID": "20_2", "JobIDRaw": "20", "SubmitLine": line},
        )
    )
    assert edges_of(log) == [(12, 20, False, False), (13, 21, False, False)]


def test_jobs_of_other_clusters_are_not_meant(read: Read) -> None:
    """A number is that of a job of the same cluster."""
    log = read(
        table(
            {"JobID": "10", "Cluster": "east"},
            {"JobID": "11", "Cluster": "west"},
            {"JobID": "12", "Cluster": "west", "SubmitLine": "sbatch -d afterok:10:11 x.sh"},
        )
    )
    assert edges_of(log) == [(11, 12, False, False)]


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        ("sbatch -d afterok:10?afterok:11 x.sh", "of a dependency with alternatives (`?`) none"),
        ("sbatch -d after:10+5 x.sh", "a delay after the start is replayed without the delay"),
        ("sbatch -d afterok:999 x.sh", "a job that is not in the log is taken as fulfilled"),
        ("sbatch -d before:10 x.sh", "a dependency that cannot be read is left out"),
        ("sbatch -d afterok:1_x x.sh", "a dependency that cannot be read is left out"),
        ("sbatch -d afterok:10:9_- x.sh", "a dependency that cannot be read is left out"),
        ("sbatch -d singleton x.sh", "without a --job-name in the submit line, is left out"),
    ],
)
def test_dependencies_that_are_not_replayed(read: Read, line: str, left_out: str) -> None:
    """They are told; the job then starts no earlier than it became eligible."""
    late = {"SubmitLine": line, "Eligible": "2026-11-21T12:00:30"}
    log = read(table({"JobID": "10"}, {"JobID": "30", **late}))
    assert [left_out in sentence and "(1 job)" in sentence for sentence in log.assumptions].count(
        True
    ) == 1
    assert log.jobs.begin.tolist() == [-np.inf, NOON + 30]


def test_singletons_run_one_at_a_time(read: Read) -> None:
    """Those of one name and user form a group; a begin time of their own still holds."""
    line = "sbatch -J chain -d singleton"
    log = read(
        table(
            {"JobID": "10", "SubmitLine": f"{line} x.sh"},
            {"JobID": "11", "SubmitLine": f"{line} --begin=now+20 x", "Eligible": LATE},
            {"JobID": "12", "SubmitLine": f"{line} x.sh", "User": "bob"},
            {"JobID": "13"},
        )
    )  # fmt: skip
    assert log.jobs.array.tolist() == [10, 10, 12, -1]
    assert log.jobs.array_limit.tolist() == [1, 1, 1, 0]
    assert log.jobs.begin.tolist() == [-np.inf, NOON + 20, -np.inf, -np.inf]


@pytest.mark.parametrize("option", ["--array=1-3%2", "--array 1-3%2", "-a 1-3%2", "-a1-3%2"])
def test_limits_of_arrays(read: Read, option: str) -> None:
    """What stands behind the `%` is for all tasks; when they became eligible then says nothing."""
    line = f"sbatch {option} -o log.%A_%a x.sh"
    late = {"SubmitLine": line, "Eligible": "2026-11-21T12:00:30"}
    log = read(
        table({"JobID": "12_1", "SubmitLine": line}, {"JobID": "12_2", **late}, {"JobID": "13_1"})
    )
    assert log.jobs.array_limit.tolist() == [2, 2, 0]
    assert len(set(log.jobs.array[:2].tolist())) == 1
    assert not (log.jobs.begin > -np.inf).any()
    assert any("as many of it run as its `%` says (2 jobs)" in text for text in log.assumptions)
    (free,) = read(table({"JobID": "12_1", "SubmitLine": "sbatch -a 1-3 -o %A x"})).jobs.array_limit
    assert free == 0


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ({"SubmitLine": "sbatch -C fast&gpu x.sh"}, "--constraint=fast&gpu"),
        ({"SubmitLine": "sbatch --constraint=a --exclude n[1-2] -p x,y x.sh"},
         "--constraint=a --exclude=n[1-2] --partition=x,y"),
        ({"SubmitLine": "sbatch -w n1 -p batch x.sh"}, "--nodelist=n1"),
        ({"SubmitLine": "sbatch --partition=batch x.sh"}, None),
        ({"SubmitLine": "sbatch -C fast x.sh", "Constraints": "slow"}, "--constraint=slow"),
        ({"SubmitLine": "sbatch -x n1 x", "Constraints": "slow"}, "--constraint=slow --exclude=n1"),
        ({"SubmitLine": "sbatch x.sh -w n1", "Constraints": ""}, None),
    ],
)  # fmt: skip
def test_nodes_asked_for(read: Read, row: dict[str, str], asked: str | None) -> None:
    """Features by their column, else the submit line; the rest by the submit line."""
    assert read(table(row)).jobs.texts("node_request") == [asked]
    assert read(table({"JobID": "6"}, row)).jobs.texts("node_request") == [None, asked]


def test_lines_that_tell_something_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled scan says yes wherever the plain one does."""
    lines = [
        b"sbatch -d afterok:1 x", b"sbatch --dep=1", b"srun -C a", b"-w n", b"sbatch -x n1",
        b"sbatch -p a,b x", b"sbatch -p a x,y", b"sbatch --partition=a,b", b"srun --part a b,c",
        b"sbatch -a1-3%2", b"sbatch --array 1-3%2 x", b"sbatch --array=1-3 -o %a", b"--deadline=9",
        b"sbatch --exclusive", b"sbatch --exclude=n", b"sbatch --nodelist n", b"sbatch --mem=4 x-d",
        b"sbatch -L a:2 x", b"srun --licenses=a",
        b"-", b"", b"sbatch --", b"sbatch -", b"sbatch --de", b"sbatch -t 1 --wrap hostname",
    ]  # fmt: skip
    text, ends = b"".join(lines), np.cumsum([len(line) for line in lines]).astype(np.int32)
    starts = (ends - np.array([len(line) for line in lines])).astype(np.int32)
    some = cells.Cells(text, starts, ends)
    scanned = cells.telling(some)
    monkeypatch.setattr(cells, "COMPILING", False)
    assert scanned.tolist() == cells.telling(some).tolist()
    assert scanned.sum() == 15


@pytest.mark.parametrize(
    ("line", "asked", "expected"),
    [
        ("sbatch -L matlab:2,fluent x", "cpu=8,node=2", {"matlab": 2, "fluent": 1}),
        ("sbatch --licenses=ansys@flex:3 x", "", {"ansys@flex": 3}),
        ("sbatch x", "cpu=8,license/matlab=2,node=2", {"matlab": 2}),
        ("sbatch -L matlab:4 x", "cpu=8,license/matlab=3,node=2", {"matlab": 4}),
        ("sbatch -L (null),:3,a=b x", "cpu=8,node=2", {}),
    ],
)
def test_licenses(tmp_path: Path, line: str, asked: str, expected: dict[str, int]) -> None:
    """Of the whole job, not of each of its two nodes: by ReqTRES, else by the submit line."""
    row = {"ReqTRES": asked, "SubmitLine": line, "NNodes": "2", "ReqCPUS": "8"}
    (tmp_path / "log").write_text(table(row, {"JobID": "6"}))
    jobs = read_logs([tmp_path / "log"], ReadOptions(resources=True)).jobs
    found = dict(zip(jobs.names("demand"), jobs.demand[0].tolist(), strict=True))
    assert found.pop("cpu", 4) == 4
    assert found == {f"license/{name}": number for name, number in expected.items()}
    assert not jobs.demand[1].any()


def test_reservations(read: Read) -> None:
    """The name of the reservation that a job ran in, where the log has it."""
    log = read(table({"JobID": "7", "Reservation": "course"}, {"JobID": "8"}))
    assert log.outcomes.texts("reservation") == ["course", None]
    assert read(table({})).outcomes.texts("reservation") == [None]
