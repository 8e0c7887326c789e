"""ClassAds of a file, one after another: raw history, `-long`, `-json` and `-jsonl`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from rtsched.adapters.cells import readable
from rtsched.adapters.classads import Record, json_value, parse_value
from rtsched.adapters.json_objects import json_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rtsched.adapters.source import Source


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
    choice = "|".join(sorted(names, key=len, reverse=True)).encode()
    pattern = re.compile(
        rb"^(?:(?P<name>" + choice + rb")[ \t]*=[ \t]*(?P<value>.*)|(?P<end>\*\*\*.*|[ \t\r]*))$",
        re.IGNORECASE | re.MULTILINE,
    )
    ad: Record = {}
    first, line, banners = 1, 1, False
    for block in source.line_blocks():
        at = 0
        for match in pattern.finditer(block):
            if match.start() == len(block):
                break  # what is behind the last line is no blank line
            line += block.count(b"\n", at, match.start())
            at = match.start()
            name = match["name"]
            if name is not None:
                if not ad:
                    first = line
                ad[name.decode().lower()] = parse_value(readable(match["value"].rstrip(b"\r")))
            elif ad:
                banners |= match["end"].startswith(b"*")
                yield first, ad
                ad = {}
        line += block.count(b"\n", at)
    if ad and banners:
        bad("the file ends inside the record", first)
    elif ad:
        yield first, ad
