"""Our configuration on a real pool, with the real library and tables written here, no daemon."""

import time
from collections.abc import Iterator, Mapping

import pytest
from testbed import Pool, PoolOptions, SubmitError
from testbed.condor import HOST, fragments
from testbed.images import SUITES
from testbed.waiting import wait_for

from rtsched.adapters.condor.requirements import OURS, REQUEST_ATTRIBUTES

REUSED = {"CLAIM_WORKLIFE": "1200", "NEGOTIATOR_INTERVAL": "2", "NEGOTIATOR_CYCLE_DELAY": "1"}
"""A claim may serve several jobs: the gate must hold without the negotiator too."""
QUICK = {"60-quick.conf": "RTSCHED_OVERRUN = 5\n"}
STUBBORN = ["executable = /bin/sh", "arguments = \"-c 'trap : TERM; while :; do sleep 1; done'\""]


def slot(number: int) -> str:
    """Return a slot's name."""
    return f"slot{number}@{HOST}"


def write_table(pool: Pool, kept: Mapping[int, str], *, age: float = 0.0, **delay: str) -> None:
    """Replace the table as the daemon does; times in `kept` are seconds from now."""
    now = int(time.time())
    lines = [f"rtsched-slots 1 {now - int(age)} 600"]
    for number in range(1, 1 + len(pool.options.slots)):
        steps = [step.partition(":") for step in kept.get(number, "").split(",") if step]
        shown = ",".join(f"{now + int(start)}:{amounts}" for start, _, amounts in steps) or "-"
        lines.append(f"{slot(number)}\t{delay.get(f'slot{number}', '1.0')}\t{shown}")
    pool.write({"/run/rtsched/slots.new": "\n".join([*lines, ""])})
    pool.run(["chown", "rtsched:", "/run/rtsched/slots.new"])
    pool.run(["mv", "/run/rtsched/slots.new", "/run/rtsched/slots"])


def start(pool: Pool, *lines: str, user: str = "alice", seconds: int = 600) -> int:
    """Submit sleeping jobs."""
    return pool.submit([f"arguments = {seconds}", *lines], user=user)


def edit(pool: Pool, job: str, user: str = "rtsched", **values: str) -> bool:
    """Change attributes of a job; return whether that was allowed."""
    words = [word for pair in values.items() for word in pair]
    return pool.run(["condor_qedit", job, *words], user=user, check=False).returncode == 0


def host(pool: Pool, job: str) -> str:
    """Return where a job runs; empty: it waits."""
    done = pool.run(["condor_q", job, "-af", "RemoteHost"])
    return done.stdout.strip().replace("undefined", "")


def wait_host(pool: Pool, job: str, where: str) -> None:
    """Wait until a job runs on a slot."""
    wait_for(f"{job} runs on {where}", lambda: host(pool, job) == where, 40)


def negotiated(pool: Pool) -> None:
    """Wait until two negotiation cycles have ended that began after this."""
    log = pool.path("/var/log/condor/NegotiatorLog")

    def cycles() -> int:
        return log.read_text(errors="replace").count("Finished Negotiation Cycle")

    before = cycles()
    wait_for("two negotiation cycles", lambda: cycles() >= before + 3, 60)


@pytest.fixture(scope="module", params=SUITES)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Run a pool of three static slots with our configuration and library."""
    config = fragments() | QUICK
    options = PoolOptions(fast=1, slow=2, library=True, settings=REUSED, config=config)
    with Pool(request.param, options, software=False) as running:
        yield running


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the shared pool without jobs and claims."""
    yield
    if "pool" in request.fixturenames:
        running: Pool = request.getfixturevalue("pool")
        running.remove_all()
        states = ["condor_status", "-af", "State"]
        free = {"Unclaimed"}
        wait_for("free slots", lambda: set(running.run(states).stdout.split()) == free, 40)


def test_a_slot_without_a_job(pool: Pool) -> None:
    """START is not plainly false without a job: slots are the pool's, whatever is kept."""
    write_table(pool, {1: "0:1", 2: "100:1", 3: ""})
    time.sleep(12)  # two polls of the startd
    done = pool.run(["condor_status", "-af", "State", "Start isnt false"])
    assert done.stdout.splitlines() == ["Unclaimed true"] * 3


def test_what_is_kept(pool: Pool) -> None:
    """A job that would run into a kept start waits, one that ends before does not."""
    write_table(pool, {1: "100:1", 2: "100:1", 3: "100:1"})
    unknown = start(pool)
    long = start(pool, "+RtRunTime = 300", user="bob")
    for cpus in ("0", "0.1", "-8"):  # of a static slot every job takes all
        start(pool, "+RtRunTime = 300", f"+RequestCpus = {cpus}", user="dave")
    short = start(pool, "+RtRunTime = 30", user="carol")
    pool.wait_job(short, 0, "Running")
    negotiated(pool)
    assert host(pool, f"{unknown}.0") == host(pool, f"{long}.0") == ""
    assert not pool.run(["condor_q", "dave", "-run", "-af", "ClusterId"]).stdout
    pool.run(["condor_rm", "dave"])
    write_table(
        pool, {1: "100:1", 2: "1000:1", 3: "100:1"} | {int(host(pool, f"{short}.0")[4]): ""}
    )
    pool.wait_job(long, 0, "Running")
    write_table(pool, {1: "100:1", 2: "100:1", 3: "100:1"}, age=700)
    pool.wait_job(unknown, 0, "Running")  # a table too old keeps nothing


def test_a_claim_that_is_used_again(pool: Pool) -> None:
    """The schedd gives a claim to another job of the user only where the gate lets it in."""
    write_table(pool, {})
    jobs = start(pool, "+RtRunTime = 300", "queue 4", seconds=15)
    hosts = {}
    for proc in (0, 1, 2):
        pool.wait_job(jobs, proc, "Running")
        hosts[proc] = host(pool, f"{jobs}.{proc}")
    kept = [int(hosts[proc][4]) for proc in (0, 1)]
    write_table(pool, dict.fromkeys(kept, "200:1"))
    wait_host(pool, f"{jobs}.3", hosts[2])
    log = pool.path("/var/log/condor/SchedLog").read_text(errors="replace")
    assert f"switching to job {jobs}.3" in log  # without the negotiator


def test_where_a_promised_job_starts(pool: Pool) -> None:
    """A judged job starts on slots of its node set alone, kept or not; a deferred one nowhere."""
    write_table(pool, {2: "0:1"})
    job = start(pool, "hold = true")
    assert edit(pool, f"{job}.0", RtAdmission='"parked"')
    pool.run(["condor_release", f"{job}.0"])
    negotiated(pool)
    assert host(pool, f"{job}.0") == ""
    assert edit(pool, f"{job}.0", RtAdmission='"rt-1"', RtNodeSet=f'"{slot(9)},{slot(2)}"')
    wait_host(pool, f"{job}.0", slot(2))


def test_which_slot_is_preferred(pool: Pool) -> None:
    """Of free slots a job gets one of its rank set first, else the one with the least delay."""
    write_table(pool, {}, slot1="2.0", slot2="0.5", slot3="1.0")
    time.sleep(1.1)  # the library looks for a new table once a second
    fast = start(pool)
    wait_host(pool, f"{fast}.0", slot(2))
    wished = start(pool, "hold = true", user="bob")
    assert edit(pool, f"{wished}.0", RtRankSet=f'"{slot(1)}"')
    pool.run(["condor_release", f"{wished}.0"])
    wait_host(pool, f"{wished}.0", slot(1))


def test_forged_attributes(pool: Pool) -> None:
    """What only rtsched writes is gone after a submission, and its user cannot write it later."""
    forged = [f'+{name} = "{slot(1)}"' for name in OURS]
    job = start(pool, "hold = true", *forged)
    ad = pool.job(job)
    assert {ad.get(name) for name in OURS} == {None}
    for name in (*OURS, *REQUEST_ATTRIBUTES.values()):
        assert not edit(pool, f"{job}.0", "alice", **{name: "600"}), name
        assert edit(pool, f"{job}.0", **{name: "600"}), name
    assert edit(pool, f"{job}.0", "alice", JobPrio="5", AllowedExecuteDuration="10")


def test_run_times_that_make_no_sense(pool: Pool) -> None:
    """A run time is worked out once, at the submission; what is no run time is refused."""
    job = start(pool, "hold = true", "+RtRunTime = 10 * 6")
    assert pool.job(job)["RtRunTime"] == 60
    job = start(pool, "hold = true", "allowed_execute_duration = 77")
    assert pool.job(job)["RtRunTime"] == 77
    for value in ('"soon"', "-1", "0", "true", "NoSuchThing + 1", "error"):
        with pytest.raises(SubmitError, match="RtRunTime must be a number of seconds above 0"):
            start(pool, f"+RtRunTime = {value}")


def test_run_times_are_kept_to(pool: Pool) -> None:
    """A job that outlives its run time loses its slot, even one that will not end; it says why."""
    write_table(pool, {})
    jobs = [
        pool.submit([*lines, "+RtRunTime = 8", f"log = /home/alice/{number}.log"])
        for number, lines in enumerate([["arguments = 600"], STUBBORN])
    ]
    for number, job in enumerate(jobs):
        pool.wait_job(job, 0, "Running")
        began = pool.job(job)["JobCurrentStartDate"]
        log = pool.path(f"/home/alice/{number}.log")
        wait_for(
            "its user reads why", lambda log=log: "run time of 8 s is over" in log.read_text(), 40
        )
        wait_for("it begins anew", lambda job=job: pool.job(job).get("NumJobStarts", 0) > 0, 40)
        assert pool.job(job)["LastVacateTime"] - began <= 8 + 2 * 5 + 10
    pool.run(["condor_rm", "-all"])


def test_limits_of_htcondors_own(pool: Pool) -> None:
    """They end a job, by HTCondor itself or, where that does not keep to them, by our policy."""
    write_table(pool, {})
    limits = ("allowed_job_duration = 20", "allowed_execute_duration = 20")
    for job in [start(pool, limit) for limit in limits]:
        ad = pool.wait_job(job, 0, "Running")
        assert ad["RtRunTime"] == 20
        began = ad["JobCurrentStartDate"]
        wait_for("it loses its slot", lambda job=job: pool.job(job).get("LastVacateTime"), 90)
        assert pool.job(job)["LastVacateTime"] - began >= 20
    pool.run(["condor_rm", "-all"])


def test_run_times_that_remove(pool: Pool) -> None:
    """By the site's choice such a job is removed; a job that states no run time is left alone."""
    write_table(pool, {})
    pool.write({"/etc/condor/config.d/61-remove.conf": "RTSCHED_OVERRUNS = remove\n"})
    pool.run(["condor_reconfig"])
    try:
        unknown = start(pool, user="bob")
        over = start(pool, "+RtRunTime = 8")
        ad = pool.wait_job(over, 0, "Removed")
        assert ad["RemoveReason"] == "rtsched: run time of 8 s is over"
        assert pool.job(unknown)["JobStatus"] == 2
    finally:
        pool.path("/etc/condor/config.d/61-remove.conf").unlink()
        pool.run(["condor_reconfig"])


def test_what_the_daemon_may_do(pool: Pool) -> None:
    """It changes jobs of all users and sets factors; it is no administrator, nor are others."""
    job = start(pool, "hold = true")

    def may(*words: str, user: str = "rtsched") -> bool:
        return pool.run(words, user=user, check=False).returncode == 0

    assert edit(pool, f"{job}.0", JobPrio="3")
    assert not edit(pool, f"{job}.0", "bob", JobPrio="4")
    assert may("condor_release", f"{job}.0")
    assert may("condor_hold", f"{job}.0")
    for submitter in ("alice@testbed", "group_physics.bob@testbed", "Carol@testbed"):
        assert may("condor_userprio", "-setfactor", submitter, "2000")
        assert not may("condor_userprio", "-setfactor", submitter, "1", user="alice")
    for words in (
        ("condor_off", "-startd"),
        ("condor_reconfig",),
        ("condor_restart", "-schedd"),
        ("condor_drain", HOST),
        ("condor_userprio", "-setprio", "alice@testbed", "1"),
        ("condor_userprio", "-delete", "alice@testbed"),
        ("condor_config_val", "-schedd", "-rset", "MAX_JOBS_RUNNING = 0"),
    ):
        assert not may(*words), words
    assert may("condor_rm", f"{job}.0")


def test_dynamic_slots() -> None:
    """On a partitionable slot so many CPUs stay free as are kept, for new and for reused claims."""
    options = PoolOptions(
        partitionable=(4, 1), library=True, settings=REUSED, config=fragments() | QUICK
    )
    with Pool("forky", options, software=False) as pool:
        write_table(pool, {1: "100:2"})
        long = start(pool, "+RtRunTime = 300", "queue 4", seconds=20)
        for proc in (0, 1):
            pool.wait_job(long, proc, "Running")
        start(pool, "+RtRunTime = 300", "+RequestCpus = 0", user="dave")
        negotiated(pool)
        assert host(pool, f"{long}.2") == ""
        assert not pool.run(["condor_q", "dave", "-run", "-af", "ClusterId"]).stdout
        pool.run(["condor_rm", "dave"])
        short = start(pool, "+RtRunTime = 20", "queue 2", user="bob")
        pool.wait_job(short, 1, "Running")
        write_table(pool, {1: "200:4"})
        pool.wait_job(long, 1, "Completed")
        negotiated(pool)
        assert host(pool, f"{long}.2") == ""  # its user's claims were free
        promised = start(pool, "hold = true", user="carol")
        assert edit(pool, f"{promised}.0", RtAdmission='"rt-1"', RtNodeSet=f'"{slot(1)}"')
        pool.run(["condor_release", f"{promised}.0"])
        pool.wait_job(promised, 0, "Running")


def test_memory_is_kept_too() -> None:
    """Each CPU that is kept of a partitionable slot has its part of the memory."""
    options = PoolOptions(partitionable=(4, 1), library=True, config=fragments() | QUICK)
    with Pool("forky", options, software=False) as pool:
        write_table(pool, {1: "100:2"})
        greedy = start(pool, "+RtRunTime = 300", "request_memory = 1500")
        negotiated(pool)
        assert host(pool, f"{greedy}.0") == ""
        modest = start(pool, "+RtRunTime = 300", "request_memory = 1000", user="bob")
        pool.wait_job(modest, 0, "Running")


def test_memory_and_gpus_that_the_table_names() -> None:
    """Each is compared, whatever is left of the others; a job's memory counts rounded up."""
    options = PoolOptions(
        partitionable=(4, 1),
        library=True,
        settings={"MACHINE_RESOURCE_GPUs": "2"},
        config=fragments() | QUICK,
    )
    with Pool("forky", options, software=False) as pool:
        write_table(pool, {1: "100:1:1024:1"})
        long = "+RtRunTime = 300"
        graphics = start(pool, long, "request_gpus = 2")
        greedy = start(pool, long, "request_memory = 1030", user="bob")
        negotiated(pool)
        assert host(pool, f"{graphics}.0") == host(pool, f"{greedy}.0") == ""
        modest = start(pool, long, "request_memory = 1020", "request_gpus = 1", user="carol")
        pool.wait_job(modest, 0, "Running")
        little = start(pool, long, "request_memory = 1", user="dave")
        negotiated(pool)
        assert host(pool, f"{little}.0") == ""
        short = start(pool, "+RtRunTime = 20", "request_gpus = 1", user="dave")
        pool.wait_job(short, 0, "Running")
        done = pool.run(["condor_status", "-constraint", "PartitionableSlot", "-af", "State"])
        assert done.stdout.split() == ["Unclaimed"]


@pytest.mark.parametrize("named", ["", "/nowhere/librtsched_classad.so"])
def test_a_machine_without_the_library(named: str) -> None:
    """An execute machine that has no library lets start what negotiator and schedd find right.

    So does one that shares its configuration with the others, which name the library.
    """
    config = fragments() | QUICK | {"60-none.conf": f"STARTD.CLASSAD_USER_LIBS = {named}\n"}
    options = PoolOptions(fast=1, slow=1, library=True, settings=REUSED, config=config)
    with Pool("forky", options, software=False) as pool:
        write_table(pool, {1: "100:1"})
        jobs = start(pool, "+RtRunTime = 300", "queue 3", seconds=15)
        pool.wait_job(jobs, 0, "Running")
        assert host(pool, f"{jobs}.0") == slot(2)
        wait_host(pool, f"{jobs}.1", slot(2))
        assert host(pool, f"{jobs}.2") == ""
