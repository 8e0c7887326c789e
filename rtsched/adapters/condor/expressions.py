"""ClassAd expressions of users: one form of each, and what of them may be evaluated.

They are evaluated while others wait, so functions that may take long are left out.

Source: HTCondor's manual, "ClassAds"; how the bindings (classad2) write an expression.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any, NamedTuple

MOST_KEPT = 1000
"""So many results are kept of each kind."""

KEYWORDS = frozenset({"true", "false", "undefined", "error", "is", "isnt"})

PLAIN_CALLS = frozenset(
    {"is", "isnt", "isundefined", "ifthenelse", "stringlistmember", "stringlistimember"}
    | {"tolower", "toupper", "versionge", "versiongt", "versionle", "versionlt"}
)
"""Functions that take no longer than a comparison."""

_TOKEN = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<blank>\s+)"""
    r"|(?P<real>\d\.\d{15}E[-+]\d\d\d?)|(?P<number>\d+)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<operator>\|\||&&|=[?!]=|[=!<>]=|\?:|>>>?|<<|.)",
    re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """A part of an expression: a `name` with its scope, a `quoted` text, an `operator`, ...

    `calls`: whether it is the name of a function that is called.
    """

    kind: str
    text: str
    calls: bool = False


@lru_cache(MOST_KEPT)
def parsed(expression: str) -> Any:
    """Return an expression as HTCondor's bindings have it; None if they cannot read it."""
    try:
        found = bindings()
    except ImportError:
        return None
    try:
        return found.ExprTree(expression)
    except (found.ClassAdException, ValueError):
        return None


@lru_cache(MOST_KEPT)
def tokens_of(expression: str) -> tuple[Token, ...]:
    """Return the parts of an expression, blanks between names and operators included."""
    found = [
        Token(match.lastgroup or "", _plain(match)) for match in _TOKEN.finditer(expression.strip())
    ]
    following = [*(each.text for each in found), ""][1:]
    return tuple(
        each._replace(calls=each.kind == "name" and after == "(")
        for each, after in zip(found, following, strict=True)
    )


def as_written(value: object) -> str:
    """Return a value of an ad as an expression; a truth value as ClassAds write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(MOST_KEPT)
def in_one_form(expression: str, longest: int) -> str:
    """Return an expression in one form, whoever wrote it; one that is too long as it is written."""
    tree = parsed(expression) if len(expression) <= longest else None
    if tree is None:
        return " ".join(expression.split())
    return "".join(token.text for token in tokens_of(str(tree)))


def calls_in(expression: str) -> list[str]:
    """Return the functions that an expression calls."""
    return [
        token.text for token in tokens_of(in_one_form(expression, len(expression))) if token.calls
    ]


def _plain(match: re.Match[str]) -> str:
    """Return a part of an expression: blanks are one, and a number is as short as it can be."""
    if match["blank"]:
        return " "
    return f"{float(match[0])!r}" if match["real"] else match[0]


def bindings() -> Any:
    """Return HTCondor's bindings for ClassAds, which know its own functions from now on.

    Without `htcondor2` they lack stringListMember, MY and the like. It takes a moment to load.

    Raises
    ------
    ImportError
        If there are none.
    """
    importlib.import_module("htcondor2")
    return importlib.import_module("classad2")
