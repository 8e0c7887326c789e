"""Kept replays: what was written is read back, the same bytes each time, wholly or not at all."""

import csv
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import report_builders as build

from rtsched.errors import InputError, MissingExtraError, OutputError
from rtsched.report.files import ranges, rows_of
from rtsched.report.store import folder_of, read, write, write_text
from rtsched.report.summary import summarise

FORMATS = ["parquet", "csv"]


@pytest.fixture(scope="module")
def replay():
    """Return a workload with hostile users, two runs, and their summary."""
    work = build.workload(users=("ann", *build.HOSTILE))
    runs = [build.run(work), build.run(work, "mcdf", rejects=0.3)]
    return work, runs, summarise(work, runs, timings=True)


def content(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def same(ours, theirs) -> None:
    """Check that two tables hold the same."""
    assert len(ours) == len(theirs)
    for name in ours.columns():
        if ours.names(name) or theirs.names(name):
            assert ours.texts(name) == theirs.texts(name)
        else:
            np.testing.assert_array_equal(ours.column(name), theirs.column(name), err_msg=name)


@pytest.mark.parametrize("table_format", FORMATS)
def test_what_is_written_is_read_back(replay, tmp_path, table_format):
    """Workload, results, nodes, books and summary survive."""
    work, runs, summary = replay
    write(tmp_path / "out", work, runs, summary, table_format)
    kept = read(tmp_path / "out")
    assert kept.policies == ("fcfs", "mcdf")
    again = kept.workload
    for name in ("jobs", "outcomes", "accounts"):
        same(getattr(work, name), getattr(again, name))
    same(work.cluster.nodes, again.cluster.nodes)
    np.testing.assert_array_equal(work.run_time, again.run_time)
    assert again.assumptions == work.assumptions
    assert again.skipped == work.skipped
    assert again.promisable == work.promisable
    for run, found in zip(runs, kept.runs(), strict=True):
        same(run.results, found.results)
        for ours, theirs in zip(run.node_rows, found.node_rows, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert kept.summary.encode() == summary.without_timings().encode()
    assert summarise(again, kept.runs()).encode() == kept.summary.encode()


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("rows", [1, 7])
def test_large_tables_are_written_in_parts(replay, tmp_path, monkeypatch, table_format, rows):
    """What is read back is the same; CSV files are so byte for byte."""
    work, runs, summary = replay
    write(tmp_path / "whole", work, runs, summary, table_format)
    monkeypatch.setattr("rtsched.report.files.PART", rows)
    write(tmp_path / "parts", work, runs, summary, table_format)
    whole, parts = read(tmp_path / "whole"), read(tmp_path / "parts")
    same(whole.workload.jobs, parts.workload.jobs)
    for one, other in zip(whole.runs(), parts.runs(), strict=True):
        same(one.results, other.results)
        for ours, theirs in zip(one.node_rows, other.node_rows, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    if table_format == "csv":
        assert content(tmp_path / "whole") == content(tmp_path / "parts")


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_same_replay_gives_the_same_bytes(replay, tmp_path, table_format):
    """Neither time nor place is in the files."""
    work, runs, summary = replay
    write(tmp_path / "one", work, runs, summary, table_format, "<html>")
    write(tmp_path / "far" / "two", work, runs, summary.without_timings(), table_format, "<html>")
    one = content(tmp_path / "one")
    assert one == content(tmp_path / "far" / "two")
    assert sorted(one) == [
        f"fcfs/jobs.{table_format}" if name == "jobs" else name
        for name in ("fcfs/decisions.jsonl", "jobs", f"log.{table_format}", "manifest.json",
                     "mcdf/decisions.jsonl", f"mcdf/jobs.{table_format}", "report.html",
                     "summary.json")
    ]  # fmt: skip


def test_the_job_table_has_units_in_its_names(replay, tmp_path):
    """A person with a spreadsheet finds everything about a job in one row."""
    work, runs, summary = replay
    write(tmp_path, work, runs, summary, "csv")
    with (tmp_path / "mcdf" / "jobs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = (
        "job submit_s wall_time_s deadline_s asked_size user account start_s end_s wait_s size "
        "fate promise_s offer_s reason first_node nodes"
    )
    assert list(rows[0]) == wanted.split()
    turned = next(row for row in rows if row["fate"] == "rejected")
    assert turned["start_s"] == ""
    assert turned["reason"] == "mcdf.late"
    assert float(turned["offer_s"]) == float(turned["deadline_s"]) + 3600


def test_findings_are_found_by_job(replay, tmp_path):
    """A job's findings are the lines of its row, with the job's name and row."""
    work, runs, summary = replay
    write(tmp_path, work, runs, summary)
    row = int(np.flatnonzero(runs[1].results.fate)[0])
    (finding,) = read(tmp_path).findings("mcdf", row)
    assert (finding["job"], finding["label"], finding["reason"]) == (
        row,
        f"{100 + row}",
        "mcdf.late",
    )
    assert [some["job"] for some in read(tmp_path).run("mcdf").decisions] == [
        decision["job"] for decision in runs[1].decisions
    ]
    line = json.loads((tmp_path / "mcdf" / "decisions.jsonl").read_text().splitlines()[0])
    assert list(line)[:3] == ["row", "job", "plugin"]


def test_a_new_replay_takes_the_place_of_the_old_one(replay, tmp_path):
    """Files of policies that are no longer there go; what is not ours stays."""
    work, runs, summary = replay
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, work, runs, summary, "csv", "<html>")
    write(tmp_path, work, runs[:1], summarise(work, runs[:1]), "parquet")
    assert sorted(content(tmp_path)) == [
        "fcfs/decisions.jsonl", "fcfs/jobs.parquet", "log.parquet", "manifest.json", "notes.txt",
        "summary.json",
    ]  # fmt: skip
    assert not (tmp_path / "mcdf").exists()
    assert read(tmp_path).policies == ("fcfs",)


def test_a_policy_cannot_name_its_way_out(replay, tmp_path):
    """Slashes and dots in a policy's name make no path."""
    work = replay[0]
    odd = build.run(work, "../../evil\x00/..")
    write(tmp_path / "out", work, [odd], summarise(work, [odd]))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    same(read(tmp_path / "out").run("../../evil\x00/..").results, odd.results)
    assert folder_of("..") == "%2E%2E"


def test_unwritable_places_are_told_in_one_sentence(replay, tmp_path):
    """A file in the way is an error with path and advice."""
    work, runs, summary = replay
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match=r"cannot be written \(.*\); free space"):
            write(place, work, runs, summary)
    with pytest.raises(OutputError):
        write_text(tmp_path / "file" / "page.html", "x")
    assert content(tmp_path) == {"file": b"x"}


def test_a_page_takes_the_place_of_files_alone(tmp_path):
    """A pipe stays, as would a device; a link stays too, and the file that it names is written."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="no regular file"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "page.html").write_text("before")
    (tmp_path / "link").symlink_to("page.html")
    write_text(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page.html").read_text() == "after"


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import report_builders as build
from pathlib import Path
from rtsched.errors import OutputError
from rtsched.report.store import write, write_text
from rtsched.report.summary import summarise
work = build.workload(n=400)
runs = [build.run(work)]
summary = summarise(work, runs)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for place in map(Path, sys.argv[2:]):
    for how in ("parquet", "csv"):
        try:
            write(place, work, runs, summary, how)
        except OutputError as error:
            print(error)
try:
    write_text(Path(sys.argv[2]) / "page.html", "x" * 10000)
except OutputError as error:
    print(error)
"""


def test_a_full_disk_leaves_what_was_there(replay, tmp_path):
    """Where writing fails midway, the old replay is whole and nothing half-written is left."""
    work, runs, summary = replay
    write(tmp_path / "old", work, runs, summary)
    write_text(tmp_path / "old" / "page.html", "before")
    before = content(tmp_path)
    places = [tmp_path / "old", tmp_path / "new" / "deep"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(Path(__file__).parent), *map(str, places)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count("cannot be written (File too large); free space") == 5
    assert content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_damaged_directories_are_told(replay, tmp_path):
    """No manifest, a cut table, another version: one sentence each, with the file."""
    with pytest.raises(InputError, match="contains no replay; save one with"):
        read(tmp_path)
    work, runs, summary = replay
    write(tmp_path, work, runs, summary)
    with pytest.raises(InputError, match="contains no policy 'easy'; it has fcfs, mcdf"):
        read(tmp_path).run("easy")
    table = tmp_path / "fcfs" / "jobs.parquet"
    table.write_bytes(table.read_bytes()[:500])
    with pytest.raises(InputError, match=r"jobs\.parquet: is not a table written by rtsched"):
        read(tmp_path).run("fcfs")
    (tmp_path / "log.parquet").unlink()
    with pytest.raises(InputError, match=r"log\.parquet"):
        _ = read(tmp_path).workload
    (tmp_path / "mcdf" / "decisions.jsonl").write_text("{garbled\n")
    with pytest.raises(InputError, match=r"decisions\.jsonl"):
        list(read(tmp_path).run("mcdf").decisions)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 9'))
    with pytest.raises(InputError, match="version 9, this rtsched reads 2"):
        read(tmp_path)
    manifest.write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        read(tmp_path)


@pytest.mark.parametrize(
    "name", ["manifest.json", "summary.json", "log.parquet", "mcdf/decisions.jsonl"]
)
def test_files_that_may_not_be_read(replay, tmp_path, monkeypatch, name):
    """Another user's results are whole: the advice is not to replay again."""
    write(tmp_path, *replay)
    opened = io.open

    def read_all():
        kept = read(tmp_path)
        return kept.summary, kept.workload, list(kept.run("mcdf").decisions)

    def refuse(file, *arguments, **named):
        if str(file) == str(tmp_path / name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return opened(file, *arguments, **named)

    monkeypatch.setattr("io.open", refuse)
    why = rf"{name}: cannot be read \(Permission denied\); read it as a user who may$"
    with pytest.raises(InputError, match=why):
        read_all()


def test_parquet_without_pyarrow_names_the_extra(replay, tmp_path, monkeypatch):
    """A head node's minimal install is told what to install, or takes CSV."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    work, runs, summary = replay
    with pytest.raises(MissingExtraError, match=r"rtsched\[replay\]"):
        write(tmp_path / "out", work, runs, summary)
    assert not (tmp_path / "out").exists()
    write(tmp_path / "out", work, runs, summary, "csv")
    same(read(tmp_path / "out").run("mcdf").results, runs[1].results)


def test_ranges_of_nodes_are_read_as_written():
    """Neighbouring nodes are written as a range."""
    rows = np.array([0, 1, 2, 5, 7, 8], np.int32)
    assert ranges(rows) == "0-2,5,7-8"
    assert rows_of(ranges(rows)) == rows.tolist()
    assert ranges(rows[:0]) == ""
    assert rows_of("") == []
