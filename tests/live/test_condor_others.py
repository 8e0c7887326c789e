"""Jobs that ask rtsched for nothing, and promises that end, on a pool whose slots jobs share."""

import time
from collections.abc import Iterator

import pytest
from promised_pool import EAGER, SITE, LivePool, live_pool, within
from promising import DEFERRED
from testbed.images import SUITES
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of
from rtsched.adapters.condor.system import KEPT_S

MACHINE = {kind: {"NUM_CPUS": "8", "MEMORY": "8192"} for kind in ("fast", "slow")}
SHARED = SITE.replace("start_delay_s = 6", "start_delay_s = 12") + "\nshare_nodes = true\n"
NOTING = """\
#!/bin/sh
trap 'i=0; while [ $i -lt 10 ]; do sleep 1; i=$((i+1)); done; echo saved >> $1; exit 85' TERM
echo began >> $1
while :; do sleep 1; done
"""
"""Takes ten seconds to write its checkpoint."""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module", params=SUITES)
def live(request: pytest.FixtureRequest) -> Iterator[LivePool]:
    """Run two machines of 8 CPUs that jobs share, with library and daemon."""
    machines = {"startds": True, "hardware": MACHINE, "fast": 1, "slow": 1}
    settings = EAGER | {"CLAIM_WORKLIFE": "1200", "NEGOTIATOR_INTERVAL": "6"}
    options = {"suite": request.param, "settings": settings, "parallel": True}
    with live_pool(SHARED, **machines, **options) as up:
        up.pool.write({"/usr/local/bin/noting": NOTING})
        up.pool.run(["chmod", "755", "/usr/local/bin/noting"])
        yield up


@pytest.mark.parametrize(
    ("limit", "ends"),
    [
        ("allowed_job_duration = 3600", "saved"),
        ("allowed_execute_duration = 3600", "saved"),
        ("+RtRunTime = 3600", "began"),
        ("+RtRunTime = 3600\njob_max_vacate_time = 60", "saved"),
    ],
)
def test_who_is_vacated_has_its_time(live: LivePool, limit: str, ends: str) -> None:
    """The machine's own, or what the job says; one with a run time of rtsched's leaves sooner."""
    note = f"/home/alice/{limit.split()[0].strip('+')}.{len(limit)}"
    lines = ("executable = /usr/local/bin/noting", f"arguments = {note}", limit)
    job = live.submit(*lines, "transfer_executable = false").job
    path = live.pool.path(note)
    eventually(lambda: path.exists() and "began" in path.read_text(), 60)
    live.pool.run(["condor_vacate_job", name_of(job)], user="alice")
    eventually(lambda: live.ad(job).get("LastVacateTime"), 60)
    live.pool.run(["condor_hold", name_of(job)], user="alice")
    assert path.read_text().split()[1:2] == (["saved"] if ends == "saved" else [])


def test_who_changes_hosts_or_start(live: LivePool) -> None:
    """Any user may; a job that was promised something is another one then, and has no promise."""
    plain = live.submit("hold = true", "universe = parallel", "machine_count = 1").job
    for name in ("MinHosts", "MaxHosts", "DeferralTime"):
        live.pool.run(["condor_qedit", name_of(plain), name, "2"], user="alice")
        assert live.ad(plain)[name] == 2
    later = f"deferral_time = {time.time() + 600:.0f}"
    job = live.promise(later, *within(3000))
    live.wait_state(job, "firm")
    words = ["condor_qedit", name_of(job), "DeferralTime", f"{time.time() + 2000:.0f}"]
    live.pool.run(words, user="alice")
    live.wait_state(job, "void")
    eventually(lambda: "its start was postponed" in live.ad(job).get("RtWhy", ""), 20)


def test_who_makes_a_request_move(live: LivePool) -> None:
    """What has another value at the match is refused, or ends the promise of a job that waits."""
    for _ in range(2):
        full = live.promise("request_cpus = 8", *within(3000, 100), seconds=100)
        live.wait_status(full, "running")
    job = live.promise(*within(3000))
    live.wait_state(job, "firm")
    live.pool.run(["condor_qedit", name_of(job), "RequestCpus", "TARGET.Cpus"], user="alice")
    live.wait_state(job, "void")
    eventually(lambda: "until the job is matched" in live.ad(job).get("RtWhy", ""), 20)
    moving = "request_memory = ifThenElse(isUndefined(TARGET.Memory), 64, TARGET.Memory)"
    job = live.submit(moving, *within(3000)).job
    eventually(lambda: "until the job is matched" in live.ad(job).get("RtWhy", ""), 20)


def test_a_promised_job_that_loses_its_only_machine(live: LivePool) -> None:
    """It ran for longer than a start may take, and is drained: its promise is broken at once."""
    lines = ('requirements = Machine == "fast1.testbed"', "request_cpus = 8")
    job = live.promise(*lines, *within(1500, 200), seconds=150)
    live.wait_status(job, "running")
    eventually(lambda: time.time() - live.ad(job)["JobCurrentStartDate"] > 15, 60)
    live.pool.run(["condor_drain", "fast1.testbed"])
    try:
        live.wait_state(job, "broken", seconds=60)
        eventually(lambda: "can no longer be kept" in live.ad(job).get("RtWhy", ""), 20)
    finally:
        live.pool.run(["condor_drain", "-cancel", "fast1.testbed"])
    live.wait_usable(2)


def test_claims_are_used_again_beside_a_promise(live: LivePool) -> None:
    """Jobs without a run time that leave free what is kept go on without a new match."""
    later = f"deferral_time = {time.time() + 1500:.0f}"
    for machine in ("fast1.testbed", "slow1.testbed"):
        live.promise(f'requirements = Machine == "{machine}"', later, *within(3000, 100))
    eventually(lambda: len(live.kept_slots()) == 2, 30)
    many = live.submit("request_cpus = 2", "queue 40", user="bob", seconds=1).job
    eventually(lambda: not live.ads('Owner == "bob"'), 120, "all have run")
    log = live.pool.path("/var/log/condor/SchedLog").read_text(errors="replace")
    assert log.count(f"switching to job {many >> 20}.") >= 20


def test_jobs_that_are_being_matched_take_no_promised_place(live: LivePool) -> None:
    """A poll does not show them yet, so what is free is kept for a while, and then promised."""
    live.submit("request_cpus = 1", "queue 9", user="bob", seconds=60)
    reply = live.submit("request_cpus = 2", *within(70), seconds=3)
    assert DEFERRED in reply.text, reply.text
    live.wait_state(reply.job, "firm", "kept")
    made = dict(live.box.database("SELECT id, made_at FROM records"))
    assert made[reply.job] - live.ad(reply.job)["QDate"] >= KEPT_S
    eventually(lambda: len(live.ads('Owner == "bob" && JobStatus == 2')) == 9, 30, "bob's jobs run")
    live.wait_state(reply.job, "kept", seconds=60)
