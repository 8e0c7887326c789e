"""`rtsched when --check`: numbers, page and refusals on small logs, which need no daemon."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from rtsched.estimates.check import Checked
from rtsched.estimates.record import (
    ERROR,
    ERROR_BY_LIMITS,
    JOB,
    MADE_AT,
    SCORE,
    SIZE,
    WIDTH,
    WITHIN_80,
    WITHIN_95,
)
from rtsched.model.units import WEEK
from rtsched.report.start_accuracy import StartAccuracy, figures
from rtsched.report.wording import percent

FEW = ("--every", 7200, "--draws", 8, "--no-progress")


@pytest.fixture
def queue(tmp_path):
    """Write a log of 160 jobs on 8 processors that wait for one another, without starts."""
    rng, lines, at = np.random.default_rng(3), ["; MaxProcs: 8", "; UnixStartTime: 1795219200"], 0
    for k in range(1, 161):
        at += int(rng.integers(1200, 2400))
        run, size, user = int(rng.integers(600, 5400)), int(rng.choice([1, 2, 4, 8])), k % 4
        lines.append(f"{k} {at} -1 {run} {size} -1 -1 {size} {3 * run} -1 1 {user} 1 -1 1 -1 -1 -1")
    path = tmp_path / "queue.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_without_starts_is_replayed(run, queue):
    """The table has all parts; the JSON of the same check has the same numbers, and bounds."""
    shown = run("when", "--check", queue, *FEW)
    assert shown.exit_code in {0, 1}, shown.stderr
    asked = run("when", "--check", queue, *FEW, "--json")
    assert asked.exit_code == shown.exit_code
    found = json.loads(asked.stdout)
    assert found["starts"] == "replayed"
    assert (found["jobs"], found["draws"], found["every_s"]) == (160, 8, 7200)
    parts = found["parts"]
    names = ["all", *(f"quarter_{k}" for k in range(1, 5)), "small_jobs", "medium_jobs"]
    assert list(parts) == [*names, "large_jobs"]
    whole = parts["all"]
    assert 0 < whole["judged"] == sum(parts[f"quarter_{k}"]["judged"] for k in range(1, 5))
    assert 0 <= whole["covered_80"] <= whole["covered_90"] <= whole["covered_95"] <= 1
    simple = [whole[f"error_by_{name}_s"] for name in ("limits", "median_ratio", "last_two")]
    assert whole["lower_ratio"] == pytest.approx(1 - whole["error_s"] / min(simple))
    assert 0 <= whole["within_1_min"] <= whole["within_10_min"] <= 1
    assert whole["score_90_s"] >= whole["width_90_s"] > 0
    for name in ("limits", "median_ratio", "last_two"):
        assert whole[f"score_90_by_{name}_s"] >= whole[f"width_90_by_{name}_s"] > 0
    scores = [whole[f"score_90_by_{name}_s"] for name in ("limits", "median_ratio", "last_two")]
    assert whole["lower_score_ratio"] == pytest.approx(1 - whole["score_90_s"] / min(scores))
    assert sum(week["judged"] for week in found["weeks"]) == whole["judged"]
    for name in parts:
        row, errors = [
            line for line in shown.stdout.splitlines() if line.startswith(name.replace("_", " "))
        ]
        assert f" {parts[name]['judged']:,} " in row
        assert f" {percent(parts[name]['within_10_min'])}" in errors
    assert f" {percent(whole['covered_90'])} " in shown.stdout
    assert " ".join(found["verdict"].split()) in " ".join(shown.stdout.split())


def test_a_log_with_starts_is_compared_with_them(run, log):
    """Unless the replay is asked for; two files are one log."""
    found = json.loads(run("when", "--check", log, *FEW, "--every", 600, "--json").stdout)
    assert found["starts"] == "recorded"
    again = run("when", "--check", log, *FEW, "--every", 600, "--json", "--starts", "replayed")
    assert json.loads(again.stdout)["starts"] == "replayed"


def test_the_site_says_how_estimates_are_made(run, queue, tmp_path):
    """Draws and scheduler are those of its file, unless the command says else."""
    (tmp_path / "site.toml").write_text(
        '[estimates]\ndraws = 9\n[system]\nloop = "fcfs"\n[workload]\nunit = "node"\n'
    )
    here = ("when", "--check", queue, "--every", 7200, "--json")
    site = json.loads(run(*here, "--config", "site.toml").stdout)
    assert site["draws"] == 9
    strict = json.loads(run(*here, "--config", "site.toml", "--draws", 8).stdout)
    assert strict["draws"] == 8
    easy = json.loads(run(*here, "--draws", 8).stdout)
    assert strict["parts"] != easy["parts"]


def test_the_page_is_complete_in_itself(run, queue, tmp_path):
    """Two plots, a policy that forbids the network, and texts that are escaped."""
    evil = tmp_path / "<b>&queue.swf"
    evil.write_bytes(queue.read_bytes())
    result = run("when", "--check", evil, *FEW, "--html", "page.html", "--json")
    assert "page.html" in result.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "default-src &#39;none&#39;" in page
    assert "&lt;b&gt;&amp;queue.swf" in page
    assert "<b>&queue" not in page
    before = page[: page.index("<script>")]
    assert "http" not in before.replace("http-equiv", "")
    for key in ("fig-coverage", "fig-error"):
        text = page.split(f'id="{key}-data">')[1].split("</script>")[0]
        assert json.loads(text)["data"]


@pytest.mark.parametrize("given", ["log", "config"])
def test_no_page_takes_the_place_of_what_is_read(run, refused, queue, tmp_path, given):
    """Neither under its own name nor through a link; the file is as it was."""
    (tmp_path / "site.toml").write_text("[estimates]\ndraws = 9\n")
    read = {"log": queue, "config": tmp_path / "site.toml"}[given]
    before = read.read_bytes()
    (tmp_path / "link.html").symlink_to(read)
    for page in (read, "link.html"):
        asked = ("when", "--check", queue, *FEW, "--config", "site.toml", "--html", page)
        refused(run(*asked), "reads this file", "--html")
    assert read.read_bytes() == before


def test_requested_times_that_the_log_does_not_give(run, queue, tmp_path):
    """Such jobs have no limit: estimates must not know their run times."""
    known = run("when", "--check", queue, *FEW)
    assert "Assumed" in known.stdout
    assert "no requested time" not in known.stdout
    lines = [line.split(" ") for line in queue.read_text().splitlines()]
    for line in lines[2:]:
        line[8] = "-1"
    (tmp_path / "odd.swf").write_text("\n".join(" ".join(line) for line in lines) + "\n")
    shown = run("when", "--check", "odd.swf", *FEW)
    said = "- 160 of 160 jobs had no requested time; they count as jobs without a limit."
    assert said in shown.stdout
    found = json.loads(run("when", "--check", "odd.swf", *FEW, "--json").stdout)
    assert any("without a limit" in each for each in found["assumptions"])
    whole = found["parts"]["all"]
    assert whole["error_s"] > 0
    assert whole["error_by_limits_s"] > 10 * 86400  # they start after all that is simulated


def test_one_user_whose_jobs_come_at_once(run, tmp_path):
    """All equal, 1,000 of them: intervals are wide, or what is shown says that they are not."""
    jobs = [f"{k} {60000 + 9000 * (k // 500)} -1 600 1 -1 -1 1 1200 -1 1 1" for k in range(3, 1003)]
    lines = [*(f"{k} {k} -1 600 1 -1 -1 1 1200 -1 1 1" for k in (1, 2)), *jobs]
    log = "".join(f"{line} 1 -1 1 -1 -1 -1\n" for line in lines)
    (tmp_path / "burst.swf").write_text("; MaxProcs: 8\n" + log)
    done = run("when", "--check", "burst.swf", *FEW, "--json")
    found = json.loads(done.stdout)
    assert found["parts"]["all"]["covered_95"] >= 0.9 or "too narrow" in found["verdict"]
    assert done.exit_code == (0 if found["holds"] else 1)


def test_one_week_is_drawn_as_a_week():
    """Its point is in the middle of seven days."""
    found = checked(0.9, 40.0)
    one = replace(found, weeks=found.weeks[:1], begins=found.begins[:1] + 1.8e9)
    for figure in figures(one):
        begin, end = figure.plot.layout.xaxis.range
        assert end - begin == 1000 * WEEK
        assert figure.plot.data[0].x[0] == (begin + end) / 2


def checked_rows(within: float, error: float, jobs: int, first: int = 0, count: int = 0):
    """Return judged estimates of which this share was within all intervals, one a job by default.

    The best simple predictor, the last two, is off by 100 seconds. Intervals are 300 seconds wide,
    with a score of 400; by the median ratio, which is best by score, 600 and 500.
    """
    count = count or jobs
    rows = np.zeros((count, ERROR_BY_LIMITS + 9))
    rows[:, ERROR_BY_LIMITS + 3 :] = 900.0, 600.0, 100.0, 900.0, 500.0, 700.0
    rows[:, WIDTH], rows[:, SCORE] = 300.0, 400.0
    rows[:, JOB] = first + np.arange(count) * jobs // count
    rows[:, SIZE] = np.arange(count) % 3
    rows[:, WITHIN_80 : WITHIN_95 + 1] = (np.arange(count) % 20 < 20 * within)[:, None]
    rows[:, ERROR] = error
    rows[:, ERROR_BY_LIMITS : ERROR_BY_LIMITS + 3] = 900.0, 300.0, 100.0
    return rows


def accuracy(rows) -> StartAccuracy:
    """Return the accuracy of judged estimates that were made one after the other."""
    rows[:, MADE_AT] = np.linspace(0.0, 2.0 * WEEK, len(rows))
    quarters = np.linspace(0.0, 2.0 * WEEK, 5)
    return StartAccuracy.of(Checked(rows, quarters, np.array([0.5, 1.5]), 0.995, len(rows)))


def checked(within: float, error: float, jobs: int = 400, count: int = 400) -> StartAccuracy:
    """Return what becomes of estimates of which this share was within all intervals."""
    return accuracy(checked_rows(within, error, jobs, count=count))


@pytest.mark.parametrize(
    ("found", "holds", "words"),
    [
        (
            checked(0.9, 40.0),
            True,
            ["intervals hold", "90.0 %", "60.0 % nearer", "score is 20.0 % lower", "50.0 % lower"],
        ),
        (checked(0.75, 40.0), False, ["too narrow", "75.0 % on the whole", "of quarter 1"]),
        (checked(1.0, 40.0), False, ["wider than they need be", "100 % on the whole"]),
        (checked(0.9, 120.0), False, ["simple predictor, last two, is nearer", "on the whole"]),
        (checked(0.8, 40.0, 49), False, ["only 49 jobs", "too few"]),
        (checked(0.75, 40.0, 60), False, ["on the whole, 74.6 % of small jobs"]),
        (checked(0.85, 40.0), False, ["too narrow: they cover 85.0 % on the whole."]),
        (checked(0.95, 40.0), False, ["wider than they need be: they cover 95.0 % on the whole."]),
    ],
    ids=["good", "narrow", "wide", "far", "few", "parts of few", "narrower", "wider"],
)
def test_the_verdict_names_what_does_not_hold(found, holds, words):
    """Too narrow and too wide apart; it claims nothing from a handful of estimates."""
    assert found.holds is holds
    for word in words:
        assert word in found.verdict()
    assert len(found.weeks) == 2
    assert "99.5 %" in found.steadiness()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (SCORE, 550.0, "score is 10.0 % higher, and their mean width 50.0 % lower, than with the"),
        (WIDTH, 630.0, "score is 20.0 % lower, and their mean width 5.0 % higher, than with the"),
    ],
    ids=["score", "width"],
)
def test_intervals_that_are_no_sharper_than_simple_ones_do_not_hold(column, value, words):
    """Both score and width are to be lower than those of the predictor of the best score."""
    rows = checked_rows(0.9, 40.0, 400)
    rows[:, column] = value
    found = accuracy(rows)
    assert not found.holds
    assert f"{words} best simple predictor, median ratio." in found.verdict()


def windows(within: tuple[float, float], error: tuple[float, float]) -> StartAccuracy:
    """Return the accuracy over two windows of jobs, and some jobs too few for a third."""
    parts = [
        checked_rows(share, off, 4000, first)
        for share, off, first in zip(within, error, (0, 4000), strict=True)
    ]
    return accuracy(np.concatenate([*parts, checked_rows(0.9, 40.0, 100, 8000)]))


def test_windows_are_judged_by_themselves():
    """What is good on the whole may be bad in a window; a window that is not full is none."""
    found = windows((0.95, 0.85), (40.0, 40.0))
    assert [part.name for part in found.parts[8:]] == ["window 1", "window 2"]
    assert (found.narrow, found.wide) == (["85.0 % of window 2"], ["95.0 % of window 1"])
    worse = windows((0.9, 0.9), (40.0, 106.0))
    assert worse.worse == ["in window 2"]
    assert not worse.holds
    assert "nearer to the starts than the median in window 2." in worse.verdict()
    assert windows((0.9, 0.9), (40.0, 104.0)).holds


def swf(*jobs: str) -> str:
    """Return a log of jobs: submission, wait, run time, requested time."""
    rows = (job.split() for job in jobs)
    return "; MaxProcs: 4\n" + "".join(
        f"{k} {at} {wait} {run} 1 -1 -1 1 {limit} -1 1 1 1 -1 1 -1 -1 -1\n"
        for k, (at, wait, run, limit) in enumerate(rows, 1)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["the file is empty"]),
        (swf("0 0 60 60"), ["too few jobs", "give a longer one"]),
        (swf(*(f"{9000 * k} 0 60 60" for k in range(30))), ["no job waited", "smaller --every"]),
        (swf("0 0 60 60", "99000000000000 0 60 60"), ["years", "--every"]),
        (swf(*(f"{k} -1 60 60" for k in range(9))), ["starts", "--starts replayed"]),
    ],
    ids=["empty", "one job", "empty queue", "absurd times", "no starts"],
)
def test_a_log_that_says_nothing(run, refused, tmp_path, text, words):
    """One sentence that names the file."""
    (tmp_path / "odd.swf").write_text(text)
    starts = ("--starts", "recorded") if "-1 60 1" in text else ()
    refused(run("when", "--check", "odd.swf", *FEW, *starts), "odd.swf", *words)


def test_a_log_that_ends_in_the_middle(run, refused, queue, tmp_path):
    """A packed one is refused; of a plain one the line that is cut is left out and counted."""
    (tmp_path / "cut.swf.gz").write_bytes(gzip.compress(queue.read_bytes())[:-900])
    refused(run("when", "--check", "cut.swf.gz", *FEW), "cut.swf.gz")
    (tmp_path / "cut.swf").write_bytes(queue.read_bytes()[:-30])
    found = run("when", "--check", "cut.swf", *FEW)
    assert " 159, 1 record skipped\n" in found.stdout


@pytest.mark.parametrize("limit", [1, 10**15])
def test_absurd_requested_times(run, queue, tmp_path, limit):
    """They are no reason to fail, nor for an error that is no number."""
    lines = [line.split(" ") for line in queue.read_text().splitlines()]
    for line in lines[2::3]:
        line[8] = str(limit)
    (tmp_path / "odd.swf").write_text("\n".join(" ".join(line) for line in lines) + "\n")
    result = run("when", "--check", "odd.swf", *FEW, "--json")
    assert result.exit_code in {0, 1}, result.stderr
    assert json.loads(result.stdout)["parts"]["all"]["error_s"] >= 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--check", "none.swf"], ["none.swf"]),
        (["7", "--check", "log.swf"], ["--check"]),
        (["--check", "log.swf", "-N", "4"], ["--check"]),
        (["--every", "60"], ["--every", "--check LOG"]),
        (["--html", "x.html"], ["--html", "--check LOG"]),
        (["--check", "log.swf", "--html", "no/where/x.html"], ["no/where"]),
        (["--check", "log.swf", "--draws", "1"], ["--draws"]),
        (["--check", "log.swf", "--every", "0"], ["--every"]),
        (["--check", "log.swf", "--every", "nan"], ["--every", "give a number"]),
        (["--check", "log.swf", "--every", "inf"], ["--every", "give a number"]),
        (["--check", "log.swf", "--html", "log.swf"], ["log.swf", "reads this file"]),
        (["--check", "log.swf", "--html", "/dev/null"], ["/dev/null", "no regular file"]),
        (["--check", "log.swf", "--unit", "rack"], ["--unit"]),
        (["--check", "log.swf", "--timezone", "Mars"], ["Mars"]),
        (["--check", "log.swf", "--config", "none.toml"], ["none.toml"]),
        (["--check", "log.swf", "--cluster", "none.conf"], ["none.conf"]),
    ],
    ids=str,
)
def test_wrong_use_of_a_check(run, tmp_path, refused, arguments, words):
    """One sentence each."""
    (tmp_path / "log.swf").write_text(swf("0 0 60 60", "10 0 60 60"))
    refused(run("when", *arguments), *words)


def test_limits_of_accounts_and_qos(run, queue, tmp_path):
    """Replay and estimates keep to them; a file that is none is refused, and so is one alone."""
    lines = ["Account|User|GrpJobs", "1||1", *(f"1|{user}|" for user in range(4))]
    (tmp_path / "assoc.txt").write_text("\n".join(lines) + "\n")
    asked = ("when", "--check", queue, *FEW, "--json")
    plain = json.loads(run(*asked).stdout)["parts"]["all"]
    limited = json.loads(run(*asked, "--associations-file", "assoc.txt").stdout)["parts"]["all"]
    assert limited["judged"] > 1.2 * plain["judged"]  # jobs wait longer
    assert limited["error_s"] < 0.7 * limited["error_by_limits_s"]
    (tmp_path / "bad.txt").write_text("Other|\nx|\n")
    done = run(*asked, "--qos-file", "bad.txt")
    assert (done.exit_code, "no header line with Name" in done.stderr) == (2, True)
    done = run("when", "--qos-file", "bad.txt")
    assert (done.exit_code, "--qos-file goes with --check LOG" in done.stderr) == (2, True)


def test_the_jobs_of_one_cluster_in_text_without_a_header(run, refused, queue, tmp_path):
    """`--columns` and `--clusters` choose the same jobs that a file of their own has."""
    names = ["JobID", "Cluster", "User", "Submit", "End", "ElapsedRaw", "TimelimitRaw", "NCPUS"]
    both, own = [], []
    for line in queue.read_text().splitlines()[2:]:
        job, at, _, run_s, size, *_, limit, _, _, user, _, _, _, _, _, _, _ = line.split()
        begin = 1795219200 + int(at)
        cells = [user, begin, begin + int(run_s), run_s, int(limit) // 60]
        own.append("|".join(map(str, [job, "a", *cells, size])))
        both += [own[-1], "|".join(map(str, [f"9{job}", "b", *cells, 8]))]
    headed, bare = tmp_path / "headed.txt", tmp_path / "bare.txt"
    headed.write_text("\n".join(["|".join(names), *own, ""]))
    bare.write_text("\n".join([*both, ""]))
    machine = tmp_path / "slurm.conf"
    machine.write_text("NodeName=n[1-8] CPUs=1\nPartitionName=p Nodes=ALL\n")
    asked = (*FEW, "--starts", "replayed", "--cluster", machine, "--timezone", "UTC", "--json")
    one = run("when", "--check", headed, *asked)
    assert one.exit_code in {0, 1}, one.stderr
    expected = json.loads(one.stdout)
    columns = ("--columns", ",".join(names))
    found = json.loads(run("when", "--check", bare, *columns, "--clusters", "a", *asked).stdout)
    assert (found["jobs"], found["parts"]) == (expected["jobs"], expected["parts"])
    assert json.loads(run("when", "--check", bare, *columns, *asked).stdout)["jobs"] == 320
    refused(run("when", "--check", bare, "--clusters", "a", *asked), "--columns")
    refused(run("when", "--check", bare, *columns, "--clusters", "c", *asked), "of another cluster")


@pytest.mark.parametrize("nodes", ["n[5-1]", "n[1-", "n[1-9][1-4294967295]", "None assigned"])
def test_a_damaged_list_of_nodes(run, tmp_path, nodes):
    """Its job has any nodes, as one of whom the log does not say."""
    names = "JobID|User|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|NodeList|State"
    rows = [
        f"{k}|ann|2026-01-01T0{k}:00:00|2026-01-01T1{k}:00:00|2026-01-01T1{k}:50:00|3000|60|2|2|"
        f"{nodes if k == 2 else 'n[1-2]'}|COMPLETED"
        for k in range(1, 9)
    ]
    (tmp_path / "odd.txt").write_text("\n".join([names, *rows, ""]))
    done = run("when", "--check", "odd.txt", *FEW, "--every", 900)
    assert done.exit_code in {0, 1}, done.stderr
    assert "judged" in done.stdout
