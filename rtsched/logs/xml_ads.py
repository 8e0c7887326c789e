"""ClassAds as XML (`condor_history -xml`, `condor_status -xml`), read as they come.

Source: classads.dtd of HTCondor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.parsers import expat

from rtsched.logs.classads import parse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rtsched.logs.classads import Record, Value
    from rtsched.logs.source import Source

_LONGEST = 1 << 20
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
