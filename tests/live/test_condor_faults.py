"""What may fail on a real HTCondor: no promise is lost or invented, condor_submit never hangs.

Each slot is a machine of its own, with its own startd.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from alike import Faults, settled, stream
from promised_pool import EAGER, SITE, TABLE, LivePool, live_pool, submit_file, within
from promising import BOUND, SUBMIT_CONF, UNPROMISED, Reply, lost_and_invented
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of

SETTINGS = "timeout_ms = 500\nbreaker_ms = 300\n"  # the machine may be busy
FAULTY = SITE.replace("lapse = 8", "lapse = 6").replace("[condor]", "[condor]\ntable_valid_s = 9")
FAR = within(4 * 3600)[0]


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run six machines of one slot each, with library and daemon."""
    settings = EAGER | {"UPDATE_INTERVAL": "3"}
    files = {SUBMIT_CONF: SETTINGS}
    with live_pool(FAULTY, files=files, startds=True, settings=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test begins with a daemon that answers, without jobs."""
    if not live.pool.services.alive("rtsched"):
        live.pool.start_daemon(FAULTY)
    live.replies.clear()
    yield
    live.cancel_all()


def waiting(live: LivePool) -> int:
    """Return a job of alice's with a promise, which waits for best-effort jobs to end."""
    live.occupy(6, seconds=15)
    job = live.promise(FAR, "+RtRunTime = 20", seconds=2)
    live.wait_state(job, "firm")
    return job


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process that was started in the pool, and all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


# --- our daemon -----------------------------------------------------------------------------------


class TestFaults(Faults):
    """What may fail beside either system."""

    test_the_process_that_talks_to_htcondor_fails = Faults.process_that_polls_fails
    kills = 5

    def promised(self, live: LivePool) -> list[int]:
        """Return one job."""
        return [waiting(live)]


@pytest.mark.parametrize("policy", ["open", "hold", "closed"])
def test_without_a_daemon(live: LivePool, policy: str) -> None:
    """Without the daemon or its socket the site's choice holds, at once, and its user is told."""
    told = {"open": UNPROMISED, "hold": "until it has been evaluated", "closed": "ERROR: rtsched: "}
    live.pool.path(SUBMIT_CONF).write_text(f"{SETTINGS}on_failure = {policy}\n")
    live.pool.stop_daemon()
    try:
        eventually(lambda: told[policy] in live.submit(*within(60)).text)
        replies = [live.submit(*within(60)) for _ in range(3)]
        plain = live.submit(seconds=1)
    finally:
        live.pool.path(SUBMIT_CONF).write_text(SETTINGS)
    assert all(told[policy] in each.text for each in replies)
    assert [bool(each.job) for each in replies] == [policy != "closed"] * 3
    assert plain.job
    assert "rtsched" not in plain.text
    assert live.slowest(replies) < BOUND
    live.pool.start_daemon()
    eventually(lambda: live.submit(*within(300)).promised)


IMPOSTOR = """
import os, socket
place = "/tmp/impostor.sock"
with socket.socket(socket.AF_UNIX) as door:
    door.bind(place)
    door.listen(8)
    os.chmod(place, 0o666)
    callers = []
    while True:
        callers.append(door.accept())  # their questions stay unanswered
"""


def test_somebody_elses_socket(live: LivePool) -> None:
    """Whoever else listens in the daemon's place is not asked."""
    impostor = live.pool.popen(["python3", "-c", IMPOSTOR], user="bob")
    eventually(lambda: live.pool.path("/tmp/impostor.sock").exists())  # noqa: S108
    live.pool.path(SUBMIT_CONF).write_text(f"{SETTINGS}socket = /tmp/impostor.sock\n")
    try:
        log = live.pool.path("/var/log/condor/SchedLog")

        def found_out() -> Reply | None:
            reply = live.submit(*within(300))
            found = "runs as neither daemon_user nor root" in log.read_text()
            return reply if found else None

        reply = eventually(found_out)
        assert UNPROMISED in reply.text
    finally:
        live.pool.path(SUBMIT_CONF).write_text(SETTINGS)
        end(impostor)
    assert live.slowest([reply]) < BOUND
    eventually(lambda: live.submit(*within(300)).promised)


# --- the table of slots ---------------------------------------------------------------------------


def damage(how: str) -> list[str]:
    """Return the shell command that damages the table."""
    commands = {
        "missing": f"rm {TABLE}",
        "malformed": f"printf 'rtsched-slots 1 x\\n\\0garbage' >{TABLE}",
        "unreadable": f"chmod 000 {TABLE}",
        "stale": f"sed -i '1s/.*/rtsched-slots 1 1000 900/' {TABLE}",
        "somebody else's": f"chown bob {TABLE}",
    }
    return ["sh", "-c", commands[how]]


@pytest.mark.parametrize("how", ["missing", "malformed", "unreadable", "stale", "somebody else's"])
def test_a_table_that_is_of_no_use(live: LivePool, how: str) -> None:
    """Jobs start as if nothing were planned, promised ones too; the daemon soon writes it anew."""
    live.pool.services.signal("rtsched", "STOP")
    try:
        live.pool.run(damage(how))
        other = live.fill(1, seconds=1)
        live.wait_status(other, "running", "completed", seconds=15)
        assert live.takes("condor_q", "-totals") < BOUND
    finally:
        live.pool.services.signal("rtsched", "CONT")

    def good() -> bool:
        shown = live.pool.run(["stat", "-c", "%U %a", TABLE], check=False).stdout
        if shown.split() != ["rtsched", "644"]:
            return False
        first = live.pool.path(TABLE).read_text().split("\n")[0].split(" ")
        return len(first) == 4 and abs(int(first[2]) - time.time()) < 10

    eventually(good, 10)


def test_no_room_for_the_table(live: LivePool) -> None:
    """Without room the old table stays until it is stale, the admin is told, and promises hold."""
    pool, place = live.pool, "/run/rtsched"
    pool.stop_daemon()
    pool.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755,uid=rtsched", "tmpfs", place])
    try:
        pool.start_daemon()
        pool.run(["dd", "if=/dev/zero", f"of={place}/fill", "bs=4k"], check=False)
        job = waiting(live)
        log = pool.path("/var/log/testbed/rtsched.log")
        eventually(lambda: "cannot be written (No space left on device)" in log.read_text())
        assert live.state(job) in {"firm", "kept"}
        pool.run(["rm", f"{place}/fill"])
        eventually(lambda: "rtsched-slots" in pool.path(TABLE).read_text())
    finally:
        live.cancel_all()
        pool.stop_daemon()
        pool.run(["umount", place])


# --- HTCondor's daemons ---------------------------------------------------------------------------


def test_a_schedd_that_is_killed_in_the_middle_of_a_stream(live: LivePool) -> None:
    """What users read as promised stands; a promise stands only for a job that is there."""
    before = {each.token for each in live.kept()}
    with stream(live) as reply:
        for _ in range(2):
            live.wait_promise()
            live.wait_promise()
            live.pool.daemon("schedd").kill()
    settled(live)
    assert sum(each.promised for each in reply) >= 4
    assert lost_and_invented(live, reply) == []
    there = {**live.ads(), **live.past()}
    new = [each for each in live.kept() if each.token not in before]
    open_ = [each for each in new if each.state in {"firm", "kept"}]
    assert [each for each in open_ if each.id not in there] == []


def test_a_schedd_that_is_away_for_a_while(live: LivePool) -> None:
    """Stopped and started, or restarted: promises stand, and are kept afterwards."""
    job = waiting(live)
    live.pool.daemon("schedd").stop()
    try:
        eventually(lambda: live.ask("status")["problems"], 30)
        assert live.state(job) == "firm"
        assert "ERROR" in live.submit(*within(300)).text
    finally:
        live.pool.daemon("schedd").start()
    eventually(lambda: not live.ask("status")["problems"], 30)
    eventually(lambda: live.submit(*within(600)).promised, 30)
    live.wait_state(job, "kept", seconds=90)


@pytest.mark.parametrize("name", ["negotiator", "collector"])
def test_a_central_manager_that_is_killed(live: LivePool, name: str) -> None:
    """Promises are given without it, stand, and are kept when it is back."""
    job = waiting(live)
    live.pool.daemon(name).kill(wait=False)
    reply = live.submit(*within(600), seconds=2)
    assert reply.promised
    live.wait_state(reply.job, "kept", seconds=90)
    live.wait_state(job, "kept", seconds=90)


def test_a_negotiator_that_hangs(live: LivePool) -> None:
    """It answers nobody: looks, promises and bindings go on; jobs start when it goes on."""
    job = waiting(live)
    negotiator = str(live.pool.daemon("negotiator").pid)
    live.pool.run(["kill", "-STOP", negotiator])
    try:
        since = time.time()
        reply = live.submit(*within(900), seconds=1)
        assert reply.promised
        live.wait_state(reply.job, "firm", seconds=60)
        eventually(lambda: "negotiator" in str(live.ask("status")["problems"]), 60)
        eventually(lambda: live.ad(job).get("RtNodeSet"), 60)
        eventually(lambda: (live.ask("status")["looked"] or 0) > since + 20, 60)
        assert live.submit(*within(900), seconds=1).promised
        assert live.state(job) == "firm"
    finally:
        live.pool.run(["kill", "-CONT", negotiator])
    live.wait_state(job, "kept", seconds=90)
    live.wait_state(reply.job, "kept", seconds=90)
    live.pool.restart_daemon()  # leaves it alone for some minutes


def test_a_power_cut(live: LivePool) -> None:
    """Everything is killed at once and started again: promises that had not begun are kept."""
    job = waiting(live)
    live.pool.kill_daemon()
    live.pool.kill_master()
    live.pool.start_master()
    live.pool.start_daemon(FAULTY)
    assert live.state(job) == "firm"
    live.wait_state(job, "kept", seconds=90)


def test_machines_that_are_started_anew(live: LivePool) -> None:
    """All slots are gone for a moment: no promise breaks for that."""
    job = waiting(live)
    for how in (["condor_off", "-fast"], ["condor_on"]):
        for node in live.pool.options.nodes:
            live.pool.run([*how, "-daemon", f"startd_{node}"])
        if how == ["condor_on"]:
            break
        live.wait_usable(0)
        assert live.state(job) == "firm"
    live.wait_state(job, "kept", seconds=90)


def test_machines_that_go_and_come_back(live: LivePool) -> None:
    """A job that was to start on a machine that is gone starts elsewhere, in time."""
    job = waiting(live)
    entries = live.ask("plan", user="root")["entries"]
    (slot,) = next(entry["nodes"] for entry in entries if entry["job"] == name_of(job))
    victim = slot.partition("@")[2].partition(".")[0]
    live.pool.daemon(f"startd_{victim}").stop()
    try:
        ad = live.wait_status(job, "completed", seconds=60)
        assert victim not in ad["LastRemoteHost"]
        assert live.wait_state(job, "kept")
    finally:
        live.pool.daemon(f"startd_{victim}").start()
    live.wait_usable(6)


def test_a_machine_that_dies_under_a_promised_job(live: LivePool) -> None:
    """When the job's lease is over it starts on another machine, in time."""
    job = live.promise(FAR, "+RtRunTime = 60", seconds=15)
    victim = live.wait_status(job, "running", seconds=60)["RemoteHost"].partition("@")[2]
    victim = victim.partition(".")[0]
    live.pool.daemon(f"startd_{victim}").kill(stay=True)
    try:
        live.wait_state(job, "kept", seconds=120)
        assert victim not in live.ad(job)["LastRemoteHost"]
    finally:
        live.pool.daemon(f"startd_{victim}").start()
    live.pool.restart_daemon()  # plans nothing on that machine for some minutes
    live.wait_usable(6)


def test_machines_that_do_not_come_back(live: LivePool) -> None:
    """A promise that no other machine can keep is broken long before its deadline, and told."""
    live.occupy(6, seconds=600)  # the machines stop before that, on a busy machine too
    job = live.promise(*within(3600), '+RtClass = "fast"', seconds=2)
    other = live.promise(*within(3600), seconds=2)
    for each in (job, other):
        live.wait_state(each, "firm")
    fast = [node for node in live.pool.options.nodes if node.startswith("fast")]
    for node in fast:
        live.pool.daemon(f"startd_{node}").stop()
    try:
        live.wait_state(job, "broken", seconds=100)
        told = "the promised deadline can no longer be kept"
        eventually(lambda: told in live.ad(job).get("RtWhy", ""))
        live.pool.run(["condor_rm", "-constraint", "RtDeadline is undefined"])
        live.wait_state(other, "kept", seconds=120)
    finally:
        for node in fast:
            live.pool.daemon(f"startd_{node}").start()
    live.pool.restart_daemon()  # plans nothing for some minutes where a start failed
    live.wait_usable(6)


def test_machines_that_drain(live: LivePool) -> None:
    """No promised job starts on a machine that drains."""
    job = waiting(live)
    live.pool.run(["condor_drain", "fast1.testbed"])
    try:
        ad = live.wait_status(job, "completed", seconds=60)
        assert "fast1" not in ad["LastRemoteHost"]
    finally:
        live.pool.run(["condor_drain", "-cancel", "fast1.testbed"])


# --- transactions ---------------------------------------------------------------------------------


def test_good_and_bad_procs(live: LivePool) -> None:
    """One bad proc refuses the whole submission; nothing stays kept for the good ones."""
    now = int(time.time())
    items = [now + 600, now + 700, now + 5, now + 800]
    lines = [
        "+RtDeadline = $(due)",
        "+RtRunTime = 20",
        f"queue due in {', '.join(map(str, items))}",
    ]
    reply = live.submit(*lines)
    assert reply.job == 0
    assert "ERROR: rtsched: rejected: " in reply.text
    assert live.ads() == {}
    settled(live)
    assert not [each for each in live.kept() if each.state == "firm"]
    eventually(lambda: live.kept_slots() == {})


def test_a_transaction_that_breaks_off(live: LivePool) -> None:
    """A condor_submit that is killed leaves no job, and nothing kept."""
    text = submit_file(*within(600), "queue 400")
    for pause in (0.05, 0.1, 0.2):
        client = live.pool.popen(["condor_submit"], user="alice", stdin=subprocess.PIPE)
        assert client.stdin is not None
        client.stdin.write(text)
        client.stdin.flush()
        time.sleep(pause)
        end(client)
    settled(live)
    there = live.ads()
    firm = [each.id for each in live.kept() if each.state == "firm"]
    assert set(firm) <= set(there), [name_of(job) for job in firm]
