"""Who sent a request: what is believed, and what is refused."""

from __future__ import annotations

import asyncio
import pwd

import pytest
from rest_client import forged

from rtsched.adapters import munge
from rtsched.errors import AdapterError
from rtsched.rest.authentication import AuthenticationError, Authenticator, ForbiddenError
from rtsched.rest.credential import payload_for
from rtsched.rest.limits import ConcurrencyLimit, OverloadError, TokenBucket, TooMuchError

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

    def silent(_: str) -> munge.Credential:
        raise AdapterError("munged does not answer: Socket communication error")

    with pytest.raises(AdapterError, match="munged does not answer"):
        uid(signed(GOOD), authenticator=Authenticator(silent))
    munge._library.cache_clear()
    monkeypatch.setattr(munge, "LIBRARY", "libmunge-missing.so.0")
    with pytest.raises(AdapterError, match="is not installed here"):
        munge.decode("MUNGE:x:")
    munge._library.cache_clear()


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
