"""ClassAds of a file, one after another: raw, `-long`, `-json`, `-jsonl`, `-xml`, `-af:h`.

Sources: HTCondor's manual page condor_history, option -autoformat; classads.dtd of HTCondor.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING
from xml.parsers import expat

import msgspec

from rtsched.logs.classads import Record, json_value, parse_value
from rtsched.logs.source import is_json, json_records, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rtsched.logs.classads import Value
    from rtsched.logs.source import Source

_NAME = re.compile(r"[A-Za-z_]\w*")


def header_of(head: bytes) -> tuple[str, list[str]]:
    """Return what is between the columns, and their names in lower case; no names: no table.

    Empty: white space is. The first column may have no name, as pandas numbers rows.
    """
    line = readable(head.lstrip(b"\r\n").partition(b"\n")[0]).rstrip("\r ")
    at = next((mark for mark in "\t,;|" if mark in line.strip("\t")), "")
    names = [name.strip(' "').lower() for name in (line.split(at) if at else line.split())]
    while names and not names[-1]:
        names.pop()
    if len(names) < 2 or not all(map(_NAME.fullmatch, names[not names[0] :])):
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


_LONGEST = 1 << 20
"""Characters of the longest value that is read."""


def is_xml(head: bytes) -> bool:
    """Return whether a file begins as ClassAds in XML do."""
    start = head.lstrip()
    return start.startswith(b"<") and b"<classads" in start[:2000]


def xml_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    """Yield the first line and the wanted attributes of each ad; arguments as of `read_ads`.

    Another document may follow in the file, as where `condor_history -xml` was appended to it.
    """
    reader = _Reader(names)
    blank = len(source.head) - len(source.head.lstrip())
    reader.before = source.head.count(b"\n", 0, blank)
    try:
        for block in source.blocks():
            text, blank = block[blank:], 0
            while text:
                text = reader.parse(text)
            yield from reader.taken()
        reader.parser.Parse(b"", True)
    except expat.ExpatError:
        yield from reader.taken()
        bad("the record is no XML, or cut short", reader.line)
    yield from reader.taken()


_NEXT = {
    expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT],
    expat.errors.codes[expat.errors.XML_ERROR_MISPLACED_XML_PI],
}
"""Errors where one document ends and another begins."""
_LONGEST_MARK = 1000
"""Bytes of the longest `<...>` with which another one begins."""


class _Reader:
    """Takes in XML piece by piece. An ad in an ad, and a list, says nothing."""

    before = 0
    """Blank lines that it was not given."""

    def __init__(self, names: frozenset[str]) -> None:
        self._open()
        self._names = names
        self._found: list[tuple[int, Record]] = []
        self._ad: Record = {}
        self._line = self._depth = 0
        self._name = ""
        self._value: Value = None
        self._text: list[str] = []

    def _open(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._more
        self._given, self._tail = 0, b""

    def parse(self, text: bytes) -> bytes:
        """Take in a piece of the file; return what of it is of the next document."""
        try:
            self.parser.Parse(text, False)
        except expat.ExpatError as error:
            at = self.parser.ErrorByteIndex - self._given + len(self._tail)
            if error.code not in _NEXT or self._depth or at < 0:
                raise
            text = (self._tail + text)[at:]
            self.before = self.line - 1
            self._open()
            return text
        self._given += len(text)
        self._tail = (self._tail + text)[-_LONGEST_MARK:]
        return b""

    @property
    def line(self) -> int:
        """The line that is looked at, from 1."""
        return self.before + self.parser.CurrentLineNumber

    def taken(self) -> list[tuple[int, Record]]:
        """Return the ads that were found since it was last called."""
        found, self._found = self._found, []
        return found

    def _begin(self, tag: str, given: dict[str, str]) -> None:
        self._text = []
        if tag == "c":
            self._depth += 1
            if self._depth == 1:
                self._ad, self._line = {}, self.line
        elif tag == "a" and self._depth == 1:
            self._name, self._value = given.get("n", "").lower(), None
        elif tag == "b" and self._depth == 1:
            self._value = given.get("v", "").startswith("t")

    def _more(self, text: str) -> None:
        if self._name and len(self._text) < _LONGEST:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        text = "".join(self._text)[:_LONGEST]
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
    if is_json(source.head):
        return _json_ads(source, names, bad)
    if is_xml(source.head):
        return xml_ads(source, names, bad)
    if is_table(source.head):
        return table_ads(source, names, bad)
    return _text_ads(source, names, bad)


def _json_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    decoder = msgspec.json.Decoder(dict[str, object])
    for line, text in json_records(source):
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
                if name == "procid" and name in ad:
                    bad("no blank line ends the record (print it with -long or -af:lng)", first)
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
