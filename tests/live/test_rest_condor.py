"""Users of a pool ask from another host by HTCondor's tokens; forged ones gain nothing."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from promised_pool import EAGER, SITE, SITES_OWN, LivePool, within
from promising import QUICK, SUBMIT_CONF
from rest_server import (
    CLIENT,
    PYTHON,
    REST,
    HttpReply,
    add_client,
    prepare_rest,
    rtsched,
    start_rest,
)
from testbed import Pool, PoolOptions, Sandbox, fragments
from testbed.images import SUITES
from testbed.services import Services
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of

ALL = SITE.replace("[daemon]", '[daemon]\nrest_user = "rtsched-rest"')

SEND = """
import base64, hashlib, hmac, http.client, json, ssl, sys, threading, time
context = ssl.create_default_context(cafile="/etc/rtsched/rest.pem")

def answer(token, method="GET", target="/v1/promises", scheme="IDToken"):
    line = http.client.HTTPSConnection("192.0.2.1", 6821, timeout=30, context=context)
    try:
        line.request(method, target, headers={"Authorization": f"{scheme} {token}"})
        got = line.getresponse()
        return got.status, got.read().decode()
    finally:
        line.close()

def send(*words, **more):
    print(json.dumps(answer(*words, **more)))

def part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

def forged(sub="alice@testbed", jti="aa", key=b"k" * 64):
    now = int(time.time())
    said = {"sub": sub, "jti": jti, "iat": now, "exp": now + 60, "iss": "testbed"}
    said["scope"] = "condor:/READ"
    head = json.dumps({"alg": "HS256", "kid": "POOL"}).encode()
    text = f"{part(head)}.{part(json.dumps(said).encode())}"
    return f"{text}.{part(hmac.digest(key, text.encode(), hashlib.sha256))}"
"""

FLOOD = """
end, found = time.monotonic() + 10, {}

def flood(number):
    while time.monotonic() < end:
        try:
            key = answer(forged(jti=f"{number}-{time.monotonic()}"))[0]
        except (OSError, http.client.HTTPException) as error:
            key = type(error).__name__
        found[key] = found.get(key, 0) + 1

threads = [threading.Thread(target=flood, args=(each,)) for each in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(found))
"""


NAME_SERVER = """
import socket, dns.message, dns.rcode, dns.rrset
name, record = "_rtsched._tcp.testbed.", "0 0 6821 head.testbed."
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(("127.0.0.1", 53))
while True:
    data, peer = end.recvfrom(4096)
    query = dns.message.from_wire(data)
    answer = dns.message.make_response(query)
    if query.question[0].name.to_text() == name:
        answer.answer.append(dns.rrset.from_text(name, 60, "IN", "SRV", record))
    else:
        answer.set_rcode(dns.rcode.NXDOMAIN)
    end.sendto(answer.to_wire(), peer)
"""


@pytest.fixture(scope="module", params=SUITES)
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LivePool]:
    """Run a pool with daemon and REST server on the access point; no secret is in a log."""
    options = PoolOptions(
        fast=1, slow=1, library=True, config=fragments() | SITES_OWN, settings=EAGER
    )
    files = {SUBMIT_CONF: QUICK, "/etc/rtsched/rest.toml": REST.replace("time_limit = 2", "")}
    with Pool(request.param, options, files=files, rest=True) as pool:
        prepare_rest(pool, tmp_path_factory.mktemp("tls"))
        pool.start_daemon(ALL)
        start_rest(pool)
        yield LivePool(pool)
        assert pool.services.alive("rest")
        for name in ("rtsched", "rest"):
            log = pool.path(f"/var/log/testbed/{name}.log").read_text()
            assert "Traceback" not in log
            assert "eyJ" not in log
        assert not list(pool.path("/tmp").glob("rtsched-*"))  # noqa: S108


@pytest.fixture(scope="module")
def login(live: LivePool) -> Sandbox:
    """Start a host without daemons of HTCondor, where alice and bob have tokens of their own."""
    host = add_client(live.pool, "login")
    for user in ("alice", "bob"):
        own = live.pool.run(["condor_token_fetch"], user=user).stdout
        host.run(
            ["sh", "-c", "umask 077 && mkdir -p ~/.condor/tokens.d && cat >~/.condor/tokens.d/own"],
            user=user,
            input=own,
        )
    return host


@pytest.fixture
def firm(live: LivePool) -> Iterator[int]:
    """Return a job of alice's that has a promise."""
    job = live.promise(*within(600), seconds=300)
    live.wait_state(job, "firm")
    yield job
    live.cancel_all()


def limited(login: Sandbox, user: str = "alice") -> str:
    """Return a limited token that a user fetched on the login host."""
    words = ["condor_token_fetch", "-type", "COLLECTOR", "-authz", "READ", "-lifetime", "60"]
    return login.run(words, user=user).stdout.strip()


def signed(live: LivePool, *words: str) -> str:
    """Return a token with the pool's signature, as only root can make it."""
    return live.pool.run(["condor_token_create", *words]).stdout.strip()


def sent(login: Sandbox, script: str) -> list[HttpReply]:
    """Run a script with `send` and `forged` as bob on the login host; return the answers."""
    done = login.run([PYTHON, "-c", f"{SEND}\n{script}"], user="bob", timeout=60)
    return [HttpReply(*json.loads(line)) for line in done.stdout.splitlines()]


def test_commands_on_another_host(live: LivePool, login: Sandbox, firm: int) -> None:
    """status, feasible, explain and cancel answer each user what is the user's."""
    job = name_of(firm)
    status, report = rtsched(login, "status", "--json")
    assert (status, [each["job"] for each in report["promises"]]) == (0, [job])
    assert rtsched(login, "status", "--json", user="bob")[1]["promises"] == []
    status, report = rtsched(login, "feasible", "-N1", "-t5", "--json")
    assert (status, report["feasible"]) == (0, True)
    status, report = rtsched(login, "explain", job, "--live", "--json")
    assert (status, report["promise"]["standing"]) == (0, "firm")
    status, text = rtsched(login, "cancel", job, user="bob")
    assert (status, "no job" in text) == (2, True)
    status, text = rtsched(login, "cancel", job)
    assert (status, "is cancelled by its user" in text) == (0, True)
    assert rtsched(login, "board")[1].startswith("https://")


def test_who_has_no_token_on_another_host(live: LivePool, login: Sandbox) -> None:
    """Carol reads what she lacks; on the access point FS is enough."""
    status, text = rtsched(login, "status", user="carol")
    assert (status, "the collector does not know you" in text) == (3, True), text
    pool = live.pool
    pool.path("/etc/rtsched/client.toml").write_text(CLIENT)
    words = ["env", "RTSCHED_SERVER=https://192.0.2.1:6821", "rtsched", "status", "--json"]
    for user, everyone in (("carol", True), ("alice", False)):
        report = json.loads(pool.run(words, user=user).stdout)
        assert report["everyone"] is everyone


def test_tokens_that_are_refused(live: LivePool, login: Sandbox, firm: int) -> None:
    """Forged, expired, replayed and full ones, those of other domains, of root and of daemons."""
    job = name_of(firm)
    good = limited(login)
    other = limited(login)
    read = ("-authz", "READ", "-lifetime")
    expired = signed(live, "-identity", "alice@testbed", *read, "1")
    cases = [
        (good, 200, job),
        (good, 401, "used before"),
        (other[:-8] + "AAAAAAAA", 401, "does not accept the token"),
        ("", 401, "no token of HTCondor"),
        (live.pool.run(["condor_token_fetch"], user="alice").stdout.strip(), 401, "more than READ"),
        (signed(live, "-identity", "alice@testbed", "-authz", "READ"), 401, "no identifier"),
        (signed(live, "-identity", "alice@testbed", *read, "3600"), 401, "more than 300 s"),
        (
            signed(live, "-identity", "alice@testbed", "-authz", "WRITE", *read, "60"),
            401,
            "more than READ",
        ),
        (signed(live, "-identity", "alice@elsewhere", *read, "60"), 401, "'elsewhere'"),
        (signed(live, "-identity", "root@testbed", *read, "60"), 401, "not a user"),
        (signed(live, "-identity", "condor@testbed", *read, "60"), 401, "not a user"),
        (signed(live, "-identity", "condor_pool@testbed", *read, "60"), 401, "not a user"),
        (signed(live, "-identity", "nobodyhere@testbed", *read, "60"), 401, "does not exist"),
        (other, 200, job),
    ]
    script = [f"send({token!r})" for token, _, _ in cases]
    script += [
        "send(forged())",
        "send(forged('root@testbed'))",
        f"time.sleep(2); send({expired!r})",
        f"send({good!r}, scheme='Bearer')",
        f"send(forged(), 'DELETE', '/v1/promises/{job}')",
    ]
    wanted = [(status, text) for _, status, text in cases]
    wanted += [(401, "does not accept"), (401, "not a user"), (401, "has expired")]
    wanted += [(401, "use Munge or IDToken"), (401, "does not accept")]
    replies = sent(login, "\n".join(script))
    for reply, (status, text) in zip(replies, wanted, strict=True):
        assert (reply.status, text in reply.text) == (status, True), (reply, text)
    assert live.state(firm) == "firm"


def test_the_server_is_found_by_dns(live: LivePool, login: Sandbox) -> None:
    """By the record of the domain that resolv.conf names, with the certificate of that name."""
    services, before = Services(login), login.path("/etc/rtsched/client.toml").read_text()
    login.path("/etc/resolv.conf").write_text("nameserver 127.0.0.1\nsearch testbed\n")
    login.path("/etc/rtsched/client.toml").write_text('ca = "/etc/rtsched/rest.pem"\n')
    udp = Path(f"/proc/{login.pid}/net/udp")
    try:
        assert "no daemon answers" in rtsched(login, "status")[1]
        services.start(
            "dns", [PYTHON, "-c", NAME_SERVER], ready=lambda: ":0035 " in udp.read_text()
        )
        assert rtsched(login, "status")[0] in {0, 1}
        login.path("/etc/rtsched/client.toml").unlink()
        status, text = rtsched(login, "status")
        assert (status, "https://head.testbed:6821 does not answer: " in text) == (3, True), text
        assert "certificate" in text
    finally:
        services.stop("dns")
        login.path("/etc/rtsched/client.toml").write_text(before)


def test_the_header_of_the_documentation(live: LivePool, login: Sandbox) -> None:
    """As docs/rest.md makes it for curl, on the access point; nobody else may read the file."""
    page = (Path(__file__).parents[2] / "docs" / "rest.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("(umask 077; printf"))
    live.pool.run(["bash", "-c", line], user="bob")
    file = live.pool.path("/home/bob/.rtsched-header")
    assert file.stat().st_mode & 0o777 == 0o600
    name, _, value = file.read_text().rstrip("\n").partition(": ")
    scheme, _, token = value.partition(" ")
    assert (name, scheme) == ("Authorization", "IDToken")
    assert sent(login, f"send({token!r})")[0].status == 200


def test_a_token_is_not_good_after_a_restart(live: LivePool, login: Sandbox) -> None:
    """The server may have forgotten that it was used."""
    token = limited(login)
    assert sent(login, f"send({token!r})")[0].status == 200
    live.pool.services.stop("rest")
    time.sleep(1.1)  # a token's time is in whole seconds
    start_rest(live.pool)
    (reply,) = sent(login, f"send({token!r})")
    assert (reply.status, "made before this server started" in reply.text) == (401, True)
    assert rtsched(login, "status")[0] in {0, 1}


def test_a_flood_of_forged_tokens(live: LivePool, login: Sandbox) -> None:
    """Those of one host are checked two at a time; a user elsewhere is answered meanwhile."""
    flood = login.popen([PYTHON, "-c", SEND + FLOOD], user="bob")
    answered = 0
    live.pool.path("/etc/rtsched/client.toml").write_text(CLIENT)
    words = ["env", "RTSCHED_SERVER=https://head.testbed:6821", "rtsched", "status", "--json"]
    try:
        while flood.poll() is None:
            live.pool.run(words, user="alice")
            assert live.ask("status")["system"] == "condor"
            answered += 1
        text, errors = flood.communicate(timeout=60)
    finally:
        flood.kill()
        flood.communicate()
    found = json.loads(text.splitlines()[-1])
    assert answered >= 3, (found, errors)
    assert set(found) <= {"401", "429", "503"}, found
    assert found.get("429", 0) > 0, found


def test_the_collector_is_away(live: LivePool, login: Sandbox) -> None:
    """Commands on another host say so, and work again when it is there."""
    collector = live.pool.daemon("collector")
    token = limited(login)
    collector.stop()
    status, text = rtsched(login, "status")
    assert (status, "the collector does not answer" in text) == (3, True), text
    (reply,) = sent(login, f"send({token!r})")
    assert (reply.status, "the collector does not answer" in reply.text) == (503, True)
    live.pool.stop_master()
    live.pool.start_master()
    eventually(lambda: rtsched(login, "status")[0] in {0, 1}, 60, "alice is answered")
