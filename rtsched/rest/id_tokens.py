"""Who sent a request, by a token of HTCondor's: checked here, used once, verified by the collector.

A token is not made for one request, as a credential of munge is. So it must be a limited one that
ends soon, and each is accepted once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters import id_tokens
from rtsched.adapters.munge import CredentialError
from rtsched.adapters.users import uid_of
from rtsched.rest.limits import OverloadError, TooMuchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

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

    identity_of: Callable[[str], str] = id_tokens.identity_of
    uid_domain: Callable[[], str] = id_tokens.uid_domain


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
        claims = id_tokens.claims_in(token, self._clock())
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

    async def _user(self, token: str, claims: id_tokens.Claims) -> str:
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

    def _use_up(self, claims: id_tokens.Claims) -> None:
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
