"""Looking at real pools of both releases, as the daemon's user: slots, jobs, ends, and requests."""

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from remote import Remote
from testbed import Pool, PoolOptions
from testbed.waiting import wait_for

from rtsched.adapters.condor.completions import SLACK_S
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.queue_reader import FEWEST
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.live import CompletionStatus, Observation
from rtsched.errors import AdapterError
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind

MARGIN = 2 * 5 + 10 + 30 + 10
"""Two negotiation intervals of the testbed and 10 s, overrun, completing."""
SLEEP = ["executable = /bin/sleep", "arguments = 600", "request_memory = 64"]
POLLS, JOBS = 60, 20
PROCS = FEWEST + 200
HOSTILE = 'x\\ny; $(id) \\"z'

OTHER = {
    "DAEMON_LIST": "$(DAEMON_LIST), SCHEDD_OTHER",
    "SCHEDD_OTHER": "$(SCHEDD)",
    "SCHEDD_OTHER_ARGS": "-f -local-name other",
    "other.SCHEDD_NAME": "other",
    "other.SPOOL": "/var/lib/condor/spool/other",
    "other.SCHEDD_LOG": "$(LOG)/SchedLog.other",
    "other.SCHEDD_ADDRESS_FILE": "$(LOG)/.schedd_address.other",
    "other.SCHEDD_DAEMON_AD_FILE": "$(LOG)/.schedd_ad.other",
}
"""A second schedd on the same machine."""


@pytest.fixture(scope="module", params=["forky", "trixie"])
def static(request: pytest.FixtureRequest, testbed: None) -> Iterator[Pool]:
    """Run a pool of six static slots that takes parallel jobs."""
    settings = {"QUEUE_SUPER_USERS": "$(QUEUE_SUPER_USERS), dave"}
    options = PoolOptions(fast=2, slow=4, parallel=True, settings=settings)
    with Pool(request.param, options) as running:
        known = running.submit(["hold = true"], user="dave")  # 23.9 asks for that
        running.run(["condor_rm", str(known)])
        yield running


@pytest.fixture
def pool(static: Pool) -> Iterator[Pool]:
    """Leave no job behind."""
    yield static
    static.run(["condor_qedit", "-constraint", "true", "LeaveJobInQueue=false"], check=False)
    static.remove_all()


@pytest.fixture
def remote(pool: Pool) -> Iterator[Remote]:
    """Look as the daemon's user, who has no rights but to read."""
    with Remote(pool, CondorSettings()) as system:
        yield system


def until(
    remote: Remote, what: str, shown: Callable[[Observation], bool], timeout: float = 60
) -> Observation:
    """Look until something is shown; return that poll."""
    last: list[Observation] = []

    def reached() -> bool:
        last[:] = [remote.poll()]
        return shown(last[0])

    wait_for(what, reached, timeout)
    return last[0]


def row(observation: Observation, cluster: int, proc: int = 0) -> int:
    """Return the row of a running job; -1 if it does not run."""
    jobs = observation.running.id.tolist()
    job = job_id(cluster, proc)
    return jobs.index(job) if job in jobs else -1


def rows_of(observation: Observation, cluster: int, proc: int = 0) -> list[str]:
    """Return the names of the rows that a running job has."""
    names = observation.cluster.nodes.names("name")
    return [
        names[at]
        for at in observation.allocations.nodes_of(row(observation, cluster, proc)).tolist()
    ]


def runs(*clusters: int) -> Callable[[Observation], bool]:
    """Return whether these jobs run."""
    return lambda observation: all(row(observation, cluster) >= 0 for cluster in clusters)


def test_slots(pool: Pool, remote: Remote) -> None:
    """Names, sizes, speeds and classes of static slots; a poll of the same has the same version."""
    observation = remote.poll()
    nodes = observation.cluster.nodes
    assert nodes.texts("name") == pool.options.slots
    assert nodes.speed.tolist() == [2.0] * 2 + [1.0] * 4
    assert set(nodes.memory.tolist()) == {512 << 20}
    assert observation.cluster.usable.all()
    parts = observation.facts.parts
    fast = observation.cluster.partitions[parts.of("fast", 1, 0)]
    assert fast.tolist() == [True] * 2 + [False] * 4
    assert observation.facts.version.split(".")[0] in {"23", "25"}
    assert observation.facts.margin == MARGIN
    assert observation.facts.domain == "testbed"
    assert remote.poll().cluster.version == observation.cluster.version
    assert observation.problems == ()


def test_jobs_wait_run_and_end(pool: Pool, remote: Remote) -> None:
    """Each is shown where it is, with its limits; how it ended is in the history."""
    good = pool.submit(["executable = /bin/true", "+RtRunTime = 60"], user="alice")
    bad = pool.submit(["executable = /bin/false"], user="bob")
    long = pool.submit([*SLEEP, "+RtRunTime = 10 * 60", f'+RtWhy = "{HOSTILE}"'], user="alice")
    timed = pool.submit(SLEEP, user="bob")
    held = pool.submit([*SLEEP, "hold = true", "batch_name = night run"], user="carol")
    kept = pool.submit(["executable = /bin/true", "leave_in_queue = true"], user="alice")
    observation = until(
        remote,
        "two run, one is kept, two are gone",
        lambda observation: (
            runs(long, timed)(observation)
            and len(observation.running) == 2
            and observation.completions.job.tolist() == [job_id(kept, 0)]
            and observation.queued.labels() == [f"{held}.0"]
        ),
    )
    assert observation.queued.texts("name") == ["night run"]
    assert observation.marks.held.tolist() == [True, False, False]
    assert observation.marks.uid.tolist() == [2003, 2001, 2002]
    at = row(observation, long)
    assert observation.running.wall_time[at] == 600 + MARGIN
    entries = observation.allocations.entries
    assert 0 <= observation.time - entries.start[at] < 60
    assert entries.end[at] - entries.start[at] == 600 + observation.facts.tail
    assert math.isinf(entries.end[row(observation, timed)])
    assert len({*rows_of(observation, long), *rows_of(observation, timed)}) == 2
    names = observation.accounts.texts("name")
    users = [names[owner] for owner in observation.running.association.tolist()]
    assert users == ["alice@testbed", "bob@testbed"]
    pool.run(["condor_rm", f"{long}.0"], user="alice")
    over = "rtsched: run time of 60 s is over"
    code = (
        f"import htcondor2 as h\nh.Schedd().act(h.JobAction.Remove, ['{timed}.0'], ({over!r}, 0))"
    )
    pool.run(["/opt/rtsched/bin/python", "-c", code])
    until(remote, "both are gone", lambda observation: len(observation.running) == 0)
    asked = [job_id(cluster, 0) for cluster in (good, bad, long, timed, held, 99999)]
    ended = remote.find_completions(*asked)
    assert ended.job.tolist() == asked[:4]
    assert ended.status.tolist() == [
        CompletionStatus.COMPLETED,
        CompletionStatus.FAILED,
        CompletionStatus.FAILED,
        CompletionStatus.OWN_LIMIT,
    ]
    assert (ended.end >= ended.start).all()
    assert abs(ended.end - time.time()).max() < 120


def test_how_far_back_the_history_is_read(pool: Pool, remote: Remote) -> None:
    """All procs of a load are found, and nothing behind a job that ended before the promise."""
    quick = ["executable = /bin/true", "request_memory = 64"]
    early = pool.submit(quick)
    first = pool.wait_job(early, 0, "Completed")["EnteredCurrentStatus"]
    time.sleep(2.0)
    load = pool.submit([*quick, "+RtSigma = 1", "+RtCms = 1", "+RtCps = 1", "queue 3"])
    ends = [pool.wait_job(load, proc, "Completed")["EnteredCurrentStatus"] for proc in range(3)]
    jobs = job_id(early, 0), job_id(load, 0)
    wait_for("both are in the history", lambda: len(remote.find_completions(*jobs)) == 2, 60)
    found = remote.find_completions(*jobs, since=first + 1 + SLACK_S)
    assert (found.job.tolist(), found.end.tolist()) == ([jobs[1]], [max(ends)])
    assert len(remote.find_completions(*jobs, since=first)) == 2


def test_a_parallel_job_has_all_its_slots(pool: Pool, remote: Remote) -> None:
    """It is one job, running on as many rows as it has machines."""
    lines = ["universe = parallel", "machine_count = 3", "hold = true", *SLEEP]
    wide = pool.submit(lines, user="carol")
    assert remote.poll().queued.size.tolist() == [3]
    pool.run(["condor_release", str(wide)], user="carol")
    observation = until(remote, "it runs", runs(wide))
    assert len(rows_of(observation, wide)) == 3
    assert (observation.running.size.tolist(), observation.running.cores.tolist()) == ([3], [3])


def test_a_load_is_one_job(pool: Pool, remote: Remote) -> None:
    """A cluster with RtSigma waits, runs and ends as one, whatever its number of procs."""
    load = ["+RtSigma = 100.0", "+RtCms = 0.1", "+RtCps = 1.0", "queue 3"]
    wish = f"+RtDeadline = {int(time.time()) + 5000}"
    held = ["executable = /bin/sleep", "arguments = 5", "hold = true", wish, *load]
    cluster = pool.submit(held, user="alice")
    observation = remote.poll()
    assert observation.queued.labels() == [f"{cluster}.0"]
    assert observation.queued.kind.tolist() == [Kind.DIVISIBLE]
    assert observation.queued.size_max.tolist() == [3]
    pool.run(["condor_release", f"{cluster}.2"], user="alice")
    observation = until(
        remote,
        "a chunk runs in a slot",
        lambda seen: runs(cluster)(seen) and len(rows_of(seen, cluster)) == 1,
    )
    assert not len(observation.queued)
    until(remote, "it is over", lambda observation: not observation.allocations.indptr[-1])
    observation = remote.poll()
    assert runs(cluster)(observation), "the others have not run yet"
    pool.run(["condor_release", str(cluster)], user="alice")
    until(
        remote,
        "all is over",
        lambda observation: len(observation.running) + len(observation.queued) == 0,
    )
    ended = remote.find_completions(job_id(cluster, 0))
    assert ended.job.tolist() == [job_id(cluster, 0)]
    assert ended.status.tolist() == [CompletionStatus.COMPLETED]
    assert ended.end[0] - ended.start[0] >= 6


def test_ads_that_are_no_text_at_all(pool: Pool, remote: Remote) -> None:
    """A user's bytes and expressions without end hide nobody's job, her own included."""
    lines = [
        b"executable = /bin/sleep",
        b"hold = true",
        b'batch_name = "a\xff\xfe"',
        b"+RtDeadline = foo(bar)",
        b"+RtSigma = {1, 2}",
        b"request_memory = Nothing * 2",
        b"queue",
    ]
    pool.path("/home/bob/odd.sub").write_bytes(b"\n".join([*lines, b""]))
    pool.run(["condor_submit", "/home/bob/odd.sub"], user="bob")
    other = pool.submit([*SLEEP, "hold = true"], user="alice")
    queued = remote.poll().queued
    assert queued.labels()[-1] == f"{other}.0"
    assert queued.texts("user") == ["bob", "alice"]
    assert queued.deadline.tolist() == [math.inf] * 2


REQUESTS = """
import json, sys
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.pool import Pool
pool = Pool(CondorSettings())
job, gone = json.loads(sys.argv[1])
said = {
    "edit": pool.edit([job], "RtFoo", '"a"'),
    "edits": pool.edit([job, gone], "RtFoo", '"b"'),
    "hold": pool.act("Hold", job, "rtsched: wait"),
    "again": pool.act("Hold", job, "rtsched: wait"),
    "gone": pool.act("Hold", gone, "rtsched: wait"),
    "vacate": pool.act("Vacate", job, "rtsched: wait"),
    "reschedule": pool.reschedule(),
    "factors": pool.set_factors({"alice@testbed": 12.5, "new@testbed": 3.0}),
}
print(json.dumps(said))
"""


def requests(pool: Pool, user: str, *jobs: int) -> dict[str, Any]:
    """Return what becomes of requests of a user."""
    words = ["/opt/rtsched/bin/python", "-c", REQUESTS, json.dumps(jobs)]
    found: dict[str, Any] = json.loads(pool.run(words, user=user).stdout)
    return found


def test_requests(pool: Pool) -> None:
    """Who may is answered so, one by one; who may not is refused, and nothing is changed."""
    cluster = pool.submit([*SLEEP, "hold = true"], user="alice")
    job, gone = job_id(cluster, 0), job_id(99999, 0)
    said = requests(pool, "rtsched", job, gone)
    assert (said["edit"][0][0], said["hold"][0]) == ("refused", "refused")
    if pool.suite == "forky":
        assert [reply[0] for reply in said["edits"]] == ["refused", "failed"]
    assert {reply[0] for reply in said["factors"].values()} == {"refused"}
    assert "RtFoo" not in pool.job(cluster)
    pool.run(["condor_release", str(cluster)], user="alice")
    pool.wait_job(cluster, 0, "Running")
    said = requests(pool, "dave", job, gone)
    assert said["edit"] == [["done", ""]]
    last = "failed" if pool.suite == "forky" else "done"
    assert [reply[0] for reply in said["edits"]] == ["done", last]
    assert [said[name][0] for name in ("hold", "again", "gone", "vacate")] == [
        "done",
        "done",
        "failed",
        "failed",
    ]
    assert said["reschedule"][0] == "done"
    ad = pool.wait_job(cluster, 0, "Held")
    assert ad["RtFoo"] == "b"
    assert ad["HoldReason"].startswith("rtsched: wait")
    said = requests(pool, "root", job, gone)
    assert said["factors"] == {"alice@testbed": ["done", ""], "new@testbed": ["done", ""]}


STARTED = """
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.pool import Pool
pool = Pool(CondorSettings())
print(pool.schedds[0].started())
"""


def test_daemons_that_are_away(pool: Pool, remote: Remote) -> None:
    """A poll says which one does not answer, and finds it again at its new place."""
    before = remote.poll()
    pool.daemon("schedd").stop()
    with pytest.raises(AdapterError, match="schedd does not answer"):
        remote.poll()
    stopped = int(time.time())
    pool.daemon("schedd").start()
    last = remote.poll()
    done = pool.run(["/opt/rtsched/bin/python", "-c", STARTED], user="rtsched")
    assert stopped <= float(done.stdout) <= time.time()
    pool.daemon("negotiator").stop()
    observation = remote.poll()
    assert "negotiator" in observation.problems[0]
    assert observation.accounts.equals(last.accounts)
    pool.daemon("negotiator").start()
    pool.daemon("collector").stop()
    with pytest.raises(AdapterError, match="collector does not answer"):
        remote.poll()
    pool.daemon("collector").start()
    observation = remote.poll()
    assert observation.cluster.version == before.cluster.version
    assert observation.problems == ()
    pool.wait_ready()


def test_ten_thousand_waiting_jobs(pool: Pool, remote: Remote) -> None:
    """A look at them takes less than a second."""
    pool.submit([*SLEEP, "hold = true", "+RtRunTime = 600", "queue 10000"], user="bob", timeout=120)
    assert len(remote.poll().queued) == 10_000
    began = time.monotonic()
    remote.poll()
    assert time.monotonic() - began < 15.0  # on any machine, however busy


_LOST = """
import gc, sys
from rtsched.adapters.condor.system import CondorSystem
from rtsched.adapters.condor.pool import Pool
from rtsched.adapters.condor.schedd import Schedd
named = 0
def counting(method):
    def counted(self, *arguments):
        global named
        named += len(arguments[-1])
        return method(self, *arguments)
    return counted
Schedd._job_ads, Pool.slots = counting(Schedd._job_ads), counting(Pool.slots)
system = CondorSystem()
for line in sys.stdin:
    seen = len(system.poll().queued)
    gc.collect()
    print(seen, sys.getallocatedblocks() - named, flush=True)
"""


def test_nothing_is_kept_of_jobs_that_went(pool: Pool) -> None:
    """All that a poll leaves is what the bindings lose: the names of the attributes they query."""
    argv = ["/opt/rtsched/bin/python", "-c", _LOST]
    lines = [*SLEEP, "hold = true", "+RtRunTime = 600", f"+RtDeadline = {time.time() + 86400:.0f}"]
    kept = []
    with pool.popen(argv, user="rtsched", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(POLLS):
            cluster = pool.submit([*lines, f"queue {JOBS}"])
            process.stdin.write("\n")
            process.stdin.flush()
            seen, blocks = map(int, process.stdout.readline().split())
            assert seen == JOBS
            kept.append(blocks)
            pool.run(["condor_rm", str(cluster)])
        process.stdin.close()
    half = POLLS // 2  # caches fill in the first
    assert kept[-1] - kept[half] < JOBS * half, "less than one object a job"


_HANDED_OVER = """
import json, sys
from rtsched.adapters.condor.system import CondorSystem
from rtsched.adapters.condor.schedd import Schedd
handed_over, ask = [], Schedd._job_ads
def counting(self, *arguments):
    found = ask(self, *arguments)
    handed_over.append(len(found))
    return found
Schedd._job_ads = counting
system = CondorSystem()
for line in sys.stdin:
    handed_over.clear()
    queued = system.poll().queued
    rows = zip(queued.labels(), queued.wall_time.tolist(), queued.cores.tolist())
    odd = {label: [wall, cores] for label, wall, cores in rows if (wall, cores) != (660, 1)}
    print(json.dumps([len(queued), handed_over, odd]), flush=True)
"""


def test_of_a_large_cluster_only_changed_procs_are_read(pool: Pool) -> None:
    """Of 1,200 two are changed and one is removed; asked is who is there, and two are read.

    What a user asks of rtsched counts as changed though it comes out undefined; its details are
    asked for too, and it is then read again as it is.
    """
    cluster = pool.submit([*SLEEP, "hold = true", "+RtRunTime = 600", f"queue {PROCS}"], timeout=90)
    argv = ["/opt/rtsched/bin/python", "-c", _HANDED_OVER]
    with pool.popen(argv, user="rtsched", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def poll() -> list[Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            found: list[Any] = json.loads(process.stdout.readline())
            return found

        count, handed_over, odd = poll()
        assert (count, handed_over[-1], odd) == (PROCS, PROCS, {})
        assert poll() == [PROCS, [PROCS, 0], {}]
        pool.run(["condor_qedit", f"{cluster}.3", "RequestCpus", "2"], user="alice")
        pool.run(["condor_qedit", f"{cluster}.4", "RtRunTime", "900"], user="alice")
        pool.run(["condor_rm", f"{cluster}.5"])
        changed = {f"{cluster}.3": [600 + MARGIN, 2], f"{cluster}.4": [900 + MARGIN, 1]}
        assert poll() == [PROCS - 1, [PROCS - 1, 2], changed]
        pool.run(["condor_qedit", f"{cluster}.3", "RequestCpus", "1"], user="alice")
        pool.run(["condor_qedit", f"{cluster}.6", "RtDeadline", "no_such_thing"], user="alice")
        del changed[f"{cluster}.3"]
        assert poll() == [PROCS - 1, [PROCS - 1, 2, 0, 1], changed]
        process.stdin.close()


@pytest.fixture(scope="module")
def shared(testbed: None) -> Iterator[Pool]:
    """Run a pool of two partitionable slots and two schedds."""
    with Pool("forky", PoolOptions(partitionable=(4, 2), settings=OTHER)) as running:
        yield running


def test_dynamic_slots_and_those_of_others(shared: Pool) -> None:
    """Jobs keep their rows; another schedd's claims, and nobody else's, take rows away."""
    with Remote(shared, CondorSettings()) as remote:
        observation = remote.poll()
        assert len(observation.cluster) == 8
        assert observation.cluster.nodes.names("name")[:2] == (
            "slot1@head.testbed#0",
            "slot1@head.testbed#1",
        )
        wide = shared.submit([*SLEEP, "request_cpus = 3"], user="alice")
        small = shared.submit(SLEEP, user="bob")
        observation = until(remote, "both run", runs(wide, small))
        before = rows_of(observation, wide), rows_of(observation, small)
        assert [len(rows) for rows in before] == [3, 1]
        assert observation.cluster.usable.all()
        shared.submit(
            [*SLEEP, "request_cpus = 2"], user="carol", args=["-name", "other@head.testbed"]
        )
        observation = until(
            remote, "others have a slot", lambda observation: not observation.cluster.usable.all()
        )
        away = [
            observation.cluster.nodes.names("name")[at]
            for at in (~observation.cluster.usable).nonzero()[0]
        ]
        assert len(away) == 2
        assert not {*away} & {*before[0], *before[1]}
        shared.run(["condor_rm", str(wide)], user="alice")
        until(remote, "one is gone", lambda observation: len(observation.running) == 1)
        third = shared.submit([*SLEEP, "request_memory = 1100"], user="alice")
        observation = until(remote, "another runs", runs(third))
        assert rows_of(observation, small) == before[1]
        assert len(rows_of(observation, third)) == 3, "its memory is that of three rows"
        with Remote(shared, CondorSettings(schedd="other@head.testbed", unit_cpus=2)) as theirs:
            observation = theirs.poll()
            assert len(observation.running) == 1
            assert len(observation.cluster) == 4
            assert observation.running.texts("user") == ["carol"]


def test_a_machine_that_dies_and_comes_back() -> None:
    """Its row is down, and then up again, in the same place."""
    options = PoolOptions(fast=1, slow=2, startds=True)
    with Pool("forky", options) as running, Remote(running, CondorSettings()) as remote:
        names = remote.poll().cluster.nodes.texts("name")
        assert names == running.options.slots
        running.daemon("startd_slow1").stop()
        observation = until(
            remote, "it is down", lambda observation: not observation.cluster.usable.all(), 150
        )
        assert observation.cluster.nodes.texts("name") == names
        assert observation.cluster.nodes.state.tolist() == [
            NodeState.UP,
            NodeState.DOWN,
            NodeState.UP,
        ]
        remote.hand_over()
        again = remote.poll().cluster
        assert again.nodes.texts("name") == names, "a new process remembers it"
        assert again.nodes.state.tolist() == observation.cluster.nodes.state.tolist()
        assert again.version == observation.cluster.version
        running.daemon("startd_slow1").start()
        observation = until(
            remote, "it is back", lambda observation: bool(observation.cluster.usable.all())
        )
        assert observation.cluster.nodes.texts("name") == names
        running.run(["condor_drain", "slow2.testbed"])
        observation = until(
            remote, "it drains", lambda observation: not observation.cluster.usable.all()
        )
        assert observation.cluster.nodes.state.tolist() == [
            NodeState.UP,
            NodeState.UP,
            NodeState.DRAINED,
        ]
