"""HTCondor's tokens: which are for a request, and what its commands say of them."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limited_tokens import GOOD, NOW, token

from rtsched.adapters import credentials
from rtsched.adapters.credentials import CredentialError
from rtsched.errors import AdapterError

ALLOWED = """# READ command to local collector is ALLOWED
Authentication = "YES"
AuthMethods = "IDTOKENS"
MyRemoteUserName = "alice@pool"
User = "condor@password"
"""


def test_a_limited_token() -> None:
    """Says whose it is."""
    claims = credentials.claims_in(token(GOOD), NOW)
    assert (claims.sub, claims.jti, claims.exp) == ("alice@pool", "1f", NOW + 59)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scope": None}, "unreadable"),
        ({"scope": ""}, "more than READ"),
        ({"scope": "condor:/READ condor:/WRITE"}, "more than READ"),
        ({"scope": "condor:/ADMINISTRATOR"}, "more than READ"),
        ({"exp": 0}, "more than 300 s"),
        ({"exp": NOW + 301}, "more than 300 s"),
        ({"exp": 1e308}, "more than 300 s"),
        ({"jti": ""}, "no identifier"),
        ({"iat": 0}, "no identifier"),
        ({"exp": NOW}, "has expired"),
        ({"exp": NOW - 1}, "has expired"),
        ({"exp": "soon"}, "unreadable"),
        ({"sub": 7}, "unreadable"),
    ],
)
def test_tokens_that_are_not_for_a_request(change: dict[str, object], says: str) -> None:
    """Full ones, those that last, and what has no claims."""
    with pytest.raises(CredentialError, match=says):
        credentials.claims_in(token(GOOD | change), NOW)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "three parts"),
        ("a.b", "three parts"),
        ("a.b.c.d", "three parts"),
        ("a.b.c\nd.e.f", "three parts"),
        (token(GOOD) + "\n", "three parts"),
        (token(GOOD) + "=", "three parts"),
        ("a.b.c", "unreadable"),
        (token(b"\xff"), "unreadable"),
        (token(b"[" * 2000), "unreadable"),
        (token([]), "unreadable"),
        (token({"jti": "no sub"}), "unreadable"),
        ("a" * 5000, "longer than"),
    ],
)
def test_what_is_no_token(text: str, says: str) -> None:
    """Is refused before anybody is asked."""
    with pytest.raises(CredentialError, match=says):
        credentials.claims_in(text, NOW)


@given(st.binary(max_size=200), st.text("._-aA0=", max_size=50))
def test_nothing_else_is_raised(data: bytes, text: str) -> None:
    """Whatever is sent."""
    for each in (token(data), text):
        with pytest.raises(CredentialError):
            credentials.claims_in(each, NOW)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of HTCondor's commands, which is empty, and the only one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def command(directory: Path, name: str, script: str) -> None:
    """Write a command."""
    file = directory / name
    file.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    file.chmod(0o755)


def test_the_collector_is_asked_with_that_token_alone(commands: Path) -> None:
    """It is in a private directory, and neither in arguments nor anywhere afterwards."""
    seen = commands / "seen"
    script = f"""
d=$_CONDOR_SEC_TOKEN_DIRECTORY
{{ echo "$*"; stat -c %a "$d" "$d/.." "$d/token"; cat "$d/token"
ls "$_CONDOR_SEC_PASSWORD_DIRECTORY"
echo "$_CONDOR_SEC_CLIENT_AUTHENTICATION $_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"; }} >{seen}
cat <<'END'
{ALLOWED}
END
"""
    command(commands, "condor_ping", script)
    assert credentials.identity_of("a.b.c") == "alice@pool"
    assert seen.read_text().splitlines() == [
        "-type COLLECTOR -long READ",
        *("700", "700", "600", "a.b.c", "REQUIRED IDTOKENS"),
    ]
    assert not list((commands / "tmp").iterdir())


@pytest.mark.parametrize(
    ("text", "status", "kind", "says"),
    [
        (ALLOWED.replace("ALLOWED", "DENIED"), 0, CredentialError, "does not accept"),
        ("#AUTHENTICATE:1004:Failed\n# READ command to x is FAILED", 1, CredentialError, "accept"),
        (ALLOWED, 1, AdapterError, "does not answer"),
        (ALLOWED.replace('"YES"', '"NO"'), 0, AdapterError, "does not authenticate"),
        (ALLOWED.replace("IDTOKENS", "FS"), 0, AdapterError, "does not authenticate"),
        ("#SECMAN:2011:Connection closed", 1, AdapterError, "not answer: SECMAN:2011"),
        ("", 1, AdapterError, "no reason is given"),
        ("", 0, AdapterError, "no reason is given"),
    ],
)
def test_what_the_collector_reports(
    commands: Path, text: str, status: int, kind: type[Exception], says: str
) -> None:
    """Only a user authenticated by the token counts; a collector that is away is no refusal."""
    command(commands, "condor_ping", f"cat <<'END'\n{text}\nEND\nexit {status}")
    with pytest.raises(kind, match=says) as raised:
        credentials.identity_of("a.b.c")
    assert type(raised.value) is kind


def test_commands_that_are_missing_or_hang(commands: Path) -> None:
    """One sentence for each."""
    for ask, name in (
        (credentials.fetch, "condor_token_fetch"),
        (lambda: credentials.identity_of("a.b.c"), "condor_ping"),
        (credentials.uid_domain, "condor_config_val"),
    ):
        with pytest.raises(AdapterError, match=f"^{name} is not installed here"):
            ask()
        command(commands, name, "exec sleep 60")
        (commands / name).chmod(stat.S_IRUSR)
        if os.geteuid():
            with pytest.raises(AdapterError, match="cannot be started"):
                ask()
        (commands / name).chmod(0o755)
    with pytest.raises(AdapterError, match=r"within 0\.2 s"):
        credentials.identity_of("a.b.c", 0.2)
    with pytest.raises(AdapterError, match=r"schedd did not answer .*; the collector did not"):
        credentials.fetch(0.2)
    assert not list((commands / "tmp").iterdir())


@pytest.mark.parametrize(
    ("schedd", "collector", "says"),
    [
        ("ERROR: couldn't locate default daemon type.", "Failed to connect to", "collector does"),
        ("Failed to authenticate with any method", "Failed to connect", "schedd does not know you"),
        ("couldn't locate", "Failed to authenticate", "made: the collector does not know you"),
        ("couldn't locate", "DENIED by policy", "the collector refuses: DENIED by policy"),
        ("couldn't locate", "", "no reason is given"),
    ],
)
def test_why_there_is_no_token(commands: Path, schedd: str, collector: str, says: str) -> None:
    """A host without a schedd asks the collector; what both said is reported."""
    script = f"""
case "$*" in *COLLECTOR*) echo "{collector}" >&2 ;; *) echo "{schedd}" >&2 ;; esac
exit 1"""
    command(commands, "condor_token_fetch", script)
    with pytest.raises(AdapterError, match=says):
        credentials.fetch()


def test_a_token_is_fetched(commands: Path) -> None:
    """From the collector where the schedd makes none; limited."""
    script = (
        'case "$*" in *"-authz READ -lifetime 60 -type COLLECTOR"*) echo a.b.c ;; *) echo ;; esac'
    )
    command(commands, "condor_token_fetch", script)
    assert credentials.fetch() == "a.b.c"


def test_the_domain(commands: Path) -> None:
    """Of HTCondor's configuration."""
    command(commands, "condor_config_val", "echo pool")
    assert credentials.uid_domain() == "pool"
    command(commands, "condor_config_val", "echo 'Not defined: UID_DOMAIN' >&2; exit 1")
    with pytest.raises(AdapterError, match="cannot be read"):
        credentials.uid_domain()


def test_munge_is_there_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its library it is not."""
    credentials._library.cache_clear()
    monkeypatch.setattr(credentials, "LIBRARY", "libmunge-missing.so.0")
    assert not credentials.available()
    credentials._library.cache_clear()
