"""Users who forge, change what was promised, and flood: nothing stalls, nobody gains by it."""

import time
from collections.abc import Iterator

import pytest
from promising import BOUND, Live, Reply, in_minutes, live_cluster
from testbed.waiting import eventually

WISH = ("-N1", "--time=2")

FLOOD = """
import socket, sys, time
path, how, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
header = b"RTSQ" + (1).to_bytes(2, "little") + (3).to_bytes(2, "little")
lines, refused = [], 0
for number in range(count):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(2)
    try:
        line.connect(path)
        if how == "slow":
            line.sendall(header[: 1 + number % 8])
        elif how == "garbage":
            line.sendall(bytes(range(256)) * 40)
        elif how == "huge":
            line.sendall(header + (2**31 - 1).to_bytes(4, "little") + b"x" * 65536)
        elif how == "deep":
            text = b"[" * 200_000
            line.sendall(header + len(text).to_bytes(4, "little") + text)
        elif how == "ask":
            text = b'{"ask":"explain","last":1000}'
            line.sendall(header + len(text).to_bytes(4, "little") + text)
            line.recv(1 << 16)
    except OSError:
        refused += 1
    lines.append(line)
    if how in {"slow", "open"} and len(lines) < 900:
        continue
    for line in lines:
        line.close()
    lines = []
time.sleep(float(sys.argv[4]))
print(refused)
"""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run six nodes with filter and daemon; at the end both daemons are those that were started."""
    with live_cluster(fast=2, slow=4) as running:
        cluster = running.cluster
        cluster.path("/usr/local/bin/flood.py").write_text(FLOOD)
        pids = [cluster.services.pid(name) for name in ("rtsched", "slurmctld")]
        yield running
        assert [cluster.services.pid(name) for name in ("rtsched", "slurmctld")] == pids
        assert all(cluster.services.alive(name) for name in ("rtsched", "slurmctld"))
        reply = cluster.path("/var/log/testbed/rtsched.log").read_text()
        assert "crashed" not in reply
        assert "Traceback" not in reply


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test ends with a controller that answers, and without jobs."""
    yield
    assert live.takes("squeue") < BOUND
    live.cancel_all()


@pytest.fixture
def firm(live: Live) -> int:
    """Return a job of alice's that waits with a promise behind another one."""
    live.promise("-N6", "--time=2", in_minutes(30), script="sleep 60")
    job = live.promise(*WISH, in_minutes(40))
    live.wait_state(job, "firm")
    return job


def test_tokens_cannot_be_forged(live: Live, firm: int) -> None:
    """Nobody gets another job's token, or any, into her own job, at submit or later."""
    token = live.tokens()[firm]
    assert len(token) == len("rtsched:") + 32
    job = live.cluster.sbatch(["-N6", "--time=1"], user="bob", script="sleep 60")
    for text in (token, f" {token}", "rtsched:unjudged", "rtsched:parked"):
        for user in ("bob", "alice"):
            reply = live.command(
                "scontrol", "update", f"job={job}", f"admincomment={text}", user=user
            )
            assert reply.startswith("1 "), reply
        assert live.submit(*WISH, f"--admin-comment={text}", user="bob").job == 0
    assert job not in live.tokens()
    live.polled()
    assert live.state(firm) == "firm"
    assert live.state(job) == ""


@pytest.mark.parametrize("option", ["--comment", "--extra"])
def test_words_give_no_promise(live: Live, option: str) -> None:
    """What a user writes into Comment or Extra is a wish, never an admission."""
    for text in (
        "rtsched:promise deadline=9999999999 nodes=6 fractions=1 on=fast1",
        "rtsched:0123456789abcdef0123456789abcdef",
        "rtsched:unjudged",
        "rtsched:parked",
    ):
        reply = live.submit(*WISH, f"{option}={text}", user="bob")
        assert not reply.promised, text
        assert reply.job not in live.tokens()
    for text in (
        "rtsched:token=1,promise=yes",
        "rtsched:sigma=nan,cms=1,cps=1",
        "rtsched:sigma=1e999,cms=1,cps=1",
        "rtsched:sigma=1,cms=1,cps=1,rounds=1e3",
        "rtsched:dag=" + "x" * 5000,
        "rtsched:checkpoint=maybe",
    ):
        reply = live.submit(*WISH, in_minutes(20), f"{option}={text}", user="bob")
        assert reply.job == 0, text
        assert reply.text.count("rtsched: ") == 1, reply.text
        assert "Traceback" not in reply.text


@pytest.mark.parametrize(
    "text",
    [
        "tab\there",
        "two\nlines",
        "quote'\"`$(id)",
        "bell\x07\x1b[31m",
        "ünïcode ✓ \u202e",
        "a|b;c&d>e",
    ],
    ids=["tab", "newline", "quotes", "control", "unicode", "shell"],
)
def test_odd_texts_are_texts(live: Live, text: str) -> None:
    """Control characters, quotes and newlines in names and comments harm nothing."""
    job = live.promise(
        *WISH, in_minutes(20), f"--job-name={text}", f"--comment={text}", f"--extra={text}"
    )
    live.wait_state(job, "firm")
    shown = live.command("rtsched", "status")
    assert str(job) in shown
    assert "\x07" not in shown
    assert "\x1b[31m" not in shown
    live.ask("explain", str(job), "--live")


def test_no_text_at_all(live: Live) -> None:
    """Bytes that are no UTF-8 pass through filter, daemon, database and reports."""
    words = (
        "sbatch --output=/dev/null -N1 --time=2 {} --job-name=$(printf 'a\\377\\300b') --wrap=true"
    )
    reply = live.command("sh", "-c", words.format(in_minutes(20)))
    assert "promised to end by" in reply
    job = int(reply.split()[4])
    eventually(lambda: live.state(job) in {"firm", "kept"})
    assert live.command("rtsched", "explain", "--last", "3", "--live").startswith("0 ")


def test_a_comment_of_a_megabyte(live: Live) -> None:
    """What is longer than a request may be is refused, in words, and nobody waits for it."""
    script = f"#!/bin/sh\n#SBATCH --comment={'x' * 1_000_000}\ntrue\n"
    words = ["sbatch", "--output=/dev/null", *WISH, in_minutes(20)]
    done = live.cluster.run(words, user="bob", input=script, check=False)
    assert done.returncode == 1
    assert "longer than 256 KiB" in done.stderr
    assert live.submit(*WISH, in_minutes(20), script="true").promised


def test_reservations_of_ours_are_not_for_others(live: Live, firm: int) -> None:
    """Neither its owner nor another user gets a job into a reservation of ours."""
    guard = f"rtsched_{firm}"
    eventually(lambda: live.reservations())
    other = live.cluster.sbatch(["-N1", "--time=1", "--begin=now+1hour"])
    names = (guard, f"RTSCHED_{firm}", f"none,{guard}", f"-{guard}", *live.reservations())
    for name in names:
        for user in ("alice", "bob"):
            reply = live.submit("-N1", "--time=1", f"--reservation={name}", user=user)
            assert reply.job == 0, (name, reply.text)
        reply = live.command("scontrol", "update", f"job={other}", f"reservationname={name}")
        assert reply.startswith("1 "), (name, reply)
    for words in (
        ("delete", f"reservation={guard}"),
        ("update", f"reservation={guard}", "users=bob"),
    ):
        assert live.command("scontrol", *words).startswith("1 ")


CHANGES = (
    "timelimit=1:00:00",
    "numnodes=6",
    "numnodes=1-6",
    "partition=other",
    "features=fast",
    "prefer=fast",
    "reqnodelist=fast1",
    "excnodelist=fast1",
    "deadline=now+3hours",
    "extra=rtsched:sigma=5,cms=1,cps=1",
    "comment=rtsched:dag=x",
    "starttime=now+1hour",
    "dependency=afterok:1",
    "reservationname=",
    "qos=normal",
    "priority=1000000",
    "oversubscribe=yes",
)


def test_a_promised_job_is_not_changed(live: Live, firm: int) -> None:
    """What a promise rests on cannot be changed by the job's owner; the promise stands."""
    before = live.cluster.job(firm)
    for change in (*CHANGES, "dependency=singleton"):
        for job in (firm, firm + (1 << 32)):  # of which slurmctld keeps 32 bits
            reply = live.command("scontrol", "update", f"job={job}", change)
            assert reply.startswith("1 "), (job, change, reply)
    after = live.cluster.job(firm)
    for name in (
        "TimeLimit",
        "NumNodes",
        "Partition",
        "Features",
        "ReqNodeList",
        "Deadline",
        "Extra",
    ):
        assert after.get(name) == before.get(name), name
    assert live.state(firm) == "firm"


def test_others_are_not_seen(live: Live, firm: int) -> None:
    """Status and explain tell bob nothing of alice's jobs, and plan is for admins."""
    assert live.ask("status", user="bob")["promises"] == []
    refusal = live.command("rtsched", "explain", str(firm), "--live", user="bob")
    assert "no job" in refusal
    unknown = live.command("rtsched", "explain", "987654", "--live", user="bob")
    assert refusal.replace(f"'{firm}'", "N") == unknown.replace("'987654'", "N")
    assert live.command("rtsched", "plan", user="bob").startswith("2 ")
    chunk = live.command("rtsched", "chunk", str(firm), user="bob")
    assert chunk[0] == "2"


def test_submit_socket_is_the_controllers(live: Live) -> None:
    """Others than slurmctld's user cannot even connect, or are cut off."""
    told = live.command(
        "python3", "/usr/local/bin/flood.py", "/run/rtsched/submit.sock", "ask", "50", "0"
    )
    assert told.split()[1] == "50"
    assert not [each for each in live.kept() if each.state == "provisional"]


@pytest.mark.parametrize("how", ["open", "slow", "garbage", "huge", "deep", "ask"])
def test_floods(live: Live, how: str) -> None:
    """While a user floods both sockets, others are answered, but for the first moment."""
    paths = ("/run/rtsched/query.sock", "/run/rtsched/submit.sock")
    floods = [
        live.cluster.popen(
            ["python3", "/usr/local/bin/flood.py", path, how, "2000", "2"], user="bob"
        )
        for path in paths
    ]
    replies: list[Reply] = []
    try:
        while any(flood.poll() is None for flood in floods) and len(replies) < 40:
            replies.append(live.submit(*WISH, in_minutes(200)))
            assert live.ask("status")["system"] == "slurm"
            assert live.takes("squeue") < BOUND
            time.sleep(0.05)
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()
    late = sum(not each.promised for each in replies)
    assert late <= max(1, len(replies) // 10)
    assert live.slowest(replies) < BOUND


EXTREMES = (
    ("--nodelist=fast[1-999999]",),
    ("--exclude=fast[1-99999],slow[1-99999]",),
    ("--constraint=" + "&".join(["a"] * 60_000),),
    ("--constraint=" + "(" * 900 + "a" + ")" * 900,),
    ("--time=4000000000",),
    ("--extra=rtsched:sigma=1e20,cms=1,cps=1", "-N1-2"),
    ("--extra=rtsched:sigma=1e-300,cms=1e300,cps=1e300", "-N1-2"),
    ("--dependency=" + ",".join(["afterok:99999999999"] * 3_000),),
    ("--deadline=now+4000000000minutes",),
)
QUESTIONS = (
    ("-N", "1", "-t", "4611686018427387904"),
    ("-N", "1", "-t", "1", "-x", "n[1-999999]"),
    ("-N", "10000000", "--sigma=1e300", "--cms=1e300", "--cps=1e300"),
)


def test_extreme_requests_keep_nobody_waiting(live: Live) -> None:
    """Each is refused in words, or by Slurm itself; others are promised deadlines meanwhile."""
    for options in EXTREMES:
        reply = live.submit(*WISH, in_minutes(20), *options, user="bob")
        assert not reply.promised, options
        assert "Traceback" not in reply.text
        assert live.submit(*WISH, in_minutes(200)).promised, options
    for words in QUESTIONS:
        assert live.command("rtsched", "feasible", *words, user="bob")[0] in "12"
        assert live.submit(*WISH, in_minutes(200)).promised, words


def test_a_flood_of_deadlines_takes_no_promises_of_others(live: Live) -> None:
    """Four loops of bob's, with deadlines that can be met and that cannot.

    A promise of ten hours on all nodes and an offer behind it may leave nobody else room before 20
    hours, for as long as the offer is held. After that there is room for others.
    """
    wishes = "-N1 --time=1 --deadline=now+20hours", "-N6 --time=600 --deadline=now+601minutes"
    loop = "for i in $(seq 30); do sbatch -o /dev/null --wrap=true {} >/dev/null 2>&1; done"
    words = [["sh", "-c", loop.format(wish)] for wish in wishes * 2]
    floods = [live.cluster.popen(each, user="bob") for each in words]
    replies = [live.submit(*WISH, "--deadline=now+21hours") for _ in range(20)]
    for flood in floods:
        flood.communicate()
    good = sum(each.promised or "held for a moment" in each.text for each in replies)
    assert good >= 18, [each.text for each in replies if not each.promised]
    assert sum(each.promised for each in replies) >= 10


def test_a_database_that_is_removed_while_the_daemon_runs(live: Live, firm: int) -> None:
    """It is made again, with the promise; the next one is written to it, and found by anybody."""
    place = live.cluster.path("/var/lib/rtsched")
    for end in ("", "-wal", "-shm"):
        (place / f"rtsched.db{end}").unlink()
    eventually(lambda: (place / "rtsched.db").exists())
    eventually(lambda: any("made again" in text for text in live.ask("status")["problems"]))
    job = live.promise(*WISH, in_minutes(40))
    live.wait_state(job, "firm")
    assert live.state(firm) == "firm"
