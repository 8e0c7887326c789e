"""What users and admins of a real HTCondor see of the daemon, from condor_submit to the history."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from promised_pool import SITE, LivePool, live_pool, within
from promising import PROMISED, QUICK, SUBMIT_CONF
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of
from rtsched.adapters.condor.requirements import AT_ONCE_S

SCOPES = """
[[scope]]
partition = "fast"
mode = "shadow"

[[scope]]
partition = "slow"
mode = "warn"
"""
"""By the class of slots that a job asks for."""

CHUNK = """\
#!/bin/sh
env | grep ^RTSCHED_ | sort
/opt/rtsched/bin/rtsched chunk | sed 's/^export //' | sort
"""
LOAD = ("+RtSigma = 80", "+RtCms = 0.01", "+RtCps = 1")


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run two fast and four slow slots with library and daemon."""
    with live_pool(SITE + SCOPES, parallel=True) as running:
        running.pool.write({"/usr/local/bin/chunk.sh": CHUNK})
        running.pool.run(["chmod", "755", "/usr/local/bin/chunk.sh"])
        yield running


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test begins without jobs, and with a daemon that answers."""
    if not live.pool.services.alive("rtsched"):
        live.pool.start_daemon(SITE + SCOPES)
    live.replies.clear()
    yield
    live.cancel_all()


def names(live: LivePool, job: int) -> list[str]:
    """Return the slots on which a job is planned."""
    entries = live.ask("plan", user="root")["entries"]
    return next((entry["nodes"] for entry in entries if entry["job"] == name_of(job)), [])


def test_a_promise_is_kept_beside_a_full_queue(live: LivePool) -> None:
    """The user reads a promise; slots are kept; the jobs end in time, and best effort goes on."""
    others = live.occupy(14, 10)[0]
    reply = live.submit(*within(120), seconds=4)
    assert re.search(
        r"promised to end by [\d: -]+ \+0000; planned to start at [\d: -]+ \+0000 on 1 node",
        reply.text,
    )
    jobs = [reply.job, *(live.promise(*within(120), seconds=4) for _ in range(2))]
    kept = eventually(lambda: len(found := live.kept_slots()) == 3 and found)
    planned = [eventually(lambda j=job: names(live, j)) for job in jobs]
    assert {slot for slots in planned for slot in slots} == set(kept)
    for job in jobs:
        ad = live.wait_status(job, "completed", seconds=110)
        assert ad["LastRemoteHost"] in ad["RtNodeSet"].split(",")
        assert ad["CompletionDate"] <= ad["RtPromise"] == ad["RtDeadline"]
        live.wait_state(job, "kept")
        shown = live.ask("explain", name_of(job), "--live")
        assert shown["promise"]["standing"] == "kept"
    assert live.kept_slots() == {}
    for job in range(others, others + 14):
        live.wait_status(job, "completed")


def test_a_counter_offer_holds(live: LivePool) -> None:
    """A rejection says what is feasible; its user who asks for that is admitted, nobody else."""
    wide = ("universe = parallel", "machine_count = 6")
    live.promise(*wide, *within(100, 60), seconds=25)
    refused = live.submit(*wide, *within(90, 60))
    assert refused.job == 0
    assert "ERROR: rtsched: rejected: " in refused.text
    found = re.search(r"\((\+RtDeadline=\d+)\), (?:not )?reserved", refused.text)
    assert found, refused.text
    again = (*wide, found[1], "+RtRunTime = 60")
    assert live.submit(*again, user="bob").job == 0
    assert live.submit(*again).promised
    assert live.submit(*again).job == 0


def test_a_promise_is_seen_by_its_owner_and_admins(live: LivePool) -> None:
    """Status, explain and plan tell a user her own, and an admin or root everybody's."""
    for _ in range(6):
        live.promise(*within(400, 60), seconds=50)
    job = live.promise(*within(400, 60))
    live.wait_state(job, "firm")
    name = name_of(job)
    assert name in [promise["job"] for promise in live.ask("status")["promises"]]
    assert not live.ask("status", user="bob")["promises"]
    for admin in ("carol", "root", "rtsched"):
        report = live.ask("status", user=admin)
        assert report["everyone"]
        assert {promise["user"] for promise in report["promises"]} == {"alice"}
    report = live.ask("explain", name, "--live")
    assert report["promise"]["standing"] == "firm"
    assert PROMISED in report["verdicts"][0]["text"]
    assert report["job"]["state"] == "waiting"
    refusal = live.command("rtsched", "explain", name, "--live", user="bob")
    unknown = live.command("rtsched", "explain", "98765.0", "--live", user="bob")
    assert refusal.replace(name, "N") == unknown.replace("98765.0", "N")
    assert live.ask("explain", name, "--live", user="carol")["job"]["user"] == "alice"
    assert "only admins" in live.command("rtsched", "plan")
    live.pool.run(["condor_rm", name], user="alice")
    live.wait_state(job, "withdrawn")


def test_feasible_and_its_promise(live: LivePool) -> None:
    """A job that asks for the deadline that `feasible` names is promised it; no trace is left."""
    for _ in range(6):
        live.promise(*within(400, 60), seconds=50)
    report = live.ask("feasible", "--time", "1", user="dave")
    assert report["feasible"]
    assert not live.ask("status", user="dave")["promises"]
    asking = report["asking"].strip()
    assert live.submit(asking, "+RtRunTime = 60", user="dave").promised
    assert not live.ask("feasible", "--time", "1", "--deadline", "now+30seconds")["feasible"]
    assert "the pool has 6" in live.command("rtsched", "feasible", "-N", "60", "--time", "1")


def test_a_load_learns_its_chunks(live: LivePool) -> None:
    """Chunks of a divisible load find their shares in ad and environment; the rest is removed."""
    live.occupy(6, seconds=12)
    lines = ("executable = /usr/local/bin/chunk.sh", "transfer_executable = false")
    home = ("output = /home/alice/chunk.$(ProcId)", f"+RtDeadline = {time.time() + 95:.0f}")
    job = live.promise(*lines, *home, *LOAD, "queue 6")
    live.wait_state(job, "kept", seconds=70)
    ads = live.past(f"ClusterId == {job >> 20}")
    ran = {number: ad for number, ad in ads.items() if ad["JobStatus"] == 4}
    assert len(ads) == 6
    assert 2 <= len(ran) < 6
    assert sum(ad["RtFraction"] for ad in ran.values()) == pytest.approx(1.0, abs=1e-6)
    for number, ad in ads.items():
        if number not in ran:
            assert ad["RemoveReason"].startswith("rtsched: "), ad["RemoveReason"]
            continue
        told = live.pool.path(f"/home/alice/chunk.{ad['ProcId']}").read_text().splitlines()
        assert told[: len(told) // 2] == told[len(told) // 2 :], told
        values = dict(line.split("=", 1) for line in told)
        assert values["RTSCHED_NODES"] == str(len(ran))
        assert values["RTSCHED_DEADLINE"] == str(ad["RtDeadline"])
        assert float(values["RTSCHED_FRACTION"]) == pytest.approx(ad["RtFraction"], abs=1e-8)
        assert values["RTSCHED_NODE"] == ad["RtNode"] == ad["LastRemoteHost"]


def test_a_parallel_job_gets_a_size(live: LivePool) -> None:
    """A moldable parallel job runs on as many slots as planned, all of them in its node set."""
    live.occupy(6, seconds=12)
    lines = (
        "universe = parallel",
        "machine_count = 4",
        "+MinHosts = 2",
        "+WantParallelScheduling = true",
    )
    job = live.promise(*lines, *within(120, 20), seconds=3)
    bound = eventually(lambda: [ad for ad in [live.ad(job)] if ad.get("RtNodeSet")], 80)
    live.wait_state(job, "kept", seconds=80)
    ad = bound[0]
    assert 2 <= ad["MaxHosts"] <= 4
    assert ad["MinHosts"] == ad["MaxHosts"] == len(ad["RtNodeSet"].split(","))
    assert ad["RtHosts"] == "2-4"


def test_parked_jobs_are_judged_later(live: LivePool) -> None:
    """Deferred while the daemon was down, they get a promise, or are removed with a reason."""
    live.pool.path(SUBMIT_CONF).write_text(QUICK + "on_failure = hold\n")
    live.pool.stop_daemon()
    try:
        eventually(lambda: "until it has been evaluated" in live.submit(*within(60)).text)
        good = live.submit(*within(300), seconds=3)
        bad = live.submit(*within(20, 60))
        anyway = live.submit(*within(20, 60), '+RtElse = "run"', seconds=20)
        assert not good.promised
        assert live.ad(good.job)["RtAdmission"] == "parked"
        time.sleep(6)
        assert live.status(good.job) == "idle"
    finally:
        live.pool.path(SUBMIT_CONF).write_text(QUICK)
        live.pool.start_daemon()
    assert live.wait_state(good.job, "firm", "kept")
    assert PROMISED in live.ad(good.job)["RtWhy"]
    ad = live.wait_status(bad.job, "removed")
    assert ad["RemoveReason"].startswith("rtsched: rejected: ")
    assert live.wait_state(good.job, "kept", seconds=40)
    ad = live.wait_status(anyway.job, "completed")
    assert "accepted without a promise" in ad["RtWhy"]
    assert ad["CompletionDate"] > ad["RtDeadline"]


def test_a_job_without_a_promise_runs_past_its_deadline(live: LivePool) -> None:
    """With `RtElse = "run"`; otherwise it is rejected."""
    assert live.submit(*within(5)).job == 0
    assert 'RtElse must be "reject" or "run"' in live.submit(*within(5), '+RtElse = "wait"').text
    reply = live.submit(*within(5), '+RtElse = "run"', seconds=8)
    assert "accepted without a promise" in reply.text
    assert "Feasible: " in reply.text
    ad = live.wait_status(reply.job, "completed")
    assert ad["CompletionDate"] > ad["RtDeadline"]


def test_a_job_without_a_promise_is_promised_its_deadline_when_there_is_room(
    live: LivePool,
) -> None:
    """One of six jobs ends long before its run time; what waits starts one after the other."""
    blocker = live.occupy(6, 500)[0]
    replies = [live.submit(*within(300), '+RtElse = "run"', seconds=4) for _ in range(4)]
    assert all("accepted without a promise" in each.text for each in replies)
    live.polled()
    assert [live.state(each.job) for each in replies] == [""] * 4
    live.pool.run(["condor_rm", name_of(blocker)])
    promised = eventually(lambda: [each.job for each in replies if live.state(each.job)], 60)
    for job in promised:
        assert live.wait_state(job, "kept", seconds=120)
        ad = live.wait_status(job, "completed")
        assert ad["RtAdmission"] == "judged"
        assert PROMISED in ad["RtWhy"]


def test_jobs_without_a_promise_exchange_places_by_deadline(live: LivePool) -> None:
    """The user's job without a deadline is second before and after."""
    live.occupy(6, 500)
    late = live.submit(*within(400), '+RtElse = "run"', seconds=2).job
    other = live.submit("priority = -5", seconds=2).job
    early = live.submit(*within(300), '+RtElse = "run"', "priority = -10", seconds=2).job
    jobs = [early, other, late]

    def priorities() -> list[int]:
        return [live.ad(job)["JobPrio"] for job in jobs]

    eventually(lambda: priorities() == [0, -5, -10], 60)
    live.polled()
    assert priorities() == [0, -5, -10]
    assert [live.ad(job).get("RtJobPrio") for job in jobs] == [-10, None, 0]


def test_a_job_that_is_submitted_held(live: LivePool) -> None:
    """It is promised nothing before its release, and judged then."""
    reply = live.submit("hold = true", *within(600), seconds=3)
    assert "evaluated when it is released" in reply.text
    assert not reply.promised
    live.polled()
    ad = live.ad(reply.job)
    assert (ad["RtAdmission"], ad.get("RtWhy")) == ("parked", None)
    live.pool.run(["condor_release", name_of(reply.job)], user="alice")
    live.wait_state(reply.job, "firm", "kept", seconds=60)
    eventually(lambda: PROMISED in live.ad(reply.job).get("RtWhy", ""), 30, "its user can read it")
    live.wait_state(reply.job, "kept", seconds=90)


def test_who_waits_for_others_without_a_promise(live: LivePool) -> None:
    """The order holds all the same; who has no deadline is told to use DAGMan."""
    first = live.submit("+RtRunTime = 60", seconds=15)
    behind = f'+RtAfter = "{name_of(first.job)}"'
    assert "use DAGMan" in live.submit("+RtRunTime = 60", behind).text
    reply = live.submit(*within(600), behind, '+RtClass = "fast"', seconds=1)
    assert "RtAfter" in reply.text
    assert not reply.promised
    began = live.wait_status(reply.job, "running", "completed", seconds=120)["JobCurrentStartDate"]
    assert began >= live.wait_status(first.job, "completed")["CompletionDate"]


def test_classes_where_it_only_watches_or_warns(live: LivePool) -> None:
    """In shadow a hopeless job passes in silence, with warn with a word; none is promised."""
    hopeless = within(30, 60)
    assert live.submit(*hopeless).job == 0
    quiet = live.submit(*hopeless, '+RtClass = "fast"')
    told = live.submit(*hopeless, '+RtClass = "slow"')
    assert quiet.job
    assert "rtsched" not in quiet.text
    assert told.job
    assert "rtsched: warning: " in told.text
    fine = live.submit(*within(600), '+RtClass = "fast"', seconds=2)
    assert PROMISED not in fine.text
    for reply in (quiet, told, fine):
        assert live.wait_status(reply.job, "running", "completed").get("RtAdmission") is None
    assert not {quiet.job, told.job, fine.job} & {each.id for each in live.kept()}


def test_a_restart_keeps_promises(live: LivePool) -> None:
    """Killed and started anew, the daemon knows all promises and keeps them."""
    for _ in range(6):
        live.promise(*within(400, 20), seconds=8)
    job = live.promise(*within(400, 20), seconds=2)
    live.wait_state(job, "firm")
    live.pool.kill_daemon()
    done = live.pool.run(["rtsched", "status"], user="alice", check=False)
    assert done.returncode == 3
    assert "no daemon answers" in done.stderr
    live.pool.start_daemon()
    assert name_of(job) in [promise["job"] for promise in live.ask("status")["promises"]]
    live.wait_state(job, "kept", seconds=60)


def test_dagman(live: LivePool) -> None:
    """Nodes of a DAG are promised deadlines when DAGMan submits them; a rejected one fails."""
    node = "executable = /bin/sleep\narguments = 2\nlog = node.log\n+RtRunTime = 20\n"
    wish = "+RtDeadline = QDate + {}\nqueue\n"
    files = {"a.sub": node + wish.format(200), "b.sub": node + wish.format(5)}
    files["dag"] = "JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n"
    live.pool.write({f"/home/alice/dag/{name}": text for name, text in files.items()})
    live.pool.run(["chown", "-R", "alice", "/home/alice/dag"])
    words = ["condor_submit_dag", "-f", "dag"]
    live.pool.run(words, user="alice", cwd="/home/alice/dag")
    done = eventually(lambda: live.past('DAGNodeName is "A"'), 60)
    (job,) = done
    assert live.wait_state(job, "kept") == "kept"
    log = live.pool.path("/home/alice/dag/dag.dagman.out")
    eventually(lambda: "rtsched: rejected" in log.read_text(), 60)


def test_a_dry_run_touches_nothing(live: LivePool) -> None:
    """It judges, plans, and says what it would change; the queue is as before."""
    live.pool.stop_daemon()
    live.fill(6, seconds=60)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 6)
    waiting = live.submit(*within(300)).job
    moving = ("ServerTime", "LastRejMatch", "AutoCluster")

    def ads() -> dict[str, Any]:
        found = live.ads(f"ClusterId == {waiting >> 20}")[waiting]
        return {name: value for name, value in found.items() if not name.startswith(moving)}

    before = ads()
    live.pool.start_daemon(args=["--dry-run"])
    try:
        eventually(lambda: live.ask("plan", user="root")["changes"])
        assert live.ask("plan", user="root")["mode"] == "dry-run"
        assert ads() == before
        assert not live.submit(*within(300)).promised
    finally:
        live.pool.stop_daemon()
    assert waiting not in {each.id for each in live.kept()}


def test_a_job_that_outlives_its_run_time(live: LivePool) -> None:
    """A best-effort job that ignores SIGTERM is off its slot in time for the promise behind it."""
    stubborn = "arguments = \"-c 'trap : TERM; while :; do sleep 1; done'\""
    lines = ("executable = /bin/sh", stubborn, "+RtRunTime = 12", "queue 6")
    others = live.submit(*lines, user="bob").job
    live.wait_status(others, "running")
    live.polled()
    job = live.promise(*within(70, 20), seconds=3)
    live.wait_state(job, "kept", seconds=80)
    assert "rtsched: run time" in json.dumps(live.ads('Owner == "bob"'))


def test_a_suspended_job_is_at_risk(live: LivePool) -> None:
    """Its user is informed, and again when it goes on."""
    job = live.promise(*within(600, 60), seconds=30)
    live.wait_status(job, "running")
    live.polled()
    for tool, told in (("suspend", "at risk: the job is suspended"), ("continue", "after all")):
        live.pool.run([f"condor_{tool}", live.name(job)], user="alice")
        eventually(lambda told=told: told in str(live.ad(job).get("RtWhy")), 30, told)
    assert live.state(job) == "firm"


def test_the_schedd_tells_when_a_job_executes(live: LivePool) -> None:
    """By that its planned end is counted, where HTCondor's own limit counts execution alone."""
    job = live.submit("allowed_execute_duration = 300", seconds=60).job
    began = live.wait_status(job, "running")["JobCurrentStartDate"]
    eventually(lambda: live.ad(job).get("JobCurrentStartExecutingDate", 0) >= began)


@contextmanager
def nothing_starts(live: LivePool) -> Iterator[None]:
    """Let the schedd start no job."""
    full = "/etc/condor/config.d/99-full.conf"
    live.pool.write({full: "MAX_JOBS_RUNNING = 0\n"})
    live.pool.run(["condor_reconfig"])
    try:
        yield
    finally:
        live.pool.path(full).unlink()
        live.pool.run(["condor_reconfig"])


def test_a_schedd_that_starts_nothing_voids_no_promise(live: LivePool) -> None:
    """Its start is put off, and comes when jobs may run again; its user is blamed for nothing."""
    starts = set()

    def put_off() -> bool:
        starts.add(live.ad(job).get("RtPlannedStart"))
        return len(starts - {None}) > 3

    with nothing_starts(live):
        job = live.promise(*within(1200), seconds=1)
        eventually(put_off, 120, lambda: f"put off three times: {starts}")
        assert live.state(job) == "firm"
    live.wait_state(job, "kept", seconds=90)


def test_a_held_job_is_not_being_spooled_because_its_owner_says_so(live: LivePool) -> None:
    """HoldReasonCode 16 means that files come in; a job that was held later waits for nobody."""
    with nothing_starts(live):
        job = live.promise(*within(1200))
        live.wait_state(job, "firm")
        later = live.ad(job)["QDate"] + AT_ONCE_S + 1.0
        eventually(lambda: time.time() > later)
        live.pool.stop_daemon()
        live.pool.run(["condor_hold", name_of(job)], user="alice")
        live.pool.run(["condor_qedit", name_of(job), "HoldReasonCode", "16"], user="alice")
        live.pool.start_daemon(SITE + SCOPES)
        live.wait_state(job, "void")
