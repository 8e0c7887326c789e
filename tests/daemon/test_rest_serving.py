"""The server itself: TLS, local users, slow clients; and how clients find it."""

import asyncio
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import msgspec
import pytest
from rest_client import JOB, forged
from running import ANN, Running

from rtsched import __version__
from rtsched.daemon import questions
from rtsched.errors import AdapterError, ConfigError, ProtocolError, RtschedError
from rtsched.rest import app, client, serving
from rtsched.rest.client import ClientSettings, ask_server, named_server, request_of, server_for
from rtsched.rest.settings import RestSettings


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for localhost, which signs itself."""
    directory = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    words += ["-nodes", "-days", "2", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(words, cwd=directory, check=True, capture_output=True)
    return directory


def credential(uid: int) -> Callable[[bytes, int], str]:
    """Return a maker of credentials that `forged` reads."""
    return lambda payload, _: f"{uid} {payload.hex()}"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(
    with_promise: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Give what runs a server with some settings, and what a client does in a thread."""
    make = app.create_app
    monkeypatch.setattr(serving, "create_app", lambda *args: make(*args, decode=forged))

    def run(course: Callable[[RestSettings], None], **settings: Any) -> None:
        given = {"port": free_port(), "socket": str(tmp_path / "rest.sock"), **settings}
        chosen = RestSettings(query_socket=str(with_promise.users.path), **given)

        async def whole() -> None:
            stop, ready = asyncio.Event(), asyncio.Event()
            server = asyncio.create_task(
                serving.serve(chosen, serving.listeners(chosen), ready.set, stop)
            )
            await ready.wait()
            try:
                await asyncio.to_thread(course, chosen)
            finally:
                stop.set()
                await server

        asyncio.run(whole())

    return run


def said(line: socket.socket) -> bytes:
    """Return all that comes until the other end closes."""
    got = b""
    try:
        while part := line.recv(65536):
            got += part
    except (ConnectionError, ssl.SSLError):
        pass
    return got


def local_line(settings: RestSettings) -> socket.socket:
    """Return a connection to the Unix socket."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(30.0)
    line.connect(settings.socket)
    return line


def test_the_client_asks_over_tls(served: Callable[..., None], certificate: Path) -> None:
    """Every question that users' commands ask; another user gets none of it."""
    tls = {"certificate": str(certificate / "cert.pem"), "key": str(certificate / "key.pem")}

    def course(settings: RestSettings) -> None:
        server = ClientSettings(f"https://localhost:{settings.port}", tls["certificate"])

        def ask(question: questions.Question, uid: int = ANN) -> Any:
            return ask_server(question, server, encode=credential(uid))

        assert [p.job for p in ask(questions.Status()).promises] == [str(JOB)]
        assert ask(questions.Status(), 1002).promises == ()
        assert "rtsched_" in ask(questions.Status(metrics=True), 0).metrics
        assert ask(questions.Explain(str(JOB), 2)).promise.state == "firm"
        assert len(ask(questions.Explain("", 2)).verdicts) == 1
        assert ask(questions.Feasible(nodes=1, time_s=60.0)).feasible
        assert len(ask(questions.NodeList()).nodes) == 4
        assert len(ask(questions.Plan(), 0).entries) == 1
        with pytest.raises(RtschedError, match="only admins"):
            ask(questions.Plan())
        with pytest.raises(RtschedError, match="no job '4711' of yours"):
            ask(questions.Cancel(str(JOB)), 1002)
        with pytest.raises(AdapterError, match="Invalid credential"):
            ask_server(questions.Status(), server, encode=lambda *_: "x")
        untrusted = ClientSettings(server.server)
        with pytest.raises(AdapterError, match=r"does not answer: .*certificate"):
            ask_server(questions.Status(), untrusted, encode=credential(ANN))
        plain = ClientSettings(f"http://127.0.0.1:{settings.port}")
        with pytest.raises(AdapterError, match="does not answer"):
            ask_server(questions.Status(), plain, encode=credential(ANN))

    served(course, **tls)


def test_a_local_user_is_known_by_the_kernel(served: Callable[..., None]) -> None:
    """Who asks on the Unix socket needs no credential, and cannot name another user."""

    def course(settings: RestSettings) -> None:
        for extra, status in ((b"", b"200"), (b"X-Remote-User: ann\r\n", b"403")):
            with closing(local_line(settings)) as line:
                line.sendall(
                    b"GET /v1/plan HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + extra + b"\r\n"
                )
                answer = said(line)
            wanted = status if os.getuid() == 0 else b"403"
            assert answer.split()[1] == wanted, answer
            assert b"rtsched-version: " + __version__.encode() in answer.lower()
        assert oct(os.stat(settings.socket).st_mode)[-3:] == "666"

    served(course)


def test_slow_and_malformed_clients_are_cut_off(served: Callable[..., None]) -> None:
    """Half a request, half a body, garbage, headers without end: none of them stays."""
    body = b"POST /v1/feasible HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"

    def course(settings: RestSettings) -> None:
        begun = time.monotonic()
        for text, status in (
            (b"", b""),
            (b"GET /v1/st", b""),
            (body, b""),
            (b"\x16\x03\x01 garbage\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 40_000, b"400"),
            (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        ):
            with closing(local_line(settings)) as line:
                line.sendall(text)
                answer = said(line)
                assert answer.split()[1:2] == ([status] if status else []), (text[:20], answer)
        assert time.monotonic() - begun < 20.0

    served(course, time_limit=0.5)


def test_a_body_that_is_too_long_is_refused_at_once(served: Callable[..., None]) -> None:
    """By its length where that is said, and by what has come where it is not."""
    head = b"POST /v1/feasible HTTP/1.1\r\nHost: x\r\n"
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"

    def course(settings: RestSettings) -> None:
        for text in (
            head + b"Content-Length: 99999999999999999999999\r\n\r\n",
            head + b"Content-Length: 70000\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3,
        ):
            with closing(local_line(settings)) as line:
                line.sendall(text)
                answer = said(line)
                assert b" 413 " in answer or b" 400 " in answer, (text[:90], answer)

    served(course)


def test_connections_are_limited(served: Callable[..., None]) -> None:
    """A peer has a number of them; those beyond are closed, and places come back."""

    def course(settings: RestSettings) -> None:
        lines = [local_line(settings) for _ in range(3)]
        time.sleep(0.2)
        with closing(local_line(settings)) as line:
            assert said(line) == b""
        for line in lines:
            line.close()
        time.sleep(0.2)
        with closing(local_line(settings)) as line:
            line.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b" 200 " in said(line)

    served(course, connections_per_peer=3)


def test_one_server_at_a_time(served: Callable[..., None]) -> None:
    """A second one does not take socket or port over."""

    def course(settings: RestSettings) -> None:
        for other in (
            msgspec.structs.replace(settings, socket=""),
            msgspec.structs.replace(settings, port=0),
        ):
            with pytest.raises(AdapterError, match=r"cannot listen|another server"):
                serving.listeners(other)

    served(course)


def test_a_wrong_certificate_is_named(tmp_path: Path) -> None:
    """With both files."""
    settings = RestSettings(certificate="/no/c.pem", key="/no/k.pem")
    with pytest.raises(ConfigError, match=r"/no/c.pem and /no/k.pem: No such file"):
        serving.tls_of(settings)


def test_where_the_server_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chosen socket first, then the environment, the default socket, the file."""
    file, default = tmp_path / "client.toml", tmp_path / "query.sock"
    path = str(default)
    monkeypatch.setattr(client, "SOCKET", path)
    monkeypatch.delenv("RTSCHED_SERVER", raising=False)
    assert server_for(path, file) is None
    file.write_text('server = "https://head:6821"\nca = "/ca.pem"\n')
    assert server_for(path, file) == ClientSettings("https://head:6821", "/ca.pem")
    assert server_for("/other.sock", file) is None
    monkeypatch.setenv("RTSCHED_SERVER", "https://other:1")
    assert server_for(path, file) == ClientSettings("https://other:1", "/ca.pem")
    default.touch()
    assert server_for(path, file) == ClientSettings("https://other:1", "/ca.pem")
    monkeypatch.delenv("RTSCHED_SERVER")
    assert server_for(path, file) is None
    default.unlink()
    file.write_text('sever = "https://head:6821"\n')
    with pytest.raises(ConfigError, match="did you mean 'server'"):
        server_for(path, file)


@pytest.mark.parametrize("url", ["head:6821", "ftp://head", "https://", "https://h/x", "http://h"])
def test_a_wrong_url_is_named(url: str) -> None:
    """It must be https, but on this host."""
    with pytest.raises(ConfigError, match=r"server: "):
        ask_server(questions.Status(), ClientSettings(url), encode=credential(ANN))


def test_another_server_is_asked(
    served: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first one is away, or its daemon on standby; else why not is told of each."""

    def course(settings: RestSettings) -> None:
        away, there = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{settings.port}"
        both = ClientSettings(f"{away} {there}")
        assert ask_server(questions.Status(), both, encode=credential(ANN)).promises
        neither = ClientSettings(f"{away} {away}")
        with pytest.raises(AdapterError, match=r"does not answer: .*; .*does not answer: "):
            ask_server(questions.Status(), neither, encode=credential(ANN))

    served(course)
    standby = b'{"error":"this daemon is on standby: the active daemon is on backup"}'
    answers = iter([(503, __version__, standby), (200, __version__, b'{"now":1.0,"nodes":[]}')])
    monkeypatch.setattr(client, "_exchanged", lambda *_: next(answers))
    both = ClientSettings("https://head https://backup")
    assert ask_server(questions.NodeList(), both, encode=credential(ANN)).now == 1.0


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        (questions.Status(), "GET /v1/status"),
        (questions.Status(True), "GET /v1/status?metrics=true"),
        (questions.Explain("", 0), "GET /v1/verdicts?last=0"),
        (questions.Feasible(2), "POST /v1/feasible"),
        (questions.When(), "GET /v1/when"),
        (questions.When("12.0"), "GET /v1/when/12.0"),
        (questions.When(request=questions.Feasible(2)), "POST /v1/when"),
        (questions.Cancel("7"), "DELETE /v1/promises/7"),
    ],
)
def test_a_question_is_asked_by_the_first_route_that_has_its_fields(
    question: questions.Question, asks: str
) -> None:
    """A body is the question, or the field that the route names."""
    method, target, body = request_of(question)
    assert f"{method} {target}" == asks
    if method == "POST":
        assert msgspec.json.decode(body, type=questions.Feasible) == questions.Feasible(2)


def test_what_the_server_does_not_answer_has_no_request() -> None:
    """Names of jobs are quoted; what is none is not sent."""
    with pytest.raises(RtschedError, match="answers no such question"):
        request_of(questions.Closed(0.0))
    assert request_of(questions.Explain("4711_[1-3]", 5)).target == (
        "/v1/explain/4711_%5B1-3%5D?last=5"
    )
    for name in ("", "../plan"):
        with pytest.raises(RtschedError, match="not the name of a job"):
            request_of(questions.Cancel(name))


@pytest.mark.parametrize(
    ("status", "version", "body", "kind", "says"),
    [
        (200, "9.9", b'{"now": "soon"}', ProtocolError, "the server runs rtsched 9.9, this is"),
        (404, "0.0.1", b'{"error":"there is no /v1/x here"}', RtschedError, "use the same release"),
        (400, "9.9", b'{"error":"unknown field"}', RtschedError, "use the same release"),
        (404, "", b"<html>", RtschedError, "this is not a server of rtsched"),
        (200, "", b"<html>", ProtocolError, "this is not a server of rtsched"),
        (404, "9.9", b'{"error":"no job \'1\' of yours"}', RtschedError, "of yours$"),
        (429, __version__, b'{"error":"too many requests"}', AdapterError, "too many"),
        (503, __version__, b'{"error":"no daemon answers"}', AdapterError, "no daemon"),
    ],
)
def test_a_server_of_another_release_is_told(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    version: str,
    body: bytes,
    kind: type[Exception],
    says: str,
) -> None:
    """A newer or older one, or none of ours: one sentence says so."""
    monkeypatch.setattr(client, "_exchanged", lambda *_: (status, version, body))
    with pytest.raises(kind, match=says):
        ask_server(questions.Status(), ClientSettings("https://h"), encode=credential(ANN))


def test_how_a_user_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By munge where it runs, else by HTCondor's tokens where that is, or as the file says."""
    sent: list[str] = []

    def exchanged(_: Any, __: Any, headers: dict[str, str], ___: float) -> tuple[int, str, bytes]:
        sent.append(headers["Authorization"].partition(" ")[0])
        return 200, __version__, b'{"now":1.0,"nodes":[]}'

    program = tmp_path / "condor_token_fetch"
    program.write_text("#!/bin/sh\necho a.b.c\n")
    program.chmod(0o755)
    monkeypatch.setattr(client, "_exchanged", exchanged)
    monkeypatch.setattr("rtsched.adapters.credentials.encode", lambda *_: "x")
    for munge, path, identity, scheme in (
        (True, str(tmp_path), "", "Munge"),
        (False, str(tmp_path), "", "IDToken"),
        (False, "/nowhere", "", "Munge"),
        (True, str(tmp_path), "condor", "IDToken"),
        (False, str(tmp_path), "munge", "Munge"),
    ):
        monkeypatch.setattr("rtsched.adapters.credentials.available", lambda munge=munge: munge)
        monkeypatch.setenv("PATH", path)
        server = ClientSettings("https://head", identity=identity)
        ask_server(questions.NodeList(), server)
        assert sent.pop() == scheme
    plain = ClientSettings("http://127.0.0.1:1", identity="condor")
    with pytest.raises(ConfigError, match="tokens of HTCondor are sent by https only"):
        ask_server(questions.NodeList(), plain)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AdapterError, match="condor_token_fetch is not installed here"):
        ask_server(questions.NodeList(), ClientSettings("https://head", identity="condor"))
    assert not sent


NAME = "_rtsched._tcp.example.org."
servers = client.servers  # the real one: tests/conftest.py replaces it


class NameServer:
    """A name server on a port of its own, with these SRV records."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.silent = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"end", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            data, peer = self._socket.recvfrom(4096)
            if data == b"end":
                return
            query = dns.message.from_wire(data)
            name = query.question[0].name.to_text()
            self.asked.append(name)
            if self.silent:
                continue
            answer = dns.message.make_response(query)
            answer.flags |= dns.flags.AA
            if texts := self.records.get(name):
                answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", "SRV", texts))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            self._socket.sendto(answer.to_wire(), peer)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """Run a name server; resolvers find it at its port."""
    server = NameServer()

    class AtPort(dns.resolver.Resolver):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.port = server.port

    monkeypatch.setattr(dns.resolver, "Resolver", AtPort)
    servers.cache_clear()
    yield server
    servers.cache_clear()
    server.close()


@pytest.fixture
def conf(tmp_path: Path) -> Callable[[str], str]:
    """Return what writes a resolv.conf with that search list; its path."""

    def written(search: str) -> str:
        file = tmp_path / "resolv.conf"
        file.write_text(f"nameserver 127.0.0.1\nsearch {search}\n")
        return str(file)

    return written


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (["0 0 6821 head.example.org."], "https://head.example.org:6821"),
        (
            ["20 0 1 c.example.org.", "10 1 2 b.example.org.", "10 9 3 a.example.org."],
            "https://a.example.org:3 https://b.example.org:2 https://c.example.org:1",
        ),
        (["0 0 443 head.example.com.", "1 0 6821 h.example.org."], "https://h.example.org:6821"),
        (["0 0 443 head.example.com."], ""),
        (["0 0 443 badexample.org."], ""),
        (["0 0 0 ."], ""),
        ([], ""),
    ],
)
def test_records(
    names: NameServer, conf: Callable[[str], str], records: list[str], found: str
) -> None:
    """By priority, then weight; only hosts of the domain that was asked for."""
    names.records[NAME] = records
    assert servers(conf("example.org")) == found


def test_domains_are_asked_in_their_order(names: NameServer, conf: Callable[[str], str]) -> None:
    """Until one has a record; and never the root."""
    names.records[NAME] = ["0 0 6821 head.example.org."]
    assert servers(conf("a.example.org . example.org")) == "https://head.example.org:6821"
    assert names.asked == ["_rtsched._tcp.a.example.org.", NAME]


def test_a_silent_name_server(names: NameServer, conf: Callable[[str], str]) -> None:
    """Is not waited for long, and once."""
    names.silent = True
    begun = time.monotonic()
    assert servers(conf("example.org example.com example.net")) == ""
    assert servers(conf("example.org example.com example.net")) == ""
    assert time.monotonic() - begun < 2 * client.LIMIT_S
    assert set(names.asked) == {NAME}


def test_without_dns(names: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No resolv.conf, an unreadable one, no name server, no library: no server."""
    assert servers(str(tmp_path / "missing")) == ""
    (tmp_path / "wrong").write_bytes(b"nameserver \xff\xfe\nsearch ...\n")
    assert servers(str(tmp_path / "wrong")) == ""
    (tmp_path / "none").write_text("search example.org\n")
    assert servers(str(tmp_path / "none")) == ""
    servers.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "dns.resolver", None)
    assert servers(str(tmp_path / "missing")) == ""


def test_when_dns_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If neither socket, environment nor file name one; the file's other settings hold."""
    asked = []

    def found() -> str:
        asked.append(1)
        return "https://head.example.org:6821"

    monkeypatch.setattr(client, "servers", found)
    monkeypatch.setattr(client, "SOCKET", str(tmp_path / "query.sock"))
    monkeypatch.delenv("RTSCHED_SERVER", raising=False)
    path, file = str(tmp_path / "query.sock"), tmp_path / "client.toml"
    assert server_for(path, file) == ClientSettings("https://head.example.org:6821")
    file.write_text('ca = "/ca.pem"\nidentity = "condor"\n')
    wanted = ClientSettings("https://head.example.org:6821", "/ca.pem", "condor")
    assert named_server(file) == wanted
    assert len(asked) == 2
    file.write_text('server = "https://other:1"\n')
    assert named_server(file) == ClientSettings("https://other:1")
    file.write_text('identity = "kerberos"\n')
    with pytest.raises(ConfigError, match="identity: invalid value 'kerberos'"):
        named_server(file)
    file.unlink()
    monkeypatch.setenv("RTSCHED_SERVER", "https://named:1")
    assert named_server(file) == ClientSettings("https://named:1")
    monkeypatch.delenv("RTSCHED_SERVER")
    (tmp_path / "query.sock").touch()
    assert server_for(path, file) is None
    assert server_for("/other.sock", file) is None
    assert len(asked) == 2
