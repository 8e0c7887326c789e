"""Users who forge, change what was promised, and flood an HTCondor: nothing stalls, nobody gains.

Elsewhere: expressions of users that call `rtschedJudge` (test_condor_library.py), slots that are
kept and jobs that ignore SIGTERM (test_condor_gate.py), such a job in front of a promise, and what
others may see (test_condor_daemon.py), whoever listens in the daemon's place
(test_condor_faults.py), and floods of the daemon's sockets, the same on Slurm (test_abuse.py).
"""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from promised_pool import LivePool, live_pool, submit_file, within
from promising import Reply
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of
from rtsched.adapters.condor.requirements import OURS, REQUEST_ATTRIBUTES

FAR = within(20_000)
HELD = "hold = true"
BOUND = 20.0
"""Seconds that nothing takes, whatever others do, on a busy machine too."""

FORGED: dict[str, object] = {
    "RtToken": "",  # another job's
    "RtAdmission": "judged",
    "RtVerdict": "accept",
    "RtMessage": "forged",
    "RtNodeSet": ",".join(f"slot{number}@head.testbed" for number in range(1, 7)),
    "RtRankSet": "slot1@head.testbed",
    "RtLimit": 1,
    "RtHosts": "1-9",
    "RtPerSlot": 9,
    "RtSlots": "slot1@head.testbed",
    "RtJobPrio": "7",
    "RtPromise": 9_999_999_999,
    "RtPlannedStart": 5,
    "RtFraction": 7.5,
    "RtNode": "slot1@head.testbed",
    "RtWhy": "forged",
}
"""What would be worth something, were it believed."""

WAYS = {
    "plus": ("+{} = {}", "queue"),
    "my": ("MY.{} = {}", "queue"),
    "expression": ("+{} = ifThenElse(true, {}, 0)", "queue"),
    "proc": ("+{} = $(Process) < 0 ? 0 : {}", "queue 2"),
    "factory": ("+{} = {}", "max_materialize = 2", "queue 2"),
}


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run six slots; at the end both daemons are those that were started, and no cycle failed."""
    with live_pool() as running:
        pool = running.pool
        pids = pool.services.pid("rtsched"), pool.daemon("schedd").pid
        yield running
        assert (pool.services.pid("rtsched"), pool.daemon("schedd").pid) == pids
        assert pool.services.alive("rtsched")
        reply = pool.path("/var/log/testbed/rtsched.log").read_text()
        assert "crashed" not in reply
        assert "Traceback" not in reply


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test ends with a schedd that answers, a daemon that looks, and without jobs."""
    yield
    assert live.takes("condor_q", "-totals") < BOUND
    live.polled()
    live.cancel_all()


@pytest.fixture
def firm(live: LivePool) -> int:
    """Return a job of alice's that waits with a promise behind six of bob's, which run."""
    others = live.fill(6, seconds=25)
    for job in range(others, others + 6):
        live.wait_status(job, "running", seconds=90)
    job = live.promise(*FAR, seconds=1)
    live.wait_state(job, "firm", "kept", seconds=60)
    return job


def edit(live: LivePool, job: int, name: str, value: object, user: str = "alice") -> bool:
    """Change a job's attribute; return whether HTCondor let that user."""
    words = ["condor_qedit", name_of(job), name, literal(value)]
    return live.pool.run(words, user=user, check=False).returncode == 0


def literal(value: object) -> str:
    """Return a value as it stands in an ad."""
    return json.dumps(value) if isinstance(value, str) else str(value)


def wait_told(live: LivePool, job: int, text: str) -> None:
    """Wait until a job's user can read that in its ad."""
    eventually(
        lambda: text in live.ad(job).get("RtWhy", ""),
        60,
        lambda: f"job {name_of(job)}: {live.ad(job).get('RtWhy')}, not {text}",
    )


def refused_in_a_sentence(reply: Reply) -> bool:
    """Return whether a user read one sentence of ours, and has no job."""
    return reply.job == 0 and reply.text.count("rtsched: ") == 1 and "Traceback" not in reply.text


# --- what only rtsched writes ---------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_forged_at_submission(live: LivePool, way: str) -> None:
    """However an attribute of ours is said, it is gone; a promise is the daemon's own."""
    assert set(FORGED) == set(OURS)
    line, *queue = WAYS[way]
    first = live.promise(*FAR)
    live.wait_state(first, "firm")
    values = FORGED | {"RtToken": live.ad(first)["RtToken"]}
    lines = [line.format(name, literal(value)) for name, value in values.items()]
    plain = live.submit(HELD, *lines, *queue, user="bob").job
    wished = live.submit(*FAR, *lines, *queue, user="bob").job
    assert plain
    assert bool(wished) == (way != "factory"), "that gets no promise"
    count = 1 if queue == ["queue"] else 2
    there = count * bool(wished) + count

    def made() -> dict[int, dict[str, Any]]:
        ads = live.ads('Owner == "bob"')
        return ads if len(ads) == there else {}

    for job, ad in eventually(made, 60).items():
        if job >> 20 == plain >> 20:
            assert {name: ad[name] for name in OURS if ad.get(name) is not None} == {}
        else:
            true = {"RtAdmission", "RtVerdict"}
            same = {name for name in OURS if ad.get(name) == values[name]}
            assert same <= true, (name_of(job), same)
    kept = live.kept()
    assert [each.id for each in kept if each.token == values["RtToken"]] == [first]


EDITS = """
import json, sys, htcondor2
schedd, said = htcondor2.Schedd(), []
for job, name, value in json.loads(sys.argv[1]):
    try:
        schedd.edit(job, name, value)
    except Exception as error:
        said.append(str(error))
    else:
        said.append("")
print(json.dumps(said))
"""


def by_bindings(live: LivePool, edits: list[tuple[str, str, str]], user: str) -> list[str]:
    """Change attributes of jobs, each by itself; return what HTCondor said; empty: it was done."""
    words = ["/opt/rtsched/bin/python", "-c", EDITS, json.dumps(edits)]
    replies: list[str] = json.loads(live.pool.run(words, user=user, timeout=120).stdout)
    return replies


def test_tokens_cannot_be_copied(live: LivePool, firm: int) -> None:
    """Nobody gets a promised job's marks into a job of her own, nor changes those it has."""
    own = live.submit(HELD).job
    his = live.submit(HELD, user="bob").job
    before = live.ad(firm)
    marks = {name: before.get(name) or value for name, value in FORGED.items()}
    for user, job in (("alice", own), ("bob", his), ("bob", firm), ("alice", firm)):
        edits = [(name_of(job), name, literal(value)) for name, value in marks.items()]
        reply = by_bindings(live, edits, user)
        assert all(reply), list(zip(edits, reply, strict=True))
    assert not edit(live, his, "RtToken", before["RtToken"], user="bob")
    for job in (own, his):
        assert {live.ad(job).get(name) for name in OURS} == {None}
    assert live.ad(firm)["RtToken"] == before["RtToken"]
    assert live.state(firm) in {"firm", "kept"}


CHIRP = """\
#!/bin/sh
chirp=$(condor_config_val LIBEXEC)/condor_chirp
for name in Mine RtNodeSet RtToken RtDeadline RtRunTime RtLimit
do
    $chirp set_job_attr $name 7 && echo "$name written"
    $chirp set_job_attr_delayed $name 7 && echo "$name written later"
done
true
"""


def test_a_job_cannot_write_them(live: LivePool) -> None:
    """What a job writes into its own ad while it runs is nothing of ours."""
    live.pool.write({"/usr/local/bin/chirp.sh": CHIRP})
    live.pool.run(["chmod", "755", "/usr/local/bin/chirp.sh"])
    lines = ("executable = /usr/local/bin/chirp.sh", "transfer_executable = false")
    job = live.promise(*lines, *FAR, "+WantIOProxy = true", "output = /home/alice/chirp.out")
    live.wait_state(job, "kept", seconds=90)
    ad = live.ad(job)
    assert "Mine written" in live.pool.path("/home/alice/chirp.out").read_text()
    assert ad["Mine"] == 7
    names = ("RtNodeSet", "RtToken", "RtDeadline", "RtRunTime", "RtLimit")
    assert 7 not in {ad.get(name) for name in names}


def test_in_somebody_elses_name(live: LivePool) -> None:
    """A promise is the submitting user's, whoever else the submit file names."""
    (bob,) = {live.pool.box.user("bob").uid}
    for lines in (
        ["accounting_group_user = alice"],
        ['+Owner = "alice"'],
        ['+User = "alice@testbed"'],
        ['+AcctGroupUser = "alice"', '+AccountingGroup = "alice"'],
    ):
        reply = live.submit(*FAR, *lines, user="bob")
        whose = {each.uid for each in live.kept() if each.id == reply.job}
        assert reply.job == 0 or whose <= {bob}, (lines, reply.text, whose)
    assert not live.ask("status")["promises"]


# --- what a promise rests on ----------------------------------------------------------------------


def test_wishes_cannot_be_changed(live: LivePool, firm: int) -> None:
    """What was asked for, and what a plan is read from, stays as it was; the promise stands."""
    before = live.ad(firm)
    others = ("RemoteHost", "AllRemoteHosts", "QDate")
    for name in (*REQUEST_ATTRIBUTES.values(), *others):
        assert not edit(live, firm, name, 99), name
    after = live.ad(firm)
    for name in (*REQUEST_ATTRIBUTES.values(), *others[2:]):
        assert after.get(name) == before.get(name), name
    assert live.state(firm) in {"firm", "kept"}


VOIDING = {
    "RequestCpus": ("2", "it requests larger nodes"),
    "RequestMemory": ("100000", "it requests larger nodes"),
    "DeferralTime": ("9999999999", "its start was postponed"),
    "Requirements": ("false", "it requests other nodes than were promised"),
}
HARMLESS = {
    "JobPrio": "2147483647",
    "AllowedExecuteDuration": "1",
    "TotalSubmitProcs": "1000",
    "DAGManJobId": "5",
    "AccountingGroup": '"bob"',
    "GlobalJobId": '"head.testbed#1.0#5"',
    "RequestGPUs": "0",
    "JobCurrentStartDate": "99999999999",
}


def test_what_may_be_changed_gains_nothing(live: LivePool, firm: int) -> None:
    """A promised job that asks for more, or fits nowhere, loses its promise and is told so."""
    voided = {name: live.promise(*FAR, seconds=1) for name in VOIDING}
    harmless = {name: live.promise(*FAR, seconds=1) for name in HARMLESS}
    for job in (*voided.values(), *harmless.values()):
        live.wait_state(job, "firm", seconds=60)
    edits = [(name_of(voided[name]), name, value) for name, (value, _) in VOIDING.items()]
    edits += [(name_of(harmless[name]), name, value) for name, value in HARMLESS.items()]
    assert by_bindings(live, edits, "alice") == [""] * len(edits)
    for name, (_, why) in VOIDING.items():
        live.wait_state(voided[name], "void", seconds=120)
        wait_told(live, voided[name], f"the promise is void: {why}")
    eventually(lambda: {live.ad(job)["RtAdmission"] for job in voided.values()} == {"unjudged"})
    for name, job in {"firm": firm, **harmless}.items():
        assert live.wait_state(job, "kept", seconds=120), name
    eventually(lambda: live.kept_slots() == {}, 60)


def test_a_job_that_hides_that_it_runs_too_long(live: LivePool) -> None:
    """Stubborn, and edited by its owner while it runs: it still loses its slot when it is over."""
    stubborn = "arguments = \"-c 'trap : TERM; while :; do sleep 1; done'\""
    job = live.submit("executable = /bin/sh", stubborn, "+RtRunTime = 10").job
    live.wait_status(job, "running", seconds=90)
    for name, value in (
        ("JobCurrentStartDate", 99_999_999_999),
        ("JobCurrentStartExecutingDate", 99_999_999_999),
        ("DeferralTime", 99_999_999_999),
        ("JobStatus", 1),
        ("MaxJobRetirementTime", 10_000),
        ("JobMaxVacateTime", 10_000),
        ("AllowedJobDuration", 10_000),
    ):
        edit(live, job, name, value)
    assert not edit(live, job, "RtRunTime", 10_000)
    eventually(lambda: "rtsched: run time of 10 s is over" in json.dumps(live.ad(job)), 60)


# --- texts and numbers ----------------------------------------------------------------------------

TEXTS = {
    "tab": "tab\there",
    "quotes": "quote'\\\"`$(id)$$(id)",
    "control": "bell\x07\x1b[31m",
    "unicode": "ünïcode ✓ \u202e\u2028ClusterId = 1\u2028ProcId = 0\u2028",
    "shell": "a|b;c&d>e $HOME",
    "escapes": r"two\nlines\007\x41\u2028",
    "dots": "a" + ".a" * 1500,
    "long": "x" * 100_000,
}


@pytest.mark.parametrize("which", TEXTS)
def test_odd_texts_are_texts(live: LivePool, which: str) -> None:
    """Whatever a text holds, its job is promised its deadline, or refused in one sentence."""
    text = TEXTS[which]
    lines = [f'+{name} = "{text}"' for name in ("JobBatchName", "AcctGroup", "RtDag")]
    for some in (lines[:1], lines):
        reply = live.submit(*FAR, *some, seconds=1)
        assert reply.promised or refused_in_a_sentence(reply), reply.text[:2000]
        if reply.job:
            live.wait_state(reply.job, "firm", "kept", seconds=90)
            live.ask("explain", name_of(reply.job), "--live")
    for name in ("RtAfter", "RtClass", "RtSpeedup"):
        assert refused_in_a_sentence(live.submit(*FAR, f'+{name} = "{text}"'))
    shown = live.command("rtsched", "status") + live.command("rtsched", "explain", "--last", "9")
    assert "\x07" not in shown
    assert "\x1b[31m" not in shown


NUMBERS = ('real("NaN")', 'real("INF")', "1.0e305", "1000000000000000000", "-1", "true", '"7"')
SHAPED = (
    *("RtDeadline", "RtRunTime", "RtSigma", "RtCms", "RtCps", "RtSetupLink", "RtSetupNode"),
    "RtRounds",
)
LOAD = {"RtSigma": "40", "RtCms": "0.01", "RtCps": "1"}


@pytest.mark.parametrize("number", NUMBERS)
def test_odd_numbers_in_wishes(live: LivePool, number: str) -> None:
    """What is no sensible number is refused in one sentence."""
    plain = dict(line.removeprefix("+").split(" = ") for line in FAR)
    for name in SHAPED:
        wishes = plain | (LOAD if name not in plain else {}) | {name: number}
        reply = live.submit(*(f"+{key} = {value}" for key, value in wishes.items()))
        assert refused_in_a_sentence(reply), (name, reply.text)
    for name in ("RtMinNodes", "RtMessageTime"):
        reply = live.submit(*FAR, f"+{name} = {number}", seconds=1)
        assert reply.text.count("rtsched: ") == 1, (name, reply.text)


HTCONDORS = (
    *("DAGManJobId", "RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs", "DeferralTime"),
    *("TotalSubmitProcs", "AllowedExecuteDuration", "AllowedJobDuration", "JobPrio", "JobUniverse"),
    *("DeferralWindow", "DeferralPrepTime", "JobMaterializeDate", "JobFactoryId", "NiceUser"),
    *("CompletionDate", "EnteredCurrentStatus", "JobLeaseDuration", "HoldReasonCode", "AcctGroup"),
)


def test_odd_numbers_of_htcondors_own(live: LivePool) -> None:
    """No number in anybody's ad, at submission or later, keeps the daemon from looking."""
    deep = "(" * 190 + "1" + ")" * 190
    values = [*NUMBERS, "{1, 2}", "[a = 1]", "error", "9223372036854775807", deep]
    edits = [(name, value) for name in HTCONDORS for value in values]
    for wishes in ((), FAR):
        first = live.submit(HELD, *wishes, f"queue {len(edits)}", user="carol").job
        by_bindings(
            live,
            [(name_of(first + proc), *pair) for proc, pair in enumerate(edits)],
            "carol",
        )
    for name in ("DAGManJobId", "RequestMemory", "RequestCpus", "MinHosts", "MaxHosts"):
        for value in NUMBERS[:4]:
            live.submit(HELD, *FAR, f"+{name} = {value}", user="carol")
            live.submit("universe = parallel", HELD, *FAR, f"+{name} = {value}", user="carol")
    job = live.promise(*FAR, seconds=1)
    live.wait_state(job, "kept", seconds=120)
    assert not live.ask("status")["problems"]


# --- too much -------------------------------------------------------------------------------------

KNOCK = """
import socket, sys
for kind in (b"RTSQ", b"RTSR"):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(2)
    try:
        line.connect("/run/rtsched/submit.sock")
        line.sendall(kind + bytes(range(256)))
        print("answered" if line.recv(1 << 16) else "cut off")
    except OSError as error:
        print(type(error).__name__)
"""


def test_the_submit_socket_is_the_schedds(live: LivePool) -> None:
    """Users cannot even connect, or are cut off."""
    for user in ("alice", "bob", "carol"):
        done = live.pool.run(["python3", "-c", KNOCK], user=user)
        assert "answered" not in done.stdout
        assert done.stdout.split() == ["PermissionError"] * 2


def test_promises_for_jobs_that_never_come(live: LivePool) -> None:
    """A transaction that would break off after some of its procs were promised is refused."""
    now = int(time.time())
    dues = ", ".join(map(str, [*(now + 9000 + each for each in range(8)), now + 1]))
    lines = ("+RtDeadline = $(due)", "+RtRunTime = 20", f"queue due in {dues}")
    for _ in range(3):
        reply = live.submit(*lines, user="dave")
        assert reply.job == 0
        assert "procs of a cluster with a deadline must be alike" in reply.text
    assert live.submit(*FAR, seconds=1).promised


def test_a_flood_of_submissions(live: LivePool) -> None:
    """While four clients of bob's submit a thousand jobs, others are judged and answered."""
    text = submit_file(*FAR, "queue 25", seconds=1)
    done: list[str] = []

    def client() -> None:
        for _ in range(10):
            sent = live.pool.run(
                ["condor_submit"], user="bob", input=text, check=False, timeout=120
            )
            done.append(sent.stdout + sent.stderr)

    clients = [threading.Thread(target=client) for _ in range(4)]
    for each in clients:
        each.start()
    replies: list[Reply] = []
    while any(each.is_alive() for each in clients):
        replies.append(live.submit(*FAR, seconds=1))
        assert live.ask("status")["system"] == "condor"
        time.sleep(0.2)
    assert live.slowest(replies) < BOUND
    assert all(each.job or "rtsched: " in each.text for each in replies)
    there = {*live.ads('Owner == "bob"'), *live.past('Owner == "bob"')}
    assert len(there) >= 25 * sum("submitted" in text for text in done)
    eventually(lambda: all(each.state != "provisional" for each in live.kept()), 60)
    live.pool.run(["condor_rm", "bob"], timeout=120)
    late = [each.job for each in replies if not each.promised]
    refused = [each.text for each in replies if not each.promised]
    assert len(late) <= max(2, len(replies) // 4), refused
    job = eventually(lambda: (one := live.submit(*FAR, seconds=1)).promised and one.job)
    live.wait_state(job, "kept", seconds=120)
