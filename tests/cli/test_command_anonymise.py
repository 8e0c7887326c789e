"""`rtsched anonymise`: replays of its logs, the key, and the way back."""

import json
import re
import stat
from pathlib import Path

import pytest

LOGS = Path(__file__).parents[2] / "examples" / "logs"


def figures(summary):
    """Yield each figure of a summary with its place in it; times of this run are left out."""
    if isinstance(summary, dict):
        for name, value in summary.items():
            if name not in {"seconds", "sources", "first"}:
                for place, figure in figures(value):
                    yield f"{name}.{place}", figure
    else:
        yield "", summary


@pytest.mark.parametrize("policy", ["easy", "mcdf", "ste"])
@pytest.mark.parametrize(
    "name", ["slurm-sacct.txt", "slurm-sacct.json.gz", "condor-history.txt.gz", "cluster.swf.gz"]
)
def test_a_replay_gives_the_same_figures(run, name, policy):
    """Whatever the summary says is equal; of SWF, whose users are numbers, but for rounding."""
    assert run("anonymise", LOGS / name, "--key", "key", "-o", "others.log").exit_code == 0
    shown = []
    for log in (LOGS / name, "others.log"):
        common = ("--timezone", "UTC", "--json", "--no-out", "--no-report")
        result = run("replay", log, "--policy", policy, *common)
        assert result.exit_code == 0, result.stderr
        shown.append(dict(figures(json.loads(result.stdout))))
    ours, others = shown
    assert len(ours) > 40
    if name == "cluster.swf.gz":
        ours |= {
            place: pytest.approx(figure, rel=1e-12)
            for place, figure in ours.items()
            if isinstance(figure, float)
        }
    assert others == ours


def test_names_go_and_come_back(run, tmp_path):
    """The key and the list are for their owner alone, and lead from a pseudonym to the name."""
    log = LOGS / "slurm-sacct.txt"
    result = run("anonymise", log, "--key", "key", "-o", "others.txt")
    assert result.exit_code == 0, result.stderr
    assert "63 records (sacct): others.txt\nnames replaced: account 2, " in result.stdout
    assert "69 records left out: it is a step of a job" in result.stdout
    text = (tmp_path / "others.txt").read_text()
    words = re.findall(r"[\w/]+", text)  # a pseudonym may have "bob" inside
    assert not {"alice", "bob", "research", "/dev/null", "sleep"} & set(words)
    for name in ("key", "key.names"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    names = [json.loads(line) for line in (tmp_path / "key.names").read_text().splitlines()]
    (bob,) = [shown for kind, shown, name in names if (kind, name) == ("user", "bob")]
    assert bob in text
    back = run("anonymise", "--key", "key", "--reverse", bob, "user-nobody")
    assert back.exit_code == 1
    assert back.stdout == f"{bob}  user  bob\n"
    assert "user-nobody: no name was replaced by this" in back.stderr
    back = run("anonymise", "--key", "key", "--reverse", "--json", bob)
    assert back.exit_code == 0
    found = json.loads(back.stdout)
    assert found["names"] == [{"kind": "user", "pseudonym": bob, "name": "bob"}]


def test_one_key_fits_several_logs(run, tmp_path):
    """A second log has the same pseudonyms, and adds only new names to the list."""
    texts = []
    for name in ("slurm-sacct.txt", "slurm-sacct.json.gz"):
        assert run("anonymise", LOGS / name, "--key", "key", "-o", "others").exit_code == 0
        texts.append((tmp_path / "others").read_text())
    names = (tmp_path / "key.names").read_text().splitlines()
    assert len({*names}) == len(names)
    users = [json.loads(line)[1] for line in names if line.startswith('["user"')]
    assert len(users) == 3
    assert all(user in text for user in users[:2] for text in texts)
    before = (tmp_path / "key.names").read_bytes()
    assert run("anonymise", LOGS / "slurm-sacct.txt", "--key", "key", "-o", "again").exit_code == 0
    assert (tmp_path / "again").read_text() == texts[0]
    assert (tmp_path / "key.names").read_bytes() == before


def test_json(run):
    """What was written and what was left out, as one object."""
    result = run(
        "anonymise", LOGS / "slurm-sacct.txt", "--key", "k", "-o", "o", "--json", "--keep", "qos"
    )
    shown = json.loads(result.stdout)
    assert (shown["format"], shown["records"], shown["kept"]) == ("sacct", 63, ["qos"])
    assert "admincomment" in shown["columns_left_out"]
    assert "qos" not in shown["names"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.log", "--key", "k", "-o", "o"], ["none.log: there is no such file"]),
        (["site.log", "--key", "k"], ["-o FILE"]),
        (["site.log", "site.log", "--key", "k", "-o", "o"], ["give one log"]),
        (["site.log", "--key", "none/k", "-o", "o"], ["none/k: cannot be written", "--key"]),
        (["site.log", "--key", "open", "-o", "o"], ["open: others may read it", "chmod 600"]),
        (["site.log", "--key", "site.log", "-o", "o"], ["site.log: others may read it"]),
        (["site.log", "--key", "damaged", "-o", "o"], ["damaged: this is not a key"]),
        (["site.log", "--key", "listed", "-o", "o"], ["listed.names:1: ", "remove the line"]),
        (["--reverse", "user-abc", "--key", "k"], ["k.names: cannot be read (No such file"]),
        (["site.log", "--key", "k", "-o", "site.log"], ["this is site.log itself"]),
        (["site.log", "--key", "k", "-o", "none/o"], ["its directory does not exist"]),
        (["site.log", "--key", "k", "-o", "o", "--keep", "user"], ["'user'", "partition"]),
    ],
)
def test_wrong_use(run, refused, tmp_path, arguments, words):
    """Each is one sentence with a remedy, and no log for others is written."""
    log = tmp_path / "site.log"
    log.write_text("JobID|Submit|End\n1|2026-01-01T00:00:00|2026-01-01T01:00:00\n")
    for name, text, mode in (
        ("open", "0" * 64, 0o644),
        ("damaged", "0" * 60, 0o600),
        ("listed", "0" * 64, 0o600),
        ("listed.names", "{}", 0o600),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    before = log.read_text()
    refused(run("anonymise", *arguments), *words)
    assert not (tmp_path / "o").exists()
    assert log.read_text() == before


def test_columns_of_text_without_a_header(run, tmp_path):
    """They are named, or guessed, which is said; the log for others has a header."""
    header, _, body = (LOGS / "slurm-sacct.txt").read_text().partition("\n")
    (tmp_path / "whole").write_text(f"{header}\n{body}")
    (tmp_path / "bare").write_text(body)
    named = ("--columns", header.replace("|", ","))
    for log, output, more in (("whole", "1", ()), ("bare", "2", named)):
        result = run("anonymise", log, "--key", "key", "-o", output, *more)
        assert result.exit_code == 0, result.stderr
        assert "no header" not in result.stdout
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text()
    rows = (
        f"{n}|ann|2026-01-01T0{n}:00:00|2026-01-01T0{n}:01:00|2026-01-01T0{n}:03:00|"
        for n in range(1, 6)
    )
    (tmp_path / "short").write_text("".join(f"{row}120|COMPLETED|cpu=2,node=1\n" for row in rows))
    result = run("anonymise", "short", "--key", "key", "-o", "3")
    assert "the log has no header line" in result.stdout
    assert (
        (tmp_path / "3")
        .read_text()
        .startswith("JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES\n1|")
    )
