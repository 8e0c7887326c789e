"""The objects of one list in a JSON file of any length, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import InputError
from rtsched.kernels.text import scan_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtsched.logs.source import Source

LONGEST = 64 << 20
"""A longer object is no job."""

_AT_ONCE = 4096


def json_objects(source: Source, level: int, key: str = "") -> Iterator[tuple[int, bytes]]:
    """Yield line (from 1) and text of each object that lies in `level` lists or objects.

    The rest of the file is not looked at, so a file that is damaged elsewhere is still read. An
    object that the end of the file cuts short is yielded as far as it goes.

    Parameters
    ----------
    source : Source
    level : int
        0 for objects one after another, 1 for a list of them, 2 for a list in an object.
    key : str
        For level 2: the list's name.
    """
    name = np.frombuffer(f'"{key}"'.encode() if key else b"", np.uint8)
    state = np.array([0, 0, 0, -1, 0, 0], np.int64)
    spans = np.empty((_AT_ONCE, 3), np.int64)
    text = b""
    for block in source.blocks():
        text += block
        buffer = np.frombuffer(text, np.uint8)
        found = _AT_ONCE
        while found == _AT_ONCE:
            found = scan_objects(buffer, level, name, state, spans)
            for start, end, line in spans[:found].tolist():
                yield line + 1, text[start:end]
        keep = int(state[3]) if state[3] >= 0 else int(state[0])
        text = text[keep:]
        state[0] -= keep
        if state[3] >= 0:
            state[3] -= keep
        if len(text) > LONGEST:
            raise InputError(
                source.path,
                f"a JSON object or string is longer than {LONGEST >> 20} MB; the file is damaged",
                line=int(state[5]) + 1,
            )
    if state[3] >= 0:
        yield int(state[5]) + 1, text
