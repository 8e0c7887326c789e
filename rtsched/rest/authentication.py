"""Authentication: by munge, by a token of HTCondor's, by the kernel, or by the site's proxy.

A browser has no credential of munge, so `rtsched board`, which has one, opens a session for it: it
gets a ticket, which is good for one visit within a minute; the visit brings a cookie. Both are
random, and only their hashes are kept, in memory: a restart ends all sessions. A session reads
pages of the board, and nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters import credentials
from rtsched.adapters.credentials import CredentialError
from rtsched.adapters.users import uid_of
from rtsched.errors import RtschedError
from rtsched.rest.credential import CONDOR_SCHEME, SCHEME, payload_for
from rtsched.rest.throttling import OverloadError, TooMuchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping


DECODING = 8
"""Credentials that munged is asked about at a time."""

LONGEST = 8192
"""Bytes of a credential."""

REMOTE_USER = "x-remote-user"

PAGES = b"/board"
"""What a browser's session may read."""

HOLDING = b"/board/hold"
"""What it may have done there, by POST with a header that no page of another site can send."""

BOARD_HEADER = "rtsched-board"


def _of_board(method: str, target: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether a browser's session is enough for a request."""
    if method == "POST":
        return target.partition(b"?")[0] == HOLDING and BOARD_HEADER in headers
    return method == "GET" and target.startswith(PAGES)


class AuthenticationError(RtschedError):
    """Nobody knows who sent the request."""


class ForbiddenError(RtschedError):
    """The client is known, and may not do that."""


class Authenticator:
    """Finds out who sent a request.

    Parameters
    ----------
    decode : callable or None
        From a credential of munge to what it says, such as `credentials.decode`; None: none.
    proxy_uid : int
        The site's proxy on the Unix socket; -1: there is none.
    sessions : Sessions or None
        Of browsers, which may read what is under `PAGES`.
    tokens : TokenAuthenticator or None
        Of HTCondor's tokens; None: none are accepted.
    """

    def __init__(
        self,
        decode: Callable[[str], credentials.Credential] | None,
        proxy_uid: int = -1,
        sessions: Sessions | None = None,
        tokens: TokenAuthenticator | None = None,
    ) -> None:
        self._decode, self._proxy, self._sessions = decode, proxy_uid, sessions
        self._tokens = tokens
        self._decoding = asyncio.Semaphore(DECODING)

    async def uid(
        self,
        method: str,
        target: bytes,
        headers: Mapping[str, str],
        body: bytes,
        peer: int | None,
        address: str = "",
    ) -> int:
        """Return the uid of a request's client.

        A credential counts first: a proxy may pass requests on whose users it does not know.

        Parameters
        ----------
        method, target, body
            As of `payload_for`.
        headers : mapping of str to str
            With names in lower case, each once.
        peer : int or None
            Who is at the other end of the connection, as the kernel says; None: another host.
        address : str
            The other host's.

        Raises
        ------
        AuthenticationError
            If nothing valid says who it is.
        ForbiddenError
            If it claims to be somebody else.
        AdapterError
            If munged, or the pool, does not answer.
        TooMuchError
            If too many tokens come from there at a time.
        """
        claim, proxied = headers.get(REMOTE_USER), peer is not None and 0 <= peer == self._proxy
        if claim is not None and not proxied:
            raise ForbiddenError("only the site's proxy may name another user in X-Remote-User")
        if (text := headers.get("authorization")) is not None:
            scheme, _, given = text.strip().partition(" ")
            if scheme.lower() == SCHEME.lower() and self._decode is not None:
                return await self._of_credential(given, payload_for(method, target, body))
            if scheme.lower() == CONDOR_SCHEME.lower() and self._tokens is not None:
                return await self._of_token(given.strip(), address if peer is None else peer)
            raise AuthenticationError(
                f"credentials of another kind are not accepted: {self._accepted()}"
            )
        if self._sessions is not None and _of_board(method, target, headers):
            uid = self._sessions.uid(cookie_in(headers.get("cookie", "")))
            if uid is not None:
                return uid
            if peer is None:
                raise AuthenticationError("the board opens with a link: run `rtsched board`")
        if peer is None:
            raise AuthenticationError(
                f"not authenticated: send `Authorization: {SCHEME} CREDENTIAL`, or on HTCondor "
                f"`{CONDOR_SCHEME} TOKEN`, as `rtsched status` does"
            )
        return await self._of_claim(claim) if proxied else peer

    def _accepted(self) -> str:
        """Return what to use."""
        kinds = [SCHEME] if self._decode is not None else []
        kinds += [CONDOR_SCHEME] if self._tokens is not None else []
        if not kinds:
            return "none is accepted here"
        return f"use {' or '.join(kinds)}; rtsched's commands choose by `identity` in client.toml"

    async def _of_token(self, token: str, peer: int | str) -> int:
        assert self._tokens is not None  # noqa: S101 - as its caller has checked
        try:
            return await self._tokens.uid(token, peer)
        except credentials.CredentialError as error:
            raise AuthenticationError(str(error)) from error

    async def _of_credential(self, credential: str, expected: bytes) -> int:
        assert self._decode is not None  # noqa: S101 - as its caller has checked
        if len(credential) > LONGEST:
            raise AuthenticationError(f"the credential is longer than {LONGEST} bytes")
        try:
            async with self._decoding:
                uid, payload = await asyncio.to_thread(self._decode, credential.strip())
        except credentials.CredentialError as error:
            raise AuthenticationError(str(error)) from error
        if payload != expected:
            raise AuthenticationError(
                "the credential was made for another request; make one for this method, path, "
                "query and body"
            )
        return uid

    async def _of_claim(self, name: str | None) -> int:
        if not name:
            raise AuthenticationError("the proxy names no user in X-Remote-User")
        uid = await asyncio.to_thread(uid_of, name)
        if uid < 0:
            raise AuthenticationError("the user that the proxy names does not exist here")
        if uid == 0:
            raise ForbiddenError("a proxy may not ask for root; use the site's admins")
        return uid


ASKING = 8
"""Tokens that the collector is asked about at a time."""
EACH = 2
"""Of these, from one host."""
WAITING = 16
"""Tokens of one host that are checked or wait for that; others are refused."""
WAITING_IN_ALL = 64

DAEMONS = frozenset(("root", "condor", "condor_pool", "condor_family", "unauthenticated"))
"""Identities of HTCondor's own, and root's: never a user's."""


class Pool(NamedTuple):
    """What is asked of the pool; each may block.

    Attributes
    ----------
    identity_of : callable
        From a token to the identity that the collector knows its holder by.
    uid_domain : callable
        The domain of the pool's users.
    """

    identity_of: Callable[[str], str] = credentials.identity_of
    uid_domain: Callable[[], str] = credentials.uid_domain


class TokenAuthenticator:
    """Finds out whose a token is.

    Parameters
    ----------
    pool : Pool
        How the pool is asked.
    system : callable or None
        The daemon's batch system: tokens are accepted if that is HTCondor. None: in any case.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        pool: Pool | None = None,
        system: Callable[[], Awaitable[str]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pool, self._system, self._clock = pool or Pool(), system, clock
        self._started = floor(clock())
        self._domain = ""
        self._used: dict[str, float] = {}
        """When the tokens that were used end, by their identifiers."""
        self._asking = asyncio.Semaphore(ASKING)
        self._turns: dict[Hashable, asyncio.Semaphore] = {}
        self._waiting = Counter[Hashable]()
        self._threads = ThreadPoolExecutor(ASKING, "id-tokens")

    async def uid(self, token: str, peer: Hashable) -> int:
        """Return the uid of a token's user; it is used up then.

        Parameters
        ----------
        token : str
            The token.
        peer : hashable
            The host, or local user, that it came from.

        Raises
        ------
        CredentialError
            If it proves nothing, or is not accepted.
        TooMuchError
            If too many of that host are being checked.
        AdapterError
            If the pool, or the daemon, does not answer.
        """
        claims = credentials.claims_in(token, self._clock())
        if claims.iat < self._started:
            raise CredentialError(
                "the token was made before this server started, so it may have been used; make "
                "another one"
            )
        self._check_unused(claims.jti)
        if claims.sub.partition("@")[0] in DAEMONS:
            raise CredentialError(f"{claims.sub} is not a user; use a user's own token")
        async with self._turn(peer):
            user = await self._user(token, claims)
            self._check_unused(claims.jti)
            self._use_up(claims)
        uid = await asyncio.to_thread(uid_of, user)
        if uid < 0:
            raise CredentialError(f"the pool's user {user} does not exist on the server's host")
        if uid == 0:
            raise CredentialError("root is not accepted; use a user's own token")
        return uid

    async def _user(self, token: str, claims: credentials.Claims) -> str:
        """Return the user's name, as the collector knows it."""
        loop = asyncio.get_running_loop()
        if self._system is not None:
            if (system := await self._system()) != "condor":
                raise CredentialError(
                    f"HTCondor's tokens are not accepted here: the batch system is {system}; an "
                    "admin may set `identities` in rest.toml"
                )
            self._system = None
        if not self._domain:
            self._domain = await loop.run_in_executor(self._threads, self._pool.uid_domain)
        name, _, domain = claims.sub.partition("@")
        if not name or domain.lower() != self._domain.lower():
            raise CredentialError(
                f"the token is of a user of the domain {domain!r}, not of this pool's"
            )
        identity = await loop.run_in_executor(self._threads, self._pool.identity_of, token)
        if identity != claims.sub:
            raise CredentialError("the pool knows the holder of the token by another name")
        return name

    def _check_unused(self, jti: str) -> None:
        if jti in self._used:
            raise CredentialError("the token was used before; make one for each request")

    def _use_up(self, claims: credentials.Claims) -> None:
        now = self._clock()
        if len(self._used) >= 1024 and next(iter(self._used.values())) <= now:
            self._used = {jti: end for jti, end in self._used.items() if end > now}
        self._used[claims.jti] = claims.exp

    @asynccontextmanager
    async def _turn(self, peer: Hashable) -> AsyncIterator[None]:
        """Wait until a token of a host may be checked, so that no host delays others for long."""
        if self._waiting[peer] >= WAITING:
            raise TooMuchError("too many tokens of this host at a time; try again", 1.0)
        if self._waiting.total() >= WAITING_IN_ALL:
            raise OverloadError("too many tokens at a time; try again in a second", 1.0)
        self._waiting[peer] += 1
        try:
            async with self._turns.setdefault(peer, asyncio.Semaphore(EACH)), self._asking:
                yield
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer], self._turns[peer]


COOKIE = "rtsched-session"
TICKET_S = 60.0
"""Seconds within which a ticket must be used."""
SESSION_S = 8 * 3600.0
"""Seconds for which a session lasts."""
SESSIONS_EACH = 16
"""Tickets, and sessions, of one user at a time; the oldest give way."""


class NoSessionError(RtschedError):
    """A ticket that was used, or is unknown or too old."""


class Pass(NamedTuple):
    """Who may come in, and until when by the clock of `Sessions`."""

    uid: int
    until: float


class Sessions:
    """The tickets and sessions of one server.

    Parameters
    ----------
    clock : callable
        Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tickets: dict[bytes, Pass] = {}
        self._open: dict[bytes, Pass] = {}

    def ticket(self, uid: int) -> str:
        """Return a ticket for a user."""
        return self._new(self._tickets, uid, TICKET_S)

    def enter(self, ticket: str) -> str:
        """Return the cookie's value of a new session, for a ticket, which is used up.

        Raises
        ------
        NoSessionError
            If it is no ticket, or no longer one.
        """
        found = self._tickets.pop(_hash(ticket), None)
        if found is None or found.until < self._clock():
            raise NoSessionError(
                "this link was used, or is older than a minute; run `rtsched board` again"
            )
        return self._new(self._open, found.uid, SESSION_S)

    def uid(self, cookie: str) -> int | None:
        """Return whose session it is; None: it has ended, or never was."""
        found = self._open.get(_hash(cookie))
        return found.uid if found is not None and found.until >= self._clock() else None

    def _new(self, passes: dict[bytes, Pass], uid: int, seconds: float) -> str:
        now, secret = self._clock(), secrets.token_urlsafe(32)
        for key in [key for key, each in passes.items() if each.until < now]:
            del passes[key]
        own = [key for key, each in passes.items() if each.uid == uid]
        for key in own[: max(len(own) - SESSIONS_EACH + 1, 0)]:
            del passes[key]
        passes[_hash(secret)] = Pass(uid, now + seconds)
        return secret


def cookie_in(header: str) -> str:
    """Return the session's cookie in a `Cookie` header; empty: none is there."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
