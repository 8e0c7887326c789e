"""Commands that ask the daemon: what they print, as JSON too, and how they end."""

import json
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from daemon_replies import answering, reported
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtsched.adapters.wire import MessageKind, frame
from rtsched.cli.chunk import variables
from rtsched.daemon.database import migrations
from rtsched.daemon.questions import (
    MOST_ROUNDS,
    Cancel,
    CancelReport,
    Chunk,
    ChunkReport,
    Explain,
    ExplainReport,
    Feasible,
    FeasibleReport,
    JobReport,
    PendingChange,
    Plan,
    PlanReport,
    PromiseStatus,
    Reason,
    RefusedError,
    Status,
    StatusReport,
    Verdict,
    refusal_payload,
)
from rtsched.daemon.store import Store
from rtsched.model import jobs
from rtsched.rest import client

NOW = 1_795_219_200.0  # 2026-11-21 00:00 UTC
NODES = tuple(f"slow{k}" for k in (1, 2, 3, 7))
PROMISE = PromiseStatus(
    "4711",
    "sim\x1b[31m",
    "ann",
    "firm",
    NOW + 7200,
    NOW - 60,
    start=NOW + 600,
    end=NOW + 90_000,
    nodes=NODES,
)
STATUS = StatusReport(
    version="1.0",
    mode="live",
    system="slurm",
    now=NOW,
    started=NOW - 90_000,
    looked=NOW - 3,
    queued=12,
    running=1,
    nodes=30,
    usable=29,
    cycle_s=0.25,
    states={"firm": 1, "kept": 20},
    promises=(PROMISE,),
)


@pytest.fixture
def asked(tmp_path, run):
    """Return a function that runs a command while a daemon gives one report."""

    def asked(report, *arguments):
        path = tmp_path / "q"
        message = report if isinstance(report, bytes) else reported(report)
        with answering(path, lambda _: message) as questions:
            result = run(*arguments, "--socket", path)
        return result, questions

    return asked


def said(result) -> str:
    """Return what a command printed, on one line."""
    return " ".join(result.stdout.split())


def test_status(asked):
    """Status names the daemon and the promises; times of other days have dates."""
    result, questions = asked(STATUS, "status")
    assert questions == [Status()]
    assert result.exit_code == 0
    text = said(result)
    assert "rtsched 1.0 on slurm" in text
    assert "running since 2026-11-19 23:00:00" in text
    assert "12 jobs waiting, 1 running; 30 nodes, 29 of them accept jobs" in text
    assert "1 firm, 20 kept" in text
    row = next(line for line in result.stdout.splitlines() if line.startswith("4711"))
    assert row.split() == [
        *("4711", "sim\\x1b[31m", "firm", "02:00:00", "00:10:00"),
        *("2026-11-22", "01:00:00", "slow[1-3,7]"),
    ]
    assert "finish by (+0000)" in result.stdout


def test_status_with_problems(asked):
    """Problems are told, with status 1, in JSON too; an admin sees whose promises they are."""
    report = StatusReport(
        **{
            **{name: getattr(STATUS, name) for name in STATUS.__struct_fields__},
            "mode": "dry-run",
            "problems": ("slurmdbd does not answer",),
            "everyone": True,
        }
    )
    result, _ = asked(report, "status")
    assert result.exit_code == 1
    assert "dry run (changes nothing)" in said(result)
    assert "problem slurmdbd does not answer" in said(result)
    assert " ann " in said(result)
    result, _ = asked(report, "status", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["promises"][0]["job"] == "4711"


def test_an_array_in_progress(asked):
    """The table shows after its name how many of its tasks were started."""
    array = PromiseStatus("12", "scan", "ann", "firm", NOW + 60, NOW, tasks=100, waiting=63)
    known = {name: getattr(STATUS, name) for name in STATUS.__struct_fields__}
    result, _ = asked(StatusReport(**{**known, "promises": (array,)}), "status")
    assert "scan (37 of 100 tasks started)" in said(result)


def test_metrics(asked):
    """Metrics are printed as they are; without any that is said."""
    report = StatusReport(
        **{
            **{name: getattr(STATUS, name) for name in STATUS.__struct_fields__},
            "metrics": "# HELP x\nx 1.0\n",
        }
    )
    result, questions = asked(report, "status", "--metrics")
    assert questions == [Status(metrics=True)]
    assert result.stdout.startswith("# HELP x\nx 1.0")
    result, _ = asked(STATUS, "status", "--metrics")
    assert "no metrics" in result.stdout


STARTED = """
import sys
from rtsched.cli import main
try:
    main(sys.argv[1:])
finally:
    assert "structlog" not in sys.modules
    assert ("numpy" in sys.modules) == (sys.argv[1] == "feasible")
"""


@pytest.mark.parametrize(
    "command", [["status"], ["feasible", "-t", "10"], ["chunk", "7"], ["cancel", "7"]]
)
def test_users_commands_start_quickly(tmp_path, command):
    """They do not import the library for logs, nor numpy but to read times: most of a start."""
    words = [sys.executable, "-c", STARTED, *command, "--socket", str(tmp_path / "none.sock")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("rtsched: error: no daemon answers")


def test_the_bound_of_rounds_is_one():
    """Clients have it without the models."""
    assert MOST_ROUNDS == jobs.MOST_ROUNDS


def test_no_daemon(run, tmp_path, refused):
    """Without a daemon every command ends with status 3 and a remedy."""
    for command in (
        ["status"],
        ["plan"],
        ["feasible"],
        ["chunk", "7"],
        ["explain", "7", "--live"],
        ["explain", "--last"],
    ):
        result = run(*command, "--socket", tmp_path / "none")
        refused(result, "no daemon answers", "systemctl status rtsched", status=3)


def test_refusals(asked, refused):
    """What the daemon refuses is one sentence."""
    message = frame(MessageKind.REPORT, refusal_payload("only admins may see the whole plan"))
    result, questions = asked(message, "plan")
    assert questions == [Plan()]
    refused(result, "only admins may see the whole plan")


def test_cancel(asked, refused):
    """What was given up is named, or why it was not."""
    closed = PromiseStatus("4711", "sim", "ann", "withdrawn", NOW, NOW, why="cancelled by its user")
    report = CancelReport(NOW, closed)
    result, questions = asked(report, "cancel", "4711")
    assert questions == [Cancel("4711")]
    assert "the promise of job 4711 is cancelled by its user" in said(result)
    result, _ = asked(report, "cancel", "4711", "--json")
    assert json.loads(result.stdout)["promise"]["standing"] == "withdrawn"
    message = frame(MessageKind.REPORT, refusal_payload("no job '1' of yours", "not-found"))
    refused(asked(message, "cancel", "1")[0], "no job '1' of yours")


def test_cancel_all(run, monkeypatch):
    """What is in the queue is given up, though a job may just have ended; offers lapse."""
    asked = []
    promises = tuple(
        PromiseStatus(str(at), "sim", "ann", state, NOW, NOW)
        for at, state in enumerate(("firm", "firm", "at-risk", "offered", "provisional"), 1)
    )

    def answer(question, _):
        asked.append(question)
        if isinstance(question, Status):
            return msgspec.structs.replace(STATUS, promises=promises)
        if question == Cancel("1"):
            raise RefusedError("job 1 has no promise that could be cancelled", "not-found")
        return CancelReport(NOW, msgspec.structs.replace(promises[1], state="withdrawn"))

    monkeypatch.setattr("rtsched.cli.promises.report_of", answer)
    result = run("cancel", "--all")
    assert "2 promises cancelled; the users are informed" in said(result)
    assert "1 promise of jobs submitted a moment ago cannot be cancelled yet" in result.stderr
    assert asked[1:] == [Cancel("1"), Cancel("2"), Cancel("3")]
    assert len(json.loads(run("cancel", "--all", "--json").stdout)) == 2
    assert run("cancel").exit_code == run("cancel", "7", "--all").exit_code == 2


def test_a_database_of_a_newer_release(run, refused, tmp_path):
    """The daemon ends at its start with one sentence: what is there, and what to do."""
    path, newest = tmp_path / "rtsched.db", migrations()[-1][0]
    Store(path).close()
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA user_version = {newest + 1}")
    site = tmp_path / "site.toml"
    places = {"database": path, "run": tmp_path}
    site.write_text(
        'planner = "mcdf"\n[[plugin]]\nname = "mcdf"\n[daemon]\n'
        + "".join(f'{name} = "{place}"\n' for name, place in places.items())
    )
    told = f"{path}: has schema {newest + 1}, this release of rtsched knows {newest}; install "
    remedy = f"the release that wrote it, or restore {path}.schema-{newest}"
    refused(run("serve", "--config", site), told + remedy)


def test_the_sites_server(run, tmp_path, refused, monkeypatch):
    """Where no socket was chosen, the server that the environment or the file names is asked."""
    monkeypatch.setenv("RTSCHED_SERVER", "https://head:6821")
    seen = []

    def ask_server(question, server):
        seen.append((question, server.server))
        return STATUS

    with monkeypatch.context() as patch:
        patch.setattr(client, "ask_server", ask_server)
        assert "1 firm, 20 kept" in said(run("status"))
    assert seen == [(Status(), "https://head:6821")]
    refused(
        run("status", "--socket", tmp_path / "none"), "no daemon answers", "systemctl", status=3
    )
    monkeypatch.setenv("RTSCHED_SERVER", "http://head:6821")
    monkeypatch.setattr("rtsched.adapters.credentials.encode", lambda *_: "credential")
    refused(run("status"), "server: http://head:6821 is on another host; use https")


@pytest.mark.parametrize("code", ['"code":"malformed",', ""])
def test_an_older_daemon(asked, refused, code):
    """One that does not know a question yet is told as such."""
    text = "not a question: Invalid value 'cancel' - at `$.ask`"
    message = frame(MessageKind.REPORT, f'{{{code}"error":"{text}"}}'.encode())
    result, _ = asked(message, "cancel", "1")
    refused(result, "does not know this question", "use the same release", status=3)


def test_plan(asked):
    """The plan shows all jobs; changes are shown of a dry-run alone."""
    report = PlanReport(NOW, "live", 7, (PROMISE,))
    result, _ = asked(report, "plan")
    assert "plan 7: 1 planned job" in said(result)
    assert "slow[1-3,7]" in said(result)
    assert "dry-run" not in said(result)
    change = PendingChange("reserve", "4711", "create reservation rtsched_1 on slow[1-3,7]")
    result, _ = asked(PlanReport(NOW, "dry-run", 7, (), (change,)), "plan")
    assert "dry run: 1 change would be made, none is" in said(result)
    assert "reserve 4711 create reservation rtsched_1 on slow[1-3,7]" in said(result)
    result, _ = asked(report, "plan", "--json")
    assert json.loads(result.stdout)["version"] == 7


def test_feasible(asked):
    """What a job could have is told with how to ask for it."""
    report = FeasibleReport(
        NOW, True, NOW + 3600, NOW, NOW + 3500, NODES, "--deadline=2026-11-21T01:00:00"
    )
    result, questions = asked(report, "feasible", "-N", "2-4", "--time", "30:00", "-p", "long")
    assert questions == [Feasible(nodes=2, nodes_max=4, time_s=1800.0, partition="long")]
    assert result.exit_code == 0
    assert "the earliest deadline now: 01:00:00 +0000, in 1h 00m" in said(result)
    assert "ask for it with --deadline=2026-11-21T01:00:00" in said(result)
    assert "nodes 4: slow[1-3,7]" in said(result)


def test_not_feasible(asked):
    """A deadline that is too early is told with the earliest; none at all with the reason."""
    why = (Reason("mcdf.no-room", "30 nodes are busy until 02:00"),)
    report = FeasibleReport(NOW, False, NOW + 3600, reasons=why)
    result, questions = asked(report, "feasible", "--deadline", "now+10minutes")
    assert questions[0].deadline is not None
    assert result.exit_code == 1
    assert "not feasible; the earliest is 01:00:00" in said(result)
    assert "30 nodes are busy until 02:00 (mcdf.no-room)" in said(result)
    result, _ = asked(FeasibleReport(NOW, False, reasons=why), "feasible", "--json")
    assert result.exit_code == 1
    result, _ = asked(FeasibleReport(NOW, False, reasons=why), "feasible")
    assert "no deadline could be promised" in said(result)


def test_feasible_load(asked):
    """A divisible load is asked for by its own numbers."""
    load = ("--sigma", "100", "--cms", "0", "--cps", "2.5", "--setup-node", "3")
    _, questions = asked(FeasibleReport(NOW, False), "feasible", *load)
    assert questions == [Feasible(sigma=100.0, cms=0.0, cps=2.5, setup_node=3.0)]
    _, questions = asked(FeasibleReport(NOW, False), "feasible", *load, "--rounds", "4")
    assert questions == [Feasible(sigma=100.0, cms=0.0, cps=2.5, setup_node=3.0, rounds=4)]


def test_feasible_resources(asked):
    """What a job needs of its nodes, and which ones, as sbatch takes it."""
    words = [
        "-n8",
        "-c",
        "2",
        "--mem",
        "4G",
        "--gpus-per-node=2",
        "-C",
        "a&b",
        "-w",
        "n1",
        "-x",
        "n2",
        "-a",
        "1-100%8",
    ]
    _, questions = asked(FeasibleReport(NOW, False), "feasible", *words)
    assert questions == [
        Feasible(
            tasks=8,
            cpus_per_task=2,
            memory=4 << 30,
            gpus=2,
            constraint="a&b",
            nodelist="n1",
            exclude="n2",
            array="1-100%8",
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--mem", "much"), "not an amount of memory"),
        (("--mem", "0"), "not an amount of memory"),
        (("-n", "0"), "0 is not in the range"),
        (("-n", "4294967296"), "4294967296 is not in the range"),
        (("-c", "4294967296"), "4294967296 is not in the range"),
        (("--gpus-per-node", "4294967296"), "4294967296 is not in the range"),
        (("-N", "4-2"), "not a number of nodes"),
        (("-N", "0"), "not a number of nodes"),
        (("-N", "x"), "not a number of nodes"),
        (("-t", "soon"), "not a time limit"),
        (("-t", "0"), "not a time limit"),
        (("-t", "UNLIMITED"), "not a time limit"),
        (("--deadline", "2001-01-01"), "not a time in the future"),
        (("--deadline", "whenever"), "not a time in the future"),
        (("--sigma", "100"), "needs --cms too"),
        (("--sigma", "0", "--cms", "1", "--cps", "1"), "above 0"),
        (("--sigma", "nan", "--cms", "1", "--cps", "1"), "above 0"),
        (("--setup-link", "-1"), "0 or more"),
        (("--rounds", "4"), "--rounds needs a divisible load"),
        (("--rounds", "65"), "65 is not in the range"),
    ],
)
def test_feasible_makes_no_sense(run, tmp_path, refused, arguments, word):
    """What makes no sense is refused before the daemon is asked."""
    refused(run("feasible", *arguments, "--socket", tmp_path / "none"), word)


EXPLAINED = ExplainReport(
    NOW,
    JobReport("4711", "sim", "ann", "long", "waiting", 4, 3700.0, NOW - 60, NOW + 7200),
    PROMISE,
    (Verdict(NOW - 60, "4711", "sim", "admit", (), "rtsched: promised to end by 02:00:00"),),
    (Reason("wait.planned", "it is planned to start at 00:10:00"),),
    ("ask for fewer nodes", "ask for less time"),
    {"ste.account": 0.25},
)


def test_explain_live(asked):
    """Of a live job everything is told: promise, plan, why it waits, what helps, what was said."""
    result, questions = asked(EXPLAINED, "explain", "4711", "--live")
    assert questions == [Explain("4711", 5)]
    assert result.exit_code == 0
    text = said(result)
    assert "job 4711: waits for 1m 00s" in text
    assert (
        "promised to end by 02:00:00 +0000, in 2h 00m (firm, given 2026-11-20 23:59:00 +0000)"
        in text
    )
    assert "planned 00:10:00 +0000 to 2026-11-22 01:00:00 +0000 on 4 nodes (slow[1-3,7])" in text
    assert "waits it is planned to start at 00:10:00 (wait.planned)" in text
    assert "would help ask for fewer nodes ask for less time" in text
    assert "priority ste.account 0.25" in text
    assert "admit rtsched: promised to end by 02:00:00" in text


def test_explain_without_a_replay(asked):
    """Where there is no replay but a daemon, the daemon is asked."""
    result, questions = asked(EXPLAINED, "explain", "4711")
    assert questions == [Explain("4711", 5)]
    assert "job 4711" in result.stdout


def test_explain_last(asked):
    """Submissions that were turned away are told without a job id, with their counter-offer."""
    verdicts = (
        Verdict(NOW - 9, "", "a\nb", "reject", ("mcdf.late",), "rtsched: rejected", NOW + 60),
        Verdict(NOW - 99, "", "old", "reject", (), "no", NOW - 60),
    )
    result, questions = asked(ExplainReport(NOW, verdicts=verdicts), "explain", "--last", "2")
    assert questions == [Explain("", 2)]
    text = said(result)
    assert "a\\nb: reject (mcdf.late) rtsched: rejected feasible then: 00:01:00" in text
    assert "feasible then: 2026-11-20 23:59:00 +0000, which is over" in text
    result, questions = asked(ExplainReport(NOW), "explain", "--last")
    assert questions == [Explain("", 1)]
    assert result.exit_code == 1
    assert "no replies to submissions" in said(result)


def test_explain_offer_and_end(asked):
    """A held counter-offer and a job that is gone are told as such."""
    offer = PromiseStatus("", "sim", "ann", "offered", NOW + 600, NOW, expires=NOW + 60)
    result, _ = asked(ExplainReport(NOW, promise=offer), "explain", "7", "--live")
    assert "no longer shows it offered to end by 00:10:00 +0000; held until 00:01:00 +0000" in said(
        result
    )
    gone = JobReport("7", "", "ann", "", "ended", 4, None, None, end=NOW - 9)
    result, _ = asked(ExplainReport(NOW, gone), "explain", "7", "--live")
    assert "job 7: ended 2026-11-20 23:59:51" in said(result)


def test_explain_needs_a_job(run, tmp_path, refused):
    """Without JOB and --last there is nothing to explain; a replay knows no --last."""
    refused(run("explain", "--live", "--socket", tmp_path / "q"), "give a JOB")
    refused(run("explain", "--socket", tmp_path / "q"), "give a JOB")
    refused(run("explain", "--last", "--from", "d", "7"), "apply to the daemon")


RECORD = (
    "JobId=12 JobName=x\n   UserId=ann(1000)\n"
    "   Comment=rtsched:promise deadline=1795219200 nodes=2 fractions=0.6:0.4 on=n1:n2\n"
)


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Return a function that puts the test into job 12, with what scontrol says of it."""

    def job(text: str, node: str = "n2") -> None:
        script = tmp_path / "scontrol"
        (tmp_path / "said").write_text(text)
        script.write_text(f'#!/bin/sh\n[ "$*" = "show job 12" ] && cat {tmp_path}/said\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        for name in ("RTSCHED_JOB", "SLURM_NODEID"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("RTSCHED_SCONTROL", str(script))
        monkeypatch.setenv("SLURM_JOB_ID", "12")
        monkeypatch.setenv("SLURMD_NODENAME", node)

    return job


def test_chunk_within_a_job(run, job):
    """A job reads its own record, without a daemon: as variables, or as JSON."""
    job(RECORD)
    result = run("chunk")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"export RTSCHED_{name}"
        for name in (
            *("JOB=12", "DEADLINE=1795219200", "NODES=2", "ON=n1:n2", "CHUNK=1"),
            *("FRACTIONS=0.6:0.4", "FRACTION=0.4", "FROM=0.6", "TO=1"),
        )
    ]
    assert json.loads(run("chunk", "--json").stdout) == {
        "job": 12,
        "deadline": 1795219200,
        "nodes": 2,
        "on": ["n1", "n2"],
        "chunk": 1,
        "fractions": [0.6, 0.4],
        "fraction": 0.4,
        "from": 0.6,
        "to": 1.0,
    }


def test_chunk_of_what_it_was_told(run, job, monkeypatch):
    """A step of a job that was told already does not ask Slurm again."""
    job("nothing")
    told = {"JOB": "12", "DEADLINE": "5", "NODES": "1", "FRACTIONS": "1", "ON": "n2"}
    for name, value in told.items():
        monkeypatch.setenv(f"RTSCHED_{name}", value)
    assert "export RTSCHED_FRACTION=1\n" in run("chunk").stdout


def test_chunk_of_no_promise(run, job, monkeypatch, refused):
    """A job without a record, and no job at all, are told so."""
    job("JobId=12\n   Comment=mine\n")
    result = run("chunk")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no plan for this job" in result.stderr
    monkeypatch.setenv("RTSCHED_SCONTROL", "/none/scontrol")
    refused(run("chunk"), "/none/scontrol is not installed here", status=3)
    monkeypatch.setenv("RTSCHED_SCONTROL", "false")
    refused(run("chunk"), "Slurm does not show job 12", status=3)
    monkeypatch.delenv("SLURM_JOB_ID")
    refused(run("chunk"), "not inside a job of Slurm or HTCondor", status=3)


def test_chunk_of_a_job_of_condor(run, monkeypatch):
    """A job of HTCondor has its part in its environment; only numbers and a slot's name pass."""
    monkeypatch.setenv("_CONDOR_JOB_AD", "/x/.job.ad")
    told = {"CHUNK": "1", "NODES": "3", "FRACTION": "0.25", "FROM": "0.5", "TO": "0.75"}
    for name, value in (told | {"DEADLINE": "$(id)", "NODE": "slot1@h.x#2"}).items():
        monkeypatch.setenv(f"RTSCHED_{name}", value)
    shown = run("chunk").stdout
    assert "export RTSCHED_FRACTION=0.25\n" in shown
    assert "export RTSCHED_NODE=slot1@h.x#2\n" in shown
    assert "DEADLINE" not in shown
    for name in (*told, "NODE"):
        monkeypatch.delenv(f"RTSCHED_{name}")
    assert run("chunk").exit_code == 1


def test_chunk_of_a_waiting_job(asked):
    """With a job's name the daemon tells the present plan."""
    report = ChunkReport("7", NOW, ("n1", "n2"), (0.25, 0.75), (0.125, 0.875))
    result, questions = asked(report, "chunk", "7")
    assert questions == [Chunk("7")]
    assert result.stdout.splitlines()[1:] == [
        "export RTSCHED_DEADLINE=1795219200",
        "export RTSCHED_NODES=2",
        "export RTSCHED_ON=n1:n2",
        "export RTSCHED_FRACTIONS=0.25:0.75",
        "export RTSCHED_ROUNDS=0.125:0.875",
    ]


PROLOG = Path(__file__).parents[2] / "contrib" / "slurm" / "task_prolog.sh"
WORDS = st.sampled_from([
    *("deadline=12", "deadline=", "deadline=1.5", "nodes=2", "nodes=x", "nodes=$(id)"),
    *("fractions=0.6:0.4", "fractions=1e-3:0.999", "fractions=1", "fractions=0.5:;ls"),
    *("rounds=0.25:0.75", "rounds=1:", "rounds=0.5:x", "rounds="),
    *("on=n1:n2", "on=n2:n1", "on=n1:`id`", "on=", "on=n1", "odd", "Comment=rtsched:promise"),
])  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, max_size=6), st.sampled_from(["n1", "n2", "n3"]), st.sampled_from("019x"))
def test_chunk_says_what_the_prolog_says(job, words, node, number):
    """The command and the TaskProlog make the same variables of the same record."""
    text = f"JobId=12\n   Comment=rtsched:promise {' '.join(words)}\n   Odd=1\n"
    job(text, node)
    environment = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": node, "SLURM_NODEID": number}
    import os

    shell = {**os.environ, **environment, "SLURM_JOB_RESERVATION": "rtsched_1"}
    done = subprocess.run([PROLOG], env=shell, capture_output=True, text=True, check=True)
    found = variables(text, environment)
    assert done.stdout.splitlines() == [f"export RTSCHED_{k}={v}" for k, v in found.items()]


def test_status_is_one_line_a_job(asked):
    """Whatever the width of the terminal, as squeue prints it; delays of the daemon are admins'."""
    one = msgspec.structs.replace(STATUS.promises[0], name="a name that is rather long" * 2)
    one = msgspec.structs.replace(one, nodes=tuple(f"n{at}" for at in range(1, 90, 2)))
    mine = msgspec.structs.replace(STATUS, promises=(one, one), lag_s=0.085)
    result, _ = asked(mine, "status")
    assert sum(line.startswith("4711") for line in result.stdout.splitlines()) == 2
    assert result.stdout.splitlines()[-1].startswith("4711")
    assert "submit filter" not in result.stdout
    result, _ = asked(msgspec.structs.replace(mine, everyone=True), "status")
    assert "longest delay 85 ms (the submit filter may time out)" in said(result)
