"""The ClassAd library in real daemons, on both HTCondor releases, against a made-up server."""

import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from filter_server import Behaviour, FilterServer, answering, hanging
from testbed import Pool, PoolOptions, SubmitError
from testbed.condor import HOST, fragments
from testbed.images import SUITES
from testbed.waiting import wait_for

from rtsched.adapters.condor.submission import ad_of
from rtsched.adapters.wire import MessageKind, Tag
from rtsched.logs.classads import Record

SOCKET = "/run/rtsched/submit.sock"
TABLE = "/run/rtsched/slots"
SETTINGS = "/etc/rtsched/submit.conf"
WISH = ["+RtDeadline = QDate + 7200", "+RtRunTime = 60"]
PAUSE_MS = 100
LATER = 2_000_000_000


class Site:
    """A pool whose daemons have loaded the library."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.users = 0

    def set(self, **settings: object) -> None:
        """Write the library's settings, and wait until the schedd has read them."""
        known = {"timeout_ms": 2000, "breaker_ms": PAUSE_MS} | settings
        text = "".join(f"{key} = {value}\n" for key, value in known.items())
        if self.pool.path(SETTINGS).read_text() == text:
            return
        before = self.log().count("rtsched: settings of")
        self.pool.path(SETTINGS).write_text(text)

        def read() -> bool:
            self.remove(self.pool.submit(["hold = true"]))
            return self.log().count("rtsched: settings of") > before

        wait_for("the library reads its settings again", read, 30)

    def log(self) -> str:
        """Return the schedd's log."""
        return self.pool.path("/var/log/condor/SchedLog").read_text(errors="replace")

    def serve(self, behave: Behaviour) -> FilterServer:
        """Listen where the library asks."""
        self.pool.path(SOCKET).unlink(missing_ok=True)
        server = FilterServer(self.pool.path(SOCKET), behave)
        self.pool.path(SOCKET).chmod(0o666)
        time.sleep(PAUSE_MS / 1000 + 0.01)  # an earlier test may have opened the breaker
        return server

    def submit(self, *lines: str, held: bool = True, **how: Any) -> tuple[int, str]:
        """Submit jobs that do not start; return their cluster and all that the user reads."""
        text = ["executable = /bin/sleep", "arguments = 1", *(["hold = true"] * held), *lines]
        text += [] if any(line.startswith("queue") for line in lines) else ["queue"]
        user, args = how.get("user", "alice"), how.get("args", ())
        done = self.pool.run(
            ["condor_submit", *args], user=user, input="\n".join([*text, ""]), check=False
        )
        reply = done.stdout + done.stderr
        found = re.search(r"submitted to cluster (\d+)", reply)
        if done.returncode or found is None:
            raise SubmitError(reply)
        return int(found[1]), reply

    def jobs(self, cluster: int) -> list[tuple[str, ...]]:
        """Return admission, verdict and message of each job in the queue."""
        names = ["RtToken", "RtVerdict", "RtMessage"]
        done = self.pool.run(["condor_q", str(cluster), "-af:,", *names])
        return [tuple(line.split(", ", 2)) for line in done.stdout.splitlines()]

    def remove(self, cluster: int) -> None:
        """Take a cluster out of the queue."""
        self.pool.run(["condor_rm", str(cluster)])


@pytest.fixture(scope="module", params=SUITES)
def running(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Run a pool with the library."""
    options = PoolOptions(fast=1, slow=1, library=True, config=fragments())
    with Pool(request.param, options) as pool:
        yield Site(pool)


@pytest.fixture
def site(running: Site) -> Site:
    """Return the pool with the library's settings as most tests want them."""
    running.set()
    running.pool.path(SOCKET).unlink(missing_ok=True)
    return running


def asked(server: FilterServer) -> list[Record]:
    """Return the ads that the library asked about."""
    assert all(kind == MessageKind.SUBMIT for kind, _ in server.asked)
    return [ad_of(str(fields[Tag.AD])) for _, fields in server.asked]


class Promising:
    """Answers each question with a token of its own, and refuses deadlines before 1970-01-02."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(
        self, connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        """Answer; what is no submission asks only whether anybody is there."""
        if kind != MessageKind.SUBMIT:
            answering((Tag.VERDICT, 0))(connection, kind, fields)
            return
        self.count += 1
        ad = ad_of(str(fields[Tag.AD]))
        if float(ad.get("rtdeadline") or 1e9) < 86400:
            answer = answering((Tag.VERDICT, 1), (Tag.MESSAGE, "rtsched: earliest 14:32"))
        else:
            token = (Tag.ADMIN_COMMENT, f"rtsched:t{self.count}")
            answer = answering((Tag.VERDICT, 0), (Tag.MESSAGE, f"rtsched: {self.count}"), token)
        answer(connection, kind, fields)


def test_an_accepted_job_is_marked_and_its_user_told(site: Site) -> None:
    """The daemon's three words are in the ad, and condor_submit shows the text."""
    with site.serve(Promising()) as server:
        cluster, reply = site.submit(*WISH)
    assert site.jobs(cluster) == [("t1", "accept", "rtsched: 1")]
    assert "rtsched: 1" in reply
    (ad,) = asked(server)
    assert (ad["owner"], ad["user"]) == ("alice", "alice@testbed")
    assert (ad["clusterid"], ad["procid"], ad["totalsubmitprocs"]) == (cluster, 0, 1)
    assert ad["rtdeadline"] == float(ad["qdate"] or 0) + 7200
    assert str(ad["globaljobid"]).startswith(f"{HOST}#{cluster}.0#")


def test_a_rejection_is_what_the_user_reads(site: Site) -> None:
    """condor_submit fails with the daemon's text, and nothing is in the queue."""
    with site.serve(Promising()), pytest.raises(SubmitError, match="ERROR: rtsched: earliest 14"):
        site.submit("+RtDeadline = 5")
    assert "5" not in site.pool.run(["condor_q", "-all", "-af", "RtDeadline"]).stdout.split()


def test_each_proc_is_a_question_and_the_text_is_said_once(site: Site) -> None:
    """Three jobs have three promises; the user is not told all of them at the prompt."""
    with site.serve(Promising()) as server:
        cluster, reply = site.submit(*WISH, "queue 3")
    assert [row[0] for row in site.jobs(cluster)] == ["t1", "t2", "t3"]
    assert [ad["procid"] for ad in asked(server)] == [0, 1, 2]
    assert len(re.findall(r"rtsched: \d", reply)) == 1


def test_one_bad_proc_turns_all_away(site: Site) -> None:
    """A rejected proc ends the transaction: the promises of the others lapse."""
    with (
        site.serve(Promising()) as server,
        pytest.raises(SubmitError, match="rtsched: earliest 14:32"),
    ):
        site.submit("+RtDeadline = $(d)", "+RtRunTime = 60", f"queue d in ({LATER} 5)")
    assert len(server.asked) == 2


def test_a_divisible_load_is_one_question(site: Site) -> None:
    """All procs of a cluster with RtSigma have the cluster's promise."""
    load = ["+RtSigma = 100", "+RtCms = 1", "+RtCps = 1", *WISH, "queue 5"]
    with site.serve(Promising()) as server:
        cluster, _ = site.submit(*load)
    assert [row[0] for row in site.jobs(cluster)] == ["t1"] * 5
    assert len(server.asked) == 1


def test_a_factory_is_one_question(site: Site) -> None:
    """A cluster with late materialisation is decided at submit; further jobs are judged later."""
    with site.serve(Promising()) as server:
        cluster, _ = site.submit(*WISH, "max_materialize = 2", "queue 4")
        wait_for("two are made", lambda: len(site.jobs(cluster)) == 2, 30)
        assert [row[:2] for row in site.jobs(cluster)] == [("t1", "accept"), ("parked", "accept")]
        site.pool.run(["condor_rm", f"{cluster}.0", f"{cluster}.1"])
        wait_for("the next are made", lambda: proc_ids(site, cluster) == ["2", "3"], 60)
    assert [row[:2] for row in site.jobs(cluster)] == [("parked", "accept")] * 2
    assert [ad.get("jobfactoryid") for ad in asked(server)] == [cluster]


def proc_ids(site: Site, cluster: int) -> list[str]:
    """Return the procs of a cluster that are in the queue."""
    return site.pool.run(["condor_q", str(cluster), "-af", "ProcId"]).stdout.split()


def test_a_factory_can_be_refused(site: Site) -> None:
    """The user of a refused factory reads why, and it makes nothing."""
    with (
        site.serve(Promising()) as server,
        pytest.raises(SubmitError, match="rtsched: earliest 14:32"),
    ):
        site.submit("+RtDeadline = 5", "max_materialize = 2", "queue 4")
    assert len(server.asked) == 1


def test_a_restarted_schedd_keeps_making_jobs(site: Site) -> None:
    """Nobody remembers the cluster and nobody can be asked: jobs are made, and parked."""
    with site.serve(Promising()):
        cluster, _ = site.submit(*WISH, "max_materialize = 1", "queue 3")
        wait_for("one is made", lambda: proc_ids(site, cluster) == ["0"], 30)
    site.set(on_failure="closed")
    site.pool.daemon("schedd").restart()
    site.pool.run(["condor_rm", f"{cluster}.0"])
    wait_for("the next is made", lambda: proc_ids(site, cluster) == ["1"], 60)
    assert [row[:2] for row in site.jobs(cluster)] == [("parked", "accept")]
    site.pool.run(["condor_rm", f"{cluster}.1"])
    wait_for("the last is made", lambda: proc_ids(site, cluster) == ["2"], 60)
    assert [row[:2] for row in site.jobs(cluster)] == [("parked", "accept")]


IN_THE_QUEUE = (
    "rtsched: the job is evaluated in the queue and does not start before; RtWhy then shows the "
    "result"
)
FORGED = [
    '+RtAdmission = "t0"',
    '+RtVerdict = "accept"',
    '+RtMessage = "promised"',
    f'+RtNodeSet = "slot1@{HOST}"',
]


@pytest.mark.parametrize("more", [[], ["max_materialize = 2", "queue 2"]])
def test_what_is_rtscheds_cannot_be_forged(site: Site, more: list[str]) -> None:
    """Attributes of ours in a submit file are gone, with a wish and without, in factories too."""
    for wish, marks in ((WISH, ("t1", "accept", "rtsched: 1")), ([], ("undefined",) * 3)):
        with site.serve(Promising()):
            cluster, _ = site.submit(*FORGED, *wish, *more)
            count = 2 if more else 1
            wait_for("all are made", lambda n=count, c=cluster: len(site.jobs(c)) == n, 30)
            later = [("parked", "accept", IN_THE_QUEUE)] if wish and more else []
            assert site.jobs(cluster) == ([marks] * count)[: count - len(later)] + later
        sets = site.pool.run(["condor_q", str(cluster), "-af", "RtNodeSet"]).stdout
        assert set(sets.split()) == {"undefined"}


def test_a_forged_factory_gains_nothing(site: Site) -> None:
    """Who says that his jobs were made by a factory is asked about like others."""
    lies = ['+JobMaterializeDigestFile = "/x"', "+JobMaterializeDate = 5", "+JobFactoryId = 1"]
    with site.serve(Promising()) as server:
        cluster, _ = site.submit(*FORGED, *lies, *WISH)
        assert site.jobs(cluster) == [("t1", "accept", "rtsched: 1")]
        with pytest.raises(SubmitError, match="earliest 14:32"):
            site.submit(*FORGED, *lies, "+RtDeadline = 5")
    assert len(server.asked) == 2


def test_a_promise_cannot_be_edited(site: Site) -> None:
    """Neither what rtsched wrote nor what was wished can be changed by its user."""
    with site.serve(Promising()):
        cluster, _ = site.submit(*WISH)
    for name, value in (("RtAdmission", '"t2"'), ("RtNodeSet", '"x"'), ("RtDeadline", "99")):
        words = ["condor_qedit", str(cluster), name, value]
        assert "Failed to set" in site.pool.run(words, user="alice", check=False).stderr
    assert site.jobs(cluster)[0][0] == "t1"


@pytest.mark.parametrize("args", [["-spool"], ["-remote", HOST], ["-name", HOST]])
def test_other_ways_to_submit_are_judged(site: Site, args: list[str]) -> None:
    """Spooled and remote submissions are promised and refused like others."""
    with site.serve(Promising()) as server:
        cluster, _ = site.submit(*WISH, args=args, held=False)
        assert site.jobs(cluster)[0][:2] == ("t1", "accept")
        with pytest.raises(SubmitError, match="earliest 14:32"):
            site.submit("+RtDeadline = 5", args=args, held=False)
    assert len(server.asked) == 2


def test_a_dry_run_asks_nobody(site: Site) -> None:
    """condor_submit -dry-run never reaches the schedd."""
    text = "\n".join(["executable = /bin/sleep", *WISH, "queue", ""])
    with site.serve(Promising()) as server:
        site.pool.run(["condor_submit", "-dry-run", "-"], user="alice", input=text, check=False)
    assert server.asked == []


BINDINGS = """
import htcondor2
schedd = htcondor2.Schedd()
job = {"executable": "/bin/sleep", "arguments": "1", "hold": "true", "My.RtRunTime": "60"}
result = schedd.submit(htcondor2.Submit(job | {"My.RtDeadline": "QDate + 7200"}), count=2)
print(result.cluster())
try:
    schedd.submit(htcondor2.Submit(job | {"My.RtDeadline": "5"}))
except Exception as error:
    print(error)
"""


def test_the_bindings_are_judged_too(site: Site) -> None:
    """A job that Python submits is promised, and a refusal raises with the daemon's text."""
    with site.serve(Promising()) as server:
        done = site.pool.run(["python", "-c", BINDINGS], user="alice")
    cluster, error = done.stdout.split("\n", 1)
    assert [row[0] for row in site.jobs(int(cluster))] == ["t1", "t2"]
    assert "rtsched: earliest 14:32" in error
    assert len(server.asked) == 3


def test_nodes_of_dagman_are_judged(site: Site) -> None:
    """A node's job says which workflow it is of; DAGMan's own job is let in unasked."""
    home = site.pool.path("/home/alice")
    (home / "node.sub").write_text("\n".join(["executable = /bin/true", *WISH, "queue", ""]))
    (home / "flow.dag").write_text("JOB A node.sub\n")
    with site.serve(Promising()) as server:
        done = site.pool.run(["condor_submit_dag", "-force", "flow.dag"], user="alice")
        flow = re.search(r"submitted to cluster (\d+)", done.stdout)
        assert flow is not None
        wait_for("its node is judged", lambda: bool(server.asked), 60)
    site.remove(int(flow[1]))
    (ad,) = asked(server)
    assert (ad["dagmanjobid"], ad["dagnodename"]) == (float(flow[1]), "A")


@pytest.mark.parametrize(
    ("policy", "marks"), [("open", ("unjudged", "accept")), ("hold", ("parked", "accept"))]
)
def test_without_the_daemon_the_sites_policy_holds(
    site: Site, policy: str, marks: Sequence[str]
) -> None:
    """Jobs get in unjudged or parked, and their user is told."""
    site.set(on_failure=policy)
    cluster, reply = site.submit(*WISH)
    assert site.jobs(cluster)[0][:2] == marks
    assert "the scheduler daemon does not answer" in reply
    assert "rtsched: the daemon could not be reached: no daemon listens" in site.log()


def test_without_the_daemon_a_site_may_refuse(site: Site) -> None:
    """A job with a wish is refused with the reason; one without, stating its run time, gets in."""
    site.set(on_failure="closed")
    with pytest.raises(SubmitError, match="the scheduler daemon does not answer"):
        site.submit(*WISH)
    cluster, _ = site.submit("+RtRunTime = 60")
    assert site.jobs(cluster) == [("undefined",) * 3]


def test_a_daemon_that_hangs_does_not_stop_the_schedd(site: Site) -> None:
    """Of 200 jobs the first waits for the time-out; the others share what becomes of it."""
    with site.serve(Promising()):
        site.submit(*WISH)  # failures of earlier tests are forgotten
    site.set(timeout_ms=50, breaker_ms=3000)
    with site.serve(hanging) as server:
        begin = time.monotonic()
        cluster, _ = site.submit(*WISH, "queue 200")
        seconds = time.monotonic() - begin
    assert {row[0] for row in site.jobs(cluster)} == {"unjudged"}
    assert [kind for kind, _ in server.asked].count(MessageKind.SUBMIT) == 1
    assert seconds < 2.5
    site.remove(cluster)
    time.sleep(3)  # until the breaker lets a question through


@pytest.mark.parametrize("load", [[], ["+RtSigma = 100", "+RtCms = 1", "+RtCps = 1"]])
def test_a_cluster_has_one_decision(site: Site, load: list[str]) -> None:
    """Whose first procs nobody judged: a daemon that answers again later judges no rest of it."""
    promising = Promising()

    def behave(
        connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        if len(server.asked) == 1:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            promising(connection, kind, fields)

    with site.serve(behave) as server:
        cluster, reply = site.submit(*WISH, *load, "queue 5")
        assert {row[0] for row in site.jobs(cluster)} == {"unjudged"}
        assert "accepted without a promise" in reply
        assert [kind for kind, _ in server.asked].count(MessageKind.SUBMIT) == 1
        time.sleep(PAUSE_MS / 1000 + 0.01)
        cluster, _ = site.submit(*WISH)
        assert site.jobs(cluster)[0][0] == "t1"


def test_the_schedd_asks_as_condor(site: Site) -> None:
    """The daemon can tell the schedd by its user from whoever else opens the socket."""
    peers = []

    def behave(
        connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        peers.append(struct.unpack("3i", packed)[1])
        Promising()(connection, kind, fields)

    with site.serve(behave):
        site.submit(*WISH)
    assert peers == [site.pool.box.user("condor").uid]


def test_users_expressions_cannot_ask(site: Site) -> None:
    """Whatever calls the function after a submit, in whatever program, nobody is asked."""
    calls = [
        'requirements = rtschedJudge("verdict") isnt 5',
        'periodic_release = rtschedJudge("admission") is 5',
        'rank = isError(rtschedJudge("message")) ? 1 : 0',
    ]
    with site.serve(Promising()) as server:
        wished, _ = site.submit(*WISH, *calls)
        plain, _ = site.submit(*calls)
        free, _ = site.submit(*calls, held=False)
        site.pool.run(["condor_q", "-af", 'rtschedJudge("verdict")', "RtDeadline"])
        site.pool.run(["condor_qedit", str(plain), "RtX", "5"], user="alice")
        site.pool.run(["condor_q", "-constraint", 'rtschedJudge("verdict") is "accept"'])
        site.pool.wait_job(free, 0, "Running", "Completed")
        site.pool.run(["condor_qedit", str(wished), "RtMine", "5"], user="alice")
        time.sleep(2)
        assert len(server.asked) == 1
    for cluster in (wished, plain):
        site.remove(cluster)


@pytest.fixture
def table(site: Site) -> Iterator[Path]:
    """Return the table's place, and leave none behind."""
    path = site.pool.path(TABLE)
    yield path
    path.unlink(missing_ok=True)


def write(path: Path, *lines: str) -> None:
    """Replace the table as the daemon does."""
    fresh = path.with_name("fresh")
    fresh.write_text("\n".join([f"rtsched-slots 1 {int(time.time())} 600", *lines, ""]))
    fresh.rename(path)


def test_a_delayed_slot_is_taken_last(site: Site, table: Path) -> None:
    """The negotiator prefers the slot with the smaller delay factor, as it stands in the table."""
    for slow, fast in (("slot1", "slot2"), ("slot2", "slot1")):
        write(table, f"{slow}@{HOST}\t9\t-", f"{fast}@{HOST}\t1\t-")
        time.sleep(1.1)
        ad = site.pool.wait_job(site.submit(held=False)[0])
        assert str(ad["LastRemoteHost"]).startswith(fast)


def test_a_kept_slot_takes_no_job_that_would_be_in_the_way(site: Site, table: Path) -> None:
    """A best-effort job starts where nothing is kept before its stated end."""
    soon = int(time.time()) + 300
    write(table, *(f"slot{number}@{HOST}\t1\t{soon}:1" for number in (1, 2)))
    time.sleep(1.1)
    cluster, _ = site.submit("+RtRunTime = 600", held=False)
    short, _ = site.submit("+RtRunTime = 60", held=False)
    site.pool.wait_job(short)
    assert site.pool.job(cluster)["JobStatus"] == 1
    write(table, *(f"slot{number}@{HOST}\t1\t-" for number in (1, 2)))
    site.pool.wait_job(cluster)


def test_many_submit_at_once(site: Site) -> None:
    """Users who submit at the same time get their own answers."""
    clusters: list[int] = []

    def submit(user: str) -> None:
        clusters.extend(site.submit(*WISH, "queue 2", user=user)[0] for _ in range(5))

    with site.serve(Promising()) as server:
        threads = [threading.Thread(target=submit, args=[user]) for user in ("alice", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [row for cluster in clusters for row in site.jobs(cluster)]
    assert len({row[0] for row in found}) == len(found) == 20
    assert {(ad["clusterid"], ad["procid"]) for ad in asked(server)} == {
        (cluster, proc) for cluster in clusters for proc in range(2)
    }


def test_a_missing_library_stops_nobody(running: Site) -> None:
    """The schedd starts without it; jobs get in unmarked, and the log names the file."""
    pool, path = running.pool, "/usr/lib/rtsched/librtsched_classad.so"
    os.rename(pool.path(path), pool.path(path + ".away"))
    try:
        pool.daemon("schedd").restart()
        cluster, _ = running.submit(*FORGED, *WISH)
        assert running.jobs(cluster) == [("undefined",) * 3]
        assert "librtsched_classad.so" in running.log()
    finally:
        os.rename(pool.path(path + ".away"), pool.path(path))
        pool.daemon("schedd").restart()
