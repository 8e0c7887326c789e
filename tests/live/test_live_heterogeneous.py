"""Heterogeneous jobs with one promise for all their components, on a real Slurm.

Everything is tried where promised jobs have whole nodes, and where they share nodes.
"""

import re
from collections.abc import Iterator

import pytest
from promising import PROMISED, QUICK, SITE, SUBMIT_CONF, Live, Reply, in_minutes, live_cluster
from testbed.waiting import eventually

NODES = 6
SCOPE = """
[[scope]]
partition = "trial"
mode = "shadow"
"""
PARTITIONS = """
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=30
PartitionName=other Nodes=ALL State=UP MaxTime=30
PartitionName=trial Nodes=ALL State=UP MaxTime=30
"""
HELD = "the job is held until it has been evaluated"
SHARED = "\n[slurm]\nshare_nodes = true\n"
SHOWN = "jobid:0|,state:0|,reservation:0|,starttime:0|,endtime:0|,prioritylong:0|,comment:0"

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module", params=["", SHARED], ids=["whole", "shared"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """Run two fast nodes and four slow ones; in one partition the daemon only watches."""
    with live_cluster(
        SITE + SCOPE + request.param,
        fast=2,
        slow=4,
        partitions=PARTITIONS,
        settings={
            "DefMemPerCPU": "100",
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "ReturnToService": "1",
        },
    ) as running:
        yield running


def components(live: Live, job: int) -> list[list[str]]:
    """Return what Slurm shows of a job's components, the first one first."""
    words = ["squeue", "-h", "-a", "-t", "all", "-j", str(job), "-O", SHOWN]
    lines = live.cluster.run(words, env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()
    return sorted((line.rstrip().split("|") for line in lines), key=lambda row: int(row[0]))


def submitted(live: Live, *words: str, script: str = "sleep 3") -> Reply:
    """Submit a heterogeneous job that waits for its evaluation; return what its user read."""
    reply = live.submit(*words, script=script)
    assert reply.job, reply.text
    assert HELD in reply.text
    return reply


def rejection(live: Live, job: int) -> str:
    """Return the comment that says why a job was rejected, when all its components are gone."""
    eventually(lambda: {row[1] for row in components(live, job)} == {"CANCELLED"}, 30)
    (text,) = {row[-1] for row in components(live, job)}
    assert text.startswith("rtsched: "), text
    return text


def test_unlike_components_amid_a_flood(live: Live) -> None:
    """They start together on the nodes of one reservation, and end in time."""
    others = [
        live.cluster.sbatch(["-N1", "--exclusive", "--time=1"], user="bob", script="sleep 12")
        for _ in range(24)
    ]
    for job in others[:NODES]:
        live.cluster.wait_job(job, "RUNNING")
    live.polled()
    script = "srun --het-group=0,1 hostname > /tmp/parts; sleep 4"
    words = ("-N1", "--time=2", in_minutes(8), ":", "-n8", "--mem=100", "--time=1")
    job = submitted(live, *words, script=script).job
    live.wait_state(job, "firm")
    assert [each.id for each in live.kept() if each.state == "firm"] == [job]
    comments = eventually(
        lambda: [row[-1] for row in components(live, job) if PROMISED in row[-1]], 20
    )
    assert len(comments) == 2
    kept = eventually(lambda: live.reservations().get(f"rtsched_{job}"))
    assert (kept["Users"], kept["NodeCnt"]) == ("alice", "3")
    bound = {(f"rtsched_{job}", "PENDING"), ("(null)", "RUNNING"), ("", "RUNNING")}
    eventually(lambda: {(row[2], row[1]) for row in components(live, job)} <= bound)
    for name in (str(job), f"{job}+1", str(job + 1)):
        assert live.ask("explain", name, "--live")["promise"]["standing"] == "firm"
    live.wait_state(job, "kept", seconds=240)
    (first, second) = components(live, job)
    assert first[3] == second[3], "they started together"
    assert max(int(row[4]) for row in (first, second)) <= live.deadline_of(job)
    hosts = live.cluster.path("/tmp/parts").read_text()  # noqa: S108
    assert len(hosts.splitlines()) == 9, hosts
    eventually(lambda: f"rtsched_{job}" not in live.reservations(), 30)


def test_the_deadline_of_one_component_is_that_of_all(live: Live) -> None:
    """The others are not asked about, and start with it."""
    job = submitted(live, "-N1", "--time=1", ":", "-N2", "--time=1", in_minutes(10)).job
    live.wait_state(job, "kept", seconds=90)
    (first, second) = components(live, job)
    assert first[3] == second[3]


def test_what_cannot_be_met_is_rejected_with_an_offer(live: Live) -> None:
    """All components go, and each says by when they would be done."""
    live.promise(f"-N{NODES}", "--time=4", in_minutes(20), script="sleep 60")
    job = submitted(live, "-N1", "--time=2", in_minutes(5), ":", "-N1", "--time=1").job
    text = rejection(live, job)
    assert re.search(r"rejected: .*Feasible: .*\(--deadline=uts\d+\)", text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-N1", "-C", "fast", "--time=1"), "must be as each component asks for"),
        (("-N1", "-p", "other", "--time=1"), "are in different partitions"),
    ],
)
def test_components_on_other_nodes(live: Live, words: tuple[str, ...], says: str) -> None:
    """They cannot be planned as one job, and their user learns why."""
    first = ("-N1", "-C", "slow", "--time=1", in_minutes(20))
    assert says in rejection(live, submitted(live, *first, ":", *words).job)


def test_what_is_wrong_with_one_component_is_said_at_once(live: Live) -> None:
    """Nobody has to wait for that."""
    reply = live.submit("-N1-3", "--time=1", in_minutes(20), ":", "-N1", "--time=1")
    assert reply.job == 0
    assert "give each --nodes with one number" in reply.text


def test_a_daemon_that_is_away(live: Live) -> None:
    """Whenever it goes, held components wait for it, and are promised their deadline then."""
    live.hold_without_daemon()
    plan = ("-N2", "--time=2", in_minutes(30), ":", "-N1", "--time=1")
    try:
        live.cluster.wait_job(
            live.submit(f"-N{NODES}", "--time=1", script="sleep 20").job, "RUNNING"
        )
        answered = submitted(live, *plan).job
        live.cluster.stop_daemon()
        away = submitted(live, *plan).job
        assert {row[5] for row in components(live, away)} == {"0"}
    finally:
        live.cluster.path(SUBMIT_CONF).write_text(QUICK)
        live.cluster.start_daemon()
    for job in (answered, away):
        live.wait_state(job, "firm", "kept", seconds=40)
    for job in (answered, away):
        live.wait_state(job, "kept", seconds=240)


def test_a_promised_one_stays_as_it_is(live: Live) -> None:
    """No component is changed or cancelled alone, by whichever number; all together may go."""
    live.cluster.wait_job(live.submit(f"-N{NODES}", "--time=5", script="sleep 300").job, "RUNNING")
    job = submitted(live, "-N1", "--time=2", in_minutes(30), ":", "-N2", "--time=1").job
    live.wait_state(job, "firm")
    live.polled()
    for name in (str(job), f"{job}+1", str(job + 1)):
        reply = live.command("scontrol", "update", f"JobId={name}", "TimeLimit=3")
        assert f"job {job} was promised to end by" in reply
    assert "individual component" in live.command("scancel", f"{job}+1")
    listed = live.cluster.path("/run/rtsched/promised_jobs").read_text()
    assert f"\n{job}\n{job + 1}\n" in listed
    live.command("scancel", str(job))
    live.wait_state(job, "withdrawn")


def test_where_nothing_is_enforced_nothing_is_held(live: Live) -> None:
    """In shadow mode it starts as if rtsched were not there."""
    reply = live.submit(
        *("-N1", "-p", "trial", "--time=2", in_minutes(30)),
        *(":", "-N2", "-p", "trial", "--time=1"),
    )
    assert reply.job
    assert HELD not in reply.text
    eventually(lambda: {row[1] for row in components(live, reply.job)} == {"RUNNING"}, 40)
    assert not live.state(reply.job)


def test_an_open_filter_lets_it_in(live: Live) -> None:
    """With the daemon away it is accepted without a promise, and starts as any other job."""
    live.cluster.stop_daemon()
    try:
        reply = live.submit("-N1", "--time=2", in_minutes(30), ":", "-N2", "--time=1")
        assert "accepted without a promise" in reply.text
    finally:
        live.cluster.start_daemon()
    eventually(lambda: {row[1] for row in components(live, reply.job)} == {"RUNNING"}, 40)
    assert not live.state(reply.job)


def test_a_site_that_takes_rtsched_out(live: Live) -> None:
    """`rtsched slurm restore` lets held and promised ones go, which start as any other job."""
    live.hold_without_daemon()
    live.cluster.wait_job(live.submit(f"-N{NODES}", "--time=1", script="sleep 20").job, "RUNNING")
    words = ("-N1", "--time=2", in_minutes(30), ":", "-N2", "--time=1")
    try:
        promised = submitted(live, *words).job
        live.wait_state(promised, "firm")
        eventually(lambda: f"rtsched_{promised}" in live.reservations())
        live.polled()
        live.cluster.stop_daemon()
        held = submitted(live, *words).job
        reply = live.command("rtsched", "slurm", "restore", "--apply", user="root")
        assert reply.startswith("0 "), reply
        assert not [name for name in live.reservations() if name.startswith("rtsched_")]
        for job in (promised, held):
            live.cluster.wait_job(job, "RUNNING", "COMPLETED")
    finally:
        live.cluster.path(SUBMIT_CONF).write_text(QUICK)
        live.cluster.start_daemon()
