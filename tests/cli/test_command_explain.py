"""`rtsched explain` and `rtsched render` on what `rtsched replay` kept."""

import json
import re

import pytest

REPLAY = ("--no-report", "--policy", "easy,mcdf", "--deadline-rule", "slowdown:1.5")


@pytest.fixture(params=["parquet", "csv"])
def kept(run, log, request):
    """Replay the small log in the default directory."""
    result = run("replay", log, *REPLAY, "--table-format", request.param, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def rejected(tmp_path):
    """Return the first finding of a rejection by mcdf."""
    text = (tmp_path / "rtsched-replay" / "mcdf" / "decisions.jsonl").read_text()
    findings = [json.loads(line) for line in text.splitlines()]
    return next(finding for finding in findings if finding["verdict"] == "reject")


@pytest.mark.usefixtures("kept")
def test_rejected_job(run, tmp_path):
    """After `replay`, `explain` works without options: plug-in, reason, numbers, counter-offer."""
    finding = rejected(tmp_path)
    result = run("explain", finding["job"])
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert f"job {finding['job']} submitted 2026-11-21" in said
    assert f"mcdf: rejected at submission by mcdf: {finding['text']}." in said
    assert f"reject, {finding['reason']}: {finding['text']}" in said
    for name, value in finding["numbers"].items():
        assert f"{name} = {value:.10g}" in said
    offer = re.search(r"a deadline of .* UTC, .* \((\d+) s\) after submission", said)
    assert offer is not None
    submit = 1_795_219_200 + 120 * int(finding["job"])
    assert finding["offer_s"] == pytest.approx(submit + int(offer[1]), abs=1)


@pytest.mark.usefixtures("kept")
def test_json(run, tmp_path):
    """The numbers behind the sentences, as the results have them; null where there is none."""
    finding = rejected(tmp_path)
    result = run("explain", finding["job"], "--json")
    assert result.exit_code == 0, result.stderr
    (job,) = json.loads(result.stdout)["jobs"]
    number = int(finding["job"])
    assert job["job"] == finding["job"]
    assert job["submit"] == 1_795_219_200 + 120 * number
    assert job["nodes"] == (1, 2, 4, 7, 16)[number % 5]
    run_time = 300 + 97 * (number * number % 23)
    assert job["logged"] == {
        "start": job["submit"] + (0 if number % 2 else 600),
        "run_time_s": run_time,
    }
    assert job["wall_time_s"] == run_time + 60 * (number % 7)
    assert job["deadline"] == job["submit"] + 1.5 * job["wall_time_s"]
    assert list(job["policies"]) == ["easy", "mcdf"]
    no, yes = job["policies"]["mcdf"], job["policies"]["easy"]
    assert (no["state"], no["start"], no["wait_s"]) == ("rejected", None, None)
    assert no["offer"] == pytest.approx(finding["offer_s"])
    assert no["decisions"][0]["reason"] == finding["reason"]
    assert yes["wait_s"] == yes["start"] - job["submit"]
    assert yes["at_submission"]["nodes"] == 16
    one = json.loads(run("explain", finding["job"], "--policy", "easy", "--json").stdout)
    assert list(one["jobs"][0]["policies"]) == ["easy"]


@pytest.mark.usefixtures("made_up")
def test_a_plugin_that_always_defers(run, log, tmp_path):
    """What it says of a job at every instant is one line of the file, and counted."""
    (tmp_path / "site.toml").write_text('[[plugin]]\nname = "raises"\non_error = "defer"\n')
    options = ("--config", "site.toml", "--policy", "site", "--no-report")
    assert run("replay", log, *options).exit_code == 1
    text = (tmp_path / "rtsched-replay" / "site" / "decisions.jsonl").read_text()
    findings = [json.loads(line) for line in text.splitlines()]
    assert sorted(finding["row"] for finding in findings) == list(range(60))
    assert findings[0]["times"] > 59
    result = run("explain", findings[0]["job"])
    assert f"{findings[0]['times']} times" in " ".join(result.stdout.split())


@pytest.mark.usefixtures("kept")
def test_waiting_job(run):
    """The wait under each policy is told with who was ahead, and when it ran."""
    result = run("explain", "9", "--policy", "easy")
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "easy: waited " in said
    assert "ahead of it" in said
    assert "started 2026-11-21" in said
    assert "the log has a wait of 0s" in said
    assert "mcdf" not in said


@pytest.mark.usefixtures("kept")
def test_unknown_job(run, refused):
    """An unknown job is one sentence, with the nearest ones."""
    refused(run("explain", "600"), "no job '600' among its 60", "close to it: 60, 59, 58")
    refused(run("explain", "\x1b[31mred"), "no job")


@pytest.mark.usefixtures("kept")
def test_unknown_policy(run, refused):
    """A policy that was not replayed is named with those that were."""
    refused(run("explain", "6", "--policy", "fcfs"), "'fcfs'", "easy, mcdf")


def test_no_replay(run, tmp_path, refused):
    """Without a kept replay the sentence says how to make one."""
    refused(run("explain", "1"), "rtsched-replay: contains no replay", "rtsched replay")
    refused(run("render"), "rtsched-replay: contains no replay")
    (tmp_path / "file").write_text("")
    refused(run("render", "file"), "file: contains no replay")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "manifest.json").write_bytes(b"{\x00")
    refused(run("explain", "1", "--from", "d"), "manifest.json", "damaged")


def test_damaged_results(run, kept, tmp_path, refused):
    """A table that was cut off is one sentence."""
    for path in (tmp_path / "rtsched-replay" / "easy").glob("jobs.*"):
        path.write_bytes(path.read_bytes()[:200])
    refused(run("explain", "6"), "jobs.", "replay again")


def test_render(run, log, tmp_path, refused):
    """The page made later is the page that the replay wrote."""
    assert run("replay", log, "--policy", "easy,mcdf").exit_code == 0
    result = run("render", "rtsched-replay", "-o", "later.html")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "report: later.html\n"
    page = (tmp_path / "rtsched-replay" / "report.html").read_bytes()
    assert (tmp_path / "later.html").read_bytes() == page
    assert run("render", "-o", "later.html", "--title", "My site").exit_code == 0
    assert "<h1>My site</h1>" in (tmp_path / "later.html").read_text()
    refused(run("render", "-o", "."), "it is a directory")
    result = run("render", "-o", "no/where/later.html")
    refused(result, "no/where/later.html: cannot be written (its directory does not exist)", "-o")
    assert not (tmp_path / "no").exists()


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "log.parquet", "log.csv"])
def test_a_cause_does_not_repeat_the_path(run, tmp_path, refused, name):
    """A file that cannot be opened is named once, with the system's reason."""
    path = tmp_path / "rtsched-replay" / name
    if path.exists():
        path.unlink()
        path.mkdir()
        result = run("render")
        refused(result, f"rtsched-replay/{name}: ", "(Is a directory)")
        assert result.stderr.count(name) == 1


def test_a_job_that_periodic_work_leaves_no_time(run, log, tmp_path):
    """Without any plug-in the batch system itself says why it took no such job."""
    table = "[[workload.periodic]]\nname = 'backup'\nnodes = ['*']\nperiod = 60\nduration = 59\n"
    (tmp_path / "site.toml").write_text(table)
    options = ("--config", "site.toml", "--policy", "easy", "--no-report", "--json")
    assert run("replay", log, *options).exit_code == 0
    text = (tmp_path / "rtsched-replay" / "easy" / "decisions.jsonl").read_text()
    finding = json.loads(text.splitlines()[0])
    result = run("explain", finding["job"])
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "easy: rejected at submission by the system: requests" in said
    assert "reject, periodic.no-gap: " in said


def test_a_rejected_job_that_ran_on(run, log, tmp_path):
    """The rejection and its reason, then what became of the job."""
    (tmp_path / "site.toml").write_text(
        'planner = "mcdf"\nsystem = { order = "deadline", rejected = "run" }\n'
        '[[plugin]]\nname = "mcdf"\n'
    )
    options = ("--config", "site.toml", "--policy", "site", *REPLAY[3:], "--no-report")
    result = run("replay", log, *options)
    assert result.exit_code == 0, result.stderr
    assert "rejected, ran on" in result.stdout
    text = (tmp_path / "rtsched-replay" / "site" / "decisions.jsonl").read_text()
    findings = [json.loads(line) for line in text.splitlines()]
    finding = next(each for each in findings if each["verdict"] == "reject")
    result = run("explain", finding["job"])
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert f"rejected by mcdf: {finding['text']}; ran without a promise, waited" in said
    assert "started" in said
