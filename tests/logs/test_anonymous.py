"""Logs with pseudonyms: they say the same of jobs, and nothing of people."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.errors import InputError
from rtsched.logs import ReadOptions, read_logs
from rtsched.logs.anonymous import Pseudonyms, anonymise
from rtsched.logs.anonymous.pseudonyms import KEEPABLE
from rtsched.logs.anonymous.writing import (
    ATTRIBUTE_NAMES,
    DEADLINES,
    FORMS,
    NAMES,
    STEP,
    TEXTS,
    SlurmWords,
)
from rtsched.logs.condor_history import ATTRIBUTES
from rtsched.logs.sacct_lines import ROLES
from rtsched.logs.slurm_text import submit_line
from rtsched.logs.source import MESSAGE
from rtsched.model.jobs import Jobs

TOP = Path(__file__).parents[2]
EXAMPLES = [path for path in (TOP / "examples" / "logs").iterdir() if path.suffix != ".py"]
LOGS = sorted([*EXAMPLES, *(TOP / "tests" / "data" / "logs").iterdir()])
MARK = "secret"
KEY = b"k" * 32
NUMBERED = ("user", "account", "name")
"""Names of SWF are numbers, and have codes in the order of these."""


def written(tmp_path, log, **options):
    """Write a log with pseudonyms; return what was counted, and where it is."""
    output = tmp_path / "others.log"
    return anonymise(log, output, Pseudonyms(KEY), ReadOptions(**options)), output


def without(tmp_path, text, **options):
    """Return a text as it is written for others."""
    log = tmp_path / "site.log"
    log.write_text(text)
    done, output = written(tmp_path, log, **options)
    return done, output.read_text()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_log_says_the_same_of_jobs(path, tmp_path):
    """All columns of jobs, outcomes and dependencies are equal, and names correspond."""
    options = ReadOptions(timezone="Europe/Berlin", details=True, resources=True)
    done, output = written(tmp_path, path)
    ours, others = read_logs([path], options), read_logs([output], options)
    assert len(ours.jobs) == len(others.jobs)
    assert ours.assumptions == others.assumptions
    for table, other in (
        (ours.jobs, others.jobs),
        (ours.outcomes, others.outcomes),
        (ours.edges, others.edges),
    ):
        for name in table._columns:
            mine, theirs = table.column(name), other.column(name)
            if done.format == "swf" and isinstance(table, Jobs) and name in NUMBERED:
                pairs = np.unique(np.column_stack([mine, theirs]), axis=0)
                assert len(pairs) == len(np.unique(mine)) == len(np.unique(theirs))
            else:
                np.testing.assert_array_equal(mine, theirs, name)
    for name in ("user", "account", "partition", "qos", "name"):
        known = set(ours.jobs.names(name)) - {None}
        assert not known & set(others.jobs.names(name))


def test_every_column_and_attribute_that_is_read_has_its_treatment():
    """A reader that reads more must say here how it is written."""
    columns = {name for names in ROLES.values() for name in names}
    assert columns == {*FORMS, *NAMES, *TEXTS, *DEADLINES}
    dropped = {"user", "accountinggroup"}
    assert {name.lower() for name in ATTRIBUTE_NAMES} == ATTRIBUTES - dropped


def test_cut_states_and_decimal_commas_stay(tmp_path):
    """A state is written in full."""
    text = (
        "JobID;Submit;ElapsedRaw;TimelimitRaw;ReqCPUS;ReqMem;State\n"
        "1;1790812800,0;600,0;15,0;4,0;64,0;OUT_OF_ME+\n"
    )
    done, output = without(tmp_path, text)
    assert not done.blanked.count
    assert output.splitlines()[1] == "1|1790812800,0|600,0|15,0|4,0|64,0|OUT_OF_MEMORY"


def test_states_by_number_stay(tmp_path):
    """As the accounting database has them."""
    text = "JobID|Submit|ElapsedRaw|State\n1|1790812800|600|3\n2|1790812800|600|11\n"
    done, output = without(tmp_path, text)
    assert not done.blanked.count
    assert output.splitlines()[1:] == ["1|1790812800|600|3", "2|1790812800|600|11"]


def test_nothing_hostile_gets_through_sacct(tmp_path):
    """A secret in any column, known or not, is replaced, left out or blanked, and counted."""
    columns = ["JobID", *(name for name in NAMES if name != "uid"), *FORMS, "State", "ReqTRES"]
    columns += ["AllocTRES", "NodeList", "Constraints", "SubmitLine", "Extra", "Comment"]
    columns += ["WorkDir", "AdminComment", "StdOut", MARK]
    times = {"submit": "2026-01-01T00:00:00", "start": "2026-01-01T00:00:01"}
    good = {**times, "end": "2026-01-01T01:00:00", "reqcpus": "2", "state": "COMPLETED"}
    rows = []
    for number, hostile in enumerate(columns, 1):
        values = {name: good.get(name.lower(), "") for name in columns}
        values["JobID"] = str(number)
        values[hostile] = f"{MARK}-\x1b[31m/home/{MARK}"
        rows.append("|".join(values.values()))
    done, text = without(tmp_path, "\n".join(["|".join(columns), *rows]) + "\n")
    assert MARK not in text
    assert "\x1b" not in text
    assert done.records == len(columns) - 1
    assert done.skipped.count == {"its job id has an unknown form": 1}
    assert len(done.blanked.count) == len(FORMS) + 3  # state and resources of two kinds
    assert set(done.columns_left_out) == {"workdir", "admincomment", "stdout", MARK}


SUBMIT_LINES = st.lists(
    st.sampled_from(
        [
            *(
                "--deadline=now+2hours",
                "-t 5",
                "-N 2-4",
                "-n4",
                "--exclusive",
                "-d afterok:12:13_4",
            ),
            *("--dependency=singleton,secret:5", "-J secret", "--begin=secret", "-a 1-9%3"),
            *("-C secret&fast|a*2", "-C [x|2secret]", "-w secret[1-4]", "-x /home/secret/nodes"),
            *("-p secret,other", "-L secret:4,b@secret", "--comment=secret", "--wrap secret"),
            *("--deadline=secret", "./secret.sh", "--export=X=secret", "-D /home/secret"),
        ]
    ),
    max_size=8,
)


@given(SUBMIT_LINES)
def test_submit_lines_keep_what_is_read(options):
    """What a reader makes of the new line is what it makes of the old one, but for names."""
    words = SlurmWords(Pseudonyms(KEY))
    line = " ".join(["sbatch", *options])
    new = words.submit_line(line)
    assert MARK not in new.lower()
    old, asked = submit_line(line), submit_line(new)
    assert (old.nodes, old.per_node) == (asked.nodes, asked.per_node)
    for name in ("exclusive", "array_limit"):
        assert getattr(old, name) == getattr(asked, name)
    for name in ("deadline", "dependency", "job_name", "constraint", "node_options", "licenses"):
        assert bool(getattr(old, name)) == bool(getattr(asked, name))


def test_comments_keep_only_the_deadline(tmp_path):
    """Free text is left out, whatever stands around the deadline."""
    head = "JobID|Submit|End|Comment\n"
    line = "7|2026-01-01T00:00:00|2026-01-01T01:00:00|for {}; rt:deadline={} and more\n"
    text = head + line.format(MARK, "2026-01-01T04:00") + line.format(MARK, MARK)
    _, new = without(tmp_path, text)
    assert new.splitlines()[1].endswith("|deadline=2026-01-01T04:00")
    assert new.splitlines()[2].endswith("|deadline=unreadable")


def test_damaged_lines_of_sacct_are_counted(tmp_path):
    """Lines that are cut short, of steps, or cut in two ways are left out with their place."""
    text = (
        "JobID|User|Submit|End|JobName|WorkDir\n"
        "1|ann|2026-01-01T00:00:00|2026-01-01T01:00:00|a|/x\n"
        "1.batch|ann|2026-01-01T00:00:00|2026-01-01T01:00:00|a|\n"
        "2|ann|2026-01-01T00:00:00\n"
        "3|ann|2026-01-01T00:00:00|2026-01-01T01:00:00|a|b|/x\n"
        "4|ann|2026-01-01T00:00:00|2026-01-01T01:00:00|a|/x"
    )
    done, new = without(tmp_path, text)
    assert done.records == 3
    assert len(new.splitlines()) == 4
    assert done.skipped.count[STEP] == 1
    assert done.skipped.count["the line is cut short (too few fields)"] == 1
    assert [place.rpartition(":")[2] for place in done.skipped.first.values()] == ["3", "4"]


def test_a_field_that_holds_the_delimiter_stays_one_field(tmp_path):
    """A line that a reader puts right is written so that it needs no repair."""
    text = (
        "JobID|Submit|End|Constraints|State|SubmitLine\n"
        "1|2026-01-01T00:00:00|2026-01-01T01:00:00|a|b|TIMEOUT|sbatch -N2 -C a|b --wrap x | y\n"
    )
    log, output = tmp_path / "site.log", tmp_path / "others.log"
    log.write_text(text)
    anonymise(log, output, Pseudonyms(KEY))
    line = output.read_text().splitlines()[1]
    assert line.count("^") == 5
    assert not read_logs([output]).skipped.count


def test_nothing_hostile_gets_through_history(tmp_path):
    """Neither strings nor expressions nor unknown attributes do."""
    names = {*ATTRIBUTES, "environment", "iwd", MARK} - {"clusterid", "procid", "qdate"}
    ads = [
        f"ClusterId = {i}\nProcId = 0\nQDate = 1795226161\n{name} = {value}\n\n"
        for i, (name, value) in enumerate(
            (name, value)
            for name in sorted(names)
            for value in (f'"{MARK} \\" x = 1"', f"{MARK}() + 1", f'"a#{MARK}@{MARK},b"')
        )
    ]
    done, new = without(tmp_path, "".join(ads))
    assert done.format == "condor-history"
    assert MARK not in new.lower()
    assert done.records == len(ads)


def test_expressions_of_history_are_worked_out(tmp_path):
    """A deadline relative to the submission is the same one in the new log; others stay unclear."""
    ad = 'ClusterId = 1\nProcId = 0\nQDate = 1795226161\nRtDeadline = QDate + 3600\nOwner = "ann"\n'
    _, new = without(tmp_path, ad + f"RequestMemory = ifThenElse({MARK}, 1, 2)\n")
    assert "RtDeadline = 1795229761\n" in new
    assert "RequestMemory = unreadable\n" in new


def test_a_history_that_ends_early_is_counted(tmp_path):
    """The last ad of a raw history without its banner is left out."""
    ad = 'ClusterId = {}\nProcId = 0\nQDate = 1795226161\nOwner = "ann"\n'
    done, new = without(tmp_path, ad.format(1) + "*** Offset = 0\n" + ad.format(2))
    assert new.count("ClusterId") == 1
    assert done.skipped.count == {"the file ends inside the record": 1}


def test_nothing_hostile_gets_through_json(tmp_path):
    """Each text of a record, known or not, is replaced or left out; cut records are counted."""
    texts = ["account", "cluster", "comment", "constraints", "extra", "name", "nodes", "partition"]
    texts += ["qos", "group"]
    texts += ["submit_line", "user", "working_directory", "reservation", "state", MARK]
    record = dict.fromkeys(texts, f"{MARK} {MARK}")
    record |= {"job_id": 5, "time": {"submission": 1795226161, "end": 1795226171}}
    record |= {"association": {"user": MARK, "account": MARK}, "array": {"task": MARK}}
    amounts = [{"type": kind, "name": MARK, "count": 2} for kind in ("gres", "fs", MARK)]
    record["tres"] = {"requested": [{"type": "cpu", "count": 2}, *amounts], "allocated": amounts}
    text = json.dumps({"jobs": [record, {**record, "job_id": MARK}]})
    done, new = without(tmp_path, text)
    assert MARK not in new
    assert done.records == 1
    assert done.skipped.count == {"the field job_id has an unknown shape": 1}
    assert json.loads(new)["jobs"][0]["job_id"] == 5


def test_headers_of_swf_keep_numbers_only(tmp_path):
    """Where a log is from is left out; its machine, and what queues are called, is not."""
    text = (
        "; Version: 2.2\n; Computer: secret\n; unixstarttime: 1000000000 secret\n"
        "; MaxProcs: 64 (secret)\n; Queue: 1 secret\n; Note: secret\n"
        "1 0 0 160 16 -1 -1 16 900 -1 1 1017 3 5 1 -1 -1 -1\n; secret\n"
        "2 0 0 160 16 -1 -1 16 900 -1 1 -1 3 5 1 -1 -1 -1\nsecret 2 3\n3 0 0 160 1\n"
    )
    done, new = without(tmp_path, text)
    lines = new.splitlines()
    assert MARK not in new
    assert lines[:3] == ["; Version: 2.2", "; unixstarttime: 1000000000", "; MaxProcs: 64"]
    assert lines[3].startswith("; Queue: 1 partition-")
    assert "1017" not in new
    assert lines[5].split()[11] == "-1"
    assert done.skipped.count == {"the line is not 18 numbers": 2}


def test_numbers_as_pandas_and_sacct_write_them(tmp_path):
    """With a decimal point, and in thousands."""
    line = "7|1795262400.0|1795262460.0|60.0|1.50K\n"
    _, text = without(tmp_path, "JobID|Submit|End|ElapsedRaw|NCPUS\n" + line)
    assert text.endswith(line)


def test_what_other_programs_wrote_into_fields(tmp_path):
    """Decimal job ids, and blanks around them."""
    log = "JobID | Submit     | End\n7.0   | 1795262400 | 1795262460\n"
    assert without(tmp_path, log)[1] == "JobID|Submit|End\n7|1795262400|1795262460\n"


def test_messages_before_a_header_are_left_out(tmp_path):
    """They may name anything."""
    log = f"sacct: {MARK}\nJobID|Submit|End\n7|2026-01-01T00:00:00|2026-01-01T01:00:00\n"
    done, text = without(tmp_path, log)
    assert text.startswith("JobID|Submit|End\n")
    assert done.skipped.first == {MESSAGE: f"{tmp_path}/site.log:1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("hello\n", "not a log that rtsched knows"),
        ("JobID|User|State\n1|a|b\n", "the header has no column Submit"),
        ("JobID|Submit|End\nx|y|z\n", "no job in it (1 left out: its job id"),
        ("JobID|Submit|End\nJobID|End|Submit\n", ":2: a header with other columns follows"),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path, text, words):
    """One sentence, and no output, not even in part."""
    log = tmp_path / "site.log"
    log.write_text(text)
    with pytest.raises(InputError, match=r"site\.log") as caught:
        written(tmp_path, log)
    assert words in str(caught.value)
    assert [*tmp_path.iterdir()] == [log]


def test_gzip_in_and_out(tmp_path):
    """Packed logs are read and written."""
    log, output = TOP / "examples" / "logs" / "cluster.swf.gz", tmp_path / "others.swf.gz"
    anonymise(log, output, Pseudonyms(KEY))
    assert gzip.decompress(output.read_bytes()).startswith(b"; Version: 2.2\n")
    assert len(read_logs([output]).jobs) == 2500


def test_names_of_the_machine_may_stay(tmp_path):
    """Kinds that the site keeps are written as they are; people never are."""
    log, output = TOP / "examples" / "logs" / "slurm-sacct.txt", tmp_path / "others.txt"
    anonymise(log, output, Pseudonyms(KEY, kept=frozenset(KEEPABLE)))
    ours, others = read_logs([log]), read_logs([output])
    for name in ("partition", "qos"):
        assert ours.jobs.names(name) == others.jobs.names(name)
    assert ours.outcomes.names("nodes") == others.outcomes.names("nodes")
    assert not set(ours.jobs.names("user")) & set(others.jobs.names("user"))


@given(st.lists(st.text(max_size=8), unique=True, max_size=30))
def test_pseudonyms_are_one_to_one_and_need_the_key(names):
    """Different names differ, equal ones do not; another key gives others."""
    first, again, other = Pseudonyms(KEY), Pseudonyms(KEY), Pseudonyms(b"o" * 32)
    made = [first.of("user", name) for name in names]
    assert len(set(made)) == len(names)
    assert made == [again.of("user", name) for name in names]
    assert not {*made} & {other.of("user", name) for name in names if name}
    assert [each.name for each in first.new] == [name for name in names if name]


def test_pseudonyms_that_would_be_equal_are_told_apart(monkeypatch):
    """Two names with one hash get two pseudonyms, the same two again if the first are known."""
    monkeypatch.setattr("rtsched.logs.anonymous.pseudonyms._NUMBERS", 2)
    first = Pseudonyms(KEY)
    made = {first.number("user", 1000), first.number("user", 1001)}
    assert made == {1, 2}
    again = Pseudonyms(KEY, first.new)
    assert {again.number("user", 1001), again.number("user", 1000)} == made
    assert again.new == []
