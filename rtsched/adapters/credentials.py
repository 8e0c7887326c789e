"""Credentials of users: those of MUNGE, and limited IDTOKENS of HTCondor's.

libmunge is called directly (munge(3)); it comes with every Slurm that authenticates by munge. A
credential holds the uid and gid of its maker and a payload. munged decodes each one once, and none
after its time to live.

`condor_token_fetch` has a daemon of the pool sign a token for the identity that it knows the caller
by. The tokens here allow READ only, for a minute. `condor_ping` reports the identity by which the
collector knows the holder of a token. It runs in a process of its own, so no session of another
user's is used again, and finds that token alone, in a private directory.

References
----------
HTCondor manual: condor_token_fetch, condor_ping, "Security" (IDTOKENS, SEC_TOKEN_DIRECTORY). RFC
7519 (JSON Web Token), sections 3 and 4.1.
"""

from __future__ import annotations

import base64
import ctypes
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from rtsched.adapters.programs import run_program
from rtsched.errors import AdapterError

LIBRARY = "libmunge.so.2"

_TTL, _SOCKET = 4, 8  # munge_opt_t
_NO_DAEMON = frozenset((6, 7))  # EMUNGE_SOCKET, EMUNGE_TIMEOUT


class CredentialError(AdapterError):
    """A credential that proves nothing: forged, expired, or used before."""


class Credential(NamedTuple):
    """What a valid credential says."""

    uid: int
    payload: bytes


def available() -> bool:
    """Return whether there are libmunge and munged's default socket on this host."""
    try:
        library = _library()
    except AdapterError:
        return False
    path, context = ctypes.c_char_p(), _context(library, 0, "")
    try:
        failed = library.munge_ctx_get(context, ctypes.c_int(_SOCKET), ctypes.byref(path))
        return not failed and path.value is not None and os.path.exists(path.value)
    finally:
        library.munge_ctx_destroy(context)


def encode(payload: bytes, ttl_s: int = 0, socket: str = "") -> str:
    """Return a credential of this process's user.

    Parameters
    ----------
    payload : bytes
        What it is for.
    ttl_s : int
        Seconds for which it is valid; 0: munged's default, 300.
    socket : str
        Of munged; empty: the default one.

    Raises
    ------
    AdapterError
        If there is no libmunge here, or munged does not answer.
    """
    library = _library()
    made, context = ctypes.c_char_p(), _context(library, ttl_s, socket)
    try:
        error = library.munge_encode(ctypes.byref(made), context, payload, len(payload))
        if error or made.value is None:
            raise AdapterError(f"no munge credential could be made: {_words(library, error)}")
        return made.value.decode("ascii")
    finally:
        library.munge_ctx_destroy(context)
        _free(ctypes.cast(made, ctypes.c_void_p))


def decode(text: str, socket: str = "") -> Credential:
    """Return what a credential says; it is used up then.

    Parameters
    ----------
    text : str
        The credential.
    socket : str
        Of munged; empty: the default one.

    Raises
    ------
    CredentialError
        If it is not valid, or not any more.
    AdapterError
        If there is no libmunge here, or munged does not answer.
    """
    library = _library()
    buffer, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    context = _context(library, 0, socket)
    try:
        error = library.munge_decode(
            text.encode("ascii", "replace"),
            context,
            ctypes.byref(buffer),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        if error in _NO_DAEMON:
            raise AdapterError(f"munged does not answer: {_words(library, error)}")
        if error:  # of an expired or replayed one there is a payload all the same
            raise CredentialError(f"invalid munge credential: {_words(library, error)}")
        payload = ctypes.string_at(buffer, length.value) if buffer and length.value > 0 else b""
        return Credential(uid.value, payload)
    finally:
        library.munge_ctx_destroy(context)
        _free(buffer)


def _context(library: ctypes.CDLL, ttl_s: int, socket: str) -> ctypes.c_void_p:
    """Return the settings of one call; whoever asks destroys them."""
    context = ctypes.c_void_p(library.munge_ctx_create())
    if ttl_s:
        library.munge_ctx_set(context, ctypes.c_int(_TTL), ctypes.c_int(ttl_s))
    if socket:
        library.munge_ctx_set(context, ctypes.c_int(_SOCKET), ctypes.c_char_p(socket.encode()))
    return context


def _words(library: ctypes.CDLL, error: int) -> str:
    text: bytes = library.munge_strerror(error)
    return text.decode("ascii", "replace")


def _free(buffer: ctypes.c_void_p) -> None:
    if buffer:
        _libc().free(buffer)


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    return library


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise AdapterError(f"{LIBRARY} is not installed here; it comes with munge") from error
    c_int, pointer = ctypes.c_int, ctypes.POINTER
    library.munge_encode.argtypes = [
        pointer(ctypes.c_char_p),
        ctypes.c_void_p,
        ctypes.c_char_p,
        c_int,
    ]
    library.munge_decode.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        pointer(ctypes.c_void_p),
        pointer(c_int),
        pointer(ctypes.c_uint32),
        pointer(ctypes.c_uint32),
    ]
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes, library.munge_ctx_destroy.restype = [ctypes.c_void_p], None
    library.munge_strerror.argtypes, library.munge_strerror.restype = [c_int], ctypes.c_char_p
    return library


FETCH, PING, CONFIG = "condor_token_fetch", "condor_ping", "condor_config_val"

LIFETIME_S = 60
"""Seconds for which the tokens of our own client are valid."""
FARTHEST_S = 300
"""Seconds that the end of a token may be ahead."""
LONGEST = 4096
"""Bytes of a token."""
SCOPE = "condor:/READ"

_PARTS = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_METHODS = frozenset(("IDTOKENS", "IDTOKEN", "TOKENS", "TOKEN"))
_AWAY = ("Failed to connect", "Connection closed", "couldn't locate", "find address")
_LIMITED = f"{FETCH} -authz READ -lifetime {LIFETIME_S}"


class Claims(msgspec.Struct, frozen=True):
    """What a token says of itself, which is nothing before the collector has accepted it.

    Attributes
    ----------
    sub : str
        Whose it is: user and domain.
    jti : str
        Its own identifier.
    iat, exp : float
        When it was made and when it ends, seconds since the epoch.
    scope : str
        What it allows; empty: all that its user may do.
    """

    sub: str
    jti: str = ""
    iat: float = 0.0
    exp: float = 0.0
    scope: str = ""


def claims_in(text: str, now: float) -> Claims:
    """Return what a token says of itself, if it is one for a request.

    Parameters
    ----------
    text : str
        The token.
    now : float
        Seconds since the epoch.

    Raises
    ------
    CredentialError
        If it is no token, allows more than READ, is not for minutes only, or has expired.
    """
    if len(text) > LONGEST:
        raise CredentialError(f"the token is longer than {LONGEST} bytes")
    if not _PARTS.fullmatch(text):
        raise CredentialError("this is no token of HTCondor: it needs three parts in base64url")
    part = text.split(".")[1]
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
        claims = msgspec.json.decode(data, type=Claims)
    except (ValueError, RecursionError) as error:
        raise CredentialError("this is no token of HTCondor: its claims are unreadable") from error
    if claims.scope.split() != [SCOPE]:
        raise CredentialError(
            f"the token allows more than READ: never send it to anybody; send one of `{_LIMITED}`"
        )
    if not claims.jti or not claims.iat or not claims.exp or claims.exp > now + FARTHEST_S:
        raise CredentialError(
            f"the token is valid for more than {FARTHEST_S} s, or has no identifier; send one of "
            f"`{_LIMITED}`"
        )
    if claims.exp <= now:
        raise CredentialError("the token has expired; make another one, and compare the clocks")
    return claims


def fetch(seconds: float = 10.0) -> str:
    """Return a new token of this process's user, which allows READ for a minute.

    The local schedd is asked first, which knows users of its host by FS, then the collector.

    Parameters
    ----------
    seconds : float
        How long each may take.

    Raises
    ------
    AdapterError
        If HTCondor is not installed here, or neither makes one.
    """
    words = [FETCH, "-authz", "READ", "-lifetime", str(LIFETIME_S)]
    failures = []
    for daemon, more in (("schedd", []), ("collector", ["-type", "COLLECTOR"])):
        try:
            done = _run([*words, *more], seconds)
        except subprocess.TimeoutExpired:
            failures.append(f"the {daemon} did not answer within {seconds:g} s")
            continue
        token = done.stdout.strip()
        if done.returncode == 0 and _PARTS.fullmatch(token):
            return token
        if daemon == "collector" or "couldn't locate" not in done.stderr:
            failures.append(_why_not(daemon, done.stderr))
    raise AdapterError(f"no token could be made: {'; '.join(failures)}")


def _why_not(daemon: str, text: str) -> str:
    """Return why a daemon made no token."""
    if any(sign in text for sign in _AWAY):
        return f"the {daemon} does not answer"
    if "Failed to authenticate" in text:
        return (
            f"the {daemon} does not know you: `condor_token_list` shows your tokens; without one "
            "use a host where you submit jobs"
        )
    lines = text.strip().splitlines() or ["no reason is given"]
    return f"the {daemon} refuses: {lines[-1]}"


def uid_domain(seconds: float = 5.0) -> str:
    """Return the domain of the pool's users, as HTCondor's configuration on this host has it.

    Raises
    ------
    AdapterError
        If HTCondor is not installed here, or has no configuration.
    """
    done = _answered([CONFIG, "UID_DOMAIN"], seconds)
    domain = done.stdout.strip()
    if done.returncode or not domain:
        raise AdapterError("UID_DOMAIN cannot be read from HTCondor's configuration on this host")
    return domain


def identity_of(token: str, seconds: float = 5.0) -> str:
    """Return by which identity the collector knows the holder of a token: user and domain.

    Parameters
    ----------
    token : str
        Nothing else is used to authenticate, no token or key of this process's user.
    seconds : float
        How long it may take.

    Raises
    ------
    CredentialError
        If the collector does not accept it.
    AdapterError
        If HTCondor is not installed here, or the collector does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="rtsched-") as name:
        directory = Path(name)
        tokens, nothing = directory / "tokens", directory / "nothing"
        tokens.mkdir(0o700)
        nothing.mkdir(0o700)
        descriptor = os.open(tokens / "token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        settings = {
            "SEC_CLIENT_AUTHENTICATION": "REQUIRED",
            "SEC_CLIENT_AUTHENTICATION_METHODS": "IDTOKENS",
            "SEC_TOKEN_DIRECTORY": str(tokens),
            # root would find the pool's own tokens and signing keys
            "SEC_TOKEN_SYSTEM_DIRECTORY": str(nothing),
            "SEC_PASSWORD_DIRECTORY": str(nothing),
            "SEC_TOKEN_POOL_SIGNING_KEY_FILE": str(nothing / "key"),
        }
        variables = {f"_CONDOR_{setting}": value for setting, value in settings.items()}
        words = [PING, "-type", "COLLECTOR", "-long", "READ"]
        done = _answered(words, seconds, {**os.environ, **variables})
    return _identity_in(done)


def _identity_in(done: subprocess.CompletedProcess[str]) -> str:
    """Return the identity that condor_ping -long tells of."""
    pairs = [line.partition(" = ") for line in done.stdout.splitlines()]
    given = {name: value.strip('"') for name, found, value in pairs if found}
    allowed = re.match(r"# READ command to .* is ALLOWED$", done.stdout, re.M)
    if done.returncode == 0 and allowed:
        if given.get("Authentication") != "YES" or given.get("AuthMethods") not in _METHODS:
            raise AdapterError("the collector does not authenticate: check SEC_READ_AUTHENTICATION")
        return given.get("MyRemoteUserName", "")
    if "AUTHENTICATE" in done.stdout or "DENIED" in done.stdout:
        raise CredentialError(
            "the pool's collector does not accept the token: it is forged, expired, of another "
            "pool, or its user may not read"
        )
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason is given"]
    raise AdapterError(f"the collector does not answer: {lines[0].lstrip('#')}")


def _answered(
    words: list[str], seconds: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of HTCondor's commands, which asks the collector, to its end."""
    try:
        return _run(words, seconds, environment)
    except subprocess.TimeoutExpired as error:
        raise AdapterError(f"the collector did not answer within {seconds:g} s") from error


def _run(
    words: list[str], seconds: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of HTCondor's commands; subprocess.TimeoutExpired: it takes longer."""
    try:
        return run_program(words, seconds, environment=environment)
    except FileNotFoundError as error:
        raise AdapterError(f"{words[0]} is not installed here; it comes with HTCondor") from error
    except OSError as error:
        raise AdapterError(f"{words[0]} cannot be started: {error.strerror}") from error
