"""Who sent a request: credentials, HTCondor's tokens, and sessions of browsers."""

import asyncio
import pwd
import threading
from collections.abc import Callable

import pytest
from limited_tokens import GOOD as CLAIMS
from limited_tokens import NOW, token
from rest_client import forged

from rtsched.adapters import credentials
from rtsched.adapters.credentials import CredentialError
from rtsched.errors import AdapterError
from rtsched.rest.authentication import (
    COOKIE,
    EACH,
    SESSION_S,
    SESSIONS_EACH,
    TICKET_S,
    WAITING,
    AuthenticationError,
    Authenticator,
    ForbiddenError,
    NoSessionError,
    Pool,
    Sessions,
    TokenAuthenticator,
    cookie_in,
)
from rtsched.rest.credential import payload_for
from rtsched.rest.throttling import ConcurrencyLimit, OverloadError, TokenBucket, TooMuchError

ANN, PROXY = 1001, 33
GOOD = payload_for("GET", b"/v1/status", b"")


def uid(
    headers: dict[str, str],
    peer: int | None = None,
    target: bytes = b"/v1/status",
    body: bytes = b"",
    authenticator: Authenticator | None = None,
) -> int:
    """Return whom a GET is from."""

    async def asked() -> int:
        chosen = authenticator or Authenticator(forged, PROXY)
        return await chosen.uid("GET", target, headers, body, peer)

    return asyncio.run(asked())


def signed(payload: bytes, scheme: str = "Munge", user: int = ANN) -> dict[str, str]:
    """Return a header with a credential."""
    return {"authorization": f"{scheme} {user} {payload.hex()}"}


def test_a_credential_counts() -> None:
    """From another host, from the Unix socket and through a proxy."""
    for peer in (None, 4, PROXY):
        assert uid(signed(GOOD), peer) == ANN
    assert uid(signed(GOOD, "munge")) == ANN
    assert uid(signed(GOOD, user=0)) == 0


@pytest.mark.parametrize(
    "payload",
    [
        payload_for("DELETE", b"/v1/status", b""),
        payload_for("GET", b"/v1/status?metrics=true", b""),
        payload_for("GET", b"/v1/promises/1", b""),
        payload_for("GET", b"/v1/status", b"{}"),
        b"",
        b"REQUEST_SUBMIT_BATCH_JOB",
    ],
)
def test_a_credential_for_something_else_opens_nothing(payload: bytes) -> None:
    """Another method, query, path or body, or one that Slurm's own commands made."""
    with pytest.raises(AuthenticationError, match="made for another request"):
        uid(signed(payload))


def test_what_is_no_credential_opens_nothing() -> None:
    """Other schemes, garbage, and one that is too long; munged is not asked about that."""
    for text, says in (
        ("Bearer abc", "another kind"),
        ("Munge", "Invalid credential"),
        ("Munge MUNGE:forged:", "Invalid credential"),
        ("Munge " + "A" * 9000, "longer than"),
        ("", "another kind"),
    ):
        with pytest.raises(AuthenticationError, match=says):
            uid({"authorization": text}, PROXY)
    with pytest.raises(AuthenticationError, match="not authenticated"):
        uid({})
    with pytest.raises(AuthenticationError, match="none is accepted"):
        uid(signed(GOOD), authenticator=Authenticator(None))


def test_a_local_user_is_known() -> None:
    """By the kernel, root too."""
    assert uid({}, ANN) == ANN
    assert uid({}, 0) == 0


def test_the_proxy_names_users_and_nobody_else_does() -> None:
    """It may not name root, nobody, or a user that there is not; its own uid is no user's."""
    named = next(entry for entry in pwd.getpwall() if entry.pw_uid not in {0, PROXY})
    assert uid({"x-remote-user": named.pw_name}, PROXY) == named.pw_uid
    for peer in (None, ANN, 0):
        with pytest.raises(ForbiddenError, match="only the site's proxy"):
            uid({"x-remote-user": named.pw_name, **signed(GOOD)}, peer)
    with pytest.raises(ForbiddenError, match="may not ask for root"):
        uid({"x-remote-user": "root"}, PROXY)
    for name in ("", "no-such-user-here"):
        with pytest.raises(AuthenticationError):
            uid({"x-remote-user": name}, PROXY)
    with pytest.raises(AuthenticationError):
        uid({}, PROXY)
    with pytest.raises(ForbiddenError):  # without a proxy nobody is one
        uid({"x-remote-user": named.pw_name}, -1, authenticator=Authenticator(forged))


def test_a_silent_munged_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no reason to believe anything, and the server says what is wrong."""

    def silent(_: str) -> credentials.Credential:
        raise AdapterError("munged does not answer: Socket communication error")

    with pytest.raises(AdapterError, match="munged does not answer"):
        uid(signed(GOOD), authenticator=Authenticator(silent))
    credentials._library.cache_clear()
    monkeypatch.setattr(credentials, "LIBRARY", "libmunge-missing.so.0")
    with pytest.raises(AdapterError, match="is not installed here"):
        credentials.decode("MUNGE:x:")
    credentials._library.cache_clear()


def test_a_user_has_a_rate() -> None:
    """After a burst, one request per interval; others have their own."""
    now = [0.0]
    bucket = TokenBucket(2.0, 3, lambda: now[0])
    for _ in range(3):
        bucket.take(ANN)
    with pytest.raises(TooMuchError) as refused:
        bucket.take(ANN)
    assert refused.value.retry_s == pytest.approx(0.5)
    bucket.take(PROXY)
    now[0] = 0.5
    bucket.take(ANN)
    with pytest.raises(TooMuchError):
        bucket.take(ANN)
    now[0] = 100.0
    for _ in range(3):
        bucket.take(ANN)
    with pytest.raises(TooMuchError):
        bucket.take(ANN)


def test_places_are_shared() -> None:
    """One user has a part of them; all are given back."""
    concurrency = ConcurrencyLimit(3, 2)
    with concurrency.slot(1), concurrency.slot(1):
        with pytest.raises(TooMuchError), concurrency.slot(1):
            pass
        with concurrency.slot(2), pytest.raises(OverloadError), concurrency.slot(3):
            pass
    assert not concurrency.taken


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
    return token(CLAIMS | {"sub": f"{USER.pw_name}@pool"} | change)


def owner(authenticator: TokenAuthenticator, text: str) -> int:
    """Return whose a token is."""
    return asyncio.run(authenticator.uid(text, "host"))


async def test_each_token_counts_once() -> None:
    """Also if it is sent twice at the same time; another one counts again."""
    authenticator = accepting()
    assert await authenticator.uid(made(), "host") == USER.pw_uid
    with pytest.raises(CredentialError, match="used before"):
        await authenticator.uid(made(), "host")
    assert await authenticator.uid(made(jti="2f"), "host") == USER.pw_uid
    fresh = accepting()
    asked = [fresh.uid(made(), host) for host in ("one", "other")]
    found = await asyncio.gather(*asked, return_exceptions=True)
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
        owner(accepting(never), made(**change))


def test_what_the_pool_says_counts() -> None:
    """Another identity than the token's, a refusal, no answer, and users who are not here."""

    def refusing(_: str) -> str:
        raise CredentialError("forged")

    def away(_: str) -> str:
        raise AdapterError("the collector does not answer")

    with pytest.raises(CredentialError, match="another name"):
        owner(accepting(lambda _: "condor@password"), made())
    with pytest.raises(CredentialError, match="forged"):
        owner(accepting(refusing), made())
    with pytest.raises(AdapterError, match="does not answer"):
        owner(accepting(away), made())
    for name, says in (("no-such-user-here", "does not exist"),):
        with pytest.raises(CredentialError, match=says):
            owner(accepting(lambda _, name=name: f"{name}@pool"), made(sub=f"{name}@pool"))


def test_another_name_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is root."""
    monkeypatch.setattr("rtsched.rest.authentication.uid_of", lambda _: 0)
    with pytest.raises(CredentialError, match="root is not accepted"):
        owner(accepting(lambda _: "toor@pool"), made(sub="toor@pool"))


def test_by_default_the_daemon_says_whether_tokens_are_accepted() -> None:
    """Those of a pool that is not the daemon's batch system prove nothing."""
    for system, accepted in (("condor", True), ("slurm", False)):

        async def said(system: str = system) -> str:
            return system

        pool = Pool(lambda _: f"{USER.pw_name}@pool", lambda: "pool")
        authenticator = TokenAuthenticator(pool, said, lambda: NOW)
        if accepted:
            assert owner(authenticator, made(iat=NOW)) == USER.pw_uid
        else:
            with pytest.raises(CredentialError, match="the batch system is slurm"):
                owner(authenticator, made(iat=NOW))


async def test_no_host_delays_another() -> None:
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


async def test_there_is_a_limit_for_all_hosts() -> None:
    """As many hosts as you like do not make it longer."""
    release = threading.Event()

    def slow(_: str) -> str:
        release.wait(60)
        return f"{USER.pw_name}@pool"

    authenticator = accepting(slow)
    tasks = [
        asyncio.create_task(authenticator.uid(made(jti=f"j{n}"), f"host{n % 8}")) for n in range(64)
    ]
    await asyncio.sleep(0)
    with pytest.raises(OverloadError):
        await authenticator.uid(made(jti="last"), "other")
    release.set()
    await asyncio.gather(*tasks)


async def test_used_tokens_are_forgotten_when_they_end() -> None:
    """They would be refused by then anyway."""
    now = [NOW]
    pool = Pool(lambda _: f"{USER.pw_name}@pool", lambda: "pool")
    authenticator = TokenAuthenticator(pool, clock=lambda: now[0])
    for n in range(1100):
        await authenticator.uid(made(jti=f"j{n}", iat=NOW), "host")
    now[0] += 100
    await authenticator.uid(made(jti="late", iat=NOW, exp=NOW + 160), "host")
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


class Clock:
    """A clock that is set."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_ticket_is_good_once() -> None:
    """It brings a session of its user; a second visit, or another ticket, brings none."""
    sessions = Sessions(Clock())
    ticket = sessions.ticket(1001)
    cookie = sessions.enter(ticket)
    assert sessions.uid(cookie) == 1001
    assert sessions.uid(ticket) is None
    for wrong in (ticket, cookie, "", "\udcff"):
        with pytest.raises(NoSessionError, match="run `rtsched board` again"):
            sessions.enter(wrong)


def test_they_end() -> None:
    """A ticket after a minute, a session after eight hours."""
    clock = Clock()
    sessions = Sessions(clock)
    late, cookie = sessions.ticket(7), sessions.enter(sessions.ticket(7))
    clock.now += TICKET_S + 1
    with pytest.raises(NoSessionError):
        sessions.enter(late)
    assert sessions.uid(cookie) == 7
    clock.now += SESSION_S
    assert sessions.uid(cookie) is None


def test_one_user_has_so_many_and_none_of_others() -> None:
    """The oldest of a user's give way; those of others stay."""
    sessions = Sessions(Clock())
    other = sessions.enter(sessions.ticket(1))
    own = [sessions.enter(sessions.ticket(2)) for _ in range(SESSIONS_EACH + 3)]
    assert [sessions.uid(each) for each in own] == [None] * 3 + [2] * SESSIONS_EACH
    assert sessions.uid(other) == 1


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (f"{COOKIE}=abc", "abc"),
        (f"a=1; {COOKIE}=abc; b=2", "abc"),
        (f"x{COOKIE}=abc", ""),
        ("", ""),
        (f"{COOKIE}", ""),
    ],
)
def test_the_cookie_among_others(header: str, value: str) -> None:
    """By its whole name."""
    assert cookie_in(header) == value
