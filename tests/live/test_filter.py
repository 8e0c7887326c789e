"""The submit filter in real controllers, on both Slurm releases, against a made-up daemon."""

import itertools
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from filter_server import ACCEPTED, Behaviour, FilterServer, answering, hanging, sending
from testbed import Cluster, SlurmOptions
from testbed.images import SUITES
from testbed.waiting import wait_for

from rtsched.adapters.wire import HEADER, MessageKind, Tag, encode

SOCKET = "/run/rtsched/submit.sock"
SETTINGS = "/etc/rtsched/submit.conf"
WISH = ("--deadline=now+2hours", "--time=5")
PAUSE_MS = 100
PROGRAM = Path(__file__).with_name("submit.c")


class Site:
    """A cluster whose controller runs the filter."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log = cluster.path("/var/log/slurm/slurmctld.log")
        self.cluster.path("/tmp/submit.c").write_text(PROGRAM.read_text())  # noqa: S108
        self.cluster.run(["gcc", "-o", "/usr/bin/submit", "/tmp/submit.c", "-lslurm"])  # noqa: S108

    def set(self, **settings: object) -> None:
        """Write the filter's settings, and wait until it has read them."""
        known = {"timeout_ms": 2000, "breaker_ms": PAUSE_MS} | settings
        text = "".join(f"{key} = {value}\n" for key, value in known.items())
        if self.cluster.path(SETTINGS).read_text() != text:
            self.cluster.configure_filter(text)

    def serve(self, behave: Behaviour) -> FilterServer:
        """Listen where the filter asks."""
        self.cluster.path(SOCKET).unlink(missing_ok=True)
        server = FilterServer(self.cluster.path(SOCKET), behave)
        self.cluster.path(SOCKET).chmod(0o666)
        return server

    def submit(self, *args: str, script: str = "true", user: str = "alice") -> dict[str, str]:
        """Submit a held-back job and return what the controller knows of it."""
        return self.job(self.cluster.sbatch([*args], user=user, script=script))

    def job(self, number: int) -> dict[str, str]:
        """Return what the controller knows of a job."""
        return {name: value.strip() for name, value in self.cluster.job(number).items()}

    def command(self, *words: str, user: str = "alice") -> str:
        """Run a command and return what its user reads, with the exit status."""
        done = self.cluster.run(list(words), user=user, check=False)
        return f"{done.returncode} {done.stdout}{done.stderr}"


def read(path: Path) -> str:
    """Return a file's text; none while there is no file."""
    return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Run four nodes; at the end the controller is the one that was started."""
    options = SlurmOptions(
        fast=2,
        slow=2,
        job_submit=("rtsched",),
        settings={"TaskProlog": "/usr/libexec/rtsched/task_prolog.sh"},
    )
    with Cluster(request.param, options, software=False) as cluster:
        running = cluster.run(["pidof", "slurmctld"]).stdout
        yield Site(cluster)
        assert cluster.run(["pidof", "slurmctld"]).stdout == running


@pytest.fixture(autouse=True)
def clean(site: Site) -> Iterator[None]:
    """Each test begins with the same settings and a closed breaker, without jobs or a socket."""
    site.set()
    with site.serve(answering(*ACCEPTED)):
        site.command("submit", "1", "deadline")
    site.cluster.path(SOCKET).unlink()
    yield
    time.sleep(1.5 * PAUSE_MS / 1000)
    site.cluster.path(SOCKET).unlink(missing_ok=True)
    site.cluster.run(["sh", "-c", "scancel --quiet -u alice; scancel --quiet -u rtsched"])


def test_jobs_without_a_wish_need_no_daemon(site: Site) -> None:
    """Without a socket, a job without deadline runs as if there were no filter."""
    job = site.cluster.sbatch(["--time=1"], script="true")
    site.cluster.wait_job(job)
    assert "rtsched" not in site.job(job).get("AdminComment", "")


def test_an_accepted_job_is_what_the_daemon_made_of_it(site: Site) -> None:
    """All that the daemon may set arrives, and the user reads its text."""
    answer = answering(
        *((Tag.VERDICT, 0), (Tag.MESSAGE, "rtsched: promised by 14:10")),
        *((Tag.MIN_NODES, 1), (Tag.MAX_NODES, 1), (Tag.TIME_LIMIT, 17), (Tag.FEATURES, "slow")),
        *((Tag.SITE_FACTOR, 4242), (Tag.ADMIN_COMMENT, "rtsched:token"), (Tag.SHARED, 0)),
        *((Tag.ENV, "RTSCHED_A=1"), (Tag.ENV, "RTSCHED_B=x y'$(id)")),
    )
    with site.serve(answer):
        reply = site.command("sbatch", "-N2", *WISH, "--output=/tmp/%j", "--wrap=env; sleep 60")
    assert "sbatch: rtsched: promised by 14:10" in reply
    number = int(re.findall(r"batch job (\d+)", reply)[0])
    site.cluster.wait_job(number, "RUNNING")
    job = site.job(number)
    assert job["NumNodes"] == "1"
    assert job["NodeList"].startswith("slow")
    assert job["TimeLimit"] == "00:17:00"
    assert job["AdminComment"] == "rtsched:token"
    assert site.cluster.has_whole_nodes(number)
    assert int(job["Priority"]) >= 4242
    output = site.cluster.path(f"/tmp/{number}")  # noqa: S108
    expected = {"RTSCHED_A=1", "RTSCHED_B=x y'$(id)"}
    wait_for("the job's output", lambda: expected <= set(read(output).splitlines()), 10)


def test_the_daemon_is_told_who_wants_what(site: Site) -> None:
    """A request holds the user's own options, and the uid that the controller has verified."""
    with site.serve(answering((Tag.VERDICT, 0))) as server:
        site.submit("-N2-3", *WISH, "--comment=rtsched:sigma=1", "--mem=100", "--nice=7")
    kind, fields = server.asked[0]
    assert kind == MessageKind.SUBMIT
    assert fields[Tag.SUBMIT_UID] == int(site.cluster.run(["id", "-u", "alice"]).stdout)
    assert abs(int(fields[Tag.DEADLINE]) - time.time() - 7200) < 60
    expected = {
        Tag.TIME_LIMIT: 5,
        Tag.MIN_NODES: 2,
        Tag.MAX_NODES: 3,
        Tag.PN_MIN_MEMORY: 100,
        Tag.NICE: 7,
        Tag.COMMENT: "rtsched:sigma=1",
        Tag.BATCH: 1,
    }
    assert {tag: fields.get(tag) for tag in expected} == expected


@pytest.mark.parametrize(
    "command", [("sbatch", "--wrap=true"), ("srun", "true"), ("salloc", "true")], ids=str
)
def test_users_read_what_the_daemon_says(site: Site, command: tuple[str, str]) -> None:
    """sbatch, srun and salloc print the text of an admission, and all lines of a rejection."""
    tool, work = command
    with site.serve(answering((Tag.VERDICT, 0), (Tag.MESSAGE, "rtsched: promised"))):
        reply = site.command(tool, *WISH, "-n1", work)
    assert reply.startswith("0 ")
    assert f"{tool}: rtsched: promised\n" in reply
    text = "rtsched: infeasible: 2 nodes are free\nrtsched: --deadline=14:32 would be accepted"
    with site.serve(answering((Tag.VERDICT, 1), (Tag.MESSAGE, text))):
        reply = site.command(tool, *WISH, "-n1", work)
    assert reply.startswith("1 ")
    for line in text.splitlines():
        assert f"{tool}: error: {line}\n" in reply


def test_arrays_and_parts_of_jobs_are_asked_about(site: Site) -> None:
    """An array is one question; a heterogeneous job is one for each part."""
    with site.serve(answering((Tag.VERDICT, 1))) as server:
        site.command("sbatch", "-a1-3", *WISH, "--wrap=true")
        site.command("sbatch", *WISH, "-n1", ":", "-n1", "--wrap=true")
    assert server.asked[0][1][Tag.ARRAY_INX] == "1-3"
    assert server.asked[1][1][Tag.HET_JOB_OFFSET] == 0


@pytest.mark.parametrize(
    ("forgery", "says"),
    [
        ("admin_comment=rtsched:abc", "permission denied"),
        ("reservation=rtsched_1", "keeps nodes free for a promised job"),
        ("reservation=mine,rtsched_1", "keeps nodes free for a promised job"),
        ("extra=rtsched:x", "longer than 256 KiB"),
    ],
)
def test_forgery_by_ones_own_program_is_refused(site: Site, forgery: str, says: str) -> None:
    """A user's program that fills Slurm's structures by itself gets no further than sbatch."""
    with site.serve(answering(*ACCEPTED)):
        reply = site.command("submit", "1", forgery, "x" * 100_000 if "extra" in forgery else "")
    assert says in reply
    assert "refused" in reply


def test_a_site_factor_of_ones_own_counts_nothing(site: Site) -> None:
    """Slurm itself takes neither site factor nor priority from a user."""
    reply = site.command("submit", "1", "site_factor=900000")
    job = site.job(int(re.findall(r"job (\d+)", reply)[0]))
    assert int(job["Priority"]) < 900_000


POLICIES = {
    "open": "accepted without a promise",
    "hold": "held until it has been evaluated",
    "closed": "no deadline can be promised now",
}
DAEMONS = {
    "down": None,
    "hung": hanging,
    "garbage": sending(b"HTTP/1.1 200 OK\r\n\r\n" * 100),
    "oversized": sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 2**31) + b"x" * 100_000),
    "broken": sending(encode(MessageKind.ANSWER, [(Tag.VERDICT, 0), (Tag.MIN_NODES, -7)])),
    "not ready": answering((Tag.MESSAGE, "starting\nup"), kind=MessageKind.ERROR),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_without_a_verdict_the_sites_policy_holds(site: Site, policy: str) -> None:
    """Whatever is wrong with the daemon, the job is let in, held or refused; its user is told."""
    site.set(on_failure=policy)
    command = ("sbatch", *WISH, "--wrap=sleep 60")
    for daemon, behave in DAEMONS.items():
        if behave:
            with site.serve(behave):
                reply = site.command(*command)
        else:
            reply = site.command(*command)
        assert POLICIES[policy] in reply, daemon
        assert reply.startswith("1 " if policy == "closed" else "0 "), daemon
        if policy != "closed":
            job = site.job(int(re.findall(r"batch job (\d+)", reply)[0]))
            mark = "parked" if policy == "hold" else "unjudged"
            assert job["AdminComment"] == f"rtsched:{mark}", daemon
            assert (job["Priority"] == "0") == (policy == "hold"), daemon
        time.sleep(1.5 * PAUSE_MS / 1000)


def test_a_parked_job_is_released_by_the_daemon_alone(site: Site) -> None:
    """Its user cannot release it, neither while the daemon is down nor when it says no."""
    site.set(on_failure="hold")
    job = site.submit(*WISH, script="sleep 60")["JobId"]
    assert site.command("scontrol", "release", job).startswith("1 ")
    with site.serve(answering((Tag.VERDICT, 1), (Tag.MESSAGE, "rtsched: not judged yet"))):
        time.sleep(1.5 * PAUSE_MS / 1000)
        assert "not judged yet" in site.command("scontrol", "release", job)
        assert site.command("scontrol", "release", job, user="rtsched").startswith("0 ")
    site.cluster.wait_job(int(job), "RUNNING")


def test_a_hung_daemon_costs_two_time_outs(site: Site) -> None:
    """Of 500 jobs two wait; afterwards, one probe in each pause, and one for which nobody waits."""
    site.set(timeout_ms=50, breaker_ms=60_000)
    with site.serve(hanging) as server:
        begin = time.monotonic()
        site.command("submit", "500", "deadline")
        seconds = time.monotonic() - begin
    site.cluster.run(["scontrol", "reconfigure"])  # or the next test would wait for a minute
    assert [kind for kind, _ in server.asked] == [MessageKind.SUBMIT] * 2 + [MessageKind.MODIFY]
    assert seconds < 10
    assert (
        "after 2 failures in a row the daemon is not contacted for 60000 ms" in site.log.read_text()
    )


def test_the_breaker_closes_when_the_daemon_is_back(site: Site) -> None:
    """It is asked again at once, and with its answer all questions go through."""
    site.set(breaker_ms=600_000)
    site.submit(*WISH)
    site.submit(*WISH)
    with site.serve(answering(*ACCEPTED)):
        assert "without a promise" in site.command("sbatch", *WISH, "--wrap=true")

        def closed() -> bool:
            return "promised" in site.command("sbatch", *WISH, "--wrap=true")

        wait_for("the breaker closes", closed, 10)
        for _ in range(3):
            assert "promised" in site.command("sbatch", *WISH, "--wrap=true")


def test_users_at_once_get_each_their_own_answer(site: Site) -> None:
    """Four clients submit at once: no token is given twice, and none goes to another's job."""
    numbers = itertools.count()
    given: dict[str, str] = {}

    def behave(
        connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        token = f"rtsched:{next(numbers)}"
        given[token] = str(fields[Tag.NAME])
        connection.sendall(
            encode(MessageKind.ANSWER, [(Tag.VERDICT, 0), (Tag.ADMIN_COMMENT, token)])
        )

    site.set(timeout_ms=5000)
    with site.serve(behave):
        clients = [
            threading.Thread(target=site.command, args=("submit", "50", "deadline", f"name=n{i}"))
            for i in range(4)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    jobs = site.cluster.run(["scontrol", "--oneliner", "show", "jobs"]).stdout
    found = re.findall(r"JobName=(n\d) .*AdminComment=(rtsched:\d+)", jobs)
    assert len(found) == 200
    assert {token: name for name, token in found} == given


def test_changes_are_guarded(site: Site) -> None:
    """The daemon decides on changes by users; its own and root's pass, and harmless ones too."""
    with site.serve(answering(*ACCEPTED)):
        job = site.submit(*WISH, "--begin=now+1hour")["JobId"]
    refusal = answering((Tag.VERDICT, 1), (Tag.MESSAGE, "rtsched: it was given a promise"))
    with site.serve(refusal) as server:
        for change in ("timelimit=1", "numnodes=2", "starttime=now", "features=fast", "qos=normal"):
            reply = site.command("scontrol", "update", f"job={job}", change)
            assert "rtsched: it was given a promise" in reply
            assert reply.startswith("1 ")
        assert site.command("scontrol", "hold", job).startswith("1 ")
        assert len(server.asked) == 6
        assert {kind for kind, _ in server.asked} == {MessageKind.MODIFY}
        assert {fields[Tag.JOB_ID_STR] for _, fields in server.asked} == {job}
        for user in ("rtsched", "root"):
            words = ("scontrol", "update", f"job={job}", "timelimit=4")
            assert site.command(*words, user=user).startswith("0 ")
        assert site.command("scontrol", "update", f"job={job}", "comment=x") == "0 "
        assert len(server.asked) == 6
    with site.serve(answering((Tag.VERDICT, 0), (Tag.MESSAGE, "no promise"))):
        assert site.command("scontrol", "update", f"job={job}", "timelimit=3") == "0 "


def test_what_is_the_daemons_cannot_be_had_by_a_change(site: Site) -> None:
    """Neither one of our reservations nor an admin comment comes by scontrol update."""
    job = site.submit("--begin=now+1hour", "--time=1")["JobId"]
    update = ("scontrol", "update", f"job={job}")
    assert "keeps nodes free" in site.command(*update, "reservationname=rtsched_1")
    assert site.command(*update, "admincomment=mine").startswith("1 ")
    assert site.command(*update, "admincomment=rtsched:x").startswith("1 ")


@pytest.mark.parametrize(("policy", "status"), [("open", "0"), ("hold", "1"), ("closed", "1")])
def test_changes_while_nobody_answers(site: Site, policy: str, status: str) -> None:
    """Without a list hold and closed keep what may have been promised; open lets it pass."""
    job = site.submit("--begin=now+1hour", "--time=5")["JobId"]
    site.set(on_failure=policy)
    assert site.command("scontrol", "update", f"job={job}", "timelimit=1").startswith(status)


@pytest.mark.parametrize("policy", ["hold", "closed"])
def test_what_is_not_on_the_daemons_list_may_be_changed(site: Site, policy: str) -> None:
    """While nobody answers, a job or a task of an array is guarded only if it was promised."""
    site.set(on_failure=policy)
    jobs = [
        site.submit("--begin=now+1hour", "--time=5", *more)["JobId"] for more in ((), ("-a1-3",))
    ]
    listed = site.cluster.path("/run/rtsched/promised_jobs")
    changes = [(task, "timelimit=1") for task in (*jobs, f"{jobs[1]}_2", f"{jobs[1]}_3")]
    changes.append((jobs[0], "numnodes=2"))  # Slurm changes the size of no array
    try:
        for promised in ([], jobs):
            listed.write_text("\n".join(["rtsched-promised-jobs 1 0", *promised, "end", ""]))
            status, first = "1 " if promised else "0 ", f"job={jobs[0]}"
            wait_for(
                "the list is read",
                lambda: site.command("scontrol", "hold", first).startswith(status),  # noqa: B023
                10,
            )
            for task, change in changes:
                reply = site.command("scontrol", "update", f"job={task}", change)
                assert reply.startswith(status)
                assert ("promised a deadline: it cannot be changed" in reply) == bool(promised)
    finally:
        listed.unlink()


@pytest.mark.parametrize(
    "text", ["\x01\x02\x1b[2J", "'\";|`$(touch /tmp/x)\\", "%s%n%n", "a\nb\nc", "\u202e\U0001f600"]
)
def test_hostile_text_arrives_as_it_is(site: Site, text: str) -> None:
    """Control characters, quotes and line ends go to the daemon unchanged and harm nobody."""
    with site.serve(answering(*ACCEPTED)) as server:
        site.submit(*WISH, f"--comment={text}", f"--job-name={text}")
    assert server.asked[0][1][Tag.COMMENT] == text


def test_settings_that_are_wrong_are_told_and_not_used(site: Site) -> None:
    """A mistake in the file is logged with its line; jobs are judged as before."""
    site.cluster.path(SETTINGS).write_text("timeout_ms = soon\n")
    time.sleep(1.2)
    with site.serve(answering(*ACCEPTED)):
        assert "promised" in site.command("sbatch", *WISH, "--wrap=true")
    assert f"{SETTINGS}:1: timeout_ms must be a whole number" in site.log.read_text()


def test_a_socket_of_somebody_else_is_not_trusted(site: Site) -> None:
    """What does not run as daemon_user or root is not told about jobs, and gives no promises."""
    site.cluster.path(SOCKET).unlink(missing_ok=True)
    server = FilterServer(site.cluster.path(SOCKET), answering(*ACCEPTED), owner=2001)
    site.cluster.path(SOCKET).chmod(0o666)
    with server:
        assert "without a promise" in site.command("sbatch", *WISH, "--wrap=true")
    assert server.asked == []


def test_a_promised_job_is_told_its_share(site: Site) -> None:
    """The record that the daemon writes into the comment comes as variables at the start."""
    with site.serve(answering((Tag.VERDICT, 0), (Tag.ENV, "RTSCHED_PROMISE=1"))):
        job = site.cluster.sbatch(
            ["-N2", "-H", *WISH, "--output=/tmp/%j", "--nodelist=fast[1-2]"],
            script="env; srun -l sh -c 'echo $RTSCHED_CHUNK $RTSCHED_FRACTION $RTSCHED_FROM'",
        )
        record = "rtsched:promise deadline=1800000000 nodes=2 fractions=0.75:0.25 on=fast1:fast2"
        update = ["scontrol", "update", f"job={job}", f"comment={record} it's mine; $(id)"]
        site.cluster.run(update, user="rtsched")
        site.cluster.run(["scontrol", "release", str(job)], user="rtsched")
        site.cluster.wait_job(job)
    told = site.cluster.path(f"/tmp/{job}").read_text().splitlines()  # noqa: S108
    assert "RTSCHED_DEADLINE=1800000000" in told
    assert "RTSCHED_ON=fast1:fast2" in told
    assert {"0: 0 0.75 0", "1: 1 0.25 0.75"} <= set(told)
