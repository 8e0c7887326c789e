"""The server is found by a record of DNS: a real name server answers, or does not."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from rtsched.errors import ConfigError
from rtsched.rest import client
from rtsched.rest.client import ClientSettings, named_server, server_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
