"""The settings of `rtsched rest`, in a file of their own."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.daemon.systemd import Level  # noqa: TC001 - read by msgspec


class RestSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rest.toml."""

    address: str = "127.0.0.1"
    """IP address to listen on, such as `0.0.0.0`; other hosts need TLS."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 6821
    """TCP port; 0: no TCP."""
    certificate: str = ""
    """File with the TLS certificate and its chain, PEM; empty: no TLS."""
    key: str = ""
    """File with the certificate's private key, PEM."""
    socket: str = "/run/rtsched-rest/rest.sock"
    """Unix socket to listen on; its users are known. Empty: none."""
    proxy_user: str = ""
    """User that the site's proxy runs as. On the Unix socket its requests are those of the user in
    their header `X-Remote-User`, never root's. Empty: no proxy."""
    identities: list[Literal["munge", "condor"]] | None = None
    """By what users of other hosts are known: `munge` accepts its credentials (`Authorization:
    Munge ...`), `condor` limited tokens of HTCondor's (`Authorization: IDToken ...`), which the
    collector of HTCondor's configuration on this host verifies. Not given: munge, and condor if the
    daemon's batch system is HTCondor."""
    query_socket: str = "/run/rtsched/query.sock"
    """Socket of the daemon for queries."""
    rate: Annotated[float, Meta(gt=0)] = 10.0
    """Requests per second that a user may send on average."""
    burst: Annotated[int, Meta(ge=1)] = 50
    """Requests that a user may send at once before that."""
    max_body: Annotated[int, Meta(ge=1024, le=1 << 18)] = 65536
    """Maximum size of a request's body, bytes."""
    time_limit: Annotated[float, Meta(gt=0)] = 15.0
    """Seconds for a request with its answer, and for the TLS handshake; a client that takes longer
    is disconnected."""
    connections: Annotated[int, Meta(ge=1)] = 512
    """Maximum number of connections."""
    connections_per_peer: Annotated[int, Meta(ge=1)] = 128
    """Maximum number of them from one address, or of one local user."""
    daemon_requests: Annotated[int, Meta(ge=1, le=60)] = 16
    """Maximum number of requests at a time to the daemon; a quarter of them for one user."""
    daemon_timeout: Annotated[float, Meta(gt=0)] = 10.0
    """Seconds to wait for the daemon's answer."""
    embedders: list[Annotated[str, Meta(pattern=r"^https?://[A-Za-z0-9.:\[\]-]+$")]] = []
    """Sites whose pages may show the board in a frame, such as `https://ondemand.example.org`."""
    log_level: Level = "info"
    """Log level."""

    def problems(self) -> list[str]:
        """Return what is wrong with the settings as a whole, one sentence each."""
        found = []
        if not self.port and not self.socket:
            found.append("port: is 0 and socket is empty, so nobody could connect; set one")
        if bool(self.certificate) != bool(self.key):
            missing = "key" if self.certificate else "certificate"
            found.append(f"{missing}: is needed too for TLS")
        try:
            loopback = ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return [*found, f"address: {self.address!r} is not an IP address"]
        if self.port and not loopback and not self.certificate:
            found.append(
                f"address: {self.address} can be reached from other hosts, which needs TLS; set "
                "certificate and key, or address = '127.0.0.1'"
            )
        return found
