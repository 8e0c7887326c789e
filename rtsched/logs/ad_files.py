"""ClassAds of a file, one after another: raw, `-long`, `-json`, `-jsonl`, `-xml`, `-af:h`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rtsched.logs.classads import Record, json_value, parse_value
from rtsched.logs.json_objects import json_objects
from rtsched.logs.source import readable
from rtsched.logs.table_ads import is_table, table_ads
from rtsched.logs.xml_ads import is_xml, xml_ads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rtsched.logs.source import Source


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
