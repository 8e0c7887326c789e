"""Users on a login host ask the daemon over TLS; who forges, replays or floods gains nothing."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from promising import BOUND, QUICK, SITE, SUBMIT_CONF, Live, Reply, in_minutes
from rest_server import (
    ADDRESS,
    PORT,
    PYTHON,
    REST,
    HttpReply,
    add_client,
    prepare_rest,
    rtsched,
    start_rest,
)
from testbed import Cluster, Sandbox, SlurmOptions
from testbed.services import Services
from testbed.waiting import eventually

ALL = SITE.replace('"carol"', '"carol", "rtsched-notices"') + 'rest_user = "rtsched-rest"\n'

SEND = """
import http.client, json, ssl, sys, time
from rtsched.adapters import credentials
from rtsched.rest.credential import payload_for

context = ssl.create_default_context(cafile="/etc/rtsched/rest.pem")

def send(method, target, body=b"", headers=(), credential=None):
    line = http.client.HTTPSConnection("192.0.2.1", 6821, timeout=30, context=context)
    given = dict(headers)
    if credential is not None:
        given["Authorization"] = "Munge " + credential
    try:
        line.request(method, target, body or None, given)
        answer = line.getresponse()
        status, text = answer.status, answer.read().decode()
    except ConnectionError:  # closed while the body was being sent, before its answer was read
        status, text = 0, "closed"
    line.close()
    print(json.dumps([status, text]))

def made(method, target, body=b"", ttl=60, socket=""):
    return credentials.encode(payload_for(method, target.encode(), body), ttl, socket)

STATUS = ("GET", "/v1/status")
"""

FLOOD = (
    SEND
    + """
import threading
how, seconds = sys.argv[1], float(sys.argv[2])
end, found = time.monotonic() + seconds, {}
replayed = made(*STATUS)

def flood():
    line = None
    while time.monotonic() < end:
        try:
            if line is None:
                line = http.client.HTTPSConnection("192.0.2.1", 6821, timeout=5, context=context)
            credential = {"none": "x", "replay": replayed}.get(how) or made(*STATUS)
            line.request(*STATUS, headers={"Authorization": "Munge " + credential})
            answer = line.getresponse()
            answer.read()
            key = answer.status
        except (OSError, http.client.HTTPException) as error:
            key, line = type(error).__name__, None
        found[key] = found.get(key, 0) + 1

threads = [threading.Thread(target=flood) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(found))
"""
)


BROWSE = """
import http.cookiejar, sys, urllib.error, urllib.request
jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
secure = urllib.request.HTTPSHandler(context=context)
browser = urllib.request.build_opener(jar, secure)

def open_page(url):
    try:
        with browser.open(url, timeout=30) as page:
            return print(json.dumps([page.status, page.read().decode()]))
    except urllib.error.HTTPError as error:
        print(json.dumps([error.code, error.read().decode()]))
"""
"""Python that opens pages as a browser does, with the cookies that it gets."""

MAILER = """#!/bin/sh
# A mail system: it puts what it reads beside what it was asked to do.
umask 077
{ echo "arguments: $*"; cat; } >> /var/lib/rtsched-notices/mailbox
"""
NOTICES = """
mail = ["/usr/local/sbin/sendmail", "-i"]
events = ["promised", "kept"]
mail_domain = "example.org"
digest = 0
every = 0.5
"""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Run six nodes, daemon and REST server on the head; what ran at the end ran all the time."""
    options = SlurmOptions(fast=2, slow=4, job_submit=("rtsched",))
    files = {SUBMIT_CONF: QUICK, "/etc/rtsched/rest.toml": REST}
    with Cluster("forky", options, files=files, rest=True) as cluster:
        prepare_rest(cluster, tmp_path_factory.mktemp("tls"))
        cluster.start_daemon(ALL)
        start_rest(cluster)
        names = ("rtsched", "slurmctld", "rest")
        yield Live(cluster)
        assert all(cluster.services.alive(name) for name in names)
        for name in ("rtsched", "rest"):
            reply = cluster.path(f"/var/log/testbed/{name}.log").read_text()
            assert "crashed" not in reply
            assert "Traceback" not in reply


@pytest.fixture(scope="module")
def login(live: Live) -> Sandbox:
    """Start a login host, which has the commands and a client.toml, and neither socket."""
    host = add_client(live.cluster, "login")
    host.path("/usr/local/bin/send.py").write_text(SEND)
    host.path("/usr/local/bin/flood.py").write_text(FLOOD)
    return host


def sent(login: Sandbox, script: str, user: str = "bob") -> list[HttpReply]:
    """Run a script with `send` and `made` on the login host; return the answers."""
    done = login.run([PYTHON, "-c", f"{SEND}\n{script}"], user=user, timeout=60)
    return [HttpReply(*json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def firm(live: Live) -> int:
    """Return a job of alice's that waits with a promise behind another one."""
    live.promise("-N6", "--time=2", in_minutes(30), script="sleep 60")
    job = live.promise("-N1", "--time=2", in_minutes(40))
    live.wait_state(job, "firm")
    return job


def test_commands_on_a_login_host(live: Live, login: Sandbox, firm: int) -> None:
    """They answer there what they answer on the head, to each user what is the user's."""
    status, report = rtsched(login, "status", "--json")
    assert (status, report["everyone"]) == (0, False)
    assert str(firm) in {each["job"] for each in report["promises"]}
    assert str(firm) in rtsched(login, "status")[1]
    status, report = rtsched(login, "feasible", "-N2", "-t5", "--json")
    assert (status, report["feasible"], len(report["nodes"])) == (0, True, 2)
    status, report = rtsched(login, "explain", str(firm), "--live", "--json")
    assert (status, report["promise"]["standing"]) == (0, "firm")
    assert len(rtsched(login, "explain", "--last", "2", "--json")[1]["verdicts"]) == 2
    assert rtsched(login, "status", "--json", user="bob")[1]["promises"] == []
    assert rtsched(login, "plan", user="bob")[0] == 2
    status, report = rtsched(login, "plan", "--json", user="carol")
    assert (status, str(firm) in {each["job"] for each in report["entries"]}) == (0, True)
    for words in (["explain", str(firm), "--live"], ["cancel", str(firm)]):
        status, text = rtsched(login, *words, user="bob")
        assert (status, "no job" in text) == (2, True)
    assert live.state(firm) == "firm"


def test_a_promise_is_cancelled(live: Live, login: Sandbox, firm: int) -> None:
    """From the login host, by its user; the job goes on, and its user reads that in its comment."""
    status, text = rtsched(login, "cancel", str(firm))
    assert (status, f"the promise of job {firm} is cancelled by its user" in text) == (0, True)
    assert live.state(firm) == "withdrawn"
    eventually(
        lambda: "the promise was cancelled" in live.cluster.job(firm).get("Comment", ""),
        20,
        "the job's comment says so",
    )
    live.polled()
    assert live.cluster.job(firm)["JobState"] in {"PENDING", "RUNNING"}
    assert f"rtsched_{firm}" not in live.reservations()
    assert live.state(firm) == "withdrawn"
    report = rtsched(login, "explain", str(firm), "--live", "--json")[1]
    assert report["promise"]["why"] == "cancelled by its user"
    assert report["verdicts"][0]["verdict"] == "cancel"
    assert rtsched(login, "cancel", str(firm))[0] == 2


def test_forged_and_replayed_credentials(live: Live, login: Sandbox, firm: int) -> None:
    """Only a credential of this cluster's munge counts, once, in time, for its own request."""
    replies = sent(
        login,
        f"""
good = made(*STATUS)
send(*STATUS, credential=good)
send(*STATUS, credential=good)
send(*STATUS)
send(*STATUS, credential="MUNGE:AwQFAAC" + "A" * 60 + ":")
other = made(*STATUS)
send(*STATUS, credential=other[:30] + ("A" if other[30] != "A" else "B") + other[31:])
send("GET", "/v1/plan", credential=made(*STATUS))
send("DELETE", "/v1/promises/{firm}", credential=made("GET", "/v1/promises/{firm}"))
send("DELETE", "/v1/promises/{firm}", credential=made("DELETE", "/v1/promises/{firm}"))
send("POST", "/v1/feasible", b'{{"nodes":2}}', credential=made("POST", "/v1/feasible", b"{{}}"))
send(*STATUS, headers={{"X-Remote-User": "alice"}}, credential=made(*STATUS))
send("POST", "/v1/feasible", b" " * 70000, credential=made("POST", "/v1/feasible"))
send("GET", "/v1/explain/{firm}", credential=made("GET", "/v1/explain/{firm}"))
late = made(*STATUS, ttl=1)
time.sleep(3)
send(*STATUS, credential=late)
""",
    )
    wanted = [200, 401, 401, 401, 401, 401, 401, 404, 401, 403, 413, 404, 401]
    assert [reply.status or 413 for reply in replies] == wanted, replies
    assert "Replayed" in replies[1].text
    assert "Expired" in replies[-1].text
    assert "made for another request" in replies[5].text
    assert "alice" not in "".join(reply.text for reply in replies)
    assert live.state(firm) == "firm"


def test_a_credential_of_the_munge_command(live: Live, login: Sandbox) -> None:
    """As docs/rest.md makes it for curl, with a body and without one."""
    page = (Path(__file__).parents[2] / "docs" / "rest.md").read_text()
    lines = page.partition("    sum=")[2].partition("    curl")[0]
    make = f'sum={lines}\nprintf %s "$credential"'
    body = '{"nodes": 4, "time_s": 1800}'
    for words in (("GET", "/v1/promises"), ("POST", "/v1/feasible", body)):
        made = login.run(["sh", "-c", make, "sh", *words], user="bob").stdout
        text = words[2] if len(words) > 2 else ""
        (reply,) = sent(
            login, f"send({words[0]!r}, {words[1]!r}, {text.encode()!r}, credential={made!r})"
        )
        assert reply.status == 200, reply


def test_another_clusters_munge(live: Live, login: Sandbox) -> None:
    """A user's own munged, with a key of her own, makes credentials that nobody believes."""
    directory = "/tmp/own"  # noqa: S108
    setup = f"""
    set -eu
    mkdir -m 755 {directory}
    dd if=/dev/urandom of={directory}/key bs=128 count=1 status=none
    chmod 600 {directory}/key
    exec munged --foreground --force --key-file={directory}/key --socket={directory}/socket \
        --pid-file={directory}/pid --seed-file={directory}/seed --log-file={directory}/log
    """
    services = Services(login)
    services.start(
        "own-munged",
        ["sh", "-c", setup],
        user="bob",
        ready=lambda: login.path(f"{directory}/socket").exists(),
    )
    try:
        for user in ("root", "bob"):
            (reply,) = sent(
                login,
                f"send(*STATUS, credential=made(*STATUS, socket='{directory}/socket'))",
                user=user,
            )
            assert reply.status == 401
    finally:
        services.stop("own-munged")


def test_slow_clients(live: Live, login: Sandbox) -> None:
    """A connection that sends half a request is closed after the time limit."""
    script = """
import socket
begun = time.monotonic()
head = b"POST /v1/feasible HTTP/1.1\\r\\nContent-Length: 100\\r\\n\\r\\n"
for text in (b"", b"GET /v1/st", head + b"{"):
    line = socket.create_connection(("192.0.2.1", 6821))
    line = context.wrap_socket(line, server_hostname="head")
    line.settimeout(20)
    line.sendall(text)
    try:
        got = line.recv(100)
    except OSError:
        got = b""
    print(json.dumps([int(time.monotonic() - begun < 20), got.decode()]))
"""
    assert [reply.status for reply in sent(login, script)] == [1, 1, 1]
    assert rtsched(login, "status")[0] in {0, 1}


def test_the_server_tells_that_the_daemon_is_away(live: Live, login: Sandbox) -> None:
    """And answers again when that is there again."""
    live.cluster.stop_daemon()
    status, text = rtsched(login, "status")
    assert (status, "no daemon answers" in text) == (3, True)
    live.cluster.restart_daemon()
    assert rtsched(login, "status")[0] in {0, 1}


def test_nobody_else_asks_for_users(live: Live) -> None:
    """The daemon closes the connection of who is not the server's user, be it root."""
    query = (
        "from rtsched.adapters.wire import frame_for; import socket\n"
        "line = socket.socket(socket.AF_UNIX); line.settimeout(10)\n"
        "line.connect('/run/rtsched/query.sock')\n"
        'line.sendall(frame_for(0, b\'{"ask":"plan"}\')); print(len(line.recv(100)))'
    )
    for user in ("bob", "rtsched", "root"):
        done = live.cluster.run([PYTHON, "-c", query], user=user, check=False)
        assert done.stdout.strip() in {"0", ""}, (user, done.stdout, done.stderr)
    assert live.cluster.run([PYTHON, "-c", query], user="rtsched-rest").stdout.strip() == "100"


@pytest.mark.parametrize("how", ["none", "replay", "own"])
def test_floods(live: Live, login: Sandbox, how: str) -> None:
    """While bob floods the server from the login host, alice's submissions are answered in time."""
    flood = login.popen([PYTHON, "/usr/local/bin/flood.py", how, "15"], user="bob")
    replies: list[Reply] = []
    try:
        time.sleep(2)
        while flood.poll() is None and len(replies) < 20:
            replies.append(live.submit("-N1", "--time=2", in_minutes(200)))
            assert live.ask("status")["system"] == "slurm"
            assert live.takes("squeue") < BOUND
        text, errors = flood.communicate(timeout=60)
    finally:
        flood.kill()
        flood.communicate()
    found = json.loads(text.splitlines()[-1])
    assert sum(found.values()) > 100, (found, errors)
    wanted = {"none": "401", "replay": "401", "own": "429"}[how]
    assert found.get(wanted, 0) > sum(found.values()) // 3, found
    late = sum(not each.promised for each in replies)
    assert late <= max(1, len(replies) // 10)
    assert live.slowest(replies) < BOUND
    eventually(lambda: rtsched(login, "status", user="alice")[0] in {0, 1}, 20, "alice is answered")


def test_the_board_on_a_login_host(live: Live, login: Sandbox, firm: int) -> None:
    """A link opens it once, over TLS; it shows the promise to its user, and answers the form."""
    link = rtsched(login, "board")[1].strip()
    assert link.startswith(f"https://{ADDRESS}:{PORT}/board/enter?ticket=")
    script = f"""{BROWSE}
where = {link!r}.partition("/enter")[0]
open_page({link!r})
open_page(where + "/when?nodes=2&time=5")
open_page(where + "/why?job={firm}")
open_page({link!r})
open_page("https://{ADDRESS}:{PORT}/v1/status")
"""
    page, when, why, again, status = sent(login, script)
    assert [page.status, when.status, why.status] == [200, 200, 200]
    assert f'data-job="{firm}"' in page.text
    assert "#SBATCH --nodes=2" in when.text
    assert f"Job {firm} (" in why.text
    assert (again.status, status.status) == (400, 401)
    other = rtsched(login, "board", user="bob")[1].strip()
    (page,) = sent(login, f"{BROWSE}\nopen_page({other!r})")
    assert page.status == 200
    assert f'data-job="{firm}"' not in page.text


def test_users_are_told(live: Live) -> None:
    """A mail when a job is promised something, and one when that was kept."""
    cluster, box = live.cluster, "/var/lib/rtsched-notices/mailbox"
    cluster.path("/usr/local/sbin/sendmail").write_text(MAILER)
    cluster.path("/usr/local/sbin/sendmail").chmod(0o755)
    cluster.path("/etc/rtsched/notices.toml").write_text(NOTICES)
    cluster.run(["useradd", "--system", "--shell", "/usr/sbin/nologin", "rtsched-notices"])
    cluster.run(["install", "-d", "-o", "rtsched-notices", "/var/lib/rtsched-notices"])
    cluster.services.start(
        "notices",
        ["setpriv", "--reuid=rtsched-notices", "--clear-groups", "rtsched", "notices"],
        ready=cluster.path("/var/lib/rtsched-notices/state.json").exists,
    )

    def told(text: str) -> None:
        eventually(lambda: text in cluster.path(box).read_text(), 60, f"a mail says {text!r}")

    cluster.path(box).touch()
    cluster.run(["chown", "rtsched-notices", box])
    try:
        job = live.promise("-N2", "--time=2", in_minutes(30), script="sleep 5")
        told(f"job {job} (")
        mail = cluster.path(box).read_text()
        assert "arguments: -i -- alice@example.org" in mail
        assert "is promised to end by" in mail
        live.wait_state(job, "kept", seconds=60)
        told("ended as promised")
    finally:
        cluster.services.stop("notices")
