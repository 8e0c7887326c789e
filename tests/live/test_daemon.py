"""What users and admins of a real Slurm see of the daemon, from sbatch to sacct."""

import re
import time
from collections.abc import Iterator

import pytest
from promising import (
    PROLOG,
    PROMISED,
    QUICK,
    SITE,
    SUBMIT_CONF,
    Live,
    Reply,
    in_minutes,
    live_cluster,
)
from testbed.slurm_source import has_pyslurm
from testbed.waiting import eventually

SCOPES = """
[[scope]]
partition = "trial"
mode = "shadow"

[[scope]]
partition = "soft"
mode = "warn"
"""
PARTITIONS = """
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=30
PartitionName=trial Nodes=ALL State=UP MaxTime=30
PartitionName=soft Nodes=ALL State=UP MaxTime=30
"""
WRITES = "UPDATE|CREATE|DELETE|KILL|CANCEL|SUSPEND|REQUEUE|SUBMIT"
"""In the names of calls that change anything."""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run eight nodes with filter and daemon; in two partitions it only watches, or warns."""
    with live_cluster(
        SITE + SCOPES,
        fast=2,
        slow=6,
        partitions=PARTITIONS,
        settings={
            "TaskProlog": PROLOG,
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "ReturnToService": "1",
        },
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins without jobs, and with a daemon that answers and may use all nodes."""
    if not live.cluster.services.alive("rtsched"):
        live.cluster.start_daemon(SITE + SCOPES)
    live.wait_usable(8)
    yield
    live.cancel_all()


def accounted(live: Live, job: int, *fields: str) -> dict[str, str]:
    """Return what sacct says of a job that has ended."""
    words = ["sacct", "-X", "-n", "-P", "--delimiter=\x1f", "-j", str(job), "-o", ",".join(fields)]

    def found() -> list[str]:
        reply = live.cluster.run(words, env={"SLURM_TIME_FORMAT": "%s"}).stdout.rstrip("\n")
        values = reply.split("\x1f")
        return values if len(values) == len(fields) and "Unknown" not in values else []

    return dict(zip(fields, eventually(found), strict=True))


def planned(live: Live, job: int) -> list[str]:
    """Return the nodes on which a job is planned."""
    entries = live.ask("plan", user="root")["entries"]
    return next((entry["nodes"] for entry in entries if entry["job"] == str(job)), [])


def test_a_promise_is_kept_beside_a_full_queue(live: Live) -> None:
    """The user reads a promise; nodes are kept; the job ends in time, and best effort goes on."""
    others = [
        live.cluster.sbatch(["-N1", "--exclusive", "--time=1"], user="bob", script="sleep 12")
        for _ in range(32)
    ]
    for job in others[:8]:
        live.cluster.wait_job(job, "RUNNING")
    live.polled()
    reply = live.submit("-N4", "--time=1", in_minutes(6), script="sleep 3")
    assert re.search(
        r"promised to end by [\d: -]+ \+0000; "
        r"planned to start (at [\d: -]+ \+0000|now) on 4 nodes",
        reply.text,
    )
    reservation = eventually(lambda: live.reservations().get(f"rtsched_{reply.job}"))
    assert reservation["Users"] == "alice"
    assert reservation["NodeCnt"] == "4"
    assert {"IGNORE_JOBS", "OVERLAP"} <= set(reservation["Flags"].split(","))
    seen = planned(live, reply.job)

    def started() -> bool:
        nonlocal seen
        seen = planned(live, reply.job) or seen
        return live.cluster.job(reply.job)["JobState"] != "PENDING"

    eventually(started, 90)
    assert set(live.names_in(live.cluster.job(reply.job)["NodeList"])) == set(seen)
    live.wait_state(reply.job, "kept")
    shown = accounted(live, reply.job, "State", "End", "SubmitLine", "AdminComment", "AllocNodes")
    kept = next(each for each in live.kept() if each.id == reply.job)
    assert shown["State"] == "COMPLETED"
    assert int(shown["End"]) <= kept.deadline
    assert "--deadline=" in shown["SubmitLine"]
    assert shown["AllocNodes"] == "4"
    assert live.ask("explain", str(reply.job), "--live")["promise"]["standing"] == "kept"
    eventually(lambda: f"rtsched_{reply.job}" not in live.reservations())
    for job in others[:8]:
        live.cluster.wait_job(job)


def test_a_job_that_must_start_at_once_is_promised_nothing(live: Live) -> None:
    """Slurm would refuse it: a promised job waits for its reservation."""
    job = ("-N1", "--time=1", "--deadline=now+1hour")
    for words, option in (
        (("srun", "-I", *job, "true"), "--immediate"),
        (("salloc", "-I", *job, "true"), "--immediate"),
        (("sbatch", "--signal=R:USR1@10", *job, "--wrap=true"), "--signal=R"),
    ):
        assert f"rtsched: cannot plan with {option}; leave it out" in live.command(*words)
    assert live.command("srun", "-I", "-N1", "--time=1", "true").startswith("0 ")


def test_an_offer_means_the_same_in_another_zone(live: Live) -> None:
    """The daemon's clock is set back this night, and its user is in New York."""
    live.cluster.stop_daemon()
    live.cluster.start_daemon(env={"TZ": "Europe/Berlin"})
    words = ["sbatch", "--output=/dev/null", "-N8", "--time=4"]

    def submitted(deadline: str) -> Reply:
        done = live.cluster.run(
            [*words, deadline, "--wrap=true"],
            user="carol",
            env={"TZ": "America/New_York"},
            check=False,
        )
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        return Reply(int(found[1]) if found else 0, done.stdout + done.stderr, 0.0, 0.0)

    refused = submitted("--deadline=now+250")
    assert re.search(r"Feasible: [\d: -]+ \+0[12]00 \(--deadline=uts\d+\)", refused.text)
    reply = submitted(refused.offer)
    assert reply.promised, reply.text
    shown = live.cluster.run(
        ["scontrol", "show", "job", str(reply.job)], env={"SLURM_TIME_FORMAT": "%s"}
    )
    assert f"Deadline={refused.offer.removeprefix('--deadline=uts')}" in shown.stdout
    live.cluster.stop_daemon()
    live.cluster.start_daemon()


def test_a_counter_offer_holds(live: Live) -> None:
    """A rejection says what is feasible; its user who asks for that is admitted, nobody else."""
    live.promise("-N8", "--time=4", in_minutes(20), script="sleep 60")
    refused = live.submit("-N8", "--time=4", in_minutes(6))
    assert refused.job == 0
    assert "rejected" in refused.text
    assert refused.offer
    words = ("-N8", "--time=4", refused.offer)
    assert live.submit(*words, user="bob").job == 0
    assert live.submit(*words).promised
    assert live.submit(*words).job == 0


def test_one_job_runs_different_programs(live: Live) -> None:
    """A heterogeneous step is what users may have instead of a heterogeneous job."""
    script = "srun -N1 -n1 true : -N2 -n2 hostname > /tmp/parts"
    job = live.promise("-N3", "--time=1", in_minutes(6), script=script)
    live.wait_state(job, "kept", seconds=40)
    assert accounted(live, job, "ExitCode") == {"ExitCode": "0:0"}
    assert len(live.cluster.path("/tmp/parts").read_text().splitlines()) == 2  # noqa: S108


def test_moldable_and_divisible_jobs_learn_their_plan(live: Live) -> None:
    """At its start a job finds its nodes, deadline and fractions in RTSCHED_* variables."""
    script = "env | grep ^RTSCHED_ > /tmp/$SLURM_JOB_ID.env; srun true"
    load = "--extra=rtsched:sigma=100,cms=0.01,cps=2"
    moldable = live.promise("-N2-4", "--time=4", in_minutes(12), script=script)
    divisible = live.promise("-N1-4", load, in_minutes(12), script=script)
    for job in (moldable, divisible):
        live.wait_state(job, "kept", seconds=40)
        text = live.cluster.path(f"/tmp/{job}.env").read_text()  # noqa: S108
        told = dict(line.split("=", 1) for line in text.splitlines())
        nodes = accounted(live, job, "AllocNodes")["AllocNodes"]
        deadline = live.deadline_of(job)
        assert told["RTSCHED_DEADLINE"] == f"{deadline:.0f}"
        if job == divisible:
            assert told["RTSCHED_NODES"] == nodes
            fractions = [float(part) for part in told["RTSCHED_FRACTIONS"].split(":")]
            assert len(fractions) == int(nodes)
            assert sum(fractions) == pytest.approx(1.0, abs=1e-6)
        else:
            assert 2 <= int(nodes) <= 4


def test_a_job_whose_promise_ends_has_its_own_size_and_limit(live: Live) -> None:
    """It waits as its user submitted it, whatever was planned for it."""
    live.cluster.wait_job(live.submit("-N8", "--time=10", script="sleep 300").job, "RUNNING")
    load = "--extra=rtsched:sigma=100,cms=0.01,cps=2"
    asked = {("-N2-4", "--time=4"): "00:04:00", ("-N1-4", load): "00:30:00"}
    jobs = {live.promise(*words, in_minutes(60)): words for words in asked}
    for job, (nodes, last) in jobs.items():
        assert live.cluster.job(job)["NumNodes"] != nodes.removeprefix("-N")
        live.cluster.run(["scontrol", "update", f"JobId={job}", "Deadline=now+50hours"])
        live.wait_state(job, "void")
        own = nodes.removeprefix("-N"), asked[nodes, last]

        def shape(job: int = job) -> tuple[str, str]:
            shown = live.cluster.job(job)
            return shown["NumNodes"], shown["TimeLimit"]

        eventually(lambda own=own, shape=shape: shape() == own)  # type: ignore[misc]


def test_why_a_promised_job_cannot_be_held(live: Live) -> None:
    """Of an array Slurm does not print the reason; users read it in rtsched explain."""
    live.wait_status(live.submit("-N8", "--time=10", script="sleep 300").job, "running")
    for more, part in ((), ""), (("--array=1-4",), ""), (("--array=1-4",), "_3"):
        job = live.promise("-N1", "--time=2", in_minutes(60), *more)
        live.polled()
        assert live.command("scontrol", "hold", f"{job}{part}").startswith("1 ")
        told = " ".join(live.command("rtsched", "explain", f"{job}{part}", "--live").split())
        assert "its priority or hold cannot be changed. Cancel the job" in told
        assert live.state(job) == "firm"


def test_a_time_limit_may_be_shortened(live: Live) -> None:
    """By its user, of a job that runs or waits, and of tasks of an array; so is the plan."""
    running = live.promise("-N8", "--time=10", in_minutes(90), script="sleep 300")
    live.wait_status(running, "running")
    waiting = live.promise("-N8", "--time=9", in_minutes(90))
    array = live.promise("-N1", "--time=9", "--array=1-20", in_minutes(90))
    live.polled()

    def planned() -> tuple[float, float]:
        """Return from when on the waiting job is planned, and for how long, seconds."""
        entries = {entry["job"]: entry for entry in live.ask("plan", user="root")["entries"]}
        start, end = (float(entries[str(waiting)][name]) for name in ("start", "end"))
        return start, end - start

    before = planned()
    for job in (str(running), str(waiting), str(array), f"{array}_7"):
        shorter = live.command("scontrol", "update", f"job={job}", "timelimit=5")
        assert shorter == "0 ", (job, shorter)
        longer = live.command("scontrol", "update", f"job={job}", "timelimit=11")
        assert "its time limit cannot be changed" in longer, (job, longer)
    live.polled()
    assert live.cluster.job(waiting)["TimeLimit"] == "00:05:00"
    after = planned()
    assert after[0] == pytest.approx(before[0] - 300, abs=10)  # when the other one has ended
    assert after[1] == pytest.approx(before[1] - 240, abs=10)
    assert {live.state(job) for job in (running, waiting, array)} == {"firm"}


def test_parked_jobs_are_judged_later(live: Live) -> None:
    """Held while the daemon was down, they get a promise, or are cancelled with a reason."""
    live.hold_without_daemon()
    live.cluster.stop_daemon()
    try:
        eventually(lambda: "held until" in live.submit("-N1", "--time=1", in_minutes(60)).text)
        good = live.submit("-N2", "--time=2", in_minutes(60), script="sleep 4")
        # Slurm itself takes a deadline that leaves room for the limit; the margins do not fit in.
        bad = live.submit("-N8", "--time=10", in_minutes(10.1))
        assert live.cluster.job(good.job)["Priority"] == "0"
        assert live.cluster.has_whole_nodes(good.job)
    finally:
        live.cluster.path(SUBMIT_CONF).write_text(QUICK)
        live.cluster.start_daemon()
    assert live.wait_state(good.job, "firm", "kept")
    live.cluster.wait_job(good.job, "RUNNING", "COMPLETED")
    live.cluster.wait_job(bad.job, "CANCELLED")
    assert live.cluster.job(bad.job)["Comment"].startswith("rtsched: rejected: ")
    assert live.wait_state(good.job, "kept", seconds=30)


def test_a_job_without_a_promise_runs_past_its_deadline(live: Live) -> None:
    """With `else=run`, evaluated at its submission or held before; Slurm does not cancel it."""
    over = live.cluster.path("/tmp/over")  # noqa: S108
    script = "while [ ! -e /tmp/over ]; do sleep 0.5; done"
    blocker = live.submit("-N8", "--time=10", script=script).job
    live.cluster.wait_job(blocker, "RUNNING")
    ask = ("-N8", "--time=1")
    assert live.submit(*ask, in_minutes(1.1)).job == 0, "without the word"
    wrong = live.submit(*ask, in_minutes(1.1), "--extra=rtsched:else=maybe")
    assert "must be reject or run" in wrong.text
    first = live.submit(*ask, in_minutes(0.5), "--extra=rtsched:else=run", script="sleep 1")
    assert "accepted without a promise" in first.text
    assert "Feasible: " in first.text
    live.hold_without_daemon()
    live.cluster.stop_daemon()
    try:
        eventually(lambda: "held until" in live.submit("-N1", "--time=1", in_minutes(60)).text)
        words = (*ask, "--comment=rtsched:else=run")  # Slurm itself refuses less than the limit
        parked = eventually(lambda: (reply := live.submit(*words, in_minutes(1.1))).job and reply)
        deadline = time.time() + 66
        assert live.cluster.job(parked.job)["Priority"] == "0"
    finally:
        live.cluster.path(SUBMIT_CONF).write_text(QUICK)
        live.cluster.start_daemon()
    eventually(lambda: live.cluster.job(parked.job)["Priority"] != "0")
    assert "accepted without a promise" in live.cluster.job(parked.job)["Comment"]
    assert live.cluster.job(first.job).get("Deadline", "N/A") == "N/A"
    time.sleep(max(deadline + 1 - time.time(), 0))
    over.touch()
    for each in (first.job, parked.job):
        live.cluster.wait_job(each, "RUNNING", "COMPLETED")
    assert live.state(first.job) == live.state(parked.job) == ""


def test_a_job_without_a_promise_is_promised_its_deadline_when_there_is_room(live: Live) -> None:
    """Another one ends long before its limit; the daemon was started anew meanwhile."""
    blocker = live.submit("-N8", "--time=10", script="sleep 500").job
    live.cluster.wait_job(blocker, "RUNNING")
    live.polled()
    ask = ("-N8", "--time=1", in_minutes(6), "--extra=rtsched:else=run")
    replies = [live.submit(*ask, script="sleep 5") for _ in range(2)]
    assert all("accepted without a promise" in each.text for each in replies)
    jobs = [each.job for each in replies]
    live.polled()
    shown = {each["job"]: each["standing"] for each in live.ask("status")["unpromised"]}
    assert [shown.get(str(job)) for job in jobs] == ["none", "none"]
    live.cluster.stop_daemon()
    away = live.submit("-N8", "--time=1", in_minutes(90), "--extra=rtsched:else=run")
    live.cluster.start_daemon(SITE + SCOPES)
    live.polled()
    assert [live.state(job) for job in jobs] == ["", ""]
    given_up = live.promise("-N8", "--time=1", in_minutes(90), ask[-1], script="true")
    live.wait_state(given_up, "firm")
    assert live.command("rtsched", "cancel", str(given_up)).startswith("0 ")
    for job in (away.job, given_up):
        eventually(lambda job=job: live.cluster.job(job)["Deadline"].startswith("2100-"))  # type: ignore[misc]
    live.cluster.run(["scancel", str(blocker)])
    live.wait_state(jobs[1], "firm", "kept", seconds=30)  # Slurm may have started the first
    eventually(lambda: PROMISED in live.cluster.job(jobs[1]).get("Comment", ""))
    live.wait_state(jobs[1], "kept", seconds=90)


def test_ordinary_jobs_belong_to_their_users_while_the_daemon_is_away(live: Live) -> None:
    """With hold, promised jobs stay as they are; all others are held, released and changed."""
    later = ("-N1", "--time=2", "--begin=now+1hour")
    before = live.submit(*later).job
    live.cluster.wait_job(live.submit("-N8", "--time=5", script="sleep 300").job, "RUNNING")
    promised = live.promise("-N1", "--time=2", in_minutes(60))
    live.wait_state(promised, "firm")
    listed = live.cluster.path("/run/rtsched/promised_jobs")
    eventually(lambda: f"\n{promised}\n" in listed.read_text())
    live.hold_without_daemon()
    live.cluster.stop_daemon()
    try:
        eventually(lambda: "held until" in live.submit("-N1", "--time=1", in_minutes(60)).text)
        for job in (before, live.submit(*later).job):
            for words in (("hold",), ("release",), ("update", "timelimit=1")):
                command = ("scontrol", words[0], f"job={job}", *words[1:])
                assert live.command(*command) == "0 "
        for words in (("hold",), ("update", "timelimit=1"), ("update", "numnodes=2")):
            reply = live.command("scontrol", words[0], f"job={promised}", *words[1:])
            assert reply.startswith("1 ")
            assert "was promised a deadline: it cannot be changed until the daemon is back" in reply
        listed.unlink()
        gone = "/run/rtsched/promised_jobs: No such file or directory"
        eventually(lambda: gone in live.command("scontrol", "hold", f"{before}"))
    finally:
        live.cluster.path(SUBMIT_CONF).write_text(QUICK)
        live.cluster.start_daemon()
    assert live.state(promised) == "firm"
    eventually(lambda: f"\n{promised}\n" in listed.read_text())


def test_partitions_where_it_only_watches_or_warns(live: Live) -> None:
    """In shadow a hopeless job passes in silence, with warn with a word; none is promised."""
    hopeless = ("-N8", "--time=5", in_minutes(5.1))
    assert live.submit(*hopeless).job == 0
    quiet = live.submit(*hopeless, "--partition=trial")
    told = live.submit(*hopeless, "--partition=soft")
    assert quiet.job
    assert "rtsched" not in quiet.text
    assert told.job
    assert "rtsched: warning: " in told.text
    fine = live.submit("-N1", "--time=1", in_minutes(20), "--partition=trial")
    assert PROMISED not in fine.text
    live.polled()
    assert not {quiet.job, told.job, fine.job} & {each.id for each in live.kept()}


def calls(live: Live) -> set[str]:
    """Return what the daemon's user has asked of the controller, by the controller's own count."""
    shown = live.cluster.run(["sdiag"]).stdout
    assert "rtsched" in shown
    types = re.findall(r"^\s+(REQUEST_\w+)\s+\(", shown, re.MULTILINE)
    return set(types)


def scheduled(live: Live) -> None:
    """Wait until Slurm's backfill has run once from now on: it has seen every job."""

    def cycles() -> int:
        shown = live.cluster.run(["sdiag"]).stdout.partition("Backfilling stats")[2]
        found = re.search(r"Total cycles: (\d+)", shown)
        assert found, shown
        return int(found[1])

    before = cycles()
    eventually(lambda: cycles() > before + 1, 30, "two runs of backfill")


def dump(live: Live) -> str:
    """Return all jobs, nodes, reservations and partitions, without what changes by itself."""
    parts = [
        live.cluster.run(["scontrol", "-a", "show", what]).stdout
        for what in ("job", "node", "reservation", "partition")
    ]
    moving = r"\b(RunTime|Priority|LastSchedEval|LastBusyTime|CPULoad|FreeMem|EligibleTime)=\S+"
    moving += r"|\b(AccrueTime|StartTime|EndTime|SchedNodeList|Scheduler|Reason)=\S+"
    moving += r"|\bNodeList=(\(null\))?\s"
    return re.sub(moving, "", "".join(parts))


def test_a_dry_run_touches_nothing(live: Live) -> None:
    """It judges, plans, and says what it would change; the cluster is as before."""
    cluster = live.cluster
    cluster.stop_daemon()
    job = live.submit("-N2", "--time=2", in_minutes(60), "--begin=now+10minutes").job
    hog = cluster.sbatch(["-N8", "--exclusive", "--time=3"], user="bob", script="sleep 170")
    cluster.wait_job(hog, "RUNNING")
    waiting = live.submit("-N4", "--time=2", in_minutes(60)).job
    scheduled(live)
    cluster.run(["sdiag", "--reset"])
    before = dump(live)
    cluster.start_daemon(args=["--dry-run"])
    try:
        live.polled()
        shown = live.ask("plan", user="root")
        assert shown["mode"] == "dry-run"
        assert any(str(waiting) in change["text"] for change in shown["changes"])
        after = dump(live)
        assert [line for line in after.splitlines() if line.strip() not in before] == []
        assert not [name for name in calls(live) if re.search(WRITES, name)]
        reply = live.submit("-N1", "--time=2", in_minutes(60))
        assert reply.job
        assert PROMISED not in reply.text
    finally:
        cluster.stop_daemon()
    assert not {job, waiting, reply.job} & {each.id for each in live.kept()}


def test_a_node_dies_under_a_plan(live: Live) -> None:
    """The job is planned on other nodes and keeps its promise; one that ran there is told apart."""
    hog = live.promise("-N7", "--time=2", "--no-requeue", in_minutes(30), script="sleep 90")
    live.cluster.wait_job(hog, "RUNNING")
    job = live.promise("-N3", "--time=1", in_minutes(30), script="sleep 2")
    nodes = eventually(lambda: planned(live, job))
    busy = live.cluster.run(["squeue", "-h", "-j", str(hog), "-o", "%N"]).stdout.strip()
    names = live.names_in(busy)
    victim = next(name for name in nodes if name in names)
    live.cluster.node(victim).kill()
    live.cluster.run(["scontrol", "update", f"nodename={victim}", "state=down", "reason=test"])
    try:
        assert live.wait_state(hog, "missed") == "missed"
        why = next(each.why for each in live.kept() if each.id == hog)
        assert why == "a node failed while the job ran"
        live.wait_state(job, "kept", seconds=40)
        assert victim not in live.names_in(accounted(live, job, "NodeList")["NodeList"])
    finally:
        live.cluster.node(victim).start(wait=False)
        live.cluster.run(["scontrol", "update", f"nodename={victim}", "state=resume"])
        live.cluster.wait_nodes([victim])


def test_nobody_can_keep_it(live: Live) -> None:
    """A promise that no plan keeps any more is broken at once, its user told, and the job stays."""
    hog = live.cluster.sbatch(["-N8", "--time=3"], user="bob", script="sleep 60")
    live.cluster.wait_job(hog, "RUNNING")
    live.polled()
    job = live.promise("-N8", "--time=1", in_minutes(30))
    live.wait_state(job, "firm")
    live.cluster.run(["scontrol", "update", "nodename=slow6", "state=drain", "reason=test"])
    try:
        live.wait_state(job, "broken", seconds=8)
        eventually(lambda: "can no longer be kept" in live.cluster.job(job).get("Comment", ""))
        assert live.cluster.job(job)["JobState"] == "PENDING"
    finally:
        live.cluster.run(["scontrol", "update", "nodename=slow6", "state=resume"])


def test_a_requeued_job_starts_as_planned(live: Live) -> None:
    """Slurm puts off a job that is queued again for two minutes, which would be too late here."""
    job = live.promise("-N1", "--time=1", in_minutes(2.8), script="sleep 12")
    live.cluster.wait_job(job, "RUNNING")
    live.polled()
    live.cluster.run(["scontrol", "requeue", str(job)], user="alice")
    live.wait_state(job, "kept", seconds=150)
    assert live.ran(job)[1] <= live.deadline_of(job)


def test_a_job_that_is_suspended_is_at_risk_and_broken_at_its_deadline(live: Live) -> None:
    """Its user reads both in the job's comment."""
    job = live.promise("-N1", "--time=1", in_minutes(1.7), script="sleep 30")
    live.cluster.wait_job(job, "RUNNING")
    live.polled()
    live.cluster.run(["scontrol", "suspend", str(job)])

    def comment() -> str:
        return live.cluster.job(job).get("Comment", "")

    eventually(lambda: "at risk: the job is suspended" in comment(), 20, "it is at risk")
    live.wait_state(job, "broken", seconds=120)
    eventually(lambda: "can no longer be kept" in comment(), 20, "its user is informed")


def test_both_routes(live: Live) -> None:
    """A restart keeps promises; through Slurm's commands they are given and kept as by pyslurm."""
    first = live.promise("-N2", "--time=1", in_minutes(20), script="sleep 6")
    live.wait_state(first, "firm")
    for route in ("commands", "pyslurm") if has_pyslurm() else ("commands",):
        live.cluster.stop_daemon()
        live.cluster.start_daemon(f'{SITE}{SCOPES}[slurm]\nroute = "{route}"\n')
        second = live.promise("-N2", "--time=1", in_minutes(20), script="true")
        live.wait_state(second, "kept", seconds=30)
    live.wait_state(first, "kept", seconds=30)
    live.cluster.stop_daemon()


def test_killed_at_its_own_limit(live: Live) -> None:
    """A promised job that outlives its own limit is told apart from a missed promise."""
    job = live.promise("-N1", "--time=1", in_minutes(20), script="sleep 300")
    live.wait_state(job, "own-limit", seconds=120)
    assert live.cluster.job(job)["JobState"] == "TIMEOUT"
    states = live.ask("status", user="root")["standings"]
    assert states["own-limit"] == 1
