"""What is left out of a report for others, and what stays."""

import pwd
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from rtsched.cli.redaction import Redactor, is_secret, shown_settings

PEOPLE = {"ann": 1000, "bo.lee": 1001, "backup": 34, "slurm": 64030}


@pytest.fixture(autouse=True)
def users(monkeypatch):
    """Make this machine's users those of `PEOPLE`."""

    def getpwnam(name):
        if name not in PEOPLE:
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", PEOPLE[name], 100, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)


class Inner(msgspec.Struct):
    """A table."""

    size: int = 0
    names: list[str] = []


class Outer(msgspec.Struct):
    """A file."""

    title: str = ""
    inner: Inner | None = None
    many: list[Inner] = []
    shares: Annotated[dict[str, float], Meta(description="By name.")] = {}


SCHEMA = msgspec.json.schema(Outer)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("password", "smtp_passwd", "API_KEY", "apikey", "key")),
        *((name, True) for name in ("webhook_url", "private_keys", "auth", "Token", "mySecret")),
        *((name, False) for name in ("cycle", "keyboard", "author", "bin_dir", "patience")),
    ],
)
def test_names_of_secrets(name, secret):
    """A setting is a secret by its name, and not because its name has the letters of one."""
    assert is_secret(name) is secret


def test_known_settings_are_shown_by_path():
    """Tables in tables and lists have their paths; dictionaries with any names are shown."""
    values = {
        "title": "a",
        "inner": {"size": 3, "names": ["x", "y"]},
        "many": [{"size": 1}, {"size": 2}],
        "shares": {"physics": 0.5},
    }
    shown, left_out = shown_settings(values, SCHEMA, Redactor())
    assert left_out == []
    assert shown == [
        ("title", "a"),
        ("inner.size", 3),
        ("inner.names", ["x", "y"]),
        ("many[0].size", 1),
        ("many[1].size", 2),
        ("shares.physics", 0.5),
    ]


def test_unknown_settings_and_secrets_are_left_out_by_name():
    """Each is named with the cause, at any depth; nothing of its value is left."""
    values = {
        "password": "hunter22",
        "title": {"deep": "unexpected"},
        "inner": {"size": 3, "sise": "mistyped value", "token": ["t0ken1", {"a": "t0ken2"}]},
        "many": [{"secret": 1}, 5],
        "shares": {"key": 0.5},
    }
    redactor = Redactor()
    shown, left_out = shown_settings(values, SCHEMA, redactor)
    assert shown == [("inner.size", 3), ("many[1]", 5)]
    assert left_out == [
        "password (its name suggests a secret)",
        "title (a table where a value belongs)",
        "inner.sise (not a known setting)",
        "inner.token (its name suggests a secret)",
        "many[0].secret (its name suggests a secret)",
        "shares.key (its name suggests a secret)",
    ]
    quoted = "hunter22, unexpected, mistyped value, t0ken1, t0ken2"
    assert redactor.text(quoted) == ", ".join(["(left out)"] * 5)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://hooks.example.org/T0/B1/abc", "https://hooks.example.org/(left out)"),
        ("https://u:p@host:8443/x?sig=1", "https://host:8443/(left out)"),
        ("ldap://host/", "ldap://host/"),
        ("http://host?token=abc", "http://host/(left out)"),
        ("Password = 'a b c' given", "Password = (left out) given"),
        ("smtp_token: abc.def", "smtp_token: (left out)"),
        ('{"api_key": "abc"}', '{"api_key": (left out)}'),
        ("daemon.token: unknown setting; known:", "daemon.token: unknown setting; known:"),
        ("Authorization: Bearer abcdef012345", "Authorization: Bearer (left out)"),
        ("a\x1b[31mb\u202ec\nd", "a\\x1b[31mb\\u202ec\\nd"),
        ("the planner failed", "the planner failed"),
    ],
)
def test_texts(text, shown):
    """Credentials in a text are left out, and what a terminal would obey is written out."""
    assert Redactor().text(text) == shown


def test_users_are_numbered():
    """People are numbered in the order in which they appear; accounts of services are not."""
    redactor = Redactor(accounts=["svc"])
    redactor.knows("svc")
    redactor.knows("carl")  # of another machine
    text = "bo.lee, ann@pool, /home/ann/x, carl. backup slurm svc ann2 bo.lee-"
    assert redactor.text(text) == (
        "user2, user3@pool, /home/user3/x, user1. backup slurm svc ann2 user2-"
    )


def test_users_are_shown_if_asked_for():
    """Then secrets are left out all the same."""
    redactor = Redactor(users=True)
    redactor.hide("pass", secret=True)
    redactor.hide("abc", secret=True)  # too short to be looked for in other texts
    redactor.knows("ann")
    assert redactor.text("ann pass abc") == "ann (left out) abc"
