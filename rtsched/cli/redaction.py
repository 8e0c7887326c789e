"""Redaction of a report for others: secrets, unknown settings and users are left out."""

from __future__ import annotations

import pwd
import re
from typing import TYPE_CHECKING, Any

from rtsched.report.wording import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

LEFT_OUT = "(left out)"
PEOPLE = 1000
"""The first user id that Linux distributions give to people."""
ACCOUNTS = frozenset(("root", "nobody", "munge", "slurm", "condor", "rtsched"))
"""Accounts of services, whatever their ids."""

_SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|webhook|api_?key|(^|[_-])(key|auth)s?($|[_-])",
    re.IGNORECASE,
)
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s'\"<>]*)")
_GIVEN = re.compile(
    r"(?i)\b([\w-]*(?:passw(?:or)?d|passphrase|secret|token|api_?key)[\w-]*)"
    r"(['\"]?\s*[=:]\s*)(?!\(left out\)|unknown setting)(\"[^\"]*\"|'[^']*'|\S+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/_.~=-]{8,}")
_WORD = re.compile(r"[^\W\d][\w.-]*")
_PART = re.compile(r"[^\W\d][\w-]*")
_SHORTEST = {True: 4, False: 8}
"""Characters from which a value is searched for elsewhere: of a secret, and of another one."""


def is_secret(name: str) -> bool:
    """Return whether a setting of this name may hold a secret."""
    return _SECRET.search(name) is not None


class Redactor:
    """Makes texts fit for others: nothing secret, nothing that a terminal obeys, no user names.

    Parameters
    ----------
    users : bool
        Whether user names may be shown; otherwise they become `user1`, `user2`, ...
    accounts : collection of str, optional
        Accounts of services, which are shown in any case.
    """

    def __init__(self, users: bool = False, accounts: Collection[str] = ()) -> None:
        self.users, self.accounts = users, ACCOUNTS | set(accounts)
        self._hidden: set[str] = set()
        self._names: dict[str, str] = {}
        self._count = 0

    def hide(self, value: object, secret: bool) -> None:
        """Remember what was left out: it is not shown where another text quotes it either."""
        if isinstance(value, dict):
            for each in value.values():
                self.hide(each, secret)
        elif isinstance(value, list):
            for each in value:
                self.hide(each, secret)
        elif not isinstance(value, bool) and len(str(value)) >= _SHORTEST[secret]:
            self._hidden |= {str(value), visible(value)}

    def knows(self, name: str) -> None:
        """Take a name for a user's, whether this machine knows the user or not."""
        if name and name not in self.accounts and self._names.get(name, name) == name:
            self._count += 1
            self._names[name] = f"user{self._count}"

    def text(self, text: str) -> str:
        """Return a text on one line without what is to be left out."""
        for value in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(value, LEFT_OUT)
        text = _URL.sub(lambda found: found[1] + _place(found[2]), text)
        text = _GIVEN.sub(rf"\1\2{LEFT_OUT}", text)
        text = _BEARER.sub(rf"\1 {LEFT_OUT}", text)
        return visible(text if self.users else _WORD.sub(self._named, text))

    def _named(self, found: re.Match[str]) -> str:
        whole = found[0].rstrip(".-")
        if (name := self._name(whole)) != whole:
            return name + found[0][len(whole) :]
        return _PART.sub(lambda part: self._name(part[0]), found[0])

    def _name(self, word: str) -> str:
        """Return what is shown for a word: another one if it is a user."""
        if word not in self._names:
            self._names[word] = word
            if _is_person(word):
                self.knows(word)
        return self._names[word]


def _place(rest: str) -> str:
    """Return the host of a URL behind its scheme, and a sign where there is more."""
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2].partition("?")[0].partition("#")[0]
    more = path or host != authority
    return f"{host}/{LEFT_OUT}" if more else host + slash


def _is_person(name: str) -> bool:
    try:
        return pwd.getpwnam(name).pw_uid >= PEOPLE
    except (KeyError, ValueError, OSError):
        return False


def shown_settings(
    values: Mapping[str, Any], schema: Mapping[str, Any], redactor: Redactor
) -> tuple[list[tuple[str, Any]], list[str]]:
    """Return settings by path, and what is left out, a path with the cause each.

    Parameters
    ----------
    values : mapping
        The tables of a settings file.
    schema : mapping
        Their JSON schema; a setting that it does not have is left out.
    redactor : Redactor
        Learns what is left out.
    """
    shown: list[tuple[str, Any]] = []
    left_out: list[str] = []
    for path, value, cause in _walked("", values, schema, schema.get("$defs", {})):
        if cause:
            redactor.hide(value, cause == _MAY_BE_SECRET)
            left_out.append(f"{path} ({cause})")
        else:
            shown.append((path, value))
    return shown, left_out


_MAY_BE_SECRET = "its name suggests a secret"  # noqa: S105
_UNKNOWN = "not a known setting"
_NO_TABLE = "a table where a value belongs"


def _walked(
    path: str, value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str]]:
    """Yield path, value and cause for leaving it out (empty: shown) of all that is in a value."""
    entry = _fitting(value, schema, definitions)
    if isinstance(value, dict):
        known = entry.get("properties", {})
        others = entry.get("additionalProperties", False)
        if not known and not others:
            yield path, value, _NO_TABLE
            return
        for name, inner in value.items():
            below = f"{path}.{name}" if path else str(name)
            within = known.get(name, others)
            if is_secret(name):
                yield below, inner, _MAY_BE_SECRET
            elif not within:
                yield below, inner, _UNKNOWN
            else:
                yield from _walked(below, inner, {} if within is True else within, definitions)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for at, inner in enumerate(value):
            yield from _walked(f"{path}[{at}]", inner, entry.get("items", {}), definitions)
    else:
        yield path, value, ""


def _fitting(
    value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the schema for a value: where it refers to it, or of several the one of its kind."""
    while "$ref" in schema:
        schema = definitions[str(schema["$ref"]).rpartition("/")[2]]
    kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
    for choice in schema.get("anyOf", ()) if kind else ():
        found = _fitting(value, choice, definitions)
        if found.get("type") == kind:
            return found
    return schema
