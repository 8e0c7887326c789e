"""ClassAds: their values, and files of them: raw, `-long`, `-json`, `-jsonl`, `-xml`, `-af:h`.

A value is a literal, or the plain arithmetic that users write into job attributes.

Source: the ClassAd language reference in the manual of HTCondor.
"""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING
from xml.parsers import expat

import msgspec

from rtsched.logs.json_objects import json_objects
from rtsched.logs.source import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rtsched.logs.source import Source

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


_NAME = re.compile(r"[A-Za-z_]\w*")


def header_of(head: bytes) -> tuple[str, list[str]]:
    """Return what is between the columns, and their names in lower case; no names: no table.

    Empty: white space is.
    """
    line = readable(head.lstrip(b"\r\n").partition(b"\n")[0]).rstrip("\r ")
    at = "\t" if "\t" in line.strip("\t") else "," if "," in line else ""
    names = [name.strip().lower() for name in (line.split(at) if at else line.split())]
    while names and not names[-1]:
        names.pop()
    if len(names) < 2 or not all(map(_NAME.fullmatch, names)):
        return "", []
    return at, names


def is_table(head: bytes) -> bool:
    """Return whether a file begins with names of attributes of jobs."""
    return {"clusterid", "procid"} <= set(header_of(head)[1])


def table_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    """Yield line and wanted attributes of each ad; arguments as of `read_ads`."""
    at, columns = header_of(source.head)
    before = 0
    for block in source.line_blocks():
        lines = readable(block).split("\n")
        for number, line in enumerate(lines[: len(lines) - (not lines[-1])], before + 1):
            cells = _cells(line, at)
            if not any(cells) or [cell.lower() for cell in cells] == columns:
                continue
            if len(cells) != len(columns):
                bad("the line has another number of fields than the header (use -json)", number)
                continue
            row = zip(columns, cells, strict=True)
            yield number, {name: _value(cell) for name, cell in row if name in names}
        before += len(lines) - 1


def _cells(line: str, at: str) -> list[str]:
    """Return the cells of a line; the last may have what is between them behind it."""
    text = line.strip("\r")
    if not at:
        return text.split() if '"' not in text else _quoted(text.strip(), " ")
    cells = _quoted(text, at) if '"' in text else text.split(at)
    cells = [cell.strip() for cell in cells]
    return cells[:-1] if len(cells) > 1 and not cells[-1] else cells


def _quoted(text: str, at: str) -> list[str]:
    """Return cells of which some are in quotes, as `-af:V` writes texts."""
    try:
        return next(csv.reader([text], delimiter=at, escapechar="\\", skipinitialspace=True), [])
    except csv.Error:
        return []


def _value(cell: str) -> Value:
    """Return the value of a cell; a text has no quotes."""
    value = parse_value(cell)
    return value if value is None or isinstance(value, (bool, float)) else str(value)


_LONGEST_TEXT = 1 << 20
"""Characters of the longest value that is read."""


def is_xml(head: bytes) -> bool:
    """Return whether a file begins as ClassAds in XML do."""
    start = head.lstrip()
    return start.startswith(b"<") and b"<classads" in start[:2000]


def xml_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    """Yield the first line and the wanted attributes of each ad; arguments as of `read_ads`."""
    reader = _Reader(names)
    try:
        for block in source.blocks():
            reader.parser.Parse(block, False)
            yield from reader.taken()
        reader.parser.Parse(b"", True)
    except expat.ExpatError:
        yield from reader.taken()
        bad("the record is no XML, or cut short", reader.parser.CurrentLineNumber)
    yield from reader.taken()


class _Reader:
    """Takes in XML piece by piece. An ad in an ad, and a list, says nothing."""

    def __init__(self, names: frozenset[str]) -> None:
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._more
        self._names = names
        self._found: list[tuple[int, Record]] = []
        self._ad: Record = {}
        self._line = self._depth = 0
        self._name = ""
        self._value: Value = None
        self._text: list[str] = []

    def taken(self) -> list[tuple[int, Record]]:
        """Return the ads that were found since it was last called."""
        found, self._found = self._found, []
        return found

    def _begin(self, tag: str, given: dict[str, str]) -> None:
        self._text = []
        if tag == "c":
            self._depth += 1
            if self._depth == 1:
                self._ad, self._line = {}, self.parser.CurrentLineNumber
        elif tag == "a" and self._depth == 1:
            self._name, self._value = given.get("n", "").lower(), None
        elif tag == "b" and self._depth == 1:
            self._value = given.get("v", "").startswith("t")

    def _more(self, text: str) -> None:
        if self._name and len(self._text) < _LONGEST_TEXT:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        text = "".join(self._text)[:_LONGEST_TEXT]
        if tag == "c":
            self._depth -= 1
            if self._depth == 0:
                self._found.append((self._line, self._ad))
        elif self._depth != 1:
            return
        elif tag == "s":
            self._value = text
        elif tag in {"i", "r", "e"}:
            self._value = parse_value(text)
        elif tag == "a":
            if self._name in self._names and self._value is not None:
                self._ad[self._name] = self._value
            self._name = ""
        elif tag == "l":
            self._value = None


_END = "***"
_MOST_NAMES = 10_000


def read_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    """Yield the first line and the wanted attributes of each ad.

    Parameters
    ----------
    source : Source
    names : frozenset of str
        The wanted attributes, in lower case.
    bad : function of (reason, line)
        Is told of each ad that cannot be read.
    """
    start = source.head.lstrip()[:1]
    if start in {b"[", b"{"}:
        return _json_ads(source, 1 if start == b"[" else 0, names, bad)
    if is_xml(source.head):
        return xml_ads(source, names, bad)
    if is_table(source.head):
        return table_ads(source, names, bad)
    return _text_ads(source, names, bad)


def _json_ads(
    source: Source, level: int, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    decoder = msgspec.json.Decoder(dict[str, object])
    for line, text in json_objects(source, level):
        try:
            ad = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            bad("the record is no JSON, or cut short", line)
            continue
        lower = ((name.lower(), value) for name, value in ad.items())
        yield line, {name: json_value(value) for name, value in lower if name in names}


def _text_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    """Yield the ads of raw history, which end with a line of stars, and of `-long`: a blank one."""
    known: dict[bytes, str] = {}  # what stands before `=`, and the attribute it is
    ad: Record = {}
    first, before, banners = 1, 0, False
    for block in source.line_blocks():
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, before + 1):
            left, equals, value = line.partition(b"=")
            name = known.get(left)
            if name is None:
                name = _attribute(left, names)
                if len(known) < _MOST_NAMES:
                    known[left] = name
            if not name:
                if equals or not ad or left.strip():
                    continue
            elif name != _END:
                first = first if ad else number
                ad[name] = parse_value(readable(value))
                continue
            elif not ad:
                continue
            banners |= name == _END
            yield first, ad
            ad = {}
        before += len(lines)
    if ad and banners:
        bad("the file ends inside the record", first)
    elif ad:
        yield first, ad


def _attribute(left: bytes, names: frozenset[str]) -> str:
    """Return the wanted attribute before `=`, `_END` for a line of stars, else nothing."""
    name = left.strip().lower().decode("ascii", "replace")
    if name.startswith(_END):
        return _END
    return name if name in names else ""
