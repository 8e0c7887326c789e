"""Values of ClassAds: literals, and the plain arithmetic that users write into job attributes.

Source: the ClassAd language reference in the manual of HTCondor.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?", re.ASCII)
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][-+]?\d+)?)|([A-Za-z_][\w.]*)|([-+*/()]))\s*", re.ASCII
)
_JSON_EXPRESSION = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_LONGEST = 200
"""A longer expression is not worked out."""
_DEEPEST = 20
"""One with more parentheses in each other is not, either."""
_GREATEST = 2.0**53
"""Whole numbers up to here are exact."""

_OF_SLOT = re.compile(r"(?<![\w.])target\s*\.", re.IGNORECASE)

Value = float | int | bool | str | None
Record = dict[str, Value]
"""Attributes of one ad by their names in lower case."""


class Expression(str):
    """The text of an expression that is no literal."""

    __slots__ = ()


def names_slot(expression: str) -> bool:
    """Return whether an expression of a job names an attribute of the slot: it has none yet."""
    return _OF_SLOT.search(expression) is not None


def parse_value(text: str) -> Value:
    """Return the value of a literal, or the text as an `Expression`."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _STRING.fullmatch(text)
    if match is not None:
        return _ESCAPE.sub(r"\1", match[1]) if "\\" in match[1] else match[1]
    word = text.lower()
    if word in {"undefined", "error", ""}:
        return None
    return word == "true" if word in {"true", "false"} else Expression(text)


def json_value(value: object) -> Value:
    """Return a value as `-json` writes it: expressions are strings `/Expr(...)/`."""
    if isinstance(value, str):
        match = _JSON_EXPRESSION.fullmatch(value)
        return parse_value(match[1]) if match is not None else value
    return value if isinstance(value, (bool, int, float)) else None


def number(ad: Mapping[str, Value], *names: str) -> float:
    """Return the first of some attributes that is a number or works out to one; else nan.

    A number beyond 2^53 counts as none. Sums, differences, products and quotients of numbers and
    of other attributes are worked out, such as `QDate + 3600`.
    """
    known: dict[tuple[str, int], float] = {}
    for name in names:
        value = _number(ad.get(name), ad, 4, known)
        if abs(value) <= _GREATEST:
            return value
    return math.nan


def _number(
    value: Value, ad: Mapping[str, Value], depth: int, known: dict[tuple[str, int], float]
) -> float:
    """Return the number that a value is or works out to, else nan.

    `known` holds what attributes worked out to, by name and depth: each is worked out once, however
    often expressions name it.
    """
    if isinstance(value, Expression):
        if depth == 0 or len(value) > _LONGEST:
            return math.nan
        return _Arithmetic(value, ad, depth, known).result()
    if isinstance(value, (bool, int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.nan
    return math.nan


class _Arithmetic:
    """Works out one expression, from left to right."""

    def __init__(
        self,
        text: str,
        ad: Mapping[str, Value],
        depth: int,
        known: dict[tuple[str, int], float],
    ) -> None:
        self._ad, self._depth, self._open, self._known = ad, depth, 0, known
        self._tokens: list[tuple[str, str, str]] = []
        at = 0
        while match := _TOKEN.match(text, at):
            self._tokens.append((match[1] or "", match[2] or "", match[3] or ""))
            at = match.end()
        self._whole = at == len(text)

    def result(self) -> float:
        """Return the value, nan if the expression is not plain arithmetic."""
        value = self._sum() if self._whole else math.nan
        return value if not self._tokens else math.nan

    def _operator(self, which: str) -> str:
        """Take the next token if it is one of these operators."""
        if self._tokens and self._tokens[0][2] and self._tokens[0][2] in which:
            return self._tokens.pop(0)[2]
        return ""

    def _sum(self) -> float:
        value = self._product()
        while operator := self._operator("+-"):
            other = self._product()
            value = value + other if operator == "+" else value - other
        return value

    def _product(self) -> float:
        value = self._factor()
        while operator := self._operator("*/"):
            other = self._factor()
            if operator == "*":
                value *= other
            else:
                value = value / other if other else math.nan
        return value

    def _factor(self) -> float:
        sign = 1.0
        while self._operator("-"):
            sign = -sign
        return sign * self._unsigned()

    def _unsigned(self) -> float:
        if self._operator("("):
            self._open += 1
            value = self._sum() if self._open <= _DEEPEST else math.nan
            self._open -= 1
            return value if self._operator(")") else math.nan
        if not self._tokens:
            return math.nan
        literal, name, _ = self._tokens.pop(0)
        if literal:
            return float(literal)
        key = name.lower().removeprefix("my.").removeprefix("target."), self._depth - 1
        if key not in self._known:
            self._known[key] = _number(self._ad.get(key[0]), self._ad, key[1], self._known)
        return self._known[key]


def text(ad: Mapping[str, Value], *names: str) -> str | None:
    """Return the first of some attributes that is a text; else None."""
    for name in names:
        value = ad.get(name)
        if isinstance(value, str) and value and not isinstance(value, Expression):
            return value
    return None
