"""What squeue prints, from poll to poll."""

from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import PLAIN, TOKEN, job_rows, printed

from rtsched.adapters.programs import text_of
from rtsched.adapters.slurm import route
from rtsched.adapters.slurm.route import EXCLUSIVE_SHOWN, JobReader, release_of
from rtsched.adapters.slurm.rows import JobRows
from rtsched.errors import AdapterError

ANY = st.text().map(lambda text: text_of(text.encode()))

VALUES: dict[str, Any] = {
    "state": st.sampled_from(["PENDING", "RUNNING", "A_NEW_STATE"]),
    "starttime": st.sampled_from(["N/A", "Unknown", "1795320674"]),
    "prioritylong": st.integers(0, 3).map(str),
    "timelimit": st.sampled_from(["10:00", "UNLIMITED", "Partition_Limit"]),
    "jobarrayid": st.sampled_from(["1", "1_[2-9%4]", "1_3"]),
    "exclusive": st.sampled_from(["NO", "NODE", "OK"]),
    "tres": st.sampled_from(["cpu=8,node=2", "N/A", "node=4"]),
    "tres-per-node": st.sampled_from(["N/A", "gres/gpu:2"]),
    "reason": st.sampled_from(["Priority", "Resources", "a|b"]),
    **dict.fromkeys(("name", "comment", "admin_comment", "feature"), st.text(max_size=3)),
}
JOB = st.fixed_dictionaries({}, optional=VALUES)
QUEUE = st.dictionaries(st.integers(1, 6), JOB, max_size=6).map(
    lambda jobs: [{**job, "jobid": str(number)} for number, job in jobs.items()]
)


def same(one: JobRows, other: JobRows) -> None:
    """Assert that two tables have the same rows."""
    for name in (field.name for field in fields(JobRows)):
        left, right = getattr(one, name), getattr(other, name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right, name)
        else:
            assert left == right, name


@given(st.lists(QUEUE, min_size=1, max_size=5), st.sampled_from([EXCLUSIVE_SHOWN, (25, 11)]))
def test_what_was_read_before_is_no_matter(polls: list[Any], release: tuple[int, int]) -> None:
    """Each poll has the rows that a reader has that sees it first, whatever is done to them."""
    reader = JobReader(TOKEN, release)
    for queue in polls:
        found = reader.read([printed(*queue).encode()])
        same(found, job_rows(printed(*queue), release))
        for row in range(len(found)):  # as changes are written in after they were made
            found.priority[row], found.comment[row], found.id[row] = -7, "changed", -7


@given(st.lists(st.lists(st.binary(max_size=4), max_size=4), max_size=4))
def test_any_bytes(polls: list[list[bytes]]) -> None:
    """A text that is no UTF-8, or has several kinds of line ends, is what it is as text."""
    reader = JobReader(TOKEN)
    for comments in polls:
        jobs = [{"jobid": str(at), "comment": f"#{at}#"} for at in range(len(comments))]
        output = printed(*jobs).encode()
        for at, comment in enumerate(comments):
            output = output.replace(f"#{at}#".encode(), b"#" + comment)
        found = reader.read([output])
        assert list(found.comment) == [text_of(b"#" + comment) for comment in comments]


def test_texts_of_jobs_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than some are kept, and those that are there stay what they are."""
    monkeypatch.setattr(route, "_BLOCK", 4)
    reader = JobReader(TOKEN)
    for poll in range(9):
        jobs = [{"jobid": str(at), "name": f"{poll} {at}" if at else "one"} for at in range(3)]
        found = reader.read([printed(*jobs).encode()])
        assert list(found.name) == ["one", f"{poll} 1", f"{poll} 2"]
        assert len(found.name.vocabulary) <= 2 * 3 + 4


@given(st.lists(st.integers(0, 3000), max_size=9))
def test_output_in_pieces(cuts: list[int]) -> None:
    """Where the output is cut is no matter."""
    output = printed({}, {"jobid": "13", "comment": "é\n"}).encode()
    places = [0, *sorted(min(cut, len(output)) for cut in cuts), len(output)]
    found = JobReader(TOKEN).read(output[a:b] for a, b in pairwise(places))
    same(found, job_rows(output.decode()))


@given(ANY, ANY, ANY)
def test_hostile_texts(name: str, comment: str, mark: str) -> None:
    """Newlines, delimiters and whole rows in a user's text change no other column."""
    forged = printed({}).replace(TOKEN, "0123456789ac")
    job = {"name": name + forged, "comment": comment + "x", "reason": "a|b|"}
    rows = job_rows(printed({**job, "admin_comment": mark + "x"}, {"jobid": "13"}))
    assert rows.id.tolist() == [12, 13]
    assert list(rows.user) == ["ann", "ann"]
    assert rows.comment[0] == comment + "x"
    assert rows.name[0] == job["name"]
    assert rows.mark[0] == mark + "x"
    assert rows.reason[0] == "a|b|"


def test_no_jobs() -> None:
    """An empty queue is an empty table."""
    assert len(job_rows("")) == 0


def test_another_form() -> None:
    """Output that is cut off or of another form is refused, and spoils no later poll."""
    whole = printed({}, {"jobid": "13"})
    first, reader = printed({}), JobReader(TOKEN)
    for end in {*range(1, len(whole) - 1)} - {len(first), len(first) - 1}:
        with pytest.raises(AdapterError, match="set route"):
            reader.read([whole[:end].encode()])
    assert reader.read([first.encode()]).id.tolist() == [12]
    for spoilt in (
        whole.replace("|", "", 1),
        whole.replace("PENDING|", "PENDING||", 1),
        whole.replace(f"<{TOKEN}>", "", 1),
        whole.replace("|1795317074", "", 1),
    ):
        with pytest.raises(AdapterError, match="set route"):
            reader.read([spoilt.encode()])
    same(reader.read([whole.encode()]), job_rows(whole))


def test_the_format_says_every_column() -> None:
    """Squeue is asked for each column once, without a limit of its width."""
    names, ends = zip(
        *(part.split(":0") for part in JobReader(TOKEN).format.split(",")), strict=True
    )
    assert sorted(names) == sorted(PLAIN)
    assert set(ends) == {"|", f"<{TOKEN}>", f">{TOKEN}<"}


def test_the_format_of_other_releases() -> None:
    """Before 26.05 squeue has no field Exclusive, and OverSubscribe tells."""
    said = {"slurm-wlm 26.05.5\n": (26, 5), "slurm 25.11.7": (25, 11), "slurm 23.11.11": (23, 11)}
    for version, release in said.items():
        assert release_of(version) == release
        parts = {part.split(":")[0] for part in JobReader(TOKEN, release).format.split(",")}
        assert parts & {"exclusive", "oversubscribe"} == {
            "exclusive" if release >= (26, 5) else "oversubscribe"
        }
    with pytest.raises(AdapterError, match="printed 'what', which is no version; check bin_dir"):
        release_of("what")
