"""Standard Workload Format, read and written."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.errors import InputError
from rtsched.logs import read_logs, swf
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.log import Ending, Log, Outcomes

Read = Callable[..., Log]


pytestmark = pytest.mark.usefixtures("either")

HEADER = """; Version: 2.2
; Computer: Test
; UnixStartTime: 1000000
; MaxNodes: 64 (batch partition)
; MaxProcs: 128
; Queue: 2 night shift
;
"""
JOB = "{job} {submit} 5 {run} {got} -1 -1 {asked} {time} {memory} {status} 7 3 -1 2 -1 -1 -1"


def job(**changed: object) -> str:
    """Return one line."""
    usual = {"job": 1, "submit": 10, "run": 100, "got": 4, "asked": 8, "time": 300}
    return JOB.format(**{**usual, "memory": 2048, "status": 1, **changed})


def test_every_field_finds_its_column(read: Read) -> None:
    """One job with all fields known."""
    log = read(HEADER + job() + "\n")
    jobs, outcomes = log.jobs, log.outcomes
    assert (log.format, len(jobs), len(log.cluster or ())) == ("swf", 1, 128)
    assert jobs.submit.tolist() == [1000010.0]
    assert (jobs.id[0], jobs.size[0], jobs.wall_time[0]) == (1, 8, 300.0)
    assert jobs.memory[0] == 2048 * 1024
    assert jobs.labels() == ["1"]
    assert (jobs.texts("user"), jobs.texts("account")) == (["7"], ["3"])
    assert jobs.texts("partition") == ["night shift"]
    assert outcomes.start.tolist() == [1000015.0]
    assert outcomes.end.tolist() == [1000115.0]
    assert (outcomes.run_time[0], outcomes.size[0]) == (100.0, 4)
    assert outcomes.ending[0] == Ending.COMPLETED
    assert not log.assumptions
    assert not log.skipped.count


def test_minus_one_is_missing(read: Read) -> None:
    """What a log does not know stays unknown."""
    log = read("1 10 -1 -1 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n")
    assert log.jobs.size.tolist() == [4]
    assert np.isinf(log.jobs.wall_time[0])
    assert np.isnan([log.outcomes.start[0], log.outcomes.run_time[0], log.outcomes.end[0]]).all()
    assert log.jobs.texts("user") == log.jobs.texts("partition") == [None]
    assert log.cluster is None
    assert log.outcomes.ending[0] == Ending.UNKNOWN
    assert {notes.split(":")[0] for notes in log.assumptions} == {
        "the log has no requested times",
        "the log gives no UnixStartTime",
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3", "the line has fewer than 18 fields"),
        (job(run="ten"), "a field is not a number"),
        (job(run="1_0"), "a field is not a number"),
        (job(run="nan"), "a number is out of range"),
        (job(run=10**30), "a number is out of range"),
        (job(submit=-1), "the submit time is missing or negative"),
        (job(run=-2), "the run time is negative"),
        (job(got=0, asked=-1), "it asks for no processors"),
        (job(asked=2**31), "it asks for impossibly many processors"),
        (job(got=129), "it was given more processors than the machine has"),
        (job(got=2**40), "it was given more processors than the machine has"),
    ],
)
def test_impossible_lines_are_counted(read: Read, line: str, reason: str) -> None:
    """A bad line is left out, with its reason and place."""
    log = read(f"{HEADER}{job()}\n{line}\n{job(job=3)}\n")
    assert log.jobs.id.tolist() == [1, 3]
    assert log.skipped.count == {reason: 1}
    assert log.skipped.first[reason].endswith(":9")


def test_what_was_given_is_within_the_machine_as_far_as_it_is_known(read: Read) -> None:
    """A header without a size leaves all that int32 holds; without a request the given counts."""
    assert read(f"; Version: 2.2\n{job(got=129)}\n").outcomes.size.tolist() == [129]
    assert not len(read(f"; Version: 2.2\n{job()}\n{job(got=2**31)}\n").jobs) > 1
    log = read(f"{HEADER}{job(got=129, asked=-1)}\n{job(got=200, asked=200)}\n")
    assert log.jobs.size.tolist() == [129, 200]  # left out when the machine is known for sure


@pytest.mark.parametrize("name", ["MaxProcs", "MaxNodes"])
@pytest.mark.parametrize("size", ["0", "-1", "2147483648", "9" * 5000])
def test_absurd_machines_are_refused(read: Read, name: str, size: str) -> None:
    """A header's size that no machine has is one message with file and line."""
    with pytest.raises(InputError, match=rf":2: {name} is {size[:20]}, but a machine has 1 to"):
        read(f"; Version: 2.2\n; {name}: {size}\n{job()}\n")


def test_a_machine_of_thousands(read: Read) -> None:
    """Some headers write them with commas."""
    for text, size in (("1,152 in all", 1152), ("12, later 24", 12)):
        cluster = read(f"; MaxProcs: {text}\n{job()}\n").cluster
        assert cluster is not None
        assert len(cluster) == size


def test_fields_beyond_the_format_are_not_read(read: Read) -> None:
    """Some archives append names of nodes and queues: said, and the rest of the line counts."""
    lines = [
        job() + " 9",
        job(job=2),
        job(job=3, run="1e2") + " {n1,n_1} q_long 1:ppn=4 ; x",
        job(job=4) + "\t-1\r",
    ]
    log = read(HEADER + "\n".join(lines))
    assert log.jobs.id.tolist() == [1, 2, 3, 4]
    assert log.outcomes.run_time.tolist() == [100.0] * 4
    assert "fields beyond the 18 of SWF are not read (3 jobs)" in log.assumptions
    assert not log.skipped.count
    assert read(job() + " q_long\n").jobs.id.tolist() == [1]


def test_odd_but_readable_lines_count(read: Read) -> None:
    """Fractions, powers, signs, tabs, CRLF and a missing last newline do no harm."""
    lines = [job(run="1e2"), job(job=2, run="100.50"), job(job=3, run="+7").replace(" ", "\t")]
    log = read("\r\n".join([*HEADER.splitlines(), "", *lines]))
    assert log.outcomes.run_time.tolist() == [100.0, 100.5, 7.0]
    assert log.jobs.id.tolist() == [1, 2, 3]


def test_parts_of_a_job_are_left_out(read: Read) -> None:
    """Lines of partial executions belong to the line of the whole job."""
    lines = [job(), job(status=2), job(status=3), job(job=2, status=3)]
    log = read(HEADER + "\n".join(lines))
    assert log.jobs.id.tolist() == [1, 2]
    assert list(log.skipped.count.values()) == [2]


def test_equal_numbers_are_told_apart(read: Read) -> None:
    """Jobs of one number keep it as their label."""
    log = read(HEADER + job() + "\n" + job(submit=11))
    assert log.jobs.id.tolist() == [0, 1]
    assert log.jobs.labels() == ["1", "1"]
    assert any("twice" in notes for notes in log.assumptions)


def test_following_jobs_become_edges(read: Read) -> None:
    """Field 17 names the job that must end before."""
    follower = job(job=5).split()
    follower[16] = "1"
    stranger = [*follower]
    stranger[0], stranger[16] = "6", "99"
    log = read(HEADER + "\n".join([job(), " ".join(follower), " ".join(stranger)]))
    assert (log.edges.before.tolist(), log.edges.after.tolist()) == ([1], [5])


def test_only_the_header_counts(read: Read) -> None:
    """Comments between jobs change nothing."""
    log = read(HEADER + job() + "\n; UnixStartTime: 5\n; MaxProcs: 1\n" + job(job=2) + "\n")
    assert log.jobs.submit.tolist() == [1000010.0] * 2
    assert len(log.cluster or ()) == 128


def test_headers_in_any_case(read: Read) -> None:
    """They are known all the same."""
    log = read(HEADER.lower() + job() + "\n")
    same = read(HEADER + job() + "\n")
    assert log.assumptions == same.assumptions
    assert log.jobs.submit.tolist() == [1000010.0]
    assert len(log.cluster or ()) == 128
    assert log.jobs.names("partition") == same.jobs.names("partition")


@pytest.mark.parametrize(
    ("value", "said"), [("0", False), ("5 (about)", False), ("1e9", True), ("Fri Oct 1", True)]
)
def test_a_start_time_that_is_no_number_is_none(read: Read, value: str, said: bool) -> None:
    """It is said that times count from 1970."""
    log = read(f"; MaxProcs: 4\n; UnixStartTime: {value}\n{job()}\n")
    assert any("no UnixStartTime" in sentence for sentence in log.assumptions) == said


def test_times_since_1970_are_not_counted_from_the_start_time(read: Read) -> None:
    """The dates would be decades late. Times of fewer than 20 years count from it."""
    header = HEADER.replace("1000000", "1100000000")
    log = read(header + job(submit=1100000010) + "\n" + job(job=2, submit=700000000))
    assert log.jobs.submit.tolist() == [1100000010.0, 700000000.0]
    assert log.outcomes.end.tolist() == [1100000115.0, 700000105.0]
    sentence = "a submit time counts from 1970 already: UnixStartTime is not added (2 jobs)"
    assert sentence in log.assumptions
    log = read(header + job(submit=600000000))
    assert log.jobs.submit.tolist() == [1700000000.0]
    assert not log.assumptions


def test_logs_of_which_one_has_a_start_time(tmp_path: Path) -> None:
    """They would be decades apart."""
    paths = [tmp_path / "1.swf", tmp_path / "2.swf"]
    paths[0].write_text(f"; UnixStartTime: 1000000000\n{job()}\n")
    paths[1].write_text(f"{job(job=2)}\n")
    expected = "1 of 2 logs give no UnixStartTime: their times count from 1970-01-01"
    assert expected in read_logs(paths).assumptions


def test_gzip_and_several_files(tmp_path: Path) -> None:
    """Packed and plain files make one log; the larger machine is taken."""
    one, two = tmp_path / "a.gz", tmp_path / "b"
    one.write_bytes(gzip.compress((HEADER + job()).encode()))
    two.write_text(HEADER.replace("128", "256") + job(job=2))
    log = read_logs([one, two])
    assert log.jobs.id.tolist() == [1, 2]
    assert log.sources == (str(one), str(two))
    assert len(log.cluster or ()) == 256


def test_blocks_do_not_cut_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines across the ends of blocks are whole, and line numbers go on."""
    monkeypatch.setattr("rtsched.logs.source.BLOCK", 100)
    monkeypatch.setattr("rtsched.logs.source.HEAD", 300)
    path = tmp_path / "log"
    lines = [job(job=i, submit=i) for i in range(1, 60)]
    lines[40] = "x"
    path.write_text(HEADER + "\n".join(lines))
    log = read_logs([path])
    assert log.jobs.id.tolist() == [i for i in range(1, 60) if i != 41]
    assert log.skipped.first == {"the line has fewer than 18 fields": f"{path}:48"}


TEXT = st.sampled_from(["ann", "b;b", "ü", "<b>", "a\nb"])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 999), st.booleans(), TEXT
        ),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
@settings(max_examples=25)
def test_written_logs_read_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int, bool, str]],
    packed: bool,
) -> None:
    """Reading a written log gives its jobs, and writing is the same to the byte."""
    n = len(rows)
    submit, run, size, done, user = zip(*rows, strict=True)
    jobs = Jobs.build(
        n,
        id=np.arange(1, n + 1),
        submit=np.array(submit, float),
        size=np.array(size, np.int32),
        wall_time=np.where(done, np.array(run) * 2.0, np.inf),
        memory=np.full(n, 4096),
        user=user,
        partition=user,
    )
    outcomes = Outcomes.build(
        n,
        start=jobs.submit + 7,
        run_time=np.array(run, float),
        size=jobs.size,
        ending=np.where(done, Ending.COMPLETED, Ending.FAILED).astype(np.int8),
    )
    path = tmp_path_factory.mktemp("swf") / ("log.gz" if packed else "log")
    written = []
    for _ in range(2):
        swf.write(path, jobs, outcomes, cluster=Cluster.uniform(999), header={"Computer": "none"})
        written.append(path.read_bytes())
    assert written[0] == written[1]
    log = read_logs([path])
    for column in ("id", "submit", "size", "wall_time", "memory", "user"):
        np.testing.assert_array_equal(
            log.jobs.column(column) if column != "user" else unified(log.jobs.texts("user")),
            jobs.column(column) if column != "user" else unified(list(user)),
        )
    for column in ("start", "run_time", "size", "ending"):
        np.testing.assert_array_equal(log.outcomes.column(column), outcomes.column(column))
    assert len(log.cluster or ()) == 999


def unified(texts: list[str | None]) -> list[int]:
    """Return which texts are equal."""
    return [texts.index(text) for text in texts]


def test_nothing_known_is_written_as_minus_one(tmp_path: Path) -> None:
    """Jobs alone, without outcomes, can be written."""
    path = tmp_path / "log"
    swf.write(path, Jobs.build(1, submit=[5.25]))
    assert path.read_text().splitlines()[-1].split()[1:5] == ["0.25", "-1", "-1", "-1"]
    with pytest.raises(InputError, match="cannot be written"):
        swf.write(tmp_path / "no" / "where", Jobs.build(0))


@pytest.mark.parametrize(
    "head", ["# a site's remark\n", "id submit wait\n", "\n\n# MaxProcs: 8\n#\n"]
)
@pytest.mark.parametrize("between", ["", ";\n", "# 3 4\n", "\n; MaxProcs: 2\n"])
def test_comments_of_other_forms(tmp_path: Path, head: str, between: str) -> None:
    """With `#`, and in odd places; a line of names is left out with its reason."""
    line = "{} 0 5 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n"
    path = tmp_path / "log"
    path.write_text(head + line.format(1) + between + line.format(2))
    log = read_logs([path])
    assert (log.format, log.jobs.labels()) == ("swf", ["1", "2"])
    assert log.skipped.count.total() == ("id submit" in head)
    assert (log.cluster is not None) == ("MaxProcs" in head)
