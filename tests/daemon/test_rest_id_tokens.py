"""Whose a token of HTCondor's is: each once, for users alone, and no host delays another."""

from __future__ import annotations

import asyncio
import pwd
import threading
from typing import TYPE_CHECKING

import pytest
from limited_tokens import GOOD, NOW, token

from rtsched.adapters.munge import CredentialError
from rtsched.errors import AdapterError
from rtsched.rest.authentication import (
    EACH,
    WAITING,
    AuthenticationError,
    Authenticator,
    Pool,
    TokenAuthenticator,
)
from rtsched.rest.limits import OverloadError, TooMuchError

if TYPE_CHECKING:
    from collections.abc import Callable

USER = next(entry for entry in pwd.getpwall() if entry.pw_uid not in {0})


def accepting(
    identity: Callable[[str], str] | None = None, clock: Callable[[], float] = lambda: NOW - 10
) -> TokenAuthenticator:
    """Return one whose pool accepts every token as its user's."""
    now = [clock(), *[NOW] * 10_000]
    pool = Pool(identity or (lambda _: f"{USER.pw_name}@pool"), lambda: "pool")
    return TokenAuthenticator(pool, clock=lambda: now.pop(0) if now else NOW)


def made(**change: object) -> str:
    """Return a token of the user's."""
    return token(GOOD | {"sub": f"{USER.pw_name}@pool"} | change)


def uid(authenticator: TokenAuthenticator, text: str) -> int:
    """Return whose a token is."""
    return asyncio.run(authenticator.uid(text, "host"))


def test_each_token_counts_once() -> None:
    """Also if it is sent twice at the same time; another one counts again."""
    authenticator = accepting()
    assert uid(authenticator, made()) == USER.pw_uid
    with pytest.raises(CredentialError, match="used before"):
        uid(authenticator, made())
    assert uid(authenticator, made(jti="2f")) == USER.pw_uid

    async def both() -> list[object]:
        fresh = accepting()
        asked = [fresh.uid(made(), host) for host in ("one", "other")]
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(both())
    assert USER.pw_uid in found
    assert sum(isinstance(each, CredentialError) for each in found) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sub": "root@pool"}, "not a user"),
        ({"sub": "condor@pool"}, "not a user"),
        ({"sub": "condor_pool@"}, "not a user"),
        ({"sub": "unauthenticated@unmapped"}, "not a user"),
        ({"sub": f"{USER.pw_name}@other"}, "domain 'other'"),
        ({"sub": USER.pw_name}, "domain ''"),
        ({"sub": "@pool"}, "domain 'pool'"),
        ({"iat": NOW - 11}, "before this server started"),
    ],
)
def test_who_is_no_user_of_the_pool(change: dict[str, object], says: str) -> None:
    """Is refused before the collector is asked."""

    def never(_: str) -> str:
        raise AssertionError

    with pytest.raises(CredentialError, match=says):
        uid(accepting(never), made(**change))


def test_what_the_pool_says_counts() -> None:
    """Another identity than the token's, a refusal, no answer, and users who are not here."""

    def refusing(_: str) -> str:
        raise CredentialError("forged")

    def away(_: str) -> str:
        raise AdapterError("the collector does not answer")

    with pytest.raises(CredentialError, match="another name"):
        uid(accepting(lambda _: "condor@password"), made())
    with pytest.raises(CredentialError, match="forged"):
        uid(accepting(refusing), made())
    with pytest.raises(AdapterError, match="does not answer"):
        uid(accepting(away), made())
    for name, says in (("no-such-user-here", "does not exist"),):
        with pytest.raises(CredentialError, match=says):
            uid(accepting(lambda _, name=name: f"{name}@pool"), made(sub=f"{name}@pool"))


def test_another_name_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is root."""
    monkeypatch.setattr("rtsched.rest.authentication.uid_of", lambda _: 0)
    with pytest.raises(CredentialError, match="root is not accepted"):
        uid(accepting(lambda _: "toor@pool"), made(sub="toor@pool"))


def test_by_default_the_daemon_says_whether_tokens_are_accepted() -> None:
    """Those of a pool that is not the daemon's batch system prove nothing."""
    for system, accepted in (("condor", True), ("slurm", False)):

        async def said(system: str = system) -> str:
            return system

        pool = Pool(lambda _: f"{USER.pw_name}@pool", lambda: "pool")
        authenticator = TokenAuthenticator(pool, said, lambda: NOW)
        if accepted:
            assert uid(authenticator, made(iat=NOW)) == USER.pw_uid
        else:
            with pytest.raises(CredentialError, match="the batch system is slurm"):
                uid(authenticator, made(iat=NOW))


def test_no_host_delays_another() -> None:
    """While the tokens of one wait for the collector, that of another is checked."""
    release, asked = threading.Event(), threading.Semaphore(0)

    def slow(text: str) -> str:
        if "slow" in text:
            asked.release()
            release.wait(60)
        return f"{USER.pw_name}@pool"

    authenticator = accepting(lambda text: slow(names[text]))
    names = {made(jti=f"slow{n}"): "slow" for n in range(WAITING + 1)} | {made(): "quick"}
    flood = list(names)[: WAITING + 1]

    async def course() -> None:
        tasks = [asyncio.create_task(authenticator.uid(text, "one")) for text in flood[:-1]]
        for _ in range(EACH):
            await asyncio.to_thread(asked.acquire)
        with pytest.raises(TooMuchError, match="this host"):
            await authenticator.uid(flood[-1], "one")
        assert await authenticator.uid(made(), "other") == USER.pw_uid
        others = [
            asyncio.create_task(authenticator.uid(made(jti=f"{host}-{n}"), f"host{host}"))
            for host in range(2)
            for n in range(3)
        ]
        names.update({made(jti=f"{host}-{n}"): "slow" for host in range(2) for n in range(3)})
        release.set()
        assert set(await asyncio.gather(*tasks, *others)) == {USER.pw_uid}
        assert not authenticator._turns

    asyncio.run(course())


def test_there_is_a_limit_for_all_hosts() -> None:
    """As many hosts as you like do not make it longer."""
    release = threading.Event()

    def slow(_: str) -> str:
        release.wait(60)
        return f"{USER.pw_name}@pool"

    authenticator = accepting(slow)

    async def course() -> None:
        tasks = [
            asyncio.create_task(authenticator.uid(made(jti=f"j{n}"), f"host{n % 8}"))
            for n in range(64)
        ]
        await asyncio.sleep(0)
        with pytest.raises(OverloadError):
            await authenticator.uid(made(jti="last"), "other")
        release.set()
        await asyncio.gather(*tasks)

    asyncio.run(course())


def test_used_tokens_are_forgotten_when_they_end() -> None:
    """They would be refused by then anyway."""
    now = [NOW]
    pool = Pool(lambda _: f"{USER.pw_name}@pool", lambda: "pool")
    authenticator = TokenAuthenticator(pool, clock=lambda: now[0])

    async def course() -> None:
        for n in range(1100):
            await authenticator.uid(made(jti=f"j{n}", iat=NOW), "host")
        now[0] += 100
        await authenticator.uid(made(jti="late", iat=NOW, exp=NOW + 160), "host")

    asyncio.run(course())
    assert set(authenticator._used) == {"late"}


def test_the_header() -> None:
    """`IDToken TOKEN`, where it is accepted; a refusal is one of the credentials."""

    async def asked(text: str, tokens: TokenAuthenticator | None) -> int:
        authenticator = Authenticator(None, tokens=tokens)
        headers = {"authorization": text}
        return await authenticator.uid("GET", b"/v1/status", headers, b"", None, "host")

    assert asyncio.run(asked(f"IDToken {made()}", accepting())) == USER.pw_uid
    assert asyncio.run(asked(f"idtoken  {made()} ", accepting())) == USER.pw_uid
    for text, tokens, says in (
        ("IDToken x", accepting(), "three parts"),
        (f"IDToken {made()}", None, "none is accepted"),
        ("Munge MUNGE:x:", accepting(), "use IDToken"),
        (f"Bearer {made()}", accepting(), "use IDToken"),
    ):
        with pytest.raises(AuthenticationError, match=says):
            asyncio.run(asked(text, tokens))
