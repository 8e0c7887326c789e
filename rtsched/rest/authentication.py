"""Who sent a request: by munge, by a token of HTCondor's, by the kernel, or by the site's proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rtsched.adapters import munge
from rtsched.adapters.users import uid_of
from rtsched.errors import RtschedError
from rtsched.rest.credential import CONDOR_SCHEME, SCHEME, payload_for
from rtsched.rest.sessions import cookie_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.rest.id_tokens import TokenAuthenticator
    from rtsched.rest.sessions import Sessions

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
        From a credential of munge to what it says, such as `munge.decode`; None: none are accepted.
    proxy_uid : int
        The site's proxy on the Unix socket; -1: there is none.
    sessions : Sessions or None
        Of browsers, which may read what is under `PAGES`.
    tokens : TokenAuthenticator or None
        Of HTCondor's tokens; None: none are accepted.
    """

    def __init__(
        self,
        decode: Callable[[str], munge.Credential] | None,
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
        except munge.CredentialError as error:
            raise AuthenticationError(str(error)) from error

    async def _of_credential(self, credential: str, expected: bytes) -> int:
        assert self._decode is not None  # noqa: S101 - as its caller has checked
        if len(credential) > LONGEST:
            raise AuthenticationError(f"the credential is longer than {LONGEST} bytes")
        try:
            async with self._decoding:
                uid, payload = await asyncio.to_thread(self._decode, credential.strip())
        except munge.CredentialError as error:
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
